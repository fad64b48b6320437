"""How fast Spark reads a stream with the data source, compared with a boto3 loop that passes rows to Spark.

Both read the same pages, which a server on the same machine renders in advance, and pass their records to a sink that
drops them. The data source respects Kinesis' limit of 2 MiB a second for each shard and reads all shards at once. The
plain job reads as fast as it can, one shard after another in each task; real Kinesis would refuse this. So the ratio of
the times depends on the number of shards. The ratio of processor seconds does not, once there is enough to read.

- `idle`: the duration of a read up to now that finds nothing. It waits until all records that had arrived are readable.

Usage: python -m benchmarks.data_source [--quick]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psutil
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis.progress import SETTLING
from benchmarks.landing import SLOTS, session
from benchmarks.plain_loop import plain_pages
from benchmarks.reading import PAGE_RECORDS, served

ROWS = "partitionKey STRING, data BINARY, sequenceNumber STRING, approximateArrivalTimestamp TIMESTAMP"


@dataclass(frozen=True)
class Size:
    """How much is measured.

    :param shards: with a backlog.
    :param pages: of each, at most.
    :param repetitions: of each way.
    """

    shards: int = 64
    pages: int = 10
    repetitions: int = 3


QUICK = Size(shards=2, pages=1, repetitions=1)


def by_the_source(spark: SparkSession, aws: AwsSettings, end: str) -> DataFrame:
    """Return the records that arrived before an instant."""
    options = {
        "streamName": "b",
        "region": str(aws.region),
        "endpointUrl": str(aws.endpoint_url),
        "awsAccessKey": str(aws.access_key_id),
        "awsSecretKey": str(aws.secret_access_key),
        "endingPosition": end,
    }
    return spark.read.format("coordinated_kinesis").options(**options).load()


def by_rows(spark: SparkSession, aws: AwsSettings, shards: int) -> DataFrame:
    """Return the same records as rows of a plain boto3 loop."""
    rdd = spark.sparkContext.parallelize(range(shards), SLOTS).mapPartitions(partial(plain_loop, aws))
    return spark.createDataFrame(rdd, ROWS, verifySchema=False)


def plain_loop(aws: AwsSettings, shards: Iterable[int]) -> Iterator[tuple[Any, ...]]:
    """Yield the records of shards as rows."""
    for page in plain_pages(aws, shards):
        for record in page:
            yield (
                record["PartitionKey"],
                record["Data"],
                record["SequenceNumber"],
                record["ApproximateArrivalTimestamp"],
            )


def processor_seconds() -> float:
    """Return the processor seconds of Spark: its JVM and the JVM's Python processes."""
    jvm = psutil.Process(SparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    return sum(sum(process.cpu_times()[:4]) for process in (jvm, *jvm.children(recursive=True)))


def measured(read: Callable[[], DataFrame]) -> tuple[float, float]:
    """Return the seconds of a read, and its processor seconds."""
    used, start = processor_seconds(), time.perf_counter()
    read().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start, processor_seconds() - used


def backlog(spark: SparkSession, bytes_each: int, size: Size) -> dict[str, float]:
    """Return the results of both ways for records of one size."""
    records, pages = PAGE_RECORDS[bytes_each], size.pages
    megabytes = size.shards * pages * records * bytes_each / 1e6
    found: dict[str, list[tuple[float, float]]] = {"source": [], "rows": []}
    with served(size.shards, records, bytes_each, pages) as aws:
        end = datetime.now(UTC).isoformat()
        time.sleep(SETTLING.total_seconds() + 1)
        ways = {
            "source": partial(by_the_source, spark, aws, end),
            "rows": partial(by_rows, spark, aws, size.shards),
        }
        for name, read in ways.items():
            assert read().count() == size.shards * pages * records, name
        for _ in range(size.repetitions):
            for name, read in ways.items():
                found[name].append(measured(read))
    seconds = {name: statistics.median(s for s, _ in times) for name, times in found.items()}
    processors = {name: statistics.median(p for _, p in times) for name, times in found.items()}
    return {
        "source MB/s": round(megabytes / seconds["source"], 1),
        "rows MB/s": round(megabytes / seconds["rows"], 1),
        "times as fast": round(seconds["rows"] / seconds["source"], 2),
        "source processor s/GB": round(processors["source"] / megabytes * 1000, 1),
        "rows processor s/GB": round(processors["rows"] / megabytes * 1000, 1),
        "times less processor": round(processors["rows"] / processors["source"], 2),
    }


def idle(spark: SparkSession, repetitions: int) -> float:
    """Return the seconds of a read up to now that finds nothing."""
    with served(1, 1, 1, 0) as aws:
        times = []
        for _ in range(repetitions):
            start = time.perf_counter()
            assert by_the_source(spark, aws, "LATEST").count() == 0
            times.append(time.perf_counter() - start)
    return round(statistics.median(times), 2)


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two shards with one page each, once")
    size = QUICK if parser.parse_args().quick else Size()
    spark = session()
    figures: dict[str, Any] = {f"{bytes_each} B": backlog(spark, bytes_each, size) for bytes_each in PAGE_RECORDS}
    figures["idle seconds"] = idle(spark, size.repetitions)
    spark.stop()
    for name, found in figures.items():
        print(f"{name}: {found}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
