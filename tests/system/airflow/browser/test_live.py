"""Pages during changes: a running Spark job, a dying worker, a suspended source."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.support.site import DAG, Site
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_partitions import keys, row

LEASE_SECONDS = 6.0
WORKER = """
import sys, time
from datetime import timedelta
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.held_leases import LeaseRenewer
from airflow_provider_coordination.stores import StoreSettings, open_store

url, source, owner, lease = sys.argv[1:]
coordinator = SourceCoordinator(open_store(StoreSettings.from_url(url)), source, owner,
    ownership_timeout=timedelta(seconds=float(lease)), safety_margin=timedelta(seconds=1))
coordinator.initialize()
with LeaseRenewer(coordinator.leases):
    while True:
        coordinator.leases.acquire(1 - len(coordinator.leases.held))
        time.sleep(0.1)
"""

StartWorker = Callable[[str, str], subprocess.Popen[bytes]]


@pytest.fixture
def start_worker(site: Site) -> Iterator[StartWorker]:
    """Starts a worker of a source, a process of its own, that takes one partition: a try each of the same task."""
    started: list[subprocess.Popen[bytes]] = []

    def start(source: str, name: str) -> subprocess.Popen[bytes]:
        owner = f"{name}:nightly_orders:run:ingest:-1:{len(started) + 1}:{name}"
        command = [sys.executable, "-c", WORKER, site.scenery.url, source, owner, str(LEASE_SECONDS)]
        started.append(subprocess.Popen(command))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def live_shards(site: Site) -> list[str]:
    """Return the shards that somebody holds."""
    return [p.partition_key for p in site.scenery.worker("live").view.partitions(PartitionStatus.ASSIGNED)]


def holder(site: Site, source: str) -> str:
    return (site.scenery.found(source, "a").owner or "").partition(":")[0]


def test_killed_worker_shows_as_taken_over(
    site: Site, see: OpenPage, source: Callable[..., str], start_worker: StartWorker
) -> None:
    name = source(a=lambda p: p)
    page = see(site.at(name))
    first = start_worker(name, "first")
    expect(row(page, "a")).to_contain_text("first")
    start_worker(name, "second")
    first.kill()
    site.airflow.until("the other one has it", lambda: holder(site, name) == "second")

    expect(row(page, "a")).to_contain_text("second")

    timeline = see(site.at(name, "timeline"))
    bars = timeline.locator("[data-bar]")  # one that gets no processor for seconds loses its lease, and has several
    expect(bars.and_(timeline.locator("[aria-label*='try 1'][data-end='expired']")).last).to_be_visible()
    expect(bars.and_(timeline.locator("[aria-label*='try 2']")).last).to_be_visible()


def test_run_and_task_instance_show_their_partitions(site: Site, see: OpenPage) -> None:
    site.airflow.until("the job works", lambda: bool(live_shards(site)))
    run = f"/dags/{DAG}/runs/{site.live_run}"
    page = see(run)
    page.get_by_role("link", name="Ingestion").last.click()
    table = page.get_by_role("table", name="Partitions of this run")
    expect(table).to_contain_text("shardId-000000000001")
    expect(table).to_contain_text("held now")

    page = see(f"{run}/tasks/ingest")
    page.get_by_role("link", name="Ingestion").last.click()
    table = page.get_by_role("table", name="Partitions of this task instance")
    expect(table).to_contain_text("held now")
    table.get_by_role("link", name=re.compile("shardId")).first.click()
    drawer = page.get_by_role("dialog")
    drawer.get_by_role("link", name="Task instance and log").click()
    expect(page).to_have_url(re.compile(rf"/dags/{DAG}/runs/.*/tasks/ingest"))

    page = see(f"{run}/tasks/sync")
    page.get_by_role("link", name="Ingestion").last.click()
    expect(page.get_by_role("heading", name="This task instance holds no partitions")).to_be_visible()


def test_split_shows_in_the_tree_and_job_among_workers(site: Site, see: OpenPage) -> None:
    site.airflow.until("the children of the shard are read", lambda: len(live_shards(site)) >= 3)
    page = see(site.at("live", "shards"))
    tree = page.get_by_role("group", name=re.compile("^Family tree of live: 4 shards, 2 generations, 1 split"))
    expect(tree).to_be_visible()
    expect(tree.locator("[data-state=completed]")).to_have_count(1)
    expect(tree.locator("[data-state=held]")).to_have_count(3)

    page = see(site.at("live", "workers"))
    table = page.get_by_role("table", name="Workers")
    expect(table).to_contain_text("Live")
    expect(table.get_by_role("link", name="3 leases: show them")).to_be_visible()
    table.get_by_role("link", name="3 leases: show them").click()
    expect(keys(page)).to_have_count(3)
