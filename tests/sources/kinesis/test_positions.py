"""Positions in a shard: their validity and order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.sources.kinesis.positions import (
    TRIM_HORIZON,
    Position,
    at_sequence_number,
    at_timestamp,
    is_sequence_number,
    parse_position,
    position_order,
)
from tests.support.batches import HOUR, NOON

INSTANTS = st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC))
NUMBERS = st.integers(0, 10**60).map(str)
POSITIONS = st.one_of(
    st.just(Position()),
    st.builds(Position, timestamp=INSTANTS),
    st.builds(Position, sequence_number=NUMBERS, is_before=st.booleans()),
    st.builds(Position, sequence_number=NUMBERS, sub_sequence_number=st.integers(0, 10**6)),
)


def test_positions_order_like_kcl_with_numeric_numbers() -> None:
    positions = [
        *(
            at_timestamp(NOON - HOUR),
            at_timestamp(NOON),
            TRIM_HORIZON,
            "0",
            "9",
            at_sequence_number("10"),
            "10:0",
            "10:9",
            "10:10",
            "10",
            "11:0",
        ),
        "49" + "0" * 54,
    ]

    assert sorted(set(positions), key=position_order) == positions
    assert position_order("007") == position_order("7")


@given(POSITIONS)
def test_position_survives_its_text(position: Position) -> None:
    assert parse_position(str(position)) == position
    follows_a_record = position.sequence_number is not None and not position.is_before
    assert is_sequence_number(str(position)) == follows_a_record


@given(POSITIONS, POSITIONS)
def test_positions_compare_by_meaning(one: Position, other: Position) -> None:
    def order(p: Position) -> tuple[object, ...]:
        if p.timestamp is not None:
            return (0, p.timestamp)
        if p.sequence_number is None:
            return (1,)
        whole = p.sub_sequence_number is None
        return (2, int(p.sequence_number), not p.is_before, whole, p.sub_sequence_number or 0)

    assert (position_order(str(one)) < position_order(str(other))) == (order(one) < order(other))


@pytest.mark.parametrize(
    "position",
    [
        *("", "LATEST", "SHARD_END", "-1", "1.5", " 7", "٣", "7:", ":7", "7:-1", "7:1:2"),
        *("AT_SEQUENCE_NUMBER", "AT_SEQUENCE_NUMBER:", "AT_SEQUENCE_NUMBER:7:1"),
        *("AT_TIMESTAMP", "AT_TIMESTAMP:", "AT_TIMESTAMP:now", "AT_TIMESTAMP:2026-01-01"),
    ],
)
def test_invalid_position_is_refused(position: str) -> None:
    message = "is invalid; give TRIM_HORIZON, AT_TIMESTAMP:<instant in UTC>, <sequence number>"
    with pytest.raises(ValueError, match=message):
        position_order(position)


def test_instant_requires_a_zone_and_is_stored_in_utc() -> None:
    assert at_timestamp(NOON.astimezone(timezone(-5 * HOUR))) == "AT_TIMESTAMP:2026-01-01T12:00:00.000000Z"
    assert parse_position(at_timestamp(NOON + timedelta(microseconds=1))).timestamp == NOON + timedelta(microseconds=1)
    with pytest.raises(ValueError, match="has no time zone"):
        at_timestamp(datetime(2026, 1, 1))
