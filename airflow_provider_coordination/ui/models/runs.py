"""The partitions that runs and tasks of Airflow hold."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from airflow_provider_coordination.ui.models.partitions import PartitionRow


class RunPartition(PartitionRow):
    """A partition that a run holds, or held."""

    connection_id: str
    source: str
    is_held_now: bool


class RunPartitions(BaseModel):
    """The partitions that a run holds or held. `unreachable` lists the connections whose store is unavailable."""

    as_of: datetime
    partitions: list[RunPartition]
    complete: bool
    unreachable: list[str]
