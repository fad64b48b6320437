"""Intervals beside live ingestion: what another source delivers is left to it."""

from __future__ import annotations

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.source_claim import SourceClaim, claimed
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.operators.interval import Interval, bounded
from airflow_provider_coordination.operators.reads.reads import Deduplicated, Reads
from airflow_provider_coordination.operators.template_values import text_value


def against(deduplicate_against: str | None, interval: Interval | None) -> str | None:
    """Return the name of the source that an interval is not to repeat; None if it is told of none.

    :param deduplicate_against: as the user gives it.
    :raises ConfigurationError: if there is no interval.
    """
    name = text_value(deduplicate_against)
    if name is not None and interval is None:
        raise ConfigurationError(
            f"field 'deduplicate_against' is {name!r}, and field 'interval' is missing: it bounds what is delivered "
            "beside the other source; give 'interval', also in place of the 'bounds' of a stream"
        )
    return name


def other_source(
    deduplicate_against: str | None,
    interval: Interval | None,
    coordinator: SourceCoordinator,
    connection: ConnectionSettings,
    kind: str,
) -> SourceCoordinator | None:
    """Return a coordinator of the source that an interval is not to repeat; None if it is told of none.

    :param deduplicate_against: the source's name, as the user gives it.
    :param coordinator: of the interval; the store is its own.
    :param connection: of both.
    :param kind: the kind of source that is read.
    :raises ConfigurationError: if there is no interval, no DAG reads a source of that name, or it is of another kind.
    """
    name = against(deduplicate_against, interval)
    if name is None:
        return None
    what = f"field 'deduplicate_against' is {name!r}"
    other = connection.coordinator(name, coordinator.owner, store=coordinator.store)
    stored = claimed(other.view)
    if stored is None:
        raise ConfigurationError(
            f"{what}, and no DAG has read a source of that name: run the live ingestion first, or correct the name, as "
            "'airflow-coordination sources' shows it"
        )
    if (theirs := SourceClaim.of(stored)).kind != kind:
        raise ConfigurationError(
            f"{what}, which is of kind {theirs.kind!r}, and this task reads {kind!r}: name a source that reads the same"
        )
    return other


def left_by(
    other: SourceCoordinator | None, reads: Reads, interval: Interval | None, coordinator: SourceCoordinator
) -> Reads | None:
    """Return what a task reads of a source; None if another source delivers all of it.

    :param other: the source that it is not to repeat; None for none.
    :param interval: None for no bounds.
    :param coordinator: of the interval.
    :raises ConfigurationError: if the kind of source cannot be cut, or cannot tell what the other one delivers.
    """
    if other is None or interval is None:
        return bounded(reads, interval)
    if not isinstance(reads, Deduplicated):
        raise ConfigurationError(
            f"field 'deduplicate_against' is {other.source!r}, and a source of kind {reads.kind!r} cannot tell what "
            "another one delivers: remove it, or give 'reads' a method 'beside'"
        )
    return reads.beside(other, coordinator, interval.start, interval.end)
