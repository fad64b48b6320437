"""Positions in a shard, as a partition's progress stores them: text whose order is not alphabetical.

A position lies after everything that is delivered; the next read starts there. It is one of

- `TRIM_HORIZON`: before the earliest record that the shard still holds;
- `AT_TIMESTAMP:<instant>`: before the first record that arrived at this instant or later. `LATEST` is never stored:
  the instant of the request is stored instead, so that a pause skips nothing;
- `AT_SEQUENCE_NUMBER:<sequence number>`: before this Kinesis record. Only bounded reads start at such a position;
- `<sequence number>`: after this Kinesis record;
- `<sequence number>:<sub-sequence number>`: inside an aggregated Kinesis record, after this user record. Only
  checkpoints of the Kinesis Client Library are such positions.

Unlike in that library, the timestamp is part of the position and not of the reader's configuration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_provider_coordination.coordination.partition import format_instant, parse_instant

TRIM_HORIZON = "TRIM_HORIZON"
"""The position before the earliest record that a shard still holds."""
AT_TIMESTAMP = "AT_TIMESTAMP"
"""The prefix of a position before the first record from an instant on."""
AT_SEQUENCE_NUMBER = "AT_SEQUENCE_NUMBER"
"""The prefix of a position before a Kinesis record."""
LATEST = "LATEST"
"""After everything that exists now: users may request it, and no stored position has it."""

_ORDER_OF_TIMESTAMPS, _ORDER_OF_TRIM_HORIZON = -3, -2  # as in the Kinesis Client Library, which has LATEST at -1


@dataclass(frozen=True)
class Position:
    """A parsed position; at most one of sequence number and timestamp is set, and neither means TRIM_HORIZON.

    :param sequence_number: the Kinesis record that it follows, lies in, or is before; a decimal number.
    :param sub_sequence_number: the user record that it follows, if it lies inside a Kinesis record; 0 is the first.
    :param timestamp: the instant (aware, UTC) at which it starts.
    :param is_before: whether it is before the record of its sequence number.
    """

    sequence_number: str | None = None
    sub_sequence_number: int | None = None
    timestamp: datetime | None = None
    is_before: bool = False

    @property
    def has_record_ahead(self) -> bool:
        """Whether the record that it names, or a part of it, is not read yet."""
        return self.is_before or self.sub_sequence_number is not None

    def __str__(self) -> str:
        if self.timestamp is not None:
            return at_timestamp(self.timestamp)
        if self.sequence_number is None:
            return TRIM_HORIZON
        if self.is_before:
            return at_sequence_number(self.sequence_number)
        sub = self.sub_sequence_number
        return self.sequence_number if sub is None else f"{self.sequence_number}:{sub}"


def at_timestamp(instant: datetime) -> str:
    """Return the position before the first record that arrived at an instant (aware) or later."""
    return f"{AT_TIMESTAMP}:{format_instant(instant)}"


def aware_instant(value: Any) -> datetime | None:
    """Return the instant (UTC) of a datetime or of ISO 8601 text, if it has a time zone; otherwise None."""
    try:
        instant = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
    except ValueError:
        return None
    return None if instant.tzinfo is None else instant.astimezone(UTC)


def at_sequence_number(number: str) -> str:
    """Return the position before a Kinesis record."""
    return f"{AT_SEQUENCE_NUMBER}:{number}"


def parse_position(text: str) -> Position:
    """Parse a position.

    :raises ValueError: if the text is not a position.
    """
    if text == TRIM_HORIZON:
        return Position()
    kind, colon, rest = text.partition(":")
    if kind == AT_TIMESTAMP and colon:
        try:
            return Position(timestamp=parse_instant(rest))
        except ValueError:
            pass
    elif kind == AT_SEQUENCE_NUMBER and is_number(rest):
        return Position(sequence_number=rest, is_before=True)
    elif is_number(kind) and (not colon or is_number(rest)):
        return Position(sequence_number=kind, sub_sequence_number=int(rest) if colon else None)
    raise ValueError(
        f"position '{text}' is invalid; give {TRIM_HORIZON}, {AT_TIMESTAMP}:<instant in UTC>, <sequence number>, "
        f"<sequence number>:<sub-sequence number>, or {AT_SEQUENCE_NUMBER}:<sequence number>"
    )


def position_order(position: str) -> tuple[int, float]:
    """Return the sort key of a position among those of one shard: sequence numbers compare as integers, not as text.

    Instants come before `TRIM_HORIZON`, and both before every sequence number, as in the Kinesis Client Library. A
    sequence number alone is after all user records of its Kinesis record, and `AT_SEQUENCE_NUMBER` before them.

    :raises ValueError: if the text is not a position.
    """
    parsed = parse_position(position)
    if parsed.timestamp is not None:
        return _ORDER_OF_TIMESTAMPS, parsed.timestamp.timestamp()
    if parsed.sequence_number is None:
        return _ORDER_OF_TRIM_HORIZON, 0
    if parsed.is_before:
        return int(parsed.sequence_number), -1
    sub = parsed.sub_sequence_number
    return int(parsed.sequence_number), math.inf if sub is None else sub


def is_sequence_number(position: str) -> bool:
    """Return whether records of the shard were read: the position follows a record, or lies in one.

    :raises ValueError: if the text is not a position.
    """
    parsed = parse_position(position)
    return parsed.sequence_number is not None and not parsed.is_before


def is_number(text: str) -> bool:
    """Return whether a text is a whole number in decimal digits."""
    return text.isascii() and text.isdigit()
