"""Position deletes of an Iceberg table: files that name rows of data files, which readers leave out.

pyiceberg reads such files and does not write them. A data file has at most one of those written here: a new one also
names the rows that the previous one names, and takes its place in the same snapshot. A delete applies to data files
whose sequence number is not greater than its own. It gets the number of its snapshot, so it applies to its data file.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update.snapshot import _OverwriteFiles

from airflow_provider_coordination.coordination.errors import result_or_raise
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.concurrency import side_by_side
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.sinks.iceberg.data_files import FileRows
from airflow_provider_coordination.spark.storage import calls_at_once, join

if TYPE_CHECKING:
    from pyiceberg.table import Table, Transaction

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The ids that Iceberg reserves for the columns of delete files."""
COLUMNS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
    ]
)


def write_deletes(removed: Sequence[FileRows], folder: str, access: Access) -> list[DataFile]:
    """Write the delete files of some rows, one for each data file.

    :param removed: the rows, at most once for each data file.
    :param folder: the folder of the new files.
    """

    def write(rows: FileRows) -> DataFile:
        return _write(rows, join(folder, f"{secrets.token_hex(8)}-deletes.parquet"), access)

    return [result_or_raise(file) for _, file in side_by_side(removed, write, calls_at_once(folder, access))]


def _write(rows: FileRows, uri: str, access: Access) -> DataFile:
    data = rows.task.file
    positions = pa.chunked_array([rows.positions, rows.deleted]).unique().sort()
    paths = pa.repeat(pa.scalar(data.file_path), len(positions))
    bound = data.file_path.encode()  # whole, by which readers know that it is of this file alone
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=data.partition,
        record_count=len(positions),
        file_size_in_bytes=write_table(pa.table([paths, positions], COLUMNS), uri, access),
        lower_bounds={PATH_ID: bound},
        upper_bounds={PATH_ID: bound},
    )
    file.spec_id = data.spec_id
    return file


def superseded_by(rows: FileRows) -> list[DataFile]:
    """Return the delete files whose rows a new one for the same data file also names: those of no other data file."""
    bound = rows.task.file.file_path.encode()
    return [
        file
        for file in rows.task.delete_files
        if (file.lower_bounds or {}).get(PATH_ID) == (file.upper_bounds or {}).get(PATH_ID) == bound
    ]


def delete_files_of(table: Table) -> set[DataFile]:
    """Return the delete files of a table's current snapshot."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    deletes = (manifest for manifest in manifests if manifest.content == ManifestContent.DELETES)
    return {entry.data_file for manifest in deletes for entry in manifest.fetch_manifest_entry(table.io)}


class RowDelta(_OverwriteFiles):
    """A snapshot that adds and removes data files and delete files.

    :param transaction: the transaction that receives it.
    :param table: the table as it was read.
    :param summary: the properties of its summary.
    :param added: the delete files that it adds.
    :param removed: the delete files that it removes.
    """

    def __init__(
        self,
        transaction: Transaction,
        table: Table,
        summary: dict[str, str],
        added: Sequence[DataFile],
        removed: Collection[DataFile],
    ) -> None:
        super().__init__(Operation.OVERWRITE, transaction, table.io, snapshot_properties=summary)
        self._added_deletes = added
        self._removed_deletes = frozenset(removed)

    @override
    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        kept: list[ManifestFile] = []
        entries: dict[int, list[ManifestEntry]] = defaultdict(list)
        for manifest in manifests:
            known = self._entries_of(manifest)
            if self._removed_deletes.isdisjoint(entry.data_file for entry in known):
                kept.append(manifest)
            else:
                entries[manifest.partition_spec_id] += map(self._after, known)
        for file in self._added_deletes:  # without a sequence number: they get the snapshot's
            entries[file.spec_id].append(
                ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file)
            )
        return [*kept, *(self._delete_manifest(spec_id, of) for spec_id, of in entries.items())]

    def _entries_of(self, manifest: ManifestFile) -> list[ManifestEntry]:
        if not self._removed_deletes or manifest.content != ManifestContent.DELETES:
            return []
        return manifest.fetch_manifest_entry(self._io)

    def _after(self, entry: ManifestEntry) -> ManifestEntry:
        """Return the entry of a delete file as this snapshot has it."""
        is_removed = entry.data_file in self._removed_deletes
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.DELETED if is_removed else ManifestEntryStatus.EXISTING,
            snapshot_id=self._snapshot_id if is_removed else entry.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )

    def _delete_manifest(self, spec_id: int, entries: Sequence[ManifestEntry]) -> ManifestFile:
        metadata, output = self._transaction.table_metadata, self.new_manifest_output()
        with _DeleteManifest(
            metadata.specs()[spec_id], metadata.schema(), output, self._snapshot_id, self._compression
        ) as manifest:
            for entry in entries:
                manifest.add_entry(entry)
        return manifest.to_manifest_file()

    @override
    def _summary(self, snapshot_properties: Mapping[str, str] = {}) -> Summary:
        metadata = self._transaction.table_metadata
        collected = SnapshotSummaryCollector()
        for file in (*self._added_data_files, *self._added_deletes):
            collected.add_file(file, metadata.schema(), metadata.specs()[file.spec_id])
        for file in (*self._deleted_data_files, *self._removed_deletes):
            collected.remove_file(file, metadata.schema(), metadata.specs()[file.spec_id])
        previous = metadata.snapshot_by_name(self._target_branch)
        return update_snapshot_summaries(
            Summary(self._operation, **collected.build(), **snapshot_properties),
            None if previous is None else previous.summary,
        )


class _DeleteManifest(ManifestWriterV2):
    """Writes a manifest of delete files."""

    @override
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    @override
    def _meta(self) -> dict[str, Any]:
        return {**super()._meta, "content": "deletes"}
