"""The contract of every sink, for sinks in a bucket that only the sink's connection reaches."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyarrow import dataset

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.spark.dataset_compaction import dataset_files, maintain_dataset
from airflow_provider_coordination.spark.sink_settings import SinkSettings, access_of
from airflow_provider_coordination.spark.sinks import Maintenance, owed
from airflow_provider_coordination.spark.sinks.delta.log import storage_options
from airflow_provider_coordination.spark.storage import files_below, open_files
from airflow_provider_coordination.spark.writes.iceberg import storage_properties
from tests.spark.sinks.test_contract import *  # noqa: F403 - the tests themselves
from tests.support.s3_server import S3Server
from tests.support.sinks import (
    Batches,
    IcebergUnderTest,
    SinkTarget,
    SqlUnderTest,
    an_attempt,
    by_batch,
    under_next_lease,
)
from tests.support.sql_tables import SERVERS

pytestmark = pytest.mark.share(0.25)


class FolderInBucket:
    """A kind whose place is a folder.

    :param kind: the kind.
    :param bucket: the name of the bucket.
    :param aws: what the connection holds.
    """

    def __init__(self, kind: str, bucket: str, aws: AwsSettings) -> None:
        self.sink = SinkSettings(name="main", kind=kind, location=f"s3://{bucket}/lake", aws=aws)
        self.access = access_of([self.sink])

    def settings(self, folder: Path) -> SinkSettings:
        """See `SinkUnderTest.settings`."""
        return self.sink

    def leftovers(self, folder: Path) -> list[str]:
        """See `SinkUnderTest.leftovers`."""
        return files_below(f"{self.sink.location}/_staging", self.access)


class DatasetInBucket(FolderInBucket):
    """See `SinkUnderTest`."""

    def batches(self, folder: Path) -> Batches:
        root = self.sink.location
        files, path = open_files(root, self.access)
        names = [file.removeprefix(f"{root}/") for file in files_below(root, self.access)]
        seen = [f"{path}/{name}" for name in names if "/" not in name and name.endswith(".parquet")]
        return by_batch([row for n in seen for row in pq.read_table(n, filesystem=files.filesystem).to_pylist()])


class PartitionedInBucket(FolderInBucket):
    """See `SinkUnderTest`: a dataset in Hive folders by value.

    :param kind: the kind.
    :param bucket: the name of the bucket.
    :param aws: what the connection holds.
    """

    def __init__(self, kind: str, bucket: str, aws: AwsSettings) -> None:
        super().__init__(kind, bucket, aws)
        self.sink = replace(self.sink, settings={"partition_by": ["n"]})

    def batches(self, folder: Path) -> Batches:
        root = self.sink.location
        if not any(file.startswith(f"{root}/n=") for file in files_below(root, self.access)):
            return {}
        files, path = open_files(root, self.access)
        found = dataset.dataset(path, filesystem=files.filesystem, partitioning="hive")
        return by_batch(found.to_table().to_pylist())


class DeltaInBucket(FolderInBucket):
    """See `SinkUnderTest`."""

    def batches(self, folder: Path) -> Batches:
        root = self.sink.location
        options = storage_options(root, self.access)()
        if not DeltaTable.is_deltatable(root, options):
            return {}
        return by_batch(DeltaTable(root, storage_options=options).to_pyarrow_table().to_pylist())


class IcebergInBucket(IcebergUnderTest):
    """See `SinkUnderTest`: the catalog is in a file, and its tables are in the bucket.

    :param bucket: the name of the bucket.
    :param aws: what the connection holds.
    """

    def __init__(self, bucket: str, aws: AwsSettings) -> None:
        self.warehouse, self.aws = f"s3://{bucket}/warehouse", aws

    def settings(self, folder: Path) -> SinkSettings:
        return replace(super().settings(folder), aws=self.aws)

    def properties(self, folder: Path) -> dict[str, str]:
        return {
            **super().properties(folder),
            **storage_properties(self.aws),
            "warehouse": self.warehouse,
        }

    def files(self, folder: Path) -> list[str]:
        target = SinkSettings(name="main", kind="parquet", location=self.warehouse, aws=self.aws)
        return files_below(self.warehouse, access_of([target]))


class IcebergInTableBucket(IcebergInBucket):
    """See `SinkUnderTest`: a REST catalog keeps the tables of a bucket.

    :param bucket: the name of the bucket.
    :param aws: what the connection holds.
    :param catalog_url: the URI of the catalog.
    """

    def __init__(self, bucket: str, aws: AwsSettings, catalog_url: str) -> None:
        super().__init__(bucket, aws)
        self.warehouse, self.catalog_url = f"s3://{bucket}", catalog_url

    def properties(self, folder: Path) -> dict[str, str]:
        return {
            **storage_properties(self.aws),
            "type": "rest",
            "uri": self.catalog_url,
            "warehouse": self.warehouse,
            "credential": f"{self.aws.access_key_id}:{self.aws.secret_access_key}",
        }


class SqlInBucket(SqlUnderTest):
    """See `SinkUnderTest`: the rows wait in the bucket for their transaction.

    :param url: of an empty database.
    :param bucket: the name of the bucket.
    :param aws: what the connection holds.
    """

    def __init__(self, url: str, bucket: str, aws: AwsSettings) -> None:
        super().__init__(url)
        self.staging, self.aws = f"s3://{bucket}/staging", aws

    def settings(self, folder: Path) -> SinkSettings:
        made = super().settings(folder)
        changed = {**made.settings, "staging_path": self.staging}
        return replace(made, settings=changed, files=self.staging, aws=self.aws)

    def leftovers(self, folder: Path) -> list[str]:
        return files_below(self.staging, access_of([self.settings(folder)]))


@pytest.fixture(params=["delta", "iceberg", "iceberg, REST", "parquet", "partitioned", "sql"])
def target(request: pytest.FixtureRequest, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SinkTarget:
    """A sink in a bucket of its own; nothing but its connection holds keys."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    if request.param == "iceberg, REST":
        tables = request.getfixturevalue("s3_table_bucket")
        return SinkTarget(IcebergInTableBucket(tables, s3.settings, s3.catalog_url), tmp_path / "sink")
    bucket = request.getfixturevalue("s3_bucket")
    if request.param == "iceberg":
        return SinkTarget(IcebergInBucket(bucket, s3.settings), tmp_path / "sink")
    if request.param == "sql":
        url = request.getfixturevalue(SERVERS["postgresql"])
        return SinkTarget(SqlInBucket(url, bucket, s3.settings), tmp_path / "sink")
    if request.param == "partitioned":
        return SinkTarget(PartitionedInBucket("parquet", bucket, s3.settings), tmp_path / "sink")
    kind = {"delta": DeltaInBucket, "parquet": DatasetInBucket}[request.param]
    return SinkTarget(kind(request.param, bucket, s3.settings), tmp_path / "sink")


@pytest.mark.parametrize("target", ["parquet"], indirect=True)
def test_dataset_in_a_bucket_is_compacted_beside_deliveries(target: SinkTarget) -> None:
    values = {"a-1": [1, 2], "b-1": [3]}
    for batch_id in values:
        target.deliver(values, [an_attempt(batch_id)])
    root, access = target.sink().location, target.sink().access
    wanted, counts = Maintenance(retention=timedelta(hours=1)), []
    for hours in (2, 4, 6):
        maintain_dataset(root, wanted, access=access, now=datetime.now(UTC) + timedelta(hours=hours))
        counts.append(len(dataset_files(root, access)))
        assert target.visible == values
    assert counts == [1, 1, 1] and len(files_below(f"{root}/_compaction", access)) == 3  # the record and its marks

    again = [under_next_lease(an_attempt(batch_id)) for batch_id in values]
    assert owed(target.sink(), again) == []
