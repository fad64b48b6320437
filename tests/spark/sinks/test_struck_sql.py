"""A job fails at each call to the database and to files, and each batch is in the table once.

The next owner delivers while the first stands still, or after it died; then the first goes on, as a former owner does.
If the first stands still within its transaction, the next one waits until the server ends its session.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.spark.delivery import Attempt, Delivery, SinkUnavailableError
from airflow_provider_coordination.spark.sinks import Sink, make_sinks, owed
from airflow_provider_coordination.spark.sinks.sql import database
from tests.support import merged_tables
from tests.support.counted_tables import counted_databases
from tests.support.depth import each_or_every
from tests.support.fleet import Crash
from tests.support.freezing import VICTIM, Calls, Strike, acting, counted_files
from tests.support.landed_tables import deliver as deliver_landed
from tests.support.landed_tables import land, prepare, taken_over
from tests.support.sinks import BatchRows, an_attempt, under_next_lease
from tests.support.sql_tables import SERVERS, SqlTarget
from tests.support.striking import calls_of as calls_made_by
from tests.support.striking import strike_at
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.deep]
BEFORE = {"a-1": [1, 2], "b-1": [3]}
"""The rows of the first job."""
AFTER = {"a-1": [-1, -2], "b-1": [-3]}
"""The actions of its successor."""
STRIKES = [strike for strike in Strike if "clock" not in strike and strike is not Strike.TWICE]
"""The possible failures: no driver repeats a statement within a transaction, and no clock is read."""


class StruckDelivery:
    """The same delivery by two owners; the first one fails.

    :param rejected: whether the batches were in before, and were rejected.
    """

    def __init__(self, target: SqlTarget, calls: Calls, *, rejected: bool) -> None:
        self.target = target
        self.calls = calls
        self.attempts = [an_attempt(batch_id) for batch_id in BEFORE]
        if rejected:
            deliver(target.sink(), self.attempts, {"a-1": [100], "b-1": []})
            self.attempts = [under_next_lease(attempt, rejected=True) for attempt in self.attempts]
        self.died = False

    def first(self) -> None:
        """Deliver as the first owner, and count its calls."""
        with self._counted():
            acting.set(VICTIM)
            try:
                [sink] = make_sinks([self.target.sink_settings()])
                deliver(sink, self.attempts, BEFORE)
            except Crash:
                self.died = True
            except (CoordinationError, OSError):
                pass

    def succeed(self) -> None:
        """Deliver as the next owner."""
        sink, again = self.target.sink(), [under_next_lease(attempt) for attempt in self.attempts]
        for attempt in again:
            sink.sweep({attempt.folder: attempt.fencing_token})
        deliver(sink, owed(sink, again), AFTER)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with counted_files(self.calls, object_store="", published=lambda path: None), counted_databases(self.calls):
            yield


def deliver(sink: Sink, attempts: list[Attempt], values: dict[str, list[int]]) -> None:
    sink.prepare(attempts, BatchRows(values))
    sink.commit(attempts)
    sink.discard(attempts)


@pytest.fixture(params=SERVERS)
def target(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlTarget:
    monkeypatch.setattr(database, "ABANDONED_SECONDS", 1)
    monkeypatch.setattr(database, "LOCK_TIMEOUT_SECONDS", 1)
    return SqlTarget(request.getfixturevalue(SERVERS[request.param]), tmp_path)


def calls_of(target: SqlTarget, *, rejected: bool) -> int:
    run = StruckDelivery(target, Calls(), rejected=rejected)
    contextvars.copy_context().run(run.first)
    assert sorted(target.rows()) == sorted((batch_id, n) for batch_id, values in BEFORE.items() for n in values)
    emptied(target)
    return len(run.calls.made)


def emptied(target: SqlTarget) -> None:
    for table in ("clicks", "_coordination_batches"):
        target.run(f"DROP TABLE IF EXISTS {table}")


@pytest.mark.parametrize("rejected", [False, True], ids=["first delivery", "after a rejection"])
def test_crash_at_any_call_stores_each_batch_once(target: SqlTarget, rejected: bool) -> None:
    number = calls_of(target, rejected=rejected)
    assert number > 40
    for strike in STRIKES:
        for point in each_or_every(48, number, rejected, strike):
            run = StruckDelivery(target, Calls(point, strike), rejected=rejected)
            if strike is Strike.FREEZE:
                frozen(run)
            else:
                contextvars.copy_context().run(run.first)
                run.succeed()
            each_once(target, f"{strike} at call {point}, {run.calls.struck}")
            emptied(target)


def frozen(run: StruckDelivery) -> None:
    """Let the next owner deliver while the first one is paused at its point, and then again."""
    import threading

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run.first,))
    thread.start()
    assert run.calls.reached.wait(PATIENCE_SECONDS)
    run.succeed()
    seen = run.target.rows()
    run.calls.thawed.set()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    if len(seen) == 3 and all(n < 0 for _, n in seen):
        assert run.target.rows() == seen, "a former owner replaces nothing"
    run.succeed()


def each_once(target: SqlTarget, what: str) -> None:
    found: dict[str, list[int]] = {}
    for batch_id, n in target.rows():
        found.setdefault(batch_id, []).append(n)
    for batch_id in BEFORE:
        assert sorted(found.get(batch_id, [])) in (sorted(BEFORE[batch_id]), sorted(AFTER[batch_id])), what
    counted = target.run("SELECT batch_id, row_count FROM _coordination_batches")
    assert sorted(counted) == [(batch_id, len(values)) for batch_id, values in BEFORE.items()], what


# Landed files


class StruckLanding:
    """A delivery of landed files without Spark by a failing job, which another job takes over.

    :param target: the table.
    :param folder: where the files are landed.
    """

    def __init__(self, target: SqlTarget, folder: Path) -> None:
        self.target = target
        self.attempts = land(folder, BEFORE)
        self.is_taken_over = False

    def delivery(self) -> Delivery:
        [sink] = make_sinks([self.target.sink_settings()])
        return sink.landed_delivery(keep=False)

    def by_victim(self) -> None:
        """Deliver as a job does: it checks its ownership in the store before it commits."""
        delivery = self.delivery()
        prepare(delivery, self.attempts)
        if not self.is_taken_over:
            delivery.commit("main", self.attempts)
        delivery.discard(self.attempts)

    def by_successor(self) -> None:
        """Deliver under the next leases."""
        self.is_taken_over = True
        again = [taken_over(attempt) for attempt in self.attempts]
        delivery = self.delivery()
        delivery.sweep({attempt.folder: attempt.fencing_token for attempt in again})
        try:
            deliver_landed(delivery, again)
        except SinkUnavailableError:  # on a slow machine its own session was idle for a second; a job repeats it
            deliver_landed(delivery, again)


def test_landed_files_are_stored_once_whatever_fails(target: SqlTarget, tmp_path: Path) -> None:
    made = calls_made_by(StruckLanding(target, tmp_path / "counted"))
    assert any(call.startswith("files.link") for call in made)
    for strike in STRIKES:
        for point in each_or_every(60, len(made), "landed", strike):
            emptied(target)
            landing = StruckLanding(target, tmp_path / f"{strike}-{point}")
            struck = strike_at(point, strike, landing, may_end_before=True)  # a wait for a lock adds calls
            assert target.rows() == [("a-1", 1), ("a-1", 2), ("b-1", 3)], struck


# Upserts

EARLIER, OF_BOTH, LATER = {"z-1": [("x", 0), ("w", 9)]}, {"a-1": [("x", 1), ("y", 2)]}, {"b-1": [("x", 10)]}
MERGED = [("a-1", "y", 2), ("b-1", "x", 10), ("z-1", "w", 9)]


class StruckMerge:
    """A delivery that merges rows by a failing job, which another job takes over; a later batch replaces one row.

    :param target: the table.
    """

    def __init__(self, target: SqlTarget) -> None:
        self.target = target
        self.is_taken_over = False
        merged_tables.deliver(self.sink(), EARLIER, an_attempt("z-1"))

    def sink(self) -> Sink:
        [sink] = make_sinks([self.target.sink_settings(merge_on=("Key",))])
        return sink

    def by_victim(self) -> None:
        """Deliver as a job does: it checks its ownership in the store before it commits."""
        sink, attempt = self.sink(), an_attempt("a-1")
        sink.prepare([attempt], merged_tables.MergedRows(OF_BOTH))
        if not self.is_taken_over:
            sink.commit([attempt])
        sink.discard([attempt])

    def by_successor(self) -> None:
        """Deliver under the next lease, and deliver the later batch."""
        self.is_taken_over = True
        sink, again = self.sink(), under_next_lease(an_attempt("a-1"))
        sink.sweep({again.folder: again.fencing_token})
        merged_tables.deliver(sink, OF_BOTH, again)
        merged_tables.deliver(sink, LATER, an_attempt("b-1"))


def test_crash_at_any_call_reverts_no_merged_row(target: SqlTarget) -> None:
    number = len(calls_made_by(StruckMerge(target)))
    assert number > 20
    for strike in STRIKES:
        for point in each_or_every(60, number, "merge", strike):
            emptied(target)
            struck = strike_at(point, strike, StruckMerge(target), may_end_before=True)  # a wait for a lock adds calls
            key = '"Key"' if target.is_postgresql else "`Key`"
            assert target.rows(f"_batch_id, {key}, n") == MERGED, struck
