"""Scenarios about reading shards, from the Kinesis Client Library, Druid and Samza.

The numbers are those of the conformance scenarios. Where upstream loses data or leaves a question open, the comment
says what we do instead.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis.aggregation import HashKeyRange
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow, land_shard
from tests.support.aggregation import aggregate
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.in_process import InProcessClient

SHARD = "shardId-000000000000"
PLAN = ShardReadPlan(
    source_identifier="clicks|PARTITION",
    partition_key=f"s:1:{SHARD}",
    fencing_token=1,
    stream="s",
    shard_id=SHARD,
    start=BatchStart(position="TRIM_HORIZON", retention=timedelta(days=1)),
)


class Stream:
    """A stream of one shard, and what landing makes of it."""

    def __init__(self, root: Path) -> None:
        self.clock = VirtualClock()
        self.engine = Engine(self.clock)
        self.client = InProcessClient(self.engine)
        self.client.create_stream(StreamName="s", ShardCount=1)
        self.options = ShardLandingOptions(
            kinesis=AwsSettings(max_attempts=3), root=str(root), seconds=30, max_bytes=2**30, slot_memory_bytes=2**29
        )

    def put(self, *data: bytes) -> list[str]:
        put = self.client.put_record
        return [put(StreamName="s", Data=d, PartitionKey="k", ExplicitHashKey="0")["SequenceNumber"] for d in data]

    def land(self, start: str = "TRIM_HORIZON", **plan: Any) -> LandedShardRow:
        begin = BatchStart(
            position=start,
            retention=timedelta(days=1),
            delivered_until=plan.pop("delivered_until", self.clock.now()),
        )
        return land_shard(
            self.client, self.options, replace(PLAN, start=begin, **plan), clock=self.clock, sleep=self.clock.sleep
        )

    def split(self) -> None:
        self.client.split_shard(StreamName="s", ShardToSplit=SHARD, NewStartingHashKey=str(2**127))


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def rows(landed: LandedShardRow) -> list[dict[str, Any]]:
    return pq.read_table(landed.file).to_pylist() if landed.file else []


def test_66_shard_ends_after_its_last_checkpointed_record(stream: Stream) -> None:
    # Upstream promotes a checkpoint at the remembered end to SHARD_END, and never completes the shard if that number
    # was checkpointed before (issue 211). Here the end is a fact of its own, landed with the position it was read from.
    [last] = stream.put(b"1")
    stream.split()
    landed = stream.land(last)
    assert (landed.is_batch, landed.start, landed.end, landed.is_last) == (True, last, last, True)
    assert [child.shard_id for child in landed.children] == ["shardId-000000000001", "shardId-000000000002"]


def test_69_only_user_records_in_range_are_delivered(stream: Stream) -> None:
    # Upstream delivers none: the first user record out of range discards the whole Kinesis record, and what is in range
    # is lost. Only those out of range are left out here, and counted.
    middle = range(2**126, 2**126 + 5)
    below, above = range(5), range(2**127, 2**127 + 5)
    hash_keys = [*below, *middle, *above]
    stream.put(aggregate([("k", b"%d" % key) for key in hash_keys], [str(key) for key in hash_keys]))
    landed = stream.land(hash_keys=HashKeyRange(2**126, 2**127 - 1))
    assert [row["data"] for row in rows(landed)] == [b"%d" % key for key in middle]
    assert [row["sub_sequence_number"] for row in rows(landed)] == [5, 6, 7, 8, 9]
    assert (landed.records, landed.filtered) == (5, 10)


def test_69_user_records_out_of_range_can_be_kept(stream: Stream) -> None:
    stream.put(aggregate([("k", b"in"), ("k", b"out")], ["0", "9"]))
    stream.options = replace(stream.options, filter_by_hash_range=False)
    landed = stream.land(hash_keys=HashKeyRange(0, 5))
    assert [row["data"] for row in rows(landed)] == [b"in", b"out"]


def test_41_permanent_refusal_stops_and_reports_the_shard(stream: Stream) -> None:
    # Druid's fetcher stops for good, in silence for its task.
    number, _ = stream.put(b"1", b"2")
    stream.engine.faults.refuse("GetShardIterator", "InvalidArgumentException", times=None)
    landed = stream.land(number)
    assert landed.error is not None and SHARD in landed.error and not landed.is_temporary


def test_42_empty_open_shard_is_read_once(stream: Stream) -> None:
    landed = stream.land()
    assert (landed.is_batch, landed.error, landed.millis_behind_latest) == (False, None, 0)
    assert stream.engine.calls["GetRecords"] == 1


def test_54_records_are_ordered_and_positions_resume_reading(stream: Stream) -> None:
    numbers = stream.put(*(b"%d" % number for number in range(5)))
    landed = stream.land()
    assert [row["data"] for row in rows(landed)] == [b"0", b"1", b"2", b"3", b"4"]
    assert [row["sequence_number"] for row in rows(landed)] == numbers
    assert landed.end == numbers[-1]
    assert not stream.land(landed.end).is_batch


def test_59_shard_ends_with_its_last_record(stream: Stream) -> None:
    # Samza reports the end only once everything before it is checkpointed; the end is part of the last batch here, so
    # it cannot come earlier.
    numbers = stream.put(*(b"%d" % number for number in range(5)))
    stream.split()
    landed = stream.land()
    assert (landed.records, landed.end, landed.is_last) == (5, numbers[-1], True)
