"""Acknowledgment sets in a store: who may release them, the effects of their end, and timeouts."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.acknowledgment import (
    AcknowledgmentSet,
    AcknowledgmentState,
    ReleaseEffect,
)
from airflow_provider_coordination.coordination.acknowledgment_sets import MAX_TIMEOUT, RETENTION, AcknowledgmentSets
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentError,
    AcknowledgmentSetNotFoundError,
    ConfigurationError,
    PartitionNotOwnedError,
    PartitionUpdateError,
    ProgressChangedError,
    ProgressError,
)
from airflow_provider_coordination.coordination.metrics import MetricTotals
from airflow_provider_coordination.coordination.partition import MAX_KEY_BYTES, Partition, PartitionStatus
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.coordination.set_writes import MAX_TRIES
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.coordination.fleet import MARGIN, TIMEOUT, Fleet, seconds
from tests.coordination.unreliable_store import Fault
from tests.support.batches import HOUR, a_batch, a_shard, begin_delivery, shard_key

FAMILY, SETS = "test|clicks|PARTITION", "test|clicks|ACKNOWLEDGMENT"
ACKNOWLEDGED, REJECTED, EXPIRED, CANCELLED = (
    AcknowledgmentState.ACKNOWLEDGED,
    AcknowledgmentState.REJECTED,
    AcknowledgmentState.EXPIRED,
    AcknowledgmentState.CANCELLED,
)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


class SharedSource:
    """The owner `a` of the partition "x" and of a shard, another process, and the acknowledgment sets of both."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.totals = MetricTotals()
        self.a = fleet.working("a", "x", metrics=self.totals)
        self.mine = AcknowledgmentSets(self.a, SourceBatches())
        self.theirs = self.sets("somebody else")

    def sets(self, name: str, **options: Any) -> AcknowledgmentSets:
        """The sets as another process sees them."""
        return AcknowledgmentSets(self.fleet.owner(name, metrics=self.totals, **options), SourceBatches())

    def begin(self, *handles: str, key: str = "x", **options: Any) -> AcknowledgmentSet:
        return self.mine.begin(key, key, handles, **{"timeout": HOUR, **options})

    def shard(self, *batches: tuple[str, str]) -> list[AcknowledgmentSet]:
        """Let `a` hold a shard, and deliver these ranges of it to `sink`."""
        self.a.create_partitions({SHARD: a_shard("p").to_mapping()})
        self.a.leases.acquire(1)
        return [begin_delivery(self.a, SHARD, a_batch(start, end), ["sink"]) for start, end in batches]

    @property
    def progress(self) -> ShardProgress:
        return ShardProgress.from_mapping(self.fleet.stored(SHARD).progress)

    def count(self, name: str) -> float:
        return self.totals.totals.get(f"coordination.{name}", 0)


SHARD = shard_key("p")


@pytest.fixture
def source(fleet: Fleet) -> SharedSource:
    return SharedSource(fleet)


# Making


def test_partition_records_the_set_it_waits_for(source: SharedSource) -> None:
    made = source.begin("main", "copy", sinks=["main"], run="dag/run", batch={"records": 7})
    assert source.theirs.view.get(made.set_id) == made
    assert (made.references, made.sinks, made.run, made.batch) == (
        {"main": 1, "copy": 1}, ("main",), "dag/run", {"records": 7},
    )  # fmt: skip
    assert made.complete and made.is_pending and made.expires_at == source.fleet.clock.now() + HOUR
    assert source.fleet.stored().progress == {"acknowledgment_set": made.set_id}
    assert source.count("acknowledgment_sets_created") == 1


def test_creating_a_set_renews_the_lease(source: SharedSource) -> None:
    source.fleet.clock.advance(30)
    source.begin("main")
    assert source.fleet.stored().ownership_timeout == source.fleet.clock.now() + seconds(TIMEOUT)
    assert source.a.leases.held["x"] == source.fleet.stored()


def test_handle_named_twice_owes_two_references(source: SharedSource) -> None:
    assert source.begin("main", "copy", "main").references == {"main": 2, "copy": 1}


def test_two_deliveries_of_a_batch_have_different_sets(source: SharedSource) -> None:
    assert source.begin("main").set_id != source.begin("main").set_id


def test_progress_is_saved_with_its_set_even_if_empty(source: SharedSource) -> None:
    source.a.leases.save_progress("x", {"n": 1})
    made = source.begin("main", progress={"n": 2})
    assert source.fleet.stored().progress == {"n": 2, "acknowledgment_set": made.set_id}
    made = source.begin("main", progress={})
    assert source.fleet.stored().progress == {"acknowledgment_set": made.set_id}


def test_set_that_owes_nothing_is_acknowledged_at_creation(source: SharedSource) -> None:
    made = source.begin()
    assert made == source.mine.view.get(made.set_id) and made.state is ACKNOWLEDGED
    assert source.fleet.stored().status is PartitionStatus.COMPLETED and source.a.leases.held == {}
    assert source.count("acknowledgment_sets_acknowledged") == source.count("partitions_completed") == 1


def test_incomplete_set_that_owes_nothing_waits_for_completion(source: SharedSource) -> None:
    made = source.begin(complete=False)
    assert made.is_pending and source.fleet.stored().status is PartitionStatus.ASSIGNED
    assert source.theirs.complete(made.set_id).state is ACKNOWLEDGED
    assert source.fleet.stored().status is PartitionStatus.COMPLETED


@pytest.mark.parametrize("timeout", [timedelta(0), -seconds(1), MAX_TIMEOUT + seconds(1), timedelta.max])
def test_past_or_infinite_timeout_is_refused(source: SharedSource, timeout: timedelta) -> None:
    made = source.begin("main")
    before = source.fleet.stored()
    message = r"timeout .* s is not usable; give a positive one of at most 3650 days"
    with pytest.raises(AcknowledgmentError, match=message):
        source.begin("main", timeout=timeout)
    with pytest.raises(AcknowledgmentError, match=message):
        source.mine.extend(made.set_id, timeout)
    assert source.fleet.stored() == before and source.mine.view.get(made.set_id) == made


@pytest.mark.parametrize("handle", ["", "a\nb", "x" * 200])
def test_invalid_handle_creates_no_set(source: SharedSource, handle: str) -> None:
    with pytest.raises(AcknowledgmentError, match="is not usable"):
        source.begin("main", handle)
    assert list(source.mine.view.pending()) == [] and source.fleet.stored() == source.a.leases.held["x"]


