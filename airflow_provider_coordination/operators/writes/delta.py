"""Delta tables as sinks of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.template_values import names_value
from airflow_provider_coordination.operators.writes.writes import check_aws_connection, with_aws_connection
from airflow_provider_coordination.settings import text_value, write_settings
from airflow_provider_coordination.spark.settings import MAIN, SinkSettings
from airflow_provider_coordination.spark.sinks.delta.settings import DeltaColumn, DeltaSettings

KIND = "delta"


@dataclass
class DeltaTable:
    """A Delta table, for the `writes` of operators. It is created if it does not exist.

    :param path: the location: a path or URI that the driver and every executor reach, such as `/data/lake/clicks` or
        `s3://lake/clicks`. (templated)
    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`; `main` by default.
        (templated)
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

    template_fields: ClassVar[Sequence[str]] = (
        "path",
        "name",
        "where",
        "partition_by",
        "columns",
        "merge_on",
        "order_by",
        "aws_conn_id",
    )

    path: str
    name: str | None = field(default=None, kw_only=True)
    where: str | None = field(default=None, kw_only=True)
    partition_by: str | Sequence[str] = field(default=(), kw_only=True)
    columns: Mapping[str, str] | None = field(default=None, kw_only=True)
    merge_on: str | Sequence[str] = field(default=(), kw_only=True)
    order_by: str | None = field(default=None, kw_only=True)
    aws_conn_id: str | None = field(default=None, kw_only=True)

    @property
    def landing_path(self) -> str | None:
        """See `Writes.landing_path`."""
        path = text_value(self.path)
        return None if path is None else f"{path.rstrip('/')}/_landing"

    def check(self) -> None:
        """Check every value; this needs no connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self._settings()

    def connect(self) -> SinkSettings:
        """See `Writes.connect`."""
        return with_aws_connection(text_value(self.aws_conn_id), self._settings())

    def _settings(self) -> SinkSettings:
        name, path, where = text_value(self.name) or MAIN, text_value(self.path), text_value(self.where)
        what = f"DeltaTable {name!r}"
        if path is None or not path.strip():
            raise ConfigurationError(
                f"field 'path' of {what} must not be empty; give the path or URI of a folder that every worker reaches"
            )
        if where is not None and not where.strip():
            raise ConfigurationError(f"field 'where' of {what} must not be empty; leave it out")
        check_aws_connection(text_value(self.aws_conn_id), what, "path", path)
        settings = DeltaSettings(
            partition_by=_names("partition_by", self.partition_by),
            columns=self._columns(what),
            merge_on=_names("merge_on", self.merge_on),
            order_by=text_value(self.order_by),
        )
        settings.check(what)
        return SinkSettings(name=name, kind=KIND, location=path, where=where, settings=write_settings(settings))

    def _columns(self, what: str) -> tuple[DeltaColumn, ...]:
        columns: Any = self.columns or {}
        if not isinstance(columns, Mapping):
            raise ConfigurationError(
                f"field 'columns' of {what} must be types of columns by their names, such as "
                f"{{'amount': 'decimal(12,2)'}}; got {columns!r}"
            )
        return tuple(DeltaColumn(name=str(name), type=str(kind)) for name, kind in columns.items())


def _names(field_name: str, value: Any) -> tuple[str, ...]:
    """Return the columns of a field that holds one column or a list."""
    if isinstance(value, str):
        return (value,) if text_value(value) else ()
    return names_value(field_name, value, instead="text") if value else ()
