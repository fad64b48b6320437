"""The Kinesis server of the tests over HTTP: accounts, connections, and its process."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError

from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.sources.kinesis.shards import list_shards
from tests.support.kinesis_server.clock import RealClock
from tests.support.kinesis_server.http import KinesisAccount, KinesisServer
from tests.support.kinesis_server.process import KinesisServerProcess
from tests.support.waiting import until

FIRST_SHARD = "shardId-000000000000"


def test_accounts_share_no_streams_time_or_faults(kinesis_server: KinesisServer) -> None:
    one, other = kinesis_server.account(), kinesis_server.account()
    one.client().create_stream(StreamName="clicks", ShardCount=1)
    one.clock.advance(3600)
    one.engine.faults.fail("ListStreams", times=None)

    assert other.client().list_streams()["StreamNames"] == []
    assert (one.clock.now() - other.clock.now()).total_seconds() == 3600


def test_account_is_reached_by_the_package_settings(kinesis_account: KinesisAccount) -> None:
    kinesis_account.client().create_stream(StreamName="clicks", ShardCount=2)
    kinesis_account.engine.faults.throttle("ListShards", times=2)

    shards = list_shards(kinesis_client(kinesis_account.settings(max_attempts=5)), "clicks")

    assert [shard.shard_id for shard in shards] == [FIRST_SHARD, "shardId-000000000001"]
    assert kinesis_account.engine.calls["ListShards"] == 3


def test_request_without_credentials_is_refused(kinesis_account: KinesisAccount) -> None:
    nobody = kinesis_account.client(config=Config(signature_version=UNSIGNED))

    with pytest.raises(ClientError, match="MissingAuthenticationTokenException"):
        nobody.list_streams()


def test_unsupported_operation_is_refused_by_name(kinesis_account: KinesisAccount) -> None:
    with pytest.raises(ClientError, match=r"UnknownOperationException.*DescribeLimits"):
        kinesis_account.client().describe_limits()


def subscribed(account: KinesisAccount) -> Any:
    """Return the events of a subscription to a new stream."""
    client = account.client()
    client.create_stream(StreamName="clicks", ShardCount=1)
    arn = client.describe_stream_summary(StreamName="clicks")["StreamDescriptionSummary"]["StreamARN"]
    consumer = client.register_stream_consumer(StreamARN=arn, ConsumerName="reader")["Consumer"]["ConsumerARN"]
    position = {"Type": "TRIM_HORIZON"}
    return client.subscribe_to_shard(ConsumerARN=consumer, ShardId=FIRST_SHARD, StartingPosition=position)[
        "EventStream"
    ]


def test_disconnected_subscriber_is_noticed(kinesis_account: KinesisAccount) -> None:
    events = subscribed(kinesis_account)
    next(iter(events))
    consumer = kinesis_account.engine.streams["clicks"].consumers["reader"]
    assert FIRST_SHARD in consumer.subscriptions

    events.close()

    until(lambda: FIRST_SHARD not in consumer.subscriptions)


def test_waiting_subscriber_receives_new_records(kinesis_server: KinesisServer) -> None:
    account = kinesis_server.account(RealClock())
    events = iter(subscribed(account))
    assert next(events)["SubscribeToShardEvent"]["Records"] == []

    account.client().put_record(StreamName="clicks", Data=b"1", PartitionKey="k")

    assert [record["Data"] for record in next(events)["SubscribeToShardEvent"]["Records"]] == [b"1"]


def test_stopping_server_releases_waiting_clients() -> None:
    with KinesisServer() as server:
        events = iter(subscribed(server.account()))
        next(events)

    assert list(events) == []


def test_server_process_is_controlled_and_ends() -> None:
    with KinesisServerProcess() as server:
        client = server.client()
        client.create_stream(StreamName="clicks", ShardCount=1)
        client.put_record(StreamName="clicks", Data=b"1", PartitionKey="k")
        server.control("trim", stream="clicks")
        server.control("fault", effect="fail", operation="ListShards")

        with pytest.raises(ClientError, match="InternalFailure"):
            client.list_shards(StreamName="clicks")
        iterator = client.get_shard_iterator(
            StreamName="clicks", ShardId=FIRST_SHARD, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        assert client.get_records(ShardIterator=iterator)["Records"] == []
        assert server.control("calls")["ListShards"] == 1
    with pytest.raises(EndpointConnectionError):
        client.list_streams()
