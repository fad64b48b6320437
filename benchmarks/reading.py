"""How fast a job reads Kinesis, compared with the machine's limit.

- `backlog`: Spark tasks land 64 shards, each with about 20 MB, compared with the ceiling: the same number of processes
  that only sign, send requests, decode and write Parquet, within the same limits of a shard.
- `full`: the same with 256 shards of 10 MB, which may give more than two cores can read.
- `memory`: the memory of a worker that lands 16 shards at full speed for ten minutes, in its last and first minute.
- `many`: a job's first round over 1,000 shards with ten small records each, step by step, and the next round, which
  finds nothing, compared with the rounds over 10 shards.
- `driver`: the driver's own time in such a job with leases in PostgreSQL, over 100 and over 1,000 shards: the first
  round without landing, the renewal of every lease, the round that finds nothing without its landing, and the release.

A server on the same machine renders the pages in advance.

Usage: python -m benchmarks.reading [--quick]
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.sources.kinesis.aggregation import MAGIC, is_aggregated
from airflow_provider_coordination.sources.kinesis.pacing import Pace, RetryBudget
from airflow_provider_coordination.sources.kinesis.reader import reading_client
from airflow_provider_coordination.sources.kinesis.records import COLUMNS, page_decoder
from airflow_provider_coordination.sources.kinesis.shards import describe_stream
from airflow_provider_coordination.sources.kinesis.sync import ShardSync
from airflow_provider_coordination.spark.application import GC_THRESHOLDS, delivery_of
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.ingestion_job import IngestionJob
from airflow_provider_coordination.spark.job_spark import WORKER_ENVIRONMENT, JobSpark
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow, _land_slot, land
from airflow_provider_coordination.spark.kinesis.reading import ShardReading
from airflow_provider_coordination.spark.kinesis.shard_format import SHARD_RECORDS
from airflow_provider_coordination.spark.kinesis.streams import Streams
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import make_sinks
from airflow_provider_coordination.spark.telemetry import NoSpan
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.sql import SqlStore
from benchmarks.acquire_scale import Server, postgresql
from benchmarks.landing import SLOTS, session
from tests.support.fleet import LaterClock
from tests.support.job_settings import ingest, parquet, streams_of
from tests.support.kinesis_server.clock import RealClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.in_process import InProcessClient
from tests.support.read_plans import read_plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "clicks"
FULL_SPEED_SHARDS = 16
PAGE_RECORDS = {1024: 2_000, 200: 10_000}
"""The number of records on a page by the size of a record: the number that a shard returns in a second."""


@dataclass(frozen=True)
class Size:
    """How much is measured.

    :param shards: the shards with a backlog.
    :param pages: the pages of each of these.
    :param full: the shards that give more than the machine can read.
    :param full_pages: the pages of each of these.
    :param many: the shards with few records.
    :param driven: the shards with few records, of jobs with leases in PostgreSQL.
    :param repetitions: the runs of each way.
    :param seconds: how long a worker's memory is measured.
    """

    shards: int = 64
    pages: int = 10
    full: int = 256
    full_pages: int = 5
    many: int = 1000
    driven: tuple[int, ...] = (100, 1000)
    repetitions: int = 3
    seconds: float = 600.0


QUICK = Size(shards=8, pages=3, full=64, full_pages=2, many=100, driven=(10, 100), repetitions=1, seconds=20.0)


@contextmanager
def served(shards: int, records: int, size: int, pages: int, users: int = 1) -> Iterator[AwsSettings]:
    """Run a server of pages; yield the settings of its clients."""
    command = [sys.executable, "-m", "benchmarks.page_server", *map(str, (shards, records, size, pages, users))]
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


def landed(spark: SparkSession, aws: AwsSettings, shards: int, folder: str) -> tuple[float, list[LandedShardRow]]:
    """Land all records of shards; return the seconds and the rows."""
    options = ShardLandingOptions(
        kinesis=aws, root=folder, seconds=60, max_bytes=2**40, slot_memory_bytes=512 * 2**20, on_data_loss="fail"
    )
    start = time.perf_counter()
    rows = land(spark.sparkContext, read_plans(shards), options)
    return time.perf_counter() - start, rows


# The ceiling


def ceiling(aws: AwsSettings, shards: int, folder: str) -> float:
    """Return the seconds in which processes without a framework land the same records."""
    with workers(SLOTS) as pool:
        pool.map(_warm, [aws] * SLOTS)
        start = time.perf_counter()
        pool.map(partial(land_raw, aws, folder), [range(n, shards, SLOTS) for n in range(SLOTS)])
        return time.perf_counter() - start


@contextmanager
def workers(count: int) -> Iterator[Pool]:
    """Run processes with the environment that a job's Python workers have."""
    with patch.dict(os.environ, WORKER_ENVIRONMENT):
        pool = multiprocessing.get_context("spawn").Pool(count)
    with pool:
        yield pool


