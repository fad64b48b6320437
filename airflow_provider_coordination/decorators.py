"""Task decorators: functions that acknowledge batches, or that supply partitions.

`@task.acknowledges` marks a check or a load: batches are acknowledged if it succeeds, and rejected if it fails.
`@task.partitions` marks a function that yields what to read, as a source's supplier.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from airflow.providers.standard.decorators.python import _PythonDecoratedOperator
from airflow.sdk import Context
from airflow.sdk.bases.decorator import TaskDecorator, task_decorator_factory

from airflow_provider_coordination.airflow_names import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    DownstreamTasksSkipped,
    check_no_coroutine,
)
from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentSet, record_of
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import (
    OwnCopiesMixin,
    bool_value,
    failing_when_misconfigured,
    owner_of_try,
)
from airflow_provider_coordination.operators.acknowledge import (
    check_releasable,
    chosen_sets,
    release_all,
    selected_run,
    set_ids,
    sets_of,
    task_release_id,
)
from airflow_provider_coordination.operators.claims import claim_reads
from airflow_provider_coordination.operators.create_partitions import KillableSupplierMixin, supply
from airflow_provider_coordination.settings import check_parsed, text_value
from airflow_provider_coordination.sources.own_source import Supplied, pages_of
from airflow_provider_coordination.sources.reads import Reads, own_copy, source_of
from airflow_provider_coordination.spark.redaction import Redaction

ACKNOWLEDGMENT_SETS = "acknowledgment_sets"
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
        check_no_coroutine(python_callable, self.custom_operator_name)
        takes_sets = ACKNOWLEDGMENT_SETS in inspect.signature(python_callable).parameters
        if takes_sets and _position(python_callable, op_args) is None:
            # The operator fills it in when the task runs, as Airflow fills in its own; the call need not pass it.
            op_kwargs = {ACKNOWLEDGMENT_SETS: None, **op_kwargs}
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
                raise ConfigurationError(
                    f"give {ACKNOWLEDGMENT_SETS!r} either in the call or to the decorator, not both"
                )
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
        return self.op_kwargs.get(ACKNOWLEDGMENT_SETS) if position is None else op_args[position]

    def _pass_records(self, records: list[dict[str, Any]]) -> None:
        op_args = list(self.op_args)
        position = _position(self.python_callable, op_args)
        if position is not None:
            self.op_args = [*op_args[:position], records, *op_args[position + 1 :]]
        elif ACKNOWLEDGMENT_SETS in self.op_kwargs:
            self.op_kwargs = {**self.op_kwargs, ACKNOWLEDGMENT_SETS: records}

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
        if parameter.name == ACKNOWLEDGMENT_SETS:
            return position
    return None


def _is_tried_again(context: Context, error: BaseException) -> bool:
    if isinstance(error, NEVER_TRIED_AGAIN):
        return False
    ti: Any = context["ti"]
    return bool(ti.try_number <= ti.max_tries)


STATE = "state"
"""A function with a parameter of this name receives the state of the last page that had one."""


class PartitionsDecoratedOperator(OwnCopiesMixin, KillableSupplierMixin, _PythonDecoratedOperator):
    """Runs a function, and creates partitions from what it yields, page by page.

    It yields, or returns a list of, what a `PartitionSupplier` yields: keys, items, and pages of these. Existing
    partitions are left unchanged, so it may yield everything each time. It runs under the lease of the source's
    supplier, and waits for another worker as `CreatePartitionsOperator` does. If the function loses the lease while it
    runs, it is called again.

    A function with a parameter `state` receives the state of the last page that had one, as a dict; empty at first.

    XCom holds the summary that `CreatePartitionsOperator` returns.

    :param reads: the source, such as `Items`. Without it an item is the initial progress of a
        partition, for your own tasks that work on the partitions. (templated)
    :param source: the source's name; by default `reads` provides it. (templated)
    :param skip_when_empty: skip the task, and the tasks that follow it, if no partition is available afterwards.
        (templated)
    :param leave_when_busy: succeed without running the function if another worker runs the source's supplier. By
        default the task waits for the other worker, then runs the function. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = (
        *_PythonDecoratedOperator.template_fields,
        "reads",
        "source",
        "skip_when_empty",
        "leave_when_busy",
        "coordination_conn_id",
    )
    custom_operator_name: str = "@task.partitions"
    ui_color = "#f5e6cc"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Sequence[Any],
        op_kwargs: dict[str, Any],
        reads: Reads | None = None,
        source: str | None = None,
        skip_when_empty: bool | str = False,
        leave_when_busy: bool | str = False,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        if reads is None and source is None:
            raise ValueError("field 'source' is missing: give it, or give 'reads', which names the source")
        if _takes_state(python_callable):
            op_kwargs = {**op_kwargs, STATE: None}  # the operator fills it in at run time, as Airflow does its own
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, **kwargs)
        check_parsed(reads)
        self.reads = own_copy(reads)
        self.source = source
        self.skip_when_empty = skip_when_empty
        self.leave_when_busy = leave_when_busy
        self.coordination_conn_id = coordination_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the function, and create partitions from what it yields.

        :raises AirflowFailException: for an error that only a user can fix.
        :raises CoordinationError: if the store did not respond, or another worker keeps running the supplier; a retry
            may succeed.
        :raises Exception: an exception of the function; the pages that it yielded before are created.
        """
        with failing_when_misconfigured():
            skip_when_empty = bool_value("skip_when_empty", self.skip_when_empty)
            leave_when_busy = bool_value("leave_when_busy", self.leave_when_busy)
            kind = self.reads.kind if self.reads is not None else None
            source = source_of(self.source, self.reads)
            coordinator = CoordinationHook(self.coordination_conn_id).coordinator(source, owner_of_try(context))
            with closing(coordinator.store):
                if self.reads is not None:
                    claim_reads(coordinator.view, context, self.reads)
                with self.supplying():
                    return supply(
                        coordinator,
                        lambda state: pages_of(self._found(context, state), kind),
                        skip_when_empty=skip_when_empty,
                        leave_when_busy=leave_when_busy,
                    )

    def execute_callable(self) -> Any:
        """Call the function. It bypasses Airflow, which would take the items of a generator for asset metadata."""
        return self.python_callable(*self.op_args, **self.op_kwargs)

    def _found(self, context: Context, state: Mapping[str, Any]) -> Iterable[Supplied]:
        if _takes_state(self.python_callable):
            self.op_kwargs = {**self.op_kwargs, STATE: dict(state)}
        self.show_return_value_in_logs = False
        returned = super().execute(context)
        if returned is None:
            return ()
        if isinstance(returned, str | Mapping) or not isinstance(returned, Iterable):
            raise ConfigurationError(
                f"function {self.python_callable.__name__!r} must yield keys or items, or return a list of them; it "
                f"returned {type(returned).__name__}"
            )
        return returned


def partitions_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Make a function a source's supplier; see `PartitionsDecoratedOperator` for the parameters.

    :param python_callable: the function.
    :param multiple_outputs: whether the summary becomes several XComs.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=bool(multiple_outputs),  # not inferred from the annotations: the task returns the summary
        decorated_operator_class=PartitionsDecoratedOperator,
        **kwargs,
    )


def _takes_state(python_callable: Callable[..., Any]) -> bool:
    return STATE in inspect.signature(python_callable).parameters
