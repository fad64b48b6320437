"""An Iceberg table that takes the batches of a delivery in one snapshot, each batch once.

What is prepared are data files below the table's location, which no snapshot names, and a manifest for each batch,
written last, which says how many rows of the batch are in which file. A commit looks at the table, reads the manifests,
and adds the files on the condition that the table's branch is still at the snapshot that was looked at.

A next owner takes the manifests of a former one, then looks, then commits. So a former owner that goes on commits
before that look, and its batches are in; or it meets a snapshot that it did not look at, looks again, and finds its
batches in or its manifests gone.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivered_batches import TableHistory
from airflow_provider_coordination.spark.delivery import Attempt, Delivery, DeliveryError
from airflow_provider_coordination.spark.landed_rows import DeliverLanded
from airflow_provider_coordination.spark.maintenance import Maintained, Maintenance
from airflow_provider_coordination.spark.merging import Merging
from airflow_provider_coordination.spark.settings import SinkSettings
from airflow_provider_coordination.spark.sinks import Rows
from airflow_provider_coordination.spark.sinks.iceberg import data_files
from airflow_provider_coordination.spark.sinks.iceberg.addition import Addition
from airflow_provider_coordination.spark.sinks.iceberg.catalog import Tables, settings_of
from airflow_provider_coordination.spark.sinks.iceberg.data_files import Written
from airflow_provider_coordination.spark.sinks.iceberg.errors import is_gone
from airflow_provider_coordination.spark.sinks.iceberg.history import (
    Entry,
    Histories,
    History,
    delivered_by,
    summary_of,
)
from airflow_provider_coordination.spark.sinks.iceberg.maintenance import maintain
from airflow_provider_coordination.spark.sinks.iceberg.settings import IcebergSettings
from airflow_provider_coordination.spark.staging import LandedStaging, Staging
from airflow_provider_coordination.spark.storage import (
    check_writable,
    delete_file,
    delete_folder,
    files_below,
    join,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

DATA = "data"
MAX_CONFLICTS = 100
"""How often a commit is tried while others commit: each time one of them got through."""
CONFLICT_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Look:
    """What one look at a table showed.

    :param table: the table as it was; None if there is none.
    :param history: what its snapshots name.
    :param unnamed: batches that it has rows of, though no snapshot names them any more.
    """

    table: Table | None
    history: History
    unnamed: Collection[str] = ()

    def has(self, batch_id: str) -> bool:
        """Return whether a batch is in."""
        return batch_id in self.history.entries or batch_id in self.unnamed

    def owes(self, attempt: Attempt) -> bool:
        """Return whether the table has to take what an attempt brings.

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
                f"batch {attempt.batch_id} was delivered under the fencing token {entry.fencing_token}, and this is "
                f"{attempt.fencing_token}: another owner has the partition"
            )
        return True


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What of a file an attempt prepared.

    :param attempt: which one, as the table's history would name it.
    :param rows: how many of the file's rows are its batch's.
    """

    attempt: Entry
    rows: int


class IcebergSink:
    """An Iceberg table; a `Sink`.

    :param name: its name.
    :param location: the table, for people.
    :param settings: the table and its catalog.
    :param where: which records go there, as a SQL predicate; None for all.
    :param aws: how the table's files are reached, where they are on S3; None for the AWS SDK's default chain.
    """

    def __init__(
        self,
        *,
        name: str,
        location: str,
        settings: IcebergSettings,
        where: str | None = None,
        aws: AwsSettings | None = None,
    ) -> None:
        self.name = name
        self.location = location
        self.where = where
        self._aws = aws
        self._tables = Tables(settings, f"IcebergTable {name!r}", location)
        self._merging = Merging(on=settings.merge_on, order_by=settings.order_by)
        self._histories = Histories()
        self._lock = threading.Lock()  # one commit at a time: two of one job would only get in each other's way
        self._since: int | None = None
        self._place: str | None = None
        self._landed: dict[str, Mapping[str, Any]] | None = (
            None  # what is prepared of landed files; see `LandedStaging`
        )
        self._prepared: dict[str, set[str]] = {}  # files, and the sets that they are for
        self._named: set[str] = set()  # of these, a commit may be in
        self._abandoned: dict[str, tuple[int, dict[str, _Part]]] = {}

    @classmethod
    def of(cls, settings: SinkSettings) -> IcebergSink:
        """Return the sink of settings.

        :raises ConfigurationError: naming the field.
        """
        table = settings_of(settings.settings, f"IcebergTable {settings.name!r}")
        return cls(
            name=settings.name, location=settings.location, settings=table, where=settings.where, aws=settings.aws
        )

    def check(self) -> None:
        """See `Sink.check`."""
        table = self._tables.check()
        check_writable(f"the location of IcebergTable {self.name!r}", self._root(table), self._access)
        self._look(())

    # Looking

    def taken(self, attempts: Sequence[Attempt]) -> set[str]:
        """See `Sink.taken`."""
        look = self._look(attempts)
        return {attempt.batch_id for attempt in attempts if look.has(attempt.batch_id)}

    def history(self) -> TableHistory:
        """See `KeepsHistory.history`."""
        table = self._tables.find()
        if table is None:
            raise ConfigurationError(f"field 'table' of IcebergTable {self.name!r}: {self._tables} does not exist")
        return delivered_by(table.metadata, str(self._tables))

    def maintain(self, wanted: Maintenance) -> Maintained:
        """See `Maintains.maintain`."""
        table = self._tables.find()
        if table is None:
            raise ConfigurationError(f"field 'table' of IcebergTable {self.name!r}: {self._tables} does not exist")
        return maintain(self._tables, Staging(self._root(table), self._access), self._access, wanted)

    def _look(self, attempts: Sequence[Attempt]) -> Look:
        """Look at the table as it is now, for the batches of some attempts."""
        table = self._tables.find()
        if table is None:
            self._since = 0 if self._since is None else self._since
            return Look(None, History({}))
        self._place = table.location()
        history = self._histories.of(table.metadata)
        if self._since is None:
            snapshot = table.current_snapshot()
            self._since = 0 if snapshot is None else snapshot.sequence_number or 0
        doubtful = {a.batch_id for a in attempts if a.batch_id not in history.entries and not self._knows(a, history)}
        unnamed = self._tables.patiently(lambda: data_files.batches_in(table, doubtful))
        return Look(table, history, unnamed)

    def _knows(self, attempt: Attempt, history: History) -> bool:
        """Return whether a history that does not name a batch shows that it is not in.

        What this job landed, under the lease that it has, only this job can have delivered: since it first looked.
        """
        is_own = attempt.batch.fencing_token == attempt.fencing_token
        return history.is_whole_since(self._since or 0 if is_own else 0)

    def _root(self, table: Table | None = None) -> str:
        if table is not None:
            self._place = table.location()
        if self._place is None:
            found = self._tables.find()
            self._place = self._tables.planned_location if found is None else found.location()
        return self._place.rstrip("/")

    @property
    def _access(self) -> Access:
        return DEFAULT_ACCESS if self._aws is None else Access(((self._root(), self._aws),))

    # Preparing

    @property
    def access(self) -> Access:
        """See `Sink.access`."""
        return self._access

    @property
    def is_apart(self) -> bool:
        """See `Sink.is_apart`: a file may hold rows of many batches."""
        return False

    def arrange(self, rows: DataFrame) -> DataFrame:
        """See `Sink.arrange`: Spark makes partitions of an even size, rows of one partition of the table together."""
        whole = [field.column for field in self._tables.partition_fields if field.transform == "identity"]
        return rows.hint("rebalance", *(column for column in whole if column in rows.columns))

    def scratch(self, attempts: Sequence[Attempt]) -> str:
        """See `Sink.scratch`."""
        return self._staging.folder(attempts[0]) + ".work"

    @property
    def _staging(self) -> Staging:
        """Where the table is now, manifests are."""
        if self._landed is None:
            return Staging(self._root(), self._access)
        return LandedStaging(self._root(), self._access, self._landed)

    def prepare(self, attempts: Sequence[Attempt], rows: Rows) -> None:
        """See `Sink.prepare`."""
        if not attempts:
            return
        self._merging.check_columns(rows.schema.names, str(self._tables))
        self.discard(attempts)
        table = self._tables.find_or_make(rows.schema)
        self._root(table)
        self._tables.evolve(
            table.transaction(), rows.schema
        )  # what it cannot become, it says before anything is written
        folder = join(self._root(), DATA, secrets.token_hex(8))
        try:
            wanted = [attempt.batch_id for attempt in attempts if rows.count(attempt.batch_id)]
            files = self._written(table, wanted, rows, folder) if wanted else []
            for written in files:
                self._prepared[written.path] = {attempt.set_id for attempt in attempts}
            for attempt in attempts:
                self._seal(table, attempt, files, rows.count(attempt.batch_id))
        except BaseException:
            with suppress(OSError):
                self.discard(attempts)
                delete_folder(folder, self._access)
            raise

    def _written(self, table: Table, batch_ids: Sequence[str], rows: Rows, folder: str) -> list[Written]:
        written = list(rows.write(batch_ids, folder))
        for file in set(files_below(folder, self._access)).difference(written):  # of tasks that failed
            delete_file(file, self._access)
        placed = data_files.place(table, written, folder, self._access)
        if self._merging and placed:
            self._merging.check_rows(data_files.keys_of(placed, self._merging, self._access), str(self._tables))
        return placed

    def _seal(self, table: Table, attempt: Attempt, files: Sequence[Written], rows: int) -> None:
        """Write what an attempt has prepared; from here on it can be committed."""
        own = [written for written in files if attempt.batch_id in written.batches]
        found = sum(written.batches[attempt.batch_id] for written in own)
        if found != rows:
            raise DeliveryError(f"batch {attempt.batch_id}: {found} rows were written, and it has {rows}")
        named = [{**vars(written), "batches": written.batches[attempt.batch_id]} for written in own]
        self._staging.seal(attempt, {"spec": table.spec().spec_id, "files": named})

    # Committing

    def commit(self, attempts: Sequence[Attempt]) -> None:
        """See `Sink.commit`: in one snapshot."""
        if not attempts:
            return
        with self._lock:
            sent: list[Addition] = []
            began = time.monotonic()
            for _ in range(MAX_CONFLICTS):
                look = self._look(attempts)
                self._settle(sent, look)
                left = [attempt for attempt in attempts if look.owes(attempt)]
                if not left:
                    self._remove_abandoned(look)
                    return
                try:
                    self._add(look, left, sent)
                except CoordinationError:
                    raise
                except Exception as error:
                    self._wait_after(error, began)
            raise DeliveryError(f"{self._tables} changed {MAX_CONFLICTS} times while it was committed to")

    def _wait_after(self, error: Exception, began: float) -> None:
        """Wait before the table is looked at again, after a commit that was refused or whose answer was lost.

        :raises SinkAwayError: if the catalog does not answer for long.
        """
        from pyiceberg.exceptions import CommitFailedException

        if isinstance(error, CommitFailedException) or is_gone(error):
            log.info("%s changed while it was committed to; it is looked at again: %s", self._tables, error)
            time.sleep(random.uniform(0, CONFLICT_PAUSE_SECONDS))
        else:
            self._tables.wait_after(error, began)

    def _add(self, look: Look, attempts: Sequence[Attempt], sent: list[Addition]) -> None:
        """Add what attempts prepared, on the condition that the table is still as it was looked at.

        :param sent: what was sent to the catalog, whatever becomes of it.
        """
        table = look.table
        if table is None:
            raise DeliveryError(f"{self._tables} is gone; the batches are delivered again")
        folder = join(self._root(table), DATA, secrets.token_hex(8))
        staging = self._staging
        manifests = {attempt.batch_id: staging.sealed(attempt) for attempt in attempts}
        addition = Addition(table, summary_of(attempts), self._access)
        try:
            keys = self._add_files(addition, table, manifests, folder)
            replaced = [attempt.batch_id for attempt in attempts if attempt.batch.redeliver]
            gone, rest = data_files.without(table, replaced, folder, self._access, self._merging, keys)
            addition.replace(gone, rest)
            addition.make(self._tables)
        except BaseException:
            with suppress(OSError):
                delete_folder(folder, self._access)
            raise
        sent.append(addition)
        self._named |= addition.paths
        addition.send()

    def _add_files(
        self, addition: Addition, table: Table, manifests: Mapping[str, Mapping[str, Any]], folder: str
    ) -> pa.Table | None:
        """Add the files that manifests name; those rows of them that are wanted, where others hold more.

        :param manifests: by batch id.
        :returns: the keys that are merged; None where rows are added.
        """
        for batch_id, manifest in manifests.items():
            if manifest["spec"] != table.spec().spec_id:
                raise DeliveryError(
                    f"batch {batch_id}: somebody changed the partitioning of {self._tables} after it was prepared; it "
                    "is delivered again"
                )
        files = [Written(**{**known, "batches": rows}) for known, rows in _files_of(manifests).values()]
        if self._merging and files:
            return self._add_merged(addition, table, files, list(manifests), folder)
        for written in files:
            if sum(written.batches.values()) == written.rows:
                addition.add(written)
            else:
                addition.add_made(data_files.only(table, written, written.batches, folder, self._access))
        return None

    def _add_merged(
        self, addition: Addition, table: Table, files: Sequence[Written], batch_ids: Sequence[str], folder: str
    ) -> pa.Table:
        """Add of each key the row that stays; return the keys."""
        keys = data_files.keys_of(files, self._merging, self._access)
        kept, first = self._merging.kept(keys, batch_ids), 0
        for written in files:
            wanted = data_files.places_from(kept, first, written.rows)
            first += written.rows
            if len(wanted) == written.rows:
                addition.add(written)
            else:
                addition.add_made(data_files.some(table, written, wanted, folder, self._access))
        return keys.take(kept).select(list(self._merging.on))

    def _settle(self, sent: list[Addition], look: Look) -> None:
        """Remove what was made for commits that are known to have failed."""
        for addition in list(sent):
            if look.table is not None and addition.failed(look.table):
                addition.remove()
                sent.remove(addition)
                self._named -= addition.paths.difference(*(other.paths for other in sent))

    # Landed files as they are

    def check_landing(self, landing_path: str) -> None:
        """See `TakesLanded.check_landing`: they may be on any filesystem."""

    def taking_landed(self, *, keep: bool) -> Delivery:
        """See `TakesLanded.taking_landed`: landed files are kept in any case."""
        taker = copy(self)
        taker._landed = {}
        return DeliverLanded(taker, self._access)

    def restore_landed(self, attempt: Attempt) -> bool:
        """See `TakesLanded.restore_landed`: none is taken away."""
        return False

    # Leftovers

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """See `Sink.discard`: files go with the last batch that has rows in them, unless a commit may have them."""
        self._staging.discard(attempts)
        sets = {attempt.set_id for attempt in attempts}
        with self._lock:
            for path, of in list(self._prepared.items()):
                of -= sets
                if not of:
                    del self._prepared[path]
                    if path not in self._named:
                        delete_file(path, self._access)
                    self._named.discard(path)

    def sweep(self, tokens: Mapping[str, int]) -> None:
        """See `Sink.sweep`: manifests go; files go once their batches are in without them."""
        for manifest in self._staging.sweep(tokens):
            with suppress(KeyError, TypeError):  # one that is not whole names nothing
                self._abandon(manifest)

    def _abandon(self, manifest: Mapping[str, Any]) -> None:
        """Note the files that a manifest of a former owner names."""
        attempt = Entry.of(manifest)
        for written in manifest["content"]["files"]:
            _, parts = self._abandoned.setdefault(written["path"], (written["rows"], {}))
            parts[manifest["batch"]] = _Part(attempt=attempt, rows=written["batches"])

    def _remove_abandoned(self, look: Look) -> None:
        """Remove the files of former owners all of whose batches are in by other attempts: no commit can name them."""
        entries = look.history.entries
        for path, (rows, parts) in list(self._abandoned.items()):
            is_whole = sum(part.rows for part in parts.values()) == rows
            if is_whole and all(b in entries and entries[b] != part.attempt for b, part in parts.items()):
                with suppress(OSError):
                    delete_file(path, self._access)
                del self._abandoned[path]


def _files_of(manifests: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[dict[str, Any], dict[str, int]]]:
    """Return what manifests say of each file, and how many of its rows are of each of their batches, by path."""
    found: dict[str, tuple[dict[str, Any], dict[str, int]]] = {}
    for batch_id, manifest in manifests.items():
        for written in manifest["files"]:
            _, rows = found.setdefault(written["path"], (written, {}))
            rows[batch_id] = written["batches"]
    return found
