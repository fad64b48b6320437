"""What every sink keeps to, kept by a Parquet dataset in a bucket."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.spark import filesystems
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.filesystems import open_files
from airflow_provider_coordination.spark.settings import PARQUET, SinkSettings
from airflow_provider_coordination.spark.storage import files_below
from tests.spark.sinks.test_contract import *  # noqa: F403 - the tests themselves
from tests.support.s3_server import S3Server
from tests.support.sinks import Batches, Place, by_batch

CACHES = (filesystems._s3_session, filesystems._s3_client, filesystems._s3_objects)


class DatasetInBucket:
    """See `SinkUnderTest`."""

    def __init__(self, bucket: str, aws: AwsSettings) -> None:
        self._location, self._aws = f"s3://{bucket}/lake", aws
        self._access = Access(((self._location, aws),))

    def settings(self, folder: Path) -> SinkSettings:
        return SinkSettings(name="main", kind=PARQUET, location=self._location, aws=self._aws)

    def batches(self, folder: Path) -> Batches:
        files, path = open_files(self._location, self._access)
        names = [file.removeprefix(f"{self._location}/") for file in files_below(self._location, self._access)]
        seen = [f"{path}/{name}" for name in names if "/" not in name and name.endswith(".parquet")]
        return by_batch([row for n in seen for row in pq.read_table(n, filesystem=files.filesystem).to_pylist()])

    def leftovers(self, folder: Path) -> list[str]:
        return files_below(f"{self._location}/_staging", self._access)


@pytest.fixture
def place(s3: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A dataset in a bucket of its own; what writes a delivery's rows finds the server as the SDK does."""
    aws = s3.settings
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(aws.access_key_id))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", str(aws.secret_access_key))
    monkeypatch.setenv("AWS_DEFAULT_REGION", str(aws.region))
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(aws.endpoint_url))
    for cached in CACHES:  # another environment than that of who came before
        monkeypatch.setattr(filesystems, cached.__name__, cache(cached.__wrapped__))
    return Place(DatasetInBucket(s3_bucket, aws), tmp_path)
