"""A proxy before the S3 server counts the requests of a job for each batch."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.aws import AwsSettings, aws_client
from airflow_provider_coordination.spark.delivery import Delivery
from airflow_provider_coordination.spark.kinesis.shard_format import SHARD_RECORDS
from airflow_provider_coordination.spark.sinks import make_sinks
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink
from airflow_provider_coordination.spark.transformation import Transformation
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery
from tests.support.faulty_s3 import FaultyS3
from tests.support.history import STREAM, History
from tests.support.job_settings import parquet
from tests.support.s3_server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW, MANY = 4, 20
"""Shards. What a job asks whatever it delivers is in both."""


class BucketHistory(History):
    """A stream, and jobs that land and deliver it in a bucket.

    :param root: of the bucket.
    :param aws: how it is reached.
    :param session: computes what the sink takes; None for jobs that deliver what they land.
    :param keep: whether others acknowledge batches too, so that each has a file of its own.
    """

    def __init__(
        self, folder: Path, shards: int, root: str, aws: AwsSettings, session: SparkSession | None, *, keep: bool
    ) -> None:
        writes = replace(parquet(f"{root}/clicks"), aws=aws)
        super().__init__(folder, shards, writes=(writes,), landing_path=f"{root}/_landing")
        self.session, self.keep = session, keep

    def delivery(self) -> Delivery:
        [writes] = self.settings["writes"]
        sink = make_sink(writes.location, writes.aws, None if self.session is None else "length(data) > 0")
        if self.session is None:
            return sink.landed_delivery(keep=self.keep)
        transformation = Transformation(self.session, [sink], layout=SHARD_RECORDS, access=sink.access)
        return TransformedDelivery(transformation, [sink], source=STREAM, access=sink.access)


def make_sink(path: str, aws: AwsSettings | None, where: str | None) -> ParquetSink:
    [sink] = make_sinks([replace(parquet(path, where=where), aws=aws)])
    assert isinstance(sink, ParquetSink)
    return sink


def rows_in(s3: S3Server, bucket: str) -> int:
    """Return how many rows the files of a bucket hold, which readers see and nobody else has left there."""
    client = s3.client()
    keys = [each["Key"] for each in client.list_objects_v2(Bucket=bucket)["Contents"]]
    keys = [key for key in keys if not key.startswith("clicks/_ledger/")]
    assert all(re.fullmatch(r"clicks/[^_/]+\.parquet", key) for key in keys), keys
    files = [pa.BufferReader(client.get_object(Bucket=bucket, Key=key)["Body"].read()) for key in keys]
    return sum(pq.read_metadata(file).num_rows for file in files)


@pytest.fixture
def network(s3: S3Server) -> Iterator[FaultyS3]:
    with FaultyS3(s3.settings) as network:
        yield network


@pytest.fixture
def requests_of(s3: S3Server, network: FaultyS3, tmp_path: Path) -> Iterator[Callable[..., Counter[str]]]:
    """Let a job read shards, each of which has records, and deliver them; return its requests, and how many batches."""
    buckets: list[str] = []

    def requests_of(shards: int, session: SparkSession | None = None, *, keep: bool = False) -> Counter[str]:
        buckets.append(bucket := f"lake-{secrets.token_hex(4)}")
        aws_client(s3.settings, "s3").create_bucket(Bucket=bucket)
        history = BucketHistory(tmp_path / bucket, shards, f"s3://{bucket}", network.settings, session, keep=keep)
        history.send(30 * shards, keys=30 * shards)
        history.sync()
        before = len(network.requests)
        worker = history.start()
        history.work(worker)
        history.stop(worker)
        made = network.requests[before:]
        counts = Counter(each.partition(" ")[0] if "list-type" not in each else "LIST" for each in made)
        assert sum(re.search(r"^PUT .*/_landing/.*parquet", each) is not None for each in made) == shards
        assert rows_in(s3, bucket) == len(history.sent)
        return counts

    yield requests_of
    for bucket in buckets:
        s3.delete_bucket(bucket)


def each_batch(few: Counter[str], many: Counter[str]) -> dict[str, float]:
    """Return the requests that one batch more costs."""
    return {kind: (many[kind] - few[kind]) / (MANY - FEW) for kind in many | few if many[kind] != few[kind]}


def test_untransformed_batch_costs_three_requests(
    requests_of: Callable[..., Counter[str]],
) -> None:
    few, many = requests_of(FEW), requests_of(MANY)
    assert each_batch(few, many) == {"PUT": 1, "HEAD": 1, "GET": 1}
    assert few["LIST"] == many["LIST"]


def test_batch_with_its_own_file_costs_four_requests(requests_of: Callable[..., Counter[str]]) -> None:
    few, many = requests_of(FEW, keep=True), requests_of(MANY, keep=True)
    assert each_batch(few, many) == {"PUT": 2, "GET": 2}
    assert few["LIST"] == many["LIST"]


def test_transformed_batch_costs_three_requests(requests_of: Callable[..., Counter[str]], spark: SparkSession) -> None:
    few, many = requests_of(FEW, spark), requests_of(MANY, spark)
    assert each_batch(few, many) == {"PUT": 1, "HEAD": 1, "GET": 1}
    assert few["LIST"] == many["LIST"]
