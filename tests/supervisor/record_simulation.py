"""A simulated source with records, which its jobs deliver; reading restarts in another epoch after a reset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.job_reports import ErrorEvent
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, format_instant, read_instant
from airflow_provider_coordination.coordination.store import CoordinationStore
from tests.supervisor.source_simulation import SourceSimulation, SparkJob, Stream

MS = 1000
SYNC_SECONDS = 120
"""How often a job looks for new shards."""
START_SECONDS = 20
"""How long a submitted job takes to begin."""


class RecordStream(Stream):
    """A stream of records; a shard that has ended has children."""

    def __init__(self, simulation: RecordSimulation, shards: Sequence[str]) -> None:
        super().__init__(simulation, shards)
        self.clock = simulation.clock
        self.records: dict[str, list[datetime]] = {shard: [] for shard in shards}
        self.children: dict[str, list[str]] = {}

    def put(self, shard: str) -> None:
        """Add a record, later than all that was read so far."""
        self.clock.advance(0.001)
        self.records[shard].append(self.clock.now())

    def add(self, *shards: str) -> None:
        self.shards += shards
        self.records.update({shard: [] for shard in shards})

    def split(self, shard: str) -> None:
        self.children[shard] = [f"{shard}l", f"{shard}r"]
        self.shards.remove(shard)
        self.add(*self.children[shard])

    def discover_partitions(self) -> None:
        """Create the partitions of shards without a parent: the job that finishes a shard creates its children."""
        self._answer()
        made = {child for children in self.children.values() for child in children}
        roots = {shard: {} for shard in self.records if shard not in made}
        self._simulation.coordinator("sync").create_partitions(roots)

    def lag(self, partition: Partition) -> int | None:
        self._answer()
        unread = self.records[partition.partition_key][landed_position(partition) :]
        if unread:
            return max(1, round((self.clock.now() - unread[0]).total_seconds() * MS))
        return 1 if partition.partition_key in self.children else 0

    def confirmed_progress(self, partition: Partition) -> dict[str, Any] | None:
        if self.lag(partition) != 0 or partition.progress.get("landed"):
            return None
        return {**partition.progress, "delivered_until": format_instant(self.clock.now())}


def position(partition: Partition) -> int:
    """Return how many records of a partition are delivered."""
    return int(partition.progress.get("position", 0))


def landed_position(partition: Partition) -> int:
    """Return how many records of a partition are landed or delivered."""
    return max([position(partition), *partition.progress.get("landed", [])])


class RecordSimulation(SourceSimulation):
    """A source with records, and jobs that deliver them.

    :param shards: what it consists of at first.
    """

    def __init__(self, *shards: str, store: CoordinationStore | None = None) -> None:
        super().__init__(*shards, store=store)
        self.stream: RecordStream = RecordStream(self, shards)
        self.supervisor = self.another_supervisor(self.claimant)
        self.delivered: Counter[tuple[str, int, int]] = Counter()
        """By shard, epoch and place in the shard."""
        self.frozen: set[str] = set()
        """The owners of jobs that stand still."""
        self.slow: set[str] = set()
        """The owners of jobs that finish a long round before they notice that they are to stop."""
        self.dying: set[str] = set()
        """The owners of jobs that die as soon as they have landed records."""
        self.refused: set[str] = set()
        """The owners of jobs whose next delivery the sink refuses."""
        self.errors: dict[str, list[ErrorEvent]] = {}
        self._poller = self.coordinator("poller")
        self._processed: Counter[str] = Counter()
        self._synced: dict[str, float] = {}
        self._reached: dict[str, tuple[int, int]] = {}

    def check(self, context: str = "") -> None:
        """Check that no record was delivered twice, no position moved backwards, and none is ahead of what is read.

        :param context: what happened, for the text of an assertion.
        """
        assert all(times == 1 for times in self.delivered.values()), context
        for partition in self.view.partitions():
            key, reached = partition.partition_key, landed_position(partition)
            epoch = int(partition.progress.get("epoch", 0))
            assert (epoch, reached) >= self._reached.get(key, (0, 0)), context
            self._reached[key] = (epoch, reached)
            until = read_instant(partition.progress.get("delivered_until"))
            unread = self.stream.records[key][reached:]
            assert until is None or all(arrived > until for arrived in unread), context

    @property
    def is_settled(self) -> bool:
        """Whether the source is idle, every shard is known, and every record was delivered."""
        everything = {(shard, place) for shard, all_ in self.stream.records.items() for place in range(len(all_))}
        is_read = not self.unread and {(shard, place) for shard, _, place in self.delivered} == everything
        is_known = sorted(self.read_by()) == sorted(self.stream.shards)
        return is_read and is_known and not self.running and self.supervision().idle is not None

    def partition(self, key: str) -> Partition | None:
        return self.view.get(key)

    @property
    def unread(self) -> list[str]:
        """The shards with records that are not delivered."""
        found = {shard: self.partition(shard) for shard in self.stream.records}
        return [
            shard
            for shard, records in self.stream.records.items()
            if len(records) > (0 if (known := found[shard]) is None else position(known))
        ]

    def reset(self, key: str, to: int) -> None:
        """Have a shard read again from a place, as a person does."""
        partition = self.partition(key)
        assert partition is not None
        epoch = int(partition.progress.get("epoch", 0)) + 1
        self.backend.transact(update=[partition.reset({"position": to, "epoch": epoch}, self.clock.now())])
        self.store.record_reset()

    def watch(self) -> None:
        """Do what the poll of a source does: reopen what is due, and make a turn if there is a need."""
        self._poller.reopen_due()
        if self.supervisor.poll().needs_turn:
            self.turn()

    def begin(self) -> list[SparkJob]:
        for job in self.running:
            waited = (self.clock.now() - job.request.job.planned_at).total_seconds()
            if job.record is None and job.owner not in self.frozen and waited >= START_SECONDS:
                job.begin()
        self.rounds()
        return self.running

    def rounds(self) -> None:
        going = []
        for job in self.running:
            if job.record is None or job.owner in self.frozen:
                continue
            job.round(0)
            if job.stop is not None and job.owner not in self.slow:
                job.end()
            else:
                going.append(job)
        unfinished = list(self.view.partitions(*UNFINISHED))
        share = -(-len(unfinished) // max(1, sum(job.stop is None for job in going)))
        for job in going:
            for key in sorted(job.coordinator.leases.held)[share:]:
                job.coordinator.leases.give_up(key)
            job.round(share - len(job.coordinator.leases.held))
            if self.stream.error is None:
                self._read(job)

    def _read(self, job: SparkJob) -> None:
        """Look for new shards, and deliver what there is."""
        now = self.clock.monotonic()
        if now - self._synced.get(job.owner, 0) >= SYNC_SECONDS:
            self._synced[job.owner] = now
            self.stream.discover_partitions()
        for key in sorted(job.coordinator.leases.held):
            with suppress(*LOST):
                self._deliver(job, key)
            if job.is_dead:
                return
        lag_ms = dict.fromkeys(sorted(job.coordinator.leases.held), 0)
        job.report(self._processed[job.owner], errors=self.errors.get(job.owner, ()), **lag_ms)

    def _deliver(self, job: SparkJob, key: str) -> None:
        leases = job.coordinator.leases
        partition = leases.current(key)
        assert partition is not None
        began, end = position(partition), landed_position(partition)
        if end == began and len(self.stream.records[key]) > began:
            end = len(self.stream.records[key])
            partition = leases.save_progress(key, {**partition.progress, "landed": [end]})
            if job.owner in self.dying:
                job.is_dead = True
                return
        if end > began and job.owner in self.refused:
            self.refused.remove(job.owner)
            leases.fail(key, "no space left")
            return
        if end > began or partition.attempts:
            leases.checkpoint(key, {**partition.progress, "position": end, "landed": []})
            epoch = int(partition.progress.get("epoch", 0))
            self.delivered.update((key, epoch, place) for place in range(began, end))
            self._processed[job.owner] += end - began
        if key in self.stream.children and end == len(self.stream.records[key]):
            leases.complete(key, create={child: {} for child in self.stream.children[key]})

    def fails(self, job: SparkJob, key: str) -> None:
        """Have the source refuse a job's read of a shard."""
        error = ErrorEvent(
            at=self.clock.now(), error_class="SourceError", message="refused", is_stream_error=True, partition=key
        )
        self.errors.setdefault(job.owner, []).append(error)
        job.report(self._processed[job.owner], errors=self.errors[job.owner])
        job.coordinator.leases.fail(key, "refused")
