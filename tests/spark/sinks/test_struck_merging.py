"""A job that merges or deletes rows of a table fails at each of its calls; another continues, and replaces its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_coordination.spark.sinks.sql import database
from tests.support.depth import each_or_every
from tests.support.freezing import Strike
from tests.support.landed_tables import TABLES
from tests.support.merged_tables import BY_CHANGES, CHANGES, ORDERED_KINDS, MergedRows, a_sink, deliver, kind_of
from tests.support.sinks import SinkTarget, SinkUnderTest, SqlUnderTest, an_attempt, under_next_lease
from tests.support.striking import STRIKES, calls_of, strike_at

pytestmark = [pytest.mark.integration, pytest.mark.deep]

BEFORE, OF_BOTH, LATER = {"z-1": [("x", 0), ("w", 9)]}, {"a-1": [("x", 1), ("y", 2)]}, {"b-1": [("x", 10)]}
EXPECTED = {"z-1": [9], "a-1": [2], "b-1": [10]}
FIRST, ATTEMPT, FOLLOWING = an_attempt("z-1"), an_attempt("a-1"), an_attempt("b-1")

REPLACED = an_attempt("c-1")
CHANGED_BEFORE = {
    "z-1": [("w", 1, 1), ("x", 0, 1), ("u", 9, 9), ("v", None, 5, "REMOVE")],
    "c-1": [("t", 3, 1), ("s", None, 4, "REMOVE")],
}
CHANGES_OF_BOTH = {
    "a-1": [("x", None, 5, "REMOVE"), ("y", 2, 2), ("u", 1, 3)],  # the last one is older than the row
    "c-1": [("t", 30, 1), ("s", 31, 5)],  # again, after it was rejected
}
LATE_CHANGES = {"b-1": [("x", 7, 3), ("v", 8, 4), ("s", 9, 3), ("y", 10, 4)]}  # but for the last one
CHANGES_EXPECTED = {"z-1": [1, 9], "c-1": [30, 31], "b-1": [10]}


class Delivery:
    """One delivery by a failing job, which another job takes over; a later batch replaces one of its rows.

    :param target: the table.
    """

    def __init__(self, target: SinkTarget) -> None:
        self.target = target
        self.is_taken_over = False
        deliver(a_sink(target), BEFORE, FIRST)

    def by_victim(self) -> None:
        """Deliver as a job does: it checks its ownership in the store before it commits."""
        sink = a_sink(self.target)
        sink.prepare([ATTEMPT], MergedRows(OF_BOTH))
        if not self.is_taken_over:
            sink.commit([ATTEMPT])
        sink.discard([ATTEMPT])

    def by_successor(self) -> None:
        """Deliver under the next lease, and deliver the later batch."""
        self.is_taken_over = True
        sink, again = a_sink(self.target), under_next_lease(ATTEMPT)
        sink.sweep({again.folder: again.fencing_token})
        deliver(sink, OF_BOTH, again)
        deliver(sink, LATER, FOLLOWING)


class DeletingDelivery(Delivery):
    """A delivery of deletes, of changes older than the table, and of a rejected batch; older changes follow.

    :param target: the table.
    """

    def __init__(self, target: SinkTarget) -> None:
        self.target = target
        self.is_taken_over = False
        deliver(a_sink(target, **BY_CHANGES), CHANGED_BEFORE, FIRST, REPLACED, schema=CHANGES)
        self.attempts = [ATTEMPT, under_next_lease(REPLACED, rejected=True)]

    def by_victim(self) -> None:
        """Deliver as a job does: it checks its ownership in the store before it commits."""
        sink = a_sink(self.target, **BY_CHANGES)
        sink.prepare(self.attempts, MergedRows(CHANGES_OF_BOTH, CHANGES))
        if not self.is_taken_over:
            sink.commit(self.attempts)
        sink.discard(self.attempts)

    def by_successor(self) -> None:
        """Deliver under the next lease, and deliver the later batch."""
        self.is_taken_over = True
        sink, again = a_sink(self.target, **BY_CHANGES), [under_next_lease(attempt) for attempt in self.attempts]
        sink.sweep({attempt.folder: attempt.fencing_token for attempt in again})
        deliver(sink, CHANGES_OF_BOTH, *again, schema=CHANGES)
        deliver(sink, LATE_CHANGES, FOLLOWING, schema=CHANGES)


@pytest.fixture(params=ORDERED_KINDS)
def ordered(request: pytest.FixtureRequest) -> SinkUnderTest:
    return kind_of(request)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "WAIT_SECONDS", 10.0)  # a loaded server ends the sessions of live jobs too
    monkeypatch.setattr(database, "ABANDONED_SECONDS", 1)
    monkeypatch.setattr(database, "LOCK_TIMEOUT_SECONDS", 1)


@pytest.mark.parametrize("strike", STRIKES)
def test_failure_at_any_call_restores_no_deleted_row(ordered: SinkUnderTest, tmp_path: Path, strike: Strike) -> None:
    is_sql = isinstance(ordered, SqlUnderTest)
    if is_sql and strike is Strike.TWICE:
        strike = Strike.RAISED_AFTER  # no driver repeats a statement within a transaction
    made = calls_of(DeletingDelivery(SinkTarget(ordered, tmp_path / "counted")))
    assert any(call in made for call in ("table.create_write_transaction", "catalog.commit_table", "sql.commit"))
    for point in each_or_every(12, len(made), "deleting", type(ordered).__name__, strike):
        delivery = DeletingDelivery(SinkTarget(ordered, tmp_path / f"at_{point}"))
        struck = strike_at(point, strike, delivery, may_end_before=is_sql)  # a lock that was waited for adds calls
        assert delivery.target.visible == CHANGES_EXPECTED, struck


@pytest.mark.parametrize("strike", STRIKES)
@pytest.mark.parametrize("kind", sorted(TABLES))
def test_failure_at_any_call_loses_or_reverts_no_row(tmp_path: Path, kind: str, strike: Strike) -> None:
    made = calls_of(Delivery(SinkTarget(TABLES[kind], tmp_path / "counted")))
    assert any(call in made for call in ("table.create_write_transaction", "catalog.commit_table"))
    for point in each_or_every(12, len(made), "merging", kind, strike):
        delivery = Delivery(SinkTarget(TABLES[kind], tmp_path / str(point)))
        struck = strike_at(point, strike, delivery)
        assert delivery.target.visible == EXPECTED, struck
