"""The streams of one job: their descriptions, their shard sync, and how they are read."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from datetime import timedelta

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    CoordinationError,
    SourceError,
    StoreUnavailableError,
)
from airflow_provider_coordination.sources.kinesis.client import StreamGoneError, StreamNotFoundError
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, parse_partition_key
from airflow_provider_coordination.sources.kinesis.shards import StreamDescription
from airflow_provider_coordination.sources.kinesis.stream_names import stream_name

log = logging.getLogger(__name__)

Describe = Callable[[str], StreamDescription]
"""Returns the current description of a stream, which is given by its name or ARN."""
Register = Callable[[StreamDescription], str]
"""Registers the consumer as which a stream is read by enhanced fan-out; returns its ARN."""


class Streams:
    """What a job knows of its streams; it is refreshed from time to time.

    :param streams: the names or ARNs of the streams.
    :param describe: returns the current description of a stream.
    :param sync: runs a shard sync, unless another process does it; None leaves it to others.
    :param interval: the time between two refreshes.
    :param register: registers the consumer of a stream; None if the streams are polled.
    :param found: returns the names of further streams, which shard sync found; None if there are none. They may be
        deleted, and new ones join.
    :param clock: measures the interval.
    :raises CoordinationError: if one of `streams` cannot be described.
    """

    def __init__(
        self,
        streams: Iterable[str],
        describe: Describe,
        *,
        sync: Callable[[], object] | None = None,
        interval: timedelta = timedelta(minutes=1),
        register: Register | None = None,
        found: Callable[[], Iterable[str]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._describe = describe
        self._sync = sync
        self._interval_seconds = interval.total_seconds()
        self._clock = clock or SystemClock()
        self._register = register
        self._found = found
        self._addresses = {stream_name(stream): stream for stream in streams}
        described = {name: describe(stream) for name, stream in self._addresses.items()}
        self._consumers = {name: register(stream) for name, stream in described.items()} if register else {}
        self._known: dict[str, StreamDescription | None] = {**described}
        self._add_found()
        self._refreshed_at = self._clock.monotonic()

    def __str__(self) -> str:
        """Return the names of the streams."""
        return ", ".join(map(repr, self._known))

    def refresh(self) -> bool:
        """Sync shards and describe the streams again if the interval has passed; return whether it had.

        Errors are logged. They never stop reading the streams that are known.

        :raises StoreUnavailableError: if the store is unavailable.
        """
        if self._clock.monotonic() - self._refreshed_at < self._interval_seconds:
            return False
        self._refreshed_at = self._clock.monotonic()
        if self._sync is not None:
            try:
                self._sync()
            except StoreUnavailableError:
                raise
            except CoordinationError as error:
                log.error("shard sync failed, the next one is in %g s: %s", self._interval_seconds, error)
        for name in self._known:
            self.describe_again(name)
        self._add_found()
        return True

    def _add_found(self) -> None:
        """Add the streams that shard sync found since; one that cannot be described is tried again later."""
        try:
            found = () if self._found is None else self._found()
        except SourceError as error:
            log.warning("the streams that shard sync found are not known: %s", error)
            return
        for name in found:
            if name in self._known:
                continue
            try:
                stream = self._describe(name)
                if self._register is not None:
                    self._consumers[name] = self._register(stream)
            except StreamNotFoundError:
                self._known[name] = None
            except (SourceError, ConfigurationError) as error:
                log.warning("stream %r was found and cannot be read yet: %s", name, error)
            else:
                self._known[name] = stream
                log.info("stream %r joins", name)

    def describe_again(self, name: str) -> None:
        """Describe one stream again; on an error, the previous description stays."""
        try:
            self._known[name] = self._describe(self._addresses.get(name, name))
        except StreamNotFoundError as error:
            self._known[name] = None
            log.error("%s", error)
        except (SourceError, ConfigurationError) as error:
            log.warning("stream %r could not be described, its previous description stays: %s", name, error)

    def refresh_soon(self) -> None:
        """Refresh the streams in the next round, because a description is out of date."""
        self._refreshed_at = -math.inf

    def check(self, key: str, progress: ShardProgress) -> None:
        """Check that a shard belongs to a current stream of this job.

        :param key: the partition of the shard.
        :param progress: its progress.
        :raises StreamGoneError: if its stream was deleted, or deleted and created again.
        :raises SourceError: if the job does not read its stream.
        """
        if progress.stream not in self._known:
            self._add_found()
        if progress.stream not in self._known:
            raise SourceError(
                f"it belongs to stream {progress.stream!r}, but this job reads {self}: add it to the job's streams, "
                "or give it its own source"
            )
        stream = self._known[progress.stream]
        if stream is None:
            raise StreamGoneError(f"stream {progress.stream!r} was deleted; the unread records of this shard are lost")
        epoch = parse_partition_key(key).creation_epoch
        if epoch != stream.creation_epoch and epoch not in stream.earlier:
            raise StreamGoneError(
                f"stream {progress.stream!r} was deleted and created again; the unread records of this shard are lost"
            )

    def arn(self, key: str) -> str | None:
        """Return the ARN with which calls name the stream of a shard; None for its name.

        :param key: the partition of the shard.
        """
        name, epoch, _ = parse_partition_key(key)
        stream, address = self._known.get(name), self._addresses.get(name, name)
        if stream is not None:
            address = stream.earlier.get(epoch) or stream.address or address
        return None if address == name else address

    def retention(self, name: str) -> timedelta | None:
        """Return how long a stream keeps records; None if unknown."""
        stream = self._known.get(name)
        return None if stream is None else stream.retention

    def consumer_arn(self, name: str) -> str | None:
        """Return the ARN of the consumer that reads a stream by enhanced fan-out; None if the stream is polled."""
        return self._consumers.get(name)
