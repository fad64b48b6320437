"""A task runs its job in the Spark application of a group, and follows it as a deferred one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_provider_coordination.airflow_names import AirflowFailException, TaskDeferred
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.groups import GroupRequests
from airflow_provider_coordination.coordination.jobs import Jobs, JobState
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.job_resources import job_processes, settings_file_of
from airflow_provider_coordination.operators.group_jobs import JobGroup
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.settings import read_settings
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.group_settings import GroupSettings, unseal
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.outcome import Outcome
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion
from tests.airflow.conftest import SECRET, StubSpark
from tests.support.ingestions import with_ingestion

pytestmark = pytest.mark.usefixtures("temporary")  # no job leaves anything elsewhere

GOOD = Outcome(exit_code=0, summary={"records_delivered": 7}).to_mapping()
MakeOperator = Callable[..., CoordinatedSparkSubmitOperator]


@pytest.fixture(autouse=True)
def surroundings(connect: Any, coordination: SourceCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "YlCImzjge_TeZc7jPJ7Jz2pgOtb4yTssA1pVyqIADWg=")
    connect("aws_default", "aws", login="AKIAEXAMPLE", password=SECRET, extra={"region_name": "eu-west-1"})
    coordination.create_partitions({"p0": {}})


@pytest.fixture
def make_operator(spark: StubSpark, tmp_path: Path) -> MakeOperator:
    spark.will(outcome={"exit_code": 0}, sleep=600)

    def make(**arguments: Any) -> CoordinatedSparkSubmitOperator:
        defaults = {
            "task_id": "ingest",
            "reads": KinesisStreams("clicks", aws_conn_id=None, region_name="eu-west-1"),
            "writes": ParquetDataset(str(tmp_path / "out")),
            "env_vars": {"PATH": spark.path},
            "group": "small",
        }
        return CoordinatedSparkSubmitOperator(**with_ingestion(defaults | arguments))

    return make


@pytest.fixture
def jobs(coordination: SourceCoordinator) -> Jobs:
    return Jobs(coordination.view)


@pytest.fixture
def requests() -> Iterator[GroupRequests]:
    with JobGroup(name="small", connection=CoordinationHook().settings).requests() as found:
        yield found
        for host in found.jobs.unfinished():
            for process in job_processes(str(settings_file_of(host.log))) if host.log else []:
                with suppress(psutil.NoSuchProcess):  # it may end by itself
                    process.kill()


def deferred(task: CoordinatedSparkSubmitOperator, context: Any) -> dict[str, Any]:
    """Run the task until it defers; return the arguments of its trigger."""
    with pytest.raises(TaskDeferred) as defers:
        task.execute(context)
    return dict(defers.value.trigger.serialize()[1])


def test_job_of_a_group_is_requested_and_followed(
    make_operator: MakeOperator, context: Any, requests: GroupRequests, jobs: Jobs, spark: StubSpark
) -> None:
    task = make_operator()
    trigger = deferred(task, context)
    spark.wait_for_a_call()
    [call], [request] = spark.calls, requests.waiting()
    assert call["arguments"][-3].endswith("ingest_group.py")
    assert task.application.endswith("ingest.py") and task.name == "ingest"
    settings = unseal(request.sealed, call["settings"]["secret_key"], trigger["owner"], datetime.now(UTC))
    assert (settings.source, settings.is_followed, settings.rounds.until_caught_up) == ("clicks", True, True)

    jobs.end(trigger["owner"], GOOD)
    event = {"status": "ended", "source": "clicks", "owner": trigger["owner"], "log": None, "deadline": None}
    assert make_operator().execute_complete(context, event) == {"owner": trigger["owner"], "records_delivered": 7}


def test_later_try_finds_the_job_in_the_group(
    make_operator: MakeOperator, context: Any, requests: GroupRequests, spark: StubSpark
) -> None:
    first = deferred(make_operator(), context)
    assert deferred(make_operator(), context)["owner"] == first["owner"]
    assert len(requests.waiting()) == 1
    spark.wait_for_a_call()
    assert len(spark.calls) == 1


def test_killed_task_stops_its_own_job_and_no_host(
    make_operator: MakeOperator, context: Any, requests: GroupRequests, jobs: Jobs
) -> None:
    task = make_operator()
    owner = deferred(task, context)["owner"]
    task.on_kill()
    job, host = jobs.get(owner), requests.host()
    assert job is not None and job.stop == "its task was ended or cleared in Airflow"
    assert host is not None and host.stop is None


def test_host_refuses_a_member_with_other_arguments(
    make_operator: MakeOperator, context: Any, requests: GroupRequests, spark: StubSpark
) -> None:
    deferred(make_operator(), context)
    spark.wait_for_a_call()
    host = read_settings(GroupSettings, "settings", spark.calls[0]["settings"])
    other = make_operator(task_id="other", conf={"spark.x": SECRET}, packages="org:x:1", driver_memory="2g")
    deferred(other, {**context, "ti": other_task(context["ti"])})
    refused = []
    for request in requests.waiting():
        assert SECRET not in str(request.item.progress)
        try:
            host.check_member(request)
        except ConfigurationError as error:
            refused.append(str(error))
    [message] = refused
    assert "with other values of conf, driver_memory, packages than source 'clicks' has" in message


def other_task(ti: Any) -> Any:
    """Return a try of another task."""
    return type(ti)(**{**vars(ti), "task_id": "other"})


@pytest.mark.parametrize("name", ["a|b", "x" * 65])
def test_unusable_group_fails_the_task(make_operator: MakeOperator, context: Any, jobs: Jobs, name: str) -> None:
    with pytest.raises(AirflowFailException, match="field 'group' must be 1 to 64 characters without"):
        make_operator(group=name).execute(context)
    assert {job.state for job in jobs.unfinished()} == set()


def test_weight_without_a_group_is_refused(make_operator: MakeOperator, context: Any) -> None:
    refusal = r"'rounds\.weight' is 2, but the source is in no group"
    with pytest.raises(ConfigurationError, match=refusal):
        make_operator(group=None, rounds=RoundSettings(weight=2))
    task = make_operator(rounds=RoundSettings(weight=2))
    task.group = ""  # as its template has rendered
    with pytest.raises(AirflowFailException, match=refusal):
        task.execute(context)


def test_unsubmitted_host_ends_the_job(
    make_operator: MakeOperator, context: Any, requests: GroupRequests, jobs: Jobs, connect: Any
) -> None:
    connect("spark_default", "spark", host="spark://master", port=7077, extra={"deploy-mode": "cluster"})
    with pytest.raises(AirflowFailException, match="cluster"):
        make_operator().execute(context)
    assert requests.waiting() == []
    [job] = jobs.of_task("dag/run/ingest/-1") or jobs.of_task("dag/run/task/3")
    assert job.state is JobState.ENDED


def test_tasks_of_coordinated_ingestion_take_a_group() -> None:
    from airflow.sdk import DAG

    ingestion = with_ingestion(
        {"reads": KinesisStreams("clicks", aws_conn_id=None), "writes": ParquetDataset("/lake/clicks")}
    )["ingestion"]
    with DAG("clicks", schedule=None) as dag:
        coordinated_ingestion(ingestion, group="small")
    assert dag.get_task("ingestion.ingest").partial_kwargs["group"] == "small"
