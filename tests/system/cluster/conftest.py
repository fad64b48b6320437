"""A Spark cluster that all tests of this folder share, since it takes seconds to start.

Jobs write to a bucket, and keep their leases in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from demo.local_kinesis import LocalKinesis
from tests.support.cluster_job import ClusterPipeline
from tests.support.depth import at_depth
from tests.support.faulty_s3 import FaultyS3
from tests.support.s3_server import S3Server
from tests.support.spark_cluster import SparkCluster

Made = TypeVar("Made", bound=ClusterPipeline)


@pytest.fixture(scope="package")
def shared_cluster(java: str) -> Iterator[SparkCluster]:
    """A cluster of two workers; use `cluster`."""
    with SparkCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: SparkCluster) -> SparkCluster:
    """A cluster of two workers, whatever the test before has done to it."""
    shared_cluster.make_whole()
    return shared_cluster


@pytest.fixture
def network(s3: S3Server) -> Iterator[FaultyS3]:
    """What lies between jobs and their bucket."""
    with FaultyS3(s3.settings) as network:
        yield network


@pytest.fixture
def on_cluster(
    cluster: SparkCluster,
    kinesis: LocalKinesis,
    kinesis_stream: Callable[[int], str],
    s3: S3Server,
    s3_bucket: str,
    network: FaultyS3,
    postgres_url: str,
    tmp_path: Path,
) -> Iterator[Callable[..., Made]]:
    """Makes a pipeline of a class over a new stream, whose jobs reach the bucket through `network`."""
    made: list[Made] = []

    def make(of: Callable[..., Made], *, shards: int | None = None, **given: Any) -> Made:
        pipeline = of(
            kinesis=kinesis,
            stream=kinesis_stream(shards or at_depth(short=2, deep=4)),
            folder=tmp_path,
            url=postgres_url,
            cluster=cluster,
            aws=network.settings,
            direct=s3.settings,
            bucket=s3_bucket,
            **given,
        )
        pipeline.sync()
        made.append(pipeline)
        return pipeline

    yield make
    for job in (job for pipeline in made for job in pipeline.jobs):
        job.kill()
