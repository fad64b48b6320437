"""Ending leases by hand as a task: of partitions, an owner, a run of a DAG, or those that ran out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionNotFoundError,
    PartitionStatusError,
    PartitionUpdateError,
)
from airflow_provider_coordination.coordination.lease_selection import LeaseChoice, chosen_leases, has_run_out
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured
from airflow_provider_coordination.links.leases import LeasesLink
from airflow_provider_coordination.operators.partition_names import by_hand, named_partition, some_names
from airflow_provider_coordination.operators.template_values import text_value, yes_or_no_value

SHOWN_AT_MOST = 10
"""So many partitions are named in a summary."""


class ReleasePartitionsOperator(BaseOperator):
    """Ends leases, so that others can take the partitions at once; progress and failures are kept.

    Says which leases by `partition_keys`, `lease_owner`, `run_id` or `expired`; of several, all must be true of a
    lease. One that still runs counts as held by somebody alive and is refused, with nothing changed, unless `force` is
    given: its owner's writes are refused from then on, and it drops the work in hand. Where the owner has changed since
    the task looked, the lease is left to the new one. What nobody holds is left as well, so that a retry is harmless.

    Returns the `source`, how many leases were `released`, the first of them as `partitions` with who held them and
    until when, how many of the `partition_keys` were `left`, and the first of these with the reason as `left_because`.

    :param source: the source's name. (templated)
    :param partition_keys: a key, or a list of keys. (templated)
    :param lease_owner: all that this owner holds, the lease of the source's supplier included. (templated)
    :param run_id: all that the tasks and jobs of this run hold, whatever try they are of. What waits for an
        acknowledgment is held by no job. (templated)
    :param run_dag_id: the DAG of that run; this one if not given. (templated)
    :param run_task_id: only what this task of that run leads. (templated)
    :param expired: only leases whose time is up; all of them if nothing else is given. (templated)
    :param force: end leases that still run, too. (templated)
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
        """Release once.

        :raises AirflowFailException: if only a person can put things right: a setting is wrong, there is no such
            partition, or a lease still runs and `force` is not given.
        :raises StoreUnavailableError: if the store does not answer.
        """
        with failing_when_misconfigured():
            keys = some_names("partition_keys", self.partition_keys)
            force = yes_or_no_value("force", self.force)
            view = CoordinationHook(self.coordination_conn_id).view(self.source)
            with closing(view.store):
                ended_by = view.clock.now() - view.safety_margin
                choice = self._choice(context, keys, ended_by)
                chosen, left = _chosen(view, keys, choice)
                if not force:
                    _check_ended(self.source, chosen, ended_by)
                administration = by_hand(view, context)
                released = release_seen(
                    administration, chosen, left, None if force and not choice.expired_by else ended_by
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
                for partition in released[:SHOWN_AT_MOST]
            ],
            "left": len(left),
            "left_because": dict(list(left.items())[:SHOWN_AT_MOST]),
        }
        self.log.info("source %s: leases were released by hand: %s", self.source, summary)
        return summary

    def _choice(self, context: Context, keys: Sequence[str] | None, ended_by: datetime) -> LeaseChoice:
        run_id, dag_id, task_id = map(text_value, (self.run_id, self.run_dag_id, self.run_task_id))
        for field, value in (("run_dag_id", dag_id), ("run_task_id", task_id)):
            if value is not None and run_id is None:
                raise ConfigurationError(f"field 'run_id' must be given with {field!r}; got {value!r} alone")
        if run_id is not None and dag_id is None:
            dag_id = context["ti"].dag_id
        choice = LeaseChoice(
            owner=text_value(self.lease_owner),
            dag_id=dag_id,
            run_id=run_id,
            task_id=task_id,
            expired_by=ended_by if yes_or_no_value("expired", self.expired) else None,
        )
        if keys is None and choice == LeaseChoice():
            raise ConfigurationError(
                f"source {self.source!r}: nothing says which leases to release; give 'partition_keys', 'lease_owner', "
                "'run_id' or expired=True"
            )
        return choice


def _chosen(
    view: SourceView, keys: Sequence[str] | None, choice: LeaseChoice
) -> tuple[list[Partition], dict[str, str]]:
    """Return the partitions that are meant, as they were seen, and why others of the keys are not."""
    if keys is None:
        return list(chosen_leases(view.store, view.source_identifier, choice)), {}
    found = {key: named_partition(view, key) for key in keys}
    left = {key: objection for key, partition in found.items() if (objection := choice.objection(partition))}
    return [partition for key, partition in found.items() if key not in left], left


def _check_ended(source: str, chosen: Sequence[Partition], ended_by: datetime) -> None:
    running = [partition for partition in chosen if not has_run_out(partition, ended_by)]
    if running:
        first = running[0]
        holder = "waits for an acknowledgment" if first.is_awaiting else f"is held by {first.owner}"
        raise ConfigurationError(
            f"source {source!r}: {len(running)} of {len(chosen)} leases still run, so that their owners count as "
            f"alive: partition {first.partition_key!r} {holder} until {first.priority.isoformat()}; give force=True "
            "to take them away all the same, or expired=True to leave them alone"
        )


def release_seen(
    administration: Administration, chosen: Sequence[Partition], left: dict[str, str], expired_by: datetime | None
) -> list[Partition]:
    """Release what is still as it was seen; return that, as it was seen.

    :param administration: of the source's partitions.
    :param left: gets the keys of the others, each with the reason.
    :param expired_by: see `Administration.release`.
    """
    released = []
    for seen in chosen:
        try:
            administration.release(seen.partition_key, seen=seen, expired_by=expired_by)
        except (PartitionStatusError, PartitionNotFoundError, PartitionUpdateError) as error:
            left[seen.partition_key] = str(error)
            continue
        released.append(seen)
    return released
