"""Spark parses payloads by a schema, with a session in this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from py4j import java_gateway, protocol  # type: ignore[import-untyped]
from pyspark.sql import SparkSession, functions

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.job_settings import RejectionSettings
from airflow_provider_coordination.spark.kinesis.shard_format import SHARD_RECORDS
from airflow_provider_coordination.spark.payload import EventTime, JsonPayload, bounds_of
from tests.support.landed_batches import NOW, PAYLOAD, LandedBatches
from tests.support.payload_texts import DOES_NOT_FIT, FITS, TEXTS

pytestmark = pytest.mark.share(0.3)


def test_expressions_of_a_payload_grow_by_its_columns(spark: SparkSession) -> None:
    types = ("STRING", "DECIMAL(20, 5)", "TIMESTAMP", "BIGINT", "STRUCT<a: STRING, b: DOUBLE>")

    def size(columns: int) -> int:
        schema = ", ".join(f"c{number} {types[number % len(types)]}" for number in range(columns))
        payload = JsonPayload(schema, SHARD_RECORDS)
        return sum(len(str(expression)) for expression in (payload.reason(), payload.fits()))

    assert size(20) < 2.5 * size(10)  # where an expression holds all others, it is four times as large
    bounds = bounds_of(RejectionSettings(event_time="at", earliest=NOW), JsonPayload("at TIMESTAMP", SHARD_RECORDS))
    assert bounds is not None
    assert str(EventTime(bounds).is_outside()).count("from_json") == 3  # of the payload once, of its texts twice


def test_string_field_keeps_the_sent_text(spark: SparkSession) -> None:
    found = {schema: fitting(spark, schema, [sent for sent, _ in fields]) for schema, fields in TEXTS.items()}
    assert found == {schema: [text for _, text in fields] for schema, fields in TEXTS.items()}


def fitting(spark: SparkSession, schema: str, fields: Sequence[str]) -> list[str | None]:
    """Return the texts of the values of a field that fits; None for one that does not."""
    payload = JsonPayload(schema, SHARD_RECORDS)
    records = spark.createDataFrame([(f'{{"x": {field}}}',) for field in fields], "data STRING")
    found = payload.parsed(records.withColumn("fits", payload.fits()))
    return [row.text if row.fits else None for row in found.selectExpr("fits", "CAST(x AS STRING) AS text").collect()]


CHANGED = {
    "x DECIMAL(38,10)": ["1.00000000005", "1e-130", '"1,5"', "1e-999999999"],
    "x DECIMAL(10,2)": ["1.005", "1.0000000000000000000000000000000000000001", "999999999.99"],
    "x ARRAY<DECIMAL(10,2)>": ['["1,5"]', "[1.005]", "[1e-130]"],
    "x BIGINT": ["0.99999999999999999999", "7.00000000000000000001", "9223372036854775808"],
    "x DOUBLE": ["9007199254740993", '"9007199254740993"', "-12345678901234567890"],
    "x FLOAT": ["16777217"],
    "x ARRAY<DOUBLE>": ["[9007199254740993]", f"[1, {10**400}]"],
    "x STRUCT<a: FLOAT>": ['{"a": 16777217}', '{"a": 1e39}'],
    "x TIMESTAMP": [
        '"12:30:00"', '"T12:30"', "1769817600000000", "-99999999999", '"2024-05-06T07:08:09.1234567Z"', '"99999-01-01"',
    ],
    "x MAP<STRING, TIMESTAMP>": ['{"k": "12:30"}', '{"k": "2024-05-06T07:08:09.0000001Z"}', '{"k": 1769817600000000}'],
    "x TIMESTAMP_NTZ": ['"2024-05-06T07:08:09Z"', '"2024-05-06T07:08:09.123456789"'],
    "x DATE": ['"2024-05-06T23:00:00Z"', '"2024-05-06 garbage"', '"5"', "5"],
    "x ARRAY<DATE>": ['["2024-05-06T05:00"]'],
    "x INTERVAL DAY TO SECOND": ["\"INTERVAL '1 02:03:04.1234567' DAY TO SECOND\""],
}  # fmt: skip
"""By schema, the JSON of fields that Spark's own parser changes."""


