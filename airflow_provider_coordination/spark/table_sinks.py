"""What sinks on tables share: files that no version of the table names yet, and landed files as rows of a table.

A delivery prepares data files below the table and a manifest for each batch, written last. A commit adds the files of a
whole delivery. A file is removed with the last of its batches, unless a commit may have added it.

Landed files become part of a table without Spark and without a transform: unchanged, or with small files merged. A
landed file stays in its place until its batch is acknowledged. The table gets a second name of the file, or a copy if
the two are on different filesystems.
"""

from __future__ import annotations

import secrets
import threading
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.errors import result_or_raise
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.landed_types import typed_columns
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.column_lineage import unchanged
from airflow_provider_coordination.spark.concurrency import side_by_side
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    Delivery,
    DeliveryError,
    Prepared,
    by_halves,
    each_separately,
)
from airflow_provider_coordination.spark.landed_files import check_all_of_it, landed_schema
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.merging import Merging
from airflow_provider_coordination.spark.outages import translating_outages
from airflow_provider_coordination.spark.parquet_files import MergedFile, read_small, read_table, write_table
from airflow_provider_coordination.spark.refused_rows import RefusedRows
from airflow_provider_coordination.spark.sinks import Rows, Sink, owed
from airflow_provider_coordination.spark.staging import LandedStaging, Staging
from airflow_provider_coordination.spark.storage import calls_at_once, delete_file, delete_folder, join, link_files
from airflow_provider_coordination.spark.writes import MergingSink

T = TypeVar("T")

DATA = "data"
"""The folder below a table for the files that are prepared."""
ERROR = "_coordination_error"
"""The column that holds why the table refuses a row."""
SMALL_FILE_BYTES = 128 * 1024
"""Landed files that are smaller, and hold less user data, are merged: that costs no more than naming each of them."""
MERGED_FILE_BYTES = 128 * 1024 * 1024
"""The approximate size of merged files."""


@dataclass(frozen=True, kw_only=True)
class PreparedFile:
    """A file that no version of the table names yet.

    :param name: its URI; in a table that names its files relative to its folder, that name.
    :param bytes: its size.
    :param rows: the number of its rows.
    :param batches: the number of rows of each batch.
    :param partition: the values of the table's partition columns, as the table's log or catalog encodes them.
    :param stats: its column statistics, as JSON; empty if they are read from the file again.
    """

    name: str
    bytes: int
    rows: int
    batches: Mapping[str, int]
    partition: Sequence[str | None] = ()
    stats: str = ""


