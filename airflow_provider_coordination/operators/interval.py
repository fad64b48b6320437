"""Intervals: what a run of a DAG ingests, exactly, under leases of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.reads.reads import Bounded, Reads
from airflow_provider_coordination.operators.template_values import NOTHING

OF_THE_RUN = "data_interval"
"""What stands for the interval of the DAG run."""
EXAMPLE = "'2026-01-01T00:00:00Z/2026-01-02T00:00:00Z' or '2026-01-01T00:00:00Z/P1D'"


@dataclass(frozen=True)
class Interval:
    """What arrived, or was written, at `start` or later, and before `end`.

    :param start: the first instant (aware, UTC) that is in it.
    :param end: the first instant (aware, UTC) after it.
    :raises ConfigurationError: if it does not start before it ends.
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ConfigurationError(
                f"field 'interval' must start before it ends; got {self}: exchange the two, or leave the run out"
            )

    def __str__(self) -> str:
        """Write it as ISO 8601 does."""
        return f"{_text(self.start)}/{_text(self.end)}"

    def of(self, source: str) -> str:
        """Return the name of the source that holds the leases of this interval: no other run works on them.

        :param source: the name of the whole source, or of the interval already, as a task before may have returned it.
        """
        suffix = f"@{_text(self.start)}--{_text(self.end)}"
        return source if source.endswith(suffix) else source + suffix


def bounded(reads: Reads, interval: Interval | None, *, is_empty: bool = False) -> Reads:
    """Return what a task reads of a source, of an interval if it is given one.

    :param is_empty: read nothing of the interval.
    :raises ConfigurationError: if the kind of source cannot be cut by time, or has bounds of its own.
    """
    if interval is None:
        return reads
    if not isinstance(reads, Bounded):
        raise ConfigurationError(
            f"field 'interval' is {str(interval)!r}, and a source of kind {reads.kind!r} has no time to cut it by: "
            "remove it, or give 'reads' a method 'within'"
        )
    return reads.within(interval.start, interval.start if is_empty else interval.end)


def interval_value(value: Any, context: Mapping[str, Any]) -> Interval | None:
    """Return the interval that a task is told to ingest; None for no bounds.

    :param value: an `Interval`'s ISO 8601 text, a pair of its ends, of which the second may be a duration, or
        `"data_interval"` for that of the run.
    :param context: of the task.
    :raises ConfigurationError: if it is something else, has no time zone, or the run has no interval.
    """
    if isinstance(value, str) and value.strip() in ("", "None"):
        return None
    if value in NOTHING or isinstance(value, Interval):
        return value or None
    if value == OF_THE_RUN:
        return _of_run(context)
    ends = value.split("/") if isinstance(value, str) else value
    if not isinstance(ends, (list, tuple)) or len(ends) != 2:
        raise _refused(value)
    start = _instant(ends[0], value)
    return Interval(start, _end(ends[1], start, value))


def _of_run(context: Mapping[str, Any]) -> Interval:
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None or start == end:
        raise ConfigurationError(
            "field 'interval' is 'data_interval', and this run has none: its DAG is not scheduled by intervals (use "
            "CronDataIntervalTimetable; a cron text alone gives none), or it was started by hand; give its ends, such "
            f"as {EXAMPLE}, for example from params"
        )
    return Interval(start.astimezone(UTC), end.astimezone(UTC))


def _instant(given: Any, of: Any) -> datetime:
    try:
        instant = given if isinstance(given, datetime) else datetime.fromisoformat(str(given).strip())
    except ValueError:
        raise _refused(of) from None
    if instant.tzinfo is None:
        raise ConfigurationError(
            f"field 'interval': {str(given)!r} has no time zone; got {of!r}; write it as {EXAMPLE}"
        )
    return instant.astimezone(UTC)


def _end(given: Any, start: datetime, of: Any) -> datetime:
    if isinstance(given, timedelta):
        return start + given
    if isinstance(given, str) and given.strip().upper().startswith("P"):
        import pendulum

        try:
            duration: Any = pendulum.parse(given.strip())
            return datetime.fromisoformat((pendulum.instance(start) + duration).isoformat()).astimezone(UTC)
        except (ValueError, TypeError):
            raise _refused(of) from None
    return _instant(given, of)


def _refused(value: Any) -> ConfigurationError:
    return ConfigurationError(
        f"field 'interval' must be {OF_THE_RUN!r}, a pair of instants with a time zone, or text such as {EXAMPLE}; got "
        f"{value!r}"
    )


def _text(instant: datetime) -> str:
    text = instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}Z"
