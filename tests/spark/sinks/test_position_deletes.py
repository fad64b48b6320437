"""Rows that leave an Iceberg table by position deletes: which files a merge writes, and what others see of them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform

from airflow_provider_coordination.spark.merging import Merging
from airflow_provider_coordination.spark.sinks import Maintenance
from airflow_provider_coordination.spark.sinks.iceberg import sink as sinks
from airflow_provider_coordination.spark.sinks.iceberg.position_deletes import COLUMNS, RowDelta, delete_files_of
from airflow_provider_coordination.spark.sinks.iceberg.snapshots import PendingSnapshot
from tests.support.merged_tables import BY_CHANGES, CHANGES, Row, a_sink, deliver
from tests.support.sinks import BatchRows, IcebergUnderTest, SinkTarget, an_attempt, catalog_in, under_next_lease
from tests.support.table_readers import read_iceberg


@pytest.fixture
def target(tmp_path: Path) -> SinkTarget:
    return SinkTarget(IcebergUnderTest(), tmp_path / "sink")


def merge(target: SinkTarget, batch_id: str, *rows: Row, **settings: Any) -> None:
    deliver(a_sink(target, **BY_CHANGES, **settings), {batch_id: rows}, an_attempt(batch_id), schema=CHANGES)


def table_of(target: SinkTarget) -> Table:
    return load_catalog("default", **catalog_in(target.folder)).load_table("lake.clicks")


def data_files(target: SinkTarget) -> set[str]:
    return {task.file.file_path for task in table_of(target).scan().plan_files()}


@dataclass(frozen=True)
class Totals:
    """What the summary of the latest snapshot says of a table."""

    data_files: int
    delete_files: int
    position_deletes: int


def totals(target: SinkTarget) -> Totals:
    summary: Any = table_of(target).current_snapshot().summary  # type: ignore[union-attr]
    return Totals(*(int(summary[f"total-{name}"]) for name in ("data-files", "delete-files", "position-deletes")))


def ns(target: SinkTarget) -> list[int]:
    return sorted(n for of_batch in target.visible.values() for n in of_batch)


def test_merge_adds_deletes_and_keeps_the_data_files(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, 1), ("y", 2, 1), ("z", 3, 1))
    before = data_files(target)
    merge(target, "b-1", ("y", 20, 2))
    summary: Any = table_of(target).current_snapshot().summary  # type: ignore[union-attr]
    assert ns(target) == [1, 3, 20] and before < data_files(target)
    assert summary.operation.value == "overwrite" and summary.get("deleted-data-files") is None
    assert (summary["added-delete-files"], summary["added-position-deletes"], summary["added-records"]) == (
        "1", "1", "1",
    )  # fmt: skip
    assert totals(target) == Totals(2, 1, 1)


def test_second_merge_supersedes_the_first_deletes(target: SinkTarget) -> None:
    merge(target, "a-1", ("w", 0, 1), ("x", 1, 1), ("y", 2, 1), ("z", 3, 1))
    merge(target, "b-1", ("y", 20, 2))
    merge(target, "c-1", ("w", None, 2, "REMOVE"), ("z", 30, 2))
    assert ns(target) == [1, 20, 30]
    assert totals(target) == Totals(3, 1, 3)


def test_file_without_rows_left_is_removed(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, 1), ("y", 2, 1))
    [before] = data_files(target)
    merge(target, "b-1", ("x", 10, 2))
    merge(target, "c-1", ("y", None, 2, "REMOVE"))
    assert ns(target) == [10] and before not in data_files(target)
    assert totals(target) == Totals(1, 0, 0)


def test_rejected_batch_is_removed_from_shared_files(target: SinkTarget) -> None:
    target.deliver({"a-1": [1, 2], "b-1": [3]}, [an_attempt("a-1"), an_attempt("b-1")])
    target.deliver({"a-1": [10]}, [under_next_lease(an_attempt("a-1"), rejected=True)])
    assert target.visible == {"a-1": [10], "b-1": [3]}
    assert totals(target) == Totals(2, 1, 2)


def test_written_bytes_grow_with_the_changes(target: SinkTarget) -> None:
    rows = [(os.urandom(500).hex(), n, 1) for n in range(2000)]
    merge(target, "a-1", *rows)
    before = {file: file.stat().st_size for file in target.folder.rglob("*.parquet")}
    merge(target, "b-1", (rows[700][0], -1, 2))
    written = [file.stat().st_size for file in target.folder.rglob("*.parquet") if file not in before]
    assert sum(written) < sum(before.values()) / 50
    assert ns(target) == sorted({-1, *range(2000)} - {700})


def test_key_columns_of_a_merge_are_read_in_pieces(target: SinkTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    merge(target, "a-1", *((f"key-{n}", n, 1) for n in range(150_000)))
    largest: list[tuple[int, list[str]]] = []
    found = Merging.pairs

    def pairs(merging: Merging, rows: pa.Table, changes: pa.Table) -> pa.Table:
        largest.append((rows.num_rows, rows.column_names))
        return found(merging, rows, changes)

    monkeypatch.setattr(Merging, "pairs", pairs)
    merge(target, "b-1", ("key-149999", -1, 2), ("key-3", None, 2, "REMOVE"))
    assert len(largest) > 1 and all(n < 150_000 and "n" not in names for n, names in largest)
    assert ns(target) == sorted({-1, *range(150_000)} - {149_999, 3})


def test_first_version_table_is_rewritten(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, 1), ("y", 2, 1), ("z", 3, 1), table_properties={"format-version": "1"})
    before = data_files(target)
    later = an_attempt("b-1", landed_at=datetime.now(UTC) + timedelta(days=1))
    deliver(a_sink(target, **BY_CHANGES), {"b-1": [("y", 20, 2)]}, later, schema=CHANGES)
    assert table_of(target).metadata.format_version == 1
    assert ns(target) == [1, 3, 20] and not before & data_files(target)


@pytest.mark.parametrize("value", [0.0, -0.0, math.nan, None])
def test_deletes_have_the_partition_of_their_data_file(target: SinkTarget, value: float | None) -> None:
    schema = CHANGES.append(pa.field("p", pa.float64()))

    def rows(*changes: Row) -> Sequence[Row]:
        return [(*change, *[None] * (4 - len(change)), value) for change in changes]

    def partitioned(batch_id: str, *changes: Row) -> None:
        sink = a_sink(target, **BY_CHANGES, partition_by=["p"])
        deliver(sink, {batch_id: rows(*changes)}, an_attempt(batch_id), schema=schema)

    schema = pa.schema([*(field for field in schema if field.name != "_batch_id"), schema.field("_batch_id")])
    partitioned("a-1", ("x", 1, 1), ("y", 2, 1), ("z", 3, 1))
    partitioned("b-1", ("y", 20, 2))
    partitioned("c-1", ("x", 10, 2))
    assert ns(target) == [3, 10, 20]
    [deletes] = delete_files_of(table_of(target))
    assert str(deletes.partition) == str(next(iter(table_of(target).scan().plan_files())).file.partition)


def test_deletes_of_an_earlier_partitioning_keep_it(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, 1), ("y", 2, 1), ("z", 3, 1))
    with table_of(target).update_spec() as update:
        update.add_field("Key", BucketTransform(2), "bucket")
    merge(target, "b-1", ("y", 20, 2))
    merge(target, "c-1", ("y", 21, 3), ("x", 10, 3))
    assert ns(target) == [3, 10, 21]
    assert {file.spec_id for file in delete_files_of(table_of(target))} == {0}
    maintain(target)
    assert ns(target) == [3, 10, 21] and totals(target).delete_files == 0


def delete_as_others(target: SinkTarget, key: str) -> None:
    """Delete a row by one file for the whole partition, without bounds, as other writers may."""
    table, paths, positions = table_of(target), [], []
    for task in table.scan().plan_files():
        keys = pq.read_table(task.file.file_path).column("Key").to_pylist()
        paths += [task.file.file_path] * keys.count(key)
        positions += [n for n, each in enumerate(keys) if each == key]
    path = target.folder / "foreign-deletes.parquet"
    pq.write_table(pa.table([paths, positions], COLUMNS), path)
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=next(iter(table.scan().plan_files())).file.partition,
        record_count=len(paths),
        file_size_in_bytes=path.stat().st_size,
    )
    deletes.spec_id = 0
    with table.transaction() as transaction, RowDelta(transaction, table, {}, [deletes], []):
        pass


def test_merge_counts_positions_beside_foreign_deletes(target: SinkTarget) -> None:
    merge(target, "a-1", ("w", 0, 7), ("x", 1, 1), ("y", 2, 1), ("z", 3, 1))
    merge(target, "b-1", ("v", 9, 1), ("w", 8, 6))
    delete_as_others(target, "w")
    merge(target, "c-1", ("y", 20, 2), ("w", 4, 1))
    assert ns(target) == [1, 3, 4, 9, 20]
    assert totals(target).delete_files == 2, "deletes that may name rows of other files stay"


def test_deletes_of_a_refused_commit_are_removed(target: SinkTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    merge(target, "a-1", ("w", 0, 1), ("x", 1, 1), ("y", 2, 1))
    send, others = PendingSnapshot.send, [lambda: maintain(target), lambda: merge(target, "b-1", ("x", 10, 3))]

    def late(pending: PendingSnapshot) -> None:
        if others:
            others.pop()()
        send(pending)

    monkeypatch.setattr(sinks, "CONFLICT_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(PendingSnapshot, "send", late)
    merge(target, "c-1", ("x", 11, 2), ("y", 21, 2))
    assert ns(target) == [0, 10, 21]
    assert target.leftovers == []


def maintain(target: SinkTarget, **wanted: Any) -> Any:
    sink: Any = target.sink()
    return sink.maintain(Maintenance(**{"retention": timedelta(days=1), **wanted}))


def test_maintenance_folds_deletes_into_data_files(target: SinkTarget) -> None:
    merge(target, "a-1", ("w", 0, 1), ("x", 1, 1), ("y", 2, 1))
    merge(target, "b-1", ("y", 20, 2), ("x", None, 2, "REMOVE"))
    assert maintain(target, is_dry_run=True).files_compacted == 2 and totals(target) == Totals(2, 1, 2)
    assert maintain(target, target_file_bytes=1).files_compacted == 1, "only the file with deletes"
    assert ns(target) == [0, 20] and totals(target) == Totals(2, 0, 0)
    for file in target.folder.rglob("*.parquet"):
        os.utime(file, (0, 0))
    maintain(target, retention=timedelta(0), compact=False)
    assert not list(target.folder.rglob("*-deletes.parquet")) and ns(target) == [0, 20]
    merge(target, "c-1", ("x", 1, 1), ("w", 5, 2))
    assert ns(target) == [5, 20], "the deleted key stays deleted for older changes"


def test_maintenance_drops_deletes_that_apply_to_nothing(target: SinkTarget) -> None:
    merge(target, "a-1", ("w", 0, 1), ("x", 1, 1))
    delete_as_others(target, "x")
    merge(target, "b-1", ("w", 5, 2))
    assert totals(target) == Totals(1, 1, 1)
    assert maintain(target).files_compacted == 0
    assert totals(target) == Totals(1, 0, 0) and ns(target) == [5]


def test_duckdb_reads_the_deletes(target: SinkTarget) -> None:
    merge(target, "a-1", ("w", 0, 1), ("x", 1, 1), ("y", 2, 1))
    merge(target, "b-1", ("x", 10, 2))
    merge(target, "c-1", ("w", None, 2, "REMOVE"))
    found = read_iceberg("SELECT n FROM {table} ORDER BY n", table_of(target).metadata_location)
    assert found.column("n").to_pylist() == ns(target) == [2, 10]


def test_rows_without_keys_are_added_beside_deletes(target: SinkTarget) -> None:
    merge(target, "a-1", ("w", 0, 1), ("x", 1, 1))
    merge(target, "b-1", ("x", 10, 2))
    deliver(target.sink(), {"c-1": [("q", 7, 1)]}, an_attempt("c-1"))
    sink = target.sink()
    sink.prepare([an_attempt("d-1")], BatchRows({"d-1": [8]}))
    sink.commit([an_attempt("d-1")])
    assert ns(target) == [0, 7, 8, 10] and totals(target) == Totals(4, 1, 1)
