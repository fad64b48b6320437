"""Translated expressions have the values in Spark that Druid documents, also for null."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.delivery import TransformError
from airflow_provider_coordination.spark.ingestion import IngestionOptions
from airflow_provider_coordination.supervisor.druid.expressions import Expressions, as_column
from tests.support.landed_batches import LandedBatches

COLUMNS = {"t": "STRING", "u": "STRING", "n": "BIGINT", "d": "DOUBLE"}
ROW: dict[str, Any] = {"t": " Ab ", "u": None, "n": 3, "d": -0.5}
NO_NUMBER: dict[str, Any] = {**ROW, "n": None}
VALUES: list[tuple[str, dict[str, Any], Any]] = [
    ("n + 1", ROW, 4),
    ("n + 1", NO_NUMBER, None),
    ("n * d", ROW, -1.5),
    ("-n", ROW, -3),
    ("n == 3", ROW, 1),
    ("n != 3.0", ROW, 0),
    ("n > 1", NO_NUMBER, None),
    ("!n", ROW, 0),
    ("!d", ROW, 1),
    ("!n", NO_NUMBER, None),
    ("n && u == 'x'", ROW, None),
    ("d && u == 'x'", ROW, 0),
    ("n || u == 'x'", ROW, 1),
    ("n > 5 || n > 2 && n > 4", ROW, 0),
    ("n > 2 || n > 5 && n > 4", ROW, 0),
    ("if(n, 'yes', 'no')", ROW, "yes"),
    ("if(n, 'yes', 'no')", NO_NUMBER, "no"),
    ("if(d, 'yes', 'no')", ROW, "no"),
    ("nvl(u, 'none')", ROW, "none"),
    ("nvl(t, 'none')", ROW, " Ab "),
    ("coalesce(u, u, 'last')", ROW, "last"),
    ("isnull(u)", ROW, 1),
    ("notnull(u)", ROW, 0),
    ("concat(t, u)", ROW, None),
    ("concat(t, '|', n)", ROW, " Ab |3"),
    ("concat(t, n)", NO_NUMBER, None),
    ("lower(t)", ROW, " ab "),
    ("upper(trim(t))", ROW, "AB"),
    ("concat(ltrim(t), rtrim(t))", ROW, "Ab  Ab"),
    ("lower(u)", ROW, None),
    ("replace(t, 'A', '$1')", ROW, " $1b "),
    ("case_simple(u, 'x', 1, 2)", ROW, 2),
    ("case_simple(n, 3, 'three')", ROW, "three"),
    ("case_simple(n, 4, 'four')", ROW, None),
    ("case_searched(u == 'x', 1, n > 2, 2, 3)", ROW, 2),
    (r"'\'\"\\\u00e9\n'", ROW, "'\"\\é\n"),
    ("1.5e2", ROW, 150.0),
    ("u == u", ROW, None),
]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_expressions_have_the_values_of_druid(spark: SparkSession, ansi: str) -> None:
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    expressions = Expressions(COLUMNS, {})
    was = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        found = {}
        for row in (ROW, NO_NUMBER):
            texts = [text for text, of_row, _ in VALUES if of_row is row]
            sql = [as_column(expressions.translate(text), None).text for text in texts]
            [values] = spark.createDataFrame([tuple(row.values())], schema).selectExpr(*sql).collect()
            found |= {(text, row is ROW): value for text, value in zip(texts, values, strict=True)}
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(was))
    assert found == {(text, of_row is ROW): value for text, of_row, value in VALUES}


def test_computed_columns_are_delivered(spark: SparkSession, tmp_path: Any) -> None:
    batches = LandedBatches(spark, tmp_path)
    batches.land(*(json.dumps({"id": name, "amount": amount}).encode() for name, amount in [("A", 1.5), ("B", None)]))
    computed = {"id": "lower(id)", "kind": "concat(id, '!')", "amount": "coalesce(amount, 0D)"}
    delivery = batches.delivery(
        schema="id STRING, amount DOUBLE",
        options=IngestionOptions(computed=computed),
        transform=lambda rows: rows.withColumn("seen", rows.kind),
        where="amount >= 0",
    )
    batches.deliver(delivery)
    rows = spark.read.parquet(str(tmp_path / "main")).select("id", "kind", "amount", "seen")
    assert sorted(map(tuple, rows.collect())) == [("a", "A!", 1.5, "A!"), ("b", "B!", 0.0, "B!")]


def test_record_on_which_an_expression_fails_is_bad(spark: SparkSession, tmp_path: Any) -> None:
    batches = LandedBatches(spark, tmp_path)
    batches.land(*(json.dumps({"n": n}).encode() for n in (1, 2**63 - 1)))
    spark.conf.set("spark.sql.ansi.enabled", "true")
    prepared = batches.deliver(batches.delivery(schema="n BIGINT", options=IngestionOptions(computed={"n": "n + 1L"})))
    assert (prepared.records, dict(prepared.left_out)) == ({"main": 1, "dead_letter": 1}, {"transform": 1})


@pytest.mark.parametrize(
    ("expression", "error", "problem"),
    [
        ("lower(", TransformError, "field 'computed' cannot be used: .*; correct it"),
        ("lower(no_such)", ConfigurationError, "an expression in field 'computed' names a column that the records do"),
    ],
)
def test_wrong_expression_is_an_error_before_reading(
    spark: SparkSession, tmp_path: Any, expression: str, error: type[Exception], problem: str
) -> None:
    batches = LandedBatches(spark, tmp_path)
    transformation = batches.delivery(
        schema="id STRING", options=IngestionOptions(computed={"x": expression})
    ).transformation
    with pytest.raises(error, match=problem):
        transformation.check(transformation.layout.columns)
