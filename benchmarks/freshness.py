"""How old records are when a sink shows them, and how many files and commits that takes.

One job with `local[2]` reads a stream of 4 shards that gets 1,000 records of 1 KiB a second, and delivers them without
a transform to one sink. The sinks take turns, each with a target of freshness and with the default rounds. The first
half minute of a job, which starts cold, does not count. At the end, each record must be in the sink once.

- *p50*, *p95*: the age of records when they become visible, since their arrival by the stream's clock. It is seen from
  outside: when a Parquet file or a version of a Delta table got its name, when an Iceberg catalog's database was
  written, and when a reader of PostgreSQL found the batch.
- *job*: the p95 that the job itself reports. Its steps are up to a fifth too large.
- *phases*: the medians of a round's phases in seconds, as the job logs them. `deliver` goes on beside `land`.

Usage: python -m benchmarks.freshness [--quick] [--sink parquet|delta|iceberg|postgresql] [--target SECONDS]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import sqlalchemy as sa
from pyiceberg.catalog import load_catalog

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.freshness import Ages
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark import writes
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks.sql.table import TABLE as BATCHES
from airflow_provider_coordination.spark.writes.iceberg import IcebergTable
from airflow_provider_coordination.stores import StoreSettings, open_store
from demo.tables import TABLE as ICEBERG_TABLE
from demo.tables import catalog_of
from tests.support.job_settings import ingest
from tests.support.kinesis_server.process import KinesisServerProcess
from tests.support.servers import postgres_database, running_postgres
from tests.support.spark_job import Job, submit
from tests.support.sql_tables import TABLE, SqlTarget
from tests.support.synced import sync_shards

STREAM, SHARDS = "clicks", 4
RECORDS_A_SECOND, RECORD_BYTES = 1_000, 1_024
PUTS_A_SECOND = 10
SETTLED_SECONDS = 30.0
SECONDS, QUICK_SECONDS = 60.0, 30.0
LOOK_SECONDS = 0.02
"""How often a sink is looked at whose commits leave no exact time."""
DRAINED_SECONDS = 120.0
TARGETS = {"parquet": 2.0, "delta": 4.0, "iceberg": 4.0, "postgresql": 2.0}
"""The target of each sink, in seconds."""
ARRIVAL = "approximate_arrival_timestamp"
PHASES = re.compile(r"round \d+: .* seconds=\[(.*?)\]")


@dataclass(frozen=True)
class Commit:
    """Records that became visible together.

    :param at: when, in seconds since 1970.
    :param files: the number of data files.
    :param arrivals: when each of the records arrived, in seconds since 1970.
    """

    at: float
    files: int
    arrivals: Sequence[float]


class WatchedSink(ABC):
    """A sink that is watched from outside.

    :param settings: of the sink.
    :param landing: where records wait for it.
    """

    def __init__(self, settings: SinkSettings, landing: Path) -> None:
        self.settings = settings
        self.landing = landing

    def look(self) -> None:  # noqa: B027 (most commits leave an exact time)
        """Note what is visible now."""

    @abstractmethod
    def commits(self) -> list[Commit]:
        """Return all commits."""


class ParquetWatched(WatchedSink):
    """A Parquet dataset: each file is a commit.

    :param folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self._dataset = folder / "dataset"
        super().__init__(_described(writes.ParquetDataset(str(self._dataset))), self._dataset / "_landing")

    @override
    def commits(self) -> list[Commit]:
        return [Commit(file.stat().st_ctime, 1, _arrivals([file])) for file in self._dataset.glob("*.parquet")]


class DeltaWatched(WatchedSink):
    """A Delta table.

    :param folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self._table = folder / "dataset"
        super().__init__(_described(writes.DeltaTable(str(self._table))), self._table / "_landing")

    @override
    def commits(self) -> list[Commit]:
        found = []
        for log in sorted((self._table / "_delta_log").glob("*.json")):
            actions = map(json.loads, log.read_text().splitlines())
            files = [self._table / unquote(action["add"]["path"]) for action in actions if "add" in action]
            found += [Commit(log.stat().st_ctime, len(files), _arrivals(files))] if files else []
        return found


class IcebergWatched(WatchedSink):
    """An Iceberg table whose catalog is a database in a file.

    :param folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        warehouse = folder / "dataset"
        warehouse.mkdir()
        self._catalog = catalog_of(warehouse)
        self._database = warehouse / "catalog.db"
        self._written: list[float] = []
        described = IcebergTable(ICEBERG_TABLE, catalog=self._catalog)
        super().__init__(_described(described), warehouse / "_landing")

    @override
    def look(self) -> None:
        written = self._database.stat().st_mtime if self._database.exists() else 0.0
        if written not in self._written[-1:]:
            self._written.append(written)

    @override
    def commits(self) -> list[Commit]:
        table = load_catalog("default", **self._catalog).load_table(ICEBERG_TABLE)
        found = []
        for snapshot in table.metadata.snapshots:
            files = [
                Path(entry.data_file.file_path.removeprefix("file://"))
                for manifest in snapshot.manifests(table.io)
                if manifest.added_snapshot_id == snapshot.snapshot_id
                for entry in manifest.fetch_manifest_entry(table.io)
                if entry.snapshot_id == snapshot.snapshot_id
            ]
            after = bisect_left(self._written, snapshot.timestamp_ms / 1000)
            if files and after < len(self._written):
                found.append(Commit(self._written[after], len(files), _arrivals(files)))
        return found


