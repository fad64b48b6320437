"""The way from a task to the Spark UI of the job that it follows, while that runs."""

from __future__ import annotations

import socket
from contextlib import closing
from secrets import token_hex
from urllib.parse import urlsplit

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi import APIRouter, HTTPException
from fastapi.responses import RedirectResponse

from airflow_provider_coordination.coordination.jobs import Jobs, JobState
from airflow_provider_coordination.hooks.coordination import connection_settings
from airflow_provider_coordination.ui.access import may_read_connection

# A source has slashes in its name perhaps, and a run's id in the owner as well; a proxy may have decoded them.
SPARK_UI = "/connections/{connection_id}/sources/{source:path}/jobs/{owner:path}/spark-ui"


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    routes.add_api_route(
        SPARK_UI, spark_ui, methods=["GET"], dependencies=[may_read_connection()], response_class=RedirectResponse
    )
    return routes


def spark_ui(connection_id: str, source: str, owner: str) -> RedirectResponse:
    """Lead on to the Spark UI of a job that runs."""
    try:
        settings = connection_settings(BaseHook.get_connection(connection_id))
    except AirflowNotFoundException:
        raise HTTPException(404, f"connection {connection_id!r} is not defined") from None
    coordinator = settings.coordinator(source, f"{socket.gethostname()}:http:{token_hex(4)}")
    with closing(coordinator.store):
        job = Jobs(coordinator).get(owner)
    if job is None or job.state is JobState.ENDED:
        raise HTTPException(404, f"job {owner!r} has ended, and its Spark UI with it")
    if job.ui_url is None:
        raise HTTPException(404, f"job {owner!r} has no Spark UI, or none yet")
    if urlsplit(job.ui_url).scheme not in ("http", "https"):  # whatever a job wrote, no script is run
        raise HTTPException(404, f"job {owner!r} has no Spark UI that a browser could open")
    return RedirectResponse(job.ui_url, 307)
