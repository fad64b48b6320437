"""Polling one shard, page by page, from a position to the shard's end.

Each page has what the caller needs to make a batch: the records, the lag, and on the last page the child shards. The
reader stores nothing: the position belongs to the caller. `fan_out` returns the same pages without polling.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Protocol, TypeVar

from airflow_provider_coordination.aws import AwsSettings, aws_client, aws_session, response_time
from airflow_provider_coordination.sources.kinesis.batch_reading import ShardPage, check_order, from_position
from airflow_provider_coordination.sources.kinesis.client import (
    ExpiredIteratorError,
    KinesisClient,
    KinesisUnavailableError,
    PositionRefusedError,
    ThrottledError,
    kinesis_errors,
)
from airflow_provider_coordination.sources.kinesis.pacing import (
    MAX_RECORDS_PER_READ,
    READS_PER_SECOND,
    Pace,
    RecentReads,
    RetryBudget,
)
from airflow_provider_coordination.sources.kinesis.positions import (
    AT_TIMESTAMP,
    TRIM_HORIZON,
    Position,
    parse_position,
)
from airflow_provider_coordination.sources.kinesis.progress import ShardRange
from airflow_provider_coordination.sources.kinesis.records import (
    COLUMNS,
    KinesisRecord,
    KinesisRecords,
    ShardCalls,
    page_decoder,
    records_of,
)
from airflow_provider_coordination.sources.kinesis.stream_names import naming, naming_read

__all__ = ["KinesisRecord", "ShardPage", "read_shard", "reading_client"]

log = logging.getLogger(__name__)

T = TypeVar("T")

CONNECTIONS = 1000
"""The maximum number of connections that a process keeps for its shards: all may be read at the same time."""
SILENCE_SECONDS = 10.0
"""How long to wait for the next bytes of a response: all shards of a slot wait for the slowest at a round's end."""
RESPONSE_SECONDS = 60.0
"""How long a response may take."""
LATE_RESPONSE_SECONDS = 5.0
"""How much longer than the reader's remaining time a response may take, if that time is limited."""
RENEWALS_IN_A_ROW = 5
"""How many iterators in a row may expire unused before it counts as an outage."""
FUTURE_POLL_SECONDS = 1.0
"""The time between two attempts for a position that is ahead of the service's clock."""
DATE_RESOLUTION = timedelta(seconds=1)


def reading_client(settings: AwsSettings) -> KinesisClient:
    """Return a client for reading shards: it makes each call once, at a low cost; see `ShardCalls`.

    The reader repeats calls itself: it knows the remaining time, and counts how often it is throttled.

    :param settings: the endpoint and the credentials; the reader applies `max_attempts`.
    :raises ConfigurationError: if no region is known, or the endpoint is not a URL.
    """
    session = aws_session(settings)
    client = aws_client(
        replace(settings, max_attempts=1),
        "kinesis",
        connections=CONNECTIONS,
        read_timeout_seconds=SILENCE_SECONDS,
        session=session,
    )
    return ShardCalls(client, session.get_credentials(), page_decoder())


@cache
def shared_reading_client(settings: AwsSettings) -> KinesisClient:
    """Return the client of this process, which keeps its connections across tasks; see `reading_client`.

    :param settings: the endpoint and the credentials.
    """
    return reading_client(settings)


