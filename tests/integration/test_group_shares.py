"""Shares of the slots in a group: two sources that are behind, and one that is caught up, in one Spark application."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark import round_pace, shared_landings
from airflow_provider_coordination.spark.application import outcome_of
from airflow_provider_coordination.spark.membership import Membership, working_for
from airflow_provider_coordination.spark.outcome import EXIT_SUCCESS, FollowedJob, Outcome
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.shared_landings import SharedLandings
from demo.local_kinesis import LocalKinesis
from tests.support.spark_job import Pipeline
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 2
BACKLOG = 3000
RECORDS_PER_READ = 10
"""A shard allows five reads a second, so the backlog lasts for a minute."""
RECORD_BYTES = 10_000
MOST_LOAD = 50_000.0
"""More than the source that is caught up has to read, and less than the others, in bytes a second."""
ROUNDS = 3


class ObservedLandings(SharedLandings):
    """Notes how long the landings of each member had slots by turn, and how often."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark.sparkContext, lambda: SLOTS)
        self.slot_seconds: Counter[str] = Counter()
        self.turns: Counter[str] = Counter()

    @override
    @contextmanager
    def turn(self, member: str, slots: int) -> Iterator[int]:
        with super().turn(member, slots) as count:
            begun = time.monotonic()
            yield count
            self.slot_seconds[member] += count * (time.monotonic() - begun)
            self.turns[member] += 1


class Running:
    """The jobs of a group, in threads of this process.

    :param spark: the application that they share.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self.landings = ObservedLandings(spark)
        self.rounds: Counter[str] = Counter()
        self._jobs: list[FollowedJob] = []
        self._pool = ThreadPoolExecutor(3)
        self._ends: list[Callable[[], Outcome]] = []

    def start(self, settings: IngestSettings) -> None:
        """Start a job."""
        job = FollowedJob()
        self._jobs.append(job)
        self._ends.append(self._pool.submit(self._run, settings, job).result)

    def stop(self) -> None:
        """Stop all jobs, and wait for their ends."""
        for job in self._jobs:
            job.note_stop("the test is over")
        assert [end().exit_code for end in self._ends] == [EXIT_SUCCESS] * len(self._ends)

    def _run(self, settings: IngestSettings, job: FollowedJob) -> Outcome:
        weight = settings.rounds.weight
        member = Membership(self._context, settings.source, settings.source, weight, landings=self.landings)
        member.add_pool()

        def observe(phase: str) -> None:
            self.rounds[settings.source] += phase == "recorded"

        with working_for(member):
            return outcome_of(settings, observe, job)


@pytest.fixture
def make_source(
    kinesis: LocalKinesis, kinesis_stream: Callable[[int], str], tmp_path: Path
) -> Callable[[str], Pipeline]:
    def make(source: str) -> Pipeline:
        folder = tmp_path / source
        folder.mkdir()
        pipeline = Pipeline(kinesis, kinesis_stream(1), folder, f"sqlite:///{tmp_path}/coordination.db", source=source)
        pipeline.sync()
        return pipeline

    return make


def fill(pipeline: Pipeline) -> None:
    """Give a stream a backlog."""
    for _ in range(BACKLOG // 500):
        records = [{"Data": b"{}".ljust(RECORD_BYTES), "PartitionKey": "a"}] * 500
        assert pipeline.client.put_records(StreamName=pipeline.stream, Records=records)["FailedRecordCount"] == 0


@pytest.fixture
def running(spark: SparkSession) -> Iterator[Running]:
    made = Running(spark)
    yield made
    made.stop()


def test_member_behind_has_slots_by_weight(
    running: Running, make_source: Callable[[str], Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_landings, "MOST_LOAD", MOST_LOAD)
    monkeypatch.setattr(shared_landings, "SLOW_SECONDS", math.inf)
    monkeypatch.setattr(round_pace, "TURN_SECONDS", 2.0)
    light, heavy, quiet = (make_source(source) for source in ("light", "heavy", "quiet"))
    landings, is_over = running.landings, threading.Event()

    def send() -> None:
        while not is_over.wait(0.2):
            quiet.send(1)

    sending = threading.Thread(target=send)
    sending.start()
    try:
        running.start(quiet.settings(until_caught_up=False, freshness=3.0))
        until(lambda: bool(quiet.delivered()))
        for pipeline, weight in ((light, 1), (heavy, 2)):
            fill(pipeline)
            settings = partial(pipeline.settings, until_caught_up=False, records_per_read=RECORDS_PER_READ)
            running.start(settings(weight=weight))
        until(lambda: min(landings.turns[source] for source in ("light", "heavy")) >= 1)
        since, rounds, before = Counter(landings.slot_seconds), running.rounds["quiet"], Counter(landings.turns)
        until(lambda: landings.turns["light"] >= before["light"] + ROUNDS)
        quiet_rounds, turns = running.rounds["quiet"] - rounds, landings.turns - before
        assert abs(turns["heavy"] - turns["light"]) <= 1, "they take turns"
        used = landings.slot_seconds - since
        share = {source: used[source] / turns[source] for source in ("light", "heavy")}
        assert 1.3 < share["heavy"] / share["light"] < 2.7, share
        assert quiet_rounds > ROUNDS, "it does not wait for the turns of the others"
        assert not turns["quiet"]
    finally:
        is_over.set()
        sending.join()
    until(lambda: quiet.delivered().keys() >= set(quiet.sent))
