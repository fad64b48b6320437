"""Whether a table that is followed into the lake stays as its DynamoDB table, however often its jobs are killed.

Two Spark jobs read the items of a table, and follow its stream into a Delta or an Iceberg table that merges. During
that, items are put, changed and deleted, and one job after the other is killed with all its processes, at any moment of
its work, and replaced. At the end nothing changes any more, a job runs until it has caught up, and both tables are
compared item by item. After the items are delivered, nothing may scan the table: the server counts.

With `--executors`, the jobs run on a Spark cluster, and every second kill hits an executor instead of a job. Without,
the whole of each job runs on this machine. No triggerer is killed: jobs do not depend on it.

The DynamoDB server is MiniStack, whose streams have one shard. It answers one request after the other, and a page of a
scan takes it time in proportion to the table, so it decides how many items are possible.

With `--freshness`, one job follows a table of 1,000 items of which ten are changed every second, and nothing is killed.
It is measured how long after each change the version of the Delta table was committed that has it.

Usage: python -m benchmarks.live_table [--quick] [--items N] [--kills N] [--sink delta|iceberg] [--executors]
       python -m benchmarks.live_table --freshness [--quick]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from boto3.dynamodb.types import TypeSerializer
from deltalake import DeltaTable as Delta

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.spark import writes
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.writes.iceberg import IcebergTable
from airflow_provider_coordination.stores import StoreSettings, open_store
from demo.events import flights
from demo.table_story import TABLE, Changes, TableComparison, all_items, create_table
from demo.tables import TABLE as ICEBERG_TABLE
from demo.tables import TARGETS, catalog_of
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.job_settings import ingest
from tests.support.spark_cluster import SparkCluster
from tests.support.spark_job import Job, submit

ITEMS, QUICK_ITEMS = 100_000, 2_000
KILLS, QUICK_KILLS = 50, 2
JOBS = 2
LIFE_SECONDS = (0.0, 16.0)
"""How long a job works until it is killed."""
KILL_SECONDS = 20.0
"""About how long passes from kill to kill, since a new job must start: changes are spread over all kills."""
ROUND_SECONDS = 2.0
START_SECONDS = 300.0
"""How long a job may take to start, on a busy machine."""
AT_WORK = (("partition acquired: ", "round 1: "), ("round 3: ",))
"""What jobs have logged before their lives are counted, in turn: the others make progress on a slow machine too."""
EXECUTOR_SECONDS = 60.0
"""How long to wait for an executor to kill."""
FRESH_ITEMS = 1_000
CHANGES_A_SECOND = 10
FRESH_SECONDS, QUICK_FRESH_SECONDS = 120.0, 60.0
SOURCE = "flights"
MERGED: dict[str, Any] = {"merge_on": "keys", "order_by": "change_order", "op": "operation"}


class Fleet:
    """The jobs that follow the table, with the store that they share.

    :param folder: for everything.
    :param server: the DynamoDB server.
    :param sink: the kind of the table of the lake.
    :param cluster: where the jobs run; None for this machine.
    """

    def __init__(self, folder: Path, server: DynamoDbServer, sink: str, cluster: SparkCluster | None = None) -> None:
        self._folder = folder
        self._cluster = cluster
        self._store = StoreSettings.from_url(f"sqlite:///{folder}/coordination.db")
        self._connections: Any = SimpleNamespace(aws=lambda conn_id, region_name, service: server.settings)
        self._table = DynamoDBTable(TABLE, follow=True, segments=4, source=SOURCE)
        self._reads = self._table.connect(self._connections).reads
        self.dataset = folder / "dataset"
        self.dataset.mkdir()
        described: writes.Writes = writes.DeltaTable(str(self.dataset), **MERGED)
        if sink == "iceberg":
            described = IcebergTable(ICEBERG_TABLE, catalog=catalog_of(self.dataset), **MERGED)
        self._writes = writes.sinks_of(described, self._connections)
        self.coordinator = SourceCoordinator(open_store(self._store), SOURCE, "benchmark")
        self.coordinator.initialize()
        self.jobs: list[Job] = []

    def sync(self) -> None:
        """Create the partitions."""
        self._table.sync(self.coordinator, self._connections)

    def start(self, **changes: Any) -> Job:
        """Start a job, which works until it is killed."""
        settings = ingest(
            source=SOURCE,
            owner=f"owner-{uuid.uuid4().hex[:8]}",
            writes=self._writes,
            landing_path=str(self._folder / "landing"),
            expires_at=datetime.now(UTC) + timedelta(hours=6),
            store=self._store,
            reads=self._reads,
            idle_duration=0.2,
            **{"until_caught_up": False, "round_duration": ROUND_SECONDS, **changes},
        )
        where: dict[str, Any] = {"master": "local[1]"}
        if self._cluster is not None:
            where = {"master": self._cluster.master_url, "conf": {**self._cluster.conf, "spark.cores.max": "1"}}
        self.jobs.append(submit(settings, self._folder, **where))
        return self.jobs[-1]

    def kill(self, job: Job) -> None:
        """Kill a job, and give its leases back, as its task does."""
        job.kill()
        self.coordinator.give_up_owner(job.settings.owner)

    def kill_an_executor(self, chance: random.Random) -> None:
        """Kill an executor of any job, as soon as there is one."""
        assert self._cluster is not None
        deadline = time.monotonic() + EXECUTOR_SECONDS
        while not (executors := [each for worker in self._cluster.workers for each in worker.executors()]):
            assert time.monotonic() < deadline, "no job has an executor"
            time.sleep(0.1)
        with suppress(psutil.NoSuchProcess):
            chance.choice(executors).kill()

    def wait_for_work(self, job: Job, marks: Sequence[str]) -> None:
        """Return once a job has logged one of some texts."""
        deadline = time.monotonic() + START_SECONDS
        while not any(mark in job.output for mark in marks):
            self.check([job])
            assert time.monotonic() < deadline, job.output
            time.sleep(0.2)

    def check(self, running: Sequence[Job]) -> None:
        """Check that jobs have not ended by themselves."""
        for job in running:
            assert job.process.poll() is None, job.output

    @property
    def has_items(self) -> bool:
        """Whether all items of the history are delivered."""
        history = [p for p in self.coordinator.view.partitions() if p.progress["kind"] == "dynamodb"]
        return bool(history) and all(p.status is PartitionStatus.COMPLETED for p in history)


def run(folder: Path, sink: str, items: int, kills: int, cluster: SparkCluster | None) -> dict[str, Any]:
    """Follow a table, kill jobs, and compare; return the figures."""
    chance = random.Random(1)
    with DynamoDbServer() as server, closing(server.client()) as client:
        create_table(client)
        changes = Changes(client, flights(items), seconds=kills * KILL_SECONDS)
        put = changes.put_items()
        print(f"  {put:,} items", flush=True)
        fleet = Fleet(folder, server, sink, cluster)
        fleet.sync()
        changes.start()
        running = [fleet.start() for _ in range(JOBS)]
        killed, executors, scans, scanned_before = 0, 0, 0, 0
        has_items = False
        try:
            while killed + executors < kills or not changes.is_done or not has_items:
                fleet.wait_for_work(running[0], AT_WORK[killed % len(AT_WORK)])
                time.sleep(chance.uniform(*LIFE_SECONDS) / JOBS)
                fleet.check(running)
                if not has_items and fleet.has_items:
                    has_items, scanned_before = True, server.scans(TABLE)
                    print(f"  the items are delivered after {killed + executors} kills", flush=True)
                if killed + executors >= kills:
                    continue
                if cluster is not None and executors < killed:
                    fleet.kill_an_executor(chance)
                    executors += 1
                else:
                    fleet.kill(running.pop(0))
                    killed += 1
                    running.append(fleet.start())
                print(f"  killed {killed} jobs and {executors} executors, {changes.made:,} changes", flush=True)
            if changes.error is not None:
                raise changes.error
            for job in running:
                fleet.kill(job)
            last = fleet.start(until_caught_up=True)
            assert last.wait(1_200) == 0, last.output
            scans = server.scans(TABLE) - scanned_before
        finally:
            changes.stop()
            for job in fleet.jobs:
                job.kill()
        images = TARGETS[sink].images
        assert images is not None
        compared = TableComparison.of(all_items(client), images(fleet.dataset))
        return {
            "sink": sink,
            "items_before": put,
            "changes": changes.made,
            "deletes": changes.deleted,
            "jobs_killed": killed,
            "executors_killed": executors,
            **asdict(compared),
            "scans_for_the_items": scanned_before,
            "scans_after_the_items": scans,
        }


def freshness(folder: Path, seconds: float, round_seconds: float) -> dict[str, float]:
    """Return how old changes are when the version of the Delta table that has them is committed, in seconds."""
    with DynamoDbServer() as server, closing(server.client()) as client:
        create_table(client)
        serialize, made = TypeSerializer().serialize, list[tuple[int, float]]()

        def put(key: int, number: int) -> None:
            item = {"event_id": key, "number": number, "text": "x" * 200}
            client.put_item(TableName=TABLE, Item={name: serialize(value) for name, value in item.items()})

        for key in range(FRESH_ITEMS):
            put(key, 0)
        fleet = Fleet(folder, server, "delta")
        fleet.sync()
        job = fleet.start(round_duration=round_seconds)
        try:
            while not fleet.has_items:
                fleet.check([job])
                time.sleep(0.1)
            chance, began = random.Random(0), time.monotonic()
            for number in range(1, round(seconds * CHANGES_A_SECOND) + 1):
                time.sleep(max(0.0, began + number / CHANGES_A_SECOND - time.monotonic()))
                key = chance.randrange(FRESH_ITEMS)
                put(key, number)
                made.append((key, time.time()))
            while numbers_of(fleet.dataset)[made[-1][0]] < len(made):
                fleet.check([job])
                time.sleep(0.1)
        finally:
            job.kill()
        committed = committed_at(fleet.dataset)
    ages, waiting = list[float](), dict(enumerate(made, start=1))
    commits = [at for at in committed.values() if at >= made[0][1]]
    for version, at in committed.items():
        present = numbers_of(fleet.dataset, version)
        for number in [number for number, (key, _) in waiting.items() if present.get(key, 0) >= number]:
            ages.append(at - waiting.pop(number)[1])
    between = [after - before for before, after in pairwise(commits)]
    return {
        "round_duration": round_seconds,
        "changes": len(ages),
        "p50": round(statistics.median(ages), 2),
        "p95": round(statistics.quantiles(ages, n=20)[-1], 2),
        "greatest": round(max(ages), 2),
        "between_commits_p50": round(statistics.median(between), 2),
        "between_commits_greatest": round(max(between), 2),
    }


def numbers_of(dataset: Path, version: int | None = None) -> dict[int, int]:
    """Return the number of each item's last change, by its key, in a version of a Delta table."""
    images = Delta(dataset, version=version).to_pyarrow_table(columns=["new_image"]).column("new_image")
    items = map(json.loads, images.to_pylist())
    return {item["event_id"]: item["number"] for item in items}


