"""Merges into a Delta table, with some rows of one file at a time in memory.

Only the columns that decide are in memory of all changes. Files whose statistics exclude each key are not read. Of the
others the key columns are read first. Files with rows that changes replace or delete are then written again without
them, piece by piece: large ones alone, small ones together with each other and with the changes.

The library's own `MERGE` takes memory that grows with the table. It is for tables whose files are not all of their
rows: see `is_plain`.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from airflow_provider_coordination.coordination.errors import result_or_raise
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.concurrency import side_by_side
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.merging import CHANGE, ROW, Merging, positions
from airflow_provider_coordination.spark.parquet_files import MergedFile, footer_of, pieces_of
from airflow_provider_coordination.spark.sinks.delta.files import (
    add_action,
    arrow_of,
    conformed,
    partition_text,
    statistics,
)
from airflow_provider_coordination.spark.storage import join
from airflow_provider_coordination.spark.table_sinks import DATA, PreparedFile

FILE, POSITION = "_coordination_file", "_coordination_position"
"""The columns of changes with the number of their file, and their position in it."""
LARGE_BYTES = 64 * 1024 * 1024
"""From this size on, a file is rewritten alone, so that its statistics stay narrow."""
AT_ONCE = 2
"""The number of files that are written at the same time; each of them takes about 100 MB of memory."""
PLAIN_NAME = re.compile(r"[A-Za-z0-9_./=-]+")
"""Names that every writer encodes in the same way in the log."""
PLAIN_FEATURES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors"}
"""The features of a table whose files are rows, unless one of them has a deletion vector."""
CHANGE_FEED = "delta.enableChangeDataFeed"


def is_plain(table: DeltaTable) -> bool:
    """Return whether a commit can replace the files of a table by naming them, and readers need nothing else.

    A removed file with a deletion vector, or with a name that writers encode differently, would stay. A change feed
    needs files that only the library writes.
    """
    features = set(table.protocol().reader_features or ())
    if table.metadata().configuration.get(CHANGE_FEED) == "true" or not features <= PLAIN_FEATURES:
        return False
    if "deletionVectors" in features and pa.table(table.deletion_vectors().read_all()).num_rows:
        return False
    return all(map(PLAIN_NAME.fullmatch, pa.table(table.get_add_actions()).column("path").to_pylist()))


class Changes:
    """The rows of a delivery, in prepared files.

    :param files: the files, with the batches whose rows count.
    :param root: the folder of the table.
    :param merging: how rows are merged.
    :param access: how to reach the folder.
    """

    def __init__(
        self, files: Sequence[PreparedFile], root: str, merging: Merging, access: Access = DEFAULT_ACCESS
    ) -> None:
        self.files = files
        self._root = root
        self._access = access
        found = []
        for number, file in enumerate(files):
            batches = pa.array(file.batches, pa.string())
            for rows in _placed(join(root, file.name), merging.columns, access):
                own = rows.filter(pc.is_in(rows.column(BATCH_ID), value_set=batches))
                found.append(own.append_column(FILE, pa.repeat(pa.scalar(number), own.num_rows)))
        self.deciding = pa.concat_tables(found, promote_options="permissive")
        """The columns that decide, and the place of each row."""

    def positions(self, rows: pa.Table, number: int) -> pa.Array:
        """Return the positions of those of some rows that are in a file."""
        return rows.column(POSITION).filter(pc.equal(rows.column(FILE), number)).combine_chunks()

    def whole(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield some rows with all their columns.

        :param rows: some of the rows of `deciding`.
        """
        for number, file in enumerate(self.files):
            own = self.positions(rows, number)
            for piece in _placed(join(self._root, file.name), None, self._access):
                yield piece.filter(pc.is_in(piece.column(POSITION), value_set=own))


