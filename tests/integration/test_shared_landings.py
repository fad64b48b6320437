"""Small landings of several members share Spark tasks, and do not affect each other."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.spark import shared_landings
from airflow_provider_coordination.spark.membership import Membership, mark_jobs, working_for
from airflow_provider_coordination.spark.shared_landings import MOST_LOAD, MOST_TOGETHER, SharedLandings
from airflow_provider_coordination.spark.slots import land_in_slots
from tests.support.waiting import PATIENCE_SECONDS, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = 24


@dataclass(frozen=True)
class Row:
    """What a slot lands of a partition, and where."""

    partition: int
    process: int


def landing(folder: Path, plans: Sequence[int]) -> list[Row]:
    """Land, and note it; a partition may take long, fail, or end its process."""
    for plan in plans:
        (folder / f"{plan}-{os.getpid()}-{time.monotonic_ns()}").touch()
        if (folder / f"slow {plan}").exists():
            time.sleep(0.5)
        while (folder / f"held {plan}").exists():
            time.sleep(0.02)
        if (folder / f"failing {plan}").exists():
            raise RuntimeError(f"no {plan}")
        if (folder / f"deadly {plan}").exists():
            os._exit(1)
    return [Row(plan, os.getpid()) for plan in plans]


class Members:
    """The members of an application, whose landings may share tasks."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.context = spark.sparkContext
        self.folder = folder
        self.slots = 2
        self.landings = SharedLandings(self.context, lambda: self.slots)

    def land(self, number: int, load: float = 1.0, *, slots: int = 1) -> list[Row]:
        """Land the partition of a member in each of its slots, in a thread: Spark's properties belong to a thread."""
        member = Membership(self.context, f"source-{number}", f"owner {number}", landings=self.landings)

        def land() -> list[Row]:
            with working_for(member):
                return land_in_slots(self.context, [[number]] * slots, partial(landing, self.folder), Row, load=load)

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(land).result()

    def land_all(self, load: float = 1.0) -> list[list[Row] | Exception]:
        """Land the partitions of all members at the same time."""
        together = threading.Barrier(SOURCES)

        def land(number: int) -> list[Row] | Exception:
            together.wait()
            try:
                return self.land(number, load)
            except Exception as error:
                return error

        with ThreadPoolExecutor(SOURCES) as pool:
            return list(pool.map(land, range(SOURCES)))

    def jobs_of(self, work: Callable[[], Any]) -> int:
        """Return the number of Spark jobs that some work runs."""
        before = self._jobs()
        work()
        return self._jobs() - before

    def _jobs(self) -> int:
        return int(self.context._jsc.sc().dagScheduler().nextJobId())

    def landed(self, number: int) -> int:
        """Return how often the partition of a member was landed."""
        return len(list(self.folder.glob(f"{number}-*")))


@pytest.fixture
def members(spark: SparkSession, tmp_path: Path) -> Members:
    return Members(spark, tmp_path)


def partitions_of(landed: Sequence[list[Row] | Exception]) -> list[Any]:
    return [[row.partition for row in rows] if isinstance(rows, list) else str(rows) for rows in landed]


def test_landings_that_wait_share_tasks(members: Members) -> None:
    landed: list[Any] = []
    jobs = members.jobs_of(lambda: landed.extend(members.land_all()))
    assert partitions_of(landed) == [[number] for number in range(SOURCES)]
    assert jobs < SOURCES
    assert {members.landed(number) for number in range(SOURCES)} == {1}


@pytest.mark.parametrize("load", [MOST_LOAD + 1.0, float("inf")])
def test_large_landings_have_tasks_of_their_own(members: Members, load: float) -> None:
    landed: list[Any] = []
    jobs = members.jobs_of(lambda: landed.extend(members.land_all(load)))
    assert partitions_of(landed) == [[number] for number in range(SOURCES)]
    assert jobs == SOURCES


def test_tasks_take_no_more_than_their_load(members: Members) -> None:
    assert members.jobs_of(lambda: members.land_all(MOST_LOAD / 2)) >= SOURCES / 2


def test_failing_landing_is_repeated_and_reported_alone(members: Members) -> None:
    (members.folder / "failing 3").touch()
    landed = members.land_all()
    assert "no 3" in str(landed[3])
    assert partitions_of(landed[:3] + landed[4:]) == [[n] for n in range(SOURCES) if n != 3]
    before = members.landed(3)
    with pytest.raises(Exception, match="no 3"):
        members.land(3)
    assert members.landed(3) - before == before - 1  # not with others first


