"""The operator audits a source, returns a summary, and fails for what is not explained."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowException, AirflowFailException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionUpdateError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.store import all_partitions
from airflow_provider_coordination.operators.approval import Approval
from airflow_provider_coordination.operators.audit import AuditOperator
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.spark.writes import ForeachBatch, ParquetDataset
from tests.audit.test_dataset_audit import AuditedStream
from tests.support.approvals import Comms, answer, waits


@pytest.fixture
def stream(tmp_path: Path, coordination: SourceCoordinator) -> AuditedStream:
    made = AuditedStream(tmp_path / "lake")
    coordination.store.create(list(all_partitions(made.store, "clicks|PARTITION")))
    return made


def audit(stream: AuditedStream, context: Any, **given: Any) -> dict[str, Any]:
    known = {"source": "clicks", "writes": ParquetDataset(str(stream.folder)), **given}
    return AuditOperator(task_id="audit", **known).execute(context)


def test_sound_source_returns_its_counts(stream: AuditedStream, context: Any) -> None:
    summary = audit(stream, context, reads_rows="true")
    assert json.loads(json.dumps(summary)) == summary
    assert summary == {
        "source": "clicks", "state": "complete", "partitions": 1, "complete": 1, "findings": 0, "first_findings": [],
        "repaired": 0, "first_repaired": [],
    }  # fmt: skip


def test_task_fails_for_a_gap_and_names_it(stream: AuditedStream, context: Any) -> None:
    stream.files()[1].unlink()
    with pytest.raises(AirflowFailException, match=r"1 findings, the most severe is gap; .* is gone; .*repair clicks"):
        audit(stream, context)


def test_task_that_does_not_fail_returns_the_findings(stream: AuditedStream, context: Any) -> None:
    stream.files()[1].unlink()
    summary = audit(stream, context, fails="no")
    assert (summary["state"], summary["findings"], summary["complete"]) == ("gap", 1, 0)
    assert json.loads(json.dumps(summary)) == summary and summary["first_findings"][0]["batches"] == 1


def test_dead_letters_are_audited_too(stream: AuditedStream, context: Any, tmp_path: Path) -> None:
    summary = audit(stream, context, dead_letter_path=str(tmp_path / "dead"), fails=False)
    assert summary["partitions"] == 2 and "there is no file in" in summary["first_findings"][0]["reason"]


def test_sink_without_a_record_is_explained(stream: AuditedStream, context: Any) -> None:
    summary = audit(stream, context, writes=ForeachBatch("job:write", staging_path="/data/staging"))
    assert (summary["state"], summary["partitions"]) == ("complete", 0)


# Repairs


def repairing(stream: AuditedStream, **given: Any) -> AuditOperator:
    known = {"source": "clicks", "writes": ParquetDataset(str(stream.folder)), "repairs": Approval(), **given}
    return AuditOperator(task_id="audit", **known)


def stored(coordination: SourceCoordinator) -> list[Partition]:
    return list(coordination.view.partitions())


def test_sound_source_asks_nobody(stream: AuditedStream, in_try: Any, comms: Comms) -> None:
    assert repairing(stream).execute(in_try)["repaired"] == 0
    assert comms.messages == []


def test_gap_is_proposed_with_its_range_and_effect(
    stream: AuditedStream, coordination: SourceCoordinator, in_try: Any, comms: Comms
) -> None:
    lost, before = stream.ledger()[1]["batch"], stored(coordination)
    stream.files()[1].unlink()
    waits(repairing(stream, repairs=Approval(above=timedelta(days=999))), in_try)
    [question] = comms.messages
    assert question.subject == "Repair source 'clicks': read 1 range again that sinks lack"
    key = stream.partition.partition_key
    assert f"| `{key}` | `{lost['start']}` | `{lost['end']}` | `main` | none | batch" in question.body
    assert "is gone | reads the range again, and then continues after" in question.body
    assert "does not repair" not in question.body
    assert stored(coordination) == before


def test_sink_that_gets_a_range_twice_is_shown(
    stream: AuditedStream, in_try: Any, comms: Comms, tmp_path: Path
) -> None:
    shutil.copytree(stream.folder, tmp_path / "copy")
    stream.files()[1].unlink()
    other = ForeachBatch("job:write", staging_path="/data/staging", name="own")
    writes = [ParquetDataset(str(stream.folder)), ParquetDataset(str(tmp_path / "copy"), name="copy"), other]
    waits(repairing(stream, writes=writes), in_try)
    [question] = comms.messages
    assert "| `main` | `copy` |" in question.body
    assert "It is not known what these sinks have, and they get it too: `own`." in question.body


def test_approved_repair_fills_the_gap(
    stream: AuditedStream,
    coordination: SourceCoordinator,
    in_try: Any,
    comms: Comms,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lost = stream.ledger()[1]["batch"]
    stream.files()[1].unlink()
    task = repairing(stream)
    summary = task.execute_complete(in_try, answer("Approve"), **waits(task, in_try))
    assert json.loads(json.dumps(summary)) == summary
    assert (summary["state"], summary["repaired"]) == ("gap", 1)
    [repaired] = summary["first_repaired"]
    assert (repaired["after"], repaired["until"]) == (lost["start"], lost["end"])
    assert (repaired["lacking"], repaired["twice"]) == (["main"], [])
    assert "approved by ann" in caplog.text
    [partition] = stored(coordination)
    stream.store.transact(update=[stream.partition.with_progress(partition.progress)])
    stream.deliver(3)
    assert not stream.audit(reads_rows=True).findings
    assert stream.delivered_rows() == sorted(stream.sent)


def test_rejected_repair_changes_nothing_and_the_gap_counts(
    stream: AuditedStream, coordination: SourceCoordinator, in_try: Any, comms: Comms
) -> None:
    stream.files()[1].unlink()
    before = stored(coordination)
    task = repairing(stream)
    with pytest.raises(AirflowFailException, match="1 findings, the most severe is gap"):
        task.execute_complete(in_try, answer("Reject"), **waits(task, in_try))
    lenient = repairing(stream, fails=False)
    summary = lenient.execute_complete(in_try, answer("Reject"), **waits(lenient, in_try))
    assert (summary["state"], summary["repaired"]) == ("gap", 0)
    assert stored(coordination) == before


def test_unanswered_repair_fails_and_changes_nothing(
    stream: AuditedStream, coordination: SourceCoordinator, in_try: Any, comms: Comms
) -> None:
    stream.files()[1].unlink()
    before = stored(coordination)
    task = repairing(stream, fails=False, repairs=Approval(timeout=timedelta(hours=1)))
    with pytest.raises(AirflowFailException, match="no response arrived in time"):
        task.execute_complete(in_try, {"error": "timeout", "error_type": "timeout"}, **waits(task, in_try))
    assert stored(coordination) == before


def test_other_gap_than_the_approved_is_not_repaired(
    stream: AuditedStream, coordination: SourceCoordinator, in_try: Any, comms: Comms
) -> None:
    stream.files()[1].unlink()
    before = stored(coordination)
    task = repairing(stream)
    kwargs = waits(task, in_try)
    stream.files()[0].unlink()
    with pytest.raises(AirflowException, match="not what ann approved: other partitions or ranges") as error:
        task.execute_complete(in_try, answer("Approve"), **kwargs)
    assert not isinstance(error.value, AirflowFailException), "a retry asks again"
    assert stored(coordination) == before


def test_repair_stays_approved_while_jobs_deliver(
    stream: AuditedStream, coordination: SourceCoordinator, in_try: Any, comms: Comms
) -> None:
    lost = stream.ledger()[1]["batch"]
    stream.files()[1].unlink()
    task = repairing(stream)
    kwargs = waits(task, in_try)
    stream.deliver(2)
    [partition] = stored(coordination)
    coordination.store.transact(update=[partition.with_progress(stream.partition.progress)])
    assert task.execute_complete(in_try, answer("Approve"), **kwargs)["repaired"] == 1
    progress = ShardProgress.from_mapping(stored(coordination)[0].progress)
    assert (progress.checkpoint, progress.end) == (lost["start"], lost["end"])
    assert progress.resumes is not None and progress.resumes.position == stream.checkpoint


def test_gap_that_was_filled_in_between_needs_nothing(
    stream: AuditedStream, coordination: SourceCoordinator, in_try: Any, comms: Comms
) -> None:
    file = stream.files()[1]
    content = file.read_bytes()
    file.unlink()
    before = stored(coordination)
    task = repairing(stream)
    kwargs = waits(task, in_try)
    file.write_bytes(content)
    summary = task.execute_complete(in_try, answer("Approve"), **kwargs)
    assert (summary["state"], summary["repaired"]) == ("complete", 0)
    assert stored(coordination) == before


def test_other_findings_are_shown_and_fail_after_the_repair(
    stream: AuditedStream, coordination: SourceCoordinator, in_try: Any, comms: Comms
) -> None:
    shutil.copy(stream.files()[0], stream.folder / "copy.parquet")
    stream.files()[1].unlink()
    task = repairing(stream)
    kwargs = waits(task, in_try)
    assert "does not repair:\n\n- main: unexplained: file 'copy.parquet'" in comms.messages[0].body
    with pytest.raises(AirflowFailException, match=r"1 findings, the most severe is unexplained; .*copy\.parquet"):
        task.execute_complete(in_try, answer("Approve"), **kwargs)
    [partition] = stored(coordination)
    assert ShardProgress.from_mapping(partition.progress).is_repairing


def test_gap_under_repair_asks_nobody_and_says_why(stream: AuditedStream, in_try: Any, comms: Comms) -> None:
    stream.files()[1].unlink()
    task = repairing(stream)
    task.execute_complete(in_try, answer("Approve"), **waits(task, in_try))
    with pytest.raises(AirflowFailException, match=r"cannot be repaired now: .* is being repaired; wait"):
        task.execute(in_try)
    assert len(comms.messages) == 1


def test_partition_that_cannot_be_written_is_retried(
    stream: AuditedStream, in_try: Any, comms: Comms, tmp_path: Path
) -> None:
    stream.files()[1].unlink()
    task = repairing(stream)
    kwargs = waits(task, in_try)
    with closing(sqlite3.connect(tmp_path / "coordination.db")) as database:
        database.execute("CREATE TRIGGER busy BEFORE UPDATE ON coordination_partition BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(PartitionUpdateError, match="1 of 1 ranges could not be repaired"):
        task.execute_complete(in_try, answer("Approve"), **kwargs)
