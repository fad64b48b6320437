"""Partitions of items are landed with everything real but Spark: the content and the ends of batches."""

from __future__ import annotations

import gzip
import tempfile
import threading
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.sources.items import (
    MAX_WITHIN_BYTES,
    Item,
    ItemGoneError,
    ItemPosition,
    ItemUnreadableError,
    ReadPage,
    SourceUnavailableError,
)
from airflow_provider_coordination.spark.item_file import READING_BYTES, ItemPlan, ItemRoom
from airflow_provider_coordination.spark.item_landing import (
    GONE_NAMED,
    MAX_FAILED_ITEMS,
    LandedItems,
    _land_slot,
    is_temporary,
    land_partition,
)
from airflow_provider_coordination.spark.slot_memory import ROW_GROUP_BYTES
from airflow_provider_coordination.spark.slots import LandingOptions, distribute
from tests.support.depth import examples
from tests.support.items import FakeItem, FakeSource, named
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.waiting import PATIENCE_SECONDS

DAMAGED = ItemUnreadableError("it is damaged")
GONE = ItemGoneError("it is gone")
AWAY = SourceUnavailableError("the source is away")

MAP = pa.map_(pa.string(), pa.float64())
DECIMAL = pa.decimal128(2, 1)


class LandingFolder:
    """A partition of a source in memory, and a folder where it is landed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = FakeSource()
        self.clock = VirtualClock()
        self.names: list[str] = []

    def add(self, name: str, *pages: Any, **changes: Any) -> None:
        self.source.items[name] = FakeItem(pages, **changes)
        self.names.append(name)

    def land(
        self,
        start: str = "",
        *,
        max_bytes: int = 2**30,
        until: float = float("inf"),
        row_group_bytes: int = ROW_GROUP_BYTES,
        room: ItemRoom | None = None,
    ) -> LandedItems:
        options = LandingOptions(root=str(self.folder), seconds=1, max_bytes=max_bytes, slot_memory_bytes=2**25)
        return land_partition(
            self.source,
            options,
            self.plan(start),
            until=until,
            room=room,
            row_group_bytes=row_group_bytes,
            clock=self.clock,
        )

    def plan(self, start: str = "") -> ItemPlan:
        return ItemPlan(
            source_identifier="s|PARTITION",
            partition_key="p",
            kind="memory",
            fencing_token=7,
            items=named(*self.names),
            start=start,
        )

    def land_all(self, start: str = "", **bounds: Any) -> list[LandedItems]:
        """Land batch after batch until the partition ends or one fails."""
        rows = [self.land(start, **bounds)]
        while not rows[-1].is_last and rows[-1].error is None:
            assert rows[-1].is_batch and len(rows) < 100
            rows.append(self.land(rows[-1].end, **bounds))
        return rows


@pytest.fixture
def folder(tmp_path: Path) -> LandingFolder:
    return LandingFolder(tmp_path)


def table(row: LandedItems) -> pa.Table:
    return pq.read_table(row.file)


def data(row: LandedItems) -> list[str]:
    return table(row).column("data").to_pylist() if row.file else []


def rows_of(*values: Any, name: str = "n", kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({name: pa.array(values, kind)})


# What is in a batch


def test_small_items_share_a_file_and_records_name_their_origin(folder: LandingFolder) -> None:
    folder.add("a", ["a0", "a1"], ["a2"])
    folder.add("b", ["b0"])
    row = folder.land()
    assert table(row).to_pylist() == [
        {"data": text, "_origin": f"memory:{text[0]}", "_row": int(text[1]), "_batch_id": row.batch_id}
        for text in ("a0", "a1", "a2", "b0")
    ]
    assert (row.start, row.end, row.records, row.is_last, row.items) == ("", "2", 4, True, 2)


def test_records_of_a_repeated_origin_are_distinguished(folder: LandingFolder) -> None:
    folder.add("a", ["first"], ["second"])
    folder.names.append("a")
    assert table(folder.land()).column("_row").to_pylist() == [0, 1, 2, 3]


def test_item_without_records_is_done_without_a_file(folder: LandingFolder) -> None:
    folder.add("a")
    folder.add("b", [])
    row = folder.land()
    assert (row.end, row.file, row.records, row.is_last, row.is_batch) == ("2", "", 0, True, True)


def test_partition_without_items_ends_at_once(folder: LandingFolder) -> None:
    row = folder.land()
    assert (row.end, row.is_last, row.is_batch, row.error) == ("", True, True, None)


def test_each_landing_is_its_own_batch_and_file(folder: LandingFolder) -> None:
    folder.add("a", ["1"], ["2"], positions=True)
    one, other = folder.land(), folder.land()
    assert one.batch_id != other.batch_id and one.file != other.file
    assert one.batch_id.startswith("memory-")


def test_reading_resumes_at_a_position(folder: LandingFolder) -> None:
    folder.add("a", ["done"])
    folder.add("b", ["done"], ["b1"], positions=True)
    folder.add("c", ["c0"])
    row = folder.land("1:1")
    assert (data(row), row.start, row.end) == (["b1", "c0"], "1:1", "3")
    assert folder.source.reads == [("b", "1"), ("c", "")]


# Where a batch ends


def test_full_batch_ends_at_a_position_within_an_item(folder: LandingFolder) -> None:
    folder.add("a", ["0" * 100], ["1" * 100], ["2" * 100], positions=True)
    rows = folder.land_all(max_bytes=150)
    assert [(row.start, row.end, row.is_last) for row in rows] == [("", "0:2", False), ("0:2", "1", True)]
    assert [len(data(row)) for row in rows] == [2, 1]


def test_batch_ends_between_items_that_cannot_be_cut(folder: LandingFolder) -> None:
    folder.add("a", ["0" * 100])
    folder.add("b", ["1" * 100], ["2" * 100])
    folder.add("c", ["3"])
    rows = folder.land_all(max_bytes=150)
    assert [(row.start, row.end) for row in rows] == [("", "1"), ("1", "2"), ("2", "3")]
    assert [text for row in rows for text in data(row)] == ["0" * 100, "1" * 100, "2" * 100, "3"]


def test_uncuttable_item_is_read_whole_at_any_size(folder: LandingFolder) -> None:
    folder.add("a", *([str(n)] for n in range(50)))
    row = folder.land(max_bytes=1)
    assert (row.records, row.is_last) == (50, True)


def test_records_after_the_last_position_await_the_next_batch(folder: LandingFolder) -> None:
    folder.add("a", ["0" * 100], positions=True)
    folder.add("b", ["1" * 100], ["2" * 100])
    first = folder.land(max_bytes=250)
    assert (first.end, data(first)) == ("1", ["0" * 100])


def test_reading_ends_on_time_at_a_position(folder: LandingFolder) -> None:
    class SlowSource(FakeSource):
        def read(self, item: Item, position: str) -> Any:
            for page in super().read(item, position):
                folder.clock.advance(1)
                yield page

    folder.source = SlowSource()
    folder.add("a", ["0"], ["1"], ["2"], positions=True)
    folder.add("b", ["3"], ["4"])
    now = folder.clock.monotonic()
    rows = [folder.land(until=now + 2), folder.land("0:2", until=now + 3), folder.land("1", until=now + 4)]
    assert [(row.end, data(row)) for row in rows] == [("0:2", ["0", "1"]), ("0:3", ["2"]), ("2", ["3", "4"])]


def test_partition_without_time_left_is_skipped(folder: LandingFolder) -> None:
    folder.add("a", ["0"])
    row = folder.land(until=folder.clock.monotonic())
    assert (row.is_batch, row.error, folder.source.reads) == (False, None, [])


def test_repeated_start_position_does_not_cut_forever(folder: LandingFolder) -> None:
    folder.add("a", ["0"], ["1"], positions=True)

    class UnstoppableSource(FakeSource):
        def read(self, item: Item, position: str) -> Any:
            return (replace(page, position="1") for page in super().read(item, position))

    folder.source = UnstoppableSource(folder.source.items)
    row = folder.land("0:1", max_bytes=1)
    assert (row.end, data(row)) == ("1", ["1"])


# Columns


def test_compatible_columns_share_a_file(folder: LandingFolder) -> None:
    folder.add("a", rows_of(1, 2))
    folder.add("b", rows_of(None, kind=pa.null()), rows_of("x", name="more"))
    folder.add("c", rows_of(3, kind=pa.int32()), rows_of(1.5))
    row = folder.land()
    assert row.is_last
    assert table(row).column("n").to_pylist() == [1, 2, None, None, 3, 1.5]
    assert table(row).column("more").to_pylist() == [None, None, None, "x", None, None]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (rows_of(1), rows_of("x")),
        (rows_of(2**60 + 1), rows_of(1.5)),
        (rows_of(1.5), rows_of(2**60 + 1)),
        (rows_of(Decimal("1.1")), rows_of(1.5)),
        (rows_of([{"x": 1.5}]), rows_of([{"x": Decimal("1.1")}])),
        (rows_of([("k", 1.5)], kind=MAP), rows_of([("k", Decimal("1.1"))], kind=pa.map_(pa.string(), DECIMAL))),
        (rows_of(Decimal("9" * 38)), rows_of(Decimal("1.1"))),
        (rows_of("x"), rows_of(b"\xff")),
        (rows_of(1), rows_of(2, name="N")),
    ],
)
def test_batch_is_cut_before_columns_would_lose_values(
    folder: LandingFolder, first: pa.Table, second: pa.Table
) -> None:
    folder.add("a", first)
    folder.add("b", second)
    rows = folder.land_all()
    assert [row.end for row in rows] == ["1", "2"]
    assert [table(row).column(0).to_pylist() for row in rows] == [t.column(0).to_pylist() for t in (first, second)]


def test_columns_may_change_within_an_item_at_a_position(folder: LandingFolder) -> None:
    folder.add("a", rows_of(1), rows_of("x"), positions=True)
    rows = folder.land_all()
    assert [(row.end, table(row).column("n").to_pylist()) for row in rows] == [("0:1", [1]), ("1", ["x"])]


def test_columns_changing_without_a_position_make_an_item_unreadable(folder: LandingFolder) -> None:
    folder.add("a", rows_of(0))
    folder.add("b", rows_of(1), rows_of("x"))
    folder.add("c", rows_of(2))
    first, second = folder.land_all()
    assert (first.end, table(first).column("n").to_pylist()) == ("1", [0])
    assert (second.end, table(second).column("n").to_pylist()) == ("3", [2])
    assert [(f.item, "the columns of its records change" in f.reason) for f in second.failed] == [(1, True)]


def test_columns_of_a_set_aside_item_do_not_affect_others(folder: LandingFolder) -> None:
    folder.add("a", rows_of("x"), error=DAMAGED, fails_at=1)
    folder.add("b", rows_of(1))
    row = folder.land()
    assert row.is_last and table(row).column_names == ["n", "_origin", "_row", "_batch_id"]
    assert table(row).column("n").to_pylist() == [1]


def test_columns_differing_by_case_make_an_item_unreadable(folder: LandingFolder) -> None:
    folder.add("a", pa.table({"n": [1], "N": [2]}))
    folder.add("b", rows_of(1))
    assert "columns 'n' and 'N' differ only by case" in folder.land().failed[0].reason


@pytest.mark.parametrize("name", ["_origin", "_row", "_batch_id", "_ROW"])
def test_item_with_a_reserved_column_is_unreadable(folder: LandingFolder, name: str) -> None:
    folder.add("a", rows_of(1, name=name))
    folder.add("b", rows_of(1))
    row = folder.land()
    assert f"it has a column '{name}', whose name is reserved; rename it" in row.failed[0].reason


def test_nested_columns_are_merged(folder: LandingFolder) -> None:
    folder.add("a", rows_of([{"x": 1}]))
    folder.add("b", rows_of([{"y": "z"}], None))
    assert table(folder.land()).column("n").to_pylist() == [[{"x": 1, "y": None}], [{"x": None, "y": "z"}], None]


# What cannot be read


@pytest.mark.parametrize("at", [0, 1, 2])
def test_failing_item_is_set_aside_and_others_land(folder: LandingFolder, at: int) -> None:
    for n, name in enumerate("abc"):
        folder.add(name, [f"{name}0"], error=DAMAGED if n == at else None)
    row = folder.land()
    assert (row.error, row.end, row.is_last) == (None, "3", True)
    assert data(row) == [f"{name}0" for n, name in enumerate("abc") if n != at]
    assert [(f.item, f.within, f.reason) for f in row.failed] == [(at, "", f"memory:{'abc'[at]}: it is damaged")]


@pytest.mark.parametrize("error", [ValueError("of the reader"), OSError("Couldn't deserialize thrift"), EOFError()])
def test_any_reader_error_leaves_other_items_landed(folder: LandingFolder, error: Exception) -> None:
    folder.add("a", ["a0"], error=error)
    folder.add("b", ["b0"])
    row = folder.land()
    assert (data(row), [f.item for f in row.failed]) == (["b0"], [0])


def test_failing_item_is_landed_up_to_its_last_position(folder: LandingFolder) -> None:
    folder.add("a", ["a0"], ["a1"], ["a2"], positions=True, error=DAMAGED, fails_at=2)
    folder.add("b", ["b0"], ["b1"], error=DAMAGED, fails_at=1)
    folder.add("c", ["c0"])
    row = folder.land()
    assert data(row) == ["a0", "a1", "c0"]
    assert [(f.item, f.within) for f in row.failed] == [(0, "2"), (1, "")]


@pytest.mark.parametrize("error", [DAMAGED, AWAY])
def test_records_after_a_failing_items_last_position_are_not_landed(folder: LandingFolder, error: Exception) -> None:
    folder.add("a", ["a0"], ["a1"], positions={0}, error=error, fails_at=2)
    folder.add("b", ["b0"])
    row = folder.land()
    assert data(row) == (["a0", "b0"] if error is DAMAGED else ["a0"])
    assert row.end == ("2" if error is DAMAGED else "0:1")


def test_partition_without_readable_items_fails(folder: LandingFolder) -> None:
    folder.add("a", error=DAMAGED)
    folder.add("b", error=ValueError("no"))
    row = folder.land()
    assert (row.error, row.is_temporary) == (
        "none of its 2 items can be read; the first: memory:a: it is damaged",
        False,
    )
    assert list(folder.folder.rglob("*.parquet")) == []


def test_error_naming_its_item_is_reported_once_in_full(folder: LandingFolder) -> None:
    reason = f"memory:a: access denied, {'as it says at length, ' * 20}; check the credentials"
    folder.add("a", error=ItemUnreadableError(reason))
    folder.add("b", error=DAMAGED)
    assert folder.land().error == f"none of its 2 items can be read; the first: {reason}"


def test_partition_of_one_unreadable_item_fails(folder: LandingFolder) -> None:
    folder.add("a", ["0"], error=DAMAGED, fails_at=1)
    assert (folder.land().error, folder.land().is_temporary) == ("memory:a: it is damaged", False)


def test_single_failing_item_lands_first_and_fails_next_time(folder: LandingFolder) -> None:
    folder.add("a", ["0"], ["1"], positions=True, error=DAMAGED, fails_at=1)
    first, second = folder.land_all()
    assert (first.end, data(first), first.failed) == ("0:1", ["0"], ())
    assert second.error == "memory:a: it is damaged"


def test_set_aside_items_above_the_maximum_fail_the_partition(folder: LandingFolder) -> None:
    folder.add("good", ["0"])
    for n in range(MAX_FAILED_ITEMS):
        folder.add(f"bad{n}", error=DAMAGED)
    assert len(folder.land().failed) == MAX_FAILED_ITEMS
    folder.add("one more", error=DAMAGED)
    assert folder.land().error == "more than 50 of its items cannot be read; the first: memory:bad0: it is damaged"


def test_missing_items_are_done_and_the_first_are_named(folder: LandingFolder) -> None:
    for n in range(GONE_NAMED + 5):
        folder.add(f"{n}", error=GONE)
    folder.add("last", ["0"])
    row = folder.land()
    assert (row.is_last, row.failed, data(row)) == (True, (), ["0"])
    assert (row.gone_count, len(row.gone), row.gone[0]) == (GONE_NAMED + 5, GONE_NAMED, "memory:0")


def test_partition_of_missing_items_ends_without_records(folder: LandingFolder) -> None:
    folder.add("a", error=GONE)
    assert (folder.land().is_last, folder.land().file, folder.land().error) == (True, "", None)


@pytest.mark.parametrize("error", [AWAY, ConnectionResetError("reset"), TimeoutError("slow"), OSError(110, "slow")])
def test_unavailable_source_before_the_first_record_is_temporary(folder: LandingFolder, error: Exception) -> None:
    folder.add("a", ["0"], error=error, fails_at=1)
    folder.add("b", ["1"])
    row = folder.land()
    assert row.is_temporary and row.error is not None and str(error.args[-1]) in row.error


def test_unavailable_source_after_some_records_loses_none(folder: LandingFolder) -> None:
    folder.add("a", ["a0"])
    folder.add("b", ["b0"], ["b1"], ["b2"], positions=True, error=AWAY, fails_at=2)
    row = folder.land()
    assert (row.error, row.end, data(row), row.is_last) == (None, "1:2", ["a0", "b0", "b1"], False)
    folder.source.items["b"].error = None
    assert data(folder.land(row.end)) == ["b2"]


def test_outage_makes_records_after_the_last_position_read_again(folder: LandingFolder) -> None:
    folder.add("a", ["a0"])
    folder.add("b", ["b0"], error=AWAY, fails_at=1)
    row = folder.land()
    assert (row.end, data(row)) == ("1", ["a0"])


def test_item_set_aside_before_an_outage_is_remembered(folder: LandingFolder) -> None:
    folder.add("a", error=DAMAGED)
    folder.add("b", error=AWAY)
    row = folder.land()
    assert (row.error, row.end, [f.item for f in row.failed]) == (None, "1", [0])


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionRefusedError(111, "refused"), True),
        (OSError(5, "input/output error"), True),
        (gzip.BadGzipFile(22, "not a gzipped file"), False),
        (FileNotFoundError(2, "no such file"), False),
        (PermissionError(13, "denied"), False),
        (OSError("Invalid: Parquet magic bytes not found"), False),
        (ValueError("no"), False),
    ],
)
def test_damage_differs_from_an_unavailable_source(error: Exception, passes: bool) -> None:
    assert is_temporary(error) is passes


def test_unwritable_landing_folder_is_a_temporary_error(folder: LandingFolder) -> None:
    folder.add("a", ["0"])
    (folder.folder / "in the way").write_text("")
    folder.folder = folder.folder / "in the way"
    row = folder.land()
    assert row.is_temporary and f"landing in {folder.folder} failed" in str(row.error)


def test_unlandable_value_sets_its_item_aside(folder: LandingFolder) -> None:
    folder.add("a", pa.table({"at": pa.array([1], pa.timestamp("ns"))}))
    folder.add("b", pa.table({"at": pa.array([1000], pa.timestamp("ns"))}))
    row = folder.land()
    [failed] = row.failed
    assert failed.reason.startswith("memory:a: column 'at': 1970-01-01 00:00:00.000000001 is timestamp[ns]")
    assert table(row)["at"].to_pylist() == [datetime(1970, 1, 1, 0, 0, 0, 1)]


def test_reader_unable_to_name_an_item_fails_its_partition_alone(folder: LandingFolder) -> None:
    class NamelessSource(FakeSource):
        def origin(self, item: Item) -> str:
            raise KeyError("bucket")

    folder.source = NamelessSource()
    folder.add("a", error=DAMAGED)
    assert folder.land().error == "it cannot be landed: KeyError('bucket')"


# Bounds


def test_overlong_position_makes_its_item_unreadable(folder: LandingFolder) -> None:
    class LongPositionsSource(FakeSource):
        def read(self, item: Item, position: str) -> Any:
            return (replace(page, position="x" * MAX_WITHIN_BYTES) for page in super().read(item, position))

    folder.source = LongPositionsSource()
    folder.add("a", ["0"])
    assert "its reader returned a position of 8194 bytes, above the limit of 8192" in str(folder.land().error)


def test_longest_position_is_kept_out_of_file_names(folder: LandingFolder) -> None:
    class LongPositionsSource(FakeSource):
        def read(self, item: Item, position: str) -> Any:
            return (replace(p, position=p.position.zfill(4000)) for p in super().read(item, position))

    folder.source = LongPositionsSource()
    folder.add("a", ["0"], ["1"], positions=True)
    rows = folder.land_all(max_bytes=1)
    assert [data(row) for row in rows] == [["0"], ["1"], []]


@pytest.mark.parametrize("text", ["x" * 10_000, "é" * 10_000, "\ud800\0" * 100])
def test_reason_of_an_unreadable_item_is_shortened(folder: LandingFolder, text: str) -> None:
    folder.add("a", error=ItemUnreadableError(text))
    folder.add("b", ["0"])
    [failed] = folder.land().failed
    assert failed.reason.startswith("memory:a") and len(str(failed.reason.encode("unicode_escape"))) < 250


def test_partitions_are_dealt_evenly_to_slots(folder: LandingFolder) -> None:
    def plan(key: str, *sizes: Any) -> ItemPlan:
        return replace(folder.plan(), partition_key=key, items=tuple({"size": size} for size in sizes))

    plans = [plan("a", 10), plan("b", 90), plan("c", 50, 50), plan("d", 80), plan("e", "large", None, -5, True)]
    slots = distribute(plans, 2, lambda plan: plan.size)
    assert [[p.partition_key for p in slot] for slot in slots] == [["c", "a", "e"], ["b", "d"]]
    assert distribute(plans[:1], 4, lambda plan: plan.size) == [[plans[0]]]
    assert replace(plans[2], start=str(ItemPosition(1))).size == 51, "what is read already does not count"


# Memory


class LazySource(FakeSource):
    """Items of some pages of one MiB each; a page is made when it is asked for, and what Arrow has is noted."""

    def __init__(self, pages: int, *, positions: bool) -> None:
        super().__init__()
        self.pages, self.positions, self.most = pages, positions, 0

    def read(self, item: Item, position: str) -> Any:
        for page in range(int(position or 0), self.pages):
            self.most = max(self.most, pa.total_allocated_bytes())
            text = pa.array([f"{item['name']}/{page}/{'x' * 2**10}" for _ in range(2**10)])
            yield ReadPage(pa.table({"data": text}), str(page + 1) if self.positions else "")


def test_memory_stays_flat_for_a_batch_of_a_cuttable_item(folder: LandingFolder) -> None:
    folder.source, room = LazySource(100, positions=True), ItemRoom(READING_BYTES)
    folder.names.append("large")
    before = pa.total_allocated_bytes()
    row = folder.land(room=room)
    assert (row.records, row.is_last, row.bytes > 100 * 2**20) == (100 * 2**10, True, True)
    assert pq.read_metadata(row.file).num_row_groups > 4
    assert folder.source.most - before < READING_BYTES
    assert room.memory.largest <= READING_BYTES + 2 * 2**20, "a row group and the page that made it one"


def test_uncuttable_item_is_held_whole_and_counted(folder: LandingFolder) -> None:
    folder.source, room = LazySource(40, positions=False), ItemRoom(READING_BYTES)
    folder.names.append("large")
    row = folder.land(room=room)
    assert (row.records, pq.read_metadata(row.file).num_rows) == (40 * 2**10, 40 * 2**10)
    assert room.memory.largest > 40 * 2**20
    assert room.memory.hold_now(2**40), "more than there is, so it is granted only while nothing is held"


def test_page_larger_than_slot_memory_is_landed(folder: LandingFolder) -> None:
    folder.add("a", pa.table({"data": ["x" * 2**20] * 40}), ["next"], positions=True)
    row = folder.land(room=ItemRoom(READING_BYTES))
    assert (row.records, row.is_last, row.error) == (41, True, None)


def slot(folder: LandingFolder, source: Any, partitions: int, memory: int, at_once: int = 32) -> list[LandedItems]:
    options = LandingOptions(root=str(folder.folder), seconds=60, max_bytes=2**30, slot_memory_bytes=memory)
    plans = [replace(folder.plan(), partition_key=f"p{n}", items=named(f"i{n}")) for n in range(partitions)]
    return _land_slot(source, options, at_once, plans)


@pytest.mark.parametrize(("memory", "at_once", "expected"), [(16, 32, 16), (3, 32, 3), (16, 2, 2), (1, 32, 1)])
def test_slot_reads_partitions_in_parallel_within_memory_and_source_limits(
    folder: LandingFolder, memory: int, at_once: int, expected: int
) -> None:
    together = threading.Barrier(expected, timeout=PATIENCE_SECONDS)
    lock, now, most = threading.Lock(), 0, 0

    class CountingSource(FakeSource):
        def read(self, item: Item, position: str) -> Any:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            together.wait()
            yield ReadPage(pa.table({"data": [item["name"]]}))
            with lock:
                now -= 1

    rows = slot(folder, CountingSource(), 2 * expected, memory * READING_BYTES, at_once)
    assert [row.error for row in rows] == [None] * len(rows)
    assert sorted(text for row in rows for text in data(row)) == sorted(f"i{n}" for n in range(2 * expected))
    assert most == expected
    assert {row.memory_bytes for row in rows} == {expected * READING_BYTES}


def test_large_uncuttable_items_grow_one_after_another(folder: LandingFolder) -> None:
    rows = slot(folder, LazySource(40, positions=False), 4, 4 * READING_BYTES)
    assert [row.records for row in rows] == [40 * 2**10] * 4
    shares, one = 4 * READING_BYTES, 41 * 2**20 - ROW_GROUP_BYTES
    assert rows[0].memory_bytes < shares + one + 4 * 2 * 2**20, "beyond its share only one has more than two pages"


def test_partition_without_room_in_time_is_skipped(folder: LandingFolder) -> None:
    folder.add("a", ["0"])
    room = ItemRoom(READING_BYTES)
    room.enter(None)
    row = folder.land(until=folder.clock.monotonic() + 0.01, room=room)
    assert (row.is_batch, row.error, folder.source.reads) == (False, None, [])


TEXTS = st.lists(st.text("ab", min_size=1, max_size=30), max_size=3)
PAGES = TEXTS | st.sampled_from([rows_of(1), rows_of(1.5), rows_of("x"), rows_of(1, kind=pa.int8())])
ITEMS = st.lists(
    st.tuples(
        st.lists(PAGES, max_size=4),
        st.sampled_from([False, True, frozenset([0, 2])]),
        st.sampled_from([None, None, None, DAMAGED, GONE]),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=5,
)


def value_of(record: dict[str, Any]) -> Any:
    """Return what a record holds: the same number where a file is cut before or after its column became wider."""
    text, number = record.get("data"), record.get("n")
    return text if text is not None else float(number) if isinstance(number, int) else number


def landed(
    items: list[Any], max_bytes: int, row_group_bytes: int
) -> tuple[list[tuple[str, Any]], list[int], str | None]:
    """Return what is landed of a partition, which items are not, and why the rest is not."""
    with tempfile.TemporaryDirectory() as root:
        folder = LandingFolder(Path(root))
        for number, (pages, positions, error, at) in enumerate(items):
            folder.add(f"i{number}", *pages, positions=positions, error=error, fails_at=min(at, len(pages)))
        if len(items) > 1:  # of a batch of which none can be read nothing is landed, and that depends on its cut
            folder.add("readable", ["end"])
        rows = folder.land_all(max_bytes=max_bytes, row_group_bytes=row_group_bytes)
        found = [record for row in rows if row.file for record in table(row).to_pylist()]
        records = [(record["_origin"], value_of(record)) for record in found]
        return records, [failed.item for row in rows for failed in row.failed], rows[-1].error


@settings(max_examples=examples(60), deadline=None)
@given(ITEMS, st.sampled_from([1, 100, 2**30]), st.sampled_from([1, 60, 200]))
def test_dataset_does_not_depend_on_memory(items: list[Any], max_bytes: int, row_group_bytes: int) -> None:
    assert landed(items, max_bytes, row_group_bytes) == landed(items, max_bytes, ROW_GROUP_BYTES)
