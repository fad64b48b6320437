"""Batches complete once all handles are acknowledged; the job stores and ends their sets."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentSet, AcknowledgmentState
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.progress import partition_key
from airflow_provider_coordination.spark.outcome import Summary
from tests.support.depth import examples
from tests.support.fleet import EPOCH, PHASES, Crash, FakeStream, Fleet, crash_at


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(FakeStream(1), tmp_path)


def outside(fleet: Fleet) -> AcknowledgmentSets:
    return AcknowledgmentSets(fleet.look, SourceBatches())


def run(fleet: Fleet, *details: Any, **changes: Any) -> Summary:
    return fleet.run(*details, **{"by": ("check",), **changes})


def the_partition(fleet: Fleet, shard: str = "shard-0") -> Partition:
    partition = fleet.look.view.get(partition_key("s", EPOCH, shard))
    assert partition is not None
    return partition


def acknowledge(fleet: Fleet, pending: AcknowledgmentSet, *, positive: bool = True) -> AcknowledgmentSet:
    return outside(fleet).acknowledge(pending.set_id, positive=positive, reason=None if positive else "bad data")[0]


def test_delivered_batch_keeps_its_partition_until_acknowledged(fleet: Fleet) -> None:
    fleet.stream.send(4)
    summary = run(fleet)
    [pending] = outside(fleet).view.pending()
    assert (summary.pending_acknowledgments, summary.acknowledgment_sets) == (1, [pending.set_id])
    assert (summary.lost, summary.failed) == ([], {})
    assert pending.references == {"main": 0, "check": 1}
    waiting = the_partition(fleet)
    assert waiting.is_awaiting and waiting.priority >= pending.expires_at
    assert fleet.progress("shard-0").checkpoint == "TRIM_HORIZON", "an unacknowledged batch is not checkpointed"
    fleet.stream.send(4)
    assert run(fleet).records_landed == 0
    assert fleet.delivered() == Counter(fleet.stream.sent[:4])


def test_acknowledgment_moves_the_checkpoint_and_gives_back_the_partition(fleet: Fleet) -> None:
    fleet.stream.send(4)
    run(fleet)
    [pending] = outside(fleet).view.pending()
    assert acknowledge(fleet, pending).state is AcknowledgmentState.ACKNOWLEDGED
    assert the_partition(fleet).status is PartitionStatus.UNASSIGNED
    assert fleet.progress("shard-0").checkpoint == pending.batch["end"]
    fleet.stream.send(4)
    assert run(fleet).records_landed == 4
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_landed_file_stays_until_acknowledgment(fleet: Fleet) -> None:
    fleet.stream.send(4)
    run(fleet)
    [batch] = fleet.progress("shard-0").landed
    assert Path(batch.file).exists()
    acknowledge(fleet, next(outside(fleet).view.pending()))
    run(fleet)
    assert not Path(batch.file).exists()


def test_rejected_batch_is_redelivered_as_a_replacement(fleet: Fleet) -> None:
    fleet.stream.send(4)
    run(fleet)
    [staged] = fleet.folder.glob("*.parquet")
    staged.write_bytes(b"spoiled")
    first = next(outside(fleet).view.pending())
    assert acknowledge(fleet, first, positive=False).state is AcknowledgmentState.REJECTED
    rejected = the_partition(fleet)
    assert (rejected.status, rejected.attempts) == (PartitionStatus.UNASSIGNED, 1)
    assert rejected.last_error == f"batch {first.batch_id} was rejected: check: bad data"
    summary = run(fleet)
    assert (summary.records_landed, summary.records_delivered) == (0, 4), "from its file, not from the stream"
    assert fleet.delivered() == Counter(fleet.stream.sent)
    [second] = outside(fleet).view.pending()
    assert second.batch_id == first.batch_id and second.set_id != first.set_id
    acknowledge(fleet, second)
    assert the_partition(fleet).attempts == 0


def test_constantly_rejected_batch_parks_its_partition(fleet: Fleet) -> None:
    fleet.stream.send(1)
    fleet.stream.split()
    while not the_partition(fleet).is_parked:
        run(fleet)
        for pending in list(outside(fleet).view.pending()):
            acknowledge(fleet, pending, positive=False)
        fleet.clock.ahead += timedelta(hours=1)
        assert the_partition(fleet).attempts < 100
    assert the_partition(fleet).last_error is not None
    assert len(fleet.progress("shard-0").landed) >= 1, "nothing is lost"
    assert fleet.delivered() == Counter(fleet.stream.sent), "nothing is there twice"


def test_waiting_batches_end_in_any_order(fleet: Fleet) -> None:
    fleet.stream.send(9)
    summary = run(fleet, max_batch_bytes=1)  # three records a page, one page a batch
    assert summary.pending_acknowledgments == 3
    first, second, third = sorted(outside(fleet).view.pending(), key=lambda s: int(s.batch["end"]))
    acknowledge(fleet, third)
    assert fleet.progress("shard-0").checkpoint == "TRIM_HORIZON"
    acknowledge(fleet, first)
    assert fleet.progress("shard-0").checkpoint == first.batch["end"]
    assert the_partition(fleet).is_awaiting
    acknowledge(fleet, second, positive=False)
    assert fleet.progress("shard-0").checkpoint == first.batch["end"]
    assert [b.acknowledged for b in fleet.progress("shard-0").landed] == [False, True]
    assert run(fleet).records_delivered == 3, "only the rejected one"
    acknowledge(fleet, next(outside(fleet).view.pending()))
    assert fleet.progress("shard-0").checkpoint == third.batch["end"]
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_pending_batches_limit_landing(fleet: Fleet) -> None:
    fleet.stream.send(30)
    summary = run(fleet, max_batch_bytes=1, max_pending_batches=2)
    assert (summary.records_landed, summary.pending_acknowledgments) == (6, 2)
    for _ in range(5):
        for pending in list(outside(fleet).view.pending()):
            acknowledge(fleet, pending)
        run(fleet, max_batch_bytes=1, max_pending_batches=2)
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_last_acknowledgment_completes_a_shard_and_creates_children(fleet: Fleet) -> None:
    fleet.stream.send(4)
    fleet.stream.split()
    assert run(fleet).completed == []
    acknowledge(fleet, next(outside(fleet).view.pending()))
    assert the_partition(fleet).status is PartitionStatus.COMPLETED
    assert {the_partition(fleet, s).status for s in ("shard-1", "shard-2")} == {PartitionStatus.UNASSIGNED}


def test_next_job_removes_files_of_a_shard_finished_elsewhere(fleet: Fleet) -> None:
    fleet.stream.send(4)
    fleet.stream.split()
    run(fleet)
    [batch] = fleet.progress("shard-0").landed
    acknowledge(fleet, next(outside(fleet).view.pending()))
    assert Path(batch.file).exists()
    run(fleet)
    assert not Path(batch.file).parent.exists()
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_unacknowledged_batch_is_redelivered(fleet: Fleet) -> None:
    fleet.stream.send(4)
    run(fleet, timeout=60.0)
    fleet.clock.ahead += timedelta(seconds=61)
    [ended] = outside(fleet).expire_overdue()
    assert ended.state is AcknowledgmentState.EXPIRED
    assert the_partition(fleet).attempts == 1
    assert run(fleet).records_delivered == 4
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_job_expires_overdue_sets_without_a_watcher(fleet: Fleet) -> None:
    fleet.stream.send(4)
    run(fleet, timeout=60.0)
    fleet.clock.ahead += timedelta(minutes=10)
    assert run(fleet).records_delivered == 4
    assert the_partition(fleet).attempts == 1
    assert [s.state for s in outside(fleet).view.ended_since(fleet.clock.now() - timedelta(hours=1))] == [
        AcknowledgmentState.EXPIRED
    ]


def test_next_job_waits_for_the_set_of_a_killed_job(fleet: Fleet) -> None:
    fleet.stream.send(4)

    def die(phase: str) -> None:
        if phase == "recorded" and fleet.delivered():
            raise Crash

    with suppress(Crash):
        run(fleet, die, until_caught_up=False, max_idle_rounds=5)
    [pending] = outside(fleet).view.pending()
    summary = run(fleet)
    assert (summary.records_delivered, summary.acknowledgment_sets) == (0, [pending.set_id])
    assert acknowledge(fleet, pending).state is AcknowledgmentState.ACKNOWLEDGED
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_running_job_notices_an_acknowledgment(fleet: Fleet) -> None:
    fleet.stream.send(4)
    rounds = Counter[str]()

    def confirm(phase: str) -> None:
        rounds[phase] += 1
        if phase == "landed" and rounds[phase] > 1:
            for pending in list(outside(fleet).view.pending()):
                acknowledge(fleet, pending)
            if rounds[phase] < 4:
                fleet.stream.send(4)

    summary = run(fleet, confirm, until_caught_up=False, max_idle_rounds=2)
    assert summary.lost == [] and summary.failed == {}
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_shard_completed_elsewhere_is_not_lost(fleet: Fleet) -> None:
    fleet.stream.send(4)
    fleet.stream.split()

    def confirm(phase: str) -> None:
        if phase == "landed":
            for pending in list(outside(fleet).view.pending()):
                acknowledge(fleet, pending)

    summary = run(fleet, confirm, until_caught_up=False, max_idle_rounds=3)
    assert summary.lost == [] and partition_key("s", EPOCH, "shard-0") in summary.completed


def test_changed_sinks_get_the_batch_from_a_new_set(fleet: Fleet) -> None:
    fleet.stream.send(4)
    with suppress(Crash):
        run(fleet, crash_at("recorded", 1))
    [left] = outside(fleet).view.pending()
    changed = outside(fleet).cancel(left.set_id, "the sinks of the job have changed")
    assert changed.state is AcknowledgmentState.CANCELLED
    assert run(fleet).records_delivered == 4
    assert the_partition(fleet).attempts == 0
    assert fleet.delivered() == Counter(fleet.stream.sent)


actions = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 12)),
    st.tuples(st.just("split"), st.none()),
    st.tuples(st.just("merge"), st.none()),
    st.tuples(st.just("run"), st.sampled_from([(), ("check",), ("check", "load")])),
    st.tuples(st.just("crash"), st.tuples(st.sampled_from(PHASES), st.integers(1, 3))),
    st.tuples(st.just("acknowledge"), st.integers(0, 9)),
    st.tuples(st.just("reject"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.integers(1, 90)),
    st.tuples(st.just("watch"), st.none()),
)


def act(fleet: Fleet, action: str, value: Any) -> None:
    changes = {"max_batch_bytes": 1, "max_pending_batches": 3, "timeout": 3600.0}
    sets = outside(fleet)
    if action in ("send", "split", "merge"):
        getattr(fleet.stream, action)(*([] if value is None else [value]))
    elif action == "run":
        run(fleet, by=value, **changes)
    elif action == "crash":
        with suppress(Crash):
            run(fleet, crash_at(*value), **changes)
    elif action == "wait":
        fleet.clock.ahead += timedelta(minutes=value)
    elif action == "watch":
        sets.expire_overdue()
    elif pending := list(sets.view.pending()):
        chosen = pending[value % len(pending)]
        owed = [h for h in chosen.references if h not in chosen.sinks and chosen.references[h]]
        if owed:
            positive = action == "acknowledge"
            sets.acknowledge(chosen.set_id, handle=owed[0], positive=positive, reason=None if positive else "bad")


@pytest.mark.integration
@settings(max_examples=examples(40))
@given(st.lists(actions, max_size=20))
def test_each_record_is_delivered_once_despite_external_events(story: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stream = FakeStream(2)
        fleet = Fleet(stream, Path(folder))
        for action, value in story:
            act(fleet, action, value)
            assert set(fleet.delivered().values()) <= {1}, "nothing is ever there twice"
        for _ in range(60):  # everything recovers: waiting partitions reopen, every handle is released, no job dies
            fleet.clock.ahead += timedelta(hours=2)
            outside(fleet).expire_overdue()
            summary = run(fleet, by="job")
            for pending in list(outside(fleet).view.pending()):
                for handle, count in pending.references.items():
                    if count and handle not in pending.sinks:
                        outside(fleet).acknowledge(pending.set_id, handle=handle, positive=True)
            if not (summary.records_landed or summary.records_delivered or summary.resting) and not list(
                outside(fleet).view.pending()
            ):
                break
        assert fleet.delivered() == Counter(stream.sent)
        assert not any(p.progress["landed"] for p in fleet.look.view.partitions() if not p.is_parked)
