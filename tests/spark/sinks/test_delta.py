"""The Delta sink beyond the contract: the table's log, its columns, and changes by other writers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark import writes as described
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.sinks.delta.sink import DeltaSink
from airflow_provider_coordination.spark.storage import delete_folder, join
from tests.support.delta_tables import batches_in, counted_tables, others_commit_first, rows_in
from tests.support.freezing import FailingCalls
from tests.support.sinks import BatchRows, an_attempt, under_next_lease

MIDNIGHT_OF_YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)
LAST_MICROSECOND = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


@dataclass(frozen=True)
class TableOfRows:
    """Rows of batches with any columns; see `Rows`."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def count(self, batch_id: str) -> int:
        return int(self.table["_batch_id"].to_pylist().count(batch_id))

    def write(self, batch_ids: Collection[str], folder: str) -> dict[str, int]:
        file = join(folder, "part-0.parquet")
        rows = self.table.filter(pa.array([each in batch_ids for each in self.table["_batch_id"].to_pylist()]))
        return {file: write_table(rows, file)}


def rows(batch_id: str = "a-1", **columns: pa.Array) -> TableOfRows:
    count = len(next(iter(columns.values())))
    return TableOfRows(pa.table({**columns, "_batch_id": [batch_id] * count}))


def a_sink(folder: Path, **settings: Any) -> DeltaSink:
    return DeltaSink(name="main", path=str(folder), settings=described.DeltaTable(str(folder), **settings))


def deliver(sink: DeltaSink, given: Any, *attempts: Attempt) -> None:
    sink.prepare(attempts, given)
    sink.commit(attempts)
    sink.discard(attempts)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lake"


A, B = an_attempt("a-1"), an_attempt("b-1")
NUMBERS = BatchRows({"a-1": [1, 2], "b-1": [3]})


def following(attempt: Attempt, number: int) -> Attempt:
    """Return the delivery of a later batch of the same partition."""
    batch = replace(attempt.batch, batch_id=f"{attempt.batch_id}.{number}", ordinal=attempt.ordinal + number)
    return replace(attempt, batch=batch, set_id=f"{batch.batch_id}.s")


# The log


def test_delivery_is_one_commit_naming_its_batches(folder: Path) -> None:
    deliver(a_sink(folder), NUMBERS, A, B)
    [commit, created] = DeltaTable(folder).history()
    said = json.loads(commit["coordination"])
    assert created["operation"] == "CREATE TABLE" and said["sink"] == "main"
    assert said["batches"][0] == {
        "source": "clicks", "partition_key": "a-1", "folder": "clicks/a-1", "owner": "job-1", "fencing_token": 1,
        "set_id": "a-1.s1", "rows": 2,
        "batch": {
            "batch_id": "a-1", "start": "TRIM_HORIZON", "end": "9", "records": 2, "bytes": 1, "fencing_token": 1,
            "ordinal": 1,
        },
    }  # fmt: skip
    assert [each["batch"]["batch_id"] for each in said["batches"]] == ["a-1", "b-1"]


def test_log_has_latest_ordinal_and_fencing_token_per_partition(folder: Path) -> None:
    sink = a_sink(folder)
    deliver(sink, NUMBERS, A, B)
    deliver(sink, BatchRows({"a-1.4": [5]}), under_next_lease(following(A, 4)))
    table = DeltaTable(folder)
    assert table.transaction_version("coordination/clicks/a-1") == 5
    assert table.transaction_version("coordination/clicks/a-1/fencing_token") == 2
    assert table.transaction_version("coordination/clicks/b-1") == 1


def test_replaced_batch_keeps_the_latest_ordinal(folder: Path) -> None:
    sink, later = a_sink(folder), following(A, 1)
    deliver(sink, NUMBERS, A)
    deliver(sink, BatchRows({later.batch_id: [7]}), later)
    deliver(sink, BatchRows({"a-1": [-1]}), under_next_lease(A, rejected=True))
    assert DeltaTable(folder).transaction_version("coordination/clicks/a-1") == 2
    assert a_sink(folder).committed([A, later]) == {"a-1", later.batch_id}
    assert batches_in(folder) == {"a-1": [-1], later.batch_id: [7]}


