"""Iceberg tables, as operators describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.aws import aws_settings
from airflow_provider_coordination.hooks.iceberg import catalog_properties, location_of, storage_properties
from airflow_provider_coordination.operators.template_values import names_value, text_value
from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.spark.settings import MAIN, SinkSettings
from airflow_provider_coordination.spark.sinks.iceberg.settings import IcebergSettings

ICEBERG = "iceberg"


@dataclass
class IcebergTable:
    """An Iceberg table, for the `writes` of operators. It is made if there is none.

    :param table: its name, with its namespace, such as `lake.clicks`. (templated)
    :param catalog_conn_id: the connection to its catalog: to a database, or one whose host is the URI of a REST
        catalog; its extra holds more properties of the catalog. (templated)
    :param catalog: properties of the catalog, as pyiceberg has them, such as `{"type": "glue"}`; they win over those
        of the connection.
    :param catalog_name: what the catalog is called; catalogs in databases keep it with each table. (templated)
    :param aws_conn_id: the AWS connection by which the table's files, and Glue, are reached; by default by the
        AWS SDK's default chain. (templated)
    :param partition_by: a column, or a list of columns, or of Iceberg's transforms of columns, such as `day(at)` and
        `bucket(16, id)`; by default what the table has, and nothing for a table that is made. (templated)
    :param columns: the types of columns by name, as Iceberg calls them, that the table is made with; by default the
        first delivery has them.
    :param table_properties: properties that the table is made with.
    :param location: where the table is made; by default where its catalog puts it. (templated)
    :param merge_on: the columns by which a row replaces one that is there; every row is added by default. (templated)
    :param order_by: the column whose greatest value decides between rows of one delivery with the same key; without,
        a key is at most once in a batch. (templated)
    :param name: the sink's name, which tells it from others of the task: up to 64 letters, digits, `_` and `-`; `main`
        by default. (templated)
    :param where: which records go there: a SQL predicate over the columns that are written; all by default. (templated)
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
        """See `Writes.landing_path`: maintenance removes what lies below a table and no snapshot names."""
        return None

    def check(self) -> None:
        """Check every value, as far as that needs no connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self._settings({})

    def connect(self) -> SinkSettings:
        """See `Writes.connect`."""
        conn_id, aws_conn_id = text_value(self.catalog_conn_id), text_value(self.aws_conn_id)
        aws = None if aws_conn_id is None else aws_settings(aws_conn_id, service="s3")
        found = {} if aws is None else storage_properties(aws)
        if conn_id is not None:
            found |= catalog_properties(conn_id)
        settings = self._settings(found)
        if not settings.properties:
            raise ConfigurationError(
                f"field 'catalog_conn_id' of {self._sink} is missing: name a connection to the table's catalog, or "
                "give its properties as 'catalog'"
            )
        place = location_of(settings.properties)
        return SinkSettings(
            name=self._name,
            kind=ICEBERG,
            location=f"{ICEBERG}://{place}/{settings.catalog_name}/{settings.table}",
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
        """Return the settings, checked.

        :param connected: properties of the catalog, of connections.
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
        """Return what a field has of one text, or several."""
        given: Any = getattr(self, name)
        if given in (None, "", "None", [], ()):
            return ()
        return (
            (given,) if isinstance(given, str) else names_value(f"{name}' of '{self._sink}", given, instead="a column")
        )
