"""Reading one shard by polling, page by page, from a position on to the shard's end.

Each page says what the caller needs to fix a batch: the records, how far behind it is, and, on the last
one, in which shards the stream goes on. Reading has no memory of its own: the position belongs to the
caller. `fan_out` gives the same pages without polling.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Protocol, TypeVar

from airflow_provider_coordination.aws import AwsSettings, answered_at
from airflow_provider_coordination.sources.kinesis.client import KinesisClient, kinesis_client
from airflow_provider_coordination.sources.kinesis.errors import (
    ExpiredIteratorError,
    KinesisUnavailableError,
    PositionRefusedError,
    ThrottledError,
    kinesis_errors,
)
from airflow_provider_coordination.sources.kinesis.fast_parsing import COLUMNS
from airflow_provider_coordination.sources.kinesis.pacing import READ_INTERVAL_SECONDS, Pace, Patience, Taken
from airflow_provider_coordination.sources.kinesis.pages import (
    KinesisRecord,
    KinesisRecords,
    ShardPage,
    child_of,
    microseconds,
    records_of,
)
from airflow_provider_coordination.sources.kinesis.positions import (
    AT_TIMESTAMP,
    TRIM_HORIZON,
    Position,
    parse_position,
)
from airflow_provider_coordination.sources.kinesis.shard_calls import ShardCalls

__all__ = ["KinesisRecord", "ShardPage", "read_shard", "reading_client"]

log = logging.getLogger(__name__)

T = TypeVar("T")

CONNECTIONS = 1000
"""How many a process keeps for the shards that it reads: each may be read at the same time."""
SILENCE_SECONDS = 10.0
"""How long the next bytes of an answer are waited for: all shards of a slot wait for the slowest at a round's end."""
ANSWER_SECONDS = 60.0
"""How long an answer may take."""
LATE_ANSWER_SECONDS = 5.0
"""By how much it may come later than its reader has time, where that is set."""
RENEWALS_IN_A_ROW = 5
"""How many iterators may expire one after another, unused, before it counts as an outage."""
FUTURE_POLL_SECONDS = 1.0
"""How often a position that lies ahead of the service's clock is tried."""
DATE_RESOLUTION = timedelta(seconds=1)


def reading_client(settings: AwsSettings) -> KinesisClient:
    """Return a client for reading shards: it tries each call once, at little cost; see `ShardCalls`.

    The reader repeats calls itself: it knows how much time there is, and counts how often it is throttled.

    :param settings: where Kinesis is and who asks; `max_attempts` is for the reader to keep.
    :raises ConfigurationError: if no region is known, or the endpoint is no URL.
    """
    return ShardCalls(kinesis_client(replace(settings, max_attempts=1), CONNECTIONS, SILENCE_SECONDS))


@cache
def shared_reading_client(settings: AwsSettings) -> KinesisClient:
    """Return the client of this process, which keeps its connections from one task to the next; see `reading_client`.

    :param settings: where Kinesis is and who asks.
    """
    return reading_client(settings)


def read_shard(
    client: KinesisClient,
    stream_name: str,
    shard_id: str,
    start: str,
    *,
    inclusive: bool = False,
    page_records: int = 10_000,
    min_interval_seconds: float = READ_INTERVAL_SECONDS,
    patience: Patience | None = None,
    room: Room | None = None,
    iterator: str | None = None,
    taken: Taken = (),
) -> Generator[ShardPage]:
    """Yield the pages of a shard until its end; on an open shard that is never, and the caller stops.

    Reads keep to what Kinesis allows a shard. A call that fails in passing is made again after a while; while the
    shard is throttled, until the patience ends. What it got until then was yielded; a last page without records says
    how often it was throttled, and the pages end before the shard does.

    An iterator that expired, because the caller took its time, or that Kinesis does not know any more, is replaced by
    one after the last record yielded; if there was none yet, by one at the start, which never becomes LATEST.

    A start that lies ahead of the service's clock is waited for: pages without records come until then.

    :param client: as `reading_client` or `kinesis_client` returns it; may be shared by threads.
    :param stream_name: the stream.
    :param shard_id: the shard.
    :param start: the position before the first record wanted. One that lies in an aggregated record begins with that
        record, whole.
    :param inclusive: begin with the record of the start's sequence number itself, if it is still there.
    :param page_records: how many records a page holds at most; Kinesis allows up to 10,000.
    :param min_interval_seconds: the least time between two reads.
    :param patience: how long to go on trying.
    :param room: held for each page that is asked for; by default there is enough.
    :param iterator: Kinesis' own, which goes on at the start; by default it is asked for one.
    :param taken: what was read of the shard before; counts from now on.
    :raises ValueError: if `start` is no position.
    :raises ShardNotFoundError: while reading, if the shard or its stream is gone.
    :raises PositionRefusedError: while reading, if the position is not one of this shard.
    :raises KinesisUnavailableError: while reading, if a call went on failing, or the shard went on being throttled and
        no time is set at which the patience ends.
    """
    patience = patience or Patience()
    pace = Pace(patience, min_interval_seconds, taken=taken)
    polling = _Polling(client, stream_name, shard_id, parse_position(start), inclusive, page_records, patience, pace)
    polling.room, polling.iterator = room, iterator
    return polling.pages()


