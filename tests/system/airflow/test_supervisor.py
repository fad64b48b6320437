"""A spec of Druid runs a stream under a whole Airflow, through everything that happens to it in years.

At each step the status has to become right. The test prints how long that took from when the event could be known:
since the verb returned, or since the store holds what the event is seen by, whichever each step says. At the end the
dataset has to be exact. The short form leaves out what takes minutes.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.json_values import json_of
from airflow_provider_coordination.coordination.partition import parse_instant
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.supervisor.druid import from_druid
from airflow_provider_coordination.supervisor.operations import SupervisorVerbs
from airflow_provider_coordination.supervisor.reading import existing_status
from airflow_provider_coordination.supervisor.status import UNSUPERVISED_AFTER
from airflow_provider_coordination.supervisor.store import SupervisionStore
from tests.support.depth import at_depth
from tests.support.spark_job import Pipeline
from tests.support.standalone import Standalone
from tests.support.supervised_stream import (
    Holds,
    Status,
    SupervisedStream,
    goes_on,
    has_failed,
    has_no_running,
    is_state,
    monotonic,
    running,
)

SOURCE = "supervised-clicks"
"""Not `clicks`, which a scheduled run of an example claims at each full hour."""
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
                "dataSource": SOURCE,
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


class Life:
    """The life of a supervisor, a step at a time: each begins with one job that runs, and everything delivered."""

    def __init__(self, clicks: SupervisedStream) -> None:
        self.clicks = clicks
        self.version = 0
        self.owner = ""

    def is_submitted(self) -> None:
        """A spec that is stored has a job at once; once there are rows of it, the job runs."""
        clicks = self.clicks
        self._write("id")
        clicks.send(20)
        clicks.airflow.unpause(clicks.dag_id)
        stored = self._stored()
        clicks.right("submitted: there is a job", lambda status: _versions(status) == [1], since=stored)
        rows = clicks.happens("there are rows", lambda: bool(clicks.rows()))
        clicks.right("submitted: the job runs", running(1, 1), since=rows)
        clicks.right("submitted: the supervisor runs", is_state("RUNNING"), since=rows)
        self._begins_again()

    def is_resharded(self) -> None:
        """Once the stream is active again, the children are read: their parent has nothing left."""
        clicks = self.clicks
        clicks.pipeline.split_a_shard()
        split = time.monotonic()
        clicks.right("resharded: the children are read", _partitions(open=2, ASSIGNED=2, COMPLETED=1), since=split)
        clicks.send(20)
        clicks.delivered()

    def has_another_schema(self) -> None:
        """An edit of the file: the job that runs is outdated, and hands over to one of the new spec."""
        clicks = self.clicks
        known = len(clicks.rows())
        self._write("id", "page")
        stored = self._stored()
        clicks.right(
            "updated: a job of the new spec is to take over",
            lambda status: (
                _versions(status) == [2] or (_versions(status) == [1, 2] and status["jobs"][0]["is_outdated"])
            ),
            since=stored,
        )
        ended = clicks.ended(self.owner)
        clicks.right("updated: the job of the new spec runs alone", running(1, 2), since=ended)
        clicks.right(
            "updated: what the old job read is counted",
            lambda status: status["stats"]["totals"]["processed"] == known,
            since=ended,
        )
        clicks.send(20, page="/")
        self._begins_again()
        assert Counter(row.get("page") for row in clicks.rows()) == {None: known, "/": 20}

    def loses_its_driver(self) -> None:
        """A driver is killed amid records: its spark-submit notes that in the store, and a successor reads on."""
        clicks = self.clicks
        clicks.send(20)
        clicks.kill_driver(self.owner)
        killed = time.monotonic()
        clicks.send(20)
        ended = clicks.ended(self.owner)
        clicks.note("(a killed driver is noted in the store)", killed, ended)
        clicks.right("killed driver: the error is there", has_failed(self.owner), since=ended)
        self._begins_again(since=ended)

    def loses_its_machine(self) -> None:
        """A driver dies with what submitted it: that can be known once the lease of the job has run out."""
        clicks = self.clicks
        clicks.send(20)
        clicks.kill_driver(self.owner, alone=False)
        clicks.send(20)
        job = clicks.jobs.get(self.owner)
        assert job is not None
        given_up_at = job.given_up_at(clicks.jobs.safety_margin)
        assert given_up_at is not None
        known = monotonic(given_up_at)
        clicks.right("dead machine: the job has vanished", has_no_running(self.owner), since=known)
        clicks.right("dead machine: the error is there", has_failed(self.owner), since=known)
        self._begins_again(since=known)

    def is_suspended_and_resumed(self) -> None:
        """The status changes with the verb; it knows that a job has ended as soon as the job has said so."""
        clicks = self.clicks
        self._suspend()
        clicks.send(20)
        self._resume()
        self._begins_again()

    def idles_and_wakes(self) -> None:
        """While nothing arrives, no job runs; the first record starts one, which delivers it."""
        clicks = self.clicks
        self._write("id", "page", idleConfig={"enabled": True, "inactiveAfterMillis": 6000})
        self._stored()
        ended = clicks.ended(self.owner)
        clicks.right("idle: no job is left", lambda it: is_state("IDLE")(it) and not it["jobs"], since=ended)
        sent = time.monotonic()
        clicks.send(20)
        self._begins_again(since=sent)
        clicks.note("(from the first record of an idle source to its row)", sent, time.monotonic())
        changes = [(each["before"], each["after"]) for each in clicks.status()["task_count"]["changes"]]
        assert ((1, 0), (0, 1)) in pairwise(changes)  # a slow machine may idle once more by now
        self._write("id", "page")  # what follows is quiet at times
        self._stored()
        clicks.comes("(one job goes on)", lambda status: [job["state"] for job in status["jobs"]] == ["RUNNING"])
        [self.owner] = [job["owner"] for job in clicks.status()["jobs"]]

    def scales(self) -> None:
        """A spec that scales lets the job go on; lag asks for another job, and no lag for one less."""
        clicks = self.clicks
        self._write("id", "page", autoScalerConfig=SCALING)
        stored = self._stored()
        clicks.right(
            "scaling: the new spec rules, and the job goes on",
            lambda status: status["task_count"]["max"] == 2 and running(1, 2)(status),
            since=stored,
        )
        self._suspend()
        clicks.send(20)
        window = 2 * SCALING["lagCollectionRangeMillis"]
        clicks.comes("it is behind", lambda status: (status["lag"]["sum_ms"] or 0) >= window)
        self._resume()
        scaled = self._scaled(1, 2)
        clicks.right("scaled up: there are two jobs", _has_count(2), since=scaled)
        clicks.delivered()
        scaled = self._scaled(2, 1)
        clicks.right("scaled down: one job goes on", _has_count(1), since=scaled)
        self._begins_again()
        self._write("id", "page")  # on a busy machine, the lag of what dies next would scale again
        self._stored()
        self._suspend()
        self._resume()
        self._begins_again()

    def loses_the_scheduler(self) -> None:
        """Its jobs go on, and the triggerer looks on."""
        clicks = self.clicks
        with clicks.airflow.without("scheduler"):
            killed = time.monotonic()
            until = clicks.status()["supervised_until"]
            clicks.right("without a scheduler: all goes on", goes_on(self.owner), since=killed)
            clicks.send(20)
            clicks.delivered()
            clicks.comes("the triggerer looks on", lambda status: status["supervised_until"] > until)
            assert goes_on(self.owner)(clicks.status())

    def loses_the_triggerer(self) -> None:
        """Its jobs go on; nobody supervises once the lease of the supervision has run out, and that is trouble."""
        clicks = self.clicks
        with clicks.airflow.without("triggerer"):
            until = parse_instant(clicks.status()["supervised_until"])
            clicks.send(20)
            clicks.right(
                "without a triggerer: the job runs, and nobody supervises",
                lambda status: not status["is_supervised"] and running(1, self.version)(status),
                since=monotonic(until),
            )
            clicks.right(
                "without a triggerer: it is unhealthy",
                is_state("UNHEALTHY_SUPERVISOR", "NOT_SUPERVISED"),
                since=monotonic(until + UNSUPERVISED_AFTER),
            )
            clicks.delivered()
        back = clicks.comes("(somebody supervises)", lambda status: status["is_supervised"], since=time.monotonic())
        clicks.right("with a triggerer: all goes on", goes_on(self.owner), since=back)

    def is_reset_to_positions(self) -> None:
        """What comes after the position of its shard is read again, and nothing else; the job goes on."""
        clicks = self.clicks
        sent = clicks.send(30)
        clicks.delivered()
        of_shards = {event.shard: [each for each in sent if each.shard == event.shard] for event in sent}
        positions = {shard: events[len(events) // 3] for shard, events in of_shards.items()}
        assert len(positions) == 2
        numbers = {shard: str(event.sequence_number) for shard, event in positions.items()}
        report = clicks.verbs.reset(positions=numbers, connections=AirflowConnections())
        reset = time.monotonic()
        assert (len(report.outcomes), report.failed, dict(report.left)) == (2, [], {})
        clicks.expected.update(
            event.id for event in sent if event.sequence_number > positions[event.shard].sequence_number
        )
        clicks.right("reset: the job goes on", goes_on(self.owner), since=reset)
        clicks.comes("(both shards are read again)", _partitions(open=2, ASSIGNED=2), since=reset)
        clicks.delivered()
        assert goes_on(self.owner)(clicks.status())

    def is_terminated(self) -> None:
        """What was read is delivered, and no job is left."""
        clicks = self.clicks
        clicks.send(20)
        clicks.delivered()
        clicks.verbs.terminate()
        clicks.right(
            "terminated: it is stopping",
            lambda status: is_state("STOPPING")(status) or is_state("TERMINATED")(status),
            since=time.monotonic(),
        )
        ended = clicks.ended(self.owner)
        clicks.right(
            "terminated: nothing is left",
            lambda status: is_state("TERMINATED")(status) and status["jobs"] == [],
            since=ended,
        )
        clicks.airflow.pause(clicks.dag_id)
        clicks.delivered()

    # Parts

    def _write(self, *dimensions: str, **io: Any) -> None:
        """Write the file again, from a spec of Druid and how its jobs run here."""
        here = {
            "tuning": {"spark": {"driver_memory": "512m", "conf": {"spark.ui.enabled": "false"}}},
            "rounds": {"round_duration": 1, "idle_duration": 0.5},
        }
        druid = druid_spec(self.clicks.pipeline.stream, *dimensions, **io)
        self.version += 1
        self.clicks.write({**from_druid(druid, lake=str(self.clicks.lake)).spec, **here})

    def _stored(self) -> float:
        """Wait until the spec of the file is stored, which is when it can be known; return when it was."""
        store, written = SupervisionStore(self.clicks.source.view), time.monotonic()
        stored = self.clicks.happens("the spec is stored", lambda: store.spec(self.version) is not None)
        self.clicks.note(f"(version {self.version} of the file is stored)", written, stored)
        return stored

    def _begins_again(self, since: float | None = None) -> None:
        """Wait until there is one job, of the spec that rules, and all is delivered.

        :param since: to note how long the job took since then.
        """
        self.owner = self.clicks.runs(self.version, since=since)
        self.clicks.delivered()

    def _suspend(self) -> None:
        clicks = self.clicks
        clicks.verbs.suspend()
        clicks.right(
            "suspended: it is, it wants no job, and the status says by whom",
            lambda status: (
                is_state("SUSPENDED")(status)
                and status["suspended"]["by"] == "a person"
                and status["task_count"]["wanted"] == 0
            ),
            since=time.monotonic(),
        )
        ended = clicks.ended(self.owner)
        clicks.right("suspended: no job is left", lambda status: status["jobs"] == [], since=ended)
        assert is_state("SUSPENDED")(clicks.status())

    def _resume(self) -> None:
        clicks = self.clicks
        clicks.verbs.resume()
        clicks.right(
            "resumed: it runs, and wants a job",
            lambda status: is_state("RUNNING")(status) and status["task_count"]["wanted"] >= 1,
            since=time.monotonic(),
        )

    def _scaled(self, before: int, after: int) -> float:
        """Wait until the number of jobs is changed; return when it was."""

        def changes(status: Status) -> list[datetime]:
            return [
                parse_instant(each["at"])
                for each in status["task_count"]["changes"]
                if (each["before"], each["after"]) == (before, after)
            ]

        self.clicks.comes(f"it scales from {before} to {after}", lambda status: bool(changes(status)))
        return monotonic(changes(self.clicks.status())[-1])


def _versions(status: Status) -> list[int]:
    return [job["spec_version"] for job in status.get("jobs", ())]


def _partitions(**counts: int) -> Holds:
    return lambda status: all(status["partitions"][name] == count for name, count in counts.items())


def _has_count(count: int) -> Holds:
    """Return what says whether there are to be this number of jobs, and as many go on."""

    def holds(status: Status) -> bool:
        going_on = [job for job in status["jobs"] if job["state"] != "ENDING"]
        return (status["task_count"]["wanted"], len(going_on)) == (count, count)

    return holds


SHORT = (
    Life.is_submitted,
    Life.has_another_schema,
    Life.idles_and_wakes,
    Life.loses_its_driver,
    Life.is_terminated,
)
WHOLE = (
    Life.is_submitted,
    Life.is_resharded,
    Life.has_another_schema,
    Life.is_suspended_and_resumed,
    Life.idles_and_wakes,
    Life.scales,
    Life.loses_the_scheduler,
    Life.loses_the_triggerer,
    Life.loses_its_driver,
    Life.loses_its_machine,
    Life.is_reset_to_positions,
    Life.is_terminated,
)


@pytest.mark.deep
@pytest.mark.timeout(at_depth(short=900, deep=2400))  # Spark jobs come and go, one after the other
def test_druid_spec_runs_a_stream_through_all_events(
    airflow: Standalone,
    pipeline: Pipeline,
    look: Callable[[str], SourceCoordinator],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    aws = {"region_name": "us-east-1", "endpoint_url": pipeline.kinesis.endpoint_url}
    here = {"conn_type": "aws", "login": "test", "password": "test", "extra": aws}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(here))  # of the person who resets
    file = folder / "dags" / "specs" / "clicks.yaml"
    clicks = SupervisedStream(airflow, pipeline, look(SOURCE), "supervise_clicks", file)
    life = Life(clicks)
    try:
        for step in at_depth(short=SHORT, deep=WHOLE):
            step(life)
    finally:
        clicks.report()


@pytest.mark.only_deep
def test_run_ends_on_time_and_the_next_keeps_the_job(
    airflow: Standalone, pipeline: Pipeline, look: Callable[[str], SourceCoordinator], folder: Path
) -> None:
    source = look("visits")
    spec = {
        "version": 1,
        "source": "visits",
        "reads": {"kinesis": {"streams": pipeline.stream}},
        "writes": [{"parquet": {"path": str(pipeline.output)}}],
        "rounds": {"round_duration": 1, "idle_duration": 0.5},
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
    [job, *_] = json_of(existing_status(source.view))["jobs"]
    assert job["owner"].split(":")[2:5] == first.split(":")[2:5]  # the first run submitted it
    SupervisorVerbs(source).suspend()  # its jobs end
    airflow.pause("supervise_visits")
