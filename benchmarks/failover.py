"""How long shards stay unread when a worker dies, and when one is handed over.

Worker processes share the shards of a stream over one store. Each one runs the job's round loop, from the leases to the
delivered dataset, without Spark and Kinesis. A worker reads its shards in its own process, for a second a round, and
each shard returns a record at every read. Repeatedly, one worker is killed by SIGKILL, at any moment of its round and
its lease, and a new one is started. A worker warms up before it joins, because the imports of its first landing take
seconds.

- `noticed`: the worker's leases are released when its process has ended, as the operator does.
- `unnoticed`: the leases expire.
- `handed over`: the new worker requests its share from the others. No worker died here.

After a kill, the benchmark measures the time until another worker has landed the first record of the dead worker's
shards, and of the last of these shards. For a handover, it measures the time from the last record landed by the
previous owner to the first one by the new owner. All times are from one monotonic clock.

Usage: python -m benchmarks.failover [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

from airflow_provider_coordination.coordination.held_leases import DEFAULT_SAFETY_MARGIN
from benchmarks.trigger_load import postgresql

SOURCE, STREAM, EPOCH = "clicks", "clicks", 1
TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured.

    :param workers: the number of worker processes.
    :param shards: the number of shards that they share.
    :param kills: the number of workers killed in each way.
    :param lease_seconds: the duration of a lease.
    :param margin_seconds: the safety margin for differences between clocks.
    :param read_seconds: the reading time of a worker in a round.
    """

    workers: int = 3
    shards: int = 12
    kills: int = 5
    lease_seconds: float = 60.0
    margin_seconds: float = DEFAULT_SAFETY_MARGIN.total_seconds()
    read_seconds: float = 1.0


QUICK = Size(kills=2, lease_seconds=8.0, margin_seconds=1.0, read_seconds=0.2, shards=6)


