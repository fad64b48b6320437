"""The canonical text of values, by which the results of independent readers are compared with the sent values.

A number is its digits, an instant its microseconds since 1970, a date its days, binary its hexadecimal digits. Lists,
structs and maps are lists of these; null is None.
"""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

UNITS = {"s": Fraction(10**6), "ms": Fraction(10**3), "us": Fraction(1), "ns": Fraction(1, 1000)}
"""Microseconds of a unit."""
EPOCH = datetime(1970, 1, 1)


# What was sent


def sent(values: pa.Array) -> list[Any]:
    """Return values in the form of the module."""
    return [_sent(value) for value in values]


def _sent(value: pa.Scalar) -> Any:
    kind, types = value.type, pa.types
    if types.is_dictionary(kind):
        return _sent((value.as_py() is None and pa.scalar(None)) or value.dictionary[value.index.as_py()])
    if types.is_run_end_encoded(kind):
        return value.as_py()
    if not value.is_valid:
        return None
    if types.is_map(kind):
        return sorted([_sent(pair["key"]), _sent(pair["value"])] for pair in value.values)
    if types.is_struct(kind):
        return [_sent(value[n]) for n in range(kind.num_fields)]
    if types.is_nested(kind):
        return [_sent(each) for each in value.values]
    if types.is_date64(kind):
        return str(value.value // 86_400_000)
    if types.is_date32(kind):
        return str(value.value)
    if types.is_temporal(kind):
        return str(value.value * UNITS[kind.unit])
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    ):
        return value.as_py().hex()
    if types.is_floating(kind):
        return repr(float(value.as_py()))
    if types.is_boolean(kind):
        return str(value.as_py()).lower()
    if types.is_integer(kind) or types.is_decimal(kind):
        return number(str(value.as_py()))
    return value.as_py()


def number(text: str) -> str:
    """Return a number without an exponent and trailing zeros."""
    sign, digits, exponent = Decimal(text).as_tuple()
    shift = int(exponent)
    whole = int("".join(map(str, digits))) * (-1 if sign else 1)
    return str(Fraction(whole) * Fraction(10) ** shift)


# What others read


def read(kind: pa.DataType, text: Any) -> Any:
    """Return what a query of this module returned in the form of the module.

    :param kind: the landed type.
    """
    types = pa.types
    if text is None:
        return None
    if types.is_map(kind):
        return sorted([read(kind.key_type, key), read(kind.item_type, value)] for key, value in text)
    if types.is_struct(kind):
        return [read(field.type, value) for field, value in zip(kind, text, strict=True)]
    if types.is_nested(kind):
        return [read(kind.value_type, each) for each in text]
    if types.is_float32(kind):
        return repr(struct.unpack("f", struct.pack("f", float(text)))[0])
    if types.is_float64(kind):
        return repr(float(text))
    if types.is_integer(kind) or types.is_decimal(kind):
        return number(text)
    if types.is_boolean(kind):
        return {"1": "true", "0": "false"}.get(text, text)
    return text


def by_spark(kind: pa.DataType, value: str, depth: int = 0) -> str:
    """Return a SQL expression of Spark that makes texts of a value."""
    types, each = pa.types, f"e{depth}"
    if types.is_map(kind):
        key, item = (
            by_spark(kind.key_type, f"{each}.key", depth + 1),
            by_spark(kind.item_type, f"{each}.value", depth + 1),
        )
        return f"transform(map_entries({value}), {each} -> struct({key}, {item}))"
    if types.is_struct(kind):
        parts = [by_spark(field.type, f"{value}.`{field.name}`", depth) for field in kind]
        return f"IF({value} IS NULL, NULL, struct({', '.join(parts)}))"
    if types.is_nested(kind):
        return f"transform({value}, {each} -> {by_spark(kind.value_type, each, depth + 1)})"
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return f"lower(hex({value}))"
    if types.is_date(kind):
        return f"CAST(unix_date({value}) AS STRING)"
    if types.is_timestamp(kind):
        return f"CAST(unix_micros(CAST({value} AS TIMESTAMP)) AS STRING)"
    if types.is_time(kind):
        return f"CAST(time_diff('MICROSECOND', TIME'00:00:00', {value}) AS STRING)"
    return f"CAST({value} AS STRING)"


def by_postgresql(kind: pa.DataType, value: str) -> str:
    """Return a SQL expression of PostgreSQL that makes a text of a value."""
    types = pa.types
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return f"encode({value}, 'hex')"
    if types.is_date(kind):
        return f"({value} - DATE '1970-01-01')::text"
    if types.is_timestamp(kind) or types.is_time(kind):
        return f"(EXTRACT(EPOCH FROM {value}) * 1000000)::bigint::text"
    return f"{value}::text"


def by_mariadb(kind: pa.DataType, value: str) -> str:
    """Return a SQL expression of MariaDB that makes a text of a value."""
    types = pa.types
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return f"LOWER(HEX({value}))"
    if types.is_date(kind):
        return f"CAST(TO_DAYS({value}) - 719528 AS CHAR)"
    if types.is_timestamp(kind):
        return f"CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {value}) AS CHAR)"
    if types.is_floating(kind):
        return f"CAST({value} * 1e0 AS CHAR)"
    if types.is_time(kind):
        return f"CAST(ROUND(TIME_TO_SEC({value}) * 1000000) AS CHAR)"
    if types.is_nested(kind):
        return f"CONCAT({value}, '')"  # otherwise it becomes a part of the JSON of the row
    return value if types.is_string(kind) else f"CAST({value} AS CHAR)"


def from_json(kind: pa.DataType, value: Any) -> Any:
    """Return a nested value, which a database keeps as JSON, as `read` takes it.

    :param value: parsed JSON, with numbers as texts.
    """
    types = pa.types
    if value is None:
        return None
    if types.is_map(kind):
        return [[from_json(kind.key_type, key), from_json(kind.item_type, each)] for key, each in value.items()]
    if types.is_struct(kind):
        return [from_json(field.type, value[field.name]) for field in kind]
    if types.is_nested(kind):
        return [from_json(kind.value_type, each) for each in value]
    if types.is_timestamp(kind):
        at = datetime.fromisoformat(value)
        assert (at.tzinfo is None) is (kind.tz is None)
        micros = (at.astimezone(UTC) if at.tzinfo else at).replace(tzinfo=None) - EPOCH
        return str((micros.days * 86_400 + micros.seconds) * 10**6 + micros.microseconds)
    if types.is_date(kind):
        return str((date.fromisoformat(value) - EPOCH.date()).days)
    return str(value).lower() if isinstance(value, bool) else value
