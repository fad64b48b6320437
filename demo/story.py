"""The course of the demo, from the first event to the last."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_coordination.sources.kinesis.shards import list_shards
from demo.airflow_home import FINISHED, Airflow
from demo.check import compare
from demo.cluster import DemoCluster
from demo.crash import Crash, drivers, is_taken_over, kill_in_mid_round
from demo.environment import OWNERSHIP_TIMEOUT_SECONDS, SAFETY_MARGIN_SECONDS
from demo.events import Event
from demo.observation import Observation, ProgressLines, shard_of, worker_name
from demo.producer import Producer
from demo.report import Report

DAG = "kinesis_ingestion"
STREAM = "flights"
SHARDS = 4
WORKERS = 2

POLL_SECONDS = 0.05
AIRFLOW_POLL_SECONDS = 1.0
WAIT_SECONDS = 600.0
"""The limit of every single wait of the demo."""


class DemoError(Exception):
    """The demo failed or timed out; the message names the condition that it waited for."""


@dataclass(kw_only=True)
class Story:
    """One run.

    :param airflow: a started Airflow, which may not be ready yet.
    :param kinesis: a client of the Kinesis server.
    :param producer: the producer of the stream; not started.
    :param events: the events that the producer sends.
    :param observation: the observation of the source.
    :param output: the dataset's path or URI.
    :param files: returns the files of the dataset.
    :param reader: the library that reads them back.
    :param cluster: the cluster of the jobs; None if their drivers do all the work.
    :param scratch: the folder of the jobs' temporary files.
    :param say: prints a line for the user.
    """

    airflow: Airflow
    kinesis: Any
    producer: Producer
    events: Sequence[Event]
    observation: Observation
    output: str
    files: Callable[[], Sequence[Path]]
    reader: str
    cluster: DemoCluster | None
    scratch: Path
    say: Callable[[str], None]
    run_id: str | None = None
    killed_worker: str | None = None
    phases: dict[str, float] = field(default_factory=dict)
    _airflow_checked_at: float = 0.0

    def run(self) -> Report:
        """Run the demo; return its report.

        :raises DemoError: if an expected event does not happen.
        """
        with ProgressLines(self._progress, self.say):
            with self._phase("Airflow starts, a first part of the events is sent"):
                self.producer.start()
                self._until("the first part of the events is sent", self.producer.first_part_sent.is_set)
                self._until("Airflow is ready", lambda: self.airflow.is_ready(DAG), AIRFLOW_POLL_SECONDS)
            with self._phase("the DAG run starts two Spark jobs"):
                self.run_id = self.airflow.trigger(DAG, self._conf())
                self._until("both jobs hold leases", lambda: len(self.observation.leases()) >= WORKERS)
                both_since = time.monotonic()
                self.producer.flow()
                self._until("both jobs deliver", lambda: len(self.observation.delivering()) >= WORKERS)
            with self._phase("one shard is split"):
                split_shard = self._split()
            if self.cluster is not None:
                with self._phase("one worker of the Spark cluster is killed"):
                    self._kill_worker(self.cluster)
            with self._phase("one job is killed in the middle of a round"):
                # A starting job leaves a share to each expected worker, even if that worker has not started.
                settled_at = both_since + OWNERSHIP_TIMEOUT_SECONDS
                self._until("both jobs have settled", lambda: time.monotonic() > settled_at)
                crash = self._kill()
            with self._phase("the other job takes over"):
                takeover_seconds = self._take_over(crash)
            with self._phase("the rest is sent and ingested, the DAG run ends"):
                self.producer.release()
                self._until("all events are sent", lambda: self.producer.is_done)
                self._until("the DAG run ends", self._is_finished, AIRFLOW_POLL_SECONDS, run_may_end=True)
        state, tries = self.airflow.state(DAG, self.run_id), self._tries()
        with self._phase("everything is stopped, the dataset is checked"):
            self.airflow.stop()
            files = self.files()
            dataset = compare(files, self.events)
            self.say(f"read back by {self.reader}: {dataset.events:,} events in {len(files):,} files")
        return Report(
            events_sent=self.producer.events_sent,
            records_sent=self.producer.records_sent,
            dataset=dataset,
            partitions=self.observation.partitions(),
            split_shard=split_shard,
            crash=crash,
            killed_worker=self.killed_worker,
            left_undelivered=[b for b in crash.batches if b not in dataset.batches],
            takeover_seconds=takeover_seconds,
            lease_seconds=OWNERSHIP_TIMEOUT_SECONDS + SAFETY_MARGIN_SECONDS,
            dag_state=state,
            tries=tries,
            phases=self.phases,
        )

    def _conf(self) -> dict[str, Any]:
        return {
            "stream": STREAM,
            "output_path": self.output,
            "output_conn_id": None if self.cluster is None else "aws_default",
            # Events keep coming: a job ends once no event has arrived for a while.
            "until_caught_up": False,
            "max_idle_rounds": 5,
            "idle_duration": 1,
            "round_duration": 3,
        }

    def _split(self) -> str:
        shard = list_shards(self.kinesis, STREAM)[0]
        start, end = int(shard.starting_hash_key), int(shard.ending_hash_key)
        self.kinesis.split_shard(
            StreamName=STREAM, ShardToSplit=shard.shard_id, NewStartingHashKey=str((start + end + 1) // 2)
        )
        self.say(f"SPLIT {shard.shard_id}: it is closed, two child shards follow")
        children: list[str] = []

        def has_children() -> bool:
            children[:] = [shard_of(partition) for partition in self.observation.partitions()[SHARDS:]]
            return len(children) == 2

        self._until("the split shard is finished and its children have partitions", has_children)
        self.say(f"{shard.shard_id} is ingested to its end; {' and '.join(children)} can be leased")
        return shard.shard_id

    def _kill(self) -> Crash:
        running = drivers(self.scratch)
        if len(running) < WORKERS:
            raise DemoError(f"{len(running)} Spark drivers are running, not {WORKERS}")
        crash = kill_in_mid_round(self.observation, running, self._deadline_check("a job is in the middle of a round"))
        self.say(
            f"KILLED {worker_name(crash.owner)} with SIGKILL, {crash.processes} processes; it held "
            f"{len(crash.partitions)} partitions, with {len(crash.batches)} batches recorded but not delivered"
        )
        return crash

    def _take_over(self, crash: Crash) -> float:
        get = self.observation.view.get
        self._until(
            "the killed job's partitions are taken over",
            lambda: all(is_taken_over(get(key), crash) for key in crash.partitions),
        )
        seconds = time.monotonic() - crash.at
        takers = {worker_name(p.owner) for key in crash.partitions if (p := get(key)) and p.owner}
        self.say(f"TAKEN OVER after {seconds:.1f} s by {' and '.join(sorted(takers))}")
        return seconds

    def _kill_worker(self, cluster: DemoCluster) -> None:
        """Kill a Spark worker with its executors, as if its machine had died, and start another one."""
        self._until("both jobs have executors", lambda: cluster.executors() >= WORKERS)
        worker = cluster.busiest()
        processes, executors = len(worker.processes()), len(worker.executors())
        cluster.spark.kill(worker)
        self.killed_worker = worker.address
        self.say(
            f"KILLED Spark worker {worker.address} with SIGKILL, {processes} processes, "
            f"{executors} of them executors of the jobs"
        )
        self.say(f"JOINED Spark worker {cluster.spark.add_worker().address}")
        self._until("both jobs have executors again", lambda: cluster.executors() >= WORKERS)
        delivered = self.observation.delivered()
        self._until(
            "events are delivered again",
            lambda: self.producer.is_done or self.observation.delivered() > delivered,
        )

    def _tries(self) -> dict[int, int]:
        assert self.run_id is not None
        tasks = self.airflow.task_instances(DAG, self.run_id)
        return {task["map_index"]: task["try_number"] for task in tasks if task["task_id"] == "ingest"}

    # Waiting

    def _is_finished(self) -> bool:
        assert self.run_id is not None
        return self.airflow.state(DAG, self.run_id) in FINISHED

    def _until(
        self, what: str, condition: Callable[[], bool], every: float = POLL_SECONDS, *, run_may_end: bool = False
    ) -> None:
        check = self._deadline_check(what, run_may_end=run_may_end)
        while not condition():
            check()
            time.sleep(every)

    def _deadline_check(self, what: str, *, run_may_end: bool = False) -> Callable[[], None]:
        """Return a function to call while waiting; it raises once the wait is useless."""
        deadline = time.monotonic() + WAIT_SECONDS

        def check() -> None:
            now = time.monotonic()
            if self.producer.error is not None:
                raise DemoError(f"the producer failed: {self.producer.error}") from self.producer.error
            if now > deadline:
                raise DemoError(f"waited {WAIT_SECONDS:.0f} s without a result until {what}")
            if self.run_id is None or run_may_end or now - self._airflow_checked_at < AIRFLOW_POLL_SECONDS:
                return
            self._airflow_checked_at = now
            if self._is_finished():
                raise DemoError(f"the DAG run ended while the demo waited until {what}")

        return check

    def _progress(self) -> str:
        return f"sent {self.producer.events_sent:>7,}   {self.observation.line()}"

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self.say(f"--- {name}")
        started = time.monotonic()
        yield
        self.phases[name] = time.monotonic() - started
