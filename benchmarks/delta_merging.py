"""The cost of merging changes of random keys into a Delta table, compared with Spark's `MERGE INTO`.

A table of 1,000,000 rows of 1 KiB, in files of 100 MiB, gets 100,000 changes: seven of ten replace a row, two delete
one, and one adds one. The sink keeps the order of changes and remembers the deletes; Spark compares the order in its
statement, and remembers nothing. The third way is the sink with the `MERGE` of the library `deltalake`, as for a table
with a change feed. Each merge starts from the same table, in a process of its own, the three in turn. Spark has two
cores and has run the same statement on a small table before. The seconds are those of the commit, or of the statement.
What is added to the table's folder is written.

Usage: python -m benchmarks.delta_merging [--rows 1000000] [--times 3] [--quick]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark import writes
from airflow_provider_coordination.spark.sinks import Rows, Sink
from airflow_provider_coordination.spark.sinks.delta import sink as sinks
from airflow_provider_coordination.spark.sinks.delta.sink import DeltaSink
from tests.support.sinks import an_attempt
from tests.support.table_readers import DELTA, jars

FILE_BYTES = 100 * 2**20
PAYLOAD_BYTES = 1024
MERGE = """
MERGE INTO {table} t USING changes s ON t.id = s.id
WHEN MATCHED AND s.op = 'REMOVE' AND (t.version IS NULL OR s.version >= t.version) THEN DELETE
WHEN MATCHED AND s.op <> 'REMOVE' AND (t.version IS NULL OR s.version >= t.version) THEN UPDATE SET *
WHEN NOT MATCHED AND s.op <> 'REMOVE' THEN INSERT *
"""


@dataclass(frozen=True)
class Cost:
    """What a merge costs.

    :param seconds: of the commit.
    :param peak_mb: the most memory of the process, in MB; 0 if it is not measured.
    :param rows: the rows of the table after it; 0 if they are not counted with it.
    """

    seconds: float
    peak_mb: int = 0
    rows: int = 0


def rows_of(ids: Collection[int], version: int, operations: Collection[str]) -> pa.Table:
    """Return rows with random payloads."""
    randomness = random.Random(version)
    payloads = [randomness.randbytes(PAYLOAD_BYTES) for _ in ids]
    return pa.table(
        {
            "id": [f"key-{each:09}" for each in ids],
            "version": pa.array([version] * len(ids), pa.int64()),
            "op": list(operations),
            "payload": payloads,
            "_batch_id": ["a-1" if version > 1 else "before"] * len(ids),
        }
    )


def parts_before(rows: int) -> Iterator[pa.Table]:
    """Yield the rows of each file of the table; its files have all keys at random."""
    ids = list(range(rows))
    random.Random(0).shuffle(ids)
    step = min(rows, FILE_BYTES // PAYLOAD_BYTES)
    for first in range(0, rows, step):
        part = ids[first : first + step]
        yield rows_of(part, 1, ["INSERT"] * len(part))


def write_before(folder: Path, rows: int) -> None:
    """Create the table."""
    for part in parts_before(rows):
        write_deltalake(folder, part, mode="append")


def write_changes(file: Path, rows: int, changes: int) -> None:
    """Write changes of random keys to a file."""
    randomness = random.Random(1)
    added = changes // 10
    ids = [*randomness.sample(range(rows), changes - added), *range(rows, rows + added)]
    operations = ["REMOVE" if number < changes // 5 else "MODIFY" for number in range(changes)]
    pq.write_table(rows_of(ids, 2, operations), file)


@dataclass(frozen=True)
class ChangeFile(Rows):
    """The changes of a delivery; see `Rows`."""

    file: Path

    @property
    @override
    def schema(self) -> pa.Schema:
        return pq.read_schema(self.file)

    @override
    def count(self, batch_id: str) -> int:
        return int(pq.read_metadata(self.file).num_rows)

    @override
    def write(self, batch_ids: Collection[str], folder: str) -> dict[str, int]:
        target = Path(folder) / "part-0.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.file, target)
        return {str(target): target.stat().st_size}


def by_sink(table: Path, changes: Path) -> Cost:
    """Merge by the sink."""
    settings = writes.DeltaTable(str(table), merge_on=("id",), order_by="version", op="op")
    return committed(DeltaSink(name="main", path=str(table), settings=settings), changes)


def committed(sink: Sink, changes: Path) -> Cost:
    """Deliver changes to a sink; return what the commit costs."""
    attempt = an_attempt("a-1")
    sink.prepare([attempt], ChangeFile(changes))
    began = time.perf_counter()
    sink.commit([attempt])
    seconds = time.perf_counter() - began
    sink.discard([attempt])
    return Cost(seconds, peak_mb())


def peak_mb() -> int:
    """Return the most memory that this process had, in MB.

    `ru_maxrss` would begin with the memory of the process that started this one.
    """
    [line] = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM:")]
    return int(line.split()[1]) // 1024


def by_library(table: Path, changes: Path) -> Cost:
    """Merge by the sink, with the library's `MERGE`."""
    with patch.object(sinks, "is_plain", lambda table: False):
        return by_sink(table, changes)


