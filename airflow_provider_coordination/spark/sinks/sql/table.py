"""The target table of rows, and the table of the batches that it has.

The target is created if missing, compared with the rows, and extended with columns. The second table has one row for
each batch, written in the same transaction as the batch's rows. If two owners of a partition commit the same batch, the
unique key of that table decides. If a rejected batch is delivered again, the fencing token decides.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from airflow_provider_coordination.coordination.errors import PartitionNotOwnedError
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.ledger import short_description
from airflow_provider_coordination.spark.sinks.sql.columns import (
    INSTANT,
    NAME,
    column_type,
    stores_exactly,
)
from airflow_provider_coordination.spark.sinks.sql.database import DatabaseSession, SinkDatabase
from airflow_provider_coordination.spark.sinks.sql.deleted_keys import DeletedKeys
from airflow_provider_coordination.sql import MYSQL, POSTGRESQL

log = logging.getLogger(__name__)

TABLE = "_coordination_batches"
LOCK = "(lock)"
"""The id of a row of that table that is no batch; see `CommittedBatches.lock_target`."""
IDS_AT_A_TIME = 500
OPTIONS: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_default_charset": "utf8mb4"}


class CommittedBatches:
    """The batches that one table has.

    :param database: the database of the table.
    :param sink: the name of the sink.
    """

    def __init__(self, database: SinkDatabase, sink: str) -> None:
        self._database = database
        self._target = database.settings.table_name
        self._sink = sink
        self._rows = sa.table(self._target, sa.column(BATCH_ID), schema=database.settings.schema)
        self._table = sa.Table(
            TABLE,
            sa.MetaData(),
            sa.Column("target", NAME, primary_key=True),
            sa.Column("batch_id", NAME, primary_key=True),
            sa.Column("sink", NAME, nullable=False),
            sa.Column("partition_folder", NAME, nullable=False),
            sa.Column("set_id", NAME, nullable=False),
            sa.Column("fencing_token", sa.BigInteger, nullable=False),
            sa.Column("row_count", sa.BigInteger, nullable=False),
            sa.Column("committed_at", INSTANT, nullable=False),
            sa.Column("described", sa.Text().with_variant(mysql.MEDIUMTEXT(), MYSQL, "mariadb")),
            schema=database.settings.schema,
            **OPTIONS,
        )
        columns = self._table.c
        self._of_target = columns.target == self._target

    def exists(self, connection: sa.Connection) -> bool:
        """Return whether the table of batches exists."""
        return sa.inspect(connection).has_table(TABLE, schema=self._table.schema)

    def create(self, connection: sa.Connection) -> None:
        """Create the table of batches if it does not exist."""
        if not self.exists(connection):
            self._database.lock(connection)
            if not self.exists(connection):
                # MySQL's lock names one target: the job of another target may create the table too.
                connection.execute(CreateTable(self._table, if_not_exists=True))

    def any(self, connection: sa.Connection) -> bool:
        """Return whether the target has any batch; the table of batches must exist."""
        found = sa.select(sa.literal(1)).where(self._of_target, self._table.c.batch_id != LOCK).limit(1)
        return connection.scalar(found) is not None

    def among(self, connection: sa.Connection, attempts: Sequence[Attempt]) -> set[str]:
        """Return which of some batches the target has.

        :raises DeliveryError: if another sink of the job committed one of them.
        """
        by_id, committed = {attempt.batch_id: attempt for attempt in attempts}, set()
        batch_ids, columns = list(by_id) if self.exists(connection) else [], self._table.c
        for start in range(0, len(batch_ids), IDS_AT_A_TIME):
            known = sa.select(columns.batch_id, columns.sink, columns.set_id).where(
                self._of_target, columns.batch_id.in_(batch_ids[start : start + IDS_AT_A_TIME])
            )
            for batch_id, sink, set_id in connection.execute(known):
                self._check_own(by_id[batch_id], sink, set_id)
                committed.add(batch_id)
        return committed

    def restore(self, connection: sa.Connection) -> None:
        """Record the batches whose rows the target has, if the table of batches was lost or is new.

        Another job may commit its batches since it was seen to be empty: what is recorded is left as it is.
        """
        batch_id, empty, now = self._rows.c[BATCH_ID], sa.literal(""), sa.func.current_timestamp()
        found = (
            sa.select(
                sa.literal(self._target), batch_id, empty, empty, empty, sa.literal(0), sa.func.count(), now, sa.null()
            )
            .where(batch_id.is_not(None))
            .group_by(batch_id)
        )
        if self._database.dialect == POSTGRESQL:
            known = postgresql.insert(self._table).from_select(self._table.columns.keys(), found)
            connection.execute(known.on_conflict_do_nothing())
        else:
            same = mysql.insert(self._table).from_select(self._table.columns.keys(), found)
            connection.execute(same.on_duplicate_key_update(target=self._table.c.target))

    def lock_target(self, connection: sa.Connection) -> None:
        """Let transactions that merge deletes into the target follow one another: the lock lasts until the end of each.

        Without it, a delete could be lost. The tombstone of a key that has no row is all that a delete leaves, and it
        is visible to others only after its commit. A simultaneous transaction with an older change of the key would
        find neither row nor tombstone, and there would be no row on which it has to wait; it would insert the older
        row. With the lock, each transaction begins to read after the former one has ended. As each statement of READ
        COMMITTED sees what was committed before it, each sees all tombstones.

        The lock is a row that is written, beside the batches: it ends with the transaction whatever becomes of the
        session, and servers of a cluster that all accept writes notice when two of them write it. It comes before the
        claim of a batch, whose former rows may be those that another transaction merges.
        """
        row = {
            "target": self._target, "batch_id": LOCK, "sink": "", "partition_folder": "", "set_id": "",
            "fencing_token": 0, "row_count": 0, "committed_at": sa.func.current_timestamp(),
        }  # fmt: skip
        now = {"committed_at": sa.func.current_timestamp()}
        if self._database.dialect == POSTGRESQL:
            key = [self._table.c.target, self._table.c.batch_id]
            connection.execute(
                postgresql.insert(self._table).values(row).on_conflict_do_update(index_elements=key, set_=now)
            )
        else:
            connection.execute(mysql.insert(self._table).values(row).on_duplicate_key_update(now))

    def claim(self, connection: sa.Connection, attempt: Attempt, rows: int) -> bool:
        """Record that an attempt commits a batch; its row stays locked until the transaction ends.

        :returns: whether the rows must be written; False if the batch is already in.
        :raises PartitionNotOwnedError: if a later owner has delivered the batch again.
        :raises DeliveryError: if another sink of the job has committed the batch.
        """
        columns = self._table.c
        noted = {
            "sink": self._sink,
            "partition_folder": attempt.folder,
            "set_id": attempt.set_id,
            "fencing_token": attempt.fencing_token,
            "row_count": rows,
            "committed_at": sa.func.current_timestamp(),
            "described": json.dumps(short_description(attempt)),
        }
        row = {"target": self._target, "batch_id": attempt.batch_id, **noted}
        inserted = connection.execute(self._insert_unless_known(row), execution_options={"preserve_rowcount": True})
        if inserted.rowcount == 1:
            return True
        is_it = sa.and_(self._of_target, columns.batch_id == attempt.batch_id)
        known = sa.select(columns.sink, columns.set_id, columns.fencing_token).where(is_it).with_for_update()
        sink, set_id, fencing_token = connection.execute(known).one()
        if not self._is_owed(attempt, sink, set_id, fencing_token):
            return False
        connection.execute(sa.delete(self._rows).where(self._rows.c[BATCH_ID] == attempt.batch_id))
        connection.execute(sa.update(self._table).where(is_it).values(noted))
        return True

    def note_rows(self, connection: sa.Connection, attempt: Attempt, rows: int) -> None:
        """Correct the number of rows of a batch that the same transaction has claimed."""
        is_it = sa.and_(self._of_target, self._table.c.batch_id == attempt.batch_id)
        connection.execute(sa.update(self._table).where(is_it).values(row_count=rows))

    def recorded(self, connection: sa.Connection) -> Iterator[tuple[str, int, str | None]]:
        """Yield the id, the number of rows and the description of each batch that the target has."""
        columns = self._table.c
        every = sa.select(columns.batch_id, columns.row_count, columns.described).where(
            self._of_target, columns.batch_id != LOCK
        )
        for row in connection.execute(every, execution_options={"yield_per": 10_000}):
            yield row.batch_id, row.row_count, row.described

    def counted(self, connection: sa.Connection) -> dict[str, int]:
        """Return the number of rows of each batch in the target, by batch id."""
        batch_id = self._rows.c[BATCH_ID]
        grouped = sa.select(batch_id, sa.func.count()).select_from(self._rows).group_by(batch_id)
        return {found: count for found, count in connection.execute(grouped) if found is not None}

    def has_target(self, connection: sa.Connection) -> bool:
        """Return whether the target exists."""
        return sa.inspect(connection).has_table(self._target, schema=self._table.schema)

    def tokens(self, connection: sa.Connection, batch_ids: Sequence[str]) -> dict[str, int]:
        """Return the fencing tokens of the leases under which batches were committed, by batch id."""
        columns, found = self._table.c, dict[str, int]()
        for start in range(0, len(batch_ids), IDS_AT_A_TIME):
            known = sa.select(columns.batch_id, columns.fencing_token).where(
                self._of_target, columns.batch_id.in_(batch_ids[start : start + IDS_AT_A_TIME])
            )
            for batch_id, token in connection.execute(known):
                found[batch_id] = token
        return found

    def _insert_unless_known(self, row: dict[str, Any]) -> sa.Insert:
        if self._database.dialect == POSTGRESQL:
            return postgresql.insert(self._table).values(row).on_conflict_do_nothing()
        return mysql.insert(self._table).values(row).on_duplicate_key_update(target=self._table.c.target)

    def _is_owed(self, attempt: Attempt, sink: str, set_id: str, fencing_token: int) -> bool:
        """Return whether an attempt replaces the committed rows; see `claim`."""
        self._check_own(attempt, sink, set_id)
        if set_id == attempt.set_id or not attempt.batch.redeliver:
            return False
        if fencing_token > attempt.fencing_token:
            raise PartitionNotOwnedError(
                f"batch {attempt.batch_id} was delivered again under fencing token {fencing_token}; this job has "
                f"{attempt.fencing_token}"
            )
        return True

    def _check_own(self, attempt: Attempt, sink: str, set_id: str) -> None:
        """Check that no other sink of the job has committed a batch to the same table."""
        if set_id == attempt.set_id and sink != self._sink:
            raise DeliveryError(
                f"batch {attempt.batch_id}: sink {sink!r} of the same job has committed it to this table, and sink "
                f"{self._sink!r} would do so too: give each sink its own table"
            )


class Table:
    """One table.

    :param database: the database of the table.
    :param taken: the batches that the table has.
    """

    def __init__(self, database: SinkDatabase, taken: CommittedBatches) -> None:
        self._database = database
        self._settings = database.settings
        self._merging = database.merging
        self._taken = taken
        self._deleted_keys = DeletedKeys(database)

    def check(self, connection: sa.Connection, schema: pa.Schema) -> None:
        """Check that the table can accept rows once it is created or has new columns.

        :raises DeliveryError: naming the column, its types and the remedy.
        """
        self._changes(connection, schema)

    def create_or_alter(self, session: DatabaseSession, schema: pa.Schema) -> None:
        """Create the table, or add its missing columns; the table of batches must exist.

        :raises DeliveryError: see `check`.
        """
        if session.run(lambda connection: self._changes(connection, schema) or not self._taken.any(connection)):
            session.run(lambda connection: self._change(connection, schema))

    def _change(self, connection: sa.Connection, schema: pa.Schema) -> None:
        self._database.lock(connection)
        is_there = self._columns(sa.inspect(connection)) is not None
        for statement in self._changes(connection, schema):
            log.info("%s: %s", self._settings.sink_location, statement)
            connection.exec_driver_sql(statement)
        if is_there and not self._taken.any(connection):
            self._taken.restore(connection)

    def _columns(self, inspector: sa.Inspector) -> list[ReflectedColumn] | None:
        """Return the columns of the table; None if there is no such table."""
        try:
            columns = inspector.get_columns(self._settings.table_name, self._settings.schema)
        except sa.exc.NoSuchTableError:
            return None
        self._database.check_table(inspector)
        return columns

    def _changes(self, connection: sa.Connection, schema: pa.Schema) -> list[str]:
        """Return the statements that the table needs before it can accept rows."""
        inspector = sa.inspect(connection)
        columns = self._columns(inspector)
        if columns is None:
            if self._taken.exists(connection) and self._taken.any(connection):
                raise DeliveryError(
                    f"table {self._database.table} is gone, but it had batches: restore it; or, to begin a new one, "
                    f"run DELETE FROM {TABLE} WHERE target = '{self._settings.table_name}'"
                )
            return [
                *self._deleted_keys.removal(inspector), *self._creation(schema), *self._deleted_keys.creation()
            ]  # fmt: skip
        missing = self._compare(columns, schema)
        if self._settings.merge_on and not self._has_key(inspector, frozenset(self._settings.merge_on)):
            listed = ", ".join(map(self._database.quoted, self._settings.merge_on))
            raise DeliveryError(
                f"table {self._database.table} has no unique key of the columns of 'merge_on': ALTER TABLE "
                f"{self._database.table} ADD UNIQUE ({listed})"
            )
        altered = [
            f"ALTER TABLE {self._database.table} ADD COLUMN {self._compiled(CreateColumn(self._column(field)))}"
            for field in missing
        ]
        return altered + self._deleted_keys.changes(inspector, schema)

    def _has_key(self, inspector: sa.Inspector, key: frozenset[str]) -> bool:
        """Return whether the table has a unique key of exactly these columns."""
        name, schema = self._settings.table_name, self._settings.schema
        return key == frozenset(inspector.get_pk_constraint(name, schema)["constrained_columns"]) or any(
            index["unique"]
            and key == frozenset(index["column_names"])
            and not index.get("dialect_options", {}).get("postgresql_where")
            for index in inspector.get_indexes(name, schema)
        )

    def _creation(self, schema: pa.Schema) -> list[str]:
        columns = [self._column(field) for field in schema]
        table = sa.Table(self._settings.table_name, sa.MetaData(), *columns, schema=self._settings.schema, **OPTIONS)
        if self._settings.merge_on:
            table.append_constraint(sa.PrimaryKeyConstraint(*(table.c[name] for name in self._settings.merge_on)))
        index = sa.Index(f"{self._settings.table_name[:40]}{BATCH_ID}", table.c[BATCH_ID])
        return [self._compiled(CreateTable(table)), self._compiled(CreateIndex(index))]

    def _compiled(self, element: sa.ClauseElement) -> str:
        return str(element.compile(dialect=self._database.engine.dialect)).strip()

    def _column(self, field: pa.Field) -> sa.Column[Any]:
        """Return the definition of a column.

        :raises DeliveryError: if the database has no type for it.
        """
        self._database.quoted(field.name)
        is_key = field.name in self._settings.merge_on
        kind = column_type(field.type, self._database.dialect, is_key=is_key)
        if field.name == BATCH_ID:
            kind = NAME
        if kind is None:
            raise DeliveryError(
                f"column {field.name!r} has the type {field.type}, but {self._database.dialect} has no such "
                "type: cast it in the transform"
            )
        return sa.Column(field.name, kind, autoincrement=False)

    def _compare(self, columns: Sequence[ReflectedColumn], schema: pa.Schema) -> list[pa.Field]:
        """Return the columns of the rows that the table lacks.

        :raises DeliveryError: if it cannot accept the other columns, or requires columns that the rows lack.
        """
        known = {column["name"]: column for column in columns}
        missing = [field for field in schema if field.name not in known]
        self._check_spelling(known, missing)
        for field in schema:
            column = known.get(field.name)
            if column is not None and not stores_exactly(column["type"], field.type):
                raise DeliveryError(
                    f"column {field.name!r} of table {self._database.table} is {self._type_name(column)}, which cannot "
                    f"store every value of {field.type} exactly: cast it in the transform, or change the column"
                )
        for column in columns:
            if _is_required(column) and column["name"] not in schema.names:
                raise DeliveryError(
                    f"column {column['name']!r} of table {self._database.table} ({self._type_name(column)}) must not "
                    "be null and has no default, but the rows do not have it: add it in the transform, or give the "
                    "column a default"
                )
        if missing and not self._settings.add_columns:
            listed = " and ".join(f"{field.name!r} ({field.type})" for field in missing)
            raise DeliveryError(
                f"table {self._database.table} has no column {listed}: add it, set 'add_columns' of SqlTable, or drop "
                "it in the transform"
            )
        return missing

    def _type_name(self, column: ReflectedColumn) -> str:
        """Return the name of a column's type."""
        if isinstance(column["type"], sa.types.NullType):
            return "of a type that is not known"
        return column["type"].compile(dialect=self._database.engine.dialect).lower()

    def _check_spelling(self, known: Iterable[str], missing: Sequence[pa.Field]) -> None:
        """Check that no missing column is one of the table's in another case.

        :raises DeliveryError: naming both.
        """
        spelled = {name.lower(): name for name in known} if self._database.ignores_case else {}
        for field in missing:
            if (other := spelled.get(field.name.lower())) is not None:
                raise DeliveryError(
                    f"column {field.name!r} is {other!r} in table {self._database.table}, and {self._database.dialect} "
                    f"ignores the case of names: rename it to {other!r} in the transform"
                )

    # Rows

    def check_values(
        self,
        batch_id: str,
        schema: pa.Schema,
        read: Callable[[Sequence[str]], pa.Table],
        *,
        leaves_out: bool = False,
    ) -> None:
        """Check the rows of a batch for errors that the database would report late, or not at all.

        :param schema: the columns of the rows.
        :param read: returns the rows, with some of the columns.
        :param leaves_out: whether rows with such errors are left out later; see `faults`.
        :raises DeliveryError: naming the batch, the column and the remedy.
        """
        merged = self._merging.columns if self._merging else []
        if not (wanted := list(dict.fromkeys((*merged, *self._without_nan(schema))))):
            return
        rows = read(wanted)
        faulty = self.faults(rows)
        if faulty and leaves_out:
            rows = rows.filter(pa.array([n not in faulty for n in range(rows.num_rows)], pa.bool_()))
        if self._merging:
            self._merging.check_rows(rows, self._database.title)
        if faulty and not leaves_out:
            raise DeliveryError(f"batch {batch_id}: {next(iter(faulty.values()))}")

    def faults(self, rows: pa.Table) -> dict[int, str]:
        """Return the numbers of the rows that the database would store wrongly or refuse by column, with the error."""
        found: dict[int, str] = {}
        for name in self._without_nan(rows.schema):
            error = (
                f"column {name!r} holds NaN or an infinite value, which the database cannot store: replace it by null "
                "in the transform, or mark such records as bad"
            )
            found |= _at(pc.invert(pc.fill_null(pc.is_finite(rows.column(name)), True)), error)
        for name in self._merging.on:
            found |= _at(
                rows.column(name).is_null(), f"{self._database.title} is merged on column {name!r}, which is null"
            )
        if self._merging.op is not None:
            error = f"{self._database.title} deletes by column {self._merging.op!r}, which is not a known operation"
            found |= _at(self._merging.unknown(rows), error)
        return found

    def _without_nan(self, schema: pa.Schema) -> list[str]:
        """Return the columns of floating-point values if the database does not accept NaN."""
        is_checked = not self._database.accepts_nan
        return [field.name for field in schema if is_checked and pa.types.is_floating(field.type)]


def _at(faulty: pa.ChunkedArray, error: str) -> dict[int, str]:
    """Return the numbers of the rows that have a fault, each with the error."""
    return dict.fromkeys(pc.indices_nonzero(faulty).to_pylist(), error)


def _is_required(column: ReflectedColumn) -> bool:
    """Return whether a row must have a value for a column, because it has no default."""
    has_value = column.get("identity") or column.get("computed") or column.get("autoincrement") is True
    return not (column["nullable"] or column["default"] is not None or has_value)
