"""MySQL and MariaDB: rows are added by INSERT statements of many rows each; pyarrow makes their text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy import exc

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.delivery import DeliveryError, RefusedRowError
from airflow_provider_coordination.spark.sinks.sql import database
from airflow_provider_coordination.spark.sinks.sql.columns import as_json, hexadecimal, is_binary, is_nested, is_text
from airflow_provider_coordination.spark.sinks.sql.database import (
    DELETED_AT,
    DELETES,
    INCOMING,
    LockHolder,
    SinkDatabase,
)
from airflow_provider_coordination.sql import MYSQL, STRICT, code_of, reason_of

MAX_NAME_CHARACTERS = 64
ROWS_AT_A_TIME = 10_000
"""The number of rows that are in memory as text."""
STATEMENT_BYTES = 1024 * 1024
"""The approximate length of a statement; shorter if the server's limit is lower."""
LOCK_NAME_CHARACTERS = 64
OURS = "coordination:"
"""The prefix of the lock that each session has on its own number: others see that a job opened it."""

LOCK_WAIT_TIMEOUT, ACCESS_DENIED = 1205, 1227
_STARTED = "CONVERT_TZ(t.trx_started, 'SYSTEM', '+00:00')"
"""When a transaction began: the server shows that in its own time zone, whatever the session's is."""
_SESSION = """
SELECT p.id, p.user, p.host, {since}, IF(p.command = 'Sleep', NOW() - INTERVAL p.time SECOND, NULL),
    IF(p.command = 'Sleep' AND IS_USED_LOCK(CONCAT(%(ours)s, p.id)) = p.id,
        NOW() + INTERVAL %(abandoned)s - p.time SECOND, NULL), NULL, {writes}
FROM information_schema.processlist p
"""
_TRANSACTIONS = f"""
{_SESSION.format(since=_STARTED, writes="IFNULL(t.trx_tables_locked + t.trx_rows_locked > 0, 1)")}
LEFT JOIN information_schema.innodb_trx t ON t.trx_mysql_thread_id = p.id
WHERE p.id <> CONNECTION_ID() AND (
    p.db = %(schema)s AND {_STARTED} <= NOW() - INTERVAL FLOOR(%(seconds)s) SECOND OR p.id = IS_USED_LOCK(%(lock)s)
) ORDER BY t.trx_started
"""
_IDLE_SESSIONS = f"""{_SESSION.format(since="NULL", writes="1")}
WHERE p.id <> CONNECTION_ID() AND (
    p.command = 'Sleep' AND p.db = %(schema)s AND p.time >= FLOOR(%(seconds)s) OR p.id = IS_USED_LOCK(%(lock)s)
) ORDER BY p.time DESC
"""


