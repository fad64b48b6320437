"""What a person asks of a supervisor: the same verbs for operators, commands and HTTP.

Each verb is one write, or a few, to the store, and needs nobody who supervises: whoever does sees it at the next look.
What makes no sense as the supervisor stands is refused before anything is written, with the remedy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    StoreUnavailableError,
    SupervisionError,
    SupervisorNotFoundError,
)
from airflow_provider_coordination.coordination.partition import (
    Partition,
    format_instant,
    parse_source_identifier,
    source_identifier,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.suspension import FAMILY, Suspension
from airflow_provider_coordination.sources.batches import SourceBatches
from airflow_provider_coordination.sources.kinds import Access, SourceKind
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import EARLIEST, ResetPlan, ResetStep, target_of
from airflow_provider_coordination.supervisor.spec import Change, IngestionSpec, change_between
from airflow_provider_coordination.supervisor.status import read_status
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import KEY, SpecVersion, Supervision
from airflow_provider_coordination.supervisor.versions import (
    effective_spec,
    history_mapping,
    readable,
    version_mapping,
    with_hidden,
)

log = logging.getLogger(__name__)

PERHAPS_DONE = "the store did not answer: perhaps it was done; look at it again"
NOT_TRIED = "it was not tried, since the store did not answer; try again"
CONSEQUENCES = {
    Change.NONE: "nothing changes",
    Change.COSMETIC: "only what people read changes: jobs go on",
    Change.SUPERVISION: "the supervisor acts by it from its next look on: jobs go on",
    Change.JOBS: "jobs hand over to jobs of the new spec",
}
"""What follows from a change of the spec."""
BEGINS = "jobs start once a DAG of supervised_ingestion supervises the source"
"""What follows from a spec where none ruled."""

UNANSWERED = "the source did not answer: the spec was stored without knowing whether it fits the source"
"""What a person should know of a spec that the source could not be asked about."""
SourceCheck = Callable[[IngestionSpec], object]
"""Asks the connections and the source of a spec whether it can be carried out.

It raises `ConfigurationError` if not, and `SourceError` if the source does not answer.
"""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What became of a spec that was submitted.

    :param version: the version that rules now.
    :param change: what it changes.
    :param begins: whether no spec ruled before.
    :param unanswered: why the source was asked whether the spec fits it, and did not answer; empty otherwise.
    """

    version: SpecVersion
    change: Change
    begins: bool = False
    unanswered: str = ""

    @property
    def consequence(self) -> str:
        """What follows from it, in a sentence."""
        return BEGINS if self.begins else CONSEQUENCES[self.change]


@dataclass(frozen=True, kw_only=True)
class ResetOutcome:
    """What became of a partition that was to be reset.

    :param partition_key: its key.
    :param action: what was done, or was to be done: `reset`, `created` or `removed`.
    :param error: why it was not done; empty if it was.
    """

    partition_key: str
    action: str
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class ResetReport:
    """What became of a reset.

    :param outcomes: of each partition, in the order in which they were reset.
    :param left: the keys of partitions that stay as they are, and why.
    :param warnings: what the person should know.
    """

    outcomes: tuple[ResetOutcome, ...]
    left: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    @property
    def failed(self) -> list[ResetOutcome]:
        """What could not be reset."""
        return [outcome for outcome in self.outcomes if outcome.error]

    def summary(self, source: str) -> str:
        """Return what could not be reset, in a sentence.

        :param source: the source.
        """
        first = f": {self.failed[0].error}" if self.failed else ""
        return (
            f"source {source!r}: {len(self.failed)} of {len(self.outcomes)} partitions could not be reset{first}; "
            "reset again"
        )


@dataclass(frozen=True, kw_only=True)
class VerbOutcome:
    """What a verb for all supervisors came to for one of them.

    :param source: the source.
    :param is_done: whether it was done.
    :param detail: why it was not; empty if it was.
    :param has_failed: whether it was not done, or perhaps not, though it makes sense as the supervisor stands.
    """

    source: str
    is_done: bool
    detail: str = ""
    has_failed: bool = False


