"""Landing through Spark: each partition of a reader's DataFrame goes to one file, also if others fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_provider_coordination.sources.items import FrameReader, Item, SourceUnavailableError
from airflow_provider_coordination.spark import frame_landing
from airflow_provider_coordination.spark.frame_landing import land_frames
from airflow_provider_coordination.spark.item_file import ItemPlan
from airflow_provider_coordination.spark.item_landing import LandedItems
from airflow_provider_coordination.spark.landed_identity import partition_folder
from airflow_provider_coordination.spark.membership import LANDING
from airflow_provider_coordination.spark.slots import LandingOptions

pytestmark = pytest.mark.share(0.3)


SCHEMA = "id long, text string"


@dataclass
class StubFrameReader(FrameReader):
    """A reader of frames that a test makes: what Python yields for an item is what the JVM would read."""

    rows: Callable[[int, Item], Any]
    schema: str = SCHEMA

    def frame(self, spark: SparkSession, items: Sequence[Item]) -> DataFrame:
        rows, described = self.rows, [{**item, "together": len(items)} for item in items]

        def read(batches: Any) -> Any:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from rows(number, described[number])

        return spark.range(0, len(items), 1, len(items)).mapInArrow(read, self.schema)

    def origin(self, item: Item) -> str:
        return f"table {item['of']}"


def plan(name: str, *, items: int = 1, start: str = "") -> ItemPlan:
    return ItemPlan(
        source_identifier="orders|PARTITION",
        partition_key=name,
        kind="jdbc",
        fencing_token=3,
        items=tuple({"of": name, "rows": n + 1} for n in range(items)),
        start=start,
    )


def a_batch(first: int, rows: int) -> pa.RecordBatch:
    ids = range(first, first + rows)
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64()), "text": [f"row {n}" for n in ids]})


def as_many_as_the_item_says(number: int, item: Item) -> Any:
    yield a_batch(number * 100, item["rows"])


@pytest.fixture
def options(tmp_path: Path) -> LandingOptions:
    return LandingOptions(root=str(tmp_path), seconds=60.0, max_bytes=2**20, slot_memory_bytes=2**25)


def rows_of(landed: LandedItems) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = pq.read_table(landed.file).to_pylist()
    return table


def files(root: str) -> list[Path]:
    return list(Path(root).rglob("*.parquet"))


def test_each_partition_lands_in_its_own_file(spark: SparkSession, options: LandingOptions) -> None:
    plans = [plan("a", items=1), plan("b", items=3, start="1")]
    one, other = land_frames(spark, plans, StubFrameReader(as_many_as_the_item_says), options)
    assert rows_of(one) == [
        {"id": 0, "text": "row 0", "_origin": "table a", "_row": 0, "_batch_id": one.batch_id},
    ]
    assert [(row["id"], row["_row"]) for row in rows_of(other)] == [(100, 0), (101, 1)], "its second item, of two rows"
    assert (one.start, one.end, one.records, one.is_last, one.error) == ("", "1", 1, True, None)
    assert (other.start, other.end, other.records, other.is_last) == ("1", "2", 2, False)
    assert Path(one.file).parent == Path(options.root) / partition_folder("orders|PARTITION", "a")
    assert one.bytes > 0 and one.batch_id != other.batch_id


def test_partition_without_rows_is_a_batch_without_a_file(spark: SparkSession, options: LandingOptions) -> None:
    def rows(number: int, item: Item) -> Any:
        yield a_batch(0, 0 if item["of"] == "empty" else 1)

    empty, full = land_frames(spark, [plan("empty"), plan("full")], StubFrameReader(rows), options)
    assert (empty.file, empty.records, empty.end, empty.is_last, empty.is_batch) == ("", 0, "1", True, True)
    assert full.records == 1
    assert len(files(options.root)) == 1


def test_failing_partition_stops_no_other_and_leaves_no_file(spark: SparkSession, options: LandingOptions) -> None:
    def rows(number: int, item: Item) -> Any:
        yield a_batch(0, 5)
        if item["of"] == "bad":
            raise ValueError("this range is poison")

    landed = land_frames(spark, [plan("a"), plan("bad"), plan("c")], StubFrameReader(rows), options)
    by_key = {row.partition_key: row for row in landed}
    assert [by_key[key].records for key in ("a", "c")] == [5, 5]
    assert by_key["bad"].error is not None and "this range is poison" in by_key["bad"].error
    assert "\n" not in by_key["bad"].error
    assert not by_key["bad"].is_batch and not by_key["bad"].is_temporary
    kept = {by_key["a"].file, by_key["c"].file}
    assert kept <= set(map(str, files(options.root)))
    assert not list((Path(options.root) / partition_folder("orders|PARTITION", "bad")).glob("*"))


@pytest.mark.parametrize(
    "said",
    [
        "org.postgresql.util.PSQLException: Connection to db:5432 refused.",
        "java.net.SocketTimeoutException: Read timed out",
        "com.mysql.cj.jdbc.exceptions.CommunicationsException: Communications link failure",
        "FATAL: terminating connection due to administrator command",
    ],
)
def test_unreachable_database_is_a_temporary_error(said: str) -> None:
    assert frame_landing._failed(plan("a"), RuntimeError(f"Job aborted\n  {said}")).is_temporary


def test_unavailable_source_is_a_temporary_error() -> None:
    failed = frame_landing._failed(plan("a"), SourceUnavailableError("come back later"))
    assert (failed.error, failed.is_temporary) == ("come back later", True)


def test_task_repeated_by_spark_leaves_one_file(spark: SparkSession, options: LandingOptions) -> None:
    marker = str(Path(options.root) / "tried")

    def rows(number: int, item: Item) -> Any:
        yield a_batch(0, 5)
        if not Path(marker).exists():
            Path(marker).touch()
            raise ValueError("the first try")
        yield a_batch(5, 5)

    [landed] = land_frames(spark, [plan("a")], StubFrameReader(rows), options)
    assert [row["id"] for row in rows_of(landed)] == list(range(10))
    assert files(options.root) == [Path(landed.file)]


def test_large_range_is_written_in_row_groups_while_reading(spark: SparkSession, options: LandingOptions) -> None:
    # 80 MB, of which a slot may hold two row groups and what Arrow needs for them.
    def rows(number: int, item: Item) -> Any:
        text = pa.array(["x" * 1000] * 10_000)
        for n in range(8):
            yield pa.RecordBatch.from_pydict({"id": pa.array(range(n * 10_000, (n + 1) * 10_000)), "text": text})

    [landed] = land_frames(spark, [plan("a")], StubFrameReader(rows), options)
    file = pq.ParquetFile(landed.file)
    sizes = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert (landed.records, sizes) == (80_000, [40_000, 40_000])
    assert file.read(columns=["_row"])["_row"].to_pylist() == list(range(80_000))


def test_types_are_preserved(spark: SparkSession, options: LandingOptions) -> None:
    schema = "d decimal(38,18), t timestamp, n timestamp_ntz, day date, b boolean, raw binary, nothing string, f double"
    values = {
        "d": Decimal("12345678901234567890.123456789012345678"),
        "t": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "n": datetime(2026, 1, 1, 12),
        "day": date(2026, 1, 1),
        "b": True,
        "raw": b"\0\1",
        "nothing": None,
        "f": 0.1,
    }

    class TypedReader(FrameReader):
        def frame(self, spark: SparkSession, items: Sequence[Item]) -> DataFrame:
            return spark.createDataFrame([tuple(values.values()), (None,) * 8], schema).coalesce(1)

        def origin(self, item: Item) -> str:
            return "typed"

    [landed] = land_frames(spark, [plan("a")], TypedReader(), options)
    first, second = rows_of(landed)
    assert {name: first[name] for name in values} == values
    assert {second[name] for name in values} == {None}
    delivered = spark.read.parquet(landed.file)
    assert {name: kind for name, kind in delivered.dtypes if name in values} == dict(
        part.strip().rsplit(" ", 1) for part in schema.replace("38,18", "38;18").split(",")
    ) | {"d": "decimal(38,18)"}


def test_names_with_dots_and_quotes_are_preserved(spark: SparkSession, options: LandingOptions) -> None:
    class OddNamesReader(FrameReader):
        def frame(self, spark: SparkSession, items: Sequence[Item]) -> DataFrame:
            return spark.range(0, 1, 1, 1).toDF("a.b").selectExpr("`a.b`", "1 AS `c``d`", "2 AS `a`", "3 AS `e f`")

        def origin(self, item: Item) -> str:
            return "named"

    [landed] = land_frames(spark, [plan("a")], OddNamesReader(), options)
    assert landed.error is None
    [row] = rows_of(landed)
    assert (row["a.b"], row["c`d"], row["a"], row["e f"]) == (0, 1, 2, 3)


def test_reserved_column_name_is_refused(spark: SparkSession, options: LandingOptions) -> None:
    [landed] = land_frames(
        spark, [plan("a")], StubFrameReader(as_many_as_the_item_says, "_row long, text string"), options
    )
    assert landed.error == "it has a column '_row', whose name is reserved; rename it"


def test_wrong_number_of_partitions_is_refused(spark: SparkSession, options: LandingOptions) -> None:
    class ThreePartitionsReader(StubFrameReader):
        def frame(self, spark: SparkSession, items: Sequence[Item]) -> DataFrame:
            return spark.range(0, 10, 1, 3)

    [landed] = land_frames(spark, [plan("a")], ThreePartitionsReader(as_many_as_the_item_says), options)
    assert "3 partitions for 1 items" in str(landed.error)


def test_landing_begins_no_partition_after_the_deadline(spark: SparkSession, options: LandingOptions) -> None:
    class TwoAtOnceReader(StubFrameReader):
        reads_at_once = 2

    plans = [plan(str(n)) for n in range(5)]
    landed = land_frames(spark, plans, TwoAtOnceReader(as_many_as_the_item_says), replace(options, seconds=0.0))
    assert [row.is_batch for row in landed] == [True, True, False, False, False], "as many as the source bears"
    assert [row.partition_key for row in landed] == [str(n) for n in range(5)]


@pytest.mark.parametrize("together", [6, 1])
def test_cancelled_landing_ends_at_once(spark: SparkSession, options: LandingOptions, together: int) -> None:
    folder = Path(options.root)

    def rows(number: int, item: Item) -> Any:
        if item["together"] != together:
            raise ValueError("so that they are read each alone")
        (folder / f"began-{item['of']}").touch()
        time.sleep(60)
        yield a_batch(0, 1)

    def cancel() -> None:
        while len(list(folder.glob("began-*"))) < 2:
            time.sleep(0.05)
        spark.sparkContext.cancelJobGroup(LANDING)

    threading.Thread(target=cancel, daemon=True).start()
    with pytest.raises(Exception, match="cancelled"):
        land_frames(spark, [plan(str(n)) for n in range(6)], StubFrameReader(rows), options)
    assert len(list(folder.glob("began-*"))) == 2, "one in each slot"
