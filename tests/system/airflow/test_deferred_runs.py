"""Deferred tasks with real Spark jobs survive the death of the triggerer.

One follows a job, one waits for acknowledgments, and one for partitions that reopen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState, item_of
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.history import HoldingEnd, holdings
from airflow_provider_coordination.coordination.jobs import Job, Jobs, JobState
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.hooks.job_resources import job_processes, settings_file_of
from airflow_provider_coordination.sources.kinds import SourceBatches
from demo.airflow_home import task_log
from demo.local_kinesis import LocalKinesis
from tests.support.spark_job import Pipeline
from tests.support.standalone import Standalone
from tests.system.airflow.dags.followed_ingestion import POOL

FOLLOWED, CONFIRMED = "followed_ingestion", "confirmed_ingestion"
SLEEPING, WOKEN = "reopening_source", "reopening_source_on_work"
HOUR = timedelta(hours=1)

Look = Callable[[str], SourceCoordinator]


class Deferred:
    """A run of a DAG, one task of which is deferred."""

    dag_id: str
    task_id: str

    def __init__(self, airflow: Standalone, source: SourceCoordinator, conf: dict[str, Any]) -> None:
        self.airflow = airflow
        self.source = source
        self.run_id = airflow.trigger(self.dag_id, conf)

    def state(self, task_id: str | None = None) -> str | None:
        return self.airflow.task_state(self.dag_id, self.run_id, task_id or self.task_id)

    def is_deferred(self) -> bool:
        state = self.state()
        ended = ("success", "failed", "upstream_failed")
        assert state not in ended, self.airflow.logs()
        return state == "deferred"

    def wait_until_deferred(self) -> None:
        self.airflow.until(f"'{self.task_id}' of {self.dag_id} is deferred", self.is_deferred)


class Followed(Deferred):
    """A run that follows a job, and the jobs that work for it."""

    dag_id, task_id = FOLLOWED, "ingest"

    def __init__(self, airflow: Standalone, pipeline: Pipeline, look: Look) -> None:
        conf = {"stream": pipeline.stream, "output_path": str(pipeline.output)}
        super().__init__(airflow, look(pipeline.stream), conf)
        self.jobs = Jobs(self.source.view)

    def running(self) -> list[Job]:
        return [job for job in self.jobs.unfinished() if job.state is JobState.RUNNING and job.stop is None]

    def wait_for_the_job(self) -> Job:
        """Wait until the task is deferred, and its job works on the stream's shard."""
        self.wait_until_deferred()
        self.airflow.until("the job has the shard", lambda: bool(self.running()) and self.is_held())
        [job] = self.running()
        return job

    def is_held(self) -> bool:
        return self.source.view.count_by_status()[PartitionStatus.ASSIGNED] == 1

    def wait_for_its_end(self, job: Job) -> None:
        """Wait until nothing is left of a job. Its lease is given back: it does not run out."""
        assert job.log is not None
        settings_file = str(settings_file_of(job.log))
        self.airflow.until("its processes are gone", lambda: not job_processes(settings_file))
        self.airflow.until("its lease is given back", lambda: not self.holds(job))

    def holds(self, job: Job) -> bool:
        view, now = self.source.view, self.source.clock.now()
        of_shards = holdings(view.history.since(now - HOUR), view.partitions(), now=now)
        ends = {each.end for of_shard in of_shards.values() for each in of_shard if each.owner == job.owner}
        assert HoldingEnd.EXPIRED not in ends, of_shards
        return HoldingEnd.HELD in ends


class Confirmed(Deferred):
    """A run that delivers a stream, and waits for a confirmation."""

    dag_id, task_id = CONFIRMED, "wait"

    def __init__(self, airflow: Standalone, pipeline: Pipeline, look: Look, *, confirm: bool) -> None:
        conf = {"stream": pipeline.stream, "output_path": str(pipeline.output), "timeout_seconds": 3600}
        super().__init__(airflow, look(pipeline.stream), conf | {"confirm": confirm})
        self.sets = AcknowledgmentSets(self.source, SourceBatches())

    def let_expire(self) -> None:
        """Let the time of the only set that waits be up."""
        [waiting] = self.sets.view.pending()
        overdue = replace(waiting, expires_at=self.source.clock.now())
        self.source.store.transact(update=[item_of(overdue, self.sets.view.source_identifier)])

    def assert_expired(self) -> None:
        """Wait for the end of the task: its set has ended, and the batch is to be delivered again."""
        self.airflow.until("the wait ends", lambda: self.state() == "failed")
        [expired] = self.sets.view.ended_since(self.source.clock.now() - HOUR)
        assert expired.state is AcknowledgmentState.EXPIRED
        assert expired.ended_at is not None and expired.ended_at >= expired.expires_at
        [available] = self.source.view.partitions()
        assert (available.status, available.attempts) == (PartitionStatus.UNASSIGNED, 1)
        [wait] = [t for t in self.airflow.task_instances(CONFIRMED, self.run_id) if t["task_id"] == "wait"]
        assert "EXPIRED" in task_log(self.airflow.home, wait, 200)

    def assert_confirmed(self) -> None:
        """Wait for the end of the run: what was landed before is acknowledged."""
        assert self.airflow.wait_for_run(CONFIRMED, self.run_id) == "success"
        assert self.airflow.xcom(CONFIRMED, self.run_id, "ingest")["records_landed"] == 0, "it was landed before"
        assert not list(self.sets.view.pending())
        [done] = self.source.view.partitions()
        assert (done.status, done.attempts, done.progress["landed"]) == (PartitionStatus.UNASSIGNED, 0, [])


