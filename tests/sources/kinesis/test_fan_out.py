"""Enhanced fan-out gives the same pages as polling, and survives the loss of subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.batch_reading import ShardPage
from airflow_provider_coordination.sources.kinesis.client import (
    AccessDeniedError,
    KinesisUnavailableError,
    PositionRefusedError,
    ShardNotFoundError,
    StreamNotFoundError,
    StreamNotReadyError,
)
from airflow_provider_coordination.sources.kinesis.fan_out import ensure_consumer, subscribe_shard
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.reader import read_shard
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.in_process import InProcessClient
from tests.support.kinesis_server.limits import Limits
from tests.support.kinesis_server.state import Behaviour

SHARD = "shardId-000000000000"


class Stream:
    """A stream of one shard with a consumer, and how it is read."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.engine = Engine(self.clock)
        self.client = InProcessClient(self.engine)
        self.client.create_stream(StreamName="clicks", ShardCount=1)
        self.arn = self.client.describe_stream_summary(StreamName="clicks")["StreamDescriptionSummary"]["StreamARN"]
        self.consumer = self.ensure("analytics")

    def ensure(self, name: str, **options: float) -> str:
        return ensure_consumer(self.client, "clicks", self.arn, name, retry=self.retry(), **options)  # type: ignore[arg-type]

    def retry(self, **options: float) -> RetryBudget:
        return RetryBudget(clock=self.clock, sleep=self.clock.sleep, jitter=lambda: 1.0, **options)  # type: ignore[arg-type]

    def put(self, *data: bytes) -> list[str]:
        put = self.client.put_record
        return [put(StreamName="clicks", Data=d, PartitionKey="k", ExplicitHashKey="0")["SequenceNumber"] for d in data]

    def read(self, start: str = "TRIM_HORIZON", pages: int = 1, **options: float | bool) -> list[ShardPage]:
        inclusive = bool(options.pop("inclusive", False))
        reading = subscribe_shard(
            self.client, self.consumer, "clicks", SHARD, start, inclusive=inclusive, retry=self.retry(**options)
        )
        try:
            return list(islice(reading, pages))
        finally:
            reading.close()

    def split(self) -> None:
        self.client.split_shard(StreamName="clicks", ShardToSplit=SHARD, NewStartingHashKey=str(2**127))


@pytest.fixture
def stream() -> Stream:
    return Stream()


def data(pages: list[ShardPage]) -> list[bytes]:
    return [record.data for page in pages for record in page.records]


def test_subscription_gives_the_records_of_polling(stream: Stream) -> None:
    stream.put(b"1", b"2", b"3")
    [polled] = islice(read_shard(stream.client, "clicks", SHARD, "TRIM_HORIZON"), 1)

    [sent] = stream.read()

    assert list(sent.records) == list(polled.records)
    assert (sent.millis_behind_latest, sent.end_of_shard, sent.children) == (0, False, ())


@pytest.mark.parametrize(
    ("start", "inclusive", "expected"),
    [
        ("TRIM_HORIZON", False, [b"0", b"1", b"2"]),
        ("{1}", False, [b"2"]),
        ("{1}", True, [b"1", b"2"]),
        ("{1}:4", False, [b"1", b"2"]),
        ("AT_TIMESTAMP:2026-01-01T00:00:10.000000Z", False, [b"1", b"2"]),
    ],
)
def test_subscription_begins_at_any_position(
    stream: Stream, start: str, inclusive: bool, expected: list[bytes]
) -> None:
    numbers = []
    for number in range(3):
        numbers += stream.put(b"%d" % number)
        stream.clock.advance(10)

    assert data(stream.read(start.format(*numbers), inclusive=inclusive)) == expected


def test_shard_end_names_its_children(stream: Stream) -> None:
    stream.put(b"1")
    stream.split()

    pages = stream.read(pages=9)

    assert data(pages) == [b"1"]
    assert pages[-1].end_of_shard
    assert [child.shard_id for child in pages[-1].children] == ["shardId-000000000001", "shardId-000000000002"]


def test_expired_subscription_is_replaced(stream: Stream) -> None:
    numbers: list[str] = []
    reading = subscribe_shard(stream.client, stream.consumer, "clicks", SHARD, "TRIM_HORIZON", retry=stream.retry())
    seen: list[str] = []
    for _ in range(200):
        stream.clock.advance(5)
        numbers += stream.put(b"x")
        seen += next(reading).records.sequence_numbers.to_pylist()  # type: ignore[attr-defined]
    reading.close()

    assert seen == numbers[: len(seen)] and len(numbers) - len(seen) <= 1
    assert stream.engine.calls["SubscribeToShard"] > 1


def test_inclusive_start_record_is_returned_once(stream: Stream) -> None:
    [number] = stream.put(b"1")
    assert data(stream.read(number, pages=70, inclusive=True)) == [b"1"]
    assert stream.engine.calls["SubscribeToShard"] > 1


def test_idle_shard_is_resubscribed_from_its_known_position(stream: Stream) -> None:
    [number] = stream.put(b"1")
    stream.read(number, pages=70)
    assert stream.engine.calls["SubscribeToShard"] > 1


