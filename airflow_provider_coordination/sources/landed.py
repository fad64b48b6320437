"""Landed batches: ranges of a partition that were written to a file and are fixed, for every kind of source.

Batches of a partition follow each other without a gap. Several may be in delivery at once and end in any order. The
checkpoint moves over the acknowledged batches up to the first that is not, and never backwards. A batch is fixed once
it is in its partition's progress: the next owner of the partition delivers exactly the file that the progress names.
Until then, it is a manifest row: what an executor reports about one partition.
"""

from __future__ import annotations

import errno
import math
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, ClassVar, Self

from airflow_provider_coordination.coordination.acknowledgment import BatchLedger, Lookup, Progress, Settlement
from airflow_provider_coordination.coordination.errors import ConfigurationError, ProgressChangedError, SourceError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, parse_instant
from airflow_provider_coordination.settings import read_settings, write_settings


@dataclass(frozen=True, kw_only=True)
class EventTimeBounds:
    """Which records of a batch are late or early.

    The bounds include the column's type and format, so that a later delivery with another schema leaves out the same
    records.

    :param column: the field of the payload that holds the event time.
    :param type: its type, as Spark writes it.
    :param earliest: records before this instant (aware) are late; None for no such bound.
    :param latest: records after this instant (aware) are early; None for no such bound.
    :param time_format: the format of its times; None for those that Spark accepts.
    """

    column: str
    type: str
    earliest: datetime | None
    latest: datetime | None
    time_format: str | None = None


START = ""
"""The position before everything, unless a kind of source has another name for it."""
BATCHES_PER_EPOCH = 2**20
"""The distance between the ordinals of two epochs. A reset by a user makes an epoch of whole seconds."""


class ProgressFormatError(SourceError):
    """A stored progress is not in its kind's format, or was written by a newer version of this package."""


@dataclass(frozen=True, kw_only=True)
class LandedRange:
    """A range of a partition that was written to a file.

    :param batch_id: the same for the same range of the same partition, for every owner and at any time.
    :param start: the position before its first record.
    :param end: the position of its last record; the same as `start` when the partition ended without further
        records.
    :param file: the URI at which it was landed; empty if there was nothing to write. A later owner of the partition
        moves the file, see `LandedFiles`.
    :param file_bytes: the size of that file; 0 if there is none.
    :param records: the number of user records.
    :param bytes: the number of bytes of user data.
    :param is_last: whether the partition has no record after it.
    :param read_until: an instant (aware): every record that arrived by then is in this range or an earlier one; None if
        unknown.
    :param first_arrival: when its first record arrived (aware); None if it has none, or the source does not report it.
    :param last_arrival: when its last record arrived (aware); None as above.
    """

    batch_id: str
    start: str
    end: str
    file: str = ""
    file_bytes: int = 0
    records: int
    bytes: int
    is_last: bool = False
    read_until: datetime | None = None
    first_arrival: datetime | None = None
    last_arrival: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class LandedBatch(LandedRange):
    """A range of a partition that was written to a file and is fixed.

    :param fencing_token: of the lease under which it was written.
    :param landed_at: when it was recorded (aware): no sink has it from before; None if unknown.
    :param ordinal: its number among the batches of its partition, once it is in the partition's progress: one more than
        the previous batch's, and never used twice.
    :param bounds: which of its records are late or early, and left out; None if no record is left out.
    :param acknowledgment_set: the set that it waits for, once its delivery has started.
    :param acknowledged: whether it is delivered, and only waits for batches before it.
    :param redeliver: whether an earlier delivery was rejected, so that its data in the sinks is replaced.
    :param shared_file: the shared file that holds its rows and those of other batches, in sinks that support this;
        recorded before that file can become visible. None if its files are its own.
    """

    fencing_token: int
    landed_at: datetime | None = None
    ordinal: int = 0
    bounds: EventTimeBounds | None = None
    acknowledgment_set: str | None = None
    acknowledged: bool = False
    redeliver: bool = False
    shared_file: str | None = None


