"""Parsing the bounds of a bounded read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.bounds import Bounds, ShardBounds
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON

FIELD = "KinesisStreams: field 'bounds'"
EXAMPLE = (
    "{'start': '2026-01-01T00:00:00Z', 'end': '2026-01-02T00:00:00Z'}, or sequence numbers by shard: "
    "{'start': {'shardId-000000000000': '495...'}, 'end': {'shardId-000000000000': '496...'}}"
)


def bounds_value(value: Any) -> Bounds | None:
    """Parse the bounds of a read; None means no bounds.

    :param value: an object with `start` and `end`. Both are instants (aware), where `start` may be `TRIM_HORIZON`, or
        both are objects with a sequence number for each shard.
    :raises ConfigurationError: if it has another form, or start and end do not match.
    """
    if value in (None, "", "None") or isinstance(value, Bounds):
        return value or None
    if not isinstance(value, Mapping) or set(value) != {"start", "end"}:
        raise ConfigurationError(f"{FIELD} must have 'start' and 'end', such as {EXAMPLE}; got {value!r}")
    start, end = value["start"], value["end"]
    if isinstance(start, Mapping) and isinstance(end, Mapping):
        return _of_shards(start, end)
    if isinstance(start, Mapping) or isinstance(end, Mapping):
        raise ConfigurationError(
            f"{FIELD}: 'start' and 'end' must both be instants, or both have a sequence number for each shard; got "
            f"{value!r}"
        )
    from_earliest = str(start).strip().upper() == TRIM_HORIZON
    first, last = None if from_earliest else _instant("start", start), _instant("end", end)
    if first is not None and first >= last:
        raise ConfigurationError(
            f"{FIELD}: 'start' must be before 'end'; got {str(start)!r} and {str(end)!r}; exchange the two"
        )
    return Bounds(start=first, end=last)


def _of_shards(start: Mapping[Any, Any], end: Mapping[Any, Any]) -> Bounds:
    if only := sorted(set(map(str, start)) ^ set(map(str, end))):
        named = "start" if only[0] in map(str, start) else "end"
        raise ConfigurationError(
            f"{FIELD}: 'start' and 'end' must name the same shards, but only {named!r} names {only[0]!r}; give "
            "it both, or leave it out"
        )
    if not start:
        raise ConfigurationError(
            f"{FIELD} must name at least one shard; got {{}}; give each shard its sequence numbers"
        )
    return Bounds(
        shards=tuple(
            ShardBounds(
                shard_id=str(shard), start=_number("start", shard, start[shard]), end=_number("end", shard, end[shard])
            )
            for shard in start
        )
    )


def _number(field: str, shard: Any, value: Any) -> str:
    text = str(value).strip()
    if isinstance(value, bool | float) or not (text.isascii() and text.isdigit()):
        raise ConfigurationError(
            f"{FIELD}: {field!r} of shard {shard!r} must be a sequence number in decimal digits; got {value!r}"
        )
    return str(int(text))


def _instant(field: str, value: Any) -> datetime:
    try:
        instant = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        also = f" or {TRIM_HORIZON!r}" if field == "start" else ""
        raise ConfigurationError(
            f"{FIELD}: {field!r} must be an instant with a time zone, such as '2026-01-01T00:00:00Z'{also}; got "
            f"{str(value)!r}"
        )
    return instant