@dataclass
class Measurements:
    """What was measured of one store, in seconds.

    :param first: from each kill to the first record of one of the dead worker's shards, by kind of death.
    :param all: from each kill until all of these shards have a record.
    :param handovers: how long each handed-over shard was not read.
    """

    first: dict[str, list[float]] = field(default_factory=lambda: {"noticed": [], "unnoticed": []})
    all: dict[str, list[float]] = field(default_factory=lambda: {"noticed": [], "unnoticed": []})
    handovers: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the measurements as JSON."""
        return {
            **{
                way: {"first": _summary(self.first[way]), "last": _summary(self.all[way])}
                for way in ("noticed", "unnoticed")
            },
            "handed_over": _summary(self.handovers),
        }


def _summary(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {"count": 0}
    return {
        "median": round(statistics.median(seconds), 2),
        "max": round(max(seconds), 2),
        "count": len(seconds),
    }


def coordinator_of(url: str, owner: str, size: Size) -> Any:
    """Return an initialized coordinator with its own connection to the store."""
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.stores import StoreSettings, open_store

    coordinator = SourceCoordinator(
        open_store(StoreSettings.from_url(url)),
        SOURCE,
        owner,
        ownership_timeout=timedelta(seconds=size.lease_seconds),
        safety_margin=timedelta(seconds=size.margin_seconds),
    )
    coordinator.initialize()
    return coordinator


def work(url: str, folder: str, owner: str, size: Size) -> None:
    """Run as a worker process until killed."""
    from airflow_provider_coordination.sources.kinds import ReadsSettings
    from airflow_provider_coordination.sources.kinesis import fan_out
    from airflow_provider_coordination.sources.kinesis.batch_reading import ShardPage
    from airflow_provider_coordination.sources.kinesis.reader import KinesisRecord
    from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
    from airflow_provider_coordination.sources.kinesis.shards import StreamDescription
    from airflow_provider_coordination.spark import ingestion_job
    from airflow_provider_coordination.spark.job_settings import RoundSettings
    from airflow_provider_coordination.spark.kinesis import landing
    from airflow_provider_coordination.spark.kinesis import reading as shard_reading
    from airflow_provider_coordination.spark.kinesis.streams import Streams
    from airflow_provider_coordination.spark.settings import IngestSettings
    from airflow_provider_coordination.spark.sink_settings import MAIN, PARQUET, SinkSettings
    from airflow_provider_coordination.spark.sinks.parquet import ParquetLandedDelivery
    from airflow_provider_coordination.stores import StoreSettings

    logging.disable(logging.CRITICAL)
    settings = IngestSettings(
        source=SOURCE,
        owner=owner,
        reads=ReadsSettings(kind="kinesis", settings={"streams": [STREAM]}),
        writes=(SinkSettings(name=MAIN, kind=PARQUET, location=f"{folder}/output"),),
        landing_path=f"{folder}/output/_landing",
        expires_at=datetime.now(UTC) + timedelta(hours=1),
        store=StoreSettings.from_url(url),
        ownership_timeout=timedelta(seconds=size.lease_seconds),
        safety_margin=timedelta(seconds=size.margin_seconds),
        rounds=RoundSettings(until_caught_up=False, idle_duration=timedelta(seconds=0.1)),
    )
    landed: list[str] = []

    def read(*_: object, **__: object) -> Iterator[ShardPage]:
        record = [KinesisRecord(str(time.time_ns()), "key", datetime.now(UTC), b"{}")]
        while True:
            yield ShardPage(
                records=record, millis_behind_latest=0, end_of_shard=False, children=(), read_at=datetime.now(UTC)
            )
            record = []

    def in_process(spark: object, plans: Sequence[Any], options: Any, *_: object) -> list[Any]:
        time.sleep(size.read_seconds)
        rows = [landing.land_shard(None, options, plan) for plan in plans]
        landed[:] = [row.partition_key for row in rows if row.records]
        return rows

    with Path(f"{folder}/log-{owner}").open("a", buffering=1) as log:

        def note(phase: str) -> None:
            if phase == "recorded":
                log.write("".join(f"{time.monotonic()} {key}\n" for key in landed))
                landed.clear()

        description = StreamDescription(name=STREAM, creation_epoch=EPOCH, open_shards=size.shards, retention_hours=24)
        job = ingestion_job.IngestionJob(
            settings,
            coordinator_of(url, owner, size),
            ParquetLandedDelivery(settings.writes[0].location),
            reading=partial(
                shard_reading.ShardReading,
                None,  # type: ignore[arg-type]
                KinesisStreams(streams=(STREAM,)),
                Streams([STREAM], lambda name: description),
            ),
            stop=threading.Event(),
            observer=note,
        )
        with patch.object(shard_reading, "land", in_process), patch.object(fan_out, "read_shard", read):
            warm_up(Path(folder) / "warm", size)
            job.run()


def warm_up(folder: Path, size: Size) -> None:
    """Land a record in a temporary folder: the imports of the first landing take seconds."""
    from airflow_provider_coordination.aws import AwsSettings
    from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart
    from airflow_provider_coordination.sources.kinesis.progress import partition_key
    from airflow_provider_coordination.spark.kinesis import landing
    from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan

    plan = ShardReadPlan(
        source_identifier="warm|PARTITION",
        partition_key=partition_key(STREAM, EPOCH, "shardId-000000000000"),
        fencing_token=1,
        stream=STREAM,
        shard_id="shardId-000000000000",
        start=BatchStart(position="TRIM_HORIZON"),
    )
    options = ShardLandingOptions(
        kinesis=AwsSettings(), root=str(folder), seconds=size.read_seconds, max_bytes=1, slot_memory_bytes=2**29
    )
    landing.land_shard(None, options, plan)


class Fleet:
    """Worker processes over one store.

    :param url: the URL of the store.
    :param folder: the folder for landed files, the dataset and the logs.
    :param size: how much is measured.
    """

    def __init__(self, url: str, folder: Path, size: Size) -> None:
        from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, partition_key

        self.url, self.folder, self.size = url, folder, size
        self.started = 0
        self.workers: dict[str, Any] = {}
        self.airflow = coordinator_of(url, "airflow", size)
        self.airflow.create_partitions(
            {
                partition_key(STREAM, EPOCH, shard): ShardProgress(
                    stream=STREAM,
                    shard_id=shard,
                    parent_shard_ids=(),
                    starting_hash_key="0",
                    ending_hash_key=str(2**128 - 1),
                ).to_mapping()
                for shard in (f"shardId-{n:012}" for n in range(size.shards))
            }
        )

    def start(self) -> str:
        """Start another worker; return its name."""
        self.started += 1
        owner = f"worker-{self.started}"
        process = get_context("spawn").Process(target=work, args=(self.url, str(self.folder), owner, self.size))
        process.start()
        self.workers[owner] = process
        return owner

    def kill(self, owner: str) -> float:
        """Kill a worker; return the instant on the monotonic clock."""
        process = self.workers.pop(owner)
        killed_at = time.monotonic()
        process.kill()
        process.join()
        return killed_at

    def end(self) -> None:
        """Kill all workers."""
        for owner in list(self.workers):
            self.kill(owner)
        self.airflow.store.close()

    def shards_of(self, owner: str) -> list[str]:
        """Return the shards that are leased to a worker."""
        return [partition.partition_key for partition in self.airflow.view.partitions() if partition.owner == owner]

    def is_even(self) -> bool:
        """Return whether every worker holds its share of the shards and has landed records of all of them."""
        owners = [(p.owner, p.partition_key) for p in self.airflow.view.partitions()]
        counts = {worker: sum(owner == worker for owner, _ in owners) for worker in self.workers}
        even = sum(counts.values()) == len(owners) and max(counts.values()) - min(counts.values()) <= 1
        return even and {(owner, key) for _, owner, key in self.landed()} >= set(owners)

    def landed(self) -> list[tuple[float, str, str]]:
        """Return the instant, owner and shard of each landed record, in order."""
        lines = []
        for file in self.folder.glob("log-*"):
            owner = file.name.removeprefix("log-")
            for line in file.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    at, _, key = line.strip().partition(" ")
                    lines.append((float(at), owner, key))
        return sorted(lines)

    def taken(self, dead: str, shards: set[str], since: float) -> list[float]:
        """Return the seconds until others landed a record of each shard; empty until they have one of every shard."""
        first: dict[str, float] = {}
        for at, owner, key in self.landed():
            if at > since and owner != dead and key in shards:
                first.setdefault(key, at - since)
        return list(first.values()) if len(first) == len(shards) else []


def until(condition: Callable[[], Any]) -> Any:
    """Wait until a condition returns a true value, and return that.

    :raises TimeoutError: after `TIMEOUT_SECONDS`.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise TimeoutError(f"the condition was not met within {TIMEOUT_SECONDS:g} s")


