"""The summary of a stored progress works for every writer."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.partition import PARKED_UNTIL
from airflow_provider_coordination.sources.items import FailedItem, PartitionProgress
from airflow_provider_coordination.sources.kinds import (
    Inspection,
    inspect_partition,
    landed_facts,
    lost,
    open_loss,
    sets_waited_for,
    unreadable_items,
)
from airflow_provider_coordination.sources.kinesis.positions import at_timestamp
from airflow_provider_coordination.sources.kinesis.progress import Gap, ShardProgress
from tests.support.batches import a_batch, a_shard
from tests.support.depth import examples
from tests.support.partitions import NOW, a_partition

MINUTE = timedelta(minutes=1)
SHARD = replace(a_shard("shardId-0"), checkpoint="100", delivered_until=NOW - MINUTE, throughput=12.5)
ITEMS = PartitionProgress(kind="s3", items=tuple({"key": str(n)} for n in range(4)))


def inspection_of(progress: ShardProgress | PartitionProgress) -> Inspection:
    return inspect_partition(a_partition("p", **progress.to_mapping()), NOW)


def test_shard_inspection_has_its_position_and_lag() -> None:
    waiting = SHARD.landing(a_batch("100", "120")).landing(a_batch("120", "140"))
    assert inspection_of(waiting) == Inspection(
        kind="kinesis", position="100", lag=60.0, landed_batches=2, landed_records=20, throughput=12.5
    )


@pytest.mark.parametrize(
    ("progress", "lag"),
    [
        (replace(SHARD, delivered_until=None), None),
        (replace(SHARD, delivered_until=None, owed_since=NOW - 2 * MINUTE), 120.0),
        (replace(SHARD, delivered_until=None, checkpoint=at_timestamp(NOW - 3 * MINUTE)), 180.0),
        (replace(SHARD, delivered_until=None, checkpoint="TRIM_HORIZON"), None),
        (replace(SHARD, delivered_until=NOW + MINUTE), 0.0),
    ],
)
def test_shard_lag_comes_from_its_progress(progress: ShardProgress, lag: float | None) -> None:
    assert inspection_of(progress).lag == lag


def test_open_loss_belongs_to_the_parked_shard() -> None:
    gap = Gap(after="100", before="200", since=None, until=None, found_at=NOW, reason="trimmed")
    stopped = a_partition("p", **SHARD.with_gap(gap).to_mapping())
    assert open_loss(stopped) is None
    loss, remedy = open_loss(stopped.resting(PARKED_UNTIL)) or ("", "")
    assert loss == str(gap) and "on_data_loss='earliest'" in remedy
    read_on = SHARD.with_gap(gap).landing(a_batch("100", "220"))
    assert open_loss(a_partition("p", **read_on.to_mapping()).resting(PARKED_UNTIL)) is None
    assert open_loss(a_partition("p", **ITEMS.to_mapping()).resting(PARKED_UNTIL)) is None


def test_completed_partition_has_no_lag() -> None:
    partition = a_partition("p", **SHARD.to_mapping()).completed(NOW)
    assert (inspect_partition(partition, NOW).lag, inspect_partition(partition, NOW).throughput) == (None, None)


def test_items_inspection_counts_finished_items() -> None:
    assert inspection_of(ITEMS) == Inspection(kind="s3", items_done=0, items=4)
    begun = replace(ITEMS, checkpoint="2:line 7").landing(a_batch("2:line 7", "3"))
    assert inspection_of(begun) == Inspection(
        kind="s3", position="2:line 7", items_done=2, items=4, landed_batches=1, landed_records=10
    )


def test_batch_inspection_names_its_acknowledgment_set() -> None:
    batches = [
        a_batch("100", "110", acknowledged=True),
        a_batch("110", "120", acknowledgment_set="a set"),
        a_batch("120", "130", redeliver=True),
        a_batch("130", "140"),
    ]
    partition = a_partition("p", **replace(SHARD, landed=tuple(batches)).to_mapping())
    assert [batch.state for batch in landed_facts(partition)] == ["acknowledged", "waiting", "rejected", "landed"]
    assert sets_waited_for(partition) == ["a set"]
    assert sets_waited_for(a_partition("p", acknowledgment_set="of the whole")) == ["of the whole"]


def test_losses_and_unreadable_items_are_listed() -> None:
    gap = Gap(after="1", before="9", since=None, until=NOW, found_at=NOW, reason="trimmed")
    assert lost(a_partition("p", **SHARD.with_gap(gap).to_mapping())) == [str(gap)]
    failed = replace(ITEMS, failed=(FailedItem(item=2, reason="not JSON"),))
    assert unreadable_items(a_partition("p", **failed.to_mapping())) == [(2, "not JSON")]


def test_progress_of_unknown_kind_has_an_empty_inspection() -> None:
    assert inspect_partition(a_partition("p", cursor=7), NOW) == Inspection()


def test_unreadable_progress_is_reported() -> None:
    unreadable = replace(a_partition("p"), unreadable_progress="{")
    assert inspect_partition(unreadable, NOW) == Inspection(is_readable=False)
    assert not inspect_partition(a_partition("p", kind=7), NOW).is_readable
    assert not inspect_partition(a_partition("p", kind="s3", items="many"), NOW).is_readable
    assert not inspect_partition(a_partition("p", kind="kinesis", checkpoint=7), NOW).is_readable


NAMES = sorted({*SHARD.to_mapping(), *ITEMS.to_mapping(), "acknowledgment_set"})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["item", "reason", "end"]), inner),
    max_leaves=4,
)


@settings(max_examples=examples(50))
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6))
@example({"kind": "kinesis", "checkpoint": "AT_TIMESTAMP:1e9", "throughput": 10**400})
def test_inspection_never_fails_on_stored_progress(progress: dict[str, Any]) -> None:
    partition = a_partition("p", **progress)
    inspect_partition(partition, NOW)
    landed_facts(partition), lost(partition), unreadable_items(partition), sets_waited_for(partition)
