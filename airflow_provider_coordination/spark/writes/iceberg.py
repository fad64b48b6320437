"""Iceberg tables as sinks, and their catalogs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.field_hints import Texts
from airflow_provider_coordination.settings import CONNECTED, FieldError
from airflow_provider_coordination.sources.connections import ConnectionResolver, ConnectionValues
from airflow_provider_coordination.spark.writes import MergingSink
from airflow_provider_coordination.sql import CONNECTION_TYPES, DRIVERS, SQLITE

WRITABLE_VERSIONS = (1, 2)  # by pyiceberg
IDENTIFIER = re.compile(r"[^.\s]+(\.[^.\s]+)+")
WITHOUT_NUMBER = ("year", "month", "day", "hour")
WITH_NUMBER = {"bucket": "bucket", "truncate": "trunc"}
"""The transforms that have a number, with the suffix of their fields' names."""
TRANSFORM = re.compile(r"(?P<name>[a-z]+)\(\s*(?:(?P<number>\d+)\s*,\s*)?(?P<column>[^(),\s]+)\s*\)")


@dataclass(frozen=True, kw_only=True)
class PartitionField:
    """One partition field of a table.

    :param name: its name.
    :param column: the source column.
    :param transform: the transform in Iceberg's notation, such as `day` or `bucket[16]`.
    """

    name: str
    column: str
    transform: str

    def __str__(self) -> str:
        """Return the notation of `partition_by`."""
        transform, _, number = self.transform.rstrip("]").partition("[")
        if transform == "identity":
            return self.column
        return f"{transform}({number}, {self.column})" if number else f"{transform}({self.column})"


@dataclass
class IcebergTable(MergingSink):
    """An Iceberg table, for the `writes` of operators. It is created if it does not exist.

    :param table: the name of the table with its namespace, such as `lake.clicks`. (templated)
    :param catalog_conn_id: the connection to its catalog: a database, or one whose host is the URI of a REST catalog.
        Its extra holds further catalog properties. (templated)
    :param catalog: catalog properties, as pyiceberg names them, such as `{"type": "glue"}`; they override those of the
        connection, or replace the connection. (templated)
    :param catalog_name: the name of the catalog. Catalogs in databases store it with each table: use the name under
        which others find the table. (templated)
    :param aws_conn_id: the AWS connection for the table's files and for Glue; by default the AWS default credential
        chain. (templated)
    :param partition_by: a column, a transform such as `bucket(16, id)`, or a list of them; by default the table's own,
        and none for a new table. (templated)
    :param columns: the types of columns of a new table by name, as Iceberg writes them, such as `{"at": "timestamptz",
        "amount": "decimal(10, 2)"}`; by default those of the first delivery. (templated)
    :param table_properties: the properties of a new table. (templated)
    :param location: the location of a new table; by default the catalog chooses it. (templated)
    :param merge_on: the key columns by which a row replaces an existing row; by default every row is added. (templated)
    :param order_by: the column whose greatest value wins among the rows of one key, in a delivery and in the table. Of
        equal ones, the one delivered last wins. Without it, a key must be unique in a batch, and the later delivery
        wins. (templated)
    :param op: the column that says what a row does: `DELETE`, `REMOVE` or `D` deletes the row of its key. The names of
        other changes, and null, replace it. It needs `order_by`. (templated)
    :param tombstone_retention: how long the table remembers the key and the order of a deleted row, so that no older
        change restores it. (templated)
    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`. (templated)
    :param where: which records the sink receives: a SQL predicate over the written columns; all by default. (templated)
    """

    kind: ClassVar[str] = "iceberg"
    folder_field: ClassVar[str] = ""  # table maintenance removes files that no snapshot references

    table: str
    _: KW_ONLY
    catalog_conn_id: str | None = None
    catalog: Mapping[str, str | bool | int | float] = field(default_factory=dict, repr=False)
    catalog_name: str = "default"
    partition_by: Texts = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    table_properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False, metadata=CONNECTED)

    @property
    @override
    def sink_location(self) -> str:
        # Without secrets.
        return f"{self.kind}://{location_of(self.properties)}/{self.catalog_name}/{self.table}"

    @override
    def use(self, connections: ConnectionResolver, aws: AwsSettings | None) -> None:
        # The properties of the catalog.
        properties = {} if aws is None else storage_properties(aws)
        if self.catalog_conn_id is not None:
            properties |= catalog_properties(self.catalog_conn_id, connections)
        self.properties = {**properties, **{name: str(value) for name, value in self.catalog.items()}}
        if not self.properties:
            raise FieldError(
                self.title,
                "catalog_conn_id",
                "is missing; name a connection to the table's catalog, or give the catalog's properties as 'catalog'",
            )

    @override
    def check_together(self) -> None:
        super().check_together()
        if not IDENTIFIER.fullmatch(self.table):
            raise self.invalid("table", "must be a namespace and a name, such as 'lake.clicks'")
        if (version := self.table_properties.get("format-version", "2")) not in map(str, WRITABLE_VERSIONS):
            raise FieldError(
                self.title,
                "table_properties",
                f"has 'format-version' {version!r}, which pyiceberg cannot write; give '2', or leave it out",
            )
        partition_fields(self.partition_by, self.title)


