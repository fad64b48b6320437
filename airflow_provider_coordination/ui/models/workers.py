"""The workers of a source and their jobs."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from airflow_provider_coordination.ui.models.values import Owner


class JobFacts(BaseModel):
    """A Spark job that is followed through the store. `ui_url` redirects to its Spark UI while it runs."""

    state: str
    application_id: str | None
    ui_url: str | None
    stop_reason: str | None


class WorkerRow(BaseModel):
    """A worker. `registered_until` is null for one that holds a lease and has not registered."""

    owner: Owner
    registered_until: datetime | None
    started_at: datetime | None
    max_leases: int | None
    leases: int
    is_live: bool
    job: JobFacts | None


class WorkerList(BaseModel):
    """The workers of a source. `complete` is whether every lease was counted."""

    as_of: datetime
    workers: list[WorkerRow]
    complete: bool
