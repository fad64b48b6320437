"""Tables of PostgreSQL, MySQL and MariaDB as sinks of operators."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.sql import sql_server
from airflow_provider_coordination.operators.template_values import bool_value, names_value
from airflow_provider_coordination.operators.writes.writes import check_aws_connection, with_aws_connection
from airflow_provider_coordination.settings import text_value, write_settings
from airflow_provider_coordination.spark.settings import MAIN, SinkSettings
from airflow_provider_coordination.spark.sql.settings import POSTGRESQL, SqlSettings

DEFAULT_SCHEMA = "public"
_TABLE = re.compile(r"(?:([^.\"`%/]+)\.)?([^.\"`%/]+)")


@dataclass
class SqlTable:
    """A table of PostgreSQL, MySQL or MariaDB, for the `writes` of operators.

    One transaction writes the rows of a batch and its id. The ids are kept in the table `_coordination_batches` beside
    the table.

    :param table: the table, with its schema if that is not `public`; for MySQL with its database if that is not the
        connection's database. It is created if it does not exist. (templated)
    :param conn_id: the connection, of type `postgres` or `mysql`. (templated)
    :param staging_path: where rows wait for their transaction: a path or URI that the driver and every executor reach.
        (templated)
    :param merge_on: the key columns by which a row replaces an existing row; by default every row is added. (templated)
    :param add_columns: add columns that the table lacks; by default they are an error. (templated)
    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`; `main` by default.
        (templated)
    :param where: which records the sink receives: a SQL predicate over the written columns; all by default. (templated)
    :param aws_conn_id: the AWS connection for a staging path on S3; by default the AWS default credential chain.
        (templated)
    """

    template_fields: ClassVar[Sequence[str]] = (
        "table",
        "conn_id",
        "staging_path",
        "merge_on",
        "add_columns",
        "name",
        "where",
        "aws_conn_id",
    )

    table: str
    _: KW_ONLY
    conn_id: str
    staging_path: str
    merge_on: Sequence[str] = ()
    add_columns: bool | str = False
    name: str | None = None
    where: str | None = None
    aws_conn_id: str | None = None

    @property
    def landing_path(self) -> str | None:
        """See `Writes.landing_path`."""
        path = text_value(self.staging_path)
        return None if path is None else f"{path.rstrip('/')}/_landing"

    def check(self) -> None:
        """Check every value; this needs no connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self._schema_and_table()
        self._merge_on()
        bool_value("add_columns", self.add_columns)
        for name in ("staging_path", "conn_id"):
            if not (text_value(getattr(self, name)) or "").strip():
                raise ConfigurationError(f"field {name!r} of SqlTable {self._name!r} must not be empty")
        path, aws_conn_id = str(text_value(self.staging_path)), text_value(self.aws_conn_id)
        check_aws_connection(aws_conn_id, f"SqlTable {self._name!r}", "staging path", path)
        where = text_value(self.where)
        if where is not None and not where.strip():
            raise ConfigurationError(f"field 'where' of SqlTable {self._name!r} must not be empty; leave it out")

    def connect(self) -> SinkSettings:
        """See `Writes.connect`."""
        self.check()
        schema, table = self._schema_and_table()
        server = sql_server(str(self.conn_id))
        settings = SqlSettings(
            database=server.database,
            host=server.host,
            port=server.port,
            catalog=server.catalog,
            user=server.user,
            password=server.password,
            tls=server.tls,
            schema=schema or (DEFAULT_SCHEMA if server.database == POSTGRESQL else server.catalog),
            table=table,
            staging_path=str(self.staging_path),
            merge_on=self._merge_on(),
            add_columns=bool_value("add_columns", self.add_columns),
        )
        sink = SinkSettings(
            name=self._name,
            kind="sql",
            location=settings.location,
            where=text_value(self.where),
            files=settings.staging_path,
            settings=write_settings(settings),
        )
        return with_aws_connection(text_value(self.aws_conn_id), sink)

    @property
    def _name(self) -> str:
        return text_value(self.name) or MAIN

    def _schema_and_table(self) -> tuple[str | None, str]:
        match = _TABLE.fullmatch(text_value(self.table) or "")
        if match is None:
            raise ConfigurationError(
                f"field 'table' of SqlTable {self._name!r} must be a table such as 'orders' or 'sales.orders', without "
                f"quotes; got {self.table!r}"
            )
        return match[1], match[2]

    def _merge_on(self) -> tuple[str, ...]:
        return names_value("merge_on", self.merge_on, instead="left out") if self.merge_on else ()
