"""The way from a task to the Spark UI of the job that it follows, while that runs."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import APIRouter, HTTPException
from fastapi.responses import RedirectResponse

from airflow_provider_coordination.coordination.jobs import Jobs, JobState
from airflow_provider_coordination.ui.access import may_read_connection
from airflow_provider_coordination.ui.models.values import Key
from airflow_provider_coordination.ui.responses import SOURCE
from airflow_provider_coordination.ui.store_queries import AtDesk

# A run's id in the owner may have slashes, too.
SPARK_UI = SOURCE + "/jobs/{owner:path}/spark-ui"


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    routes.add_api_route(
        SPARK_UI, spark_ui, methods=["GET"], dependencies=[may_read_connection()], response_class=RedirectResponse
    )
    return routes


async def spark_ui(desk: AtDesk, connection_id: str, source: str, owner: Key) -> RedirectResponse:
    """Lead on to the Spark UI of a job that runs."""
    job = await desk.look(
        connection_id,
        object(),  # somebody has clicked: it is asked anew
        lambda: desk.stores.ask_source(connection_id, source, lambda view: Jobs(view).get(owner)),
    )
    if job is None or job.state is JobState.ENDED:
        raise HTTPException(404, f"job {owner!r} has ended, and its Spark UI with it")
    if job.ui_url is None:
        raise HTTPException(404, f"job {owner!r} has no Spark UI, or none yet")
    if urlsplit(job.ui_url).scheme not in ("http", "https"):  # whatever a job wrote, no script is run
        raise HTTPException(404, f"job {owner!r} has no Spark UI that a browser could open")
    return RedirectResponse(job.ui_url, 307)
