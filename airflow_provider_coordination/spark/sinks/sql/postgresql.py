"""PostgreSQL: rows are added by COPY, as CSV that pyarrow writes."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from pyarrow import csv

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
from airflow_provider_coordination.spark.sinks.sql.table import TABLE
from airflow_provider_coordination.sql import POSTGRESQL, code_of, reason_of

MAX_NAME_BYTES = 63
ROWS_AT_A_TIME = 50_000
"""The number of rows that are in memory as text."""
NUMBER = "_coordination_number"
"""The column of incoming rows that numbers them."""
APPLICATION = "airflow-provider-coordination"

_LOCK_ID = "hashtextextended(%(lock)s, 0)"
_HOLDERS = f"""
SELECT a.pid, a.usename, concat_ws(' at ', nullif(a.application_name, ''), host(a.client_addr)), a.xact_start,
    CASE WHEN a.state LIKE 'idle in transaction%%' THEN a.state_change END,
    CASE WHEN a.state LIKE 'idle in transaction%%' AND a.application_name = %(ours)s
        THEN a.state_change + %(abandoned)s * interval '1 second' END,
    CASE WHEN a.wait_event = 'ClientRead' AND a.application_name = %(ours)s AND a.usename = current_user
        THEN c.bytes_processed END,
    bool_or(l.mode <> 'AccessShareLock')
FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid LEFT JOIN pg_stat_progress_copy c ON c.pid = a.pid
WHERE l.granted AND a.pid <> pg_backend_pid() AND l.database = (
        SELECT oid FROM pg_database WHERE datname = current_database()
    ) AND (a.xact_start IS NULL OR a.xact_start < now() - %(seconds)s * interval '1 second') AND (
        l.locktype = 'relation' AND l.relation IN (SELECT to_regclass(name) FROM unnest(%(tables)s::text[]) name)
        OR l.locktype = 'advisory' AND l.objsubid = 1
            AND (l.classid::bigint << 32) + l.objid::bigint = {_LOCK_ID}
    )
GROUP BY a.pid, a.usename, a.application_name, a.client_addr, a.xact_start, a.state, a.state_change, a.wait_event,
    c.bytes_processed
