"""Whole jobs over a real bucket: objects of very different sizes, damaged objects, and missing ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.support.s3_job import ObjectPipeline
from tests.support.s3_server import S3Server

OBJECTS = 300


@pytest.fixture
def pipeline(s3: S3Server, s3_bucket: str, java: str, tmp_path: Path) -> Iterator[ObjectPipeline]:
    pipeline = ObjectPipeline(s3, s3_bucket, tmp_path, max_objects=60)
    yield pipeline
    for job in pipeline.jobs:
        job.kill()


def put_objects(pipeline: ObjectPipeline) -> dict[str, range]:
    """Put objects of 1 to 50,000 records; return the records of each."""
    chosen, records, first = random.Random(6), {}, 0
    for number in range(OBJECTS):
        count = 50_000 if number % 100 == 7 else chosen.choice((1, 10, 100))
        key = f"{number % 7}/{number:03d}.json{'.gz' if number % 3 else ''}"
        records[key] = range(first, first + count)
        first += count
        pipeline.put(key, records[key])
    return records


@pytest.mark.only_deep
def test_records_are_delivered_once_despite_damaged_and_deleted_objects(
    pipeline: ObjectPipeline,
) -> None:
    records = put_objects(pipeline)
    damaged, deleted, replaced = "0/280.json.gz", "1/001.json.gz", "2/002.json.gz"
    pipeline.client.put_object(Bucket=pipeline.bucket, Key=damaged, Body=b"\x1f\x8b this is no gzip")
    created = pipeline.find()
    assert len(created) >= OBJECTS / 60
    pipeline.client.delete_object(Bucket=pipeline.bucket, Key=deleted)
    pipeline.put(replaced, range(-10, 0))
    job = pipeline.run(max_batch_bytes=2**18)

    expected = [n for key, of_key in records.items() if key not in (damaged, deleted, replaced) for n in of_key]
    assert pipeline.ids() == dict.fromkeys(expected, 1)
    assert job.process.returncode == 1, job.output
    [(partition, reason)] = job.summary["failed"].items()
    assert partition.rpartition("#")[0] in created
    assert f"s3://{pipeline.bucket}/{damaged}: it is not complete gzip" in reason
    assert sorted(job.summary["completed"]) == sorted(created)
    assert (job.summary["gone"], job.summary["set_aside"]) == (2, 1)
    assert job.summary["batches_delivered"] > len(created), "partitions are cut into several batches"

    assert len(pipeline.find()) == 1, "what replaced an object is new"
    again = pipeline.run()
    assert set(again.summary["failed"]) <= {partition}, "unless it rests still, the damaged one failed again"
    assert pipeline.ids() == dict.fromkeys([*expected, *range(-10, 0)], 1)


@pytest.mark.only_deep
def test_records_are_delivered_once_despite_a_dead_driver(pipeline: ObjectPipeline) -> None:
    records = put_objects(pipeline)
    created = pipeline.find()
    crashed = pipeline.crash("delivered:1", max_batch_bytes=2**18)
    assert crashed.process.returncode != 0 and "coordination-summary" not in crashed.output
    assert 0 < len(pipeline.ids()) < sum(map(len, records.values()))
    pipeline.coordinator().give_up_owner(crashed.settings.owner)  # what the operator does at once
    good = pipeline.run(schema="id BIGINT NOT NULL")
    assert good.process.returncode == 0, good.output
    assert good.summary["parse_exceptions"] == 0
    assert pipeline.ids() == {n: 1 for of_key in records.values() for n in of_key}
    assert pipeline.coordinator().view.count_by_status()[PartitionStatus.COMPLETED] == len(created)
