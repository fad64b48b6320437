"""A write of an acknowledgment set succeeded and its response was lost: nothing ends twice, and no end is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState, ReleaseEffect
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.errors import (
    PartitionNotOwnedError,
    PartitionUpdateError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.coordination.fleet import Fleet
from tests.coordination.unreliable_store import NOT_ANSWERED, NOT_MADE, Fault
from tests.support.batches import HOUR, a_batch, a_child, a_shard, begin_delivery, end_shard, shard_key

X = shard_key("x")


class SharedSource:
    """The owner `a` of a shard, and another process."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.a = self.fleet.owner("a")
        self.a.create_partitions({X: a_shard("x").to_mapping()})
        self.a.leases.acquire(1)
        self.mine = AcknowledgmentSets(self.a, SourceBatches())
        self.theirs = AcknowledgmentSets(self.fleet.owner("somebody else"), SourceBatches())

    def begin(self, *handles: str) -> str:
        return begin_delivery(self.a, X, a_batch(TRIM_HORIZON, "5"), handles).set_id

    def unanswered(self, call: Callable[[], object], fault: Fault = NOT_ANSWERED) -> None:
        self.fleet.store.fault = fault
        with pytest.raises(StoreUnavailableError, match="connection reset"):
            call()

    @property
    def progress(self) -> ShardProgress:
        return ShardProgress.from_mapping(self.fleet.stored(X).progress)


@pytest.fixture
def source() -> SharedSource:
    return SharedSource()


ENDS: dict[str, tuple[Callable[[AcknowledgmentSets, str], object], AcknowledgmentState]] = {
    "acknowledged": (lambda s, i: s.release(i, "sink", positive=True), AcknowledgmentState.ACKNOWLEDGED),
    "rejected": (lambda s, i: s.release(i, "sink", positive=False, reason="no"), AcknowledgmentState.REJECTED),
    "cancelled": (lambda s, i: s.cancel(i, "no more"), AcknowledgmentState.CANCELLED),
}


@pytest.mark.parametrize("fault", [NOT_ANSWERED, NOT_MADE], ids=["made", "not made"])
@pytest.mark.parametrize("by", ["mine", "theirs"])
@pytest.mark.parametrize(("end", "state"), ENDS.values(), ids=ENDS)
def test_repeated_end_after_a_lost_response_happens_once(
    source: SharedSource,
    end: Callable[[AcknowledgmentSets, str], object],
    state: AcknowledgmentState,
    by: str,
    fault: Fault,
) -> None:
    set_id = source.begin("sink")
    sets: AcknowledgmentSets = getattr(source, by)
    source.unanswered(lambda: end(sets, set_id), fault)
    end(sets, set_id)
    ended, partition = source.mine.view.get(set_id), source.fleet.stored(X)
    assert ended.state is state
    assert partition.attempts == (state is AcknowledgmentState.REJECTED)
    assert source.progress.checkpoint == ("5" if state is AcknowledgmentState.ACKNOWLEDGED else TRIM_HORIZON)
    end(sets, set_id)
    assert (source.mine.view.get(set_id), source.fleet.stored(X)) == (ended, partition)


def test_repeated_release_after_a_lost_response_counts_once(source: SharedSource) -> None:
    set_id = source.begin("sink", "check")
    source.unanswered(lambda: source.theirs.release(set_id, "sink", positive=True))
    again, effect = source.theirs.release(set_id, "sink", positive=True)
    assert (again.owed, effect) == (1, ReleaseEffect.DUPLICATE)


@pytest.mark.parametrize("fault", [NOT_ANSWERED, NOT_MADE], ids=["made", "not made"])
def test_unanswered_creation_is_found_in_the_progress_or_absent(source: SharedSource, fault: Fault) -> None:
    source.unanswered(lambda: source.begin("sink"), fault)
    source.a.leases.recover()
    pending = [made.set_id for made in source.mine.view.pending()]
    assert pending == [batch.acknowledgment_set for batch in source.progress.landed]
    assert len(pending) == (fault is NOT_ANSWERED)
    for set_id in pending:
        source.mine.release(set_id, "sink", positive=True, owned=True)
        assert source.progress.checkpoint == "5" and source.a.leases.held[X] == source.fleet.stored(X)


@pytest.mark.parametrize("by", ["mine", "theirs"])
def test_unanswered_set_ends_with_its_partition_before_recovery(source: SharedSource, by: str) -> None:
    source.unanswered(lambda: source.begin("sink"))
    source.fleet.clock.advance(3600)
    sets: AcknowledgmentSets = getattr(source, by)
    [ended] = sets.expire_overdue()
    assert ended.state is AcknowledgmentState.EXPIRED
    assert source.progress.landed[0].acknowledgment_set is None
    assert source.fleet.stored(X).attempts == 1


