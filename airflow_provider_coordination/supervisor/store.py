"""What a supervisor keeps in the store of its source: versions of the spec, the supervision, the lag.

One item, the supervision, decides between all who write: it is leased by the DAG that supervises, and every change of
it is conditional on the version that was read. A submit, a termination and every other verb change it too, in one
transaction with what they write beside it. So a turn that decided before a verb came does nothing, and two submits at
once become two versions in order.
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
    SupervisedElsewhereError,
    SupervisionError,
)
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    format_instant,
    new_partition,
    read_instant,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.storable_text import storable
from airflow_provider_coordination.coordination.suspension import FAMILY
from airflow_provider_coordination.supervisor.lag import LagSeries
from airflow_provider_coordination.supervisor.states import DetailedState
from airflow_provider_coordination.supervisor.supervision import (
    KEY,
    LAG_KEY,
    SPEC_KEY,
    Claimant,
    SpecVersion,
    Supervision,
)

log = logging.getLogger(__name__)

LEASE = timedelta(minutes=1)
"""How long a supervisor counts as supervising without a sign of life."""
VERSIONS_SHOWN = 50

Change = Callable[[Supervision], Supervision]


@dataclass(frozen=True, kw_only=True)
class StoredSupervision:
    """The supervision of a source as the store held it when it was read.

    :param supervision: what the supervisor remembers.
    :param claimant: who leases it; None if nobody does, or only others than a supervisor's task did.
    :param leased_until: until when (aware); None if nobody leases it. Others wait a safety margin longer.
    :param item: the item that it was read from.
    """

    supervision: Supervision
    claimant: Claimant | None
    leased_until: datetime | None
    item: Partition

    def is_supervised(self, now: datetime) -> bool:
        """Return whether somebody supervises the source at this instant (aware)."""
        return self.leased_until is not None and now < self.leased_until


class SupervisionStore:
    """What is stored of the supervisor of one source. Safe to use from several threads.

    Every method may raise `StoreUnavailableError`: what it wrote is not known then.

    :param view: of the source, initialized.
    """

    def __init__(self, view: SourceView) -> None:
        self._store = view.store
        self._clock = view.clock
        self._margin = view.safety_margin
        self._family = view.family(FAMILY)
        self.source = view.source

    # Specs

    def spec(self, version: int) -> SpecVersion | None:
        """Return a version of the spec; None if there is no such version."""
        item = self._store.get(self._family, SPEC_KEY.format(version=version))
        return None if item is None else SpecVersion.from_mapping(item.progress)

    def current(self) -> SpecVersion | None:
        """Return the latest version, a termination included; None if nothing was ever submitted."""
        stored = self.get()
        return None if stored is None else self.spec(stored.supervision.spec_version)

    def history(self, limit: int = VERSIONS_SHOWN) -> list[SpecVersion]:
        """Return the latest versions, terminations included, the latest first.

        :param limit: at most this number.
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
    ) -> SpecVersion:
        """Store a new version of the spec, which rules from then on; after a termination supervision begins anew.

        The spec that rules already makes no new version, unless it comes from another file than the last one.

        :param spec: the spec as it was written, a JSON object that was checked.
        :param by: who submits it.
        :param reason: why.
        :param file_digest: the digest of the file that it comes from; None if it comes from none.
        :param replacing: the version that it was made from; None for whichever rules.
        :returns: the version that rules now.
        :raises SupervisionError: if another version than `replacing` rules by now; nothing was stored.
        :raises ConfigurationError: if the spec is too large to be stored.
        """

        def submitted(memory: Supervision, now: datetime) -> tuple[Supervision, SpecVersion | None]:
            current = self.spec(memory.spec_version)
            if replacing is not None and memory.spec_version != replacing:
                raise SupervisionError(
                    f"source {self.source!r}: version {replacing} of the spec, which this one was made from, is "
                    f"replaced{_by(current)}: version {memory.spec_version} rules; read that one and submit again"
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
                memory, spec_version=version.version, file_digest=file_digest or memory.file_digest
            )  # fmt: skip
            return (_begun_anew(begun) if memory.terminated_at is not None else begun), version

        return self._with_version(submitted)

    def terminate(self, *, by: str = "", reason: str = "") -> SpecVersion:
        """Terminate the supervisor: no job is started any more, and those that run deliver what they have read.

        :returns: the version that says so.
        :raises SupervisionError: if there is no supervisor, or it is terminated already.
        """

        def terminated(memory: Supervision, now: datetime) -> tuple[Supervision, SpecVersion]:
            if not memory.spec_version:
                raise SupervisionError(
                    f"source {self.source!r} has no supervisor that could be terminated; submit a spec to have one"
                )
            if memory.terminated_at is not None:
                raise SupervisionError(
                    f"the supervisor of source {self.source!r} is terminated already, since "
                    f"{format_instant(memory.terminated_at)}; submit a spec to begin anew"
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
                terminated_because=version.reason or "somebody terminated it",
                health=memory.health.proposing(state),
            ), version  # fmt: skip

        return self._with_version(terminated)

    # The supervision

    def get(self) -> StoredSupervision | None:
        """Return the supervision as it is stored now; None if nobody ever supervised or submitted anything."""
        item = self._store.get(self._family, KEY)
        return None if item is None else _stored(item)

    def acquire(self, claimant: Claimant) -> StoredSupervision:
        """Lease the supervision, or renew the lease that this claimant has, if it is half over.

        An earlier run, or try, of the same DAG loses its lease at once; anybody else keeps it for as long as it runs.

        :raises SupervisedElsewhereError: if another DAG, or a later run of the same, supervises the source.
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
            with suppress(PartitionUpdateError):  # somebody else wrote in between
                return self._write(stored.item, memory, claimant, now + LEASE)

    def save(self, stored: StoredSupervision, supervision: Supervision) -> StoredSupervision:
        """Write what the supervisor remembers, and renew its lease.

        :param stored: as it was read, leased by whoever writes.
        :returns: as it is stored now.
        :raises PartitionUpdateError: if somebody else wrote since it was read; nothing was written.
        """
        if stored.claimant is None:
            raise PartitionUpdateError(f"source {self.source!r}: nobody leases its supervision; acquire it first")
        return self._write(stored.item, supervision, stored.claimant, self._clock.now() + LEASE)

    def release(self, claimant: Claimant) -> None:
        """Give the lease back, if this claimant has it: its run ends."""
        while (stored := self.get()) is not None and stored.item.owner == claimant.owner:
            with suppress(PartitionUpdateError):  # somebody else wrote in between
                self._store.transact(update=[stored.item.given_up(self._clock.now())])
                return

    # Verbs

    def request_handover(self) -> Supervision:
        """Have every job that runs hand over to a new one.

        :raises SupervisionError: if there is no supervisor, or it is terminated.
        """
        return self._change(lambda memory: replace(memory, handover_requested_at=self._clock.now()))

    def note_reset(self) -> Supervision:
        """Note that positions were reset: scaling judges no lag of before.

        :raises SupervisionError: if there is no supervisor, or it is terminated.
        """
        return self._change(lambda memory: replace(memory, lag_since=self._clock.now()))

    # The lag

    def lag(self) -> LagSeries:
        """Return the lag as it is stored; an empty series if none was ever noted, or it is unreadable."""
        item = self._store.get(self._family, LAG_KEY)
        return LagSeries() if item is None else LagSeries.from_mapping(item.progress)

    def save_lag(self, series: LagSeries) -> None:
        """Write the lag; of two who do so at once, one is left out."""
        item = self._store.get(self._family, LAG_KEY)
        if item is None:
            made = new_partition(self._family, LAG_KEY, self._clock.now()).with_progress(series.to_mapping())
            self._store.create([made])
        else:
            with suppress(PartitionUpdateError):
                self._store.transact(update=[item.with_progress(series.to_mapping())])

    def _with_version(
        self, change: Callable[[Supervision, datetime], tuple[Supervision, SpecVersion | None]]
    ) -> SpecVersion:
        """Change the supervision and create a version of the spec, both or nothing; return the version that rules."""
        while True:
            now = self._clock.now()
            stored = self.get()
            memory, version = change(Supervision() if stored is None else stored.supervision, now)
            if version is None:
                if (current := self.spec(memory.spec_version)) is not None:
                    return current
                continue
            new = [self._spec_item(version, now)]
            if stored is None:
                new.append(new_partition(self._family, KEY, now).with_progress(memory.to_mapping()))
            update = [] if stored is None else [_with_memory(stored.item, memory)]
            with suppress(PartitionUpdateError):  # somebody else wrote in between: once more, upon that
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

    def _change(self, change: Change) -> Supervision:
        """Change the supervision, whoever leases it."""
        while True:
            stored = self.get()
            if stored is None or not stored.supervision.spec_version:
                raise SupervisionError(f"source {self.source!r} has no supervisor; submit a spec to have one")
            if stored.supervision.terminated_at is not None:
                raise SupervisionError(
                    f"the supervisor of source {self.source!r} is terminated; submit a spec to begin anew"
                )
            memory = change(stored.supervision)
            with suppress(PartitionUpdateError):  # somebody else wrote in between
                self._store.transact(update=[_with_memory(stored.item, memory)])
                return memory

    def _write(
        self, item: Partition, memory: Supervision, claimant: Claimant, leased_until: datetime
    ) -> StoredSupervision:
        said = {**memory.to_mapping(), "claim": _written(claimant)}
        written = item.with_progress(said).acquired(claimant.owner, leased_until, item.held_since)
        return _stored(self._store.transact(update=[written])[0])

    def _check_free(self, stored: StoredSupervision, claimant: Claimant, now: datetime) -> None:
        until, holder = stored.leased_until, stored.claimant
        if until is None or holder is None or now >= until + self._margin or claimant.succeeds(holder):
            return
        if holder.dag_id != claimant.dag_id:
            raise SupervisedElsewhereError(
                f"source {self.source!r} is supervised by DAG {holder.dag_id!r}, until {format_instant(until)} at "
                f"least; DAG {claimant.dag_id!r} cannot supervise it too: pause or delete one of them"
            )
        raise SupervisedElsewhereError(
            f"source {self.source!r} is supervised by a later run of DAG {holder.dag_id!r}, that of "
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
    """Return the item with another memory; who leases it stays."""
    claim = {name: value for name, value in item.progress.items() if name == "claim"}
    return item.with_progress({**memory.to_mapping(), **claim})


def _written(claimant: Claimant) -> dict[str, Any]:
    return {
        "dag_id": claimant.dag_id,
        "run_at": format_instant(claimant.run_at),
        "try_number": claimant.try_number,
    }


def _claimant_of(item: Partition) -> Claimant | None:
    claim = item.progress.get("claim")
    if item.owner is None or not isinstance(claim, Mapping):
        return None
    run_at, try_number = read_instant(claim.get("run_at")), claim.get("try_number")
    if run_at is None or not isinstance(try_number, int):
        return None
    return Claimant(owner=item.owner, dag_id=str(claim.get("dag_id") or ""), run_at=run_at, try_number=try_number)


def _begun_anew(memory: Supervision) -> Supervision:
    """Return the memory of a supervisor that was terminated and begins anew; jobs that still end are kept."""
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
