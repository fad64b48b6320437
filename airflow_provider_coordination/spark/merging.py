"""Rows that replace or delete the rows of a table with the same key: which are valid, and which of several is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.spark.delivery import DeliveryError, MissingColumnError
from airflow_provider_coordination.spark.layout import BATCH_ID

if TYPE_CHECKING:
    from airflow_provider_coordination.spark.writes import MergingSink

DELETES = ("d", "delete", "remove")
"""The operations that delete the row of their key, as change streams name them, in any case."""
REPLACES = ("c", "create", "i", "insert", "modify", "r", "read", "u", "update", "upsert")
"""The operations that replace the row of their key."""

ROW, CHANGE = "_coordination_row", "_coordination_change"
"""The columns of `Merging.pairs`."""

_AT, _RANK, _KNOWN, _ORDER, _LAST = (f"_coordination_{name}" for name in ("at", "rank", "known", "order", "last"))


@dataclass(frozen=True, kw_only=True)
class Merging:
    """How rows are merged into a table.

    :param on: the columns that identify a row; empty if every row is added.
    :param order_by: the column whose greatest value decides between rows with the same key.
    :param op: the column that says whether a row deletes the row of its key.
    """

    on: tuple[str, ...] = ()
    order_by: str | None = None
    op: str | None = None

    @classmethod
    def of(cls, settings: MergingSink) -> Merging:
        """Return how the rows of a sink are merged."""
        return cls(on=settings.merge_on, order_by=settings.order_by, op=settings.op)

    def __bool__(self) -> bool:
        """Return whether rows are merged at all."""
        return bool(self.on)

    @property
    def columns(self) -> list[str]:
        """The columns that merging reads."""
        return list(dict.fromkeys([*self.on, *(name for name in (self.order_by, self.op) if name), BATCH_ID]))

    @property
    def compared(self) -> list[str]:
        """The columns by which a row of the table is compared with a change."""
        return [*self.on, *(() if self.order_by is None else (self.order_by,))]

    @property
    def required(self) -> dict[str, Sequence[str]]:
        """The columns that rows must have, by the field that names them; see `Sink.required_columns`."""
        return {
            "'merge_on'": self.on,
            "'order_by'": () if self.order_by is None else (self.order_by,),
            "'op'": () if self.op is None else (self.op,),
        }

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
        """Check batches: no key is null, each operation is known, and without an order each key is once in a batch.

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
        if self.op is not None and (first := rows.filter(self.unknown(rows)).slice(0, 1).to_pylist()):
            raise DeliveryError(
                f"batch {first[0][BATCH_ID]}: column {self.op!r}, the 'op' of {table}, is {first[0][self.op]!r}, "
                f"which is not a known operation; let the transform write one of {', '.join((*DELETES, *REPLACES))}"
            )
        if self.order_by is not None:
            self._check_order(rows, table)
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

    def _check_order(self, rows: pa.Table, table: str) -> None:
        """Check that the values of `order_by` have an order: nested values and NaN have none."""
        order = rows.column(self.order_by)
        if pa.types.is_nested(order.type) or pa.types.is_boolean(order.type):
            raise DeliveryError(
                f"column {self.order_by!r}, the 'order_by' of {table}, is {order.type}, which has no order; let the "
                "transform make it a number, a decimal, a text, a date or an instant"
            )
        if pa.types.is_floating(order.type) and (nan := rows.filter(pc.is_nan(order)).slice(0, 1).to_pylist()):
            raise DeliveryError(
                f"batch {nan[0][BATCH_ID]}: column {self.order_by!r}, the 'order_by' of {table}, is NaN, which has no "
                "order; let the transform make it a number or null, which is the smallest"
            )

    def unknown(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return for each row whether its operation is not known; null replaces the row of its key.

        :param rows: at least the column `op`.
        """
        operations = _lower(rows.column(self.op))
        return pc.and_(pc.is_valid(operations), pc.invert(_among(operations, (*DELETES, *REPLACES))))

    def deletes(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return for each row whether it deletes the row of its key.

        :param rows: at least the column `op`, if there is one.
        """
        if self.op is None:
            return pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
        return _among(_lower(rows.column(self.op)), DELETES)

    def kept(self, rows: pa.Table, batch_ids: Sequence[str]) -> pa.Array:
        """Return the indices of the rows to keep: the last row of each key.

        :param rows: at least `columns` of rows.
        :param batch_ids: the batches of the commit, in the order that decides if `order_by` does not; rows of other
            batches are left out.
        """
        marked = rows.select(list(self.on)).append_column(_AT, positions(rows))
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
        last = ordered.append_column(_LAST, positions(ordered)).group_by(list(self.on)).aggregate([(_LAST, "max")])
        return ordered.column(_AT).take(last.column(f"{_LAST}_max")).combine_chunks().sort()

    def pairs(self, rows: pa.Table, changes: pa.Table) -> pa.Table:
        """Return the positions of rows, and of the changes with the same key, in the columns `ROW` and `CHANGE`.

        :param rows: at least the columns `on`.
        :param changes: at least the columns `on`.
        """
        keys = list(self.on)
        both = [rows.select(keys), changes.select(keys)]
        columns = pa.unify_schemas([each.schema.remove_metadata() for each in both], promote_options="permissive")
        known, changed = (each.cast(columns) for each in both)
        found = pc.index_in(known.column(0), value_set=changed.column(0).combine_chunks())
        known = known.append_column(ROW, positions(known)).filter(pc.is_valid(found))
        if len(keys) == 1:  # much faster than a join
            return pa.table({ROW: known.column(ROW), CHANGE: found.drop_null().cast(pa.int64())})
        changed = changed.append_column(CHANGE, positions(changed))
        return known.join(changed, keys=keys, join_type="inner").select([ROW, CHANGE])

    def matching(self, rows: pa.Table, keys: pa.Table) -> pa.ChunkedArray:
        """Return the positions of the rows whose key is in a set of keys.

        :param rows: at least the columns `on`.
        :param keys: at least the columns `on`, each key once.
        """
        return self.pairs(rows, keys).column(ROW)

    def outranks(self, rows: pa.Table, changes: pa.Table, pairs: pa.Table) -> pa.ChunkedArray:
        """Return for each pair whether the row has a greater order than the change, which then loses.

        :param rows: if they lack the column `order_by`, no row has an order.
        :param changes: at least the column `order_by`, if there is one.
        :param pairs: see `pairs`.
        """
        if self.order_by is None or self.order_by not in rows.column_names:
            return pa.chunked_array([pa.repeat(pa.scalar(False), pairs.num_rows)])
        order = rows.column(self.order_by).take(pairs.column(ROW))
        other = changes.column(self.order_by).take(pairs.column(CHANGE))
        return pc.and_kleene(pc.is_valid(order), pc.or_kleene(pc.is_null(other), pc.greater(order, other)))


def positions(rows: pa.Table, first: int = 0) -> pa.Array:
    """Return the positions of rows.

    :param first: the position of the first row.
    """
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows), start=first - 1)


def _lower(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_lower(pc.utf8_trim_whitespace(values.cast(pa.string())))


def _among(values: pa.ChunkedArray, operations: Sequence[str]) -> pa.ChunkedArray:
    return pc.is_in(values, value_set=pa.array(operations, pa.string()))
