"""JSON values as short, compressed texts, because the cost of an item on DynamoDB depends on its size."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any

MAX_DECOMPRESSED_BYTES = 16 * 1024 * 1024


def compress(value: Any) -> str:
    """Return a JSON value as a short text of ASCII characters."""
    return base64.b64encode(zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 9)).decode()


def decompress(text: str) -> Any:
    """Return the JSON value that `compress` encoded.

    :raises ValueError: if the text is not from `compress`, or the value is too large.
    """
    decompressor = zlib.decompressobj()
    try:
        content = decompressor.decompress(base64.b64decode(text, validate=True), MAX_DECOMPRESSED_BYTES)
    except (zlib.error, binascii.Error) as error:
        raise ValueError(f"compressed text is unreadable: {error}") from None
    if not decompressor.eof:
        raise ValueError("compressed text is incomplete, or its content is too large")
    return json.loads(content)