class MySql(SinkDatabase):
    """MySQL or MariaDB as the database of a sink's table."""

    dialect = MYSQL
    accepts_nan = False
    ignores_case = True

    @override
    def arguments(self, lock_seconds: int, idle_seconds: int) -> dict[str, Any]:
        tls = self.settings.server.tls
        return {
            "client_flag": 0,  # a claimed batch is known from the number of changed rows, not of found ones
            "init_command": (
                f"SET SESSION {STRICT}, time_zone = '+00:00', innodb_lock_wait_timeout = {lock_seconds}, "
                f"lock_wait_timeout = {lock_seconds}, wait_timeout = {idle_seconds} "
                "/*M!100101 , max_statement_time = 0 */, "
                f"@coordination = GET_LOCK(CONCAT('{OURS}', CONNECTION_ID()), 0)"
            ),
            **({"ssl": tls} if tls else {}),
        }

    @override
    def quoted(self, name: str) -> str:
        if len(name) > MAX_NAME_CHARACTERS:
            raise DeliveryError(
                f"the name {name!r} has more than {MAX_NAME_CHARACTERS} characters, which MySQL does not accept"
            )
        return "`" + name.replace("`", "``") + "`"

    @override
    def reason(self, error: BaseException) -> str:
        remedy = "; replace the value in the transform, or change the column" if code_of(error) in (1264, 1292) else ""
        return f"{reason_of(error)}{remedy}"

    @override
    def lock(self, connection: sa.Connection) -> None:
        wanted = (self._lock_name, database.LOCK_TIMEOUT_SECONDS)
        if connection.exec_driver_sql("SELECT GET_LOCK(%s, %s)", wanted).scalar() != 1:
            raise self.engine.dialect.loaded_dbapi.OperationalError(
                LOCK_WAIT_TIMEOUT, "Lock wait timeout exceeded for changes of tables"
            )

    @property
    def _lock_name(self) -> str:
        return self.location[-LOCK_NAME_CHARACTERS:]

    def lock_holders(self, connection: sa.Connection, seconds: float) -> list[LockHolder]:
        """Without the privilege PROCESS, the server shows only that sessions of the same login are idle."""
        wanted = {
            "lock": self._lock_name,
            "schema": self.settings.schema,
            "ours": OURS,
            "seconds": seconds,
            "abandoned": database.ABANDONED_SECONDS,
        }
        is_certain = True
        try:
            rows = connection.exec_driver_sql(_TRANSACTIONS, wanted).all()
        except exc.OperationalError as error:
            if code_of(error) != ACCESS_DENIED:
                raise
            is_certain = False
            rows = connection.exec_driver_sql(_IDLE_SESSIONS, wanted).all()
        return database.lock_holders(rows, "KILL {}", is_certain=is_certain)

    @override
    def check_table(self, inspector: sa.Inspector) -> None:
        name = self.settings.table_name
        engine = inspector.get_table_options(name, self.settings.schema).get("mysql_engine")
        if engine != "InnoDB":
            raise DeliveryError(
                f"table {name!r} has the engine {engine}, but a batch needs a transaction: ALTER TABLE "
                f"{self.quoted(name)} ENGINE=InnoDB"
            )

    @override
    def tombstones_creation(self) -> list[str]:
        now = "CURRENT_TIMESTAMP(6)"
        return [
            f"CREATE TABLE {self.tombstones} ({DELETED_AT} DATETIME(6) NOT NULL DEFAULT {now} ON UPDATE {now}, "
            f"PRIMARY KEY ({self.listed(self.merging.on)}), INDEX ({DELETED_AT})) ENGINE=InnoDB "
            f"SELECT {self.listed(self.remembered)} FROM {self.table} LIMIT 0"
        ]

    @override
    def load(self, connection: sa.Connection, rows: pa.Table) -> None:
        if self.merging.op is None:
            self._insert(connection, rows, self.table)
            return
        deletes = self.merging.deletes(rows)
        listed = ", ".join(f"t.{self.quoted(name)}" for name in rows.column_names)
        with self.cursor(connection) as cursor:
            cursor.execute(f"DROP TEMPORARY TABLE IF EXISTS {INCOMING}")  # of rows that were refused
            # By the outer join, columns may be null that must not be so in the target: a delete has no other values.
            cursor.execute(
                f"CREATE TEMPORARY TABLE {INCOMING} (PRIMARY KEY ({self.listed(self.merging.on)})) ENGINE=InnoDB "
                f"SELECT {listed}, 0 AS {DELETES} FROM (SELECT 1) one LEFT JOIN {self.table} t ON FALSE LIMIT 0"
            )
        self._insert(connection, rows.append_column(DELETES, deletes), INCOMING)
        ordered = pc.and_(deletes, rows.column(str(self.merging.order_by)).is_valid())
        self._insert(connection, rows.filter(ordered).select(self.remembered), self.tombstones)
        with self.cursor(connection) as cursor:
            for statement in self._merge(rows.schema):
                cursor.execute(statement)

    def _merge(self, schema: pa.Schema) -> list[str]:
        """Return the statements that merge the incoming rows, which have each key once.

        Each reads the incoming rows once: MySQL refuses to open a temporary table twice.

        :param schema: the columns of the target that the rows have.
        """
        order, ordered = self.quoted(str(self.merging.order_by)), self._ordered(schema)
        incoming, deleted, known = (ordered(f"{of}.{order}") for of in "idt")
        listed, same = self.listed(schema.names), partial(self.same_key, "i")
        return [
            f"DELETE i FROM {INCOMING} i JOIN {self.tombstones} d ON {same('d')} "
            f"WHERE i.{order} IS NULL OR {deleted} > {incoming}",
            f"DELETE t FROM {INCOMING} i STRAIGHT_JOIN {self.table} t ON {same('t')} "
            f"WHERE i.{DELETES} AND (t.{order} IS NULL OR {incoming} >= {known})",
            f"INSERT INTO {self.table} ({listed}) SELECT {listed} FROM {INCOMING} WHERE NOT {DELETES} "
            f"ORDER BY {self.listed(self.merging.on)}{self._replacing(schema, self.table)}",
            f"DROP TEMPORARY TABLE {INCOMING}",
        ]

    def _ordered(self, schema: pa.Schema) -> Callable[[str], str]:
        """Return the SQL of an order that is compared: texts by code points, whatever the collation of the column."""
        if self.merging.order_by is not None and is_text(schema.field(self.merging.order_by).type):
            return "CAST(CONVERT({} USING utf8mb4) AS BINARY)".format
        return "{}".format

    def _replacing(self, schema: pa.Schema, table: str) -> str:
        """Return the end of an INSERT that lets rows replace those with the same key, unless these are newer.

        :param schema: the columns of the rows.
        :param table: the quoted name of the table.
        """
        if not self.merging:
            return ""
        # MySQL assigns from left to right, and compares with what it has assigned: the order comes last.
        order_by, ordered = self.merging.order_by, self._ordered(schema)
        others = [name for name in schema.names if name not in self.merging.on]
        names = map(self.quoted, sorted(others, key=lambda name: name == order_by))
        assigned = {name: f"VALUES({name})" for name in names}
        if order_by is not None:
            order = self.quoted(order_by)
            is_newest = f"{table}.{order} IS NULL OR {ordered(f'VALUES({order})')} >= {ordered(f'{table}.{order}')}"
            assigned = {name: f"IF({is_newest}, {value}, {table}.{name})" for name, value in assigned.items()}
        return f" ON DUPLICATE KEY UPDATE {', '.join(f'{name} = {value}' for name, value in assigned.items())}"

    def _insert(self, connection: sa.Connection, rows: pa.Table, table: str) -> None:
        """Insert rows; see `_replacing`."""
        max_packet_bytes = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
        begins = f"INSERT INTO {table} ({self.listed(rows.column_names)}) VALUES ".encode()
        ends = self._replacing(rows.schema, table).encode()
        room = max_packet_bytes - len(begins) - len(ends) - 1024
        with self.cursor(connection) as cursor:
            for values in _statements(rows, min(room, STATEMENT_BYTES)):
                if len(values) > room:
                    raise RefusedRowError(
                        f"a row has {len(values)} bytes as text, but the server accepts statements of "
                        f"{max_packet_bytes}: raise its 'max_allowed_packet'"
                    )
                cursor.execute(begins + values + ends)


