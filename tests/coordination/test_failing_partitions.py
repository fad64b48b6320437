"""Failing partitions: retries, rests and parking."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, PartitionNotOwnedError
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, PartitionStatus
from airflow_provider_coordination.coordination.retries import RetryPolicy
from tests.coordination.fleet import Fleet, keys, seconds

AT_ONCE, PARKED = timedelta(0), None
POLICY = RetryPolicy(max_attempts=2, first_delay=seconds(60), max_delay=seconds(200), max_closed_count=3)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.mark.parametrize(
    ("attempts", "delay"),
    [
        (1, AT_ONCE),
        (2, seconds(60)),
        (3, AT_ONCE),
        (4, seconds(120)),
        (5, AT_ONCE),
        (6, seconds(200)),
        (7, AT_ONCE),
        (8, PARKED),
        (9, AT_ONCE),  # a person reopened it without forgetting its failures, as an import may
        (10, PARKED),
    ],
)
def test_delay_grows_to_its_maximum_and_then_parks(attempts: int, delay: timedelta | None) -> None:
    assert POLICY.delay_after(attempts) == delay


@pytest.mark.parametrize(
    ("attempts", "delay"),
    [
        (1, AT_ONCE), (2, AT_ONCE), (3, seconds(60)), (6, seconds(120)), (9, seconds(240)), (12, seconds(480)),
        (15, seconds(960)), (18, seconds(1920)), (21, seconds(3600)), (24, seconds(3600)), (26, AT_ONCE), (27, PARKED),
    ],
)  # fmt: skip
def test_partition_parks_after_27_attempts_by_default(attempts: int, delay: timedelta | None) -> None:
    assert RetryPolicy().delay_after(attempts) == delay


def test_partition_may_be_parked_at_its_first_failure() -> None:
    assert RetryPolicy(max_attempts=1, max_closed_count=0).delay_after(1) is PARKED


def test_delay_without_parking_stays_bounded() -> None:
    policy = RetryPolicy(max_attempts=1, max_closed_count=10**6)
    assert policy.delay_after(10**6) == timedelta(hours=1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_attempts": 0}, "max_attempts must be at least 1; got 0"),
        ({"max_closed_count": -1}, "max_closed_count must not be negative; got -1"),
        ({"first_delay": AT_ONCE}, "first_delay must be positive and not above max_delay; got 0 s and 3600 s"),
        ({"max_delay": seconds(59)}, "first_delay must be positive and not above max_delay; got 60 s and 59 s"),
    ],
)
def test_invalid_policy_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        RetryPolicy(**values)  # type: ignore[arg-type]


def failed(a: SourceCoordinator, times: int) -> None:
    for _ in range(times):
        if "x" not in a.leases.held:
            assert keys(a.leases.acquire(1)) == ["x"]
        a.leases.fail("x", "boom")


def test_failed_partition_is_available_with_progress_and_error(fleet: Fleet) -> None:
    a = fleet.working("a", "x", retry_policy=POLICY)
    a.leases.save_progress("x", {"n": 1})
    a.leases.fail("x", "sink: no space left")
    stored = fleet.stored()
    assert (stored.status, stored.attempts, stored.last_error) == (PartitionStatus.UNASSIGNED, 1, "sink: no space left")
    assert stored.progress == {"n": 1} and stored.priority == fleet.clock.now() and a.leases.held == {}
    assert keys(fleet.owner("b").leases.acquire(1)) == ["x"]


def test_partition_rests_after_max_attempts_and_returns(fleet: Fleet) -> None:
    a = fleet.working("a", "x", retry_policy=POLICY)
    failed(a, 2)
    stored = fleet.stored()
    assert (stored.status, stored.closed_count) == (PartitionStatus.CLOSED, 0)
    assert stored.reopen_at == fleet.clock.now() + seconds(60)
    fleet.clock.advance(59)
    assert a.leases.acquire(1) == []
    fleet.clock.advance(1)
    assert keys(a.leases.acquire(1)) == ["x"]


def test_attempts_are_kept_across_owners(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x", retry_policy=POLICY), fleet.owner("b", retry_policy=POLICY)
    a.leases.fail("x", "boom")
    b.leases.acquire(1)
    b.leases.save_progress("x", {"n": 1})
    b.leases.renew("x")
    fleet.lease_passes()
    a.leases.acquire(1)
    a.leases.give_up("x")
    b.leases.acquire(1)
    assert b.leases.leased("x").attempts == 1
    assert b.leases.fail("x", "again").status is PartitionStatus.CLOSED


@pytest.mark.parametrize("further", ["checkpoint", "complete"])
def test_checkpoint_or_completion_clears_the_failures(fleet: Fleet, further: str) -> None:
    a = fleet.working("a", "x", retry_policy=POLICY)
    a.leases.fail("x", "boom")
    a.leases.acquire(1)
    a.leases.checkpoint("x", {"n": 1}) if further == "checkpoint" else a.leases.complete("x", {"n": 1})
    assert (fleet.stored().attempts, fleet.stored().last_error) == (0, None)


def test_saving_undelivered_progress_clears_no_failures(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    a.leases.fail("x", "boom")
    a.leases.acquire(1)
    a.leases.save_progress("x", {"landed": 1})
    assert (fleet.stored().attempts, fleet.stored().last_error) == (1, "boom")


def test_constantly_failing_partition_is_parked_and_never_completed(fleet: Fleet) -> None:
    a = fleet.working("a", "x", retry_policy=POLICY)
    for _ in range(8):
        assert not fleet.stored().is_parked
        failed(a, 1)
        fleet.clock.advance(200)
    stored = fleet.stored()
    assert (stored.status, stored.reopen_at, stored.attempts) == (PartitionStatus.CLOSED, PARKED_UNTIL, 8)
    fleet.clock.advance(timedelta(days=3650).total_seconds())
    assert a.leases.acquire(1) == []


def test_stored_error_is_truncated(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    a.leases.fail("x", "ä" * 5000)
    assert fleet.stored().last_error == "ä" * 1000


def test_unstorable_error_is_kept_as_far_as_possible(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    a.leases.fail("x", "bad \0 byte in file \udcff")
    assert fleet.stored().last_error == "bad \N{REPLACEMENT CHARACTER} byte in file ?"


def test_failing_needs_the_lease_but_no_trust(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x", "y"), fleet.owner("b")
    fleet.lease_passes()
    a.leases.fail("x", "slow")
    assert fleet.stored("x").attempts == 1
    b.leases.acquire(2)
    with pytest.raises(PartitionNotOwnedError, match="owner b"):
        a.leases.fail("y", "slow")
    assert fleet.stored("y").attempts == 0
