"""Tables into which rows with keys are merged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.sinks import Sink, make_sinks, owed
from airflow_provider_coordination.spark.storage import join
from tests.support.sinks import SinkTarget

Row = tuple[Any, ...]


@dataclass
class MergedRows:
    """Rows of some batches: key, value and time of the change; see `Rows` of sinks."""

    of: dict[str, Sequence[Row]]
    schema: pa.Schema = field(
        default_factory=lambda: pa.schema(
            {"Key": pa.string(), "n": pa.int64(), "version": pa.int64(), "_batch_id": pa.string()}
        )
    )

    def count(self, batch_id: str) -> int:
        return len(self.of[batch_id])

    def write(self, batch_ids: Collection[str], folder: str) -> dict[str, int]:
        rows = [(*row, *[None] * (3 - len(row)), batch_id) for batch_id in batch_ids for row in self.of[batch_id]]
        columns = [dict(zip(self.schema.names, row, strict=True)) for row in rows]
        file = join(folder, "part-0.parquet")
        return {file: write_table(pa.Table.from_pylist(columns, self.schema), file)}


def a_sink(target: SinkTarget, **more: Any) -> Sink:
    settings = target.kind.settings(target.folder)
    [sink] = make_sinks([replace(settings, settings={**settings.settings, "merge_on": ["Key"], **more})])
    return sink


def deliver(sink: Sink, of: dict[str, Sequence[Row]], *attempts: Attempt) -> None:
    left = owed(sink, attempts)
    sink.prepare(left, MergedRows(of))
    sink.commit(left)
    sink.discard(left)
