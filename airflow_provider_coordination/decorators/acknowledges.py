"""`@task.acknowledges`: a check or a load that acknowledges batches if it succeeds, and rejects them if it fails."""

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
    release_all,
    selected_run,
    set_ids,
    sets_of,
    task_release_id,
)
from airflow_provider_coordination.settings import text_value
from airflow_provider_coordination.spark.redaction import Redaction

PARAMETER = "acknowledgment_sets"
"""A function with a parameter of this name receives the sets."""
NO_VERDICT = (AirflowSkipException, AirflowRescheduleException, DownstreamTasksSkipped)
NEVER_TRIED_AGAIN = (AirflowFailException, AirflowSensorTimeout)


class AcknowledgesDecoratedOperator(_PythonDecoratedOperator):
    """Runs a function, then releases the acknowledgment sets that were pending when it began.

    If the function returns, the sets are acknowledged. If it raises and no further try is left, or if it raises
    `AirflowFailException`, the sets are rejected with the exception as reason. If it skips, they stay pending. Sets
    that appear while it runs are not released. A late release is logged as a warning; the batch is delivered again.

    A function with a parameter `acknowledgment_sets` receives the sets as a list of plain dicts, with the fields that
    `airflow-coordination acknowledgments --json` shows. If the call passes a value for that parameter, an id or a list
    of ids, it selects the sets, so that one task can be mapped over many. XCom holds the function's return value.

    :param source: the source's name. (templated)
    :param acknowledgment_sets: the id of a set, or a list of ids. An empty list selects none; None selects the pending
        sets of a run. (templated)
    :param run_id: the DAG run whose sets are selected; the current run by default. (templated)
    :param run_dag_id: the DAG of that run; the current DAG by default. (templated)
    :param handle: the handle whose references are released. Optional if each set has exactly one handle that is
        released from outside the job. (templated)
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
            # The operator fills it in when the task runs, as Airflow fills in its own; the call need not pass it.
            op_kwargs = {PARAMETER: None, **op_kwargs}
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, **kwargs)
        self.source = source
        self.acknowledgment_sets = acknowledgment_sets
        self.run_id = run_id
        self.run_dag_id = run_dag_id
        self.handle = handle
        self.coordination_conn_id = coordination_conn_id

    def execute(self, context: Context) -> Any:
        """Run the function, then release the sets according to its outcome.

        :raises AirflowFailException: for an error that only a user can fix.
        :raises CoordinationError: if the store did not respond; a retry may succeed.
        """
        chosen = self._pending_sets(context)
        self._pass_records([record_of(each) for each in chosen])
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
            passed, decorated = set_ids(self._passed_sets()), set_ids(self.acknowledgment_sets)
            if passed is not None and decorated is not None:
                raise ConfigurationError(f"give {PARAMETER!r} either in the call or to the decorator, not both")
            ids, handle = decorated if passed is None else passed, text_value(self.handle)
            run = selected_run(context, ids, text_value(self.run_id), text_value(self.run_dag_id))
            coordinator = CoordinationHook(self.coordination_conn_id).coordinator(self.source, owner_of_try(context))
            with closing(coordinator.store):
                chosen = chosen_sets(sets_of(coordinator), ids, run, handle)
            # Report a release that is not valid before the function runs, which may take long.
            check_releasable(chosen, handle)
        return chosen

    def _passed_sets(self) -> Any:
        """Return the value that the call passed for the parameter; None if it passed none."""
        op_args = list(self.op_args)
        position = _position(self.python_callable, op_args)
        return self.op_kwargs.get(PARAMETER) if position is None else op_args[position]

    def _pass_records(self, records: list[dict[str, Any]]) -> None:
        op_args = list(self.op_args)
        position = _position(self.python_callable, op_args)
        if position is not None:
            self.op_args = [*op_args[:position], records, *op_args[position + 1 :]]
        elif PARAMETER in self.op_kwargs:
            self.op_kwargs = {**self.op_kwargs, PARAMETER: records}

    def _reject(self, context: Context, chosen: Sequence[AcknowledgmentSet], error: BaseException) -> None:
        """Reject the sets, unless another try follows; the task fails with the function's error in any case."""
        if _is_tried_again(context, error):
            self.log.info("%d acknowledgment sets stay pending: another try follows", len(chosen))
            return
        try:
            # The reason is stored, and the error text of any code may contain secrets.
            redaction = Redaction(CoordinationHook(self.coordination_conn_id).settings.store, dict(os.environ))
            reason = redaction.text(f"{type(error).__name__}: {error}".strip(": "))
            self._release(context, chosen, positive=False, reason=reason)
        except Exception as other:
            self.log.warning("the sets could not be rejected, so they will expire: source=%s: %s", self.source, other)

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
        self.log.info("acknowledgment sets released: %s", summary)


def acknowledges_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Make a function a task that acknowledges batches; see `AcknowledgesDecoratedOperator` for the parameters.

    :param python_callable: the function.
    :param multiple_outputs: whether a returned dict becomes several XComs.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=AcknowledgesDecoratedOperator,
        **kwargs,
    )


def _position(python_callable: Callable[..., Any], op_args: Sequence[Any]) -> int | None:
    """Return the index of the positional argument that gives the parameter; None if none does."""
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
