"""A supervisor replaces and adds jobs: each is ready before shards move, and no shard is free in between."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.held_leases import LeaseRenewer
from airflow_provider_coordination.coordination.jobs import Job, JobRecord, Jobs
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.supervisor.turn import JobRequest, Supervisor
from tests.support.fleet import FakeStream, Fleet
from tests.support.waiting import PATIENCE_SECONDS

SHARDS = 3
START_TIMEOUT = timedelta(minutes=10)
READY = "ready"


class WatchedStore(InMemoryStore):
    """A store that notes each change of a partition's owner."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, str | None]] = []
        """A shard, or `READY`, and its new owner, or the job that is ready."""
        self._owners: dict[str, str | None] = {}

    def transact(self, **changes: Any) -> Any:
        done = super().transact(**changes)
        self._note(changes.get("update", ()))
        return done

    def acquire(self, *details: Any, **more: Any) -> Any:
        acquired = super().acquire(*details, **more)
        self._note(acquired)
        return acquired

    def _note(self, partitions: Any) -> None:
        for partition in partitions:
            key = partition.partition_key
            if partition.source_identifier.endswith("|PARTITION") and self._owners.get(key) != partition.owner:
                self._owners[key] = partition.owner
                self.log.append((key, partition.owner))


class SupervisedFleet:
    """A stream with its supervisor, whose jobs are threads that the test lets become ready."""

    must_discover_partitions = False

    def __init__(self, folder: Path, pool: ThreadPoolExecutor) -> None:
        self.store = WatchedStore()
        self.fleet = Fleet(
            FakeStream(SHARDS),
            folder,
            self.store,
            ownership_timeout=timedelta(seconds=6),
            safety_margin=timedelta(seconds=0.1),
        )
        self.view = self.fleet.look.view
        self.jobs = Jobs(self.view)
        self.specs = SupervisionStore(self.view)
        self.may_be_ready: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        self.stops: dict[str, threading.Event] = {}
        self.running: dict[str, Future[Summary]] = {}
        self._pool = pool
        self._started = 0
        coordinator = self.fleet.coordinator("supervisor", self.store)
        claimant = Claimant(owner="supervisor", dag_id="supervise_clicks", run_at=self.fleet.clock.now())
        self.supervisor = Supervisor(coordinator, claimant, probe=self)

    def submit(self, schema: str = "id STRING", **supervise: Any) -> None:
        spec = {
            "version": 1,
            "source": "clicks",
            "reads": {"kinesis": {"streams": "s"}},
            "writes": [{"parquet": {"path": str(self.fleet.folder)}}],
            "schema": schema,
            "supervise": {"start_delay": 0, **supervise},
        }
        self.specs.submit(spec, by="ann")

    # What the supervisor asks the source

    def follow(self, spec: IngestionSpec) -> None:
        """The stream is there."""

    def discover_partitions(self) -> None:
        """The shards are there."""

    def count(self) -> int | None:
        return SHARDS

    def lag(self, partition: Partition) -> int | None:
        return None

    # How it starts jobs

    def new_owner(self) -> str:
        self._started += 1
        return f"job-{self._started}"

    def start(self, request: JobRequest) -> None:
        owner, start_by = request.job.owner, self.fleet.clock.now() + START_TIMEOUT
        assert self.jobs.submit(owner, task=request.task, digest="", start_by=start_by)
        self.stops[owner] = threading.Event()
        self.running[owner] = self._pool.submit(self._run, request, self.stops[owner])

    def end(self, job: Job, spec: IngestionSpec | None, reason: str) -> None:
        self.stops[job.owner].set()
        self.may_be_ready[job.owner].set()

    def _run(self, request: JobRequest, stop: threading.Event) -> Summary:
        owner = request.job.owner

        def note_stop(why: str) -> None:
            stop.set()
            self.may_be_ready[owner].set()

        record = JobRecord(self.fleet.coordinator(owner, self.store), note_stop)
        record.begin()
        with LeaseRenewer(record, interval=timedelta(seconds=0.05)):
            assert self.may_be_ready[owner].wait(PATIENCE_SECONDS)
            if stop.is_set():
                record.end({"exit_code": 0, "error": None, "summary": {}})
                return Summary(stopped_because="before it was ready")
            self.store.log.append((READY, owner))
            record.note_reading()
            summary = self.fleet.work(
                store=self.store,
                stop=stop,
                owner=owner,
                replaces=request.job.replaces,
                workers=request.workers,
                schema=request.spec.ingestion.schema,
                until_caught_up=False,
                idle_duration=0.02,
                round_duration=0.2,
            )
            record.end({"exit_code": 0, "error": None, "summary": {}})
        return summary

    # What there is to see

    @property
    def owners(self) -> Counter[str | None]:
        return Counter(partition.owner for partition in self.view.partitions())

    def turns_until(self, holds: Callable[[], object]) -> None:
        """Take turns until something holds."""
        waiting = threading.Event()
        for _ in range(3000):
            self.supervisor.turn(self)
            if holds():
                return
            waiting.wait(0.02)
        raise AssertionError(f"it never happened: {self.owners}, {self.supervisor.store.get()}")

    def begins(self) -> None:
        """Let the first job read all shards."""
        self.may_be_ready["job-1"].set()
        self.turns_until(lambda: self.owners == {"job-1": SHARDS})

    def delivers(self, count: int) -> None:
        """Send records, and wait until they are delivered."""
        self.fleet.stream.send(count)
        self.turns_until(lambda: self.fleet.delivered().total() >= len(self.fleet.stream.sent))
        assert self.fleet.delivered() == Counter(self.fleet.stream.sent)


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[SupervisedFleet]:
    with running(tmp_path) as supervised:
        yield supervised


