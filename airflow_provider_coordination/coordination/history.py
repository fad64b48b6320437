"""The history of a source: which owner held which partition, when, and why it changed hands.

A transition is a change of a partition's status or owner. Transitions are kept in pages, which are items of the family
`…|HISTORY`, so that one write stores hundreds of them; `RecordingStore` writes them. The systems that this package
learns from keep no history: the Kinesis Client Library and Data Prepper only know the current state of a lease.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from airflow_provider_coordination.coordination.browsing import PartitionState, state_of
from airflow_provider_coordination.coordination.partition import (
    AWAITING_SUFFIX,
    PARKED_UNTIL,
    Change,
    ChangeKind,
    Partition,
    PartitionStatus,
    new_partition,
)
from airflow_provider_coordination.coordination.store import CoordinationStore, latest_completed
from airflow_provider_coordination.coordination.texts import compress, decompress

FAMILY = "HISTORY"
MAX_PAGE_CHARACTERS = 48 * 1024
MAX_PAGE_TRANSITIONS = 1000
MAX_REASON_CHARACTERS = 300
PAGES_READ = 500
TRANSITIONS_READ = 12_000
"""The maximum numbers of pages and of transitions that are read at once. A page holds between one and hundreds."""
PAGES_A_QUERY = 100
PACKED = "packed"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Transition(Change):
    """A change of a partition's status or owner, as it was written.

    :param partition_key: the partition.
    :param at: when it happened (aware), by the clock of the process that wrote it.
    :param version: the version that it wrote; it increases with every transition of a partition.
    :param status: the new status; None if the partition was deleted.
    :param owner: the new owner; None if it has none.
    :param until: when the new lease would end, or when the partition would reopen (aware); None if neither.
    """

    partition_key: str
    at: datetime
    version: int
    status: PartitionStatus | None
    owner: str | None = None
    until: datetime | None = None


def transition_of(after: Partition, version: int, at: datetime) -> Transition | None:
    """Return the transition that a write of this partition makes; None if it makes none.

    :param after: the partition as passed to the store, or as returned by an acquisition.
    :param version: the version that was written.
    :param at: the current time (aware).
    """
    change = after.change
    if change is None or (change.previous_status, change.previous_owner) == (after.status, after.owner):
        return None
    return Transition(
        partition_key=after.partition_key,
        at=at,
        version=version,
        status=after.status,
        owner=after.owner,
        until=_until(after),
        **{**vars(change), "reason": change.reason[:MAX_REASON_CHARACTERS]},
    )


def deletion_of(before: Partition, at: datetime) -> Transition:
    """Return the transition that the deletion of a partition makes.

    :param before: the partition as passed to the store.
    :param at: the current time (aware).
    """
    change = before.change
    return Transition(
        partition_key=before.partition_key,
        at=at,
        version=before.version + 1,
        status=None,
        previous_status=before.status,
        previous_owner=before.owner,
        previous_until=_until(before),
        kind=ChangeKind.DELETED,
        reason=ChangeKind.DELETED.value if change is None else change.reason[:MAX_REASON_CHARACTERS],
        by=None if change is None else change.by,
    )


def pages_of(
    source_identifier: str, transitions: Sequence[Transition], written_at: datetime, name: str
) -> list[Partition]:
    """Return new items that hold these transitions.

    They are COMPLETED, so that their priority is the time of the write.

    :param source_identifier: the family, `[prefix|]source|HISTORY`.
    :param transitions: the transitions, in the order in which they happened.
    :param written_at: the current time (aware), not before any of them.
    :param name: distinguishes these pages from the pages of other processes.
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
    """Yield the transitions of a page, in the order in which they happened. Unreadable ones are skipped."""
    try:
        content = decompress(page.progress[PACKED])
        texts, records = list(content["texts"]), list(content["transitions"])
    except (KeyError, TypeError, ValueError):  # written by a newer version, or by hand
        return
    for record in records:
        try:
            yield _read(record, texts)
        except (TypeError, ValueError, IndexError, OverflowError):
            continue