def _statements(rows: pa.Table, most: int) -> Iterator[bytes]:
    """Yield the values of rows for a VALUES clause, each text at most `most` bytes long, or one row."""
    waiting: list[bytes] = []
    size = 0
    for start in range(0, rows.num_rows, ROWS_AT_A_TIME):
        part = rows.slice(start, ROWS_AT_A_TIME).combine_chunks()
        literals = [_literal(name, column) for name, column in zip(part.column_names, part.columns, strict=True)]
        joined = pc.binary_join_element_wise("(", pc.binary_join_element_wise(*literals, ","), ")", "")
        for row in joined.cast(pa.binary()).to_pylist():
            if waiting and size + len(row) > most:
                yield b",".join(waiting)
                waiting, size = [], 0
            waiting.append(row)
            size += len(row) + 1
    if waiting:
        yield b",".join(waiting)


def _literal(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column as SQL literals."""
    kind = column.type
    if is_binary(kind):
        texts = hexadecimal(column, "x'", "'")
    elif pa.types.is_boolean(kind):
        texts = column.cast(pa.int8()).cast(pa.string())
    elif pa.types.is_floating(kind):  # with the digits of a double: the shortest text of a float may be beyond FLOAT
        texts = column.cast(pa.float64()).cast(pa.string())
    elif pa.types.is_integer(kind) or pa.types.is_null(kind):
        texts = column.cast(pa.string())
    elif pa.types.is_timestamp(kind):
        texts = _in_quotes(
            column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.timestamp("us")).cast(pa.string())
        )
    elif is_nested(kind):
        texts = _in_quotes(_escaped(as_json(name, column)))
    elif pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_decimal(kind):
        texts = _in_quotes(column.cast(pa.string()))
    else:
        texts = _in_quotes(_escaped(column.cast(pa.string())))
    return pc.fill_null(texts, "NULL")


def _escaped(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), "'", "''")


def _in_quotes(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.binary_join_element_wise("'", texts, "'", "")