ORDER BY a.xact_start
"""
_PLACE = re.compile(r"COPY [^,]+, line \d+(?:, column [^:]+)?")


class PostgreSql(SinkDatabase):
    """PostgreSQL as the database of a sink's table."""

    dialect = POSTGRESQL
    accepts_nan = True
    ignores_case = False

    @override
    def arguments(self, lock_seconds: int, idle_seconds: int) -> dict[str, Any]:
        return {
            "client_encoding": "utf8",
            "application_name": APPLICATION,
            "options": f"-c lock_timeout={lock_seconds}s -c idle_in_transaction_session_timeout={idle_seconds}s "
            "-c statement_timeout=0 -c TimeZone=UTC",
            **self.settings.server.tls,
        }

    @override
    def quoted(self, name: str) -> str:
        if len(name.encode()) > MAX_NAME_BYTES:
            raise DeliveryError(f"the name {name!r} has more than {MAX_NAME_BYTES} bytes; PostgreSQL would cut it off")
        return '"' + name.replace('"', '""') + '"'

    @override
    def reason(self, error: BaseException) -> str:
        diagnosis = getattr(getattr(error, "orig", None) or error, "diag", None)
        place = _PLACE.match(getattr(diagnosis, "context", None) or "")
        remedy = "; replace the value in the transform" if code_of(error) in ("22007", "22008") else ""
        return f"{reason_of(error)}{f' ({place[0]})' if place else ''}{remedy}"

    @override
    def lock(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_ID})", {"lock": self._lock_name})

    @property
    def _lock_name(self) -> str:
        """One for the tables of a schema, which share the table of batches."""
        return f"{APPLICATION}/{self.settings.schema}"

    @override
    def lock_holders(self, connection: sa.Connection, seconds: float) -> list[LockHolder]:
        tables = [f"{self.quoted(self.settings.schema)}.{self.quoted(TABLE)}", self.table]
        wanted = {"lock": self._lock_name, "tables": tables, "seconds": seconds, "ours": APPLICATION}
        rows = connection.exec_driver_sql(_HOLDERS, wanted | {"abandoned": database.ABANDONED_SECONDS}).all()
        return database.lock_holders(rows, "SELECT pg_terminate_backend({})")

    @override
    def check_constraints_at_once(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")

    @override
    def tombstones_creation(self) -> list[str]:
        return [
            f"CREATE TABLE {self.tombstones} AS SELECT {self.listed(self.remembered)}, "
            f"CURRENT_TIMESTAMP AS {DELETED_AT} FROM {self.table} WITH NO DATA",
            f"ALTER TABLE {self.tombstones} ADD PRIMARY KEY ({self.listed(self.merging.on)})",
            f"CREATE INDEX ON {self.tombstones} ({DELETED_AT})",
        ]

    @override
    def load(self, connection: sa.Connection, rows: pa.Table) -> None:
        if not self.merging:
            self._copy(connection, rows, self.table)
            return
        merge = self._merge(rows.schema)
        incoming = f"SELECT {self.listed(rows.column_names)}"
        if self.merging.order_by is not None:
            rows = rows.append_column(NUMBER, pa.array(range(rows.num_rows), pa.int64()))
            rows = rows.append_column(DELETES, self.merging.deletes(rows))
            incoming += f", 0::bigint AS {NUMBER}, false AS {DELETES}"
        with self.cursor(connection) as cursor:
            cursor.execute(f"CREATE TEMP TABLE {INCOMING} ON COMMIT DROP AS {incoming} FROM {self.table} WITH NO DATA")
        self._copy(connection, rows, INCOMING)
        with self.cursor(connection) as cursor:
            cursor.execute(merge)
            cursor.execute(f"DROP TABLE {INCOMING}")

    def _merge(self, schema: pa.Schema) -> str:
        """Return the statement that merges the incoming rows.

        :param schema: the columns of the target that the rows have.
        """
        keys, listed, order_by = self.listed(self.merging.on), self.listed(schema.names), self.merging.order_by
        others = [self.quoted(name) for name in schema.names if name not in self.merging.on]
        replaced = ", ".join(f"{name} = excluded.{name}" for name in others)
        # In the order of the keys: two transactions that merge the same rows wait for each other without a deadlock.
        incoming = f"INSERT INTO {self.table} AS t ({listed}) SELECT {listed} FROM"
        replace = f"ORDER BY {keys} ON CONFLICT ({keys}) DO UPDATE SET {replaced}"
        if order_by is None:
            return f"{incoming} {INCOMING} {replace}"
        order = self.quoted(order_by)
        as_text = is_text(schema.field(order_by).type)

        def ordered(of: str) -> str:
            return f'{of}.{order}::text COLLATE "C"' if as_text else f"{of}.{order}"

        def if_not_older(than: str, row: str) -> str:
            return f"{than}.{order} IS NULL OR {ordered(row)} >= {ordered(than)}"

        def newest(where: str, *last: str) -> str:
            sequence = ", ".join([keys, f"{ordered('i')} DESC NULLS LAST", *last])
            return f"SELECT DISTINCT ON ({keys}) * FROM {INCOMING} i {where} ORDER BY {sequence}"

        latest, replace = newest("", f"{NUMBER} DESC"), f"{replace} WHERE {if_not_older('t', 'excluded')}"
        if self.merging.op is None:
            return f"WITH latest AS ({latest}) {incoming} latest {replace}"
        remembered, same = self.listed(self.remembered), partial(self.same_key, "i")
        return f"""
            WITH latest AS ({latest}), deleted AS (
                DELETE FROM {self.table} t USING latest i WHERE {DELETES} AND {same("t")} AND ({if_not_older("t", "i")})
            ), remembered AS (
                INSERT INTO {self.tombstones} AS t ({remembered}, {DELETED_AT})
                SELECT {remembered}, CURRENT_TIMESTAMP
                FROM ({newest(f"WHERE {DELETES} AND {order} IS NOT NULL")}) gone
                ON CONFLICT ({keys}) DO UPDATE SET {order} = excluded.{order}, {DELETED_AT} = excluded.{DELETED_AT}
                WHERE {if_not_older("t", "excluded")}
            )
            {incoming} latest i WHERE NOT {DELETES} AND NOT EXISTS (
                SELECT FROM {self.tombstones} d
                WHERE {same("d")} AND (i.{order} IS NULL OR {ordered("d")} > {ordered("i")})
            ) {replace}
        """

    def _copy(self, connection: sa.Connection, rows: pa.Table, target: str) -> None:
        listed = self.listed(rows.column_names)
        with (
            self.cursor(connection) as cursor,
            cursor.copy(f"COPY {target} ({listed}) FROM STDIN (FORMAT csv)") as copy,
        ):
            for start in range(0, rows.num_rows, ROWS_AT_A_TIME):
                copy.write(_as_csv(rows.slice(start, ROWS_AT_A_TIME)))


def _as_csv(rows: pa.Table) -> memoryview:
    """Return rows as CSV: null is an empty field, an empty text is in quotes."""
    texts = pa.table(
        {
            str(n): _as_text(name, column)
            for n, (name, column) in enumerate(zip(rows.column_names, rows.columns, strict=True))
        }
    )
    sink = pa.BufferOutputStream()
    csv.write_csv(texts, sink, csv.WriteOptions(include_header=False, batch_size=ROWS_AT_A_TIME))
    return memoryview(sink.getvalue())


def _as_text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if is_binary(kind):
        return hexadecimal(column, "\\x", "")
    if is_nested(kind):
        return as_json(name, column, has_zero_characters=False)
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    if is_text(kind) and pc.any(pc.match_substring(column, "\x00"), min_count=0).as_py():
        raise RefusedRowError(f"column {name!r} holds a zero character; remove it in the transform")
    return column.cast(pa.string()) if pa.types.is_null(kind) else column
