"""The processor time of reading changes of a DynamoDB table, compared with other readers.

It is the user and system time of the processes that read, without the server, whose pages are rendered in advance.
Every way has read everything before, so start-up costs do not count. The items are flights of the demo, some 20
attributes each; larger items also have a text.

- `landing`: a slot's landing in one process, into Parquet.
- `loop`: boto3 in one process, one shard after another; typed values become Python's, dictionaries, and these Parquet.
- `KCL`: the Streams adapter of the Kinesis Client Library for Java, which counts changes and keeps none; skipped if
  `python -m benchmarks.kcl` has not fetched it.

Usage: python -m benchmarks.streams_cost [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.pool import Pool
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_coordination.aws import AwsSettings, aws_client
from airflow_provider_coordination.spark.dynamodb_streams.reading import ChangeFormat
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions
from airflow_provider_coordination.spark.kinesis.landing import _land_slot
from benchmarks.change_server import STREAM, shard_id
from benchmarks.kcl import STREAMS_ADAPTER, Counting
from benchmarks.reading import workers
from tests.support.read_plans import read_plans

SIZES = {"flights": (1_000, 0), "1 KiB": (800, 1_024)}
"""The changes of a page, and the bytes of text of each item."""
Way = Callable[[AwsSettings, str], tuple[int, float]]
"""Reads all pages of a server into a folder; returns the number of changes, and the processor seconds."""


@dataclass(frozen=True)
class Size:
    """How much is measured.

    :param shards: of the stream.
    :param pages: of each.
    :param repetitions: of each way.
    :param warm_ups: runs before these, for Java's compiler.
    """

    shards: int = 4
    pages: int = 5
    repetitions: int = 3
    warm_ups: int = 3


QUICK = Size(shards=2, pages=2, repetitions=1, warm_ups=1)


@contextmanager
def served(size: Size, changes: int, fill_bytes: int) -> Iterator[AwsSettings]:
    """Run a server of pages; yield the settings of its clients."""
    details = map(str, (size.shards, changes, size.pages, fill_bytes))
    command = [sys.executable, "-m", "benchmarks.change_server", *details]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdin is not None
        yield AwsSettings(
            region="us-east-1",
            endpoint_url=f"http://127.0.0.1:{server.stdout.readline().strip()}",
            access_key_id="AKIDEXAMPLE",
            secret_access_key="secret",
        )
        server.stdin.close()


def landing(size: Size, aws: AwsSettings, folder: str) -> tuple[int, float]:
    """Land as a Spark task does, in this process."""
    options = ShardLandingOptions(
        kinesis=aws, root=folder, seconds=60, max_bytes=2**40, slot_memory_bytes=512 * 2**20, format=ChangeFormat()
    )
    plans = [
        replace(plan, stream=STREAM, shard_id=shard_id(number)) for number, plan in enumerate(read_plans(size.shards))
    ]
    start = time.process_time()
    landed = _land_slot(options, plans)
    spent = time.process_time() - start
    assert not any(row.error for row in landed), landed
    return sum(row.records for row in landed), spent


def loop(size: Size, aws: AwsSettings, folder: str) -> tuple[int, float]:
    """Read with boto3 and write with pyarrow, in this process."""
    from boto3.dynamodb.types import TypeDeserializer

    start = time.process_time()
    client, plain = aws_client(aws, "dynamodbstreams"), TypeDeserializer().deserialize
    written, writer = 0, None

    def text(item: Mapping[str, Any]) -> str:
        return json.dumps({name: plain(value) for name, value in item.items()}, default=str)

    for number in range(size.shards):
        at = client.get_shard_iterator(StreamArn=STREAM, ShardId=shard_id(number), ShardIteratorType="TRIM_HORIZON")[
            "ShardIterator"
        ]
        while (page := client.get_records(ShardIterator=at))["Records"]:
            at = page["NextShardIterator"]
            rows = [
                {
                    "sequence_number": record["dynamodb"]["SequenceNumber"],
                    "operation": record["eventName"],
                    "keys": text(record["dynamodb"]["Keys"]),
                    "new_image": text(record["dynamodb"]["NewImage"]),
                    "at": record["dynamodb"]["ApproximateCreationDateTime"],
                }
                for record in page["Records"]
            ]
            table = pa.Table.from_pylist(rows)
            writer = writer or pq.ParquetWriter(f"{folder}/loop.parquet", table.schema, compression="zstd")
            writer.write_table(table)
            written += len(table)
    assert writer is not None
    writer.close()
    return written, time.process_time() - start


def in_a_process(pool: Pool, way: Way, aws: AwsSettings, folder: str) -> tuple[int, float]:
    """Read in another process, which stays alive."""
    return pool.apply(way, (aws, folder))


def by_the_kcl(library: Counting, changes: int, aws: AwsSettings, folder: str) -> tuple[int, float]:
    """Count changes with the Streams adapter."""
    read, seconds = library.read(aws.endpoint_url, STREAM, changes)
    return int(read), float(seconds)


def measured(ways: Mapping[str, Way], size: Size, changes: int, fill_bytes: int) -> dict[str, float]:
    """Return the microseconds a change of each way, and the median ratio of each other way to `landing`."""
    expected = size.shards * size.pages * changes
    spent: dict[str, list[float]] = {name: [] for name in ways}
    with served(size, changes, fill_bytes) as aws:
        for repetition in range(size.warm_ups + size.repetitions):
            for name, way in ways.items():
                with tempfile.TemporaryDirectory() as folder:
                    read, seconds = way(aws, folder)
                assert read == expected, f"{name} read {read} of {expected} changes"
                print(f"  {name}: {seconds:.2f} s", file=sys.stderr, flush=True)
                if repetition >= size.warm_ups:
                    spent[name].append(seconds)
    ratios = {
        name: statistics.median(theirs / ours for theirs, ours in zip(each, spent["landing"], strict=True))
        for name, each in spent.items()
        if name != "landing"
    }
    return {
        **{f"{name} us": round(statistics.median(each) * 1e6 / expected, 1) for name, each in spent.items()},
        **{f"times {name}": round(ratio, 2) for name, ratio in ratios.items()},
    }


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two shards with two pages, once")
    size = QUICK if parser.parse_args().quick else Size()
    figures: dict[str, dict[str, float]] = {}
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(workers(1))
        plain = stack.enter_context(multiprocessing.get_context("spawn").Pool(1))
        library = stack.enter_context(Counting(STREAMS_ADAPTER)) if STREAMS_ADAPTER.is_fetched else None
        for name, (changes, fill_bytes) in SIZES.items():
            ways: dict[str, Way] = {
                "landing": partial(in_a_process, ours, partial(landing, size)),
                "loop": partial(in_a_process, plain, partial(loop, size)),
            }
            if library is not None:
                ways["KCL"] = partial(by_the_kcl, library, size.shards * size.pages * changes)
            figures[name] = measured(ways, size, changes, fill_bytes)
            print(f"{name}: {figures[name]}", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
