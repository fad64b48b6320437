"""The streams of one job: what they are, who looks after their shards, and how they are read."""

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
from airflow_provider_coordination.sources.kinesis.errors import StreamGoneError, StreamNotFoundError
from airflow_provider_coordination.sources.kinesis.keys import parse_partition_key
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.kinesis.shards import StreamDescription

log = logging.getLogger(__name__)

Describe = Callable[[str], StreamDescription]
"""Returns what a stream is now."""
Register = Callable[[StreamDescription], str]
"""Registers the consumer as which a stream is read by enhanced fan-out; returns its ARN."""


class Streams:
    """What a job knows of its streams, looked at again from time to time.

    :param names: the streams.
    :param describe: returns what a stream is now.
    :param sync: runs a shard sync, if nobody else does; None leaves that to others.
    :param interval: how long until the next look.
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
        self._looked_at = self._clock.monotonic()

    def __str__(self) -> str:
        """Name them."""
        return ", ".join(map(repr, self._known))

    def look_after(self) -> bool:
        """Sync shards and describe the streams anew, where the interval has passed; return whether it had.

        Whatever cannot be seen is logged: it never stops the reading of what is known.

        :raises StoreUnavailableError: if the store did not answer.
        """
        if self._clock.monotonic() - self._looked_at < self._interval_seconds:
            return False
        self._looked_at = self._clock.monotonic()
        if self._sync is not None:
            try:
                self._sync()
            except StoreUnavailableError:
                raise
            except CoordinationError as error:
                log.error("shard sync failed, the next one is in %g s: %s", self._interval_seconds, error)
        for name in self._known:
            self.look_at(name)
        return True

    def look_at(self, name: str) -> None:
        """Describe one stream anew; what is known of it stays if that cannot be done."""
        try:
            self._known[name] = self._describe(name)
        except StreamNotFoundError as error:
            self._known[name] = None
            log.error("%s", error)
        except (SourceError, ConfigurationError) as error:
            log.warning("stream %r could not be described, what is known of it stays: %s", name, error)

    def look_soon(self) -> None:
        """Let the next round look after the streams: something is not as it was known."""
        self._looked_at = -math.inf

    def check(self, key: str, progress: ShardProgress) -> None:
        """Check that a shard belongs to a stream of this job, as it is now.

        :param key: the shard's partition.
        :param progress: its progress.
        :raises StreamGoneError: if its stream was deleted, or deleted and created anew.
        :raises SourceError: if the job does not read its stream.
        """
        if progress.stream not in self._known:
            raise SourceError(
                f"it belongs to stream {progress.stream!r}, and this job reads {self}: name it in the job's streams, "
                "or give it a source of its own"
            )
        stream = self._known[progress.stream]
        if stream is None:
            raise StreamGoneError(f"stream {progress.stream!r} was deleted; what this shard still held is lost")
        if parse_partition_key(key).creation_epoch != stream.creation_epoch:
            raise StreamGoneError(
                f"stream {progress.stream!r} was deleted and created anew since; what this shard still held is lost"
            )

    def retention_seconds(self, name: str) -> float | None:
        """Return how long a stream keeps records, in seconds; None if that is not known."""
        stream = self._known.get(name)
        return None if stream is None else stream.retention_hours * 3600.0

    def consumer_arn(self, name: str) -> str | None:
        """Return the consumer as which a stream is read by enhanced fan-out; None if it is polled."""
        return self._consumers.get(name)
