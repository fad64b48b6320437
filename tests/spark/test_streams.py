"""A job follows changes of its streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.errors import SourceError, StoreUnavailableError
from airflow_provider_coordination.sources.kinesis.client import AccessDeniedError, StreamGoneError, StreamNotFoundError
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, partition_key
from airflow_provider_coordination.sources.kinesis.shards import StreamDescription
from airflow_provider_coordination.sources.kinesis.stream_names import stream_name
from airflow_provider_coordination.spark.kinesis.streams import Streams
from tests.support.kinesis_server.clock import VirtualClock

CLICKS = StreamDescription(name="clicks", creation_epoch=7, open_shards=1, retention_hours=24)


def progress(stream: str = "clicks") -> ShardProgress:
    return ShardProgress(
        stream=stream, shard_id="shard-0", parent_shard_ids=(), starting_hash_key="0", ending_hash_key="9"
    )


def partition(epoch: int = 7, stream: str = "clicks") -> str:
    return partition_key(stream, epoch, "shard-0")


class StubDescriptions:
    """The streams as the service has them."""

    def __init__(self) -> None:
        self.stream: StreamDescription | Exception = CLICKS

    def __call__(self, name: str) -> StreamDescription:
        if isinstance(self.stream, Exception):
            raise self.stream
        return self.stream


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def descriptions() -> StubDescriptions:
    return StubDescriptions()


def streams(descriptions: StubDescriptions, clock: VirtualClock, sync: Callable[[], object] | None = None) -> Streams:
    return Streams(["clicks"], descriptions, sync=sync, interval=timedelta(seconds=60), clock=clock)


def test_shard_of_a_configured_stream_is_read(descriptions: StubDescriptions, clock: VirtualClock) -> None:
    streams(descriptions, clock).check(partition(), progress())


def test_shard_of_another_stream_is_not_read(descriptions: StubDescriptions, clock: VirtualClock) -> None:
    with pytest.raises(SourceError, match=r"belongs to stream 'views', but this job reads 'clicks': add it"):
        streams(descriptions, clock).check(partition(stream="views"), progress("views"))


def test_recreated_stream_is_another_one(descriptions: StubDescriptions, clock: VirtualClock) -> None:
    known = streams(descriptions, clock)
    descriptions.stream = replace(CLICKS, creation_epoch=8)
    known.check(partition(), progress())
    clock.advance(61)
    assert known.refresh()
    with pytest.raises(SourceError, match="deleted and created again"):
        known.check(partition(), progress())
    known.check(partition(epoch=8), progress())


def test_deleted_stream_is_no_longer_read(descriptions: StubDescriptions, clock: VirtualClock) -> None:
    known = streams(descriptions, clock)
    descriptions.stream = StreamNotFoundError("stream 'clicks' does not exist")
    clock.advance(61)
    known.refresh()
    with pytest.raises(SourceError, match="stream 'clicks' was deleted"):
        known.check(partition(), progress())
    assert known.retention("clicks") is None


@pytest.mark.parametrize("error", [AccessDeniedError("no"), SourceError("no")])
def test_undescribable_stream_keeps_known_facts(
    descriptions: StubDescriptions, clock: VirtualClock, error: Exception
) -> None:
    known = streams(descriptions, clock)
    descriptions.stream = error
    clock.advance(61)
    assert known.refresh()
    known.check(partition(), progress())


def test_streams_are_checked_once_per_interval(descriptions: StubDescriptions, clock: VirtualClock) -> None:
    syncs: list[None] = []
    known = streams(descriptions, clock, lambda: syncs.append(None))
    looks = [known.refresh()]
    for _ in range(4):
        clock.advance(31)
        looks.append(known.refresh())
    assert looks == [False, False, True, False, True]
    assert len(syncs) == 2


def test_failed_sync_stops_nothing(descriptions: StubDescriptions, clock: VirtualClock) -> None:
    def denied() -> None:
        raise AccessDeniedError("ListShards is not allowed")

    known = streams(descriptions, clock, denied)
    clock.advance(61)
    assert known.refresh()


def test_unavailable_store_raises(descriptions: StubDescriptions, clock: VirtualClock) -> None:
    def away() -> None:
        raise StoreUnavailableError("away")

    known = streams(descriptions, clock, away)
    clock.advance(61)
    with pytest.raises(StoreUnavailableError):
        known.refresh()


# Streams that shard sync finds


class Finding:
    """What the last sync found, and the streams that exist."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.existing = {"clicks", "views"}
        self.registered: list[str] = []

    def describe(self, name: str) -> StreamDescription:
        if stream_name(name) not in self.existing:
            raise StreamNotFoundError(f"stream '{name}' does not exist")
        return replace(CLICKS, name=stream_name(name))

    def register(self, stream: StreamDescription) -> str:
        self.registered.append(stream.name)
        return f"arn of {stream.name}"

    def streams(self, *given: str, clock: VirtualClock) -> Streams:
        found = lambda: list(self.found)  # noqa: E731
        return Streams(given, self.describe, register=self.register, found=found, clock=clock)


def test_found_stream_joins_with_its_first_shard(clock: VirtualClock) -> None:
    finding = Finding()
    known = finding.streams("clicks", clock=clock)
    with pytest.raises(SourceError, match="belongs to stream 'views'"):
        known.check(partition(stream="views"), progress("views"))
    finding.found = ["clicks", "views"]

    known.check(partition(stream="views"), progress("views"))

    assert (known.consumer_arn("views"), finding.registered) == ("arn of views", ["clicks", "views"])


def test_found_stream_joins_with_the_next_refresh(clock: VirtualClock) -> None:
    finding = Finding()
    known = finding.streams(clock=clock)
    finding.found = ["views"]
    clock.advance(61)

    assert known.refresh()
    assert known.retention("views") == CLICKS.retention


def test_found_stream_that_is_deleted_is_gone(clock: VirtualClock) -> None:
    finding = Finding()
    finding.found = ["orders", "views"]
    known = finding.streams(clock=clock)
    with pytest.raises(StreamGoneError, match="'orders' was deleted"):
        known.check(partition(stream="orders"), progress("orders"))

    finding.existing.remove("views")
    clock.advance(61)
    known.refresh()
    with pytest.raises(StreamGoneError, match="'views' was deleted"):
        known.check(partition(stream="views"), progress("views"))


def test_named_stream_that_is_missing_fails_the_job(clock: VirtualClock) -> None:
    with pytest.raises(StreamNotFoundError, match="orders"):
        Finding().streams("orders", clock=clock)


def test_calls_name_a_stream_by_the_given_arn(clock: VirtualClock) -> None:
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/clicks"
    known = Finding().streams(arn, "views", clock=clock)

    assert (known.arn("clicks:1:shard-0"), known.arn("views:1:shard-0"), str(known)) == (arn, None, "'clicks', 'views'")
