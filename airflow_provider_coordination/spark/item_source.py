"""The `JobSource` of sources that are divided into items."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import Checking, KnowsColumns, reads_at_once
from airflow_provider_coordination.sources.kinds import ReadsSettings, reader_of
from airflow_provider_coordination.spark.frame_landing import landed_columns
from airflow_provider_coordination.spark.item_landing import land_items
from airflow_provider_coordination.spark.item_reading import ItemReading
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.layout import ITEM_RECORDS, RecordLayout
from airflow_provider_coordination.spark.reading import JobSource, MakeReading
from airflow_provider_coordination.spark.spark_errors import error_text

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

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
        reader = reader_of(self._reads)
        if not isinstance(reader, KnowsColumns):
            return None
        try:
            known = reader.columns(spark.session)
        except Exception as error:  # reading reports it, and waits for a source that is unavailable
            log.warning("the columns of %s are not known before reading: %s", self._reads.kind, error_text(error))
            return None
        return None if known is None else landed_columns(known)

    def opened(self, coordinator: SourceCoordinator) -> Callable[[JobSpark], MakeReading]:
        """See `JobSource.opened`: the reader is made."""
        kind, reader = self._reads.kind, reader_of(self._reads)
        reads_at_once(reader)  # raises for an invalid reader, before any lease is acquired

        def make(spark: JobSpark) -> MakeReading:
            if isinstance(reader, Checking):
                reader.check(spark.session)
            return partial(ItemReading, spark, kind, reader)

        return make
