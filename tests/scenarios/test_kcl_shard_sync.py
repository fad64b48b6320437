"""The scenarios of the Kinesis Client Library's own tests about shard sync, shard end, audit and cleanup.

Each test names its scenario and says it in a sentence; where this project does something else on purpose, the test
holds for that, and says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.aggregation import HashKeyRange
from airflow_provider_coordination.sources.kinesis.client import IncompleteListingError
from airflow_provider_coordination.sources.kinesis.leases import CONFIDENCE, HoleTracker, first_hole, leases_to_create
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON, at_timestamp
from airflow_provider_coordination.sources.kinesis.shards import MAX_HASH_KEY, Shard
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.shard_graphs import GRAPH_A, GRAPH_B, GRAPH_C, shard
from tests.support.synced import STREAM, GraphClient, SyncedSource, shard_id

ASSIGNED = PartitionStatus.ASSIGNED
AT = at_timestamp(GraphClient.EPOCH)
MAX = MAX_HASH_KEY


class FailingStore(InMemoryStore):
    """A store that is away when several partitions are created for the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.tries: list[int] = []

    def transact(self, *, new: Sequence[Partition] = (), **others: Sequence[Partition]) -> list[Partition]:
        if len(new) > 1:
            self.tries.append(len(new))
            if len(self.tries) == 1:
                raise StoreUnavailableError("gone")
        return super().transact(new=new, **others)


def decided(graph: list[Shard], leased: str, position: str) -> str:
    """Which shards get a lease, in order, if these have one; and that all begin at the position."""
    leases = leases_to_create(graph, dict.fromkeys(leased.split(), ASSIGNED), position)
    assert {lease.checkpoint for lease in leases} <= {position}
    return " ".join(sorted((lease.shard.shard_id for lease in leases), key=int))


def on_graph(graph: list[Shard], *leased: str) -> SyncedSource:
    """A source over a graph, an hour after its last sequence number."""
    synced = SyncedSource(client=GraphClient(graph))
    synced.pass_time(hours=1)
    epoch = int(GraphClient.EPOCH.timestamp())
    synced.coordinator.create_partitions({f"{STREAM}:{epoch}:{name}": {} for name in leased})
    return synced


# 10.1 Shard sync: the whole table of the reference's worked example


@pytest.mark.parametrize(
    ("leased", "at_latest", "at_trim_horizon"),
    [
        pytest.param("", "4 8 9 10", "0 1 2 3 4 5", id="no lease, but an unfiltered listing"),
        pytest.param("3 4 5", "2 6", "0 1 2", id="7"),
        pytest.param("4 5 7", "6", "0 1"),
        pytest.param("2 6", "3 4 9 10", "3 4 5", id="9"),
        pytest.param("4 9 10", "8", "0 1 2 3"),
        pytest.param("4 5 6 7", "", "", id="11"),
        pytest.param("0 1 2 3 4 5 6 7", "", "", id="11 with finished ancestors"),
        pytest.param("0 1 4 7 9 10", "", "", id="12"),
        pytest.param("1 2 3 4 5 7 9 10", "0", "0"),
        pytest.param("6 7", "4 9 10", "4 5"),
        pytest.param("8", "4 9 10", "4 5"),
        pytest.param("0", "1 4 7 9 10", "1 2 3 4 5"),
        pytest.param("7", "4 6 9 10", "0 1 4 5"),
        pytest.param("5", "4 8", "0 1 2 3 4"),
        # The library leases 5 once more at TRIM_HORIZON. A child of 5 is leased, so 5 was read: only 10 is missing.
        # It begins at the source's position: at its first record, so that nothing is lost, and nothing doubled.
        pytest.param("9", "4 8 10", "0 1 2 3 4 10", id="ours: 10 instead of 5"),
        pytest.param("4 8 9", "10", "10", id="ours: 10 instead of 5 again"),
        pytest.param("0 2 4 5", "1 3", "1 3"),
    ],
)
def test_07_09_11_12_graph_a_gets_missing_leases(leased: str, at_latest: str, at_trim_horizon: str) -> None:
    assert decided(GRAPH_A, leased, LATEST) == at_latest
    assert decided(GRAPH_A, leased, TRIM_HORIZON) == at_trim_horizon
    assert decided(GRAPH_A, leased, AT) == at_trim_horizon


