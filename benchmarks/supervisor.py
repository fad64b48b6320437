"""The cost of supervisors: polls of idle sources, turns of busy ones, and a turn by the number of shards.

Everything is in one store on this machine, of each kind in turn: a SQLite database, PostgreSQL, a DynamoDB engine. The
source and the cluster are stubs that respond at once, so only the supervisor and its store are measured.

- *poll*: the triggerer's work every few seconds: it reads the supervision, its jobs, and whether the source is
  suspended.
- *run*: the poll once a period that reads and records everything: partitions, shards, lag.
- *turn*: a worker's work: here, a turn with nothing to do, and one that starts the successors of all jobs.
- *idle*: sources of 4 shards, read by one job each. *busy*: sources of 64 shards, read by four jobs that report the lag
  of each shard and hand over repeatedly.
- *share of a core*: the triggerer's load if all idle sources are polled every 5 s, with a run every 30 s.
- *calls*: the number of calls to the store in one poll, run or turn.

Usage: python -m benchmarks.supervisor [--quick] [--stores sqlite,postgresql,dynamodb]
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.job_reports import JobReport, RecordCounts
from airflow_provider_coordination.coordination.jobs import Job, JobRecord, Jobs
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.supervisor.turn import JobRequest, Supervisor
from benchmarks.acquire_scale import SERVERS

STORES = ("sqlite", "postgresql", "dynamodb")
PERIOD_SECONDS, POLL_SECONDS = 30, 5
AIM_SECONDS = 1.0
"""The aim for a turn with a thousand shards."""
LONG = timedelta(days=1)
"""The duration of the jobs' leases; none expires during the benchmark."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured."""

    idle: int = 200
    busy: int = 20
    shards: tuple[int, ...] = (1, 10, 100, 1_000, 5_000)
    rounds: int = 5


QUICK = Size(idle=10, busy=2, shards=(1, 1_000), rounds=2)


class Clock:
    """A clock that the benchmark advances; its monotonic clock is the machine's."""

    def __init__(self) -> None:
        self._now = datetime.now(UTC)

    def now(self) -> datetime:
        """Return the current instant of the benchmark."""
        return self._now

    def monotonic(self) -> float:
        """Return seconds of the machine's own clock."""
        return time.monotonic()

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self._now += timedelta(seconds=seconds)


