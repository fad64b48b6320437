"""Shard sync as a task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.aws import aws_settings
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.operators.templated import (
    instant_value,
    source_name,
    stream_names,
    text_value,
)
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON, at_timestamp
from airflow_provider_coordination.sources.kinesis.sync import ShardSync


class KinesisShardSyncOperator(BaseOperator):
    """Creates the partitions that the shards of Kinesis streams call for, and keeps the two in step.

    It lists the shards, creates what is missing, reports what is gone, and removes the partitions of shards that are
    worked off. It may run at any time, twice, and beside running ingestion; what a job holds it leaves to the job.

    Returns what it found and did, a small mapping: `source`, `streams` (for each stream, among others `created`,
    `removed`, `lost`, `hole` and the `counts` of all), `put_aside` and `skipped`.

    A stream that never existed, missing credentials or permissions, and bad settings fail the task without a retry,
    once the other streams are synced. Data that is lost does not: it is reported, and its partition parked.

    :param stream_name: the stream, or a list of all streams of the source: partitions of a stream that is no longer
        named are put aside, until it is named again. (templated)
    :param source: the source's name; the stream's by default, which needs a name if there are several. (templated)
    :param initial_position: where a stream that is new to the source begins: `"TRIM_HORIZON"`, `"LATEST"`, or an
        instant, as an aware datetime or its ISO 8601 text. (templated)
    :param on_data_loss: what becomes of a partition whose shard, or stream, is gone before it was read: `"fail"` parks
        it, `"reset"` records the gap, finishes it and goes on with what follows. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    :param aws_conn_id: the AWS connection; None for the AWS SDK's default chain. (templated)
    :param region_name: the AWS region; wins over the connections'. (templated)
    """

    template_fields: Sequence[str] = (
        "stream_name",
        "source",
        "initial_position",
        "on_data_loss",
        "coordination_conn_id",
        "aws_conn_id",
        "region_name",
    )
    ui_color = "#f5e6cc"

    def __init__(
        self,
        *,
        stream_name: str | Sequence[str],
        source: str | None = None,
        initial_position: str | datetime = TRIM_HORIZON,
        on_data_loss: str = "fail",
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.stream_name = stream_name
        self.source = source
        self.initial_position = initial_position
        self.on_data_loss = on_data_loss
        self.coordination_conn_id = coordination_conn_id
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    def execute(self, context: Context) -> dict[str, Any]:
        """Sync once.

        :raises AirflowFailException: if only a person can put things right.
        :raises CoordinationError: if the store or a stream did not answer; a retry may help.
        """
        with failing_when_misconfigured():
            streams = stream_names(self.stream_name)
            hook = CoordinationHook(self.coordination_conn_id)
            region = hook.settings.region
            settings = aws_settings(self.aws_conn_id, self.region_name, service="kinesis", default_region=region)
            source = source_name(text_value(self.source), streams)
            initial_position = initial_position_value(self.initial_position)
            coordinator = hook.coordinator(source, owner_of_try(context))
            with closing(coordinator.store):
                sync = ShardSync(
                    kinesis_client(settings),
                    coordinator,
                    initial_position=initial_position,
                    on_data_loss=text_value(self.on_data_loss) or "fail",
                )
                summary = sync.run(streams, forced=True)
                assert summary is not None  # only what is not forced leaves it to others without a word
                return summary.to_mapping()


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