@pytest.mark.parametrize(
    ("leased", "at_latest", "at_trim_horizon"),
    [
        ("", "9 10", "0 1"),
        ("5", "", ""),
        # The library leases 0 and 1 once more, and has a disabled test that wishes for 7. So do we.
        pytest.param("6", "7", "7", id="16: ours as upstream wishes"),
        # The library leases 0 and 1 once more: the sibling of what is leased is missing, and nothing else.
        pytest.param("3", "4", "4", id="ours: 4 instead of 0 and 1"),
        pytest.param("9", "10", "10", id="ours: 10 instead of 0 and 1"),
    ],
)
def test_16_graph_b_gets_missing_leases(leased: str, at_latest: str, at_trim_horizon: str) -> None:
    assert decided(GRAPH_B, leased, LATEST) == at_latest
    assert decided(GRAPH_B, leased, TRIM_HORIZON) == at_trim_horizon
    assert decided(GRAPH_B, leased, AT) == at_trim_horizon


def test_14_graph_c_gets_missing_leases() -> None:
    assert decided(GRAPH_C, "9 10", LATEST) == "1 6 7 8"
    # The library leases 0 instead of 4, and reads it once more although 5, its other child, has been worked off.
    assert decided(GRAPH_C, "9 10", TRIM_HORIZON) == "1 2 3 4"


def test_01_new_source_at_latest_leases_open_shards() -> None:
    synced = on_graph(GRAPH_A)
    result = synced.sync(initial_position=LATEST)

    assert {key.rpartition(":")[2] for key in result.created} == {"4", "8", "9", "10"}
    assert synced.client.filters == [{"Type": "AT_LATEST"}]
    # The library stores LATEST, which skips whatever arrives until somebody reads.
    now = at_timestamp(synced.clock.now())
    assert {progress["checkpoint"] for progress in (p.progress for p in synced.leases().values())} == {now}


def test_02_new_source_at_trim_horizon_leases_oldest_shards() -> None:
    synced = on_graph(GRAPH_A)
    synced.sync()

    assert set(synced.leases()) == {"0", "1", "2", "3", "4", "5"}
    assert {p.progress["checkpoint"] for p in synced.leases().values()} == {TRIM_HORIZON}
    assert synced.client.filters == [{"Type": "AT_TRIM_HORIZON"}]


@pytest.mark.parametrize(("seconds", "expected"), [(200, "4 5 6 7"), (1000, "4 8 9 10"), (50, "0 1 2 3 4 5")])
def test_04_new_source_at_timestamp_leases_shards_open_then(seconds: int, expected: str) -> None:
    synced = on_graph(GRAPH_A)
    instant = at_timestamp(GraphClient.EPOCH + timedelta(seconds=seconds))
    synced.sync(initial_position=instant)

    assert " ".join(sorted(synced.leases(), key=int)) == expected
    assert {p.progress["checkpoint"] for p in synced.leases().values()} == {instant}


def test_06_incomplete_first_listing_is_repeated() -> None:
    synced = on_graph([shard(0, 1, None, keys=(0, 69)), shard(1, 1, None, keys=(71, MAX))])

    def completed() -> None:
        if len(synced.client.filters) == 2:
            synced.client.shards = [shard(0, 1, None, keys=(0, 420)), shard(1, 1, None, keys=(421, MAX))]

    synced.client.before_listing = completed
    began = synced.clock.monotonic()

    assert len(synced.sync().created) == 2
    assert len(synced.client.filters) == 3
    assert synced.clock.monotonic() - began == 2


def test_06_persistently_incomplete_first_listing_creates_nothing() -> None:
    synced = on_graph([shard(0, 1, None, keys=(0, 69)), shard(1, 1, None, keys=(71, MAX))])

    with pytest.raises(IncompleteListingError, match="no shard covers the hash keys 70 to 70, between 0 and 1"):
        synced.sync()
    assert synced.leases() == {}


def test_17_open_parent_with_children_delays_only_its_children() -> None:
    # The library fails the whole sync, unless it is configured to ignore them.
    graph = [replace(each, ending_sequence_number=None) if each.shard_id == "3" else each for each in GRAPH_A]
    synced = on_graph(graph, "0", "1", "2", "3", "4")
    result = synced.sync()

    assert [key.rpartition(":")[2] for key in result.created] == ["5"]
    assert result.waiting == ["7"]


