"""The snapshots of a table: which batches they name, and the one that a commit adds.

The snapshot of a delivery names its batches, each with the fencing token and the acknowledgment set of the attempt that
committed it. Summaries expire with their snapshots, so the history also knows how far back it reaches.

pyiceberg makes a snapshot. Its own commit would retry after a refusal, on top of what others committed in between. It
would also remove its files after a refusal, although an earlier try with a lost response may have succeeded. So the
snapshot is sent here, once.
"""

from __future__ import annotations

import base64
import json
import logging
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.delivered_batches import Commit, TableHistory, describe_batch, parse_batches
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.parquet_files import footer_of
from airflow_provider_coordination.spark.sinks.iceberg.catalog import NAME_MAPPING, CatalogTable
from airflow_provider_coordination.spark.sinks.iceberg.data_files import data_file
from airflow_provider_coordination.spark.storage import check_size, delete_file
from airflow_provider_coordination.spark.table_sinks import PreparedFile
from airflow_provider_coordination.spark.tombstones import Added, Tombstones

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


log = logging.getLogger(__name__)

BATCHES = "coordination.batches"
"""The summary property that names a snapshot's batches: a JSON object of `<token>:<set>` by batch id."""
SOURCE = "coordination.source"
OWNER = "coordination.owner"
DELIVERED = "coordination.delivered"
"""The summary property with the `LeasedBatch` of each batch: a JSON list, compressed by zlib, in base 64."""
TOMBSTONES = "coordination.tombstones"
"""The summary property, and the property of the table, with the number of the tombstones."""
PICKED_FROM = "source-snapshot-id"
"""The summary property by which Iceberg names the snapshot whose changes a cherry-pick added again."""
MAX_DELIVERED_BYTES = 128 * 1024
"""A longer value is left out: the metadata of a table holds the summaries of all its snapshots."""


@dataclass(frozen=True)
class Entry:
    """The attempt that committed a batch.

    :param fencing_token: the fencing token of its lease.
    :param set_id: its acknowledgment set, as `_short` returns it.
    """

    fencing_token: int
    set_id: str

    @classmethod
    def of(cls, signature: Mapping[str, Any]) -> Entry:
        """Return the entry for the attempt of a manifest."""
        return cls(signature["fencing_token"], _short(signature["set"], signature["batch"]))

    def is_of(self, attempt: Attempt) -> bool:
        """Return whether the entry is for this attempt."""
        return self.fencing_token == attempt.fencing_token and self.is_of_set(attempt)

    def is_of_set(self, attempt: Attempt) -> bool:
        """Return whether the entry is for the same acknowledgment set; the lease may differ."""
        return self.set_id == _short(attempt.set_id, attempt.batch_id)


@dataclass(frozen=True)
class SnapshotHistory:
    """The content of the summaries of a table's current snapshot and its ancestors.

    :param entries: the latest attempt that committed a batch, by batch id.
    :param oldest_sequence_number: the sequence number of the oldest known snapshot; 0 if there never was one; None if
        snapshots have no numbers, as in tables of Iceberg's first version.
    :param oldest_at: when the oldest known snapshot was made (aware); None if there never was one.
    :param undone: by the id of each snapshot that a rollback has undone, its batches that no later one has added again.
    """

    entries: Mapping[str, Entry]
    oldest_sequence_number: int | None = 0
    oldest_at: datetime | None = None
    undone: Mapping[int, Collection[str]] = field(default_factory=dict)

    def is_whole_since(self, sequence_number: int) -> bool:
        """Return whether no snapshot after this sequence number is missing.

        A snapshot without a parent proves nothing: it may no longer name a parent that is expired.
        """
        return self.oldest_sequence_number is not None and self.oldest_sequence_number <= sequence_number + 1


