"""The lag of an unread shard is the age of its first unread change, and a quiet shard has none."""

from __future__ import annotations

from datetime import datetime, timedelta
from unittest.mock import ANY

import pytest

from airflow_provider_coordination.coordination.partition import Partition, new_partition
from airflow_provider_coordination.sources.dynamodb_streams.client import EMPTY_PAGES
from airflow_provider_coordination.sources.dynamodb_streams.service import unread
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON, at_timestamp
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, partition_key
from airflow_provider_coordination.sources.kinesis.service import LEAST_LAG
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService
from tests.sources.dynamodb_streams.conftest import TABLE
from tests.support.dynamodb_streams import DynamoDbStreams, client_of, strings

KEY = "a"


def a_partition(service: DynamoDbStreams, checkpoint: str, **progress: bool) -> Partition:
    """Return the partition of the shard that the changes of `KEY` are in."""
    stream = service.stream_of(TABLE)
    shard = next((each for each in stream.shards.values() if each.changes), next(iter(stream.shards.values())))
    known = ShardProgress(
        kind="dynamodb_streams",
        stream=TABLE,
        shard_id=shard.shard_id,
        parent_shard_ids=(),
        starting_hash_key="",
        ending_hash_key="",
        checkpoint=checkpoint,
        **progress,
    )
    key = partition_key(TABLE, int(stream.created_at.timestamp()), shard.shard_id)
    return new_partition(f"{TABLE}|PARTITION", key, service.clock.now()).with_progress(known.to_mapping())


def lag(service: DynamoDbStreams, checkpoint: str, **progress: bool) -> timedelta | None:
    partition = a_partition(service, checkpoint, **progress)
    once = RetryBudget(attempts=1, clock=service.clock, sleep=service.clock.sleep)
    return unread(StreamService(client_of(service)), partition, once).lag


def put(service: DynamoDbStreams, *, after: int = 0) -> tuple[datetime, int]:
    """Put an item; return when, and the number of its change."""
    service.clock.advance(after)
    service.put(TABLE, strings(id=KEY))
    [shard] = [each for each in service.stream_of(TABLE).shards.values() if each.changes]
    return service.clock.now(), shard.changes[-1].number


def test_lag_is_the_wait_of_the_first_unread_change(service: DynamoDbStreams) -> None:
    _, read = put(service)
    put(service, after=60)
    service.clock.advance(90)
    assert lag(service, str(read)) == timedelta(seconds=90)
    assert service.calls["get_records"] == 1
    assert lag(service, TRIM_HORIZON) == timedelta(seconds=150)


def test_quiet_shard_has_no_lag(service: DynamoDbStreams) -> None:
    _, read = put(service)
    service.clock.advance(90)
    lagging = lag(service, str(read))
    assert lagging == timedelta(0)
    assert service.calls["get_records"] == EMPTY_PAGES


def test_changes_before_the_beginning_count_as_read(service: DynamoDbStreams) -> None:
    for _ in range(20):
        put(service, after=10)
    began, _ = put(service, after=60)
    service.clock.advance(30)
    assert lag(service, at_timestamp(began)) == timedelta(seconds=30)
    assert service.calls["get_records"] == 1


@pytest.mark.parametrize(("is_ended", "expected"), [(True, timedelta(0)), (False, LEAST_LAG)])
def test_end_of_a_shard_is_lag_until_read(service: DynamoDbStreams, *, is_ended: bool, expected: timedelta) -> None:
    _, read = put(service)
    service.roll(TABLE)
    assert lag(service, str(read), is_ended=is_ended) == expected


def test_only_a_read_shard_is_confirmed(service: DynamoDbStreams) -> None:
    _, read = put(service)
    service.clock.advance(90)
    partition = a_partition(service, str(read))
    confirmed = unread(StreamService(client_of(service)), partition).confirmed
    assert confirmed == {**partition.progress, "delivered_until": ANY, "throughput": 0.0}
    put(service)
    assert unread(StreamService(client_of(service)), partition).confirmed is None


def test_lag_of_a_history_or_an_outage_is_unknown(service: DynamoDbStreams) -> None:
    history = new_partition("orders|PARTITION", "orders/1/0", service.clock.now()).with_progress(
        PartitionProgress(kind="dynamodb", items=({"segment": 0},)).to_mapping()
    )
    assert unread(StreamService(client_of(service)), history).lag is None
    service.refusals = [("get_records", "InternalServerError")]
    assert lag(service, TRIM_HORIZON) is None
