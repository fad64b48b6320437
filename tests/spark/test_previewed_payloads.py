"""Payloads become columns without Spark as they do in a job, and a note says what does not."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.payload_settings import Avro, ConfluentRegistry, Csv, Json, Payload
from airflow_provider_coordination.spark.previewed_payloads import NOT_JSON, DecodedRow, PayloadPreview
from tests.support.payload_texts import DOES_NOT_FIT, FITS, TEXTS

SCHEMA = "id STRING NOT NULL, amount DOUBLE"
ORDER = json.dumps({"type": "record", "name": "o", "fields": [{"name": "id", "type": "string"}]})
SHOWN_ALIKE = ("x STRING", "x DECIMAL(38,10)", "x BIGINT")
"""The schemas of the table whose values have one text, whoever writes it."""


def previewed(ddl: str | None = SCHEMA, payload: Payload | None = None, **formats: str) -> PayloadPreview:
    return PayloadPreview(payload or Payload(), ddl, formats, Access())


def rows(*payloads: bytes, **given: Any) -> list[DecodedRow]:
    return previewed(**given).rows(payloads)


def values(payload: bytes, ddl: str, **formats: str) -> Any:
    [row] = rows(payload, ddl=ddl, **formats)
    assert row.error == ""
    return row.values


@pytest.mark.parametrize("payload", FITS)
def test_payload_that_spark_accepts_fits(payload: bytes) -> None:
    [row] = rows(payload)
    assert row.error == "" and row.values["id"]


@pytest.mark.parametrize("payload", DOES_NOT_FIT)
def test_payload_that_spark_refuses_has_a_reason(payload: bytes) -> None:
    [row] = rows(payload)
    assert row.error in (
        NOT_JSON,
        "the payload does not fit the schema: field 'id' is missing",
        "the payload does not fit the schema: field 'amount' has a value that DOUBLE cannot hold",
    )
    assert row.values == {}


@pytest.mark.parametrize(
    ("ddl", "text", "expected"), [(ddl, text, value) for ddl in SHOWN_ALIKE for text, value in TEXTS[ddl]]
)
def test_value_has_the_text_that_spark_gives_it(ddl: str, text: str, expected: str) -> None:
    assert str(values(b'{"x": ' + text.encode() + b"}", ddl)["x"]) == expected


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("TIMESTAMP", 1769817600, datetime(2026, 1, 31, tzinfo=UTC)),
        ("TIMESTAMP", 1.5, datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
        ("TIMESTAMP", "2024", datetime(2024, 1, 1, tzinfo=UTC)),
        ("TIMESTAMP", "2024-05", datetime(2024, 5, 1, tzinfo=UTC)),
        ("TIMESTAMP", "2024-05-06T07:08:09.123456000Z", datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)),
        ("TIMESTAMP", "2024-05-06T07:08:09+02:00", datetime(2024, 5, 6, 5, 8, 9, tzinfo=UTC)),
        ("TIMESTAMP_NTZ", "2024-05-06T07:08:09.5", datetime(2024, 5, 6, 7, 8, 9, 500_000)),
        ("DATE", "2024-05-06", date(2024, 5, 6)),
        ("DATE", "2024-05-06T00:00:00Z", date(2024, 5, 6)),
        ("DOUBLE", 9007199254740992, 9007199254740992.0),
        ("DOUBLE", "0.1", 0.1),
        ("DECIMAL(10,2)", "1.50", Decimal("1.50")),
        ("INT", 7, 7),
        ("BOOLEAN", True, True),
        ("ARRAY<STRUCT<a: INT>>", [{"a": 1}, {}], [{"a": 1}, {"a": None}]),
        ("MAP<STRING, DOUBLE>", {"a": 1.5, "b": [1]}, {"a": 1.5, "b": [1]}),
        ("VARCHAR(5) COMMENT 'a, b'", "text", "text"),
    ],
)
def test_value_has_the_type_of_the_schema(kind: str, given: Any, expected: Any) -> None:
    assert values(json.dumps({"x": given}).encode(), f"x {kind}") == {"x": expected}


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("BOOLEAN", "true"),
        ("INT", 1.5),
        ("INT", 2**40),
        ("DATE", "2024-05-06T07:00:00Z"),
        ("TIMESTAMP", "yesterday"),
        ("STRUCT<a: INT>", [1]),
        ("DECIMAL(3,2)", 123.4),
    ],
)
def test_value_that_a_type_cannot_hold_is_an_error(kind: str, given: Any) -> None:
    [row] = rows(json.dumps({"x": given}).encode(), ddl=f"x {kind}")
    assert row.error == f"the payload does not fit the schema: field 'x' has a value that {kind.upper()} cannot hold"


def test_time_follows_its_format() -> None:
    payload = b'{"x": 1769817600000, "y": "31/01/2026"}'
    found = values(payload, "x TIMESTAMP, y TIMESTAMP", x="millis", y="dd/MM/yyyy")
    assert found == dict.fromkeys("xy", datetime(2026, 1, 31, tzinfo=UTC))


def test_type_that_only_spark_reads_is_noted() -> None:
    assert previewed("id STRING, m MAP<STRING, INT>").notes == [
        "only Spark reads the types of 'm': their values are shown as they are"
    ]
    assert previewed().notes == []


def test_csv_becomes_typed_rows() -> None:
    payload = Payload(csv=Csv())
    found = rows(
        b"a,1.5,true\nb,,FALSE\n", b"c,x,true", b"d", ddl="id STRING, amount DOUBLE, ok BOOLEAN", payload=payload
    )
    assert [(row.record, dict(row.values)) for row in found[:2]] == [
        (0, {"id": "a", "amount": 1.5, "ok": True}),
        (0, {"id": "b", "amount": None, "ok": False}),
    ]
    assert [row.record for row in found] == [0, 0, 1, 2]
    assert "field 'amount' has a value that DOUBLE cannot hold" in found[2].error
    assert "a row has 1 values, and 3 are expected" in found[3].error


def test_compressed_payload_of_many_objects_becomes_rows() -> None:
    payload = Payload(compression="gzip", json=Json(many=True))
    found = rows(gzip.compress(b'{"id": "a"}\n{"id": "b"}'), b"plain", payload=payload)
    assert [(row.record, row.values.get("id")) for row in found] == [(0, "a"), (0, "b"), (1, None)]
    assert found[2].error


def test_rows_without_a_schema_keep_their_own_payload() -> None:
    found = rows(b'[{"id": "a"}, {"id": "b"}]', ddl=None, payload=Payload(json=Json(many=True)))
    assert [row.values for row in found] == [{"data": b'{"id": "a"}'}, {"data": b'{"id": "b"}'}]


def test_log_events_have_their_columns() -> None:
    events = [{"id": "1", "timestamp": 1000, "message": '{"id": "a"}'}]
    envelope = {"messageType": "DATA_MESSAGE", "logGroup": "g", "logStream": "s", "owner": "o", "logEvents": events}
    preview = previewed(payload=Payload(cloudwatch_logs=True))
    [row] = preview.rows([gzip.compress(json.dumps(envelope).encode())])
    assert {name: row.values[name] for name in ("log_group", "log_timestamp", "id")} == {
        "log_group": "g",
        "log_timestamp": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "id": "a",
    }
    assert set(preview.log_types) <= set(row.values)


@pytest.mark.parametrize("ddl", [None, "id STRING"])
def test_avro_is_decoded_by_its_schema(ddl: str | None) -> None:
    preview = previewed(ddl, Payload(avro=Avro(schema=ORDER)))
    good, bad = preview.rows([b"\x02a", b"\x09"])
    assert (preview.types.keys(), good.values) == ({"id"}, {"id": "a"})
    assert bad.error.startswith("the payload is not Avro")


def test_wrong_avro_schema_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"field 'payload\.avro\.schema'"):
        previewed(None, Payload(avro=Avro(schema='{"type": "record", "name": "o", "fields": [{"name": "a"}]}')))


def test_silent_registry_is_an_outage_of_the_source() -> None:
    registry = ConfluentRegistry(url=("http://127.0.0.1:1",))
    with pytest.raises(SourceError, match="the registry of schemas gives no answer"):
        rows(b"\0\0\0\0\1\x02a", ddl="id STRING", payload=Payload(avro=Avro(confluent=registry)))
