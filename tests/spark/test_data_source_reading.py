"""The data source plans and reads exactly its range, without Spark."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.sources.kinesis.client import KinesisUnavailableError
from airflow_provider_coordination.spark.kinesis.data_source_options import read_options
from airflow_provider_coordination.spark.kinesis.data_source_tasks import (
    ReadPlan,
    ShardReadSettings,
    read_plan,
    shard_batches,
)
from tests.support.aggregation import aggregate
from tests.support.depth import examples
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.faults import CallFirst
from tests.support.kinesis_server.in_process import InProcessClient

FIRST, SECOND, THIRD, FOURTH = (f"shardId-{n:012d}" for n in range(4))
MIDDLE = str(2**127)


class StreamAccount:
    """An account with streams, and what the data source reads of them."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.engine = Engine(self.clock)
        self.client = InProcessClient(self.engine)

    def create(self, name: str = "clicks", shards: int = 1) -> None:
        self.client.create_stream(StreamName=name, ShardCount=shards)

    def put(self, *data: bytes, hash_key: str = "0", stream: str = "clicks") -> list[str]:
        put = self.client.put_record
        return [
            put(StreamName=stream, Data=d, PartitionKey="k", ExplicitHashKey=hash_key)["SequenceNumber"] for d in data
        ]

    def split(self, shard_id: str = FIRST, at: str = MIDDLE) -> None:
        self.client.split_shard(StreamName="clicks", ShardToSplit=shard_id, NewStartingHashKey=at)

    def plan(self, started_at: datetime | None = None, processors: int = 1, **options: str) -> ReadPlan:
        given = read_options({"streamName": "clicks", **options})
        return read_plan(given, self.client, started_at or self.clock.now(), self.clock, processors)

    def read(self, plan: ReadPlan | None = None, **options: str) -> dict[str, list[bytes]]:
        """Return the data that is read, by shard."""
        found = defaultdict(list)
        for task in (plan or self.plan(**options)).tasks:
            for batch in shard_batches(task, self.reading(plan or self.plan(**options), **options)):
                for row in batch.to_pylist():
                    found[row["shardId"]].append(row["data"])
        return dict(found)

    def reading(self, plan: ReadPlan, **options: str) -> ShardReadSettings:
        given = read_options({"streamName": "clicks", **options})
        return ShardReadSettings(
            client=self.client,
            listed=plan.listed,
            page_records=given.page_records,
            memory_bytes=given.slot_memory_bytes,
            reads_on=not given.fail_on_data_loss,
            clock=self.clock,
            sleep=self.clock.sleep,
        )


@pytest.fixture
def streams() -> StreamAccount:
    return StreamAccount()


def text(instant: datetime) -> str:
    return instant.isoformat()


def test_whole_stream_is_read_in_shard_order(streams: StreamAccount) -> None:
    streams.create(shards=2)
    streams.put(b"1", b"2", b"3")
    streams.put(b"4", b"5", hash_key=MIDDLE)

    assert streams.read(maxRecordsPerFetch="1") == {FIRST: [b"1", b"2", b"3"], SECOND: [b"4", b"5"]}


def test_shards_without_records_end(streams: StreamAccount) -> None:
    streams.create(shards=3)

    assert streams.read() == {}


def test_every_column_is_present(streams: StreamAccount) -> None:
    streams.create()
    [number] = streams.put(b"1")
    arrived = streams.clock.now()
    plan = streams.plan()

    [batch] = shard_batches(plan.tasks[0], streams.reading(plan))

    assert batch.to_pylist() == [
        {
            "partitionKey": "k",
            "data": b"1",
            "stream": "clicks",
            "shardId": FIRST,
            "sequenceNumber": number,
            "approximateArrivalTimestamp": arrived,
            "subSequenceNumber": 0,
        }
    ]


def test_aggregates_expand_without_records_of_other_shards(streams: StreamAccount) -> None:
    streams.create(shards=2)
    # By the MD5 of their keys, "a" belongs to the first of two shards, and "b" to the second.
    streams.put(aggregate([("a", b"1"), ("b", b"2"), ("a", b"3")]))
    plan = streams.plan()

    rows = [
        row for task in plan.tasks for each in shard_batches(task, streams.reading(plan)) for row in each.to_pylist()
    ]

    assert [(row["data"], row["subSequenceNumber"]) for row in rows] == [(b"1", 0), (b"3", 2)]


