"""The pace of rounds: as short as the target of freshness needs, and as the sinks allow."""

from __future__ import annotations

import logging
import math
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.reading import RoundRead
from airflow_provider_coordination.spark.round_pace import (
    FAR_BEHIND_SECONDS,
    RECENT_ROUNDS,
    RESERVE,
    SHORTEST_SECONDS,
    TURN_SECONDS,
    RoundPace,
)
from airflow_provider_coordination.spark.sinks import TABLE_COMMIT_INTERVAL

NO_INTERVAL = timedelta(0)
TABLE = TABLE_COMMIT_INTERVAL.total_seconds()


def paced(freshness: float | None, interval: timedelta = NO_INTERVAL, round_duration: float = 10) -> RoundPace:
    target = None if freshness is None else timedelta(seconds=freshness)
    return RoundPace(RoundSettings(freshness=target, round_duration=timedelta(seconds=round_duration)), interval)


def phases(*, land: float, deliver: float, acquire: float = 0.0, record: float = 0.0) -> dict[str, float]:
    return {"acquire": acquire, "land": land, "record": record, "deliver": deliver}


class SimulatedJob:
    """Rounds of a job whose phases take the same time each, and the ages of records that arrive steadily.

    :param landing: how long a landing takes that reads to the end of its shards; None for shards that always have more.
    """

    def __init__(self, pace: RoundPace, *, deliver: float, landing: float | None, overhead: float = 0.2) -> None:
        self.pace, self.deliver, self.landing, self.overhead = pace, deliver, landing, overhead
        self.now, self.read_until, self.waiting = 0.0, 0.0, None
        self.ages: list[float] = []
        self.commits: list[float] = []

    def round(self) -> None:
        start = self.now + self.overhead / 2
        delay = 0.0
        if self.waiting is not None:
            visible = start + self.deliver
            begin, end = self.waiting
            self.ages += [visible - begin - (end - begin) * n / 20 for n in range(20)]
            self.commits.append(visible)
            delay = self.pace.delay.total_seconds()
        limit = min(self.pace.read_seconds, 10.0)
        land = limit if self.landing is None else min(limit, self.landing)
        until = start + delay + land
        # A shard that always has more is read up to the present; the end of another is seen when its landing begins.
        read = until if self.landing is None else start + delay
        delivered = self.deliver if self.waiting is not None else 0.0
        self.waiting, self.read_until = (self.read_until, read), read
        self.now = max(until, start + delivered) + self.overhead / 2
        half = self.overhead / 2
        self.pace.note(phases(acquire=half, land=land, record=half, deliver=delivered))

    def p95(self) -> float:
        for _ in range(200):
            self.round()
        latest = sorted(self.ages[-2000:])
        return latest[int(0.95 * len(latest))]


@pytest.mark.parametrize("landing", [0.3, None], ids=["reads to the end", "always has more"])
@pytest.mark.parametrize(("target", "deliver"), [(2, 0.3), (5, 0.5), (5, 1.5), (10, 2), (20, 5)])
def test_rounds_meet_a_target_that_the_sinks_can_reach(target: float, deliver: float, landing: float | None) -> None:
    assert SimulatedJob(paced(target), deliver=deliver, landing=landing).p95() <= target


@pytest.mark.parametrize("landing", [0.3, None], ids=["reads to the end", "always has more"])
def test_tables_get_few_commits_within_the_target(landing: float | None) -> None:
    job = SimulatedJob(paced(5, TABLE_COMMIT_INTERVAL), deliver=0.5, landing=landing)
    assert job.p95() <= 5
    commits = job.commits[-100:]
    assert (commits[-1] - commits[0]) / (len(commits) - 1) >= TABLE


def test_long_target_makes_fewer_commits_than_a_short_one() -> None:
    jobs = [SimulatedJob(paced(target), deliver=0.5, landing=0.3) for target in (3, 9)]
    for job in jobs:
        job.p95()
    assert jobs[1].now > 2 * jobs[0].now


def test_pace_without_target_follows_the_other_settings() -> None:
    pace = paced(None)
    pace.note(phases(land=1, deliver=5))
    assert (pace.read_seconds, pace.delay, pace.idle_pause) == (math.inf, NO_INTERVAL, RoundSettings().idle_duration)


def test_round_takes_what_delivery_leaves_of_the_target() -> None:
    pace = paced(5)
    pace.note(phases(acquire=0.25, land=4, record=0.25, deliver=1))
    assert pace.read_seconds == pytest.approx((5 - 1.5) * (1 - RESERVE))
    assert pace.delay == NO_INTERVAL, "the last landing took longer than that"


def test_round_is_not_longer_than_its_duration() -> None:
    pace = paced(60, round_duration=10)
    pace.note(phases(land=1, deliver=1))
    assert pace.read_seconds == 10


@pytest.mark.parametrize(
    ("interval", "deliver", "shortest"),
    [(NO_INTERVAL, 0.1, SHORTEST_SECONDS), (TABLE_COMMIT_INTERVAL, 0.1, TABLE), (TABLE_COMMIT_INTERVAL, 7.0, 7.0)],
)
def test_unreachable_target_ends_at_what_the_sinks_bear(interval: timedelta, deliver: float, shortest: float) -> None:
    pace = paced(1, interval)
    pace.note(phases(land=1, deliver=deliver, record=2))
    assert pace.read_seconds == shortest