class SupervisorVerbs:
    """The verbs for the supervisor of one source, in somebody's name.

    Every method may raise `StoreUnavailableError`: whether it was done is not known then.

    :param coordinator: of the source, initialized, for whoever asks.
    :param by: who asks; kept with the spec, the suspension and the history of partitions.
    :param reason: why; kept there too.
    """

    def __init__(self, coordinator: SourceCoordinator, *, by: str = "", reason: str = "") -> None:
        self._coordinator = coordinator
        self._view = coordinator.view
        self._kept = SupervisionStore(coordinator.view)
        self._by = by
        self._reason = reason

    def submit(
        self,
        spec: Mapping[str, Any],
        *,
        file_digest: str | None = None,
        replacing: int | None = None,
        check: SourceCheck | None = None,
    ) -> Submission:
        """Store a spec, which rules from now on; a terminated supervisor begins anew.

        The source is asked only about what changes the work of jobs. One that does not answer keeps no update of a
        supervisor from being stored that reads the same as before: the update may be what helps.

        :param spec: as it was written.
        :param file_digest: the digest of the file that it comes from; None if it comes from none.
        :param replacing: the version that it was made from: it is refused where another one rules; None for whichever.
        :param check: asks the source; None for not asking it.
        :raises ConfigurationError: if the spec is wrong, of a newer version, of another source, or cannot be carried
            out; nothing was stored.
        :raises SourceError: if the source does not answer, and would be read for the first time; nothing was stored.
        :raises SupervisionError: if another version than `replacing` rules by now; nothing was stored.
        """
        IngestionSpec.read(spec)
        former = self._kept.current()
        spec = with_hidden(spec, self._last_spec(former))
        checked = IngestionSpec.read(spec)
        if checked.source != self._view.source:
            raise ConfigurationError(
                f"spec: field 'source' is {checked.source!r}, and it was submitted for {self._view.source!r}; submit "
                "it for that source, or set 'source'"
            )
        unanswered = "" if check is None else self._ask_source(check, checked, readable(former))
        version = self._kept.submit(
            spec, by=self._by, reason=self._reason, file_digest=file_digest, replacing=replacing
        )
        if former is not None and version.version == former.version:
            return Submission(version=version, change=Change.NONE)
        before = self._kept.spec(version.version - 1) if version.version > 1 else None
        return Submission(
            version=version,
            change=change_between(readable(before), checked),
            begins=before is None or before.is_termination,
            unanswered=unanswered,
        )

    def suspend(self) -> Suspension:
        """Suspend the source: jobs deliver what they have read and end, and none is started.

        :raises SupervisionError: if it is suspended already, or its supervisor is terminated.
        """
        self._running("suspended")
        if (found := self._view.suspensions.get()) is not None:
            raise SupervisionError(f"the supervisor of source {self._view.source!r} is already {found}; it stays so")
        return self._view.suspensions.suspend(self._by, self._reason)

    def resume(self, since: datetime | None = None) -> Suspension:
        """Let a suspended source go on.

        :param since: the suspension that the person saw, by its `since`; None for whichever there is.
        :returns: how it was suspended.
        :raises SupervisionError: if it is not suspended, or its supervisor is terminated.
        :raises PartitionUpdateError: if it was suspended anew since the person looked.
        """
        self._running("resumed")
        former = self._view.suspensions.resume(self._by, self._reason, since=since)
        if former is None:
            raise SupervisionError(f"the supervisor of source {self._view.source!r} is not suspended; it goes on")
        return former

    def reset(
        self,
        to: datetime | str = EARLIEST,
        positions: Mapping[str, str] | None = None,
        *,
        default_region: str | None = None,
    ) -> ResetReport:
        """Read the source anew; jobs go on, and take up what is reset at its new position.

        :param to: where all of it is read from: `"earliest"`, `"latest"` or an instant.
        :param positions: where these partitions alone are read from instead, each by its key or by what people call it:
            what `to` takes, or a position of its own.
        :param default_region: the AWS region where nothing else names one.
        :raises ConfigurationError: if the source has no such partition or position, or cannot be reached as its spec
            says; nothing was reset.
        :raises SupervisionError: if there is no supervisor, or it is terminated.
        :raises SourceError: if the source has to be asked, and does not answer.
        """
        self._running("reset")
        current = self._kept.current()
        if current is None or current.spec is None:
            raise SupervisorNotFoundError(no_supervisor(self._view.source))
        if not any(self._view.count_by_status().values()):
            raise SupervisionError(
                f"source {self._view.source!r} has no partitions yet, so there is nothing to reset: it will be read "
                "from where its spec says"
            )
        spec = IngestionSpec.read(current.spec)
        sets = AcknowledgmentSets(self._coordinator, SourceBatches())
        resets = Resets(sets, by=self._by, reason=self._reason)
        try:
            plans = self._plans(resets, spec, to, positions, default_region)
        except ProgressError as error:  # what is stored, or asked for, is wrong, and stays so
            raise ConfigurationError(str(error)) from None
        outcomes = tuple(
            _outcome(step, became) for plan in plans for step, became in resets.carry_out(plan, as_seen=False)
        )
        self._kept.note_reset()
        return ResetReport(
            outcomes=outcomes,
            left={key: why for plan in plans for key, why in plan.left.items()},
            warnings=tuple(warning for plan in plans for warning in plan.warnings),
        )

    def reset_whole(self, to: datetime | str = EARLIEST, *, default_region: str | None = None) -> ResetReport:
        """Read all of the source anew, as `reset` does, where it is one of several.

        :raises PartitionUpdateError: if some partition could not be reset; the others are.
        """
        report = self.reset(to, default_region=default_region)
        if report.failed:
            raise PartitionUpdateError(report.summary(self._view.source))
        return report

    def hand_over(self) -> Supervision:
        """Have every job hand over to a new one now, as at the end of `task_duration`.

        :raises SupervisionError: if there is no supervisor, or it is terminated.
        """
        self._running("asked to hand over")
        return self._kept.request_handover()

    def terminate(self) -> SpecVersion:
        """Terminate the supervisor: no job is started any more, those that run deliver what they have read and end.

        What is stored of its source stays, so that a spec that is submitted later goes on where this one ended.

        :raises SupervisionError: if there is no supervisor, or it is terminated already.
        """
        self._supervision()
        return self._kept.terminate(by=self._by, reason=self._reason)

    def _ask_source(self, check: SourceCheck, spec: IngestionSpec, before: IngestionSpec | None) -> str:
        """Ask the source about what changes the work of jobs.

        :param before: the spec that rules; None if none does.
        :returns: why it did not answer, where that is no reason to refuse the spec; empty if it did.
        """
        if change_between(before, spec) is not Change.JOBS:
            return ""
        try:
            check(spec)
        except SourceError as error:
            if before is None or before.reads != spec.reads:
                raise SourceError(
                    f"source {self._view.source!r} cannot be asked whether the spec fits it, and nothing was stored; "
                    f"try again, or submit the spec without connecting to the source: {error}"
                ) from error
            return str(error) or type(error).__name__
        return ""

    def _last_spec(self, current: SpecVersion | None) -> Mapping[str, Any] | None:
        """Return the spec that rules, or that ruled before the termination; None if there is none."""
        if current is None or not current.is_termination:
            return None if current is None else current.spec
        before = self._kept.spec(current.version - 1)
        return None if before is None else before.spec

    def _plans(
        self,
        resets: Resets,
        spec: IngestionSpec,
        to: datetime | str,
        positions: Mapping[str, str] | None,
        default_region: str | None,
    ) -> list[ResetPlan]:
        """Return what is to be done; nothing is done yet, so that what is wrong is refused whole."""
        now = self._coordinator.clock.now()
        access = _access(spec, default_region)
        if positions is None:
            target, parts = target_of(to, now), _parts(spec)
            return [resets.of_groups(parts, target, access) if parts else resets.of_source(target, access)]
        if not positions:
            raise ConfigurationError("field 'positions' is empty; name partitions, or leave it out to reset all of it")
        named = {name: resets.named([name]) for name in positions}  # before the source is asked about any of them
        return [
            resets.of_partitions(named[name], target_of(position, now), access) for name, position in positions.items()
        ]

    def _supervision(self) -> Supervision:
        stored = self._kept.get()
        if stored is None or not stored.supervision.spec_version:
            raise SupervisorNotFoundError(no_supervisor(self._view.source))
        return stored.supervision

    def _running(self, what: str) -> Supervision:
        """Return the supervision of a supervisor that is not terminated.

        :param what: what was to be done to it.
        """
        memory = self._supervision()
        if memory.terminated_at is not None:
            raise SupervisionError(
                f"the supervisor of source {self._view.source!r} cannot be {what}: it is terminated since "
                f"{format_instant(memory.terminated_at)}; submit a spec to begin anew"
            )
        return memory


