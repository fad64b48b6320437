"""A long run in which everything fails: what is in each sink afterwards?

Three real jobs, each a spark-submit with `local[2, 4]`, read a stream of our own Kinesis server into a Parquet dataset,
a Delta table, an Iceberg table and a table of PostgreSQL. Files are in a bucket; the store and Iceberg's catalog are
databases. During that time

- the Python workers of a job and whole jobs are killed; jobs end on SIGTERM, or stand still beyond their leases;
- a job loses its store; all of them lose the bucket, the catalog with the table's database, or find them very slow;
- shards split and merge.

Records are aggregates of numbered events. When all have arrived, jobs end, and readers that know nothing of this
package count how often each sink has each number, and an audit reads every row. Kinesis keeps running: what it accepted
is what must arrive.

Usage: python -m benchmarks.chaos [--quick] [--minutes N] [--rate N] [--every SECONDS] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from airflow_provider_coordination.audit.report import SinkAudit
from airflow_provider_coordination.audit.source_audit import audit_source
from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.job_settings import BadRecordSettings
from airflow_provider_coordination.spark.sink_settings import PARQUET, SinkSettings
from airflow_provider_coordination.spark.sinks.delta.log import storage_options
from airflow_provider_coordination.spark.storage import files_below, open_files
from demo.local_postgres import local_postgres
from tests.support.aggregation import aggregate
from tests.support.cable import Cable
from tests.support.harm import KILL_WORKERS, HarmedJobs, reshard, through
from tests.support.kinesis_server.process import KinesisServerProcess
from tests.support.s3_server import S3Server
from tests.support.servers import postgres_database, socket_of
from tests.support.spark_job import Pipeline
from tests.support.sql_tables import SqlTarget

STREAM, BUCKET = "chaos", "chaos"
JOBS = 3
MASTER = "local[2, 4]"
"""Two tasks at a time, and four tries of each, as on a cluster."""
EVENTS_A_RECORD, RECORDS_A_PUT = 100, 50
KEYS = 1000
SCHEMA = "id BIGINT NOT NULL, key STRING, at TIMESTAMP, text STRING"
LEASE_SECONDS = 20.0
RETRIES = RetryPolicy(first_delay=timedelta(seconds=2), max_delay=timedelta(seconds=10), max_closed_count=10**6)
"""By default, a partition whose tries are killed again and again would wait for up to an hour."""
FEWEST_SHARDS, MOST_SHARDS = 6, 12
RESHARD_EVERY_SECONDS = 30.0
AWAY_SECONDS = (2.0, 15.0)
"""For how long a server is away, at least and at most."""
KINDS = (*[KILL_WORKERS] * 45, "kill", "kill and notice", "stop", "cut off", "pause")
"""What happens to jobs: one that dies takes half a minute to be back, on two processors."""
OUTAGES = ("bucket cut", "bucket clogged", "catalog cut", "catalog clogged")
OUTAGE_SHARE = 0.1
"""The share of what happens that happens to servers."""
SETTLE_SECONDS = 1800.0


@dataclass(frozen=True)
class Size:
    """How long, and how bad.

    :param minutes: during which things happen.
    :param rate: events sent a second.
    :param every: seconds from one thing that happens to the next, in the mean.
    :param seed: decides what happens.
    """

    minutes: float
    rate: int
    every: float
    seed: int


@dataclass
class Found:
    """What a sink has.

    :param rows: the number of its rows.
    :param lost: the number of events that it does not have.
    :param doubled: the number of events that it has more than once.
    :param unknown: the number of rows that were not sent.
    """

    rows: int
    lost: int
    doubled: int
    unknown: int


def send(endpoint: str, rate: int, over: Any, sent: Any) -> None:
    """Send events until it is over; runs in a process of its own.

    :param rate: events a second.
    :param over: an event.
    :param sent: a shared number, of the events that Kinesis accepted.
    """
    from tests.support.kinesis_server.http import http_client

    client = http_client(endpoint, "test")
    began, text = time.monotonic(), "x" * 64
    while not over.is_set():
        if sent.value > (time.monotonic() - began) * rate:
            time.sleep(0.05)
            continue
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        entries = []
        for record in range(RECORDS_A_PUT):
            first = sent.value + record * EVENTS_A_RECORD
            key = f"key-{first // EVENTS_A_RECORD % KEYS:04d}"
            events = [
                (key, f'{{"id": {number}, "key": "{key}", "at": "{at}", "text": "{text}"}}'.encode())
                for number in range(first, first + EVENTS_A_RECORD)
            ]
            entries.append({"Data": aggregate(events), "PartitionKey": key})
        while entries:
            answer = client.put_records(StreamName=STREAM, Records=entries)
            refused = [each for each, done in zip(entries, answer["Records"], strict=True) if done.get("ErrorCode")]
            entries = refused
            if refused:
                time.sleep(0.2)
        sent.value += RECORDS_A_PUT * EVENTS_A_RECORD


@dataclass
class Lake:
    """Where the jobs write.

    :param files: how the jobs reach the bucket.
    :param direct: how readers reach it, whatever happens to the jobs.
    :param url: the database of the catalog and of the table, as jobs reach it.
    :param direct_url: as readers reach it.
    :param folder: for the rows of PostgreSQL, until they are in the table.
    """

    files: AwsSettings
    direct: AwsSettings
    url: str
    direct_url: str
    folder: Path
    root: str = f"s3://{BUCKET}"

    def writes(self) -> tuple[SinkSettings, ...]:
        """Return the sinks of a job."""
        return self._sinks(self.files, self.url)

    def audited(self) -> tuple[SinkSettings, ...]:
        """Return the sinks of an audit, which reaches them whatever happens to the jobs."""
        return self._sinks(self.direct, self.direct_url)

    def _sinks(self, files: AwsSettings, url: str) -> tuple[SinkSettings, ...]:
        iceberg = {"table": "lake.events", "catalog_name": "lake", "properties": self.catalog(url, files)}
        return (
            SinkSettings(name=PARQUET, kind=PARQUET, location=f"{self.root}/dataset", aws=files),
            SinkSettings(name="delta", kind="delta", location=f"{self.root}/delta", aws=files),
            SinkSettings(
                name="iceberg", kind="iceberg", location="iceberg://chaos/lake.events", aws=files, settings=iceberg
            ),
            replace(SqlTarget(url, self.folder / "rows", table="events").sink_settings(), name="postgresql"),
        )

    def catalog(self, url: str, files: AwsSettings) -> dict[str, str]:
        """Return the properties of Iceberg's catalog."""
        return {
            "type": "sql",
            "uri": url,
            "warehouse": f"{self.root}/warehouse",
            "s3.endpoint": str(files.endpoint_url),
            "s3.access-key-id": str(files.access_key_id),
            "s3.secret-access-key": str(files.secret_access_key),
            "s3.region": str(files.region),
        }

    # What readers find

    def numbers(self, sink: str) -> Iterator[Any]:
        """Yield the numbers that a sink has, in pieces."""
        reads: dict[str, Callable[[], Iterator[pa.RecordBatch]]] = {
            PARQUET: self._of_parquet,
            "delta": self._of_delta,
            "iceberg": self._of_iceberg,
        }
        if sink in reads:
            for batch in reads[sink]():
                yield batch.column("id").to_numpy()
        else:
            yield from self._of_postgresql()

    def has_all(self, events: int) -> bool:
        """Return whether each sink has as many rows as were sent."""
        counts = {sink: self._count(sink) for sink in SINKS}
        print(f"  rows: {counts} of {events}", file=sys.stderr, flush=True)
        return all(count >= events for count in counts.values())

    def _count(self, sink: str) -> int:
        import psycopg
        from deltalake.exceptions import TableNotFoundError
        from pyiceberg.exceptions import NoSuchTableError

        try:
            match sink:
                case "parquet":
                    return int(self._dataset(f"{self.root}/dataset").count_rows())
                case "delta":
                    return int(self._delta().count())
                case "iceberg":
                    return int(self._iceberg().scan().count())
            with psycopg.connect(self._libpq) as connection:
                [count] = connection.execute("SELECT count(*) FROM events").fetchone() or [0]
                return int(count)
        except (TableNotFoundError, NoSuchTableError, psycopg.errors.UndefinedTable):
            return 0

    @property
    def _libpq(self) -> str:
        return self.direct_url.replace("+psycopg", "")

    def _dataset(self, root: str) -> ds.Dataset:
        access = Access(((self.root, self.direct),))
        files, _ = open_files(root, access)
        found = [open_files(file, access)[1] for file in files_below(root, access)]
        published = [file for file in found if file.endswith(".parquet") and "/_" not in file]
        return ds.dataset(published, filesystem=files.filesystem, format="parquet")

    def _of_parquet(self) -> Iterator[pa.RecordBatch]:
        yield from self._dataset(f"{self.root}/dataset").to_batches(columns=["id"])

    def _delta(self) -> Any:
        from deltalake import DeltaTable

        options = storage_options(f"{self.root}/delta", Access(((self.root, self.direct),)))
        return DeltaTable(f"{self.root}/delta", storage_options=options())

    def _of_delta(self) -> Iterator[pa.RecordBatch]:
        yield from self._delta().to_pyarrow_dataset().to_batches(columns=["id"])

    def _iceberg(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("lake", **self.catalog(self.direct_url, self.direct)).load_table("lake.events")

    def _of_iceberg(self) -> Iterator[pa.RecordBatch]:
        yield from self._iceberg().scan(selected_fields=("id",)).to_arrow_batch_reader()

    def _of_postgresql(self) -> Iterator[Any]:
        import psycopg

        with psycopg.connect(self._libpq) as connection, connection.cursor("numbers") as cursor:
            cursor.execute("SELECT id FROM events")
            while rows := cursor.fetchmany(100_000):
                yield np.array([number for (number,) in rows], np.int64)


SINKS = (PARQUET, "delta", "iceberg", "postgresql")


def found_in(pieces: Iterator[Any], events: int) -> Found:
    """Return what a sink has.

    :param pieces: the numbers of its rows.
    :param events: how many events were sent, with the numbers from 0 on.
    """
    times, rows, unknown = np.zeros(events, np.int32), 0, 0
    for numbers in pieces:
        rows += len(numbers)
        known = numbers[(numbers >= 0) & (numbers < events)]
        unknown += len(numbers) - len(known)
        times += np.bincount(known, minlength=events).astype(np.int32)
    return Found(rows=rows, lost=int((times == 0).sum()), doubled=int((times > 1).sum()), unknown=unknown)


def audit_of(sink: SinkAudit) -> dict[str, Any]:
    """Return what the audit of a sink shows, as a JSON object."""
    findings = [*sink.findings, *(finding for each in sink.partitions for finding in each.findings)]
    for finding in findings:
        print(f"  {finding}", file=sys.stderr, flush=True)
    return {
        "partitions": len(sink.partitions),
        "batches": sum(each.batches for each in sink.partitions),
        "rows": sum(each.rows or 0 for each in sink.partitions),
        "unexplained": sum(not finding.is_explained for finding in findings),
        "explained": sum(finding.is_explained for finding in findings),
    }


@dataclass
class Outages:
    """Servers that are away now and then.

    :param bucket: leads the jobs to the bucket.
    :param catalog: leads the jobs to the catalog, and to the database of the table.
    :param chance: decides for how long.
    :param done: how often each happened.
    """

    bucket: Cable
    catalog: Cable
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)

    def strike(self) -> None:
        """Let one of the servers be away for a while."""
        what = self.chance.choice(OUTAGES)
        cable = self.bucket if what.startswith("bucket") else self.catalog
        if what.endswith("cut"):
            cable.cut()
        else:
            cable.clog()
        self.done[what] += 1
        timer = threading.Timer(self.chance.uniform(*AWAY_SECONDS), cable.restore)
        timer.daemon = True
        timer.start()


