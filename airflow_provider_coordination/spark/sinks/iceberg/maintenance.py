"""Maintenance of an Iceberg table.

pyiceberg expires snapshots. It does not combine small files, and does not remove unreferenced files. Both are done
here, with a snapshot that requires that the table is still at the snapshot that was read.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.merging import Merging
from airflow_provider_coordination.spark.sink_settings import normalized_location
from airflow_provider_coordination.spark.sinks import Maintenance, MaintenanceResult
from airflow_provider_coordination.spark.sinks.iceberg import data_files
from airflow_provider_coordination.spark.sinks.iceberg.catalog import CatalogTable
from airflow_provider_coordination.spark.sinks.iceberg.snapshots import PendingSnapshot, known_tombstones
from airflow_provider_coordination.spark.staging import Staging
from airflow_provider_coordination.spark.storage import delete_folder, files_before, join, remove_files
from airflow_provider_coordination.spark.tombstones import MissingTombstonesError, Tombstones

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

log = logging.getLogger(__name__)

TRIES = 10
MAINTENANCE = "coordination.maintenance"
"""The summary property of snapshots that maintenance makes."""
REMOVABLE = {"data": ".parquet", "metadata": ".avro"}
"""The folders below a table from which unreferenced files are removed, and the suffix of their names."""


def maintain(tables: CatalogTable, staging: Staging, access: Access, wanted: Maintenance) -> MaintenanceResult:
    """Compact a table and remove what no reader needs, while other writers may use it.

    :raises CoordinationError: if other writers changed it repeatedly.
    """
    now = datetime.now(UTC)
    compacted = _compact(tables, access, wanted) if wanted.compact else 0
    expired = _expire_snapshots(tables, wanted, now)
    number, size = _remove_unreferenced(tables, staging, access, wanted, now)
    return MaintenanceResult(
        files_compacted=compacted, snapshots_expired=expired, files_removed=number, bytes_removed=size
    )


def _load_table(tables: CatalogTable) -> Table:
    table = tables.find()
    if table is None:
        raise DeliveryError(f"{tables} is gone")
    return table


def _with_retries(tables: CatalogTable, act: Callable[[Table], int]) -> int:
    """Run an action on the current table; run it again if another process changed the table."""
    from pyiceberg.exceptions import CommitFailedException

    for number in range(TRIES):
        try:
            return act(_load_table(tables))
        except CommitFailedException as error:
            log.info("%s: maintenance, try %d: %s", tables, number + 1, error)
    raise DeliveryError(f"{tables} was changed {TRIES} times while it was maintained; try again later")


# Small files


def _compact(tables: CatalogTable, access: Access, wanted: Maintenance) -> int:
    """Combine small files, and rewrite files with deleted rows, after which the table has no deletes; return their
    number."""
    from airflow_provider_coordination.spark.sinks.iceberg.position_deletes import delete_files_of

    def act(table: Table) -> int:
        tasks = list(table.scan().plan_files())
        deleted, deletes = data_files.deleted_rows(table, tasks), delete_files_of(table)
        groups = list(_groups(table, tasks, deleted, wanted.target_file_bytes))
        if (groups or deletes) and not wanted.is_dry_run:
            _rewrite(table, groups, deleted, deletes)
        return sum(map(len, groups))

    def _rewrite(
        table: Table, groups: list[list[FileScanTask]], deleted: Mapping[str, pa.Array], deletes: Collection[DataFile]
    ) -> None:
        folder = join(table.location().rstrip("/"), "data", secrets.token_hex(8))
        addition = PendingSnapshot(table, {MAINTENANCE: "compaction"}, access)
        addition.replace_deletes(deletes, [])
        try:
            for tasks in groups:
                rows = data_files.whole_rows(table, tasks, deleted)
                addition.replace([task.file for task in tasks], data_files.split(table, rows, folder, access))
            _send(tables, addition)
        except BaseException as error:
            if _is_unknown(error):
                raise
            if _is_referenced(_load_table(tables), folder):  # the response was lost, and the request was sent again
                return
            with suppress(OSError):
                delete_folder(folder, access)
            raise

    return _with_retries(tables, act)


def _groups(
    table: Table, tasks: Sequence[FileScanTask], deleted: Mapping[str, pa.Array], target_bytes: int
) -> Iterator[list[FileScanTask]]:
    """Yield groups of files of one partition to rewrite: small ones, each group enough for one large file, and those
    with deleted rows."""
    spec_id = table.spec().spec_id
    waiting: dict[tuple[int, str], list[FileScanTask]] = {}

    def has_deleted(task: FileScanTask) -> bool:
        return len(deleted[task.file.file_path]) > 0

    for task in tasks:
        file = task.file
        is_small = file.file_size_in_bytes < target_bytes // 2 and file.spec_id == spec_id
        if not (is_small or has_deleted(task)):
            continue
        key = (file.spec_id, str(file.partition))
        group = waiting.setdefault(key, [])
        group.append(task)
        if sum(each.file.file_size_in_bytes for each in group) >= target_bytes:
            yield waiting.pop(key)
    yield from (group for group in waiting.values() if len(group) > 1 or has_deleted(group[0]))


def _send(tables: CatalogTable, addition: PendingSnapshot) -> None:
    addition.make(tables)
    addition.send()


def _is_unknown(error: BaseException) -> bool:
    """Return whether a commit that raised this error may have succeeded."""
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    if isinstance(error, CommitStateUnknownException):
        return True
    return not isinstance(error, CommitFailedException | DeliveryError)


# Snapshots


def _expire_snapshots(tables: CatalogTable, wanted: Maintenance, now: datetime) -> int:
    """Expire the snapshots that are older than the retention and not referenced by name; return their number."""
    before = now - wanted.retention

    def act(table: Table) -> int:
        named = {ref.snapshot_id for ref in table.metadata.refs.values()}
        old = [
            snapshot.snapshot_id
            for snapshot in table.snapshots()
            if snapshot.snapshot_id not in named and snapshot.timestamp_ms < before.timestamp() * 1000
        ]
        if old and not wanted.is_dry_run:
            table.maintenance.expire_snapshots().by_ids(old).commit()
        return len(old)

    return _with_retries(tables, act)


# Unreferenced files


def _remove_unreferenced(
    tables: CatalogTable, staging: Staging, access: Access, wanted: Maintenance, now: datetime
) -> tuple[int, int]:
    """Remove the unreferenced files that are older than the retention; return their number and size."""
    before = now - wanted.retention
    left = _unreferenced(_load_table(tables), staging, access, before)
    if left and not wanted.is_dry_run:
        _with_retries(tables, _commit_empty(tables, access))
        still = _unreferenced(_load_table(tables), staging, access, before)
        left = {place: file for place, file in left.items() if place in still}
    return remove_files((left[place] for place in sorted(left)), access, is_dry_run=wanted.is_dry_run)


def _unreferenced(table: Table, staging: Staging, access: Access, before: datetime) -> dict[str, str]:
    """Return the files that are older than an instant, and that nothing names, by their normalized location."""
    root = table.location().rstrip("/")
    old = [
        file
        for folder, ending in REMOVABLE.items()
        for file in files_before(join(root, folder), before, access)
        if file.endswith(ending)
    ]
    try:
        old += Tombstones(root, Merging(), timedelta(0), access).unneeded(known_tombstones(table.metadata), before)
    except MissingTombstonesError as error:
        log.warning("tombstones that are no longer needed are kept: %s", error)
    named = _referenced_files(table) | set(map(normalized_location, staging.named()))
    return {place: file for file in old if (place := normalized_location(file)) not in named}


def _commit_empty(tables: CatalogTable, access: Access) -> Callable[[Table], int]:
    """Return a function that makes an empty snapshot: a writer that read the table before must read it again."""

    def act(table: Table) -> int:
        _send(tables, PendingSnapshot(table, {MAINTENANCE: "removal of files"}, access))
        return 0

    return act


def _is_referenced(table: Table, folder: str) -> bool:
    """Return whether a table references a file in a folder."""
    return any(name.startswith(normalized_location(folder)) for name in _referenced_files(table))


def _referenced_files(table: Table) -> set[str]:
    """Return the files that any snapshot of a table references."""
    names: set[str] = set()
    for snapshot in table.snapshots():
        names.add(normalized_location(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            if (place := normalized_location(manifest.manifest_path)) not in names:
                names.add(place)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                names.update(normalized_location(entry.data_file.file_path) for entry in entries)
    return names
