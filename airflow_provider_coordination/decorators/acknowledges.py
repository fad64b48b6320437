"""`@task.acknowledges`: a check or a load whose success acknowledges the batches it looked at, and whose failure
rejects them.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from airflow.providers.standard.decorators.python import _PythonDecoratedOperator
from airflow.sdk import Context
from airflow.sdk.bases.decorator import TaskDecorator, task_decorator_factory
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    DownstreamTasksSkipped,
)

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentSet, record_of
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.operators.set_releases import (
    check_releasable,
    chosen_sets,
    named_run,
    release_all,
    set_ids,
    sets_of,
    task_release_id,
)
from airflow_provider_coordination.operators.template_values import text_value
from airflow_provider_coordination.spark.redaction import Redaction

PARAMETER = "acknowledgment_sets"
"""A function that has a parameter of this name is given the sets."""
NO_VERDICT = (AirflowSkipException, AirflowRescheduleException, DownstreamTasksSkipped)
NEVER_TRIED_AGAIN = (AirflowFailException, AirflowSensorTimeout)


class AcknowledgesDecoratedOperator(_PythonDecoratedOperator):
    """Runs a function, then releases the acknowledgment sets that were pending when it began.

    If the function returns, they are acknowledged; if it raises and no further try is left, or raises
    `AirflowFailException`, they are rejected with the exception as reason; if it skips, they stay pending. Sets that
    appear while it runs are not touched. A release that comes late is warned of: the batch is delivered again.

    A function with a parameter `acknowledgment_sets` is given the sets as a list of plain dicts, with the fields that
    `airflow-coordination acknowledgments --json` shows. What the call itself gives for that parameter, an id or
    a list of ids, names the sets: so one task can be mapped over many. XCom is what the function returns.

    :param source: the source's name. (templated)
    :param acknowledgment_sets: the id of a set or a list of ids; an empty list means none, None the pending ones of a
        run. (templated)
    :param run_id: the run whose sets are meant; this run by default. (templated)
    :param run_dag_id: the DAG of that run; this one by default. (templated)
    :param handle: whose references are released; may be left out where a set has one handle that is released from
        outside. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = (
        *_PythonDecoratedOperator.template_fields,
        "source",
        "acknowledgment_sets",
        "run_id",
        "run_dag_id",
        "handle",
        "coordination_conn_id",
    )
    custom_operator_name: str = "@task.acknowledges"
    ui_color = "#d8e6f0"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Sequence[Any],
        op_kwargs: dict[str, Any],
        source: str,
        acknowledgment_sets: str | Sequence[str] | None = None,
        run_id: str | None = None,
        run_dag_id: str | None = None,
        handle: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        takes_sets = PARAMETER in inspect.signature(python_callable).parameters
        if takes_sets and _position(python_callable, op_args) is None:
            # It is filled in when the task runs, as Airflow fills in its own; the call need not give it.
            op_kwargs = {PARAMETER: None, **op_kwargs}
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, **kwargs)
        self.source = source
        self.acknowledgment_sets = acknowledgment_sets
        self.run_id = run_id
        self.run_dag_id = run_dag_id
        self.handle = handle
        self.coordination_conn_id = coordination_conn_id

    def execute(self, context: Context) -> Any:
        """Run the function and release the sets as it ends.

        :raises AirflowFailException: if only a person can put things right.
        :raises CoordinationError: if the store did not answer; a retry may help.
        """
        chosen = self._pending_sets(context)
        self._give([record_of(each) for each in chosen])
        try:
            returned = super().execute(context)
        except NO_VERDICT:
            self.log.info("%d acknowledgment sets stay pending: the function gave no verdict", len(chosen))
            raise
        except (Exception, AirflowTaskTimeout, SystemExit) as error:
            self._reject(context, chosen, error)
            raise
        self._release(context, chosen, positive=True)
        return returned

    def _pending_sets(self, context: Context) -> list[AcknowledgmentSet]:
        with failing_when_misconfigured():
            given, decorated = set_ids(self._given()), set_ids(self.acknowledgment_sets)
            if given is not None and decorated is not None:
                raise ConfigurationError(f"give {PARAMETER!r} either in the call or to the decorator, not both")
            ids, handle = decorated if given is None else given, text_value(self.handle)
            run = named_run(context, ids, text_value(self.run_id), text_value(self.run_dag_id))
            coordinator = CoordinationHook(self.coordination_conn_id).coordinator(self.source, owner_of_try(context))
            with closing(coordinator.store):
                chosen = chosen_sets(sets_of(coordinator), ids, run, handle)
            # What makes no sense is better known before the function has run for an hour.
            check_releasable(chosen, handle)
        return chosen

    def _given(self) -> Any:
        """Return what the call gave for the parameter; None for nothing."""
        op_args = list(self.op_args)
        position = _position(self.python_callable, op_args)
        return self.op_kwargs.get(PARAMETER) if position is None else op_args[position]

    def _give(self, records: list[dict[str, Any]]) -> None:
        op_args = list(self.op_args)
        position = _position(self.python_callable, op_args)
        if position is not None:
            self.op_args = [*op_args[:position], records, *op_args[position + 1 :]]
        elif PARAMETER in self.op_kwargs:
            self.op_kwargs = {**self.op_kwargs, PARAMETER: records}

    def _reject(self, context: Context, chosen: Sequence[AcknowledgmentSet], error: BaseException) -> None:
        """Reject the sets, unless the function is tried again; whatever goes wrong, the function's error counts."""
        if _is_tried_again(context, error):
            self.log.info("%d acknowledgment sets stay pending: a further try is left", len(chosen))
            return
        try:
            # The reason is kept in the store, and the text of an error of any code may hold anything.
            redaction = Redaction(CoordinationHook(self.coordination_conn_id).settings.store, dict(os.environ))
            reason = redaction.text(f"{type(error).__name__}: {error}".strip(": "))
            self._release(context, chosen, positive=False, reason=reason)
        except Exception as other:
            self.log.warning("the sets could not be rejected, they expire: source=%s: %s", self.source, other)

    def _release(
        self, context: Context, chosen: Sequence[AcknowledgmentSet], *, positive: bool, reason: str | None = None
    ) -> None:
        if not chosen:
            return
        with failing_when_misconfigured():
            coordinator = CoordinationHook(self.coordination_conn_id).coordinator(self.source, owner_of_try(context))
            with closing(coordinator.store):
                summary = release_all(
                    sets_of(coordinator),
                    chosen,
                    positive=positive,
                    release_id=task_release_id(context),
                    handle=text_value(self.handle),
                    reason=reason,
                )
        self.log.info("released: %s", summary)


def acknowledges_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Make a function a task that acknowledges batches: see `AcknowledgesDecoratedOperator` for the parameters.

    :param python_callable: the function.
    :param multiple_outputs: whether a dict that it returns becomes several XComs.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=AcknowledgesDecoratedOperator,
        **kwargs,
    )


def _position(python_callable: Callable[..., Any], op_args: Sequence[Any]) -> int | None:
    """Return which argument by position gives the parameter; None if none does."""
    for position, parameter in enumerate(inspect.signature(python_callable).parameters.values()):
        if position == len(op_args) or parameter.kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY):
            return None
        if parameter.name == PARAMETER:
            return position
    return None


def _is_tried_again(context: Context, error: BaseException) -> bool:
    if isinstance(error, NEVER_TRIED_AGAIN):
        return False
    ti: Any = context["ti"]
    return bool(ti.try_number <= ti.max_tries)
