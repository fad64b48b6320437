"""Supervised sources for the pages: the records of a supervisor and its jobs for the last hour."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.job_reports import JobReport, RecordCounts
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.workers import new_owner
from airflow_provider_coordination.sources.kinesis.progress import partition_key
from airflow_provider_coordination.stores.history_recording import RecordingStore
from airflow_provider_coordination.stores.kind import DEFAULT_TABLE
from airflow_provider_coordination.stores.sql import SqlStore
from airflow_provider_coordination.supervisor.supervision import Claimant, TaskCountChange
from tests.supervisor.source_simulation import Cluster, SourceSimulation, SparkJob, Stream
from tests.supervisor.specs import spec_with
from tests.support.clock import ManualClock
from tests.support.scenery import EPOCH, grown

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
FIVE_MINUTES_OF_A_DAY = 12 * 22
"""How many there are in the day before the hour, as far as the series of lag reaches."""
UNSEEN = range(12 * 9, 12 * 11)
"""Those of them in which nobody looked."""
SHARD = f"clicks:{EPOCH}:shardId-{{:012d}}"
ERROR = {
    "stage": "parse",
    "error": "[MALFORMED_RECORD_IN_PARSING] Malformed records are detected: {'id': 7, 'at': 'yesterday'}",
    "shard_id": "shardId-000000000001",
    "sequence_number": "49590338271490256608559692538361571095921575989136588898",
}


class SupervisedSource(SourceSimulation):
    """A source of a store, with a supervisor and jobs whose clock runs until now.

    :param url: of the store.
    :param source: its name.
    :param dag_id: of the DAG that supervises; by default one that Airflow does not have, and so cannot be paused.
    :param shards: how many shards it has.
    :param minutes: how long ago its clock begins.
    """

    def __init__(
        self, url: str, source: str, *, dag_id: str = "supervise_shop", shards: int = 4, minutes: int = 60
    ) -> None:
        clock = ManualClock(datetime.now(UTC) - minutes * MINUTE)
        store = RecordingStore(SqlStore(url, table=DEFAULT_TABLE), timedelta(days=7), clock=clock)
        names = [SHARD.format(number) for number in range(shards)]
        super().__init__(*names, store=store, clock=clock, source=source, prefix=None)
        self.stream = _Shards(self, names)
        self.cluster = _NamedCluster(self)
        self.claimant = Claimant(owner=f"supervisor of {source}", dag_id=dag_id, run_at=clock.now())
        self.supervisor = self.another_supervisor(self.claimant)
        self._minutes = 0

    def coordinator(self, owner: str, store: CoordinationStore | None = None) -> SourceCoordinator:
        """See `SourceSimulation.coordinator`; leases last until the test is over."""
        made = SourceCoordinator(
            store or self.backend, self.source, owner, ownership_timeout=2 * HOUR, clock=self.clock
        )
        made.initialize()
        return made

    def submit_spec(self, path: str, value: Any, *, by: str, reason: str) -> None:
        """Submit a spec with one value of its own."""
        spec = spec_with(path, value)
        self.store.submit({**spec, "source": self.source}, by=by, reason=reason)

    def close(self) -> None:
        """Close the store."""
        self.backend.close()

    # An hour

    def hour(self) -> SupervisedSource:
        """Let an hour pass: the spec changes, a job fails, the number of jobs changes, and records are bad."""
        self.submit_spec("supervise.start_delay", 0, by="ann", reason="clicks of the new shop")
        self.turn()
        self.minutes(20)
        self.submit_spec("context.description", "every click of the new shop", by="ben", reason="so that people know")
        self._scale(2, 2, "41 % of the last 10 min ask for more, and 8 of 10 min have passed since the last change")
        self._scale(2, 3, "lag at least 6000 s in 41 % of the last 10 min: 1 job more")
        self.minutes(20)
        self._scale(3, 2, "lag at most 1000 s in 93 % of the last 10 min: 1 job fewer")
        self.running[0].end(1, "Py4JJavaError: ExecutorLostFailure (executor 3 exited): Container killed, memory")
        self.turn()
        self.minutes(20)
        return self

    def day(self) -> SupervisedSource:
        """Let the day before that hour be known: two peaks of lag, and two hours in which nobody looked."""
        series = self.store.lag()
        begin, counted, older = series.points[0], RecordCounts(), []
        for number in range(FIVE_MINUTES_OF_A_DAY, 0, -1):
            busy = max(0.0, math.sin(number / 24)) ** 2
            counted += _counts_of_five_minutes(number, busy)
            if number not in UNSEEN:
                oldest = int(2_000 + 900_000 * busy)
                at = begin.at - number * 5 * MINUTE
                older.append(replace(begin, at=at, oldest_ms=oldest, sum_ms=3 * oldest, counted=counted))
        later = [replace(point, counted=point.counted + counted) for point in series.points]
        self.store.save_lag(replace(series, points=(*older, *later)))
        self._scale(2, 2, "lag at least 6000 s asks for more, and there are no more than 2 unfinished partitions")
        return self

    def losing_contact(self) -> SupervisedSource:
        """Let the source stop answering."""
        self.stream.error = SourceError("stream 'clicks' of eu-west-1: ResourceNotFoundException: no such stream")
        self.minutes(2)
        return self

    def minutes(self, number: int) -> None:
        """Let minutes pass, in which jobs read and report."""
        for _ in range(number):
            self._minutes += 1
            for _ in range(2):
                self.go_on(30, every=30)
                self._report()

    def _report(self) -> None:
        for job in self.running:
            if job.record is not None:
                self._report_of(job)

    def _report_of(self, job: SparkJob) -> None:
        assert job.record is not None
        wave = 1 + math.sin(self._minutes / 6)
        counts = getattr(job, "counts", RecordCounts()) + RecordCounts(
            processed=int(30_000 * (2 + wave)),
            processed_bytes=int(12_000_000 * (2 + wave)),
            processed_with_error=7 if self._minutes % 10 == 0 else 0,
            unparseable=40 if self._minutes > 45 else 0,
            thrown_away=int(20 * wave),
        )
        job.counts = counts  # type: ignore[attr-defined]
        rate = {name: value / 30 for name, value in _last(wave).items()}
        report = JobReport(
            at=self.clock.now(),
            totals=counts,
            rates=dict.fromkeys(("1m", "5m", "15m"), rate),
            lag_ms={
                key: int(4_000 * wave * (1 + number)) for number, key in enumerate(sorted(job.coordinator.leases.held))
            },
            parse_errors=[{"at": f"{self.clock.now():%Y-%m-%dT%H:%M:%SZ}", **ERROR}],
        )
        job.record.note(report=report.to_text(), application_id=f"application_1763769600_{job.owner[-4:]}")

    def _scale(self, before: int, after: int, reason: str) -> None:
        stored = self.store.acquire(self.claimant)
        change = TaskCountChange(at=self.clock.now(), before=before, after=after, reason=reason)
        changes = (*stored.supervision.task_count_changes, change)
        self.store.save(stored, replace(stored.supervision, task_count_changes=changes))


class _Shards(Stream):
    def discover_partitions(self) -> None:
        leaves, _ = grown(len(self.shards), roots=len(self.shards))
        made = {partition_key("clicks", EPOCH, leaf.shard_id): leaf.to_mapping() for leaf in leaves}
        self._simulation.coordinator("sync").create_partitions(made)


class _NamedCluster(Cluster):
    def new_owner(self) -> str:
        return new_owner("supervise_shop", "scheduled__2026-11-22T00:00:00+00:00", "supervise", -1, 1)


def _counts_of_five_minutes(number: int, busy: float) -> RecordCounts:
    return RecordCounts(
        processed=int(300 * (500 + 6_000 * busy)),
        processed_bytes=int(300 * (200_000 + 2_400_000 * busy)),
        processed_with_error=3 if number % 17 == 0 else 0,
        unparseable=900 if 40 < number < 52 else 0,
        thrown_away=int(60 * busy),
    )


def _last(wave: float) -> Mapping[str, float]:
    return {"processed": 30_000 * (2 + wave), "processed_bytes": 12_000_000 * (2 + wave), "unparseable": 3.0}
