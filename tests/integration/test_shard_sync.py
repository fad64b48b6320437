"""Shard sync with Airflow's own objects and a Kinesis API in another process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus, parse_instant
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.sources.kinesis.progress import ShardRange, parse_partition_key
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support.batches import end_shard

MIDDLE = str(2**127)

Sync = Callable[..., Mapping[str, Any]]


@pytest.fixture
def aws(kinesis: Any) -> Any:
    """A plain client, for what operators of a stream do."""
    return kinesis.client()


@pytest.fixture
def coordination(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kinesis: Any) -> SourceCoordinator:
    url = f"sqlite:///{tmp_path}/coordination.db"
    monkeypatch.setenv(
        "AIRFLOW_CONN_COORDINATION_DEFAULT",
        json.dumps({"conn_type": "coordination", "extra": {"store": "sql", "url": url}}),
    )
    monkeypatch.setenv(
        "AIRFLOW_CONN_AWS_DEFAULT",
        json.dumps(
            {
                "conn_type": "aws",
                "login": "test",
                "password": "test",
                "extra": {"region_name": "us-east-1", "endpoint_url": kinesis.endpoint_url},
            }
        ),
    )
    coordinator = SourceCoordinator(open_store(StoreSettings.from_url(url)), "source", "test")
    coordinator.initialize()
    return coordinator


@pytest.fixture
def sync(coordination: SourceCoordinator) -> Sync:
    """Run the operator for one stream; return what it says of it."""
    ti = SimpleNamespace(dag_id="dag", run_id="run", task_id="task", map_index=-1, try_number=1)

    def run(*streams: str, **options: Any) -> Mapping[str, Any]:
        operator = ShardSyncOperator(task_id="sync", reads=KinesisStreams(list(streams), **options), source="source")
        summary = operator.execute({"ti": ti, "task_state_store": None})  # type: ignore[arg-type,typeddict-item]
        found: Mapping[str, Any] = summary["streams"][0]
        return found

    return run


def split(aws: Any, stream: str, shard_id: str = "shardId-000000000000") -> None:
    aws.split_shard(StreamName=stream, ShardToSplit=shard_id, NewStartingHashKey=MIDDLE)
    wait_until_active(aws, stream)


def wait_until_active(aws: Any, stream: str) -> None:
    while aws.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamStatus"] != "ACTIVE":
        time.sleep(0.05)


def shards_of(keys: list[str]) -> list[int]:
    return sorted(int(parse_partition_key(key).shard_id.removeprefix("shardId-")) for key in keys)


def wait_for_another_second() -> None:
    """Wait until the clock shows another second: the times of the server are whole seconds."""
    before = int(time.time())
    while int(time.time()) == before:
        time.sleep(0.02)


@pytest.mark.parametrize(("position", "expected"), [("TRIM_HORIZON", [0]), ("LATEST", [1, 2])])
def test_initial_position_selects_the_shards(
    aws: Any, kinesis_stream: Callable[[int], str], sync: Sync, position: str, expected: list[int]
) -> None:
    stream = kinesis_stream(1)
    split(aws, stream)

    assert shards_of(sync(stream, initial_position=position)["created"]) == expected
    assert sync(stream, initial_position=position)["created"] == []


def test_latest_is_the_time_of_the_service(aws: Any, kinesis_stream: Callable[[int], str], sync: Sync) -> None:
    began = sync(kinesis_stream(1), initial_position="LATEST")["began"]
    instant = parse_instant(began.removeprefix("AT_TIMESTAMP:"))

    assert instant <= datetime.now(UTC)
    assert datetime.now(UTC) - instant < timedelta(minutes=1)


def test_instant_selects_the_shards_open_then(aws: Any, kinesis_stream: Callable[[int], str], sync: Sync) -> None:
    stream = kinesis_stream(1)
    wait_for_another_second()
    instant = datetime.now(UTC)
    wait_for_another_second()
    split(aws, stream)

    assert shards_of(sync(stream, initial_position=instant)["created"]) == [0]


def test_resharded_stream_is_followed_and_cleaned_up(
    aws: Any, kinesis_stream: Callable[[int], str], sync: Sync, coordination: SourceCoordinator
) -> None:
    stream = kinesis_stream(1)
    [parent] = sync(stream)["created"]
    split(aws, stream)
    assert sync(stream)["created"] == []
    coordination.leases.acquire(1)
    coordination.leases.complete(parent)  # without its children: the sync creates them

    created = sync(stream)["created"]
    assert shards_of(created) == [1, 2]
    assert coordination.view.get(parent) is not None
    [listed] = [shard for shard in aws.list_shards(StreamName=stream)["Shards"] if "ParentShardId" not in shard]
    assert parse_partition_key(parent).shard_id == listed["ShardId"]


def test_merged_child_comes_with_its_second_parent(
    aws: Any, kinesis_stream: Callable[[int], str], sync: Sync, coordination: SourceCoordinator
) -> None:
    stream = kinesis_stream(2)
    first, second = sync(stream)["created"]
    names = [parse_partition_key(key).shard_id for key in (first, second)]
    aws.merge_shards(StreamName=stream, ShardToMerge=min(names), AdjacentShardToMerge=max(names))
    wait_until_active(aws, stream)
    [merged] = [shard for shard in aws.list_shards(StreamName=stream)["Shards"] if "AdjacentParentShardId" in shard]
    child = ShardRange(
        shard_id=merged["ShardId"],
        parent_shard_ids=(merged["ParentShardId"], merged["AdjacentParentShardId"]),
        starting_hash_key=merged["HashKeyRange"]["StartingHashKey"],
        ending_hash_key=merged["HashKeyRange"]["EndingHashKey"],
    )
    coordination.leases.acquire(2)
    end_shard(coordination, first, child)
    between = sync(stream)
    end_shard(coordination, second, child)

    assert (between["created"], between["hole"]) == ([], None)
    assert len(list(coordination.view.partitions())) == 3


@pytest.mark.parametrize("on_data_loss", ["fail", "earliest"])
def test_recreated_stream_is_another_one(
    aws: Any, kinesis_stream: Callable[[int], str], sync: Sync, coordination: SourceCoordinator, on_data_loss: str
) -> None:
    stream = kinesis_stream(1)
    [former] = sync(stream, initial_position="LATEST")["created"]
    aws.delete_stream(StreamName=stream)
    aws.get_waiter("stream_not_exists").wait(StreamName=stream, WaiterConfig={"Delay": 0.1, "MaxAttempts": 100})
    wait_for_another_second()  # the second of their creation distinguishes streams
    aws.create_stream(StreamName=stream, ShardCount=1)
    aws.get_waiter("stream_exists").wait(StreamName=stream, WaiterConfig={"Delay": 0.1, "MaxAttempts": 100})
    result = sync(stream, initial_position="LATEST", on_data_loss=on_data_loss)

    assert list(result["lost"]) == [former]
    assert (len(result["created"]), result["began"]) == (1, "TRIM_HORIZON")
    settled = coordination.view.get(former)
    assert settled is not None
    assert settled.is_parked == (on_data_loss == "fail")
    assert (settled.status is PartitionStatus.COMPLETED) == (on_data_loss == "earliest")
