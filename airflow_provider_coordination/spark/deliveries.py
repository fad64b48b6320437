"""The batches that one job delivers, and their acknowledgment sets: from recording to the last sink's release.

A batch is recorded together with its set. The job releases one reference for each of its sinks. The end of the set
moves the checkpoint, whoever releases the last reference. A set that a previous owner left pending is taken over: only
the sinks that have not taken the batch get it again.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentSet
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentError,
    AcknowledgmentSetNotFoundError,
    PartitionNotOwnedError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.lockstep import Steps
from airflow_provider_coordination.coordination.partition import MAX_PROGRESS_BYTES, Partition
from airflow_provider_coordination.sources.batches import SourceBatches, progress_of
from airflow_provider_coordination.sources.landed import LandedBatch, LandedProgress
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    Delivery,
    DeliveryError,
    MissingColumnError,
    Prepared,
    SinkUnavailableError,
    by_halves,
)
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.landed_files import LandedFiles
from airflow_provider_coordination.spark.outages import translating_outages
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.spans import NoSpans, Spans

log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_BYTES = 4 * 1024
"""The size in bytes that a batch may take in a partition's progress, without its positions."""


Delivered = Prepared | Exception | None
"""What became visible of a batch; None if there was nothing left to do; or the error of its delivery."""


@dataclass(frozen=True, kw_only=True)
class _DueBatch:
    """A batch that is to be delivered.

    :param acknowledgment_set: the set that waits for the batch.
    :param attempt: the delivery of the batch.
    :param sinks: the sinks that have not taken the batch.
    """

    acknowledgment_set: AcknowledgmentSet
    attempt: Attempt
    sinks: tuple[str, ...]

    @property
    def key(self) -> str:
        """The batch's partition."""
        return self.attempt.partition_key


