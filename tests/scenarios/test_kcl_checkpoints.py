"""The scenarios of the Kinesis Client Library's own tests about checkpoints.

Each test names its scenario and says it in a sentence; where this project does something else on purpose, the test
holds for that, and says why. What belongs to reading and de-aggregation is not here.
"""

from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState, ReleaseEffect
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.errors import ProgressChangedError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.coordination.fleet import Fleet
from tests.coordination.unreliable_store import NOT_ANSWERED
from tests.support.batches import HOUR, a_batch, a_child, a_shard, begin_delivery, end_shard, shard_key

SHARD, CHILD = shard_key("shard"), shard_key("child")


class Worker:
    """A worker that holds a shard, of which everything up to 5019 is delivered."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.owner = self.fleet.owner("worker")
        self.owner.create_partitions({SHARD: a_shard("shard").to_mapping()})
        self.owner.leases.acquire(1)
        self.sets = AcknowledgmentSets(self.owner, SourceBatches())
        self.land(TRIM_HORIZON, "5019")

    def land(self, start: str, end: str, *handles: str, ends: bool = False) -> str:
        """Land a batch and begin its delivery; return the set that it waits for."""
        children = (a_child("child", "shard"),) if ends else ()
        landed = a_batch(start, end, is_last=ends)
        return begin_delivery(self.owner, SHARD, landed, handles, children=children).set_id

    def deliver_again(self, batch_id: str) -> str:
        return self.sets.begin(SHARD, batch_id, ["sink"], timeout=HOUR).set_id

    def release(self, set_id: str) -> ReleaseEffect:
        return self.sets.release(set_id, "sink", positive=True)[1]

    @property
    def progress(self) -> ShardProgress:
        return ShardProgress.from_mapping(self.fleet.stored(SHARD).progress)

    def stands(self) -> PartitionStatus:
        return self.fleet.stored(SHARD).status


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_27_next_worker_delivers_an_undelivered_shard_end(
    worker: Worker,
) -> None:
    """Upstream reports to the application that it did not checkpoint at the end, and retries forever.

    Here nobody has to say so: the end is part of a batch, and whoever holds the shard delivers that.
    """
    worker.land("5019", "6789", "sink", ends=True)
    worker.fleet.owner("airflow").give_up_owner("worker")
    assert worker.stands() is PartitionStatus.UNASSIGNED and worker.progress.is_ended

    other = worker.fleet.owner("other")
    other.leases.acquire(1)
    sets = AcknowledgmentSets(other, SourceBatches())
    again = sets.begin(SHARD, "batch-to-6789", ["sink"], timeout=HOUR)
    sets.release(again.set_id, "sink", positive=True)

    assert worker.stands() is PartitionStatus.COMPLETED
    assert ShardProgress.from_mapping(worker.fleet.stored(CHILD).progress).checkpoint == TRIM_HORIZON


def test_66_delivering_the_last_number_finishes_the_shard(worker: Worker) -> None:
    """Upstream stores SHARD_END instead of the number; here COMPLETED says it, and the number stays known."""
    set_id = worker.land("5019", "6789", "sink", ends=True)
    assert (worker.stands(), worker.progress.checkpoint) == (PartitionStatus.ASSIGNED, "5019")

    worker.release(set_id)

    assert (worker.stands(), worker.progress.checkpoint) == (PartitionStatus.COMPLETED, "6789")
    assert worker.progress.is_finished


def test_66_last_number_delivered_before_the_end_finishes_the_shard(
    worker: Worker,
) -> None:
    """Upstream never finishes it: it takes the end for a checkpoint that was made already (issue 211)."""
    worker.release(worker.land("5019", "6789", "sink"))

    end_shard(worker.owner, SHARD, a_child("child", "shard"))

    assert (worker.stands(), worker.progress.checkpoint) == (PartitionStatus.COMPLETED, "6789")
    assert worker.fleet.stored(CHILD).status is PartitionStatus.UNASSIGNED


def test_66_closed_empty_shard_is_finished() -> None:
    fleet = Fleet()
    owner = fleet.owner("worker")
    owner.create_partitions({SHARD: a_shard("shard").to_mapping()})
    owner.leases.acquire(1)

    end_shard(owner, SHARD)

    assert fleet.stored(SHARD).status is PartitionStatus.COMPLETED


def test_66_end_with_a_lost_response_is_applied_once(worker: Worker) -> None:
    set_id = worker.land("5019", "6789", "sink", ends=True)
    worker.fleet.store.fault = NOT_ANSWERED
    with pytest.raises(StoreUnavailableError):
        worker.release(set_id)
    finished = worker.fleet.stored(SHARD)

    assert worker.release(set_id) is ReleaseEffect.DUPLICATE
    assert finished.status is PartitionStatus.COMPLETED and worker.fleet.stored(SHARD) == finished


def test_66_finished_shard_accepts_no_further_progress(worker: Worker) -> None:
    worker.land("5019", "6789", "sink", ends=True)

    with pytest.raises(ProgressChangedError, match="starts after the end of the shard"):
        worker.land("6789", "6789", "sink", ends=True)


def test_67_batch_in_delivery_holds_the_checkpoint_in_any_order(worker: Worker) -> None:
    """Upstream prepares a checkpoint and makes it later, and refuses the older of two that are made out of order.

    An acknowledgment set is that prepared checkpoint here. The newer one alone moves nothing, since what comes before
    it is not delivered; the older one is no mistake, and moves the checkpoint over both.
    """
    older = worker.land("5019", "7010", "sink")
    newer = worker.land("7010", "7020", "sink")
    assert worker.progress.checkpoint == "5019"
    assert [batch.acknowledgment_set for batch in worker.progress.landed] == [older, newer]

    assert worker.release(newer) is ReleaseEffect.RELEASED
    assert worker.progress.checkpoint == "5019"
    assert worker.release(older) is ReleaseEffect.RELEASED
    assert (worker.progress.checkpoint, worker.progress.landed) == ("7020", ())


def test_67_later_delivery_of_a_batch_supersedes_the_older_one(
    worker: Worker,
) -> None:
    """Upstream: a later prepare replaces the one before, and making the older one after the newer is refused."""
    older = worker.land("5019", "7010", "sink")
    newer = worker.deliver_again("batch-to-7010")

    worker.release(older)
    assert worker.progress.checkpoint == "5019"
    assert worker.sets.view.get(older).state is AcknowledgmentState.ACKNOWLEDGED
    worker.release(newer)
    assert (worker.progress.checkpoint, worker.progress.landed) == ("7010", ())
    assert worker.release(newer) is ReleaseEffect.DUPLICATE and worker.progress.checkpoint == "7010"
