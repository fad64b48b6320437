"""The partition: one unit of work, as an immutable value.

Every change makes a new value through one of the methods here, and reaches the store as a write that is conditional
on the version read. The four statuses and the meaning of `priority` follow Data Prepper's source coordination;
unlike there, a completed partition is ordered by when it was completed, and a given-up one by when it was given up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

from airflow_provider_coordination.coordination.errors import ConfigurationError, ProgressError

MAX_KEY_BYTES = 1024
"""What DynamoDB takes as a sort key; the same for every store, so that a source can move from one to another."""
MAX_SOURCE_IDENTIFIER_BYTES = 256
MAX_PROGRESS_BYTES = 64 * 1024
PARKED_UNTIL = datetime(9999, 1, 1, tzinfo=UTC)
"""When a parked partition reopens by itself: never, as far as anybody is concerned."""


T = TypeVar("T")


class PartitionStatus(StrEnum):
    """Where a partition stands."""

    UNASSIGNED = "UNASSIGNED"
    """Waiting for an owner."""
    ASSIGNED = "ASSIGNED"
    """Leased to an owner until `ownership_timeout`."""
    CLOSED = "CLOSED"
    """Put aside until `reopen_at`."""
    COMPLETED = "COMPLETED"
    """Finished: all its data is delivered."""


AWAITING_SUFFIX = ":acknowledgment"
"""Ends the owner of a partition that waits for acknowledgments: no process holds it."""

UNFINISHED = (PartitionStatus.UNASSIGNED, PartitionStatus.ASSIGNED, PartitionStatus.CLOSED)


class ChangeKind(StrEnum):
    """What happened to a partition: what is concluded from a change goes by this, and never by its words."""

    ACQUIRED = "acquired"
    TAKEN_OVER = "taken over"
    HANDED_OVER = "handed over"
    AWAITING = "awaiting"
    """It was left to wait for acknowledgments."""
    GIVEN_UP = "given up"
    FAILED = "failed"
    """Working on it failed, or what it delivered was rejected; what became of it then says its status."""
    CLOSED = "closed"
    RELEASED = "released"
    """A person ended its lease."""
    PARKED = "parked"
    """By a person."""
    REOPENED = "reopened"
    RESET = "reset"
    COMPLETED = "completed"
    DELETED = "deleted"
    OTHER = "other"
    """What another version of this package wrote, and this one does not know."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What made a partition's status or owner another one, until it is written: for whoever keeps the history.

    :param kind: what happened.
    :param reason: the same in a few words, with more about it.
    :param former_status: what its status was.
    :param former_owner: who held it; None if nobody did.
    :param former_until: when that lease was to end, or when it was to reopen (aware); None if neither.
    :param by: the person who ordered it; None if nobody did.
    """

    kind: ChangeKind
    reason: str
    former_status: PartitionStatus
    former_owner: str | None = None
    former_until: datetime | None = None
    by: str | None = None


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One unit of work of a source.

    :param source_identifier: the item family it belongs to, `[prefix|]source|PARTITION`.
    :param partition_key: its name, unique in its source.
    :param status: where it stands.
    :param priority: its place in the queue of its status, oldest first: when it became available, when its lease ends,
        when it reopens, or when it was completed (aware, UTC).
    :param owner: who holds the lease; None unless ASSIGNED.
    :param ownership_timeout: when the lease ends (aware, UTC); None unless ASSIGNED.
    :param held_since: since when this owner has held it (aware, UTC); None unless ASSIGNED, and where whoever leased it
        did not say so, as Data Prepper does not.
    :param progress: its state, a JSON object, whose meaning belongs to the source.
    :param unreadable_progress: the state as it is stored, where that is not a JSON object; `progress` is empty then.
        Every write keeps it, except one that a person orders.
    :param reopen_at: when a CLOSED partition may be acquired again (aware, UTC).
    :param closed_count: how often it was closed to be read again later; resting after a failure does not count.
    :param attempts: how often in a row working on it failed, since it last got further.
    :param last_error: why it failed the last time; None if it did not since it last got further.
    :param version: grows by one with every write; `first_version` on creation, 0 for what others created. The version
        that an acquisition wrote is the owner's fencing token.
    :param change: what is about to be written made of it; not stored, and none of what makes two partitions equal.
    """

    source_identifier: str
    partition_key: str
    status: PartitionStatus
    priority: datetime
    owner: str | None = None
    ownership_timeout: datetime | None = None
    held_since: datetime | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    unreadable_progress: str | None = None
    reopen_at: datetime | None = None
    closed_count: int = 0
    attempts: int = 0
    last_error: str | None = None
    version: int = 0
    change: Change | None = field(default=None, compare=False, repr=False)

    def progress_as(self, read: Callable[[Mapping[str, Any]], T]) -> T:
        """Return what a function makes of `progress`, which it is called with once.

        :param read: a function of the progress alone, whose results are immutable.
        :raises Exception: what it raises, every time.
        """
        if read not in self._read:
            self._read[read] = read(self.progress)
        return cast("T", self._read[read])

    def _with(self, **values: Any) -> Partition:
        """Return it with other values of some fields; as long as its progress stays, so does what that was read as."""
        made = object.__new__(Partition)
        made.__dict__.update(self.__dict__)
        if "progress" in values or "unreadable_progress" in values:
            made.__dict__.pop("_read", None)
            made.__dict__.pop("_text", None)
        made.__dict__.update(values)
        return made

    @cached_property
    def _text(self) -> str:
        if self.unreadable_progress is not None:
            return self.unreadable_progress
        try:
            return json.dumps(self.progress, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ProgressError(f"partition {self.partition_key!r}: its progress is not JSON: {error}") from None

    @cached_property
    def _read(self) -> dict[Callable[[Mapping[str, Any]], Any], Any]:
        return {}

    @property
    def is_parked(self) -> bool:
        """Whether it is CLOSED until a person reopens it."""
        return self.status is PartitionStatus.CLOSED and self.reopen_at is not None and self.reopen_at >= PARKED_UNTIL

    @property
    def is_awaiting(self) -> bool:
        """Whether no process holds its lease, which lasts until its batches are acknowledged."""
        return self.status is PartitionStatus.ASSIGNED and (self.owner or "").endswith(AWAITING_SUFFIX)

    def acquired(self, owner: str, ownership_timeout: datetime, held_since: datetime | None = None) -> Partition:
        """Return it leased to `owner` until `ownership_timeout`.

        :param held_since: since when; None where nobody wants to know that.
        """
        return self._with(
            status=PartitionStatus.ASSIGNED,
            owner=owner,
            ownership_timeout=ownership_timeout,
            held_since=held_since,
            priority=ownership_timeout,
            reopen_at=None,
            change=self._change(
                ChangeKind.TAKEN_OVER if self.status is PartitionStatus.ASSIGNED else ChangeKind.ACQUIRED
            ),
        )

    def taken(self, owner: str, ownership_timeout: datetime, held_since: datetime) -> Partition:
        """Return it as a store's acquisition writes and returns it: it still tells what it was before."""
        acquired = self.acquired(owner, ownership_timeout, held_since)
        return acquired.written()._with(change=acquired.change)

    def renewed(self, ownership_timeout: datetime) -> Partition:
        """Return it with its lease running until `ownership_timeout`, or longer where it already did."""
        end = max(ownership_timeout, self.ownership_timeout or ownership_timeout)
        return self._with(ownership_timeout=end, priority=end)

    def awaiting(self, until: datetime, held_since: datetime | None = None) -> Partition:
        """Return it leased until `until`, or longer where it was, without a process that works on it.

        :param held_since: since when; None where nobody wants to know that.
        """
        owner = f"{(self.owner or '').removesuffix(AWAITING_SUFFIX)}{AWAITING_SUFFIX}"
        change = self._change(ChangeKind.AWAITING, "waits for acknowledgments")
        return self.renewed(until)._with(owner=owner, held_since=held_since, change=change)

    def with_progress(self, progress: Mapping[str, Any]) -> Partition:
        """Return it with this state.

        :raises ProgressError: if the stored state cannot be read, since this would overwrite it; or if the new one is
            not JSON, or too large.
        """
        if self.unreadable_progress is not None:
            raise ProgressError(
                f"partition {self.partition_key!r}: its stored progress is not a JSON object and is kept as it is: "
                f"{self.unreadable_progress[:80]!r}; restore it, or reset the partition"
            )
        changed = self._with(progress=progress)
        size = len(progress_text(changed))  # ASCII, so characters are bytes
        if size > MAX_PROGRESS_BYTES:
            raise ProgressError(
                f"partition {self.partition_key!r}: its progress has {size} bytes and may have {MAX_PROGRESS_BYTES}; "
                "keep long lists in a file that the progress points to"
            )
        return changed

    def reset(self, progress: Mapping[str, Any], available_at: datetime) -> Partition:
        """Return it as new: without an owner or a history, with this state, queueing as of `available_at`.

        A person orders this: whatever was stored is overwritten.
        """
        again = self.reopened(available_at)._with(progress=progress, unreadable_progress=None, closed_count=0)
        return again.because(ChangeKind.RESET)

    def reopened(self, available_at: datetime) -> Partition:
        """Return it without an owner and with its failures forgotten, queueing as of `available_at`."""
        return self.given_up(available_at).recovered().because(ChangeKind.REOPENED)

    def failed(self, error: str) -> Partition:
        """Return it with one more failure in a row."""
        change = self._change(ChangeKind.FAILED, f"failed: {error}")
        return self._with(attempts=self.attempts + 1, last_error=error, change=change)

    def recovered(self) -> Partition:
        """Return it with its failures forgotten: it got further."""
        return self._with(attempts=0, last_error=None)

    def given_up(self, available_at: datetime) -> Partition:
        """Return it without an owner, queueing as of `available_at`."""
        return self._disowned(PartitionStatus.UNASSIGNED, ChangeKind.GIVEN_UP)._with(priority=available_at)

    def closed(self, reopen_at: datetime) -> Partition:
        """Return it put aside until `reopen_at`, and the closing counted."""
        return self.resting(reopen_at)._with(closed_count=self.closed_count + 1)

    def resting(self, reopen_at: datetime) -> Partition:
        """Return it put aside until `reopen_at` because it failed: `attempts` counts that, `closed_count` does not."""
        put_aside = self._disowned(PartitionStatus.CLOSED, ChangeKind.CLOSED)
        return put_aside._with(reopen_at=reopen_at, priority=reopen_at)

    def completed(self, at: datetime) -> Partition:
        """Return it finished at this instant."""
        return self._disowned(PartitionStatus.COMPLETED, ChangeKind.COMPLETED)._with(priority=at)

    def because(self, kind: ChangeKind, reason: str | None = None, by: str | None = None) -> Partition:
        """Return it with another cause of what is about to be written.

        :param kind: what happened.
        :param reason: the same in a few words, with more about it; None for the kind's own.
        :param by: the person who ordered it.
        """
        change = replace(self._change(kind), kind=kind, reason=kind.value if reason is None else reason, by=by)
        return self._with(change=change)

    def written(self) -> Partition:
        """Return it as the store holds it after this write: one version on."""
        return self._with(version=self.version + 1, change=None)

    def _disowned(self, status: PartitionStatus, kind: ChangeKind) -> Partition:
        return self._with(
            status=status,
            owner=None,
            ownership_timeout=None,
            held_since=None,
            reopen_at=None,
            change=self._change(kind),
        )

    def _change(self, kind: ChangeKind, reason: str | None = None) -> Change:
        """Return what is about to be written: its first cause stays, and so does what was before."""
        if self.change is not None:
            return self.change
        return Change(
            kind=kind,
            reason=kind.value if reason is None else reason,
            former_status=self.status,
            former_owner=self.owner,
            former_until=self.reopen_at if self.status is PartitionStatus.CLOSED else self.ownership_timeout,
        )


def new_partition(source_identifier: str, partition_key: str, created_at: datetime) -> Partition:
    """Return a partition as it is created: without progress, waiting since this instant (aware)."""
    return Partition(
        source_identifier=source_identifier,
        partition_key=partition_key,
        status=PartitionStatus.UNASSIGNED,
        priority=created_at,
        version=first_version(created_at),
    )


def under_keys(partition: Partition, partition_keys: Iterable[str]) -> list[Partition]:
    """Return what a partition holds under each of these keys.

    There may be many thousand, and `replace` takes ten times as long for each: it sets every field anew.
    """
    made = []
    for key in partition_keys:
        each = object.__new__(Partition)
        each.__dict__.update(partition.__dict__, partition_key=key)
        made.append(each)
    return made


def first_version(created_at: datetime) -> int:
    """Return the version that a partition starts with: the microseconds since 1970.

    A partition that is deleted and created again so never has a version that it had before, which somebody may still
    hold in hand and would take for the present one.
    """
    return (created_at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def check_partition_key(partition_key: str) -> None:
    """Check that every store can hold this key.

    :raises ConfigurationError: if it is empty, too long, or holds what no database takes.
    """
    _check_name("partition key", partition_key, MAX_KEY_BYTES)


def source_identifier(source: str, *, prefix: str | None = None, family: str = "PARTITION") -> str:
    """Return the name of a source's item family, `[prefix|]source|family`, as Data Prepper names it.

    :param source: the source's name; no `|`.
    :param prefix: separates installations that share a store; None for none.
    :param family: `PARTITION`, or another kind of item that belongs to the source.
    :raises ConfigurationError: if a name is not usable.
    """
    for what, name in (("source", source), ("prefix", prefix)):
        if name is not None and (not name or "|" in name):
            raise ConfigurationError(f"{what} {name!r} is not usable: give a name that is not empty and has no '|'")
    identifier = "|".join(part for part in (prefix, source, family) if part)
    _check_name("source identifier", identifier, MAX_SOURCE_IDENTIFIER_BYTES)
    return identifier


class ItemFamily(NamedTuple):
    """What the name of an item family says."""

    prefix: str | None
    source: str
    family: str


def parse_source_identifier(text: str) -> ItemFamily:
    """Return what `source_identifier` put together.

    :raises ValueError: if the text is not such a name.
    """
    match text.split("|"):
        case [source, family] if source and family:
            return ItemFamily(None, source, family)
        case [prefix, source, family] if prefix and source and family:
            return ItemFamily(prefix, source, family)
    raise ValueError(f"source identifier {text!r} is not [prefix|]source|family")


def _check_name(what: str, name: str, max_bytes: int) -> None:
    shown = repr(name) if len(name) <= 80 else f"{name[:80]!r}…"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} {shown} is not usable: it is not valid Unicode text") from None
    if not name or "\0" in name:
        raise ConfigurationError(f"{what} {shown} is not usable: give text that is not empty and has no NUL")
    if size > max_bytes:
        raise ConfigurationError(
            f"{what} {shown} is not usable: it has {size} bytes in UTF-8 and may have {max_bytes}; "
            "shorten it, for example to a prefix and a digest"
        )


def progress_text(partition: Partition) -> str:
    """Return a partition's state as the text that a store keeps.

    :raises ProgressError: if it cannot be written as JSON.
    """
    return partition._text


def read_progress(text: str | None) -> dict[str, Any]:
    """Return the fields of a `Partition` that hold its state, from the text that a store keeps.

    No text, and JSON's null, are the empty state. What is not a JSON object is kept as `unreadable_progress`.
    """
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return {"unreadable_progress": text}
    if value is None:
        return {"progress": {}}
    return {"progress": value} if isinstance(value, dict) else {"unreadable_progress": text}


def format_instant(instant: datetime) -> str:
    """Return an instant as text of fixed width, so that the order of texts is the order of instants.

    :param instant: aware; converted to UTC.
    :raises ValueError: if it has no time zone.
    """
    if instant.tzinfo is None:
        raise ValueError(f"instant {instant!r} has no time zone; give an aware datetime")
    return f"{instant.astimezone(UTC).isoformat(timespec='microseconds')[:-6]}Z"


def parse_instant(text: str) -> datetime:
    """Return the instant that `format_instant` wrote, aware and in UTC.

    :raises ValueError: if the text is not such an instant.
    """
    with suppress(ValueError):  # fast, and takes much that is no such instant
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is UTC and format_instant(instant) == text:
            return instant
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def read_instant(value: object) -> datetime | None:
    """Return the instant in a stored value, aware and in UTC; None if it holds none."""
    try:
        return parse_instant(value) if isinstance(value, str) else None
    except ValueError:
        return None
