"""The redirect from a task to the Spark UI of the job that it follows, while the job runs."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import APIRouter, HTTPException
from fastapi.responses import RedirectResponse

from airflow_provider_coordination.coordination.jobs import Jobs, JobState
from airflow_provider_coordination.ui.access import may_read_connection
from airflow_provider_coordination.ui.bodies import Key
from airflow_provider_coordination.ui.responses import SOURCE
from airflow_provider_coordination.ui.store_queries import Queries

# The owner contains the id of a run, which may contain slashes.
SPARK_UI = SOURCE + "/jobs/{owner:path}/spark-ui"


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    routes.add_api_route(
        SPARK_UI, spark_ui, methods=["GET"], dependencies=[may_read_connection()], response_class=RedirectResponse
    )
    return routes


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
