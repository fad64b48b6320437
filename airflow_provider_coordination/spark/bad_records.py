"""Bad records: how they are found, distinguished from other errors, and counted.

A record is bad only if it fails on its own. Errors of executors, files, networks and sessions are never a record's
fault: they fail the batch, which is retried.
"""

from __future__ import annotations

import builtins
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.spark.delivery import DeliveryError, Prepared, Stage
from airflow_provider_coordination.spark.job_settings import SAVED_WITHOUT_PAYLOADS, BadRecordSettings
from airflow_provider_coordination.spark.layout import BATCH_ID, PAYLOAD, RECORD, RecordLayout
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER
from airflow_provider_coordination.spark.spark_errors import raised_in_python
from airflow_provider_coordination.spark.spark_versions import sql_state

log = logging.getLogger(__name__)

MAX_FAILING = 20
"""How many records of one batch may make a transform raise; above that, the transform itself is taken to be wrong. The
search for each record takes seconds."""
SEARCH_PARTS = 8
"""Into how many parts the search divides a failing range. A failing probe costs a Python worker, as much as several
passing probes; more parts mean fewer failing and more passing probes."""
SPREAD_PROBES = 5
"""How many records, spread over a batch, are tried alone to find out whether every record fails."""
ERROR_CHARACTERS = 500
PAYLOAD_CHARACTERS = 200

POSITION = ("position", "number")
"""The columns that identify a bad record within its batch: see `RecordLayout.position`."""
BAD_SCHEMA = pa.schema(
    [
        *zip(POSITION, (pa.string(), pa.int64()), strict=True),
        pa.field("error", pa.string()),
        pa.field("stage", pa.string()),
    ]
)
"""The columns of a table of bad records: position, error and stage."""

RECORD_STATES = ("22", "38", "39", "P0001")
"""SQLSTATEs, or their classes, of errors in data and in the user's functions."""
NOT_CAUSED_BY_RECORD = (OSError, ImportError, MemoryError, SystemError, SystemExit, KeyboardInterrupt)
"""Errors of a user's function that its environment causes: connections, files, modules, memory."""


def bad_records(
    rows: pa.Table,
    position: Sequence[str],
    errors: pa.Array | pa.ChunkedArray,
    stages: Stage | pa.Array | pa.ChunkedArray,
) -> pa.Table:
    """Return a table of bad records, with the columns of `BAD_SCHEMA`.

    :param rows: the records.
    :param position: the columns of `rows` that identify a record within its batch.
    :param errors: the error of each record.
    :param stages: the stage at which each record was left out, or one stage for all.
    """
    if isinstance(stages, Stage):
        stages = pa.repeat(str(stages), rows.num_rows)
    columns = [*(rows.column(name) for name in position), errors, stages]
    return pa.table(dict(zip(BAD_SCHEMA.names, columns, strict=True))).cast(BAD_SCHEMA)


def dead_letters(
    layout: RecordLayout, bad: pa.Table, landed: pa.Table, source: str, batch_id: str, at: datetime
) -> pa.Table:
    """Return bad records as rows of the dead-letter sink, in the order of the batch.

    :param layout: the columns of the landed records.
    :param bad: the bad records, with the columns of `BAD_SCHEMA`.
    :param landed: the batch's records as they were landed.
    :param source: the source's name.
    :param batch_id: the batch.
    :param at: when the records failed (aware).
    """
    positions = landed.select(layout.position).rename_columns(POSITION).cast(pa.schema(list(BAD_SCHEMA)[:2]))
    rows = pc.indices_nonzero(pc.is_in(positions.column(0), bad.column(0)))
    letters = bad.join(positions.take(rows).append_column("row", rows), list(POSITION), join_type="left outer")
    letters = letters.sort_by("row")
    records = with_letter_columns(layout, landed.take(letters.column("row").combine_chunks()))
    columns = {name: records.column(name) for name in records.column_names if name in layout.dead_letter.names}
    columns |= dict(zip(layout.position, (letters.column(name) for name in POSITION), strict=True))
    columns |= {name: letters.column(name) for name in ("error", "stage")}
    columns |= {name: pa.nulls(letters.num_rows, pa.string()) for name in ("sink", "row")}
    for name, value in {"source": source, BATCH_ID: batch_id, "failed_at": at}.items():
        columns[name] = pa.repeat(pa.scalar(value, layout.dead_letter.field(name).type), letters.num_rows)
    return pa.table([columns[name] for name in layout.dead_letter.names], layout.dead_letter.names).cast(
        layout.dead_letter
    )


