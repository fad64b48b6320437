"""Shard sync as a task, against a server that answers as Kinesis."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.operators.kinesis import KinesisShardSyncOperator
from tests.airflow.conftest import CREATION_EPOCH, SECRET, FakeKinesis


@pytest.fixture(autouse=True)
def aws(connect: Any, kinesis: FakeKinesis) -> None:
    extra = {"region_name": "eu-west-1", "endpoint_url": kinesis.url}
    connect("aws_default", "aws", login="AKIA", password=SECRET, extra=extra)


def test_a_new_streams_shards_become_partitions(
    coordination: SourceCoordinator, kinesis: FakeKinesis, context: Any
) -> None:
    kinesis.streams["clicks"] = ["s0", "s1"]
    summary = KinesisShardSyncOperator(task_id="sync", stream_name="clicks").execute(context)
    keys = [f"clicks:{CREATION_EPOCH}:s0", f"clicks:{CREATION_EPOCH}:s1"]
    assert summary == {
        "stream": "clicks",
        "creation_epoch": CREATION_EPOCH,
        "shards": 2,
        "open_shards": 2,
        "created": keys,
        "existing": 0,
    }
    assert json.loads(json.dumps(summary)) == summary
    assert [p.partition_key for p in coordination.partitions()] == keys


def test_a_second_sync_creates_nothing(coordination: SourceCoordinator, kinesis: FakeKinesis, context: Any) -> None:
    kinesis.streams["clicks"] = ["s0"]
    KinesisShardSyncOperator(task_id="sync", stream_name="clicks").execute(context)
    summary = KinesisShardSyncOperator(task_id="sync", stream_name="clicks").execute(context)
    assert (summary["created"], summary["existing"]) == ([], 1)


def test_the_source_may_have_a_name_of_its_own(
    coordination: SourceCoordinator, kinesis: FakeKinesis, context: Any
) -> None:
    kinesis.streams["clicks-v2"] = ["s0"]
    KinesisShardSyncOperator(task_id="sync", stream_name="clicks-v2", source="clicks").execute(context)
    assert [p.partition_key for p in coordination.partitions()] == [f"clicks-v2:{CREATION_EPOCH}:s0"]


def test_a_stream_that_does_not_exist_fails_without_a_retry(
    coordination: SourceCoordinator, kinesis: FakeKinesis, context: Any
) -> None:
    with pytest.raises(AirflowFailException, match="stream 'klicks' does not exist in region eu-west-1"):
        KinesisShardSyncOperator(task_id="sync", stream_name="klicks").execute(context)


def test_missing_credentials_fail_without_a_retry(
    coordination: SourceCoordinator,
    kinesis: FakeKinesis,
    context: Any,
    connect: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    connect("aws_default", "aws", extra={"region_name": "eu-west-1", "endpoint_url": kinesis.url})
    with pytest.raises(AirflowFailException, match="Unable to locate credentials; give access_key_id"):
        KinesisShardSyncOperator(task_id="sync", stream_name="clicks").execute(context)


def test_a_bad_connection_fails_without_a_retry(connect: Any, context: Any) -> None:
    connect("coordination_default", "coordination", extra={})
    with pytest.raises(AirflowFailException, match=r"connection 'coordination_default': .* 'url' is missing"):
        KinesisShardSyncOperator(task_id="sync", stream_name="clicks").execute(context)


def test_the_coordination_connections_region_is_the_last_resort(
    connect: Any, kinesis: FakeKinesis, context: Any, store_url: str
) -> None:
    connect("aws_default", "aws", login="AKIA", password=SECRET, extra={"endpoint_url": kinesis.url})
    connect("coordination_default", "coordination", extra={"url": store_url, "region": "ap-south-1"})
    with pytest.raises(AirflowFailException, match="in region ap-south-1"):
        KinesisShardSyncOperator(task_id="sync", stream_name="absent").execute(context)
