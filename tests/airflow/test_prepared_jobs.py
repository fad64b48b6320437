"""Jobs that other systems submit: their settings for each system, and the task that follows them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from botocore.stub import Stubber

from airflow_provider_coordination.airflow_names import (
    AirflowFailException,
    AirflowSkipException,
    TaskDeferralTimeout,
    TaskDeferred,
)
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.jobs import Jobs, JobState
from airflow_provider_coordination.operators.prepared_jobs import (
    FollowJobOperator,
    PreparedJob,
    databricks_task,
    emr_containers_driver,
    emr_serverless_driver,
    emr_step,
    glue_arguments,
    livy_batch,
    prepare_job,
)
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.outcome import EXIT_CONFIGURATION, EXIT_SUCCESS
from airflow_provider_coordination.spark.settings import IngestSettings, SettingsReference
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.triggers.supervisor import JobTrigger
from tests.airflow.conftest import REPOSITORY, SECRET
from tests.support.airflow_dags import DagBag
from tests.support.ingestions import with_ingestion
from tests.support.watched import in_loop

pytestmark = pytest.mark.usefixtures("temporary")

TASK = "dag/run/task/3"
ROLE = "arn:aws:iam::123456789012:role/ingest"


@pytest.fixture(autouse=True)
def connections(connect: Any, coordination: SourceCoordinator) -> None:
    connect("aws_default", "aws", login="AKIAEXAMPLE", password=SECRET, extra={"region_name": "eu-west-1"})
    coordination.create_partitions({"p": {}})


@pytest.fixture
def jobs(coordination: SourceCoordinator) -> Jobs:
    return Jobs(coordination.view)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "shared"


@pytest.fixture
def prepare(folder: Path, tmp_path: Path, context: Any) -> Callable[..., PreparedJob]:
    def make(**arguments: Any) -> PreparedJob:
        defaults = {"reads": KinesisStreams("clicks"), "writes": ParquetDataset(str(tmp_path / "out"))}
        return prepare_job(folder=str(folder), context=context, **with_ingestion(defaults | arguments))

    return make


def settings_in(folder: Path) -> list[Path]:
    return list((folder / "settings").iterdir())


def run(job: PreparedJob, arguments: Sequence[str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program as spark-submit does, which puts the archive on Python's path."""
    environment = {**os.environ, "PYTHONPATH": job.py_files.replace(",", os.pathsep)}
    command = [sys.executable, job.application, *(job.arguments if arguments is None else arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/")


# What is prepared


def test_prepared_job_has_program_package_and_sealed_settings(prepare: Any, folder: Path, jobs: Jobs) -> None:
    conf = {"spark.executor.cores": 2}
    job = prepare(conf=conf, executor_memory="2g", num_executors=None, start_timeout=timedelta(minutes=5))
    assert Path(job.application).read_bytes() == (REPOSITORY / "spark_apps" / "ingest.py").read_bytes()
    assert Path(job.py_files).name == "airflow_provider_coordination.zip"
    own = {"spark.executor.cores": "2", "spark.executor.memory": "2g"}
    assert job.conf == {**own, "spark.yarn.maxAppAttempts": "1"}
    [sealed] = settings_in(folder)
    assert SECRET.encode() not in sealed.read_bytes()
    text = json.dumps(job.to_mapping())
    assert SECRET not in text and PreparedJob.from_mapping(json.loads(text)) == job
    settings = IngestSettings.read(SettingsReference.parse(job.arguments[0]), job.arguments[1], datetime.now(UTC))
    assert settings.owner == job.owner and settings.is_followed
    assert settings.expires_at - datetime.now(UTC) <= timedelta(minutes=5)
    assert SECRET in json.dumps(settings.reads.settings)
    [known] = jobs.of_task(TASK)
    assert (known.owner, known.state, known.start_by) == (job.owner, JobState.SUBMITTED, settings.expires_at)
    assert known.settings == f"object||{sealed}"


def test_program_and_package_are_uploaded_once(prepare: Any, folder: Path) -> None:
    first = prepare()
    made = {path: path.stat().st_mtime_ns for path in (folder / "packages").rglob("*.*")}
    second = prepare()
    assert (second.application, second.py_files) == (first.application, first.py_files)
    assert {path: path.stat().st_mtime_ns for path in (folder / "packages").rglob("*.*")} == made


def test_retry_stops_the_first_job_and_removes_its_settings(prepare: Any, folder: Path, jobs: Jobs) -> None:
    first, second = prepare(), prepare()
    stopped = jobs.get(first.owner)
    assert stopped is not None and stopped.stop is not None
    assert [str(path) for path in settings_in(folder)] == [second.arguments[0].partition("#")[0]]


def test_next_job_of_the_source_removes_unused_settings(prepare: Any, folder: Path, jobs: Jobs, context: Any) -> None:
    late = prepare(start_timeout=0.001)
    context["ti"].run_id = "the next"
    prepare()
    known = jobs.get(late.owner)
    assert known is not None and known.outcome is not None and "did not begin by" in known.outcome["error"]
    assert len(settings_in(folder)) == 1


def test_suspended_source_skips_the_task(prepare: Any, coordination: SourceCoordinator, folder: Path) -> None:
    coordination.view.suspensions.suspend("ann")
    with pytest.raises(AirflowSkipException, match="suspended by ann"):
        prepare()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"folder": ""}, "field 'folder' must not be empty"),
        ({"folder": "nowhere://x"}, "'nowhere://x/.* is not a path that can be written"),
        ({"workers": "two"}, "field 'workers'"),
        ({"proxy_user": "ann"}, "field 'proxy_user' is for a spark-submit of this package's operator; leave it out"),
    ],
)
def test_invalid_argument_is_named(context: Any, tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    defaults = {"folder": str(tmp_path), "reads": KinesisStreams("clicks"), "writes": ParquetDataset("/out")}
    with pytest.raises(AirflowFailException, match=message):
        prepare_job(**with_ingestion(defaults | arguments), context=context)


# In the words of each submitter, held against the services' own descriptions


@pytest.fixture
def job() -> PreparedJob:
    return PreparedJob(
        source="clicks",
        owner="vm:dag:run+00:task:-1:1:ab",
        task=TASK,
        coordination_conn_id="coordination_default",
        application="s3://lake/coordination/packages/1/ingest.py",
        py_files="s3://lake/coordination/packages/2/airflow_provider_coordination.zip",
        arguments=(f"s3://lake/coordination/settings/3#{'k' * 43}", "vm:dag:run+00:task:-1:1:ab"),
        conf={"spark.executor.cores": "2", "spark.driver.extraJavaOptions": "-Da=b -Dc='d e'"},
    )


OPTIONS = [
    "--py-files",
    "s3://lake/coordination/packages/2/airflow_provider_coordination.zip",
    "--conf",
    "spark.executor.cores=2",
    "--conf",
    "spark.driver.extraJavaOptions=-Da=b -Dc='d e'",
]


@pytest.fixture
def stub_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Stubber]]:
    """Put a client in place that checks requests against the service's description, and answers as it would."""
    import boto3

    def stub(hook: str, service: str) -> Stubber:
        client = boto3.client(
            service, region_name="eu-west-1", aws_access_key_id="AKIAEXAMPLE", aws_secret_access_key=SECRET
        )
        monkeypatch.setattr(f"airflow.providers.amazon.aws.hooks.{hook}.conn", client)
        made = Stubber(client)
        made.activate()
        return made

    return stub


