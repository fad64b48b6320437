"""Killed jobs that read at full speed deliver exact data in bounded memory.

The stream always has more. Its records follow from shard and number, so that each that is delivered can be checked.
The disk need not hold them all: what is delivered and right is removed.
"""

from __future__ import annotations

import json
import logging
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_provider_coordination.sources.kinesis.positions import is_sequence_number
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.support.depth import at_depth
from tests.support.endless_kinesis import EndlessKinesis
from tests.support.known_dataset import KnownDataset
from tests.support.known_records import RECORD_BYTES, number_of
from tests.support.seed import seeded
from tests.support.spark_job import Job, Pipeline

log = logging.getLogger(__name__)

RUN_SECONDS = at_depth(short=40.0, deep=600.0)
SHARDS = at_depth(short=16, deep=64)
JOBS = 3
HARM_EVERY_SECONDS = at_depth(short=8.0, deep=25.0)
REFUSED_SECONDS = at_depth(short=6.0, deep=60.0)
ROUND_SECONDS = at_depth(short=2.0, deep=5.0)
LEASE_SECONDS = 20.0
SETTLE_SECONDS = 150.0
CHECK_EVERY_SECONDS = 2.0
SETTLED_SECONDS = 5.0
"""The age of a file from which its batches are most likely delivered."""
PART = 10
"""Memory in the last tenth of the time is compared with that in the first."""
MOST_GROWTH = at_depth(short=None, deep=1.5)
REFUSE = "refuse"
HARM = ["kill", "kill and notice", "kill the driver", "kill a worker", REFUSE]
READS = re.compile(r"landed=[1-9]")
LAST_CHARACTERS = 10_000
"""In as much of its log a job that reads reports a round."""


@dataclass
class FullSpeed:
    """A stream, the jobs that read it, and the check of what they deliver.

    :param kinesis: the stream's server.
    :param pipeline: the stream, the store and the jobs.
    :param chance: decides what happens.
    """

    kinesis: EndlessKinesis
    pipeline: Pipeline
    chance: random.Random
    jobs: list[Job] = field(default_factory=list)
    to_do: list[str] = field(default_factory=list)
    """What is to happen next, the last one first."""
    done: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[float, dict[int, int]]] = field(default_factory=list)
    """When (monotonic), and how many bytes each Python worker of the first job had then."""
    over: threading.Event = field(default_factory=threading.Event)
    wrong: list[BaseException] = field(default_factory=list)
    """What a thread found."""

    def __post_init__(self) -> None:
        self.dataset = KnownDataset(self.pipeline.output, self.pipeline.stream, self.kinesis.began_at)
        self.coordinator = self.pipeline.coordinator()

    def start_job(self) -> Job:
        """Start a job, one of whose Python workers may die."""
        job = self.pipeline.start(
            master="local[2,4]",
            until_caught_up=False,
            round_duration=ROUND_SECONDS,
            workers=JOBS,
            ownership_timeout=timedelta(seconds=LEASE_SECONDS),
            handover_timeout=10.0,
            max_leases_to_steal=SHARDS // JOBS,  # a job that takes another one's place soon has work to lose
        )
        self.jobs.append(job)
        return job

    def replace_ended(self) -> None:
        """Start a job for each that has ended, as Airflow's next try does."""
        for job in [job for job in self.jobs if job.process.poll() is not None]:
            assert job is not self.pipeline.jobs[0], f"nobody harmed it:\n{job.output[-5000:]}"
            self.done["replaced"] += 1
            self.jobs.remove(job)
            self.start_job()

    def harm(self) -> None:
        """Let something happen to a job, which is not the first one, or to a shard."""
        self.replace_ended()
        self.to_do = self.to_do or self.chance.sample(HARM, len(HARM))
        working = [job for job in self.jobs[1:] if READS.search(job.output[-LAST_CHARACTERS:])]
        if not working and self.to_do[-1] != REFUSE:
            self.done["nobody to harm"] += 1
            return
        what = self.to_do.pop()
        self.done[what] += 1
        if what == REFUSE:
            self.kinesis.refuse(self.chance.randrange(SHARDS), REFUSED_SECONDS, self.chance.choice([400, 429]))
            return
        job = self.chance.choice(working)
        with suppress(psutil.NoSuchProcess, StopIteration, IndexError):
            match what:
                case "kill" | "kill and notice":
                    job.kill()
                    if "notice" in what:
                        self.coordinator.give_up_owner(job.settings.owner)
                case "kill the driver":
                    job.driver().kill()
                case "kill a worker":
                    self.chance.choice(job.python_workers()).kill()

    # Threads beside the jobs

    def watch_memory(self) -> None:
        """Note the memory of the first job's workers until it is over."""
        while not self.over.wait(1.0):
            workers = self.jobs[0].python_workers()
            taken = {p.pid: p.as_dict(["memory_info"], ad_value=None)["memory_info"] for p in workers}
            self.memory.append((time.monotonic(), {pid: known.rss for pid, known in taken.items() if known}))

    def check_delivered(self) -> None:
        """Check and remove what is delivered until it is over."""
        while not self.over.wait(CHECK_EVERY_SECONDS):
            self.remove_delivered(SETTLED_SECONDS)

    def remove_delivered(self, settled_seconds: float) -> None:
        """Check and remove what is delivered, and visible for as long."""
        visible_by_ns = time.time_ns() - round(settled_seconds * 1e9)
        self.dataset.remove(self.checkpoints(), visible_by_ns)

    def run(self, work: Callable[[], None]) -> threading.Thread:
        """Start a thread; what it raises is kept for the test."""

        def noted() -> None:
            try:
                work()
            except BaseException as error:
                self.wrong.append(error)

        thread = threading.Thread(target=noted, daemon=True)
        thread.start()
        return thread

    # What there is to see

    def checkpoints(self) -> dict[int, int]:
        """Return the number of the last record that is delivered of each shard."""
        progresses = [ShardProgress.from_mapping(p.progress) for p in self.coordinator.view.partitions()]
        return {
            int(progress.shard_id.rpartition("-")[2]): number_of(progress.checkpoint)
            for progress in progresses
            if is_sequence_number(progress.checkpoint)
        }

    def wait_until_delivered(self, heads: list[int]) -> None:
        """Return once everything is delivered."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while self.checkpoints() != dict(enumerate(heads)):
            self.replace_ended()
            self.raise_wrong()
            if time.monotonic() > deadline:
                logs = "\n".join(f"{job.settings.owner}:\n{job.output[-3000:]}" for job in self.jobs)
                left = {
                    p.partition_key: (p.status.name, p.owner, p.last_error)
                    for p in self.coordinator.view.partitions()
                    if number_of(str(p.progress["checkpoint"])) not in heads
                }
                raise AssertionError(f"not delivered after {SETTLE_SECONDS:g} s: {left}\n{logs}")
            time.sleep(1)

    def raise_wrong(self) -> None:
        """Raise what a thread found."""
        if self.wrong:
            raise self.wrong[0]

    def growth(self) -> dict[str, float]:
        """Return how much the first job's workers held at most, in the first part of the time and in the last."""
        first, last = self.memory[0][0], self.memory[-1][0]
        part = (last - first) / PART
        begun = [taken for at, taken in self.memory if at <= first + part]
        ended = [taken for at, taken in self.memory if at >= last - part]
        before, after = (max(max(taken.values(), default=0) for taken in each) / 2**20 for each in (begun, ended))
        return {"first MiB": round(before), "last MiB": round(after), "ratio": round(after / before, 2)}


