"""The application that Airflow's API server mounts: what no route allows is refused, and no error tells a secret."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentError,
    AcknowledgmentSetNotFoundError,
    ConfigurationError,
    CoordinationError,
    PartitionUpdateError,
    StoreUnavailableError,
    SupervisionError,
    SupervisorNotFoundError,
)
from airflow_provider_coordination.hooks.configuration import Configuration
from airflow_provider_coordination.ui import (
    acknowledgments,
    actions,
    jobs,
    pages,
    partitions,
    runs,
    sources,
    supervisors,
    timeline,
    workers,
)
from airflow_provider_coordination.ui.access import anybody_logged_in
from airflow_provider_coordination.ui.body_limit import BoundedBodies
from airflow_provider_coordination.ui.kinds import routers_of_kinds
from airflow_provider_coordination.ui.store_queries import Desk, Stores

log = logging.getLogger(__name__)

STATUS = {
    AcknowledgmentSetNotFoundError: 404,
    AcknowledgmentError: 409,
    ConfigurationError: 422,
    SupervisorNotFoundError: 404,
    SupervisionError: 409,
}
"""The answers to errors whose text says what the caller has to change."""
MAX_GIVEN_CHARACTERS = 100
"""So much is repeated of what was not understood."""


def application() -> FastAPI:
    """Return the application with all its routes."""
    app = FastAPI(
        title="Coordination",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        dependencies=[anybody_logged_in()],
        lifespan=_closing,
    )
    app.add_middleware(BoundedBodies)
    app.state.desk = Desk(Stores())
    app.state.viewers_may_look = Configuration.read().viewers_may_look
    # Names of sources may hold slashes: what ends in more fixed words comes before what ends in one, and that before
    # what ends in the name of a set.
    for part in (supervisors, sources, partitions, timeline, workers, runs, actions, jobs, pages):
        app.include_router(part.router())
    for router in routers_of_kinds():
        app.include_router(router)
    app.include_router(acknowledgments.router())
    app.add_exception_handler(CoordinationError, _refused)
    app.add_exception_handler(RequestValidationError, _not_understood)
    for unreachable in (OperationalError, PoolTimeoutError):  # a store's own are errors of coordination by then
        app.add_exception_handler(unreachable, _airflow_is_away)
    return app


@asynccontextmanager
async def _closing(app: FastAPI) -> AsyncIterator[None]:
    """Close what was opened for the application once the API server ends."""
    yield
    app.state.desk.close()


async def _refused(request: Request, error: Exception) -> JSONResponse:
    for kind, status in STATUS.items():
        if isinstance(error, kind):
            return JSONResponse({"detail": str(error)}, status)
    # The text may hold the name of a host, or more: it is for the log.
    log.error("%s %s failed: %s: %s", request.method, request.url.path, type(error).__name__, error)
    if isinstance(error, StoreUnavailableError | PartitionUpdateError):
        what = "does not answer" if isinstance(error, StoreUnavailableError) else "is busy with this partition"
        return JSONResponse({"detail": f"the store {what}; try again"}, 503, headers={"Retry-After": "10"})
    return JSONResponse({"detail": f"it failed with {type(error).__name__}; the API server's log says more"}, 500)


async def _airflow_is_away(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s: Airflow's database does not answer: %s", request.method, request.url.path, error)
    return JSONResponse({"detail": "Airflow's database does not answer; try again"}, 503, headers={"Retry-After": "10"})


async def _not_understood(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    [first, *_] = error.errors()
    where = ".".join(str(part) for part in first["loc"])
    given = first.get("input")
    got = f"; got {repr(given)[:MAX_GIVEN_CHARACTERS]}" if isinstance(given, str | int | float) else ""
    # Pydantic puts "Value error," before a sentence of our own.
    said = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    return JSONResponse({"detail": f"{where}: {said}{got}"}, 422)