class TableSink(Sink, Generic[T]):
    """A table; one commit adds all batches of a delivery.

    :param name: the name of the sink.
    :param where: which records go to the table, as a SQL predicate; None for all.
    :param table: the table, for messages.
    :param settings: how rows replace others.
    """

    accepts_landed_files = True
    separates_batches = False
    refuses_rows = True

    def __init__(self, name: str, where: str | None, table: str, settings: MergingSink) -> None:
        self.name = name
        self.where = where
        self._title = table
        self._merging = Merging.of(settings)
        self._lock = threading.Lock()  # simultaneous commits of one job would only conflict
        self._landed: dict[str, Mapping[str, Any]] | None = None  # prepared data of landed files; see `LandedStaging`
        self._prepared: dict[str, set[str]] = {}  # by file: the sets that it is for
        self._named: set[str] = set()  # those of these files that a commit may have added

    @abstractmethod
    def _root(self) -> str:
        """Return the folder of the table."""

    def _uri(self, name: str) -> str:
        """Return the URI of a prepared file."""
        return name

    @abstractmethod
    def _fit(self, columns: pa.Schema) -> T:
        """Return what the table needs of files with some columns.

        :raises DeliveryError: if the table cannot accept the columns.
        """

    @abstractmethod
    def _write(self, fit: T, rows: Rows, batch_ids: Sequence[str], folder: str) -> list[PreparedFile]:
        """Write rows to files in a folder that the table accepts."""

    @abstractmethod
    def _described(self, fit: T) -> Mapping[str, Any]:
        """Return what a manifest says of the table for which its files are prepared."""

    @abstractmethod
    def _commit(self, attempts: Sequence[Attempt]) -> None:
        """Add the prepared files of batches; see `Sink.commit`."""

    @property
    def _staging(self) -> Staging:
        """The manifests, at the current location of the table."""
        if self._landed is None:
            return Staging(self._root(), self.access)
        return LandedStaging(self._root(), self.access, self._landed)

    @override
    def scratch(self, attempts: Sequence[Attempt]) -> str:
        return self._staging.folder(attempts[0]) + ".work"

    @override
    def prepare(self, attempts: Sequence[Attempt], rows: Rows) -> None:
        if not attempts:
            return
        self._merging.check_columns(rows.schema.names, self._title)
        self.discard(attempts)
        fit = self._fit(rows.schema)
        filled = [attempt.batch_id for attempt in attempts if rows.count(attempt.batch_id)]
        folder = join(self._root(), DATA, secrets.token_hex(8))
        try:
            if self.refused_rows is not None:
                rows = self._without_refused(self.refused_rows, fit, rows, attempts, folder)
                filled = [batch_id for batch_id in filled if rows.count(batch_id)]
            files = self._write(fit, rows, filled, folder) if filled else []
            if self._merging and files:
                self._merging.check_rows(self._keys_of(files), self._title)
            for file in files:
                self._prepared[file.name] = {attempt.set_id for attempt in attempts}
            if foreign := {batch_id for file in files for batch_id in file.batches} - set(filled):
                raise DeliveryError(
                    f"{self._title}: rows of {', '.join(sorted(map(str, foreign))[:3])} were written, which are not "
                    f"batches of this delivery; the transform must leave {BATCH_ID!r} unchanged"
                )
            for attempt in attempts:
                self._seal(attempt, files, rows.count(attempt.batch_id), self._described(fit))
        except BaseException:
            with suppress(OSError):
                self.discard(attempts)
                delete_folder(folder, self.access)
            raise

    def _without_refused(
        self, refused_rows: RefusedRows, fit: T, rows: Rows, attempts: Sequence[Attempt], folder: str
    ) -> Rows:
        """Write rows to a folder without those that the table refuses, which are kept as dead letters."""
        counts = {attempt.batch_id: rows.count(attempt.batch_id) for attempt in attempts}
        filled = [batch_id for batch_id, count in counts.items() if count]
        files = dict(rows.write(filled, folder)) if filled else {}
        wanted = [name for name in dict.fromkeys((*self._guarded(fit), BATCH_ID)) if name in rows.schema.names]
        refused: list[pa.Table] = []
        for number, file in enumerate(list(files)):
            faults = self._faults(fit, read_table(file, wanted, self.access))
            if not faults:
                continue
            whole = read_table(file, access=self.access)
            wrong = pa.array([n in faults for n in range(whole.num_rows)], pa.bool_())
            refused.append(whole.filter(wrong).append_column(ERROR, pa.array(faults.values(), pa.string())))
            # Another file: this one may be a second name of a landed file.
            delete_file(file, self.access)
            del files[file]
            if len(faults) < whole.num_rows:
                rest = join(folder, f"accepted-{number}.parquet")
                files[rest] = write_table(whole.filter(pc.invert(wrong)), rest, self.access)
        by_batch = refused_by_batch(refused)
        for attempt in attempts:
            batch_id = attempt.batch_id
            own = by_batch.get(batch_id, rows.schema.empty_table().append_column(ERROR, pa.array([], pa.string())))
            errors = own.column(ERROR).to_pylist()
            refused_rows.check(self.name, batch_id, counts[batch_id], errors)
            refused_rows.keep(self.name, attempt, own.drop_columns([ERROR]), errors)
        return AcceptedRows(rows, files, {batch_id: own.num_rows for batch_id, own in by_batch.items()})

    def _guarded(self, fit: T) -> list[str]:
        """Return the columns whose values decide whether the table refuses a row."""
        return [*self._merging.on, *self._required(fit), *([self._merging.op] if self._merging.op else [])]

    @abstractmethod
    def _required(self, fit: T) -> list[str]:
        """Return the columns that must have a value in each row."""

    def _faults(self, fit: T, rows: pa.Table) -> dict[int, str]:
        """Return the numbers of the rows that the table refuses, in order, each with the error.

        :param rows: the guarded columns, as far as the rows have them.
        """
        found: dict[int, str] = {}
        deletes, op = self._merging.deletes(rows), self._merging.op
        for name in dict.fromkeys((*self._merging.on, *self._required(fit))):
            if name in rows.column_names:
                is_key, nulls = name in self._merging.on, rows.column(name).is_null()
                faulty = nulls if is_key else pc.and_not(nulls, deletes)  # what only deletes is never in the table
                what = "is merged on" if is_key else "requires"
                found |= _at(faulty, f"{self._title} {what} column {name!r}, which is null")
        if op is not None:
            error = f"{self._title} deletes by column {op!r}, which is not a known operation"
            found |= _at(self._merging.unknown(rows), error)
        return dict(sorted(found.items()))

    def _keys_of(self, files: Sequence[PreparedFile]) -> pa.Table:
        """Return the columns that a merge needs from the rows of files, in file order."""
        read = (read_table(self._uri(file.name), self._merging.columns, self.access) for file in files)
        return pa.concat_tables(read, promote_options="permissive")

    def _seal(self, attempt: Attempt, files: Sequence[PreparedFile], rows: int, table: Mapping[str, Any]) -> None:
        """Write the manifest of an attempt; from here on it can be committed."""
        own = [(file, file.batches[attempt.batch_id]) for file in files if attempt.batch_id in file.batches]
        if (written := sum(number for _, number in own)) != rows:
            raise DeliveryError(
                f"batch {attempt.batch_id}: {written} rows were written for {self._title}, but there are {rows}; the "
                f"transform must leave {BATCH_ID!r} unchanged"
            )
        self._staging.seal(attempt, {**table, "files": [{**vars(file), "batches": n} for file, n in own]})

    @override
    def commit(self, attempts: Sequence[Attempt]) -> None:
        if attempts:
            if self.refused_rows is not None:
                self.refused_rows.note_commit(self.name, attempts)
            with self._lock:
                self._commit(attempts)
            if self.refused_rows is not None:
                self.refused_rows.publish(self.name, attempts, self.committed_under)

    @override
    def discard(self, attempts: Sequence[Attempt]) -> None:
        # Removes a file with the last of its batches, unless a commit may have added it.
        self._staging.discard(attempts)
        if self.refused_rows is not None:
            self.refused_rows.discard(self.name, attempts)
        sets = {attempt.set_id for attempt in attempts}
        with self._lock:
            for name, of in list(self._prepared.items()):
                of -= sets
                if not of:
                    del self._prepared[name]
                    if name not in self._named:
                        delete_file(self._uri(name), self.access)
                    self._named.discard(name)

    @override
    def sweep(self, tokens: Mapping[str, int]) -> None:
        self._staging.sweep(tokens)

    @override
    def landed_delivery(self, *, keep: bool) -> Delivery:
        # Landed files are always kept.
        taker = copy(self)
        taker._landed = {}
        return LandedDelivery(taker, self.access)


