"""Running a supplier as a task, and what comes of it."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable
from typing import Any

from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import UNFINISHED, PartitionStatus
from airflow_provider_coordination.coordination.supplier import Page, Supplier

log = logging.getLogger(__name__)

SHOWN_AT_MOST = 10
"""So many of the created partitions are named in a summary."""


def supply(coordinator: SourceCoordinator, supplier: Supplier, *, skip_when_empty: bool) -> dict[str, Any]:
    """Run a supplier once, unless another worker is running it; return a small summary.

    :param skip_when_empty: skip the task where no partition is available afterwards.
    :raises AirflowSkipException: if it is to be skipped.
    """
    created = coordinator.supply(lambda state: _told(supplier(state)))
    is_available = coordinator.is_available()
    if skip_when_empty and not is_available:
        raise AirflowSkipException(f"source {coordinator.source!r} has no partition that is available")
    return {
        "source": coordinator.source,
        "supplier": "ran" if created is not None else "left to another worker",
        "created": len(created or ()),
        "partition_keys": (created or [])[:SHOWN_AT_MOST],
        "available": is_available,
        "partitions": {str(status): count for status, count in coordinator.count_by_status().items()},
    }


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
    """Count the partitions that a job which begins now could work on.

    :param at_most: count no further.
    :param shared: count also those that other jobs hold: of streams, which never end, jobs share them with each other.
    """
    count = 0
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
