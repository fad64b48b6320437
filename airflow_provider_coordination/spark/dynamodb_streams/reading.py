"""Reading the changes of DynamoDB tables in rounds: what the records of their shards are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.dynamodb_streams.changes import CHANGE_COLUMNS, ChangeRecords, change_order
from airflow_provider_coordination.sources.dynamodb_streams.client import StreamsClient, shared_reading_client
from airflow_provider_coordination.sources.dynamodb_streams.settings import DynamoDBStreams
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.kinesis.aggregation import HashKeyRange
from airflow_provider_coordination.sources.kinesis.records import KinesisRecords
from airflow_provider_coordination.sources.kinesis.user_records import UserRecords
from airflow_provider_coordination.spark.dynamodb_streams.following import FollowedReading
from airflow_provider_coordination.spark.item_landing import land_items
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.kinesis.reading import ShardSource
from airflow_provider_coordination.spark.kinesis.shard_format import ShardFormat
from airflow_provider_coordination.spark.kinesis.streams import Streams
from airflow_provider_coordination.spark.layout import BATCH_ID, WHAT_FAILED, WHEN_IT_FAILED, RecordLayout
from airflow_provider_coordination.spark.reading import MakeReading

CHANGE_FILE_SCHEMA = pa.schema([*CHANGE_COLUMNS, pa.field(BATCH_ID, pa.string())])
"""The columns of a landed file; `docs/dynamodb_streams.md` describes them."""

CHANGES = RecordLayout(
    position=("sequence_number", "size_bytes"),
    names=tuple(CHANGE_FILE_SCHEMA.names),
    ddl=(
        "table_name STRING, shard_id STRING, sequence_number STRING, operation STRING, keys STRING, new_image STRING, "
        "old_image STRING, approximate_creation_time TIMESTAMP, is_ttl_delete BOOLEAN, size_bytes BIGINT, data STRING, "
        "change_order STRING, _batch_id STRING"
    ),
    dead_letter=pa.schema([*WHAT_FAILED, *CHANGE_COLUMNS, *WHEN_IT_FAILED]),
    sample_fields={name: name for name in ("table_name", "shard_id", "sequence_number")},
    location_format="{table_name}:{shard_id}:{sequence_number}",
)
"""The layout of changes; the sequence number alone identifies a change."""


class ChangeFormat(ShardFormat):
    """Changes of items."""

    schema = CHANGE_FILE_SCHEMA
    layout = CHANGES
    stream = "table_name"
    arrival = "approximate_creation_time"
    throttled = (
        "a shard should have two readers at most: others read it too. Lower reads_per_second here or there, or stop "
        "one of the readers"
    )

    @override
    def client(self, aws: AwsSettings) -> StreamsClient:
        return shared_reading_client(aws)

    @override
    def rows(self, records: KinesisRecords, hash_keys: HashKeyRange | None, after: int | None) -> UserRecords:
        assert isinstance(records, ChangeRecords)
        return UserRecords(records.changes, filtered=0)

    @override
    def ordered(self, rows: pa.Table, epoch: int) -> pa.Table:
        return rows.append_column("change_order", change_order(epoch, rows.column("sequence_number")))

    @override
    def unique(self, rows: pa.Table) -> Sequence[str]:
        return ("sequence_number", "change_order", "keys", "new_image", "old_image", "data")


class DynamoDBStreamsSource(ShardSource):
    """The tables whose changes a job reads."""

    worker_imports = (*ShardSource.worker_imports, land_items.__module__)

    def __init__(self, reads: ReadsSettings) -> None:
        self._reads = DynamoDBStreams.from_mapping(reads.settings)
        super().__init__(self._reads, ChangeFormat())

    @override
    def reading(self, spark: JobSpark, streams: Streams) -> MakeReading:
        if self._reads.items is None:
            return super().reading(spark, streams)
        return partial(FollowedReading, spark, self._reads, streams, self._format)