@dataclass
class _Match:
    """What a delivery finds in a file of the table.

    :param file: the file, as the log describes it.
    :param rows: the number of its rows.
    :param rejected: the positions of the rows of rejected batches.
    :param pairs: the positions of rows, and of the changes with the same key.
    :param lost: the positions of the changes that lose against a row of the file.
    """

    file: Mapping[str, Any]
    rows: int = 0
    rejected: list[pa.Array] = field(default_factory=list)
    pairs: list[pa.Table] = field(default_factory=list)
    lost: list[pa.Array] = field(default_factory=list)

    def removed(self, lost: pa.Array) -> pa.Array:
        """Return the positions of the rows that are replaced or deleted.

        :param lost: the positions of the changes that lose against any row of the table.
        """
        found = list(self.rejected)
        for pairs in self.pairs:
            found += pairs.column(ROW).filter(pc.invert(pc.is_in(pairs.column(CHANGE), value_set=lost))).chunks
        return pc.unique(pa.chunked_array(found, pa.int64()))


@dataclass(frozen=True)
class _Source:
    """A file whose rows are written to another one.

    :param name: its name below the table.
    :param bytes: its size.
    :param partition: the values of the table's partition columns, as the log has them.
    :param values: the same as values, for columns that the file lacks.
    :param removed: the positions of the rows that are left out.
    """

    name: str
    bytes: int
    partition: tuple[str | None, ...]
    values: Mapping[str, Any]
    removed: pa.Array


