"""The rows that a sink is to take of a batch: what was made of its records, or a table of its bad ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from airflow_provider_coordination.spark.sinks import Sink
from airflow_provider_coordination.spark.storage import join, make_folder, publish, schema_of, write_table
from airflow_provider_coordination.spark.transformation import Transformation, Transformed


@dataclass(frozen=True, kw_only=True)
class TableRows:
    """Rows that are in memory; see `Rows`.

    :param table: those of the only batch.
    """

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        """See `Rows.schema`."""
        return self.table.schema

    def count(self, batch_id: str) -> int:
        """See `Rows.count`."""
        return int(self.table.num_rows)

    def write(self, batch_ids: Collection[str], folder: str) -> Sequence[str]:
        """See `Rows.write`."""
        file = join(folder, "part-0.parquet")
        write_table(self.table, file)
        return [file]


@dataclass(frozen=True, kw_only=True)
class MadeRows:
    """Those rows of a batch, out of what was made for all sinks, that one of them takes; see `Rows`.

    :param transformation: what made them.
    :param made: what it made of the only batch.
    :param sink: the sink.
    :param number: the sink's, among those that rows are routed to.
    :param rows: how many it takes.
    """

    transformation: Transformation
    made: Transformed
    sink: Sink
    number: int
    rows: int

    @property
    def schema(self) -> pa.Schema:
        """See `Rows.schema`."""
        return pa.schema([field for field in schema_of(self.made.files[0]) if field.name not in self.made.ours])

    def count(self, batch_id: str) -> int:
        """See `Rows.count`."""
        return self.rows

    def write(self, batch_ids: Collection[str], folder: str) -> Sequence[str]:
        """See `Rows.write`: files that are for one sink alone were arranged for it, and are moved."""
        if self.made.is_for(self.number):
            return self.transformation.take(self.made, self.number, self.sink, folder)
        make_folder(folder)
        return [self._moved(file, join(folder, f"part-{n}.parquet")) for n, file in enumerate(self.made.files)]

    def _moved(self, file: str, to: str) -> str:
        publish(file, to)
        return to
