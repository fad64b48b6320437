"""A job reads a stream of another account as its resource policy allows, by ARN in every call."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.aws import AwsSettings, Proof, prove
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import new_partition
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart
from airflow_provider_coordination.sources.kinesis.fan_out import ensure_consumer
from airflow_provider_coordination.sources.kinesis.service import permissions, sample, unread
from airflow_provider_coordination.sources.kinesis.shards import describe_stream, list_shards
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow, land_shard
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine, connect
from tests.support.kinesis_server.in_process import InProcessClient

READER, OWNER = "111111111111", "222222222222"
POLLED = ("DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords")
PUSHED = ("DescribeStreamConsumer", "SubscribeToShard")
SHARD = "shardId-000000000000"


class RecordingClient(InProcessClient):
    """Records the calls."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append((operation, request))
        return super()._call(operation, request)


class SharedStream:
    """A stream of one account that another one reads."""

    def __init__(self, root: Path) -> None:
        self.clock = VirtualClock()
        self.root = root
        self.engine = Engine(self.clock, account=READER)
        self.owner_engine = Engine(self.clock, account=OWNER)
        connect(self.engine, self.owner_engine)
        self.client = RecordingClient(self.engine)
        self.owner = InProcessClient(self.owner_engine)
        self.owner.create_stream(StreamName="clicks", ShardCount=1)
        self.arn: str = self.owner.describe_stream_summary(StreamName="clicks")["StreamDescriptionSummary"]["StreamARN"]
        self.allow(self.arn, *POLLED)
        registered = self.owner.register_stream_consumer(StreamARN=self.arn, ConsumerName="web")
        self.consumer: str = registered["Consumer"]["ConsumerARN"]

    def allow(self, arn: str, *operations: str) -> None:
        actions = [f"kinesis:{operation}" for operation in operations]
        reader = {"AWS": f"arn:aws:iam::{READER}:root"}
        statement = {"Effect": "Allow", "Principal": reader, "Action": actions, "Resource": arn}
        self.owner.put_resource_policy(ResourceARN=arn, Policy=json.dumps({"Statement": [statement]}))

    def put(self, *data: bytes) -> None:
        for each in data:
            self.owner.put_record(StreamName="clicks", Data=each, PartitionKey="k")

    def land(self, **plan: Any) -> LandedShardRow:
        stream = describe_stream(self.client, self.arn)
        [shard] = list_shards(self.client, self.arn)
        read = ShardReadPlan(
            source_identifier="clicks|PARTITION",
            partition_key=f"{stream.name}:{stream.creation_epoch}:{shard.shard_id}",
            fencing_token=1,
            stream=stream.name,
            stream_arn=self.arn,
            shard_id=shard.shard_id,
            start=BatchStart(position="TRIM_HORIZON", retention=timedelta(days=1)),
            **plan,
        )
        options = ShardLandingOptions(
            kinesis=AwsSettings(region="us-east-1"),
            root=str(self.root),
            seconds=10.0,
            max_bytes=2**20,
            slot_memory_bytes=2**29,
        )
        return land_shard(self.client, options, read, clock=self.clock, sleep=self.clock.sleep)


@pytest.fixture
def shared(tmp_path: Path) -> SharedStream:
    return SharedStream(tmp_path)


def landed(row: LandedShardRow) -> list[tuple[str, bytes]]:
    assert row.error is None
    return [(each["stream"], each["data"]) for each in pq.read_table(row.file).to_pylist()]


def test_every_call_names_the_stream_by_its_arn(shared: SharedStream) -> None:
    shared.put(b"1", b"2")

    assert landed(shared.land()) == [("clicks", b"1"), ("clicks", b"2")]

    assert {operation for operation, _ in shared.client.requests} == set(POLLED)
    assert [request["StreamARN"] for _, request in shared.client.requests] == [shared.arn] * len(shared.client.requests)
    assert [request for _, request in shared.client.requests if "StreamName" in request] == []


def test_consumer_of_another_account_is_used_by_its_arn(shared: SharedStream) -> None:
    shared.put(b"1")
    shared.allow(shared.consumer, *PUSHED)
    stream = describe_stream(shared.client, shared.arn)

    assert ensure_consumer(shared.client, stream.name, stream.arn, shared.consumer) == shared.consumer
    assert landed(shared.land(consumer_arn=shared.consumer)) == [("clicks", b"1")]
    assert shared.owner_engine.calls["RegisterStreamConsumer"] == 1, "by its owner"


def test_missing_consumer_of_an_arn_is_never_registered(shared: SharedStream) -> None:
    arn = shared.consumer.replace("consumer/web", "consumer/other")
    shared.allow(shared.consumer, *PUSHED)

    with pytest.raises(ConfigurationError, match="access denied"):
        ensure_consumer(shared.client, "clicks", shared.arn, arn)
    with pytest.raises(ConfigurationError, match=f"consumer {arn} does not exist; correct the ARN in 'consumer_name'"):
        ensure_consumer(shared.owner, "clicks", shared.arn, arn)
    assert shared.owner_engine.calls["RegisterStreamConsumer"] == 1


def test_withdrawn_policy_is_an_error_of_the_shard(shared: SharedStream) -> None:
    shared.put(b"1")
    shared.allow(shared.arn, "DescribeStreamSummary", "ListShards", "GetShardIterator")

    row = shared.land()

    assert row.error is not None and "access denied" in row.error and "resource policy" in row.error


def test_checks_and_lags_name_the_stream_by_its_arn(shared: SharedStream) -> None:
    shared.put(b"1")
    shared.clock.advance(60)
    service = StreamService(shared.client, (shared.arn,))
    stream = describe_stream(shared.client, shared.arn)
    progress = {
        "kind": "kinesis", "stream": "clicks", "shard_id": SHARD, "parent_shard_ids": [], "starting_hash_key": "0",
        "ending_hash_key": "9",
    }  # fmt: skip
    key = f"clicks:{stream.creation_epoch}:{SHARD}"
    partition = replace(new_partition("clicks|PARTITION", key, shared.clock.now()), progress=progress)

    assert unread(service, partition).lag == timedelta(seconds=60)
    assert sample(shared.client, [shared.arn]) == [b"1"]
    needed = {each.action: prove(each.call)[0] for each in permissions(shared.client, shared.arn) if each.call}
    assert needed == {f"kinesis:{operation}": Proof.ALLOWED for operation in POLLED}
