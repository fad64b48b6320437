"""Functions that receive batches, as sinks of operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.writes.writes import check_aws_connection, with_aws_connection
from airflow_provider_coordination.settings import text_value, write_settings
from airflow_provider_coordination.spark.foreach_batch import ForeachBatchSettings
from airflow_provider_coordination.spark.settings import MAIN, SinkSettings, check_function


@dataclass
class ForeachBatch:
    """A function that receives the rows of each delivery and the ids of its batches, for the `writes` of operators.

    It receives each batch **at least once**.

    :param function: `module:function`, called with a DataFrame and a list of batch ids; ship its module with
        `py_files`. (templated)
    :param staging_path: where rows wait for the call: a path or URI that the driver and every executor reach.
        (templated)
    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`; `main` by default.
        (templated)
    :param where: which records the function receives: a SQL predicate over the written columns; all by default.
        (templated)
    :param aws_conn_id: the AWS connection for a staging path on S3; by default the AWS default credential chain.
        (templated)
    """

    template_fields: ClassVar[Sequence[str]] = ("function", "staging_path", "name", "where", "aws_conn_id")

    function: str
    _: KW_ONLY
    staging_path: str
    name: str | None = None
    where: str | None = None
    aws_conn_id: str | None = None

    def __post_init__(self) -> None:
        """Refuse a function in place of its name: Airflow would call it when it renders the field."""
        if callable(self.function):
            check_function("ForeachBatch: field 'function'", self.function)

    @property
    def landing_path(self) -> str | None:
        """See `Writes.landing_path`."""
        path = text_value(self.staging_path)
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
        name, where = text_value(self.name) or MAIN, text_value(self.where)
        function, path = text_value(self.function) or "", text_value(self.staging_path) or ""
        check_function(f"field 'function' of ForeachBatch {name!r}", function)
        if not path.strip():
            raise ConfigurationError(
                f"field 'staging_path' of ForeachBatch {name!r} must not be empty; give a path or URI that every "
                "worker reaches"
            )
        if where is not None and not where.strip():
            raise ConfigurationError(f"field 'where' of ForeachBatch {name!r} must not be empty; leave it out")
        check_aws_connection(text_value(self.aws_conn_id), f"ForeachBatch {name!r}", "staging path", path)
        settings = ForeachBatchSettings(function=function, staging_path=path)
        return SinkSettings(
            name=name,
            kind="foreach_batch",
            location=settings.location,
            where=where,
            files=path,
            settings=write_settings(settings),
        )
