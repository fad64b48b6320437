"""Tables and queries of databases, by JDBC, as a kind of source: their settings, and how to reach them.

An Airflow connection gives a JDBC URL for Spark, and a connection from Python. The password is never part of the URL:
URLs are shown in logs and plans, passwords never.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import parse_qsl

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.field_hints import Limits, ParsedBy
from airflow_provider_coordination.settings import CONNECTED, FieldError, text_value
from airflow_provider_coordination.sources.connections import ConnectionResolver, ConnectionValues
from airflow_provider_coordination.sources.item_kind import ItemKind, changed_values
from airflow_provider_coordination.sources.questions import Question
from airflow_provider_coordination.sources.reads import DescribedReads
from airflow_provider_coordination.sources.source_kind import DatasetName, Settings
from airflow_provider_coordination.sql import CONNECTION_TYPES, DRIVERS, MYSQL, PORTS, POSTGRESQL, SQLITE, sql_engine

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator

TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
"""Options that PostgreSQL's own clients, Airflow's connections and the JDBC driver name in the same way."""

_SERVER = re.compile(r"jdbc:(postgresql|mysql)://([^/?:,]+|\[[^\]]+\])(?::(\d+))?/([^?]*)(?:\?(.*))?")

_URL = re.compile(r"jdbc:([a-z0-9]+):(\S+)")
_SECRET = re.compile(r"://[^/?#@]*:[^/?#@]*@|[?&;](?:password|pwd)=|^jdbc:oracle:\w+:[^/@]+/[^@]*@", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class JdbcDatabase:
    """A database that Spark reaches by JDBC.

    :param url: the JDBC URL, without user and password.
    :param user: the user.
    :param password: the user's password; never shown.
    :param properties: further properties of the driver, such as `{"sslmode": "verify-full"}`; never shown.
    """

    url: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def dialect(self) -> str:
        """The kind of database: the first word of the URL."""
        found = _URL.fullmatch(self.url)
        return found[1] if found else ""

    def check(self) -> None:
        """Check the URL. The messages do not show it, since it may contain a password.

        :raises FieldError: if it is none, or contains a password.
        """
        match = _URL.fullmatch(self.url)
        if match is None:
            raise FieldError(
                "JdbcTable", "url", "is not a JDBC URL; give one such as jdbc:postgresql://host:5432/database"
            )
        if _SECRET.search(self.url):
            raise FieldError(
                "JdbcTable",
                "url",
                "must not contain a password, since URLs are shown in logs and plans; put it into the login and "
                "password of the connection",
            )
        if match[1] == "mariadb":
            raise FieldError(
                "JdbcTable",
                "url",
                "begins with 'jdbc:mariadb:', for which Spark quotes names as in standard SQL, so that it reads the "
                "names of columns instead of their values; begin it with 'jdbc:mysql:' and, with MariaDB's driver, end "
                "it with '?permitMysqlScheme'",
            )


def database_of(conn_id: str, url: str | None, connections: ConnectionResolver) -> JdbcDatabase:
    """Return the database of a connection, without connecting to it.

    :param conn_id: a connection of any type with host, port, schema, login and password; or with a complete JDBC URL
        as its host.
    :param url: a JDBC URL, if the connection's type does not determine one.
    :param connections: resolves the connection.
    :raises ConfigurationError: naming the connection, and what is missing.
    """
    name = f"connection {conn_id!r}"
    values = connections.values(conn_id, name)
    jdbc_url = url or _url_of(name, values)
    is_postgres = jdbc_url.startswith("jdbc:postg")
    properties = {name: str(values.extra[name]) for name in TLS if name in values.extra} if is_postgres else {}
    return JdbcDatabase(url=jdbc_url, user=values.login, password=values.password, properties=properties)


def connect_from_python(conn_id: str, database: JdbcDatabase, connections: ConnectionResolver) -> Callable[[], Any]:
    """Return what opens a connection to a database from Python, as PEP 249 describes it.

    The hook of the connection's provider opens it if that is installed. Otherwise SQLAlchemy does, for PostgreSQL,
    MySQL, MariaDB and SQLite.

    :param conn_id: the Airflow connection.
    :param database: its database.
    :param connections: resolves the connection.
    :raises ConfigurationError: if no library for the database is installed.
    """
    name = f"connection {conn_id!r}"
    values = connections.values(conn_id, name)
    connect = None
    if values.conn_type == "jdbc" or not (values.host or "").startswith("jdbc:"):
        connect = connections.from_python(conn_id)
    return connect or _connect_of(name, values, database)


def _url_of(name: str, values: ConnectionValues) -> str:
    """Return the JDBC URL of a connection."""
    host = values.host or ""
    if host.startswith("jdbc:"):
        return host
    kind = CONNECTION_TYPES.get(values.conn_type or "")
    if kind is None:
        raise ConfigurationError(
            f"{name}: a connection of type {values.conn_type!r} does not determine a JDBC URL; give 'url', or the "
            f"complete JDBC URL as its host. The types that determine one are {', '.join(CONNECTION_TYPES)}"
        )
    if not host:
        raise ConfigurationError(f"{name}: field 'host' is missing; name the database server")
    if kind == SQLITE:
        return f"jdbc:sqlite:{host}"
    if not values.schema:
        raise ConfigurationError(f"{name}: field 'schema' is missing; name the database")
    return f"jdbc:{kind}://{host}:{values.port or PORTS[kind]}/{values.schema}"


def _connect_of(name: str, values: ConnectionValues, database: JdbcDatabase) -> Callable[[], Any]:
    import sqlalchemy as sa
    from sqlalchemy.pool import NullPool

    if database.url.startswith("jdbc:sqlite:"):
        target = sa.URL.create("sqlite", database=database.url.removeprefix("jdbc:sqlite:").removeprefix("file:"))
        return sa.create_engine(target, poolclass=NullPool).raw_connection
    match = _SERVER.fullmatch(database.url)
    if match is None:
        raise ConfigurationError(
            f"{name}: the task cannot query this database from Python; install the Airflow "
            f"provider of the connection's type {values.conn_type!r}, or use a type that has a provider"
        )
    kind, host, port, schema, options = match.groups()
    parameters = {name.lower(): value for name, value in parse_qsl(options or "")} | dict(database.properties)
    target = sa.URL.create(
        f"{kind}+{DRIVERS[kind][0]}",
        username=database.user,
        password=database.password,
        host=host.strip("[]"),
        port=int(port or PORTS[kind]),
        database=schema,
        query={name: parameters[name] for name in TLS if name in parameters} if kind == POSTGRESQL else {},
    )
    needs = f"{name}, without the Airflow provider of type {values.conn_type!r}"
    return sql_engine(target, needs, poolclass=NullPool).raw_connection


DEFAULT_ROWS_PER_PARTITION = 500_000

READ = "read"
REFUSE = "refuse"
IGNORE = "ignore"
NULLS = (READ, REFUSE, IGNORE)

JDBC_DRIVERS = {
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

_NAME = r'(?:[\w$]+|"[^"]+"|`[^`]+`|\[[^\[\]]+\])'
_TABLE = re.compile(rf"{_NAME}(?:\.{_NAME}){{0,3}}")
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)


def bound_text(bound: Any) -> str:
    """Return a bound of a column's values as text."""
    return bound.isoformat() if isinstance(bound, date) else str(bound)


