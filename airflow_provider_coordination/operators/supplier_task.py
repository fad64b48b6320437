"""Running a supplier as a task, and what comes of it."""

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
from airflow_provider_coordination.coordination.supplier import PATIENCE, Page, Supplier
from airflow_provider_coordination.coordination.suspension import Suspension

log = logging.getLogger(__name__)

SHOWN_AT_MOST = 10
"""So many of the created partitions are named in a summary."""
RAN = "ran"
FOUND_BEFORE = "had found everything before"
LEFT = "left to another worker"
SUSPENDED = "did not run: the source is {}"
CUT_OFF = "ended early: the source is {}"


class TaskKilledError(BaseException):
    """The task was killed. Not an `Exception`, so that no supplier takes it for an error of its own."""


class EndsWhenKilled:
    """A base of operators: a task that is killed gives back the lease of its supplier. It comes first of the bases."""

    task_id: str
    _is_supplying = False

    @contextmanager
    def supplying(self) -> Iterator[None]:
        """Let `on_kill` end the enclosed code."""
        self._is_supplying = True
        try:
            yield
        finally:
            self._is_supplying = False

    def on_kill(self) -> None:
        """End the run. Airflow calls this in a signal handler: what it raises is raised wherever the run is now.

        :raises TaskKilledError: once, while the supplier runs or is waited for; the lease is given back on the way out.
        """
        if self._is_supplying:
            self._is_supplying = False
            raise TaskKilledError(f"task {self.task_id!r} was killed while it looked for partitions")


@runtime_checkable
class Ending(Protocol):
    """A supplier that can tell whether it has found everything that there is in its bounds."""

    def is_done(self, state: Mapping[str, Any]) -> bool:
        """Tell whether there is nothing left to find.

        :param state: what the last run left, empty at first.
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

    :param skip_when_empty: skip the task where no partition is available afterwards.
    :param leave_when_busy: leave the supplier to another worker that is running it, instead of waiting for it.
    :param is_interval: whether it finds what there is of an interval: it is not run again once that is found, since
        even its lease would be written then.
    :param sleep: waits that many seconds.
    :raises AirflowSkipException: if it is to be skipped.
    :raises SupplierBusyError: if another worker keeps running it, and it is not to be left to that one.
    """
    is_done = is_interval and _has_found_all(supplier, coordinator.view)
    run = _Run(supplier)
    if is_done:
        log.info("source=%s: nothing is looked for, everything was found before", coordinator.source)
        created: list[str] | None = []
    else:
        try:
            created = coordinator.supply(run, patience=None if leave_when_busy else PATIENCE, sleep=sleep)
        except SupplierBusyError as busy:
            raise SupplierBusyError(
                f"{busy}. Let the task retry, or set 'leave_when_busy' if it is enough that the other worker looks"
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
        "partition_keys": (created or [])[:SHOWN_AT_MOST],
        "available": is_available,
        "partitions": {str(status): count for status, count in coordinator.view.count_by_status().items()},
    }


def _has_found_all(supplier: object, view: SourceView) -> bool:
    """Tell whether a supplier has found everything, and what it found was not deleted to be found again."""
    if not isinstance(supplier, Ending) or not supplier.is_done(view.supplier_state()):
        return False
    return any(view.count_by_status().values())


class _Run:
    """A supplier that logs how far it is, and notes whether it came to its end."""

    def __init__(self, supplier: Supplier) -> None:
        self._supplier = supplier
        self._has_begun = False
        self._has_ended = False

    def __call__(self, state: Mapping[str, Any]) -> Generator[Page]:
        """Yield the pages of the supplier; what is known already counts as found."""
        self._has_begun, self._has_ended = True, False
        found = 0
        pages: Iterable[Page] = self._supplier(state)
        try:
            for number, page in enumerate(pages, 1):
                found += len(page.partitions)
                log.info("page %d of the supplier: %d partitions, %d so far", number, len(page.partitions), found)
                yield page
            self._has_ended = True
        finally:
            if isinstance(pages, Generator):
                pages.close()  # cut off between two pages, it cleans up now

    def outcome(self, suspension: Suspension | None) -> str:
        """Return what became of the run, for the summary."""
        if self._has_ended:
            return RAN
        if suspension is None:
            return LEFT
        return (CUT_OFF if self._has_begun else SUSPENDED).format(suspension)


def work_for_jobs(view: SourceView, at_most: int, *, shared: bool) -> int:
    """Count the partitions that a job which begins now could work on: none of a suspended source.

    :param at_most: count no further.
    :param shared: count also those that other jobs hold: of streams, which never end, jobs share them with each other.
    """
    count = 0
    if view.suspension() is not None:
        return count
    for status in UNFINISHED:
        for partition in view.partitions(status):
            if count >= at_most:
                return count
            is_held = status is PartitionStatus.ASSIGNED and not partition.is_awaiting
            if view.may_acquire(partition) or (shared and is_held):
                count += 1
            elif not shared or status is not PartitionStatus.ASSIGNED:
                break  # they are in the order in which they become available
    return count
