"""Partitions: summaries and details."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel

from airflow_provider_coordination.coordination.partition import ChangeKind
from airflow_provider_coordination.sources.inspection import LandedFacts
from airflow_provider_coordination.ui.models.values import Owner


class PartitionRow(BaseModel):
    """The summary of a partition.

    `priority` is the instant that orders it within its status. `has_positions` is whether it can be reset to another
    position than its start.
    """

    partition_key: str
    status: str
    state: str
    owner: Owner | None
    held_since: datetime | None
    leased_until: datetime | None
    reopen_at: datetime | None
    priority: datetime
    version: int
    attempts: int
    closed_count: int
    last_error: str | None
    kind: str | None
    has_positions: bool
    position: str | None
    lag: float | None
    items_done: int | None
    items: int | None
    landed_batches: int
    landed_records: int
    is_readable: bool


class PartitionPage(BaseModel):
    """A page of partitions. `next` is the `after` of the next page; null if there is none."""

    as_of: datetime
    partitions: list[PartitionRow]
    next: str | None


class FailedItemFacts(BaseModel):
    """An item that could not be read, and its index among the partition's items, from 0."""

    item: int | None
    reason: str


class TransitionFacts(BaseModel):
    """A change of a partition's status or owner. `status` is null if the partition was deleted."""

    at: datetime
    status: str | None
    owner: Owner | None
    until: datetime | None
    previous_status: str
    previous_owner: Owner | None
    previous_until: datetime | None
    kind: ChangeKind
    reason: str
    by: str | None


class PartitionDetail(PartitionRow):
    """Everything about a partition.

    `has_history` is whether a history is kept. `details` is what its kind of source adds.
    """

    progress: dict[str, Any]
    unreadable_progress: str | None
    throughput: float | None
    landed: list[LandedFacts]
    acknowledgment_sets: list[dict[str, Any]]
    gaps: list[str]
    failed_items: list[FailedItemFacts]
    transitions: list[TransitionFacts]
    has_history: bool
    details: dict[str, Any]
