"""MySQL and MariaDB: rows are added by INSERT statements of many rows each; pyarrow makes their text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.sql import locks
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

MAX_NAME_CHARACTERS = 64
MAX_SCALE = 30
"""The limit of decimal places in MySQL; MariaDB allows a few more."""
ROWS_AT_A_TIME = 10_000
"""The number of rows that are in memory as text."""
STATEMENT_BYTES = 1024 * 1024
"""The approximate length of a statement; shorter if the server's limit is lower."""
RESPONSE_TIMEOUT_SECONDS = 600
LOCK_NAME_CHARACTERS = 64
OURS = "coordination:"
"""The prefix of the lock that each session has on its own number: others see that a job opened it."""

TYPES: dict[str, str] = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "LONGTEXT",
    "binary": "LONGBLOB",
    "date32[day]": "DATE",
    "time64[us]": "TIME(6)",
    "null": "LONGTEXT",
}
"""The type of a new column by pyarrow type, for types without parameters."""
KEY_TYPES = {"string": "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "binary": "VARBINARY(255)"}
"""The types of columns that rows are merged on: an index needs a limited length."""

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXTS = ("tinytext", "text", "mediumtext", "longtext", "varchar", "json", "uuid", "enum")
_JSON = ("json", "text", "mediumtext", "longtext")
_BLOBS = ("tinyblob", "blob", "mediumblob", "longblob", "varbinary")
LOCK_WAIT_TIMEOUT, DEADLOCK, ACCESS_DENIED = 1205, 1213, 1227
_LOCKED = frozenset({LOCK_WAIT_TIMEOUT, DEADLOCK})
# Client: no connection, or a lost one. Server: too many connections, shutting down, a statement or session ended.
_PASSING = _LOCKED | frozenset(
    {0, 1040, 1053, 1077, 1079, 1158, 1159, 1160, 1161, 1203, 1317, 1927, 2002, 2003, 2006, 2013, 2055, 4031}
)
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
_REMEDIES = dict.fromkeys((1264, 1292), "replace the value in the transform, or change the column")
_PARAMETERS = re.compile(r"\((\d+)(?:,(\d+))?\)")


class MySql(SinkDatabase):
    """See `SinkDatabase`.

    :param settings: the settings of the table.
    """

    batch_id_type = "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    instant_type = "DATETIME(6)"
    table_options = " ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4"
    skip_known_clause = "ON DUPLICATE KEY UPDATE target = target"
    accepts_nan = False
    ignores_case = True

    def __init__(self, settings: SqlTable) -> None:
        self._settings = settings

    @property
    @override
    def location(self) -> str:
        return self._settings.sink_location

    @override
    def connect(self) -> Any:
        import pymysql

        server = self._settings.server
        where = {"unix_socket": server.host} if server.host.startswith("/") else {"host": server.host}
        connection = pymysql.connect(
            **where,
            port=server.port,
            database=server.catalog,
            user=server.user,
            password=server.password or "",
            charset="utf8mb4",
            autocommit=False,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            read_timeout=RESPONSE_TIMEOUT_SECONDS,
            write_timeout=RESPONSE_TIMEOUT_SECONDS,
            # Strict, whatever the server's default is, so that no value is silently cut off.
            init_command=(
                "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', "
                f"innodb_lock_wait_timeout = {LOCK_TIMEOUT_SECONDS}, lock_wait_timeout = {LOCK_TIMEOUT_SECONDS}, "
                f"wait_timeout = {locks.ABANDONED_SECONDS} /*M!100101 , max_statement_time = 0 */"
            ),
            **({"ssl": server.tls} if server.tls else {}),
        )
        with closing(connection.cursor()) as cursor:  # the default level would lock the gaps between rows
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute("SELECT GET_LOCK(CONCAT(%s, CONNECTION_ID()), 0)", (OURS,))
        return connection

    @override
    def quoted(self, name: str) -> str:
        if len(name) > MAX_NAME_CHARACTERS:
            raise DeliveryError(
                f"the name {name!r} has more than {MAX_NAME_CHARACTERS} characters, which MySQL does not accept"
            )
        return "`" + name.replace("`", "``") + "`"

    @override
    def is_transient(self, error: Exception) -> bool:
        return bool(error.args) and error.args[0] in _PASSING

    @override
    def reason(self, error: Exception) -> str:
        code, *texts = error.args or ("",)
        text = " ".join(map(str, texts)) or "the connection is closed"
        reason = f"{' '.join(text.split())[:REASON_CHARACTERS]} ({code})"
        return f"{reason}; {_REMEDIES[code]}" if code in _REMEDIES else reason

    @override
    def is_lock(self, error: Exception) -> bool:
        return bool(error.args) and error.args[0] in _LOCKED

    @override
    def lock(self, cursor: Any) -> None:
        import pymysql

        cursor.execute("SELECT GET_LOCK(%s, %s)", (self._lock_name, LOCK_TIMEOUT_SECONDS))
        if cursor.fetchone() != (1,):
            raise pymysql.err.OperationalError(LOCK_WAIT_TIMEOUT, "Lock wait timeout exceeded for changes of tables")

    @property
    def _lock_name(self) -> str:
        return self.location[-LOCK_NAME_CHARACTERS:]

    def lock_holders(self, cursor: Any, seconds: float) -> list[LockHolder]:
        """See `SinkDatabase.lock_holders`.

        Without the privilege PROCESS, the server shows only that sessions of the same login are idle.
        """
        import pymysql

        wanted = {
            "lock": self._lock_name,
            "schema": self._settings.schema,
            "ours": OURS,
            "seconds": seconds,
            "abandoned": locks.ABANDONED_SECONDS,
        }
        is_certain = True
        try:
            cursor.execute(_TRANSACTIONS, wanted)
        except pymysql.err.OperationalError as error:
            if error.args[0] != ACCESS_DENIED:
                raise
            is_certain = False
            cursor.execute(_IDLE_SESSIONS, wanted)
        return locks.lock_holders(cursor.fetchall(), "KILL {}", is_certain=is_certain)

    @override
    def columns(self, cursor: Any, table: str) -> list[Column] | None:
        place = (self._settings.schema, table)
        cursor.execute(
            "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s", place
        )
        row = cursor.fetchone()
        if row is None:
            return None
        if row[0] != "InnoDB":
            raise DeliveryError(
                f"table {table!r} has the engine {row[0]}, but a batch needs a transaction: ALTER TABLE "
                f"{self.quoted(table)} ENGINE=InnoDB"
            )
        cursor.execute(
            "SELECT column_name, column_type, is_nullable = 'NO' AND column_default IS NULL AND extra = '' FROM "
            "information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            place,
        )
        return [Column(name=name, type=kind, is_required=bool(required)) for name, kind, required in cursor.fetchall()]

    @override
    def unique_keys(self, cursor: Any) -> set[frozenset[str]]:
        cursor.execute(
            "SELECT index_name, column_name FROM information_schema.statistics WHERE table_schema = %s AND "
            "table_name = %s AND non_unique = 0",
            (self._settings.schema, self._settings.table_name),
        )
        keys: dict[str, set[str]] = {}
        for index, column in cursor.fetchall():
            keys.setdefault(index, set()).add(column)
        return set(map(frozenset, keys.values()))

    @override
    def type_for(self, kind: pa.DataType, *, is_key: bool) -> str | None:
        if pa.types.is_decimal(kind):
            return f"DECIMAL({kind.precision},{kind.scale})" if kind.scale <= MAX_SCALE else None
        if pa.types.is_timestamp(kind):
            return "DATETIME(6)"
        if is_nested(kind):
            return "JSON"
        name = "binary" if pa.types.is_fixed_size_binary(kind) else str(kind).removeprefix("large_")
        return (KEY_TYPES.get(name) if is_key else None) or TYPES.get(name)

    @override
    def holds(self, column: Column, kind: pa.DataType) -> bool:
        words = column.type.lower().partition("(")[0].split()
        base = words[0] if words else ""
        parameters = _PARAMETERS.search(column.type)
        if pa.types.is_null(kind):
            return True
        if pa.types.is_boolean(kind):
            return base in _INTEGER_BITS
        if pa.types.is_integer(kind):
            return _INTEGER_BITS.get(base, 0) >= int(kind.bit_width)
        if pa.types.is_floating(kind):
            return parameters is None and (base == "double" or (base == "float" and int(kind.bit_width) <= 32))
        if pa.types.is_decimal(kind):
            return base == "decimal" and parameters is not None and _fits(parameters, kind)
        if pa.types.is_timestamp(kind):
            return (
                parameters is not None
                and parameters[1] == "6"
                and base in (("datetime", "timestamp") if kind.tz else ("datetime",))
            )
        if pa.types.is_date(kind):
            return base == "date"
        if pa.types.is_time(kind):
            return base == "time" and parameters is not None and parameters[1] == "6"
        if is_nested(kind):
            return base in _JSON
        if is_binary(kind):
            return base in _BLOBS
        return base in _TEXTS and (pa.types.is_string(kind) or pa.types.is_large_string(kind))

    @override
    def load(self, cursor: Any, rows: pa.Table, merge_on: Sequence[str]) -> None:
        target = f"{self.quoted(self._settings.schema)}.{self.quoted(self._settings.table_name)}"
        names = [self.quoted(name) for name in rows.column_names]
        cursor.execute("SELECT @@max_allowed_packet")
        max_packet_bytes = int(cursor.fetchone()[0])
        begins = f"INSERT INTO {target} ({', '.join(names)}) VALUES ".encode()
        keys = [self.quoted(name) for name in merge_on]
        replaced = ", ".join(f"{name} = VALUES({name})" for name in names if name not in keys)
        ends = f" ON DUPLICATE KEY UPDATE {replaced}".encode() if merge_on else b""
        room = max_packet_bytes - len(begins) - len(ends) - 1024
        for values in _statements(rows, min(room, STATEMENT_BYTES)):
            if len(values) > room:
                raise DeliveryError(
                    f"a row has {len(values)} bytes as text, but the server accepts statements of {max_packet_bytes}: "
                    "raise its 'max_allowed_packet'"
                )
            cursor.execute(begins + values + ends)


def _fits(match: re.Match[str], kind: pa.DataType) -> bool:
    precision, scale = int(match[1]), int(match[2] or 0)
    return bool(scale >= kind.scale and precision - scale >= kind.precision - kind.scale)


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