def test_field_that_would_change_does_not_fit(spark: SparkSession) -> None:
    found = {schema: fitting(spark, schema, fields) for schema, fields in CHANGED.items()}
    assert found == {schema: [None] * len(fields) for schema, fields in CHANGED.items()}


def test_integer_that_a_float_changes_is_a_dead_letter(batches: LandedBatches) -> None:
    batches.land(b'{"x": 9007199254740992, "y": [1]}', b'{"x": 9007199254740993}', b'{"y": [9007199254740993]}')
    batches.deliver(batches.delivery(schema="x DOUBLE, y ARRAY<DOUBLE>"))
    assert [row["x"] for row in batches.rows("main")] == [2.0**53]
    reason = "the payload does not fit the schema: field"
    assert [row["error"] for row in batches.rows("dead_letter")] == [
        f"{reason} 'x' has a value that DOUBLE cannot hold; declare it as DECIMAL or STRING",
        f"{reason} 'y' has a value that ARRAY<DOUBLE> cannot hold",
    ]


def test_only_payloads_of_one_matching_object_fit(batches: LandedBatches) -> None:
    batches.land(*FITS, *DOES_NOT_FIT)
    batches.deliver(batches.delivery(schema=PAYLOAD))
    assert [row["data"] for row in batches.rows("main")] == FITS
    dead_letters = {row["data"]: row["error"] for row in batches.rows("dead_letter")}
    assert list(dead_letters) == list(DOES_NOT_FIT)
    assert [payload for payload, reason in DOES_NOT_FIT.items() if reason not in dead_letters[payload]] == []


NUMBERS = "whole BIGINT, small TINYINT, floating DOUBLE, single FLOAT"
NUMBERS_THAT_FIT: dict[bytes, float] = {
    b'{"whole": 7}': 7,
    b'{"whole": "7"}': 7,
    b'{"whole": "-7.0"}': -7,
    b'{"whole": 7.0}': 7,
    b'{"whole": "9223372036854775807"}': 2**63 - 1,
    b'{"small": "127"}': 127,
    b'{"floating": 12.5}': 12.5,
    b'{"floating": "12.5"}': 12.5,
    b'{"floating": "1.25e1"}': 12.5,
    b'{"floating": 1e300}': 1e300,
    b'{"floating": "9"}': 9.0,
    b'{"single": "0.5"}': 0.5,
}
NUMBERS_THAT_DO_NOT_FIT = {
    b'{"whole": 7.5}': "field 'whole' is no BIGINT",
    b'{"whole": "7.5"}': "field 'whole' is no BIGINT",
    b'{"whole": ""}': "field 'whole' is no BIGINT",
    b'{"whole": "1,000"}': "field 'whole' is no BIGINT",
    b'{"whole": true}': "field 'whole' is no BIGINT",
    b'{"whole": [7]}': "field 'whole' is no BIGINT",
    b'{"whole": "9223372036854775808"}': "field 'whole' is no BIGINT",
    b'{"small": 128}': "field 'small' is no TINYINT",
    b'{"floating": "12.5d"}': "field 'floating' is no DOUBLE",
    b'{"floating": "NaN"}': "field 'floating' is no DOUBLE",
    b'{"floating": "Infinity"}': "field 'floating' is no DOUBLE",
    b'{"floating": 1e400}': "field 'floating' is no DOUBLE",
    b'{"floating": "1e400"}': "field 'floating' is no DOUBLE",
    b'{"single": 1e39}': "field 'single' is no FLOAT",
}


