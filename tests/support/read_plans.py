"""Plans to read a stream's shards from their first records."""

from __future__ import annotations

from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardReadPlan


def read_plans(shards: int, stream: str = "s") -> list[ShardReadPlan]:
    """Return a plan for each shard, of a partition of its own."""
    names = [f"shardId-{number:012d}" for number in range(shards)]
    return [
        ShardReadPlan(
            source_identifier=f"{stream}|PARTITION",
            partition_key=f"{stream}:1:{name}",
            fencing_token=1,
            stream=stream,
            shard_id=name,
            start=BatchStart(position="TRIM_HORIZON"),
        )
        for name in names
    ]