def measure(url: str, folder: Path, size: Size) -> Measurements:
    """Return the measurements of one store."""
    figures, randomness = Measurements(), random.Random(5)
    fleet = Fleet(url, folder, size)
    try:
        for _ in range(size.workers):
            fleet.start()
        until(fleet.is_even)
        for way in ("noticed", "unnoticed"):
            for _ in range(size.kills):
                time.sleep(randomness.uniform(0, size.lease_seconds / 4))
                owner = randomness.choice(sorted(fleet.workers))
                shards = set(fleet.shards_of(owner))
                killed_at = fleet.kill(owner)
                if way == "noticed":
                    fleet.airflow.give_up_owner(owner)
                taken = until(partial(fleet.taken, owner, shards, killed_at))
                figures.first[way].append(min(taken))
                figures.all[way].append(max(taken))
                joined_at = time.monotonic()
                fleet.start()
                until(fleet.is_even)
                figures.handovers += pauses(fleet.landed(), joined_at)
    finally:
        fleet.end()
    return figures


def pauses(landed: Sequence[tuple[float, str, str]], since: float) -> list[float]:
    """Return how long each shard that changed its owner was not read."""
    found = []
    for shard in {key for _, _, key in landed}:
        of_shard = [(at, owner) for at, owner, key in landed if key == shard]
        found += [
            later - earlier
            for (earlier, previous), (later, following) in pairwise(of_shard)
            if previous != following and earlier > since
        ]
    return found


def table(results: dict[str, Measurements]) -> str:
    """Return the measurements as a table in Markdown."""
    lines = [
        "| store | | median | longest | times |",
        "|---|---|--:|--:|--:|",
    ]
    for store, figures in results.items():
        rows = {
            "noticed: first record": figures.first["noticed"],
            "noticed: every shard": figures.all["noticed"],
            "unnoticed: first record": figures.first["unnoticed"],
            "unnoticed: every shard": figures.all["unnoticed"],
            "handed over: pause of a shard": figures.handovers,
        }
        for what, seconds in rows.items():
            if seconds:
                lines.append(
                    f"| {store} | {what} | {statistics.median(seconds):.1f} s | {max(seconds):.1f} s | {len(seconds)} |"
                )
    return "\n".join(lines)


def measure_all(stores: Sequence[str], size: Size) -> dict[str, Measurements]:
    """Return the measurements of each available store."""
    results = {}
    with contextlib.ExitStack() as stack:
        for store in stores:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"coordination-failover-{store}-")))
            url = f"sqlite:///{folder}/coordination.db" if store == "sqlite" else stack.enter_context(postgresql())
            if url is not None:
                results[store] = measure(url, folder, size)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer kills and shorter leases, for a shorter time")
    parser.add_argument("--stores", default="postgresql", help="which of sqlite, postgresql; default postgresql")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else Size()
    results = measure_all(options.stores.split(","), size)
    print(
        f"{size.workers} workers, {size.shards} shards, leases of {size.lease_seconds:g} s, a margin of "
        f"{size.margin_seconds:g} s, {size.read_seconds:g} s of reading a round:\n"
    )
    print(table(results))
    print()
    print(json.dumps({store: figures.as_json() for store, figures in results.items()}))


if __name__ == "__main__":
    main()
