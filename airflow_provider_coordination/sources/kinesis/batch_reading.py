"""Which records of a shard's pages make one batch: where it starts, what was lost before it, and where it must end.

A position names the last record that was read. If that record is gone, Kinesis silently starts at the earliest record
that it still has. So if unread data may have been trimmed, reading starts with the named record itself. If the record
still exists, nothing after it is lost.

Trimmed records arrived before the start of the retention, and everything that arrived by `delivered_until` is
delivered. If `delivered_until` is within the retention, nothing is lost, even if the named record is gone. So a stream
that was idle for longer than its retention is no loss, as long as it was read during that time. If it was not read for
that long, and the named record is gone or the position names none, nothing shows whether there were records. That
counts as a loss, and is always reported.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.intervals import start_of_interval
from airflow_provider_coordination.sources.kinesis.aggregation import HashKeyRange
from airflow_provider_coordination.sources.kinesis.client import KinesisUnavailableError
from airflow_provider_coordination.sources.kinesis.pacing import RecentReads
from airflow_provider_coordination.sources.kinesis.positions import Position, parse_position, position_order
from airflow_provider_coordination.sources.kinesis.progress import SETTLING, Gap, ShardRange
from airflow_provider_coordination.sources.kinesis.records import KinesisRecord, KinesisRecords, microseconds
from airflow_provider_coordination.sources.kinesis.shards import MIN_RETENTION


@dataclass(frozen=True, kw_only=True)
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
    :param next_iterator: the Kinesis iterator after the page, or where a subscription continues; None if there is none.
    :param recent_reads: the recent reads of the shard, including this page, by the monotonic clock.
    """

    records: Sequence[KinesisRecord] = field(default_factory=lambda: KinesisRecords.of([]))
    millis_behind_latest: int | None
    end_of_shard: bool = False
    children: tuple[ShardRange, ...] = ()
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


@dataclass(frozen=True, kw_only=True)
class BatchStart:
    """Where a batch starts, and what is known about the records before it.

    :param position: the batch starts after this position.
    :param delivered_until: nothing that arrived by this instant (aware) is missing; None if unknown.
    :param retention: how long the stream keeps records; None if unknown.
    """

    position: str
    delivered_until: datetime | None = None
    retention: timedelta | None = None

    @property
    def kept_for(self) -> timedelta:
        """How long records are kept at least."""
        return self.retention or MIN_RETENTION

    def may_have_lost(self, now: datetime) -> bool:
        """Return whether records after the position may have been trimmed.

        :param now: by the clock of the service (aware).
        """
        if self.delivered_until is None:
            # The age of a sequence number is unknown; all other positions mean "what still exists".
            return parse_position(self.position).sequence_number is not None
        return self.delivered_until < now - self.kept_for

    def is_inclusive(self, now: datetime) -> bool:
        """Return whether to start with the record that the position names, to see whether it still exists.

        :param now: by the local clock (aware).
        """
        position = parse_position(self.position)
        # Well before it can be lost, since the clocks may differ.
        return position.sequence_number is not None and (
            position.has_record_ahead or self.may_have_lost(now + self.kept_for / 2)
        )


@dataclass(frozen=True, kw_only=True)
class ShardPart:
    """The part of a shard to read.

    :param stream: the name of the stream.
    :param shard_id: the shard.
    :param start: where to start, and what is known of the records before.
    :param hash_keys: the hash keys of the shard; None if unknown.
    :param end: the position at which reading ends; None if it has no end of its own.
    :param consumer_arn: read by enhanced fan-out as this consumer; None polls.
    :param stream_arn: the ARN with which calls name the stream; None for its name.
    """

    stream: str
    shard_id: str
    start: BatchStart
    hash_keys: HashKeyRange | None = None
    end: str | None = None
    consumer_arn: str | None = None
    stream_arn: str | None = None

    @property
    def address(self) -> str:
        """How calls name the stream."""
        return self.stream_arn or self.stream


class DataLostError(Exception):
    """Data was lost before it was read.

    :param gap: the lost range.
    """

    def __init__(self, gap: Gap) -> None:
        super().__init__(str(gap))
        self.gap = gap