@dataclass(frozen=True, kw_only=True)
class HistoryResult:
    """The transitions of a period.

    :param transitions: the transitions, in the order in which they happened.
    :param complete: whether these are all transitions that are kept of the period. If there are too many, the oldest
        ones are left out.
    """

    transitions: list[Transition]
    complete: bool = True


class History:
    """Reads the transitions of one source that are still kept.

    :param store: the store that keeps them.
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
    ) -> HistoryResult:
        """Return what happened between two instants (aware), both included.

        :param since: the first instant.
        :param until: the last instant; None for now.
        :param pages: the maximum number of history pages to read, the latest first.
        :param transitions: the number of transitions after which no further page is read.
        """
        transitions_found: list[Transition] = []
        for number, page in enumerate(self._latest(since, pages + 1)):
            if number == pages or len(transitions_found) >= transitions:
                return HistoryResult(transitions=_in_order(transitions_found), complete=False)
            transitions_found += (t for t in transitions_in(page) if t.at >= since and (until is None or t.at <= until))
        return HistoryResult(transitions=_in_order(transitions_found))

    def since(self, instant: datetime) -> list[Transition]:
        """Return what happened at an instant (aware) or later, in the order in which it happened."""
        return self.between(instant).transitions

    def of(self, partition_key: str, since: datetime, *, limit: int = 50, pages: int = PAGES_READ) -> list[Transition]:
        """Return the latest transitions of one partition, in the order in which they happened.

        :param since: only transitions at this instant (aware) or later.
        :param limit: about how many transitions to return.
        :param pages: the maximum number of history pages to read, the latest first.
        """
        transitions: list[Transition] = []
        for _, page in zip(range(pages), self._latest(since, pages), strict=False):
            transitions += (t for t in transitions_in(page) if t.partition_key == partition_key and t.at >= since)
            if len(transitions) >= limit:
                break
        return sorted(_once(transitions), key=_version)

    def _latest(self, since: datetime, wanted_pages: int) -> Iterator[Partition]:
        """Yield the pages that were written at an instant or later, the latest first.

        :param wanted_pages: how many pages the caller can use; no more are read at once.
        """
        for browsed in latest_completed(self._store, self._source_identifier, min(PAGES_A_QUERY, wanted_pages)):
            for page in browsed.partitions:
                if page.priority < since:
                    return
                yield page


class HoldingStart(StrEnum):
    """How an owner got a partition."""

    ACQUIRED = "acquired"
    TAKEN_OVER = "taken over"
    HANDED_OVER = "handed over"
    AWAITING = "awaiting"
    """It waits for acknowledgments."""
    UNKNOWN = "unknown"
    """Not known: the transition is not kept, or no longer kept."""


class HoldingEnd(StrEnum):
    """How an owner's holding of a partition ended."""

    HELD = "held"
    """It did not end: the owner still holds it."""
    COMPLETED = "completed"
    RELEASED = "released"
    FAILED = "failed"
    CLOSED = "closed"
    PARKED = "parked"
    RESET = "reset"
    DELETED = "deleted"
    EXPIRED = "expired"
    """The lease expired; another owner may have taken it later."""
    TAKEN_OVER = "taken over"
    """Another owner took it before the lease expired."""
    HANDED_OVER = "handed over"
    AWAITING = "awaiting"
    """It waits for acknowledgments, and no process holds it."""
    UNKNOWN = "unknown"
    """Not known: the end of the lease, if known, is used as the instant."""


@dataclass(frozen=True, kw_only=True)
class Holding:
    """A period during which one owner held a partition.

    :param owner: the owner.
    :param began_at: when it began (aware); None if unknown.
    :param begin: how the owner got the partition.
    :param ended_at: when it ended (aware); None if the owner still holds the partition.
    :param end: how it ended.
    :param reason: why it ended, as a short text; empty if it has not ended or the reason is unknown.
    :param by: the user who ended it; None if no user did.
    """

    owner: str
    began_at: datetime | None = None
    begin: HoldingStart = HoldingStart.UNKNOWN
    ended_at: datetime | None = None
    end: HoldingEnd = HoldingEnd.HELD
    reason: str = ""
    by: str | None = None


