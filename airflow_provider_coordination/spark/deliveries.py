"""What one job has in delivery: the acknowledgment sets of its batches, from recording to the last sink's release.

A batch is recorded together with its set. The job releases one reference for each of its sinks; the set's end moves
the checkpoint, wherever it happens. A set that a former owner left pending is taken over: only the sinks that have not
taken the batch get it again.
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
    Prepared,
    SinkAwayError,
    by_halves,
)
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.landed_files import LandedFiles
from airflow_provider_coordination.spark.outages import calling
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.spans import NoSpans, Spans

log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_BYTES = 4 * 1024
"""What a batch may take of a partition's progress, its positions left out."""


Delivered = Prepared | Exception | None
"""What became visible of a batch; None if there was nothing left to do; or what it raised."""


@dataclass(frozen=True, kw_only=True)
class _Due:
    """A batch that is to be delivered.

    :param waiting: the set that waits for it.
    :param attempt: its delivery.
    :param sinks: those that have not taken it.
    """

    waiting: AcknowledgmentSet
    attempt: Attempt
    sinks: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its partition."""
        return self.attempt.partition_key


class Deliveries:
    """The batches that one job delivers. Leases and sets are renewed from another thread than the one that delivers.

    :param settings: the job's.
    :param coordinator: of the source, for the job's owner.
    :param delivery: takes batches into sinks.
    :param files: knows where landed files are.
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
        self._in_hand: dict[str, AcknowledgmentSet] = {}  # sinks of this job still owe references
        self._handed_on: dict[str, AcknowledgmentSet] = {}  # only others do

    @property
    def ownership_timeout(self) -> timedelta:
        """How long a lease runs without renewal."""
        return self._coordinator.leases.ownership_timeout

    def renew_due(self) -> None:
        """Renew leases, and extend the sets of batches that this job still works on."""
        self._coordinator.leases.renew_due()
        now = self._coordinator.clock.now()
        for set_id, in_hand in list(self._in_hand.items()):
            if in_hand.expires_at - now < self._timeout / 2 and self._coordinator.leases.owns(in_hand.partition_key):
                try:
                    self._note_extended(self._sets.extend(set_id, self._timeout))
                except AcknowledgmentError as error:  # it has ended since; who delivers the batch finds out
                    log.debug("%s", error)
                    self._in_hand.pop(set_id, None)

    def end_overdue(self) -> None:
        """End the source's sets whose time is up, so that their batches are delivered again.

        Also those that this job did not make: nobody may be left who releases what a DAG once asked for.
        """
        expiry = self._sets.view.next_expiry()
        if expiry is not None and expiry <= self._coordinator.clock.now():
            self._sets.expire_overdue()

    def purge(self) -> None:
        """Delete sets that ended long ago."""
        self._sets.purge()

    def beginning(self, key: str, batch: LandedBatch, progress: LandedProgress) -> Steps[AcknowledgmentSet]:
        """Record a batch, or begin to deliver it anew, with its set.

        A batch without records owes nothing: it is acknowledged at once.

        :param key: the batch's partition.
        :param progress: the partition's, with the batch in it.
        """
        sinks = self._delivery.sinks if batch.file else ()
        made = yield from self._sets.beginning(
            key,
            batch.batch_id,
            [*sinks, *(self._settings.acknowledgments.handles if batch.file else ())],
            timeout=self._timeout,
            sinks=sinks,
            progress=progress.to_mapping(),
            run=self._settings.run,
            batch={"start": batch.start, "end": batch.end, "records": batch.records, "bytes": batch.bytes},
        )
        if made.is_pending:
            self._in_hand[made.set_id] = made
        return made

    def in_step(self, processes: Sequence[Steps[T]]) -> list[T | Exception]:
        """Take several processes of a partition each to their ends; see `AcknowledgmentSets.in_step`."""
        return self._sets.in_step(processes)

    def next_of(self, progress: LandedProgress) -> LandedBatch | None:
        """Return the first batch of a partition that this job has to deliver; None if there is none."""
        return next((batch for batch in progress.landed if self._is_mine(batch)), None)

    def may_land(self, progress: LandedProgress) -> bool:
        """Return whether a partition may be read further: at most one batch is in delivery, and not too much is
        pending."""
        return (
            not progress.is_ended
            and sum(map(self._is_mine, progress.landed)) <= 1
            and len(progress.landed) < self._settings.acknowledgments.max_pending_batches
            and _has_room(progress)
        )

    def deliver(self, batches: Mapping[str, LandedBatch]) -> dict[str, Delivered]:
        """Take batches into the sinks that do not have them yet, and release their references.

        All that owe the same sinks are one delivery. What one batch raises holds no other one, unless the store is
        away: what was not begun then is left out of the result.

        :param batches: a batch of each of some partitions.
        :returns: by partition what became visible, None if there was nothing left to do, or what the batch raised:
            `PartitionNotOwnedError` if its lease is lost, or its set has ended; `SinkAwayError` if a sink takes nothing
            at present, while the others took it and have released it.
        """
        delivered: dict[str, Delivered] = {}
        together: dict[tuple[str, ...], list[_Due]] = {}
        due_of = self.in_step([self._due(key, batch) for key, batch in batches.items()])
        for key, due in zip(batches, due_of, strict=True):
            if isinstance(due, _Due):
                together.setdefault(due.sinks, []).append(due)
            else:
                delivered[key] = due
        for dues in together.values():
            while dues and not _is_store_away(delivered):  # what is left waits until the store is back
                dues = self._deliver(dues, delivered)
        return delivered

    def _due(self, key: str, batch: LandedBatch) -> Steps[_Due | None]:
        """Return what is to be delivered of a batch; None if there is nothing."""
        waiting = yield from self._set_of(key, batch)
        sinks = tuple(sink for sink in self._delivery.sinks if waiting.references.get(sink))
        if not waiting.is_pending or not sinks:
            self._let_go(waiting)
            return None
        attempt = Attempt(
            batch=_waiting_batch(self._coordinator.leases.leased(key), batch.batch_id, waiting.set_id),
            file=self._files.place(key, batch),
            folder=self._files.folder(key),
            set_id=waiting.set_id,
            fencing_token=self._coordinator.leases.fencing_token(key),
            source=self._coordinator.view.source_identifier,
            partition_key=key,
            owner=self._coordinator.owner,
            progress=progress_of(self._coordinator.leases.leased(key)).lasting,
        )
        return _Due(waiting=waiting, attempt=attempt, sinks=sinks)

    def _deliver(self, dues: Sequence[_Due], delivered: dict[str, Delivered]) -> list[_Due]:
        """Deliver batches that owe the same sinks, each as far as it does not fail.

        :param delivered: where the result of each is put.
        :returns: those that are to be delivered again: they shared a file with one that somebody else delivers.
        """
        sinks, records = dues[0].sinks, sum(due.attempt.batch.records for due in dues)
        away: dict[str, SinkAwayError] = {}  # why a sink takes nothing, by its name: the others get theirs
        with self._spans.span("delivery", batches=len(dues), records=records):
            prepared = self._prepare(sinks, dues, delivered, away)
            dues = [_with_file(due, prepared.get(due.key)) for due in dues]
            try:
                if left := _left(dues, delivered):
                    self._observer("delivering")
                    self._look(left, delivered)
                bereft = _bereft(left, delivered)
                going = [due for due in dues if due.key not in bereft]
                taken = {} if _is_store_away(delivered) else self._commit_to(sinks, going, delivered, away)
            except Exception:
                self._discard(dues)
                raise
            self._discard(dues)
            again = [due for due in dues if due.key in bereft or _is_taken_away(due, delivered.get(due.key))]
            left_over = {due.key for due in again}
            ended = [due for due in dues if due.key not in left_over]
            if not _is_store_away(delivered):
                self._end([due for due in _left(ended, delivered) if taken[due.key]], taken, delivered)
                for due in _left(ended, delivered):
                    missing = next((sink for sink in sinks if sink not in taken[due.key]), None)
                    delivered[due.key] = prepared[due.key] if missing is None else away[missing]
            for due in ended:
                self._note(due, delivered)
            return self._again(again, delivered)

    def _again(self, dues: Sequence[_Due], delivered: dict[str, Delivered]) -> list[_Due]:
        """Return batches as they are to be delivered once more, those left out that are not this job's any more."""
        again = []
        for due in dues:
            delivered.pop(due.key, None)
            try:
                leased = self._coordinator.leases.leased(due.key)
                batch = _waiting_batch(leased, due.attempt.batch_id, due.attempt.set_id)
            except Exception as error:  # whatever one partition raises, that partition alone fails
                delivered[due.key] = error
            else:
                again.append(replace(due, attempt=replace(due.attempt, batch=batch, shared_file=None)))
        return again

    def _look(self, dues: Sequence[_Due], delivered: dict[str, Delivered]) -> None:
        """Ask the store, before batches become visible, whether each is still this job's to deliver.

        Where batches share a file, the answer is in writing: whoever delivers one next knows which file that is.
        """
        leases = self._coordinator.leases
        named = {due.key: partial(_sharing, due.attempt) for due in dues if due.attempt.shared_file is not None}
        stored = leases.refresh_each([due.key for due in dues if due.key not in named and leases.owns(due.key)])
        stored |= leases.change_progress_each(named)
        for due in dues:
            try:
                found = stored[due.key] if due.key in stored else leases.renew(due.key)
                if isinstance(found, Exception):
                    raise found
                _waiting_batch(found, due.attempt.batch_id, due.waiting.set_id)
            except Exception as error:  # whatever one partition raises, that partition alone fails
                delivered[due.key] = error

    def _end(self, dues: Sequence[_Due], taken: Mapping[str, Sequence[str]], delivered: dict[str, Delivered]) -> None:
        """Release the references of the sinks that have taken batches; put there what raises."""
        if not dues:
            return
        self._observer("delivered")
        with self._spans.span("acknowledge", batches=len(dues), sinks=len(dues[0].sinks)):
            known = [self._in_hand.get(due.waiting.set_id, due.waiting) for due in dues]
            ended = self.in_step(
                [self._sets.releasing(each, taken[due.key]) for due, each in zip(dues, known, strict=True)]
            )
        for due, result in zip(dues, ended, strict=True):
            if isinstance(result, Exception):
                delivered[due.key] = result
            elif len(taken[due.key]) == len(due.sinks):
                self._let_go(result)
            else:
                self._note_extended(result)

    def _note(self, due: _Due, delivered: Mapping[str, Delivered]) -> None:
        """Make the span of a batch, which says what it failed by."""
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
        dues: Sequence[_Due],
        delivered: dict[str, Delivered],
        away: dict[str, SinkAwayError],
    ) -> dict[str, Prepared]:
        """Prepare batches for sinks; return what will become visible, by partition.

        Where a sink turns out to be away, they are prepared for the others.
        """
        prepared: dict[str, Prepared] = {}
        left = list(dues)
        while left and (wanted := [sink for sink in sinks if sink not in away]):
            held: list[_Due] = []
            for due, result in self._prepare_together(left, wanted):
                if isinstance(result, SinkAwayError) and result.sink in wanted:
                    away[result.sink] = result
                    held.append(due)
                elif isinstance(result, Exception):
                    delivered[due.key] = result
                else:
                    prepared[due.key] = result
            left = held
        delivered |= {due.key: away[sinks[0]] for due in left}
        return prepared

    def _prepare_together(
        self, dues: Sequence[_Due], sinks: Sequence[str]
    ) -> Iterator[tuple[_Due, Prepared | Exception]]:
        def prepare(some: Sequence[_Due]) -> Mapping[str, Prepared | Exception]:
            return self._delivery.prepare([due.attempt for due in some], sinks)

        for some, made in by_halves(dues, prepare, "preparation"):
            for due in some:
                yield due, made if isinstance(made, Exception) else made[due.attempt.batch_id]

    def _commit_to(
        self,
        sinks: Sequence[str],
        dues: Sequence[_Due],
        delivered: dict[str, Delivered],
        away: dict[str, SinkAwayError],
    ) -> dict[str, list[str]]:
        """Make batches visible in sinks; return by partition those that took its batch."""
        taken: dict[str, list[str]] = {due.key: [] for due in dues}
        for sink in sinks:
            left = [] if sink in away else _left(dues, delivered)
            for some, error in by_halves(left, partial(self._commit, sink), f"commit to sink {sink!r}"):
                for due in some:
                    if error is None:
                        taken[due.key].append(sink)
                    elif isinstance(error, SinkAwayError):
                        away[sink] = error
                    else:
                        delivered[due.key] = error
        return taken

    def _commit(self, sink: str, dues: Sequence[_Due]) -> None:
        with calling(sink):
            self._delivery.commit(sink, [due.attempt for due in dues])

    def _discard(self, dues: Sequence[_Due]) -> None:
        with suppress(OSError, DeliveryError):  # the next owner sweeps what is left
            self._delivery.discard([due.attempt for due in dues])

    def leave(self, batch: LandedBatch) -> None:
        """Leave a batch to its partition's next owner: its set goes on waiting for the sinks that have not taken it."""
        with self._lock:
            for set_id in [each.set_id for each in self._in_hand.values() if each.batch_id == batch.batch_id]:
                del self._in_hand[set_id]

    def reject(self, key: str, batch: LandedBatch, reason: str) -> bool:
        """Say that a batch cannot be delivered, which gives its partition back; return whether its set could be ended.

        :raises PartitionNotOwnedError: if the lease is lost.
        """
        progress = progress_of(self._coordinator.leases.leased(key))
        noted = progress.batch(batch.batch_id)
        if noted is None or noted.acknowledgment_set is None:
            return False
        with suppress(AcknowledgmentError):
            owed = [s for s, n in self._sets.view.get(noted.acknowledgment_set).references.items() if n]
            sink = next((s for s in self._delivery.sinks if s in owed), None)
            if sink is None:
                return False
            ended, _ = self._sets.release(
                noted.acknowledgment_set,
                sink,
                positive=False,
                release_id=f"{sink} failed",
                reason=reason,
                owned=True,
            )
            self._in_hand.pop(ended.set_id, None)
            return not ended.is_pending
        return False

    def waits_until(self, progress: LandedProgress) -> datetime | None:
        """Return until when a partition waits for others alone; None if there is work left, or nothing to wait for."""
        waiting = [batch.acknowledgment_set for batch in progress.landed if not batch.acknowledged]
        if not waiting or self.next_of(progress) is not None:
            return None
        return max(self._handed_on[set_id].expires_at for set_id in waiting if set_id is not None)

    def pending_of(self, progress: LandedProgress) -> list[str]:
        """Return the sets of a partition that only others still owe references to."""
        return [b.acknowledgment_set for b in progress.landed if b.acknowledgment_set in self._handed_on]

    def _note_extended(self, extended: AcknowledgmentSet) -> None:
        with self._lock:  # the thread that delivers may have let it go in this moment
            if extended.set_id in self._in_hand:
                self._in_hand[extended.set_id] = extended

    def _let_go(self, waiting: AcknowledgmentSet) -> None:
        with self._lock:
            self._in_hand.pop(waiting.set_id, None)
            if waiting.is_pending:
                self._handed_on[waiting.set_id] = waiting

    def _is_mine(self, batch: LandedBatch) -> bool:
        return not batch.acknowledged and batch.acknowledgment_set not in self._handed_on

    def _set_of(self, key: str, batch: LandedBatch) -> Steps[AcknowledgmentSet]:
        """Return the set that a batch waits for, perhaps a former owner's, or begin one."""
        set_id = batch.acknowledgment_set
        known = None
        if set_id is not None:
            with suppress(AcknowledgmentSetNotFoundError):
                known = self._in_hand.get(set_id) or self._sets.view.get(set_id)
        if known is not None and known.is_pending and set(known.sinks) != set(self._delivery.sinks):
            log.warning("%s: the sinks of the job have changed since; the batch is delivered anew", known)
            self._sets.cancel(known.set_id, "the sinks of the job have changed")
            known = None
        if known is None or not known.is_pending:
            return (yield from self.beginning(key, batch, progress_of(self._coordinator.leases.leased(key))))
        self._in_hand[known.set_id] = known
        return known


