"""Acknowledging batches as a task: the word of a check or a load that their data arrived, or that it did not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.links.leases import LeasesLink
from airflow_provider_coordination.operators.set_releases import (
    chosen_sets,
    named_run,
    release_all,
    set_ids,
    sets_of,
    task_release_id,
)
from airflow_provider_coordination.operators.template_values import text_value, yes_or_no_value

NEEDS_REASON = "field 'reason' must say why, where 'positive' is false; it is kept with the partition"


class AcknowledgeOperator(BaseOperator):
    """Acknowledges or rejects batches that a Spark job delivered whose `AcknowledgmentSettings` leave that to others.

    Without `acknowledgment_sets` these are all pending sets of a DAG run, this one by default, that wait for somebody
    outside the job; a run with none is fine. A retry, or the task cleared and run again, counts once. A release that
    comes late changes nothing: it is warned of and counted. Unknown sets and handles, and what makes no sense for a
    set, fail the task without a retry.

    Returns a small summary: `source`, `positive`, how many were `released`, `duplicate` and `late`, the `states` of the
    sets afterwards, and the first ids as `acknowledgment_sets`.

    :param source: the source's name. (templated)
    :param acknowledgment_sets: the id of a set or a list of ids; an empty list means none, None those of a run.
        (templated)
    :param run_id: the run whose sets are meant; this run by default. (templated)
    :param run_dag_id: the DAG of that run; this one by default. (templated)
    :param handle: whose references are released; may be left out where a set has one handle that is released from
        outside. (templated)
    :param positive: whether the data arrived. (templated)
    :param reason: why not; needed where `positive` is false. (templated)
    :param release_id: the releases' identity: repeated with the same one, they count once. One made of DAG, run, task
        and map index by default. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = (
        "source",
        "acknowledgment_sets",
        "run_id",
        "run_dag_id",
        "handle",
        "positive",
        "reason",
        "release_id",
        "coordination_conn_id",
    )
    ui_color = "#d8e6f0"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        source: str,
        acknowledgment_sets: str | Sequence[str] | None = None,
        run_id: str | None = None,
        run_dag_id: str | None = None,
        handle: str | None = None,
        positive: bool | str = True,
        reason: str | None = None,
        release_id: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.acknowledgment_sets = acknowledgment_sets
        self.run_id = run_id
        self.run_dag_id = run_dag_id
        self.handle = handle
        self.positive = positive
        self.reason = reason
        self.release_id = release_id
        self.coordination_conn_id = coordination_conn_id
        if positive is False and reason is None:
            raise ValueError(NEEDS_REASON)

    def execute(self, context: Context) -> dict[str, Any]:
        """Release once.

        :raises AirflowFailException: if only a person can put things right.
        :raises CoordinationError: if the store did not answer; a retry may help.
        """
        with failing_when_misconfigured():
            positive, reason = yes_or_no_value("positive", self.positive), text_value(self.reason)
            if not positive and not (reason and reason.strip()):
                raise ConfigurationError(NEEDS_REASON)
            ids = set_ids(self.acknowledgment_sets)
            run = named_run(context, ids, text_value(self.run_id), text_value(self.run_dag_id))
            handle = text_value(self.handle)
            coordinator = CoordinationHook(self.coordination_conn_id).coordinator(self.source, owner_of_try(context))
            with closing(coordinator.store):
                sets = sets_of(coordinator)
                return release_all(
                    sets,
                    chosen_sets(sets, ids, run, handle),
                    positive=positive,
                    release_id=text_value(self.release_id) or task_release_id(context),
                    handle=handle,
                    reason=reason,
                )
