"""The verbs of a supervisor: the same operations for operators, commands and HTTP.

A verb makes one or a few writes to the store, and does not need a running supervisor, which sees the change at its next
poll. A verb that does not fit the state of the supervisor is refused before anything is written, with the remedy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    CoordinationError,
    PartitionUpdateError,
    ProgressError,
    SourceError,
    SupervisionError,
    SupervisorNotFoundError,
)
from airflow_provider_coordination.coordination.partition import Partition, format_instant
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.suspension import Suspension
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.reset import Resets, forget
from airflow_provider_coordination.sources.reset_targets import (
    EARLIEST,
    ResetAction,
    ResetPlan,
    ResetStep,
    parse_target,
)
from airflow_provider_coordination.sources.source_kind import Access, SourceKind
from airflow_provider_coordination.supervisor.reading import no_supervisor, supervised_sources
from airflow_provider_coordination.supervisor.spec import IngestionSpec, SpecChange, change_between
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.submission_checks import check_group, check_reads, parts_of, warnings_of
from airflow_provider_coordination.supervisor.supervision import (
    Claimant,
    SpecVersion,
    Supervision,
    readable_spec,
    restore_hidden,
)

log = logging.getLogger(__name__)

CONSEQUENCES = {
    SpecChange.NONE: "nothing changes",
    SpecChange.COSMETIC: "only descriptions change; jobs continue",
    SpecChange.SUPERVISION: "the supervisor applies it from its next poll; jobs continue",
    SpecChange.JOBS: "jobs hand over to jobs with the new spec",
}
"""The consequence of a change of the spec."""
STARTS = "jobs start once a DAG of supervised_ingestion supervises the source"
"""The consequence of the first spec."""

NOT_CHECKED = "the source did not respond, so the spec was stored without a check against it"
"""The warning for a spec that could not be checked against its source."""
SourceCheck = Callable[[IngestionSpec], Sequence[str]]
"""Checks a spec against its connections and its source, and returns warnings.

