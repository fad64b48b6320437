"""The progress of a shard's partition: how far its data is delivered, and what is landed but not delivered.

This is the only record of positions. A batch is fixed once it is in the progress: the next owner of the partition
delivers exactly the file that the progress names. Batches follow each other without a gap and end at whole Kinesis
records, so their end has no sub-sequence number. Several may be in delivery at once and end in any order. The
checkpoint moves over the acknowledged batches up to the first that is not, and never backwards.

A finished shard is followed by its children. A child of a merge has two parents, and its partition must not exist
before both are COMPLETED. The worker that finishes the second parent creates it. The transaction fails if the other
parent has changed since it was read. So two parents that finish at the same moment cannot both leave the child to the
other.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple, Self

from airflow_provider_coordination.coordination.acknowledgment import Lookup, Settlement
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.aggregation import HashKeyRange, hash_keys_between
from airflow_provider_coordination.sources.kinesis.positions import (
    TRIM_HORIZON,
    Position,
    at_timestamp,
    is_number,
    parse_position,
    position_order,
)
from airflow_provider_coordination.sources.landed import LandedBatch, LandedBatches, LandedProgress, ProgressFormatError


class ShardKey(NamedTuple):
    """The parts of a shard's partition key."""

    stream: str
    creation_epoch: int
    shard_id: str


def partition_key(stream: str, creation_epoch: int, shard_id: str) -> str:
    """Return the key of a shard's partition: `<stream>:<creation epoch>:<shard id>`.

    The epoch distinguishes a stream that was deleted and created again, as in the Kinesis Client Library.

    :param stream: the stream's name.
    :param creation_epoch: when the stream was created, in whole seconds since 1970.
    :param shard_id: the shard's name.
    """
    return f"{stream}:{creation_epoch}:{shard_id}"


def parse_partition_key(text: str) -> ShardKey:
    """Parse a key that `partition_key` made.

    :raises ValueError: if the text is not such a key.
    """
    stream, _, rest = text.partition(":")
    epoch, _, shard_id = rest.partition(":")
    if not (stream and shard_id and ":" not in shard_id and is_number(epoch) and int(epoch) > 0):
        raise ValueError(f"partition key '{text}' is not <stream>:<creation epoch in seconds>:<shard id>")
    return ShardKey(stream, int(epoch), shard_id)


def sibling_key(key: str, shard_id: str) -> str:
    """Return the key of another shard of the same stream.

    :param key: a shard's partition key.
    :raises ValueError: if it is not such a key.
    """
    parsed = parse_partition_key(key)
    return partition_key(parsed.stream, parsed.creation_epoch, shard_id)


KIND = "kinesis"
"""The kind of source whose shards have ranges of hash keys."""
LINEAGE_KIND = "dynamodb_streams"
"""The kind of source whose shards have parents, and no hash keys."""
SHARD_KINDS = (KIND, LINEAGE_KIND)
READ_ON = "earliest"
SKIP_TO_LATEST = "latest"
ON_DATA_LOSS = ("fail", READ_ON, SKIP_TO_LATEST)
"""What happens to a shard whose data is gone before it was read: it is parked, or reading continues after the gap, with
the earliest record that is left or with those that arrive from now on."""
SETTLING = timedelta(seconds=3)
"""After this time every record that arrived can be read: the service dates its responses in whole seconds, and a record
can be read a moment after its arrival."""
MAX_GAPS = 16
"""How many of the latest gaps a progress keeps; each gap was reported when it was found."""
THROUGHPUT_SMOOTHING = 0.5
"""The weight of the latest measurement, as in the Kinesis Client Library."""


def new_batch_id(partition_key: str) -> str:
    """Return a new, unique name for a batch of a shard that is about to be landed.

    The name must be in the file from its first row on. So it cannot contain the end of the batch, which is known only
    after reading.

    :param partition_key: the shard's partition.
    """
    return f"{parse_partition_key(partition_key).shard_id}-{secrets.token_hex(10)}"


