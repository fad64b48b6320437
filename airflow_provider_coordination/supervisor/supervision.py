"""The state that a supervisor keeps in the store, and its JSON format.

The items are in the family `…|SUPERVISOR` of the source, together with its suspension: one for the supervision, one per
version of the spec, and one for the lag. None is ever COMPLETED, so none expires.

The supervision is leased by the running supervisor, and every change is conditional on the version that was read. A
turn first writes its plan and then carries it out; a turn whose write is refused does nothing. So of two supervisors or
two turns, only one acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.json_values import Stored
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.stores.redaction import HIDDEN
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_values import without_secrets
from airflow_provider_coordination.supervisor.states import Health

KEY = "SUPERVISION"
SPEC_KEY = "SPEC:{version:06d}"
LAG_KEY = "LAG"
CHANGES_KEPT = 50


@dataclass(frozen=True, kw_only=True)
class SupervisedJob(Stored):
    """A job of a supervisor.

    :param owner: the owner of its leases; the key of its item in the family `…|JOB`.
    :param spec_version: the version of the spec that it works with.
    :param planned_at: when it was planned (aware); it is submitted right after that.
    :param began_at: when it was first observed to read (aware); None if not yet.
    :param replaces: the owner of the job that is stopped once this one reads; None if there is none.
    :param stop_requested_at: when it was requested to stop (aware); None if it was not.
    :param stop_reason: the reason of the stop.
    :param errors_noted: the number of its reported errors that are recorded.
    """

    owner: str
    spec_version: int
    planned_at: datetime
    began_at: datetime | None = None
    replaces: str | None = None
    stop_requested_at: datetime | None = None
    stop_reason: str = ""
    errors_noted: int = 0

    @property
    def is_ending(self) -> bool:
        """Whether it was requested to stop."""
        return self.stop_requested_at is not None


@dataclass(frozen=True, kw_only=True)
class TaskCountChange(Stored):
    """A change of the number of jobs, or a refused change.

    :param at: when (aware).
    :param before: the number before.
    :param after: the number after; the same as before if the change was refused.
    :param reason: the reason, in a sentence.
    """

    at: datetime
    before: int
    after: int
    reason: str

    @property
    def is_refusal(self) -> bool:
        """Whether the number stayed as it was."""
        return self.before == self.after


@dataclass(frozen=True, kw_only=True)
class Supervision(Stored):
    """The state of a supervisor, beside its spec.

    :param dag_id: the supervising DAG; empty if there was none yet.
    :param spec_version: the latest version of the spec, which may be a termination; 0 if there is none. Jobs may still
        work with an earlier one.
    :param file_digest: the digest of the last version that came from a file; None if none did.
    :param started_at: when supervision started, or started again after a termination (aware); None before that.
    :param polled_at: when the source was last observed (aware).
    :param health: its health state, and the results it follows from.
    :param jobs: its jobs that have not ended, as far as it knows.
    :param task_count: the number of jobs set by scaling; None to use the spec's number.
    :param planned_count: the last planned number of jobs; None before the first plan.
    :param scaled_at: when scaling last changed the number of jobs (aware).
    :param scale_evaluated_at: when scaling last evaluated the lag (aware).
    :param lag_since: scaling ignores lag before this instant (aware): the number of jobs or positions changed then.
    :param task_count_changes: the latest changes and refusals, the latest last.
    :param handover_requested_at: when a handover of all jobs was requested (aware); None if no request is open.
    :param start_after: no job starts before this instant (aware): the backoff after failures.
    :param surplus_since: since when there are more jobs than wanted (aware); None if there are not.
    :param synced_at: when the supervisor last discovered partitions itself (aware); None if it never did.
    :param open_partitions: the last known number of open shards of the source, or of its other units; None if unknown.
    :param terminated_at: when it was terminated (aware); None if it was not.
    :param termination_reason: the reason, in a sentence.
    :param totals: the record counts of ended jobs, by name.
    """

    dag_id: str = ""
    spec_version: int = 0
    file_digest: str | None = None
    started_at: datetime | None = None
    polled_at: datetime | None = None
    health: Health = field(default_factory=Health)
    jobs: tuple[SupervisedJob, ...] = ()
    task_count: int | None = None
    planned_count: int | None = None
    scaled_at: datetime | None = None
    scale_evaluated_at: datetime | None = None
    lag_since: datetime | None = None
    task_count_changes: tuple[TaskCountChange, ...] = ()
    handover_requested_at: datetime | None = None
    start_after: datetime | None = None
    surplus_since: datetime | None = None
    synced_at: datetime | None = None
    open_partitions: int | None = None
    terminated_at: datetime | None = None
    termination_reason: str = ""
    totals: Mapping[str, int] = field(default_factory=dict)

    @override
    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Supervision:
        return super().from_mapping(mapping) or cls()


@dataclass(frozen=True, kw_only=True)
class Claimant(Stored):
    """A process that supervises or wants to: one try of the task of a DAG run, wherever its turns run.

    :param owner: the owner of the lease; unique to this try, and the same in all of its turns.
    :param dag_id: the DAG.
    :param run_at: the start of the DAG run (aware); a later run of the same DAG takes over from an earlier one.
    :param try_number: the try of its task; a later one takes over from an earlier one.
    """

    owner: str
    dag_id: str
    run_at: datetime
    try_number: int = 1

    def succeeds(self, other: Claimant) -> bool:
        """Return whether it may take over from another one at once: it has the same DAG, and is no earlier try."""
        return self.dag_id == other.dag_id and (self.run_at, self.try_number) >= (other.run_at, other.try_number)


@dataclass(frozen=True, kw_only=True)
class SpecVersion(Stored):
    """A version of a spec, as it was submitted.

    :param version: its number, starting at 1.
    :param spec: the spec as it was written, a JSON object; None for a termination.
    :param submitted_at: when it was submitted (aware).
    :param by: the user who submitted it; empty if unknown.
    :param reason: the user's reason; empty if none was given.
    :param file_digest: the digest of its file; None if it did not come from a file.
    """

    version: int
    spec: Mapping[str, Any] | None
    submitted_at: datetime
    by: str = ""
    reason: str = ""
    file_digest: str | None = None

    @property
    def is_termination(self) -> bool:
        """Whether it ends supervision."""
        return self.spec is None


def readable_spec(version: SpecVersion | None) -> IngestionSpec | None:
    """Return a spec; None if there is none or this version of the package cannot read it."""
    if version is None or version.spec is None:
        return None
    try:
        return IngestionSpec.read(version.spec)
    except ConfigurationError:
        return None


def restore_hidden(value: Any, previous: Any, path: str = "") -> Any:
    """Return a submitted spec with its hidden secrets restored from the stored spec.

    :param value: the submitted value at this path.
    :param previous: the stored value at this path.
    :raises ConfigurationError: if a hidden value is not stored.
    """
    if isinstance(value, dict):
        known = previous if isinstance(previous, dict) else {}
        return {
            name: restore_hidden(each, known.get(name), f"{path}.{name}" if path else str(name))
            for name, each in value.items()
        }
    if isinstance(value, list):
        known_items = previous if isinstance(previous, list) and len(previous) == len(value) else [None] * len(value)
        return [
            restore_hidden(each, known, f"{path}.{number}")
            for number, (each, known) in enumerate(zip(value, known_items, strict=True))
        ]
    if not isinstance(value, str) or HIDDEN not in value:
        return value
    if isinstance(previous, str) and value in (without_secrets(previous), without_secrets(previous, is_secret=True)):
        return previous
    raise ConfigurationError(
        f"spec: field {path!r} is hidden as {value!r}, but no value is stored; write the value, or use a connection"
    )
