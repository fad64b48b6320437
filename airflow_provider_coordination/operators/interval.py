"""Intervals: exactly what one DAG run ingests, under its own leases; also without what live ingestion delivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.interval_names import IntervalName, instant_text
from airflow_provider_coordination.coordination.source_claim import SourceClaim, claimed
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.settings import NOTHING, text_value
from airflow_provider_coordination.sources.reads import Reads

OF_THE_RUN = "data_interval"
"""The value that stands for the data interval of the DAG run."""
EXAMPLE = "'2026-01-01T00:00:00Z/2026-01-02T00:00:00Z' or '2026-01-01T00:00:00Z/P1D'"


@dataclass(frozen=True)
class Interval:
    """Everything that arrived or was written from `start` on and before `end`.

    :param start: the first instant (aware, UTC) of the interval.
    :param end: the first instant (aware, UTC) after the interval.
    :raises ConfigurationError: if `start` is not before `end`.
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ConfigurationError(
                f"field 'interval' must start before it ends; got {self}; swap its ends, or skip this run"
            )

    def __str__(self) -> str:
        """Return the interval as ISO 8601 text."""
        return f"{instant_text(self.start)}/{instant_text(self.end)}"

    def source_name(self, source: str) -> str:
        """Return the name of the source that holds the leases of this interval; no other run works on them.

        :param source: the name of the whole source, or already the name of the interval, as returned by an earlier
            task.
        """
        name = str(IntervalName(source=source, start=self.start, end=self.end))
        return source if source.endswith(name.removeprefix(source)) else name


def bounded(reads: Reads, interval: Interval | None, *, is_empty: bool = False) -> Reads:
    """Return `reads`, restricted to an interval if there is one.

    :param is_empty: read nothing of the interval.
    :raises ConfigurationError: if the kind of source has no intervals, or `reads` has its own bounds.
    """
    if interval is None:
        return reads
    return reads.within(interval.start, interval.start if is_empty else interval.end)


def interval_value(value: Any, context: Mapping[str, Any]) -> Interval | None:
    """Return the interval that a task ingests; None means no bounds.

    :param value: an interval as ISO 8601 text, a pair of its ends, of which the second may be a duration, or
        `"data_interval"` for the data interval of the run.
    :param context: the context of the task.
    :raises ConfigurationError: if the value has another form or no time zone, or the run has no data interval.
    """
    if isinstance(value, str) and value.strip() in ("", "None"):
        return None
    if value in NOTHING or isinstance(value, Interval):
        return value or None
    if value == OF_THE_RUN:
        return _of_run(context)
    ends = value.split("/") if isinstance(value, str) else value
    if not isinstance(ends, (list, tuple)) or len(ends) != 2:
        raise _invalid(value)
    start = _instant(ends[0], value)
    return Interval(start, _end(ends[1], start, value))


def _of_run(context: Mapping[str, Any]) -> Interval:
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None or start == end:
        raise ConfigurationError(
            "field 'interval' is 'data_interval', but this run has no data interval: its DAG is not scheduled by "
            "intervals, or a user started the run; use CronDataIntervalTimetable (cron text alone gives no interval), "
            f"or give the ends, such as {EXAMPLE}, for example from params"
        )
    return Interval(start.astimezone(UTC), end.astimezone(UTC))


def _instant(end: Any, value: Any) -> datetime:
    try:
        instant = end if isinstance(end, datetime) else datetime.fromisoformat(str(end).strip())
    except ValueError:
        raise _invalid(value) from None
    if instant.tzinfo is None:
        raise ConfigurationError(
            f"field 'interval': {str(end)!r} has no time zone; got {value!r}; write it as {EXAMPLE}"
        )
    return instant.astimezone(UTC)


def _end(end: Any, start: datetime, value: Any) -> datetime:
    if isinstance(end, timedelta):
        return start + end
    if isinstance(end, str) and end.strip().upper().startswith("P"):
        import pendulum

        try:
            duration: Any = pendulum.parse(end.strip())
            return datetime.fromisoformat((pendulum.instance(start) + duration).isoformat()).astimezone(UTC)
        except (ValueError, TypeError):
            raise _invalid(value) from None
    return _instant(end, value)


def _invalid(value: Any) -> ConfigurationError:
    return ConfigurationError(
        f"field 'interval' must be {OF_THE_RUN!r}, a pair of instants with a time zone, or text such as {EXAMPLE}; got "
        f"{value!r}"
    )


def deduplicated_source_name(deduplicate_against: str | None, interval: Interval | None) -> str | None:
    """Return the name of the source that an interval must not repeat; None if the user names none.

    :param deduplicate_against: the value that the user gave.
    :raises ConfigurationError: if there is no interval.
    """
    name = text_value(deduplicate_against)
    if name is not None and interval is None:
        raise ConfigurationError(
            f"field 'deduplicate_against' is {name!r}, but field 'interval' is missing; give 'interval', which bounds "
            "what is delivered alongside the other source. For a stream it replaces 'bounds'"
        )
    return name


def other_source(
    deduplicate_against: str | None,
    interval: Interval | None,
    coordinator: SourceCoordinator,
    connection: ConnectionSettings,
    kind: str,
) -> SourceCoordinator | None:
    """Return a coordinator of the source that an interval must not repeat; None if the user names none.

    :param deduplicate_against: the source's name, as the user gave it.
    :param coordinator: the coordinator of the interval; the returned one shares its store.
    :param connection: the connection of both.
    :param kind: the kind of source that the task reads.
    :raises ConfigurationError: if there is no interval, no DAG reads a source of that name, or its kind differs.
    """
    name = deduplicated_source_name(deduplicate_against, interval)
    if name is None:
        return None
    field = f"field 'deduplicate_against' is {name!r}"
    other = connection.coordinator(name, coordinator.owner, store=coordinator.store)
    stored = claimed(other.view)
    if stored is None:
        raise ConfigurationError(
            f"{field}, but no DAG has read a source of that name; run the live ingestion first, or correct the name. "
            "'airflow-coordination sources' lists the names"
        )
    if (theirs := SourceClaim.of(stored)).kind != kind:
        raise ConfigurationError(
            f"{field}, which is of kind {theirs.kind!r}, but this task reads {kind!r}; name one of the same kind"
        )
    return other


def remaining_reads(
    other: SourceCoordinator | None, reads: Reads, interval: Interval | None, coordinator: SourceCoordinator
) -> Reads | None:
    """Return the part of a source that a task reads; None if another source delivers all of it.

    :param other: the source that the task must not repeat; None for none.
    :param interval: the interval; None means no bounds.
    :param coordinator: the coordinator of the interval.
    :raises ConfigurationError: if the kind of source has no intervals, or cannot determine what the other one delivers.
    """
    if other is None or interval is None:
        return bounded(reads, interval)
    return reads.beside(other, coordinator, interval.start, interval.end)
