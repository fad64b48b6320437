"""The values of the column that defines ranges: their text form and their SQL literals.

A value is stored as text with its kind. It becomes SQL only after it is parsed by its kind and formatted again. So no
stored text is ever part of a statement unchanged.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum

from airflow_provider_coordination.sql import MYSQL, POSTGRESQL

Value = int | float | Decimal | date | datetime
"""The value of a bound. A `datetime` is aware if its kind is `TIMESTAMP_TZ`, and naive otherwise."""


class Kind(StrEnum):
    """The kind of a column's values."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    DATE = "date"
    TIMESTAMP = "timestamp"
    """Without a time zone."""
    TIMESTAMP_TZ = "timestamp_tz"
    """With a time zone: an instant."""

    @property
    def is_time(self) -> bool:
        """Whether it is a date or a time."""
        return self in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)


ORACLE = "oracle"
SQL_SERVER = "sqlserver"

_BY_TYPE_CODE = {
    # The object identifiers of the types.
    POSTGRESQL: {
        20: Kind.INTEGER,
        21: Kind.INTEGER,
        23: Kind.INTEGER,
        700: Kind.FLOAT,
        701: Kind.FLOAT,
        1082: Kind.DATE,
        1114: Kind.TIMESTAMP,
        1184: Kind.TIMESTAMP_TZ,
        1700: Kind.DECIMAL,
    },
    # The field types of the protocol.
    MYSQL: {
        0: Kind.DECIMAL,
        1: Kind.INTEGER,
        2: Kind.INTEGER,
        3: Kind.INTEGER,
        4: Kind.FLOAT,
        5: Kind.FLOAT,
        7: Kind.TIMESTAMP,
        8: Kind.INTEGER,
        9: Kind.INTEGER,
        10: Kind.DATE,
        12: Kind.TIMESTAMP,
        246: Kind.DECIMAL,
    },
}


def knows_types(dialect: str) -> bool:
    """Return whether the type codes of this kind of database are known; otherwise kinds are found by values."""
    return dialect in _BY_TYPE_CODE


def kind_of_type(dialect: str, type_code: object) -> Kind | None:
    """Return the kind of a column by its driver's type code; None if the column cannot define ranges."""
    return _BY_TYPE_CODE.get(dialect, {}).get(type_code)  # type: ignore[call-overload, no-any-return]


def kind_of_value(value: object) -> Kind | None:
    """Return the kind of a driver's value; None if such values cannot define ranges."""
    if isinstance(value, bool):
        return None
    if isinstance(value, datetime):
        return Kind.TIMESTAMP if value.tzinfo is None else Kind.TIMESTAMP_TZ
    for kind, of in ((Kind.INTEGER, int), (Kind.DECIMAL, Decimal), (Kind.FLOAT, float), (Kind.DATE, date)):
        if isinstance(value, of):
            return kind
    return None


_MIDNIGHT = {Kind.DATE: "", Kind.TIMESTAMP: "T00:00:00", Kind.TIMESTAMP_TZ: "T00:00:00+00:00"}
FIRST_BOUND, LAST_BOUND = "0001-01-02", "9999-12-30"
"""Between these days, a time is valid in Python in every time zone. Databases have more times, and infinity."""


def is_finite(value: Value) -> bool:
    """Return whether a value is neither infinite nor NaN."""
    return not isinstance(value, (float, Decimal)) or math.isfinite(value)


def text_of(kind: Kind, value: Value) -> str:
    """Return a value as text, from which `value_of` returns an equal one.

    :raises ValueError: if it is not of this kind, or not finite.
    """
    if not is_finite(value):
        raise ValueError(f"{value} cannot be a bound")
    if kind is Kind.INTEGER and value == int(value):  # type: ignore[arg-type]
        return str(int(value))  # type: ignore[arg-type]
    if kind is Kind.DECIMAL and isinstance(value, (int, Decimal)):
        return format(Decimal(value), "f")
    if kind is Kind.FLOAT and isinstance(value, (int, float, Decimal)):
        return repr(float(value))
    if kind is Kind.DATE and isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if kind is Kind.TIMESTAMP and isinstance(value, datetime) and value.tzinfo is None:
        return value.isoformat()
    if kind is Kind.TIMESTAMP_TZ and isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    raise ValueError(f"{value!r} is not of the kind {kind.value!r}")


_NUMBERS = {
    Kind.INTEGER: r"-?\d+",
    Kind.DECIMAL: r"-?\d+(\.\d+)?",
    Kind.FLOAT: r"-?\d+(\.\d+)?(e[+-]?\d+)?",
}


