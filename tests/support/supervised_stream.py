"""A supervised stream under a whole Airflow: sent records, status and dataset."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import yaml

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import Jobs, JobState
from airflow_provider_coordination.coordination.json_values import json_of
from airflow_provider_coordination.hooks.job_resources import job_processes, settings_file_of
from airflow_provider_coordination.supervisor.operations import SupervisorVerbs
from airflow_provider_coordination.supervisor.status import read_status
from tests.support.processes import kill_all
from tests.support.spark_job import Pipeline
from tests.support.standalone import Standalone
from tests.support.waiting import PATIENCE_SECONDS

LOOK_SECONDS = 0.1

Status = dict[str, Any]
Holds = Callable[[Status], bool]


@dataclass(frozen=True, kw_only=True)
class Event:
    """A record that was sent.

    :param id: its own.
    :param shard: the shard that it went to.
    :param sequence_number: its place there.
    """

    id: str
    shard: str
    sequence_number: int


class SupervisedStream:
    """A stream, the dataset that it is ingested into, and its supervisor.

    :param airflow: runs the DAG that supervises.
    :param pipeline: has the stream.
    :param source: a coordinator of the source, to look at it.
    :param dag_id: of the DAG that supervises.
    :param file: the spec file that it names.
    """

    def __init__(
        self, airflow: Standalone, pipeline: Pipeline, source: SourceCoordinator, dag_id: str, file: Path
    ) -> None:
        self.airflow = airflow
        self.pipeline = pipeline
        self.source = source
        self.lake = pipeline.folder / "lake"
        self.dag_id = dag_id
        self.file = file
        self.sent: list[Event] = []
        self.expected: Counter[str] = Counter()
        self.verbs = SupervisorVerbs(source, by="a person", reason="a test")
        self.jobs = Jobs(source.view)
        self.figures: list[tuple[str, float]] = []

    # The spec, and the stream

    def write(self, spec: Mapping[str, Any]) -> None:
        """Write the spec file again, whole at once."""
        self.file.parent.mkdir(exist_ok=True)
        new = self.file.with_suffix(".new")
        new.write_text(yaml.safe_dump(dict(spec)))
        new.replace(self.file)

    def send(self, records: int, **more: Any) -> list[Event]:
        """Send records, each of which the dataset has to have once."""
        events = []
        for _ in range(records):
            event = {"id": uuid.uuid4().hex, "at": datetime.now(UTC).isoformat(), **more}
            put = self.pipeline.client.put_record(
                StreamName=self.pipeline.stream, PartitionKey=event["id"], Data=json.dumps(event).encode()
            )
            sequence_number = int(put["SequenceNumber"])
            events.append(Event(id=event["id"], shard=put["ShardId"], sequence_number=sequence_number))
        self.sent += events
        self.expected.update(event.id for event in events)
        return events

    # What is to be seen

    def status(self) -> Status:
        """Return the status; empty if there is no supervisor."""
        return json_of(read_status(self.source.view)) or {}

    def right(self, what: str, holds: Holds, *, since: float) -> None:
        """Wait until the status is right, and note how long it took.

        :param since: when it could be known, by `time.monotonic`.
        """
        self._wait(what, holds)
        self.note(what, since, time.monotonic())

    def comes(self, what: str, holds: Holds, *, since: float | None = None) -> float:
        """Wait for what takes a job, or a turn; return when it came, by `time.monotonic`.

        :param since: to note how long it took since then; None to note nothing.
        """
        self._wait(what, holds)
        came = time.monotonic()
        if since is not None:
            self.note(what, since, came)
        return came

    def happens(self, what: str, holds: Callable[[], bool]) -> float:
        """Wait for what is seen elsewhere than in the status; return when it happened, by `time.monotonic`."""
        return self.comes(what, lambda _: holds())

    def runs(self, version: int, *, since: float | None = None) -> str:
        """Wait until one job runs, by this version of the spec, and no other; return its owner.

        :param since: see `comes`.
        """
        self.comes(f"(a job of version {version} runs)", running(1, version), since=since)
        return str(self.status()["jobs"][0]["owner"])

    def rows(self) -> list[dict[str, Any]]:
        """Return the dataset, file by file."""
        files = (self.lake / self.source.source).glob("*.parquet")
        return [row for file in files for row in ds.dataset(file).to_table().to_pylist()]

    def ids(self) -> Counter[str]:
        """Return how often the dataset has each record, by its id."""
        return Counter(row["id"] if "id" in row else json.loads(row["data"])["id"] for row in self.rows())

    def delivered(self) -> float:
        """Wait until the dataset holds what was sent, each record as often as it should; return when it did."""
        try:
            return self.happens("all is delivered", lambda: self.ids() == self.expected)
        except AssertionError as error:
            found = self.ids()
            differ = {event.id: event for event in self.sent if found[event.id] != self.expected[event.id]}
            lines = [f"{event}: {found[key]} instead of {self.expected[key]}" for key, event in differ.items()]
            raise AssertionError("\n".join((f"{error}", *lines[:20]))) from None

    def assert_in_order(self) -> None:
        """Check that each file has its records in the order of their shard, as those of raw records have."""
        for file in (self.lake / self.source.source).glob("*.parquet"):
            rows = ds.dataset(file).to_table().to_pylist()
            places = [int(row["sequence_number"]) for row in rows]
            assert places == sorted(places)
            assert len({row["shard_id"] for row in rows}) == 1

    def ended(self, owner: str) -> float:
        """Wait until the store has the outcome of a job; return when it had, by `time.monotonic`."""

        def has_ended() -> bool:
            job = self.jobs.get(owner)
            return job is not None and job.state is JobState.ENDED

        return self.happens(f"{owner} has ended", has_ended)

    # What happens

    def kill_driver(self, owner: str, *, alone: bool = True) -> None:
        """Kill the driver of a job.

        :param alone: whether what submitted it lives on, and sees that; else it is killed before.
        """
        job = self.jobs.get(owner)
        assert job is not None and job.log is not None
        processes = job_processes(str(settings_file_of(job.log)))
        drivers = [process for process in processes if process.name() == "java"]
        assert drivers, f"{owner} has a driver among {processes}"
        below = [child for driver in drivers for child in driver.children(recursive=True)]
        submission = [process for process in processes if process not in (*drivers, *below)]
        kill_all((*(() if alone else submission), *below, *drivers))

    def report(self) -> None:
        """Write down how long the status took to be right at each step, and other things, in parentheses."""
        sys.stdout.writelines(f"{seconds:7.2f} s  {what}\n" for what, seconds in self.figures)

    def note(self, what: str, since: float, until: float) -> None:
        """Note how long something took, both by `time.monotonic`."""
        self.figures.append((what, until - since))

    def _wait(self, what: str, holds: Holds) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds(status := self.status()):
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not in time: {what}\nthe status: {json.dumps(shortened(status), indent=1)}\n{self.airflow.logs()}"
                )
            time.sleep(LOOK_SECONDS)


def shortened(status: Mapping[str, Any]) -> Status:
    """Return a status without what is long."""
    return {name: value for name, value in status.items() if name not in ("lag_series", "stats")}


def running(count: int, version: int) -> Holds:
    """Return what says whether this number of jobs run, all by this version of the spec, and no other."""

    def holds(status: Status) -> bool:
        jobs = status.get("jobs", ())
        return [(job["state"], job["spec_version"]) for job in jobs] == [("RUNNING", version)] * count

    return holds


def goes_on(owner: str) -> Holds:
    """Return what says whether the supervisor runs, and this job, alone."""

    def holds(status: Status) -> bool:
        jobs = [(job["owner"], job["state"]) for job in status["jobs"]]
        return jobs == [(owner, "RUNNING")] and is_state("RUNNING")(status) and bool(status["is_supervised"])

    return holds


def has_failed(owner: str) -> Holds:
    """Return what says whether this job is known not to run, and there is an error of it."""

    def holds(status: Status) -> bool:
        is_known = any(error["owner"] == owner and error["message"] for error in status["errors"])
        return is_known and has_no_running(owner)(status)

    return holds


def has_no_running(owner: str) -> Holds:
    """Return what says whether this job is known not to run."""
    return lambda status: not any(job["owner"] == owner and job["state"] != "VANISHED" for job in status["jobs"])


def is_state(state: str, detailed: str | None = None) -> Holds:
    """Return what says whether the supervisor is in a state.

    :param detailed: the detailed state; None for the one of the same name.
    """
    return lambda status: (status["state"], status["detailed_state"]) == (state, detailed or state)


def monotonic(instant: datetime) -> float:
    """Return an instant (aware) by `time.monotonic`."""
    return time.monotonic() + (instant - datetime.now(UTC)).total_seconds()
