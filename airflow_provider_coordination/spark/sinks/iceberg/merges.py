"""Merges into a table: the rows of it that changes replace or delete, and the changes that lose against a row."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.merging import CHANGE, ROW, Merging, positions
from airflow_provider_coordination.spark.sinks.iceberg import data_files
from airflow_provider_coordination.spark.sinks.iceberg.data_files import FileRows

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table


@dataclass(frozen=True)
class Merge:
    """The result of a merge.

    :param wins: for each change, whether no row of the table has a greater order.
    :param removed: the rows of the table that winning changes replace or delete, and those of replaced batches.
    """

    wins: pa.Array
    removed: list[FileRows]


@dataclass(frozen=True)
class _Match:
    """What a delivery finds in a file of the table.

    :param task: the file.
    :param replaced: the positions of the rows of replaced batches.
    :param pairs: the positions of rows, and of the changes with the same key.
    :param lost: the positions of the changes that lose against a row of the file.
    """

    task: FileScanTask
    replaced: pa.Array
    pairs: pa.Table
    lost: pa.Array


def merge(table: Table, changes: pa.Table, merging: Merging, replaced: Collection[str]) -> Merge:
    """Compare changes with the rows of a table. The key columns of one file at a time are in memory.

    :param changes: the columns that the merge reads, at most one change for each key.
    :param replaced: the batches whose rows are removed in any case, and no longer count.
    """
    tasks = {task.file.file_path: task for task in data_files.tasks_of(table, replaced)}
    tasks |= {task.file.file_path: task for task in _tasks_with(table, changes.select(list(merging.on)))}
    matches = [_match(table, task, changes, merging, replaced) for task in tasks.values()]
    lost = pc.unique(pa.chunked_array([each.lost for each in matches], pa.int64()))
    removed = (FileRows(each.task, _removed(each, lost)) for each in matches)
    wins = pc.invert(pc.is_in(positions(changes), lost))
    return Merge(wins, [each for each in removed if len(each.positions)])


def _match(table: Table, task: FileScanTask, changes: pa.Table, merging: Merging, replaced: Collection[str]) -> _Match:
    known = set(table.schema().column_names)
    rows = data_files.rows_of(table, task, *(name for name in (*merging.compared, BATCH_ID) if name in known))
    of_batches = data_files.positions_of_batches(rows, replaced)
    if not known.issuperset(merging.on):
        return _Match(task, of_batches, merging.pairs(changes.slice(0, 0), changes), pa.array([], pa.int64()))
    pairs = merging.pairs(rows, changes)
    pairs = pairs.filter(pc.invert(pc.is_in(pairs.column(ROW), of_batches)))
    lost = pairs.column(CHANGE).filter(merging.outranks(rows, changes, pairs))
    return _Match(task, of_batches, pairs, lost.combine_chunks())


def _removed(match: _Match, lost: pa.Array) -> pa.Array:
    kept = pc.is_in(match.pairs.column(CHANGE), lost)
    matched = match.pairs.column(ROW).filter(pc.invert(kept))
    return pc.unique(pa.chunked_array([match.replaced, *matched.chunks], pa.int64()))


def _tasks_with(table: Table, keys: pa.Table) -> list[FileScanTask]:
    """Return the files of a table that may hold rows with some keys, by the bounds of their columns.

    :param keys: the key columns.
    """
    from pyiceberg.expressions import (
        AlwaysTrue,
        And,
        BooleanExpression,
        GreaterThanOrEqual,
        LessThanOrEqual,
        Reference,
    )
    from pyiceberg.expressions.literals import literal

    if not keys.num_rows or not set(keys.column_names) <= set(table.schema().column_names):
        return []
    between: BooleanExpression = AlwaysTrue()
    for column, values in zip(keys.column_names, keys.columns, strict=True):
        if pa.types.is_integer(values.type) or pa.types.is_string(values.type):
            bounds = pc.min_max(values).as_py()
            reference = Reference(column)
            between = And(between, GreaterThanOrEqual(term=reference, value=literal(bounds["min"])))
            between = And(between, LessThanOrEqual(term=reference, value=literal(bounds["max"])))
    return list(table.scan(between).plan_files()) if table.current_snapshot() is not None else []
