"""The sinks of the demo, by `SINK`: the DAG's text for each one, and how to read the dataset back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TABLE = "demo.flights"
WRITES = "airflow_provider_coordination.spark.writes"
PARQUET = """ParquetDataset("{{ params.output_path }}", aws_conn_id="{{ params.output_conn_id or '' }}")"""
"""The `writes` argument of the DAG of a stream."""
FOLLOWED = 'ParquetDataset("{{ params.output_path }}")'
"""The `writes` argument of the DAG of a table that is followed."""
MERGED = 'merge_on="keys", order_by="change_order", op="operation"'
"""How a table that is followed is merged."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One kind of sink.

    :param module: the module of its class.
    :param writes: the DAG's `writes` argument, as source text; `{dataset}` is the dataset's folder.
    :param files: returns the data files that a reader of the dataset sees.
    :param reader: the library that reads the dataset back.
    :param images: returns the new images in a table that follows another one; None if rows cannot be deleted.
    """

    module: str
    writes: str
    files: Callable[[Path], Sequence[Path]]
    reader: str
    images: Callable[[Path], Sequence[str]] | None = None

    def in_followed_dag(self, text: str, dataset: Path) -> str:
        """Return the source text of the DAG that follows a table, with this sink, without a schedule.

        Its job ends once changes end.
        """
        writes = self.writes.replace(")", f", {MERGED})", 1)
        ours = Target(module=self.module, writes=writes, files=self.files, reader=self.reader)
        text = ours.in_dag(text.replace(FOLLOWED, PARQUET), dataset)
        text = text.replace('schedule="@hourly"', "schedule=None")
        return text.replace("until_caught_up=True", "until_caught_up=False, max_idle_rounds=8, idle_duration=1")

    def in_dag(self, text: str, dataset: Path) -> str:
        """Return the source text of the DAG with this sink instead of a Parquet dataset."""
        name = self.writes.partition("(")[0]
        previous, ours = f"{WRITES} import ParquetDataset", f"{self.module} import {name}"
        writes = self.writes.replace("{dataset}", str(dataset))
        return text.replace(previous, ours).replace(PARQUET, writes)


def _parquet_files(dataset: Path) -> Sequence[Path]:
    return sorted(dataset.glob("*.parquet"))


def _delta_files(dataset: Path) -> Sequence[Path]:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(dataset)):
        return []
    return [Path(uri.removeprefix("file://")) for uri in DeltaTable(dataset).file_uris()]


def _iceberg_table(dataset: Path) -> Any:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    if not (dataset / "catalog.db").exists():
        return None
    try:
        return load_catalog("default", **catalog_of(dataset)).load_table(TABLE)
    except NoSuchTableError:
        return None


def _iceberg_files(dataset: Path) -> Sequence[Path]:
    table = _iceberg_table(dataset)
    if table is None:
        return []
    return [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]


def _delta_images(dataset: Path) -> Sequence[str]:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(dataset)):
        return []
    images: list[str] = DeltaTable(dataset).to_pyarrow_table(columns=["new_image"]).column("new_image").to_pylist()
    return images


def _iceberg_images(dataset: Path) -> Sequence[str]:
    table = _iceberg_table(dataset)
    return [] if table is None else table.scan(selected_fields=("new_image",)).to_arrow()["new_image"].to_pylist()


def catalog_of(dataset: Path) -> dict[str, str]:
    """Return the catalog properties of the Iceberg table."""
    return {"type": "sql", "uri": f"sqlite:///{dataset}/catalog.db", "warehouse": str(dataset)}


TARGETS = {
    "parquet": Target(
        module=WRITES,
        writes=PARQUET,
        files=_parquet_files,
        reader="pyarrow",
    ),
    "delta": Target(
        module=WRITES,
        writes='DeltaTable("{{ params.output_path }}")',
        files=_delta_files,
        reader="deltalake",
        images=_delta_images,
    ),
    "iceberg": Target(
        module=f"{WRITES}.iceberg",
        writes=f'IcebergTable("{TABLE}", catalog={catalog_of(Path("{dataset}"))!r}),\n'
        '        landing_path="{{ params.output_path }}/_landing"',
        files=_iceberg_files,
        reader="pyiceberg",
        images=_iceberg_images,
    ),
}
"""The sinks, by name."""
