from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.stores import StoreSettings, open_store
from demo.local_kinesis import LocalKinesis
from tests.support.spark_job import CRASHING, REPOSITORY, MakePipeline, Pipeline
from tests.support.standalone import Standalone

EXAMPLES = (
    "acknowledged_delivery",
    "hourly_ingestion",
    "interval_ingestion",
    "jdbc_ingestion",
    "reopening_source",
    "s3_ingestion",
)
"""The DAGs of `dags/` that the shared Airflow runs."""


@pytest.fixture
def make_pipeline(
    kinesis: LocalKinesis, kinesis_stream: Callable[[int], str], java: str, tmp_path: Path
) -> Iterator[MakePipeline]:
    """Makes a pipeline over a new stream of so many shards, with a SQLite store of its own; ends what it still runs."""
    made: list[Pipeline] = []

    def make(shards: int) -> Pipeline:
        made.append(Pipeline(kinesis, kinesis_stream(shards), tmp_path, f"sqlite:///{tmp_path}/coordination.db"))
        return made[-1]

    yield make
    for job in (job for pipeline in made for job in pipeline.jobs):
        job.kill()


# An example, run in this process


@pytest.fixture
def connect(java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Defines a connection; those to a new store and to Spark are there, and so is Airflow's own database."""
    from airflow.utils.db import initdb

    def define(conn_id: str, conn_type: str, **fields: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": conn_type, **fields}))

    initdb()
    define("coordination_default", "coordination", extra={"store": "sql", "url": url_of(tmp_path)})
    define("spark_default", "spark", host="local[1]", extra={"deploy-mode": "client"})
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    return define


# A whole Airflow


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared Airflow and its store are."""
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="package")
def airflow(kinesis: LocalKinesis, java: str, folder: Path) -> Iterator[Standalone]:
    """An Airflow with the DAGs of this folder and examples; it takes half a minute to start, so all share it. It ends
    with the last system test of its process: doing nothing, it keeps a quarter of a processor busy.

    Its DAGs are paused, as those with a schedule would begin to run at once.
    """
    dags = shutil.copytree(Path(__file__).parent / "dags", folder / "dags")
    for example in EXAMPLES:
        shutil.copy(REPOSITORY / "dags" / f"{example}.py", dags)
    connections = {
        "coordination_default": {"conn_type": "coordination", "extra": {"store": "sql", "url": url_of(folder)}},
        "spark_default": {"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}},
    }
    environment = {
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "120",  # the machine may have much else to do
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",  # they do not change
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
        "CRASHING_APPLICATION": str(CRASHING),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    standalone = Standalone(folder / "airflow", dags, connections, environment)
    standalone.start()
    try:
        known = [dag.stem for dag in dags.glob("*.py")]
        standalone.until("Airflow knows the DAGs", lambda: all(map(standalone.is_ready, known)), 400)
        connect_aws(standalone, kinesis)
        yield standalone
    finally:
        standalone.stop()


def connect_aws(airflow: Standalone, kinesis: LocalKinesis) -> None:
    """Let `aws_default` of an Airflow lead to the Kinesis server that all tests share."""
    extra = {"region_name": "us-east-1", "endpoint_url": kinesis.endpoint_url}
    airflow.connect("aws_default", "aws", login="test", password="test", extra=extra)


@pytest.fixture
def other_aws(airflow: Standalone, kinesis: LocalKinesis) -> Iterator[Callable[..., None]]:
    """Lets `aws_default` of the shared Airflow lead elsewhere for this test; several services may be elsewhere."""

    def connect(**services: AwsSettings) -> None:
        given = next(iter(services.values()))
        endpoints = {name: {"endpoint_url": settings.endpoint_url} for name, settings in services.items()}
        extra = {"region_name": given.region, "service_config": endpoints}
        airflow.connect("aws_default", "aws", login=given.access_key_id, password=given.secret_access_key, extra=extra)

    yield connect
    connect_aws(airflow, kinesis)


@pytest.fixture
def pipeline(kinesis: LocalKinesis, kinesis_stream: Callable[[int], str], folder: Path, tmp_path: Path) -> Pipeline:
    """A pipeline over a new stream of one shard, in the store of the shared Airflow."""
    return Pipeline(kinesis, kinesis_stream(1), tmp_path, url_of(folder))


@pytest.fixture
def look(folder: Path) -> Iterator[Callable[[str], SourceCoordinator]]:
    """Gives a coordinator of a source to look at it."""
    with closing(open_store(StoreSettings.from_url(url_of(folder)))) as store:

        def coordinator(source: str) -> SourceCoordinator:
            made = SourceCoordinator(store, source, "test")
            made.initialize()
            return made

        yield coordinator


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder}/coordination.db"