class AcceptedRows(Rows):
    """The rows of batches that a table accepts, in files of the table's folder; see `Rows`.

    :param rows: the rows with those that the table refuses.
    :param files: the files that hold the accepted rows, with their sizes in bytes.
    :param refused: the number of refused rows, by batch id.
    """

    def __init__(self, rows: Rows, files: Mapping[str, int], refused: Mapping[str, int]) -> None:
        self.schema = rows.schema
        self._rows = rows
        self._files = files
        self._refused = refused

    @override
    def count(self, batch_id: str) -> int:
        return self._rows.count(batch_id) - self._refused.get(batch_id, 0)

    @override
    def write(self, batch_ids: Collection[str], folder: str) -> Mapping[str, int]:
        return self._files


def _at(faulty: pa.ChunkedArray, error: str) -> dict[int, str]:
    """Return the numbers of the rows that have a fault, each with the error."""
    return dict.fromkeys(pc.indices_nonzero(faulty).to_pylist(), error)


def refused_by_batch(refused: Sequence[pa.Table]) -> dict[str, pa.Table]:
    """Return refused rows by their batch."""
    if not refused:
        return {}
    rows = pa.concat_tables(refused, promote_options="permissive")
    of = rows.column(BATCH_ID)
    return {batch_id: rows.filter(pc.equal(of, batch_id)) for batch_id in of.unique().to_pylist()}


def files_of(manifests: Mapping[str, Mapping[str, Any]]) -> list[PreparedFile]:
    """Return the files of manifests, each one once, with the rows of the manifests' batches alone.

    :param manifests: the content of manifests, by batch id.
    """
    known: dict[str, Mapping[str, Any]] = {}
    batches: dict[str, dict[str, int]] = {}
    for batch_id, manifest in manifests.items():
        for file in manifest["files"]:
            known[file["name"]] = file
            batches.setdefault(file["name"], {})[batch_id] = file["batches"]
    return [PreparedFile(**{**file, "batches": batches[name]}) for name, file in known.items()]


