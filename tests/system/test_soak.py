"""One or five minutes of everything at once: shards split and merge, workers die, stop and lose their store.

What holds at the end: each event is in the dataset once, each key's in order, and the workers hold even shares.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.support.aggregation import aggregate
from tests.support.depth import at_depth
from tests.support.harm import HarmedJobs, open_shards, reshard
from tests.support.kinesis_server.process import KinesisServerProcess
from tests.support.seed import seeded
from tests.support.servers import socket_of
from tests.support.spark_job import Pipeline

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
SETTINGS = {
    "round_duration": 2,
    "safety_margin": timedelta(seconds=2),
    "handover_timeout": 10.0,
    "shard_sync_interval": 5.0,
}
"""Of the jobs."""
SETTLE_SECONDS = 150.0
FEWEST_SHARDS, MOST_SHARDS = 12, 20


@dataclass
class Soak:
    """A stream that keeps changing, and the workers that read it.

    :param pipeline: the stream, the store and the jobs.
    :param jobs: the workers.
    :param chance: decides what happens.
    """

    pipeline: Pipeline
    jobs: HarmedJobs
    chance: random.Random
    sent: Counter[str] = field(default_factory=Counter)
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
            done = reshard(self.pipeline.client, self.pipeline.stream, self.chance, FEWEST_SHARDS, MOST_SHARDS)
            self.jobs.done[done] += 1

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
        owners = {w.job.settings.owner: w.job.process.poll() for w in self.jobs.workers}
        return f"{dict(self.jobs.done)}; workers {owners}; missing {missing}; unfinished:\n" + "\n".join(waiting)

    def is_balanced(self) -> bool:
        """Return whether every worker holds an even share."""
        shares = self.shares()
        return len(shares) == WORKERS and shares[-1] - shares[0] <= 1


def wait_until(condition: Callable[[], bool], what: str, soak: Soak) -> None:
    """Return once the condition holds; a stopped one may end only now, and is replaced."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while not condition():
        soak.jobs.replace_ended()
        if time.monotonic() > deadline:
            logs = "\n".join(f"{w.job.settings.owner}:\n{w.job.output[-3000:]}" for w in soak.jobs.workers)
            story = f"not {what} after {SETTLE_SECONDS:g} s; {soak.state()}"
            raise AssertionError(f"{story}\n{logs}\n{story}")
        time.sleep(1)


@pytest.fixture
def soak(java: str, tmp_path: Path, postgres_server: str, postgres_url: str) -> Iterator[Soak]:
    with KinesisServerProcess() as kinesis:
        pipeline = Pipeline(kinesis, "soak", tmp_path, postgres_url)  # type: ignore[arg-type]
        kinesis.client().create_stream(StreamName="soak", ShardCount=SHARDS)
        chance = seeded("soak")
        jobs = HarmedJobs(pipeline, socket_of(postgres_server), chance, WORKERS, LEASE_SECONDS, SETTINGS)
        made = Soak(pipeline, jobs, chance)
        try:
            yield made
        finally:
            made.over.set()
            jobs.close()


@pytest.mark.only_deep
def test_soak_loses_and_doubles_nothing(soak: Soak) -> None:
    soak.pipeline.sync()
    soak.jobs.start_all()
    background = [threading.Thread(target=work, daemon=True) for work in (soak.send, soak.reshard)]
    for thread in background:
        thread.start()
    deadline = time.monotonic() + SOAK_SECONDS
    while time.monotonic() < deadline:
        time.sleep(HARM_EVERY_SECONDS)
        soak.jobs.harm()
    soak.over.set()
    for thread in background:
        thread.join()

    soak.jobs.recover()
    wait_until(soak.is_caught_up, "caught up", soak)
    wait_until(soak.is_balanced, "balanced", soak)
    log.warning("sent %d events; %s; shares %s", soak.sent.total(), dict(soak.jobs.done), soak.shares())

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
    opened = {shard["ShardId"] for shard in open_shards(soak.pipeline.client, soak.pipeline.stream)}
    return [
        partition.partition_key
        for partition in soak.pipeline.coordinator().view.partitions()
        if partition.status is not PartitionStatus.COMPLETED
        and ShardProgress.from_mapping(partition.progress).shard_id not in opened
    ]