def test_later_commit_does_not_imply_an_earlier_batch(folder: Path) -> None:
    sink, later = a_sink(folder), following(A, 1)
    deliver(sink, BatchRows({later.batch_id: [7]}), later)
    assert sink.committed([A, later]) == {later.batch_id}
    deliver(sink, NUMBERS, A)
    assert batches_in(folder) == {"a-1": [1, 2], later.batch_id: [7]}


def test_batch_is_recognized_by_its_rows_alone(folder: Path) -> None:
    deliver(a_sink(folder), NUMBERS, A)
    for log in sorted((folder / "_delta_log").glob("*.json")):  # as if written by somebody who says nothing of batches
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            line.get("commitInfo", {}).pop("coordination", None)
        log.write_text("\n".join(map(json.dumps, lines)))
    assert a_sink(folder).committed([under_next_lease(A)]) == {"a-1"}


def test_previous_owner_is_refused_after_a_later_lease_commits(folder: Path) -> None:
    deliver(a_sink(folder), NUMBERS, under_next_lease(A))
    former = following(A, 3)
    sink = a_sink(folder)
    sink.prepare([former], BatchRows({former.batch_id: [9]}))
    with pytest.raises(
        DeliveryError, match=r"batches of partition 'a-1' under a later lease, of token 2; this one has 1"
    ):
        sink.commit([former])
    assert batches_in(folder) == {"a-1": [1, 2]}


