"""The history of a source: which partition was whose, from when to when, and why it changed hands.

A transition is a change of a partition's status or owner. Transitions are kept in pages, items of the family
`…|HISTORY`, so that hundreds of them cost one write; `RecordingStore` writes them. None of the systems that we learn
from keeps any: the Kinesis Client Library and Data Prepper know of a lease only how it stands now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from airflow_provider_coordination.coordination.compression import packed, unpacked
from airflow_provider_coordination.coordination.partition import (
    AWAITING_SUFFIX,
    PARKED_UNTIL,
    ChangeKind,
    Partition,
    PartitionStatus,
    new_partition,
)
from airflow_provider_coordination.coordination.partition_state import PartitionState, state_of
from airflow_provider_coordination.coordination.store import CoordinationStore, completed_last

FAMILY = "HISTORY"
MAX_PAGE_CHARACTERS = 48 * 1024
MAX_PAGE_TRANSITIONS = 1000
MAX_REASON_CHARACTERS = 300
PAGES_READ = 500
TRANSITIONS_READ = 12_000
"""So many pages, and transitions, are read at once, at most: a page may hold one of them, or hundreds."""
PAGES_A_QUERY = 100
PACKED = "packed"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Transition:
    """A change of a partition's status or owner.

    :param partition_key: the partition.
    :param at: when (aware), by the clock of the process that wrote it.
    :param version: the version that it wrote: of one partition's transitions the later one has the larger.
    :param status: what its status became; None if it was deleted.
    :param owner: who held it from then on; None if nobody did.
    :param until: when that lease was to end, or when it was to reopen (aware); None if neither.
    :param former_status: what its status was.
    :param former_owner: who held it before; None if nobody did.
    :param former_until: when that lease was to end, or when it was to reopen (aware); None if neither.
    :param kind: what happened.
    :param reason: the same in a few words, with more about it.
    :param by: the person who ordered it; None if nobody did.
    """

    partition_key: str
    at: datetime
    version: int
    status: PartitionStatus | None
    former_status: PartitionStatus
    kind: ChangeKind
    reason: str
    owner: str | None = None
    until: datetime | None = None
    former_owner: str | None = None
    former_until: datetime | None = None
    by: str | None = None


def transition_of(after: Partition, version: int, at: datetime) -> Transition | None:
    """Return the transition that a write of this partition makes; None if it makes none.

    :param after: as it is given to the store, or as an acquisition returned it.
    :param version: the version that was written.
    :param at: the present instant (aware).
    """
    change = after.change
    if change is None or (change.former_status, change.former_owner) == (after.status, after.owner):
        return None
    return Transition(
        partition_key=after.partition_key,
        at=at,
        version=version,
        status=after.status,
        owner=after.owner,
        until=_until(after),
        former_status=change.former_status,
        former_owner=change.former_owner,
        former_until=change.former_until,
        kind=change.kind,
        reason=change.reason[:MAX_REASON_CHARACTERS],
        by=change.by,
    )


def deletion_of(before: Partition, at: datetime) -> Transition:
    """Return the transition that the deletion of a partition makes.

    :param before: as it is given to the store.
    :param at: the present instant (aware).
    """
    change = before.change
    return Transition(
        partition_key=before.partition_key,
        at=at,
        version=before.version + 1,
        status=None,
        former_status=before.status,
        former_owner=before.owner,
        former_until=_until(before),
        kind=ChangeKind.DELETED,
        reason=ChangeKind.DELETED.value if change is None else change.reason[:MAX_REASON_CHARACTERS],
        by=None if change is None else change.by,
    )


def pages_of(
    source_identifier: str, transitions: Sequence[Transition], written_at: datetime, name: str
) -> list[Partition]:
    """Return the items that hold these transitions, as they are created.

    They are COMPLETED, so that their priority is the instant at which they were written.

    :param source_identifier: the family, `[prefix|]source|HISTORY`.
    :param transitions: in the order in which they happened.
    :param written_at: the present instant (aware), not before any of them.
    :param name: tells these pages from those of others.
    """
    texts = [
        text
        for start in range(0, len(transitions), MAX_PAGE_TRANSITIONS)
        for text in _page_texts(transitions[start : start + MAX_PAGE_TRANSITIONS])
    ]
    return [
        new_partition(source_identifier, f"{_milliseconds(written_at):015d}-{name}-{number}", written_at)
        .with_progress({PACKED: text})
        .completed(written_at)
        for number, text in enumerate(texts)
    ]


def transitions_in(page: Partition) -> Iterator[Transition]:
    """Yield the transitions of a page, in the order in which they happened. What cannot be read is passed over."""
    try:
        content = unpacked(page.progress[PACKED])
        texts, records = list(content["texts"]), list(content["transitions"])
    except (KeyError, TypeError, ValueError):  # of a newer version, or written by hand
        return
    for record in records:
        try:
            yield _read(record, texts)
        except (TypeError, ValueError, IndexError, OverflowError):
            continue


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the history tells of a time.

    :param transitions: in the order in which they happened.
    :param complete: whether that is all that is kept of that time; of more than can be told, the oldest are left out.
    """

    transitions: list[Transition]
    complete: bool = True


