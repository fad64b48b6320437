"""Records of items on their way into a file: where each comes from, and all with the columns of all of them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.sources.items import ItemUnreadableError
from airflow_provider_coordination.spark.layout import BATCH_ID, ORIGIN, ROW


class Records:
    """Records in the order in which they were read, for a file: all with the columns of all of them."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self.schema = pa.schema([])

    def add(self, records: pa.Table) -> None:
        """Add records.

        :raises pa.ArrowException: if their columns do not go together with those that are there without a loss.
        """
        unified = self.schema
        if not records.schema.equals(unified):
            unified = pa.unify_schemas([unified, records.schema], promote_options="permissive")
            _check_case(unified.names)
            for schema in (self.schema, records.schema):
                if lossy := [field.name for field in schema if _loses(field.type, unified.field(field.name).type)]:
                    raise pa.ArrowInvalid(f"column {lossy[0]!r} has decimals and floating-point numbers")
            records = _widened([records], unified)
        if self.tables and not unified.equals(self.schema):
            self.tables = [_widened(self.tables, unified)]
        self.schema = unified
        self.tables.append(records)

    def copy(self) -> Records:
        """Return the same, to be gone on with apart."""
        other = Records()
        other.tables, other.schema = list(self.tables), self.schema
        return other


def _widened(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return tables as one with the columns of a schema that each of them goes with."""
    return pa.concat_tables([schema.empty_table(), *tables], promote_options="permissive")


def _check_case(columns: Sequence[str]) -> None:
    """Check that Spark can tell columns apart.

    :raises pa.ArrowInvalid: if it cannot.
    """
    by_lower: dict[str, str] = {}
    for name in columns:
        if (other := by_lower.setdefault(name.lower(), name)) != name:
            raise pa.ArrowInvalid(f"columns {other!r} and {name!r} differ by case alone, and Spark takes them for one")


def _loses(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether a wider type holds less of the values than the narrower one: the only one that Arrow lets pass."""
    if pa.types.is_decimal(before):
        return bool(pa.types.is_floating(after))
    if pa.types.is_struct(before):
        return any(_loses(field.type, after.field(field.name).type) for field in before)
    if pa.types.is_list(before) or pa.types.is_large_list(before):
        return _loses(before.value_type, after.value_type)
    return False


def with_origin(records: pa.Table, origin: str, first_row: int) -> pa.Table:
    """Return records with the columns that say where each comes from.

    :param first_row: the number of the first of them among those of its origin.
    :raises ItemUnreadableError: if one of their columns has the name of one of ours.
    """
    check_names(records.column_names)
    counted = pc.indices_nonzero(pa.repeat(True, records.num_rows))  # a range of Python's takes a hundred times as long
    rows = pc.add(counted.cast(pa.int64()), first_row)
    origins = pa.repeat(pa.scalar(origin, pa.string()), records.num_rows)
    return records.append_column(ORIGIN, origins).append_column(ROW, rows)


def check_names(columns: Sequence[str]) -> None:
    """Check that no column has the name of one that landing adds.

    :raises ItemUnreadableError: if one has.
    """
    if taken := [name for name in columns if name.lower() in (ORIGIN, ROW, BATCH_ID)]:
        raise ItemUnreadableError(f"it has a column {taken[0]!r}, which is the provider's; rename it")
