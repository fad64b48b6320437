"""What a landed file of a shard looks like: its columns are always the same."""

from __future__ import annotations

import pyarrow as pa

from airflow_provider_coordination.spark.layout import WHAT_FAILED, WHEN_IT_FAILED, RecordLayout

RECORD_SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("shard_id", pa.string(), nullable=False),
        pa.field("sequence_number", pa.string(), nullable=False),
        pa.field("sub_sequence_number", pa.int64(), nullable=False),
        pa.field("partition_key", pa.string(), nullable=False),
        pa.field("approximate_arrival_timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("_batch_id", pa.string(), nullable=False),
    ]
)
"""The columns of a landed file; `docs/columns.md` describes them."""

SHARD_RECORDS = RecordLayout(
    position=("sequence_number", "sub_sequence_number"),
    names=tuple(RECORD_SCHEMA.names),
    ddl=(  # given, Spark need not look into each file first
        "stream STRING, shard_id STRING, sequence_number STRING, sub_sequence_number BIGINT, partition_key STRING, "
        "approximate_arrival_timestamp TIMESTAMP, data BINARY, _batch_id STRING"
    ),
    dead_letter=pa.schema(
        [*WHAT_FAILED, *(RECORD_SCHEMA.field(n).with_nullable(True) for n in range(7)), *WHEN_IT_FAILED]
    ),
    sampled={name: name for name in ("shard_id", "sequence_number", "sub_sequence_number")},
    place="{shard_id}:{sequence_number}/{sub_sequence_number}",
)
"""Records of Kinesis: those of `RECORD_SCHEMA`."""
