"""Task that maintains a table or dataset: it compacts small files, folds deletes, and removes unreferenced files."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.hooks.task_try import OwnCopiesMixin, failing_when_misconfigured
from airflow_provider_coordination.spark.sinks import Maintenance, make_sinks
from airflow_provider_coordination.spark.writes import Writes, sinks_of


class MaintainTableOperator(OwnCopiesMixin, BaseOperator):
    """Compacts small files of a table or dataset, expires snapshots, and removes files that nothing references.

    The task may run while jobs deliver into the table. It removes no file that a commit may still reference, and
    the table keeps the ids of its batches. It runs in the task itself and needs no Spark.

    Returns the `table`, `is_dry_run`, and the counts `files_compacted`, `snapshots_expired`,
    `files_removed` and `bytes_removed`. A retry continues the work.

    :param table: the table or dataset, as in `writes` of the jobs. (templated)
    :param compact: whether to compact small files. (templated)
    :param retention: the minimum age of the versions and snapshots that expire, and of the unreferenced files that are
        removed; timedelta or seconds, at least an hour, and longer than the longest delivery. (templated)
    :param target_file_bytes: the approximate size of a compacted file, in bytes. (templated)
    :param is_dry_run: only count what would be done. (templated)
    """

    template_fields: Sequence[str] = ("table", "compact", "retention", "target_file_bytes", "is_dry_run")
    ui_color = "#e6e0cc"
    own_copies = ("table",)

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
        if not isinstance(table, Writes):
            raise ValueError(
                f"field 'table' must be a sink of 'spark.writes', such as DeltaTable('/data/lake/clicks'); got "
                f"{table!r}"
            )
        super().__init__(**kwargs)
        self.table: Writes = copy(table)
        self.compact = compact
        self.retention = retention
        self.target_file_bytes = target_file_bytes
        self.is_dry_run = is_dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        """Maintain the table.

        :raises AirflowFailException: for an error that only a user can fix.
        :raises CoordinationError: if other writers changed the table repeatedly; a retry may succeed.
        """
        with failing_when_misconfigured():
            fields: Any = {
                "compact": self.compact,
                "retention": self.retention,
                "target_file_bytes": self.target_file_bytes,
                "is_dry_run": self.is_dry_run,
            }
            maintenance = Maintenance(**fields).resolved()
            [settings] = sinks_of(self.table, AirflowConnections())
            [sink] = make_sinks([settings])
            done = sink.maintain(maintenance)
            if done is None:
                raise ConfigurationError(
                    f"field 'table' is a sink of kind {settings.kind!r}, which needs no maintenance; give "
                    "a DeltaTable, an IcebergTable or a ParquetDataset"
                )
        summary = {"table": settings.location, "is_dry_run": maintenance.is_dry_run, **asdict(done)}
        self.log.info("table maintained: %s", summary)
        return summary
