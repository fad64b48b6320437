"""Patterns of times give the instants that Joda gives, which is Druid's parser of patterns and is in Spark's jars."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession, functions

from airflow_provider_coordination.spark.kinesis.shard_format import SHARD_RECORDS
from airflow_provider_coordination.spark.payload import JsonPayload
from airflow_provider_coordination.spark.payload_schema import time_pattern

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PATTERNS = (
    "yyyy-MM-dd'T'HH:mm:ss.SSSZ", "yyyy-MM-dd HH:mm:ss", "yyyy/M/d H:m:s", "dd/MMM/yyyy:HH:mm:ss Z",
    "MMMM d, yyyy h:mm:ss a", "MM-dd-yyyy KK:mm a", "yyyyMMddHHmmss", "yyyyMMdd", "yyyyMMddhmma", "yyyy-MM", "yyyy",
    "dd.MM.yyyy 'um' HH'Uhr'", "yyyy-MM-dd HH:mm:ss.SSSSSSZZ",
)  # fmt: skip
TEXTS: tuple[str | int, ...] = (
    "2026-01-31T04:05:06.123+01:30", "2026-01-31t04:05:06.1Z", "2026-01-31T04:05:06.1z", "2026-01-31T04:05:06.123",
    "2026-01-31T04:05:06.1234Z", "2026-01-31T04:05:06.12-0800", "2026-02-30T04:05:06.1Z", "2026-01-31 04:05:06",
    "2026-1-3 4:5:6", " 2026-01-31 04:05:06 ", "2026-01-31 24:00:00", "2026-01-31 23:59:60", "2024-02-29 00:00:00",
    "2023-02-29 00:00:00", "1/2/2026", "2026/1/31 4:5:6", "2026/001/31 4:5:6", "31/Jan/2026:04:05:06 +0000",
    "31/jan/2026:04:05:06 -05", "31/JANUARY/2026:04:05:06 Z", "31/jAn/2026:04:05:06 Z", "31/May/2026:04:05:06 +00:00",
    "September 1, 2026 12:00:00 AM", "Sep 1, 2026 12:00:00 pm", "sep 1, 2026 1:02:03 PM", "Sep 1, 2026 0:02:03 PM",
    "Sep 1, 2026 13:02:03 PM", "01-31-2026 00:07 AM", "01-31-2026 11:07 PM", "01-31-2026 12:07 PM", "20260131040506",
    20260131040506, 20260131, "20260131", "2026131", "20261", "2026013", "202601311107PM", "20260131107pm",
    "202601311337PM", "2026-01", "2026-1", 2026, "2026", "0001", "0000", "31.01.2026 um 04uhr", "31.01.2026 UM 4Uhr",
    "31.01.2026 04Uhr", "2026-01-31 04:05:06.123456+02", "2026-01-31 04:05:06.1234567+02", "", "yesterday",
)  # fmt: skip


def joda(spark: SparkSession, pattern: str, text: str) -> int | None:
    """Return the milliseconds that Druid makes of a text: it removes spaces around it, and reads it in UTC."""
    jvm: Any = spark.sparkContext._jvm
    zone = jvm.org.joda.time.DateTimeZone.UTC
    parser = jvm.org.joda.time.format.DateTimeFormat.forPattern(pattern).withZone(zone)
    try:
        return int(parser.parseDateTime(text.strip()).getMillis())
    except IllegalArgumentException:
        return None


def of_python(pattern: str, text: str) -> int | None:
    try:
        return (time_pattern(pattern).instant(text) - EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None


def of_spark(spark: SparkSession) -> list[dict[str, int | None]]:
    """Return, for each text, its microseconds by pattern; None if the payload does not fit."""
    columns = {f"t{number}": pattern for number, pattern in enumerate(PATTERNS)}
    schema = ", ".join(f"{name} TIMESTAMP" for name in columns)
    payload = JsonPayload(schema, SHARD_RECORDS, columns)
    records = spark.createDataFrame([(json.dumps(dict.fromkeys(columns, text)),) for text in TEXTS], "data STRING")
    rows = payload.parsed(records).select(*(functions.unix_micros(name).alias(name) for name in columns)).collect()
    return [{pattern: row[name] for name, pattern in columns.items()} for row in rows]


def test_patterns_give_the_instants_of_joda(spark: SparkSession) -> None:
    found = of_spark(spark)
    differences = {}
    fitting = 0
    for text, by_pattern in zip(TEXTS, found, strict=True):
        for pattern, micros in by_pattern.items():
            expected = joda(spark, pattern, str(text))
            assert of_python(pattern, str(text)) == micros, (pattern, text)
            fitting += micros is not None
            if (None if micros is None else micros // 1000) != expected:
                differences[pattern, text] = micros
    assert fitting >= 30
    # Joda also has years that a TIMESTAMP does not have.
    out_of_range = [20260131, "20260131", "2026131", "20261", "2026013", "0000"]
    assert differences == {("yyyy", text): None for text in out_of_range}
