"""The landed file of a batch of items has bounded row groups and needs bounded memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.spark.item_file import (
    READING_BYTES,
    SMALL_TABLES,
    ItemFile,
    ItemPlan,
    ItemRoom,
    NotWrittenError,
    Records,
)
from airflow_provider_coordination.spark.slots import LandingOptions
from tests.support.items import named
from tests.support.waiting import PATIENCE_SECONDS

PLAN = ItemPlan(
    source_identifier="s|PARTITION", partition_key="p", kind="memory", fencing_token=7, items=named("a"), start=""
)
ROW_GROUP = 1000
EVERYTHING = 2**40
"""More bytes than there are: they are granted only while nothing is held."""


@pytest.fixture
def room() -> ItemRoom:
    return ItemRoom(READING_BYTES)


@pytest.fixture
def options(tmp_path: Path) -> LandingOptions:
    return LandingOptions(root=str(tmp_path), seconds=1, max_bytes=2**30, slot_memory_bytes=READING_BYTES)


@pytest.fixture
def file(options: LandingOptions, room: ItemRoom) -> ItemFile:
    return ItemFile(PLAN, options, room, ROW_GROUP)


def a_page(first: int, count: int = 10, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"n": pa.array(range(first, first + count), kind), "text": ["x" * 50] * count})


def numbers(uri: str) -> list[int]:
    found: list[int] = pq.read_table(uri)["n"].to_pylist()
    return found


def test_kept_records_become_row_groups_immediately(file: ItemFile, room: ItemRoom) -> None:
    with file:
        for page in range(4):
            file.add(a_page(10 * page))
            file.keep(write=True)
            assert file._held.bytes < ROW_GROUP
        uri, size = file.close()
    read = pq.ParquetFile(uri)
    assert (read.metadata.num_row_groups, Path(uri).stat().st_size) == (2, size)
    assert numbers(uri) == list(range(40))
    assert set(read.read(["_batch_id"])["_batch_id"].to_pylist()) == {file.batch_id}
    assert file.records == 40
    assert room.memory.hold_now(EVERYTHING)


def test_dropped_records_are_never_written(file: ItemFile) -> None:
    with file:
        file.add(a_page(0))
        file.keep(write=True)
        for page in range(1, 5):
            file.add(a_page(10 * page))
        file.drop()
        file.add(a_page(50))
        file.keep(write=True)
        file.add(a_page(60))
        uri, _ = file.close()
    assert numbers(uri) == [*range(10), *range(50, 60)]


def test_records_not_yet_writable_stay_in_memory(file: ItemFile, tmp_path: Path) -> None:
    with file:
        for page in range(4):
            file.add(a_page(10 * page))
            file.keep(write=False)
        assert list(tmp_path.rglob("*.parquet")) == []
        uri, _ = file.close()
    assert numbers(uri) == list(range(40))


def test_no_records_make_no_file(file: ItemFile, tmp_path: Path) -> None:
    with file:
        file.keep(write=True)
        assert file.is_empty and file.close() == ("", 0)
    assert list(tmp_path.rglob("*")) == []


def test_error_leaves_no_file_and_no_held_memory(file: ItemFile, room: ItemRoom, tmp_path: Path) -> None:
    def land() -> None:
        with file:
            for page in range(4):
                file.add(a_page(10 * page))
                file.keep(write=True)
            file.add(a_page(0, 1000))
            file.wait_for_room()
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        land()
    assert list(tmp_path.rglob("*.parquet")) == []
    assert room.memory.hold_now(EVERYTHING) and not room.beyond.locked()


def test_begun_file_takes_narrower_and_fewer_columns(file: ItemFile) -> None:
    with file:
        file.add(a_page(0, 100))
        file.keep(write=True)
        file.add(a_page(100, kind=pa.int8()).drop_columns(["text"]))
        file.keep(write=True)
        uri, _ = file.close()
    read = pq.read_table(uri)
    assert read["n"].to_pylist() == list(range(110)) and read["text"].to_pylist()[-1] is None


@pytest.mark.parametrize("other", [pa.table({"n": [1.5]}), pa.table({"n": [1], "more": [2]})])
def test_begun_file_refuses_wider_and_additional_columns(file: ItemFile, other: pa.Table) -> None:
    with file:
        file.add(a_page(0, 100))
        file.keep(write=True)
        with pytest.raises(pa.ArrowInvalid, match="a part of the file is written"):
            file.add(other)
        uri, _ = file.close()
    assert numbers(uri) == list(range(100))


def test_file_above_its_share_waits_for_another_above_it(options: LandingOptions, room: ItemRoom) -> None:
    one, other = (ItemFile(PLAN, options, room, ROW_GROUP) for _ in range(2))
    with ThreadPoolExecutor(1) as pool, one, other:
        one.add(a_page(0, 100))
        one.wait_for_room()
        one.add(a_page(100, 100))
        one.wait_for_room()  # it is the one
        other.add(a_page(0))
        other.wait_for_room()  # it has less than its share
        other.add(a_page(10, 100))
        waiting = pool.submit(other.wait_for_room)
        assert room.memory._held == sum(each._held.bytes - ROW_GROUP for each in (one, other))
        assert not waiting.done()
        one.keep(write=True)
        waiting.result(PATIENCE_SECONDS)
        assert room.beyond.locked()
        other.drop()
        assert room.memory.hold_now(EVERYTHING) and not room.beyond.locked()


def test_unstorable_records_differ_from_unreadable_ones(file: ItemFile, tmp_path: Path) -> None:
    with file:
        file.add(pa.table({"n": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}))
        file.keep(write=True)
        with pytest.raises(NotWrittenError) as raised:
            file.close()
    assert isinstance(raised.value.cause, pa.ArrowNotImplementedError)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_many_small_tables_become_one() -> None:
    records = Records()
    for n in range(3 * SMALL_TABLES):
        records.add(a_page(n, 1))
        records.keep()
    taken = records.take()
    assert taken is not None and taken["n"].num_chunks == 3
    assert taken["n"].to_pylist() == list(range(3 * SMALL_TABLES))
    assert (records.bytes, records.take()) == (0, None)


def test_dropped_columns_leave_kept_columns_unchanged() -> None:
    records = Records()
    records.add(a_page(0))
    records.keep()
    records.add(pa.table({"n": [1.5], "more": [True]}))
    assert records.schema.names == ["n", "text", "more"]
    records.drop()
    records.add(a_page(10))
    records.keep()
    taken = records.take()
    assert taken is not None and taken.schema.equals(a_page(0).schema)
    assert taken["n"].to_pylist() == list(range(20))
