"""Records of items before they are written to a file: with their origin, and all with the same columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.sources.items import ItemUnreadableError
from airflow_provider_coordination.sources.landed_types import with_landed_types
from airflow_provider_coordination.spark.layout import BATCH_ID, ORIGIN, ROW, similar_names

SMALL_TABLES = 64
"""How many tables are combined into one: a table of a few rows takes several times the memory of its columns."""
SMALL_BYTES = 16 * 2**20
"""The maximum size of tables that are combined into one."""


class Records:
    """Records for a file, in the order in which they were read; each has the columns of all records.

    Records that were added since the last `keep` can be dropped. Once some were taken, the columns no longer change.
    """

    def __init__(self) -> None:
        self.schema = pa.schema([])
        self.bytes = 0
        """The size of their columns in bytes."""
        self._kept: list[pa.Table] = []
        self._added: list[pa.Table] = []
        self._before = self.schema, self._kept  # the state that `drop` restores
        self._whole = 0  # the number of kept tables that are combined already
        self._is_begun = False

    @property
    def are_kept(self) -> bool:
        """Whether records are kept, including those that were taken."""
        return self._is_begun or bool(self._kept)

    def add(self, records: pa.Table) -> None:
        """Add records.

        :raises pa.ArrowException: if their columns cannot be combined with the present columns without a loss, or are
            more or wider than the columns of records that were taken.
        """
        if not records.schema.equals(self.schema):
            unified = pa.unify_schemas([self.schema, records.schema], promote_options="permissive")
            if similar := similar_names(unified):
                raise pa.ArrowInvalid(_as_one(*similar))
            for schema in (self.schema, records.schema):
                for field in schema:
                    if _loses(field.type, both := unified.field(field.name).type):
                        raise pa.ArrowInvalid(f"column {field.name!r} is {field.type}, which {both} cannot hold")
            records = _widened([records], unified)
            if not unified.equals(self.schema):
                self._widen(unified)
        self._added.append(records)
        self.bytes += records.nbytes

    def _widen(self, schema: pa.Schema) -> None:
        if self._is_begun:
            raise pa.ArrowInvalid("a part of the file is written, so its columns cannot change any more")
        kept, added = ([_widened(tables, schema)] if tables else [] for tables in (self._kept, self._added))
        self.schema, self._kept, self._added, self._whole = schema, kept, added, len(kept)
        self._count()

    def keep(self) -> None:
        """Keep the records that were added."""
        self._kept += self._added
        self._added = []
        if len(few := self._kept[self._whole :]) >= SMALL_TABLES:
            if sum(table.nbytes for table in few) <= SMALL_BYTES:
                self._kept[self._whole :] = [pa.concat_tables(few).combine_chunks()]
            self._whole = len(self._kept)
        self._before = self.schema, self._kept

    def drop(self) -> None:
        """Drop the records that were added since the last `keep`, with the columns that only they have."""
        self.schema, self._kept = self._before
        self._added = []
        self._count()

    def take(self) -> pa.Table | None:
        """Return the kept records and remove them here; None if there are none. All added records must be kept."""
        if not self._kept:
            return None
        taken = pa.concat_tables(self._kept)
        self._kept, self._whole, self._is_begun = [], 0, True
        self._before = self.schema, self._kept
        self._count()
        return taken

    def _count(self) -> None:
        self.bytes = sum(table.nbytes for table in (*self._kept, *self._added))


def _widened(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return tables as one table with the columns of a schema that is compatible with each of them."""
    return pa.concat_tables([schema.empty_table(), *tables], promote_options="permissive")


def _as_one(one: str, other: str) -> str:
    difference = "have the same name" if one == other else "differ only by case"
    return f"columns {one!r} and {other!r} {difference}, and Spark treats them as one"


def _loses(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether a type to which Arrow widens another one changes its values, or is not landed.

    Arrow permits decimals as floats, text as bytes, and decimals of more digits than others have.
    """
    types = pa.types
    if types.is_decimal(before):
        return not types.is_decimal128(after)
    if types.is_string(before):
        return bool(types.is_binary(after))
    if types.is_struct(before):
        return any(_loses(field.type, after.field(field.name).type) for field in before)
    if types.is_map(before):
        return _loses(before.key_type, after.key_type) or _loses(before.item_type, after.item_type)
    return bool(types.is_list(before)) and _loses(before.value_type, after.value_type)


def with_origin(records: pa.Table, origin: str, first_row: int) -> pa.Table:
    """Return records as they are landed: with landed types, and the columns of their origin and row number.

    :param first_row: the number of the first record among the records of its origin.
    :raises ItemUnreadableError: if the name or the type of a column, or one of its values, cannot be landed.
    """
    check_names(records.column_names)
    if similar := similar_names(records.schema):
        raise ItemUnreadableError(f"{_as_one(*similar)}; rename one in the source")
    counted = pc.indices_nonzero(pa.repeat(True, records.num_rows))  # a Python range takes a hundred times as long
    rows = pc.add(counted.cast(pa.int64()), first_row)
    origins = pa.repeat(pa.scalar(origin, pa.string()), records.num_rows)
    return with_landed_types(records.append_column(ORIGIN, origins).append_column(ROW, rows))


def check_names(columns: Sequence[str]) -> None:
    """Check that no column has the name of a column that landing adds.

    :raises ItemUnreadableError: if a column has such a name.
    """
    if taken := [name for name in columns if name.lower() in (ORIGIN, ROW, BATCH_ID)]:
        raise ItemUnreadableError(f"it has a column {taken[0]!r}, whose name is reserved; rename it")
