"""What an Iceberg table has of its batches, for an audit: the snapshots in effect, and the files that they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.dataset_compaction import files_by_name
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.ledger import (
    IsOfSource,
    LedgerEntry,
    SinkContents,
    TableFile,
    compare_totals,
    entry_of,
    table_faults,
)
from airflow_provider_coordination.spark.parquet_files import count_by_batch
from airflow_provider_coordination.spark.sinks.iceberg import data_files
from airflow_provider_coordination.spark.sinks.iceberg.maintenance import MAINTENANCE
from airflow_provider_coordination.spark.sinks.iceberg.snapshots import recorded_batches
from airflow_provider_coordination.spark.storage import file_size

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table


def contents_of(
    table: Table, title: str, wanted: IsOfSource, *, reads_rows: bool, access: Access, merges: bool
) -> SinkContents:
    """Return what a table has.

    :param title: the table, for display.
    :param wanted: see `Sink.contents`.
    :param merges: whether rows of the table replace others.
    """
    recorded = recorded_batches(table.metadata, MAINTENANCE)
    rows: dict[str, int | None] = dict.fromkeys(recorded.unknown)
    entries: list[LedgerEntry] = []
    for described in recorded.described:
        entry = entry_of(described)
        if entry.batch_id not in rows:  # otherwise a later snapshot has replaced it
            rows[entry.batch_id] = entry.rows
            if wanted(entry.source):
                entries.append(entry)
    tasks = [] if table.current_snapshot() is None else list(table.scan().plan_files())
    files = list(_files(table, tasks, access))
    faults, others = table_faults(files, rows)
    if recorded.since is None and not merges:
        has = sum(file.rows for file in files) - _deleted(table)
        others += compare_totals(title, has, rows.values())
    return SinkContents(
        location=title,
        entries=entries,
        faults=faults,
        counted=_counted(table, tasks, files) if reads_rows else None,
        others=others,
        notes=recorded.notes,
        since=recorded.since,
        unknown=recorded.unknown,
        replaces_rows=merges,
    )


def _deleted(table: Table) -> int:
    """Return the number of rows that the current snapshot deletes by position."""
    snapshot = table.current_snapshot()
    summary: Mapping[str, Any] = (
        {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
    )
    return int(summary.get("total-position-deletes", 0))


def _files(table: Table, tasks: Sequence[FileScanTask], access: Access) -> Iterator[TableFile]:
    from pyiceberg.conversions import from_bytes

    root = table.location().rstrip("/")
    found = files_by_name(root, access)
    field = table.schema().find_field(BATCH_ID) if BATCH_ID in table.schema().column_names else None

    def bound(bounds: Mapping[int, bytes] | None) -> str | None:
        if field is None or not bounds or field.field_id not in bounds:
            return None
        return str(from_bytes(field.field_type, bounds[field.field_id]))  # type: ignore[arg-type]

    for task in tasks:
        file = task.file
        name = file.file_path.removeprefix(f"{root}/")
        there = found[name].bytes if name in found else None
        if there is None and name == file.file_path:
            there = file_size(name, access)
        low, high = bound(file.lower_bounds), bound(file.upper_bounds)
        yield TableFile(name, file.file_size_in_bytes, file.record_count, low, high, there)


def _counted(table: Table, tasks: Sequence[FileScanTask], files: Sequence[TableFile]) -> Counter[str]:
    """Return the number of rows of each batch in the files that are there."""
    counted: Counter[str] = Counter()
    there = [task for task, file in zip(tasks, files, strict=True) if file.found is not None]
    if BATCH_ID not in table.schema().column_names:
        return counted
    deleted = data_files.deleted_rows(table, there)
    for task in there:
        for rows in data_files.rows_of(table, task, deleted, BATCH_ID):
            counted.update(count_by_batch(rows))
    return counted
