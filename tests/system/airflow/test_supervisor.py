"""A spec of Druid runs a stream under a whole Airflow, through everything that happens to it in years.

At each step the status has to be right within ten seconds, and at the end the dataset has to be exact.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.hooks.following import settings_file_of
from airflow_provider_coordination.operators.shipping import job_processes
from airflow_provider_coordination.supervisor.druid import from_druid
from airflow_provider_coordination.supervisor.operations import SupervisorVerbs
from airflow_provider_coordination.supervisor.status import read_status
from airflow_provider_coordination.supervisor.store import SupervisionStore
from tests.support.spark_job import Pipeline
from tests.support.standalone import Standalone

DAG_ID = "supervise_clicks"
RIGHT_WITHIN_SECONDS = 10
SCALING = {
    "enableTaskAutoScaler": True,
    "taskCountMin": 1,
    "taskCountMax": 2,
    "lagCollectionIntervalMillis": 2000,
    "lagCollectionRangeMillis": 30000,
    "scaleActionStartDelayMillis": 0,
    "scaleActionPeriodMillis": 1000,
    "scaleOutThreshold": 8000,
    "scaleInThreshold": 2000,
    "triggerScaleOutFractionThreshold": 0.5,
    "triggerScaleInFractionThreshold": 0.9,
    "scaleOutStep": 1,
    "scaleInStep": 1,
    "minTriggerScaleActionFrequencyMillis": 5000,
}


def druid_spec(stream: str, *dimensions: str, **io: Any) -> dict[str, Any]:
    """Return a supervisor spec as Druid has them."""
    return {
        "type": "kinesis",
        "spec": {
            "dataSchema": {
                "dataSource": "clicks",
                "timestampSpec": {"column": "at", "format": "iso"},
                "dimensionsSpec": {"dimensions": list(dimensions)},
                "granularitySpec": {"type": "uniform", "segmentGranularity": "HOUR", "queryGranularity": "NONE"},
            },
            "ioConfig": {
                "stream": stream,
                "inputFormat": {"type": "json"},
                "useEarliestSequenceNumber": True,
                "taskCount": 1,
                "taskDuration": "PT20M",
                "startDelay": "PT0S",
                "period": "PT2S",
                "completionTimeout": "PT5M",
                **io,
            },
            "tuningConfig": {"type": "kinesis"},
        },
    }


class Supervised:
    """The stream, its dataset, and the supervisor as a person sees it."""

    def __init__(self, airflow: Standalone, pipeline: Pipeline, source: SourceCoordinator, specs: Path) -> None:
        self.airflow = airflow
        self.pipeline = pipeline
        self.source = source
        self.lake = pipeline.folder / "lake"
        self.file = specs / "clicks.yaml"
        self.expected: Counter[str] = Counter()
        self.verbs = SupervisorVerbs(source, by="a person", reason="a test")

    def write_spec(self, druid: Mapping[str, Any]) -> None:
        """Write the file anew, from a spec of Druid and how its jobs run here."""
        tuning = {
            "spark": {"driver_memory": "512m", "conf": {"spark.ui.enabled": "false"}},
            "rounds": {"round_duration": 1, "idle_duration": 0.5},
        }
        spec = {**from_druid(druid, lake=str(self.lake)).spec, "tuning": tuning}
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(yaml.safe_dump(spec))

    def send(self, records: int, **more: Any) -> None:
        for _ in range(records):
            event = {"id": uuid.uuid4().hex, "at": datetime.now(UTC).isoformat(), **more}
            self.pipeline.client.put_record(
                StreamName=self.pipeline.stream, PartitionKey=event["id"], Data=json.dumps(event).encode()
            )
            self.expected[event["id"]] += 1

    def status(self) -> dict[str, Any]:
        return read_status(self.source.view) or {}

    def is_right(self, what: str, holds: Callable[[dict[str, Any]], bool]) -> None:
        """Check that the status says something within the time that it may take."""
        self.airflow.until(f"{what}: {self.status()}", lambda: holds(self.status()), RIGHT_WITHIN_SECONDS)

    def comes(self, what: str, holds: Callable[[dict[str, Any]], bool]) -> None:
        """Wait for what takes a job, or its start."""
        self.airflow.until(what, lambda: holds(self.status()), 240)

    def rows(self) -> list[dict[str, Any]]:
        folder = self.lake / "clicks"
        if not any(folder.glob("*.parquet")):
            return []
        files = sorted(map(str, folder.glob("*.parquet")))
        return [row for file in files for row in ds.dataset(file).to_table().to_pylist()]

    def delivered(self) -> None:
        """Wait until the dataset holds what was sent, each record as often as it should."""
        self.airflow.until("all is delivered", lambda: Counter(r["id"] for r in self.rows()) == self.expected, 240)

    def kill_a_driver(self) -> None:
        jobs = Jobs(self.source.view)
        [owner, *_] = [job["owner"] for job in self.status()["jobs"] if job["state"] == "RUNNING"]
        job = jobs.get(owner)
        assert job is not None and job.log is not None
        for process in job_processes(str(settings_file_of(job.log))):
            if "spark" in process.name() or "java" in process.name():
                process.kill()


def running(count: int, version: int) -> Callable[[dict[str, Any]], bool]:
    """Return what tells whether so many jobs run, all by this version of the spec, and no other."""

    def holds(status: dict[str, Any]) -> bool:
        return [(job["state"], job["spec_version"]) for job in status["jobs"]] == [("RUNNING", version)] * count

    return holds


@pytest.mark.timeout(1500)  # eight Spark jobs come and go, one after the other
def test_a_spec_of_druid_runs_a_stream_through_everything_that_happens_to_it(
    airflow: Standalone,
    pipeline: Pipeline,
    look: Callable[[str], SourceCoordinator],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    aws = {"region_name": "us-east-1", "endpoint_url": pipeline.kinesis.endpoint_url}
    here = {"conn_type": "aws", "login": "test", "password": "test", "extra": aws}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(here))  # of the person who resets
    supervised = Supervised(airflow, pipeline, look("clicks"), folder / "dags" / "specs")
    supervised.write_spec(druid_spec(pipeline.stream, "id"))

    # Submitted and begun.
    airflow.unpause(DAG_ID)
    supervised.comes("it is submitted", lambda status: status.get("spec_version") == 1)
    supervised.is_right("it runs", lambda status: status["state"] == "RUNNING")
    supervised.comes("a job runs", running(1, 1))
    supervised.send(20)
    supervised.delivered()

    # Resharded.
    pipeline.split_a_shard()
    supervised.send(20)
    supervised.delivered()
    supervised.comes("the children are read", lambda status: status["partitions"]["open"] == 2)

    # The schema is updated: an edit of the file.
    supervised.write_spec(druid_spec(pipeline.stream, "id", "page", autoScalerConfig=SCALING))
    supervised.is_right("version 2 rules", lambda status: status["spec_version"] == 2)
    supervised.comes("the job has handed over", running(1, 2))
    supervised.send(20, page="/")
    supervised.delivered()
    assert Counter(row.get("page") for row in supervised.rows()) == {None: 40, "/": 20}

    # Suspended and resumed; what has come since makes it scale up, and then down again.
    supervised.verbs.suspend()
    supervised.is_right("it is suspended", lambda status: status["state"] == "SUSPENDED")
    supervised.comes("no job is left", lambda status: status["jobs"] == [])
    supervised.send(20)
    supervised.verbs.resume()
    supervised.is_right("it runs again", lambda status: status["state"] == "RUNNING")
    supervised.comes("it has scaled up", lambda status: status["task_count"]["wanted"] == 2)
    supervised.delivered()
    supervised.comes("it has scaled down", lambda status: status["task_count"]["wanted"] == 1)
    supervised.comes("one job is left", running(1, 2))

    # Every part of Airflow dies, and a driver; jobs go on without Airflow.
    with airflow.without("scheduler"):
        supervised.send(20)
        supervised.delivered()
        supervised.is_right("it runs", lambda status: status["state"] == "RUNNING")
    with airflow.without("triggerer"):
        supervised.send(20)
        supervised.delivered()
    supervised.comes("it is supervised", lambda status: status["is_supervised"])
    supervised.kill_a_driver()
    supervised.is_right("its failure is known", lambda status: bool(status["errors"]) or not running(1, 2)(status))
    supervised.send(20)
    supervised.delivered()

    # Reset to an instant: what has come since is read again.
    since = datetime.now(UTC)
    before = Counter(supervised.expected)
    supervised.send(20)
    supervised.delivered()
    supervised.verbs.reset(since)
    supervised.expected += supervised.expected - before
    supervised.delivered()

    # Terminated.
    supervised.verbs.terminate()
    supervised.is_right("it is stopping", lambda status: status["state"] in ("STOPPING", "TERMINATED"))
    supervised.comes("it is terminated", lambda status: status["state"] == "TERMINATED" and not status["jobs"])
    supervised.delivered()
    airflow.pause(DAG_ID)


def test_a_run_ends_after_its_time_and_the_next_one_goes_on_with_the_job(
    airflow: Standalone, pipeline: Pipeline, look: Callable[[str], SourceCoordinator], folder: Path
) -> None:
    source = look("visits")
    spec = {
        "version": 1,
        "source": "visits",
        "reads": {"kinesis": {"streams": pipeline.stream}},
        "writes": [{"parquet": {"path": str(pipeline.output)}}],
        "tuning": {"rounds": {"round_duration": 1, "idle_duration": 0.5}},
        "supervise": {"task_duration": "PT30S", "start_delay": 0, "period": 2, "completion_timeout": "PT10M"},
    }
    file = folder / "dags" / "specs" / "visits.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(spec))

    airflow.unpause("supervise_visits")

    def supervised_by() -> str:
        stored = SupervisionStore(source.view).get()
        return "" if stored is None or stored.claimant is None else stored.claimant.owner

    airflow.until("it is supervised", lambda: bool(supervised_by()))
    first = supervised_by()
    airflow.until("the next run supervises", lambda: supervised_by() != first)
    [earliest, *_] = airflow.runs("supervise_visits")
    assert earliest["state"] == "success"
    [job, *_] = (read_status(source.view) or {})["jobs"]
    assert job["owner"].split(":")[2:5] == first.split(":")[2:5]  # the first run submitted it
    SupervisorVerbs(source).suspend()  # its jobs end
    airflow.pause("supervise_visits")