@dataclass(frozen=True)
class ShardRange:
    """A shard as its partition knows it, such as the child of a finished shard.

    :param shard_id: its name, unique in the stream.
    :param parent_shard_ids: all the shards that it came from: none, one (split), or two (merge).
    :param starting_hash_key: the first hash key of its range, a decimal number; empty if the stream has no hash keys.
    :param ending_hash_key: the last hash key of its range.
    """

    shard_id: str
    parent_shard_ids: tuple[str, ...]
    starting_hash_key: str
    ending_hash_key: str

    @property
    def hash_keys(self) -> HashKeyRange | None:
        """The hash keys whose records belong to it; None if unknown."""
        return hash_keys_between(self.starting_hash_key, self.ending_hash_key)

    @property
    def range(self) -> ShardRange:
        """The shard without what only a listing knows."""
        return ShardRange(self.shard_id, self.parent_shard_ids, self.starting_hash_key, self.ending_hash_key)

    @classmethod
    def of_child(cls, child: Mapping[str, Any]) -> ShardRange:
        """Return the shard that an entry of ChildShards describes."""
        return ShardRange(child["ShardId"], tuple(child["ParentShards"]), *hash_key_texts(child))


def hash_key_texts(described: Mapping[str, Any]) -> tuple[str, str]:
    """Return the first and the last hash key of a shard or child that the service describes; empty if it has none."""
    keys = described.get("HashKeyRange") or {}
    return keys.get("StartingHashKey", ""), keys.get("EndingHashKey", "")


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A range of a shard whose data was lost before it was read.

    :param after: the position up to which everything was read.
    :param before: the sequence number of the first record after the gap; None if there was none.
    :param since: everything that arrived by this instant (aware) was read; None if unknown.
    :param until: nothing is missing that arrived after this instant (aware); None if unknown.
    :param found_at: when it was found (aware).
    :param reason: what happened, in a sentence.
    """

    after: str
    before: str | None
    since: datetime | None
    until: datetime | None
    found_at: datetime
    reason: str

    def __str__(self) -> str:
        """Return the range as text."""
        since = "" if self.since is None else f" from {self.since:%Y-%m-%dT%H:%M:%SZ}"
        until = "" if self.until is None else f" until {self.until:%Y-%m-%dT%H:%M:%SZ}"
        arrived = f", arrived{since}{until}" if since or until else ""
        return f"({self.after}, {self.before or 'end'}){arrived}: {self.reason}"


@dataclass(frozen=True)
class PutAside:
    """A mark that shard sync parked the partition; a later sync reopens it once the stream exists and is named.

    :param version: the partition's version when it was parked. Every write changes the version, so the mark is void
        after any change by a user or a job, such as parking it again.
    :param stream_gone: whether the stream was not found, so that the rest of the shard was recorded as lost; otherwise
        the stream was no longer named.
    """

    version: int
    stream_gone: bool


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """Where the reading of a shard continues after a range of it was repaired.

    :param position: the position after which it goes on: the checkpoint before the repair.
    :param end: where reading ended before the repair; None for the end of the shard.
    :param delivered_until: every record that arrived by this instant (aware) was delivered before the repair.
    :param owed_since: see `ShardProgress`.
    :param is_ended: whether the shard was finished, so that nothing follows the range.
    :param children: its child shards, if it was.
    """

    position: str
    end: str | None = None
    delivered_until: datetime | None = None
    owed_since: datetime | None = None
    is_ended: bool = False
    children: tuple[ShardRange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShardProgress(LandedProgress):
    """The progress of a shard's partition.

    :param stream: the stream's name.
    :param shard_id: the shard's name.
    :param parent_shard_ids: the shards that it came from.
    :param starting_hash_key: the first hash key of its range, a decimal number.
    :param ending_hash_key: the last hash key of its range.
    :param children: its child shards; known once its end is landed.
    :param delivered_until: every record that arrived by this instant (aware) is delivered; None if unknown.
    :param gaps: the latest ranges that were lost.
    :param throughput: bytes of user data a second, smoothed; None if unknown.
    :param owed_since: a record that arrived at this instant (aware) or later must be read, and counts as lost if it is
        gone before. Earlier records are read if they still exist. None if `delivered_until` sets this bound.
    :param put_aside: the mark of a shard sync that parked it; None if none did.
    :param start: the earliest position at which it is read, see `bounds`; None for the start of the shard.
    :param end: where reading ends, a sequence number or an instant, see `bounds`; None for the end of the shard.
    :param resumes: set while a range is repaired: reading ends at `end`, and then goes on there.
    :raises ValueError: if the kind is another one, the checkpoint is not a position, or a batch ends before it starts.
    """

    NOUN: ClassVar[str] = "shard"
    TRANSIENT_FIELDS: ClassVar[frozenset[str]] = LandedProgress.TRANSIENT_FIELDS | {
        "children", "delivered_until", "gaps", "throughput", "owed_since", "put_aside",
    }  # fmt: skip

    kind: str = KIND
    stream: str
    shard_id: str
    parent_shard_ids: tuple[str, ...]
    starting_hash_key: str
    ending_hash_key: str
    checkpoint: str = TRIM_HORIZON
    children: tuple[ShardRange, ...] = ()
    delivered_until: datetime | None = None
    gaps: tuple[Gap, ...] = ()
    throughput: float | None = None
    owed_since: datetime | None = None
    put_aside: PutAside | None = None
    start: str | None = None
    end: str | None = None
    resumes: Resumption | None = None

    def __post_init__(self) -> None:
        if self.kind not in SHARD_KINDS:
            raise ValueError(f"field 'kind' must be {' or '.join(map(repr, SHARD_KINDS))}; got {self.kind!r}")
        position_order(self.checkpoint)
        for bound in filter(None, (self.start, self.end)):
            position_order(bound)
        for batch in self.landed:
            if position_order(batch.end) < position_order(batch.start):
                raise ValueError(f"batch '{batch.batch_id}' ends at {batch.end}, before its start {batch.start}")

    @property
    @override
    def name(self) -> str:
        return f"shard '{self.shard_id}'"

    @property
    def has_hash_keys(self) -> bool:
        """Whether shards of its kind of source have hash keys; otherwise only their lineage relates them."""
        return self.kind == KIND

    @property
    def hash_keys(self) -> HashKeyRange | None:
        """The hash keys whose records belong to the shard; None if unknown."""
        return hash_keys_between(self.starting_hash_key, self.ending_hash_key)

    @property
    def is_followed(self) -> bool:
        """Whether its children are read too, up to the same end.

        If its end is a sequence number, the children are not read: other shards have their own numbers.
        """
        return self.end is None or parse_position(self.end).sequence_number is None

    @property
    @override
    def is_repairing(self) -> bool:
        return self.resumes is not None

    @property
    def owed_from(self) -> datetime | None:
        """The instant from which no record may be missing that is not landed yet; None if unknown."""
        landed = (batch.read_until for batch in reversed(self.landed))
        return next(filter(None, landed), None) or self.delivered_until or self.owed_since

    @override
    def landing(self, batch: LandedBatch, children: tuple[ShardRange, ...] = ()) -> Self:
        """Return the progress with one more landed batch.

        :param children: the child shards, given with the batch that ends the shard.
        :raises ValueError: if children are given with a batch that does not end the shard.
        """
        landed = super().landing(batch)
        if children and not batch.is_last:
            raise ValueError(f"{self.name}: batch '{batch.batch_id}' has children but does not end the shard")
        return replace(landed, children=children)

    @override
    def advanced_over(self, delivered: Sequence[LandedBatch]) -> Self:
        """Also moves `delivered_until`."""
        until = next((batch.read_until for batch in reversed(delivered) if batch.read_until), self.delivered_until)
        return replace(super().advanced_over(delivered), delivered_until=until)

    def restarted(
        self,
        position: str = TRIM_HORIZON,
        *,
        epoch: int = 0,
        delivered_until: datetime | None = None,
        owed_since: datetime | None = None,
    ) -> ShardProgress:
        """Return the progress as if the shard was read exactly up to a position, in a new epoch.

        Records after the position are delivered again, under other batch ids; landed batches are dropped. If it has a
        start, it never starts before that.

        :param position: `TRIM_HORIZON`, an instant or a sequence number.
        :param epoch: the lowest epoch that it may get.
        :param delivered_until: an instant (aware) before which no record is needed; None if unknown.
        :param owed_since: the instant (aware) from which no record may be missing, if that is later.
        :raises ValueError: if the text is not a position.
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
            end=self.end if self.resumes is None else self.resumes.end,
            resumes=None,
        )

    def repairing(self, after: str, until: str, *, epoch: int, created_at: datetime) -> ShardProgress:
        """Return the progress that reads one delivered range again, and then goes on where it is now.

        Batches that are landed and not delivered are read again.

        :param after: the position after which the range begins.
        :param until: the sequence number of its last record.
        :param epoch: the lowest epoch that it may get.
        :param created_at: when the stream was created (aware): what arrived since counts as lost if it is gone. A
            sequence number needs no such instant, as its own record shows whether later ones are there.
        :raises ValueError: if a range is being repaired, or a position does not fit.
        """
        if self.resumes is not None:
            raise ValueError(f"a range up to {self.end} is being repaired; wait until it is delivered")
        if parse_position(until) != Position(sequence_number=until):
            raise ValueError(f"a range ends at a sequence number, and {until!r} is none; reset the partition instead")
        resumes = Resumption(
            position=self.checkpoint,
            end=self.end,
            delivered_until=self.delivered_until,
            owed_since=self.owed_since,
            is_ended=self.is_finished,
            children=self.children if self.is_finished else (),
        )
        owed_since = None if parse_position(after).sequence_number is not None else created_at
        return replace(self.restarted(after, epoch=epoch, owed_since=owed_since), end=until, resumes=resumes)

    def resumed(self) -> ShardProgress:
        """Return the progress after a repair: it goes on where it was, in a new epoch, or is finished again."""
        assert self.resumes is not None
        known = self.resumes
        if known.is_ended:
            return replace(
                self, end=known.end, children=known.children, delivered_until=known.delivered_until, resumes=None
            )
        return self.restarted(known.position, delivered_until=known.delivered_until, owed_since=known.owed_since)

    def _no_earlier_than_start(self, position: str) -> str:
        if self.start is None:
            return position
        requested, start = parse_position(position), parse_position(self.start)
        if requested.sequence_number is not None and start.timestamp is not None:
            return position  # a sequence number cannot be compared with an instant, and is used as given
        is_comparable = (requested.timestamp is None) == (start.timestamp is None) and position != TRIM_HORIZON
        return position if is_comparable and position_order(position) >= position_order(self.start) else self.start

    @override
    def rebuilt(self, delivered_until: datetime | None) -> Self:
        return replace(self, delivered_until=delivered_until)

    def gap_to_end(self, reason: str, *, until: datetime | None, found_at: datetime) -> Gap:
        """Return the gap of a shard that is gone before its end was read.

        :param until: the shard has no record that arrived after this instant (aware).
        """
        return Gap(
            after=self.landed_position,
            before=None,
            since=self.owed_from,
            until=until,
            found_at=found_at,
            reason=reason,
        )

    def with_gap(self, gap: Gap) -> Self:
        """Return the progress with one more lost range; itself if the range is already recorded."""
        if any((known.after, known.before) == (gap.after, gap.before) for known in self.gaps):
            return self
        return replace(self, gaps=(*self.gaps, gap)[-MAX_GAPS:])

    def skipping(self, gap: Gap) -> Self:
        """Return the progress without the rest of the shard as it is now: reading continues at the end of a gap.

        :param gap: from the shard's position to an instant; landed batches must be delivered before.
        """
        assert gap.until is not None and not self.landed
        return replace(self.with_gap(gap), checkpoint=at_timestamp(gap.until), delivered_until=gap.until)

    @property
    def has_skipped(self) -> bool:
        """Whether it is at the end of a gap, with nothing read after it; see `skipping`."""
        return any(gap.until is not None and self.checkpoint == at_timestamp(gap.until) for gap in self.gaps)

    def without_loss(self) -> Self:
        """Return the progress without the gap for the lost rest of the shard, which turned out to be wrong."""
        rest = (self.landed_position, None)
        return replace(self, gaps=tuple(gap for gap in self.gaps if (gap.after, gap.before) != rest))

    def ended(self, shards: Iterable[ShardRange] = ()) -> Self:
        """Return the progress of a shard that is not read any further; landed batches are still delivered.

        :param shards: the listed shards: its children follow as if its end had been read.
        """
        children = tuple(shard.range for shard in shards if self.shard_id in shard.parent_shard_ids)
        return replace(self, is_ended=True, children=children)

    def with_range_of(self, shard: ShardRange) -> Self:
        """Return the progress with the hash range of its shard."""
        return replace(self, starting_hash_key=shard.starting_hash_key, ending_hash_key=shard.ending_hash_key)

    def measured(self, bytes_per_second: float) -> ShardProgress:
        """Return the progress with one more measured throughput, smoothed as in the Kinesis Client Library."""
        known = bytes_per_second if self.throughput is None else self.throughput
        smoothed = THROUGHPUT_SMOOTHING * bytes_per_second + (1 - THROUGHPUT_SMOOTHING) * known
        return replace(self, throughput=round(smoothed, 1))

    def quiet_until(self, instant: datetime) -> ShardProgress:
        """Return the progress of a shard from which nothing else was read by an instant (aware)."""
        return replace(self.measured(0.0), delivered_until=instant)

    @classmethod
    def first(cls, stream: str, shard: ShardRange, **known: Any) -> ShardProgress:
        """Return the progress of a shard that was not read yet.

        :param known: the other fields that are known. `delivered_until` is an instant (aware) before which no record
            arrived in it, and `epoch` the epoch of the shards that it came from; see `start_of_child`.
        """
        return cls(stream=stream, **vars(shard.range), **known)

    @classmethod
    @override
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """The field `kind` is required."""
        if "kind" not in mapping:
            kinds = " or ".join(map(repr, SHARD_KINDS))
            raise ProgressFormatError(f"stored progress: field 'kind' is missing; for a shard it must be {kinds}")
        return super().from_mapping(mapping)