class History:
    """The transitions of one source, as far as they are kept.

    :param store: where they are.
    :param source_identifier: their family, `[prefix|]source|HISTORY`.
    """

    def __init__(self, store: CoordinationStore, source_identifier: str) -> None:
        self._store = store
        self._source_identifier = source_identifier

    def between(
        self,
        since: datetime,
        until: datetime | None = None,
        *,
        pages: int = PAGES_READ,
        transitions: int = TRANSITIONS_READ,
    ) -> Told:
        """Return what happened from one instant (aware) to another, both included.

        :param until: None for the present.
        :param pages: so many pages of history are read at most, the latest first.
        :param transitions: once so many were found, no further page is read.
        """
        found: list[Transition] = []
        for number, page in enumerate(self._latest(since, pages + 1)):
            if number == pages or len(found) >= transitions:
                return Told(transitions=_in_order(found), complete=False)
            found += (t for t in transitions_in(page) if t.at >= since and (until is None or t.at <= until))
        return Told(transitions=_in_order(found))

    def since(self, instant: datetime) -> list[Transition]:
        """Return what happened at an instant (aware) or later, in the order in which it happened."""
        return self.between(instant).transitions

    def of(self, partition_key: str, since: datetime, *, limit: int = 50, pages: int = PAGES_READ) -> list[Transition]:
        """Return the last things that happened to one partition, in the order in which they happened.

        :param since: at this instant (aware) or later.
        :param limit: so many, about.
        :param pages: so many pages of history are read at most, the latest first.
        """
        found: list[Transition] = []
        for _, page in zip(range(pages), self._latest(since, pages), strict=False):
            found += (t for t in transitions_in(page) if t.partition_key == partition_key and t.at >= since)
            if len(found) >= limit:
                break
        return sorted(_once(found), key=_version)

    def _latest(self, since: datetime, wanted_pages: int) -> Iterator[Partition]:
        """Yield the pages that were written at an instant or later, the latest first.

        :param wanted_pages: of how many there is use: what is read at once is no more.
        """
        for browsed in completed_last(self._store, self._source_identifier, min(PAGES_A_QUERY, wanted_pages)):
            for page in browsed.partitions:
                if page.priority < since:
                    return
                yield page


class Begin(StrEnum):
    """How an owner came to a partition."""

    ACQUIRED = "acquired"
    TAKEN_OVER = "taken over"
    HANDED_OVER = "handed over"
    AWAITING = "awaiting"
    """It was left to wait for acknowledgments."""
    UNKNOWN = "unknown"
    """That is not kept, or not any more."""


class End(StrEnum):
    """How an owner lost a partition, or gave it away."""

    HELD = "held"
    """It did not: it holds it."""
    COMPLETED = "completed"
    RELEASED = "released"
    FAILED = "failed"
    CLOSED = "closed"
    PARKED = "parked"
    RESET = "reset"
    DELETED = "deleted"
    EXPIRED = "expired"
    """The lease ran out; perhaps somebody else took it after that."""
    TAKEN_OVER = "taken over"
    """While the lease ran."""
    HANDED_OVER = "handed over"
    AWAITING = "awaiting"
    """It was left to wait for acknowledgments, which no process does."""
    UNKNOWN = "unknown"
    """That is not kept; the instant is when its lease was to end, as far as that is known."""


