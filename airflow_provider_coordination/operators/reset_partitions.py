"""Setting positions by hand as a task: partitions, a part of a source or all of it are read anew."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    CoordinationError,
    PartitionUpdateError,
    ProgressError,
)
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.links.leases import LeasesLink
from airflow_provider_coordination.operators.moved_arguments import check_arguments
from airflow_provider_coordination.operators.partition_names import some_names, who_and_why
from airflow_provider_coordination.operators.reads.reads import Parted, Reads, own_copy, source_of
from airflow_provider_coordination.operators.set_releases import sets_of
from airflow_provider_coordination.sources.kinds import Access, SourceKind
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import ResetAction, ResetPlan, ResetStep, Target, target_of

SHOWN_AT_MOST = 10
"""So many partitions are named in a summary."""


class ResetPartitionsOperator(BaseOperator):
    """Reads partitions anew from a position, wherever they stand and whoever works on them.

    Work in flight cannot undo it, and jobs need not be stopped: one that holds a partition loses it and takes it up
    again at the new position. A whole stream is read parents before children.

    Returns the `source`, `to`, the stored `position`, how many partitions were `reset`, `created` and `removed`, the
    first of those as `partitions` with where they stood and who held them, how many were `left` as they are, and the
    first of these with the reason as `left_because`. A retry resets again.

    :param source: the source's name; by default what `reads` calls it. (templated)
    :param to: `"earliest"`, `"latest"`, an instant (an aware datetime or its ISO 8601 text), or, for one partition, a
        position as its source writes it, such as a sequence number, to read on after. What is cut into items has no
        other position than `"earliest"`. (templated)
    :param reads: the source as the jobs read it, where its service has to be asked: parts of it, such as streams, that
        belong together are read anew in their order. Of the source, these parts alone are reset. (templated)
    :param partition_keys: these partitions alone: a key, or a list of keys, or what the kind of source calls them, such
        as the ids of shards. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = (
        "source",
        "to",
        "reads",
        "partition_keys",
        "coordination_conn_id",
    )
    ui_color = "#f5e6cc"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        to: datetime | str,
        source: str | None = None,
        reads: Reads | None = None,
        partition_keys: str | Sequence[str] | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        check_arguments(type(self).__name__, kwargs)
        if reads is None and source is None:
            raise ValueError("field 'source' is missing: without 'reads' nothing else names the source")
        super().__init__(**kwargs)
        self.source = source
        self.to = to
        self.reads: Reads | None = own_copy(reads)
        self.partition_keys = partition_keys
        self.coordination_conn_id = coordination_conn_id

    def prepare_for_execution(self) -> Self:
        """Return the task that is run, with templates of its own to render."""
        prepared = super().prepare_for_execution()
        prepared.reads = own_copy(self.reads)
        return prepared

    def execute(self, context: Context) -> dict[str, Any]:
        """Reset once.

        :raises AirflowFailException: if only a person can put things right.
        :raises CoordinationError: if the store or the source did not answer, or a partition could not be reset; a retry
            may help.
        """
        with failing_when_misconfigured():
            target = target_of(self.to, datetime.now(UTC))
            hook = CoordinationHook(self.coordination_conn_id)
            source = source_of(self.source, self.reads)
            coordinator = hook.coordinator(source, owner_of_try(context))
            with closing(coordinator.store):
                resets = Resets(sets_of(coordinator), **who_and_why(context))
                try:
                    plan = self._plan(resets, target, partial(self._service, hook.settings.region))
                except ProgressError as error:  # what is stored, or asked for, is wrong, and stays so
                    raise ConfigurationError(str(error)) from None
                for warning in plan.warnings:
                    self.log.warning("source %s: %s", source, warning)
                done = list(resets.carry_out(plan, as_seen=False))
        written = [(step, result) for step, result in done if isinstance(result, Partition)]
        summary = self._summary(source, plan, written)
        self.log.info("source %s: positions were set by hand: %s", source, summary)
        if failed := [result for _, result in done if isinstance(result, CoordinationError)]:
            raise PartitionUpdateError(
                f"source {source!r}: {len(failed)} of {len(done)} partitions could not be reset: {failed[0]}"
            )
        return summary

    def _service(self, region: str | None, kind: SourceKind) -> Any:
        """Return what asks a source of a kind."""
        if self.reads is None or self.reads.kind != kind.name:
            raise ConfigurationError(
                f"field 'reads' is missing: a source of kind {kind.name!r} is asked what it holds; give 'reads' as the "
                "jobs have it, or name partitions by 'partition_keys'"
            )
        return kind.service(self.reads.connect(region).reads.settings)

    def _plan(self, resets: Resets, target: Target, access: Access) -> ResetPlan:
        keys = some_names("partition_keys", self.partition_keys)
        reads: object = self.reads
        parts = reads.parts if isinstance(reads, Parted) else ()
        if keys is not None:
            partitions = resets.named(keys, parts[0] if len(parts) == 1 else None)
            return resets.of_partitions(partitions, target, None if self.reads is None else access)
        if not parts:
            return resets.of_source(target, access)
        return resets.of_groups(parts, target, access)

    def _summary(self, source: str, plan: ResetPlan, done: Sequence[tuple[ResetStep, Partition]]) -> dict[str, Any]:
        counts = {str(action): sum(step.action is action for step, _ in done) for action in ResetAction}
        former = [step.partition for step, _ in done if step.action is not ResetAction.CREATE]
        return {
            "source": source,
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
