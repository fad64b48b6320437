"""What the records of shards are: how they are read, and the columns with which they are landed.

Everything else about reading and landing shards is the same for all kinds of streams.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.kinesis import RECORD_COLUMNS
from airflow_provider_coordination.sources.kinesis.aggregation import HashKeyRange
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.pacing import READ_BYTES_PER_SECOND
from airflow_provider_coordination.sources.kinesis.reader import shared_reading_client
from airflow_provider_coordination.sources.kinesis.records import KinesisRecords
from airflow_provider_coordination.sources.kinesis.user_records import UserRecords, user_records
from airflow_provider_coordination.spark.layout import WHAT_FAILED, WHEN_IT_FAILED, RecordLayout


class ShardFormat(ABC):
    """What the records of shards are. It has no state, so executors get its class."""

    schema: ClassVar[pa.Schema]
    """The columns of a landed file."""
    layout: ClassVar[RecordLayout]
    """The layout of its records."""
    stream: ClassVar[str]
    """The column with the name of the stream."""
    arrival: ClassVar[str]
    """The column with the time at which a record arrived."""
    throttled: ClassVar[str]
    """What throttled reads mean although the job keeps to a rate, and the remedy; a sentence without its period."""

    @abstractmethod
    def client(self, aws: AwsSettings) -> KinesisClient:
        """Return the client of this process with which shards are read."""

    @abstractmethod
    def rows(self, records: KinesisRecords, hash_keys: HashKeyRange | None, after: int | None) -> UserRecords:
        """Return the rows of a page.

        :param records: of the page.
        :param hash_keys: the hash keys of the shard; rows of other keys are left out. None keeps all.
        :param after: leave out the rows of the first record up to and including this sub-sequence number.
        """

    def ordered(self, rows: pa.Table, epoch: int) -> pa.Table:
        """Return rows with the columns that say in which order they were written, if the format has such columns.

        :param epoch: when the stream was created, or the shard was reset since, in whole seconds since 1970.
        """
        return rows

    @abstractmethod
    def unique(self, rows: pa.Table) -> Sequence[str]:
        """Return the columns whose values rarely repeat in a file.

        :param rows: the first rows of the file.
        """


TYPES = (
    pa.string(),
    pa.string(),
    pa.string(),
    pa.int64(),
    pa.string(),
    pa.timestamp("us", tz="UTC"),
    pa.binary(),
    pa.string(),
)
RECORD_SCHEMA = pa.schema([pa.field(name, of, nullable=False) for name, of in zip(RECORD_COLUMNS, TYPES, strict=True)])
"""The columns of a landed file; `docs/columns.md` describes them."""

SHARD_RECORDS = RecordLayout(
    position=("sequence_number", "sub_sequence_number"),
    names=RECORD_COLUMNS,
    ddl=(  # with a schema, Spark need not open each file first
        "stream STRING, shard_id STRING, sequence_number STRING, sub_sequence_number BIGINT, partition_key STRING, "
        "approximate_arrival_timestamp TIMESTAMP, data BINARY, _batch_id STRING"
    ),
    dead_letter=pa.schema(
        [*WHAT_FAILED, *(RECORD_SCHEMA.field(n).with_nullable(True) for n in range(7)), *WHEN_IT_FAILED]
    ),
    sample_fields={name: name for name in ("shard_id", "sequence_number", "sub_sequence_number")},
    location_format="{shard_id}:{sequence_number}/{sub_sequence_number}",
)
"""The layout of Kinesis records; see `RECORD_SCHEMA`."""

UNIQUE = ("sequence_number", "data")
"""The columns whose values rarely repeat; the user records of an aggregated record share its sequence number."""


class KinesisFormat(ShardFormat):
    """User records of Kinesis."""

    schema = RECORD_SCHEMA
    layout = SHARD_RECORDS
    stream = "stream"
    arrival = "approximate_arrival_timestamp"
    throttled = (
        f"{READ_BYTES_PER_SECOND // 2**20} MiB a second: others read the shard too. Lower reads_per_second here or "
        "there, or give one of them a consumer_name"
    )

    @override
    def client(self, aws: AwsSettings) -> KinesisClient:
        return shared_reading_client(aws)

    @override
    def rows(self, records: KinesisRecords, hash_keys: HashKeyRange | None, after: int | None) -> UserRecords:
        return user_records(records, hash_keys, after=after)

    @override
    def unique(self, rows: pa.Table) -> Sequence[str]:
        return UNIQUE[1:] if pc.any(pc.greater(rows.column("sub_sequence_number"), 0)).as_py() else UNIQUE


KINESIS = KinesisFormat()