def value_of(kind: Kind, text: str) -> Value:
    """Parse a value.

    :raises ValueError: if it is not of this kind.
    """
    if pattern := _NUMBERS.get(kind):
        if not re.fullmatch(pattern, text, re.ASCII | re.IGNORECASE):
            raise ValueError(f"{text!r} is not of the kind {kind.value!r}")
        return int(text) if kind is Kind.INTEGER else Decimal(text) if kind is Kind.DECIMAL else float(text)
    if kind is Kind.DATE:
        return date.fromisoformat(text)
    value = datetime.fromisoformat(text)
    if (value.tzinfo is None) is (kind is Kind.TIMESTAMP_TZ):
        raise ValueError(f"{text!r} is not of the kind {kind.value!r}")
    return value


def given_value(kind: Kind, text: str) -> Value:
    """Parse a bound that a user gives, which may be an instant for any kind of time.

    For a column without a time zone, an instant is converted to UTC. A day means its first moment.

    :raises ValueError: with the expected form.
    """
    if not kind.is_time:
        try:
            return value_of(kind, text.strip())
        except ValueError:
            raise ValueError(f"the column is of the kind {kind.value!r}; give a number") from None
    try:
        instant = datetime.fromisoformat(text.strip())
        if instant.tzinfo is not None:
            instant = instant.astimezone(UTC)
    except (OverflowError, ValueError):
        raise ValueError(
            f"the column is of the kind {kind.value!r}; give a time such as 2026-01-31T00:00:00Z"
        ) from None
    if kind is Kind.TIMESTAMP_TZ:
        if instant.tzinfo is None:
            raise ValueError(
                "the column has instants with a time zone; add 'Z' or an offset, such as 2026-01-31T00:00:00Z"
            )
        return instant
    naive = instant.replace(tzinfo=None)
    if kind is Kind.TIMESTAMP:
        return naive
    if naive.time() != time():
        raise ValueError("the column has dates; give a date such as 2026-01-31, or an instant at midnight UTC")
    return naive.date()


def literal(dialect: str, kind: Kind, text: str) -> str:
    """Return a value as a SQL literal.

    :param dialect: the kind of database.
    :param text: the value, as `text_of` returns it.
    :raises ValueError: if it is not of this kind.
    """
    value = value_of(kind, text)
    if not kind.is_time:
        return text_of(kind, value)
    if not isinstance(value, datetime):
        text, standard, of_sql_server = value.isoformat(), "DATE", "DATE"  # type: ignore[union-attr]
    elif kind is Kind.TIMESTAMP:
        text, standard, of_sql_server = value.isoformat(" "), "TIMESTAMP", "DATETIME2"
    else:
        text = value.astimezone(UTC).isoformat(" ")
        # Oracle sees from the text whether there is a zone.
        standard = "TIMESTAMP" if dialect == ORACLE else "TIMESTAMP WITH TIME ZONE"
        of_sql_server = "DATETIMEOFFSET"
    return f"CAST('{text}' AS {of_sql_server})" if dialect == SQL_SERVER else f"{standard} '{text}'"


def is_null(dialect: str, name: str) -> str:
    """Return the condition for the rows without a value in a column."""
    # For MySQL, the zero date of a column that is NOT NULL is also NULL, but only to IS NULL.
    return f"{quoted(dialect, name)} {'<=> NULL' if dialect == MYSQL else 'IS NULL'}"


def is_not_null(dialect: str, name: str) -> str:
    """Return the condition for the rows with a value in a column."""
    return f"NOT ({is_null(dialect, name)})" if dialect == MYSQL else f"{quoted(dialect, name)} IS NOT NULL"


def can_be_bound(dialect: str, kind: Kind, name: str) -> str:
    """Return the condition for the values of a column of times that Python can represent, so that they can be bounds.

    Other values are in the ranges between bounds: infinity, BC, years above 9999, and MySQL's dates with a zero.
    """
    column = quoted(dialect, name)
    first, last = (literal(dialect, kind, f"{day}{_MIDNIGHT[kind]}") for day in (FIRST_BOUND, LAST_BOUND))
    without_zero = f" AND MONTH({column}) > 0 AND DAY({column}) > 0" if dialect == MYSQL else ""
    return f"{column} >= {first} AND {column} <= {last}{without_zero}"


def quoted(dialect: str, name: str) -> str:
    """Return the quoted name of a column."""
    mark = "`" if dialect == MYSQL else '"'
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"
