"""The service's description of a stream, read page by page."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.stub import Stubber

from airflow_provider_coordination.sources.kinesis.client import (
    AccessDeniedError,
    KinesisClient,
    QuotaExceededError,
    StreamNotFoundError,
    StreamNotReadyError,
)
from airflow_provider_coordination.sources.kinesis.shards import (
    MAX_HASH_KEY,
    Shard,
    StreamDescription,
    describe_stream,
    hash_range_fault,
    list_shards,
)
from airflow_provider_coordination.sources.kinesis.stream_names import QUOTA_TRIES
from tests.support.clock import ManualClock
from tests.support.shard_graphs import shard

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
def test_stream_description_has_an_epoch_in_seconds(
    client: KinesisClient, kinesis_answers: Stubber, status: str
) -> None:
    kinesis_answers.add_response("describe_stream_summary", summary(status), {"StreamName": "clicks"})

    epoch = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp())
    assert describe_stream(client, "clicks") == StreamDescription("clicks", epoch, 4, 24)


def test_stream_being_created_is_waited_for(client: KinesisClient, kinesis_answers: Stubber) -> None:
    for status in ("CREATING", "CREATING", "ACTIVE"):
        kinesis_answers.add_response("describe_stream_summary", summary(status))
    clock = ManualClock()

    assert describe_stream(client, "clicks", clock=clock, sleep=clock.advance).open_shards == 4


def test_waiting_for_a_stream_times_out(client: KinesisClient, kinesis_answers: Stubber) -> None:
    for _ in range(4):
        kinesis_answers.add_response("describe_stream_summary", summary("CREATING"))
    clock = ManualClock()

    with pytest.raises(StreamNotReadyError, match="'clicks' is CREATING after 3 s"):
        describe_stream(client, "clicks", ready_within_seconds=3, clock=clock, sleep=clock.advance)


def test_stream_being_deleted_counts_as_missing(client: KinesisClient, kinesis_answers: Stubber) -> None:
    kinesis_answers.add_response("describe_stream_summary", summary("DELETING"))

    with pytest.raises(StreamNotFoundError, match="is being deleted"):
        describe_stream(client, "clicks")


def test_missing_stream_is_a_clear_error(client: KinesisClient, kinesis_answers: Stubber) -> None:
    kinesis_answers.add_client_error("describe_stream_summary", "ResourceNotFoundException")

    with pytest.raises(StreamNotFoundError, match="stream 'clicks' does not exist in region eu-west-1 at http://"):
        describe_stream(client, "clicks")


def test_listing_reads_every_page_by_token_alone(client: KinesisClient, kinesis_answers: Stubber) -> None:
    kinesis_answers.add_response(
        "list_shards", {"Shards": [listed("a", ending="20")], "NextToken": "more"}, {"StreamName": "clicks"}
    )
    merged = listed("b", ParentShardId="x", AdjacentParentShardId="a")
    kinesis_answers.add_response("list_shards", {"Shards": [merged]}, {"NextToken": "more"})

    assert list_shards(client, "clicks") == [
        Shard("a", (), "0", "9", "10", "20"),
        Shard("b", ("x", "a"), "0", "9", "10", None),
    ]


def test_shard_is_open_until_its_ending_sequence_number() -> None:
    assert Shard.from_api(listed("a")).is_open
    assert not Shard.from_api(listed("a", ending="20")).is_open


def test_listing_can_be_filtered(client: KinesisClient, kinesis_answers: Stubber) -> None:
    kinesis_answers.add_response(
        "list_shards", {"Shards": []}, {"StreamName": "clicks", "ShardFilter": {"Type": "AT_LATEST"}}
    )

    assert list_shards(client, "clicks", shard_filter={"Type": "AT_LATEST"}) == []


def test_listing_waits_while_the_quota_is_exceeded(client: KinesisClient, kinesis_answers: Stubber) -> None:
    for _ in range(QUOTA_TRIES - 1):
        kinesis_answers.add_client_error("list_shards", "LimitExceededException", http_status_code=400)
    kinesis_answers.add_response("list_shards", {"Shards": [listed("a")]})
    waited: list[float] = []

    assert [shard.shard_id for shard in list_shards(client, "clicks", sleep=waited.append)] == ["a"]
    assert waited == [1.5] * 49


def test_listing_fails_if_the_quota_stays_exceeded(client: KinesisClient, kinesis_answers: Stubber) -> None:
    for _ in range(QUOTA_TRIES):
        kinesis_answers.add_client_error("list_shards", "LimitExceededException", http_status_code=400)

    with pytest.raises(QuotaExceededError, match="clicks"):
        list_shards(client, "clicks", sleep=lambda seconds: None)


def test_other_errors_are_not_waited_for(client: KinesisClient, kinesis_answers: Stubber) -> None:
    kinesis_answers.add_client_error("list_shards", "AccessDeniedException", http_status_code=400)

    with pytest.raises(AccessDeniedError, match="clicks"):
        list_shards(client, "clicks", sleep=lambda seconds: pytest.fail("it waited"))


MAX = MAX_HASH_KEY


@pytest.mark.parametrize(
    ("ranges", "fault"),
    [
        ([(0, MAX)], ""),
        ([(0, 420), (421, MAX)], ""),
        ([], "no shard is listed"),
        ([(1, MAX)], "no shard covers the hash keys 0 to 0, between the first hash key and s0"),
        ([(0, 69), (71, MAX)], "no shard covers the hash keys 70 to 70, between s0 and s1"),
        ([(0, 70), (70, MAX)], "the hash range 70 to .* of s1 overlaps the one of s0"),
        ([(0, MAX), (5, 9)], "the hash range 5 to 9 of s1 overlaps the one of s0"),
        ([(0, MAX - 1)], "the last hash range, of s0, ends at .*454 and not at .*455"),
    ],
)
def test_shards_covering_hash_keys_incorrectly_are_reported(ranges: list[tuple[int, int]], fault: str) -> None:
    shards = [shard(f"s{number}", 1, None, keys=keys) for number, keys in enumerate(ranges)]

    assert re.fullmatch(fault, hash_range_fault(shards))
