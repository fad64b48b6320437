"""The speed-up from a second worker of a Spark cluster: rounds over a slow source on one worker, and on two.

The benchmark runs a real standalone cluster on one machine. The source is slow and reading it is mostly waiting, so the
machine's cores are not the limit. A slot reads 32 partitions at the same time, each one to the end of its page. The
remaining partitions are read in the next round. A round is delivered while the next one lands, as in every job.

Usage: python -m benchmarks.cluster [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import Item, ItemReader, PartitionProgress, ReadPage
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark.application import delivery_of
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.ingestion_job import IngestionJob
from airflow_provider_coordination.spark.item_reading import ItemReading
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.layout import ITEM_RECORDS
from airflow_provider_coordination.spark.sinks import make_sinks
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.job_settings import ingest
from tests.support.spark_cluster import MASTER_ADDRESS, SparkCluster

SOURCE = KIND = "slow"
CORES = 2
RECORDS, RECORD_BYTES = 100, 1_000


@dataclass(frozen=True)
class Size:
    """How much is measured.

    :param partitions: of the source.
    :param seconds: the delay of each page.
    :param rounds: with each number of workers, after one that warms up.
    """

    partitions: int = 640
    seconds: float = 2.0
    rounds: int = 5


QUICK = Size(partitions=64, seconds=0.2, rounds=1)


@dataclass(frozen=True)
class Slow(ItemReader):
    """A source that responds late.

    :param seconds: the delay of each page.
    """

    seconds: float

    @override
    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        for page in range(int(position or 0), item["pages"]):
            time.sleep(self.seconds)
            data = [b"%08d" % number * (RECORD_BYTES // 8) for number in range(RECORDS)]
            yield ReadPage(records=pa.table({"data": pa.array(data, pa.binary())}), position=str(page + 1))

    @override
    def origin(self, item: Item) -> str:
        return str(item["name"])


def rate(workers: int, size: Size, folder: Path) -> float:
    """Return the rate of a job with this number of workers, in megabytes a second."""
    SparkContext.setSystemProperty("spark.cores.max", str(CORES * workers))
    pages = size.rounds + 1
    settings = ingest(
        source=SOURCE,
        owner="job",
        output=str(folder / "lake"),
        reads=ReadsSettings(kind=KIND, settings={}),
        expires_at=datetime.now(UTC) + timedelta(days=1),
        store=StoreSettings(kind="in_memory"),
        max_batch_bytes=1,
        idle_duration=0.0,
    )
    coordinator = SourceCoordinator(InMemoryStore(), SOURCE, "job")
    coordinator.initialize()
    items = [{"name": f"item-{number}", "pages": pages} for number in range(size.partitions)]
    coordinator.create_partitions(
        {str(each["name"]): PartitionProgress(kind=KIND, items=(each,)).to_mapping() for each in items}
    )
    sinks = make_sinks(settings.writes)
    for sink in sinks:
        sink.check()
    spark = JobSpark("benchmark")
    try:
        job = IngestionJob(
            settings,
            coordinator,
            delivery_of(spark, settings, ITEM_RECORDS, None, sinks, None, BadRecords()),
            reading=partial(ItemReading, spark, KIND, Slow(size.seconds)),
            stop=threading.Event(),
            is_bounded=True,
        )
        job.round()
        job.finish()
        before, began = job._summary.records_delivered, time.perf_counter()
        for _ in range(size.rounds):
            job.round()
        job.finish()
        seconds = time.perf_counter() - began
        delivered = job._summary.records_delivered - before
        assert delivered == (job._summary.batches_delivered * RECORDS) - before, f"{delivered} records were delivered"
        job.give_back()
        return delivered * RECORD_BYTES / 1e6 / seconds
    finally:
        spark.stop()


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small size, to check that it works")
    size = QUICK if parser.parse_args().quick else Size()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    rates: dict[int, float] = {}
    with SparkCluster() as cluster, tempfile.TemporaryDirectory() as folder:
        conf = {
            **cluster.conf,
            "spark.master": cluster.master_url,
            "spark.driver.host": MASTER_ADDRESS,
            "spark.executor.cores": str(CORES),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        options = (f"--conf {name}={value}" for name, value in conf.items())
        os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*options, "pyspark-shell"])
        for workers in (1, 2):
            rates[workers] = rate(workers, size, Path(folder, str(workers)))
            print(f"{workers} x {CORES} cores: {rates[workers]:6.1f} MB/s")
    print(
        json.dumps(
            {
                "benchmark": "cluster",
                "one_worker_mb_per_second": round(rates[1], 1),
                "two_workers_mb_per_second": round(rates[2], 1),
                "ratio": round(rates[2] / rates[1], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
