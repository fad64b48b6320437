"""Shard sync of tables: leases by lineage, streams that end and begin, and losses."""

from __future__ import annotations

import contextvars
from collections import Counter
from contextlib import suppress

import pytest

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.sources.dynamodb_streams.client import StreamOffError
from airflow_provider_coordination.sources.kinesis.progress import ShardRange, partition_key
from airflow_provider_coordination.sources.kinesis.sync import NOTHING_TO_DO
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.batches import end_shard
from tests.support.dynamodb_streams import DynamoDbStreams, StreamShard, client_of
from tests.support.fleet import Crash
from tests.support.freezing import VICTIM, Calls, CountedStore, Strike, acting
from tests.support.synced import SyncedSource

TABLE = "orders"


class SyncedTable(SyncedSource):
    """A table with a stream, its shard sync, and a worker."""

    def __init__(self, shards: int = 2, store: CoordinationStore | None = None) -> None:
        self.service = DynamoDbStreams()
        self.service.create_table(TABLE, shards=shards)
        super().__init__(client=client_of(self.service), clock=self.service.clock, store=store)

    @property
    def shards(self) -> list[StreamShard]:
        return list(self.service.stream_of(TABLE).shards.values())

    def replace_stream(self) -> int:
        """Disable the stream and enable it again; return the creation epoch of the new one."""
        self.service.disable(TABLE)
        self.pass_time(60)
        self.service.enable(TABLE)
        return int(self.service.stream_of(TABLE).created_at.timestamp())

    def finish(self, *shards: StreamShard, knows_children: bool = True) -> None:
        """Deliver shards to their end."""
        for shard in shards:
            children = [
                ShardRange(child.shard_id, (shard.shard_id,), "", "")
                for child in self.shards
                if knows_children and child.parent == shard.shard_id
            ]
            end_shard(self.worker, self._acquire(shard.shard_id, TABLE), *children)
            self.worker.leases.give_up_all()


@pytest.fixture
def source() -> SyncedTable:
    return SyncedTable()


def test_new_table_is_read_from_its_oldest_shards(source: SyncedTable) -> None:
    source.service.roll(TABLE)
    result = source.sync(TABLE)
    parents = source.shards[:2]
    epoch = result.creation_epoch
    assert epoch is not None
    assert result.created == [partition_key(TABLE, epoch, shard.shard_id) for shard in parents]
    progress = source.progress(parents[0].shard_id, TABLE)
    assert (progress.kind, progress.checkpoint, progress.hash_keys) == ("dynamodb_streams", "TRIM_HORIZON", None)
    assert result.hole is None


def test_latest_begins_at_an_instant_in_the_youngest_shards(source: SyncedTable) -> None:
    source.service.roll(TABLE)
    source.sync(TABLE, initial_position="LATEST")
    leases = source.leases(TABLE)
    assert sorted(leases) == sorted(shard.shard_id for shard in source.shards[2:])
    checkpoints = {source.progress(name, TABLE).checkpoint for name in leases}
    assert [text.partition(":")[0] for text in checkpoints] == ["AT_TIMESTAMP"]


def test_children_follow_their_finished_parents(source: SyncedTable) -> None:
    source.sync(TABLE)
    first, second = source.shards
    source.service.roll(TABLE, split=True)
    source.finish(first)
    children = {shard.shard_id for shard in source.shards if shard.parent == first.shard_id}
    assert children <= source.leases(TABLE).keys() and len(source.leases(TABLE)) == 4
    assert second.shard_id in source.leases(TABLE)


def test_children_unknown_at_the_end_are_found_by_the_audit(source: SyncedTable) -> None:
    source.sync(TABLE)
    source.service.roll(TABLE)
    first, second = source.shards[:2]
    source.finish(first, knows_children=False)
    source.finish(second)
    for _ in range(3):
        result = source.sync(TABLE, forced=False)
        source.pass_time(60)
    child = next(shard for shard in source.shards if shard.parent == first.shard_id)
    assert child.shard_id in source.leases(TABLE)
    assert result.created and result.hole is None


def test_read_stream_needs_no_listing(source: SyncedTable) -> None:
    source.sync(TABLE)
    listings = source.service.calls["describe_stream"]
    summary = source.summary(TABLE, forced=False)
    assert summary is not None and summary.skipped == NOTHING_TO_DO
    assert source.service.calls["describe_stream"] == listings


def test_finished_lease_goes_once_its_children_are_started(source: SyncedTable) -> None:
    source.sync(TABLE)
    source.service.roll(TABLE)
    source.finish(*source.shards[:2])
    source.service.roll(TABLE)
    source.finish(*source.shards[2:4])
    source.pass_time(60)
    result = source.sync(TABLE)
    assert len(result.removed) == 2 and len(source.leases(TABLE)) == 4 and result.hole is None


