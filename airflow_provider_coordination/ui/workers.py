"""The workers of a source and their leases, and the redirect to the Spark UI of the job of one, while it runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, HTTPException, Response
from fastapi.responses import RedirectResponse

from airflow_provider_coordination.coordination.jobs import Job, Jobs, JobState
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import all_partitions
from airflow_provider_coordination.coordination.workers import FAMILY, Worker
from airflow_provider_coordination.hooks.configuration import path_prefix
from airflow_provider_coordination.ui.access import may_read_connection
from airflow_provider_coordination.ui.bodies import Key, Owner, owner_of
from airflow_provider_coordination.ui.store_queries import SOURCE, Queries, query_response

MAX_LEASES = 20_000
MAX_WORKERS = 2_000
# The owner contains the id of a run, which may contain slashes.
SPARK_UI = SOURCE + "/jobs/{owner:path}/spark-ui"


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """A Spark job that is followed through the store. `ui_url` redirects to its Spark UI while it runs."""

    state: str
    application_id: str | None
    ui_url: str | None
    stop_reason: str | None


@dataclass(frozen=True, kw_only=True)
class WorkerRow:
    """A worker. `registered_until` is null for one that holds a lease and has not registered.

    `slots` is how many Spark tasks it runs at the same time; null if unknown.
    """

    owner: Owner
    registered_until: datetime | None
    started_at: datetime | None
    max_leases: int | None
    slots: int | None
    leases: int
    is_live: bool
    job: JobFacts | None


@dataclass(frozen=True, kw_only=True)
class WorkerList:
    """The workers of a source. `complete` is whether every lease was counted."""

    as_of: datetime
    workers: list[WorkerRow]
    complete: bool


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    routes.get(SOURCE + "/workers", dependencies=[may_read_connection()], response_model=WorkerList)(workers)
    routes.add_api_route(
        SPARK_UI, spark_ui, methods=["GET"], dependencies=[may_read_connection()], response_class=RedirectResponse
    )
    return routes


async def workers(queries: Queries, connection_id: str, source: str) -> Response:
    """Return the workers of a source, and the number of leases of each."""

    def read_workers(view: SourceView) -> WorkerList:
        return worker_list(view, connection_id)

    return await query_response(
        queries,
        connection_id,
        ("workers", source),
        lambda: queries.stores.query_source(connection_id, source, read_workers),
    )


def worker_list(view: SourceView, connection_id: str) -> WorkerList:
    """Return the workers of a source, those without a sign of life first.

    They are registered workers, owners of leases that have not registered, and jobs that have not started.
    """
    now = view.clock.now()
    leases, live, is_complete = _leases(view, now)
    registered = {worker.owner: worker for worker in registered_workers(view)}
    jobs = {job.owner: job for job in islice(Jobs(view).unfinished(), MAX_WORKERS)}

    def row(owner: str) -> WorkerRow:
        worker, job = registered.get(owner), jobs.get(owner)
        given_up_at = None if job is None else job.given_up_at(view.safety_margin)
        return WorkerRow(
            owner=owner_of(owner),
            registered_until=None if worker is None else worker.registered_until,
            started_at=worker.started_at if worker is not None else None if job is None else job.submitted_at,
            max_leases=None if worker is None else worker.max_leases,
            slots=None if worker is None else worker.slots,
            leases=leases[owner],
            is_live=owner in live
            or (worker is not None and worker.registered_until + view.safety_margin > now)
            or (job is not None and (given_up_at is None or given_up_at > now)),
            job=None if job is None else _job(job, connection_id, view.source),
        )

    rows = [row(owner) for owner in {**registered, **leases, **jobs}]
    rows.sort(key=lambda each: (each.is_live, -each.leases, each.owner.name))
    return WorkerList(as_of=now, workers=rows[:MAX_WORKERS], complete=is_complete and len(rows) <= MAX_WORKERS)


def registered_workers(view: SourceView) -> list[Worker]:
    """Return the workers that have registered, including those whose registration has expired. Changes nothing."""
    items = all_partitions(view.store, view.family(FAMILY), PartitionStatus.ASSIGNED)
    return [worker for item in islice(items, MAX_WORKERS) if (worker := Worker.of(item)) is not None]


def _leases(view: SourceView, now: datetime) -> tuple[Counter[str], set[str], bool]:
    """Return the number of leases of each owner, the owners with live leases, and whether all leases were read."""
    held = list(islice(view.partitions(PartitionStatus.ASSIGNED), MAX_LEASES))
    working = [lease for lease in held if lease.owner and not lease.is_awaiting]
    leases = Counter(lease.owner or "" for lease in working)
    live = {lease.owner or "" for lease in working if lease.priority > now}
    return leases, live, len(held) < MAX_LEASES


def _job(job: Job, connection_id: str, source: str) -> JobFacts:
    names = [quote(name, safe="") for name in (connection_id, source, job.owner)]
    return JobFacts(
        state=job.state.value,
        application_id=job.application_id,
        ui_url=None
        if job.ui_url is None
        else f"{path_prefix()}/connections/{names[0]}/sources/{names[1]}/jobs/{names[2]}/spark-ui",
        stop_reason=job.stop,
    )


async def spark_ui(queries: Queries, connection_id: str, source: str, owner: Key) -> RedirectResponse:
    """Redirect to the Spark UI of a running job."""
    job = await queries.read(
        connection_id,
        object(),  # a user has clicked: do not reuse a result
        lambda: queries.stores.query_source(connection_id, source, lambda view: Jobs(view).get(owner)),
    )
    if job is None or job.state is JobState.ENDED:
        raise HTTPException(404, f"job {owner!r} has ended, so its Spark UI is gone")
    if job.ui_url is None:
        raise HTTPException(404, f"job {owner!r} has no Spark UI yet")
    if urlsplit(job.ui_url).scheme not in (
        "http",
        "https",
    ):  # a job may have written anything: never redirect to a script
        raise HTTPException(404, f"job {owner!r} has a Spark UI that is not an HTTP URL")
    return RedirectResponse(job.ui_url, 307)