def start_of_child(parents: Iterable[ShardProgress]) -> tuple[str, int]:
    """Return the start and the epoch of a shard whose parents are finished.

    It starts at its earliest record, whatever the initial position of the source, as in the Kinesis Client Library.
    After a reset to an instant, that instant also applies to the children: if a parent had no record from the instant
    on, its children may have older records.

    That does not apply to an instant up to which lost data was skipped: the children have lost nothing yet.

    :param parents: the progress of the finished parents, as far as they are known.
    """
    known = list(parents)
    epoch = max((parent.epoch for parent in known), default=0)
    reset = [
        None if parent.has_skipped else parse_position(parent.checkpoint).timestamp
        for parent in known
        if epoch and parent.epoch == epoch
    ]
    instants = [instant for instant in reset if instant is not None]
    if not instants or len(instants) < len(reset):
        return TRIM_HORIZON, epoch
    return at_timestamp(min(instants)), epoch


log = logging.getLogger(__name__)


class ShardBatches(LandedBatches):
    """The batches of shards."""

    def __init__(self) -> None:
        super().__init__(ShardProgress)

    @override
    def with_followers(
        self, settlement: Settlement, partition: Partition, before: ShardProgress, after: ShardProgress, lookup: Lookup
    ) -> Settlement:
        """Children follow once all their parents are finished; a range that was repaired is followed by the rest."""
        if after.resumes is not None:
            wait = None if after.resumes.is_ended else timedelta(0)
            return replace(settlement, progress=after.resumed().to_mapping(), reopen_after=wait)
        if not after.is_followed:
            return settlement
        parents = _other_parents(partition.partition_key, after, lookup)
        ready = [child for child in after.children if _is_ready(child, after.shard_id, parents)]
        return replace(
            settlement,
            create={
                sibling_key(partition.partition_key, child.shard_id): _first(before, after, child, parents)
                for child in ready
            },
            unchanged=[parent for parent in parents.values() if parent is not None],
        )


