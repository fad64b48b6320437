"""The progress of a shard's partition changes only in the allowed order."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.errors import ProgressChangedError
from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON, at_timestamp, position_order
from airflow_provider_coordination.sources.kinesis.progress import (
    Gap,
    ProgressFormatError,
    ShardProgress,
    ShardRange,
    new_batch_id,
    start_of_child,
)
from tests.support.batches import HOUR, NOON
from tests.support.batches import a_batch as batch

FRESH = ShardProgress(
    stream="clicks",
    shard_id="shard-1",
    parent_shard_ids=("shard-0",),
    starting_hash_key="0",
    ending_hash_key="9",
)
CHILD = ShardRange(shard_id="shard-2", parent_shard_ids=("shard-1",), starting_hash_key="0", ending_hash_key="4")


def test_new_shard_is_read_from_its_earliest_record() -> None:
    assert FRESH.landed_position == TRIM_HORIZON
    assert not FRESH.is_finished


def test_landing_moves_only_the_reading_position() -> None:
    progress = FRESH.landing(batch(TRIM_HORIZON, "5")).landing(batch("5", "9"))

    assert (progress.landed_position, progress.checkpoint) == ("9", TRIM_HORIZON)


def in_delivery(progress: ShardProgress, batch_id: str) -> ShardProgress:
    return progress.in_delivery(batch_id, "a set")


def test_acknowledgment_moves_the_checkpoint_to_the_batch_end() -> None:
    progress = FRESH.landing(batch(TRIM_HORIZON, "5")).landing(batch("5", "9")).acknowledged("batch-to-5")

    assert (progress.checkpoint, progress.landed_position, progress.delivered_until) == ("5", "9", NOON)


def test_discontinuous_batch_is_refused() -> None:
    with pytest.raises(ProgressChangedError, match="starts at '6', but the landed batches end at '5'"):
        FRESH.landing(batch(TRIM_HORIZON, "5")).landing(batch("6", "9"))


def three_batches() -> ShardProgress:
    later = [batch("5", "9", read_until=NOON + HOUR), batch("9", "12", read_until=NOON + 2 * HOUR)]
    return FRESH.landing(batch(TRIM_HORIZON, "5")).landing(later[0]).landing(later[1])


def test_acknowledgment_after_a_gap_waits_for_earlier_ones() -> None:
    progress = three_batches().acknowledged("batch-to-9")

    assert (progress.checkpoint, progress.delivered_until, len(progress.landed)) == (TRIM_HORIZON, None, 3)
    assert [b.acknowledged for b in progress.landed] == [False, True, False]


def test_checkpoint_stops_at_the_first_unacknowledged_batch() -> None:
    progress = three_batches().acknowledged("batch-to-9").acknowledged("batch-to-5")

    assert (progress.checkpoint, progress.delivered_until) == ("9", NOON + HOUR)
    assert [b.batch_id for b in progress.landed] == ["batch-to-12"]


@given(st.permutations([5, 9, 12]))
def test_batches_acknowledged_in_any_order_all_count(order: list[int]) -> None:
    progress = three_batches()
    seen = []
    for end in order:
        progress = progress.acknowledged(f"batch-to-{end}")
        seen.append(position_order(progress.checkpoint))

    assert seen == sorted(seen)
    assert (progress.checkpoint, progress.landed, progress.delivered_until) == ("12", (), NOON + 2 * HOUR)


def test_rejected_batch_holds_the_checkpoint_until_redelivery() -> None:
    waiting = three_batches().in_delivery("batch-to-5", "a set").in_delivery("batch-to-9", "another")
    rejected = waiting.rejected("batch-to-5").acknowledged("batch-to-9")

    assert rejected.checkpoint == TRIM_HORIZON
    first = rejected.landed[0]
    assert (first.acknowledgment_set, first.redeliver, first.acknowledged) == (None, True, False)
    assert rejected.in_delivery("batch-to-5", "a third").acknowledged("batch-to-5").checkpoint == "9"


def test_batch_waits_for_its_latest_acknowledgment_set() -> None:
    progress = three_batches().in_delivery("batch-to-9", "first").in_delivery("batch-to-9", "second")

    assert [b.acknowledgment_set for b in progress.landed] == [None, "second", None]
    assert progress.batch("batch-to-9") == progress.landed[1] and progress.batch("batch-to-8") is None


@pytest.mark.parametrize("act", [ShardProgress.acknowledged, ShardProgress.rejected, in_delivery])
def test_only_pending_batches_change_delivery_state(
    act: Callable[[ShardProgress, str], ShardProgress],
) -> None:
    progress = three_batches().acknowledged("batch-to-9").acknowledged("batch-to-5")
    waits_after_a_gap = three_batches().acknowledged("batch-to-9")

    with pytest.raises(ProgressChangedError, match="'batch-to-5' is not pending delivery; pending are: 'batch-to-12'"):
        act(progress, "batch-to-5")
    with pytest.raises(ProgressChangedError, match="pending are: 'batch-to-5', 'batch-to-12'"):
        act(waits_after_a_gap, "batch-to-9")
    with pytest.raises(ProgressChangedError, match="pending are: none"):
        act(FRESH, "batch-to-5")


def test_batch_without_read_until_keeps_the_known_time() -> None:
    progress = FRESH.landing(batch(TRIM_HORIZON, "5")).landing(batch("5", "9", read_until=None))

    assert progress.acknowledged("batch-to-5").acknowledged("batch-to-9").delivered_until == NOON


def test_delivered_end_finishes_the_shard() -> None:
    ended = FRESH.landing(batch(TRIM_HORIZON, "5", is_last=True), (CHILD,))

    assert not ended.is_finished
    assert ended.acknowledged("batch-to-5").is_finished
    assert ended.acknowledged("batch-to-5").children == (CHILD,)


def test_early_delivered_end_does_not_finish_the_shard() -> None:
    ended = FRESH.landing(batch(TRIM_HORIZON, "5")).landing(batch("5", "9", is_last=True), (CHILD,))

    assert not ended.acknowledged("batch-to-9").is_finished
    assert ended.acknowledged("batch-to-9").acknowledged("batch-to-5").is_finished


def test_batch_without_records_finishes_an_empty_shard() -> None:
    end = batch(TRIM_HORIZON, TRIM_HORIZON, records=0, bytes=0, file="", is_last=True, batch_id="end")

    assert FRESH.landing(end).acknowledged("end").is_finished


def test_shard_end_refuses_further_landings() -> None:
    ended = FRESH.landing(batch(TRIM_HORIZON, "5", is_last=True))

    with pytest.raises(ProgressChangedError, match="after the end of the shard"):
        ended.landing(batch("5", "9"))


def test_children_come_only_with_the_shard_end() -> None:
    with pytest.raises(ValueError, match="does not end the shard"):
        FRESH.landing(batch(TRIM_HORIZON, "5"), (CHILD,))


def test_batch_cannot_end_before_it_starts() -> None:
    with pytest.raises(ValueError, match="ends at 9, before its start 10"):
        replace(FRESH, landed=(batch("10", "9"),))


ACTS = [ShardProgress.acknowledged, ShardProgress.rejected, in_delivery]
INSTANTS = st.none() | st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC))


@given(
    steps=st.lists(st.tuples(st.integers(0, 10**30), INSTANTS), max_size=4),
    acts=st.lists(st.sampled_from(ACTS), max_size=4),
    ends=st.booleans(),
)
def test_progress_survives_json(
    steps: list[tuple[int, datetime | None]],
    acts: list[Callable[[ShardProgress, str], ShardProgress]],
    ends: bool,
) -> None:
    progress = FRESH
    position = 0
    for step, read_until in steps:
        position += step
        name = f"batch-{len(progress.landed)}"
        progress = progress.landing(
            batch(progress.landed_position, str(position), read_until=read_until, batch_id=name)
        )
    if ends:
        progress = progress.landing(batch(progress.landed_position, progress.landed_position, is_last=True), (CHILD,))
    for landed, act in zip(progress.landed, acts, strict=False):
        progress = act(progress, landed.batch_id)

    assert ShardProgress.from_mapping(json.loads(json.dumps(progress.to_mapping()))) == progress


def test_instants_of_other_zones_are_stored_in_utc() -> None:
    eastern = NOON.astimezone(timezone(timedelta(hours=-5)))
    stored = write_settings(batch("1", "2", read_until=eastern))

    assert stored["read_until"] == "2026-01-01T12:00:00.000000Z"


STORED = FRESH.landing(batch(TRIM_HORIZON, "5")).to_mapping()


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param({}, id="empty"),
        pytest.param({"stream": "clicks"}, id="fields missing"),
        pytest.param(STORED | {"sub_checkpoint": 3}, id="a field of a newer version"),
        pytest.param(STORED | {"landed": [{}]}, id="a batch without fields"),
        pytest.param(STORED | {"landed": [STORED["landed"][0] | {"end": "x"}]}, id="no position"),
        pytest.param(STORED | {"landed": [STORED["landed"][0] | {"acknowledged": "yes"}]}, id="no truth value"),
        pytest.param(STORED | {"landed": 5}, id="no list"),
        pytest.param(STORED | {"landed": [7]}, id="no object"),
        pytest.param(STORED | {"checkpoint": "LATEST"}, id="a checkpoint that is no position"),
        pytest.param(STORED | {"delivered_until": "yesterday"}, id="no instant"),
        pytest.param(STORED | {"parent_shard_ids": None}, id="no parents"),
    ],
)
def test_untrustworthy_stored_progress_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(ProgressFormatError, match="stored progress"):
        ShardProgress.from_mapping(stored)


def test_batch_landed_before_acknowledgment_sets_waits_for_none() -> None:
    added = {"acknowledgment_set", "acknowledged", "redeliver"}
    former = {name: value for name, value in STORED["landed"][0].items() if name not in added}

    assert ShardProgress.from_mapping(STORED | {"landed": [former]}) == FRESH.landing(batch(TRIM_HORIZON, "5"))


LINEAGES = st.lists(
    st.one_of(
        st.tuples(st.just("land"), st.integers(0, 3)),
        st.tuples(st.just("deliver"), st.integers(0, 5)),
        st.tuples(st.just("acknowledge"), st.integers(0, 5)),
        st.tuples(st.just("reject"), st.integers(0, 5)),
        st.tuples(st.just("reset"), st.sampled_from([TRIM_HORIZON, at_timestamp(NOON), "8", "11:2", "12"])),
    ),
    min_size=1,
    max_size=30,
)


@given(LINEAGES)
def test_only_a_reset_moves_the_checkpoint_back(
    lineage: list[tuple[str, Any]],
) -> None:
    progress = FRESH
    names = iter(range(100))
    for act, value in lineage:
        before = progress
        if act == "land":
            at = position_order(progress.landed_position)[0]
            end = str(max(at, 5) + value)
            progress = progress.landing(batch(progress.landed_position, end, batch_id=f"{next(names)}"))
        elif act == "reset":
            progress = progress.restarted(value)
            assert (progress.checkpoint, progress.landed, progress.epoch) == (value, (), before.epoch + 1)
            continue
        elif open_batches := [b.batch_id for b in progress.landed if not b.acknowledged]:
            name = open_batches[value % len(open_batches)]
            change = {
                "deliver": lambda p, n: p.in_delivery(n, f"set of {n}"),
                "acknowledge": ShardProgress.acknowledged,
                "reject": ShardProgress.rejected,
            }[act]
            progress = change(progress, name)
        assert position_order(progress.checkpoint) >= position_order(before.checkpoint)
        assert progress.epoch == before.epoch
        ends = [progress.checkpoint, *(b.end for b in progress.landed)]
        assert [b.start for b in progress.landed] == ends[:-1]
        assert not progress.landed or not progress.landed[0].acknowledged


def test_reset_keeps_shard_identity_and_losses() -> None:
    gap = Gap(after="5", before="9", since=None, until=NOON, found_at=NOON, reason="it was trimmed")
    ended = three_batches().with_gap(gap).measured(100.0)

    reset = ended.restarted("7", epoch=50, delivered_until=NOON)

    assert reset == replace(
        FRESH, checkpoint="7", epoch=50, ordinal=3, delivered_until=NOON, gaps=(gap,), throughput=ended.throughput
    )
    assert reset.restarted(epoch=20).epoch == 51


FINISHED = replace(FRESH, is_ended=True, epoch=3)
GAP = Gap(after="5", before=None, since=None, until=NOON, found_at=NOON, reason="it was trimmed")


@pytest.mark.parametrize(
    ("parents", "start"),
    [
        ([], (TRIM_HORIZON, 0)),
        ([replace(FINISHED, epoch=0, checkpoint=at_timestamp(NOON))], (TRIM_HORIZON, 0)),
        ([replace(FINISHED, checkpoint="7")], (TRIM_HORIZON, 3)),
        ([FINISHED], (TRIM_HORIZON, 3)),
        ([replace(FINISHED, checkpoint=at_timestamp(NOON))], (at_timestamp(NOON), 3)),
        (
            [replace(FINISHED, checkpoint=at_timestamp(NOON + HOUR)), replace(FINISHED, checkpoint=at_timestamp(NOON))],
            (at_timestamp(NOON), 3),
        ),
        ([replace(FINISHED, checkpoint="7"), replace(FINISHED, checkpoint=at_timestamp(NOON))], (TRIM_HORIZON, 3)),
        (
            [replace(FINISHED, checkpoint="7", epoch=2), replace(FINISHED, checkpoint=at_timestamp(NOON))],
            (at_timestamp(NOON), 3),
        ),
        ([FINISHED.skipping(GAP)], (TRIM_HORIZON, 3)),
    ],
    ids=[
        "nothing is known of the parents",
        "the source began at an instant",
        "the parent gave records",
        "the parent was empty",
        "the parent was set to an instant and gave nothing since",
        "so were both parents",
        "one of two gave records",
        "one of two was passed by, since it had ended before the instant",
        "the parent skipped lost data and gave nothing since",
    ],
)
def test_child_begins_at_trim_horizon_or_its_parents_instant(
    parents: list[ShardProgress], start: tuple[str, int]
) -> None:
    assert start_of_child(parents) == start


def test_each_landing_has_its_own_batch_id() -> None:
    one, other = (new_batch_id("clicks:17:shard-1") for _ in range(2))
    assert one.startswith("shard-1-") and one != other


@pytest.mark.parametrize(
    ("start", "asked", "begins"),
    [
        (None, TRIM_HORIZON, TRIM_HORIZON),
        ("AT_SEQUENCE_NUMBER:50", TRIM_HORIZON, "AT_SEQUENCE_NUMBER:50"),
        ("AT_SEQUENCE_NUMBER:50", at_timestamp(NOON), "AT_SEQUENCE_NUMBER:50"),
        ("AT_SEQUENCE_NUMBER:50", "49", "AT_SEQUENCE_NUMBER:50"),
        ("AT_SEQUENCE_NUMBER:50", "50", "50"),
        (at_timestamp(NOON), TRIM_HORIZON, at_timestamp(NOON)),
        (at_timestamp(NOON), at_timestamp(NOON - timedelta(hours=1)), at_timestamp(NOON)),
        (at_timestamp(NOON), at_timestamp(NOON + timedelta(hours=1)), at_timestamp(NOON + timedelta(hours=1))),
        (at_timestamp(NOON), "7", "7"),
    ],
)
def test_reset_shard_starts_within_its_bounds(start: str | None, asked: str, begins: str) -> None:
    progress = replace(ShardProgress.first("s", CHILD), start=start)
    assert progress.restarted(asked).checkpoint == begins
