"""Enhanced fan-out: Kinesis pushes a shard's records to a registered consumer, which has its own 2 MiB a second.

A consumer belongs to a stream. All readers that use its name share it, and each shard has one reader at a time. It is
registered at its first use and stays registered.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.sources.kinesis.batch_reading import ShardPage, ShardPart, check_order, from_position
from airflow_provider_coordination.sources.kinesis.client import (
    KinesisClient,
    KinesisUnavailableError,
    PositionRefusedError,
    QuotaExceededError,
    ShardNotFoundError,
    StreamNotFoundError,
    StreamNotReadyError,
    ThrottledError,
    kinesis_errors,
)
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.positions import Position, parse_position
from airflow_provider_coordination.sources.kinesis.progress import ShardRange
from airflow_provider_coordination.sources.kinesis.reader import (
    ShardCursor,
    read_shard,
    service_time,
    starting_position,
)
from airflow_provider_coordination.sources.kinesis.records import KinesisRecords, records_of
from airflow_provider_coordination.sources.kinesis.stream_names import is_arn

log = logging.getLogger(__name__)

READY_WITHIN_SECONDS = 60.0
STATUS_POLL_SECONDS = 1.0
TAKEN_PAUSE_SECONDS = 1.0
"""For five seconds after a subscription, Kinesis refuses another one."""
WAITED_SECONDS = 0.05
"""An event after at least this wait was sent just now; an event without a wait may be older."""
ON_ITS_WAY = timedelta(seconds=1)
"""The greatest age of an event that was sent just now."""


def ensure_consumer(
    client: KinesisClient,
    stream_name: str,
    stream_arn: str,
    consumer_name: str,
    *,
    ready_within_seconds: float = READY_WITHIN_SECONDS,
    retry: RetryBudget | None = None,
) -> str:
    """Return the ARN of a stream's consumer once it is ACTIVE; register the consumer if it does not exist.

    Several workers may call this at the same time: one registers the consumer, and all wait. As in the Kinesis Client
    Library, the consumer is never deregistered.

    :param client: as `kinesis_client` returns it.
    :param stream_name: the stream, for errors.
    :param stream_arn: its ARN.
    :param consumer_name: the name of the consumer, or its ARN. One that is given by its ARN must
        exist: only the account that owns a stream can register consumers.
    :param ready_within_seconds: how long to wait at most until it is ACTIVE.
    :param retry: the clock, and how to wait.
    :raises StreamNotFoundError: if the stream does not exist.
    :raises ConfigurationError: if the stream already has the greatest number of consumers, or a consumer that is given
        by its ARN does not exist.
    :raises StreamNotReadyError: if the consumer is not ACTIVE after that time.
    """
    retry = retry or RetryBudget()
    give_up_at = retry.clock.monotonic() + ready_within_seconds
    by_name = {"StreamARN": stream_arn, "ConsumerName": consumer_name}
    consumer_of = {"ConsumerARN": consumer_name} if is_arn(consumer_name) else by_name
    status = "missing"
    while True:
        try:
            with kinesis_errors(client, stream_name):
                consumer = client.describe_stream_consumer(**consumer_of)["ConsumerDescription"]
            status = consumer["ConsumerStatus"]
            if status == "ACTIVE":
                arn: str = consumer["ConsumerARN"]
                return arn
        except StreamNotFoundError as error:
            if is_arn(consumer_name):
                raise ConfigurationError(
                    f"stream '{stream_name}': consumer {consumer_name} does not exist; correct the ARN in "
                    "'consumer_name', or let the account that owns the stream register the consumer"
                ) from error
            status = "missing"
            _register(client, stream_name, stream_arn, consumer_name)
        except QuotaExceededError as error:  # the quota of describe calls, which the fleet shares
            log.info("consumer %s of stream %s: %s; trying again", consumer_name, stream_name, error)
        if retry.clock.monotonic() >= give_up_at:
            raise StreamNotReadyError(
                f"stream '{stream_name}': consumer '{consumer_name}' is {status} after {ready_within_seconds:g} s; "
                "try again when it is ACTIVE, or leave consumer_name out to read by polling"
            )
        retry.sleep(STATUS_POLL_SECONDS)


def _register(client: KinesisClient, stream_name: str, stream_arn: str, consumer_name: str) -> None:
    try:
        with kinesis_errors(client, stream_name):
            client.register_stream_consumer(StreamARN=stream_arn, ConsumerName=consumer_name)
    except StreamNotReadyError:
        return  # another worker registered it first
    except QuotaExceededError as error:
        raise ConfigurationError(
            f"stream '{stream_name}': consumer '{consumer_name}' cannot be registered: {error}; deregister a consumer "
            "that is no longer used, set consumer_name to a registered one, or leave it out to read by polling"
        ) from error
    log.info("consumer %s registered with stream %s", consumer_name, stream_name)


def subscribe_shard(
    client: KinesisClient,
    consumer_arn: str,
    stream_name: str,
    shard_id: str,
    start: str,
    *,
    inclusive: bool = False,
    retry: RetryBudget | None = None,
    continues_at: str | None = None,
) -> Generator[ShardPage]:
    """Yield the pages that a shard pushes, until its end. An open shard has no end: the caller stops and closes it.

    The pages are those of `read_shard`. When a subscription ends, after five minutes or with a temporary error, another
    one continues where it ended. If another subscription of the same consumer and shard exists, it waits for it until
    the retry budget ends.

    A shard without records moves on, too: Kinesis names a sequence number with each event, at which the next
    subscription continues. So an old start is never searched twice, however long the shard was silent. It would be
    searched from the beginning in each round otherwise, possibly without reaching the present.

    :param consumer_arn: the registered consumer.
    :param stream_name: the stream, for errors; the others are as for `read_shard`.
    :param continues_at: `next_iterator` of the last page of an earlier subscription from the same start; None if there
        was none. If Kinesis refuses it, the start applies.
    :raises ValueError: if `start` is not a position.
    :raises ConfigurationError: while reading, if the consumer does not exist.
    :raises ShardNotFoundError: while reading, if the shard or its stream is gone.
    :raises PositionRefusedError: while reading, if the position is not in this shard.
    :raises KinesisUnavailableError: while reading, if subscribing failed after every retry.
    """
    position = parse_position(start)
    subscribing = _Subscribing(
        client=client,
        consumer_arn=consumer_arn,
        stream=stream_name,
        shard_id=shard_id,
        position=position,
        inclusive=inclusive or position.has_record_ahead,
        retry=retry or RetryBudget(),
        continues_at=continues_at,
    )
    return subscribing.pages()


def shard_pages(
    client: KinesisClient, part: ShardPart, *, inclusive: bool, retry: RetryBudget, **polling: Any
) -> Generator[ShardPage]:
    """Yield the pages of a shard from a start on: by enhanced fan-out as a consumer, or by polling.

    :param client: as `reading_client` returns it.
    :param part: the shard, the start, and the consumer.
    :param inclusive: start with the record of the start's sequence number itself, if it still exists.
    :param retry: how long to retry.
    :param polling: other arguments of `read_shard`, for polling; `iterator` also continues a subscription.
    """
    stream, shard_id, start = part.address, part.shard_id, part.start.position
    if part.consumer_arn is None:
        return read_shard(client, stream, shard_id, start, inclusive=inclusive, retry=retry, **polling)
    return subscribe_shard(
        client,
        part.consumer_arn,
        stream,
        shard_id,
        start,
        inclusive=inclusive,
        retry=retry,
        continues_at=polling.get("iterator"),
    )


@dataclass(kw_only=True)
class _Subscribing(ShardCursor):
    consumer_arn: str
    continues_at: str | None
    last_record: Position = field(default_factory=Position)
    failures: int = 0

    def pages(self) -> Generator[ShardPage]:
        while True:
            try:
                subscription = self._subscribe()
            except PositionRefusedError as error:
                if self.continues_at is not None:
                    log.info("%s; subscribing at %s instead", error, self.position)
                    self.continues_at = None
                    continue
                yield ShardPage(millis_behind_latest=0, read_at=self.wait_for(error))
                continue
            if subscription is None:
                yield ShardPage(millis_behind_latest=None, read_at=self.retry.clock.now())
                return
            events, since = subscription
            try:
                for page in self._events(events, since):
                    yield page
                    if page.end_of_shard:
                        return
            except (KinesisUnavailableError, StreamNotReadyError) as error:  # the latter if another reader took over
                self._again(error)
            finally:
                events.close()

    def _subscribe(self) -> tuple[Any, datetime] | None:
        """Return a subscription's events and its start; None if the time was over."""
        refusals = 0
        while True:
            requested_at = self.retry.clock.now()
            try:
                with self._errors():
                    response = self.client.subscribe_to_shard(
                        ConsumerARN=self.consumer_arn,
                        ShardId=self.shard_id,
                        StartingPosition=self._start(),
                    )
                return response["EventStream"], service_time(response, requested_at)
            except ShardNotFoundError:
                self._require_consumer()
                raise
            except (StreamNotReadyError, QuotaExceededError, ThrottledError) as error:
                refusals += 1
                log.info("%s; trying again", error)
                if self.retry.until is None and refusals >= self.retry.attempts:
                    raise KinesisUnavailableError(f"{error}; {refusals} attempts to subscribe failed") from error
                if not self.retry.pause(3, longest=TAKEN_PAUSE_SECONDS):
                    return None
            except KinesisUnavailableError as error:
                self._again(error)

    def _events(self, events: Any, since: datetime) -> Iterator[ShardPage]:
        """Yield the pages of one subscription."""
        clock = self.retry.clock
        begun, known_at = clock.monotonic(), since
        iterator = iter(events)
        while True:
            requested_at = clock.monotonic()
            with self._errors():
                event = next(iterator, None)
            if event is None:
                return
            body = event.get("SubscribeToShardEvent")
            if body is None:
                continue
            self.failures = 0
            arrived = clock.monotonic()
            records = from_position(self.position, records_of(body["Records"]))
            check_order(records, self.last_record, inclusive=False, of=self.stream)
            if arrived - requested_at >= WAITED_SECONDS:
                known_at = max(known_at, since + timedelta(seconds=arrived - begun) - ON_ITS_WAY)
            continues_at = body.get("ContinuationSequenceNumber")
            self._advance(records, continues_at)
            yield ShardPage(
                records=records,
                millis_behind_latest=body.get("MillisBehindLatest"),
                end_of_shard=not continues_at,
                children=tuple(ShardRange.of_child(child) for child in body.get("ChildShards") or ()),
                read_at=known_at,
                next_iterator=continues_at,
            )

    def _start(self) -> dict[str, Any]:
        if self.continues_at is not None:
            return starting_position(Position(sequence_number=self.continues_at), inclusive=False)
        return starting_position(self.position, inclusive=self.inclusive)

    def _advance(self, records: KinesisRecords, continues_at: str | None) -> None:
        """Record where another subscription would start."""
        if records:
            self.position = self.last_record = Position(sequence_number=records.last.sequence_number)
            self.inclusive = False
        if not self.inclusive:  # until then, the record that the start names must be found
            self.continues_at = continues_at

    def _again(self, error: SourceError) -> None:
        """Wait after a temporary error; raise it once the retries are used up."""
        self.failures += 1
        log.info("%s; subscribing again", error)
        if self.failures >= self.retry.attempts or not self.retry.pause(self.failures):
            raise error

    def _require_consumer(self) -> None:
        """Raise an error if the consumer is gone, and not the shard."""
        try:
            with kinesis_errors(self.client, self.stream):
                self.client.describe_stream_consumer(ConsumerARN=self.consumer_arn)
        except StreamNotFoundError as error:
            raise ConfigurationError(
                f"stream '{self.stream}': consumer {self.consumer_arn} no longer exists; the next job registers "
                "it again, unless the stream was deleted"
            ) from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise the errors of a call, or of its events, as errors of this package."""
        from urllib3.exceptions import HTTPError

        try:
            with kinesis_errors(self.client, self.stream, self.shard_id):
                yield
        except HTTPError as error:  # the connection broke while events were read
            raise KinesisUnavailableError(
                f"stream '{self.stream}' shard '{self.shard_id}': the subscription was interrupted: {error}"
            ) from error
