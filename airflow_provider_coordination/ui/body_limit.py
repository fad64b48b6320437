"""What is sent to the application is bounded before anything of it is looked at, and whoever sends it.

The body of a request is read before it is asked who sent it, so a size that is refused by a route is refused too late.
"""

from __future__ import annotations

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airflow_provider_coordination.ui.access import MAX_BODY_CHARACTERS

MAX_BODY_BYTES = 4 * MAX_BODY_CHARACTERS
"""What `MAX_BODY_CHARACTERS` may have in UTF-8; a route counts exactly."""
TOO_LONG = f"the request has more than {MAX_BODY_BYTES} bytes; send less at once, such as fewer partitions"


class BoundedBodies:
    """The application, to which nobody can send more than so much.

    :param app: the application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless it says itself that it is too long; end one that turns out to be."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > MAX_BODY_BYTES:
            await JSONResponse({"detail": TOO_LONG}, 413)(scope, receive, send)
            return
        came = 0

        async def bounded() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > MAX_BODY_BYTES:
                raise HTTPException(413, TOO_LONG)
            return message

        await self._app(scope, bounded, send)
