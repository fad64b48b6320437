"""A batch starts at the end of the previous one, reports lost records, and ends at its limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_coordination.sources.kinesis.batch_reading import (
    BatchReading,
    BatchStart,
    DataLostError,
    ShardPage,
)
from airflow_provider_coordination.sources.kinesis.positions import Position
from airflow_provider_coordination.sources.kinesis.progress import SETTLING, ShardRange
from airflow_provider_coordination.sources.kinesis.records import KinesisRecord

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
CHILD = ShardRange(shard_id="c", parent_shard_ids=("p",), starting_hash_key="0", ending_hash_key="1")


def a_page(
    *numbers: int,
    arrivals: Sequence[datetime] = (),
    behind: int | None = 0,
    end: bool = False,
    read_at: datetime = NOON,
) -> ShardPage:
    when = arrivals or [NOON] * len(numbers)
    return ShardPage(
        records=[KinesisRecord(str(n), "k", arrival, b"x") for n, arrival in zip(numbers, when, strict=True)],
        millis_behind_latest=behind,
        end_of_shard=end,
        children=(CHILD,) if end else (),
        read_at=read_at,
    )


def reading_of(
    position: str,
    delivered_until: datetime | None = None,
    *,
    retention: timedelta | None = DAY,
    stop_at: datetime | None = None,
    stop_after: str | None = None,
    reads_on: bool = False,
    every: timedelta | None = None,
) -> BatchReading:
    start = BatchStart(position=position, delivered_until=delivered_until, retention=retention)
    stop = None if stop_at is None else Position(timestamp=stop_at)
    if stop_after is not None:
        stop = Position(sequence_number=stop_after)
    return BatchReading(start, inclusive=start.is_inclusive(NOON), stop=stop, reads_on=reads_on, every=every)


def numbers(reading: BatchReading, *pages: ShardPage) -> list[int]:
    return [int(number) for records in reading.of(pages) for number in records.sequence_numbers.to_pylist()]


# What was lost


def test_existing_record_proves_no_loss() -> None:
    reading = reading_of("5", NOON - 2 * DAY)
    assert numbers(reading, a_page(5, 6, behind=9), a_page()) == [6]
    assert (reading.gap, reading.end) == (None, "6")


def test_missing_record_after_the_retention_is_a_gap() -> None:
    since, arrival = NOON - 2 * DAY, NOON - HOUR
    with pytest.raises(DataLostError) as error:
        numbers(reading_of("5", since), a_page(8, arrivals=[arrival]))
    gap = error.value.gap
    assert (gap.after, gap.before, gap.since, gap.until, gap.found_at) == ("5", "8", since, arrival, NOON)
    assert "trimmed" in gap.reason


def test_reading_continues_behind_a_gap_if_allowed() -> None:
    reading = reading_of("5", NOON - 2 * DAY, reads_on=True)
    assert numbers(reading, a_page(8, behind=1), a_page()) == [8]
    assert reading.gap is not None and reading.end == "8"


def test_gap_is_found_on_an_empty_shard() -> None:
    reading = reading_of("5", NOON - 2 * DAY, reads_on=True)
    assert numbers(reading, a_page()) == []
    assert reading.gap is not None
    assert (reading.gap.before, reading.gap.until) == (None, NOON - DAY)
    assert (reading.end, reading.read_until) == ("5", NOON)


def test_empty_pages_before_the_first_record_prove_nothing() -> None:
    reading = reading_of("5", NOON - 2 * DAY)
    assert numbers(reading, a_page(behind=9), a_page(behind=9), a_page(5, 6), a_page()) == [6]


def test_checked_idle_shard_lost_nothing() -> None:
    reading = reading_of("5", NOON - HOUR)
    assert not reading._inclusive
    assert numbers(reading, a_page(8), a_page()) == [8]
    assert reading.gap is None


def test_record_is_checked_long_before_it_can_expire() -> None:
    # The service's clock decides; ours may be behind it.
    reading = reading_of("5", NOON - DAY + HOUR)
    assert reading._inclusive
    assert numbers(reading, a_page(8, read_at=NOON), a_page()) == [8]
    assert reading.gap is None


def test_number_of_unknown_age_is_checked() -> None:
    with pytest.raises(DataLostError) as error:
        numbers(reading_of("5"), a_page(8))
    assert error.value.gap.since is None


def test_unchecked_record_is_not_missing() -> None:
    # Our clock is half a retention behind the service's, so nothing seemed to be at stake.
    start = BatchStart(position="5", delivered_until=NOON - DAY - HOUR, retention=DAY)
    inclusive = start.is_inclusive(NOON - DAY)
    reading = BatchReading(start, inclusive=inclusive)
    assert not inclusive
    assert numbers(reading, a_page(6), a_page()) == [6]
    assert reading.gap is None


def test_unknown_retention_defaults_to_the_minimum() -> None:
    with pytest.raises(DataLostError):
        numbers(reading_of("5", NOON - DAY - HOUR, retention=None), a_page(8))


@pytest.mark.parametrize("position", ["TRIM_HORIZON", "AT_TIMESTAMP:2025-12-01T00:00:00.000000Z"])
def test_pause_beyond_retention_is_a_gap_without_a_record(position: str) -> None:
    with pytest.raises(DataLostError, match="nothing was read for longer than records are kept"):
        numbers(reading_of(position, NOON - 2 * DAY), a_page(8))
    for delivered_until in (None, NOON - HOUR):
        assert numbers(reading_of(position, delivered_until), a_page(8), a_page()) == [8]


def test_longer_retention_keeps_records_longer() -> None:
    reading = reading_of("TRIM_HORIZON", NOON - 2 * DAY, retention=7 * DAY)
    assert numbers(reading, a_page(8), a_page()) == [8]


# Inside an aggregate


def test_partly_read_aggregate_is_returned_with_its_count() -> None:
    reading = reading_of("5:2", NOON)
    assert numbers(reading, a_page(5, 6), a_page()) == [5, 6]
    assert reading.after == 2


def test_missing_aggregate_was_not_read_completely() -> None:
    with pytest.raises(DataLostError, match="with its unread user records"):
        numbers(reading_of("5:2", NOON), a_page(8))
    reading = reading_of("5:2", NOON, reads_on=True)
    assert numbers(reading, a_page(8), a_page()) == [8]
    assert reading.after is None


# The end of the shard, and of the batch


def test_closed_shard_ends_its_batch_with_children() -> None:
    reading = reading_of("TRIM_HORIZON")
    assert numbers(reading, a_page(end=True)) == []
    assert reading.end_of_shard and reading.children == (CHILD,)
    assert (reading.end, reading.read_until) == ("TRIM_HORIZON", None)


def test_only_an_empty_page_without_lag_is_the_tip() -> None:
    assert numbers(reading_of("1", NOON), a_page(2), a_page(behind=1), a_page(behind=None), a_page(3), a_page()) == [
        2,
        3,
    ]


def test_batch_stops_before_records_at_or_after_the_stop() -> None:
    stop = NOON
    arrivals = [stop - HOUR, stop - timedelta(microseconds=1), stop, stop - HOUR]
    reading = reading_of("TRIM_HORIZON", stop_at=stop)
    assert numbers(reading, a_page(1, 2, 3, 4, arrivals=arrivals, end=True)) == [1, 2]
    assert reading.at_stop and not reading.end_of_shard and reading.children == ()
    assert (reading.end, reading.read_until) == ("2", stop)


def test_later_page_may_reach_the_stop() -> None:
    reading = reading_of("TRIM_HORIZON", stop_at=NOON)
    assert numbers(reading, a_page(1, arrivals=[NOON - HOUR]), a_page(2, arrivals=[NOON])) == [1]
    assert (reading.at_stop, reading.end) == (True, "1")


@pytest.mark.parametrize(("past", "at_stop"), [(SETTLING, True), (SETTLING - timedelta(milliseconds=1), False)])
def test_drained_shard_stops_by_the_service_clock(past: timedelta, at_stop: bool) -> None:
    reading = reading_of("TRIM_HORIZON", stop_at=NOON)
    numbers(reading, a_page(read_at=NOON + past))
    assert reading.at_stop is at_stop


def test_shard_ending_before_the_stop_is_at_its_end() -> None:
    reading = reading_of("TRIM_HORIZON", stop_at=NOON)
    assert numbers(reading, a_page(1, arrivals=[NOON - HOUR], end=True)) == [1]
    assert reading.end_of_shard and not reading.at_stop


@pytest.mark.parametrize(
    ("begins", "at_stop"), [("2026-01-01T12:00:00.000000Z", True), ("2026-01-01T11:59:59.999999Z", False)]
)
def test_batch_beginning_at_the_stop_is_empty(begins: str, at_stop: bool) -> None:
    assert reading_of(f"AT_TIMESTAMP:{begins}", stop_at=NOON).starts_at_stop is at_stop


def test_batch_stops_after_a_sequence_number() -> None:
    reading = reading_of("1", NOON, stop_after="10")
    arrivals = [NOON - HOUR, NOON, NOON]
    assert numbers(reading, a_page(9, 10, 11, arrivals=arrivals, end=True)) == [9, 10]
    assert reading.at_stop and not reading.end_of_shard and reading.children == ()
    assert (reading.end, reading.read_until) == ("10", NOON)


def test_stop_record_ends_the_batch_without_a_successor() -> None:
    reading = reading_of("1", NOON, stop_after="10")
    assert numbers(reading, a_page(9, behind=5), a_page(10)) == [9, 10]
    assert reading.at_stop


def test_stop_between_records_ends_before_the_next_one() -> None:
    reading = reading_of("1", NOON, stop_after="10")
    assert numbers(reading, a_page(9, behind=5), a_page(12)) == [9]
    assert (reading.at_stop, reading.end) == (True, "9")


def test_future_stop_leaves_the_batch_at_the_tip() -> None:
    reading = reading_of("1", NOON, stop_after="10")
    assert numbers(reading, a_page(9), a_page()) == [9]
    assert not reading.at_stop


@pytest.mark.parametrize(
    ("begins", "at_stop"), [("10", True), ("11", True), ("9", False), ("AT_SEQUENCE_NUMBER:10", False)]
)
def test_batch_beginning_behind_the_stop_record_is_empty(begins: str, at_stop: bool) -> None:
    assert reading_of(begins, stop_after="10").starts_at_stop is at_stop


def test_batch_may_include_its_start_record() -> None:
    reading = reading_of("AT_SEQUENCE_NUMBER:5")
    assert numbers(reading, a_page(5, 6, behind=9), a_page()) == [5, 6]
    assert (reading.gap, reading.end) == (None, "6")


def test_missing_first_record_counts_as_trimmed() -> None:
    with pytest.raises(DataLostError, match="is trimmed, or never existed"):
        numbers(reading_of("AT_SEQUENCE_NUMBER:5"), a_page(7))
    reading = reading_of("AT_SEQUENCE_NUMBER:5", stop_after="6", reads_on=True)
    assert numbers(reading, a_page(7)) == []
    assert reading.at_stop and reading.gap is not None and reading.gap.before == "7"


def test_nonexistent_first_record_is_no_loss_without_trimming() -> None:
    reading = reading_of("AT_SEQUENCE_NUMBER:5", NOON - HOUR)
    assert numbers(reading, a_page(7), a_page()) == [7]
    assert reading.gap is None


def test_throttled_reads_are_counted_over_all_pages() -> None:
    reading = reading_of("1", NOON)
    page = ShardPage(millis_behind_latest=None, read_at=NOON, throttled=2)
    list(reading.of([page, page]))
    assert (reading.throttled, reading.read_until) == (4, None)


# Intervals


def test_batch_ends_with_the_interval_of_its_first_record() -> None:
    reading = reading_of("TRIM_HORIZON", every=HOUR)
    pages = [a_page(2, behind=500), a_page(3, 4, arrivals=[NOON + HOUR / 2, NOON + HOUR])]
    assert numbers(reading, *pages) == [2, 3]
    assert (reading.end, reading.read_until) == ("3", NOON + HOUR / 2)
    assert (reading.next_iterator, reading.millis_behind_latest, reading.at_stop) == (None, None, False)


def test_batch_is_cut_before_a_page_of_the_next_interval() -> None:
    reading = reading_of("TRIM_HORIZON", every=HOUR)
    assert numbers(reading, a_page(2, behind=500), a_page(4, arrivals=[NOON + HOUR], end=True)) == [2]
    assert (reading.end, reading.end_of_shard, reading.children) == ("2", False, ())


def test_stop_within_the_interval_ends_the_batch_as_a_stop() -> None:
    stop = NOON + HOUR / 2
    reading = reading_of("TRIM_HORIZON", every=HOUR, stop_at=stop)
    assert numbers(reading, a_page(2, 3, 4, arrivals=[NOON, stop, NOON + 2 * HOUR])) == [2]
    assert reading.at_stop and reading.read_until == stop


def test_records_of_one_interval_are_one_batch() -> None:
    reading = reading_of("TRIM_HORIZON", every=HOUR)
    assert numbers(reading, a_page(2, 3, arrivals=[NOON, NOON + HOUR - timedelta(milliseconds=1)]), a_page()) == [2, 3]
    assert reading.read_until == NOON


@pytest.mark.parametrize(("seconds", "taken"), [(1, [1, 2, 3]), (3, [1, 2, 3]), (4, [1]), (3600, [1])])
def test_batch_ends_before_a_record_of_an_earlier_interval(seconds: int, taken: list[int]) -> None:
    reading = reading_of("TRIM_HORIZON", every=HOUR)
    arrivals = [NOON, NOON - timedelta(seconds=seconds), NOON + timedelta(seconds=1)]
    assert numbers(reading, a_page(1, 2, 3, arrivals=arrivals)) == taken
