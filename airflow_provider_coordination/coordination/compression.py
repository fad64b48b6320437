"""JSON values as short texts: compressed, since what an item costs on DynamoDB goes by its size."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any

MAX_UNPACKED_BYTES = 16 * 1024 * 1024


def packed(value: Any) -> str:
    """Return a JSON value as a short text of ASCII characters."""
    return base64.b64encode(zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 9)).decode()


def unpacked(text: str) -> Any:
    """Return the JSON value that `packed` was given.

    :raises ValueError: if the text is none of its, or the value is too large.
    """
    decompressor = zlib.decompressobj()
    try:
        content = decompressor.decompress(base64.b64decode(text, validate=True), MAX_UNPACKED_BYTES)
    except (zlib.error, binascii.Error) as error:
        raise ValueError(f"packed text is unreadable: {error}") from None
    if not decompressor.eof:
        raise ValueError("packed text is cut off, or too large")
    return json.loads(content)
