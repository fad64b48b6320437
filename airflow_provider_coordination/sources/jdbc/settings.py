"""The settings of a JDBC source: the connection, the table or query, and how it is divided into ranges.

The password is never part of the URL: URLs are shown in logs and plans, passwords never.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.jdbc.values import MYSQL

DEFAULT_ROWS_PER_PARTITION = 500_000
DEFAULT_FETCH_SIZE = 10_000

READ = "read"
REFUSE = "refuse"
IGNORE = "ignore"
NULLS = (READ, REFUSE, IGNORE)

DRIVERS = {
    "postgresql": ("org.postgresql.Driver", "org.postgresql:postgresql"),
    "mysql": ("com.mysql.cj.jdbc.Driver", "com.mysql:mysql-connector-j"),
    "sqlite": ("org.sqlite.JDBC", "org.xerial:sqlite-jdbc"),
    "sqlserver": ("com.microsoft.sqlserver.jdbc.SQLServerDriver", "com.microsoft.sqlserver:mssql-jdbc"),
    "oracle": ("oracle.jdbc.OracleDriver", "com.oracle.database.jdbc:ojdbc11"),
    "mariadb": ("org.mariadb.jdbc.Driver", "org.mariadb.jdbc:mariadb-java-client"),
}
"""The driver's class and its package, by the first word of a URL."""

OF_SPARK = (
    "dbtable",
    "driver",
    "fetchsize",
    "password",
    "prefertimestampntz",
    "query",
    "sessioninitstatement",
    "url",
    "user",
)
"""The options of Spark's JDBC source that have their own setting here."""

_URL = re.compile(r"jdbc:([a-z0-9]+):(\S+)")
_SECRET = re.compile(r"://[^/?#@]*:[^/?#@]*@|[?&;](?:password|pwd)=|^jdbc:oracle:\w+:[^/@]+/[^@]*@", re.IGNORECASE)
_NAME = r'(?:[\w$]+|"[^"]+"|`[^`]+`|\[[^\[\]]+\])'
_TABLE = re.compile(rf"{_NAME}(?:\.{_NAME}){{0,3}}")
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class JdbcSettings:
    """A table or query of a database.

    :param url: the JDBC URL, without user and password.
    :param user: the user to connect as.
    :param password: the user's password; never shown.
    :param driver: the class of the JDBC driver; None for the default of the URL.
    :param table: the table or view to read, with its schema if needed.
    :param query: the query to read instead of a table: one SELECT.
    :param fetch_size: how many rows the driver fetches at a time; with 0, some drivers fetch all at once.
    :param session: a statement that is run at the start of every session, such as `SET ROLE reader`.
    :param properties: further properties of the driver, such as `{"sslmode": "verify-full"}`; never shown.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    driver: str | None = None
    table: str | None = None
    query: str | None = None
    fetch_size: int = DEFAULT_FETCH_SIZE
    session: str | None = None
    properties: dict[str, str] = field(default_factory=dict, repr=False)

    def check(self) -> None:
        """Check every value that can be checked without the database.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self._check_url()
        self._check_relation()
        if self.fetch_size < 0:
            raise _invalid("fetch_size", self.fetch_size, "must not be negative")
        if self.session is not None and ";" in _QUOTED.sub("", self.session):
            raise _invalid("session", self.session, "must be one statement, without ';'")
        for name, value in self.properties.items():
            if name.lower() in OF_SPARK:
                raise _invalid(
                    "properties", name, "must not contain a property that has its own parameter or connection field"
                )
            if name.lower() == "customschema":
                raise _invalid("properties", name, "must not change types, which may change values; CAST in a 'query'")
            if not isinstance(value, str):
                raise _invalid("properties", f"{type(value).__name__} for {name!r}", "must map text to text")

    @property
    def relation(self) -> str:
        """The table or query as SQL for FROM."""
        if self.query is None:
            return str(self.table)
        return f"(\n{self.query.strip()}\n) coordination_source"

    @property
    def name(self) -> str:
        """The name of the table or query, for messages."""
        return "query" if self.table is None else self.table

    @property
    def dialect(self) -> str:
        """The kind of database: the first word of the URL."""
        found = _URL.fullmatch(self.url)
        return found[1] if found else ""

    @property
    def driver_class(self) -> str:
        """The class of the JDBC driver.

        :raises ConfigurationError: if none is given, and the URL has no default.
        """
        if self.driver:
            return self.driver
        if self.dialect in DRIVERS:
            return DRIVERS[self.dialect][0]
        raise _invalid("driver", None, f"must name the class of the JDBC driver for {self.dialect!r}")

    @property
    def session_statement(self) -> str | None:
        """The statement at the start of every session."""
        if self.session is None and self.dialect == MYSQL:
            # Otherwise a TIMESTAMP could mean different instants in a session of the task and in one of Spark.
            return "SET time_zone = '+00:00'"
        return self.session

    def _check_url(self) -> None:
        match = _URL.fullmatch(self.url)
        # The messages do not show the URL, since it may contain a password.
        if match is None:
            raise ConfigurationError(
                "jdbc settings: field 'url' is not a JDBC URL; give one such as jdbc:postgresql://host:5432/database"
            )
        if _SECRET.search(self.url):
            raise ConfigurationError(
                "jdbc settings: field 'url' must not contain a password, since URLs are shown in logs and plans; put "
                "it into the login and password of the connection"
            )
        if match[1] == "mariadb":
            raise ConfigurationError(
                "jdbc settings: field 'url' begins with 'jdbc:mariadb:', for which Spark quotes names as in standard "
                "SQL, so that it reads the names of columns instead of their values; begin it with 'jdbc:mysql:' "
                "and, with MariaDB's driver, end it with '?permitMysqlScheme'"
            )

    def _check_relation(self) -> None:
        if (self.table is None) is (self.query is None):
            raise ConfigurationError(
                f"jdbc settings: give one of the fields 'table' and 'query'; got {self.table!r} and {self.query!r}"
            )
        if self.table is not None and not _TABLE.fullmatch(self.table):
            raise _invalid("table", self.table, "must be the name of a table, such as 'orders' or 'shop.orders'")
        if self.query is not None:
            bare = _QUOTED.sub(" ", self.query)
            if ";" in bare:
                raise _invalid("query", self.query, "must be one SELECT without ';'")
            if not re.match(r"\s*(?:select|with)\b", bare, re.IGNORECASE):
                raise _invalid("query", self.query, "must begin with SELECT or WITH")


