"""The result of one read of a shard, by polling or by fan-out: a page of records, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, overload

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.sources.kinesis.pacing import RecentReads
from airflow_provider_coordination.sources.kinesis.progress import ChildShard

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class KinesisRecord(NamedTuple):
    """A record as it is in the shard, possibly an aggregate.

    `sequence_number` is a decimal number, unique in the shard and growing;
    `approximate_arrival_timestamp` is aware, in UTC.
    """

    sequence_number: str
    partition_key: str
    approximate_arrival_timestamp: datetime
    data: bytes


class KinesisRecords(Sequence[KinesisRecord]):
    """Records in order, as Arrow columns: a page holds up to 10,000, and most are never accessed one by one.

    :param sequence_numbers: of each record, `string`.
    :param partition_keys: of each record, `string`.
    :param arrivals: the arrival time of each, in microseconds since 1970 in UTC, `int64`.
    :param data: of each record, `binary`.
    """

    __slots__ = ("arrivals", "data", "partition_keys", "sequence_numbers")

    def __init__(
        self, sequence_numbers: pa.Array, partition_keys: pa.Array, arrivals: pa.Array, data: pa.Array
    ) -> None:
        self.sequence_numbers = sequence_numbers
        self.partition_keys = partition_keys
        self.arrivals = arrivals
        self.data = data

    @classmethod
    def of(cls, records: Iterable[KinesisRecord]) -> KinesisRecords:
        """Return records as columns; `KinesisRecords` are returned unchanged."""
        if isinstance(records, cls):
            return records
        columns = [list(column) for column in zip(*records, strict=True)] or [[], [], [], []]
        return cls.from_lists(columns[0], columns[1], list(map(microseconds, columns[2])), columns[3])

    @classmethod
    def from_lists(
        cls, sequence_numbers: list[str], partition_keys: list[str], arrivals: list[int], data: list[bytes]
    ) -> KinesisRecords:
        """Return records from lists of column values."""
        return cls(
            pa.array(sequence_numbers, pa.string()),
            pa.array(partition_keys, pa.string()),
            pa.array(arrivals, pa.int64()),
            pa.array(data, pa.binary()),
        )

    @property
    def last(self) -> KinesisRecord:
        """The last record."""
        return self[len(self) - 1]

    @property
    def size(self) -> int:
        """The size in bytes as Kinesis counts it: data and partition keys."""
        lengths = (pc.sum(pc.binary_length(column)).as_py() for column in (self.data, self.partition_keys))
        return sum(length or 0 for length in lengths)

    def first_since(self, since_1970_us: int) -> int:
        """Return the index of the first record that arrived at an instant or later; the length if none did."""
        index: int = pc.index(pc.greater_equal(self.arrivals, since_1970_us), True).as_py()
        return len(self) if index < 0 else index

    def first_out_of_order(self) -> int | None:
        """Return the index of the first record whose sequence number is not greater than the previous one, or None."""
        before, after = self.sequence_numbers[:-1], self.sequence_numbers[1:]
        shorter, longer = pc.binary_length(before), pc.binary_length(after)
        grows = pc.or_(pc.less(shorter, longer), pc.and_(pc.equal(shorter, longer), pc.less(before, after)))
        index: int = pc.index(grows, False).as_py()
        return None if index < 0 else index + 1

    def __len__(self) -> int:
        return len(self.sequence_numbers)

    @overload
    def __getitem__(self, index: int) -> KinesisRecord: ...

    @overload
    def __getitem__(self, index: slice) -> KinesisRecords: ...

    def __getitem__(self, index: int | slice) -> KinesisRecord | KinesisRecords:
        if isinstance(index, slice):
            return KinesisRecords(
                self.sequence_numbers[index], self.partition_keys[index], self.arrivals[index], self.data[index]
            )
        return KinesisRecord(
            self.sequence_numbers[index].as_py(),
            self.partition_keys[index].as_py(),
            instant(self.arrivals[index].as_py()),
            self.data[index].as_py(),
        )

    def __iter__(self) -> Iterator[KinesisRecord]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"KinesisRecords({list(self)!r})"


@dataclass(frozen=True)
class ShardPage:
    """The result of one read.

    :param records: in order; a page may be empty, even in the middle of a shard.
    :param millis_behind_latest: how far the page is behind the newest record, in milliseconds; None if unknown.
    :param end_of_shard: whether the shard has ended and has no record after this page. The last page may hold
        records too.
    :param children: the child shards; on the last page only.
    :param read_at: the page has what could be read at this instant (aware, UTC), by the clock of the service if that
        is known.
    :param throttled: the number of reads since the previous page that were throttled because of other readers: this
        reader kept within the limits.
    :param next_iterator: the Kinesis iterator after the page; None if there is none.
    :param recent_reads: the recent reads of the shard, including this page, by the monotonic clock.
    """

    records: Sequence[KinesisRecord]
    millis_behind_latest: int | None
    end_of_shard: bool
    children: tuple[ChildShard, ...]
    read_at: datetime
    throttled: int = 0
    next_iterator: str | None = None
    recent_reads: RecentReads = ()

    @property
    def is_drained(self) -> bool:
        """Whether the page shows that everything was read that can be read now.

        An empty page alone does not show it: Kinesis also returns empty pages far behind the newest record. A lag of
        zero alone does not either: it is rounded.
        """
        return not self.records and self.millis_behind_latest == 0


def records_of(entries: Iterable[Mapping[str, Any]]) -> KinesisRecords:
    """Return the records of a response as boto3 parses it."""
    entries = list(entries)
    return KinesisRecords.from_lists(
        sequence_numbers=[entry["SequenceNumber"] for entry in entries],
        partition_keys=[entry["PartitionKey"] for entry in entries],
        arrivals=[microseconds(entry["ApproximateArrivalTimestamp"]) for entry in entries],
        data=[entry["Data"] for entry in entries],
    )


def child_of(child: Mapping[str, Any]) -> ChildShard:
    """Return the shard that an entry of ChildShards describes."""
    return ChildShard(
        shard_id=child["ShardId"],
        parent_shard_ids=tuple(child["ParentShards"]),
        starting_hash_key=child["HashKeyRange"]["StartingHashKey"],
        ending_hash_key=child["HashKeyRange"]["EndingHashKey"],
    )


def microseconds(moment: datetime) -> int:
    """Return microseconds since 1970 of an instant (aware)."""
    return (moment - EPOCH) // MICROSECOND


def instant(since_1970_us: int) -> datetime:
    """Return the instant (aware, UTC) of a number of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=since_1970_us)
