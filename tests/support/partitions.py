"""Partitions of a test's source, and the acquisitions of a worker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import Acquisition

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOURCE = "test|clicks|PARTITION"


def a_partition(key: str, *, source: str = SOURCE, age_seconds: float = 0, **progress: object) -> Partition:
    return Partition(
        source_identifier=source,
        partition_key=key,
        status=PartitionStatus.UNASSIGNED,
        priority=NOW - timedelta(seconds=age_seconds),
        progress=progress,
    )


def acquisition(limit: int = 10, *, owner: str = "me", source: str = SOURCE, at: datetime = NOW) -> Acquisition:
    return Acquisition(
        source_identifier=source,
        owner=owner,
        limit=limit,
        ownership_timeout=at + timedelta(seconds=60),
        available_by=at,
        expired_by=at - timedelta(seconds=5),
    )


def keys(partitions: list[Partition]) -> list[str]:
    return [p.partition_key for p in partitions]
