"""The envelopes in which CloudWatch Logs sends log events to streams."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.spark.decoding.errors import UndecodableError

FIRST_MS = round(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1_000
LAST_MS = round(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1_000
"""The last second of a timestamp, in milliseconds since 1970."""
COLUMNS = pa.schema(
    [
        pa.field("log_group", pa.string()),
        pa.field("log_stream", pa.string()),
        pa.field("log_owner", pa.string()),
        pa.field("log_event_id", pa.string()),
        pa.field("log_timestamp", pa.timestamp("us", "UTC")),
    ]
)
"""The columns of a log event beside its message."""
DATA, CONTROL = "DATA_MESSAGE", "CONTROL_MESSAGE"
NOT_AN_ENVELOPE = "the payload is not an envelope of CloudWatch Logs"

Event = tuple[bytes, tuple[Any, ...]]
"""The message of a log event, and the values of `COLUMNS`; its time in microseconds since 1970."""


def log_events(payload: bytes) -> list[Event]:
    """Return the log events of an envelope; a control message has none.

    :raises UndecodableError: if the payload is no such envelope.
    """
    try:
        envelope = json.loads(payload)
    except ValueError:
        raise UndecodableError(f"{NOT_AN_ENVELOPE}: it is not JSON") from None
    kind = envelope.get("messageType") if isinstance(envelope, Mapping) else None
    if kind == CONTROL:  # CloudWatch sends it to test whether the stream can be reached
        return []
    if kind != DATA:
        raise UndecodableError(f"{NOT_AN_ENVELOPE}: its 'messageType' is not {DATA} or {CONTROL}")
    events = envelope.get("logEvents")
    if not isinstance(events, list):
        raise UndecodableError(f"{NOT_AN_ENVELOPE}: its 'logEvents' is not a list")
    around = [_text(envelope, name) for name in ("logGroup", "logStream", "owner")]
    return [_event(number, each, around) for number, each in enumerate(events)]


def _event(number: int, event: Any, around: list[str | None]) -> Event:
    message = event.get("message") if isinstance(event, Mapping) else None
    if not isinstance(message, str):
        raise UndecodableError(f"{NOT_AN_ENVELOPE}: log event {number} has no 'message' of text")
    millis = event.get("timestamp")
    if not isinstance(millis, int) or isinstance(millis, bool):
        raise UndecodableError(f"{NOT_AN_ENVELOPE}: log event {number} has no 'timestamp' in milliseconds")
    if not FIRST_MS <= millis <= LAST_MS:
        raise UndecodableError(f"{NOT_AN_ENVELOPE}: the 'timestamp' of log event {number} is not a time")
    try:
        return message.encode(), (*around, _text(event, "id"), millis * 1_000)
    except UnicodeEncodeError:
        raise UndecodableError(f"{NOT_AN_ENVELOPE}: the 'message' of log event {number} is not text") from None


def _text(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    if not isinstance(value, str | None):
        raise UndecodableError(f"{NOT_AN_ENVELOPE}: its {name!r} is not text")
    return value
