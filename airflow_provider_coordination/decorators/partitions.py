"""`@task.partitions`: a function that yields what to read, as a source's supplier."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Self

from airflow.providers.standard.decorators.python import _PythonDecoratedOperator
from airflow.sdk import Context
from airflow.sdk.bases.decorator import TaskDecorator, task_decorator_factory

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.operators.claims import claim_reads
from airflow_provider_coordination.operators.supplier_task import KillableSupplierMixin, supply
from airflow_provider_coordination.operators.template_values import bool_value
from airflow_provider_coordination.settings import check_parsed
from airflow_provider_coordination.sources.function_supplier import Supplied, pages_of
from airflow_provider_coordination.sources.reads import Reads, own_copy, source_of

PARAMETER = "state"
"""A function with a parameter of this name receives the state of the last page that had one."""


class PartitionsDecoratedOperator(KillableSupplierMixin, _PythonDecoratedOperator):
    """Runs a function, and creates partitions from what it yields, page by page.

    It yields, or returns a list of, what a `PartitionSupplier` yields: keys, items, and pages of these. Existing
    partitions are left unchanged, so it may yield everything each time. It runs under the lease of the source's
    supplier, and waits for another worker as `CreatePartitionsOperator` does. If the function loses the lease while it
    runs, it is called again.

    A function with a parameter `state` receives the state of the last page that had one, as a dict; empty at first.

    XCom holds the summary that `CreatePartitionsOperator` returns.

    :param reads: the source, such as `Items`. Without it an item is the initial progress of a
        partition, for tasks of your own that work on the partitions. (templated)
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
            op_kwargs = {**op_kwargs, PARAMETER: None}  # the operator fills it in at run time, as Airflow does its own
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, **kwargs)
        check_parsed(reads)
        self.reads = own_copy(reads)
        self.source = source
        self.skip_when_empty = skip_when_empty
        self.leave_when_busy = leave_when_busy
        self.coordination_conn_id = coordination_conn_id

    def prepare_for_execution(self) -> Self:
        """Return the copy of this task that runs; it renders its own templates."""
        prepared = super().prepare_for_execution()
        prepared.reads = own_copy(self.reads)
        return prepared

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
            self.op_kwargs = {**self.op_kwargs, PARAMETER: dict(state)}
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
    return PARAMETER in inspect.signature(python_callable).parameters
