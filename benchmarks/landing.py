"""How fast records of Kinesis pages are written to Parquet: our landing and two other ways, in one run.

The pages are made in each worker and never cross a network. So the benchmark measures only our code: expanding,
columns, files, and copies of the bytes.

- `landing`: slots write Parquet themselves (as the job does).
- `through the JVM`: slots pass the same Arrow batches to Spark, which writes Parquet.
- `rows`: slots pass Python rows to Spark, which writes Parquet (as a plain RDD or Row reader does).

Usage: python benchmarks/landing.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis import fan_out
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart, ShardPage
from airflow_provider_coordination.sources.kinesis.records import KinesisRecord, KinesisRecords
from airflow_provider_coordination.sources.kinesis.user_records import user_records
from airflow_provider_coordination.spark.job_spark import SPARK_CONF, set_worker_environment
from airflow_provider_coordination.spark.kinesis import landing
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan
from tests.support.aggregation import aggregate

SLOTS = 2
PAGES = 5
EVENTS, EVENT_BYTES = 100, 200
ARRIVAL = datetime(2026, 1, 1, tzinfo=UTC)

MakePages = Callable[[], list[ShardPage]]


def pages(records: int) -> list[ShardPage]:
    """Return pages as GetRecords returns them, each with this number of aggregated records."""
    data = aggregate([(f"key-{n}", os.urandom(EVENT_BYTES // 2).hex().encode()) for n in range(EVENTS)])
    return [
        ShardPage(
            records=[KinesisRecord(str(10**55 + page * records + n), "key", ARRIVAL, data) for n in range(records)],
            millis_behind_latest=1000,
            end_of_shard=page == PAGES - 1,
            children=(),
            read_at=ARRIVAL,
        )
        for page in range(PAGES)
    ]


def land(make: MakePages, root: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Land a slot's pages as the job does."""
    made = make()
    fan_out.read_shard = lambda *arguments, **options: (page for page in made)  # type: ignore[attr-defined]
    options = ShardLandingOptions(
        kinesis=AwsSettings(), root=root, seconds=1e6, max_bytes=2**60, slot_memory_bytes=2**29
    )
    for batch in batches:
        for slot in batch.column(0).to_pylist():
            plan = ShardReadPlan(
                source_identifier="b|PARTITION",
                partition_key=f"b:1:shard-{slot}",
                fencing_token=1,
                stream="b",
                shard_id=f"shard-{slot}",
                start=BatchStart(position="TRIM_HORIZON"),
            )
            landed = landing.land_shard(None, options, plan)
            assert landed.error is None, landed.error
            yield pa.RecordBatch.from_pydict({"records": pa.array([landed.records], pa.int64())})


def pass_batches(make: MakePages, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass a slot's pages to the JVM as Arrow batches."""
    made = make()
    for _ in batches:
        for page in made:
            yield user_records(KinesisRecords.of(page.records)).columns


def rows(make: MakePages, slots: Iterable[int]) -> Iterator[tuple[Any, ...]]:
    """Pass a slot's pages to the JVM row by row."""
    made = make()
    for _ in slots:
        for page in made:
            columns = user_records(KinesisRecords.of(page.records)).columns
            yield from (tuple(row.values()) for row in columns.to_pylist())


def session() -> SparkSession:
    """Return a session as the job has it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{SLOTS}]")
    for name, value in {**SPARK_CONF, "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    set_worker_environment(spark.sparkContext)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def measure(ways: dict[str, Callable[[str], None]], repetitions: int) -> dict[str, float]:
    """Return the median seconds of each way, run in turn; the first turn warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        for repetition in range(repetitions + 1):
            for name, way in ways.items():
                start = time.perf_counter()
                way(str(Path(folder) / f"{name}-{repetition}"))
                if repetition:
                    seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, two repetitions")
    records, repetitions = (40, 2) if parser.parse_args().quick else (400, 5)
    make = partial(pages, records)
    spark = session()
    slots = spark.range(0, SLOTS, 1, SLOTS)
    schema = ", ".join(f"{name} {kind}" for name, kind in SCHEMA)

    def in_worker(target: str) -> None:
        slots.mapInArrow(partial(land, make, target), "records long").collect()

    def through_jvm(target: str) -> None:
        slots.mapInArrow(partial(pass_batches, make), schema).write.parquet(target, compression="zstd")

    def as_rows(target: str) -> None:
        rdd = spark.sparkContext.parallelize(range(SLOTS), SLOTS).mapPartitions(partial(rows, make))
        spark.createDataFrame(rdd, schema, verifySchema=False).write.parquet(target, compression="zstd")

    medians = measure({"landing": in_worker, "through the JVM": through_jvm, "rows": as_rows}, repetitions)
    spark.stop()
    total = SLOTS * PAGES * records * EVENTS
    print(f"{total:,} events of {EVENT_BYTES} bytes, {EVENTS} to a record, {SLOTS} slots, medians of {repetitions}:")
    for name, median in medians.items():
        print(f"  {name:<16} {median:6.2f} s  {total / median / 1e3:8.0f} k events/s")
    figures = {
        "events": total,
        "median_seconds": {name: round(median, 3) for name, median in medians.items()},
        "times_faster_than_jvm": round(medians["through the JVM"] / medians["landing"], 2),
        "times_faster_than_rows": round(medians["rows"] / medians["landing"], 2),
    }
    print(json.dumps(figures))


SCHEMA = [
    ("sequence_number", "string"),
    ("sub_sequence_number", "long"),
    ("partition_key", "string"),
    ("approximate_arrival_timestamp", "timestamp"),
    ("data", "binary"),
]


if __name__ == "__main__":
    main()