def test_emr_operator_adds_the_step_to_a_cluster(job: PreparedJob, stub_client: Any, context: Any) -> None:
    from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator

    step = emr_step(job, name="ingest clicks")
    args = step["HadoopJarStep"]["Args"]
    assert args == ["spark-submit", "--deploy-mode", "cluster", *OPTIONS, job.application, *job.arguments]
    stub = stub_client("emr.EmrHook", "emr")
    stub.add_response("describe_cluster", {"Cluster": {"Id": "j-1"}}, {"ClusterId": "j-1"})
    stub.add_response("add_job_flow_steps", {"StepIds": ["s-1"], **OK}, {"JobFlowId": "j-1", "Steps": [step]})
    submit = EmrAddStepsOperator(task_id="submit", job_flow_id="j-1", steps=[step])
    assert submit.execute({**context, "ti": RecordingTaskInstance()}) == ["s-1"]
    stub.assert_no_pending_responses()


OK = {"ResponseMetadata": {"HTTPStatusCode": 200}}


class RecordingTaskInstance:
    dag_id, task_id, run_id, map_index, try_number = "dag", "task", "run", -1, 1
    stats_tags: ClassVar[dict[str, str]] = {}

    def xcom_push(self, **pushed: Any) -> None:
        pass


def test_emr_serverless_operator_starts_the_job_run(job: PreparedJob, stub_client: Any, context: Any) -> None:
    from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator

    driver = emr_serverless_driver(job)
    assert shlex.split(driver["sparkSubmit"]["sparkSubmitParameters"]) == OPTIONS
    stub = stub_client("emr.EmrServerlessHook", "emr-serverless")
    stub.add_response("get_application", {"application": serverless_application()}, {"applicationId": "00example"})
    asked = {"applicationId": "00example", "executionRoleArn": ROLE, "jobDriver": driver}
    answer = {"applicationId": "00example", "jobRunId": "r-1", "arn": f"arn:aws:emr-serverless:::{'x' * 60}", **OK}
    stub.add_response("start_job_run", answer, {**asked, "clientToken": "t", "name": "ingest"})
    submit = EmrServerlessStartJobOperator(
        task_id="submit", application_id="00example", execution_role_arn=ROLE, job_driver=driver,
        client_request_token="t", name="ingest", wait_for_completion=False,
    )  # fmt: skip
    assert submit.execute({**context, "ti": RecordingTaskInstance()}) == "r-1"
    stub.assert_no_pending_responses()


