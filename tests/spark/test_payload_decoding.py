"""Decoding of payloads without Spark: bounds of memory, positions, and what settings are refused."""

from __future__ import annotations

import gzip
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import is_plain
from airflow_provider_coordination.spark.decoding import decoder as decoder_module
from airflow_provider_coordination.spark.decoding.compression import decompressed, each_decompressed
from airflow_provider_coordination.spark.decoding.csv_rows import CsvPayloads
from airflow_provider_coordination.spark.decoding.decoder import Decoder
from airflow_provider_coordination.spark.decoding.errors import UndecodableError
from airflow_provider_coordination.spark.decoding.formats import ManyJson
from airflow_provider_coordination.spark.payload_settings import (
    Avro,
    ConfluentRegistry,
    Csv,
    GlueRegistry,
    Json,
    Payload,
    Protobuf,
)

MIB = 2**20


SMALL, LARGE = b"clicks " * 9, b"views " * 900
FRAME, LARGE_FRAME = (pa.compress(each, codec="zstd", asbytes=True) for each in (SMALL, LARGE))


def without_size(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


PAYLOADS = [
    (FRAME, SMALL),
    (LARGE_FRAME, LARGE),
    (FRAME + FRAME, SMALL + SMALL),
    (without_size(SMALL), SMALL),
    (FRAME[:-3], None),
    (FRAME[:6] + b"\xff" + FRAME[7:], None),
    (b"", None),
    (SMALL, None),
    (pa.compress(bytes(10_000), codec="zstd", asbytes=True), None),
    (None, None),
]
"""Payloads, and what they hold; None if they are damaged, plain or too large."""


@given(st.lists(st.sampled_from(PAYLOADS), max_size=12))
def test_frames_are_decompressed_together_as_they_are_alone(payloads: list[tuple[bytes | None, bytes | None]]) -> None:
    found = list(each_decompressed((payload for payload, _ in payloads), "zstd", 9_000))
    assert [None if isinstance(each, UndecodableError) else each for each in found] == [plain for _, plain in payloads]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_bomb_takes_no_more_memory_than_its_bound(codec: str) -> None:
    zeros = bytes(256 * MIB)
    bomb = gzip.compress(zeros, 1) if codec == "gzip" else pa.compress(zeros, codec="zstd", asbytes=True)
    assert len(bomb) < 2 * MIB
    del zeros
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    with pytest.raises(UndecodableError, match="more than 8388608 bytes once it is decompressed"):
        decompressed(bomb, codec, 8 * MIB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * MIB and pa.default_memory_pool().max_memory() - before < 320 * MIB


def batch(*payloads: bytes | None) -> pa.RecordBatch:
    rows = len(payloads)
    return pa.RecordBatch.from_pydict(
        {
            "p": [str(number) for number in range(rows)],
            "n": pa.array([0] * rows, pa.int64()),
            "_batch_id": ["b"] * rows,
            "data": pa.array(payloads, pa.binary()),
        }
    )


def decoded(records: pa.RecordBatch, without: frozenset[Any] = frozenset(), **given: Any) -> list[pa.RecordBatch]:
    options = {"compression": None, "max_bytes": MIB, "has_logs": False, "make": ManyJson, "columns": pa.schema([])}
    return list(Decoder(**{**options, **given}, position=("p", "n")).decoded(records, without))


def test_row_has_the_number_in_its_record() -> None:
    [found] = decoded(batch(b"{}{}", b"[]", b"x", None, b"{}"), without=frozenset({("b", "4", 0)}))
    assert list(zip(*(found.column(name).to_pylist() for name in ("p", "_number", "data")), strict=True)) == [
        ("0", 0, b"{}"), ("0", 1, b"{}"), ("3", None, None), ("2", None, None),
    ]  # fmt: skip
    assert [bool(reason) for reason in found.column("_coordination_failure").to_pylist()] == [False, False, True, True]


def test_records_are_decoded_in_chunks_and_never_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_module, "CHUNK_BYTES", 1000)
    bombs = [gzip.compress(b"{}" * 2000), gzip.compress(b"{}" * 10), gzip.compress(b"{}" * 2000)]
    chunks = decoded(batch(*bombs), compression="gzip")
    assert [set(chunk.column("p").to_pylist()) for chunk in chunks] == [{"0"}, {"1", "2"}]
    assert [chunk.num_rows for chunk in chunks] == [2000, 2010]


CSV_ROWS = [
    b"a,1",
    b'"b,",2',
    b"c",
    b'd,"3',
    b"e\n",
    b"\xffe,4",
    b"f,5\r\ng,6\n",
    b"",
    b"h,",
    b'i,""',
    'é,"ü"'.encode(),
]


@pytest.mark.parametrize("at_once", [1, 3, len(CSV_ROWS)])
def test_csv_rows_do_not_depend_on_their_neighbours(at_once: int) -> None:
    payloads = CsvPayloads(Csv(), ["x", "y"], ["x", "y"])
    found: list[Any] = []
    for first in range(0, len(CSV_ROWS), at_once):
        rows = payloads.rows(CSV_ROWS[first : first + at_once])
        values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        found += [(first + number, *value) for number, value in zip(rows.of or (), values, strict=True)]
        found += [(first + number,) for number in rows.wrong]
    assert sorted(found, key=lambda each: each[0]) == [
        (0, "a", "1"), (1, "b,", "2"), (2,), (3,), (4,), (5,), (6, "f", "5"), (6, "g", "6"), (7,), (8, "h", None),
        (9, "i", ""), (10, "é", "ü"),
    ]  # fmt: skip


def test_value_of_csv_may_be_longer_than_pythons_limit() -> None:
    found = CsvPayloads(Csv(), ["x"], ["x"]).rows([b'"' + b"v" * 200_000 + b'"'])
    assert found.wrong == {} and len(found.columns[0][0].as_py()) == 200_000


SCHEMA = '{"type": "record", "name": "R", "fields": []}'


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (Payload(compression="lz4"), "field 'compression' must be one of auto, gzip, zstd; got 'lz4'"),
        (Payload(max_record_bytes=0), "field 'max_record_bytes' must be from 1 to"),
        (Payload(csv=Csv(), json=Json()), "field 'csv' is given together with 'json': give one format"),
        (Payload(csv=Csv(delimiter="::")), "field 'csv.delimiter' must be one ASCII character"),
        (Payload(csv=Csv(delimiter='"')), "field 'csv.delimiter' must differ from 'quote'"),
        (Payload(csv=Csv(header=True, columns=["x"])), "field 'csv.columns' must be left out if the first row names"),
        (Payload(avro=Avro()), "field 'avro.schema' is missing: give it as JSON text, or give a registry"),
        (Payload(avro=Avro(schema="{")), "field 'avro.schema' must be an Avro schema as JSON text"),
        (Payload(avro=Avro(schema='{"type": "int"}')), "field 'avro.schema' must be the schema of a record"),
        (Payload(avro=Avro(confluent=ConfluentRegistry(url="registry"))), "field 'avro.confluent.url' must begin with"),
        (
            Payload(avro=Avro(confluent=ConfluentRegistry(url="http://a"), glue=GlueRegistry())),
            "field 'avro.glue' is given together with 'confluent': give one registry",
        ),
    ],
)
def test_wrong_payload_is_refused_when_a_dag_is_parsed(payload: Payload, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Payload: {problem}"):
        payload.check(is_plain)


@pytest.mark.parametrize(
    ("payload", "schema", "problem"),
    [
        (Payload(csv=Csv()), None, "field 'schema' is missing, but 'payload.csv' is given: give the columns"),
        (Payload(protobuf=Protobuf(descriptor_set="/x", message="X")), None, "but 'payload.protobuf' is given"),
        (Payload(avro=Avro(confluent=ConfluentRegistry(url="http://a"))), None, "schemas in a registry change"),
        (Payload(csv=Csv()), "x ARRAY<INT>", "column 'x' is of type ARRAY, which a value of CSV cannot be"),
        (Payload(csv=Csv(columns=("y",))), "x INT", "column 'x' is not in 'payload.csv.columns'"),
    ],
)
def test_payload_without_its_columns_is_refused(payload: Payload, schema: str | None, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        payload.check_schema(schema)


def test_payload_with_templates_is_checked_as_far_as_known() -> None:
    Payload(avro=Avro(schema="{{ var.value.schema }}")).check(is_plain)
    with pytest.raises(ConfigurationError, match="field 'compression'"):
        Payload(compression="x", avro=Avro(schema="{{ var.value.schema }}")).check(is_plain)


def test_payload_survives_its_json() -> None:
    payload = Payload(compression="gzip", avro=Avro(schema=SCHEMA, confluent=ConfluentRegistry(url=("http://a",))))
    assert Payload.from_mapping(payload.to_mapping()) == payload
    assert payload.modules == ("fastavro",) and payload.is_decoded and not Payload().is_decoded