def all_statuses(
    store: CoordinationStore, prefix: str | None, view_of: Callable[[str], SourceView]
) -> list[dict[str, Any]]:
    """Return how the supervisors of a store stand, without the lag of each partition, those first that need a person.

    :param prefix: of the sources; None for none.
    :param view_of: returns the initialized view of a source.
    """
    found = (read_status(view_of(source)) for source in supervised_sources(store, prefix))
    shown = [{**each, "lag": {**each["lag"], "partitions": {}}} for each in found if each is not None]
    return sorted(shown, key=lambda each: (each["healthy"], each["source"]))


def supervised_sources(store: CoordinationStore, prefix: str | None) -> list[str]:
    """Return the names of the sources that have a supervisor, sorted; some stores read everything for it.

    :param prefix: of the sources; None for none.
    """
    found = []
    for identifier in store.source_identifiers():
        try:
            family = parse_source_identifier(identifier)
        except ValueError:  # another system named it
            continue
        if (family.prefix, family.family) == (prefix, FAMILY) and _has_supervisor(store, family.source, prefix):
            found.append(family.source)
    return sorted(found)


def for_all(
    sources: Sequence[str],
    verbs_of: Callable[[str], SupervisorVerbs],
    verb: Callable[[SupervisorVerbs], object],
) -> Iterator[VerbOutcome]:
    """Ask the same of several supervisors; yield what it came to for each.

    Where it makes no sense, as to suspend a suspended one, or fails, the others are asked all the same; but nobody asks
    a store that does not answer again.

    :param sources: of which sources.
    :param verbs_of: returns the verbs for the supervisor of a source.
    :param verb: such as `SupervisorVerbs.suspend`.
    :raises StoreUnavailableError: if the store does not answer the first time.
    """
    for number, source in enumerate(sources):
        try:
            verb(verbs_of(source))
        except SupervisionError as error:
            yield VerbOutcome(source=source, is_done=False, detail=str(error))
        except SourceError as error:  # the text may hold the name of a host, or more
            log.error("source=%s does not answer: %s", source, error)
            detail = f"source {source!r} does not answer ({type(error).__name__}); the log says more"
            yield VerbOutcome(source=source, is_done=False, detail=detail, has_failed=True)
        except (ConfigurationError, PartitionUpdateError) as error:
            yield VerbOutcome(source=source, is_done=False, detail=str(error), has_failed=True)
        except StoreUnavailableError:
            if not number:
                raise
            yield VerbOutcome(source=source, is_done=False, detail=PERHAPS_DONE, has_failed=True)
            # To try the others would take seconds for each.
            for each in sources[number + 1 :]:
                yield VerbOutcome(source=each, is_done=False, detail=NOT_TRIED, has_failed=True)
            return
        else:
            yield VerbOutcome(source=source, is_done=True)


