"""A job that merges rows into a table is struck at each of its calls; another one goes on, and replaces its rows."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.spark.sinks.iceberg import catalog as catalogs
from airflow_provider_coordination.spark.sinks.iceberg import sink as sinks
from tests.support.counted_tables import counted_sinks
from tests.support.fleet import Crash
from tests.support.freezing import VICTIM, Calls, Strike, acting, counted_files
from tests.support.landed_tables import TABLES
from tests.support.merged_tables import Rows, a_sink, deliver
from tests.support.sinks import Place, an_attempt, under_next_lease

pytestmark = pytest.mark.integration  # needs no server, but minutes: each call is struck once

BEFORE, OF_BOTH, LATER = {"z-1": [("x", 0), ("w", 9)]}, {"a-1": [("x", 1), ("y", 2)]}, {"b-1": [("x", 10)]}
EXPECTED = {"z-1": [9], "a-1": [2], "b-1": [10]}
FIRST, ATTEMPT, FOLLOWING = an_attempt("z-1"), an_attempt("a-1"), an_attempt("b-1")
STRIKES = [
    Strike.FREEZE, Strike.KILLED_BEFORE, Strike.KILLED_AFTER, Strike.RAISED_BEFORE, Strike.RAISED_AFTER, Strike.TWICE
]  # fmt: skip


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(sinks, "CONFLICT_PAUSE_SECONDS", 0.001)


@contextmanager
def counted(calls: Calls) -> Iterator[None]:
    with counted_files(calls, object_store=False, published=lambda path: None), counted_sinks(calls):
        yield


class Delivery:
    """One delivery by a victim, which another job takes over; a later batch replaces one of its rows.

    :param place: the table.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.is_taken_over = False
        deliver(a_sink(place), BEFORE, FIRST)

    def by_victim(self) -> None:
        """Deliver as a job does: it asks the store before it commits."""
        acting.set(VICTIM)
        with suppress(Crash, CoordinationError, OSError):
            sink = a_sink(self.place)
            sink.prepare([ATTEMPT], Rows(OF_BOTH))
            if not self.is_taken_over:
                sink.commit([ATTEMPT])
            sink.discard([ATTEMPT])

    def by_successor(self) -> None:
        """Deliver under the next lease, and what follows."""
        self.is_taken_over = True
        sink, again = a_sink(self.place), under_next_lease(ATTEMPT)
        sink.sweep(again.folder, again.fencing_token)
        deliver(sink, OF_BOTH, again)
        deliver(sink, LATER, FOLLOWING)


@pytest.mark.parametrize("strike", STRIKES)
@pytest.mark.parametrize("kind", sorted(TABLES))
def test_at_no_call_a_row_is_lost_or_takes_the_place_of_a_later_one(tmp_path: Path, kind: str, strike: Strike) -> None:
    calls = Calls()
    with counted(calls):
        contextvars.Context().run(Delivery(Place(TABLES[kind], tmp_path / "counted")).by_victim)
    assert any(call in calls.made for call in ("table.merge", "catalog.commit_table"))
    for point in range(1, len(calls.made) + 1):
        delivery, calls = Delivery(Place(TABLES[kind], tmp_path / str(point))), Calls(point, strike)
        with counted(calls):
            victim = threading.Thread(target=partial(contextvars.Context().run, delivery.by_victim))
            victim.start()
            if strike is Strike.FREEZE:
                assert calls.reached.wait(60), "the victim does not come there"
            else:
                victim.join(60)
            contextvars.Context().run(delivery.by_successor)
            calls.thawed.set()
            victim.join(60)
        assert calls.struck and not victim.is_alive()
        assert delivery.place.visible == EXPECTED, f"{strike} at {point}: {calls.struck}"
