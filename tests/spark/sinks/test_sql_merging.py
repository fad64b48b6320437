"""Deletes and order in SQL tables, beyond what all sinks have: collations, tombstones as a table, and locks."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.parquet_files import read_table, write_table
from airflow_provider_coordination.spark.sinks.sql import SqlSink
from airflow_provider_coordination.spark.sinks.sql.database import MAX_TOMBSTONES_BYTES, tombstones_name
from airflow_provider_coordination.spark.storage import join
from airflow_provider_coordination.sql import MYSQL
from tests.spark.sinks.test_sql_refused_rows import letters_in, refusing
from tests.support.merged_tables import BY_CHANGES, CHANGES, MergedRows, Row
from tests.support.sinks import an_attempt
from tests.support.sql_tables import SERVERS, SqlTarget
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.share(0.4)]
BY: dict[str, Any] = {"merge_on": ("Key",), **BY_CHANGES}
TOMBSTONES = "_coordination_deleted_clicks"


@pytest.fixture(params=SERVERS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> SqlTarget:
    return SqlTarget(request.getfixturevalue(SERVERS[request.param]), tmp_path)


def deliver(sink: SqlSink, batch_id: str, *rows: Row, schema: pa.Schema = CHANGES) -> None:
    """Deliver a batch of rows: key, value, version and what they do."""
    attempt = an_attempt(batch_id)
    prepare(sink, attempt, *rows, schema=schema)
    sink.commit([attempt])
    sink.discard([attempt])


def prepare(sink: SqlSink, attempt: Attempt, *rows: Row, schema: pa.Schema = CHANGES) -> None:
    sink.prepare([attempt], MergedRows({attempt.batch_id: rows}, schema))


def merge(target: SqlTarget, batch_id: str, *rows: Row, **changed: Any) -> None:
    """Let a new job deliver a batch."""
    deliver(target.sink(**{**BY, **changed}), batch_id, *rows)


def values(target: SqlTarget) -> list[int]:
    return [n for (n,) in target.rows("n")]


# Two sessions at the same time


@pytest.mark.parametrize("is_known", [False, True], ids=["absent key", "known key"])
def test_older_change_waits_for_an_uncommitted_delete(target: SqlTarget, is_known: bool) -> None:
    merge(target, "z-1", ("other", 9, 1), *([("x", 1, 1)] if is_known else []))
    deleting, older = target.sink(**BY), target.sink(**BY)
    first, second = an_attempt("a-1"), an_attempt("b-1")
    prepare(deleting, first, ("x", None, 5, "REMOVE"))
    prepare(older, second, ("x", 2, 4, "MODIFY"))
    other = threading.Thread(target=older.commit, args=([second],))
    with target.database.engine.connect() as connection:
        deleting._write(first, deleting._staged.find(first), connection)
        other.start()
        other.join(1)
        assert other.is_alive(), "the older change is merged before the delete is committed"
        connection.commit()
    other.join(PATIENCE_SECONDS)
    assert values(target) == [9]


def test_newer_change_wins_between_two_jobs_without_operations(target: SqlTarget) -> None:
    merge(target, "z-1", ("x", 1, 1), op=None)
    newer, older = target.sink(**{**BY, "op": None}), target.sink(**{**BY, "op": None})
    first, second = an_attempt("a-1"), an_attempt("b-1")
    prepare(newer, first, ("x", 5, 5))
    prepare(older, second, ("x", 4, 4))
    other = threading.Thread(target=older.commit, args=([second],))
    with target.database.engine.connect() as connection:
        newer._write(first, newer._staged.find(first), connection)
        other.start()
        other.join(1)
        connection.commit()
    other.join(PATIENCE_SECONDS)
    assert values(target) == [5]


# The table of tombstones


def tombstones(target: SqlTarget) -> list[tuple[Any, ...]]:
    return sorted(target.run(f"SELECT {key_of(target)}, version FROM {TOMBSTONES}"))


def key_of(target: SqlTarget) -> str:
    return '"Key"' if target.is_postgresql else "`Key`"


def test_tombstones_hold_the_greatest_order_of_each_delete(target: SqlTarget) -> None:
    merge(target, "a-1", ("x", None, 5, "REMOVE"), ("y", None, 7, "REMOVE"), ("y", 2, 9), ("z", None, None, "REMOVE"))
    merge(target, "b-1", ("x", None, 3, "REMOVE"), ("y", None, 8, "REMOVE"))
    assert tombstones(target) == [("x", 5), ("y", 8)]
    assert values(target) == [2]


def test_only_expired_tombstones_are_removed(target: SqlTarget) -> None:
    merge(target, "a-1", ("x", None, 5, "REMOVE"), ("y", None, 5, "REMOVE"))
    target.run(f"UPDATE {TOMBSTONES} SET _deleted_at = '2020-01-01 00:00:00' WHERE {key_of(target)} = 'x'")
    merge(target, "b-1", ("z", 1, 1))
    assert tombstones(target) == [("y", 5)]


def test_no_table_of_tombstones_without_operations(target: SqlTarget) -> None:
    merge(target, "a-1", ("x", 1, 5), op=None)
    schema = target.settings.schema
    made = target.run(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'")
    assert sorted(name for (name,) in made) == ["_coordination_batches", "clicks"]


def test_new_table_forgets_the_deletes_of_a_dropped_one(target: SqlTarget) -> None:
    merge(target, "a-1", ("x", None, 5, "REMOVE"))
    target.run("DROP TABLE clicks")
    with pytest.raises(DeliveryError, match=r"clicks.* is gone, but it had batches"):
        merge(target, "b-1", ("x", 1, 1))
    target.run("DELETE FROM _coordination_batches WHERE target = 'clicks'")
    merge(target, "b-1", ("x", 1, 1))
    assert values(target) == [1]


def test_lost_batch_table_is_rebuilt_beside_a_lock(target: SqlTarget) -> None:
    merge(target, "a-1", ("x", 1, 5))
    target.run("DELETE FROM _coordination_batches WHERE batch_id = 'a-1'")
    merge(target, "b-1", ("y", 2, 5))
    found = target.run("SELECT batch_id FROM _coordination_batches")
    assert sorted(batch_id for (batch_id,) in found) == ["(lock)", "a-1", "b-1"]


def test_tombstones_of_other_columns_are_refused(target: SqlTarget) -> None:
    merge(target, "a-1", ("x", None, 5, "REMOVE"))
    with pytest.raises(DeliveryError, match=r"with the columns .*Key.*, but 'merge_on' and 'order_by' name Key, n; to"):
        merge(target, "b-1", ("x", 1, 1), order_by="n")
    target.run(f"DROP TABLE {TOMBSTONES}")
    target.run(f"CREATE TABLE {TOMBSTONES} ({key_of(target)} VARCHAR(255), version INTEGER, _deleted_at TIMESTAMP)")
    with pytest.raises(DeliveryError, match=r"column 'version' of table .* cannot store every value of int64 exactly"):
        merge(target, "b-1", ("x", 1, 1))


@pytest.mark.parametrize("table", ["t" * 41, "t" * 60, "é" * 30])
def test_name_of_tombstones_fits_every_database(table: str) -> None:
    name = tombstones_name(table)
    assert len(name.encode()) <= MAX_TOMBSTONES_BYTES
    assert name != tombstones_name(table[:-1] + "u")


def test_long_table_name_has_its_tombstones(target: SqlTarget) -> None:
    longer = SqlTarget(target.url, Path(str(target.settings.staging_path)), "t" * 60)
    merge(longer, "a-1", ("x", None, 5, "REMOVE"))
    merge(longer, "b-1", ("x", 1, 4), ("y", 2, 4))
    assert values(longer) == [2]


# Comparing as the table does


@pytest.mark.parametrize("target", [MYSQL], indirect=True)  # the tests' PostgreSQL is built without such collations
def test_keys_are_the_same_if_the_table_says_so(target: SqlTarget) -> None:
    kind = "VARCHAR(50) CHARACTER SET latin1 COLLATE latin1_general_ci"
    target.run(
        f"CREATE TABLE clicks (`Key` {kind} PRIMARY KEY, n BIGINT, version BIGINT, op TEXT, _batch_id VARCHAR(255))"
    )
    merge(target, "a-1", ("x", 1, 1), ("y", 2, 1), ("Y", 3, 2), ("Z", None, 9, "REMOVE"))
    merge(target, "b-1", ("X", None, 5, "REMOVE"), ("z", 4, 8), ("y", 5, 1))
    merge(target, "c-1", ("x", 6, 4))
    assert values(target) == [3]


@pytest.mark.parametrize(("lower", "higher"), [("B", "a"), ("a\t", "a "), ("z", "é"), ("\uffff", "\U0001f986")])
def test_texts_are_ordered_by_code_points(target: SqlTarget, lower: str, higher: str) -> None:
    schema = CHANGES.set(2, pa.field("version", pa.string()))
    sink = target.sink(**BY)
    rows = [("x", 1, higher), ("y", None, higher, "REMOVE"), ("z", 2, lower), ("w", 3, higher), ("w", 4, lower)]
    deliver(sink, "a-1", *rows, schema=schema)
    deliver(sink, "b-1", ("x", 5, lower), ("y", 6, lower), ("z", 7, higher), schema=schema)
    assert values(target) == [1, 3, 7]


# More


class InTwoFiles(MergedRows):
    """Rows of a batch, of which the last is in a file of its own."""

    def write(self, batch_ids: Collection[str], folder: str) -> dict[str, int]:
        [file] = super().write(batch_ids, folder)
        rows, other = read_table(file), join(folder, "part-1.parquet")
        last = rows.num_rows - 1
        return {file: write_table(rows.slice(0, last), file), other: write_table(rows.slice(last), other)}


def test_order_holds_across_the_files_of_a_batch(target: SqlTarget) -> None:
    sink, attempt = target.sink(**BY), an_attempt("a-1")
    rows = [("x", 1, 1), ("x", None, 5, "REMOVE"), ("y", 2, 7), ("x", 3, 4)]
    sink.prepare([attempt], InTwoFiles({"a-1": rows}, CHANGES))
    sink.commit([attempt])
    assert values(target) == [2]


def test_refused_changes_leave_the_others_of_their_batch(target: SqlTarget) -> None:
    columns = f"{key_of(target)} VARCHAR(50) PRIMARY KEY, n BIGINT CHECK (n < 100), version BIGINT, op VARCHAR(20)"
    sink, folder = refusing(target, columns, **BY)
    deliver(sink, "a-1", ("x", 1, 1), ("y", 2, 1), ("z", 3, 1))
    deliver(
        sink, "b-1", ("x", None, 5, "REMOVE"), ("y", 999, 5), ("z", 4, 5, "PURGE"), (None, 5, 5), ("w", 6, 5),
        ("v", 7, 5), ("x", 8, 4), ("u", 9, 1),
    )  # fmt: skip
    assert values(target) == [2, 3, 6, 7, 9]
    assert sorted(json.loads(row["row"])["n"] for row in letters_in(folder)) == [4, 5, 999]
    deliver(sink, "c-1", ("x", 10, 4))
    assert values(target) == [2, 3, 6, 7, 9]
