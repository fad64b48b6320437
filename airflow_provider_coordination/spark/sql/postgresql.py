"""PostgreSQL: rows are added by COPY, as CSV that pyarrow writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.sql import locks
from airflow_provider_coordination.spark.sql.committed_batches import TABLE
from airflow_provider_coordination.spark.sql.database import (
    CONNECT_TIMEOUT_SECONDS,
    LOCK_TIMEOUT_SECONDS,
    REASON_CHARACTERS,
    Column,
    SinkDatabase,
)
from airflow_provider_coordination.spark.sql.locks import LockHolder
from airflow_provider_coordination.spark.sql.text_values import as_json, hexadecimal, is_binary, is_nested
from airflow_provider_coordination.spark.writes.sql import SqlTable

MAX_NAME_BYTES = 63
ROWS_AT_A_TIME = 50_000
"""The number of rows that are in memory as text."""
INCOMING = "_coordination_incoming"
"""The temporary table that rows are merged from."""
APPLICATION = "airflow-provider-coordination"

TYPES: dict[str, str] = {
    "bool": "boolean",
    "int8": "smallint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date32[day]": "date",
    "time64[us]": "time",
    "null": "text",
}
"""The type of a new column by pyarrow type, for types without parameters."""

_INTEGER_BITS = {"smallint": 16, "integer": 32, "bigint": 64}
_TEXTS = ("text", "character varying", "citext", "json", "jsonb", "uuid")
_JSON = ("jsonb", "json", "text", "character varying")
_LOCKED = frozenset({"40001", "40P01", "55P03"})
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
_PASSING = re.compile("08|25P03|40001|40P01|53|55P03|57014|57P0|58")
_LASTING = re.compile(
    "password authentication|no password supplied|does not exist|no pg_hba|certificate|could not translate|"
    "resolve host|SSL was required|does not support SSL"
)
_REMEDIES = dict.fromkeys(("22007", "22008"), "replace the value in the transform")
_PLACE = re.compile(r"COPY [^,]+, line \d+(?:, column [^:]+)?")
_PARAMETERS = re.compile(r"\((\d+)(?:,(-?\d+))?\)")


class PostgreSql(SinkDatabase):
    """See `SinkDatabase`.

    :param settings: the settings of the table.
    """

    batch_id_type = 'varchar(255) COLLATE "C"'
    instant_type = "timestamptz"
    table_options = ""
    skip_known_clause = "ON CONFLICT DO NOTHING"
    accepts_nan = True
    ignores_case = False

    def __init__(self, settings: SqlTable) -> None:
        self._settings = settings

    @property
    @override
    def location(self) -> str:
        return self._settings.sink_location

    @override
    def connect(self) -> Any:
        import psycopg

        server = self._settings.server
        tls: dict[str, Any] = dict(server.tls)
        return psycopg.connect(
            host=server.host,
            port=server.port,
            dbname=server.catalog,
            user=server.user,
            password=server.password,
            client_encoding="utf8",
            application_name=APPLICATION,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            # Missing TCP acknowledgments reveal a host that has disappeared.
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=25_000,
            prepare_threshold=None,
            options=(
                f"-c lock_timeout={LOCK_TIMEOUT_SECONDS}s "
                f"-c idle_in_transaction_session_timeout={locks.ABANDONED_SECONDS}s -c statement_timeout=0 "
                "-c default_transaction_isolation=read\\ committed -c TimeZone=UTC"
            ),
            **tls,
        )

    @override
    def quoted(self, name: str) -> str:
        if len(name.encode()) > MAX_NAME_BYTES:
            raise DeliveryError(f"the name {name!r} has more than {MAX_NAME_BYTES} bytes; PostgreSQL would cut it off")
        return '"' + name.replace('"', '""') + '"'

    @override
    def is_transient(self, error: Exception) -> bool:
        import psycopg

        state = getattr(error, "sqlstate", None)
        if state is not None:
            return _PASSING.match(state) is not None
        return isinstance(error, psycopg.OperationalError) and not _LASTING.search(str(error))

    @override
    def reason(self, error: Exception) -> str:
        diagnosis = getattr(error, "diag", None)
        text = getattr(diagnosis, "message_primary", None) or str(error).strip() or type(error).__name__
        place = _PLACE.match(getattr(diagnosis, "context", None) or "")
        remedy = _REMEDIES.get(getattr(error, "sqlstate", None) or "")
        reason = " ".join(text.split())[:REASON_CHARACTERS] + (f" ({place[0]})" if place else "")
        return f"{reason}; {remedy}" if remedy else reason

    @override
    def is_lock(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) in _LOCKED

    @override
    def lock(self, cursor: Any) -> None:
        cursor.execute(f"SELECT pg_advisory_xact_lock({_LOCK_ID})", {"location": self.location})

    @override
    def lock_holders(self, cursor: Any, seconds: float) -> list[LockHolder]:
        tables = [
            f"{self.quoted(self._settings.schema)}.{self.quoted(name)}" for name in (self._settings.table_name, TABLE)
        ]
        wanted = {"location": self.location, "tables": tables, "seconds": seconds, "ours": APPLICATION}
        cursor.execute(_HOLDERS, wanted | {"abandoned": locks.ABANDONED_SECONDS})
        return locks.lock_holders(cursor.fetchall(), "SELECT pg_terminate_backend({})")

    @override
    def columns(self, cursor: Any, table: str) -> list[Column] | None:
        cursor.execute(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull AND NOT a.atthasdef "
            "AND a.attidentity = '' AND a.attgenerated = '' FROM pg_class c JOIN pg_namespace n ON n.oid = "
            "c.relnamespace LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
            "WHERE n.nspname = %s AND c.relname = %s ORDER BY a.attnum",
            (self._settings.schema, table),
        )
        rows = cursor.fetchall()
        if not rows:
            return None
        return [Column(name=name, type=kind, is_required=required) for name, kind, required in rows if name]

    @override
    def unique_keys(self, cursor: Any) -> set[frozenset[str]]:
        cursor.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace "
            "n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey) WHERE "
            "i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND n.nspname = %s AND c.relname = %s GROUP BY "
            "i.indexrelid",
            (self._settings.schema, self._settings.table_name),
        )
        return {frozenset(names) for (names,) in cursor.fetchall()}

    @override
    def type_for(self, kind: pa.DataType, *, is_key: bool) -> str | None:
        if pa.types.is_decimal(kind):
            return f"numeric({kind.precision},{kind.scale})"
        if pa.types.is_timestamp(kind):
            return "timestamptz" if kind.tz else "timestamp"
        if is_nested(kind):
            return "jsonb"
        if pa.types.is_fixed_size_binary(kind):
            return "bytea"
        return TYPES.get(str(kind).removeprefix("large_"))

    @override
    def holds(self, column: Column, kind: pa.DataType) -> bool:
        base = _PARAMETERS.sub("", column.type)
        parameters = _PARAMETERS.search(column.type)
        if pa.types.is_null(kind):
            return True
        if pa.types.is_boolean(kind):
            return base == "boolean"
        if pa.types.is_integer(kind):
            bits = _INTEGER_BITS.get(base, 0)
            return bits >= int(kind.bit_width) or (base == "numeric" and parameters is None)
        if pa.types.is_floating(kind):
            return base == "double precision" or (base == "real" and int(kind.bit_width) <= 32)
        if pa.types.is_decimal(kind):
            return base == "numeric" and (parameters is None or _fits(parameters, kind))
        if pa.types.is_timestamp(kind):
            wanted = "timestamp with time zone" if kind.tz else "timestamp without time zone"
            return base == wanted and (parameters is None or parameters[1] == "6")
        if pa.types.is_date(kind):
            return base == "date"
        if pa.types.is_time(kind):
            return base == "time without time zone" and (parameters is None or parameters[1] == "6")
        if is_nested(kind):
            return base in _JSON
        if is_binary(kind):
            return base == "bytea"
        return base in _TEXTS and (pa.types.is_string(kind) or pa.types.is_large_string(kind))

    @override
    def load(self, cursor: Any, rows: pa.Table, merge_on: Sequence[str]) -> None:
        target = f"{self.quoted(self._settings.schema)}.{self.quoted(self._settings.table_name)}"
        names = [self.quoted(name) for name in rows.column_names]
        listed = ", ".join(names)
        if not merge_on:
            self._copy(cursor, rows, f"{target} ({listed})")
            return
        cursor.execute(f"CREATE TEMP TABLE {INCOMING} ON COMMIT DROP AS SELECT {listed} FROM {target} WITH NO DATA")
        self._copy(cursor, rows, f"{INCOMING} ({listed})")
        keys = [self.quoted(name) for name in merge_on]
        replaced = ", ".join(f"{name} = EXCLUDED.{name}" for name in names if name not in keys)
        # In the order of the keys: two transactions that merge the same rows wait for each other without a deadlock.
        cursor.execute(
            f"INSERT INTO {target} ({listed}) SELECT {listed} FROM {INCOMING} ORDER BY {', '.join(keys)} "
            f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {replaced}"
        )
        cursor.execute(f"DROP TABLE {INCOMING}")

    def _copy(self, cursor: Any, rows: pa.Table, target: str) -> None:
        with cursor.copy(f"COPY {target} FROM STDIN (FORMAT csv)") as copy:
            for start in range(0, rows.num_rows, ROWS_AT_A_TIME):
                copy.write(_as_csv(rows.slice(start, ROWS_AT_A_TIME)))


def _fits(match: re.Match[str], kind: pa.DataType) -> bool:
    precision, scale = int(match[1]), int(match[2] or 0)
    return bool(scale >= kind.scale and precision - scale >= kind.precision - kind.scale)


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
