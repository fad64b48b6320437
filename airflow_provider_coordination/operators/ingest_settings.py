"""Builds the checked settings of a Spark job from what its task ingests."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Context

from airflow_provider_coordination.coordination.acknowledgment import run_name
from airflow_provider_coordination.hooks.aws import AirflowConnections
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.hooks.task_try import owner_of_try
from airflow_provider_coordination.operators.deduplication import (
    deduplicated_source_name,
    other_source,
    remaining_reads,
)
from airflow_provider_coordination.operators.interval import Interval, bounded, interval_value
from airflow_provider_coordination.operators.template_values import int_value
from airflow_provider_coordination.settings import text_value
from airflow_provider_coordination.sources.reads import Reads
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.writes.writes import sinks_of

START_TIMEOUT = timedelta(hours=1)


def ingest_settings(
    ingestion: Ingestion,
    connection: ConnectionSettings,
    context: Context,
    *,
    interval: str | Sequence[Any] | None = None,
    deduplicate_against: str | None = None,
    workers: int | str = 1,
    owner: str | None = None,
    timeout: timedelta | None = None,
) -> IngestSettings:
    """Return the settings of the job of this try of a task.

    :param ingestion: what the job ingests, with its templates rendered.
    :param interval: the interval that it is bounded to; None for no bounds.
    :param deduplicate_against: the name of the source of live ingestion; None to leave nothing out.
    :param workers: the number of jobs that are expected to share the source.
    :param owner: the owner of the job's leases; a new one by default.
    :param timeout: after which time a job does not begin; an hour by default.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    ti: Any = context["ti"]
    connections = AirflowConnections(connection.region)
    options = ingestion.options()
    bounds = interval_value(interval, context)
    source, reads = _source_and_reads(ingestion.reads, options["source"], bounds, deduplicate_against, connection)
    settings = IngestSettings(
        **options
        | {
            "source": source,
            "reads": reads.connect(connections).reads,
            "writes": sinks_of(ingestion.writes, connections),
        },
        owner=owner or owner_of_try(context),
        expires_at=datetime.now(UTC) + (timeout or START_TIMEOUT),
        store=connection.store,
        prefix=connection.prefix,
        run=run_name(ti.dag_id, ti.run_id),
        ownership_timeout=connection.ownership_timeout,
        safety_margin=connection.safety_margin,
        retry_policy=connection.retry_policy,
        traceparent=traceparent_of_task(),
        workers=int_value("workers", workers) or 1,
    )
    settings.check()
    return settings


def _source_and_reads(
    reads: Reads,
    source: str,
    interval: Interval | None,
    deduplicate_against: str | None,
    connection: ConnectionSettings,
) -> tuple[str, Reads]:
    """Return the name of the source whose partitions the job leases, and what it reads."""
    deduplicated_source_name(deduplicate_against, interval)  # raises if there is no interval
    if interval is None:
        return source, reads
    source = interval.source_name(source)
    part = bounded(reads, interval)
    if not part.is_endless or text_value(deduplicate_against) is None:
        return source, part
    coordinator = connection.coordinator(source, f"{source}:bounds")
    with closing(coordinator.store):
        other = other_source(deduplicate_against, interval, coordinator, connection, reads.kind)
        left = remaining_reads(other, reads, interval, coordinator)
    # If the other source delivers all of the interval, the job reads nothing.
    return source, bounded(reads, interval, is_empty=True) if left is None else left


def traceparent_of_task() -> str | None:
    """Return the span of the running task in W3C Trace Context format; None if Airflow records no spans."""
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")
