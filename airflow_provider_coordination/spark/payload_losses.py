"""What Spark's JSON parser changes without an error: digits of decimals and seconds, and numbers beyond their type.

A payload is parsed a second time for that, with types that keep more. Only schemas that can lose something pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_coordination.sources.landed_types import MOST_DIGITS

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

NANOSECONDS = r"[.]\d{6}\d*[1-9]"
"""A digit of a second that a TIMESTAMP cannot hold."""


def wider_schema(schema: StructType) -> StructType:
    """Return the fields of a schema with their `wider_type`."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, wider_type(f.dataType), f.nullable) for f in schema.fields])


def wider_type(kind: DataType) -> DataType:
    """Return a type that keeps what a type would change: text for times, more digits for decimals."""
    from pyspark.sql import types

    if isinstance(kind, types.TimestampType | types.TimestampNTZType):
        return types.StringType()
    if isinstance(kind, types.DecimalType):
        return types.DecimalType(MOST_DIGITS, MOST_DIGITS - (kind.precision - kind.scale))
    if isinstance(kind, types.StructType):
        return wider_schema(kind)
    if isinstance(kind, types.ArrayType):
        return types.ArrayType(wider_type(kind.elementType), kind.containsNull)
    if isinstance(kind, types.MapType):
        return types.MapType(kind.keyType, wider_type(kind.valueType), kind.valueContainsNull)
    return kind


def loses(kind: DataType) -> bool:
    """Return whether Spark's parser may change a value of a type without an error."""
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        return any(loses(field.dataType) for field in kind.fields)
    if isinstance(kind, types.ArrayType):
        return loses(kind.elementType)
    if isinstance(kind, types.MapType):
        return loses(kind.valueType)
    return isinstance(
        kind, types.TimestampType | types.TimestampNTZType | types.DecimalType | types.FloatType | types.DoubleType
    )


def is_kept(kind: DataType, value: Column, wider: Column) -> Column:
    """Return whether a value is what the payload has.

    :param kind: its type, one that `loses`.
    :param value: the value, parsed as that type.
    :param wider: the same, parsed as `wider_type` of it.
    """
    from pyspark.sql import functions, types

    if isinstance(kind, types.TimestampType | types.TimestampNTZType):
        return ~functions.coalesce(wider.rlike(NANOSECONDS), functions.lit(False))
    if isinstance(kind, types.DecimalType):
        return value.eqNullSafe(wider)
    if isinstance(kind, types.StructType):
        kept = functions.lit(True)
        for field in kind.fields:
            if loses(field.dataType):
                kept = kept & is_kept(field.dataType, value.getField(field.name), wider.getField(field.name))
        return kept
    if isinstance(kind, types.ArrayType):
        flags = functions.zip_with(value, wider, lambda each, wide: is_kept(kind.elementType, each, wide))
        return functions.coalesce(functions.forall(flags, lambda flag: flag), functions.lit(True))
    if isinstance(kind, types.MapType):
        as_array = types.ArrayType(kind.valueType)
        return is_kept(as_array, functions.map_values(value), functions.map_values(wider))
    return functions.coalesce(functions.abs(value) != functions.lit(float("inf")), functions.lit(True))
