"""Maintenance of an Iceberg table.

pyiceberg expires snapshots. It neither puts files together nor removes those that no snapshot names: that is done here,
in a snapshot of our own that asserts the one that was looked at.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.maintenance import Maintained, Maintenance
from airflow_provider_coordination.spark.settings import place_of
from airflow_provider_coordination.spark.sinks.iceberg import data_files
from airflow_provider_coordination.spark.sinks.iceberg.addition import Addition
from airflow_provider_coordination.spark.sinks.iceberg.catalog import Tables
from airflow_provider_coordination.spark.staging import Staging
from airflow_provider_coordination.spark.storage import delete_folder, files_before, join, removed

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

log = logging.getLogger(__name__)

TRIES = 10
MAINTENANCE = "coordination.maintenance"
"""The property of the summaries of snapshots that maintenance makes."""
OURS = {"data": ".parquet", "metadata": ".avro"}
"""The folders below a table that are looked through, and how the names of files end that may be removed there."""


def maintain(tables: Tables, staging: Staging, access: Access, wanted: Maintenance) -> Maintained:
    """See `Maintains.maintain`."""
    now = datetime.now(UTC)
    compacted = _compacted(tables, access, wanted) if wanted.compact else 0
    expired = _expired(tables, wanted, now)
    number, size = _removed(tables, staging, access, wanted, now)
    return Maintained(files_compacted=compacted, snapshots_expired=expired, files_removed=number, bytes_removed=size)


def _found(tables: Tables) -> Table:
    table = tables.find()
    if table is None:
        raise DeliveryError(f"{tables} is gone")
    return table


def _again(tables: Tables, act: Callable[[Table], int]) -> int:
    """Do something with a table as it is; again, where somebody changed it."""
    from pyiceberg.exceptions import CommitFailedException

    for number in range(TRIES):
        try:
            return act(_found(tables))
        except CommitFailedException as error:
            log.info("%s: maintenance, try %d: %s", tables, number + 1, error)
    raise DeliveryError(f"{tables} was changed {TRIES} times while it was maintained; try again later")


# Small files


def _compacted(tables: Tables, access: Access, wanted: Maintenance) -> int:
    """Put small files together; return how many."""

    def act(table: Table) -> int:
        groups = list(_small(table, wanted.target_file_bytes))
        if groups and not wanted.is_dry_run:
            _rewrite(table, groups)
        return sum(map(len, groups))

    def _rewrite(table: Table, groups: list[list[FileScanTask]]) -> None:
        folder = join(table.location().rstrip("/"), "data", secrets.token_hex(8))
        addition = Addition(table, {MAINTENANCE: "compaction"}, access)
        try:
            for tasks in groups:
                rows = pa.concat_tables(data_files.rows_of(table, task) for task in tasks)
                addition.replace([task.file for task in tasks], data_files.split(table, rows, folder, access))
            _send(tables, addition)
        except BaseException as error:
            if _is_unknown(error):
                raise
            if _is_named(_found(tables), folder):  # the answer was lost, and the request was sent again
                return
            with suppress(OSError):
                delete_folder(folder, access)
            raise

    return _again(tables, act)


def _small(table: Table, target_bytes: int) -> Iterator[list[FileScanTask]]:
    """Yield small files of one partition each, as many as make one large one; those with deletes are left alone."""
    spec_id = table.spec().spec_id
    waiting: dict[str, list[FileScanTask]] = {}
    for task in table.scan().plan_files():
        file = task.file
        if file.file_size_in_bytes >= target_bytes // 2 or task.delete_files or file.spec_id != spec_id:
            continue
        group = waiting.setdefault(str(file.partition), [])
        group.append(task)
        if sum(each.file.file_size_in_bytes for each in group) >= target_bytes:
            yield waiting.pop(str(file.partition))
    yield from (group for group in waiting.values() if len(group) > 1)


def _send(tables: Tables, addition: Addition) -> None:
    addition.make(tables)
    addition.send()


def _is_unknown(error: BaseException) -> bool:
    """Return whether a commit that raised this may have been made."""
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    if isinstance(error, CommitStateUnknownException):
        return True
    return not isinstance(error, CommitFailedException | DeliveryError)


# Snapshots


def _expired(tables: Tables, wanted: Maintenance, now: datetime) -> int:
    """Expire the snapshots that are older than the retention, but for those that have a name; return how many."""
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

    return _again(tables, act)


# Files that no snapshot names


def _removed(tables: Tables, staging: Staging, access: Access, wanted: Maintenance, now: datetime) -> tuple[int, int]:
    """Remove the files that nothing names and that are older than the retention; return how many, and their size."""
    table = _found(tables)
    root = table.location().rstrip("/")
    old = {
        place_of(file): file
        for folder, ending in OURS.items()
        for file in files_before(join(root, folder), now - wanted.retention, access)
        if file.endswith(ending)
    }
    left = old.keys() - _named(table) - set(map(place_of, staging.named("path")))
    if left and not wanted.is_dry_run:
        _again(tables, _commit_nothing(tables, access))
        left = left - _named(_found(tables)) - set(map(place_of, staging.named("path")))
    return removed((old[place] for place in sorted(left)), access, is_dry_run=wanted.is_dry_run)


def _commit_nothing(tables: Tables, access: Access) -> Callable[[Table], int]:
    """Return what makes a snapshot without a file: who looked at the table before looks again before it commits."""

    def act(table: Table) -> int:
        _send(tables, Addition(table, {MAINTENANCE: "removal of files"}, access))
        return 0

    return act


def _is_named(table: Table, folder: str) -> bool:
    """Return whether a table names a file in a folder."""
    return any(name.startswith(place_of(folder)) for name in _named(table))


def _named(table: Table) -> set[str]:
    """Return the files that a table names, whichever of its snapshots does."""
    names: set[str] = set()
    for snapshot in table.snapshots():
        names.add(place_of(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            if (place := place_of(manifest.manifest_path)) not in names:
                names.add(place)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                names.update(place_of(entry.data_file.file_path) for entry in entries)
    return names
