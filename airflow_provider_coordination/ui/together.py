"""Several reads in one request: a page refreshes all that it shows at once.

Each read runs as a request of its own, with the same headers: its route decides what the user may see.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, HTTPException, Query, Request, Response
from starlette.types import Message, Scope

MOST = 8
"""How many reads a request may contain."""
PREFIXES = ("connections", "runs")


def router() -> APIRouter:
    """Return the route."""
    routes = APIRouter()
    routes.get("/together")(together)
    return routes


async def together(
    request: Request,
    path: Annotated[list[str], Query(min_length=1, max_length=MOST, description="below `/coordination/`")],
) -> Response:
    """Return the answers to several reads, in their order: for each its `status` and its `body`."""
    for each in path:
        if each.partition("?")[0].split("/")[0] not in PREFIXES:
            raise HTTPException(
                422, f"query.path: only paths below {' and '.join(PREFIXES)} can be read; got {each[:100]!r}"
            )
    answers = await asyncio.gather(*(_read(request, each) for each in path))
    parts = (b'{"status":%d,"body":%b}' % (status, body) for status, body in answers)
    return Response(b"[" + b",".join(parts) + b"]", media_type="application/json")


async def _read(request: Request, path: str) -> tuple[int, bytes]:
    """Return the status of a read, and its body as JSON."""
    scope = _scope_of(request.scope, path)
    start: Message = {"status": 500, "headers": []}
    body = bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = message
        elif message["type"] == "http.response.body":
            body.extend(message.get("body", b""))

    try:
        await request.app(scope, receive, send)
    except Exception as error:  # its route has failed; the other reads have not
        return 500, _detail(f"the request failed with {type(error).__name__}")
    # By its type: parsing each body again would keep the server from other requests.
    is_json = dict(start["headers"]).get(b"content-type", b"").startswith(b"application/json")
    return start["status"], bytes(body) if is_json else _detail(body.decode(errors="replace"))


def _detail(text: str) -> bytes:
    return json.dumps({"detail": text}).encode()


def _scope_of(outer: Scope, path: str) -> Scope:
    raw, _, query = path.partition("?")
    kept = ("type", "asgi", "http_version", "server", "client", "scheme", "root_path", "headers")
    root = outer.get("root_path", "")
    return {
        **{name: outer[name] for name in kept if name in outer},
        "method": "GET",
        "path": f"{root}/{unquote(raw)}",
        "raw_path": f"{root}/{raw}".encode(),
        "query_string": query.encode(),
        "state": {},
    }