def test_window_includes_its_start_and_excludes_its_end(streams: StreamAccount) -> None:
    streams.create()
    instants = []
    for data in (b"before", b"first", b"last", b"end"):
        streams.clock.advance(60)
        instants.append(streams.clock.now())
        streams.put(data)
    streams.clock.advance(60)

    found = streams.read(initialPosition=text(instants[1]), endingPosition=text(instants[3]))

    assert found == {FIRST: [b"first", b"last"]}


def test_records_arriving_after_the_start_are_not_read(streams: StreamAccount) -> None:
    streams.create()
    streams.put(b"1")
    plan = streams.plan()
    streams.clock.advance(5)
    streams.put(b"2")

    assert streams.read(plan) == {FIRST: [b"1"]}


def test_rereading_a_plan_gives_the_same_records(streams: StreamAccount) -> None:
    streams.create()
    streams.put(b"1", b"2")
    plan = streams.plan()
    first = streams.read(plan)
    streams.clock.advance(60)
    streams.put(b"3")

    assert streams.read(plan) == first == {FIRST: [b"1", b"2"]}


def test_every_plan_ends_at_the_start_of_the_read(streams: StreamAccount) -> None:
    streams.create()
    streams.put(b"1")
    started_at = streams.clock.now()
    streams.clock.advance(60)
    streams.put(b"2")

    assert streams.read(streams.plan(started_at)) == {FIRST: [b"1"]}


@pytest.mark.parametrize("wrong_by", [timedelta(hours=-3), timedelta(milliseconds=-700), timedelta(hours=3)])
def test_wrong_driver_clock_changes_nothing(streams: StreamAccount, wrong_by: timedelta) -> None:
    streams.create()
    streams.clock.advance(0.8)
    streams.put(b"1")
    started_at = streams.clock.now() + wrong_by
    streams.clock.advance(30.1)
    streams.put(b"2")
    wrong = VirtualClock(streams.clock.now() + wrong_by)
    plan = read_plan(read_options({"streamName": "clicks"}), streams.client, started_at, wrong, 1)

    assert streams.read(plan) == {FIRST: [b"1"]}


def test_parents_of_a_resharded_stream_are_read(streams: StreamAccount) -> None:
    streams.create()
    streams.put(b"1", b"2")
    streams.split()
    streams.put(b"3")
    streams.put(b"4", hash_key=MIDDLE)

    assert streams.read() == {FIRST: [b"1", b"2"], SECOND: [b"3"], THIRD: [b"4"]}


def test_shards_closed_before_a_window_are_skipped(streams: StreamAccount) -> None:
    streams.create()
    streams.put(b"1")
    streams.split()
    streams.clock.advance(60)
    start = streams.clock.now()
    streams.put(b"2")

    assert streams.plan(initialPosition=text(start)).listed == {"clicks": frozenset({SECOND, THIRD})}
    assert streams.read(initialPosition=text(start)) == {SECOND: [b"2"]}


def during_the_read(streams: StreamAccount, *acts: Callable[[], object]) -> None:
    """Let something happen each time a page is asked for, once the first has been."""
    for number, act in enumerate(acts, start=1):
        streams.engine.faults.add(CallFirst(act), "GetRecords", after=number, times=1)


def test_shards_beginning_before_the_end_are_read(streams: StreamAccount) -> None:
    streams.create()
    streams.put(b"1")
    end = streams.clock.now() + timedelta(minutes=1)

    def reshard() -> None:
        streams.split()
        streams.put(b"2")
        streams.put(b"3", hash_key=MIDDLE)

    during_the_read(streams, reshard)

    assert streams.read(streams.plan(endingPosition=text(end))) == {FIRST: [b"1"], SECOND: [b"2"], THIRD: [b"3"]}


def test_merged_shard_is_read_once(streams: StreamAccount) -> None:
    streams.create(shards=2)
    end = streams.clock.now() + timedelta(minutes=1)

    def merge() -> None:
        streams.client.merge_shards(StreamName="clicks", ShardToMerge=FIRST, AdjacentShardToMerge=SECOND)
        streams.put(b"1")

    during_the_read(streams, merge)

    assert streams.read(streams.plan(endingPosition=text(end))) == {THIRD: [b"1"]}


def test_read_from_latest_ends_in_the_future(streams: StreamAccount) -> None:
    streams.create()
    streams.put(b"before")
    streams.clock.advance(5)
    end = streams.clock.now() + timedelta(minutes=1)
    plan = streams.plan(initialPosition="LATEST", endingPosition=text(end))
    streams.clock.advance(5)
    streams.put(b"within")

    assert streams.read(plan) == {FIRST: [b"within"]}


