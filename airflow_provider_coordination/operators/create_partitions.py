"""Task that finds and creates the partitions of a source, and how any task runs a supplier."""

from __future__ import annotations

import ast
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol, runtime_checkable

from airflow.sdk import BaseOperator, Context, XComArg

from airflow_provider_coordination.airflow_names import AirflowSkipException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, SupplierBusyError
from airflow_provider_coordination.coordination.partition import UNFINISHED, PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.supplier import SUPPLIER_WAIT_TIMEOUT, Page, Supplier
from airflow_provider_coordination.coordination.suspension import Suspension
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.hooks.coordination import ConnectionSettings, CoordinationHook
from airflow_provider_coordination.hooks.task_try import (
    OwnCopiesMixin,
    bool_value,
    failing_when_misconfigured,
    owner_of_try,
)
from airflow_provider_coordination.links import LeasesLink
from airflow_provider_coordination.operators.claims import claim_reads
from airflow_provider_coordination.operators.interval import Interval, interval_value, other_source, remaining_reads
from airflow_provider_coordination.settings import NOTHING, check_parsed
from airflow_provider_coordination.sources.items import Item
from airflow_provider_coordination.sources.own_source import Supplied, pages_of
from airflow_provider_coordination.sources.reads import Reads, own_copy, source_of

log = logging.getLogger(__name__)

MAX_SHOWN = 10
"""The maximum number of created partitions that a summary names."""
RAN = "ran"
FOUND_BEFORE = "had found everything before"
LEFT = "left to another worker"
SUSPENDED = "did not run: the source is {}"
CUT_OFF = "ended early: the source is {}"


class TaskKilledError(BaseException):
    """The task was killed. Not an `Exception`, so that no supplier takes it for an error of its own."""


class KillableSupplierMixin:
    """Base of operators that releases the lease of the supplier when the task is killed. List it before other bases."""

    task_id: str
    _is_supplying = False

    @contextmanager
    def supplying(self) -> Iterator[None]:
        """Let `on_kill` interrupt the enclosed code."""
        self._is_supplying = True
        try:
            yield
        finally:
            self._is_supplying = False

    def on_kill(self) -> None:
        """Interrupt the run. Airflow calls this in a signal handler, so the exception is raised wherever the run is.

        :raises TaskKilledError: once, while the supplier runs or the task waits for it; the lease is then released.
        """
        if self._is_supplying:
            self._is_supplying = False
            raise TaskKilledError(f"task {self.task_id!r} was killed while it searched for partitions")


@runtime_checkable
class FiniteSupplier(Protocol):
    """A supplier that can determine whether it has found everything within its bounds."""

    def is_done(self, state: Mapping[str, Any]) -> bool:
        """Return whether there is nothing left to find.

        :param state: the state that the last run left; empty at first.
        """
        ...


