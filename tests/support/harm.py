"""What befalls a stream and its jobs in a long run: shards split and merge, jobs die, stand still, lose their store."""

from __future__ import annotations

import random
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psutil
from sqlalchemy.engine import make_url

from airflow_provider_coordination.stores import StoreSettings
from tests.support.cable import Cable
from tests.support.spark_job import Job, Pipeline

KINDS = ("kill", "kill and notice", "stop", "cut off", "pause")
KILL_WORKERS = "kill all Python workers of a job"


def through(url: str, cable: Cable) -> str:
    """Return the URL of a database, reached through a cable."""
    address = make_url(url).set(host="127.0.0.1", port=cable.port, query={})
    return address.render_as_string(hide_password=False)


@dataclass
class Worker:
    """A Spark job, and its way to the store."""

    job: Job
    cable: Cable


@dataclass
class HarmedJobs:
    """Jobs that read a stream; one that ends is replaced.

    :param pipeline: the stream, the store and the jobs.
    :param connect: makes a connection to the database server of the store.
    :param chance: decides what happens.
    :param count: how many jobs there are.
    :param lease_seconds: of their leases.
    :param settings: others of theirs.
    """

    pipeline: Pipeline
    connect: Callable[[], socket.socket]
    chance: random.Random
    count: int
    lease_seconds: float
    settings: dict[str, Any] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    cables: ExitStack = field(default_factory=ExitStack)

    def start_all(self) -> None:
        """Start the jobs, each with a cable of its own to the store."""
        for _ in range(self.count):
            self._start_one()

    def _start_one(self) -> None:
        cable = self.cables.enter_context(Cable(self.connect))
        job = self.pipeline.start(
            store=StoreSettings.from_url(through(self.pipeline.url, cable)),
            until_caught_up=False,
            idle_duration=0.2,
            workers=self.count,
            ownership_timeout=timedelta(seconds=self.lease_seconds),
            **self.settings,
        )
        self.workers.append(Worker(job, cable))

    def replace_ended(self) -> None:
        """Start a job for each that has ended, as Airflow's next try does."""
        for worker in [worker for worker in self.workers if worker.job.process.poll() is not None]:
            self.done["ended"] += 1
            self.workers.remove(worker)
            self._start_one()

    def harm(self, kinds: Sequence[str] = KINDS) -> None:
        """Let something happen to one of the jobs that have finished a round, or to the Python workers of any.

        :param kinds: what may happen; a kind that is there twice happens twice as often.
        """
        self.replace_ended()
        what = self.chance.choice(kinds)
        if what == KILL_WORKERS:
            self._kill_python_workers()
            return
        working = [worker for worker in self.workers if "round 1:" in worker.job.output]
        if not working:
            self.done["nobody to harm"] += 1
            return
        worker = self.chance.choice(working)
        self.done[what] += 1
        with suppress(psutil.NoSuchProcess, StopIteration):
            match what:
                case "kill" | "kill and notice":
                    worker.job.kill()
                    if "notice" in what:
                        self.pipeline.coordinator().give_up_owner(worker.job.settings.owner)
                case "stop":
                    worker.job.driver().send_signal(signal.SIGTERM)
                case "cut off":
                    worker.cable.clog()
                    self._later(worker.cable.restore)
                case "pause":
                    driver = worker.job.driver()
                    driver.suspend()
                    self._later(lambda: resume(driver))

    def _kill_python_workers(self) -> None:
        """Kill all Python workers of a job, whatever it does, as when its executor dies; count each."""
        found = [python_workers for worker in self.workers if (python_workers := worker.job.python_workers())]
        if not found:
            self.done["nobody to harm"] += 1
            return
        for python_worker in self.chance.choice(found):
            with suppress(psutil.NoSuchProcess):
                python_worker.kill()
                self.done[KILL_WORKERS] += 1

    def recover(self) -> None:
        """Let everything go on."""
        for worker in self.workers:
            worker.cable.restore()
            with suppress(psutil.NoSuchProcess, StopIteration):
                resume(worker.job.driver())

    def close(self) -> None:
        """Kill the jobs."""
        for job in self.pipeline.jobs:
            job.kill()
        self.cables.close()

    def _later(self, work: Callable[[], None]) -> None:
        """Do something after half a lease, or two, or in between."""
        timer = threading.Timer(self.chance.uniform(0.5, 2.0) * self.lease_seconds, work)
        timer.daemon = True
        timer.start()


def resume(process: psutil.Process) -> None:
    """Let a process go on, if it is still there."""
    with suppress(psutil.NoSuchProcess):
        process.resume()


def open_shards(client: Any, stream: str) -> list[dict[str, Any]]:
    """Return the shards that take records, by their hash keys."""
    shards = client.list_shards(StreamName=stream)["Shards"]
    found = [shard for shard in shards if "EndingSequenceNumber" not in shard["SequenceNumberRange"]]
    return sorted(found, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))


def reshard(client: Any, stream: str, chance: random.Random, fewest: int, most: int) -> str:
    """Split a shard, or merge two; return which.

    :param chance: decides.
    :param fewest: the number of open shards below which none are merged.
    :param most: the number from which on none are split.
    """
    shards = open_shards(client, stream)
    if len(shards) < most and (chance.random() < 0.5 or len(shards) <= fewest):
        shard = chance.choice(shards)
        first, last = (int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
        client.split_shard(
            StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str((first + last) // 2)
        )
        return "split"
    n = chance.randrange(len(shards) - 1)
    client.merge_shards(
        StreamName=stream, ShardToMerge=shards[n]["ShardId"], AdjacentShardToMerge=shards[n + 1]["ShardId"]
    )
    return "merge"
