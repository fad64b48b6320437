"""The partition: one unit of work, as an immutable value.

Every method that changes a partition returns a new value. The new value is written to the store only if the version
that was read is still stored. The four statuses and the meaning of `priority` follow Data Prepper's source
coordination. Unlike there, a completed partition is ordered by its completion time, and a partition that was given up
by the time it was given up.
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
"""The limit of a DynamoDB sort key. It is the same for every store, so that a source can move between stores."""
MAX_SOURCE_IDENTIFIER_BYTES = 256
MAX_PROGRESS_BYTES = 64 * 1024
PARKED_UNTIL = datetime(9999, 1, 1, tzinfo=UTC)
"""The `reopen_at` of a parked partition: it never reopens automatically."""


T = TypeVar("T")


class PartitionStatus(StrEnum):
    """The status of a partition."""

    UNASSIGNED = "UNASSIGNED"
    """Waiting for an owner."""
    ASSIGNED = "ASSIGNED"
    """Leased to an owner until `ownership_timeout`."""
    CLOSED = "CLOSED"
    """Not available until `reopen_at`."""
    COMPLETED = "COMPLETED"
    """Finished: all its data is delivered."""


AWAITING_SUFFIX = ":acknowledgment"
"""The suffix of the owner of a partition that waits for acknowledgments: no process holds its lease."""

UNFINISHED = (PartitionStatus.UNASSIGNED, PartitionStatus.ASSIGNED, PartitionStatus.CLOSED)


class ChangeKind(StrEnum):
    """What happened to a partition. Code that reacts to a change uses this, never the text of its reason."""

    ACQUIRED = "acquired"
    TAKEN_OVER = "taken over"
    HANDED_OVER = "handed over"
    AWAITING = "awaiting"
    """It waits for acknowledgments."""
    GIVEN_UP = "given up"
    FAILED = "failed"
    """Work on it failed, or its data was rejected. Its status says what happened next."""
    CLOSED = "closed"
    RELEASED = "released"
    """A user ended its lease."""
    PARKED = "parked"
    """By a user."""
    REOPENED = "reopened"
    RESET = "reset"
    COMPLETED = "completed"
    DELETED = "deleted"
    OTHER = "other"
    """A kind that another version of this package wrote and this version does not know."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """The cause of a change of status or owner, kept with the partition until it is written. The history records it.

    :param kind: what happened.
    :param reason: a short text with details.
    :param previous_status: the status before the change.
    :param previous_owner: the owner before the change; None if it had no owner.
    :param previous_until: when that lease would have ended, or when it would have reopened (aware); None if neither.
    :param by: the user who requested the change; None if no user did.
    """

    kind: ChangeKind
    reason: str
    previous_status: PartitionStatus
    previous_owner: str | None = None
    previous_until: datetime | None = None
    by: str | None = None


@dataclass(frozen=True, kw_only=True)
class PartitionFacts:
    """What users see of a partition beside its progress.

    :param partition_key: its name, unique in its source.
    :param status: its status.
    :param priority: its position in the queue of its status, oldest first: when it became available, when its lease
        ends, when it reopens, or when it was completed (aware, UTC).
    :param owner: the owner of the lease; None unless ASSIGNED.
    :param held_since: when this owner acquired it (aware, UTC); None unless ASSIGNED, and None if the program that
        leased it did not record it, as Data Prepper does not.
    :param reopen_at: when a CLOSED partition may be acquired again (aware, UTC).
    :param closed_count: how many times it was closed to be read again later; waits after a failure do not count.
    :param attempts: the number of failures in a row since it last made progress.
    :param last_error: the reason of the last failure; None if it has not failed since it last made progress.
    :param version: increases by one with every write; starts at `first_version`, or at 0 if another program created the
        partition. The version that an acquisition wrote is the owner's fencing token.
    """

    partition_key: str
    status: PartitionStatus
    priority: datetime
    owner: str | None = None
    held_since: datetime | None = None
    reopen_at: datetime | None = None
    closed_count: int = 0
    attempts: int = 0
    last_error: str | None = None
    version: int = 0


@dataclass(frozen=True, kw_only=True)
class Partition(PartitionFacts):
    """One unit of work of a source.

    :param source_identifier: the item family it belongs to, `[prefix|]source|PARTITION`.
    :param ownership_timeout: when the lease ends (aware, UTC); None unless ASSIGNED.
    :param progress: its state, a JSON object; the source defines its meaning.
    :param unreadable_progress: the stored state if it is not a JSON object; `progress` is empty then. Every write keeps
        it, except one that a user requests.
    :param change: the cause of the change that is about to be written. It is not stored, and is ignored when partitions
        are compared.
    """

    source_identifier: str
    ownership_timeout: datetime | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    unreadable_progress: str | None = None
    change: Change | None = field(default=None, compare=False, repr=False)

    def progress_as(self, read: Callable[[Mapping[str, Any]], T]) -> T:
        """Return the result of a function of `progress`. The result is cached, so the function is called once.

        :param read: a function of the progress alone, whose results are immutable.
        :raises Exception: whatever the function raises; errors are not cached.
        """
        if read not in self._read:
            self._read[read] = read(self.progress)
        return cast("T", self._read[read])

    def _with(self, **values: Any) -> Partition:
        """Return a copy with other values of some fields. The cached results remain while the progress is the same."""
        copy = object.__new__(Partition)
        copy.__dict__.update(self.__dict__)
        if "progress" in values or "unreadable_progress" in values:
            copy.__dict__.pop("_read", None)
            copy.__dict__.pop("_text", None)
        copy.__dict__.update(values)
        return copy

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
        """Whether it is CLOSED until a user reopens it."""
        return self.status is PartitionStatus.CLOSED and self.reopen_at is not None and self.reopen_at >= PARKED_UNTIL

    @property
    def is_awaiting(self) -> bool:
        """Whether it waits for acknowledgments: no process holds its lease, which lasts until they arrive."""
        return self.status is PartitionStatus.ASSIGNED and (self.owner or "").endswith(AWAITING_SUFFIX)

    def acquired(self, owner: str, ownership_timeout: datetime, held_since: datetime | None = None) -> Partition:
        """Return a copy that is leased to `owner` until `ownership_timeout`.

        :param held_since: when the lease began; None if this is not recorded.
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
        """Return a copy as a store's acquisition writes and returns it. Its `change` keeps the previous state."""
        acquired = self.acquired(owner, ownership_timeout, held_since)
        return acquired.written()._with(change=acquired.change)

    def renewed(self, ownership_timeout: datetime) -> Partition:
        """Return a copy whose lease ends at `ownership_timeout`, or later if it already does."""
        end = max(ownership_timeout, self.ownership_timeout or ownership_timeout)
        return self._with(ownership_timeout=end, priority=end)

    def awaiting(self, until: datetime, held_since: datetime | None = None) -> Partition:
        """Return a copy that is leased at least until `until`, without a process that works on it.

        :param held_since: when the lease began; None if this is not recorded.
        """
        owner = f"{(self.owner or '').removesuffix(AWAITING_SUFFIX)}{AWAITING_SUFFIX}"
        change = self._change(ChangeKind.AWAITING, "waits for acknowledgments")
        return self.renewed(until)._with(owner=owner, held_since=held_since, change=change)

    def with_progress(self, progress: Mapping[str, Any]) -> Partition:
        """Return a copy with this state.

        :raises ProgressError: if the stored state is unreadable, because this would overwrite it; or if the new state
            is not JSON or too large.
        """
        if self.unreadable_progress is not None:
            raise ProgressError(
                f"partition {self.partition_key!r}: its stored progress is not a JSON object and is kept unchanged: "
                f"{self.unreadable_progress[:80]!r}; correct it in the store, or reset the partition"
            )
        changed = self._with(progress=progress)
        size = len(progress_text(changed))  # ASCII, so characters are bytes
        if size > MAX_PROGRESS_BYTES:
            raise ProgressError(
                f"partition {self.partition_key!r}: its progress has {size} bytes; the limit is {MAX_PROGRESS_BYTES}. "
                "Keep long lists in a file, and the file's path in the progress"
            )
        return changed

    def reset(self, progress: Mapping[str, Any], available_at: datetime) -> Partition:
        """Return a copy that is as good as new: no owner, no failures, this state, queued as of `available_at`.

        A user requests this, so it overwrites any stored state.
        """
        again = self.reopened(available_at)._with(progress=progress, unreadable_progress=None, closed_count=0)
        return again.because(ChangeKind.RESET)

    def reopened(self, available_at: datetime) -> Partition:
        """Return a copy without an owner and without failures, queued as of `available_at`."""
        return self.given_up(available_at).recovered().because(ChangeKind.REOPENED)

    def failed(self, error: str) -> Partition:
        """Return a copy with one more failure in a row."""
        change = self._change(ChangeKind.FAILED, f"failed: {error}")
        return self._with(attempts=self.attempts + 1, last_error=error, change=change)

    def recovered(self) -> Partition:
        """Return a copy without failures: the partition made progress."""
        return self._with(attempts=0, last_error=None)

    def given_up(self, available_at: datetime) -> Partition:
        """Return a copy without an owner, queued as of `available_at`."""
        return self._without_owner(PartitionStatus.UNASSIGNED, ChangeKind.GIVEN_UP)._with(priority=available_at)

    def closed(self, reopen_at: datetime) -> Partition:
        """Return a copy that is closed until `reopen_at`; `closed_count` increases by one."""
        return self.resting(reopen_at)._with(closed_count=self.closed_count + 1)

    def resting(self, reopen_at: datetime) -> Partition:
        """Return a copy that is closed until `reopen_at` after a failure; `closed_count` stays the same."""
        closed = self._without_owner(PartitionStatus.CLOSED, ChangeKind.CLOSED)
        return closed._with(reopen_at=reopen_at, priority=reopen_at)

    def completed(self, at: datetime) -> Partition:
        """Return a copy that was completed at this instant."""
        return self._without_owner(PartitionStatus.COMPLETED, ChangeKind.COMPLETED)._with(priority=at)

    def because(self, kind: ChangeKind, reason: str | None = None, by: str | None = None) -> Partition:
        """Return a copy with another cause for the change that is about to be written.

        :param kind: what happened.
        :param reason: a short text with details; None for the text of the kind.
        :param by: the user who requested the change.
        """
        change = replace(self._change(kind), kind=kind, reason=kind.value if reason is None else reason, by=by)
        return self._with(change=change)

    def written(self) -> Partition:
        """Return a copy as the store holds it after this write, with the version increased by one."""
        return self._with(version=self.version + 1, change=None)

    def _without_owner(self, status: PartitionStatus, kind: ChangeKind) -> Partition:
        return self._with(
            status=status,
            owner=None,
            ownership_timeout=None,
            held_since=None,
            reopen_at=None,
            change=self._change(kind),
        )

    def _change(self, kind: ChangeKind, reason: str | None = None) -> Change:
        """Return the change that is about to be written. The first cause and the previous state are kept."""
        if self.change is not None:
            return self.change
        return Change(
            kind=kind,
            reason=kind.value if reason is None else reason,
            previous_status=self.status,
            previous_owner=self.owner,
            previous_until=self.reopen_at if self.status is PartitionStatus.CLOSED else self.ownership_timeout,
        )