def test_unanswered_empty_set_has_moved_the_checkpoint(source: SharedSource) -> None:
    source.unanswered(lambda: source.begin())
    source.a.leases.recover()
    assert source.progress.checkpoint == "5" and source.a.leases.leased(X).progress == source.fleet.stored(X).progress


def test_expiry_with_a_lost_response_happens_once(source: SharedSource) -> None:
    set_id = source.begin("sink")
    source.fleet.clock.advance(3600)
    source.unanswered(source.theirs.expire_overdue)
    assert source.theirs.expire_overdue() == []
    assert source.mine.view.get(set_id).state is AcknowledgmentState.EXPIRED and source.fleet.stored(X).attempts == 1


def test_extension_with_a_lost_response_holds(source: SharedSource) -> None:
    set_id = source.begin("sink")
    source.a.leases.await_acknowledgment(X, HOUR)
    source.unanswered(lambda: source.theirs.extend(set_id, 2 * HOUR))
    assert source.theirs.extend(set_id, 2 * HOUR).expires_at == source.fleet.stored(X).ownership_timeout


def test_owner_distrusts_its_lease_after_an_unanswered_end(source: SharedSource) -> None:
    set_id = source.begin("sink")
    source.unanswered(lambda: source.mine.release(set_id, "sink", positive=False, reason="no", owned=True))
    assert not source.a.leases.owns(X)
    with pytest.raises(PartitionNotOwnedError):
        source.a.leases.save_progress(X, {})
    assert source.fleet.stored(X).status is PartitionStatus.UNASSIGNED


class RetryingStore:
    """A store that repeats a write automatically when no response came, as databases' drivers do, and finds it done."""

    def __init__(self, store: CoordinationStore) -> None:
        self.store = store
        self.repeats = False

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    def transact(self, **changes: object) -> object:
        if self.repeats:
            self.repeats = False
            self.store.transact(**changes)  # type: ignore[arg-type]
        return self.store.transact(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("by", ["mine", "theirs"])
@pytest.mark.parametrize(("end", "state"), ENDS.values(), ids=ENDS)
def test_end_retried_by_the_store_happens_once(
    end: Callable[[AcknowledgmentSets, str], object], state: AcknowledgmentState, by: str
) -> None:
    source = SharedSource()
    forgetful = source.fleet.store.store = RetryingStore(source.fleet.store.store)  # type: ignore[assignment]
    set_id = source.begin("sink")
    forgetful.repeats = True  # type: ignore[attr-defined]
    end(getattr(source, by), set_id)
    assert source.mine.view.get(set_id).state is state
    assert source.fleet.stored(X).attempts == (state is AcknowledgmentState.REJECTED)


def test_creation_retried_by_the_store_makes_one_set() -> None:
    source = SharedSource()
    forgetful = source.fleet.store.store = RetryingStore(source.fleet.store.store)  # type: ignore[assignment]
    forgetful.repeats = True  # type: ignore[attr-defined]
    set_id = source.begin("sink")
    assert [made.set_id for made in source.mine.view.pending()] == [set_id]
    assert source.a.leases.held[X] == source.fleet.stored(X)


def test_constant_change_during_an_end_raises(source: SharedSource) -> None:
    store = source.fleet.store

    def changes_first() -> None:
        store.fault = Fault(before=changes_first)
        store.store.transact(update=[store.store.get("test|clicks|PARTITION", shard_key("other"))])  # type: ignore[list-item]

    source.a.create_partitions({shard_key("other"): a_shard("other").to_mapping()})
    store.fault = Fault(before=changes_first)
    with pytest.raises(PartitionUpdateError, match="that its end depends on keep changing"):
        end_shard(source.a, X, a_child("merged", "x", "other"))
    store.fault = None
    assert list(source.mine.view.pending()) == [] and source.progress.landed == ()


def test_lease_is_renewed_while_others_settle_batches(source: SharedSource) -> None:
    ends = ["1", "2", "3", "4"]
    batches = [a_batch(after, end) for after, end in zip([TRIM_HORIZON, *ends], ends, strict=False)]
    sets = [begin_delivery(source.a, X, batch, ["sink"]).set_id for batch in batches]

    def settle() -> None:
        source.theirs.release(sets.pop(0), "sink", positive=True)
        source.fleet.store.fault = Fault(before=settle) if sets else None

    source.fleet.clock.advance(30)
    source.fleet.store.fault = Fault(before=settle)
    source.a.leases.renew_due()
    assert sets == [] and source.progress.checkpoint == "4"
    assert source.a.leases.held[X] == source.fleet.stored(X)
    assert source.fleet.stored(X).ownership_timeout == source.fleet.clock.now() + source.a.leases.ownership_timeout
