"""Whether a table that is followed into the lake stays as its DynamoDB table, however often its jobs are killed.

Two Spark jobs read the items of a table, and follow its stream into a Delta or an Iceberg table that merges. During
that, items are put, changed and deleted, and one job after the other is killed with all its processes, at any moment,
and replaced. At the end nothing changes any more, a job runs until it has caught up, and both tables are compared item
by item. No job that starts after the items are delivered may read the table itself.

The DynamoDB server is MiniStack, whose streams have one shard. No triggerer and no executor of a cluster is killed: the
whole of each job runs on this machine.

Usage: python -m benchmarks.live_table [--quick] [--items N] [--kills N] [--sink delta|iceberg]
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
import uuid
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.spark import writes
from airflow_provider_coordination.spark.writes.iceberg import IcebergTable
from airflow_provider_coordination.stores import StoreSettings, open_store
from demo.events import flights
from demo.table_story import TABLE, Changes, TableComparison, all_items, create_table
from demo.tables import TABLE as ICEBERG_TABLE
from demo.tables import TARGETS, catalog_of
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.job_settings import ingest
from tests.support.spark_job import Job, submit

ITEMS, QUICK_ITEMS = 100_000, 2_000
KILLS, QUICK_KILLS = 50, 2
JOBS = 2
LIFE_SECONDS = (12.0, 30.0)
"""How long a job lives until it is killed: about ten seconds pass before it reads."""
SOURCE = "flights"
MERGED: dict[str, Any] = {"merge_on": "keys", "order_by": "change_order", "op": "operation"}


class Fleet:
    """The jobs that follow the table, with the store that they share.

    :param folder: for everything.
    :param server: the DynamoDB server.
    :param sink: the kind of the table of the lake.
    """

    def __init__(self, folder: Path, server: DynamoDbServer, sink: str) -> None:
        self._folder = folder
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
        """Start a job."""
        settings = ingest(
            source=SOURCE,
            owner=f"owner-{uuid.uuid4().hex[:8]}",
            writes=self._writes,
            landing_path=str(self._folder / "landing"),
            expires_at=datetime.now(UTC) + timedelta(hours=6),
            store=self._store,
            reads=self._reads,
            idle_duration=0.2,
            **(changes or {"max_idle_rounds": 1_000_000}),
        )
        self.jobs.append(submit(settings, self._folder, master="local[1]"))
        return self.jobs[-1]

    def kill(self, job: Job) -> None:
        """Kill a job, and give its leases back, as its task does."""
        job.kill()
        self.coordinator.give_up_owner(job.settings.owner)

    @property
    def has_items(self) -> bool:
        """Whether all items of the history are delivered."""
        history = [p for p in self.coordinator.view.partitions() if p.progress["kind"] == "dynamodb"]
        return bool(history) and all(p.status is PartitionStatus.COMPLETED for p in history)

    def scans_of(self, jobs: list[Job]) -> int:
        """Return how many partitions of the history some jobs read."""
        return sum(job.output.count(f"partition acquired: source={SOURCE} partition={TABLE}/") for job in jobs)


def run(folder: Path, sink: str, items: int, kills: int) -> dict[str, Any]:
    """Follow a table, kill jobs, and compare; return the figures."""
    chance = random.Random(1)
    with DynamoDbServer() as server, closing(server.client()) as client:
        create_table(client)
        changes = Changes(client, flights(items), seconds=kills * sum(LIFE_SECONDS) / 2 / JOBS)
        put = changes.put_items()
        print(f"  {put:,} items", flush=True)
        fleet = Fleet(folder, server, sink)
        fleet.sync()
        changes.start()
        running = [fleet.start() for _ in range(JOBS)]
        killed, later = 0, None
        try:
            while killed < kills or not changes.is_done:
                time.sleep(chance.uniform(*LIFE_SECONDS) / JOBS)
                if later is None and fleet.has_items:
                    later = len(fleet.jobs)
                if killed < kills:
                    fleet.kill(running.pop(0))
                    killed += 1
                    running.append(fleet.start())
                    print(f"  killed {killed} times, {changes.made:,} changes", flush=True)
                for job in running:
                    assert job.process.poll() is None, job.output
            if changes.error is not None:
                raise changes.error
            for job in running:
                fleet.kill(job)
            last = fleet.start(until_caught_up=True)
            assert last.wait(1_200) == 0, last.output
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
            "kills": killed,
            **asdict(compared),
            "scans_after_the_items": None if later is None else fleet.scans_of(fleet.jobs[later:]),
        }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few items, two kills")
    parser.add_argument("--items", type=int, help="half of them exist at the start, and as many changes follow")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--sink", choices=("delta", "iceberg"), default="delta")
    options = parser.parse_args()
    items = options.items or (QUICK_ITEMS if options.quick else ITEMS)
    kills = options.kills or (QUICK_KILLS if options.quick else KILLS)
    with tempfile.TemporaryDirectory(prefix="live-table-") as folder:
        print(json.dumps(run(Path(folder), options.sink, items, kills)))


if __name__ == "__main__":
    main()
