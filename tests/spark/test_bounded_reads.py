"""Reads bounded by sequence numbers deliver exactly these records of these shards, and end."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.bounds import Bounds, ShardBounds
from airflow_provider_coordination.sources.kinesis.positions import at_timestamp
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import parse_target
from tests.support.aggregation import aggregate
from tests.support.depth import examples
from tests.support.history import STREAM, History

FIRST = "shardId-000000000000"
PHASES = ("landed", "recorded", "delivering", "delivered")


def numbers(history: History, shard: str = FIRST) -> list[str]:
    """Return the sequence numbers of a shard's records, in order."""
    return [record["SequenceNumber"] for record in history.engine.stored(STREAM)[shard]]


def events(history: History, shard: str, first: int, last: int) -> list[str]:
    """Return what records of a shard hold, both ends included."""
    return [record["Data"].decode() for record in history.engine.stored(STREAM)[shard][first : last + 1]]


def bound_shards(history: History, ranges: dict[str, tuple[str, str]]) -> None:
    history.bounds = Bounds(
        shards=tuple(ShardBounds(shard_id=name, start=start, end=end) for name, (start, end) in ranges.items())
    )


def statuses(history: History) -> dict[str, PartitionStatus]:
    return {name: partition.status for name, partition in history.partitions.items()}


