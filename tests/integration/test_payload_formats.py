"""Spark delivers payloads of each format: valid ones as columns, others as dead letters with a reason."""

from __future__ import annotations

import gzip
import io
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from airflow_provider_coordination.sources.landed import EventTimeBounds
from airflow_provider_coordination.spark.delivery import SinkUnavailableError
from airflow_provider_coordination.spark.payload_settings import (
    Avro,
    ConfluentRegistry,
    Csv,
    Json,
    Payload,
    Protobuf,
)
from tests.support.landed_batches import LandedBatches
from tests.support.schema_registries import SchemaRegistry

SCHEMA = "id STRING NOT NULL, amount DOUBLE, price DECIMAL(9, 2), day DATE, at TIMESTAMP"
AT = datetime(2026, 1, 31, 12, 0, 0, 250000, tzinfo=UTC)
ROW = {"id": "a", "amount": 1.5, "price": Decimal("2.50"), "day": date(2026, 1, 31), "at": AT}
EMPTY_ROW = {"id": "b", "amount": None, "price": None, "day": None, "at": None}


# Avro


def nullable(kind: Any) -> Any:
    return {"type": ["null", kind], "default": None}


def order_schema(*more: Mapping[str, Any], without: Sequence[str] = ()) -> dict[str, Any]:
    fields = [
        {"name": "id", "type": "string"},
        {"name": "amount", **nullable("double")},
        {"name": "price", **nullable({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})},
        {"name": "day", **nullable({"type": "int", "logicalType": "date"})},
        {"name": "at", **nullable({"type": "long", "logicalType": "timestamp-millis"})},
    ]
    return {
        "type": "record",
        "name": "Order",
        "fields": [*(each for each in fields if each["name"] not in without), *more],
    }


def datum(value: Mapping[str, Any], schema: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(schema)), value)
    return stream.getvalue()


def container(*values: Mapping[str, Any], schema: Mapping[str, Any], codec: str = "deflate") -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(dict(schema)), values, codec=codec)
    return stream.getvalue()


# Protobuf

STRING, DOUBLE, INT64, MESSAGE = 9, 1, 3, 11


def descriptors(*more: tuple[str, int]) -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    stamp = files.file.add(name="google/protobuf/timestamp.proto", package="google.protobuf", syntax="proto3")
    message = stamp.message_type.add(name="Timestamp")
    message.field.add(name="seconds", number=1, type=INT64, label=1)
    message.field.add(name="nanos", number=2, type=5, label=1)
    file = files.file.add(name="order.proto", package="shop", syntax="proto3", dependency=[stamp.name])
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate((("id", STRING), ("amount", DOUBLE), ("price", STRING), ("day", STRING)), 1):
        order.oneof_decl.add(name=f"_{name}")
        order.field.add(name=name, number=number, type=kind, label=1, proto3_optional=True, oneof_index=number - 1)
    order.field.add(name="at", number=5, type=MESSAGE, label=1, type_name=".google.protobuf.Timestamp")
    for number, (name, kind) in enumerate(more, 6):
        order.field.add(name=name, number=number, type=kind, label=1)
    return files.SerializeToString()


def order(values: Mapping[str, Any], described: bytes) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(described).file:
        pool.AddSerializedFile(file.SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))()
    for name, value in values.items():
        if isinstance(value, datetime):
            made.at.seconds, made.at.nanos = int(value.timestamp()), value.microsecond * 1000
        elif value is not None:
            setattr(made, name, value if isinstance(value, float) else str(value))
    return made.SerializeToString()


def inline(described: bytes) -> str:
    return f"data:;base64,{b64encode(described).decode()}"


# CloudWatch Logs


def envelope(*messages: str, **changes: Any) -> bytes:
    events = [
        {"id": f"event-{number}", "timestamp": 1769860800250 + number, "message": message}
        for number, message in enumerate(messages)
    ]
    return json.dumps(
        {
            "messageType": "DATA_MESSAGE",
            "owner": "123456789012",
            "logGroup": "/aws/lambda/orders",
            "logStream": "2026/01/31/[$LATEST]1",
            "subscriptionFilters": ["all"],
            "logEvents": events,
            **changes,
        }
    ).encode()


@dataclass(frozen=True, kw_only=True)
class Case:
    """What payloads of a format become.

    :param payload: the format.
    :param rows: the rows of each payload.
    :param bad: the reason for each bad payload, or the part of it.
    """

    payload: Payload
    rows: Mapping[bytes, Sequence[Mapping[str, Any]]]
    bad: Mapping[bytes, str]


def zstd(data: bytes) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.CompressedOutputStream(stream, "zstd") as compressing:
        compressing.write(data)
    return stream.getvalue().to_pybytes()


