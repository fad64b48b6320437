"""Whole jobs whose landing and dataset are in a bucket that only their sink's connection reaches."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.job_settings import BadRecordSettings
from airflow_provider_coordination.spark.sink_settings import PARQUET, SinkSettings
from airflow_provider_coordination.spark.sinks.delta.log import storage_options
from airflow_provider_coordination.spark.storage import files_below, open_files
from tests.support.s3_job import ObjectPipeline
from tests.support.s3_server import ALLOWED, S3Server
from tests.support.spark_job import Job

OBJECTS, RECORDS = 40, 25


class IngestedBucket:
    """A bucket that is ingested, and another one that it is ingested into.

    :param bucket: the other one.
    """

    def __init__(self, pipeline: ObjectPipeline, server: S3Server, bucket: str) -> None:
        self.pipeline, self.path, self.server = pipeline, f"s3://{bucket}/clicks", server
        self.sink = SinkSettings(name="main", kind=PARQUET, location=self.path, aws=server.settings)
        self.access = Access(((self.path, server.settings),))
        for number in range(OBJECTS):
            pipeline.put(f"{number:03d}.json", range(number * RECORDS, (number + 1) * RECORDS))

    @property
    def tables(self) -> dict[str, Any]:
        """A dataset, two tables, and dead letters: all through Spark, all in the bucket."""
        bucket, aws = self.path.rpartition("/")[0], self.server.settings
        even = SinkSettings(name="even", kind="delta", location=f"{bucket}/even", where="id % 2 = 0", aws=aws)
        odd = SinkSettings(
            name="odd",
            kind="iceberg",
            location="iceberg://test/lake.odd",
            where="id % 2 = 1",
            aws=aws,
            settings={"table": "lake.odd", "properties": self.catalog},
        )
        bad_records = BadRecordSettings(dead_letter_path=f"{bucket}/bad")
        return {
            **self.writes,
            "writes": (self.sink, even, odd),
            "schema": "id BIGINT NOT NULL",
            "bad_records": bad_records,
        }

    @property
    def catalog(self) -> dict[str, str]:
        aws = self.server.settings
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.pipeline.folder}/catalog.db",
            "warehouse": self.path.rpartition("/")[0] + "/warehouse",
            "s3.endpoint": str(aws.endpoint_url),
            "s3.access-key-id": str(aws.access_key_id),
            "s3.secret-access-key": str(aws.secret_access_key),
            "s3.region": str(aws.region),
        }

    @property
    def writes(self) -> dict[str, Any]:
        return {"writes": (self.sink,), "landing_path": f"{self.path}/_landing", "max_batch_bytes": 2000}

    def run(self) -> Job:
        return self.pipeline.run(**self.writes)

    def crash(self, at: str) -> Job:
        return self.pipeline.crash(at, **self.writes)

    @property
    def ids(self) -> Counter[int]:
        return Counter(json.loads(payload)["id"] for payload in self.payloads("clicks"))

    def payloads(self, folder: str) -> list[Any]:
        """Return the payloads that a dataset of the bucket holds."""
        root = f"{self.path.rpartition('/')[0]}/{folder}"
        files, path = open_files(root, self.access)
        if not any(file.endswith(".parquet") and "/_" not in file for file in files_below(root, self.access)):
            return []
        found = ds.dataset(path, filesystem=files.filesystem, format="parquet").to_table(columns=["data"])
        return found["data"].to_pylist()

    @property
    def leftovers(self) -> list[str]:
        """What is in the bucket, and no reader looks at; the records of a dataset and a table are no leftovers."""
        found = files_below(self.path.rpartition("/")[0], self.access)
        return [file for file in found if "/_" in file and "/_delta_log/" not in file and "/_ledger/" not in file]


@pytest.fixture
def ingested_bucket(
    s3: S3Server, s3_bucket: str, java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[IngestedBucket]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bucket = f"{s3_bucket}-lake"
    s3.client().create_bucket(Bucket=bucket)
    ingested_bucket = IngestedBucket(ObjectPipeline(s3, s3_bucket, tmp_path, max_objects=10), s3, bucket)
    yield ingested_bucket
    for job in ingested_bucket.pipeline.jobs:
        job.kill()
    s3.delete_bucket(bucket)


EVERYTHING = dict.fromkeys(range(OBJECTS * RECORDS), 1)


def test_bucket_is_reached_by_its_connection_and_left_clean(ingested_bucket: IngestedBucket) -> None:
    created = ingested_bucket.pipeline.find()
    job = ingested_bucket.run()
    assert job.process.returncode == 0, job.output
    assert ingested_bucket.ids == EVERYTHING
    assert ingested_bucket.leftovers == []
    assert ingested_bucket.pipeline.coordinator().view.count_by_status()[PartitionStatus.COMPLETED] == len(created)
    assert ALLOWED[1] not in job.output


@pytest.mark.only_deep
@pytest.mark.parametrize("at", ["recorded:1", "delivering:2", "delivered:2"])
def test_dead_driver_loses_and_doubles_nothing_in_a_bucket(ingested_bucket: IngestedBucket, at: str) -> None:
    ingested_bucket.pipeline.find()
    crashed = ingested_bucket.crash(at)
    assert crashed.process.returncode != 0 and "coordination-summary" not in crashed.output
    ingested_bucket.pipeline.coordinator().give_up_owner(crashed.settings.owner)
    job = ingested_bucket.run()
    assert job.process.returncode == 0, job.output
    assert ingested_bucket.ids == EVERYTHING
    assert ingested_bucket.leftovers == []


@pytest.mark.share(0.5)
@pytest.mark.parametrize("at", ["delivering:1", "delivered:1"])
def test_dead_driver_loses_and_doubles_nothing_in_bucket_tables(
    ingested_bucket: IngestedBucket, at: str, tmp_path: Path
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
    }
    ingested_bucket.pipeline.client.put_object(
        Bucket=ingested_bucket.pipeline.bucket, Key="bad.json", Body=b'{"id": "no number"}\n'
    )
    ingested_bucket.pipeline.find()
    crashed = ingested_bucket.pipeline.crash(at, conf=conf, **ingested_bucket.tables)
    assert crashed.process.returncode != 0 and "coordination-summary" not in crashed.output
    ingested_bucket.pipeline.coordinator().give_up_owner(crashed.settings.owner)
    job = ingested_bucket.pipeline.run(conf=conf, **ingested_bucket.tables)
    assert job.process.returncode == 0, job.output

    options = storage_options(
        ingested_bucket.path.replace("clicks", "even"),
        Access(((ingested_bucket.path, ingested_bucket.server.settings),)),
    )()
    even = DeltaTable(ingested_bucket.path.replace("clicks", "even"), storage_options=options).to_pyarrow_table()["id"]
    odd = load_catalog("default", **ingested_bucket.catalog).load_table("lake.odd").scan().to_arrow()["id"]
    assert ingested_bucket.ids == EVERYTHING
    assert sorted(even.to_pylist()) == list(range(0, OBJECTS * RECORDS, 2))
    assert sorted(odd.to_pylist()) == list(range(1, OBJECTS * RECORDS, 2))
    assert ingested_bucket.payloads("bad") == [b'{"id": "no number"}']
    assert ingested_bucket.leftovers == []
    said = [file.read_text(errors="replace") for file in events.rglob("*") if file.is_file()]
    assert any("read_parquet" in text and "write_parquet" in text for text in said), "plans name what is done"
    assert not any(ALLOWED[1] in text for text in (*said, crashed.output, job.output))
