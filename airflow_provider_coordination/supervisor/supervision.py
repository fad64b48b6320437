"""What a supervisor remembers in the store, and how it is written.

Everything is in the family `…|SUPERVISOR` of the source, beside its suspension: one item for the supervision, one for
each version of the spec, one for the lag. None of them is ever COMPLETED, so none expires.

The supervision is leased by whoever supervises, and every change of it is conditional on the version that was read. A
turn first writes what it is going to do, then does it; one whose write is refused does nothing. So of two supervisors,
or two turns, one acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.partition import format_instant, read_instant
from airflow_provider_coordination.supervisor.states import Health

KEY = "SUPERVISION"
SPEC_KEY = "SPEC:{version:06d}"
LAG_KEY = "LAG"
CHANGES_KEPT = 50


@dataclass(frozen=True, kw_only=True)
class SupervisedJob:
    """A job of a supervisor.

    :param owner: the owner of its leases; the key of its item in the family `…|JOB`.
    :param spec_version: by which version of the spec it works.
    :param planned_at: when it was planned (aware); it is submitted at once.
    :param began_at: when it was first seen to read (aware); None if it was not yet.
    :param replaces: the owner of the job that is asked to end once this one reads; None if there is none.
    :param stop_requested_at: when it was asked to end (aware); None if it was not.
    :param stop_reason: why.
    :param errors_noted: how many of the errors that it reported are noted.
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
        """Whether it was asked to end."""
        return self.stop_requested_at is not None

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "owner": self.owner,
            "spec_version": self.spec_version,
            "planned_at": format_instant(self.planned_at),
            "began_at": _written(self.began_at),
            "replaces": self.replaces,
            "stop_requested_at": _written(self.stop_requested_at),
            "stop_reason": self.stop_reason,
            "errors_noted": self.errors_noted,
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> SupervisedJob | None:
        """Return it from a JSON object; None if that is none."""
        owner, planned_at = mapping.get("owner"), read_instant(mapping.get("planned_at"))
        if not isinstance(owner, str) or planned_at is None:
            return None
        replaces = mapping.get("replaces")
        return cls(
            owner=owner,
            spec_version=int(mapping.get("spec_version") or 0),
            planned_at=planned_at,
            began_at=read_instant(mapping.get("began_at")),
            replaces=replaces if isinstance(replaces, str) else None,
            stop_requested_at=read_instant(mapping.get("stop_requested_at")),
            stop_reason=str(mapping.get("stop_reason") or ""),
            errors_noted=int(mapping.get("errors_noted") or 0),
        )


@dataclass(frozen=True, kw_only=True)
class TaskCountChange:
    """A change of the number of jobs, or one that was refused.

    :param at: when (aware).
    :param before: how many there were to be.
    :param after: how many there are to be; the same number if it was refused.
    :param reason: why, in a sentence.
    """

    at: datetime
    before: int
    after: int
    reason: str

    @property
    def is_refusal(self) -> bool:
        """Whether the number stayed as it was."""
        return self.before == self.after

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"at": format_instant(self.at), "before": self.before, "after": self.after, "reason": self.reason}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> TaskCountChange | None:
        """Return it from a JSON object; None if that is none."""
        at = read_instant(mapping.get("at"))
        if at is None:
            return None
        before, after = int(mapping.get("before") or 0), int(mapping.get("after") or 0)
        return cls(at=at, before=before, after=after, reason=str(mapping.get("reason") or ""))


