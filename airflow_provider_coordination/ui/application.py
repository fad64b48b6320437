"""The application that Airflow's API server mounts. It refuses what no route allows, and its errors show no secrets."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
    manual,
    pages,
    partitions,
    runs,
    sources,
    supervisors,
    timeline,
    workers,
)
from airflow_provider_coordination.ui.access import MAX_BODY_CHARACTERS, requires_login
from airflow_provider_coordination.ui.kinds import routers_of_kinds
from airflow_provider_coordination.ui.store_queries import QueryScheduler, Stores

log = logging.getLogger(__name__)

STATUS = {
    AcknowledgmentSetNotFoundError: 404,
    AcknowledgmentError: 409,
    ConfigurationError: 422,
    SupervisorNotFoundError: 404,
    SupervisionError: 409,
}
"""The HTTP status of errors whose text says what the caller must change."""
MAX_QUOTED_CHARACTERS = 100
"""How much of an invalid value an error quotes."""


def application() -> FastAPI:
    """Return the application with all its routes."""
    app = FastAPI(
        title="Coordination",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        dependencies=[requires_login()],
        lifespan=_lifespan,
    )
    app.add_middleware(BodySizeLimit)
    app.state.queries = QueryScheduler(Stores())
    app.state.viewers_may_read = Configuration.read().viewers_may_read
    # Names of sources may contain slashes. So routes that end in more fixed words come first, then those that end in
    # one, then those that end in the name of a set.
    for part in (supervisors, sources, partitions, timeline, workers, runs, actions, pages, manual):
        app.include_router(part.router())
    for router in routers_of_kinds():
        app.include_router(router)
    app.include_router(acknowledgments.router())
    app.add_exception_handler(CoordinationError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    for unreachable in (OperationalError, PoolTimeoutError):  # stores raise StoreUnavailableError instead
        app.add_exception_handler(unreachable, _database_unavailable)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Close the stores when the API server stops."""
    yield
    app.state.queries.close()


async def _refused(request: Request, error: Exception) -> JSONResponse:
    for kind, status in STATUS.items():
        if isinstance(error, kind):
            return JSONResponse({"detail": str(error)}, status)
    # The text may contain a host name or more: it is for the log only.
    log.error("%s %s failed: %s: %s", request.method, request.url.path, type(error).__name__, error)
    if isinstance(error, StoreUnavailableError | PartitionUpdateError):
        what = "unavailable" if isinstance(error, StoreUnavailableError) else "busy with this partition"
        return JSONResponse({"detail": f"the store is {what}; try again"}, 503, headers={"Retry-After": "10"})
    return JSONResponse(
        {"detail": f"the request failed with {type(error).__name__}; see the log of the API server"}, 500
    )


async def _database_unavailable(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s: Airflow's database is unavailable: %s", request.method, request.url.path, error)
    return JSONResponse({"detail": "Airflow's database is unavailable; try again"}, 503, headers={"Retry-After": "10"})


async def _invalid_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    [first, *_] = error.errors()
    where = ".".join(str(part) for part in first["loc"])
    given = first.get("input")
    got = f"; got {repr(given)[:MAX_QUOTED_CHARACTERS]}" if isinstance(given, str | int | float) else ""
    # Pydantic puts "Value error," before the text of this package.
    reason = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    return JSONResponse({"detail": f"{where}: {reason}{got}"}, 422)


MAX_BODY_BYTES = 4 * MAX_BODY_CHARACTERS
"""The maximum size of `MAX_BODY_CHARACTERS` in UTF-8. Routes count the characters exactly."""
TOO_LONG = f"the request has more than {MAX_BODY_BYTES} bytes; send less at once, such as fewer partitions"


class BodySizeLimit:
    """Limits the size of request bodies.

    :param app: the application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request whose announced length is too large; end one whose body turns out to be."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > MAX_BODY_BYTES:
            await JSONResponse({"detail": TOO_LONG}, 413)(scope, receive, send)
            return
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise HTTPException(413, TOO_LONG)
            return message

        await self._app(scope, bounded, send)
