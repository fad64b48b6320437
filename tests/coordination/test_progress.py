"""An unreadable state of a partition is passed on and reported, and never overwritten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ProgressError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.coordination.fleet import Fleet, keys, seconds

UNREADABLE = '{"checkpoint": 49'


@pytest.fixture
def fleet() -> Fleet:
    """One partition whose state is damaged."""
    fleet = Fleet()
    fleet.owner("a").create_partitions({"x": {}})
    fleet.store.store.transact(update=[replace(fleet.stored(), unreadable_progress=UNREADABLE)])
    return fleet


KEEPING: dict[str, Callable[[SourceCoordinator], object]] = {
    "acquire": lambda a: None,
    "renew": lambda a: a.leases.renew("x"),
    "await_acknowledgment": lambda a: a.leases.await_acknowledgment("x", seconds(300)),
    "give_up": lambda a: a.leases.give_up("x"),
    "close": lambda a: a.leases.close("x", seconds(30)),
    "fail": lambda a: a.leases.fail("x", "boom"),
    "complete": lambda a: a.leases.complete("x"),
    "recover": lambda a: a.leases.recover(),
    "given up by another": lambda a: a.give_up_owner("a"),
}


@pytest.mark.parametrize("act", KEEPING.values(), ids=KEEPING)
def test_unreadable_progress_is_kept_through(fleet: Fleet, act: Callable[[SourceCoordinator], object]) -> None:
    a = fleet.owner("a")
    [acquired] = a.leases.acquire(1)
    act(a)
    assert acquired.unreadable_progress == fleet.stored().unreadable_progress == UNREADABLE
    assert acquired.progress == {}


OVERWRITING: dict[str, Callable[[SourceCoordinator], object]] = {
    "save_progress": lambda a: a.leases.save_progress("x", {"n": 1}),
    "checkpoint": lambda a: a.leases.checkpoint("x", {"n": 1}),
    "complete": lambda a: a.leases.complete("x", {"n": 1}),
}


@pytest.mark.parametrize("act", OVERWRITING.values(), ids=OVERWRITING)
def test_unreadable_progress_is_never_overwritten_by(fleet: Fleet, act: Callable[[SourceCoordinator], object]) -> None:
    a = fleet.owner("a")
    [acquired] = a.leases.acquire(1)
    with pytest.raises(
        ProgressError, match=r"is not a JSON object and is kept unchanged: .*checkpoint.*reset the partition"
    ):
        act(a)
    assert fleet.stored() == acquired and a.leases.owns("x")


UNSTORABLE = {"not JSON": {"n": object()}, "not a number": {"n": float("nan")}, "too large": {"n": "x" * 65536}}


@pytest.mark.parametrize("progress", UNSTORABLE.values(), ids=UNSTORABLE)
@pytest.mark.parametrize("act", ["save_progress", "checkpoint", "complete"])
def test_unstorable_progress_is_refused_and_the_lease_kept(act: str, progress: dict[str, object]) -> None:
    fleet = Fleet()
    a = fleet.working("a", "x")
    with pytest.raises(ProgressError, match=r"its progress (is not JSON|has 65544 bytes; the limit is 65536)"):
        getattr(a.leases, act)("x", progress)
    assert a.leases.owns("x") and fleet.stored() == a.leases.held["x"]


@pytest.mark.parametrize("progress", UNSTORABLE.values(), ids=UNSTORABLE)
def test_partition_with_unstorable_progress_is_not_created(progress: dict[str, object]) -> None:
    fleet = Fleet()
    a = fleet.owner("a")
    with pytest.raises(ProgressError):
        a.create_partitions({"x": {}, "y": progress})
    assert list(a.view.partitions()) == []


def test_closed_partition_keeps_its_saved_progress() -> None:
    fleet = Fleet()
    a = fleet.working("a", "x")
    a.leases.save_progress("x", {"n": 1})
    a.leases.close("x", seconds(30))
    fleet.clock.advance(30)
    assert keys(a.leases.acquire(1)) == ["x"] and a.leases.leased("x").progress == {"n": 1}
    assert fleet.stored().status is PartitionStatus.ASSIGNED
