"""A SQL database: its connections, its transactions, and the differences between the four supported databases.

A transaction is retried after a transient failure (a broken connection, a deadlock, a busy or restarting server) until
a deadline. Then the database counts as unavailable.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.sql import (
    DRIVERS,
    MYSQL,
    POSTGRESQL,
    SQLITE,
    STRICT,
    Patience,
    code_of,
    is_transient,
    reason_of,
    sql_engine,
)

BUSY_TIMEOUT_MS = 30_000


def sqlite_path(url: sa.URL) -> Path:
    """Return the path in an SQLite URL. Every process with this URL must use the same file.

    :raises ConfigurationError: if it has no path, or one that depends on the process.
    """
    name = (url.database or "").removeprefix("file:")
    if url.host:
        raise ConfigurationError(
            f"store 'sql': 'url' contains a server, {url.host!r}, but SQLite has none; give the absolute path of the "
            f"file: sqlite:////{url.host}/{name}, with four slashes"
        )
    if name in ("", ":memory:") or url.query.get("mode") == "memory":
        raise ConfigurationError(
            "store 'sql': SQLite needs a file that all workers of the machine share; give sqlite:////path/to/file.db"
        )
    if not name.startswith("/"):
        absolute = name if "/" in name and name[0] not in ".~" else f"path/to/{Path(name).name}"
        raise ConfigurationError(
            f"store 'sql': 'url' contains the relative path {name!r}, so processes with other working directories "
            f"would coordinate through other files; give the absolute path: sqlite:////{absolute}, with four slashes"
        )
    return Path(name)


class SqliteFile:
    """The file of a store, as a process first opened it.

    If a file is deleted, moved or replaced, processes that have it open continue to coordinate through it, while all
    others use the new one. SQLite would also apply the old file's write-ahead log to the new file. So a process that
    finds another file uses neither.

    :param path: the path of the file.
    :raises ConfigurationError: if its folder does not exist, or it is itself a folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: tuple[int, int] | None = None
        with suppress(PermissionError):  # SQLite reports this as well, with advice
            if path.is_dir():
                raise ConfigurationError(f"store 'sql': {str(path)!r} is a folder; give a file in it in 'url'")
            if not path.parent.is_dir():
                raise ConfigurationError(
                    f"store 'sql': the folder {str(path.parent)!r} of the SQLite file {str(path)!r} does not exist on "
                    "this machine; create it, or correct the path in 'url'"
                )

    def watch(self, engine: sa.Engine) -> None:
        """Configure the connections of an engine, and check the file at the start of each transaction."""
        sa.event.listen(engine, "connect", self._connected)
        sa.event.listen(engine, "begin", self._begin)

    def _connected(self, connection: Any, record: object) -> None:
        if self._opened is not None:
            self._check()
        connection.isolation_level = None  # transactions are started below, not by the driver
        # The timeout comes first, because another process may switch the same new file to WAL at this moment.
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # an acknowledged checkpoint must survive a power failure
        self._opened = self._opened or self._identity()

    def _begin(self, connection: sa.Connection) -> None:
        self._check()
        # A writer takes the write lock at once, because upgrading a read lock later fails without waiting.
        write = connection.get_execution_options().get("coordination_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    def _check(self) -> None:
        """Check that the file is the one that was first opened.

        :raises StoreUnavailableError: if it is not.
        """
        identity = self._identity()
        if identity == self._opened:
            return
        change = "deleted or moved" if identity is None else "replaced"
        raise StoreUnavailableError(
            f"store sqlite:///{self._path}: its file was {change} while this process had it open; end every process "
            f"that uses the store, restore the right file without '{self._path.name}-wal' and "
            f"'{self._path.name}-shm', and start them again"
        )

    def _identity(self) -> tuple[int, int] | None:
        """Return the identity of the file, which differs for another file at this path; None if it does not exist."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino


log = logging.getLogger(__name__)

MYSQL_RESPONSE_TIMEOUT_SECONDS = 60

# The oldest versions with SKIP LOCKED (MySQL, MariaDB) and RETURNING (SQLite).
OLDEST_VERSIONS = {"sqlite": (3, 35), "postgresql": (10,), "mysql": (8, 0, 1), "mariadb": (10, 6)}

# No worker waits forever for the locks of a worker that was stopped during a transaction, and which loses them.
_SESSIONS = {
    POSTGRESQL: ("lock_timeout = '10s'", "idle_in_transaction_session_timeout = '60s'"),
    MYSQL: (STRICT, "innodb_lock_wait_timeout = 10", "lock_wait_timeout = 30"),
}

_NO_RIGHT = frozenset({"42501", 1044, 1142, 1227})
# What a user can do about errors of the server or the network.
_REACH = "check the host and the port in 'url', and that this machine can reach them"
_DATABASE_DENIED = re.compile(r"access denied for user .* to database", re.I)
_ADVICE: tuple[tuple[str, str], ...] = (
    ("resolve host|translate host name|name or service not known|name resolution", "check the host in 'url'"),
    (r"refused|timeout expired|timed out|no route to host|unreachable|can't connect", _REACH),
    (_DATABASE_DENIED.pattern, "grant this role rights on the database, or check its name in 'url'"),
    (r"password authentication failed|no password supplied|access denied for user", "check the login and the password"),
    (r"role .* does not exist", "check the login and the password"),
    (r"database .* does not exist|unknown database", "create the database, or check its name in 'url'"),
    (r"no pg_hba\.conf entry", "let the server accept this role from this machine"),
    ("file is not a database", "give another file in 'url', or a new one: this one is not a database"),
)
_TABLE_DENIED = re.compile(r"permission denied for (table|relation)|(select|insert|update|delete) command denied", re.I)
# MySQL reports the same error for a missing table if the role has no permission to know that.
_GRANT = (
    "grant this role SELECT, INSERT, UPDATE and DELETE on the table and on the one with the suffix '_schema'; "
    "if they do not exist yet, initialize the store once as a role that may create them"
)

T = TypeVar("T")


class Database:
    """The connections to one database and the transactions on it. It connects at the first request.

    :param url: an SQLAlchemy URL. `postgres://` and `postgresql://` use the psycopg driver, `mysql://` and `mariadb://`
        the PyMySQL driver, for both servers.
        :param retry_deadline_seconds: how long a transaction is retried after a transient failure.
        :raises ConfigurationError: if the URL is not valid, or the driver is not installed.
    """

    def __init__(self, url: str, *, retry_deadline_seconds: float) -> None:
        parsed = _parse(url)
        self.engine = _engine(parsed)
        self.name = parsed.render_as_string(hide_password=True)
        self._named_kind = "mariadb" if parsed.drivername.startswith("mariadb") else self.dialect_name
        self._retry_deadline_seconds = retry_deadline_seconds

    @property
    def dialect_name(self) -> str:
        """The SQL dialect: `sqlite`, `postgresql`, or `mysql`, which includes MariaDB."""
        return self.engine.dialect.name

    @property
    def kind(self) -> str:
        """The database: `sqlite`, `postgresql`, `mysql` or `mariadb`; judged by the URL until it has responded."""
        if self.dialect_name != "mysql" or self.engine.dialect.server_version_info is None:
            return self._named_kind
        return "mariadb" if getattr(self.engine.dialect, "is_mariadb", False) else "mysql"

    def close(self) -> None:
        """Close the pooled connections."""
        self.engine.dispose()

    def time(self) -> datetime:
        """Return the time of the server's clock (aware, UTC), with its full precision."""
        statement = sa.text(
            {
                "sqlite": "SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
                "postgresql": "SELECT clock_timestamp()",
                "mysql": "SELECT UTC_TIMESTAMP(6)",
            }[self.dialect_name]
        )
        value = self.read(lambda connection: connection.scalar(statement))
        instant = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)

    def check_version(self) -> None:
        """Check that the server is new enough; it must have responded before.

        :raises ConfigurationError: if it is not.
        """
        version = tuple(part for part in self.engine.dialect.server_version_info or () if isinstance(part, int))
        if message := too_old(self.kind, version):
            raise ConfigurationError(f"store {self.name}: {message}")

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Run `work` in a read-only transaction; see `write`."""
        return self._run(work, {})

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """Run `work` in a transaction, which is retried after a transient failure until the deadline.

        If the response of a commit is lost, `work` may run twice, so a repetition must be harmless.

        :raises StoreUnavailableError: if the database is unavailable, or refuses permanently.
        """
        return self._run(work, {"coordination_write": True})

    def _run(self, work: Callable[[sa.Connection], T], options: dict[str, Any]) -> T:
        patience = Patience(self._retry_deadline_seconds)
        while True:
            try:
                with self.engine.connect().execution_options(**options) as connection, connection.begin():
                    return work(connection)
            except (exc.IntegrityError, exc.DataError, exc.NotSupportedError):
                raise
            except (exc.DBAPIError, exc.TimeoutError) as error:
                if not is_transient(error) or patience.is_over:
                    advice = advice_for(error)
                    raise StoreUnavailableError(
                        f"store {self.name} cannot be used: {reason_of(error)}{f'; {advice}' if advice else ''}"
                    ) from error
                log.debug("store %s: %s; retrying in %.2f s", self.name, reason_of(error), patience.pause)
                patience.wait()


def too_old(kind: str, version: tuple[int, ...]) -> str | None:
    """Return why a server of this kind and version cannot be used; None if it can."""
    oldest = OLDEST_VERSIONS[kind]
    if version >= oldest:
        return None
    return (
        f"{kind} {'.'.join(map(str, version))} is too old; upgrade to {'.'.join(map(str, oldest))} or newer, "
        "or use another database"
    )


def advice_for(error: exc.SQLAlchemyError) -> str | None:
    """Return what a user can do about an error of any call; None if unknown."""
    message = str(getattr(error, "orig", None) or "")
    if _TABLE_DENIED.search(message):
        return _GRANT
    return next((advice for pattern, advice in _ADVICE if re.search(pattern, message, re.I)), None)


def remedy_for(cause: BaseException | None) -> str | None:
    """Return what a user can do about an error of the initialization, in addition to `advice_for`.

    :returns: empty if `advice_for` is sufficient; None if only waiting may help, or nothing is known.
    """
    error = cause.orig if isinstance(cause, exc.DBAPIError) else None
    if error is None:
        return None
    if _TABLE_DENIED.search(str(error)) or _DATABASE_DENIED.search(str(error)):
        return ""
    if re.search("unable to open database file|readonly database", str(error)):
        return (
            "give the user who runs this write permission for the file and its folder, or give a file in a folder "
            "with write permission"
        )
    if code_of(error) in _NO_RIGHT:
        return "let this role create and alter tables, or initialize the store once as a role that may do so"
    return None


def _parse(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):  # ValueError: the port is not a number
        raise ConfigurationError(
            "store 'sql': 'url' is not an SQLAlchemy URL; "
            "give, for example, sqlite:////var/lib/coordination.db or postgresql://user@host/database"
        ) from None
    scheme, _, driver = parsed.drivername.partition("+")
    dialect = {"postgres": "postgresql", "mariadb": "mysql"}.get(scheme, scheme)
    if dialect not in DRIVERS:
        raise ConfigurationError(
            f"store 'sql': database {scheme!r} is not supported; use sqlite, postgresql, mysql or mariadb"
        )
    if driver not in ("", DRIVERS[dialect][0]):
        raise ConfigurationError(f"store 'sql': driver {driver!r} is not supported; start the URL with {scheme}://")
    if dialect == "sqlite":
        sqlite_path(parsed)
    if dialect == "mysql" and not parsed.database:
        raise ConfigurationError(
            f"store 'sql': 'url' contains no database; give, for example, {scheme}://user@host/database"
        )
    return parsed.set(drivername=f"{'postgresql' if scheme == 'postgres' else scheme}+{DRIVERS[dialect][0]}")


def _engine(url: sa.URL) -> sa.Engine:
    # `mysql` for MariaDB too: SQLAlchemy detects which one responds, and refuses `mariadb` for a MySQL server.
    dialect = {"mariadb": MYSQL}.get(url.get_backend_name(), url.get_backend_name())
    url = url.set(drivername=f"{dialect}+{DRIVERS[dialect][0]}")
    if dialect == SQLITE:
        file = SqliteFile(sqlite_path(url))
        engine = sql_engine(url, "store 'sql'")
        file.watch(engine)
        return engine
    return sql_engine(
        url,
        "store 'sql'",
        session=_SESSIONS[dialect],
        response_seconds=MYSQL_RESPONSE_TIMEOUT_SECONDS,
        pool_pre_ping=True,
        # All statements depend on it: MySQL's default would lock the gaps between rows.
        isolation_level="READ COMMITTED",
    )
