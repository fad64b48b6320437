"""Payloads of Avro name their schemas in registries, which may be down, refuse, or not know them."""

from __future__ import annotations

import io
import json
import uuid
import zlib
from collections.abc import Mapping
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.spark.decoding import registries
from airflow_provider_coordination.spark.decoding.avro_rows import AvroPayloads
from airflow_provider_coordination.spark.decoding.columns import PayloadField
from airflow_provider_coordination.spark.decoding.errors import RegistryUnavailableError
from airflow_provider_coordination.spark.outages import is_outage
from airflow_provider_coordination.spark.payload_settings import Avro, ConfluentRegistry, GlueRegistry
from tests.support.schema_registries import SchemaRegistry

FIELDS = [
    PayloadField(name="id", kind=pa.string(), type_name="STRING", is_required=True),
    PayloadField(name="n", kind=pa.int64(), type_name="BIGINT"),
]
OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "n", "type": "int", "default": 0}, {"name": "x", "type": "string"}]}
REFERRING = {**OLD, "fields": [*OLD["fields"], {"name": "n", "type": "Amount"}]}
AMOUNT = {"type": "enum", "name": "Amount", "symbols": ["A"]}
VERSION = uuid.UUID(int=7)


@pytest.fixture(autouse=True)
def fresh_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the schemas of the process, and wait shortly between attempts."""
    for cached in (registries._of_confluent, registries._of_glue, registries._glue):
        cached.cache_clear()
    monkeypatch.setattr(registries, "FIRST_PAUSE_SECONDS", 0.001)


def datum(schema: Mapping[str, Any], named: Mapping[str, Any] | None = None, **value: Any) -> bytes:
    names: dict[str, Any] = {}
    if named is not None:
        fastavro.parse_schema(dict(named), named_schemas=names)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(schema), named_schemas=names), value)
    return stream.getvalue()


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def confluent(registry: SchemaRegistry, **given: Any) -> AvroPayloads:
    return AvroPayloads(Avro(confluent=ConfluentRegistry(url=(registry.url,)), **given), FIELDS, 1000)


def rows(payloads: AvroPayloads, *given: bytes) -> list[dict[str, Any]]:
    found = payloads.rows(given)
    assert found.wrong == {}
    return pa.table(list(found.columns), schema=payloads.columns).to_pylist()


def answer(schema: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"schema": json.dumps(schema), **more}


ANSWERS = {"/schemas/ids/1": answer(OLD), "/schemas/ids/2": answer(NEW)}


def test_each_payload_is_read_by_the_schema_of_its_writer() -> None:
    with SchemaRegistry(ANSWERS) as registry:
        payloads = confluent(registry)
        written = [
            framed(1, datum(OLD, id="a")),
            framed(2, datum(NEW, id="b", n=5, x="")),
            framed(1, datum(OLD, id="c")),
        ]
        assert rows(payloads, *written) == [{"id": "a", "n": None}, {"id": "b", "n": 5}, {"id": "c", "n": None}]
        assert rows(confluent(registry), written[0]) == [{"id": "a", "n": None}]
        assert registry.requests == ["/schemas/ids/1", "/schemas/ids/2"]


def test_schema_of_the_reader_resolves_the_schemas_of_writers() -> None:
    reader = {**OLD, "fields": [*OLD["fields"], {"name": "n", "type": "long", "default": 7}]}
    with SchemaRegistry(ANSWERS) as registry:
        payloads = confluent(registry, schema=json.dumps(reader))
        written = [framed(1, datum(OLD, id="a")), framed(2, datum(NEW, id="b", n=5, x=""))]
        assert rows(payloads, *written) == [{"id": "a", "n": 7}, {"id": "b", "n": 5}]


def test_schema_that_evolved_incompatibly_makes_bad_records() -> None:
    reader = {**OLD, "fields": [*OLD["fields"], {"name": "n", "type": "long"}]}
    with SchemaRegistry(ANSWERS) as registry:
        found = confluent(registry, schema=json.dumps(reader)).rows(
            [framed(1, datum(OLD, id="a")), framed(2, datum(NEW, id="b", n=5, x=""))]
        )
    assert found.wrong == {
        0: "the payload is not Avro: its schema cannot be read by the schema of the reader: "
        "No default value for field n in Order"
    }


def test_references_between_schemas_are_followed() -> None:
    answers = {
        "/schemas/ids/3": answer(REFERRING, references=[{"name": "Amount", "subject": "a/b", "version": 2}]),
        "/subjects/a%2Fb/versions/2": answer(AMOUNT),
    }
    with SchemaRegistry(answers) as registry:
        found = confluent(registry).rows([framed(3, datum(REFERRING, AMOUNT, id="a", n="A"))])
    assert found.wrong == {0: "the payload does not fit the schema: field 'n' has a value that BIGINT cannot hold"}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\1\0\0\0\1", "does not begin with Confluent's frame"),
        (b"\0\0", "does not begin with Confluent's frame"),
        (framed(1, b"\x7f"), "the payload is not Avro"),
        (framed(9, b""), "has no schema 9"),
        (framed(4, b""), "schema 4 of the registry is of type PROTOBUF, and not AVRO"),
    ],
)
def test_payload_without_a_known_schema_is_bad(payload: bytes, reason: str) -> None:
    with SchemaRegistry({**ANSWERS, "/schemas/ids/4": answer({}, schemaType="PROTOBUF")}) as registry:
        found = confluent(registry).rows([payload, framed(1, datum(OLD, id="good"))])
    assert list(found.wrong) == [0] and reason in found.wrong[0]
    assert found.columns[0].to_pylist() == ["good"]


@pytest.mark.parametrize("status", [500, 429, 404, 403])
def test_registry_without_an_answer_is_an_outage(status: int) -> None:
    with SchemaRegistry({}) as registry:
        registry.status = status
        registry.answers = {"/schemas/ids/1": {"message": "not here"}}
        with pytest.raises(RegistryUnavailableError, match=f"HTTP status {status} to a request for schema 1") as raised:
            confluent(registry).rows([framed(1, datum(OLD, id="a"))])
        assert is_outage(raised.value)
        registry.status, registry.answers = None, ANSWERS
        assert rows(confluent(registry), framed(1, datum(OLD, id="a"))) == [{"id": "a", "n": None}]


def test_registry_that_does_not_listen_is_an_outage() -> None:
    with SchemaRegistry(ANSWERS) as registry:
        pass
    with pytest.raises(RegistryUnavailableError, match=r"at http://127.0.0.1:\d+ does not respond"):
        confluent(registry).rows([framed(1, b"")])


def test_login_of_the_connection_is_sent() -> None:
    with SchemaRegistry(ANSWERS, login=("user", "secret")) as registry:
        settings = ConfluentRegistry(url=(registry.url,), login="user", password="secret")
        payloads = AvroPayloads(Avro(confluent=settings), FIELDS, 1000)
        assert rows(payloads, framed(1, datum(OLD, id="a"))) == [{"id": "a", "n": None}]
        with pytest.raises(RegistryUnavailableError, match=r"HTTP status 401.*'registry_conn_id'"):
            confluent(registry).rows([framed(2, b"")])


# AWS Glue


def glue(registry: SchemaRegistry) -> AvroPayloads:
    aws = AwsSettings(
        region="eu-west-1", endpoint_url=registry.url, access_key_id="a", secret_access_key="b", max_attempts=1
    )
    return AvroPayloads(Avro(glue=GlueRegistry(aws=aws)), FIELDS, 1000)


def with_header(data: bytes, compression: int = 0, version: uuid.UUID = VERSION) -> bytes:
    return bytes([3, compression]) + version.bytes + data


GLUE_ANSWERS = {str(VERSION): {"SchemaDefinition": json.dumps(OLD), "DataFormat": "AVRO", "Status": "AVAILABLE"}}


def test_header_of_aws_glue_names_the_schema() -> None:
    data = datum(OLD, id="a")
    with SchemaRegistry(GLUE_ANSWERS) as registry:
        found = rows(glue(registry), with_header(data), with_header(zlib.compress(data), 5))
        assert found == [{"id": "a", "n": None}] * 2
        assert registry.requests == [str(VERSION)]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\0" * 20, "does not begin with the header of AWS Glue"),
        (with_header(b"", 7), "does not begin with the header of AWS Glue"),
        (with_header(b"x", 5), "is not complete zlib"),
        (with_header(zlib.compress(bytes(5000)), 5), "has more than 1000 bytes once it is decompressed"),
        (with_header(b"", version=uuid.UUID(int=9)), f"has no schema version {uuid.UUID(int=9)}"),
    ],
)
def test_payload_without_a_schema_of_aws_glue_is_bad(payload: bytes, reason: str) -> None:
    with SchemaRegistry(GLUE_ANSWERS) as registry:
        found = glue(registry).rows([payload])
    assert reason in found.wrong[0]


def test_aws_glue_without_an_answer_is_an_outage() -> None:
    with SchemaRegistry(GLUE_ANSWERS) as registry:
        registry.status = 500
        with pytest.raises(RegistryUnavailableError, match="refuses a request for schema version"):
            glue(registry).rows([with_header(datum(OLD, id="a"))])