def test_several_streams_are_read_together(streams: StreamAccount) -> None:
    streams.create("clicks")
    streams.create("taps")
    streams.put(b"1")
    streams.put(b"2", stream="taps")
    plan = streams.plan(streamName="clicks,taps")
    [task] = plan.tasks

    rows = [row for batch in shard_batches(task, streams.reading(plan)) for row in batch.to_pylist()]

    assert {(row["stream"], row["data"]) for row in rows} == {("clicks", b"1"), ("taps", b"2")}


def test_only_named_shards_are_read(streams: StreamAccount) -> None:
    streams.create(shards=2)
    streams.put(b"1")
    streams.put(b"2", hash_key=MIDDLE)

    assert streams.read(shardIds=SECOND) == {SECOND: [b"2"]}


def test_task_has_its_maximum_of_shards(streams: StreamAccount) -> None:
    streams.create(shards=5)

    assert sorted(len(task) for task in streams.plan(shardsPerTask="2").tasks) == [1, 2, 2]


@pytest.mark.parametrize(
    ("shards", "processors", "tasks"),
    [(5, 8, [1] * 5), (5, 2, [2, 3]), (130, 1, [43, 43, 44]), (130, 4, [32, 32, 33, 33])],
)
def test_processors_share_the_shards(streams: StreamAccount, shards: int, processors: int, tasks: list[int]) -> None:
    streams.create(shards=shards)

    assert sorted(len(task) for task in streams.plan(processors=processors).tasks) == tasks


# Ranges of sequence numbers


def ranges(**numbers: Any) -> str:
    return json.dumps({FIRST: numbers})


def test_range_includes_its_first_and_last_record(streams: StreamAccount) -> None:
    streams.create()
    numbers = streams.put(b"1", b"2", b"3", b"4")

    assert streams.read(shardRanges=ranges(start=numbers[1], end=numbers[2])) == {FIRST: [b"2", b"3"]}


@pytest.mark.parametrize(("given", "data"), [("start", [b"2", b"3"]), ("end", [b"1", b"2"])])
def test_half_open_range_extends_to_the_read_limits(streams: StreamAccount, given: str, data: list[bytes]) -> None:
    streams.create()
    numbers = streams.put(b"1", b"2", b"3")

    assert streams.read(shardRanges=ranges(**{given: numbers[1]})) == {FIRST: data}


def test_range_may_span_its_whole_shard(streams: StreamAccount) -> None:
    streams.create()
    streams.put(b"1", b"2")
    streams.split()
    numbers = streams.client.list_shards(StreamName="clicks")["Shards"][0]["SequenceNumberRange"]
    bounds = ranges(start=numbers["StartingSequenceNumber"], end=numbers["EndingSequenceNumber"])

    assert streams.read(shardRanges=bounds) == {FIRST: [b"1", b"2"]}


def test_range_ending_behind_the_last_record_fails(streams: StreamAccount) -> None:
    streams.create()
    [number] = streams.put(b"1")

    with pytest.raises(
        SourceError, match="has no record with this number or a greater one yet: give an existing number"
    ):
        streams.read(shardRanges=ranges(end=str(int(number) + 1)))


@pytest.mark.parametrize("field", ["start", "end"])
def test_number_without_a_record_is_refused(streams: StreamAccount, field: str) -> None:
    streams.create()
    streams.put(b"1")

    with pytest.raises(ConfigurationError, match=f"'shardRanges' has 5 as '{field}' of shard '{FIRST}', whose"):
        streams.plan(shardRanges=ranges(**{field: "5"}))


@pytest.mark.parametrize("options", [{"shardIds": FOURTH}, {"shardRanges": json.dumps({FOURTH: {"end": "1"}})}])
def test_missing_shard_is_refused(streams: StreamAccount, options: dict[str, str]) -> None:
    streams.create()

    with pytest.raises(ConfigurationError, match="correct its name, or leave it out"):
        streams.plan(**options)


# Records that are gone


def test_expired_window_is_refused(streams: StreamAccount) -> None:
    streams.create()
    start = streams.clock.now() + timedelta(hours=1)
    streams.clock.advance(30 * 3600)

    with pytest.raises(
        ConfigurationError, match=r"keeps records for 24 hours.* begin later, or .* failOnDataLoss=false"
    ):
        streams.plan(initialPosition=text(start))


