"""The scenarios of Data Prepper's own tests about end-to-end acknowledgments.

Each test names its scenario and says it in a sentence; where this project does something else on purpose, the test
holds for that, and says why. What belongs to a source alone, such as which objects a scan finds, is not here.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.acknowledgment import (
    AcknowledgmentSet,
    AcknowledgmentState,
    ReleaseEffect,
)
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentError,
    PartitionNotOwnedError,
    ProgressChangedError,
)
from airflow_provider_coordination.coordination.metrics import MetricTotals
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.coordination.fleet import Fleet, seconds
from tests.coordination.unreliable_store import Fault
from tests.support.batches import HOUR, a_batch, a_child, a_shard, begin_delivery, end_shard, shard_key

SHARD = shard_key("shard")
ACKNOWLEDGED, REJECTED, EXPIRED = (
    AcknowledgmentState.ACKNOWLEDGED,
    AcknowledgmentState.REJECTED,
    AcknowledgmentState.EXPIRED,
)


class Pipeline:
    """A worker that holds the partition "x" and a shard, with the acknowledgments of what it reads."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.totals = MetricTotals()
        self.me = fleet.owner("me", metrics=self.totals)
        self.me.create_partitions({"x": {}, SHARD: a_shard("shard").to_mapping()})
        self.me.leases.acquire(2)
        self.sets = AcknowledgmentSets(self.me, SourceBatches())
        self.watcher = AcknowledgmentSets(fleet.owner("watcher", metrics=self.totals), SourceBatches())

    def deliver(self, *handles: str, complete: bool = True, timeout: timedelta = HOUR) -> str:
        """Begin to deliver "x" to these handles; return the set's name."""
        return self.sets.begin("x", "x", handles, timeout=timeout, complete=complete).set_id

    def read(self, *ends: str, timeout: timedelta = HOUR) -> list[str]:
        """Read batches of the shard up to these ends, all to one sink; return their sets' names."""
        starts = [TRIM_HORIZON, *ends]
        return [
            begin_delivery(self.me, SHARD, a_batch(start, end), ["sink"], timeout=timeout).set_id
            for start, end in zip(starts, ends, strict=False)
        ]

    def release(
        self, set_id: str, handle: str = "sink", *, positive: bool = True, release_id: str | None = None
    ) -> tuple[AcknowledgmentSet, ReleaseEffect]:
        """Release a reference, as a sink somewhere does."""
        reason = None if positive else "no"
        return self.watcher.release(set_id, handle, positive=positive, release_id=release_id, reason=reason)

    @property
    def shard(self) -> ShardProgress:
        return ShardProgress.from_mapping(self.fleet.stored(SHARD).progress)

    def count(self, name: str) -> float:
        return self.totals.totals.get(f"coordination.{name}", 0)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def pipeline(fleet: Fleet) -> Pipeline:
    return Pipeline(fleet)


# Sets


def test_s37_last_release_ends_a_complete_set(pipeline: Pipeline) -> None:
    """Given 1 event, complete(), acquire, release, acquire, acquire, release x3: only the last release returns true.

    A further one returns false: here it is late, and counted.
    """
    made = pipeline.deliver("event")
    pipeline.watcher.acquire(made, "event")
    states = [pipeline.release(made, "event", release_id="1")[0].state]
    pipeline.watcher.acquire(made, "event", 2)
    states += [pipeline.release(made, "event", release_id=str(n))[0].state for n in (2, 3, 4)]
    assert states == [AcknowledgmentState.PENDING] * 3 + [ACKNOWLEDGED]
    assert pipeline.release(made, "event", release_id="5")[1] is ReleaseEffect.LATE
    assert pipeline.count("late_acknowledgments") == pipeline.count("partitions_completed") == 1


def test_s39_unknown_handle_is_refused_without_effect(pipeline: Pipeline) -> None:
    """Given a never-added handle: its release returns false, its acquisition counts as invalid.

    There release(unknown, false) still makes the set's final result negative: a stray release anywhere has a whole
    batch delivered again. Ours raises, counts, and leaves the set as it is.
    """
    made = pipeline.deliver("event")
    before = pipeline.sets.view.get(made)
    for positive in (True, False):
        with pytest.raises(AcknowledgmentError, match="has no handle 'unknown'"):
            pipeline.release(made, "unknown", positive=positive)
    with pytest.raises(AcknowledgmentError, match="has no handle 'unknown'"):
        pipeline.watcher.acquire(made, "unknown")
    assert pipeline.count("invalid_acknowledgments") == 3 and pipeline.sets.view.get(made) == before
    assert pipeline.release(made, "event")[0].state is ACKNOWLEDGED


