"""The values of decoded payloads as columns: a value arrives as it was, or its payload does not fit the schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.sources.landed_types import WHOLE_NUMBER, first_changed
from airflow_provider_coordination.spark.payload_schema import AUTO, ISO, TIME_FORMATS, UNITS, time_pattern

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MISFIT = "the payload does not fit the schema: "
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, kw_only=True)
class PayloadField:
    """A column that payloads have a value for.

    :param name: its name.
    :param kind: its Arrow type.
    :param type_name: its type in SQL, for errors.
    :param is_required: whether a payload must have a value for it.
    :param time_format: the format of its times, as in `time_formats` of a job; None for the default.
    """

    name: str
    kind: pa.DataType
    type_name: str
    is_required: bool = False
    time_format: str | None = None


def columns_of_rows(
    fields: Sequence[PayloadField], rows: Sequence[Mapping[str, Any]], wrong: dict[int, str]
) -> list[pa.Array]:
    """Return the columns of decoded rows.

    :param rows: the values of each row by name; missing ones are null.
    :param wrong: receives the reason for each row that does not fit, by its number; its values are null.
    """
    return [_column(field, [row.get(field.name) for row in rows], wrong) for field in fields]


def _column(field: PayloadField, values: list[Any], wrong: dict[int, str]) -> pa.Array:
    if field.is_required and None in values:
        missing = f"{MISFIT}field '{field.name}' is missing"
        wrong.update({number: missing for number, value in enumerate(values) if value is None and number not in wrong})
    try:
        return _array(values, field.kind, field.time_format)
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        pass
    kept: list[Any] = []
    for number, value in enumerate(values):
        try:
            kept.append(_array([value], field.kind, field.time_format)[0].as_py())
        except (ValueError, TypeError, OverflowError, pa.ArrowException):
            kept.append(None)
            wrong.setdefault(number, f"{MISFIT}field '{field.name}' has a value that {field.type_name} cannot hold")
    # What pyarrow returned it also takes, except that maps are lists of pairs, which it takes as well.
    return pa.array(kept, field.kind)


def _array(values: list[Any], kind: pa.DataType, time_format: str | None) -> pa.Array:
    """Return values as an Arrow array.

    :raises Exception: if the type cannot hold a value: a `ValueError`, `TypeError`, `OverflowError` or Arrow's own.
    """
    types = set(map(type, values)) - {type(None)}
    if not types <= _unchanged(kind, time_format):
        values = [None if value is None else _converted(value, kind, time_format) for value in values]
    if pa.types.is_floating(kind) and int in types:
        values = [_checked(value, kind) for value in values]
    array = pa.array(values, kind)
    if pa.types.is_float32(kind) and pc.any(pc.is_inf(array)).as_py() and not any(map(_is_infinite, values)):
        raise ValueError("a number is beyond the range of the type")
    return array


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)


def _unchanged(kind: pa.DataType, time_format: str | None) -> frozenset[type]:
    """Return the types of Python whose values pyarrow takes for a type without a change, or refuses."""
    if pa.types.is_integer(kind):
        return frozenset({int})
    if pa.types.is_floating(kind):
        return frozenset({float, int})
    if pa.types.is_string(kind):
        return frozenset({str})
    if pa.types.is_binary(kind):
        return frozenset({bytes})
    if pa.types.is_boolean(kind):
        return frozenset({bool})
    if pa.types.is_date(kind):
        return frozenset({date})
    if pa.types.is_decimal(kind):
        return frozenset({Decimal, int})
    if pa.types.is_time(kind):
        return frozenset({time})
    return frozenset({datetime}) if pa.types.is_timestamp(kind) and kind.tz and time_format is None else frozenset()


def _converted(value: Any, kind: pa.DataType, time_format: str | None = None) -> Any:
    """Return a value that is not null in the form in which pyarrow takes it for a type.

    :raises Exception: if the type cannot hold it.
    """
    if pa.types.is_list(kind):
        if not isinstance(value, list | tuple):
            raise TypeError("it is not a list")
        return [None if each is None else _converted(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        if not isinstance(value, Mapping):
            raise TypeError("it is not a record")
        given = ((field, value.get(field.name)) for field in kind)
        return {field.name: None if each is None else _converted(each, field.type) for field, each in given}
    if pa.types.is_map(kind):
        if not isinstance(value, Mapping):
            raise TypeError("it is not a map")
        return [
            (_converted(name, kind.key_type), None if each is None else _converted(each, kind.item_type))
            for name, each in value.items()
        ]
    if type(value) in _unchanged(kind, time_format):
        return _checked(value, kind)
    return _checked(_of_leaf(kind)(value, time_format), kind)


def _checked(value: Any, kind: pa.DataType) -> Any:
    """Return a value of a column, or within one, that pyarrow would change without an error.

    :raises ValueError: if it would.
    """
    if pa.types.is_floating(kind) and value is not None:
        if isinstance(value, int):
            if first_changed([value], kind) is not None:
                raise ValueError("a whole number would change")
            value = float(value)
        if pa.types.is_float32(kind) and math.isfinite(value) and abs(value) > 3.4028235677973366e38:
            raise ValueError("a number is beyond the range of the type")
    return value


def _of_leaf(kind: pa.DataType) -> Callable[[Any, str | None], Any]:
    if pa.types.is_timestamp(kind):
        return _instant if kind.tz else _local_time
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_binary(kind):
        return _bytes
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return lambda value, _: _number(value, kind)
    raise TypeError("no such value")


def _number(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise TypeError("it is not a number")
    if isinstance(value, str) and not NUMBER.fullmatch(value):
        raise ValueError("it is not a number")
    if pa.types.is_floating(kind):
        return int(value) if isinstance(value, str) and WHOLE_NUMBER.fullmatch(value) else float(value)
    try:
        exact = Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        raise ValueError("it is not a number") from None
    if pa.types.is_decimal(kind):
        return exact
    if not exact.is_finite() or exact != exact.to_integral_value():
        raise ValueError("it is not a whole number")
    return int(exact)


def _text(value: Any, _: str | None) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_in_json)
    return _in_json(value)


def _in_json(value: Any) -> str:
    """Return the text of a value, also within JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, int | float | Decimal | UUID | str | timedelta):
        return str(value)
    raise TypeError("it is not text")


