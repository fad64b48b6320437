"""What a partition of items remembers: what there is to read, how far it is delivered, and what is landed.

Many kinds of source cut their data into items: an object, a table's range, a segment, a slice. A partition holds one or
several. The supplier that creates it says which; after that the partition's progress is the only ledger.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from airflow_provider_coordination.coordination.partition import MAX_KEY_BYTES
from airflow_provider_coordination.sources.landed import START, LandedBatch, LandedProgress, ProgressFormatError

MAX_WITHIN_BYTES = 8 * 1024
"""The longest position within an item that a reader may give, as JSON: a progress holds a few of them, in 64 KB."""


def new_batch_id(kind: str) -> str:
    """Return a name for a batch of items that is about to be landed; no other landing has it.

    It cannot say where the batch ends, which is not known until it is read, and has to be in the file from its first
    row on.

    :param kind: the kind of source, with which the name begins.
    """
    return f"{kind}-{secrets.token_hex(12)}"


@dataclass(frozen=True, kw_only=True)
class FailedItem:
    """An item that could not be read, while others of its partition could: it becomes a partition of its own.

    :param item: its place in the partition's items, from 0.
    :param reason: what went wrong.
    :param within: how far into it everything is landed, as its reader says.
    """

    item: int
    reason: str
    within: str = START


@dataclass(frozen=True, kw_only=True)
class PartitionProgress(LandedProgress):
    """The progress of a partition of items.

    Its positions are those of `ItemPosition`.

    :param items: what there is to read, in order, as the source's reader understands it; JSON objects.
    :param failed: the items that could not be read.
    :param reread_seconds: read everything again so long after it is delivered; None for never.
    :param reads_left: how often it is read after this; None for no end. Only with `reread_seconds`.
    :param waited: how often it was put aside until its source's condition holds, since it began.
    :param split_of: the partition from which it was split off, since this item could not be read there.
    :param begin: the position at which it begins: of what was split off, not always the start of the item.
    """

    PASSING: ClassVar[frozenset[str]] = LandedProgress.PASSING | {"waited"}

    items: tuple[dict[str, Any], ...]
    failed: tuple[FailedItem, ...] = ()
    reread_seconds: float | None = None
    reads_left: int | None = None
    waited: int = 0
    split_of: str | None = None
    begin: str = START

    @property
    def will_be_reread(self) -> bool:
        """Whether it begins anew once it is finished."""
        return self.reread_seconds is not None and self.reads_left != 0

    @property
    def items_done(self) -> int:
        """How many items are done: delivered whole, gone, or put aside."""
        return ItemPosition.parse(self.checkpoint).item

    @property
    def items_read(self) -> tuple[dict[str, Any], ...]:
        """The items without those that could not be read: of these nobody may delete anything."""
        failed = {failed.item for failed in self.failed}
        return tuple(item for n, item in enumerate(self.items) if n not in failed)

    def landing(self, batch: LandedBatch, failed: tuple[FailedItem, ...] = ()) -> Self:
        """See `LandedProgress.landing`.

        :param failed: the items in its range that could not be read.
        """
        return replace(super().landing(batch), failed=(*self.failed, *failed))

    def restarted(self, epoch: int = 0) -> PartitionProgress:
        """Return it as if nothing was read yet, in a new epoch: what is read again makes other batches.

        :param epoch: the least one.
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

    def anew(self) -> PartitionProgress:
        """Return it as it is when everything is delivered and is to be read again: one time less is left."""
        return replace(self.restarted(), reads_left=None if self.reads_left is None else self.reads_left - 1)

    def split(self, partition_key: str) -> dict[str, PartitionProgress]:
        """Return the first progress of the partitions that the failed items become, by their keys.

        :param partition_key: that of this partition.
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
    """Return a new key for the partition that a failed item becomes: one that no other partition can have.

    A supplier may create a partition of any key. One that is named after the other and the item alone might be there
    already, and creating what is there creates nothing: the item would be lost.
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

    :param item: the place of the item that is read next, from 0.
    :param within: how far into that item, as its reader says; empty for its beginning.
    """

    item: int = 0
    within: str = ""

    def __str__(self) -> str:
        """Write it down."""
        if not self.item and not self.within:
            return START
        return f"{self.item}:{self.within}" if self.within else str(self.item)

    @classmethod
    def parse(cls, position: str) -> ItemPosition:
        """Read it.

        :raises ProgressFormatError: if it is no position.
        """
        item, _, within = position.partition(":")
        if not item and not within:
            return cls()
        if not (item.isascii() and item.isdigit()):
            raise ProgressFormatError(f"position {position!r} is not '<item>' or '<item>:<position within it>'")
        return cls(int(item), within)
