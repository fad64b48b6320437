"""Maintenance of tables beside jobs: fewer files, the same rows, and no file that a later commit needs is removed."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.spark.sinks import Maintenance, MaintenanceResult, Sink, owed
from tests.support.sinks import SINKS, BatchRows, SinkTarget, an_attempt, under_next_lease

DAY = timedelta(days=1)
AT_ONCE = Maintenance(retention=timedelta(0))
DAILY = Maintenance(retention=DAY)
NAMES = ("a-1", "b-1", "c-1")
VALUES = {"a-1": [1, 2], "b-1": [3], "c-1": [4, 5]}


@pytest.fixture(params=["delta", "iceberg"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> SinkTarget:
    return SinkTarget(SINKS[request.param], tmp_path / "target")  # type: ignore[arg-type]


def maintained(target: SinkTarget, wanted: Maintenance = DAILY) -> MaintenanceResult:
    sink: Any = target.sink()
    done: MaintenanceResult = sink.maintain(wanted)
    return done


def one_by_one(target: SinkTarget) -> None:
    for name in NAMES:
        target.deliver(VALUES, [an_attempt(name)])


def files(target: SinkTarget) -> set[Path]:
    return {file for file in target.folder.rglob("*.parquet") if "_delta_log" not in file.parts}


def backdate(target: SinkTarget, days: float = 2) -> None:
    """Backdate every file by some days."""
    for file in target.folder.rglob("*"):
        if file.is_file() and file.suffix in (".parquet", ".avro"):
            then = file.stat().st_mtime - days * 86_400
            os.utime(file, (then, then))


def test_small_files_are_compacted_and_rows_stay(target: SinkTarget) -> None:
    one_by_one(target)

    assert maintained(target).files_compacted == 3

    assert target.visible == VALUES
    assert maintained(target).files_compacted == 0


def test_dry_run_counts_and_changes_nothing(target: SinkTarget) -> None:
    one_by_one(target)
    backdate(target)
    (target.sink()).prepare([an_attempt("d-1")], BatchRows({"d-1": [6]}))
    target.sink().sweep({"clicks/d-1": 2})
    backdate(target)
    before = {file: file.read_bytes() for file in target.folder.rglob("*") if file.is_file()}

    dry = maintained(target, Maintenance(retention=DAY, is_dry_run=True))

    assert (dry.files_compacted, dry.files_removed) == (3, 1) and dry.bytes_removed > 0
    assert {file: file.read_bytes() for file in target.folder.rglob("*") if file.is_file()} == before


def test_old_files_of_a_dead_delivery_are_removed(target: SinkTarget) -> None:
    one_by_one(target)
    target.sink().prepare([an_attempt("d-1")], BatchRows({"d-1": [6]}))
    target.sink().sweep({"clicks/d-1": 2})
    before = files(target)

    assert maintained(target, Maintenance(retention=DAY, compact=False)).files_removed == 0
    backdate(target)
    done = maintained(target, Maintenance(retention=DAY, compact=False))

    assert done.files_removed == 1 and done.bytes_removed > 0
    assert len(files(target)) == len(before) - 1 and target.visible == VALUES


def test_prepared_files_stay_at_any_age(target: SinkTarget) -> None:
    one_by_one(target)
    sink, attempt = target.sink(), an_attempt("d-1")
    sink.prepare([attempt], BatchRows({"d-1": [6]}))
    backdate(target)

    maintained(target, AT_ONCE)
    sink.commit([attempt])

    assert target.visible == {**VALUES, "d-1": [6]}


def test_previous_owner_commits_no_removed_files(target: SinkTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one(target)
    sink, attempt = target.sink(), an_attempt("d-1")
    sink.prepare([attempt], BatchRows({"d-1": [6]}))

    def taken_over() -> None:
        target.sink().sweep({attempt.folder: 2})
        backdate(target)
        assert maintained(target, Maintenance(retention=DAY, compact=False)).files_removed >= 1

    between_read_and_commit(sink, monkeypatch, taken_over)
    with pytest.raises((CoordinationError, OSError)):
        sink.commit([attempt])

    assert target.visible == VALUES, "every file that the table names can be read"


def between_read_and_commit(sink: Sink, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Run an action once, after a job has read the table and before it commits."""
    from airflow_provider_coordination.spark.sinks.delta import log
    from airflow_provider_coordination.spark.sinks.iceberg.snapshots import PendingSnapshot

    done: list[bool] = []

    def late(call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*details: Any, **more: Any) -> Any:
            if not done:
                done.append(True)
                act()
            return call(*details, **more)

        return calling

    monkeypatch.setattr(log, "change_files", late(log.change_files))
    monkeypatch.setattr(PendingSnapshot, "send", late(PendingSnapshot.send))


def test_delivery_during_maintenance_is_stored_once(target: SinkTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one(target)
    sink, attempt = target.sink(), an_attempt("d-1")
    sink.prepare([attempt], BatchRows({"d-1": [6]}))

    between_read_and_commit(sink, monkeypatch, lambda: maintained(target, DAILY) and None)
    sink.commit([attempt])

    assert target.visible == {**VALUES, "d-1": [6]}


def test_committed_batches_stay_known_after_maintenance(target: SinkTarget) -> None:
    one_by_one(target)
    backdate(target)
    maintained(target, AT_ONCE)
    without_old_commits(target)

    sink = target.sink()
    again = [under_next_lease(an_attempt(name)) for name in NAMES]

    assert owed(sink, again) == []
    target.deliver({"a-1": [-1], "b-1": [-2], "c-1": [-3]}, again, sink)
    assert target.visible == VALUES


def test_rejected_batch_is_replaced_after_maintenance(target: SinkTarget) -> None:
    one_by_one(target)
    maintained(target, AT_ONCE)
    without_old_commits(target)

    target.deliver({"b-1": [30]}, [under_next_lease(an_attempt("b-1"), rejected=True)])

    assert target.visible == {**VALUES, "b-1": [30]}


def without_old_commits(target: SinkTarget) -> None:
    """Remove old commits from the log of a Delta table; an Iceberg table's snapshots are already expired."""
    if DeltaTable.is_deltatable(str(target.folder)):
        table = DeltaTable(target.folder)
        table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
        table = DeltaTable(target.folder)
        table.create_checkpoint()
        for commit in (target.folder / "_delta_log").glob("*.json"):
            os.utime(commit, (0, 0))
        table.cleanup_metadata()
        assert len(DeltaTable(target.folder).history()) < 3