@pytest.mark.parametrize("slow", ["before it is written", "after it is written"])
def test_s41_expiry_does_not_interrupt_a_release(pipeline: Pipeline, slow: str) -> None:
    """Given a timeout of 5 s and a positive callback of 15 s: there it is interrupted at expiry, half-way.

    Ours is one transaction: if the set expired before it, the release is late; if it was written, the set has ended and
    there is nothing to expire.
    """
    made = pipeline.deliver("event", timeout=seconds(5))

    def the_watcher_comes() -> None:
        pipeline.fleet.clock.advance(15)
        pipeline.watcher.expire_overdue()

    written = slow == "after it is written"
    pipeline.fleet.store.fault = Fault(after=the_watcher_comes) if written else Fault(before=the_watcher_comes)
    ended, effect = pipeline.sets.release(made, "event", positive=True)
    stored = pipeline.fleet.stored()
    assert pipeline.sets.view.get(made) == ended
    if written:
        assert (ended.state, effect, stored.status) == (ACKNOWLEDGED, ReleaseEffect.RELEASED, PartitionStatus.COMPLETED)
    else:
        assert (ended.state, effect, stored.status) == (EXPIRED, ReleaseEffect.LATE, PartitionStatus.UNASSIGNED)
    assert stored.attempts == (not written)


def test_s42_expired_set_ends_like_any_other(pipeline: Pipeline) -> None:
    """Given a timeout of 5 s and 1 pending: without a flag nothing is ever called there; with it callback(false), once.

    Without it nobody learns that a set expired, and the partition waits for its lease to run out. Ours ends as
    expired, once, counts a failure and gives the partition back; a later release changes nothing.
    """
    made = pipeline.deliver("event", timeout=seconds(5))
    pipeline.fleet.clock.advance(4.9)
    assert pipeline.watcher.expire_overdue() == []
    pipeline.fleet.clock.advance(0.1)
    assert [s.state for s in pipeline.watcher.expire_overdue()] == [EXPIRED]
    assert pipeline.fleet.stored().status is PartitionStatus.UNASSIGNED and pipeline.fleet.stored().attempts == 1
    assert pipeline.watcher.expire_overdue() == []
    assert pipeline.release(made, "event")[1] is ReleaseEffect.LATE
    assert pipeline.fleet.stored().attempts == pipeline.count("acknowledgment_sets_expired") == 1


def test_s42_unacknowledged_batch_stays_undelivered(pipeline: Pipeline) -> None:
    """Given 100 records, 15 s, and a sink that does not acknowledge: there the result stays null.

    Ours says so within the watcher's interval, and the batch is delivered again from its file.
    """
    pipeline.read("5", timeout=seconds(15))
    pipeline.fleet.clock.advance(15)
    pipeline.watcher.expire_overdue()
    assert pipeline.shard.checkpoint == TRIM_HORIZON
    assert [(b.redeliver, b.acknowledgment_set) for b in pipeline.shard.landed] == [(True, None)]


def test_s44_extension_counts_from_now_and_never_shortens(pipeline: Pipeline) -> None:
    """Given an expiry in 5 s and increaseExpiry(10 s) at t: the expiry is t + 10 s.

    There it is also if it was later before; ours is kept then: one of several who wait must not cut another short.
    """
    made = pipeline.deliver("event", timeout=seconds(5))
    pipeline.fleet.clock.advance(4)
    later = pipeline.fleet.clock.now() + seconds(10)
    assert pipeline.watcher.extend(made, seconds(10)).expires_at == later
    assert pipeline.watcher.extend(made, seconds(1)).expires_at == later


def test_s44_cancelled_set_has_ended(pipeline: Pipeline) -> None:
    """There cancel() stops a check and a callback that has not run; later releases may still call it, or nobody ever.

    Ours is an end: what comes later is late, and no failure is counted.
    """
    made = pipeline.deliver("event")
    assert pipeline.sets.cancel(made, "the reader failed").state is AcknowledgmentState.CANCELLED
    for positive in (True, False):
        assert pipeline.release(made, "event", positive=positive)[1] is ReleaseEffect.LATE
    assert pipeline.fleet.stored().attempts == 0 and pipeline.me.leases.owns("x")


# Sinks


