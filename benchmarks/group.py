"""Many small sources in one Spark application: how fresh their sinks are, and what the application costs.

Each source is a stream of one shard with a record a second, read into a Parquet dataset of its own. All are members of
one group, whose host is a real Spark application with the master local[2], beside a local Kinesis server, the sender of
the records and a store in SQLite, on the same machine.

- *freshness*: from the arrival of a record to the first look, every quarter of a second, that finds its file in the
  dataset. p50 and p95 of all records that arrived after the sources had settled.
- *cores*: the processor time of the host with its Python processes, as a number of cores. *memory*: their resident
  memory, in MB; what processes share counts for each.
- *wakes after*: from the request of a job of one more source, whose record is there already, to its file.

Usage: python -m benchmarks.group [--quick] [--sources N] [--seconds S] [--freshness S]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support.group_runs import GroupRun
from tests.support.job_settings import ingest
from tests.support.kinesis_server.process import KinesisServerProcess
from tests.support.synced import sync_shards

LOOK_SECONDS = 0.25
SENDERS = 4
LEASE = timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True)
class GroupLoad:
    """What a group reached and cost.

    :param sources: the number of sources.
    :param records: the number of records that were measured.
    :param p50: the median freshness, in seconds.
    :param p95: the 95th percentile, in seconds.
    :param longest: the longest, in seconds.
    :param cores: the processor time of the application, in cores.
    :param memory_mb: its resident memory, in MB.
    :param wakes_after: how long the first record of one more source takes, in seconds.
    :param load: the load average of the machine in the last minute of the measurement.
    """

    sources: int
    records: int
    p50: float
    p95: float
    longest: float
    cores: float
    memory_mb: int
    wakes_after: float
    load: float


class Looker:
    """Notes when each file of a dataset is seen first.

    :param folders: the folders of the datasets.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = list(folders)
        self.seen: dict[Path, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Looker:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            for folder in self.folders:
                for file in folder.glob("*.parquet"):
                    self.seen.setdefault(file, time.time())


class Sender:
    """Sends a record a second to each stream.

    :param client: the Kinesis client.
    :param streams: the streams.
    """

    def __init__(self, client: Any, streams: Sequence[str]) -> None:
        self._client = client
        self._streams = streams
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _send(self) -> None:
        with ThreadPoolExecutor(SENDERS) as pool:
            due = time.monotonic()
            while not self._over.wait(max(0.0, due - time.monotonic())):
                list(pool.map(self.send, self._streams))
                due += 1.0

    def send(self, stream: str) -> None:
        """Send a record to a stream."""
        self._client.put_record(StreamName=stream, PartitionKey=uuid.uuid4().hex, Data=b'{"id": 1}' * 10)


class Sources:
    """The sources of a group, and their streams.

    :param folder: for datasets and logs.
    :param kinesis: the Kinesis server.
    :param group: the group.
    :param freshness: the target, in seconds.
    """

    def __init__(self, folder: Path, kinesis: KinesisServerProcess, group: GroupRun, freshness: float) -> None:
        self._folder, self._group, self._freshness = folder, group, freshness
        self._store = open_store(StoreSettings.from_url(group.url))
        self._aws = AwsSettings(
            region="us-east-1", endpoint_url=kinesis.endpoint_url, access_key_id="test", secret_access_key="test"
        )
        self.client = kinesis.client()

    def make(self, source: str) -> Path:
        """Make a source with a stream; return the folder of its dataset."""
        self.client.create_stream(StreamName=source, ShardCount=1)
        self.client.get_waiter("stream_exists").wait(StreamName=source, WaiterConfig={"Delay": 0.1, "MaxAttempts": 600})
        coordinator = SourceCoordinator(self._store, source, "benchmark")
        coordinator.initialize()
        sync_shards(self.client, coordinator, source)
        return self._folder / source

    def request(self, source: str) -> None:
        """Request the job of a source."""
        self._group.request(self._settings(source))

    def _settings(self, source: str) -> IngestSettings:
        return ingest(
            source=source,
            owner=f"owner-{uuid.uuid4().hex[:8]}",
            streams=(source,),
            output=str(self._folder / source),
            expires_at=datetime.now(UTC) + timedelta(hours=1),
            store=StoreSettings.from_url(self._group.url),
            aws=self._aws,
            until_caught_up=False,
            freshness=self._freshness,
        )


def processes_of(pid: int) -> list[psutil.Process]:
    """Return a process and its descendants."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """Return the processor time of processes so far, ended children included."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def memory_mb(processes: Sequence[psutil.Process]) -> int:
    """Return the resident memory of processes, in MB."""
    resident = 0
    for process in processes:
        try:
            resident += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return round(resident / 1e6)


def ages(seen: dict[Path, float], since: float, until: float) -> list[float]:
    """Return the freshness of the records that arrived between two instants, by the files that were seen."""
    arrivals = {
        file: pq.read_table(file, columns=["approximate_arrival_timestamp"]).column(0).to_pylist() for file in seen
    }
    return sorted(
        seen[file] - arrival.timestamp()
        for file, arrived in arrivals.items()
        for arrival in arrived
        if since <= arrival.timestamp() < until
    )


def measure(sources: int, settle: float, seconds: float, freshness: float) -> GroupLoad:
    """Run a group; return what it reached.

    :param settle: how long all sources run before the measurement, in seconds.
    :param seconds: how long is measured.
    :param freshness: the target of the sources, in seconds.
    """
    with tempfile.TemporaryDirectory() as name, KinesisServerProcess() as kinesis:
        folder = Path(name)
        group = GroupRun(folder, f"sqlite:///{folder}/coordination.db", LEASE)
        made = Sources(folder, kinesis, group, freshness)
        streams = [f"source-{number:03d}" for number in range(sources)]
        folders = [made.make(stream) for stream in (*streams, "late")]
        try:
            with Looker(folders) as looker, Sender(made.client, streams) as sender:
                for stream in streams:
                    made.request(stream)
                _until_seen(looker, folders[:-1], group)
                print(f"{sources} sources are read; measuring in {settle:.0f} s", flush=True)
                time.sleep(settle)
                since, processes = time.time(), processes_of(group.hosts[0].process.pid)
                cpu = cpu_seconds(processes)
                time.sleep(seconds)
                until = time.time()
                cores = (cpu_seconds(processes_of(group.hosts[0].process.pid)) - cpu) / (until - since)
                memory, load = memory_mb(processes_of(group.hosts[0].process.pid)), os.getloadavg()[0]
                sender.send("late")
                began = time.time()
                made.request("late")
                _until_seen(looker, folders[-1:], group)
                woken = min(at for file, at in looker.seen.items() if file.parent == folders[-1]) - began
                time.sleep(3 * freshness)
            found = ages(looker.seen, since, until)
            assert len(group.hosts) == 1, "the group had more than one host"
        finally:
            group.kill()
    return GroupLoad(
        sources=sources,
        records=len(found),
        p50=round(statistics.median(found), 1),
        p95=round(found[int(0.95 * len(found))], 1),
        longest=round(found[-1], 1),
        cores=round(cores, 2),
        memory_mb=memory,
        wakes_after=round(woken, 1),
        load=round(load, 1),
    )


def _until_seen(looker: Looker, folders: Sequence[Path], group: GroupRun) -> None:
    """Wait until each dataset has a file."""
    deadline = time.monotonic() + 600
    while set(folders) - {file.parent for file in list(looker.seen)}:
        if time.monotonic() > deadline or group.hosts[-1].process.poll() is not None:
            raise RuntimeError(f"not every source is read:\n{group.hosts[-1].output[-20000:]}")
        time.sleep(0.5)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="8 sources for half a minute")
    parser.add_argument("--sources", type=int, help="the number of sources; default 64, 8 with --quick")
    parser.add_argument("--seconds", type=float, help="how long to measure; default 180, 30 with --quick")
    parser.add_argument("--freshness", type=float, default=8.0, help="the target of the sources, in seconds")
    options = parser.parse_args(arguments)
    sources = options.sources or (8 if options.quick else 64)
    seconds = options.seconds or (30.0 if options.quick else 180.0)
    logging.disable(logging.WARNING)
    load = measure(sources, 20.0 if options.quick else 60.0, seconds, options.freshness)
    print("\n| sources | freshness p50 / p95 / longest, s | cores | memory, MB | wakes after, s |")
    print("|--:|--:|--:|--:|--:|")
    print(
        f"| {load.sources} | {load.p50} / {load.p95} / {load.longest} | {load.cores} | {load.memory_mb} "
        f"| {load.wakes_after} |"
    )
    print(json.dumps(asdict(load)))


if __name__ == "__main__":
    main()
