"""The progress of a partition of items: what there is to read, how far it is delivered, and what is landed.

Many kinds of source divide their data into items: an object, a range of a table, a segment, a slice. A partition holds
one or several items. The supplier that creates the partition names them. After that, the partition's progress is the
only record of what is done.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from airflow_provider_coordination.coordination.partition import MAX_KEY_BYTES
from airflow_provider_coordination.sources.landed import START, LandedBatch, LandedProgress, ProgressFormatError

MAX_WITHIN_BYTES = 8 * 1024
"""The longest position within an item that a reader may return, as JSON: a progress holds several of them in 64 KB."""


def new_batch_id(kind: str) -> str:
    """Return a new, unique name for a batch of items that is about to be landed.

    The name must be in the file from its first row on. So it cannot contain the end of the batch, which is known only
    after reading.

    :param kind: the kind of source, with which the name begins.
    """
    return f"{kind}-{secrets.token_hex(12)}"


@dataclass(frozen=True, kw_only=True)
class FailedItem:
    """An item that could not be read, while other items of its partition could: it becomes a partition of its own.

    :param item: its index in the partition's items, from 0.
    :param reason: what went wrong.
    :param within: the position within the item, as its reader writes it, up to which everything is landed.
    """

    item: int
    reason: str
    within: str = START


@dataclass(frozen=True, kw_only=True)
class PartitionProgress(LandedProgress):
    """The progress of a partition of items.

    Its positions are those of `ItemPosition`.

    :param items: what there is to read, in order: JSON objects for the source's reader.
    :param failed: the items that could not be read.
    :param reread_seconds: how long after delivery everything is read again, in seconds; None for never.
    :param reads_left: how often it is read after this time; None for no limit. Only with `reread_seconds`.
    :param waited: how often it was closed to wait for its source's condition since it started.
    :param split_of: the partition that this item was split off from, because it could not be read there.
    :param begin: the position at which it starts. After a split, this is not always the start of the item.
    """

    TRANSIENT_FIELDS: ClassVar[frozenset[str]] = LandedProgress.TRANSIENT_FIELDS | {"waited"}

    items: tuple[dict[str, Any], ...]
    failed: tuple[FailedItem, ...] = ()
    reread_seconds: float | None = None
    reads_left: int | None = None
    waited: int = 0
    split_of: str | None = None
    begin: str = START

    @property
    def will_be_reread(self) -> bool:
        """Whether it starts again once it is finished."""
        return self.reread_seconds is not None and self.reads_left != 0

    @property
    def items_done(self) -> int:
        """The number of items that are done: delivered completely, gone, or split off."""
        return ItemPosition.parse(self.checkpoint).item

    @property
    def items_read(self) -> tuple[dict[str, Any], ...]:
        """The items that were read. The data of the other items must not be deleted."""
        failed = {failed.item for failed in self.failed}
        return tuple(item for n, item in enumerate(self.items) if n not in failed)

    def landing(self, batch: LandedBatch, failed: tuple[FailedItem, ...] = ()) -> Self:
        """Return the progress with one more landed batch, as `LandedProgress.landing` does.

        :param failed: the items in its range that could not be read.
        """
        return replace(super().landing(batch), failed=(*self.failed, *failed))

    def restarted(self, epoch: int = 0) -> PartitionProgress:
        """Return the progress with nothing read yet, in a new epoch, so that reading again makes other batches.

        :param epoch: the lowest epoch that it may get.
        """
        return replace(
            self,
            checkpoint=self.begin,
            landed=(),
            is_ended=False,
            failed=(),
            epoch=max(epoch, self.epoch + 1),
            waited=0,
        )

    def for_next_read(self) -> PartitionProgress:
        """Return the progress for the next read after everything is delivered; `reads_left` is one less."""
        return replace(self.restarted(), reads_left=None if self.reads_left is None else self.reads_left - 1)

    def split(self, partition_key: str) -> dict[str, PartitionProgress]:
        """Return the first progress of the partitions that the failed items become, by partition key.

        :param partition_key: the key of this partition.
        """
        return {
            split_key(partition_key, failed.item): PartitionProgress(
                kind=self.kind,
                items=(self.items[failed.item],),
                checkpoint=str(ItemPosition(0, failed.within)),
                begin=str(ItemPosition(0, failed.within)),
                epoch=self.epoch,
                split_of=partition_key,
            )
            for failed in self.failed
        }


def split_key(partition_key: str, item: int) -> str:
    """Return a unique key for the partition that a failed item becomes.

    A supplier may create partitions with any key. A key made only of the partition's key and the item could exist
    already. Creating an existing partition does nothing, so the item would be lost.
    """
    suffix = f"#{item}.{secrets.token_hex(8)}"
    if len(key := partition_key.encode()) + len(suffix) > MAX_KEY_BYTES:
        digest = hashlib.sha256(key).hexdigest()[:16]
        partition_key = f"{key[: MAX_KEY_BYTES - 64].decode(errors='ignore')}~{digest}"
    return partition_key + suffix


@dataclass(frozen=True, order=True)
class ItemPosition:
    """A position in a partition of items: everything before it is read.

    As text it is `<item>` or `<item>:<position within the item>`, and nothing at the start.

    :param item: the index of the item that is read next, from 0.
    :param within: the position within that item, as its reader writes it; empty for its start.
    """

    item: int = 0
    within: str = ""

    def __str__(self) -> str:
        """Return the position as text."""
        if not self.item and not self.within:
            return START
        return f"{self.item}:{self.within}" if self.within else str(self.item)

    @classmethod
    def parse(cls, position: str) -> ItemPosition:
        """Parse a position.

        :raises ProgressFormatError: if the text is not a position.
        """
        item, _, within = position.partition(":")
        if not item and not within:
            return cls()
        if not (item.isascii() and item.isdigit()):
            raise ProgressFormatError(f"position {position!r} is not '<item>' or '<item>:<position within it>'")
        return cls(int(item), within)
