"""Maintenance of a table is struck at each of its calls, while jobs deliver, and deliver again what was rejected."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.spark.maintenance import Maintained, Maintenance
from airflow_provider_coordination.spark.sinks.iceberg import catalog as catalogs
from airflow_provider_coordination.spark.sinks.iceberg import sink as sinks
from tests.support.counted_tables import counted_sinks
from tests.support.fleet import Crash
from tests.support.freezing import VICTIM, Calls, Strike, acting, counted_files
from tests.support.landed_tables import TABLES
from tests.support.sinks import BatchRows, Place, an_attempt, under_next_lease

pytestmark = pytest.mark.integration  # needs no server, but minutes: each call is struck once

STRIKES = [
    Strike.FREEZE, Strike.KILLED_BEFORE, Strike.KILLED_AFTER, Strike.RAISED_BEFORE, Strike.RAISED_AFTER, Strike.TWICE
]  # fmt: skip
DAY = timedelta(days=1)
BEFORE = {"x-1": [1, 2], "y-1": [3]}
EXPECTED = {"x-1": [7], "y-1": [3], "p-1": [4, 5], "c-1": [6]}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(sinks, "CONFLICT_PAUSE_SECONDS", 0.001)


@contextmanager
def counted(calls: Calls) -> Iterator[None]:
    with counted_files(calls, object_store=False, published=lambda path: None), counted_sinks(calls):
        yield


class Story:
    """A table of small files with those of a delivery that died; of two jobs, one has prepared a batch.

    :param place: the table.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        for name in BEFORE:
            place.deliver(BEFORE, [an_attempt(name)])
        place.sink().prepare([an_attempt("d-1")], BatchRows({"d-1": [9]}))
        place.sink().sweep("clicks/d-1", 2)
        self.preparing, self.prepared = place.sink(), an_attempt("p-1")
        self.preparing.prepare([self.prepared], BatchRows({"p-1": [4, 5]}))
        self._grow_old()

    def _grow_old(self) -> None:
        for file in self.place.folder.rglob("*"):
            if file.is_file() and file.suffix in (".parquet", ".avro"):
                then = file.stat().st_mtime - 2 * DAY.total_seconds()
                os.utime(file, (then, then))

    def maintain(self) -> Maintained:
        sink: Any = self.place.sink()
        done: Maintained = sink.maintain(Maintenance(retention=DAY))
        return done

    def by_victim(self) -> None:
        acting.set(VICTIM)
        with suppress(Crash, CoordinationError, OSError):
            self.maintain()

    def by_jobs(self) -> None:
        """Commit what is prepared, deliver a batch, and another one anew that was rejected."""
        self.preparing.commit([self.prepared])
        self.preparing.discard([self.prepared])
        self.place.deliver({"c-1": [6]}, [an_attempt("c-1")])
        self.place.deliver({"x-1": [7]}, [under_next_lease(an_attempt("x-1"), rejected=True)])


@pytest.mark.parametrize("strike", STRIKES)
@pytest.mark.parametrize("kind", sorted(TABLES))
def test_at_no_call_a_row_or_a_file_that_the_table_needs_is_lost(tmp_path: Path, kind: str, strike: Strike) -> None:
    calls = Calls()
    with counted(calls):
        contextvars.Context().run(Story(Place(TABLES[kind], tmp_path / "counted")).by_victim)
    assert any(call in calls.made for call in ("table.compact", "catalog.commit_table"))
    assert any(call.startswith("files.delete") for call in calls.made)
    for point in range(1, len(calls.made) + 1):
        story, calls = Story(Place(TABLES[kind], tmp_path / str(point))), Calls(point, strike)
        with counted(calls):
            victim = threading.Thread(target=partial(contextvars.Context().run, story.by_victim))
            victim.start()
            if strike is Strike.FREEZE:
                assert calls.reached.wait(60), "the victim does not come there"
            else:
                victim.join(60)
            contextvars.Context().run(story.by_jobs)
            calls.thawed.set()
            victim.join(60)
        assert calls.struck and not victim.is_alive()
        assert story.place.visible == EXPECTED, f"{strike} at {point}: {calls.struck}"
        story.maintain()
        assert story.place.visible == EXPECTED, f"{strike} at {point}: {calls.struck}, and maintained again"
