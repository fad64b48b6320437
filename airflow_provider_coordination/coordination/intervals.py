"""Complete intervals: what was delivered of each hour of a source, and which hour is reported next, to whom.

An acknowledgment set whose batch belongs to an interval leaves a *tally* when it ends as acknowledged, in the same
transaction. So each delivered batch is counted once. The *ledger* of a source is one item. It sums up the tallies, and
says which interval is next.

An interval is taken by one task instance, which reports it. The next one is taken only once it is known that the
taker succeeded. If it is known that the taker did not, another one takes the same interval, with the same counts. A
taker always writes the ledger before it reports, so a former taker finds that the interval is no longer its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_coordination.coordination.errors import (
    PartitionUpdateError,
    ProgressError,
)
from airflow_provider_coordination.coordination.json_values import Stored
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    new_partition,
    read_instant,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import all_partitions

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentSet

TALLY_FAMILY, LEDGER_FAMILY, LEDGER_KEY = "TALLY", "LEDGER", "INTERVALS"
SHORTEST, LONGEST = timedelta(minutes=1), timedelta(days=1)
FOLDED_AT_ONCE = 200
OPEN_INTERVALS, LATE_INTERVALS = 200, 100
"""How many intervals a ledger sums up: further ones stay tallies, and the oldest late ones are forgotten."""
MAX_TRIES = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_length(every: timedelta) -> str | None:
    """Return what is wrong with the length of intervals; None if nothing is. Intervals begin at midnight UTC."""
    if not SHORTEST <= every <= LONGEST or LONGEST % every:
        return "must divide a day into equal intervals of at least a minute, such as PT1H or PT15M"
    return None


def start_of_interval(instant: datetime, every: timedelta) -> datetime:
    """Return the start of the interval that holds an instant (aware).

    :param every: the length of intervals.
    """
    return _EPOCH + (instant - _EPOCH) // every * every


def first_interval_from(instant: datetime, every: timedelta) -> datetime:
    """Return the start of the first interval that begins at an instant (aware) or later."""
    start = start_of_interval(instant, every)
    return start if start == instant else start + every


@dataclass(frozen=True, kw_only=True)
class Counts(Stored):
    """What was delivered of an interval.

    :param start: the start of the interval (aware).
    :param records: user records.
    :param bytes: bytes of user data.
    :param batches: batches with records.
    :param late: records that were left out, because their event time was late or early.
    :param dead_letters: records that went to the dead letters.
    :param is_reread: whether a reset made records of the interval be read again, so that they count twice.
    """

    start: datetime
    records: int = 0
    bytes: int = 0
    batches: int = 0
    late: int = 0
    dead_letters: int = 0
    is_reread: bool = False

    def __add__(self, other: Counts) -> Counts:
        """Return the sum, for the same interval."""
        return Counts(
            start=self.start,
            records=self.records + other.records,
            bytes=self.bytes + other.bytes,
            batches=self.batches + other.batches,
            late=self.late + other.late,
            dead_letters=self.dead_letters + other.dead_letters,
            is_reread=self.is_reread or other.is_reread,
        )


def tally_of(ended: AcknowledgmentSet, view: SourceView) -> Partition | None:
    """Return the item that counts a delivered batch in its interval; None if it belongs to none.

    :param ended: the acknowledged set of the batch.
    :param view: the view of the source.
    """
    start = read_instant(ended.batch.get("interval"))
    if start is None:
        return None
    names = ("records", "bytes", "late", "dead_letters")
    counts = Counts(
        start=start,
        batches=1,
        # The epoch of a reset is its time in seconds.
        is_reread=int(ended.batch.get("epoch", 0)) > start.timestamp(),
        **{name: int(ended.batch.get(name, 0)) for name in names},
    )
    # The oldest interval is first in the queue.
    return new_partition(view.family(TALLY_FAMILY), ended.set_id, start).with_progress(counts.to_mapping())


@dataclass(frozen=True, kw_only=True)
class Taken(Stored):
    """An interval that a task instance reports.

    :param by: the task instance.
    :param counts: what is reported.
    :param lost: the ranges of partitions that were lost in the interval, as text.
    """

    by: str
    counts: Counts
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ledger(Stored):
    """What is known of the intervals of a source; an immutable value.

    :param every: the length of intervals in seconds.
    :param start: no interval before this instant (aware) is reported; None if nothing had been read when counting
        began.
    :param next: the start of the next interval to report (aware); None if unknown.
    :param taken: the interval that was taken last, as long as it is not known whether its taker succeeded.
    :param correction: the same for what came late.
    :param open: the sums of intervals that were not taken.
    :param late: what was delivered of intervals after they were taken, by interval.
    :param late_records: the number of all such records.
    :param folded: the keys of the tallies that were added last; they may still exist.
    """

    every: int
    start: datetime | None = None
    next: datetime | None = None
    taken: Taken | None = None
    correction: Taken | None = None
    open: tuple[Counts, ...] = ()
    late: tuple[Counts, ...] = ()
    late_records: int = 0
    folded: tuple[str, ...] = ()

    @property
    def length(self) -> timedelta:
        """The length of intervals."""
        return timedelta(seconds=self.every)

    @property
    def closed_until(self) -> datetime | None:
        """What belongs to an interval before this instant is late; None if nothing was taken yet."""
        return self.next if self.taken is None else self.taken.counts.start + self.length

    def adding(self, tallies: Sequence[Partition]) -> Ledger:
        """Return the ledger with tallies added; those from before the start are not counted."""
        begun, late = {each.start: each for each in self.open}, {each.start: each for each in self.late}
        late_records = self.late_records
        for counts in (_counts_of(tally, self.length) for tally in tallies):
            if self.start is not None and counts.start < self.start:
                continue
            is_late = self.closed_until is not None and counts.start < self.closed_until
            sums = late if is_late else begun
            sums[counts.start] = sums[counts.start] + counts if counts.start in sums else counts
            late_records += counts.records if is_late else 0
        return replace(
            self,
            open=tuple(begun[start] for start in sorted(begun)),
            late=tuple(late[start] for start in sorted(late)[-LATE_INTERVALS:]),
            late_records=late_records,
            folded=tuple(each.partition_key for each in tallies),
        )

    def has_room_for(self, tally: Partition) -> bool:
        """Return whether a tally can be added: not too many intervals are open, or it belongs to an earlier one."""
        starts = [each.start for each in self.open]
        return len(starts) < OPEN_INTERVALS or tally.priority <= max(starts)

    def begun(self, delivered: Delivered) -> Ledger:
        """Return the ledger with its first interval, if that is known now: the one of the earliest record."""
        if self.next is not None or self.start is not None or (delivered.until is None and not delivered.is_finished):
            return self
        known = [each.start for each in self.open[:1]]
        known += [] if delivered.until is None else [start_of_interval(delivered.until, self.length)]
        return replace(self, start=min(known, default=None))

    def due(self, delivered: Delivered) -> datetime | None:
        """Return the start of the next interval if it is complete; None if it is not.

        A source that is finished has no interval after its last record.
        """
        start = self.next or self.start
        if start is None:
            return None
        if delivered.is_finished:
            return start if any(each.start >= start for each in self.open) else None
        return start if delivered.until is not None and delivered.until >= start + self.length else None

    def complete(self, delivered: Delivered) -> int:
        """Return about how many intervals are to be reported now. Tallies that are not added yet may add some."""
        begun = self.begun(delivered)
        start = begun.next or begun.start
        if start is None:
            return 0
        if delivered.is_finished:
            return max(0, sum(each.start >= start for each in self.open)) + (self.taken is not None)
        return max(0, (delivered.until - start) // self.length) if delivered.until is not None else 0

    def taking(self, start: datetime, by: str, lost: Sequence[str]) -> Ledger:
        """Return the ledger with the next interval taken."""
        counts = next((each for each in self.open if each.start == start), Counts(start=start))
        return replace(
            self,
            next=start,
            taken=Taken(by=by, counts=counts, lost=tuple(lost)),
            open=tuple(each for each in self.open if each.start != start),
        )

    def confirmed(self) -> Ledger:
        """Return the ledger after the interval that was taken last was reported."""
        assert self.taken is not None
        return replace(self, next=self.taken.counts.start + self.length, taken=None)

    def corrected(self) -> Ledger:
        """Return the ledger after the correction that was taken last was reported."""
        return replace(self, correction=None)

    def correcting(self, by: str) -> Ledger:
        """Return the ledger with the oldest late interval taken; itself if nothing is late."""
        if not self.late:
            return self
        return replace(self, correction=Taken(by=by, counts=self.late[0]), late=self.late[1:])


def _counts_of(tally: Partition, every: timedelta) -> Counts:
    counts = Counts.from_mapping(tally.progress) or Counts(start=tally.priority)
    # A job that began before the length was changed counts by the former length.
    return replace(counts, start=start_of_interval(counts.start, every))


@dataclass(frozen=True)
class Delivered:
    """How far a source is delivered.

    :param until: everything that arrived before this instant (aware) is delivered; None if there is none.
    :param is_finished: whether everything is delivered, and nothing follows.
    """

    until: datetime | None
    is_finished: bool = False


class Standing(Enum):
    """What became of the task instance that took an interval."""

    REPORTED = auto()
    RUNNING = auto()
    """It may still report it."""
    OVER = auto()
    """It has not reported it, and cannot without taking it again."""


class IntervalLedger:
    """The ledger of one source in its store. Safe to use by any number of processes.

    :param view: the source, initialized.
    """

    def __init__(self, view: SourceView) -> None:
        self._view = view
        self._store = view.store
        self._family = view.family(LEDGER_FAMILY)
        self._tallies = view.family(TALLY_FAMILY)

    def get(self) -> Ledger | None:
        """Return the ledger as it is stored; None if no job counts intervals."""
        item = self._item()
        return None if item is None else _ledger_in(item)

    def exists(self) -> bool:
        """Return whether jobs count intervals of this source."""
        return self._item() is not None

    def counted(self, limit: int) -> tuple[Ledger, bool] | None:
        """Return the ledger with the tallies added, and whether that is all of them; None if no job counts intervals.

        Nothing is written: it is for those who only look.

        :param limit: how many tallies are read, those of the oldest intervals first.
        """
        ledger = self.get()
        if ledger is None:
            return None
        # They are read after the ledger, which says what it has of them already.
        found = self._store.query(self._tallies, PartitionStatus.UNASSIGNED, limit=limit)
        added = ledger.adding([each for each in found if each.partition_key not in ledger.folded])
        return added, len(found) < limit

    def begin(self, every: timedelta, landed_until: datetime | None) -> None:
        """Begin to count, unless intervals of this length are counted already.

        A job calls it before it lands anything. Intervals of another length are given up: those of the new one begin
        after everything that is landed.

        :param every: the length of intervals.
        :param landed_until: the latest arrival (aware) of what is landed or delivered; None if nothing is.
        """
        start = None if landed_until is None else first_interval_from(landed_until, every)
        begun = Ledger(every=round(every.total_seconds()), start=start)
        for _ in range(MAX_TRIES):
            item = self._item()
            if item is None:
                new = new_partition(self._family, LEDGER_KEY, self._view.clock.now()).with_progress(begun.to_mapping())
                if self._store.create([new]):
                    return
            elif _ledger_in(item).every == begun.every:
                return
            else:
                with suppress(PartitionUpdateError):
                    self._write(item, begun)
                    return
        raise self._changes_too_fast()

    def fold(self, until: datetime | None = None) -> tuple[Partition, Ledger] | None:
        """Add the tallies to the ledger, and delete them; return it with its item, None if there is none.

        :param until: the tallies of intervals up to this start (aware) are added, however many intervals are open.
        """
        for _ in range(MAX_TRIES):
            item = self._item()
            if item is None:
                return None
            try:
                return self._fold(item, _ledger_in(item), until)
            except PartitionUpdateError:
                continue
        raise self._changes_too_fast()

    def _fold(self, item: Partition, ledger: Ledger, until: datetime | None) -> tuple[Partition, Ledger]:
        # What was added last must be gone before anything is added: a tally must not be added twice.
        self._delete(self._store.get_many(self._tallies, ledger.folded).values() if ledger.folded else ())
        found: list[Partition] = []
        for tally in all_partitions(self._store, self._tallies, PartitionStatus.UNASSIGNED):
            if not (ledger.has_room_for(tally) or (until is not None and tally.priority <= until)):
                break
            found.append(tally)
            if len(found) == FOLDED_AT_ONCE:
                item, ledger = self._add(item, ledger, found)
                found = []
        return self._add(item, ledger, found) if found else (item, ledger)

    def _add(self, item: Partition, ledger: Ledger, found: Sequence[Partition]) -> tuple[Partition, Ledger]:
        # A query of an index may still show what was deleted.
        existing = list(self._store.get_many(self._tallies, [each.partition_key for each in found]).values())
        if not existing:
            return item, ledger
        added = ledger.adding(existing)
        written = self._write(item, added)
        self._delete(existing)
        return written, added

    def _delete(self, tallies: Iterable[Partition]) -> None:
        for tally in tallies:
            with suppress(PartitionUpdateError):  # somebody else deleted it
                self._store.delete(tally)

    def take(
        self,
        by: str,
        standing: Callable[[Taken], Standing],
        delivered: Delivered,
        lost: Callable[[datetime, datetime], Sequence[str]],
    ) -> Taken | None:
        """Take the next complete interval for a task instance that reports it at its success; None if there is none.

        :param by: the task instance.
        :param standing: returns what became of the one that took an interval.
        :param delivered: how far the source is delivered, found before this call.
        :param lost: returns what was lost between two instants (aware).
        """

        def next_one(item: Partition, ledger: Ledger) -> tuple[Partition, Ledger]:
            begun = ledger.begun(delivered)
            start = begun.due(delivered)
            if start is None:
                return item, begun
            item, ledger = self.fold(start) or (item, ledger)
            begun = ledger.begun(delivered)
            if ledger.taken is not None or begun.due(delivered) != start:
                raise self._changes_too_fast()
            return item, begun.taking(start, by, lost(start, start + begun.length))

        return self._take("taken", by, standing, next_one, Ledger.confirmed)

    def take_correction(self, by: str, standing: Callable[[Taken], Standing]) -> Taken | None:
        """Take the oldest interval of which something was delivered after it was taken; see `take`."""
        return self._take(
            "correction", by, standing, lambda item, ledger: (item, ledger.correcting(by)), Ledger.corrected
        )

    def _take(
        self,
        name: Literal["taken", "correction"],
        by: str,
        standing: Callable[[Taken], Standing],
        next_one: Callable[[Partition, Ledger], tuple[Partition, Ledger]],
        confirmed: Callable[[Ledger], Ledger],
    ) -> Taken | None:
        """Take what is next, or what another task instance took and did not report; None if there is nothing.

        :param name: the field of the ledger that holds what is taken.
        :param next_one: returns the ledger, and its item, with the next one taken, given those of now; the same ledger
            if there is nothing. It may raise a `PartitionUpdateError` if they changed.
        :param confirmed: returns the ledger after what was taken was reported.
        """
        for _ in range(MAX_TRIES):
            found = self.fold()
            if found is None:
                return None
            item, ledger = found
            earlier: Taken | None = getattr(ledger, name)
            with suppress(PartitionUpdateError):
                if earlier is None:
                    item, after = next_one(item, ledger)
                    if after is ledger:
                        return None
                elif (became := standing(earlier)) is Standing.RUNNING:
                    return None
                elif became is Standing.REPORTED:
                    after = confirmed(ledger)
                else:
                    change: dict[str, Any] = {name: replace(earlier, by=by)}
                    after = replace(ledger, **change)
                self._write(item, after)
                taken: Taken | None = getattr(after, name)
                if taken is not None or earlier is None:
                    return taken
        raise self._changes_too_fast()

    def forget(self) -> None:
        """Delete the ledger and the tallies, as if nothing had been counted."""
        self._delete(all_partitions(self._store, self._tallies))
        if (item := self._item()) is not None:
            self._delete([item])

    def _item(self) -> Partition | None:
        return self._store.get(self._family, LEDGER_KEY)

    def _write(self, item: Partition, ledger: Ledger) -> Partition:
        """Write the ledger, also if it is unchanged: whoever read it before may no longer write.

        :raises PartitionUpdateError: if it changed since it was read.
        """
        (written,) = self._store.transact(update=[item.with_progress(ledger.to_mapping())])
        return written

    def _changes_too_fast(self) -> PartitionUpdateError:
        return PartitionUpdateError(
            f"source {self._view.source!r}: the ledger of its intervals keeps changing; try again"
        )


def _ledger_in(item: Partition) -> Ledger:
    ledger = Ledger.from_mapping(item.progress)
    if ledger is None:
        raise ProgressError(
            f"the ledger of intervals {item.source_identifier!r} cannot be read; restore it in the store, or delete it"
        )
    return ledger
