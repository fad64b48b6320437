"""The processor time of reading Kinesis, compared with other readers.

It is the user and system time of the processes that read, without the server, whose pages are rendered in advance.
Every way has read everything before, so start-up costs do not count. User records have 200 bytes and 1 KiB, plain
and a hundred to an aggregate:

- `landing`: a slot's landing in one process, into Parquet.
- `ceiling`: signed HTTP, typed decoding, the digests of aggregates and Parquet in one process, and nothing else;
  aggregates are written unchanged.
- `loop`: boto3 in one process, one shard after another; dictionaries become tables, and these Parquet.
  `aws_kinesis_agg` expands aggregates.
- `rows`: the same loop passes rows to Spark, which writes Parquet: the JVM and its workers.
- `KCL`: the Kinesis Client Library for Java, which counts bytes and keeps none; skipped if `python -m
  benchmarks.kcl` has not fetched it.

Usage: python -m benchmarks.reading_cost [--quick]
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.pool import Pool
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis.aggregation import HASH_KEYS, HashKeyRange
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions
from airflow_provider_coordination.spark.kinesis.landing import _land_slot
from benchmarks.data_source import ROWS, processor_seconds
from benchmarks.kcl import KCL, Counting
from benchmarks.landing import SLOTS, session
from benchmarks.plain_loop import plain_pages
from benchmarks.reading import PAGE_RECORDS, land_raw, served, workers
from tests.support.read_plans import read_plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USERS = 100
"""The number of user records of an aggregate."""
Way = Callable[[AwsSettings, str], tuple[int, float]]
"""Reads all pages of a server into a folder; returns the number of user records, and the processor seconds."""


@dataclass(frozen=True)
class Size:
    """How much is measured.

    :param shards: of the stream.
    :param pages: of each.
    :param repetitions: of each way.
    :param warm_ups: runs before these, for Java's compiler.
    """

    shards: int = 8
    pages: int = 3
    repetitions: int = 3
    warm_ups: int = 3

    def records(self, bytes_each: int) -> int:
        """Return the number of user records."""
        return self.shards * self.pages * PAGE_RECORDS[bytes_each]


QUICK = Size(shards=1, pages=1, repetitions=1, warm_ups=1)


def landing(shards: int, aws: AwsSettings, folder: str) -> tuple[int, float]:
    """Land as a Spark task does, in this process."""
    options = ShardLandingOptions(kinesis=aws, root=folder, seconds=60, max_bytes=2**40, slot_memory_bytes=512 * 2**20)
    step = HASH_KEYS // shards
    plans = [
        replace(plan, hash_keys=HashKeyRange(number * step, (number + 1) * step - 1))
        for number, plan in enumerate(read_plans(shards))
    ]
    start = time.process_time()
    landed = _land_slot(options, plans)
    spent = time.process_time() - start
    assert not any(row.error for row in landed), landed
    return sum(row.records for row in landed), spent


def ceiling(shards: int, users: int, aws: AwsSettings, folder: str) -> tuple[int, float]:
    """Land with the minimum of work, in this process."""
    start = time.process_time()
    read = land_raw(aws, folder, range(shards))
    return read * users, time.process_time() - start


def loop(shards: int, aggregated: bool, aws: AwsSettings, folder: str) -> tuple[int, float]:
    """Read with boto3 and write with pyarrow, in this process."""
    start = time.process_time()
    written, writer = 0, None
    for records in user_records(aws, range(shards), aggregated=aggregated):
        table = pa.Table.from_pylist(records)
        writer = writer or pq.ParquetWriter(f"{folder}/loop.parquet", table.schema, compression="zstd")
        writer.write_table(table)
        written += len(table)
    assert writer is not None
    writer.close()
    return written, time.process_time() - start


def user_records(aws: AwsSettings, shards: Iterable[int], *, aggregated: bool) -> Iterator[list[dict[str, Any]]]:
    """Yield the user records of each page as dictionaries, as in a plain loop."""
    if not aggregated:
        yield from plain_pages(aws, shards)
        return
    from aws_kinesis_agg.deaggregator import iter_deaggregate_records

    for page in plain_pages(aws, shards):
        yield [
            {
                "PartitionKey": user["partitionKey"],
                "Data": base64.b64decode(user["data"]),
                "SequenceNumber": user["sequenceNumber"],
                "ApproximateArrivalTimestamp": user["approximateArrivalTimestamp"],
            }
            for user in (record["kinesis"] for record in iter_deaggregate_records(page, data_format="Boto3"))
        ]


def rows(spark: SparkSession, shards: int, aggregated: bool, aws: AwsSettings, folder: str) -> tuple[int, float]:
    """Read with boto3 in Spark's workers and write with Spark."""
    start = processor_seconds()
    rdd = spark.sparkContext.parallelize(range(shards), SLOTS).mapPartitions(partial(rows_of, aws, aggregated))
    spark.createDataFrame(rdd, ROWS, verifySchema=False).write.parquet(f"{folder}/rows", compression="zstd")
    spent = processor_seconds() - start
    return spark.read.parquet(f"{folder}/rows").count(), spent


