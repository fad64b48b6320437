"""Parquet files are dealt to tasks, and tasks read and write them, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.spark import parquet_frames
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS
from airflow_provider_coordination.spark.outages import OUTAGE_MARK
from airflow_provider_coordination.spark.parquet_frames import _dealt, _FilePart, _read, _write, spark_schema

MIB = 2**20
COLUMNS = pa.schema([pa.field("n", pa.int64()), pa.field("_batch_id", pa.string())])


def batches(*values: int, of: str = "a") -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"n": [value], "_batch_id": [of]}, COLUMNS) for value in values]


def read(file: str, *pieces: _FilePart, columns: pa.Schema = COLUMNS) -> list[dict[str, Any]]:
    numbers = [pa.RecordBatch.from_pydict({"id": [0]})]
    found = _read([pieces or (_FilePart(file),)], columns, DEFAULT_ACCESS, OUTAGE_MARK, None, numbers)
    return [row for batch in found for row in batch.to_pylist()]


def write(folder: Path, given: Any, by: str | None = None, names: Sequence[str] = COLUMNS.names) -> list[str]:
    list(_write(str(folder), names, by, DEFAULT_ACCESS, OUTAGE_MARK, given))
    return sorted(map(str, folder.glob("*")))


@pytest.mark.parametrize(
    ("files", "slots", "tasks"),
    [
        ({"small": 1000}, 8, 1),
        ({f"small-{n}": 1000 for n in range(64)}, 2, 2),
        ({f"small-{n}": 1000 for n in range(64)}, 16, 16),
        ({"large": 64 * MIB}, 8, 8),
        ({"huge": 1024 * MIB}, 2, 8),
    ],
)
def test_task_count_follows_the_work(files: dict[str, int], slots: int, tasks: int) -> None:
    assert len(_dealt(files, slots)) == tasks


def test_large_file_leaves_its_task_fewer_others() -> None:
    dealt = _dealt({"large": 40 * MIB, **{f"small-{n}": 1000 for n in range(30)}}, 2)
    [with_large] = [task for task in dealt if any(piece.file == "large" for piece in task)]
    assert len(with_large) == 11 and sum(map(len, dealt)) == 31


@pytest.mark.parametrize("groups", [1, 2, 5, 16])
@pytest.mark.parametrize("of", [1, 2, 3, 8])
def test_each_row_group_is_read_by_one_part(groups: int, of: int, tmp_path: Path) -> None:
    file = str(tmp_path / "file.parquet")
    rows = pa.table({"n": range(groups * 3), "_batch_id": ["a"] * groups * 3}, COLUMNS)
    pq.write_table(rows, file, row_group_size=3)
    found = [row["n"] for part in range(of) for row in read(file, _FilePart(file, part, of))]
    assert sorted(found) == list(range(groups * 3))


def test_wide_rows_are_passed_in_small_batches(tmp_path: Path) -> None:
    file = str(tmp_path / "file.parquet")
    columns = pa.schema([pa.field("data", pa.binary())])
    pq.write_table(pa.table({"data": [bytes([n]) * MIB for n in range(12)]}, columns), file, use_dictionary=False)
    numbers = [pa.RecordBatch.from_pydict({"id": [0]})]
    sizes = [
        batch.num_rows for batch in _read([[_FilePart(file)]], columns, DEFAULT_ACCESS, OUTAGE_MARK, None, numbers)
    ]
    assert sum(sizes) == 12 and max(sizes) <= 4


def test_missing_columns_are_null_and_others_are_dropped(tmp_path: Path) -> None:
    file = str(tmp_path / "file.parquet")
    pq.write_table(pa.table({"n": pa.array([1], pa.int32()), "more": ["x"]}), file)
    assert read(file) == [{"n": 1, "_batch_id": None}]


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"no Parquet")])
def test_unreadable_file_is_no_record_error(tmp_path: Path, damage: Any) -> None:
    file = tmp_path / "file.parquet"
    pq.write_table(pa.table({"n": [1]}), file)
    damage(file)
    with pytest.raises(OSError, match=r"file\.parquet"):
        read(str(file))


def test_rows_are_held_until_worth_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_frames, "ROW_GROUP_BYTES", batches(1)[0].nbytes * 4)
    [file] = write(tmp_path, batches(*range(10)))
    footer = pq.read_metadata(file)
    assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == [4, 4, 2]
    assert pq.read_table(file)["n"].to_pylist() == list(range(10))


def test_rows_are_split_into_files_by_text_without_its_column(tmp_path: Path) -> None:
    files = write(tmp_path, [*batches(1, 2, of="a"), *batches(3, of="b")], "_batch_id")
    assert sorted(pq.read_table(file).to_pydict()["n"] for file in files) == [[1, 2], [3]]
    assert {tuple(pq.read_schema(file).names) for file in files} == {("n",)}


def test_task_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert write(tmp_path, []) == []


def test_each_task_attempt_has_its_own_names(tmp_path: Path) -> None:
    assert len(write(tmp_path, batches(1)) + write(tmp_path, batches(1))) == 3


def test_files_of_a_failed_task_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_frames, "ROW_GROUP_BYTES", 1)

    def failing() -> Any:
        yield from batches(1, 2)
        raise ValueError("what makes the rows raised")

    with pytest.raises(ValueError, match="raised"):
        write(tmp_path, failing())
    assert list(tmp_path.iterdir()) == []


def test_failed_write_is_no_record_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OSError, match="taken"):
        write(tmp_path / "taken" / "folder", batches(1))


def test_null_hiding_required_values_is_written_as_null(tmp_path: Path) -> None:
    kind = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    rows = pa.StructArray.from_arrays(
        [pa.array([1, None], pa.int32())], fields=list(kind), mask=pa.array([False, True])
    )
    batch = pa.RecordBatch.from_arrays([rows], schema=pa.schema([pa.field("s", kind)]))
    [file] = write(tmp_path, [batch], names=["s"])
    assert pq.read_table(file)["s"].to_pylist() == [{"a": 1}, None]


def test_untyped_column_is_available_to_a_transform() -> None:
    landed = pa.schema([("x", pa.null()), ("at", pa.time64("us")), ("id", pa.binary(16))])
    assert spark_schema(landed).simpleString() == "struct<x:void,at:time(6),id:binary>"
