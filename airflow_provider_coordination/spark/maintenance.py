"""Maintenance of a table, while jobs deliver to it.

A file that a commit may still add is never removed: files that are younger than the retention, or named by a manifest,
are kept. Between reading the manifests and removing files, maintenance makes a commit of its own. So a job that read
the table earlier must read it again, and commits only files that a manifest still names.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.settings import Described, Limits, format_duration

SHORTEST_RETENTION = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Maintenance(Described):
    """The maintenance to do.

    :param compact: whether to compact small files.
    :param retention: the minimum age of versions or snapshots that are removed, and of unreferenced files; above the
        longest delivery.
    :param target_file_bytes: the approximate size of compacted files.
    :param is_dry_run: whether to report only, and change nothing.
    """

    compact: bool = True
    retention: timedelta = timedelta(days=7)
    target_file_bytes: Annotated[int, Limits(minimum=1)] = 128 * 1024 * 1024
    is_dry_run: bool = False

    @override
    def check_together(self) -> None:
        if self.retention < SHORTEST_RETENTION:
            raise self.invalid(
                "retention",
                f"must be at least {format_duration(SHORTEST_RETENTION)}, and above the longest delivery",
            )


@dataclass(frozen=True, kw_only=True)
class MaintenanceResult:
    """What was done, or would be done.

    :param files_compacted: the number of files that were compacted.
    :param snapshots_expired: the number of snapshots that were expired.
    :param files_removed: the number of unreferenced files that were removed.
    :param bytes_removed: their size in bytes.
    """

    files_compacted: int = 0
    snapshots_expired: int = 0
    files_removed: int = 0
    bytes_removed: int = 0
