"""The JSON 1.1 protocol: bytes as base64, instants as seconds since 1970."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import Any

from tests.support.kinesis_server.errors import ApiError

TIMES = ("Timestamp", "StreamCreationTimestamp")


def encoded(body: dict[str, Any]) -> bytes:
    """Return an answer's body as it goes over the wire."""
    return json.dumps(body, default=_scalar, separators=(",", ":")).encode()


def decoded(content: bytes) -> dict[str, Any]:
    """Return the parameters of a request as boto3 takes them.

    :raises ApiError: if they are no JSON.
    """
    try:
        request = json.loads(content or b"{}")
        return {key: _typed(key, value) for key, value in request.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ApiError("SerializationException", f"the request is no JSON of this API: {error}") from None


def _scalar(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"{type(value).__name__} has no place in the JSON of the API")


def _typed(key: str, value: Any) -> Any:
    if key == "Data":
        return b64decode(value, validate=True)
    if key in TIMES:
        return datetime.fromtimestamp(value, UTC)
    if key == "Records":
        return [{inner: _typed(inner, entry[inner]) for inner in entry} for entry in value]
    if isinstance(value, dict):
        return {inner: _typed(inner, value[inner]) for inner in value}
    return value