@dataclass(frozen=True, kw_only=True)
class Supervision:
    """What a supervisor remembers beside its spec.

    :param dag_id: the DAG that supervises; empty if none ever did.
    :param spec_version: the latest version of the spec, a termination included; 0 if there is none. Jobs may still work
        by an earlier one.
    :param file_digest: of the last version that came from a file; None if none did.
    :param started_at: when supervision began, or began anew after a termination (aware); None before that.
    :param looked_at: when the source was last looked at (aware).
    :param health: its state, and what that follows from.
    :param jobs: its jobs that have not ended, as far as it knows.
    :param task_count: how many jobs scaling wants; None for what the spec says.
    :param planned_count: how many jobs there were to be the last time; None before the first time.
    :param scaled_at: when scaling changed that last (aware).
    :param scale_judged_at: when scaling last judged the lag (aware).
    :param lag_since: scaling judges no lag of before (aware): the number of jobs was changed then, or positions reset.
    :param task_count_changes: the latest changes, and refusals, the latest last.
    :param handover_requested_at: when somebody asked for all jobs to hand over (aware); None if nobody did since the
        last time they all did.
    :param start_after: no job is started before (aware): it waits after failures.
    :param surplus_since: since when there are more jobs than there should be (aware); None if there are not.
    :param synced_at: when the supervisor last looked for new partitions itself (aware); None if it never did.
    :param open_partitions: how many open shards the source had, or whatever it consists of, when it was last seen; None
        if that is unknown.
    :param terminated_at: when it was terminated (aware); None if it was not.
    :param terminated_because: why, in a sentence.
    :param totals: what the jobs that have ended counted, by name.
    """

    dag_id: str = ""
    spec_version: int = 0
    file_digest: str | None = None
    started_at: datetime | None = None
    looked_at: datetime | None = None
    health: Health = field(default_factory=Health)
    jobs: tuple[SupervisedJob, ...] = ()
    task_count: int | None = None
    planned_count: int | None = None
    scaled_at: datetime | None = None
    scale_judged_at: datetime | None = None
    lag_since: datetime | None = None
    task_count_changes: tuple[TaskCountChange, ...] = ()
    handover_requested_at: datetime | None = None
    start_after: datetime | None = None
    surplus_since: datetime | None = None
    synced_at: datetime | None = None
    open_partitions: int | None = None
    terminated_at: datetime | None = None
    terminated_because: str = ""
    totals: Mapping[str, int] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "dag_id": self.dag_id,
            "spec_version": self.spec_version,
            "file_digest": self.file_digest,
            "started_at": _written(self.started_at),
            "looked_at": _written(self.looked_at),
            "health": self.health.to_mapping(),
            "jobs": [job.to_mapping() for job in self.jobs],
            "task_count": self.task_count,
            "planned_count": self.planned_count,
            "scaled_at": _written(self.scaled_at),
            "scale_judged_at": _written(self.scale_judged_at),
            "lag_since": _written(self.lag_since),
            "task_count_changes": [change.to_mapping() for change in self.task_count_changes[-CHANGES_KEPT:]],
            "handover_requested_at": _written(self.handover_requested_at),
            "start_after": _written(self.start_after),
            "surplus_since": _written(self.surplus_since),
            "synced_at": _written(self.synced_at),
            "open_partitions": self.open_partitions,
            "terminated_at": _written(self.terminated_at),
            "terminated_because": self.terminated_because,
            "totals": dict(self.totals),
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Supervision:
        """Return it from a JSON object; what that does not say is as at first."""
        jobs = (SupervisedJob.from_mapping(each) for each in _objects(mapping, "jobs"))
        changes = (TaskCountChange.from_mapping(each) for each in _objects(mapping, "task_count_changes"))
        health, totals, digest = mapping.get("health"), mapping.get("totals"), mapping.get("file_digest")
        return cls(
            dag_id=str(mapping.get("dag_id") or ""),
            spec_version=int(mapping.get("spec_version") or 0),
            file_digest=digest if isinstance(digest, str) else None,
            started_at=read_instant(mapping.get("started_at")),
            looked_at=read_instant(mapping.get("looked_at")),
            health=Health.from_mapping(health) if isinstance(health, Mapping) else Health(),
            jobs=tuple(job for job in jobs if job is not None),
            task_count=mapping.get("task_count"),
            planned_count=mapping.get("planned_count"),
            scaled_at=read_instant(mapping.get("scaled_at")),
            scale_judged_at=read_instant(mapping.get("scale_judged_at")),
            lag_since=read_instant(mapping.get("lag_since")),
            task_count_changes=tuple(change for change in changes if change is not None),
            handover_requested_at=read_instant(mapping.get("handover_requested_at")),
            start_after=read_instant(mapping.get("start_after")),
            surplus_since=read_instant(mapping.get("surplus_since")),
            synced_at=read_instant(mapping.get("synced_at")),
            open_partitions=mapping.get("open_partitions"),
            terminated_at=read_instant(mapping.get("terminated_at")),
            terminated_because=str(mapping.get("terminated_because") or ""),
            totals=totals if isinstance(totals, Mapping) else {},
        )


@dataclass(frozen=True, kw_only=True)
class Claimant:
    """Who supervises: a try of the task of a run of a DAG, wherever its turns run.

    :param owner: the owner of the lease; unique to this try, and the same in all of its turns.
    :param dag_id: the DAG.
    :param run_at: when the DAG run began (aware); a later run of the same DAG takes over from an earlier one.
    :param try_number: the try of its task; a later one takes over from an earlier one.
    """

    owner: str
    dag_id: str
    run_at: datetime
    try_number: int = 1

    def succeeds(self, other: Claimant) -> bool:
        """Return whether it may take over at once from another one of its DAG: it is later, or the same try."""
        return self.dag_id == other.dag_id and (self.run_at, self.try_number) >= (other.run_at, other.try_number)


@dataclass(frozen=True, kw_only=True)
class SpecVersion:
    """A version of a spec, as it was submitted.

    :param version: its number, from 1.
    :param spec: the spec as it was written, a JSON object; None for a termination.
    :param submitted_at: when (aware).
    :param by: who submitted it; empty if unknown.
    :param reason: why; empty if nobody said.
    :param file_digest: the digest of the file that it came from; None if it came from none.
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

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "version": self.version,
            "spec": None if self.spec is None else dict(self.spec),
            "submitted_at": format_instant(self.submitted_at),
            "by": self.by,
            "reason": self.reason,
            "file_digest": self.file_digest,
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> SpecVersion | None:
        """Return it from a JSON object; None if that is none."""
        version, submitted_at = mapping.get("version"), read_instant(mapping.get("submitted_at"))
        spec, digest = mapping.get("spec"), mapping.get("file_digest")
        if not isinstance(version, int) or submitted_at is None:
            return None
        return cls(
            version=version,
            spec=spec if isinstance(spec, Mapping) else None,
            submitted_at=submitted_at,
            by=str(mapping.get("by") or ""),
            reason=str(mapping.get("reason") or ""),
            file_digest=digest if isinstance(digest, str) else None,
        )


def _written(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _objects(mapping: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    values = mapping.get(name)
    return [each for each in values if isinstance(each, Mapping)] if isinstance(values, list | tuple) else []
