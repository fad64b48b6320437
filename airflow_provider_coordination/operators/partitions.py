"""Tasks that change partitions: they release leases, or reset positions so that data is read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.coordination.administration import (
    Administration,
    LeaseSelection,
    has_expired,
    selected_leases,
)
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    CoordinationError,
    PartitionUpdateError,
    ProgressError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.partition_actions import apply_to_each
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import (
    OwnCopiesMixin,
    administration_of,
    audit_fields,
    bool_value,
    existing_partition,
    failing_when_misconfigured,
    optional_names,
    owner_of_try,
)
from airflow_provider_coordination.links import LeasesLink
from airflow_provider_coordination.operators.acknowledge import sets_of
from airflow_provider_coordination.operators.approval import (
    Approval,
    Approved,
    require_approval,
    reset_proposal,
)
from airflow_provider_coordination.settings import text_value
from airflow_provider_coordination.sources.reads import Reads, own_copy, source_of
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import ResetAction, ResetPlan, ResetStep, Target, parse_target
from airflow_provider_coordination.sources.source_kind import Access, SourceKind

MAX_SHOWN = 10
"""The maximum number of partitions that a summary names."""


class ReleasePartitionsOperator(BaseOperator):
    """Releases leases, so that other workers can acquire the partitions at once. Progress and failures are kept.

    Select the leases by `partition_keys`, `lease_owner`, `run_id` or `expired`; a lease must match all that are given.
    The owner of a running lease counts as alive. So the task refuses to release it, and changes nothing, unless `force`
    is set. With `force` the store refuses the owner's writes from then on, and the owner drops its work in progress. If
    a lease has a new owner since the task read it, the new owner keeps it. A partition without a lease is left as it
    is, so a retry is harmless.

    Returns the `source`, the number of leases `released`, the first of them as `partitions` with their owner and
    expiry, the number of `partition_keys` that were `left`, and the first of these with the reason as `left_because`.

    :param source: the source's name. (templated)
    :param partition_keys: a key, or a list of keys. (templated)
    :param lease_owner: release all leases of this owner, including the lease of the source's supplier. (templated)
    :param run_id: release all leases of the tasks and jobs of this run, in any try. Partitions that wait for an
        acknowledgment are held by no job. (templated)
    :param run_dag_id: the DAG of that run; the current DAG by default. (templated)
    :param run_task_id: release only the leases of this task of that run. (templated)
    :param expired: release only expired leases; all expired leases if nothing else is given. (templated)
    :param force: also release leases that still run. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = (
        "source",
        "partition_keys",
        "lease_owner",
        "run_id",
        "run_dag_id",
        "run_task_id",
        "expired",
        "force",
        "coordination_conn_id",
    )
    ui_color = "#f5e6cc"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        source: str,
        partition_keys: str | Sequence[str] | None = None,
        lease_owner: str | None = None,
        run_id: str | None = None,
        run_dag_id: str | None = None,
        run_task_id: str | None = None,
        expired: bool | str = False,
        force: bool | str = False,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.partition_keys = partition_keys
        self.lease_owner = lease_owner
        self.run_id = run_id
        self.run_dag_id = run_dag_id
        self.run_task_id = run_task_id
        self.expired = expired
        self.force = force
        self.coordination_conn_id = coordination_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Release the leases.

        :raises AirflowFailException: for an error that only a user can fix: a setting is wrong, a partition does not
            exist, or a lease still runs and `force` is not set.
        :raises StoreUnavailableError: if the store does not respond.
        """
        with failing_when_misconfigured():
            keys = optional_names("partition_keys", self.partition_keys)
            force = bool_value("force", self.force)
            view = CoordinationHook(self.coordination_conn_id).view(self.source)
            with closing(view.store):
                ended_by = view.clock.now() - view.safety_margin
                selection = self._selection(context, keys, ended_by)
                selected, left = _selected(view, keys, selection)
                if not force:
                    _check_ended(self.source, selected, ended_by)
                administration = administration_of(view, context)
                released = release_seen(
                    administration, selected, left, None if force and not selection.expired_by else ended_by
                )
        summary = {
            "source": self.source,
            "released": len(released),
            "partitions": [
                {
                    "partition_key": partition.partition_key,
                    "owner": partition.owner,
                    "leased_until": partition.priority.isoformat(),
                }
                for partition in released[:MAX_SHOWN]
            ],
            "left": len(left),
            "left_because": dict(list(left.items())[:MAX_SHOWN]),
        }
        self.log.info("source %s: leases released: %s", self.source, summary)
        return summary

    def _selection(self, context: Context, keys: Sequence[str] | None, ended_by: datetime) -> LeaseSelection:
        run_id, dag_id, task_id = map(text_value, (self.run_id, self.run_dag_id, self.run_task_id))
        for field, value in (("run_dag_id", dag_id), ("run_task_id", task_id)):
            if value is not None and run_id is None:
                raise ConfigurationError(f"field 'run_id' must be given with {field!r}; got {value!r} alone")
        if run_id is not None and dag_id is None:
            dag_id = context["ti"].dag_id
        selection = LeaseSelection(
            owner=text_value(self.lease_owner),
            dag_id=dag_id,
            run_id=run_id,
            task_id=task_id,
            expired_by=ended_by if bool_value("expired", self.expired) else None,
        )
        if keys is None and selection == LeaseSelection():
            raise ConfigurationError(
                f"source {self.source!r}: no lease is selected; give 'partition_keys', 'lease_owner', 'run_id' or "
                "expired=True"
            )
        return selection


def _selected(
    view: SourceView, keys: Sequence[str] | None, selection: LeaseSelection
) -> tuple[list[Partition], dict[str, str]]:
    """Return the selected partitions, as read, and the reasons why other given keys are not selected."""
    if keys is None:
        return list(selected_leases(view.store, view.source_identifier, selection)), {}
    found = {key: existing_partition(view, key) for key in keys}
    left = {key: objection for key, partition in found.items() if (objection := selection.mismatch(partition))}
    return [partition for key, partition in found.items() if key not in left], left


def _check_ended(source: str, selected: Sequence[Partition], ended_by: datetime) -> None:
    running = [partition for partition in selected if not has_expired(partition, ended_by)]
    if running:
        first = running[0]
        holder = "waits for an acknowledgment" if first.is_awaiting else f"is held by {first.owner}"
        raise ConfigurationError(
            f"source {source!r}: {len(running)} of {len(selected)} leases still run, so their owners count as alive: "
            f"partition {first.partition_key!r} {holder} until {first.priority.isoformat()}; give force=True to "
            "release them anyway, or expired=True to leave them alone"
        )


def release_seen(
    administration: Administration, selected: Sequence[Partition], left: dict[str, str], expired_by: datetime | None
) -> list[Partition]:
    """Release the partitions that have not changed since they were read; return those, as read.

    :param administration: the administration of the source's partitions.
    :param left: receives the keys of the others, each with the reason.
    :param expired_by: see `Administration.release`.
    """
    released = []
    release = partial(administration.release, expired_by=expired_by)
    for seen, result in apply_to_each(selected, lambda seen: release(seen.partition_key, expected=seen)):
        if isinstance(result, StoreUnavailableError):
            raise result
        if isinstance(result, CoordinationError):
            left[seen.partition_key] = str(result)
        else:
            released.append(seen)
    return released


class ResetPartitionsOperator(OwnCopiesMixin, BaseOperator):
    """Reads partitions again from a position, whatever their status and owner.

    Work in progress cannot undo the reset, and jobs need not be stopped: a job that holds a partition loses it, and
    acquires it again at the new position. A whole stream is read parents before children.

    Returns the `source`, `to`, the stored `position`, the number of partitions that were `reset`, `created` and
    `removed`, the first of those as `partitions` with their previous position and owner, the number that were `left` as
    they are, and the first of these with the reason as `left_because`. A retry resets again.

    With `approval`, the task first describes what it would read again. If that is more than the limit, it waits for a
    person. It then resets what was approved, or fails if that has changed. If it is rejected, the task is skipped, and
    nothing is changed.

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
    :param approval: when a person must approve it first, through Airflow's human-in-the-loop tasks; None for never.
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
        approval: Approval | None = None,
        **kwargs: Any,
    ) -> None:
        if reads is None and source is None:
            raise ValueError("field 'source' is missing: give it, or give 'reads', which names the source")
        super().__init__(**kwargs)
        self.approval = approval
        self.source = source
        self.to = to
        self.reads: Reads | None = own_copy(reads)
        self.partition_keys = partition_keys
        self.coordination_conn_id = coordination_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Reset the positions.

        :raises AirflowFailException: for an error that only a user can fix.
        :raises CoordinationError: if the store or the source did not respond, or a partition could not be reset; a
            retry may succeed.
        """
        return self._reset(context, None)

    def execute_complete(self, context: Context, event: Mapping[str, Any], proposal: Mapping[str, Any]) -> Any:
        """Reset the positions once a person has approved it.

        :param event: the person's response.
        :param proposal: what was proposed, as a JSON object.
        :raises AirflowSkipException: if the person rejected it.
        :raises AirflowFailException: if no response arrived in time, and as `execute`.
        :raises AirflowException: if it would now do more than was approved; a retry asks again.
        """
        approved = Approved.of(event, proposal)
        self.log.info("the reset was approved by %s", approved.by)
        return self._reset(context, approved)

    def _reset(self, context: Context, approved: Approved | None) -> dict[str, Any]:
        with failing_when_misconfigured():
            target = parse_target(self.to, datetime.now(UTC))
            hook = CoordinationHook(self.coordination_conn_id)
            source = source_of(self.source, self.reads)
            coordinator = hook.coordinator(source, owner_of_try(context))
            with closing(coordinator.store):
                fields = audit_fields(context, None if approved is None else approved.by)
                resets = Resets(sets_of(coordinator), **fields)
                try:
                    plan = self._plan(resets, target, partial(self._service, hook.settings.region))
                except ProgressError as error:  # the stored progress or the requested position is invalid
                    raise ConfigurationError(str(error)) from None
                for warning in plan.warnings:
                    self.log.warning("source %s: %s", source, warning)
                if self.approval is not None:
                    proposal = reset_proposal(source, plan, resets.rereads(plan))
                    self.log.info("%s: %s", proposal.subject, proposal.amount)
                    require_approval(context, self.approval, proposal, approved)
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
        parts = () if self.reads is None else self.reads.parts
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
