"""The sinks of the demo, by `SINK`: the DAG's text for each one, and how to read the dataset back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TABLE = "demo.flights"
PARQUET = """ParquetDataset("{{ params.output_path }}", aws_conn_id="{{ params.output_conn_id or '' }}")"""
"""The `writes` argument of the DAG."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One kind of sink.

    :param module: the module in `spark.writes`.
    :param writes: the DAG's `writes` argument, as source text; `{dataset}` is the dataset's folder.
    :param files: returns the data files that a reader of the dataset sees.
    :param reader: the library that reads the dataset back.
    """

    module: str
    writes: str
    files: Callable[[Path], Sequence[Path]]
    reader: str

    def in_dag(self, text: str, dataset: Path) -> str:
        """Return the source text of the DAG with this sink instead of a Parquet dataset."""
        name = self.writes.partition("(")[0]
        if self.module == "parquet":
            return text
        previous = "airflow_provider_coordination.spark.writes import ParquetDataset"
        ours = f"airflow_provider_coordination.spark.writes.{self.module} import {name}"
        writes = self.writes.replace("{dataset}", str(dataset))
        return text.replace(previous, ours).replace(PARQUET, writes)


def _parquet_files(dataset: Path) -> Sequence[Path]:
    return sorted(dataset.glob("*.parquet"))


def _delta_files(dataset: Path) -> Sequence[Path]:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(dataset)):
        return []
    return [Path(uri.removeprefix("file://")) for uri in DeltaTable(dataset).file_uris()]


def _iceberg_files(dataset: Path) -> Sequence[Path]:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    if not (dataset / "catalog.db").exists():
        return []
    try:
        table: Any = load_catalog("default", **catalog_of(dataset)).load_table(TABLE)
    except NoSuchTableError:
        return []
    return [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]


def catalog_of(dataset: Path) -> dict[str, str]:
    """Return the catalog properties of the Iceberg table."""
    return {"type": "sql", "uri": f"sqlite:///{dataset}/catalog.db", "warehouse": str(dataset)}


TARGETS = {
    "parquet": Target(
        module="parquet",
        writes=PARQUET,
        files=_parquet_files,
        reader="pyarrow",
    ),
    "delta": Target(
        module="delta",
        writes='DeltaTable("{{ params.output_path }}")',
        files=_delta_files,
        reader="deltalake",
    ),
    "iceberg": Target(
        module="iceberg",
        writes=f'IcebergTable("{TABLE}", catalog={catalog_of(Path("{dataset}"))!r}),\n'
        '        landing_path="{{ params.output_path }}/_landing"',
        files=_iceberg_files,
        reader="pyiceberg",
    ),
}
"""The sinks, by name."""