def samples(layout: RecordLayout, letters: pa.Table, limit: int, *, has_payloads: bool = True) -> list[dict[str, Any]]:
    """Return the last dead letters as samples for a summary, with error and payload shortened.

    :param limit: the maximum number of samples.
    :param has_payloads: whether they show the start of the payload.
    """
    return [
        {
            **{field: row[name] for field, name in layout.sample_fields.items()},
            "at": format_instant(row["failed_at"]),
            "stage": row["stage"],
            "error": row["error"][:ERROR_CHARACTERS],
            **({"data": _start_of_payload(row)} if has_payloads else {}),
        }
        for row in letters.slice(max(0, letters.num_rows - limit)).to_pylist()
    ]


def _start_of_payload(row: Mapping[str, Any]) -> str:
    data: bytes = row[PAYLOAD] or (row.get(RECORD) or "").encode()
    return data[:PAYLOAD_CHARACTERS].decode(errors="backslashreplace")


def with_letter_columns(layout: RecordLayout, records: pa.Table) -> pa.Table:
    """Return records with the columns of the dead letters that differ from the landed ones."""
    if RECORD not in layout.dead_letter.names:
        return records
    payload = has_payload(records.schema)
    others = records.drop_columns([*layout.names, *([PAYLOAD] if payload else [])])
    texts = [as_json(row) for row in others.to_pylist()] if others.num_columns else [None] * records.num_rows
    data = records.column(PAYLOAD) if payload else pa.nulls(records.num_rows, pa.binary())
    return pa.table({PAYLOAD: data, RECORD: pa.array(texts, pa.string())})


def has_payload(schema: pa.Schema) -> bool:
    """Return whether records have a payload: a column `data` of bytes or text."""
    field = schema.field(PAYLOAD).type if PAYLOAD in schema.names else None
    return field in (pa.binary(), pa.large_binary(), pa.string(), pa.large_string())


def as_json(record: dict[str, Any]) -> str:
    """Return a record as a JSON object; types without a JSON form become text."""

    def as_text(value: Any) -> str:
        return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)

    return json.dumps(record, ensure_ascii=False, default=as_text)