class Counted:
    """A store whose calls are counted."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return found(*args, **kwargs)

        return counted


class Source:
    """A source with its supervisor, and jobs that read it."""

    must_discover_partitions = False

    def __init__(self, store: Counted, clock: Clock, name: str, *, shards: int, jobs: int) -> None:
        self.store, self.clock, self.name, self.shards = store, clock, name, shards
        coordinator = self._coordinator("supervisor")
        self._jobs = Jobs(coordinator.view)
        self._submitted: list[JobRequest] = []
        self._numbers = count(1)
        self._key = f"{name}:1767225600:shardId-{{:012d}}"
        claimant = Claimant(owner=f"supervisor of {name}", dag_id=f"supervise_{name}", run_at=clock.now())
        self.supervisor = Supervisor(coordinator, claimant, probe=self)
        self.supervisor.store.submit(_spec(name, jobs))
        self.supervisor.turn(self)
        self.begin()

    def _coordinator(self, owner: str) -> SourceCoordinator:
        made = SourceCoordinator(self.store, self.name, owner, clock=self.clock, ownership_timeout=LONG)
        made.initialize()
        return made

    # The source

    def follow(self, spec: IngestionSpec) -> None:
        """Follow nothing: there is no source."""

    def discover_partitions(self) -> None:
        """Create the partitions of all shards."""
        keys = [self._key.format(number) for number in range(self.shards)]
        self._coordinator("sync").create_partitions({key: {"checkpoint": "TRIM_HORIZON"} for key in keys})

    def count(self) -> int | None:
        """Return how many shards there are."""
        return self.shards

    def lag(self, partition: Partition) -> int | None:
        """Return None: jobs report the lag of every shard."""
        return None

    def confirmed_progress(self, partition: Partition) -> Mapping[str, Any] | None:
        """Return None: jobs read every shard."""
        return None

    def has_news(self) -> bool | None:
        """Return None: the supervisor discovers nothing."""
        return None

    # The cluster

    def new_owner(self) -> str:
        """Return the owner of another job."""
        return f"host:supervise_{self.name}:run:supervise:-1:1:{next(self._numbers):08x}"

    def start(self, request: JobRequest) -> None:
        """Write the job's item; `begin` starts it."""
        start_by = self.clock.now() + LONG
        self._jobs.submit(request.job.owner, task=request.task, digest="", start_by=start_by)
        self._submitted.append(request)

    def end(self, job: Job, spec: IngestionSpec | None, reason: str) -> None:
        """Fail: nothing of this benchmark goes wrong."""
        raise AssertionError(f"no job may be ended by force: {reason}")

    def begin(self) -> None:
        """Start the submitted jobs, let them take over the shards, and end the jobs that they replace."""
        while self._submitted:
            request = self._submitted.pop()
            if request.job.replaces is not None:
                self._jobs.end(request.job.replaces, {"exit_code": 0})
                self._coordinator("rounds").give_up_owner(request.job.replaces)
            coordinator = self._coordinator(request.job.owner)
            record = JobRecord(coordinator)
            record.begin()
            record.note_reading()
            held = coordinator.leases.acquire(-(-self.shards // request.workers))
            lags = {partition.partition_key: 100 * number for number, partition in enumerate(held)}
            report = JobReport(at=self.clock.now() + LONG, totals=RecordCounts(processed=1), lag_ms=lags)
            record.note(report=report.to_text())

    def settle(self) -> None:
        """Let the supervisor record the ends of its jobs."""
        for _ in range(3):
            self.supervisor.turn(self)
            self.begin()


def _spec(name: str, jobs: int) -> dict[str, Any]:
    return {
        "version": 1,
        "source": name,
        "reads": {"kinesis": {"streams": name}},
        "writes": [{"parquet": {"path": f"/data/lake/{name}"}}],
        "supervise": {"task_count": jobs, "start_delay": 0, "task_duration": "P1D"},
    }


def timed(store: Counted, do: Callable[[], object]) -> tuple[float, int]:
    """Return the seconds of a call, and the number of calls to the store that it makes."""
    before, began = store.calls, time.perf_counter()
    do()
    return time.perf_counter() - began, store.calls - before


class Measurements:
    """The seconds and store calls of each kind of step."""

    def __init__(self, store: Counted) -> None:
        self._store = store
        self._seconds: dict[str, list[float]] = {}
        self._calls: dict[str, int] = {}

    def measure(self, name: str, do: Callable[[], object]) -> None:
        """Measure one step."""
        seconds, calls = timed(self._store, do)
        self._seconds.setdefault(name, []).append(seconds)
        self._calls[name] = calls

    def ms(self, name: str) -> float:
        """Return the median, in milliseconds."""
        return round(statistics.median(self._seconds[name]) * 1e3, 2)

    def p95_ms(self, name: str) -> float:
        """Return the 95th percentile, in milliseconds."""
        seconds = sorted(self._seconds[name])
        return round(seconds[-1 - len(seconds) // 20] * 1e3, 2)

    def calls(self, name: str) -> int:
        """Return the number of store calls of the last step of this kind."""
        return self._calls[name]

    @property
    def names(self) -> list[str]:
        """The measured steps."""
        return list(self._seconds)


def measure(size: Size, opened: CoordinationStore) -> Measurements:
    """Measure everything in an empty store."""
    clock = Clock()
    store = Counted(opened)
    store.initialize()
    figures = Measurements(store)
    for name, sources in {
        "idle": [Source(store, clock, f"idle{n}", shards=4, jobs=1) for n in range(size.idle)],
        "busy": [Source(store, clock, f"busy{n}", shards=64, jobs=4) for n in range(size.busy)],
        **{f"{n} shards": [Source(store, clock, f"of{n}", shards=n, jobs=min(n, 4))] for n in size.shards},
    }.items():
        for _ in range(size.rounds):
            measure_round(figures, name, sources, clock)
    return figures


def measure_round(figures: Measurements, name: str, sources: Sequence[Source], clock: Clock) -> None:
    """Measure a poll, a run and the turns of each of these sources once."""
    for source in sources:
        source.supervisor.poll()
        figures.measure(f"{name}: poll", source.supervisor.poll)
    clock.advance(PERIOD_SECONDS)
    for source in sources:
        figures.measure(f"{name}: run", source.supervisor.poll)
    clock.advance(PERIOD_SECONDS)
    for source in sources:
        figures.measure(f"{name}: turn, nothing to do", lambda s=source: s.supervisor.turn(s))  # type: ignore[misc]
        if not name.startswith("idle"):
            clock.advance(1)
            source.supervisor.store.request_handover()
            figures.measure(f"{name}: turn, all hand over", lambda s=source: s.supervisor.turn(s))  # type: ignore[misc]
            source.begin()
            source.settle()


def table(results: Mapping[str, Measurements]) -> str:
    """Return the measurements as a table, the stores side by side."""
    first = next(iter(results.values()))
    rows = [
        f"| {name} | "
        + " | ".join(f"{figures.ms(name):.1f} | {figures.p95_ms(name):.1f}" for figures in results.values())
        + f" | {first.calls(name)} |"
        for name in first.names
    ]
    heads = " | ".join(f"{store}: median, ms | 95th percentile, ms" for store in results)
    return "\n".join([f"| | {heads} | calls |", f"|---|{'--:|' * (2 * len(results) + 1)}", *rows])


def summary(figures: Measurements, size: Size) -> dict[str, Any]:
    """Return the measurements of one store as JSON."""
    polls_a_run = PERIOD_SECONDS // POLL_SECONDS - 1
    cost = size.idle * (figures.ms("idle: run") + polls_a_run * figures.ms("idle: poll")) / 1e3 / PERIOD_SECONDS
    thousand = figures.ms("1000 shards: turn, all hand over") / 1e3
    return {
        "idle_sources": size.idle,
        "busy_sources": size.busy,
        "median_ms": {name: figures.ms(name) for name in figures.names},
        "calls": {name: figures.calls(name) for name in figures.names},
        "share_of_a_core": round(cost, 3),
        "turn_of_1000_shards_seconds": round(thousand, 3),
        "turn_of_1000_shards_to_aim": round(thousand / AIM_SECONDS, 3),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sources, fewer shards, fewer rounds")
    parser.add_argument("--stores", default=",".join(STORES), help="the stores; default %(default)s")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else Size()
    results = {}
    logging.disable(logging.CRITICAL)
    try:
        for name in options.stores.split(","):
            with SERVERS[name]() as server:
                results[name] = measure(size, server.open("supervisor"))
    finally:
        logging.disable(logging.NOTSET)
    print(f"{size.idle} idle sources, {size.busy} busy ones; medians of {size.rounds} rounds:\n")
    print(table(results))
    print()
    print(json.dumps({name: summary(figures, size) for name, figures in results.items()}))


if __name__ == "__main__":
    main()
