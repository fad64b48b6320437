"""A thousand simulated hours of a stream: each hour is reported once, in order, at its end, with exact counts.

Some records arrive out of order, by hours. One counts in its hour if that was not reported yet, and else as late.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from airflow_provider_coordination.coordination.intervals import (
    Delivered,
    IntervalLedger,
    Standing,
    Taken,
    start_of_interval,
)
from airflow_provider_coordination.sources.kinesis.progress import parse_partition_key
from airflow_provider_coordination.sources.reset import kind_of_stored
from airflow_provider_coordination.sources.reset_targets import Target
from airflow_provider_coordination.sources.watermarks import lost_between, watermark_of
from tests.spark.test_watermark_histories import TimedHistory
from tests.support.depth import examples
from tests.support.fleet import PHASES
from tests.support.history import STREAM

HOUR = timedelta(hours=1)
HOURS = examples(50)
ACTIONS = ("send", "send", "send", "late", "idle", "split", "merge", "die", "lose", "start", "stop", "sync")


class LateHistory(TimedHistory):
    """A history with records that arrive out of order.

    :param folder: an empty folder.
    """

    def __init__(self, folder: Path, shards: int) -> None:
        super().__init__(folder, shards, completes=HOUR)
        self.arrivals = {}
        self.late: dict[str, datetime] = {}
        self.sync()

    def send_late(self, by: timedelta) -> None:
        """Send a record that has arrived earlier, but after the others of its shard."""
        event = f"late/{len(self.sent)}"
        with patch.object(self.clock, "_now", self.clock.now() - by):
            put = self.client.put_record(StreamName=STREAM, Data=event.encode(), PartitionKey=event)
        at = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": put["SequenceNumber"]}
        iterator = self.client.get_shard_iterator(StreamName=STREAM, ShardId=put["ShardId"], **at)["ShardIterator"]
        [record] = self.client.get_records(ShardIterator=iterator, Limit=1)["Records"]
        self.sent.append(event)
        self.late[event] = self.arrivals[event] = record["ApproximateArrivalTimestamp"]

    def stop_all(self) -> None:
        for worker in list(self.workers.values()):
            self.stop(worker)


class Reports:
    """The events of a stream's hours, as task instances report them that may die."""

    def __init__(self, history: LateHistory, chance: random.Random) -> None:
        self.history, self.chance = history, chance
        self.ledger = IntervalLedger(history.look.view)
        self.events: list[Taken] = []
        self.early: list[str] = []
        self.instances = 0

    def report(self, *, may_die: bool = True) -> None:
        """Let task instances report what is complete, until one finds nothing or dies."""
        while True:
            watermark = watermark_of(self.history.look.view)
            if watermark is None:
                return
            self.instances += 1
            taken = self.ledger.take(
                f"reporter-{self.instances}",
                self._standing,
                Delivered(watermark.until, watermark.is_finished),
                partial(lost_between, self.history.look.view),
            )
            if taken is None or (may_die and self.chance.random() < 0.2):
                return
            self.events.append(taken)
            self.early += self._undelivered(taken.counts.start)

    def _standing(self, taken: Taken) -> Standing:
        return Standing.REPORTED if taken in self.events else Standing.OVER

    def _undelivered(self, start: datetime) -> list[str]:
        """Return the records of an hour that are not delivered, or an hour that is not over."""
        delivered = self.history.delivered
        if self.history.clock.now() < start + HOUR:
            return [f"{start} is not over"]
        due = self.history.arrivals.items() - self.history.late.items()
        return [event for event, at in due if start <= at < start + HOUR and event not in delivered]


