"""Objects of each format are read whole, in pieces, and damaged."""

from __future__ import annotations

import bz2
import csv
import dataclasses
import gzip
import io
import json
import math
import random
import re
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import ItemUnreadableError, ReadPage
from airflow_provider_coordination.sources.s3 import text_formats as lines_module
from airflow_provider_coordination.sources.s3.columns import columns_of
from airflow_provider_coordination.sources.s3.container_formats import PARTS_BYTES, WHOLE_BYTES, ParquetFormat
from airflow_provider_coordination.sources.s3.kind import FormatSettings
from airflow_provider_coordination.sources.s3.object_streams import FetchedObject
from airflow_provider_coordination.sources.s3.reader import columns_before_reading, format_of
from tests.conftest import REPOSITORY
from tests.support.depth import examples

PAGE = 2**20


def compressed(data: bytes, codec: str, split: int = 0) -> bytes:
    """Compress data, as two streams one after the other where it is split."""
    if codec == "none":
        return data
    compress = {
        "gzip": gzip.compress,
        "bzip2": bz2.compress,
        "zstd": lambda part: pa.compress(part, codec="zstd", asbytes=True),
        "lz4": lambda part: pa.compress(part, codec="lz4", asbytes=True),
        "snappy": hadoop_block,
    }[codec]
    return b"".join(compress(part) for part in (data[:split], data[split:]) if part)


def hadoop_block(data: bytes) -> bytes:
    """Compress data with snappy as Hadoop does: one block of two chunks."""
    half = len(data) // 2
    chunks = [pa.compress(part, codec="snappy", asbytes=True) for part in (data[:half], data[half:]) if part]
    return struct.pack(">I", len(data)) + b"".join(struct.pack(">I", len(chunk)) + chunk for chunk in chunks)


def whole(data: bytes, key: str = "", **given: Any) -> list[dict[str, Any]]:
    """Return the records of an object that is read at once."""
    return [row for page in pages(data, PAGE, "", key, **given) for row in page.records.to_pylist()]


def piecewise(data: bytes, page_bytes: int, **given: Any) -> list[dict[str, Any]]:
    """Return the records of an object that is opened again at each position."""
    found: list[dict[str, Any]] = []
    position, is_over = "", False
    while not is_over:
        is_over = True
        for page in pages(data, page_bytes, position, **given):
            found += page.records.to_pylist()
            if page.position:
                assert page.position != position
                position, is_over = page.position, False
                break
    return found


def pages(data: bytes, page_bytes: int, position: str, key: str = "", **given: Any) -> Iterator[ReadPage]:
    chosen = FormatSettings(**given)
    chosen.check()
    return format_of(chosen, page_bytes).pages(FetchedObject(f"s3://bucket/{key}", data), position)


def as_csv(records: list[tuple[str, ...]], **dialect: Any) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, **{"lineterminator": "\n", **dialect}).writerows(records)
    return out.getvalue().encode()


def as_parquet(table: pa.Table, **given: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **given)
    return out.getvalue()


LINES = st.lists(st.binary(max_size=12).map(lambda line: re.sub(rb"[\r\n]|\xef\xbb\xbf", b"", line)), max_size=12)
VALUES = st.text(st.sampled_from('ab,;"\\\n\r é'), max_size=6)
CODECS = st.sampled_from(["none", "gzip", "bzip2", "zstd", "lz4", "snappy"])
PAGE_BYTES = st.integers(1, 40)


@settings(max_examples=examples(30))
@given(LINES, st.sampled_from([b"\n", b"\r\n"]), st.booleans(), CODECS, st.integers(0, 50), PAGE_BYTES)
def test_text_lines_are_the_same_at_any_resumption(
    lines: list[bytes], end: bytes, is_ended: bool, codec: str, split: int, page_bytes: int
) -> None:
    data = compressed(end.join(lines) + (end if is_ended and lines else b""), codec, split)
    found = piecewise(data, page_bytes, name="text", compression=codec)
    expected = lines if is_ended else lines[: len(lines) - (lines[-1:] == [b""])]
    assert [row["data"] for row in found] == expected
    assert found == whole(data, name="text", compression=codec)