def _first(
    before: ShardProgress, parent: ShardProgress, child: ShardRange, others: Mapping[str, Partition | None]
) -> Mapping[str, Any]:
    # The child is younger than the last known record of its parent, so none of its records is older. Without such a
    # record, it owes what its parent owed: what arrived since the parent was found may not be missing in it either.
    known = [before.delivered_until, *(batch.last_arrival for batch in before.landed)]
    checkpoint, epoch = start_of_child([parent, *_readable(others.get(name) for name in child.parent_shard_ids)])
    return ShardProgress.first(
        parent.stream,
        child,
        kind=parent.kind,
        checkpoint=checkpoint,
        delivered_until=max((instant for instant in known if instant), default=None),
        owed_since=before.owed_since,
        epoch=epoch,
        start=parent.start,
        end=parent.end,
    ).to_mapping()


def _readable(partitions: Iterable[Partition | None]) -> Iterator[ShardProgress]:
    for partition in partitions:
        if partition is not None:
            with suppress(ProgressFormatError):
                yield ShardProgress.from_mapping(partition.progress)


def _other_parents(key: str, progress: ShardProgress, lookup: Lookup) -> dict[str, Partition | None]:
    names = {parent for child in progress.children for parent in child.parent_shard_ids} - {progress.shard_id}
    return {name: lookup(sibling_key(key, name)) for name in sorted(names)}


def _is_ready(child: ShardRange, finished: str, parents: Mapping[str, Partition | None]) -> bool:
    for name in child.parent_shard_ids:
        if name == finished:
            continue
        parent = parents[name]
        if parent is None:
            # Only a listing shows whether it is gone or was never known, so shard sync decides.
            log.warning("child shard %s waits for shard sync: its parent %s has no partition", child.shard_id, name)
            return False
        if parent.status is not PartitionStatus.COMPLETED:
            log.info("child shard %s waits for its other parent %s", child.shard_id, name)
            return False
    return True