def test_batch_is_found_behind_any_number_of_commits(folder: Path) -> None:
    deliver(a_sink(folder), NUMBERS, A)
    table = DeltaTable(folder)
    table.delete("_batch_id = 'a-1'")
    for version in range(table.version() + 1, table.version() + 1_002):  # as others write them, without files
        entry = {"commitInfo": {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE"}}
        (folder / "_delta_log" / f"{version:020}.json").write_text(json.dumps(entry))
    DeltaTable(folder).create_checkpoint()
    deliver(a_sink(folder), NUMBERS, under_next_lease(A))
    assert "a-1" not in batches_in(folder)


@pytest.mark.parametrize("by", ["version", "time"])
def test_batch_undone_by_a_restore_is_redelivered(folder: Path, by: str, caplog: pytest.LogCaptureFixture) -> None:
    deliver(a_sink(folder), NUMBERS, A)
    deliver(a_sink(folder), NUMBERS, B)
    table = DeltaTable(folder)
    first = table.history()[-1]["version"] + 1
    written_at = (folder / "_delta_log" / f"{first:020}.json").stat().st_mtime
    table.restore(first if by == "version" else datetime.fromtimestamp(written_at + 0.001, UTC))
    assert batches_in(folder) == {"a-1": [1, 2]}
    sink = a_sink(folder)
    assert sink.committed([under_next_lease(A), under_next_lease(B)]) == {"a-1"}
    deliver(sink, NUMBERS, under_next_lease(A), under_next_lease(B))
    assert set(batches_in(folder)) == {"a-1", "b-1"}
    assert caplog.text.count("is a RESTORE of an earlier one: batches that it undid are delivered again") == 1


def test_restore_is_reported_before_a_rejected_batch_is_replaced(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deliver(a_sink(folder), NUMBERS, A, B)
    table = DeltaTable(folder)
    table.restore(table.version() - 1)
    deliver(a_sink(folder), NUMBERS, under_next_lease(A, rejected=True))
    assert batches_in(folder) == {"a-1": [1, 2]}
    assert caplog.text.count("is a RESTORE of an earlier one: batches that it undid are delivered again") == 1


def test_table_without_the_batch_column_gets_nothing(folder: Path) -> None:
    deliver(a_sink(folder), NUMBERS, A)
    write_deltalake(folder, pa.table({"n": [0]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(DeliveryError, match="has lost its column '_batch_id', by which its batches are found; restore"):
        deliver(a_sink(folder), NUMBERS, under_next_lease(A))


def test_table_with_expiring_transactions_is_refused(folder: Path) -> None:
    name = "delta.setTransactionRetentionDuration"
    DeltaTable.create(folder, pa.schema({"n": pa.int64()}), configuration={name: "interval 7 days"})
    with pytest.raises(ConfigurationError, match=f"has the property {name} = 'interval 7 days': an expired trans"):
        a_sink(folder).check()


def test_job_sees_commits_of_others_since_its_read(folder: Path) -> None:
    one, other = a_sink(folder), a_sink(folder)
    deliver(one, NUMBERS, A)
    assert one.committed([A, following(A, 1)]) == {"a-1"}
    for number in (1, 2):
        deliver(other, BatchRows({f"a-1.{number}": [number]}), following(A, number))
        write_deltalake(folder, pa.table({"n": [0], "_batch_id": ["somebody's"]}), mode="append")
    assert one.committed([following(A, 1), following(A, 2), following(A, 3)]) == {"a-1.1", "a-1.2"}


# What others do between look and commit


def compact(folder: Path) -> None:
    DeltaTable(folder).optimize.compact()


def add_a_column(folder: Path) -> None:
    write_deltalake(folder, pa.table({"n": [0], "_batch_id": ["x"], "more": ["y"]}), mode="append", schema_mode="merge")


def delete_some_rows(folder: Path) -> None:
    DeltaTable(folder).delete("n = 7")


@pytest.mark.parametrize("change", [compact, add_a_column, delete_some_rows])
def test_table_changed_between_read_and_commit_is_reread(folder: Path, change: Callable[[Path], None]) -> None:
    for number in range(3):
        write_deltalake(folder, pa.table({"n": [7 + number], "_batch_id": ["somebody's"]}), mode="append")
    sink = a_sink(folder)
    with others_commit_first(lambda: change(folder)) as tries:
        deliver(sink, NUMBERS, A, B)
    assert tries == [2]
    found = batches_in(folder)
    assert (found["a-1"], found["b-1"]) == ([1, 2], [3])
    assert found["somebody's"] == ([8, 9] if change is delete_some_rows else [7, 8, 9])


@pytest.mark.parametrize("change", [compact, add_a_column, delete_some_rows])
def test_rejected_batch_is_replaced_despite_concurrent_changes(folder: Path, change: Callable[[Path], None]) -> None:
    deliver(a_sink(folder), BatchRows({"a-1": [-1], "b-1": [7, 8]}), A, B)
    write_deltalake(folder, pa.table({"n": [9], "_batch_id": ["somebody's"]}), mode="append")
    with others_commit_first(lambda: change(folder)) as tries:
        deliver(a_sink(folder), NUMBERS, under_next_lease(A, rejected=True))
    assert tries == [2]
    found = batches_in(folder)
    assert found["a-1"] == [1, 2] and found["somebody's"] == [9]
    assert found["b-1"] == ([8] if change is delete_some_rows else [7, 8])


def test_batch_waits_while_the_table_changes_types(folder: Path) -> None:
    sink = a_sink(folder)
    deliver(sink, NUMBERS, A)
    sink.prepare([B], NUMBERS)

    def overwrite(value: object) -> None:
        others = pa.table({"n": [value], "_batch_id": ["x"]})
        write_deltalake(folder, others, mode="overwrite", schema_mode="overwrite")

    with (
        others_commit_first(lambda: overwrite("text")) as tries,
        pytest.raises(DeliveryError, match=r"column 'n' is 'long', but 'string' in the table\. .*; the batches wait"),
    ):
        sink.commit([B])
    assert tries == [1] and [row["n"] for row in rows_in(folder)] == ["text"]
    overwrite(0)
    sink.commit([B])
    assert batches_in(folder) == {"x": [0], "b-1": [3]}


def test_table_dropped_before_commit_gets_nothing(folder: Path) -> None:
    sink = a_sink(folder)
    deliver(sink, NUMBERS, A)
    sink.prepare([B], NUMBERS)
    with (
        others_commit_first(lambda: delete_folder(str(folder / "_delta_log"))),
        pytest.raises(DeliveryError, match="was dropped after the job began"),
    ):
        sink.commit([B])
    deliver(a_sink(folder), NUMBERS, under_next_lease(B))
    assert batches_in(folder) == {"b-1": [3]}


def test_batch_committed_concurrently_is_stored_once(folder: Path) -> None:
    deliver(a_sink(folder), BatchRows({"c-1": [0]}), an_attempt("c-1"))
    sink = a_sink(folder)
    sink.prepare([A, B], NUMBERS)
    with others_commit_first(lambda: deliver(a_sink(folder), BatchRows({"a-1": [1, 2]}), under_next_lease(A))) as tries:
        sink.commit([A, B])
    assert tries[0] == 3, "the former owner's, the next owner's, and what is left of the former owner's"
    assert batches_in(folder) == {"a-1": [1, 2], "b-1": [3], "c-1": [0]}


@pytest.mark.parametrize("error", [OSError(5, "connection reset"), CommitFailedError("version exists")], ids=repr)
def test_commit_with_a_lost_response_is_made_once(folder: Path, error: Exception) -> None:
    """A client that repeats a request without a response finds its own version, as a conflict."""
    sink = a_sink(folder)
    sink.prepare([A, B], NUMBERS)
    with counted_tables(FailingCalls("table.create_write_transaction", times=1, is_made=True, error=error)):
        sink.commit([A, B])
    assert DeltaTable(folder).version() == 1, "the table is created, and the batches are added"
    assert batches_in(folder) == {"a-1": [1, 2], "b-1": [3]}


def test_table_created_concurrently_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, create = a_sink(folder), DeltaTable.create

    def late(*details: Any, **more: Any) -> DeltaTable:
        monkeypatch.setattr(DeltaTable, "create", create)
        deliver(a_sink(folder), NUMBERS, B)
        return create(*details, **more)

    monkeypatch.setattr(DeltaTable, "create", late)
    deliver(sink, NUMBERS, A)
    assert batches_in(folder) == {"a-1": [1, 2], "b-1": [3]}


def test_outraced_commit_fails_and_can_be_retried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_coordination.spark.sinks.delta.sink.COMMIT_TRIES", 4)
    deliver(a_sink(folder), NUMBERS, B)
    sink = a_sink(folder)
    sink.prepare([A], NUMBERS)
    with (
        others_commit_first(lambda: write_deltalake(folder, rows_of_others(), mode="append"), times=99),
        pytest.raises(DeliveryError, match="1 batches were not committed"),
    ):
        sink.commit([A])
    sink.commit([A])
    assert batches_in(folder)["a-1"] == [1, 2]


def rows_of_others() -> pa.Table:
    return pa.table({"n": [0], "_batch_id": ["x"]})


def test_only_the_next_job_recreates_a_dropped_table(folder: Path) -> None:
    sink = a_sink(folder)
    deliver(sink, NUMBERS, A)
    sink.prepare([B], NUMBERS)
    for file in (folder / "_delta_log").iterdir():
        file.unlink()
    for _ in range(2):
        with pytest.raises(
            DeliveryError, match=r"was dropped after the job began; its batches wait. Restore it, or start"
        ):
            sink.commit([B])
    deliver(a_sink(folder), NUMBERS, under_next_lease(B))
    assert batches_in(folder) == {"b-1": [3]}


def test_missing_or_truncated_prepared_file_is_not_added(folder: Path) -> None:
    sink = a_sink(folder)
    sink.prepare([A], NUMBERS)
    [file] = folder.glob("data/*/*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[:50])
    with pytest.raises(MissingFileError, match=r"has 50 bytes instead of the \d+ that were written"):
        sink.commit([A])
    file.unlink()
    with pytest.raises(MissingFileError, match="is gone"):
        sink.commit([A])
    assert batches_in(folder) == {}


def test_discarded_batch_leaves_no_data_file(folder: Path) -> None:
    sink = a_sink(folder)
    sink.prepare([A, B], NUMBERS)
    sink.discard([A])
    assert len(list(folder.glob("data/*/*.parquet"))) == 1, "it holds rows of the other batch"
    sink.discard([B])
    assert list(folder.glob("data/*/*.parquet")) == []


def test_two_sinks_may_write_to_one_table(folder: Path) -> None:
    clicks, orders = a_sink(folder), a_sink(folder)
    clicks.prepare([A], NUMBERS)
    orders.prepare([B], NUMBERS)
    orders.commit([B])
    clicks.commit([A])
    assert batches_in(folder) == {"a-1": [1, 2], "b-1": [3]}


# Columns


def test_new_column_is_null_in_existing_rows(folder: Path) -> None:
    sink = a_sink(folder)
    deliver(sink, NUMBERS, B)
    deliver(sink, rows(n=pa.array([1]), city=pa.array(["Rome"])), A)
    assert sorted((row["n"], row["city"]) for row in rows_in(folder)) == [(1, "Rome"), (3, None)]


def test_column_missing_from_a_later_batch_is_null(folder: Path) -> None:
    sink = a_sink(folder)
    deliver(sink, rows(n=pa.array([1]), city=pa.array(["Rome"])), A)
    deliver(sink, NUMBERS, B)
    assert sorted((row["n"], row["city"]) for row in rows_in(folder)) == [(1, "Rome"), (3, None)]


@pytest.mark.parametrize(
    ("table", "given", "value"),
    [
        (pa.int64(), pa.int16(), 5),
        (pa.float64(), pa.float32(), 0.5),
        (pa.decimal128(12, 2), pa.decimal128(8, 1), Decimal("3.50")),
    ],
)
def test_narrower_values_are_widened_to_the_table(
    folder: Path, table: pa.DataType, given: pa.DataType, value: Any
) -> None:
    sink = a_sink(folder)
    deliver(sink, rows("b-1", n=pa.array([None], table)), B)
    deliver(sink, rows(n=pa.array([value], given)), A)
    assert [row["n"] for row in rows_in(folder) if row["_batch_id"] == "a-1"] == [value]
    assert DeltaTable(folder).to_pyarrow_table().schema.field("n").type == table


@pytest.mark.parametrize(
    ("table", "given", "message"),
    [
        (pa.int32(), pa.int64(), "'n' is 'long', but 'integer' in the table"),
        (pa.int64(), pa.string(), "'n' is 'string', but 'long' in the table"),
        (pa.decimal128(8, 2), pa.decimal128(12, 2), r"'n' is 'decimal\(12,2\)', but 'decimal\(8,2\)' in the table"),
        (pa.decimal128(8, 2), pa.decimal128(8, 3), r"'n' is 'decimal\(8,3\)', but 'decimal\(8,2\)' in the table"),
    ],
)
def test_unfit_column_is_named_and_the_batch_waits(
    folder: Path, table: pa.DataType, given: pa.DataType, message: str
) -> None:
    sink = a_sink(folder)
    deliver(sink, rows("b-1", n=pa.array([None], table)), B)
    with pytest.raises(
        DeliveryError, match=f"cannot accept the records: column {message}. Convert it in the transform"
    ):
        sink.prepare([A], rows(n=pa.array([None], given)))
    assert [row["_batch_id"] for row in rows_in(folder)] == ["b-1"]
    assert list(folder.glob("_staging/**/*.json")) == []


def test_columns_differing_only_in_case_are_refused(folder: Path) -> None:
    sink = a_sink(folder)
    deliver(sink, NUMBERS, B)
    with pytest.raises(DeliveryError, match="column 'N' is 'n' in the table"):
        sink.prepare([A], rows(N=pa.array([1])))


def test_delivery_columns_differing_only_in_case_are_refused(folder: Path) -> None:
    with pytest.raises(DeliveryError, match="columns 'n' and 'N' differ only in case; rename one in the transform"):
        a_sink(folder).prepare([A], rows(n=pa.array([1]), N=pa.array([1])))
    with pytest.raises(DeliveryError, match=r"columns 's\.n' and 's\.N' differ only in case"):
        a_sink(folder).prepare([A], rows(s=pa.array([{"n": 1, "N": 1}])))


def test_missing_required_column_is_named(folder: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("_batch_id", pa.string())])
    DeltaTable.create(folder, schema)
    with pytest.raises(DeliveryError, match="column 'id' is missing, but the table requires it"):
        a_sink(folder).prepare([A], NUMBERS)


def test_null_in_a_required_column_is_named(folder: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("_batch_id", pa.string())])
    DeltaTable.create(folder, schema)
    with pytest.raises(DeliveryError, match="column 'n' holds 1 nulls, but the table requires values"):
        a_sink(folder).prepare([A], rows(n=pa.array([1, None])))


def test_unsupported_types_are_named(folder: Path) -> None:
    with pytest.raises(DeliveryError, match=r"Delta has no type for column 'at' is 'time64\[us\]'"):
        a_sink(folder).prepare([A], rows(at=pa.array([None], pa.time64("us"))))


def test_table_with_constraints_is_refused(folder: Path) -> None:
    write_deltalake(folder, pa.table({"n": [1], "_batch_id": ["x"]}))
    DeltaTable(folder).alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(ConfigurationError, match=r"the property delta\.constraints\.positive = 'n > 0'"):
        a_sink(folder).check()


def test_table_can_be_created_with_declared_columns(folder: Path) -> None:
    declared = {"n": "decimal(12,2)", "note": "string"}
    deliver(a_sink(folder, columns=declared), rows(n=pa.array([Decimal("1.5")], pa.decimal128(5, 1))), A)
    [row] = rows_in(folder)
    assert (row["n"], row["note"]) == (Decimal("1.50"), None)


# Values


def test_extreme_values_are_read_back_unchanged(folder: Path) -> None:
    given = rows(
        at=pa.array([MIDNIGHT_OF_YEAR_1, LAST_MICROSECOND], pa.timestamp("us", "UTC")),
        day=pa.array([date(1, 1, 1), date(9999, 12, 31)]),
        x=pa.array([math.nan, -math.inf]),
        n=pa.array([-(2**63), 2**63 - 1]),
        d=pa.array([Decimal("9" * 38), Decimal("-" + "9" * 38)], pa.decimal128(38, 0)),
        text=pa.array(["", "\x00\U0001f600" * 100]),
        raw=pa.array([b"", b"\xff"]),
    )
    deliver(a_sink(folder), given, A)
    assert repr(rows_in(folder)) == repr(given.table.to_pylist())


def test_instants_beyond_python_years_have_no_statistics(folder: Path) -> None:
    at, day = (
        pa.array([2**61, -(2**61)], pa.timestamp("us", "UTC")),
        pa.array([2**30, None], pa.int32()).cast(pa.date32()),
    )
    deliver(a_sink(folder), rows(at=at, day=day, n=pa.array([1, 2])), A)
    table = DeltaTable(folder).to_pyarrow_table()
    assert (table["at"].combine_chunks(), table["day"].combine_chunks()) == (at, day)
    [file] = pa.table(DeltaTable(folder).get_add_actions(flatten=True)).to_pylist()
    assert file["max.n"] == 2 and file.get("max.at") is None and file.get("max.day") is None


def test_statistics_skip_no_matching_files(folder: Path) -> None:
    moments = [datetime(2026, 1, 1, microsecond=1, tzinfo=UTC), datetime(2026, 1, 1, microsecond=1999, tzinfo=UTC)]
    deliver(a_sink(folder), rows(at=pa.array(moments), x=pa.array([math.nan, 1.0]), b=pa.array([True, None])), A)
    table = DeltaTable(folder)
    assert table.to_pyarrow_table(filters=[("at", "=", moments[1])]).num_rows == 1
    assert table.to_pyarrow_table(filters=[("_batch_id", "=", "a-1")]).num_rows == 2
    assert table.to_pyarrow_table(filters=[("_batch_id", "=", "b-1")]).num_rows == 0
    [file] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (file["num_records"], file["min._batch_id"], file["null_count.b"]) == (2, "a-1", 1)
    assert file["max.at"] >= moments[1] and file.get("max.x") is None


# Partitions of the table


def test_partitioned_table_has_single_valued_files_including_null(folder: Path) -> None:
    given = rows(
        day=pa.array([date(2026, 1, 2), None, date(2026, 1, 2), date(1, 1, 1)]),
        city=pa.array(["a/b=c %", "x", None, "x"]),
        n=pa.array([1, 2, 3, 4]),
    )
    sink = a_sink(folder, partition_by=("day", "city"))
    deliver(sink, given, A)
    table = DeltaTable(folder)
    assert table.metadata().partition_columns == ["day", "city"] and len(table.file_uris()) == 4
    found = sorted(rows_in(folder), key=lambda row: row["n"])
    assert [row["day"] for row in found] == given.table["day"].to_pylist()
    assert [row["city"] for row in found] == given.table["city"].to_pylist()
    assert [row["n"] for row in table.to_pyarrow_table(filters=[("city", "=", "a/b=c %")]).to_pylist()] == [1]


@pytest.mark.parametrize(
    ("column", "what"),
    [
        (pa.array(["a", ""]), "an empty text, which readers of the table see as null"),
        (pa.array([b"\xff"]), "bytes, which are no text"),
        (pa.array([2**61], pa.timestamp("us")), "a date or an instant outside the years 1 to 9999"),
    ],
    ids=["empty text", "bytes", "year"],
)
def test_invalid_partition_values_are_refused(folder: Path, column: pa.Array, what: str) -> None:
    with pytest.raises(DeliveryError, match=f"^column 'c' partitions the table, and has {what}; convert it in the"):
        a_sink(folder, partition_by=("c",)).prepare([A], rows(c=column))


def test_rejected_batch_of_a_partitioned_table_is_replaced(folder: Path) -> None:
    sink = a_sink(folder, partition_by=("city",))
    both = TableOfRows(pa.table({"city": ["x", None, "x"], "n": [1, 2, 3], "_batch_id": ["a-1", "a-1", "b-1"]}))
    deliver(sink, both, A, B)
    deliver(sink, rows(city=pa.array([None, "y"]), n=pa.array([7, 8])), under_next_lease(A, rejected=True))
    assert sorted((row["n"], row["city"]) for row in rows_in(folder)) == [(3, "x"), (7, None), (8, "y")]


def test_foreign_rows_survive_a_replacement(folder: Path) -> None:
    write_deltalake(folder, pa.table({"n": [0, 1], "_batch_id": pa.array([None, "a-1"])}))
    sink = a_sink(folder)
    deliver(sink, BatchRows({"a-1": [5]}), under_next_lease(A, rejected=True))
    assert sorted((row["n"], row["_batch_id"]) for row in rows_in(folder)) == [(0, None), (5, "a-1")]


def test_missing_partition_column_is_named(folder: Path) -> None:
    with pytest.raises(DeliveryError, match="is partitioned by 'day', which the records do not have"):
        a_sink(folder, partition_by=("day",)).prepare([A], NUMBERS)


def test_other_partition_columns_end_the_job_at_start(folder: Path) -> None:
    deliver(a_sink(folder, partition_by=("n",)), NUMBERS, A)
    with pytest.raises(ConfigurationError, match=r"is partitioned by \['n'\], but 'partition_by' is \['day'\]"):
        a_sink(folder, partition_by=("day",)).check()
    a_sink(folder).check()


def test_unwritable_folder_is_named_by_its_field() -> None:
    with pytest.raises(ConfigurationError, match=r"^DeltaTable 'main': field 'path' is '/proc/lake', which cannot"):
        a_sink(Path("/proc/lake")).check()


def test_rows_of_unknown_batches_are_an_error(folder: Path) -> None:
    strange = TableOfRows(pa.table({"n": [1, 2], "_batch_id": ["a-1", None]}))
    with pytest.raises(DeliveryError, match="rows of None were written, which are not batches"):
        a_sink(folder).prepare([A], UnfilteredRows(strange.table))


@dataclass(frozen=True)
class UnfilteredRows(TableOfRows):
    """Rows that are all written, whichever batches are requested."""

    def write(self, batch_ids: Collection[str], folder: str) -> dict[str, int]:
        file = join(folder, "part-0.parquet")
        return {file: write_table(self.table, file)}


def test_many_partition_values_are_written_with_a_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("airflow_provider_coordination.spark.sinks.delta.sink.MANY_FILES", 30)
    deliver(a_sink(folder, partition_by=("n",)), rows(n=pa.array(range(40))), A)
    assert sorted(row["n"] for row in rows_in(folder)) == list(range(40))
    [warning] = [record.getMessage() for record in caplog.records if "fewer values" in record.getMessage()]
    assert "a delivery makes 40 files, at least one for each value of n" in warning
