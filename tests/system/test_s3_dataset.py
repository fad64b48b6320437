"""Whole jobs whose landing and dataset are in a bucket that their sink's connection alone reaches."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.filesystems import open_files
from airflow_provider_coordination.spark.settings import PARQUET, SinkSettings
from airflow_provider_coordination.spark.storage import files_below
from tests.support.s3_job import ObjectPipeline
from tests.support.s3_server import ALLOWED, S3Server
from tests.support.spark_job import Job

OBJECTS, RECORDS = 40, 25


class Lake:
    """A bucket that is ingested, and another one that it is ingested into.

    :param bucket: the other one.
    """

    def __init__(self, pipeline: ObjectPipeline, server: S3Server, bucket: str) -> None:
        self.pipeline, self.path = pipeline, f"s3://{bucket}/clicks"
        self.sink = SinkSettings(name="main", kind=PARQUET, location=self.path, aws=server.settings)
        self.access = Access(((self.path, server.settings),))
        for number in range(OBJECTS):
            pipeline.put(f"{number:03d}.json", range(number * RECORDS, (number + 1) * RECORDS))

    @property
    def writes(self) -> dict[str, Any]:
        return {"writes": (self.sink,), "landing_path": f"{self.path}/_landing", "max_batch_bytes": 2000}

    def run(self) -> Job:
        return self.pipeline.run(**self.writes)

    def crash(self, at: str) -> Job:
        return self.pipeline.crash(at, **self.writes)

    @property
    def ids(self) -> Counter[int]:
        files, path = open_files(self.path, self.access)
        if not any(file.endswith(".parquet") and "/_" not in file for file in files_below(self.path, self.access)):
            return Counter()
        found = ds.dataset(path, filesystem=files.filesystem, format="parquet").to_table(columns=["data"])
        return Counter(json.loads(payload)["id"] for payload in found["data"].to_pylist())

    @property
    def leftovers(self) -> list[str]:
        return [file for file in files_below(self.path, self.access) if "/_" in file]


@pytest.fixture
def lake(s3: S3Server, s3_bucket: str, java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bucket = f"{s3_bucket}-lake"
    s3.client().create_bucket(Bucket=bucket)
    lake = Lake(ObjectPipeline(s3, s3_bucket, tmp_path, max_objects=10), s3, bucket)
    yield lake
    for job in lake.pipeline.jobs:
        job.kill()
    s3.delete_bucket(bucket)


EVERYTHING = dict.fromkeys(range(OBJECTS * RECORDS), 1)


def test_a_bucket_is_reached_by_the_connection_of_its_dataset_alone_and_nothing_is_left_over(lake: Lake) -> None:
    created = lake.pipeline.find()
    job = lake.run()
    assert job.process.returncode == 0, job.output
    assert lake.ids == EVERYTHING
    assert lake.leftovers == []
    assert lake.pipeline.coordinator().view.count_by_status()[PartitionStatus.COMPLETED] == len(created)
    assert ALLOWED[1] not in job.output


@pytest.mark.parametrize("at", ["recorded:1", "delivering:3", "delivered:3"])
def test_a_driver_that_dies_loses_and_doubles_nothing_in_a_bucket(lake: Lake, at: str) -> None:
    lake.pipeline.find()
    crashed = lake.crash(at)
    assert crashed.process.returncode != 0 and "coordination-summary" not in crashed.output
    lake.pipeline.coordinator().give_up_owner(crashed.settings.owner)
    job = lake.run()
    assert job.process.returncode == 0, job.output
    assert lake.ids == EVERYTHING
    assert lake.leftovers == []
