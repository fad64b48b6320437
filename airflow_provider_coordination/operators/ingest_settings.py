"""What a task says of its Spark job, checked and put into the settings that the job is given."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.acknowledgment import run_name
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.aws import aws_settings
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.hooks.task_try import owner_of_try
from airflow_provider_coordination.operators.claiming import KINESIS
from airflow_provider_coordination.operators.deduplication import against, other_source
from airflow_provider_coordination.operators.interval import Interval, bounded, interval_value
from airflow_provider_coordination.operators.templated import (
    NOTHING,
    instant_value,
    resolved,
    seconds_value,
    source_name,
    stream_names,
    text_value,
    whole_value,
    yes_or_no_value,
)
from airflow_provider_coordination.operators.tracing import traceparent_of_task
from airflow_provider_coordination.operators.writes.writes import landing_path_of, sinks_of
from airflow_provider_coordination.sources.kinesis.sync import began_at
from airflow_provider_coordination.sources.readers import ReaderSettings
from airflow_provider_coordination.spark.settings import IngestSettings

if TYPE_CHECKING:
    from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator

START_TIMEOUT = timedelta(hours=1)
OF_STREAMS = (
    "aws_conn_id",
    "region_name",
    "stop_at",
    "on_data_loss",
    "filter_by_hash_range",
    "consumer_name",
    "shard_sync_interval",
    "repartition_transition_duration",
)
"""The parameters that mean nothing to a job that reads no stream."""


@dataclass(frozen=True, kw_only=True)
class _Origin:
    """What a job reads.

    :param source: the source's name.
    :param streams: the streams; none where `reader` says what is read.
    :param kinesis: how to reach them.
    :param reader: what reads another kind of source.
    :param bounds: the settings that keep a job that reads streams to its interval.
    """

    source: str
    streams: tuple[str, ...] = ()
    kinesis: AwsSettings = field(default_factory=AwsSettings)
    reader: ReaderSettings | None = None
    bounds: Mapping[str, Any] = field(default_factory=dict)


def ingest_settings(
    task: CoordinatedSparkSubmitOperator, connection: ConnectionSettings, context: Context
) -> IngestSettings:
    """Return what the job of this try of a task is told.

    :param task: its templates rendered.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    ti: Any = context["ti"]
    tuning = {
        "repartition_transition_seconds": seconds_value(
            "repartition_transition_duration", task.repartition_transition_duration
        ),
    }
    sync_interval = seconds_value("shard_sync_interval", task.shard_sync_interval)
    origin = _origin(task, connection, interval_value(task.interval, context))
    settings = IngestSettings(
        source=origin.source,
        owner=owner_of_try(context),
        streams=origin.streams,
        reader=origin.reader,
        expires_at=datetime.now(UTC) + (task.execution_timeout or START_TIMEOUT),
        store=connection.store,
        prefix=connection.prefix,
        kinesis=origin.kinesis,
        writes=sinks_of(task.writes),
        landing_path=text_value(task.landing_path) or landing_path_of(task.writes),
        transform=text_value(task.transform),
        schema=text_value(task.schema),
        bad_records=resolved(task.on_bad_records),
        acknowledgments=resolved(task.acknowledgments),
        leases=resolved(task.leases),
        rounds=resolved(task.rounds),
        run=run_name(ti.dag_id, ti.run_id),
        ownership_timeout=connection.ownership_timeout,
        safety_margin=connection.safety_margin,
        retry_policy=connection.retry_policy,
        traceparent=traceparent_of_task(),
        workers=whole_value("workers", task.workers) or 1,
        on_data_loss=str(task.on_data_loss),
        filter_by_hash_range=yes_or_no_value("filter_by_hash_range", task.filter_by_hash_range),
        consumer_name=text_value(task.consumer_name),
        **{
            "stop_at": instant_value("stop_at", task.stop_at, now=datetime.now(UTC)),
            "shard_sync_interval_seconds": (
                IngestSettings.shard_sync_interval_seconds if sync_interval is None else sync_interval or None
            ),
            **origin.bounds,
            **{name: value for name, value in tuning.items() if value is not None},
        },
    )
    settings.check()
    return settings


def _origin(task: CoordinatedSparkSubmitOperator, connection: ConnectionSettings, interval: Interval | None) -> _Origin:
    source = text_value(task.source)
    is_shared = against(task.deduplicate_against, interval) is not None
    if task.reads is not None:
        _check_no_streams(task, task.reads.kind)
        source = source or task.reads.default_source
        return _Origin(
            source=source if interval is None else interval.of(source),
            reader=bounded(task.reads, interval).connect().reader,
        )
    streams = stream_names(task.stream_name)
    source = source_name(source, streams)
    if interval is not None and task.stop_at not in NOTHING:
        raise ConfigurationError(
            f"fields 'stop_at' and 'interval' are both given; got {str(task.stop_at)!r} and {str(interval)!r}: an "
            "interval stops at its end"
        )
    interval_of_source = source if interval is None else interval.of(source)
    bounds: dict[str, Any] = {}
    if interval is not None:
        stop_at = interval.end
        if is_shared:
            stop_at = _left_of(task, connection, interval, interval_of_source, streams)
        bounds = {"stop_at": stop_at, "finish_at_stop": True, "shard_sync_interval_seconds": None}
    return _Origin(
        source=interval_of_source,
        streams=streams,
        bounds=bounds,
        kinesis=aws_settings(
            text_value(task.aws_conn_id),
            text_value(task.region_name),
            service="kinesis",
            default_region=connection.region,
        ),
    )


def _left_of(
    task: CoordinatedSparkSubmitOperator,
    connection: ConnectionSettings,
    interval: Interval,
    source: str,
    streams: tuple[str, ...],
) -> datetime:
    """Return where what is left of an interval of streams ends, beside another source that reads them."""
    coordinator = connection.coordinator(source, f"{source}:bounds")
    with closing(coordinator.store):
        other = other_source(task.deduplicate_against, interval, coordinator, connection, KINESIS)
        assert other is not None
        left = interval.until(began_at(other, streams))
        return interval.start if left is None else left.end


def _check_no_streams(task: Any, kind: str) -> None:
    """Check that nothing is said that only a stream has.

    What all tasks of the DAG are given by `default_args` is passed over: it is not said of this one.
    """
    parameters = inspect.signature(type(task).__init__).parameters
    shared: Any = task.dag.default_args if task.has_dag() else {}
    for name in OF_STREAMS:
        value, default = getattr(task, name), parameters[name].default
        if value == default or (default is None and value in NOTHING) or (name in shared and shared[name] == value):
            continue
        raise ConfigurationError(
            f"field {name!r} is of Kinesis streams, and this task reads {kind!r}; got {value!r}: remove it"
        )
