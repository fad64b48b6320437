"""Iceberg tables as sinks of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.aws import aws_settings
from airflow_provider_coordination.hooks.iceberg import catalog_properties, location_of, storage_properties
from airflow_provider_coordination.operators.template_values import names_value
from airflow_provider_coordination.settings import text_value, write_settings
from airflow_provider_coordination.spark.settings import MAIN, SinkSettings
from airflow_provider_coordination.spark.sinks.iceberg.settings import IcebergSettings

ICEBERG = "iceberg"


@dataclass
class IcebergTable:
    """An Iceberg table, for the `writes` of operators. It is created if it does not exist.

    :param table: the name of the table with its namespace, such as `lake.clicks`. (templated)
    :param catalog_conn_id: the connection to its catalog: a database, or a connection whose host is the URI of a REST
        catalog; its extra holds further catalog properties. (templated)
    :param catalog: catalog properties, as pyiceberg names them, such as `{"type": "glue"}`; they override those of the
        connection.
    :param catalog_name: the name of the catalog; catalogs in databases store it with each table. (templated)
    :param aws_conn_id: the AWS connection for the table's files and for Glue; by default the AWS default credential
        chain. (templated)
    :param partition_by: a column or an Iceberg transform, such as `day(at)` and `bucket(16, id)`, or a list of them. By
        default an existing table keeps its own, and a new table is unpartitioned. (templated)
    :param columns: the types of columns of a new table, by column name, as Iceberg names them; by default those of the
        first delivery.
    :param table_properties: the properties of a new table.
    :param location: the location of a new table; by default the catalog chooses it. (templated)
    :param merge_on: the key columns by which a row replaces an existing row; by default every row is added. (templated)
    :param order_by: the column whose greatest value wins between rows with the same key in one delivery. Without it a
        key may occur at most once in a batch. (templated)
    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`; `main` by default.
        (templated)
    :param where: which records the sink receives: a SQL predicate over the written columns; all by default. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = (
        "table",
        "catalog_conn_id",
        "catalog_name",
        "aws_conn_id",
        "partition_by",
        "location",
        "merge_on",
        "order_by",
        "name",
        "where",
    )

    table: str
    catalog_conn_id: str | None = field(default=None, kw_only=True)
    catalog: Mapping[str, Any] | None = field(default=None, kw_only=True, repr=False)
    catalog_name: str = field(default="default", kw_only=True)
    aws_conn_id: str | None = field(default=None, kw_only=True)
    partition_by: str | Sequence[str] | None = field(default=None, kw_only=True)
    columns: Mapping[str, str] | None = field(default=None, kw_only=True)
    table_properties: Mapping[str, str] | None = field(default=None, kw_only=True)
    location: str | None = field(default=None, kw_only=True)
    merge_on: str | Sequence[str] | None = field(default=None, kw_only=True)
    order_by: str | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    where: str | None = field(default=None, kw_only=True)

    @property
    def landing_path(self) -> str | None:
        """See `Writes.landing_path`: None, because table maintenance removes files that no snapshot references."""
        return None

    def check(self) -> None:
        """Check every value that can be checked without a connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self._settings({})

    def connect(self) -> SinkSettings:
        """See `Writes.connect`."""
        conn_id, aws_conn_id = text_value(self.catalog_conn_id), text_value(self.aws_conn_id)
        aws = None if aws_conn_id is None else aws_settings(aws_conn_id, service="s3")
        properties = {} if aws is None else storage_properties(aws)
        if conn_id is not None:
            properties |= catalog_properties(conn_id)
        settings = self._settings(properties)
        if not settings.properties:
            raise ConfigurationError(
                f"field 'catalog_conn_id' of {self._sink} is missing; name a connection to the table's catalog, or "
                "give the catalog's properties as 'catalog'"
            )
        catalog_location = location_of(settings.properties)
        return SinkSettings(
            name=self._name,
            kind=ICEBERG,
            location=f"{ICEBERG}://{catalog_location}/{settings.catalog_name}/{settings.table}",
            where=text_value(self.where),
            aws=aws,
            settings=write_settings(settings),
        )

    @property
    def _name(self) -> str:
        return text_value(self.name) or MAIN

    @property
    def _sink(self) -> str:
        return f"IcebergTable {self._name!r}"

    def _settings(self, connected: Mapping[str, str]) -> IcebergSettings:
        """Return the checked settings.

        :param connected: the catalog properties from connections.
        """
        where = text_value(self.where)
        if where is not None and not where.strip():
            raise ConfigurationError(f"field 'where' of {self._sink} must not be empty; leave it out")
        for name in ("catalog", "columns", "table_properties"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Mapping):
                raise ConfigurationError(
                    f"field {name!r} of {self._sink} must be a mapping; got a value of type {type(value).__name__}"
                )
        settings = IcebergSettings(
            table=text_value(self.table) or "",
            catalog_name=text_value(self.catalog_name) or "default",
            properties={**connected, **{name: str(value) for name, value in (self.catalog or {}).items()}},
            partition_by=self._names("partition_by"),
            columns=dict(self.columns or {}),
            table_properties=dict(self.table_properties or {}),
            table_location=text_value(self.location),
            merge_on=self._names("merge_on"),
            order_by=text_value(self.order_by),
        )
        settings.check(self._sink)
        return settings

    def _names(self, name: str) -> tuple[str, ...]:
        """Return the texts of a field that holds one text or a list."""
        value: Any = getattr(self, name)
        if value in (None, "", "None", [], ()):
            return ()
        return (
            (value,) if isinstance(value, str) else names_value(f"{name}' of '{self._sink}", value, instead="a column")
        )
