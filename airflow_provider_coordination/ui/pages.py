"""The modules of the pages, for whoever is logged in: a mounted folder would be open to the world."""

from __future__ import annotations

import asyncio
import hashlib
import re

from fastapi import APIRouter, HTTPException, Request, Response

from airflow_provider_coordination.ui.urls import EDITION_LENGTH, FOLDER, edition

OF_EDITION = re.compile(rf"([0-9a-f]{{{EDITION_LENGTH}}})/")
MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
"""What is served; anything else is not there."""


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    current = edition()

    @routes.get("/static/{path:path}")
    async def static(request: Request, path: str) -> Response:
        """Return a file of the pages."""
        named = OF_EDITION.match(path)
        # Not in the threads in which stores are asked: those may hang.
        found = await asyncio.to_thread(_read, path if named is None else path[named.end() :])
        if found is None:
            raise HTTPException(404, "there is no such file")
        return _answer(request, *found, is_settled=named is not None and named[1] == current)

    return routes


def _answer(request: Request, content: bytes, media_type: str, *, is_settled: bool) -> Response:
    """Return a file.

    :param is_settled: whether the address says which edition it is of, and rightly: then a browser keeps it, so that
        the many modules are fetched once. Else it asks each time, and is told where it has it already. What comes by
        the address of another edition, while servers are upgraded, is not to be kept.
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
    """Return the content of a file and its media type; None if there is none, or it is not for browsers."""
    # What is there is compared with what is asked for: nothing that is asked for becomes a path.
    file = next((each for each in FOLDER.rglob("*") if each.relative_to(FOLDER).as_posix() == path), None)
    media_type = None if file is None else MEDIA_TYPES.get(file.suffix)
    return None if file is None or media_type is None else (file.read_bytes(), media_type)
