"""The cost of merging changes of random keys into an Iceberg table, compared with pyiceberg and Spark.

A table of 1,000,000 rows of 1 KiB, in files of 100 MiB, gets the changes of `benchmarks.delta_merging`. The sink keeps
the order of changes and remembers the deletes. Spark's `MERGE INTO` compares the order in its statement, and remembers
nothing: once it writes deletes (merge on read), and once it rewrites files (copy on write). pyiceberg's `upsert` gets
the changes that do not delete, and runs once. Each merge starts from a table of the same files, in a process of its
own, in turn. Spark has two cores and has run the same statement on a small table before. The seconds are those of the
commit, or of the statement. What is added to the table's folder is written.

Usage: python -m benchmarks.iceberg_merging [--rows ROWS] [--times TIMES] [--quick]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from airflow_provider_coordination.spark.sinks.iceberg.sink import IcebergSink
from airflow_provider_coordination.spark.writes.iceberg import IcebergTable
from benchmarks.delta_merging import (
    MERGE,
    Cost,
    bytes_below,
    committed,
    parts_before,
    peak_mb,
    write_changes,
)
from tests.support.sinks import catalog_in
from tests.support.table_readers import jars, other_spark

NAME = "lake.merged"
SPARK = {"merge on read": "merge-on-read", "copy on write": "copy-on-write"}
"""The modes of Spark's `MERGE INTO`, by what the report calls them."""


def write_files(folder: Path, rows: int) -> None:
    """Write the data files of a table."""
    folder.mkdir(parents=True)
    for number, part in enumerate(parts_before(rows)):
        pq.write_table(part, folder / f"{number}.parquet", compression="zstd")


def create(folder: Path, files: Path) -> Table:
    """Create a table of some files, which it shares with other tables."""
    data = folder / "files"
    shutil.copytree(files, data, copy_function=os.link)
    catalog = load_catalog("default", **catalog_in(folder))
    catalog.create_namespace_if_not_exists("lake")
    paths = sorted(map(str, data.iterdir()))
    table = catalog.create_table(NAME, pq.read_schema(paths[0]))
    table.add_files(paths)
    return table


def table_in(folder: Path) -> Table:
    """Return the table in a folder."""
    return load_catalog("default", **catalog_in(folder)).load_table(NAME)


def by_sink(folder: Path, changes: Path) -> Cost:
    """Merge by the sink."""
    given = {"table": NAME, "properties": catalog_in(folder), "merge_on": ["id"], "order_by": "version", "op": "op"}
    settings = IcebergTable.from_mapping(given)
    return committed(IcebergSink(name="main", location="iceberg://here", settings=settings), changes)


def by_pyiceberg(folder: Path, changes: Path) -> Cost:
    """Merge the changes that do not delete by pyiceberg."""
    rows = pq.read_table(changes)
    table, rows = table_in(folder), rows.filter(pc.not_equal(rows["op"], "REMOVE"))
    began = time.perf_counter()
    table.upsert(rows, join_cols=["id"])
    return Cost(time.perf_counter() - began, peak_mb())


def by_spark(mode: str, folder: Path, changes: Path) -> Cost:
    """Merge by Spark, once it has merged into a small table.

    :param mode: see `SPARK`.
    """
    path = other_spark()
    sys.path.insert(0, str(path))
    os.environ["PYTHONPATH"] = str(path)
    os.environ.pop("SPARK_HOME", None)
    from pyspark.sql import SparkSession

    small = folder.with_name("small")
    write_files(small / "before", 1000)
    create(small, small / "before")
    conf = {
        "spark.jars": jars("Iceberg's Spark", "iceberg-spark-runtime-4.1_2.13"),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        **as_catalog("small", small),
        **as_catalog("here", folder),
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        spark.read.parquet(str(changes)).createOrReplaceTempView("changes")

        def seconds(table: str) -> float:
            modes = ", ".join(f"'write.{what}.mode' = '{mode}'" for what in ("merge", "update", "delete"))
            spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({modes})")
            began = time.perf_counter()
            spark.sql(MERGE.format(table=table)).collect()
            return time.perf_counter() - began

        seconds(f"small.{NAME}")
        return Cost(seconds(f"here.{NAME}"), rows=spark.table(f"here.{NAME}").count())
    finally:
        spark.stop()


def as_catalog(name: str, folder: Path) -> dict[str, str]:
    """Let Spark find the table in a folder; return the configuration of that catalog."""
    metadata = Path(table_in(folder).metadata_location)
    shutil.copy(metadata, metadata.with_name("v1.metadata.json"))
    metadata.with_name("version-hint.text").write_text("1")
    catalog = f"spark.sql.catalog.{name}"
    warehouse = str(folder / "warehouse")
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": warehouse,
    }


