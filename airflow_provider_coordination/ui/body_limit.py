"""The limit of request bodies, which applies before a body is read and to users who are not logged in too.

FastAPI reads the body of a request before it checks who sent it. So a check in a route would come too late.
"""

from __future__ import annotations

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airflow_provider_coordination.ui.access import MAX_BODY_CHARACTERS

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
