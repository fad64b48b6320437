"""Kinesis streams as the source of a job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.kinesis.client import KinesisClient, kinesis_client
from airflow_provider_coordination.sources.kinesis.fan_out import ensure_consumer
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.sources.kinesis.shards import StreamDescription, describe_stream
from airflow_provider_coordination.sources.kinesis.sync import ShardSync
from airflow_provider_coordination.spark.job_source import JobSource
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.kinesis.landing import land
from airflow_provider_coordination.spark.kinesis.layout import SHARD_RECORDS
from airflow_provider_coordination.spark.kinesis.reading import ShardReading
from airflow_provider_coordination.spark.kinesis.streams import Streams
from airflow_provider_coordination.spark.layout import RecordLayout
from airflow_provider_coordination.spark.reading import MakeReading

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DESCRIBE_INTERVAL = timedelta(minutes=1)
"""How often a job that leaves shard sync to others checks whether its streams still exist."""


class KinesisSource(JobSource):
    """The streams that a job reads; a `JobSource`."""

    default_leases = None
    worker_imports = (land.__module__, "boto3", "botocore.client")

    def __init__(self, reads: ReadsSettings) -> None:
        self._settings = KinesisStreams.from_mapping(reads.settings)

    @property
    @override
    def name(self) -> str:
        return f"streams {', '.join(self._settings.streams)}"

    @property
    @override
    def layout(self) -> RecordLayout:
        return SHARD_RECORDS

    @override
    def columns(self, spark: object) -> StructType | None:
        return self.layout.columns

    @property
    @override
    def stop_at(self) -> datetime | None:
        return self._settings.stop_at

    @property
    @override
    def is_bounded(self) -> bool:
        return self._settings.bounds is not None

    def opened(self, coordinator: SourceCoordinator) -> Callable[[JobSpark], MakeReading]:
        """See `JobSource.opened`: the streams are described."""
        streams = self._streams(kinesis_client(self._settings.aws), coordinator)
        return lambda spark: partial(ShardReading, spark.context, self._settings, streams)

    def _streams(self, client: KinesisClient, coordinator: SourceCoordinator) -> Streams:
        settings = self._settings
        sync = ShardSync(client, coordinator, on_data_loss=settings.on_data_loss)
        return Streams(
            settings.streams,
            partial(describe_stream, client),
            sync=partial(sync.run, settings.streams, forced=False) if settings.syncs_every else None,
            interval=settings.syncs_every or DESCRIBE_INTERVAL,
            register=partial(_register, client, settings.consumer_name) if settings.consumer_name else None,
        )


def _register(client: KinesisClient, consumer_name: str, stream: StreamDescription) -> str:
    """Register the consumer as which a stream is read by enhanced fan-out; return its ARN."""
    return ensure_consumer(client, stream.name, stream.arn, consumer_name)