class LandedRows(Rows):
    """The records of some batches, as they were landed; see `Rows`.

    :param attempts: the deliveries of the batches.
    :param schema: the columns of all their files.
    :param access: the credentials for landed files and the table.
    """

    def __init__(self, attempts: Iterable[Attempt], schema: pa.Schema, access: Access = DEFAULT_ACCESS) -> None:
        self.schema = typed_columns(schema)
        self._is_whole = self.schema.equals(schema)
        self._attempts = {attempt.batch_id: attempt for attempt in attempts}
        self._access = access

    @override
    def count(self, batch_id: str) -> int:
        return self._attempts[batch_id].batch.records

    @override
    def write(self, batch_ids: Collection[str], folder: str) -> Mapping[str, int]:
        wanted = [self._attempts[batch_id] for batch_id in batch_ids]
        small = [attempt for attempt in wanted if max(attempt.batch.file_bytes, attempt.batch.bytes) < SMALL_FILE_BYTES]
        if not self._is_whole:  # files with other columns cannot be a table's
            small = wanted
        elif len(small) < 2:
            small = []
        written: dict[str, int] = {}
        for n, group in enumerate(_groups(small)):
            with MergedFile(join(folder, f"merged-{n}.parquet"), self.schema, self._access) as merged:
                files = [attempt.file for attempt in group]
                read = partial(read_small, access=self._access)
                for _, rows in side_by_side(files, read, calls_at_once(folder, self._access)):
                    merged.add(result_or_raise(rows))
            written[merged.uri] = merged.size
        others = {attempt.file: attempt.batch.file_bytes for attempt in wanted if attempt not in small}
        linked = link_files(sorted(others), folder, self._access)
        return written | {file: others[uri] for uri, file in zip(sorted(others), linked, strict=True)}


def _groups(attempts: Iterable[Attempt]) -> Iterator[list[Attempt]]:
    """Yield landed files in groups, one group for each merged file."""
    group: list[Attempt] = []
    size = 0
    for attempt in attempts:
        group.append(attempt)
        size += attempt.batch.file_bytes
        if size >= MERGED_FILE_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


class LandedDelivery(Delivery):
    """Delivers batches to one table as they were landed; see `Delivery`.

    :param sink: the table.
    :param access: the credentials for landed files and the table.
    """

    def __init__(self, sink: Sink, access: Access = DEFAULT_ACCESS) -> None:
        self._sink = sink
        self._access = access

    @property
    @override
    def sinks(self) -> Sequence[str]:
        return (self._sink.name,)

    @override
    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        # Batches whose files have the same columns are prepared together.
        prepared: dict[str, Prepared | Exception] = {attempt.batch_id: Prepared() for attempt in attempts}
        alike: dict[pa.Schema, list[Attempt]] = {}
        wanted = owed(self._sink, attempts)
        at_once = calls_at_once(wanted[0].file, self._access) if wanted else 1
        for attempt, file_schema in each_separately(wanted, self._columns, at_once):
            if isinstance(file_schema, Exception):
                prepared[attempt.batch_id] = file_schema
            else:
                alike.setdefault(file_schema, []).append(attempt)
        for schema, group in alike.items():
            rows = LandedRows(group, schema, self._access)
            columns = {field.name: str(field.type) for field in schema}
            lineage = unchanged(name for name in columns if name != BATCH_ID)
            for done, result in by_halves(group, partial(self._prepare, rows), "preparation"):
                for attempt in done:
                    records = {self._sink.name: attempt.batch.records}
                    taken = Prepared(records=records, columns=columns, lineage=lineage)
                    prepared[attempt.batch_id] = result if isinstance(result, Exception) else taken
        return prepared

    def _prepare(self, rows: Rows, attempts: Sequence[Attempt]) -> None:
        with translating_outages(self._sink.name):
            self._sink.prepare(attempts, rows)

    def _columns(self, attempt: Attempt) -> pa.Schema:
        """Return the columns of a landed file.

        :raises DeliveryError: if the file is missing or incomplete, or some of its records are to be left out.
        """
        check_all_of_it(attempt)
        try:
            with translating_outages(self._sink.name):
                return landed_schema(attempt, [self._sink], self._access).remove_metadata()
        except pa.ArrowInvalid as error:
            raise DeliveryError(
                f"file {attempt.file} is damaged: {error}; restore it, or reset its partition"
            ) from error

    @override
    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        self._sink.commit(attempts)

    @override
    def discard(self, attempts: Sequence[Attempt]) -> None:
        self._sink.discard(attempts)

    @override
    def sweep(self, tokens: Mapping[str, int]) -> None:
        self._sink.sweep(tokens)
