"""Parquet datasets, as operators describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.template_values import text_value, whole_value
from airflow_provider_coordination.operators.writes.writes import check_reached_by, reached_by
from airflow_provider_coordination.spark.parquet_settings import ParquetSettings
from airflow_provider_coordination.spark.settings import MAIN, PARQUET, SinkSettings


@dataclass
class ParquetDataset:
    """A folder of Parquet files, for the `writes` of operators.

    :param path: where it is: a path or URI that the driver and every executor reach, such as `/data/lake/clicks` or
        `s3://lake/clicks`. (templated)
    :param name: the sink's name, which tells it from others of the task: up to 64 letters, digits, `_` and `-`; `main`
        by default. (templated)
    :param where: which records go there: a SQL predicate over the columns that are written; all by default. (templated)
    :param target_file_bytes: how many landed bytes the batches of a file have at most that holds several of a delivery,
        128 MiB by default; a batch is whole in one file. Where others acknowledge batches, each has a file of its own.
        (templated)
    :param aws_conn_id: the AWS connection by which a path on S3 is reached, with what is landed, and what dead letters
        are, in its bucket; the AWS SDK's default chain by default. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = ("path", "name", "where", "target_file_bytes", "aws_conn_id")

    path: str
    name: str | None = field(default=None, kw_only=True)
    where: str | None = field(default=None, kw_only=True)
    target_file_bytes: int | str | None = field(default=None, kw_only=True)
    aws_conn_id: str | None = field(default=None, kw_only=True)

    @property
    def landing_path(self) -> str | None:
        """See `Writes.landing_path`."""
        path = text_value(self.path)
        return None if path is None else f"{path.rstrip('/')}/_landing"

    def check(self) -> None:
        """Check every value, which needs no connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self._settings()

    def connect(self) -> SinkSettings:
        """See `Writes.connect`."""
        return reached_by(text_value(self.aws_conn_id), self._settings())

    def _settings(self) -> SinkSettings:
        """Return the settings of the sink without its connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        name, path, where = text_value(self.name) or MAIN, text_value(self.path), text_value(self.where)
        if path is None or not path.strip():
            raise ConfigurationError(
                f"field 'path' of ParquetDataset {name!r} must not be empty: give the path or URI of a folder that "
                "every worker reaches"
            )
        if where is not None and not where.strip():
            raise ConfigurationError(f"field 'where' of ParquetDataset {name!r} must not be empty; leave it out")
        check_reached_by(text_value(self.aws_conn_id), f"ParquetDataset {name!r}", "path", path)
        size = whole_value("target_file_bytes", self.target_file_bytes)
        given = {} if size is None else {"target_file_bytes": size}
        ParquetSettings(**given).check(f"ParquetDataset {name!r}")
        return SinkSettings(name=name, kind=PARQUET, location=path, where=where, settings=given)
