"""What a job's task does before it submits: it claims the source and its delivery, and builds the job's settings.

Tasks that create partitions claim the source, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Context

from airflow_provider_coordination.airflow_names import AirflowSkipException
from airflow_provider_coordination.coordination.acknowledgment import run_name
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import UNFINISHED
from airflow_provider_coordination.coordination.source_claim import DeliveryClaim, SourceClaim, claim
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.suspension import Suspension
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.hooks.task_try import int_value, owner_of_try, seconds_value
from airflow_provider_coordination.operators.interval import (
    Interval,
    bounded,
    deduplicated_source_name,
    interval_value,
    other_source,
    remaining_reads,
)
from airflow_provider_coordination.settings import is_plain, text_value
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.reads import Reads
from airflow_provider_coordination.sources.reset import ABOUT_PREVIOUS_DATA, how_to_forget, left_of
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.writes import sinks_of


@dataclass(frozen=True, kw_only=True)
class RemainingWork:
    """The work that a job would find if it began now.

    :param has_work: whether there is anything to do, now or later.
    :param suspension: how the source is suspended; None if it is not suspended.
    """

    has_work: bool
    suspension: Suspension | None = None


def claim_reads(
    view: SourceView,
    context: Context,
    reads: Reads,
    settings: ReadsSettings | None = None,
    *,
    is_supervised: bool = False,
) -> None:
    """Claim the source that `reads` describes for this task's DAG.

    :param view: the view of the source.
    :param settings: the source settings of a Spark job; None if only `reads` itself knows the location.
    :param is_supervised: whether the location was checked when the spec of a supervisor was submitted.
    :raises ConfigurationError: if another DAG has claimed the source and reads a different location; it names both.
        Also if this DAG has read something else as this source, and the source is not empty.
    """
    ti: Any = context["ti"]
    location = dict(reads.reads_from)
    if settings is not None:
        location.update(settings.source_kind().location(settings.settings))
    mine = SourceClaim(
        dag_id=ti.dag_id, task_id=ti.task_id, claimed_at=view.clock.now(), kind=reads.kind, location=location
    )

    def check_change(before: SourceClaim) -> None:
        left = left_of(before.kind, before.location, mine.kind, mine.location)
        if left and not view.is_empty():
            raise ConfigurationError(
                f"source {view.source!r} has read {', '.join(left)}, and this task reads something else: "
                f"{', '.join(mine.differences(before))}. {ABOUT_PREVIOUS_DATA}; give the task its previous settings, "
                f"or another 'source', or {how_to_forget(view.source)}"
            )

    claim(view, mine, None if is_supervised else check_change)


def claim_delivery(view: SourceView, context: Context, sinks: Sequence[SinkSettings]) -> None:
    """Claim the delivery of a source for this task's DAG.

    :param view: the view of the source.
    :param sinks: all sinks that the job delivers to.
    :raises ConfigurationError: if another DAG has claimed the delivery and uses other locations; it names both.
    """
    ti: Any = context["ti"]
    locations = {
        sink.name: (sink.location.rstrip("/") or sink.location) + ("" if sink.where is None else f" where {sink.where}")
        for sink in sinks
    }
    claim(
        view,
        DeliveryClaim(dag_id=ti.dag_id, task_id=ti.task_id, claimed_at=view.clock.now(), sinks=locations),
    )


def claim_for_job(
    connection: ConnectionSettings,
    context: Context,
    settings: IngestSettings,
    reads: Reads,
    *,
    is_supervised: bool = False,
) -> RemainingWork:
    """Claim the source that a Spark job reads, and its delivery; see `claim_reads` and `claim_delivery`.

    :returns: the work that remains for the job. A finite source has none once all its partitions are COMPLETED.
    :raises StoreUnavailableError: if the store does not respond.
    """
    view = connection.view(settings.source)
    with closing(view.store):
        claim_reads(view, context, reads, settings.reads, is_supervised=is_supervised)
        claim_delivery(view, context, settings.all_sinks)
        ends = settings.reads.source_kind().ends(settings.reads.settings)
        return RemainingWork(
            has_work=not ends or any(view.count_by_status()[status] for status in UNFINISHED),
            suspension=view.suspension(),
        )


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
            "payload": options["payload"].connected(connections),
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


def followed(settings: IngestSettings, start_timeout: object) -> IngestSettings:
    """Return the settings of a job that no process waits for.

    :param start_timeout: how long the job may take to begin, as a user or a template gave it; an hour by default.
    :raises ConfigurationError: if it is no duration.
    """
    seconds = seconds_value("start_timeout", start_timeout)
    timeout = START_TIMEOUT if seconds is None else timedelta(seconds=seconds)
    return replace(settings, is_followed=True, expires_at=datetime.now(UTC) + timeout)


def check_job(ingestion: object, workers: object, group: object) -> None:
    """Check the arguments of a job that are known when a DAG is parsed.

    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if not isinstance(ingestion, Ingestion):
        raise ConfigurationError(
            f"field 'ingestion' must be an Ingestion, such as Ingestion(reads=..., writes=...); got {ingestion!r}"
        )
    ingestion.check(is_plain)
    if is_plain(ingestion.rounds.weight) and is_plain(group):
        ingestion.rounds.check_group(text_value(group), "group")
    if is_plain(workers) and (number := int_value("workers", workers)) is not None and number <= 0:
        raise ConfigurationError(f"field 'workers' must be positive; got {number!r}")


def suspended_skip(source: str, suspension: Suspension) -> AirflowSkipException:
    """Return the exception that skips the task of a suspended source."""
    return AirflowSkipException(
        f"source {source!r} is {suspension}; no job is started until `airflow-coordination resume` resumes it"
    )