def partition_fields(partition_by: Sequence[str], sink: str) -> tuple[PartitionField, ...]:
    """Return the partition fields of a table.

    :param partition_by: columns, or Iceberg transforms of columns.
    :param sink: the name of the sink in errors.
    :raises ConfigurationError: naming the invalid text, and the remedy.
    """
    fields = tuple(_partition_field(text.strip(), sink) for text in partition_by)
    names = [each.name for each in fields]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise FieldError(sink, "partition_by", f"has {repeated!r} more than once; remove one")
    return fields


def _partition_field(text: str, sink: str) -> PartitionField:
    if text and not re.search(r"[(),\s]", text):
        return PartitionField(name=text, column=text, transform="identity")
    if found := TRANSFORM.fullmatch(text):
        name, number, column = found["name"], found["number"], found["column"]
        if name in WITHOUT_NUMBER and number is None:
            return PartitionField(name=f"{column}_{name}", column=column, transform=name)
        if name in WITH_NUMBER and number is not None and int(number) > 0:
            return PartitionField(
                name=f"{column}_{WITH_NUMBER[name]}", column=column, transform=f"{name}[{int(number)}]"
            )
    raise FieldError(
        sink,
        "partition_by",
        f"has {text!r}, which is neither a column nor a transform of one; give columns, or 'year(at)', 'month(at)', "
        "'day(at)', 'hour(at)', 'bucket(16, id)' or 'truncate(4, name)'",
    )


def catalog_properties(catalog_conn_id: str, connections: ConnectionResolver) -> dict[str, str]:
    """Return the catalog properties of a connection, as pyiceberg names them.

    A connection to a database is a catalog in that database. For any other connection the host is the catalog's URI,
    login and password form its `credential`, and a password alone is its `token`. The extra holds further properties,
    which override these.

    :param catalog_conn_id: the connection.
    :param connections: resolves it.
    :raises ConfigurationError: if the connection is not defined, or its extra is not valid.
    """
    name = f"catalog connection {catalog_conn_id!r}"
    connection = connections.values(catalog_conn_id, name)
    extra = connection.extra
    for each, value in extra.items():
        if not isinstance(value, str | int | bool):
            raise ConfigurationError(
                f"{name}: field {each!r} in its extra must be text, a property of the catalog; got a value of type "
                f"{type(value).__name__}"
            )
    own = _of_database(connection) if connection.conn_type in CONNECTION_TYPES else _of_service(connection)
    return {**own, **{each: _text(value) for each, value in extra.items()}}


def storage_properties(aws: AwsSettings) -> dict[str, str]:
    """Return the properties by which pyiceberg reaches S3 and Glue, from AWS settings."""
    values = {
        "client.region": aws.region,
        "client.access-key-id": aws.access_key_id,
        "client.secret-access-key": aws.secret_access_key,
        "client.session-token": aws.session_token,
        "client.role-arn": aws.role_arn,
        "s3.endpoint": aws.endpoint_url,
    }
    return {name: value for name, value in values.items() if value}


def _of_database(connection: ConnectionValues) -> dict[str, str]:
    database = CONNECTION_TYPES[str(connection.conn_type)]
    if database == SQLITE:
        return {"type": "sql", "uri": f"sqlite:///{connection.host or connection.schema or ''}"}
    user = quote(connection.login or "", safe="")
    secret = f":{quote(connection.password, safe='')}" if connection.password else ""
    port = f":{connection.port}" if connection.port else ""
    login = f"{user}{secret}@" if user else ""
    return {
        "type": "sql",
        "uri": f"{database}+{DRIVERS[database][0]}://{login}{connection.host or ''}{port}/{connection.schema or ''}",
    }


def _of_service(connection: ConnectionValues) -> dict[str, str]:
    properties: dict[str, str] = {}
    if host := connection.host:
        port = f":{connection.port}" if connection.port else ""
        properties["uri"] = host if "://" in host else f"{connection.schema or 'https'}://{host}{port}"
    if connection.password:
        credential = {"credential": f"{connection.login}:{connection.password}"}
        properties |= credential if connection.login else {"token": connection.password}
    return properties


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def location_of(properties: Mapping[str, str]) -> str:
    """Return the location of a catalog, without secrets."""
    uri = properties.get("uri", "")
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return properties.get("type", "default")
    return f"{rest.rpartition('@')[2].partition('?')[0].strip('/')}" or scheme
