"""How the end of an acknowledgment set affects the partition of its batch: the interface to the sources.

The core knows when a batch is delivered or must be delivered again. The source defines how a partition's progress
records batches, when a delivery moves a checkpoint, and what follows a finished partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition

Progress = Mapping[str, Any]

Lookup = Callable[[str], Partition | None]
"""Reads another partition of the same source as it is stored now."""


@dataclass(frozen=True, kw_only=True)
class Settlement:
    """The new state of a partition after one of its batches was delivered, or must be delivered again.

    :param progress: its new progress.
    :param moved: whether more data than before is delivered without a gap.
    :param finished: whether all data that it will ever hold is delivered.
    :param reopen_after: how long a finished partition is closed before it is read again; None completes it.
    :param pending: the ids of the sets that its other batches still wait for.
    :param create: the initial progress of the partitions that follow a finished one, by key.
    :param unchanged: other partitions that this decision depends on, as they were read.
    """

    progress: Progress
    moved: bool = False
    finished: bool = False
    reopen_after: timedelta | None = None
    pending: Sequence[str] = ()
    create: Mapping[str, Progress] = field(default_factory=dict)
    unchanged: Sequence[Partition] = ()


class BatchLedger(Protocol):
    """How the partitions of a source record their batches."""

    def set_of(self, progress: Progress, batch_id: str) -> str | None:
        """Return the id of the set that a batch waits for; None if it waits for none or does not exist."""
        ...

    def in_delivery(self, progress: Progress, batch_id: str, set_id: str) -> Progress:
        """Return the progress in which a batch waits for this set.

        :raises ProgressChangedError: if there is no such batch.
        """
        ...

    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        """Return the new state of the partition when this batch, which waits for a set, is delivered."""
        ...

    def undelivered(self, partition: Partition, batch_id: str) -> Settlement:
        """Return the new state of the partition when this batch, which waits for a set, must be delivered again."""
        ...


class WholePartition(BatchLedger):
    """A partition that is one batch, such as an object or a range of a table. It is finished once delivered.

    The batch may have any id. The progress stores the id of its set as `acknowledgment_set`.
    """

    @override
    def set_of(self, progress: Progress, batch_id: str) -> str | None:
        waiting = progress.get("acknowledgment_set")
        return waiting if isinstance(waiting, str) else None

    @override
    def in_delivery(self, progress: Progress, batch_id: str, set_id: str) -> Progress:
        return {**progress, "acknowledgment_set": set_id}

    @override
    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        return Settlement(progress=_without_set(partition.progress), moved=True, finished=True)

    @override
    def undelivered(self, partition: Partition, batch_id: str) -> Settlement:
        return Settlement(progress=_without_set(partition.progress))


def _without_set(progress: Progress) -> Progress:
    return {name: value for name, value in progress.items() if name != "acknowledgment_set"}
