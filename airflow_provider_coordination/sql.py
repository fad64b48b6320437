"""SQL databases: how they are reached, what their errors mean, and how long a transaction is repeated.

The store of leases, the SQL sink and the supplier of JDBC sources share it. It needs SQLAlchemy where it connects; the
drivers of PostgreSQL, MySQL and MariaDB are extras.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.coordination.errors import ConfigurationError

if TYPE_CHECKING:
    import sqlalchemy as sa

POSTGRESQL = "postgresql"
MYSQL = "mysql"
"""MySQL or MariaDB: both use the same protocol."""
SQLITE = "sqlite"
CONNECTION_TYPES = {
    "postgres": POSTGRESQL,
    "postgresql": POSTGRESQL,
    "mysql": MYSQL,
    "mariadb": MYSQL,
    "sqlite": SQLITE,
}
"""The databases by the types of Airflow connections."""
PORTS = {POSTGRESQL: 5432, MYSQL: 3306}
DRIVERS = {SQLITE: ("pysqlite", ""), POSTGRESQL: ("psycopg", "postgres"), MYSQL: ("pymysql", "mysql")}
"""The driver of each database, and the extra that installs it."""

CONNECT_TIMEOUT_SECONDS = 10
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
REASON_CHARACTERS = 500

STRICT = "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
"""Whatever the default of a MySQL server is, nothing is silently cut off."""
# TCP keepalives detect a host that disappeared, because libpq has no timeout for responses. Statements are not
# prepared: a plan made for one queue would be kept for all, and a change of the schema would break it.
_POSTGRESQL_ARGUMENTS = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "prepare_threshold": None,
}

_PASSING_STATES = re.compile("08|25006|25P03|40001|40P01|53|55P03|57014|57P0|58")
# Client: no connection, or a lost one. Server: a lock or a deadlock; no resources; starting, shutting down or read-only
# during a failover; a connection, a session or a statement that was ended.
_PASSING_CODES = frozenset(
    {0, 1205, 1213, 2002, 2003, 2006, 2013, 2055}
    | {1021, 1037, 1038, 1040, 1041, 1114, 1135, 1203, 1226}
    | {1047, 1053, 1077, 1079, 1290, 1836}
    | {1152, 1158, 1159, 1160, 1161, 1184, 1317, 1684, 1927, 1969, 3024, 4031}
)
# 1684: the catalogue leaves out a table that another session creates or alters just now.
_LOCKED = frozenset({"40001", "40P01", "55P03", 1205, 1213, 1684})
_ROW_STATES = re.compile("22|23|44|54000|P0001")
# Data that a type does not hold; a constraint; the check of a view; an index entry that is too long; a trigger that
# raises.
_ROW_CODES = frozenset(
    {1048, 1062, 1169, 1216, 1264, 1265, 1292, 1366, 1406, 1452, 1526, 1586, 1644, 1690, 3140, 3819, 4025, 4038}
)
_PASSING_CLASSES = ("OperationalError", "InterfaceError", "InternalError")
"""The names of PEP 249's errors that may be temporary, if the database gives no code."""
_LASTING_TEXTS = re.compile(
    r"unable to open|not a database|readonly|no such (table|column)|doesn't exist|does not exist|no pg_hba\.conf|"
    r"unknown (column|database|table)|authentication|no password supplied|access denied|permission denied|"
    r"syntax error|certificate|SSL was required|does not support SSL",
    re.IGNORECASE,
)