@settings(max_examples=examples(30))
@given(st.lists(st.integers() | st.just(None), max_size=12), CODECS, st.integers(0, 50), PAGE_BYTES)
def test_json_lines_are_the_same_at_any_resumption(
    numbers: list[int | None], codec: str, split: int, page_bytes: int
) -> None:
    lines = ["" if number is None else json.dumps({"n": str(number), "x": [1]}) for number in numbers]
    data = compressed("\n".join(lines).encode(), codec, split)
    expected = [number for number in numbers if number is not None]
    found = piecewise(data, page_bytes, name="json", compression=codec)
    assert [int(json.loads(row["data"])["n"]) for row in found] == expected
    columns = piecewise(data, page_bytes, name="json", compression=codec, columns="n STRING, y INT")
    assert columns == [{"n": str(number), "y": None} for number in expected]


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(VALUES, VALUES), max_size=8),
    st.sampled_from([",", ";"]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.booleans(),
    CODECS,
    st.integers(0, 50),
    PAGE_BYTES,
)
def test_csv_rows_are_the_same_at_any_resumption(
    values: list[tuple[str, str]],
    delimiter: str,
    end: str,
    has_header: bool,
    escapes: bool,
    codec: str,
    split: int,
    page_bytes: int,
) -> None:
    dialect: dict[str, Any] = {"delimiter": delimiter, "lineterminator": end, "quoting": csv.QUOTE_ALL}
    if escapes:
        dialect |= {"doublequote": False, "escapechar": "\\"}
    data = compressed(as_csv([("x", "y")] * has_header + values, **dialect), codec, split)
    given: dict[str, Any] = {"name": "csv", "compression": codec, "delimiter": delimiter, "escape": "\\" * escapes}
    if not has_header:
        given |= {"header": False, "columns": "x STRING, y STRING"}
    found = piecewise(data, page_bytes, **given)
    assert [(row["x"], row["y"]) for row in found] == values
    assert found == whole(data, **given)


@settings(max_examples=examples(60))
@given(st.text(st.sampled_from('ab,"\n\r'), max_size=30), PAGE_BYTES)
def test_badly_quoted_csv_is_refused_or_read_consistently(text: str, page_bytes: int) -> None:
    given = {"name": "csv", "header": False, "columns": "x STRING, y STRING"}
    try:
        expected = whole(text.encode(), **given)
    except ItemUnreadableError:
        with pytest.raises(ItemUnreadableError):
            piecewise(text.encode(), page_bytes, **given)
    else:
        assert piecewise(text.encode(), page_bytes, **given) == expected


def test_quote_within_a_csv_value_is_literal() -> None:
    given = {"name": "csv", "header": False, "columns": "x STRING, y STRING"}
    for page_bytes in (1, 8, 11, 14):
        found = piecewise(b'a,5"\n"x\ny",b\n', page_bytes, **given)
        assert found == [{"x": "a", "y": '5"'}, {"x": "x\ny", "y": "b"}]


@settings(max_examples=examples(30))
@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 10), PAGE_BYTES)
def test_parquet_rows_are_the_same_at_any_resumption(numbers: list[int], group: int, page_bytes: int) -> None:
    data = as_parquet(pa.table({"n": pa.array(numbers, pa.int64())}), row_group_size=group)
    found = piecewise(data, page_bytes, name="parquet")
    assert [row["n"] for row in found] == numbers
    assert found == whole(data, name="parquet")


def test_page_size_respects_the_limit() -> None:
    numbers = list(range(20_000))
    plain = "".join(f'{n},"{n}"\n' for n in numbers).encode()
    table = as_parquet(pa.table({"n": pa.array(numbers, pa.int64())}), use_dictionary=False)
    for chosen, data in (
        ({"name": "text", "compression": "gzip"}, gzip.compress(plain)),
        ({"name": "csv", "header": False, "columns": "a INT, b INT"}, plain),
        ({"name": "parquet"}, table),
    ):
        sizes = [page.records.num_rows for page in pages(data, 10_000, "", **chosen)]  # type: ignore[arg-type]
        assert sum(sizes) == len(numbers) and len(sizes) > 10 and max(sizes) < 2_000


