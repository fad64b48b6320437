"""Records are read from a real Kinesis API in another process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.kinesis.aggregation import expand
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart, ShardPage
from airflow_provider_coordination.sources.kinesis.client import (
    KinesisClient,
    KinesisUnavailableError,
    ShardNotFoundError,
    StreamNotFoundError,
)
from airflow_provider_coordination.sources.kinesis.fan_out import ensure_consumer
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.positions import at_timestamp
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, parse_partition_key
from airflow_provider_coordination.sources.kinesis.reader import KinesisRecord, read_shard, reading_client
from airflow_provider_coordination.sources.kinesis.shards import describe_stream, list_shards
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow, land_shard
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.aggregation import aggregate
from tests.support.batches import begin_delivery
from tests.support.kinesis_server.clock import RealClock
from tests.support.kinesis_server.limits import Limits
from tests.support.kinesis_server.state import Behaviour
from tests.support.synced import sync_shards

pytestmark = pytest.mark.integration

MIDDLE_HASH_KEY = str(2**127)


@pytest.fixture
def aws(kinesis: Any) -> Any:
    """A plain client, for what producers and operators of a stream do."""
    return kinesis.client()


@pytest.fixture
def client(kinesis: Any) -> KinesisClient:
    return reading_client(settings_of(kinesis))


def settings_of(kinesis: Any) -> AwsSettings:
    return AwsSettings(
        region="us-east-1", endpoint_url=kinesis.endpoint_url, access_key_id="test", secret_access_key="test"
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
    retry = RetryBudget(attempts=3)
    for page in read_shard(client, stream, shard_id, start, reads_per_second=20.0, retry=retry):
        found += page.records
        if len(found) >= records or page.end_of_shard:
            break
    return found


def read_to_the_end(client: KinesisClient, stream: str, shard_id: str, start: str = "TRIM_HORIZON") -> list[ShardPage]:
    return list(read_shard(client, stream, shard_id, start, reads_per_second=20.0))


def test_listing_of_several_pages_is_read_whole(client: KinesisClient, create_stream: Callable[[int], str]) -> None:
    stream = create_stream(5)
    # A page of two, whatever the reader asks for.
    client.meta.events.register(
        "before-parameter-build.kinesis.ListShards", lambda params, **_: params.update(MaxResults=2)
    )

    shards = list_shards(client, stream)

    assert [shard.shard_id for shard in shards] == [f"shardId-{number:012d}" for number in range(5)]
    assert sum(int(shard.ending_hash_key) - int(shard.starting_hash_key) + 1 for shard in shards) == 2**128


def test_stream_epoch_stays_the_same(client: KinesisClient, create_stream: Callable[[int], str]) -> None:
    stream = create_stream(1)

    first, second = (describe_stream(client, stream) for _ in range(2))

    assert first == second
    assert abs(first.creation_epoch - time.time()) < 60


def test_shard_is_read_from_its_earliest_or_any_record(
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


def test_shard_is_read_in_pages(client: KinesisClient, aws: Any, create_stream: Callable[[int], str]) -> None:
    stream = create_stream(1)
    put(aws, stream, *(b"%d" % number for number in range(5)))
    [shard] = list_shards(client, stream)
    split(aws, stream, shard.shard_id)

    pages = list(read_shard(client, stream, shard.shard_id, "TRIM_HORIZON", page_records=2, reads_per_second=20.0))

    assert [record.data for page in pages for record in page.records] == [b"0", b"1", b"2", b"3", b"4"]
    assert max(len(page.records) for page in pages) == 2
    assert [page.end_of_shard for page in pages].index(True) == len(pages) - 1


def test_aggregated_records_are_returned_individually(
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


def test_children_of_a_split_are_leased_after_its_delivered_end(
    client: KinesisClient, aws: Any, create_stream: Callable[[int], str]
) -> None:
    stream = create_stream(1)
    put(aws, stream, b"before")
    coordinator = SourceCoordinator(InMemoryStore(), "clicks", "worker-1")
    coordinator.initialize()
    sync_shards(client, coordinator, stream)
    [parent] = coordinator.leases.acquire(10)
    progress = ShardProgress.from_mapping(parent.progress)
    split(aws, stream, progress.shard_id)
    put(aws, stream, b"after")

    assert sync_shards(client, coordinator, stream).created == []
    pages = read_to_the_end(client, stream, progress.shard_id)
    begin_delivery(coordinator, parent.partition_key, whole_shard(pages), children=pages[-1].children)

    assert sync_shards(client, coordinator, stream).created == []
    children = [child.shard_id for child in pages[-1].children]
    assert {
        parse_partition_key(partition.partition_key).shard_id for partition in coordinator.leases.acquire(10)
    } == set(children)
    assert [record.data for record in read_until(client, stream, children[0], "TRIM_HORIZON", 1)] == [b"after"]


def whole_shard(pages: list[ShardPage]) -> LandedBatch:
    records = [record for page in pages for record in page.records]
    return LandedBatch(
        batch_id="whole-shard",
        start="TRIM_HORIZON",
        end=records[-1].sequence_number,
        file="",
        file_bytes=0,
        records=len(records),
        bytes=0,
        is_last=pages[-1].end_of_shard,
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


def test_iterator_expiring_between_pages_loses_and_doubles_nothing(
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

    pages = read_shard(client, stream, shard.shard_id, "TRIM_HORIZON", page_records=2, reads_per_second=20.0)

    assert [record.data for page in pages for record in page.records] == [b"%d" % number for number in range(6)]
    assert len(calls) > 3


def test_throttled_reads_are_retried(client: KinesisClient, aws: Any, create_stream: Callable[[int], str]) -> None:
    stream = create_stream(1)
    put(aws, stream, b"one")
    [shard] = list_shards(client, stream)
    throttle(client, times=2)

    assert [record.data for record in read_until(client, stream, shard.shard_id, "TRIM_HORIZON", 1)] == [b"one"]


def test_constantly_throttled_reads_are_an_outage(client: KinesisClient, create_stream: Callable[[int], str]) -> None:
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


def test_missing_stream_is_a_clear_error(client: KinesisClient, kinesis: Any) -> None:
    with pytest.raises(
        StreamNotFoundError, match=f"'nowhere' does not exist in region us-east-1 at {kinesis.endpoint_url}"
    ):
        describe_stream(client, "nowhere")


def test_missing_shard_is_a_clear_error(client: KinesisClient, create_stream: Callable[[int], str]) -> None:
    stream = create_stream(1)

    with pytest.raises(ShardNotFoundError, match="shardId-000000000099"):
        read_to_the_end(client, stream, "shardId-000000000099")


# Landing, against both servers


@dataclass(frozen=True)
class Source:
    """A stream of one shard on some server, and how it is landed."""

    producer: Any
    settings: AwsSettings
    root: Path
    stream: str

    def put(self, *events: bytes) -> list[str]:
        return put(self.producer, self.stream, *events)

    def land(
        self, start: str = "TRIM_HORIZON", *, plan: dict[str, Any] | None = None, **changes: Any
    ) -> LandedShardRow:
        """Land with the machine's clock."""
        return self.land_with(SystemClock(), time.sleep, start, plan, changes)

    def land_with(
        self, clock: Clock, sleep: Callable[[float], None], start: str, plan: dict[str, Any] | None, changes: Any
    ) -> LandedShardRow:
        options = {"seconds": 10.0, "max_bytes": 2**30, "slot_memory_bytes": 2**29, **changes}
        plan = dict(plan or {})
        since = plan.pop("delivered_until", None)
        return land_shard(
            reading_client(self.settings),
            ShardLandingOptions(kinesis=self.settings, root=str(self.root), **options),
            ShardReadPlan(
                source_identifier="clicks|PARTITION",
                partition_key=f"{self.stream}:1:{FIRST_SHARD}",
                fencing_token=1,
                stream=self.stream,
                shard_id=FIRST_SHARD,
                start=BatchStart(position=start, retention=timedelta(days=1), delivered_until=since),
                **plan,
            ),
            clock=clock,
            sleep=sleep,
        )


