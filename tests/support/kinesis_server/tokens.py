"""Opaque tokens of the service: shard iterators, and tokens of listings."""

from __future__ import annotations

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode


def token(*fields: object) -> str:
    """Return a token that stands for these fields."""
    content = "\n".join(map(str, fields)).encode()
    return urlsafe_b64encode(zlib.crc32(content).to_bytes(4, "big") + content).decode()


def fields_of(text: str, count: int) -> list[str] | None:
    """Return what a token stands for; None if it is no token of this number of fields."""
    try:
        raw = urlsafe_b64decode(text.encode())
    except (binascii.Error, ValueError):
        return None
    checksum, content = raw[:4], raw[4:]
    if int.from_bytes(checksum, "big") != zlib.crc32(content):
        return None
    fields = content.decode().split("\n")
    return fields if len(fields) == count else None
