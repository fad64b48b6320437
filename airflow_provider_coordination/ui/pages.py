"""The JavaScript modules of the pages. A route serves them, as a mounted folder would require no login."""

from __future__ import annotations

import asyncio
import hashlib
import re

from fastapi import APIRouter, HTTPException, Request, Response

from airflow_provider_coordination.ui.urls import EDITION_LENGTH, FOLDER, edition

EDITION_PREFIX = re.compile(rf"([0-9a-f]{{{EDITION_LENGTH}}})/")
MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
"""The types of files that are served. All others are not found."""


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    current = edition()

    @routes.get("/static/{path:path}")
    async def static(request: Request, path: str) -> Response:
        """Return a file of the pages."""
        prefix = EDITION_PREFIX.match(path)
        # Not in the threads that query stores: those may hang.
        file = await asyncio.to_thread(_read, path if prefix is None else path[prefix.end() :])
        if file is None:
            raise HTTPException(404, "the pages have no such file")
        return _file_response(request, *file, is_settled=prefix is not None and prefix[1] == current)

    return routes


def _file_response(request: Request, content: bytes, media_type: str, *, is_settled: bool) -> Response:
    """Return a file.

    :param is_settled: whether the URL names the current edition. Then a browser caches the file, so that the many
        modules are fetched once. Otherwise it revalidates each time. A file that is requested by the URL of another
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


def _read(path: str) -> tuple[bytes, str] | None:
    """Return the content of a file and its media type; None if it does not exist, or is not for browsers."""
    # The name is compared with the files that exist: nothing from a request becomes a path.
    file = next((each for each in FOLDER.rglob("*") if each.relative_to(FOLDER).as_posix() == path), None)
    media_type = None if file is None else MEDIA_TYPES.get(file.suffix)
    return None if file is None or media_type is None else (file.read_bytes(), media_type)
