"""Columns of rows in a database: their types, and the text of values that databases read in different forms."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import TypeEngine

from airflow_provider_coordination.spark.delivery import RefusedRowError
from airflow_provider_coordination.sql import MYSQL

MAX_SCALE_OF_MYSQL = 30
"""MariaDB allows a few more decimal places."""
UTF8 = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
NAME = sa.String(255, collation="C").with_variant(mysql.VARCHAR(255, **UTF8), MYSQL)
"""The type of columns that hold names, compared byte by byte."""
INSTANT = sa.TIMESTAMP(timezone=True).with_variant(mysql.DATETIME(fsp=6), MYSQL)
_LOCAL = sa.TIMESTAMP().with_variant(mysql.DATETIME(fsp=6), MYSQL)
_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), MYSQL)
_BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), MYSQL)
TYPES: dict[str, TypeEngine[Any]] = {
    "bool": sa.Boolean(),
    "int8": sa.SmallInteger().with_variant(mysql.TINYINT(), MYSQL),
    "int16": sa.SmallInteger(),
    "int32": sa.Integer(),
    "int64": sa.BigInteger(),
    "float": sa.REAL().with_variant(mysql.FLOAT(), MYSQL),
    "double": sa.Double(),
    "string": _TEXT,
    "binary": _BYTES,
    "date32[day]": sa.Date(),
    "time64[us]": sa.Time().with_variant(mysql.TIME(fsp=6), MYSQL),
    "null": _TEXT,
}
"""The type of a new column by pyarrow type, for types without parameters."""
KEY_TYPES: dict[str, TypeEngine[Any]] = {
    "string": sa.Text().with_variant(mysql.VARCHAR(255, **UTF8), MYSQL),
    "binary": sa.LargeBinary().with_variant(mysql.VARBINARY(255), MYSQL),
}
"""The types of columns that rows are merged on: an index of MySQL needs a limited length."""
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

# The types of existing columns, as SQLAlchemy reflects them.
_INTEGER_BITS = {mysql.TINYINT: 8, sa.SmallInteger: 16, mysql.MEDIUMINT: 24, sa.BigInteger: 64, sa.Integer: 32}
_DOCUMENTS = (sa.JSON, sa.VARCHAR, sa.TEXT, mysql.MEDIUMTEXT, mysql.LONGTEXT)
_TEXTS = (*_DOCUMENTS, mysql.TINYTEXT, sa.Uuid)
_BLOBS = (postgresql.BYTEA, sa.BLOB, mysql.TINYBLOB, mysql.MEDIUMBLOB, mysql.LONGBLOB, sa.VARBINARY)

ESCAPED_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def is_nested(kind: pa.DataType) -> bool:
    """Return whether values consist of other values: lists, structs and maps. They are stored as JSON."""
    return bool(pa.types.is_nested(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Return whether values are bytes."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def column_type(kind: pa.DataType, dialect: str, *, is_key: bool) -> TypeEngine[Any] | None:
    """Return the type of a new column; None if the database has no type for such values.

    :param kind: the type of the values.
    :param dialect: the database.
    :param is_key: whether rows are merged on the column.
    """
    if pa.types.is_decimal(kind):
        is_known = dialect != MYSQL or kind.scale <= MAX_SCALE_OF_MYSQL
        return sa.Numeric(kind.precision, kind.scale) if is_known else None
    if pa.types.is_timestamp(kind):
        return INSTANT if kind.tz else _LOCAL
    if is_nested(kind):
        return JSON
    name = "binary" if pa.types.is_fixed_size_binary(kind) else str(kind).removeprefix("large_")
    return KEY_TYPES[name] if is_key and name in KEY_TYPES else TYPES.get(name)


def stores_exactly(column: TypeEngine[Any], kind: pa.DataType) -> bool:
    """Return whether a column stores all values of a type exactly, or refuses them: none is rounded or cut.

    :param column: the reflected type of the column.
    :param kind: the type of the values.
    """
    types, is_mysql = pa.types, type(column).__module__.startswith("sqlalchemy.dialects.mysql")
    bits = next((bits for each, bits in _INTEGER_BITS.items() if isinstance(column, each)), 0)
    digits = getattr(column, "precision", None), getattr(column, "scale", None)
    if types.is_null(kind):
        return True
    if types.is_boolean(kind):
        return isinstance(column, sa.Boolean) or (is_mysql and bool(bits))
    if types.is_integer(kind):
        is_unlimited = isinstance(column, sa.Numeric) and not isinstance(column, sa.Float) and digits[0] is None
        return bits >= int(kind.bit_width) or is_unlimited
    if types.is_floating(kind):
        is_short = isinstance(column, (sa.REAL, mysql.FLOAT)) and int(kind.bit_width) <= 32
        is_cut = is_mysql and digits != (None, None)
        return (isinstance(column, sa.Double) or is_short) and not is_cut
    if types.is_decimal(kind):
        return isinstance(column, sa.Numeric) and not isinstance(column, sa.Float) and _fits(*digits, kind)
    if types.is_timestamp(kind):
        return _has_microseconds(column) and isinstance(column, sa.DateTime) and _has_zone(column, kind, is_mysql)
    if types.is_date(kind):
        return isinstance(column, sa.Date)
    if types.is_time(kind):
        return isinstance(column, sa.Time) and _has_microseconds(column) and not getattr(column, "timezone", False)
    if is_nested(kind):
        return isinstance(column, _DOCUMENTS)
    if is_binary(kind):
        return isinstance(column, _BLOBS)
    return (isinstance(column, _TEXTS) or (is_mysql and isinstance(column, sa.Enum))) and is_text(kind)


def _fits(precision: int | None, scale: int | None, kind: pa.DataType) -> bool:
    """Return whether a decimal column has the digits of a decimal type; without a precision it has any."""
    if precision is None:
        return True
    decimals = scale or 0
    return bool(decimals >= kind.scale and precision - decimals >= kind.precision - kind.scale)


def _has_microseconds(column: Any) -> bool:
    """Return whether a column of times has six decimal places; that is PostgreSQL's default, and MySQL's is none."""
    return column.fsp == 6 if hasattr(column, "fsp") else getattr(column, "precision", None) in (None, 6)


def _has_zone(column: Any, kind: pa.DataType, is_mysql: bool) -> bool:
    """Return whether a column of instants means instants if the values do; all sessions are in UTC."""
    if is_mysql:
        return bool(kind.tz) or not isinstance(column, sa.TIMESTAMP)
    return bool(column.timezone) == bool(kind.tz)


def as_json(name: str, column: pa.ChunkedArray, *, has_zero_characters: bool = True) -> pa.ChunkedArray:
    """Return nested values as JSON.

    :param name: the name of the column.
    :param has_zero_characters: whether the database accepts zero characters in JSON.
    :raises RefusedRowError: if JSON cannot represent them.
    """
    of_maps = _has_maps(column.type)
    try:
        texts = [
            None
            if value is None
            else json.dumps(
                _plain(value, column.type) if of_maps else value, default=_text, allow_nan=False, ensure_ascii=False
            )
            for value in column.to_pylist()
        ]
        if not has_zero_characters and any(text is not None and ESCAPED_ZERO.search(text) for text in texts):
            raise ValueError("it holds a zero character")
    except (OverflowError, TypeError, ValueError) as error:
        raise RefusedRowError(
            f"column {name!r} of type {column.type} cannot be written as JSON: {error}; convert it in the transform"
        ) from None
    return pa.chunked_array([pa.array(texts, pa.string())])


def hexadecimal(column: pa.ChunkedArray, before: str, after: str) -> pa.ChunkedArray:
    """Return binary values as hexadecimal digits between a prefix and a suffix; null stays null."""
    return pa.chunked_array([_joined(before, _digits(chunk), after) for chunk in column.chunks], pa.string())


def _joined(before: str, digits: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, digits, after, "")


def _digits(chunk: pa.Array) -> pa.Array:
    """Return the digits of each value: the digits of the whole buffer, cut at twice the offsets."""
    chunk = pa.concat_arrays([chunk.cast(pa.binary())])  # without an offset of its own
    if chunk.offset:
        chunk = chunk.take(pa.array(range(len(chunk)), pa.int64()))
    _, offsets, values = chunk.buffers()
    doubled = pc.multiply(pa.Array.from_buffers(pa.int32(), len(chunk) + 1, [None, offsets]).cast(pa.int64()), 2)
    digits = b"" if values is None else values.to_pybytes().hex().encode()
    whole = pa.LargeStringArray.from_buffers(len(chunk), doubled.buffers()[1], pa.py_buffer(digits))
    return pc.if_else(chunk.is_valid(), whole, None).cast(pa.string())


def _has_maps(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return is_nested(kind) and any(_has_maps(kind.field(n).type) for n in range(kind.num_fields))


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value with maps as objects; pyarrow represents them as lists of pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        plain = {str(key): _plain(each, kind.item_type) for key, each in value}
        if len(plain) < len(value):
            raise ValueError("a map has a key twice")
        return plain
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if is_nested(kind):
        return [_plain(each, kind.value_type) for each in value]
    return value


def _text(value: Any) -> str:
    """Return the text of values that JSON cannot represent: instants, dates and decimals.

    :raises TypeError: for bytes, which have no exact text.
    """
    if isinstance(value, bytes):
        raise TypeError("it holds bytes, which have no text")
    return str(value)