class Sleeping(Deferred):
    """A run that closes partitions for an hour after it scanned them, and waits until they reopen."""

    dag_id, task_id = SLEEPING, "wake"

    def __init__(self, airflow: Standalone, look: Look) -> None:
        super().__init__(airflow, look(SLEEPING), {"closed_seconds": 3600})

    def let_reopen(self) -> None:
        """Let the hour be over."""
        now = datetime.now(UTC)
        closed = list(self.source.view.partitions(PartitionStatus.CLOSED))
        self.source.store.transact(update=[partition.resting(now) for partition in closed])

    def assert_woken(self) -> None:
        """Wait for the end of the run: each partition was scanned again."""
        assert self.airflow.wait_for_run(SLEEPING, self.run_id) == "success"
        assert self.airflow.xcom(SLEEPING, self.run_id, "wake")["reopened"] == 3
        assert {partition.progress["scans"] for partition in self.source.view.partitions()} == {2}
        assert self.source.view.count_by_status()[PartitionStatus.COMPLETED] == 3


@pytest.fixture
def make(
    kinesis: LocalKinesis, kinesis_stream: Callable[[int], str], airflow: Standalone, tmp_path: Path
) -> Callable[[str], Pipeline]:
    """Makes a pipeline over a new stream of one shard, with records in it, in the store of the shared Airflow."""

    def made(name: str) -> Pipeline:
        pipeline = Pipeline(kinesis, kinesis_stream(1), tmp_path / name, airflow.store_url)
        pipeline.send(20)
        return pipeline

    return made


@pytest.mark.timeout(900)  # Spark jobs come and go, one after the other
def test_deferred_runs_outlive_the_triggerer(
    airflow: Standalone, make: Callable[[str], Pipeline], look: Look, request: pytest.FixtureRequest
) -> None:
    airflow.create_pool(POOL, 1)
    jobs, sets = make("followed"), make("confirmed")

    # While nobody watches, a job delivers, a set expires, and closed partitions are due.
    followed = Followed(airflow, jobs, look)
    unconfirmed = Confirmed(airflow, sets, look, confirm=False)
    sleeping = Sleeping(airflow, look)
    job = followed.wait_for_the_job()
    airflow.until("another task had the only slot", lambda: followed.state("beside") == "success")
    assert airflow.link(FOLLOWED, followed.run_id, "ingest", "Spark UI").endswith("/spark-ui")
    unconfirmed.wait_until_deferred()
    sleeping.wait_until_deferred()
    with airflow.without("triggerer"):
        unconfirmed.let_expire()
        sleeping.let_reopen()
        jobs.send(20)
        airflow.until("all is delivered", lambda: jobs.delivered() == Counter(jobs.sent))
        assert all(run.is_deferred() for run in (followed, unconfirmed, sleeping))
    followed.jobs.request_stop(job.owner, "by hand")
    unconfirmed.assert_expired()
    confirmed = Confirmed(airflow, sets, look, confirm=True)
    airflow.until("the task has ended", lambda: followed.state() == "success")
    summary: dict[str, Any] = airflow.xcom(FOLLOWED, followed.run_id, "ingest")
    assert (summary["owner"], summary["records_delivered"]) == (job.owner, len(jobs.sent))
    assert summary["stopped_because"] == "it was stopped"
    followed.wait_for_its_end(job)
    assert jobs.delivered() == Counter(jobs.sent)

    # Cleared while it is deferred: its job ends, and another one takes over. Marked failed: that one ends as well.
    cleared = Followed(airflow, jobs, look)
    sleeping.assert_woken()
    sleeping.source.create_partitions({"shed": {"scans": 0}})
    airflow.watch_for(WOKEN)
    first = cleared.wait_for_the_job()
    airflow.clear(FOLLOWED, cleared.run_id, "ingest")
    cleared.wait_for_its_end(first)
    confirmed.assert_confirmed()
    assert sets.delivered() == Counter(sets.sent)
    request.getfixturevalue("parcels")  # its job starts at the same time, for the tests of its supervisor
    second = cleared.wait_for_the_job()
    assert second.owner != first.owner
    airflow.mark(FOLLOWED, cleared.run_id, "ingest", "failed")
    cleared.wait_for_its_end(second)
    assert not cleared.is_held()
    assert cleared.state() == "failed"

    # Another DAG is started by new work.
    def is_scanned() -> bool:
        shed = sleeping.source.view.get("shed")
        return shed is not None and shed.progress["scans"] == 1

    airflow.until("it is scanned", is_scanned)
