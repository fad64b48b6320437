"""One snapshot on its way into a table: files are added and removed, and the catalog takes all of it or nothing.

pyiceberg makes the snapshot. Its own commit would try again where it is refused, upon whatever others brought since. It
would also remove what it made where it is refused, although an earlier try may be in whose answer was lost. So what it
made is sent here, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.sinks.iceberg.catalog import NAME_MAPPING, Tables
from airflow_provider_coordination.spark.sinks.iceberg.data_files import Written, data_file, whole_footer
from airflow_provider_coordination.spark.storage import delete_file

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


class Addition:
    """One snapshot that is not in yet.

    :param table: the table, as it was looked at; it is taken only if the table's branch is still where it was.
    :param summary: what the snapshot's summary says.
    :param access: how its files are reached.
    """

    def __init__(self, table: Table, summary: Mapping[str, str], access: Access) -> None:
        self._table = table
        self._access = access
        self._summary = dict(summary)
        self._transaction = table.transaction()
        self._added: list[Written] = []
        self._gone: list[DataFile] = []
        self._rest: list[Written] = []
        self._producer: Any = None

    @property
    def paths(self) -> set[str]:
        """The files that it adds."""
        return {written.path for written in (*self._added, *self._rest)}

    def add(self, written: Written) -> None:
        """Add a file."""
        self._added.append(written)

    def add_made(self, made: Sequence[Written]) -> None:
        """Add files that were made for it alone, out of others."""
        self._rest += made

    def replace(self, gone: Sequence[DataFile], rest: Sequence[Written]) -> None:
        """Remove files of the table, and add others that hold the rest of their rows."""
        self._gone += gone
        self._rest += rest

    def make(self, tables: Tables) -> None:
        """Write the snapshot, to where nobody looks.

        :raises DeliveryError: if the table's columns cannot become those of the files, or a file is not whole.
        """
        transaction = self._transaction
        columns: list[pa.Schema] = []
        files = [(written, whole_footer(written, self._access)) for written in (*self._added, *self._rest)]
        for _, footer in files:
            schema = footer.schema.to_arrow_schema().remove_metadata()
            if schema not in columns:
                columns.append(schema)
                tables.evolve(transaction, schema)
        metadata = transaction.table_metadata
        if NAME_MAPPING not in metadata.properties:
            transaction.set_properties({NAME_MAPPING: metadata.schema().name_mapping.model_dump_json()})
        update = transaction.update_snapshot(snapshot_properties=self._summary)
        self._producer = update.overwrite() if self._gone else update.fast_append()
        with self._producer as producer:
            for file in self._gone:
                producer.delete_data_file(file)
            for written, footer in files:
                producer.append_data_file(data_file(self._table, metadata, written, footer))

    def send(self) -> None:
        """Let the catalog take it.

        :raises CommitFailedException: if the table is not as it was any more.
        :raises Exception: if it is not known whether the catalog took it.
        """
        from pyiceberg.table.update import AssertTableUUID

        transaction = self._transaction
        requirements = (*transaction._requirements, AssertTableUUID(uuid=self._table.metadata.table_uuid))
        self._table.catalog.commit_table(self._table, requirements, transaction._updates)

    def failed(self, table: Table) -> bool:
        """Return whether it is not in a table, as that is now, and can never be.

        The branch has gone on from where it had to be by another snapshot. Nothing is concluded where the way from
        there to here is not known, since snapshots in between are expired.
        """
        present, parent = table.current_snapshot(), self._table.current_snapshot()
        if table.metadata.snapshot_by_id(self._producer.snapshot_id) is not None:
            return False
        above: int | None = None if parent is None else parent.snapshot_id
        snapshot = present
        while snapshot is not None and snapshot.snapshot_id != above:
            before = snapshot.parent_snapshot_id
            if before == above:  # of an empty table: the first snapshot ever, and not one whose parent is expired
                return above is not None or snapshot.sequence_number == 1
            snapshot = None if before is None else table.metadata.snapshot_by_id(before)
        return False

    def remove(self) -> None:
        """Remove what was made for it alone; the files that were prepared stay, for another try."""
        self._producer._clean_all_uncommitted()
        for written in self._rest:
            with suppress(OSError):
                delete_file(written.path, self._access)
