"""The capacity of Kinesis streams, from the published limits of the service and the description of the streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.sources.capacity import Capacity
from airflow_provider_coordination.sources.kinesis.batch_reading import MIN_RETENTION
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.pacing import READ_BYTES_PER_SECOND, READ_INTERVAL_SECONDS
from airflow_provider_coordination.sources.kinesis.shards import describe_stream

WRITTEN_BYTES_PER_SECOND = 2**20
"""A shard accepts 1 MiB or 1,000 records a second."""


def capacity_of(settings: Mapping[str, Any]) -> Capacity:
    """Return the limits of a shard that is read with these settings, and the minimum retention of a stream."""
    uses_fan_out = bool(settings.get("consumer_name"))
    return Capacity(
        retention=MIN_RETENTION,
        read_bytes_per_second=READ_BYTES_PER_SECOND,
        is_shared=not uses_fan_out,
        written_bytes_per_second=WRITTEN_BYTES_PER_SECOND,
        reads_per_second=0.0 if uses_fan_out else 1 / READ_INTERVAL_SECONDS,
    )


def extent_of(client: KinesisClient, streams: Sequence[str]) -> tuple[int, timedelta]:
    """Return the number of open shards of the streams, and the shortest retention among the streams.

    :raises SourceError: if the service is unavailable, or a stream does not exist.
    :raises ConfigurationError: if access is denied.
    """
    described = [describe_stream(client, name, ready_within_seconds=0) for name in streams]
    retention = min(timedelta(hours=each.retention_hours) for each in described)
    return sum(each.open_shards for each in described), retention
