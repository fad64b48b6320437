"""What the end of an acknowledgment set means to the partition whose batch it was: the seam to the sources.

The core knows when a batch is delivered or must be delivered again. Where batches are kept in a partition's progress,
when that moves a checkpoint, and what follows a finished partition belongs to the source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from airflow_provider_coordination.coordination.partition import Partition

Progress = Mapping[str, Any]

Lookup = Callable[[str], Partition | None]
"""Reads another partition of the same source, as the store holds it now."""


@dataclass(frozen=True, kw_only=True)
class Settlement:
    """What a partition becomes when one of its batches is delivered, or has to be delivered again.

    :param progress: its new progress.
    :param moved: whether more of it is delivered without a gap than before.
    :param finished: whether everything that it will ever hold is delivered.
    :param reopen_after: put a finished partition aside for so long, to be read anew; None completes it.
    :param pending: the sets that its other batches still wait for.
    :param create: the partitions that follow a finished one: their first progress, by key.
    :param unchanged: other partitions that this rests on, as they were read.
    """

    progress: Progress
    moved: bool = False
    finished: bool = False
    reopen_after: timedelta | None = None
    pending: Sequence[str] = ()
    create: Mapping[str, Progress] = field(default_factory=dict)
    unchanged: Sequence[Partition] = ()


class BatchLedger(Protocol):
    """How the partitions of a source keep their batches."""

    def set_of(self, progress: Progress, batch_id: str) -> str | None:
        """Return the acknowledgment set that a batch waits for; None for none, or if there is no such batch."""
        ...

    def in_delivery(self, progress: Progress, batch_id: str, set_id: str) -> Progress:
        """Return the progress with a batch waiting for this set.

        :raises ProgressChangedError: if there is no such batch.
        """
        ...

    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        """Return what the partition becomes when this batch, which waits for a set, is delivered."""
        ...

    def undelivered(self, partition: Partition, batch_id: str) -> Settlement:
        """Return what the partition becomes when this batch, which waits for a set, has to be delivered again."""
        ...


class WholePartition:
    """A partition that is one batch: an object, a table's range. Delivered, it is finished.

    The batch has whatever name its set was given. The set's name is kept in the progress as `acknowledgment_set`.
    """

    def set_of(self, progress: Progress, batch_id: str) -> str | None:
        """See `BatchLedger.set_of`."""
        waiting = progress.get("acknowledgment_set")
        return waiting if isinstance(waiting, str) else None

    def in_delivery(self, progress: Progress, batch_id: str, set_id: str) -> Progress:
        """See `BatchLedger.in_delivery`."""
        return {**progress, "acknowledgment_set": set_id}

    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        """See `BatchLedger.delivered`."""
        return Settlement(progress=_without_set(partition.progress), moved=True, finished=True)

    def undelivered(self, partition: Partition, batch_id: str) -> Settlement:
        """See `BatchLedger.undelivered`."""
        return Settlement(progress=_without_set(partition.progress))


def _without_set(progress: Progress) -> Progress:
    return {name: value for name, value in progress.items() if name != "acknowledgment_set"}
