"""Intervals: what is counted in them, when one is complete, and who reports it; once and in order, whoever dies."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.intervals import (
    FOLDED_AT_ONCE,
    OPEN_INTERVALS,
    TALLY_FAMILY,
    Counts,
    Delivered,
    IntervalLedger,
    Standing,
    Taken,
    check_length,
    first_interval_from,
    start_of_interval,
)
from airflow_provider_coordination.coordination.partition import PartitionStatus, format_instant, new_partition
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.clock import ManualClock

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def hour(number: float) -> datetime:
    return MIDNIGHT + number * HOUR


@dataclass
class Airflow:
    """What matters of Airflow: a task instance succeeds once, with its event, and only while it runs."""

    states: dict[str, str] = field(default_factory=dict)
    events: list[tuple[datetime, int]] = field(default_factory=list)

    def succeed(self, by: str, taken: Taken) -> bool:
        """Return whether the success was accepted; Airflow writes state and event in one transaction."""
        if self.states.get(by) != "running":
            return False
        self.states[by] = "success"
        self.events.append((taken.counts.start, taken.counts.records))
        return True

    def standing(self, me: str) -> Any:
        def of(taken: Taken) -> Standing:
            if any(start == taken.counts.start for start, _ in self.events):
                return Standing.REPORTED
            is_other = taken.by != me
            return Standing.RUNNING if is_other and self.states.get(taken.by) == "running" else Standing.OVER

        return of


class Source:
    """A source whose batches are acknowledged, and its ledger."""

    def __init__(self) -> None:
        self.store = InMemoryStore()
        self.clock = ManualClock(MIDNIGHT)
        self.coordinator = SourceCoordinator(self.store, "clicks", "owner", clock=self.clock)
        self.coordinator.initialize()
        self.view = self.coordinator.view
        self.ledger = IntervalLedger(self.view)
        self.airflow = Airflow()
        self.lost: list[str] = []
        self.tallies = 0

    def tally(self, at: datetime, records: int = 1, **facts: int) -> None:
        """Count a batch, as the end of its set does."""
        self.tallies += 1
        counts = Counts(start=start_of_interval(at, HOUR), records=records, batches=1, **facts)
        family, key = self.view.family(TALLY_FAMILY), f"batch-{self.tallies}"
        self.store.create([new_partition(family, key, counts.start).with_progress(counts.to_mapping())])

    def take(self, by: str, until: datetime | None, *, is_finished: bool = False) -> Taken | None:
        self.airflow.states[by] = "running"
        return self.ledger.take(
            by, self.airflow.standing(by), Delivered(until, is_finished), lambda start, end: self.lost
        )

    def report(self, until: datetime, by: str = "reporter") -> list[tuple[datetime, int]]:
        """Report what is complete, one task instance each; return the events."""
        number = len(self.airflow.events)
        while (taken := self.take(f"{by}-{len(self.airflow.states)}", until)) is not None:
            assert self.airflow.succeed(taken.by, taken)
        return self.airflow.events[number:]


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def counting(source: Source) -> Source:
    """A source whose hours are counted from midnight on."""
    source.ledger.begin(HOUR, MIDNIGHT)
    return source


@pytest.mark.parametrize(
    ("every", "is_valid"),
    [
        (timedelta(minutes=1), True),
        (timedelta(minutes=15), True),
        (HOUR, True),
        (timedelta(days=1), True),
        (timedelta(minutes=7), False),
        (timedelta(hours=5), False),
        (timedelta(seconds=30), False),
        (timedelta(days=2), False),
    ],
)
def test_length_divides_a_day(every: timedelta, is_valid: bool) -> None:
    assert (check_length(every) is None) is is_valid


def test_first_interval_begins_at_or_after_an_instant() -> None:
    assert first_interval_from(hour(3), HOUR) == hour(3)
    assert first_interval_from(hour(3.1), HOUR) == hour(4)


def test_source_without_counting_jobs_has_nothing_to_report(source: Source) -> None:
    source.tally(hour(0))
    assert source.take("a", hour(5)) is None
    assert source.ledger.get() is None


def test_interval_is_reported_at_its_end_and_not_before(counting: Source) -> None:
    counting.tally(hour(0.5), 3)
    counting.tally(hour(0.9), 4)
    assert counting.report(hour(1) - timedelta(microseconds=1)) == []
    assert counting.report(hour(1)) == [(hour(0), 7)]
    assert counting.report(hour(1.5)) == []


def test_interval_without_records_is_reported(counting: Source) -> None:
    counting.tally(hour(2.5), 5)
    assert counting.report(hour(3.5)) == [(hour(0), 0), (hour(1), 0), (hour(2), 5)]


def test_counts_begin_after_what_was_landed_before(source: Source) -> None:
    source.ledger.begin(HOUR, hour(1.25))
    source.tally(hour(1.5), 9)
    source.tally(hour(2.5), 2)
    assert source.report(hour(3)) == [(hour(2), 2)]


def test_new_source_begins_with_its_earliest_record(source: Source) -> None:
    source.ledger.begin(HOUR, None)
    source.tally(hour(7.5), 2)
    assert source.take("a", None) is None
    assert source.report(hour(8.5)) == [(hour(7), 2)]


def test_new_source_without_records_begins_with_the_present_interval(source: Source) -> None:
    source.ledger.begin(HOUR, None)
    assert source.report(hour(7.5)) == []
    assert source.report(hour(9)) == [(hour(7), 0), (hour(8), 0)]


def test_finished_source_ends_with_its_last_record(counting: Source) -> None:
    counting.tally(hour(1.5), 2)
    for number in range(2):
        taken = counting.take(f"a{number}", None, is_finished=True)
        assert taken is not None and counting.airflow.succeed(taken.by, taken)
    assert counting.take("b", None, is_finished=True) is None
    assert counting.airflow.events == [(hour(0), 0), (hour(1), 2)]


def test_another_length_begins_after_what_is_landed(counting: Source) -> None:
    counting.tally(hour(0.5))
    counting.report(hour(1))
    counting.tally(hour(1.5), 4)
    counting.ledger.begin(HOUR / 2, hour(1.6))
    counting.tally(hour(2.1), 6)
    assert counting.report(hour(2.5)) == [(hour(2), 6)]


def test_same_length_keeps_the_ledger(counting: Source) -> None:
    counting.tally(hour(0.5))
    counting.report(hour(1))
    counting.ledger.begin(HOUR, hour(9))
    counting.tally(hour(1.5), 4)
    assert counting.report(hour(2)) == [(hour(1), 4)]


def test_losses_are_named_with_their_interval(counting: Source) -> None:
    counting.lost = ["shard-1: (1, 2)"]
    taken = counting.take("a", hour(1))
    assert taken is not None and taken.lost == ("shard-1: (1, 2)",)


def test_taker_that_runs_is_waited_for(counting: Source) -> None:
    taken = counting.take("a", hour(2))
    assert taken is not None
    assert counting.take("b", hour(2)) is None
    assert counting.airflow.succeed("a", taken)
    assert counting.report(hour(2)) == [(hour(1), 0)]


def test_interval_of_a_dead_taker_keeps_its_counts(counting: Source) -> None:
    counting.tally(hour(0.5), 3)
    assert counting.take("a", hour(1)) is not None
    counting.airflow.states["a"] = "failed"
    counting.tally(hour(0.6), 4)
    assert counting.report(hour(1)) == [(hour(0), 3)]
    ledger = counting.ledger.get()
    assert ledger is not None and (ledger.late_records, ledger.late[0].records) == (4, 4)


def test_former_taker_that_runs_again_takes_the_next_interval(counting: Source) -> None:
    assert counting.take("a", hour(2)) is not None
    counting.airflow.states["a"] = "up_for_retry"
    assert counting.report(hour(1)) == [(hour(0), 0)]
    again = counting.take("a", hour(2))
    assert again is not None and again.counts.start == hour(1)


def test_cleared_taker_does_not_report_its_interval_again(counting: Source) -> None:
    assert counting.report(hour(1)) == [(hour(0), 0)]
    by = next(iter(counting.airflow.states))
    assert counting.take(by, hour(1)) is None


def test_stale_taker_is_refused_by_the_ledger(counting: Source) -> None:
    """It read the ledger, and another one took the interval before it could write."""
    assert counting.take("a", hour(1)) is not None
    counting.airflow.states["a"] = "up_for_retry"
    stolen: list[Taken | None] = []

    def standing(taken: Taken) -> Standing:
        if not stolen:
            stolen.append(None)
            stolen[0] = counting.take("b", hour(1))
        return counting.airflow.standing("a")(taken)

    counting.airflow.states["a"] = "queued"
    again = counting.ledger.take("a", standing, Delivered(hour(1)), lambda start, end: [])
    assert stolen[0] is not None and stolen[0].by == "b"
    assert again is None


def test_late_records_are_reported_as_corrections(counting: Source) -> None:
    counting.report(hour(2))
    counting.tally(hour(0.5), 3)
    counting.tally(hour(0.7), 4)
    counting.tally(hour(1.5), 5)
    corrections: list[Taken] = []

    def standing(taken: Taken) -> Standing:
        return Standing.REPORTED if taken in corrections else Standing.OVER

    assert counting.ledger.take_correction("dead", standing) is not None
    for by in "abc":
        taken = counting.ledger.take_correction(by, standing)
        corrections += [] if taken is None else [taken]
    assert [(each.counts.start, each.counts.records) for each in corrections] == [(hour(0), 7), (hour(1), 5)]
    assert counting.report(hour(3)) == [(hour(2), 0)]


def test_open_intervals_are_bounded_and_counted_all_the_same(counting: Source) -> None:
    for number in range(OPEN_INTERVALS + 5):
        counting.tally(hour(number), number)
    assert counting.ledger.fold() is not None
    ledger = counting.ledger.get()
    assert ledger is not None and len(ledger.open) == OPEN_INTERVALS
    events = counting.report(hour(OPEN_INTERVALS + 5))
    assert events == [(hour(number), number) for number in range(OPEN_INTERVALS + 5)]


def test_many_batches_are_counted_once(counting: Source) -> None:
    for _ in range(2 * FOLDED_AT_ONCE + 7):
        counting.tally(hour(0.5), 2)
    assert counting.report(hour(1)) == [(hour(0), 2 * (2 * FOLDED_AT_ONCE + 7))]
    assert counting.store.count_by_status(counting.view.family(TALLY_FAMILY))["UNASSIGNED"] == 0  # type: ignore[index]


def test_acknowledged_batch_leaves_a_tally_with_its_facts(source: Source) -> None:
    source.ledger.begin(HOUR, MIDNIGHT)
    source.coordinator.create_partitions({"p": {}})
    source.coordinator.leases.acquire(1)
    sets = AcknowledgmentSets(source.coordinator)
    facts = {"interval": format_instant(hour(0)), "records": 8, "bytes": 80, "epoch": 0}
    begun = sets.begin("p", "b", ["lake"], timeout=HOUR, sinks=["lake"], batch=facts)
    sets.delivered_each([(begun, ["lake"])], {begun.set_id: {"dead_letters": 2, "late": 1}})
    found = source.ledger.fold()
    assert found is not None
    (counts,) = found[1].open
    assert (counts.records, counts.bytes, counts.batches, counts.dead_letters, counts.late) == (8, 80, 1, 2, 1)
    assert not counts.is_reread


def test_counts_of_records_that_a_reset_reads_again_say_so(source: Source) -> None:
    source.ledger.begin(HOUR, MIDNIGHT)
    source.coordinator.create_partitions({"p": {}})
    source.coordinator.leases.acquire(1)
    sets = AcknowledgmentSets(source.coordinator)
    facts = {"interval": format_instant(hour(0)), "records": 8, "epoch": int(hour(0.5).timestamp())}
    begun = sets.begin("p", "b", ["lake"], timeout=HOUR, sinks=["lake"], batch=facts)
    sets.delivered(begun, ["lake"])
    taken = source.take("a", hour(1))
    assert taken is not None and taken.counts.is_reread


def test_forgotten_source_has_no_counts(counting: Source) -> None:
    counting.tally(hour(0.5))
    counting.ledger.forget()
    assert counting.ledger.get() is None
    counting.ledger.begin(HOUR, MIDNIGHT)
    assert counting.report(hour(1)) == [(hour(0), 0)]


def test_rejected_batch_leaves_no_tally(source: Source) -> None:
    source.ledger.begin(HOUR, MIDNIGHT)
    source.coordinator.create_partitions({"p": {}})
    source.coordinator.leases.acquire(1)
    sets = AcknowledgmentSets(source.coordinator)
    begun = sets.begin("p", "b", ["check"], timeout=HOUR, batch={"interval": format_instant(hour(0)), "records": 8})
    sets.release(begun.set_id, "check", positive=False, reason="wrong")
    found = source.ledger.fold()
    assert found is not None and not found[1].open


@pytest.mark.parametrize("seed", range(10))
def test_events_are_once_and_in_order_whoever_dies(seed: int) -> None:
    """Reporters die before and after their success, are retried and cleared, and stand still while others work."""
    chance = random.Random(seed)
    source, sent = Source(), dict.fromkeys(range(60), 0)
    source.ledger.begin(HOUR, MIDNIGHT)
    frozen: list[Taken] = []
    for number in sent:
        for _ in range(chance.randrange(4)):
            records = chance.randrange(1, 9)
            source.tally(hour(number + chance.random()), records)
            sent[number] += records
        for _ in range(chance.randrange(3)):
            _one_turn(source, chance, hour(number + 1), frozen)
    for taken in frozen:
        source.airflow.states[taken.by] = "failed"  # Airflow has noticed
    for _ in range(200):
        _one_turn(source, chance, hour(60), None)
    assert source.airflow.events == [(hour(number), records) for number, records in sent.items()]


def _one_turn(source: Source, chance: random.Random, until: datetime, frozen: list[Taken] | None) -> None:
    """Let a task instance try to report.

    :param frozen: those that stand still between taking and success; None if none does any more.
    """
    known = [by for by, state in source.airflow.states.items() if state != "running"]
    is_again = known and chance.random() < 0.3
    by = chance.choice(known) if is_again else f"reporter-{len(source.airflow.states)}"
    taken = source.take(by, until)
    if taken is None:
        source.airflow.states[by] = "skipped"
    elif chance.random() < 0.4:
        if frozen is not None and chance.random() < 0.3:
            frozen.append(taken)
        else:
            source.airflow.states[by] = chance.choice(["up_for_retry", "failed"])
            assert not source.airflow.succeed(by, taken)
    else:
        assert source.airflow.succeed(by, taken)
    if frozen and chance.random() < 0.3:
        back = frozen.pop()
        if chance.random() < 0.5:
            source.airflow.states[back.by] = "failed"
        source.airflow.succeed(back.by, back)


def test_counted_adds_tallies_without_writing(counting: Source) -> None:
    counting.tally(hour(0.5), 3)
    assert counting.take("a", hour(1)) is not None
    counting.tally(hour(1.5), 4)
    counting.tally(hour(0.6), 5)
    before = counting.ledger.get()
    found = counting.ledger.counted(10)
    assert found is not None and before is not None
    ledger, is_exact = found
    assert [(each.start, each.records) for each in ledger.open] == [(hour(1), 4)]
    assert [(each.start, each.records) for each in ledger.late] == [(hour(0), 5)]
    assert is_exact and counting.ledger.get() == before
    assert counting.ledger.counted(2) is not None and not counting.ledger.counted(2)[1]


def test_counted_adds_no_tally_twice(counting: Source) -> None:
    counting.tally(hour(0.5), 3)
    kept = counting.store.query(counting.view.family(TALLY_FAMILY), PartitionStatus.UNASSIGNED)
    counting.ledger.fold()
    counting.store.create(kept)  # as if its deletion was not seen yet
    found = counting.ledger.counted(10)
    assert found is not None and [each.records for each in found[0].open] == [3]