class BadRecords:
    """The bad records of one job: its budget, its count and its samples. Safe to use from several threads.

    A batch that is retried counts once.

    :param limit: the maximum number of bad records that the job accepts; None for any number.
    :param saved: the number of samples to keep, the latest ones.
    :param has_payloads: whether samples show the start of the payload.
    """

    def __init__(self, limit: int | None = None, saved: int = 0, *, has_payloads: bool = True) -> None:
        self._limit = limit
        self.saved = saved
        self.has_payloads = has_payloads
        self._counts: dict[str, int] = {}
        self._samples: dict[str, list[dict[str, Any]]] = {}
        self._refused: dict[str, dict[str, int]] = {}  # by batch and sink
        self._lock = threading.Lock()

    @classmethod
    def of(cls, settings: BadRecordSettings) -> BadRecords:
        """Return the bad records of a job with these settings."""
        saved = settings.max_saved_parse_exceptions
        if saved is None:
            return cls(settings.max_parse_exceptions, SAVED_WITHOUT_PAYLOADS, has_payloads=False)
        return cls(settings.max_parse_exceptions, saved)

    @property
    def total(self) -> int:
        """The number of bad records that were found."""
        with self._lock:
            return sum(self._counts.values())

    @property
    def samples(self) -> list[dict[str, Any]]:
        """The latest samples, in the order in which their batches were validated."""
        with self._lock:
            found = [sample for of_batch in self._samples.values() for sample in of_batch]
        return found[max(0, len(found) - self.saved) :]

    def left(self, batch_id: str) -> int | None:
        """Return the number of bad records that a batch may have; None for any number."""
        with self._lock:
            return None if self._limit is None else max(0, self._limit - self._others(batch_id))

    def note(self, batch_id: str, count: int, samples: Sequence[dict[str, Any]] = ()) -> None:
        """Note the number of bad records of a batch.

        :param samples: samples of the bad records.
        :raises DeliveryError: if the job then has more bad records than it accepts.
        """
        with self._lock:
            self._counts.pop(batch_id, None)
            self._samples.pop(batch_id, None)
            if count:
                self._counts[batch_id] = count
                self._samples[batch_id] = list(samples)
            while len(self._samples) > 1 and self._samples_without_the_first() >= self.saved:
                del self._samples[next(iter(self._samples))]
            total = sum(self._counts.values())
        if count and self._limit is not None and total > self._limit:
            raise DeliveryError(
                f"batch {batch_id}: {count} bad records make {total} in this run, more than "
                f"'max_parse_exceptions' = {self._limit}; the batch is not published. Fix the schema, the transform or "
                "the producer, or raise the limit"
            )

    def note_refused(self, batch_id: str, sink: str, count: int, samples: Sequence[dict[str, Any]] = ()) -> None:
        """Note the number of rows of a batch that a sink refuses.

        :param samples: samples of the rows.
        :raises DeliveryError: see `note`.
        """
        with self._lock:
            self._refused.setdefault(batch_id, {})[sink] = count
        self.note(f"{batch_id}, sink {sink!r}", count, samples)

    def with_refused(self, batch_id: str, delivered: Prepared) -> Prepared:
        """Return what was delivered of a batch, with the rows that sinks refused counted as dead letters."""
        with self._lock:
            refused = self._refused.pop(batch_id, {})
        if not any(refused.values()):
            return delivered
        records = {sink: count - refused.get(sink, 0) for sink, count in delivered.records.items()}
        records[DEAD_LETTER] = records.get(DEAD_LETTER, 0) + sum(refused.values())
        return replace(delivered, records=records, refused=refused)

    def _samples_without_the_first(self) -> int:
        return sum(len(of_batch) for of_batch in list(self._samples.values())[1:])

    def _others(self, batch_id: str) -> int:
        return sum(count for name, count in self._counts.items() if name != batch_id)


Fails = Callable[[int, int], str | None]
"""Returns the error of the rows from the first number up to the second, exclusive; None if they pass."""


def fails_everywhere(size: int, fails: Fails) -> str | None:
    """Return the error if each of some rows that are spread over all rows fails alone; None if one passes."""
    error = None
    for row in sorted({(size - 1) * n // (SPREAD_PROBES - 1) for n in range(SPREAD_PROBES)}):
        if (error := fails(row, row + 1)) is None:
            return None
    return error


def find_failing(size: int, fails: Fails) -> Iterator[tuple[int, str]]:
    """Yield the rows that fail, in order, each with its error, out of rows that are known to fail together.

    Every yielded row failed when it was tried alone. The search ends early if a failure does not occur again.

    :param size: the number of rows.
    :param fails: tries a range of rows.
    """
    low, high = 0, size  # the range contains a failing row; rows before it are settled, rows after it are unknown
    while True:
        error = None
        while high - low > 1:
            step = -(-(high - low) // SEARCH_PARTS)
            parts = [(start, min(start + step, high)) for start in range(low, high, step)]
            for low, high in parts[:-1]:
                if (error := fails(low, high)) is not None:
                    break
            else:
                low, high = parts[-1]  # by elimination
        error = error or fails(low, high)
        if error is None:
            return
        yield low, error
        if high == size or fails(high, size) is None:
            return
        low, high = high, size


def is_caused_by_record(error: BaseException) -> bool:
    """Return whether a query failed because of the data or the user's functions, rather than its environment."""
    if not sql_state(error).startswith(RECORD_STATES):
        return False
    raised = getattr(builtins, raised_in_python(str(error)).partition(":")[0].rpartition(".")[2].strip(), None)
    return not (isinstance(raised, type) and issubclass(raised, NOT_CAUSED_BY_RECORD))
