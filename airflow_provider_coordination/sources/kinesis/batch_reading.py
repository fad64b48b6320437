"""Which records of a shard's pages make one batch: where it begins, what was lost before it, and where it must end.

A position names the last record that was read, and Kinesis begins in silence at the earliest one it still has where
that is later. So where data may have been trimmed unread, reading begins with the named record itself: if it is still
there, nothing after it is lost.

What may have been trimmed had arrived before the retention began, and everything that arrived by `delivered_until` is
delivered: where that is within the retention nothing is lost, whatever became of the named record. So a stream that is
idle for longer than its retention, but was looked at in that time, is no loss. Where nobody looked for that long, and
the named record is gone, or the position names none, there may have been records or not, and nothing shows which: that
counts as a loss. Whether there was one is never left in silence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_coordination.sources.kinesis.pacing import Taken
from airflow_provider_coordination.sources.kinesis.pages import KinesisRecords, ShardPage, microseconds
from airflow_provider_coordination.sources.kinesis.positions import Position, parse_position, position_order
from airflow_provider_coordination.sources.kinesis.progress import ChildShard, Gap

LEAST_RETENTION = timedelta(hours=24)
"""What every stream keeps at least."""
SETTLING = timedelta(seconds=3)
"""After this time everything that had arrived can be read: the service dates its answers in whole seconds, and a record
can be read a moment after its arrival."""


@dataclass(frozen=True, kw_only=True)
class BatchStart:
    """Where a batch begins, and what is known of the records before.

    :param position: after which.
    :param delivered_until: nothing that arrived by this instant (aware) is missing; None if unknown.
    :param retention: how long the stream keeps records; None if unknown.
    """

    position: str
    delivered_until: datetime | None = None
    retention: timedelta | None = None

    @property
    def kept_for(self) -> timedelta:
        """How long records are there, at least."""
        return self.retention or LEAST_RETENTION

    def may_have_lost(self, now: datetime) -> bool:
        """Return whether records after the position may have been trimmed.

        :param now: by the clock of the service (aware).
        """
        if self.delivered_until is None:
            # Of a number, nobody knows how old it is; all other positions ask for what there is.
            return parse_position(self.position).sequence_number is not None
        return self.delivered_until < now - self.kept_for

    def is_inclusive(self, now: datetime) -> bool:
        """Return whether to begin with the record that the position names, to see whether it is still there.

        :param now: by our own clock (aware).
        """
        position = parse_position(self.position)
        # Long before it can be lost: the clocks may differ.
        return position.sequence_number is not None and (
            position.has_record_ahead or self.may_have_lost(now + self.kept_for / 2)
        )


class DataLostError(Exception):
    """Data was gone before it was read.

    :param gap: which.
    """

    def __init__(self, gap: Gap) -> None:
        super().__init__(str(gap))
        self.gap = gap


class BatchReading:
    """One batch while it is read.

    :param start: where it begins.
    :param inclusive: whether the pages begin with the record that the start names.
    :param stop: where it has to end: a sequence number, of whose record all belongs to it, or an instant, before the
        first record that arrived then or later; None for nowhere.
    :param reads_on: whether to read on behind data that is lost.
    """

    def __init__(
        self, start: BatchStart, *, inclusive: bool, stop: Position | None = None, reads_on: bool = False
    ) -> None:
        self._start = start
        self._position: Position = parse_position(start.position)
        self._stop = stop
        self._reads_on = reads_on
        self._inclusive = inclusive
        self._is_begun = False
        self.end = start.position
        """The position of the last whole Kinesis record of the batch; the start if there is none."""
        self.gap: Gap | None = None
        """What was lost before the first record."""
        self.at_stop = False
        """Whether everything up to `stop` is read."""
        self.end_of_shard = False
        """Whether the shard has nothing after the batch."""
        self.children: tuple[ChildShard, ...] = ()
        """The shards it continues in."""
        self.read_until: datetime | None = None
        """Everything that arrived before this instant is read."""
        self.millis_behind_latest: int | None = None
        """What the service said of the last page."""
        self.next_iterator: str | None = None
        """Kinesis' own, which goes on behind the batch; None if nobody knows one."""
        self.taken: Taken = ()
        """What was read of the shard, by the monotonic clock."""
        self.throttled = 0
        """How many reads were refused for what others read."""

    @property
    def begins_at_stop(self) -> bool:
        """Whether nothing can be in the batch: it would begin where it has to end, or behind that."""
        begins, stop = self._position, self._stop
        if stop is None or (begins.timestamp is None) != (stop.timestamp is None):
            return False
        return position_order(str(begins)) >= position_order(str(stop))

    @property
    def after(self) -> int | None:
        """The sub-sequence number up to which user records of the first Kinesis record were read before."""
        return self._position.sub_sequence_number if self.gap is None else None

    def of(self, pages: Iterable[ShardPage]) -> Iterator[KinesisRecords]:
        """Yield the records of each page that belong to the batch, perhaps none, until it has to end.

        All that the batch says of itself includes what was yielded last, so the caller may stop anywhere.

        :param pages: of the shard, from the start on.
        :raises DataLostError: if data is lost and it does not read on.
        """
        for page in pages:
            self.throttled += page.throttled
            self.millis_behind_latest = page.millis_behind_latest
            self.next_iterator = page.next_iterator
            self.taken = page.taken
            records = self._begun(page, KinesisRecords.of(page.records))
            stop = self._stop_index(records)
            if stop is not None:
                self.at_stop, records = True, records[:stop]
                self.next_iterator = None
            elif page.end_of_shard:
                self.end_of_shard, self.children = True, page.children
            elif page.is_drained and self._stops_at is not None:
                self.at_stop = page.read_at - SETTLING >= self._stops_at
            self._note_read_until(page, records)
            if records:
                self.end = records.last.sequence_number
            yield records
            if self.at_stop or self.end_of_shard or page.is_drained:
                return

    def _begun(self, page: ShardPage, records: KinesisRecords) -> KinesisRecords:
        """Return what of a page lies after the start, once it is known whether anything was lost in between."""
        if self._is_begun or not (records or page.end_of_shard or page.is_drained):
            return records
        self._is_begun = True
        number = self._position.sequence_number
        if self._inclusive and records and records[0].sequence_number == number:
            return records if self._position.has_record_ahead else records[1:]
        may_be_lost = self._inclusive or number is None
        if self._position.sub_sequence_number is not None or (may_be_lost and self._start.may_have_lost(page.read_at)):
            self.gap = self._gap_before(page, records)
            if not self._reads_on:
                raise DataLostError(self.gap)
        return records

    def _gap_before(self, page: ShardPage, records: KinesisRecords) -> Gap:
        hours = self._start.kept_for.total_seconds() / 3600
        if self._position.sub_sequence_number is not None:
            reason = "the record that the position lies in is trimmed, with what of it was not read"
        elif self._position.sequence_number is not None:
            gone = "is trimmed, or never was" if self._position.is_before else "is trimmed"
            reason = f"the record at the position {gone} (records are kept for {hours:g} h); more may be"
        else:
            reason = f"nothing was read for longer than records are kept ({hours:g} h); some may be trimmed"
        return Gap(
            after=self._start.position,
            before=records[0].sequence_number if records else None,
            since=self._start.delivered_until,
            until=records[0].approximate_arrival_timestamp if records else page.read_at - self._start.kept_for,
            found_at=page.read_at,
            reason=reason,
        )

    @property
    def _stops_at(self) -> datetime | None:
        return None if self._stop is None else self._stop.timestamp

    def _stop_index(self, records: KinesisRecords) -> int | None:
        """Return how many of the records belong to the batch, if it ends with them; None if it does not."""
        if self._stop is None or not records:
            return None
        if self._stop.sequence_number is not None:
            last = int(self._stop.sequence_number)
            if int(records.last.sequence_number) < last:
                return None
            return bisect_right(records, last, key=lambda record: int(record.sequence_number))
        if self._stop.timestamp is None:
            return None
        first = records.first_since(microseconds(self._stop.timestamp))
        return first if first < len(records) else None

    def _note_read_until(self, page: ShardPage, records: KinesisRecords) -> None:
        if self.at_stop and self._stops_at is not None:
            self.read_until = self._stops_at
        elif not self.at_stop and (page.end_of_shard or page.is_drained):
            self.read_until = page.read_at
        elif records:
            self.read_until = records.last.approximate_arrival_timestamp