class Histories:
    """Reads histories. The summary of a snapshot never changes, and is read once."""

    def __init__(self) -> None:
        self._known: dict[int, Mapping[str, Entry]] = {}

    def of(self, metadata: TableMetadata) -> SnapshotHistory:
        """Return the history of a table's current snapshot."""
        known = self._known
        self._known = {
            each.snapshot_id: known[each.snapshot_id] if each.snapshot_id in known else _entries_of(each)
            for each in metadata.snapshots
        }
        lineage = _lineage(metadata)
        entries: dict[str, Entry] = {}
        since: dict[str, int] = {}
        for snapshot in lineage.snapshots:
            for batch_id, entry in self._known[snapshot.snapshot_id].items():
                entries.setdefault(batch_id, entry)
                since.setdefault(batch_id, _number(snapshot))
        if lineage.oldest is None:
            return SnapshotHistory({})
        return SnapshotHistory(
            entries,
            (_number(lineage.oldest) or None) if lineage.is_whole else None,
            datetime.fromtimestamp(lineage.oldest.timestamp_ms / 1000, UTC),
            {
                undone.snapshot_id: batches
                for undone in lineage.undone
                if (batches := [b for b in self._known[undone.snapshot_id] if since.get(b, 0) < _number(undone)])
            },
        )


@dataclass(frozen=True, kw_only=True)
class _Lineage:
    """The snapshots of a table, by what became of their changes.

    :param snapshots: those in effect, from the latest: the current one, its ancestors, and what they were picked from.
    :param oldest: the oldest known ancestor; None if there is no snapshot.
    :param is_whole: whether every snapshot that an ancestor was picked from is known.
    :param undone: the snapshots that a rollback has undone.
    """

    snapshots: Sequence[Snapshot]
    oldest: Snapshot | None
    is_whole: bool
    undone: Sequence[Snapshot]


def _lineage(metadata: TableMetadata) -> _Lineage:
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    ancestors: dict[int, Snapshot] = {}
    oldest, is_whole, following = None, True, metadata.current_snapshot_id
    while following is not None and (snapshot := by_id.get(following)) is not None:
        ancestors[following] = oldest = snapshot
        picked = None if snapshot.summary is None else snapshot.summary.get(PICKED_FROM)
        if picked is not None and int(picked) in by_id:
            ancestors.setdefault(int(picked), by_id[int(picked)])
        is_whole = is_whole and (picked is None or int(picked) in by_id)
        following = snapshot.parent_snapshot_id
    first = 0 if oldest is None else _number(oldest)
    undone = [each for n, each in by_id.items() if n not in ancestors and _number(each) > first > 0]
    return _Lineage(snapshots=list(ancestors.values()), oldest=oldest, is_whole=is_whole, undone=undone)


def _number(snapshot: Snapshot) -> int:
    """Return the sequence number of a snapshot; 0 in tables of Iceberg's first version."""
    return snapshot.sequence_number or 0


def summary_of(attempts: Sequence[Attempt]) -> dict[str, str]:
    """Return the summary properties of a snapshot that commits these attempts."""
    named = {a.batch_id: f"{a.fencing_token}:{_short(a.set_id, a.batch_id)}" for a in attempts}
    delivered = base64.b64encode(zlib.compress(_json([describe_batch(a) for a in attempts]).encode())).decode()
    summary = {
        SOURCE: ",".join(sorted({attempt.source for attempt in attempts})),
        OWNER: ",".join(sorted({attempt.owner for attempt in attempts})),
        BATCHES: _json(named),
    }
    return {**summary, DELIVERED: delivered} if len(delivered) <= MAX_DELIVERED_BYTES else summary


def table_history(metadata: TableMetadata, location: str) -> TableHistory:
    """Return the batches that a table's current snapshot and its ancestors committed, according to their summaries.

    :param location: the table, for display.
    """
    commits: list[Commit] = []
    unknown: list[str] = []
    lineage = _lineage(metadata)
    for snapshot in lineage.snapshots:
        summary = None if snapshot.summary is None else snapshot.summary.get(DELIVERED)
        if summary is not None:
            batches = parse_batches(_described(summary), f"snapshot {snapshot.snapshot_id} of table {location}")
            commits.append(Commit(at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC), batches=batches))
        else:
            unknown += _entries_of(snapshot)
    return TableHistory(
        location=location,
        commits=tuple(reversed(commits)),
        is_complete=lineage.is_whole and (lineage.oldest is None or lineage.oldest.sequence_number == 1),
        unknown=tuple(unknown),
    )


