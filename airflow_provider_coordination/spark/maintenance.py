"""Maintenance of a table, beside jobs that deliver into it.

No file is removed that a commit may still name. Files are kept that are younger than the retention, and those that a
manifest names. Between looking for manifests and removing files, maintenance makes a commit of its own: whoever looked
at the table before looks again, and commits only what a manifest still names.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, runtime_checkable

from airflow_provider_coordination.coordination.errors import ConfigurationError

SHORTEST_RETENTION = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Maintenance:
    """What is to be done.

    :param compact: whether small files are put together.
    :param retention: how old the versions, or snapshots, are that are kept at the least, and how old files become that
        none names; above the longest delivery.
    :param target_file_bytes: how large files become that are put together, about.
    :param is_dry_run: whether it is only looked at.
    """

    compact: bool = True
    retention: timedelta = timedelta(days=7)
    target_file_bytes: int = 128 * 1024 * 1024
    is_dry_run: bool = False

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if self.retention < SHORTEST_RETENTION:
            raise ConfigurationError(
                f"field 'retention' must be at least {SHORTEST_RETENTION}, and above the longest delivery; got "
                f"{self.retention}"
            )
        if self.target_file_bytes <= 0:
            raise ConfigurationError(f"field 'target_file_bytes' must be positive; got {self.target_file_bytes}")


@dataclass(frozen=True, kw_only=True)
class Maintained:
    """What was done, or would be.

    :param files_compacted: how many files were put together.
    :param snapshots_expired: how many snapshots were expired.
    :param files_removed: how many files were removed that nothing names.
    :param bytes_removed: their size.
    """

    files_compacted: int = 0
    snapshots_expired: int = 0
    files_removed: int = 0
    bytes_removed: int = 0


@runtime_checkable
class Maintains(Protocol):
    """A sink whose table can be maintained."""

    def maintain(self, wanted: Maintenance) -> Maintained:
        """Maintain the table, beside whoever else works on it.

        :raises ConfigurationError: if there is no such table.
        :raises CoordinationError: if others changed it again and again.
        """
        ...