def test_batch_with_a_too_long_name_is_refused(source: SharedSource) -> None:
    with pytest.raises(ConfigurationError, match="is not usable: it has 1033 bytes"):
        source.mine.begin("x", "b" * MAX_KEY_BYTES, ["main"], timeout=HOUR)
    assert list(source.mine.view.pending()) == []


def test_unlanded_batch_creates_no_set(source: SharedSource) -> None:
    source.shard()
    with pytest.raises(ProgressChangedError, match="batch 'unheard of' is not pending delivery; pending are: none"):
        source.mine.begin(SHARD, "unheard of", ["sink"], timeout=HOUR)
    assert list(source.mine.view.pending()) == []


def test_only_the_owner_creates_a_set(source: SharedSource) -> None:
    with pytest.raises(PartitionNotOwnedError, match="is not leased to somebody else"):
        source.theirs.begin("x", "x", ["main"], timeout=HOUR)


@pytest.mark.parametrize("noticed", [True, False])
def test_owner_without_its_lease_creates_no_set(source: SharedSource, noticed: bool) -> None:
    source.fleet.owner("operator").give_up_owner("a")
    source.fleet.owner("b").leases.acquire(1)
    if noticed:
        source.a.leases.renew_due()
        source.fleet.clock.advance(TIMEOUT)
    with pytest.raises(PartitionNotOwnedError):
        source.begin("main")
    assert list(source.mine.view.pending()) == [] and source.fleet.stored().progress == {}


def test_expired_lease_creates_no_set(source: SharedSource) -> None:
    source.fleet.clock.advance(TIMEOUT)
    with pytest.raises(PartitionNotOwnedError, match="expired before it was renewed"):
        source.begin("main")
    assert list(source.mine.view.pending()) == []


def test_stale_progress_creates_no_set(source: SharedSource) -> None:
    source.fleet.store.store.transact(update=[source.fleet.stored().with_progress({"n": 1})])
    with pytest.raises(ProgressChangedError):
        source.begin("main")
    assert list(source.mine.view.pending()) == [] and source.a.leases.owns("x")
    assert source.begin("main").is_pending


def test_unreadable_progress_creates_no_set(source: SharedSource) -> None:
    source.a.leases.give_up("x")
    source.fleet.store.store.transact(update=[replace(source.fleet.stored(), unreadable_progress="{")])
    source.a.leases.acquire(1)
    with pytest.raises(ProgressError, match="is not a JSON object and is kept unchanged"):
        source.begin("main")
    assert list(source.mine.view.pending()) == [] and source.fleet.stored().unreadable_progress == "{"


@pytest.mark.parametrize("batch", [{"n": object()}, {"n": "x" * 65536}])
def test_unstorable_batch_creates_no_set(source: SharedSource, batch: dict[str, Any]) -> None:
    with pytest.raises(ProgressError):
        source.begin("main", batch=batch)
    assert list(source.mine.view.pending()) == [] and source.fleet.stored() == source.a.leases.held["x"]


# Releasing


def test_acknowledgment_without_a_lease_completes_the_partition(source: SharedSource) -> None:
    made = source.begin("main", "check", sinks=["main"])
    owed, effect = source.mine.release(made.set_id, "main", positive=True)
    assert (effect, owed.is_pending, owed.progress) == (ReleaseEffect.RELEASED, True, 0.5)
    ended, effect = source.theirs.acknowledge(made.set_id, positive=True)
    assert (effect, ended.state) == (ReleaseEffect.RELEASED, ACKNOWLEDGED)
    assert ended == source.mine.view.get(made.set_id)
    stored = source.fleet.stored()
    assert (stored.status, stored.priority, stored.progress) == (
        PartitionStatus.COMPLETED, source.fleet.clock.now(), {},
    )  # fmt: skip
    assert source.count("acknowledgment_sets_acknowledged") == source.count("partitions_completed") == 1


def test_set_and_partition_end_in_one_transaction(source: SharedSource) -> None:
    made = source.begin("main")
    source.fleet.store.calls.clear()
    source.theirs.release(made.set_id, "main", positive=True)
    assert [c for c in source.fleet.store.calls if c != "get"] == ["transact"]


def test_owner_knows_its_own_writes(source: SharedSource) -> None:
    first, second = source.shard((TRIM_HORIZON, "5"), ("5", "9"))
    for made in (second, first):
        source.mine.release(made.set_id, "sink", positive=True)
        assert source.a.leases.held[SHARD] == source.fleet.stored(SHARD)
    assert source.progress.checkpoint == "9" and source.a.leases.owns(SHARD)


def test_owner_continues_from_acknowledgments_of_others(source: SharedSource) -> None:
    first, second = source.shard((TRIM_HORIZON, "5"), ("5", "9"))
    source.theirs.release(first.set_id, "sink", positive=True)
    source.mine.release(second.set_id, "sink", positive=True)
    assert source.progress.checkpoint == "9" and source.a.leases.held[SHARD] == source.fleet.stored(SHARD)


def test_rejection_gives_back_the_partition_with_the_reason(source: SharedSource) -> None:
    made = source.begin("main", "check")
    ended, _ = source.theirs.release(made.set_id, "check", positive=False, reason="no rows")
    stored = source.fleet.stored()
    assert (ended.state, ended.reason) == (REJECTED, "check: no rows")
    assert (stored.status, stored.attempts, stored.progress) == (PartitionStatus.UNASSIGNED, 1, {})
    assert stored.last_error == "batch x was rejected: check: no rows"
    assert source.count("acknowledgment_sets_rejected") == source.count("attempts_failed") == 1
    with pytest.raises(PartitionNotOwnedError):
        source.a.leases.save_progress("x", {})


def test_repeated_release_changes_nothing_and_is_not_late(source: SharedSource) -> None:
    made = source.begin("main", "copy")
    once, effect = source.theirs.release(made.set_id, "main", positive=True, release_id="r")
    assert (once.references, effect) == ({"main": 0, "copy": 1}, ReleaseEffect.RELEASED)
    again, effect = source.theirs.release(made.set_id, "main", positive=True, release_id="r")
    assert (again, effect) == (once, ReleaseEffect.DUPLICATE)
    source.theirs.release(made.set_id, "copy", positive=True)
    again, effect = source.theirs.release(made.set_id, "main", positive=True, release_id="r")
    assert (effect, again.state) == (ReleaseEffect.DUPLICATE, ACKNOWLEDGED)
    assert source.count("late_acknowledgments") == source.count("invalid_acknowledgments") == 0


