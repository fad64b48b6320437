"""The ledger of a dataset: written before files appear, merged without a loss, read while that happens."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from airflow_provider_coordination.spark import dataset_ledger
from airflow_provider_coordination.spark.dataset_ledger import MIN_MERGED, DatasetLedger, dataset_contents
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.sinks import Maintenance, make_sinks
from tests.support.sinks import SINKS, BatchRows, SinkTarget, an_attempt, under_next_lease

NOW = datetime.now(UTC)


def batches(ledger: DatasetLedger) -> list[str]:
    return sorted(described["batch"]["batch_id"] for described, _ in ledger.deliveries())


def filled(path: Path, objects: int) -> DatasetLedger:
    ledger = DatasetLedger(str(path))
    for number in range(objects):
        ledger.add([(an_attempt(f"b-{number:04}"), {f"b-{number:04}.parquet": 10})])
    return ledger


def objects(path: Path) -> list[Path]:
    return sorted((path / "_ledger").iterdir())


def test_delivery_of_many_batches_makes_one_object(tmp_path: Path) -> None:
    ledger = DatasetLedger(str(tmp_path))
    ledger.add([(an_attempt(name), {}) for name in ("a", "b", "c")])
    ledger.add([])
    assert batches(ledger) == ["a", "b", "c"] and len(objects(tmp_path)) == 1


def test_old_objects_are_merged_without_a_loss(tmp_path: Path) -> None:
    ledger = filled(tmp_path, MIN_MERGED)
    before = batches(ledger)
    assert ledger.merge(NOW - timedelta(days=1)) == 0, "they are not old"
    assert ledger.merge(NOW + timedelta(days=1)) == MIN_MERGED
    assert batches(ledger) == before and len(objects(tmp_path)) == 1
    assert ledger.merge(NOW + timedelta(days=1)) == 0, "they are few"


def test_merge_that_dies_before_it_deletes_loses_nothing(tmp_path: Path) -> None:
    ledger = filled(tmp_path, MIN_MERGED)
    before = batches(ledger)
    with (
        patch.object(dataset_ledger, "delete_files", side_effect=OSError("the disk is gone")),
        pytest.raises(OSError, match="the disk is gone"),
    ):
        ledger.merge(NOW + timedelta(days=1))
    assert sorted(set(batches(ledger))) == before
    ledger.merge(NOW + timedelta(days=1))
    assert batches(ledger) == before


def test_reader_during_a_merge_misses_nothing(tmp_path: Path) -> None:
    ledger = filled(tmp_path, MIN_MERGED)
    before = batches(ledger)
    read, merged = dataset_ledger.read_text, []

    def read_while_merging(uri: str, *args: Any) -> str:
        if not merged:
            merged.append(uri)
            ledger.merge(NOW + timedelta(days=1))
        return read(uri, *args)

    with patch.object(dataset_ledger, "read_text", read_while_merging):
        assert sorted(set(batches(ledger))) == before


@pytest.fixture(params=["parquet", "parquet, partitioned"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> SinkTarget:
    kind: Any = SINKS[request.param]
    return SinkTarget(kind, tmp_path / "sink")


def found(target: SinkTarget) -> dict[str, bool]:
    """Return the batches that the dataset has, and whether each of them is sound."""
    contents = target.sink().contents(lambda source: True, reads_rows=False)
    assert contents is not None
    return {each.batch_id: each.batch_id not in contents.faults for each in contents.entries}


def test_batch_of_a_dead_owner_is_held_once_delivered(target: SinkTarget) -> None:
    first: Attempt = an_attempt("a-1")
    sink = target.sink()
    sink.prepare([first], BatchRows({"a-1": [1, 2]}))
    with patch("airflow_provider_coordination.spark.storage.open_files") as broken:
        broken.side_effect = OSError("the disk is gone")
        with pytest.raises(OSError, match="the disk is gone"):
            sink.commit([first])
    assert found(target).get("a-1") is not True
    target.deliver({"a-1": [3]}, [under_next_lease(first)])
    assert found(target) == {"a-1": True}


def test_rejected_batch_is_held_by_its_last_delivery(target: SinkTarget) -> None:
    target.deliver({"a-1": [1, 2]}, [an_attempt("a-1")])
    target.deliver({"a-1": [7]}, [under_next_lease(an_attempt("a-1"), rejected=True)])
    assert found(target) == {"a-1": True}
    for file in target.folder.rglob("*.parquet"):
        if "_staging" not in file.parts and file.stat().st_size:
            file.unlink()
    assert found(target) == {"a-1": False}


def test_batch_without_rows_is_held_without_a_file(target: SinkTarget) -> None:
    target.deliver({"a-1": []}, [an_attempt("a-1")])
    assert found(target) == {"a-1": True}


def test_maintenance_merges_the_ledger(tmp_path: Path) -> None:
    target = SinkTarget(SINKS["parquet"], tmp_path / "sink")  # type: ignore[arg-type]
    filled(target.folder, MIN_MERGED)
    for each in objects(target.folder):
        os.utime(each, (0, 0))
    [sink] = make_sinks([target.kind.settings(target.folder)])
    sink.maintain(Maintenance(is_dry_run=True))
    assert len(objects(target.folder)) == MIN_MERGED
    sink.maintain(Maintenance())
    assert len(objects(target.folder)) == 1


def test_batches_of_other_sources_are_known_and_not_shown(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    deliveries = DatasetLedger(str(tmp_path)).deliveries()
    contents = dataset_contents(str(tmp_path), deliveries, lambda source: source == "other", reads_rows=False)
    assert not contents.entries and not contents.faults