def test_s46_one_failed_sink_rejects_the_batch(pipeline: Pipeline) -> None:
    """Given one record to 3 plain sinks: base 1 + 2 acquires; one sink's result false: the source gets false.

    There every record of 100 has a handle; here the batch has one for each sink.
    """
    made = pipeline.deliver("one", "two", "three")
    assert pipeline.sets.view.get(made).owed == 3
    pipeline.release(made, "one")
    pipeline.release(made, "two", positive=False)
    assert pipeline.sets.view.get(made).state is REJECTED
    assert pipeline.release(made, "three")[1] is ReleaseEffect.LATE


def test_s46_batch_without_sinks_is_delivered(pipeline: Pipeline) -> None:
    """Given 2 records without a route: true, with 0 outputs. A batch without a sink owes nothing."""
    made = pipeline.deliver()
    assert pipeline.sets.view.get(made).state is ACKNOWLEDGED
    assert pipeline.fleet.stored().status is PartitionStatus.COMPLETED


# Sources


def test_s47_acknowledgment_completes_the_waiting_partition(pipeline: Pipeline) -> None:
    """Given acks: the wait, then complete(), checks that renew, and completePartition when the callback is positive.

    There the renewal of a check shortens the wait to ten minutes; here progress lengthens it. There the worker that
    read must live to complete the partition; here whoever releases last does, in the same transaction.
    """
    made = pipeline.deliver("one", "two", complete=False)
    pipeline.me.leases.await_acknowledgment("x", HOUR)
    pipeline.watcher.complete(made)
    pipeline.fleet.clock.advance(3000)
    progressed, _ = pipeline.release(made, "one")
    assert pipeline.fleet.stored().ownership_timeout == progressed.expires_at == pipeline.fleet.clock.now() + HOUR
    pipeline.fleet.clock.advance(3000)
    pipeline.fleet.store.calls.clear()
    pipeline.release(made, "two")
    assert pipeline.fleet.stored().status is PartitionStatus.COMPLETED
    assert [call for call in pipeline.fleet.store.calls if call != "get"] == ["transact"]
    assert pipeline.count("acknowledgment_sets_acknowledged") == 1


def test_s47_lost_lease_is_counted_and_acknowledgments_still_apply(pipeline: Pipeline) -> None:
    """Given a renewal that finds the partition gone or another's: the error is counted, processing goes on.

    What arrives is acknowledged all the same: the set says what was delivered, whoever holds the lease.
    """
    [made] = pipeline.read("5")
    pipeline.fleet.owner("operator").give_up_owner("me")
    pipeline.fleet.owner("other").leases.acquire(2)
    with pytest.raises(PartitionNotOwnedError):
        pipeline.me.leases.renew(SHARD)
    assert pipeline.count("partition_not_owned_errors") == 1
    assert pipeline.release(made)[0].state is ACKNOWLEDGED
    assert pipeline.shard.checkpoint == "5" and pipeline.fleet.stored(SHARD).owner == "other"


def test_s54_partition_is_given_back_after_its_last_set(pipeline: Pipeline) -> None:
    """Given 2 objects of a folder: 2 sets, and the give-up only after both callbacks."""
    first, second = pipeline.read("5", "9")
    pipeline.me.leases.await_acknowledgment(SHARD, HOUR)
    pipeline.release(second)
    assert pipeline.fleet.stored(SHARD).is_awaiting
    pipeline.release(first)
    assert pipeline.fleet.stored(SHARD).status is PartitionStatus.UNASSIGNED


# Streams


def test_s56_checkpoint_advances_without_gaps(pipeline: Pipeline) -> None:
    """Given 10 batches, only #9 ready: nothing; then #0: one; then all: the last, and nothing is left."""
    made = pipeline.read(*map(str, range(10)))
    pipeline.release(made[9])
    assert (pipeline.shard.checkpoint, len(pipeline.shard.landed)) == (TRIM_HORIZON, 10)
    pipeline.release(made[0])
    assert (pipeline.shard.checkpoint, len(pipeline.shard.landed)) == ("0", 9)
    for set_id in reversed(made[1:9]):
        pipeline.release(set_id)
    assert (pipeline.shard.checkpoint, len(pipeline.shard.landed)) == ("9", 0)


def test_s56_unknown_batch_is_refused(pipeline: Pipeline) -> None:
    """Given an unknown sequence number: IllegalArgument there, here an error that says what is known."""
    pipeline.read("5")
    with pytest.raises(ProgressChangedError, match="'batch-to-7' is not pending delivery; pending are: 'batch-to-5'"):
        pipeline.sets.begin(SHARD, "batch-to-7", ["sink"], timeout=HOUR)