def new_partition(source_identifier: str, partition_key: str, created_at: datetime) -> Partition:
    """Return a new partition without progress, queued as of this instant (aware)."""
    return Partition(
        source_identifier=source_identifier,
        partition_key=partition_key,
        status=PartitionStatus.UNASSIGNED,
        priority=created_at,
        version=first_version(created_at),
    )


def with_keys(partition: Partition, partition_keys: Iterable[str]) -> list[Partition]:
    """Return copies of a partition, one for each of these keys.

    There may be many thousand keys. `replace` takes ten times as long per copy, because it sets every field again.
    """
    partitions = []
    for key in partition_keys:
        each = object.__new__(Partition)
        each.__dict__.update(partition.__dict__, partition_key=key)
        partitions.append(each)
    return partitions


def first_version(created_at: datetime) -> int:
    """Return the initial version of a partition: the microseconds since 1970.

    A partition that is deleted and created again therefore never has a version that it had before. Another process may
    still have read the old version and would take it for the current one.
    """
    return (created_at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def check_partition_key(partition_key: str) -> None:
    """Check that every store can store this key.

    :raises ConfigurationError: if it is empty, too long, or contains characters that databases do not accept.
    """
    _check_name("partition key", partition_key, MAX_KEY_BYTES)


def source_identifier(source: str, *, prefix: str | None = None, family: str = "PARTITION") -> str:
    """Return the identifier of a source's item family, `[prefix|]source|family`, in Data Prepper's format.

    :param source: the name of the source, without `|`.
    :param prefix: separates installations that share a store; None for no prefix.
    :param family: `PARTITION`, or the family of other items of the source.
    :raises ConfigurationError: if a name is not valid.
    """
    for what, name in (("source", source), ("prefix", prefix)):
        if name is not None and (not name or "|" in name):
            raise ConfigurationError(f"{what} {name!r} is not usable: give a name that is not empty and has no '|'")
    identifier = "|".join(part for part in (prefix, source, family) if part)
    _check_name("source identifier", identifier, MAX_SOURCE_IDENTIFIER_BYTES)
    return identifier


class ItemFamily(NamedTuple):
    """The parts of a source identifier."""

    prefix: str | None
    source: str
    family: str


def parse_source_identifier(text: str) -> ItemFamily:
    """Split an identifier that `source_identifier` returned into its parts.

    :raises ValueError: if the text is not such an identifier.
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
            f"{what} {shown} is not usable: it has {size} bytes in UTF-8; the limit is {max_bytes}; "
            "shorten it, for example to a prefix and a digest"
        )


def progress_text(partition: Partition) -> str:
    """Return a partition's state as the text to store.

    :raises ProgressError: if it cannot be written as JSON.
    """
    return partition._text


def read_progress(text: str | None) -> dict[str, Any]:
    """Return the state fields of a `Partition`, parsed from the stored text.

    No text and JSON's null are the empty state. Text that is not a JSON object becomes `unreadable_progress`.
    """
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return {"unreadable_progress": text}
    if value is None:
        return {"progress": {}}
    return {"progress": value} if isinstance(value, dict) else {"unreadable_progress": text}


def format_instant(instant: datetime) -> str:
    """Return an instant as text of fixed width, which sorts in the order of time.

    :param instant: an aware datetime; it is converted to UTC.
    :raises ValueError: if it has no time zone.
    """
    if instant.tzinfo is None:
        raise ValueError(f"instant {instant!r} has no time zone; give an aware datetime")
    return f"{instant.astimezone(UTC).isoformat(timespec='microseconds')[:-6]}Z"


def parse_instant(text: str) -> datetime:
    """Return the instant that `format_instant` wrote, aware and in UTC.

    :raises ValueError: if the text is not such an instant.
    """
    with suppress(ValueError):  # fast, but accepts other formats as well
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is UTC and format_instant(instant) == text:
            return instant
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def read_instant(value: object) -> datetime | None:
    """Return the instant in a stored value (aware, UTC); None if the value is not an instant."""
    try:
        return parse_instant(value) if isinstance(value, str) else None
    except ValueError:
        return None
