"""The texts of a payload as they were sent: Spark's JSON parser makes a number a double before it makes it a text.

So a STRING would get `1.0E-130` for `1E-130`, and a DECIMAL or a BIGINT would be computed from a double. A payload that
has such values is parsed again with its numbers in quotes. Others do not pay for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING

from airflow_provider_coordination.spark.payload_values import MARK, is_converted, once, value_of

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

NUMBER_OUTSIDE_TEXTS = (
    r'\G([^"\d-]*+(?:"[^"\\]*+(?:\\[\s\S][^"\\]*+)*+"[^"\d-]*+)*+)(-?\d[\d.eE+-]*+)'  # possessive: without recursion
)
MARKED = rf'"?{MARK}([-+.0-9eE]+)"?'
"""A marked number, also within the JSON of an object that is a text."""
CHANGEABLE = r"\d[.eE]|-0"
"""What a payload has in which the parser may change the text of a number."""
CHANGED_TEXT = r'^-?\d+[.]\d+(E-?\d+)?$|^0$|^"-?Infinity"$|^[\[{][\s\S]*(\d[.]\d|0|Infinity)'
"""A STRING that may be a number, or have one, with another text than it was sent with."""


def marked(payload: Column) -> Column:
    """Return a payload whose numbers are texts that begin with `MARK`."""
    from pyspark.sql import functions

    return functions.regexp_replace(payload, NUMBER_OUTSIDE_TEXTS, f'$1"{MARK}$2"')


def unmarked(text: Column) -> Column:
    """Return a text, or the JSON of an object, as it was before `marked`."""
    from pyspark.sql import functions

    return functions.regexp_replace(text, MARKED, "$1")


def text_type(kind: DataType) -> DataType | None:
    """Return a type with STRING in place of each value whose text counts; None if there is none."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    if isinstance(kind, StructType):
        inner = [(field.name, text_type(field.dataType)) for field in kind.fields]
        fields = [StructField(name, each) for name, each in inner if each is not None]
        return StructType(fields) if fields else None
    if isinstance(kind, ArrayType):
        element = text_type(kind.elementType)
        return None if element is None else ArrayType(element)
    if isinstance(kind, MapType):
        value = text_type(kind.valueType)
        return None if value is None else MapType(kind.keyType, value)
    return StringType() if isinstance(kind, StringType) or is_converted(kind.simpleString()) else None


def loses(kind: DataType) -> bool:
    """Return whether Spark's parser may change a value of a type, other than the text of a number."""
    return any(is_converted(each.simpleString()) for each in _types_of_values(kind))


def _types_of_values(kind: DataType) -> Iterator[DataType]:
    """Yield the types of the values that a type contains at any depth, without the keys of maps."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _types_of_values(field.dataType)
    elif isinstance(kind, ArrayType | MapType):
        yield from _types_of_values(kind.elementType if isinstance(kind, ArrayType) else kind.valueType)
    else:
        yield kind


def is_kept(kind: DataType, value: Column, text: Column) -> Column:
    """Return whether a parsed value is what the payload has.

    :param kind: its type, which has a `text_type`.
    :param value: the value, parsed as that type.
    :param text: the same, parsed as `text_type` of it from the `marked` payload.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, StructType):
        parts = [
            is_kept(field.dataType, value.getField(field.name), text.getField(field.name))
            for field in kind.fields
            if text_type(field.dataType) is not None
        ]
        return value.isNull() | reduce(and_, parts)
    if isinstance(kind, ArrayType):
        flags = functions.zip_with(value, text, lambda each, given: is_kept(kind.elementType, each, given))
        return functions.coalesce(functions.forall(flags, lambda flag: flag), value.isNull())
    if isinstance(kind, MapType):
        keys = functions.map_keys(value)
        values = is_kept(ArrayType(kind.valueType), functions.map_values(value), functions.map_values(text))
        return value.isNull() | ((functions.size(functions.array_distinct(keys)) == functions.size(keys)) & values)
    given = text if isinstance(kind, StringType) else once(text, partial(value_of, kind.simpleString()))
    return value.isNull() | given.isNotNull()


def with_texts(kind: DataType, value: Column, text: Column) -> Column:
    """Return a parsed value with its texts as they were sent; see `is_kept` for the parameters."""
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if not _has_strings(kind):
        return value
    if isinstance(kind, StructType):
        fields = [
            with_texts(field.dataType, value.getField(field.name), text.getField(field.name)).alias(field.name)
            if _has_strings(field.dataType)
            else value.getField(field.name).alias(field.name)
            for field in kind.fields
        ]
        return functions.when(value.isNotNull(), functions.struct(*fields))
    if isinstance(kind, ArrayType):
        return functions.zip_with(value, text, lambda each, given: with_texts(kind.elementType, each, given))
    if isinstance(kind, MapType):
        values = with_texts(ArrayType(kind.valueType), functions.map_values(value), functions.map_values(text))
        return functions.map_from_arrays(functions.map_keys(value), values)
    assert isinstance(kind, StringType)
    return unmarked(text).cast(kind)


def _has_strings(kind: DataType) -> bool:
    from pyspark.sql.types import StringType

    return any(isinstance(each, StringType) for each in _types_of_values(kind))
