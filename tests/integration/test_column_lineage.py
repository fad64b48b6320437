"""The lineage of columns, as a real Spark's plans say it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window, functions

from airflow_provider_coordination.spark import column_lineage
from airflow_provider_coordination.spark.column_lineage import traced
from airflow_provider_coordination.spark.kinesis.shard_format import SHARD_RECORDS
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.payload import ERROR
from tests.support.landed_batches import PAYLOAD, LandedBatches

SAME, MADE, SUMMED, IF, OVER = ["IDENTITY"], ["TRANSFORMATION"], ["AGGREGATION"], ["CONDITIONAL"], ["WINDOW"]


def netto(records: DataFrame) -> DataFrame:
    multiplied = functions.udf(lambda amount, rate: amount * rate, "double")
    return records.select("id", multiplied("amount", "rate").alias("netto"))


def joined(records: DataFrame) -> DataFrame:
    names = records.sparkSession.createDataFrame([("DE", "Germany")], "code STRING, label STRING")
    return records.join(names, records.country == names.code, "left").select("id", "label")


def joined_with_itself(records: DataFrame) -> DataFrame:
    other = records.groupBy("country").agg(functions.sum("amount").alias("total"))
    return records.join(other, "country").select("country", "id", "total")


def opaque(records: DataFrame) -> DataFrame:
    return records.mapInPandas(lambda frames: frames, "id STRING")


def ranked(records: DataFrame) -> DataFrame:
    order = Window.partitionBy("country").orderBy("rate")
    return records.select("id", functions.lag("amount").over(order).alias("before"))


TRANSFORMS: dict[str, tuple[Callable[[DataFrame], DataFrame], dict[str, Any], dict[str, Any]]] = {
    "rename": (lambda records: records.select(functions.col("id").alias("key")), {"key": {"id": SAME}}, {}),
    "twice": (
        lambda records: records.selectExpr("amount AS a").selectExpr("a * 2 AS b").selectExpr("b AS c"),
        {"c": {"amount": MADE}},
        {},
    ),
    "cast": (lambda records: records.selectExpr("cast(id AS bigint) AS id"), {"id": {"id": MADE}}, {}),
    "concat": (
        lambda records: records.selectExpr("concat(id, '-', country) AS both", "1 AS one"),
        {"both": {"id": MADE, "country": MADE}},
        {},
    ),
    "case": (
        lambda records: records.selectExpr(
            "CASE WHEN country = 'DE' THEN amount WHEN rate > 1 THEN amount ELSE rate END AS paid",
            "if(rate > 1, id, country) AS chosen",
        ),
        {
            "paid": {"amount": MADE, "country": IF, "rate": [*IF, *MADE]},
            "chosen": {"rate": IF, "id": MADE, "country": MADE},
        },
        {},
    ),
    "filter": (
        lambda records: records.where("amount > 0").select("id"), {"id": {"id": SAME}}, {"amount": ["FILTER"]},
    ),
    "aggregate": (
        lambda records: records.groupBy("country").agg(functions.sum("amount").alias("total")),
        {"country": {"country": SAME}, "total": {"amount": SUMMED}},
        {"country": ["GROUP_BY"]},
    ),
    "window": (ranked, {"id": {"id": SAME}, "before": {"amount": MADE, "country": OVER, "rate": OVER}}, {}),
    "join": (joined, {"id": {"id": SAME}}, {"country": ["JOIN"]}),
    "join with itself": (
        joined_with_itself,
        {"country": {"country": SAME}, "id": {"id": SAME}, "total": {"amount": SUMMED}},
        {"country": ["GROUP_BY", "JOIN"]},
    ),
    "union": (
        lambda records: records.select("id").union(records.select("country")),
        {"id": {"id": SAME, "country": SAME}},
        {},
    ),
    "explode": (
        lambda records: records.select("id", functions.explode(functions.split("country", ",")).alias("part")),
        {"id": {"id": SAME}, "part": {"country": MADE}},
        {},
    ),
    "function": (
        netto,
        {"id": {"id": SAME}, "netto": {"amount": MADE, "rate": MADE}},
        {},
    ),
    "opaque": (opaque, {}, {}),
}  # fmt: skip


@pytest.fixture
def records(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("1", "DE", 2.0, 0.5)], "id STRING, country STRING, amount DOUBLE, rate DOUBLE")


@pytest.mark.parametrize("name", TRANSFORMS)
def test_plan_says_what_columns_are_made_of(records: DataFrame, name: str) -> None:
    transform, columns, rows = TRANSFORMS[name]
    assert traced(records, transform(records)) == {"columns": columns, "rows": rows}


def test_tracing_runs_no_spark_job(spark: SparkSession, records: DataFrame) -> None:
    context = spark.sparkContext
    context.setJobGroup("traced", "tracing")
    assert traced(records, records)["columns"]["id"] == {"id": SAME}
    assert not context.statusTracker().getJobIdsForGroup("traced")


def test_wide_and_long_plans_are_bounded(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = spark.range(1).selectExpr(*(f"id AS c{number}" for number in range(300)))
    assert list(traced(wide, wide)["columns"]) == [f"c{number}" for number in range(200)]
    monkeypatch.setattr(column_lineage, "SOURCES_TRACED", 3)
    assert list(traced(wide, wide)["columns"]) == ["c0", "c1", "c2"]
    monkeypatch.setattr(column_lineage, "MAX_PLAN_CHARACTERS", 100)
    assert traced(wide, wide) == {}


def priced(records: DataFrame) -> DataFrame:
    kept = records.selectExpr("id", "amount * 2 AS twice", BATCH_ID, *SHARD_RECORDS.position)
    return kept.withColumn(ERROR, functions.expr("CASE WHEN twice < 0 THEN 'negative' END"))


def test_delivery_reports_what_its_columns_are_made_of(batches: LandedBatches) -> None:
    batches.land(b'{"id": "a", "amount": 1.5}')
    delivery = batches.delivery(batches.sink("large", "twice > 2"), schema=PAYLOAD, transform=priced)
    prepared = batches.deliver(delivery)
    assert prepared.lineage["columns"] == {
        "id": {"id": SAME},
        "twice": {"amount": MADE},
        **{name: {name: SAME} for name in SHARD_RECORDS.position},
    }


def test_delivery_without_a_transform_keeps_its_columns(batches: LandedBatches) -> None:
    batches.land(b'{"id": "a", "amount": 1.5}')
    prepared = batches.deliver(batches.delivery(schema=PAYLOAD))
    assert prepared.lineage["columns"] == {name: {name: SAME} for name in prepared.columns if name != BATCH_ID}
    assert {"id", "amount"} <= set(prepared.columns)