def holdings(
    transitions: Iterable[Transition], current: Iterable[Partition] = (), *, now: datetime
) -> dict[str, list[Holding]]:
    """Return the holdings by partition key, the earliest first. The holdings of one partition never overlap.

    Each transition records the state before it, and the partitions show the current state. So if a worker dies before
    it writes a transition, only the exact start or end of a lease is lost, not who held it.

    :param transitions: the transitions, in any order.
    :param current: the current partitions, if known. For other partitions, the last transition shows their state.
    :param now: the current time (aware): leases that end then or earlier count as ended.
    """
    by_key: dict[str, list[Transition]] = defaultdict(list)
    for transition in transitions:
        by_key[transition.partition_key].append(transition)
    present = {partition.partition_key: partition for partition in current}
    by_partition = {}
    for key in [*by_key, *(key for key in present if key not in by_key)]:
        history = _PartitionHoldings()
        for transition in sorted(_once(by_key.get(key, ())), key=_version):
            history.add(transition)
        if key in present:
            history.add_current(present[key], now)
        if history.holdings:
            by_partition[key] = history.holdings
    return by_partition


class _PartitionHoldings:
    """Builds the holdings of one partition, transition by transition."""

    def __init__(self) -> None:
        self.holdings: list[Holding] = []
        self._until: datetime | None = None  # when the last lease would end
        self._version = -1

    def add(self, transition: Transition) -> None:
        """Add a transition."""
        self._version = transition.version
        previous = transition.previous_owner
        if self._is_held_by_other_than(previous):
            self._end_unknown(by=transition.at)
        if previous is not None and previous != transition.owner:
            if not self._is_held:
                self._begin(Holding(owner=previous))
            ran_out = transition.owner is not None and _passed(transition.previous_until, transition.at)
            self._end(
                transition.previous_until if ran_out and transition.previous_until is not None else transition.at,
                HoldingEnd.EXPIRED if ran_out else _end_of(transition),
                transition.reason,
                transition.by,
            )
        if transition.owner is not None and (transition.owner != previous or not self._is_held):
            begin = _begin_of(transition) if transition.owner != previous else HoldingStart.UNKNOWN
            at = transition.at if transition.owner != previous else None
            self._begin(Holding(owner=transition.owner, began_at=at, begin=begin))
        self._until = transition.until

    def add_current(self, partition: Partition, now: datetime) -> None:
        """Add the current partition, unless it is older than the last transition."""
        if partition.version < self._version:
            return
        if self._is_held_by_other_than(partition.owner):
            if partition.status is PartitionStatus.COMPLETED:
                self._end(partition.priority, HoldingEnd.COMPLETED)
            else:
                self._end_unknown(by=partition.held_since)
        if partition.owner is None:
            return
        if not self._is_held:
            self._begin(Holding(owner=partition.owner, began_at=partition.held_since))
        if state_of(partition, now) is PartitionState.EXPIRED:
            self._end(partition.priority, HoldingEnd.EXPIRED, "no owner has taken it over yet")

    @property
    def _is_held(self) -> bool:
        return bool(self.holdings) and self.holdings[-1].end is HoldingEnd.HELD

    def _is_held_by_other_than(self, owner: str | None) -> bool:
        return self._is_held and self.holdings[-1].owner != owner

    def _begin(self, holding: Holding) -> None:
        if self.holdings and holding.began_at is not None:  # the clocks of two machines may differ
            holding = replace(holding, began_at=_latest(holding.began_at, self.holdings[-1].ended_at))
        self.holdings.append(holding)

    def _end(self, at: datetime, end: HoldingEnd, reason: str = "", by: str | None = None) -> None:
        last = self.holdings.pop()
        before = self.holdings[-1].ended_at if self.holdings else None
        at = _latest(at, last.began_at, before)
        self.holdings.append(replace(last, ended_at=at, end=end, reason=reason, by=by))

    def _end_unknown(self, by: datetime | None = None) -> None:
        last = self.holdings[-1]
        known = [instant for instant in (self._until, by) if instant is not None]
        self._end(min(known, default=last.began_at or _EPOCH), HoldingEnd.UNKNOWN)