def supply(
    coordinator: SourceCoordinator,
    supplier: Supplier,
    *,
    skip_when_empty: bool,
    leave_when_busy: bool = False,
    is_interval: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Run a supplier to its end; return a small summary.

    :param skip_when_empty: skip the task if no partition is available afterwards.
    :param leave_when_busy: succeed without running the supplier if another worker runs it, instead of waiting.
    :param is_interval: whether the supplier finds the partitions of an interval. Once all are found it is not run
        again, because even its lease would cost a write.
    :param sleep: waits that many seconds.
    :raises AirflowSkipException: if no partition is available and `skip_when_empty` is set.
    :raises SupplierBusyError: if another worker keeps running the supplier, and `leave_when_busy` is not set.
    """
    is_done = is_interval and _has_found_all(supplier, coordinator.view)
    run = _Run(supplier)
    if is_done:
        log.info("source=%s: the supplier does not run, everything was found before", coordinator.source)
        created: list[str] | None = []
    else:
        try:
            created = coordinator.supply(
                run, wait_timeout=None if leave_when_busy else SUPPLIER_WAIT_TIMEOUT, sleep=sleep
            )
        except SupplierBusyError as busy:
            raise SupplierBusyError(
                f"{busy}. Let the task retry, or set 'leave_when_busy' if the other worker's search is enough"
            ) from None
    suspension = coordinator.view.suspension()
    is_available = coordinator.view.is_available()
    if skip_when_empty and not is_available:
        why = "has no partition that is available" if suspension is None else f"is {suspension}"
        raise AirflowSkipException(f"source {coordinator.source!r} {why}")
    return {
        "source": coordinator.source,
        "supplier": FOUND_BEFORE if is_done else run.outcome(suspension),
        "created": len(created or ()),
        "partition_keys": (created or [])[:MAX_SHOWN],
        "available": is_available,
        "partitions": {str(status): count for status, count in coordinator.view.count_by_status().items()},
    }


def _has_found_all(supplier: object, view: SourceView) -> bool:
    """Return whether a supplier has found everything, and its partitions still exist."""
    if not isinstance(supplier, FiniteSupplier) or not supplier.is_done(view.supplier_state()):
        return False
    return any(view.count_by_status().values())


class _Run:
    """A run of a supplier that logs its progress, and records whether it finished."""

    def __init__(self, supplier: Supplier) -> None:
        self._supplier = supplier
        self._has_begun = False
        self._has_ended = False

    def __call__(self, state: Mapping[str, Any]) -> Generator[Page]:
        """Yield the pages of the supplier; partitions that exist already count as found."""
        self._has_begun, self._has_ended = True, False
        count = 0
        pages: Iterable[Page] = self._supplier(state)
        try:
            for number, page in enumerate(pages, 1):
                count += len(page.partitions)
                log.info("page %d of the supplier: %d partitions, %d so far", number, len(page.partitions), count)
                yield page
            self._has_ended = True
        finally:
            if isinstance(pages, Generator):
                pages.close()  # if it was interrupted between two pages, it cleans up now

    def outcome(self, suspension: Suspension | None) -> str:
        """Return the outcome of the run, for the summary."""
        if self._has_ended:
            return RAN
        if suspension is None:
            return LEFT
        return (CUT_OFF if self._has_begun else SUSPENDED).format(suspension)


def work_for_jobs(view: SourceView, limit: int, *, shared: bool) -> int:
    """Count the partitions that a job could work on if it began now; none if the source is suspended.

    :param limit: stop counting at this number.
    :param shared: also count partitions that other jobs hold: the partitions of a stream never end, so jobs share them.
    """
    count = 0
    if view.suspension() is not None:
        return count
    for status in UNFINISHED:
        for partition in view.partitions(status):
            if count >= limit:
                return count
            is_held = status is PartitionStatus.ASSIGNED and not partition.is_awaiting
            if view.may_acquire(partition) or (shared and is_held):
                count += 1
            elif not shared or status is not PartitionStatus.ASSIGNED:
                break  # the partitions come in the order in which they become available
    return count


class CreatePartitionsOperator(OwnCopiesMixin, KillableSupplierMixin, BaseOperator):
    """Creates the partitions of a source, page by page: those that its supplier finds, or a given list.

    Existing partitions are left unchanged. So the task may run at any time, repeatedly, and during ingestion.
    One worker of the fleet runs a source's supplier at a time. The task takes over from its own earlier try. It
    waits for any other worker until that worker ends or its lease expires, and fails if neither happens within ten
    minutes.

    Returns a small summary: `source`, `supplier` (`"ran"`, or why it did not run or did not finish), the number
    `created`, the first ten of them as `partition_keys`, whether any partition is `available`, and as `partitions` the
    number of partitions in each status.

    :param reads: the source, such as `Items`. (templated)
    :param partitions: the partitions to create instead of those of the supplier: a list of keys or items, or a mapping
        from keys to an item or a list of items. A template may render these as text. Without `reads` an item is the
        initial progress of a partition, for your own tasks that work on the partitions. (templated)
    :param source: the source's name; by default `reads` provides it. (templated)
    :param skip_when_empty: skip the task, and the tasks that follow it, if no partition is available afterwards.
        (templated)
    :param leave_when_busy: succeed without running the supplier if another worker is running it. By default the task
        waits for the other worker, then runs the supplier itself. (templated)
    :param interval: create exactly the partitions of an interval, under its own leases: `"data_interval"` for the
        interval of the run, or its two ends; see `interval_value`. None means no bounds. (templated)
    :param deduplicate_against: the name of the source of live ingestion. The task leaves out what that source delivers
        of the interval, so that no record is delivered twice. None leaves nothing out. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = (
        "reads",
        "partitions",
        "source",
        "skip_when_empty",
        "leave_when_busy",
        "interval",
        "deduplicate_against",
        "coordination_conn_id",
    )
    ui_color = "#f5e6cc"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        reads: Reads | None = None,
        partitions: Sequence[str | Item] | Mapping[str, Item | Sequence[Item]] | str | None = None,
        source: str | None = None,
        skip_when_empty: bool | str = False,
        leave_when_busy: bool | str = False,
        interval: str | Sequence[Any] | None = None,
        deduplicate_against: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        if reads is None and partitions is None:
            raise ValueError("fields 'reads' and 'partitions' are missing: give at least one of them")
        if reads is None and source is None:
            raise ValueError("field 'source' is missing: give it, or give 'reads', which names the source")
        check_parsed(reads)
        super().__init__(**kwargs)
        self.reads = own_copy(reads)
        self.partitions = partitions
        self.source = source
        self.source_worked_on = ""
        self.skip_when_empty = skip_when_empty
        self.leave_when_busy = leave_when_busy
        self.interval = interval
        self.deduplicate_against = deduplicate_against
        self.coordination_conn_id = coordination_conn_id
        # Airflow searches only the operator's own fields for XComArgs.
        for name in reads.template_fields if reads is not None else ():
            XComArg.apply_upstream_relationship(self, getattr(reads, name))

    def execute(self, context: Context) -> dict[str, Any]:
        """Create the partitions.

        :raises AirflowFailException: for an error that only a user can fix.
        :raises AirflowSkipException: if no partition is available and `skip_when_empty` is set.
        :raises CoordinationError: if the store or the source did not respond, or another worker keeps running the
            supplier; a retry may succeed.
        """
        with failing_when_misconfigured():
            skip_when_empty = bool_value("skip_when_empty", self.skip_when_empty)
            leave_when_busy = bool_value("leave_when_busy", self.leave_when_busy)
            interval = interval_value(self.interval, context)
            source = source_of(self.source, self.reads)
            self.source_worked_on = source = source if interval is None else interval.source_name(source)
            connection = CoordinationHook(self.coordination_conn_id).settings
            coordinator = connection.coordinator(source, owner_of_try(context))
            with closing(coordinator.store):
                supplier = self._supplier(coordinator, interval, connection)
                if self.reads is not None:
                    claim_reads(coordinator.view, context, self.reads)
                with self.supplying():
                    return supply(
                        coordinator,
                        supplier,
                        skip_when_empty=skip_when_empty,
                        leave_when_busy=leave_when_busy,
                        is_interval=interval is not None,
                    )

    def _supplier(
        self, coordinator: SourceCoordinator, interval: Interval | None, connection: ConnectionSettings
    ) -> Supplier:
        kind = self.reads.kind if self.reads is not None else None
        if self.partitions not in NOTHING:
            found = given_partitions(self.partitions)
            return lambda state: pages_of(found, kind)
        if self.reads is None or kind is None:
            raise ConfigurationError("field 'partitions' is missing: give it, or give 'reads', which has a supplier")
        other = other_source(self.deduplicate_against, interval, coordinator, connection, kind)
        reads = remaining_reads(other, self.reads, interval, coordinator)
        if reads is None:
            other_name = self.deduplicate_against
            self.log.info(
                "no partitions are created, because source %s delivers the whole interval: source=%s",
                other_name, coordinator.source,
            )  # fmt: skip
            return lambda state: ()
        return reads.connect(AirflowConnections(connection.region)).supplier(coordinator)


def given_partitions(value: Any) -> Iterable[Supplied]:
    """Return the partitions that a user or a template gave, in the form that a supplier yields.

    :raises ConfigurationError: if the value is neither a list nor a mapping.
    """
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            value = None if value[:1] in "[{" else [value]
    if isinstance(value, Mapping):
        return [Page(dict(value))]
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return value
    raise ConfigurationError(
        f"field 'partitions' must be a list of keys or items, or a mapping from keys to items; got {value!r}"
    )