def test_compressed_positions_grow_further_apart() -> None:
    data = b"".join(b"%07d\n" % n for n in range(1000))
    for codec, apart in (("none", 80), ("gzip", 1040)):
        given = {"name": "text", "compression": codec}
        found = list(pages(compressed(data, codec), 80, "4000", **given))
        assert next(page.position for page in found if page.position) == str(4000 + apart)
        assert found[-1].position == "8000"
        assert sum(page.records.num_rows for page in found) == 500


def test_compression_follows_the_suffix_unless_set() -> None:
    plain = b"a\nb\n"
    for suffix, codec in (("gz", "gzip"), ("BZ2", "bzip2"), ("zst", "zstd"), ("lz4", "lz4"), ("snappy", "snappy")):
        assert len(whole(compressed(plain, codec), f"x.{suffix}", name="text")) == 2
    assert len(whole(plain, "x.gz", name="text", compression="none")) == 2
    assert len(whole(compressed(plain, "gzip"), "x.log", name="text", compression="gzip")) == 2


@pytest.mark.parametrize("codec", ["gzip", "bzip2", "zstd", "lz4", "snappy"])
def test_damaged_compression_is_distinguished_from_an_outage(codec: str) -> None:
    data = compressed(b"some line of text\n" * 1000 + bytes(range(11, 256)) * 20, codec, 9000)
    middle = len(data) // 2
    damaged = [data[: middle - 5], b"this is no compression at all"]
    if codec in ("gzip", "bzip2"):  # the others have no checksum, or need not have one
        damaged.append(data[:middle] + b"\xff\x00" + data[middle + 2 :])
    for each in damaged:
        with pytest.raises(ItemUnreadableError, match=codec):
            whole(each, name="text", compression=codec)


@pytest.mark.parametrize("length", [3, 5, 7, 2**31])
def test_snappy_with_contradictory_lengths_is_refused(length: int) -> None:
    chunk = pa.compress(b"a\nbcde", codec="snappy", asbytes=True)
    data = struct.pack(">II", length, len(chunk)) + chunk
    with pytest.raises(ItemUnreadableError, match="snappy"):
        whole(data, name="text", compression="snappy")


def test_endless_record_is_refused_before_it_fills_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "MAX_RECORD_BYTES", 100)
    with pytest.raises(ItemUnreadableError, match="the record at byte 3 does not end within 100 bytes"):
        piecewise(b"ab\n" + b"x" * 1000, 10, name="text")


# CSV


def test_csv_columns_default_to_text() -> None:
    assert whole(b'id,name\n1,"x, y"\n2,\n3,""\n', name="csv") == [
        {"id": "1", "name": "x, y"},
        {"id": "2", "name": None},
        {"id": "3", "name": ""},
    ]


def test_csv_columns_take_the_given_types() -> None:
    columns = "id BIGINT, price DECIMAL(10,2), at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, ok BOOLEAN, x DOUBLE"
    data = (
        b"id,price,at,local,day,ok,x\n"
        b"1,2.5,2026-01-31T01:00:00+01:00,2026-01-31 00:00:00.25,2026-01-31,true,1e3\n"
        b'"2","",2026-01-31 00:00:00,,,false,\n'
    )
    assert whole(data, name="csv", columns=columns) == [
        {
            "id": 1,
            "price": Decimal("2.50"),
            "at": datetime(2026, 1, 31, tzinfo=UTC),
            "local": datetime(2026, 1, 31, 0, 0, 0, 250_000),
            "day": date(2026, 1, 31),
            "ok": True,
            "x": 1000.0,
        },
        {
            "id": 2,
            "price": None,
            "at": datetime(2026, 1, 31, tzinfo=UTC),
            "local": None,
            "day": None,
            "ok": False,
            "x": None,
        },
    ]


@pytest.mark.parametrize(
    "text", ["28761055404705483442485810226557240", "-5463134113" + "0" * 20, "0.1234567890123456789"]
)
def test_decimal_with_too_many_digits_is_refused(text: str) -> None:
    # pyarrow reads the first two as other numbers.
    for data, name in ((f"a\n{text}\n", "csv"), (f'{{"a": {text}}}\n', "json"), (f'{{"a": "{text}"}}\n', "json")):
        with pytest.raises(ItemUnreadableError, match=r"cannot be read|does not fit the columns"):
            whole(data.encode(), name=name, columns="a DECIMAL(38,18)")
        held = data.replace(text, text[:20]).encode()
        assert whole(held, name=name, columns="a DECIMAL(38,18)") == [{"a": Decimal(text[:20])}]


