"""Intervals under a whole Airflow, with real Spark jobs: backfills, runs by hand, runs that are repeated."""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest
import sqlalchemy as sa

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from demo.airflow_home import task_log
from tests.support.kinesis_server.clock import RealClock
from tests.support.kinesis_server.http import KinesisServer
from tests.support.s3_server import S3Server
from tests.support.standalone import Standalone
from tests.support.synced import sync_shards

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
MICROSECOND, MILLISECOND = timedelta(microseconds=1), timedelta(milliseconds=1)
LOOKED_FOR = "ingestion.create_partitions"


def text(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%d")


def last_midnight() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


@dataclass
class Watched:
    """A source that runs of a DAG ingest, the store that holds its leases, and what was delivered."""

    airflow: Standalone
    dag_id: str
    folder: Path
    source: str
    output: Path

    def items(self) -> list[Any]:
        """Return everything that the store holds of the source, whole."""
        with closing(sqlite3.connect(self.folder / "coordination.db")) as store:
            tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = [(table, *row) for table in tables for row in store.execute(f'SELECT * FROM "{table}"')]
        return sorted((row for row in rows if any(self.source in str(value) for value in row)), key=repr)

    def files(self) -> list[tuple[str, int]]:
        """Return the files of the datasets, and when each was written."""
        return sorted((str(file), file.stat().st_mtime_ns) for file in self.output.rglob("*") if file.is_file())

    def ids(self, *below: str) -> Counter[int]:
        """Return how often each record is in a dataset."""
        payloads = ds.dataset(self.output.joinpath(*below), format="parquet").to_table(columns=["data"])["data"]
        return Counter(json.loads(payload)["id"] for payload in payloads.to_pylist())

    def states(self, run_id: str) -> dict[str, str]:
        return {task["task_id"]: task["state"] for task in self.airflow.task_instances(self.dag_id, run_id)}

    def repeat(self, *run_ids: str, how: Callable[[], None]) -> None:
        """Let runs be done again, and check that they start no job, deliver nothing and leave the store as it is."""
        items, files = self.items(), self.files()
        assert items and files
        how()
        for run_id in run_ids:
            assert self.airflow.wait_for_run(self.dag_id, run_id) == "success"
            assert {task["try_number"] > 1 for task in self.ran(run_id)} == {True}, "it was done again"
            assert self.states(run_id)["ingestion.ingest"] in ("skipped", "removed"), "removed is what ran before"
            assert self.airflow.xcom(self.dag_id, run_id, "ingestion.summarize")["jobs"] == {"planned": 0}
        assert self.files() == files
        assert self.items() == items

    def ran(self, run_id: str) -> list[dict[str, Any]]:
        tasks = self.airflow.task_instances(self.dag_id, run_id)
        return [task for task in tasks if task["task_id"] in ("ingestion.plan_jobs", "ingestion.summarize")]


@pytest.fixture
def watch(airflow: Standalone, folder: Path, tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    """Names a source of this test alone, or takes its name; no scheduled run of its DAG begins after the test."""
    watching: list[Watched] = []

    def watched(dag_id: str, source: str | None = None) -> Watched:
        name = source or f"source-{uuid.uuid4().hex[:8]}"
        watching.append(Watched(airflow, dag_id, folder, name, tmp_path / "out"))
        return watching[-1]

    yield watched
    for each in watching:
        airflow.pause(each.dag_id)


def are_running(runs: Iterable[dict[str, Any]]) -> bool:
    return {run["state"] for run in runs} == {"running"}


# Files, by when they were modified


def write(folder: Path, modified: datetime, number: int) -> int:
    """Write a file of one record that was modified at an instant, exactly."""
    file = folder / f"{number}.json"
    file.write_text(json.dumps({"id": number}) + "\n")
    nanoseconds = (modified - datetime(1970, 1, 1, tzinfo=UTC)) // MICROSECOND * 1000
    os.utime(file, ns=(nanoseconds, nanoseconds))
    return number


@pytest.mark.only_deep
def test_days_are_backfilled_exactly_and_repeatably(watch: Callable[..., Watched], tmp_path: Path) -> None:
    midnight = last_midnight()
    days = [midnight - number * DAY for number in (2, 1)]
    watched = watch("files_by_day")
    airflow, files, gate = watched.airflow, tmp_path / "files", tmp_path / "both run"
    files.mkdir()
    expected = {
        day: [
            write(files, day + after, 10 * n + m)
            for m, after in enumerate((DAY / 2, DAY / 3, 0 * DAY, DAY - MICROSECOND))
        ]
        for n, day in enumerate(days, 1)
    }
    for number, outside in enumerate((days[0] - MICROSECOND, midnight), 1):
        write(files, outside, number)
    conf = {"folder": f"{files}/", "source": watched.source, "output_path": str(watched.output)}
    killed = days[0]

    first = conf | {"killed_day": text(killed), "gate": str(gate)}
    airflow.backfill(watched.dag_id, days[0], days[-1], first, "--max-active-runs", "2")
    by_day = dict(zip(days, airflow.backfilled(watched.dag_id), strict=True))
    airflow.until("both run", lambda: are_running(airflow.backfilled(watched.dag_id)))
    gate.touch()
    for run in by_day.values():
        assert airflow.wait_for_run(watched.dag_id, run["dag_run_id"]) == "success"

    for day in days:
        assert watched.ids(text(day)) == Counter(expected[day]), text(day)
    tries = {
        day: task["try_number"]
        for day, run in by_day.items()
        for task in airflow.task_instances(watched.dag_id, run["dag_run_id"])
        if task["task_id"] == "ingestion.ingest"
    }
    assert tries == {day: 2 if day == killed else 1 for day in days}
    summary = airflow.xcom(watched.dag_id, by_day[killed]["dag_run_id"], "ingestion.summarize")
    assert summary["records_landed"] == 0, "the first try had landed them before it was killed"

    run_ids = [run["dag_run_id"] for run in by_day.values()]
    completed = ("--reprocess-behavior", "completed")
    watched.repeat(*run_ids, how=lambda: airflow.backfill(watched.dag_id, days[0], days[-1], conf, *completed))


@pytest.mark.only_deep
def test_partitioned_run_ingests_its_partition_and_reversed_interval_fails(
    watch: Callable[..., Watched], tmp_path: Path
) -> None:
    day = last_midnight() - 2 * DAY
    watched, by_day, files = watch("files_by_partition"), watch("files_by_day"), tmp_path / "files"
    airflow = watched.airflow
    files.mkdir()
    write(files, day - MICROSECOND, 1)
    inside = [write(files, day, 2), write(files, day + DAY - MICROSECOND, 3)]
    write(files, day + DAY, 4)
    conf = {"folder": f"{files}/", "source": watched.source, "output_path": str(watched.output)}

    airflow.backfill(watched.dag_id, day, day, conf)
    wrong = airflow.trigger(by_day.dag_id, conf | {"interval": f"{day.isoformat()}/{(day - DAY).isoformat()}"})
    [run] = airflow.backfilled(watched.dag_id)
    assert run["partition_key"] == day.strftime("%Y-%m-%dT%H:%M:%S")
    assert airflow.wait_for_run(watched.dag_id, run["dag_run_id"]) == "success"
    assert watched.ids(text(day)) == Counter(inside)

    assert airflow.wait_for_run(by_day.dag_id, wrong) == "failed"
    [failed] = [task for task in airflow.task_instances(by_day.dag_id, wrong) if task["task_id"] == LOOKED_FOR]
    assert (failed["state"], failed["try_number"], failed["max_tries"]) == ("failed", 1, 2)
    assert "field 'interval' must start before it ends; got" in task_log(airflow.home, failed, 200)


# Objects of a real bucket


@pytest.mark.only_deep
def test_manual_run_and_live_ingestion_deliver_each_object_once(
    watch: Callable[..., Watched], other_aws: Callable[..., None], s3: S3Server, s3_bucket: str
) -> None:
    live, by_hand = watch("s3_ingestion"), watch("files_by_day")
    airflow, client = live.airflow, s3.client()
    other_aws(s3=s3.settings)
    modified: list[datetime] = []

    def put() -> None:  # in a second of its own, as S3 rounds times to whole seconds
        number = len(modified)
        while len(modified) == number:
            client.put_object(Bucket=s3_bucket, Key=f"events/{number}.json", Body=json.dumps({"id": number}).encode())
            instant = client.head_object(Bucket=s3_bucket, Key=f"events/{number}.json")["LastModified"]
            if not modified or instant > modified[-1]:
                modified.append(instant)

    put()
    put()
    to_one_dataset = {"output_path": str(live.output / "by_hand")}
    of_live = to_one_dataset | {"path": f"s3://{s3_bucket}/events/", "source": live.source}
    assert airflow.wait_for_run(live.dag_id, airflow.trigger(live.dag_id, of_live)) == "success"
    assert live.ids("by_hand") == Counter([0, 1])
    put()
    put()
    put()
    run = airflow.trigger(
        by_hand.dag_id,
        {
            "folder": f"s3://{s3_bucket}/events/",
            "source": by_hand.source,
            "output_path": str(by_hand.output),
            "interval": f"{modified[1].isoformat()}/{modified[3].isoformat()}",
            "deduplicate_against": live.source,
        },
    )
    assert airflow.wait_for_run(by_hand.dag_id, run) == "success"
    assert live.ids("by_hand") == Counter([0, 1, 2]), "1 was delivered, and 3 is outside"
    assert airflow.wait_for_run(live.dag_id, airflow.trigger(live.dag_id, of_live)) == "success"
    assert live.ids("by_hand") == Counter(range(5))


# A stream, by when records arrived


class ArrivalClock(RealClock):
    """The machine's clock, which can be set to another time."""

    set_to: datetime | None = None

    def now(self) -> datetime:
        return self.set_to or super().now()


@pytest.mark.timeout(900)  # Spark jobs beside each other
def test_stream_hours_are_backfilled_exactly_beside_live_reading(
    watch: Callable[..., Watched],
    look: Callable[[str], SourceCoordinator],
    other_aws: Callable[..., None],
    kinesis_server: KinesisServer,
) -> None:
    last = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    clock = ArrivalClock()
    account = kinesis_server.account(clock)
    stream = f"stream-{uuid.uuid4().hex[:8]}"
    watched, hourly = watch("interval_ingestion", stream), watch("hourly_ingestion", stream)
    airflow, client = watched.airflow, account.client()
    other_aws(kinesis=account.settings())
    clock.set_to = last - 4 * HOUR
    client.create_stream(StreamName=stream, ShardCount=2)
    arrivals = (  # two hours, and what is around them
        last - 2 * HOUR - MILLISECOND,
        last - 2 * HOUR,
        last - 2 * HOUR + HOUR / 2,
        last - HOUR - MILLISECOND,
        last - HOUR,
        last - MILLISECOND,
        last,
    )
    for number, clock.set_to in enumerate(arrivals):
        for each in range(10):
            data = json.dumps({"id": 10 * number + each}).encode()
            client.put_record(StreamName=stream, PartitionKey=uuid.uuid4().hex, Data=data)
    clock.set_to = None
    sync_shards(client, look(stream), stream)  # as the first hourly run did, hours ago
    conf = {"stream": stream, "output_path": str(watched.output / "intervals")}

    live = conf | {"output_path": str(watched.output / "live")}
    with ThreadPoolExecutor() as pool:  # each command takes seconds to start
        intervals = pool.submit(airflow.backfill, watched.dag_id, last - 2 * HOUR, last - HOUR, conf)
        pool.submit(airflow.backfill, hourly.dag_id, last - HOUR, last - HOUR, live).result()
        intervals.result()
    runs, [live_run] = airflow.backfilled(watched.dag_id), airflow.backfilled(hourly.dag_id)
    run_ids = [run["dag_run_id"] for run in runs]
    for run_id in run_ids:
        assert airflow.wait_for_run(watched.dag_id, run_id) == "success"
    assert airflow.wait_for_run(hourly.dag_id, live_run["dag_run_id"]) == "success"

    delivered = [airflow.xcom(watched.dag_id, run_id, "ingestion.summarize")["records_delivered"] for run_id in run_ids]
    assert delivered == [30, 20]
    assert watched.ids("intervals") == Counter(range(10, 60))
    assert watched.ids("live") == Counter(range(60))
    watched.repeat(*run_ids[:1], how=lambda: airflow.clear_run(watched.dag_id, run_ids[0]))


# A table, by a column of times


@pytest.mark.only_deep
def test_days_of_a_table_are_backfilled_exactly(
    watch: Callable[..., Watched], postgres_url: str, postgres_port: int, jdbc_drivers: list[Path]
) -> None:
    days = [last_midnight() - number * DAY for number in (2, 1)]
    watched = watch("jdbc_ingestion", "shop_database.orders")
    airflow = watched.airflow
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        connection.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, at TIMESTAMPTZ)")
        connection.execute(
            "INSERT INTO orders SELECT n, %s + n * interval '1 hour' FROM generate_series(-1, 48) AS n", [days[0]]
        )
        connection.execute("INSERT INTO orders VALUES (100, %s)", [days[1] - MICROSECOND])
    url = sa.make_url(postgres_url)
    airflow.connect(
        "shop_database", "postgres", host="127.0.0.1", port=postgres_port, schema=url.database, login="postgres"
    )
    drivers = {"driver_package": "", "driver_jars": ",".join(map(str, jdbc_drivers))}
    conf = drivers | {"column": "at", "output_path": str(watched.output)}

    airflow.backfill(watched.dag_id, days[0], days[1], conf)
    run_ids = [run["dag_run_id"] for run in airflow.backfilled(watched.dag_id)]
    for run_id in run_ids:
        assert airflow.wait_for_run(watched.dag_id, run_id) == "success"

    rows = ds.dataset(watched.output, format="parquet").to_table(columns=["id"])["id"].to_pylist()
    assert Counter(rows) == Counter([*range(48), 100])
    delivered = [airflow.xcom(watched.dag_id, run_id, "ingestion.summarize")["records_delivered"] for run_id in run_ids]
    assert delivered == [25, 24]