@dataclass(frozen=True, kw_only=True)
class RecordedBatches:
    """What the summaries of a table's current snapshot and its ancestors record.

    :param described: the batches, as `describe_batch` made them, from the latest; they are read as they are taken.
    :param unknown: the ids of batches of which only the ids are known.
    :param since: when the oldest known snapshot was made (aware); None if no snapshot has expired.
    :param notes: the changes that others made; sentences.
    """

    described: Iterator[Mapping[str, Any]]
    unknown: Sequence[str]
    since: datetime | None
    notes: Sequence[str]


def recorded_batches(metadata: TableMetadata, maintenance: str) -> RecordedBatches:
    """Return the batches that a table's current snapshot and its ancestors record.

    :param maintenance: the summary property of snapshots that maintenance makes.
    """
    lineage = _lineage(metadata)
    texts: list[str] = []
    unknown: list[str] = []
    notes = []
    for snapshot in lineage.snapshots:
        summary = snapshot.summary
        if summary is not None and (text := summary.get(DELIVERED)) is not None:
            texts.append(text)
        elif own := _entries_of(snapshot):
            unknown += own
        elif summary is None or summary.get(maintenance) is None:
            at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
            operation = "change" if summary is None else summary.operation.value
            notes.append(
                f"snapshot {snapshot.snapshot_id}, a {operation} at {at:%Y-%m-%dT%H:%M:%SZ}, was made by others"
            )
    is_complete = lineage.is_whole and (lineage.oldest is None or _number(lineage.oldest) == 1)
    since = None if is_complete or lineage.oldest is None else lineage.oldest.timestamp_ms
    return RecordedBatches(
        described=(one for text in texts for one in _described(text)),
        unknown=unknown,
        since=None if since is None else datetime.fromtimestamp(since / 1000, UTC),
        notes=notes,
    )


def tombstones_in(metadata: TableMetadata) -> int:
    """Return the number of the tombstones of a table's current snapshot; 0 if there are none.

    After a rollback, the latest summary with a number has the number of that time. The property of the table has the
    latest number, also if others have added snapshots and expired all those before.
    """
    latest = metadata.properties.get(TOMBSTONES)
    if latest is None:
        return 0
    lineage = _lineage(metadata)
    for snapshot in lineage.snapshots:
        if snapshot.summary is not None and (number := snapshot.summary.get(TOMBSTONES)) is not None:
            return int(number)
    return 0 if lineage.oldest is not None and _number(lineage.oldest) == 1 else int(latest)


def known_tombstones(metadata: TableMetadata) -> set[int]:
    """Return the numbers of tombstones that a table and its snapshots have."""
    summaries = [snapshot.summary for snapshot in metadata.snapshots if snapshot.summary is not None]
    return {int(metadata.properties.get(TOMBSTONES, 0)), *(int(each.get(TOMBSTONES) or 0) for each in summaries)}


def _entries_of(snapshot: Snapshot) -> Mapping[str, Entry]:
    text = None if snapshot.summary is None else snapshot.summary.get(BATCHES)
    if text is None:
        return {}
    entries = {}
    for batch_id, said in json.loads(text).items():
        token, _, set_id = said.partition(":")
        entries[batch_id] = Entry(int(token), set_id)
    return entries


def _described(text: str) -> list[Mapping[str, Any]]:
    """Return the batches of a summary's `DELIVERED`."""
    found: list[Mapping[str, Any]] = json.loads(zlib.decompress(base64.b64decode(text)))
    return found