def sql_engine(
    url: sa.URL,
    what: str,
    *,
    session: Sequence[str] = (),
    response_seconds: float | None = None,
    arguments: Mapping[str, Any] | None = None,
    **options: Any,
) -> sa.Engine:
    """Return the engine of a database, without connecting to it.

    :param url: the URL, with its driver. Timeouts in its query take precedence.
    :param what: what needs the driver, for the error.
    :param session: settings of every session, such as `lock_timeout = '10s'`.
    :param response_seconds: how long MySQL's client waits for a response; None for ever.
    :param arguments: further arguments of the driver.
    :param options: further options of `create_engine`.
    :raises ConfigurationError: if the driver is not installed.
    """
    import sqlalchemy as sa

    database = url.get_backend_name()
    defaults: dict[str, Any] = {}
    forced = dict(arguments or {})
    if database == POSTGRESQL:
        defaults = _POSTGRESQL_ARGUMENTS
    elif database == MYSQL:
        defaults = {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
        if response_seconds is not None:
            defaults |= {"read_timeout": response_seconds, "write_timeout": response_seconds}
        forced |= {"charset": "utf8mb4"} | ({"init_command": f"SET SESSION {', '.join(session)}"} if session else {})
    effective = {name: value for name, value in defaults.items() if name not in url.query} | forced
    try:
        engine = sa.create_engine(url, connect_args=effective, **options)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{what}: the driver {error.name!r} is not installed; install "
            f"airflow-provider-coordination[{DRIVERS[database][1]}]"
        ) from None
    if session and database == POSTGRESQL:

        def configure(connection: Any, record: object) -> None:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("; ".join(f"SET {setting}" for setting in session))
            connection.autocommit = False

        sa.event.listen(engine, "connect", configure)
    return engine


class Patience:
    """The pauses between the tries of a transaction, which grow until a deadline.

    :param seconds: how long it is tried again.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.pause = FIRST_PAUSE_SECONDS
        """The longest that the next pause lasts, in seconds."""
        self.renew()

    def renew(self) -> None:
        """Let the deadline be as far away as at first."""
        self._deadline = time.monotonic() + self._seconds

    @property
    def is_over(self) -> bool:
        """Whether the deadline comes before the end of the next pause."""
        return time.monotonic() + self.pause > self._deadline

    def wait(self) -> None:
        """Pause before the next try."""
        time.sleep(self.pause * random.uniform(0.5, 1.0))
        self.pause = min(2 * self.pause, LONGEST_PAUSE_SECONDS)


def code_of(error: BaseException) -> str | int | None:
    """Return the code of a database's error: MySQL's number, or the SQLSTATE of others; None if it has none."""
    cause = _cause(error)
    first = cause.args[0] if cause.args else None
    state = getattr(cause, "sqlstate", None)
    return first if type(first) is int else state if state is None else str(state)


def reason_of(error: BaseException) -> str:
    """Return the database's message, without the values of rows if they can be separated from it."""
    cause, code = _cause(error), code_of(error)
    text = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause).strip() or type(cause).__name__
    if isinstance(code, int):  # PyMySQL's code and text
        text = " ".join(map(str, cause.args[1:])) or "the connection is closed"
        return f"{' '.join(text.split())[:REASON_CHARACTERS]} ({code})"
    return " ".join(text.split())[:REASON_CHARACTERS]


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may help: not if the file, the database or the permission for it is missing.

    :param error: a driver's error or SQLAlchemy's.
    """
    from sqlalchemy.exc import TimeoutError as PoolTimeoutError

    code = code_of(error)
    if isinstance(code, str):
        return _PASSING_STATES.match(code) is not None
    if code is not None:
        return code in _PASSING_CODES
    names = {kind.__name__ for each in (error, _cause(error)) for kind in type(each).__mro__}
    is_passing = not names.isdisjoint(_PASSING_CLASSES) and not _LASTING_TEXTS.search(str(_cause(error)))
    return is_passing or isinstance(error, PoolTimeoutError)


def is_locked(error: BaseException) -> bool:
    """Return whether a transaction failed because of the locks of others."""
    return code_of(error) in _LOCKED


def is_of_row(error: BaseException) -> bool:
    """Return whether a statement failed because of the values of a row, such as a violated constraint."""
    code = code_of(error)
    return bool(_ROW_STATES.match(code)) if isinstance(code, str) else code in _ROW_CODES


def _cause(error: BaseException) -> BaseException:
    """Return the driver's error: SQLAlchemy's text also contains the statement."""
    cause = getattr(error, "orig", None)
    return cause if isinstance(cause, BaseException) else error
