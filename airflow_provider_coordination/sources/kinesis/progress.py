"""What a shard's partition remembers: how far its data is delivered, and what is landed but not delivered.

This is the only ledger of positions. A batch is fixed once it is in here: whoever owns the partition next
delivers exactly the file it names. Batches follow each other without a gap and are cut at whole Kinesis records, so
that they end at a sequence number without a sub-sequence number. Several may be in delivery at once and end in any
order; the checkpoint moves over those that are acknowledged without a gap, and never backwards.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Protocol, Self

from airflow_provider_coordination.sources.kinesis.keys import parse_partition_key
from airflow_provider_coordination.sources.kinesis.positions import (
    TRIM_HORIZON,
    at_timestamp,
    parse_position,
    position_order,
)
from airflow_provider_coordination.sources.landed import LandedBatch, LandedProgress, ProgressFormatError

KIND = "kinesis"
"""The kind of source."""
ON_DATA_LOSS = ("fail", "reset")
"""What becomes of a shard whose data is gone before it was read: it is parked, or read on behind the gap."""
MAX_GAPS = 16
"""How many gaps a progress remembers, the latest ones; each was reported when it was found."""
THROUGHPUT_SMOOTHING = 0.5
"""The weight of the latest measurement, as in the Kinesis Client Library."""


def new_batch_id(partition_key: str) -> str:
    """Return a name for a batch of a shard that is about to be landed; no other landing has it.

    It cannot say where the batch ends, which is not known until it is read, and has to be in the file from its first
    row on.

    :param partition_key: the shard's partition.
    """
    return f"{parse_partition_key(partition_key).shard_id}-{secrets.token_hex(10)}"


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
class Gap:
    """A range of a shard that was gone before it was read: data that is lost.

    :param after: the position up to which everything was read.
    :param before: the sequence number of the first record after the gap; None if there was none.
    :param since: everything that arrived by this instant (aware) was read; None if unknown.
    :param until: nothing is missing that arrived later (aware); None if unknown.
    :param found_at: when it was noticed (aware).
    :param reason: what was noticed, in a sentence.
    """

    after: str
    before: str | None
    since: datetime | None
    until: datetime | None
    found_at: datetime
    reason: str

    def __str__(self) -> str:
        """Say which range it is."""
        since = "unknown" if self.since is None else f"{self.since:%Y-%m-%dT%H:%M:%SZ}"
        until = "unknown" if self.until is None else f"{self.until:%Y-%m-%dT%H:%M:%SZ}"
        return f"({self.after}, {self.before or 'end'}), arrived from {since} to {until}: {self.reason}"


@dataclass(frozen=True)
class PutAside:
    """That shard sync parked a shard's partition, which a later sync takes back once the stream is there and named.

    :param version: the partition's version as it was parked. Every write makes another one, so that what a person or a
        job did since then, such as parking it again, ends this.
    :param stream_gone: whether the stream could not be found, so that the rest of the shard was noted as lost;
        otherwise it was no longer named.
    """

    version: int
    stream_gone: bool


@dataclass(frozen=True, kw_only=True)
class ShardProgress(LandedProgress):
    """The progress of a shard's partition.

    :param stream: the stream's name.
    :param shard_id: the shard's name.
    :param parent_shard_ids: the shards it came from.
    :param starting_hash_key: the first hash key it takes, a decimal number.
    :param ending_hash_key: the last one.
    :param children: the shards it continues in; known once its end is landed.
    :param delivered_until: every record that arrived by this instant (aware) is delivered; None while
        nothing is known.
    :param gaps: the ranges that were lost, the latest ones.
    :param throughput: how many bytes of user data it gives a second, smoothed; None while nothing is known.
    :param owed_since: what arrived at this instant (aware) or later has to be read, and is lost if it is gone before;
        what arrived earlier is read if it is still there. None where `delivered_until` says it.
    :param put_aside: that shard sync parked it, and as which version; None if it never did.
    :param start: where reading it begins at the earliest, see `bounds`; None for the beginning of the shard.
    :param end: where reading it ends, a sequence number or an instant, see `bounds`; None for the end of the shard.
    :raises ValueError: if the kind is another one, the checkpoint is no position, or a batch ends before it starts.
    """

    WHAT: ClassVar[str] = "shard"
    PASSING: ClassVar[frozenset[str]] = LandedProgress.PASSING | {
        "children", "delivered_until", "gaps", "throughput", "owed_since", "put_aside",
    }  # fmt: skip

    kind: str = KIND
    stream: str
    shard_id: str
    parent_shard_ids: tuple[str, ...]
    starting_hash_key: str
    ending_hash_key: str
    checkpoint: str = TRIM_HORIZON
    children: tuple[ChildShard, ...] = ()
    delivered_until: datetime | None = None
    gaps: tuple[Gap, ...] = ()
    throughput: float | None = None
    owed_since: datetime | None = None
    put_aside: PutAside | None = None
    start: str | None = None
    end: str | None = None

    def __post_init__(self) -> None:
        if self.kind != KIND:
            raise ValueError(f"field 'kind' must be {KIND!r}; got {self.kind!r}")
        position_order(self.checkpoint)
        for bound in filter(None, (self.start, self.end)):
            position_order(bound)
        for batch in self.landed:
            if position_order(batch.end) < position_order(batch.start):
                raise ValueError(f"batch '{batch.batch_id}' ends at {batch.end}, before its start {batch.start}")

    @property
    def name(self) -> str:
        """See `LandedProgress.name`."""
        return f"shard '{self.shard_id}'"

    @property
    def is_followed(self) -> bool:
        """Whether the shards that it continues in are read too, up to the same end.

        Where it ends at a sequence number, the others of its source have numbers of their own.
        """
        return self.end is None or parse_position(self.end).sequence_number is None

    @property
    def owed_from(self) -> datetime | None:
        """From when on nothing may be missing of what is not landed yet; None if that is not known."""
        landed = (batch.read_until for batch in reversed(self.landed))
        return next(filter(None, landed), None) or self.delivered_until or self.owed_since

    def landing(self, batch: LandedBatch, children: tuple[ChildShard, ...] = ()) -> Self:
        """See `LandedProgress.landing`.

        :param children: the shards it continues in, given with the batch that ends the shard.
        :raises ValueError: if it has children and does not end the shard.
        """
        landed = super().landing(batch)
        if children and not batch.is_last:
            raise ValueError(f"{self.name}: batch '{batch.batch_id}' has children but does not end the shard")
        return replace(landed, children=children)

    def passing(self, delivered: Sequence[LandedBatch]) -> Self:
        """See `LandedProgress.passing`: everything that arrived until then is delivered."""
        until = next((batch.read_until for batch in reversed(delivered) if batch.read_until), self.delivered_until)
        return replace(super().passing(delivered), delivered_until=until)

    def restarted(
        self,
        position: str = TRIM_HORIZON,
        *,
        epoch: int = 0,
        delivered_until: datetime | None = None,
        owed_since: datetime | None = None,
    ) -> ShardProgress:
        """Return it as if the shard was read up to a position and nothing after it, in a new epoch.

        What was delivered after the position is delivered again, under other batch ids; what is landed is dropped.
        Where it has a start, it begins there at the earliest.

        :param position: `TRIM_HORIZON`, an instant or a sequence number.
        :param epoch: the new epoch, where that is greater than the one after the present one.
        :param delivered_until: an instant (aware) before which nothing is wanted, as far as is known.
        :param owed_since: from which instant (aware) on nothing may be missing, where that is later.
        :raises ValueError: if it is no position.
        """
        return replace(
            self,
            checkpoint=self._no_earlier_than_start(position),
            landed=(),
            children=(),
            delivered_until=delivered_until,
            owed_since=owed_since,
            is_ended=False,
            epoch=max(self.epoch + 1, epoch),
            put_aside=None,
        )

    def _no_earlier_than_start(self, position: str) -> str:
        if self.start is None:
            return position
        asked, start = parse_position(position), parse_position(self.start)
        if asked.sequence_number is not None and start.timestamp is not None:
            return position  # whoever names a record knows where it is
        is_comparable = (asked.timestamp is None) == (start.timestamp is None) and position != TRIM_HORIZON
        return position if is_comparable and position_order(position) >= position_order(self.start) else self.start

    def remade(self, delivered_until: datetime | None) -> Self:
        """See `LandedProgress.remade`."""
        return replace(self, delivered_until=delivered_until)

    def with_gap(self, gap: Gap) -> ShardProgress:
        """Return it with one more range that is lost."""
        return replace(self, gaps=(*self.gaps, gap)[-MAX_GAPS:])

    def measured(self, bytes_per_second: float) -> ShardProgress:
        """Return it with one more measurement of its throughput, smoothed as in the Kinesis Client Library."""
        known = bytes_per_second if self.throughput is None else self.throughput
        smoothed = THROUGHPUT_SMOOTHING * bytes_per_second + (1 - THROUGHPUT_SMOOTHING) * known
        return replace(self, throughput=round(smoothed, 1))

    @classmethod
    def first(
        cls,
        stream: str,
        shard: ShardRange,
        *,
        checkpoint: str = TRIM_HORIZON,
        delivered_until: datetime | None = None,
        owed_since: datetime | None = None,
        epoch: int = 0,
        start: str | None = None,
        end: str | None = None,
    ) -> ShardProgress:
        """Return the progress of a shard that nothing was read from yet.

        :param checkpoint: where to begin.
        :param delivered_until: an instant (aware) before which nothing arrived in it, as far as is known.
        :param owed_since: from which instant (aware) on nothing may be missing, where that is later.
        :param epoch: that of the shards it came from; see `start_of_child`.
        :param start: where reading it begins at the earliest; None for the beginning of the shard.
        :param end: where reading it ends; None for the end of the shard.
        """
        return cls(
            stream=stream,
            shard_id=shard.shard_id,
            parent_shard_ids=shard.parent_shard_ids,
            starting_hash_key=shard.starting_hash_key,
            ending_hash_key=shard.ending_hash_key,
            checkpoint=checkpoint,
            delivered_until=delivered_until,
            owed_since=owed_since,
            epoch=epoch,
            start=start,
            end=end,
        )

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """See `LandedProgress.from_mapping`: what does not say its kind is no shard's."""
        if "kind" not in mapping:
            raise ProgressFormatError(f"stored progress: field 'kind' is missing; of a shard it is {KIND!r}")
        return super().from_mapping(mapping)


def start_of_child(parents: Iterable[ShardProgress]) -> tuple[str, int]:
    """Return where a shard is first read, and in which epoch, once those that it came from are finished.

    That is its earliest record, whatever position the source began at, as in the Kinesis Client Library. An instant
    that a person has set holds for the children too: where a parent that was set to it held no record from then on, its
    children may be older than the instant.

    :param parents: the progress of the finished ones, as far as they are known.
    """
    known = list(parents)
    epoch = max((parent.epoch for parent in known), default=0)
    reset = [parse_position(parent.checkpoint).timestamp for parent in known if epoch and parent.epoch == epoch]
    instants = [instant for instant in reset if instant is not None]
    if not instants or len(instants) < len(reset):
        return TRIM_HORIZON, epoch
    return at_timestamp(min(instants)), epoch