def _end_of(transition: Transition) -> HoldingEnd:
    match transition.status:
        case None:
            return HoldingEnd.DELETED
        case PartitionStatus.COMPLETED:
            return HoldingEnd.COMPLETED
        case PartitionStatus.CLOSED if transition.until is not None and transition.until >= PARKED_UNTIL:
            return HoldingEnd.PARKED
        case _ if transition.kind is ChangeKind.FAILED:
            return HoldingEnd.FAILED
        case PartitionStatus.CLOSED:
            return HoldingEnd.CLOSED
        case PartitionStatus.UNASSIGNED:
            return HoldingEnd.RESET if transition.kind is ChangeKind.RESET else HoldingEnd.RELEASED
        case _:
            begin = _begin_of(transition)
            return HoldingEnd(begin.value) if begin is not HoldingStart.ACQUIRED else HoldingEnd.TAKEN_OVER


def _begin_of(transition: Transition) -> HoldingStart:
    if is_waiting(transition.owner):
        return HoldingStart.AWAITING
    if transition.previous_status is not PartitionStatus.ASSIGNED:
        return HoldingStart.ACQUIRED
    return HoldingStart.HANDED_OVER if transition.kind is ChangeKind.HANDED_OVER else HoldingStart.TAKEN_OVER


def is_waiting(owner: str | None) -> bool:
    """Return whether this owner's name means that the partition waits for acknowledgments and no process holds it."""
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
    """Return each transition once. A page is written again if the response to its write was lost."""
    return {(transition.partition_key, transition.version): transition for transition in transitions}.values()


def _version(transition: Transition) -> int:
    return transition.version


# Pages as text: JSON in which every owner, reason and user is written once.


def _page_texts(transitions: Sequence[Transition]) -> Iterator[str]:
    texts: dict[str, int] = {}
    records = [_written(transition, texts) for transition in transitions]
    text = compress({"texts": list(texts), "transitions": records})
    if len(text) <= MAX_PAGE_CHARACTERS or len(transitions) == 1:
        yield text
        return
    half = len(transitions) // 2
    yield from _page_texts(transitions[:half])
    yield from _page_texts(transitions[half:])


def _written(transition: Transition, texts: dict[str, int]) -> list[Any]:
    def index(text: str | None) -> int | None:
        return None if text is None else texts.setdefault(text, len(texts))

    return [
        transition.partition_key,
        _milliseconds(transition.at),
        transition.version,
        transition.status,
        index(transition.owner),
        _milliseconds(transition.until),
        transition.previous_status,
        index(transition.previous_owner),
        _milliseconds(transition.previous_until),
        index(transition.reason),
        index(transition.by),
        transition.kind,
    ]


def _read(record: Any, texts: Sequence[str]) -> Transition:
    key, at, version, status, owner, until, previous_status, previous_owner, previous_until, reason, by, *kind = record

    def text(index: int | None) -> str | None:
        return None if index is None else str(texts[index])

    return Transition(
        partition_key=str(key),
        at=_EPOCH + timedelta(milliseconds=at),
        version=int(version),
        status=None if status is None else PartitionStatus(status),
        owner=text(owner),
        until=_instant(until),
        previous_status=PartitionStatus(previous_status),
        previous_owner=text(previous_owner),
        previous_until=_instant(previous_until),
        kind=_kind(*kind),
        reason=text(reason) or "",
        by=text(by),
    )


def _kind(written: Any = None) -> ChangeKind:
    """Return the kind of a transition that any version of this package may have written."""
    return ChangeKind(written) if written in tuple(ChangeKind) else ChangeKind.OTHER


def _milliseconds(instant: datetime | None) -> int | None:
    return None if instant is None else (instant - _EPOCH) // timedelta(milliseconds=1)


def _instant(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