def test_expired_unread_shard_is_a_loss_and_its_child_follows(source: SyncedTable) -> None:
    source.sync(TABLE)
    source.service.roll(TABLE)
    source.pass_time(hours=25)
    result = source.sync(TABLE, on_data_loss="earliest")
    assert len(result.lost) == 2 and not result.parked
    again = source.sync(TABLE)
    assert {*result.created, *again.created} == {
        source.leases(TABLE)[shard.shard_id].partition_key for shard in source.shards
    }


def test_expired_unread_shard_parks_by_default(source: SyncedTable) -> None:
    source.sync(TABLE)
    source.service.roll(TABLE)
    source.pass_time(hours=25)
    result = source.sync(TABLE)
    assert len(result.lost) == len(result.parked) == 2


def test_stream_enabled_again_is_another_and_the_rest_is_read(source: SyncedTable) -> None:
    source.sync(TABLE)
    before = set(source.leases(TABLE))
    source.service.disable(TABLE)
    source.pass_time(60)
    source.service.enable(TABLE)
    result = source.sync(TABLE)
    assert not result.lost and not result.parked
    after = source.leases(TABLE)
    assert before < set(after) and len({p.partition_key.split(":")[1] for p in after.values()}) == 2
    assert all(partition.status is PartitionStatus.UNASSIGNED for partition in after.values())


def test_stream_that_came_and_went_between_syncs_is_read(source: SyncedTable) -> None:
    source.sync(TABLE)
    epochs = {int(source.service.stream_of(TABLE).created_at.timestamp())}
    epochs |= {source.replace_stream() for _ in range(2)}
    source.sync(TABLE)
    after = source.leases(TABLE)
    assert {int(p.partition_key.split(":")[1]) for p in after.values()} == epochs and len(epochs) == 3
    assert not source.sync(TABLE).created


def interrupted_sync(calls: Calls) -> None:
    """Let a sync find streams that came and went, and be interrupted; another one then loses no shard of them."""
    source = SyncedTable(store=CountedStore(InMemoryStore(), calls))
    source.sync(TABLE)
    epochs = {int(source.service.stream_of(TABLE).created_at.timestamp())}
    epochs |= {source.replace_stream() for _ in range(3)}

    def by_victim() -> None:
        acting.set(VICTIM)
        source.summary(TABLE)

    with suppress(Crash, CoordinationError):
        contextvars.copy_context().run(by_victim)
    source.pass_time(hours=1)  # longer than the lease of a victim that died
    source.coordinator = source.owner("next")
    result = source.sync(TABLE)
    shards = Counter(int(key.split(":")[1]) for key in (p.partition_key for p in source.leases(TABLE).values()))
    assert shards == dict.fromkeys(epochs, 2), calls.struck
    assert not result.lost and not result.parked and not source.sync(TABLE).created


@pytest.mark.parametrize(
    "strike", [Strike.KILLED_BEFORE, Strike.KILLED_AFTER, Strike.RAISED_BEFORE, Strike.RAISED_AFTER]
)
def test_interrupted_sync_loses_no_stream_that_came_and_went(strike: Strike) -> None:
    calls = Calls()
    interrupted_sync(calls)
    assert calls.made.count("store.transact") > 6, "each stream takes two, for its state and its shards"
    for point in range(1, len(calls.made) + 1):
        struck = Calls(point, strike)
        interrupted_sync(struck)
        assert struck.struck, point


def test_earlier_stream_that_expired_unread_is_a_loss(source: SyncedTable) -> None:
    source.sync(TABLE)
    source.service.disable(TABLE)
    source.pass_time(60)
    source.service.enable(TABLE)
    source.pass_time(hours=25)
    result = source.sync(TABLE)
    assert len(result.lost) == len(result.parked) == 2


def test_disabled_stream_read_to_its_end_has_no_hole(source: SyncedTable) -> None:
    source.sync(TABLE)
    shards = source.shards
    source.service.disable(TABLE)
    source.finish(*shards)
    result = source.sync(TABLE)
    assert result.hole is None and not result.lost and result.error is None


def test_new_source_refuses_a_disabled_stream(source: SyncedTable) -> None:
    source.service.disable(TABLE)
    with pytest.raises(Exception, match="aws dynamodb update-table --table-name orders"):
        source.sync(TABLE)


def test_table_without_stream_fails_the_sync(source: SyncedTable) -> None:
    source.service.create_table("quiet", view=None)
    with pytest.raises(StreamOffError):
        source.sync("quiet")


def test_sync_keeps_up_with_shards_that_live_four_hours(source: SyncedTable) -> None:
    source.sync(TABLE)
    for generation in range(12):
        open_shards = [shard for shard in source.shards if shard.last is None]
        source.pass_time(hours=4)
        source.service.roll(TABLE, split=generation == 5)
        source.finish(*open_shards)
        result = source.sync(TABLE)
        assert not result.lost and result.hole is None and result.error is None
    assert len(source.leases(TABLE)) <= 3 * 4, "leases of shards that are gone are removed"
