"""Setting positions by hand as a task: shards, a stream or a whole source are read anew."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    CoordinationError,
    PartitionUpdateError,
    ProgressError,
)
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.hooks.aws import aws_settings
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.links.leases import LeasesLink
from airflow_provider_coordination.operators.naming import named_partition, some_names, who_and_why
from airflow_provider_coordination.operators.releasing import sets_of
from airflow_provider_coordination.operators.templated import text_value
from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.sources.kinds import Access, SourceKind
from airflow_provider_coordination.sources.resetting import Resets
from airflow_provider_coordination.sources.targets import ResetAction, ResetPlan, ResetStep, Target, target_of

SHOWN_AT_MOST = 10
"""So many partitions are named in a summary."""


class ResetPartitionsOperator(BaseOperator):
    """Reads partitions anew from a position, wherever they stand and whoever works on them.

    Work in flight cannot undo it, and jobs need not be stopped: one that holds a partition loses it and takes it up
    again at the new position. A whole stream is read parents before children.

    Returns the `source`, `to`, the stored `position`, how many partitions were `reset`, `created` and `removed`, the
    first of those as `partitions` with where they stood and who held them, how many were `left` as they are, and the
    first of these with the reason as `left_because`. A retry resets again.

    :param source: the source's name. (templated)
    :param to: `"earliest"`, `"latest"`, an instant (an aware datetime or its ISO 8601 text), or, for one shard, a
        sequence number to read on after. What is no shard has no other position than `"earliest"`. (templated)
    :param stream_name: all shards of this stream; with neither this nor `partition_keys` the whole source. (templated)
    :param shard_id: with `stream_name`: this shard, or these, alone. (templated)
    :param partition_keys: a key, or a list of keys, of any kind of partition. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    :param aws_conn_id: the AWS connection, to list shards; None for the AWS SDK's default chain. (templated)
    :param region_name: the AWS region; wins over the connections'. (templated)
    """

    template_fields: Sequence[str] = (
        "source",
        "to",
        "stream_name",
        "shard_id",
        "partition_keys",
        "coordination_conn_id",
        "aws_conn_id",
        "region_name",
    )
    ui_color = "#f5e6cc"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        source: str,
        to: datetime | str,
        stream_name: str | None = None,
        shard_id: str | Sequence[str] | None = None,
        partition_keys: str | Sequence[str] | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.to = to
        self.stream_name = stream_name
        self.shard_id = shard_id
        self.partition_keys = partition_keys
        self.coordination_conn_id = coordination_conn_id
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    def execute(self, context: Context) -> dict[str, Any]:
        """Reset once.

        :raises AirflowFailException: if only a person can put things right.
        :raises CoordinationError: if the store or the stream did not answer, or a partition could not be reset; a retry
            may help.
        """
        with failing_when_misconfigured():
            target = target_of(self.to, datetime.now(UTC))
            hook = CoordinationHook(self.coordination_conn_id)

            def access(kind: SourceKind) -> Any:
                region = hook.settings.region
                aws = aws_settings(self.aws_conn_id, self.region_name, service=kind.name, default_region=region)
                return kind.service({"aws": write_settings(aws)})

            coordinator = hook.coordinator(self.source, owner_of_try(context))
            with closing(coordinator.store):
                resets = Resets(sets_of(coordinator), **who_and_why(context))
                try:
                    plan = self._plan(coordinator.view, resets, target, access)
                except ProgressError as error:  # what is stored, or asked for, is wrong, and stays so
                    raise ConfigurationError(str(error)) from None
                for warning in plan.warnings:
                    self.log.warning("source %s: %s", self.source, warning)
                done = list(resets.carry_out(plan, as_seen=False))
        summary = self._summary(plan, [(step, result) for step, result in done if isinstance(result, Partition)])
        self.log.info("source %s: positions were set by hand: %s", self.source, summary)
        if failed := [result for _, result in done if isinstance(result, CoordinationError)]:
            raise PartitionUpdateError(
                f"source {self.source!r}: {len(failed)} of {len(done)} partitions could not be reset: {failed[0]}"
            )
        return summary

    def _plan(self, view: SourceView, resets: Resets, target: Target, access: Access) -> ResetPlan:
        stream = text_value(self.stream_name)
        shards, keys = (
            some_names("shard_id", self.shard_id, instead="the name of a shard"),
            some_names("partition_keys", self.partition_keys),
        )
        if keys is not None and (stream is not None or shards is not None):
            raise ConfigurationError("field 'partition_keys' names partitions; give it or 'stream_name' and 'shard_id'")
        if shards is not None and stream is None:
            raise ConfigurationError(f"field 'stream_name' must be given with 'shard_id'; got {self.shard_id!r} alone")
        if keys is not None:
            return resets.of_partitions([named_partition(view, key) for key in keys], target, access)
        if stream is None:
            return resets.of_source(target, access)
        if shards is None:
            return resets.of_group(stream, target, access)
        return resets.of_partitions(resets.named(shards, stream), target, access)

    def _summary(self, plan: ResetPlan, done: Sequence[tuple[ResetStep, Partition]]) -> dict[str, Any]:
        counts = {str(action): sum(step.action is action for step, _ in done) for action in ResetAction}
        former = [step.partition for step, _ in done if step.action is not ResetAction.CREATE]
        return {
            "source": self.source,
            "to": plan.target.name,
            "position": str(plan.target),
            **counts,
            "partitions": [
                {
                    "partition_key": partition.partition_key,
                    "status": str(partition.status),
                    "owner": partition.owner,
                    "before": partition.progress.get("checkpoint"),
                }
                for partition in former[:SHOWN_AT_MOST]
            ],
            "left": len(plan.left),
            "left_because": dict(list(plan.left.items())[:SHOWN_AT_MOST]),
        }
