"""Which actions apply to a partition, and applying a change to many things."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_coordination.coordination.errors import PartitionUpdateError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, Partition, new_partition
from airflow_provider_coordination.coordination.partition_actions import NotAttemptedError, actions_for, apply_to_each

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
WAITING = new_partition("clicks|PARTITION", "a", NOW)


@pytest.mark.parametrize(
    ("partition", "actions"),
    [
        pytest.param(WAITING, ["park", "reset"], id="waiting"),
        pytest.param(WAITING.acquired("host:1", LATER), ["release", "park", "reset"], id="held"),
        pytest.param(WAITING.failed("no luck"), ["reopen", "park", "reset"], id="failed"),
        pytest.param(new_partition("clicks|PARTITION", "a", LATER), ["reopen", "park", "reset"], id="delayed"),
        pytest.param(WAITING.closed(LATER), ["reopen", "park", "reset"], id="resting"),
        pytest.param(WAITING.closed(PARKED_UNTIL), ["reopen", "reset"], id="parked"),
        pytest.param(WAITING.completed(NOW), ["reset"], id="completed"),
    ],
)
def test_actions_apply_by_state(partition: Partition, actions: list[str]) -> None:
    assert actions_for(partition, NOW) == actions


def test_failure_of_one_does_not_stop_the_others() -> None:
    def change(number: int) -> int:
        if number == 2:
            raise PartitionUpdateError("changed")
        return 10 * number

    [first, second, third] = apply_to_each([1, 2, 3], change)
    assert (first, third) == ((1, 10), (3, 30))
    assert isinstance(second[1], PartitionUpdateError)


def test_unavailable_store_ends_the_attempts() -> None:
    attempted: list[int] = []

    def change(number: int) -> None:
        attempted.append(number)
        if number > 1:
            raise StoreUnavailableError("no response")

    outcomes = dict(apply_to_each([1, 2, 3], change))
    assert attempted == [1, 2] and outcomes[1] is None
    assert type(outcomes[2]) is StoreUnavailableError and type(outcomes[3]) is NotAttemptedError
    with pytest.raises(StoreUnavailableError):
        list(apply_to_each([2, 3], change))
