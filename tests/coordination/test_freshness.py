"""How fresh the data of a sink is, as distributions of ages that add up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.freshness import (
    FRESHNESS_WINDOW,
    MAX_BUCKET,
    SMALLEST_SECONDS,
    Ages,
    RecentAges,
    bucket_end,
)

WINDOW = FRESHNESS_WINDOW.total_seconds()
WIDTH = bucket_end(1) / bucket_end(0)
SECONDS = st.floats(0, 400 * 86400)
BATCHES = st.tuples(SECONDS, SECONDS, st.integers(1, 5000)).map(lambda each: (*sorted(each[:2]), each[2]))
AGES = BATCHES.map(lambda batch: Ages.between(*batch))


@given(AGES, AGES, AGES)
def test_sum_of_ages_does_not_depend_on_order(one: Ages, two: Ages, three: Ages) -> None:
    assert (one + two) + three == one + (two + three) == Ages.sum([three, two, one])


@given(st.lists(BATCHES, min_size=1, max_size=5), st.sampled_from([0.5, 0.95, 1.0]))
def test_quantile_is_a_bucket_above_the_exact_one(batches: list[tuple[float, float, int]], share: float) -> None:
    exact = sorted(
        youngest + (oldest - youngest) * (number + 0.5) / records
        for youngest, oldest, records in batches
        for number in range(records)
    )
    found = Ages.sum(Ages.between(*batch) for batch in batches).quantile(share)
    rank = math.ceil(share * len(exact)) - 1
    assert found is not None
    # Each batch is rounded to whole records in each bucket, which moves a rank by one at most.
    lowest, highest = exact[max(0, rank - len(batches))], exact[min(len(exact) - 1, rank + len(batches))]
    assert lowest - 0.01 <= found <= max(SMALLEST_SECONDS, highest * WIDTH) + 0.01


@given(BATCHES)
def test_batch_counts_each_record_once(batch: tuple[float, float, int]) -> None:
    assert sum(Ages.between(*batch).counts.values()) == batch[2]


@given(AGES)
def test_ages_are_stored_and_read(ages: Ages) -> None:
    assert Ages.from_list(ages.to_list()) == ages


@pytest.mark.parametrize("stored", [None, {}, "1", [1.5, 2], ["1", 2], [-1, 5], [MAX_BUCKET + 1, 5], [3], [3, 0]])
def test_unreadable_ages_are_no_ages(stored: object) -> None:
    assert Ages.from_list(stored) == Ages()
    assert Ages().quantile(0.5) is None


@pytest.mark.parametrize("seconds", [-5.0, 0.0, SMALLEST_SECONDS])
def test_clock_that_is_behind_makes_no_negative_age(seconds: float) -> None:
    assert Ages.between(seconds, seconds, 3).quantile(1.0) == SMALLEST_SECONDS


def test_age_beyond_the_last_bucket_counts_there() -> None:
    assert Ages.between(1e12, 1e13, 3).counts == {MAX_BUCKET: 3}


def test_recent_ages_leave_out_what_is_older_than_the_window() -> None:
    recent = RecentAges()
    recent.add(0, Ages.between(50, 50, 1))
    recent.add(30, Ages.between(9, 9, 1))
    recent.add(WINDOW - 1, Ages.between(1, 1, 2))
    assert sum(recent.ages(WINDOW - 1).counts.values()) == 4
    assert recent.ages(WINDOW) == Ages.between(1, 1, 2)
    assert recent.ages(3 * WINDOW) == Ages()