def test_landing_that_kills_its_worker_fails_alone(members: Members) -> None:
    (members.folder / "deadly 5").touch()
    landed = members.land_all()
    assert isinstance(landed[5], Exception)
    assert partitions_of(landed[:5] + landed[6:]) == [[n] for n in range(SOURCES) if n != 5]


def test_slow_landing_is_alone_the_next_time(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_landings, "SLOW_SECONDS", 0.4)
    (members.folder / "slow 7").touch()
    assert partitions_of(members.land_all()) == [[number] for number in range(SOURCES)]
    assert members.jobs_of(lambda: members.land(7)) == 1
    assert "owner 7" in members.landings._alone_until
    assert "owner 6" not in members.landings._alone_until


def test_tasks_take_a_bounded_number_of_landings(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_TOGETHER >= SOURCES
    monkeypatch.setattr(shared_landings, "MOST_TOGETHER", 2)
    assert members.jobs_of(members.land_all) >= SOURCES / 2


LARGE = MOST_LOAD + 1.0


def test_small_landing_does_not_wait_for_long_ones(members: Members) -> None:
    held = [members.folder / f"held {number}" for number in (1, 2)]
    for file in held:
        file.touch()
    with ThreadPoolExecutor(2) as pool:
        long = [pool.submit(members.land, number, LARGE, slots=2) for number in (1, 2)]
        try:
            until(lambda: members.landed(1) + members.landed(2) == 1)
            assert [row.partition for row in members.land(3)] == [3]
            assert members.landed(1) + members.landed(2) == 1, "they have one slot, and take turns"
        finally:
            for file in held:
                file.unlink()
        assert [len(each.result(PATIENCE_SECONDS)) for each in long] == [2, 2]


def test_landings_take_turns_in_their_order(members: Members) -> None:
    first = members.folder / "held 1"
    first.touch()
    with ThreadPoolExecutor(4) as pool:
        landings = [pool.submit(members.land, 1, LARGE)]
        until(lambda: members.landed(1) == 1)
        for number in (2, 3, 4):
            landings.append(pool.submit(members.land, number, LARGE))
            until(lambda waiting=number - 1: len(members.landings._turns) == waiting)
        first.unlink()
        for landing_ in landings:
            landing_.result(PATIENCE_SECONDS)
    files = sorted(members.folder.glob("*-*"), key=lambda file: file.name.rpartition("-")[2])
    assert [file.name[0] for file in files] == ["1", "2", "3", "4"]


def test_wide_landing_has_the_slots_that_are_free(members: Members) -> None:
    members.slots = 4
    with members.landings.turn("a", 8) as all_but_one:
        assert all_but_one == 3
    with members.landings.turn("a", 2) as two, members.landings.turn("b", 8) as rest:
        assert (two, rest) == (2, 1)
    members.slots = 1
    with members.landings.turn("a", 8) as the_only:
        assert the_only == 1


@pytest.mark.parametrize(("lasting", "first", "second"), [(8, 6, 1), (None, 6, 6)])
def test_turns_count_the_slots_that_spark_may_start(
    members: Members, lasting: int | None, first: int, second: int
) -> None:
    landings = SharedLandings(members.context, lambda: 2, lambda: lasting)
    with landings.turn("a", 6) as one, landings.turn("b", 6) as other:
        assert (one, other) == (first, second)


def test_cancelled_landing_does_not_wait_for_its_turn(members: Members) -> None:
    with ThreadPoolExecutor(2) as pool:
        with members.landings.turn("a", 1):
            cancelled, other = (pool.submit(members.land, number, LARGE) for number in (7, 8))
            until(lambda: len(members.landings._turns) == 2)
            members.landings.cancel("owner 7")
            with pytest.raises(CoordinationError, match="cancelled while it waited"):
                cancelled.result(PATIENCE_SECONDS)
            assert not other.done()
        assert other.result(PATIENCE_SECONDS)
    assert (members.landed(7), members.landed(8)) == (0, 1)


def test_pool_of_a_member_has_its_weight(members: Members) -> None:
    def add() -> None:
        for weight in (1, 3, 3):
            member = Membership(members.context, "heavy", "owner", weight)
            member.add_pool()
            with working_for(member):
                mark_jobs(members.context)
            assert members.context.parallelize([1], 1).count() == 1

    with ThreadPoolExecutor(1) as pool:  # what a thread sets for its Spark jobs ends with it
        pool.submit(add).result(PATIENCE_SECONDS)
    pools = members.context._jsc.sc().taskScheduler().rootPool()
    assert pools.getSchedulableByName("heavy of weight 3").weight() == 3