def _warm(aws: AwsSettings) -> None:
    reading_client(aws)
    pa.table({"a": [1]})


def land_raw(aws: AwsSettings, folder: str, shards: range) -> int:
    """Land shards with the minimum of work: signed HTTP, typed decoding, digests of aggregates, Parquet.

    :returns: the number of Kinesis records.
    """
    import urllib3
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    pool = urllib3.HTTPConnectionPool("127.0.0.1", int(str(aws.endpoint_url).rpartition(":")[2]), maxsize=1000)
    assert aws.access_key_id is not None and aws.secret_access_key is not None and aws.region is not None
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

    def shard(number: int) -> int:
        pace, writer, read = Pace(RetryBudget()), None, 0
        iterator = json.loads(call("GetShardIterator", {"ShardId": str(number)}))["ShardIterator"]
        while True:
            pace.wait()
            page = decode(call("GetRecords", {"ShardIterator": iterator, "Limit": 10_000}))
            records, iterator = page[COLUMNS], page["NextShardIterator"]
            if not len(records):
                break
            pace.took(records.size)
            for aggregate in records.data.filter(pc.equal(pc.binary_slice(records.data, 0, len(MAGIC)), MAGIC)):
                assert is_aggregated(memoryview(aggregate.as_buffer()).cast("B"))
            table = pa.table(
                {
                    "sequence_number": records.sequence_numbers,
                    "partition_key": records.partition_keys,
                    "at": records.arrivals,
                    "data": records.data,
                }
            )
            writer = writer or pq.ParquetWriter(f"{folder}/{number}.parquet", table.schema, compression="zstd")
            writer.write_table(table)
            read += len(table)
        if writer is not None:
            writer.close()
        return read

    with ThreadPoolExecutor(len(shards)) as threads:
        return sum(threads.map(shard, shards))


# What is measured


def backlog(spark: SparkSession, size: int, shards: int, pages: int, repetitions: int) -> dict[str, float]:
    """Return the rates of a job and of the ceiling in MB/s."""
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


class Phases:
    """Records the seconds of the steps of a round; a `Spans`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def span(self, name: str, **attributes: Any) -> Iterator[NoSpan]:
        """See `Spans.span`."""
        start = time.perf_counter()
        yield NoSpan()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Record the seconds spent within the context."""
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def rounds(
    spark: SparkSession,
    shards: int,
    store: CoordinationStore,
    sink: SinkSettings,
    landing_path: str,
    requests: Counter[str] | None = None,
) -> dict[str, float]:
    """Return the seconds of a job's first round over shards with ten records each, of renewing its leases, of a round
    that finds nothing, and of giving the leases back.

    :param requests: counts the statements of the store; None to count nothing.
    """
    requests = Counter() if requests is None else requests
    client = InProcessClient(Engine(RealClock()))
    client.create_stream(StreamName=STREAM, ShardCount=shards)
    with served(shards, 10, 200, 1) as aws:
        settings = ingest(
            source=STREAM,
            owner="job",
            streams=(STREAM,),
            aws=aws,
            writes=(sink,),
            landing_path=landing_path,
            expires_at=datetime.now(UTC) + timedelta(days=1),
            store=StoreSettings(kind="sql", settings={}),
        )
        clock, seconds = LaterClock(), dict[str, float]()
        coordinator = SourceCoordinator(store, STREAM, "job", clock=clock)
        coordinator.initialize()
        sync = ShardSync(client, coordinator, initial_position="TRIM_HORIZON")
        sync.run([STREAM], forced=True)
        streams = Streams([STREAM], partial(describe_stream, client), sync=partial(sync.run, [STREAM], forced=False))
        sinks = make_sinks(settings.all_sinks)
        for each in sinks:
            each.check()
        phases = Phases()
        ingestion = IngestionJob(
            settings,
            coordinator,
            delivery_of(JobSpark("benchmark"), settings, SHARD_RECORDS, None, sinks, None, BadRecords()),
            reading=partial(ShardReading, spark.sparkContext, streams_of(settings), streams),
            stop=threading.Event(),
            spans=phases,
        )
        requests.clear()
        processor = time.process_time()
        ingestion.round()
        with timed(seconds, "finish"):
            ingestion.finish()
        first, phases.seconds = phases.seconds, {}
        clock.ahead += coordinator.leases.ownership_timeout / 2
        with timed(seconds, "renew"):
            coordinator.leases.renew_due()
        seconds["processor"] = time.process_time() - processor
        seconds["statements"] = requests["statements"]
        requests.clear()
        ingestion.round()
        ingestion.finish()
        seconds["statements of an idle round"] = requests["statements"]
        idle, delivered = phases.seconds, ingestion._summary.records_delivered
        with timed(seconds, "give back"):
            ingestion.give_back()
    assert delivered == shards * 10, delivered
    return {**first, **seconds, **{f"idle {name}": idle[name] for name in ("round", "land", "record")}}


