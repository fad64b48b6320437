"""The table of types: values of a source or a transform, and their form in the landing and in each sink.

Each case has the minimum, maximum and special values of a type. The tests deliver every case to every sink, and
others than the package read it back. `tools/type_tables.py` writes the same cases into the manual.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, nan
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.sources.dynamodb.calls import plain_json

OF_ARROW, OF_PARQUET, OF_SPARK, OF_DYNAMODB, OF_OPENSEARCH = "arrow", "parquet", "spark", "dynamodb", "opensearch"
SINKS = ("parquet", "delta", "iceberg", "postgresql", "mariadb")


@dataclass(frozen=True)
class RefusedValues:
    """Values that are not accepted.

    :param reason: a pattern of the error, which names the column too.
    :param remedy: what a user does, for the manual.
    """

    reason: str
    remedy: str


Cell = str | RefusedValues
"""A sink's type for values, or why it refuses them."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """Values of one type.

    :param name: for the manual.
    :param group: where values of the type come from; `OF_ARROW` or another.
    :param values: what arrives, in a form that tests compare; nulls are tried for each type.
    :param lands: the type in which they are landed, or that a transform's files have; None if tables leave it out;
        or why they are refused.
    :param refused: the sinks that refuse these values of an accepted type.
    :param message: the field as a schema of Parquet has it, with the values for parquet-java; None for pyarrow's file.
    :param sql: the values as Spark's SQL makes them in a transform.
    :param documents: the values in JSON documents, and the type that the schema gives them.
    """

    name: str
    group: str
    values: pa.Array
    lands: pa.DataType | RefusedValues | None
    refused: Mapping[str, RefusedValues] = field(default_factory=dict)
    message: tuple[str, Sequence[Any]] | None = None
    sql: Sequence[str] = ()
    documents: tuple[Sequence[str], str] | None = None

    @property
    def column(self) -> str:
        """The name of its column."""
        return re.sub(r"\W+", "_", f"{self.group} {self.name}").strip("_").lower()

    def cell(self, sink: str) -> Cell:
        """Return what a sink makes of it."""
        if isinstance(self.lands, RefusedValues):
            return self.lands
        if self.lands is None:
            return LEFT_OUT
        return self.refused.get(sink) or sink_type(self.lands, sink)


# What sinks make of landed types

LEFT_OUT = "nothing: tables leave the column out"

CAST = "cast it in the transform"
NO_TYPE = RefusedValues("has no such type: cast it in the transform", CAST)
SINK_TYPES: Mapping[pa.DataType, Sequence[Cell]] = {
    pa.bool_(): ("boolean", "boolean", "boolean", "boolean", "tinyint(1)"),
    pa.int8(): ("tinyint", "tinyint", "int", "smallint", "tinyint(4)"),
    pa.int16(): ("smallint", "smallint", "int", "smallint", "smallint(6)"),
    pa.int32(): ("int", "int", "int", "integer", "int(11)"),
    pa.int64(): ("bigint", "bigint", "bigint", "bigint", "bigint(20)"),
    pa.float32(): ("float", "float", "float", "real", "float"),
    pa.float64(): ("double", "double", "double", "double precision", "double"),
    pa.string(): ("string", "string", "string", "text", "longtext"),
    pa.binary(): ("binary", "binary", "binary", "bytea", "longblob"),
    pa.date32(): ("date", "date", "date", "date", "date"),
    pa.time64("us"): ("time(6)", RefusedValues("Delta has no type", CAST), "time", "time without time zone", "time(6)"),
    pa.timestamp("us"): (*["timestamp_ntz"] * 3, "timestamp without time zone", "datetime(6)"),
    pa.timestamp("us", "UTC"): (*["timestamp"] * 3, "timestamp with time zone", "datetime(6)"),
}
"""By landed type, each sink's type, in the order of `SINKS`: in Spark's words, or the database's."""
MARIADB_SCALE = 30


def sink_type(kind: pa.DataType, sink: str) -> Cell:
    """Return a sink's type for a landed type; see `SINK_TYPES`."""
    types = pa.types
    if kind in SINK_TYPES:
        return SINK_TYPES[kind][SINKS.index(sink)]
    if types.is_fixed_size_binary(kind):
        return sink_type(pa.binary(), sink)
    if types.is_decimal(kind):
        if sink == "mariadb" and kind.scale > MARIADB_SCALE:
            return NO_TYPE
        return f"{'numeric' if sink == 'postgresql' else 'decimal'}({kind.precision},{kind.scale})"
    if sink == "postgresql":
        return "jsonb"
    if sink == "mariadb":
        return "longtext"
    inner = [kind.field(n) for n in range(kind.num_fields)]
    if types.is_map(kind):
        inner = [pa.field("key", kind.key_type), kind.item_field]
    parts = [sink_type(each.type, sink) for each in inner]
    if refused := [part for part in parts if isinstance(part, RefusedValues)]:
        return refused[0]
    if types.is_struct(kind):
        return f"struct<{','.join(f'{each.name}:{part}' for each, part in zip(inner, parts, strict=True))}>"
    return f"{'map' if types.is_map(kind) else 'array'}<{','.join(map(str, parts))}>"


