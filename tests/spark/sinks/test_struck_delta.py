"""A job that delivers to a Delta table is struck at each of its calls to the table and to files; another goes on."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.sinks import owed
from tests.support.delta_tables import batches_in, counted_tables
from tests.support.fleet import Crash
from tests.support.freezing import VICTIM, Calls, Strike, acting, counted_files
from tests.support.sinks import SINKS, BatchRows, Place, an_attempt, under_next_lease

pytestmark = pytest.mark.integration  # needs no server, but a minute: each call is struck once

VALUES = {"a-1": [1, 2], "b-1": [3], "c-1": []}
FORMER = {"a-1": [-1], "b-1": [-2, -3], "c-1": [-4]}
EXPECTED = {"a-1": [1, 2], "b-1": [3]}
STRIKES = [
    Strike.FREEZE, Strike.KILLED_BEFORE, Strike.KILLED_AFTER, Strike.RAISED_BEFORE, Strike.RAISED_AFTER, Strike.TWICE
]  # fmt: skip


def nothing(place: Place) -> list[Attempt]:
    """The table is not there."""
    return [an_attempt(batch_id) for batch_id in VALUES]


def others(place: Place) -> list[Attempt]:
    """The table has rows of others, and a column less."""
    write_deltalake(place.folder, pa.table({"_batch_id": ["z-1"]}))
    return [an_attempt(batch_id) for batch_id in VALUES]


def rejected(place: Place) -> list[Attempt]:
    """The table has the batches, whose delivery was rejected, in one file with a batch of others."""
    attempts = [an_attempt(batch_id) for batch_id in VALUES]
    place.deliver({**FORMER, "z-1": [9]}, [*attempts, an_attempt("z-1")])
    return [under_next_lease(attempt, rejected=True) for attempt in attempts]


BEGINNINGS = [nothing, others, rejected]


@contextmanager
def counted(calls: Calls) -> Iterator[None]:
    with counted_files(calls, object_store=False, published=lambda path: None), counted_tables(calls):
        yield


class Delivery:
    """One delivery by a victim, which another job takes over.

    :param place: the table.
    :param attempts: what is delivered.
    """

    def __init__(self, place: Place, attempts: list[Attempt]) -> None:
        self.place = place
        self.attempts = attempts
        self.is_taken_over = False

    def by_victim(self) -> None:
        """Deliver as a job does: it asks the store before it commits."""
        acting.set(VICTIM)
        with suppress(Crash, CoordinationError, OSError):
            sink = self.place.sink()
            left = owed(sink, self.attempts)
            sink.prepare(left, BatchRows(VALUES))
            if not self.is_taken_over:
                sink.commit(left)
            sink.discard(left)

    def by_successor(self) -> None:
        """Deliver under the next leases."""
        self.is_taken_over = True
        sink = self.place.sink()
        again = [under_next_lease(attempt) for attempt in self.attempts]
        for attempt in again:
            sink.sweep(attempt.folder, attempt.fencing_token)
        self.place.deliver(VALUES, owed(sink, again), sink)


def calls_of(folder: Path, begin: Callable[[Place], list[Attempt]]) -> list[str]:
    place, calls = Place(SINKS["delta"], folder), Calls()
    delivery = Delivery(place, begin(place))
    with counted(calls):
        contextvars.Context().run(delivery.by_victim)
    return calls.made


@pytest.mark.parametrize("strike", STRIKES)
@pytest.mark.parametrize("begin", BEGINNINGS)
def test_at_no_call_anything_is_lost_or_doubled(
    tmp_path: Path, begin: Callable[[Place], list[Attempt]], strike: Strike
) -> None:
    made = calls_of(tmp_path / "counted", begin)
    assert any(call in made for call in ("table.create_write_transaction", "table.write_deltalake"))
    for point in range(1, len(made) + 1):
        place, calls = Place(SINKS["delta"], tmp_path / str(point)), Calls(point, strike)
        delivery = Delivery(place, begin(place))
        before = batches_in(place.folder).get("z-1")
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
        expected = EXPECTED | ({} if before is None else {"z-1": before})
        assert batches_in(place.folder) == expected, f"{strike} at {point}: {calls.struck}"
