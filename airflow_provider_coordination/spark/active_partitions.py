"""The partitions that one job works on: how far each is read and delivered, and how the job's work on it ends.

The results are noted in the job's `Summary`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentSet
from airflow_provider_coordination.coordination.balancer import Balancer
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    CoordinationError,
    ProgressChangedError,
    ProgressError,
    SourceError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinds import progress_of
from airflow_provider_coordination.sources.landed import EventTimeBounds, Failure, LandedBatch, LandedProgress
from airflow_provider_coordination.spark.delivery import Delivery, by_halves
from airflow_provider_coordination.spark.job_sets import JobSets
from airflow_provider_coordination.spark.landed_files import LandedFiles
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.spark.reading import PartitionsToRead, Reading
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.spark_errors import failure_text

log = logging.getLogger(__name__)

WAITING = timedelta(seconds=10)
"""How long a partition rests that waits for a lock, so that no job does nothing but wait for it."""


@dataclass(frozen=True)
class _Record:
    """A landed batch to record.

    :param batch: the batch.
    :param landing: returns the progress of its partition with the batch in it.
    :param recorded: called once it is recorded.
    """

    batch: LandedBatch
    landing: Callable[[LandedBatch], LandedProgress]
    recorded: Callable[[], object]


class ActivePartitions(PartitionsToRead):
    """The partitions that one job works on; for a reading they are `PartitionsToRead`.

    :param coordinator: the source's coordinator, for the job's owner.
    :param balancer: decides which leases the job should have.
    :param sets: the acknowledgment sets of the job.
    :param files: the landed files.
    :param summary: the job's summary, which is updated here.
    :param redaction: hides secrets in the reasons of failures.
    :param completed: called with each partition that is found to be completed.
    :param failed: called with each partition that fails: its key, the reason without secrets, and the kind of error.
    :param bounds: the event-time bounds for batches that the job lands; None if no record is late or early.
    """

    def __init__(
        self,
        coordinator: SourceCoordinator,
        balancer: Balancer,
        sets: JobSets,
        files: LandedFiles,
        summary: Summary,
        redaction: Redaction,
        completed: Callable[[Partition], None],
        failed: Callable[[str, str, Failure], None],
        bounds: EventTimeBounds | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._balancer = balancer
        self._sets = sets
        self._files = files
        self._summary = summary
        self._redaction = redaction
        self._completed = completed
        self._failed = failed
        self._bounds = bounds
        self._read_until: dict[str, datetime | None] = {}
        self._to_record: dict[str, _Record] = {}

    # Partitions at work

    def __contains__(self, key: str) -> bool:
        """Return whether the job works on a partition."""
        return key in self._read_until

    def __len__(self) -> int:
        """Return the number of partitions that the job works on."""
        return len(self._read_until)

    @property
    @override
    def read_until(self) -> Mapping[str, datetime | None]:
        return MappingProxyType(self._read_until)

    @override
    def all(self) -> Iterator[tuple[str, LandedProgress]]:
        for key, partition in self._coordinator.leases.held.items():
            if key in self._read_until and self._coordinator.leases.owns(key):
                try:
                    progress = progress_of(partition)
                except (ProgressError, SourceError) as error:
                    self.fail(key, str(error), Failure(type(error).__name__))  # the stored progress is invalid
                    continue
                yield key, progress

    @override
    def may_land(self, key: str, progress: LandedProgress) -> bool:
        return not self._balancer.delivers_first(key) and self._sets.may_land(progress)

    def is_paused(self, key: str) -> bool:
        """Return whether a partition is read further only once its landed batches are acknowledged outside the job."""
        held = self._coordinator.leases.find(key)
        if held is None:
            return False
        progress = progress_of(held)
        return bool(self._sets.pending_of(progress)) and not self._sets.may_land(progress)

    # Reading and recording

    def begin(self, key: str) -> None:
        """Begin to work on a partition."""
        self._read_until[key] = None

    @override
    def note_read(self, key: str, until: datetime | None) -> None:
        self._read_until[key] = until

    @override
    def record(
        self,
        key: str,
        batch: LandedBatch,
        landing: Callable[[LandedBatch], LandedProgress],
        recorded: Callable[[], object] = lambda: None,
    ) -> None:
        landed = replace(batch, bounds=self._bounds if batch.file else None, landed_at=self._coordinator.clock.now())
        self._to_record[key] = _Record(landed, landing, recorded)

    def write_records(self) -> None:
        """Write the batches that `record` collected since the last call, for all partitions in few requests.

        :raises StoreUnavailableError: if the store was unavailable for some of them.
        """
        records, self._to_record = self._to_record, {}
        results = self._begin_each(records)
        again = {key for key, result in results.items() if isinstance(result, ProgressChangedError)}
        results |= self._begin_each({key: records[key] for key in again})  # the landed batches are still the same
        for key, result in results.items():
            if not isinstance(result, Exception):
                self._note_recorded(key, records[key])
            elif not isinstance(result, StoreUnavailableError):
                with self.recording(key):
                    raise result
        if (outage := next((r for r in results.values() if isinstance(r, StoreUnavailableError)), None)) is not None:
            raise outage

    def _begin_each(self, records: Mapping[str, _Record]) -> dict[str, AcknowledgmentSet | Exception]:
        return self._sets.begin_each({key: (r.batch, partial(r.landing, r.batch)) for key, r in records.items()})

    def _note_recorded(self, key: str, record: _Record) -> None:
        if record.batch.file:
            self._files.add(key, record.batch.file)
        else:
            self.note_read(key, record.batch.read_until)
        self._summary.records_landed += record.batch.records
        record.recorded()

    @contextmanager
    @override
    def recording(self, key: str) -> Iterator[None]:
        try:
            yield
        except LOST as error:
            log.warning("partition %s: the landed batch is dropped: %s", key, error)
        except StoreUnavailableError:
            raise
        except CoordinationError as error:  # for example a progress that would be too large
            self.fail(key, str(error), Failure(type(error).__name__))

    def note_delivered(self, key: str, batch: LandedBatch) -> None:
        """Note that a batch of a partition is delivered."""
        if key in self:  # otherwise the partition's end was noticed already, with another batch
            self.note_read(key, batch.read_until)
        self._summary.note_progress(key)

    def delete_delivered(self, key: str) -> None:
        """Delete the landed files that are no longer needed."""
        if (held := self._coordinator.leases.find(key)) is None:
            self.notice_gone()
            return
        self._files.keep(key, progress_of(held).landed)

    # Changes by other parties

    def refresh_pending(self) -> None:
        """Read again the partitions whose batches are acknowledged outside the job."""
        pending = [key for key, progress in self.all() if self._sets.pending_of(progress)]
        found = self._coordinator.leases.refresh_each(pending)
        if (outage := next((e for e in found.values() if isinstance(e, StoreUnavailableError)), None)) is not None:
            raise outage
        self.notice_gone()

    def hand_over(self) -> None:
        """Hand over the requested partitions; those that their taker would deliver otherwise, once they are delivered.

        Nothing may be in delivery.
        """
        leaving = self._balancer.leaving
        ready = {
            key: progress
            for key, progress in self.all()
            if key in leaving and not (self._balancer.delivers_first(key) and self._sets.next_batch(progress))
        }
        for key in self._balancer.hand_over(ready) if ready else ():
            for batch in ready[key].landed:
                self._sets.leave_to_next_owner(batch)
        self.notice_gone()

    def notice_gone(self) -> None:
        """Note how partitions ended whose leases are gone: by an acknowledgment set, or by another owner."""
        held = self._coordinator.leases.held
        for key in [key for key in self._read_until if key not in held]:
            del self._read_until[key]
            if self._balancer.was_handed_over(key):
                self._summary.handed_over.append(key)
            else:
                self._note_end(key, self._coordinator.view.get(key))
            self._files.forget(key)

    def _note_end(self, key: str, stored: Partition | None) -> None:
        if stored is not None and stored.status is PartitionStatus.COMPLETED:
            self._summary.completed.append(key)
            self._files.delete(key)
            self._completed(stored)
        elif stored is not None and stored.owner is None and stored.attempts:
            self._summary.failed[key] = str(stored.last_error)
        elif stored is not None and stored.status is PartitionStatus.CLOSED:
            self._summary.closed.append(key)
            # Only the files that this job landed: another worker may already read the partition again.
            self._files.keep(key, progress_of(stored).landed)
        else:
            self._summary.lost.append(key)

    # End of the work

    def stop_work(self, key: str, reason: str, failure: Failure) -> None:
        """Stop working on a partition and note its failure; the caller gives back the lease."""
        self._summary.failed[key] = self._redaction.text(reason)
        self._failed(key, self._summary.failed[key], failure)
        self._read_until.pop(key, None)
        self._files.forget(key)

    @override
    def park(self, key: str, reason: str, progress: dict[str, Any], failure: Failure) -> None:
        self.stop_work(key, reason, failure)
        self._coordinator.leases.park(key, self._redaction.text(reason), progress)

    @override
    def fail(self, key: str, reason: str, failure: Failure) -> None:
        with self._stopping(key, reason, failure):
            self._coordinator.leases.fail(key, self._redaction.text(reason))

    def give_back(self, key: str, reason: str, failure: Failure) -> None:
        """Give back a partition that must wait; this counts as no failure of the partition."""
        with self._stopping(key, reason, failure):
            self._coordinator.leases.give_up(key, after=WAITING)

    @contextmanager
    def _stopping(self, key: str, reason: str, failure: Failure) -> Iterator[None]:
        """Stop working on a partition; the block gives back its lease."""
        self.stop_work(key, reason, failure)
        try:
            yield
        except LOST as error:  # it has a new owner, which may have swept its files
            log.warning("%s", error)
            del self._summary.failed[key]
            self._summary.lost.append(key)

    def check_lease(self, key: str) -> None:
        """Check in the store whether the lease is lost, after a write or a set indicated that."""
        with suppress(*LOST):
            self._coordinator.leases.renew(key)

    def give_back_idle(self, last_known: Callable[[str], LandedProgress | None], besides: Collection[str] = ()) -> int:
        """Give back the partitions that have nothing landed; return their number.

        :param last_known: see `Reading.last_known`.
        :param besides: the partitions in delivery, which are kept.
        """
        last: dict[str, Mapping[str, Any] | None] = {}
        for key, progress in list(self.all()):
            if not progress.landed and key not in besides:
                with suppress(*LOST):
                    known = last_known(key)
                    last[key] = None if known is None else known.to_mapping()
        ended = self._coordinator.leases.give_up_each(last)
        given_back = [key for key, error in ended.items() if error is None]
        for key in given_back:
            del self._read_until[key]
            self._files.forget(key)
            if last[key] is not None:
                self._summary.note_progress(key)
        if (raised := next((e for e in ended.values() if e is not None and not isinstance(e, LOST)), None)) is not None:
            raise raised
        self.notice_gone()
        return len(given_back)

    def leave_pending(self) -> int:
        """Keep the leases of partitions that only wait for acknowledgments by others; return the number."""
        waiting = 0
        for key, partition in self._coordinator.leases.held.items():
            with suppress(*LOST, ProgressError, SourceError):
                progress = progress_of(partition)
                self._summary.note_pending(self._sets.pending_of(progress))
                if (until := self._sets.waits_until(progress)) is not None:
                    self._coordinator.leases.await_acknowledgment(key, until - self._coordinator.clock.now())
                    self._read_until.pop(key, None)
                    waiting += 1
        return waiting


class PartitionAcquisition:
    """The acquisition of partitions by one job.

    :param coordinator: the source's coordinator.
    :param balancer: decides which leases the job should have.
    :param partitions: the partitions that the job works on.
    :param reading: decides which partitions the job can work on.
    :param files: the landed files.
    :param delivery: sweeps what previous owners prepared in the sinks.
    """

    def __init__(
        self,
        coordinator: SourceCoordinator,
        balancer: Balancer,
        partitions: ActivePartitions,
        reading: Reading,
        files: LandedFiles,
        delivery: Delivery,
    ) -> None:
        self._coordinator = coordinator
        self._balancer = balancer
        self._partitions = partitions
        self._reading = reading
        self._files = files
        self._delivery = delivery

    def acquire(self) -> bool:
        """Acquire the leases that this job should have; return whether it acquired some, or expects to soon."""
        acquired = self._balancer.rebalance()
        # Not only the leases that were acquired just now: an earlier response may have been lost in a store outage.
        started_partitions: dict[str, Partition] = {}
        for key, partition in self._coordinator.leases.held.items():
            if key not in self._partitions:
                with self._starting(key):
                    partition.with_progress(partition.progress)  # raises if what is stored is unreadable
                    progress_of(partition)
                    if self._reading.may_start(partition):
                        started_partitions[key] = partition
        for key in self._take_over(started_partitions):
            self._partitions.begin(key)
        return bool(acquired) or self._balancer.is_waiting

    def _take_over(self, partitions: Mapping[str, Partition]) -> list[str]:
        """Remove what previous owners of partitions left unfinished; return the keys of the partitions taken over."""
        landed = {key: progress_of(partition).landed for key, partition in partitions.items()}
        swept: dict[str, int] = {}
        for key, result in self._files.take_over(landed).items():
            with self._starting(key):
                if isinstance(result, Exception):
                    raise result
                swept[key] = result
        taken: list[str] = []
        for keys, error in by_halves(list(swept), self._sweep, "sweep of what previous owners prepared"):
            for key in keys:
                with self._starting(key):
                    if error is not None:
                        raise error
                    taken.append(key)
        for key in taken:
            if swept[key] or landed[key]:
                log.info(
                    "partition taken over: partition=%s files swept=%d, batches landed and not delivered=%d",
                    key, swept[key], len(landed[key]),
                )  # fmt: skip
        return taken

    def _sweep(self, keys: Sequence[str]) -> None:
        leases = self._coordinator.leases
        self._delivery.sweep({self._files.folder(key): leases.fencing_token(key) for key in keys})

    @contextmanager
    def _starting(self, key: str) -> Iterator[None]:
        """Fail only the partition that cannot be started, so that it does not delay the others."""
        try:
            yield
        except LOST as error:
            log.warning("partition %s is left to its next owner: %s", key, error)
            self._partitions.check_lease(key)
        except StoreUnavailableError:
            raise
        except Exception as error:  # an error of a partition's files fails only that partition
            self._partitions.fail(key, failure_text(error), Failure.of(error))
