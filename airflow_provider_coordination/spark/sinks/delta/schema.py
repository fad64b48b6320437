"""Which columns a delivery brings to a Delta table, and whether the table can accept them.

A table accepts new columns, and values of a narrower type than its column has. Any other difference is an error that
names the columns and both types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from deltalake import Field, Schema
from deltalake.schema import PrimitiveType

from airflow_provider_coordination.spark.column_names import similar_names
from airflow_provider_coordination.spark.delivery import DeliveryError

WIDER = (("byte", "short", "integer", "long"), ("float", "double"))
"""Types in order: each one holds all values of those before it."""


@dataclass(frozen=True, kw_only=True)
class SchemaFit:
    """How columns fit into a table.

    :param added: the columns that the table does not have.
    :param taken: all the columns, as the table has them or will have them.
    """

    added: list[Field]
    taken: Schema


def schema_from(columns: pa.Schema, declared: Mapping[str, str], location: str) -> Schema:
    """Return the Delta columns for data; none of them is required.

    :param columns: the columns of the data.
    :param declared: the declared types of columns, by name; these columns are included even if the data lacks them.
    :param location: the table, for errors.
    :raises DeliveryError: naming the columns for which Delta has no type.
    """
    types = {name: PrimitiveType(kind) for name, kind in declared.items()}
    fields, wrong = [], []
    if similar := similar_names(columns):
        raise DeliveryError(
            f"table {location}: columns {similar[0]!r} and {similar[1]!r} differ only in case; rename one in the "
            "transform"
        )
    for column in columns:
        try:
            [field] = Schema.from_arrow(pa.schema([pa.field(column.name, _in_microseconds(column.type))])).fields
        except Exception as error:  # its class depends on the type
            wrong.append(f"{column.name!r} is {str(column.type)!r} ({error})")
            continue
        fields.append(Field(column.name, types.pop(column.name, field.type), nullable=True))
    if wrong:
        raise DeliveryError(
            f"table {location}: Delta has no type for column {', '.join(wrong)}; convert it in the transform"
        )
    return Schema([*fields, *(Field(name, type, nullable=True) for name, type in types.items())])


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind


def fit(columns: Schema, table: Schema, location: str) -> SchemaFit:
    """Return how columns fit into a table.

    :param columns: the columns.
    :param table: the columns of the table.
    :param location: the table, for errors.
    :raises DeliveryError: naming the columns that do not fit, with both types.
    """
    has = {field.name: field for field in table.fields}
    spelled = {name.lower(): name for name in has}
    added, taken, wrong = [], [], []
    for field in columns.fields:
        known = has.get(field.name)
        if known is not None:
            taken.append(known)
            if not _holds(known, field):
                wrong.append(f"{field.name!r} is {_text(field)!r}, but {_text(known)!r} in the table")
        elif (other := spelled.get(field.name.lower())) is not None:
            wrong.append(f"{field.name!r} is {other!r} in the table")
        else:
            added.append(field)
            taken.append(field)
    names = {field.name for field in columns.fields}
    wrong += [
        f"{name!r} is missing, but the table requires it"
        for name, f in has.items()
        if not f.nullable and name not in names
    ]
    if wrong:
        raise DeliveryError(
            f"table {location} cannot accept the records: column {'; column '.join(wrong)}. Convert it in the "
            "transform, or change the table; the batches wait until then"
        )
    return SchemaFit(added=added, taken=Schema(taken))


def union(schemas: Iterable[Schema], location: str) -> Schema:
    """Return the columns of several schemas together.

    :raises DeliveryError: if a column has two types.
    """
    fields: dict[str, Field] = {}
    for schema in schemas:
        for field in schema.fields:
            known = fields.setdefault(field.name, field)
            if _text(known) != _text(field):
                raise DeliveryError(
                    f"table {location}: column {field.name!r} is {_text(known)!r} in some batches and {_text(field)!r} "
                    "in others; convert it in the transform"
                )
    return Schema(list(fields.values()))


def arrow_of(schema: Schema) -> pa.Schema:
    """Return the pyarrow schema of columns."""
    return pa.schema(schema.to_arrow())


def same_columns(one: Schema, other: Schema) -> bool:
    """Return whether two schemas have the same names and types, in any order."""
    return _texts(one) == _texts(other)


def _texts(schema: Schema) -> Mapping[str, str]:
    return {field.name: _text(field) for field in schema.fields}


def _text(field: Field) -> str:
    kind = field.type
    return str(kind.type) if isinstance(kind, PrimitiveType) else json.dumps(json.loads(kind.to_json()), sort_keys=True)


def _holds(table: Field, columns: Field) -> bool:
    """Return whether a column of a table holds all values of another column."""
    ours, theirs = _text(table), _text(columns)
    if ours == theirs:
        return True
    for types in WIDER:
        if ours in types and theirs in types:
            return types.index(theirs) <= types.index(ours)
    mine, its = _decimal(ours), _decimal(theirs)
    return mine is not None and its is not None and mine[0] - mine[1] >= its[0] - its[1] and mine[1] >= its[1]


def _decimal(kind: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", kind)
    return None if found is None else (int(found[1]), int(found[2]))