FIRST_SHARD = "shardId-000000000000"


@pytest.fixture(params=["kinesis-local", "ours"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    if request.param == "kinesis-local":
        kinesis, create = request.getfixturevalue("kinesis"), request.getfixturevalue("create_stream")
        return Source(kinesis.client(), settings_of(kinesis), tmp_path, create(1))
    server = request.getfixturevalue("kinesis_server")
    account = server.account(clock=RealClock())
    account.client().create_stream(StreamName="clicks", ShardCount=1)
    return Source(account.client(), account.settings(), tmp_path, "clicks")


def payloads(landed: LandedShardRow) -> list[bytes]:
    assert landed.error is None
    return pq.read_table(landed.file)["data"].to_pylist() if landed.file else []


def test_every_position_resumes_exactly(source: Source) -> None:
    packed = aggregate([("a", b"2a"), ("b", b"2b"), ("c", b"2c")])
    first, second, third = source.put(b"1", packed, b"3")
    arrivals = pq.read_table(source.land().file)["approximate_arrival_timestamp"].to_pylist()

    assert payloads(source.land()) == [b"1", b"2a", b"2b", b"2c", b"3"]
    assert payloads(source.land(first)) == [b"2a", b"2b", b"2c", b"3"]
    assert payloads(source.land(f"{second}:1")) == [b"2c", b"3"]
    assert payloads(source.land(f"{first}:0")) == [b"2a", b"2b", b"2c", b"3"]
    assert payloads(source.land(at_timestamp(arrivals[0]))) == [b"1", b"2a", b"2b", b"2c", b"3"]
    assert payloads(source.land(at_timestamp(arrivals[-1] + timedelta(microseconds=1)))) == []
    assert source.land(third, plan={"delivered_until": arrivals[-1]}).gap is None


def test_future_instant_is_no_error(source: Source) -> None:
    source.put(b"1")
    landed = source.land(at_timestamp(datetime.now(UTC) + timedelta(hours=1)))
    assert (landed.error, landed.is_batch) == (None, False)


def test_stop_is_exact_for_existing_records(source: Source) -> None:
    source.put(b"1", b"2")
    time.sleep(0.05)
    stop = datetime.now(UTC)
    time.sleep(0.05)
    source.put(b"3")
    landed = source.land(stop_at=stop)
    assert (payloads(landed), landed.at_stop, landed.read_until) == ([b"1", b"2"], True, stop)


def test_range_of_sequence_numbers_is_exact_and_ends_the_partition(source: Source) -> None:
    packed = aggregate([("a", b"3a"), ("b", b"3b")])
    _, second, third, _ = source.put(b"1", b"2", packed, b"4")
    landed = source.land(f"AT_SEQUENCE_NUMBER:{second}", plan={"end": third})
    assert payloads(landed) == [b"2", b"3a", b"3b"]
    assert (landed.end, landed.is_last, landed.at_stop, landed.gap) == (third, True, False, None)
    assert payloads(source.land(second, plan={"end": third})) == [b"3a", b"3b"]


def test_split_shard_is_landed_to_its_end(source: Source) -> None:
    source.put(b"1")
    split(source.producer, source.stream, FIRST_SHARD)
    landed = source.land()
    assert (payloads(landed), landed.is_last, len(landed.children)) == ([b"1"], True, 2)


def test_split_shard_without_records_ends(source: Source) -> None:
    split(source.producer, source.stream, FIRST_SHARD)
    landed = source.land()
    assert (landed.is_batch, landed.is_last, landed.file, landed.records) == (True, True, "", 0)


# Landing, where only our own server can show it: kinesis-local throttles nothing, trims nothing, expires no iterator,
# and boto3 cannot read its subscriptions.


@pytest.fixture
def account(kinesis_account: Any) -> Any:
    kinesis_account.client().create_stream(StreamName="clicks", ShardCount=1)
    return kinesis_account


@pytest.fixture
def land_from_own_server(account: Any, tmp_path: Path) -> Callable[..., LandedShardRow]:
    """Lands from our server, by its clock."""
    source = Source(account.client(), account.settings(), tmp_path, "clicks")

    def land(start: str = "TRIM_HORIZON", *, plan: dict[str, Any] | None = None, **changes: Any) -> LandedShardRow:
        return source.land_with(account.clock, account.clock.sleep, start, plan, changes)

    return land


@dataclass(frozen=True)
class SubscribedStream:
    """A stream of our server that is read by enhanced fan-out, with the machine's clock."""

    account: Any
    source: Source
    consumer_arn: str

    def land(self, start: str = "TRIM_HORIZON", **changes: Any) -> LandedShardRow:
        plan = {"consumer_arn": self.consumer_arn, "delivered_until": datetime.now(UTC)}
        return self.source.land(start, plan=plan, **changes)


@pytest.fixture
def subscribed_stream(kinesis_server: Any, tmp_path: Path) -> SubscribedStream:
    account = kinesis_server.account(clock=RealClock())
    account.engine.behaviour = Behaviour(heartbeat_seconds=0.1, subscription_seconds=0.5)
    account.client().create_stream(StreamName="clicks", ShardCount=1)
    client = reading_client(account.settings())
    arn = ensure_consumer(client, "clicks", describe_stream(client, "clicks").arn, "analytics")
    return SubscribedStream(account, Source(account.client(), account.settings(), tmp_path, "clicks"), arn)


def test_subscription_is_landed_as_sent(subscribed_stream: SubscribedStream) -> None:
    source = subscribed_stream.source
    source.put(b"1", aggregate([("a", b"2"), ("b", b"3")]))
    sent, polled = subscribed_stream.land(), source.land()
    by_subscription, by_polling = (pq.read_table(row.file).drop_columns(["_batch_id"]) for row in (sent, polled))
    assert by_subscription.equals(by_polling)
    split(source.producer, "clicks", FIRST_SHARD)
    end = subscribed_stream.land(sent.end)
    assert (end.error, end.is_last, len(end.children)) == (None, True, 2)


def test_repeated_subscriptions_land_every_record_once(subscribed_stream: SubscribedStream) -> None:
    sent = [b"%d" % number for number in range(40)]
    landed: list[bytes] = []
    position = "TRIM_HORIZON"

    def produce() -> None:
        for event in sent:
            subscribed_stream.source.put(event)
            time.sleep(0.03)

    producing = threading.Thread(target=produce)
    producing.start()
    while len(landed) < len(sent):
        row = subscribed_stream.land(position)
        landed += payloads(row)
        position = row.end
    producing.join()
    assert landed == sent
    assert subscribed_stream.account.engine.calls["SubscribeToShard"] > 2


@pytest.mark.parametrize("fault", ["reset", "lose_answer", "fail", "throttle"])
def test_disturbed_subscription_loses_nothing(subscribed_stream: SubscribedStream, fault: str) -> None:
    subscribed_stream.source.put(b"1", b"2")
    getattr(subscribed_stream.account.engine.faults, fault)("SubscribeToShard", times=1)
    assert payloads(subscribed_stream.land()) == [b"1", b"2"]


def test_subscription_ends_with_the_round(subscribed_stream: SubscribedStream) -> None:
    subscribed_stream.source.put(b"1")
    subscribed_stream.land()
    consumer = subscribed_stream.account.engine.stream("clicks").consumers["analytics"]
    ends_at = time.monotonic() + 60
    while consumer.subscriptions and time.monotonic() < ends_at:
        time.sleep(0.02)
    assert consumer.subscriptions == {}


@pytest.mark.parametrize("fault", ["reset", "lose_answer", "fail", "throttle", "expire_iterator", "slow"])
def test_disturbed_polling_loses_nothing(
    account: Any, land_from_own_server: Callable[..., LandedShardRow], fault: str
) -> None:
    put(account.client(), "clicks", b"1", b"2")
    harm = getattr(account.engine.faults, fault)
    harm(times=2) if fault == "expire_iterator" else harm("GetRecords", *([0.2] if fault == "slow" else []), times=2)
    assert payloads(land_from_own_server(seconds=60.0)) == [b"1", b"2"]


def test_reading_at_the_real_limits_is_not_throttled(
    account: Any, land_from_own_server: Callable[..., LandedShardRow]
) -> None:
    for _ in range(12):
        put(account.client(), "clicks", bytes(2**20 - 3))
    account.engine.limits = Limits.real()
    landed = land_from_own_server(seconds=60.0)
    assert (landed.records, landed.throttled, landed.error) == (12, 0, None)


def test_consumer_that_uses_up_the_budget_is_noticed(
    account: Any, land_from_own_server: Callable[..., LandedShardRow]
) -> None:
    put(account.client(), "clicks", b"1", b"2")
    account.engine.limits = Limits(get_records_per_second=5)
    other = account.client(config=Config(retries={"total_max_attempts": 1}))
    iterator = other.get_shard_iterator(StreamName="clicks", ShardId=FIRST_SHARD, ShardIteratorType="LATEST")

    def read_five_times() -> None:
        with contextlib.suppress(ClientError):
            for _ in range(5):
                other.get_records(ShardIterator=iterator["ShardIterator"])

    class Clock:
        now, monotonic = account.clock.now, account.clock.monotonic

    def sleep(seconds: float) -> None:
        account.clock.sleep(seconds)
        read_five_times()

    read_five_times()
    source = Source(account.client(), account.settings(), Path(), "clicks")
    landed = source.land_with(Clock(), sleep, "TRIM_HORIZON", None, {"seconds": 30.0})
    assert (landed.error, landed.is_batch) == (None, False)
    assert landed.throttled > 0


def test_only_unread_trimmed_records_are_reported(
    account: Any, land_from_own_server: Callable[..., LandedShardRow]
) -> None:
    [first] = put(account.client(), "clicks", b"1")
    since = account.clock.now()
    account.clock.advance(20 * 3600)
    put(account.client(), "clicks", b"2")
    assert payloads(land_from_own_server(first, plan={"delivered_until": since})) == [b"2"]
    account.clock.advance(20 * 3600)
    [third] = put(account.client(), "clicks", b"3")
    account.clock.advance(5 * 3600)
    landed = land_from_own_server(first, plan={"delivered_until": since})
    assert landed.gap is not None and landed.error is not None
    assert (landed.gap.after, landed.gap.before, landed.gap.since) == (first, third, since)
    again = land_from_own_server(first, plan={"delivered_until": since}, on_data_loss="earliest")
    assert (payloads(again), again.gap) == ([b"3"], landed.gap)


def _answer(url: str, body: bytes) -> AWSResponse:
    class RawBody:
        def stream(self) -> Iterator[bytes]:
            yield body

    return AWSResponse(url, 400, {"Content-Type": "application/x-amz-json-1.1"}, RawBody())
