"""Task that releases leases: of partitions, of an owner, of a DAG run, or those that expired."""

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
from airflow_provider_coordination.coordination.lease_selection import LeaseSelection, has_expired, selected_leases
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured
from airflow_provider_coordination.links.leases import LeasesLink
from airflow_provider_coordination.operators.partition_names import (
    administration_of,
    existing_partition,
    optional_names,
)
from airflow_provider_coordination.operators.template_values import bool_value
from airflow_provider_coordination.settings import text_value

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
    for partition in selected:
        try:
            administration.release(partition.partition_key, expected=partition, expired_by=expired_by)
        except (PartitionStatusError, PartitionNotFoundError, PartitionUpdateError) as error:
            left[partition.partition_key] = str(error)
            continue
        released.append(partition)
    return released