def test_window_may_begin_before_the_stream(streams: StreamAccount) -> None:
    start = streams.clock.now() - timedelta(days=100)
    streams.create()
    streams.put(b"1")

    assert streams.read(initialPosition=text(start)) == {FIRST: [b"1"]}


def test_records_trimmed_after_planning_fail_the_read(streams: StreamAccount) -> None:
    streams.create()
    streams.put(b"1")
    streams.clock.advance(23 * 3600)
    plan = streams.plan(initialPosition=text(streams.clock.now() - timedelta(hours=22)))
    streams.clock.advance(3 * 3600)

    with pytest.raises(SourceError, match=r"data was gone before it was read.*failOnDataLoss=false"):
        streams.read(plan)


def test_remaining_records_are_read_if_loss_is_allowed(streams: StreamAccount) -> None:
    streams.create()
    start = streams.clock.now() + timedelta(hours=1)
    streams.clock.advance(30 * 3600)
    streams.put(b"2")

    assert streams.read(initialPosition=text(start), failOnDataLoss="false") == {FIRST: [b"2"]}


def test_range_with_a_trimmed_start_fails(streams: StreamAccount) -> None:
    streams.create()
    [start] = streams.put(b"1")
    streams.clock.advance(30 * 3600)
    [end] = streams.put(b"2")

    with pytest.raises(SourceError, match=f"data was gone before it was read: .*{start}"):
        streams.read(shardRanges=ranges(start=start, end=end))


@pytest.mark.parametrize("fails", [True, False])
def test_shard_missing_after_planning_is_a_loss(streams: StreamAccount, fails: bool) -> None:
    streams.create()
    streams.put(b"1")
    streams.split()
    streams.put(b"2")
    options = {"failOnDataLoss": str(fails).lower()}
    plan = streams.plan(**options)
    streams.engine.expire_shard("clicks", FIRST)

    if fails:
        with pytest.raises(SourceError, match=r"not found.*read the remaining records with failOnDataLoss=false"):
            streams.read(plan, **options)
    else:
        assert streams.read(plan, **options) == {SECOND: [b"2"]}


# What does not fit


def test_empty_window_is_refused(streams: StreamAccount) -> None:
    streams.create()

    with pytest.raises(ConfigurationError, match=r"'initialPosition' is 2026-.*begin earlier, or give"):
        streams.plan(initialPosition=text(streams.clock.now() + timedelta(minutes=1)))


def test_distant_end_is_refused(streams: StreamAccount) -> None:
    streams.create()

    with pytest.raises(ConfigurationError, match="it waits for its end, so give an end at most 24 hours ahead"):
        streams.plan(endingPosition=text(streams.clock.now() + timedelta(days=2)))


def test_unshared_stream_of_another_account_is_denied(streams: StreamAccount) -> None:
    streams.create()
    arn = "arn:aws:kinesis:us-east-1:999999999999:stream/clicks"

    with pytest.raises(ConfigurationError, match=f"stream '{arn}' in region us-east-1 .*: access denied"):
        streams.plan(streamName="", streamARN=arn)


# Many shards in one task


def test_shards_alternate_with_memory_for_one_page(streams: StreamAccount) -> None:
    streams.create(shards=16)
    for shard in range(16):
        streams.put(b"1", b"2", hash_key=str(shard * 2**124))

    found = streams.read(slotMemoryBytes=str(32 * 2**20), maxRecordsPerFetch="1")

    assert list(found.values()) == [[b"1", b"2"]] * 16


def test_unconsumed_records_pause_further_requests(streams: StreamAccount) -> None:
    streams.create()
    streams.put(*[bytes(1_000_000)] * 60)
    plan = streams.plan()
    batches = shard_batches(plan.tasks[0], streams.reading(plan, slotMemoryBytes=str(32 * 2**20)))
    rows = sum(next(batches).num_rows for _ in range(2))
    asked = streams.engine.calls["GetRecords"]

    rows += sum(batch.num_rows for batch in batches)

    assert (asked, rows) == (2, 60)


def test_threads_end_with_their_consumer(streams: StreamAccount) -> None:
    streams.create(shards=4)
    plan = streams.plan(endingPosition=text(streams.clock.now() + timedelta(hours=20)))
    streams.put(b"1")
    before = set(threading.enumerate())
    batches = shard_batches(
        plan.tasks[0], ShardReadSettings(client=streams.client, listed={}, page_records=1, memory_bytes=2**29)
    )
    next(batches)
    batches.close()

    give_up_at = time.monotonic() + 30
    while (left := set(threading.enumerate()) - before) and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert not left


