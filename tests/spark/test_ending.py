"""A job that is asked to end stops reading, delivers its recorded batches, and releases each lease at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.progress import partition_key
from airflow_provider_coordination.spark import ingestion_job
from airflow_provider_coordination.spark.delivery import Attempt, Prepared
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.spark.sinks.parquet import ParquetLandedDelivery
from airflow_provider_coordination.spark.stop_conditions import STOPPED
from tests.support.fleet import EPOCH, PHASES, FakeStream, Fleet
from tests.support.waiting import until


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Three shards; the third is quiet."""
    monkeypatch.setattr(ingestion_job, "END_POLL_SECONDS", 0.01)
    fleet = Fleet(FakeStream(3), tmp_path)
    quiet = fleet.stream.shards.pop("shard-2")
    fleet.stream.send(4)
    fleet.stream.shards["shard-2"] = quiet
    return fleet


def owner_of(fleet: Fleet, shard: str) -> str | None:
    partition = fleet.look.view.get(partition_key("s", EPOCH, shard))
    assert partition is not None
    return partition.owner


def owners(fleet: Fleet) -> list[str | None]:
    return [owner_of(fleet, shard) for shard in sorted(fleet.stream.shards)]


class InterceptedDelivery(ParquetLandedDelivery):
    """A sink that does something before it takes a batch.

    :param first: called with the partition of each batch.
    """

    def __init__(self, fleet: Fleet, first: Callable[[str], None]) -> None:
        super().__init__(str(fleet.folder))
        self._first = first

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        for attempt in attempts:
            self._first(attempt.batch_id)
        return super().prepare(attempts, sinks)


def shard_of(fleet: Fleet, batch_id: str) -> str:
    [shard] = [shard for shard in fleet.stream.shards if fleet.progress(shard).batch(batch_id)]
    return shard


def ended(summary: Summary) -> bool:
    return (summary.stopped_because, summary.failed, summary.lost) == (STOPPED, {}, [])


@pytest.mark.parametrize("phase", PHASES)
def test_ending_job_delivers_recorded_batches_and_reads_nothing(fleet: Fleet, phase: str) -> None:
    stop = threading.Event()

    def observer(passed: str) -> None:
        if passed == phase and not stop.is_set():
            stop.set()
            fleet.stream.send(3)

    assert ended(summary := fleet.run(observer, stop=stop, until_caught_up=False))
    # What is recorded is delivered while the next round lands, which may see the order too late.
    rounds, most = (2, 7) if phase in ("delivering", "delivered") else (1, 4)
    assert 4 <= summary.records_landed == summary.records_delivered <= most
    assert (summary.rounds, owners(fleet), fleet.look.workers.live()) == (rounds, [None, None, None], [])
    fleet.run()
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_partition_without_batches_is_released_before_delivery(fleet: Fleet) -> None:
    stop, seen = threading.Event(), []

    def observer(phase: str) -> None:
        if phase == "recorded":
            stop.set()

    delivery = InterceptedDelivery(
        fleet, lambda batch: seen.append((owner_of(fleet, "shard-2"), fleet.look.workers.live()))
    )
    assert ended(fleet.run(observer, delivery=delivery, stop=stop, until_caught_up=False))
    assert seen == [(None, [])] * 2, "others may take it, and share without this job"


def test_partition_without_batches_is_released_during_delivery(fleet: Fleet) -> None:
    stop, went_back = threading.Event(), []

    def slow(batch_id: str) -> None:
        if shard_of(fleet, batch_id) == "shard-0":
            stop.set()
            went_back.append(until(lambda: owner_of(fleet, "shard-2") is None))

    assert ended(fleet.run(delivery=InterceptedDelivery(fleet, slow), stop=stop, until_caught_up=False))
    assert went_back == [True]


def test_another_job_continues_a_released_partition_during_delivery(fleet: Fleet) -> None:
    stop = threading.Event()
    read: list[bool] = []

    def slow(batch_id: str) -> None:
        if shard_of(fleet, batch_id) == "shard-0":
            stop.set()
            assert until(lambda: owner_of(fleet, "shard-2") is None)
            fleet.stream.shards["shard-2"].records.append(fleet.stream.shards["shard-0"].records[0])
            fleet.work(max_idle_rounds=1, until_caught_up=False, owner="successor")
            read.append(not fleet.progress("shard-2").landed)

    with fleet.without_spark():
        assert ended(fleet.work(delivery=InterceptedDelivery(fleet, slow), stop=stop, until_caught_up=False))
    assert read == [True]
    assert fleet.delivered() == Counter([*fleet.stream.sent, fleet.stream.sent[0]])


def test_job_stopped_before_its_first_round_takes_no_lease(fleet: Fleet) -> None:
    stop = threading.Event()
    stop.set()
    before = list(fleet.look.view.partitions())
    assert ended(fleet.run(stop=stop, until_caught_up=False))
    assert list(fleet.look.view.partitions()) == before


def test_unanswered_store_call_leaves_nothing_undelivered(fleet: Fleet) -> None:
    stop = threading.Event()

    def observer(phase: str) -> None:
        if phase == "delivering" and not stop.is_set():
            stop.set()
            raise StoreUnavailableError("connection reset")

    assert ended(summary := fleet.run(observer, stop=stop, until_caught_up=False))
    assert summary.records_delivered == 4
    assert owners(fleet) == [None, None, None]


def test_quiet_shard_is_released_with_its_read_position(fleet: Fleet) -> None:
    stop = threading.Event()

    def observer(phase: str) -> None:
        if phase == "delivered":
            stop.set()

    assert ended(fleet.run(observer, stop=stop, until_caught_up=False))
    assert fleet.progress("shard-2").delivered_until is not None
    partition = fleet.look.view.get(partition_key("s", EPOCH, "shard-2"))
    assert partition is not None and partition.status is PartitionStatus.UNASSIGNED


LONG = 3600.0
"""Rounds of this many seconds end in time only if their waits end early."""


def test_stop_ends_the_wait_of_a_shared_round(fleet: Fleet) -> None:
    stop = threading.Event()

    def observer(phase: str) -> None:
        if phase == "delivered":
            stop.set()

    summary = fleet.run(observer, stop=stop, is_shared=True, round_duration=LONG, until_caught_up=False)
    assert ended(summary) and summary.rounds == 2
    assert summary.records_delivered == 4, "the second round waited, and read nothing more"


def test_lease_request_ends_the_wait_of_a_shared_round(tmp_path: Path) -> None:
    fleet = Fleet(FakeStream(2), tmp_path, ownership_timeout=timedelta(seconds=4), safety_margin=timedelta(seconds=0.1))
    fleet.stream.send(4)
    stop, going = threading.Event(), {"is_shared": True, "round_duration": LONG, "until_caught_up": False}
    with fleet.without_spark(), ThreadPoolExecutor(2) as pool:
        first = pool.submit(fleet.work, stop=stop, owner="first", **going)
        assert until(lambda: sum(fleet.delivered().values()) == 4)
        second = pool.submit(fleet.work, stop=stop, owner="second", **going)
        assert until(lambda: sorted(map(str, owners(fleet))) == ["first", "second"])
        stop.set()
        assert ended(first.result()) and ended(second.result())
