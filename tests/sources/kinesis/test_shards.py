"""What the service says about a stream, read page by page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.stub import Stubber

from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.errors import (
    KinesisUnavailableError,
    StreamNotFoundError,
    StreamNotReadyError,
)
from airflow_provider_coordination.sources.kinesis.shards import (
    Shard,
    StreamDescription,
    describe_stream,
    list_shards,
)
from tests.support.clock import ManualClock

CREATED_AT = datetime(2026, 1, 1, 12, 0, 0, 900_000, tzinfo=UTC)


def summary(status: str = "ACTIVE") -> dict[str, Any]:
    return {
        "StreamDescriptionSummary": {
            "StreamName": "clicks",
            "StreamARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/clicks",
            "StreamStatus": status,
            "RetentionPeriodHours": 24,
            "StreamCreationTimestamp": CREATED_AT,
            "EnhancedMonitoring": [],
            "OpenShardCount": 4,
        }
    }


def listed(name: str, ending: str | None = None, **parents: str) -> dict[str, Any]:
    sequence_numbers = {"StartingSequenceNumber": "10"} | ({"EndingSequenceNumber": ending} if ending else {})
    return {
        "ShardId": name,
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
        "SequenceNumberRange": sequence_numbers,
        **parents,
    }


@pytest.mark.parametrize("status", ["ACTIVE", "UPDATING"])
def test_a_stream_is_described_with_its_epoch_in_whole_seconds(
    client: KinesisClient, kinesis_answers: Stubber, status: str
) -> None:
    kinesis_answers.add_response("describe_stream_summary", summary(status), {"StreamName": "clicks"})

    epoch = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp())
    assert describe_stream(client, "clicks") == StreamDescription("clicks", epoch, 4, 24)


def test_a_stream_that_is_being_created_is_waited_for(client: KinesisClient, kinesis_answers: Stubber) -> None:
    for status in ("CREATING", "CREATING", "ACTIVE"):
        kinesis_answers.add_response("describe_stream_summary", summary(status))
    clock = ManualClock()

    assert describe_stream(client, "clicks", clock=clock, sleep=clock.advance).open_shards == 4


def test_a_stream_that_does_not_get_ready_is_not_waited_for_for_ever(
    client: KinesisClient, kinesis_answers: Stubber
) -> None:
    for _ in range(4):
        kinesis_answers.add_response("describe_stream_summary", summary("CREATING"))
    clock = ManualClock()

    with pytest.raises(StreamNotReadyError, match="'clicks' is CREATING after 3 s"):
        describe_stream(client, "clicks", ready_within_seconds=3, clock=clock, sleep=clock.advance)


def test_a_stream_that_is_being_deleted_is_as_good_as_gone(client: KinesisClient, kinesis_answers: Stubber) -> None:
    kinesis_answers.add_response("describe_stream_summary", summary("DELETING"))

    with pytest.raises(StreamNotFoundError, match="is being deleted"):
        describe_stream(client, "clicks")


def test_a_stream_that_does_not_exist_is_a_clear_error(client: KinesisClient, kinesis_answers: Stubber) -> None:
    kinesis_answers.add_client_error("describe_stream_summary", "ResourceNotFoundException")

    with pytest.raises(StreamNotFoundError, match="stream 'clicks' does not exist in region eu-west-1 at http://"):
        describe_stream(client, "clicks")


def test_every_page_of_the_list_is_read_and_the_token_stands_alone(
    client: KinesisClient, kinesis_answers: Stubber
) -> None:
    kinesis_answers.add_response(
        "list_shards", {"Shards": [listed("a", ending="20")], "NextToken": "more"}, {"StreamName": "clicks"}
    )
    merged = listed("b", ParentShardId="x", AdjacentParentShardId="a")
    kinesis_answers.add_response("list_shards", {"Shards": [merged]}, {"NextToken": "more"})

    assert list_shards(client, "clicks") == [
        Shard("a", (), "0", "9", "10", "20"),
        Shard("b", ("x", "a"), "0", "9", "10", None),
    ]


def test_a_shard_is_open_until_it_has_an_ending_sequence_number() -> None:
    assert Shard.from_api(listed("a")).is_open
    assert not Shard.from_api(listed("a", ending="20")).is_open


def test_a_listing_can_be_filtered(client: KinesisClient, kinesis_answers: Stubber) -> None:
    kinesis_answers.add_response(
        "list_shards", {"Shards": []}, {"StreamName": "clicks", "ShardFilter": {"Type": "AT_LATEST"}}
    )

    assert list_shards(client, "clicks", shard_filter={"Type": "AT_LATEST"}) == []


def test_a_listing_that_is_throttled_beyond_all_retries_is_an_outage(
    client: KinesisClient, kinesis_answers: Stubber
) -> None:
    kinesis_answers.add_client_error("list_shards", "LimitExceededException", http_status_code=400)

    with pytest.raises(KinesisUnavailableError, match="clicks"):
        list_shards(client, "clicks")
