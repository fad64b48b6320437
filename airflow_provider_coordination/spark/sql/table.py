"""The target table of rows: it is created if missing, compared with the rows, and extended with columns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.sql.committed_batches import TABLE, CommittedBatches
from airflow_provider_coordination.spark.sql.database import Column, DatabaseSession, SinkDatabase
from airflow_provider_coordination.spark.writes.sql import SqlTable

log = logging.getLogger(__name__)


class Table:
    """One table.

    :param database: the database of the table.
    :param settings: the settings of the table.
    :param taken: the batches that the table has.
    """

    def __init__(self, database: SinkDatabase, settings: SqlTable, taken: CommittedBatches) -> None:
        self._database = database
        self._settings = settings
        self._taken = taken

    @property
    def _name(self) -> str:
        return f"{self._database.quoted(self._settings.schema)}.{self._database.quoted(self._settings.table_name)}"

    def create_batches_table(self, cursor: Any) -> None:
        """Create the table of batches if it does not exist."""
        if not self._taken.exists(cursor):
            self._database.lock(cursor)
            if not self._taken.exists(cursor):
                cursor.execute(self._taken.definition)

    def check(self, cursor: Any, schema: pa.Schema) -> None:
        """Check that the table can accept rows once it is created or has new columns.

        :raises DeliveryError: naming the column, its types and the remedy.
        """
        self._changes(cursor, schema)

    def create_or_alter(self, session: DatabaseSession, schema: pa.Schema) -> None:
        """Create the table, or add its missing columns; call `create_batches_table` first.

        :raises DeliveryError: see `check`.
        """
        if session.run(lambda cursor: self._changes(cursor, schema) or not self._taken.any(cursor)):
            session.run(lambda cursor: self._change(cursor, schema))

    def _change(self, cursor: Any, schema: pa.Schema) -> None:
        self._database.lock(cursor)
        is_there = self._columns(cursor) is not None
        for statement in self._changes(cursor, schema):
            log.info("%s: %s", self._settings.sink_location, statement)
            cursor.execute(statement)
        if is_there and not self._taken.any(cursor):
            self._taken.restore(cursor)

    def _columns(self, cursor: Any) -> list[Column] | None:
        return self._database.columns(cursor, self._settings.table_name)

    def _changes(self, cursor: Any, schema: pa.Schema) -> list[str]:
        """Return the statements that the table needs before it can accept rows."""
        self._check_keys(schema)
        columns = self._columns(cursor)
        if columns is None:
            if self._taken.exists(cursor) and self._taken.any(cursor):
                raise DeliveryError(
                    f"table {self._name} is gone, but it had batches: restore it; or, to begin a new one, run "
                    f"DELETE FROM {TABLE} WHERE target = '{self._settings.table_name}'"
                )
            return self._creation(schema)
        missing = self._compare(columns, schema)
        if self._settings.merge_on and frozenset(self._settings.merge_on) not in self._database.unique_keys(cursor):
            keys = ", ".join(map(self._database.quoted, self._settings.merge_on))
            raise DeliveryError(
                f"table {self._name} has no unique key of the columns of 'merge_on': ALTER TABLE {self._name} ADD "
                f"UNIQUE ({keys})"
            )
        return [f"ALTER TABLE {self._name} ADD COLUMN {self._definition(field)}" for field in missing]

    def _creation(self, schema: pa.Schema) -> list[str]:
        keys = ", ".join(map(self._database.quoted, self._settings.merge_on))
        parts = [*map(self._definition, schema), *([f"PRIMARY KEY ({keys})"] if keys else [])]
        return [
            f"CREATE TABLE {self._name} ({', '.join(parts)}){self._database.table_options}",
            f"CREATE INDEX {self._database.quoted(self._index)} ON {self._name} ({self._database.quoted(BATCH_ID)})",
        ]

    @property
    def _index(self) -> str:
        return f"{self._settings.table_name[:40]}{BATCH_ID}"

    def _definition(self, field: pa.Field) -> str:
        """Return the definition of a column.

        :raises DeliveryError: if the database has no type for it.
        """
        is_key = field.name in self._settings.merge_on
        kind = self._database.type_for(field.type, is_key=is_key)
        if field.name == BATCH_ID:
            kind = self._database.batch_id_type
        if kind is None:
            raise DeliveryError(
                f"column {field.name!r} has the type {field.type}, but {self._settings.server.database} has no such "
                "type: cast it in the transform"
            )
        return f"{self._database.quoted(field.name)} {kind}"

    def _compare(self, columns: Sequence[Column], schema: pa.Schema) -> list[pa.Field]:
        """Return the columns of the rows that the table lacks.

        :raises DeliveryError: if it cannot accept the other columns, or requires columns that the rows lack.
        """
        known = {column.name: column for column in columns}
        missing = [field for field in schema if field.name not in known]
        self._check_spelling(known, missing)
        for field in schema:
            column = known.get(field.name)
            if column is not None and not self._database.holds(column, field.type):
                raise DeliveryError(
                    f"column {field.name!r} of table {self._name} is {column.type}, which cannot store every value of "
                    f"{field.type} exactly: cast it in the transform, or change the column"
                )
        given = set(schema.names)
        for column in columns:
            if column.is_required and column.name not in given:
                raise DeliveryError(
                    f"column {column.name!r} of table {self._name} ({column.type}) must not be null and has no "
                    "default, but the rows do not have it: add it in the transform, or give the column a default"
                )
        if missing and not self._settings.add_columns:
            listed = " and ".join(f"{field.name!r} ({field.type})" for field in missing)
            raise DeliveryError(
                f"table {self._name} has no column {listed}: add it, set 'add_columns' of SqlTable, or drop it in the "
                "transform"
            )
        return missing

    def _check_spelling(self, known: Iterable[str], missing: Sequence[pa.Field]) -> None:
        """Check that no missing column is one of the table's in another case.

        :raises DeliveryError: naming both.
        """
        spelled = {name.lower(): name for name in known} if self._database.ignores_case else {}
        for field in missing:
            if (other := spelled.get(field.name.lower())) is not None:
                raise DeliveryError(
                    f"column {field.name!r} is {other!r} in table {self._name}, and {self._settings.server.database} "
                    f"ignores the case of names: rename it to {other!r} in the transform"
                )

    # Rows

    def _check_keys(self, schema: pa.Schema) -> None:
        for name in self._settings.merge_on:
            if name not in schema.names:
                raise DeliveryError(
                    f"'merge_on' names the column {name!r}, but the rows have {', '.join(schema.names)}"
                )

    def check_values(self, schema: pa.Schema, read: Callable[[Sequence[str]], pa.Table]) -> None:
        """Check the rows of a batch for errors that the database would report late, or not at all.

        :param schema: the columns of the rows.
        :param read: returns the rows, with some of the columns.
        :raises DeliveryError: naming the column and the remedy.
        """
        keys = self._settings.merge_on
        self._check_keys(schema)
        floating = [
            field.name for field in schema if pa.types.is_floating(field.type) and not self._database.accepts_nan
        ]
        if wanted := list(dict.fromkeys((*keys, *floating))):
            rows = read(wanted)
            for name in floating:
                _check_finite(name, rows.column(name))
            if keys:
                _check_unique(list(keys), rows)


def _check_finite(name: str, column: pa.ChunkedArray) -> None:
    if not pc.all(pc.is_finite(column), min_count=0).as_py():
        raise DeliveryError(
            f"column {name!r} holds NaN or an infinite value, which the database cannot store: replace it by null in "
            "the transform, or mark such records as bad"
        )


def _check_unique(keys: list[str], rows: pa.Table) -> None:
    for name in keys:
        if nulls := rows.column(name).null_count:
            raise DeliveryError(
                f"column {name!r} of 'merge_on' is null in {nulls} of {rows.num_rows} rows, but a key must have a "
                "value; drop such rows in the transform"
            )
    counted = rows.select(keys).group_by(keys).aggregate([([], "count_all")])
    several = counted.filter(pc.greater(counted.column("count_all"), 1)).num_rows
    if several:
        raise DeliveryError(
            f"{several} keys of 'merge_on' ({', '.join(keys)}) occur more than once in the batch, but the table can "
            "hold only one row of each: keep one in the transform"
        )