def measure(merge: Callable[[Path, Path], Cost], files: Path, changes: Path) -> tuple[Cost, int]:
    """Return the cost of a merge into a table of some files, and the bytes that it writes."""
    with tempfile.TemporaryDirectory(dir=files.parent) as parent:
        folder = Path(parent) / "table"
        create(folder, files)
        size = bytes_below(folder)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            cost = process.submit(merge, folder, changes).result()
        size = bytes_below(folder) - size
        if not cost.rows:
            table = table_in(folder)
            cost = Cost(cost.seconds, cost.peak_mb, table.scan(selected_fields=("version",)).to_arrow().num_rows)
        return cost, size


def main() -> None:
    """Measure each way, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description="Measure merging into Iceberg tables.")
    parser.add_argument("--rows", type=int, default=1_000_000, help="the rows of the table")
    parser.add_argument("--times", type=int, default=3, help="how often each way is measured, but for pyiceberg")
    parser.add_argument("--quick", action="store_true", help="fewer rows, to see that everything runs")
    parser.add_argument("--without", action="append", default=[], help="a way that is left out, such as pyiceberg")
    given = parser.parse_args()
    rows, changes, times = (20_000, 2_000, 1) if given.quick else (given.rows, 100_000, given.times)
    ways: dict[str, Callable[[Path, Path], Cost]] = {
        "sink": by_sink,
        **{f"Spark, {name}": partial(by_spark, mode) for name, mode in SPARK.items()},
        "pyiceberg": by_pyiceberg,
    }
    costs: dict[str, list[tuple[Cost, int]]] = {way: [] for way in ways if way not in given.without}
    with tempfile.TemporaryDirectory() as folder:
        files, file = Path(folder) / "files", Path(folder) / "changes.parquet"
        write_files(files, rows)
        write_changes(file, rows, changes)
        for number in range(times):
            for way in costs:
                if way != "pyiceberg" or number == 0:
                    costs[way].append(measure(ways[way], files, file))
                    print(way, costs[way][-1], flush=True)
    merged = rows - changes // 5 + changes // 10
    expected = {way: rows + changes // 10 if way == "pyiceberg" else merged for way in costs}
    if any(cost.rows != expected[way] for way, each in costs.items() for cost, _ in each):
        raise SystemExit(f"the tables must have {expected} rows: {costs}")
    seconds = {way: statistics.median(cost.seconds for cost, _ in each) for way, each in costs.items()}
    written = {way: statistics.median(size for _, size in each) / 2**20 for way, each in costs.items()}
    print(f"\n{changes:,} changes of random keys in {rows:,} rows of 1 KiB\n")
    print("| by | seconds | MiB written | peak MB |\n|---|--:|--:|--:|")
    peaks = {way: max(cost.peak_mb for cost, _ in each) for way, each in costs.items()}
    for way in costs:
        print(f"| {way} | {seconds[way]:.1f} | {written[way]:.0f} | {peaks[way] or '-'} |")
    report = {
        "rows": rows,
        "seconds": {way: round(value, 2) for way, value in seconds.items()},
        "MiB written": {way: round(value) for way, value in written.items()},
        "ratio": {way: round(seconds["sink"] / value, 3) for way, value in seconds.items() if way != "sink"},
        "peak MB": {way: value for way, value in peaks.items() if value},
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
