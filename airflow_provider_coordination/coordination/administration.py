"""What a person may do to a source's partitions, whoever owns them.

No lease is needed: a write here is conditional on the version alone, so an owner whose partition was changed finds
its next write refused and drops the work in hand. What is done is done to the partition that the person saw: where
its owner or its status has changed since, nothing is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
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
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    parse_source_identifier,
)
from airflow_provider_coordination.coordination.releasing import has_run_out
from airflow_provider_coordination.coordination.store import CoordinationStore

log = logging.getLogger(__name__)

MAX_TRIES = 10
"""How often a write is tried on a partition that its owner keeps renewing; a renewal comes every few seconds."""


class Administration:
    """Changes the partitions of one item family at a person's order.

    Every method takes `seen`, the partition as the person saw it, by default as it is now. Renewals and progress
    since then do not matter; another owner or another status does.

    :param store: where the partitions are; initialized.
    :param source_identifier: the item family, as `source_identifier` names it.
    :param clock: where the time comes from.
    """

    def __init__(self, store: CoordinationStore, source_identifier: str, clock: Clock | None = None) -> None:
        self._store = store
        self._source_identifier = source_identifier
        self._clock = clock or SystemClock()

    def get(self, partition_key: str) -> Partition:
        """Return the partition as it is now.

        :raises PartitionNotFoundError: if there is none.
        """
        partition = self._store.get(self._source_identifier, partition_key)
        if partition is None:
            raise PartitionNotFoundError(f"partition {partition_key!r} of {self._source_identifier!r} does not exist")
        return partition

    def release(
        self, partition_key: str, *, seen: Partition | None = None, expired_by: datetime | None = None
    ) -> Partition:
        """End anybody's lease now; progress and failures are kept. The former owner's writes are refused from then on.

        :param expired_by: only if the lease had ended by this instant (aware), and was not renewed since it was seen.
        :returns: the partition as written.
        :raises PartitionStatusError: if nobody holds it.
        :raises PartitionNotFoundError: if there is none.
        :raises PartitionUpdateError: if its owner or status is not as seen, or the lease runs on.
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

        before, written = self._change(partition_key, released, seen)
        self._log("released", before)
        return written

    def reopen(self, partition_key: str, *, seen: Partition | None = None) -> Partition:
        """Make a partition that rests or is parked available now, with its failures forgotten; progress is kept.

        One that waits already only has its failures forgotten, so that it is not put aside by the next one.

        :returns: the partition as written.
        :raises PartitionStatusError: if it is leased, COMPLETED, or waiting without a failure.
        :raises PartitionNotFoundError: if there is none.
        :raises PartitionUpdateError: if its owner or status is not as seen.
        """
        now = self._clock.now()

        def reopened(partition: Partition) -> Partition:
            check_reopenable(partition, now)
            # What waits already keeps its place in the queue.
            waiting = partition.status is PartitionStatus.UNASSIGNED
            return partition.reopened(min(partition.priority, now) if waiting else now)

        before, written = self._change(partition_key, reopened, seen)
        self._log("reopened", before)
        return written

    def reset(
        self,
        partition_key: str,
        progress: Mapping[str, Any] | Callable[[Partition], Mapping[str, Any]],
        *,
        seen: Partition | None = None,
    ) -> Partition:
        """Make the partition as new, with this progress, wherever it stands.

        The one write that may overwrite progress that cannot be read.

        :param progress: what it starts from, a JSON object as its source understands it; or what makes that of the
            partition as it stands at the moment of the write.
        :returns: the partition as written.
        :raises ProgressError: if the progress cannot be stored.
        :raises PartitionNotFoundError: if there is none.
        :raises PartitionUpdateError: if its owner or status is not as seen.
        """
        now = self._clock.now()

        def reset(partition: Partition) -> Partition:
            return partition.reset(progress(partition) if callable(progress) else progress, now)

        before, written = self._change(partition_key, reset, seen)
        self._log("reset", before)
        return written

    def delete(self, partition_key: str, *, seen: Partition | None = None) -> Partition:
        """Delete the partition, wherever it stands, and release the names that it claims: a supplier finds them anew.

        :returns: the partition as it was.
        :raises PartitionNotFoundError: if there is none.
        :raises PartitionUpdateError: if its owner or status is not as seen.
        """
        current = first = seen or self.get(partition_key)
        for _ in range(MAX_TRIES):
            try:
                self._store.delete(current)
            except PartitionUpdateError:
                stored = self._store.get(self._source_identifier, partition_key)
                if stored is not None:
                    _check_unchanged(first, stored)
                    current = stored
                    continue
                # The deletion happened and its answer was lost, or somebody else was faster.
            self._log("deleted", current)
            self._release_claims(current)
            return current
        raise _changes_too_fast(partition_key)

    def _release_claims(self, deleted: Partition) -> None:
        family = f"{self._source_identifier.rpartition('|')[0]}|{CLAIM_FAMILY}"
        if self._source_identifier.endswith("|PARTITION"):
            Claims(self._store, family, self._clock).release_of(deleted)

    def _change(
        self, partition_key: str, change: Callable[[Partition], Partition], seen: Partition | None
    ) -> tuple[Partition, Partition]:
        """Write a change; return the partition as it was and as written."""
        current = first = seen or self.get(partition_key)
        for _ in range(MAX_TRIES):
            intended = change(current)
            try:
                [written] = self._store.transact(update=[intended])
            except PartitionUpdateError:
                stored = self.get(partition_key)
                if stored == intended.written():  # the write happened, its answer was lost
                    return current, stored
                _check_unchanged(first, stored)
                current = stored
            else:
                return current, written
        raise _changes_too_fast(partition_key)

    def _log(self, what: str, before: Partition) -> None:
        try:
            source = parse_source_identifier(self._source_identifier).source
        except ValueError:  # another system named it
            source = self._source_identifier
        log.info(
            "partition %s by hand: source=%s partition=%s former_status=%s former_owner=%s",
            what, source, before.partition_key, before.status, before.owner,
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


def _check_unchanged(first: Partition, stored: Partition) -> None:
    if (stored.status, stored.owner) != (first.status, first.owner):
        raise PartitionUpdateError(
            f"partition {stored.partition_key!r} has changed in the meantime: it was {_standing(first)} and is "
            f"{_standing(stored)} now; look at it again"
        )


def _standing(partition: Partition) -> str:
    return f"{partition.status} to {partition.owner}" if partition.owner else str(partition.status)


def _changes_too_fast(partition_key: str) -> PartitionUpdateError:
    return PartitionUpdateError(f"partition {partition_key!r} changed {MAX_TRIES} times meanwhile; try again")
