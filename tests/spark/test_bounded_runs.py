"""Runs that stop at an instant deliver exactly the records that arrived before it."""

from __future__ import annotations

import tempfile
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.bounds import Bounds
from airflow_provider_coordination.sources.kinesis.positions import at_timestamp
from tests.support.depth import examples
from tests.support.history import History

STEPS = st.lists(st.sampled_from(["send", "split", "merge", "wait"]), max_size=12)


def act(history: History, steps: list[str]) -> None:
    for number, step in enumerate(steps):
        match step:
            case "send":
                history.send(5)
            case "wait":
                history.clock.advance(1)
            case _:
                getattr(history, step)(number)


def let_it_pass(history: History) -> datetime:
    """Return an instant that is before everything to come, and after all there was."""
    history.clock.advance(0.5)
    instant = history.clock.now()
    history.clock.advance(0.5)
    return instant


@pytest.mark.integration
@settings(max_examples=examples(30))
@given(STEPS, STEPS, STEPS)
def test_consecutive_runs_share_records_exactly(before: list[str], between: list[str], after: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        history.sync()
        act(history, before)
        first, sent = let_it_pass(history), list(history.sent)
        act(history, between)
        second, sent_next = let_it_pass(history), list(history.sent)
        act(history, after)
        history.clock.advance(1)
        assert history.run(stop_at=first).failed == {}
        assert history.delivered == Counter(sent)
        assert history.run(stop_at=second).failed == {}
        assert history.delivered == Counter(sent_next)
        assert history.run(stop_at=second).records_landed == 0, "once more changes nothing"
        history.run(until_caught_up=True)
        assert history.delivered == Counter(history.sent)
        assert history.out_of_order() == []


def test_record_at_the_stop_instant_belongs_to_the_next_run(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    history.sync()
    history.send(1)
    history.clock.advance(1)
    stop_at = history.clock.now() + timedelta(milliseconds=1)
    history.send(1)
    history.clock.advance(1)
    summary = history.run(stop_at=stop_at)
    assert history.sink.events == ["k0/0"]
    assert summary.stopped_because == "everything that arrived before 2026-01-01T00:00:01Z is delivered"
    history.run()
    assert history.sink.events == ["k0/0", "k1/1"]


def test_run_waits_for_a_future_instant(tmp_path: Path) -> None:
    history = History(tmp_path, 2)
    history.sync()
    history.send(4)
    stop_at = history.clock.now() + timedelta(seconds=20)
    history.run(stop_at=stop_at)
    assert history.clock.now() >= stop_at
    assert history.delivered == Counter(history.sent)


def test_children_of_an_ended_shard_stop_correctly(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    history.sync()
    history.send(4)
    history.split(0)
    history.send(4)
    stop_at, sent = let_it_pass(history), list(history.sent)
    history.send(4)
    history.run(stop_at=stop_at)
    assert history.delivered == Counter(sent)
    assert history.partitions["shardId-000000000000"].status is PartitionStatus.COMPLETED


@pytest.mark.integration
@settings(max_examples=examples(30))
@given(STEPS, STEPS, STEPS)
def test_interval_is_delivered_exactly_and_finished(before: list[str], within: list[str], after: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        act(history, before)
        start, older = let_it_pass(history), Counter(history.sent)
        act(history, within)
        end, sent = let_it_pass(history), Counter(history.sent) - older
        act(history, after)
        assert ingest_interval(history, start, end) == sent
        assert ingest_interval(history, start, end) == sent, "once more changes nothing"


def test_delivered_interval_leaves_nothing_to_acquire(tmp_path: Path) -> None:
    history = History(tmp_path, 2)
    start = let_it_pass(history)
    history.send(6)
    history.split(0)
    history.send(6)
    end = let_it_pass(history)
    history.send(6)
    assert ingest_interval(history, start, end).total() == 12
    summary = history.run()
    assert (summary.records_landed, summary.stopped_because) == (0, "no partition is available")
    history.sync()
    assert {partition.status for partition in history.look.view.partitions()} == {PartitionStatus.COMPLETED}


def ingest_interval(history: History, start: datetime, end: datetime) -> Counter[str]:
    """Ingest what arrived in an interval, under the leases that are there; return what is delivered."""
    history.bounds, history.initial_position = Bounds(start=start, end=end), at_timestamp(start)
    history.sync()
    summary = history.run()
    assert (summary.failed, summary.data_loss) == ({}, {})
    assert all(partition.status is PartitionStatus.COMPLETED for partition in history.look.view.partitions())
    return Counter(history.delivered)
