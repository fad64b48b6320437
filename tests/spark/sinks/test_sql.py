"""The SQL sink beyond the contract: creating and altering tables, types, merging, and errors."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_coordination import sql
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError, SinkUnavailableError
from airflow_provider_coordination.spark.rows import DeadLetterRows
from airflow_provider_coordination.spark.sinks.sql import SqlSink, database, mysql
from airflow_provider_coordination.spark.sinks.sql.table import CommittedBatches
from tests.support.cable import Cable
from tests.support.sinks import BatchRows, an_attempt, under_next_lease
from tests.support.sql_tables import SERVERS, SqlTarget

pytestmark = [pytest.mark.integration, pytest.mark.share(0.3)]
FIRST = an_attempt("a-1")


@pytest.fixture(params=SERVERS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> SqlTarget:
    return SqlTarget(request.getfixturevalue(SERVERS[request.param]), tmp_path)


def deliver(sink: SqlSink, attempt: Attempt = FIRST, **columns: Any) -> None:
    """Deliver a batch of these columns."""
    arrays = {name: value if isinstance(value, pa.Array) else pa.array(value) for name, value in columns.items()}
    table = pa.table(arrays)
    ids = pa.array([attempt.batch_id] * table.num_rows, pa.string())
    sink.prepare([attempt], as_rows(table.append_column("_batch_id", ids)))
    sink.commit([attempt])
    sink.discard([attempt])


def as_rows(table: pa.Table) -> DeadLetterRows:
    """Return a table as the rows of its only batch."""
    [batch_id] = set(table.column("_batch_id").to_pylist())
    return DeadLetterRows(table.schema, {batch_id: table.num_rows}, lambda _: table, DEFAULT_ACCESS)


# Values

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "truth": (pa.bool_(), [True, False, None]),
    "tiny": (pa.int8(), [-128, 127, None]),
    "small": (pa.int16(), [-32768, 32767, None]),
    "whole": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "big": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "short": (pa.float32(), [0.5, -1.25e10, None]),
    "long": (pa.float64(), [0.1, -1.7976931348623157e308, None]),
    "amount": (
        pa.decimal128(38, 10),
        [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001"), None],
    ),
    "text": (pa.string(), ["", "a,\"b\"\n'c'\\d\te \\. \\N é 漢 🦆 %s", None]),
    "letters": (pa.string(), ["NULL", " \r\n ", None]),
    "bytes": (pa.binary(), [b"", bytes(range(256)), None]),
    "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "instant": (
        pa.timestamp("us", "UTC"),
        [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None],
    ),
    "clock": (pa.timestamp("us"), [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), None]),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type_are_stored_unchanged(target: SqlTarget, name: str) -> None:
    kind, values = VALUES[name]
    deliver(target.sink(), k=[1, 2, 3], **{name: pa.array(values, kind)})
    quote = '"' if target.is_postgresql else "`"
    found = [value for _, value in target.rows(f"k, {quote}{name}{quote}")]
    if name == "instant" and not target.is_postgresql:  # it has no type with a time zone: all are in UTC
        found = [None if value is None else value.replace(tzinfo=UTC) for value in found]
    assert found == values


def test_nested_value_beyond_json_is_refused_by_column(target: SqlTarget) -> None:
    beyond = pa.array([[2_932_897]], pa.list_(pa.date32()))  # the year 10000
    with pytest.raises(
        DeliveryError, match=r"column 'days' of type .* cannot be written as JSON: date value out of range"
    ):
        deliver(target.sink(), k=[1], days=beyond)


def test_nested_values_are_json(target: SqlTarget) -> None:
    nested = pa.array(
        [{"a": [1, None], "at": date(2026, 1, 31)}, None], pa.struct([("a", pa.list_(pa.int64())), ("at", pa.date32())])
    )
    named = pa.array([[("x'\\", 'y"')], None], pa.map_(pa.string(), pa.string()))
    deliver(target.sink(), k=[1, 2], nested=nested, named=named)
    path = (
        ("nested->'a'->>0, nested->>'at'", "named->>'x''\\'")
        if target.is_postgresql
        else ("JSON_VALUE(nested, '$.a[0]'), JSON_VALUE(nested, '$.at')", "JSON_UNQUOTE(JSON_EXTRACT(named, '$.*'))")
    )
    [first, second] = target.rows(f"k, {path[0]}")
    assert first == (1, "1", "2026-01-31") and second == (2, None, None)
    assert "y" in str(target.rows(f"k, {path[1]}")[0][1])


def test_rows_over_many_statements_are_all_stored(target: SqlTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql, "STATEMENT_BYTES", 1000)
    deliver(target.sink(), n=list(range(120_001)) if target.is_postgresql else list(range(10_001)))
    [(count, total)] = target.rows("COUNT(*), SUM(n)")
    assert total == sum(range(count)) and count in (120_001, 10_001)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nonfinite_values_are_stored_or_refused_before_delivery(target: SqlTarget, value: float) -> None:
    if target.is_postgresql:
        deliver(target.sink(), x=[value, 1.0])
        assert sorted(map(str, (x for (x,) in target.rows("x")))) == sorted([str(value), "1.0"])
        return
    rows = as_rows(pa.table({"x": [value], "_batch_id": ["a-1"]}))
    with pytest.raises(
        DeliveryError, match=r"^batch a-1: column 'x' holds NaN or an infinite value, .* replace it by null"
    ):
        target.sink().prepare([FIRST], rows)
    assert target.rows("x") == []


def test_unstorable_text_fails_its_batch_alone(target: SqlTarget) -> None:
    if not target.is_postgresql:
        deliver(target.sink(), n=[1], text=["a\0b"])
        assert target.rows("text") == [("a\0b",)]
        return
    good, bad = an_attempt("b-1"), FIRST
    deliver(target.sink(), good, n=[1], text=["ab"])
    with pytest.raises(DeliveryError, match=r"^batch a-1: column .* holds a zero character; remove it in"):
        deliver(target.sink(), bad, n=[1, 2], text=["ok", "a\0b"])
    assert target.rows() == [("b-1", 1)]


# The table


def test_existing_table_accepts_rows_its_columns_hold(target: SqlTarget) -> None:
    target.run("CREATE TABLE clicks (n NUMERIC(20,4), note VARCHAR(10) DEFAULT 'none', _batch_id VARCHAR(100))")
    deliver(target.sink(), n=pa.array([Decimal("1.50")], pa.decimal128(10, 2)))
    assert target.rows("n, note") == [(Decimal("1.5000"), "none")]


REFUSED: list[tuple[str, pa.Array, str]] = [
    ("INTEGER", pa.array([1], pa.int64()), "int64"),
    ("NUMERIC(10,2)", pa.array([Decimal("1.234")], pa.decimal128(10, 3)), r"decimal128\(10, 3\)"),
    ("NUMERIC(10,2)", pa.array([Decimal("1.23")], pa.decimal128(38, 2)), r"decimal128\(38, 2\)"),
    ("REAL", pa.array([0.1], pa.float64()), "double"),
    ("VARCHAR(10)", pa.array([1], pa.int32()), "int32"),
    ("BIGINT", pa.array(["1"]), "string"),
    ("DATE", pa.array([datetime(2026, 1, 1)], pa.timestamp("us")), r"timestamp\[us\]"),
    ("TIMESTAMP(3)", pa.array([datetime(2026, 1, 1)], pa.timestamp("us")), r"timestamp\[us\]"),
    ("CHAR(10)", pa.array(["abc"]), "string"),
]


@pytest.mark.parametrize(("column", "values", "kind"), REFUSED, ids=[f"{c} {k}" for c, _, k in REFUSED])
def test_lossy_column_is_named_with_both_types(target: SqlTarget, column: str, values: pa.Array, kind: str) -> None:
    if column == "REAL" and not target.is_postgresql:
        column = "FLOAT"
    target.run(f"CREATE TABLE clicks (n {column}, _batch_id VARCHAR(100))")
    with pytest.raises(
        DeliveryError, match=f"column 'n' of table .*clicks.* cannot store every value of {kind} exactly"
    ):
        deliver(target.sink(), n=values)
    assert target.rows() == []


def test_missing_columns_are_named_with_their_types(target: SqlTarget) -> None:
    deliver(target.sink(), n=[1])
    with pytest.raises(DeliveryError, match=r"no column 'b' \(string\) and 'c' \(double\): add it, set 'add_columns'"):
        deliver(target.sink(), an_attempt("b-1"), n=[2], b=["x"], c=[0.5])
    assert target.rows() == [("a-1", 1)]


@pytest.mark.parametrize("add_columns", [False, True])
def test_column_differing_in_case_is_named_with_both_names(target: SqlTarget, add_columns: bool) -> None:
    deliver(target.sink(), n=[1])
    expected = r"column 'N' is 'n' in table .*: rename it to 'n'" if not target.is_postgresql else "no column 'N'"
    if target.is_postgresql and add_columns:
        deliver(target.sink(add_columns=True), an_attempt("b-1"), n=[2], N=[3])
        assert sorted(target.rows('n, "N"'), key=lambda row: row[0]) == [(1, None), (2, 3)]
        return
    with pytest.raises(DeliveryError, match=expected):
        deliver(target.sink(add_columns=add_columns), an_attempt("b-1"), N=[2])
    assert target.rows() == [("a-1", 1)]


def test_missing_columns_are_added_if_allowed(target: SqlTarget) -> None:
    deliver(target.sink(), n=[1])
    deliver(target.sink(add_columns=True), an_attempt("b-1"), n=[2], b=["x"])
    deliver(target.sink(), an_attempt("c-1"), n=[3])
    assert sorted(target.rows("n, b"), key=lambda row: row[0]) == [(1, None), (2, "x"), (3, None)]


def test_missing_required_column_is_named(target: SqlTarget) -> None:
    target.run("CREATE TABLE clicks (n BIGINT, owner VARCHAR(9) NOT NULL, _batch_id VARCHAR(100))")
    with pytest.raises(DeliveryError, match=r"column 'owner' of table .* must not be null and has no default"):
        deliver(target.sink(), n=[1])


def test_unsupported_type_is_named(target: SqlTarget) -> None:
    with pytest.raises(
        DeliveryError, match=r"column 'lasts' has the type duration\[us\], but .* has no such type: cast it"
    ):
        target.sink().prepare(
            [FIRST], as_rows(pa.table({"lasts": pa.array([1], pa.duration("us")), "_batch_id": ["a-1"]}))
        )


def test_dropped_table_is_not_recreated_without_its_batches(target: SqlTarget) -> None:
    deliver(target.sink(), n=[1])
    target.run("DROP TABLE clicks")
    with pytest.raises(
        DeliveryError, match=r"clicks.* is gone, but it had batches: restore it; or, to begin a new one"
    ):
        deliver(target.sink(), an_attempt("b-1"), n=[2])
    target.run("DELETE FROM _coordination_batches WHERE target = 'clicks'")
    deliver(target.sink(), an_attempt("b-1"), n=[2])
    assert target.rows() == [("b-1", 2)]


def test_lost_batch_table_is_rebuilt_from_the_rows(target: SqlTarget) -> None:
    deliver(target.sink(), n=[1])
    target.run("DROP TABLE _coordination_batches")
    deliver(target.sink(), under_next_lease(FIRST), n=[1])
    deliver(target.sink(), an_attempt("b-1"), n=[2])
    assert target.rows() == [("a-1", 1), ("b-1", 2)]


def test_batch_of_a_simultaneous_first_job_is_left_alone(target: SqlTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(target.sink(), n=[1])
    known = "SELECT batch_id, set_id, row_count FROM _coordination_batches ORDER BY batch_id"
    [committed] = target.run(known)
    monkeypatch.setattr(CommittedBatches, "any", lambda *_: False)  # as it was a moment ago
    deliver(target.sink(), an_attempt("b-1"), n=[2])
    assert target.rows() == [("a-1", 1), ("b-1", 2)]
    assert target.run(known)[0] == committed


def test_names_may_require_quotes(target: SqlTarget) -> None:
    quote = '"' if target.is_postgresql else "`"
    deliver(target.sink(), n=[1], **{"of %s; \"a' `b`": [2], "select": [3]})
    assert target.rows(f"{quote}select{quote}") == [(3,)]


def test_truncatable_name_is_refused(target: SqlTarget) -> None:
    with pytest.raises(DeliveryError, match=r"the name 'nnnn.*' has more than 6"):
        deliver(target.sink(), **{"n" * 70: [1]})


@pytest.mark.parametrize("target", ["mysql"], indirect=True)
def test_table_without_transactions_is_refused(target: SqlTarget) -> None:
    target.run("CREATE TABLE clicks (n BIGINT, _batch_id VARCHAR(100)) ENGINE=MyISAM")
    with pytest.raises(DeliveryError, match="has the engine MyISAM, but a batch needs a transaction: ALTER TABLE"):
        deliver(target.sink(), n=[1])


def test_two_sinks_reaching_one_table_are_an_error(target: SqlTarget) -> None:
    deliver(target.sink("one"), n=[1])
    with pytest.raises(DeliveryError, match=r"^batch a-1: sink 'one' of the same job has committed it to this table"):
        deliver(target.sink("other", staging_path=target.settings.staging_path + "/other"), n=[2])
    assert target.rows() == [("a-1", 1)]


# Merging


def test_rows_replace_those_with_the_same_key(target: SqlTarget) -> None:
    sink = target.sink(merge_on=("k", "of"))
    deliver(sink, k=[1, 2], of=["a", "a"], n=[10, 20])
    deliver(sink, an_attempt("b-1"), k=[2, 2, 3], of=["a", "A", "a"], n=[21, 22, 30])
    assert target.rows("k, of, n" if target.is_postgresql else "k, `of`, n") == [
        (1, "a", 10),
        (2, "A", 22),
        (2, "a", 21),
        (3, "a", 30),
    ]


def test_duplicate_key_is_refused_before_any_sink_writes(target: SqlTarget) -> None:
    rows = as_rows(pa.table({"k": [1, 1, 2], "_batch_id": ["a-1"] * 3}))
    with pytest.raises(
        DeliveryError, match=r"^batch a-1: 2 rows have 'k' = 1, on which table .* is merged; set 'order_by'"
    ):
        target.sink(merge_on=("k",)).prepare([FIRST], rows)


def test_null_key_is_refused(target: SqlTarget) -> None:
    with pytest.raises(DeliveryError, match=r"^batch a-1: column 'k', on which table .* is merged, is null"):
        deliver(target.sink(merge_on=("k",)), k=[1, None])


def test_missing_key_column_is_named(target: SqlTarget) -> None:
    with pytest.raises(DeliveryError, match=r"is merged on 'key', and the records do not have the column 'key'"):
        deliver(target.sink(merge_on=("key",)), k=[1])


def test_table_that_cannot_distinguish_keys_is_refused(target: SqlTarget) -> None:
    deliver(target.sink(), k=[1])
    with pytest.raises(
        DeliveryError, match=r"has no unique key of the columns of 'merge_on': ALTER TABLE .* ADD UNIQUE"
    ):
        deliver(target.sink(merge_on=("k",)), an_attempt("b-1"), k=[1])


def test_rejected_merge_is_repeated(target: SqlTarget) -> None:
    sink = target.sink(merge_on=("k",))
    deliver(sink, k=[1, 2], n=[1, 2])
    deliver(sink, under_next_lease(FIRST, rejected=True), k=[2], n=[3])
    assert target.rows("k, n") == [(2, 3)]


# A delivery of many batches


def test_batches_written_together_are_stored_once_each(target: SqlTarget) -> None:
    attempts = [an_attempt(f"batch-{n}") for n in range(20)]
    values = {attempt.batch_id: [n, -n] for n, attempt in enumerate(attempts)}
    sink = target.sink()
    sink.prepare(attempts, BatchRows(values))
    sink.commit(attempts)
    assert target.rows() == sorted((batch_id, n) for batch_id, numbers in values.items() for n in numbers)


def test_refused_batch_leaves_others_of_its_delivery(target: SqlTarget) -> None:
    target.run("CREATE TABLE clicks (n BIGINT, _batch_id VARCHAR(100), CHECK (n <> 3))")
    attempts = [an_attempt(f"batch-{n}") for n in range(6)]
    sink = target.sink()
    sink.prepare(attempts, BatchRows({attempt.batch_id: [n] for n, attempt in enumerate(attempts)}))
    with pytest.raises(DeliveryError, match=r"^batch batch-3: "):
        sink.commit(attempts)
    assert [n for _, n in target.rows()] == [0, 1, 2, 4, 5]
    assert sink.committed(attempts) == {attempt.batch_id for attempt in attempts} - {"batch-3"}


# A database that does not answer


def through(target: SqlTarget, cable: Cable) -> SqlSink:
    return target.sink(server=replace(target.settings.server, host="127.0.0.1", port=cable.port))


def test_temporary_database_outage_is_waited_for(target: SqlTarget) -> None:
    with Cable(target.connect_socket) as cable:
        sink = through(target, cable)
        sink.prepare([FIRST], BatchRows({"a-1": [1]}))
        cable.cut()
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                cable.restore()

        with pytest.MonkeyPatch.context() as patched:
            # Not in the module `time` itself: other threads of this process sleep as well.
            patched.setattr(sql, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic))
            sink.commit([FIRST])
    assert target.rows() == [("a-1", 1)] and len(pauses) == 3


def test_persistent_database_outage_fails_the_batch_without_loss(
    target: SqlTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.2)
    with Cable(target.connect_socket) as cable:
        sink = through(target, cable)
        sink.prepare([FIRST], BatchRows({"a-1": [1]}))
        cable.cut()
        with pytest.raises(DeliveryError):
            sink.commit([FIRST])
        cable.restore()
        sink.commit([FIRST])
    assert target.rows() == [("a-1", 1)]


def test_password_appears_in_no_error_log_or_text(
    target: SqlTarget, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.1)
    caplog.set_level(logging.DEBUG)
    unreachable = replace(target.settings.server, password="hush-hush", port=1, host="127.0.0.1")
    sink = target.sink(server=unreachable)
    with pytest.raises(
        SinkUnavailableError, match=r"^SqlTable 'main': table \S+ cannot be written at present: .*correct the connec"
    ) as error:
        sink.check()
    with pytest.raises(DeliveryError):
        sink.committed([FIRST])
    shown = f"{error.value!r} {error.value.__context__!r} {caplog.text} {target.sink_settings(server=unreachable)!r}"
    assert "hush-hush" not in shown
