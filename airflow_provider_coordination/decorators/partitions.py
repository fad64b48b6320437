"""`@task.partitions`: a function that yields what there is to read, as a source's supplier."""

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
from airflow_provider_coordination.operators.reads.reads import Reads, own_copy, source_of
from airflow_provider_coordination.operators.supplier_task import EndsWhenKilled, supply
from airflow_provider_coordination.operators.template_values import yes_or_no_value
from airflow_provider_coordination.sources.function_supplier import Found, pages_of

PARAMETER = "state"
"""A function that has a parameter of this name is given what the last page that had a state left."""


class PartitionsDecoratedOperator(EndsWhenKilled, _PythonDecoratedOperator):
    """Runs a function, and creates partitions of what it yields, page by page.

    It yields, or returns a list of, what a `PartitionSupplier` yields: keys, items, and pages of these. Partitions that
    exist already are left alone, so it may yield everything each time. It runs under the lease of the source's
    supplier: another worker is waited for, as by `CreatePartitionsOperator`. If the function loses that lease on its
    way, it is called again.

    A function with a parameter `state` is given what the last page that had a state left, as a dict; empty at first.

    XCom is the summary that `CreatePartitionsOperator` returns.

    :param reads: the source, one of the classes of `operators.reads`. Without it the partitions are for tasks of your
        own: an item is what a partition's progress begins with. (templated)
    :param source: the source's name; by default what `reads` calls it. (templated)
    :param skip_when_empty: skip the task, and so what follows it, where no partition is available afterwards.
        (templated)
    :param leave_when_busy: leave the supplier to another worker that is running it, and succeed: what that one finds is
        enough. By default the task waits for that one, and then looks itself. (templated)
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
            raise ValueError("give 'reads', 'source', or both: nothing else names the source")
        if _takes_state(python_callable):
            op_kwargs = {**op_kwargs, PARAMETER: None}  # filled in when the task runs, as Airflow fills in its own
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, **kwargs)
        self.reads = own_copy(reads)
        self.source = source
        self.skip_when_empty = skip_when_empty
        self.leave_when_busy = leave_when_busy
        self.coordination_conn_id = coordination_conn_id

    def prepare_for_execution(self) -> Self:
        """Return the task that is run, with templates of its own to render."""
        prepared = super().prepare_for_execution()
        prepared.reads = own_copy(self.reads)
        return prepared

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the function, and create what it yields.

        :raises AirflowFailException: if only a person can put things right.
        :raises CoordinationError: if the store did not answer, or another worker keeps looking; a retry may help.
        :raises Exception: what the function raises; what it yielded in pages before is created.
        """
        with failing_when_misconfigured():
            skip_when_empty = yes_or_no_value("skip_when_empty", self.skip_when_empty)
            leave_when_busy = yes_or_no_value("leave_when_busy", self.leave_when_busy)
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
        """Call the function. What a generator yields is not for Airflow, which would take it for asset metadata."""
        return self.python_callable(*self.op_args, **self.op_kwargs)

    def _found(self, context: Context, state: Mapping[str, Any]) -> Iterable[Found]:
        if _takes_state(self.python_callable):
            self.op_kwargs = {**self.op_kwargs, PARAMETER: dict(state)}
        self.show_return_value_in_logs = False
        found = super().execute(context)
        if found is None:
            return ()
        if isinstance(found, str | Mapping) or not isinstance(found, Iterable):
            raise ConfigurationError(
                f"function {self.python_callable.__name__!r} must yield keys or items, or return a list of them; it "
                f"returned {type(found).__name__}"
            )
        return found


def partitions_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Make a function a source's supplier: see `PartitionsDecoratedOperator` for the parameters.

    :param python_callable: the function.
    :param multiple_outputs: whether the summary becomes several XComs.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=bool(multiple_outputs),  # not by what the function is annotated with: that is not returned
        decorated_operator_class=PartitionsDecoratedOperator,
        **kwargs,
    )


def _takes_state(python_callable: Callable[..., Any]) -> bool:
    return PARAMETER in inspect.signature(python_callable).parameters
