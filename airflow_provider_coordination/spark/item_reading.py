"""Reading partitions of items in rounds: one Spark action reads all partitions of a job, each to batches of its own."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.items import FrameReader, ItemReader, PartitionProgress, reads_at_once
from airflow_provider_coordination.sources.kinds import ReadsSettings, reader_of
from airflow_provider_coordination.sources.landed import Failure
from airflow_provider_coordination.spark.frame_landing import land_frames, landed_columns
from airflow_provider_coordination.spark.item_file import ItemPlan
from airflow_provider_coordination.spark.item_landing import MAX_FAILED_ITEMS, LandedItems, land_items
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.layout import ITEM_RECORDS, RecordLayout
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.spark.reading import (
    JobSource,
    KindPartitions,
    MakeReading,
    PartitionsToRead,
    Reading,
    RoundRead,
)
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.shared_locations import SharedLocations
from airflow_provider_coordination.spark.slots import LandingOptions, check_locations
from airflow_provider_coordination.spark.spark_errors import error_text

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


class ItemReading(Reading):
    """Reads partitions of items; a `Reading`.

    :param spark: the job's Spark.
    :param kind: the kind of source; partitions of other kinds are refused.
    :param reader: reads the items.
    :param settings: the job's settings.
    :param coordinator: the source's coordinator, for the job's owner.
    :param partitions: the partitions that the job works on.
    :param summary: the job's summary.
    """

    def __init__(
        self,
        spark: JobSpark,
        kind: str,
        reader: ItemReader | FrameReader,
        settings: IngestSettings,
        coordinator: SourceCoordinator,
        partitions: PartitionsToRead,
        summary: Summary,
    ) -> None:
        self._spark = spark
        self._kind = kind
        self._reader = reader
        self._coordinator = coordinator
        self._partitions = partitions
        self._summary = summary
        self._redaction = Redaction(settings)
        self._options = LandingOptions(
            root=settings.landing_path,
            access=settings.access,
            seconds=settings.rounds.round_duration.total_seconds(),
            max_bytes=settings.rounds.max_batch_bytes,
            slot_memory_bytes=settings.rounds.slot_memory_bytes,
        )
        self._locations = SharedLocations(settings.worker_roots, settings.access)
        self._item_partitions = KindPartitions(partitions, coordinator.leases, PartitionProgress)

    @property
    @override
    def at_stop(self) -> set[str]:
        return set()

    @property
    @override
    def expects_more(self) -> bool:
        return False

    @override
    def refresh_source(self) -> None:
        self._item_partitions.forget_ended()

    @override
    def may_start(self, partition: Partition) -> bool:
        progress = PartitionProgress.from_mapping(partition.progress)
        if progress.kind != self._kind:
            raise SourceError(
                f"partition {partition.partition_key!r} is of kind {progress.kind!r}, and this job reads "
                f"{self._kind!r}: use a separate source for each kind"
            )
        if progress.landed or progress.checkpoint:
            return True
        key = partition.partition_key
        try:
            wait = self._reader.waits_for(progress.items)
        except SourceError:
            raise
        except Exception as error:  # a user's reader may raise anything
            raise SourceError(f"partition {key!r}: the reader's condition could not be checked: {error!r}") from error
        if wait is None or progress.waited >= wait.max_retries:
            return True
        log.info(
            "partition %s waits for its condition, wait %d of at most %d: %s",
            key, progress.waited + 1, wait.max_retries, wait.reason,
        )  # fmt: skip
        with suppress(*LOST):
            waiting = replace(progress, waited=progress.waited + 1)
            self._coordinator.leases.close(key, wait.retry_after, progress=waiting.to_mapping())
            self._summary.closed.append(key)
        return False

    @override
    def land(self, *, leave_slot: bool, max_seconds: float = math.inf) -> list[LandedItems]:
        plans = [self._plan(*each) for each in self._item_partitions.to_land()]
        if not plans:
            return []
        options = replace(self._options, leave_slot=leave_slot, seconds=min(self._options.seconds, max_seconds))
        if isinstance(self._reader, FrameReader):
            check_locations(self._spark.context, self._locations)
            return land_frames(self._spark.session, plans, self._reader, options)
        return land_items(self._spark, plans, self._reader, options, self._locations)

    def _plan(self, key: str, progress: PartitionProgress, fencing_token: int) -> ItemPlan:
        return ItemPlan(
            source_identifier=self._coordinator.view.source_identifier,
            partition_key=key,
            kind=progress.kind,
            fencing_token=fencing_token,
            items=progress.items,
            start=progress.landed_position,
        )

    @override
    def record(self, rows: Sequence[LandedItems]) -> RoundRead:
        held = max((row.memory_bytes for row in rows), default=0)
        self._summary.slot_memory_bytes = max(self._summary.slot_memory_bytes, held)
        for row in rows:
            with self._partitions.recording(row.partition_key):
                self._record(self._without_secrets(row))
        read = [row for row in rows if row.is_batch]
        return RoundRead(
            partitions=len(read),
            bytes=sum(row.bytes for row in read),
            items=sum(row.items for row in read),
            gone=sum(row.gone_count for row in read),
            set_aside=sum(len(row.failed) for row in read),
        )

    def _without_secrets(self, row: LandedItems) -> LandedItems:
        """Return a row without secrets: a reader's error may contain its credentials."""
        if row.error is None and not row.failed:
            return row
        hide = self._redaction.text
        return replace(
            row,
            error=None if row.error is None else hide(row.error),
            failed=tuple(replace(failed, reason=hide(failed.reason)) for failed in row.failed),
        )

    def _record(self, row: LandedItems) -> None:
        key = row.partition_key
        if row.error is not None:
            self._cannot_read(row)
            return
        if not row.is_batch:
            return
        self._item_partitions.note_readable(key)
        progress = self._item_partitions.progress(key)
        if len(progress.failed) + len(row.failed) > MAX_FAILED_ITEMS:
            reasons = [*progress.failed, *row.failed]
            reason = f"{len(reasons)} of its items cannot be read; the first: {reasons[0].reason}"
            self._partitions.fail(key, reason, Failure("UnreadableItems"))
            return
        self._item_partitions.record(
            row, lambda progress, batch: progress.landing(batch, row.failed), recorded=lambda: self._note(row)
        )

    def _note(self, row: LandedItems) -> None:
        """Note the items of a recorded batch that were skipped."""
        self._summary.gone += row.gone_count
        self._summary.set_aside += len(row.failed)
        if row.gone_count:
            log.warning(
                "partition %s: %d items were gone before they were read: %s%s",
                row.partition_key, row.gone_count, ", ".join(row.gone),
                ", ..." if row.gone_count > len(row.gone) else "",
            )  # fmt: skip
        for failed in row.failed:
            log.error(
                "partition %s: item %d cannot be read; it becomes a separate partition once the other items are "
                "delivered: %s",
                row.partition_key, failed.item, failed.reason,
            )  # fmt: skip

    def _cannot_read(self, row: LandedItems) -> None:
        key, reason = row.partition_key, str(row.error)
        exhausted = self._item_partitions.count_unreadable(key)
        if row.is_temporary and not exhausted:
            log.warning("partition %s cannot be read; the next round tries again: %s", key, reason)
        else:
            self._partitions.fail(key, reason, row.failure)

    @override
    def completed(self, partition: Partition) -> None:
        try:  # without the items that were set aside
            self._reader.delivered(PartitionProgress.from_mapping(partition.progress).items_read)
        except Exception as error:  # a user's reader may raise anything, and the data is delivered
            log.warning(
                "partition %s: its data is delivered, but the reader's last step, such as the deletion of the items, "
                "failed; the next run of the supplier repeats it: %s",
                partition.partition_key, error,
            )  # fmt: skip

    @override
    def end_round(self) -> None:
        pass

    @override
    def last_known(self, key: str) -> None:
        pass  # the stored progress is complete


