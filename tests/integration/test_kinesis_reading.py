"""Reading a real Kinesis API, served by a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from botocore.awsrequest import AWSResponse

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.kinesis.aggregation import aggregate, expand
from airflow_provider_coordination.sources.kinesis.client import (
    KinesisClient,
    kinesis_client,
)
from airflow_provider_coordination.sources.kinesis.errors import (
    KinesisUnavailableError,
    ShardNotFoundError,
    StreamNotFoundError,
)
from airflow_provider_coordination.sources.kinesis.leases import parse_partition_key
from airflow_provider_coordination.sources.kinesis.progress import LandedBatch, ShardProgress
from airflow_provider_coordination.sources.kinesis.reader import KinesisRecord, ShardPage, read_shard
from airflow_provider_coordination.sources.kinesis.shards import describe_stream, list_shards
from airflow_provider_coordination.sources.kinesis.sync import sync_shards
from airflow_provider_coordination.stores.in_memory import InMemoryStore
from tests.support.batches import begin_delivery

pytestmark = pytest.mark.integration

MIDDLE_HASH_KEY = str(2**127)


@pytest.fixture
def aws(kinesis: Any) -> Any:
    """A plain client, for what producers and operators of a stream do."""
    return kinesis.client()


@pytest.fixture
def client(kinesis: Any) -> KinesisClient:
    return kinesis_client(
        AwsSettings(
            region="us-east-1",
            endpoint_url=kinesis.endpoint_url,
            access_key_id="test",
            secret_access_key="test",
            max_attempts=3,
        )
    )


@pytest.fixture
def create_stream(aws: Any) -> Iterator[Callable[[int], str]]:
    names: list[str] = []

    def create(shards: int) -> str:
        name = f"clicks-{uuid4().hex[:8]}"
        aws.create_stream(StreamName=name, ShardCount=shards)
        names.append(name)
        wait_until_active(aws, name)
        return name

    yield create
    for name in names:
        aws.delete_stream(StreamName=name)


def wait_until_active(aws: Any, name: str) -> None:
    while aws.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamStatus"] != "ACTIVE":
        time.sleep(0.05)


def put(aws: Any, stream: str, *events: bytes) -> list[str]:
    """Put events into the lower half of the hash-key space, in order; return their sequence numbers."""
    return [
        aws.put_record(StreamName=stream, Data=event, PartitionKey="key", ExplicitHashKey="0")["SequenceNumber"]
        for event in events
    ]


def split(aws: Any, stream: str, shard_id: str) -> None:
    aws.split_shard(StreamName=stream, ShardToSplit=shard_id, NewStartingHashKey=MIDDLE_HASH_KEY)
    wait_until_active(aws, stream)


def read_until(client: KinesisClient, stream: str, shard_id: str, start: str, records: int) -> list[KinesisRecord]:
    found: list[KinesisRecord] = []
    for page in read_shard(client, stream, shard_id, start, min_interval_seconds=0.05):
        found += page.records
        if len(found) >= records or page.end_of_shard:
            break
    return found


def read_to_the_end(client: KinesisClient, stream: str, shard_id: str, start: str = "TRIM_HORIZON") -> list[ShardPage]:
    return list(read_shard(client, stream, shard_id, start, min_interval_seconds=0.05))


def test_a_listing_of_several_pages_is_read_whole(client: KinesisClient, create_stream: Callable[[int], str]) -> None:
    stream = create_stream(5)
    # A page of two, whatever the reader asks for.
    client.meta.events.register(
        "before-parameter-build.kinesis.ListShards", lambda params, **_: params.update(MaxResults=2)
    )

    shards = list_shards(client, stream)

    assert [shard.shard_id for shard in shards] == [f"shardId-{number:012d}" for number in range(5)]
    assert sum(int(shard.ending_hash_key) - int(shard.starting_hash_key) + 1 for shard in shards) == 2**128


def test_the_epoch_of_a_stream_stays_the_same(client: KinesisClient, create_stream: Callable[[int], str]) -> None:
    stream = create_stream(1)

    first, second = (describe_stream(client, stream) for _ in range(2))

    assert first == second
    assert abs(first.creation_epoch - time.time()) < 60


def test_a_shard_is_read_from_its_earliest_record_and_from_any_record_on(
    client: KinesisClient, aws: Any, create_stream: Callable[[int], str]
) -> None:
    stream = create_stream(1)
    numbers = put(aws, stream, b"one", b"two", b"three")
    [shard] = list_shards(client, stream)

    everything = read_until(client, stream, shard.shard_id, "TRIM_HORIZON", 3)
    after_the_first = read_until(client, stream, shard.shard_id, numbers[0], 2)

    assert [record.data for record in everything] == [b"one", b"two", b"three"]
    assert [record.sequence_number for record in everything] == numbers
    assert after_the_first == everything[1:]


def test_a_shard_is_read_in_pages(client: KinesisClient, aws: Any, create_stream: Callable[[int], str]) -> None:
    stream = create_stream(1)
    put(aws, stream, *(b"%d" % number for number in range(5)))
    [shard] = list_shards(client, stream)
    split(aws, stream, shard.shard_id)

    pages = list(read_shard(client, stream, shard.shard_id, "TRIM_HORIZON", page_records=2, min_interval_seconds=0.05))

    assert [record.data for page in pages for record in page.records] == [b"0", b"1", b"2", b"3", b"4"]
    assert max(len(page.records) for page in pages) == 2
    assert [page.end_of_shard for page in pages].index(True) == len(pages) - 1


def test_the_records_of_an_aggregate_come_back_one_by_one(
    client: KinesisClient, aws: Any, create_stream: Callable[[int], str]
) -> None:
    stream = create_stream(1)
    events = [(f"tail-{number % 7}", b"event %d" % number) for number in range(100)]
    put(aws, stream, aggregate(events), b"plain")
    [shard] = list_shards(client, stream)

    packed, plain = read_until(client, stream, shard.shard_id, "TRIM_HORIZON", 2)

    assert expand(packed.data, packed.partition_key) == [
        (number, key, event) for number, (key, event) in enumerate(events)
    ]
    assert expand(plain.data, plain.partition_key) == [(0, "key", b"plain")]


def test_a_split_shard_ends_and_its_children_are_leased_when_its_end_is_delivered(
    client: KinesisClient, aws: Any, create_stream: Callable[[int], str]
) -> None:
    stream = create_stream(1)
    put(aws, stream, b"before")
    coordinator = SourceCoordinator(InMemoryStore(), "clicks", "worker-1")
    coordinator.initialize()
    sync_shards(client, coordinator, stream)
    [parent] = coordinator.acquire(10)
    progress = ShardProgress.from_mapping(parent.progress)
    split(aws, stream, progress.shard_id)
    put(aws, stream, b"after")

    assert sync_shards(client, coordinator, stream).created == []
    pages = read_to_the_end(client, stream, progress.shard_id)
    begin_delivery(coordinator, parent.partition_key, whole_shard(pages), children=pages[-1].children)

    assert sync_shards(client, coordinator, stream).created == []
    children = [child.shard_id for child in pages[-1].children]
    assert {parse_partition_key(partition.partition_key).shard_id for partition in coordinator.acquire(10)} == set(
        children
    )
    assert [record.data for record in read_until(client, stream, children[0], "TRIM_HORIZON", 1)] == [b"after"]


def whole_shard(pages: list[ShardPage]) -> LandedBatch:
    records = [record for page in pages for record in page.records]
    return LandedBatch(
        batch_id="whole-shard",
        start="TRIM_HORIZON",
        end=records[-1].sequence_number,
        file="",
        records=len(records),
        bytes=0,
        end_of_shard=pages[-1].end_of_shard,
        read_until=pages[-1].read_at,
        fencing_token=1,
    )


def test_merged_shards_name_both_parents_in_the_child(
    client: KinesisClient, aws: Any, create_stream: Callable[[int], str]
) -> None:
    stream = create_stream(2)
    first, second = (shard.shard_id for shard in list_shards(client, stream))
    aws.merge_shards(StreamName=stream, ShardToMerge=first, AdjacentShardToMerge=second)
    wait_until_active(aws, stream)

    ends = [read_to_the_end(client, stream, name)[-1] for name in (first, second)]
    listed = list_shards(client, stream)[-1]

    for end in ends:
        [child] = end.children
        assert (child.shard_id, set(child.parent_shard_ids)) == (listed.shard_id, {first, second})
    assert set(listed.parent_shard_ids) == {first, second}


def test_an_iterator_that_expires_between_two_pages_loses_and_doubles_nothing(
    client: KinesisClient, aws: Any, create_stream: Callable[[int], str]
) -> None:
    stream = create_stream(1)
    put(aws, stream, *(b"%d" % number for number in range(6)))
    [shard] = list_shards(client, stream)
    calls: list[str] = []

    def expire_every_second_read(request: Any, **_: Any) -> AWSResponse | None:
        calls.append("read")
        if len(calls) % 2:
            return None
        return _answer(request.url, b'{"__type": "ExpiredIteratorException", "message": "expired"}')

    client.meta.events.register("before-send.kinesis.GetRecords", expire_every_second_read)
    split(aws, stream, shard.shard_id)

    pages = read_shard(client, stream, shard.shard_id, "TRIM_HORIZON", page_records=2, min_interval_seconds=0.05)

    assert [record.data for page in pages for record in page.records] == [b"%d" % number for number in range(6)]
    assert len(calls) > 3


def test_throttled_reads_are_repeated_until_they_pass(
    client: KinesisClient, aws: Any, create_stream: Callable[[int], str]
) -> None:
    stream = create_stream(1)
    put(aws, stream, b"one")
    [shard] = list_shards(client, stream)
    throttle(client, times=2)

    assert [record.data for record in read_until(client, stream, shard.shard_id, "TRIM_HORIZON", 1)] == [b"one"]


def test_reads_that_stay_throttled_are_an_outage(client: KinesisClient, create_stream: Callable[[int], str]) -> None:
    stream = create_stream(1)
    [shard] = list_shards(client, stream)
    throttle(client, times=100)

    with pytest.raises(KinesisUnavailableError, match=f"stream '{stream}' shard '{shard.shard_id}'"):
        read_until(client, stream, shard.shard_id, "TRIM_HORIZON", 1)


def throttle(client: KinesisClient, times: int) -> None:
    left = iter(range(times))

    def refuse(request: Any, **_: Any) -> AWSResponse | None:
        if next(left, None) is None:
            return None
        return _answer(request.url, b'{"__type": "ProvisionedThroughputExceededException", "message": "slow down"}')

    client.meta.events.register("before-send.kinesis.GetRecords", refuse)


def test_a_stream_that_does_not_exist_is_a_clear_error(client: KinesisClient, kinesis: Any) -> None:
    with pytest.raises(
        StreamNotFoundError, match=f"'nowhere' does not exist in region us-east-1 at {kinesis.endpoint_url}"
    ):
        describe_stream(client, "nowhere")


def test_a_shard_that_does_not_exist_is_a_clear_error(
    client: KinesisClient, create_stream: Callable[[int], str]
) -> None:
    stream = create_stream(1)

    with pytest.raises(ShardNotFoundError, match="shardId-000000000099"):
        read_to_the_end(client, stream, "shardId-000000000099")


def _answer(url: str, body: bytes) -> AWSResponse:
    class Raw:
        def stream(self) -> Iterator[bytes]:
            yield body

    return AWSResponse(url, 400, {"Content-Type": "application/x-amz-json-1.1"}, Raw())