def test_number_may_be_lossless_text(batches: LandedBatches) -> None:
    batches.land(*NUMBERS_THAT_FIT, *NUMBERS_THAT_DO_NOT_FIT)
    batches.deliver(batches.delivery(schema=NUMBERS))
    names = ("whole", "small", "floating", "single")
    found = {row["data"]: next(row[name] for name in names if row[name] is not None) for row in batches.rows("main")}
    assert found == NUMBERS_THAT_FIT
    dead_letters = {row["data"]: row["error"] for row in batches.rows("dead_letter")}
    assert dead_letters == {
        payload: f"the payload does not fit the schema: {reason}" for payload, reason in NUMBERS_THAT_DO_NOT_FIT.items()
    }


UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = datetime(2026, 1, 31, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
MICROSECOND = timedelta(microseconds=1)
TIMES: dict[tuple[str, Any], datetime | None] = {
    ("iso", "2026-01-31"): DAY,
    ("iso", "2026-01-31T00:00:00Z"): DAY,
    ("iso", "2026-01-31 01:00:00.000+0100"): DAY,
    ("iso", "2026-01-31T00:00:00.000001000Z"): DAY + MICROSECOND,
    ("iso", "2026-01-31T00:00:00.0000001Z"): None,
    ("iso", "T12:30"): None,
    ("iso", 1769817600000): None,
    ("iso", "1769817600"): None,
    ("auto", 1769817600000): DAY,
    ("auto", "1769817600000"): DAY,
    ("auto", "2026-01-31T00:00:00Z"): DAY,
    ("auto", -1): UNIX_EPOCH - MILLISECOND,
    ("auto", 1769817600000.5): DAY + MILLISECOND / 2,
    ("auto", "31 January 2026"): None,
    ("auto", True): None,
    ("seconds", 1769817600): DAY,
    ("seconds", "1769817600"): DAY,
    ("seconds", 1769817600.000001): DAY + MICROSECOND,
    ("seconds", "1769817600.0000001"): None,
    ("seconds", 1769817600000): None,
    ("seconds", "2026-01-31"): None,
    ("millis", 1769817600001): DAY + MILLISECOND,
    ("millis", "1769817600001"): DAY + MILLISECOND,
    ("millis", 10**30): None,
    ("micros", 1769817600000001): DAY + MICROSECOND,
    ("micros", "1769817600000001"): DAY + MICROSECOND,
    ("micros", 1769817600000001.5): None,
}
"""Times by format and value; None for a value that does not fit."""


def test_time_has_the_format_of_its_column(spark: SparkSession) -> None:
    formats = sorted({time_format for time_format, _ in TIMES})
    schema = ", ".join(f"{name} TIMESTAMP" for name in formats)
    payload = JsonPayload(schema, SHARD_RECORDS, {name: name for name in formats})
    rows = [(json.dumps({time_format: value}),) for time_format, value in TIMES]
    records = payload.parsed(spark.createDataFrame(rows, "data STRING"))
    found = records.select(functions.coalesce(*(functions.unix_micros(name) for name in formats)), payload.fits())
    micros = [None if at is None else (at - UNIX_EPOCH) // MICROSECOND for at in TIMES.values()]
    assert dict(zip(TIMES, found.collect(), strict=True)) == {
        time: (at, at is not None) for time, at in zip(TIMES, micros, strict=True)
    }


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id STRIN", 'cannot be parsed: .*Unsupported data type "STRIN"'),
        ("id DECIMAL(50,2)", "cannot be parsed: ArithmeticException: .*exceeds max precision 38"),
        ("INT", "names no columns; give columns and types"),
        ("data STRING", "column 'data' exists in every record already"),
        ("_error STRING", "column '_error' exists in every record already, or is reserved"),
        ("id STRING, ID INT", "column 'id' is defined twice"),
    ],
)
def test_unusable_schema_is_named(spark: SparkSession, schema: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        JsonPayload(schema, SHARD_RECORDS)


def test_wrong_schema_is_named_before_the_session_starts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_gateway, "get_return_value", protocol.get_return_value)  # a session translates errors
    with pytest.raises(
        ConfigurationError, match=r"schema 'id DECIMAL\(50,2\)' cannot be parsed: .*exceeds max precision 38"
    ):
        JsonPayload("id DECIMAL(50,2)", SHARD_RECORDS)
