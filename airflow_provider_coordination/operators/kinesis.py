"""Shard sync as a task."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.aws import aws_settings
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.links.leases import LeasesLink
from airflow_provider_coordination.operators.claiming import KINESIS, claim_streams
from airflow_provider_coordination.operators.deduplication import other_source
from airflow_provider_coordination.operators.interval import Interval, interval_value
from airflow_provider_coordination.operators.supplying import EndsWhenKilled
from airflow_provider_coordination.operators.templated import (
    instant_value,
    source_name,
    stream_names,
    text_value,
)
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON, at_timestamp
from airflow_provider_coordination.sources.kinesis.shards import StreamDescription, describe_stream
from airflow_provider_coordination.sources.kinesis.sync import ShardSync, began_at, is_synced
from airflow_provider_coordination.sources.kinesis.sync_summary import ShardSyncSummary

log = logging.getLogger(__name__)

INTERVAL_IS_SYNCED = "the shards of the interval are known"
LEFT_TO = "source {!r} delivers all of the interval"


class KinesisShardSyncOperator(EndsWhenKilled, BaseOperator):
    """Creates the partitions that the shards of Kinesis streams call for, and keeps the two in step.

    It lists the shards, creates what is missing, reports what is gone, and removes the partitions of shards that are
    worked off. It may run at any time, twice, and beside running ingestion; what a job holds it leaves to the job. It
    takes over from an earlier try of its own, waits for the sync of any other worker until that one ends or its lease
    runs out, and fails if neither happens within ten minutes.

    Returns what it found and did, a small mapping: `source`, `streams` (for each stream, among others `created`,
    `removed`, `lost`, `hole` and the `counts` of all), `put_aside` and `skipped`.

    A stream that never existed, missing credentials or permissions, and bad settings fail the task without a retry,
    once the other streams are synced; so does, before anything, a source by whose name another DAG reads something
    else. Data that is lost does not: it is reported, and its partition parked.

    :param stream_name: the stream, or a list of all streams of the source: partitions of a stream that is no longer
        named are put aside, until it is named again. (templated)
    :param source: the source's name; the stream's by default, which needs a name if there are several. (templated)
    :param initial_position: where a stream that is new to the source begins: `"TRIM_HORIZON"`, `"LATEST"`, or an
        instant, as an aware datetime or its ISO 8601 text. (templated)
    :param on_data_loss: what becomes of a partition whose shard, or stream, is gone before it was read: `"fail"` parks
        it, `"reset"` records the gap, finishes it and goes on with what follows. (templated)
    :param interval: begin at the start of an interval, under leases of its own: `"data_interval"` for that of the run,
        or its ends; see `interval_value`. None for no bounds. (templated)
    :param deduplicate_against: the source of live ingestion, by its name: what it delivers, of the interval, is left to
        it, so that no record is delivered twice. None asks for no such thing. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    :param aws_conn_id: the AWS connection; None for the AWS SDK's default chain. (templated)
    :param region_name: the AWS region; wins over the connections'. (templated)
    """

    template_fields: Sequence[str] = (
        "stream_name",
        "source",
        "initial_position",
        "on_data_loss",
        "interval",
        "deduplicate_against",
        "coordination_conn_id",
        "aws_conn_id",
        "region_name",
    )
    ui_color = "#f5e6cc"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        stream_name: str | Sequence[str],
        source: str | None = None,
        initial_position: str | datetime = TRIM_HORIZON,
        on_data_loss: str = "fail",
        interval: str | Sequence[Any] | None = None,
        deduplicate_against: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.stream_name = stream_name
        self.source = source
        self.source_worked_on = ""
        self.initial_position = initial_position
        self.on_data_loss = on_data_loss
        self.interval = interval
        self.deduplicate_against = deduplicate_against
        self.coordination_conn_id = coordination_conn_id
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    def execute(self, context: Context) -> dict[str, Any]:
        """Sync once.

        :raises AirflowFailException: if only a person can put things right.
        :raises CoordinationError: if the store or a stream did not answer, or another worker keeps syncing; a retry may
            help.
        """
        with failing_when_misconfigured():
            streams = stream_names(self.stream_name)
            hook = CoordinationHook(self.coordination_conn_id)
            region = hook.settings.region
            settings = aws_settings(self.aws_conn_id, self.region_name, service="kinesis", default_region=region)
            interval = interval_value(self.interval, context)
            initial_position = self._begins_at(interval)
            source = source_name(text_value(self.source), streams)
            self.source_worked_on = source = source if interval is None else interval.of(source)
            on_data_loss = text_value(self.on_data_loss) or "fail"
            coordinator = hook.coordinator(source, owner_of_try(context))
            with closing(coordinator.store):
                other = other_source(self.deduplicate_against, interval, coordinator, hook.settings, KINESIS)
                claim_streams(coordinator.view, context, streams, settings)
                if interval is not None and other is not None:
                    interval = interval.until(began_at(other, streams))
                    if interval is None:
                        return ShardSyncSummary(source, skipped=LEFT_TO.format(other.source)).to_mapping()
                client = kinesis_client(settings)
                if interval is not None:
                    if is_synced(coordinator.view, streams):
                        # Its shards are known, and their children follow them; what is finished shall stay so.
                        return ShardSyncSummary(source, skipped=INTERVAL_IS_SYNCED).to_mapping()
                    for stream in streams:
                        check_kept(describe_stream(client, stream), interval, on_data_loss)
                sync = ShardSync(client, coordinator, initial_position=initial_position, on_data_loss=on_data_loss)
                with self.supplying():
                    summary = sync.run(streams, forced=True)
                assert summary is not None  # only what is not forced leaves it to others without a word
                return summary.to_mapping()

    def _begins_at(self, interval: Interval | None) -> str:
        position = initial_position_value(self.initial_position)
        if interval is None:
            return position
        if position != TRIM_HORIZON:
            raise ConfigurationError(
                f"fields 'initial_position' and 'interval' are both given; got {self.initial_position!r} and "
                f"{str(interval)!r}: an interval begins at its start"
            )
        return at_timestamp(interval.start)


def check_kept(stream: StreamDescription, interval: Interval, on_data_loss: str) -> None:
    """Check that a stream still keeps what arrived in an interval; log what it does not, where that is to go on.

    :param on_data_loss: `"fail"`, or `"reset"` to go on with what is left.
    :raises ConfigurationError: if it does not keep it, and that is not to go on.
    """
    kept_from = (stream.described_at or datetime.now(UTC)) - timedelta(hours=stream.retention_hours)
    begun = max(interval.start, datetime.fromtimestamp(stream.creation_epoch, UTC))
    if begun >= min(kept_from, interval.end):
        return
    lost = (
        f"stream {stream.name!r} keeps {stream.retention_hours} hours, so what arrived from {begun:%Y-%m-%dT%H:%M:%SZ} "
        f"to {min(kept_from, interval.end):%Y-%m-%dT%H:%M:%SZ} is gone, which interval {interval} asks for"
    )
    if on_data_loss == "fail":
        raise ConfigurationError(f"{lost}; begin later, or go on with what is left by on_data_loss='reset'")
    log.error("data loss: %s", lost)


def initial_position_value(value: Any) -> str:
    """Return where a stream begins, as shard sync takes it.

    :raises ConfigurationError: if it is neither `TRIM_HORIZON`, `LATEST` nor an instant with a time zone.
    """
    text = text_value(value)
    if text is None or text.upper() == TRIM_HORIZON:
        return TRIM_HORIZON
    if text.upper() == LATEST:
        return LATEST
    try:
        instant = None if text == "start" else instant_value("initial_position", value, now=datetime.now(UTC))
    except ConfigurationError:
        instant = None
    if instant is None:
        raise ConfigurationError(
            f"field 'initial_position' must be {TRIM_HORIZON!r}, {LATEST!r} or an instant with a time zone, such as "
            f"'2026-01-01T00:00:00Z'; got {text!r}"
        )
    return at_timestamp(instant)