class BatchReading:
    """One batch while it is read.

    :param start: where it starts.
    :param inclusive: whether the pages start with the record that the start names.
    :param stop: where it must end: after the record of a sequence number, or before the first record that arrived at
        an instant or later; None for no end.
    :param reads_on: whether to continue after data that is lost.
    :param every: the length of the intervals in which records count: the batch ends with the interval of its first
        record. None for no intervals.
    """

    def __init__(
        self,
        start: BatchStart,
        *,
        inclusive: bool,
        stop: Position | None = None,
        reads_on: bool = False,
        every: timedelta | None = None,
    ) -> None:
        self._start = start
        self._position: Position = parse_position(start.position)
        self._stop = stop
        self._reads_on = reads_on
        self._inclusive = inclusive
        self._is_begun = False
        self._every = every
        self._interval: tuple[int, int] | None = None
        self.end = start.position
        """The position of the last whole Kinesis record of the batch; the start if there is none."""
        self.gap: Gap | None = None
        """What was lost before the first record."""
        self.at_stop = False
        """Whether everything up to `stop` is read."""
        self.end_of_shard = False
        """Whether the shard has nothing after the batch."""
        self.children: tuple[ShardRange, ...] = ()
        """The child shards."""
        self.read_until: datetime | None = None
        """Everything that arrived before this instant is read."""
        self.millis_behind_latest: int | None = None
        """The value that the service returned with the last page."""
        self.next_iterator: str | None = None
        """The Kinesis iterator after the batch; None if unknown."""
        self.recent_reads: RecentReads = ()
        """The recent reads of the shard, by the monotonic clock."""
        self.throttled = 0
        """The number of reads that were throttled because of other readers."""

    @property
    def starts_at_stop(self) -> bool:
        """Whether the batch must be empty: it would start at or after the position where it must end."""
        begins, stop = self._position, self._stop
        if stop is None or (begins.timestamp is None) != (stop.timestamp is None):
            return False
        return position_order(str(begins)) >= position_order(str(stop))

    @property
    def after(self) -> int | None:
        """The sub-sequence number up to which user records of the first Kinesis record were already read."""
        return self._position.sub_sequence_number if self.gap is None else None

    def of(self, pages: Iterable[ShardPage]) -> Iterator[KinesisRecords]:
        """Yield the records of each page that belong to the batch, until it must end; a page may have none.

        The attributes of the batch include what was yielded last, so the caller may stop at any time.

        :param pages: of the shard, from the start on.
        :raises DataLostError: if data is lost and `reads_on` is False.
        """
        is_cut = False
        for page in pages:
            self.throttled += page.throttled
            self.millis_behind_latest = page.millis_behind_latest
            self.next_iterator = page.next_iterator
            self.recent_reads = page.recent_reads
            records = self._begun(page, KinesisRecords.of(page.records))
            stop, cut = self._stop_index(records), self._cut_index(records)
            if cut is not None and (stop is None or cut < stop):
                # What follows is unread, whatever the service returned with this page.
                is_cut, records = True, records[:cut]
                self.next_iterator, self.millis_behind_latest = None, None
            elif stop is not None:
                self.at_stop, records = True, records[:stop]
                self.next_iterator = None
            elif page.end_of_shard:
                self.end_of_shard, self.children = True, page.children
            elif page.is_drained and self._stops_at is not None:
                self.at_stop = page.read_at - SETTLING >= self._stops_at
            self._note_read_until(page, records, is_cut=is_cut)
            if records:
                self.end = records.last.sequence_number
            yield records
            if is_cut or self.at_stop or self.end_of_shard or page.is_drained:
                return

    def _begun(self, page: ShardPage, records: KinesisRecords) -> KinesisRecords:
        """Return the records of a page that lie after the start; detect a loss on the first page with data."""
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
            reason = "the record that the position lies in is trimmed, with its unread user records"
        elif self._position.sequence_number is not None:
            gone = "is trimmed, or never existed" if self._position.is_before else "is trimmed"
            reason = f"the record at the position {gone} (records are kept for {hours:g} h); more may be lost"
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
        """Return how many of the records belong to the batch, if it ends within them; otherwise None."""
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

    def _cut_index(self, records: KinesisRecords) -> int | None:
        """Return how many of the records belong to the interval of the batch, if others follow; otherwise None."""
        if self._every is None or not records:
            return None
        if self._interval is None:
            start = start_of_interval(records[0].approximate_arrival_timestamp, self._every)
            self._interval = microseconds(start - SETTLING), microseconds(start + self._every)
        index = records.first_outside(*self._interval)
        return index if index < len(records) else None

    def _note_read_until(self, page: ShardPage, records: KinesisRecords, *, is_cut: bool) -> None:
        if self.at_stop and self._stops_at is not None:
            self.read_until = self._stops_at
        elif page.is_drained and not (is_cut or self.at_stop or page.end_of_shard):
            self.read_until = page.read_at
        elif records:  # also at the end of a shard: its children may have records that arrived before this page
            self.read_until = records.last.approximate_arrival_timestamp


def from_position(position: Position, records: KinesisRecords) -> KinesisRecords:
    """Return the first records without those that arrived before the position's timestamp.

    Not every version of boto3 sends a timestamp with its fraction of a second, and Kinesis has milliseconds only, so
    it may return earlier records.
    """
    if position.timestamp is None:
        return records
    first = records.first_since(microseconds(position.timestamp))
    return records[first:] if first else records


def check_order(records: KinesisRecords, position: Position, *, inclusive: bool, of: str) -> None:
    """Check that records are in order, and come after the records that were read before.

    :param records: of one response.
    :param position: the position after which they were requested.
    :param inclusive: whether the record that the position names may be among them.
    :param of: the stream, optionally with the shard, for the error.
    :raises KinesisUnavailableError: if they are not; the whole response is then unusable.
    """
    if not records:
        return
    index = records.first_out_of_order()
    if index is not None:
        before, number = (records[each].sequence_number for each in (index - 1, index))
    else:
        number, before = records[0].sequence_number, position.sequence_number or ""
        if not before or int(number) > int(before) or (inclusive and number == before):
            return
    raise KinesisUnavailableError(
        f"stream '{of}': no valid response: its records are out of order: sequence number {number} follows "
        f"{before}; none of them is written; check endpoint_url"
    )
