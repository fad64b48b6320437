"""A job that delivers to an Iceberg table fails at each call to files and to the catalog; another job continues.

The job delivers three batches, of which one was rejected before. It dies at a call, or the call fails, or is made
twice, or the job stands still there and goes on later. The next owner delivers what is left. Then the table has every
batch once, whole, from one of the two, and nothing of the rejected delivery.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import CoordinationError, PartitionNotOwnedError
from airflow_provider_coordination.spark.sinks import Sink, owed
from airflow_provider_coordination.spark.sinks.iceberg import catalog as catalogs
from airflow_provider_coordination.spark.sinks.iceberg import sink as sinks
from tests.support.counted_tables import counted_catalogs
from tests.support.depth import each_or_every
from tests.support.fleet import Crash
from tests.support.freezing import CHANGING, VICTIM, Calls, Strike, acting, counted_files
from tests.support.sinks import BatchRows, IcebergUnderTest, SinkTarget, an_attempt, under_next_lease
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.deep]

REJECTED = {"a-1": [90, 91], "b-1": [], "c-1": []}
OF_VICTIM = {"a-1": [1, 2], "b-1": [3], "c-1": []}
OF_NEXT = {"a-1": [-1, -2], "b-1": [-3], "c-1": [-4]}
FIRST = [an_attempt("a-1")]
ATTEMPTS = [under_next_lease(FIRST[0], rejected=True), an_attempt("b-1"), an_attempt("c-1")]
NEXT = [under_next_lease(attempt) for attempt in ATTEMPTS]


CHANGES = (*CHANGING, "files.create", "files.rmdir")


class RepeatedDelivery:
    """Two owners that deliver the same batches; the first one fails.

    :param target: where there is no table yet.
    :param calls: those of the first owner.
    """

    def __init__(self, target: SinkTarget, calls: Calls) -> None:
        self.target = target
        self.calls = calls
        self.is_lost = threading.Event()
        self.failed: list[BaseException] = []
        self.target.deliver(REJECTED, FIRST)

    def _victim(self) -> None:
        acting.set(VICTIM)
        sink = self.target.sink()
        try:
            sink.check()
            self._sweep(sink, ATTEMPTS)
            left = owed(sink, ATTEMPTS)
            sink.prepare(left, BatchRows(OF_VICTIM, sink.access))
            if self.is_lost.is_set():  # as the store says, before anything becomes visible
                raise PartitionNotOwnedError("the lease is lost")
            sink.commit(left)
        except Crash:
            return
        except Exception as error:  # whatever it is, the batches are left to the next owner
            self.failed.append(error)
        with suppress(Crash, Exception):
            sink.discard(ATTEMPTS)

    def _next(self) -> None:
        self.is_lost.set()
        sink = self.target.sink()
        self._sweep(sink, NEXT)
        self.target.deliver(OF_NEXT, owed(sink, NEXT), sink)

    def _sweep(self, sink: Sink, attempts: Any) -> None:
        for attempt in attempts:
            sink.sweep({attempt.folder: attempt.fencing_token})

    def live(self) -> None:
        """Run the scenario."""
        with self.counted():
            victim = threading.Thread(target=contextvars.copy_context().run, args=(self._victim,), daemon=True)
            victim.start()
            if self.calls.strike is Strike.FREEZE and self.calls.point is not None:
                while victim.is_alive() and not self.calls.reached.wait(0.01):
                    pass
                self._next()
                self.calls.thawed.set()
                victim.join(PATIENCE_SECONDS)
            else:
                victim.join(PATIENCE_SECONDS)
                self._next()
            assert not victim.is_alive()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count calls to files and to the catalog."""
        with (
            counted_files(self.calls, object_store="", published=lambda path: None),
            counted_catalogs(self.calls),
        ):
            yield

    def check(self) -> None:
        """Check that each batch is in once, as a whole."""
        where = f"struck at {self.calls.point}: {self.calls.struck}"
        seen = self.target.visible
        for batch_id in OF_NEXT:
            either = sorted(OF_VICTIM[batch_id]), sorted(OF_NEXT[batch_id])
            assert seen.get(batch_id, []) in either, where
        unexpected = [error for error in self.failed if not isinstance(error, CoordinationError | OSError)]
        assert unexpected == [], where


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "RETRY_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(sinks, "CONFLICT_PAUSE_SECONDS", 0.001)


@pytest.fixture
def calls_of_a_delivery(tmp_path: Path) -> list[str]:
    calls = Calls()
    quiet = RepeatedDelivery(SinkTarget(IcebergUnderTest(), tmp_path / "quiet"), calls)
    quiet.live()
    assert quiet.target.visible == {batch_id: rows for batch_id, rows in OF_VICTIM.items() if rows}
    assert quiet.target.leftovers == []
    return calls.made


@pytest.mark.parametrize("strike", [s for s in Strike if "clock" not in s and s is not Strike.KILLED_BEFORE], ids=str)
def test_crash_at_any_call_stores_each_batch_once(
    tmp_path: Path, calls_of_a_delivery: list[str], strike: Strike
) -> None:
    looks = strike in (Strike.FREEZE, Strike.RAISED_BEFORE)  # a look after which the job dies leaves what was there
    points = [n for n, call in enumerate(calls_of_a_delivery, 1) if looks or call.startswith(CHANGES)]
    assert points
    for index in each_or_every(10, len(points), strike):
        point = points[index - 1]
        calls = Calls(point, strike)
        lived = RepeatedDelivery(SinkTarget(IcebergUnderTest(), tmp_path / str(point)), calls)
        lived.live()
        lived.check()
        assert calls.struck


def test_delivery_commits_once(calls_of_a_delivery: list[str]) -> None:
    assert calls_of_a_delivery.count("catalog.commit_table") == 1
