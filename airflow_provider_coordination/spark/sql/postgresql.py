"""PostgreSQL: rows are added by COPY, as CSV that pyarrow writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from pyarrow import csv
from sqlalchemy.dialects.postgresql import insert

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.sql import locks
from airflow_provider_coordination.spark.sql.columns import as_json, hexadecimal, is_binary, is_nested
from airflow_provider_coordination.spark.sql.database import SinkDatabase
from airflow_provider_coordination.spark.sql.locks import LockHolder
from airflow_provider_coordination.spark.sql.table import TABLE
from airflow_provider_coordination.sql import POSTGRESQL, code_of, reason_of

MAX_NAME_BYTES = 63
ROWS_AT_A_TIME = 50_000
"""The number of rows that are in memory as text."""
INCOMING = "_coordination_incoming"
"""The temporary table that rows are merged from."""
APPLICATION = "airflow-provider-coordination"

_LOCK_ID = "hashtextextended(%(location)s, 0)"
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
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_ID})", {"location": self.location})

    @override
    def lock_holders(self, connection: sa.Connection, seconds: float) -> list[LockHolder]:
        tables = [f"{self.quoted(self.settings.schema)}.{self.quoted(TABLE)}", self.table]
        wanted = {"location": self.location, "tables": tables, "seconds": seconds, "ours": APPLICATION}
        rows = connection.exec_driver_sql(_HOLDERS, wanted | {"abandoned": locks.ABANDONED_SECONDS}).all()
        return locks.lock_holders(rows, "SELECT pg_terminate_backend({})")

    @override
    def load(self, connection: sa.Connection, rows: pa.Table, merge_on: Sequence[str]) -> None:
        if not merge_on:
            self._copy(connection, rows, self.table)
            return
        incoming = sa.table(INCOMING, *map(sa.column, rows.column_names))
        target = sa.table(self.settings.table_name, *map(sa.column, rows.column_names), schema=self.settings.schema)
        listed = ", ".join(map(self.quoted, rows.column_names))
        with self.cursor(connection) as cursor:
            cursor.execute(
                f"CREATE TEMP TABLE {INCOMING} ON COMMIT DROP AS SELECT {listed} FROM {self.table} WITH NO DATA"
            )
        self._copy(connection, rows, INCOMING)
        # In the order of the keys: two transactions that merge the same rows wait for each other without a deadlock.
        ordered = sa.select(incoming).order_by(*(incoming.c[name] for name in merge_on))
        merge = insert(target).from_select(rows.column_names, ordered)
        replaced = {name: merge.excluded[name] for name in rows.column_names if name not in merge_on}
        connection.execute(merge.on_conflict_do_update(index_elements=list(merge_on), set_=replaced))
        connection.exec_driver_sql(f"DROP TABLE {INCOMING}")

    def _copy(self, connection: sa.Connection, rows: pa.Table, target: str) -> None:
        listed = ", ".join(map(self.quoted, rows.column_names))
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
    if pa.types.is_string(kind) and pc.any(pc.match_substring(column, "\x00"), min_count=0).as_py():
        raise DeliveryError(f"column {name!r} holds a zero character; remove it in the transform")
    return column.cast(pa.string()) if pa.types.is_null(kind) else column
