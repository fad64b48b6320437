"""What a shard's partition remembers, and in which order it may change."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.settings import write_settings
from airflow_provider_coordination.sources.kinesis.progress import (
    TRIM_HORIZON,
    ChildShard,
    LandedBatch,
    ProgressFormatError,
    ShardProgress,
    batch_id,
    position_order,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FRESH = ShardProgress(
    stream="clicks",
    shard_id="shard-1",
    parent_shard_ids=("shard-0",),
    starting_hash_key="0",
    ending_hash_key="9",
)
CHILD = ChildShard(shard_id="shard-2", parent_shard_ids=("shard-1",), starting_hash_key="0", ending_hash_key="4")


def batch(start: str, end: str, **changes: Any) -> LandedBatch:
    landed = LandedBatch(
        batch_id=f"batch-to-{end}",
        start=start,
        end=end,
        file=f"{end}.parquet",
        records=10,
        bytes=100,
        end_of_shard=False,
        read_until=NOON,
        fencing_token=3,
    )
    return replace(landed, **changes)


def test_a_new_shard_is_read_from_its_earliest_record_on() -> None:
    assert FRESH.landed_position == TRIM_HORIZON
    assert not FRESH.is_finished


def test_landing_moves_the_reading_position_and_not_the_checkpoint() -> None:
    progress = FRESH.landing(batch(TRIM_HORIZON, "5")).landing(batch("5", "9"))

    assert (progress.landed_position, progress.checkpoint) == ("9", TRIM_HORIZON)


def test_delivery_moves_the_checkpoint_to_the_end_of_the_batch() -> None:
    progress = FRESH.landing(batch(TRIM_HORIZON, "5")).landing(batch("5", "9")).delivered("batch-to-5")

    assert (progress.checkpoint, progress.landed_position, progress.delivered_until) == ("5", "9", NOON)


def test_a_batch_that_does_not_continue_what_is_landed_is_refused() -> None:
    with pytest.raises(ValueError, match="starts at 6, but what is landed ends at 5"):
        FRESH.landing(batch(TRIM_HORIZON, "5")).landing(batch("6", "9"))


def test_a_batch_cannot_be_delivered_before_the_ones_before_it() -> None:
    progress = FRESH.landing(batch(TRIM_HORIZON, "5")).landing(batch("5", "9"))

    with pytest.raises(ValueError, match="not the next to deliver, which is 'batch-to-5'"):
        progress.delivered("batch-to-9")


def test_a_batch_cannot_be_delivered_twice() -> None:
    progress = FRESH.landing(batch(TRIM_HORIZON, "5")).delivered("batch-to-5")

    with pytest.raises(ValueError, match="which is none"):
        progress.delivered("batch-to-5")


def test_a_batch_that_does_not_say_until_when_keeps_what_is_known() -> None:
    progress = FRESH.landing(batch(TRIM_HORIZON, "5")).landing(batch("5", "9", read_until=None))

    assert progress.delivered("batch-to-5").delivered("batch-to-9").delivered_until == NOON


def test_a_shard_is_finished_when_its_end_is_delivered() -> None:
    ended = FRESH.landing(batch(TRIM_HORIZON, "5", end_of_shard=True), (CHILD,))

    assert not ended.is_finished
    assert ended.delivered("batch-to-5").is_finished
    assert ended.delivered("batch-to-5").children == (CHILD,)


def test_a_shard_that_ended_empty_is_finished_by_a_batch_without_records() -> None:
    end = batch(TRIM_HORIZON, TRIM_HORIZON, records=0, bytes=0, file="", end_of_shard=True, batch_id="end")

    assert FRESH.landing(end).delivered("end").is_finished


def test_nothing_lands_after_the_end_of_a_shard() -> None:
    ended = FRESH.landing(batch(TRIM_HORIZON, "5", end_of_shard=True))

    with pytest.raises(ValueError, match="after the end of the shard"):
        ended.landing(batch("5", "9"))


def test_children_come_with_the_end_of_a_shard_only() -> None:
    with pytest.raises(ValueError, match="does not end the shard"):
        FRESH.landing(batch(TRIM_HORIZON, "5"), (CHILD,))


def test_a_batch_cannot_end_before_it_starts() -> None:
    with pytest.raises(ValueError, match="ends at 9, before its start 10"):
        batch("10", "9")


INSTANTS = st.none() | st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC))


@given(
    steps=st.lists(st.tuples(st.integers(0, 10**30), INSTANTS), max_size=4),
    deliveries=st.integers(0, 4),
    ends=st.booleans(),
)
def test_progress_survives_being_stored_as_json(
    steps: list[tuple[int, datetime | None]], deliveries: int, ends: bool
) -> None:
    progress = FRESH
    position = 0
    for step, read_until in steps:
        position += step
        progress = progress.landing(batch(progress.landed_position, str(position), read_until=read_until))
    if ends:
        progress = progress.landing(
            batch(progress.landed_position, progress.landed_position, end_of_shard=True), (CHILD,)
        )
    for landed in progress.landed[:deliveries]:
        progress = progress.delivered(landed.batch_id)

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
        pytest.param(STORED | {"landed": 5}, id="no list"),
        pytest.param(STORED | {"landed": [7]}, id="no object"),
        pytest.param(STORED | {"checkpoint": "LATEST"}, id="a checkpoint that is no position"),
        pytest.param(STORED | {"delivered_until": "yesterday"}, id="no instant"),
        pytest.param(STORED | {"parent_shard_ids": None}, id="no parents"),
    ],
)
def test_a_stored_progress_that_cannot_be_trusted_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(ProgressFormatError, match="stored progress"):
        ShardProgress.from_mapping(stored)


def test_positions_compare_as_numbers_after_trim_horizon() -> None:
    positions = ["10", "49" + "0" * 54, "9", TRIM_HORIZON, "0"]

    assert sorted(positions, key=position_order) == [TRIM_HORIZON, "0", "9", "10", "49" + "0" * 54]


@pytest.mark.parametrize("position", ["", "LATEST", "-1", "1.5", " 7", "٣"])
def test_what_is_no_position_is_refused(position: str) -> None:
    with pytest.raises(ValueError, match="is neither TRIM_HORIZON nor a sequence number"):
        position_order(position)


def test_a_batch_id_depends_on_everything_that_identifies_the_range_and_on_nothing_else() -> None:
    identity = ("lake|clicks", "clicks:17:shard-1", TRIM_HORIZON, "5")
    others = [
        ("other", *identity[1:]),
        (identity[0], "clicks:18:shard-1", *identity[2:]),
        (*identity[:2], "1", "5"),
        (*identity[:3], "6"),
    ]

    assert batch_id(*identity) == batch_id(*identity)
    assert batch_id(*identity).startswith("shard-1-")
    assert len({batch_id(*identity), *(batch_id(*other) for other in others)}) == 5
