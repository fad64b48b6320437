"""Merges into a table: the rows of it that changes replace or delete, and the changes that lose against a row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.merging import CHANGE, ROW, Merging, positions
from airflow_provider_coordination.spark.sinks.iceberg import data_files
from airflow_provider_coordination.spark.sinks.iceberg.data_files import POSITION, FileRows

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table


_NO_PAIRS = pa.table({ROW: pa.array([], pa.int64()), CHANGE: pa.array([], pa.int64())})


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
    :param count: the number of its rows.
    :param replaced: the positions of the rows of replaced batches.
    :param pairs: the positions of rows, and of the changes with the same key.
    :param lost: the positions of the changes that lose against a row of the file.
    """

    task: FileScanTask
    count: int
    replaced: pa.ChunkedArray
    pairs: pa.Table
    lost: pa.ChunkedArray


def merge(table: Table, changes: pa.Table, merging: Merging, replaced: Collection[str]) -> Merge:
    """Compare changes with the rows of a table. Some rows of one file at a time are in memory, with their key columns.

    :param changes: the columns that the merge reads, at most one change for each key.
    :param replaced: the batches whose rows are removed in any case, and no longer count.
    """
    found = [*data_files.tasks_of(table, replaced), *_tasks_with(table, changes.select(list(merging.on)))]
    tasks = list({task.file.file_path: task for task in found}.values())
    deleted = data_files.deleted_rows(table, tasks)
    matches = [_match(table, task, deleted, changes, merging, replaced) for task in tasks]
    lost = pc.unique(pa.chunked_array([chunk for each in matches for chunk in each.lost.chunks], pa.int64()))
    removed = [_removed(each, lost, deleted[each.task.file.file_path]) for each in matches]
    wins = pc.invert(pc.is_in(positions(changes), lost))
    return Merge(wins, [each for each in removed if len(each.positions)])


def _match(
    table: Table,
    task: FileScanTask,
    deleted: Mapping[str, pa.Array],
    changes: pa.Table,
    merging: Merging,
    replaced: Collection[str],
) -> _Match:
    known = set(table.schema().column_names)
    columns = [name for name in (*merging.compared, BATCH_ID) if name in known]
    count, of_batches, pairs, lost = 0, [], [_NO_PAIRS], []
    for rows in data_files.rows_of(table, task, deleted, *columns):
        count += rows.num_rows
        is_replaced = data_files.is_of_batches(rows, replaced)
        of_batches += rows.filter(is_replaced).column(POSITION).chunks
        if known.issuperset(merging.on):
            others = rows.filter(pc.invert(is_replaced))
            same = merging.pairs(others, changes)
            lost += same.column(CHANGE).filter(merging.outranks(others, changes, same)).chunks
            pairs.append(same.set_column(0, ROW, others.column(POSITION).take(same.column(ROW))))
    return _Match(
        task,
        count,
        pa.chunked_array(of_batches, pa.int64()),
        pa.concat_tables(pairs),
        pa.chunked_array(lost, pa.int64()),
    )


def _removed(match: _Match, lost: pa.Array, deleted: pa.Array) -> FileRows:
    kept = pc.is_in(match.pairs.column(CHANGE), lost)
    matched = match.pairs.column(ROW).filter(pc.invert(kept))
    gone = pc.unique(pa.chunked_array([*match.replaced.chunks, *matched.chunks], pa.int64()))
    return FileRows(match.task, gone, deleted, match.count - len(gone))


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
