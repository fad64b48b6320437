"""The deleted keys of a Delta table, while others restore, clean or change the table."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.sinks import Maintenance, Sink
from airflow_provider_coordination.spark.sinks.delta import log
from airflow_provider_coordination.spark.tombstones import FOLDER, Tombstones
from tests.support.merged_tables import BY_CHANGES, CHANGES, Row, a_sink, deliver
from tests.support.sinks import DeltaUnderTest, SinkTarget, an_attempt

DELETE = ("x", None, 5, "REMOVE")


@pytest.fixture
def target(tmp_path: Path) -> SinkTarget:
    """A table whose key `x` was put and deleted."""
    made = SinkTarget(DeltaUnderTest(), tmp_path / "lake")
    merge(made, "a-1", ("x", 1, 1))
    merge(made, "b-1", DELETE)
    return made


def merge(target: SinkTarget, batch_id: str, *rows: Row, sink: Sink | None = None, **more: Any) -> None:
    sink = sink or a_sink(target, **{**BY_CHANGES, **more})
    deliver(sink, {batch_id: rows}, an_attempt(batch_id), schema=CHANGES)


def files_in(target: SinkTarget) -> list[Path]:
    return sorted((target.folder / FOLDER).iterdir())


def test_deleted_keys_outlive_a_restore(target: SinkTarget) -> None:
    DeltaTable(target.folder).restore(1)
    assert target.visible == {"a-1": [1]}
    merge(target, "c-1", ("x", 2, 4))
    assert target.visible == {"a-1": [1]}
    merge(target, "d-1", ("x", 3, 6))
    assert target.visible == {"d-1": [3]}


def test_deleted_keys_outlive_vacuum_and_an_expired_log(target: SinkTarget) -> None:
    merge(target, "c-1", ("y", 1, 1))
    table = DeltaTable(target.folder)
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    table = DeltaTable(target.folder)
    table.create_checkpoint()
    for version in range(table.version()):
        (target.folder / "_delta_log" / f"{version:020}.json").unlink()
    merge(target, "d-1", ("x", 2, 4))
    assert target.visible == {"c-1": [1]}


def test_job_learns_the_deletes_of_others(target: SinkTarget) -> None:
    sink = a_sink(target, **BY_CHANGES)
    merge(target, "c-1", ("y", 1, 1), sink=sink)
    merge(target, "d-1", ("y", None, 5, "REMOVE"))
    merge(target, "e-1", ("y", 2, 4), ("x", 3, 4), sink=sink)
    assert target.visible == {}


def test_superseded_files_are_removed_after_the_commit(target: SinkTarget) -> None:
    [before] = files_in(target)
    merge(target, "c-1", ("y", None, 5, "REMOVE"))
    [after] = files_in(target)
    assert before != after


def test_maintenance_removes_files_that_no_commit_named(target: SinkTarget) -> None:
    [named] = files_in(target)
    shutil.copy(named, named.with_name("77.parquet"))
    then = named.stat().st_mtime - timedelta(days=2).total_seconds()
    for file in files_in(target):
        os.utime(file, (then, then))
    sink: Any = target.sink()
    assert sink.maintain(Maintenance(retention=timedelta(days=1), is_dry_run=True)).files_removed == 1
    sink.maintain(Maintenance(retention=timedelta(days=1)))
    assert files_in(target) == [named]


def test_lost_folder_stops_deliveries_until_it_is_given_up(target: SinkTarget) -> None:
    shutil.rmtree(target.folder / FOLDER)
    with pytest.raises(DeliveryError, match=r"\.parquet is missing, which has keys .* set 'tombstone_retention' to 0"):
        merge(target, "c-1", ("x", 2, 4))
    merge(target, "d-1", ("y", None, 2, "REMOVE"), tombstone_retention="PT0S")
    merge(target, "e-1", ("x", 3, 3))
    assert target.visible == {"e-1": [3]}


def others_first(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, change: Callable[[], None]) -> None:
    """Let others change the table before the first call."""
    made = getattr(place, name)

    def late(*details: Any) -> Any:
        monkeypatch.setattr(place, name, made)
        change()
        return made(*details)

    monkeypatch.setattr(place, name, late)


@pytest.mark.parametrize(("place", "name"), [(Tombstones, "without_late"), (Tombstones, "add"), (log, "change_files")])
def test_deletes_of_others_in_between_are_read(
    target: SinkTarget, monkeypatch: pytest.MonkeyPatch, place: Any, name: str
) -> None:
    others_first(monkeypatch, place, name, lambda: merge(target, "c-1", ("y", None, 5, "REMOVE"), ("v", 2, 1)))
    merge(target, "d-1", ("y", 3, 4), ("z", None, 5, "REMOVE"), ("w", 4, 1))
    merge(target, "e-1", *((key, 9, 4) for key in "xyz"))
    assert target.visible == {"c-1": [2], "d-1": [4]}
    assert len(files_in(target)) == 1, "the tries that failed leave none"
