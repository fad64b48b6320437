"""Processes compete for partitions, as Spark drivers do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support.batches import a_batch, a_shard, begin_delivery, shard_key
from tests.support.depth import at_depth
from tests.support.waiting import PATIENCE_SECONDS

SOURCE = "clicks|PARTITION"
PROCESSES = at_depth(short=6, deep=16)
PARTITIONS = at_depth(short=300, deep=1000)
CREATED = at_depth(short=500, deep=3000)

FORKING = """
import contextlib, io, json, os, sys, traceback
from airflow_provider_coordination.stores import StoreSettings, open_store

program, url, *arguments = sys.argv[1:]
open_store(StoreSettings.from_url(url)).close()  # everything is imported now, and nothing connected
code, children = compile(program, "program", "exec"), []
for each in arguments:
    if child := os.fork():
        children.append(child)
        continue
    sys.argv[1:] = [url, *json.loads(each)]
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, {"__name__": "__main__"})
        for line in printed.getvalue().splitlines():
            os.write(1, f"{line}\\n".encode())  # so short that it is not torn by others
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""
"""Runs a program in as many processes as there are arguments, all at once: what takes longest, the imports, is done."""

WORKER = """
import sys
from datetime import UTC, datetime, timedelta
from airflow_provider_coordination.coordination.store import Acquisition
from airflow_provider_coordination.stores import StoreSettings, open_store

url, owner = sys.argv[1:]
store = open_store(StoreSettings.from_url(url))
store.initialize()
while True:
    now = datetime.now(UTC)
    taken = store.acquire(Acquisition(source_identifier="clicks|PARTITION", owner=owner, limit=3,
        ownership_timeout=now + timedelta(hours=1), available_by=now, expired_by=now))
    if not taken:
        break
    for partition in taken:
        print(partition.partition_key)
"""


def sql_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/coordination.db"
    return str(request.getfixturevalue({"postgresql": "postgres_url", "mariadb": "mariadb_url"}[request.param]))


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return sql_url(request, tmp_path)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb", "dynamodb"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "dynamodb":
        settings: StoreSettings = request.getfixturevalue("dynamodb_settings")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        return (
            f"dynamodb://{settings.table}?region={settings.own.aws.region}&endpoint_url={settings.own.aws.endpoint_url}"
        )
    return sql_url(request, tmp_path)


def compete(program: str, url: str, arguments: Iterable[list[str]], *, logs: bool = False) -> list[str]:
    """Run a program in processes that begin at once, with these arguments; return what they printed, line by line.

    :param logs: whether it may log something.
    """
    command = [sys.executable, "-c", FORKING, program, url, *map(json.dumps, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert run.returncode == 0 and (run.stderr == "" or (logs and "Traceback" not in run.stderr)), run.stderr
    return run.stdout.splitlines()


@pytest.mark.integration
@pytest.mark.deep
def test_competing_processes_own_each_partition_once(any_url: str) -> None:
    store = open_store(StoreSettings.from_url(any_url))
    store.initialize()
    now = datetime.now(UTC)
    store.create(
        [
            Partition(
                source_identifier=SOURCE, partition_key=f"p{n:04}", status=PartitionStatus.UNASSIGNED, priority=now
            )
            for n in range(PARTITIONS)
        ]
    )
    taken = compete(WORKER, any_url, ([f"worker-{n}"] for n in range(PROCESSES)))
    assert len(taken) == len(set(taken)) == PARTITIONS
    assert all(p.version == 1 for p in store.query(SOURCE, PartitionStatus.ASSIGNED, limit=PARTITIONS))


@pytest.mark.integration
def test_processes_may_initialize_an_empty_store_concurrently(any_url: str) -> None:
    code = (
        "import sys; from airflow_provider_coordination.stores import *; "
        "open_store(StoreSettings.from_url(sys.argv[1])).initialize()"
    )
    assert compete(code, any_url, [[]] * PROCESSES) == []


CREATOR = """
import sys
from datetime import UTC, datetime
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.stores import StoreSettings, open_store

url, turn, size = sys.argv[1:]
store = open_store(StoreSettings.from_url(url))
keys = [f"p{n:04}" for n in range(int(size))]
for key in store.create([
    Partition(source_identifier="clicks|PARTITION", partition_key=key, status=PartitionStatus.UNASSIGNED,
        priority=datetime.now(UTC))
    for key in (keys if int(turn) % 2 else reversed(keys))
]):
    print(key)
"""


@pytest.mark.integration
def test_concurrent_creations_create_each_partition_once(url: str) -> None:
    store = open_store(StoreSettings.from_url(url))
    store.initialize()
    created = compete(CREATOR, url, ([str(n), str(CREATED)] for n in range(4)))
    assert sorted(created) == [f"p{n:04}" for n in range(CREATED)]
    assert store.count_by_status(SOURCE)[PartitionStatus.UNASSIGNED] == CREATED
    store.close()


RELEASER = """
import sys
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.metrics import MetricTotals
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.stores import StoreSettings, open_store

url, name, *set_ids = sys.argv[1:]
totals = MetricTotals()
coordinator = SourceCoordinator(open_store(StoreSettings.from_url(url)), "clicks", name, metrics=totals)
coordinator.initialize()
sets = AcknowledgmentSets(coordinator, SourceBatches())
for n, set_id in enumerate(set_ids):
    rejects = n % 2 and name == "sink-3"
    sets.release(set_id, name, positive=not rejects, reason="no" if rejects else None)
for metric, count in totals.totals.items():
    print(metric, int(count))
"""


@pytest.mark.integration
def test_concurrent_releases_end_each_set_once(any_url: str) -> None:
    store = open_store(StoreSettings.from_url(any_url))
    coordinator = SourceCoordinator(store, "clicks", "owner", ownership_timeout=timedelta(minutes=10))
    coordinator.initialize()
    shards = [shard_key(f"shard-{n:02}") for n in range(10)]
    coordinator.create_partitions({key: a_shard(key).to_mapping() for key in shards})
    coordinator.leases.acquire(len(shards))
    sinks = [f"sink-{n}" for n in range(4)]
    made = [
        begin_delivery(coordinator, key, a_batch(start, end), sinks).set_id
        for key in shards
        for start, end in ((TRIM_HORIZON, "5"), ("5", "9"))
    ]
    before = {key: coordinator.leases.leased(key).version for key in shards}
    counted: Counter[str] = Counter()
    for line in compete(RELEASER, any_url, ([sink, *made] for sink in sinks), logs=True):
        metric, count = line.split()
        counted[metric.removeprefix("coordination.")] += int(count)
    # The first batch of each shard is acknowledged by all four, the second rejected by one of them.
    assert (counted["acknowledgment_sets_acknowledged"], counted["acknowledgment_sets_rejected"]) == (10, 10)
    assert counted["attempts_failed"] == 10
    for key in shards:
        partition = coordinator.view.get(key)
        assert partition is not None
        progress = ShardProgress.from_mapping(partition.progress)
        assert (partition.version, partition.attempts) == (before[key] + 2, progress.landed[0].redeliver)
        assert progress.checkpoint == "5" and [batch.end for batch in progress.landed] == ["9"]
    store.close()
