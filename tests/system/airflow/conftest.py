"""A whole Airflow, with real Spark jobs, that all tests of this folder share; `browser` looks at its pages.

The pages are looked at first, while the store holds only what is there to be seen: the folder comes before the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.stores import StoreSettings, open_store
from demo.local_kinesis import LocalKinesis
from tests.support.spark_job import Pipeline
from tests.support.standalone import Standalone, connect_aws, starting_airflow
from tests.system.airflow.parcels import DAG_ID, SOURCE, Parcels

EXAMPLES = (
    "acknowledged_delivery",
    "approved_reset",
    "complete_hours",
    "hourly_ingestion",
    "interval_ingestion",
    "jdbc_ingestion",
    "reopening_source",
    "s3_ingestion",
    "s3_queue_ingestion",
    "s3_queue_window",
    "supervise_clicks",
)
"""The DAGs of `dags/` that the shared Airflow runs."""
ANNOUNCED_BUCKET, QUEUE_NAME = "announced-events", "announced-events"
QUEUE_URL = f"https://sqs.us-east-1.amazonaws.com/000000000000/{QUEUE_NAME}"
"""The queue that the example `s3_queue_ingestion` waits for, from when it is unpaused."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared Airflow and its store are."""
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="package")
def starting(java: str, folder: Path) -> Iterator[Standalone]:
    """An Airflow with the DAGs of this folder and examples; it takes half a minute to start, so all share it.

    It ends with the last test of this folder: doing nothing, it keeps a quarter of a processor busy.
    """
    environment = {
        "EVENTS_QUEUE": QUEUE_URL,
        "EVENTS_PATH": f"s3://{ANNOUNCED_BUCKET}/in/",
        "EVENTS_OUTPUT": str(folder / "announced"),
        "WINDOW_OUTPUT": str(folder / "window"),
    }
    with starting_airflow(folder, Path(__file__).parent / "dags", EXAMPLES, **environment) as airflow:
        yield airflow


@pytest.fixture(scope="package")
def airflow(starting: Standalone, kinesis: LocalKinesis) -> Standalone:
    """The Airflow, once it knows its DAGs."""
    starting.wait_for_dags()
    connect_aws(starting, kinesis)
    return starting


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


@pytest.fixture(scope="package")
def parcels(airflow: Standalone, kinesis: LocalKinesis, folder: Path) -> Iterator[Parcels]:
    """A source whose first job is about to run: this takes half a minute, in which other tests run."""
    client = kinesis.client()
    client.create_stream(StreamName=SOURCE, ShardCount=1)
    client.get_waiter("stream_exists").wait(StreamName=SOURCE, WaiterConfig={"Delay": 0.1, "MaxAttempts": 100})
    with closing(open_store(StoreSettings.from_url(airflow.store_url))) as store:
        source = SourceCoordinator(store, SOURCE, "test")
        source.initialize()
        pipeline = Pipeline(kinesis, SOURCE, folder / SOURCE, airflow.store_url)
        parcels = Parcels(airflow, pipeline, source, DAG_ID, folder / "dags" / "specs" / f"{SOURCE}.yaml")
        parcels.begins()
        yield parcels
    client.delete_stream(StreamName=SOURCE, EnforceConsumerDeletion=True)