def read_shard(
    client: KinesisClient,
    stream: str,
    shard_id: str,
    start: str,
    *,
    inclusive: bool = False,
    page_records: int = MAX_RECORDS_PER_READ,
    reads_per_second: float = READS_PER_SECOND,
    retry: RetryBudget | None = None,
    room: PageMemory | None = None,
    iterator: str | None = None,
    recent_reads: RecentReads = (),
) -> Generator[ShardPage]:
    """Yield the pages of a shard until its end. An open shard has no end: the caller stops.

    Reads keep to a rate, and within the limits of a shard. Pages also end if no further read is due before the retry
    budget ends. A call with a temporary error is made again after a wait. While the shard
    is throttled, calls are repeated until the retry budget ends. Then a last page without records reports how often it
    was throttled, and the pages end before the shard does.

    An iterator expires if the caller takes too long, or if Kinesis no longer knows it. It is replaced by an iterator
    after the last yielded record. If there was none yet, the new one is at the start, which never becomes LATEST.

    If the start is ahead of the service's clock, pages without records are yielded until that time.

    :param client: as `reading_client` or `kinesis_client` returns it; may be shared by threads.
    :param stream: the name or ARN of the stream.
    :param shard_id: the shard.
    :param start: the position before the first record. If it lies inside an aggregated record, reading starts with
        that whole record.
    :param inclusive: start with the record of the start's sequence number itself, if it still exists.
    :param page_records: the maximum number of records of a page; Kinesis allows up to 10,000.
    :param reads_per_second: how often the shard is read at most; half as often while it is caught up.
    :param retry: how long to retry.
    :param room: reserved for each page that is requested; None if memory is not limited.
    :param iterator: a Kinesis iterator at the start; by default a new one is requested.
    :param recent_reads: earlier reads of the shard, relative to now.
    :raises ValueError: if `start` is not a position.
    :raises ShardNotFoundError: while reading, if the shard or its stream is gone.
    :raises PositionRefusedError: while reading, if the position is not in this shard.
    :raises KinesisUnavailableError: while reading, if a call failed after every retry, or the shard was throttled for
        all attempts and the retry budget has no end time.
    """
    retry, position = retry or RetryBudget(), parse_position(start)
    polling = _Polling(
        client=client,
        stream=stream,
        shard_id=shard_id,
        position=position,
        inclusive=inclusive or position.has_record_ahead,
        page_records=page_records,
        retry=retry,
        pace=Pace(retry, reads_per_second, recent_reads=recent_reads),
        room=room,
        iterator=iterator,
    )
    return polling.pages()


class PageMemory(Protocol):
    """The memory for one page."""

    def hold(self) -> None:
        """Reserve as much as a page may need, before it is requested; the caller releases what is not needed."""
        ...

    def let_go(self) -> None:
        """Release the memory: no page was returned."""
        ...


class _OutOfTimeError(Exception):
    """The retry budget ended while the shard was throttled."""


@dataclass(kw_only=True)
class ShardCursor:
    """Where a shard is read, as a base of its readers.

    :param client: as `reading_client` returns it.
    :param stream: the name or ARN of the stream.
    :param shard_id: the shard.
    :param position: the position before the next record.
    :param inclusive: whether the record that it names may come next.
    :param retry: how long to retry.
    """

    client: KinesisClient
    stream: str
    shard_id: str
    position: Position
    inclusive: bool
    retry: RetryBudget

    def wait_for(self, error: PositionRefusedError) -> datetime:
        """Wait for a moment if the position was refused because it is ahead of the service's clock.

        :returns: the time of that clock (aware).
        :raises PositionRefusedError: the error, if it has another cause.
        """
        if self.position.timestamp is None:
            raise error
        served_at = service_time(getattr(error.__cause__, "response", {}), self.retry.clock.now())
        if self.position.timestamp <= served_at:
            raise error
        self.retry.sleep(FUTURE_POLL_SECONDS)
        return served_at


