"""The steps of decoding, in Spark's Python workers: landed records become rows.

A record becomes any number of rows, or one row with the reason why it cannot be decoded. It is never split: a record
with one row that cannot be decoded has no other rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.spark.decoding.cloudwatch import COLUMNS as LOG_COLUMNS
from airflow_provider_coordination.spark.decoding.cloudwatch import log_events
from airflow_provider_coordination.spark.decoding.compression import each_decompressed
from airflow_provider_coordination.spark.decoding.errors import UndecodableError
from airflow_provider_coordination.spark.decoding.formats import DecodedRows, Make, PayloadFormat
from airflow_provider_coordination.spark.layout import BATCH_ID, PAYLOAD
from airflow_provider_coordination.spark.payload_settings import AUTO

NUMBER = "_number"
"""The column with the number of a row in its record, from 0."""
FAILURE = "_coordination_failure"
"""The column with the reason why a record cannot be decoded; null for its rows if it can."""
CHUNK_BYTES = 4 * 2**20
"""How many bytes of payloads are decoded at a time; a record is never split."""

Place = tuple[str, str, int]
"""What identifies a record: its batch, and its position."""


@dataclass
class _Chunk:
    """Payloads that are decoded at the same time.

    :param records: the number of the record of each payload, ascending.
    :param payloads: the payloads.
    :param logs: the values of `LOG_COLUMNS` of each payload, if they are log events.
    :param wrong: why records cannot be decoded, by their number.
    """

    records: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    logs: list[tuple[Any, ...]] = field(default_factory=list)
    wrong: dict[int, str] = field(default_factory=dict)
    size: int = 0

    def add(self, record: int, payload: bytes, log: tuple[Any, ...] | None) -> None:
        self.records.append(record)
        self.payloads.append(payload)
        self.size += len(payload) + 100
        if log is not None:
            self.logs.append(log)


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """Decodes the payloads of records. It travels pickled.

    :param compression: see `Payload`.
    :param max_bytes: see `Payload.max_record_bytes`.
    :param has_logs: whether payloads are envelopes of CloudWatch Logs.
    :param make: makes the format.
    :param columns: the columns of the format.
    :param position: the two columns that identify a record in its batch.
    """

    compression: str | None
    max_bytes: int
    has_logs: bool
    make: Make
    columns: pa.Schema
    position: tuple[str, str]

    @property
    def added(self) -> pa.Schema:
        """The columns that decoding adds."""
        logs = LOG_COLUMNS if self.has_logs else ()
        return pa.schema([pa.field(NUMBER, pa.int64()), *logs, *self.columns, pa.field(FAILURE, pa.string())])

    def schema(self, landed: pa.Schema) -> pa.Schema:
        """Return the columns of decoded records."""
        fields = [pa.field(PAYLOAD, pa.binary()) if each.name == PAYLOAD else each for each in landed]
        return pa.schema([*fields, *self.added])

    def decoded(self, batch: pa.RecordBatch, without: Collection[Place] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the rows of records.

        :param batch: landed records.
        :param without: the records that are left out.
        :raises RegistryUnavailableError: if a registry of schemas gives no answer.
        """
        left_out = self._left_out(batch, without)
        chunk = _Chunk()
        payloads = batch.column(PAYLOAD).cast(pa.binary()).to_pylist()
        records = [record for record in range(len(payloads)) if record not in left_out]
        compression = AUTO if self.has_logs and self.compression is None else self.compression
        plain = each_decompressed((payloads[record] for record in records), compression, self.max_bytes)
        for record, payload in zip(records, plain, strict=True):
            try:
                self._add(chunk, record, payload)
            except UndecodableError as error:
                chunk.wrong[record] = str(error)
            if chunk.size >= CHUNK_BYTES:
                yield self._rows(batch, chunk)
                chunk = _Chunk()
        if chunk.records or chunk.wrong:
            yield self._rows(batch, chunk)

    def _left_out(self, batch: pa.RecordBatch, without: Collection[Place]) -> Collection[int]:
        if not without:
            return ()
        places = zip(*(batch.column(name).to_pylist() for name in (BATCH_ID, *self.position)), strict=True)
        return {record for record, place in enumerate(places) if place in without}

    def _add(self, chunk: _Chunk, record: int, payload: bytes | UndecodableError) -> None:
        if isinstance(payload, UndecodableError):
            raise payload
        if not self.has_logs:
            chunk.add(record, payload, None)
            return
        for message, log in log_events(payload):
            chunk.add(record, message, log)

    @cached_property
    def _format(self) -> PayloadFormat:
        return self.make()

    def _rows(self, batch: pa.RecordBatch, chunk: _Chunk) -> pa.RecordBatch:
        rows = self._format.rows(chunk.payloads)
        for number, reason in rows.wrong.items():
            chunk.wrong.setdefault(chunk.records[number], reason)
        of = range(len(chunk.payloads)) if rows.of is None else rows.of
        records = [chunk.records[number] for number in of]
        kept = [row for row, record in enumerate(records) if record not in chunk.wrong] if chunk.wrong else None
        added = self._added_columns(chunk, rows, of, records, kept)
        if kept is not None:
            records = [records[row] for row in kept] + list(chunk.wrong)
        taken = None if records == list(range(batch.num_rows)) else pa.array(records, pa.int64())
        columns = [
            added[PAYLOAD] if name == PAYLOAD else column if taken is None else column.take(taken)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(
            [*columns, *(added[name] for name in self.added.names)], schema=self.schema(batch.schema)
        )

    def _added_columns(
        self, chunk: _Chunk, rows: DecodedRows, of: Sequence[int], records: Sequence[int], kept: Sequence[int] | None
    ) -> dict[str, pa.Array]:
        """Return the columns that decoding makes: of the rows that are kept, and then of records that are wrong."""
        made: dict[str, pa.Array] = {
            NUMBER: pa.array(_numbers(records), pa.int64()),
            PAYLOAD: pa.array(rows.data, pa.binary()),
            **dict(zip(self.columns.names, rows.columns, strict=True)),
        }
        for index, column in enumerate(LOG_COLUMNS if self.has_logs else ()):
            made[column.name] = pa.array([chunk.logs[number][index] for number in of], column.type)
        count = len(records)
        if kept is not None:
            taken, count = pa.array(kept, pa.int64()), len(kept)
            made = {
                name: pa.concat_arrays([pc.take(column, taken), pa.nulls(len(chunk.wrong), column.type)])
                for name, column in made.items()
            }
        made[FAILURE] = pa.array([None] * count + [*chunk.wrong.values()], pa.string())
        return made


def _numbers(records: Sequence[int]) -> list[int]:
    """Return the number of each row in its record; the rows of a record follow each other."""
    numbers, last, number = [], -1, 0
    for record in records:
        number = number + 1 if record == last else 0
        numbers.append(number)
        last = record
    return numbers
