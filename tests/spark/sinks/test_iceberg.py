"""The Iceberg sink beyond the contract: snapshots, partitions, columns, and changes by other writers."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table.snapshots import Snapshot

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError, SinkUnavailableError
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import Sink, make_sinks
from airflow_provider_coordination.spark.sinks.iceberg import catalog as catalogs
from airflow_provider_coordination.spark.sinks.iceberg import data_files
from airflow_provider_coordination.spark.sinks.iceberg.snapshots import BATCHES, DELIVERED, OWNER, SOURCE
from airflow_provider_coordination.spark.storage import join
from tests.support.sinks import BatchRows, an_attempt, catalog_in, under_next_lease

TABLE = "lake.clicks"
AT = [datetime(2026, 1, 1, 5, tzinfo=UTC), datetime(2026, 1, 1, 6, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)]
IDS = pa.field("_batch_id", pa.string())


@dataclass(frozen=True)
class ColumnRows:
    """Rows of some batches with columns of any kind; see `Rows`.

    :param columns: all but `_batch_id`.
    :param batches: the rows of each batch, by number.
    """

    columns: dict[str, pa.Array]
    batches: dict[str, Sequence[int]]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*(pa.field(name, column.type) for name, column in self.columns.items()), IDS])

    def count(self, batch_id: str) -> int:
        return len(self.batches[batch_id])

    def write(self, batch_ids: Collection[str], folder: str) -> dict[str, int]:
        wanted = [(row, batch_id) for batch_id in batch_ids for row in self.batches[batch_id]]
        table = pa.table([*self.columns.values(), pa.nulls(len(self), pa.string())], self.schema)
        taken = table.take([row for row, _ in wanted]).drop_columns("_batch_id")
        file = join(folder, "part-0.parquet")
        rows = taken.append_column(IDS, pa.array([batch_id for _, batch_id in wanted], pa.string()))
        return {file: write_table(rows, file)}

    def __len__(self) -> int:
        return max(map(len, self.columns.values()))


def of_one(batch_id: str, **columns: pa.Array) -> ColumnRows:
    return ColumnRows(columns, {batch_id: range(max(map(len, columns.values())))})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    found = load_catalog("default", **catalog_in(tmp_path))
    found.create_namespace("lake")
    return found


@pytest.fixture
def new_sink(tmp_path: Path, catalog: Catalog) -> Callable[..., Sink]:
    def make(**settings: Any) -> Sink:
        given = {"table": TABLE, "properties": catalog_in(tmp_path), **settings}
        [sink] = make_sinks([SinkSettings(name="main", kind="iceberg", location="iceberg://here", settings=given)])
        return sink

    return make


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "RETRY_PAUSE_SECONDS", 0.01)


def deliver(sink: Sink, attempts: Sequence[Attempt], rows: Any) -> None:
    sink.prepare(attempts, rows)
    sink.commit(attempts)
    sink.discard(attempts)


def rows_in(catalog: Catalog, column: str = "n") -> list[Any]:
    return sorted(row[column] for row in catalog.load_table(TABLE).scan().to_arrow().to_pylist())


def summaries(catalog: Catalog) -> list[Any]:
    return [snapshot.summary for snapshot in catalog.load_table(TABLE).snapshots()]


A, B, C = (an_attempt(name) for name in ("a-1", "b-1", "c-1"))
VALUES = BatchRows({"a-1": [1, 2], "b-1": [3], "c-1": [4, 5, 6]})


# Snapshots


def test_delivery_is_one_snapshot_naming_its_batches(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    deliver(new_sink(), [A, B, C], VALUES)
    [summary] = summaries(catalog)
    assert json.loads(summary[BATCHES]) == {"a-1": "1:.s1", "b-1": "1:.s1", "c-1": "1:.s1"}
    [history] = new_sink().history().commits  # type: ignore[attr-defined]
    assert [(b.batch_id, b.partition_key, b.ordinal, b.batch.start, b.batch.end) for b in history.batches][1] == (
        "b-1", B.partition_key, 1, "TRIM_HORIZON", "9",
    )  # fmt: skip
    assert (summary[SOURCE], summary[OWNER]) == (B.source, B.owner)
    assert (summary["added-data-files"], summary["added-records"]) == ("1", "6")


def test_oversized_snapshot_metadata_is_omitted(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    deliver(new_sink(), [an_attempt("a-1", end=secrets.token_hex(150_000))], VALUES)
    [summary] = summaries(catalog)
    assert BATCHES in summary.additional_properties and DELIVERED not in summary.additional_properties
    assert new_sink().history().unknown == ("a-1",)  # type: ignore[attr-defined]


def test_batch_replacement_is_one_snapshot(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    sink = new_sink()
    deliver(sink, [A, B], VALUES)
    deliver(sink, [under_next_lease(A, rejected=True), C], BatchRows({"a-1": [7], "c-1": [4]}))
    first, second = summaries(catalog)
    assert (first.operation.value, second.operation.value) == ("append", "overwrite")
    assert rows_in(catalog) == [3, 4, 7]


def test_batch_is_found_by_id_in_shared_files(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    """Statistics have whole ids, since batches of one source differ only after their first 16 characters."""
    sink = new_sink()
    names = [f"shardId-000000000000-{n}" for n in range(3)]
    for name in names:
        deliver(sink, [an_attempt(name)], BatchRows({name: [1]}))
    table = catalog.load_table(TABLE)
    assert len(data_files.tasks_of(table, [names[1]])) == 1


# Expired snapshots


def expire_all_but_the_last(catalog: Catalog) -> None:
    table = catalog.load_table(TABLE)
    last = table.current_snapshot()
    assert last is not None
    table.maintenance.expire_snapshots().by_ids(
        [s.snapshot_id for s in table.snapshots() if s.snapshot_id != last.snapshot_id]
    ).commit()
    assert len(catalog.load_table(TABLE).snapshots()) == 1


def test_batch_with_an_expired_snapshot_is_recognized_by_rows(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    deliver(new_sink(), [A], VALUES)
    deliver(new_sink(), [B], VALUES)
    expire_all_but_the_last(catalog)
    again = [under_next_lease(A), under_next_lease(B), under_next_lease(C)]
    sink = new_sink()
    assert sink.committed(again) == {"a-1", "b-1"}
    deliver(sink, again, VALUES)
    assert rows_in(catalog) == [1, 2, 3, 4, 5, 6]


def test_batch_landed_by_this_job_is_not_searched(
    new_sink: Callable[..., Sink], catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(new_sink(), [A], VALUES)
    deliver(new_sink(), [B], VALUES)
    expire_all_but_the_last(catalog)
    sink = new_sink()
    sink.check()
    looked: list[str] = []
    monkeypatch.setattr(data_files, "tasks_of", lambda table, ids: looked.extend(ids) or [])
    assert sink.committed([C, under_next_lease(A)]) == set()
    assert looked == ["a-1"]


def test_batch_is_searched_after_snapshots_expire(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    sink = new_sink()
    sink.check()
    deliver(sink, [A], VALUES)
    deliver(new_sink(), [B], VALUES)
    expire_all_but_the_last(catalog)
    assert sink.committed([A, C]) == {"a-1"}


# Rollback


def roll_back(catalog: Catalog) -> None:
    """Take the table back by one snapshot."""
    table = catalog.load_table(TABLE)
    last = table.current_snapshot()
    assert last is not None and last.parent_snapshot_id is not None
    table.manage_snapshots().rollback_to_snapshot(last.parent_snapshot_id).commit()


def pick(catalog: Catalog, undone: Snapshot) -> None:
    """Add the files of a snapshot again, as `cherrypick_snapshot` of Spark does."""
    table = catalog.load_table(TABLE)
    entries = [entry for m in undone.manifests(table.io) for entry in m.fetch_manifest_entry(table.io)]
    with table.transaction() as transaction:
        update = transaction.update_snapshot(snapshot_properties={"source-snapshot-id": str(undone.snapshot_id)})
        with update.fast_append() as added:
            for entry in entries:
                if entry.snapshot_id == undone.snapshot_id:
                    added.append_data_file(entry.data_file)


def test_rolled_back_batches_are_reported_once_and_delivered_again(
    new_sink: Callable[..., Sink], catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    deliver(new_sink(), [A], VALUES)
    deliver(new_sink(), [B, C], VALUES)
    roll_back(catalog)
    again = [under_next_lease(A), under_next_lease(B)]
    sink = new_sink()
    assert sink.committed(again) == {"a-1"}
    deliver(sink, again, VALUES)
    assert rows_in(catalog) == [1, 2, 3]
    assert caplog.text.count("with 2 batches such as b-1, is undone; batches that are not acknowledged") == 1
    caplog.clear()
    new_sink().committed([C])
    assert "with 1 batches such as c-1" in caplog.text


@pytest.mark.parametrize("source", ["known", "expired"])
def test_picked_batch_is_not_delivered_again(
    new_sink: Callable[..., Sink], catalog: Catalog, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    deliver(new_sink(), [A], VALUES)
    deliver(new_sink(), [B], VALUES)
    undone = catalog.load_table(TABLE).current_snapshot()
    assert undone is not None
    roll_back(catalog)
    foreign_append(catalog)
    pick(catalog, undone)
    if source == "expired":
        catalog.load_table(TABLE).maintenance.expire_snapshots().by_id(undone.snapshot_id).commit()
    sink = new_sink()
    assert sink.committed([B, C]) == {"b-1"}
    deliver(sink, [under_next_lease(A), under_next_lease(B)], VALUES)
    assert rows_in(catalog) == [1, 2, 3, 100]
    assert "was rolled back" not in caplog.text
    assert sink.history().is_complete == (source == "known")  # type: ignore[attr-defined]


# Tables that others change between look and commit


def foreign_append(catalog: Catalog) -> None:
    table = catalog.load_table(TABLE)
    table.append(pa.table({"n": [100], "_batch_id": ["theirs"]}))


def foreign_column(catalog: Catalog) -> None:
    with catalog.load_table(TABLE).update_schema() as update:
        from pyiceberg.types import StringType

        update.add_column("note", StringType())


def foreign_delete(catalog: Catalog) -> None:
    catalog.load_table(TABLE).delete("n == 1")


def foreign_expiry(catalog: Catalog) -> None:
    foreign_append(catalog)
    expire_all_but_the_last(catalog)


def foreign_rewrite(catalog: Catalog) -> None:
    """Rewrite the same rows in other files, as compaction does."""
    table = catalog.load_table(TABLE)
    table.overwrite(table.scan().to_arrow())


CHANGES: dict[str, tuple[Callable[[Catalog], None], Callable[[list[int]], list[int]]]] = {
    "a file is appended": (foreign_append, lambda rows: [*rows, 100]),
    "a column is added": (foreign_column, lambda rows: rows),
    "rows are deleted": (foreign_delete, lambda rows: [row for row in rows if row != 1]),
    "snapshots are expired": (foreign_expiry, lambda rows: [*rows, 100]),
    "files are rewritten": (foreign_rewrite, lambda rows: rows),
}


@pytest.fixture(params=sorted(CHANGES))
def changed(request: pytest.FixtureRequest) -> Any:
    return CHANGES[request.param]


@pytest.mark.parametrize("rejected", [False, True], ids=["new batches", "a batch is replaced"])
def test_concurrent_changes_stay_and_delivery_is_added_once(
    new_sink: Callable[..., Sink], catalog: Catalog, monkeypatch: pytest.MonkeyPatch, changed: Any, rejected: bool
) -> None:
    change, expected = changed
    sink = new_sink()
    deliver(sink, [A, B], VALUES)
    next_ones = [under_next_lease(B, rejected=True), C] if rejected else [C]
    values = BatchRows({"b-1": [33], "c-1": [4, 5, 6]})
    sink.prepare(next_ones, values)
    looked = sink._read_state  # type: ignore[attr-defined]
    times: list[int] = []

    def read_after_a_change(attempts: Sequence[Attempt]) -> Any:
        look = looked(attempts)
        times.append(1)
        if len(times) == 1:
            change(catalog)
        return look

    monkeypatch.setattr(sink, "_read_state", read_after_a_change)
    sink.commit(next_ones)
    sink.discard(next_ones)
    assert rows_in(catalog) == sorted(expected([1, 2, 33 if rejected else 3, 4, 5, 6]))


def test_changed_partitioning_fails_a_batch_until_prepared_again(
    new_sink: Callable[..., Sink], catalog: Catalog
) -> None:
    sink = new_sink()
    deliver(sink, [A], VALUES)
    sink.prepare([B], VALUES)
    with catalog.load_table(TABLE).update_spec() as update:
        update.add_identity("n")
    with pytest.raises(DeliveryError, match=r"^batch b-1: another process changed the partitioning of Iceberg table"):
        sink.commit([B])
    deliver(sink, [B], VALUES)
    assert rows_in(catalog) == [1, 2, 3]


def test_job_does_not_recreate_its_dropped_table(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    sink = new_sink()
    deliver(sink, [A], VALUES)
    catalog.drop_table(TABLE)
    for act in (lambda: sink.committed([B]), lambda: sink.prepare([B], VALUES), lambda: sink.commit([B])):
        with pytest.raises(
            DeliveryError, match=r"^Iceberg table 'lake\.clicks' was dropped after the job began; restore it"
        ):
            act()
    next_job = new_sink()
    deliver(next_job, [B], VALUES)
    assert rows_in(catalog) == [3]


def test_table_dropped_before_commit_gets_nothing(
    new_sink: Callable[..., Sink], catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = new_sink()
    deliver(sink, [A], VALUES)
    sink.prepare([B], VALUES)
    looked = sink._read_state  # type: ignore[attr-defined]

    def read_after_a_drop(attempts: Sequence[Attempt]) -> Any:
        look = looked(attempts)
        catalog.drop_table(TABLE)
        return look

    monkeypatch.setattr(sink, "_read_state", read_after_a_drop)
    with pytest.raises(DeliveryError, match=r"^Iceberg table 'lake\.clicks' was dropped after the job began"):
        sink.commit([B])
    assert not catalog.table_exists(TABLE)


def test_another_table_of_the_same_name_is_not_used(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    sink = new_sink()
    deliver(sink, [A], VALUES)
    catalog.drop_table(TABLE)
    deliver(new_sink(), [B], VALUES)
    with pytest.raises(DeliveryError, match="is not the table that it was when the job began"):
        sink.committed([C])


# Partitions


def test_partitioned_table_has_one_partition_per_file(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    sink = new_sink(partition_by=["day(at)", "bucket(4, n)", "truncate(1, name)", "kind"])
    columns = {
        "n": pa.array([1, 2, 3], pa.int64()),
        "at": pa.array(AT, pa.timestamp("us", "UTC")),
        "name": pa.array(["anna", "albert", "berta"]),
        "kind": pa.array([None, "x", "x"], pa.string()),
    }
    deliver(sink, [A, B], ColumnRows(columns, {"a-1": [0, 1], "b-1": [2]}))
    table = catalog.load_table(TABLE)
    assert [field.name for field in table.spec().fields] == ["at_day", "n_bucket", "name_trunc", "kind"]
    partitions = [row["partition"] for row in table.inspect.partitions().to_pylist()]
    assert sorted(str(p["at_day"]) for p in partitions) == ["2026-01-01", "2026-01-01", "2026-01-02"]
    assert sorted(p["name_trunc"] for p in partitions) == ["a", "a", "b"]
    assert rows_in(catalog) == [1, 2, 3]
    for filtered, found in [("kind is null", [1]), ("at < '2026-01-02T00:00:00+00:00'", [1, 2]), ("n = 3", [3])]:
        assert sorted(table.scan(filtered).to_arrow()["n"].to_pylist()) == found
    rejected = under_next_lease(A, rejected=True)
    deliver(sink, [rejected], ColumnRows(columns, {"a-1": [2]}))
    assert rows_in(catalog) == [3, 3]


@pytest.mark.parametrize(
    ("transform", "column", "expected"),
    [
        ("year(c)", pa.array([datetime(1, 1, 1), datetime(9999, 12, 31)], pa.timestamp("us")), [-1969, 8029]),
        ("month(c)", pa.array([datetime(1970, 2, 1)], pa.timestamp("ms")), [1]),
        ("hour(c)", pa.array([datetime(1970, 1, 1, 7)], pa.timestamp("us")), [7]),
        ("c", pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)), [Decimal("1.50"), None]),
        ("c", pa.array([b"\x00\xff"], pa.binary()), [b"\x00\xff"]),
        ("c", pa.array([float("nan"), 1.5], pa.float64()), ["nan", 1.5]),
        ("truncate(10, c)", pa.array([11, 19, 20], pa.int32()), [10, 20]),
    ],
    ids=["years 1 and 9999", "month", "hour", "decimal and null", "bytes", "NaN", "truncated numbers"],
)
def test_partitions_support_every_type_of_value(
    new_sink: Callable[..., Sink], catalog: Catalog, transform: str, column: pa.Array, expected: list[Any]
) -> None:
    deliver(new_sink(partition_by=[transform]), [A], of_one("a-1", c=column))
    entries = [
        entry
        for manifest in catalog.load_table(TABLE).current_snapshot().manifests(catalog.load_table(TABLE).io)  # type: ignore[union-attr]
        for entry in manifest.fetch_manifest_entry(catalog.load_table(TABLE).io)
    ]
    found = [entry.data_file.partition[0] for entry in entries]
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert catalog.load_table(TABLE).scan().to_arrow().num_rows == len(column)


def test_many_partitions_are_written_sequentially_with_a_warning(
    new_sink: Callable[..., Sink],
    catalog: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(data_files, "MANY_PARTITIONS", 20)
    with caplog.at_level(logging.WARNING):
        deliver(new_sink(partition_by=["n"]), [A], of_one("a-1", n=pa.array(range(21))))
    assert "rows of 21 partitions, and each one becomes a file; choose a coarser 'partition_by'" in caplog.text
    assert len(rows_in(catalog)) == 21


def test_missing_partition_column_is_named(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    sink = new_sink(partition_by=["day(at)"])
    with pytest.raises(DeliveryError, match=r"cannot be partitioned by 'day\(at\)': there is no column 'at'; th"):
        sink.prepare([A], VALUES)
    deliver(sink, [A], of_one("a-1", n=pa.array([1]), at=pa.array(AT[:1])))
    with pytest.raises(
        DeliveryError, match=r"is partitioned by 'at_day', made from the column 'at', which the delivery"
    ):
        sink.prepare([B], VALUES)


def test_unfit_partition_transform_is_named(new_sink: Callable[..., Sink]) -> None:
    message = r"cannot be partitioned by 'day\(id\)': column 'id' is string: .*; choose another transform$"
    with pytest.raises(DeliveryError, match=message):
        new_sink(partition_by=["day(id)"]).prepare([A], of_one("a-1", n=pa.array([1]), id=pa.array(["x"])))


def test_different_partitioning_is_named_at_start(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    deliver(new_sink(), [A], VALUES)
    with pytest.raises(ConfigurationError, match=r"^IcebergTable 'main': field 'partition_by' is \['n'\], but"):
        new_sink(partition_by=["n"]).check()


def test_upgraded_table_is_named_and_stays_as_it_is(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    sink = new_sink()
    deliver(sink, [A], VALUES)
    metadata = Path(urlsplit(catalog.load_table(TABLE).metadata_location).path)
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "format-version": 3, "next-row-id": 10}))
    message = r"Iceberg table 'lake\.\w+' has format version 3, which pyiceberg cannot write; deliver into"
    with pytest.raises(ConfigurationError, match=f"^IcebergTable 'main': field 'table': {message}"):
        new_sink().check()
    with pytest.raises(DeliveryError, match=message):
        deliver(sink, [B], VALUES)
    assert len(new_sink().history().commits) == 1
    assert rows_in(catalog) == [1, 2]


def test_zero_and_negative_zero_are_two_partitions(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    deliver(new_sink(partition_by=["x"]), [A], of_one("a-1", x=pa.array([0.0, -0.0, float("nan")])))
    partitions = [task.file.partition[0] for task in catalog.load_table(TABLE).scan().plan_files()]
    assert sorted(map(str, partitions)) == ["-0.0", "0.0", "nan"]


# Columns


def test_columns_are_added_and_widened_with_their_rows(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    sink = new_sink()
    deliver(sink, [A], of_one("a-1", n=pa.array([1], pa.int32()), x=pa.array([1.5], pa.float32())))
    wider = {"n": pa.array([2**40]), "x": pa.array([2.5]), "note": pa.array(["new"])}
    deliver(sink, [B], of_one("b-1", **wider))
    deliver(sink, [C], of_one("c-1", n=pa.array([3], pa.int32())))
    rows = sorted(catalog.load_table(TABLE).scan().to_arrow().to_pylist(), key=lambda row: row["_batch_id"])
    assert [(row["n"], row["x"], row["note"]) for row in rows] == [(1, 1.5, None), (2**40, 2.5, "new"), (3, None, None)]
    assert len(summaries(catalog)) == 3, "columns come with the rows, in one commit"


@pytest.mark.parametrize(
    ("table", "given"),
    [
        (pa.array(["a"]), pa.array([b"\xff"])),
        (pa.array([b"\xff"]), pa.array(["a"])),
        (pa.array([["a"]]), pa.array([[b"\xff"]])),
    ],
    ids=str,
)
def test_text_and_bytes_are_not_mixed_in_a_column(
    new_sink: Callable[..., Sink], table: pa.Array, given: pa.Array
) -> None:
    sink = new_sink()
    deliver(sink, [B], of_one("b-1", x=table))
    with pytest.raises(DeliveryError, match="Cannot change column type: x"):
        sink.prepare([A], of_one("a-1", x=given))


@pytest.mark.parametrize("name", ["N", "s.A"])
def test_columns_differing_in_case_are_refused(new_sink: Callable[..., Sink], catalog: Catalog, name: str) -> None:
    def given(*names: str) -> dict[str, pa.Array]:
        within = pa.array([dict.fromkeys((each[2:] for each in names if each.startswith("s.")), 1)])
        return {each: pa.array([1]) for each in names if "." not in each} | {"s": within}

    message = f"columns '{name.lower()}' and '{name}' differ only in case"
    with pytest.raises(DeliveryError, match=message):
        new_sink().prepare([A], of_one("a-1", **given("n", "s.a", name)))
    sink = new_sink()
    deliver(sink, [B], of_one("b-1", **given("n", "s.a")))
    with pytest.raises(DeliveryError, match=message):
        sink.prepare([A], of_one("a-1", **given("s.a", name)))


def test_instants_beyond_python_years_have_no_bounds(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    at = pa.array([2**61, -(2**61)], pa.timestamp("us", "UTC"))
    within = pa.array([[2**61], None], pa.list_(pa.timestamp("us")))
    deliver(new_sink(), [A], of_one("a-1", n=pa.array([1, 2]), at=at, within=within))
    table = catalog.load_table(TABLE)
    rows = table.scan().to_arrow()
    assert (rows["at"].combine_chunks(), rows["within"].combine_chunks().cast(within.type)) == (at, within)
    [file] = [task.file for task in table.scan().plan_files()]
    bounded = {table.schema().find_column_name(number) for number in file.lower_bounds}
    assert bounded == {"n", "_batch_id"}


@pytest.mark.parametrize(("transform", "name"), [("month(at)", "at_month"), ("day(at)", "at_day"), ("at", "at")])
def test_unsupported_partition_value_is_named(new_sink: Callable[..., Sink], transform: str, name: str) -> None:
    at = pa.array([2**61], pa.timestamp("us"))
    message = f"is partitioned by '{name}', and the value 2305843009213693952 of column 'at' has no"
    with pytest.raises(DeliveryError, match=message):
        new_sink(partition_by=[transform]).prepare([A], of_one("a-1", at=at))


@pytest.mark.parametrize(
    ("column", "types"),
    [
        (pa.array(["1"]), "n: long -> string"),
        (pa.array([1.5]), "n: long -> double"),
        (pa.array([[1]]), "n"),
    ],
    ids=["text", "fraction", "list"],
)
def test_unsupported_columns_are_named_and_nothing_is_written(
    new_sink: Callable[..., Sink], catalog: Catalog, column: pa.Array, types: str, tmp_path: Path
) -> None:
    sink = new_sink()
    deliver(sink, [A], VALUES)
    before = sorted(tmp_path.rglob("*.parquet"))
    with pytest.raises(
        DeliveryError,
        match=r"^Iceberg table 'lake\.clicks': its columns cannot be changed to fit the records: .*" + types,
    ):
        sink.prepare([B], of_one("b-1", n=column))
    assert rows_in(catalog) == [1, 2] and sorted(tmp_path.rglob("*.parquet")) == before


def test_column_type_changed_after_preparation_holds_the_batch(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    sink = new_sink()
    deliver(sink, [A], VALUES)
    sink.prepare([B], of_one("b-1", n=pa.array([3]), note=pa.array([1])))
    foreign_column(catalog)
    with pytest.raises(DeliveryError, match="note: string -> long"):
        sink.commit([B])
    assert rows_in(catalog) == [1, 2]


def test_table_can_be_declared(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    declared = {"id": "string", "at": "timestamptz", "amount": "decimal(10, 2)"}
    sink = new_sink(columns=declared, partition_by=["month(at)"], table_properties={"format-version": "2"})
    assert new_sink(partition_by=["month(at)"]).required_columns["'partition_by'"] == ("at",)
    assert sink.required_columns["'partition_by'"] == (), "the table has the column, whatever the rows have"
    sink.check()
    table = catalog.load_table(TABLE)
    assert [str(field.field_type) for field in table.schema().fields] == [*declared.values(), "string"]
    assert [field.name for field in table.spec().fields] == ["at_month"]
    sink.check()


def test_null_in_a_required_column_holds_the_batch(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType

    fields = NestedField(1, "n", LongType(), required=True), NestedField(2, "_batch_id", StringType(), required=False)
    catalog.create_table(TABLE, Schema(*fields))
    sink = new_sink()
    for column in (pa.array([1, None]), None):
        sink.prepare([A], of_one("a-1", **({"x": pa.array([1])} if column is None else {"n": column})))
        with pytest.raises(DeliveryError, match="requires column 'n', but the delivery has rows without it"):
            sink.commit([A])
    deliver(sink, [A], VALUES)
    assert rows_in(catalog) == [1, 2]
    assert catalog.load_table(TABLE).schema().find_field("n").required


def test_extreme_values_are_read_back_unchanged(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    columns = {
        "x": pa.array([float("nan"), float("-inf"), None]),
        "at": pa.array([datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), None]),
        "amount": pa.array([Decimal("-99999999.99"), Decimal("99999999.99"), None], pa.decimal128(10, 2)),
        "nested": pa.array([{"tags": ["a"]}, {"tags": []}, None]),
    }
    deliver(new_sink(), [A], of_one("a-1", **columns))
    found = catalog.load_table(TABLE).scan().to_arrow().sort_by("at").to_pydict()
    assert str(found["x"]) == "[nan, -inf, None]"
    assert found["at"][0].year == 1 and found["at"][1].year == 9999
    assert found["amount"] == columns["amount"].to_pylist() and found["nested"] == columns["nested"].to_pylist()


def test_unfit_decimals_hold_the_batch_and_name_the_column(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    sink = new_sink(columns={"amount": "decimal(5, 2)"})
    with pytest.raises(DeliveryError, match=r"amount: decimal\(5, 2\) -> decimal\(10, 4\)"):
        sink.prepare([A], of_one("a-1", amount=pa.array([Decimal("1.2345")], pa.decimal128(10, 4))))


@pytest.mark.parametrize("when", ["before", "between prepare and commit"])
def test_renamed_column_holds_batches_with_its_previous_name(
    new_sink: Callable[..., Sink], catalog: Catalog, when: str
) -> None:
    sink = new_sink()
    deliver(sink, [A], VALUES)
    if when != "before":
        sink.prepare([B], VALUES)
    with catalog.load_table(TABLE).update_schema() as update:
        update.rename_column("n", "number")
    with pytest.raises(DeliveryError, match="column 'n' was renamed to 'number'"):
        deliver(sink, [B], VALUES) if when == "before" else sink.commit([B])
    assert sorted(rows_in(catalog, "number")) == [1, 2]


def test_table_without_the_batch_column_gets_nothing(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    deliver(new_sink(), [A], VALUES)
    with catalog.load_table(TABLE).update_schema() as update:
        update.delete_column("_batch_id")
    with pytest.raises(DeliveryError, match="has lost its column '_batch_id', by which its batches are found"):
        deliver(new_sink(), [B], VALUES)


def test_merged_batch_older_than_the_snapshots_is_refused(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    def sink() -> Sink:
        return new_sink(merge_on=["k"])

    deliver(sink(), [A], of_one("a-1", k=pa.array(["x"]), n=pa.array([1])))
    deliver(sink(), [B], of_one("b-1", k=pa.array(["x"]), n=pa.array([2])))
    expire_all_but_the_last(catalog)
    with pytest.raises(DeliveryError, match=r"^batch a-1: .* has commits since .* and may have got the batch"):
        sink().committed([under_next_lease(A)])
    assert rows_in(catalog) == [2]


def test_foreign_table_gains_the_batch_column(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    catalog.create_table(TABLE, pa.schema([pa.field("n", pa.int64())])).append(pa.table({"n": [7]}))
    deliver(new_sink(), [A], VALUES)
    assert rows_in(catalog) == [1, 2, 7]


# Catalogs


def test_unreachable_catalog_is_an_outage_at_start(short_pauses: None) -> None:
    properties = {"type": "sql", "uri": "postgresql+psycopg://me:hush-hush@127.0.0.1:9/x", "warehouse": "/tmp/none"}
    settings = {"table": TABLE, "properties": properties}
    [sink] = make_sinks([SinkSettings(name="main", kind="iceberg", location="iceberg://here", settings=settings)])
    with pytest.raises(SinkUnavailableError, match=r"^IcebergTable 'main': the catalog at iceberg://here can") as found:
        sink.check()
    assert "run again after the outage" in str(found.value)
    assert "hush" not in str(found.value)


class OutageError(OSError):
    """A catalog is unavailable."""


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int, bool], None]:
    """Let calls of catalogs fail; the last ones may still be executed."""
    from pyiceberg.catalog.sql import SqlCatalog

    def begin(method: str, calls: int, executed: bool) -> None:
        made = getattr(SqlCatalog, method)
        left = [calls]

        def called(self: SqlCatalog, *arguments: Any, **more: Any) -> Any:
            if left[0]:
                left[0] -= 1
                if executed:
                    made(self, *arguments, **more)
                raise OutageError("connection reset")
            return made(self, *arguments, **more)

        monkeypatch.setattr(SqlCatalog, method, called)

    return begin


@pytest.mark.parametrize("executed", [False, True], ids=["nothing arrives", "only answers are lost"])
@pytest.mark.parametrize("method", ["load_table", "commit_table"])
def test_delivery_survives_a_catalog_outage(
    new_sink: Callable[..., Sink], catalog: Catalog, outage: Any, short_pauses: None, method: str, executed: bool
) -> None:
    sink = new_sink()
    deliver(sink, [A], VALUES)
    sink.prepare([B, C], VALUES)
    outage(method, 3, executed)
    sink.commit([B, C])
    sink.discard([B, C])
    assert rows_in(catalog) == [1, 2, 3, 4, 5, 6]
    assert len(summaries(catalog)) == 2


def test_persistent_catalog_outage_fails_and_delays_delivery(
    new_sink: Callable[..., Sink], catalog: Catalog, outage: Any, short_pauses: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = new_sink()
    sink.prepare([A], VALUES)
    outage("load_table", 30, False)
    with monkeypatch.context() as patched:
        patched.setattr(catalogs, "OUTAGE_WAIT_SECONDS", 0.05)
        with pytest.raises(
            SinkUnavailableError, match=r"^Iceberg table 'lake\.clicks': its catalog, at \S+, or the store of it"
        ):
            sink.commit([A])
    sink.commit([A])
    assert rows_in(catalog) == [1, 2]


# Leftovers


def test_files_shared_with_the_current_owner_are_kept(new_sink: Callable[..., Sink], catalog: Catalog) -> None:
    one, other = new_sink(), new_sink()
    one.prepare([A, B], VALUES)
    other.sweep({A.folder: 2})
    deliver(other, [under_next_lease(A)], VALUES)
    one.commit([B])
    assert rows_in(catalog) == [1, 2, 3]


def test_changed_prepared_file_adds_nothing(new_sink: Callable[..., Sink], catalog: Catalog, tmp_path: Path) -> None:
    sink = new_sink()
    for damage in (lambda file: file.unlink(), lambda file: file.write_bytes(file.read_bytes()[:50])):
        sink.prepare([A], VALUES)
        [file] = tmp_path.rglob("*.parquet")
        damage(file)
        with pytest.raises(MissingFileError, match=r"is gone|has 50 bytes instead"):
            sink.commit([A])
        file.unlink(missing_ok=True)
    assert summaries(catalog) == []