class Deliveries:
    """The batches that one job delivers. A thread other than the delivering one renews leases and sets.

    :param settings: the job's settings.
    :param coordinator: the source's coordinator, for the job's owner.
    :param delivery: delivers batches to sinks.
    :param files: the job's landed files.
    :param observer: called with the phases `delivering` and `delivered`.
    :param spans: makes the spans of batches.
    """

    def __init__(
        self,
        settings: IngestSettings,
        coordinator: SourceCoordinator,
        delivery: Delivery,
        files: LandedFiles,
        observer: Callable[[str], None],
        spans: Spans | None = None,
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self._delivery = delivery
        self._files = files
        self._observer = observer
        self._spans = spans or NoSpans()
        self._sets = AcknowledgmentSets(coordinator, SourceBatches())
        self._timeout = settings.acknowledgments.timeout
        self._lock = threading.Lock()
        self._has_prepared = False
        self._own_sets: dict[str, AcknowledgmentSet] = {}  # this job's sinks still owe references
        self._other_sets: dict[str, AcknowledgmentSet] = {}  # only handles outside the job owe references

    @property
    def ownership_timeout(self) -> timedelta:
        """How long a lease lasts without renewal."""
        return self._coordinator.leases.ownership_timeout

    def renew_due(self) -> None:
        """Renew leases, and extend the sets of batches that this job still delivers."""
        self._coordinator.leases.renew_due()
        now = self._coordinator.clock.now()
        for set_id, own in list(self._own_sets.items()):
            if own.expires_at - now < self._timeout / 2 and self._coordinator.leases.owns(own.partition_key):
                try:
                    self._note_extended(self._sets.extend(set_id, self._timeout))
                except AcknowledgmentError as error:  # the set has ended; the batch's delivery notices that
                    log.debug("%s", error)
                    self._own_sets.pop(set_id, None)

    def end_overdue(self) -> None:
        """End the source's sets that have timed out, so that their batches are delivered again.

        This includes sets of other jobs: the tasks that should release their handles may no longer exist.
        """
        expiry = self._sets.view.next_expiry()
        if expiry is not None and expiry <= self._coordinator.clock.now():
            self._sets.expire_overdue()

    def purge(self) -> None:
        """Delete sets that ended long ago."""
        self._sets.purge()

    def begin_delivery(self, key: str, batch: LandedBatch, progress: LandedProgress) -> Steps[AcknowledgmentSet]:
        """Record a batch with a new set, or begin to deliver a recorded batch again.

        A batch without records owes nothing: it is acknowledged at once.

        :param key: the batch's partition.
        :param progress: the partition's progress, with the batch in it.
        """
        sinks = self._delivery.sinks if batch.file else ()
        new_set = yield from self._sets.begin_steps(
            key,
            batch.batch_id,
            [*sinks, *(self._settings.acknowledgments.handles if batch.file else ())],
            timeout=self._timeout,
            sinks=sinks,
            progress=progress.to_mapping(),
            run=self._settings.run,
            batch={"start": batch.start, "end": batch.end, "records": batch.records, "bytes": batch.bytes},
        )
        if new_set.is_pending:
            self._own_sets[new_set.set_id] = new_set
        return new_set

    def run_in_lockstep(self, processes: Sequence[Steps[T]]) -> list[T | Exception]:
        """Run several processes, of one partition each, to their ends; see `AcknowledgmentSets.run_in_lockstep`."""
        return self._sets.run_in_lockstep(processes)

    def next_batch(self, progress: LandedProgress) -> LandedBatch | None:
        """Return the first batch of a partition that this job must deliver; None if there is none."""
        return next((batch for batch in progress.landed if self._is_own(batch)), None)

    def may_land(self, progress: LandedProgress) -> bool:
        """Return whether a partition may be read further.

        That is so while at most one batch is in delivery, and the pending batches are below their limits.
        """
        return (
            not progress.is_ended
            and sum(map(self._is_own, progress.landed)) <= 1
            and len(progress.landed) < self._settings.acknowledgments.max_pending_batches
            and _has_room(progress)
        )

    def deliver(self, batches: Mapping[str, LandedBatch]) -> dict[str, Delivered]:
        """Deliver batches to the sinks that do not have them yet, and release the sinks' references.

        All batches that owe the same sinks are one delivery. An error of one batch does not delay the others, unless
        the store is unavailable: then batches that were not started are missing in the result.

        :param batches: one batch for each of some partitions.
        :returns: by partition, what became visible, None if there was nothing left to do, or the batch's error:
            `PartitionNotOwnedError` if its lease is lost, or its set has ended; `SinkUnavailableError` if a sink is
            unavailable, after the other sinks took the batch and released their references.
        """
        delivered: dict[str, Delivered] = {}
        together: dict[tuple[str, ...], list[_DueBatch]] = {}
        due_of = self.run_in_lockstep([self._due(key, batch) for key, batch in batches.items()])
        for key, due in zip(batches, due_of, strict=True):
            if isinstance(due, _DueBatch):
                together.setdefault(due.sinks, []).append(due)
            else:
                delivered[key] = due
        for dues in together.values():
            while dues and not _is_store_unavailable(delivered):  # the rest waits until the store is available again
                dues = self._deliver(dues, delivered)
        return delivered

    def _due(self, key: str, batch: LandedBatch) -> Steps[_DueBatch | None]:
        """Return what is left to deliver of a batch; None if there is nothing."""
        acknowledgment_set = yield from self._set_of(key, batch)
        sinks = tuple(sink for sink in self._delivery.sinks if acknowledgment_set.references.get(sink))
        if not acknowledgment_set.is_pending or not sinks:
            self._finish_own_part(acknowledgment_set)
            return None
        attempt = Attempt(
            batch=_waiting_batch(self._coordinator.leases.leased(key), batch.batch_id, acknowledgment_set.set_id),
            file=self._files.location(key, batch),
            folder=self._files.folder(key),
            set_id=acknowledgment_set.set_id,
            fencing_token=self._coordinator.leases.fencing_token(key),
            source=self._coordinator.view.source_identifier,
            partition_key=key,
            owner=self._coordinator.owner,
            progress=progress_of(self._coordinator.leases.leased(key)).durable_fields,
        )
        return _DueBatch(acknowledgment_set=acknowledgment_set, attempt=attempt, sinks=sinks)

    def _deliver(self, dues: Sequence[_DueBatch], delivered: dict[str, Delivered]) -> list[_DueBatch]:
        """Deliver batches that owe the same sinks; a batch that fails does not stop the others.

        :param delivered: receives the result of each batch.
        :returns: the batches to deliver again: they shared a file with a batch that failed or has another owner now.
        """
        sinks, records = dues[0].sinks, sum(due.attempt.batch.records for due in dues)
        unavailable: dict[str, SinkUnavailableError] = {}  # by sink name; the other sinks still get the batches
        with self._spans.span("delivery", batches=len(dues), records=records):
            prepared = self._prepare(sinks, dues, delivered, unavailable)
            dues = [_with_file(due, prepared.get(due.key)) for due in dues]
            try:
                if left := _not_failed(dues, delivered):
                    self._observer("delivering")
                    self._confirm_ownership(left, delivered)
                affected = _sharing_with_failed(left, delivered)
                going = [due for due in dues if due.key not in affected]
                taken = (
                    {} if _is_store_unavailable(delivered) else self._commit_to(sinks, going, delivered, unavailable)
                )
            except Exception:
                self._discard(dues)
                raise
            self._discard(dues)
            again = [due for due in dues if due.key in affected or _is_shared_file_gone(due, delivered.get(due.key))]
            left_over = {due.key for due in again}
            ended = [due for due in dues if due.key not in left_over]
            if not _is_store_unavailable(delivered):
                self._acknowledge([due for due in _not_failed(ended, delivered) if taken[due.key]], taken, delivered)
                for due in _not_failed(ended, delivered):
                    missing = next((sink for sink in sinks if sink not in taken[due.key]), None)
                    delivered[due.key] = prepared[due.key] if missing is None else unavailable[missing]
            for due in ended:
                self._record_span(due, delivered)
            return self._to_retry(again, delivered)

    def _to_retry(self, dues: Sequence[_DueBatch], delivered: dict[str, Delivered]) -> list[_DueBatch]:
        """Return batches in their present state for the next attempt, without those that this job no longer owns."""
        again = []
        for due in dues:
            delivered.pop(due.key, None)
            try:
                leased = self._coordinator.leases.leased(due.key)
                batch = _waiting_batch(leased, due.attempt.batch_id, due.attempt.set_id)
            except Exception as error:  # an error of one partition fails only that partition
                delivered[due.key] = error
            else:
                again.append(replace(due, attempt=replace(due.attempt, batch=batch, shared_file=None)))
        return again

    def _confirm_ownership(self, dues: Sequence[_DueBatch], delivered: dict[str, Delivered]) -> None:
        """Check in the store, before batches become visible, that this job may still deliver each of them.

        For batches that share a file, this check also records the file's name in their partitions' progress. So the
        next owner that delivers one of them knows the file.
        """
        leases = self._coordinator.leases
        in_files = {due.key: partial(_sharing, due.attempt) for due in dues if due.attempt.shared_file is not None}
        stored = leases.refresh_each([due.key for due in dues if due.key not in in_files and leases.owns(due.key)])
        stored |= leases.change_progress_each(in_files)
        for due in dues:
            try:
                partition = stored[due.key] if due.key in stored else leases.renew(due.key)
                if isinstance(partition, Exception):
                    raise partition
                _waiting_batch(partition, due.attempt.batch_id, due.acknowledgment_set.set_id)
            except Exception as error:  # an error of one partition fails only that partition
                delivered[due.key] = error

    def _acknowledge(
        self, dues: Sequence[_DueBatch], taken: Mapping[str, Sequence[str]], delivered: dict[str, Delivered]
    ) -> None:
        """Release the references of the sinks that have taken batches; an error becomes the batch's result."""
        if not dues:
            return
        self._observer("delivered")
        with self._spans.span("acknowledge", batches=len(dues), sinks=len(dues[0].sinks)):
            known = [self._own_sets.get(due.acknowledgment_set.set_id, due.acknowledgment_set) for due in dues]
            ended = self.run_in_lockstep(
                [self._sets.release_steps(each, taken[due.key]) for due, each in zip(dues, known, strict=True)]
            )
        for due, result in zip(dues, ended, strict=True):
            if isinstance(result, Exception):
                delivered[due.key] = result
            elif len(taken[due.key]) == len(due.sinks):
                self._finish_own_part(result)
            else:
                self._note_extended(result)

    def _record_span(self, due: _DueBatch, delivered: Mapping[str, Delivered]) -> None:
        """Make the span of a batch, with its error if it failed."""
        batch, error = due.attempt.batch, delivered.get(due.key)
        with (
            suppress(Exception),
            self._spans.span("batch", partition=due.key, batch=batch.batch_id, records=batch.records),
        ):
            if isinstance(error, Exception):
                raise error

    def _prepare(
        self,
        sinks: Sequence[str],
        dues: Sequence[_DueBatch],
        delivered: dict[str, Delivered],
        unavailable: dict[str, SinkUnavailableError],
    ) -> dict[str, Prepared]:
        """Prepare batches for sinks; return what will become visible, by partition.

        If a sink is unavailable, the batches are prepared for the other sinks.
        """
        prepared: dict[str, Prepared] = {}
        left = list(dues)
        while left and (wanted := [sink for sink in sinks if sink not in unavailable]):
            held: list[_DueBatch] = []
            for due, result in self._prepare_together(left, wanted):
                if isinstance(result, SinkUnavailableError) and result.sink in wanted:
                    unavailable[result.sink] = result
                    held.append(due)
                elif isinstance(result, Exception):
                    delivered[due.key] = result
                else:
                    prepared[due.key] = result
            left = held
        self._check_columns(prepared, [delivered[due.key] for due in dues if due.key in delivered])
        delivered |= {due.key: unavailable[sinks[0]] for due in left}
        return prepared

    def _check_columns(self, prepared: Mapping[str, Prepared], failed: Sequence[Delivered]) -> None:
        """Check that not every batch of the job so far lacks a column that the settings name.

        :raises MissingColumnError: naming the column. No batch is at fault, so none is rejected.
        """
        self._has_prepared = self._has_prepared or bool(prepared)
        missing = [error for error in failed if isinstance(error, MissingColumnError)]
        if missing and not self._has_prepared and len(missing) == len(failed):
            raise missing[0]

    def _prepare_together(
        self, dues: Sequence[_DueBatch], sinks: Sequence[str]
    ) -> Iterator[tuple[_DueBatch, Prepared | Exception]]:
        def prepare(some: Sequence[_DueBatch]) -> Mapping[str, Prepared | Exception]:
            return self._delivery.prepare([due.attempt for due in some], sinks)

        for some, made in by_halves(dues, prepare, "preparation"):
            for due in some:
                yield due, made if isinstance(made, Exception) else made[due.attempt.batch_id]

    def _commit_to(
        self,
        sinks: Sequence[str],
        dues: Sequence[_DueBatch],
        delivered: dict[str, Delivered],
        unavailable: dict[str, SinkUnavailableError],
    ) -> dict[str, list[str]]:
        """Make batches visible in sinks; return, by partition, the sinks that took its batch."""
        taken: dict[str, list[str]] = {due.key: [] for due in dues}
        for sink in sinks:
            left = [] if sink in unavailable else _not_failed(dues, delivered)
            for some, error in by_halves(left, partial(self._commit, sink), f"commit to sink {sink!r}"):
                for due in some:
                    if error is None:
                        taken[due.key].append(sink)
                    elif isinstance(error, SinkUnavailableError):
                        unavailable[sink] = error
                    else:
                        delivered[due.key] = error
        return taken

    def _commit(self, sink: str, dues: Sequence[_DueBatch]) -> None:
        with translating_outages(sink):
            self._delivery.commit(sink, [due.attempt for due in dues])

    def _discard(self, dues: Sequence[_DueBatch]) -> None:
        with suppress(OSError, DeliveryError):  # the next owner sweeps what remains
            self._delivery.discard([due.attempt for due in dues])

    def leave_to_next_owner(self, batch: LandedBatch) -> None:
        """Leave a batch to its partition's next owner: its set keeps waiting for the sinks that have not taken it."""
        with self._lock:
            for set_id in [each.set_id for each in self._own_sets.values() if each.batch_id == batch.batch_id]:
                del self._own_sets[set_id]

    def reject(self, key: str, batch: LandedBatch, reason: str) -> bool:
        """Reject a batch that cannot be delivered, which gives its partition back; return whether its set has ended.

        :raises PartitionNotOwnedError: if the lease is lost.
        """
        progress = progress_of(self._coordinator.leases.leased(key))
        recorded = progress.batch(batch.batch_id)
        if recorded is None or recorded.acknowledgment_set is None:
            return False
        with suppress(AcknowledgmentError):
            owed = [s for s, n in self._sets.view.get(recorded.acknowledgment_set).references.items() if n]
            sink = next((s for s in self._delivery.sinks if s in owed), None)
            if sink is None:
                return False
            ended, _ = self._sets.release(
                recorded.acknowledgment_set,
                sink,
                positive=False,
                release_id=f"{sink} failed",
                reason=reason,
                owned=True,
            )
            self._own_sets.pop(ended.set_id, None)
            return not ended.is_pending
        return False

    def waits_until(self, progress: LandedProgress) -> datetime | None:
        """Return until when a partition waits for acknowledgments from outside the job.

        :returns: None if the job has work left, or there is nothing to wait for.
        """
        waiting = [batch.acknowledgment_set for batch in progress.landed if not batch.acknowledged]
        if not waiting or self.next_batch(progress) is not None:
            return None
        return max(self._other_sets[set_id].expires_at for set_id in waiting if set_id is not None)

    def pending_of(self, progress: LandedProgress) -> list[str]:
        """Return the sets of a partition whose remaining references are all owed outside the job."""
        return [b.acknowledgment_set for b in progress.landed if b.acknowledgment_set in self._other_sets]

    def _note_extended(self, extended: AcknowledgmentSet) -> None:
        with self._lock:  # the delivering thread may have removed it just now
            if extended.set_id in self._own_sets:
                self._own_sets[extended.set_id] = extended

    def _finish_own_part(self, acknowledgment_set: AcknowledgmentSet) -> None:
        with self._lock:
            self._own_sets.pop(acknowledgment_set.set_id, None)
            if acknowledgment_set.is_pending:
                self._other_sets[acknowledgment_set.set_id] = acknowledgment_set

    def _is_own(self, batch: LandedBatch) -> bool:
        return not batch.acknowledged and batch.acknowledgment_set not in self._other_sets

    def _set_of(self, key: str, batch: LandedBatch) -> Steps[AcknowledgmentSet]:
        """Return the set that a batch waits for, which a previous owner may have made, or begin a new one."""
        set_id = batch.acknowledgment_set
        known = None
        if set_id is not None:
            with suppress(AcknowledgmentSetNotFoundError):
                known = self._own_sets.get(set_id) or self._sets.view.get(set_id)
        if known is not None and known.is_pending and set(known.sinks) != set(self._delivery.sinks):
            log.warning("%s: the sinks of the job have changed since; the batch is delivered again", known)
            self._sets.cancel(known.set_id, "the sinks of the job have changed")
            known = None
        if known is None or not known.is_pending:
            return (yield from self.begin_delivery(key, batch, progress_of(self._coordinator.leases.leased(key))))
        self._own_sets[known.set_id] = known
        return known


def _is_store_unavailable(delivered: Mapping[str, Delivered]) -> bool:
    """Return whether a batch failed because the store is unavailable."""
    return any(isinstance(each, StoreUnavailableError) for each in delivered.values())


def _not_failed(dues: Sequence[_DueBatch], delivered: Mapping[str, Delivered]) -> list[_DueBatch]:
    """Return the batches that have not failed."""
    return [due for due in dues if due.key not in delivered]


def _sharing(attempt: Attempt, partition: Partition) -> Mapping[str, Any]:
    """Return the progress of a partition, with the file that its batch shares.

    :raises PartitionNotOwnedError: if the batch does not wait for the attempt's set, or no longer does.
    """
    assert attempt.shared_file is not None
    _waiting_batch(partition, attempt.batch_id, attempt.set_id)
    return progress_of(partition).sharing(attempt.batch_id, attempt.shared_file).to_mapping()


def _with_file(due: _DueBatch, prepared: Prepared | None) -> _DueBatch:
    """Return a batch with the shared file in which it was prepared, if any."""
    if prepared is None or prepared.shared_file is None:
        return due
    return replace(due, attempt=replace(due.attempt, shared_file=prepared.shared_file))


def _sharing_with_failed(dues: Sequence[_DueBatch], delivered: Mapping[str, Delivered]) -> dict[str, Delivered]:
    """Return, by partition, the batches that have not failed and share a file with a failed one."""
    failed = {due.attempt.shared_file for due in dues if due.key in delivered} - {None}
    return {due.key: None for due in _not_failed(dues, delivered) if due.attempt.shared_file in failed}


def _is_shared_file_gone(due: _DueBatch, result: Delivered) -> bool:
    """Return whether a batch's shared file is gone, because another owner delivers one of the file's batches."""
    return due.attempt.shared_file is not None and isinstance(result, MissingFileError)


def _waiting_batch(partition: Partition, batch_id: str, set_id: str) -> LandedBatch:
    """Return a batch that waits for a set.

    :raises PartitionNotOwnedError: if it does not wait for the set, or no longer does.
    """
    batch = progress_of(partition).batch(batch_id)
    if batch is None or batch.acknowledgment_set != set_id:
        raise PartitionNotOwnedError(
            f"partition {partition.partition_key!r}: batch {batch_id} no longer waits for set {set_id}, which ended "
            "while the batch was delivered"
        )
    return batch


def _has_room(progress: LandedProgress) -> bool:
    """Return whether a partition's progress can hold one more batch after those that are pending.

    The first batch is always allowed: it fits, or fails its partition; see `ProgressError`.
    """
    if not progress.landed:
        return True
    size, position = len(json.dumps(progress.to_mapping())), len(json.dumps(progress.landed[-1].end))
    return size + 2 * position + BATCH_BYTES <= MAX_PROGRESS_BYTES
