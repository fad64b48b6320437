"""Records that follow from their shard and number, so that neither server nor check stores them.

A record of 1 KiB holds the shard's number, its own, and a text of which half is random. A page is rendered, and a file
checked, by operations on whole columns: both take as long as moving the bytes.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

RECORD_BYTES = 1024
SHARD_DIGITS, NUMBER_DIGITS = 3, 12
HEADER_BYTES = SHARD_DIGITS + NUMBER_DIGITS
BODIES = 2003
"""How many texts there are: more than zstd sees at once."""
BEFORE_NUMBER = "49590338271490256608559692538361571095921575"
"""The leading digits of each sequence number; its record's number follows."""
FIRST = int(BEFORE_NUMBER + "0" * NUMBER_DIGITS)
BEFORE_KEY = "key-"

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]


def sequence_number(number: int) -> str:
    """Return the sequence number of a shard's record."""
    return str(FIRST + number)


def number_of(position: str) -> int:
    """Return the number of a shard's record with this sequence number."""
    return int(position) - FIRST


def shard_id(shard: int) -> str:
    """Return the name of a shard."""
    return f"shardId-{shard:012d}"


@cache
def _bodies() -> Bytes:
    text = random.Random(0).randbytes(BODIES * RECORD_BYTES).hex()
    size = RECORD_BYTES - HEADER_BYTES
    return np.frombuffer(text[: BODIES * size].encode(), np.uint8).reshape(BODIES, size)


@cache
def _threes(encoded: bool) -> Bytes:
    """Return the digits of each number below 1000, or what base64 makes of them."""
    made = [f"{number:03d}".encode() for number in range(1000)]
    each = [base64.b64encode(digits) for digits in made] if encoded else made
    return np.frombuffer(b"".join(each), np.uint8).reshape(1000, -1)