class Room(Protocol):
    """The memory that a page needs."""

    def hold(self) -> None:
        """Hold as much as a page may need, before it is asked for; the caller lets go of what it does not need."""
        ...

    def let_go(self) -> None:
        """Let go of it: no page came."""
        ...


class _OutOfTimeError(Exception):
    """The patience ended while the shard was throttled."""


class _Polling:
    def __init__(
        self,
        client: KinesisClient,
        stream: str,
        shard_id: str,
        start: Position,
        inclusive: bool,
        page_records: int,
        patience: Patience,
        pace: Pace,
    ) -> None:
        self._client = client
        self._stream = stream
        self._shard_id = shard_id
        self._position = start
        self._inclusive = inclusive or start.has_record_ahead
        self._page_records = page_records
        self._patience = patience
        self._pace = pace
        self.room: Room | None = None
        self.iterator: str | None = None
        self._renewals = 0
        self._throttled = 0

    def pages(self) -> Generator[ShardPage]:
        try:
            while True:
                page = self._next()
                if page is not None:
                    yield page
                    if page.end_of_shard:
                        return
        except _OutOfTimeError:
            yield self._nothing(self._patience.clock.now(), millis_behind_latest=None)

    def _next(self) -> ShardPage | None:
        """Return the next page; None if there was no good iterator to read it with."""
        if self.iterator is None:
            try:
                self.iterator = self._attempt(self._new_iterator)
            except PositionRefusedError as error:
                now = ahead_of_service(error, self._position, self._patience.clock.now())
                if now is None:
                    raise
                self._patience.sleep(FUTURE_POLL_SECONDS)
                return self._nothing(now, millis_behind_latest=0)
        try:
            response, asked_at = self._attempt(self._records)
        except (ExpiredIteratorError, PositionRefusedError) as error:
            self._renew(error)
            return None
        self._renewals = 0
        self.iterator = response.get("NextShardIterator")
        records = self._records_of(response)
        self._pace.took(records.size)
        records = from_position(self._position, records)
        check_order(records, self._position, inclusive=self._inclusive, of=f"{self._stream}' shard '{self._shard_id}")
        if records:
            self._position, self._inclusive = Position(sequence_number=records.last.sequence_number), False
        return ShardPage(
            records=records,
            millis_behind_latest=response.get("MillisBehindLatest"),
            end_of_shard=not self.iterator,
            children=tuple(child_of(child) for child in response.get("ChildShards") or ()),
            read_at=service_time(response, asked_at),
            throttled=self._counted_throttles(),
            next_iterator=self.iterator,
            taken=self._pace.taken,
        )

    def _new_iterator(self) -> str:
        kind = starting_position(self._position, inclusive=self._inclusive)
        answer = self._client.get_shard_iterator(
            StreamName=self._stream,
            ShardId=self._shard_id,
            ShardIteratorType=kind["Type"],
            **({"StartingSequenceNumber": kind["SequenceNumber"]} if "SequenceNumber" in kind else {}),
            **({"Timestamp": kind["Timestamp"]} if "Timestamp" in kind else {}),
        )
        iterator: str = answer["ShardIterator"]
        return iterator

    def _records(self) -> tuple[Mapping[str, Any], datetime]:
        self._pace.wait()
        if self.room is None:
            return self._ask()
        self.room.hold()
        try:
            return self._ask()
        except BaseException:
            self.room.let_go()
            raise

    def _ask(self) -> tuple[Mapping[str, Any], datetime]:
        asked_at, until = self._patience.clock.now(), self._patience.until
        left = ANSWER_SECONDS
        if until is not None:
            left = max(0.0, until - self._patience.clock.monotonic()) + LATE_ANSWER_SECONDS
        within = {"within": left} if isinstance(self._client, ShardCalls) else {}
        return self._client.get_records(ShardIterator=self.iterator, Limit=self._page_records, **within), asked_at

    def _records_of(self, response: Mapping[str, Any]) -> KinesisRecords:
        if COLUMNS in response:
            records: KinesisRecords = response[COLUMNS]
            return records
        try:
            return records_of(response["Records"])
        except KeyError as error:
            raise KinesisUnavailableError(
                f"stream '{self._stream}' shard '{self._shard_id}': no usable answer: it has no {error}; "
                "check endpoint_url"
            ) from None

    def _attempt(self, call: Callable[[], T]) -> T:
        """Make a call, again if it fails in passing."""
        failures = throttles = 0
        while True:
            try:
                with kinesis_errors(self._client, self._stream, self._shard_id):
                    return call()
            except ThrottledError as error:
                throttles += 1
                # Soon after the start, what was read before may still count.
                self._throttled += self._pace.accounts_for_everything
                if self._patience.until is None and throttles >= self._patience.attempts:
                    raise
                if not self._patience.pause(throttles):
                    raise _OutOfTimeError from error
            except KinesisUnavailableError:
                failures += 1
                if failures >= self._patience.attempts or not self._patience.pause(failures):
                    raise

    def _renew(self, error: ExpiredIteratorError | PositionRefusedError) -> None:
        self.iterator = None
        self._renewals += 1
        if isinstance(error, PositionRefusedError) and self._renewals > 1:
            raise error  # a new one was refused as well
        if self._renewals > RENEWALS_IN_A_ROW:
            raise KinesisUnavailableError(f"{error}; {self._renewals} iterators in a row expired unused") from error
        log.info("stream %s shard %s: iterator replaced: %s", self._stream, self._shard_id, error)

    def _nothing(self, now: datetime, millis_behind_latest: int | None) -> ShardPage:
        return ShardPage(
            records=KinesisRecords.of([]),
            millis_behind_latest=millis_behind_latest,
            end_of_shard=False,
            children=(),
            read_at=now,
            throttled=self._counted_throttles(),
        )

    def _counted_throttles(self) -> int:
        throttled, self._throttled = self._throttled, 0
        return throttled