@contextmanager
def running(folder: Path) -> Iterator[SupervisedFleet]:
    with ThreadPoolExecutor(4) as pool:
        supervised = SupervisedFleet(folder, pool)
        try:
            with supervised.fleet.without_spark():
                yield supervised
                for owner, stop in supervised.stops.items():
                    stop.set()
                    supervised.may_be_ready[owner].set()
                for job in supervised.running.values():
                    job.result(PATIENCE_SECONDS)
        finally:
            for owner, stop in supervised.stops.items():
                stop.set()
                supervised.may_be_ready[owner].set()


def moved(log: list[tuple[str, str | None]], old: str, new: str) -> dict[str, list[str | None]]:
    """Return the owners of each shard that a job held, from the old job to the new one."""
    owners: dict[str, list[str | None]] = defaultdict(list)
    for key, owner in log:
        owners[key].append(owner)
    del owners[READY]
    return {key: each[each.index(old) : each.index(new) + 1] for key, each in owners.items() if new in each}


@pytest.mark.parametrize("change", ["asked to hand over", "edited spec"])
def test_successor_is_ready_before_shards_move_directly(supervised: SupervisedFleet, change: str) -> None:
    supervised.submit()
    supervised.begins()
    supervised.delivers(9)
    if change == "edited spec":
        supervised.submit(schema="id STRING, at TIMESTAMP")
    else:
        supervised.specs.request_handover()
    supervised.turns_until(lambda: "job-2" in supervised.running)
    supervised.delivers(9)
    assert supervised.owners == {"job-1": SHARDS}, "the old job reads while its successor warms up"

    supervised.may_be_ready["job-2"].set()
    supervised.fleet.stream.send(9)
    supervised.turns_until(lambda: supervised.running["job-1"].done() and supervised.owners == {"job-2": SHARDS})
    old = supervised.running["job-1"].result()
    assert old.stopped_because == "job-2 has taken over" and len(old.handed_over) == SHARDS and old.lost == []
    log = list(supervised.store.log)
    first = next(number for number, (key, owner) in enumerate(log) if key != READY and owner == "job-2")
    assert log.index((READY, "job-2")) < first
    assert moved(log, "job-1", "job-2") == {key: ["job-1", "job-2"] for key, _ in log if key != READY}
    supervised.delivers(9)


def test_added_job_is_ready_before_it_gets_shards_directly(supervised: SupervisedFleet) -> None:
    supervised.submit(task_count=1)
    supervised.begins()
    supervised.submit(task_count=2)
    supervised.turns_until(lambda: "job-2" in supervised.running)
    supervised.delivers(6)
    assert supervised.owners == {"job-1": SHARDS}

    supervised.may_be_ready["job-2"].set()
    supervised.turns_until(lambda: supervised.owners == {"job-1": 2, "job-2": 1})
    log = list(supervised.store.log)
    [owners] = moved(log, "job-1", "job-2").values()
    assert owners == ["job-1", "job-2"]
    supervised.delivers(6)


def test_second_edit_replaces_the_successor_that_is_not_ready(supervised: SupervisedFleet) -> None:
    supervised.submit()
    supervised.begins()
    supervised.submit(schema="id STRING, at TIMESTAMP")
    supervised.turns_until(lambda: "job-2" in supervised.running)
    supervised.submit(schema="id STRING, at TIMESTAMP, price DOUBLE")
    supervised.turns_until(lambda: "job-3" in supervised.running)
    supervised.delivers(6)
    assert supervised.owners == {"job-1": SHARDS}

    supervised.may_be_ready["job-3"].set()
    supervised.turns_until(lambda: supervised.owners == {"job-3": SHARDS} and supervised.running["job-1"].done())
    assert supervised.running["job-2"].result().stopped_because == "before it was ready"
    owners = moved(supervised.store.log, "job-1", "job-3")
    assert len(owners) == SHARDS and all(each == ["job-1", "job-3"] for each in owners.values())
    supervised.delivers(6)


def test_second_edit_during_a_handover_reaches_the_last_spec(supervised: SupervisedFleet) -> None:
    supervised.submit()
    supervised.begins()
    supervised.submit(schema="id STRING, at TIMESTAMP")
    supervised.turns_until(lambda: "job-2" in supervised.running)
    supervised.may_be_ready["job-2"].set()
    supervised.submit(schema="id STRING, at TIMESTAMP, price DOUBLE")
    for owner in ("job-3", "job-4"):
        supervised.may_be_ready[owner].set()
    supervised.fleet.stream.send(6)

    def is_over() -> bool:
        stored = supervised.specs.get()
        jobs = () if stored is None else stored.supervision.jobs
        return len(jobs) == 1 and jobs[0].spec_version == 3 and supervised.owners == {jobs[0].owner: SHARDS}

    supervised.turns_until(is_over)
    supervised.delivers(6)
