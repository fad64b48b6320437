"""Sensor that waits until acknowledgment sets have ended, and checks how they ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Context, PokeReturnValue
from airflow.triggers.base import BaseTrigger

from airflow_provider_coordination.airflow_names import AirflowFailException, conf
from airflow_provider_coordination.coordination.acknowledgment import RETENTION, AcknowledgmentSet, AcknowledgmentState
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.texts import first_of
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.links import LeasesLink
from airflow_provider_coordination.operators.acknowledge import selected_run, set_ids, sets_of
from airflow_provider_coordination.settings import text_value
from airflow_provider_coordination.triggers.deferral import DeferrableSensor
from airflow_provider_coordination.triggers.partitions import AcknowledgmentTrigger

SETS_SHOWN = 5


class AcknowledgmentSensor(DeferrableSensor):
    """Waits until acknowledgment sets have ended; succeeds if their batches are acknowledged.

    Without `acknowledgment_sets` it waits for all sets of a DAG run, by default the current run; a run without sets is
    not an error. A batch that was rejected, then delivered again and acknowledged in the same run, counts as
    acknowledged.

    The sensor fails without a retry if a set ended in another way; the error names the set, its state and the reason.
    Overdue sets end as expired while it waits. Returns the `source`, the number of sets in each of the `states`, and
    the first of the sets as `acknowledgment_sets`.

    :param source: the source's name. (templated)
    :param acknowledgment_sets: the id of a set, or a list of ids. An empty list selects none; None selects the sets of
        a run. (templated)
    :param run_id: the DAG run whose sets are selected; the current run by default. (templated)
    :param run_dag_id: the DAG of that run; the current DAG by default. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    :param deferrable: wait in the triggerer instead of on a worker; sets then end within seconds of their expiry.
    """

    template_fields: Sequence[str] = (
        "source",
        "acknowledgment_sets",
        "run_id",
        "run_dag_id",
        "coordination_conn_id",
    )
    ui_color = "#e6f0d8"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        source: str,
        acknowledgment_sets: str | Sequence[str] | None = None,
        run_id: str | None = None,
        run_dag_id: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(deferrable=deferrable, **kwargs)
        self.source = source
        self.acknowledgment_sets = acknowledgment_sets
        self.run_id = run_id
        self.run_dag_id = run_dag_id
        self.coordination_conn_id = coordination_conn_id

    def poke(self, context: Context) -> PokeReturnValue:
        """Check the sets.

        :raises AirflowFailException: for an error that only a user can fix: a setting is wrong, or a batch must be
            delivered again.
        :raises StoreUnavailableError: if the store does not respond.
        """
        with failing_when_misconfigured():
            ids, run = self._selection(context)
            coordinator = CoordinationHook(self.coordination_conn_id).coordinator(self.source, owner_of_try(context))
            with closing(coordinator.store):
                sets = sets_of(coordinator)
                sets.expire_overdue()
                acknowledgment_sets = (
                    [sets.view.get(set_id) for set_id in ids] if ids is not None else sets_of_run(sets, run, context)
                )
        pending = [each.set_id for each in acknowledgment_sets if each.is_pending]
        states = Counter(str(each.state) for each in acknowledgment_sets)
        self.log.info(
            "source %s: acknowledgment sets: %s; waiting for %d: %s",
            self.source, shown(f"{state} {count}" for state, count in states.items()), len(pending), shown(pending),
        )  # fmt: skip
        if not pending:
            self._require_acknowledged(acknowledgment_sets)
        summary = {
            "source": self.source,
            "states": dict(states),
            "acknowledgment_sets": [each.set_id for each in acknowledgment_sets[:SETS_SHOWN]],
        }
        return PokeReturnValue(is_done=not pending, xcom_value=summary)

    @override
    def trigger(self, context: Context, deadline: str) -> BaseTrigger:
        ids, run = self._selection(context)
        return AcknowledgmentTrigger(
            source=self.source,
            acknowledgment_sets=ids,
            run_name=run,
            coordination_conn_id=self.coordination_conn_id,
            deadline=deadline,
        )

    def _selection(self, context: Context) -> tuple[list[str] | None, str]:
        ids = set_ids(self.acknowledgment_sets)
        return ids, selected_run(context, ids, text_value(self.run_id), text_value(self.run_dag_id))

    def _require_acknowledged(self, acknowledgment_sets: Sequence[AcknowledgmentSet]) -> None:
        failed = [each for each in acknowledgment_sets if each.state is not AcknowledgmentState.ACKNOWLEDGED]
        if failed:
            ends = [f"{each.set_id} {each.state}: {each.reason}" for each in failed]
            raise AirflowFailException(
                f"source {self.source!r}: {len(failed)} of {len(acknowledgment_sets)} acknowledgment sets were not "
                f"acknowledged: {first_of(ends, SETS_SHOWN, separator='; ')}. The next job delivers their batches "
                "again"
            )


def sets_of_run(sets: AcknowledgmentSets, run: str, context: Context) -> list[AcknowledgmentSet]:
    """Return the last set of each batch of a run, for as long as sets are kept.

    :param run: the run, as `run_name` names it.
    :param context: the context of the calling task: no set of its own run ended before the run began.
    """
    since = datetime.now(UTC) - RETENTION
    dag_run: Any = context.get("dag_run")
    began = getattr(dag_run, "start_date", None)
    if began is not None and run == selected_run(context, None, None, None):
        since = max(since, began)
    # Pending sets first: a set that ends in between is found twice, but not missed.
    all_sets = [*sets.view.pending(run=run), *sets.view.ended_since(since, run=run)]
    by_age = sorted(all_sets, key=lambda each: (each.created_at, each.version))
    return list({(each.partition_key, each.batch_id): each for each in by_age}.values())


def shown(names: Iterable[str]) -> str:
    """Return the first of some names, separated by commas; `none` if there is none."""
    return first_of(list(names), SETS_SHOWN) or "none"
