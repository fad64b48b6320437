"""Jobs deliver through Spark into two sinks and the dead letters, with a session in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.sources.kinesis.progress import partition_key
from airflow_provider_coordination.sources.kinesis.reader import KinesisRecord
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    Transform,
)
from airflow_provider_coordination.spark.kinesis.shard_format import SHARD_RECORDS
from airflow_provider_coordination.spark.payload import JsonPayload
from airflow_provider_coordination.spark.sinks import routed_sinks
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink
from airflow_provider_coordination.spark.transformation import Transformation
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery
from tests.support.fleet import EPOCH, Crash, FakeStream, Fleet
from tests.support.landed_batches import PAYLOAD, click

pytestmark = pytest.mark.share(0.3)


class InterruptedDelivery(TransformedDelivery):
    """A delivery that something happens to between two commits."""

    happens: Callable[[str], None] = staticmethod(lambda sink: None)

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        self.happens(sink)
        super().commit(sink, attempts)


@dataclass
class JobRounds:
    """Jobs over one shard of JSON events, through Spark into two sinks and the dead letters."""

    spark: SparkSession
    folder: Path

    def __post_init__(self) -> None:
        self.fleet = Fleet(FakeStream(1), self.folder / "main")
        self.found = BadRecords()

    def send(self, *payloads: bytes) -> None:
        records = self.fleet.stream.shards["shard-0"].records
        records += [
            KinesisRecord(str(10**20 + len(records) + n), "k", datetime.now(UTC), p) for n, p in enumerate(payloads)
        ]

    def delivery(
        self, happens: Callable[[str], None] = lambda sink: None, transform: Transform | None = None
    ) -> TransformedDelivery:
        names = ["dead_letter", "main", "copy"]
        sinks = [ParquetSink(name=name, path=str(self.folder / name)) for name in names]
        self.found = BadRecords(saved=1)
        transformation = Transformation(
            self.spark,
            routed_sinks(sinks),
            layout=SHARD_RECORDS,
            transform=transform,
            payload=JsonPayload(PAYLOAD, SHARD_RECORDS),
        )
        delivery = InterruptedDelivery(transformation, sinks, source="clicks", bad_records=self.found)
        delivery.happens = happens  # type: ignore[method-assign]
        return delivery

    def run(
        self,
        happens: Callable[[str], None] = lambda sink: None,
        *,
        transform: Transform | None = None,
        **changes: Any,
    ) -> Any:
        delivery = self.delivery(happens, transform)
        return self.fleet.run(delivery=delivery, bad_records=self.found, **changes)

    def taken(self, sink: str) -> Counter[bytes]:
        files = [pq.read_table(file)["data"].to_pylist() for file in (self.folder / sink).glob("*.parquet")]
        return Counter(payload for payloads in files for payload in payloads)

    @property
    def partition(self) -> Partition:
        partition = self.fleet.look.view.get(partition_key("s", EPOCH, "shard-0"))
        assert partition is not None
        return partition


@pytest.fixture
def rounds(spark: SparkSession, tmp_path: Path) -> JobRounds:
    return JobRounds(spark, tmp_path)


def at(sink: str, error: BaseException, times: int = 10**9) -> Callable[[str], None]:
    left = [times]

    def happen(published: str) -> None:
        if published == sink and left[0]:
            left[0] -= 1
            raise error

    return happen


GOOD = [click(n) for n in range(4)]


def test_job_counts_outcomes_of_its_records(rounds: JobRounds) -> None:
    rounds.send(*GOOD, b"no JSON")
    summary = rounds.run()
    assert summary.records_delivered == 5, "a dead letter counts as delivered"
    assert summary.records_by_sink == {"dead_letter": 1, "main": 4, "copy": 4}
    assert (summary.dead_letters, summary.parse_exceptions, summary.unrouted) == (1, 1, 0)
    assert [sample["data"] for sample in summary.saved_parse_exceptions] == ["no JSON"]
    assert rounds.taken("main") == rounds.taken("copy") == Counter(GOOD)
    assert rounds.taken("dead_letter") == Counter([b"no JSON"])
    assert list(rounds.folder.rglob("_landing/**/*.parquet")) == []


def test_transform_may_drop_everything(rounds: JobRounds) -> None:
    rounds.send(*GOOD)
    summary = rounds.run(transform=lambda records: records.filter("false"))
    assert (summary.records_delivered, summary.failed) == (4, {})
    assert rounds.taken("main") == rounds.taken("copy") == rounds.taken("dead_letter") == Counter()
    assert rounds.partition.progress["landed"] == []
    assert list(rounds.folder.rglob("_landing/**/*.parquet")) == []


@pytest.mark.parametrize("sink", ["main", "copy"])
def test_job_killed_between_two_sinks_duplicates_nothing(rounds: JobRounds, sink: str) -> None:
    rounds.send(*GOOD, b"no JSON")
    with pytest.raises(Crash):
        rounds.run(at(sink, Crash()))
    assert rounds.taken("dead_letter") == Counter([b"no JSON"]), "bad records come first"
    assert rounds.taken("main") == (Counter(GOOD) if sink == "copy" else Counter())
    summary = rounds.run()
    assert (summary.failed, summary.lost) == ({}, [])
    assert rounds.taken("main") == rounds.taken("copy") == Counter(GOOD)
    assert rounds.taken("dead_letter") == Counter([b"no JSON"])
    assert rounds.partition.progress["landed"] == []


def test_permanently_failing_sink_parks_without_duplicates(
    rounds: JobRounds,
) -> None:
    rounds.send(*GOOD, b"no JSON")
    for _ in range(20):
        # Each delivery takes Spark some time, and how often one is tried is others' to test.
        full = at("copy", OSError("the disk of the copy is full"))
        summary = rounds.run(full, retry_policy=RetryPolicy(max_attempts=2, max_closed_count=1))
        assert rounds.taken("main") == Counter(GOOD) and rounds.taken("copy") == Counter()
        assert summary.parse_exceptions in (0, 1) and summary.dead_letters == 0
        if rounds.partition.is_parked:
            break
        rounds.fleet.clock.ahead += timedelta(hours=2)
    assert rounds.partition.is_parked
    assert "the disk of the copy is full" in str(rounds.partition.last_error)
    assert rounds.run().resting == [rounds.partition.partition_key]


def test_temporarily_failing_sink_is_retried_and_counted_once(rounds: JobRounds) -> None:
    rounds.send(*GOOD, b"no JSON")
    summary = rounds.run(at("copy", OSError("the disk of the copy is full"), times=2))
    assert summary.records_by_sink == {"dead_letter": 1, "main": 4, "copy": 4}
    assert (summary.parse_exceptions, summary.dead_letters, summary.failed) == (1, 1, {})
    assert rounds.taken("main") == rounds.taken("copy") == Counter(GOOD)
    assert rounds.taken("dead_letter") == Counter([b"no JSON"])
