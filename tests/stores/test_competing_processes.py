"""Processes, not threads, compete: what a fleet of Spark drivers does."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.stores import StoreSettings, open_store

SOURCE = "clicks|PARTITION"
PROCESSES = 16
PARTITIONS = 1000

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
        return f"dynamodb://{settings.table}?region={settings.aws.region}&endpoint_url={settings.aws.endpoint_url}"
    return sql_url(request, tmp_path)


@pytest.mark.integration
def test_sixteen_processes_own_each_of_a_thousand_partitions_once(any_url: str) -> None:
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
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, any_url, f"worker-{n}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(PROCESSES)
    ]
    outputs = [worker.communicate(timeout=120) for worker in workers]
    assert [errors for _, errors in outputs if errors] == []
    taken = [key for output, _ in outputs for key in output.split()]
    assert len(taken) == len(set(taken)) == PARTITIONS
    assert all(p.version == 1 for p in store.query(SOURCE, PartitionStatus.ASSIGNED, limit=PARTITIONS))


@pytest.mark.integration
def test_processes_may_all_initialize_an_empty_store_at_once(any_url: str) -> None:
    code = (
        "import sys; from airflow_provider_coordination.stores import *; "
        "open_store(StoreSettings.from_url(sys.argv[1])).initialize()"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, any_url], stderr=subprocess.PIPE, text=True) for _ in range(8)
    ]
    assert [process.communicate(timeout=60)[1] for process in processes] == [""] * 8


CREATOR = """
import sys
from datetime import UTC, datetime
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.stores import StoreSettings, open_store

url, turn = sys.argv[1:]
store = open_store(StoreSettings(url=url))
keys = [f"p{n:04}" for n in range(3000)]
for key in store.create([
    Partition(source_identifier="clicks|PARTITION", partition_key=key, status=PartitionStatus.UNASSIGNED,
        priority=datetime.now(UTC))
    for key in (keys if int(turn) % 2 else reversed(keys))
]):
    print(key)
"""


@pytest.mark.integration
def test_processes_that_create_the_same_partitions_create_each_once(url: str) -> None:
    store = open_store(StoreSettings(url=url))
    store.initialize()
    creators = [
        subprocess.Popen(
            [sys.executable, "-c", CREATOR, url, str(n)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for n in range(6)
    ]
    outputs = [creator.communicate(timeout=120) for creator in creators]
    assert [errors for _, errors in outputs if errors] == []
    created = [key for output, _ in outputs for key in output.split()]
    assert sorted(created) == [f"p{n:04}" for n in range(3000)]
    assert store.count_by_status(SOURCE)[PartitionStatus.UNASSIGNED] == 3000
    store.close()
