"""A simulated source with its supervisor, jobs and clock; only the stream and the cluster are not real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.job_reports import ErrorEvent, JobReport, RecordCounts
from airflow_provider_coordination.coordination.jobs import Job, JobRecord, Jobs
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, format_instant
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import (
    Claimant,
    DetailedState,
    Health,
    SpecVersion,
    Supervision,
)
from airflow_provider_coordination.supervisor.turn import JobRequest, Supervisor, TurnResult
from tests.support.clock import ManualClock

SOURCE = "clicks"
START_TIMEOUT = timedelta(minutes=10)
DAY = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}


def spec(**supervise: Any) -> dict[str, Any]:
    """Return a spec of these settings of supervision; jobs of another `path` write elsewhere."""
    return {
        "version": 1,
        "source": SOURCE,
        "reads": {"kinesis": {"streams": SOURCE, **({"bounds": DAY} if supervise.get("terminate_when_done") else {})}},
        "writes": [{"parquet": {"path": supervise.pop("path", "/data/lake/clicks")}}],
        "schema": "id STRING, at TIMESTAMP",
        "context": {"description": supervise.pop("description", "clicks")},
        "supervise": supervise,
    }


@dataclass
class SparkJob:
    """A job on the cluster: it begins, reads, reports, ends well or not, stands still, or dies."""

    request: JobRequest
    coordinator: SourceCoordinator
    record: JobRecord | None = None
    stop: str | None = None
    is_dead: bool = False
    is_reading: bool = False

    @property
    def owner(self) -> str:
        return self.request.job.owner

    def begin(self, *, reads: bool = True) -> None:
        """Begin; read at once, or later."""
        self.record = JobRecord(self.coordinator, self._note_stop)
        self.record.begin()
        if reads:
            self.reads()

    def reads(self) -> None:
        assert self.record is not None
        self.record.note_reading()
        self.is_reading = True

    def _note_stop(self, why: str) -> None:
        self.stop = why

    def round(self, limit: int = 100) -> list[str]:
        """Look whether it is to stop, renew, and read what is free; return what it reads."""
        if self.record is not None and not self.is_dead:
            self.record.renew_due()
            self.coordinator.leases.renew_due()
            if self.stop is None and limit > 0 and self.is_reading:
                self.coordinator.leases.acquire(limit)
        return sorted(self.coordinator.leases.held)

    def report(
        self,
        processed: int = 0,
        *,
        processed_bytes: int = 0,
        slots: int | None = None,
        errors: Sequence[ErrorEvent] = (),
        **lag_ms: int,
    ) -> None:
        """Report the lag of partitions, its slots, how much it has processed, and all errors that it met."""
        assert self.record is not None
        report = JobReport(
            at=self.coordinator.clock.now(),
            totals=RecordCounts(processed=processed, processed_bytes=processed_bytes),
            lag_ms=lag_ms,
            errors=tuple(errors),
            error_count=len(errors),
            slots=slots,
        )
        self.record.note(report=report.to_text())

    def end(self, exit_code: int = 0, error: str | None = None) -> None:
        """Give the leases back, leave the outcome."""
        assert self.record is not None
        self.coordinator.leases.give_up_all()
        self.record.end({"exit_code": exit_code, "error": error, "summary": {}})
        self.is_dead = True


class Cluster:
    """Where jobs are submitted to."""

    def __init__(self, simulation: SourceSimulation) -> None:
        self._simulation = simulation
        self._numbers = count(1)
        self.submitted: list[SparkJob] = []
        self.killed: list[str] = []
        self.refuses: Exception | None = None

    def new_owner(self) -> str:
        return f"job-{next(self._numbers)}"

    def start(self, request: JobRequest) -> None:
        start_by = self._simulation.clock.now() + START_TIMEOUT
        if not self._simulation.jobs.submit(request.job.owner, task=request.task, digest="", start_by=start_by):
            return
        if self.refuses is not None:
            raise self.refuses
        self.submitted.append(SparkJob(request, self._simulation.coordinator(request.job.owner)))

    def end(self, job: Job, spec: IngestionSpec | None, reason: str) -> None:
        self.killed.append(job.owner)
        for each in self.submitted:
            each.is_dead = each.is_dead or each.owner == job.owner

    def job(self, owner: str) -> SparkJob:
        return next(job for job in self.submitted if job.owner == owner)


class Stream:
    """The source: what a probe finds there."""

    def __init__(self, simulation: SourceSimulation, shards: Sequence[str]) -> None:
        self._simulation = simulation
        self.shards = list(shards)
        self.lag_ms: dict[str, int] = {}
        self.error: Exception | None = None
        self.must_discover_partitions = False
        self.news: bool | None = None
        self.looks = 0
        self.counts = 0

    def follow(self, spec: IngestionSpec) -> None:
        self.spec = spec

    def discover_partitions(self) -> None:
        self._answer()
        self.looks += 1
        self._simulation.coordinator("sync").create_partitions({shard: {} for shard in self.shards})

    def count(self) -> int | None:
        self.counts += 1
        self._answer()
        return len(self.shards)

    def lag(self, partition: Partition) -> int | None:
        self._answer()
        return self.lag_ms.get(partition.partition_key)

    def confirmed_progress(self, partition: Partition) -> dict[str, Any] | None:
        self._answer()
        if self.lag_ms.get(partition.partition_key) != 0:
            return None
        return {**partition.progress, "delivered_until": format_instant(self._simulation.clock.now())}

    def has_news(self) -> bool | None:
        self._answer()
        return self.news

    def _answer(self) -> None:
        if self.error is not None:
            raise self.error


class SourceSimulation:
    """One source with its store, supervisor state, cluster and clock.

    :param shards: what it consists of at first.
    :param store: where everything is kept; memory by default.
    :param source: its name.
    """

    def __init__(
        self,
        *shards: str,
        store: CoordinationStore | None = None,
        clock: Any = None,
        source: str = SOURCE,
        prefix: str | None = "test",
    ) -> None:
        self.clock: Any = clock or ManualClock()
        self.backend = store or InMemoryStore()
        self.backend.initialize()
        self.source, self.prefix = source, prefix
        self.view = self.coordinator("test").view
        self.jobs = Jobs(self.view)
        self.store = SupervisionStore(self.view)
        self.stream = Stream(self, shards or ("S0", "S1"))
        self.cluster = Cluster(self)
        self.claimant = Claimant(owner="supervisor-1", dag_id="supervise_clicks", run_at=self.clock.now())
        self.supervisor = self.another_supervisor(self.claimant)

    def coordinator(self, owner: str, store: CoordinationStore | None = None) -> SourceCoordinator:
        made = SourceCoordinator(store or self.backend, self.source, owner, prefix=self.prefix, clock=self.clock)
        made.initialize()
        return made

    def another_supervisor(self, claimant: Claimant, store: CoordinationStore | None = None) -> Supervisor:
        return Supervisor(self.coordinator(claimant.owner, store), claimant, probe=self.stream)

    def later_claimant(self, **changes: Any) -> Claimant:
        return replace(self.claimant, **{"owner": "supervisor-2", "run_at": self.clock.now(), **changes})

    def submit(self, **supervise: Any) -> SpecVersion:
        return self.store.submit(spec(**{"start_delay": 0, **supervise}), by="ann")

    def turn(self) -> TurnResult:
        return self.supervisor.turn(self.cluster)

    def supervision(self) -> Supervision:
        stored = self.store.get()
        assert stored is not None
        return stored.supervision

    @property
    def health(self) -> Health:
        return self.supervision().health

    @property
    def state(self) -> DetailedState:
        return self.health.state

    @property
    def running(self) -> list[SparkJob]:
        """The jobs on the cluster that live."""
        return [job for job in self.cluster.submitted if not job.is_dead]

    @property
    def owners(self) -> list[str]:
        return [job.owner for job in self.running]

    def begin(self) -> list[SparkJob]:
        """Let every submitted job begin, and make a round; one that is to stop ends well at once."""
        for job in self.running:
            if job.record is None:
                job.begin()
        self.rounds()
        return self.running

    def rounds(self) -> None:
        """Let every job that has begun make a round: the others share what those leave that are to stop or replaced."""
        begun = [job for job in self.running if job.record is not None]
        replaced = {job.request.job.replaces for job in begun if job.is_reading}
        for job in begun:
            job.round(0)
            if job.stop is not None or job.owner in replaced:
                job.end()
        going = [job for job in begun if not job.is_dead and job.is_reading]
        unfinished = list(self.view.partitions(*UNFINISHED))
        share = -(-len(unfinished) // max(1, len(going)))
        for job in going:
            for key in sorted(job.coordinator.leases.held)[share:]:
                job.coordinator.leases.give_up(key)
        for job in going:
            job.round(share - len(job.coordinator.leases.held))

    def go_on(self, seconds: float, *, every: float = 10, begin: bool = True) -> None:
        """Let time pass: jobs begin and make rounds, and the supervisor looks, and turns if there is a need."""
        left = seconds
        while left > 0:
            self.clock.advance(min(every, left))
            left -= every
            if begin:
                self.begin()
            else:
                self.rounds()
            if self.supervisor.poll().needs_turn:
                self.turn()

    def complete(self, *keys: str) -> None:
        """Have partitions read to their end."""
        for key in keys:
            partition = self.view.get(key)
            assert partition is not None
            self.backend.transact(update=[partition.completed(self.clock.now())])

    def fail(self, key: str, error: str | None) -> None:
        """Have a job fail to read a partition, or get further with it."""
        partition = self.view.get(key)
        assert partition is not None
        self.backend.transact(update=[partition.recovered() if error is None else partition.failed(error)])

    def suspend(self) -> None:
        self.view.suspensions.suspend("ann", "maintenance")

    def resume(self) -> None:
        self.view.suspensions.resume("ann", "done")

    def read_by(self) -> dict[str, str | None]:
        """Who reads each unfinished partition."""
        return {
            p.partition_key: p.owner for p in sorted(self.view.partitions(*UNFINISHED), key=lambda p: p.partition_key)
        }
