"""Delta tables as sinks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.settings import FieldError, Texts
from airflow_provider_coordination.spark.writes.writes import MergingSink

TYPES = ("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp")
"""The types that a column may have, as the Delta protocol names them; decimals are allowed as well."""


@dataclass
class DeltaTable(MergingSink):
    """A Delta table, for the `writes` of operators. It is created if it does not exist.

    :param path: the location: a path or URI that the driver and every executor reach, such as `/data/lake/clicks` or
        `s3://lake/clicks`. (templated)
    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`. (templated)
    :param where: which records the sink receives: a SQL predicate over the written columns; all by default. (templated)
    :param partition_by: the partition columns of the table when it is created; an existing table keeps its own.
        (templated)
    :param columns: the types of columns when the table is created, by column name, as the Delta protocol names them,
        such as `{"amount": "decimal(12,2)"}`; by default the types of the records. (templated)
    :param merge_on: the key columns by which a row replaces an existing row; by default every row is added. (templated)
    :param order_by: the column whose greatest value wins between rows with the same key in one delivery. Without it a
        key may occur at most once in a batch. (templated)
    :param aws_conn_id: the AWS connection for a path on S3, and for landed data and dead letters in the same bucket; by
        default the AWS default credential chain. (templated)
    """

    kind: ClassVar[str] = "delta"

    path: str
    _: KW_ONLY
    partition_by: Texts = ()
    columns: Mapping[str, str] = field(default_factory=dict)

    @override
    def check_together(self) -> None:
        super().check_together()
        if not all(name.strip() for name in self.partition_by):
            raise self.invalid("partition_by", "must name columns; leave an empty name out")
        for name, kind in self.columns.items():
            if kind not in TYPES and not re.fullmatch(r"decimal\(\d{1,2}, ?\d{1,2}\)", kind):
                raise FieldError(
                    self.title,
                    f"columns.{name}",
                    f"must be one of {', '.join(TYPES)}, or a decimal such as decimal(12,2); got {kind!r}",
                )
