"""Checks that a spec can be carried out, with its connections and the source itself, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.aws import AirflowConnections
from airflow_provider_coordination.hooks.connections import airflow_connection
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.limited_calls import LimitedCalls
from airflow_provider_coordination.sources.source_kind import Settings, SourceKind
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.sink_settings import access_of, check_sinks
from airflow_provider_coordination.spark.writes.writes import landing_path_of, sinks_of
from airflow_provider_coordination.supervisor.operations import SourceCheck
from airflow_provider_coordination.supervisor.schema_check import check_fits, implausible_times
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_kinds import reads_kind_of

RESPONSE_SECONDS = 20.0
"""A source that takes longer counts as unavailable: a user or a turn is waiting."""


def _service(kind: SourceKind, settings: Settings) -> Any:
    return kind.service(settings)


def check_against_source(
    spec: IngestionSpec,
    default_region: str | None = None,
    service: Callable[[SourceKind, Settings], Any] = _service,
    response_seconds: float = RESPONSE_SECONDS,
) -> tuple[str, ...]:
    """Check that the sinks have separate locations, that the source exists, and that its data fits the schema.

    The check leases and writes nothing. Of a stream it reads a few records.

    :param default_region: the AWS region to use if nothing else names one; by default the region of the spec's
        coordination connection, if that is defined here.
    :param service: returns the client that queries the source.
    :param response_seconds: how long to wait for the source, in seconds.
    :returns: warnings about connections of jobs that are not defined here, and about implausible times in the records.
    :raises ConfigurationError: naming the field, the value and the remedy.
    :raises SourceError: if the source does not respond.
    """
    connections = AirflowConnections(default_region or _region_of_jobs(spec))
    sinks = sinks_of(spec.sinks, connections)
    landing_path = spec.ingestion.landing_path or landing_path_of(spec.sinks)
    check_sinks(sinks, spec.ingestion.bad_records, spec.ingestion.acknowledgments, landing_path)
    reads = spec.ingestion.reads.connect(connections).reads
    kind: SourceKind = reads.source_kind()
    reads.check()
    try:
        payloads = LimitedCalls().make(
            lambda: kind.sample(service(kind, reads.settings), reads.settings), response_seconds
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"spec: field 'reads.{reads_kind_of(spec.ingestion.reads)}': {error}") from error
    warnings = list(_undefined_connections(spec))
    if spec.ingestion.schema is not None:
        check_fits(spec.ingestion.schema, payloads, spec.ingestion.time_formats)
        warnings += implausible_times(
            spec.ingestion.schema, payloads, spec.ingestion.time_formats, spec.supervise.event_time
        )
    return tuple(warnings)


def _undefined_connections(spec: IngestionSpec) -> Iterator[str]:
    """Yield a warning for each connection of jobs that is not defined here; those of sources and sinks are errors."""
    for field, conn_id in (
        ("tuning.spark.conn_id", spec.tuning.spark.conn_id),
        ("tuning.coordination_conn_id", spec.tuning.coordination_conn_id),
    ):
        remedy = "define it where the DAG of supervised_ingestion runs, or correct the name"
        try:
            airflow_connection(conn_id, f"field {field!r}: connection {conn_id!r}", remedy)
        except ConfigurationError as error:
            yield str(error)


def checks_against_source(default_region: str | None = None, *, connect: bool = True) -> SourceCheck | None:
    """Return the check of a spec before its submission; None if the source must not be queried.

    :param default_region: the AWS region to use if nothing else names one.
    :param connect: whether to query the source and its connections.
    """
    return partial(check_against_source, default_region=default_region) if connect else None


def written_locations(spec: IngestionSpec) -> tuple[list[str], Access]:
    """Return the locations that a spec's jobs write files to, without those below another one, and how to access them.

    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    sinks = sinks_of(spec.sinks, AirflowConnections(_region_of_jobs(spec)))
    landing_path = spec.ingestion.landing_path or landing_path_of(spec.sinks)
    dead_letter_path = spec.ingestion.bad_records.dead_letter_path
    locations = [*(sink.files or sink.location for sink in sinks), landing_path, dead_letter_path or landing_path]
    separate = [path for path in dict.fromkeys(locations) if not any(path.startswith(f"{each}/") for each in locations)]
    return separate, access_of(sinks)


def _region_of_jobs(spec: IngestionSpec) -> str | None:
    with suppress(ConfigurationError):  # a user of the store's URL needs no connection for it
        return CoordinationHook(spec.tuning.coordination_conn_id).settings.region
    return None
