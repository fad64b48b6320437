"""Objects of Avro, of ORC, and of JSON over several lines are read whole, in pieces, and damaged."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import ItemUnreadableError
from airflow_provider_coordination.sources.s3.kind import FormatSettings
from airflow_provider_coordination.sources.s3.object_streams import FetchedObject
from airflow_provider_coordination.sources.s3.reader import format_of

ROWS = [{"id": f"row {n}", "n": n, "tags": ['}"\\', "é"][: n % 3]} for n in range(50)]
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "string"},
    {"name": "n", "type": ["null", "int", "long"]},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
]
ARRAY = json.dumps(ROWS, indent=1, ensure_ascii=False).encode()
LINES = b"\n".join(json.dumps(row, indent=1).encode() for row in ROWS)


def read(data: bytes, page_bytes: int = 2**20, **given: Any) -> list[dict[str, Any]]:
    """Return the records of an object that is opened again at each position."""
    found: list[dict[str, Any]] = []
    position: str | None = ""
    while position is not None:
        pages = format_of(FormatSettings(**given), page_bytes).pages(FetchedObject("file:///x", data), position)
        position = None
        for page in pages:
            found += page.records.to_pylist()
            if page.position:
                position = page.position
                break
    return found


def avro(*rows: dict[str, Any], fields: list[dict[str, Any]] = FIELDS, codec: str = "deflate") -> bytes:
    stream = io.BytesIO()
    schema = fastavro.parse_schema({"type": "record", "name": "Row", "fields": fields})
    fastavro.writer(stream, schema, rows, codec=codec, sync_interval=200)
    return stream.getvalue()


def orc_file(rows: list[dict[str, Any]]) -> bytes:
    stream = io.BytesIO()
    orc.write_table(pa.Table.from_pylist(rows), stream, stripe_size=1000)
    return stream.getvalue()


@pytest.mark.parametrize("page_bytes", [10, 500, 2**20])
@pytest.mark.parametrize("data", [ARRAY, LINES, b"\xef\xbb\xbf \n" + ARRAY + b"\n"])
def test_json_documents_are_records_wherever_reading_continues(data: bytes, page_bytes: int) -> None:
    found = read(data, page_bytes, name="json", multi_line=True)
    assert [json.loads(row["data"]) for row in found] == ROWS
    columns = read(data, page_bytes, name="json", multi_line=True, columns="n INT, tags ARRAY<STRING>")
    assert columns == [{"n": row["n"], "tags": row["tags"]} for row in ROWS]


def test_json_documents_are_read_compressed() -> None:
    data = pa.compress(ARRAY, codec="zstd", asbytes=True)
    assert len(read(data, 100, name="json", multi_line=True, compression="zstd")) == len(ROWS)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[1, 2]", "there is no object at byte 1"),
        (b'[{"id": 1}', "the array does not end"),
        (b'[{"id": 1},', "the array does not end"),
        (b'[{"id": 1}] {"id": 2}', "byte 12 follows the end of the array"),
        (b'{"id": 1}, {"id": 2}', "the object at byte 11 follows a comma"),
        (b'{"id": "never', "the object at byte 0 does not end"),
    ],
)
def test_json_that_is_no_documents_is_unreadable(data: bytes, reason: str) -> None:
    with pytest.raises(ItemUnreadableError, match=f"is not objects, nor an array of them: {reason}"):
        read(data, name="json", multi_line=True)


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
@pytest.mark.parametrize("page_bytes", [10, 2**20])
def test_avro_is_read_by_blocks(codec: str, page_bytes: int) -> None:
    assert read(avro(*ROWS, codec=codec), page_bytes, name="avro") == ROWS


def test_avro_has_the_configured_columns() -> None:
    assert read(avro(*ROWS), name="avro", columns="n BIGINT") == [{"n": row["n"]} for row in ROWS]


def test_avro_types_are_columns() -> None:
    values = {
        "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "day": date(2026, 1, 31),
        "price": Decimal("1.50"),
        "kind": "A",
        "counts": {"a": 1},
        "inner": {"x": 1.5},
        "key": b"xy",
    }
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "float"}]}},
        {"name": "key", "type": {"type": "fixed", "name": "Key", "size": 2}},
        {"name": "nothing", "type": "null"},
    ]
    assert read(avro(values, fields=fields), name="avro") == [{**values, "counts": [("a", 1)]}]


@pytest.mark.parametrize(
    ("data", "given", "reason"),
    [
        (avro(*ROWS)[:3], {}, "does not begin with Avro's magic bytes"),
        (avro(*ROWS)[:-3], {}, "it is not complete Avro: it ends too early"),
        (avro(*ROWS), {"columns": "other INT"}, "there is no 'other'"),
        (avro(*ROWS), {"columns": "id INT"}, "field 'id' has a value that int32 cannot hold"),
        (
            avro({"x": 1}, fields=[{"name": "x", "type": ["int", "string"]}]),
            {},
            "field 'x' is a union of int32, string, which cannot be a column; declare it as STRING",
        ),
    ],
)
def test_damaged_avro_is_unreadable(data: bytes, given: dict[str, str], reason: str) -> None:
    with pytest.raises(ItemUnreadableError, match=reason):
        read(data, name="avro", **given)


def test_avro_block_that_expands_too_far_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_coordination.sources.s3.container_formats.MAX_BLOCK_BYTES", 10_000)
    bomb = avro({"id": "x" * 100_000, "n": 1, "tags": []})
    assert len(bomb) < 1000
    with pytest.raises(ItemUnreadableError, match="a block has more than 10000 bytes once it is decompressed"):
        read(bomb, name="avro")


@pytest.mark.parametrize("page_bytes", [100, 2**20])
def test_orc_is_read_by_stripes(page_bytes: int) -> None:
    data = orc_file(ROWS * 100)
    assert orc.ORCFile(pa.BufferReader(data)).nstripes > 1
    assert read(data, page_bytes, name="orc") == ROWS * 100
    assert read(data, page_bytes, name="orc", columns="n INT") == [{"n": row["n"]} for row in ROWS * 100]


@pytest.mark.parametrize(
    ("data", "given", "reason"),
    [
        (orc_file(ROWS)[:100], {}, "it is not complete ORC"),
        (orc_file(ROWS), {"columns": "other INT"}, "there is no 'other'"),
        (orc_file(ROWS), {"columns": "id INT"}, "column 'id'"),
        (orc_file([{"at": datetime(3000, 1, 1)}]), {}, "has a value that cannot be read"),
    ],
)
def test_damaged_orc_is_unreadable(data: bytes, given: dict[str, str], reason: str) -> None:
    with pytest.raises(ItemUnreadableError, match=reason):
        read(data, name="orc", **given)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"name": "avro", "compression": "gzip"}, "must be auto for avro, which stores it itself"),
        ({"name": "csv", "multi_line": True}, "must be left out for csv: it is for json"),
    ],
)
def test_option_of_another_format_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        FormatSettings(**given).check()
