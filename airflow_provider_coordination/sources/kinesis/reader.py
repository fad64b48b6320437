"""Reading one shard, page by page, from a position on to the shard's end.

Each page says what the caller needs to fix a batch: the records, how far behind it is, and, on the last
one, in which shards the stream goes on. Reading has no memory of its own: the position belongs to the
caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.errors import (
    ExpiredIteratorError,
    KinesisUnavailableError,
    kinesis_errors,
)
from airflow_provider_coordination.sources.kinesis.progress import TRIM_HORIZON, ChildShard, position_order

RENEWALS_IN_A_ROW = 5
"""How many iterators may expire one after another, unused, before it counts as an outage."""


class KinesisRecord(NamedTuple):
    """A record as it is in the shard, possibly an aggregate.

    `sequence_number` is a decimal number, unique in the shard and growing;
    `approximate_arrival_timestamp` is aware, in UTC.
    """

    sequence_number: str
    partition_key: str
    approximate_arrival_timestamp: datetime
    data: bytes


@dataclass(frozen=True)
class ShardPage:
    """What one read returned.

    :param records: in order; may be none, also in the middle of a shard.
    :param millis_behind_latest: how far the page is behind the newest record, in milliseconds; None if
        not told.
    :param end_of_shard: whether the shard has nothing after this page, ever. The last page may hold
        records too.
    :param children: the shards it continues in; on the last page only.
    :param read_at: when it was asked for (aware, UTC).
    """

    records: list[KinesisRecord]
    millis_behind_latest: int | None
    end_of_shard: bool
    children: tuple[ChildShard, ...]
    read_at: datetime


def read_shard(
    client: KinesisClient,
    stream_name: str,
    shard_id: str,
    start: str,
    *,
    page_records: int = 10_000,
    min_interval_seconds: float = 0.2,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[ShardPage]:
    """Yield the pages of a shard until its end; on an open shard that is never, and the caller stops.

    An iterator that expired, because the caller took its time, is replaced by one after the last record
    yielded.

    :param client: as `kinesis_client` returns it; may be shared by threads.
    :param stream_name: the stream.
    :param shard_id: the shard.
    :param start: the position before the first record wanted.
    :param page_records: how many records a page holds at most; Kinesis allows up to 10,000.
    :param min_interval_seconds: the least time between two reads; Kinesis allows five a second and shard.
    :param clock: dates the pages and measures the intervals.
    :param sleep: waits that many seconds.
    :raises ValueError: if `start` is no position.
    :raises ShardNotFoundError: while reading, if the shard or its stream is gone.
    :raises PositionRefusedError: while reading, if the position is not one of this shard.
    :raises KinesisUnavailableError: while reading, if Kinesis throttles or fails beyond the client's retries.
    """
    position_order(start)
    pace = _Pace(min_interval_seconds, clock or SystemClock(), sleep)
    return _pages(client, stream_name, shard_id, start, page_records, pace)


def _pages(
    client: KinesisClient, stream: str, shard_id: str, position: str, page_records: int, pace: _Pace
) -> Iterator[ShardPage]:
    iterator: str | None = None
    renewals = 0
    while True:
        with kinesis_errors(client, stream, shard_id):
            iterator = iterator or _iterator_after(client, stream, shard_id, position)
        read_at = pace.wait()
        try:
            with kinesis_errors(client, stream, shard_id):
                response = client.get_records(ShardIterator=iterator, Limit=page_records)
        except ExpiredIteratorError as error:
            iterator = None
            renewals += 1
            if renewals > RENEWALS_IN_A_ROW:
                raise KinesisUnavailableError(f"{error}; {renewals} iterators in a row expired unused") from error
            continue
        renewals = 0
        iterator = response.get("NextShardIterator")
        page = _page(response, read_at)
        if page.records:
            position = page.records[-1].sequence_number
        yield page
        if page.end_of_shard:
            return


def _iterator_after(client: KinesisClient, stream: str, shard_id: str, position: str) -> str:
    kind: dict[str, str] = {"ShardIteratorType": TRIM_HORIZON}
    if position != TRIM_HORIZON:
        kind = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": position}
    iterator: str = client.get_shard_iterator(StreamName=stream, ShardId=shard_id, **kind)["ShardIterator"]
    return iterator


def _page(response: Mapping[str, Any], read_at: datetime) -> ShardPage:
    return ShardPage(
        records=[
            KinesisRecord(
                record["SequenceNumber"],
                record["PartitionKey"],
                record["ApproximateArrivalTimestamp"].astimezone(UTC),
                record["Data"],
            )
            for record in response["Records"]
        ],
        millis_behind_latest=response.get("MillisBehindLatest"),
        end_of_shard=not response.get("NextShardIterator"),
        children=tuple(_child(child) for child in response.get("ChildShards") or ()),
        read_at=read_at,
    )


def _child(child: Mapping[str, Any]) -> ChildShard:
    return ChildShard(
        shard_id=child["ShardId"],
        parent_shard_ids=tuple(child["ParentShards"]),
        starting_hash_key=child["HashKeyRange"]["StartingHashKey"],
        ending_hash_key=child["HashKeyRange"]["EndingHashKey"],
    )


class _Pace:
    """Keeps reads at least an interval apart."""

    def __init__(self, interval_seconds: float, clock: Clock, sleep: Callable[[float], None]) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._sleep = sleep
        self._last: float | None = None

    def wait(self) -> datetime:
        """Wait until the next read is due, and return the instant at which it goes out."""
        if self._last is not None:
            due_in = self._last + self._interval_seconds - self._clock.monotonic()
            if due_in > 0:
                self._sleep(due_in)
        self._last = self._clock.monotonic()
        return self._clock.now()
