"""Delivers the recorded batches of one job: prepared, confirmed in the store, committed, released."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentSet
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionNotOwnedError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.kinds import progress_of
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    Delivery,
    DeliveryError,
    MissingColumnError,
    Prepared,
    SinkUnavailableError,
    Stage,
    by_halves,
)
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.job_sets import JobSets
from airflow_provider_coordination.spark.landed_files import LandedFiles
from airflow_provider_coordination.spark.outages import translating_outages
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER
from airflow_provider_coordination.spark.telemetry import NoSpans, Spans

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
    """Delivers the batches of one job.

    :param coordinator: the source's coordinator, for the job's owner.
    :param sets: the acknowledgment sets of the job.
    :param delivery: delivers batches to sinks.
    :param files: the job's landed files.
    :param observer: called with the phases `delivering` and `delivered`.
    :param committed: called when a sink's commit returns, with the sink's name, and each batch with its number of
        records in the sink.
    :param spans: makes the spans of batches.
    """

    def __init__(
        self,
        coordinator: SourceCoordinator,
        sets: JobSets,
        delivery: Delivery,
        files: LandedFiles,
        observer: Callable[[str], None],
        committed: Callable[[str, Sequence[tuple[LandedBatch, int]]], None],
        spans: Spans | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._delivery = delivery
        self._files = files
        self._observer = observer
        self._committed = committed
        self._spans = spans or NoSpans()
        self._sets = sets
        self._has_prepared = False

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
        for key, waiting in self._sets.of_each(batches).items():
            due = waiting if isinstance(waiting, Exception) else self._due(key, batches[key], waiting)
            if isinstance(due, _DueBatch):
                together.setdefault(due.sinks, []).append(due)
            else:
                delivered[key] = due
        for dues in together.values():
            while dues and not _is_store_unavailable(delivered):  # the rest waits until the store is available again
                dues = self._deliver(dues, delivered)
        return delivered

    def _due(self, key: str, batch: LandedBatch, waiting: AcknowledgmentSet) -> _DueBatch | Exception | None:
        """Return what is left to deliver of a batch; None if there is nothing; or the error of its partition."""
        sinks = self._sets.owing(waiting)
        if not sinks:
            return None
        try:
            return _DueBatch(acknowledgment_set=waiting, attempt=self._attempt(key, batch, waiting), sinks=sinks)
        except Exception as error:  # an error of one partition fails only that partition
            return error

    def _attempt(self, key: str, batch: LandedBatch, waiting: AcknowledgmentSet) -> Attempt:
        leased = self._coordinator.leases.leased(key)
        return Attempt(
            batch=_waiting_batch(leased, batch.batch_id, waiting.set_id),
            file=self._files.location(key, batch),
            folder=self._files.folder(key),
            set_id=waiting.set_id,
            fencing_token=self._coordinator.leases.fencing_token(key),
            source=self._coordinator.view.source_identifier,
            partition_key=key,
            owner=self._coordinator.owner,
            progress=progress_of(leased).durable_fields,
        )

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
                    {}
                    if _is_store_unavailable(delivered)
                    else self._commit_to(sinks, going, prepared, delivered, unavailable)
                )
            except Exception:
                self._discard(dues)
                raise
            self._discard(dues)
            again = [due for due in dues if due.key in affected or _is_shared_file_gone(due, delivered.get(due.key))]
            left_over = {due.key for due in again}
            ended = [due for due in dues if due.key not in left_over]
            if not _is_store_unavailable(delivered):
                going = [due for due in _not_failed(ended, delivered) if taken[due.key]]
                self._acknowledge(going, taken, prepared, delivered)
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
        self,
        dues: Sequence[_DueBatch],
        taken: Mapping[str, Sequence[str]],
        prepared: Mapping[str, Prepared],
        delivered: dict[str, Delivered],
    ) -> None:
        """Release the references of the sinks that have taken batches; an error becomes the batch's result."""
        if not dues:
            return
        self._observer("delivered")
        with self._spans.span("acknowledge", batches=len(dues), sinks=len(dues[0].sinks)):
            facts = {due.acknowledgment_set.set_id: _facts(prepared[due.key]) for due in dues}
            ended = self._sets.release_each([(due.acknowledgment_set, taken[due.key]) for due in dues], facts)
        delivered |= {due.key: error for due, error in zip(dues, ended, strict=True) if isinstance(error, Exception)}

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
        prepared: Mapping[str, Prepared],
        delivered: dict[str, Delivered],
        unavailable: dict[str, SinkUnavailableError],
    ) -> dict[str, list[str]]:
        """Make batches visible in sinks; return, by partition, the sinks that took its batch."""
        taken: dict[str, list[str]] = {due.key: [] for due in dues}
        for sink in sinks:
            left = [] if sink in unavailable else _not_failed(dues, delivered)
            for some, error in by_halves(left, partial(self._commit, sink, prepared), f"commit to sink {sink!r}"):
                for due in some:
                    if error is None:
                        taken[due.key].append(sink)
                    elif isinstance(error, SinkUnavailableError):
                        unavailable[sink] = error
                    else:
                        delivered[due.key] = error
        return taken

    def _commit(self, sink: str, prepared: Mapping[str, Prepared], dues: Sequence[_DueBatch]) -> None:
        attempts = [
            replace(due.attempt, rows=prepared[due.key].records.get(sink), left_out=dict(prepared[due.key].left_out))
            for due in dues
        ]
        with translating_outages(sink):
            self._delivery.commit(sink, attempts)
        self._committed(sink, [(due.attempt.batch, prepared[due.key].records.get(sink, 0)) for due in dues])

    def _discard(self, dues: Sequence[_DueBatch]) -> None:
        with suppress(OSError, DeliveryError):  # the next owner sweeps what remains
            self._delivery.discard([due.attempt for due in dues])


def _facts(prepared: Prepared) -> dict[str, int]:
    """Return what the preparation of a batch shows of its records, as far as it is not nothing."""
    facts = {"dead_letters": prepared.records.get(DEAD_LETTER, 0), "late": prepared.left_out.get(Stage.TIME, 0)}
    return {name: count for name, count in facts.items() if count}


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
