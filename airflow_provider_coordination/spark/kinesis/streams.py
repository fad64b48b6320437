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

log = logging.getLogger(__name__)

Describe = Callable[[str], StreamDescription]
"""Returns the current description of a stream."""
Register = Callable[[StreamDescription], str]
"""Registers the consumer as which a stream is read by enhanced fan-out; returns its ARN."""


class Streams:
    """What a job knows of its streams; it is refreshed from time to time.

    :param names: the streams.
    :param describe: returns the current description of a stream.
    :param sync: runs a shard sync, unless another process does it; None leaves it to others.
    :param interval: the time between two refreshes.
    :param register: registers the consumer of a stream; None if the streams are polled.
    :param clock: measures the interval.
    :raises CoordinationError: if a stream cannot be described.
    """

    def __init__(
        self,
        names: Iterable[str],
        describe: Describe,
        *,
        sync: Callable[[], object] | None = None,
        interval: timedelta = timedelta(minutes=1),
        register: Register | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._describe = describe
        self._sync = sync
        self._interval_seconds = interval.total_seconds()
        self._clock = clock or SystemClock()
        streams = {name: describe(name) for name in names}
        self._consumers = {name: register(stream) for name, stream in streams.items()} if register else {}
        self._known: dict[str, StreamDescription | None] = {**streams}
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
        return True

    def describe_again(self, name: str) -> None:
        """Describe one stream again; on an error, the previous description stays."""
        try:
            self._known[name] = self._describe(name)
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
            raise SourceError(
                f"it belongs to stream {progress.stream!r}, but this job reads {self}: add it to the job's streams, "
                "or give it its own source"
            )
        stream = self._known[progress.stream]
        if stream is None:
            raise StreamGoneError(f"stream {progress.stream!r} was deleted; the unread records of this shard are lost")
        if parse_partition_key(key).creation_epoch != stream.creation_epoch:
            raise StreamGoneError(
                f"stream {progress.stream!r} was deleted and created again; the unread records of this shard are lost"
            )

    def retention(self, name: str) -> timedelta | None:
        """Return how long a stream keeps records; None if unknown."""
        stream = self._known.get(name)
        return None if stream is None else stream.retention

    def consumer_arn(self, name: str) -> str | None:
        """Return the ARN of the consumer that reads a stream by enhanced fan-out; None if the stream is polled."""
        return self._consumers.get(name)
