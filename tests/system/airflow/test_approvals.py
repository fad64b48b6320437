"""Resets and repairs wait in a whole Airflow for a person, who approves or rejects them through the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.audit.test_dataset_audit import AuditedStream
from tests.support.standalone import Standalone

DAG_ID, TASK = "approved_reset", "reset"
READ = {"rows": 7}
WAITING = ("awaiting_input", "deferred")
"""The state of a task that waits for a person, since Airflow 3.3 and before."""


@pytest.fixture
def source(look: Callable[[str], SourceCoordinator]) -> Iterator[SourceCoordinator]:
    source = look("approved")
    source.create_partitions({"a": READ, "b": READ})
    yield source
    for partition in list(source.view.partitions()):
        source.store.delete(partition)


def progress(source: SourceCoordinator) -> list[object]:
    return [dict(partition.progress) for partition in source.view.partitions()]


def asked(airflow: Standalone, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
    """Wait until a task waits for a person; return its question."""
    airflow.until("it waits", lambda: airflow.task_state(dag_id, run_id, task_id) in WAITING)
    question = airflow.question(dag_id, run_id, task_id)
    # Airflow 3.3 fails a task that continues before the scheduler has heard of its first part's end.
    airflow.until("the scheduler knows that it waits", lambda: has_heard(airflow, run_id))
    return question


def has_heard(airflow: Standalone, run_id: str) -> bool:
    lines = airflow.log.read_text(errors="replace").splitlines()
    return any("TaskInstance Finished" in line and run_id in line for line in lines)


@pytest.mark.parametrize(
    ("response", "state", "left"), [("Approve", "success", [{}, {}]), ("Reject", "skipped", [READ, READ])]
)
def test_reset_does_what_a_person_says(
    airflow: Standalone, source: SourceCoordinator, response: str, state: str, left: list[object]
) -> None:
    run_id = airflow.trigger(DAG_ID, {"source": "approved", "to": "earliest"})
    question = asked(airflow, DAG_ID, run_id, TASK)
    assert "Read source 'approved' again from earliest: 2 partitions, an unknown time" in question["subject"]
    assert progress(source) == [READ, READ]
    airflow.respond(DAG_ID, run_id, TASK, response)
    airflow.until("it goes on", lambda: airflow.task_state(DAG_ID, run_id, TASK) == state)
    assert progress(source) == left


def test_approved_repair_lets_jobs_read_exactly_the_gap(
    airflow: Standalone, look: Callable[[str], SourceCoordinator], tmp_path: Path
) -> None:
    source, stream = look("audited"), AuditedStream(tmp_path / "lake")
    [read] = stream.look.view.partitions()
    source.store.create([replace(read, source_identifier=source.view.source_identifier)])
    for record in (stream.folder / "_ledger").iterdir():
        record.write_text(record.read_text().replace("clicks|PARTITION", source.view.source_identifier))
    lost = stream.ledger()[1]["batch"]
    stream.files()[1].unlink()
    run_id = airflow.trigger("audited", {"output_path": str(stream.folder)})
    question = asked(airflow, "audited", run_id, "audit")
    assert question["subject"] == "Repair source 'audited': read 1 range again that sinks lack"
    airflow.respond("audited", run_id, "audit", "Approve")
    assert airflow.wait_for_run("audited", run_id) == "success"
    assert airflow.xcom("audited", run_id, "audit")["repaired"] == 1
    [partition] = source.view.partitions()
    progress = ShardProgress.from_mapping(partition.progress)
    assert (progress.checkpoint, progress.end) == (lost["start"], lost["end"])
