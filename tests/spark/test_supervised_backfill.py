"""A supervised backfill runs from its spec to its end, although a job dies."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.jobs import Job, JobRecord, Jobs
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.bounds import bounds_value
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant, DetailedState
from airflow_provider_coordination.supervisor.turn import JobRequest, Supervisor
from tests.support.fleet import Crash, MortalWorker
from tests.support.history import STREAM, History

START_TIMEOUT = timedelta(minutes=10)


class SupervisedBackfill:
    """A supervisor of a bounded read: its jobs are those of the history, and run to their end one after the other."""

    def __init__(self, history: History, bounds: Mapping[str, Mapping[str, str]]) -> None:
        self.history = history
        self.jobs = Jobs(history.look.view)
        self.submitted: list[tuple[JobRequest, MortalWorker]] = []
        self.dies_at: tuple[str, int] | None = None
        self.must_discover_partitions = False
        spec = {
            "version": 1,
            "source": STREAM,
            "reads": {"kinesis": {"streams": STREAM, "bounds": bounds}},
            "writes": [{"parquet": {"path": str(history.folder)}}],
            "supervise": {"terminate_when_done": True, "start_delay": 0},
        }
        self.store = SupervisionStore(history.look.view)
        self.store.submit(spec, by="ann")
        claimant = Claimant(owner="supervisor", dag_id="supervise_clicks", run_at=history.clock.now())
        self.supervisor = Supervisor(
            history.coordinator("supervisor", history.store),
            claimant,
            probe=self,
        )

    # What it asks the source

    def follow(self, spec: IngestionSpec) -> None:
        self.history.bounds = bounds_value(spec.ingestion.reads.bounds)

    def discover_partitions(self) -> None:
        self.history.sync()

    def count(self) -> int | None:
        return len(self.history.open_shards)

    def lag(self, partition: Partition) -> int | None:
        return None

    # How it starts jobs

    def new_owner(self) -> str:
        return f"worker-{self.history.started + 1}"

    def start(self, request: JobRequest) -> None:
        start_by = self.history.clock.now() + START_TIMEOUT
        assert self.jobs.submit(request.job.owner, task=request.task, digest="", start_by=start_by)
        self.submitted.append((request, self.history.start(until_caught_up=False)))

    def end(self, job: Job, spec: IngestionSpec | None, reason: str) -> None:
        self.history.look.give_up_owner(job.owner)

    # What happens

    def work(self) -> None:
        """Run every submitted job, one of which may die."""
        for request, worker in self.submitted:
            record = JobRecord(self.history.coordinator(worker.name, worker.store), lambda why: None)
            record.begin()
            worker.dies_at, self.dies_at = self.dies_at, None
            assert request.job.owner == worker.name
            try:
                with self.history.without_spark():
                    summary = worker.job.run()
            except Crash:
                continue
            record.end({"exit_code": 0, "error": None, "summary": summary.to_mapping()})
        self.submitted = []

    @property
    def state(self) -> DetailedState:
        stored = self.store.get()
        assert stored is not None
        return stored.supervision.health.state


@pytest.mark.parametrize("dies_at", [None, ("landed", 1), ("recorded", 1), ("delivering", 1), ("delivered", 1)])
def test_backfill_delivers_its_range_then_ends_jobs_and_supervisor(
    tmp_path: Path, dies_at: tuple[str, int] | None
) -> None:
    history = History(tmp_path, 1)
    history.send(10)
    history.split(0)
    history.send(20)
    parent = "shardId-000000000000"
    child = history.open_shards[0]["ShardId"]
    stored = history.engine.stored(STREAM)
    before, after = stored[parent][4:], stored[child][:3]
    backfill = SupervisedBackfill(
        history,
        {
            "start": {parent: before[0]["SequenceNumber"], child: after[0]["SequenceNumber"]},
            "end": {parent: before[-1]["SequenceNumber"], child: after[-1]["SequenceNumber"]},
        },
    )
    backfill.dies_at = dies_at
    for _ in range(200):
        backfill.supervisor.turn(backfill)
        backfill.work()
        history.clock.advance(10)
        if backfill.state is DetailedState.TERMINATED:
            break
    assert backfill.state is DetailedState.TERMINATED
    assert history.sink.events == [record["Data"].decode() for record in (*before, *after)]
    assert {partition.status for partition in history.partitions.values()} == {PartitionStatus.COMPLETED}
    assert backfill.jobs.unfinished() == []
