"""Task that resets positions: partitions, a part of a source or all of it are read again."""

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
from airflow_provider_coordination.hooks.aws import AirflowConnections
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.links.leases import LeasesLink
from airflow_provider_coordination.operators.partition_names import audit_fields, optional_names
from airflow_provider_coordination.operators.set_releases import sets_of
from airflow_provider_coordination.sources.reads import Parted, Reads, own_copy, source_of
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import ResetAction, ResetPlan, ResetStep, Target, parse_target
from airflow_provider_coordination.sources.source_kind import Access, SourceKind

MAX_SHOWN = 10
"""The maximum number of partitions that a summary names."""


class ResetPartitionsOperator(BaseOperator):
    """Reads partitions again from a position, whatever their status and owner.

    Work in progress cannot undo the reset, and jobs need not be stopped: a job that holds a partition loses it, and
    acquires it again at the new position. A whole stream is read parents before children.

    Returns the `source`, `to`, the stored `position`, the number of partitions that were `reset`, `created` and
    `removed`, the first of those as `partitions` with their previous position and owner, the number that were `left` as
    they are, and the first of these with the reason as `left_because`. A retry resets again.

    :param source: the source's name; by default `reads` provides it. (templated)
    :param to: `"earliest"`, `"latest"`, an instant (an aware datetime or its ISO 8601 text), or, for one partition, a
        position in the form of its source, such as a sequence number, after which reading continues. A source of items
        has no position other than `"earliest"`. (templated)
    :param reads: the source as the jobs read it. It is needed if its service must be queried: parts that belong
        together, such as the shards of a stream, are read again in their order. Only the parts that it names are reset.
        (templated)
    :param partition_keys: reset only these partitions: a key, or a list of keys, or the names that the kind of source
        uses, such as shard ids. (templated)
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
        if reads is None and source is None:
            raise ValueError("field 'source' is missing: give it, or give 'reads', which names the source")
        super().__init__(**kwargs)
        self.source = source
        self.to = to
        self.reads: Reads | None = own_copy(reads)
        self.partition_keys = partition_keys
        self.coordination_conn_id = coordination_conn_id

    def prepare_for_execution(self) -> Self:
        """Return the copy of this task that runs; it renders its own templates."""
        prepared = super().prepare_for_execution()
        prepared.reads = own_copy(self.reads)
        return prepared

    def execute(self, context: Context) -> dict[str, Any]:
        """Reset the positions.

        :raises AirflowFailException: for an error that only a user can fix.
        :raises CoordinationError: if the store or the source did not respond, or a partition could not be reset; a
            retry may succeed.
        """
        with failing_when_misconfigured():
            target = parse_target(self.to, datetime.now(UTC))
            hook = CoordinationHook(self.coordination_conn_id)
            source = source_of(self.source, self.reads)
            coordinator = hook.coordinator(source, owner_of_try(context))
            with closing(coordinator.store):
                resets = Resets(sets_of(coordinator), **audit_fields(context))
                try:
                    plan = self._plan(resets, target, partial(self._service, hook.settings.region))
                except ProgressError as error:  # the stored progress or the requested position is invalid
                    raise ConfigurationError(str(error)) from None
                for warning in plan.warnings:
                    self.log.warning("source %s: %s", source, warning)
                done = list(resets.apply(plan, only_if_unchanged=False))
        written = [(step, result) for step, result in done if isinstance(result, Partition)]
        summary = self._summary(source, plan, written)
        self.log.info("source %s: positions reset: %s", source, summary)
        if failed := [result for _, result in done if isinstance(result, CoordinationError)]:
            raise PartitionUpdateError(
                f"source {source!r}: {len(failed)} of {len(done)} partitions could not be reset: {failed[0]}"
            )
        return summary

    def _service(self, region: str | None, kind: SourceKind) -> Any:
        """Return the client that queries a source of a kind."""
        if self.reads is None or self.reads.kind != kind.name:
            raise ConfigurationError(
                f"field 'reads' is missing: a source of kind {kind.name!r} must be queried for its contents; give "
                "'reads' as the jobs have it, or name the partitions in 'partition_keys'"
            )
        return kind.service(self.reads.connect(AirflowConnections(region)).reads.settings)

    def _plan(self, resets: Resets, target: Target, access: Access) -> ResetPlan:
        keys = optional_names("partition_keys", self.partition_keys)
        reads: object = self.reads
        parts = reads.parts if isinstance(reads, Parted) else ()
        if keys is not None:
            partitions = resets.find_partitions(keys, parts[0] if len(parts) == 1 else None)
            return resets.plan_partitions(partitions, target, None if self.reads is None else access)
        if not parts:
            return resets.plan_source(target, access)
        return resets.plan_groups(parts, target, access)

    def _summary(self, source: str, plan: ResetPlan, done: Sequence[tuple[ResetStep, Partition]]) -> dict[str, Any]:
        counts = {str(action): sum(step.action is action for step, _ in done) for action in ResetAction}
        previous = [step.partition for step, _ in done if step.action is not ResetAction.CREATE]
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
                for partition in previous[:MAX_SHOWN]
            ],
            "left": len(plan.left),
            "left_because": dict(list(plan.left.items())[:MAX_SHOWN]),
        }
