"""A whole Airflow, with real Spark jobs, that all tests of this folder share; `browser` looks at its pages.

The pages are looked at first, while the store holds only what is there to be seen: the folder comes before the files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.stores import StoreSettings, open_store
from demo.local_kinesis import LocalKinesis
from tests.support.spark_job import CRASHING, REPOSITORY, Pipeline
from tests.support.standalone import Standalone, running_airflow

EXAMPLES = (
    "acknowledged_delivery",
    "hourly_ingestion",
    "interval_ingestion",
    "jdbc_ingestion",
    "reopening_source",
    "s3_ingestion",
    "supervise_clicks",
)
"""The DAGs of `dags/` that the shared Airflow runs."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared Airflow and its store are."""
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="package")
def airflow(kinesis: LocalKinesis, java: str, folder: Path) -> Iterator[Standalone]:
    """An Airflow with the DAGs of this folder and examples; it takes half a minute to start, so all share it.

    It ends with the last test of this folder: doing nothing, it keeps a quarter of a processor busy.
    """
    dags = shutil.copytree(Path(__file__).parent / "dags", folder / "dags")
    for example in EXAMPLES:
        shutil.copy(REPOSITORY / "dags" / f"{example}.py", dags)
    with running_airflow(folder, dags, {"CRASHING_APPLICATION": str(CRASHING)}) as airflow:
        connect_aws(airflow, kinesis)
        yield airflow


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
def pipeline(
    kinesis: LocalKinesis, kinesis_stream: Callable[[int], str], airflow: Standalone, tmp_path: Path
) -> Pipeline:
    """A pipeline over a new stream of one shard, in the store of the shared Airflow."""
    return Pipeline(kinesis, kinesis_stream(1), tmp_path, airflow.store_url)


@pytest.fixture
def look(airflow: Standalone) -> Iterator[Callable[[str], SourceCoordinator]]:
    """Gives a coordinator of a source to look at it."""
    with closing(open_store(StoreSettings.from_url(airflow.store_url))) as store:

        def coordinator(source: str) -> SourceCoordinator:
            made = SourceCoordinator(store, source, "test")
            made.initialize()
            return made

        yield coordinator