def _bytes(value: Any, _: str | None) -> bytes:
    if isinstance(value, str):
        return value.encode()
    raise TypeError("these are no bytes")


def _date(value: Any, _: str | None) -> date:
    if isinstance(value, datetime):
        if value.timetz().replace(tzinfo=None) != time():
            raise ValueError("it has an hour")
        return value.date()
    if isinstance(value, str):
        return date.fromisoformat(value)
    raise TypeError("it is not a date")


def _local_time(value: Any, _: str | None) -> datetime:
    found = _parsed(value) if isinstance(value, str) else value
    if not isinstance(found, datetime) or found.tzinfo is not None:
        raise TypeError("it is not a time without a zone")
    return found


def _instant(value: Any, time_format: str | None) -> datetime:
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if time_format not in (None, *TIME_FORMATS):
        return time_pattern(str(time_format)).instant(_text(value, None))
    if isinstance(value, str) and not NUMBER.fullmatch(value):
        if time_format not in (None, ISO, AUTO):
            raise ValueError("it is not a number")
        found = _parsed(value)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise TypeError("it is not a time")
    if time_format is None or time_format == ISO:  # a number has no unit of its own
        raise ValueError("it is a number")
    exact = Decimal(repr(value) if isinstance(value, float) else value)
    micros = exact * UNITS[time_format]
    if micros != micros.to_integral_value():
        raise ValueError("it is finer than a microsecond")
    return EPOCH + timedelta(microseconds=int(micros))


def _parsed(text: str) -> datetime:
    if re.search(r"[.,]\d{6}\d*[1-9]", text):
        raise ValueError("it is finer than a microsecond")
    return datetime.fromisoformat(text)
