"""A source at rest: a person has said that nobody begins anything new with it, until a person says otherwise.

The word is one item of the family `…|SUPERVISOR`. Jobs see it within seconds, deliver what they have read, give their
leases back and end; nothing is acquired and no supplier runs meanwhile. Druid suspends a supervisor, and publishes what
its tasks have read, in the same way.

What a suspension costs those who work is a read of one small item every `REMEMBERED_SECONDS`, however often they ask.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.errors import PartitionUpdateError
from airflow_provider_coordination.coordination.partition import Partition, new_partition
from airflow_provider_coordination.coordination.storable_text import storable
from airflow_provider_coordination.coordination.store import CoordinationStore

log = logging.getLogger(__name__)

FAMILY = "SUPERVISOR"
KEY = "SUSPENSION"
REMEMBERED_SECONDS = 5.0
"""So long it is remembered whether the source is suspended, before the store is asked again."""


@dataclass(frozen=True, kw_only=True)
class Suspension:
    """That a source is suspended.

    :param since: since when (aware).
    :param by: who said so; empty if unknown.
    :param reason: why; empty if nobody said.
    """

    since: datetime
    by: str = ""
    reason: str = ""

    def __str__(self) -> str:
        """Say it in a few words."""
        by = f" by {self.by}" if self.by else ""
        reason = " ".join(self.reason.split())  # a line of a log is one line
        return f"suspended{by} since {self.since:%Y-%m-%dT%H:%M:%SZ}" + (f": {reason}" if reason else "")


class Suspensions:
    """Whether one source is suspended. Safe to use from several threads.

    :param store: where that is kept; initialized, except to look.
    :param source_identifier: the family, `[prefix|]source|SUPERVISOR`.
    :param clock: where the time comes from.
    """

    def __init__(self, store: CoordinationStore, source_identifier: str, clock: Clock) -> None:
        self._store = store
        self._source_identifier = source_identifier
        self._clock = clock
        self._looked_at: float | None = None
        self._known: Suspension | None = None

    def get(self) -> Suspension | None:
        """Return how the source is suspended now; None if it is not."""
        asked_at = self._clock.monotonic()
        item = self._store.get(self._source_identifier, KEY)
        self._known = None if item is None else _suspension_of(item)
        self._looked_at = asked_at
        return self._known

    def recent(self) -> Suspension | None:
        """Return how the source is suspended, as of some seconds ago at most; None if it is not."""
        if self._looked_at is None or self._clock.monotonic() - self._looked_at >= REMEMBERED_SECONDS:
            return self.get()
        return self._known

    @property
    def known(self) -> Suspension | None:
        """How the source was suspended when that was last asked for, however long ago; None if it was not."""
        return self._known

    def doubt(self) -> None:
        """Forget when that was last asked for: something happened that a suspension may be the reason for."""
        self._looked_at = None

    def suspend(self, by: str = "", reason: str = "") -> Suspension:
        """Suspend the source; one that is suspended already stays so as it is.

        :param by: who says so.
        :param reason: why; others read it in logs and tasks.
        :returns: how it is suspended now.
        """
        while True:
            item = new_partition(self._source_identifier, KEY, self._clock.now())
            item = item.with_progress({"by": storable(by), "reason": storable(reason)})
            if self._store.create([item]):
                log.warning("source suspended: family=%s by=%s reason=%r", self._source_identifier, by, reason)
            if (suspension := self.get()) is not None:  # None: somebody resumed it in this moment
                return suspension

    def resume(self, by: str = "", reason: str = "", *, since: datetime | None = None) -> Suspension | None:
        """Let the source go on.

        :param by: who says so.
        :param reason: why.
        :param since: the suspension that the person saw, by its `since`; None for whichever there is.
        :returns: how it was suspended; None if it was not.
        :raises PartitionUpdateError: if it is suspended anew since the person looked; it stays so.
        """
        former = None
        while (item := self._store.get(self._source_identifier, KEY)) is not None:
            suspension = _suspension_of(item)
            if since is not None and suspension.since != since:
                raise PartitionUpdateError(
                    f"source {self._source_identifier.rpartition('|')[0]!r} was suspended anew since it was looked at: "
                    f"it is {suspension}; look at it again"
                )
            former, since = suspension, suspension.since
            with suppress(PartitionUpdateError):  # somebody else was faster, or the answer was lost
                self._store.delete(item)
                break
        if former is not None:
            log.warning("source resumed: family=%s by=%s reason=%r", self._source_identifier, by, reason)
        self._known = None
        self.doubt()
        return former


def _suspension_of(item: Partition) -> Suspension:
    by, reason = item.progress.get("by"), item.progress.get("reason")
    return Suspension(
        since=item.priority,
        by=by if isinstance(by, str) else "",
        reason=reason if isinstance(reason, str) else "",
    )