# Values


def numbers(kind: pa.DataType, *values: int) -> pa.Array:
    """Return an array of dates, times or durations from their numbers of units."""
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.array(values, width).view(kind)


def whole(name: str, kind: pa.DataType, lands: pa.DataType, bits: int, *, signed: bool = True) -> Case:
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    values = sorted({least, least + 1, 0, 1, most // 2, most // 2 + 1, most - 1, most})
    return Case(name=name, group=OF_ARROW, values=pa.array(values, kind), lands=lands)


def arrow(
    name: str, kind: pa.DataType, lands: pa.DataType | RefusedValues | None, values: Iterable[Any], **more: Any
) -> Case:
    return Case(name=name, group=OF_ARROW, values=pa.array(values, kind), lands=lands, **more)


def times(name: str, kind: pa.DataType, lands: pa.DataType | RefusedValues, values: Iterable[int], **more: Any) -> Case:
    return Case(name=name, group=OF_ARROW, values=numbers(kind, *values), lands=lands, **more)


TEXTS = ("", " ", "Łódź 🚀 𝔘", "a \"b\" \\ 'c'", "tab\tand\nline\r\n", "\\N", "NULL", "e\u0301", "\ufeffx", "x" * 300)
BYTES = (b"", b"\x00", bytes(range(256)), b"\\x00", b"'")
SINGLES = (0.0, -0.0, 1.401298464324817e-45, 1.1754943508222875e-38, 16777216.0, -3.4028234663852886e38)
DOUBLES = (0.0, -0.0, 5e-324, 2.2250738585072014e-308, 0.1, 1e23, 2.0**53, -1.7976931348623157e308)
NOT_FINITE = (inf, -inf, nan)
SECONDS = tuple(
    round((datetime(*at, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    for at in (
        (1, 1, 1),
        (1000, 1, 1),
        (1582, 10, 10, 12),  # between the calendars
        (1883, 11, 18, 17, 2, 58),  # before zones had whole minutes
        (1969, 12, 31, 23, 59, 59),
        (1970, 1, 1),
        (2000, 2, 29, 12),
        (2024, 3, 31, 1, 30),  # Berlin skips an hour
        (2024, 3, 31, 2, 30),
        (2024, 10, 27, 0, 30),  # Berlin repeats an hour
        (2024, 10, 27, 1, 30),
        (2038, 1, 19, 3, 14, 8),
        (9999, 12, 31, 23, 59, 59),
    )
)
DAYS = tuple(seconds // 86_400 for seconds in SECONDS)
MILLIS = (*(seconds * 10**3 for seconds in SECONDS), -1, 999, SECONDS[-1] * 10**3 + 999)
MICROS = (*(millis * 10**3 for millis in MILLIS), -1, 1, SECONDS[-1] * 10**6 + 999_999)
NANOS = (
    -(2**63) // 1000 * 1000 + 1000,
    *(seconds * 10**9 for seconds in SECONDS[3:-1]),
    -1000,
    1000,
    (2**63 - 1) // 1000 * 1000,
)
"""Whole microseconds within the years 1677 to 2262."""
YEAR_10000 = SECONDS[-1] + 1
YEAR_0 = SECONDS[0] - 1

NTZ, INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")
READ_AS_TEXT = "change it in the source"
DATE = date(1582, 10, 15)
JSON_FINITE = dict.fromkeys(("postgresql", "mariadb"), RefusedValues("JSON", "replace them by null in the transform"))
JSON_BYTES = dict.fromkeys(("postgresql", "mariadb"), RefusedValues("bytes", "convert it to text in the transform"))
LATE = {"mariadb": RefusedValues("Incorrect|Out of range", "replace it in the transform")}
EARLY = {"postgresql": RefusedValues("out of range", "replace it in the transform")}
UNMADE = RefusedValues("is not supported|no type|not supported", CAST)
UNLANDED = RefusedValues("is not supported|cannot hold|has no", READ_AS_TEXT)
MARIADB_FINITE = {"mariadb": RefusedValues("NaN|infinite", "replace them by null in the transform")}
POSTGRESQL_TEXT = {"postgresql": RefusedValues("zero character", "remove it in the transform")}
LISTED = [[1, None, 3], [], [-(2**31)]]
GEO = pa.struct([("lat", pa.float64()), ("lon", pa.float64())])
POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])

MARIADB_SCALE_30 = {"mariadb": NO_TYPE}


def decimals(digits: int, scale: int) -> list[Decimal]:
    """Return the least, the greatest and the smallest decimals of a type."""
    most = Decimal((0, (9,) * digits, -scale))
    return [
        most.copy_negate(),
        Decimal((1, (1,), -scale)),
        Decimal((0, (0,), -scale)),
        Decimal((0, (1,), -scale)),
        most,
    ]


def decimal_case(made: Any, digits: int, scale: int) -> Case:
    lands = pa.decimal128(digits, scale)
    return arrow(f"{made.__name__}({digits}, {scale})", made(digits, scale), lands, decimals(digits, scale))


def run_ends(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(values) + 1), pa.int32()), values)


ARROW: Sequence[Case] = (
    arrow("bool", pa.bool_(), pa.bool_(), (True, False)),
    *(whole(f"int{bits}", kind, kind, bits) for bits, kind in ((8, pa.int8()), (16, pa.int16()), (32, pa.int32()))),
    whole("int64", pa.int64(), pa.int64(), 64),
    whole("uint8", pa.uint8(), pa.int16(), 8, signed=False),
    whole("uint16", pa.uint16(), pa.int32(), 16, signed=False),
    whole("uint32", pa.uint32(), pa.int64(), 32, signed=False),
    whole("uint64", pa.uint64(), pa.decimal128(20, 0), 64, signed=False),
    arrow("float16", pa.float16(), pa.float32(), (0.0, -0.0, 2.0**-24, 65504.0, -65504.0)),
    arrow("float16: NaN, infinity", pa.float16(), pa.float32(), NOT_FINITE, refused=MARIADB_FINITE),
    arrow("float32", pa.float32(), pa.float32(), (*SINGLES, -SINGLES[-1])),
    arrow("float32: NaN, infinity", pa.float32(), pa.float32(), NOT_FINITE, refused=MARIADB_FINITE),
    arrow("float64", pa.float64(), pa.float64(), (*DOUBLES, -DOUBLES[-1])),
    arrow("float64: NaN, infinity", pa.float64(), pa.float64(), NOT_FINITE, refused=MARIADB_FINITE),
    decimal_case(pa.decimal32, 9, 2),
    decimal_case(pa.decimal64, 18, 18),
    decimal_case(pa.decimal128, 38, 0),
    decimal_case(pa.decimal128, 38, 30),
    decimal_case(pa.decimal128, 38, 38),
    decimal_case(pa.decimal256, 38, 10),
    arrow("decimal256(76, 10)", pa.decimal256(76, 10), pa.decimal128(38, 10), decimals(38, 10)),
    arrow("decimal256: over 38 digits", pa.decimal256(76, 10), UNLANDED, [Decimal(10) ** 30]),
    arrow("decimal128(3, -2)", pa.decimal128(3, -2), pa.decimal128(5, 0), [Decimal(99900), Decimal(-100)]),
    *(
        arrow(str(kind), kind, pa.string(), TEXTS)
        for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
    ),
    arrow("string: a zero character", pa.string(), pa.string(), ("a\x00b",), refused=POSTGRESQL_TEXT),
    *(arrow(str(kind), kind, pa.binary(), BYTES) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    arrow("fixed_size_binary[2]", pa.binary(2), pa.binary(2), (b"\x00\x00", b"\xff\xff", b"'\\")),
    times("date32", pa.date32(), pa.date32(), DAYS),
    times("date32: year 10000", pa.date32(), pa.date32(), [DAYS[-1] + 1], refused=LATE),
    times("date32: year 0", pa.date32(), pa.date32(), [DAYS[0] - 1], refused=EARLY),
    times("date64", pa.date64(), pa.date32(), [day * 86_400_000 for day in DAYS]),
    times("time32[s]", pa.time32("s"), pa.time64("us"), (0, 86_399)),
    times("time32[ms]", pa.time32("ms"), pa.time64("us"), (0, 1, 86_399_999)),
    times("time64[us]", pa.time64("us"), pa.time64("us"), (0, 1, 86_399_999_999)),
    times("time64[ns]", pa.time64("ns"), pa.time64("us"), (0, 1_000, 86_399_999_999_000)),
    times("time64[ns]: not whole microseconds", pa.time64("ns"), UNLANDED, [1]),
    *(
        times(f"timestamp[{unit}]", pa.timestamp(unit), NTZ, values)
        for unit, values in (("s", SECONDS), ("ms", MILLIS), ("us", MICROS), ("ns", NANOS))
    ),
    times("timestamp[ns]: not whole microseconds", pa.timestamp("ns"), UNLANDED, [1]),
    times("timestamp[us]: year 10000", NTZ, NTZ, [YEAR_10000 * 10**6], refused=LATE),
    times("timestamp[us]: year 0", NTZ, NTZ, [YEAR_0 * 10**6], refused=EARLY),
    *(
        times(f"timestamp[{unit}, {zone}]", pa.timestamp(unit, zone), INSTANT, values)
        for unit, values, zone in (
            *(("s", SECONDS, "UTC"), ("ms", MILLIS, "UTC"), ("us", MICROS, "UTC"), ("ns", NANOS, "UTC")),
            *(("us", MICROS, "Europe/Berlin"), ("us", MICROS, "+05:30"), ("ns", NANOS, "America/New_York")),
        )
    ),
    times("timestamp[us, UTC]: year 10000", INSTANT, INSTANT, [YEAR_10000 * 10**6], refused=LATE),
    times("timestamp[us, UTC]: year 0", INSTANT, INSTANT, [YEAR_0 * 10**6], refused=EARLY),
    times("duration[s]", pa.duration("s"), pa.int64(), (-86_400, 0, 86_400)),
    times("duration[us]", pa.duration("us"), pa.int64(), (-(2**63), 2**63 - 1)),
    times("duration[ns]", pa.duration("ns"), pa.int64(), (-1_000, 0, 1_000)),
    arrow("null", pa.null(), None, (None,)),
    Case(name="run_end_encoded", group=OF_ARROW, values=run_ends(pa.array(TEXTS)), lands=UNLANDED),
    arrow("list<int32>", pa.list_(pa.int32()), pa.list_(pa.int32()), LISTED),
    arrow("large_list<uint8>", pa.large_list(pa.uint8()), pa.list_(pa.int16()), [[255, None], []]),
    arrow("fixed_size_list<float>[2]", pa.list_(pa.float32(), 2), pa.list_(pa.float32()), [[0.5, None], [1.0, 2.0]]),
    arrow("list_view<string>", pa.list_view(pa.string()), UNLANDED, [["a", None], []]),
    arrow("struct", POINT, POINT, [{"x": 1, "y": "ü"}, {"x": None, "y": ""}]),
    arrow(
        "struct of a struct", pa.struct([("at", POINT)]), pa.struct([("at", POINT)]), [{"at": None}, {"at": {"x": 2}}]
    ),
    arrow("list of structs", pa.list_(POINT), pa.list_(POINT), [[{"x": 1, "y": "a"}, None], []]),
    arrow("list of lists", pa.list_(pa.list_(pa.int64())), pa.list_(pa.list_(pa.int64())), [[[2**63 - 1], None, []]]),
    arrow(
        "list of timestamps",
        pa.list_(pa.timestamp("ms", "UTC")),
        pa.list_(INSTANT),
        [[datetime(2024, 5, 6, tzinfo=UTC)]],
    ),
    arrow("list of decimals", pa.list_(pa.decimal128(38, 10)), pa.list_(pa.decimal128(38, 10)), [decimals(38, 10)]),
    arrow(
        "list of floats: NaN, infinity",
        pa.list_(pa.float64()),
        pa.list_(pa.float64()),
        [[nan], [inf]],
        refused=JSON_FINITE,
    ),
    arrow("list of binary", pa.list_(pa.binary()), pa.list_(pa.binary()), [[b"\xff"]], refused=JSON_BYTES),
    arrow(
        "map<string, int32>",
        pa.map_(pa.string(), pa.int32()),
        pa.map_(pa.string(), pa.int32()),
        [[("a", 1), ("b", None)], []],
    ),
    arrow(
        "map<int64, string>", pa.map_(pa.int64(), pa.string()), pa.map_(pa.int64(), pa.string()), [[(-(2**63), "a")]]
    ),
    arrow(
        "map<date, struct>", pa.map_(pa.date32(), POINT), pa.map_(pa.date32(), POINT), [[(DATE, {"x": 1, "y": "a"})]]
    ),
    Case(
        name="month_day_nano_interval",
        group=OF_ARROW,
        values=pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        lands=UNLANDED,
    ),
)


@dataclass(frozen=True)
class NanoTime:
    """A value of INT96.

    :param day: the Julian day.
    :param nanos: the nanoseconds of the day.
    """

    day: int
    nanos: int


def parquet(
    field_type: str, lands: pa.DataType | RefusedValues | None, given: Sequence[Any], values: pa.Array, **more: Any
) -> Case:
    """Return values that parquet-java writes.

    :param field_type: the field in a schema of Parquet, with `{}` for its name.
    :param given: its values: whole numbers, bytes, `NanoTime`, or for groups the pairs of name and value. Others than
        those of 32 bits need more bits.
    """
    physical, _, logical = field_type.partition(" {}")
    name = more.pop("name", f"{physical.upper()}{logical}")
    return Case(name=name, group=OF_PARQUET, values=values, lands=lands, message=(field_type, given), **more)


BIG = 2**40
JULIAN = 2_440_588
"""The Julian day of 1970-01-01."""
MOST_NANOS = 86_400 * 10**9 - 1000
UUID_TYPE = pa.binary(16)
UUIDS = (bytes(16), bytes(range(16)), b"\xff" * 16)
PARQUET: Sequence[Case] = (
    parquet("int32 {} (INTEGER(8,true))", pa.int8(), (-128, 127), pa.array([-128, 127])),
    parquet("int32 {} (INTEGER(16,true))", pa.int16(), (-32768, 32767), pa.array([-32768, 32767])),
    parquet("int32 {} (INTEGER(8,false))", pa.int16(), (0, 255), pa.array([0, 255])),
    parquet("int32 {} (INTEGER(16,false))", pa.int32(), (0, 65535), pa.array([0, 65535])),
    parquet("int32 {} (INTEGER(32,false))", pa.int64(), (0, -1), pa.array([0, 2**32 - 1])),
    parquet(
        "int64 {} (INTEGER(64,false))", pa.decimal128(20, 0), (BIG, -BIG), pa.array([BIG, 2**64 - BIG], pa.uint64())
    ),
    parquet("int32 {} (UINT_8)", pa.int16(), (0, 255), pa.array([0, 255])),
    parquet("int64 {} (UINT_64)", pa.decimal128(20, 0), (BIG, -BIG), pa.array([BIG, 2**64 - BIG], pa.uint64())),
    parquet(
        "fixed_len_byte_array(2) {} (FLOAT16)", pa.float32(), (b"\x00\x3c", b"\x01\x80"), pa.array([1.0, -(2.0**-24)])
    ),
    parquet(
        "int32 {} (DECIMAL(9,2))",
        pa.decimal128(9, 2),
        (-999999999, 1),
        pa.array([Decimal("-9999999.99"), Decimal("0.01")]),
    ),
    parquet(
        "int64 {} (DECIMAL(18,3))",
        pa.decimal128(18, 3),
        (-BIG, BIG),
        pa.array([Decimal(-BIG) / 1000, Decimal(BIG) / 1000]),
    ),
    parquet(
        "fixed_len_byte_array(9) {} (DECIMAL(20,2))",
        pa.decimal128(20, 2),
        (b"\xff" * 9, b"\x01" + bytes(8)),
        pa.array([Decimal("-0.01"), Decimal(1 << 64) / 100]),
    ),
    parquet(
        "binary {} (DECIMAL(20,2))",
        pa.decimal128(20, 2),
        (b"\xff", b"\x00\x80"),
        pa.array([Decimal("-0.01"), Decimal("1.28")]),
    ),
    parquet("binary {} (UTF8)", pa.string(), ("", "Łódź 🚀"), pa.array(["", "Łódź 🚀"])),
    parquet(
        "binary {} (UTF8)",
        RefusedValues("UTF8", READ_AS_TEXT),
        (b"\xff",),
        pa.nulls(1),
        name="BINARY (UTF8): not UTF-8",
    ),
    parquet(
        "fixed_len_byte_array(9) {} (DECIMAL(20,2))",
        RefusedValues("does not fit in precision", READ_AS_TEXT),
        (b"\x7f" + bytes(8),),
        pa.nulls(1),
        name="DECIMAL(20,2): more digits",
    ),
    parquet("binary {} (ENUM)", pa.binary(), (b"GREEN",), pa.array([b"GREEN"])),
    parquet("binary {} (JSON)", pa.string(), (b'{"a": 1}',), pa.array(['{"a": 1}'])),
    parquet("binary {} (BSON)", pa.binary(), (b"\x05\x00\x00\x00\x00",), pa.array([b"\x05\x00\x00\x00\x00"])),
    parquet("binary {}", pa.binary(), (b"\xff\x00",), pa.array([b"\xff\x00"]), name="binary"),
    parquet("fixed_len_byte_array(16) {} (UUID)", UUID_TYPE, UUIDS, pa.array(UUIDS)),
    parquet("fixed_len_byte_array(12) {} (INTERVAL)", UNLANDED, (bytes(12), b"\x01" * 12), pa.nulls(2)),
    parquet("int32 {} (DATE)", pa.date32(), DAYS, numbers(pa.date32(), *DAYS)),
    parquet(
        "int32 {} (TIME(MILLIS,true))", pa.time64("us"), (0, 86_399_999), numbers(pa.time64("us"), 0, 86_399_999_000)
    ),
    parquet("int32 {} (TIME_MILLIS)", pa.time64("us"), (0, 86_399_999), numbers(pa.time64("us"), 0, 86_399_999_000)),
    parquet(
        "int64 {} (TIME(MICROS,false))", pa.time64("us"), (86_399_999_999,), numbers(pa.time64("us"), 86_399_999_999)
    ),
    parquet(
        "int64 {} (TIME(NANOS,true))", pa.time64("us"), (MOST_NANOS,), numbers(pa.time64("us"), MOST_NANOS // 1000)
    ),
    parquet(
        "int64 {} (TIME(NANOS,false))",
        UNLANDED,
        (MOST_NANOS + 1,),
        pa.nulls(1),
        name="TIME(NANOS): not whole microseconds",
    ),
    *(
        parquet(f"int64 {{}} ({mark})", lands, (-BIG, BIG), numbers(pa.timestamp(unit), -BIG, BIG))
        for mark, unit, lands in (
            ("TIMESTAMP(MILLIS,true)", "ms", INSTANT),
            ("TIMESTAMP(MILLIS,false)", "ms", NTZ),
            ("TIMESTAMP(MICROS,true)", "us", INSTANT),
            ("TIMESTAMP(MICROS,false)", "us", NTZ),
            ("TIMESTAMP_MILLIS", "ms", INSTANT),
            ("TIMESTAMP_MICROS", "us", INSTANT),
        )
    ),
    parquet("int64 {} (TIMESTAMP(NANOS,true))", INSTANT, (-BIG * 1000, BIG * 1000), numbers(NTZ, -BIG, BIG)),
    parquet("int64 {} (TIMESTAMP(NANOS,false))", NTZ, (-BIG * 1000, BIG * 1000), numbers(NTZ, -BIG, BIG)),
    parquet(
        "int96 {}",
        NTZ,
        [NanoTime(JULIAN + seconds // 86_400, seconds % 86_400 * 10**9 + 1000) for seconds in SECONDS],
        numbers(NTZ, *(seconds * 10**6 + 1 for seconds in SECONDS)),
        name="INT96",
    ),
    parquet("int96 {}", UNLANDED, [NanoTime(JULIAN, 1)], pa.nulls(1), name="INT96: not whole microseconds"),
    parquet(
        "group {} (LIST) { repeated int32 array; }",
        pa.list_(pa.int32()),
        ([("array", 1), ("array", 2)], []),
        pa.array([[1, 2], []]),
        name="LIST with 2 levels",
    ),
    parquet(
        "group {} (LIST) { repeated group bag { optional int32 array_element; } }",
        pa.list_(pa.int32()),
        ([("bag", [("array_element", 7)]), ("bag", [])], []),
        pa.array([[7, None], []]),
        name="LIST as Hive writes it",
    ),
    parquet(
        "group {} (MAP) { repeated group map (MAP_KEY_VALUE) { required binary key (UTF8); optional int32 value; } }",
        pa.map_(pa.string(), pa.int32()),
        ([("map", [("key", "a"), ("value", 1)]), ("map", [("key", "b")])],),
        pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int32())),
        name="MAP_KEY_VALUE",
    ),
    parquet(
        "group {} { optional int32 x; optional binary y (UTF8); }",
        POINT,
        ([("x", 1)], [("y", "ü")]),
        pa.array([{"x": 1}, {"y": "ü"}], POINT),
        name="group",
    ),
)
"""Physical and logical types of Parquet, also the forms that only older programs write."""


def made(name: str, lands: pa.DataType | RefusedValues, sql: Sequence[str], values: pa.Array, **more: Any) -> Case:
    """Return values that a transform makes.

    :param sql: their expressions.
    """
    return Case(name=name, group=OF_SPARK, values=values, lands=lands, sql=sql, **more)


MADE: Sequence[Case] = (
    made("BYTE", pa.int8(), ("-128Y", "127Y"), pa.array([-128, 127])),
    made(
        "DECIMAL(38, 38)",
        pa.decimal128(38, 38),
        (f"CAST('{'-0.' + '9' * 38}' AS DECIMAL(38, 38))",),
        pa.array([Decimal("-0." + "9" * 38)]),
    ),
    made("CHAR(3)", pa.string(), ("CAST('a' AS CHAR(3))",), pa.array(["a"])),
    made("VARCHAR(3)", pa.string(), ("CAST('abc' AS VARCHAR(3))",), pa.array(["abc"])),
    made("STRING with a collation", pa.string(), ("'Ab' COLLATE UNICODE_CI",), pa.array(["Ab"])),
    made("DATE", pa.date32(), [f"date_from_unix_date({day})" for day in DAYS], numbers(pa.date32(), *DAYS)),
    made("TIMESTAMP", INSTANT, [f"timestamp_micros({micros})" for micros in MICROS], numbers(INSTANT, *MICROS)),
    made(
        "TIMESTAMP_NTZ",
        NTZ,
        [f"CAST(timestamp_micros({micros}) AS TIMESTAMP_NTZ)" for micros in MICROS],
        numbers(NTZ, *MICROS),
    ),
    made(
        "TIMESTAMP: year 10000",
        INSTANT,
        [f"timestamp_micros({YEAR_10000 * 10**6})"],
        numbers(INSTANT, YEAR_10000 * 10**6),
        refused=LATE,
    ),
    made(
        "INTERVAL DAY TO SECOND",
        pa.int64(),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", "INTERVAL -'1' DAY"),
        pa.array([93_784_500_000, -86_400_000_000]),
    ),
    made("INTERVAL YEAR TO MONTH", UNMADE, ("INTERVAL '1' YEAR",), pa.nulls(1)),
    made("INTERVAL", UNMADE, ("make_interval(1, 2)",), pa.nulls(1)),
    made("VARIANT", UNMADE, ("parse_json('1')",), pa.nulls(1)),
    made(
        "ARRAY<TIMESTAMP>",
        pa.list_(INSTANT),
        ("array(timestamp_micros(-1), NULL)",),
        pa.array([[-1, None]]).cast(pa.list_(INSTANT)),
    ),
    made(
        "MAP<STRING, ARRAY<INT>>",
        pa.map_(pa.string(), pa.list_(pa.int32())),
        ("map('a', array(1, NULL))",),
        pa.array([[("a", [1, None])]], pa.map_(pa.string(), pa.list_(pa.int32()))),
    ),
)
"""Spark's types, as a transform may return them."""


def document(name: str, ddl: str, lands: pa.DataType, texts: Sequence[str], values: pa.Array, **more: Any) -> Case:
    """Return values in JSON documents.

    :param ddl: their type in the schema.
    :param texts: the values as JSON.
    """
    return Case(
        name=name, group=more.pop("group", OF_OPENSEARCH), values=values, lands=lands, documents=(texts, ddl), **more
    )


def dynamodb(
    name: str, ddl: str, lands: pa.DataType, attributes: Sequence[Mapping[str, Any]], values: pa.Array, **more: Any
) -> Case:
    """Return values of DynamoDB in the documents that its source makes."""
    texts = [plain_json({"value": each}).removeprefix('{"value":').removesuffix("}") for each in attributes]
    return document(name, ddl, lands, texts, values, group=OF_DYNAMODB, **more)


DIGITS = "9" * 38
BASE64 = ["AP8=", ""]
DYNAMODB: Sequence[Case] = (
    dynamodb(
        "N as BIGINT",
        "BIGINT",
        pa.int64(),
        [{"N": str(-(2**63))}, {"N": str(2**63 - 1)}],
        pa.array([-(2**63), 2**63 - 1]),
    ),
    dynamodb(
        "N as DECIMAL(38, 0)",
        "DECIMAL(38, 0)",
        pa.decimal128(38, 0),
        [{"N": DIGITS}, {"N": f"-{DIGITS}"}],
        pa.array([Decimal(DIGITS), Decimal(f"-{DIGITS}")]),
    ),
    dynamodb(
        "N as DECIMAL(38, 37)",
        "DECIMAL(38, 37)",
        pa.decimal128(38, 37),
        [{"N": "1." + "9" * 37}],
        pa.array([Decimal("1." + "9" * 37)]),
        refused={"mariadb": NO_TYPE},
    ),
    dynamodb(
        "N as STRING",
        "STRING",
        pa.string(),
        [{"N": DIGITS}, {"N": "-1"}],
        pa.array([DIGITS, "-1"]),
    ),
    dynamodb("N as DOUBLE", "DOUBLE", pa.float64(), [{"N": "0.1"}, {"N": "1E-130"}], pa.array([0.1, 1e-130])),
    dynamodb("S", "STRING", pa.string(), [{"S": text} for text in TEXTS], pa.array(TEXTS)),
    dynamodb("B as STRING", "STRING", pa.string(), [{"B": b"\x00\xff"}, {"B": b""}], pa.array(BASE64)),
    dynamodb("B as BINARY", "BINARY", pa.binary(), [{"B": b"\x00\xff"}, {"B": b""}], pa.array([b"\x00\xff", b""])),
    dynamodb("BOOL", "BOOLEAN", pa.bool_(), [{"BOOL": True}, {"BOOL": False}], pa.array([True, False])),
    dynamodb("NULL", "STRING", pa.string(), [{"NULL": True}], pa.array([None], pa.string())),
    dynamodb("SS", "ARRAY<STRING>", pa.list_(pa.string()), [{"SS": ["", "b"]}], pa.array([["", "b"]])),
    dynamodb(
        "NS",
        "ARRAY<DECIMAL(38, 0)>",
        pa.list_(pa.decimal128(38, 0)),
        [{"NS": [DIGITS, "-1"]}],
        pa.array([[Decimal(DIGITS), Decimal(-1)]]),
    ),
    dynamodb("BS", "ARRAY<STRING>", pa.list_(pa.string()), [{"BS": [b"\x00\xff"]}], pa.array([["AP8="]])),
    dynamodb(
        "L",
        "ARRAY<BIGINT>",
        pa.list_(pa.int64()),
        [{"L": [{"N": "1"}, {"NULL": True}]}, {"L": []}],
        pa.array([[1, None], []]),
    ),
    dynamodb(
        "M",
        "STRUCT<x: INT, y: STRING>",
        POINT,
        [{"M": {"x": {"N": "1"}, "y": {"S": "ü"}}}, {"M": {}}],
        pa.array([{"x": 1, "y": "ü"}, {}], POINT),
    ),
)
"""DynamoDB's types with a type of the schema; its documents are JSON."""
OPENSEARCH: Sequence[Case] = (
    document(
        "long", "BIGINT", pa.int64(), ["-9223372036854775808", "9223372036854775807"], pa.array([-(2**63), 2**63 - 1])
    ),
    document(
        "unsigned_long",
        "DECIMAL(20, 0)",
        pa.decimal128(20, 0),
        ["18446744073709551615"],
        pa.array([2**64 - 1], pa.uint64()),
    ),
    document(
        "scaled_float",
        "DECIMAL(18, 4)",
        pa.decimal128(18, 4),
        ["0.1001", "-99999999999999.9999"],
        pa.array([Decimal("0.1001"), Decimal("-99999999999999.9999")]),
    ),
    document("half_float", "FLOAT", pa.float32(), ["65504", "-0.5"], pa.array([65504.0, -0.5])),
    document(
        "date",
        "TIMESTAMP",
        INSTANT,
        ['"2024-05-06T07:08:09.123Z"', '"1969-12-31T23:59:59.999Z"', '"2024-05-06T09:08:09+02:00"'],
        numbers(INSTANT, 1714979289123000, -1000, 1714979289000000),
    ),
    document("date_nanos", "TIMESTAMP", INSTANT, ['"2024-05-06T07:08:09.123456Z"'], numbers(INSTANT, 1714979289123456)),
    document("date in milliseconds", "BIGINT", pa.int64(), ["1714979289123", "-1"], pa.array([1714979289123, -1])),
    document("ip", "STRING", pa.string(), ['"192.0.2.1"', '"2001:db8::1"'], pa.array(["192.0.2.1", "2001:db8::1"])),
    document("binary as STRING", "STRING", pa.string(), ['"AP8="', '""'], pa.array(BASE64)),
    document("boolean", "BOOLEAN", pa.bool_(), ["true", "false"], pa.array([True, False])),
    document("boolean as text", "STRING", pa.string(), ['"true"', '"false"', '""'], pa.array(["true", "false", ""])),
    document(
        "keyword",
        "STRING",
        pa.string(),
        ['"a\\u0000b"', '"\\ud83d\\ude80"'],
        pa.array(["a\x00b", "🚀"]),
        refused=POSTGRESQL_TEXT,
    ),
    document(
        "geo_point",
        "STRUCT<lat: DOUBLE, lon: DOUBLE>",
        GEO,
        ['{"lat": 54.1, "lon": -0.5}'],
        pa.array([{"lat": 54.1, "lon": -0.5}], GEO),
    ),
    document(
        "nested",
        "ARRAY<STRUCT<x: INT, y: STRING>>",
        pa.list_(POINT),
        ['[{"x": 1, "y": "a"}, {}]'],
        pa.array([[{"x": 1, "y": "a"}, {}]], pa.list_(POINT)),
    ),
    document(
        "object as a map",
        "MAP<STRING, STRING>",
        pa.map_(pa.string(), pa.string()),
        ['{"a": "1", "b": null}'],
        pa.array([[("a", "1"), ("b", None)]], pa.map_(pa.string(), pa.string())),
    ),
    document("integer_range as STRING", "STRING", pa.string(), ['{"gte": 1, "lt": 2}'], pa.array(['{"gte":1,"lt":2}'])),
)
"""OpenSearch's types with a type of the schema; its documents are as they were indexed."""
CASES: Sequence[Case] = (*ARROW, *PARQUET, *MADE, *DYNAMODB, *OPENSEARCH)
