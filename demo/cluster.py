"""The additional parts of `make demo CLUSTER=1`: a Spark cluster, a bucket for output, PostgreSQL for leases."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from demo.local_postgres import local_postgres
from tests.support.s3_server import S3Server
from tests.support.spark_cluster import ClusterWorker, SparkCluster

BUCKET, FOLDER = "lake", "flights"
SPARK_CONF = {"spark.cores.max": "1", "spark.executor.memory": "512m"}
"""The limits of each job: each worker has twice as many cores, so that one worker can run both jobs."""


@dataclass(frozen=True, kw_only=True)
class DemoCluster:
    """The started cluster, bucket and database.

    :param spark: a cluster of two workers.
    :param s3: the server of the bucket.
    :param store_url: the URL of the PostgreSQL store.
    :param folder: the folder for a copy of the dataset's files, for inspection.
    """

    spark: SparkCluster
    s3: S3Server
    store_url: str
    folder: Path

    @property
    def output_path(self) -> str:
        """The location of the dataset."""
        return f"s3://{BUCKET}/{FOLDER}"

    @property
    def aws(self) -> AwsSettings:
        """How to reach the bucket."""
        return self.s3.settings

    def files(self) -> Sequence[Path]:
        """Return a copy of each file of the dataset, with the time when it became visible."""
        client = self.s3.client()
        copies = []
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{FOLDER}/", Delimiter="/")
        for found in (each for page in pages for each in page.get("Contents", ())):
            if not found["Key"].endswith(".parquet"):
                continue
            copy = self.folder / Path(found["Key"]).name
            if not copy.exists():  # a visible file is whole, and never changes
                client.download_file(BUCKET, found["Key"], str(copy))
                at = found["LastModified"].timestamp()
                os.utime(copy, (at, at))
            copies.append(copy)
        return sorted(copies)

    def busiest(self) -> ClusterWorker:
        """Return the worker that runs the most executors."""
        return max(self.spark.workers, key=lambda worker: len(worker.executors()))

    def executors(self) -> int:
        """Return the number of running executors."""
        return sum(len(worker.executors()) for worker in self.spark.workers)


@contextmanager
def demo_cluster(folder: Path) -> Iterator[DemoCluster]:
    """Start everything, and stop it at the end.

    :param folder: see `DemoCluster`.
    """
    with ExitStack() as stack:
        postgres: Any = stack.enter_context(local_postgres())
        s3 = stack.enter_context(S3Server())
        s3.client().create_bucket(Bucket=BUCKET)
        spark = stack.enter_context(SparkCluster())
        url = str(postgres.get_uri()).replace("postgresql://", "postgresql+psycopg://")
        yield DemoCluster(spark=spark, s3=s3, store_url=url, folder=folder)
