"""A source that is to read other data: what a change leaves, and how a source forgets everything by a user's act.

Progress belongs to a source by its name. Its partitions, its claims and the state of its supplier are about what it has
read. With other data, partitions would fail or be read from the wrong place, and the supplier would skip what it takes
for known. So such a change is refused until a user makes the source forget them. That is refused while anything is in
work: no batch that was read and is not acknowledged is dropped with the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    CoordinationError,
    PartitionUpdateError,
    SourceError,
    SupervisionError,
)
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_claim import claimed
from airflow_provider_coordination.coordination.texts import first_of
from airflow_provider_coordination.sources.kinds import SourceBatches, kind_named, landed_progress

log = logging.getLogger(__name__)

ABOUT_PREVIOUS_DATA = "Its partitions and the state of its supplier are about what it has read"
MAX_KEYS_IN_ERROR = 5


def left_of(kind_before: str, before: Mapping[str, Any], kind: str, now: Mapping[str, Any]) -> list[str]:
    """Return what a change leaves that partitions of the source may be about, such as `table 'orders'`.

    :param kind_before: the kind of source before.
    :param before: the location before; see `SourceKind.left`.
    :param kind: the kind of source now.
    :param now: the location now.
    :raises ConfigurationError: if the kind cannot be imported.
    """
    if kind != kind_before:
        return [f"kind {kind_before!r}"]
    return list(kind_named(kind).left(before, now))


def how_to_forget(source: str) -> str:
    """Return the remedy that keeps the name of a source without a supervisor."""
    return (
        "keep the name and forget what was read: run 'airflow-coordination suspend "
        f"{source} --reason REASON', 'airflow-coordination reset {source} --forget' and 'airflow-coordination resume "
        f"{source}'"
    )


def forgettable(coordinator: SourceCoordinator, *, is_idle: bool = False) -> list[Partition]:
    """Check that a source is not in work, and return its partitions.

    :param is_idle: whether it is known that no job can begin, so that the source need not be suspended.
    :raises SupervisionError: if the source is not suspended, a lease is held, or a batch is not acknowledged.
    """
    view = coordinator.view
    if not is_idle and view.suspensions.get() is None:
        raise SupervisionError(
            f"source {view.source!r} cannot forget what it has read while jobs may work on it; suspend it, and wait "
            f"until its jobs have ended: airflow-coordination suspend {view.source} --reason REASON"
        )
    partitions = list(view.partitions())
    state = view.supplier_item()
    leased = [
        each.partition_key for each in partitions if each.status is PartitionStatus.ASSIGNED and not each.is_awaiting
    ]
    if state is not None and state.owner is not None:
        leased.append("the supplier")
    undelivered = [each.partition_key for each in partitions if _is_undelivered(each)]
    if leased:
        raise SupervisionError(
            f"source {view.source!r} cannot forget what is leased: {_some(leased)}; wait until its jobs have ended, or "
            f"end the leases of jobs that are gone: airflow-coordination release {view.source} --expired"
        )
    if undelivered:
        raise SupervisionError(
            f"source {view.source!r} cannot forget {len(undelivered)} partitions with batches that are not "
            f"acknowledged: {_some(undelivered)}; resume it until they are delivered, or give them up: "
            f"airflow-coordination delete {view.source} KEY"
        )
    return partitions


def forget(
    coordinator: SourceCoordinator, *, by: str | None = None, reason: str = "", is_idle: bool = False
) -> list[tuple[Partition, CoordinationError | None]]:
    """Remove the partitions of a source, its claims and the state of its supplier: it is as if it was never read.

    The state, and the claim of the DAG that read it, are removed last, and only if everything before is: until then, a
    change of what the source reads is refused.

    :param coordinator: of the source, initialized.
    :param by: the user or the task; logged and kept in the history. None if unknown.
    :param reason: the reason; logged and kept in the history.
    :param is_idle: see `forgettable`.
    :returns: each partition as it was, with the reason if it could not be removed.
    :raises SupervisionError: see `forgettable`; nothing was removed.
    :raises PartitionUpdateError: if the supplier ran in between; forget again.
    """
    view = coordinator.view
    partitions = forgettable(coordinator, is_idle=is_idle)
    state, claim = view.supplier_item(), claimed(view)
    administration = Administration(view.store, view.source_identifier, view.clock, by=by, reason=reason)
    done: list[tuple[Partition, CoordinationError | None]] = []
    for partition in partitions:
        try:
            administration.delete(partition.partition_key, expected=partition, keeps_claims=True)
        except PartitionUpdateError as error:
            done.append((partition, error))
        else:
            done.append((partition, None))
    if any(error for _, error in done):
        return done
    if view.supplier_item() != state:
        raise PartitionUpdateError(f"the supplier of source {view.source!r} ran in between; forget again")
    released = coordinator.claims.release_all()
    for item in (state, claim):
        if item is not None:
            view.store.delete(item)
    log.info(
        "source forgotten: source=%s partitions=%d claims=%d by=%s reason=%r",
        view.source, len(done), released, by, reason,
    )  # fmt: skip
    return done


def _is_undelivered(partition: Partition) -> bool:
    """Return whether a partition holds batches that are not acknowledged, or may hold some."""
    if partition.unreadable_progress is not None:
        return True
    try:
        landed = landed_progress(partition.progress)
        return bool(SourceBatches().pending(partition.progress)) or (landed is not None and bool(landed.landed))
    except SourceError:
        return True


def _some(keys: list[str]) -> str:
    return first_of(list(map(repr, keys)), MAX_KEYS_IN_ERROR)