def test_closing_the_pages_ends_the_subscription(stream: Stream) -> None:
    stream.put(b"1")
    stream.read()
    assert stream.engine.stream("clicks").consumers["analytics"].subscriptions == {}


@pytest.mark.parametrize(
    "harm",
    [
        lambda faults: faults.throttle("SubscribeToShard", times=2),
        lambda faults: faults.fail("SubscribeToShard", times=2),
        lambda faults: faults.reset("SubscribeToShard", times=2),
        lambda faults: faults.lose_answer("SubscribeToShard", times=2),
        lambda faults: faults.refuse("SubscribeToShard", "ResourceInUseException", times=2),
    ],
    ids=["throttled", "failed", "reset", "answer lost", "taken"],
)
def test_temporary_errors_are_retried(stream: Stream, harm: Callable[[object], object]) -> None:
    stream.put(b"1")
    harm(stream.engine.faults)
    assert data(stream.read()) == [b"1"]


def test_conflicting_subscription_is_waited_for(stream: Stream) -> None:
    stream.put(b"1")
    other = stream.client.subscribe_to_shard(
        ConsumerARN=stream.consumer, ShardId=SHARD, StartingPosition={"Type": "LATEST"}
    )["EventStream"]
    before = stream.clock.monotonic()

    assert data(stream.read()) == [b"1"]

    assert stream.clock.monotonic() - before >= 5
    other.close()


def test_waiting_times_out_without_a_record(stream: Stream) -> None:
    stream.put(b"1")
    stream.client.subscribe_to_shard(ConsumerARN=stream.consumer, ShardId=SHARD, StartingPosition={"Type": "LATEST"})

    pages = stream.read(pages=9, until=stream.clock.monotonic() + 3)

    assert data(pages) == []
    assert [(page.is_drained, page.end_of_shard) for page in pages] == [(False, False)]


def test_subscription_taken_over_is_taken_back(stream: Stream) -> None:
    stream.put(b"1")
    reading = subscribe_shard(stream.client, stream.consumer, "clicks", SHARD, "TRIM_HORIZON", retry=stream.retry())
    assert data([next(reading)]) == [b"1"]
    stream.clock.advance(6)
    stream.client.subscribe_to_shard(ConsumerARN=stream.consumer, ShardId=SHARD, StartingPosition={"Type": "LATEST"})
    stream.put(b"2")

    assert data(list(islice(reading, 2))) == [b"2"]
    reading.close()


def test_persistent_outage_is_an_error(stream: Stream) -> None:
    stream.engine.faults.fail("SubscribeToShard", times=None)
    with pytest.raises(KinesisUnavailableError):
        stream.read(attempts=3)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("AccessDeniedException", AccessDeniedError),
        ("KMSAccessDeniedException", AccessDeniedError),
        ("InvalidArgumentException", PositionRefusedError),
    ],
)
def test_permanent_failure_is_an_error_at_once(stream: Stream, code: str, error: type[Exception]) -> None:
    stream.engine.faults.refuse("SubscribeToShard", code, times=None)
    with pytest.raises(error, match=SHARD):
        stream.read()


def test_instant_ahead_of_the_service_clock_is_waited_for(stream: Stream) -> None:
    waiting, *_ = stream.read("AT_TIMESTAMP:2026-01-01T00:00:02.500000Z", pages=1)
    assert waiting.is_drained
    stream.clock.advance(10)
    stream.put(b"1")
    assert data(stream.read("AT_TIMESTAMP:2026-01-01T00:00:02.500000Z")) == [b"1"]


def test_lost_shard_is_distinguished_from_a_lost_consumer(stream: Stream) -> None:
    with pytest.raises(ShardNotFoundError):
        list(subscribe_shard(stream.client, stream.consumer, "clicks", "shardId-000000000009", "TRIM_HORIZON"))
    stream.client.deregister_stream_consumer(ConsumerARN=stream.consumer)
    with pytest.raises(ConfigurationError, match="no longer exists"):
        stream.read()


def test_buffered_event_keeps_its_earlier_read_time(stream: Stream) -> None:
    reading = subscribe_shard(stream.client, stream.consumer, "clicks", SHARD, "TRIM_HORIZON", retry=stream.retry())
    began = stream.clock.now()
    first = next(reading)
    assert first.is_drained and first.read_at == began
    waited_for = next(reading)  # 5 s later
    assert began < waited_for.read_at <= stream.clock.now() - timedelta(seconds=1)
    stream.clock.advance(60)
    was_there = next(reading)
    reading.close()
    assert was_there.read_at == waited_for.read_at


# Silent shards


