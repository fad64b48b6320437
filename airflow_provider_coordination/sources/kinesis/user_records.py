"""The user records of a whole page, as Arrow columns.

The result is the same as from `aggregation.expand_within`, but the method is faster. In an aggregate as
producers write it, one loop finds the start of each user record. Everything else is checked and extracted in columns
with NumPy. Aggregates in any other form are parsed by `aggregation`; without NumPy, all are.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.sources.kinesis.aggregation import (
    DIGEST_BYTES,
    MAGIC,
    HashKeyRange,
    belonging,
    expand_within,
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
_PADDING = bytes(16)  # the lengths in a broken record point there, and are found to be wrong


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
    belongs = None if hash_keys is None or hash_keys.is_whole else belonging(hash_keys)
    regular = _regular(records.data, [row for row in packed if row or after is None], belongs)
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


def _regular(data: pa.Array, rows: Sequence[int], belongs: Callable[[str], bool] | None) -> _Columns | None:
    """Return the user records of the rows that are aggregates as producers write them; None if no row is.

    :param data: the data of every row of the page.
    :param rows: the rows that begin as an aggregate does.
    :param belongs: returns whether a partition key belongs to the shard; None if all do.
    """
    found_at = {row: data[row].as_py() for row in rows} if importlib.util.find_spec("numpy") else {}
    aggregates = {row: aggregate for row, aggregate in found_at.items() if is_aggregated(aggregate)}
    while aggregates:
        locations = _locate(list(aggregates.values()))
        columns = None if locations.irregular else _extract(locations, list(aggregates), belongs)
        if columns is not None:
            return columns
        aggregates = {
            row: aggregate
            for place, (row, aggregate) in enumerate(aggregates.items())
            if place not in locations.irregular
        }
    return None


@dataclass(frozen=True, kw_only=True)
class _Locations:
    """The positions of the user records of some aggregates.

    :param text: the aggregates, concatenated.
    :param keys: their partition keys, one table after the other.
    :param key_counts: the number of partition keys of each aggregate.
    :param starts: where each user record starts.
    :param counts: the number of user records of each aggregate.
    :param ends: where the last user record of each aggregate ends.
    :param irregular: the indices of the aggregates in another form.
    """

    text: bytes
    keys: list[str] = field(default_factory=list)
    key_counts: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    irregular: set[int] = field(default_factory=set)


def _locate(aggregates: Sequence[bytes]) -> _Locations:
    locations = _Locations(text=b"".join([*aggregates, _PADDING]))
    begin = 0
    for place, aggregate in enumerate(aggregates):
        keys, starts = len(locations.keys), len(locations.starts)
        end = begin + len(aggregate) - DIGEST_BYTES
        seems_regular = _find(locations.text, begin + len(MAGIC), end, locations.keys, locations.starts)
        locations.key_counts.append(len(locations.keys) - keys)
        locations.counts.append(len(locations.starts) - starts)
        locations.ends.append(end)
        if not seems_regular or locations.counts[-1] == 0:
            locations.irregular.add(place)
        begin += len(aggregate)
    return locations


def _find(text: bytes, position: int, end: int, keys: list[str], starts: list[int]) -> bool:
    """Collect an aggregate's partition keys and the starts of its user records; return whether it seems regular."""
    try:
        while text[position] == _PARTITION_KEY:
            length = text[position + 1]
            position += 2
            if length >= _MORE:
                if text[position] >= _MORE:
                    return False
                length += (text[position] << 7) - _MORE
                position += 1
            keys.append(text[position : position + length].decode())
            position += length
        found = starts.append
        while position < end:  # runs for every user record, so it does as little as possible
            found(position)
            length = text[position + 1]
            position += length + 2 if length < 0x80 else length + (text[position + 2] << 7) - 0x7D
    except (IndexError, UnicodeDecodeError):
        return False
    return position == end


def _extract(locations: _Locations, rows: Sequence[int], belongs: Callable[[str], bool] | None) -> _Columns | None:
    """Return the user records of aggregates, or None if some are irregular; `found.irregular` then has those."""
    import numpy as np

    text = np.frombuffer(locations.text, np.uint8)
    start = np.array(locations.starts, np.int32)
    counts = np.array(locations.counts, np.int32)
    key_counts = np.array(locations.key_counts, np.int32)

    def varint(position: Any) -> tuple[Any, Any, Any]:
        """Return the numbers at some positions, where they end, and whether they have no more than two bytes."""
        low, high = text[position].astype(np.int32), text[position + 1]
        longer = low >= _MORE
        return low + longer * ((high.astype(np.int32) << 7) - _MORE), position + 1 + longer, ~longer | (high < _MORE)

    length, body, is_length = varint(start + 1)
    key, data_field, is_index = varint(body + 1)
    size, payload, is_size = varint(data_field + 1)
    end = body + length
    regular = (
        (is_length & is_index & is_size)
        & ((text[start] == _RECORD) & (text[body] == _INDEX) & (text[data_field] == _DATA))
        & (payload + size == end)
        & (key < np.repeat(key_counts, counts))
    )
    if not regular.all():
        places = np.repeat(np.arange(len(rows)), counts)
        locations.irregular.update(np.unique(places[~regular]).tolist())
        return None
    key += np.repeat(np.cumsum(key_counts, dtype=np.int32) - key_counts, counts)
    sub = np.arange(len(start)) - np.repeat(np.cumsum(counts) - counts, counts)
    row = np.repeat(np.array(rows, np.int32), counts)
    filtered = 0
    if belongs is not None:
        kept = np.fromiter(map(belongs, locations.keys), bool, len(locations.keys))[key]
        filtered = len(kept) - int(kept.sum())
        if filtered:
            counts = np.add.reduceat(kept, np.cumsum(counts) - counts, dtype=np.int32)
            key, sub, row, payload, end = key[kept], sub[kept], row[kept], payload[kept], end[kept]
    return _Columns(
        rows=rows,
        counts=counts.tolist() if filtered else locations.counts,
        row=pa.array(row),
        sub_sequence_number=pa.array(sub, pa.int64()),
        partition_key=pa.array(locations.keys, pa.string()).take(pa.array(key)),
        data=_cut_out(locations.text, payload, end),
        filtered=filtered,
    )


def _cut_out(text: bytes, start: Any, end: Any) -> pa.Array:
    """Return the values between pairs of increasing positions of a text."""
    import numpy as np

    if not len(start):
        return pa.array([], pa.binary())
    # Arrow stores only where each value starts, which is where the previous one ends. So every second value is the
    # result, and the values in between are dropped.
    borders = np.empty(2 * len(start), np.int32)
    borders[0::2], borders[1::2] = start, end
    values = pa.Array.from_buffers(pa.binary(), len(borders) - 1, [None, pa.py_buffer(borders), pa.py_buffer(text)])
    return values.take(pa.array(np.arange(0, len(borders), 2, dtype=np.int32)))