Bound = Annotated[str | None, ParsedBy(parse=bound_text, written=str | int | float)]


@dataclass
class JdbcTable(DescribedReads):
    """A database table or query, for the `reads` of operators.

    The supplier splits it into ranges of a column that hold about the same number of rows. Each range is a partition.
    The JDBC driver is not included: give it to the Spark operator, by its `packages` or `jars`.

    :param table: the table or view, with its schema if it needs one. (templated)
    :param query: one SELECT, instead of a table. It runs once for each range, with the range as a condition around it.
        (templated)
    :param column: the column that defines the ranges: whole numbers, decimals, dates or times, best with an index.
        Write `ID` in Oracle, as the database does. (templated)
    :param jdbc_conn_id: the connection: of type `postgres`, `mysql` or `sqlite`, or of any type with a complete JDBC
        URL as its host. (templated)
    :param url: the JDBC URL, if the connection does not determine one; without user and password. (templated)
    :param driver: the class of the JDBC driver; by default the usual one for the URL. (templated)
    :param rows_per_partition: the approximate number of rows in a range; by default 500,000. (templated)
    :param partitions: the approximate number of ranges, instead of `rows_per_partition`. (templated)
    :param start: read only rows whose value is at least this. (templated)
    :param end: read only rows whose value is less than this. (templated)
    :param incremental: read what was added since the last run, by the largest value of `column` that was read; with
        `start` the first run begins there. (templated)
    :param lag: how late rows become visible: a `timedelta` for a column of times, or a distance for a column of
        numbers. Only with `incremental`. Rows within that distance of the largest value are left to a later run.
        (templated)
    :param nulls: how to handle rows without a value: `"read"` reads them in a range of their own, `"refuse"` fails the
        task, `"ignore"` leaves them out. By default `"read"` if everything is read, and `"refuse"` otherwise.
        (templated)
    :param fetch_size: the number of rows that the driver fetches at a time. (templated)
    :param session: a statement that begins every session, such as `SET ROLE reader`. (templated)
    :param properties: further properties for the driver, as text by name. (templated)
    :param source: the source's name if the operator sets none; by default `<connection>.<table>` or
        `<connection>.query-<digest>`, with `@<start>--<end>` for an interval, which has leases of its own. (templated)
    """

    kind: ClassVar[str] = "jdbc"

    table: str | None = None
    _: KW_ONLY
    query: str | None = None
    column: str
    jdbc_conn_id: str = "jdbc_default"
    url: str | None = field(default=None, repr=False)
    driver: str | None = None
    rows_per_partition: Annotated[int | None, Limits(minimum=1)] = None
    partitions: Annotated[int | None, Limits(minimum=1)] = None
    start: Bound = None
    end: Bound = None
    incremental: bool = False
    lag: timedelta | float | None = None
    nulls: Annotated[str | None, Limits(one_of=NULLS)] = None
    fetch_size: Annotated[int, Limits(minimum=0)] = 10_000
    session: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    database: JdbcDatabase = field(default_factory=JdbcDatabase, repr=False, metadata=CONNECTED)

    @property
    @override
    def own_name(self) -> str:
        table, query = text_value(self.table), text_value(self.query)
        name = f"{self.jdbc_conn_id}.{table or f'query-{hashlib.sha256(str(query).encode()).hexdigest()[:8]}'}"
        start, end = self.converted("start"), self.converted("end")
        if self.converted("incremental") or (start is None and end is None):
            return name
        return f"{name}@{start or ''}--{end or ''}"

    @property
    @override
    def reads_from(self) -> Mapping[str, Any]:
        given = {name: text_value(getattr(self, name)) for name in ("jdbc_conn_id", "table", "query", "column")}
        return {name: value for name, value in given.items() if value is not None}

    @override
    def within(self, start: datetime, end: datetime) -> JdbcTable:
        given = [name for name in ("start", "end") if text_value(getattr(self, name)) is not None]
        given += ["incremental"] if self.converted("incremental") else []
        if given:
            raise FieldError("JdbcTable", given[0], "and the operator's 'interval' are both given; remove one of them")
        return replace(self, start=start.isoformat(), end=end.isoformat())

    @override
    def beside(
        self, other: SourceCoordinator, coordinator: SourceCoordinator, start: datetime, end: datetime
    ) -> JdbcTable | None:
        # Rows from the other source's first value on are left out.
        from airflow_provider_coordination.sources.jdbc.ranges import incremental_start

        began = incremental_start(other, text_value(self.table), text_value(self.query), text_value(self.column) or "")
        if began is None or began <= start:
            return None
        return self.within(start, min(end, began))

    @override
    def set_connections(self, connections: ConnectionResolver) -> None:
        database = database_of(self.jdbc_conn_id, self.url, connections)
        database.check()
        self.database = replace(database, properties={**database.properties, **self.properties})
        _ = self.driver_class  # raises if none is known

    @override
    def check_together(self) -> None:
        self._check_relation()
        if self.partitions is not None and self.rows_per_partition is not None:
            raise self.invalid("partitions", "and 'rows_per_partition' are both given; give one of them")
        self._check_rows()
        if self.session is not None and ";" in _QUOTED.sub("", self.session):
            raise self.invalid("session", "must be one statement, without ';'")
        for name in self.properties:
            if name.lower() in OF_SPARK:
                raise self._wrong_property(
                    name, "must not contain a property that has its own parameter or connection field"
                )
            if name.lower() == "customschema":
                raise self._wrong_property(name, "must not change types, which may change values; CAST in a 'query'")

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
        """The kind of database."""
        return self.database.dialect

    @property
    def driver_class(self) -> str:
        """The class of the JDBC driver.

        :raises ConfigurationError: if none is given, and the URL has no default.
        """
        if self.driver:
            return self.driver
        if self.dialect in JDBC_DRIVERS:
            return JDBC_DRIVERS[self.dialect][0]
        raise self.invalid("driver", f"must name the class of the JDBC driver for {self.dialect!r}")

    @property
    def session_statement(self) -> str | None:
        """The statement at the start of every session."""
        if self.session is None and self.dialect == MYSQL:
            # Otherwise a TIMESTAMP could mean different instants in a session of the task and in one of Spark.
            return "SET time_zone = '+00:00'"
        return self.session

    @property
    def reads_everything(self) -> bool:
        """Whether every row is read, once."""
        return not self.incremental and self.start is None and self.end is None

    @property
    def null_handling(self) -> str:
        """What happens to rows without a value in the column."""
        return self.nulls or (READ if self.reads_everything else REFUSE)

    def _check_relation(self) -> None:
        if (self.table is None) is (self.query is None):
            raise self.invalid("table", "or 'query' must be given, and not both")
        if self.table is not None and not _TABLE.fullmatch(self.table):
            raise self.invalid("table", "must be the name of a table, such as 'orders' or 'shop.orders'")
        if self.query is not None:
            bare = _QUOTED.sub(" ", self.query)
            if ";" in bare:
                raise self.invalid("query", "must be one SELECT without ';'")
            if not re.match(r"\s*(?:select|with)\b", bare, re.IGNORECASE):
                raise self.invalid("query", "must begin with SELECT or WITH")

    def _check_rows(self) -> None:
        if self.nulls == READ and not self.reads_everything:
            raise self.invalid(
                "nulls",
                "must be 'refuse' or 'ignore', because no interval and no incremental read can include a NULL",
            )
        if self.incremental and self.end is not None:
            raise self.invalid("end", "must not be given with 'incremental', which has no end")
        if self.lag is not None and not self.incremental:
            raise self.invalid("lag", "needs 'incremental'")
        lag = self.lag.total_seconds() if isinstance(self.lag, timedelta) else self.lag
        if lag is not None and lag < 0:
            raise self.invalid("lag", "must not be negative")

    def _wrong_property(self, name: str, problem: str) -> FieldError:
        return FieldError(type(self).__name__, "properties", f"{problem}; got {name!r}")


