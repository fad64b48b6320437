"""The behaviour of Kinesis, checked on our server (HTTP and in process) and on `kinesis-local`.

A test that takes `service` runs against all three, unless `ONLY_OURS` says why the witness cannot speak to it. What
is asserted is what AWS documents.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    EventStreamError,
    HTTPClientError,
    ParamValidationError,
    ReadTimeoutError,
)

from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine, connect
from tests.support.kinesis_server.in_process import InProcessClient
from tests.support.kinesis_server.limits import MIB, Limits
from tests.support.kinesis_server.state import Behaviour

OURS = ["over-http", "in-process"]
WITNESS = "kinesis-local"

HAS_NO_CLOCK = "its time is the machine's and does not move"
HAS_NO_LIMITS = "it throttles nothing"
HAS_NO_FAULTS = "it does no harm on demand"
HAS_ONE_ACCOUNT = "whatever the key, it has one account"
NO_SUBSCRIPTIONS = "what it sends to a subscriber has no initial response, which boto3 refuses"

ONLY_OURS = {
    "test_listing_token_expires": HAS_NO_CLOCK,
    "test_iterator_expires_after_five_minutes": HAS_NO_CLOCK,
    "test_invalid_iterator_is_refused": "it answers with a 500",
    "test_any_number_in_the_shard_range_is_a_position": "a position must be the number of a stored record",
    "test_number_of_another_shard_is_refused": "it answers that there is no such resource",
    "test_number_of_an_earlier_stream_is_refused": "it answers that there is no such resource",
    "test_lag_follows_the_clock": "it returns the age of one record against another, and 0 between two of one"
    " millisecond",
    "test_records_older_than_the_retention_are_gone": "it trims nothing",
    "test_trimmed_number_starts_at_the_oldest_record": "it trims nothing",
    "test_shorter_retention_trims_at_once": "it trims nothing",
    "test_shard_closed_before_the_retention_is_gone": "it trims nothing",
    "test_sixth_read_in_a_second_is_refused": HAS_NO_LIMITS,
    "test_full_page_blocks_the_shard_for_five_seconds": HAS_NO_LIMITS,
    "test_readers_share_two_mebibytes_a_second": HAS_NO_LIMITS,
    "test_full_shard_fails_its_records_only": HAS_NO_LIMITS,
    "test_record_above_the_shard_throughput_is_refused": HAS_NO_LIMITS,
    "test_closed_shard_has_an_ending_sequence_number": "it says 2^63 - 1, which is less than where they begin",
    "test_listing_has_the_shards_at_the_trim_horizon": "it lists every shard",
    "test_pages_of_a_listing_keep_its_filter": "its token forgets the filter",
    "test_listings_have_a_quota": HAS_NO_LIMITS,
    "test_iterators_have_a_quota": HAS_NO_LIMITS,
    "test_lists_have_quotas": HAS_NO_LIMITS,
    "test_listing_token_continues_a_list_of_streams": "it lists streams without tokens and summaries",
    "test_policy_opens_a_stream_to_one_account_and_action": HAS_ONE_ACCOUNT,
    "test_request_holds_a_maximum_of_five_hundred_records": "it takes more",
    "test_read_may_be_empty_in_the_middle_of_a_shard": "its pages are never empty while there is more",
    "test_closed_shard_may_end_with_an_empty_page": "its last page always carries the last records",
    "test_stream_with_consumers_is_deleted_only_by_force": "it refuses, and deletes it a moment later",
    "test_stream_transitions_take_time": HAS_NO_CLOCK,
    "test_subscription_delivers_records_until_the_shard_ends": NO_SUBSCRIPTIONS,
    "test_subscription_resumes_after_its_continuation": NO_SUBSCRIPTIONS,
    "test_subscription_lasts_five_minutes": NO_SUBSCRIPTIONS,
    "test_second_subscription_is_refused_and_later_takes_over": NO_SUBSCRIPTIONS,
    "test_subscription_ends_with_its_stream": NO_SUBSCRIPTIONS,
    "test_subscription_needs_a_consumer": NO_SUBSCRIPTIONS,
    "test_subscriptions_have_a_quota": NO_SUBSCRIPTIONS,
    "test_injected_refusal_reaches_the_caller": HAS_NO_FAULTS,
    "test_fault_affects_its_shard_only_and_count_times": HAS_NO_FAULTS,
    "test_cut_connection_leaves_nothing_done": HAS_NO_FAULTS,
    "test_lost_response_leaves_the_work_done": HAS_NO_FAULTS,
    "test_slow_body_arrives_whole": HAS_NO_FAULTS,
}
"""The tests that `kinesis-local` is not asked, and why."""

HASH_KEYS = 2**128
FIRST_SHARD = "shardId-000000000000"


@dataclass
class KinesisUnderTest:
    """A Kinesis under test.

    :param client: of boto3, or with its methods; it repeats nothing.
    :param engine: what is behind it, where it is ours.
    """

    client: Any
    engine: Engine | None = None
    created: list[str] = field(default_factory=list)

    @property
    def ours(self) -> Engine:
        assert self.engine is not None, "list the test in ONLY_OURS: it asks for what only our server has"
        return self.engine

    @property
    def clock(self) -> VirtualClock:
        assert isinstance(self.ours.clock, VirtualClock)
        return self.ours.clock

    def now(self) -> datetime:
        return self.ours.clock.now() if self.engine else datetime.now(UTC)

    def pause(self, seconds: float = 0.02) -> None:
        """Let time pass."""
        if self.engine is None:
            time.sleep(seconds)
        else:
            self.clock.advance(seconds)

    def stream(self, shards: int = 1, name: str | None = None) -> str:
        name = name or f"clicks-{uuid4().hex[:8]}"
        self.client.create_stream(StreamName=name, ShardCount=shards)
        self.created.append(name)
        self.wait_until_active(name)
        return name

    def summary(self, stream: str) -> dict[str, Any]:
        summary: dict[str, Any] = self.client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
        return summary

    def wait_until_active(self, stream: str) -> None:
        while self.summary(stream)["StreamStatus"] != "ACTIVE":
            self.pause()

    def wait_until_gone(self, stream: str) -> None:
        while stream in self.client.list_streams()["StreamNames"]:
            self.pause()

    def put(self, stream: str, *events: bytes, hash_key: int = 0) -> list[str]:
        return [
            self.client.put_record(StreamName=stream, Data=event, PartitionKey="key", ExplicitHashKey=str(hash_key))[
                "SequenceNumber"
            ]
            for event in events
        ]

    def split(self, stream: str, shard: str = FIRST_SHARD, at: int = HASH_KEYS // 2) -> None:
        self.client.split_shard(StreamName=stream, ShardToSplit=shard, NewStartingHashKey=str(at))
        self.wait_until_active(stream)

    def merge(self, stream: str, first: str, second: str) -> None:
        self.client.merge_shards(StreamName=stream, ShardToMerge=first, AdjacentShardToMerge=second)
        self.wait_until_active(stream)

    def shards(self, stream: str, kind: str | None = None, **filtered: Any) -> list[dict[str, Any]]:
        request = {"ShardFilter": {"Type": kind, **filtered}} if kind else {}
        shards: list[dict[str, Any]] = self.client.list_shards(StreamName=stream, **request)["Shards"]
        return shards

    def ids(self, stream: str, kind: str | None = None, **filtered: Any) -> list[int]:
        return [number_of(shard["ShardId"]) for shard in self.shards(stream, kind, **filtered)]

    def iterator(self, stream: str, kind: str = "TRIM_HORIZON", shard: str = FIRST_SHARD, **position: Any) -> str:
        answer = self.client.get_shard_iterator(StreamName=stream, ShardId=shard, ShardIteratorType=kind, **position)
        iterator: str = answer["ShardIterator"]
        return iterator

    def page(self, iterator: str, **request: Any) -> dict[str, Any]:
        page: dict[str, Any] = self.client.get_records(ShardIterator=iterator, **request)
        return page

    def read(self, stream: str, kind: str = "TRIM_HORIZON", shard: str = FIRST_SHARD, **position: Any) -> list[bytes]:
        return data(self.page(self.iterator(stream, kind, shard, **position)))

    def consumer(self, stream: str, name: str = "reader") -> str:
        arn: str = self.client.register_stream_consumer(StreamARN=self.summary(stream)["StreamARN"], ConsumerName=name)[
            "Consumer"
        ]["ConsumerARN"]
        while self.described(arn)["ConsumerStatus"] != "ACTIVE":
            self.pause()
        return arn

    def described(self, consumer: str) -> dict[str, Any]:
        described: dict[str, Any] = self.client.describe_stream_consumer(ConsumerARN=consumer)["ConsumerDescription"]
        return described

    def subscribe(self, consumer: str, kind: str = "TRIM_HORIZON", **position: Any) -> Any:
        return self.client.subscribe_to_shard(
            ConsumerARN=consumer, ShardId=FIRST_SHARD, StartingPosition={"Type": kind, **position}
        )["EventStream"]


def number_of(shard_id: str) -> int:
    return int(shard_id.removeprefix("shardId-"))


def data(page: dict[str, Any]) -> list[bytes]:
    return [record["Data"] for record in page["Records"]]


def code_of(call: Callable[..., Any], **request: Any) -> str:
    """Return the error that a call is answered with."""
    with pytest.raises(ClientError) as caught:
        call(**request)
    return str(caught.value.response["Error"]["Code"])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "service" in metafunc.fixturenames:
        asked = OURS if metafunc.definition.name in ONLY_OURS else [*OURS, WITNESS]
        metafunc.parametrize("service", asked, indirect=True)


@pytest.fixture
def service(request: pytest.FixtureRequest) -> Iterator[KinesisUnderTest]:
    if request.param == "in-process":
        engine = Engine(VirtualClock())
        yield KinesisUnderTest(InProcessClient(engine), engine)
    elif request.param == "over-http":
        account = request.getfixturevalue("kinesis_account")
        yield KinesisUnderTest(account.client(), account.engine)
    else:
        server = request.getfixturevalue("kinesis")
        one_attempt = Config(retries={"mode": "standard", "total_max_attempts": 1})
        witness = KinesisUnderTest(server.client(config=one_attempt))
        yield witness
        left = set(witness.created).intersection(witness.client.list_streams()["StreamNames"])
        for name in left:
            witness.client.delete_stream(StreamName=name, EnforceConsumerDeletion=True)


def test_tests_without_a_witness_exist() -> None:
    assert [name for name in ONLY_OURS if name not in globals()] == []


# Streams


def test_stream_describes_itself(service: KinesisUnderTest) -> None:
    stream = service.stream(3)

    summary = service.summary(stream)

    assert {key: summary[key] for key in ("StreamName", "StreamStatus", "OpenShardCount", "RetentionPeriodHours")} == {
        "StreamName": stream,
        "StreamStatus": "ACTIVE",
        "OpenShardCount": 3,
        "RetentionPeriodHours": 24,
    }
    assert summary["StreamARN"].endswith(f":stream/{stream}")
    assert abs(summary["StreamCreationTimestamp"] - service.now()) < timedelta(seconds=60)


def test_response_has_the_time_and_its_status(service: KinesisUnderTest) -> None:
    stream = service.stream()

    metadata = service.client.describe_stream_summary(StreamName=stream)["ResponseMetadata"]

    assert metadata["HTTPStatusCode"] == 200
    server_time = datetime.strptime(metadata["HTTPHeaders"]["date"], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    assert abs(server_time - service.now()) < timedelta(seconds=60)


def test_stream_can_be_created_once(service: KinesisUnderTest) -> None:
    stream = service.stream()

    assert code_of(service.client.create_stream, StreamName=stream, ShardCount=1) == "ResourceInUseException"


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        ("describe_stream_summary", {}),
        ("list_shards", {}),
        ("put_record", {"Data": b"1", "PartitionKey": "k"}),
        ("get_shard_iterator", {"ShardId": FIRST_SHARD, "ShardIteratorType": "LATEST"}),
        ("split_shard", {"ShardToSplit": FIRST_SHARD, "NewStartingHashKey": "5"}),
        ("delete_stream", {}),
    ],
)
def test_missing_stream_is_not_found(service: KinesisUnderTest, operation: str, request_: dict[str, Any]) -> None:
    code = code_of(getattr(service.client, operation), StreamName="nowhere", **request_)

    assert code == "ResourceNotFoundException"


def test_errors_have_the_classes_of_the_client(service: KinesisUnderTest) -> None:
    with pytest.raises(service.client.exceptions.ResourceNotFoundException):
        service.client.list_shards(StreamName="nowhere")


def test_invalid_name_is_not_sent(service: KinesisUnderTest) -> None:
    with pytest.raises(ParamValidationError):
        service.client.describe_stream_summary(StreamName="")


def test_stream_is_known_by_its_arn(service: KinesisUnderTest) -> None:
    stream = service.stream()
    arn = service.summary(stream)["StreamARN"]

    assert service.client.list_shards(StreamARN=arn)["Shards"] == service.shards(stream)
    assert service.client.describe_stream_summary(StreamARN=arn)["StreamDescriptionSummary"]["StreamName"] == stream


def test_shard_is_read_by_the_arn_of_its_stream(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"1")
    arn = service.summary(stream)["StreamARN"]

    iterator = service.client.get_shard_iterator(StreamARN=arn, ShardId=FIRST_SHARD, ShardIteratorType="TRIM_HORIZON")[
        "ShardIterator"
    ]

    assert data(service.page(iterator, StreamARN=arn)) == [b"1"]


def test_streams_are_listed_page_by_page(service: KinesisUnderTest) -> None:
    created = sorted(service.stream() for _ in range(3))

    names: list[str] = []
    page = service.client.list_streams(Limit=2)
    names += page["StreamNames"]
    while page["HasMoreStreams"]:
        page = service.client.list_streams(Limit=2, ExclusiveStartStreamName=names[-1])
        names += page["StreamNames"]

    assert names == sorted(names)
    assert [name for name in names if name in created] == created


def test_listing_token_continues_a_list_of_streams(service: KinesisUnderTest) -> None:
    for _ in range(3):
        service.stream()
    whole = service.client.list_streams()

    first = service.client.list_streams(Limit=2)
    rest = service.client.list_streams(NextToken=first["NextToken"])

    assert [*first["StreamNames"], *rest["StreamNames"]] == whole["StreamNames"]
    assert [each["StreamName"] for each in whole["StreamSummaries"]] == whole["StreamNames"]
    assert {each["StreamStatus"] for each in whole["StreamSummaries"]} == {"ACTIVE"}


def test_tags_of_a_stream_are_listed_page_by_page(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.client.add_tags_to_stream(StreamName=stream, Tags={"team": "web", "stage": "live", "cost": "7"})
    service.client.remove_tags_from_stream(StreamName=stream, TagKeys=["cost"])

    first = service.client.list_tags_for_stream(StreamName=stream, Limit=1)
    rest = service.client.list_tags_for_stream(StreamName=stream, ExclusiveStartTagKey="stage")

    assert first == {**first, "Tags": [{"Key": "stage", "Value": "live"}], "HasMoreTags": True}
    assert rest == {**rest, "Tags": [{"Key": "team", "Value": "web"}], "HasMoreTags": False}


def test_new_stream_has_no_tags(service: KinesisUnderTest) -> None:
    assert service.client.list_tags_for_stream(StreamName=service.stream())["Tags"] == []


def test_lists_have_quotas(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.ours.limits = Limits(list_streams_per_second=1, list_tags_per_second=1)
    service.client.list_streams()
    service.client.list_tags_for_stream(StreamName=stream)

    assert code_of(service.client.list_streams) == "LimitExceededException"
    assert code_of(service.client.list_tags_for_stream, StreamName=stream) == "LimitExceededException"


def test_policy_opens_a_stream_to_one_account_and_action(service: KinesisUnderTest) -> None:
    owner, reader, other = (Engine(VirtualClock(), account=digit * 12) for digit in "123")
    connect(owner, reader, other)
    client = InProcessClient(owner)
    client.create_stream(StreamName="clicks", ShardCount=1)
    arn = client.describe_stream_summary(StreamName="clicks")["StreamDescriptionSummary"]["StreamARN"]
    listing = InProcessClient(reader).list_shards
    assert code_of(listing, StreamARN=arn) == "AccessDeniedException"

    statement = {"Effect": "Allow", "Principal": {"AWS": "2" * 12}, "Action": "kinesis:ListShards", "Resource": arn}
    client.put_resource_policy(ResourceARN=arn, Policy=json.dumps({"Statement": [statement]}))

    assert len(listing(StreamARN=arn)["Shards"]) == 1
    assert code_of(listing, StreamName="clicks") == "ResourceNotFoundException", "the name is of the own account"
    assert code_of(InProcessClient(reader).describe_stream_summary, StreamARN=arn) == "AccessDeniedException"
    assert code_of(InProcessClient(other).list_shards, StreamARN=arn) == "AccessDeniedException"
    assert json.loads(client.get_resource_policy(ResourceARN=arn)["Policy"]) == {"Statement": [statement]}
    client.delete_resource_policy(ResourceARN=arn)
    assert code_of(listing, StreamARN=arn) == "AccessDeniedException"


def test_deleted_stream_is_gone_and_its_successor_differs(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"1")
    old, iterator = service.summary(stream), service.iterator(stream)
    service.client.delete_stream(StreamName=stream)
    service.wait_until_gone(stream)

    assert code_of(service.client.list_shards, StreamName=stream) == "ResourceNotFoundException"
    assert code_of(service.client.get_records, ShardIterator=iterator) == "ResourceNotFoundException"

    service.pause(1)
    service.stream(name=stream)

    assert service.summary(stream)["StreamCreationTimestamp"] > old["StreamCreationTimestamp"]
    assert service.read(stream) == []


def test_retention_changes_within_bounds(service: KinesisUnderTest) -> None:
    stream = service.stream()

    service.client.increase_stream_retention_period(StreamName=stream, RetentionPeriodHours=48)
    assert service.summary(stream)["RetentionPeriodHours"] == 48
    service.client.decrease_stream_retention_period(StreamName=stream, RetentionPeriodHours=36)
    assert service.summary(stream)["RetentionPeriodHours"] == 36
    for change, hours in (("increase", 24), ("increase", 8761), ("decrease", 48), ("decrease", 23)):
        call = getattr(service.client, f"{change}_stream_retention_period")
        assert code_of(call, StreamName=stream, RetentionPeriodHours=hours) == "InvalidArgumentException"


def test_stream_transitions_take_time(service: KinesisUnderTest) -> None:
    service.ours.behaviour = Behaviour(transition_seconds=10)
    client, stream = service.client, "slow"

    client.create_stream(StreamName=stream, ShardCount=1)
    assert service.summary(stream)["StreamStatus"] == "CREATING"
    assert code_of(client.list_shards, StreamName=stream) == "ResourceInUseException"
    service.pause(10)
    assert service.summary(stream)["StreamStatus"] == "ACTIVE"

    client.split_shard(StreamName=stream, ShardToSplit=FIRST_SHARD, NewStartingHashKey=str(HASH_KEYS // 2))
    again = {"StreamName": stream, "ShardToSplit": FIRST_SHARD, "NewStartingHashKey": str(HASH_KEYS // 2)}
    assert service.summary(stream)["StreamStatus"] == "UPDATING"
    assert code_of(client.split_shard, **again) == "ResourceInUseException"
    service.put(stream, b"while it changes")
    assert service.ids(stream) == [0]
    service.pause(10)
    assert service.ids(stream) == [0, 1, 2]
    assert service.read(stream) == [b"while it changes"]

    client.delete_stream(StreamName=stream)
    assert service.summary(stream)["StreamStatus"] == "DELETING"
    service.pause(10)
    assert code_of(client.describe_stream_summary, StreamName=stream) == "ResourceNotFoundException"


# Shards


def test_shards_tile_the_hash_keys(service: KinesisUnderTest) -> None:
    stream = service.stream(3)

    shards = service.shards(stream)

    assert [number_of(shard["ShardId"]) for shard in shards] == [0, 1, 2]
    assert tiles(shards)
    assert all("ParentShardId" not in shard for shard in shards)
    assert all("EndingSequenceNumber" not in shard["SequenceNumberRange"] for shard in shards)


def tiles(shards: list[dict[str, Any]]) -> bool:
    """Return whether shards cover every hash key once."""
    ranges = sorted(
        (int(shard["HashKeyRange"]["StartingHashKey"]), int(shard["HashKeyRange"]["EndingHashKey"])) for shard in shards
    )
    joined = all(before[1] + 1 == after[0] for before, after in pairwise(ranges))
    return joined and ranges[0][0] == 0 and ranges[-1][1] == HASH_KEYS - 1


def test_split_closes_the_shard_and_opens_two_children(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.split(stream, at=1000)

    parent, lower, upper = service.shards(stream)

    assert "EndingSequenceNumber" in parent["SequenceNumberRange"]
    assert lower["HashKeyRange"] == {"StartingHashKey": "0", "EndingHashKey": "999"}
    assert upper["HashKeyRange"] == {"StartingHashKey": "1000", "EndingHashKey": str(HASH_KEYS - 1)}
    assert lower["ParentShardId"] == upper["ParentShardId"] == FIRST_SHARD
    assert "AdjacentParentShardId" not in lower
    assert service.summary(stream)["OpenShardCount"] == 2


def test_merge_closes_two_shards_and_opens_one_child(service: KinesisUnderTest) -> None:
    stream = service.stream(2)
    first, second = (shard["ShardId"] for shard in service.shards(stream))
    service.merge(stream, first, second)

    child = service.shards(stream)[-1]

    assert (child["ParentShardId"], child["AdjacentParentShardId"]) == (first, second)
    assert child["HashKeyRange"] == {"StartingHashKey": "0", "EndingHashKey": str(HASH_KEYS - 1)}
    assert service.summary(stream)["OpenShardCount"] == 1


def test_child_sequence_numbers_follow_those_of_its_parents(service: KinesisUnderTest) -> None:
    stream = service.stream()
    [number] = service.put(stream, b"before")
    service.pause(1)
    service.split(stream)
    [after] = service.put(stream, b"after")
    parent, low, high = (
        int(shard["SequenceNumberRange"]["StartingSequenceNumber"]) for shard in service.shards(stream)
    )

    assert parent < int(number) < low < int(after)
    assert int(number) < high


def test_closed_shard_has_an_ending_sequence_number(service: KinesisUnderTest) -> None:
    stream = service.stream()
    [number] = service.put(stream, b"1")
    service.split(stream)
    parent, *children = (shard["SequenceNumberRange"] for shard in service.shards(stream))

    assert int(number) <= int(parent["EndingSequenceNumber"])
    assert all(int(parent["EndingSequenceNumber"]) < int(child["StartingSequenceNumber"]) for child in children)
    assert service.read(stream, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=parent["EndingSequenceNumber"]) == []


@pytest.mark.parametrize("target", [2, 3, 4, 6, 8])
def test_stream_is_scaled_to_a_number_of_shards(service: KinesisUnderTest, target: int) -> None:
    stream = service.stream(4)

    service.client.update_shard_count(StreamName=stream, TargetShardCount=target, ScalingType="UNIFORM_SCALING")
    service.wait_until_active(stream)

    open_shards = service.shards(stream, "AT_LATEST")
    assert len(open_shards) == target
    assert tiles(open_shards)


def test_unmergeable_shards_are_refused(service: KinesisUnderTest) -> None:
    stream = service.stream(3)
    first, second, third = (shard["ShardId"] for shard in service.shards(stream))

    def refusal(one: str, other: str) -> str:
        return code_of(service.client.merge_shards, StreamName=stream, ShardToMerge=one, AdjacentShardToMerge=other)

    assert refusal(first, third) == "InvalidArgumentException"
    assert refusal(second, first) == "InvalidArgumentException"
    assert refusal(second, "shardId-000000000099") == "ResourceNotFoundException"


@pytest.mark.parametrize("at", [0, 2**126, HASH_KEYS - 1])
def test_shard_is_split_within_its_range_only(service: KinesisUnderTest, at: int) -> None:
    stream = service.stream(2)
    [lower, _] = service.shards(stream)
    service.split(stream, lower["ShardId"], at=2**125)
    middle = service.shards(stream)[-1]["ShardId"]

    if at == 2**126:
        service.split(stream, middle, at=at)
    else:
        wanted = {"StreamName": stream, "ShardToSplit": middle, "NewStartingHashKey": str(at)}
        assert code_of(service.client.split_shard, **wanted) == "InvalidArgumentException"


def test_closed_shard_is_not_split_again(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.split(stream)
    wanted = {"StreamName": stream, "ShardToSplit": FIRST_SHARD, "NewStartingHashKey": "1000"}

    # The API's description names neither; what matters is that nothing is split.
    refusal = code_of(service.client.split_shard, **wanted)
    assert refusal in ("InvalidArgumentException", "ResourceInUseException")
    assert len(service.ids(stream)) == 3


def test_listing_is_filtered(service: KinesisUnderTest) -> None:
    stream = service.stream(2)
    service.split(stream, at=1000)

    assert service.ids(stream) == [0, 1, 2, 3]
    assert service.ids(stream, "FROM_TRIM_HORIZON") == [0, 1, 2, 3]
    assert service.ids(stream, "AT_LATEST") == [1, 2, 3]
    assert service.ids(stream, "AFTER_SHARD_ID", ShardId="shardId-000000000001") == [2, 3]


def test_listing_is_filtered_by_time(service: KinesisUnderTest) -> None:
    stream = service.stream(2)
    service.pause(1)
    at_first = service.now()
    service.pause(1)
    service.split(stream, at=1000)
    service.pause(1)
    at_last = service.now()

    assert service.ids(stream, "AT_TIMESTAMP", Timestamp=at_first) == [0, 1]
    assert service.ids(stream, "AT_TIMESTAMP", Timestamp=at_last) == [1, 2, 3]
    assert service.ids(stream, "FROM_TIMESTAMP", Timestamp=at_first) == [0, 1, 2, 3]
    assert service.ids(stream, "FROM_TIMESTAMP", Timestamp=at_last) == [1, 2, 3]


def test_listing_has_the_shards_at_the_trim_horizon(service: KinesisUnderTest) -> None:
    stream = service.stream(2)
    service.pause(1)
    service.split(stream, at=1000)

    assert service.ids(stream, "AT_TRIM_HORIZON") == [0, 1]


def test_listing_has_pages(service: KinesisUnderTest) -> None:
    stream = service.stream(5)
    service.split(stream, at=1000)

    assert pages_of(service, {"StreamName": stream}) == [[0, 1, 2, 3], [4, 5, 6]]


def test_pages_of_a_listing_keep_its_filter(service: KinesisUnderTest) -> None:
    stream = service.stream(5)
    service.split(stream, "shardId-000000000004", at=HASH_KEYS - 1000)
    filtered = {"StreamName": stream, "ShardFilter": {"Type": "AT_LATEST"}}

    assert pages_of(service, filtered) == [[0, 1, 2, 3], [5, 6]]


def pages_of(service: KinesisUnderTest, request: dict[str, Any]) -> list[list[int]]:
    """Return the pages of a listing, four shards at most on each."""
    pages = []
    while request:
        page = service.client.list_shards(**request, MaxResults=4)
        pages.append([number_of(shard["ShardId"]) for shard in page["Shards"]])
        request = {"NextToken": page["NextToken"]} if page.get("NextToken") else {}
    return pages


def test_listing_token_replaces_the_stream_name(service: KinesisUnderTest) -> None:
    stream = service.stream(2)
    token = service.client.list_shards(StreamName=stream, MaxResults=1)["NextToken"]

    refusal = code_of(service.client.list_shards, StreamName=stream, NextToken=token)

    assert refusal == "InvalidArgumentException"


def test_listing_token_expires(service: KinesisUnderTest) -> None:
    stream = service.stream(2)
    token = service.client.list_shards(StreamName=stream, MaxResults=1)["NextToken"]
    service.pause(301)

    assert code_of(service.client.list_shards, NextToken=token) == "ExpiredNextTokenException"


def test_listings_have_a_quota(service: KinesisUnderTest) -> None:
    stream, other = service.stream(), service.stream()
    service.ours.limits = Limits(list_shards_per_second=2)
    for _ in range(2):
        service.shards(stream)

    assert code_of(service.client.list_shards, StreamName=stream) == "LimitExceededException"
    assert service.ids(other) == [0]
    service.pause(1)
    assert service.ids(stream) == [0]


# Writing


def test_record_goes_to_the_shard_of_its_hash_key(service: KinesisUnderTest) -> None:
    stream = service.stream(2)
    put = service.client.put_record
    end = service.shards(stream)[0]["HashKeyRange"]["EndingHashKey"]

    low = put(StreamName=stream, Data=b"1", PartitionKey="k", ExplicitHashKey=end)
    high = put(StreamName=stream, Data=b"1", PartitionKey="k", ExplicitHashKey=str(int(end) + 1))
    # The MD5 of "a" begins with 0c, the one of "b" with 92.
    by_key = [put(StreamName=stream, Data=b"1", PartitionKey=key)["ShardId"] for key in ("a", "b")]

    assert [number_of(shard) for shard in (low["ShardId"], high["ShardId"], *by_key)] == [0, 1, 0, 1]


def test_sequence_numbers_have_56_digits_and_grow(service: KinesisUnderTest) -> None:
    stream = service.stream()

    numbers = service.put(stream, *(b"%d" % number for number in range(20)))

    assert {len(number) for number in numbers} == {56}
    assert [int(number) for number in numbers] == sorted({int(number) for number in numbers})


def test_batched_records_have_individual_responses(service: KinesisUnderTest) -> None:
    stream = service.stream(2)
    entries = [
        {"Data": b"%d" % number, "PartitionKey": "k", "ExplicitHashKey": str(number % 2 * (HASH_KEYS // 2))}
        for number in range(6)
    ]

    answer = service.client.put_records(StreamName=stream, Records=entries)

    assert answer["FailedRecordCount"] == 0
    assert [number_of(result["ShardId"]) for result in answer["Records"]] == [0, 1, 0, 1, 0, 1]
    page = service.page(service.iterator(stream))
    assert [(record["Data"], record["SequenceNumber"]) for record in page["Records"]] == [
        (b"%d" % number, answer["Records"][number]["SequenceNumber"]) for number in (0, 2, 4)
    ]


def test_record_above_a_mebibyte_is_refused(service: KinesisUnderTest) -> None:
    stream = service.stream()

    refusal = code_of(service.client.put_record, StreamName=stream, Data=b"x" * (MIB + 1), PartitionKey="k")

    assert refusal in ("InvalidArgumentException", "ValidationException")


def test_request_holds_a_maximum_of_five_hundred_records(service: KinesisUnderTest) -> None:
    stream = service.stream()
    entry = {"Data": b"1", "PartitionKey": "k"}

    assert service.client.put_records(StreamName=stream, Records=[entry] * 500)["FailedRecordCount"] == 0
    refusal = code_of(service.client.put_records, StreamName=stream, Records=[entry] * 501)
    assert refusal == "ValidationException"


def test_full_shard_fails_its_records_only(service: KinesisUnderTest) -> None:
    stream = service.stream(2)
    service.ours.limits = Limits(write_records_per_second=3)
    low, high = ({"PartitionKey": "k", "ExplicitHashKey": str(key)} for key in (0, HASH_KEYS - 1))
    entries = [*({"Data": b"%d" % number, **low} for number in range(5)), {"Data": b"other", **high}]

    answer = service.client.put_records(StreamName=stream, Records=entries)

    throughput = "ProvisionedThroughputExceededException"
    assert [result.get("ErrorCode") for result in answer["Records"]] == [None] * 3 + [throughput] * 2 + [None]
    assert answer["FailedRecordCount"] == 2
    assert service.read(stream) == [b"0", b"1", b"2"]
    assert service.read(stream, shard="shardId-000000000001") == [b"other"]


def test_record_above_the_shard_throughput_is_refused(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.ours.limits = Limits(write_bytes_per_second=MIB)
    put = {"StreamName": stream, "Data": b"x" * (MIB - 1), "PartitionKey": "k"}
    service.client.put_record(**put)

    assert code_of(service.client.put_record, **put) == "ProvisionedThroughputExceededException"
    service.pause(1)
    service.client.put_record(**put)


# Where reading begins


def test_reading_begins_at_the_iterator_position(service: KinesisUnderTest) -> None:
    stream = service.stream()
    first, second, _ = service.put(stream, b"1", b"2", b"3")
    latest = service.iterator(stream, "LATEST")
    service.put(stream, b"4")

    assert service.read(stream) == [b"1", b"2", b"3", b"4"]
    assert service.read(stream, "AT_SEQUENCE_NUMBER", StartingSequenceNumber=second) == [b"2", b"3", b"4"]
    assert service.read(stream, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=first) == [b"2", b"3", b"4"]
    assert data(service.page(latest)) == [b"4"]


def test_reading_begins_at_a_time(service: KinesisUnderTest) -> None:
    stream = service.stream()
    before = service.now()
    service.pause(1)
    service.put(stream, b"1")
    service.pause(1)
    between = service.now()
    service.pause(1)
    service.put(stream, b"2")
    arrival = service.page(service.iterator(stream))["Records"][1]["ApproximateArrivalTimestamp"]

    assert service.read(stream, "AT_TIMESTAMP", Timestamp=before) == [b"1", b"2"]
    assert service.read(stream, "AT_TIMESTAMP", Timestamp=between) == [b"2"]
    assert service.read(stream, "AT_TIMESTAMP", Timestamp=arrival) == [b"2"]


def test_future_timestamp_is_refused(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"1")
    position = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": service.now() + timedelta(hours=1)}

    refusal = code_of(service.client.get_shard_iterator, StreamName=stream, ShardId=FIRST_SHARD, **position)

    assert refusal == "InvalidArgumentException"


def test_starting_sequence_number_of_a_shard_is_a_position(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"1")
    start = service.shards(stream)[0]["SequenceNumberRange"]["StartingSequenceNumber"]

    assert service.read(stream, "AT_SEQUENCE_NUMBER", StartingSequenceNumber=start) == [b"1"]


def test_any_number_in_the_shard_range_is_a_position(service: KinesisUnderTest) -> None:
    stream = service.stream()
    first, _ = service.put(stream, b"1", b"2")
    start = service.shards(stream)[0]["SequenceNumberRange"]["StartingSequenceNumber"]

    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        assert service.read(stream, kind, StartingSequenceNumber=str(int(first) + 1)) == [b"2"]
        assert service.read(stream, kind, StartingSequenceNumber=str(int(start) + 1)) == [b"1", b"2"]


def test_number_of_another_shard_is_refused(service: KinesisUnderTest) -> None:
    stream = service.stream(2)
    [low], [high] = service.put(stream, b"1"), service.put(stream, b"1", hash_key=HASH_KEYS - 1)

    for number, shard in ((low, "shardId-000000000001"), (high, FIRST_SHARD)):
        position = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": number}
        refusal = code_of(service.client.get_shard_iterator, StreamName=stream, ShardId=shard, **position)
        assert refusal == "InvalidArgumentException"


def test_number_of_an_earlier_stream_is_refused(service: KinesisUnderTest) -> None:
    stream = service.stream()
    [number] = service.put(stream, b"1")
    service.client.delete_stream(StreamName=stream)
    service.stream(name=stream)

    position = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": number}
    refusal = code_of(service.client.get_shard_iterator, StreamName=stream, ShardId=FIRST_SHARD, **position)

    assert refusal == "InvalidArgumentException"


def test_missing_shard_is_not_found(service: KinesisUnderTest) -> None:
    stream = service.stream()
    request = {"ShardId": "shardId-000000000007", "ShardIteratorType": "LATEST"}

    refusal = code_of(service.client.get_shard_iterator, StreamName=stream, **request)

    assert refusal == "ResourceNotFoundException"


def test_iterators_have_a_quota(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.ours.limits = Limits(get_shard_iterator_per_second=5)
    for _ in range(5):
        service.iterator(stream)
    request = {"StreamName": stream, "ShardId": FIRST_SHARD, "ShardIteratorType": "LATEST"}

    assert code_of(service.client.get_shard_iterator, **request) == "ProvisionedThroughputExceededException"


# Reading


def test_record_is_read_as_written(service: KinesisUnderTest) -> None:
    stream = service.stream()
    put = service.client.put_record(StreamName=stream, Data=b"\x00\xff", PartitionKey="ключ")

    [record] = service.page(service.iterator(stream))["Records"]

    assert record["Data"] == b"\x00\xff"
    assert record["PartitionKey"] == "ключ"
    assert record["SequenceNumber"] == put["SequenceNumber"]
    assert record["ApproximateArrivalTimestamp"].tzinfo is not None
    assert abs(record["ApproximateArrivalTimestamp"] - service.now()) < timedelta(seconds=60)


def test_page_respects_its_limit_and_the_next_continues(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"1", b"2", b"3")
    iterator = service.iterator(stream)

    first = service.page(iterator, Limit=2)
    second = service.page(first["NextShardIterator"], Limit=2)

    assert (data(first), data(second)) == ([b"1", b"2"], [b"3"])
    assert data(service.page(iterator, Limit=2)) == [b"1", b"2"]


def test_open_shard_never_ends(service: KinesisUnderTest) -> None:
    stream = service.stream()
    page = service.page(service.iterator(stream))

    assert page["Records"] == []
    assert page["MillisBehindLatest"] == 0
    assert "ChildShards" not in page or page["ChildShards"] == []
    service.put(stream, b"1")
    assert data(service.page(page["NextShardIterator"])) == [b"1"]


def test_page_above_ten_thousand_is_refused(service: KinesisUnderTest) -> None:
    stream = service.stream()
    iterator = service.iterator(stream)

    refusal = code_of(service.client.get_records, ShardIterator=iterator, Limit=10_001)

    assert refusal in ("InvalidArgumentException", "ValidationException")


def test_page_holds_a_maximum_of_ten_mebibytes(service: KinesisUnderTest) -> None:
    stream = service.stream()
    big = MIB - 16
    for number in range(12):
        service.client.put_record(StreamName=stream, Data=b"%02d" % number + b"x" * (big - 2), PartitionKey="k")

    first = service.page(service.iterator(stream))
    second = service.page(first["NextShardIterator"])

    assert 9 * big <= sum(map(len, data(first))) <= 10 * MIB
    assert first["MillisBehindLatest"] >= 0
    assert [record[:2] for record in data(first) + data(second)] == [b"%02d" % number for number in range(12)]


def test_lag_is_zero_at_the_tip_and_positive_before(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"1")
    service.pause(0.05)
    service.put(stream, b"2")

    first = service.page(service.iterator(stream), Limit=1)
    second = service.page(first["NextShardIterator"], Limit=1)

    assert first["MillisBehindLatest"] > 0
    assert second["MillisBehindLatest"] == 0


def test_lag_follows_the_clock(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"1", b"2")
    first = service.iterator(stream)

    assert service.page(first, Limit=1)["MillisBehindLatest"] > 0
    service.pause(30)
    service.put(stream, b"3")
    service.pause(60)
    page = service.page(first, Limit=2)
    assert page["MillisBehindLatest"] == 90_000
    assert service.page(page["NextShardIterator"])["MillisBehindLatest"] == 0


def test_last_page_of_a_split_shard_names_the_children(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"1", b"2")
    service.split(stream)

    first = service.page(service.iterator(stream), Limit=1)
    last = service.page(first["NextShardIterator"])

    assert data(last) == [b"2"]
    assert last.get("NextShardIterator") is None
    children = service.shards(stream)[1:]
    assert sorted(last["ChildShards"], key=lambda child: str(child["ShardId"])) == [
        {"ShardId": child["ShardId"], "ParentShards": [FIRST_SHARD], "HashKeyRange": child["HashKeyRange"]}
        for child in children
    ]


def test_closed_empty_shard_ends_at_once(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.split(stream)

    for kind in ("TRIM_HORIZON", "LATEST"):
        page = service.page(service.iterator(stream, kind))
        assert page["Records"] == []
        assert page.get("NextShardIterator") is None
        assert len(page["ChildShards"]) == 2


def test_merged_shards_name_one_child_with_both_parents(service: KinesisUnderTest) -> None:
    stream = service.stream(2)
    parents = [shard["ShardId"] for shard in service.shards(stream)]
    service.merge(stream, *parents)

    assert len(parents) == 2
    for parent in parents:
        [child] = service.page(service.iterator(stream, shard=parent))["ChildShards"]
        assert sorted(child["ParentShards"]) == parents
        assert number_of(child["ShardId"]) == 2


def test_records_after_a_split_are_in_the_children(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"before")
    service.split(stream)
    service.put(stream, b"low")
    service.put(stream, b"high", hash_key=HASH_KEYS - 1)

    shards = [shard["ShardId"] for shard in service.shards(stream)]
    assert [service.read(stream, shard=shard) for shard in shards] == [[b"before"], [b"low"], [b"high"]]


def test_closed_shard_may_end_with_an_empty_page(service: KinesisUnderTest) -> None:
    service.ours.behaviour = Behaviour(end_with_data=False)
    stream = service.stream()
    service.put(stream, b"1")
    service.split(stream)

    first = service.page(service.iterator(stream))
    last = service.page(first["NextShardIterator"])

    assert (data(first), data(last)) == ([b"1"], [])
    assert last.get("NextShardIterator") is None


def test_read_may_be_empty_in_the_middle_of_a_shard(service: KinesisUnderTest) -> None:
    service.ours.behaviour = Behaviour(empty_page_every=2)
    stream = service.stream()
    service.put(stream, b"1", b"2", b"3")
    iterator, pages = service.iterator(stream), []
    for _ in range(4):
        pages.append(service.page(iterator, Limit=1))
        iterator = pages[-1]["NextShardIterator"]

    assert [data(page) for page in pages] == [[b"1"], [], [b"2"], []]
    assert [page["MillisBehindLatest"] > 0 for page in pages] == [True] * 4


def test_invalid_iterator_is_refused(service: KinesisUnderTest) -> None:
    assert code_of(service.client.get_records, ShardIterator="none") == "InvalidArgumentException"


def test_iterator_expires_after_five_minutes(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"1")
    iterator = service.iterator(stream)

    service.pause(300)
    assert data(service.page(iterator)) == [b"1"]
    service.pause(1)
    assert code_of(service.client.get_records, ShardIterator=iterator) == "ExpiredIteratorException"


# Limits of reading


def test_sixth_read_in_a_second_is_refused(service: KinesisUnderTest) -> None:
    stream = service.stream(2)
    service.ours.limits = Limits(get_records_per_second=5)
    one, another = service.iterator(stream), service.iterator(stream, "LATEST")
    for reader in (one, another, one, another, one):
        service.page(reader)

    assert code_of(service.client.get_records, ShardIterator=another) == "ProvisionedThroughputExceededException"
    service.page(service.iterator(stream, shard="shardId-000000000001"))
    service.pause(1)
    service.page(another)


def test_full_page_blocks_the_shard_for_five_seconds(service: KinesisUnderTest) -> None:
    stream = service.stream()
    for _ in range(11):
        service.client.put_record(StreamName=stream, Data=b"x" * (MIB - 1), PartitionKey="k")
    service.ours.limits = Limits(read_bytes_per_second=2 * MIB)
    iterator = service.page(service.iterator(stream))["NextShardIterator"]

    service.pause(4.9)
    assert code_of(service.client.get_records, ShardIterator=iterator) == "ProvisionedThroughputExceededException"
    service.pause(0.1)
    assert len(service.page(iterator)["Records"]) == 1


def test_readers_share_two_mebibytes_a_second(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.client.put_record(StreamName=stream, Data=b"x" * (MIB - 1), PartitionKey="k")
    service.ours.limits = Limits(read_bytes_per_second=2 * MIB)
    one, another = service.iterator(stream), service.iterator(stream)

    for reader in (one, another):
        service.page(reader)
    assert code_of(service.client.get_records, ShardIterator=one) == "ProvisionedThroughputExceededException"
    service.pause(1)
    assert len(service.page(one)["Records"]) == 1


# Retention


def test_records_older_than_the_retention_are_gone(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"old")
    service.pause(1)
    service.put(stream, b"new")
    service.pause(24 * 3600 - 1)
    assert service.read(stream) == [b"old", b"new"]
    service.pause(1)

    assert service.read(stream) == [b"new"]
    assert service.read(stream, "AT_TIMESTAMP", Timestamp=service.now() - timedelta(days=3)) == [b"new"]


def test_trimmed_number_starts_at_the_oldest_record(service: KinesisUnderTest) -> None:
    stream = service.stream()
    [trimmed] = service.put(stream, b"old")
    service.pause(3600)
    service.put(stream, b"new", b"newer")
    service.pause(23 * 3600 + 1)

    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        assert service.read(stream, kind, StartingSequenceNumber=trimmed) == [b"new", b"newer"]


def test_shorter_retention_trims_at_once(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.client.increase_stream_retention_period(StreamName=stream, RetentionPeriodHours=72)
    service.put(stream, b"old")
    service.pause(48 * 3600)
    assert service.read(stream) == [b"old"]

    service.client.decrease_stream_retention_period(StreamName=stream, RetentionPeriodHours=24)
    service.client.increase_stream_retention_period(StreamName=stream, RetentionPeriodHours=72)

    assert service.read(stream) == []


def test_shard_closed_before_the_retention_is_gone(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"1")
    service.split(stream)
    service.pause(23 * 3600)
    assert service.ids(stream) == [0, 1, 2]
    iterator = service.iterator(stream)
    service.pause(3601)
    request = {"StreamName": stream, "ShardId": FIRST_SHARD, "ShardIteratorType": "TRIM_HORIZON"}

    assert service.ids(stream) == service.ids(stream, "AT_TRIM_HORIZON") == [1, 2]
    assert service.shards(stream)[0]["ParentShardId"] == FIRST_SHARD
    assert code_of(service.client.get_shard_iterator, **request) == "ResourceNotFoundException"
    assert code_of(service.client.get_records, ShardIterator=iterator) == "ExpiredIteratorException"


# Consumers and subscriptions


def test_consumer_is_registered_described_listed_and_deregistered(service: KinesisUnderTest) -> None:
    stream = service.stream()
    arn = service.consumer(stream)
    stream_arn = service.summary(stream)["StreamARN"]

    described = service.described(arn)
    assert (described["ConsumerName"], described["StreamARN"]) == ("reader", stream_arn)
    by_name = service.client.describe_stream_consumer(StreamARN=stream_arn, ConsumerName="reader")
    assert by_name["ConsumerDescription"] == described
    [listed] = service.client.list_stream_consumers(StreamARN=stream_arn)["Consumers"]
    assert listed["ConsumerARN"] == arn
    refusal = code_of(service.client.register_stream_consumer, StreamARN=stream_arn, ConsumerName="reader")
    assert refusal == "ResourceInUseException"
    service.client.deregister_stream_consumer(ConsumerARN=arn)
    while service.client.list_stream_consumers(StreamARN=stream_arn)["Consumers"]:
        service.pause()
    assert code_of(service.client.describe_stream_consumer, ConsumerARN=arn) == "ResourceNotFoundException"


def test_stream_with_consumers_is_deleted_only_by_force(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.consumer(stream)

    assert code_of(service.client.delete_stream, StreamName=stream) == "ResourceInUseException"
    service.client.delete_stream(StreamName=stream, EnforceConsumerDeletion=True)
    service.wait_until_gone(stream)


def events_of(subscription: Any, count: int | None = None) -> list[dict[str, Any]]:
    """Return this number of events, or all until it ends."""
    events: list[dict[str, Any]] = []
    try:
        for event in subscription:
            events.append(event["SubscribeToShardEvent"])
            if len(events) == count:
                break
    finally:
        subscription.close()
    return events


def test_subscription_delivers_records_until_the_shard_ends(service: KinesisUnderTest) -> None:
    stream = service.stream()
    numbers = service.put(stream, b"1", b"2")
    service.split(stream)

    [event] = events_of(service.subscribe(service.consumer(stream)))

    assert [record["SequenceNumber"] for record in event["Records"]] == numbers
    assert data(event) == [b"1", b"2"]
    assert event.get("ContinuationSequenceNumber") is None
    assert [number_of(child["ShardId"]) for child in event["ChildShards"]] == [1, 2]


def test_subscription_resumes_after_its_continuation(service: KinesisUnderTest) -> None:
    stream = service.stream()
    consumer = service.consumer(stream)
    [first] = events_of(service.subscribe(consumer, "LATEST"), 1)
    service.put(stream, b"1")
    service.pause(6)

    [second] = events_of(
        service.subscribe(consumer, "AFTER_SEQUENCE_NUMBER", SequenceNumber=first["ContinuationSequenceNumber"]), 1
    )
    service.put(stream, b"2")
    service.pause(6)
    [third] = events_of(
        service.subscribe(consumer, "AFTER_SEQUENCE_NUMBER", SequenceNumber=second["ContinuationSequenceNumber"]), 1
    )

    assert [data(event) for event in (first, second, third)] == [[], [b"1"], [b"2"]]
    assert third["ContinuationSequenceNumber"] == third["Records"][-1]["SequenceNumber"]


def test_subscription_lasts_five_minutes(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"1")
    events = iter(service.subscribe(service.consumer(stream)))

    assert data(next(events)["SubscribeToShardEvent"]) == [b"1"]
    service.pause(300)
    assert list(events) == []


def test_second_subscription_is_refused_and_later_takes_over(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"1")
    consumer = service.consumer(stream)
    first = iter(service.subscribe(consumer))
    next(first)
    request = {"ConsumerARN": consumer, "ShardId": FIRST_SHARD, "StartingPosition": {"Type": "LATEST"}}

    service.pause(4.9)
    assert code_of(service.client.subscribe_to_shard, **request) == "ResourceInUseException"
    service.pause(0.1)
    second = iter(service.subscribe(consumer))

    with pytest.raises(EventStreamError, match="ResourceInUseException"):
        list(first)
    assert data(next(second)["SubscribeToShardEvent"]) == [b"1"]


def test_subscription_ends_with_its_stream(service: KinesisUnderTest) -> None:
    stream = service.stream()
    events = iter(service.subscribe(service.consumer(stream)))
    next(events)

    service.client.delete_stream(StreamName=stream, EnforceConsumerDeletion=True)

    with pytest.raises(EventStreamError, match="ResourceNotFoundException"):
        list(events)


def test_subscription_needs_a_consumer(service: KinesisUnderTest) -> None:
    stream = service.stream()
    arn = service.consumer(stream)
    service.ours.behaviour = Behaviour(transition_seconds=10)
    young = service.client.register_stream_consumer(
        StreamARN=service.summary(stream)["StreamARN"], ConsumerName="young"
    )["Consumer"]["ConsumerARN"]
    position = {"ShardId": FIRST_SHARD, "StartingPosition": {"Type": "LATEST"}}

    unknown = code_of(service.client.subscribe_to_shard, ConsumerARN=arn.replace("reader", "other"), **position)
    not_yet = code_of(service.client.subscribe_to_shard, ConsumerARN=young, **position)

    assert (unknown, not_yet) == ("ResourceNotFoundException", "ResourceInUseException")


def test_subscriptions_have_a_quota(service: KinesisUnderTest) -> None:
    stream = service.stream()
    consumer = service.consumer(stream)
    service.ours.limits = Limits(subscribe_per_second=1)
    events_of(service.subscribe(consumer), 1)
    request = {"ConsumerARN": consumer, "ShardId": FIRST_SHARD, "StartingPosition": {"Type": "LATEST"}}

    assert code_of(service.client.subscribe_to_shard, **request) == "LimitExceededException"


# Faults


@pytest.mark.parametrize(
    ("fault", "arguments", "code", "status"),
    [
        ("throttle", {"operation": "GetRecords"}, "ProvisionedThroughputExceededException", 400),
        ("fail", {"operation": "GetRecords"}, "InternalFailure", 500),
        ("deny", {"operation": "GetRecords"}, "AccessDeniedException", 400),
        ("expire_iterator", {}, "ExpiredIteratorException", 400),
        ("kms", {"code": "KMSThrottlingException"}, "KMSThrottlingException", 400),
    ],
)
def test_injected_refusal_reaches_the_caller(
    service: KinesisUnderTest, fault: str, arguments: dict[str, Any], code: str, status: int
) -> None:
    stream = service.stream()
    iterator = service.iterator(stream)
    getattr(service.ours.faults, fault)(**arguments)

    with pytest.raises(ClientError) as caught:
        service.page(iterator)

    assert caught.value.response["Error"]["Code"] == code
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert service.page(iterator)["Records"] == []


def test_fault_affects_its_shard_only_and_count_times(service: KinesisUnderTest) -> None:
    stream = service.stream(2)
    bad, good = service.iterator(stream), service.iterator(stream, shard="shardId-000000000001")
    service.ours.faults.throttle("GetRecords", stream=stream, shard_id=FIRST_SHARD, after=1, times=2)

    def outcome(iterator: str) -> bool:
        try:
            service.page(iterator)
        except ClientError:
            return False
        return True

    assert [outcome(bad) for _ in range(5)] == [True, False, False, True, True]
    assert all(outcome(good) for _ in range(5))


def test_cut_connection_leaves_nothing_done(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.ours.faults.reset("PutRecord")

    with pytest.raises(ConnectionClosedError):
        service.put(stream, b"1")

    assert service.read(stream) == []


def test_lost_response_leaves_the_work_done(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.ours.faults.lose_answer("PutRecord")

    with pytest.raises((ConnectionClosedError, ReadTimeoutError)):
        service.put(stream, b"1")

    assert service.read(stream) == [b"1"]


def test_slow_body_arrives_whole(service: KinesisUnderTest) -> None:
    stream = service.stream()
    service.put(stream, b"1")
    iterator = service.iterator(stream)
    service.ours.faults.slow("GetRecords", 0.3)

    assert data(service.page(iterator)) == [b"1"]


def test_body_slower_than_the_client_times_out(kinesis_account: Any) -> None:
    impatient = kinesis_account.client(
        config=Config(retries={"mode": "standard", "total_max_attempts": 1}, read_timeout=0.2)
    )
    service = KinesisUnderTest(impatient, kinesis_account.engine)
    iterator = service.iterator(service.stream())
    service.ours.faults.slow("GetRecords", 2)

    with pytest.raises((BotoCoreError, HTTPClientError)):
        service.page(iterator)
