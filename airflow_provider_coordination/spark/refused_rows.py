"""Rows that a sink refuses: they become dead letters, and the rest of their batch is delivered.

A sink keeps the refused rows of a batch in a file that readers skip, named by the fencing token of its lease, before it
commits the rest. What the sink records of that commit decides whose file counts: of several owners of a partition, one
commits the batch. Only that owner's file is published, by whoever delivers the batch last. So a row is in the sink or
in the dead letters, whatever each owner refuses, and wherever one of them stops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.bad_records import (
    BadRecords,
    Fails,
    as_json,
    fails_everywhere,
    samples,
    with_letter_columns,
)
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError, Stage
from airflow_provider_coordination.spark.files import Claim
from airflow_provider_coordination.spark.layout import BATCH_ID, RecordLayout
from airflow_provider_coordination.spark.parquet_files import read_table, write_table
from airflow_provider_coordination.spark.storage import (
    delete_file,
    delete_files,
    exists,
    file_size,
    files_below,
    join,
    publish,
    remove_if_empty,
)

log = logging.getLogger(__name__)

FOLDER = "_refused"
"""The folder below the dead letters for rows that wait for the commit of the rest of their batch."""
MANY_ROWS = 20
"""In a batch with more rows, some are tried alone first, to see whether every row is refused."""


class RefusedRows:
    """The rows that the sinks of one job refuse. Safe to use from several threads.

    :param path: the folder of the dead letters.
    :param layout: the columns of the landed records.
    :param source: the source's name.
    :param max_share: the share of a batch's rows that a sink may refuse.
    :param bad_records: the job's budget, count and samples of bad records.
    :param clock: the clock for the times in dead letters.
    :param access: the credentials for the dead letters and the landed files.
    """

    def __init__(
        self,
        path: str,
        *,
        layout: RecordLayout,
        source: str,
        max_share: float,
        bad_records: BadRecords,
        clock: Clock | None = None,
        access: Access = DEFAULT_ACCESS,
    ) -> None:
        self._path = path
        self._layout = layout
        self._source = source
        self._max_share = max_share
        self._bad_records = bad_records
        self._clock = clock or SystemClock()
        self._access = access
        self._kept: set[tuple[str, str]] = set()  # sink and batch
        self._maybe_committed: set[tuple[str, str]] = set()  # those of them that the sink may have by this job

    def limit(self, rows: int) -> int:
        """Return how many rows of a batch a sink may refuse: at least one.

        :param rows: the number of the batch's rows.
        """
        return max(1, int(rows * self._max_share))

    def check(self, sink: str, batch_id: str, rows: int, errors: Sequence[str]) -> None:
        """Check that a sink does not refuse too many rows of a batch.

        :param rows: the number of the batch's rows.
        :param errors: the errors of the refused rows.
        :raises DeliveryError: with the first error and the remedy.
        """
        if len(errors) > self.limit(rows):
            raise DeliveryError(
                f"batch {batch_id}: sink {sink!r} refuses {len(errors)} or more of {rows} rows, which is more than "
                f"'max_refused_share' = {self._max_share} allows; the batch waits. The first error: {errors[0]}. Fix "
                "the table or the transform, or raise the share"
            )

    def keep(self, sink: str, attempt: Attempt, rows: pa.Table, errors: Sequence[str]) -> None:
        """Keep the refused rows of a batch before the sink commits the rest; they replace what this job kept of it.

        :param rows: the refused rows; none if the sink takes all rows of the batch.
        :param errors: the error of each row.
        :raises DeliveryError: if the job then has more bad records than it accepts.
        """
        is_new = (sink, attempt.batch_id) not in self._kept
        if not rows.num_rows and is_new and not attempt.batch.redeliver:
            return
        letters = self._letters(sink, attempt, rows, errors)
        found = samples(self._layout, letters, self._bad_records.saved, has_payloads=self._bad_records.has_payloads)
        self._bad_records.note_refused(attempt.batch_id, sink, rows.num_rows, found)
        if rows.num_rows:
            log.warning(
                "batch %s: sink %s refuses %d rows; they go to the dead-letter sink; the first error: %s",
                attempt.batch_id, sink, rows.num_rows, errors[0],
            )  # fmt: skip
        write_table(letters, self._file(sink, attempt.batch_id, attempt.fencing_token), self._access)
        self._kept.add((sink, attempt.batch_id))

    def note_commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        """Note that a sink commits batches next: from now on, their refused rows may be needed."""
        self._maybe_committed |= self._kept & {(sink, attempt.batch_id) for attempt in attempts}

    def discard(self, sink: str, attempts: Sequence[Attempt]) -> None:
        """Remove the refused rows of batches that this job has prepared and never commits."""
        for attempt in attempts:
            which = sink, attempt.batch_id
            if which in self._kept - self._maybe_committed:
                delete_file(self._file(*which, attempt.fencing_token), self._access)
                self._kept.discard(which)
                self._remove_empty_folders(*which)

    def publish(
        self, sink: str, attempts: Sequence[Attempt], committed_under: Callable[[Sequence[Attempt]], Mapping[str, int]]
    ) -> None:
        """Publish the refused rows of batches that a sink has, and remove the files of its other owners.

        A batch that was delivered again replaces its refused rows, even if it has none now.

        :param committed_under: see `Sink.committed_under`.
        """
        # Also what this job kept: where a transaction was repeated, a later owner may have committed the batch.
        maybe = [
            each
            for each in attempts
            if each.has_previous_owners or each.batch.redeliver or (sink, each.batch_id) in self._kept
        ]
        tokens = dict(committed_under(maybe)) if maybe else {}
        for attempt in maybe:
            self._publish(sink, attempt, tokens.get(attempt.batch_id))
        for attempt in attempts:
            which = sink, attempt.batch_id
            self._kept.discard(which)
            self._maybe_committed.discard(which)

    def _publish(self, sink: str, attempt: Attempt, token: int | None) -> None:
        """Publish the rows that one owner of a batch kept.

        :param token: the fencing token of the owner that committed the batch; None if it is not known.
        """
        folder = self._folder(sink, attempt.batch_id)
        kept = {file: int(file.rpartition("/")[2].partition(".")[0]) for file in files_below(folder, self._access)}
        if token is None and kept:
            log.warning(
                "batch %s: under which lease sink %s took it is not known; its refused rows stay in %s",
                attempt.batch_id, sink, folder,
            )  # fmt: skip
            return
        file, target = self._file(sink, attempt.batch_id, token or 0), self._published(sink, attempt.batch_id)
        # First those of others, which then cannot be published after this one. A later owner's file stays.
        delete_files([each for each, of in kept.items() if of != token and of <= attempt.fencing_token], self._access)
        if file in kept:
            is_empty = read_table(file, [BATCH_ID], self._access).num_rows == 0
            if not is_empty or exists(target, self._access):
                claim = Claim(fencing_token=token or 0, set_id=attempt.set_id, replaces=True)
                publish(file, target, size=file_size(file, self._access), claim=claim, access=self._access)
            delete_file(file, self._access)
        self._remove_empty_folders(sink, attempt.batch_id)

    def _remove_empty_folders(self, sink: str, batch_id: str) -> None:
        folder = self._folder(sink, batch_id)
        for each in (folder, folder.rpartition("/")[0]):
            remove_if_empty(each, self._access)

    def _folder(self, sink: str, batch_id: str) -> str:
        return join(self._path, FOLDER, batch_id, sink)

    def _file(self, sink: str, batch_id: str, token: int) -> str:
        return join(self._folder(sink, batch_id), f"{token}.parquet")

    def _published(self, sink: str, batch_id: str) -> str:
        return join(self._path, f"{batch_id}.{sink}.parquet")

    def _letters(self, sink: str, attempt: Attempt, rows: pa.Table, errors: Sequence[str]) -> pa.Table:
        """Return refused rows as dead letters, with the landed records that they were made of, if they name those."""
        layout = self._layout
        schema = layout.dead_letter
        records: Mapping[str, pa.ChunkedArray] = {}
        if rows.num_rows and set(layout.position) <= set(rows.column_names):
            records = self._landed(attempt, rows)
        own: dict[str, Any] = {
            "error": pa.array(errors, pa.string()),
            "source": self._source,
            "stage": str(Stage.SINK),
            BATCH_ID: attempt.batch_id,
            "failed_at": self._clock.now(),
            "sink": sink,
            "row": pa.array(map(as_json, rows.drop_columns([BATCH_ID]).to_pylist()), pa.string()),
        }
        columns = []
        for field in schema:
            value = own.get(field.name, records.get(field.name))
            if not isinstance(value, pa.Array | pa.ChunkedArray):
                value = pa.repeat(pa.scalar(value, field.type), rows.num_rows)
            columns.append(value.cast(field.type))
        return pa.table(columns, schema)

    def _landed(self, attempt: Attempt, rows: pa.Table) -> Mapping[str, pa.ChunkedArray]:
        """Return the columns of dead letters for the landed records that rows were made of."""
        layout = self._layout
        landed = read_table(attempt.file, access=self._access)
        positions, known = (each.select(layout.position).cast(_positions(layout)) for each in (rows, landed))
        wanted = positions.column(0).combine_chunks().unique()
        at = pc.indices_nonzero(pc.is_in(known.column(0), wanted)).to_pylist()
        by_position = dict(zip(_values(known.take(pa.array(at, pa.int64()))), at, strict=True))
        found = pa.array([by_position.get(position) for position in _values(positions)], pa.int64())
        records = with_letter_columns(layout, landed.take(found))
        return {
            **{name: pc.if_else(found.is_valid(), records.column(name), None) for name in records.column_names},
            **dict(zip(layout.position, positions.columns, strict=True)),
        }


def _positions(layout: RecordLayout) -> pa.Schema:
    return pa.schema(zip(layout.position, (pa.string(), pa.int64()), strict=True))


def _values(positions: pa.Table) -> list[tuple[str | None, int | None]]:
    return list(zip(*(column.to_pylist() for column in positions.columns), strict=True))


def find_refused(rows: int, load: Fails, fails_alone: Fails, limit: int) -> dict[int, str]:
    """Load rows in order, and return the numbers of those that are refused, each with its error.

    A range that is refused is halved. What is loaded stays loaded. So of two rows with the same unique key the second
    one is refused. The search ends once more rows are refused than the limit, or if each of some rows that are spread
    over all rows is refused alone.

    :param rows: the number of rows.
    :param load: loads a range of rows, from the first number up to the second, exclusive. It returns the error if they
        are refused, and has loaded none of them then.
    :param fails_alone: does the same, but leaves nothing loaded.
    :param limit: the maximum number of refused rows.
    """
    refused: dict[int, str] = {}
    waiting = [(0, rows)] if rows else []
    while waiting and len(refused) <= limit:
        low, high = waiting.pop()
        error = load(low, high)
        if error is None:
            continue
        if high - low == 1:
            refused[low] = error
            continue
        if high - low == rows > max(MANY_ROWS, limit) and (alone := fails_everywhere(rows, fails_alone)) is not None:
            return dict.fromkeys(range(rows), alone)
        middle = (low + high) // 2
        waiting += [(middle, high), (low, middle)]
    return refused
