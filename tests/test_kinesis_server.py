"""The Kinesis server of the tests: its features beyond the API.

What it does as the API says is in `tests/integration/test_kinesis_conformance.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer
from botocore.exceptions import ClientError, ConnectionClosedError
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.shards import list_shards
from tests.support.depth import examples
from tests.support.kinesis_server import control, event_stream, json_wire
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.errors import ApiError, in_use
from tests.support.kinesis_server.faults import Faults, RefusedCall, Subject
from tests.support.kinesis_server.in_process import InProcessClient
from tests.support.kinesis_server.limits import Limits, Window
from tests.support.kinesis_server.state import Behaviour
from tests.support.kinesis_server.tokens import fields_of, token

STREAM = "clicks"
FIRST_SHARD = "shardId-000000000000"
HASH_KEYS = 2**128
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def engine(clock: VirtualClock) -> Engine:
    return Engine(clock)


@pytest.fixture
def client(engine: Engine) -> InProcessClient:
    client = InProcessClient(engine)
    client.create_stream(StreamName=STREAM, ShardCount=1)
    return client


def put(client: InProcessClient, *events: bytes, hash_key: int = 0) -> list[str]:
    return [
        client.put_record(StreamName=STREAM, Data=event, PartitionKey="k", ExplicitHashKey=str(hash_key))[
            "SequenceNumber"
        ]
        for event in events
    ]


def split(client: InProcessClient, shard: str = FIRST_SHARD, at: int = HASH_KEYS // 2) -> None:
    client.split_shard(StreamName=STREAM, ShardToSplit=shard, NewStartingHashKey=str(at))


def iterator(client: InProcessClient, shard: str = FIRST_SHARD) -> str:
    found: str = client.get_shard_iterator(StreamName=STREAM, ShardId=shard, ShardIteratorType="TRIM_HORIZON")[
        "ShardIterator"
    ]
    return found


def whole_shard(client: InProcessClient, shard: str, page_records: int = 10_000) -> list[bytes]:
    """Return the records of a shard, up to its end or its tip."""
    found: list[bytes] = []
    at: str | None = iterator(client, shard)
    while at:
        page = client.get_records(ShardIterator=at, Limit=page_records)
        found += [record["Data"] for record in page["Records"]]
        at = page.get("NextShardIterator") if page["MillisBehindLatest"] else None
    return found


def test_client_suits_the_package(client: InProcessClient) -> None:
    of_the_package: KinesisClient = client

    assert [shard.shard_id for shard in list_shards(of_the_package, STREAM)] == [FIRST_SHARD]


def test_slowly_created_stream_has_shards_at_trim_horizon(engine: Engine, clock: VirtualClock) -> None:
    engine.behaviour = Behaviour(transition_seconds=0.001)  # the clock moves on within the call
    client = InProcessClient(engine)
    client.create_stream(StreamName=STREAM, ShardCount=2)
    clock.advance(60)

    shards = client.list_shards(StreamName=STREAM, ShardFilter={"Type": "AT_TRIM_HORIZON"})["Shards"]
    assert covers_every_key(shards)


# Histories

Step = tuple[str, int]

steps = st.lists(
    st.tuples(st.sampled_from(["put", "put", "split", "merge", "scale", "wait"]), st.integers(0, 2**32)), max_size=30
)


@given(steps, st.integers(1, 3))
@settings(max_examples=examples(40))
def test_stream_keeps_records_once_in_order_through_resharding(history: list[Step], page_records: int) -> None:
    clock = VirtualClock(START)
    client = InProcessClient(Engine(clock))
    client.create_stream(StreamName=STREAM, ShardCount=2)
    written: dict[int, list[bytes]] = {}
    for step, choice in history:
        take_step(client, clock, step, choice, written)

    shards = client.list_shards(StreamName=STREAM)["Shards"]
    read = [event for shard in shards for event in whole_shard(client, shard["ShardId"], page_records)]

    # Shards in the order of their birth are parents before children, so every key is in order.
    for key, events in written.items():
        assert [event for event in read if event.startswith(b"%d/" % key)] == events
    assert len(read) == sum(map(len, written.values()))
    for kind in ("AT_LATEST", "AT_TRIM_HORIZON"):
        assert covers_every_key(client.list_shards(StreamName=STREAM, ShardFilter={"Type": kind})["Shards"])
    assert numbers_follow_their_parents(shards)


def take_step(
    client: InProcessClient, clock: VirtualClock, step: str, choice: int, written: dict[int, list[bytes]]
) -> None:
    open_shards = client.list_shards(StreamName=STREAM, ShardFilter={"Type": "AT_LATEST"})["Shards"]
    open_shards.sort(key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))
    one = choice % len(open_shards)
    if step == "put":
        key = choice % 16
        event = b"%d/%d" % (key, len(written.setdefault(key, [])))
        put(client, event, hash_key=key * (HASH_KEYS // 16))
        written[key].append(event)
    elif step == "split":
        low, high = (int(open_shards[one]["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
        if high - low > 16:
            split(client, open_shards[one]["ShardId"], low + (high - low) * (choice % 7 + 1) // 8)
    elif step == "merge" and one + 1 < len(open_shards):
        pair = [shard["ShardId"] for shard in open_shards[one : one + 2]]
        client.merge_shards(StreamName=STREAM, ShardToMerge=pair[0], AdjacentShardToMerge=pair[1])
    elif step == "scale":
        count = len(open_shards)
        target = -(-count // 2) + choice % (count + 1)
        client.update_shard_count(
            StreamName=STREAM, TargetShardCount=min(target, 2 * count), ScalingType="UNIFORM_SCALING"
        )
    elif step == "wait":
        clock.advance(choice % 100)


def covers_every_key(shards: list[dict[str, Any]]) -> bool:
    ranges = sorted(
        (int(shard["HashKeyRange"]["StartingHashKey"]), int(shard["HashKeyRange"]["EndingHashKey"])) for shard in shards
    )
    joined = all(before[1] + 1 == after[0] for before, after in pairwise(ranges))
    return joined and ranges[0][0] == 0 and ranges[-1][1] == HASH_KEYS - 1


def numbers_follow_their_parents(shards: list[dict[str, Any]]) -> bool:
    ends = {shard["ShardId"]: shard["SequenceNumberRange"].get("EndingSequenceNumber") for shard in shards}
    return all(
        int(ends[shard[parent]]) < int(shard["SequenceNumberRange"]["StartingSequenceNumber"])
        for shard in shards
        for parent in ("ParentShardId", "AdjacentParentShardId")
        if parent in shard
    )


def test_shard_opens_before_it_closes_on_a_stopped_clock(client: InProcessClient) -> None:
    split(client)
    split(client, "shardId-000000000001", at=1000)

    at_first = client.list_shards(StreamName=STREAM, ShardFilter={"Type": "AT_TIMESTAMP", "Timestamp": START})

    assert [shard["ShardId"] for shard in at_first["Shards"]] == [FIRST_SHARD]


def test_recreated_streams_are_seconds_apart_on_a_stopped_clock(client: InProcessClient) -> None:
    def created() -> datetime:
        summary = client.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]
        instant: datetime = summary["StreamCreationTimestamp"]
        return instant

    first = created()
    client.delete_stream(StreamName=STREAM)
    client.create_stream(StreamName=STREAM, ShardCount=1)

    assert created() - first >= timedelta(seconds=1)


def test_threads_share_an_engine(client: InProcessClient, engine: Engine) -> None:
    def write(writer: int) -> None:
        for number in range(100):
            put(client, b"%d/%d" % (writer, number))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    records = engine.stored(STREAM)[FIRST_SHARD]
    numbers = [int(record["SequenceNumber"]) for record in records]
    assert len(records) == 400
    assert all(before < after for before, after in pairwise(numbers))


# What a test does to it


def test_records_are_trimmed_on_request(client: InProcessClient, engine: Engine) -> None:
    first, _, _ = put(client, b"1", b"2", b"3")

    engine.trim(STREAM, FIRST_SHARD, through=first)
    assert whole_shard(client, FIRST_SHARD) == [b"2", b"3"]
    engine.trim(STREAM)
    assert engine.stored(STREAM) == {FIRST_SHARD: []}


def test_closed_shards_alone_vanish_on_request(client: InProcessClient, engine: Engine) -> None:
    with pytest.raises(ApiError, match="is open"):
        engine.expire_shard(STREAM, FIRST_SHARD)
    split(client)
    engine.expire_shard(STREAM, FIRST_SHARD)

    assert [shard["ShardId"] for shard in client.list_shards(StreamName=STREAM)["Shards"]] == [
        "shardId-000000000001",
        "shardId-000000000002",
    ]


def test_fault_can_run_just_before_a_call(client: InProcessClient, engine: Engine) -> None:
    put(client, b"1")
    at = iterator(client)
    engine.faults.before("GetRecords", lambda: split(client), after=1)

    first = client.get_records(ShardIterator=at)
    second = client.get_records(ShardIterator=first["NextShardIterator"])

    assert second.get("NextShardIterator") is None
    assert len(second["ChildShards"]) == 2


def test_calls_are_counted(client: InProcessClient, engine: Engine) -> None:
    engine.faults.throttle("ListShards")
    with pytest.raises(ClientError, match="LimitExceededException"):
        client.list_shards(StreamName=STREAM)
    client.list_shards(StreamName=STREAM)

    assert engine.calls["ListShards"] == 2


@pytest.mark.parametrize(
    ("harm", "times", "passes"),
    [
        (lambda faults, times: faults.throttle("ListShards", times=times), 2, True),
        (lambda faults, times: faults.throttle("ListShards", times=times), 3, False),
        (lambda faults, times: faults.reset("ListShards", times=times), 2, True),
        (lambda faults, times: faults.lose_answer("ListShards", times=times), 2, True),
        (lambda faults, times: faults.deny("ListShards", times=times), 1, False),
    ],
)
def test_client_with_attempts_retries_as_boto3_does(
    client: InProcessClient, engine: Engine, harm: Callable[[Faults, int], object], times: int, passes: bool
) -> None:
    patient = InProcessClient(engine, max_attempts=3)
    harm(engine.faults, times)

    if passes:
        answer = patient.list_shards(StreamName=STREAM)
        assert answer["ResponseMetadata"]["RetryAttempts"] == times
        assert engine.clock.now() > START
    else:
        with pytest.raises(ClientError):
            patient.list_shards(StreamName=STREAM)


def test_waiting_for_an_event_moves_a_virtual_clock(client: InProcessClient, clock: VirtualClock) -> None:
    arn = client.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamARN"]
    consumer = client.register_stream_consumer(StreamARN=arn, ConsumerName="reader")["Consumer"]["ConsumerARN"]
    subscription = client.subscribe_to_shard(
        ConsumerARN=consumer, ShardId=FIRST_SHARD, StartingPosition={"Type": "LATEST"}
    )

    events = [event["SubscribeToShardEvent"] for event in subscription["EventStream"]]

    assert clock.now() - START == timedelta(minutes=5)
    assert len(events) == 60
    assert all(event["Records"] == [] for event in events)


def test_response_has_the_time_of_the_virtual_clock(client: InProcessClient, clock: VirtualClock) -> None:
    clock.advance(90)

    headers = client.list_streams()["ResponseMetadata"]["HTTPHeaders"]

    assert headers["date"] == headers.get("date") == "Thu, 01 Jan 2026 00:01:30 GMT"
    assert headers.get("x-amzn-other") is None


# Its parts


@pytest.mark.parametrize(
    ("which", "struck"),
    [
        ({"times": 2}, [True, True, False, False]),
        ({"after": 1}, [False, True, False, False]),
        ({"times": None, "after": 2}, [False, False, True, True]),
        ({"stream": "other"}, [False] * 4),
        ({"shard_id": "other"}, [False] * 4),
        ({"stream": STREAM, "shard_id": FIRST_SHARD, "times": None}, [True] * 4),
    ],
)
def test_rule_selects_calls(which: Any, struck: list[bool]) -> None:
    faults = Faults()
    faults.throttle("GetRecords", **which)

    assert faults.due("PutRecord", Subject(STREAM, FIRST_SHARD)) is None
    assert [faults.due("GetRecords", Subject(STREAM, FIRST_SHARD)) is not None for _ in struck] == struck


def test_older_rule_wins_until_used_up_or_removed() -> None:
    faults = Faults()
    older, newer = faults.fail(None, times=None), faults.deny("GetRecords", times=None)

    def code() -> str | None:
        effect = faults.due("GetRecords", Subject())
        return effect.code if isinstance(effect, RefusedCall) else None

    assert code() == "InternalFailure"
    faults.remove(older)
    assert code() == "AccessDeniedException"
    assert (older.hits, newer.hits) == (1, 1)
    faults.clear()
    assert code() is None


def test_window_forgets_after_a_second() -> None:
    window = Window()

    assert window.take(0, 3, 2)
    assert not window.take(500, 3, 2)
    assert window.take(500, 3, 1)
    assert not window.take(999, 3)
    assert window.take(1000, 3, 2)
    assert not window.take(1499, 3)
    assert window.take(1499, None, 100)


def test_real_limits_are_all_on_and_defaults_all_off() -> None:
    assert None not in vars(Limits.real()).values()
    assert set(vars(Limits()).values()) == {None}


def test_changed_token_is_invalid() -> None:
    made = token("1", FIRST_SHARD, 42)

    assert fields_of(made, 3) == ["1", FIRST_SHARD, "42"]
    assert fields_of(made, 4) is None
    assert fields_of("A" + made[1:], 3) is None
    assert fields_of("not a token", 3) is None


def test_event_is_framed_for_botocore() -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(event_stream.initial_response())
    buffer.add_data(event_stream.event({"SubscribeToShardEvent": {"Records": [{"Data": b"1"}]}}))
    buffer.add_data(event_stream.exception(in_use("taken over")))

    messages: list[Any] = list(buffer)
    initial, event, exception = messages

    assert initial.headers[":event-type"] == "initial-response"
    assert event.headers[":event-type"] == "SubscribeToShardEvent"
    assert event.payload == b'{"Records":[{"Data":"MQ=="}]}'
    assert exception.headers[":exception-type"] == "ResourceInUseException"
    assert exception.to_response_dict()["status_code"] == 400


def test_api_json_carries_bytes_and_instants() -> None:
    sent = {
        "Data": b"\x00\xff",
        "Timestamp": START,
        "Records": [{"Data": b"1"}],
        "StartingPosition": {"Timestamp": START},
    }

    assert json_wire.decoded(json_wire.encoded(sent)) == sent


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"Data": "***"}', b'{"Timestamp": "today"}'])
def test_request_without_valid_api_json_is_refused(content: bytes) -> None:
    with pytest.raises(ApiError, match="SerializationException"):
        json_wire.decoded(content)


def test_another_process_controls_an_account(client: InProcessClient, engine: Engine) -> None:
    put(client, b"1")

    def call_control(what: str, **arguments: Any) -> dict[str, Any]:
        return control.perform(lambda key: engine, f"/test/{what}", arguments)

    call_control("fault", effect="reset", operation="ListShards")
    with pytest.raises(ConnectionClosedError):
        client.list_shards(StreamName=STREAM)
    call_control("fault", effect="deny", operation="ListShards", times=None)
    call_control("clear_faults")
    client.list_shards(StreamName=STREAM)
    call_control("limits", get_records_per_second=1)
    call_control("behaviour", end_with_data=False)
    call_control("trim", stream=STREAM)
    split(client)
    call_control("expire_shard", stream=STREAM, shard_id=FIRST_SHARD)

    assert engine.limits == Limits(get_records_per_second=1)
    assert not engine.behaviour.end_with_data
    assert list(engine.stored(STREAM)) == ["shardId-000000000001", "shardId-000000000002"]
    assert call_control("calls")["ListShards"] == 1
    with pytest.raises(KeyError, match="none of deny"):
        call_control("fault", effect="before", operation="ListShards")