def serverless_application() -> dict[str, Any]:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    return {
        "applicationId": "00example", "arn": f"arn:aws:emr-serverless:::{'x' * 60}", "releaseLabel": "emr-8.0.0",
        "type": "SPARK", "state": "STARTED", "createdAt": noon, "updatedAt": noon,
    }  # fmt: skip


def test_emr_on_eks_accepts_the_driver(job: PreparedJob) -> None:
    import botocore.session
    from botocore.validate import validate_parameters

    model = botocore.session.get_session().get_service_model("emr-containers").operation_model("StartJobRun")
    asked = {
        "name": "ingest", "virtualClusterId": "v1", "clientToken": "t", "executionRoleArn": ROLE,
        "releaseLabel": "emr-8.0.0-latest", "jobDriver": emr_containers_driver(job),
    }  # fmt: skip
    validate_parameters(asked, model.input_shape)
    driver = emr_containers_driver(job)["sparkSubmitJobDriver"]
    assert driver["entryPoint"] == job.application and driver["entryPointArguments"] == list(job.arguments)


@pytest.fixture
def glue_job(job: PreparedJob) -> PreparedJob:
    """The job with properties that Glue can take."""
    return replace(job, conf={"spark.yarn.maxAppAttempts": "1", "spark.executor.cores": "2", "spark.a": "b=c"})


def test_glue_operator_makes_the_glue_job_and_starts_a_run(
    glue_job: PreparedJob, stub_client: Any, context: Any
) -> None:
    from airflow.providers.amazon.aws.operators.glue import GlueJobOperator

    arguments = glue_arguments(glue_job, python_modules=["cryptography==46.0.3", "pyarrow>=18.0"])
    assert arguments == {
        "--scriptLocation": glue_job.application,
        "--extra-py-files": glue_job.py_files,
        "--job-bookmark-option": "job-bookmark-disable",
        "--conf": "spark.executor.cores=2 --conf spark.a=b=c",
        "--additional-python-modules": "cryptography==46.0.3,pyarrow>=18.0",
        "--coordination-settings": glue_job.arguments[0],
        "--coordination-owner": glue_job.owner,
    }
    workers = {"GlueVersion": "6.0", "WorkerType": "G.1X", "NumberOfWorkers": 2}
    stub = stub_client("glue.GlueJobHook", "glue")
    stub.add_client_error("get_job", "EntityNotFoundException", expected_params={"JobName": "ingestion"})
    made = {
        "Name": "ingestion", "Description": "AWS Glue Job with Airflow", "Role": ROLE, "MaxRetries": 0,
        "ExecutionProperty": {"MaxConcurrentRuns": 1},
        "Command": {"Name": "glueetl", "ScriptLocation": glue_job.application}, **workers,
    }  # fmt: skip
    stub.add_response("create_job", {"Name": "ingestion", **OK}, made)
    stub.add_response("start_job_run", {"JobRunId": "jr_1", **OK}, {"JobName": "ingestion", "Arguments": arguments})
    submit = GlueJobOperator(
        task_id="submit", job_name="ingestion", script_location=glue_job.application, script_args=arguments,
        iam_role_arn=ROLE, create_job_kwargs=workers, wait_for_completion=False, region_name="eu-west-1",
    )  # fmt: skip
    assert submit.execute({**context, "ti": RecordingTaskInstance()}) == "jr_1"
    stub.assert_no_pending_responses()


