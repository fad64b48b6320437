"""The speed and memory of a slot that reads items concurrently, compared with reading them one after the other.

- `small`: many objects of S3 of 1 KB, four or one to a partition. They are landed by a slot as a job does it; with one
  partition at a time; with four, the previous number of a slot; and by a plain boto3 loop. The loop writes a Parquet
  file for each partition without making it durable.
- `large`: a few objects of S3 with lines of text, one to a partition, in the same ways.
- `memory`: the largest memory of a worker for these, and for objects four times as large, in batches without a limit.

The objects are on a SeaweedFS on this machine, behind a proxy that delays each request by some milliseconds. Each
measurement runs in its own process, as each Spark task does.

Usage: python -m benchmarks.items [--quick] [--latency-ms N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.objects import bucket_and_key, s3_client
from airflow_provider_coordination.sources.s3.reader import ObjectReader
from airflow_provider_coordination.spark.item_file import ItemPlan
from airflow_provider_coordination.spark.item_landing import READS_AT_ONCE_OF_SLOT, LandedItems, _land_slot
from airflow_provider_coordination.spark.slots import LandingOptions
from demo.server_process import free_ports
from tests.support.s3_server import S3Server

BUCKET = "benchmark"
LINE = b'{"id": %09d, "name": "somebody", "price": 12.50, "text": "%s"}\n'
SMALL_LINES = 5
OBJECTS_OF_PARTITION = 4
SLOT_MEMORY_BYTES = 512 * 2**20
WAYS = {"many at once": READS_AT_ONCE_OF_SLOT, "four at once": 4, "one by one": 1}


@dataclass(frozen=True)
class Size:
    """How much is measured.

    :param small: the number of small objects.
    :param large: the number of large objects.
    :param megabytes: the size of a large object.
    :param repetitions: of each way.
    """

    small: int = 1000
    large: int = 16
    megabytes: int = 16
    repetitions: int = 2


QUICK = Size(small=400, large=8, megabytes=16, repetitions=1)


# The objects


def upload(aws: AwsSettings, folder: str, count: int, size: int) -> None:
    """Put objects with lines of text into a folder, each of about this size in bytes."""
    client = s3_client(aws)
    line = LINE % (7, b"x" * 130)
    body = line * max(1, size // len(line))

    def put(number: int) -> None:
        client.put_object(Bucket=BUCKET, Key=f"{folder}/{number:06d}.json", Body=body)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(count)))


def plans_of(aws: AwsSettings, folder: str, objects: int) -> list[ItemPlan]:
    """Return plans of partitions, each with this number of objects."""
    pages = s3_client(aws).get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{folder}/")
    items = [
        {"uri": f"s3://{BUCKET}/{each['Key']}", "size": each["Size"], "version": each["ETag"]}
        for page in pages
        for each in page["Contents"]
    ]
    return [
        ItemPlan(
            source_identifier="b|PARTITION",
            partition_key=f"p{first}",
            kind="s3",
            fencing_token=1,
            items=tuple(items[first : first + objects]),
            start="",
        )
        for first in range(0, len(items), objects)
    ]


async def _proxy(port: int, address: str, seconds: float) -> None:
    async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seconds: float) -> None:
        while data := await source.read(2**18):
            if seconds:
                await asyncio.sleep(seconds)
            sink.write(data)
            await sink.drain()
        sink.close()

    async def connected(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        host, _, number = address.partition(":")
        answers, requests = await asyncio.open_connection(host, int(number))
        await asyncio.gather(pass_on(source, requests, seconds), pass_on(answers, sink, 0), return_exceptions=True)

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    await server.serve_forever()


def _run_proxy(port: int, address: str, seconds: float) -> None:
    asyncio.run(_proxy(port, address, seconds))


@contextmanager
def delayed(server: S3Server, seconds: float) -> Iterator[AwsSettings]:
    """Yield settings for a proxy of a server that delays each request by some seconds."""
    [port] = free_ports(1)
    arguments = (port, urlsplit(server.endpoint_url).netloc, seconds)
    process = multiprocessing.get_context("spawn").Process(target=_run_proxy, args=arguments, daemon=True)
    process.start()
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    yield replace(server.settings, endpoint_url=f"http://127.0.0.1:{port}")
    process.terminate()


# What is measured


def by_slot(reader: ObjectReader, options: LandingOptions, at_once: int, plans: Sequence[ItemPlan]) -> int:
    """Land partitions as a slot does; return the number of records."""
    rows: list[LandedItems] = _land_slot(reader, options, at_once, plans)
    assert not (errors := [row.error for row in rows if row.error]), errors[0]
    assert all(row.is_last for row in rows)
    return sum(row.records for row in rows)


def by_boto3(aws: AwsSettings, root: str, plans: Sequence[ItemPlan]) -> int:
    """Do the same in a plain loop; return the number of records."""
    client, records = s3_client(aws), 0
    for plan in plans:
        lines: list[bytes] = []
        for item in plan.items:
            bucket, key = bucket_and_key(item["uri"])
            lines += client.get_object(Bucket=bucket, Key=key)["Body"].read().splitlines()
        pq.write_table(pa.table({"data": lines}), f"{root}/{plan.partition_key}.parquet", compression="zstd")
        records += len(lines)
    return records


def _measured(act: Callable[[], int], answer: Any) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    records = act()
    after = resource.getrusage(resource.RUSAGE_SELF)
    answer.send(
        {
            "seconds": time.perf_counter() - start,
            "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "MiB": after.ru_maxrss / 1024,
            "records": records,
        }
    )


def in_a_process(act: Callable[[], int]) -> dict[str, float]:
    """Call a function in its own process; return its time and memory."""
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=_measured, args=(act, its))
    process.start()
    its.close()
    found: dict[str, float] = ours.recv()
    process.join()
    return found


def measured(aws: AwsSettings, folder: str, objects: int, ways: Sequence[str], repetitions: int) -> dict[str, Any]:
    """Return the median time and memory of landing a folder of objects, by way."""
    plans = plans_of(aws, folder, objects)
    reader = ObjectReader(S3Objects(paths=(f"s3://{BUCKET}/{folder}/",), format="json", aws=aws))
    found: dict[str, list[dict[str, float]]] = {}
    for way in list(ways) * repetitions:
        with tempfile.TemporaryDirectory() as root:
            options = LandingOptions(root=root, seconds=3600, max_bytes=2**40, slot_memory_bytes=SLOT_MEMORY_BYTES)
            act = partial(by_boto3, aws, root, plans)
            if way in WAYS:
                act = partial(by_slot, reader, options, WAYS[way], plans)
            found.setdefault(way, []).append(in_a_process(act))
    assert len({each["records"] for runs in found.values() for each in runs}) == 1
    return {
        way: {what: round(statistics.median(run[what] for run in runs), 2) for what in ("seconds", "cpu", "MiB")}
        for way, runs in found.items()
    }


def with_ratios(figures: dict[str, Any]) -> dict[str, Any]:
    """Add how many times as fast the first way is as the others."""
    first, *others = figures
    ratios = {way: round(figures[way]["seconds"] / figures[first]["seconds"], 2) for way in others}
    return {**figures, f"{first}, times as fast": ratios}


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fraction of the objects, once")
    parser.add_argument("--latency-ms", type=float, default=20.0, help="the delay of each request in milliseconds")
    options = parser.parse_args()
    size = QUICK if options.quick else Size()
    with S3Server() as server, delayed(server, options.latency_ms / 1000) as aws:
        server.client().create_bucket(Bucket=BUCKET)
        upload(server.settings, "small", size.small, SMALL_LINES * len(LINE % (7, b"x" * 130)))
        upload(server.settings, "large", size.large, size.megabytes * 2**20)
        upload(server.settings, "larger", size.large, 4 * size.megabytes * 2**20)
        every = (*WAYS, "boto3")
        figures: dict[str, Any] = {
            "small": with_ratios(measured(aws, "small", OBJECTS_OF_PARTITION, every, size.repetitions)),
            "small, one to a partition": with_ratios(measured(aws, "small", 1, every, size.repetitions)),
            "large": with_ratios(measured(aws, "large", 1, every, size.repetitions)),
        }
        [(first, larger)] = measured(aws, "larger", 1, [*WAYS][:1], size.repetitions).items()
    memory = figures["large"][first]["MiB"]
    figures["memory"] = {"MiB": memory, "four times as much": larger["MiB"], "ratio": round(larger["MiB"] / memory, 2)}
    for name, found in figures.items():
        print(f"{name}: {found}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
