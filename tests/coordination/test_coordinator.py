"""A coordinator acquires, closes and completes the partitions of its source."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionNotFoundError,
    PartitionNotOwnedError,
    PartitionUpdateError,
    ProgressChangedError,
    StoreUnavailableError,
    UninitializedCoordinatorError,
)
from airflow_provider_coordination.coordination.metrics import CoordinationMetric, MetricTotals
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.coordination.fleet import MARGIN, TIMEOUT, Fleet, keys
from tests.coordination.unreliable_store import NOT_ANSWERED, Fault
from tests.support.clock import ManualClock
from tests.support.lease_writes import give, settle


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_item_family_is_prefix_source_and_kind(fleet: Fleet) -> None:
    assert fleet.owner("a").view.source_identifier == "test|clicks|PARTITION"
    assert SourceCoordinator(fleet.store, "clicks", "a").view.source_identifier == "clicks|PARTITION"


@pytest.mark.parametrize(("source", "prefix"), [("", None), ("a|b", None), ("clicks", ""), ("clicks", "a|b")])
def test_names_that_break_the_item_family_are_refused(source: str, prefix: str | None) -> None:
    with pytest.raises(ConfigurationError, match="is not usable: give a name that is not empty and has no"):
        SourceCoordinator(InMemoryStore(), source, "owner", prefix=prefix)


@pytest.mark.parametrize(("timeout", "margin"), [(0, 0), (-1, 0), (60, -1), (60, 16)])
def test_timeout_without_room_for_margin_is_refused(timeout: int, margin: int) -> None:
    with pytest.raises(ConfigurationError, match="at least four times the margin"):
        SourceCoordinator(
            InMemoryStore(),
            "clicks",
            "owner",
            ownership_timeout=timedelta(seconds=timeout),
            safety_margin=timedelta(seconds=margin),
        )


def test_initialize_is_required_first() -> None:
    coordinator = SourceCoordinator(InMemoryStore(), "clicks", "owner")
    for call in (
        lambda: coordinator.leases.acquire(1),
        lambda: coordinator.create_partitions({"a": {}}),
        lambda: coordinator.view.get("a"),
    ):
        with pytest.raises(UninitializedCoordinatorError, match="call initialize"):
            call()


def test_partitions_are_created_once(fleet: Fleet) -> None:
    assert fleet.owner("a").create_partitions({"x": {"n": 1}, "y": {}}) == ["x", "y"]
    assert fleet.owner("b").create_partitions({"x": {"n": 2}, "z": {}}) == ["z"]
    stored = fleet.owner("c").view.get("x")
    assert stored is not None and stored.progress == {"n": 1}


def test_acquired_partition_is_held_and_owned(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    assert keys(a.leases.acquire(5)) == ["x"]
    assert list(a.leases.held) == ["x"]
    assert a.leases.owns("x") and a.leases.fencing_token("x") == a.leases.held["x"].version
    assert fleet.owner("b").leases.acquire(5) == []


def test_saving_progress_renews_and_keeps_the_fencing_token(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    [acquired] = a.leases.acquire(1)
    fleet.clock.advance(50)
    saved = a.leases.save_progress("x", {"checkpoint": "7"})
    assert saved.ownership_timeout == fleet.clock.now() + timedelta(seconds=TIMEOUT)
    assert (saved.version, a.leases.fencing_token("x")) == (acquired.version + 1, acquired.version)
    fleet.clock.advance(50)
    assert a.leases.owns("x")


def test_owner_distrusts_a_lease_before_others_may_take_it(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.create_partitions({"x": {}})
    a.leases.acquire(1)
    fleet.clock.advance(TIMEOUT - MARGIN - 1)
    assert a.leases.owns("x")
    fleet.clock.advance(1)
    assert not a.leases.owns("x") and b.leases.acquire(1) == []
    fleet.clock.advance(MARGIN + MARGIN - 1)
    assert b.leases.acquire(1) == []
    fleet.clock.advance(1)
    assert keys(b.leases.acquire(1)) == ["x"]


def test_work_on_an_expired_lease_is_refused(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    [acquired] = a.leases.acquire(1)
    fleet.clock.advance(TIMEOUT)
    for work in (
        lambda: a.leases.save_progress("x", {"lost": True}),
        lambda: a.leases.complete("x", {}),
        lambda: a.leases.close("x", timedelta(0)),
    ):
        with pytest.raises(PartitionNotOwnedError, match="expired before it was renewed"):
            work()
    assert a.view.get("x") == acquired


def test_expired_lease_is_revived_by_renewal(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    a.leases.acquire(1)
    fleet.clock.advance(TIMEOUT + 100)
    a.leases.renew("x")
    assert a.leases.owns("x") and a.leases.fencing_token("x") < a.leases.held["x"].version
    a.leases.save_progress("x", {"ok": True})


def test_wall_clock_set_back_does_not_prolong_trust(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    a.leases.acquire(1)
    fleet.clock.set_wall_clock_back(3600)
    fleet.clock.advance(TIMEOUT)
    assert not a.leases.owns("x")


def test_owner_without_its_lease_cannot_write(fleet: Fleet) -> None:
    frozen = ManualClock()  # its own clock stands still: it believes in its lease forever
    a, b = fleet.owner("a", frozen), fleet.owner("b")
    a.create_partitions({"x": {}})
    a.leases.acquire(1)
    fleet.clock.advance(TIMEOUT + MARGIN)
    [taken] = b.leases.acquire(1)
    assert a.leases.owns("x")
    with pytest.raises(
        PartitionNotOwnedError, match="lease of a is lost; the partition is now ASSIGNED, owner b, version"
    ):
        a.leases.save_progress("x", {"zombie": True})
    assert a.leases.held == {}
    with pytest.raises(PartitionNotOwnedError, match="is not leased to a"):
        a.leases.complete("x", {})
    assert b.view.get("x") == taken


def test_new_owner_has_a_larger_fencing_token(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.create_partitions({"x": {}})
    a.leases.acquire(1)
    a.leases.renew("x")
    older = a.leases.fencing_token("x")
    a.leases.give_up("x")
    b.leases.acquire(1)
    assert b.leases.fencing_token("x") > older


def test_renewal_never_shortens_a_lease(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    [acquired] = a.leases.acquire(1)
    long = fleet.clock.now() + timedelta(hours=2)
    fleet.store.transact(update=[acquired.renewed(long)])
    assert a.leases.renew("x").ownership_timeout == long
    assert a.leases.save_progress("x", {}).ownership_timeout == long


def test_renew_due_skips_fresh_leases_and_forgets_lost_ones(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.create_partitions({"x": {}, "y": {}, "z": {}})
    acquired = {p.partition_key: p.version for p in a.leases.acquire(3)}
    fleet.clock.advance(25)
    a.leases.save_progress("x", {})
    assert b.give_up_owner("nobody") == []
    lost = a.leases.held["z"]
    fleet.store.transact(update=[lost.given_up(fleet.clock.now())])
    a.leases.renew_due()
    assert {key: p.version - acquired[key] for key, p in a.leases.held.items()} == {"x": 1, "y": 1}


@pytest.mark.parametrize(("combines_writes_cheaply", "requests"), [(True, 3), (False, 120)])
def test_leases_are_renewed_in_few_requests(fleet: Fleet, combines_writes_cheaply: bool, requests: int) -> None:
    many = [f"p{n:03}" for n in range(120)]
    a = fleet.working("a", *many)
    fleet.store.store.combines_writes_cheaply = combines_writes_cheaply  # type: ignore[misc]
    for renew in (a.leases.renew_due, lambda: a.leases.checkpoint_each({key: {"read": key} for key in many})):
        fleet.clock.advance(25)
        fleet.store.calls.clear()
        renew()
        assert fleet.store.calls.count("transact") == requests
        end = fleet.clock.now() + timedelta(seconds=TIMEOUT)
        assert {p.ownership_timeout for p in a.leases.held.values()} == {end}
    assert all(fleet.stored(key).progress == {"read": key} for key in many)


@pytest.mark.parametrize("combines_writes_cheaply", [True, False])
def test_lost_lease_does_not_stop_the_renewal_of_others(fleet: Fleet, combines_writes_cheaply: bool) -> None:
    a = fleet.working("a", "u", "v", "w", "x", "y", "z")
    fleet.store.store.combines_writes_cheaply = combines_writes_cheaply  # type: ignore[misc]
    taken = a.leases.held["w"].given_up(fleet.clock.now())
    fleet.store.transact(update=[taken])
    fleet.clock.advance(25)
    a.leases.renew_due()
    assert keys(a.leases.held.values()) == ["u", "v", "x", "y", "z"]

    fleet.store.store.delete(fleet.stored("u"))
    fleet.store.transact(update=[a.leases.held["x"].with_progress({"by": "somebody else"})])
    written = a.leases.checkpoint_each({key: {"read": key} for key in ("u", "v", "w", "x", "y")})
    assert {key: type(found) for key, found in written.items() if isinstance(found, Exception)} == {
        "u": PartitionNotFoundError,
        "w": PartitionNotOwnedError,
        "x": ProgressChangedError,
    }
    assert [fleet.stored(key).progress for key in ("v", "y")] == [{"read": "v"}, {"read": "y"}]

    fleet.store.transact(update=[a.leases.held["y"].given_up(fleet.clock.now())])
    fleet.clock.advance(1)
    ended = a.leases.give_up_each({"v": {"read": "to the end"}, "y": None, "z": None})
    assert {key: type(error) for key, error in ended.items()} == {
        "v": type(None),
        "y": PartitionNotOwnedError,
        "z": type(None),
    }
    assert fleet.stored("v").progress == {"read": "to the end"} and fleet.stored("v").owner is None
    assert list(a.leases.held) == ["x"]


def test_completing_drops_the_owner_and_keeps_the_progress(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    a.leases.acquire(1)
    a.leases.complete("x", {"checkpoint": "9"})
    stored = a.view.get("x")
    assert stored is not None
    assert (stored.status, stored.owner, stored.progress) == (PartitionStatus.COMPLETED, None, {"checkpoint": "9"})
    assert stored.priority == fleet.clock.now()
    assert a.leases.held == {}


def test_completing_creates_successors_in_the_same_transaction(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"parent": {}, "child": {"existing": True}})
    a.leases.acquire(1)
    [key] = a.leases.held
    a.leases.complete(key, {}, create={"child": {"existing": False}, "other": {"n": 1}})
    child, other = a.view.get("child"), a.view.get("other")
    assert child is not None and other is not None
    assert other.progress == {"n": 1} and other.status is PartitionStatus.UNASSIGNED


def test_completing_is_refused_after_a_change_it_depends_on(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.create_partitions({"left": {}, "right": {}})
    a.leases.acquire(1)
    b.leases.acquire(1)
    [mine], [theirs] = a.leases.held, b.leases.held
    seen = a.view.get(theirs)
    assert seen is not None
    b.leases.complete(theirs, {})
    with pytest.raises(PartitionUpdateError):
        a.leases.complete(mine, {}, unchanged=[seen])
    assert a.leases.owns(mine)
    a.leases.complete(mine, {})


def test_closed_partition_reopens_when_due_with_its_progress(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    a.leases.acquire(1)
    a.leases.save_progress("x", {"checkpoint": "3"})
    a.leases.close("x", timedelta(seconds=30))
    assert a.leases.acquire(1) == []
    fleet.clock.advance(30)
    [again] = a.leases.acquire(1)
    assert (again.progress, again.closed_count) == ({"checkpoint": "3"}, 1)


def test_given_up_partition_is_available_at_once_or_later(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.create_partitions({"x": {}})
    a.leases.acquire(1)
    a.leases.give_up("x")
    b.leases.acquire(1)
    b.leases.give_up("x", after=timedelta(seconds=10))
    assert a.leases.acquire(1) == []
    fleet.clock.advance(10)
    assert keys(a.leases.acquire(1)) == ["x"]


def test_giving_up_everything_skips_lost_leases(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}, "y": {}})
    a.leases.acquire(2)
    fleet.store.transact(update=[a.leases.held["x"].given_up(fleet.clock.now())])
    fleet.clock.advance(1)
    assert a.leases.give_up_all() == ["y"]
    assert a.leases.held == {}


def test_giving_up_another_owner_refuses_its_writes(fleet: Fleet) -> None:
    dead, other, operator = fleet.owner("dead"), fleet.owner("other"), fleet.owner("operator")
    dead.create_partitions({"x": {}, "y": {}, "z": {}})
    dead.leases.acquire(2)
    other.leases.acquire(1)
    assert sorted(operator.give_up_owner("dead")) == ["x", "y"]
    assert sorted(keys(operator.leases.acquire(5))) == ["x", "y"]
    with pytest.raises(PartitionNotOwnedError):
        dead.leases.save_progress("x", {"zombie": True})
    assert other.leases.owns("z")


def test_missing_partition_differs_from_a_taken_one(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    a.leases.acquire(1)
    fleet.store.delete(a.leases.held["x"])
    with pytest.raises(PartitionNotFoundError, match=r"'x' of 'test\|clicks\|PARTITION' is gone"):
        a.leases.save_progress("x", {})


# Handing over


def test_held_since_is_set_by_every_change_of_owner(fleet: Fleet) -> None:
    a, b, c = fleet.working("a", "x"), fleet.owner("b"), fleet.owner("c")
    assert fleet.stored().held_since == fleet.clock.now()
    since = fleet.clock.now()
    fleet.clock.advance(40)
    a.leases.renew_due()
    assert fleet.stored().held_since == since
    give(a, "x", "b")
    assert b.leases.adopt("x") is not None and fleet.stored().held_since == fleet.clock.now()
    fleet.clock.advance(5)
    assert c.leases.take_over("x", "b") is not None and fleet.stored().held_since == fleet.clock.now()
    fleet.clock.advance(5)
    c.leases.await_acknowledgment("x", timedelta(seconds=9))
    assert fleet.stored().held_since == fleet.clock.now()
    fleet.lease_passes()
    assert keys(a.leases.acquire(1)) == ["x"] and fleet.stored().held_since == fleet.clock.now()
    a.leases.give_up("x")
    assert fleet.stored().held_since is None


def test_adopting_a_lease_of_another_owner_returns_none(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x"), fleet.owner("b")
    assert b.leases.adopt("x") is b.leases.adopt("absent") is None
    assert a.leases.adopt("x") is None, "it is held already"


def test_expired_handover_is_not_trusted_until_renewed(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x"), fleet.owner("b")
    give(a, "x", "b")
    fleet.clock.advance(TIMEOUT + 1)
    assert b.leases.adopt("x") is not None and not b.leases.owns("x")
    b.leases.renew_due()
    assert b.leases.owns("x")


def test_takeover_wins_against_a_concurrent_renewal(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x"), fleet.owner("b")
    fleet.store.fault = Fault(before=lambda: a.leases.renew("x"))
    taken = b.leases.take_over("x", "a")
    assert taken is not None and taken == fleet.stored() and b.leases.fencing_token("x") == taken.version
    with pytest.raises(PartitionNotOwnedError):
        a.leases.renew("x")


def test_takeover_with_a_lost_response_is_found(fleet: Fleet) -> None:
    fleet.working("a", "x")
    b = fleet.owner("b")
    fleet.store.fault = NOT_ANSWERED
    with pytest.raises(StoreUnavailableError):
        b.leases.take_over("x", "a")
    assert not b.leases.owns("x")
    b.leases.recover()
    assert b.leases.owns("x") and b.leases.fencing_token("x") >= fleet.stored().version - 1


@pytest.mark.parametrize("owner", ["c", "b"])
def test_takeover_applies_to_the_named_owner_only(fleet: Fleet, owner: str) -> None:
    fleet.working("a", "x")
    b = fleet.owner("b")
    assert b.leases.take_over("x", owner) is None
    assert b.leases.take_over("absent", owner) is None


# Waiting for an acknowledgment


def test_awaiting_partition_has_no_working_owner(fleet: Fleet) -> None:
    a = fleet.working("a", "x", "y")
    waiting = a.leases.await_acknowledgment("x", timedelta(hours=2))
    assert waiting == fleet.stored() and waiting.is_awaiting
    assert (waiting.status, waiting.owner) == (PartitionStatus.ASSIGNED, "a:acknowledgment")
    assert not a.leases.owns("x") and list(a.leases.held) == ["y"]
    with pytest.raises(PartitionNotOwnedError, match="is not leased to a"):
        a.leases.save_progress("x", {"n": 1})


def test_awaiting_partition_is_left_alone_until_its_time(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x"), fleet.owner("b")
    waiting = a.leases.await_acknowledgment("x", timedelta(hours=2))
    assert waiting.ownership_timeout == fleet.clock.now() + timedelta(hours=2)
    fleet.clock.advance(7200 + MARGIN - 1)
    assert a.leases.acquire(1) == b.leases.acquire(1) == []
    fleet.clock.advance(1)
    assert keys(b.leases.acquire(1)) == ["x"] and not fleet.stored().is_awaiting


@pytest.mark.parametrize("act", ["renew_due", "recover", "give_up_all", "give_up_owner"])
def test_previous_owner_of_an_awaiting_partition_changes_nothing(fleet: Fleet, act: str) -> None:
    a = fleet.working("a", "x")
    waiting = a.leases.await_acknowledgment("x", timedelta(hours=2))
    fleet.clock.advance(7100)
    if act == "give_up_owner":
        a.give_up_owner("a")
    else:
        getattr(a.leases, act)()
    assert fleet.stored() == waiting and a.leases.held == {}


@pytest.mark.parametrize("act", ["renew", "save_progress", "checkpoint", "renew_due", "recover"])
def test_lease_is_never_shortened(fleet: Fleet, act: str) -> None:
    a = fleet.working("a", "x")
    end = fleet.stored().ownership_timeout
    arguments: dict[str, tuple[object, ...]] = {
        "renew": ("x",),
        "save_progress": ("x", {"n": 1}),
        "checkpoint": ("x", {"n": 1}),
    }
    fleet.clock.advance(TIMEOUT - MARGIN if act == "renew_due" else 30)  # it is due when the lease is trusted no more
    fleet.clock.set_wall_clock_back(3600)
    before = fleet.stored()
    getattr(a.leases, act)(*arguments.get(act, ()))
    assert (fleet.stored().ownership_timeout, fleet.stored().version) == (end, before.version + 1)


def test_waiting_does_not_shorten_a_lease(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    end = fleet.stored().ownership_timeout
    assert a.leases.await_acknowledgment("x", timedelta(seconds=30)).ownership_timeout == end


def test_long_lease_is_renewed_only_near_its_end(fleet: Fleet) -> None:
    a = fleet.working("a", "x", ownership_timeout=timedelta(hours=2))
    acquired = fleet.stored()
    fleet.clock.advance(2399)
    a.leases.renew_due()
    assert fleet.stored() == acquired
    fleet.clock.advance(1)
    a.leases.renew_due()
    assert fleet.stored().ownership_timeout == fleet.clock.now() + timedelta(hours=2)


def test_partition_with_changed_progress_is_not_left_to_wait(
    fleet: Fleet,
) -> None:
    a = fleet.working("a", "x")
    fleet.store.store.transact(update=[fleet.stored().with_progress({"acknowledged": "by another"})])
    with pytest.raises(ProgressChangedError, match="check again whether acknowledgments are pending"):
        a.leases.await_acknowledgment("x", timedelta(hours=2))
    assert a.leases.owns("x") and not fleet.stored().is_awaiting
    a.leases.await_acknowledgment("x", timedelta(hours=2))
    assert fleet.stored().is_awaiting and fleet.stored().progress == {"acknowledged": "by another"}


def test_expired_lease_cannot_be_made_to_wait(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    fleet.clock.advance(TIMEOUT)
    with pytest.raises(PartitionNotOwnedError, match="expired before it was renewed"):
        a.leases.await_acknowledgment("x", timedelta(hours=2))


# Closing, completing, deleting


def test_maximum_closed_count_completes_and_keeps_the_progress(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    a.leases.save_progress("x", {"n": 1})
    for number in (1, 2):
        assert a.leases.close("x", timedelta(seconds=30), max_closed_count=3).status is PartitionStatus.CLOSED
        assert fleet.stored().closed_count == number
        fleet.clock.advance(30)
        a.leases.acquire(1)
    closed = a.leases.close("x", timedelta(seconds=30), max_closed_count=3)
    assert (closed.status, closed.closed_count, closed.reopen_at) == (PartitionStatus.COMPLETED, 3, None)
    assert closed.priority == fleet.clock.now() and closed.progress == {"n": 1}
    assert a.leases.held == {} and fleet.stored() == closed


def test_partition_without_a_maximum_may_be_closed_forever(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    for _ in range(50):
        assert a.leases.close("x", timedelta(seconds=30)).status is PartitionStatus.CLOSED
        fleet.clock.advance(30)
        a.leases.acquire(1)


def test_completed_partitions_are_found_by_completion_time(fleet: Fleet) -> None:
    a = fleet.working("a", "early", "late", "open")
    fleet.clock.advance(10)
    a.leases.complete("early")  # when its lease would have ended does not matter
    fleet.clock.advance(10)
    noon = fleet.clock.now()
    a.leases.complete("late")
    assert keys(list(a.view.completed_since(noon))) == ["late"]
    assert keys(list(a.view.completed_since(noon - timedelta(seconds=10)))) == ["early", "late"]
    assert list(a.view.completed_since(noon + timedelta(microseconds=1))) == []


def test_deleted_partition_can_be_created_again(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    a.leases.save_progress("x", {"old": True})
    a.leases.delete("x")
    assert a.view.get("x") is None and a.leases.held == {}
    assert a.create_partitions({"x": {}}) == ["x"]
    assert fleet.stored().progress == {}


def test_partition_deleted_by_others_does_not_count_as_deleted(fleet: Fleet) -> None:
    a = fleet.working("a", "p", "q", metrics=(totals := MetricTotals()))
    fleet.store.delete(a.leases.held["p"])
    for key in ("p", "q"):
        a.leases.delete(key)
    assert a.leases.held == {}
    assert totals.totals[CoordinationMetric.PARTITIONS_DELETED] == 1


def test_giving_up_without_leases_needs_no_initialization(fleet: Fleet) -> None:
    coordinator = SourceCoordinator(fleet.store, "clicks", "new", clock=fleet.clock)
    assert coordinator.leases.give_up_all() == []


def test_only_the_owner_deletes_a_partition(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x"), fleet.owner("b")
    with pytest.raises(PartitionNotOwnedError, match="is not leased to b"):
        b.leases.delete("x")
    fleet.clock.advance(TIMEOUT)
    with pytest.raises(PartitionNotOwnedError, match="expired before it was renewed"):
        a.leases.delete("x")
    fleet.clock.advance(MARGIN)
    b.leases.acquire(1)
    a.leases.renew_due()
    with pytest.raises(PartitionNotOwnedError, match="is not leased to a"):
        a.leases.delete("x")
    assert b.leases.owns("x")


def test_owner_that_lost_a_partition_does_not_delete_it(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x", clock=ManualClock()), fleet.owner("b")
    fleet.lease_passes()
    [taken] = b.leases.acquire(1)
    with pytest.raises(PartitionNotOwnedError, match="the lease of a is lost; the partition is now ASSIGNED, owner b"):
        a.leases.delete("x")
    assert fleet.stored() == taken


# What time brings


def test_due_closed_partitions_reopen_and_keep_their_place(fleet: Fleet) -> None:
    a = fleet.working("a", "first", "later")
    a.leases.close("later", timedelta(seconds=20))
    a.leases.close("first", timedelta(seconds=10))
    due = a.view.next_reopening()
    assert due == fleet.clock.now() + timedelta(seconds=10) and a.reopen_due() == []
    fleet.clock.advance(15)
    a.create_partitions({"new": {}})
    assert fleet.owner("watcher").reopen_due() == ["first"]
    reopened = fleet.stored("first")
    assert (reopened.status, reopened.priority, reopened.closed_count) == (PartitionStatus.UNASSIGNED, due, 1)
    assert a.view.next_reopening() == fleet.stored("later").reopen_at
    assert keys(fleet.owner("b").leases.acquire(5)) == ["first", "new"]


def test_reopened_partition_keeps_its_failures(fleet: Fleet) -> None:
    a = fleet.working("a", "x", retry_policy=RetryPolicy(max_attempts=1))
    a.leases.fail("x", "boom")
    fleet.clock.advance(60)
    assert a.reopen_due() == ["x"]
    assert (fleet.stored().attempts, fleet.stored().last_error) == (1, "boom")


def test_parked_partition_is_reopened_by_a_user_only(fleet: Fleet) -> None:
    a = fleet.working("a", "x", retry_policy=RetryPolicy(max_attempts=1, max_closed_count=0))
    assert a.leases.fail("x", "boom").is_parked
    fleet.clock.advance(10**9)
    assert a.view.next_reopening() is None and a.reopen_due() == [] and not a.view.is_available()


def test_concurrent_reopening_reopens_each_partition_once(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x", "y"), fleet.owner("b")
    for key in ("x", "y"):
        a.leases.close(key, timedelta(seconds=10))
    fleet.clock.advance(10)
    by_b: list[str] = []
    fleet.store.fault = Fault(before=lambda: by_b.extend(b.reopen_due()))
    assert (a.reopen_due(), by_b) == ([], ["x", "y"])


def test_partition_acquired_since_is_not_reopened(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x"), fleet.owner("b")
    a.leases.close("x", timedelta(seconds=10))
    fleet.clock.advance(10)
    fleet.store.fault = Fault(before=lambda: b.leases.acquire(1))
    assert a.reopen_due() == [] and b.leases.owns("x")


def test_work_is_available_exactly_when_it_can_be_acquired(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    assert not b.view.is_available()
    a.create_partitions({"x": {}})
    assert b.view.is_available()
    a.leases.acquire(1)
    assert not b.view.is_available()
    fleet.clock.advance(TIMEOUT + MARGIN - 1)
    assert not b.view.is_available()
    fleet.clock.advance(1)
    assert b.view.is_available()
    b.leases.acquire(1)
    b.leases.close("x", timedelta(seconds=30))
    assert not a.view.is_available()
    fleet.clock.advance(30)
    assert a.view.is_available()
    a.leases.acquire(1)
    a.leases.complete("x")
    assert not b.view.is_available()


# What is delivered, whoever owns the partition


def test_decision_on_any_partition_needs_it_unchanged(fleet: Fleet) -> None:
    fleet.working("a", "x")
    b = fleet.owner("b")
    seen = b.leases.current("x")
    assert seen == fleet.stored()
    fleet.store.store.transact(update=[fleet.stored()])
    with pytest.raises(PartitionUpdateError):
        settle(b, seen, lambda p: p.with_progress({"n": 1}))
    seen = b.leases.current("x")
    assert seen is not None
    written = settle(b, seen, lambda p: p.with_progress({"n": 1}))
    assert written == fleet.stored() and (written.owner, written.progress) == ("a", {"n": 1})


def test_decision_on_a_held_partition_uses_the_lease(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    seen = a.leases.current("x")
    assert seen == a.leases.held["x"]
    assert settle(a, seen, lambda p: p.with_progress({"n": 1})) == a.leases.held["x"] == fleet.stored()
    settle(a, a.leases.held["x"], lambda p: p.completed(fleet.clock.now()))
    assert a.leases.held == {}
    with pytest.raises(PartitionNotOwnedError):
        settle(a, fleet.stored(), lambda p: p, requires_trust=True)


def test_decision_is_written_atomically_with_its_dependencies(fleet: Fleet) -> None:
    a = fleet.working("a", "x", "y")
    stale = fleet.stored("y")
    a.leases.renew("y")
    seen, new = fleet.stored(), a.view.new("z", {})
    for others in ({"update": [stale]}, {"unchanged": [stale]}):
        with pytest.raises(PartitionUpdateError):
            settle(fleet.owner("b"), seen, lambda p: p.with_progress({"n": 1}), create=[new], **others)
        with pytest.raises(PartitionUpdateError):
            settle(a, seen, lambda p: p.with_progress({"n": 1}), create=[new], **others)
    assert fleet.stored() == seen == a.leases.held["x"] and a.view.get("z") is None