def test_quoted_empty_value_is_null_outside_text_columns() -> None:
    columns = "id BIGINT, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, name STRING"
    [row] = whole(b'id,at,local,day,name\n"","","","",""\n', name="csv", columns=columns)
    assert row == {"id": None, "at": None, "local": None, "day": None, "name": ""}


def test_null_marker_is_null_unless_quoted_text() -> None:
    given: dict[str, Any] = {"name": "csv", "null_values": ("NA", "-")}
    assert whole(b'a,b,c\nNA,"NA",\n', **given) == [{"a": None, "b": "NA", "c": ""}]
    assert whole(b'a,b,c\nNA,"NA","-"\n', columns="a INT, b INT, c DATE", **given) == [
        {"a": None, "b": None, "c": None}
    ]


@pytest.mark.parametrize(
    ("given", "day"),
    [("2026-01-31", 31), ("2026-01-31 00:00", 31), ("2026-01-31T00Z", 31), ("2026-01-31T23:00:00-0100", 32)],
)
def test_instant_without_zone_or_time_is_in_utc(given: str, day: int) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day - 1)
    assert whole(f"at\n{given}\n".encode(), name="csv", columns="at TIMESTAMP") == [{"at": at}]
    assert whole(json.dumps({"at": given}).encode(), name="json", columns="at TIMESTAMP") == [{"at": at}]


def test_header_may_reorder_columns() -> None:
    assert whole(b"name,id\nx,1\n", name="csv", columns="id INT, name STRING") == [{"id": 1, "name": "x"}]


@pytest.mark.parametrize("header", ["id,title", "id", "id,name,more", "ID,name"])
def test_changed_header_is_refused_with_both_versions(header: str) -> None:
    with pytest.raises(ItemUnreadableError) as caught:
        whole(f"{header}\n1,x\n".encode(), name="csv", columns="id INT, name STRING")
    found = ", ".join(map(repr, header.split(",")))
    assert str(caught.value) == f"its header has changed: expected the columns 'id', 'name', found {found}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a,a\n1,2\n", "its header does not name each column once: 'a', 'a'"),
        (b"a,A\n1,2\n", "its header does not name each column once: 'a', 'A'"),
        (b"a,\n1,2\n", "its header does not name each column once: 'a', ''"),
        (b"\xff,b\n1,2\n", "its header is not UTF-8"),
        (b"a,b\n1,2\n3\n", "its CSV between bytes 0 and 10, rows counted from 1, cannot be read"),
        (b"a,b\n1,\xff\n", "invalid UTF8"),
        (b'a,b\n1,"2\n3,4\n', "its last row, at byte 4, has a quote that is not closed"),
    ],
)
def test_invalid_csv_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ItemUnreadableError, match=re.escape(message)):
        whole(data, name="csv")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("INT", "x"), ("TINYINT", "300"), ("BIGINT", "9223372036854775808"), ("BIGINT", "1.5"), ("BOOLEAN", "yes"),
        ("DOUBLE", "x"), ("DECIMAL(10,2)", "1.005"), ("DATE", "2024-02-30"), ("DATE", "2024-05-06T05:00"),
        ("TIMESTAMP", "noon"), ("TIMESTAMP_NTZ", "2024-05-06T07:08:09.1234567"), ("DOUBLE", "9007199254740993"),
        ("DOUBLE", "-18446744073709551615"), ("FLOAT", "16777217"), ("FLOAT", "1e39"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("quote", ["", '"'])
def test_csv_value_of_another_type_is_refused_with_its_place(kind: str, text: str, quote: str) -> None:
    data = f'id,x\n1,\n2,"1"\n"3\n",{quote}{text}{quote}\n'.replace('"1"', "")
    with pytest.raises(ItemUnreadableError) as refused:
        whole(data.encode(), name="csv", columns=f"id STRING, x {kind}")
    place, _, reason = str(refused.value).partition(" cannot be read: ")
    assert re.fullmatch(r"its CSV between bytes 0 and \d+, rows counted from 1,", place)
    assert re.fullmatch(
        rf"column 'x': '{re.escape(text)}' is not a valid .+, in row 3; read the column as STRING, .*", reason
    )


def test_csv_that_is_not_utf8_names_its_column() -> None:
    for columns in (None, "id INT, name STRING"):
        with pytest.raises(ItemUnreadableError, match=r"cannot be read: column 'name': .*invalid UTF8"):
            whole(b"id,name\n1,\xff\n", name="csv", columns=columns)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("9007199254740992", "DOUBLE"), ("1152921504606846976", "DOUBLE"), ("-100000000000000000000", "DOUBLE"),
        ("18446744073709551616", "DOUBLE"), ("1e23", "DOUBLE"), ("9007199254740993.0", "DOUBLE"),
        ("16777216", "FLOAT"), ("100000000000000000000", "FLOAT"),
    ],
)  # fmt: skip
def test_float_holds_integers_that_it_represents_exactly(text: str, kind: str) -> None:
    held = float(text) if kind == "DOUBLE" else struct.unpack("f", struct.pack("f", float(text)))[0]
    assert whole(f"x\n{text}\n".encode(), name="csv", columns=f"x {kind}") == [{"x": held}]
    assert whole(f'{{"x": {text}}}'.encode(), name="json", columns=f"x {kind}") == [{"x": held}]