def rows_of(aws: AwsSettings, aggregated: bool, shards: Iterable[int]) -> Iterator[tuple[Any, ...]]:
    """Yield user records as rows."""
    for records in user_records(aws, shards, aggregated=aggregated):
        for record in records:
            yield (
                record["PartitionKey"],
                record["Data"],
                record["SequenceNumber"],
                record["ApproximateArrivalTimestamp"],
            )


def measured(ways: Mapping[str, Way], bytes_each: int, users: int, size: Size) -> dict[str, float]:
    """Return the milliseconds a MB of each way, and the median ratio of each other way to `landing`."""
    records = size.records(bytes_each)
    spent: dict[str, list[float]] = {name: [] for name in ways}
    with served(size.shards, PAGE_RECORDS[bytes_each], bytes_each, size.pages, users) as aws:
        for repetition in range(size.warm_ups + size.repetitions):
            for name, way in ways.items():
                with tempfile.TemporaryDirectory() as folder:
                    read, seconds = way(aws, folder)
                assert read == records, f"{name} read {read} of {records} records"
                print(f"  {name}: {seconds:.2f} s", file=sys.stderr, flush=True)
                if repetition >= size.warm_ups:
                    spent[name].append(seconds)
    milliseconds = {name: statistics.median(each) * 1e9 / (records * bytes_each) for name, each in spent.items()}
    ratios = {
        name: statistics.median(theirs / ours for theirs, ours in zip(each, spent["landing"], strict=True))
        for name, each in spent.items()
    }
    del ratios["landing"]
    return {
        **{f"{name} ms/MB": round(each, 2) for name, each in milliseconds.items()},
        **{f"times {name}": round(each, 2) for name, each in ratios.items()},
    }


def in_a_process(pool: Pool, way: Way, aws: AwsSettings, folder: str) -> tuple[int, float]:
    """Read in another process, which stays alive."""
    return pool.apply(way, (aws, folder))


def by_the_kcl(library: Counting, records: int, bytes_each: int, aws: AwsSettings, folder: str) -> tuple[int, float]:
    """Count bytes with the Kinesis Client Library."""
    read, counted, seconds = library.read(aws.endpoint_url, records)
    assert int(counted) == records * bytes_each, f"it counted {counted} bytes of {records} records of {bytes_each}"
    return int(read), float(seconds)


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one shard with one page, once, without the KCL")
    quick = parser.parse_args().quick
    size = QUICK if quick else Size()
    figures: dict[str, dict[str, float]] = {}
    spawn = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        ours, least = (stack.enter_context(workers(1)) for _ in range(2))
        plain = stack.enter_context(spawn.Pool(1))
        spark = session()
        stack.callback(spark.stop)
        library = stack.enter_context(Counting(KCL)) if KCL.is_fetched and not quick else None
        for bytes_each in PAGE_RECORDS:
            for users in (1, USERS):
                aggregated = users > 1
                ways: dict[str, Way] = {
                    "landing": partial(in_a_process, ours, partial(landing, size.shards)),
                    "ceiling": partial(in_a_process, least, partial(ceiling, size.shards, users)),
                    "loop": partial(in_a_process, plain, partial(loop, size.shards, aggregated)),
                    "rows": partial(rows, spark, size.shards, aggregated),
                }
                if library is not None:
                    ways["KCL"] = partial(by_the_kcl, library, size.records(bytes_each), bytes_each)
                name = f"{bytes_each} B{', aggregated' if aggregated else ''}"
                figures[name] = measured(ways, bytes_each, users, size)
                print(f"{name}: {figures[name]}", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
