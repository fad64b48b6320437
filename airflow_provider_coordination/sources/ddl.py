"""Columns in Spark's DDL as Arrow types, without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import ConfigurationError

SIMPLE: Mapping[str, pa.DataType] = {
    "BIGINT": pa.int64(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "BYTE": pa.int8(),
    "DATE": pa.date32(),
    "DECIMAL": pa.decimal128(10, 0),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "LONG": pa.int64(),
    "REAL": pa.float32(),
    "SHORT": pa.int16(),
    "SMALLINT": pa.int16(),
    "STRING": pa.string(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "TINYINT": pa.int8(),
}
"""Spark's type names, and the Arrow types."""
EXAMPLE = "'id BIGINT, name STRING, price DECIMAL(10,2)'"


def arrow_fields(ddl: str) -> list[pa.Field]:
    """Parse columns such as `id BIGINT, name STRING, tags ARRAY<STRING>`.

    :raises ConfigurationError: naming what is wrong.
    """
    return list(_Parser(ddl).fields(end=""))


class _Parser:
    """Reads DDL from left to right."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._words = re.findall(r"`[^`]+`|\w+|[^\w\s]", ddl)
        self._next = 0

    def fields(self, end: str, colon: bool = False) -> Iterator[pa.Field]:
        """Yield the columns up to an end."""
        while True:
            name = self._word("the name of a column").strip("`")
            if colon and self._peek() == ":":
                self._take(":")
            yield pa.field(name, self._type())
            if self._peek() != ",":
                break
            self._take(",")
        if self._peek() != end:
            raise self._wrong(f"{self._peek()!r} cannot follow a column's type")

    def _type(self) -> pa.DataType:
        name = self._word("a type").upper()
        if name == "ARRAY":
            self._take("<")
            kind = pa.list_(self._type())
            self._take(">")
            return kind
        if name == "STRUCT":
            self._take("<")
            kind = pa.struct(list(self.fields(end=">", colon=True)))
            self._take(">")
            return kind
        if name == "DECIMAL" and self._peek() == "(":
            return self._decimal()
        if name not in SIMPLE:
            raise self._wrong(f"{name!r} is not a type; types are {', '.join(SIMPLE)}, ARRAY<...> and STRUCT<...>")
        return SIMPLE[name]

    def _decimal(self) -> pa.DataType:
        self._take("(")
        precision, scale = self._word("the precision"), "0"
        if self._peek() == ",":
            self._take(",")
            scale = self._word("the scale")
        self._take(")")
        if not (precision.isdigit() and scale.isdigit() and 0 < int(precision) <= 38 and int(scale) <= int(precision)):
            raise self._wrong(f"DECIMAL({precision},{scale}) is invalid; give at most 38 digits")
        return pa.decimal128(int(precision), int(scale))

    def _peek(self) -> str:
        return self._words[self._next] if self._next < len(self._words) else ""

    def _word(self, what: str) -> str:
        word = self._peek()
        if not re.match(r"[\w`]", word):
            raise self._wrong(f"{what} is missing" if not word else f"{word!r} is not {what}")
        self._next += 1
        return word

    def _take(self, sign: str) -> None:
        if self._peek() != sign:
            raise self._wrong(f"{sign!r} is missing")
        self._next += 1

    def _wrong(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"columns {self._ddl!r} cannot be parsed: {what}; give names and types, as {EXAMPLE}")
