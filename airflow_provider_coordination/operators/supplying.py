"""Running a supplier as a task, and what comes of it."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import UNFINISHED, PartitionStatus
from airflow_provider_coordination.coordination.supplier import Page, Supplier
from airflow_provider_coordination.coordination.suspension import Suspension

log = logging.getLogger(__name__)

SHOWN_AT_MOST = 10
"""So many of the created partitions are named in a summary."""
FOUND_BEFORE = "had found everything before"
SUSPENDED = "did not run: the source is {}"


@runtime_checkable
class Ending(Protocol):
    """A supplier that can tell whether it has found everything that there is in its bounds."""

    def is_done(self, state: Mapping[str, Any]) -> bool:
        """Tell whether there is nothing left to find.

        :param state: what the last run left, empty at first.
        """
        ...


def supply(
    coordinator: SourceCoordinator, supplier: Supplier, *, skip_when_empty: bool, is_interval: bool = False
) -> dict[str, Any]:
    """Run a supplier once, unless another worker is running it; return a small summary.

    :param skip_when_empty: skip the task where no partition is available afterwards.
    :param is_interval: whether it finds what there is of an interval: it is not run again once that is found, since
        even its lease would be written then.
    :raises AirflowSkipException: if it is to be skipped.
    """
    is_done = is_interval and _has_found_all(supplier, coordinator)
    if is_done:
        log.info("source=%s: nothing is looked for, everything was found before", coordinator.source)
    created = [] if is_done else coordinator.supply(lambda state: _told(supplier(state)))
    is_available = coordinator.is_available()
    suspension = None if is_available else coordinator.suspension()
    if skip_when_empty and not is_available:
        why = "has no partition that is available" if suspension is None else f"is {suspension}"
        raise AirflowSkipException(f"source {coordinator.source!r} {why}")
    return {
        "source": coordinator.source,
        "supplier": FOUND_BEFORE if is_done else "ran" if created is not None else _left_to(suspension),
        "created": len(created or ()),
        "partition_keys": (created or [])[:SHOWN_AT_MOST],
        "available": is_available,
        "partitions": {str(status): count for status, count in coordinator.count_by_status().items()},
    }


def _left_to(suspension: Suspension | None) -> str:
    return "left to another worker" if suspension is None else SUSPENDED.format(suspension)


def _has_found_all(supplier: object, coordinator: SourceCoordinator) -> bool:
    """Tell whether a supplier has found everything, and what it found was not deleted to be found again."""
    if not isinstance(supplier, Ending) or not supplier.is_done(coordinator.supplier_state()):
        return False
    return any(coordinator.count_by_status().values())


def _told(pages: Iterable[Page]) -> Generator[Page]:
    """Yield the pages, and tell how far it is; what is known already counts as found."""
    found = 0
    try:
        for number, page in enumerate(pages, 1):
            found += len(page.partitions)
            log.info("page %d of the supplier: %d partitions, %d so far", number, len(page.partitions), found)
            yield page
    finally:
        if isinstance(pages, Generator):
            pages.close()  # cut off between two pages, it cleans up now


def work_for_jobs(coordinator: SourceCoordinator, at_most: int, *, shared: bool) -> int:
    """Count the partitions that a job which begins now could work on: none of a suspended source.

    :param at_most: count no further.
    :param shared: count also those that other jobs hold: of streams, which never end, jobs share them with each other.
    """
    count = 0
    if coordinator.suspension() is not None:
        return count
    for status in UNFINISHED:
        for partition in coordinator.partitions(status):
            if count >= at_most:
                return count
            is_held = status is PartitionStatus.ASSIGNED and not partition.is_awaiting
            if coordinator.may_acquire(partition) or (shared and is_held):
                count += 1
            elif not shared or status is not PartitionStatus.ASSIGNED:
                break  # they are in the order in which they become available
    return count
