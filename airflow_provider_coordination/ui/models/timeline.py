"""Who held which partition when."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from airflow_provider_coordination.ui.models.values import Owner


class HoldingFacts(BaseModel):
    """A time during which one owner held a partition; `began_at` is null where that is not kept any more."""

    owner: Owner
    began_at: datetime | None
    begin: str
    ended_at: datetime | None
    end: str
    reason: str
    by: str | None


class PartitionLine(BaseModel):
    """Who held a partition, the first first."""

    partition_key: str
    holdings: list[HoldingFacts]


class Timeline(BaseModel):
    """Who held which partition when; `complete` says whether that is all of it."""

    as_of: datetime
    since: datetime
    until: datetime
    history: bool
    complete: bool
    partitions: list[PartitionLine]
