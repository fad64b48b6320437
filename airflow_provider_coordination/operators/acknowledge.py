"""Task that acknowledges or rejects delivered batches, for example after a check or a load."""

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
    release_all,
    selected_run,
    set_ids,
    sets_of,
    task_release_id,
)
from airflow_provider_coordination.operators.template_values import bool_value
from airflow_provider_coordination.settings import text_value

NEEDS_REASON = "field 'reason' is missing: it is required if 'positive' is false; it is stored with the partition"


class AcknowledgeOperator(BaseOperator):
    """Acknowledges or rejects batches that a Spark job delivered.

    Use it if the job's `AcknowledgmentSettings` leave the acknowledgment to another task.

    Without `acknowledgment_sets` the task releases all pending sets of a DAG run that wait for a party outside the job.
    The default is the current run; a run without pending sets is not an error. Releases are idempotent: a retry or a
    cleared task counts once. A late release changes nothing; it is logged as a warning and counted. The task fails
    without a retry if a set or handle is unknown, or if the release is not valid for a set.

    Returns a small summary: `source`, `positive`, the counts `released`, `duplicate` and `late`, the `states` of the
    sets afterwards, and the first ids as `acknowledgment_sets`.

    :param source: the source's name. (templated)
    :param acknowledgment_sets: the id of a set, or a list of ids. An empty list selects none; None selects the sets of
        a run. (templated)
    :param run_id: the DAG run whose sets are selected; the current run by default. (templated)
    :param run_dag_id: the DAG of that run; the current DAG by default. (templated)
    :param handle: the handle whose references are released. Optional if each set has exactly one handle that is
        released from outside the job. (templated)
    :param positive: whether the data arrived. (templated)
    :param reason: why the data did not arrive; required if `positive` is false. (templated)
    :param release_id: the identity of the releases: releases with the same id count once. By default it is made of DAG,
        run, task and map index. (templated)
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
        """Release the sets.

        :raises AirflowFailException: for an error that only a user can fix.
        :raises CoordinationError: if the store did not respond; a retry may succeed.
        """
        with failing_when_misconfigured():
            positive, reason = bool_value("positive", self.positive), text_value(self.reason)
            if not positive and not (reason and reason.strip()):
                raise ConfigurationError(NEEDS_REASON)
            ids = set_ids(self.acknowledgment_sets)
            run = selected_run(context, ids, text_value(self.run_id), text_value(self.run_dag_id))
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
