"""A database table or query, read by JDBC in ranges of a column."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.supplier import Supplier
from airflow_provider_coordination.hooks.jdbc import JdbcConnection, jdbc_connection
from airflow_provider_coordination.operators.template_values import bool_value, int_value
from airflow_provider_coordination.settings import text_value, write_settings
from airflow_provider_coordination.sources.jdbc.settings import DEFAULT_FETCH_SIZE, JdbcSettings, RangeSettings
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.reads import Connected, ConnectionResolver

Bound = str | int | float | Decimal | date | datetime


@dataclass
class JdbcTable:
    """A database table or query, for the `reads` of operators.

    The supplier splits it into ranges of a column that hold about the same number of rows. Each range is a partition.
    The JDBC driver is not included: give it to the Spark operator, by its `packages` or `jars`.

    :param table: the table or view, with its schema if it needs one. (templated)
    :param query: one SELECT, instead of a table. (templated)
    :param column: the column that defines the ranges: whole numbers, decimals, dates or times, best with an index.
        (templated)
    :param jdbc_conn_id: the connection: of type `postgres`, `mysql` or `sqlite`, or of any type with a complete JDBC
        URL as its host. (templated)
    :param url: the JDBC URL, if the connection does not determine one; without user and password. (templated)
    :param driver: the class of the JDBC driver; by default the usual one for the URL. (templated)
    :param rows_per_partition: the approximate number of rows in a range; 500,000 by default. (templated)
    :param partitions: the approximate number of ranges, instead of `rows_per_partition`. (templated)
    :param start: read only rows whose value is at least this. (templated)
    :param end: read only rows whose value is less than this. (templated)
    :param incremental: read what was added since the last run, by the largest value of `column` that was read; with
        `start` the first run begins there. (templated)
    :param lag: how late rows become visible: a `timedelta` for a column of times, or the distance from the largest
        value for a column of numbers. Later rows are left to a later run. Only with `incremental`.
    :param nulls: how to handle rows without a value in the column: `"read"` puts them into a range of their own,
        `"refuse"` fails the task if there are any, `"ignore"` leaves them out. By default `"read"` if everything is
        read, and `"refuse"` otherwise. (templated)
    :param fetch_size: the number of rows that the driver fetches at a time. (templated)
    :param session: a statement that begins every session, such as `SET ROLE reader`. (templated)
    :param properties: further properties for the driver, as text by name.
    :param source: the source's name if the operator sets none; by default the connection and the table, with the
        interval if there is one: each interval has leases of its own. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = (
        "table",
        "query",
        "column",
        "jdbc_conn_id",
        "url",
        "driver",
        "rows_per_partition",
        "partitions",
        "start",
        "end",
        "incremental",
        "nulls",
        "fetch_size",
        "session",
        "source",
    )
    is_endless: ClassVar[bool] = False
    kind: ClassVar[str] = "jdbc"

    table: str | None = None
    _: KW_ONLY
    query: str | None = None
    column: str
    jdbc_conn_id: str = "jdbc_default"
    url: str | None = field(default=None, repr=False)
    driver: str | None = None
    rows_per_partition: int | str | None = None
    partitions: int | str | None = None
    start: Bound | None = None
    end: Bound | None = None
    incremental: bool | str = False
    lag: timedelta | float | None = None
    nulls: str | None = None
    fetch_size: int | str | None = None
    session: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    source: str | None = None

    @property
    def default_source(self) -> str:
        """See `Reads.default_source`."""
        if source := text_value(self.source):
            return source
        table, query = text_value(self.table), text_value(self.query)
        name = f"{self.jdbc_conn_id}.{table or f'query-{hashlib.sha256(str(query).encode()).hexdigest()[:8]}'}"
        start, end = _text(self.start), _text(self.end)
        if bool_value("incremental", self.incremental) or (start is None and end is None):
            return name
        return f"{name}@{start or ''}--{end or ''}"

    @property
    def reads_from(self) -> Mapping[str, Any]:
        """See `Located.reads_from`."""
        given = {name: text_value(getattr(self, name)) for name in ("jdbc_conn_id", "table", "query", "column")}
        return {name: value for name, value in given.items() if value is not None}

    def within(self, start: datetime, end: datetime) -> JdbcTable:
        """See `Bounded.within`: the rows whose `column` is in the interval."""
        for name in ("start", "end"):
            if text_value(getattr(self, name)) is not None:
                raise ConfigurationError(
                    f"JdbcTable: field {name!r} and the operator's 'interval' are both given; remove one of them"
                )
        if bool_value("incremental", self.incremental):
            raise ConfigurationError(
                "JdbcTable: field 'incremental' and the operator's 'interval' are both given; remove one of them"
            )
        return replace(self, start=start, end=end)

    def beside(
        self, other: SourceCoordinator, coordinator: SourceCoordinator, start: datetime, end: datetime
    ) -> JdbcTable | None:
        """See `Deduplicated.beside`: rows from the other source's first value on are left out."""
        from airflow_provider_coordination.sources.jdbc.supplier import incremental_start

        began = incremental_start(other, text_value(self.table), text_value(self.query), text_value(self.column) or "")
        if began is None or began <= start:
            return None
        return self.within(start, min(end, began))

    def check(self) -> None:
        """Check every value that can be checked without a connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self._ranges().check()

    def connect(self, connections: ConnectionResolver) -> Connected:
        """See `Reads.connect`."""
        ranges = self._ranges()
        ranges.check()
        connection = jdbc_connection(self.jdbc_conn_id, text_value(self.url))
        settings = self._settings(connection)
        settings.check()
        _ = settings.driver_class  # raises if none is known

        def supplier(coordinator: SourceCoordinator) -> Supplier:
            from airflow_provider_coordination.sources.jdbc.query import DbApiQuery
            from airflow_provider_coordination.sources.jdbc.supplier import RangeSupplier

            query = DbApiQuery(connection.connect, settings.session_statement)
            return RangeSupplier(query, settings, ranges, coordinator.clock.now)

        return Connected(reads=ReadsSettings(kind=self.kind, settings=write_settings(settings)), supplier=supplier)

    def _settings(self, connection: JdbcConnection) -> JdbcSettings:
        fetch_size = int_value("fetch_size", self.fetch_size)
        return JdbcSettings(
            url=connection.url,
            user=connection.user,
            password=connection.password,
            driver=text_value(self.driver),
            table=text_value(self.table),
            query=text_value(self.query),
            fetch_size=DEFAULT_FETCH_SIZE if fetch_size is None else fetch_size,
            session=text_value(self.session),
            properties={**connection.properties, **self.properties},
        )

    def _ranges(self) -> RangeSettings:
        lag: Any = self.lag
        if isinstance(lag, bool) or not isinstance(lag, timedelta | float | int | None):
            raise ConfigurationError(f"field 'lag' must be a timedelta, or a number; got {lag!r}")
        return RangeSettings(
            column=text_value(self.column) or "",
            rows_per_partition=int_value("rows_per_partition", self.rows_per_partition),
            partitions=int_value("partitions", self.partitions),
            start=_text(self.start),
            end=_text(self.end),
            incremental=bool_value("incremental", self.incremental),
            lag_seconds=lag.total_seconds() if isinstance(lag, timedelta) else None,
            lag_keys=None if isinstance(lag, timedelta) else lag,
            nulls=text_value(self.nulls),
        )


def _text(bound: Bound | None) -> str | None:
    """Return a bound as text; None if it is not set."""
    return bound.isoformat() if isinstance(bound, date) else text_value(bound)