def test_unreadable_shard_fails_its_task(streams: StreamAccount) -> None:
    streams.create(shards=2)
    plan = streams.plan()
    streams.client.delete_stream(StreamName="clicks")

    with pytest.raises(SourceError, match="not found"):
        streams.read(plan)


def test_registered_consumer_gets_the_same_records(streams: StreamAccount) -> None:
    streams.create(shards=2)
    streams.put(b"1", b"2")
    streams.put(b"3", hash_key=MIDDLE)

    plan = streams.plan(consumerMode="efo", consumerName="notebook")

    assert streams.read(plan) == {FIRST: [b"1", b"2"], SECOND: [b"3"]}
    assert streams.engine.calls["GetRecords"] == 0


# Trouble on the way


def test_throttled_shard_is_waited_for(streams: StreamAccount) -> None:
    streams.create(shards=2)
    streams.put(b"1")
    streams.put(b"2", hash_key=MIDDLE)
    streams.engine.faults.throttle(shard_id=FIRST, times=25)

    assert streams.read() == {FIRST: [b"1"], SECOND: [b"2"]}


def test_temporary_errors_are_retried(streams: StreamAccount) -> None:
    streams.create()
    streams.put(b"1", b"2", b"3")
    faults = streams.engine.faults
    for after, harm in enumerate((faults.fail, faults.reset, faults.lose_answer)):
        harm("GetRecords", after=after, times=2)

    assert streams.read(maxRecordsPerFetch="1") == {FIRST: [b"1", b"2", b"3"]}


def test_constantly_throttled_shard_fails_its_task(streams: StreamAccount) -> None:
    streams.create()
    streams.engine.faults.throttle(times=None)

    with pytest.raises(KinesisUnavailableError, match="every retry failed"):
        streams.read()


@dataclass(frozen=True)
class StreamEvent:
    """Something that happens to a stream.

    :param what: `put`, `split`, `merge` or `wait`.
    :param where: which sixteenth of the hash keys it is about, or how many seconds are waited.
    """

    what: str
    where: int

    def do(self, streams: StreamAccount) -> None:
        key = self.where * 2**124
        shards = streams.client.list_shards(StreamName="clicks", ShardFilter={"Type": "AT_LATEST"})["Shards"]
        shards.sort(key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))
        taking = [n for n, shard in enumerate(shards) if int(shard["HashKeyRange"]["StartingHashKey"]) <= key][-1]
        if self.what == "put":
            streams.put(b"x", hash_key=str(key))
        elif self.what == "wait":
            streams.clock.advance(self.where)
        elif self.what == "split" and int(shards[taking]["HashKeyRange"]["StartingHashKey"]) < key:
            streams.split(shards[taking]["ShardId"], at=str(key))
        elif self.what == "merge" and taking + 1 < len(shards):
            names = [shard["ShardId"] for shard in shards[taking : taking + 2]]
            streams.client.merge_shards(StreamName="clicks", ShardToMerge=names[0], AdjacentShardToMerge=names[1])


STEPS = st.lists(
    st.builds(StreamEvent, st.sampled_from(["put", "put", "put", "split", "merge", "wait"]), st.integers(0, 15)),
    max_size=25,
)


@settings(max_examples=examples(60))
@given(before=STEPS, begin=st.integers(0, 60), length=st.integers(1, 60), during=STEPS, page=st.integers(1, 3))
def test_read_returns_exactly_its_window_despite_changes(
    before: list[StreamEvent], begin: int, length: int, during: list[StreamEvent], page: int
) -> None:
    streams = StreamAccount()
    streams.create(shards=2)
    start = streams.clock.now() + timedelta(seconds=begin)
    for step in before:
        step.do(streams)
    # A window that has begun by now; its end may lie ahead.
    start = min(start, streams.clock.now())
    end = start + timedelta(seconds=length)
    plan = streams.plan(initialPosition=text(start), endingPosition=text(end))
    during_the_read(streams, *(partial(step.do, streams) for step in during))

    found = defaultdict(list)
    for task in plan.tasks:
        for batch in shard_batches(task, streams.reading(plan, maxRecordsPerFetch=str(page))):
            for row in batch.to_pylist():
                found[row["shardId"]].append(row["sequenceNumber"])

    stored = streams.engine.stored("clicks")
    wanted = {
        shard: [record["SequenceNumber"] for record in records if start <= record["ApproximateArrivalTimestamp"] < end]
        for shard, records in stored.items()
    }
    assert found == {shard: numbers for shard, numbers in wanted.items() if numbers}
