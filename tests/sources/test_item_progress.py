"""The progress of a partition of items follows the ends of its acknowledgment sets."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.errors import ProgressChangedError, SourceError
from airflow_provider_coordination.coordination.partition import (
    MAX_KEY_BYTES,
    Partition,
    check_partition_key,
    new_partition,
)
from airflow_provider_coordination.sources.item_kind import ItemBatches
from airflow_provider_coordination.sources.items import (
    FailedItem,
    ItemPosition,
    PartitionProgress,
    new_batch_id,
    split_key,
)
from airflow_provider_coordination.sources.kinds import SourceBatches, landed_progress, progress_of
from airflow_provider_coordination.sources.landed import LandedBatch, ProgressFormatError
from tests.support.batches import NOON, a_batch
from tests.support.depth import examples
from tests.support.items import named

THREE = PartitionProgress(kind="s3", items=named("a", "b", "c"))


def batch(start: str, end: str, **changes: Any) -> LandedBatch:
    return a_batch(start, end, **{"batch_id": f"to-{end}", "is_last": end == "3", **changes})


def landed(*ends: str, failed: tuple[FailedItem, ...] = (), of: PartitionProgress = THREE) -> PartitionProgress:
    for end in ends:
        of = of.landing(batch(of.landed_position, end), failed if end == ends[-1] else ())
    return of


def partition(progress: PartitionProgress, key: str = "p") -> Partition:
    return new_partition("s|PARTITION", key, NOON).with_progress(progress.to_mapping())


def settle(progress: PartitionProgress, batch_id: str, key: str = "p") -> Any:
    return ItemBatches().delivered(partition(progress, key), batch_id, lambda key: None)


# Positions

POSITIONS = st.builds(ItemPosition, st.integers(0, 10**6), st.text())


@settings(max_examples=examples(50))
@given(POSITIONS)
def test_position_survives_its_text(position: ItemPosition) -> None:
    assert ItemPosition.parse(str(position)) == position


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "²", "x:1", "0x1:"])
def test_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(ProgressFormatError, match="is not '<item>' or '<item>:<position within it>'"):
        ItemPosition.parse(text)


def test_batch_names_differ_between_landings() -> None:
    one, other = (new_batch_id("s3") for _ in range(2))
    assert one != other and one.startswith("s3-")


# Progress

FAILED = st.builds(FailedItem, item=st.integers(0, 2), reason=st.text(), within=st.text())
PROGRESSES = st.builds(
    PartitionProgress,
    kind=st.text(min_size=1),
    items=st.tuples(st.dictionaries(st.text(), st.text() | st.integers() | st.none())),
    checkpoint=POSITIONS.map(str),
    landed=st.tuples(st.just(batch("", "1"))),
    is_ended=st.booleans(),
    failed=st.tuples(FAILED),
    epoch=st.integers(0),
    reread_seconds=st.none() | st.floats(0, 1e6),
    reads_left=st.none() | st.integers(0),
    waited=st.integers(0),
    split_of=st.none() | st.text(),
    begin=POSITIONS.map(str),
)


@settings(max_examples=examples(20))
@given(PROGRESSES)
def test_progress_survives_storage(progress: PartitionProgress) -> None:
    assert PartitionProgress.from_mapping(json.loads(json.dumps(progress.to_mapping()))) == progress


@pytest.mark.parametrize(
    "wrong", [{}, {"kind": "s3"}, {"kind": "s3", "items": [1]}, {"kind": "s3", "items": [], "x": 1}]
)
def test_progress_of_another_kind_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProgressFormatError, match="restore it, or upgrade"):
        PartitionProgress.from_mapping(wrong)


def test_only_the_next_batch_can_be_landed() -> None:
    with pytest.raises(ProgressChangedError, match="starts at '2', but the landed batches end at '1'"):
        landed("1").landing(batch("2", "3"))
    with pytest.raises(ProgressChangedError, match="starts after the end"):
        landed("3").landing(batch("3", "4"))


@given(st.permutations(["to-1", "to-2", "to-3"]))
def test_checkpoint_advances_contiguously_in_any_acknowledgment_order(order: list[str]) -> None:
    progress, done = landed("1", "2", "3"), set()
    for batch_id in order:
        progress = progress.acknowledged(batch_id)
        done.add(batch_id)
        whole = next((n for n in range(3) if f"to-{n + 1}" not in done), 3)
        assert progress.checkpoint == (str(whole) if whole else "")
        assert (progress.items_done, progress.is_finished) == (whole, whole == 3)
    assert progress.landed_position == "3"


def test_delivered_batch_cannot_be_delivered_or_rejected_again() -> None:
    progress = landed("1", "2").acknowledged("to-2")
    for change in (progress.acknowledged, progress.rejected):
        with pytest.raises(ProgressChangedError, match="batch 'to-2' is not pending delivery; pending are: 'to-1'"):
            change("to-2")


def test_batches_are_numbered_as_landed() -> None:
    progress = landed("1", "2").acknowledged("to-1").landing(batch("2", "3"))
    assert [each.ordinal for each in progress.landed] == [2, 3]
    assert progress.acknowledged("to-2").acknowledged("to-3").ordinal == 3


def test_ordinals_are_never_reused_after_reset_or_removal() -> None:
    used = landed("1", "2", "3")
    again = used.restarted().landing(batch("", "1"))
    removed_and_back = replace(THREE, epoch=used.epoch + 2).landing(batch("", "1"))
    assert used.ordinal < again.ordinal < removed_and_back.ordinal


def test_restarted_partition_makes_other_batches() -> None:
    used = replace(landed("1", "3", failed=(FailedItem(item=1, reason="no"),)), waited=4)
    for_next_read = used.for_next_read()
    assert for_next_read == replace(THREE, epoch=1, ordinal=2)
    assert used.restarted(1_800_000_000).epoch == 1_800_000_000 and replace(used, epoch=9).restarted(3).epoch == 10


def test_only_reading_decrements_the_reads_left() -> None:
    again = replace(THREE, reread_seconds=60.0, reads_left=2)
    assert [again.for_next_read().reads_left, again.restarted().reads_left] == [1, 2]
    assert replace(again, reads_left=None).for_next_read().will_be_reread
    assert not again.for_next_read().for_next_read().will_be_reread


def test_unreadable_items_are_excluded_from_the_read_ones() -> None:
    progress = landed("3", failed=(FailedItem(item=1, reason="no"),))
    assert progress.items_read == named("a", "c")


def test_progress_names_its_source_kind() -> None:
    assert landed_progress(THREE.to_mapping()) == progress_of(partition(THREE)) == THREE
    assert landed_progress({}) is None
    with pytest.raises(SourceError, match="names no kind of source"):
        progress_of(new_partition("s|PARTITION", "p", NOON))


# The ends of acknowledgment sets


def test_last_batch_finishes_a_partition() -> None:
    before = landed("1", "3")
    first = settle(before, "to-1")
    assert (first.moved, first.finished, first.create) == (True, False, {})
    assert before.acknowledged("to-1") == PartitionProgress.from_mapping(first.progress)
    last = settle(before.acknowledged("to-1"), "to-3")
    assert (last.finished, last.reopen_after, last.create) == (True, None, {})
    assert PartitionProgress.from_mapping(last.progress).checkpoint == "3"


def test_early_delivered_batch_does_not_move_the_checkpoint() -> None:
    settled = settle(landed("1", "3"), "to-3")
    assert (settled.moved, settled.finished) == (False, False)


def test_unreadable_items_become_partitions_of_their_own() -> None:
    failed = (FailedItem(item=0, reason="no", within="77"), FailedItem(item=2, reason="no"))
    settled = settle(landed("3", failed=failed), "to-3")
    assert settled.finished and [key.rpartition(".")[0] for key in settled.create] == ["p#0", "p#2"]
    first, second = (PartitionProgress.from_mapping(progress) for progress in settled.create.values())
    assert (first.items, first.checkpoint, first.begin, first.split_of) == (named("a"), "0:77", "0:77", "p")
    assert (second.items, second.checkpoint, second.landed) == (named("c"), "", ())
    assert first.landing(batch("0:77", "1")).restarted().checkpoint == "0:77", "the rest was delivered elsewhere"


def test_reread_partition_rests_and_begins_a_new_epoch() -> None:
    again = replace(THREE, reread_seconds=60.0, reads_left=1)
    settled = settle(landed("3", of=again), "to-3")
    assert (settled.finished, settled.reopen_after) == (True, timedelta(seconds=60))
    after = PartitionProgress.from_mapping(settled.progress)
    assert (after.epoch, after.reads_left, after.checkpoint, after.is_ended) == (1, 0, "", False)
    assert settle(landed("3", of=after), "to-3").reopen_after is None


def test_repeatedly_unreadable_item_becomes_a_new_partition_each_time() -> None:
    again = replace(THREE, reread_seconds=60.0)
    failed = (FailedItem(item=1, reason="no"),)
    first = settle(landed("3", failed=failed, of=again), "to-3")
    second = settle(landed("3", failed=failed, of=PartitionProgress.from_mapping(first.progress)), "to-3")
    assert len({*first.create, *second.create}) == 2


@pytest.mark.parametrize("key", ["k" * MAX_KEY_BYTES, "é" * (MAX_KEY_BYTES // 2), "k" * (MAX_KEY_BYTES - 2)])
def test_longest_key_can_be_split(key: str) -> None:
    keys = [split_key(key, item) for item in (0, 0, 10**6)]
    assert len(set(keys)) == 3, "nobody else has such a name, nor has the same item of another time"
    for each in keys:
        check_partition_key(each)


def test_rejected_batch_is_redelivered_from_its_file() -> None:
    progress = landed("1", "3").in_delivery("to-1", "set-1").in_delivery("to-3", "set-3")
    settled = ItemBatches().undelivered(partition(progress), "to-1")
    after = PartitionProgress.from_mapping(settled.progress)
    assert (settled.finished, settled.moved, settled.pending) == (False, False, ["set-3"])
    assert [(b.redeliver, b.acknowledgment_set) for b in after.landed] == [(True, None), (False, "set-3")]


def test_source_ledger_finds_item_batches() -> None:
    ledger, progress = SourceBatches(), landed("1", "3").to_mapping()
    progress = dict(ledger.in_delivery(progress, "to-1", "set-1"))
    assert ledger.set_of(progress, "to-1") == "set-1"
    assert ledger.set_of(progress, "to-3") is None and ledger.set_of(progress, "no such") is None
    assert ledger.pending(progress) == ["set-1"]
