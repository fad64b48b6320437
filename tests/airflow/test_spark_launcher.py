"""A supervisor submits its jobs like tasks do, and kills them where it can reach them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.groups import GroupRequests
from airflow_provider_coordination.coordination.jobs import Job, Jobs, JobState
from airflow_provider_coordination.coordination.source_claim import SourceClaim, claim
from airflow_provider_coordination.coordination.workers import task_of as task_of_owner
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.job_resources import job_processes, settings_file_of
from airflow_provider_coordination.operators.group_jobs import JobGroup
from airflow_provider_coordination.operators.spark_hook import YARN_CLIENT
from airflow_provider_coordination.operators.supervise import SparkLauncher
from airflow_provider_coordination.spark.group_settings import unseal
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.supervision import SupervisedJob
from airflow_provider_coordination.supervisor.turn import JobRequest
from tests.airflow.conftest import SECRET, StubSpark
from tests.support.kubernetes_api import KubernetesApi
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("temporary")  # no job leaves anything elsewhere

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def connections(connect: Any, coordination: SourceCoordinator) -> None:
    connect("aws_default", "aws", login="AKIAEXAMPLE", password=SECRET, extra={"region_name": "eu-west-1"})


@pytest.fixture
def jobs(coordination: SourceCoordinator) -> Iterator[Jobs]:
    found = Jobs(coordination.view)
    yield found
    for job in found.of_task("supervisor/clicks"):
        for process in processes(job):
            with suppress(psutil.NoSuchProcess):  # it may end by itself
                process.kill()


@pytest.fixture
def launcher() -> SparkLauncher:
    ti = SimpleNamespace(dag_id="supervise_clicks", run_id="run", task_id="supervise", map_index=-1, try_number=2)
    context: Any = {"ti": ti}
    return SparkLauncher(connection=CoordinationHook().settings, source="clicks", context=context)


@pytest.fixture
def order(launcher: SparkLauncher, spark: StubSpark, tmp_path: Path) -> Callable[..., JobRequest]:
    def make(**supervise: Any) -> JobRequest:
        spec = {
            "version": 1,
            "reads": {"kinesis": {"streams": "clicks"}},
            "writes": [{"parquet": {"path": str(tmp_path / "out")}}],
            "schema": "id STRING, at TIMESTAMP",
            "tuning": {"spark": {"env_vars": {"PATH": spark.path}}, "start_timeout": "PT10M"},
            "supervise": supervise,
        }
        return JobRequest(
            job=SupervisedJob(owner=launcher.new_owner(), spec_version=1, planned_at=NOON),
            spec=IngestionSpec.read(spec),
            task="supervisor/clicks",
            max_duration=timedelta(minutes=90),
            workers=3,
        )

    return make


@pytest.fixture
def fernet_key(monkeypatch: pytest.MonkeyPatch) -> str:
    key = "YlCImzjge_TeZc7jPJ7Jz2pgOtb4yTssA1pVyqIADWg="
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", key)
    return key


def member(ordered: JobRequest) -> JobRequest:
    """Return the request of a job in a group."""
    return replace(ordered, spec=replace(ordered.spec, tuning=replace(ordered.spec.tuning, group="small")))


def group_of(launcher: SparkLauncher) -> GroupRequests:
    with JobGroup(name="small", connection=launcher.connection).requests() as requests:
        return requests


def processes(job: Job) -> list[Any]:
    return job_processes(str(settings_file_of(job.log))) if job.log else []


def test_job_is_submitted_by_its_spec_and_followed(
    launcher: SparkLauncher, order: Callable[..., JobRequest], jobs: Jobs, spark: StubSpark
) -> None:
    ordered = order(event_time="at", late_message_rejection_period="PT1H")
    launcher.start(ordered)
    spark.wait_for_a_call()

    [job] = jobs.of_task("supervisor/clicks")
    settings = spark.calls[0]["settings"]
    assert (job.owner, settings["owner"]) == (ordered.job.owner, ordered.job.owner)
    assert (settings["is_followed"], settings["workers"]) == (True, 3)
    assert (settings["rounds"]["max_duration"], settings["rounds"]["until_caught_up"]) == ("PT5400.000000S", False)
    assert datetime.fromisoformat(settings["rejection"]["earliest"]) == NOON - timedelta(hours=1)
    assert job.start_by is not None
    assert timedelta(minutes=9) < job.start_by - datetime.now(UTC) <= timedelta(minutes=10)


def test_owner_names_the_submitting_try(launcher: SparkLauncher) -> None:
    owner = launcher.new_owner()
    submitted_by = task_of_owner(owner)

    assert submitted_by is not None
    assert (submitted_by.dag_id, submitted_by.task_id, submitted_by.try_number) == ("supervise_clicks", "supervise", 2)
    assert launcher.new_owner() != owner


def test_given_up_job_is_not_submitted(
    launcher: SparkLauncher, order: Callable[..., JobRequest], jobs: Jobs, spark: StubSpark, temporary: Path
) -> None:
    ordered = order()
    jobs.give_up(ordered.job.owner, ordered.task, {"exit_code": None, "error": "too late"})

    with pytest.raises(CoordinationError, match="was given up before it was submitted"):
        launcher.start(ordered)

    assert (spark.calls, list(temporary.iterdir())) == ([], [])


def test_source_that_another_dag_reads_differently_is_refused(
    launcher: SparkLauncher, order: Callable[..., JobRequest], coordination: SourceCoordinator, spark: StubSpark
) -> None:
    location = {"streams": ["orders"], "region": "eu-west-1"}
    claim(
        coordination.view,
        SourceClaim(dag_id="other", task_id="ingest", claimed_at=NOON, kind="kinesis", location=location),
    )

    with pytest.raises(ConfigurationError, match="'other'"):
        launcher.start(order())

    assert spark.calls == []


def test_local_job_is_ended_with_its_processes(
    launcher: SparkLauncher, order: Callable[..., JobRequest], jobs: Jobs, spark: StubSpark
) -> None:
    spark.will(exit=0, sleep=600)
    launcher.start(order())
    spark.wait_for_a_call()
    [job] = jobs.of_task("supervisor/clicks")
    assert processes(job)

    launcher.end(job, order().spec, "it did not end in time")

    until(lambda: processes(job) == [])


CLUSTERS = {
    "yarn": (
        {"host": "yarn"},
        "Submitted application application_1760000000000_0042",
        "application_1760000000000_0042",
        "spark.yarn.submit.waitAppCompletion=false",
        ["spark-class", YARN_CLIENT, "application", "-kill", "application_1760000000000_0042"],
    ),
    "kubernetes": (
        {"host": "k8s://https://cluster", "port": 6443, "namespace": "ingest"},
        "\t pod name: clicks-0a1b2c-driver",
        "ingest:clicks-0a1b2c-driver",
        "spark.kubernetes.submission.waitAppCompletion=false",
        ["spark-submit", "--master", "k8s://https://cluster:6443", "--kill", "ingest:clicks-0a1b2c-driver"],
    ),
}


@pytest.fixture(params=CLUSTERS)
def cluster(
    request: pytest.FixtureRequest,
    connect: Any,
    spark: StubSpark,
    monkeypatch: pytest.MonkeyPatch,
    kubernetes: KubernetesApi,
) -> tuple[str, str, list[str]]:
    """A cluster that runs drivers: by what it knows the job, the option that lets spark-submit return, the kill."""
    connection, line, cluster_id, option, kill = CLUSTERS[request.param]
    fields = dict(connection)
    extra = {"deploy-mode": "cluster"} | ({"namespace": fields.pop("namespace")} if "namespace" in fields else {})
    connect("spark_default", "spark", extra=extra, **fields)
    pod = {"kubernetes": kubernetes.url, "pod": cluster_id.rpartition(":")[2]} if request.param == "kubernetes" else {}
    spark.will(lines=[line], **pod)
    monkeypatch.setenv("PATH", spark.path)
    return cluster_id, option, kill


def recording(folder: Path, name: str, exit_code: int = 0) -> Callable[[], list[str]]:
    """Put a command in place that notes how it is called; return what reads that."""
    called = folder / "killed"
    command = folder / name
    command.write_text(f'#!/bin/sh\necho "{name}" "$@" > {called}\nexit {exit_code}\n')
    command.chmod(0o755)
    return lambda: called.read_text().split() if called.exists() else []


def test_cluster_job_is_handed_over_and_followed_by_the_store(
    launcher: SparkLauncher,
    order: Callable[..., JobRequest],
    jobs: Jobs,
    spark: StubSpark,
    cluster: tuple[str, str, list[str]],
    temporary: Path,
) -> None:
    cluster_id, option, _ = cluster
    ordered = order()
    launcher.start(ordered)  # returns although the job has not begun
    [call] = spark.calls
    assert option in call["arguments"]
    folder, name = "/etc/coordination", Path(call["settings_file"]).name
    found = f"{folder}/settings.json" if "kubernetes" in option else f"{Path(name).stem}.json"
    assert call["arguments"][-2] == found, "the driver finds its settings where its program or the Secret puts them"
    assert call["settings"]["owner"] == ordered.job.owner
    job = jobs.get(ordered.job.owner)
    assert job is not None
    assert (job.state, job.log, job.cluster_id) == (JobState.SUBMITTED, None, cluster_id)
    assert list(temporary.iterdir()) == [], "its settings have travelled with it"


def test_cluster_job_is_killed_by_the_cluster_command(
    launcher: SparkLauncher,
    order: Callable[..., JobRequest],
    jobs: Jobs,
    spark: StubSpark,
    cluster: tuple[str, str, list[str]],
    kubernetes: KubernetesApi,
) -> None:
    ordered = order()
    launcher.start(ordered)
    killed = recording(spark.folder, cluster[2][0])
    job = jobs.get(ordered.job.owner)
    assert job is not None
    launcher.end(job, ordered.spec, "it did not end in time")
    assert killed() == cluster[2]
    assert kubernetes.named("secrets") == []


def test_failing_cluster_kill_does_not_stop_the_turn(
    launcher: SparkLauncher,
    order: Callable[..., JobRequest],
    jobs: Jobs,
    spark: StubSpark,
    cluster: tuple[str, str, list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    ordered = order()
    launcher.start(ordered)
    recording(spark.folder, cluster[2][0], exit_code=1)
    job = jobs.get(ordered.job.owner)
    assert job is not None
    launcher.end(job, ordered.spec, "it did not end in time")
    assert f"the cluster did not end job {cluster[0]}" in caplog.text


def test_invalid_cluster_id_never_reaches_the_kill_command(
    launcher: SparkLauncher,
    order: Callable[..., JobRequest],
    spark: StubSpark,
    cluster: tuple[str, str, list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    killed = recording(spark.folder, cluster[2][0])
    wrong = Job(owner="o", state=JobState.RUNNING, since=NOON, cluster_id="-appTypes;rm")
    launcher.end(wrong, order().spec, "it did not end in time")
    assert killed() == []
    assert "end it with the cluster manager that runs it" in caplog.text


def test_member_is_requested_and_its_group_gets_a_host(
    launcher: SparkLauncher, order: Callable[..., JobRequest], jobs: Jobs, spark: StubSpark, fernet_key: str
) -> None:
    spark.will(outcome={"exit_code": 0}, sleep=600)
    ordered = member(order())
    launcher.start(ordered)
    spark.wait_for_a_call()

    [call] = spark.calls
    assert call["arguments"][-3].endswith("ingest_group.py")
    assert call["settings"]["group"] == "small"
    requests = group_of(launcher)
    [request] = requests.waiting()
    key = call["settings"]["secret_key"]
    settings = unseal(request.sealed, key, ordered.job.owner, datetime.now(UTC))
    assert (settings.source, settings.is_followed, settings.workers) == ("clicks", True, 3)
    assert settings.rounds.max_duration == timedelta(minutes=90)
    assert SECRET not in request.sealed and fernet_key not in json.dumps([call["settings"], call["arguments"]])
    job = jobs.get(ordered.job.owner)
    assert job is not None and (job.state, job.log) == (JobState.SUBMITTED, None)
    end_host(requests)


def test_running_host_serves_later_members(
    launcher: SparkLauncher, order: Callable[..., JobRequest], jobs: Jobs, spark: StubSpark, fernet_key: str
) -> None:
    spark.will(outcome={"exit_code": 0}, sleep=600)
    launcher.start(member(order()))
    requests = group_of(launcher)
    until(lambda: any(host.has_begun for host in requests.jobs.unfinished()))
    later = member(order())
    launcher.start(later)
    assert len(spark.calls) == 1
    assert len(requests.waiting()) == 2
    job = jobs.get(later.job.owner)
    assert job is not None and job.start_by is not None
    assert job.start_by - datetime.now(UTC) <= timedelta(minutes=2), "a host takes it at once, or is dead"
    end_host(requests)


def test_member_that_is_given_up_is_requested_no_more(
    launcher: SparkLauncher, order: Callable[..., JobRequest], jobs: Jobs, spark: StubSpark, fernet_key: str
) -> None:
    spark.will(outcome={"exit_code": 0}, sleep=600)
    ordered = member(order())
    launcher.start(ordered)
    job = jobs.get(ordered.job.owner)
    assert job is not None
    launcher.end(job, ordered.spec, "it did not begin in time")
    requests = group_of(launcher)
    assert requests.waiting() == []
    end_host(requests)


def test_host_that_does_not_start_ends_its_members(
    launcher: SparkLauncher, order: Callable[..., JobRequest], jobs: Jobs, spark: StubSpark, fernet_key: str
) -> None:
    spark.will(lines=["no Java here"], exit=1)
    ordered = member(order())
    launcher.start(ordered)
    outcome = until(lambda: (job := jobs.get(ordered.job.owner)) and job.outcome)
    assert outcome is not None
    assert outcome["error"] == "the Spark application of group 'small' ended: exit code 1"
    assert "no Java here" in outcome["tail"]


def test_unsubmitted_host_leaves_no_request(
    launcher: SparkLauncher, order: Callable[..., JobRequest], spark: StubSpark, fernet_key: str, connect: Any
) -> None:
    connect("spark_default", "spark", host="spark://master", port=7077, extra={"deploy-mode": "cluster"})
    with pytest.raises(Exception, match="cluster"):
        launcher.start(member(order()))
    assert (group_of(launcher).waiting(), spark.calls) == ([], [])


def test_group_without_a_fernet_key_is_refused(
    launcher: SparkLauncher, order: Callable[..., JobRequest], jobs: Jobs, spark: StubSpark,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "")
    with pytest.raises(ConfigurationError, match=r"field 'group' is 'small'.*'\[core\] fernet_key', which is empty"):
        launcher.start(member(order()))
    assert (spark.calls, jobs.of_task("supervisor/clicks")) == ([], [])


def end_host(requests: GroupRequests) -> None:
    """End the stand-in for a host, and wait until nothing of it is left."""
    for host in requests.jobs.unfinished():
        for process in processes(host):
            with suppress(psutil.NoSuchProcess):
                process.kill()
