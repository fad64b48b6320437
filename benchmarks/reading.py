"""How fast a job reads Kinesis, beside what the machine can do.

- `backlog`: landing 64 shards, each with about 20 MB, by Spark tasks, beside the ceiling: as many processes that sign,
  ask, decode and write Parquet and do nothing else, within the same limits of a shard.
- `full`: the same with 256 shards of 10 MB, which may give more than two cores can take.
- `many`: the first round over 1,000 shards with ten small records each, and the rounds behind it that find nothing,
  beside those over 10 shards.

The pages are rendered beforehand by a server on the same machine.

Usage: python -m benchmarks.reading [--quick]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis.fast_parsing import COLUMNS, page_decoder
from airflow_provider_coordination.sources.kinesis.pacing import Pace, Patience
from airflow_provider_coordination.sources.kinesis.reader import reading_client
from airflow_provider_coordination.spark.kinesis.landing import Landed, LandingOptions, ReadPlan, land
from benchmarks.landing import SLOTS, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE_RECORDS = {1024: 2_000, 200: 10_000}
"""By the size of a record, how many are on a page: as many as a shard gives in a second."""


@dataclass(frozen=True)
class Size:
    """How much is measured.

    :param shards: with a backlog.
    :param pages: of each of these.
    :param full: shards that give more than the machine can take.
    :param full_pages: of each of these.
    :param many: shards with little.
    :param repetitions: of each.
    """

    shards: int = 64
    pages: int = 10
    full: int = 256
    full_pages: int = 5
    many: int = 1000
    repetitions: int = 3


QUICK = Size(shards=8, pages=3, full=64, full_pages=2, many=100, repetitions=1)


@contextmanager
def served(shards: int, records: int, size: int, pages: int) -> Iterator[AwsSettings]:
    """Run a server of pages; give what reaches it."""
    command = [sys.executable, "-m", "benchmarks.page_server", *map(str, (shards, records, size, pages))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdin is not None
        port = server.stdout.readline().strip()
        yield AwsSettings(
            region="us-east-1",
            endpoint_url=f"http://127.0.0.1:{port}",
            access_key_id="AKIDEXAMPLE",
            secret_access_key="secret",
        )
        server.stdin.close()


def plans_of(shards: int) -> list[ReadPlan]:
    """Return plans that begin with the first record."""
    return [
        ReadPlan(
            source_identifier="b|PARTITION",
            partition_key=f"b:1:shardId-{number:012d}",
            fencing_token=1,
            stream="b",
            shard_id=f"shardId-{number:012d}",
            start="TRIM_HORIZON",
        )
        for number in range(shards)
    ]


def following(plans: list[ReadPlan], rows: list[Landed]) -> list[ReadPlan]:
    """Return the plans of the next round."""
    found = {row.partition_key: row for row in rows}
    assert not [row.error for row in rows if row.error]

    def next_of(plan: ReadPlan) -> ReadPlan:
        row = found[plan.partition_key]
        return replace(plan, start=row.end, iterator=row.next_iterator, delivered_until=row.read_until)

    return [next_of(plan) for plan in plans]


def landed(spark: SparkSession, aws: AwsSettings, shards: int, folder: str) -> tuple[float, list[Landed]]:
    """Return the seconds and rows of landing all that shards have."""
    options = LandingOptions(
        kinesis=aws, root=folder, seconds=60, max_bytes=2**40, slot_memory_bytes=512 * 2**20, on_data_loss="fail"
    )
    start = time.perf_counter()
    rows = land(spark, plans_of(shards), options)
    return time.perf_counter() - start, rows


# The ceiling


def ceiling(aws: AwsSettings, shards: int, folder: str) -> float:
    """Return the seconds in which processes without any framework land the same."""
    with multiprocessing.get_context("spawn").Pool(SLOTS) as pool:
        pool.map(_warm, [aws] * SLOTS)
        start = time.perf_counter()
        pool.map(partial(_land_raw, aws, folder), [range(n, shards, SLOTS) for n in range(SLOTS)])
        return time.perf_counter() - start


def _warm(aws: AwsSettings) -> None:
    reading_client(aws)
    pa.table({"a": [1]})


def _land_raw(aws: AwsSettings, folder: str, shards: range) -> None:
    import urllib3
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    pool = urllib3.HTTPConnectionPool("127.0.0.1", int(str(aws.endpoint_url).rpartition(":")[2]), maxsize=1000)
    auth = SigV4Auth(Credentials(aws.access_key_id, aws.secret_access_key), "kinesis", aws.region)
    decode = page_decoder()
    assert decode is not None

    def call(target: str, body: dict[str, Any]) -> bytes:
        headers = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": f"Kinesis_20131202.{target}"}
        request = AWSRequest("POST", f"{aws.endpoint_url}/", data=json.dumps(body).encode(), headers=headers)
        auth.add_auth(request)
        answer = pool.request(
            "POST", "/", body=request.data, headers=dict(request.headers.items()), preload_content=True
        )
        return answer.data

    def shard(number: int) -> None:
        pace, writer = Pace(Patience()), None
        iterator = json.loads(call("GetShardIterator", {"ShardId": str(number)}))["ShardIterator"]
        while True:
            pace.wait()
            page = decode(call("GetRecords", {"ShardIterator": iterator, "Limit": 10_000})).fields
            records, iterator = page[COLUMNS], page["NextShardIterator"]
            if not len(records):
                break
            pace.took(records.size)
            table = pa.table(
                {
                    "sequence_number": pa.array(records.sequence_numbers, pa.string()),
                    "partition_key": pa.array(records.partition_keys, pa.string()),
                    "at": pa.array(records.arrivals, pa.int64()),
                    "data": pa.array(records.data, pa.binary()),
                }
            )
            writer = writer or pq.ParquetWriter(f"{folder}/{number}.parquet", table.schema, compression="zstd")
            writer.write_table(table)
        if writer is not None:
            writer.close()

    with ThreadPoolExecutor(len(shards)) as threads:
        list(threads.map(shard, shards))


# What is measured


def backlog(spark: SparkSession, size: int, shards: int, pages: int, repetitions: int) -> dict[str, float]:
    """Return the MB a second of a job and of the ceiling."""
    records = PAGE_RECORDS[size]
    megabytes = shards * pages * records * size / 1e6
    ours: list[float] = []
    most: list[float] = []
    memory = 0
    with served(shards, records, size, pages) as aws:
        for repetition in range(repetitions + 1):
            with tempfile.TemporaryDirectory() as folder:
                seconds, rows = landed(spark, aws, shards, folder)
                assert sum(row.records for row in rows) == shards * pages * records, [r.error for r in rows if r.error]
                (Path(folder) / "raw").mkdir()
                raw = ceiling(aws, shards, f"{folder}/raw")
            memory = max(memory, *(row.memory_bytes for row in rows))
            if repetition:
                ours.append(megabytes / seconds)
                most.append(megabytes / raw)
    return {
        "job MB/s": round(statistics.median(ours), 1),
        "ceiling MB/s": round(statistics.median(most), 1),
        "ratio": round(statistics.median(ours) / statistics.median(most), 2),
        "slot MiB": round(memory / 2**20),
    }


def many(spark: SparkSession, shards: int, repetitions: int) -> dict[str, float]:
    """Return the seconds of the first landing over shards with ten records each, and of those that find nothing."""
    first: list[float] = []
    idle: list[float] = []
    with served(shards, 10, 200, 1) as aws, tempfile.TemporaryDirectory() as folder:
        options = LandingOptions(
            kinesis=aws, root=folder, seconds=10, max_bytes=2**25, slot_memory_bytes=512 * 2**20, on_data_loss="fail"
        )
        for repetition in range(repetitions + 1):
            plans = plans_of(shards)
            start = time.perf_counter()
            rows = land(spark, plans, replace(options, root=f"{folder}/{repetition}"))
            first.append(time.perf_counter() - start)
            assert sum(row.records for row in rows) == shards * 10
            plans = following(plans, rows)
            start = time.perf_counter()
            rows = land(spark, plans, options)
            idle.append(time.perf_counter() - start)
            assert sum(row.records for row in rows) == 0, rows[0]
            assert not (errors := [row.error for row in rows if row.error]), errors[0]
    return {"first": round(statistics.median(first[1:]), 2), "idle": round(statistics.median(idle[1:]), 2)}


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="an eighth of the shards, once")
    size = QUICK if parser.parse_args().quick else Size()
    spark = session()
    figures: dict[str, Any] = {}
    for each in PAGE_RECORDS:
        figures[f"backlog, {each} B"] = backlog(spark, each, size.shards, size.pages, size.repetitions)
        figures[f"full, {each} B"] = backlog(spark, each, size.full, size.full_pages, size.repetitions)
    figures["many"] = {str(shards): many(spark, shards, size.repetitions) for shards in (10, size.many)}
    spark.stop()
    for name, found in figures.items():
        print(f"{name}: {found}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
