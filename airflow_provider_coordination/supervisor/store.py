"""The supervisor's items in the store of its source: the supervision, versions of the spec, and the lag.

One item, the supervision, serializes all writers: the supervising DAG leases it, and every change is conditional on the
version that was read. Verbs such as submit and terminate change it in the same transaction as their other writes. So a
turn that decided before a verb does nothing, and two concurrent submits become two consecutive versions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionUpdateError,
    ProgressError,
    SourceError,
    SupervisedElsewhereError,
    SupervisionError,
)
from airflow_provider_coordination.coordination.job_reports import ErrorEvent
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    format_instant,
    new_partition,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.suspension import FAMILY
from airflow_provider_coordination.coordination.suspension import KEY as SUSPENSION_KEY
from airflow_provider_coordination.coordination.texts import storable
from airflow_provider_coordination.supervisor.observation import LagSeries
from airflow_provider_coordination.supervisor.supervision import (
    KEY,
    LAG_KEY,
    SPEC_KEY,
    Claimant,
    DetailedState,
    SpecVersion,
    Supervision,
)

log = logging.getLogger(__name__)

LEASE = timedelta(minutes=1)
"""How long a supervisor counts as running without renewing its lease."""
MAX_VERSIONS = 50

Change = Callable[[Supervision], Supervision]


@dataclass(frozen=True, kw_only=True)
class StoredSupervision:
    """The supervision of a source as read from the store.

    :param supervision: the state of the supervisor.
    :param claimant: the process that leases it; None if none does, or the lease is not of a supervisor's task.
    :param leased_until: the end of the lease (aware); None if there is none. Others wait a safety margin longer.
    :param item: the item that it was read from.
    """

    supervision: Supervision
    claimant: Claimant | None
    leased_until: datetime | None
    item: Partition

    def is_supervised(self, now: datetime) -> bool:
        """Return whether the source is supervised at an instant (aware)."""
        return self.leased_until is not None and now < self.leased_until


class SupervisionStore:
    """The stored items of one source's supervisor. Thread-safe.

    Every method may raise `StoreUnavailableError`; then it is unknown whether it wrote.

    :param view: an initialized view of the source.
    """

    def __init__(self, view: SourceView) -> None:
        self._store = view.store
        self._clock = view.clock
        self._margin = view.safety_margin
        self._suspensions = view.suspensions
        self._family = view.family(FAMILY)
        self.source = view.source

    # Specs

    def spec(self, version: int) -> SpecVersion | None:
        """Return a version of the spec; None if it does not exist."""
        item = self._store.get(self._family, SPEC_KEY.format(version=version))
        return None if item is None else SpecVersion.from_mapping(item.progress)

    def current(self) -> SpecVersion | None:
        """Return the latest version, which may be a termination; None if no spec was ever submitted."""
        stored = self.get()
        return None if stored is None else self.spec(stored.supervision.spec_version)

    def history(self, limit: int = MAX_VERSIONS) -> list[SpecVersion]:
        """Return the latest versions including terminations, the latest first.

        :param limit: the maximum number of versions.
        """
        stored = self.get()
        latest = 0 if stored is None else stored.supervision.spec_version
        found = (self.spec(version) for version in range(latest, max(0, latest - limit), -1))
        return [version for version in found if version is not None]

    def submit(
        self,
        spec: Mapping[str, Any],
        *,
        by: str = "",
        reason: str = "",
        file_digest: str | None = None,
        replacing: int | None = None,
        claimant: Claimant | None = None,
    ) -> SpecVersion:
        """Store a new current version of the spec. After a termination, supervision starts again.

        A spec that equals the current one makes no new version, unless it comes from another file.

        :param spec: the spec as it was written, a JSON object that was checked.
        :param by: the user who submits it.
        :param reason: the user's reason.
        :param file_digest: the digest of its file; None if it does not come from a file.
        :param replacing: the version that it was made from; None to replace any version.
        :param claimant: the supervising process that submits its own file; None for a submit by a user, who may submit
            whichever DAG supervises the source.
        :returns: the current version.
        :raises SupervisedElsewhereError: if another DAG than the claimant's, or a later run of it, supervises the
            source; nothing was stored.
        :raises SupervisionError: if another version than `replacing` is current; nothing was stored.
        :raises ConfigurationError: if the spec is too large to be stored.
        """

        def submitted(memory: Supervision, now: datetime) -> tuple[Supervision, SpecVersion | None]:
            current = self.spec(memory.spec_version)
            if replacing is not None and memory.spec_version != replacing:
                raise SupervisionError(
                    f"source {self.source!r}: version {replacing} of the spec, which this one was made from, was "
                    f"replaced{_by(current)}: version {memory.spec_version} is current; read it and submit again"
                )
            is_same = current is not None and current.spec == spec and file_digest in (None, memory.file_digest)
            if is_same:
                return memory, None
            version = SpecVersion(
                version=memory.spec_version + 1,
                spec=spec,
                submitted_at=now,
                by=storable(by),
                reason=storable(reason),
                file_digest=file_digest,
            )
            begun = replace(
                memory, spec_version=version.version, file_digest=file_digest or memory.file_digest, lag_since=now
            )
            return (_restarted(begun) if memory.terminated_at is not None else begun), version

        return self._with_version(submitted, claimant)

    def terminate(self, *, by: str = "", reason: str = "") -> SpecVersion:
        """Terminate the supervisor: no more jobs start, and running jobs deliver what they have read.

        :returns: the version that records the termination.
        :raises SupervisionError: if there is no supervisor, or it is terminated already.
        """

        def terminated(memory: Supervision, now: datetime) -> tuple[Supervision, SpecVersion]:
            if not memory.spec_version:
                raise SupervisionError(
                    f"source {self.source!r} has no supervisor to terminate; submit a spec to create one"
                )
            if memory.terminated_at is not None:
                raise SupervisionError(
                    f"the supervisor of source {self.source!r} was already terminated at "
                    f"{format_instant(memory.terminated_at)}; submit a spec to start it again"
                )
            version = SpecVersion(
                version=memory.spec_version + 1,
                spec=None,
                submitted_at=now,
                by=storable(by),
                reason=storable(reason),
            )
            state = DetailedState.STOPPING if memory.jobs else DetailedState.TERMINATED
            return replace(
                memory,
                spec_version=version.version,
                terminated_at=now,
                termination_reason=version.reason or "terminated without a reason",
                health=memory.health.with_state(state),
            ), version  # fmt: skip

        return self._with_version(terminated)

    # The supervision

    def get(self) -> StoredSupervision | None:
        """Return the stored supervision; None if the source was never supervised and no spec was submitted.

        The suspension of the source is read in the same request, for `Suspensions.recent`.
        """
        read_at = self._clock.monotonic()
        found = self._store.get_many(self._family, (KEY, SUSPENSION_KEY))
        self._suspensions.note(found.get(SUSPENSION_KEY), read_at)
        item = found.get(KEY)
        return None if item is None else _stored(item)

    def acquire(self, claimant: Claimant) -> StoredSupervision:
        """Lease the supervision. A lease that this claimant already has is renewed once half of it has passed.

        An earlier run or try of the same DAG loses its lease at once. Any other lease must expire first.

        :raises SupervisedElsewhereError: if another DAG, or a later run of the same DAG, supervises the source.
        """
        while True:
            now = self._clock.now()
            stored = self.get()
            if stored is None:
                self._store.create([new_partition(self._family, KEY, now)])
                continue
            holder = stored.claimant
            if holder == claimant and stored.is_supervised(now + LEASE / 2):
                return stored
            self._check_free(stored, claimant, now)
            memory = replace(stored.supervision, dag_id=claimant.dag_id)
            with suppress(PartitionUpdateError):  # another process wrote in between
                return self._write(stored.item, memory, claimant, now + LEASE)

    def save(self, stored: StoredSupervision, supervision: Supervision) -> StoredSupervision:
        """Write the state of the supervisor, and renew its lease.

        :param stored: the supervision as it was read, leased by the caller.
        :returns: the supervision as it is stored now.
        :raises PartitionUpdateError: if another process wrote since it was read; nothing was written.
        """
        if stored.claimant is None:
            raise PartitionUpdateError(f"source {self.source!r}: its supervision is not leased; acquire it first")
        return self._write(stored.item, supervision, stored.claimant, self._clock.now() + LEASE)

    def record_error(self, claimant: Claimant, error: Exception) -> None:
        """Record an error for the status, unless an equal one is there.

        :raises SupervisedElsewhereError: if another DAG, or a later run of the same DAG, supervises the source.
        """
        stored = self.acquire(claimant)
        memory, message = stored.supervision, storable(str(error))
        if any(known.message == message for known in memory.health.errors):
            return
        event = ErrorEvent(
            at=self._clock.now(),
            error_class=type(error).__name__,
            message=message,
            is_stream_error=isinstance(error, SourceError),
        )
        with suppress(PartitionUpdateError):  # the next turn records it
            self.save(stored, replace(memory, health=memory.health.with_error(event)))

    def release(self, claimant: Claimant) -> None:
        """Release the lease if this claimant has it, because its run ends."""
        while (stored := self.get()) is not None and stored.item.owner == claimant.owner:
            with suppress(PartitionUpdateError):  # another process wrote in between
                self._store.transact(update=[stored.item.given_up(self._clock.now())])
                return

    # Verbs

    def change(self, change: Change) -> Supervision:
        """Change the supervision, regardless of its lease; return the new one.

        :raises SupervisionError: if there is no supervisor, or it is terminated.
        """
        while True:
            stored = self.get()
            if stored is None or not stored.supervision.spec_version:
                raise SupervisionError(f"source {self.source!r} has no supervisor; submit a spec to create one")
            if stored.supervision.terminated_at is not None:
                raise SupervisionError(
                    f"the supervisor of source {self.source!r} is terminated; submit a spec to start it again"
                )
            memory = change(stored.supervision)
            with suppress(PartitionUpdateError):  # another process wrote in between
                self._store.transact(update=[_with_memory(stored.item, memory)])
                return memory

    def request_handover(self) -> Supervision:
        """Request every running job to hand over to a new one.

        :raises SupervisionError: if there is no supervisor, or it is terminated.
        """
        now = self._clock.now()
        return self.change(lambda memory: replace(memory, handover_requested_at=now, lag_since=now))

    def record_reset(self) -> Supervision:
        """Record that positions were reset, so that scaling ignores the lag before.

        :raises SupervisionError: if there is no supervisor, or it is terminated.
        """
        return self.change(lambda memory: replace(memory, lag_since=self._clock.now()))

    # The lag

    def lag(self) -> LagSeries:
        """Return the stored lag; an empty series if there is none or it is unreadable."""
        item = self._store.get(self._family, LAG_KEY)
        return LagSeries() if item is None else LagSeries.from_mapping(item.progress)

    def save_lag(self, series: LagSeries) -> None:
        """Write the lag. Of two concurrent writes, one is discarded."""
        item = self._store.get(self._family, LAG_KEY)
        if item is None:
            made = new_partition(self._family, LAG_KEY, self._clock.now()).with_progress(series.to_mapping())
            self._store.create([made])
        else:
            with suppress(PartitionUpdateError):
                self._store.transact(update=[item.with_progress(series.to_mapping())])

    def _with_version(
        self,
        change: Callable[[Supervision, datetime], tuple[Supervision, SpecVersion | None]],
        claimant: Claimant | None = None,
    ) -> SpecVersion:
        """Change the supervision and create a version of the spec in one transaction; return the current version."""
        while True:
            now = self._clock.now()
            stored = self.get()
            if stored is not None and claimant is not None:
                self._check_free(stored, claimant, now)
            memory, version = change(Supervision() if stored is None else stored.supervision, now)
            if version is None:
                if (current := self.spec(memory.spec_version)) is not None:
                    return current
                continue
            new = [self._spec_item(version, now)]
            if stored is None:
                new.append(new_partition(self._family, KEY, now).with_progress(memory.to_mapping()))
            update = [] if stored is None else [_with_memory(stored.item, memory)]
            with suppress(PartitionUpdateError):  # another process wrote in between: try again
                self._store.transact(update=update, new=new)
                log.info(
                    "spec %s: source=%s version=%d by=%s reason=%r",
                    "terminated" if version.is_termination else "submitted",
                    self.source, version.version, version.by, version.reason,
                )  # fmt: skip
                return version

    def _spec_item(self, version: SpecVersion, now: datetime) -> Partition:
        item = new_partition(self._family, SPEC_KEY.format(version=version.version), now)
        try:
            return item.with_progress(version.to_mapping())
        except ProgressError as error:
            raise ConfigurationError(f"source {self.source!r}: the spec cannot be stored: {error}") from None

    def _write(
        self, item: Partition, memory: Supervision, claimant: Claimant, leased_until: datetime
    ) -> StoredSupervision:
        progress = {**memory.to_mapping(), "claim": claimant.to_mapping()}
        written = item.with_progress(progress).acquired(claimant.owner, leased_until, item.held_since)
        return _stored(self._store.transact(update=[written])[0])

    def _check_free(self, stored: StoredSupervision, claimant: Claimant, now: datetime) -> None:
        until, holder = stored.leased_until, stored.claimant
        if until is None or holder is None or now >= until + self._margin or claimant.succeeds(holder):
            return
        if holder.dag_id != claimant.dag_id:
            raise SupervisedElsewhereError(
                f"source {self.source!r} is supervised by DAG {holder.dag_id!r} until {format_instant(until)} or "
                f"later; DAG {claimant.dag_id!r} cannot supervise it too: pause or delete one of them"
            )
        raise SupervisedElsewhereError(
            f"source {self.source!r} is supervised by a later run of DAG {holder.dag_id!r}, "
            f"{format_instant(holder.run_at)}, try {holder.try_number}; the run of {format_instant(claimant.run_at)}, "
            f"try {claimant.try_number}, ends"
        )


def _stored(item: Partition) -> StoredSupervision:
    is_leased = item.status is PartitionStatus.ASSIGNED
    return StoredSupervision(
        supervision=Supervision.from_mapping(item.progress),
        claimant=_claimant_of(item) if is_leased else None,
        leased_until=item.ownership_timeout if is_leased else None,
        item=item,
    )


def _with_memory(item: Partition, memory: Supervision) -> Partition:
    """Return the item with a new state; its lease is kept."""
    claim = {name: value for name, value in item.progress.items() if name == "claim"}
    return item.with_progress({**memory.to_mapping(), **claim})


def _claimant_of(item: Partition) -> Claimant | None:
    claim = item.progress.get("claim")
    if item.owner is None or not isinstance(claim, Mapping):
        return None
    return Claimant.from_mapping({**claim, "owner": item.owner})


def _restarted(memory: Supervision) -> Supervision:
    """Return the state of a terminated supervisor that starts again; jobs that are still ending are kept."""
    return Supervision(
        dag_id=memory.dag_id,
        spec_version=memory.spec_version,
        file_digest=memory.file_digest,
        health=memory.health.restarted(),
        jobs=memory.jobs,
        task_count_changes=memory.task_count_changes,
        totals=memory.totals,
    )


def _by(version: SpecVersion | None) -> str:
    return f" by {version.by}" if version is not None and version.by else ""
