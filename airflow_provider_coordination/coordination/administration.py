"""The actions of a user on a source's partitions, whichever owner holds them.

No lease is needed. A write here is conditional on the version only, so the store refuses the next write of an owner
whose partition was changed, and the owner drops its current work. An action applies to the partition that the user
saw: if its owner or status has changed since, nothing is written. If the user gives the version as well, nothing is
written after any change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
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
    PARKED_UNTIL,
    ChangeKind,
    Partition,
    PartitionStatus,
    format_instant,
    parse_source_identifier,
)
from airflow_provider_coordination.coordination.source_view import GLOBAL_STATE_FAMILY, GLOBAL_STATE_KEY
from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions
from airflow_provider_coordination.coordination.texts import storable
from airflow_provider_coordination.coordination.workers import task_of


@dataclass(frozen=True, kw_only=True)
class LeaseSelection:
    """The conditions for the selected leases. A lease must meet all that are given.

    :param owner: the owner of the lease.
    :param dag_id: the DAG of the task that holds it, in any try.
    :param run_id: the run of that task.
    :param task_id: the id of that task.
    :param expired_by: the lease had ended by this instant (aware).
    """

    owner: str | None = None
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    expired_by: datetime | None = None

    def mismatch(self, partition: Partition) -> str | None:
        """Return why this partition is not selected; None if it is."""
        if partition.status is not PartitionStatus.ASSIGNED:
            return f"it is {partition.status}: it has no owner"
        # A partition that waits for acknowledgments keeps its last owner's name, and that task may have succeeded.
        task = None if partition.is_awaiting else task_of(partition.owner or "")
        found = (None, None, None) if task is None else (task.dag_id, task.run_id, task.task_id)
        required = (self.dag_id, self.run_id, self.task_id)
        is_of_task = all(value in (None, actual) for value, actual in zip(required, found, strict=True))
        if self.owner not in (None, partition.owner) or not is_of_task:
            return f"{partition.owner} holds it"
        if self.expired_by is not None and not has_expired(partition, self.expired_by):
            return f"its lease runs until {format_instant(partition.priority)}"
        return None


def selected_leases(store: CoordinationStore, source_identifier: str, selection: LeaseSelection) -> Iterator[Partition]:
    """Yield the selected leases of a source: its partitions, the earliest end first, then its supplier.

    :param source_identifier: the family of the source's partitions; the supplier's lease is in another family.
    """
    supplying = store.get(f"{source_identifier.rpartition('|')[0]}|{GLOBAL_STATE_FAMILY}", GLOBAL_STATE_KEY)
    leased = all_partitions(store, source_identifier, PartitionStatus.ASSIGNED)
    for lease in (*leased, *([] if supplying is None else [supplying])):
        if selection.mismatch(lease) is None:
            yield lease


def has_expired(partition: Partition, expired_by: datetime) -> bool:
    """Return whether a lease had ended by this instant, which is the current time minus the clock difference."""
    return partition.status is PartitionStatus.ASSIGNED and partition.priority <= expired_by


log = logging.getLogger(__name__)

MAX_TRIES = 10
"""How often a write is retried on a partition that its owner keeps renewing. A renewal comes every few seconds."""


class Administration:
    """Changes the partitions of one item family at a user's request.

    Every method accepts `expected`, the partition as the user saw it; the default is the current one. Renewals and
    progress since then do not matter, but another owner or another status does. With `version`, the version that the
    user saw, any write since then matters, and the error reports the current state of the partition.

    :param store: the store of the partitions, initialized.
    :param source_identifier: the item family, as returned by `source_identifier`.
    :param clock: the source of time.
    :param by: the user or the task; logged and stored in the history. None if unknown.
    :param reason: why; logged and stored in the history.
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
        """Return the partition as it is stored now.

        :raises PartitionNotFoundError: if it does not exist.
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
        expected: Partition | None = None,
        version: int | None = None,
        expired_by: datetime | None = None,
    ) -> Partition:
        """End a lease now, whichever owner holds it; progress and failures are kept.

        The store refuses the previous owner's writes from then on.

        :param expected: as for the other methods; or the source's global state, to release the lease of its supplier.
        :param expired_by: release it only if the lease had ended by this instant (aware) and was not renewed since.
        :returns: the partition as written.
        :raises PartitionStatusError: if it has no owner.
        :raises PartitionNotFoundError: if it does not exist.
        :raises PartitionUpdateError: if it is not as expected, or the lease has not ended.
        """
        now = self._clock.now()

        def released(partition: Partition) -> Partition:
            check_releasable(partition)
            if expired_by is not None and not has_expired(partition, expired_by):
                raise PartitionUpdateError(
                    f"partition {partition_key!r}: its lease runs until {partition.priority.isoformat()}, because "
                    f"{partition.owner} renewed it; check it again"
                )
            return partition.given_up(now)

        return self._change(ChangeKind.RELEASED, partition_key, released, expected, version)

    def reopen(self, partition_key: str, *, expected: Partition | None = None, version: int | None = None) -> Partition:
        """Make a partition that waits for a retry or is parked available now, without failures; progress is kept.

        A partition that is queued already only loses its failures, so that the next failure does not close it.

        :returns: the partition as written.
        :raises PartitionStatusError: if it is leased, COMPLETED, or queued without a failure.
        :raises PartitionNotFoundError: if it does not exist.
        :raises PartitionUpdateError: if it is not as expected.
        """
        now = self._clock.now()

        def reopened(partition: Partition) -> Partition:
            check_reopenable(partition, now)
            # A queued partition keeps its position in the queue.
            waiting = partition.status is PartitionStatus.UNASSIGNED
            return partition.reopened(min(partition.priority, now) if waiting else now)

        return self._change(ChangeKind.REOPENED, partition_key, reopened, expected, version)

    def park(self, partition_key: str, *, expected: Partition | None = None, version: int | None = None) -> Partition:
        """Park a partition until a user reopens it, whichever owner holds it; progress and failures are kept.

        Its last error records who parked it, why, and the error before.

        :returns: the partition as written.
        :raises PartitionStatusError: if it is COMPLETED or already parked.
        :raises PartitionNotFoundError: if it does not exist.
        :raises PartitionUpdateError: if it is not as expected.
        """

        def parked(partition: Partition) -> Partition:
            check_parkable(partition)
            return replace(partition, last_error=self._parked_because(partition)).resting(PARKED_UNTIL)

        return self._change(ChangeKind.PARKED, partition_key, parked, expected, version)

    def reset(
        self,
        partition_key: str,
        progress: Mapping[str, Any] | Callable[[Partition], Mapping[str, Any]],
        *,
        expected: Partition | None = None,
        version: int | None = None,
    ) -> Partition:
        """Reset the partition to this progress, whatever its status, as if it were new.

        This is the only write that may overwrite unreadable progress.

        :param progress: the progress to start from, a JSON object in the source's format; or a function that returns
            it, given the partition as it is at the time of the write.
        :returns: the partition as written.
        :raises ProgressError: if the progress cannot be stored.
        :raises PartitionNotFoundError: if it does not exist.
        :raises PartitionUpdateError: if it is not as expected.
        """
        now = self._clock.now()

        def reset(partition: Partition) -> Partition:
            return partition.reset(progress(partition) if callable(progress) else progress, now)

        return self._change(ChangeKind.RESET, partition_key, reset, expected, version)

    def delete(
        self,
        partition_key: str,
        *,
        expected: Partition | None = None,
        version: int | None = None,
        keeps_claims: bool = False,
    ) -> Partition:
        """Delete the partition, whatever its status, and release the names that it claims.

        A supplier finds these names again.

        :param keeps_claims: leave its names claimed; the caller releases those of many partitions at once.
        :returns: the partition as it was.
        :raises PartitionNotFoundError: if it does not exist.
        :raises PartitionUpdateError: if it is not as expected.
        """
        current = first = expected or self.get(partition_key)
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
                # The deletion succeeded and its response was lost, or another process was faster.
            self._log(ChangeKind.DELETED, current)
            if not keeps_claims:
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
        expected: Partition | None,
        version: int | None,
    ) -> Partition:
        """Write a change; return the partition as written."""
        current = first = expected or self.get(partition_key)
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
                written = stored  # the write succeeded, its response was lost
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
        except ValueError:  # the name comes from another system
            source = self._source_identifier
        log.info(
            "partition %s by hand: source=%s partition=%s previous_status=%s previous_owner=%s by=%s reason=%r",
            kind, source, before.partition_key, before.status, before.owner, self._by, self._reason,
        )  # fmt: skip


def check_releasable(partition: Partition) -> None:
    """Check that the partition has a lease to release.

    :raises PartitionStatusError: if it has none.
    """
    if partition.status is not PartitionStatus.ASSIGNED:
        raise PartitionStatusError(
            f"partition {partition.partition_key!r} is {partition.status}: it has no owner, so there is nothing to "
            "release"
        )


def check_reopenable(partition: Partition, now: datetime) -> None:
    """Check that the partition can be reopened, or has failures to reset.

    :raises PartitionStatusError: if not.
    """
    key = partition.partition_key
    match partition.status:
        case PartitionStatus.COMPLETED:
            raise PartitionStatusError(
                f"partition {key!r} is COMPLETED: all its data is delivered; use reset to deliver it again"
            )
        case PartitionStatus.ASSIGNED:
            raise PartitionStatusError(
                f"partition {key!r} is ASSIGNED: {partition.owner} works on it; use release to end its lease"
            )
        case PartitionStatus.UNASSIGNED if not partition.attempts and partition.priority <= now:
            raise PartitionStatusError(f"partition {key!r} is UNASSIGNED: it already waits for an owner")


def check_parkable(partition: Partition) -> None:
    """Check that the partition can be parked.

    :raises PartitionStatusError: if not.
    """
    if partition.status is PartitionStatus.COMPLETED:
        raise PartitionStatusError(
            f"partition {partition.partition_key!r} is COMPLETED: all its data is delivered, so there is nothing to "
            "park"
        )
    if partition.is_parked:
        raise PartitionStatusError(f"partition {partition.partition_key!r} is already parked")


def _check_version(partition: Partition, version: int | None) -> None:
    if version is not None and partition.version != version:
        raise PartitionUpdateError(
            f"partition {partition.partition_key!r} has changed since it was read: version {version} was read, and it "
            f"is now {_describe_status(partition)}, version {partition.version}; check it again"
        )


def _check_unchanged(first: Partition, stored: Partition) -> None:
    if (stored.status, stored.owner) != (first.status, first.owner):
        raise PartitionUpdateError(
            f"partition {stored.partition_key!r} has changed in the meantime: it was {_describe_status(first)} and is "
            f"now {_describe_status(stored)}; check it again"
        )


def _describe_status(partition: Partition) -> str:
    if partition.owner:
        return f"{partition.status} to {partition.owner}"
    return f"{partition.status} (parked)" if partition.is_parked else str(partition.status)


def _changes_too_fast(partition_key: str) -> PartitionUpdateError:
    return PartitionUpdateError(f"partition {partition_key!r} changed {MAX_TRIES} times during the write; try again")