OLD, NEW = order_schema(), order_schema({"name": "note", "type": "string"})
JSON = b'{"id": "a", "amount": 1.5, "price": "2.50", "day": "2026-01-31", "at": "2026-01-31T12:00:00.250Z"}'
DESCRIBED, GROWN = descriptors(), descriptors(("note", STRING))
DATUM = datum(ROW, OLD)
NUMBERED = order_schema({"name": "id", "type": "int"}, without=["id"])
CASES = {
    "gzip": Case(
        payload=Payload(compression="gzip"),
        rows={gzip.compress(JSON): [ROW], gzip.compress(JSON[:20]) + gzip.compress(JSON[20:]): [ROW]},
        bad={
            JSON: "is not complete gzip",
            gzip.compress(JSON)[:-10]: "is not complete gzip: it ends too early",
            gzip.compress(b'{"amount": 1}'): "field 'id' is missing",
            gzip.compress(bytes(70 * 2**20)): "has more than 67108864 bytes once it is decompressed",
        },
    ),
    "zstd": Case(
        payload=Payload(compression="zstd"),
        rows={pa.Codec("zstd").compress(JSON, asbytes=True): [ROW], zstd(JSON): [ROW]},
        bad={
            JSON: "is not zstd",
            zstd(JSON)[:-5]: "is not complete zstd",
            zstd(bytes(70 * 2**20)): "has more than 67108864 bytes",
            pa.Codec("zstd").compress(bytes(70 * 2**20), asbytes=True): "has more than 67108864 bytes",
        },
    ),
    "auto": Case(
        payload=Payload(compression="auto"), rows={JSON: [ROW], gzip.compress(JSON): [ROW], zstd(JSON): [ROW]}, bad={}
    ),
    "many": Case(
        payload=Payload(json=Json(many=True)),
        rows={
            JSON: [ROW],
            b"[" + JSON + b',\n {"id": "b"} ]': [ROW, EMPTY_ROW],
            JSON + b'\n{"id":\n"b"}' + JSON: [ROW, EMPTY_ROW, ROW],
            b"[]": [],
        },
        bad={
            b'{"id": "a"}\n{"amount": 1}': "row 1: the payload does not fit the schema: field 'id' is missing",
            b'{"id": "a"}\n{"id"': "the object at byte 12 does not end",
            b"": "the payload is empty",
        },
    ),
    "csv": Case(
        payload=Payload(csv=Csv()),
        rows={
            b"a,1.5,2.50,2026-01-31,2026-01-31T12:00:00.25Z": [ROW],
            b'"a","1.5",2.50,2026-01-31,2026-01-31T12:00:00.25Z\r\nb,,,,\n': [ROW, EMPTY_ROW],
        },
        bad={
            b"a,1.5,2.50,2026-01-31": "a row has 4 values, and 5 are expected",
            b"a,1.5,2.50,2026-01-31,2026-01-31T12:00:00.25Z,more": "a row has 6 values, and 5 are expected",
            b"a,x,2.505,,": "row 0: the payload does not fit the schema: field 'amount' is not a valid DOUBLE; field",
            b"a,,,,\n,,,,": "row 1: the payload does not fit the schema: field 'id' is missing",
            b'a,"1.5,,,': "a quote does not end",
            b"\xff,,,,": "is not UTF-8",
        },
    ),
    "tsv with a header": Case(
        payload=Payload(csv=Csv(delimiter="\t", header=True, null_values=("-",)), compression="auto"),
        rows={
            b"id\tamount\tprice\tday\tat\na\t1.5\t2.50\t2026-01-31\t2026-01-31T12:00:00.25Z": [ROW],
            b"more\tat\tday\tprice\tamount\tid\nx\t-\t-\t-\t-\tb": [EMPTY_ROW],
            b"id\tamount\tprice\tday\tat": [],
        },
        bad={b"id\tamount\na\t1.5": "does not exist in CSV file"},
    ),
    "avro": Case(
        payload=Payload(avro=Avro(schema=json.dumps(OLD))),
        rows={
            DATUM: [ROW],
            container(ROW, EMPTY_ROW, schema=OLD): [ROW, EMPTY_ROW],
            container({**ROW, "note": "new"}, schema=NEW): [ROW],
            container({"id": "b"}, schema=order_schema(without=["amount", "at"])): [EMPTY_ROW],
        },
        bad={
            DATUM[:-1]: "the payload is not Avro: it is not a datum of its schema",
            DATUM + b"\0": "the payload is not Avro: 1 bytes follow the datum",
            container(ROW, schema=OLD)[:-1]: "the payload is not Avro: it ends too early",
            container({"amount": 1.5}, schema=order_schema(without=["id"])): "No default value for field id",
            container({"id": 5}, schema=NUMBERED): "its schema cannot be read by the schema of the reader",
            b"": "it is not a datum of its schema",
        },
    ),
    "protobuf": Case(
        payload=Payload(protobuf=Protobuf(descriptor_set=inline(DESCRIBED), message="shop.Order")),
        rows={
            order(ROW, DESCRIBED): [ROW],
            order(EMPTY_ROW, DESCRIBED): [EMPTY_ROW],
            order({**ROW, "note": "new"}, GROWN): [ROW],
        },
        bad={
            order(ROW, DESCRIBED)[:-1]: "the payload is not a Protobuf message of its type",
            order({"amount": 1.5}, DESCRIBED): "field 'id' is missing",
            order({"id": "a", "price": "2.505"}, DESCRIBED): "field 'price' has a value that DECIMAL(9,2) cannot hold",
        },
    ),
    "cloudwatch": Case(
        payload=Payload(cloudwatch_logs=True),
        rows={
            gzip.compress(envelope(JSON.decode(), '{"id": "b"}')): [ROW, EMPTY_ROW],
            envelope(JSON.decode()): [ROW],
            gzip.compress(envelope(messageType="CONTROL_MESSAGE")): [],
        },
        bad={
            gzip.compress(envelope(JSON.decode(), "START RequestId")): "row 1: the payload is not JSON",
            gzip.compress(envelope(messageType="OTHER")): "its 'messageType' is not DATA_MESSAGE or CONTROL_MESSAGE",
            gzip.compress(JSON): "the payload is not an envelope of CloudWatch Logs",
            b"no": "the payload is not an envelope of CloudWatch Logs: it is not JSON",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_payload_is_its_rows_or_a_dead_letter(batches: LandedBatches, name: str) -> None:
    case = CASES[name]
    batches.land(*case.rows, *case.bad)
    prepared = batches.deliver(batches.delivery(schema=SCHEMA, payload=case.payload))

    found: dict[str, list[Any]] = {}
    for row in batches.rows("main"):
        found.setdefault(row["sequence_number"], []).append(row)
    assert [[row["_number"] for row in rows] for rows in found.values()] == [[*range(len(r))] for r in found.values()]
    wanted = [rows for rows in case.rows.values() if rows]
    assert [[{name: row[name] for name in ROW} for row in rows] for rows in found.values()] == wanted
    letters = {row["data"]: row["error"] for row in batches.rows("dead_letter")}
    assert list(letters) == list(case.bad)
    assert {key: letters[key] for key, reason in case.bad.items() if reason not in letters[key]} == {}
    assert prepared.records == {"main": sum(map(len, wanted)), "dead_letter": len(case.bad)}


def test_columns_are_the_fields_of_an_avro_schema_without_another(batches: LandedBatches) -> None:
    batches.land(DATUM)
    batches.deliver(batches.delivery(payload=Payload(avro=Avro(schema=json.dumps(OLD)))))
    [row] = batches.rows("main")
    assert {name: row[name] for name in ROW} == ROW and row["data"] == DATUM


def test_log_events_have_their_group_stream_and_owner(batches: LandedBatches) -> None:
    batches.land(gzip.compress(envelope("START", "END", messageType="DATA_MESSAGE")))
    batches.deliver(batches.delivery(payload=Payload(cloudwatch_logs=True)))
    first, second = batches.rows("main")
    assert {name: value for name, value in first.items() if name.startswith("log_")} == {
        "log_group": "/aws/lambda/orders",
        "log_stream": "2026/01/31/[$LATEST]1",
        "log_owner": "123456789012",
        "log_event_id": "event-0",
        "log_timestamp": AT,
    }
    assert (first["data"], second["data"], second["_number"]) == (b"START", b"END", 1)


def test_registry_that_is_down_makes_no_dead_letters(batches: LandedBatches) -> None:
    with SchemaRegistry({"/schemas/ids/1": {"schema": json.dumps(OLD)}}) as registry:
        registry.status = 503
        confluent = ConfluentRegistry(url=(registry.url,))
        batches.land(b"\0\0\0\0\1" + DATUM, b"\1" + DATUM)
        delivery = batches.delivery(schema=SCHEMA, payload=Payload(avro=Avro(confluent=confluent)))
        with pytest.raises(SinkUnavailableError, match="HTTP status 503 to a request for schema 1"):
            batches.deliver(delivery)
        assert batches.rows("dead_letter") == []
        registry.status = None
        batches.deliver(delivery)
    assert [row["id"] for row in batches.rows("main")] == ["a"]
    assert [row["data"] for row in batches.rows("dead_letter")] == [b"\1" + DATUM]


@pytest.mark.parametrize("name", ["avro", "csv"])
def test_late_rows_are_left_out_by_their_decoded_time(batches: LandedBatches, name: str) -> None:
    case = CASES[name]
    batches.land(*case.rows)
    bounds = EventTimeBounds(column="at", type="timestamp", earliest=AT + timedelta(seconds=1), latest=None)
    batches.batch = replace(batches.batch, bounds=bounds)
    prepared = batches.deliver(batches.delivery(schema=SCHEMA, payload=case.payload, keeps_rejected=True))
    times = [row["at"] for rows in case.rows.values() for row in rows]
    assert [row["at"] for row in batches.rows("main")] == [at for at in times if at is None]
    late = sum(any(row["at"] is not None for row in rows) for rows in case.rows.values())
    assert prepared.left_out == {"time": late} == {"time": len(batches.rows("dead_letter"))}
