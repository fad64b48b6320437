"""The partitions that one job has at work: what it holds, what becomes of each, and what is told of it at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    CoordinationError,
    ProgressChangedError,
    ProgressError,
    SourceError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.handover import Balancer
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.batches import progress_of
from airflow_provider_coordination.sources.landed import LandedBatch, LandedProgress
from airflow_provider_coordination.spark.deliveries import Deliveries
from airflow_provider_coordination.spark.landed_files import LandedFiles
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.summary import Summary

log = logging.getLogger(__name__)

Landing = Callable[[], LandedProgress]
"""Makes the progress of a partition with one more landed batch."""

SETS_NAMED = 1000
"""How many pending sets a summary names: as many as Airflow maps over by default."""


class Work:
    """The partitions that one job has at work.

    :param settings: the job's.
    :param coordinator: of the source, for the job's owner.
    :param balancer: says which leases the job should have.
    :param deliveries: what of them is in delivery.
    :param files: what is landed of them.
    :param clock: where the time comes from.
    """

    def __init__(
        self,
        settings: IngestSettings,
        coordinator: SourceCoordinator,
        balancer: Balancer,
        deliveries: Deliveries,
        files: LandedFiles,
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.coordinator = coordinator
        self.balancer = balancer
        self.deliveries = deliveries
        self.clock = clock
        self.redaction = Redaction(settings)
        self.files = files
        self.summary = Summary()
        self.read_until: dict[str, datetime | None] = {}
        """What is at work, and up to when it is read."""
        self.when_delivered: Callable[[Partition], None] = lambda partition: None
        """Told of each partition that is seen to be finished."""

    def __contains__(self, key: str) -> bool:
        """Tell whether a partition is at work."""
        return key in self.read_until

    def all(self) -> Iterator[tuple[str, LandedProgress]]:
        """Yield the partitions to work on; one whose progress somebody made unreadable fails."""
        for key, partition in self.coordinator.held.items():
            if key in self.read_until and self.coordinator.owns(key):
                try:
                    progress = progress_of(partition)
                except (ProgressError, SourceError) as error:
                    self.fail(key, str(error))
                    continue
                yield key, progress

    def progress(self, key: str) -> LandedProgress:
        """Return the progress of a partition.

        :raises PartitionNotOwnedError: if its lease is lost.
        """
        return progress_of(self.coordinator.leased(key))

    def is_paused(self, key: str) -> bool:
        """Tell whether a partition is read further only once others have acknowledged what is landed."""
        held = self.coordinator.held.get(key)
        if held is None:
            return False
        progress = progress_of(held)
        return bool(self.deliveries.pending_of(progress)) and not self.deliveries.may_land(progress)

    def record(self, key: str, batch: LandedBatch, landing: Landing) -> None:
        """Record a landed batch, which fixes it.

        :param landing: makes the partition's progress with the batch in it out of that without; asked again where
            somebody acknowledged an earlier batch meanwhile.
        """
        try:
            self.deliveries.begin(key, batch, landing())
        except ProgressChangedError:  # what is landed ends as before
            self.deliveries.begin(key, batch, landing())
        if batch.file:
            self.files.add(key, batch.file)
        else:
            self.read_until[key] = batch.read_until
        self.summary.records_landed += batch.records

    @contextmanager
    def recording(self, key: str) -> Iterator[None]:
        """Let a partition whose landed batch cannot be recorded end no round: it is dropped, or the partition fails."""
        try:
            yield
        except LOST as error:
            log.warning("what was landed is dropped: %s", error)
        except StoreUnavailableError:
            raise
        except CoordinationError as error:  # such as a progress that would be too large
            self.fail(key, str(error))

    def hand_over(self) -> None:
        """Hand over what other jobs ask for and has nothing left to deliver; the rest once its time is up."""
        leaving = self.balancer.leaving
        for key, progress in list(self.all()):
            if key in leaving and self.deliveries.next_of(progress) is None:
                self.balancer.hand_over(key)
        self.notice_gone()

    def hear_of_others(self) -> None:
        """Read the partitions anew whose batches others acknowledge."""
        for key, progress in list(self.all()):
            if self.deliveries.pending_of(progress):
                with suppress(*LOST):
                    self.coordinator.refresh(key)
        self.notice_gone()

    def notice_delivered(self, key: str) -> None:
        """Delete the landed files that are not needed any more."""
        if (held := self.coordinator.held.get(key)) is None:
            self.notice_gone()
            return
        self.files.keep(key, progress_of(held).landed)

    def notice_gone(self) -> None:
        """Find out what became of partitions that are held no more: an acknowledgment set ended them, or others did."""
        for key in self.read_until.keys() - self.coordinator.held.keys():
            del self.read_until[key]
            if self.balancer.was_handed_over(key):
                self.summary.handed_over.append(key)
            else:
                self._note_end(key, self.coordinator.get(key))
            self.files.forget(key)

    def park(self, key: str, reason: str, progress: dict[str, Any]) -> None:
        """Put a partition aside for a person to decide about: trying again cannot help."""
        self.put_down(key, reason)
        self.coordinator.park(key, self.redaction.text(reason), progress)

    def put_down(self, key: str, reason: str) -> None:
        """Work no further on a partition; giving it back is another matter."""
        reason = self.redaction.text(reason)
        self.summary.failed[key] = reason
        self.read_until.pop(key, None)
        self.files.forget(key)

    def fail(self, key: str, reason: str) -> None:
        """Give a partition back, with its landed batches; the retry policy says when it is tried again."""
        self.put_down(key, reason)
        try:
            self.coordinator.fail(key, self.redaction.text(reason))
        except LOST as error:  # it is somebody else's, who may have swept its files
            log.warning("%s", error)
            del self.summary.failed[key]
            self.summary.lost.append(key)

    def doubt(self, key: str) -> None:
        """Find out whether the lease is lost, where a write or a set said so."""
        with suppress(*LOST):
            self.coordinator.renew(key)

    def await_others(self) -> int:
        """Leave partitions leased whose batches only others have yet to acknowledge; return how many."""
        awaiting = 0
        for key, partition in self.coordinator.held.items():
            with suppress(*LOST, ProgressError, SourceError):
                progress = progress_of(partition)
                pending = self.deliveries.pending_of(progress)
                self.summary.pending_acknowledgments += len(pending)
                named = SETS_NAMED - len(self.summary.acknowledgment_sets)
                self.summary.acknowledgment_sets += pending[:named]
                if (until := self.deliveries.waits_until(progress)) is not None:
                    self.coordinator.await_acknowledgment(key, until - self.clock.now())
                    self.read_until.pop(key, None)
                    awaiting += 1
        return awaiting

    def note_resting(self) -> None:
        """Tell which partitions of the source rest after failures, or are parked."""
        for partition in self.coordinator.partitions(PartitionStatus.CLOSED):
            if not partition.attempts:
                continue
            self.summary.resting.append(partition.partition_key)
            log.warning(
                "not delivered: partition %s %s after %d failures, the last one: %s",
                partition.partition_key,
                "is parked" if partition.is_parked else f"rests until {partition.reopen_at:%Y-%m-%dT%H:%M:%SZ}",
                partition.attempts, partition.last_error,
            )  # fmt: skip

    def renewed_every(self) -> timedelta:
        """Return how often a lease is renewed."""
        return self.settings.ownership_timeout / 3

    def _note_end(self, key: str, stored: Partition | None) -> None:
        if stored is not None and stored.status is PartitionStatus.COMPLETED:
            self.summary.completed.append(key)
            self.files.delete(key)
            self.when_delivered(stored)
        elif stored is not None and stored.owner is None and stored.attempts:
            self.summary.failed[key] = str(stored.last_error)
        elif stored is not None and stored.status is PartitionStatus.CLOSED:
            self.summary.closed.append(key)
            # Only what this job landed: somebody else may be reading the partition anew already.
            self.files.keep(key, progress_of(stored).landed)
        else:
            self.summary.lost.append(key)
