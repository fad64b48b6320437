"""The counted events, and the time of their counting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.metrics import CoordinationMetric, MetricTotals
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.coordination.supplier import Page
from tests.coordination.fleet import Fleet, seconds
from tests.coordination.unreliable_store import NOT_MADE, Fault
from tests.support.lease_writes import give


def counts(fleet: Fleet, act: Callable[[SourceCoordinator], object], **options: object) -> dict[str, float]:
    """Count what an act counts, of an owner of "x" beside whom "y" is free."""
    a = fleet.working("a", "x", metrics=(totals := MetricTotals()), **options)
    a.create_partitions({"y": {}})
    before = totals.totals
    with suppress(CoordinationError):
        act(a)
    after = totals.totals
    return {
        name.removeprefix("coordination."): after[name] - before.get(name, 0)
        for name in after
        if after[name] != before.get(name, 0)
    }


ACTS: dict[str, tuple[Callable[[SourceCoordinator], object], dict[str, float]]] = {
    "create": (lambda a: a.create_partitions({"y": {}, "z": {}, "w": {}}), {"partitions_created": 2}),
    "acquire": (lambda a: a.leases.acquire(5), {"partitions_acquired": 1}),
    "acquire nothing": (
        lambda a: (a.leases.acquire(5), a.leases.acquire(5)),
        {"partitions_acquired": 1, "no_partitions_acquired": 1},
    ),
    "acquire none": (lambda a: a.leases.acquire(0), {}),
    "get next": (lambda a: a.get_next_partition(), {"partitions_acquired": 1}),
    "save": (lambda a: a.leases.save_progress("x", {}), {"progress_saved": 1}),
    "checkpoint": (lambda a: a.leases.checkpoint("x", {}), {"progress_saved": 1}),
    "renew": (lambda a: a.leases.renew("x"), {"leases_renewed": 1}),
    "renew what is not due": (lambda a: a.leases.renew_due(), {}),
    "await": (lambda a: a.leases.await_acknowledgment("x", seconds(300)), {}),
    "complete": (lambda a: a.leases.complete("x"), {"partitions_completed": 1}),
    "close": (lambda a: a.leases.close("x", seconds(1)), {"partitions_closed": 1}),
    "close for good": (lambda a: a.leases.close("x", seconds(1), max_closed_count=1), {"partitions_completed": 1}),
    "give up": (lambda a: a.leases.give_up("x"), {"partitions_given_up": 1}),
    "give up all": (
        lambda a: (a.leases.acquire(1), a.leases.give_up_all()),
        {"partitions_acquired": 1, "partitions_given_up": 2},
    ),
    "give up another's": (lambda a: a.give_up_owner("a"), {"partitions_given_up": 1}),
    "hand over": (lambda a: give(a, "x", "b"), {"handovers_given": 1}),
    "fail": (lambda a: a.leases.fail("x", "boom"), {"attempts_failed": 1, "partitions_given_up": 1}),
    "delete": (lambda a: a.leases.delete("x"), {"partitions_deleted": 1}),
    "save what is not held": (lambda a: a.leases.save_progress("y", {}), {"partition_not_owned_errors": 1}),
    "complete what is not held": (lambda a: a.leases.complete("y"), {"partition_not_owned_errors": 1}),
    "save what is not JSON": (
        lambda a: a.leases.save_progress("x", {"n": object()}),
        {"save_state_partition_update_errors": 1},
    ),
    "supply": (
        lambda a: a.supply(lambda state: [Page({"z": {}}), Page({"w": {}, "x": {}})]),
        {"partition_creation_supplier_invocations": 1, "partitions_created": 2},
    ),
    "failed supply": (lambda a: a.supply(broken), {"supplier_failures": 1}),
}


def broken(state: Mapping[str, object]) -> list[Page]:
    raise CoordinationError("no such bucket")


@pytest.mark.parametrize(("act", "expected"), ACTS.values(), ids=ACTS)
def test_each_action_is_counted(act: Callable[[SourceCoordinator], object], expected: dict[str, float]) -> None:
    assert counts(Fleet(), act) == expected


def test_handover_and_forced_takeover_count_for_the_new_owner() -> None:
    fleet = Fleet()
    b = fleet.owner("b", metrics=(totals := MetricTotals()))
    give(fleet.working("a", "x", "y"), "x", "b")
    b.leases.adopt("x")
    b.leases.take_over("y", "a")
    assert totals.totals == {"coordination.partitions_acquired": 2, "coordination.handovers_forced": 1}


def test_due_renewal_is_counted() -> None:
    fleet = Fleet()
    assert counts(fleet, lambda a: (fleet.clock.advance(30), a.leases.renew_due())) == {"leases_renewed": 1}


@pytest.mark.parametrize("act", ["renew_due", "recover"])
def test_lost_lease_is_counted(act: str) -> None:
    fleet = Fleet()

    def loses(a: SourceCoordinator) -> None:
        fleet.clock.advance(70)
        fleet.owner("b").leases.acquire(5)
        getattr(a.leases, act)()

    assert counts(fleet, loses) == {"partition_not_owned_errors": 1}


def test_missing_partition_is_counted_separately() -> None:
    fleet = Fleet()

    def vanishes(a: SourceCoordinator) -> None:
        fleet.store.store.delete(fleet.stored())
        a.leases.save_progress("x", {})

    assert counts(fleet, vanishes) == {"partition_not_found_errors": 1}


def test_resting_or_parked_partition_is_counted_as_such() -> None:
    resting = {"attempts_failed": 1, "partitions_given_up": 1, "partitions_closed": 1}
    assert counts(Fleet(), lambda a: a.leases.fail("x", "!"), retry_policy=RetryPolicy(max_attempts=1)) == resting
    parked = {"attempts_failed": 1, "partitions_given_up": 1, "partitions_parked": 1}
    policy = RetryPolicy(max_attempts=1, max_closed_count=0)
    assert counts(Fleet(), lambda a: a.leases.fail("x", "!"), retry_policy=policy) == parked


@pytest.mark.parametrize(
    ("act", "counter"),
    [
        (lambda a: a.leases.save_progress("x", {}), "save_state_partition_update_errors"),
        (lambda a: a.leases.checkpoint("x", {}), "save_state_partition_update_errors"),
        (lambda a: a.leases.complete("x"), "complete_partition_update_errors"),
        (lambda a: a.leases.close("x", seconds(1)), "close_partition_update_errors"),
        (lambda a: a.leases.close("x", seconds(1), max_closed_count=1), "complete_partition_update_errors"),
    ],
)
def test_failed_write_is_counted_by_its_purpose(act: Callable[[SourceCoordinator], object], counter: str) -> None:
    fleet = Fleet()

    def fails(a: SourceCoordinator) -> None:
        fleet.store.fault = NOT_MADE
        act(a)

    assert counts(fleet, fails) == {counter: 1}


def test_lease_given_back_during_renewal_is_not_lost() -> None:
    fleet = Fleet()
    fleet.store.store.combines_writes_cheaply = False  # each is renewed for itself

    def both(a: SourceCoordinator) -> None:
        a.leases.acquire(1)
        fleet.clock.advance(30)
        fleet.store.fault = Fault(before=lambda: a.leases.complete("y"))  # by another thread, while x is renewed
        a.leases.renew_due()

    assert counts(fleet, both) == {"partitions_acquired": 1, "partitions_completed": 1, "leases_renewed": 1}


class RecordingMetrics:
    """Keeps every count as it came."""

    def __init__(self) -> None:
        self.counted: list[tuple[str, Mapping[str, str], int]] = []

    def count(self, name: str, tags: Mapping[str, str], by: int = 1) -> None:
        self.counted.append((name, dict(tags), by))

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        raise AssertionError("a coordinator notes no values")


def test_every_count_names_its_source_and_store() -> None:
    recording = RecordingMetrics()
    Fleet().working("a", "x", "y", metrics=recording)
    tags = {"source": "clicks", "store": "in_memory"}
    assert recording.counted == [
        (CoordinationMetric.PARTITIONS_CREATED, tags, 2),
        (CoordinationMetric.PARTITIONS_ACQUIRED, tags, 2),
    ]


def test_totals_are_sorted_and_keep_the_last_gauge() -> None:
    totals = MetricTotals()
    totals.count("b", {}, 2)
    totals.count("b", {"other": "tags"})
    totals.gauge("a", 5, {})
    totals.gauge("a", 4, {})
    assert list(totals.totals.items()) == [("a", 4), ("b", 3)]