JDBC_URL = re.compile(r"jdbc:(?P<dialect>\w+):(?:\w+:)*@?//(?P<host>[^/;?,]+)(?:/(?P<database>[^;?/]*))?")
DATABASES = {
    "postgresql": ("postgres", "5432", "public"),
    "mysql": ("mysql", "3306", ""),
    "mariadb": ("mysql", "3306", ""),
}
"""OpenLineage's scheme, the default port and the default schema of a database, by its JDBC name."""


def _datasets(settings: Settings) -> Iterable[DatasetName]:
    """Return the dataset of a table by its JDBC URL; a query has no dataset."""
    match = JDBC_URL.match(settings["database"]["url"])
    if match is None or not settings.get("table"):
        return
    dialect, host, database = match["dialect"], match["host"].rpartition("@")[2], match["database"] or ""
    scheme, port, schema = DATABASES.get(dialect, (dialect, "", ""))
    table = re.sub(r'["`\[\]]', "", settings["table"])
    if schema and "." not in table:
        table = f"{schema}.{table}"
    authority = host if ":" in host or not port else f"{host}:{port}"
    is_named_whole = table.startswith(f"{database}.") and (table.count(".") == 2 or not schema)
    yield DatasetName(f"{scheme}://{authority}", table if is_named_whole or not database else f"{database}.{table}")


def _left(before: Settings, now: Settings) -> Iterable[str]:
    """Return the table or query, and the column that divides it, if they differ."""
    return changed_values(before, now, ("table", "query", "column"))


KIND = ItemKind(
    "jdbc",
    "airflow_provider_coordination.sources.jdbc.reader:RangeReader",
    _datasets,
    reads="airflow_provider_coordination.sources.jdbc.kind:JdbcTable",
    left=_left,
    supplier="airflow_provider_coordination.sources.jdbc.supplier:range_supplier",
    questions=(
        Question(option="from-table", text="Table, with its schema", field="table"),
        Question(option="column", text="Column that divides the table into ranges, such as its key", field="column"),
        Question(
            option="source-conn-id",
            text="Airflow connection to the database",
            field="jdbc_conn_id",
            default="jdbc_default",
        ),
    ),
)