def harm(jobs: HarmedJobs, outages: Outages, size: Size, stream: Callable[[], str]) -> None:
    """Let things happen until the time is over."""
    until = time.monotonic() + size.minutes * 60
    next_reshard = time.monotonic() + RESHARD_EVERY_SECONDS
    while time.monotonic() < until:
        time.sleep(jobs.chance.uniform(0.5, 1.5) * size.every)
        if jobs.chance.random() < OUTAGE_SHARE:
            outages.strike()
        else:
            jobs.harm(KINDS)
        if time.monotonic() > next_reshard:
            outages.done[stream()] += 1
            next_reshard = time.monotonic() + RESHARD_EVERY_SECONDS


def settle(jobs: HarmedJobs, lake: Lake, events: int) -> None:
    """Return once every sink has as many rows as were sent; then end the jobs."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while not lake.has_all(events) and time.monotonic() < deadline:
        jobs.replace_ended()
        time.sleep(10)
    for worker in jobs.workers:
        worker.job.driver().terminate()
    for worker in jobs.workers:
        worker.job.wait()


def run(size: Size) -> dict[str, Any]:
    """Run, and return what happened and what was found."""
    chance = random.Random(size.seed)
    spawn = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        stack.enter_context(patch.dict(os.environ, {"AWS_EC2_METADATA_DISABLED": "true"}))
        kinesis = stack.enter_context(KinesisServerProcess())
        bucket = S3Server().start()
        stack.callback(bucket.stop)
        bucket.client().create_bucket(Bucket=BUCKET)
        server = str(stack.enter_context(local_postgres()).get_uri())
        store, tables = (stack.enter_context(postgres_database(server)) for _ in range(2))
        to_bucket = stack.enter_context(Cable(partial(socket.create_connection, _address(bucket.endpoint_url))))
        to_catalog = stack.enter_context(Cable(socket_of(server)))
        files = replace(bucket.settings, endpoint_url=f"http://127.0.0.1:{to_bucket.port}")
        lake = Lake(files, bucket.settings, through(tables, to_catalog), tables, folder)
        pipeline = Pipeline(kinesis, STREAM, folder, store)  # type: ignore[arg-type]
        pipeline.client.create_stream(StreamName=STREAM, ShardCount=FEWEST_SHARDS)
        settings = {
            "writes": lake.writes(),
            "schema": SCHEMA,
            "landing_path": f"{lake.root}/dataset/_landing",
            "bad_records": BadRecordSettings(dead_letter_path=f"{lake.root}/dead"),
            "round_duration": 5,
            "master": MASTER,
            "safety_margin": timedelta(seconds=2),
            "handover_timeout": 10.0,
            "retry_policy": RETRIES,
            "shard_sync_interval": 5.0,
            "expires_at": datetime.now(UTC) + timedelta(hours=12),
        }
        jobs = HarmedJobs(pipeline, socket_of(server), chance, JOBS, LEASE_SECONDS, settings)
        stack.callback(jobs.close)
        outages = Outages(to_bucket, to_catalog, chance)
        pipeline.sync()
        over, sent = spawn.Event(), spawn.Value("q", 0)
        sender = spawn.Process(target=send, args=(kinesis.endpoint_url, size.rate, over, sent), daemon=True)
        jobs.start_all()
        sender.start()
        while not all("round 1:" in worker.job.output for worker in jobs.workers):
            time.sleep(1)
        began = time.monotonic()
        harm(jobs, outages, size, partial(reshard, pipeline.client, STREAM, chance, FEWEST_SHARDS, MOST_SHARDS))
        print(f"  the harm is done: {dict(jobs.done + outages.done)}", file=sys.stderr, flush=True)
        over.set()
        sender.join()
        for cable in (to_bucket, to_catalog):
            cable.restore()
        jobs.recover()
        events = sent.value
        settle(jobs, lake, events)
        lasted = time.monotonic() - began
        view = pipeline.coordinator().view
        partitions = Counter(p.status.name for p in view.partitions())
        audit_began = time.monotonic()
        audits = {each.name: audit_of(each) for each in audit_source(view, lake.audited(), reads_rows=True).sinks}
        happened = {**jobs.done, **outages.done}
        return {
            "seed": size.seed,
            "minutes": round(lasted / 60, 1),
            "events": events,
            "kills": sum(happened.get(what, 0) for what in (KILL_WORKERS, "kill", "kill and notice")),
            "happened": dict(sorted(happened.items())),
            "partitions": dict(partitions),
            "parked": sum(p.is_parked for p in view.partitions()),
            "audit_seconds": round(time.monotonic() - audit_began, 1),
            "audits": audits,
            "sinks": {sink: asdict(found_in(lake.numbers(sink), events)) for sink in SINKS},
        }


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    return parts.hostname, parts.port


def table(sinks: Mapping[str, Mapping[str, int]], audits: Mapping[str, Mapping[str, int]]) -> str:
    """Return what was found as a table."""
    head = "| sink | rows | lost | doubled | not sent | batches | unexplained |\n|---|--:|--:|--:|--:|--:|--:|"
    lines = [
        f"| {name} | {f['rows']:,} | {f['lost']} | {f['doubled']} | {f['unknown']} "
        f"| {audits[name]['batches']:,} | {audits[name]['unexplained']} |"
        for name, f in sinks.items()
    ]
    return "\n".join([head, *lines])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two minutes")
    parser.add_argument("--minutes", type=float, help="during which things happen; default 60")
    parser.add_argument("--rate", type=int, help="events a second; default 1000")
    parser.add_argument("--every", type=float, default=4.0, help="seconds from one thing to the next; default 4")
    parser.add_argument("--seed", type=int, help="decides what happens; default random")
    options = parser.parse_args(arguments)
    size = Size(
        minutes=options.minutes or (2 if options.quick else 60),
        rate=options.rate or 1000,
        every=options.every,
        seed=options.seed if options.seed is not None else random.SystemRandom().randrange(10**6),
    )
    found = run(size)
    print(f"{found['events']:,} events, {found['kills']} kills, {found['minutes']} minutes: {found['happened']}\n")
    print(table(found["sinks"], found["audits"]))
    print(json.dumps(found))
    wrong = [sink for sink, each in found["sinks"].items() if each["lost"] or each["doubled"] or each["unknown"]]
    wrong += [sink for sink, each in found["audits"].items() if each["unexplained"]]
    sys.exit(f"not as sent: {', '.join(wrong)}" if wrong or found["parked"] else 0)


if __name__ == "__main__":
    main()
