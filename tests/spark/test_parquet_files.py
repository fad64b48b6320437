"""Parquet files are read in pieces that do not depend on their row groups."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.spark import parquet_files
from airflow_provider_coordination.spark.parquet_files import pieces_of


def test_pieces_are_smaller_than_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"n": range(10_000), "text": [f"{n:0100}" for n in range(10_000)]})
    file = str(tmp_path / "rows.parquet")
    pq.write_table(rows, file)
    monkeypatch.setattr(parquet_files, "PIECE_BYTES", 100_000)
    pieces = list(pieces_of(file))
    assert pa.concat_tables(pieces).equals(rows)
    assert len(pieces) > 10 and max(piece.nbytes for piece in pieces) < 200_000
    assert len(list(pieces_of(file, columns=["n"]))) < len(pieces), "rows of few columns need less memory"


def test_pieces_have_the_wanted_columns_of_the_file(tmp_path: Path) -> None:
    rows = pa.table({"n": [1, 2], "list": [["a"], None], "other": [3, 4]})
    file = str(tmp_path / "rows.parquet")
    pq.write_table(rows, file)
    [piece] = pieces_of(file, columns=["list", "missing", "n"])
    assert sorted(piece.column_names) == ["list", "n"]
    pq.write_table(rows.slice(0, 0), file)
    assert sum(piece.num_rows for piece in pieces_of(file)) == 0