@pytest.mark.parametrize(
    ("text", "kind", "path"),
    [
        ("9007199254740993", "DOUBLE", "x"),
        ("-12345678901234567890", "DOUBLE", "x"),
        ("16777217", "FLOAT", "x"),
        ("[1.5, 9007199254740993]", "ARRAY<DOUBLE>", "x.element"),
        ('[{"a": 16777217}]', "ARRAY<STRUCT<a: FLOAT>>", "x.element.a"),
    ],
)
def test_integer_that_a_float_changes_is_refused(text: str, kind: str, path: str) -> None:
    number = re.search(r"-?\d{8,}", text)
    assert number is not None
    message = f"column '{path}': {number[0]} is a whole number that a .* changes, in row 0; read the column as STRING"
    with pytest.raises(ItemUnreadableError, match=message):
        whole(f'{{"x": null}}\n{{"x": {text}, "y": 9007199254740993}}'.encode(), name="json", columns=f"x {kind}")


def test_empty_or_header_only_csv_has_no_records() -> None:
    for data in (b"id,name\n", b"id,name", b"", b"\n", b"\r\n\r\n"):
        assert whole(data, name="csv") == whole(data, name="csv", columns="id INT, name STRING") == []
    assert piecewise(b"\n\n\nid\n\n1\n", 1, name="csv") == [{"id": "1"}]


def test_byte_order_mark_is_no_part_of_a_record() -> None:
    assert whole(b"\xef\xbb\xbfid\n1\n", name="csv") == [{"id": "1"}]
    assert piecewise(b"\xef\xbb\xbfid\n1\n", 1, name="text") == [{"data": b"id"}, {"data": b"1"}]
    second = {"data": b"\xef\xbb\xbfc"}  # not at the beginning it is none
    assert [row for page in pages(b"ab\n\xef\xbb\xbfc\n", 3, "", name="text") for row in page.records.to_pylist()][
        1:
    ] == [second]


# JSON and Parquet


def test_json_fields_become_the_given_columns() -> None:
    data = b'{"id": 1, "at": "2026-01-31T00:00:00Z", "tags": ["a"], "who": {"name": "x"}, "more": 1}\n{"id": 2}\n'
    columns = "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>, who STRUCT<name: STRING>"
    assert whole(data, name="json", columns=columns) == [
        {"id": 1, "at": datetime(2026, 1, 31, tzinfo=UTC), "tags": ["a"], "who": {"name": "x"}},
        {"id": 2, "at": None, "tags": None, "who": None},
    ]


def test_blank_json_lines_are_skipped() -> None:
    assert whole(b'\n  \n{"n": 1}\n\t\r\n', name="json") == [{"data": b'{"n": 1}'}]


