"""Shard sync as a task, against a stand-in for Kinesis."""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.create_partitions import TaskKilledError
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from tests.airflow.conftest import CREATION_EPOCH, SECRET, FakeKinesis


@pytest.fixture(autouse=True)
def aws(connect: Any, kinesis: FakeKinesis) -> None:
    extra = {"region_name": "eu-west-1", "endpoint_url": kinesis.url}
    connect("aws_default", "aws", login="AKIA", password=SECRET, extra=extra)


def test_shards_of_a_new_stream_become_partitions(
    coordination: SourceCoordinator, kinesis: FakeKinesis, context: Any
) -> None:
    kinesis.streams["clicks"] = ["s0", "s1"]
    summary = ShardSyncOperator(task_id="sync", reads=KinesisStreams("clicks")).execute(context)
    keys = [f"clicks:{CREATION_EPOCH}:s0", f"clicks:{CREATION_EPOCH}:s1"]
    [stream] = summary.pop("streams")
    assert summary == {"source": "clicks", "put_aside": [], "skipped": None}
    assert {name: value for name, value in stream.items() if value} == {
        "stream": "clicks",
        "creation_epoch": CREATION_EPOCH,
        "shards": 2,
        "open_shards": 2,
        "began": "TRIM_HORIZON",
        "created": keys,
        "counts": {"created": 2},
    }
    assert json.loads(json.dumps(stream)) == stream
    assert [p.partition_key for p in coordination.view.partitions()] == keys


def test_second_sync_creates_nothing(coordination: SourceCoordinator, kinesis: FakeKinesis, context: Any) -> None:
    kinesis.streams["clicks"] = ["s0"]
    ShardSyncOperator(task_id="sync", reads=KinesisStreams("clicks")).execute(context)
    [stream] = ShardSyncOperator(task_id="sync", reads=KinesisStreams("clicks")).execute(context)["streams"]
    assert (stream["created"], stream["existing"]) == ([], 1)


