"""The history of leases: which owner held which partition, and when."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from airflow_provider_coordination.ui.models.values import Owner


class HoldingFacts(BaseModel):
    """A time during which one owner held a partition. `began_at` is null if the history no longer has it."""

    owner: Owner
    began_at: datetime | None
    begin: str
    ended_at: datetime | None
    end: str
    reason: str
    by: str | None


class PartitionLine(BaseModel):
    """The owners of a partition, the first one first."""

    partition_key: str
    holdings: list[HoldingFacts]


class Timeline(BaseModel):
    """The owners of partitions over time. `complete` is whether nothing is missing."""

    as_of: datetime
    since: datetime
    until: datetime
    has_history: bool
    complete: bool
    partitions: list[PartitionLine]
