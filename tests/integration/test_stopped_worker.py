"""A worker that continues after its lease has expired cannot write to a partition of another owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support.waiting import PATIENCE_SECONDS, until

WORKER = """
import sys, time
from datetime import timedelta
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionNotOwnedError
from airflow_provider_coordination.coordination.held_leases import LeaseRenewer
from airflow_provider_coordination.stores import StoreSettings, open_store

coordinator = SourceCoordinator(open_store(StoreSettings.from_url(sys.argv[1])), "clicks", "sleeper",
    ownership_timeout=timedelta(seconds=6), safety_margin=timedelta(seconds=0.3))
coordinator.initialize()
coordinator.leases.acquire(1)
with LeaseRenewer(coordinator.leases):
    count = 0
    while True:
        try:
            coordinator.leases.save_progress("x", {"by": "sleeper", "count": count})
        except PartitionNotOwnedError as error:
            print("refused:", error, flush=True)
            break
        count += 1
        print("working", flush=True)
        time.sleep(0.01)
    for write in (
        lambda: coordinator.leases.renew("x"),
        lambda: coordinator.leases.complete("x", {}),
        lambda: coordinator.leases.give_up("x"),
        lambda: coordinator.leases.close("x", timedelta(0)),
        lambda: coordinator.leases.save_progress("x", {"by": "zombie"}),
    ):
        try:
            write()
            print("WROTE", flush=True)
        except PartitionNotOwnedError as error:
            print("refused:", error, flush=True)
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/coordination.db"
    return str(request.getfixturevalue("postgres_url"))


def test_stopped_worker_cannot_write_after_losing_its_lease(url: str) -> None:
    other = SourceCoordinator(
        open_store(StoreSettings.from_url(url)),
        "clicks",
        "other",
        ownership_timeout=timedelta(seconds=30),
        safety_margin=timedelta(seconds=0.3),
    )
    other.initialize()
    other.create_partitions({"x": {}})
    worker = subprocess.Popen([sys.executable, "-c", WORKER, url], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "working\n"
    os.kill(worker.pid, signal.SIGSTOP)
    until(lambda: other.leases.acquire(1))
    taken = other.leases.save_progress("x", {"by": "other"})
    os.kill(worker.pid, signal.SIGCONT)
    output, _ = worker.communicate(timeout=PATIENCE_SECONDS)
    lines = [line for line in output.splitlines() if line != "working"]
    assert len(lines) == 6 and all(line.startswith("refused:") for line in lines), output
    assert other.view.get("x") == taken
