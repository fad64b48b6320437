"""The processor time and memory of a job for each record: the assumptions of `airflow-coordination plan`.

Processor time is measured instead of elapsed time, so other work on the machine changes little. Pages are made in
advance and cross no network. `benchmarks.deaggregation` measures the parsing of responses.

- `landing`: expanding, columns, and the landed Parquet file, of plain records and of aggregates.
- `transforming`: the delivery of landed files through Spark, with a schema that parses JSON: the job's JVM and its
  Python processes together.
- `memory`: the memory of a Python process that lands nothing, and its growth for each partition landed at the same
  time.
- `store`: the calls to the store in a round.

Usage: python -m benchmarks.landing_cost [--quick]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis import fan_out
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart, ShardPage
from airflow_provider_coordination.sources.kinesis.records import KinesisRecord, KinesisRecords
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.kinesis import landing
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow
from airflow_provider_coordination.spark.kinesis.shard_format import SHARD_RECORDS
from airflow_provider_coordination.spark.payload import JsonPayload
from airflow_provider_coordination.spark.sinks import routed_sinks
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink
from airflow_provider_coordination.spark.transformation import Transformation
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery
from benchmarks.landing import session
from tests.support.aggregation import aggregate
from tests.support.history import History

ARRIVAL = datetime(2026, 1, 1, tzinfo=UTC)
PAGE_RECORDS = 5_000
SIZES = (200, 1024)
PER_AGGREGATE = 100
SCHEMA = "id STRING, at TIMESTAMP, amount DOUBLE, text STRING"
PARTITIONS = 4
STORE_SHARDS = (4, 16)
ROUND_SECONDS = 5.0
BATCH_BYTES = 32 * 2**20


def event(number: int, size: int) -> bytes:
    """Return a JSON event of about this number of bytes."""
    text = os.urandom(size // 2).hex()[: size - 80]
    return json.dumps(
        {"id": f"event-{number:012d}", "at": "2026-01-01T00:00:00Z", "amount": number / 7, "text": text}
    ).encode()


def pages(count: int, size: int, *, aggregated: bool) -> list[ShardPage]:
    """Return pages with this number of events in total."""
    events = [event(number, size) for number in range(count)]
    if aggregated:
        keyed = [(f"key-{number}", data) for number, data in enumerate(events)]
        events = [aggregate(keyed[first : first + PER_AGGREGATE]) for first in range(0, count, PER_AGGREGATE)]
    records = [KinesisRecord(str(10**55 + number), "key", ARRIVAL, data) for number, data in enumerate(events)]
    cut = [records[first : first + PAGE_RECORDS] for first in range(0, len(records), PAGE_RECORDS)]
    return [
        ShardPage(
            records=KinesisRecords.of(page),
            millis_behind_latest=1000,
            end_of_shard=page is cut[-1],
            children=(),
            read_at=ARRIVAL,
        )
        for page in cut
    ]


def land(pages: Sequence[ShardPage], root: str, shard: str = "shard-0", max_bytes: int = 2**60) -> LandedShardRow:
    """Land pages as the job does."""
    fan_out.read_shard = lambda *arguments, **options: _as_table(pages)  # type: ignore[assignment, attr-defined]
    options = ShardLandingOptions(
        kinesis=AwsSettings(), root=root, seconds=1e6, max_bytes=max_bytes, slot_memory_bytes=2**29
    )
    plan = ShardReadPlan(
        source_identifier="b|PARTITION",
        partition_key=f"b:1:{shard}",
        fencing_token=1,
        stream="b",
        shard_id=shard,
        start=BatchStart(position="TRIM_HORIZON"),
    )
    landed = landing.land_shard(None, options, plan)
    assert landed.error is None, landed.error
    return landed


def _as_table(pages: Sequence[ShardPage]) -> Iterator[ShardPage]:
    yield from pages


def landing_microseconds(count: int, size: int, *, aggregated: bool, repetitions: int) -> float:
    """Return the processor time of landing an event."""
    made = pages(count, size, aggregated=aggregated)
    times = []
    with tempfile.TemporaryDirectory() as folder:
        for repetition in range(repetitions + 1):
            start = time.process_time()
            land(made, f"{folder}/{repetition}")
            times.append(time.process_time() - start)
    return statistics.median(times[1:]) / count * 1e6


def memory(partitions: int) -> tuple[float, float]:
    """Return the MiB of a process that has landed little, and its growth for each partition that it lands.

    It lands all of them at the same time, `BATCH_BYTES` of each one, from pages made in advance.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_landed_at_once, (partitions,))


