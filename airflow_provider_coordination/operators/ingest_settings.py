"""Builds the checked settings of a Spark job from the fields of its task."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

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
from airflow_provider_coordination.operators.template_values import int_value, resolved
from airflow_provider_coordination.settings import text_value
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.reads import Reads
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.writes.writes import landing_path_of, sinks_of

if TYPE_CHECKING:
    from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator


START_TIMEOUT = timedelta(hours=1)


def ingest_settings(
    task: CoordinatedSparkSubmitOperator, connection: ConnectionSettings, context: Context, owner: str | None = None
) -> IngestSettings:
    """Return the settings of the job of this try of a task.

    :param task: the task, with its templates rendered.
    :param owner: the owner of the job's leases; a new one by default.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    ti: Any = context["ti"]
    source, reads = _source_and_reads(task, connection, interval_value(task.interval, context))
    settings = IngestSettings(
        source=source,
        owner=owner or owner_of_try(context),
        reads=reads,
        writes=sinks_of(task.writes, AirflowConnections(connection.region)),
        expires_at=datetime.now(UTC) + (task.execution_timeout or START_TIMEOUT),
        store=connection.store,
        prefix=connection.prefix,
        landing_path=text_value(task.landing_path) or landing_path_of(task.writes),
        transform=text_value(task.transform),
        per_batch=task.per_batch,
        schema=text_value(task.schema),
        time_formats=task.time_formats,
        bad_records=task.on_bad_records.resolved(),
        rejection=task.rejection.resolved(),
        acknowledgments=task.acknowledgments.resolved(),
        leases=resolved(task.leases),
        rounds=task.rounds.resolved(),
        run=run_name(ti.dag_id, ti.run_id),
        ownership_timeout=connection.ownership_timeout,
        safety_margin=connection.safety_margin,
        retry_policy=connection.retry_policy,
        traceparent=traceparent_of_task(),
        workers=int_value("workers", task.workers) or 1,
    )
    settings.check()
    return settings


def _source_and_reads(
    task: CoordinatedSparkSubmitOperator, connection: ConnectionSettings, interval: Interval | None
) -> tuple[str, ReadsSettings]:
    """Return the source's name and the settings of its reader."""
    source = text_value(task.source) or task.reads.default_source
    deduplicated_source_name(task.deduplicate_against, interval)  # raises if there is no interval
    if interval is None:
        return source, task.reads.connect(AirflowConnections(connection.region)).reads
    source = interval.source_name(source)
    reads = bounded(task.reads, interval)
    if reads.is_endless and text_value(task.deduplicate_against) is not None:
        reads = _deduplicated_reads(task, connection, interval, source)
    return source, reads.connect(AirflowConnections(connection.region)).reads


def _deduplicated_reads(
    task: CoordinatedSparkSubmitOperator, connection: ConnectionSettings, interval: Interval, source: str
) -> Reads:
    """Return the part of an endless source's interval that another source does not deliver."""
    coordinator = connection.coordinator(source, f"{source}:bounds")
    with closing(coordinator.store):
        other = other_source(task.deduplicate_against, interval, coordinator, connection, task.reads.kind)
        left = remaining_reads(other, task.reads, interval, coordinator)
    # If the other source delivers all of the interval, the job reads nothing.
    return bounded(task.reads, interval, is_empty=True) if left is None else left


def traceparent_of_task() -> str | None:
    """Return the span of the running task in W3C Trace Context format; None if Airflow records no spans."""
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")
