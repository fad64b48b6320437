"""Jobs share a stream's shards: a new job is handed its part, and every record is delivered once."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.workers import LeaseRequest
from airflow_provider_coordination.spark.delivery import Prepared
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.spark.sinks.parquet import ParquetLandedDelivery
from tests.support.fleet import FakeStream, Fleet
from tests.support.waiting import PATIENCE_SECONDS, until

LEASE_SECONDS = 1.2


def a_fleet(folder: Path, shards: int) -> Fleet:
    return Fleet(
        FakeStream(shards),
        folder,
        ownership_timeout=timedelta(seconds=LEASE_SECONDS),
        safety_margin=timedelta(seconds=0.1),
    )


@contextmanager
def running(fleet: Fleet) -> Iterator[Callable[..., Future[Summary]]]:
    """Run jobs side by side, each until all are stopped at the end."""
    stop = threading.Event()

    def start(**options: Any) -> Future[Summary]:
        return pool.submit(
            fleet.work,
            **{"stop": stop, "until_caught_up": False, "idle_duration": 0.02, "round_duration": 1.0, **options},
        )

    with fleet.without_spark(), ThreadPoolExecutor(4) as pool:
        try:
            yield start
        finally:
            stop.set()


def owners(fleet: Fleet) -> Counter[str | None]:
    return Counter(partition.owner for partition in fleet.look.view.partitions())


def test_later_job_is_handed_half_of_the_shards(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, shards=4)
    fleet.stream.send(40)
    with running(fleet) as start:
        first = start()
        until(lambda: owners(fleet) == {"job-1": 4})
        second = start()
        until(lambda: owners(fleet) == {"job-1": 2, "job-2": 2})
        fleet.stream.send(40)
        until(lambda: fleet.delivered().total() >= 80)
    one, two = first.result(), second.result()
    assert fleet.delivered() == Counter(fleet.stream.sent)
    assert (
        len(one.handed_over) == 2 and one.lost == two.lost == two.handed_over == [] and one.failed == two.failed == {}
    )
    assert two.records_delivered >= 20
    assert owners(fleet) == {None: 4} and fleet.look.workers.live() == []


@pytest.mark.integration
def test_slow_delivery_is_handed_over_and_delivered_once(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, shards=2)
    stuck, go_on = threading.Event(), threading.Event()

    def stalls(phase: str) -> None:
        if phase == "delivering" and not stuck.is_set():
            stuck.set()
            go_on.wait(PATIENCE_SECONDS)

    fleet.stream.send(2)
    with running(fleet) as start:
        first = start(observer=stalls, handover_timeout=0.2)
        until(stuck.is_set)
        start(handover_timeout=0.2)
        until(lambda: owners(fleet)["job-2"] == 1)
        until(lambda: fleet.delivered().total() == 1)
        go_on.set()
    one = first.result()
    assert fleet.delivered() == Counter(fleet.stream.sent)
    assert len(one.handed_over) == 1 and one.lost == [] and one.failed == {}


def test_failure_after_a_handover_is_no_job_failure(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, shards=2)
    stuck, go_on = threading.Event(), threading.Event()

    class SweptDelivery(ParquetLandedDelivery):
        def prepare(self, *details: Any, **more: Any) -> Mapping[str, Prepared | Exception]:
            if not stuck.is_set():
                stuck.set()
                go_on.wait(PATIENCE_SECONDS)
                raise OSError("the next owner swept the file")
            return super().prepare(*details, **more)

    fleet.stream.send(2)
    with running(fleet) as start:
        first = start(delivery=SweptDelivery(str(tmp_path)), handover_timeout=0.2)
        until(stuck.is_set)
        start(handover_timeout=0.2)
        until(lambda: fleet.delivered().total() == 1)
        go_on.set()
    one = first.result()
    assert fleet.delivered() == Counter(fleet.stream.sent)
    assert len(one.handed_over) == 1 and one.lost == [] and one.failed == {}


def test_stopped_job_gives_everything_back_without_handovers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    fleet, stop = a_fleet(tmp_path, shards=2), threading.Event()
    other = fleet.coordinator("other", fleet.store)

    def stop_at(phase: str) -> None:
        if phase == "landed":
            keys = [partition.partition_key for partition in fleet.look.view.partitions()]
            lease_requests = [LeaseRequest(key=key, giver="job-1", since=datetime.now(UTC)) for key in keys]
            other.workers.register(lease_requests=lease_requests)
            until(lambda: "partition requested by another worker" in caplog.text)  # by the job's renewal thread
        if phase == "recorded":
            stop.set()

    fleet.stream.send(4)
    summary = fleet.run(stop_at, stop=stop, until_caught_up=False)
    assert summary.handed_over == [] and fleet.delivered() == Counter(fleet.stream.sent)
    assert {partition.status for partition in fleet.look.view.partitions()} == {PartitionStatus.UNASSIGNED}


def test_requested_partition_is_read_no_further(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, shards=1)
    other = fleet.coordinator("other", fleet.store)
    [key] = [partition.partition_key for partition in fleet.look.view.partitions()]
    rounds = iter(range(9))

    def asks(phase: str) -> None:
        if phase == "landed" and next(rounds) == 0:
            other.workers.register(lease_requests=[LeaseRequest(key=key, giver="job-1", since=datetime.now(UTC))])
            fleet.stream.send(3)

    fleet.stream.send(2)
    summary = fleet.run(asks, until_caught_up=False, max_idle_rounds=2)
    assert summary.handed_over == [key] and fleet.delivered() == Counter(fleet.stream.sent[:2])
    adopted = other.leases.adopt(key)
    assert adopted is not None and fleet.progress("shard-0").landed == ()


def test_shard_throughput_falls_while_idle(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, shards=1)
    fleet.stream.send(30)
    fleet.run()
    busy = fleet.progress("shard-0").throughput
    fleet.clock.ahead = timedelta(minutes=5)
    fleet.run()
    idle = fleet.progress("shard-0").throughput
    assert busy is not None and idle is not None and 0 < idle < busy