@dataclass(frozen=True, kw_only=True)
class RangeSettings:
    """How a table or query is divided into ranges, and which of its rows are read.

    :param column: a column of numbers or times; it should have an index.
    :param rows_per_partition: the approximate number of rows of a range.
    :param partitions: the approximate number of ranges, instead of `rows_per_partition`.
    :param start: read no row whose value is less than this; text.
    :param end: read no row whose value is this or more; text. With `start` it is an interval with exact ends.
    :param incremental: each run of the supplier reads the rows after those of the previous run: `column` is the
        high-water column. `start` then is where the first run starts.
    :param lag_seconds: how long after the time in its column a row may become visible. Younger rows are left to a
        later run. Only with `incremental`.
    :param lag_keys: the same for a column of numbers: how far below the highest one a row may still become visible.
    :param nulls: what happens to rows without a value in the column: `"read"` makes them a range of their own,
        `"refuse"` ends the run with an error if there are any, `"ignore"` leaves them out. None means `"read"` if
        everything is read, and `"refuse"` otherwise: such a row is in no interval, and neither new nor old.
    """

    column: str
    rows_per_partition: int | None = None
    partitions: int | None = None
    start: str | None = None
    end: str | None = None
    incremental: bool = False
    lag_seconds: float | None = None
    lag_keys: float | None = None
    nulls: str | None = None

    def check(self) -> None:
        """Check every value that can be checked without the database.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if not self.column:
            raise _invalid("column", self.column, "must name a column of numbers or times")
        if self.partitions is not None and self.rows_per_partition is not None:
            raise ConfigurationError(
                "jdbc settings: fields 'partitions' and 'rows_per_partition' are both given; got "
                f"{self.partitions!r} and {self.rows_per_partition!r}; give one of them"
            )
        for name in ("partitions", "rows_per_partition"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise _invalid(name, value, "must be at least 1")
        if self.nulls not in (None, *NULLS):
            raise _invalid("nulls", self.nulls, f"must be {', '.join(map(repr, NULLS[:-1]))} or {NULLS[-1]!r}")
        if self.nulls == READ and not self.reads_everything:
            raise _invalid(
                "nulls",
                self.nulls,
                "must be 'refuse' or 'ignore', because no interval and no incremental read can include a NULL",
            )
        self._check_incremental()

    @property
    def reads_everything(self) -> bool:
        """Whether every row is read, once."""
        return not self.incremental and self.start is None and self.end is None

    @property
    def null_handling(self) -> str:
        """What happens to rows without a value in the column."""
        return self.nulls or (READ if self.reads_everything else REFUSE)

    def _check_incremental(self) -> None:
        if self.incremental and self.end is not None:
            raise _invalid("end", self.end, "must not be given with 'incremental', which has no end")
        for name in ("lag_seconds", "lag_keys"):
            if (value := getattr(self, name)) is None:
                continue
            if not self.incremental:
                raise _invalid("lag", value, "needs 'incremental'")
            if value < 0:
                raise _invalid("lag", value, "must not be negative")


def _invalid(name: str, value: object, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"jdbc settings: field {name!r} {remedy}; got {value!r}")
