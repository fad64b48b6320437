"""A view reads a source without an owner, and sees what workers have written."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentView
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.errors import ConfigurationError, UninitializedCoordinatorError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.suspension import CACHE_SECONDS
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.coordination.fleet import MARGIN, TIMEOUT, Fleet


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def view(fleet: Fleet) -> SourceView:
    view = SourceView(fleet.store, "clicks", prefix="test", clock=fleet.clock)
    view.initialize()
    return view


def test_view_sees_the_writes_of_owners(fleet: Fleet, view: SourceView) -> None:
    a = fleet.working("a", "x")
    a.create_partitions({"y": {"n": 1}})
    a.leases.complete("x")
    assert view.get("y") == fleet.stored("y") and view.get("z") is None
    assert [p.partition_key for p in view.partitions()] == ["y", "x"]
    counts = view.count_by_status()
    assert (counts[PartitionStatus.UNASSIGNED], counts[PartitionStatus.COMPLETED]) == (1, 1)


def test_view_writes_nothing(fleet: Fleet, view: SourceView) -> None:
    fleet.working("a", "x")
    before = fleet.stored()
    fleet.lease_passes()
    assert view.is_available() and view.may_acquire(before)
    assert fleet.stored() == before


def test_lease_can_be_taken_a_margin_after_its_end(fleet: Fleet, view: SourceView) -> None:
    held = fleet.working("a", "x").leases.held["x"]
    assert view.available_at(held) == fleet.clock.now() + timedelta(seconds=TIMEOUT + MARGIN)
    fleet.clock.advance(TIMEOUT + MARGIN - 1)
    assert not view.is_available()
    fleet.clock.advance(1)
    assert view.is_available()


def test_suspended_source_has_nothing_available(fleet: Fleet, view: SourceView) -> None:
    fleet.owner("a").create_partitions({"x": {}})
    assert view.is_available()
    fleet.owner("a").view.suspensions.suspend("ann", "why not")
    fleet.clock.advance(CACHE_SECONDS)
    assert not view.is_available() and view.suspension() is not None


def test_acknowledgment_sets_are_read_without_an_owner(fleet: Fleet, view: SourceView) -> None:
    a = fleet.working("a", "x")
    begun = AcknowledgmentSets(a).begin("x", "batch", ["sink"], timeout=timedelta(minutes=5))
    sets = AcknowledgmentView(view)
    assert sets.get(begun.set_id) == begun and list(sets.pending()) == [begun]
    assert sets.next_expiry() == begun.expires_at


def test_view_reads_nothing_before_the_store_is_ready() -> None:
    view = SourceView(InMemoryStore(), "clicks")
    for call in (view.count_by_status, view.suspension, view.supplier_state, view.is_available):
        with pytest.raises(UninitializedCoordinatorError, match="source 'clicks': call initialize"):
            call()


def test_invalid_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"source 'a\|b' is not usable"):
        SourceView(InMemoryStore(), "a|b")