def test_glue_arguments_without_properties_have_no_conf(job: PreparedJob) -> None:
    arguments = glue_arguments(replace(job, conf={"spark.yarn.maxAppAttempts": "1"}))
    assert "--conf" not in arguments and "--additional-python-modules" not in arguments


@pytest.mark.parametrize(
    ("changes", "modules", "message"),
    [
        ({"conf": {"spark.a": "x --conf spark.b=y"}}, (), r"conf 'spark.a' is 'x --conf spark.b=y': .* without spaces"),
        ({"conf": {"spark.a": "x\ty"}}, (), r"conf 'spark.a' is 'x\\ty': AWS Glue takes all properties as one text"),
        ({"conf": {"spark a": "x"}}, (), "conf 'spark a' is 'x': AWS Glue takes"),
        ({"conf": {"spark.yarn.queue": "q"}}, (), "conf 'spark.yarn.queue' does not apply to AWS Glue; leave it out"),
        ({"application": "/shared/ingest.py"}, (), "/shared/ingest.py: AWS Glue only reads s3:// URIs; give such a 'f"),
        ({"py_files": "s3://a/b.zip,c.py"}, (), "c.py: AWS Glue only reads s3:// URIs"),
        ({}, ("a==1,b==2",), "field 'python_modules': 'a==1,b==2' is not one module; give a text for each"),
        ({}, ("",), "field 'python_modules': '' is not one module"),
    ],
)
def test_job_that_glue_cannot_run_is_refused(
    glue_job: PreparedJob, changes: dict[str, Any], modules: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        glue_arguments(replace(glue_job, **changes), python_modules=modules)


def test_livy_and_databricks_accept_the_job(job: PreparedJob) -> None:
    assert livy_batch(job, name="ingest") == {
        "file": job.application,
        "args": list(job.arguments),
        "pyFiles": [job.py_files],
        "conf": job.conf,
        "name": "ingest",
    }
    assert databricks_task(job) == {"parameters": [*OPTIONS, job.application, *job.arguments]}


EXAMPLES = (
    "dataproc_ingestion", "dataproc_serverless_ingestion", "emr_ingestion", "emr_serverless_ingestion",
    "glue_ingestion", "livy_ingestion",
)  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_prepare_submit_and_follow(name: str) -> None:
    bag = DagBag(str(REPOSITORY / "dags" / f"{name}.py"))
    assert bag.import_errors == {}
    dag = bag.dags[name]
    assert dag.get_task("prepare").downstream_task_ids == {"submit", "follow"}
    assert dag.get_task("submit").downstream_task_ids == {"follow"}
    assert isinstance(dag.get_task("follow"), FollowJobOperator)


# Followed


def follow(job: PreparedJob) -> FollowJobOperator:
    return FollowJobOperator(task_id="follow", job=job.to_mapping())


def event(job: PreparedJob) -> dict[str, Any]:
    return {"status": "ended", "source": "clicks", "owner": job.owner, "log": None, "deadline": None}


def test_followed_job_leaves_no_settings_at_its_end(
    prepare: Any, folder: Path, context: Any, coordination: SourceCoordinator
) -> None:
    job = prepare()
    with pytest.raises(TaskDeferred) as defers:
        follow(job).execute(context)
    trigger = defers.value.trigger
    assert isinstance(trigger, JobTrigger) and trigger.owner == job.owner
    coordination.view.suspensions.suspend("ann")  # so that the driver ends before it needs Spark
    ran, again = run(job), run(job)
    assert ran.returncode == EXIT_SUCCESS, ran.stdout + ran.stderr
    assert settings_in(folder) == []
    assert again.returncode == EXIT_CONFIGURATION and "a driver has already read them" in again.stdout
    result = follow(job).execute_complete(context, event(job))
    assert result["owner"] == job.owner and "suspended by ann" in result["stopped_because"]


def test_driver_finds_its_arguments_among_those_of_glue(
    prepare: Any, folder: Path, coordination: SourceCoordinator
) -> None:
    job = prepare()
    coordination.view.suspensions.suspend("ann")  # so that the driver ends before it needs Spark
    of_glue = {"--JOB_ID": "j_7e0", "--JOB_RUN_ID": "jr_ff2", "--JOB_NAME": "a job", "--TempDir": "s3://tmp/"}
    own = {"--coordination-owner": job.arguments[1], "--coordination-settings": job.arguments[0]}
    passed = [text for pair in {**of_glue, **own, "--enable-metrics": "true"}.items() for text in pair]
    ran = run(job, [*passed, "--job-insights"])
    assert ran.returncode == EXIT_SUCCESS, ran.stdout + ran.stderr
    assert settings_in(folder) == []


@pytest.mark.parametrize("passed", [["--coordination-owner", "a", "--JOB_ID", "j"], ["a", "b", "c"]])
def test_driver_without_its_arguments_says_how_to_pass_them(prepare: Any, passed: list[str]) -> None:
    ran = run(prepare(), passed)
    assert ran.returncode == EXIT_CONFIGURATION
    assert "or both by name as --coordination-settings and --coordination-owner; got" in ran.stdout


def test_driver_of_another_job_cannot_open_the_settings(prepare: Any) -> None:
    job = prepare()
    ran = run(replace(job, arguments=(job.arguments[0], "another job")))
    assert ran.returncode == EXIT_CONFIGURATION and "and this is a driver of job 'another job'" in ran.stdout
    assert SECRET not in ran.stdout


def test_failed_job_fails_the_task_for_good(prepare: Any, jobs: Jobs, context: Any) -> None:
    job = prepare()
    jobs.end(job.owner, {"exit_code": 1, "error": "the job failed: no space"})
    with pytest.raises(AirflowFailException, match=r"no space; .* clear the task that prepared this one"):
        follow(job).execute(context)


def test_job_start_timeout_leaves_no_settings(prepare: Any, folder: Path, context: Any) -> None:
    job = prepare(start_timeout=0.001)
    with pytest.raises(AirflowFailException, match="did not begin by"):
        follow(job).execute(context)
    assert settings_in(folder) == []
    late = run(job)
    assert late.returncode == EXIT_CONFIGURATION and "do not exist" in late.stdout


def test_ending_the_task_by_hand_stops_the_job(prepare: Any, folder: Path, jobs: Jobs) -> None:
    job = prepare()
    in_loop(lambda watchers: JobTrigger(source="clicks", owner=job.owner).on_kill())
    known = jobs.get(job.owner)
    assert known is not None and known.stop is not None
    assert settings_in(folder) == []


def test_task_timeout_stops_the_job(prepare: Any, folder: Path, jobs: Jobs, context: Any) -> None:
    job = prepare()
    with pytest.raises(TaskDeferralTimeout):
        follow(job).resume_execution("__fail__", {"error": "Trigger timeout"}, context)
    known = jobs.get(job.owner)
    assert known is not None and known.stop == "its task ran out of time"
    assert settings_in(folder) == []


@pytest.mark.parametrize("job", [None, "x", {"source": "clicks"}])
def test_invalid_prepared_job_is_named(job: Any, context: Any) -> None:
    with pytest.raises(AirflowFailException, match="field 'job'"):
        FollowJobOperator(task_id="follow", job=job).execute(context)