def test_json_dates_are_text() -> None:
    columns = "day DATE, days ARRAY<DATE>, of STRUCT<day: DATE, at: TIMESTAMP>"
    data = b'{"day": "2026-01-31", "days": ["2026-01-31", null], "of": {"day": "2026-01-31", "at": "2026-01-31"}}\n{}'
    day, at = date(2026, 1, 31), datetime(2026, 1, 31, tzinfo=UTC)
    assert whole(data, name="json", columns=columns) == [
        {"day": day, "days": [day, None], "of": {"day": day, "at": at}},
        {"day": None, "days": None, "of": None},
    ]


@pytest.mark.parametrize(
    "line", [b"no JSON", b"[1]", b'{"id": "x"}', b'{"id": 1', b"null", b' null\n{"id": 2}', b'{"name": "\xff"}']
)
def test_mismatched_json_is_refused_with_its_location(line: bytes) -> None:
    with pytest.raises(ItemUnreadableError, match=r"its JSON between bytes 10 and .* does not fit the columns"):
        piecewise(b'{"id": 1}\n' + line, 10, name="json", columns="id BIGINT, name STRING")


def test_null_line_is_refused_without_a_crash() -> None:
    for data in (b"null\n", b"\n null", b'{"id": 1}\n\tnull\n'):
        with pytest.raises(ItemUnreadableError, match="a line is null, and not an object"):
            whole(data, name="json", columns="id BIGINT")


def test_parquet_columns_may_be_selected_and_widened() -> None:
    data = as_parquet(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"], "c": [True]}))
    assert whole(data, name="parquet", columns="c BOOLEAN, a BIGINT") == [{"c": True, "a": 1}]
    with pytest.raises(ItemUnreadableError, match=r"column 'a': 1.5 is double, and int32 cannot hold it without"):
        whole(as_parquet(pa.table({"a": [1.5]})), name="parquet", columns="a INT")
    with pytest.raises(ItemUnreadableError, match="expected 'a', 'd', found 'a', 'b', 'c': there is no 'd'"):
        whole(data, name="parquet", columns="a INT, d INT")


def int96(*microseconds: int) -> pa.Table:
    return pa.table({"at": pa.array(microseconds, pa.timestamp("us")), "n": list(range(len(microseconds)))})


def test_parquet_int96_timestamps_cover_all_years() -> None:
    years = [-62_135_596_800_000_000, 1_714_979_289_123_456, 253_402_300_799_999_999, 253_402_300_800_000_000]
    data = as_parquet(int96(*years * 300), use_deprecated_int96_timestamps=True, row_group_size=500)
    for columns in (None, "n INT, at TIMESTAMP_NTZ"):
        table = pa.concat_tables([page.records for page in pages(data, 100, "", name="parquet", columns=columns)])
        assert table["at"].type == pa.timestamp("us")
        assert table["at"].cast(pa.int64()).to_pylist() == years * 300


def test_parquet_int96_timestamps_keep_nanoseconds() -> None:
    nanoseconds = pa.table({"at": pa.array([1_714_979_289_123_456_789], pa.timestamp("ns"))})
    data = as_parquet(nanoseconds, use_deprecated_int96_timestamps=True)
    [page] = pages(data, PAGE, "", name="parquet")
    assert page.records["at"].equals(nanoseconds["at"])  # so landing refuses them
    assert whole(data, name="parquet", columns="at STRING") == [{"at": "2024-05-06 07:08:09.123456789"}]
    with pytest.raises(ItemUnreadableError, match=r"column 'at': 2024-05-06 07:08:09.123456789 is timestamp\[ns\]"):
        whole(data, name="parquet", columns="at TIMESTAMP")


def test_large_parquet_row_group_is_fetched_in_parts() -> None:
    class CountingFile(io.BytesIO):
        largest = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.largest = max(self.largest, len(data))
            return data

    numbers = pa.Array.from_buffers(pa.int64(), 5 * 2**20, [None, pa.py_buffer(random.Random(1).randbytes(40 * 2**20))])
    opened = CountingFile(as_parquet(pa.table({"n": numbers}), row_group_size=len(numbers)))

    class LargeObject(FetchedObject):
        def file(self) -> Any:
            return pa.PythonFile(opened, mode="r")

    found = list(ParquetFormat(None, 4 * 2**20).pages(LargeObject("s3://bucket/large", b""), ""))
    assert pa.concat_tables([page.records for page in found])["n"].combine_chunks().equals(numbers)
    assert len(opened.getvalue()) > WHOLE_BYTES and opened.largest <= PARTS_BYTES + 2**20


def test_invalid_parquet_is_refused() -> None:
    table = as_parquet(pa.table({"a": list(range(1000))}))
    for data in (b"", b"no Parquet", table[:-20], table[:100] + bytes(300) + table[400:]):
        with pytest.raises(ItemUnreadableError, match="it is not complete Parquet"):
            whole(data, name="parquet")


# Settings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "xml"}, "FormatSettings: field 'name' must be one of avro, csv, json, orc, parquet, text; got 'xml'"),
        ({"compression": "rar"}, "FormatSettings: field 'compression' must be one of auto, none, bzip2"),
        ({"name": "parquet", "compression": "gzip"}, "must be auto for parquet"),
        (
            {"name": "csv", "header": False},
            "FormatSettings: field 'columns' must name the columns of a CSV that has no header",
        ),
        ({"name": "text", "columns": "a INT"}, "must be left out for text"),
        ({"name": "csv", "columns": "a ARRAY<INT>"}, "must not contain ARRAY, STRUCT or BINARY"),
        ({"name": "csv", "delimiter": "||"}, "FormatSettings: field 'delimiter' must be one ASCII character"),
        ({"name": "csv", "delimiter": '"'}, "must differ from 'quote' and 'escape'"),
        ({"columns": "a"}, "columns 'a' cannot be parsed: a type is missing; give names and types"),
        ({"columns": " "}, "the name of a column is missing"),
        ({"columns": "a INT,"}, "the name of a column is missing"),
        ({"columns": "a INT b INT"}, "'b' cannot follow a column's type"),
        ({"columns": "a NUMBER"}, "'NUMBER' is not a type; types are BIGINT"),
        ({"columns": "a INT NOT NULL"}, "'NOT' cannot follow a column's type"),
        ({"columns": "a ARRAY<INT"}, "'>' is missing"),
        ({"columns": "a DECIMAL(50,2)"}, "DECIMAL(50,2) is invalid; give at most 38 digits"),
        ({"columns": "a INT, A INT"}, "column 'a' appears twice"),
    ],
)
def test_invalid_settings_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        FormatSettings(**given).check()