class PostgresWatched(WatchedSink):
    """A table in PostgreSQL: each batch is a transaction.

    :param folder: an empty folder.
    :param url: of an empty database.
    """

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(SqlTarget(url, folder / "staging").sink_settings(), folder / "_landing")
        self._connection = sa.create_engine(url, isolation_level="AUTOCOMMIT").connect()
        self._seen: dict[str, float] = {}

    @override
    def look(self) -> None:
        batches = self._connection.exec_driver_sql(f"SELECT batch_id FROM {BATCHES}").scalars().all()
        now = time.time()
        for batch_id in batches:
            self._seen.setdefault(batch_id, now)

    @override
    def commits(self) -> list[Commit]:
        self.look()
        arrivals: dict[str, list[float]] = {}
        rows = self._connection.exec_driver_sql(f"SELECT _batch_id, extract(epoch FROM {ARRIVAL}) FROM {TABLE}")
        for batch_id, arrival in rows:
            arrivals.setdefault(batch_id, []).append(float(arrival))
        return [Commit(self._seen[batch_id], 0, each) for batch_id, each in arrivals.items()]


FILES: dict[str, Callable[[Path], WatchedSink]] = {
    "parquet": ParquetWatched,
    "delta": DeltaWatched,
    "iceberg": IcebergWatched,
}


@contextmanager
def watched(kind: str, folder: Path) -> Iterator[WatchedSink]:
    """Make a sink of a kind, with its database if it needs one.

    :param folder: an empty folder.
    """
    if kind != "postgresql":
        yield FILES[kind](folder)
        return
    with running_postgres() as postgres, postgres_database(postgres.get_uri()) as url:
        yield PostgresWatched(folder, url)


def _described(described: writes.Writes) -> SinkSettings:
    connections: Any = None  # nothing here names a connection
    [settings] = writes.sinks_of(described, connections)
    return settings


def _arrivals(files: Sequence[Path]) -> list[float]:
    """Return when the records of files arrived, in seconds since 1970."""
    columns = (pq.read_table(file, columns=[ARRIVAL], partitioning=None)[ARRIVAL] for file in files)
    return [micros / 1e6 for column in columns for micros in column.cast("int64").to_pylist()]


class Producer(threading.Thread):
    """Puts records into all shards at a steady rate until it is stopped.

    :param client: of the stream.
    """

    def __init__(self, client: Any) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._stopped = threading.Event()
        self.sent = 0

    @override
    def run(self) -> None:
        chance, began = random.Random(0), time.monotonic()
        some = RECORDS_A_SECOND // PUTS_A_SECOND
        while not self._stopped.wait(max(0.0, began + self.sent / RECORDS_A_SECOND - time.monotonic())):
            records = [
                {"PartitionKey": str(self.sent + number), "Data": chance.randbytes(RECORD_BYTES)}
                for number in range(some)
            ]
            answer = self._client.put_records(StreamName=STREAM, Records=records)
            self.sent += some - answer["FailedRecordCount"]

    def stop(self) -> None:
        """Let it end after the present records."""
        self._stopped.set()
        self.join()


