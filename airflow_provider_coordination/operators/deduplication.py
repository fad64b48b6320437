"""Intervals beside live ingestion: an interval leaves out what another source delivers."""

from __future__ import annotations

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.source_claim import SourceClaim, claimed
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.operators.interval import Interval, bounded
from airflow_provider_coordination.settings import text_value
from airflow_provider_coordination.sources.reads import Deduplicated, Reads


def deduplicated_source_name(deduplicate_against: str | None, interval: Interval | None) -> str | None:
    """Return the name of the source that an interval must not repeat; None if the user names none.

    :param deduplicate_against: the value that the user gave.
    :raises ConfigurationError: if there is no interval.
    """
    name = text_value(deduplicate_against)
    if name is not None and interval is None:
        raise ConfigurationError(
            f"field 'deduplicate_against' is {name!r}, but field 'interval' is missing; give 'interval', which bounds "
            "what is delivered beside the other source. For a stream it replaces 'bounds'"
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
    if not isinstance(reads, Deduplicated):
        raise ConfigurationError(
            f"field 'deduplicate_against' is {other.source!r}, but a source of kind {reads.kind!r} cannot determine "
            "what another source delivers; remove the field, or implement the method 'beside' of 'reads'"
        )
    return reads.beside(other, coordinator, interval.start, interval.end)
