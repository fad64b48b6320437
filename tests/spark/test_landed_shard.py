"""The landed file of a shard grows by row groups, with a page and a row group in memory at most."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.user_records import USER_RECORD_SCHEMA
from airflow_provider_coordination.spark.kinesis.landed_shard import (
    PAGE_BYTES,
    LandedShard,
    NoRoomError,
    PageRoom,
    ShardLandingOptions,
    ShardReadPlan,
)
from airflow_provider_coordination.spark.slot_memory import SlotMemory
from tests.support.kinesis_server.clock import VirtualClock

PLAN = ShardReadPlan(
    source_identifier="clicks|PARTITION",
    partition_key="clicks:1:shardId-0",
    fencing_token=1,
    stream="clicks",
    shard_id="shardId-0",
    start=BatchStart(position="TRIM_HORIZON"),
)
ROW_GROUP = 10_000
LIMIT = 2 * PAGE_BYTES


@pytest.fixture
def memory() -> SlotMemory:
    return SlotMemory(LIMIT)


@pytest.fixture
def options(tmp_path: Path) -> ShardLandingOptions:
    return ShardLandingOptions(
        kinesis=AwsSettings(), root=str(tmp_path), seconds=10, max_bytes=2**30, slot_memory_bytes=2 * PAGE_BYTES
    )


def a_page(first: int, records: int = 10, size: int = 500) -> pa.RecordBatch:
    numbers = range(first, first + records)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([str(number) for number in numbers]),
            pa.array([0] * records, pa.int64()),
            pa.array(["key"] * records),
            pa.array(list(numbers), pa.timestamp("us", tz="UTC")),
            pa.array([b"x" * size] * records),
        ],
        schema=USER_RECORD_SCHEMA,
    )


def test_pages_become_row_groups_immediately(options: ShardLandingOptions, memory: SlotMemory, tmp_path: Path) -> None:
    with LandedShard(PLAN, options, memory, ROW_GROUP) as landed:
        for page in range(4):
            landed.add(a_page(10 * page))
            assert memory.hold_now(LIMIT - ROW_GROUP), "it holds more than a row group"
            memory.let_go(LIMIT - ROW_GROUP)
        file, size = landed.close()
    read = pq.ParquetFile(file)
    assert (read.metadata.num_row_groups, read.metadata.num_rows, Path(file).stat().st_size) == (2, 40, size)
    assert read.read(["sequence_number"])["sequence_number"].to_pylist() == [str(n) for n in range(40)]
    assert set(read.read(["_batch_id"])["_batch_id"].to_pylist()) == {landed.batch_id}
    assert (landed.records, landed.data_bytes) == (40, 40 * 500)
    assert memory.hold_now(2 * PAGE_BYTES), "something is still held"


def test_no_records_make_no_file(options: ShardLandingOptions, memory: SlotMemory, tmp_path: Path) -> None:
    with LandedShard(PLAN, options, memory, ROW_GROUP) as landed:
        landed.add(a_page(0, records=0))
        assert landed.close() == ("", 0)
    assert list(tmp_path.rglob("*")) == []


def test_error_leaves_no_file_and_no_held_memory(
    options: ShardLandingOptions, memory: SlotMemory, tmp_path: Path
) -> None:
    def land() -> None:
        with LandedShard(PLAN, options, memory, ROW_GROUP) as landed:
            for page in range(3):
                landed.add(a_page(10 * page))
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        land()
    assert list(tmp_path.rglob("*.parquet")) == []
    assert memory.hold_now(2 * PAGE_BYTES)


def test_shard_waiting_for_a_page_first_writes_held_records(options: ShardLandingOptions, memory: SlotMemory) -> None:
    clock = VirtualClock()
    retry = RetryBudget(until=clock.monotonic(), clock=clock)
    memory.hold(LIMIT - 1)
    with LandedShard(PLAN, options, memory, 2**30) as landed:
        landed.add(a_page(0))
        with pytest.raises(NoRoomError):
            PageRoom(landed, retry).hold()
        assert not memory.hold_now(2) and memory.hold_now(1)
        file, _ = landed.close()
    assert pq.read_metadata(file).num_rows == 10


def test_page_room_is_released_once(options: ShardLandingOptions, memory: SlotMemory) -> None:
    with LandedShard(PLAN, options, memory, ROW_GROUP) as landed:
        room = PageRoom(landed, RetryBudget())
        room.hold()
        assert memory.largest == PAGE_BYTES
        room.let_go()
        room.let_go()
        assert memory.hold_now(LIMIT + 1), "it still holds bytes"


def test_page_takes_over_its_held_room(options: ShardLandingOptions, memory: SlotMemory) -> None:
    with LandedShard(PLAN, options, memory, 2**30) as landed:
        room, page = PageRoom(landed, RetryBudget()), a_page(0)
        room.hold()
        landed.add(page, in_place_of=room.hand_over())
        room.let_go()
        assert memory.largest == PAGE_BYTES
        free = LIMIT - page.nbytes
        assert not memory.hold_now(free + 1) and memory.hold_now(free)
        memory.let_go(free)
    assert memory.hold_now(LIMIT + 1), "it still holds bytes"