def test_19_closed_shard_without_children_is_skipped_at_latest() -> None:
    graph = [shard(2, 11, 102), shard(0, 11, 102), shard(1, 11, None)]

    assert decided(graph, "2", LATEST) == "1"
    # The library leaves it at TRIM_HORIZON too. It may hold records, so it is read here.
    assert decided(graph, "2", TRIM_HORIZON) == "0 1"


def test_21_next_sync_makes_up_for_a_failed_creation() -> None:
    store = FailingStore()
    synced = SyncedSource(client=GraphClient(GRAPH_A), store=store)
    synced.pass_time(hours=1)
    with pytest.raises(StoreUnavailableError):
        synced.sync(initial_position=LATEST)
    first = synced.clock.now()
    synced.pass_time(600)
    synced.sync(initial_position=LATEST)

    assert store.tries == [4, 4]
    assert set(synced.leases()) == {"4", "8", "9", "10"}
    # Both begin at the first instant: what arrived in between is not skipped.
    assert {p.progress["checkpoint"] for p in synced.leases().values()} == {at_timestamp(first)}
    assert synced.count("partitions_deleted") == 0


def test_22_leases_are_created_by_starting_number_then_name() -> None:
    assert [lease.shard.shard_id for lease in leases_to_create(GRAPH_A, {}, LATEST)] == ["4", "10", "8", "9"]


# 10.2 Shard end and parent gate


def test_24_merge_child_of_an_unleased_parent_waits() -> None:
    # The library keeps the lease and tries again, or drops it now and then for another worker. Here the parent ends,
    # nothing is lost, and the child follows with the next sync, which knows whether the other parent was read.
    synced = SyncedSource(2)
    synced.sync()
    synced.merge(0, 1)
    synced.delete(1)
    synced.work_off(0)
    assert synced.names() == "0"

    assert synced.sync().created == [synced.leases()[shard_id(1)].partition_key]
    synced.work_off(1)
    assert synced.names() == "0 1 2"


def test_26_merge_child_is_leased_once_its_second_parent_ends() -> None:
    synced = SyncedSource(2)
    synced.sync()
    synced.merge(0, 1)
    synced.work_off(0)
    assert synced.names() == "0 1"
    assert synced.sync().created == []
    synced.work_off(1)

    assert synced.names() == "0 1 2"
    assert [child.shard_id for child in synced.progress(shard_id(1)).children] == [shard_id(2)]


# 10.3 Auditor


@pytest.mark.parametrize("last", [HashKeyRange(25, MAX), HashKeyRange(30, MAX)])
def test_31_unread_range_is_a_hole(last: HashKeyRange) -> None:
    ranges = [HashKeyRange(0, 1), HashKeyRange(2, 3), HashKeyRange(4, 23), HashKeyRange(6, 23), last]

    assert first_hole(ranges) == HashKeyRange(24, last.first - 1)


def test_32_overlapping_ranges_are_no_hole() -> None:
    ranges = [HashKeyRange(24, MAX), HashKeyRange(6, 23), HashKeyRange(0, 1), HashKeyRange(24, 45), HashKeyRange(4, 23)]

    assert first_hole([*ranges, HashKeyRange(2, 3)]) is None


def test_32_range_starting_last_and_ending_early_is_no_hole() -> None:
    # The library compares the end of the range that is sorted last, and reports a hole here.
    assert first_hole([HashKeyRange(0, MAX), HashKeyRange(24, 45)]) is None


def test_33_hole_is_repaired_at_its_third_sighting() -> None:
    synced = SyncedSource(4)
    synced.sync()
    synced.delete(2)
    before = synced.engine.calls["ListShards"]

    created = []
    for _ in range(CONFIDENCE):
        assert synced.engine.calls["ListShards"] == before
        synced.pass_time(60)
        created += synced.sync(forced=False).created

    assert created == [synced.leases()[shard_id(2)].partition_key]
    assert synced.engine.calls["ListShards"] == before + 1
    assert synced.count("hash_range_holes") == 1
    summary = synced.summary(forced=False)
    assert summary is not None and summary.skipped