@dataclass(frozen=True, kw_only=True)
class LandedProgress:
    """The progress of a partition that a job reads; a kind of source adds the fields that it needs.

    :param kind: the kind of source, such as `s3`; it also distinguishes this progress from others.
    :param checkpoint: the position up to which everything is delivered, as the kind of source writes it.
    :param landed: the batches that are landed after the checkpoint, in order.
    :param is_ended: whether nothing follows the landed batches.
    :param epoch: grows when a user or the source starts the partition again. It is part of the names of the batches:
        a batch of an earlier epoch can neither undo the restart nor be mistaken for a later one.
    """

    NOUN: ClassVar[str] = "partition"
    """The word for a partition of this kind in errors."""
    TRANSIENT_FIELDS: ClassVar[frozenset[str]] = frozenset({"checkpoint", "landed", "is_ended", "ordinal"})
    """The fields that can be rebuilt from the partition's batches."""

    kind: str
    checkpoint: str = START
    landed: tuple[LandedBatch, ...] = ()
    is_ended: bool = False
    epoch: int = 0
    ordinal: int = 0

    @property
    def name(self) -> str:
        """The name of the partition, for errors."""
        return self.NOUN

    @property
    def landed_position(self) -> str:
        """The position up to which everything is landed, delivered or not: reading continues after it."""
        return self.landed[-1].end if self.landed else self.checkpoint

    @property
    def is_finished(self) -> bool:
        """Whether the partition has ended and everything in it is delivered."""
        return self.is_ended and not self.landed

    @property
    def is_repairing(self) -> bool:
        """Whether it reads one range again, and then goes on where it was."""
        return False

    def batch(self, batch_id: str) -> LandedBatch | None:
        """Return a landed batch after the checkpoint by its name; None if there is none."""
        return next((batch for batch in self.landed if batch.batch_id == batch_id), None)

    def landing(self, batch: LandedBatch) -> Self:
        """Return the progress with one more landed batch, which gets its ordinal.

        :param batch: starts where the landed batches end.
        :raises ProgressChangedError: if the batch does not start there.
        """
        if self.is_ended:
            raise ProgressChangedError(f"{self.name}: batch '{batch.batch_id}' starts after the end of the {self.NOUN}")
        if batch.start != self.landed_position:
            raise ProgressChangedError(
                f"{self.name}: batch '{batch.batch_id}' starts at {batch.start!r}, but the landed batches end at "
                f"{self.landed_position!r}"
            )
        ordinal = self._next_ordinal
        numbered = replace(batch, ordinal=ordinal)
        return replace(self, landed=(*self.landed, numbered), is_ended=batch.is_last, ordinal=ordinal)

    @property
    def _next_ordinal(self) -> int:
        """The ordinal of the next batch.

        A partition that was removed and is created again in a later epoch no longer knows its last ordinal. So each
        epoch has its own range of ordinals.
        """
        return max(self.ordinal, self.epoch * BATCHES_PER_EPOCH) + 1

    def in_delivery(self, batch_id: str, set_id: str) -> Self:
        """Return the progress with a batch waiting for this acknowledgment set.

        :raises ProgressChangedError: if no such batch is landed, or it is acknowledged.
        """
        return self._with_changed(batch_id, acknowledgment_set=set_id)

    def sharing(self, batch_id: str, shared_file: str) -> Self:
        """Return the progress with a batch whose rows may become visible in this shared file.

        :raises ProgressChangedError: if no such batch is landed, or it is acknowledged.
        """
        return self._with_changed(batch_id, shared_file=shared_file)

    def acknowledged(self, batch_id: str) -> Self:
        """Return the progress with a batch delivered, and the checkpoint moved as far as no batch is missing.

        :raises ProgressChangedError: if no such batch is landed, or it is acknowledged.
        """
        marked = self._with_changed(batch_id, acknowledgment_set=None, acknowledged=True)
        count = next((n for n, batch in enumerate(marked.landed) if not batch.acknowledged), len(marked.landed))
        return marked.advanced_over(marked.landed[:count]) if count else marked

    def advanced_over(self, delivered: Sequence[LandedBatch]) -> Self:
        """Return the progress with the checkpoint moved over its first batches.

        :param delivered: those batches; at least one.
        """
        return replace(self, checkpoint=delivered[-1].end, landed=self.landed[len(delivered) :])

    def rejected(self, batch_id: str) -> Self:
        """Return the progress with a batch that must be delivered again, from its file.

        :raises ProgressChangedError: if no such batch is landed, or it is acknowledged.
        """
        return self._with_changed(batch_id, acknowledgment_set=None, redeliver=True)

    @property
    def durable_fields(self) -> dict[str, Any]:
        """The fields that rebuild the progress, together with its latest batch, if the store is lost; a JSON object."""
        stored = self.to_mapping().items()
        return {name: value for name, value in stored if value is not None and name not in self.TRANSIENT_FIELDS}

    def rebuilt(self, delivered_until: datetime | None) -> Self:
        """Return the progress for a partition that is rebuilt after its store was lost.

        :param delivered_until: every record that arrived by this instant (aware) is delivered; None if unknown.
        """
        return self

    def to_mapping(self) -> dict[str, Any]:
        """Return the progress as the JSON object that a partition stores."""
        return write_settings(self)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Return the progress that a partition stores.

        An unknown field is an error and is not dropped, since it may change the meaning of the others.

        :raises ProgressFormatError: if the JSON object is not a progress of this class.
        """
        try:
            return read_settings(cls, "stored progress", mapping)
        except (ConfigurationError, ValueError) as error:
            raise ProgressFormatError(
                f"stored progress: {error}; it was written by hand, by another system or by a newer version of this "
                "package; restore it, or upgrade"
            ) from error

    def _with_changed(self, batch_id: str, **changes: Any) -> Self:
        batch = self.batch(batch_id)
        if batch is None or batch.acknowledged:
            known = ", ".join(repr(b.batch_id) for b in self.landed if not b.acknowledged) or "none"
            raise ProgressChangedError(f"{self.name}: batch '{batch_id}' is not pending delivery; pending are: {known}")
        landed = tuple(replace(b, **changes) if b.batch_id == batch_id else b for b in self.landed)
        return replace(self, landed=landed)


class LandedBatches(BatchLedger):
    """The batches of partitions that jobs read; a `BatchLedger`. A kind of source decides what follows a finished one.

    :param progress: the class of the partitions' progress.
    """

    def __init__(self, progress: type[LandedProgress]) -> None:
        self._class = progress

    @override
    def set_of(self, progress: Progress, batch_id: str) -> str | None:
        batch = self._class.from_mapping(progress).batch(batch_id)
        return None if batch is None else batch.acknowledgment_set

    @override
    def in_delivery(self, progress: Progress, batch_id: str, set_id: str) -> Progress:
        return self._class.from_mapping(progress).in_delivery(batch_id, set_id).to_mapping()

    @override
    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        before = partition.progress_as(self._class.from_mapping)
        after = before.acknowledged(batch_id)
        settlement = Settlement(
            progress=after.to_mapping(),
            moved=len(after.landed) < len(before.landed),
            finished=after.is_finished,
            pending=pending_sets(after.landed),
        )
        return self.with_followers(settlement, partition, before, after, lookup) if after.is_finished else settlement

    def with_followers(
        self,
        settlement: Settlement,
        partition: Partition,
        before: Any,
        after: Any,
        lookup: Lookup,
    ) -> Settlement:
        """Return the settlement of a finished partition with the partitions that follow it; by default there are none.

        :param settlement: the settlement of the partition alone.
        :param partition: before the settlement.
        :param before: its progress before.
        :param after: its progress after.
        :param lookup: reads other partitions of the source.
        """
        return settlement

    @override
    def undelivered(self, partition: Partition, batch_id: str) -> Settlement:
        after = self._class.from_mapping(partition.progress).rejected(batch_id)
        return Settlement(progress=after.to_mapping(), pending=pending_sets(after.landed))


def pending_sets(landed: Sequence[LandedBatch]) -> list[str]:
    """Return the acknowledgment sets that batches wait for."""
    return [batch.acknowledgment_set for batch in landed if batch.acknowledgment_set is not None]


def objects_in(progress: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """Return the JSON objects in a list field."""
    found = progress.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def text_of(value: object) -> str | None:
    """Return a text value, or None."""
    return value if isinstance(value, str) else None


def integer_of(value: object) -> int | None:
    """Return a whole number, or None."""
    return value if type(value) is int else None


def number_of(value: object) -> float | None:
    """Return a finite number, or None."""
    with suppress(OverflowError):
        number = float(value) if type(value) in (int, float) else None  # type: ignore[arg-type]
        return number if number is not None and math.isfinite(number) else None
    return None


def instant_of(value: object) -> datetime | None:
    """Return an instant (aware), or None."""
    with suppress(ValueError):
        return parse_instant(value) if isinstance(value, str) else None
    return None


@dataclass(frozen=True)
class Failure:
    """The kind of error by which a partition failed.

    :param error_class: the name of the error's class.
    :param is_of_source: whether the source was unavailable, refused access, or is gone.
    """

    error_class: str = "PartitionFailed"
    is_of_source: bool = False

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure of an error."""
        return cls(type(error).__name__, isinstance(error, SourceError))