@dataclass(kw_only=True)
class _Polling(ShardCursor):
    page_records: int
    pace: Pace
    room: PageMemory | None
    iterator: str | None
    renewals: int = 0
    throttled: int = 0

    def pages(self) -> Generator[ShardPage]:
        try:
            while True:
                page = self._next()
                if page is not None:
                    yield page
                    if page.end_of_shard or self.retry.is_over(after=self.pace.due_in()):
                        return
        except _OutOfTimeError:
            yield ShardPage(
                millis_behind_latest=None, read_at=self.retry.clock.now(), throttled=self._counted_throttles()
            )

    def _next(self) -> ShardPage | None:
        """Return the next page; None if the iterator had to be replaced."""
        if self.iterator is None:
            try:
                self.iterator = self._attempt(self._new_iterator)
            except PositionRefusedError as error:
                now = self.wait_for(error)
                return ShardPage(millis_behind_latest=0, read_at=now, throttled=self._counted_throttles())
        try:
            response, requested_at = self._attempt(self._records)
        except (ExpiredIteratorError, PositionRefusedError) as error:
            self._renew(error)
            return None
        self.renewals = 0
        self.iterator = response.get("NextShardIterator")
        records = self._records_of(response)
        self.pace.took(records.size, is_caught_up=response.get("MillisBehindLatest") == 0)
        records = from_position(self.position, records)
        check_order(records, self.position, inclusive=self.inclusive, of=f"{self.stream}' shard '{self.shard_id}")
        if records:
            self.position, self.inclusive = Position(sequence_number=records.last.sequence_number), False
        return ShardPage(
            records=records,
            millis_behind_latest=response.get("MillisBehindLatest"),
            end_of_shard=not self.iterator,
            children=tuple(ShardRange.of_child(child) for child in response.get("ChildShards") or ()),
            read_at=service_time(response, requested_at),
            throttled=self._counted_throttles(),
            next_iterator=self.iterator,
            recent_reads=self.pace.recent_reads,
        )

    def _new_iterator(self) -> str:
        kind = starting_position(self.position, inclusive=self.inclusive)
        response = self.client.get_shard_iterator(
            **naming(self.stream),
            ShardId=self.shard_id,
            ShardIteratorType=kind["Type"],
            **({"StartingSequenceNumber": kind["SequenceNumber"]} if "SequenceNumber" in kind else {}),
            **({"Timestamp": kind["Timestamp"]} if "Timestamp" in kind else {}),
        )
        iterator: str = response["ShardIterator"]
        return iterator

    def _records(self) -> tuple[Mapping[str, Any], datetime]:
        self.pace.wait()
        if self.room is None:
            return self._ask()
        self.room.hold()
        try:
            return self._ask()
        except BaseException:
            self.room.let_go()
            raise

    def _ask(self) -> tuple[Mapping[str, Any], datetime]:
        requested_at, until = self.retry.clock.now(), self.retry.until
        left = RESPONSE_SECONDS
        if until is not None:
            left = max(0.0, until - self.retry.clock.monotonic()) + LATE_RESPONSE_SECONDS
        within = {"within": left} if isinstance(self.client, ShardCalls) else {}
        request = {"ShardIterator": self.iterator, "Limit": self.page_records, **naming_read(self.stream)}
        return self.client.get_records(**request, **within), requested_at

    def _records_of(self, response: Mapping[str, Any]) -> KinesisRecords:
        if COLUMNS in response:
            records: KinesisRecords = response[COLUMNS]
            return records
        try:
            return records_of(response["Records"])
        except KeyError as error:
            raise KinesisUnavailableError(
                f"stream '{self.stream}' shard '{self.shard_id}': no valid response: it has no {error}; "
                "check endpoint_url"
            ) from None

    def _attempt(self, call: Callable[[], T]) -> T:
        """Make a call, and repeat it after temporary errors."""
        failures = throttles = 0
        while True:
            try:
                with kinesis_errors(self.client, self.stream, self.shard_id):
                    return call()
            except ThrottledError as error:
                throttles += 1
                # Soon after the start, earlier reads may still be the cause.
                self.throttled += self.pace.accounts_for_everything
                if self.retry.until is None and throttles >= self.retry.attempts:
                    raise
                if not self.retry.pause(throttles):
                    raise _OutOfTimeError from error
            except KinesisUnavailableError:
                failures += 1
                if failures >= self.retry.attempts or not self.retry.pause(failures):
                    raise

    def _renew(self, error: ExpiredIteratorError | PositionRefusedError) -> None:
        self.iterator = None
        self.renewals += 1
        if isinstance(error, PositionRefusedError) and self.renewals > 1:
            raise error  # a new iterator was refused too
        if self.renewals > RENEWALS_IN_A_ROW:
            raise KinesisUnavailableError(f"{error}; {self.renewals} iterators in a row expired unused") from error
        log.info("stream %s shard %s: iterator replaced: %s", self.stream, self.shard_id, error)

    def _counted_throttles(self) -> int:
        throttled, self.throttled = self.throttled, 0
        return throttled


def starting_position(position: Position, *, inclusive: bool) -> dict[str, Any]:
    """Return a position in the form of the Kinesis API: a type with its sequence number or timestamp.

    :param position: where to start.
    :param inclusive: start with the record of its sequence number itself.
    """
    if position.timestamp is not None:
        return {"Type": AT_TIMESTAMP, "Timestamp": position.timestamp}
    if position.sequence_number is None:
        return {"Type": TRIM_HORIZON}
    which = "AT_SEQUENCE_NUMBER" if inclusive else "AFTER_SEQUENCE_NUMBER"
    return {"Type": which, "SequenceNumber": position.sequence_number}


def service_time(response: Mapping[str, Any], requested_at: datetime) -> datetime:
    """Return the instant that a response describes, by the service's clock; never later than the response was sent.

    The service dates its responses in whole seconds. The local clock is used if it agrees, since it is more precise.

    :param response: the response.
    :param requested_at: when it was requested, by the local clock (aware).
    """
    date = response_time(response)
    if date is None or date <= requested_at < date + DATE_RESOLUTION:
        return requested_at
    return date
