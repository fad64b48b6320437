"""A database is away for a while under two jobs: they wait, and nothing is lost or doubled."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.spark import ingestion_job
from airflow_provider_coordination.stores.sql import SqlStore
from tests.support.cable import Cable
from tests.support.depth import at_depth
from tests.support.fleet import FakeStream, Fleet
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

OUTAGE_SECONDS = at_depth(short=7.5, deep=60.0)
"""Longer than the short lease."""


@pytest.fixture
def cable(postgres_url: str) -> Iterator[Cable]:
    folder = str(sa.make_url(postgres_url).query["host"])
    (path,) = Path(folder).glob(".s.PGSQL.*[0-9]")

    def connect() -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(path))
        return server

    with Cable(connect) as cable:
        yield cable


@pytest.fixture
def open_store(postgres_url: str, cable: Cable) -> Callable[[], SqlStore]:
    url = sa.make_url(postgres_url)
    url = url.set(host="127.0.0.1", port=cable.port, query={})
    text = url.render_as_string(hide_password=False)
    return lambda: SqlStore(text, table="partitions", retry_deadline_seconds=2)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("outage", "ownership_timeout_seconds"),
    [
        pytest.param("cut", 120, id="refused, leases outlive it"),
        pytest.param("cut", 5, id="refused, leases run out"),
        pytest.param("clog", 5, id="silent, leases run out"),
    ],
)
def test_jobs_survive_a_database_outage(
    outage: str,
    ownership_timeout_seconds: int,
    cable: Cable,
    open_store: Callable[[], SqlStore],
    postgres_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ingestion_job, "STORE_POLL_SECONDS", 0.5)
    stream = FakeStream(6)
    stream.send(60)
    fleet = Fleet(
        stream,
        tmp_path,
        store=SqlStore(postgres_url, table="partitions"),
        ownership_timeout=timedelta(seconds=ownership_timeout_seconds),
        safety_margin=timedelta(seconds=1),
    )
    begun, both_work, at_work = threading.Event(), threading.Barrier(2), threading.local()

    def vanish(phase: str) -> None:
        if phase == "landed" and not hasattr(at_work, "begun"):
            at_work.begun = True
            both_work.wait(PATIENCE_SECONDS)  # a job cannot begin without the store
        if phase == "recorded" and not begun.is_set():
            begun.set()
            stream.send(60)
            stream.split()
            getattr(cable, outage)()
            threading.Timer(OUTAGE_SECONDS, cable.restore).start()

    with fleet.without_spark(), ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(fleet.work, vanish, store=open_store(), workers=2) for _ in range(2)]
        summaries = [job.result() for job in jobs]
    assert begun.is_set()
    assert [summary.failed for summary in summaries] == [{}, {}]
    assert set(fleet.delivered().values()) == {1}, "nothing is there twice"
    fleet.run()  # what one job gave back while the other had ended already
    assert fleet.delivered() == Counter(stream.sent)
    counts = fleet.look.view.count_by_status()
    assert (counts[PartitionStatus.COMPLETED], counts[PartitionStatus.ASSIGNED]) == (1, 0)