def test_column_names_may_be_quoted() -> None:
    assert columns_of("`order` INT, `größe in cm` double").names == ["order", "größe in cm"]


def test_manual_lists_each_option_with_its_default() -> None:
    page = (REPOSITORY / "docs" / "s3.md").read_text()
    table = page.partition("| option | default |")[2]
    documented = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \| [^|]+ \|$", table, re.MULTILINE))
    defaults = {field.name: field.default for field in dataclasses.fields(FormatSettings) if field.name != "name"}
    written = {
        name: repr(list(default) if isinstance(default, tuple) else default) for name, default in defaults.items()
    }
    assert documented == written


# Values


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(b"a\n") + bytes(1000) + gzip.compress(b"b\n") + bytes(7),
        gzip.compress(b"a\nb\n") + bytes(3_000_000),
    ],
    ids=["between and after", "long"],
)
def test_gzip_may_have_trailing_zero_bytes(data: bytes) -> None:
    assert [row["data"] for row in whole(data, name="text", compression="gzip")] == [b"a", b"b"]


def test_gzip_with_other_trailing_bytes_is_refused() -> None:
    with pytest.raises(ItemUnreadableError, match="it is not complete gzip: Not a gzipped file"):
        whole(gzip.compress(b"a\n") + b"\0junk", name="text", compression="gzip")


