"""The `JobSource` of sources that are divided into items."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.item_kind import reader_of
from airflow_provider_coordination.sources.items import Checking, reads_at_once
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark.item_landing import land_items
from airflow_provider_coordination.spark.item_reading import ItemReading
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.layout import ITEM_RECORDS, RecordLayout
from airflow_provider_coordination.spark.reading import MakeReading

DEFAULT_LEASES = 64
"""The default number of partitions of items that a job holds at a time: what one round reads."""


class ItemSource:
    """The items that a job reads; a `JobSource`."""

    default_leases = DEFAULT_LEASES
    worker_imports = (land_items.__module__,)
    stop_at = None
    is_bounded = False

    def __init__(self, reads: ReadsSettings) -> None:
        self._reads = reads

    @property
    def name(self) -> str:
        """See `JobSource.name`."""
        return self._reads.kind

    @property
    def layout(self) -> RecordLayout:
        """See `JobSource.layout`."""
        return ITEM_RECORDS

    def opened(self, coordinator: SourceCoordinator) -> Callable[[JobSpark], MakeReading]:
        """See `JobSource.opened`: the reader is made."""
        kind, reader = self._reads.kind, reader_of(self._reads)
        reads_at_once(reader)  # raises for an invalid reader, before any lease is acquired

        def make(spark: JobSpark) -> MakeReading:
            if isinstance(reader, Checking):
                reader.check(spark.session)
            return partial(ItemReading, spark, kind, reader)

        return make
