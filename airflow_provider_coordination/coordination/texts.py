"""Texts for stores and messages: storable in every store, compressed, or shortened."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Sequence
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


def first_of(texts: Sequence[str], limit: int, *, separator: str = ", ") -> str:
    """Return the first texts of a list, and the number of the others: `a, b and 3 more`.

    :param texts: the texts.
    :param limit: the maximum number of texts to name.
    :param separator: what separates them.
    """
    return " ".join(filter(None, (separator.join(texts[:limit]), rest_of(len(texts), limit))))


def rest_of(count: int, limit: int) -> str:
    """Return `and 3 more` if more things exist than a message names; else an empty text.

    :param count: the number of things.
    :param limit: the maximum number that the message names.
    """
    return f"and {count - limit} more" if count > limit else ""


MAX_TEXT_CHARACTERS = 1000


def storable(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """Return a text that every store accepts: of limited length, valid Unicode, and without NUL.

    :param text: text from a user, or an error message.
    :param limit: the maximum number of characters.
    """
    kept = text[:limit].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return kept.encode(errors="replace").decode()


def sentence(error: Exception) -> str:
    """Return the text of an error as a part of a message: one line, without a period."""
    return " ".join(str(error).split()).rstrip(".")
