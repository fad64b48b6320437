"""Rounds over partitions of items, with everything real but Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import MAX_PROGRESS_BYTES, PartitionStatus
from airflow_provider_coordination.sources.items import (
    Item,
    ItemGoneError,
    ItemUnreadableError,
    PartitionProgress,
    SourceUnavailableError,
)
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark import item_landing
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.spark.reading import UNREADABLE_ROUNDS, RoundRead
from tests.support.item_history import KIND, ItemHistory, SlowSource, Worker
from tests.support.items import FakeItem, named

DAMAGED = ItemUnreadableError("it is damaged")


def summary_of(worker: Worker) -> Summary:
    return worker.job._summary


def rounds(history: ItemHistory, count: int = 1, worker: Worker | None = None) -> Worker:
    """Make rounds, and deliver what the last one landed."""
    worker = worker or next(iter(history.workers.values()), None) or history.start()
    for _ in range(count):
        history.round(worker)
    history.finish(worker)
    return worker


def visible(history: ItemHistory) -> list[str]:
    return sorted(event for events in history.sink.batches.values() for event in events)


@pytest.fixture
def history(tmp_path: Path) -> ItemHistory:
    return ItemHistory(tmp_path)


def test_partitions_are_delivered_completed_and_their_landed_files_removed(history: ItemHistory) -> None:
    history.create({"a": FakeItem([["1"], ["2"]]), "b": FakeItem([["3"]])})
    history.create({"c": FakeItem([["4"]])})
    worker = rounds(history, 2)
    assert visible(history) == ["1", "2", "3", "4"]
    assert summary_of(worker).completed == ["p0", "p1"]
    assert list(history.folder.rglob("_landing/**/*.parquet")) == []
    assert sorted(history.source.delivered_items) == ["p0.a", "p0.b", "p1.c"]


def test_partition_without_items_is_completed(history: ItemHistory) -> None:
    history.create({})
    assert summary_of(rounds(history)).completed == ["p0"]


def test_unreadable_item_becomes_a_partition_delivered_after_repair(history: ItemHistory) -> None:
    history.create({"a": FakeItem([["1"]]), "b": FakeItem([["2"], ["3"]], positions=True, error=DAMAGED, fails_at=1)})
    worker = rounds(history)
    assert summary_of(worker).completed == ["p0"] and summary_of(worker).set_aside == 1
    assert visible(history) == ["1", "2"]
    assert history.source.delivered_items == ["p0.a"], "an unread item is not deleted"
    rounds(history)
    [split] = [p for p in history.look.view.partitions() if p.partition_key.startswith("p0#1.")]
    assert split.last_error == "memory:p0.b: it is damaged"
    history.settle()
    assert visible(history) == ["1", "2", "3"]
    assert history.source.delivered_items == ["p0.a", "p0.b"]


def test_set_aside_item_survives_a_partition_of_its_name(
    history: ItemHistory,
) -> None:
    history.create({"a": FakeItem([["1"]]), "b": FakeItem([["2"]], error=DAMAGED)})
    history.source.items["other"] = FakeItem([["3"]])
    others = PartitionProgress(kind=KIND, items=named("other")).to_mapping()
    history.look.create_partitions({f"p0#{n}": others for n in range(2)})
    rounds(history, 2)
    history.settle()
    assert {"1", "2", "3"} == set(visible(history))


def test_too_many_set_aside_items_fail_the_partition_across_batches(
    history: ItemHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_coordination.spark.item_reading.MAX_FAILED_ITEMS", 1)
    bad = FakeItem([["x"]], error=DAMAGED)
    history.create({"a": bad, "b": FakeItem([["1" * 200]]), "c": bad, "d": FakeItem([["2"]])})
    worker = rounds(history, 2)
    assert summary_of(worker).failed == {"p0": "2 of its items cannot be read; the first: memory:p0.a: it is damaged"}
    assert visible(history) == ["1" * 200], "what was landed before is delivered"
    assert history.partition("p0").status is not PartitionStatus.COMPLETED


def test_unavailable_source_is_retried_some_rounds_before_failing(history: ItemHistory) -> None:
    history.create({"a": FakeItem([["1"]])})
    history.source.down = SourceUnavailableError("it does not answer")
    worker = rounds(history, UNREADABLE_ROUNDS - 1)
    assert history.partition("p0").attempts == 0
    rounds(history, 1, worker)
    assert (history.partition("p0").attempts, history.partition("p0").last_error) == (1, "it does not answer")


def test_responding_source_resets_its_retries(history: ItemHistory) -> None:
    history.create({"a": FakeItem([["1" * 200], ["2"]], positions=True)})
    for _ in range(2):
        history.source.down = SourceUnavailableError("it does not answer")
        worker = rounds(history, UNREADABLE_ROUNDS - 1)
        assert history.partition("p0").attempts == 0
        history.source.down = None
        rounds(history, 1, worker)
    assert visible(history) == ["1" * 200, "2"]


def test_reader_errors_hide_secrets(tmp_path: Path) -> None:
    secret = "a-very-secret-word"
    history = ItemHistory(tmp_path, reads=ReadsSettings(kind=KIND, settings={"password": secret}))
    unreadable = ItemUnreadableError(f"the login with {secret} failed")
    history.create({"a": FakeItem([["1"]]), "b": FakeItem([["2"]], error=unreadable)})
    history.create({"c": FakeItem([["3"]], error=unreadable)})
    worker = rounds(history)
    kept = repr([(partition.progress, partition.last_error) for partition in history.look.view.partitions()])
    assert kept.count("the login with") == 2 and secret not in kept
    assert secret not in repr(summary_of(worker))


def test_missing_items_are_counted_and_end_the_partition(history: ItemHistory) -> None:
    history.create({"a": FakeItem([], error=ItemGoneError("it is gone")), "b": FakeItem([["1"]])})
    worker = rounds(history)
    assert (summary_of(worker).gone, summary_of(worker).completed) == (1, ["p0"])


def test_too_large_progress_fails_its_partition_alone(history: ItemHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_landing, "MAX_WITHIN_BYTES", 10**6)
    history.create({"a": FakeItem([["1"], ["2"]], positions=True)})
    history.create({"b": FakeItem([["3"]])})

    class LongPositionsSource(SlowSource):
        def read(self, item: Item, position: str) -> Any:
            for page in super().read(item, position):
                yield replace(page, position=page.position and page.position.zfill(MAX_PROGRESS_BYTES))

    history.source = LongPositionsSource(history.clock)
    history.source.items = {
        "p0.a": FakeItem([["1" * 200], ["2"]], positions=True),
        "p1.b": FakeItem([["3"]]),
    }
    worker = rounds(history)
    assert visible(history) == ["3"]
    assert "its progress has" in summary_of(worker).failed["p0"]


def test_long_positions_pause_reading_until_acknowledgment(tmp_path: Path) -> None:
    class LongPositionsSource(SlowSource):
        def read(self, item: Item, position: str) -> Any:
            for page in super().read(item, position.strip(".")):
                yield replace(page, position=page.position.ljust(8000, "."))

    history = ItemHistory(tmp_path, confirmed=True, max_pending_batches=16, round_duration=1.0)
    history.source = LongPositionsSource(history.clock)
    history.create({"a": FakeItem([[str(n)] for n in range(9)], positions=True)})
    worker = rounds(history, 12)
    progress = history.progresses["p0"]
    assert 1 < len(progress.landed) < 5 and not progress.is_ended
    assert len(json.dumps(progress.to_mapping())) < MAX_PROGRESS_BYTES
    assert worker.job._partitions.is_paused("p0"), "the job does not wait for it"
    history.settle()
    assert visible(history) == [str(n) for n in range(9)]


def test_partitions_of_another_kind_are_refused_by_name(history: ItemHistory) -> None:
    history.look.create_partitions({"q": PartitionProgress(kind="jdbc", items=named("t")).to_mapping()})
    worker = rounds(history)
    assert summary_of(worker).failed["q"] == (
        "partition 'q' is of kind 'jdbc', and this job reads 'memory': use a separate source for each kind"
    )


# Conditions


def test_partition_is_read_after_a_limited_wait_for_its_condition(history: ItemHistory) -> None:
    history.create({"a": FakeItem([["1"]])})
    history.source.held_back.add("p0.a")
    worker = history.start()
    for waited in (1, 2, 3):
        rounds(history, 2, worker)
        assert (history.partition("p0").status, history.progresses["p0"].waited) == (PartitionStatus.CLOSED, waited)
        history.clock.advance(31)
    assert visible(history) == []
    rounds(history, 1, worker)
    assert visible(history) == ["1"] and summary_of(worker).closed == ["p0"] * 3


def test_partly_read_partition_waits_no_more(history: ItemHistory) -> None:
    history.create({"a": FakeItem([["1" * 200], ["2"]], positions=True)})
    history.stop(rounds(history))
    history.source.held_back.add("p0.a")
    assert summary_of(rounds(history)).closed == []
    assert visible(history) == ["1" * 200, "2"]


def test_rereadings_do_not_count_as_waiting(history: ItemHistory) -> None:
    history.create({"a": FakeItem([["1"]])}, reread_seconds=10.0)
    worker = rounds(history)
    for _ in range(5):
        history.clock.advance(11)
        rounds(history, 1, worker)
    assert history.partition("p0").closed_count == 6
    history.source.held_back.add("p0.a")
    history.clock.advance(11)
    rounds(history, 1, worker)
    assert history.progresses["p0"].waited == 1


def test_failing_condition_check_fails_its_partition_alone(history: ItemHistory) -> None:
    class FailingSource(SlowSource):
        def waits_for(self, items: Any) -> None:
            raise KeyError("bucket")

    history.source = FailingSource(history.clock)
    history.create({"a": FakeItem([["1"]])})
    assert "the reader's condition could not be checked: KeyError('bucket')" in summary_of(rounds(history)).failed["p0"]


def test_failing_delivered_callback_does_not_end_the_job(history: ItemHistory) -> None:
    class FailingSource(SlowSource):
        def delivered(self, items: Any) -> None:
            raise KeyError("bucket")

    history.source = FailingSource(history.clock)
    history.create({"a": FakeItem([["1"]])})
    assert summary_of(rounds(history)).completed == ["p0"]


# Read again


@pytest.mark.parametrize("confirmed", [False, True])
def test_partition_is_reread_as_configured_regardless_of_acknowledgments(tmp_path: Path, confirmed: bool) -> None:
    history = ItemHistory(tmp_path, confirmed=confirmed)
    history.create({"a": FakeItem([["1"], ["2"]])}, reread_seconds=60.0, reads_left=2)
    for epoch in range(3):
        worker = rounds(history, 2, history.start())
        history.stop(worker)
        if confirmed:
            assert history.partition("p0").owner is not None and history.partition("p0").is_awaiting
            history.confirm(0, positive=True)
        partition = history.partition("p0")
        expected = PartitionStatus.CLOSED if epoch < 2 else PartitionStatus.COMPLETED
        assert (partition.status, partition.owner) == (expected, None)
        if epoch < 2:
            assert partition.reopen_at is not None
            assert timedelta(0) < partition.reopen_at - history.clock.now() <= timedelta(seconds=60)
            assert history.progresses["p0"].epoch == epoch + 1
        history.clock.advance(61)
    assert history.metrics.totals[CoordinationMetric.PARTITIONS_CLOSED] == 2
    assert history.metrics.totals[CoordinationMetric.PARTITIONS_COMPLETED] == 1
    assert visible(history) == ["1", "1", "1", "2", "2", "2"]
    assert all(set(events.values()) == {1} for events in history.sink.read.values())


def test_files_relanded_by_others_are_not_swept(
    history: ItemHistory,
) -> None:
    history.create({"a": FakeItem([["1"]])}, reread_seconds=10.0, reads_left=1)
    worker = history.start()
    other = history.start()

    class DelayedView:
        """Another worker is faster than the one that finished the partition notices its end."""

        def get(self, key: str) -> Any:
            stored = get(key)
            if not done:
                done.append(key)
                history.clock.advance(20)
                other.dies_at = ("recorded", 1)
                history.round(other)
            return stored

    done: list[str] = []
    get = worker.job._coordinator.view.get
    worker.job._coordinator.view.get = DelayedView().get  # type: ignore[method-assign]
    rounds(history, 1, worker)
    assert done and len(history.progresses["p0"].landed) == 1
    assert [Path(batch.file).exists() for batch in history.progresses["p0"].landed] == [True]
    history.settle()
    assert visible(history) == ["1", "1"]


# What the log says


def test_round_reports_items_and_lag_only_when_known() -> None:
    assert RoundRead(partitions=2, items=7, gone=1, set_aside=2).text == "partitions=2 items=7 gone=1 set_aside=2"
    assert RoundRead(partitions=1, behind_ms={"shard-1": 5, "shard-2": None}).text == "partitions=1 lag_ms=[shard-1=5]"
    assert RoundRead(behind_ms={"shard-1": None}).text == "partitions=0"