def test_read_includes_both_named_records_without_their_neighbors(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    history.send(10)
    known = numbers(history)
    bound_shards(history, {FIRST: (known[3], known[6])})
    history.sync()
    summary = history.run()
    assert history.sink.events == events(history, FIRST, 3, 6)
    assert statuses(history) == {FIRST: PartitionStatus.COMPLETED}
    assert (history.progress(FIRST).checkpoint, summary.stopped_because) == (known[6], "no partition is available")


def test_read_of_one_record_reads_it(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    history.send(3)
    known = numbers(history)
    bound_shards(history, {FIRST: (known[1], known[1])})
    history.sync()
    history.run()
    assert history.sink.events == events(history, FIRST, 1, 1)


def test_aggregate_at_an_end_is_read_whole(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    known = []
    for number in range(4):
        data = aggregate([("k", f"k/{number}{letter}".encode()) for letter in "ab"])
        history.clock.advance(1)
        answer = history.client.put_record(StreamName=STREAM, Data=data, PartitionKey="k")
        known.append(answer["SequenceNumber"])
    bound_shards(history, {FIRST: (known[1], known[2])})
    history.sync()
    history.run()
    assert history.sink.events == ["k/1a", "k/1b", "k/2a", "k/2b"]


def test_only_named_shards_are_read(tmp_path: Path) -> None:
    history = History(tmp_path, 2)
    history.send(20)
    known = numbers(history)
    bound_shards(history, {FIRST: (known[0], known[-1])})
    history.sync()
    history.run()
    assert history.delivered == Counter(events(history, FIRST, 0, len(known)))
    assert statuses(history) == {FIRST: PartitionStatus.COMPLETED}


def test_split_shard_precedes_its_named_children(
    tmp_path: Path,
) -> None:
    history = History(tmp_path, 1)
    history.send(10)
    history.split(0)
    history.send(20)
    one, other = (shard["ShardId"] for shard in history.open_shards)
    parent, child = numbers(history), numbers(history, one)
    bound_shards(history, {one: (child[0], child[2]), FIRST: (parent[4], parent[-1])})
    history.sync()
    history.run()
    assert history.sink.events == [*events(history, FIRST, 4, len(parent)), *events(history, one, 0, 2)]
    assert statuses(history) == {FIRST: PartitionStatus.COMPLETED, one: PartitionStatus.COMPLETED}
    assert other not in history.partitions


def test_listed_sequence_numbers_cover_the_whole_shard(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    history.send(6)
    history.split(0)
    history.send(6)
    [listed] = [s for s in history.client.list_shards(StreamName=STREAM)["Shards"] if s["ShardId"] == FIRST]
    bounds = listed["SequenceNumberRange"]
    bound_shards(history, {FIRST: (bounds["StartingSequenceNumber"], bounds["EndingSequenceNumber"])})
    history.sync()
    summary = history.run()
    assert history.delivered == Counter(events(history, FIRST, 0, 6))
    assert (statuses(history), summary.data_loss) == ({FIRST: PartitionStatus.COMPLETED}, {})


def test_future_end_is_waited_for(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    history.send(4)
    end = str(int(numbers(history)[-1]) + 1)
    bound_shards(history, {FIRST: (numbers(history)[0], end)})
    history.sync()
    worker = history.start()
    history.work(worker)
    assert statuses(history) == {FIRST: PartitionStatus.ASSIGNED}
    history.send(1)
    history.work(worker)
    assert statuses(history) == {FIRST: PartitionStatus.COMPLETED}
    assert history.sink.events == events(history, FIRST, 0, 3)


def test_second_run_reads_nothing_and_creates_no_shards(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    history.send(4)
    known = numbers(history)
    bound_shards(history, {FIRST: (known[0], known[2])})
    history.sync()
    history.run()
    assert history.sync().skipped == "the shards within the bounds are known"
    assert history.run().records_landed == 0
    assert len(history.sink.events) == 3


# What was trimmed


def trimmed(history: History) -> list[str]:
    """Send ten records, of which the first five are gone; return the sequence numbers of all."""
    history.clock.advance(25 * 3600)
    history.send(5)
    known = numbers(history)
    history.clock.advance(12 * 3600)
    history.send(5)
    known += numbers(history)[5:]
    history.clock.advance(13 * 3600)
    return known


def test_trimmed_start_parks_the_shard_with_its_range(tmp_path: Path) -> None:
    history = History(tmp_path, 1, on_data_loss="fail")
    known = trimmed(history)
    bound_shards(history, {FIRST: (known[2], known[7])})
    history.sync()
    summary = history.run()
    assert f"(AT_SEQUENCE_NUMBER:{known[2]}, {known[5]})" in summary.data_loss[next(iter(summary.data_loss))]
    assert history.partitions[FIRST].is_parked
    assert history.sink.events == []


def test_trimmed_start_is_skipped_on_request(tmp_path: Path) -> None:
    history = History(tmp_path, 1, on_data_loss="earliest")
    known = trimmed(history)
    bound_shards(history, {FIRST: (known[2], known[7])})
    history.sync()
    summary = history.run()
    assert len(summary.data_loss) == 1
    assert history.sink.events == events(history, FIRST, 0, 2)
    assert statuses(history) == {FIRST: PartitionStatus.COMPLETED}


def test_fully_trimmed_range_finishes_on_request(tmp_path: Path) -> None:
    history = History(tmp_path, 1, on_data_loss="earliest")
    known = trimmed(history)
    bound_shards(history, {FIRST: (known[1], known[3])})
    history.sync()
    summary = history.run()
    assert (len(summary.data_loss), history.sink.events) == (1, [])
    assert statuses(history) == {FIRST: PartitionStatus.COMPLETED}


def test_existing_first_record_is_no_loss(tmp_path: Path) -> None:
    history = History(tmp_path, 1, on_data_loss="fail")
    known = trimmed(history)
    bound_shards(history, {FIRST: (known[5], known[7])})
    history.sync()
    summary = history.run()
    assert (summary.data_loss, history.sink.events) == ({}, events(history, FIRST, 0, 2))


def test_missing_shard_is_refused_or_skipped(tmp_path: Path) -> None:
    history = History(tmp_path, 1, on_data_loss="fail")
    history.send(2)
    known = numbers(history)
    bound_shards(history, {FIRST: (known[0], known[1]), "shardId-000000000007": ("1", "2")})
    with pytest.raises(ConfigurationError, match=r"has no shard 'shardId-000000000007'.*expired with its records"):
        history.sync()
    history.on_data_loss = "earliest"
    history.sync()
    history.run()
    assert statuses(history) == {FIRST: PartitionStatus.COMPLETED}


def test_number_of_another_shard_is_refused(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    history.send(2)
    bound_shards(history, {FIRST: ("5", numbers(history)[1])})
    with pytest.raises(ConfigurationError, match=r"start 5 is not in shard 'shardId-000000000000'.*begin at"):
        history.sync()


# One source, one bound


def test_changed_or_missing_bounds_are_refused_under_existing_leases(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    history.send(4)
    known = numbers(history)
    bound_shards(history, {FIRST: (known[0], known[1])})
    history.sync()
    bound_shards(history, {FIRST: (known[0], known[2])})
    with pytest.raises(ConfigurationError, match=r"within the bounds positions-.*use another source for that"):
        history.sync()
    history.bounds = None
    with pytest.raises(ConfigurationError, match="the settings now read it without bounds"):
        history.sync()


def test_bounds_are_refused_under_live_leases(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    history.send(4)
    history.sync()
    known = numbers(history)
    bound_shards(history, {FIRST: (known[0], known[1])})
    with pytest.raises(ConfigurationError, match="reads stream 'clicks' without bounds"):
        history.sync()


def test_unbounded_job_creates_no_leases_beside_bounded_ones(tmp_path: Path) -> None:
    history = History(tmp_path, 2)
    history.send(8)
    known = numbers(history)
    bound_shards(history, {FIRST: (known[0], known[1])})
    history.sync()
    history.bounds = None
    history.clock.advance(3600)
    history.run(until_caught_up=True)
    assert list(history.partitions) == [FIRST]
    assert history.sink.events == events(history, FIRST, 0, 1), "the batch ends where the partition ends"


# What is gone, and what is read again


def test_expired_shard_between_instants_is_left_to_sync(
    tmp_path: Path,
) -> None:
    history = History(tmp_path, 1, on_data_loss="earliest")
    history.clock.advance(25 * 3600)
    start = history.clock.now()
    history.send(4)
    history.split(0)
    lost = set(history.sent)
    history.send(8)
    history.clock.advance(1)
    end, sent = history.clock.now(), Counter(history.sent) - Counter(lost)
    history.clock.advance(1)
    history.send(4)
    history.bounds, history.initial_position = Bounds(start=start, end=end), at_timestamp(start)
    history.sync()
    history.engine.expire_shard(STREAM, FIRST)
    history.run()
    assert history.partitions[FIRST].is_parked
    history.sync()
    history.run()
    assert history.delivered == sent
    assert set(statuses(history).values()) == {PartitionStatus.COMPLETED}
    assert history.progress(FIRST).gaps


@pytest.mark.parametrize("whole_stream", [False, True])
def test_reset_to_earliest_starts_at_the_bounds(tmp_path: Path, whole_stream: bool) -> None:
    history = History(tmp_path, 1)
    history.send(10)
    history.split(0)
    history.send(10)
    parent, child = FIRST, history.open_shards[0]["ShardId"]
    first, second = numbers(history), numbers(history, child)
    bound_shards(history, {parent: (first[4], first[-1]), child: (second[0], second[1])})
    history.sync()
    history.run()
    expected = history.delivered
    resets = Resets(AcknowledgmentSets(history.coordinator("person", history.store), SourceBatches()))
    target = parse_target("earliest", history.clock.now())
    partitions = list(history.look.view.partitions())
    plan = (
        resets.plan_group(STREAM, target, lambda kind: StreamService(history.client))
        if whole_stream
        else resets.plan_partitions(partitions, target)
    )
    for _, result in resets.apply(plan, only_if_unchanged=False):
        assert not isinstance(result, Exception), result
    history.run()
    assert history.delivered == expected + expected
    assert statuses(history) == {parent: PartitionStatus.COMPLETED, child: PartitionStatus.COMPLETED}


# What kills it


def die(history: History, deaths: list[tuple[str, int]]) -> None:
    """Let workers begin that are killed in their rounds, one after the other, which Airflow notices."""
    for dies_at in deaths:
        worker = history.start()
        worker.dies_at = dies_at
        for _ in range(3):
            if not worker.store.dead:
                history.work(worker)
        history.notice(worker) if worker.store.dead else history.stop(worker)


@pytest.mark.integration
@settings(max_examples=examples(40))
@given(
    records=st.integers(4, 30),
    start=st.floats(0, 1),
    end=st.floats(0, 1),
    deaths=st.lists(st.tuples(st.sampled_from(PHASES), st.integers(1, 2)), max_size=4),
    more=st.lists(st.sampled_from(["send", "split"]), max_size=4),
)
def test_dying_workers_deliver_exactly_the_range(
    records: int, start: float, end: float, deaths: list[tuple[str, int]], more: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), 1, max_batch_bytes=2048)
        history.send(records)
        known = numbers(history)
        first, last = sorted(round(part * (records - 1)) for part in (start, end))
        bound_shards(history, {FIRST: (known[first], known[last])})
        history.sync()
        for step in more:
            if step == "send":
                history.send(3)
            else:
                history.split(0)
        die(history, deaths)
        history.settle()
        assert history.sink.events == events(history, FIRST, first, last)
        assert statuses(history) == {FIRST: PartitionStatus.COMPLETED}


@pytest.mark.integration
@settings(max_examples=examples(30))
@given(
    st.lists(st.sampled_from(["send", "split", "merge"]), min_size=1, max_size=8),
    st.lists(st.tuples(st.sampled_from(PHASES), st.integers(1, 2)), max_size=4),
)
def test_dying_workers_and_splits_keep_instants_exact(steps: list[str], deaths: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), 2)
        history.send(6)
        history.clock.advance(1)
        start, older = history.clock.now(), Counter(history.sent)
        for number, step in enumerate(steps):
            history.send(4) if step == "send" else getattr(history, step)(number)
        history.clock.advance(1)
        end, sent = history.clock.now(), Counter(history.sent) - older
        history.clock.advance(1)
        history.send(6)
        history.bounds, history.initial_position = Bounds(start=start, end=end), at_timestamp(start)
        history.sync()
        die(history, deaths)
        history.settle()
        assert history.delivered == sent
        assert set(statuses(history).values()) == {PartitionStatus.COMPLETED}
        assert history.out_of_order() == []
