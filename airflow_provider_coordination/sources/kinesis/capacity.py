"""What streams of Kinesis give, by the published limits of the service and what it says of the streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.sources.capacity import Capacity
from airflow_provider_coordination.sources.kinesis.batch_reading import LEAST_RETENTION
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.pacing import READ_BYTES_PER_SECOND, READ_INTERVAL_SECONDS
from airflow_provider_coordination.sources.kinesis.shards import describe_stream

WRITTEN_BYTES_PER_SECOND = 2**20
"""A shard takes 1 MiB a second, or 1,000 records."""


def capacity_of(settings: Mapping[str, Any]) -> Capacity:
    """Return what any shard gives that is read as these settings say, and how long every stream keeps it at least."""
    is_sent = bool(settings.get("consumer_name"))
    return Capacity(
        retention=LEAST_RETENTION,
        read_bytes_per_second=READ_BYTES_PER_SECOND,
        is_shared=not is_sent,
        written_bytes_per_second=WRITTEN_BYTES_PER_SECOND,
        reads_per_second=0.0 if is_sent else 1 / READ_INTERVAL_SECONDS,
    )


def extent_of(client: KinesisClient, streams: Sequence[str]) -> tuple[int, timedelta]:
    """Return how many shards of streams take records, and how long the one keeps them that does so least.

    :raises SourceError: if the service does not answer, or a stream is not there.
    :raises ConfigurationError: if it does not let us ask.
    """
    described = [describe_stream(client, name, ready_within_seconds=0) for name in streams]
    retention = min(timedelta(hours=each.retention_hours) for each in described)
    return sum(each.open_shards for each in described), retention
