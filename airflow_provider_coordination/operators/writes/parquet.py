"""Parquet datasets as sinks of operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.template_values import int_value
from airflow_provider_coordination.operators.writes.writes import check_aws_connection, with_aws_connection
from airflow_provider_coordination.settings import text_value
from airflow_provider_coordination.spark.parquet_settings import ParquetSettings
from airflow_provider_coordination.spark.settings import MAIN, PARQUET, SinkSettings


@dataclass
class ParquetDataset:
    """A folder of Parquet files, for the `writes` of operators.

    :param path: the location: a path or URI that the driver and every executor reach, such as `/data/lake/clicks` or
        `s3://lake/clicks`. (templated)
    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`; `main` by default.
        (templated)
    :param where: which records the sink receives: a SQL predicate over the written columns; all by default. (templated)
    :param target_file_bytes: the maximum number of landed bytes in a shared file, which holds several batches of a
        delivery; 128 MiB by default. A batch is always complete in one file. If other parties acknowledge batches, each
        batch has a file of its own. (templated)
    :param aws_conn_id: the AWS connection for a path on S3, and for landed data and dead letters in the same bucket; by
        default the AWS default credential chain. (templated)
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
        """Check every value; this needs no connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self._settings()

    def connect(self) -> SinkSettings:
        """See `Writes.connect`."""
        return with_aws_connection(text_value(self.aws_conn_id), self._settings())

    def _settings(self) -> SinkSettings:
        """Return the settings of the sink without its connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        name, path, where = text_value(self.name) or MAIN, text_value(self.path), text_value(self.where)
        if path is None or not path.strip():
            raise ConfigurationError(
                f"field 'path' of ParquetDataset {name!r} must not be empty; give the path or URI of a folder that "
                "every worker reaches"
            )
        if where is not None and not where.strip():
            raise ConfigurationError(f"field 'where' of ParquetDataset {name!r} must not be empty; leave it out")
        check_aws_connection(text_value(self.aws_conn_id), f"ParquetDataset {name!r}", "path", path)
        size = int_value("target_file_bytes", self.target_file_bytes)
        given = {} if size is None else {"target_file_bytes": size}
        ParquetSettings(**given).check(f"ParquetDataset {name!r}")
        return SinkSettings(name=name, kind=PARQUET, location=path, where=where, settings=given)