@dataclass(frozen=True, kw_only=True)
class Holding:
    """A time during which one owner held a partition.

    :param owner: who held it.
    :param began_at: from when on (aware); None if that is not kept.
    :param begin: how it came to it.
    :param ended_at: until when (aware); None if it still does.
    :param end: how it ended.
    :param reason: why it ended, in a few words; empty if it still holds it, or that is not kept.
    :param by: the person who ended it; None if nobody did.
    """

    owner: str
    began_at: datetime | None = None
    begin: Begin = Begin.UNKNOWN
    ended_at: datetime | None = None
    end: End = End.HELD
    reason: str = ""
    by: str | None = None


def holdings(
    transitions: Iterable[Transition], standing: Iterable[Partition] = (), *, now: datetime
) -> dict[str, list[Holding]]:
    """Return who held which partition when, by partition key, the first first; no two of one partition overlap.

    Each transition says what was before, and the partitions say what is now. So a transition that was lost, with a
    worker that died before it could tell, costs the instant at which a lease began or ended, and not who held it.

    :param transitions: in any order.
    :param standing: partitions as they stand now, as far as they are known; others are as their last transition left
        them.
    :param now: the present instant (aware): what is leased until then or earlier is not held any more.
    """
    by_key: dict[str, list[Transition]] = defaultdict(list)
    for transition in transitions:
        by_key[transition.partition_key].append(transition)
    present = {partition.partition_key: partition for partition in standing}
    found = {}
    for key in [*by_key, *(key for key in present if key not in by_key)]:
        life = _Life()
        for transition in sorted(_once(by_key.get(key, ())), key=_version):
            life.add(transition)
        if key in present:
            life.stand(present[key], now)
        if life.holdings:
            found[key] = life.holdings
    return found


class _Life:
    """The holdings of one partition, transition by transition."""

    def __init__(self) -> None:
        self.holdings: list[Holding] = []
        self._until: datetime | None = None  # when the lease of the last one was to end
        self._version = -1

    def add(self, transition: Transition) -> None:
        """Add what a transition says."""
        self._version = transition.version
        former = transition.former_owner
        if self._holds_other_than(former):
            self._lose_sight(by=transition.at)
        if former is not None and former != transition.owner:
            if not self._is_held:
                self._begin(Holding(owner=former))
            ran_out = transition.owner is not None and _passed(transition.former_until, transition.at)
            self._end(
                transition.former_until if ran_out and transition.former_until is not None else transition.at,
                End.EXPIRED if ran_out else _end_of(transition),
                transition.reason,
                transition.by,
            )
        if transition.owner is not None and (transition.owner != former or not self._is_held):
            begin = _begin_of(transition) if transition.owner != former else Begin.UNKNOWN
            at = transition.at if transition.owner != former else None
            self._begin(Holding(owner=transition.owner, began_at=at, begin=begin))
        self._until = transition.until

    def stand(self, partition: Partition, now: datetime) -> None:
        """Add what is known of the present, unless that is older than what was told."""
        if partition.version < self._version:
            return
        if self._holds_other_than(partition.owner):
            if partition.status is PartitionStatus.COMPLETED:
                self._end(partition.priority, End.COMPLETED)
            else:
                self._lose_sight(by=partition.held_since)
        if partition.owner is None:
            return
        if not self._is_held:
            self._begin(Holding(owner=partition.owner, began_at=partition.held_since))
        if state_of(partition, now) is PartitionState.EXPIRED:
            self._end(partition.priority, End.EXPIRED, "nobody has taken it over yet")

    @property
    def _is_held(self) -> bool:
        return bool(self.holdings) and self.holdings[-1].end is End.HELD

    def _holds_other_than(self, owner: str | None) -> bool:
        return self._is_held and self.holdings[-1].owner != owner

    def _begin(self, holding: Holding) -> None:
        if self.holdings and holding.began_at is not None:  # clocks of two machines differ
            holding = replace(holding, began_at=_latest(holding.began_at, self.holdings[-1].ended_at))
        self.holdings.append(holding)

    def _end(self, at: datetime, end: End, reason: str = "", by: str | None = None) -> None:
        last = self.holdings.pop()
        before = self.holdings[-1].ended_at if self.holdings else None
        at = _latest(at, last.began_at, before)
        self.holdings.append(replace(last, ended_at=at, end=end, reason=reason, by=by))

    def _lose_sight(self, by: datetime | None = None) -> None:
        last = self.holdings[-1]
        known = [instant for instant in (self._until, by) if instant is not None]
        self._end(min(known, default=last.began_at or _EPOCH), End.UNKNOWN)


