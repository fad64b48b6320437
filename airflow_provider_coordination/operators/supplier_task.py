"""Runs a supplier as a task, and summarizes the result."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import SupplierBusyError
from airflow_provider_coordination.coordination.partition import UNFINISHED, PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.supplier import SUPPLIER_WAIT_TIMEOUT, Page, Supplier
from airflow_provider_coordination.coordination.suspension import Suspension

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