def committed_at(dataset: Path) -> dict[int, float]:
    """Return when each version of a Delta table was committed, in seconds since 1970."""
    commits = sorted((dataset / "_delta_log").glob("*.json"))
    return {int(commit.stem): commit.stat().st_mtime for commit in commits}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few items, two kills")
    parser.add_argument("--items", type=int, help="half of them exist at the start, and as many changes follow")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--sink", choices=("delta", "iceberg"), default="delta")
    parser.add_argument("--executors", action="store_true", help="run the jobs on a cluster, and kill executors too")
    parser.add_argument("--freshness", action="store_true", help="measure only how old changes are when they arrive")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="live-table-")))
        if options.freshness:
            seconds = QUICK_FRESH_SECONDS if options.quick else FRESH_SECONDS
            figures = []
            for round_seconds in (ROUND_SECONDS, RoundSettings().round_duration.total_seconds()):
                part = folder / f"{round_seconds:g}"
                part.mkdir()
                figures.append(freshness(part, seconds, round_seconds))
            print(json.dumps(figures))
            return
        items = options.items or (QUICK_ITEMS if options.quick else ITEMS)
        kills = options.kills or (QUICK_KILLS if options.quick else KILLS)
        cluster = stack.enter_context(SparkCluster()) if options.executors else None
        print(json.dumps(run(folder, options.sink, items, kills, cluster)))


if __name__ == "__main__":
    main()
