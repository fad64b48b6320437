"""The course of the demo of a stream, from the first event to the last."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.kinesis.shards import list_shards
from demo.check import compare
from demo.cluster import DemoCluster
from demo.course import AIRFLOW_POLL_SECONDS, Course
from demo.environment import OWNERSHIP_TIMEOUT_SECONDS, SAFETY_MARGIN_SECONDS
from demo.events import Event
from demo.observation import ProgressLines, shard_of
from demo.producer import Producer
from demo.report import StreamReport

DAG = "kinesis_ingestion"
STREAM = "flights"
SHARDS = 4
WORKERS = 2


@dataclass(kw_only=True)
class StreamStory(Course):
    """One run. See `Course` for the other parameters.

    :param kinesis: a client of the Kinesis server.
    :param producer: the producer of the stream; not started.
    :param events: the events that the producer sends.
    :param output: the dataset's path or URI.
    :param files: returns the files of the dataset.
    :param reader: the library that reads them back.
    :param cluster: the cluster of the jobs; None if their drivers do all the work.
    """

    dag: ClassVar[str] = DAG
    workers: ClassVar[int] = WORKERS

    kinesis: Any
    producer: Producer
    events: Sequence[Event]
    output: str
    files: Callable[[], Sequence[Path]]
    reader: str
    cluster: DemoCluster | None
    killed_worker: str | None = None

    @override
    def run(self) -> StreamReport:
        with ProgressLines(self._progress, self.say):
            with self._phase("Airflow starts, a first part of the events is sent"):
                self.producer.start()
                self._until("the first part of the events is sent", self.producer.first_part_sent.is_set)
                self._until("Airflow is ready", lambda: self.airflow.is_ready(self.dag), AIRFLOW_POLL_SECONDS)
            with self._phase("the DAG run starts two Spark jobs"):
                self.run_id = self.airflow.trigger(self.dag, self._conf())
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
        state, tries = self.airflow.state(self.dag, self.run_id), self._tries()
        with self._phase("everything is stopped, the dataset is checked"):
            self.airflow.stop()
            files = self.files()
            dataset = compare(files, self.events)
            self.say(f"read back by {self.reader}: {dataset.events:,} events in {len(files):,} files")
        return StreamReport(
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

    @property
    @override
    def failure(self) -> Exception | None:
        return self.producer.error

    @override
    def _progress(self) -> str:
        return f"sent {self.producer.events_sent:>7,}   {self.observation.line()}"