def starting_position(position: Position, *, inclusive: bool) -> dict[str, Any]:
    """Return a position as Kinesis takes it: a type with its sequence number or timestamp.

    :param position: where to begin.
    :param inclusive: begin with the record of its sequence number itself.
    """
    if position.timestamp is not None:
        return {"Type": AT_TIMESTAMP, "Timestamp": position.timestamp}
    if position.sequence_number is None:
        return {"Type": TRIM_HORIZON}
    which = "AT_SEQUENCE_NUMBER" if inclusive else "AFTER_SEQUENCE_NUMBER"
    return {"Type": which, "SequenceNumber": position.sequence_number}


def from_position(position: Position, records: KinesisRecords) -> KinesisRecords:
    """Return what of the first records read belongs to a position.

    Not every version of boto3 sends a timestamp with its fraction of a second, and Kinesis knows milliseconds only:
    records that arrived before the timestamp are left out.
    """
    if position.timestamp is None:
        return records
    first = records.first_since(microseconds(position.timestamp))
    return records[first:] if first else records


def check_order(records: KinesisRecords, position: Position, *, inclusive: bool, of: str) -> None:
    """Check that records are in order, and behind what was read before.

    :param records: of an answer.
    :param position: after which they were asked for.
    :param inclusive: whether the record that it names may be among them.
    :param of: the stream, or more than that, for the error.
    :raises KinesisUnavailableError: if they are not; nothing of such an answer can be used.
    """
    if not records:
        return
    place = records.first_out_of_order()
    if place is not None:
        before, number = (records[each].sequence_number for each in (place - 1, place))
    else:
        number, before = records[0].sequence_number, position.sequence_number or ""
        if not before or int(number) > int(before) or (inclusive and number == before):
            return
    raise KinesisUnavailableError(
        f"stream '{of}': no usable answer: its records are out of order: sequence number {number} comes behind "
        f"{before}; nothing of it is written; check endpoint_url"
    )


def service_time(response: Mapping[str, Any], asked_at: datetime) -> datetime:
    """Return the instant, by the service's clock, of which an answer tells: no later than when it was given.

    The service dates its answers in whole seconds. Our own clock is finer where it agrees with them.

    :param response: the answer.
    :param asked_at: when it was asked for, by our own clock (aware).
    """
    date = answered_at(response)
    if date is None or date <= asked_at < date + DATE_RESOLUTION:
        return asked_at
    return date


def ahead_of_service(error: PositionRefusedError, position: Position, now: datetime) -> datetime | None:
    """Return the time of the service if a position was refused because it lies ahead of that."""
    if position.timestamp is None:
        return None
    served_at = service_time(getattr(error.__cause__, "response", {}), now)
    return served_at if position.timestamp > served_at else None
