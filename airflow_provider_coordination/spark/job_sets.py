"""The acknowledgment sets of the batches that one job delivers: begun, extended, taken over, released.

A batch is recorded together with its set. The job releases one reference for each of its sinks. The end of the set
moves the checkpoint, whoever releases the last reference. A set that a previous owner left pending is taken over: only
the sinks that have not taken the batch get it again.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentSet
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentError,
    AcknowledgmentSetNotFoundError,
)
from airflow_provider_coordination.coordination.intervals import start_of_interval
from airflow_provider_coordination.coordination.partition import MAX_PROGRESS_BYTES, format_instant
from airflow_provider_coordination.coordination.store import attempt_each
from airflow_provider_coordination.sources.kinds import SourceBatches, progress_of
from airflow_provider_coordination.sources.landed import LandedBatch, LandedProgress
from airflow_provider_coordination.spark.settings import IngestSettings

log = logging.getLogger(__name__)

BATCH_BYTES = 4 * 1024
"""The size in bytes that a batch may take in a partition's progress, without its positions."""


class JobSets:
    """The acknowledgment sets of one job. A thread other than the delivering one renews leases and sets.

    :param settings: the job's settings.
    :param coordinator: the source's coordinator, for the job's owner.
    :param sinks: the names of the job's sinks; each owes a reference for every batch.
    """

    def __init__(self, settings: IngestSettings, coordinator: SourceCoordinator, sinks: Sequence[str]) -> None:
        self._acknowledgments = settings.acknowledgments
        self._run = settings.run
        self._coordinator = coordinator
        self._sinks = sinks
        self._sets = AcknowledgmentSets(coordinator, SourceBatches())
        self._timeout = settings.acknowledgments.timeout
        self._completes = settings.completes
        self._lock = threading.Lock()
        self._own: dict[str, AcknowledgmentSet] = {}  # this job's sinks still owe references
        self._others: dict[str, AcknowledgmentSet] = {}  # only handles outside the job owe references

    # Renewal and expiry

    @property
    def ownership_timeout(self) -> timedelta:
        """How long a lease lasts without renewal."""
        return self._coordinator.leases.ownership_timeout

    def renew_due(self) -> None:
        """Renew leases, and extend the sets of batches that this job still delivers."""
        self._coordinator.leases.renew_due()
        now = self._coordinator.clock.now()
        for set_id, own in list(self._own.items()):
            if own.expires_at - now < self._timeout / 2 and self._coordinator.leases.owns(own.partition_key):
                try:
                    self._note_extended(self._sets.extend(set_id, self._timeout))
                except AcknowledgmentError as error:  # the set has ended; the batch's delivery notices that
                    log.debug("%s", error)
                    self._own.pop(set_id, None)

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

    # Beginning and ending

    def begin_each(
        self, batches: Mapping[str, tuple[LandedBatch, Callable[[], LandedProgress]]]
    ) -> dict[str, AcknowledgmentSet | Exception]:
        """Record batches with new sets, or begin to deliver recorded batches again, in few requests.

        A batch without records owes nothing: it is acknowledged at once.

        :param batches: by partition, a batch, and a function that returns the partition's progress including it.
        :returns: by partition, the set as written, or the error; see `AcknowledgmentSets.begin_each`.
        """
        results: dict[str, AcknowledgmentSet | Exception] = {}
        new_sets: dict[str, tuple[AcknowledgmentSet, Mapping[str, Any]]] = {}
        for key, (batch, progress) in batches.items():
            try:
                landed = progress()
                new_sets[key] = self._new_set(key, batch, landed), landed.to_mapping()
            except Exception as error:  # an error of one partition fails only that partition
                results[key] = error
        results |= zip(new_sets, self._sets.begin_each(list(new_sets.values())), strict=True)
        for begun in results.values():
            if isinstance(begun, AcknowledgmentSet) and begun.is_pending:
                self._own[begun.set_id] = begun
        return {key: results[key] for key in batches}

    def _new_set(self, key: str, batch: LandedBatch, progress: LandedProgress) -> AcknowledgmentSet:
        sinks = self._sinks if batch.file else ()
        return self._sets.new_set(
            key,
            batch.batch_id,
            [*sinks, *(self._acknowledgments.handles if batch.file else ())],
            timeout=self._timeout,
            sinks=sinks,
            run=self._run,
            batch={
                "start": batch.start,
                "end": batch.end,
                "records": batch.records,
                "bytes": batch.bytes,
                **self._interval(batch, progress),
            },
        )

    def _interval(self, batch: LandedBatch, progress: LandedProgress) -> dict[str, Any]:
        """Return the interval in which a batch counts; empty if none is counted."""
        if self._completes is None or batch.first_arrival is None:
            return {}
        start = start_of_interval(batch.first_arrival, self._completes)
        return {"interval": format_instant(start), "epoch": progress.epoch}

    def of_each(self, batches: Mapping[str, LandedBatch]) -> dict[str, AcknowledgmentSet | Exception]:
        """Return, by partition, the set that a batch waits for, which a previous owner may have made, or a new one."""
        known = dict(zip(batches, attempt_each(batches.values(), self._known), strict=True))
        begun = self.begin_each(
            {key: (batch, partial(self._progress, key)) for key, batch in batches.items() if known[key] is None}
        )
        return {key: begun[key] if found is None else found for key, found in known.items()}

    def _progress(self, key: str) -> LandedProgress:
        return progress_of(self._coordinator.leases.leased(key))

    def _known(self, batch: LandedBatch) -> AcknowledgmentSet | None:
        """Return the pending set of a batch for the same sinks; None if there is none."""
        set_id = batch.acknowledgment_set
        if set_id is None:
            return None
        with suppress(AcknowledgmentSetNotFoundError):
            known = self._own.get(set_id) or self._sets.view.get(set_id)
            if known.is_pending and set(known.sinks) != set(self._sinks):
                log.warning("%s: the sinks of the job have changed since; the batch is delivered again", known)
                self._sets.cancel(known.set_id, "the sinks of the job have changed")
            elif known.is_pending:
                self._own[known.set_id] = known
                return known
        return None

    def owing(self, waiting: AcknowledgmentSet) -> tuple[str, ...]:
        """Return the job's sinks that have not taken the batch of a set, in the order of their commits."""
        owing = tuple(sink for sink in self._sinks if waiting.is_pending and waiting.references.get(sink))
        if not owing:
            self._finish_own_part(waiting)
        return owing

    def release_each(
        self,
        taken: Sequence[tuple[AcknowledgmentSet, Sequence[str]]],
        facts: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[AcknowledgmentSet | Exception]:
        """Release the references of sinks that have taken batches, in few requests.

        :param taken: the sets with the sinks.
        :param facts: see `AcknowledgmentSets.delivered_each`.
        :returns: each set as it is now, or its error; see `AcknowledgmentSets.delivered_each`.
        """
        waiting = [(self._own.get(known.set_id, known), sinks) for known, sinks in taken]
        results = self._sets.delivered_each(waiting, facts if self._completes is not None else None)
        for result in results:
            if isinstance(result, Exception):
                continue
            if any(result.references.get(sink) for sink in self._sinks):
                self._note_extended(result)
            else:
                self._finish_own_part(result)
        return results

    # State

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
            and len(progress.landed) < self._acknowledgments.max_pending_batches
            and _has_room(progress)
        )

    def leave_to_next_owner(self, batch: LandedBatch) -> None:
        """Leave a batch to its partition's next owner: its set keeps waiting for the sinks that have not taken it."""
        with self._lock:
            for set_id in [each.set_id for each in self._own.values() if each.batch_id == batch.batch_id]:
                del self._own[set_id]

    def reject(self, key: str, batch: LandedBatch, reason: str) -> bool:
        """Reject a batch that cannot be delivered, which gives its partition back; return whether its set has ended.

        :raises PartitionNotOwnedError: if the lease is lost.
        """
        recorded = self._progress(key).batch(batch.batch_id)
        if recorded is None or recorded.acknowledgment_set is None:
            return False
        with suppress(AcknowledgmentError):
            owed = [s for s, n in self._sets.view.get(recorded.acknowledgment_set).references.items() if n]
            sink = next((s for s in self._sinks if s in owed), None)
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
            self._own.pop(ended.set_id, None)
            return not ended.is_pending
        return False

    def waits_until(self, progress: LandedProgress) -> datetime | None:
        """Return until when a partition waits for acknowledgments from outside the job.

        :returns: None if the job has work left, or there is nothing to wait for.
        """
        waiting = [batch.acknowledgment_set for batch in progress.landed if not batch.acknowledged]
        if not waiting or self.next_batch(progress) is not None:
            return None
        return max(self._others[set_id].expires_at for set_id in waiting if set_id is not None)

    def pending_of(self, progress: LandedProgress) -> list[str]:
        """Return the sets of a partition whose remaining references are all owed outside the job."""
        return [b.acknowledgment_set for b in progress.landed if b.acknowledgment_set in self._others]

    def _note_extended(self, extended: AcknowledgmentSet) -> None:
        with self._lock:  # the delivering thread may have removed it just now
            if extended.set_id in self._own:
                self._own[extended.set_id] = extended

    def _finish_own_part(self, acknowledgment_set: AcknowledgmentSet) -> None:
        with self._lock:
            self._own.pop(acknowledgment_set.set_id, None)
            if acknowledgment_set.is_pending:
                self._others[acknowledgment_set.set_id] = acknowledgment_set

    def _is_own(self, batch: LandedBatch) -> bool:
        return not batch.acknowledged and batch.acknowledgment_set not in self._others


def _has_room(progress: LandedProgress) -> bool:
    """Return whether a partition's progress can hold one more batch after those that are pending.

    The first batch is always allowed: it fits, or fails its partition; see `ProgressError`.
    """
    if not progress.landed:
        return True
    size, position = len(json.dumps(progress.to_mapping())), len(json.dumps(progress.landed[-1].end))
    return size + 2 * position + BATCH_BYTES <= MAX_PROGRESS_BYTES
