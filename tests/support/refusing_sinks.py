"""Sinks whose table refuses rows without a value, with the dead letters of these rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.layout import ITEM_RECORDS
from airflow_provider_coordination.spark.refused_rows import RefusedRows
from airflow_provider_coordination.spark.sinks import Sink, owed
from tests.support.sinks import SINKS, BatchRows, IcebergUnderTest, OnServer, SinkTarget
from tests.support.sql_tables import SqlTarget

LETTERS = "letters"
KINDS = [name for name, kind in SINKS.items() if not name.startswith("parquet")]


class RefusingTarget(SinkTarget):
    """A table whose column `n` must have a value, and a folder of dead letters beside it."""

    @property
    def letters_path(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}_{LETTERS}")

    def sink(self, *, max_share: float = 0.5, bad_records: BadRecords | None = None) -> Sink:
        """Return the sink of a new job, which sets refused rows aside."""
        sink = super().sink()
        sink.refused_rows = RefusedRows(
            str(self.letters_path),
            layout=ITEM_RECORDS,
            source="clicks",
            max_share=max_share,
            bad_records=bad_records or BadRecords(),
        )
        return sink

    @property
    def letters(self) -> dict[str, int]:
        """The number of dead letters that readers see, by batch id."""
        found: dict[str, int] = {}
        for row in self.letter_rows:
            found[row["_batch_id"]] = found.get(row["_batch_id"], 0) + 1
        return found

    @property
    def letter_rows(self) -> list[dict[str, Any]]:
        files = sorted(self.letters_path.glob("*.parquet"))
        return [row for file in files for row in pq.read_table(file).to_pylist()]

    @property
    def kept(self) -> list[str]:
        """The files of refused rows that readers do not see."""
        return [str(path) for path in (self.letters_path / "_refused").rglob("*") if path.is_file()]


def a_refusing_target(name: str, folder: Path, server_url: str = "") -> RefusingTarget:
    """Return a new table of a kind of sink that requires a value of `n`.

    :param name: the kind, as `SINKS` names it.
    :param server_url: the database, for a kind that needs one.
    """
    kind = SINKS[name]
    target = RefusingTarget(kind.make(server_url) if isinstance(kind, OnServer) else kind, folder)
    if isinstance(kind, OnServer):
        _make_table(SqlTarget(server_url, folder, folder.name))
    elif isinstance(kind, IcebergUnderTest):
        _make_iceberg(kind, folder)
    else:
        columns = [
            Field("n", PrimitiveType("long"), nullable=False),
            Field("_batch_id", PrimitiveType("string"), nullable=True),
        ]
        DeltaTable.create(str(folder), Schema(columns))
    return target


def _make_table(table: SqlTarget) -> None:
    name, key = ('VARCHAR(255) COLLATE "C"', '"Key"') if table.is_postgresql else ("VARCHAR(255)", "`Key`")
    table.run(f"DROP TABLE IF EXISTS {table.settings.table}")
    columns = f"n BIGINT NOT NULL CHECK (n < 1000), _batch_id {name}, {key} {name} UNIQUE"
    table.run(f"CREATE TABLE {table.settings.table} ({columns})")
    table.run("DROP TABLE IF EXISTS _coordination_batches")


def _make_iceberg(kind: IcebergUnderTest, folder: Path) -> None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.types import LongType, NestedField, StringType

    folder.mkdir(parents=True, exist_ok=True)
    catalog = load_catalog("default", **kind.properties(folder))
    catalog.create_namespace_if_not_exists("lake")
    fields = NestedField(1, "n", LongType(), required=True), NestedField(2, "_batch_id", StringType(), required=False)
    catalog.create_table("lake.clicks", IcebergSchema(*fields))


def deliver(sink: Sink, attempts: Sequence[Attempt], values: dict[str, Any]) -> None:
    """Deliver batches as a job does: it prepares what the sink lacks, and commits all of them."""
    sink.prepare(owed(sink, attempts), BatchRows(values, sink.access))
    sink.commit(attempts)
    sink.discard(attempts)