def not_written(root: str, error: OSError) -> str:
    """Return why this host cannot write landed files, and what to do if its disk is full.

    :param root: the folder for landed files.
    """
    remedy = "; free space there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"landing in {root} failed on {socket.gethostname()}: {error}{remedy}"


@dataclass(frozen=True, kw_only=True)
class LandedRow(LandedRange):
    """What was read of a partition, or why it could not be read; kinds of sources add fields.

    :param partition_key: the partition.
    :param seconds: how long the partition was read.
    :param error: why the partition could not be read; the fields of the range are then meaningless.
    :param is_temporary: whether a retry may help.
    :param failure: the kind of error.
    """

    partition_key: str
    seconds: float = 0.0
    error: str | None = None
    is_temporary: bool = False
    failure: Failure = Failure()

    @classmethod
    def without_records(cls, partition_key: str, start: str = START, **facts: Any) -> Self:
        """Return the row of a partition of which no record was read.

        :param start: the position from which it was read; it is the end as well, unless `facts` has another.
        :param facts: the other fields of the row that are known, such as `error`.
        """
        none = {"batch_id": "", "end": start, "file": "", "file_bytes": 0, "records": 0, "bytes": 0, "is_last": False}
        return cls(partition_key=partition_key, start=start, **{**none, **facts})

    @property
    def is_batch(self) -> bool:
        """Whether there is anything to record: records, positions passed, or the end of the partition."""
        return self.error is None and (self.end != self.start or self.is_last)

    def batch(self, fencing_token: int) -> LandedBatch:
        """Return the landed batch to record.

        :param fencing_token: the fencing token of the lease under which it is recorded.
        """
        landed = {each.name: getattr(self, each.name) for each in fields(LandedRange)}
        return LandedBatch(**landed, fencing_token=fencing_token)
