"""One pending snapshot: it adds and removes files, and the catalog accepts all of it or nothing.

pyiceberg makes the snapshot. Its own commit would retry after a refusal, on top of what others committed in between. It
would also remove its files after a refusal, although an earlier try with a lost response may have succeeded. So the
snapshot is sent here, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.sinks.iceberg.catalog import NAME_MAPPING, CatalogTable
from airflow_provider_coordination.spark.sinks.iceberg.data_files import PreparedFile, data_file, whole_footer
from airflow_provider_coordination.spark.storage import delete_file

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


class PendingSnapshot:
    """A snapshot that is not in the table yet.

    :param table: the table as it was read; the catalog accepts the snapshot only if the branch has not moved since.
    :param summary: the properties of the snapshot's summary.
    :param access: how to reach the table's files.
    """

    def __init__(self, table: Table, summary: Mapping[str, str], access: Access) -> None:
        self._table = table
        self._access = access
        self._summary = dict(summary)
        self._transaction = table.transaction()
        self._added: list[PreparedFile] = []
        self._removed: list[DataFile] = []
        self._rewritten: list[PreparedFile] = []
        self._producer: Any = None

    @property
    def paths(self) -> set[str]:
        """The files that the snapshot adds."""
        return {written.path for written in (*self._added, *self._rewritten)}

    def add(self, written: PreparedFile) -> None:
        """Add a prepared file."""
        self._added.append(written)

    def add_rewritten(self, files: Sequence[PreparedFile]) -> None:
        """Add files that were rewritten for this snapshot alone."""
        self._rewritten += files

    def replace(self, removed: Sequence[DataFile], rewritten: Sequence[PreparedFile]) -> None:
        """Remove files of the table, and add files that hold the rest of their rows."""
        self._removed += removed
        self._rewritten += rewritten

    def make(self, tables: CatalogTable) -> None:
        """Write the snapshot's metadata files, which no reader sees yet.

        :raises DeliveryError: if the table cannot accept the columns of the files, or a file is incomplete.
        """
        transaction = self._transaction
        columns: list[pa.Schema] = []
        files = [(written, whole_footer(written, self._access)) for written in (*self._added, *self._rewritten)]
        for _, footer in files:
            schema = footer.schema.to_arrow_schema().remove_metadata()
            if schema not in columns:
                columns.append(schema)
                tables.evolve(transaction, schema)
        metadata = transaction.table_metadata
        if NAME_MAPPING not in metadata.properties:
            transaction.set_properties({NAME_MAPPING: metadata.schema().name_mapping.model_dump_json()})
        update = transaction.update_snapshot(snapshot_properties=self._summary)
        self._producer = update.overwrite() if self._removed else update.fast_append()
        with self._producer as producer:
            for file in self._removed:
                producer.delete_data_file(file)
            for written, footer in files:
                producer.append_data_file(data_file(self._table, metadata, written, footer))

    def send(self) -> None:
        """Send the snapshot to the catalog.

        :raises CommitFailedException: if the table has changed since it was read.
        :raises Exception: if it is unknown whether the catalog accepted the snapshot.
        """
        from pyiceberg.table.update import AssertTableUUID

        transaction = self._transaction
        requirements = (*transaction._requirements, AssertTableUUID(uuid=self._table.metadata.table_uuid))
        self._table.catalog.commit_table(self._table, requirements, transaction._updates)

    def has_failed(self, table: Table) -> bool:
        """Return whether the snapshot is not in the current table, and can never be.

        That is certain if another snapshot follows the one that was read. Nothing is concluded if snapshots in between
        are expired, so that the ancestry is unknown.
        """
        present, parent = table.current_snapshot(), self._table.current_snapshot()
        if table.metadata.snapshot_by_id(self._producer.snapshot_id) is not None:
            return False
        parent_id: int | None = None if parent is None else parent.snapshot_id
        snapshot = present
        while snapshot is not None and snapshot.snapshot_id != parent_id:
            previous_id = snapshot.parent_snapshot_id
            if previous_id == parent_id:  # for an empty table: the very first snapshot, not one whose parent is expired
                return parent_id is not None or snapshot.sequence_number == 1
            snapshot = None if previous_id is None else table.metadata.snapshot_by_id(previous_id)
        return False

    def remove(self) -> None:
        """Remove the files that were made for this snapshot alone; prepared files stay for another try."""
        self._producer._clean_all_uncommitted()
        for written in self._rewritten:
            with suppress(OSError):
                delete_file(written.path, self._access)
