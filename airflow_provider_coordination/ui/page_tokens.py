"""The opaque texts by which a client asks for the next page of a list."""

from __future__ import annotations

import base64
import json

from fastapi import HTTPException


def write_token(order: str, *parts: object) -> str:
    """Return a position in an order as opaque text.

    :param order: the name of the order.
    :param parts: the position, as JSON values.
    """
    return base64.urlsafe_b64encode(json.dumps([order, *parts]).encode()).decode().rstrip("=")


def read_token(text: str, order: str) -> list[object]:
    """Return the parts of a position that `write_token` wrote.

    :raises ValueError: if the text is no token, or belongs to another order.
    """
    parts = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    if not isinstance(parts, list) or not parts or parts[0] != order:
        raise ValueError(text)
    return parts[1:]


def token_refused() -> HTTPException:
    """Return the response to a token that is not of the requested list."""
    return HTTPException(422, "query.after: not the 'next' of a page in this order; start again without it")
