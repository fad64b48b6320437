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
from airflow_provider_coordination.sources.batches import SourceBatches
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.coordination.fleet import Fleet
from tests.coordination.unreliable_store import NOT_ANSWERED, NOT_MADE, Fault
from tests.support.batches import HOUR, a_batch, a_child, a_shard, begin_delivery, end_shard, shard_key

X = shard_key("x")


class Office:
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
def office() -> Office:
    return Office()


ENDS: dict[str, tuple[Callable[[AcknowledgmentSets, str], object], AcknowledgmentState]] = {
    "acknowledged": (lambda s, i: s.release(i, "sink", positive=True), AcknowledgmentState.ACKNOWLEDGED),
    "rejected": (lambda s, i: s.release(i, "sink", positive=False, reason="no"), AcknowledgmentState.REJECTED),
    "cancelled": (lambda s, i: s.cancel(i, "no more"), AcknowledgmentState.CANCELLED),
}


@pytest.mark.parametrize("fault", [NOT_ANSWERED, NOT_MADE], ids=["made", "not made"])
@pytest.mark.parametrize("by", ["mine", "theirs"])
@pytest.mark.parametrize(("end", "state"), ENDS.values(), ids=ENDS)
def test_repeated_end_after_a_lost_response_happens_once(
    office: Office, end: Callable[[AcknowledgmentSets, str], object], state: AcknowledgmentState, by: str, fault: Fault
) -> None:
    set_id = office.begin("sink")
    sets: AcknowledgmentSets = getattr(office, by)
    office.unanswered(lambda: end(sets, set_id), fault)
    end(sets, set_id)
    ended, partition = office.mine.view.get(set_id), office.fleet.stored(X)
    assert ended.state is state
    assert partition.attempts == (state is AcknowledgmentState.REJECTED)
    assert office.progress.checkpoint == ("5" if state is AcknowledgmentState.ACKNOWLEDGED else TRIM_HORIZON)
    end(sets, set_id)
    assert (office.mine.view.get(set_id), office.fleet.stored(X)) == (ended, partition)


def test_repeated_release_after_a_lost_response_counts_once(office: Office) -> None:
    set_id = office.begin("sink", "check")
    office.unanswered(lambda: office.theirs.release(set_id, "sink", positive=True))
    again, effect = office.theirs.release(set_id, "sink", positive=True)
    assert (again.owed, effect) == (1, ReleaseEffect.DUPLICATE)


@pytest.mark.parametrize("fault", [NOT_ANSWERED, NOT_MADE], ids=["made", "not made"])
def test_unanswered_creation_is_found_in_the_progress_or_absent(office: Office, fault: Fault) -> None:
    office.unanswered(lambda: office.begin("sink"), fault)
    office.a.leases.recover()
    pending = [made.set_id for made in office.mine.view.pending()]
    assert pending == [batch.acknowledgment_set for batch in office.progress.landed]
    assert len(pending) == (fault is NOT_ANSWERED)
    for set_id in pending:
        office.mine.release(set_id, "sink", positive=True, owned=True)
        assert office.progress.checkpoint == "5" and office.a.leases.held[X] == office.fleet.stored(X)


@pytest.mark.parametrize("by", ["mine", "theirs"])
def test_unanswered_set_ends_with_its_partition_before_recovery(office: Office, by: str) -> None:
    office.unanswered(lambda: office.begin("sink"))
    office.fleet.clock.advance(3600)
    sets: AcknowledgmentSets = getattr(office, by)
    [ended] = sets.expire_overdue()
    assert ended.state is AcknowledgmentState.EXPIRED
    assert office.progress.landed[0].acknowledgment_set is None
    assert office.fleet.stored(X).attempts == 1


def test_unanswered_empty_set_has_moved_the_checkpoint(office: Office) -> None:
    office.unanswered(lambda: office.begin())
    office.a.leases.recover()
    assert office.progress.checkpoint == "5" and office.a.leases.leased(X).progress == office.fleet.stored(X).progress


def test_expiry_with_a_lost_response_happens_once(office: Office) -> None:
    set_id = office.begin("sink")
    office.fleet.clock.advance(3600)
    office.unanswered(office.theirs.expire_overdue)
    assert office.theirs.expire_overdue() == []
    assert office.mine.view.get(set_id).state is AcknowledgmentState.EXPIRED and office.fleet.stored(X).attempts == 1


def test_extension_with_a_lost_response_holds(office: Office) -> None:
    set_id = office.begin("sink")
    office.a.leases.await_acknowledgment(X, HOUR)
    office.unanswered(lambda: office.theirs.extend(set_id, 2 * HOUR))
    assert office.theirs.extend(set_id, 2 * HOUR).expires_at == office.fleet.stored(X).ownership_timeout


def test_owner_distrusts_its_lease_after_an_unanswered_end(office: Office) -> None:
    set_id = office.begin("sink")
    office.unanswered(lambda: office.mine.release(set_id, "sink", positive=False, reason="no", owned=True))
    assert not office.a.leases.owns(X)
    with pytest.raises(PartitionNotOwnedError):
        office.a.leases.save_progress(X, {})
    assert office.fleet.stored(X).status is PartitionStatus.UNASSIGNED


class Forgetful:
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
    office = Office()
    forgetful = office.fleet.store.store = Forgetful(office.fleet.store.store)  # type: ignore[assignment]
    set_id = office.begin("sink")
    forgetful.repeats = True  # type: ignore[attr-defined]
    end(getattr(office, by), set_id)
    assert office.mine.view.get(set_id).state is state
    assert office.fleet.stored(X).attempts == (state is AcknowledgmentState.REJECTED)


def test_creation_retried_by_the_store_makes_one_set() -> None:
    office = Office()
    forgetful = office.fleet.store.store = Forgetful(office.fleet.store.store)  # type: ignore[assignment]
    forgetful.repeats = True  # type: ignore[attr-defined]
    set_id = office.begin("sink")
    assert [made.set_id for made in office.mine.view.pending()] == [set_id]
    assert office.a.leases.held[X] == office.fleet.stored(X)


def test_constant_change_during_an_end_raises(office: Office) -> None:
    store = office.fleet.store

    def changes_first() -> None:
        store.fault = Fault(before=changes_first)
        store.store.transact(update=[store.store.get("test|clicks|PARTITION", shard_key("other"))])  # type: ignore[list-item]

    office.a.create_partitions({shard_key("other"): a_shard("other").to_mapping()})
    store.fault = Fault(before=changes_first)
    with pytest.raises(PartitionUpdateError, match="that its end depends on keep changing"):
        end_shard(office.a, X, a_child("merged", "x", "other"))
    store.fault = None
    assert list(office.mine.view.pending()) == [] and office.progress.landed == ()


def test_lease_is_renewed_while_others_settle_batches(office: Office) -> None:
    ends = ["1", "2", "3", "4"]
    batches = [a_batch(after, end) for after, end in zip([TRIM_HORIZON, *ends], ends, strict=False)]
    sets = [begin_delivery(office.a, X, batch, ["sink"]).set_id for batch in batches]

    def settle() -> None:
        office.theirs.release(sets.pop(0), "sink", positive=True)
        office.fleet.store.fault = Fault(before=settle) if sets else None

    office.fleet.clock.advance(30)
    office.fleet.store.fault = Fault(before=settle)
    office.a.leases.renew_due()
    assert sets == [] and office.progress.checkpoint == "4"
    assert office.a.leases.held[X] == office.fleet.stored(X)
    assert office.fleet.stored(X).ownership_timeout == office.fleet.clock.now() + office.a.leases.ownership_timeout