def _digits(numbers: Numbers, digits: int, *, encoded: bool = False) -> Bytes:
    """Return the last digits of numbers, a row for each; of a multiple of three."""
    powers = range(digits - 3, -1, -3)
    return np.hstack([_threes(encoded)[numbers // 10**power % 1000] for power in powers])


class Pages:
    """Renders the records of a page as JSON.

    :param began_at: when each shard's first record arrived, in milliseconds since 1970; each other one, a millisecond
        after the one before it.
    """

    def __init__(self, began_at: int) -> None:
        self._began_at = began_at
        self._at: dict[str, int] = {}
        rows = "".join(self._row(base64.b64encode(body.tobytes()).decode()) for body in _bodies())
        self._rows: Bytes = np.frombuffer(rows.encode(), np.uint8).reshape(BODIES, -1)

    def _row(self, body: str) -> str:
        """Return a record with zeros for what `rendered` fills in, and note where."""
        row = ""
        for before, name, width in (
            (f'{{"SequenceNumber":"{BEFORE_NUMBER}', "sequence number", NUMBER_DIGITS),
            ('","ApproximateArrivalTimestamp":', "seconds", 10),
            (".", "milliseconds", 3),
            (',"Data":"', "shard", 4),
            ("", "number", NUMBER_DIGITS * 4 // 3),
            (f'{body}","PartitionKey":"{BEFORE_KEY}', "key", NUMBER_DIGITS),
        ):
            row += before
            self._at[name] = len(row)
            row += "0" * width
        return row + '"},'

    def rendered(self, shard: int, first: int, count: int) -> bytes:
        """Return some records of a shard.

        :param first: the number of the first of them.
        :param count: how many; at least one.
        """
        numbers = np.arange(first, first + count, dtype=np.int64)
        arrived = self._began_at + numbers
        rows = self._rows[numbers % BODIES]
        for name, digits in (
            ("sequence number", _digits(numbers, NUMBER_DIGITS)),
            ("seconds", _digits(arrived // 1000, 12)[:, 2:]),
            ("milliseconds", _digits(arrived, 3)),
            ("shard", _threes(True)[[shard]]),
            ("number", _digits(numbers, NUMBER_DIGITS, encoded=True)),
            ("key", _digits(numbers, NUMBER_DIGITS)),
        ):
            rows[:, self._at[name] : self._at[name] + digits.shape[1]] = digits
        rows[-1, -1] = ord("]")
        return b"[" + rows.tobytes()


@dataclass(frozen=True)
class Run:
    """Records of one batch that follow each other in a file.

    :param batch_id: the batch.
    :param shard: the shard's number.
    :param first: the number of the first record.
    :param last: the number of the last one.
    """

    batch_id: str
    shard: int
    first: int
    last: int


class WrongRecordsError(AssertionError):
    """Records are not those that were sent, or not in order."""


def runs_of(rows: pa.Table, stream: str, began_at: int) -> list[Run]:
    """Return what is in some rows of a dataset, in their order.

    :param stream: the stream that they have to be of.
    :param began_at: as `Pages` has it.
    :raises WrongRecordsError: if a record is not the one that was sent, or the records of a batch do not follow each
        other.
    """
    runs = []
    start = 0
    for batch_id, rows_of_it in _batches(rows):
        runs.append(_run(rows.slice(start, rows_of_it), batch_id, stream, began_at))
        start += rows_of_it
    return runs


def joined(runs: Sequence[Run]) -> list[Run]:
    """Return runs, those of them as one that go on with a batch in the next rows."""
    made: list[Run] = []
    for run in runs:
        before = made[-1] if made else None
        if before is not None and before.batch_id == run.batch_id:
            if (before.shard, before.last + 1) != (run.shard, run.first):
                raise WrongRecordsError(f"batch {run.batch_id}: {run} comes behind {before}")
            made[-1] = Run(run.batch_id, run.shard, before.first, run.last)
        else:
            made.append(run)
    return made


def _batches(rows: pa.Table) -> list[tuple[str, int]]:
    """Return the batches of rows in their order, and how many rows each has."""
    ends = pc.run_end_encode(rows.column("_batch_id").combine_chunks())
    if isinstance(ends, pa.ChunkedArray):
        ends = ends.combine_chunks()
    lengths = np.diff(ends.run_ends.to_numpy(), prepend=0).tolist()
    return list(zip(ends.values.to_pylist(), lengths, strict=True))


def _run(rows: pa.Table, batch_id: str, stream: str, began_at: int) -> Run:
    shard_name, position = rows.column("shard_id")[0].as_py(), rows.column("sequence_number")[0].as_py()
    shard, first = int(shard_name.rpartition("-")[2]), number_of(position)
    numbers = np.arange(first, first + len(rows), dtype=np.int64)
    texts = {"sequence_number": BEFORE_NUMBER, "partition_key": BEFORE_KEY}
    expected: dict[str, pa.Array] = {
        name: _column(np.hstack([_repeated(text, len(rows)), _digits(numbers, NUMBER_DIGITS)]), pa.string())
        for name, text in texts.items()
    }
    data = np.hstack(
        [
            _repeated(f"{shard:0{SHARD_DIGITS}d}", len(rows)),
            _digits(numbers, NUMBER_DIGITS),
            _bodies()[numbers % BODIES],
        ]
    )
    expected["data"] = _column(data, pa.binary())
    at = (began_at + numbers) * 1000
    expected["approximate_arrival_timestamp"] = pa.array(at).cast(pa.timestamp("us", tz="UTC"))
    for name, value in (("stream", stream), ("shard_id", shard_id(shard)), ("sub_sequence_number", 0)):
        expected[name] = pa.repeat(pa.scalar(value), len(rows))
    for name, column in expected.items():
        found = rows.column(name).combine_chunks()
        if not found.cast(column.type).equals(column):
            wrong = pc.indices_nonzero(pc.not_equal(found.cast(column.type), column))
            at_row = wrong[0].as_py() if len(wrong) else 0
            raise WrongRecordsError(
                f"batch {batch_id}: row {at_row} of {len(rows)} from {position} on: {name} is "
                f"{str(found[at_row])[:80]}, and not {str(column[at_row])[:80]}"
            )
    return Run(batch_id, shard, first, first + len(rows) - 1)


def _repeated(text: str, rows: int) -> Bytes:
    return np.broadcast_to(np.frombuffer(text.encode(), np.uint8), (rows, len(text)))


def _column(values: Bytes, of: pa.DataType) -> pa.Array:
    """Return rows of as many bytes each as a column."""
    rows, width = values.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(of, rows, buffers)
