"""Landed files as the rows of a table: each as it is, or small ones merged, without Spark and without a transform.

A landed file stays where it is until its batch is acknowledged. The table gets a second name of it, or a copy where the
two are on different filesystems.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError, Prepared, by_halves, one_by_one
from airflow_provider_coordination.spark.landed_files import check_all_of_it, ensure_landed
from airflow_provider_coordination.spark.outages import calling
from airflow_provider_coordination.spark.sinks import Rows, Sink, owed
from airflow_provider_coordination.spark.storage import TableWriter, join, link_files, read_small, schema_of

SMALL_FILE_BYTES = 128 * 1024
"""Landed files that are smaller, and hold less user data, are merged: that costs no more than to name each of them."""
MERGED_FILE_BYTES = 128 * 1024 * 1024
"""How large a file becomes that small ones are merged to, about."""
ROW_GROUP_BYTES = 32 * 1024 * 1024
"""How much of it is in memory at a time."""


class LandedRows:
    """The records of some batches, as they were landed; see `Rows`.

    :param attempts: the deliveries of the batches.
    :param schema: the columns of all their files.
    :param access: how landed files, and the table, are reached.
    """

    def __init__(self, attempts: Iterable[Attempt], schema: pa.Schema, access: Access = DEFAULT_ACCESS) -> None:
        self.schema = schema
        self._attempts = {attempt.batch_id: attempt for attempt in attempts}
        self._access = access

    def count(self, batch_id: str) -> int:
        """See `Rows.count`."""
        return self._attempts[batch_id].batch.records

    def write(self, batch_ids: Collection[str], folder: str) -> Sequence[str]:
        """See `Rows.write`."""
        wanted = [self._attempts[batch_id] for batch_id in batch_ids]
        small = [attempt for attempt in wanted if max(attempt.batch.file_bytes, attempt.batch.bytes) < SMALL_FILE_BYTES]
        if len(small) < 2:
            small = []
        merged = [join(folder, f"merged-{n}.parquet") for n, _ in enumerate(_groups(small))]
        for group, target in zip(_groups(small), merged, strict=True):
            merge([attempt.file for attempt in group], self.schema, target, self._access)
        others = {attempt.file for attempt in wanted} - {attempt.file for attempt in small}
        return [*merged, *link_files(sorted(others), folder, self._access)]


def merge(files: Iterable[str], schema: pa.Schema, target: str, access: Access = DEFAULT_ACCESS) -> list[int]:
    """Write what small landed files hold to one file, in their order; return how many rows each has.

    :param schema: their columns, as the file has them.
    """
    counts: list[int] = []
    with TableWriter(target, access) as writer:
        waiting: list[pa.Table] = []
        size = 0
        for file in files:
            rows = read_small(file, access).cast(schema)
            counts.append(rows.num_rows)
            waiting.append(rows)
            size += rows.nbytes
            if size >= ROW_GROUP_BYTES:
                writer.write(pa.concat_tables(waiting))
                waiting, size = [], 0
        if waiting:
            writer.write(pa.concat_tables(waiting))
    return counts


def _groups(attempts: Iterable[Attempt]) -> Iterator[list[Attempt]]:
    """Yield landed files, as many at a time as one file is made of."""
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


class DeliverLanded:
    """Delivers batches to one table as they were landed; see `Delivery`.

    :param sink: the table.
    :param access: how landed files, and the table, are reached.
    """

    def __init__(self, sink: Sink, access: Access = DEFAULT_ACCESS) -> None:
        self._sink = sink
        self._access = access

    @property
    def sinks(self) -> Sequence[str]:
        """See `Delivery.sinks`."""
        return (self._sink.name,)

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        """See `Delivery.prepare`: batches whose files have the same columns are prepared together."""
        prepared: dict[str, Prepared | Exception] = {attempt.batch_id: Prepared() for attempt in attempts}
        alike: dict[pa.Schema, list[Attempt]] = {}
        for attempt, found in one_by_one(owed(self._sink, attempts), self._columns):
            if isinstance(found, Exception):
                prepared[attempt.batch_id] = found
            else:
                alike.setdefault(found, []).append(attempt)
        for schema, group in alike.items():
            rows = LandedRows(group, schema, self._access)
            columns = {field.name: str(field.type) for field in schema}
            for done, result in by_halves(group, partial(self._prepare, rows), "preparation"):
                for attempt in done:
                    taken = Prepared(records={self._sink.name: attempt.batch.records}, columns=columns)
                    prepared[attempt.batch_id] = result if isinstance(result, Exception) else taken
        return prepared

    def _prepare(self, rows: Rows, attempts: Sequence[Attempt]) -> None:
        with calling(self._sink.name):
            self._sink.prepare(attempts, rows)

    def _columns(self, attempt: Attempt) -> pa.Schema:
        """Return the columns of a landed file.

        :raises DeliveryError: if it is not there, whole, or not all of it is to be delivered.
        """
        check_all_of_it(attempt)
        try:
            with calling(self._sink.name):
                ensure_landed(attempt, [self._sink], self._access)
                return schema_of(attempt.file, self._access).remove_metadata()
        except pa.ArrowInvalid as error:
            raise DeliveryError(
                f"file {attempt.file} is damaged: {error}; restore it, or reset its partition"
            ) from error

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        """See `Delivery.commit`."""
        self._sink.commit(attempts)

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """See `Delivery.discard`."""
        self._sink.discard(attempts)

    def sweep(self, folder: str, fencing_token: int) -> None:
        """See `Delivery.sweep`."""
        self._sink.sweep(folder, fencing_token)
