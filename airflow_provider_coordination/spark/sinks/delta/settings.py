"""The settings of a Delta table that a job writes to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.merge_settings import check_merging

TYPES = ("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp")
"""The types that a column may have, as the Delta protocol names them; decimals are allowed as well."""


@dataclass(frozen=True, kw_only=True)
class DeltaColumn:
    """A column that the table is created with.

    :param name: its name.
    :param type: its type, as the Delta protocol names it, such as `long` or `decimal(12,2)`.
    """

    name: str
    type: str


@dataclass(frozen=True, kw_only=True)
class DeltaSettings:
    """The settings of a Delta table.

    :param partition_by: the columns that a new table is partitioned by.
    :param columns: columns that a new table has, even if the data lacks them.
    :param merge_on: the columns that identify a row; if there are none, every row is added.
    :param order_by: among rows of one delivery with the same key, the row with the greatest value of this column wins.
    """

    partition_by: tuple[str, ...] = ()
    columns: tuple[DeltaColumn, ...] = ()
    merge_on: tuple[str, ...] = ()
    order_by: str | None = None

    def check(self, what: str) -> None:
        """Check every value.

        :param what: the user's object, for errors.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        check_merging(self.merge_on, self.order_by, what)
        for name in self.partition_by:
            if not name.strip():
                raise ConfigurationError(f"field 'partition_by' of {what}: a column has no name; leave it out")
        for column in self.columns:
            if column.type not in TYPES and not re.fullmatch(r"decimal\(\d{1,2}, ?\d{1,2}\)", column.type):
                raise ConfigurationError(
                    f"field 'columns' of {what}: column {column.name!r} has the type {column.type!r}; give one of "
                    f"{', '.join(TYPES)}, or a decimal such as decimal(12,2)"
                )
