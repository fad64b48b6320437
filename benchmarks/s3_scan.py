"""How fast many small objects of S3 are found and delivered, compared with a plain listing and plain Spark, in one run.

- discovery: our supplier, including claims and partitions in a SQLite store. It is compared with a paginated listing by
  a default boto3 client, and by our client, which parses instants faster; both drop the result. The growth of a process
  is measured with all objects and with a tenth of them.
- delivery: a job of ours, from the first lease to the last acknowledgment. It is compared with
  `spark.read.json(...).write.parquet` of the same objects in the same session, by Hadoop's S3A, with the same columns
  and including its own listing.

The objects are JSON lines on a SeaweedFS on this machine. Spark's `--packages` fetches S3A.

Usage: python benchmarks/s3_scan.py [--quick] [--objects N] [--repetitions N] [--deliver-a-tenth]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.objects import s3_client
from airflow_provider_coordination.sources.s3.reader import ObjectReader
from airflow_provider_coordination.sources.s3.scan import S3Scan
from airflow_provider_coordination.spark.ingestion_job import IngestionJob
from airflow_provider_coordination.spark.item_reading import ItemReading
from airflow_provider_coordination.spark.job_spark import SPARK_CONF, JobSpark
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.sink_settings import MAIN, PARQUET, SinkSettings
from airflow_provider_coordination.spark.sinks.parquet import ParquetLandedDelivery
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support.s3_server import S3Server

SLOTS = 2
OBJECTS, QUICK_OBJECTS = 100_000, 2_000
RECORDS = 10
FOLDERS = 100
BUCKET = "benchmark"
PATH = f"s3://{BUCKET}/in/"
COLUMNS = "id BIGINT, name STRING, price DOUBLE"
HADOOP_AWS, AWS_SDK = "3.5.0", "2.35.4"
PACKAGES = [
    f"org.apache.hadoop:hadoop-aws:{HADOOP_AWS}",
    *(
        f"software.amazon.awssdk:{name}:{AWS_SDK}"
        for name in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client", "url-connection-client")
    ),
]
"""S3A, with the parts of the AWS SDK that it uses here instead of the whole SDK in an archive of 600 MB."""


# The objects


def upload(aws: AwsSettings, numbers: range) -> None:
    """Put some of the objects."""
    client = s3_client(aws)

    def put(number: int) -> None:
        first = number * RECORDS
        lines = [json.dumps({"id": n, "name": f"name of {n}", "price": n / 4}) for n in range(first, first + RECORDS)]
        body = "".join(f"{line}\n" for line in lines).encode()
        client.put_object(Bucket=BUCKET, Key=f"in/{number % FOLDERS:03d}/{number:07d}.json", Body=body)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, numbers))


def upload_all(server: S3Server, objects: int) -> None:
    """Put the objects, from several processes."""
    server.client().create_bucket(Bucket=BUCKET)
    in_processes(upload, [(server.settings, range(n, objects, SLOTS)) for n in range(SLOTS)])


def in_processes(function: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
    """Call a function in new processes, one for each tuple of arguments; return the results."""
    with multiprocessing.get_context("spawn").Pool(len(arguments)) as pool:
        return pool.starmap(function, arguments)


# Discovery


def plain_client(aws: AwsSettings) -> Any:
    """Return a default boto3 client."""
    return boto3.client(
        "s3",
        endpoint_url=aws.endpoint_url,
        region_name=aws.region,
        aws_access_key_id=aws.access_key_id,
        aws_secret_access_key=aws.secret_access_key,
    )


def list_plainly(aws: AwsSettings, client_of: Callable[[AwsSettings], Any] = plain_client) -> int:
    """List the objects; return their number."""
    pages = client_of(aws).get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="in/")
    return sum(len(page["Contents"]) for page in pages)


def discover(aws: AwsSettings, folder: str, path: str = PATH) -> int:
    """Find the objects as a supplier task does, with a new store in a folder; return the number of partitions."""
    Path(folder).mkdir()
    coordinator = coordinator_in(folder)
    created = coordinator.supply(S3Scan(settings(aws, path), coordinator))
    coordinator.store.close()
    assert created, "no object was found"
    return len(created)


def settings(aws: AwsSettings, path: str = PATH) -> S3Objects:
    """Return the settings of the source."""
    return S3Objects(paths=(path,), format="json", format_options={"columns": COLUMNS}, aws=aws)


def store_in(folder: str) -> StoreSettings:
    """Return the settings of the store in a folder."""
    return StoreSettings.from_url(f"sqlite:///{folder}/store.db")


def coordinator_in(folder: str) -> SourceCoordinator:
    """Return a coordinator with the store in a folder."""
    coordinator = SourceCoordinator(open_store(store_in(folder)), "objects", "benchmark")
    coordinator.initialize()
    return coordinator


def growth(aws: AwsSettings, folder: str, path: str) -> float:
    """Return the growth of this process in MiB while it finds objects, after it has found some."""
    discover(aws, f"{folder}-before", f"{PATH}000/")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    discover(aws, folder, path)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


# Delivery


def session(aws: AwsSettings) -> SparkSession:
    """Return a session as the job has it, with S3A."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{SLOTS}]")
    configuration = {
        **SPARK_CONF,
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.jars.excludes": "software.amazon.awssdk:bundle",
        "spark.hadoop.fs.s3a.endpoint": aws.endpoint_url,
        "spark.hadoop.fs.s3a.endpoint.region": aws.region,
        "spark.hadoop.fs.s3a.access.key": aws.access_key_id,
        "spark.hadoop.fs.s3a.secret.key": aws.secret_access_key,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
    if repository := os.environ.get("IVY_SETTINGS"):
        configuration["spark.jars.ivySettings"] = repository
    for name, value in configuration.items():
        builder = builder.config(name, str(value))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read_plainly(spark: SparkSession, path: str, folder: str) -> None:
    """Convert the objects to Parquet with plain Spark."""
    paths = f"{path.replace('s3:', 's3a:')}*/"
    spark.read.schema(COLUMNS).json(paths).write.parquet(f"{folder}/out", compression="zstd")


def deliver(spark: SparkSession, aws: AwsSettings, found: str, folder: str) -> None:
    """Convert the objects to Parquet with our job.

    :param found: the folder with the store of their partitions.
    """
    shutil.copytree(found, folder)
    coordinator = coordinator_in(folder)
    of_job = IngestSettings(
        source="objects",
        owner="benchmark",
        writes=(SinkSettings(name=MAIN, kind=PARQUET, location=f"{folder}/out"),),
        landing_path=f"{folder}/out/_landing",
        expires_at=datetime.now(UTC) + timedelta(days=1),
        store=store_in(folder),
        reads=ReadsSettings(kind=S3Objects.kind, settings=settings(aws).to_mapping()),
    )
    reading = partial(ItemReading, JobSpark("benchmark"), S3Objects.kind, ObjectReader(settings(aws)))
    delivery = ParquetLandedDelivery(of_job.writes[0].location)
    summary = IngestionJob(of_job, coordinator, delivery, reading=reading, stop=threading.Event()).run()
    coordinator.store.close()
    assert not summary.failed and not summary.lost, summary


def rows_in(folder: str) -> int:
    """Return the number of records of the dataset in a folder."""
    return int(ds.dataset(f"{folder}/out", format="parquet", exclude_invalid_files=True).count_rows())


# All of it


def measure(ways: dict[str, Callable[[str], object]], folder: str, repetitions: int) -> dict[str, list[float]]:
    """Return the seconds of each way, run in turn, each in its own folder, which remains."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(repetitions):
        for name, way in ways.items():
            start = time.perf_counter()
            way(f"{folder}/{name}-{repetition}")
            seconds[name].append(time.perf_counter() - start)
            print(f"  {repetition + 1}: {name} {seconds[name][-1]:.2f} s", flush=True)  # the run is long
    return seconds


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_OBJECTS:,} objects, one repetition")
    parser.add_argument("--objects", type=int, default=OBJECTS, help="the number of objects")
    parser.add_argument("--repetitions", type=int, default=3, help="the measurements of each way")
    parser.add_argument("--deliver-a-tenth", action="store_true", help="deliver a tenth of the objects, once")
    options = parser.parse_args()
    objects, repetitions = (QUICK_OBJECTS, 1) if options.quick else (options.objects, options.repetitions)
    with S3Server() as server, tempfile.TemporaryDirectory() as folder:
        aws = server.settings
        upload_all(server, objects)
        assert list_plainly(aws) == objects
        ways: dict[str, Callable[[str], object]] = {
            "plain listing": lambda _: list_plainly(aws),
            "our client's": lambda _: list_plainly(aws, s3_client),
            "discovery": partial(discover, aws),
        }
        discover(aws, f"{folder}/before", f"{PATH}000/")  # imports the modules, as the listing above does
        listing = measure(ways, folder, repetitions)
        memory = [
            in_processes(growth, [(aws, f"{folder}/memory-{n}", path)])[0] for n, path in enumerate((f"{PATH}00", PATH))
        ]
        spark = session(aws)
        path, found, delivered, times = PATH, f"{folder}/discovery-0", objects, repetitions
        if options.deliver_a_tenth:
            path, found, delivered, times = f"{PATH}00", f"{folder}/tenth", objects // 10, 1
            discover(aws, found, path)
        ways = {"plain Spark": partial(read_plainly, spark, path), "job": partial(deliver, spark, aws, found)}
        delivery = measure(ways, folder, times)
        for name in ways:
            assert rows_in(f"{folder}/{name}-0") == delivered * RECORDS, name
        spark.stop()
    medians = {name: statistics.median(seconds) for name, seconds in {**listing, **delivery}.items()}
    print(
        f"{objects:,} objects of {RECORDS} records, medians of {repetitions}; {delivered:,} delivered, {SLOTS} slots:"
    )
    for name, median in medians.items():
        count = objects if name in listing else delivered
        print(f"  {name:<14} {median:8.2f} s  {count / median:8.0f} objects/s")
    print(f"  discovery grows a process by {memory[1]:.0f} MiB, and by {memory[0]:.0f} MiB with a tenth of the objects")
    figures = {
        "objects": objects,
        "delivered": delivered,
        "median_seconds": {name: round(median, 2) for name, median in medians.items()},
        "discovery_to_listing": round(medians["plain listing"] / medians["discovery"], 2),
        "discovery_to_our_clients_listing": round(medians["our client's"] / medians["discovery"], 2),
        "seconds": {name: [round(second, 2) for second in seconds] for name, seconds in listing.items()},
        "discovery_mib": [round(mib, 1) for mib in memory],
        "job_to_plain": round(medians["job"] / medians["plain Spark"], 2),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