def test_single_slow_delivery_slows_no_further_round() -> None:
    pace = paced(2)
    pace.note(phases(land=0.5, deliver=9, record=3))
    assert pace.read_seconds == 9
    pace.note(phases(land=0.5, deliver=0.5))
    assert pace.read_seconds == pytest.approx((2 - 0.5) * (1 - RESERVE))
    pace.note(phases(land=0.5, deliver=7))
    assert pace.read_seconds == 7


def test_unreachable_target_is_a_problem_until_deliveries_are_fast() -> None:
    pace = paced(2)
    assert not pace.problem
    pace.note(phases(land=1, deliver=5, record=1))
    assert pace.problem == (
        "the sinks cannot be as fresh as 2 s: a round takes at least 5.0 s, and the delivery of its records 6.0 s; "
        "raise 'freshness', or make the commits faster"
    )
    for _ in range(RECENT_ROUNDS):
        pace.note(phases(land=1, deliver=0.1))
    assert not pace.problem


def test_unreachable_target_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    pace = paced(2)
    with caplog.at_level(logging.INFO):
        for deliver in (5, 6, *[0.1] * 20):
            pace.note(phases(land=1, deliver=deliver))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "cannot be as fresh as 2 s" in caplog.messages[0]


def test_round_without_delivery_does_not_count() -> None:
    pace = paced(5)
    before = pace.read_seconds
    pace.note(phases(land=9, deliver=0, acquire=4))
    assert (pace.read_seconds, pace.delay) == (before, NO_INTERVAL)
    assert pace.idle_pause <= timedelta(seconds=before / 2)


def shared(freshness: float | None = None, **rounds: Any) -> RoundPace:
    target = None if freshness is None else timedelta(seconds=freshness)
    return RoundPace(RoundSettings(freshness=target, **rounds), NO_INTERVAL, is_shared=True)


@pytest.mark.parametrize("deliver", [0.0, 0.5])
def test_caught_up_job_waits_out_a_shared_round(deliver: float) -> None:
    pace = shared()
    pace.note(phases(land=0.5, deliver=deliver), is_caught_up=True)
    assert pace.delay == pace.idle_pause == timedelta(seconds=9.5)


def test_backlog_is_read_in_turns_of_shared_slots() -> None:
    pace = shared()
    pace.note(phases(land=2.5, deliver=0.5), behind=0.0)
    assert (pace.delay, pace.read_seconds) == (NO_INTERVAL, TURN_SECONDS)
    assert pace.idle_pause == RoundSettings().idle_duration


@pytest.mark.parametrize("freshness", [None, 3])
@pytest.mark.parametrize(
    ("weight", "behind", "turns"),
    [(1, 0, 1), (1, FAR_BEHIND_SECONDS / 2, 1.5), (1, FAR_BEHIND_SECONDS, 2), (1, math.inf, 2), (2, 0, 2), (4, 0, 4)],
)
def test_turn_grows_with_weight_and_lag(freshness: float | None, weight: int, behind: float, turns: float) -> None:
    pace = shared(freshness, weight=weight)
    pace.note(phases(land=2.5, deliver=0.5), behind=behind)
    assert pace.read_seconds == turns * TURN_SECONDS


def test_turn_is_not_longer_than_a_round() -> None:
    assert shared(weight=4, round_duration=timedelta(seconds=3)).read_seconds == 3


def test_weight_means_nothing_outside_of_a_group() -> None:
    pace = RoundPace(RoundSettings(weight=4), NO_INTERVAL)
    assert pace.read_seconds == math.inf


def test_landing_that_waited_for_a_slot_shortens_the_wait() -> None:
    pace = shared()
    pace.note(phases(land=12, deliver=0.5), is_caught_up=True)
    assert pace.delay == NO_INTERVAL


def test_target_shortens_shared_rounds() -> None:
    pace = shared(freshness=5)
    pace.note(phases(acquire=0.25, land=0.5, record=0.25, deliver=1), is_caught_up=True)
    assert pace.delay.total_seconds() == pytest.approx((5 - 1.5) * (1 - RESERVE) - 0.5)


@pytest.mark.parametrize(
    ("behind_ms", "expected"),
    [({}, math.inf), ({"a": 0}, 0.0), ({"a": 1500, "b": 0}, 1.5), ({"a": None, "b": 7}, math.inf)],
)
def test_longest_lag_of_a_round_is_infinite_if_unknown(behind_ms: dict[str, int | None], expected: float) -> None:
    assert RoundRead(behind_ms=behind_ms).longest_lag == expected


@pytest.mark.parametrize(
    ("behind_ms", "expected"),
    [({}, False), ({"a": 0}, True), ({"a": 0, "b": 0}, True), ({"a": 0, "b": 7}, False), ({"a": None}, False)],
)
def test_round_is_caught_up_if_no_partition_lags(behind_ms: dict[str, int | None], expected: bool) -> None:
    assert RoundRead(behind_ms=behind_ms).is_caught_up is expected
