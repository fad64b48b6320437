"""A reader respects the limits of Kinesis, and waits out temporary errors."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.sources.kinesis.pacing import (
    OWN_READS_FADE_SECONDS,
    READ_BYTES_PER_SECOND,
    Pace,
    RetryBudget,
    shifted,
)
from tests.support.clock import ManualClock
from tests.support.depth import examples

MIB = 2**20


def patient(clock: ManualClock, **options: float) -> RetryBudget:
    return RetryBudget(clock=clock, sleep=clock.advance, jitter=lambda: 1.0, **options)  # type: ignore[arg-type]


def times_of(sizes: Sequence[int]) -> list[float]:
    """When pages of these sizes are read, one after the other, by a reader that never rests."""
    clock = ManualClock()
    begun, pace, times = clock.monotonic(), Pace(patient(clock)), []
    for size in sizes:
        pace.wait()
        times.append(round(clock.monotonic() - begun, 3))
        pace.took(size)
    return times


@pytest.mark.parametrize(
    ("sizes", "times"),
    [
        ([0] * 6, [0, 0.25, 0.5, 0.75, 1, 1.25]),
        ([MIB, MIB, MIB], [0, 0.25, 1]),
        ([2 * MIB, 10, 10], [0, 1, 1.25]),
        ([10 * MIB, 10, 10], [0, 5, 5.25]),
        ([10 * MIB, 10 * MIB, 10], [0, 5, 10]),
    ],
    ids=["empty pages", "two small ones may come at once", "a second's worth", "a full page", "full pages"],
)
def test_reads_come_as_fast_as_a_shard_allows(sizes: list[int], times: list[float]) -> None:
    assert times_of(sizes) == times


@settings(max_examples=examples(40))
@given(st.lists(st.integers(0, 10 * MIB), min_size=1, max_size=25))
def test_exhausted_budget_delays_the_next_page(sizes: list[int]) -> None:
    times = times_of(sizes)
    assert len(times) == len(sizes)
    for number, time in enumerate(times):
        before = list(zip(times[:number], sizes[:number], strict=True))
        assert sum(time - 1 < then for then, _ in before) < 5
        counting = [size for then, size in before if time < then + max(1.0, size / READ_BYTES_PER_SECOND) - 0.001]
        assert sum(counting) < READ_BYTES_PER_SECOND


@settings(max_examples=examples(40))
@given(st.lists(st.integers(0, 10 * MIB), min_size=1, max_size=12), st.lists(st.integers(0, 10 * MIB), max_size=12))
def test_successor_keeps_to_the_remaining_budget(first: list[int], then: list[int]) -> None:
    clock = ManualClock()
    begun, pace, times = clock.monotonic(), Pace(patient(clock)), []
    for size in first:
        pace.wait()
        times.append(clock.monotonic() - begun)
        pace.took(size)
    pace = Pace(patient(clock), recent_reads=shifted(pace.recent_reads, -clock.monotonic()))
    for size in then:
        pace.wait()
        times.append(clock.monotonic() - begun)
        pace.took(size)
    sizes = [*first, *then]
    assert len(times) == len(sizes) >= 1
    for number, time in enumerate(times):
        before = list(zip(times[:number], sizes[:number], strict=True))
        counting = [size for at, size in before if time < at + max(1.0, size / READ_BYTES_PER_SECOND) - 0.001]
        assert sum(counting) < READ_BYTES_PER_SECOND


@pytest.mark.parametrize("reads_per_second", [5, 4, 2, 0.5])
def test_reads_keep_to_the_given_rate(reads_per_second: float) -> None:
    clock = ManualClock()
    begun, pace = clock.monotonic(), Pace(patient(clock), reads_per_second)
    for _ in range(11):
        pace.wait()
        pace.took(10)
    assert clock.monotonic() - begun == pytest.approx(10 / reads_per_second)


def test_caught_up_shard_is_read_half_as_often() -> None:
    clock = ManualClock()
    begun, pace = clock.monotonic(), Pace(patient(clock), 2)
    for _ in range(4):
        pace.wait()
        pace.took(0, is_caught_up=True)
    assert clock.monotonic() - begun == 3


def test_next_reader_keeps_to_the_rate() -> None:
    clock = ManualClock()
    pace = Pace(patient(clock), 0.5)
    pace.wait()
    pace.took(0)
    clock.advance(0.5)
    left = shifted(pace.recent_reads, -clock.monotonic())
    assert Pace(patient(clock), 0.5, recent_reads=left).due_in() == 1.5


def test_earlier_reads_count_for_a_while() -> None:
    clock = ManualClock()
    pace = Pace(patient(clock))
    assert not pace.accounts_for_everything
    clock.advance(OWN_READS_FADE_SECONDS)
    assert pace.accounts_for_everything


def test_pauses_grow_up_to_a_limit() -> None:
    clock = ManualClock()
    retry, pauses = patient(clock), []
    for failures in range(1, 8):
        before = clock.monotonic()
        assert retry.pause(failures)
        pauses.append(clock.monotonic() - before)
    assert pauses == [0.25, 0.5, 1, 2, 4, 5, 5]


def test_half_of_a_pause_is_random() -> None:
    clock = ManualClock()
    before = clock.monotonic()
    RetryBudget(clock=clock, sleep=clock.advance, jitter=lambda: 0.0).pause(3)
    assert clock.monotonic() - before == 0.5


def test_wait_never_exceeds_the_deadline() -> None:
    clock = ManualClock()
    before = clock.monotonic()
    retry = patient(clock, until=before + 1.0)
    assert retry.pause(2)
    assert not retry.pause(2)
    assert clock.monotonic() - before == 0.5
    assert not retry.is_over() and retry.is_over(after=0.5)
