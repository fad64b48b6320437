"""The audit of a stream's Parquet dataset finds each injected fault, and nothing in a dataset without faults."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.audit.repair import PlannedRepair, plan_of, plan_repairs
from airflow_provider_coordination.audit.report import AuditFinding, AuditReport, State
from airflow_provider_coordination.audit.source_audit import audit_source
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import Target, parse_target
from airflow_provider_coordination.spark.dataset_compaction import maintain_dataset
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import Maintenance
from tests.support.history import History

DAY = 24 * 3600


class AuditedStream(History):
    """A stream with one shard that jobs deliver to a Parquet dataset, a batch in each round.

    :param folder: an empty folder.
    """

    def __init__(self, folder: Path, rounds: int = 3, **given: Any) -> None:
        super().__init__(folder, **{"shards": 1, **given})
        self.sync()
        self.deliver(rounds)

    def deliver(self, rounds: int = 1, each: int = 20) -> None:
        worker = self.start()
        for _ in range(rounds):
            self.send(each)
            self.clock.advance(5)
            self.work(worker)
        self.stop(worker)

    def audit(self, *, reads_rows: bool = False) -> AuditReport:
        sink = SinkSettings(name="main", kind="parquet", location=str(self.folder))
        return audit_source(self.look.view, [sink], reads_rows=reads_rows)

    @property
    def partition(self) -> Partition:
        return next(iter(self.look.view.partitions()))

    @property
    def checkpoint(self) -> str:
        return ShardProgress.from_mapping(self.partition.progress).checkpoint

    def files(self) -> list[Path]:
        """Return the files of the dataset, in the order of their batches."""
        return [self.folder / name for each in self.ledger() for name in each["files"]]

    def ledger(self) -> list[dict[str, Any]]:
        """Return what the ledger has, in the order of the batches."""
        objects = [json.loads(file.read_text()) for file in (self.folder / "_ledger").iterdir()]
        return sorted((batch for each in objects for batch in each), key=lambda batch: batch["batch"]["ordinal"])

    def change_progress(self, **changes: Any) -> None:
        """Change the stored progress, as somebody with access to the database may."""
        stored = self.partition
        self.store.transact(update=[stored.with_progress({**stored.progress, **changes})])

    def backup(self) -> dict[Any, Partition]:
        return dict(self.store._partitions)

    def restore(self, backup: dict[Any, Partition]) -> None:
        self.store._partitions.clear()
        self.store._partitions.update(backup)

    def delivered_rows(self) -> list[str]:
        """Return the records that readers of the dataset see."""
        return sorted(
            row["data"].decode() for file in self.folder.glob("*.parquet") for row in pq.read_table(file).to_pylist()
        )

    def reset(self, to: str) -> None:
        resets = Resets(AcknowledgmentSets(self.coordinator("person", self.store), SourceBatches()))
        plan = resets.plan_partitions([self.partition], parse_target(to, self.clock.now()))
        assert [type(result) for _, result in resets.apply(plan)] == [Partition]


@pytest.fixture
def stream(tmp_path: Path) -> AuditedStream:
    return AuditedStream(tmp_path)


def wrong(report: AuditReport) -> list[AuditFinding]:
    return [each for each in report.findings if not each.is_explained]


def range_of(finding: AuditFinding) -> tuple[State, str | None, str | None]:
    return finding.state, finding.after, finding.until


def batch_range(described: dict[str, Any]) -> tuple[str, str]:
    return described["batch"]["start"], described["batch"]["end"]


# What is sound


@pytest.mark.parametrize("reads_rows", [False, True])
def test_sound_dataset_is_complete(stream: AuditedStream, reads_rows: bool) -> None:
    report = stream.audit(reads_rows=reads_rows)
    [sink] = report.sinks
    [shard] = sink.partitions
    assert report.state is State.COMPLETE and not report.findings and not sink.notes
    assert (shard.batches, shard.records, shard.rows, shard.since, shard.until) == (3, 60, 60, None, stream.checkpoint)


def test_split_stream_with_shared_files_is_complete(tmp_path: Path) -> None:
    stream = AuditedStream(tmp_path, shards=3)
    stream.split(0)
    stream.deliver(4)
    assert any(len(each["files"]) for each in stream.ledger())
    report = stream.audit(reads_rows=True)
    assert not report.findings and len(report.sinks[0].partitions) == 5


def test_shards_removed_after_an_empty_end_are_noted(tmp_path: Path) -> None:
    stream = AuditedStream(tmp_path, rounds=1)
    parent = stream.partition.partition_key
    stream.split(0)
    for _ in range(4):
        stream.deliver(each=0)
        stream.deliver()
        stream.clock.advance(8 * 3600)
        stream.sync()
    assert parent not in {each.partition_key for each in stream.look.view.partitions()}
    report = stream.audit(reads_rows=True)
    assert report.state is State.COMPLETE and not report.findings
    assert [note for note in report.sinks[0].notes if "1 finished partition is no longer in the store" in note]


def test_stream_that_nobody_read_is_complete(tmp_path: Path) -> None:
    stream = AuditedStream(tmp_path, rounds=0)
    assert stream.audit().state is State.UNEXPLAINED, "there is no dataset"
    stream.deliver(each=0)
    assert not [finding for finding in stream.audit().findings if finding.partition_key]


def test_batches_that_wait_are_not_missing(stream: AuditedStream) -> None:
    worker = stream.start()
    stream.send(20)
    stream.clock.advance(5)
    stream.round(worker)
    assert ShardProgress.from_mapping(stream.partition.progress).landed
    assert not stream.audit(reads_rows=True).findings


def test_compacted_dataset_is_complete_at_each_step(stream: AuditedStream) -> None:
    for day in range(1, 5):
        for file in stream.folder.rglob("*.parquet"):
            os.utime(file, (0, 0))
        now = datetime.now(UTC) + timedelta(days=day)
        maintain_dataset(str(stream.folder), Maintenance(retention=timedelta(hours=1)), now=now)
        assert not stream.audit(reads_rows=True).findings
    assert len(list(stream.folder.glob("compacted-*.parquet"))) == 1


# What was injected


def test_deleted_file_is_a_gap_with_its_range(stream: AuditedStream) -> None:
    described = stream.ledger()[1]
    stream.files()[1].unlink()
    [finding] = wrong(stream.audit())
    assert range_of(finding) == (State.GAP, *batch_range(described)) and "is gone" in finding.reason
    assert finding.partition_key == stream.partition.partition_key and "repair clicks" in finding.remedy


def test_deleted_last_file_is_a_gap(stream: AuditedStream) -> None:
    stream.files()[-1].unlink()
    [finding] = wrong(stream.audit())
    assert range_of(finding) == (State.GAP, *batch_range(stream.ledger()[-1]))


def test_deleted_compacted_file_is_a_gap_of_all_its_batches(stream: AuditedStream) -> None:
    test_compacted_dataset_is_complete_at_each_step(stream)
    for file in stream.folder.rglob("compacted-*.parquet"):
        file.unlink()
    [finding] = wrong(stream.audit())
    assert finding.state is State.GAP and finding.batches == 3 and "was compacted" in finding.reason
    assert finding.reason.endswith(", and the same of 2 batches after it")


def test_copied_file_is_unexplained(stream: AuditedStream) -> None:
    shutil.copy(stream.files()[0], stream.folder / "copy.parquet")
    [finding] = wrong(stream.audit())
    assert finding.state is State.UNEXPLAINED and "'copy.parquet', with 20 rows" in finding.reason


def test_copied_file_is_an_overlap_if_rows_are_read(stream: AuditedStream) -> None:
    shutil.copy(stream.files()[0], stream.folder / "copy.parquet")
    _, finding = wrong(stream.audit(reads_rows=True))
    assert range_of(finding) == (State.OVERLAP, *batch_range(stream.ledger()[0]))
    assert "40 rows instead of the 20" in finding.reason


def without_a_row(stream: AuditedStream, number: int) -> int:
    """Rewrite a file without its last row; return its new size."""
    file = stream.files()[number]
    rows = pq.read_table(file)
    pq.write_table(rows.slice(0, rows.num_rows - 1), file)
    return file.stat().st_size


def test_removed_row_shows_by_the_size_of_the_file(stream: AuditedStream) -> None:
    without_a_row(stream, 1)
    [finding] = wrong(stream.audit())
    assert range_of(finding) == (State.UNEXPLAINED, *batch_range(stream.ledger()[1]))
    assert "others changed it" in finding.reason


def test_removed_row_shows_by_count_whatever_the_size(stream: AuditedStream) -> None:
    size = without_a_row(stream, 1)
    name = stream.files()[1].name
    for file in (stream.folder / "_ledger").iterdir():
        batches = json.loads(file.read_text())
        for batch in batches:
            batch["files"] = {each: size if each == name else known for each, known in batch["files"].items()}
        file.write_text(json.dumps(batches))
    assert not wrong(stream.audit())
    [finding] = wrong(stream.audit(reads_rows=True))
    assert range_of(finding) == (State.GAP, *batch_range(stream.ledger()[1]))
    assert "19 rows instead of the 20" in finding.reason


def test_checkpoint_moved_forward_is_a_gap(stream: AuditedStream) -> None:
    before = stream.checkpoint
    stream.change_progress(checkpoint=str(int(before) + 1))
    [finding] = wrong(stream.audit())
    assert range_of(finding) == (State.GAP, before, stream.checkpoint) and "moved by hand" in finding.reason
    stream.deliver()
    [after] = wrong(stream.audit())
    assert range_of(after) == range_of(finding), "it is found later too"


def test_checkpoint_moved_back_is_an_overlap(stream: AuditedStream) -> None:
    before, back = stream.checkpoint, stream.ledger()[0]["batch"]["end"]
    stream.change_progress(checkpoint=back)
    [finding] = wrong(stream.audit())
    assert range_of(finding) == (State.OVERLAP, back, before) and f"--to {before}" in finding.remedy
    stream.deliver()
    [after] = wrong(stream.audit())
    assert range_of(after) == range_of(finding), "it is found later too"


def test_store_of_an_older_backup_is_behind_the_sink(tmp_path: Path) -> None:
    stream = AuditedStream(tmp_path)
    backup, position = stream.backup(), stream.checkpoint
    stream.deliver(2)
    latest = stream.checkpoint
    stream.restore(backup)
    [finding] = wrong(stream.audit())
    assert range_of(finding) == (State.UNEXPLAINED, position, latest) and f"--to {latest}" in finding.remedy
    assert "older backup" in finding.reason
    stream.deliver()
    doubled = wrong(stream.audit())
    assert {each.state for each in doubled} >= {State.OVERLAP} and doubled[0].after == position


def test_older_dataset_is_behind_the_store(stream: AuditedStream, tmp_path: Path) -> None:
    shutil.copytree(stream.folder, copied := tmp_path.parent / f"{tmp_path.name}-backup")
    position = stream.checkpoint
    stream.deliver(2)
    shutil.rmtree(stream.folder)
    shutil.copytree(copied, stream.folder)
    [finding] = wrong(stream.audit())
    assert range_of(finding) == (State.GAP, position, stream.checkpoint) and finding.batches == 2


def test_deleted_partition_is_unexplained(stream: AuditedStream) -> None:
    stream.store.delete(stream.partition)
    [finding] = wrong(stream.audit())
    assert finding.state is State.UNEXPLAINED and "no such partition" in finding.reason


def test_deleted_part_of_the_ledger_is_a_gap(stream: AuditedStream) -> None:
    second = stream.ledger()[1]
    for file in (stream.folder / "_ledger").iterdir():
        if second["batch"]["batch_id"] in file.read_text():
            file.unlink()
    unknown, gap = wrong(stream.audit())
    assert range_of(gap) == (State.GAP, *batch_range(second)) and gap.batches == 1
    assert "was not delivered by a job" in unknown.reason


# What the store explains


def test_reset_explains_what_is_there_twice(stream: AuditedStream) -> None:
    first, last = stream.ledger()[0]["batch"], stream.checkpoint
    stream.clock.advance(60)
    stream.reset(first["end"])
    [announced] = stream.audit().findings
    assert range_of(announced) == (State.OVERLAP, first["end"], last) and announced.is_explained
    stream.deliver(2)
    report = stream.audit(reads_rows=True)
    [finding] = report.findings
    assert range_of(finding) == range_of(announced) and report.state is State.COMPLETE
    assert "the reset at 20" in finding.reason


def test_reset_that_reads_a_lost_file_again_fills_the_gap(stream: AuditedStream) -> None:
    described = stream.ledger()[1]
    stream.files()[1].unlink()
    stream.clock.advance(60)
    stream.reset(described["batch"]["start"])
    stream.deliver(2)
    assert not wrong(stream.audit(reads_rows=True))


def test_data_that_the_source_lost_is_an_explained_gap(tmp_path: Path) -> None:
    stream = AuditedStream(tmp_path, on_data_loss="earliest")
    stream.send(5)
    stream.clock.advance(DAY + 60)
    stream.deliver()
    report = stream.audit()
    [finding] = report.findings
    assert finding.is_explained and "had lost a range" in finding.reason and report.state is State.COMPLETE


# Repair


def repair(stream: AuditedStream) -> list[PlannedRepair]:
    """Repair what an audit finds; return the plan."""
    target = Target(name="repair", requested_at=stream.clock.now())
    partitions = {each.partition_key: each for each in stream.look.view.partitions()}
    planned = plan_repairs(stream.audit(), partitions, target)
    resets = Resets(AcknowledgmentSets(stream.coordinator("person", stream.store), SourceBatches()))
    assert all(isinstance(result, Partition) for _, result in resets.apply(plan_of(planned, target)))
    return planned


def test_repair_reads_exactly_the_gap_and_goes_on(stream: AuditedStream) -> None:
    lost, before = stream.ledger()[1], stream.checkpoint
    stream.files()[1].unlink()
    stream.clock.advance(60)
    [planned] = repair(stream)
    assert planned.lacking == ["main"] and not planned.having
    assert planned.repair is not None and planned.repair.text.endswith(f"then continues after {before}")
    stream.deliver(3)
    report = stream.audit(reads_rows=True)
    assert not report.findings, "neither a gap nor a range that is there twice"
    read = [each for each in stream.ledger() if each["batch"]["ordinal"] > 2**20]
    assert read[0]["batch"]["start"] == lost["batch"]["start"] and read[0]["batch"]["end"] == lost["batch"]["end"]
    assert stream.delivered_rows() == sorted(stream.sent)


def test_repair_of_a_finished_shard_finishes_it_again(tmp_path: Path) -> None:
    stream = AuditedStream(tmp_path)
    stream.split(0)
    stream.deliver(4)
    parent = next(each for each in stream.look.view.partitions() if each.status is PartitionStatus.COMPLETED)
    children = ShardProgress.from_mapping(parent.progress).children
    stream.files()[1].unlink()
    stream.clock.advance(60)
    repair(stream)
    stream.deliver(4)
    after = stream.look.view.get(parent.partition_key)
    assert after is not None and after.status is PartitionStatus.COMPLETED
    progress = ShardProgress.from_mapping(after.progress)
    assert progress.children == children and progress.end is None and progress.resumes is None
    assert not stream.audit(reads_rows=True).findings and stream.delivered_rows() == sorted(stream.sent)


def test_second_range_of_a_partition_waits_for_the_first(stream: AuditedStream) -> None:
    stream.files()[0].unlink()
    stream.files()[2].unlink()
    stream.clock.advance(60)
    first, second = repair(stream)
    assert first.repair is not None and "repaired first" in second.problem
    assert all("is being repaired; wait" in each.problem for each in repair(stream))
    assert not [each for each in stream.audit().findings if each.state is State.OVERLAP]
    stream.deliver(3)
    stream.clock.advance(60)
    repair(stream)
    stream.deliver(3)
    assert not stream.audit(reads_rows=True).findings and stream.delivered_rows() == sorted(stream.sent)


@pytest.mark.parametrize("number", [0, 1], ids=["the first batch", "another batch"])
def test_repair_of_what_the_source_lost_reports_it(tmp_path: Path, number: int) -> None:
    stream = AuditedStream(tmp_path, on_data_loss="earliest")
    stream.files()[number].unlink()
    stream.clock.advance(DAY + 60)
    repair(stream)
    stream.deliver(3)
    report = stream.audit(reads_rows=True)
    assert report.state is State.COMPLETE and [each for each in report.findings if "had lost a range" in each.reason]


def test_reset_during_a_repair_ends_the_repair(stream: AuditedStream) -> None:
    stream.files()[1].unlink()
    stream.clock.advance(60)
    repair(stream)
    stream.clock.advance(60)
    stream.reset("earliest")
    progress = ShardProgress.from_mapping(stream.partition.progress)
    assert progress.end is None and progress.resumes is None
    stream.deliver(3)
    assert not wrong(stream.audit(reads_rows=True))


# Bad input


def test_clock_ahead_is_named_and_changes_nothing(stream: AuditedStream) -> None:
    stream.clock.advance(-600)
    report = stream.audit()
    assert not report.findings
    [note] = report.sinks[0].notes
    assert "s ahead of this clock" in note


def test_sink_that_is_gone_is_named_with_its_remedy(stream: AuditedStream) -> None:
    shutil.rmtree(stream.folder)
    findings = wrong(stream.audit())
    assert any("restore the dataset" in each.reason for each in findings)
    assert any(each.state is State.GAP and each.batches == 3 for each in findings)


def test_damaged_ledger_is_named(stream: AuditedStream) -> None:
    [file, *_] = (stream.folder / "_ledger").iterdir()
    file.write_text("[{")
    [finding] = wrong(stream.audit())
    assert "is damaged" in finding.reason and finding.remedy


def test_progress_that_cannot_be_read_is_named(stream: AuditedStream) -> None:
    stream.change_progress(checkpoint="nowhere")
    assert any("cannot be read" in each.reason for each in wrong(stream.audit()))
