"""What a job is given of an Iceberg table. Needs no library: the operators check it before Spark starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.merge_settings import check_merging

IDENTIFIER = re.compile(r"[^.\s]+(\.[^.\s]+)+")
WITHOUT_NUMBER = ("year", "month", "day", "hour")
WITH_NUMBER = {"bucket": "bucket", "truncate": "trunc"}
"""The transforms that have a number, with what the names of their fields have of them."""
TRANSFORM = re.compile(r"(?P<name>[a-z]+)\(\s*(?:(?P<number>\d+)\s*,\s*)?(?P<column>[^(),\s]+)\s*\)")


@dataclass(frozen=True, kw_only=True)
class PartitionField:
    """One field that a table is partitioned by.

    :param name: its name.
    :param column: the column that it is made of.
    :param transform: how, as Iceberg writes it, such as `day` or `bucket[16]`.
    """

    name: str
    column: str
    transform: str

    def __str__(self) -> str:
        """Return it as `partition_by` has it."""
        transform, _, number = self.transform.rstrip("]").partition("[")
        if transform == "identity":
            return self.column
        return f"{transform}({number}, {self.column})" if number else f"{transform}({self.column})"


@dataclass(frozen=True, kw_only=True)
class IcebergSettings:
    """One table, and the catalog that it is in.

    :param table: its name, with its namespace, such as `lake.clicks`.
    :param catalog_name: what the catalog is called; catalogs in databases keep it with each table.
    :param properties: the catalog's, as pyiceberg has them; may hold secrets, and are never shown.
    :param partition_by: what the table is partitioned by, such as `day(at)`; empty for what the table has.
    :param columns: the types of columns, by name, that the table is made with; empty where the first delivery says.
    :param table_properties: those that the table is made with.
    :param table_location: where the table is made; None for where the catalog puts it.
    :param merge_on: the columns that identify a row; every row is added if there are none.
    :param order_by: the column whose greatest value decides between rows of one delivery with the same key.
    """

    table: str
    catalog_name: str = "default"
    properties: dict[str, Any] = field(default_factory=dict, repr=False)
    partition_by: tuple[str, ...] = ()
    columns: dict[str, Any] = field(default_factory=dict)
    table_properties: dict[str, Any] = field(default_factory=dict)
    table_location: str | None = None
    merge_on: tuple[str, ...] = ()
    order_by: str | None = None

    def check(self, sink: str) -> None:
        """Check what can be checked without the catalog.

        :param sink: what errors call the sink, such as `IcebergTable 'main'`.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if not IDENTIFIER.fullmatch(self.table):
            raise ConfigurationError(
                f"field 'table' of {sink} must be a namespace and a name, such as 'lake.clicks'; got {self.table!r}"
            )
        partition_fields(self.partition_by, sink)
        check_merging(self.merge_on, self.order_by, sink)
        for name, kind in self.columns.items():
            if not isinstance(kind, str):
                raise ConfigurationError(
                    f"field 'columns' of {sink}: the type of {name!r} must be one of Iceberg's, such as 'long' or "
                    f"'timestamptz'; got {kind!r}"
                )


def partition_fields(partition_by: Sequence[str], sink: str) -> tuple[PartitionField, ...]:
    """Return what a table is partitioned by.

    :param partition_by: columns, or Iceberg's transforms of columns.
    :param sink: what errors call the sink.
    :raises ConfigurationError: naming what cannot be read, and the remedy.
    """
    fields = tuple(_partition_field(text.strip(), sink) for text in partition_by)
    names = [each.name for each in fields]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigurationError(f"field 'partition_by' of {sink} has {repeated!r} more than once; remove one")
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
    raise ConfigurationError(
        f"field 'partition_by' of {sink}: {text!r} is neither a column nor a transform of one; give columns, or "
        "'year(at)', 'month(at)', 'day(at)', 'hour(at)', 'bucket(16, id)' or 'truncate(4, name)'"
    )