def _end_of(transition: Transition) -> End:
    match transition.status:
        case None:
            return End.DELETED
        case PartitionStatus.COMPLETED:
            return End.COMPLETED
        case PartitionStatus.CLOSED if transition.until is not None and transition.until >= PARKED_UNTIL:
            return End.PARKED
        case _ if transition.kind is ChangeKind.FAILED:
            return End.FAILED
        case PartitionStatus.CLOSED:
            return End.CLOSED
        case PartitionStatus.UNASSIGNED:
            return End.RESET if transition.kind is ChangeKind.RESET else End.RELEASED
        case _:
            begin = _begin_of(transition)
            return End(begin.value) if begin is not Begin.ACQUIRED else End.TAKEN_OVER


def _begin_of(transition: Transition) -> Begin:
    if is_waiting(transition.owner):
        return Begin.AWAITING
    if transition.former_status is not PartitionStatus.ASSIGNED:
        return Begin.ACQUIRED
    return Begin.HANDED_OVER if transition.kind is ChangeKind.HANDED_OVER else Begin.TAKEN_OVER


def is_waiting(owner: str | None) -> bool:
    """Tell whether this is the name under which a partition waits for acknowledgments, held by no process."""
    return owner is not None and owner.endswith(AWAITING_SUFFIX)


def _until(partition: Partition) -> datetime | None:
    return partition.reopen_at if partition.status is PartitionStatus.CLOSED else partition.ownership_timeout


def _passed(instant: datetime | None, by: datetime) -> bool:
    return instant is not None and instant <= by


def _latest(instant: datetime, *others: datetime | None) -> datetime:
    return max([instant, *(other for other in others if other is not None)])


def _in_order(transitions: list[Transition]) -> list[Transition]:
    return sorted(_once(transitions), key=lambda transition: (transition.at, transition.version))


def _once(transitions: Iterable[Transition]) -> Iterable[Transition]:
    """Return each of them once: a page whose answer was lost is written again."""
    return {(transition.partition_key, transition.version): transition for transition in transitions}.values()


def _version(transition: Transition) -> int:
    return transition.version


# Pages as text: JSON in which owners, reasons and people are written once.


def _page_texts(transitions: Sequence[Transition]) -> Iterator[str]:
    texts: dict[str, int] = {}
    records = [_written(transition, texts) for transition in transitions]
    text = packed({"texts": list(texts), "transitions": records})
    if len(text) <= MAX_PAGE_CHARACTERS or len(transitions) == 1:
        yield text
        return
    half = len(transitions) // 2
    yield from _page_texts(transitions[:half])
    yield from _page_texts(transitions[half:])


def _written(transition: Transition, texts: dict[str, int]) -> list[Any]:
    def place(text: str | None) -> int | None:
        return None if text is None else texts.setdefault(text, len(texts))

    return [
        transition.partition_key,
        _milliseconds(transition.at),
        transition.version,
        transition.status,
        place(transition.owner),
        _milliseconds(transition.until),
        transition.former_status,
        place(transition.former_owner),
        _milliseconds(transition.former_until),
        place(transition.reason),
        place(transition.by),
        transition.kind,
    ]


def _read(record: Any, texts: Sequence[str]) -> Transition:
    key, at, version, status, owner, until, former_status, former_owner, former_until, reason, by, *kind = record

    def text(place: int | None) -> str | None:
        return None if place is None else str(texts[place])

    return Transition(
        partition_key=str(key),
        at=_EPOCH + timedelta(milliseconds=at),
        version=int(version),
        status=None if status is None else PartitionStatus(status),
        owner=text(owner),
        until=_instant(until),
        former_status=PartitionStatus(former_status),
        former_owner=text(former_owner),
        former_until=_instant(former_until),
        kind=_kind(*kind),
        reason=text(reason) or "",
        by=text(by),
    )


def _kind(written: Any = None) -> ChangeKind:
    """Return what happened, of a transition that any version of this package wrote."""
    return ChangeKind(written) if written in tuple(ChangeKind) else ChangeKind.OTHER


def _milliseconds(instant: datetime | None) -> int | None:
    return None if instant is None else (instant - _EPOCH) // timedelta(milliseconds=1)


def _instant(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
