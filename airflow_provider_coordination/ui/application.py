"""The application that Airflow's API server mounts. It refuses what no route allows, and its errors show no secrets."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
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
    calendar,
    holdings,
    manual,
    partitions,
    sources,
    supervisors,
    together,
    workers,
)
from airflow_provider_coordination.ui.access import MAX_BODY_CHARACTERS, requires_login
from airflow_provider_coordination.ui.bodies import routers_of_kinds
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
    for part in (supervisors, sources, partitions, holdings, calendar, workers, actions, together, manual):
        app.include_router(part.router())
    app.include_router(page_files())
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


FOLDER = Path(__file__).with_name("static")
"""The folder of the pages' bundle, which `tools/pages.py` makes."""
BUNDLE = "coordination.js"
NOT_BUILT = (
    "the pages of airflow-provider-coordination are not built: install its wheel, or run `make venv` in the checkout"
)
MISSING_PAGES = f"""\
globalThis.AirflowPlugin = () => globalThis.React.createElement("p", {{ role: "alert" }}, {json.dumps(NOT_BUILT)});
"""
"""What a browser gets in place of the bundle."""
EDITION_LENGTH = 16
EDITION_PREFIX = re.compile(rf"([0-9a-f]{{{EDITION_LENGTH}}})/")
MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".txt": "text/plain; charset=utf-8",
}
"""The types of files that are served. All others are not found."""


def edition() -> str:
    """Return a digest of the pages' files, which distinguishes versions."""
    digest = hashlib.sha256()
    for file in sorted(file for file in FOLDER.rglob("*") if file.is_file()):
        digest.update(file.relative_to(FOLDER).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:EDITION_LENGTH]


def page_files() -> APIRouter:
    """Return the route of the pages' files. A mounted folder would require no login."""
    routes = APIRouter()
    current = edition()
    if not (FOLDER / BUNDLE).exists():
        log.warning("%s", NOT_BUILT)

    @routes.get("/static/{path:path}")
    async def static(request: Request, path: str) -> Response:
        """Return a file of the pages."""
        prefix = EDITION_PREFIX.match(path)
        # Not in the threads that query stores: those may hang.
        file = await asyncio.to_thread(_read_page_file, path if prefix is None else path[prefix.end() :])
        if file is None:
            raise HTTPException(404, "the pages have no such file")
        return _file_response(request, *file, is_settled=prefix is not None and prefix[1] == current)

    return routes


def _file_response(request: Request, content: bytes, media_type: str, *, is_settled: bool) -> Response:
    """Return a file.

    :param is_settled: whether the URL names the current edition. Then a browser caches the file, so that it
        is fetched once. Otherwise it revalidates each time. A file that is requested by the URL of another
        edition, during an upgrade of the servers, must not be cached.
    """
    headers = {
        "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        "Cache-Control": "private, max-age=31536000, immutable" if is_settled else "no-cache",
        "X-Content-Type-Options": "nosniff",
    }
    known = request.headers.get("if-none-match", "").split(",")
    if headers["ETag"] in [each.strip().removeprefix("W/") for each in known]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


def _read_page_file(path: str) -> tuple[bytes, str] | None:
    """Return the content of a file and its media type; None if it does not exist, or is not for browsers."""
    # The name is compared with the files that exist: nothing from a request becomes a path.
    file = next((each for each in FOLDER.rglob("*") if each.relative_to(FOLDER).as_posix() == path), None)
    if file is None and path == BUNDLE:
        return MISSING_PAGES.encode(), MEDIA_TYPES[".js"]
    media_type = None if file is None else MEDIA_TYPES.get(file.suffix)
    return None if file is None or media_type is None else (file.read_bytes(), media_type)
