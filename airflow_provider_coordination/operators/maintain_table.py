"""Maintenance of a table as a task: small files are put together, and what nothing names any more is removed."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Self

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured
from airflow_provider_coordination.operators.moved_arguments import check_arguments
from airflow_provider_coordination.operators.template_values import resolved
from airflow_provider_coordination.operators.writes.writes import Writes, sinks_of
from airflow_provider_coordination.spark.maintenance import Maintains, Maintenance
from airflow_provider_coordination.spark.sinks import make_sinks


class MaintainTableOperator(BaseOperator):
    """Puts small files of a table together, expires snapshots, and removes files that nothing names.

    It may run beside jobs that deliver into the table: no file is removed that a commit may still name, and which
    batches are in stays known. It runs in the task itself and needs no Spark.

    Returns the `table`, `is_dry_run`, and the counts `files_compacted`, `snapshots_expired`,
    `files_removed` and `bytes_removed`. A retry goes on.

    :param table: the table, as `writes` of the jobs has it. (templated)
    :param compact: whether small files are put together. (templated)
    :param retention: how old versions and snapshots are that are kept at the least, and how old files become that none
        names; timedelta or seconds, at least an hour, and above the longest delivery. (templated)
    :param target_file_bytes: how large files become that are put together, about. (templated)
    :param is_dry_run: only count what would be done. (templated)
    """

    template_fields: Sequence[str] = ("table", "compact", "retention", "target_file_bytes", "is_dry_run")
    ui_color = "#e6e0cc"

    def __init__(
        self,
        *,
        table: Writes,
        compact: bool | str = True,
        retention: timedelta | float | str = timedelta(days=7),
        target_file_bytes: int | str = 128 * 1024 * 1024,
        is_dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        check_arguments(type(self).__name__, kwargs)
        if not isinstance(table, Writes):
            raise ValueError(
                f"field 'table' must be a sink of 'operators.writes', such as DeltaTable('/data/lake/clicks'); got "
                f"{table!r}"
            )
        super().__init__(**kwargs)
        self.table: Writes = copy(table)
        self.compact = compact
        self.retention = retention
        self.target_file_bytes = target_file_bytes
        self.is_dry_run = is_dry_run

    def prepare_for_execution(self) -> Self:
        """Return the task that is run, with templates of its own to render."""
        prepared = super().prepare_for_execution()
        prepared.table = copy(self.table)
        return prepared

    def execute(self, context: Context) -> dict[str, Any]:
        """Maintain the table once.

        :raises AirflowFailException: if only a person can put things right.
        :raises CoordinationError: if others changed the table again and again; a retry may help.
        """
        with failing_when_misconfigured():
            given: Any = {
                "compact": self.compact,
                "retention": self.retention,
                "target_file_bytes": self.target_file_bytes,
                "is_dry_run": self.is_dry_run,
            }
            wanted = resolved(Maintenance(**given))
            [settings] = sinks_of(self.table)
            [sink] = make_sinks([settings])
            if not isinstance(sink, Maintains):
                raise ConfigurationError(
                    f"field 'table' is a sink of kind {settings.kind!r}, which needs no maintenance; give a table, "
                    "such as DeltaTable or IcebergTable"
                )
            done = sink.maintain(wanted)
        summary = {"table": settings.location, "is_dry_run": wanted.is_dry_run, **asdict(done)}
        self.log.info("maintained: %s", summary)
        return summary
