"""Parquet files that pyarrow reads and writes for Spark equal those of Spark's own reader and writer."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions

from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.bad_records import is_caused_by_record
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.outages import is_outage
from airflow_provider_coordination.spark.parquet_files import TableWriter
from airflow_provider_coordination.spark.parquet_frames import read_frame, spark_schema, write_frame
from airflow_provider_coordination.spark.spark_errors import error_text
from airflow_provider_coordination.spark.spark_versions import arrow_table
from tests.support.faulty_s3 import Fault, FaultyS3
from tests.support.s3_server import DENIED, OPEN_BUCKET, S3Server

pytestmark = pytest.mark.share(0.3)


VALUES = {
    "flag": "true",
    "tiny": "tinyint(-1)",
    "small": "smallint(2)",
    "number": "3",
    "long": "9223372036854775807",
    "nan": "float('NaN')",
    "zero": "double('-0.0')",
    "few_digits": "cast(1.5 as decimal(9,2))",
    "digits": "cast(-1.5 as decimal(18,2))",
    "most_digits": "cast('-99999999999999999999999999999.999999999' as decimal(38,9))",
    "text": "'ü'",
    "bytes": "unhex('00ff')",
    "first_day": "date'0001-01-01'",
    "last_day": "date'9999-12-31'",
    "first": "timestamp'0001-01-01 00:00:00'",
    "last": "timestamp'9999-12-31 23:59:59.999999'",
    "first_local": "timestamp_ntz'0001-01-01 00:00:00'",
    "last_local": "timestamp_ntz'9999-12-31 23:59:59.999999'",
    "took": "interval '1 02:03:04.5' day to second",
    "list": "array(1, null)",
    "lists": "array(named_struct('x', 1, 'y', array('a')))",
    "map": "map('k', date'0001-01-01')",
    "map_of_null": "map('k', cast(null as struct<a: int>))",
    "struct": "named_struct('a', 1, 'b', named_struct('c', decimal(1.25)))",
    "before": "array(timestamp'1969-12-31 23:59:59.999999')",
}
KINDS = (
    pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.date64(), pa.timestamp("ms", "UTC"), pa.timestamp("us"),
    pa.timestamp("us", "Europe/Berlin"), pa.large_string(), pa.large_binary(), pa.binary(3), pa.duration("us"),
    pa.dictionary(pa.int32(), pa.string()), pa.large_list(pa.uint16()), pa.list_(pa.int32(), 2), pa.decimal256(20, 2),
    pa.struct([pa.field("a", pa.uint8())]), pa.map_(pa.large_string(), pa.uint8()),
)  # fmt: skip


def test_rows_are_written_and_read_as_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    row = spark.sql(f"SELECT {', '.join(f'{value} AS {name}' for name, value in VALUES.items())}")
    nulls = row.select(*(functions.when(functions.lit(False), functions.col(name)).alias(name) for name in VALUES))
    rows = row.union(nulls).coalesce(1)
    rows.write.parquet(str(tmp_path / "spark"))
    [theirs] = (tmp_path / "spark").glob("*.parquet")
    [ours] = write_frame(rows, str(tmp_path / "ours"), DEFAULT_ACCESS)
    assert ours.bytes == Path(ours.file).stat().st_size
    expected, found = pq.read_table(theirs), pq.read_table(ours.file)
    for name in VALUES:
        assert str(found[name].to_pylist()) == str(expected[name].to_pylist()), name
    assert found.select(plain := [n for n in VALUES if not pa.types.is_nested(found[n].type)]).schema.types == (
        expected.select(plain).schema.types
    )
    read = read_frame(spark, {ours.file: ours.bytes}, spark_schema(found.schema), DEFAULT_ACCESS)
    assert str(arrow_table(read).to_pylist()) == str(arrow_table(spark.read.parquet(ours.file)).to_pylist())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_file_column_has_the_type_of_spark(kind: pa.DataType, spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    pq.write_table(pa.table({"x": pa.nulls(2, kind)}), file)
    columns = spark_schema(pq.read_schema(file))
    assert [field.dataType for field in columns] == [field.dataType for field in spark.read.parquet(str(file)).schema]
    read = read_frame(spark, {str(file): 1}, columns, DEFAULT_ACCESS)
    assert arrow_table(read)["x"].null_count == 2


def test_rows_are_grouped_by_text_and_empty_keeps_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(100).selectExpr("id AS n", "concat('b-', id % 3) AS of").repartition("of")
    written = write_frame(rows, str(tmp_path), DEFAULT_ACCESS, "of")
    assert {each.of: sorted(pq.read_table(each.file)["n"].to_pylist()) for each in written} == {
        f"b-{k}": list(range(k, 100, 3)) for k in range(3)
    }
    [empty] = write_frame(rows.where("n < 0"), str(tmp_path / "empty"), DEFAULT_ACCESS, "of")
    assert pq.read_table(empty.file).schema.names == ["n"] and pq.read_metadata(empty.file).num_rows == 0


def test_write_failure_blames_a_record_only_if_it_caused_it(spark: SparkSession, tmp_path: Path) -> None:
    def fragile(n):
        if n == 49_999:
            raise ValueError("it is too much")
        return n

    rows = spark.range(0, 50_000, 1, 1).select(functions.udf(fragile, "long")("id").alias("n"))
    with pytest.raises(PySparkException, match="it is too much") as raised:
        write_frame(rows, str(tmp_path / "rows"), DEFAULT_ACCESS)
    assert is_caused_by_record(raised.value) and error_text(raised.value) == "ValueError: it is too much"
    [file] = write_frame(rows.where("id < 10"), str(tmp_path / "rows"), DEFAULT_ACCESS)
    assert pq.read_table(file.file)["n"].to_pylist() == list(range(10))
    gone = read_frame(spark, {str(tmp_path / "gone"): 1}, rows.schema, DEFAULT_ACCESS)
    with pytest.raises(PySparkException, match="gone") as raised:
        write_frame(gone, str(tmp_path / "rows"), DEFAULT_ACCESS)
    assert not is_caused_by_record(raised.value) and "FileNotFoundError" in error_text(raised.value)
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(PySparkException, match="taken cannot be written") as unwritten:
        write_frame(spark.range(1), str(tmp_path / "taken"), DEFAULT_ACCESS)
    assert not is_caused_by_record(unwritten.value) and not is_outage(unwritten.value)


def running_tasks(spark: SparkSession) -> int:
    """Return how many tasks are at work of what this thread asked Spark for last."""
    context = spark.sparkContext
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(context.getLocalProperty("spark.jobGroup.id"))]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(stage.numActiveTasks for stage in stages if stage)


def test_failed_write_stops_its_other_tasks(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "all"

    def failing(n: int) -> int:
        if n == 0:
            while not folder.is_dir() or len(list(folder.iterdir())) < 5:  # until the other task is in the midst of it
                time.sleep(0.01)
            raise ValueError("it is too much")
        return n

    many = 200_000  # a task that is killed goes on for two seconds: it shall not come to its end in them
    of = functions.concat(functions.lit("t"), functions.col("id"))
    rows = spark.range(0, many, 1, 2).select(functions.udf(failing, "long")("id").alias("n"), of.alias("of"))
    with pytest.raises(PySparkException, match="it is too much"):
        write_frame(rows, str(folder), DEFAULT_ACCESS, by="of")
    left = len(list(folder.iterdir()))
    while running_tasks(spark):  # if there is one, it comes to its end, and what it wrote is there
        time.sleep(0.01)
    assert len(list(folder.iterdir())) == left < many / 2


def test_unreachable_or_unwritable_bucket_is_an_outage(spark: SparkSession, s3: S3Server, s3_bucket: str) -> None:
    root = f"s3://{s3_bucket}/lake"
    with FaultyS3(s3.settings) as network:
        access = Access(((root, network.settings),))
        [written] = write_frame(spark.range(1), root, access)
        network.make("PUT .*part-", Fault.UNAVAILABLE, times=100)
        with pytest.raises(PySparkException, match="cannot be written") as raised:
            write_frame(spark.range(1), root, access)
        assert is_outage(raised.value)
        network.make("(GET|HEAD) .*part-", Fault.UNAVAILABLE, times=100)
        rows = read_frame(spark, {written.file: written.bytes}, spark.range(1).schema, access)
        with pytest.raises(PySparkException, match="cannot be read") as raised:
            rows.collect()
        assert is_outage(raised.value)
    root = f"s3://{OPEN_BUCKET}/lake"
    with pytest.raises(PySparkException, match="cannot be written") as raised:
        write_frame(spark.range(1), root, Access(((root, s3.settings_of(*DENIED)),)))
    assert is_outage(raised.value) and DENIED[1] not in str(raised.value)


def test_names_with_dots_and_quotes_are_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    names = ["a.b", "c`d", "e f", "g'h", 'i"j']
    file = str(tmp_path / "in.parquet")
    pq.write_table(pa.table({name: [1, 2] for name in names}), file)
    rows = read_frame(spark, {file: 100}, spark_schema(pq.read_schema(file)), DEFAULT_ACCESS)
    chosen = rows.where("`a.b` = 1").withColumn("of", functions.lit("x"))
    for frame, by, count in ((chosen, "of", 1), (chosen.drop("of"), None, 1), (rows.where("false"), None, 0)):
        [written] = write_frame(frame, str(tmp_path / "out"), DEFAULT_ACCESS, by)
        found = pq.read_table(written.file)
        assert (found.column_names, found.num_rows) == (names, count)


@pytest.mark.parametrize("other", ["n", "N"])
def test_duplicate_column_names_are_refused(spark: SparkSession, tmp_path: Path, other: str) -> None:
    rows = spark.range(1).selectExpr("id as n", f"id as {other}")
    with pytest.raises(DeliveryError, match=f"the transform returns the columns 'n' and '{other}'; rename one of them"):
        write_frame(rows, str(tmp_path), DEFAULT_ACCESS)


@pytest.mark.parametrize(
    "condition", ["x > 1", "x <> 1", "x = double('NaN')", "x = 0.0", "x IN (0.0, 5.0)", "x <= 0.0"]
)
def test_filters_of_spark_find_nan_and_negative_zero(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    written = []
    for number, values in enumerate(([1.0, math.nan], [-0.0, -0.0], [0.0, 0.0], [1.0])):
        written.append(str(tmp_path / f"{number}.parquet"))
        with TableWriter(written[-1]) as writer:
            writer.write(pa.table({"x": values}))
    rows = spark.read.parquet(*written)
    unfiltered = rows.select(functions.expr(condition).alias("holds")).collect()
    assert rows.where(condition).count() == sum(row.holds for row in unfiltered) > 0