@pytest.mark.integration
@pytest.mark.parametrize("seed", [1])
def test_hours_are_reported_once_in_order_with_exact_counts(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    history = LateHistory(tmp_path, 2)
    reports = Reports(history, chance)
    first = start_of_interval(history.clock.now(), HOUR)
    for hour in range(HOURS):
        end = first + (hour + 1) * HOUR
        while history.clock.now() < end:
            _something_happens(history, chance)
            reports.report()
            history.clock.advance(chance.choice([20, 900, 2400, 3600]))
    history.settle()
    reports.report(may_die=False)
    in_time = history.arrivals.items() - history.late.items()
    least = Counter(start_of_interval(at, HOUR) for _, at in in_time)
    most = least + Counter(start_of_interval(at, HOUR) for at in history.late.values())
    begun = reports.events[0].counts.start
    starts = [begun + number * HOUR for number in range(len(reports.events))]
    assert reports.early == []
    assert first - HOUR <= begun <= min(least)
    assert [each.counts.start for each in reports.events] == starts
    counted = {each.counts.start: each.counts.records for each in reports.events}
    assert [(s, least[s], counted[s], most[s]) for s in starts if not least[s] <= counted[s] <= most[s]] == []
    assert starts[-1] >= first + (HOURS - 2) * HOUR, "none is missing"
    ledger = reports.ledger.get()
    assert ledger is not None
    assert sum(counted.values()) + ledger.late_records == sum(most[start] for start in most if start <= starts[-1])
    assert 0 < ledger.late_records <= len(history.late)


def _something_happens(history: LateHistory, chance: random.Random) -> None:
    workers = list(history.workers.values())
    match chance.choice(ACTIONS):
        case "send":
            history.send(chance.randrange(1, 8))
        case "late":
            history.send_late(HOUR * chance.uniform(0.01, 4))
        case "split" if len(history.open_shards) < 5:
            history.split(chance.randrange(8))
        case "merge":
            history.merge(chance.randrange(8))
        case "die" if workers:
            doomed = chance.choice(workers)
            doomed.dies_at = (chance.choice(list(PHASES)), 1)
        case "lose" if workers:
            history.lose(chance.choice(workers))
        case "stop" if workers:
            history.stop(chance.choice(workers))
        case "sync":
            history.sync(forced=False)
    if len(history.workers) < 2:
        history.start()
    for worker in list(history.workers.values()):
        history.round(worker)


def test_record_out_of_order_after_its_hour_is_a_correction(tmp_path: Path) -> None:
    history = LateHistory(tmp_path, 1)
    history.send(3)
    history.settle()
    history.clock.advance(HOUR.total_seconds())
    history.settle()
    reports = Reports(history, random.Random(0))
    reports.report(may_die=False)
    begun = len(reports.events)
    history.send_late(HOUR)
    [earlier] = history.late.values()
    history.send(2)
    history.settle()
    history.clock.advance(2 * HOUR.total_seconds())
    history.settle()
    reports.report(may_die=False)
    ledger = reports.ledger.get()
    assert ledger is not None and (ledger.late_records, [each.records for each in ledger.late]) == (1, [1])
    late = reports.ledger.take_correction("corrector", lambda taken: Standing.OVER)
    assert late is not None and late.counts.start == start_of_interval(earlier, HOUR)
    later = [each.counts.records for each in reports.events[begun:]]
    assert sum(later) == 2 and history.delivered.total() == 6


def reported(history: LateHistory) -> tuple[Reports, list[datetime]]:
    """Report what is complete, and stop the workers; return the reports, and the hours."""
    reports = Reports(history, random.Random(0))
    reports.report(may_die=False)
    history.stop_all()
    return reports, [each.counts.start for each in reports.events]


def test_reset_source_reports_no_hour_again(tmp_path: Path) -> None:
    history = LateHistory(tmp_path, 1)
    history.send(3)
    history.clock.advance(HOUR.total_seconds())
    history.settle()
    reports, before = reported(history)
    (partition,) = history.partitions.values()
    now = history.clock.now()
    restarted = history.progress(parse_partition_key(partition.partition_key).shard_id).restarted(
        epoch=int(now.timestamp())
    )
    history.store.transact(update=[partition.reset(restarted.to_mapping(), now)])
    reports.report(may_die=False)
    assert [each.counts.start for each in reports.events] == before
    history.settle()
    history.clock.advance(HOUR.total_seconds())
    history.settle()
    reports.report(may_die=False)
    starts = [each.counts.start for each in reports.events]
    assert starts == sorted(set(starts)) and len(starts) > len(before)
    ledger = reports.ledger.get()
    assert ledger is not None and ledger.late_records == 3 and ledger.late[0].is_reread


def test_repair_holds_the_watermark_and_reports_no_hour_again(tmp_path: Path) -> None:
    history = LateHistory(tmp_path, 1)
    (shard,) = history.partitions
    bounds = []
    for _ in range(3):
        history.send(2)
        history.settle()
        bounds.append(history.progress(shard).checkpoint)
        history.clock.advance(HOUR.total_seconds())
    history.settle()
    reports, before = reported(history)
    reached = watermark_of(history.look.view)
    target = Target(name="repair", requested_at=history.clock.now())
    stored = history.partitions[shard]
    step = kind_of_stored(stored).plan_repair(stored, bounds[0], bounds[1], target).step
    history.store.transact(update=[stored.reset(step.progress(stored), history.clock.now())])
    history.clock.advance(HOUR.total_seconds())
    held = watermark_of(history.look.view)
    assert reached is not None and held is not None
    assert (held.until, held.held_by[0].reason) == (None, "a repair reads a range of it again")
    reports.report(may_die=False)
    assert [each.counts.start for each in reports.events] == before
    history.settle()
    after = watermark_of(history.look.view)
    assert after is not None and after.until is not None and after.until >= reached.until
    reports.report(may_die=False)
    starts = [each.counts.start for each in reports.events]
    assert starts == sorted(set(starts)) and len(starts) > len(before)
    ledger = reports.ledger.get()
    assert ledger is not None and [(each.records, each.is_reread) for each in ledger.late] == [(2, True)]
