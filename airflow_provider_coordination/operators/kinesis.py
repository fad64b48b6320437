"""Shard sync as a task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.hooks.aws import aws_settings
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.sources.kinesis.sync import sync_shards


class KinesisShardSyncOperator(BaseOperator):
    """Creates the partitions that a Kinesis stream's shards call for; existing ones are untouched.

    Returns what it found and did: `stream`, `creation_epoch`, `shards`, `open_shards`, `created` (keys),
    `existing`. It may run at any time, twice, and beside running ingestion. A stream that does not exist,
    missing credentials and bad connections fail the task without a retry.

    :param stream_name: the stream. (templated)
    :param source: the source's name; the stream's by default. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    :param aws_conn_id: the AWS connection; None for the AWS SDK's default chain. (templated)
    :param region_name: the AWS region; wins over the connections'. (templated)
    """

    template_fields: Sequence[str] = (
        "stream_name",
        "source",
        "coordination_conn_id",
        "aws_conn_id",
        "region_name",
    )
    ui_color = "#f5e6cc"

    def __init__(
        self,
        *,
        stream_name: str,
        source: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.stream_name = stream_name
        self.source = source
        self.coordination_conn_id = coordination_conn_id
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    def execute(self, context: Context) -> dict[str, Any]:
        """Sync once.

        :raises AirflowFailException: if only a person can put things right.
        :raises CoordinationError: if the store or the stream did not answer; a retry may help.
        """
        with failing_when_misconfigured():
            hook = CoordinationHook(self.coordination_conn_id)
            region = hook.settings.region
            settings = aws_settings(self.aws_conn_id, self.region_name, service="kinesis", default_region=region)
            coordinator = hook.coordinator(self.source or self.stream_name, owner_of_try(context))
            with closing(coordinator.store):
                return asdict(sync_shards(kinesis_client(settings), coordinator, self.stream_name))
