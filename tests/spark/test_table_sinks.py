"""Landed files that become a table's data files as they are."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.sources.landed import EventTimeBounds
from airflow_provider_coordination.spark import parquet_files, table_sinks
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.sinks import make_sinks
from tests.support.landed_tables import TABLES, LandedTable, deliver, prepare, taken_over
from tests.support.sinks import SinkTarget

VALUES = {"a-1": [1, 2], "b-1": [3], "c-1": [4, 5, 6]}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=sorted(TABLES))
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> LandedTable:
    return LandedTable(SinkTarget(TABLES[request.param], tmp_path / "sink"), tmp_path / "landing")


@pytest.fixture
def large_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_sinks, "SMALL_FILE_BYTES", 0)


def data_files(landing: LandedTable) -> list[Path]:
    return [path for path in (landing.target.folder).rglob("*.parquet") if "_delta_log" not in path.parts]


def test_landed_files_become_table_files_in_place(landing: LandedTable, large_files: None) -> None:
    attempts = landing.land(VALUES)
    deliver(landing.delivery(), attempts)
    assert landing.target.visible == VALUES
    assert {path.stat().st_ino for path in data_files(landing)} == {Path(each.file).stat().st_ino for each in attempts}


def test_small_files_are_merged(landing: LandedTable) -> None:
    deliver(landing.delivery(), landing.land(VALUES))
    assert landing.target.visible == VALUES
    assert len(data_files(landing)) == 1


def test_merged_files_are_limited_in_size_and_memory(landing: LandedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = landing.land(VALUES)
    monkeypatch.setattr(table_sinks, "MERGED_FILE_BYTES", attempts[0].batch.file_bytes + 1)
    monkeypatch.setattr(parquet_files, "ROW_GROUP_BYTES", 1)
    deliver(landing.delivery(), attempts)
    assert landing.target.visible == VALUES
    assert len(data_files(landing)) == 2


def test_files_with_other_columns_join_the_same_commit(landing: LandedTable) -> None:
    attempts = [*landing.land({"a-1": [1]}), *landing.land({"b-1": [2]}, more=["x"])]
    deliver(landing.delivery(), attempts)
    assert landing.target.visible == {"a-1": [1], "b-1": [2]}


def test_committed_batch_is_skipped(landing: LandedTable) -> None:
    attempts = landing.land(VALUES)
    deliver(landing.delivery(), attempts[:1])
    for delivery in (landing.delivery(), landing.delivery()):
        deliver(delivery, attempts)
    assert landing.target.visible == VALUES


@pytest.mark.parametrize("large", [False, True])
def test_rejected_batches_are_visible_once_after_redelivery(
    landing: LandedTable, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_sinks, "SMALL_FILE_BYTES", 0 if large else 1 << 20)
    attempts = landing.land(VALUES)
    deliver(landing.delivery(), attempts)
    deliver(landing.delivery(), [taken_over(attempt, rejected=True) for attempt in attempts])
    assert landing.target.visible == VALUES


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_damaged_landed_file_holds_back_its_batch_alone(landing: LandedTable, damage: str) -> None:
    attempts, delivery = landing.land(VALUES), landing.delivery()
    file = Path(attempts[1].file)
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-9])
    prepared = delivery.prepare(attempts, ["main"])
    assert isinstance(prepared["b-1"], DeliveryError) and "restore it" in str(prepared["b-1"])
    delivery.commit("main", [attempts[0], attempts[2]])
    assert landing.target.visible == {"a-1": [1, 2], "c-1": [4, 5, 6]}


def test_batch_with_excluded_records_is_not_taken_as_landed(landing: LandedTable) -> None:
    bounds = EventTimeBounds(column="at", type="timestamp", earliest=NOW, latest=None)
    [attempt] = landing.land({"a-1": [1]})
    with pytest.raises(DeliveryError, match=r"leaves records out by their field 'at'"):
        prepare(landing.delivery(), [replace(attempt, batch=replace(attempt.batch, bounds=bounds))])


def test_previous_owner_commits_nothing_from_a_moved_file(landing: LandedTable) -> None:
    attempts, former = landing.land(VALUES), landing.delivery()
    prepare(former, attempts)
    again = taken_over(attempts[1])
    with pytest.raises(MissingFileError, match=r"landed file .* is gone"):
        former.commit("main", attempts)
    former.commit("main", [attempts[0], attempts[2]])
    deliver(landing.delivery(), [again])
    assert landing.target.visible == VALUES


def test_unprepared_or_discarded_batch_cannot_be_committed(landing: LandedTable) -> None:
    attempts, delivery = landing.land(VALUES), landing.delivery()
    prepare(delivery, attempts[:2])
    delivery.discard(attempts[:1])
    for attempt in (attempts[0], attempts[2]):
        with pytest.raises(CoordinationError, match="it has no staged data"):
            delivery.commit("main", [attempt])
    delivery.commit("main", [attempts[1]])
    assert landing.target.visible == {"b-1": [3]}


def test_discard_removes_data_files_and_keeps_landed_ones(landing: LandedTable, large_files: None) -> None:
    attempts, delivery = landing.land(VALUES), landing.delivery()
    prepare(delivery, attempts)
    for attempt in attempts:
        delivery.discard([attempt])
    assert data_files(landing) == []
    assert all(Path(attempt.file).exists() for attempt in attempts)


def test_file_of_several_table_partitions_is_split(landing: LandedTable, large_files: None) -> None:
    settings = landing.target.kind.settings(landing.target.folder)
    [sink] = make_sinks([replace(settings, settings={**settings.settings, "partition_by": ["kind"]})])
    [one] = landing.land({"a-1": [1, 2]}, kind=["x", "x"])
    [two] = landing.land({"b-1": [3, 4]}, kind=["x", "y"])
    deliver(landing.delivery(sink), [one, two])
    assert landing.target.visible == {"a-1": [1, 2], "b-1": [3, 4]}
    files = [path.stat().st_ino for path in data_files(landing)]
    assert len(files) == 3
    assert Path(one.file).stat().st_ino in files and Path(two.file).stat().st_ino not in files