class FileMerge:
    """A merge into the opened version of a table.

    :param table: the table, which `is_plain`.
    :param root: its folder.
    :param merging: how rows are merged.
    :param rejected: batches whose rows in the table are removed, and whose order does not count.
    :param access: how to reach the folder.
    """

    def __init__(
        self,
        table: DeltaTable,
        root: str,
        merging: Merging,
        rejected: Collection[str],
        access: Access = DEFAULT_ACCESS,
    ) -> None:
        self._root = root
        self._merging = merging
        self._rejected = pa.array(list(rejected), pa.string())
        self._access = access
        self._schema = arrow_of(table.schema())
        self._partition_by = table.metadata().partition_columns
        self._files = pa.table(table.get_add_actions())

    def actions(self, changes: Changes, kept: pa.Table) -> list[AddAction | RemoveAction]:
        """Write the files that the table needs after the merge; return what the commit removes and adds.

        :param changes: the delivery.
        :param kept: those of its deciding rows that count, at most one for each key.
        """
        matches = [self._match(file, kept) for file in self._candidates(kept)]
        lost = pc.unique(pa.chunked_array([chunk for match in matches for chunk in match.lost], pa.int64()))
        actions: list[AddAction | RemoveAction] = []
        sources: list[_Source] = []
        for match in matches:
            if len(removed := match.removed(lost)):
                source = self._source(match.file, removed)
                values = dict(zip(self._partition_by, source.partition, strict=True))
                actions.append(RemoveAction(source.name, True, int(time.time() * 1000), source.bytes, values))
                if len(removed) < match.rows:
                    sources.append(source)
        wins = pc.invert(pc.is_in(positions(kept), value_set=lost))
        added = kept.filter(pc.and_(wins, pc.invert(self._merging.deletes(kept))))
        for number, prepared in enumerate(changes.files):
            own = changes.positions(added, number)
            if len(own) == prepared.rows:
                actions.append(add_action(prepared, self._partition_by))
            elif len(own):
                every = pa.array(range(prepared.rows), pa.int64())
                left_out = every.filter(pc.invert(pc.is_in(every, value_set=own)))
                sources.append(_Source(prepared.name, prepared.bytes, tuple(prepared.partition), {}, left_out))
        for _, written in side_by_side(_groups(sources), self._rewrite, AT_ONCE):
            actions.append(add_action(result_or_raise(written), self._partition_by))
        return actions

    def _candidates(self, changes: pa.Table) -> Iterator[Mapping[str, Any]]:
        """Yield the files that may have rows with the keys of changes, or rows of rejected batches."""
        names = [name for name in ("path", "size_bytes", "partition") if name in self._files.column_names]
        bounds = {name: self._bounds(name) for name in (*self._merging.on, BATCH_ID)}
        for number, file in enumerate(self._files.select(names).to_pylist()):
            may_have = pa.chunked_array([pa.repeat(pa.scalar(True), changes.num_rows)])
            for name in self._merging.on:
                may_have = pc.and_(may_have, _within(changes.column(name), bounds[name][number]))
            if pc.any(may_have).as_py() or pc.any(_within(self._rejected, bounds[BATCH_ID][number])).as_py():
                yield file

    def _bounds(self, name: str) -> list[tuple[Any, Any]]:
        """Return the least and the greatest value of a column in each file, None where it is not certain."""
        if name in self._partition_by:
            values = pc.struct_field(self._files.column("partition"), name).to_pylist()
            return list(zip(values, values, strict=True))
        unknown: list[tuple[Any, Any]] = [(None, None)] * self._files.num_rows
        kind = self._schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)):
            return unknown  # the log rounds others
        if "min" not in self._files.column_names or self._files.column("min").type.get_field_index(name) < 0:
            return unknown
        both = (pc.struct_field(self._files.column(column), name).to_pylist() for column in ("min", "max"))
        return list(zip(*both, strict=True))

    def _match(self, file: Mapping[str, Any], changes: pa.Table) -> _Match:
        """Compare the rows of a file with changes."""
        match = _Match(file)
        columns = [*self._merging.compared, *([BATCH_ID] if len(self._rejected) else [])]
        schema = pa.schema([each for each in self._schema if each.name in columns])
        for piece in _placed(join(self._root, file["path"]), columns, self._access):
            match.rows += piece.num_rows
            rows = conformed(piece, schema, file.get("partition") or {})
            place = piece.column(POSITION)
            if len(self._rejected):
                of_rejected = pc.is_in(rows.column(BATCH_ID), value_set=self._rejected)
                match.rejected += place.filter(of_rejected).chunks
                rows, place = rows.filter(pc.invert(of_rejected)), place.filter(pc.invert(of_rejected))
            pairs = self._merging.pairs(rows, changes)
            match.lost += pairs.column(CHANGE).filter(self._merging.outranks(rows, changes, pairs)).chunks
            match.pairs.append(pairs.set_column(0, ROW, place.take(pairs.column(ROW))))
        return match

    def _source(self, file: Mapping[str, Any], removed: pa.Array) -> _Source:
        values = file.get("partition") or {}
        partition = tuple(partition_text(values[name]) for name in self._partition_by)
        return _Source(file["path"], file["size_bytes"], partition, values, removed)

    def _rewrite(self, sources: Sequence[_Source]) -> PreparedFile:
        """Write the rows of files of one partition of the table to a new file."""
        name = join(DATA, secrets.token_hex(8), "part-0.parquet")
        uri = join(self._root, name)
        with MergedFile(uri, self._schema, self._access) as merged:
            for source in sources:
                for piece in _placed(join(self._root, source.name), None, self._access):
                    left = pc.invert(pc.is_in(piece.column(POSITION), value_set=source.removed))
                    merged.add(conformed(piece, self._schema, source.values).filter(left))
        footer = footer_of(uri, self._access)
        return PreparedFile(
            name=name,
            bytes=merged.size,
            rows=footer.num_rows,
            batches={},
            partition=sources[0].partition,
            stats=json.dumps(statistics(footer)),
        )


def _groups(sources: Iterable[_Source]) -> Iterator[list[_Source]]:
    """Yield files in groups, one group for each new file."""
    waiting: defaultdict[tuple[str | None, ...], list[_Source]] = defaultdict(list)
    for source in sorted(sources, key=lambda source: source.bytes, reverse=True):
        waiting[source.partition].append(source)
        if sum(each.bytes for each in waiting[source.partition]) >= LARGE_BYTES:
            yield waiting.pop(source.partition)
    yield from waiting.values()


def _placed(uri: str, columns: Sequence[str] | None, access: Access) -> Iterator[pa.Table]:
    """Yield the rows of a file, some at a time, with their positions in it."""
    first = 0
    for rows in pieces_of(uri, access, columns):
        yield rows.append_column(POSITION, positions(rows, first))
        first += rows.num_rows


def _within(values: pa.ChunkedArray | pa.Array, bounds: tuple[Any, Any]) -> pa.ChunkedArray | pa.Array:
    """Return for each value whether it may be within bounds."""
    low, high = bounds
    if low is None or high is None:
        return pc.is_valid(values)
    return pc.and_(
        pc.greater_equal(values, pa.scalar(low, values.type)), pc.less_equal(values, pa.scalar(high, values.type))
    )