def _short(set_id: str, batch_id: str) -> str:
    """Return a set's id without its prefix, the batch id."""
    return set_id.removeprefix(batch_id)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


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
        self._added_deletes: list[DataFile] = []
        self._removed_deletes: list[DataFile] = []
        self._tombstones: tuple[Tombstones, Added] | None = None
        self._producer: Any = None

    @property
    def paths(self) -> set[str]:
        """The files that the snapshot adds."""
        return {written.name for written in (*self._added, *self._rewritten)}

    def add(self, written: PreparedFile) -> None:
        """Add a prepared file."""
        self._added.append(written)

    def add_rewritten(self, written: PreparedFile) -> None:
        """Add a file that was rewritten for this snapshot alone."""
        self._rewritten.append(written)

    def replace(self, removed: Sequence[DataFile], rewritten: Sequence[PreparedFile]) -> None:
        """Remove files of the table, and add files that hold the rest of their rows."""
        self._removed += removed
        self._rewritten += rewritten

    def replace_deletes(self, removed: Collection[DataFile], written: Sequence[DataFile]) -> None:
        """Remove delete files of the table, and add those that were written for this snapshot alone."""
        self._removed_deletes += removed
        self._added_deletes += written

    def set_tombstones(self, tombstones: Tombstones, added: Added) -> None:
        """Set the tombstones that the table has then, which were written for this snapshot alone."""
        self._tombstones = tombstones, added

    def make(self, tables: CatalogTable) -> None:
        """Write the snapshot's metadata files, which no reader sees yet.

        :raises DeliveryError: if the table cannot accept the columns of the files, or a file is incomplete.
        """
        transaction = self._transaction
        columns: list[pa.Schema] = []
        files = [(written, self._whole_footer(written)) for written in (*self._added, *self._rewritten)]
        for _, footer in files:
            schema = footer.schema.to_arrow_schema().remove_metadata()
            if schema not in columns:
                columns.append(schema)
                tables.evolve(transaction, schema)
        metadata = transaction.table_metadata
        if NAME_MAPPING not in metadata.properties:
            transaction.set_properties({NAME_MAPPING: metadata.schema().name_mapping.model_dump_json()})
        if self._tombstones is not None:
            _, added = self._tombstones
            named = {TOMBSTONES: str(added.number)}
            self._summary |= named
            transaction.set_properties(named)
        with self._new_producer() as producer:
            for file in self._removed:
                producer.delete_data_file(file)
            for written, footer in files:
                producer.append_data_file(data_file(self._table, metadata, written, footer))

    def _new_producer(self) -> Any:
        from airflow_provider_coordination.spark.sinks.iceberg.position_deletes import RowDelta

        transaction, added, removed = self._transaction, self._added_deletes, self._removed_deletes
        if self._removed or added or removed:
            self._producer = RowDelta(transaction, self._table, self._summary, added, removed)
        else:
            self._producer = transaction.update_snapshot(snapshot_properties=self._summary).fast_append()
        return self._producer

    def _whole_footer(self, written: PreparedFile) -> pq.FileMetaData:
        check_size(written.name, written.bytes, self._access)
        return footer_of(written.name, self._access)

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
        try:
            self._remove_metadata()
        except Exception as error:  # of a filesystem, as pyiceberg calls it
            log.warning("metadata files of a refused snapshot remain, which does no harm: %s", error)
        own = (*(written.name for written in self._rewritten), *(file.file_path for file in self._added_deletes))
        for name in own:
            with suppress(OSError):
                delete_file(name, self._access)
        if self._tombstones is not None:
            with suppress(OSError):
                tombstones, added = self._tombstones
                tombstones.discard(added)

    def _remove_metadata(self) -> None:
        """Remove the manifests of this snapshot, and their list."""
        if self._producer is None:
            return
        snapshot, io = self._transaction.table_metadata.snapshot_by_id(self._producer.snapshot_id), self._table.io
        if snapshot is None:
            return
        for manifest in snapshot.manifests(io):
            if manifest.added_snapshot_id == snapshot.snapshot_id:
                io.delete(manifest.manifest_path)
        io.delete(snapshot.manifest_list)