@pytest.mark.parametrize("positive", [True, False])
def test_late_release_changes_nothing_and_is_counted(
    source: SharedSource, positive: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = source.begin("main", "copy")
    source.theirs.release(made.set_id, "main", positive=False, reason="no")
    before, partition = source.mine.view.get(made.set_id), source.fleet.stored()
    late, effect = source.theirs.release(made.set_id, "copy", positive=positive, reason="no")
    assert (late, effect) == (before, ReleaseEffect.LATE)
    assert (source.mine.view.get(made.set_id), source.fleet.stored()) == (before, partition)
    assert source.count("late_acknowledgments") == 1
    assert "release of 'copy' ignored, because the set had already ended" in caplog.text


REFUSED: dict[str, tuple[Callable[[AcknowledgmentSets, str], object], str]] = {
    "an unknown handle": (
        lambda s, i: s.release(i, "other", positive=True),
        "has no handle 'other'; its handles are 'main', 'copy', 'check'",
    ),
    "an unknown set": (
        lambda s, i: s.release("b.unknown", "main", positive=True),
        "source 'clicks' has no acknowledgment set 'b.unknown'; give the id of one of its sets",
    ),
    "an unknown set, from outside": (
        lambda s, i: s.acknowledge("b.unknown", positive=True),
        "source 'clicks' has no acknowledgment set 'b.unknown'",
    ),
    "no reason": (lambda s, i: s.release(i, "main", positive=False), "a negative release of 'main' needs a reason"),
    "a conflicting release": (
        lambda s, i: (s.release(i, "main", positive=True), s.release(i, "main", positive=False, reason="no")),
        "release id 'main' was used before, for a positive release of 'main'; give another one",
    ),
    "one release too many": (
        lambda s, i: (s.release(i, "main", positive=True), s.release(i, "main", positive=True, release_id="2")),
        "handle 'main' owes nothing more; release every reference once only",
    ),
    "the job's own handle": (
        lambda s, i: s.acknowledge(i, positive=True, handle="main"),
        "handle 'main' is released by the delivering job; the handles released from outside are 'copy', 'check'",
    ),
    "one of several handles": (
        lambda s, i: s.acknowledge(i, positive=True),
        "give a handle; the handles released from",
    ),
    "an unknown handle, from outside": (lambda s, i: s.acknowledge(i, positive=True, handle="o"), "no handle 'o'"),
    "adding to a complete set": (lambda s, i: s.add(i, "late"), "it is complete; add handles before you complete it"),
    "acquiring for nobody": (lambda s, i: s.acquire(i, "other"), "has no handle 'other'"),
    "acquiring nothing": (lambda s, i: s.acquire(i, "main", 0), "must owe at least one reference; got 0"),
    "changing an unknown set": (lambda s, i: s.extend("b.unknown", HOUR), "has no acknowledgment set 'b.unknown'"),
}


@pytest.mark.parametrize(("act", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_release_is_refused_with_one_error_and_counted(
    source: SharedSource, act: Callable[[AcknowledgmentSets, str], object], message: str
) -> None:
    made = source.begin("main", "copy", "check", sinks=["main"])
    partition = source.fleet.stored()
    with pytest.raises(AcknowledgmentError) as raised:
        act(source.theirs, made.set_id)
    assert message in str(raised.value)
    assert source.count("invalid_acknowledgments") == 1
    assert source.fleet.stored() == partition and source.mine.view.get(made.set_id).is_pending


def test_set_of_another_source_is_not_found(source: SharedSource) -> None:
    made = source.begin("main")
    orders = SourceCoordinator(source.fleet.store, "orders", "somebody", prefix="test", clock=source.fleet.clock)
    orders.initialize()
    with pytest.raises(AcknowledgmentSetNotFoundError, match=r"source 'orders' has no acknowledgment set"):
        AcknowledgmentSets(orders).release(made.set_id, "main", positive=True)


def test_set_without_external_handles_cannot_be_acknowledged_from_outside(source: SharedSource) -> None:
    made = source.begin("main", sinks=["main"])
    with pytest.raises(AcknowledgmentError, match="give a handle; the handles released from outside are none"):
        source.theirs.acknowledge(made.set_id, positive=True)


# What only the owner may say


def test_owner_only_release_is_refused_from_others(source: SharedSource) -> None:
    made = source.begin("main")
    with pytest.raises(PartitionNotOwnedError, match="is not leased to somebody else"):
        source.theirs.release(made.set_id, "main", positive=False, reason="no", owned=True)
    assert source.mine.view.get(made.set_id) == made


@pytest.mark.parametrize("handles", [["main"], ["main", "copy"]], ids=["ends", "goes on"])
@pytest.mark.parametrize("positive", [True, False])
def test_owner_that_lost_its_lease_cannot_release(source: SharedSource, positive: bool, handles: list[str]) -> None:
    made = source.begin(*handles)
    source.fleet.owner("operator").give_up_owner("a")
    source.fleet.owner("b").leases.acquire(1)
    before = source.fleet.stored()
    with pytest.raises(PartitionNotOwnedError):
        source.mine.release(made.set_id, "main", positive=positive, reason="no", owned=True)
    assert source.mine.view.get(made.set_id) == made and source.fleet.stored() == before
    assert source.a.leases.held == {}


def test_owner_losing_its_lease_during_the_release_is_refused(source: SharedSource) -> None:
    made = source.begin("main")
    source.a.leases.save_progress("x", {})
    taking = source.fleet.owner("b").leases
    source.fleet.store.fault = Fault(after=lambda: taking.take_over("x", "a"))  # once the renewal is written
    with pytest.raises(PartitionNotOwnedError):
        source.mine.release(made.set_id, "main", positive=True, owned=True)
    assert source.mine.view.get(made.set_id) == made and source.fleet.stored().owner == "b"


def test_owner_of_a_deleted_partition_cannot_release(source: SharedSource) -> None:
    made = source.begin("main")
    source.fleet.store.store.delete(source.fleet.stored())
    with pytest.raises(PartitionNotOwnedError):
        source.mine.release(made.set_id, "main", positive=True, owned=True)
    assert source.mine.view.get(made.set_id) == made


def test_owner_release_renews_the_lease_and_ends_the_set(source: SharedSource) -> None:
    made = source.begin("main", "copy")
    source.fleet.clock.advance(30)
    source.mine.release(made.set_id, "main", positive=True, owned=True)
    assert source.fleet.stored().ownership_timeout == source.fleet.clock.now() + seconds(TIMEOUT)
    ended, _ = source.mine.release(made.set_id, "copy", positive=False, reason="no", owned=True)
    assert ended.state is REJECTED and source.a.leases.held == {} and source.fleet.stored().attempts == 1


@pytest.mark.parametrize("handles", [["main"], ["main", "check"]], ids=["ends", "goes on"])
@pytest.mark.parametrize("knows", [True, False])
def test_owner_without_its_lease_cannot_report_a_delivery(
    source: SharedSource, knows: bool, handles: list[str]
) -> None:
    made = source.begin(*handles)
    source.fleet.owner("operator").give_up_owner("a")
    source.fleet.owner("b").leases.acquire(1)
    before = source.fleet.stored()
    if knows:
        source.a.leases.recover()
    with pytest.raises(PartitionNotOwnedError):
        source.mine.delivered(made, ["main"])
    assert source.mine.view.get(made.set_id) == made and source.fleet.stored() == before


def test_delivery_to_several_sinks_is_one_repeatable_write(source: SharedSource) -> None:
    made = source.begin("main", "copy", "check")
    released = source.mine.delivered(made, ["main", "copy"])
    assert (released.references, released.version) == ({"main": 0, "copy": 0, "check": 1}, made.version + 1)
    assert source.mine.delivered(made, ["main", "copy"]) == released, "also by who saw it before"
    assert source.count("late_acknowledgments") == 0


def test_changed_set_is_read_again(source: SharedSource) -> None:
    made = source.begin("main", "check")
    source.theirs.release(made.set_id, "check", positive=True)
    assert source.mine.delivered(made, ["main"]).state is ACKNOWLEDGED


def test_delivery_reported_after_the_end_is_late(source: SharedSource) -> None:
    made = source.begin("main")
    source.theirs.cancel(made.set_id, "taken back")
    with pytest.raises(PartitionNotOwnedError, match="ended as CANCELLED while its batch was delivered"):
        source.mine.delivered(made, ["main"])
    assert source.count("late_acknowledgments") == 1


# More references


def test_handles_and_references_are_added_to_an_open_set(source: SharedSource) -> None:
    made = source.begin("main", complete=False)
    source.theirs.add(made.set_id, "copy", 2)
    grown = source.theirs.acquire(made.set_id, "main")
    assert grown.references == {"main": 2, "copy": 2} and grown == source.mine.view.get(made.set_id)
    assert source.theirs.complete(made.set_id) == source.theirs.complete(made.set_id)
    assert source.mine.view.get(made.set_id).complete


@pytest.mark.parametrize(
    "act",
    [lambda s, i: s.add(i, "copy"), lambda s, i: s.acquire(i, "main"), lambda s, i: s.extend(i, HOUR)],
    ids=["add", "acquire", "extend"],
)
def test_ended_set_is_not_changed(source: SharedSource, act: Callable[..., object]) -> None:
    made = source.begin("main", complete=False)
    source.mine.cancel(made.set_id, "no more")
    before = source.mine.view.get(made.set_id)
    with pytest.raises(AcknowledgmentError, match="has ended as CANCELLED; only a pending set can be changed"):
        act(source.theirs, made.set_id)
    assert source.mine.view.get(made.set_id) == before and source.count("invalid_acknowledgments") == 1


# Contiguous prefix


def test_early_acknowledged_batch_waits_for_the_previous_one(source: SharedSource) -> None:
    first, second = source.shard((TRIM_HORIZON, "5"), ("5", "9"))
    source.theirs.release(second.set_id, "sink", positive=True)
    assert (source.progress.checkpoint, len(source.progress.landed)) == (TRIM_HORIZON, 2)
    source.theirs.release(first.set_id, "sink", positive=True)
    assert (source.progress.checkpoint, source.progress.landed) == ("9", ())


def test_rejected_batch_holds_the_checkpoint_until_redelivered(source: SharedSource) -> None:
    first, second, third = source.shard((TRIM_HORIZON, "5"), ("5", "9"), ("9", "12"))
    source.theirs.release(first.set_id, "sink", positive=False, reason="no")
    source.theirs.release(second.set_id, "sink", positive=True)
    assert source.progress.checkpoint == TRIM_HORIZON and source.fleet.stored(SHARD).attempts == 1
    b = source.sets("b")
    b.coordinator.leases.acquire(2)
    again = b.begin(SHARD, "batch-to-5", ["sink"], timeout=HOUR)
    b.release(again.set_id, "sink", positive=True)
    assert source.progress.checkpoint == "9" and source.fleet.stored(SHARD).attempts == 0
    b.release(third.set_id, "sink", positive=True)
    assert source.progress.checkpoint == "12"


def test_rejection_of_two_batches_counts_as_one_failure(source: SharedSource) -> None:
    for made in source.shard((TRIM_HORIZON, "5"), ("5", "9")):
        source.theirs.release(made.set_id, "sink", positive=False, reason="no")
    assert source.fleet.stored(SHARD).attempts == 1
    assert [b.redeliver for b in source.progress.landed] == [True, True]


def test_partition_resting_after_a_rejection_keeps_resting(fleet: Fleet) -> None:
    source = SharedSource(fleet)
    first, second = source.shard((TRIM_HORIZON, "5"), ("5", "9"))
    strict = source.sets("strict", retry_policy=RetryPolicy(max_attempts=1))
    strict.release(second.set_id, "sink", positive=False, reason="no")
    resting = source.fleet.stored(SHARD)
    strict.release(first.set_id, "sink", positive=True)
    assert source.progress.checkpoint == "5"
    after = source.fleet.stored(SHARD)
    assert (after.status, after.reopen_at, after.attempts) == (PartitionStatus.CLOSED, resting.reopen_at, 1)


def test_repeatedly_rejected_batch_parks_its_partition(fleet: Fleet) -> None:
    source = SharedSource(fleet)
    policy = RetryPolicy(max_attempts=2, max_closed_count=1)
    b = source.sets("b", retry_policy=policy)
    source.a.leases.give_up("x")
    for attempt in range(1, 5):
        fleet.clock.advance(60)
        [_] = b.coordinator.leases.acquire(1)
        made = b.begin("x", "x", ["check"], timeout=HOUR)
        b.acknowledge(made.set_id, positive=False, reason="poison")
        assert fleet.stored().attempts == attempt
    parked = fleet.stored()
    assert parked.is_parked and parked.last_error == "batch x was rejected: check: poison"
    assert source.count("partitions_parked") == 1
    fleet.clock.advance(10**9)
    assert b.coordinator.leases.acquire(1) == []


# Sets that nobody waits for any more


def reset(source: SharedSource) -> None:
    Administration(source.fleet.store, FAMILY, source.fleet.clock).reset(SHARD, a_shard("p").to_mapping())


def delete(source: SharedSource) -> None:
    Administration(source.fleet.store, FAMILY, source.fleet.clock).delete(SHARD)


def redeliver(source: SharedSource) -> None:
    source.mine.begin(SHARD, "batch-to-5", ["sink"], timeout=HOUR)


def reset_and_read_again(source: SharedSource) -> None:
    reset(source)
    b = source.sets("b")
    b.coordinator.leases.acquire(2)
    begin_delivery(b.coordinator, SHARD, a_batch(TRIM_HORIZON, "5"), ["sink"])


ORPHANING = [reset, delete, redeliver, reset_and_read_again]
ENDING: dict[str, Callable[[AcknowledgmentSets, str], object]] = {
    "acknowledged": lambda s, i: s.release(i, "sink", positive=True),
    "rejected": lambda s, i: s.release(i, "sink", positive=False, reason="no"),
    "cancelled": lambda s, i: s.cancel(i, "no more"),
    "expired": lambda s, i: (s.coordinator.clock.advance(3600), s.expire_overdue()),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("by", ["the former owner", "somebody else"])
@pytest.mark.parametrize("end", ENDING)
@pytest.mark.parametrize("orphaned", ORPHANING)
def test_orphaned_set_ends_and_changes_nothing_else(
    source: SharedSource, orphaned: Callable[[SharedSource], None], end: str, by: str
) -> None:
    [made] = source.shard((TRIM_HORIZON, "5"))
    orphaned(source)
    before = source.fleet.store.store.get(FAMILY, SHARD)
    ENDING[end](source.mine if by == "the former owner" else source.theirs, made.set_id)
    assert str(source.mine.view.get(made.set_id).state) == end.upper()
    after = source.fleet.store.store.get(FAMILY, SHARD)
    if end == "expired" and orphaned in (redeliver, reset_and_read_again):
        assert after is not None and after.attempts == 1  # the newer set is overdue too
    elif by == "the former owner" and after is not None and before is not None:
        assert replace(after, version=before.version) == before  # it may look after its lease
    else:
        assert after == before


def test_unreadable_progress_is_logged_and_left_unchanged(
    source: SharedSource, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = source.shard((TRIM_HORIZON, "5"), ("5", "9"))
    source.a.leases.give_up(SHARD)
    damaged = {**source.fleet.stored(SHARD).progress, "checkpoint": "LATEST"}
    source.fleet.store.store.transact(update=[source.fleet.stored(SHARD).with_progress(damaged)])
    stored = source.fleet.stored(SHARD)
    assert source.theirs.release(first.set_id, "sink", positive=True)[0].state is ACKNOWLEDGED
    source.fleet.clock.advance(3600)
    assert [s.set_id for s in source.theirs.expire_overdue()] == [second.set_id]
    assert source.fleet.stored(SHARD) == stored
    assert f"partition {SHARD}: stored progress" in caplog.text


# An owner that is behind


def test_stale_owner_does_not_treat_another_set_as_orphaned(source: SharedSource) -> None:
    source.shard()
    source.fleet.owner("operator").give_up_owner("a")
    b = source.sets("b")
    b.coordinator.leases.acquire(2)
    made = begin_delivery(b.coordinator, SHARD, a_batch(TRIM_HORIZON, "5"), ["sink"])
    assert SHARD in source.a.leases.held  # it has not noticed
    source.fleet.clock.advance(3600)
    assert [s.set_id for s in source.mine.expire_overdue()] == [made.set_id]
    stored = source.fleet.stored(SHARD)
    assert (stored.status, stored.attempts) == (PartitionStatus.UNASSIGNED, 1)
    assert source.progress.landed[0].acknowledgment_set is None


# Time


def test_overdue_set_expires_and_gives_back_its_partition(source: SharedSource) -> None:
    made = source.begin("main", timeout=seconds(40))
    source.fleet.clock.advance(39)
    assert source.theirs.expire_overdue() == [] and source.mine.view.get(made.set_id).is_pending
    source.fleet.clock.advance(1)
    [ended] = source.theirs.expire_overdue()
    assert ended == source.mine.view.get(made.set_id)
    assert (ended.state, ended.ended_at) == (EXPIRED, source.fleet.clock.now())
    assert ended.reason == "not acknowledged by 2026-01-01T00:00:40Z"
    stored = source.fleet.stored()
    assert (stored.status, stored.attempts) == (PartitionStatus.UNASSIGNED, 1)
    assert stored.last_error == "batch x expired: not acknowledged by 2026-01-01T00:00:40Z"
    assert source.count("acknowledgment_sets_expired") == source.count("attempts_failed") == 1
    assert source.theirs.expire_overdue() == []


@pytest.mark.parametrize("positive", [True, False])
def test_overdue_release_is_late_and_expires_the_set(source: SharedSource, positive: bool) -> None:
    made = source.begin("main", timeout=seconds(40))
    source.fleet.clock.advance(40)
    ended, effect = source.theirs.release(made.set_id, "main", positive=positive, reason="no")
    assert (ended.state, effect, ended.releases) == (EXPIRED, ReleaseEffect.LATE, {})
    assert source.fleet.stored().attempts == 1 and source.count("late_acknowledgments") == 1


@pytest.mark.parametrize(
    "act",
    [lambda s, i: s.extend(i, HOUR), lambda s, i: s.acquire(i, "main"), lambda s, i: s.add(i, "copy")],
    ids=["extend", "acquire", "add"],
)
def test_overdue_set_is_not_revived(source: SharedSource, act: Callable[..., object]) -> None:
    made = source.begin("main", timeout=seconds(40), complete=False)
    source.fleet.clock.advance(40)
    with pytest.raises(AcknowledgmentError, match="has ended as EXPIRED"):
        act(source.theirs, made.set_id)
    assert source.fleet.stored().attempts == 1


def test_completing_or_cancelling_an_overdue_set_expires_it(source: SharedSource) -> None:
    made = source.begin(complete=False, timeout=seconds(40))
    source.fleet.clock.advance(40)
    assert source.theirs.complete(made.set_id).state is EXPIRED
    source.a.leases.acquire(1)
    made = source.begin("main", timeout=seconds(40))
    source.fleet.clock.advance(40)
    assert source.theirs.cancel(made.set_id, "no more").state is EXPIRED


def test_positive_release_restarts_the_timeout(source: SharedSource) -> None:
    made = source.begin("main", "copy", timeout=seconds(40))
    source.fleet.clock.advance(39)
    source.theirs.release(made.set_id, "main", positive=True)
    source.fleet.clock.advance(39)
    assert source.theirs.expire_overdue() == []
    source.fleet.clock.advance(1)
    assert len(source.theirs.expire_overdue()) == 1


def test_extending_never_shortens(source: SharedSource) -> None:
    made = source.begin("main")
    assert source.theirs.extend(made.set_id, seconds(30)) == made == source.mine.view.get(made.set_id)
    assert source.theirs.extend(made.set_id, 2 * HOUR).expires_at == made.created_at + 2 * HOUR


@pytest.mark.parametrize("by", ["extension", "release"])
def test_awaiting_lease_lasts_as_long_as_its_set(source: SharedSource, by: str) -> None:
    made = source.begin("main", "check")
    source.a.leases.await_acknowledgment("x", HOUR)
    source.fleet.clock.advance(1800)
    source.fleet.store.calls.clear()
    if by == "extension":
        longer = source.theirs.extend(made.set_id, 2 * HOUR)
    else:
        longer, _ = source.theirs.release(made.set_id, "main", positive=True)
    stored = source.fleet.stored()
    assert stored.is_awaiting and stored.ownership_timeout == longer.expires_at > made.expires_at
    assert [c for c in source.fleet.store.calls if c != "get"] == ["transact"]


def test_extension_leaves_the_lease_of_a_working_owner_alone(source: SharedSource) -> None:
    made = source.begin("main")
    before = source.fleet.stored()
    source.theirs.extend(made.set_id, 2 * HOUR)
    assert source.fleet.stored() == before


def test_several_watchers_end_an_overdue_set_once(source: SharedSource) -> None:
    first, second = source.shard((TRIM_HORIZON, "5"), ("5", "9"))
    source.fleet.clock.advance(3600)
    ended: list[list[AcknowledgmentSet]] = []
    watchers = [source.sets(f"watcher-{n}") for n in range(2)]
    # The second watcher ends all of them after the first one has listed them.
    source.fleet.store.fault = Fault(before=lambda: ended.append(watchers[1].expire_overdue()))
    ended.append(watchers[0].expire_overdue())
    assert [[s.set_id for s in found] for found in ended] == [[first.set_id, second.set_id], []]
    assert source.fleet.stored(SHARD).attempts == 1 and source.count("acknowledgment_sets_expired") == 2


def test_set_released_after_listing_is_not_reported_as_expired(source: SharedSource) -> None:
    made = source.begin("main", timeout=seconds(40))
    source.fleet.clock.advance(30)
    ahead, behind = source.sets("ahead"), source.theirs
    listed = ahead.view.pending

    def pending(*, run: str | None = None) -> list[AcknowledgmentSet]:
        found = list(listed(run=run))
        behind.release(made.set_id, "main", positive=True)
        source.fleet.clock.advance(10)
        return found

    ahead.view.pending = pending  # type: ignore[method-assign, assignment]
    assert ahead.expire_overdue() == [] and source.mine.view.get(made.set_id).state is ACKNOWLEDGED


def test_set_deleted_after_listing_is_skipped(source: SharedSource) -> None:
    gone = source.begin("main", timeout=seconds(40))
    [other] = source.shard((TRIM_HORIZON, "5"))
    source.fleet.clock.advance(3600)
    listed = source.theirs.view.pending

    def pending(*, run: str | None = None) -> list[AcknowledgmentSet]:
        found = list(listed(run=run))
        item = source.fleet.store.store.get(SETS, gone.set_id)
        assert item is not None
        source.fleet.store.store.delete(item)
        return found

    source.theirs.view.pending = pending  # type: ignore[method-assign, assignment]
    assert [s.set_id for s in source.theirs.expire_overdue()] == [other.set_id]


# Cancelling


def test_cancelled_set_counts_no_failure_and_redelivers_its_batch(source: SharedSource) -> None:
    [made] = source.shard((TRIM_HORIZON, "5"))
    for _ in range(2):
        ended = source.mine.cancel(made.set_id, "the job stops")
        assert (ended.state, ended.reason) == (CANCELLED, "the job stops")
    assert source.a.leases.owns(SHARD) and source.fleet.stored(SHARD).attempts == 0
    assert source.progress.landed[0].redeliver and source.progress.landed[0].acknowledgment_set is None
    assert source.count("acknowledgment_sets_cancelled") == 1


def test_cancelling_an_ended_set_changes_nothing(source: SharedSource) -> None:
    made = source.begin("main")
    source.mine.release(made.set_id, "main", positive=True)
    assert source.mine.cancel(made.set_id, "too late").state is ACKNOWLEDGED


# What a person saw, and who it is


ORDERS: dict[str, Callable[..., Any]] = {
    "acknowledge": lambda sets, set_id, **who: sets.acknowledge(set_id, positive=True, handle="copy", **who)[0],
    "reject": lambda sets, set_id, **who: sets.acknowledge(
        set_id, positive=False, handle="copy", reason="it is not there", **who
    )[0],
    "release": lambda sets, set_id, **who: sets.release(set_id, "copy", positive=True, **who)[0],
    "cancel": lambda sets, set_id, **who: sets.cancel(set_id, "staging was emptied", **who),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_action_changes_the_given_version(source: SharedSource, order: Callable[..., Any]) -> None:
    made = source.begin("main", "copy", sinks=["main"])
    assert order(source.theirs, made.set_id, version=made.version).version == made.version + 1


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_set_changed_since_is_left_alone(source: SharedSource, order: Callable[..., Any]) -> None:
    made = source.begin("main", "copy", sinks=["main"])
    source.mine.release(made.set_id, "main", positive=True)
    before = source.theirs.view.get(made.set_id)
    with pytest.raises(
        AcknowledgmentError,
        match=rf"{made.set_id}' has changed since it was read: version {made.version} was read, "
        rf"and it is now PENDING, version {before.version}; check it again",
    ):
        order(source.theirs, made.set_id, version=made.version)
    assert source.theirs.view.get(made.set_id) == before
    assert source.count("invalid_acknowledgments") == 1


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_action_on_an_ended_set_names_its_state(source: SharedSource, order: Callable[..., Any]) -> None:
    made = source.begin("copy")
    source.mine.cancel(made.set_id, "no more")
    with pytest.raises(AcknowledgmentError, match=r"and it is now CANCELLED, version \d+"):
        order(source.theirs, made.set_id, version=made.version)


def test_release_by_another_is_reported_as_a_change(source: SharedSource) -> None:
    made = source.begin("main", "copy", sinks=["main"])
    source.theirs.acknowledge(made.set_id, positive=True, release_id="by bob")
    with pytest.raises(AcknowledgmentError, match="has changed since it was read"):
        source.theirs.acknowledge(made.set_id, positive=True, release_id="by ann", version=made.version)


def test_repeated_release_with_its_version_is_no_error(source: SharedSource) -> None:
    made = source.begin("main", "copy", sinks=["main"])
    for effect in (ReleaseEffect.RELEASED, ReleaseEffect.DUPLICATE):
        assert source.theirs.acknowledge(made.set_id, positive=True, version=made.version)[1] is effect


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_action_with_a_lost_response_is_recognized(source: SharedSource, order: Callable[..., Any]) -> None:
    made = source.begin("main", "copy", sinks=["main"])
    transact = source.fleet.store.store.transact

    def twice(**changes: Any) -> Any:
        transact(**changes)
        return transact(**changes)

    source.fleet.store.store.transact = twice  # type: ignore[method-assign, assignment]
    assert order(source.theirs, made.set_id, version=made.version).version == made.version + 1


@pytest.mark.parametrize(
    ("order", "logged"),
    [
        ("acknowledge", "positive release of 'copy' by hand: .* state=PENDING by=ann reason=None"),
        ("reject", "negative release of 'copy' by hand: .* state=REJECTED by=ann reason='it is not there'"),
        ("cancel", "cancel by hand: .* state=CANCELLED by=ann reason='staging was emptied'"),
    ],
)
def test_user_of_an_action_is_logged(
    source: SharedSource, order: str, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = source.begin("main", "copy", sinks=["main"])
    with caplog.at_level(logging.INFO):
        ORDERS[order](source.theirs, made.set_id)
        assert not any("by hand" in message for message in caplog.messages)
        made = source.begin("main", "copy", sinks=["main"]) if order == "acknowledge" else made
        ORDERS[order](source.theirs, made.set_id, by="ann")
    assert re.search(f"acknowledgment set, {logged}", caplog.text)


def test_history_records_who_rejected_the_batch(source: SharedSource) -> None:
    made = source.begin("copy")
    written = []
    transact = source.fleet.store.store.transact

    def noting(*, update: Any = (), **changes: Any) -> Any:
        written.extend(partition.change for partition in update if partition.change is not None)
        return transact(update=update, **changes)

    source.fleet.store.store.transact = noting  # type: ignore[method-assign, assignment]
    source.theirs.acknowledge(made.set_id, positive=False, reason="it is not there", by="ann")
    [change] = written
    assert change.by == "ann" and "it is not there" in change.reason


# Waiting partitions


def waiting_shard(source: SharedSource) -> list[AcknowledgmentSet]:
    made = source.shard((TRIM_HORIZON, "5"), ("5", "9"))
    source.a.leases.await_acknowledgment(SHARD, 2 * HOUR)
    return made


@pytest.mark.parametrize("last", ["acknowledged", "cancelled"])
def test_end_of_the_last_set_gives_back_the_waiting_partition(source: SharedSource, last: str) -> None:
    first, second = waiting_shard(source)
    source.theirs.release(first.set_id, "sink", positive=True)
    assert source.fleet.stored(SHARD).is_awaiting and source.progress.checkpoint == "5"
    ENDING[last](source.theirs, second.set_id)
    stored = source.fleet.stored(SHARD)
    assert (stored.status, stored.attempts) == (PartitionStatus.UNASSIGNED, 0)
    assert stored.priority == source.fleet.clock.now()


@pytest.mark.parametrize("end", ["rejected", "expired"])
def test_first_failure_gives_back_the_waiting_partition(source: SharedSource, end: str) -> None:
    first, _ = waiting_shard(source)
    ENDING[end](source.theirs, first.set_id)
    assert source.fleet.stored(SHARD).status is PartitionStatus.UNASSIGNED
    assert source.fleet.stored(SHARD).attempts == 1


def test_waiting_partition_is_completed_without_an_owner(source: SharedSource) -> None:
    made = source.begin("check")
    source.a.leases.await_acknowledgment("x", 2 * HOUR)
    source.theirs.acknowledge(made.set_id, positive=True)
    assert source.fleet.stored().status is PartitionStatus.COMPLETED


def test_waiting_partitions_of_abandoned_sets_are_given_back(source: SharedSource) -> None:
    first, _ = waiting_shard(source)
    x = source.begin("check", run="dag/run")
    source.a.leases.await_acknowledgment("x", HOUR)
    pending = list(source.theirs.view.pending())
    assert source.theirs.give_back(["b.unknown"]) == []
    assert source.theirs.give_back([first.set_id]) == [SHARD]
    assert source.theirs.give_back(None, run="dag/other") == []
    assert source.theirs.give_back(None, run="dag/run") == ["x"] and source.theirs.give_back(None) == []
    assert list(source.theirs.view.pending()) == pending and source.count("partitions_given_up") == 2
    for key in ("x", SHARD):
        assert (source.fleet.stored(key).status, source.fleet.stored(key).attempts) == (PartitionStatus.UNASSIGNED, 0)
    source.theirs.release(x.set_id, "check", positive=True)
    assert source.fleet.stored().status is PartitionStatus.COMPLETED


def test_partition_in_work_is_not_given_back(source: SharedSource) -> None:
    source.begin("check")
    assert source.theirs.give_back(None) == [] and source.a.leases.owns("x")


def test_next_owner_takes_over_a_pending_set(source: SharedSource) -> None:
    first, second = waiting_shard(source)
    source.fleet.clock.advance(1000)
    Administration(source.fleet.store, FAMILY, source.fleet.clock).release(SHARD)
    b = source.sets("b")
    b.coordinator.leases.acquire(2)
    b.release(first.set_id, "sink", positive=True, owned=True)
    b.release(second.set_id, "sink", positive=True, owned=True)
    assert source.progress.checkpoint == "9" and b.coordinator.leases.held[SHARD] == source.fleet.stored(SHARD)


def test_partition_of_a_dead_owner_stays_for_the_next(source: SharedSource) -> None:
    [made] = source.shard((TRIM_HORIZON, "5"))
    source.fleet.clock.advance(TIMEOUT + MARGIN)
    before = source.fleet.stored(SHARD)
    source.theirs.release(made.set_id, "sink", positive=True)
    after = source.fleet.stored(SHARD)
    assert (after.owner, after.ownership_timeout) == (before.owner, before.ownership_timeout)
    assert SHARD in [p.partition_key for p in source.fleet.owner("b").leases.acquire(2)]


# Contention


class CompetingWriter:
    """Changes a partition before each of the next writes."""

    def __init__(self, source: SharedSource, key: str, times: int) -> None:
        self.source, self.key, self.times = source, key, times
        self()

    def __call__(self) -> None:
        self.times -= 1
        store = self.source.fleet.store
        if self.times >= 0:
            store.fault = Fault(before=self)
            store.store.transact(update=[self.source.fleet.stored(self.key)])


def test_decision_is_repeated_after_a_change(source: SharedSource) -> None:
    made = source.begin("main")
    CompetingWriter(source, "x", MAX_TRIES - 1)
    assert source.theirs.release(made.set_id, "main", positive=True)[0].state is ACKNOWLEDGED
    assert source.fleet.stored().status is PartitionStatus.COMPLETED


def test_constantly_changing_partition_is_one_clear_error(source: SharedSource) -> None:
    made = source.begin("main")
    CompetingWriter(source, "x", MAX_TRIES + 5)
    with pytest.raises(PartitionUpdateError, match="the set or its partition keeps changing"):
        source.theirs.release(made.set_id, "main", positive=True)
    assert source.mine.view.get(made.set_id) == made


def test_failure_to_end_one_set_does_not_stop_others(source: SharedSource, caplog: pytest.LogCaptureFixture) -> None:
    made = source.begin("main", timeout=seconds(40))
    [other] = source.shard((TRIM_HORIZON, "5"))
    source.fleet.clock.advance(3600)
    CompetingWriter(source, "x", MAX_TRIES + 1)
    assert [s.set_id for s in source.theirs.expire_overdue()] == [other.set_id]
    assert "cannot be ended" in caplog.text
    assert [s.set_id for s in source.theirs.expire_overdue()] == [made.set_id]


# Finding


def test_pending_sets_are_found_by_expiry_and_run(source: SharedSource) -> None:
    source.a.create_partitions({key: {} for key in ("k1", "k2", "k3")})
    source.a.leases.acquire(3)
    late = source.begin("main", key="k1", timeout=3 * HOUR, run="dag/1")
    early = source.begin("main", key="k2", timeout=HOUR, run="dag/2")
    middle = source.begin("main", key="k3", timeout=2 * HOUR, run="dag/1")
    assert list(source.theirs.view.pending()) == [early, middle, late]
    assert list(source.theirs.view.pending(run="dag/1")) == [middle, late]
    assert source.theirs.view.next_expiry() == early.expires_at
    source.theirs.release(early.set_id, "main", positive=True)
    assert source.theirs.view.next_expiry() == middle.expires_at


def test_ended_sets_are_found_by_end_and_run(source: SharedSource) -> None:
    source.a.create_partitions({"k1": {}, "k2": {}})
    source.a.leases.acquire(2)
    made = [source.begin("main", key=key, run=f"dag/{key}") for key in ("k1", "k2")]
    start = source.fleet.clock.now()
    for number, each in enumerate(made):
        source.fleet.clock.advance(number + 1)
        source.theirs.release(each.set_id, "main", positive=True)
    found = [s.batch_id for s in source.theirs.view.ended_since(start)]
    assert found == ["k1", "k2"]
    assert [s.batch_id for s in source.theirs.view.ended_since(start + seconds(2))] == ["k2"]
    assert [s.batch_id for s in source.theirs.view.ended_since(start, run="dag/k1")] == ["k1"]
    assert source.theirs.view.next_expiry() is None and list(source.theirs.view.pending()) == []


def test_unreadable_set_is_logged_and_skipped(source: SharedSource, caplog: pytest.LogCaptureFixture) -> None:
    made = source.begin("main", timeout=seconds(40))
    broken = Partition(
        source_identifier=SETS,
        partition_key="broken",
        status=PartitionStatus.UNASSIGNED,
        priority=source.fleet.clock.now() - HOUR,
        progress={"state": "half"},
    )
    source.fleet.store.store.create([broken, replace(broken, partition_key="b2", status=PartitionStatus.COMPLETED)])
    assert list(source.theirs.view.pending()) == [made]
    assert list(source.theirs.view.ended_since(datetime(2000, 1, 1, tzinfo=UTC))) == []
    assert source.theirs.view.next_expiry() == made.expires_at  # a watcher would never sleep, were it the broken one's
    source.fleet.clock.advance(40)
    assert [s.set_id for s in source.theirs.expire_overdue()] == [made.set_id]
    assert source.theirs.view.next_expiry() is None
    assert "acknowledgment set 'broken': the stored item cannot be read" in caplog.text
    with pytest.raises(ProgressError, match="correct the item in the store, or delete it"):
        source.theirs.release("broken", "main", positive=True)


# Purging


def test_ended_sets_are_kept_for_a_day(
    source: SharedSource,
) -> None:
    made = source.begin("main", "copy")
    source.theirs.release(made.set_id, "main", positive=False, reason="no")
    source.fleet.clock.advance(RETENTION.total_seconds() - 1)
    assert source.theirs.purge() == 0
    assert source.theirs.release(made.set_id, "copy", positive=True)[1] is ReleaseEffect.LATE
    source.fleet.clock.advance(1)
    assert source.theirs.purge() == 1
    with pytest.raises(AcknowledgmentSetNotFoundError, match="Ended sets are kept for 24 hours"):
        source.theirs.release(made.set_id, "copy", positive=True)


def test_purge_keeps_pending_sets_and_respects_its_limit(source: SharedSource) -> None:
    source.shard((TRIM_HORIZON, "5"), ("5", "9"), ("9", "12"))
    pending = source.begin("main", timeout=timedelta(days=30))
    for made in list(source.mine.view.pending()):
        if made != pending:
            source.mine.cancel(made.set_id, "no more")
    source.fleet.clock.advance(3 * 86400)
    assert [source.theirs.purge(limit=2) for _ in range(3)] == [2, 1, 0]
    assert list(source.theirs.view.pending()) == [pending]


def test_concurrent_purges_do_not_interfere(source: SharedSource) -> None:
    for made in source.shard((TRIM_HORIZON, "5"), ("5", "9")):
        source.mine.cancel(made.set_id, "no more")
    source.fleet.clock.advance(86400)
    purged: list[int] = []
    source.fleet.store.fault = Fault(before=lambda: purged.append(source.theirs.purge()))
    assert [source.mine.purge(), *purged] == [0, 2]


# What is logged


@pytest.mark.parametrize(
    ("end", "level"),
    [
        ("acknowledged", logging.INFO),
        ("rejected", logging.ERROR),
        ("cancelled", logging.INFO),
        ("expired", logging.ERROR),
    ],
)
def test_log_level_matches_the_end_of_the_set(
    source: SharedSource, end: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    [made] = source.shard((TRIM_HORIZON, "5"))
    ENDING[end](source.theirs, made.set_id)
    [record] = [r for r in caplog.records if r.message.startswith(f"acknowledgment set {end}")]
    assert record.levelno == level and made.set_id in record.message and SHARD in record.message
