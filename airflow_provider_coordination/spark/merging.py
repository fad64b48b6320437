"""Rows that replace the rows of a table with the same key: which keys are valid, and which of several rows is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.spark.delivery import DeliveryError, MissingColumnError
from airflow_provider_coordination.spark.layout import BATCH_ID

_AT, _RANK, _KNOWN, _ORDER, _LAST = (f"_coordination_{name}" for name in ("at", "rank", "known", "order", "last"))


@dataclass(frozen=True, kw_only=True)
class Merging:
    """How rows are merged into a table.

    :param on: the columns that identify a row; empty if every row is added.
    :param order_by: the column whose greatest value decides between rows of one delivery with the same key.
    """

    on: tuple[str, ...] = ()
    order_by: str | None = None

    def __bool__(self) -> bool:
        """Return whether rows are merged at all."""
        return bool(self.on)

    @property
    def columns(self) -> list[str]:
        """The columns that merging reads."""
        return list(dict.fromkeys([*self.on, *([self.order_by] if self.order_by else []), BATCH_ID]))

    @property
    def required(self) -> dict[str, Sequence[str]]:
        """The columns that rows must have, by the field that names them; see `Sink.required_columns`."""
        order = () if self.order_by is None else (self.order_by,)
        return {"'merge_on'": self.on, "'order_by'": order}

    def check_columns(self, columns: Sequence[str], table: str) -> None:
        """Check that rows have the columns.

        :param table: the table, for error messages.
        :raises MissingColumnError: naming the missing columns.
        """
        if self and (missing := [name for name in self.columns if name not in columns]):
            raise MissingColumnError(
                f"{table} is merged on {', '.join(map(repr, self.on))}, and the records do not have the column "
                f"{', '.join(map(repr, missing))}; let the transform add it"
            )

    def check_rows(self, rows: pa.Table, table: str) -> None:
        """Check the keys of batches: no key is null, and without an order each key is at most once in a batch.

        :param rows: at least `columns` of all rows of the batches.
        :param table: the table, for error messages.
        :raises DeliveryError: naming the column, the value and the batch.
        """
        for name in self.on:
            if rows.column(name).null_count:
                batch = rows.filter(pc.is_null(rows.column(name))).column(BATCH_ID)[0].as_py()
                raise DeliveryError(
                    f"batch {batch}: column {name!r}, on which {table} is merged, is null; give each row a key in the "
                    "transform, or mark the row as bad"
                )
        if self.order_by is not None:
            return
        counted = rows.group_by([BATCH_ID, *self.on]).aggregate([([], "count_all")])
        repeated = counted.filter(pc.greater(counted.column("count_all"), 1))
        if repeated.num_rows:
            [first] = repeated.slice(0, 1).to_pylist()
            key = ", ".join(f"{name!r} = {first[name]!r}" for name in self.on)
            raise DeliveryError(
                f"batch {first[BATCH_ID]}: {first['count_all']} rows have {key}, on which {table} is merged; set "
                "'order_by' to the column that decides between them, or keep one in the transform"
            )

    def kept(self, rows: pa.Table, batch_ids: Sequence[str]) -> pa.Array:
        """Return the indices of the rows to keep: the last row of each key.

        :param rows: at least `columns` of rows.
        :param batch_ids: the batches of the commit, in the order that decides if `order_by` does not; rows of other
            batches are left out.
        """
        marked = rows.select(list(self.on)).append_column(_AT, _numbers(rows))
        marked = marked.append_column(
            _RANK, pc.index_in(rows.column(BATCH_ID).combine_chunks(), pa.array(batch_ids, pa.string()))
        )
        by = [(_RANK, "ascending"), (_AT, "ascending")]
        if self.order_by is not None:
            order = rows.column(self.order_by)
            marked = marked.append_column(_KNOWN, pc.is_valid(order)).append_column(_ORDER, order)
            by = [(_KNOWN, "ascending"), (_ORDER, "ascending"), *by]
        marked = marked.filter(pc.is_valid(marked.column(_RANK)))
        ordered = marked.take(pc.sort_indices(marked, sort_keys=by))
        last = ordered.append_column(_LAST, _numbers(ordered)).group_by(list(self.on)).aggregate([(_LAST, "max")])
        return ordered.column(_AT).take(last.column(f"{_LAST}_max")).combine_chunks().sort()

    def matching(self, rows: pa.Table, keys: pa.Table) -> pa.ChunkedArray:
        """Return the indices of the rows whose key is in a set of keys.

        :param rows: at least the columns `on`.
        :param keys: the columns `on` of the rows to keep.
        """
        known = rows.select(list(self.on)).append_column(_AT, _numbers(rows))
        wanted = pa.table({name: keys.column(name).cast(rows.schema.field(name).type) for name in self.on})
        return known.join(wanted, keys=list(self.on), join_type="inner").column(_AT)


def _numbers(rows: pa.Table) -> pa.Array:
    return pa.array(range(rows.num_rows), pa.int64())
