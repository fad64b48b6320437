"""The lag of an unread shard is the age of its first record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from botocore.stub import Stubber

from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.service import PAGES, unread
from airflow_provider_coordination.sources.kinesis.shards import Shard
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService
from tests.support.clock import ManualClock
from tests.support.shard_leases import a_lease

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SHARD = Shard(
    shard_id="shardId-000000000000",
    parent_shard_ids=(),
    starting_hash_key="0",
    ending_hash_key=str(2**128 - 1),
    starting_sequence_number="1",
    ending_sequence_number=None,
)


class StubShard:
    """A shard that answers what it is said to answer."""

    def __init__(self, client: KinesisClient, answers: Stubber, checkpoint: str = "7") -> None:
        self.client = client
        self.answers = answers
        self.partition: Partition = a_lease(SHARD, checkpoint=checkpoint).partition
        position = {"StreamName": "s", "ShardId": SHARD.shard_id, "ShardIteratorType": "AFTER_SEQUENCE_NUMBER"}
        answers.add_response("get_shard_iterator", {"ShardIterator": "i0"}, {**position, "StartingSequenceNumber": "7"})

    def gives(self, *arrivals: datetime, behind: int, page: int = 0) -> None:
        records = [
            {"SequenceNumber": "8", "PartitionKey": "k", "ApproximateArrivalTimestamp": at, "Data": b"x"}
            for at in arrivals
        ]
        answer: dict[str, Any] = {
            "Records": records,
            "MillisBehindLatest": behind,
            "NextShardIterator": f"i{page + 1}",
            "ResponseMetadata": {"HTTPHeaders": {"date": format_datetime(NOON, usegmt=True)}},
        }
        self.answers.add_response("get_records", answer, {"ShardIterator": f"i{page}", "Limit": 1})

    def lag(self) -> timedelta | None:
        clock = ManualClock(NOON)
        once = RetryBudget(attempts=1, clock=clock, sleep=clock.advance)
        return unread(StreamService(self.client), self.partition, once).lag


@pytest.fixture
def shard(client: KinesisClient, kinesis_answers: Stubber) -> StubShard:
    return StubShard(client, kinesis_answers)


def test_lag_is_the_wait_of_the_first_unread_record(shard: StubShard) -> None:
    shard.gives(NOON - timedelta(seconds=90), behind=90_000)

    assert shard.lag() == timedelta(seconds=90)


def test_record_that_has_just_arrived_has_a_lag(shard: StubShard) -> None:
    """The service gives its time in whole seconds, so a record may be later."""
    shard.gives(NOON + timedelta(seconds=0.4), behind=0)

    assert shard.lag() == timedelta(milliseconds=1)


def test_quiet_shard_has_no_lag(shard: StubShard) -> None:
    shard.gives(behind=0)

    assert shard.lag() == timedelta(0)


def test_empty_page_far_behind_the_tip_is_skipped(shard: StubShard) -> None:
    shard.gives(behind=5_000)
    shard.gives(NOON - timedelta(seconds=4), behind=4_000, page=1)

    assert shard.lag() == timedelta(seconds=4.25)  # a read of the shard later


def test_lag_is_unknown_after_a_few_empty_pages(shard: StubShard) -> None:
    for number in range(PAGES):
        shard.gives(behind=5_000, page=number)

    assert shard.lag() is None


def test_lag_is_unknown_without_a_response(shard: StubShard) -> None:
    shard.answers.add_client_error("get_records", "InternalFailure", http_status_code=500)

    assert shard.lag() is None