def read_spec(view: SourceView, version: int | None = None) -> dict[str, Any]:
    """Return a version of the spec of a source, a JSON object without secrets, with every default as `effective`.

    :param view: of the source, initialized.
    :param version: which; None for the one that rules, a termination included.
    :raises SupervisorNotFoundError: if nothing was ever submitted, or there is no such version.
    """
    kept, latest = SupervisionStore(view), _latest(view)
    number = latest if version is None else version
    found = kept.spec(number)
    if found is None:
        raise SupervisorNotFoundError(
            f"source {view.source!r} has no version {number} of its spec; the latest is {latest}"
        )
    effective, problem = effective_spec(found)
    before = kept.spec(number - 1) if number > 1 else None
    return {**version_mapping(found, before), "effective": effective, "problem": problem}


def read_history(view: SourceView, limit: int) -> list[dict[str, Any]]:
    """Return the latest versions of the spec of a source, JSON objects without secrets, the latest first.

    :param view: of the source, initialized.
    :param limit: at most this number.
    :raises SupervisorNotFoundError: if nothing was ever submitted.
    """
    _latest(view)
    return history_mapping(SupervisionStore(view).history(limit + 1))[:limit]


def _latest(view: SourceView) -> int:
    stored = SupervisionStore(view).get()
    if stored is None or not stored.supervision.spec_version:
        raise SupervisorNotFoundError(no_supervisor(view.source))
    return stored.supervision.spec_version


def existing_status(view: SourceView, is_paused: Callable[[str], bool | None] | None = None) -> dict[str, Any]:
    """Return how the supervisor of a source stands; see `read_status`.

    :raises SupervisorNotFoundError: if the source has none.
    """
    found = read_status(view, is_paused)
    if found is None:
        raise SupervisorNotFoundError(no_supervisor(view.source))
    return found


def no_supervisor(source: str) -> str:
    """Return what to say to somebody who asks for a supervisor that there is not."""
    return f"source {source!r} has no supervisor; check the name, or submit a spec to have one"


def _has_supervisor(store: CoordinationStore, source: str, prefix: str | None) -> bool:
    item = store.get(source_identifier(source, prefix=prefix, family=FAMILY), KEY)
    return item is not None and Supervision.from_mapping(item.progress).spec_version > 0


def _access(spec: IngestionSpec, default_region: str | None) -> Access:
    """Return what asks the source, as the jobs of a spec reach it."""

    def service(kind: SourceKind) -> Any:
        return kind.service(spec.reads_object().connect(default_region).reads.settings)

    return service


def _parts(spec: IngestionSpec) -> Sequence[str]:
    """Return what the parts of the source are called that are reset each as a whole, such as streams."""
    parts: Sequence[str] = getattr(spec.reads_object(), "parts", ())
    return parts


def _outcome(step: ResetStep, became: Partition | CoordinationError) -> ResetOutcome:
    return ResetOutcome(
        partition_key=step.partition.partition_key,
        action=str(step.action),
        error=str(became) if isinstance(became, CoordinationError) else "",
    )
