"""The user records of a whole page, as Arrow columns.

The result is the same as from `aggregation.expand_within`, but the method is faster. In aggregates as producers write
them, the fields of many messages are found side by side. Everything else is checked and extracted in columns with
NumPy. Aggregates in any other form are parsed by `aggregation`; without NumPy, all are.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.sources.kinesis.aggregation import (
    DIGEST_BYTES,
    MAGIC,
    HashKeyRange,
    expand_within,
    hash_key_of,
    is_aggregated,
)
from airflow_provider_coordination.sources.kinesis.records import KinesisRecords

USER_RECORD_SCHEMA = pa.schema(
    [
        pa.field("sequence_number", pa.string(), nullable=False),
        pa.field("sub_sequence_number", pa.int64(), nullable=False),
        pa.field("partition_key", pa.string(), nullable=False),
        pa.field("approximate_arrival_timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)

# Of the regular form, as in `aggregation`: the bytes that begin its fields. A varint below _MORE is one byte.
_PARTITION_KEY, _RECORD, _INDEX, _DATA = 0x0A, 0x1A, 0x08, 0x1A
_MORE = 0x80
_TOO_LONG = 1 << 20  # leads to the end of any message
_TOGETHER = 32  # fewer messages are read one by one
_STEPS = 8  # how many fields of each are read before the number of messages is looked at again


@dataclass(frozen=True)
class UserRecords:
    """The user records of some Kinesis records, in order.

    :param columns: of `USER_RECORD_SCHEMA`.
    :param filtered: the number of user records that were left out because they belong to another shard.
    """

    columns: pa.RecordBatch
    filtered: int


def user_records(
    records: KinesisRecords, hash_keys: HashKeyRange | None = None, *, after: int | None = None
) -> UserRecords:
    """Return the user records of a page.

    :param records: of the page.
    :param hash_keys: the shard's range: user records outside it are left out; None keeps all.
    :param after: leave out user records of the first Kinesis record up to and including this sub-sequence number.
    """
    has_magic = pc.equal(pc.binary_slice(records.data, 0, len(MAGIC)), MAGIC)
    packed: list[int] = pc.indices_nonzero(has_magic).to_pylist()
    if not packed and after is None:
        return _user_records(records, _plain(records))
    within = None if hash_keys is None or hash_keys.is_whole else hash_keys
    regular = _regular(records.data, [row for row in packed if row or after is None], within)
    if regular is not None and len(regular.counts) == len(records):
        return _user_records(records, regular)
    taken = set() if regular is None else set(regular.rows)
    rows = [row for row in range(len(records)) if row not in taken] if taken else range(len(records))
    if len(packed) == len(taken) and after is None:
        others = _plain(records, rows)
    else:
        others = _one_by_one(records, rows, hash_keys, after)
    return _user_records(records, others if regular is None else _mixed(regular, others))


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """The user records of some rows of a page.

    :param rows: the rows of the page, each once.
    :param counts: the number of user records of each row.
    :param row: the row of each user record; None if every record is one user record.
    :param filtered: the number of user records that were left out.
    """

    rows: Sequence[int]
    counts: Sequence[int]
    row: pa.Array | None
    sub_sequence_number: pa.Array
    partition_key: pa.Array
    data: pa.Array
    filtered: int = 0


def _user_records(records: KinesisRecords, columns: _Columns) -> UserRecords:
    sequence_numbers, arrivals = records.sequence_numbers, records.arrivals.cast(pa.timestamp("us", tz="UTC"))
    if columns.row is not None:
        sequence_numbers, arrivals = sequence_numbers.take(columns.row), arrivals.take(columns.row)
    batch = pa.RecordBatch.from_arrays(
        [sequence_numbers, columns.sub_sequence_number, columns.partition_key, arrivals, columns.data],
        schema=USER_RECORD_SCHEMA,
    )
    return UserRecords(batch, columns.filtered)


def _plain(records: KinesisRecords, rows: Sequence[int] | None = None) -> _Columns:
    """Return records that are not aggregates, each of which is one user record: all rows, or some."""
    keys, data = records.partition_keys, records.data
    if rows is not None:
        indices = pa.array(rows, pa.int32())
        keys, data = keys.take(indices), data.take(indices)
    return _Columns(
        rows=rows or (),
        counts=[1] * len(rows or ()),
        row=None if rows is None else pa.array(rows, pa.int32()),
        sub_sequence_number=pa.repeat(pa.scalar(0, pa.int64()), len(keys)),
        partition_key=keys,
        data=data,
    )


def _one_by_one(
    records: KinesisRecords, rows: Sequence[int], hash_keys: HashKeyRange | None, after: int | None
) -> _Columns:
    """Return the user records of rows in any form, parsed one by one."""
    row_of: list[int] = []
    counts: list[int] = []
    subs: list[int] = []
    keys: list[str] = []
    data: list[bytes] = []
    filtered = 0
    for row in rows:
        record = records[row]
        users, dropped = expand_within(record.data, record.partition_key, hash_keys)
        if row == 0 and after is not None:
            users = [user for user in users if user[0] > after]
        filtered += dropped
        counts.append(len(users))
        row_of += [row] * len(users)
        for sub, key, payload in users:
            subs.append(sub)
            keys.append(key)
            data.append(payload)
    return _Columns(
        rows=rows,
        counts=counts,
        row=pa.array(row_of, pa.int32()),
        sub_sequence_number=pa.array(subs, pa.int64()),
        partition_key=pa.array(keys, pa.string()),
        data=pa.array(data, pa.binary()),
        filtered=filtered,
    )


def _mixed(one: _Columns, other: _Columns) -> _Columns:
    """Return the user records of two sets of rows in the order of the rows."""
    ranges: dict[int, range] = {}
    first = 0
    for columns in (one, other):
        for row, count in zip(columns.rows, columns.counts, strict=True):
            ranges[row] = range(first, first + count)
            first += count
    rows = sorted(ranges)
    order: list[int] = []
    for row in rows:
        order.extend(ranges[row])
    place = pa.array(order, pa.int32())

    def both(name: str) -> pa.Array:
        return pa.concat_arrays([getattr(one, name), getattr(other, name)]).take(place)

    return _Columns(
        rows=rows,
        counts=[len(ranges[row]) for row in rows],
        row=both("row"),
        sub_sequence_number=both("sub_sequence_number"),
        partition_key=both("partition_key"),
        data=both("data"),
        filtered=one.filtered + other.filtered,
    )


def _regular(data: pa.Array, rows: Sequence[int], hash_keys: HashKeyRange | None) -> _Columns | None:
    """Return the user records of the rows that are aggregates as producers write them; None if no row is.

    :param data: the data of every row of the page.
    :param rows: the rows that begin as an aggregate does.
    :param hash_keys: the shard's range; None keeps all.
    """
    if not rows or importlib.util.find_spec("numpy") is None:
        return None
    import numpy as np

    _, offsets, values = data.buffers()
    borders = np.frombuffer(offsets, np.int32)[data.offset : data.offset + len(data) + 1]
    content = memoryview(values).cast("B")
    sealed = [row for row in rows if is_aggregated(content[borders[row] : borders[row + 1]])]
    if not sealed:
        return None
    row = np.array(sealed, np.intp)
    messages = _Messages(
        text=np.frombuffer(values, np.uint8),
        row=row.astype(np.int32),
        begin=borders[row].astype(np.intp) + len(MAGIC),
        end=borders[row + 1].astype(np.intp) - DIGEST_BYTES,
    )
    return _extract(messages, values, hash_keys)


@dataclass(frozen=True, kw_only=True)
class _Messages:
    """The messages of aggregates, in order.

    :param text: the data of the page.
    :param row: the row of each message.
    :param begin: where each message begins in the text.
    :param end: where it ends.
    """

    text: Any
    row: Any
    begin: Any
    end: Any

    def fields(self) -> Any:
        """Return where each field of each message starts, in order, if its lengths have no more than two bytes."""
        import numpy as np

        # What follows the first byte of a field, as a number that leads to the next field. Its bytes overlap.
        lengths = np.ndarray(len(self.text) - 2, "<u2", self.text, offset=1, strides=(1,))
        advance = _advance()
        found: list[Any] = []
        position = self.begin
        while np.count_nonzero(position < self.end) >= _TOGETHER:
            for _ in range(_STEPS):
                found.append(position)
                position = np.minimum(position + advance[lengths[position]], self.end)
        alone: list[int] = []
        for place in np.flatnonzero(position < self.end).tolist():
            first, end = int(position[place]), int(self.end[place])
            alone += _fields_of(self.text[first : end + 2].tobytes(), first, end)
        if not found:
            return np.array(alone, np.intp)
        together = np.array(found)
        together = together[together < self.end]
        return np.sort(np.concatenate([together, np.array(alone, np.intp)]))


def _fields_of(text: bytes, offset: int, end: int) -> list[int]:
    """Return where each field of one message starts.

    :param text: the rest of the message, and two bytes more.
    :param offset: where it starts.
    :param end: where the message ends.
    """
    starts: list[int] = []
    found = starts.append
    position, size = 0, end - offset
    while position < size:  # runs for every user record, so it does as little as possible
        found(position + offset)
        length = text[position + 1]
        position += length + 2 if length < _MORE else length + (text[position + 2] << 7) - 0x7D
    return starts


@cache
def _advance() -> Any:
    """Return, by the two bytes after the first one of a field, how far the next field is."""
    import numpy as np

    low, high = np.arange(0x10000) & 0xFF, np.arange(0x10000) >> 8
    long = np.where(high < _MORE, low + (high << 7) - _MORE + 3, _TOO_LONG)
    return np.where(low < _MORE, low + 2, long)


def _extract(messages: _Messages, values: pa.Buffer, hash_keys: HashKeyRange | None) -> _Columns | None:
    """Return the user records of the messages that have the regular form; None if none has.

    :param values: the data of the page.
    """
    import numpy as np

    # Eight bytes from each position on. The head of a field or record has at most six; the digest follows the last.
    heads = np.ndarray(len(messages.text) - 7, "<u8", messages.text, strides=(1,))

    def byte(head: Any, number: Any) -> Any:
        return (head >> np.uint8(8) * number).astype(np.uint8)

    def varint(head: Any, number: Any) -> tuple[Any, Any, Any]:
        """Return the numbers from a byte of each head on, the next byte, and whether they have at most two bytes."""
        low, high = byte(head, number), byte(head, number + 1)
        longer = low >= _MORE
        value = low + longer * ((high.astype(np.intp) << 7) - _MORE)
        return value, longer.view(np.uint8) + number + 1, ~longer | (high < _MORE)

    start = messages.fields()
    first = np.searchsorted(start, messages.begin)  # of each message
    counts = np.diff(first, append=len(start))
    head = heads[start]
    tag = byte(head, 0)
    length, next_byte, is_regular = varint(head, 1)
    body = start + next_byte
    stop = body + length
    following = np.roll(start, -1)
    following[first + counts - 1] = messages.end
    is_key, is_record = tag == _PARTITION_KEY, tag == _RECORD
    is_after_record = np.roll(is_record, 1)
    is_after_record[first] = False
    is_regular &= (stop == following) & (is_record | (is_key & ~is_after_record))
    key_counts = np.add.reduceat(is_key, first, dtype=np.intp)

    of_record = np.flatnonzero(is_record)
    message = np.repeat(np.arange(len(counts)), counts)[of_record]
    record, record_end = body[of_record], stop[of_record]
    head = heads[record]
    key, data_byte, is_index = varint(head, 1)
    size, next_byte, is_size = varint(head, data_byte + 1)
    payload = record + next_byte
    is_regular[of_record] &= (
        (is_index & is_size & (byte(head, 0) == _INDEX) & (byte(head, data_byte) == _DATA))
        & (payload + size == record_end)
        & (key < key_counts[message])
    )
    regular = np.logical_and.reduceat(is_regular, first) & (counts > key_counts)
    if not regular.all():
        kept = regular[message]
        message, key, payload, record_end = message[kept], key[kept], payload[kept], record_end[kept]
        is_key &= np.repeat(regular, counts)
        key_counts *= regular
    if not len(message):
        return None
    keys = _cut_out(values, body[is_key], stop[is_key], pa.string())
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:  # not UTF-8
        return None
    key += (np.cumsum(key_counts) - key_counts)[message]
    users = np.bincount(message, minlength=len(counts))
    sub = np.arange(len(message)) - (np.cumsum(users) - users)[message]
    filtered = 0
    if hash_keys is not None:
        known = keys.dictionary_encode()
        least, most = hash_keys.first, hash_keys.last
        belongs = np.array([least <= hash_key_of(each) <= most for each in known.dictionary.to_pylist()])
        kept = belongs[known.indices.to_numpy()][key]
        filtered = len(kept) - int(np.count_nonzero(kept))
        if filtered:
            message, key, sub = message[kept], key[kept], sub[kept]
            payload, record_end = payload[kept], record_end[kept]
            users = np.bincount(message, minlength=len(counts))
    return _Columns(
        rows=messages.row[regular].tolist(),
        counts=users[regular].tolist(),
        row=pa.array(messages.row[message]),
        sub_sequence_number=pa.array(sub, pa.int64()),
        partition_key=keys.take(pa.array(key)),
        data=_cut_out(values, payload, record_end, pa.binary()),
        filtered=filtered,
    )


def _cut_out(values: pa.Buffer, start: Any, end: Any, of: pa.DataType) -> pa.Array:
    """Return the values between pairs of increasing positions of a text."""
    import numpy as np

    if not len(start):
        return pa.array([], of)
    # Arrow stores only where each value starts, which is where the previous one ends. So every second value is the
    # result, and the values in between are dropped.
    borders = np.empty(2 * len(start), np.int32)
    borders[0::2], borders[1::2] = start, end
    between = pa.Array.from_buffers(of, len(borders) - 1, [None, pa.py_buffer(borders), values])
    return between.take(pa.array(np.arange(0, len(borders), 2, dtype=np.int32)))
