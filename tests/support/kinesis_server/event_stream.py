"""The framing `application/vnd.amazon.eventstream`, in which a subscription sends its events.

A message is its length, the length of its headers and a checksum of both, then headers, payload, and a checksum
of all of it; numbers are big-endian, checksums CRC-32.
"""

from __future__ import annotations

import struct
import zlib

from tests.support.kinesis_server.errors import ApiError
from tests.support.kinesis_server.json_wire import encoded
from tests.support.kinesis_server.state import Body

CONTENT_TYPE = "application/vnd.amazon.eventstream"
_STRING = 7


def initial_response() -> bytes:
    """Return the message that comes before every event."""
    return _event("initial-response", {})


def event(body: Body) -> bytes:
    """Return the message of an event, which is a body under the event's name."""
    [(kind, content)] = body.items()
    return _event(kind, content)


def exception(error: ApiError) -> bytes:
    """Return the message of an error that ends the stream."""
    headers = {
        ":message-type": "exception",
        ":exception-type": error.code,
        ":content-type": "application/json",
    }
    return message(headers, encoded({"message": error.message}))


def message(headers: dict[str, str], payload: bytes) -> bytes:
    """Return a message of these headers, all of them strings, and this payload."""
    packed = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack("!II", 16 + len(packed) + len(payload), len(packed))
    content = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed + payload
    return content + struct.pack("!I", zlib.crc32(content))


def _event(kind: str, content: Body) -> bytes:
    headers = {":message-type": "event", ":event-type": kind, ":content-type": "application/json"}
    return message(headers, encoded(content))


def _header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + struct.pack("!BH", _STRING, len(value.encode())) + value.encode()