def _is_store_away(delivered: Mapping[str, Delivered]) -> bool:
    """Return whether the store did not answer for some batch."""
    return any(isinstance(each, StoreUnavailableError) for each in delivered.values())


def _left(dues: Sequence[_Due], delivered: Mapping[str, Delivered]) -> list[_Due]:
    """Return the batches that have not failed."""
    return [due for due in dues if due.key not in delivered]


def _sharing(attempt: Attempt, partition: Partition) -> Mapping[str, Any]:
    """Return the state of a partition with the file that its batch shares.

    :raises PartitionNotOwnedError: if the batch does not wait for the attempt's set, or no longer.
    """
    assert attempt.shared_file is not None
    _waiting_batch(partition, attempt.batch_id, attempt.set_id)
    return progress_of(partition).sharing(attempt.batch_id, attempt.shared_file).to_mapping()


def _with_file(due: _Due, prepared: Prepared | None) -> _Due:
    """Return a batch with the file that it was prepared in with others, if any."""
    if prepared is None or prepared.shared_file is None:
        return due
    return replace(due, attempt=replace(due.attempt, shared_file=prepared.shared_file))


def _bereft(dues: Sequence[_Due], delivered: Mapping[str, Delivered]) -> dict[str, Delivered]:
    """Return, by their partitions, those that have not failed and share a file with one that has."""
    failed = {due.attempt.shared_file for due in dues if due.key in delivered} - {None}
    return {due.key: None for due in _left(dues, delivered) if due.attempt.shared_file in failed}


def _is_taken_away(due: _Due, result: Delivered) -> bool:
    """Return whether the file that a batch shares is gone, as it is once somebody else delivers one of its batches."""
    return due.attempt.shared_file is not None and isinstance(result, MissingFileError)


def _waiting_batch(partition: Partition, batch_id: str, set_id: str) -> LandedBatch:
    """Return a batch that waits for a set.

    :raises PartitionNotOwnedError: if it does not, or no longer.
    """
    batch = progress_of(partition).batch(batch_id)
    if batch is None or batch.acknowledgment_set != set_id:
        raise PartitionNotOwnedError(
            f"partition {partition.partition_key!r}: batch {batch_id} no longer waits for set {set_id}, which ended "
            "while the batch was delivered"
        )
    return batch


def _has_room(progress: LandedProgress) -> bool:
    """Return whether a partition's progress can hold one more batch behind those that wait.

    The first one always finds room, or fails its partition; see `ProgressError`.
    """
    if not progress.landed:
        return True
    size, position = len(json.dumps(progress.to_mapping())), len(json.dumps(progress.landed[-1].end))
    return size + 2 * position + BATCH_BYTES <= MAX_PROGRESS_BYTES
