"""The Spark job as a task, with a stub in place of spark-submit."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_provider_coordination.airflow_names import AirflowException, AirflowFailException, AirflowTaskTimeout
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.jobs import Jobs, JobState
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.hooks.job_resources import job_processes
from airflow_provider_coordination.operators import spark_submit
from airflow_provider_coordination.operators.job_results import JobOutput
from airflow_provider_coordination.operators.packaging import local_environment, packaged_application
from airflow_provider_coordination.operators.spark_hook import YARN_CLIENT
from airflow_provider_coordination.operators.spark_submit import NOTHING_LEFT, CoordinatedSparkSubmitOperator
from airflow_provider_coordination.operators.supervisor import SubmitSupervisorOperator
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.job_settings import (
    AcknowledgmentSettings,
    BadRecordSettings,
    LeaseSettings,
    RejectionSettings,
    RoundSettings,
)
from airflow_provider_coordination.spark.outcome import EXIT_CONFIGURATION, EXIT_LOST_WORK, SUMMARY_MARK
from airflow_provider_coordination.spark.settings import IngestSettings, SettingsReference
from airflow_provider_coordination.spark.writes import DeltaTable, ForeachBatch, ParquetDataset
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.kinds.sql import SqlSettings
from tests.airflow.conftest import REPOSITORY, SECRET, StubSpark
from tests.support import java_home
from tests.support.ingestions import with_ingestion
from tests.support.spark_home import make_spark_home

ERROR_LINE = "2026-01-31 12:00:00,000 ERROR airflow_provider_coordination.spark.application: {}"


@pytest.fixture(autouse=True)
def connections(connect: Any, coordination: SourceCoordinator) -> None:
    extra = {"region_name": "eu-west-1", "endpoint_url": "http://127.0.0.1:4567"}
    connect("aws_default", "aws", login="AKIAEXAMPLE", password=SECRET, extra=extra)
    coordination.create_partitions({f"p{number}": {"n": number} for number in range(3)})


def mapped(**arguments: Any) -> object:
    """Return a mapped task."""
    defaults = {"reads": KinesisStreams("clicks"), "writes": ParquetDataset("/lake")}
    return CoordinatedSparkSubmitOperator.partial(task_id="ingest", **with_ingestion(defaults | arguments))


@pytest.fixture
def operator(spark: StubSpark, tmp_path: Path) -> Callable[..., CoordinatedSparkSubmitOperator]:
    def make(**arguments: Any) -> CoordinatedSparkSubmitOperator:
        defaults = {
            "task_id": "ingest",
            "reads": KinesisStreams("clicks"),
            "writes": ParquetDataset(str(tmp_path / "out")),
            "env_vars": {"PATH": spark.path},
        }
        return CoordinatedSparkSubmitOperator(**with_ingestion(defaults | arguments))

    return make


def owners(coordination: SourceCoordinator) -> dict[str, str | None]:
    return {p.partition_key: p.owner for p in coordination.view.partitions()}


# The job's settings


def test_job_receives_settings_in_a_temporary_private_file(
    operator: Any, spark: StubSpark, context: Any, tmp_path: Path, store_url: str
) -> None:
    operator(
        workers="2",
        leases=LeaseSettings(max_leases="5"),
        rounds=RoundSettings(
            until_caught_up="False",
            max_duration=timedelta(minutes=2),
            max_idle_rounds="",
            round_duration="1.5",
            idle_duration=0,
        ),
        landing_path="None",
        transform="my.module:clean",
    ).execute(context)
    (call,) = spark.calls
    assert (call["mode"], call["folder_mode"]) == ("0o600", "0o700")
    assert not Path(call["settings_file"]).parent.exists()
    settings = call["settings"]
    host, *rest, _ = settings["owner"].split(":")
    assert host
    assert rest == ["dag", "run", "task", "3", "2"]
    expected = {
        "source": "clicks",
        "landing_path": str(tmp_path / "out" / "_landing"),
        "store": write_settings(StoreSettings.of("sql", SqlSettings(url=store_url))),
        "workers": 2,
        "leases": write_settings(LeaseSettings(max_leases=5)),
        "rounds": write_settings(
            RoundSettings(
                until_caught_up=False,
                max_duration=timedelta(minutes=2),
                round_duration=timedelta(seconds=1.5),
                idle_duration=timedelta(0),
            )
        ),
        "transform": "my.module:clean",
        "ownership_timeout": "PT60.000000S",
    }
    assert {name: settings[name] for name in expected} == expected
    streams = settings["reads"]["settings"]
    assert (settings["reads"]["kind"], streams["streams"], streams["aws"]["region"]) == (
        "kinesis",
        ["clicks"],
        "eu-west-1",
    )
    assert streams["aws"]["secret_access_key"] == SECRET


def test_unsupported_spark_fails_the_task_before_submission(
    operator: Any, spark: StubSpark, context: Any, tmp_path: Path
) -> None:
    make_spark_home(tmp_path / "spark", "3.4.4")
    environment = {"PATH": spark.path, "SPARK_HOME": str(tmp_path / "spark")}
    with pytest.raises(AirflowFailException, match=r"Spark 3\.4\.4 in .* is not supported; use Spark 3\.5 or 4"):
        operator(env_vars=environment).execute(context)
    assert spark.calls == []


def test_spark_version_of_a_cluster_is_not_checked(
    operator: Any, spark: StubSpark, context: Any, connect: Any, tmp_path: Path
) -> None:
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": "client"})
    make_spark_home(tmp_path / "spark", "3.5.9")
    operator(env_vars={"PATH": spark.path, "SPARK_HOME": str(tmp_path / "spark")}).execute(context)
    assert len(spark.calls) == 1


def test_sinks_and_bad_record_settings_reach_the_job(operator: Any, spark: StubSpark, context: Any) -> None:
    operator(
        schema="amount DOUBLE",
        writes=[
            ParquetDataset("/lake/small", where="amount <= 100"),
            ParquetDataset("/lake/large", name="large", where="amount > 100"),
            ParquetDataset("/copy", name="copy"),
        ],
        bad_records=BadRecordSettings(
            dead_letter_path="/lake/dead", max_parse_exceptions=10, max_saved_parse_exceptions=3, keeps_rejected=True
        ),
    ).execute(context)
    settings = spark.calls[0]["settings"]
    assert settings["schema"] == "amount DOUBLE"
    parquet = {"kind": "parquet", "implementation": None, "aws": None, "files": None}
    assert [{name: value for name, value in each.items() if name != "settings"} for each in settings["writes"]] == [
        {**parquet, "name": "main", "location": "/lake/small", "where": "amount <= 100"},
        {**parquet, "name": "large", "location": "/lake/large", "where": "amount > 100"},
        {**parquet, "name": "copy", "location": "/copy", "where": None},
    ]
    assert settings["bad_records"] == {
        "dead_letter_path": "/lake/dead",
        "max_parse_exceptions": 10,
        "max_saved_parse_exceptions": 3,
        "max_refused_share": None,
        "keeps_rejected": True,
    }


def test_record_time_bounds_reach_the_job_as_instants(operator: Any, spark: StubSpark, context: Any) -> None:
    bounds = RejectionSettings(event_time="at", earliest="2026-01-01T02:00:00+02:00", latest="")  # type: ignore[arg-type]
    operator(schema="at TIMESTAMP", rejection=bounds).execute(context)
    assert spark.calls[0]["settings"]["rejection"] == {
        "event_time": "at",
        "earliest": "2026-01-01T00:00:00.000000Z",
        "latest": None,
    }


@pytest.mark.parametrize(
    ("by", "handles"),
    [
        ("job", ()),
        ("", ()),
        ("downstream", ("downstream",)),
        (["check", "load"], ("check", "load")),
    ],
)
def test_acknowledgment_settings_reach_the_job(
    operator: Any, spark: StubSpark, context: Any, by: Any, handles: tuple[str, ...]
) -> None:
    given = AcknowledgmentSettings(by=by, timeout=timedelta(hours=2), max_pending_batches=4)
    operator(acknowledgments=given).execute(context)
    settings = spark.calls[0]["settings"]
    received = read_settings(AcknowledgmentSettings, "acknowledgments", settings["acknowledgments"])
    assert received.handles == handles
    assert (received.timeout, received.max_pending_batches) == (timedelta(hours=2), 4)
    assert settings["run"] == "dag/run"


def test_settings_expire_with_the_execution_timeout(
    operator: Any, spark: StubSpark, context: Any, tmp_path: Path
) -> None:
    for arguments, minutes in (({}, 60), ({"execution_timeout": timedelta(minutes=5)}, 5)):
        operator(**arguments).execute(context)
        path = tmp_path / "settings.json"
        path.write_text(json.dumps(spark.calls[-1]["settings"]))
        reference, owner = SettingsReference(uri=str(path)), spark.calls[-1]["settings"]["owner"]
        settings = IngestSettings.read(reference, owner, datetime.now(UTC))
        assert timedelta(minutes=minutes - 1) < settings.expires_at - datetime.now(UTC) <= timedelta(minutes=minutes)


def test_secrets_stay_out_of_command_environment_and_log(
    operator: Any, spark: StubSpark, context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.will(exit=1, lines=["working"])
    with pytest.raises(AirflowException) as error:
        operator().execute(context)
    (call,) = spark.calls
    assert call["arguments"][-2:] == [call["settings_file"], call["settings"]["owner"]]
    added = {name: value for name, value in call["environment"].items() if os.environ.get(name) != value}
    log = capsys.readouterr().out
    assert "working" in log
    for place in (call["arguments"], added, log, str(error.value)):
        assert SECRET not in str(place)
        assert "coordination.db" not in str(place)


def test_package_ships_beside_the_files_of_the_user(operator: Any, spark: StubSpark, context: Any) -> None:
    operator(py_files="mine.py").execute(context)
    (call,) = spark.calls
    given = call["arguments"][call["arguments"].index("--py-files") + 1]
    assert given.startswith("mine.py,")
    with zipfile.ZipFile(call["archive"]) as archive:
        names = archive.namelist()
    assert "airflow_provider_coordination/spark/application.py" in names
    assert {Path(name).suffix for name in names} <= {".py", ".pyc"}


def test_packaged_application_runs_by_default(operator: Any, spark: StubSpark, context: Any) -> None:
    operator().execute(context)
    (call,) = spark.calls
    assert call["arguments"][-3] == packaged_application("ingest.py")
    assert Path(call["arguments"][-3]).read_text() == (REPOSITORY / "spark_apps" / "ingest.py").read_text()


def test_local_driver_finds_spark_and_python(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    added = local_environment({"PATH": "/usr/bin"})
    assert added["SPARK_HOME"] == str(Path(pyspark.__file__).parent)
    assert Path(added["PATH"].split(os.pathsep)[0], "spark-submit").exists()
    assert added["PYSPARK_PYTHON"] == added["PYSPARK_DRIVER_PYTHON"]


def test_user_environment_is_kept(operator: Any, spark: StubSpark, context: Any) -> None:
    assert "SPARK_HOME" not in local_environment({"SPARK_HOME": "/opt/spark", "PATH": ""})
    operator(env_vars={"PATH": spark.path, "SPARK_HOME": "/opt/spark", "MINE": "1"}).execute(context)
    (call,) = spark.calls
    assert call["environment"]["SPARK_HOME"] == "/opt/spark"
    assert call["environment"]["MINE"] == "1"
    assert call["environment"]["PYSPARK_PYTHON"]


def test_remote_executors_receive_no_local_python_path(
    operator: Any, spark: StubSpark, context: Any, connect: Any
) -> None:
    connect("spark_default", "spark", host="spark://master", port=7077)
    operator().execute(context)
    (call,) = spark.calls
    assert call["environment"]["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert "PYSPARK_PYTHON" not in call["environment"]


def test_remote_executors_run_the_python_of_the_user(
    operator: Any, spark: StubSpark, context: Any, connect: Any
) -> None:
    connect("spark_default", "spark", host="spark://master", port=7077)
    operator(env_vars={"PATH": spark.path, "PYSPARK_PYTHON": "/opt/python"}).execute(context)
    (call,) = spark.calls
    assert call["environment"]["PYSPARK_PYTHON"] == "/opt/python"


@pytest.mark.parametrize("deferrable", [False, True])
def test_standalone_cluster_without_python_drivers_is_refused(
    operator: Any, spark: StubSpark, context: Any, connect: Any, deferrable: bool
) -> None:
    connect("spark_default", "spark", host="spark://master", port=7077, extra={"deploy-mode": "cluster"})
    with pytest.raises(
        AirflowFailException, match="field 'deploy_mode' is 'cluster' with master 'spark://master:7077'"
    ):
        operator(deferrable=deferrable).execute(context)
    assert spark.calls == []


def test_cluster_mode_on_yarn_ships_settings_in_the_program(
    operator: Any,
    spark: StubSpark,
    context: Any,
    connect: Any,
    monkeypatch: pytest.MonkeyPatch,
    coordination: SourceCoordinator,
) -> None:
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": "cluster"})
    monkeypatch.setenv("PATH", spark.path)
    operator(files="mine.conf", env_vars=None).execute(context)
    (call,) = spark.calls
    given, name = call["arguments"][call["arguments"].index("--files") + 1], call["arguments"][-2]
    assert given == f"mine.conf,{packaged_application('ingest.py')}", "files reach every executor"
    assert name == Path(call["settings_file"]).with_suffix(".json").name
    assert (call["arguments"][-3], call["mode"]) == (call["settings_file"], "0o600")
    assert not any("PYSPARK_PYTHON" in argument for argument in call["arguments"])
    assert "spark.yarn.maxAppAttempts=1" in call["arguments"], "the settings serve one driver"
    assert call["settings"]["is_followed"], "the store knows which driver that is"
    [job] = Jobs(coordination.view).of_task("dag/run/task/3")
    assert (job.owner, job.state, job.is_reported) == (call["arguments"][-1], JobState.ENDED, True)


# What is wrong before Spark starts


def a(topic: Any, **values: Any) -> Any:
    """Return a topic with values that are not of its types, as templates and people may give them."""
    return topic(**values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": "two"}, "field 'workers' must be a whole number; got 'two'"),
        ({"workers": -1}, "field 'workers' must be positive; got -1"),
        (
            {"rounds": a(RoundSettings, until_caught_up="perhaps")},
            "RoundSettings: field 'until_caught_up' must be true or false; got 'perhaps'",
        ),
        (
            {"rounds": a(RoundSettings, max_duration="1h")},
            "RoundSettings: field 'max_duration' must be an ISO 8601 duration such as PT1H",
        ),
        (
            {"rounds": a(RoundSettings, max_idle_rounds=1.5)},
            "RoundSettings: field 'max_idle_rounds' must be a whole number; got 1.5",
        ),
        (
            {"acknowledgments": a(AcknowledgmentSettings, by="check")},
            "AcknowledgmentSettings: field 'by' must be 'job', 'downstream' or a list of names; got 'check'",
        ),
        (
            {"acknowledgments": a(AcknowledgmentSettings, timeout=0)},
            "AcknowledgmentSettings: field 'timeout' must be positive; got PT0S",
        ),
        (
            {"writes": ParquetDataset("")},
            "ParquetDataset 'main': field 'path' is missing",
        ),
        ({"writes": "/data/lake"}, "field 'writes' must be a sink of 'spark.writes', such as ParquetDataset("),
        (
            {"writes": [ParquetDataset("/lake/clicks"), ParquetDataset("/lake/clicks/", name="copy")]},
            "sink 'main' of field 'writes' and sink 'copy' of field 'writes' have the same location, '/lake/clicks'",
        ),
        (
            {"writes": [ParquetDataset("/lake/clicks"), ParquetDataset("/lake/large")]},
            "field 'writes': number 1 and number 2 both have the name 'main'; give each sink its own 'name'",
        ),
        *(
            ({"transform": name}, "field 'transform' must be of the form 'module:function', such as")
            for name in (
                "clean",
                "my transform",
                "transforms.py",
                "pkg/mod.py:fn",
                "transforms.py:fn",
                "pkg.mod",
                "m:f()",
            )
        ),
        (
            {"writes": ForeachBatch(function="publishing.py:send", staging_path="/staging")},
            "ForeachBatch 'main': field 'function' must be of the form 'module:function', such as",
        ),
        ({"source": "a|b"}, "source 'a|b' is not usable"),
    ],
)
def test_wrong_settings_are_refused_when_parsed(operator: Any, arguments: dict[str, Any], message: str) -> None:
    for make in (operator, mapped):
        with pytest.raises(ConfigurationError) as error:
            make(**arguments)
        assert message in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"acknowledgments": a(AcknowledgmentSettings, by=["main"])},
            "AcknowledgmentSettings: field 'by': 'main' is the name of a sink",
        ),
        ({"coordination_conn_id": "absent"}, "connection 'absent' is not defined"),
        ({"transform": "{{ 'clean' }}"}, "field 'transform' must be of the form 'module:function', such as"),
    ],
)
def test_wrong_settings_fail_without_a_retry_before_spark_starts(
    operator: Any, spark: StubSpark, context: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(AirflowFailException) as error:
        operator(**arguments).execute(context)
    assert message in str(error.value)
    assert spark.calls == []


def test_function_given_as_transform_is_refused_when_parsed(operator: Any) -> None:
    message = (
        "Ingestion: field 'transform' is the function 'len' itself, which cannot be passed to "
        "Spark; give its name as text, such as 'my_project.transforms:len', and ship its module with 'py_files'"
    )
    for make in (operator, mapped):
        with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}$"):
            make(transform=len)
    with pytest.raises(ConfigurationError, match=r"the function '<lambda>' itself.*'my_project.transforms:clean'"):
        ForeachBatch(function=lambda rows, ids: None, staging_path="/staging")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^spec: field 'transform' is the function 'len' itself"):
        SubmitSupervisorOperator(task_id="submit", spec={"transform": len})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"landing_path": "landing"}, "^field 'landing_path' is 'landing', which depends on the working directory"),
        (
            {"writes": ParquetDataset("lake")},
            "^the folder of ParquetDataset in field 'writes' is 'lake', which depends",
        ),
        (
            {"landing_path": "s3://a/raw", "bad_records": BadRecordSettings(dead_letter_path="s3a://a/raw/dead")},
            "^field 'dead_letter_path' of BadRecordSettings is in 's3a://a/raw/dead', inside 'landing_path' 's3://a/raw'",
        ),
        (
            {"landing_path": "/data/raw", "writes": ParquetDataset("/data/raw/lake")},
            "^sink 'main' of field 'writes' is in '/data/raw/lake', inside 'landing_path' '/data/raw'",
        ),
        (
            {"landing_path": "s3a://lake/clicks/raw", "writes": DeltaTable("s3://lake/clicks", name="table")},
            "^field 'landing_path' is 's3a://lake/clicks/raw', where readers of sink 'table' of field 'writes' would",
        ),
        (
            {"writes": [ParquetDataset("/lake"), ParquetDataset("/lake/_landing/b", name="b")]},
            "^sink 'b' of field 'writes' is in '/lake/_landing/b', inside 'landing_path' '/lake/_landing'",
        ),
    ],
)
def test_wrong_folders_are_refused_when_parsed(operator: Any, arguments: dict[str, Any], message: str) -> None:
    for make in (operator, mapped):
        with pytest.raises(ConfigurationError, match=message):
            make(**arguments)
    templates = BadRecordSettings(dead_letter_path="{{ var.value.dead }}")
    operator(landing_path="{{ var.value.raw }}", writes=ParquetDataset("{{ ds }}/lake"), bad_records=templates)
    operator(landing_path="{{ var.value.raw }}", writes=ParquetDataset("/lake"))
    operator(landing_path="/lake/raw", writes=ParquetDataset("/lake/{{ ds }}"))


def test_durable_is_refused(operator: Any) -> None:
    with pytest.raises(ValueError, match="each try starts a new job"):
        operator(durable=True)
    assert operator(durable=False).durable is False


# Which DAG delivers the source


def test_second_dag_that_writes_elsewhere_is_refused(
    operator: Any, spark: StubSpark, context: Any, tmp_path: Path
) -> None:
    operator().execute(context)
    context["ti"].dag_id = "second"
    with pytest.raises(AirflowFailException) as error:
        operator(writes=ParquetDataset("/second")).execute(context)
    assert "source 'clicks' is delivered by DAG 'dag', by its task 'task'" in str(error.value)
    assert "but DAG 'second' delivers it elsewhere" in str(error.value)
    assert f"sink main '/second' here and '{tmp_path}/out' there" in str(error.value)
    assert len(spark.calls) == 1


def test_tasks_that_write_to_the_same_place_share_the_source(
    operator: Any, spark: StubSpark, context: Any, tmp_path: Path
) -> None:
    operator().execute(context)
    context["ti"].task_id = "second"
    operator().execute(context)
    context["ti"].dag_id = "second"
    operator(writes=ParquetDataset(f"{tmp_path}/out/")).execute(context)
    assert len(spark.calls) == 3


def test_interval_may_be_delivered_elsewhere_by_another_dag(
    operator: Any, spark: StubSpark, context: Any, coordination: SourceCoordinator
) -> None:
    operator().execute(context)
    context["ti"].dag_id = "backfill"
    interval = "2026-01-01T00:00:00Z/PT1H"
    result = operator(writes=ParquetDataset("/second"), interval=interval).execute(context)
    assert result["stopped_because"] == NOTHING_LEFT, "it has no partitions, and is not refused"


# How the job ends


def test_job_summary_is_the_result_and_output_is_logged(
    operator: Any, spark: StubSpark, context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.will(lines=["round 1", SUMMARY_MARK + json.dumps({"records": 7}), "stopping"])
    result = operator().execute(context)
    log = capsys.readouterr().out
    assert result == {"owner": spark.calls[0]["settings"]["owner"], "records": 7}
    for line in ("round 1", "stopping", f"owner={result['owner']}"):
        assert line in log


def test_damaged_summary_is_ignored(operator: Any, spark: StubSpark, context: Any) -> None:
    spark.will(lines=[SUMMARY_MARK + "{oops"])
    assert list(operator().execute(context)) == ["owner"]


def test_job_with_wrong_settings_fails_without_a_retry(operator: Any, spark: StubSpark, context: Any) -> None:
    said = "configuration error: stream 'clicks' does not exist"
    spark.will(exit=EXIT_CONFIGURATION, lines=[ERROR_LINE.format(said), "INFO ShutdownHookManager: bye"])
    with pytest.raises(AirflowFailException) as error:
        operator().execute(context)
    assert str(error.value) == said


def test_too_old_java_fails_without_a_retry(operator: Any, spark: StubSpark, context: Any) -> None:
    spark.will(exit=1, lines=java_home.TOO_OLD.splitlines())
    with pytest.raises(AirflowFailException) as error:
        operator().execute(context)
    assert str(error.value) == (
        "Java 11 is too old for this Spark, which needs Java 17; "
        "install Java 17 or newer, and name its folder in JAVA_HOME"
    )


def test_job_that_lost_its_leases_may_be_retried(operator: Any, spark: StubSpark, context: Any) -> None:
    spark.will(exit=EXIT_LOST_WORK, lines=[ERROR_LINE.format("leases were lost: p1")])
    with pytest.raises(AirflowException, match="leases were lost: p1; no data is lost, a retry") as error:
        operator().execute(context)
    assert not isinstance(error.value, AirflowFailException)


def test_killed_job_is_reported_as_killed() -> None:
    assert "killed by SIGKILL; no data is lost, a retry" in str(JobOutput().exception_for(-signal.SIGKILL))
    assert "killed by signal 200" in str(JobOutput().exception_for(-200))


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("\t diagnostics: User application exited with status 78", AirflowFailException, "refused to begin"),
        ("\t diagnostics: User application exited with status 1", AirflowException, "exit code 1 and recorded no"),
        ("org.apache.spark.SparkUserAppException: User application exited with 137", AirflowException,
         "exit code 137 (SIGKILL) and recorded no outcome; read its log, as by 'yarn logs -applicationId "),
    ],
)  # fmt: skip
def test_exit_code_of_a_container_explains_the_failure(line: str, kind: type[Exception], message: str) -> None:
    output = JobOutput()
    for _ in output.observe(["1 INFO YarnClientImpl: Submitted application application_1_2", line]):
        pass
    error = output.exception_for(1)
    assert type(error) is kind
    assert message in str(error)
    assert output.application_id == "application_1_2"


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_killed_task_ends_its_yarn_application_without_yarn(
    operator: Any, spark: StubSpark, context: Any, connect: Any, monkeypatch: pytest.MonkeyPatch,
    coordination: SourceCoordinator, killed_like_a_task: Any,
) -> None:  # fmt: skip
    """The command `yarn`, which the provider would need, is not among what pip installs."""
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": "cluster"})
    monkeypatch.setenv("PATH", spark.path)
    ended = spark.folder / "ended"
    (spark.folder / "spark-class").write_text(f'#!/bin/sh\necho "$@" > {ended}\n')
    (spark.folder / "spark-class").chmod(0o755)
    spark.will(acquire=2, lines=["1 INFO Client: Submitted application application_1_2"], sleep=60)
    op = operator(env_vars=None)
    killed_like_a_task(op, is_due=lambda: op._hook is not None and op._hook._yarn_application_id is not None)
    with pytest.raises(AirflowException):
        op.execute(context)
    assert ended.read_text().split() == [YARN_CLIENT, "application", "-kill", "application_1_2"]
    assert set(owners(coordination).values()) == {None}


def test_failed_job_reports_its_own_error(operator: Any, spark: StubSpark, context: Any) -> None:
    spark.will(exit=1, lines=[ERROR_LINE.format("failed: partition=p1: the transform failed"), "INFO bye"])
    with pytest.raises(
        AirflowException, match="failed: partition=p1: the transform failed; landed data is kept"
    ) as error:
        operator().execute(context)
    assert not isinstance(error.value, AirflowFailException)


def test_other_failure_is_reported_by_the_provider(operator: Any, spark: StubSpark, context: Any) -> None:
    spark.will(exit=1, lines=["the last words"])
    with pytest.raises(AirflowException, match=r"Error code is: 1\.[\s\S]*the last words"):
        operator().execute(context)


def test_secrets_in_the_output_reach_no_log_or_result(
    operator: Any, spark: StubSpark, context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = SUMMARY_MARK + json.dumps({"failed": {"p1": f"cannot sign with {SECRET}"}})
    spark.will(lines=[f"cannot sign with {SECRET}", "with of-the-conf", summary])
    result = operator(conf={"spark.my.password": "of-the-conf"}).execute(context)
    assert result["failed"] == {"p1": "cannot sign with ***"}
    printed = capsys.readouterr().out
    assert "cannot sign with ***" in printed and SECRET not in printed and "with of-the-conf" not in printed


def test_secrets_in_the_last_error_do_not_reach_the_task(operator: Any, spark: StubSpark, context: Any) -> None:
    spark.will(exit=1, lines=[ERROR_LINE.format(f"failed: cannot sign with {SECRET}")])
    with pytest.raises(AirflowException, match=r"failed: cannot sign with \*\*\*; landed data is kept"):
        operator().execute(context)


# What is released


@pytest.mark.parametrize(
    "code", [1, *(pytest.param(code, marks=pytest.mark.integration) for code in (EXIT_LOST_WORK, EXIT_CONFIGURATION))]
)
def test_failed_job_releases_its_leases_with_their_progress(
    operator: Any,
    spark: StubSpark,
    context: Any,
    coordination: SourceCoordinator,
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spark.will(exit=code, acquire=2)
    with pytest.raises(AirflowException):
        operator().execute(context)
    assert "2 leases released" in capsys.readouterr().out
    assert [p.progress for p in sorted(coordination.view.partitions(), key=lambda p: p.partition_key)] == [
        {"n": 0},
        {"n": 1},
        {"n": 2},
    ]
    assert coordination.view.count_by_status()[PartitionStatus.UNASSIGNED] == 3


def test_leases_of_others_are_left_alone(
    operator: Any, spark: StubSpark, context: Any, coordination: SourceCoordinator
) -> None:
    held = coordination.leases.acquire(1)[0].partition_key
    spark.will(exit=1, acquire=2)
    with pytest.raises(AirflowException):
        operator().execute(context)
    assert {key: owner for key, owner in owners(coordination).items() if owner} == {held: "test"}


@pytest.fixture
def killed_like_a_task(spark: StubSpark) -> Iterator[Callable[..., None]]:
    """Arrange for what Airflow does: SIGTERM to the task process, whose handler calls `on_kill`."""
    before = signal.getsignal(signal.SIGTERM)

    def arrange(operator: CoordinatedSparkSubmitOperator, *, is_due: Callable[[], bool] = lambda: True) -> None:
        signal.signal(signal.SIGTERM, lambda signum, frame: operator.on_kill())

        def kill() -> None:
            spark.wait_for_a_call()
            while not is_due():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=kill, daemon=True).start()

    yield arrange
    signal.signal(signal.SIGTERM, before)


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_killed_job_releases_its_leases_and_leaves_no_process(
    operator: Any, spark: StubSpark, context: Any, coordination: SourceCoordinator, killed_like_a_task: Any
) -> None:
    spark.will(acquire=2, sleep=3600, child=True)
    op = operator()
    killed_like_a_task(op)
    with pytest.raises(AirflowException):
        op.execute(context)
    assert set(owners(coordination).values()) == {None}
    child = spark.calls[0]["child"]
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    assert not Path(spark.calls[0]["settings_file"]).exists()


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_leases_are_released_if_the_job_cannot_be_stopped(
    operator: Any, spark: StubSpark, context: Any, coordination: SourceCoordinator, killed_like_a_task: Any,
    connect: Any, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    # The post-submit commands and the kill of the hook run on a process that is broken for this purpose.
    spark.will(acquire=1, sleep=60)
    op = operator()

    class UnkillableProcess:
        returncode = None

        def poll(self) -> None:
            raise OSError("out of reach")

    op_get_hook = op._get_hook

    def get_hook() -> Any:
        hook = op_get_hook()
        on_kill = hook.on_kill

        def broken() -> None:
            process, hook._submit_sp = hook._submit_sp, UnkillableProcess()
            try:
                on_kill()
            finally:
                hook._submit_sp = process

        hook.on_kill = broken
        return hook

    op._get_hook = get_hook
    killed_like_a_task(op)
    with pytest.raises(AirflowException):
        op.execute(context)
    assert "the job may not have been stopped" in capsys.readouterr().out
    assert set(owners(coordination).values()) == {None}


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_timed_out_job_is_stopped_before_its_leases_are_released(
    operator: Any, spark: StubSpark, context: Any, coordination: SourceCoordinator
) -> None:
    from airflow.sdk.execution_time.timeout import timeout

    spark.will(acquire=2, sleep=60, child=True)
    op = operator()

    def ring() -> None:  # the timeout's alarm, as soon as the job runs
        spark.wait_for_a_call()
        os.kill(os.getpid(), signal.SIGALRM)

    threading.Thread(target=ring, daemon=True).start()
    with pytest.raises(AirflowTaskTimeout), timeout(60):
        op.execute(context)
    assert set(owners(coordination).values()) == {None}
    assert job_processes(spark.calls[0]["settings_file"]) == []
    op.on_kill()  # as Airflow does after a timeout


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_kill_within_a_transaction_releases_the_leases(
    operator: Any, spark: StubSpark, context: Any, coordination: SourceCoordinator, killed_like_a_task: Any,
    store_url: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(spark_submit, "KILL_WAIT_SECONDS", 0.1)
    spark.will(acquire=2, sleep=60)
    op = operator()
    kill = op.on_kill

    def kill_within_a_transaction() -> None:
        with closing(sqlite3.connect(store_url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            kill()
            assert any(owners(coordination).values()), "the release waits for this transaction"
            connection.execute("COMMIT")

    op.on_kill = kill_within_a_transaction
    killed_like_a_task(op)
    with pytest.raises(AirflowException):
        op.execute(context)
    assert set(owners(coordination).values()) == {None}


def test_on_kill_before_the_job_began_does_nothing(operator: Any) -> None:
    operator().on_kill()


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_unavailable_store_does_not_hide_the_job_error(
    operator: Any,
    spark: StubSpark,
    context: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark.will(exit=1, lines=["the last words"], sleep=2)

    def lose_the_store() -> None:
        spark.wait_for_a_call()
        for file in tmp_path.glob("coordination.db*"):
            file.unlink()
        (tmp_path / "coordination.db").mkdir()

    threading.Thread(target=lose_the_store, daemon=True).start()
    with pytest.raises(AirflowException, match="the last words"):
        operator().execute(context)
    assert "leases could not be released, they expire within 60 seconds" in capsys.readouterr().out


def test_every_try_is_a_new_owner(operator: Any, spark: StubSpark, context: Any) -> None:
    op = operator()
    assert op.execute(context)["owner"] != op.execute(context)["owner"]
    assert all(call["arguments"].count("--py-files") == 1 for call in spark.calls)
    assert "," not in spark.calls[1]["arguments"][spark.calls[1]["arguments"].index("--py-files") + 1]