def _landed_at_once(partitions: int) -> tuple[float, float]:
    size = 1024
    with tempfile.TemporaryDirectory() as folder:
        land(pages(100, size, aggregated=False), f"{folder}/warm")
        at_rest = _largest_mib()
        made = pages(BATCH_BYTES // size, size, aggregated=False)
        before = _largest_mib()
        with ThreadPoolExecutor(partitions) as pool:
            list(pool.map(lambda shard: land(made, folder, f"shard-{shard}"), range(partitions)))
        return at_rest, (_largest_mib() - before) / partitions


def _largest_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def store_calls(shards: int, rounds: int = 20) -> dict[str, float]:
    """Return the batches that a job delivers in a round, and its calls to the store: reads, and items written."""
    counts: Counter[str] = Counter()

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*arguments: Any, **changes: Any) -> Any:
            is_write = name == "transact"
            counts["items written" if is_write else "reads"] += sum(map(len, changes.values())) if is_write else 1
            return call(*arguments, **changes)

        return calling

    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), shards)
        history.sync()
        worker = history.start()
        history.send(50 * shards, keys=50)
        history.round(worker)
        before = len(history.sink.batches)
        for name in ("get", "get_many", "query", "transact"):
            setattr(worker.store, name, counted(name, getattr(worker.store, name)))
        for _ in range(rounds):
            history.clock.advance(ROUND_SECONDS)
            history.send(50 * shards, keys=50)
            history.round(worker)
        counts["batches"] = len(history.sink.batches) - before
    return {name: counts[name] / rounds for name in ("batches", "reads", "items written")}


def transforming_microseconds(count: int, size: int, repetitions: int) -> float:
    """Return the processor time of delivering a landed event through Spark, parsed by a schema."""
    spark = session()
    times = []
    with tempfile.TemporaryDirectory() as folder:
        landed = land(pages(count, size, aggregated=False), folder)
        for repetition in range(repetitions + 1):
            sinks = [ParquetSink(name="main", path=f"{folder}/main-{repetition}", where=None)]
            delivery = TransformedDelivery(
                Transformation(
                    spark, routed_sinks(sinks), layout=SHARD_RECORDS, payload=JsonPayload(SCHEMA, SHARD_RECORDS)
                ),
                sinks,
                source="b",
            )
            batch = landed.batch(1)
            attempt = Attempt(
                batch=batch, file=batch.file, folder="b/shard", set_id="set", fencing_token=1,
                source="b", partition_key="shard", owner="job",
            )  # fmt: skip
            start = processor_seconds()
            delivery.prepare([attempt], delivery.sinks)
            for sink in delivery.sinks:
                delivery.commit(sink, [attempt])
            times.append(processor_seconds() - start)
    return statistics.median(times[1:]) / count * 1e6


def processor_seconds() -> float:
    """Return the processor time of this process and of its descendants: the JVM and its workers."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)], ticks[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15]))

    def is_ours(pid: int) -> bool:
        while pid > 1:
            if pid == os.getpid():
                return True
            pid = parents.get(pid, 0)
        return False

    return sum(spent for pid, spent in ticks.items() if is_ours(pid)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, two repetitions")
    count, repetitions = (20_000, 2) if parser.parse_args().quick else (200_000, 7)
    at_rest, growth = memory(PARTITIONS)
    calls = {shards: store_calls(shards) for shards in STORE_SHARDS}
    figures: dict[str, dict[int, float]] = {
        "landing": {s: landing_microseconds(count, s, aggregated=False, repetitions=repetitions) for s in SIZES},
        "landing, aggregated": {
            s: landing_microseconds(count, s, aggregated=True, repetitions=repetitions) for s in SIZES
        },
        "transforming": {s: transforming_microseconds(count, s, repetitions) for s in SIZES},
    }
    print(f"Microseconds of processor time for each event, medians of {repetitions} runs of {count:,}:\n")
    print("| | " + " | ".join(f"{size} B" for size in SIZES) + " |\n|---|" + "--:|" * len(SIZES))
    for name, by_size in figures.items():
        print(f"| {name} | " + " | ".join(f"{by_size[size]:.2f}" for size in SIZES) + " |")
    print(f"\nMemory: {at_rest:.0f} MiB, and {growth:.0f} MiB for each of {PARTITIONS} partitions of 32 MiB.\n")
    print(
        "| shards of a job | "
        + " | ".join(f"{name} a round" for name in calls[STORE_SHARDS[0]])
        + " |\n|--:|--:|--:|--:|"
    )
    for shards, by_name in calls.items():
        print(f"| {shards} | " + " | ".join(f"{value:.1f}" for value in by_name.values()) + " |")
    memory_mib = {"at rest": round(at_rest), "a partition": round(growth)}
    print("\n" + json.dumps({"microseconds": figures, "memory_mib": memory_mib, "store": calls}))


if __name__ == "__main__":
    main()
