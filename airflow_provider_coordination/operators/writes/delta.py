"""Delta tables, as operators describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.templated import names_value, text_value
from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.spark.settings import MAIN, SinkSettings
from airflow_provider_coordination.spark.sinks.delta.settings import DeltaColumn, DeltaSettings

KIND = "delta"


@dataclass
class DeltaTable:
    """A Delta table, for the `writes` of operators. It is created if it is not there.

    :param path: where it is: a path or URI that the driver and every executor reach, such as `/data/lake/clicks` or
        `s3://lake/clicks`. (templated)
    :param name: the sink's name, which tells it from others of the task: up to 64 letters, digits, `_` and `-`; `main`
        by default. (templated)
    :param where: which records go there: a SQL predicate over the columns that are written; all by default. (templated)
    :param partition_by: the columns by which the table is partitioned when it is created; a table that exists keeps its
        own. (templated)
    :param columns: types of columns, by their names, that the table is created with, as the Delta protocol names them,
        such as `{"amount": "decimal(12,2)"}`; those of the records by default. (templated)
    :param aws_conn_id: the AWS connection by which a table on S3 is reached; None for the AWS SDK's default chain.
        (templated)
    :param region_name: the region, if it is not the connection's. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = (
        "path", "name", "where", "partition_by", "columns", "aws_conn_id", "region_name",
    )  # fmt: skip

    path: str
    name: str | None = field(default=None, kw_only=True)
    where: str | None = field(default=None, kw_only=True)
    partition_by: str | Sequence[str] = field(default=(), kw_only=True)
    columns: Mapping[str, str] | None = field(default=None, kw_only=True)
    aws_conn_id: str | None = field(default="aws_default", kw_only=True)
    region_name: str | None = field(default=None, kw_only=True)

    @property
    def landing_path(self) -> str | None:
        """See `Writes.landing_path`."""
        path = text_value(self.path)
        return None if path is None else f"{path.rstrip('/')}/_landing"

    def check(self) -> None:
        """Check every value, which needs no connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self._described(AwsSettings())

    def connect(self) -> SinkSettings:
        """See `Writes.connect`."""
        described = self._described(AwsSettings())
        return described if not described.location.startswith("s3") else self._described(self._aws())

    def _described(self, aws: AwsSettings) -> SinkSettings:
        name, path, where = text_value(self.name) or MAIN, text_value(self.path), text_value(self.where)
        what = f"DeltaTable {name!r}"
        if path is None or not path.strip():
            raise ConfigurationError(
                f"field 'path' of {what} must not be empty: give the path or URI of a folder that every worker reaches"
            )
        if where is not None and not where.strip():
            raise ConfigurationError(f"field 'where' of {what} must not be empty; leave it out")
        settings = DeltaSettings(partition_by=self._partition_by(), columns=self._columns(what), aws=aws)
        settings.check(what)
        return SinkSettings(name=name, kind=KIND, location=path, where=where, settings=write_settings(settings))

    def _partition_by(self) -> tuple[str, ...]:
        given: Any = self.partition_by
        if isinstance(given, str):
            return (given,) if text_value(given) else ()
        return names_value("partition_by", given, instead="text") if given else ()

    def _columns(self, what: str) -> tuple[DeltaColumn, ...]:
        given: Any = self.columns or {}
        if not isinstance(given, Mapping):
            raise ConfigurationError(
                f"field 'columns' of {what} must be types of columns by their names, such as "
                f"{{'amount': 'decimal(12,2)'}}; got {given!r}"
            )
        return tuple(DeltaColumn(name=str(name), type=str(kind)) for name, kind in given.items())

    def _aws(self) -> AwsSettings:
        from airflow_provider_coordination.hooks.aws import aws_settings

        return aws_settings(text_value(self.aws_conn_id), text_value(self.region_name), service="s3")
