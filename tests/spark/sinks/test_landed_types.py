"""Landed files become the files of a table: their columns have the types that the table names, as readers see them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow

from airflow_provider_coordination.sources.landed_types import SAME, WIDER, retyped
from airflow_provider_coordination.spark.item_file import with_origin
from airflow_provider_coordination.spark.landed_identity import as_landed, file_name
from airflow_provider_coordination.spark.parquet_files import write_table
from tests.support.landed_tables import TABLES, deliver
from tests.support.sinks import SinkTarget, an_attempt, catalog_in

INTEGERS = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}
"""Iceberg has one type for small integers, which Parquet stores alike."""
KINDS = [
    *sorted({*SAME, *WIDER} - {pa.time64("us")}, key=str),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "ns") for zone in (None, "Europe/Berlin", "+02:00")),
    *(pa.decimal256(50, 2), pa.decimal128(38, 9), pa.duration("ns"), pa.dictionary(pa.int8(), pa.large_string())),
    *(pa.list_(pa.uint8(), 2), pa.struct([("at", pa.timestamp("ms")), ("n", pa.uint64())])),
    *(pa.map_(pa.string(), pa.timestamp("s")), pa.binary(3)),
]


def columns_of_table(kind: str, target: SinkTarget) -> tuple[pa.Schema, list[str]]:
    """Return the columns of a table, and its files."""
    if kind == "delta":
        table = DeltaTable(target.folder)
        return pa.schema(table.schema().to_arrow()), table.file_uris()
    found = load_catalog("default", **catalog_in(target.folder)).load_table("lake.clicks")
    return schema_to_pyarrow(found.schema()), [task.file.file_path for task in found.scan().plan_files()]


@pytest.mark.parametrize("kind", TABLES)
def test_table_files_have_the_column_types_of_the_table(kind: str, tmp_path: Path) -> None:
    target = SinkTarget(TABLES[kind], tmp_path / "table")
    kinds = KINDS if kind == "delta" else [*KINDS, pa.time32("ms"), pa.time64("us")]
    columns = {str(number): pa.nulls(1, each) for number, each in enumerate(kinds)} | {"untyped": pa.nulls(1)}
    landed = with_origin(pa.table(columns), "here", 0).append_column("_batch_id", pa.array(["a-1"]))
    uri = str(tmp_path / "clicks" / "a-1" / file_name("TRIM_HORIZON", 1))
    attempt = an_attempt("a-1", file=uri, file_bytes=write_table(as_landed(landed, "a-1"), uri), records=1)
    deliver(target.sink().landed_delivery(keep=False), [attempt])  # type: ignore[attr-defined]
    table, [file] = columns_of_table(kind, target)
    stored = pq.read_metadata(file).schema.to_arrow_schema()  # of Parquet's own types, as other readers see them
    assert "untyped" not in stored.names
    same = INTEGERS if kind == "iceberg" else {}
    for column in retyped(stored, lambda leaf: same.get(leaf, leaf)):
        assert column == retyped(table, lambda leaf: WIDER.get(leaf, leaf)).field(column.name)
