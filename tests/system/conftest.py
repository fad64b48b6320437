"""Fixtures of whole jobs: streams, buckets, stores and Airflow connections."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.stores import StoreSettings, open_store
from demo.local_kinesis import LocalKinesis
from tests.support.spark_job import MakePipeline, Pipeline
from tests.support.standalone import Standalone


@pytest.fixture
def make_pipeline(
    kinesis: LocalKinesis, kinesis_stream: Callable[[int], str], java: str, tmp_path: Path
) -> Iterator[MakePipeline]:
    """Make pipelines over new streams with this number of shards and their own SQLite stores; end their processes."""
    made: list[Pipeline] = []

    def make(shards: int) -> Pipeline:
        made.append(Pipeline(kinesis, kinesis_stream(shards), tmp_path, f"sqlite:///{tmp_path}/coordination.db"))
        return made[-1]

    yield make
    for job in (job for pipeline in made for job in pipeline.jobs):
        job.kill()


# A whole Airflow: what tests in a folder need that defines the fixture `airflow`


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


# An example, run in this process


@pytest.fixture
def connect(java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Defines a connection; those to a new store and to Spark are there, and so is Airflow's own database."""
    from airflow.utils.db import initdb

    def define(conn_id: str, conn_type: str, **fields: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": conn_type, **fields}))

    initdb()
    define(
        "coordination_default", "coordination", extra={"store": "sql", "url": f"sqlite:///{tmp_path}/coordination.db"}
    )
    define("spark_default", "spark", host="local[1]", extra={"deploy-mode": "client"})
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    return define
