"""A whole job waits until folders of a real bucket are complete, and deletes objects once delivered."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.support.s3_job import ObjectPipeline
from tests.support.s3_server import S3Server


@pytest.fixture
def pipeline(s3: S3Server, s3_bucket: str, java: str, tmp_path: Path) -> Iterator[ObjectPipeline]:
    waiting = {"wait_for": "_SUCCESS", "wait_delay": timedelta(hours=1)}
    pipeline = ObjectPipeline(s3, s3_bucket, tmp_path, delete_on_success=True, **waiting)
    yield pipeline
    for job in pipeline.jobs:
        job.kill()


def there(pipeline: ObjectPipeline) -> list[str]:
    contents = pipeline.client.list_objects_v2(Bucket=pipeline.bucket).get("Contents", [])
    return [each["Key"] for each in contents]


def test_delivered_objects_are_deleted_and_waiting_or_damaged_ones_stay(pipeline: ObjectPipeline) -> None:
    pipeline.put("whole/a.json", range(10))
    pipeline.put("whole/b.json", range(10, 20))
    pipeline.put("whole/_SUCCESS", ())
    pipeline.client.put_object(Bucket=pipeline.bucket, Key="whole/damaged.json.gz", Body=b"\x1f\x8b this is no gzip")
    pipeline.put("growing/c.json", range(20, 30))
    [growing, whole] = sorted(pipeline.find())

    job = pipeline.run()

    assert pipeline.ids() == dict.fromkeys(range(20), 1), job.output
    assert there(pipeline) == ["growing/c.json", "whole/_SUCCESS", "whole/damaged.json.gz"]
    waiting = pipeline.coordinator().view.get(growing)
    assert waiting is not None and waiting.status is PartitionStatus.CLOSED
    assert f"partition {growing} waits for its condition, wait 1 of at most 10" in job.output

    pipeline.put("whole/a.json", range(10))  # the very same content
    [again] = pipeline.find()
    coordinator = pipeline.coordinator()
    assert coordinator.view.get(whole) is None, "finished partitions go with their objects"
    assert coordinator.claims.partition_of(f"s3://{pipeline.bucket}/growing/c.json@{etag(pipeline)}") == growing
    assert [item["uri"].rpartition("/")[2] for item in (coordinator.view.get(again) or waiting).progress["items"]] == [
        "a.json"
    ]


def etag(pipeline: ObjectPipeline) -> str:
    return str(pipeline.client.head_object(Bucket=pipeline.bucket, Key="growing/c.json")["ETag"])
