"""Suspension of a source: no process starts new work with it until a user resumes it.

The suspension is one item of the family `…|SUPERVISOR`. Jobs notice it within seconds, deliver the batches that they
have read, give their leases back and end. While the source is suspended, nothing is acquired and no supplier runs.
Druid suspends a supervisor, and publishes what its tasks have read, in the same way.

The check costs a process one read of a small item every `CACHE_SECONDS`, however often it checks.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.errors import PartitionUpdateError
from airflow_provider_coordination.coordination.partition import Partition, new_partition
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.texts import storable

log = logging.getLogger(__name__)

FAMILY = "SUPERVISOR"
KEY = "SUSPENSION"
CACHE_SECONDS = 5.0
"""How long the result of a read is reused before the store is read again."""


@dataclass(frozen=True, kw_only=True)
class Suspension:
    """A suspension of a source.

    :param since: when it began (aware).
    :param by: the user who suspended the source; empty if unknown.
    :param reason: why; empty if no reason was given.
    """

    since: datetime
    by: str = ""
    reason: str = ""

    def __str__(self) -> str:
        """Return a short description."""
        by = f" by {self.by}" if self.by else ""
        reason = " ".join(self.reason.split())  # one line in the log
        return f"suspended{by} since {self.since:%Y-%m-%dT%H:%M:%SZ}" + (f": {reason}" if reason else "")


class Suspensions:
    """Reads and changes the suspension of one source. Safe to use from several threads.

    :param store: the store of the suspension; must be initialized except for reading.
    :param source_identifier: the family, `[prefix|]source|SUPERVISOR`.
    :param clock: the source of time.
    """

    def __init__(self, store: CoordinationStore, source_identifier: str, clock: Clock) -> None:
        self._store = store
        self._source_identifier = source_identifier
        self._name = source_identifier.rpartition("|")[0]
        self._clock = clock
        self._read_at: float | None = None
        self._known: Suspension | None = None

    def get(self) -> Suspension | None:
        """Return the current suspension of the source; None if it is not suspended."""
        read_at = self._clock.monotonic()
        self.note(self._store.get(self._source_identifier, KEY), read_at)
        return self._known

    def note(self, item: Partition | None, read_at: float) -> None:
        """Take the item of the suspension, which was read together with others.

        :param item: the item with the key `KEY`; None if there is none.
        :param read_at: when the read began, by the monotonic clock.
        """
        self._known = None if item is None else _suspension_of(item)
        self._read_at = read_at

    def recent(self) -> Suspension | None:
        """Return the suspension of the source, at most `CACHE_SECONDS` old; None if it is not suspended."""
        if self._read_at is None or self._clock.monotonic() - self._read_at >= CACHE_SECONDS:
            return self.get()
        return self._known

    @property
    def known(self) -> Suspension | None:
        """The suspension at the last read, however long ago; None if the source was not suspended."""
        return self._known

    def invalidate(self) -> None:
        """Discard the cached result, because a suspension may be the reason for something that happened."""
        self._read_at = None

    def suspend(self, by: str = "", reason: str = "") -> Suspension:
        """Suspend the source; an existing suspension is not changed.

        :param by: the user who requests it.
        :param reason: why; shown in logs and tasks.
        :returns: the current suspension.
        """
        while True:
            item = new_partition(self._source_identifier, KEY, self._clock.now())
            item = item.with_progress({"by": storable(by), "reason": storable(reason)})
            if self._store.create([item]):
                log.warning("source suspended: source=%s by=%s reason=%r", self._name, by, reason)
            if (suspension := self.get()) is not None:  # None: it was resumed at this moment
                return suspension

    def resume(self, by: str = "", reason: str = "", *, since: datetime | None = None) -> Suspension | None:
        """Resume the source.

        :param by: the user who requests it.
        :param reason: why.
        :param since: the `since` of the suspension that the user saw; None to end any suspension.
        :returns: the previous suspension; None if it was not suspended.
        :raises PartitionUpdateError: if it was suspended again since the user saw it; it stays suspended.
        """
        previous = None
        while (item := self._store.get(self._source_identifier, KEY)) is not None:
            suspension = _suspension_of(item)
            if since is not None and suspension.since != since:
                raise PartitionUpdateError(
                    f"source {self._name!r} was suspended again since it was read: it is now "
                    f"{suspension}; check it again"
                )
            previous, since = suspension, suspension.since
            with suppress(PartitionUpdateError):  # another process was faster, or the response was lost
                self._store.delete(item)
                break
        if previous is not None:
            log.warning("source resumed: source=%s by=%s reason=%r", self._name, by, reason)
        self._known = None
        self.invalidate()
        return previous


def _suspension_of(item: Partition) -> Suspension:
    by, reason = item.progress.get("by"), item.progress.get("reason")
    return Suspension(
        since=item.priority,
        by=by if isinstance(by, str) else "",
        reason=reason if isinstance(reason, str) else "",
    )
