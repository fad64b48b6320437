from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, Partition
from airflow_provider_coordination.coordination.partition_state import state_of
from tests.support.partitions import NOW, a_partition

LATER, EARLIER = NOW + timedelta(seconds=1), NOW - timedelta(seconds=1)
FRESH = a_partition("p")


@pytest.mark.parametrize(
    ("partition", "state"),
    [
        (FRESH, "waiting"),
        (FRESH.given_up(LATER), "delayed"),
        (FRESH.acquired("me", LATER), "held"),
        (FRESH.acquired("me", NOW), "expired"),
        (FRESH.acquired("me", EARLIER).awaiting(LATER), "awaiting"),
        (FRESH.acquired("me", EARLIER).awaiting(EARLIER), "expired"),
        (FRESH.closed(LATER), "resting"),
        (FRESH.failed("no luck").resting(LATER), "resting"),
        (FRESH.closed(NOW), "due"),
        (FRESH.resting(PARKED_UNTIL), "parked"),
        (FRESH.completed(EARLIER), "completed"),
    ],
)
def test_a_status_and_the_time_make_one_word(partition: Partition, state: str) -> None:
    assert state_of(partition, NOW) == state
