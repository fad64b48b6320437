"""Spark delivers batches into sinks, with a session in this process: bad records, items and routing."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, functions

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import (
    DeliveryError,
    Transform,
)
from airflow_provider_coordination.spark.kinesis.shard_format import RECORD_SCHEMA, SHARD_RECORDS
from airflow_provider_coordination.spark.layout import ITEM_RECORDS
from airflow_provider_coordination.spark.payload import JsonPayload
from airflow_provider_coordination.spark.payload_settings import Csv, Payload
from tests.support.landed_batches import (
    NOW,
    PAYLOAD,
    LandedBatches,
    click,
    fragile,
    land_items,
    marking,
    marking_nothing,
    of_items,
    raising,
)

pytestmark = pytest.mark.share(0.3)


# Rehearsal


@pytest.mark.parametrize("payload", [Payload(), Payload(csv=Csv())], ids=["json", "decoded"])
def test_rehearsal_runs_the_delivery_and_leaves_no_file(
    batches: LandedBatches, payload: Payload, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    delivery = batches.delivery(schema=PAYLOAD, payload=payload, transform=marking)
    tracker = batches.spark.sparkContext.statusTracker()
    batches.spark.sparkContext.setJobGroup("rehearsal", "rehearse")
    before, jobs = sorted(batches.folder.rglob("*")), len(tracker.getJobIdsForGroup("rehearsal"))
    delivery.rehearse(SHARD_RECORDS.columns, str(batches.folder))
    assert len(tracker.getJobIdsForGroup("rehearsal")) > jobs and "could be rehearsed" not in caplog.text
    assert sorted(batches.folder.rglob("*")) == before


def test_rehearsal_of_a_transform_that_needs_records_is_harmless(
    batches: LandedBatches, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def needs_records(records: DataFrame) -> DataFrame:
        if records.isEmpty():
            raise ValueError("no records")
        return records

    delivery = batches.delivery(transform=needs_records)
    delivery.rehearse(SHARD_RECORDS.columns, str(batches.folder))
    assert "no delivery could be rehearsed without records: ValueError: no records" in caplog.text
    batches.land(click(1))
    assert batches.deliver(delivery).records["main"] == 1


# Bad records


def test_bad_records_of_every_kind_become_dead_letters(batches: LandedBatches) -> None:
    batches.land(click(1), b"no JSON", click(500), click(2, "poison"), click(3))
    prepared = batches.deliver(batches.delivery(schema=PAYLOAD, transform=lambda records: marking(fragile(records))))
    assert (prepared.records, prepared.unrouted) == ({"dead_letter": 3, "main": 2}, 0)
    assert batches.amounts("main") == [1.0, 3.0]
    names = pq.read_schema(batches.folder / "main" / "batch-1.parquet").names
    assert names == [*RECORD_SCHEMA.names, "id", "amount", "length"], "nothing of ours is left in it"
    assert pq.read_schema(batches.folder / "dead_letter" / "batch-1.parquet") == SHARD_RECORDS.dead_letter
    dead_letters = [(row["stage"], row["error"], row["data"]) for row in batches.rows("dead_letter")]
    assert dead_letters == [
        ("schema", "the payload is not JSON", b"no JSON"),
        ("transform", "too much: 500.0", click(500)),
        ("transform", "ValueError: this record is poison", click(2, "poison")),
    ]
    letter = batches.rows("dead_letter")[0]
    assert (letter["source"], letter["stream"], letter["shard_id"]) == ("clicks", "clicks", "shard-1")
    assert (letter["sequence_number"], letter["sub_sequence_number"]) == (str(10**50 + 1), 0)
    assert (letter["partition_key"], letter["approximate_arrival_timestamp"]) == ("k", NOW)
    assert batches.found.total == 3 and len(batches.found.samples) == 2
    assert batches.unfinished == []


def test_batch_without_bad_records_has_no_dead_letters(batches: LandedBatches) -> None:
    batches.land(click(1))
    assert batches.deliver(batches.delivery(schema=PAYLOAD)).records == {"dead_letter": 0, "main": 1}
    assert not (batches.folder / "dead_letter" / "batch-1.parquet").exists()


@pytest.mark.parametrize(
    ("payload", "transform", "message"),
    [
        (
            b"no JSON",
            None,
            "1 of 2 records are bad, the first at shard-1:1.*1/0: the payload is not JSON; set 'dead_letter_path'",
        ),
        (click(500), marking, "1 of 2 records are bad, .*: too much: 500.0; set 'dead_letter_path'"),
        (
            click(2, "poison"),
            fragile,
            "at least 1 of 2 records are bad, .*: ValueError: this record is poison; set 'dead_letter_path'",
        ),
    ],
)
def test_bad_record_without_dead_letter_sink_fails_its_batch(
    batches: LandedBatches, payload: bytes, transform: Transform | None, message: str
) -> None:
    batches.land(click(1), payload)
    delivery = batches.delivery(schema=PAYLOAD, transform=transform, dead=False)
    with pytest.raises(DeliveryError, match=message):
        batches.deliver(delivery)
    assert batches.rows("main") == [] and batches.unfinished == []


@pytest.mark.parametrize("limit", [1, 2])
def test_batch_over_the_bad_record_budget_fails(batches: LandedBatches, limit: int) -> None:
    batches.found = BadRecords(limit)
    batches.land(click(1), b"no JSON", click(2, "poison"))
    delivery = batches.delivery(schema=PAYLOAD, transform=fragile)
    if limit == 2:
        assert batches.deliver(delivery).records == {"dead_letter": 2, "main": 1}
    else:
        with pytest.raises(
            DeliveryError, match="2 bad records make 2 in this run, more than 'max_parse_exceptions' = 1"
        ):
            batches.deliver(delivery)
        assert batches.rows("main") == batches.rows("dead_letter") == []


@pytest.mark.parametrize("error", [ConnectionError, MemoryError, SystemExit])
def test_environment_errors_create_no_dead_letters(batches: LandedBatches, error: type[BaseException]) -> None:
    batches.land(click(1), click(2))
    with pytest.raises(DeliveryError, match="the transform or its write failed"):
        batches.deliver(batches.delivery(transform=raising(error)))
    assert batches.rows("dead_letter") == [] and batches.found.total == 0


def test_transform_that_raises_on_everything_is_at_fault(batches: LandedBatches) -> None:
    batches.land(*(click(n, "poison") for n in range(50)))
    with pytest.raises(
        DeliveryError, match="raises on every record that was tried, out of 50, so the transform itself"
    ):
        batches.deliver(batches.delivery(transform=fragile))
    assert batches.rows("dead_letter") == []


def test_sql_errors_are_traced_to_records(batches: LandedBatches) -> None:
    batches.land(click(1), click(0), click(2))
    batches.deliver(batches.delivery(where="100 / amount > 0", schema=PAYLOAD))
    assert batches.amounts("main") == [1.0, 2.0]
    [letter] = batches.rows("dead_letter")
    assert letter["error"].startswith("ArithmeticException: [DIVIDE_BY_ZERO] Division by zero")


def test_marking_transform_must_keep_identity_columns(batches: LandedBatches) -> None:
    batches.land(click(1))
    delivery = batches.delivery(schema=PAYLOAD, transform=lambda records: marking(records).select("amount", "_error"))
    with pytest.raises(DeliveryError, match="drops 'sequence_number' and 'sub_sequence_number'"):
        batches.deliver(delivery)


def test_missing_landed_file_is_reported(batches: LandedBatches) -> None:
    batches.land(click(1))
    Path(batches.batch.file).unlink()
    with pytest.raises(DeliveryError, match="is gone: restore it, or reset its partition"):
        batches.deliver(batches.delivery(schema=PAYLOAD))


# Records of items, which have whatever columns their source has


def test_item_records_are_transformed_routed_and_dead_lettered(batches: LandedBatches) -> None:
    def shop(records: DataFrame) -> DataFrame:
        return marking(fragile(records.withColumn("data", functions.col("name").cast("binary"))).drop("data"))

    tags = pa.array([["a"], [], None, ["b"], ["c"]])
    land_items(batches, name=["a", "b", "poison", "d", "e"], amount=[1.0, 500.0, 3.0, 4.0, 5.0], tags=tags)
    copy = batches.sink("copy", "amount > 4")
    prepared = batches.deliver(of_items(batches, copy, where="amount < 5", transform=shop))
    assert (prepared.records, prepared.unrouted) == ({"dead_letter": 2, "main": 2, "copy": 1}, 0)
    assert (batches.amounts("main"), batches.amounts("copy")) == ([1.0, 4.0], [5.0])
    names = pq.read_schema(batches.folder / "main" / "batch-1.parquet").names
    assert names == ["name", "amount", "tags", "_origin", "_row", "_batch_id", "length"]
    assert pq.read_schema(batches.folder / "dead_letter" / "batch-1.parquet") == ITEM_RECORDS.dead_letter
    assert [(row["_row"], row["error"], row["record"]) for row in batches.rows("dead_letter")] == [
        (1, "too much: 500.0", '{"name": "b", "amount": 500.0, "tags": []}'),
        (2, "ValueError: this record is poison", '{"name": "poison", "amount": 3.0, "tags": null}'),
    ]
    assert batches.unfinished == []


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()])
def test_item_payloads_are_parsed_as_bytes_or_text(batches: LandedBatches, kind: pa.DataType) -> None:
    land_items(batches, data=pa.array([click(1).decode(), "no JSON"], pa.string()).cast(kind))
    batches.deliver(of_items(batches, schema=PAYLOAD))
    assert batches.amounts("main") == [1.0]
    [letter] = batches.rows("dead_letter")
    assert (letter["_origin"], letter["_row"], letter["data"], letter["record"]) == ("s3://b/k", 1, b"no JSON", None)
    batches.batch = replace(batches.batch, redeliver=True)
    with pytest.raises(DeliveryError, match="1 of 2 records are bad, the first at s3://b/k, row 1: the payload is not"):
        batches.deliver(of_items(batches, schema=PAYLOAD, dead=False))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n": [1]}, "parses the column 'data', which must exist as text or bytes; there are n, _origin, _row"),
        ({"data": [1]}, "must exist as text or bytes; it is bigint"),
        ({"data": ["{}"], "ID": [1]}, "'schema' names column 'id', which the records have already"),
    ],
)
def test_records_matching_no_schema_are_reported(batches: LandedBatches, columns: dict[str, Any], message: str) -> None:
    land_items(batches, **columns)
    with pytest.raises(DeliveryError, match=message):
        batches.deliver(of_items(batches, schema=PAYLOAD))
    with pytest.raises(ConfigurationError, match="column '_row' exists in every record already"):
        JsonPayload("_row INT", ITEM_RECORDS)


def test_batches_of_one_source_may_have_different_columns(batches: LandedBatches) -> None:
    delivery = of_items(batches, transform=lambda records: records.withColumn("seen", functions.lit(1)))
    for name, columns in (("one", {"a": [1]}), ("two", {"b": ["x"]}), ("three", {"a": ["text"]})):
        land_items(batches, name, **columns)
        batches.deliver(delivery)
        [row] = pq.read_table(batches.folder / "main" / f"{name}.parquet").to_pylist()
        assert row.keys() == {*columns, "_origin", "_row", "_batch_id", "seen"}


def test_predicate_over_a_missing_column_fails_that_batch_alone(batches: LandedBatches) -> None:
    delivery = of_items(batches, where="a > 0")
    delivery.transformation.check(None)
    land_items(batches, b=[1])
    with pytest.raises(DeliveryError, match="`a` cannot be resolved"):
        batches.deliver(delivery)
    land_items(batches, "two", a=[1])
    assert batches.deliver(delivery).records["main"] == 1


def test_item_predicates_are_parsed_before_any_batch(batches: LandedBatches) -> None:
    with pytest.raises(ConfigurationError, match=r"sink 'main': 'where' 'a >' cannot be used: .*PARSE_SYNTAX_ERR"):
        of_items(batches, where="a >").transformation.check(None)


def test_marking_item_transform_must_keep_origin_and_row(batches: LandedBatches) -> None:
    land_items(batches, amount=[1.0])
    with pytest.raises(DeliveryError, match="drops '_origin' and '_row', which identify a row's record"):
        batches.deliver(of_items(batches, transform=lambda records: marking(records).select("amount", "_error")))


# Routing


def test_each_sink_gets_its_records_from_one_transform_run(batches: LandedBatches) -> None:
    runs = batches.spark.sparkContext.accumulator(0)

    def counted(records: DataFrame) -> DataFrame:
        def count(data):
            runs.add(1)
            return 1

        return records.withColumn("one", functions.udf(count, "int")("data"))

    batches.land(click(1), click(20), click(300), b'{"id": "null"}')
    sinks = [batches.sink("large", "amount >= 20"), batches.sink("all"), batches.sink("none", "amount > 1000")]
    prepared = batches.deliver(batches.delivery(*sinks, where="amount < 100", schema=PAYLOAD, transform=counted))
    assert prepared.records == {"dead_letter": 0, "main": 2, "large": 2, "all": 4, "none": 0}
    assert (batches.amounts("main"), batches.amounts("large")) == ([1.0, 20.0], [20.0, 300.0])
    assert (len(batches.rows("all")), batches.rows("none")) == (4, [])
    assert runs.value == 4
    assert batches.unfinished == []


def test_records_for_no_sink_are_counted(batches: LandedBatches) -> None:
    batches.land(click(1), click(2), b'{"id": "null"}')
    prepared = batches.deliver(batches.delivery(where="amount < 2", schema=PAYLOAD))
    assert (prepared.records["main"], prepared.unrouted) == (1, 2)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("amount >", r"sink 'main': 'where' 'amount >' cannot be used: .*PARSE_SYNTAX_ERROR"),
        ("colour = 'red'", "cannot be used: .*`colour` cannot be resolved"),
        ("amount", "cannot be used: .*DATATYPE_MISMATCH"),
        ("count(*) > 1", "cannot be used: .*MISSING_GROUP_BY"),
        ("true) or (true", "cannot be used: .*PARSE_SYNTAX_ERROR"),
    ],
)
def test_unusable_predicate_is_named_before_any_batch(batches: LandedBatches, where: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        batches.delivery(where=where, schema=PAYLOAD, transform=fragile).transformation.check(SHARD_RECORDS.columns)


def test_check_accepts_predicates_whose_transform_needs_records(batches: LandedBatches) -> None:
    def first(records: DataFrame) -> DataFrame:
        return records.withColumn("first", functions.lit(records.first().data))  # type: ignore[union-attr]

    columns = SHARD_RECORDS.columns
    batches.delivery(where="_batch_id != ''", transform=lambda each: each.select("data")).transformation.check(columns)
    batches.delivery(where="first = 'x'", transform=first).transformation.check(columns)
    with pytest.raises(ConfigurationError, match="PARSE_SYNTAX_ERROR"):
        batches.delivery(where="first =", transform=first).transformation.check(columns)


def test_sink_that_has_the_batch_is_skipped(batches: LandedBatches) -> None:
    batches.land(click(1))
    batches.deliver(batches.delivery(schema=PAYLOAD))
    delivery = batches.delivery(batches.sink("copy"), schema=PAYLOAD)
    assert delivery.prepare([batches.attempt(2)], ["main", "copy"])["batch-1"].records == {"copy": 1}
    assert delivery.prepare([batches.attempt(2)], ["main"])["batch-1"].records == {}


def test_rejected_delivery_may_be_replaced_by_an_empty_one(batches: LandedBatches) -> None:
    batches.land(click(1), b"no JSON")
    batches.deliver(batches.delivery(batches.sink("copy"), schema=PAYLOAD))
    batches.batch = replace(batches.batch, redeliver=True)
    batches.deliver(batches.delivery(batches.sink("copy", "false"), transform=marking_nothing))
    assert len(batches.rows("main")) == 2
    assert batches.rows("copy") == batches.rows("dead_letter") == []


@pytest.mark.parametrize("broken", ["copy", "dead_letter"])
def test_unwritable_sink_is_named_and_no_sink_gets_the_batch(batches: LandedBatches, broken: str) -> None:
    batches.land(click(1), b"no JSON")
    (batches.folder / broken).write_text("in the way")
    delivery = batches.delivery(batches.sink("copy"), schema=PAYLOAD)
    with pytest.raises(
        DeliveryError, match=f"sink '{broken}' at .* refuses the rows: .*until then, no sink receives them"
    ):
        batches.deliver(delivery)
    assert batches.rows("main") == []
