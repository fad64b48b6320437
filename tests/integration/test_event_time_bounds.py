"""Spark delivers the records of a batch that are within its bounds, with a session in this process."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, functions

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.landed import EventTimeBounds
from airflow_provider_coordination.spark.job_settings import RejectionSettings
from airflow_provider_coordination.spark.kinesis.shard_format import SHARD_RECORDS
from airflow_provider_coordination.spark.payload import JsonPayload, bounds_of
from tests.support.landed_batches import NOW, LandedBatches, fragile, marking_nothing

pytestmark = pytest.mark.share(0.3)


SECOND = timedelta(seconds=1)
MICROSECOND = timedelta(microseconds=1)
BOUNDS = EventTimeBounds(column="at", type="timestamp", earliest=NOW, latest=NOW + SECOND)
AT = "id STRING NOT NULL, at TIMESTAMP"


def happened(name: str, at: object) -> bytes:
    return json.dumps({"id": name, "at": at.isoformat() if isinstance(at, datetime) else at}).encode()


def land_around(batches: LandedBatches, bounds: EventTimeBounds = BOUNDS) -> None:
    """Land a record on each side of each bound, at each, without a time, and with a payload that does not fit."""
    batches.land(
        happened("late", NOW - MICROSECOND),
        happened("first", NOW),
        happened("last", NOW + SECOND),
        happened("early", NOW + SECOND + MICROSECOND),
        happened("whenever", None),
        b'{"id": "never"}',
        b'{"at": "2020-01-01T00:00:00Z"}',
    )
    batches.batch = replace(batches.batch, bounds=bounds)


def names(batches: LandedBatches, sink: str = "main") -> list[str]:
    return [json.loads(row["data"]).get("id", "") for row in batches.rows(sink)]


def test_records_outside_bounds_are_dropped(batches: LandedBatches) -> None:
    land_around(batches)
    prepared = batches.deliver(batches.delivery(schema=AT, transform=counting))
    assert names(batches) == ["first", "last", "whenever", "never"]
    assert {row["of"] for row in batches.rows("main")} == {4}, "the transform gets no other"
    assert prepared.left_out == {"schema": 1, "time": 2}
    assert prepared.records == {"dead_letter": 1, "main": 4}
    assert batches.found.total == 1, "what is late is not bad"


def counting(records: DataFrame) -> DataFrame:
    """Say with each record how many there are."""
    return records.withColumn("of", functions.expr("count(*) OVER ()"))


def test_rejected_records_need_no_dead_letters(batches: LandedBatches) -> None:
    batches.land(happened("late", NOW - SECOND), happened("first", NOW))
    batches.batch = replace(batches.batch, bounds=BOUNDS)
    assert batches.deliver(batches.delivery(schema=AT, dead=False)).left_out == {"time": 1}
    assert names(batches) == ["first"]


def test_rejected_records_go_to_dead_letters_on_request(batches: LandedBatches) -> None:
    land_around(batches)
    prepared = batches.deliver(batches.delivery(schema=AT, keeps_rejected=True))
    assert prepared.records == {"dead_letter": 3, "main": 4}
    assert [(row["stage"], row["error"]) for row in batches.rows("dead_letter")] == [
        ("time", "late: field 'at' is 2025-12-31 23:59:59.999999, before 2026-01-01T00:00:00.000000Z"),
        ("time", "early: field 'at' is 2026-01-01 00:00:01.000001, after 2026-01-01T00:00:01.000000Z"),
        ("schema", "the payload does not fit the schema: field 'id' is missing"),
    ]


@pytest.mark.parametrize(
    "delivered",
    [
        {"schema": "id STRING NOT NULL, at STRING"},
        {"schema": "id STRING NOT NULL"},
        {"transform": marking_nothing},
    ],
    ids=["another type", "another schema", "no schema"],
)
def test_recorded_bounds_apply_under_another_schema(batches: LandedBatches, delivered: dict[str, Any]) -> None:
    land_around(batches)
    assert batches.deliver(batches.delivery(**delivered)).left_out["time"] == 2 + ("transform" in delivered)
    assert set(names(batches)) == {"first", "last", "whenever", "never"}


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        ("bigint", lambda instant: round(instant.timestamp() * 1000)),
        ("timestamp_ntz", lambda instant: instant.replace(tzinfo=None).isoformat()),
    ],
)
def test_milliseconds_and_zoneless_timestamps_are_event_times(batches: LandedBatches, kind: str, at: Any) -> None:
    tick = timedelta(milliseconds=1)
    # Bounds between two milliseconds.
    bounds = replace(BOUNDS, type=kind, earliest=NOW - MICROSECOND, latest=NOW + tick + MICROSECOND)
    instants = {"late": NOW - tick, "first": NOW, "last": NOW + tick, "early": NOW + 2 * tick}
    batches.land(*(happened(name, at(instant)) for name, instant in instants.items()))
    batches.batch = replace(batches.batch, bounds=bounds)
    batches.deliver(batches.delivery(schema=f"id STRING NOT NULL, at {kind}"))
    assert names(batches) == ["first", "last"]


def test_batch_of_only_late_records_is_delivered_empty(batches: LandedBatches) -> None:
    batches.land(*(happened("late", NOW - SECOND) for _ in range(3)))
    batches.batch = replace(batches.batch, bounds=BOUNDS)
    prepared = batches.deliver(batches.delivery(schema=AT))
    assert (prepared.records, prepared.left_out) == ({"dead_letter": 0, "main": 0}, {"time": 3})


def test_records_dropped_as_late_are_not_searched_for_errors(batches: LandedBatches) -> None:
    batches.land(happened("poison", NOW - SECOND), happened("poison", NOW), happened("fine", NOW))
    batches.batch = replace(batches.batch, bounds=BOUNDS)
    prepared = batches.deliver(batches.delivery(schema=AT, transform=fragile))
    assert prepared.left_out == {"time": 1, "transform": 1}
    assert (names(batches), names(batches, "dead_letter")) == (["fine"], ["poison"])


def test_bounds_column_may_have_any_name(batches: LandedBatches) -> None:
    name = "when `it` 'was'"
    batches.land(*(json.dumps({name: at.isoformat()}).encode() for at in (NOW - SECOND, NOW)))
    batches.batch = replace(batches.batch, bounds=replace(BOUNDS, column=name))
    assert batches.deliver(batches.delivery(transform=marking_nothing)).left_out == {"time": 1}


def test_records_are_late_by_their_time_format(batches: LandedBatches) -> None:
    formats = {"at": "auto"}
    batches.land(happened("late", "1767225599999"), happened("first", 1767225600000), happened("last", NOW + SECOND))
    payload = JsonPayload(AT, SHARD_RECORDS, formats)
    bounds = bounds_of(RejectionSettings(event_time="at", earliest=NOW, latest=NOW + SECOND), payload)
    batches.batch = replace(batches.batch, bounds=bounds)
    assert batches.deliver(batches.delivery(schema="id STRING")).left_out == {"time": 1}
    assert names(batches) == ["first", "last"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            "id STRING, At TIMESTAMP",
            "'event_time' is 'at', which is not a column of 'schema'; its columns are 'id', 'At'",
        ),
        ("id STRING, at STRING", "'event_time' is 'at', which is of type STRING in 'schema'; declare it there as"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_event_time_missing_from_the_schema_is_refused(schema: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        bounds_of(RejectionSettings(event_time="at", earliest=NOW), JsonPayload(schema, SHARD_RECORDS))


@pytest.mark.usefixtures("spark")
def test_bounds_take_the_type_of_the_schema() -> None:
    payload = JsonPayload(AT, SHARD_RECORDS)
    assert bounds_of(RejectionSettings(event_time="at", earliest=NOW, latest=NOW + SECOND), payload) == BOUNDS
    assert bounds_of(RejectionSettings(), payload) is None