@pytest.fixture
def full_speed(java: str, tmp_path: Path, postgres_url: str) -> Iterator[FullSpeed]:
    with EndlessKinesis(SHARDS) as kinesis:
        pipeline = Pipeline(kinesis, "soak", tmp_path, postgres_url)
        made = FullSpeed(kinesis, pipeline, seeded("full speed"))
        try:
            yield made
        finally:
            made.over.set()
            for job in pipeline.jobs:
                job.kill()


@pytest.mark.only_deep
def test_jobs_at_full_speed_deliver_everything_once_in_order(full_speed: FullSpeed) -> None:
    full_speed.pipeline.sync()
    for _ in range(JOBS):
        full_speed.start_job()
    full_speed.jobs[0].wait_for("round 1:")
    begun = time.monotonic()
    threads = [full_speed.run(work) for work in (full_speed.watch_memory, full_speed.check_delivered)]
    while time.monotonic() < begun + RUN_SECONDS:
        time.sleep(HARM_EVERY_SECONDS)
        full_speed.harm()
        full_speed.raise_wrong()
    heads = full_speed.kinesis.end()
    seconds = time.monotonic() - begun

    full_speed.wait_until_delivered(heads)
    full_speed.over.set()
    for thread in threads:
        thread.join()
    for job in full_speed.jobs:
        job.kill()
    full_speed.raise_wrong()
    full_speed.remove_delivered(0)

    megabytes = sum(head + 1 for head in heads) * RECORD_BYTES / 1e6
    figures: dict[str, Any] = {
        "seconds": round(seconds),
        "MB": round(megabytes),
        "MB/s": round(megabytes / seconds, 1),
        "file MB": round(full_speed.dataset.bytes / 1e6),
        "harm": dict(full_speed.done),
        "refusals": sum(full_speed.kinesis.refusals()),
        "memory of a worker": full_speed.growth(),
    }
    log.warning("%s", json.dumps(figures))
    full_speed.dataset.check(heads)
    partitions = list(full_speed.coordinator.view.partitions())
    assert partitions
    for partition in partitions:
        assert ShardProgress.from_mapping(partition.progress).gaps == (), "no data loss is reported"
        assert not partition.is_parked, partition.last_error
    assert MOST_GROWTH is None or figures["memory of a worker"]["ratio"] <= MOST_GROWTH
