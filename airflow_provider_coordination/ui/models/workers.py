"""The workers of a source and their jobs."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from airflow_provider_coordination.ui.models.values import Owner


class JobFacts(BaseModel):
    """A Spark job that is followed through the store; `ui_url` leads on to its Spark UI while it runs."""

    state: str
    application_id: str | None
    ui_url: str | None
    stop: str | None


class WorkerRow(BaseModel):
    """A worker: who has registered, or holds a lease without having done so (`registered_until` is null then)."""

    owner: Owner
    registered_until: datetime | None
    started_at: datetime | None
    max_leases: int | None
    leases: int
    is_live: bool
    job: JobFacts | None


class WorkerList(BaseModel):
    """The workers of a source; `complete` says whether every lease was counted."""

    as_of: datetime
    workers: list[WorkerRow]
    complete: bool