class SilentShard:
    """Answers subscriptions of a shard that was silent for five days; each event searches an hour of them."""

    HOURS = 5 * 24

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.meta = SimpleNamespace(region_name="eu-west-1", endpoint_url="http://silent")
        self.starts: list[dict[str, Any]] = []
        self.refuses_numbers = False

    def subscribe_to_shard(self, **request: Any) -> dict[str, Any]:
        self.starts.append(request["StartingPosition"])
        number = self.starts[-1].get("SequenceNumber")
        if number is not None and self.refuses_numbers:
            refused = {"Error": {"Code": "InvalidArgumentException", "Message": "not of this shard"}}
            raise ClientError(refused, "SubscribeToShard")
        return {"EventStream": Events(self._events(0 if number is None else int(number)))}

    def _events(self, hour: int) -> Iterator[dict[str, Any]]:
        for searched in range(hour + 1, self.HOURS + 1):
            self.clock.advance(1)
            behind = (self.HOURS - searched) * 3_600_000
            event = {"Records": [], "MillisBehindLatest": behind, "ContinuationSequenceNumber": str(searched)}
            yield {"SubscribeToShardEvent": event}


class Events:
    """An event stream."""

    def __init__(self, events: Iterator[dict[str, Any]]) -> None:
        self._events = events

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._events

    def close(self) -> None:
        """Nothing is open."""


def rounds(shard: SilentShard, start: str, most: int = 40) -> int:
    """Read in rounds of ten seconds, as a job does; return the number of rounds until the shard is drained."""
    continues_at = None
    for number in range(1, most + 1):
        retry = RetryBudget(until=shard.clock.monotonic() + 10, attempts=2, clock=shard.clock, sleep=shard.clock.sleep)
        pages = subscribe_shard(shard, "consumer", "clicks", SHARD, start, retry=retry, continues_at=continues_at)
        for page in pages:
            continues_at = page.next_iterator
            if page.is_drained:
                pages.close()
                return number
            if retry.is_over():
                break
        pages.close()
    raise AssertionError("the present was never reached")


@pytest.mark.parametrize("start", ["AT_TIMESTAMP:2025-12-27T00:00:00.000000Z", "TRIM_HORIZON"])
def test_long_silence_is_searched_once_however_short_the_rounds(start: str) -> None:
    shard = SilentShard(VirtualClock())

    assert rounds(shard, start) == 12
    assert [position.get("SequenceNumber") for position in shard.starts] == [None, *(str(10 * n) for n in range(1, 12))]


def test_refused_continuation_starts_again() -> None:
    shard = SilentShard(VirtualClock())
    shard.refuses_numbers = True
    retry = RetryBudget(attempts=2, clock=shard.clock, sleep=shard.clock.sleep)

    page = next(subscribe_shard(shard, "consumer", "clicks", SHARD, "TRIM_HORIZON", retry=retry, continues_at="7"))

    assert (page.next_iterator, [position["Type"] for position in shard.starts]) == (
        "1",
        ["AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON"],
    )


def test_named_record_is_found_before_the_position_moves(stream: Stream) -> None:
    """A silent shard whose named record may be trimmed is read from it again, until there is a record."""
    [number] = stream.put(b"1")
    stream.engine.trim("clicks")
    reading = subscribe_shard(
        stream.client, stream.consumer, "clicks", SHARD, number, inclusive=True, retry=stream.retry()
    )
    next(reading)
    stream.clock.advance(400)
    stream.put(b"2")

    assert data(list(islice(reading, 1))) == [b"2"]
    reading.close()


# Registration


def test_consumer_is_registered_once(stream: Stream) -> None:
    assert stream.ensure("analytics") == stream.consumer
    assert stream.engine.calls["RegisterStreamConsumer"] == 1


def test_consumer_being_created_is_waited_for(stream: Stream) -> None:
    stream.engine.behaviour = Behaviour(transition_seconds=10)
    arn = stream.ensure("other")
    described = stream.client.describe_stream_consumer(ConsumerARN=arn)["ConsumerDescription"]
    assert described["ConsumerStatus"] == "ACTIVE"


def test_inactive_consumer_is_an_error_with_a_remedy(stream: Stream) -> None:
    stream.engine.behaviour = Behaviour(transition_seconds=1000)
    with pytest.raises(
        StreamNotReadyError, match=r"consumer 'other' is CREATING after 20 s; .*leave consumer_name out"
    ):
        stream.ensure("other", ready_within_seconds=20)


def test_concurrent_registrations_create_one_consumer(stream: Stream) -> None:
    stream.engine.faults.before(
        "RegisterStreamConsumer",
        lambda: InProcessClient(stream.engine).register_stream_consumer(StreamARN=stream.arn, ConsumerName="other"),
        times=1,
    )
    assert ":stream/clicks/consumer/other:" in stream.ensure("other")


def test_too_many_consumers_are_an_error_with_a_remedy(stream: Stream) -> None:
    stream.engine.limits = Limits(consumers_per_stream=1)
    with pytest.raises(ConfigurationError, match=r"'other' cannot be registered: .*deregister a consumer"):
        stream.ensure("other")


def test_consumer_of_a_missing_stream_is_an_error(stream: Stream) -> None:
    with pytest.raises(StreamNotFoundError, match="'nowhere'"):
        ensure_consumer(stream.client, "nowhere", stream.arn.replace("clicks", "nowhere"), "a", retry=stream.retry())


def test_times_are_in_utc(stream: Stream) -> None:
    stream.put(b"1")
    [page] = stream.read()
    assert page.read_at.tzinfo is UTC and isinstance(page.records[0].approximate_arrival_timestamp, datetime)
