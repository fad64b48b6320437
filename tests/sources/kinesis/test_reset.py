"""A reset decides which shards are read again and which wait: tables of cases."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.partition import PartitionStatus, new_partition
from airflow_provider_coordination.sources.kinesis.leases import ShardLease
from airflow_provider_coordination.sources.kinesis.progress import ShardKey, ShardProgress, partition_key
from airflow_provider_coordination.sources.kinesis.reset import StreamReset, plan_stream_reset
from airflow_provider_coordination.sources.kinesis.shards import Shard
from tests.support.batches import HOUR, NOON

FINISHED, OPEN = PartitionStatus.COMPLETED, PartitionStatus.UNASSIGNED
FAMILY: dict[str, tuple[str, ...]] = {
    # 0 and 1 merge into 2, which splits into 3 and 4; 5 goes its own way.
    "0": (),
    "1": (),
    "2": ("0", "1"),
    "3": ("2",),
    "4": ("2",),
    "5": (),
}


def listing(*names: str) -> list[Shard]:
    return [
        Shard(
            shard_id=name,
            parent_shard_ids=FAMILY[name],
            starting_hash_key="0",
            ending_hash_key="9",
            starting_sequence_number=f"{name}00",
            ending_sequence_number=None,
        )
        for name in names
    ]


def lease(
    name: str, status: PartitionStatus = OPEN, *, epoch: int = 0, delivered_until: datetime | None = None
) -> ShardLease:
    key = ShardKey("s", 1, name)
    [shard] = listing(name)
    progress = ShardProgress.first("s", shard, epoch=epoch, delivered_until=delivered_until)
    partition = new_partition("clicks|PARTITION", partition_key(*key), NOON).with_progress(progress.to_mapping())
    return ShardLease(key, partition.completed(NOON) if status is FINISHED else partition, progress)


def plan(*leases: ShardLease, listed: str = "012345", **options: object) -> StreamReset:
    return plan_stream_reset({each.key.shard_id: each for each in leases}, listing(*listed), **options)  # type: ignore[arg-type]


def everything() -> list[ShardLease]:
    return [*(lease(name, FINISHED) for name in "012"), *(lease(name) for name in "345")]


def created(planned: StreamReset) -> list[str]:
    return [shard.shard_id for shard in planned.create]


def test_oldest_shards_are_reread_before_their_descendants() -> None:
    planned = plan(*everything())

    assert planned.begin == ("0", "1", "5")
    assert planned.remove == ("2", "3", "4")
    assert (created(planned), planned.left) == ([], {})


def test_cleaned_up_shard_is_leased_again_while_it_exists() -> None:
    planned = plan(lease("2", FINISHED), lease("3"), lease("4"), lease("5"))

    assert (planned.begin, created(planned), planned.remove) == (("5",), ["0", "1"], ("2", "3", "4"))


def test_shards_cleaned_up_in_between_need_no_new_lease() -> None:
    planned = plan(lease("0", FINISHED), lease("1", FINISHED), lease("3"), lease("4"), lease("5"))

    assert (planned.begin, created(planned), planned.remove) == (("0", "1", "5"), [], ("3", "4"))


def test_unleased_shard_is_left_to_shard_sync() -> None:
    planned = plan(lease("0"), lease("1"), lease("5"))

    assert (planned.begin, created(planned), planned.remove) == (("0", "1", "5"), [], ())


def test_shards_missing_from_the_stream_stay_and_are_reported() -> None:
    planned = plan(lease("0", FINISHED), lease("1"), *(lease(name) for name in "2345"), listed="2345")

    assert (planned.begin, planned.remove) == (("2", "5"), ("3", "4"))
    assert planned.left["0"] == "finished, and the stream no longer has the shard"
    assert "unread records are gone" in planned.left["1"]


def test_shards_finished_before_the_instant_stay() -> None:
    old = [lease(name, FINISHED, delivered_until=NOON - HOUR) for name in "012"]
    planned = plan(*old, lease("3"), lease("4"), lease("5"), since=NOON)

    assert (planned.begin, planned.remove) == (("3", "4", "5"), ())
    assert list(planned.left) == ["0", "1", "2"]


@pytest.mark.parametrize("delivered_until", [None, NOON, NOON + HOUR])
def test_shards_with_possibly_later_records_are_reread(delivered_until: datetime | None) -> None:
    old = [lease(name, FINISHED, delivered_until=NOON - HOUR) for name in "01"]
    planned = plan(*old, lease("2", FINISHED, delivered_until=delivered_until), lease("3"), lease("4"), since=NOON)

    assert (planned.begin, planned.remove) == (("2",), ("3", "4"))


def test_ancestors_of_a_kept_shard_stay() -> None:
    planned = plan(
        lease("0", FINISHED),
        lease("2", FINISHED, delivered_until=NOON - HOUR),
        lease("3"),
        lease("4"),
        since=NOON,
    )

    assert (planned.begin, created(planned)) == (("3", "4"), [])
    assert set(planned.left) == {"0", "2"}


def test_reset_to_latest_rereads_no_finished_shard() -> None:
    planned = plan(*everything()[1:], since=NOON, unfinished_only=True)

    assert (planned.begin, created(planned), planned.remove) == (("3", "4", "5"), [], ())
    assert set(planned.left) == {"1", "2"}


def test_epoch_exceeds_every_lease_epoch() -> None:
    assert plan(lease("0", FINISHED, epoch=4), lease("1"), lease("5", epoch=7), listed="15").epoch == 8


@given(
    finished=st.sets(st.sampled_from("012345")),
    cleaned_up=st.sets(st.sampled_from("012345")),
    expired=st.sampled_from([set(), {"0"}, {"1"}, {"0", "1"}, {"0", "1", "2"}]),
    since=st.sampled_from([None, NOON]),
    hours=st.lists(st.integers(-3, 3), min_size=6, max_size=6),
)
def test_each_shard_has_one_outcome_and_parents_come_first(
    finished: set[str], cleaned_up: set[str], expired: set[str], since: datetime | None, hours: list[int]
) -> None:
    leases = [
        lease(name, FINISHED if name in finished else OPEN, delivered_until=NOON + timedelta(hours=hours[int(name)]))
        for name in FAMILY
        if name not in cleaned_up
    ]
    planned = plan(*leases, listed="".join(name for name in FAMILY if name not in expired), since=since)

    fates = [*planned.begin, *created(planned), *planned.remove, *planned.left]
    assert sorted(fates) == sorted(set(fates)) and {each.key.shard_id for each in leases} <= set(fates)
    begun = {*planned.begin, *created(planned)}
    for name in begun:
        assert not begun & {above for parent in FAMILY[name] for above in (parent, *FAMILY[parent])}
    assert not expired & {*begun, *planned.remove}