def test_s57_rejected_batch_holds_the_checkpoint(pipeline: Pipeline) -> None:
    """Given batch 0 negative, batch 1 positive: no checkpoint ever there, and a graceful shutdown passes both.

    There the shard stalls, or loses the batch. Ours gives it back, delivers batch 0 again, and then passes both; a
    shutdown moves nothing.
    """
    zero, one = pipeline.read("0", "1")
    pipeline.release(zero, positive=False)
    pipeline.release(one)
    next_one = pipeline.fleet.owner("next")
    [again] = next_one.leases.acquire(1)
    next_one.leases.give_up_all()
    assert pipeline.shard.checkpoint == TRIM_HORIZON and again.attempts == 1
    next_one.leases.acquire(1)
    made = AcknowledgmentSets(next_one, SourceBatches()).begin(SHARD, "batch-to-0", ["sink"], timeout=HOUR)
    pipeline.release(made.set_id)
    assert (pipeline.shard.checkpoint, pipeline.shard.landed) == ("1", ())
    assert pipeline.fleet.stored(SHARD).attempts == 0


def test_s59_acknowledgments_before_a_rejection_are_checkpointed(pipeline: Pipeline) -> None:
    """Given 123 positive and 124 negative: the checkpoint is 123, the shard is given up and no longer followed.

    There it is given up in the next loop; here in the same transaction as the rejection.
    """
    positive, negative = pipeline.read("123", "124")
    pipeline.release(positive)
    pipeline.release(negative, positive=False)
    assert pipeline.shard.checkpoint == "123" and pipeline.fleet.stored(SHARD).status is PartitionStatus.UNASSIGNED
    with pytest.raises(PartitionNotOwnedError):
        pipeline.me.leases.save_progress(SHARD, {})


def test_s59_unacknowledged_shard_is_given_up_without_checkpoint(pipeline: Pipeline) -> None:
    """Given a timeout of 1 ms and no acknowledgment: the shard is given up, the checkpoint stays."""
    pipeline.read("123", timeout=timedelta(milliseconds=1))
    pipeline.fleet.clock.advance(0.001)
    pipeline.watcher.expire_overdue()
    assert pipeline.shard.checkpoint == TRIM_HORIZON
    assert pipeline.fleet.stored(SHARD).status is PartitionStatus.UNASSIGNED


def test_s59_lost_shard_stops_no_other(pipeline: Pipeline) -> None:
    """Given a conflict when one shard is saved: only that shard stops."""
    [made] = pipeline.read("5")
    x = pipeline.deliver("event")
    pipeline.fleet.store.store.transact(
        update=[pipeline.fleet.stored(SHARD).acquired("other", pipeline.fleet.clock.now() + HOUR)]
    )
    with pytest.raises(PartitionNotOwnedError):
        pipeline.sets.release(made, "sink", positive=True, owned=True)
    pipeline.sets.release(x, "event", positive=True, owned=True)
    assert pipeline.fleet.stored().status is PartitionStatus.COMPLETED


def test_s59_rejected_head_keeps_later_acknowledgments(
    pipeline: Pipeline,
) -> None:
    """Given a negative head with a positive tail (DocumentDB): given up, nothing checkpointed.

    There the tail is delivered again with the head; ours remembers that it arrived.
    """
    head, tail = pipeline.read("5", "9")
    pipeline.release(tail)
    pipeline.release(head, positive=False)
    assert pipeline.shard.checkpoint == TRIM_HORIZON
    assert [(b.acknowledged, b.redeliver) for b in pipeline.shard.landed] == [(False, True), (True, False)]


def test_s59_shard_end_is_a_set_that_completes_it(pipeline: Pipeline) -> None:
    """Given a shard that ends without records: an empty final set completes it, after what came before."""
    [last] = pipeline.read("5")
    final: AcknowledgmentSet = end_shard(pipeline.me, SHARD, a_child("child", "shard"))
    assert final.state is ACKNOWLEDGED and pipeline.fleet.stored(SHARD).status is PartitionStatus.ASSIGNED
    pipeline.release(last)
    assert pipeline.fleet.stored(SHARD).status is PartitionStatus.COMPLETED
    assert pipeline.fleet.stored(shard_key("child")).status is PartitionStatus.UNASSIGNED
