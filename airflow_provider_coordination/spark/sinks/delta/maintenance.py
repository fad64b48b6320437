"""The maintenance of a Delta table, while jobs write to it.

The library compacts files, and lists the files that no retained version references.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError

from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.sinks import Maintenance, MaintenanceResult
from airflow_provider_coordination.spark.sinks.delta import log as table_log
from airflow_provider_coordination.spark.sinks.delta.log import TableLog
from airflow_provider_coordination.spark.staging import Staging
from airflow_provider_coordination.spark.storage import join, remove_files
from airflow_provider_coordination.spark.tombstones import MissingTombstonesError, Tombstones

log = logging.getLogger(__name__)

TRIES = 10
MAINTENANCE = "coordination.maintenance"
"""The metadata key of commits that maintenance makes."""


def maintain(
    target: TableLog, staging: Staging, tombstones: Tombstones, access: Access, wanted: Maintenance
) -> MaintenanceResult:
    """Compact a table and remove what no reader needs, while other writers may use it.

    :raises CoordinationError: if other writers changed it repeatedly.
    """
    compacted = _compact(target, wanted) if wanted.compact else 0
    number, size = _remove_unreferenced(target, staging, tombstones, access, wanted)
    return MaintenanceResult(files_compacted=compacted, files_removed=number, bytes_removed=size)


def _open_table(target: TableLog) -> DeltaTable:
    table = target.open()
    if table is None:
        raise DeliveryError(f"table {target.uri} is gone")
    return table


def _compact(target: TableLog, wanted: Maintenance) -> int:
    """Combine small files; return their number."""
    if wanted.is_dry_run:
        return _count_small_files(_open_table(target), wanted.target_file_bytes)
    for number in range(TRIES):
        try:
            done = _open_table(target).optimize.compact(
                target_size=wanted.target_file_bytes,
                commit_properties=CommitProperties(custom_metadata={MAINTENANCE: "compaction"}, max_commit_retries=0),
            )
            return int(done["numFilesRemoved"])
        except CommitFailedError as error:
            log.info("table %s: compaction, try %d: %s", target.uri, number + 1, error)
    raise DeliveryError(f"table {target.uri} was changed {TRIES} times while it was compacted; try again later")


def _count_small_files(table: DeltaTable, target_bytes: int) -> int:
    """Return how many files would be combined: small ones in partitions that have more than one."""
    actions = pa.table(table.get_add_actions())
    small: Counter[str] = Counter()
    for row in actions.select(
        ["size_bytes", *(["partition"] if "partition" in actions.column_names else [])]
    ).to_pylist():
        if row["size_bytes"] < target_bytes:
            small[str(row.get("partition"))] += 1
    return sum(number for number in small.values() if number > 1)


def _remove_unreferenced(
    target: TableLog, staging: Staging, tombstones: Tombstones, access: Access, wanted: Maintenance
) -> tuple[int, int]:
    """Remove the files that no retained version references; return their number and size."""
    hours = math.ceil(wanted.retention.total_seconds() / 3600)
    table = _open_table(target)
    unnamed = set(table.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=True))
    unnamed -= staging.named()
    before = datetime.now(UTC) - wanted.retention
    stale = _unneeded_tombstones(target, tombstones, before)
    if (unnamed or stale) and not wanted.is_dry_run:
        _commit_empty(target)
        table = _open_table(target)
        named = set(table.get_add_actions(flatten=True).column("path").to_pylist())
        unnamed -= named | staging.named()
        stale &= _unneeded_tombstones(target, tombstones, before)
    uris = [*(join(target.uri, name) for name in sorted(unnamed)), *sorted(stale)]
    return remove_files(uris, access, is_dry_run=wanted.is_dry_run)


def _unneeded_tombstones(target: TableLog, tombstones: Tombstones, before: datetime) -> set[str]:
    """Return the files of tombstones that the table does not name; none if a job replaces them at this moment."""
    number = target.tombstones(_open_table(target))
    try:
        return set(tombstones.unneeded([number], before))
    except MissingTombstonesError:
        if target.tombstones(_open_table(target)) == number:
            raise
        return set()


def _commit_empty(target: TableLog) -> None:
    """Make a commit without files: a writer that read the table before must read it again before it commits."""
    properties = CommitProperties(custom_metadata={MAINTENANCE: "removal of files"}, max_commit_retries=0)
    for _ in range(TRIES):
        try:
            table_log.change_files(_open_table(target), [], properties)
        except CommitFailedError:
            continue
        return
    raise DeliveryError(f"table {target.uri} was changed {TRIES} times while it was maintained; try again later")
