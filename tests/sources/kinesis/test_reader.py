"""A shard is read from a position to its end, also with expired iterators."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from itertools import islice
from typing import Any

import pytest
from botocore.stub import Stubber

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis.batch_reading import ShardPage
from airflow_provider_coordination.sources.kinesis.client import (
    AccessDeniedError,
    KinesisClient,
    KinesisUnavailableError,
    PositionRefusedError,
    ShardNotFoundError,
    ThrottledError,
    kinesis_client,
)
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.progress import ShardRange
from airflow_provider_coordination.sources.kinesis.reader import RENEWALS_IN_A_ROW, read_shard
from airflow_provider_coordination.sources.kinesis.records import KinesisRecord
from tests.support.clock import ManualClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class StubShard:
    """Sets the responses of the stub, and reads."""

    def __init__(self, client: KinesisClient, answers: Stubber) -> None:
        self.client = client
        self.answers = answers
        self.clock = ManualClock()
        self.sleeps: list[float] = []

    def gives_iterator(self, iterator: str, **position: Any) -> None:
        request = {"StreamName": "clicks", "ShardId": "shard-1"} | position
        self.answers.add_response("get_shard_iterator", {"ShardIterator": iterator}, request)

    def gives_page(
        self, iterator: str, *numbers: str, then: str | None = None, arrivals: Sequence[datetime] = (), **more: Any
    ) -> None:
        page = {
            "Records": [
                record(number, *arrival)
                for number, *arrival in zip(numbers, *([arrivals] if arrivals else []), strict=True)
            ]
        } | more
        if then:
            page["NextShardIterator"] = then
        self.answers.add_response("get_records", page, {"ShardIterator": iterator, "Limit": 10_000})

    def refuses_to_read(self, code: str, times: int = 1) -> None:
        for _ in range(times):
            self.answers.add_client_error("get_records", code)

    def refuses_the_position(self, served_at: datetime | None = None) -> None:
        headers = {} if served_at is None else {"HTTPHeaders": {"date": format_datetime(served_at, usegmt=True)}}
        self.answers.add_client_error("get_shard_iterator", "InvalidArgumentException", response_meta=headers)

    def read(self, start: str, pages: int = 100) -> list[ShardPage]:
        return list(islice(self.reading(start), pages))

    def reading(self, start: str, **options: Any) -> Any:
        retry = RetryBudget(clock=self.clock, sleep=self.sleep, jitter=lambda: 1.0, attempts=2)
        return read_shard(self.client, "clicks", "shard-1", start, retry=retry, **options)

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(round(seconds, 6))
        self.clock.advance(seconds)


def record(number: str, arrival: datetime = NOON) -> dict[str, Any]:
    return {
        "SequenceNumber": number,
        "PartitionKey": f"key-{number}",
        "ApproximateArrivalTimestamp": arrival.astimezone(timezone(timedelta(hours=-5))),
        "Data": number.encode(),
    }


def numbers(pages: list[ShardPage]) -> list[list[str]]:
    return [[record.sequence_number for record in page.records] for page in pages]


@pytest.fixture(scope="module")
def client() -> KinesisClient:
    return kinesis_client(
        AwsSettings(
            region="eu-west-1", endpoint_url="http://127.0.0.1:1", access_key_id="AKIA", secret_access_key="hush"
        )
    )


@pytest.fixture
def shard(client: KinesisClient, kinesis_answers: Stubber) -> StubShard:
    return StubShard(client, kinesis_answers)


def test_shard_is_read_page_by_page_from_its_earliest_record(shard: StubShard) -> None:
    shard.gives_iterator("i1", ShardIteratorType="TRIM_HORIZON")
    shard.gives_page("i1", "1", "2", then="i2", MillisBehindLatest=500)
    shard.gives_page("i2", then="i3", MillisBehindLatest=0)

    pages = shard.read("TRIM_HORIZON", pages=2)

    assert numbers(pages) == [["1", "2"], []]
    assert [page.millis_behind_latest for page in pages] == [500, 0]
    assert not any(page.end_of_shard for page in pages)


def test_record_arrival_is_in_utc(shard: StubShard) -> None:
    shard.gives_iterator("i1", ShardIteratorType="TRIM_HORIZON")
    shard.gives_page("i1", "1", then="i2")

    [page] = shard.read("TRIM_HORIZON", pages=1)

    assert page.records == [KinesisRecord("1", "key-1", NOON, b"1")]
    assert page.records[0].approximate_arrival_timestamp.tzinfo is UTC


def test_reading_resumes_after_a_sequence_number(shard: StubShard) -> None:
    shard.gives_iterator("i1", ShardIteratorType="AFTER_SEQUENCE_NUMBER", StartingSequenceNumber="7")
    shard.gives_page("i1", "8", then="i2")

    assert numbers(shard.read("7", pages=1)) == [["8"]]


def test_last_page_may_hold_records_and_names_children(shard: StubShard) -> None:
    child = {
        "ShardId": "shard-2",
        "ParentShards": ["shard-1", "shard-0"],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
    }
    shard.gives_iterator("i1", ShardIteratorType="TRIM_HORIZON")
    shard.gives_page("i1", "1", ChildShards=[child])

    [page] = shard.read("TRIM_HORIZON")

    assert page.end_of_shard
    assert numbers([page]) == [["1"]]
    assert page.children == (
        ShardRange(
            shard_id="shard-2",
            parent_shard_ids=("shard-1", "shard-0"),
            starting_hash_key="0",
            ending_hash_key="9",
        ),
    )


def test_expired_iterator_resumes_after_the_last_record(shard: StubShard) -> None:
    shard.gives_iterator("i1", ShardIteratorType="TRIM_HORIZON")
    shard.gives_page("i1", "1", "2", then="i2")
    shard.gives_page("i2", then="i3")
    shard.refuses_to_read("ExpiredIteratorException")
    shard.gives_iterator("i4", ShardIteratorType="AFTER_SEQUENCE_NUMBER", StartingSequenceNumber="2")
    shard.gives_page("i4", "3")

    assert numbers(shard.read("TRIM_HORIZON")) == [["1", "2"], [], ["3"]]


def test_iterator_expiring_before_any_read_restarts_at_its_position(shard: StubShard) -> None:
    shard.gives_iterator("i1", ShardIteratorType="TRIM_HORIZON")
    shard.refuses_to_read("ExpiredIteratorException")
    shard.gives_iterator("i2", ShardIteratorType="TRIM_HORIZON")
    shard.gives_page("i2", "1")

    assert numbers(shard.read("TRIM_HORIZON")) == [["1"]]


def test_constantly_expiring_iterators_are_an_outage(shard: StubShard) -> None:
    for attempt in range(RENEWALS_IN_A_ROW + 1):
        shard.gives_iterator(f"i{attempt}", ShardIteratorType="TRIM_HORIZON")
        shard.refuses_to_read("ExpiredIteratorException")

    with pytest.raises(KinesisUnavailableError, match="expired unused"):
        shard.read("TRIM_HORIZON")


def test_reads_are_spaced_by_the_remaining_interval(shard: StubShard) -> None:
    shard.gives_iterator("i1", ShardIteratorType="TRIM_HORIZON")
    for page in range(1, 5):
        shard.gives_page(f"i{page}", then=f"i{page + 1}")
    reading = shard.reading("TRIM_HORIZON", reads_per_second=4.0)

    next(reading)
    next(reading)
    shard.clock.advance(0.15)
    next(reading)
    shard.clock.advance(60)
    next(reading)

    assert shard.sleeps == [0.25, 0.1]


def test_page_reports_its_request_time(shard: StubShard) -> None:
    shard.gives_iterator("i1", ShardIteratorType="TRIM_HORIZON")
    shard.gives_page("i1", then="i2")
    requested_at = shard.clock.now()

    [page] = shard.read("TRIM_HORIZON", pages=1)

    assert page.read_at == requested_at


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("ResourceNotFoundException", ShardNotFoundError),
        ("AccessDeniedException", AccessDeniedError),
        ("KMSDisabledException", AccessDeniedError),
    ],
)
def test_unreadable_shard_raises_an_error_naming_it(shard: StubShard, code: str, error: type[Exception]) -> None:
    shard.gives_iterator("i1", ShardIteratorType="TRIM_HORIZON")
    shard.refuses_to_read(code)

    with pytest.raises(error, match="stream 'clicks' shard 'shard-1'"):
        shard.read("TRIM_HORIZON")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("ProvisionedThroughputExceededException", ThrottledError),
        ("KMSThrottlingException", KinesisUnavailableError),
        ("InternalFailure", KinesisUnavailableError),
    ],
)
def test_temporary_failures_are_retried_up_to_the_limit(shard: StubShard, code: str, error: type[Exception]) -> None:
    shard.gives_iterator("i1", ShardIteratorType="TRIM_HORIZON")
    shard.refuses_to_read(code)
    shard.gives_page("i1", "1", then="i2")
    shard.refuses_to_read(code, times=2)

    with pytest.raises(error, match="stream 'clicks' shard 'shard-1'"):
        shard.read("TRIM_HORIZON")


def test_position_unknown_to_the_service_is_named(shard: StubShard) -> None:
    shard.answers.add_client_error("get_shard_iterator", "InvalidArgumentException")

    with pytest.raises(PositionRefusedError, match="shard 'shard-1'"):
        shard.read("7")


def test_invalid_position_is_refused_before_any_request(shard: StubShard) -> None:
    with pytest.raises(ValueError, match="position 'LATEST' is invalid"):
        shard.reading("LATEST")


def test_reading_from_an_instant_starts_at_the_next_record(shard: StubShard) -> None:
    # A version of boto3 sends whole seconds; so what arrived earlier in that second comes too.
    start = NOON + timedelta(milliseconds=500)
    shard.gives_iterator("i1", ShardIteratorType="AT_TIMESTAMP", Timestamp=start)
    shard.gives_page("i1", "1", "2", "3", then="i2", arrivals=[NOON, start, NOON])

    assert numbers(shard.read(f"AT_TIMESTAMP:{NOON:%Y-%m-%dT%H:%M:%S}.500000Z", pages=1)) == [["2", "3"]]


def test_unused_iterator_at_an_instant_is_recreated_there(shard: StubShard) -> None:
    shard.gives_iterator("i1", ShardIteratorType="AT_TIMESTAMP", Timestamp=NOON)
    shard.gives_page("i1", "1", then="i2", arrivals=[NOON - timedelta(seconds=1)])
    shard.refuses_to_read("ExpiredIteratorException")
    shard.gives_iterator("i3", ShardIteratorType="AT_TIMESTAMP", Timestamp=NOON)
    shard.gives_page("i3", "2")

    assert numbers(shard.read("AT_TIMESTAMP:2026-01-01T12:00:00.000000Z")) == [[], ["2"]]


def test_instant_ahead_of_the_service_clock_is_waited_for(shard: StubShard) -> None:
    served_at = NOON - timedelta(seconds=2)
    shard.refuses_the_position(served_at)
    shard.refuses_the_position(served_at)
    shard.gives_iterator("i1", ShardIteratorType="AT_TIMESTAMP", Timestamp=NOON)
    shard.gives_page("i1", "1")

    waiting, still, page = shard.read("AT_TIMESTAMP:2026-01-01T12:00:00.000000Z")

    assert numbers([waiting, still, page]) == [[], [], ["1"]]
    assert waiting.is_drained and waiting.read_at == served_at
    assert sum(shard.sleeps) >= 2


def test_refused_past_instant_is_an_error(shard: StubShard) -> None:
    shard.refuses_the_position(NOON + timedelta(seconds=2))

    with pytest.raises(PositionRefusedError):
        shard.read("AT_TIMESTAMP:2026-01-01T12:00:00.000000Z")


def test_position_inside_an_aggregate_begins_with_the_whole_record(shard: StubShard) -> None:
    shard.gives_iterator("i1", ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber="7")
    shard.gives_page("i1", "7", "8", then="i2")

    assert numbers(shard.read("7:3", pages=1)) == [["7", "8"]]


def test_inclusive_reading_applies_until_a_record_was_read(shard: StubShard) -> None:
    shard.gives_iterator("i1", ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber="7")
    shard.refuses_to_read("ExpiredIteratorException")
    shard.gives_iterator("i2", ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber="7")
    shard.gives_page("i2", "7", then="i3")
    shard.refuses_to_read("ExpiredIteratorException")
    shard.gives_iterator("i4", ShardIteratorType="AFTER_SEQUENCE_NUMBER", StartingSequenceNumber="7")
    shard.gives_page("i4", "8")

    assert numbers(list(shard.reading("7", inclusive=True))) == [["7"], ["8"]]


def test_iterator_unknown_to_the_service_is_replaced_once(shard: StubShard) -> None:
    shard.gives_iterator("i1", ShardIteratorType="TRIM_HORIZON")
    shard.gives_page("i1", "1", then="i2")
    shard.refuses_to_read("InvalidArgumentException")
    shard.gives_iterator("i3", ShardIteratorType="AFTER_SEQUENCE_NUMBER", StartingSequenceNumber="1")
    shard.gives_page("i3", "2", then="i4")
    shard.refuses_to_read("InvalidArgumentException")
    shard.gives_iterator("i5", ShardIteratorType="AFTER_SEQUENCE_NUMBER", StartingSequenceNumber="2")
    shard.refuses_to_read("InvalidArgumentException")
    reading = shard.reading("TRIM_HORIZON")

    assert numbers([next(reading), next(reading)]) == [["1"], ["2"]]
    with pytest.raises(PositionRefusedError):
        next(reading)


@pytest.mark.parametrize(
    ("date", "read_at"),
    [
        (0.0, 0.75),  # the clocks agree: ours is finer
        (30.0, 30.0),  # ours is behind
        (-30.0, -30.0),  # ours is ahead
    ],
)
def test_page_is_dated_by_the_service_clock(shard: StubShard, date: float, read_at: float) -> None:
    requested_at = shard.clock.now()
    shard.clock.advance(0.75)
    header = format_datetime(requested_at + timedelta(seconds=date), usegmt=True)
    shard.gives_iterator("i1", ShardIteratorType="TRIM_HORIZON")
    shard.gives_page("i1", then="i2", ResponseMetadata={"HTTPHeaders": {"date": header}})

    [page] = shard.read("TRIM_HORIZON", pages=1)

    assert page.read_at == requested_at + timedelta(seconds=read_at)


def test_response_without_records_is_no_page(shard: StubShard) -> None:
    shard.gives_iterator("i1", ShardIteratorType="TRIM_HORIZON")
    spoil = ("after-call.kinesis.GetRecords", lambda parsed, **_: parsed.pop("Records"))
    shard.client.meta.events.register(*spoil)
    shard.gives_page("i1", then="i2")

    with pytest.raises(KinesisUnavailableError, match="no valid response"):
        shard.read("TRIM_HORIZON")
    shard.client.meta.events.unregister(*spoil)
