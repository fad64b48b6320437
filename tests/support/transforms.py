"""Transforms of users."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

import pandas as pd
from pyspark.sql import DataFrame, functions


def keep_data(records: DataFrame) -> DataFrame:
    return records.select("shard_id", "data", functions.length("data").alias("length"))


def measured(records: DataFrame) -> DataFrame:
    return records.withColumn("length", functions.length("data"))


@functions.udf("long")
def _fails_on_poison(data: bytes) -> int:
    if b"poison" in bytes(data):
        raise ValueError("this record is poison")
    return len(data)


def fragile(records: DataFrame) -> DataFrame:
    return records.withColumn("length", _fails_on_poison("data"))


def leaky(records: DataFrame) -> DataFrame:
    """Fail as a client library does that puts into its error what it was given."""
    raise ValueError(f"cannot connect with {os.environ['LEAK']}")


NOTED: list[tuple[str | None, object]] = []
"""The scheduling pool and the session of each call of `noting`."""


def noting(records: DataFrame) -> DataFrame:
    pool = records.sparkSession.sparkContext.getLocalProperty("spark.scheduler.pool")
    NOTED.append((pool, records.sparkSession))
    return records


def nothing(records: DataFrame) -> DataFrame:
    return records.where("false")


@functions.udf("timestamp_ntz")
def _later(local: datetime) -> datetime:
    return local + timedelta(microseconds=1)


@functions.pandas_udf("long")  # type: ignore[call-overload, untyped-decorator, unused-ignore]
def _doubled(number: pd.Series) -> pd.Series:
    return number * 2


def converted(records: DataFrame) -> DataFrame:
    """Use both kinds of Python functions, timestamps with a zone and without one, and say which Spark it is."""
    later, doubled = _later("local").alias("later"), _doubled("number").alias("doubled")
    return records.select("id", "at", "local", later, doubled, functions.expr("version()").alias("spark"))


@functions.udf("string")
def _named(number: int) -> str:
    if number == POISON:
        raise ValueError("this number is poison")
    return f"n{number}"


POISON = 4711


def named(records: DataFrame) -> DataFrame:
    """Use both kinds of Python functions, of which one fails on a record, and SQL that fails on another one."""
    of_schema = ("id", "n", "amount", "price", "text", "at", "day")
    inverse = functions.expr("1000 / n").alias("inverse")
    return records.select("_batch_id", *of_schema, _named("n").alias("name"), _doubled("n").alias("doubled"), inverse)
