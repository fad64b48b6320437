"""One or five minutes of everything at once: shards split and merge, workers die, stop and lose their store.

What holds at the end: each event is in the dataset once, each key's in order, and the workers hold even shares.
"""

from __future__ import annotations

import json
import logging
import random
import signal
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from sqlalchemy.engine import make_url

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.stores import StoreSettings
from tests.support.aggregation import aggregate
from tests.support.cable import Cable
from tests.support.depth import at_depth
from tests.support.kinesis_server.process import KinesisServerProcess
from tests.support.seed import seeded
from tests.support.spark_job import Job, Pipeline

log = logging.getLogger(__name__)

SOAK_SECONDS = at_depth(short=60.0, deep=300.0)
SHARDS = 16
WORKERS = 3
KEYS = 64
RECORDS_A_SECOND = 20
EVENTS_A_RECORD = 3
HARM_EVERY_SECONDS = 10.0
RESHARD_EVERY_SECONDS = 4.0
LEASE_SECONDS = 20.0
MARGIN_SECONDS = 2.0
SETTLE_SECONDS = 150.0
FEWEST_SHARDS, MOST_SHARDS = 12, 20


@dataclass
class Worker:
    """A Spark job, and its way to the store."""

    job: Job
    cable: Cable


@dataclass
class Soak:
    """A stream that keeps changing, and the workers that read it.

    :param pipeline: the stream, the store and the jobs.
    :param connect: makes a connection to the database.
    :param url: the database, for a port of this machine.
    :param chance: decides what happens.
    """

    pipeline: Pipeline
    connect: Callable[[], socket.socket]
    url: Callable[[int], str]
    chance: random.Random
    cables: ExitStack
    workers: list[Worker] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)

    # The stream

    def send(self) -> None:
        """Send records until it is over, each key's events in order."""
        while not self.over.wait(1.0):
            entries = []
            for _ in range(RECORDS_A_SECOND):
                key = f"key-{self.chance.randrange(KEYS)}"
                events = []
                for _ in range(EVENTS_A_RECORD):
                    self.sent[key] += 1
                    events.append((key, json.dumps({"key": key, "n": self.sent[key]}).encode()))
                entries.append({"Data": aggregate(events), "PartitionKey": key})
            answer = self.pipeline.client.put_records(StreamName=self.pipeline.stream, Records=entries)
            assert answer["FailedRecordCount"] == 0

    def reshard(self) -> None:
        """Split and merge until it is over."""
        while not self.over.wait(self.chance.uniform(0.5, 1.5) * RESHARD_EVERY_SECONDS):
            shards = self.open_shards
            grow = len(shards) < MOST_SHARDS and (self.chance.random() < 0.5 or len(shards) <= FEWEST_SHARDS)
            if grow:
                shard = self.chance.choice(shards)
                first, last = (int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
                self.pipeline.client.split_shard(
                    StreamName=self.pipeline.stream,
                    ShardToSplit=shard["ShardId"],
                    NewStartingHashKey=str((first + last) // 2),
                )
            else:
                n = self.chance.randrange(len(shards) - 1)
                self.pipeline.client.merge_shards(
                    StreamName=self.pipeline.stream,
                    ShardToMerge=shards[n]["ShardId"],
                    AdjacentShardToMerge=shards[n + 1]["ShardId"],
                )
            self.done["split" if grow else "merge"] += 1

    @property
    def open_shards(self) -> list[dict[str, Any]]:
        """The shards that take records, by their hash keys."""
        shards = self.pipeline.client.list_shards(StreamName=self.pipeline.stream)["Shards"]
        found = [shard for shard in shards if "EndingSequenceNumber" not in shard["SequenceNumberRange"]]
        return sorted(found, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))

    # The workers

    def start_worker(self) -> None:
        """Start a worker with a cable of its own to the store."""
        cable = self.cables.enter_context(Cable(self.connect))
        job = self.pipeline.start(
            store=StoreSettings.from_url(self.url(cable.port)),
            until_caught_up=False,
            round_duration=2,
            idle_duration=0.2,
            workers=WORKERS,
            ownership_timeout=timedelta(seconds=LEASE_SECONDS),
            safety_margin=timedelta(seconds=MARGIN_SECONDS),
            handover_timeout=10.0,
            shard_sync_interval=5.0,
        )
        self.workers.append(Worker(job, cable))

    def replace_ended(self) -> None:
        """Start a worker for each that has ended, as Airflow's next try does."""
        for worker in [worker for worker in self.workers if worker.job.process.poll() is not None]:
            self.done["ended"] += 1
            self.workers.remove(worker)
            self.start_worker()

    def harm(self) -> None:
        """Let something happen to one of the workers that have begun to work."""
        self.replace_ended()
        working = [worker for worker in self.workers if "round 1:" in worker.job.output]
        if not working:
            self.done["nobody to harm"] += 1
            return
        worker = self.chance.choice(working)
        what = self.chance.choice(["kill", "kill and notice", "stop", "cut off", "pause"])
        self.done[what] += 1
        match what:
            case "kill" | "kill and notice":
                worker.job.kill()
                if "notice" in what:
                    self.pipeline.coordinator().give_up_owner(worker.job.settings.owner)
            case "stop":
                with suppress(psutil.NoSuchProcess, StopIteration):
                    worker.job.driver().send_signal(signal.SIGTERM)
            case "cut off":
                worker.cable.clog()
                threading.Timer(self.chance.uniform(0.5, 2.0) * LEASE_SECONDS, worker.cable.restore).start()
            case "pause":
                with suppress(psutil.NoSuchProcess, StopIteration):
                    driver = worker.job.driver()
                    driver.suspend()
                    threading.Timer(self.chance.uniform(0.5, 2.0) * LEASE_SECONDS, resume, [driver]).start()

    # What there is to see

    def published(self) -> Iterator[tuple[str, int]]:
        """Yield each event in the order in which it became visible: its key and number."""
        files = sorted(self.pipeline.output.glob("*.parquet"), key=lambda file: file.stat().st_ctime_ns)
        for file in files:  # a rename, which publishes a file, sets its ctime
            for payload in pq.read_table(file, columns=["data"])["data"].to_pylist():
                event = json.loads(payload)
                yield event["key"], event["n"]

    def is_caught_up(self) -> bool:
        """Return whether every event is published."""
        return sum(1 for _ in self.published()) >= self.sent.total()

    def shares(self) -> list[int]:
        """Return how many leases each owner holds, the fewest first; none are free and none wait."""
        unfinished = [
            p for p in self.pipeline.coordinator().view.partitions() if p.status is not PartitionStatus.COMPLETED
        ]
        if any(p.status is not PartitionStatus.ASSIGNED for p in unfinished):
            return []
        return sorted(Counter(p.owner for p in unfinished).values())

    def state(self) -> str:
        """Return the state of everything, for a run that does not end."""
        waiting = [
            f"{p.partition_key} {p.status.name} owner={p.owner} reopens={p.reopen_at} {p.last_error or ''}"
            for p in self.pipeline.coordinator().view.partitions()
            if p.status is not PartitionStatus.COMPLETED
        ]
        published = Counter(key for key, _ in set(self.published()))
        missing = {key: self.sent[key] - published[key] for key in self.sent if self.sent[key] != published[key]}
        owners = {w.job.settings.owner: w.job.process.poll() for w in self.workers}
        return f"{dict(self.done)}; workers {owners}; missing {missing}; unfinished:\n" + "\n".join(waiting)

    def is_balanced(self) -> bool:
        """Return whether every worker holds an even share."""
        shares = self.shares()
        return len(shares) == WORKERS and shares[-1] - shares[0] <= 1


def resume(process: psutil.Process) -> None:
    """Let a process go on, if it is still there."""
    with suppress(psutil.NoSuchProcess):
        process.resume()


def wait_until(condition: Callable[[], bool], what: str, soak: Soak) -> None:
    """Return once the condition holds; a stopped one may end only now, and is replaced."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while not condition():
        soak.replace_ended()
        if time.monotonic() > deadline:
            logs = "\n".join(f"{w.job.settings.owner}:\n{w.job.output[-3000:]}" for w in soak.workers)
            story = f"not {what} after {SETTLE_SECONDS:g} s; {soak.state()}"
            raise AssertionError(f"{story}\n{logs}\n{story}")
        time.sleep(1)


@pytest.fixture
def soak(java: str, tmp_path: Path, postgres_url: str) -> Iterator[Soak]:
    address = make_url(postgres_url)
    (path,) = Path(str(address.query["host"])).glob(".s.PGSQL.*[0-9]")

    def connect() -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(path))
        return server

    def url(port: int) -> str:
        through = address.set(host="127.0.0.1", port=port, query={})
        return through.render_as_string(hide_password=False)

    with KinesisServerProcess() as kinesis, ExitStack() as cables:
        pipeline = Pipeline(kinesis, "soak", tmp_path, postgres_url)  # type: ignore[arg-type]
        kinesis.client().create_stream(StreamName="soak", ShardCount=SHARDS)
        made = Soak(pipeline, connect, url, seeded("soak"), cables)
        try:
            yield made
        finally:
            made.over.set()
            for job in pipeline.jobs:
                job.kill()


@pytest.mark.only_deep
def test_soak_loses_and_doubles_nothing(soak: Soak) -> None:
    soak.pipeline.sync()
    for _ in range(WORKERS):
        soak.start_worker()
    background = [threading.Thread(target=work, daemon=True) for work in (soak.send, soak.reshard)]
    for thread in background:
        thread.start()
    deadline = time.monotonic() + SOAK_SECONDS
    while time.monotonic() < deadline:
        time.sleep(HARM_EVERY_SECONDS)
        soak.harm()
    soak.over.set()
    for thread in background:
        thread.join()

    for worker in soak.workers:
        worker.cable.restore()
        with suppress(psutil.NoSuchProcess, StopIteration):
            resume(worker.job.driver())
    wait_until(soak.is_caught_up, "caught up", soak)
    wait_until(soak.is_balanced, "balanced", soak)
    log.warning("sent %d events; %s; shares %s", soak.sent.total(), dict(soak.done), soak.shares())

    published: dict[str, list[int]] = defaultdict(list)
    for key, number in soak.published():
        published[key].append(number)
    assert {key: len(set(numbers)) for key, numbers in published.items()} == dict(soak.sent), "nothing is lost"
    assert {key: len(numbers) for key, numbers in published.items()} == dict(soak.sent), "nothing is doubled"
    assert [key for key, numbers in published.items() if numbers != sorted(numbers)] == [], "each key is in order"
    for partition in soak.pipeline.coordinator().view.partitions():
        assert ShardProgress.from_mapping(partition.progress).gaps == (), "no data loss is reported"
        assert not partition.is_parked, partition.last_error
    wait_until(lambda: not closed_and_unfinished(soak), "finished with every closed shard", soak)


def closed_and_unfinished(soak: Soak) -> list[str]:
    """Return the partitions of closed shards that are not COMPLETED."""
    opened = {shard["ShardId"] for shard in soak.open_shards}
    return [
        partition.partition_key
        for partition in soak.pipeline.coordinator().view.partitions()
        if partition.status is not PartitionStatus.COMPLETED
        and ShardProgress.from_mapping(partition.progress).shard_id not in opened
    ]
