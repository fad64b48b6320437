"""Compaction of Parquet datasets: fewer files, the same rows for each sort of reader, and exactly once beside jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.spark import dataset_compaction
from airflow_provider_coordination.spark.dataset_compaction import dataset_files, maintain_dataset
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.sinks import Maintenance, MaintenanceResult, owed
from tests.support.depth import each_or_every
from tests.support.freezing import Strike
from tests.support.sinks import SINKS, SinkTarget, an_attempt, by_batch, under_next_lease
from tests.support.striking import STRIKES, calls_of, strike_at

HOUR = timedelta(hours=1)
WANTED = Maintenance(retention=HOUR)
VALUES = {"a-1": [1, 2], "b-1": [2], "c-1": [1, 3]}


@pytest.fixture
def target(tmp_path: Path) -> SinkTarget:
    return a_dataset(tmp_path / "lake")


def a_dataset(folder: Path) -> SinkTarget:
    made = SinkTarget(SINKS["parquet"], folder)  # type: ignore[arg-type]
    for batch_id in VALUES:
        made.deliver(VALUES, [an_attempt(batch_id)])
    return made


def maintained(target: SinkTarget, hours: float, wanted: Maintenance = WANTED) -> MaintenanceResult:
    """Maintain the dataset as if it were some hours later."""
    return maintain_dataset(str(target.folder), wanted, now=datetime.now(UTC) + hours * HOUR)


def seen_by_records(target: SinkTarget) -> dict[str, int]:
    """Return the number of rows of each batch that a reader of records sees."""
    tables = [pq.ParquetFile(file).read(["_batch_id"]) for file in dataset_files(str(target.folder))]
    return {batch_id: len(rows) for batch_id, rows in by_batch(pa.concat_tables(tables).to_pylist()).items()}


def files_of(target: SinkTarget) -> int:
    return sum(1 for file in target.folder.rglob("*.parquet") if "_" not in file.relative_to(target.folder).parts[0])


EXPECTED = {batch_id: len(values) for batch_id, values in VALUES.items()}


def test_compacted_dataset_has_fewer_files_and_the_same_rows(target: SinkTarget) -> None:
    before = files_of(target)
    merged = maintained(target, 2).files_compacted
    assert merged == before == 3
    assert target.visible == VALUES and files_of(target) == before and seen_by_records(target) == EXPECTED

    assert maintained(target, 4).files_removed == merged
    assert target.visible == VALUES and files_of(target) < before and seen_by_records(target) == EXPECTED

    maintained(target, 6)
    assert target.visible == VALUES and seen_by_records(target) == EXPECTED
    assert not list((target.folder / "_compaction").glob("*.parquet"))
    assert maintained(target, 8) == MaintenanceResult()


def test_young_files_are_not_compacted(target: SinkTarget) -> None:
    assert maintained(target, 0.5) == MaintenanceResult()


def test_dry_run_of_compaction_changes_nothing(target: SinkTarget) -> None:
    before = sorted(target.folder.rglob("*"))

    assert maintained(target, 2, Maintenance(retention=HOUR, is_dry_run=True)).files_compacted == 3

    assert sorted(target.folder.rglob("*")) == before


def test_compacted_batch_is_not_delivered_again(target: SinkTarget) -> None:
    for hours in (2, 4, 6):
        maintained(target, hours)
    again = [under_next_lease(an_attempt(batch_id)) for batch_id in VALUES]

    assert owed(target.sink(), again) == []


def test_rejected_batch_after_its_compaction_is_refused(target: SinkTarget) -> None:
    maintained(target, 2)
    rejected = [under_next_lease(an_attempt("a-1"), rejected=True)]

    with pytest.raises(DeliveryError, match="batch a-1 was rejected after its file was compacted into"):
        target.sink().prepare(rejected, target.rows(VALUES))


def test_file_without_rows_keeps_its_name(target: SinkTarget) -> None:
    target.deliver({"a-1": []}, [under_next_lease(an_attempt("a-1"), rejected=True)])

    for hours in (2, 4, 6):
        maintained(target, hours)

    assert (target.folder / "a-1.parquet").exists() and target.visible == {"b-1": [2], "c-1": [1, 3]}


def test_rejected_batch_is_refused_after_a_merge_beside_its_delivery(target: SinkTarget) -> None:
    sink, rejected = target.sink(), [under_next_lease(an_attempt("a-1"), rejected=True)]
    sink.prepare(rejected, target.rows({"a-1": [7]}))
    maintained(target, 2)

    with pytest.raises(DeliveryError, match="batch a-1 was rejected after its file was compacted"):
        sink.commit(rejected)


def test_redelivery_at_the_moment_of_a_record_waits(target: SinkTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, rejected = target.sink(), [under_next_lease(an_attempt("a-1"), rejected=True)]
    sink.prepare(rejected, target.rows({"a-1": [7]}))
    create_once = dataset_compaction.create_once

    def create_beside_a_redelivery(*details: Any) -> bool:
        with pytest.raises(DeliveryError, match="batch a-1 was rejected after its file was compacted"):
            sink.commit(rejected)
        return create_once(*details)

    monkeypatch.setattr(dataset_compaction, "create_once", create_beside_a_redelivery)
    assert maintained(target, 2).files_compacted == 3
    assert not list((target.folder / "_compaction").glob("*.announced"))


class Compacting:
    """Maintenance that fails, beside a job that delivers; another run goes on.

    :param target: the dataset.
    :param hours: how much later each run is; the last one fails.
    """

    def __init__(self, target: SinkTarget, hours: list[int]) -> None:
        self.target = target
        *before, self.last = hours
        for each in before:
            maintained(target, each)

    def by_victim(self) -> None:
        maintained(self.target, self.last)

    def by_successor(self) -> None:
        assert seen_by_records(self.target) == EXPECTED
        self.target.deliver({"d-1": [1]}, [an_attempt("d-1")])
        maintained(self.target, self.last)


@pytest.mark.deep
@pytest.mark.parametrize("hours", [[2], [2, 4], [2, 4, 6]], ids=["merge", "show", "end"])
def test_failed_compaction_shows_each_row_once(tmp_path: Path, hours: list[int]) -> None:
    made = calls_of(Compacting(a_dataset(tmp_path / "counted"), hours))
    assert any("_compaction" in call for call in made)
    for number, strike in enumerate(STRIKES):
        for point in each_or_every(8, len(made), len(hours), strike):
            story = Compacting(a_dataset(tmp_path / f"{number}-{point}"), hours)
            struck = strike_at(point, strike, story)
            expected = EXPECTED | {"d-1": 1}
            assert seen_by_records(story.target) == expected, struck
            if strike is not Strike.FREEZE:
                assert story.target.visible == VALUES | {"d-1": [1]}, struck
            for later in (8, 10, 12, 14):
                maintained(story.target, later)
                assert seen_by_records(story.target) == expected, struck
            assert story.target.visible == VALUES | {"d-1": [1]}, struck
