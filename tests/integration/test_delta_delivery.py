"""Spark delivers batches into Delta tables, with a session in this process."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions

from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.kinesis.shard_format import RECORD_SCHEMA, SHARD_RECORDS
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.payload import JsonPayload
from airflow_provider_coordination.spark.sinks.delta.sink import DeltaSink
from airflow_provider_coordination.spark.transformation import Transformation
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery
from airflow_provider_coordination.spark.writes import DeltaTable
from tests.support.delta_tables import rows_in
from tests.support.sinks import an_attempt, under_next_lease

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAYLOAD = "n INT, day DATE, at TIMESTAMP, price DECIMAL(10, 2)"
EXTREMES = (
    b'{"n": 1, "day": "0001-01-01", "at": "0001-01-01T00:00:00Z", "price": 0.01}',
    b'{"n": 2, "day": "9999-12-31", "at": "9999-12-31T23:59:59.999999Z", "price": 99999999.99}',
    b'{"n": 3}',
)


def landed(folder: Path, batch_id: str, *payloads: bytes) -> Attempt:
    records = [
        {
            "stream": "clicks", "shard_id": "shard-1", "sequence_number": str(10**50 + number),
            "sub_sequence_number": 0, "partition_key": "k", "approximate_arrival_timestamp": NOW, "data": payload,
            "_batch_id": batch_id,
        }
        for number, payload in enumerate(payloads)
    ]  # fmt: skip
    file = str(folder / f"{batch_id}.landed.parquet")
    size = write_table(pa.Table.from_pylist(records, RECORD_SCHEMA), file)
    return an_attempt(batch_id, file=file, file_bytes=size, records=len(records))


def to_columns(records: DataFrame) -> DataFrame:
    x = functions.expr("CASE n WHEN 1 THEN double('NaN') WHEN 2 THEN double('-Infinity') END")
    return records.select("n", "day", "at", x.alias("x"), "price", "_batch_id")


def delivery(spark: SparkSession, *sinks: DeltaSink) -> TransformedDelivery:
    payload = JsonPayload(PAYLOAD, SHARD_RECORDS)
    transformation = Transformation(
        spark, sinks, layout=SHARD_RECORDS, transform=to_columns, payload=payload
    )  # fmt: skip
    return TransformedDelivery(transformation, sinks, source="clicks")


def deliver(through: TransformedDelivery, attempt: Attempt) -> None:
    through.prepare([attempt], through.sinks)
    for sink in through.sinks:
        through.commit(sink, [attempt])
    through.discard([attempt])


def test_two_tables_hold_the_rows_that_spark_wrote(spark: SparkSession, tmp_path: Path) -> None:
    days = DeltaSink(
        name="days", path=str(tmp_path / "days"), where="n < 3", settings=DeltaTable("", partition_by=("day",))
    )
    every = DeltaSink(name="every", path=str(tmp_path / "every"))
    through = delivery(spark, days, every)
    first = landed(tmp_path, "a-1", *EXTREMES)
    for attempt in (first, landed(tmp_path, "b-1", b'{"n": 4}')):
        deliver(through, attempt)

    found = sorted(rows_in(tmp_path / "every"), key=lambda row: row["n"])
    assert [row["day"] for row in found] == [date(1, 1, 1), date(9999, 12, 31), None, None]
    assert [row["at"] for row in found[:2]] == [
        datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ]  # fmt: skip
    assert math.isnan(found[0]["x"]) and found[1]["x"] == -math.inf
    assert [row["price"] for row in found] == [Decimal("0.01"), Decimal("99999999.99"), None, None]
    assert sorted(row["n"] for row in rows_in(tmp_path / "days")) == [1, 2]
    deliver(through, under_next_lease(first, rejected=True))
    assert sorted(row["n"] for row in rows_in(tmp_path / "every")) == [1, 2, 3, 4]
    assert sorted(str(row["day"]) for row in rows_in(tmp_path / "days")) == ["0001-01-01", "9999-12-31"]


def test_single_unfiltered_table_takes_the_files_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaSink(name="main", path=str(tmp_path / "table"))
    deliver(delivery(spark, table), landed(tmp_path, "a-1", *EXTREMES))
    assert sorted(row["n"] for row in rows_in(tmp_path / "table")) == [1, 2, 3]
    assert [path.name for path in (tmp_path / "table").glob("data-*/*") if path.suffix != ".parquet"] == []
