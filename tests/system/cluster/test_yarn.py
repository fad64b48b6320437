"""Deploy mode `cluster` on YARN: tasks submit to a real resource manager, and drivers run in containers.

The jobs have the Spark of SPARK_HOME, or of this Python, and Airflow's Python may have another one or none.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import psutil
import pyarrow.dataset as ds
import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable as Table
from pyarrow import fs
from sqlalchemy import create_engine, make_url, text

from airflow_provider_coordination.airflow_names import AirflowException, AirflowFailException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.prepared_jobs import emr_step, prepare_job
from airflow_provider_coordination.operators.spark_hook import NOT_FOLLOWED
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.sinks.delta.log import storage_options
from airflow_provider_coordination.spark.writes import DeltaTable, ParquetDataset
from airflow_provider_coordination.spark.writes.sql import SqlTable
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.versions import find_installation
from tests.airflow.conftest import run_dag
from tests.support.executor_python import pythons_of_other_minors
from tests.support.s3_server import ALLOWED, REGION, S3Server
from tests.support.servers import available
from tests.support.spark_job import CRASHING
from tests.support.waiting import PATIENCE_SECONDS, until
from tests.support.yarn_cluster import YarnCluster, YarnClusterError

pytestmark = [pytest.mark.only_deep(daily=False), pytest.mark.timeout(600)]

SOURCE = "events"
PASSWORD = "store-passw0rd-of-ours"
SECRETS = (PASSWORD, ALLOWED[1])
Connect = Callable[..., None]
Found = TypeVar("Found")


@pytest.fixture(scope="session")
def yarn(java: str) -> Iterator[YarnCluster]:
    """The cluster of the test run."""
    with available(YarnCluster, YarnClusterError, "YARN") as cluster:
        yield cluster


@dataclass(kw_only=True)
class Ingested:
    """Files in a bucket, which tasks ingest into three sinks by jobs on YARN."""

    yarn: YarnCluster
    s3: S3Server
    bucket: str
    postgres: str
    spark_home: str
    put: list[str] = field(default_factory=list)

    @property
    def reads(self) -> S3Objects:
        return S3Objects(f"s3://{self.bucket}/in/", source=SOURCE, max_objects=1)

    def add(self, files: int, records_each: int = 10) -> None:
        """Add files, each of which is a partition, and create their partitions."""
        for _ in range(files):
            ids = [uuid.uuid4().hex for _ in range(records_each)]
            body = "".join(f"{json.dumps({'id': each})}\n" for each in ids)
            self.s3.client().put_object(Bucket=self.bucket, Key=f"in/{ids[0]}.json", Body=body.encode())
            self.put += ids
        CreatePartitionsOperator(task_id="find", reads=self.reads).execute(context("find"))

    def ingestion(self, **options: Any) -> Ingestion:
        """Return the ingestion of the files into the sinks."""
        root, access = f"s3://{self.bucket}", {"aws_conn_id": "aws_default"}
        return Ingestion(
            reads=self.reads,
            writes=[
                ParquetDataset(f"{root}/parquet", name="parquet", **access),
                DeltaTable(f"{root}/delta", name="delta", **access),
                SqlTable("events", conn_id="warehouse", staging_path=f"{root}/rows", name="sql", **access),
            ],
            **{"schema": "id STRING NOT NULL", **options},
        )

    def task(self, options: Mapping[str, Any] | None = None, **given: Any) -> Any:
        """Return a task that ingests the files.

        :param options: those of the ingestion.
        :param given: arguments of the operator.
        """
        ingestion = self.ingestion(**(options or {}))
        conf = {**self.yarn.conf(self.spark_home), **given.pop("conf", {})}
        return CoordinatedSparkSubmitOperator(task_id="ingest", ingestion=ingestion, conf=conf, **given)

    def run(self, task: Any, try_number: int = 1) -> dict[str, Any]:
        """Run a try of a task, and return its result; its error says what the containers wrote."""
        try:
            return dict(task.execute(context(try_number=try_number)))
        except Exception as error:
            error.add_note(self.yarn.output(self.yarn.latest()["id"]))
            raise

    def assert_each_once(self) -> None:
        """Check that every record is in each sink, once."""
        root = f"s3://{self.bucket}/delta"
        table = Table(root, storage_options=storage_options(root, Access(((root, self.s3.settings),)))())
        files = fs.S3FileSystem(
            access_key=ALLOWED[0], secret_key=ALLOWED[1], region=REGION, endpoint_override=self.s3.endpoint_url
        )
        parquet = ds.dataset(f"{self.bucket}/parquet", filesystem=files, format="parquet").to_table(columns=["id"])
        with create_engine(self.postgres).connect() as connection:
            rows = [str(row[0]) for row in connection.execute(text("SELECT id FROM events"))]
        once = Counter(self.put)
        assert Counter(parquet["id"].to_pylist()) == once
        assert Counter(table.to_pyarrow_table(columns=["id"])["id"].to_pylist()) == once
        assert Counter(rows) == once

    def owners(self) -> set[str | None]:
        """Return who has leases."""
        return {partition.owner for partition in self.coordinator().view.partitions()}

    def versions(self) -> dict[str, int]:
        """Return what each lease and each failure of a partition would change."""
        return {partition.partition_key: partition.version for partition in self.coordinator().view.partitions()}

    def coordinator(self) -> SourceCoordinator:
        made = SourceCoordinator(open_store(StoreSettings.from_url(self.postgres)), SOURCE, "test")
        made.initialize()
        return made


def context(task_id: str = "ingest", try_number: int = 1) -> Any:
    """Return what Airflow gives to a try of a task."""
    ti = SimpleNamespace(dag_id="dag", run_id="run", task_id=task_id, map_index=-1, try_number=try_number)
    return {"ti": ti, "task_state_store": None, "outlet_events": {}}


@pytest.fixture
def ingested(
    yarn: YarnCluster, connect: Connect, s3: S3Server, s3_bucket: str, postgres_url: str,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> Ingested:  # fmt: skip
    home = find_installation().spark_home
    assert home is not None
    aws = {"region_name": REGION, "service_config": {"s3": {"endpoint_url": s3.endpoint_url}}}
    url = make_url(postgres_url)
    store = {"store": "sql", "url": postgres_url}
    connect("aws_default", "aws", login=ALLOWED[0], password=ALLOWED[1], extra=aws)
    connect("coordination_default", "coordination", login=url.username, password=PASSWORD, extra=store)
    pages = {"yarn_resourcemanager_webapp_address": yarn.url}
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": "cluster", **pages})
    connect("warehouse", "postgres", host=url.query["host"], schema=url.database, login=url.username)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("PYTHONPATH", raising=False)  # spark-submit would give it to the containers
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.configuration))
    monkeypatch.setenv("SPARK_HOME", home)
    monkeypatch.setenv("PATH", os.pathsep.join((f"{home}/bin", os.environ["PATH"])))
    return Ingested(yarn=yarn, s3=s3, bucket=s3_bucket, postgres=postgres_url, spark_home=home)


# The jobs of tasks


@pytest.mark.parametrize("how", ["spark-submit waits", "the task asks YARN", "the driver is here"])
def test_task_returns_the_summary_of_its_driver(ingested: Ingested, how: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {}
    if how == "the task asks YARN":
        if "yarn_track_via_rm_api" not in NOT_FOLLOWED:
            pytest.skip("this Spark provider cannot track an application by YARN's REST API")
        given = {"yarn_track_via_rm_api": True}
    elif how == "the driver is here":
        given = {"deploy_mode": "client"}
    else:  # a Python that the node has not
        python = ingested.yarn.conf("")["spark.pyspark.python"]
        with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as archive:
            archive.add(python, "bin/python")
        given = {"archives": f"{archive.name}#job", "conf": {"spark.pyspark.python": "./job/bin/python"}}
    ingested.add(3)
    task = ingested.task(job_log_url="http://logs/{application_id}", **given)
    summary = ingested.run(task)
    assert (summary["records_delivered"], summary["failed"], summary["lost"]) == (30, {}, [])
    assert summary["records_by_sink"] == dict.fromkeys(("parquet", "delta", "sql"), 30)
    ingested.assert_each_once()
    application = ingested.yarn.latest()
    assert application["finalStatus"] == "SUCCEEDED"
    assert task.job_urls.log == f"http://logs/{application['id']}"


def test_deferred_task_returns_the_summary_of_its_driver(ingested: Ingested) -> None:
    ingested.add(3)
    with DAG("events_on_yarn", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        ingested.task(deferrable=True)
    done = run_dag(dag)
    [ti] = done.get_task_instances()
    assert done.state == "success", ingested.yarn.output(ingested.yarn.latest()["id"])
    assert ti.xcom_pull(task_ids="ingest")["records_delivered"] == 30
    ingested.assert_each_once()
    [job] = Jobs(ingested.coordinator().view).of_task(f"events_on_yarn/{done.run_id}/ingest/-1")
    assert job.cluster_id == job.application_id == ingested.yarn.latest()["id"]


def test_step_of_emr_runs_its_prepared_job(ingested: Ingested, tmp_path: Path) -> None:
    """As on EMR, whose own settings of Spark name YARN, and whose command takes the arguments of a step."""
    ingested.add(2)
    shared, conf = tmp_path / "shared", ingested.yarn.conf(ingested.spark_home)
    job = prepare_job(folder=str(shared), context=context("prepare"), ingestion=ingested.ingestion(), conf=conf)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.master yarn\n")
    environment = os.environ | {"SPARK_CONF_DIR": str(tmp_path / "conf")}
    command = emr_step(job)["HadoopJarStep"]["Args"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    application = ingested.yarn.latest()
    assert done.returncode == 0, done.stdout + ingested.yarn.output(application["id"])
    ingested.assert_each_once()
    known = Jobs(ingested.coordinator().view).get(job.owner)
    assert known is not None and known.outcome is not None
    assert (known.outcome["exit_code"], known.application_id) == (0, application["id"])
    assert list((shared / "settings").iterdir()) == []
    assert not any(secret in text for secret in SECRETS for text in ingested.yarn.files())


# What ends them


def kill_container(yarn: YarnCluster) -> None:
    """Kill the JVM of a driver that stands still, and all that it started."""

    def stands_still() -> psutil.Process | None:
        found = yarn.driver(yarn.latest()["id"]) if yarn.applications() else None
        return found if found is not None and found.status() == psutil.STATUS_STOPPED else None

    container = until(stands_still).parent()
    assert container is not None
    container.kill()


@pytest.mark.parametrize(
    ("strikes", "message"),
    [
        ("CRASH_AT", r"the driver ended with exit code 137 \(SIGKILL\) and recorded no outcome; read its log, as by"),
        ("STOP_AT", "finished with failed status"),
    ],
    ids=["the driver's Python is killed", "its container is killed"],
)
def test_killed_driver_loses_and_doubles_nothing(ingested: Ingested, strikes: str, message: str) -> None:
    ingested.add(4)
    task = ingested.task(application=str(CRASHING), env_vars={strikes: "committed delta:1"})
    with ThreadPoolExecutor() as threads:
        if strikes == "STOP_AT":
            threads.submit(kill_container, ingested.yarn)
        with pytest.raises(AirflowException, match=message):
            ingested.run(task)
    assert ingested.yarn.wait_for_end(ingested.yarn.latest()["id"])["finalStatus"] == "FAILED"
    assert ingested.owners() == {None}, "the task gave the leases back"
    ingested.add(1)
    assert ingested.run(ingested.task(), try_number=2)["failed"] == {}
    ingested.assert_each_once()


def test_killed_task_ends_its_application_and_leaves_no_secret(ingested: Ingested) -> None:
    yarn, known = ingested.yarn, len(ingested.yarn.applications())
    ingested.add(2)
    rounds = RoundSettings(until_caught_up=False, max_duration=600, round_duration=1)
    task = ingested.task({"rounds": rounds})
    with ThreadPoolExecutor() as threads:
        running = threads.submit(ingested.run, task)
        try:
            application = until(lambda: yarn.latest()["id"] if len(yarn.applications()) > known else None)
            until(lambda: "completed=2 " in yarn.output(application))
            found = {
                "a page of the application": pages(f"{yarn.url}/proxy/{application}", application),
                "YARN's list": [yarn.run("application", "-list"), json.dumps(yarn.get(f"apps/{application}"))],
                "a command": [text for text in commands() if str(yarn.folder) in text],
                "the environment of a container": yarn.environments(application),
                "a file": yarn.files(),
            }
            driver = yarn.driver(application)
            assert driver is not None
            driver.suspend()  # it cannot end by itself, as it would by the request in the store
        finally:
            task.on_kill()
        with pytest.raises(AirflowException):
            running.result(timeout=PATIENCE_SECONDS)
    assert yarn.wait_for_end(application)["state"] == "KILLED"
    assert ingested.owners() == {None}
    for place, texts in found.items():
        assert texts and not any(secret in text for secret in SECRETS for text in texts), place
    assert not any(secret in text for secret in SECRETS for text in yarn.files())
    until(lambda: not yarn.containers(application))
    ingested.add(1)
    ingested.run(ingested.task(), try_number=2)
    ingested.assert_each_once()


def pages(url: str, application: str) -> list[str]:
    """Return the page of a running application that shows its settings, and the request behind it."""
    found = []
    for path in ("environment/", f"api/v1/applications/{application}/environment"):
        with urllib.request.urlopen(f"{url}/{path}", timeout=30) as answer:
            found.append(answer.read().decode())
    assert "spark.yarn.stagingDir" in found[1]
    return found


def commands() -> list[str]:
    """Return the commands of all processes, with their arguments."""
    found = (process.info["cmdline"] for process in psutil.process_iter(["cmdline"]))
    return [" ".join(command) for command in found if command]


# What is refused


def test_executors_of_another_python_are_refused_before_leases(ingested: Ingested) -> None:
    ingested.add(1)
    before = ingested.versions()
    ours = ingested.yarn.conf(ingested.spark_home)["spark.pyspark.python"]
    conf = {"spark.pyspark.python": pythons_of_other_minors()[-1], "spark.pyspark.driver.python": ours}
    with pytest.raises(AirflowFailException, match=r"executors run Python 3\.\d+ and the driver runs Python 3\.\d+; "):
        ingested.run(ingested.task(conf=conf))
    assert ingested.versions() == before, "nothing was leased"


def test_driver_of_an_old_python_is_refused_before_leases(ingested: Ingested) -> None:
    ingested.add(1)
    before = ingested.versions()
    old = pythons_of_other_minors()[0]
    assert "python3.9" in old or "python3.10" in old
    with pytest.raises(
        AirflowFailException, match="the driver refused to begin, exit code 78; the reason is in"
    ) as error:
        ingested.run(ingested.task(conf={"spark.pyspark.driver.python": old}))
    assert re.search(r"Python 3\.(9|10) is not supported; use Python 3\.11", error.value.__notes__[0])
    assert ingested.versions() == before, "nothing was leased"


def test_options_that_the_cluster_lacks_are_refused_before_leases(ingested: Ingested) -> None:
    ingested.add(1)
    before = ingested.versions()
    options, message = {"transform": "no_such_module:transform"}, "'no_such_module:transform' cannot be imported: "
    if str(find_installation().spark).startswith("3."):
        options, message = {"schema": "id STRING, v VARIANT"}, r"VARIANT needs Spark 4\.0 or newer; this is Spark 3\.5"
    with pytest.raises(AirflowFailException, match=message):
        ingested.run(ingested.task(options))
    assert ingested.versions() == before, "nothing was leased"
