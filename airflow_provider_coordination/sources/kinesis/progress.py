"""What a shard's partition remembers: how far its data is delivered, and what is landed but not delivered.

This is the only ledger of positions. A batch is fixed once it is in here: whoever owns the partition next
delivers exactly the file it names. Batches follow each other without a gap and are cut at whole Kinesis records, so
that a position is a sequence number without a sub-sequence number. Several may be in delivery at once and end in any
order; the checkpoint moves over those that are acknowledged without a gap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinesis.leases import parse_partition_key

TRIM_HORIZON = "TRIM_HORIZON"
"""The position before the earliest record that a shard still holds."""


class ProgressFormatError(SourceError):
    """A stored progress is not that of a shard, or was written by a newer version of this package."""


def position_order(position: str) -> int:
    """Return a number by which positions compare: a sequence number itself, `TRIM_HORIZON` below them all.

    :param position: `TRIM_HORIZON`, or a sequence number in decimal digits.
    :raises ValueError: if it is neither.
    """
    if position == TRIM_HORIZON:
        return -2  # the order of the Kinesis Client Library, which has AT_TIMESTAMP below and LATEST above it
    if position.isascii() and position.isdigit():
        return int(position)
    raise ValueError(f"position '{position}' is neither {TRIM_HORIZON} nor a sequence number in decimal digits")


def batch_id(source_identifier: str, partition_key: str, start: str, end: str) -> str:
    """Return the name of a batch: the same for the same range of the same shard, whoever lands it and when.

    :param source_identifier: the source's identifier, prefix included.
    :param partition_key: the shard's partition.
    :param start: the position before the batch's first record.
    :param end: the position of its last record.
    """
    identity = "\n".join((source_identifier, partition_key, start, end)).encode()
    return f"{parse_partition_key(partition_key).shard_id}-{hashlib.sha256(identity).hexdigest()[:20]}"


class ShardRange(Protocol):
    """What a listed shard and a child that a finished one names have in common."""

    @property
    def shard_id(self) -> str:
        """Its name."""
        ...

    @property
    def parent_shard_ids(self) -> tuple[str, ...]:
        """The shards it came from."""
        ...

    @property
    def starting_hash_key(self) -> str:
        """The first hash key it takes."""
        ...

    @property
    def ending_hash_key(self) -> str:
        """The last one."""
        ...


@dataclass(frozen=True, kw_only=True)
class LandedBatch:
    """A range of a shard that was written to a file and is fixed.

    :param batch_id: as `batch_id` names it.
    :param start: the position before its first record.
    :param end: the position of its last record; the same as `start` when the shard ended without further
        records.
    :param file: its path, relative to the landing root; empty when there was nothing to write.
    :param records: how many user records it holds.
    :param bytes: how many bytes of user data.
    :param end_of_shard: whether the shard has no record after it.
    :param read_until: an instant (aware): every record that had arrived by then, up to here, is in this
        batch or before.
    :param fencing_token: of the lease under which it was written.
    :param acknowledgment_set: the set that it waits for, once its delivery has begun.
    :param acknowledged: whether it is delivered, and only waits for batches before it.
    :param redeliver: whether an earlier delivery of it was rejected, so that what lies in a sink is replaced.
    :raises ValueError: if it ends before it starts, or is a position that cannot be.
    """

    batch_id: str
    start: str
    end: str
    file: str
    records: int
    bytes: int
    end_of_shard: bool
    read_until: datetime | None
    fencing_token: int
    acknowledgment_set: str | None = None
    acknowledged: bool = False
    redeliver: bool = False

    def __post_init__(self) -> None:
        if position_order(self.end) < position_order(self.start):
            raise ValueError(f"batch '{self.batch_id}' ends at {self.end}, before its start {self.start}")


@dataclass(frozen=True, kw_only=True)
class ChildShard:
    """A shard that a finished one continues in.

    :param shard_id: its name.
    :param parent_shard_ids: all the shards it came from.
    :param starting_hash_key: the first hash key it takes, a decimal number.
    :param ending_hash_key: the last one.
    """

    shard_id: str
    parent_shard_ids: tuple[str, ...]
    starting_hash_key: str
    ending_hash_key: str


@dataclass(frozen=True, kw_only=True)
class ShardProgress:
    """The progress of a shard's partition.

    :param stream: the stream's name.
    :param shard_id: the shard's name.
    :param parent_shard_ids: the shards it came from.
    :param starting_hash_key: the first hash key it takes, a decimal number.
    :param ending_hash_key: the last one.
    :param checkpoint: the position up to which every record is delivered.
    :param landed: what is landed after the checkpoint, in order.
    :param children: the shards it continues in; known once its end is landed.
    :param delivered_until: every record that arrived by this instant (aware) is delivered; None while
        nothing is known.
    :param end_of_shard: whether the shard's end is landed.
    :raises ValueError: if the checkpoint is no position.
    """

    stream: str
    shard_id: str
    parent_shard_ids: tuple[str, ...]
    starting_hash_key: str
    ending_hash_key: str
    checkpoint: str = TRIM_HORIZON
    landed: tuple[LandedBatch, ...] = ()
    children: tuple[ChildShard, ...] = ()
    delivered_until: datetime | None = None
    end_of_shard: bool = False

    def __post_init__(self) -> None:
        position_order(self.checkpoint)

    @property
    def landed_position(self) -> str:
        """The position up to which every record is landed, delivered or not: reading goes on after it."""
        return self.landed[-1].end if self.landed else self.checkpoint

    @property
    def is_finished(self) -> bool:
        """Whether every record that the shard will ever hold is delivered."""
        return self.end_of_shard and not self.landed

    def landing(self, batch: LandedBatch, children: tuple[ChildShard, ...] = ()) -> ShardProgress:
        """Return it with one more landed batch.

        :param batch: starts where the landed ones end.
        :param children: the shards it continues in, given with the batch that ends the shard.
        :raises ValueError: if the batch does not continue what is landed.
        """
        if self.end_of_shard:
            raise ValueError(f"shard '{self.shard_id}': batch '{batch.batch_id}' comes after the end of the shard")
        if batch.start != self.landed_position:
            raise ValueError(
                f"shard '{self.shard_id}': batch '{batch.batch_id}' starts at {batch.start},"
                f" but what is landed ends at {self.landed_position}"
            )
        if children and not batch.end_of_shard:
            raise ValueError(
                f"shard '{self.shard_id}': batch '{batch.batch_id}' has children but does not end the shard"
            )
        return replace(self, landed=(*self.landed, batch), children=children, end_of_shard=batch.end_of_shard)

    def batch(self, batch_id: str) -> LandedBatch | None:
        """Return a batch that is landed and not passed by the checkpoint; None if there is none of this name."""
        return next((batch for batch in self.landed if batch.batch_id == batch_id), None)

    def in_delivery(self, batch_id: str, set_id: str) -> ShardProgress:
        """Return it with a batch waiting for this acknowledgment set.

        :raises ValueError: if no such batch is landed, or it is acknowledged.
        """
        return self._with(batch_id, acknowledgment_set=set_id)

    def acknowledged(self, batch_id: str) -> ShardProgress:
        """Return it with a batch delivered, and the checkpoint at the end of all that is without a gap.

        :raises ValueError: if no such batch is landed, or it is acknowledged.
        """
        marked = self._with(batch_id, acknowledgment_set=None, acknowledged=True)
        checkpoint, delivered_until, left = marked.checkpoint, marked.delivered_until, list(marked.landed)
        while left and left[0].acknowledged:
            batch = left.pop(0)
            checkpoint, delivered_until = batch.end, batch.read_until or delivered_until
        return replace(marked, checkpoint=checkpoint, landed=tuple(left), delivered_until=delivered_until)

    def rejected(self, batch_id: str) -> ShardProgress:
        """Return it with a batch that has to be delivered again, from its file.

        :raises ValueError: if no such batch is landed, or it is acknowledged.
        """
        return self._with(batch_id, acknowledgment_set=None, redeliver=True)

    def _with(self, batch_id: str, **changes: Any) -> ShardProgress:
        batch = self.batch(batch_id)
        if batch is None or batch.acknowledged:
            known = ", ".join(repr(b.batch_id) for b in self.landed if not b.acknowledged) or "none"
            raise ValueError(f"shard '{self.shard_id}': batch '{batch_id}' is not to be delivered; to deliver: {known}")
        landed = tuple(replace(b, **changes) if b.batch_id == batch_id else b for b in self.landed)
        return replace(self, landed=landed)

    def from_the_beginning(self) -> ShardProgress:
        """Return it as if nothing of the shard was ever read: what was delivered is delivered again."""
        return ShardProgress(
            stream=self.stream,
            shard_id=self.shard_id,
            parent_shard_ids=self.parent_shard_ids,
            starting_hash_key=self.starting_hash_key,
            ending_hash_key=self.ending_hash_key,
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object, the form in which a partition stores it."""
        return write_settings(self)

    @classmethod
    def first(cls, stream: str, shard: ShardRange) -> ShardProgress:
        """Return the progress of a shard that nothing was read from yet."""
        return cls(
            stream=stream,
            shard_id=shard.shard_id,
            parent_shard_ids=shard.parent_shard_ids,
            starting_hash_key=shard.starting_hash_key,
            ending_hash_key=shard.ending_hash_key,
        )

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> ShardProgress:
        """Return the progress that a partition stores.

        A field that this version does not know is refused rather than dropped: it may change what the others mean.

        :raises ProgressFormatError: if the JSON object is not a shard's progress.
        """
        try:
            return read_settings(cls, "stored progress", mapping)
        except (ConfigurationError, ValueError) as error:
            raise ProgressFormatError(
                f"stored progress: {error}; it was written by hand, by another system or by a newer version of this "
                "package: restore it, or upgrade"
            ) from error