DEFAULT_LEASES = 64
"""The default number of partitions of items that a job holds at a time: what one round reads."""


class ItemSource(JobSource):
    """The items that a job reads; a `JobSource`."""

    default_leases = DEFAULT_LEASES
    worker_imports = (land_items.__module__,)
    stop_at = None
    is_bounded = False

    def __init__(self, reads: ReadsSettings) -> None:
        self._reads = reads

    @cached_property
    def _reader(self) -> ItemReader | FrameReader:
        return reader_of(self._reads)

    @property
    @override
    def name(self) -> str:
        return self._reads.kind

    @property
    @override
    def layout(self) -> RecordLayout:
        return ITEM_RECORDS

    @override
    def columns(self, spark: JobSpark) -> StructType | None:
        reader = self._reader
        try:
            known = reader.columns(spark.session)
        except Exception as error:  # reading reports it, and waits for a source that is unavailable
            log.warning("the columns of %s are not known before reading: %s", self._reads.kind, error_text(error))
            return None
        return None if known is None else landed_columns(known)

    @override
    def opened(self, coordinator: SourceCoordinator) -> Callable[[JobSpark], MakeReading]:
        kind, reader = self._reads.kind, self._reader
        reads_at_once(reader)  # raises for an invalid reader, before any lease is acquired

        def make(spark: JobSpark) -> MakeReading:
            reader.check(spark.session)
            return partial(ItemReading, spark, kind, reader)

        return make