It raises `ConfigurationError` if the spec does not match them, and `SourceError` if the source is unavailable.
"""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """The result of submitting a spec.

    :param version: the version that is current now.
    :param change: what it changes.
    :param is_first: whether there was no current spec before.
    :param check_failure: why the source was unavailable for the check of the spec; empty if it was available.
    :param warnings: what may be a mistake in the spec, each with its remedy.
    """

    version: SpecVersion
    change: SpecChange
    is_first: bool = False
    check_failure: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def consequence(self) -> str:
        """The consequence of the change, in a sentence."""
        return STARTS if self.is_first else CONSEQUENCES[self.change]


@dataclass(frozen=True, kw_only=True)
class ResetOutcome:
    """The result of resetting one partition.

    :param partition_key: its key.
    :param action: the action, done or failed: `reset`, `created` or `removed`.
    :param error: why the action failed; empty if it succeeded.
    """

    partition_key: str
    action: str
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class ResetReport:
    """The result of a reset.

    :param outcomes: the result of each partition, in the order of the resets.
    :param unchanged: the keys of partitions that were not reset, with the reasons.
    :param warnings: warnings for the user.
    """

    outcomes: tuple[ResetOutcome, ...]
    unchanged: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    @property
    def failed(self) -> list[ResetOutcome]:
        """The partitions that could not be reset."""
        return [outcome for outcome in self.outcomes if outcome.error]

    def summary(self, source: str) -> str:
        """Return a sentence about the partitions that could not be reset.

        :param source: the source.
        """
        first = f": {self.failed[0].error}" if self.failed else ""
        return (
            f"source {source!r}: {len(self.failed)} of {len(self.outcomes)} partitions could not be reset{first}; "
            "reset again"
        )


class SupervisorVerbs:
    """The verbs for the supervisor of one source, in the name of a user.

    Every method may raise `StoreUnavailableError`; then the result is unknown.

    :param coordinator: an initialized coordinator of the source.
    :param by: the user; kept with the spec, the suspension and the history of partitions.
    :param reason: the user's reason; kept there too.
    """

    def __init__(self, coordinator: SourceCoordinator, *, by: str = "", reason: str = "") -> None:
        self._coordinator = coordinator
        self._view = coordinator.view
        self._supervision_store = SupervisionStore(coordinator.view)
        self._by = by
        self._reason = reason

    def submit(
        self,
        spec: Mapping[str, Any],
        *,
        file_digest: str | None = None,
        replacing: int | None = None,
        check: SourceCheck | None = None,
        claimant: Claimant | None = None,
    ) -> Submission:
        """Store a spec as the new current version. A terminated supervisor starts again.

        The spec is checked against the source only if it changes the work of jobs. An unavailable source does not
        prevent an update that reads the same data as before, because the update may be the fix.

        :param spec: the spec as it was written.
        :param file_digest: the digest of its file; None if it does not come from a file.
        :param replacing: the version that it was made from; the spec is refused if another one is current. None to
            replace any version.
        :param check: checks the spec against its source; None to skip the check.
        :param claimant: see `SupervisionStore.submit`.
        :raises ConfigurationError: if the spec is invalid, needs a newer package, is for another source, or does not
            match its source; nothing was stored.
        :raises SourceError: if the source is unavailable and would be read for the first time; nothing was stored.
        :raises SupervisedElsewhereError: if another process than `claimant` supervises the source; nothing was stored.
        :raises SupervisionError: if another version than `replacing` is current; nothing was stored.
        """
        IngestionSpec.read(spec)
        previous = self._supervision_store.current()
        spec = restore_hidden(spec, self._last_spec(previous))
        checked = IngestionSpec.read(spec)
        if checked.source != self._view.source:
            raise ConfigurationError(
                f"spec: field 'source' is {checked.source!r}, but the spec was submitted for {self._view.source!r}; "
                "submit it for its own source, or change 'source'"
            )
        is_terminated = previous is not None and previous.is_termination
        warnings = check_reads(self._view, self._last_spec(previous), checked, is_terminated=is_terminated)
        current = readable_spec(previous)
        if change_between(current, checked) is SpecChange.JOBS:
            others = self._other_specs()
            check_group(checked, others)
            warnings += warnings_of(checked, others)
        check_failure = "" if check is None else self._check_source(check, checked, current, warnings)
        version = self._supervision_store.submit(
            spec,
            by=self._by,
            reason=self._reason,
            file_digest=file_digest,
            replacing=replacing,
            claimant=claimant,
        )
        if previous is not None and version.version == previous.version:
            return Submission(version=version, change=SpecChange.NONE)
        before = self._supervision_store.spec(version.version - 1) if version.version > 1 else None
        return Submission(
            version=version,
            change=change_between(readable_spec(before), checked),
            is_first=before is None or before.is_termination,
            check_failure=check_failure,
            warnings=tuple(warnings),
        )

    def suspend(self) -> Suspension:
        """Suspend the source: jobs deliver what they have read and end, and no job starts.

        :raises SupervisionError: if it is suspended already, or its supervisor is terminated.
        """
        self._require_running("suspended")
        if (found := self._view.suspensions.get()) is not None:
            raise SupervisionError(f"the supervisor of source {self._view.source!r} is already {found}")
        return self._view.suspensions.suspend(self._by, self._reason)

    def resume(self, since: datetime | None = None) -> Suspension:
        """Resume a suspended source.

        :param since: the `since` of the suspension that the user saw; None for any suspension.
        :returns: the suspension that was removed.
        :raises SupervisionError: if the source is not suspended, or its supervisor is terminated.
        :raises PartitionUpdateError: if the source was suspended again after the user saw it.
        """
        self._require_running("resumed")
        previous = self._view.suspensions.resume(self._by, self._reason, since=since)
        if previous is None:
            raise SupervisionError(f"the supervisor of source {self._view.source!r} is not suspended")
        return previous

    def reset(
        self,
        to: datetime | str = EARLIEST,
        positions: Mapping[str, str] | None = None,
        *,
        connections: ConnectionResolver,
    ) -> ResetReport:
        """Read the source again from a position. Jobs continue, and read reset partitions from their new positions.

        :param to: the position for the whole source: `"earliest"`, `"latest"` or an instant.
        :param positions: positions of single partitions, by key or display name; only these partitions are reset.
            A position is a value that `to` accepts, or one of the partition.
        :param connections: resolves the connections that the spec names.
        :raises ConfigurationError: if the source has no such partition or position, or its spec does not give access to
            it; nothing was reset.
        :raises SupervisionError: if there is no supervisor, or it is terminated.
        :raises SourceError: if the source must be queried and is unavailable.
        """
        self._require_running("reset")
        current = self._supervision_store.current()
        if current is None or current.spec is None:
            raise SupervisorNotFoundError(no_supervisor(self._view.source))
        if not any(self._view.count_by_status().values()):
            raise SupervisionError(
                f"source {self._view.source!r} has no partitions to reset yet; it will be read from the initial "
                "position in its spec"
            )
        spec = IngestionSpec.read(current.spec)
        sets = AcknowledgmentSets(self._coordinator, SourceBatches())
        resets = Resets(sets, by=self._by, reason=self._reason)
        try:
            plans = self._plans(resets, spec, to, positions, connections)
        except ProgressError as error:  # a retry would not help
            raise ConfigurationError(str(error)) from None
        outcomes = tuple(
            _outcome(step, became) for plan in plans for step, became in resets.apply(plan, only_if_unchanged=False)
        )
        self._supervision_store.record_reset()
        return ResetReport(
            outcomes=outcomes,
            unchanged={key: why for plan in plans for key, why in plan.left.items()},
            warnings=tuple(warning for plan in plans for warning in plan.warnings),
        )

    def forget(self) -> ResetReport:
        """Forget everything that the source has read, so that its spec may read something else, or all of it again.

        Its partitions, the names that they claim and the state of its supplier are removed. The supervisor must be
        suspended or terminated, its jobs must have ended, and every batch must be acknowledged.

        :returns: the partitions as `removed`. If one could not be removed, the rest stays: forget again.
        :raises SupervisionError: if there is no supervisor, or it is in work; nothing was removed.
        :raises PartitionUpdateError: if the supplier ran in between; forget again.
        """
        memory = self._supervision()
        is_over = memory.terminated_at is not None and not memory.jobs
        done = forget(self._coordinator, by=self._by, reason=self._reason, is_idle=is_over)
        if memory.terminated_at is None:
            self._supervision_store.record_reset()
        return ResetReport(
            outcomes=tuple(
                ResetOutcome(
                    partition_key=partition.partition_key,
                    action=str(ResetAction.REMOVE),
                    error="" if error is None else str(error),
                )
                for partition, error in done
            ),
            unchanged={},
        )

    def reset_whole(self, to: datetime | str = EARLIEST, *, connections: ConnectionResolver) -> ResetReport:
        """Reset the whole source, as one of several; see `reset`.

        :raises PartitionUpdateError: if some partitions could not be reset; the others are.
        """
        report = self.reset(to, connections=connections)
        if report.failed:
            raise PartitionUpdateError(report.summary(self._view.source))
        return report

    def hand_over(self) -> Supervision:
        """Replace every job by a new one now, as at the end of `task_duration`.

        :raises SupervisionError: if there is no supervisor, or it is terminated.
        """
        self._require_running("requested to hand over")
        return self._supervision_store.request_handover()

    def change(self, participle: str, change: Callable[[Supervision], Supervision]) -> Supervision:
        """Change the state of a supervisor, for a verb that needs no more.

        :param participle: the verb, such as `suspended`, for the error if it is refused.
        :raises SupervisionError: if there is no supervisor, or it is terminated.
        """
        self._require_running(participle)
        return self._supervision_store.change(change)

    def terminate(self) -> SpecVersion:
        """Terminate the supervisor: no more jobs start, and running jobs deliver what they have read and end.

        The source's progress is kept, so a spec that is submitted later continues where this one ended.

        :raises SupervisionError: if there is no supervisor, or it is terminated already.
        """
        self._supervision()
        return self._supervision_store.terminate(by=self._by, reason=self._reason)

    def _other_specs(self) -> Mapping[str, IngestionSpec]:
        """Return the current specs of the other supervisors of the store, by source."""
        view = self._view
        others = {}
        for source in supervised_sources(view.store, view.prefix):
            if source == view.source:
                continue
            other = SupervisionStore(SourceView(view.store, source, prefix=view.prefix, clock=view.clock)).current()
            if (found := readable_spec(other)) is not None:
                others[source] = found
        return others

    def _check_source(
        self, check: SourceCheck, spec: IngestionSpec, before: IngestionSpec | None, warnings: list[str]
    ) -> str:
        """Check a spec against its source, if it changes the work of jobs.

        :param before: the current spec; None if there is none.
        :param warnings: gets the warnings of the check.
        :returns: why the source is unavailable, if that does not prevent the update; otherwise empty.
        """
        if change_between(before, spec) is not SpecChange.JOBS:
            return ""
        try:
            warnings.extend(check(spec))
        except SourceError as error:
            if before is None or before.ingestion.reads != spec.ingestion.reads:
                raise SourceError(
                    f"source {self._view.source!r} is unavailable, so the spec could not be checked and was not "
                    f"stored; try again, or submit it without the check: {error}"
                ) from error
            return str(error) or type(error).__name__
        return ""

    def _last_spec(self, current: SpecVersion | None) -> Mapping[str, Any] | None:
        """Return the current spec, or the last one before the termination; None if there is none."""
        if current is None or not current.is_termination:
            return None if current is None else current.spec
        before = self._supervision_store.spec(current.version - 1)
        return None if before is None else before.spec

    def _plans(
        self,
        resets: Resets,
        spec: IngestionSpec,
        to: datetime | str,
        positions: Mapping[str, str] | None,
        connections: ConnectionResolver,
    ) -> list[ResetPlan]:
        """Return the plans of a reset. Nothing is changed yet, so an invalid request has no effect at all."""
        now = self._coordinator.clock.now()
        access = _access(spec, connections)
        if positions is None:
            target, parts = parse_target(to, now), parts_of(spec)
            return [resets.plan_groups(parts, target, access) if parts else resets.plan_source(target, access)]
        if not positions:
            raise ConfigurationError(
                "field 'positions' is empty; name partitions, or omit it to reset the whole source"
            )
        # Find all partitions first, before the source is queried for any of them.
        named = {name: resets.find_partitions([name]) for name in positions}
        return [
            resets.plan_partitions(named[name], parse_target(position, now), access)
            for name, position in positions.items()
        ]

    def _supervision(self) -> Supervision:
        stored = self._supervision_store.get()
        if stored is None or not stored.supervision.spec_version:
            raise SupervisorNotFoundError(no_supervisor(self._view.source))
        return stored.supervision

    def _require_running(self, participle: str) -> Supervision:
        """Return the supervision of a supervisor that is not terminated.

        :param participle: the refused action, such as `suspended`.
        """
        memory = self._supervision()
        if memory.terminated_at is not None:
            raise SupervisionError(
                f"the supervisor of source {self._view.source!r} cannot be {participle}: it was terminated at "
                f"{format_instant(memory.terminated_at)}; submit a spec to start it again"
            )
        return memory


def _access(spec: IngestionSpec, connections: ConnectionResolver) -> Access:
    """Return the access to the source with the connection of a spec."""

    def service(kind: SourceKind) -> Any:
        return kind.service(spec.ingestion.reads.connect(connections).reads.settings)

    return service


def _outcome(step: ResetStep, became: Partition | CoordinationError) -> ResetOutcome:
    return ResetOutcome(
        partition_key=step.partition.partition_key,
        action=str(step.action),
        error=str(became) if isinstance(became, CoordinationError) else "",
    )
