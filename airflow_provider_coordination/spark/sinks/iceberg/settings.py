"""The settings of an Iceberg table for a job. They need no library: the operators check them before Spark starts."""

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


@dataclass(frozen=True, kw_only=True)
class IcebergSettings:
    """One table, and its catalog.

    :param table: its name with the namespace, such as `lake.clicks`.
    :param catalog_name: the name of the catalog; catalogs in databases store it with each table.
    :param properties: the properties of the catalog, as pyiceberg names them; may hold secrets, and are never shown.
    :param partition_by: the partition fields of the table, such as `day(at)`; empty to accept the table's own.
    :param columns: the column types of a new table, by name; if empty, the first delivery decides.
    :param table_properties: the properties of a new table.
    :param table_location: the location of a new table; None for the catalog's default.
    :param merge_on: the columns that identify a row; if there are none, every row is added.
    :param order_by: among rows of one delivery with the same key, the row with the greatest value of this column wins.
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
        """Check everything that can be checked without the catalog.

        :param sink: the name of the sink in errors, such as `IcebergTable 'main'`.
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
    """Return the partition fields of a table.

    :param partition_by: columns, or Iceberg transforms of columns.
    :param sink: the name of the sink in errors.
    :raises ConfigurationError: naming the invalid text, and the remedy.
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