def by_spark(table: Path, changes: Path) -> Cost:
    """Merge by Spark, once it has merged into a small table."""
    from pyspark.sql import SparkSession

    conf = {**DELTA, "spark.jars": jars("Delta's Spark", "delta-spark_4.2_2.13", "delta-storage")}
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "4g")
    for name, value in {**conf, "spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "false"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        small = table.with_name("small")
        write_before(small, 1000)

        def seconds(target: Path) -> float:
            spark.read.parquet(str(changes)).createOrReplaceTempView("changes")
            began = time.perf_counter()
            spark.sql(MERGE.format(table=f"delta.`{target}`")).collect()
            return time.perf_counter() - began

        seconds(small)
        return Cost(seconds(table))
    finally:
        spark.stop()


def bytes_below(folder: Path) -> int:
    """Return the size of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def measure(merge: Callable[[Path, Path], Cost], before: Path, changes: Path) -> tuple[Cost, int, int]:
    """Return the cost of a merge into a table, the bytes that it writes, and the rows that are left.

    :param before: the table. Its files never change, so the merge gets second names of them.
    """
    with tempfile.TemporaryDirectory(dir=before.parent) as folder:
        table = Path(folder) / "table"
        shutil.copytree(before, table, copy_function=os.link)
        size = bytes_below(table)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            cost = process.submit(merge, table, changes).result()
        return cost, bytes_below(table) - size, DeltaTable(table).count()


WAYS = {"sink": by_sink, "library": by_library, "spark": by_spark}


def main() -> None:
    """Measure each way, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description="Measure merging into Delta tables.")
    parser.add_argument("--quick", action="store_true", help="fewer rows, to see that everything runs")
    parser.add_argument("--rows", type=int, default=1_000_000, help="the number of rows of the table")
    parser.add_argument("--times", type=int, default=3, help="how often each way is measured")
    options = parser.parse_args()
    rows, changes, times = (20_000, 2_000, 1) if options.quick else (options.rows, 100_000, options.times)
    costs: dict[str, list[tuple[Cost, int, int]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        before, file = Path(folder) / "before", Path(folder) / "changes.parquet"
        write_before(before, rows)
        write_changes(file, rows, changes)
        for _ in range(times):
            for way, merge in WAYS.items():
                costs[way].append(measure(merge, before, file))
    expected = rows - changes // 5 + changes // 10
    if any(left != expected for each in costs.values() for _, _, left in each):
        raise SystemExit(f"the tables must have {expected} rows: {costs}")
    seconds = {way: statistics.median(cost.seconds for cost, _, _ in each) for way, each in costs.items()}
    written = {way: statistics.median(size for _, size, _ in each) / 2**20 for way, each in costs.items()}
    peak = {way: max(cost.peak_mb for cost, _, _ in each) for way, each in costs.items()}
    print(f"{changes:,} changes of random keys in {rows:,} rows of 1 KiB\n")
    print("| by | seconds | MiB written | peak MB |\n|---|--:|--:|--:|")
    for way in costs:
        print(f"| {way} | {seconds[way]:.1f} | {written[way]:.0f} | {peak[way] or ''} |")
    report = {
        "rows": rows,
        "seconds": {way: round(value, 2) for way, value in seconds.items()},
        "MiB written": {way: round(value) for way, value in written.items()},
        "to Spark": {way: round(seconds[way] / seconds["spark"], 2) for way in ("sink", "library")},
        "peak MB": {way: peak[way] for way in ("sink", "library")},
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
