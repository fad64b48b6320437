"""The layout of a shard's landed file: its columns are always the same."""

from __future__ import annotations

import pyarrow as pa

from airflow_provider_coordination.sources.kinesis.columns import RECORD_COLUMNS
from airflow_provider_coordination.spark.layout import WHAT_FAILED, WHEN_IT_FAILED, RecordLayout

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
