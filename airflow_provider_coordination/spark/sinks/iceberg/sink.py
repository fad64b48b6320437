"""An Iceberg table that accepts the batches of a delivery in one snapshot, each batch once.

A delivery prepares data files below the table's location, which no snapshot references. For each batch it also writes
a manifest, last, with the number of the batch's rows in each file. A commit reads the table and the manifests. It adds
the files on condition that the table's branch is still at the snapshot that was read.

A new owner first removes the manifests of the previous one, then reads the table, then commits. There are two cases for
a previous owner that continues. It commits before that read, and its batches are in. Or it meets a newer snapshot,
reads the table again, and finds its batches in or its manifests gone.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivered_batches import (
    TableHistory,
    may_be_older,
    unknown_batch,
)
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.layout import BATCH_ID, quoted
from airflow_provider_coordination.spark.ledger import IsOfSource, SinkContents, with_rows
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import Maintenance, MaintenanceResult, Rows
from airflow_provider_coordination.spark.sinks.iceberg import data_files
from airflow_provider_coordination.spark.sinks.iceberg.catalog import CatalogTable, is_gone
from airflow_provider_coordination.spark.sinks.iceberg.contents import contents_of
from airflow_provider_coordination.spark.sinks.iceberg.data_files import FileRows
from airflow_provider_coordination.spark.sinks.iceberg.maintenance import maintain
from airflow_provider_coordination.spark.sinks.iceberg.merges import merge
from airflow_provider_coordination.spark.sinks.iceberg.snapshots import (
    Entry,
    Histories,
    PendingSnapshot,
    SnapshotHistory,
    summary_of,
    table_history,
    tombstones_in,
)
from airflow_provider_coordination.spark.storage import (
    check_writable,
    delete_file,
    delete_folder,
    files_below,
    join,
)
from airflow_provider_coordination.spark.table_sinks import DATA, PreparedFile, TableSink, files_of
from airflow_provider_coordination.spark.tombstones import Tombstones
from airflow_provider_coordination.spark.writes.iceberg import IcebergTable

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

MAX_CONFLICTS = 100
"""The number of tries of a commit while others commit: each conflict means that another writer succeeded."""
CONFLICT_PAUSE_SECONDS = 0.2
_AT = "_coordination_at"


@dataclass(frozen=True)
class TableState:
    """The state of a table when it was read.

    :param table: the table; None if there is none.
    :param history: the batches that its snapshots name.
    :param unnamed: batches of which it has rows, although no snapshot names them any more.
    """

    table: Table | None
    history: SnapshotHistory
    unnamed: Collection[str] = ()

    def has(self, batch_id: str) -> bool:
        """Return whether the table has a batch."""
        return batch_id in self.history.entries or batch_id in self.unnamed

    def owes(self, attempt: Attempt) -> bool:
        """Return whether the table must accept the batch of an attempt.

        :raises DeliveryError: if the batch was replaced already, under a lease that is not older.
        """
        entry = self.history.entries.get(attempt.batch_id)
        if not attempt.batch.redeliver:
            return not self.has(attempt.batch_id)
        if entry is None:
            return True
        if entry.is_of_set(attempt):
            return False
        if entry.fencing_token >= attempt.fencing_token:
            raise DeliveryError(
                f"batch {attempt.batch_id} was delivered under fencing token {entry.fencing_token}, but this job has "
                f"token {attempt.fencing_token}: another owner has the partition"
            )
        return True


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The part of a file that an attempt prepared.

    :param attempt: the attempt, as the table's history would name it.
    :param rows: the number of its batch's rows in the file.
    """

    attempt: Entry
    rows: int