def test_34_different_hole_restarts_the_count() -> None:
    tracker = HoleTracker().after_check(HashKeyRange(23, 25)).after_check(HashKeyRange(23, 25))
    for _ in range(CONFIDENCE - 1):
        tracker = tracker.after_check(HashKeyRange(3, 5))
        assert not tracker.is_certain

    assert tracker.after_check(HashKeyRange(3, 5)).is_certain


def test_35_missed_sighting_restarts_the_count() -> None:
    tracker = HoleTracker().after_check(HashKeyRange(23, 25)).after_check(HashKeyRange(23, 25)).after_check(None)

    assert not tracker.after_check(HashKeyRange(23, 25)).is_certain


def test_36_fully_finished_stream_is_listed_at_the_third_check() -> None:
    synced = SyncedSource(1)
    synced.sync()
    synced.split(0)
    key = synced.hold(0)
    synced.worker.leases.complete(key)  # without children, as another system would leave it
    before = synced.engine.calls["ListShards"]

    created = []
    for _ in range(CONFIDENCE):
        assert synced.engine.calls["ListShards"] == before
        created += synced.sync(forced=False).created
    assert sorted(created) == [synced.leases()[shard_id(n)].partition_key for n in (1, 2)]


def test_37_missing_hash_ranges_are_filled_in_and_stored() -> None:
    synced = SyncedSource(5)
    synced.sync()
    for number in (0, 1):
        partition = synced.leases()[shard_id(number)]
        bare = synced.progress(shard_id(number))
        bare = replace(bare, starting_hash_key="", ending_hash_key="")
        synced.store.transact(update=[partition.with_progress(bare.to_mapping())])
    result = synced.sync()

    assert (result.created, result.hole) == ([], None)
    assert [synced.progress(shard_id(n)).ending_hash_key for n in (0, 1)] == [
        synced.shard(n).ending_hash_key for n in (0, 1)
    ]
    state = synced.state()
    assert state is not None and state.hole is None


def test_merge_waiting_for_its_second_parent_is_no_hole() -> None:
    # The library sees a hole here after the first parent's end, and lists shards without a result.
    synced = SyncedSource(2)
    synced.sync()
    synced.merge(0, 1)
    synced.work_off(0)
    before = synced.engine.calls["ListShards"]
    for _ in range(CONFIDENCE):
        summary = synced.summary(forced=False)
        assert summary is not None and summary.skipped

    assert synced.engine.calls["ListShards"] == before


# 10.6 Cleanup


def test_61_finished_shard_is_removed_once_both_children_began() -> None:
    # The library takes LATEST for under way. It is never stored here; a record must be delivered.
    synced = SyncedSource(1)
    synced.sync()
    synced.split(0)
    synced.work_off(0)
    synced.start(1, 2)
    result = synced.sync()

    assert list(result.removed.values()) == ["finished, and all its children are started"]
    assert synced.names() == "1 2"
    assert synced.sync().created == []


@pytest.mark.parametrize("started", [(), (1,), (2,)])
def test_62_finished_shard_stays_until_its_children_began(started: tuple[int, ...]) -> None:
    synced = SyncedSource(1)
    synced.sync()
    synced.split(0)
    synced.work_off(0)
    synced.start(*started)

    assert synced.sync().removed == {}
    assert synced.names() == "0 1 2"


def test_64_finished_lease_of_an_expired_shard_is_removed() -> None:
    synced = SyncedSource(1)
    synced.sync()
    synced.split(0)
    synced.work_off(0)
    synced.pass_time(hours=25)
    result = synced.sync()

    assert list(result.removed.values()) == ["finished, and the stream no longer has the shard"]
    assert synced.names() == "1 2"
    assert synced.sync().created == []


def test_64_unread_expired_shard_is_not_removed_silently() -> None:
    # The library deletes it unconditionally. What it held is lost, and that is said.
    synced = SyncedSource(1)
    synced.sync()
    synced.split(0)
    synced.pass_time(hours=25)
    result = synced.sync()

    assert list(result.lost) == [synced.leases()[shard_id(0)].partition_key]
    assert synced.leases()[shard_id(0)].is_parked
