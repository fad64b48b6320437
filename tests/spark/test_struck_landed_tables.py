"""A job that gives landed files to a table as they are is struck at each of its calls; another one goes on."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.spark import landed_rows
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.sinks.iceberg import catalog as catalogs
from airflow_provider_coordination.spark.sinks.iceberg import sink as sinks
from tests.support.counted_tables import counted_sinks
from tests.support.fleet import Crash
from tests.support.freezing import VICTIM, Calls, Strike, acting, counted_files
from tests.support.landed_tables import TABLES, Landing, deliver, prepare, taken_over
from tests.support.sinks import Place

pytestmark = pytest.mark.integration  # needs no server, but minutes: each call is struck once

VALUES = {"a-1": [1, 2], "b-1": [3], "c-1": [4]}
STRIKES = [
    Strike.FREEZE, Strike.KILLED_BEFORE, Strike.KILLED_AFTER, Strike.RAISED_BEFORE, Strike.RAISED_AFTER, Strike.TWICE
]  # fmt: skip


@pytest.fixture(autouse=True)
def _some_files_are_merged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    [two, _, one] = (a.batch.file_bytes for a in landing_in(tmp_path / "sizes", "delta").land(VALUES))
    assert two > one
    monkeypatch.setattr(landed_rows, "SMALL_FILE_BYTES", two)
    monkeypatch.setattr(catalogs, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(sinks, "CONFLICT_PAUSE_SECONDS", 0.001)


def landing_in(folder: Path, kind: str) -> Landing:
    return Landing(Place(TABLES[kind], folder / "sink"), folder / "landing")


@contextmanager
def counted(calls: Calls) -> Iterator[None]:
    with counted_files(calls, object_store=False, published=lambda path: None), counted_sinks(calls):
        yield


class Delivery:
    """One delivery by a victim, which another job takes over. One of the batches was rejected before.

    :param landing: what is delivered, and where.
    """

    def __init__(self, landing: Landing) -> None:
        self.landing = landing
        [first, *others] = landing.land(VALUES)
        deliver(landing.delivery(), [first])
        self.attempts: list[Attempt] = [taken_over(first, rejected=True), *others]
        self.is_taken_over = False

    def by_victim(self) -> None:
        """Deliver as a job does: it asks the store before it commits."""
        acting.set(VICTIM)
        with suppress(Crash, CoordinationError, OSError):
            delivery = self.landing.delivery()
            prepare(delivery, self.attempts)
            if not self.is_taken_over:
                delivery.commit("main", self.attempts)
            delivery.discard(self.attempts)

    def by_successor(self) -> None:
        """Deliver under the next leases."""
        self.is_taken_over = True
        again = [taken_over(attempt) for attempt in self.attempts]
        delivery = self.landing.delivery()
        for attempt in again:
            delivery.sweep(attempt.folder, attempt.fencing_token)
        deliver(delivery, again)


@pytest.mark.parametrize("strike", STRIKES)
@pytest.mark.parametrize("kind", sorted(TABLES))
def test_at_no_call_anything_is_lost_or_doubled(tmp_path: Path, kind: str, strike: Strike) -> None:
    calls = Calls()
    with counted(calls):
        contextvars.Context().run(Delivery(landing_in(tmp_path / "counted", kind)).by_victim)
    assert any(call.startswith("files.link") for call in calls.made)
    for point, call in enumerate(calls.made, 1):
        if strike is Strike.TWICE and call == "table.write_deltalake":
            continue  # it reads rows that can be had once
        delivery, calls = Delivery(landing_in(tmp_path / str(point), kind)), Calls(point, strike)
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
        assert delivery.landing.place.visible == VALUES, f"{strike} at {point}: {calls.struck}"
