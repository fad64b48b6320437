"""The acknowledgment set: the references that a batch still owes before it counts as delivered. An immutable value.

A set is an item in the store, so it outlives the job that created it. Every change returns a new value, which is
written only if the version that was read is still stored. The terms are those of Data Prepper's end-to-end
acknowledgments. Unlike there, a set ends exactly once, a release has an identity and counts once, a release of an
unknown reference changes nothing, and an expiry is an end like any other.

The core knows when a batch is delivered or must be delivered again. The source defines, by a `BatchLedger`, how a
partition's progress records batches, when a delivery moves a checkpoint, and what follows a finished partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentError,
    AcknowledgmentSetNotFoundError,
    ProgressError,
)
from airflow_provider_coordination.coordination.json_values import json_of
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    first_version,
    parse_instant,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import all_partitions

Progress = Mapping[str, Any]

Lookup = Callable[[str], Partition | None]
"""Reads another partition of the same source as it is stored now."""


@dataclass(frozen=True, kw_only=True)
class Settlement:
    """The new state of a partition after one of its batches was delivered, or must be delivered again.

    :param progress: its new progress.
    :param moved: whether more data than before is delivered without a gap.
    :param finished: whether all data that it will ever hold is delivered.
    :param reopen_after: how long a finished partition is closed before it is read again; None completes it.
    :param pending: the ids of the sets that its other batches still wait for.
    :param create: the initial progress of the partitions that follow a finished one, by key.
    :param unchanged: other partitions that this decision depends on, as they were read.
    """

    progress: Progress
    moved: bool = False
    finished: bool = False
    reopen_after: timedelta | None = None
    pending: Sequence[str] = ()
    create: Mapping[str, Progress] = field(default_factory=dict)
    unchanged: Sequence[Partition] = ()


class BatchLedger(Protocol):
    """How the partitions of a source record their batches."""

    def set_of(self, progress: Progress, batch_id: str) -> str | None:
        """Return the id of the set that a batch waits for; None if it waits for none or does not exist."""
        ...

    def in_delivery(self, progress: Progress, batch_id: str, set_id: str) -> Progress:
        """Return the progress in which a batch waits for this set.

        :raises ProgressChangedError: if there is no such batch.
        """
        ...

    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        """Return the new state of the partition when this batch, which waits for a set, is delivered."""
        ...

    def undelivered(self, partition: Partition, batch_id: str) -> Settlement:
        """Return the new state of the partition when this batch, which waits for a set, must be delivered again."""
        ...


class WholePartition(BatchLedger):
    """A partition that is one batch, such as an object or a range of a table. It is finished once delivered.

    The batch may have any id. The progress stores the id of its set as `acknowledgment_set`.
    """

    @override
    def set_of(self, progress: Progress, batch_id: str) -> str | None:
        waiting = progress.get("acknowledgment_set")
        return waiting if isinstance(waiting, str) else None

    @override
    def in_delivery(self, progress: Progress, batch_id: str, set_id: str) -> Progress:
        return {**progress, "acknowledgment_set": set_id}

    @override
    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        return Settlement(progress=_without_set(partition.progress), moved=True, finished=True)

    @override
    def undelivered(self, partition: Partition, batch_id: str) -> Settlement:
        return Settlement(progress=_without_set(partition.progress))


def _without_set(progress: Progress) -> Progress:
    return {name: value for name, value in progress.items() if name != "acknowledgment_set"}


log = logging.getLogger(__name__)

RETENTION = timedelta(days=1)
"""How long ended sets are kept, so that a late release is distinguished from a release of an unknown set."""


class AcknowledgmentView:
    """Reads the acknowledgment sets of one source. Safe to use from several threads.

    :param view: the view of the source.
    """

    def __init__(self, view: SourceView) -> None:
        self.source_identifier = view.family(FAMILY)
        self._source = view.source
        self._store = view.store
        self._logged_unreadable: set[str] = set()

    def get(self, set_id: str) -> AcknowledgmentSet:
        """Return a set as it is stored now.

        :raises AcknowledgmentSetNotFoundError: if the source has no such set, or no longer has it.
        """
        item = self._store.get(self.source_identifier, set_id)
        if item is None:
            raise AcknowledgmentSetNotFoundError(
                f"source {self._source!r} has no acknowledgment set {set_id!r}; give the id of one of its sets. "
                f"Ended sets are kept for {RETENTION.total_seconds() / 3600:g} hours"
            )
        return set_of_item(item)

    def pending(self, *, run: str | None = None) -> Iterator[AcknowledgmentSet]:
        """Yield the pending sets, the earliest expiry first; unreadable ones are logged and skipped.

        :param run: only those of this Airflow run.
        """
        return (s for s in self._read(PartitionStatus.UNASSIGNED) if run is None or s.run == run)

    def ended_since(self, instant: datetime, *, run: str | None = None) -> Iterator[AcknowledgmentSet]:
        """Yield the sets that ended at an instant (aware) or later, in the order of their end.

        :param run: only those of this Airflow run.
        """
        return (s for s in self._read(PartitionStatus.COMPLETED, since=instant) if run is None or s.run == run)

    def next_expiry(self) -> datetime | None:
        """Return when the next pending set expires; None if no set is pending. Unreadable sets never expire."""
        first = self._store.query(self.source_identifier, PartitionStatus.UNASSIGNED, limit=1)
        if not first:
            return None
        try:
            return set_of_item(first[0]).expires_at
        except ProgressError:
            return next((s.expires_at for s in self.pending()), None)

    def _read(self, status: PartitionStatus, since: datetime | None = None) -> Iterator[AcknowledgmentSet]:
        for item in all_partitions(self._store, self.source_identifier, status, since=since):
            try:
                yield set_of_item(item)
            except ProgressError as error:
                if item.partition_key not in self._logged_unreadable:  # triggers read the sets every few seconds
                    self._logged_unreadable.add(item.partition_key)
                    log.error("%s", error)


FAMILY = "ACKNOWLEDGMENT"
"""The item family of acknowledgment sets."""
MAX_REFERENCES = 100
MAX_NAME_CHARACTERS = 128
MAX_REASON_CHARACTERS = 1000


class AcknowledgmentState(StrEnum):
    """The state of a set. All states except PENDING are final."""

    PENDING = "PENDING"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    """Every reference was released positively: the batch is delivered."""
    REJECTED = "REJECTED"
    """A reference was released negatively: the batch is delivered again."""
    EXPIRED = "EXPIRED"
    """The set was still pending at its timeout: the batch is delivered again."""
    CANCELLED = "CANCELLED"
    """Its creator or a user cancelled it: the batch is delivered again, and no failure is counted."""


class ReleaseEffect(StrEnum):
    """The effect of a release."""

    RELEASED = "released"
    DUPLICATE = "duplicate"
    """The same release was made before. Nothing changed."""
    LATE = "late"
    """The set had already ended or timed out. Nothing changed, except that the set is now ended."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """One release of a reference.

    :param handle: the handle that owes the reference.
    :param positive: whether the data arrived.
    """

    handle: str
    positive: bool


@dataclass(frozen=True, kw_only=True)
class AcknowledgmentSet:
    """The references of one batch.

    A handle, such as a sink or a check, owes one or several references. The set is ACKNOWLEDGED once it is complete and
    nothing is owed, and REJECTED at the first negative release.

    :param set_id: its name, unique in its source.
    :param partition_key: the batch's partition.
    :param batch_id: the batch. A repeated delivery of the batch has a new set.
    :param created_at: when it was created (aware).
    :param timeout: how long it may be pending without progress.
    :param expires_at: when it expires (aware); every positive release moves it.
    :param references: the number of references that each handle still owes.
    :param added: the total number of references that were added.
    :param complete: whether no more handles are added.
    :param releases: the releases so far, by release id.
    :param sinks: the handles that the delivering job releases itself; the others are released from outside.
    :param state: its state.
    :param ended_at: when it ended (aware); None while it is PENDING.
    :param reason: why it was rejected, expired or cancelled.
    :param run: the Airflow run it belongs to, as `run_name` names it; empty for none.
    :param batch: facts about the batch for readers, such as its range and its number of records.
    :param version: increases by one with every write, like a partition's version.
    """

    set_id: str
    partition_key: str
    batch_id: str
    created_at: datetime
    timeout: timedelta
    expires_at: datetime
    references: Mapping[str, int] = field(default_factory=dict)
    added: int = 0
    complete: bool = False
    releases: Mapping[str, Release] = field(default_factory=dict)
    sinks: Sequence[str] = ()
    state: AcknowledgmentState = AcknowledgmentState.PENDING
    ended_at: datetime | None = None
    reason: str | None = None
    run: str = ""
    batch: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0

    @property
    def is_pending(self) -> bool:
        """Whether it has not ended."""
        return self.state is AcknowledgmentState.PENDING

    @property
    def owed(self) -> int:
        """The number of references that are not released yet."""
        return sum(self.references.values())

    @property
    def progress(self) -> float:
        """The fraction of released references, from 0 to 1; 0 if there are none yet."""
        return (self.added - self.owed) / self.added if self.added else float(self.complete)

    def add(self, handle: str, references: int = 1) -> AcknowledgmentSet:
        """Return a copy with one more handle.

        :param handle: the name of the handle.
        :param references: the number of references that it owes.
        :raises AcknowledgmentError: if the set is complete, or has the handle already.
        """
        if self.complete:
            raise AcknowledgmentError(f"{self}: it is complete; add handles before you complete it")
        if handle in self.references:
            raise AcknowledgmentError(f"{self}: handle {handle!r} was added before; use acquire to add references")
        _check_name("handle", handle)
        return self._owing(handle, references)

    def acquire(self, handle: str, references: int = 1) -> AcknowledgmentSet:
        """Return a copy in which an existing handle owes more references.

        :raises AcknowledgmentError: if the set has no such handle.
        """
        self._require_handle(handle)
        return self._owing(handle, references)

    def release(
        self, handle: str, *, positive: bool, release_id: str, reason: str | None = None, at: datetime
    ) -> tuple[AcknowledgmentSet, ReleaseEffect]:
        """Return a copy with one reference released, which may end the set, and the effect of the release.

        A positive release is progress: the set may then be pending for its whole timeout again.

        :param handle: the handle that owes the reference.
        :param positive: whether the data arrived.
        :param release_id: the identity of the release. Repeating it changes nothing.
        :param reason: why it is negative.
        :param at: the current time (aware).
        :raises AcknowledgmentError: if the set has no such handle, the handle owes nothing more, the release id was
            used for another release, or a negative release has no reason.
        """
        self._require_handle(handle)
        _check_name("release id", release_id)
        if not positive and not (reason and reason.strip()):
            raise AcknowledgmentError(f"{self}: a negative release of {handle!r} needs a reason; give one")
        known = self.releases.get(release_id)
        if known == Release(handle=handle, positive=positive):
            return self, ReleaseEffect.DUPLICATE
        if not self.is_pending:
            return self, ReleaseEffect.LATE
        if known is not None:
            raise AcknowledgmentError(
                f"{self}: release id {release_id!r} was used before, for a "
                f"{'positive' if known.positive else 'negative'} release of {known.handle!r}; give another one"
            )
        if not self.references[handle]:
            raise AcknowledgmentError(f"{self}: handle {handle!r} owes nothing more; release every reference once only")
        changed = replace(
            self,
            references={**self.references, handle: self.references[handle] - 1},
            releases={**self.releases, release_id: Release(handle=handle, positive=positive)},
        )
        if not positive:
            return changed.ended(AcknowledgmentState.REJECTED, at, f"{handle}: {reason}"), ReleaseEffect.RELEASED
        return changed.extended(at + self.timeout)._settled(at), ReleaseEffect.RELEASED

    def outside_handle(self, handle: str | None = None) -> str:
        """Return the handle to release from outside the job: this one or, if None, the only one there is.

        :raises AcknowledgmentError: if the set has no such handle, if the job itself releases it, or if none is given
            and the set has several.
        """
        outside = [name for name in self.references if name not in self.sinks]
        if handle is None and len(outside) == 1:
            return outside[0]
        if handle is None or handle in self.sinks:
            wrong = "give a handle" if handle is None else f"handle {handle!r} is released by the delivering job"
            known = ", ".join(map(repr, outside)) or "none"
            raise AcknowledgmentError(f"{self}: {wrong}; the handles released from outside are {known}")
        self._require_handle(handle)
        return handle

    def completed(self, at: datetime) -> AcknowledgmentSet:
        """Return a copy to which no more handles are added, ended if nothing is owed. Safe to repeat."""
        return self if self.complete or not self.is_pending else replace(self, complete=True)._settled(at)

    def extended(self, expires_at: datetime) -> AcknowledgmentSet:
        """Return a copy that is pending until this instant, or longer if it already was."""
        return replace(self, expires_at=max(expires_at, self.expires_at))

    def ended(self, state: AcknowledgmentState, at: datetime, reason: str | None = None) -> AcknowledgmentSet:
        """Return a copy that has ended."""
        return replace(self, state=state, ended_at=at, reason=reason and reason[:MAX_REASON_CHARACTERS])

    def _owing(self, handle: str, references: int) -> AcknowledgmentSet:
        if references < 1:
            raise AcknowledgmentError(f"{self}: handle {handle!r} must owe at least one reference; got {references!r}")
        if self.added + references > MAX_REFERENCES:
            raise AcknowledgmentError(f"{self}: a set has at most {MAX_REFERENCES} references; use smaller batches")
        return replace(
            self,
            references={**self.references, handle: self.references.get(handle, 0) + references},
            added=self.added + references,
        )

    def _settled(self, at: datetime) -> AcknowledgmentSet:
        return self.ended(AcknowledgmentState.ACKNOWLEDGED, at) if self.complete and not self.owed else self

    def _require_handle(self, handle: str) -> None:
        if handle not in self.references:
            known = ", ".join(map(repr, self.references)) or "none"
            raise AcknowledgmentError(f"{self} has no handle {handle!r}; its handles are {known}")

    def __str__(self) -> str:
        return f"acknowledgment set {self.set_id!r}"


def run_name(dag_id: str, run_id: str) -> str:
    """Return the `run` of the sets of an Airflow run."""
    return f"{dag_id}/{run_id}"


def item_of(acknowledgment_set: AcknowledgmentSet, source_identifier: str) -> Partition:
    """Return a set as an item for the store.

    Pending sets are UNASSIGNED in the order of their expiry; ended sets are COMPLETED in the order of their end.

    :param source_identifier: the item family of the source's sets.
    """
    s = acknowledgment_set
    at = s.ended_at or s.expires_at
    return Partition(
        source_identifier=source_identifier,
        partition_key=s.set_id,
        status=PartitionStatus.UNASSIGNED if s.is_pending else PartitionStatus.COMPLETED,
        priority=at,
        version=s.version or first_version(s.created_at),
    ).with_progress({name: value for name, value in _json_of_set(s).items() if name not in OF_ITEM})


def set_of_item(item: Partition) -> AcknowledgmentSet:
    """Return the set that an item holds.

    :raises ProgressError: if it holds no set that this version can read.
    """
    try:
        stored = {**item.progress, "set_id": item.partition_key, "version": item.version}
        stored["timeout"] = timedelta(seconds=stored["timeout_seconds"])
        names = (each.name for each in fields(AcknowledgmentSet))
        return AcknowledgmentSet(**{name: READERS.get(name, _as_it_is)(stored[name]) for name in names})
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ProgressError(
            f"acknowledgment set {item.partition_key!r}: the stored item cannot be read: {type(error).__name__}: "
            f"{error}; correct the item in the store, or delete it"
        ) from None


def record_of(acknowledgment_set: AcknowledgmentSet) -> dict[str, Any]:
    """Return a set as a JSON object for commands, HTTP and check functions; instants are text."""
    shown = {name: value for name, value in _json_of_set(acknowledgment_set).items() if name not in INTERNAL}
    return {**shown, "progress": acknowledgment_set.progress}


def _json_of_set(acknowledgment_set: AcknowledgmentSet) -> dict[str, Any]:
    mapping = json_of(acknowledgment_set)
    return {"timeout_seconds": mapping.pop("timeout"), **mapping}


OF_ITEM = ("set_id", "version")
"""The fields that the item itself stores."""
INTERNAL = ("added", "complete", "releases")
"""The fields that users do not see."""


def _as_it_is(stored: Any) -> Any:
    return stored


READERS: Mapping[str, Callable[[Any], Any]] = {
    "state": AcknowledgmentState,
    "created_at": parse_instant,
    "expires_at": parse_instant,
    "references": lambda stored: {str(handle): int(count) for handle, count in stored.items()},
    "releases": lambda stored: {name: Release(**release) for name, release in stored.items()},
    "sinks": tuple,
    "ended_at": lambda stored: None if stored is None else parse_instant(stored),
}
"""How the stored fields are read that JSON spells otherwise."""


def _check_name(what: str, name: str) -> None:
    if not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        raise AcknowledgmentError(
            f"{what} {name[: MAX_NAME_CHARACTERS + 1]!r} is not usable: give 1 to {MAX_NAME_CHARACTERS} printable "
            "characters"
        )
