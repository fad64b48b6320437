"""Maintenance of a table fails at each of its calls, while jobs deliver batches and redeliver rejected ones."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.spark.sinks import Maintenance, MaintenanceResult
from airflow_provider_coordination.spark.tombstones import FOLDER
from tests.support.depth import each_or_every
from tests.support.freezing import Strike
from tests.support.landed_tables import TABLES
from tests.support.merged_tables import BY_CHANGES, CHANGES, ORDERED, a_sink, deliver
from tests.support.sinks import BatchRows, SinkTarget, an_attempt, under_next_lease
from tests.support.striking import STRIKES, calls_of, strike_at

pytestmark = [pytest.mark.integration, pytest.mark.deep]

DAY = timedelta(days=1)
BEFORE = {"x-1": [1, 2], "y-1": [3]}
EXPECTED = {"x-1": [7], "y-1": [3], "p-1": [4, 5], "c-1": [6]}


class Scenario:
    """A table of small files, with files of a dead delivery; one of two jobs has prepared a batch.

    :param target: the table.
    """

    def __init__(self, target: SinkTarget) -> None:
        self.target = target
        for name in BEFORE:
            target.deliver(BEFORE, [an_attempt(name)])
        target.sink().prepare([an_attempt("d-1")], BatchRows({"d-1": [9]}))
        target.sink().sweep({"clicks/d-1": 2})
        self.preparing, self.prepared = target.sink(), an_attempt("p-1")
        self.preparing.prepare([self.prepared], BatchRows({"p-1": [4, 5]}))
        self._backdate()

    def _backdate(self) -> None:
        for file in self.target.folder.rglob("*"):
            if file.is_file() and file.suffix in (".parquet", ".avro"):
                then = file.stat().st_mtime - 2 * DAY.total_seconds()
                os.utime(file, (then, then))

    def maintain(self) -> MaintenanceResult:
        sink: Any = self.target.sink()
        done: MaintenanceResult = sink.maintain(Maintenance(retention=DAY))
        return done

    def by_victim(self) -> None:
        self.maintain()

    def by_successor(self) -> None:
        """Commit what is prepared, deliver a batch, and deliver a rejected one again."""
        self.preparing.commit([self.prepared])
        self.preparing.discard([self.prepared])
        self.target.deliver({"c-1": [6]}, [an_attempt("c-1")])
        self.target.deliver({"x-1": [7]}, [under_next_lease(an_attempt("x-1"), rejected=True)])


@pytest.mark.parametrize("strike", STRIKES)
@pytest.mark.parametrize("kind", sorted(TABLES))
def test_failure_at_any_call_loses_no_rows_or_needed_files(tmp_path: Path, kind: str, strike: Strike) -> None:
    made = calls_of(Scenario(SinkTarget(TABLES[kind], tmp_path / "counted")))
    assert any(call in made for call in ("table.compact", "catalog.commit_table"))
    assert any(call.startswith("files.delete") for call in made)
    for point in each_or_every(12, len(made), "maintenance", kind, strike):
        story = Scenario(SinkTarget(TABLES[kind], tmp_path / str(point)))
        struck = strike_at(point, strike, story)
        assert story.target.visible == EXPECTED, struck


class DeletingScenario(Scenario):
    """A table with deleted rows and keys, and with files of them that no commit named; jobs delete more, and are late.

    :param target: the table.
    """

    def __init__(self, target: SinkTarget) -> None:
        self.target = target
        for name, key in (("x-1", "x"), ("y-1", "y")):
            self._deliver(name, [(key, 1, 1), (key, None, 5, "REMOVE"), *((f"{key}{n}", n, 1) for n in (2, 3, 4))])
        self._deliver("z-1", [("x3", 33, 2), ("y4", None, 5, "REMOVE")])  # by position, in the files of both
        named = [file for file in target.folder.rglob("*.parquet") if FOLDER in file.parts]
        shutil.copy(named[0], named[0].with_name("77.parquet"))
        self._backdate()

    def _deliver(self, batch_id: str, rows: list[tuple[Any, ...]]) -> None:
        deliver(a_sink(self.target, **BY_CHANGES), {batch_id: rows}, an_attempt(batch_id), schema=CHANGES)

    def by_successor(self) -> None:
        """Delete a key, and deliver changes that are older than the deletes."""
        self._deliver("p-1", [("z", None, 5, "REMOVE"), ("x", 3, 4), ("x4", None, 5, "REMOVE"), ("y3", 8, 4)])
        self._deliver("c-1", [("x", 4, 3), ("y", 5, 3), ("z", 6, 3), ("w", 7, 3), ("y3", 9, 3), ("x4", 9, 4)])


@pytest.mark.parametrize("strike", STRIKES)
@pytest.mark.parametrize("kind", sorted(set(TABLES) & set(ORDERED)))
def test_maintenance_failing_at_any_call_forgets_no_delete(tmp_path: Path, kind: str, strike: Strike) -> None:
    made = calls_of(counted := DeletingScenario(SinkTarget(TABLES[kind], tmp_path / "counted")))
    assert not list(counted.target.folder.rglob("77.parquet"))
    for point in each_or_every(8, len(made), "maintenance of deletes", kind, strike):
        story = DeletingScenario(SinkTarget(TABLES[kind], tmp_path / str(point)))
        struck = strike_at(point, strike, story)
        assert story.target.visible == {"x-1": [2], "y-1": [2], "z-1": [33], "p-1": [8], "c-1": [7]}, struck
