"""A partition parses its progress once, and its state follows from status and time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.browsing import state_of
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, Partition
from tests.support.partitions import NOW, a_partition

LATER, EARLIER = NOW + timedelta(seconds=1), NOW - timedelta(seconds=1)
FRESH = a_partition("p")


def test_progress_is_parsed_once_and_again_after_a_change() -> None:
    read = []

    def last(progress: Mapping[str, Any]) -> int:
        read.append(progress)
        return int(progress["last"])

    partition = FRESH.with_progress({"last": 3})
    assert [partition.progress_as(last) for _ in range(3)] == [3, 3, 3] and len(read) == 1
    assert partition.with_progress({"last": 4}).progress_as(last) == 4
    assert partition == FRESH.with_progress({"last": 3})
    for _ in range(2):
        with pytest.raises(KeyError):
            FRESH.progress_as(last)


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
def test_state_derives_from_status_and_time(partition: Partition, state: str) -> None:
    assert state_of(partition, NOW) == state
