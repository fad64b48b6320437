"""Landed batches: ranges of a partition that were written to a file and are fixed, whatever the source.

Batches of a partition follow each other without a gap. Several may be in delivery at once and end in any order; the
checkpoint moves over those that are acknowledged without a gap, and never backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, Self

from airflow_provider_coordination.coordination.errors import ProgressChangedError


@dataclass(frozen=True, kw_only=True)
class LandedBatch:
    """A range of a partition that was written to a file and is fixed.

    :param batch_id: the same for the same range of the same partition, whoever lands it and when.
    :param start: the position before its first record.
    :param end: the position of its last record; the same as `start` when the partition ended without further
        records.
    :param file: the URI at which it was landed; empty when there was nothing to write. A later owner of the partition
        moves the file, see `LandedFiles`.
    :param file_bytes: the size of that file; 0 where there is none.
    :param records: how many user records it holds.
    :param bytes: how many bytes of user data.
    :param is_last: whether the partition has no record after it.
    :param read_until: an instant (aware): every record that had arrived by then, up to here, is in this
        batch or before.
    :param fencing_token: of the lease under which it was written.
    :param last_arrival: when its last record arrived (aware); None if it holds none, or the source does not tell.
    :param acknowledgment_set: the set that it waits for, once its delivery has begun.
    :param acknowledged: whether it is delivered, and only waits for batches before it.
    :param redeliver: whether an earlier delivery of it was rejected, so that what lies in a sink is replaced.
    """

    batch_id: str
    start: str
    end: str
    file: str
    file_bytes: int
    records: int
    bytes: int
    is_last: bool
    read_until: datetime | None
    fencing_token: int
    last_arrival: datetime | None = None
    acknowledgment_set: str | None = None
    acknowledged: bool = False
    redeliver: bool = False


class LandedProgress(Protocol):
    """What the progress of every source tells of its landed batches."""

    @property
    def landed(self) -> tuple[LandedBatch, ...]:
        """What is landed after the checkpoint, in order."""
        ...

    @property
    def is_ended(self) -> bool:
        """Whether nothing follows what is landed."""
        ...

    def batch(self, batch_id: str) -> LandedBatch | None:
        """Return a batch that is landed and not passed by the checkpoint; None if there is none of this name."""
        ...

    def in_delivery(self, batch_id: str, set_id: str) -> Self:
        """Return it with a batch waiting for this acknowledgment set.

        :raises ProgressChangedError: if no such batch is landed, or it is acknowledged.
        """
        ...

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object, the form in which a partition stores it."""
        ...


def batch_named(landed: Sequence[LandedBatch], batch_id: str) -> LandedBatch | None:
    """Return the batch of this name; None if there is none."""
    return next((batch for batch in landed if batch.batch_id == batch_id), None)


def with_batch(landed: Sequence[LandedBatch], of: str, batch_id: str, **changes: Any) -> tuple[LandedBatch, ...]:
    """Return the batches with one of them changed.

    :param of: what they are of, for the error.
    :raises ProgressChangedError: if no such batch is landed, or it is acknowledged.
    """
    batch = batch_named(landed, batch_id)
    if batch is None or batch.acknowledged:
        known = ", ".join(repr(b.batch_id) for b in landed if not b.acknowledged) or "none"
        raise ProgressChangedError(f"{of}: batch '{batch_id}' is not to be delivered; to deliver: {known}")
    return tuple(replace(b, **changes) if b.batch_id == batch_id else b for b in landed)


def passed(landed: Sequence[LandedBatch]) -> tuple[tuple[LandedBatch, ...], tuple[LandedBatch, ...]]:
    """Return the batches that the checkpoint moves over, acknowledged without a gap, and those after them."""
    count = next((n for n, batch in enumerate(landed) if not batch.acknowledged), len(landed))
    return tuple(landed[:count]), tuple(landed[count:])


def pending_sets(landed: Sequence[LandedBatch]) -> list[str]:
    """Return the acknowledgment sets that batches wait for."""
    return [batch.acknowledgment_set for batch in landed if batch.acknowledgment_set is not None]
