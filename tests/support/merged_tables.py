"""Tables into which rows with keys are merged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.sinks import Sink, make_sinks, owed
from airflow_provider_coordination.spark.storage import join
from tests.support.sinks import SINKS, OnServer, SinkTarget, SinkUnderTest

Row = tuple[Any, ...]
ROWS = pa.schema({"Key": pa.string(), "n": pa.int64(), "version": pa.int64(), "_batch_id": pa.string()})
CHANGES = pa.schema(
    {"Key": pa.string(), "n": pa.int64(), "version": pa.int64(), "op": pa.string(), "_batch_id": pa.string()}
)
"""The columns of rows that may delete."""
BY_CHANGES = {"order_by": "version", "op": "op"}
"""The settings of a sink into which they are merged."""
ORDERED = ("delta", "iceberg", "sql, mysql", "sql, postgresql")
"""The kinds of sinks that keep an order in the table and delete rows."""
ON_SERVER = [pytest.mark.integration, pytest.mark.share(0.5)]
ORDERED_KINDS = [pytest.param(kind, marks=ON_SERVER if isinstance(SINKS[kind], OnServer) else ()) for kind in ORDERED]
"""These kinds, as the cases of a test."""


@dataclass
class MergedRows:
    """Rows of some batches: key, value, version and what the row does; see `Rows` of sinks."""

    of: dict[str, Sequence[Row]]
    schema: pa.Schema = field(default_factory=lambda: ROWS)
    access: Access = DEFAULT_ACCESS

    def count(self, batch_id: str) -> int:
        return len(self.of[batch_id])

    def write(self, batch_ids: Collection[str], folder: str) -> dict[str, int]:
        width = len(self.schema) - 1
        rows = [(*row, *[None] * (width - len(row)), batch_id) for batch_id in batch_ids for row in self.of[batch_id]]
        columns = [dict(zip(self.schema.names, row, strict=True)) for row in rows]
        file = join(folder, "part-0.parquet")
        return {file: write_table(pa.Table.from_pylist(columns, self.schema), file, self.access)}


def a_sink(target: SinkTarget, **more: Any) -> Sink:
    settings = target.kind.settings(target.folder)
    [sink] = make_sinks([replace(settings, settings={**settings.settings, "merge_on": ["Key"], **more})])
    return sink


def deliver(sink: Sink, of: dict[str, Sequence[Row]], *attempts: Attempt, schema: pa.Schema = ROWS) -> None:
    left = owed(sink, attempts)
    sink.prepare(left, MergedRows(of, schema))
    sink.commit(left)
    sink.discard(left)


def kind_of(request: pytest.FixtureRequest) -> SinkUnderTest:
    """Return the kind of sink of a fixture's parameter, at its server if it needs one."""
    kind = SINKS[request.param]
    return kind.make(request.getfixturevalue(kind.fixture)) if isinstance(kind, OnServer) else kind
