"""Landed files as rows of a table: unchanged, or with small files merged, without Spark and without a transform.

A landed file stays in its place until its batch is acknowledged. The table gets a second name of the file, or a copy if
the two are on different filesystems.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.landed_types import typed_columns
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.concurrency import result_or_raise, side_by_side
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    Delivery,
    DeliveryError,
    Prepared,
    by_halves,
    each_separately,
)
from airflow_provider_coordination.spark.landed_files import check_all_of_it, landed_schema
from airflow_provider_coordination.spark.outages import translating_outages
from airflow_provider_coordination.spark.parquet_files import TableWriter, read_small
from airflow_provider_coordination.spark.sinks import Rows, Sink, owed
from airflow_provider_coordination.spark.storage import calls_at_once, join, link_files

SMALL_FILE_BYTES = 128 * 1024
"""Landed files that are smaller, and hold less user data, are merged: that costs no more than naming each of them."""
MERGED_FILE_BYTES = 128 * 1024 * 1024
"""The approximate size of merged files."""
ROW_GROUP_BYTES = 32 * 1024 * 1024
"""How much of a merged file is in memory at a time."""


class LandedRows:
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

    def count(self, batch_id: str) -> int:
        """See `Rows.count`."""
        return self._attempts[batch_id].batch.records

    def write(self, batch_ids: Collection[str], folder: str) -> Mapping[str, int]:
        """See `Rows.write`."""
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


class MergedFile:
    """A file that contains the rows of small landed files, in their order; see `TableWriter`.

    :param uri: the file.
    :param schema: its columns.
    :param access: the credentials for the file.
    """

    def __init__(self, uri: str, schema: pa.Schema, access: Access = DEFAULT_ACCESS) -> None:
        self.uri = uri
        self._schema = schema
        self._writer = TableWriter(uri, access)
        self._waiting: list[pa.Table] = []
        self._bytes = 0

    @property
    def size(self) -> int:
        """The size of the file in bytes, once it is closed."""
        return self._writer.size

    def __enter__(self) -> MergedFile:
        """Return itself."""
        return self

    def add(self, rows: pa.Table) -> None:
        """Add the rows of a landed file."""
        self._waiting.append(rows.select(self._schema.names).cast(self._schema))
        self._bytes += rows.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        self._writer.write(pa.concat_tables(self._waiting))
        self._waiting, self._bytes = [], 0

    def __exit__(self, kind: object, *error: object) -> None:
        """Close the file; after an error, delete it."""
        if kind is not None or not self._waiting:
            self._writer.__exit__(kind, *error)
            return
        with self._writer:
            self._write()


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

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        """See `Delivery.prepare`: batches whose files have the same columns are prepared together."""
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
            for done, result in by_halves(group, partial(self._prepare, rows), "preparation"):
                for attempt in done:
                    taken = Prepared(records={self._sink.name: attempt.batch.records}, columns=columns)
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
