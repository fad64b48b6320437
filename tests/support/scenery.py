"""Sources in all states for the pages, some with thousands of partitions.

What is written here is what jobs write, through the same store and the same values; of some of it the past is made up.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentSet
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.freshness import Ages
from airflow_provider_coordination.coordination.interval_names import IntervalName
from airflow_provider_coordination.coordination.intervals import (
    TALLY_FAMILY,
    Counts,
    Delivered,
    IntervalLedger,
    Standing,
)
from airflow_provider_coordination.coordination.job_reports import (
    WINDOWS,
    ErrorEvent,
    JobReport,
    RecordCounts,
    SinkReport,
)
from airflow_provider_coordination.coordination.jobs import JobRecord, Jobs
from airflow_provider_coordination.coordination.partition import (
    PARKED_UNTIL,
    Partition,
    format_instant,
    new_partition,
    source_identifier,
)
from airflow_provider_coordination.coordination.workers import new_owner
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.progress import Gap, ShardProgress, ShardRange, partition_key
from airflow_provider_coordination.sources.kinesis.shards import MAX_HASH_KEY
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.stores.history_recording import RecordingStore
from airflow_provider_coordination.stores.kind import DEFAULT_TABLE
from airflow_provider_coordination.stores.sql import SqlStore
from airflow_provider_coordination.supervisor.observation import LagReading, LagSeries
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant, DetailedState, SupervisedJob, TaskCountChange
from airflow_provider_coordination.supervisor.turn import task_of
from tests.support.clock import ManualClock

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
KEPT = timedelta(days=7)
RUN = "scheduled__2026-11-21T00:00:00+00:00"
THROTTLED = "ClientError: An error occurred (SlowDown) when calling the GetObject operation: Please reduce your rate"
DOWN = "OperationalError: connection to server at db.example.com, port 5432 failed: Connection refused"
DAMAGED = "orders-17.json.gz: line 18 is not JSON: Expecting ',' delimiter: column 31"

EPOCH = 1_760_000_000
STREAM = "telemetry"
TABLE = "customers"

SPEC: Mapping[str, Any] = {
    "version": 1,
    "reads": {"s3": {"paths": "s3://orders/in", "format": "json", "aws_conn_id": None, "region_name": "eu-west-1"}},
    "writes": [{"parquet": {"path": "/data/lake/orders"}}],
    "supervise": {"task_count": 2},
    "context": {"description": "every order"},
}

ODD_SOURCE = 'odd/names & "quotes" <b>50%</b> 🦀'
ODD_KEYS = (
    "a/b/c d.json",
    "../%2e%2e/?key=x&y=1#z",
    "\"double\" and 'single' and `back`",
    "<img src=x onerror=\"document.title='pwned'\">",
    "<script>document.title='pwned'</script>",
    "🦀 crabs/日本語/ünïcödé",
    "|:;,\\+= two  spaces",
    "x" * 1000,
)


class Scenery:
    """The sources of one store.

    :param url: the store's; an SQLAlchemy URL.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = self._open()
        self.store.initialize()

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    # What a test asks for

    def worker(self, source: str, number: int = 0, **options: Any) -> SourceCoordinator:
        """Return a worker of a source, of a try of a mapped task."""
        coordinator = SourceCoordinator(self.store, source, owner(number), **options)
        coordinator.initialize()
        return coordinator

    def get(self, source: str, key: str) -> Partition | None:
        """Return the current state of a partition."""
        return self.store.get(source_identifier(source), key)

    def found(self, source: str, key: str) -> Partition:
        """Return the current state of an existing partition."""
        partition = self.get(source, key)
        assert partition is not None
        return partition

    def make(self, source: str, partitions: Mapping[str, Callable[[Partition], Partition]]) -> None:
        """Create partitions of objects, and change each of them."""
        family, now = source_identifier(source), datetime.now(UTC)
        self.store.create([new_partition(family, key, now).with_progress(objects(key)) for key in partitions])
        for key, change in partitions.items():
            self.change(source, key, change)

    def change(self, source: str, key: str, change: Callable[[Partition], Partition]) -> None:
        """Change a partition. The worker ends afterwards, so that the history has the change at once."""
        before = self.found(source, key)
        if (after := change(before)) != before:
            with closing(self._open()) as store:
                store.transact(update=[after])

    def awaiting(self, source: str, key: str, *handles: str, timeout: timedelta = HOUR) -> AcknowledgmentSet:
        """Make a partition of which a batch is delivered and not acknowledged; call it before any other is there."""
        worker = self.worker(source)
        worker.create_partitions({key: objects(key)})
        [acquired] = worker.leases.acquire(1)
        assert acquired.partition_key == key
        landed = PartitionProgress.from_mapping(acquired.progress).landing(a_batch(key))
        made = AcknowledgmentSets(worker, SourceBatches()).begin(
            key, a_batch(key).batch_id, handles, timeout=timeout, progress=landed.to_mapping(), run=f"nightly:{RUN}"
        )
        worker.leases.await_acknowledgment(key, timeout)
        return made

    def died(self, source: str, key: str) -> None:
        """Make a partition whose worker died: its lease ran for 15 minutes, and expired 5 minutes ago."""
        clock = ManualClock(datetime.now(UTC) - 20 * MINUTE)
        with closing(self._open(clock)) as store:
            worker = SourceCoordinator(store, source, owner(1), clock=clock, ownership_timeout=15 * MINUTE)
            worker.initialize()
            worker.create_partitions({key: objects(key)})
            assert [acquired.partition_key for acquired in worker.leases.acquire(1)] == [key]

    # Whole sources

    def trouble(self, source: str) -> None:
        """Make a source with a partition in each state, and acknowledgment sets that are pending."""
        now = datetime.now(UTC)
        for number, minutes in enumerate((25, 70)):
            key = f"delivered/{number}.json.gz"
            self.awaiting(source, key, "warehouse", "quality check", timeout=minutes * MINUTE)
        self.make(
            source,
            {
                "state/waiting.json.gz": lambda p: p,
                "state/delayed.json.gz": lambda p: p.given_up(now + 30 * MINUTE),
                "state/failing.json.gz": lambda p: p.failed(THROTTLED).given_up(now),
                "state/held.json.gz": lambda p: p.acquired(owner(0), now + 6 * HOUR, now - 3 * HOUR),
                "state/expired.json.gz": lambda p: p.acquired(owner(1), now - 5 * MINUTE, now - 2 * HOUR),
                "state/resting.json.gz": lambda p: p.failed(THROTTLED).failed(THROTTLED).resting(now + 3 * HOUR),
                "state/due.json.gz": lambda p: p.closed(now - MINUTE),
                "state/parked.json.gz": lambda p: replace(p.failed(DAMAGED), attempts=3).resting(PARKED_UNTIL),
                "state/completed.json.gz": lambda p: p.completed(now - 2 * MINUTE),
                "state/unreadable.json.gz": lambda p: replace(p, progress={}, unreadable_progress='{"kind": "s3", "it'),
            },
        )

    def night(self, source: str) -> None:
        """Make a source of objects that three workers went through within three hours; one died, and one was killed."""
        clock = ManualClock(datetime.now(UTC) - 3 * HOUR)
        store = self._open(clock)

        def worker(number: int) -> SourceCoordinator:
            made = SourceCoordinator(store, source, owner(number), clock=clock, ownership_timeout=15 * MINUTE)
            made.initialize()
            return made

        workers = [worker(number) for number in range(3)]
        keys = [f"2026/11/21/{hour:02d}/orders-{part:02d}.json.gz" for hour in range(18, 23) for part in range(5)]
        workers[0].create_partitions({key: objects(key) for key in keys})
        turns = 30
        for turn in range(turns):
            clock.advance((3 * HOUR).total_seconds() / turns)
            for each in workers:
                each.leases.renew_due()
            now = workers[turn % 3]
            if turn == 9:  # killed with its machine: the others take its partitions when its leases run out
                workers[0] = worker(0)
                continue
            if turn == 17:  # killed, and its task's end gives everything back
                workers[1].give_up_owner(now.owner)
                workers[2] = worker(2)
                continue
            for key in list(now.leases.held)[:1]:
                if turn % 7 == 4:
                    now.leases.fail(key, THROTTLED)
                else:
                    now.leases.complete(key, finished(key))
            now.leases.acquire(2 - len(now.leases.held))
        store.close()

    def many(self, source: str, count: int) -> None:
        """Make a number of partitions: most wait, some are held, at rest, parked and completed."""
        now = datetime.now(UTC)
        family = source_identifier(source)
        made = []
        for number in range(count):
            key = f"logs/2026/11/21/part-{number:05d}.json.gz"
            since = now - timedelta(seconds=count - number)
            waiting = new_partition(family, key, since).with_progress(objects(key))
            match number % 20:
                case 3 | 13:
                    partition = waiting.acquired(owner(number % 8), now + 6 * HOUR, since)
                case 7:
                    partition = waiting.failed(THROTTLED).resting(now + 6 * HOUR)
                case 11:
                    partition = waiting.failed(DAMAGED).resting(PARKED_UNTIL) if number % 500 == 11 else waiting
                case 17 | 18 | 19:
                    partition = waiting.completed(since)
                case _:
                    partition = waiting
            made.append(replace(partition, change=None))
        for start in range(0, count, 1000):
            self.store.create(made[start : start + 1000])

    def tree(self, source: str, shards: int) -> None:
        """Make the leases of a stream that was split and merged into a number of shards; an open one is missing."""
        now = datetime.now(UTC)
        family = source_identifier(source)
        leaves, made = grown(shards)
        missing = leaves[len(leaves) // 3].shard_id
        partitions = []
        for number, progress in enumerate(made.values()):
            if progress.shard_id == missing:
                continue
            key = partition_key(STREAM, EPOCH, progress.shard_id)
            waiting = new_partition(family, key, now - 2 * HOUR).with_progress(progress.to_mapping())
            if progress.is_ended:
                partition = waiting.completed(now - timedelta(minutes=shards - number))
            elif number % 9 == 0:
                lost = Gap(
                    after=progress.checkpoint,
                    before="9",
                    since=None,
                    until=None,
                    found_at=now,
                    reason="trimmed before it was read",
                )
                parked = waiting.with_progress(progress.with_gap(lost).to_mapping()).failed(
                    "data loss: records were trimmed"
                )
                partition = parked.resting(PARKED_UNTIL)
            elif number % 5 == 0:
                partition = waiting
            else:
                partition = waiting.acquired(owner(number % 4), now + 6 * HOUR, now - HOUR)
            partitions.append(replace(partition, change=None))
        for start in range(0, len(partitions), 1000):
            self.store.create(partitions[start : start + 1000])

    def followed(self, source: str) -> None:
        """Make a DynamoDB table that is followed: of one stream, and of the next one, whose history is being read."""
        now, family = datetime.now(UTC), source_identifier(source)
        lineage = {"a": ("", "bc"), "b": ("a", "d"), "c": ("a", ""), "d": ("b", ""), "e": ("", "f"), "f": ("e", "")}
        states: dict[str, Callable[[Partition], Partition]] = {
            "a": lambda p: p.completed(now - HOUR),
            "b": lambda p: p.completed(now - MINUTE),
            "c": lambda p: p.acquired(owner(0), now + 6 * HOUR, now - HOUR),
            "d": lambda p: p.acquired(owner(1), now + 6 * HOUR, now - MINUTE),
            "e": lambda p: p.completed(now - MINUTE),
            "f": lambda p: p.failed("data loss: records were trimmed").resting(PARKED_UNTIL),
        }
        made = []
        for epoch, names, delivered in ((EPOCH, "abcdef", 4), (EPOCH + 1, "ae", 2)):
            for segment in range(4):
                item = {"segment": segment, "total": 4, "keys": ["id"], "table_id": "1", "size": 9, "epoch": epoch}
                progress = PartitionProgress(kind="dynamodb", items=(item,)).to_mapping()
                part = new_partition(family, f"{TABLE}/{epoch}/{segment}", now).with_progress(progress)
                held = part.acquired(owner(2), now + 6 * HOUR, now - MINUTE)
                made.append(part.completed(now) if segment < delivered else held if segment == delivered else part)
            for name in names:
                parent, children = lineage[name] if epoch == EPOCH else ("", "")
                shard = replace(
                    _shard(0, tuple(map(shard_of_table, parent)), 0, 0),
                    kind="dynamodb_streams",
                    stream=TABLE,
                    shard_id=shard_of_table(name),
                    starting_hash_key="",
                    ending_hash_key="",
                    is_ended=bool(children),
                    children=tuple(
                        ShardRange(shard_of_table(each), (shard_of_table(name),), "", "") for each in children
                    ),
                )
                part = new_partition(family, partition_key(TABLE, epoch, shard.shard_id), now - 2 * HOUR)
                part = part.with_progress(shard.to_mapping())
                made.append(states[name](part) if epoch == EPOCH else part)
        self.store.create([replace(part, change=None) for part in made])

    def supervised(self, source: str, **spec: Any) -> None:
        """Give a source a supervisor with two jobs, one of which runs and reports; it looked a moment ago."""
        worker = self.worker(source)
        kept, jobs, now = SupervisionStore(worker.view), Jobs(worker.view), datetime.now(UTC)
        kept.submit({**SPEC, "source": source, **spec}, by="ann", reason="the first")
        claimant = Claimant(owner="host:supervise", dag_id="supervise_orders", run_at=now)
        stored = kept.acquire(claimant)
        names = [f"{owner(number)}:job" for number in range(2)]
        for name in names:
            jobs.submit(name, task=task_of(source), digest="", start_by=now + HOUR)
        health = replace(stored.supervision.health, state=DetailedState.RUNNING, has_succeeded=True)
        health = health.with_error(
            ErrorEvent(at=now, error_class="ReadTimeout", message="no answer", is_stream_error=True)
        )
        change = TaskCountChange(at=now, before=1, after=2, reason="6 of 21 points have a lag of at least 6000 seconds")
        kept.save(
            stored,
            replace(
                stored.supervision,
                started_at=now - HOUR,
                polled_at=now,
                health=health,
                jobs=(
                    SupervisedJob(owner=names[0], spec_version=1, planned_at=now - MINUTE, began_at=now - MINUTE),
                    SupervisedJob(owner=names[1], spec_version=1, planned_at=now - MINUTE),
                ),
                task_count_changes=(change,),
            ),
        )
        kept.save_lag(LagSeries().with_reading(LagReading(at=now, partitions={"state/held.json.gz": 1200})))
        record = JobRecord(SourceCoordinator(self.store, source, names[0]))
        record.begin()
        record.note_reading()
        error = {"at": format_instant(now), "stage": "parse", "error": "line 18 is not JSON"}
        rates = {window: {"processed": 2.5} for window in WINDOWS}
        totals = RecordCounts(processed=300, processed_bytes=60_000, unparseable=1)
        report = JobReport(at=now, totals=totals, rates=rates, lag_ms={"state/held.json.gz": 800}, parse_errors=[error])
        record.note(report=report.to_text(), application_id="app-1")

    def counted(self, source: str) -> None:
        """Make a stream whose hours are counted: two days are reported, late records came, and a shard is parked."""
        now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        worker = self.worker(source)
        ledger = IntervalLedger(worker.view)
        ledger.begin(HOUR, now - 50 * HOUR)
        for number in range(2):
            until = now - (4 if number else 1) * HOUR
            shard = replace(_shard(number, (), 0, MAX_HASH_KEY), delivered_until=until + 4 * timedelta(seconds=1))
            key = partition_key(STREAM, EPOCH, shard.shard_id)
            change = (lambda p: p.failed(DAMAGED).resting(PARKED_UNTIL)) if number else (lambda p: p)
            self.store.create(
                [new_partition(worker.view.source_identifier, key, now).with_progress(shard.to_mapping())]
            )
            self.change(source, key, change)
        task = json.dumps(["intervals_clicks", RUN, "interval_complete", -1])
        for hours in range(50, 6, -1):
            self.tally(source, now - hours * HOUR, 1000 + hours)
            ledger.take(task, lambda taken: Standing.REPORTED, Delivered(now - 6 * HOUR), lambda start, end: ())
        ledger.take(task, lambda taken: Standing.RUNNING, Delivered(now - 6 * HOUR), lambda start, end: ())
        self.tally(source, now - 30 * HOUR, 12)
        for hours in range(6, 0, -1):
            self.tally(source, now - hours * HOUR, 300 + hours, late=hours % 3, dead_letters=hours % 2)

    def tally(self, source: str, start: datetime, records: int, **facts: int) -> None:
        """Count a delivered batch in the interval that starts at an instant."""
        counts = Counts(start=start, records=records, bytes=100 * records, batches=1, **facts)
        tally = new_partition(source_identifier(source, family=TALLY_FAMILY), uuid.uuid4().hex, start)
        self.store.create([tally.with_progress(counts.to_mapping())])

    def backfilled(self, source: str, day: datetime) -> None:
        """Make the sources of the hours of a day: delivered, failing, in work and waiting; two hours have no run."""
        now = datetime.now(UTC)
        states: dict[int, Callable[[Partition], Partition]] = {
            3: lambda p: p.failed(DAMAGED).resting(PARKED_UNTIL),
            4: lambda p: p.failed(THROTTLED).given_up(now),
            5: lambda p: p.acquired(owner(0), now + 6 * HOUR, now - MINUTE),
            6: lambda p: p,
        }
        for hour in sorted({*range(24)} - {20, 21}):
            start = day + hour * HOUR
            name = str(IntervalName(source=source, start=start, end=start + HOUR))
            self.make(name, {"a": lambda p: p.completed(now), "b": states.get(hour, lambda p: p.completed(now))})

    def lost(self, source: str, shards: int) -> None:
        """Make shards that are parked, as their data was trimmed before it was read."""
        gap = Gap(
            after="TRIM_HORIZON", before="100", since=None, until=None, found_at=datetime.now(UTC), reason="trimmed"
        )
        for number in range(shards):
            progress = _shard(number, (), 0, MAX_HASH_KEY).with_gap(gap).to_mapping()
            key = partition_key(STREAM, EPOCH, f"shardId-{number:012}")
            self.make(source, {key: lambda p, progress=progress: replace(p, progress=progress).resting(PARKED_UNTIL)})

    def without_sink(self, source: str) -> None:
        """Make a source with three sinks, of which one has been unavailable for seven minutes; its job runs."""
        self.make(source, {"a": lambda p: p.failed(DOWN)})
        now = datetime.now(UTC)
        sinks = (
            SinkReport(name="warehouse", kind="sql").unavailable(now - 7 * MINUTE, DOWN, 1).unavailable(now, DOWN, 3),
            SinkReport(name="lake", kind="delta").available(now),
            SinkReport(name="calls", kind="foreach_batch", is_exactly_once=False).available(now),
        )
        record = JobRecord(SourceCoordinator(self.store, source, owner(0)))
        record.begin()
        record.note_reading()
        record.note(report=JobReport(at=now, sinks=sinks, ages={"lake": Ages.between(2, 2, 10)}).to_text())

    def too_slow(self, source: str) -> None:
        """Make a source whose sink is not as fresh as the target; its job runs."""
        self.make(source, {"a": lambda partition: partition})
        report = JobReport(
            at=datetime.now(UTC),
            sinks=(SinkReport(name="lake", kind="delta"),),
            ages={"lake": Ages.between(9, 9, 10)},
            freshness_problem="the sinks cannot be as fresh as 2 s; raise 'freshness'",
        )
        record = JobRecord(SourceCoordinator(self.store, source, owner(0)))
        record.begin()
        record.note(report=report.to_text())

    def odd(self) -> None:
        """Make a source and partitions with names that need escaping."""
        self.make(ODD_SOURCE, dict.fromkeys(ODD_KEYS, lambda partition: partition))
        for key in ODD_KEYS[3:6]:
            self.change(ODD_SOURCE, key, lambda p: p.failed(f"cannot read {p.partition_key}").resting(PARKED_UNTIL))

    def _open(self, clock: Clock | None = None) -> RecordingStore:
        return RecordingStore(SqlStore(self.url, table=DEFAULT_TABLE), KEPT, clock=clock)


def owner(number: int) -> str:
    """Return a new owner, of a try of a mapped task."""
    return new_owner("nightly_orders", RUN, "ingest", number, 1)


def objects(key: str, count: int = 8) -> dict[str, Any]:
    """Return the first progress of a partition of objects."""
    items = [{"bucket": "shop", "key": f"{key}/{n}", "size": 1 << 20} for n in range(count)]
    return PartitionProgress(kind="s3", items=tuple(items)).to_mapping()


def finished(key: str) -> dict[str, Any]:
    """Return the progress of a partition whose objects are all delivered."""
    return replace(PartitionProgress.from_mapping(objects(key)), checkpoint="8", is_ended=True).to_mapping()


def a_batch(key: str) -> LandedBatch:
    """Return a batch of the first four objects of a partition."""
    return LandedBatch(
        batch_id=f"s3-{key.encode().hex()[-20:]}",
        start="",
        end="4",
        file="s3://lake/landing/part-0.parquet",
        file_bytes=2_117_412,
        records=48_213,
        bytes=9_812_334,
        is_last=False,
        read_until=None,
        fencing_token=1,
    )


def grown(shards: int, roots: int = 8) -> tuple[list[ShardProgress], dict[str, ShardProgress]]:
    """Return the open shards, in the order of their hash keys, and all, by their names in the order in which they came.

    Now a shard is split, now two neighbours are merged, until the number is reached.
    """
    size = (MAX_HASH_KEY + 1) // roots
    leaves = [_shard(n, (), n * size, MAX_HASH_KEY if n == roots - 1 else (n + 1) * size - 1) for n in range(roots)]
    made = {leaf.shard_id: leaf for leaf in leaves}
    turn = 0
    while len(made) < shards:
        place = turn * 7 % (len(leaves) - 1)
        merges = turn % 3 == 2 and len(leaves) > roots
        parents = leaves[place : place + 2] if merges else leaves[place : place + 1]
        names = tuple(parent.shard_id for parent in parents)
        first, last = int(parents[0].starting_hash_key), int(parents[-1].ending_hash_key)
        middle = (first + last) // 2
        ranges = [(first, last)] if merges or first == last else [(first, middle), (middle + 1, last)]
        born = [_shard(len(made) + n, names, *keys) for n, keys in enumerate(ranges)]
        children = tuple(
            ShardRange(
                shard_id=child.shard_id,
                parent_shard_ids=names,
                starting_hash_key=child.starting_hash_key,
                ending_hash_key=child.ending_hash_key,
            )
            for child in born
        )
        for parent in parents:
            made[parent.shard_id] = replace(parent, is_ended=True, children=children)
        made |= {child.shard_id: child for child in born}
        leaves[place : place + len(parents)] = born
        turn += 1
    return leaves, made


def shard_of_table(letter: str) -> str:
    """Return the id of a shard of the table that is followed."""
    return f"shardId-0000000176440001{ord(letter):04}-0000000{letter}"


def _shard(number: int, parents: Sequence[str], first: int, last: int) -> ShardProgress:
    return ShardProgress(
        stream=STREAM,
        shard_id=f"shardId-{number:012d}",
        parent_shard_ids=tuple(parents),
        starting_hash_key=str(first),
        ending_hash_key=str(last),
        checkpoint="TRIM_HORIZON",
        delivered_until=datetime.now(UTC) - timedelta(seconds=number % 90),
        throughput=float(1000 + 37 * number % 9000),
    )


def soon(after: timedelta) -> datetime:
    """Return an instant relative to now."""
    return datetime.now(UTC) + after
