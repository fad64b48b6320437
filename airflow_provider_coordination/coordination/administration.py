"""What a person may do to a source's partitions, whoever owns them.

No lease is needed: a write here is conditional on the version alone, so an owner whose partition was changed finds
its next write refused and drops the work in hand. What is done is done to the partition that the person saw: where
its owner or its status has changed since, nothing is written; nor, where the person names the version that was seen,
if anything was written since.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.claims import FAMILY as CLAIM_FAMILY
from airflow_provider_coordination.coordination.claims import Claims
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import (
    PartitionNotFoundError,
    PartitionStatusError,
    PartitionUpdateError,
)
from airflow_provider_coordination.coordination.lease_selection import has_run_out
from airflow_provider_coordination.coordination.partition import (
    PARKED_UNTIL,
    ChangeKind,
    Partition,
    PartitionStatus,
    parse_source_identifier,
)
from airflow_provider_coordination.coordination.storable_text import storable
from airflow_provider_coordination.coordination.store import CoordinationStore

log = logging.getLogger(__name__)

MAX_TRIES = 10
"""How often a write is tried on a partition that its owner keeps renewing; a renewal comes every few seconds."""


class Administration:
    """Changes the partitions of one item family at a person's order.

    Every method takes `seen`, the partition as the person saw it, by default as it is now. Renewals and progress
    since then do not matter; another owner or another status does. Given a `version`, that of the partition as the
    person saw it, whatever was written since matters, and the error says how the partition stands now.

    :param store: where the partitions are; initialized.
    :param source_identifier: the item family, as `source_identifier` names it.
    :param clock: where the time comes from.
    :param by: the person, or the task; logged and kept in the history. None if unknown.
    :param reason: why; logged and kept in the history.
    """

    def __init__(
        self,
        store: CoordinationStore,
        source_identifier: str,
        clock: Clock | None = None,
        *,
        by: str | None = None,
        reason: str = "",
    ) -> None:
        self._store = store
        self._source_identifier = source_identifier
        self._clock = clock or SystemClock()
        self._by = None if by is None else storable(by)
        self._reason = storable(reason)

    def get(self, partition_key: str) -> Partition:
        """Return the partition as it is now.

        :raises PartitionNotFoundError: if there is none.
        """
        return self._get(self._source_identifier, partition_key)

    def _get(self, source_identifier: str, partition_key: str) -> Partition:
        partition = self._store.get(source_identifier, partition_key)
        if partition is None:
            raise PartitionNotFoundError(f"partition {partition_key!r} of {source_identifier!r} does not exist")
        return partition

    def release(
        self,
        partition_key: str,
        *,
        seen: Partition | None = None,
        version: int | None = None,
        expired_by: datetime | None = None,
    ) -> Partition:
        """End anybody's lease now; progress and failures are kept. The former owner's writes are refused from then on.

        :param seen: as for the others; or the source's global state, for the lease of its supplier.
        :param expired_by: only if the lease had ended by this instant (aware), and was not renewed since it was seen.
        :returns: the partition as written.
        :raises PartitionStatusError: if nobody holds it.
        :raises PartitionNotFoundError: if there is none.
        :raises PartitionUpdateError: if it is not as seen, or the lease runs on.
        """
        now = self._clock.now()

        def released(partition: Partition) -> Partition:
            check_releasable(partition)
            if expired_by is not None and not has_run_out(partition, expired_by):
                raise PartitionUpdateError(
                    f"partition {partition_key!r}: its lease runs until {partition.priority.isoformat()}: "
                    f"{partition.owner} has renewed it; look at it again"
                )
            return partition.given_up(now)

        return self._change(ChangeKind.RELEASED, partition_key, released, seen, version)

    def reopen(self, partition_key: str, *, seen: Partition | None = None, version: int | None = None) -> Partition:
        """Make a partition that rests or is parked available now, with its failures forgotten; progress is kept.

        One that waits already only has its failures forgotten, so that it is not put aside by the next one.

        :returns: the partition as written.
        :raises PartitionStatusError: if it is leased, COMPLETED, or waiting without a failure.
        :raises PartitionNotFoundError: if there is none.
        :raises PartitionUpdateError: if it is not as seen.
        """
        now = self._clock.now()

        def reopened(partition: Partition) -> Partition:
            check_reopenable(partition, now)
            # What waits already keeps its place in the queue.
            waiting = partition.status is PartitionStatus.UNASSIGNED
            return partition.reopened(min(partition.priority, now) if waiting else now)

        return self._change(ChangeKind.REOPENED, partition_key, reopened, seen, version)

    def park(self, partition_key: str, *, seen: Partition | None = None, version: int | None = None) -> Partition:
        """Put a partition aside until a person reopens it, whoever holds it; progress and failures are kept.

        Its last error says who did so, and why, and what the last error was before.

        :returns: the partition as written.
        :raises PartitionStatusError: if it is COMPLETED, or parked already.
        :raises PartitionNotFoundError: if there is none.
        :raises PartitionUpdateError: if it is not as seen.
        """

        def parked(partition: Partition) -> Partition:
            check_parkable(partition)
            return replace(partition, last_error=self._parked_because(partition)).resting(PARKED_UNTIL)

        return self._change(ChangeKind.PARKED, partition_key, parked, seen, version)

    def reset(
        self,
        partition_key: str,
        progress: Mapping[str, Any] | Callable[[Partition], Mapping[str, Any]],
        *,
        seen: Partition | None = None,
        version: int | None = None,
    ) -> Partition:
        """Make the partition as new, with this progress, wherever it stands.

        The one write that may overwrite progress that cannot be read.

        :param progress: what it starts from, a JSON object as its source understands it; or what makes that of the
            partition as it stands at the moment of the write.
        :returns: the partition as written.
        :raises ProgressError: if the progress cannot be stored.
        :raises PartitionNotFoundError: if there is none.
        :raises PartitionUpdateError: if it is not as seen.
        """
        now = self._clock.now()

        def reset(partition: Partition) -> Partition:
            return partition.reset(progress(partition) if callable(progress) else progress, now)

        return self._change(ChangeKind.RESET, partition_key, reset, seen, version)

    def delete(self, partition_key: str, *, seen: Partition | None = None, version: int | None = None) -> Partition:
        """Delete the partition, wherever it stands, and release the names that it claims: a supplier finds them anew.

        :returns: the partition as it was.
        :raises PartitionNotFoundError: if there is none.
        :raises PartitionUpdateError: if it is not as seen.
        """
        current = first = seen or self.get(partition_key)
        for _ in range(MAX_TRIES):
            _check_version(current, version)
            try:
                self._store.delete(self._because(ChangeKind.DELETED, current))
            except PartitionUpdateError:
                stored = self._store.get(self._source_identifier, partition_key)
                if stored is not None:
                    _check_version(stored, version)
                    _check_unchanged(first, stored)
                    current = stored
                    continue
                # The deletion happened and its answer was lost, or somebody else was faster.
            self._log(ChangeKind.DELETED, current)
            self._release_claims(current)
            return current
        raise _changes_too_fast(partition_key)

    def _release_claims(self, deleted: Partition) -> None:
        family = f"{self._source_identifier.rpartition('|')[0]}|{CLAIM_FAMILY}"
        if self._source_identifier.endswith("|PARTITION"):
            Claims(self._store, family, self._clock).release_of(deleted)

    def _change(
        self,
        kind: ChangeKind,
        partition_key: str,
        change: Callable[[Partition], Partition],
        seen: Partition | None,
        version: int | None,
    ) -> Partition:
        """Write a change; return the partition as written."""
        current = first = seen or self.get(partition_key)
        for _ in range(MAX_TRIES):
            _check_version(current, version)
            intended = self._because(kind, change(current))
            try:
                [written] = self._store.transact(update=[intended])
            except PartitionUpdateError:
                stored = self._get(first.source_identifier, partition_key)
                if stored != intended.written():
                    _check_version(stored, version)
                    _check_unchanged(first, stored)
                    current = stored
                    continue
                written = stored  # the write happened, its answer was lost
            self._log(kind, current)
            return written
        raise _changes_too_fast(partition_key)

    def _because(self, kind: ChangeKind, partition: Partition) -> Partition:
        reason = f"{kind} by hand: {self._reason}" if self._reason else f"{kind} by hand"
        return partition.because(kind, reason, self._by)

    def _parked_because(self, partition: Partition) -> str:
        reason = f": {self._reason}" if self._reason else ""
        before = f"; before that: {partition.last_error}" if partition.last_error else ""
        return storable(f"parked by {self._by or 'hand'}{reason}{before}")

    def _log(self, kind: ChangeKind, before: Partition) -> None:
        try:
            source = parse_source_identifier(self._source_identifier).source
        except ValueError:  # another system named it
            source = self._source_identifier
        log.info(
            "partition %s by hand: source=%s partition=%s former_status=%s former_owner=%s by=%s reason=%r",
            kind, source, before.partition_key, before.status, before.owner, self._by, self._reason,
        )  # fmt: skip


def check_releasable(partition: Partition) -> None:
    """Check that there is a lease to end.

    :raises PartitionStatusError: if there is none.
    """
    if partition.status is not PartitionStatus.ASSIGNED:
        raise PartitionStatusError(
            f"partition {partition.partition_key!r} is {partition.status}: nobody holds it, there is nothing to release"
        )


def check_reopenable(partition: Partition, now: datetime) -> None:
    """Check that there is something to reopen, or failures to forget.

    :raises PartitionStatusError: if there is nothing.
    """
    key = partition.partition_key
    match partition.status:
        case PartitionStatus.COMPLETED:
            raise PartitionStatusError(
                f"partition {key!r} is COMPLETED: all its data is delivered; to have it delivered again, use reset"
            )
        case PartitionStatus.ASSIGNED:
            raise PartitionStatusError(
                f"partition {key!r} is ASSIGNED: {partition.owner} works on it; to take it away, use release"
            )
        case PartitionStatus.UNASSIGNED if not partition.attempts and partition.priority <= now:
            raise PartitionStatusError(f"partition {key!r} is UNASSIGNED: it waits for an owner already")


def check_parkable(partition: Partition) -> None:
    """Check that there is something to put aside.

    :raises PartitionStatusError: if there is nothing.
    """
    if partition.status is PartitionStatus.COMPLETED:
        raise PartitionStatusError(
            f"partition {partition.partition_key!r} is COMPLETED: all its data is delivered, there is nothing to park"
        )
    if partition.is_parked:
        raise PartitionStatusError(f"partition {partition.partition_key!r} is parked already")


def _check_version(partition: Partition, version: int | None) -> None:
    if version is not None and partition.version != version:
        raise PartitionUpdateError(
            f"partition {partition.partition_key!r} has changed since it was looked at: that was version {version}, "
            f"and it is {_standing(partition)}, version {partition.version} now; look at it again"
        )


def _check_unchanged(first: Partition, stored: Partition) -> None:
    if (stored.status, stored.owner) != (first.status, first.owner):
        raise PartitionUpdateError(
            f"partition {stored.partition_key!r} has changed in the meantime: it was {_standing(first)} and is "
            f"{_standing(stored)} now; look at it again"
        )


def _standing(partition: Partition) -> str:
    if partition.owner:
        return f"{partition.status} to {partition.owner}"
    return f"{partition.status} (parked)" if partition.is_parked else str(partition.status)


def _changes_too_fast(partition_key: str) -> PartitionUpdateError:
    return PartitionUpdateError(f"partition {partition_key!r} changed {MAX_TRIES} times meanwhile; try again")
