"""Landed batches: ranges of a partition that were written to a file and are fixed, whatever the source.

Batches of a partition follow each other without a gap. Several may be in delivery at once and end in any order; the
checkpoint moves over those that are acknowledged without a gap, and never backwards. A batch is fixed once it is in its
partition's progress: whoever owns the partition next delivers exactly the file that it names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Self

from airflow_provider_coordination.coordination.batches import Lookup, Progress, Settlement
from airflow_provider_coordination.coordination.errors import ConfigurationError, ProgressChangedError, SourceError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.event_time import EventTimeBounds

START = ""
"""The position before everything, where a kind of source has no other name for it."""
BATCHES_PER_EPOCH = 2**20
"""How far apart the ordinals of two epochs are, which are whole seconds where a person asks for one."""


class ProgressFormatError(SourceError):
    """A stored progress is not what its kind of source writes, or was written by a newer version of this package."""


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
    :param ordinal: its number among the batches of its partition, once it is in the partition's progress: one more than
        that of the batch before it, and never used twice.
    :param last_arrival: when its last record arrived (aware); None if it holds none, or the source does not say.
    :param bounds: which of its records are late or early, and left out; None where no record is.
    :param acknowledgment_set: the set that it waits for, once its delivery has begun.
    :param acknowledged: whether it is delivered, and only waits for batches before it.
    :param redeliver: whether an earlier delivery of it was rejected, so that what lies in a sink is replaced.
    :param shared_file: the file that holds its rows with those of other batches, in sinks that let batches share one;
        recorded before that file can become visible. None while its files are its own.
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
    ordinal: int = 0
    last_arrival: datetime | None = None
    bounds: EventTimeBounds | None = None
    acknowledgment_set: str | None = None
    acknowledged: bool = False
    redeliver: bool = False
    shared_file: str | None = None


@dataclass(frozen=True, kw_only=True)
class LandedProgress:
    """What the progress of every partition that a job reads remembers; a kind of source adds what it needs.

    :param kind: the kind of source, such as `s3`; also what distinguishes this progress from others.
    :param checkpoint: the position up to which everything is delivered, as the kind of source writes it.
    :param landed: what is landed after the checkpoint, in order.
    :param is_ended: whether nothing follows what is landed.
    :param epoch: grows when the partition begins anew, because a person or its source says so; part of the names of its
        batches: what was begun under an earlier epoch cannot undo that, nor be mistaken for what is read afterwards.
    """

    WHAT: ClassVar[str] = "partition"
    """What a partition of this kind is called in errors."""
    PASSING: ClassVar[frozenset[str]] = frozenset({"checkpoint", "landed", "is_ended", "ordinal"})
    """The fields that its batches say anew."""

    kind: str
    checkpoint: str = START
    landed: tuple[LandedBatch, ...] = ()
    is_ended: bool = False
    epoch: int = 0
    ordinal: int = 0

    @property
    def name(self) -> str:
        """What it is the progress of, for errors."""
        return self.WHAT

    @property
    def landed_position(self) -> str:
        """The position up to which everything is landed, delivered or not: reading goes on after it."""
        return self.landed[-1].end if self.landed else self.checkpoint

    @property
    def is_finished(self) -> bool:
        """Whether everything that the partition will ever hold is delivered."""
        return self.is_ended and not self.landed

    def batch(self, batch_id: str) -> LandedBatch | None:
        """Return a batch that is landed and not passed by the checkpoint; None if there is none of this name."""
        return next((batch for batch in self.landed if batch.batch_id == batch_id), None)

    def landing(self, batch: LandedBatch) -> Self:
        """Return it with one more landed batch, which gets its ordinal.

        :param batch: starts where the landed ones end.
        :raises ProgressChangedError: if the batch does not continue what is landed.
        """
        if self.is_ended:
            raise ProgressChangedError(f"{self.name}: batch '{batch.batch_id}' comes after the end of the {self.WHAT}")
        if batch.start != self.landed_position:
            raise ProgressChangedError(
                f"{self.name}: batch '{batch.batch_id}' starts at {batch.start!r}, but what is landed ends at "
                f"{self.landed_position!r}"
            )
        ordinal = self._next_ordinal
        numbered = replace(batch, ordinal=ordinal)
        return replace(self, landed=(*self.landed, numbered), is_ended=batch.is_last, ordinal=ordinal)

    @property
    def _next_ordinal(self) -> int:
        """The ordinal of the next batch.

        A partition that was removed and comes back in a later epoch has forgotten its last one. So each epoch has
        ordinals of its own.
        """
        return max(self.ordinal, self.epoch * BATCHES_PER_EPOCH) + 1

    def in_delivery(self, batch_id: str, set_id: str) -> Self:
        """Return it with a batch waiting for this acknowledgment set.

        :raises ProgressChangedError: if no such batch is landed, or it is acknowledged.
        """
        return self._with_changed(batch_id, acknowledgment_set=set_id)

    def sharing(self, batch_id: str, shared_file: str) -> Self:
        """Return it with a batch whose rows may become visible in this file, beside those of other batches.

        :raises ProgressChangedError: if no such batch is landed, or it is acknowledged.
        """
        return self._with_changed(batch_id, shared_file=shared_file)

    def acknowledged(self, batch_id: str) -> Self:
        """Return it with a batch delivered, and the checkpoint at the end of all that is without a gap.

        :raises ProgressChangedError: if no such batch is landed, or it is acknowledged.
        """
        marked = self._with_changed(batch_id, acknowledgment_set=None, acknowledged=True)
        count = next((n for n, batch in enumerate(marked.landed) if not batch.acknowledged), len(marked.landed))
        return marked.passing(marked.landed[:count]) if count else marked

    def passing(self, delivered: Sequence[LandedBatch]) -> Self:
        """Return it with the checkpoint moved over its first batches.

        :param delivered: these; at least one.
        """
        return replace(self, checkpoint=delivered[-1].end, landed=self.landed[len(delivered) :])

    def rejected(self, batch_id: str) -> Self:
        """Return it with a batch that has to be delivered again, from its file.

        :raises ProgressChangedError: if no such batch is landed, or it is acknowledged.
        """
        return self._with_changed(batch_id, acknowledgment_set=None, redeliver=True)

    @property
    def lasting(self) -> dict[str, Any]:
        """What makes it anew together with its latest batch, should its store be lost; a JSON object."""
        stored = self.to_mapping().items()
        return {name: value for name, value in stored if value is not None and name not in self.PASSING}

    def remade(self, delivered_until: datetime | None) -> Self:
        """Return it as it is after a loss of its store.

        :param delivered_until: every record that arrived by this instant (aware) is delivered; None if unknown.
        """
        return self

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object, the form in which a partition stores it."""
        return write_settings(self)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Return the progress that a partition stores.

        A field that this version does not know is refused rather than dropped: it may change what the others mean.

        :raises ProgressFormatError: if the JSON object is not a progress of this class.
        """
        try:
            return read_settings(cls, "stored progress", mapping)
        except (ConfigurationError, ValueError) as error:
            raise ProgressFormatError(
                f"stored progress: {error}; it was written by hand, by another system or by a newer version of this "
                "package: restore it, or upgrade"
            ) from error

    def _with_changed(self, batch_id: str, **changes: Any) -> Self:
        batch = self.batch(batch_id)
        if batch is None or batch.acknowledged:
            known = ", ".join(repr(b.batch_id) for b in self.landed if not b.acknowledged) or "none"
            raise ProgressChangedError(f"{self.name}: batch '{batch_id}' is not to be delivered; to deliver: {known}")
        landed = tuple(replace(b, **changes) if b.batch_id == batch_id else b for b in self.landed)
        return replace(self, landed=landed)


class LandedBatches:
    """How partitions that jobs read keep their batches; a `BatchLedger`. A kind of source says what follows an end.

    :param progress: the class of their progress.
    """

    def __init__(self, progress: type[LandedProgress]) -> None:
        self._class = progress

    def set_of(self, progress: Progress, batch_id: str) -> str | None:
        """See `BatchLedger.set_of`.

        :raises ProgressFormatError: if the progress is not what its kind of source writes.
        """
        batch = self._class.from_mapping(progress).batch(batch_id)
        return None if batch is None else batch.acknowledgment_set

    def in_delivery(self, progress: Progress, batch_id: str, set_id: str) -> Progress:
        """See `BatchLedger.in_delivery`."""
        return self._class.from_mapping(progress).in_delivery(batch_id, set_id).to_mapping()

    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        """See `BatchLedger.delivered`."""
        before = partition.progress_as(self._class.from_mapping)
        after = before.acknowledged(batch_id)
        settlement = Settlement(
            progress=after.to_mapping(),
            moved=len(after.landed) < len(before.landed),
            finished=after.is_finished,
            pending=pending_sets(after.landed),
        )
        return self.followed(settlement, partition, before, after, lookup) if after.is_finished else settlement

    def followed(
        self,
        settlement: Settlement,
        partition: Partition,
        before: Any,
        after: Any,
        lookup: Lookup,
    ) -> Settlement:
        """Return what a partition becomes that is finished, with what follows it: nothing, unless its kind says so.

        :param settlement: what it becomes by itself.
        :param partition: as it was.
        :param before: its progress then.
        :param after: its progress now.
        :param lookup: reads other partitions of the source.
        """
        return settlement

    def undelivered(self, partition: Partition, batch_id: str) -> Settlement:
        """See `BatchLedger.undelivered`."""
        after = self._class.from_mapping(partition.progress).rejected(batch_id)
        return Settlement(progress=after.to_mapping(), pending=pending_sets(after.landed))


def pending_sets(landed: Sequence[LandedBatch]) -> list[str]:
    """Return the acknowledgment sets that batches wait for."""
    return [batch.acknowledgment_set for batch in landed if batch.acknowledgment_set is not None]
