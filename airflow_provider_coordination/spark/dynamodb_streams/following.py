"""Reading a table that is followed: the partitions of its history, and the shards of its stream once that is delivered.

Both have the same columns, so they are delivered together. A shard waits as a child waits for its parents.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.dynamodb.kind import EPOCH, KIND_NAME
from airflow_provider_coordination.sources.dynamodb_streams.history import HistoryProgress, HistoryReader
from airflow_provider_coordination.sources.dynamodb_streams.settings import DynamoDBStreams
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.kinds import progress_of
from airflow_provider_coordination.sources.kinesis.positions import is_sequence_number
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, parse_partition_key
from airflow_provider_coordination.sources.landed import LandedProgress, LandedRow
from airflow_provider_coordination.spark.item_file import ItemPlan
from airflow_provider_coordination.spark.item_landing import LandedItems
from airflow_provider_coordination.spark.item_reading import ItemReading
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow
from airflow_provider_coordination.spark.kinesis.reading import PARENT_POLL_INTERVAL, ShardReading
from airflow_provider_coordination.spark.kinesis.shard_format import ShardFormat
from airflow_provider_coordination.spark.kinesis.streams import Streams
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.spark.reading import PartitionsToRead, Reading, RoundRead
from airflow_provider_coordination.spark.settings import IngestSettings

log = logging.getLogger(__name__)


class WaitingShards(ShardReading):
    """Reads shards, each once the history of its stream is delivered."""

    def __init__(self, *details: Any, **more: Any) -> None:
        super().__init__(*details, **more)
        self._history = HistoryProgress(self._coordinator.view)

    @override
    def _must_wait(self, partition: Partition, progress: ShardProgress) -> bool:
        if is_sequence_number(progress.landed_position):
            return False
        key = partition.partition_key
        unread = self._history.unread(progress.stream, parse_partition_key(key).creation_epoch, progress.epoch)
        if unread is None:
            return super()._must_wait(partition, progress)
        log.info("partition %s waits for the history: %s is not delivered", key, unread.partition_key)
        until = self._clock.now() + PARENT_POLL_INTERVAL
        if unread.status is not PartitionStatus.CLOSED:  # otherwise it failed, and the job need not wait for a retry
            self._settling[key] = until
        self._put_back(key, until)
        return True


class ItemsOfHistory(ItemReading):
    """Reads the partitions of a history. After a reset, their items are later than all changes before it."""

    @override
    def _plan(self, key: str, progress: PartitionProgress, fencing_token: int) -> ItemPlan:
        plan = super()._plan(key, progress, fencing_token)
        return replace(plan, items=tuple({**item, EPOCH: max(item[EPOCH], progress.epoch)} for item in plan.items))


class FollowedReading(Reading):
    """How a job reads a table that is followed; a `Reading`.

    :param spark: the job's Spark.
    :param reads: the table.
    :param streams: its streams.
    :param format: what the changes are.
    :param settings: the settings of the job.
    :param coordinator: the coordinator of the source, for the job's owner.
    :param partitions: the partitions of the job.
    :param summary: the summary of the job.
    """

    def __init__(
        self,
        spark: JobSpark,
        reads: DynamoDBStreams,
        streams: Streams,
        format: ShardFormat,
        settings: IngestSettings,
        coordinator: SourceCoordinator,
        partitions: PartitionsToRead,
        summary: Summary,
    ) -> None:
        assert reads.items is not None
        of_job = (settings, coordinator, partitions, summary)
        self._items = ItemsOfHistory(spark, KIND_NAME, HistoryReader(reads.items), *of_job)
        self._shards = WaitingShards(
            spark.context, reads, streams, *of_job, format=format, slots=spark.slots, is_shared=spark.is_shared
        )

    def _of(self, progress: LandedProgress) -> Reading:
        return self._shards if isinstance(progress, ShardProgress) else self._items

    @property
    @override
    def at_stop(self) -> set[str]:
        return self._shards.at_stop

    @property
    @override
    def expects_more(self) -> bool:
        return self._shards.expects_more

    @override
    def refresh_source(self) -> None:
        self._items.refresh_source()
        self._shards.refresh_source()

    @override
    def may_start(self, partition: Partition) -> bool:
        return self._of(progress_of(partition)).may_start(partition)

    @override
    def land(self, *, leave_slot: bool, max_seconds: float = math.inf) -> list[LandedRow]:
        return [
            *self._items.land(leave_slot=leave_slot, max_seconds=max_seconds),
            *self._shards.land(leave_slot=leave_slot, max_seconds=max_seconds),
        ]

    @override
    def record(self, rows: Sequence[LandedRow]) -> RoundRead:
        items = self._items.record([row for row in rows if isinstance(row, LandedItems)])
        shards = self._shards.record([row for row in rows if isinstance(row, LandedShardRow)])
        return replace(
            shards,
            partitions=items.partitions + shards.partitions,
            bytes=items.bytes + shards.bytes,
            items=items.items,
            gone=items.gone,
            set_aside=items.set_aside,
        )

    @override
    def completed(self, partition: Partition) -> None:
        self._of(progress_of(partition)).completed(partition)

    @override
    def end_round(self) -> None:
        self._items.end_round()
        self._shards.end_round()

    @override
    def last_known(self, key: str) -> LandedProgress | None:
        return self._shards.last_known(key)  # of a history, the stored progress is complete, and no time is known