class IcebergSink(TableSink["Table"]):
    """An Iceberg table; a `Sink`.

    :param name: the name of the sink.
    :param location: the location of the table, for display.
    :param settings: the table and its catalog.
    :param where: which records go to the table, as a SQL predicate; None for all.
    :param aws: how to reach the table's files on S3; None for the AWS default credential chain.
    """

    def __init__(
        self,
        *,
        name: str,
        location: str,
        settings: IcebergTable,
        where: str | None = None,
        aws: AwsSettings | None = None,
    ) -> None:
        super().__init__(name, where, f"Iceberg table {settings.table!r}", settings)
        self._shown = location
        self._aws = aws
        self._table = CatalogTable(settings, f"IcebergTable {name!r}", location)
        self._tombstone_retention = settings.tombstone_retention
        self._histories = Histories()
        self._since: int | None = None
        self._has_columns = bool(settings.columns)  # of its own, whatever the rows have
        self._location: str | None = None
        self._abandoned: dict[str, tuple[int, dict[str, _Part]]] = {}
        self._undone: set[int] = set()  # rolled-back snapshots that are reported

    @classmethod
    def of(cls, settings: SinkSettings) -> IcebergSink:
        """Return the sink for settings.

        :raises ConfigurationError: naming the field.
        """
        table = IcebergTable.from_mapping(settings.settings)
        return cls(
            name=settings.name, location=settings.location, settings=table, where=settings.where, aws=settings.aws
        )

    @override
    def check(self) -> None:
        table = self._table.check()
        check_writable(f"the location of IcebergTable {self.name!r}", self._root(table), self.access)
        self._read_state(())
        self._has_columns = self._has_columns or table is not None

    @property
    @override
    def location(self) -> str:
        return self._shown

    @property
    @override
    def required_columns(self) -> Mapping[str, Sequence[str]]:
        # A table may have partition columns that rows lack.
        partitioning = () if self._has_columns else tuple(each.column for each in self._table.partition_fields)
        return {**self._merging.required, "'partition_by'": partitioning}

    # Reading the table

    @override
    def committed(self, attempts: Sequence[Attempt]) -> set[str]:
        state = self._read_state(attempts)
        return {attempt.batch_id for attempt in attempts if state.has(attempt.batch_id)}

    @override
    def committed_under(self, attempts: Sequence[Attempt]) -> Mapping[str, int]:
        entries = self._read_state(attempts).history.entries
        return {a.batch_id: entries[a.batch_id].fencing_token for a in attempts if a.batch_id in entries}

    @override
    def history(self) -> TableHistory:
        table = self._table.find()
        if table is None:
            raise ConfigurationError(f"IcebergTable {self.name!r}: field 'table': {self._table} does not exist")
        return table_history(table.metadata, str(self._table))

    @override
    def contents(self, wanted: IsOfSource, *, reads_rows: bool) -> SinkContents:
        table = self._table.find()
        if table is None:
            raise ConfigurationError(f"IcebergTable {self.name!r}: field 'table': {self._table} does not exist")
        self._root(table)
        return self._table.with_retries(
            lambda: contents_of(
                table, str(self._table), wanted, reads_rows=reads_rows, access=self.access, merges=bool(self._merging)
            )
        )

    @override
    def maintain(self, wanted: Maintenance) -> MaintenanceResult:
        table = self._table.find_writable()
        if table is None:
            raise ConfigurationError(f"IcebergTable {self.name!r}: field 'table': {self._table} does not exist")
        self._root(table)
        return maintain(self._table, self._staging, self.access, wanted)

    def _read_state(self, attempts: Sequence[Attempt]) -> TableState:
        """Read the current state of the table with regard to the batches of some attempts."""
        table = self._table.find_writable()
        if table is None:
            self._since = 0 if self._since is None else self._since
            return TableState(None, SnapshotHistory({}))
        self._location = table.location()
        history = self._histories.of(table.metadata)
        self._report_undone(history)
        if self._since is None:
            snapshot = table.current_snapshot()
            self._since = 0 if snapshot is None else snapshot.sequence_number or 0
        if history.entries and BATCH_ID not in table.schema().column_names:
            raise DeliveryError(
                f"{self._table} has lost its column {BATCH_ID!r}, by which its batches are found; add it again, or "
                "roll the table back to a snapshot that has it; the batches wait until then"
            )
        doubtful = {
            a.batch_id for a in attempts if a.batch_id not in history.entries and not self._is_known_absent(a, history)
        }
        unnamed = self._table.with_retries(lambda: data_files.batches_in(table, doubtful))
        for attempt in attempts if self._merging else ():
            if attempt.batch_id in doubtful - unnamed and may_be_older(attempt, history.oldest_at):
                raise unknown_batch(attempt, str(self._table), history.oldest_at)
        return TableState(table, history, unnamed)

    def _report_undone(self, history: SnapshotHistory) -> None:
        """Report each rolled-back snapshot once, before anything is added to the table."""
        for snapshot_id, batches in history.undone.items():
            if snapshot_id not in self._undone:
                self._undone.add(snapshot_id)
                log.error(
                    "%s was rolled back: snapshot %d, with %d batches such as %s, is undone; batches that are not "
                    "acknowledged are delivered again; to deliver acknowledged ones, reset the source",
                    self._table, snapshot_id, len(batches), min(batches),
                )  # fmt: skip

    def _is_known_absent(self, attempt: Attempt, history: SnapshotHistory) -> bool:
        """Return whether a history that does not name a batch proves that the batch is not in.

        Only this job can have delivered what it landed under its own lease, and only since its first read of the table.
        """
        is_own = attempt.batch.fencing_token == attempt.fencing_token
        return history.is_whole_since(self._since or 0 if is_own else 0)

    def _root(self, table: Table | None = None) -> str:
        if table is not None:
            self._location = table.location()
        if self._location is None:
            found = self._table.find()
            self._location = self._table.planned_location if found is None else found.location()
        return self._location.rstrip("/")

    @property
    @override
    def access(self) -> Access:
        return DEFAULT_ACCESS if self._aws is None else Access(((self._root(), self._aws),))

    # Preparing

    @override
    def repartition(self, rows: DataFrame) -> DataFrame:
        # Spark makes even partitions, and keeps rows of a table partition together.
        whole = [field.column for field in self._table.partition_fields if field.transform == "identity"]
        return rows.hint("rebalance", *(quoted(column) for column in whole if column in rows.columns))

    @override
    def _fit(self, columns: pa.Schema) -> Table:
        table = self._table.find_or_create(columns)
        self._root(table)
        self._table.evolve(table.transaction(), columns)
        return table

    @override
    def _write(self, fit: Table, rows: Rows, batch_ids: Sequence[str], folder: str) -> list[PreparedFile]:
        written = list(rows.write(batch_ids, folder))
        for file in set(files_below(folder, self.access)).difference(written):  # of failed tasks
            delete_file(file, self.access)
        return data_files.split_by_partition(fit, written, folder, self.access)

    @override
    def _required(self, fit: Table) -> list[str]:
        return [field.name for field in fit.schema().fields if field.required]

    @override
    def _described(self, fit: Table) -> Mapping[str, Any]:
        return {"spec": fit.spec().spec_id}

    # Committing

    @override
    def _commit(self, attempts: Sequence[Attempt]) -> None:
        sent: list[PendingSnapshot] = []
        began = time.monotonic()
        for _ in range(MAX_CONFLICTS):
            state = self._read_state(attempts)
            self._remove_failed(sent, state)
            left = [attempt for attempt in attempts if state.owes(attempt)]
            if not left:
                self._remove_abandoned(state)
                return
            try:
                self._add(state, left, sent)
            except CoordinationError:
                raise
            except Exception as error:
                self._wait_after(error, began)
        raise DeliveryError(
            f"{self._table} changed {MAX_CONFLICTS} times during a commit; the batches are delivered again"
        )

    def _wait_after(self, error: Exception, began: float) -> None:
        """Wait before the table is read again, after a commit that was refused or got no response.

        :raises SinkUnavailableError: if the catalog stays unavailable.
        """
        from pyiceberg.exceptions import CommitFailedException

        if isinstance(error, CommitFailedException) or is_gone(error):
            log.info("%s changed during a commit; it is read again: %s", self._table, error)
            time.sleep(random.uniform(0, CONFLICT_PAUSE_SECONDS))
        else:
            self._table.wait_after(error, began)

    def _add(self, state: TableState, attempts: Sequence[Attempt], sent: list[PendingSnapshot]) -> None:
        """Add the prepared files of attempts, on condition that the table has not changed since it was read.

        :param sent: receives the snapshot once it was sent to the catalog, whatever the result.
        """
        table = state.table
        if table is None:
            raise DeliveryError(f"{self._table} is gone; the batches are delivered again")
        folder = join(self._root(table), DATA, secrets.token_hex(8))
        staging = self._staging
        manifests = {attempt.batch_id: staging.sealed(attempt) for attempt in attempts}
        addition = PendingSnapshot(table, summary_of(with_rows(attempts, manifests)), self.access)
        replaced = [attempt.batch_id for attempt in attempts if attempt.batch.redeliver]
        try:
            self._remove_rows(addition, table, self._add_files(addition, table, manifests, replaced, folder), folder)
            addition.make(self._table)
        except BaseException:
            addition.remove()
            with suppress(OSError):
                delete_folder(folder, self.access)
            raise
        sent.append(addition)
        self._named |= addition.paths
        addition.send()

    def _add_files(
        self,
        addition: PendingSnapshot,
        table: Table,
        manifests: Mapping[str, Mapping[str, Any]],
        replaced: Sequence[str],
        folder: str,
    ) -> Sequence[FileRows]:
        """Add the files of manifests; if a file also holds other rows, add only the wanted ones.

        :param manifests: by batch id.
        :param replaced: the batches whose previous rows are removed.
        :returns: the rows of the table that are removed.
        """
        for batch_id, manifest in manifests.items():
            if manifest["spec"] != table.spec().spec_id:
                raise DeliveryError(
                    f"batch {batch_id}: another process changed the partitioning of {self._table} after the batch was "
                    "prepared; it is delivered again"
                )
        files = files_of(manifests)
        if self._merging and files:
            return self._add_merged(addition, table, files, list(manifests), replaced, folder)
        for written in files:
            if sum(written.batches.values()) == written.rows:
                addition.add(written)
            else:
                addition.add_rewritten(data_files.copy_batches(written, folder, self.access))
        return data_files.rows_of_batches(table, replaced)

    def _add_merged(
        self,
        addition: PendingSnapshot,
        table: Table,
        files: Sequence[PreparedFile],
        batch_ids: Sequence[str],
        replaced: Sequence[str],
        folder: str,
    ) -> Sequence[FileRows]:
        """Add the rows that win; return those of the table that are removed."""
        merging, rows, first = self._merging, self._keys_of(files), 0
        kept = merging.kept(rows, batch_ids)
        changes = rows.take(kept).append_column(_AT, kept)
        if merging.order_by is not None:
            tombstones = Tombstones(self._root(), merging, self._tombstone_retention, self.access)
            number = tombstones_in(table.metadata)
            changes = tombstones.without_late(number, changes)
            of_batches = pc.is_in(rows.column(BATCH_ID), pa.array(batch_ids, pa.string()))
            if (added := tombstones.add(number, rows.filter(of_batches))) is not None:
                addition.set_tombstones(tombstones, added)
        merged = merge(table, changes, merging, replaced)
        winners = changes.filter(merged.wins)
        kept = winners.filter(pc.invert(merging.deletes(winners))).column(_AT).combine_chunks()
        for written in files:
            wanted = data_files.positions_in_file(kept, first, written.rows)
            first += written.rows
            if len(wanted) == written.rows:
                addition.add(written)
            elif len(wanted):
                addition.add_rewritten(data_files.copy_rows(written, wanted, folder, self.access))
        return merged.removed

    def _remove_rows(self, addition: PendingSnapshot, table: Table, removed: Sequence[FileRows], folder: str) -> None:
        """Remove rows of the table by deletes, and files without other rows as a whole.

        Tables of Iceberg's first version have no deletes: their files are rewritten.
        """
        from airflow_provider_coordination.spark.sinks.iceberg.position_deletes import superseded_by, write_deletes

        partly = [rows for rows in removed if rows.left]
        if table.metadata.format_version == 1:
            addition.replace(*data_files.rewrite_without(table, partly, folder, self.access))
        else:
            addition.replace_deletes([], write_deletes(partly, folder, self.access))
        for rows in removed:
            addition.replace_deletes(superseded_by(rows), [])
        addition.replace([rows.task.file for rows in removed if not rows.left], [])

    def _remove_failed(self, sent: list[PendingSnapshot], state: TableState) -> None:
        """Remove the files of snapshots that are known to have failed."""
        for addition in list(sent):
            if state.table is not None and addition.has_failed(state.table):
                addition.remove()
                sent.remove(addition)
                self._named -= addition.paths.difference(*(other.paths for other in sent))

    # Leftovers

    @override
    def sweep(self, tokens: Mapping[str, int]) -> None:
        # Removes manifests; removes files once other attempts have committed their batches.
        for manifest in self._staging.sweep(tokens):
            with suppress(KeyError, TypeError):  # an incomplete manifest names no files
                self._abandon(manifest)

    def _abandon(self, manifest: Mapping[str, Any]) -> None:
        """Record the files that a manifest of a previous owner names."""
        attempt = Entry.of(manifest)
        for written in manifest["content"]["files"]:
            _, parts = self._abandoned.setdefault(written["name"], (written["rows"], {}))
            parts[manifest["batch"]] = _Part(attempt=attempt, rows=written["batches"])

    def _remove_abandoned(self, state: TableState) -> None:
        """Remove files of previous owners whose batches are all in by other attempts: no commit can add them now."""
        entries = state.history.entries
        for path, (rows, parts) in list(self._abandoned.items()):
            is_complete = sum(part.rows for part in parts.values()) == rows
            if is_complete and all(b in entries and entries[b] != part.attempt for b, part in parts.items()):
                with suppress(OSError):
                    delete_file(path, self.access)
                del self._abandoned[path]
