"""Two sources share a Spark application under a whole Airflow, each with a supervisor of its own.

The deep form also kills the application, which `tests/system/test_group_host.py` does without Airflow.
"""

from __future__ import annotations

import configparser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.groups import GroupRequests, group_identifier
from airflow_provider_coordination.coordination.jobs import Job, JobState
from airflow_provider_coordination.hooks.job_resources import job_processes, settings_file_of
from airflow_provider_coordination.spark.group_settings import group_key, key_id
from demo.local_kinesis import LocalKinesis
from tests.support.depth import at_depth
from tests.support.processes import kill_all, with_descendants
from tests.support.spark_job import Pipeline
from tests.support.standalone import Standalone
from tests.support.supervised_stream import SupervisedStream, goes_on, is_state

GROUP = "pair"


class Member(SupervisedStream):
    """A member of the group."""

    def spec(self, **rounds: Any) -> dict[str, Any]:
        """Return its spec."""
        return {
            "version": 1,
            "source": self.source.source,
            "reads": {"kinesis": {"streams": self.pipeline.stream}},
            "writes": [{"parquet": {"path": str(self.lake / self.source.source)}}],
            "rounds": {"round_duration": 1, "idle_duration": 0.5, **rounds},
            "tuning": {"group": GROUP, "spark": {"driver_memory": "512m", "conf": {"spark.ui.enabled": "false"}}},
            "supervise": {"start_delay": 0, "period": 2},
        }

    def begins(self) -> None:
        """Have the first job started, without waiting for it."""
        self.write(self.spec())
        self.send(5)
        self.airflow.unpause(self.dag_id)


class Pair:
    """Both members, and their application.

    :param airflow: runs the DAGs that supervise.
    :param left: one member.
    :param right: the other one.
    :param look: gives a coordinator of the group.
    """

    def __init__(
        self, airflow: Standalone, left: Member, right: Member, look: Callable[[str], SourceCoordinator]
    ) -> None:
        self.left, self.right = left, right
        config = configparser.ConfigParser(interpolation=None, strict=False)
        config.read(airflow.home / "airflow.cfg")
        key = group_key(config["core"]["fernet_key"], GROUP)
        self._requests = GroupRequests(look(group_identifier(GROUP, key_id(key))).view)

    @property
    def host(self) -> Job:
        """The only host that runs."""
        [host] = [job for job in self._requests.jobs.unfinished() if job.state is JobState.RUNNING]
        assert len(self.drivers(host)) == 1
        return host

    def drivers(self, host: Job) -> list[Any]:
        """Return the drivers of a host."""
        processes = job_processes(str(settings_file_of(host.log))) if host.log else []
        return [process for process in processes if process.name() == "java"]

    def kill_hosts(self) -> None:
        """Kill the drivers of all hosts, with their Python processes."""
        for host in self._requests.jobs.unfinished():
            for driver in self.drivers(host):
                kill_all(with_descendants(driver))

    def end(self) -> None:
        """End both supervisors, and the application."""
        for member in (self.left, self.right):
            member.verbs.terminate()
            member.comes("it is terminated", is_state("TERMINATED"))
            member.airflow.pause(member.dag_id)
        self.kill_hosts()


@pytest.fixture
def pair(
    airflow: Standalone,
    kinesis: LocalKinesis,
    kinesis_stream: Callable[[int], str],
    look: Callable[[str], SourceCoordinator],
    folder: Path,
    tmp_path: Path,
) -> Iterator[Pair]:
    def make(source: str) -> Member:
        pipeline = Pipeline(kinesis, kinesis_stream(1), tmp_path / source, airflow.store_url, source=source)
        file = folder / "dags" / "specs" / f"{source}.yaml"
        return Member(airflow, pipeline, look(source), f"supervise_{source}", file)

    made = Pair(airflow, make("left"), make("right"), look)
    yield made
    made.end()


@pytest.mark.timeout(900)
def test_two_supervisors_of_a_group_share_one_application(pair: Pair) -> None:
    left, right = pair.left, pair.right
    for member in (left, right):
        member.begins()
    jobs = [member.runs(1) for member in (left, right)]
    for member in (left, right):
        member.delivered()
    host = pair.host

    # The supervisor of one is killed in the turn that an edit needs.
    left.write(left.spec(round_duration=2))
    left.airflow.kill_task(left.dag_id, "supervise")
    for member in (left, right):
        member.send(20)
    right.delivered()
    assert left.runs(2) != jobs[0]
    left.delivered()
    assert goes_on(jobs[1])(right.status())
    assert pair.host.owner == host.owner

    if at_depth(short=False, deep=True):
        pair.kill_hosts()
        for member in (left, right):
            member.send(20)
        for member in (left, right):
            member.delivered()
        assert left.runs(2) and right.runs(1) != jobs[1]
        assert pair.host.owner != host.owner
