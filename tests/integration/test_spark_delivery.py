"""Spark delivers batches into sinks, with a session in this process: bad records and routing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j import java_gateway, protocol  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession, functions

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.sources.kinesis.keys import partition_key
from airflow_provider_coordination.sources.kinesis.reader import KinesisRecord
from airflow_provider_coordination.sources.landed import EventTimeBounds, LandedBatch
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    DeliveryError,
    MissingColumnError,
    Prepared,
    Transform,
    TransformError,
)
from airflow_provider_coordination.spark.event_time import EventTime, bounds_of
from airflow_provider_coordination.spark.frame_columns import landed_columns
from airflow_provider_coordination.spark.job_settings import RejectionSettings
from airflow_provider_coordination.spark.kinesis.layout import RECORD_SCHEMA, SHARD_RECORDS
from airflow_provider_coordination.spark.layout import ITEM_RECORDS, RecordLayout
from airflow_provider_coordination.spark.payload import JsonPayload
from airflow_provider_coordination.spark.sinks import Sink
from airflow_provider_coordination.spark.sinks.delta.sink import DeltaSink
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink
from airflow_provider_coordination.spark.storage import files_below, write_table
from airflow_provider_coordination.spark.transformation import SparkTransformation
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery, routed_sinks
from airflow_provider_coordination.spark.writes.delta import DeltaTable
from tests.support.fleet import EPOCH, Crash, FakeStream, Fleet

pytestmark = pytest.mark.share(0.4)


FOLDER = "clicks/shard"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAYLOAD = "id STRING NOT NULL, amount DOUBLE"


def click(amount: float, name: str = "click") -> bytes:
    return json.dumps({"id": f"{name}-{amount:g}", "amount": amount}).encode()


@dataclass
class LandedBatches:
    """A batch that is landed, and the sinks that are to take it."""

    spark: SparkSession
    folder: Path
    batch: LandedBatch = field(init=False)
    found: BadRecords = field(default_factory=lambda: BadRecords(saved=2))

    def land(self, *payloads: bytes) -> None:
        rows = [
            {
                "stream": "clicks",
                "shard_id": "shard-1",
                "sequence_number": str(10**50 + n),
                "sub_sequence_number": 0,
                "partition_key": "k",
                "approximate_arrival_timestamp": NOW,
                "data": payload,
                "_batch_id": "batch-1",
            }
            for n, payload in enumerate(payloads)
        ]
        file = str(self.folder / "landed.parquet")
        size = write_table(pa.Table.from_pylist(rows, RECORD_SCHEMA), file)
        self.batch = LandedBatch(
            batch_id="batch-1",
            start="TRIM_HORIZON",
            end=str(10**50 + len(rows)),
            file=file,
            file_bytes=size,
            records=len(rows),
            bytes=1,
            is_last=False,
            read_until=None,
            fencing_token=1,
        )

    def sink(self, name: str, where: str | None = None) -> ParquetSink:
        return ParquetSink(name=name, path=str(self.folder / name), where=where)

    def delivery(
        self,
        *more: Sink,
        where: str | None = None,
        dead: bool = True,
        schema: str | None = None,
        transform: Transform | None = None,
        layout: RecordLayout = SHARD_RECORDS,
        keeps_rejected: bool = False,
    ) -> TransformedDelivery:
        sinks: list[Sink] = [*([self.sink("dead_letter")] if dead else []), self.sink("main", where), *more]
        transformation = SparkTransformation(
            self.spark,
            routed_sinks(sinks),
            layout=layout,
            transform=transform,
            payload=None if schema is None else JsonPayload(schema, layout),
        )
        return TransformedDelivery(
            transformation, sinks, source="clicks", bad_records=self.found, keeps_rejected=keeps_rejected
        )

    def deliver(self, delivery: TransformedDelivery) -> Prepared:
        attempt = self.attempt()
        prepared = delivery.prepare([attempt], delivery.sinks)[attempt.batch_id]
        if isinstance(prepared, Exception):
            delivery.discard([attempt])
            raise prepared
        for sink in delivery.sinks:
            delivery.commit(sink, [attempt])
        delivery.discard([attempt])
        return prepared

    def attempt(self, fencing_token: int = 1) -> Attempt:
        return Attempt(
            batch=self.batch, file=self.batch.file, folder=FOLDER, set_id="set-1", fencing_token=fencing_token,
            source="clicks", partition_key="shard-1", owner="job",
        )  # fmt: skip

    def rows(self, sink: str) -> list[dict[str, Any]]:
        file = self.folder / sink / "batch-1.parquet"
        return pq.read_table(file).to_pylist() if file.exists() else []

    def amounts(self, sink: str) -> list[float]:
        return [row["amount"] for row in self.rows(sink)]

    @property
    def unfinished(self) -> list[str]:
        return [file for file in files_below(str(self.folder)) if "_staging" in file]


@pytest.fixture
def batches(spark: SparkSession, tmp_path: Path) -> LandedBatches:
    return LandedBatches(spark, tmp_path)


def fragile(records: DataFrame) -> DataFrame:
    """Raise on poison."""

    def length(data):
        if b"poison" in bytes(data):
            raise ValueError("this record is poison")
        return len(data)

    return records.withColumn("length", functions.udf(length, "long")("data"))


def marking(records: DataFrame) -> DataFrame:
    """Mark what is too much."""
    return records.withColumn("_error", functions.expr("CASE WHEN amount > 100 THEN 'too much: ' || amount END"))


def marking_nothing(records: DataFrame) -> DataFrame:
    return records.withColumn("_error", functions.lit(None))


def raising(error: type[BaseException]) -> Transform:
    def transform(records: DataFrame) -> DataFrame:
        def fail(data):
            raise error("away")

        return records.withColumn("length", functions.udf(fail, "long")("data"))

    return transform


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


# Late and early records

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


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id STRING, At TIMESTAMP", "'event_time' is 'at', which is no column of 'schema'; its columns are 'id', 'At'"),
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


# Records of items, which have whatever columns their source has


def land_items(batches: LandedBatches, batch_id: str = "batch-1", **columns: Any) -> None:
    rows = len(next(iter(columns.values())))
    ours = {
        "_origin": ["s3://b/k"] * rows,
        "_row": pa.array(range(rows), pa.int64()),
        "_batch_id": [batch_id] * rows,
    }
    batches.land(*[b""] * rows)
    batches.batch = replace(batches.batch, batch_id=batch_id, file=str(batches.folder / f"{batch_id}.parquet"))
    size = write_table(pa.table({**columns, **ours}), batches.batch.file)
    batches.batch = replace(batches.batch, file_bytes=size)


def of_items(batches: LandedBatches, *more: Sink, **options: Any) -> TransformedDelivery:
    return batches.delivery(*more, layout=ITEM_RECORDS, **options)


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


# The schema

FITS = [
    b'{"id": "a", "amount": 1.5}', b'{"id": "a"}', b'{"id": "a", "amount": null, "more": 1}', b' {"id": 5} \n',
]  # fmt: skip
DOES_NOT_FIT = {
    b"": "is not JSON",
    b"no": "is not JSON",
    b'{"id": "a"': "is not JSON",
    b"{'id': 'a'}": "is not JSON",
    b"null": "is not a JSON object",
    b"5": "is not a JSON object",
    b'[{"id": "a"}]': "is not a JSON object",
    b'{"id": "a"}{"id": "b"}': "not one JSON object",
    b'{"id": "a"}\n{"id": "b"}': "not one JSON object",
    b'{"id": "a"}, {"id": "b"}': "not one JSON object",
    b'{"id": "a"} more': "not one JSON object",
    b'{"id": "a"}]}': "not one JSON object",
    b'{"id": "\xff"}': "is not UTF-8",
    b'{"id": "a", "amount": "x"}': "field 'amount' is no DOUBLE",
    b'{"amount": 1}': "field 'id' is missing",
    b'{"id": null}': "field 'id' is missing",
}


TEXTS: dict[str, list[tuple[str, str]]] = {
    "x STRING": [
        (number, number)
        for number in (
            "1.10", "1E-130", "12345678901234567890.123", "-9.99999999999999999999999999999999999999E+125", "-0",
            "-0.0", "1e400", "7", "12345678901234567890123", "true", "[1.50,1E5]",
        )
    ] + [
        ('"1.10"', "1.10"),
        ('{"a": 1.10, "b": ["1.10", -0, 1e400], "1.5": "é \\" 2.50"}',
         '{"a":1.10,"b":["1.10",-0,1e400],"1.5":"é \\" 2.50"}'),
        ('["' + "\\n" * 20_000 + '",1.50]', '["' + "\\n" * 20_000 + '",1.50]'),
    ],
    "x ARRAY<STRING>": [('[1.10, "1.10", null, {"a": 1E5}]', "[1.10, 1.10, null, {\"a\":1E5}]")],
    "x MAP<STRING, STRING>": [('{"a": 1.10, "b": "x"}', "{a -> 1.10, b -> x}"), ('{"a": "x"}', "{a -> x}")],
    "x STRUCT<a: STRUCT<b: STRING>, c: INT>": [
        ('{"a": {"b": 1E-130}, "c": 5}', "{{1E-130}, 5}"), ('{"c": 5}', "{null, 5}"), ('{"a": null}', "{null, null}"),
    ],
    "x DECIMAL(38,10)": [("12345678901234567890.1230", "12345678901234567890.1230000000"), ("1500e-3", "1.5000000000")],
    "x BIGINT": [("7.0", "7"), ("12345678.0", "12345678"), ("1e3", "1000")],
    "x TIMESTAMP": [
        ("1769817600", "2026-01-31 00:00:00"), ("2024", "1970-01-01 00:33:44"), ('"2024"', "2024-01-01 00:00:00"),
        ('"2024-05-06T07:08:09.123456000Z"', "2024-05-06 07:08:09.123456"),
    ],
    "x TIMESTAMP_NTZ": [('"2024-05-06T07:08:09.5"', "2024-05-06 07:08:09.5")],
    "x DATE": [('"2024-05-06"', "2024-05-06"), ('"2024-05-06T00:00:00Z"', "2024-05-06")],
    "x DOUBLE": [("9007199254740992", "9.007199254740992E15"), ("100000000000000000000", "1.0E20"), ("0.1", "0.1")],
    "x ARRAY<FLOAT>": [("[16777216, 0.1]", "[1.6777216E7, 0.1]")],
}  # fmt: skip
"""By schema, the JSON of a field and the text of its value, as Spark writes it."""


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


# Transforms that fail on any records


def nothing_returned(records: DataFrame) -> None:
    records.count()


def no_such_column(records: DataFrame) -> DataFrame:
    return records.select("colour")


def no_such_module(records: DataFrame) -> DataFrame:
    import no_such_module

    return no_such_module.of(records)  # type: ignore[no-any-return]


def no_such_attribute(records: DataFrame) -> DataFrame:
    return records.select(records.colour)


WRONG_TRANSFORMS: dict[str, tuple[Any, str]] = {
    "nothing": (nothing_returned, "must return a Spark DataFrame that is not streaming; it returned builtins.NoneType"),
    "a list": (lambda records: [records], "it returned builtins.list"),
    "pandas": (lambda records: records.toPandas(), "it returned pandas.core.frame.DataFrame"),
    "no argument": (lambda: None, "cannot be called with one argument, the records: too many positional arguments"),
    "two arguments": (lambda records, more: records, "missing a required argument: 'more'"),
    "module": (no_such_module, "fails on any records: ModuleNotFoundError: No module named 'no_such_module'"),
}


@pytest.mark.parametrize("name", sorted(WRONG_TRANSFORMS))
def test_transform_failing_on_any_records_is_named_before_batches(batches: LandedBatches, name: str) -> None:
    transform, message = WRONG_TRANSFORMS[name]
    with pytest.raises(TransformError, match=message):
        batches.delivery(transform=transform).transformation.check(SHARD_RECORDS.columns)


@pytest.mark.parametrize("transform", [no_such_column, no_such_attribute])
def test_missing_known_column_is_named_before_reading(batches: LandedBatches, transform: Transform) -> None:
    """The columns are known of streams, and of items that a reader describes before it reads them."""
    of_a_table = landed_columns(pa.schema([pa.field("amount", pa.uint8()), pa.field("name", pa.large_string())]))
    message = f"transform '{transform.__name__}' names a column that the records do not have: .*`?colour`?.* columns "
    with pytest.raises(ConfigurationError, match=message + "are stream, shard_id, .*; correct it"):
        batches.delivery(transform=transform).transformation.check(SHARD_RECORDS.columns)
    with pytest.raises(ConfigurationError, match=message + "are amount, name, _origin, _row, _batch_id; correct it"):
        of_items(batches, transform=transform).transformation.check(of_a_table)
    right = of_items(batches, where="amount > 3", transform=lambda each: each.where("name != ''"))
    right.transformation.check(of_a_table)
    with pytest.raises(ConfigurationError, match="field 'schema': 'schema' parses the column 'data', which must exist"):
        of_items(batches, schema=PAYLOAD).transformation.check(of_a_table)


@pytest.mark.parametrize("transform", [no_such_column, no_such_attribute])
def test_missing_column_of_a_batch_is_named(batches: LandedBatches, transform: Transform) -> None:
    land_items(batches, a=[1])
    with pytest.raises(MissingColumnError, match=r"colour.*; their columns are a, _origin, _row, _batch_id"):
        batches.deliver(of_items(batches, transform=transform))
    with pytest.raises(MissingColumnError, match=r"'where' .*; their columns are a, _origin, _row, _batch_id"):
        batches.deliver(of_items(batches, where="colour = 'red'"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"merge_on": ("id", "amout")}, "'merge_on' names column 'amout', .*; did you mean 'amount'?"),
        ({"merge_on": ("id",), "order_by": "at"}, "'order_by' names column 'at', .*; did you mean 'data'?"),
        ({"partition_by": ("xyz",)}, "'partition_by' names column 'xyz', .*; name one of them, or let the transform"),
    ],
)
def test_missing_column_of_a_sink_is_named_before_reading(
    batches: LandedBatches, fields: dict[str, Any], message: str
) -> None:
    table = DeltaSink(name="table", path=str(batches.folder / "table"), settings=DeltaTable("", **fields))
    with pytest.raises(ConfigurationError, match=f"field 'writes', sink 'table': {message}"):
        batches.delivery(table, schema=PAYLOAD).transformation.check(SHARD_RECORDS.columns)
    land_items(batches, id=["a"], amount=[1.0], data=[b""])
    with pytest.raises(MissingColumnError, match=f"{message}"):
        batches.deliver(of_items(batches, table))


def test_check_accepts_transforms_that_inspect_records(batches: LandedBatches) -> None:
    def by_first(records: DataFrame) -> DataFrame:
        return records.sparkSession.read.json(records.rdd.map(lambda row: bytes(row.data).decode())).select("id")

    batches.delivery(transform=by_first).transformation.check(SHARD_RECORDS.columns)


def test_wrong_transform_of_items_blames_no_batch(batches: LandedBatches) -> None:
    land_items(batches, a=[1])
    with pytest.raises(TransformError, match="must return a Spark DataFrame"):
        batches.deliver(of_items(batches, transform=nothing_returned))


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


# In the rounds of a job


class InterruptedDelivery(TransformedDelivery):
    """A delivery that something happens to between two commits."""

    happens: Callable[[str], None] = staticmethod(lambda sink: None)

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        self.happens(sink)
        super().commit(sink, attempts)


@dataclass
class JobRounds:
    """Jobs over one shard of JSON events, through Spark into two sinks and the dead letters."""

    spark: SparkSession
    folder: Path

    def __post_init__(self) -> None:
        self.fleet = Fleet(FakeStream(1), self.folder / "main")
        self.found = BadRecords()

    def send(self, *payloads: bytes) -> None:
        records = self.fleet.stream.shards["shard-0"].records
        records += [
            KinesisRecord(str(10**20 + len(records) + n), "k", datetime.now(UTC), p) for n, p in enumerate(payloads)
        ]

    def delivery(
        self, happens: Callable[[str], None] = lambda sink: None, transform: Transform | None = None
    ) -> TransformedDelivery:
        names = ["dead_letter", "main", "copy"]
        sinks = [ParquetSink(name=name, path=str(self.folder / name)) for name in names]
        self.found = BadRecords(saved=1)
        transformation = SparkTransformation(
            self.spark,
            routed_sinks(sinks),
            layout=SHARD_RECORDS,
            transform=transform,
            payload=JsonPayload(PAYLOAD, SHARD_RECORDS),
        )
        delivery = InterruptedDelivery(transformation, sinks, source="clicks", bad_records=self.found)
        delivery.happens = happens  # type: ignore[method-assign]
        return delivery

    def run(
        self,
        happens: Callable[[str], None] = lambda sink: None,
        *,
        transform: Transform | None = None,
        **changes: Any,
    ) -> Any:
        delivery = self.delivery(happens, transform)
        return self.fleet.run(delivery=delivery, bad_records=self.found, **changes)

    def taken(self, sink: str) -> Counter[bytes]:
        files = [pq.read_table(file)["data"].to_pylist() for file in (self.folder / sink).glob("*.parquet")]
        return Counter(payload for payloads in files for payload in payloads)

    @property
    def partition(self) -> Partition:
        partition = self.fleet.look.view.get(partition_key("s", EPOCH, "shard-0"))
        assert partition is not None
        return partition


@pytest.fixture
def rounds(spark: SparkSession, tmp_path: Path) -> JobRounds:
    return JobRounds(spark, tmp_path)


def at(sink: str, error: BaseException, times: int = 10**9) -> Callable[[str], None]:
    left = [times]

    def happen(published: str) -> None:
        if published == sink and left[0]:
            left[0] -= 1
            raise error

    return happen


GOOD = [click(n) for n in range(4)]


def test_job_counts_outcomes_of_its_records(rounds: JobRounds) -> None:
    rounds.send(*GOOD, b"no JSON")
    summary = rounds.run()
    assert summary.records_delivered == 5, "a dead letter counts as delivered"
    assert summary.records_by_sink == {"dead_letter": 1, "main": 4, "copy": 4}
    assert (summary.dead_letters, summary.parse_exceptions, summary.unrouted) == (1, 1, 0)
    assert [sample["data"] for sample in summary.saved_parse_exceptions] == ["no JSON"]
    assert rounds.taken("main") == rounds.taken("copy") == Counter(GOOD)
    assert rounds.taken("dead_letter") == Counter([b"no JSON"])
    assert list(rounds.folder.rglob("_landing/**/*.parquet")) == []


def test_transform_may_drop_everything(rounds: JobRounds) -> None:
    rounds.send(*GOOD)
    summary = rounds.run(transform=lambda records: records.filter("false"))
    assert (summary.records_delivered, summary.failed) == (4, {})
    assert rounds.taken("main") == rounds.taken("copy") == rounds.taken("dead_letter") == Counter()
    assert rounds.partition.progress["landed"] == []
    assert list(rounds.folder.rglob("_landing/**/*.parquet")) == []


@pytest.mark.parametrize("sink", ["main", "copy"])
def test_job_killed_between_two_sinks_duplicates_nothing(rounds: JobRounds, sink: str) -> None:
    rounds.send(*GOOD, b"no JSON")
    with pytest.raises(Crash):
        rounds.run(at(sink, Crash()))
    assert rounds.taken("dead_letter") == Counter([b"no JSON"]), "bad records come first"
    assert rounds.taken("main") == (Counter(GOOD) if sink == "copy" else Counter())
    summary = rounds.run()
    assert (summary.failed, summary.lost) == ({}, [])
    assert rounds.taken("main") == rounds.taken("copy") == Counter(GOOD)
    assert rounds.taken("dead_letter") == Counter([b"no JSON"])
    assert rounds.partition.progress["landed"] == []


def test_permanently_failing_sink_parks_without_duplicates(
    rounds: JobRounds,
) -> None:
    rounds.send(*GOOD, b"no JSON")
    for _ in range(20):
        # Each delivery takes Spark some time, and how often one is tried is others' to test.
        full = at("copy", OSError("the disk of the copy is full"))
        summary = rounds.run(full, retry_policy=RetryPolicy(max_attempts=2, max_closed_count=1))
        assert rounds.taken("main") == Counter(GOOD) and rounds.taken("copy") == Counter()
        assert summary.parse_exceptions in (0, 1) and summary.dead_letters == 0
        if rounds.partition.is_parked:
            break
        rounds.fleet.clock.ahead += timedelta(hours=2)
    assert rounds.partition.is_parked
    assert "the disk of the copy is full" in str(rounds.partition.last_error)
    assert rounds.run().resting == [rounds.partition.partition_key]


def test_temporarily_failing_sink_is_retried_and_counted_once(rounds: JobRounds) -> None:
    rounds.send(*GOOD, b"no JSON")
    summary = rounds.run(at("copy", OSError("the disk of the copy is full"), times=2))
    assert summary.records_by_sink == {"dead_letter": 1, "main": 4, "copy": 4}
    assert (summary.parse_exceptions, summary.dead_letters, summary.failed) == (1, 1, {})
    assert rounds.taken("main") == rounds.taken("copy") == Counter(GOOD)
    assert rounds.taken("dead_letter") == Counter([b"no JSON"])
