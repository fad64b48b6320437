"""Jobs that nobody waits for on a worker, under a whole Airflow and with real Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import Job, Jobs, JobState
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.hooks.job_termination import settings_file_of
from airflow_provider_coordination.operators.packaging import job_processes
from tests.support.spark_job import Pipeline
from tests.support.standalone import Standalone
from tests.system.airflow.dags.followed_ingestion import POOL

FOLLOWED = "followed_ingestion"
SECONDS = 45
"""Well within a lease of 60 seconds."""


class Followed:
    """A run of the DAG, and the jobs that work for it."""

    def __init__(self, airflow: Standalone, pipeline: Pipeline, source: SourceCoordinator) -> None:
        self.airflow = airflow
        self.source = source
        self.jobs = Jobs(source.view)
        self.run_id = airflow.trigger(FOLLOWED, {"stream": pipeline.stream, "output_path": str(pipeline.output)})

    def state(self, task_id: str = "ingest") -> str | None:
        return self.airflow.task_state(FOLLOWED, self.run_id, task_id)

    def is_deferred(self) -> bool:
        state = self.state()
        assert state not in ("success", "failed", "upstream_failed"), self.airflow.task_instances(FOLLOWED, self.run_id)
        return state == "deferred"

    def running(self) -> list[Job]:
        return [job for job in self.jobs.unfinished() if job.state is JobState.RUNNING and job.stop is None]

    def wait_for_the_job(self) -> Job:
        """Wait until the task is deferred, and its job works on the stream's shard."""
        self.airflow.until("the task is deferred", self.is_deferred)
        self.airflow.until("the job has the shard", lambda: bool(self.running()) and self.is_held())
        [job] = self.running()
        return job

    def is_held(self) -> bool:
        return self.source.view.count_by_status()[PartitionStatus.ASSIGNED] == 1

    def wait_for_its_end(self, job: Job) -> None:
        """Wait until nothing is left of a job, and its leases are free."""
        assert job.log is not None
        settings_file = str(settings_file_of(job.log))
        self.airflow.until("its processes are gone", lambda: not job_processes(settings_file), SECONDS)
        self.airflow.until("its leases are free", lambda: not self.holds(job), SECONDS)

    def holds(self, job: Job) -> bool:
        return any(partition.owner == job.owner for partition in self.source.view.partitions(PartitionStatus.ASSIGNED))


def test_deferred_job_frees_its_slot_and_survives_the_triggerer(
    airflow: Standalone, pipeline: Pipeline, look: Callable[[str], SourceCoordinator]
) -> None:
    airflow.create_pool(POOL, 1)
    pipeline.send(20)

    # It runs while its task holds no slot, and while nobody watches it.
    followed = Followed(airflow, pipeline, look(pipeline.stream))
    job = followed.wait_for_the_job()
    airflow.until("another task had the only slot", lambda: followed.state("beside") == "success")
    assert airflow.link(FOLLOWED, followed.run_id, "ingest", "Spark UI").endswith("/spark-ui")
    with airflow.without("triggerer"):
        assert followed.is_deferred()
        pipeline.send(20)
        airflow.until("all is delivered", lambda: pipeline.delivered() == Counter(pipeline.sent))
    followed.jobs.request_stop(job.owner, "by hand")
    airflow.until("the task has ended", lambda: followed.state() == "success")
    summary: dict[str, Any] = airflow.xcom(FOLLOWED, followed.run_id, "ingest")
    assert (summary["owner"], summary["records_delivered"]) == (job.owner, len(pipeline.sent))
    assert summary["stopped_because"] == "it was stopped"
    followed.wait_for_its_end(job)
    assert pipeline.delivered() == Counter(pipeline.sent)

    # Cleared while it is deferred: its job ends, and another one takes over. Marked failed: that one ends as well.
    cleared = Followed(airflow, pipeline, look(pipeline.stream))
    first = cleared.wait_for_the_job()
    airflow.clear(FOLLOWED, cleared.run_id, "ingest")
    cleared.wait_for_its_end(first)
    second = cleared.wait_for_the_job()
    assert second.owner != first.owner
    airflow.mark(FOLLOWED, cleared.run_id, "ingest", "failed")
    cleared.wait_for_its_end(second)
    assert not cleared.is_held()
    assert cleared.state() == "failed"