def measure(folder: Path, kind: str, target: float | None, seconds: float) -> dict[str, Any]:
    """Return the figures of one sink.

    :param folder: an empty folder.
    :param target: `RoundSettings.freshness`, in seconds.
    :param seconds: how long it is measured.
    """
    with ExitStack() as stack:
        sink = stack.enter_context(watched(kind, folder))
        server = stack.enter_context(KinesisServerProcess())
        client = stack.enter_context(closing(server.client()))
        client.create_stream(StreamName=STREAM, ShardCount=SHARDS)
        client.get_waiter("stream_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        store = StoreSettings.from_url(f"sqlite:///{folder}/coordination.db")
        coordinator = SourceCoordinator(open_store(store), STREAM, "benchmark")
        stack.enter_context(closing(coordinator.store))
        coordinator.initialize()
        sync_shards(client, coordinator, STREAM)
        owner, jobs = f"owner-{uuid.uuid4().hex[:8]}", Jobs(coordinator.view)
        until = datetime.now(UTC) + timedelta(hours=1)
        settings = ingest(
            source=STREAM,
            owner=owner,
            writes=(sink.settings,),
            landing_path=str(sink.landing),
            streams=(STREAM,),
            aws=AwsSettings(
                region="us-east-1",
                endpoint_url=server.endpoint_url,
                access_key_id=server.access_key_id,
                secret_access_key="test",
            ),
            expires_at=until,
            store=store,
            freshness=target,
            until_caught_up=False,
            is_followed=True,
        )
        jobs.submit(owner, task="benchmark", digest="", start_by=until)
        job = submit(settings, folder)
        stack.callback(job.kill)
        job.wait_for("round 1: ")
        producer = Producer(client)
        producer.start()
        stack.callback(producer.stop)
        _watch(job, sink, SETTLED_SECONDS)
        since, before, logged = time.time(), _reported(jobs, owner), len(job.output)
        _watch(job, sink, seconds)
        reported, log = _reported(jobs, owner), job.output[logged:]
        producer.stop()
        commits = _drained(job, sink, producer.sent)
    own = Ages(Counter(reported.counts) - Counter(before.counts))
    return {
        "target": target,
        **figures(commits, since, seconds),
        "job p50": own.quantile(0.5),
        "job p95": own.quantile(0.95),
        "phases": phases(log),
    }


def _watch(job: Job, sink: WatchedSink, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert job.process.poll() is None, job.output
        sink.look()
        time.sleep(LOOK_SECONDS)


def _reported(jobs: Jobs, owner: str) -> Ages:
    """Return the ages that a job reported last."""
    job = jobs.get(owner)
    assert job is not None and job.report is not None
    return Ages.sum(job.report.ages.values())


def _drained(job: Job, sink: WatchedSink, sent: int) -> list[Commit]:
    """Return the commits once the sink has as many records as were sent."""
    deadline = time.monotonic() + DRAINED_SECONDS
    while True:
        commits = sink.commits()
        visible = sum(len(commit.arrivals) for commit in commits)
        if visible >= sent:
            break
        assert time.monotonic() < deadline, f"{visible} of {sent} records are visible\n{job.output}"
        _watch(job, sink, 1.0)
    assert visible == sent, f"{visible - sent} records are doubled"
    return commits


def figures(commits: Sequence[Commit], since: float, seconds: float) -> dict[str, float]:
    """Return the figures that are seen from outside.

    :param commits: all commits.
    :param since: when the measurement began, in seconds since 1970; records that arrived before do not count.
    :param seconds: how long it lasted.
    """
    until = since + seconds
    ages = [commit.at - at for commit in commits for at in commit.arrivals if since <= at < until]
    during = [commit for commit in commits if since <= commit.at < until]
    percentiles = statistics.quantiles(ages, n=100)
    return {
        "records": len(ages),
        "p50": round(percentiles[49], 2),
        "p95": round(percentiles[94], 2),
        "greatest": round(max(ages), 2),
        "commits a minute": round(len(during) * 60 / seconds, 1),
        "files a minute": round(sum(commit.files for commit in during) * 60 / seconds, 1),
    }


def phases(log: str) -> dict[str, float]:
    """Return the medians of the phases of rounds in seconds, from the log of a job."""
    rounds = [dict(phase.split("=") for phase in found.split()) for found in PHASES.findall(log)]
    return {name: round(statistics.median(float(each[name]) for each in rounds), 2) for name in (rounds or [{}])[0]}


def report(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the figures as a table."""
    lines = [
        "| sink | target | p50 | p95 | greatest | p95 of the job | commits a minute | files a minute |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for each in found:
        target = "-" if each["target"] is None else f"{each['target']:g} s"
        ages = " | ".join(f"{each[name]:.1f} s" for name in ("p50", "p95", "greatest", "job p95"))
        lines.append(
            f"| {each['sink']} | {target} | {ages} | {each['commits a minute']:.0f} | {each['files a minute']:.0f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="for half a minute, without the default rounds")
    parser.add_argument("--sink", choices=TARGETS, help="only this one")
    parser.add_argument("--target", type=float, metavar="SECONDS", help="the target instead of each sink's own")
    options = parser.parse_args(arguments)
    found = []
    for kind, target in TARGETS.items():
        if options.sink in (None, kind):
            for wanted in (options.target or target, *(() if options.quick else (None,))):
                with tempfile.TemporaryDirectory(prefix="freshness-", ignore_cleanup_errors=True) as folder:
                    load = os.getloadavg()[0]
                    figure = measure(Path(folder), kind, wanted, QUICK_SECONDS if options.quick else SECONDS)
                found.append({"sink": kind, **figure, "load before": round(load, 1)})
                print(json.dumps(found[-1]), flush=True)
    print(report(found))
    print()
    print(json.dumps({"benchmark": "freshness", "sinks": found}))


if __name__ == "__main__":
    main()