@pytest.mark.parametrize(
    ("data", "name", "columns", "path"),
    [
        (b"x\n1e39\n", "csv", "x FLOAT", "x"),
        (b"x,y\n1,1e400\n", "csv", "x FLOAT, y DOUBLE", "y"),
        (b'x\n"-1e400"\n', "csv", "x DOUBLE", "x"),
        (b'{"x": 1e39}', "json", "x FLOAT", "x"),
        (b'{"x": [{"a": -1e39}]}', "json", "x ARRAY<STRUCT<a: FLOAT>>", "x.element.a"),
    ],
)
def test_number_beyond_its_type_is_refused(data: bytes, name: str, columns: str, path: str) -> None:
    with pytest.raises(ItemUnreadableError, match=f"column '{path}': .*; read the column as STRING"):
        whole(data, name=name, columns=columns)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("BIGINT", "9223372036854775808", "couldn't parse:9223372036854775808"),
        ("INT", "1.5", "couldn't parse:1.5"),
        ("DECIMAL(10,2)", "1.005", "1.005 requires scale 3"),
        ("BOOLEAN", "1", "changed from boolean to number in row 0"),
        ("STRUCT<a: TINYINT>", '{"a": 300}', "couldn't parse:300"),
        ("ARRAY<TIMESTAMP>", '["noon"]', "couldn't parse:noon"),
    ],
)
def test_mismatched_json_value_names_its_column(kind: str, text: str, reason: str) -> None:
    with pytest.raises(ItemUnreadableError, match=f"column 'x': .*{reason}; read the column as STRING"):
        whole(f'{{"id": 1, "x": {text}}}'.encode(), name="json", columns=f"id BIGINT, x {kind}, y DOUBLE")


def test_damaged_json_blames_no_column() -> None:
    with pytest.raises(ItemUnreadableError, match=r"does not fit the columns: JSON parse error"):
        whole(b'{"id": 1, "x": 2', name="json", columns="id BIGINT, x INT")


def test_csv_infinity_is_infinity() -> None:
    rows = whole(b'x,y\ninf, -Infinity \n,""\nnan,1e-400\n', name="csv", columns="x FLOAT, y DOUBLE")
    assert str(rows) == str([{"x": math.inf, "y": -math.inf}, {"x": None, "y": None}, {"x": math.nan, "y": 0.0}])


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("2024-05-06T07:08:09.123456000Z", UTC),
        ("2024-05-06T07:08:09.12345600000000Z", UTC),
        ("2024-05-06 09:08:09.1234560+02:00", UTC),
        ("2024-05-06T09:08:09.123456000+0200", UTC),
        ("2024-05-06T07:08:09.123456000", None),
    ],
)
@pytest.mark.parametrize("name", ["csv", "json", "json array"])
def test_zeros_beyond_microseconds_are_accepted(text: str, zone: Any, name: str) -> None:
    kind = "TIMESTAMP" if zone else "TIMESTAMP_NTZ"
    at = datetime(2024, 5, 6, 7, 8, 9, 123456, zone)
    if name == "csv":
        assert whole(f"x\n{text}\n".encode(), name="csv", columns=f"x {kind}") == [{"x": at}]
    elif name == "json":
        assert whole(json.dumps({"x": text}).encode(), name="json", columns=f"x {kind}") == [{"x": at}]
    elif len(text) <= 30 and "+" not in text:  # Arrow's JSON parser takes nine digits, and no offsets
        assert whole(json.dumps({"x": [text]}).encode(), name="json", columns=f"x ARRAY<{kind}>") == [{"x": [at]}]


@pytest.mark.parametrize("text", ["2024-05-06T07:08:09.1234567Z", "2024-05-06T07:08:09.123456789Z"])
def test_digits_beyond_microseconds_are_refused(text: str) -> None:
    message = f"column 'x': '{text}' is not a valid timestamp.*; read the column as STRING"
    with pytest.raises(ItemUnreadableError, match=message):
        whole(json.dumps({"x": text}).encode(), name="json", columns="x TIMESTAMP")
    with pytest.raises(ItemUnreadableError, match=message):
        whole(f"x\n{text}\n".encode(), name="csv", columns="x TIMESTAMP")
    with pytest.raises(ItemUnreadableError, match=r"column 'x': .* is not a valid list.*; read the column as STRING"):
        whole(json.dumps({"x": [text]}).encode(), name="json", columns="x ARRAY<TIMESTAMP>")


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"name": "json"}, ["data"]),
        ({"name": "text"}, ["data"]),
        ({"name": "csv"}, None),
        ({"name": "parquet"}, None),
        ({"name": "csv", "columns": "id BIGINT, name STRING"}, ["id", "name"]),
        ({"name": "parquet", "columns": "id BIGINT"}, ["id"]),
    ],
)
def test_format_knows_its_columns_before_reading(settings: dict[str, str], names: list[str] | None) -> None:
    columns = columns_before_reading(FormatSettings(**settings))
    assert (None if columns is None else columns.names) == names