def test_killed_task_releases_the_lease_and_ends(
    coordination: SourceCoordinator, kinesis: FakeKinesis, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = ShardSyncOperator(task_id="sync", reads=KinesisStreams("clicks"))
    kinesis.streams["clicks"] = ["s0"]
    answer = kinesis.answer

    def killed(operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if operation == "ListShards":
            os.kill(os.getpid(), signal.SIGTERM)
        return answer(operation, request)

    monkeypatch.setattr(kinesis, "answer", killed)
    handler = signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())  # as Airflow's
    try:
        with pytest.raises(TaskKilledError):
            operator.execute(context)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert list(coordination.view.partitions()) == []
    assert coordination.supply(lambda state: []) == [], "the lease is free"


def test_several_streams_are_synced_into_one_source(
    coordination: SourceCoordinator, kinesis: FakeKinesis, context: Any
) -> None:
    kinesis.streams |= {"a": ["s0"], "b": ["s0", "s1"]}
    summary = ShardSyncOperator(task_id="sync", reads=KinesisStreams(["a", "b"]), source="clicks").execute(context)
    assert [len(stream["created"]) for stream in summary["streams"]] == [1, 2]
    assert len(list(coordination.view.partitions())) == 3


def test_several_streams_need_a_source_name(
    coordination: SourceCoordinator, kinesis: FakeKinesis, context: Any
) -> None:
    with pytest.raises(AirflowFailException, match="field 'source' is missing: the streams 'a', 'b' need"):
        ShardSyncOperator(task_id="sync", reads=KinesisStreams(["a", "b"])).execute(context)


@pytest.mark.parametrize(
    ("position", "checkpoint", "listed"),
    [
        ("TRIM_HORIZON", "TRIM_HORIZON", "AT_TRIM_HORIZON"),
        ("None", "TRIM_HORIZON", "AT_TRIM_HORIZON"),
        ("latest", "AT_TIMESTAMP:20", "AT_LATEST"),
        (datetime.now(UTC) - timedelta(hours=3), "AT_TIMESTAMP:20", "AT_TIMESTAMP"),
        pytest.param(
            (datetime.now(UTC) - timedelta(hours=3)).isoformat(), "AT_TIMESTAMP:20", "AT_TIMESTAMP", id="its text"
        ),
        ("2026-06-01T02:00:00+02:00", "TRIM_HORIZON", "AT_TRIM_HORIZON"),  # longer ago than the stream keeps records
    ],
)
def test_new_source_begins_at_its_initial_position(
    coordination: SourceCoordinator, kinesis: FakeKinesis, context: Any, position: Any, checkpoint: str, listed: str
) -> None:
    kinesis.streams["clicks"] = ["s0"]
    ShardSyncOperator(task_id="sync", reads=KinesisStreams("clicks", initial_position=position)).execute(context)
    [partition] = coordination.view.partitions()
    assert partition.progress["checkpoint"].startswith(checkpoint)
    assert kinesis.requests[-1][1]["ShardFilter"]["Type"] == listed


def test_position_before_1970_is_refused_when_parsed() -> None:
    with pytest.raises(ConfigurationError, match="field 'initial_position' is '1969-12-31T23:59:59Z', which is before"):
        ShardSyncOperator(task_id="sync", reads=KinesisStreams("clicks", initial_position="1969-12-31T23:59:59Z"))


@pytest.mark.parametrize("position", ["EARLIEST", "start", "4711", "2026-01-01T00:00:00", "-1", datetime(2026, 1, 1)])
def test_wrong_position_is_refused_when_parsed(position: Any) -> None:
    with pytest.raises(ConfigurationError, match="field 'initial_position' must be 'TRIM_HORIZON', 'LATEST' or an"):
        ShardSyncOperator(task_id="sync", reads=KinesisStreams("clicks", initial_position=position))


def test_wrong_data_loss_policy_is_refused_when_parsed() -> None:
    with pytest.raises(
        ConfigurationError, match="field 'on_data_loss' must be one of fail, earliest, latest; got 'ignore'"
    ):
        ShardSyncOperator(task_id="sync", reads=KinesisStreams("clicks", on_data_loss="ignore"))


def test_wrong_rendered_position_fails_without_a_retry(
    coordination: SourceCoordinator, kinesis: FakeKinesis, context: Any
) -> None:
    operator = ShardSyncOperator(task_id="sync", reads=KinesisStreams("clicks", initial_position="{{ ds }}"))
    with pytest.raises(AirflowFailException, match="field 'initial_position' must be 'TRIM_HORIZON', 'LATEST' or an"):
        operator.execute(context)


def test_source_may_have_its_own_name(coordination: SourceCoordinator, kinesis: FakeKinesis, context: Any) -> None:
    kinesis.streams["clicks-v2"] = ["s0"]
    ShardSyncOperator(task_id="sync", reads=KinesisStreams("clicks-v2"), source="clicks").execute(context)
    assert [p.partition_key for p in coordination.view.partitions()] == [f"clicks-v2:{CREATION_EPOCH}:s0"]


def test_missing_stream_fails_without_a_retry(
    coordination: SourceCoordinator, kinesis: FakeKinesis, context: Any
) -> None:
    with pytest.raises(AirflowFailException, match="stream 'klicks' does not exist in region eu-west-1"):
        ShardSyncOperator(task_id="sync", reads=KinesisStreams("klicks")).execute(context)


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
        ShardSyncOperator(task_id="sync", reads=KinesisStreams("clicks")).execute(context)


def test_bad_connection_fails_without_a_retry(connect: Any, context: Any) -> None:
    connect("coordination_default", "coordination", extra={})
    with pytest.raises(AirflowFailException, match=r"connection 'coordination_default': .* 'url' is missing"):
        ShardSyncOperator(task_id="sync", reads=KinesisStreams("clicks")).execute(context)


def test_region_defaults_to_the_coordination_connection(
    connect: Any, kinesis: FakeKinesis, context: Any, store_url: str
) -> None:
    connect("aws_default", "aws", login="AKIA", password=SECRET, extra={"endpoint_url": kinesis.url})
    connect("coordination_default", "coordination", extra={"url": store_url, "region": "ap-south-1"})
    with pytest.raises(AirflowFailException, match="in region ap-south-1"):
        ShardSyncOperator(task_id="sync", reads=KinesisStreams("absent")).execute(context)
