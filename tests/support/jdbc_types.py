"""Every column type of PostgreSQL and MariaDB with its minimum, maximum and special values, and how each arrives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

INF, NAN = float("inf"), float("nan")
NTZ, INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class TypeCase:
    """A column type and its expected values.

    :param ddl: the type of the column.
    :param arrives: the Arrow type of the landed column.
    :param values: literals of the database, and the landed value of each. NULL is tried for each type.
    :param refused: literals whose rows are refused, and the value in the message.
    """

    ddl: str
    arrives: pa.DataType
    values: Sequence[tuple[str, Any]]
    refused: Sequence[tuple[str, str]] = ()


def texts(ddl: str, *values: str) -> TypeCase:
    """Return a type whose values arrive as the texts that are inserted."""
    return TypeCase(ddl, pa.string(), [(f"'{value}'", value) for value in values])


def whole_numbers(ddl: str, arrives: pa.DataType, *values: int) -> TypeCase:
    is_decimal = pa.types.is_decimal(arrives)
    return TypeCase(ddl, arrives, [(str(value), Decimal(value) if is_decimal else value) for value in values])


def a_decimal(text: str) -> tuple[str, Decimal]:
    return text, Decimal(text)


DAYS = [(f"'{day}'", day) for day in (date.min, date(1000, 1, 1), date(1582, 10, 10), date(1970, 1, 1), date.max)]
TIMES = [
    (f"'{time}'", time)
    for time in (
        datetime(1000, 1, 1, 0, 0, 0, 1),
        datetime(1582, 10, 10, 12),
        datetime(1883, 11, 18, 12, 3, 57),
        datetime(1969, 12, 31, 23, 59, 59, 999999),
        datetime(2024, 3, 31, 2, 30),  # skipped in Berlin
        datetime(2024, 10, 27, 2, 30, 0, 500000),  # twice in Berlin
        datetime(9999, 12, 31, 23, 59, 59, 999999),
    )
]

POSTGRESQL_TYPES: Sequence[TypeCase] = (
    whole_numbers("smallint", pa.int16(), -32768, 32767),
    whole_numbers("integer", pa.int32(), -(2**31), 2**31 - 1),
    whole_numbers("bigint", pa.int64(), -(2**63), 2**63 - 1),
    whole_numbers("oid", pa.decimal128(20, 0), 0, 2**32 - 1),
    TypeCase(
        "numeric",
        pa.decimal128(38, 18),
        [
            a_decimal("-99999999999999999999.999999999999999999"),
            a_decimal("0.000000000000000001"),
            a_decimal("12345678901234567890.1200000000000000000000000000"),
            a_decimal("0"),
        ],
        [
            ("'NaN'", "NaN"),
            ("'Infinity'", "Infinity"),
            ("'-Infinity'", "-Infinity"),
            ("100000000000000000000", "100000000000000000000"),
            ("0.0000000000000000001", "0.0000000000000000001"),
            ("1e400", "1" + 99 * "0"),  # shortened
        ],
    ),
    TypeCase(
        "numeric(10,2)",
        pa.decimal128(10, 2),
        [a_decimal("-99999999.99"), a_decimal("0.01"), a_decimal("7.00")],
        [("'NaN'", "NaN")],
    ),
    TypeCase("numeric(38,38)", pa.decimal128(38, 38), [a_decimal("0." + "9" * 38), a_decimal("-0." + "0" * 37 + "1")]),
    TypeCase(
        "numeric(60,20)",
        pa.decimal128(38, 20),
        [a_decimal("999999999999999999.99999999999999999999"), a_decimal("0.00000000000000000001")],
        [("1000000000000000000", "1000000000000000000.00000000000000000000")],
    ),
    TypeCase("numeric(3,-2)", pa.decimal128(5, 0), [("99912", Decimal(99900)), ("-100", Decimal(-100))]),
    TypeCase("numeric(3,5)", pa.decimal128(5, 5), [a_decimal("0.00999"), a_decimal("-0.00001")]),
    TypeCase(
        "money",
        pa.decimal128(38, 18),
        [("'-92233720368547758.08'::numeric", Decimal("-92233720368547758.08")), ("1234.5", Decimal("1234.5"))],
    ),
    TypeCase(
        "real",
        pa.float32(),
        [
            ("'NaN'", NAN),
            ("'-Infinity'", -INF),
            ("'-0'", -0.0),
            ("16777216", 16777216.0),
            ("1.17549435e-38", 1.1754943508222875e-38),
            ("3.4028235e38", 3.4028234663852886e38),
        ],
    ),
    TypeCase(
        "double precision",
        pa.float64(),
        [
            ("'NaN'", NAN),
            ("'Infinity'", INF),
            ("'-0'", -0.0),
            ("5e-324", 5e-324),
            ("0.1", 0.1),
            ("1.7976931348623157e308", 1.7976931348623157e308),
        ],
    ),
    TypeCase("boolean", pa.bool_(), [("true", True), ("false", False)]),
    TypeCase("bit(1)", pa.bool_(), [("B'1'", True), ("B'0'", False)]),
    TypeCase("bit(9)", pa.string(), [("B'000000001'", "000000001"), ("B'100000001'", "100000001")]),
    TypeCase("bit varying", pa.string(), [("B''", ""), ("B'0101'", "0101")]),
    TypeCase("char(5)", pa.string(), [("'ab'", "ab   "), ("'éü'", "éü   ")]),
    texts('"char"', "x"),
    texts("varchar(10)", "", " ab ", "é😀"),
    texts("text", "", " ab ", "é😀", "NULL", "line\nbreak\tand \\N"),
    texts("name", "ab"),
    TypeCase("bytea", pa.binary(), [("'\\x'", b""), ("'\\x00ff0a'", b"\x00\xff\n")]),
    texts("json", '{"a":  1e400, "a": null}'),
    texts("jsonb", '{"a": [1, null, "b"]}', "null"),
    texts("jsonpath", '$."a"[*]'),
    texts("uuid", "00000000-0000-0000-0000-000000000000"),
    texts("inet", "10.0.0.1", "::1/64"),
    texts("cidr", "10.0.0.0/8"),
    texts("macaddr", "08:00:2b:01:02:03"),
    texts("macaddr8", "08:00:2b:01:02:03:04:05"),
    TypeCase("smallint[]", pa.list_(pa.int16()), [("'{-32768,32767}'", [-32768, 32767])]),
    TypeCase(
        "integer[]",
        pa.list_(pa.int32()),
        [("'{}'", []), ("'{1,NULL,-2147483648}'", [1, None, -(2**31)]), ("'[0:1]={1,2}'", [1, 2])],
        [("'{{1,2},{3,4}}'", "[[1,2],[3,4]]")],
    ),
    TypeCase("bigint[]", pa.list_(pa.int64()), [("'{9223372036854775807}'", [2**63 - 1])]),
    TypeCase("real[]", pa.list_(pa.float32()), [("'{NaN,16777216,-Infinity}'", [NAN, 16777216.0, -INF])]),
    TypeCase(
        "double precision[]",
        pa.list_(pa.float64()),
        [("'{NaN,0.1,1e22,123456789012345680,NULL}'", [NAN, 0.1, 1e22, 123456789012345680.0, None])],
    ),
    TypeCase("boolean[]", pa.list_(pa.bool_()), [("'{t,f,NULL}'", [True, False, None])]),
    TypeCase(
        "text[]",
        pa.list_(pa.string()),
        [("array['a', null, 'NULL', '', '\"\\', 'é😀']", ["a", None, "NULL", "", '"\\', "é😀"])],
        [("'{{a,b},{c,d}}'", '[["a","b"],["c","d"]]')],
    ),
    TypeCase("varchar(3)[]", pa.list_(pa.string()), [("'{abc}'", ["abc"])]),
    TypeCase(
        "numeric[]",
        pa.list_(pa.string()),
        [("'{NaN,1.50,NULL}'", ["NaN", "1.50", None])],
        [("'{{1}}'", '[["1"]]')],
    ),
    TypeCase(
        "uuid[]",
        pa.list_(pa.string()),
        [("'{00000000-0000-0000-0000-000000000000}'", ["00000000-0000-0000-0000-000000000000"])],
    ),
    TypeCase("date[]", pa.list_(pa.string()), [("'{infinity,0044-03-15 BC}'", ["infinity", "0044-03-15 BC"])]),
    TypeCase("bytea[]", pa.list_(pa.string()), [("array['\\x00ff'::bytea]", ["\\x00ff"])]),
    texts("int4range", "[1,10)", "empty", "(,)"),
    texts("int4multirange", "{[1,3),[5,7)}"),
    texts("tsrange", '["2024-01-01 00:00:00",infinity]'),
    texts("mood", "fine"),
    TypeCase("price", pa.decimal128(5, 2), [a_decimal("999.99")], [("'NaN'", "NaN")]),
    texts("pair", '(1,"a b")'),
    TypeCase(
        "date",
        pa.date32(),
        DAYS,
        [("'infinity'", "infinity"), ("'0044-03-15 BC'", "0044-03-15 BC"), ("'10000-01-01'", "10000-01-01")],
    ),
    TypeCase(
        "time",
        pa.string(),
        [("'00:00'", "00:00:00"), ("'24:00'", "24:00:00"), ("'12:34:56.123456'", "12:34:56.123456")],
    ),
    TypeCase("timetz", pa.string(), [("'12:34:56.123456+05:30'", "12:34:56.123456+05:30")]),
    TypeCase(
        "timestamp",
        NTZ,
        [("'0001-01-01'", datetime(1, 1, 1)), *TIMES],
        [
            ("'infinity'", "infinity"),
            ("'-infinity'", "-infinity"),
            ("'0044-03-15 12:00 BC'", "0044-03-15 12:00:00 BC"),
            ("'10000-01-01'", "10000-01-01 00:00:00"),
        ],
    ),
    TypeCase("timestamp(0)", NTZ, [("'2024-02-29 23:59:59'", datetime(2024, 2, 29, 23, 59, 59))]),
    TypeCase(
        "timestamptz",
        INSTANT,
        [(f"{literal[:-1]}+00'", time.replace(tzinfo=UTC)) for literal, time in TIMES],
        [
            ("'infinity'", "infinity"),
            ("'0044-03-15 12:00+00 BC'", "0044-03-15 12:00:00 BC+00"),
            ("'10000-01-01 00:00+00'", "10000-01-01 00:00:00+00"),
        ],
    ),
    TypeCase("interval", pa.string(), [("'1 year -2 days 3.5 seconds'", "1 year -2 days +00:00:03.5")]),
    texts("point", "(1,2)"),
    texts("box", "(3,4),(1,2)"),
    texts("polygon", "((0,0),(1,1),(1,0))"),
    texts("circle", "<(1,2),3>"),
    TypeCase("tsvector", pa.string(), [("'a:1 b'", "'a':1 'b'")]),
    texts("pg_lsn", "16/B374D848"),
    texts("xid8", "18446744073709551615"),
)

MARIADB_TYPES: Sequence[TypeCase] = (
    whole_numbers("TINYINT", pa.int8(), -128, 127),
    whole_numbers("TINYINT(1)", pa.int8(), -1, 0, 1, 2),
    whole_numbers("BOOLEAN", pa.int8(), 0, 1),
    whole_numbers("TINYINT UNSIGNED", pa.int16(), 0, 255),
    whole_numbers("TINYINT(1) UNSIGNED", pa.int16(), 0, 255),
    whole_numbers("SMALLINT", pa.int16(), -32768, 32767),
    whole_numbers("SMALLINT UNSIGNED", pa.int32(), 65535),
    whole_numbers("MEDIUMINT", pa.int32(), -8388608, 8388607),
    whole_numbers("MEDIUMINT UNSIGNED", pa.int32(), 16777215),
    whole_numbers("INT", pa.int32(), -(2**31), 2**31 - 1),
    whole_numbers("INT UNSIGNED", pa.int64(), 2**32 - 1),
    whole_numbers("INT(6) ZEROFILL", pa.int64(), 7),
    whole_numbers("BIGINT", pa.int64(), -(2**63), 2**63 - 1),
    whole_numbers("BIGINT UNSIGNED", pa.decimal128(20, 0), 0, 2**64 - 1),
    whole_numbers("YEAR", pa.int32(), 0, 1901, 2155),
    TypeCase("BIT(1)", pa.bool_(), [("b'1'", True), ("b'0'", False)]),
    whole_numbers("BIT(9)", pa.decimal128(20, 0), 0, 1, 257, 511),
    whole_numbers("BIT(64)", pa.decimal128(20, 0), 2**64 - 1),
    TypeCase("DECIMAL(10,2)", pa.decimal128(10, 2), [a_decimal("-99999999.99"), a_decimal("0.01"), a_decimal("7.00")]),
    TypeCase("DECIMAL(10,2) ZEROFILL", pa.decimal128(10, 2), [a_decimal("0.01")]),
    TypeCase("DECIMAL(38,38)", pa.decimal128(38, 38), [a_decimal("-0." + "9" * 38)]),
    TypeCase("DECIMAL(38,0) UNSIGNED", pa.decimal128(38, 0), [a_decimal("9" * 38)]),
    TypeCase(
        "DECIMAL(65,30)",
        pa.decimal128(38, 30),
        [a_decimal("-99999999." + "9" * 30), a_decimal("0." + "0" * 29 + "1")],
        [("100000000", "100000000." + "0" * 30)],
    ),
    TypeCase(
        "FLOAT",
        pa.float32(),
        [
            ("12345678", 12345678.0),
            ("16777216", 16777216.0),
            ("0.1", 0.10000000149011612),
            ("1.17549435e-38", 1.1754943508222875e-38),
            ("3.40282346e38", 3.4028234663852886e38),
        ],
    ),
    TypeCase("FLOAT(7,2)", pa.float32(), [("12345.67", 12345.669921875)]),
    TypeCase("DOUBLE", pa.float64(), [(text, float(text)) for text in ("5e-324", "0.1", "1.7976931348623157e308")]),
    TypeCase("CHAR(5)", pa.string(), [("'ab  '", "ab"), ("'é'", "é")]),
    TypeCase("CHAR(5) CHARACTER SET latin1", pa.string(), [("'é'", "é")]),
    texts("VARCHAR(10)", "", " ab ", "é😀"),
    texts("VARCHAR(5) COLLATE utf8mb4_bin", "ab"),
    *(texts(f"{size}TEXT", "é😀 ") for size in ("TINY", "", "MEDIUM", "LONG")),
    TypeCase("BINARY(5)", pa.binary(), [("'ab'", b"ab\0\0\0")]),
    TypeCase("VARBINARY(5)", pa.binary(), [("x'00ff'", b"\x00\xff")]),
    *(
        TypeCase(f"{size}BLOB", pa.binary(), [("x'00ff'", b"\x00\xff"), ("''", b"")])
        for size in ("TINY", "", "MEDIUM", "LONG")
    ),
    texts("ENUM('a','bcd')", "a", "bcd"),
    texts("SET('a','b','c')", "a,c", ""),
    texts("JSON", '{"a":  1e400}'),
    texts("UUID", "123e4567-e89b-12d3-a456-426655440000"),
    texts("INET4", "1.2.3.4"),
    texts("INET6", "::1"),
    TypeCase(
        "DATE",
        pa.date32(),
        DAYS,
        [("'0000-00-00'", "0000-00-00"), ("'2024-00-00'", "2024-00-00"), ("'2024-02-00'", "2024-02-00")],
    ),
    TypeCase("DATETIME", NTZ, [("'2024-03-31 02:30:00'", datetime(2024, 3, 31, 2, 30))]),
    TypeCase(
        "DATETIME(6)",
        NTZ,
        [("'0001-01-01'", datetime(1, 1, 1)), *TIMES],
        [("'0000-00-00'", "0000-00-00 00:00:00.000000"), ("'2024-00-00'", "2024-00-00 00:00:00.000000")],
    ),
    TypeCase(
        "TIMESTAMP(6) NULL",
        INSTANT,
        [
            (f"'{time}'", time.replace(tzinfo=UTC))
            for time in (
                datetime(1970, 1, 1, 0, 0, 1),
                datetime(2024, 3, 31, 2, 30),
                datetime(2024, 10, 27, 0, 30, 0, 1),
            )
        ],
        [("'0000-00-00'", "0000-00-00 00:00:00.000000+00:00")],
    ),
    TypeCase(
        "TIME", pa.string(), [("'-838:59:59'", "-838:59:59"), ("'838:59:59'", "838:59:59"), ("'00:00'", "00:00:00")]
    ),
    TypeCase("TIME(6)", pa.string(), [("'12:34:56.123456'", "12:34:56.123456")]),
    TypeCase(
        "POINT",
        pa.binary(),
        [("ST_GeomFromText('POINT(1 2)', 4326)", bytes.fromhex("e61000000101000000000000000000f03f0000000000000040"))],
    ),
    TypeCase(
        "GEOMETRY",
        pa.binary(),
        [("ST_GeomFromText('POINT(1 2)')", bytes.fromhex("000000000101000000000000000000f03f0000000000000040"))],
    ),
)

PREPARED_IN_POSTGRESQL = (
    "CREATE TYPE mood AS ENUM ('fine', 'bad'); CREATE DOMAIN price AS numeric(5,2); CREATE TYPE pair AS (x int, y text)"
)
PREPARED_IN_MARIADB = "SET sql_mode = ''"