def many(spark: SparkSession, shards: int, folder: Path) -> dict[str, float]:
    """Return the seconds of a job's first round over many shards, and of a round that finds nothing."""
    store = SqlStore(f"sqlite:///{folder}/leases.db", table="leases")
    lake = str(folder / "lake")
    found = rounds(spark, shards, store, parquet(lake), f"{lake}/_landing")
    store.close()
    found["in all"] = sum(found[name] for name in ("acquire", "land", "record", "deliver"))
    return found


def driver(server: Server, spark: SparkSession, shards: int, folder: Path) -> dict[str, float]:
    """Return the driver's own seconds in a job over many shards.

    `acknowledge` is part of `deliver`. `deliver` is part of `finish`, which also records and deletes delivered batches.
    """
    store = server.open(f"shards_{time.time_ns()}")
    assert isinstance(store, SqlStore)
    lake, requests = str(folder / "lake"), Counter[str]()
    sa.event.listen(store._database.engine, "before_cursor_execute", lambda *_: requests.update(["statements"]))
    found = rounds(spark, shards, store, parquet(lake), f"{lake}/_landing", requests)
    store.close()
    parts = ("acquire", "record", "deliver", "acknowledge", "finish", "renew", "give back")
    own = {name: found[name] for name in parts}
    own["a round in all"] = sum(own[name] for name in ("acquire", "record", "finish", "renew"))
    own["of which processor"] = found["processor"]
    own |= {name: found[name] for name in ("statements", "statements of an idle round")}
    own["an idle round"] = found["idle round"] - found["idle land"]
    return own


def drivers(spark: SparkSession, size: Size) -> dict[str, dict[str, float]]:
    """Return the driver's own seconds by the number of shards."""
    with postgresql() as server:
        return {
            str(shards): medians(partial(driver, server, spark, shards), size.repetitions) for shards in size.driven
        }


def medians(measure: Callable[[Path], dict[str, float]], repetitions: int) -> dict[str, float]:
    """Return the medians of repeated measurements, after one that is not counted."""
    found = []
    for _ in range(repetitions + 1):
        with tempfile.TemporaryDirectory() as folder:
            found.append(measure(Path(folder)))
    return {name: round(statistics.median(each[name] for each in found[1:]), 2) for name in found[0]}


def memory(seconds: float) -> dict[str, float]:
    """Return the MiB of a worker at full speed in the first and last tenth of the time."""
    records = PAGE_RECORDS[200]
    with served(FULL_SPEED_SHARDS, records, 200, 5) as aws, tempfile.TemporaryDirectory() as folder:
        options = ShardLandingOptions(
            kinesis=aws, root=folder, seconds=60, max_bytes=2**40, slot_memory_bytes=512 * 2**20
        )
        until, plans, taken = time.monotonic() + seconds, read_plans(FULL_SPEED_SHARDS), []
        while time.monotonic() < until:
            for row in _land_slot(options, plans):
                Path(row.file).unlink()
            taken.append(psutil.Process().memory_info().rss / 2**20)
    tenth = len(taken) // 10 + 1
    first, last = taken[:tenth], taken[-tenth:]
    return {"first MiB": round(max(first)), "last MiB": round(max(last)), "ratio": round(max(last) / max(first), 2)}


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="an eighth of the shards, once")
    parser.add_argument("--driver", action="store_true", help="only the driver's own time")
    options = parser.parse_args()
    size = QUICK if options.quick else Size()
    gc.set_threshold(*GC_THRESHOLDS)
    spark = session()
    if options.driver:
        print(json.dumps(drivers(spark, size)))
        return
    figures: dict[str, Any] = {}
    for each in PAGE_RECORDS:
        figures[f"backlog, {each} B"] = backlog(spark, each, size.shards, size.pages, size.repetitions)
        figures[f"full, {each} B"] = backlog(spark, each, size.full, size.full_pages, size.repetitions)
    figures["many"] = {
        str(shards): medians(partial(many, spark, shards), size.repetitions) for shards in (10, size.many)
    }
    figures["driver"] = drivers(spark, size)
    spark.stop()
    figures["memory"] = memory(size.seconds)
    for name, found in figures.items():
        print(f"{name}: {found}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
