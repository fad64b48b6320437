"""The leases of a Kinesis application are imported from DynamoDB and compared with the stream."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.cli.imports import TransferState, compare_with_store, write_to_store
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.aggregation import expand
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart
from airflow_provider_coordination.sources.kinesis.client import KinesisClient, kinesis_client
from airflow_provider_coordination.sources.kinesis.kcl import ImportOutcome
from airflow_provider_coordination.sources.kinesis.kcl_import import KclImport, prepare_import
from airflow_provider_coordination.sources.kinesis.kcl_table import KclRunningError
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.kinesis.reader import read_shard
from airflow_provider_coordination.sources.kinesis.shards import Shard, describe_stream, list_shards
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan
from airflow_provider_coordination.spark.kinesis.landing import land_shard
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.dynamodb.calls import DynamoDbCalls
from tests.support.aggregation import aggregate
from tests.support.batches import end_shard
from tests.support.kcl_lease_table import create_lease_table, lease_item, other_items, partitions_of, write_items
from tests.support.synced import sync_shards

SOURCE = "clicks|PARTITION"
MANUAL = Path(__file__).resolve().parents[2] / "docs" / "importing.md"
MIDDLE_HASH_KEY = str(2**127)
ACCOUNT = "123456789012"

CREDENTIALS = {"region": "us-east-1", "access_key_id": "test", "secret_access_key": "test"}


@pytest.fixture
def aws(kinesis: Any) -> Any:
    """A plain client, for what producers and operators of a stream do."""
    return kinesis.client()


@pytest.fixture
def client(kinesis: Any) -> KinesisClient:
    return kinesis_client(AwsSettings(endpoint_url=kinesis.endpoint_url, **CREDENTIALS))


@pytest.fixture
def leases(dynamodb: Any, dynamodb_table: str) -> DynamoDbCalls:
    """An empty lease table."""
    create_lease_table(dynamodb.client(), dynamodb_table)
    return DynamoDbCalls(AwsSettings(endpoint_url=dynamodb.endpoint_url, **CREDENTIALS), dynamodb_table, 15.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    store = open_store(StoreSettings.from_url(f"sqlite:///{tmp_path}/coordination.db"))
    store.initialize()
    yield store
    store.close()


@pytest.fixture
def write_leases(dynamodb: Any, dynamodb_table: str) -> Callable[..., None]:
    return lambda *items: write_items(dynamodb.client(), dynamodb_table, list(items))


def put(aws: Any, stream: str, data: bytes, *, high: bool = False) -> str:
    """Put a record into the lower, or the upper, half of the hash-key space; return its sequence number."""
    hash_key = MIDDLE_HASH_KEY if high else "0"
    answer = aws.put_record(StreamName=stream, Data=data, PartitionKey="key", ExplicitHashKey=hash_key)
    return str(answer["SequenceNumber"])


def wait_until_active(aws: Any, name: str) -> None:
    while aws.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamStatus"] != "ACTIVE":
        time.sleep(0.05)


def prepare(leases: DynamoDbCalls, client: KinesisClient, stream: str, **options: Any) -> KclImport:
    return prepare_import(leases, client, stream, now=datetime.now(UTC), sleep=lambda seconds: None, **options)


def outcomes(prepared: KclImport) -> dict[str, ImportOutcome]:
    return {shard.shard_id: shard.outcome for shard in prepared.plan.shards}


def import_into(store: Any, prepared: KclImport) -> list[Partition]:
    partitions = partitions_of(prepared.plan, SOURCE, datetime.now(UTC))
    assert write_to_store(store, compare_with_store(store, partitions)) == []
    return partitions


@pytest.mark.parametrize(("version", "multi_stream"), [(1, False), (2, False), (2, True), (3, False), (3, True)])
def test_lease_table_of_each_version_is_imported_exactly(
    version: int,
    multi_stream: bool,
    aws: Any,
    client: KinesisClient,
    kinesis_stream: Callable[[int], str],
    leases: DynamoDbCalls,
    write_leases: Callable[..., None],
    store: Any,
) -> None:
    stream = kinesis_stream(2)
    checkpoint = put(aws, stream, b"one")
    low, high = list_shards(client, stream)
    identifier = f"{ACCOUNT}:{stream}:{describe_stream(client, stream).creation_epoch}" if multi_stream else None
    write_leases(
        lease_item(version, low, checkpoint, stream_identifier=identifier, pending=checkpoint),
        lease_item(version, high, "TRIM_HORIZON", stream_identifier=identifier, owner=None),
        *(other_items() if version == 3 else ()),
    )

    prepared = prepare(leases, client, stream)
    import_into(store, prepared)

    assert prepared.plan.refused == ()
    found = [ShardProgress.from_mapping(p.progress) for p in store.query(SOURCE, PartitionStatus.UNASSIGNED)]
    assert sorted(found, key=lambda progress: progress.shard_id) == [
        replace(ShardProgress.first(stream, low), checkpoint=checkpoint),
        ShardProgress.first(stream, high),
    ]
    assert sum(prepared.plan.other_items.values()) == (3 if version == 3 else 0)


@pytest.mark.parametrize(("sub_sequence_number", "position"), [(0, "{}:0"), (1, "{}:1"), (2, "{}")])
def test_checkpoint_in_an_aggregate_keeps_its_position_inside(
    sub_sequence_number: int,
    position: str,
    aws: Any,
    client: KinesisClient,
    kinesis_stream: Callable[[int], str],
    leases: DynamoDbCalls,
    write_leases: Callable[..., None],
) -> None:
    stream = kinesis_stream(1)
    put(aws, stream, b"before")
    checkpoint = put(aws, stream, aggregate([("key", b"1"), ("key", b"2"), ("key", b"3")]))
    put(aws, stream, b"after")
    [shard] = list_shards(client, stream)
    write_leases(lease_item(2, shard, checkpoint, sub_sequence_number=sub_sequence_number))

    [planned] = prepare(leases, client, stream).plan.shards

    assert planned.outcome is ImportOutcome.PARTITION and planned.progress is not None
    assert planned.progress.checkpoint == position.format(checkpoint)


@pytest.mark.parametrize("sub_sequence_number", [0, 1, 2])
def test_application_stopped_inside_an_aggregate_resumes_there(
    sub_sequence_number: int,
    aws: Any,
    kinesis: Any,
    client: KinesisClient,
    kinesis_stream: Callable[[int], str],
    leases: DynamoDbCalls,
    write_leases: Callable[..., None],
    tmp_path: Path,
) -> None:
    stream = kinesis_stream(1)
    put(aws, stream, b"before")
    checkpoint = put(aws, stream, aggregate([("key", b"1"), ("key", b"2"), ("key", b"3")]))
    put(aws, stream, b"after")
    [shard] = list_shards(client, stream)
    write_leases(lease_item(3, shard, checkpoint, sub_sequence_number=sub_sequence_number))
    [partition] = partitions_of(prepare(leases, client, stream).plan, SOURCE, datetime.now(UTC))
    progress = ShardProgress.from_mapping(partition.progress)

    settings = AwsSettings(endpoint_url=kinesis.endpoint_url, **CREDENTIALS)
    options = ShardLandingOptions(
        kinesis=settings, root=str(tmp_path), seconds=1.0, max_bytes=1_000_000, slot_memory_bytes=2**29
    )
    plan = ShardReadPlan(
        source_identifier=SOURCE,
        partition_key=partition.partition_key,
        fencing_token=1,
        stream=stream,
        shard_id=progress.shard_id,
        start=BatchStart(position=progress.checkpoint),
    )
    landed = land_shard(client, options, plan)

    assert landed.error is None
    data = ds.dataset(landed.file).to_table(columns=["data"])["data"].to_pylist()
    assert data == [b"1", b"2", b"3", b"after"][sub_sequence_number + 1 :]


def test_undecodable_aggregate_is_refused(
    aws: Any,
    client: KinesisClient,
    kinesis_stream: Callable[[int], str],
    leases: DynamoDbCalls,
    write_leases: Callable[..., None],
) -> None:
    stream = kinesis_stream(1)
    message = b"\x1a\x04\x08\x09\x1a\x00"  # a record whose partition key is not in the table
    checkpoint = put(aws, stream, b"\xf3\x89\x9a\xc2" + message + hashlib.md5(message).digest())
    [shard] = list_shards(client, stream)
    write_leases(lease_item(2, shard, checkpoint))

    [planned] = prepare(leases, client, stream).plan.shards

    assert planned.outcome is ImportOutcome.REFUSED and "cannot be split into user records" in planned.note


def test_application_that_still_renews_is_not_imported(
    aws: Any,
    client: KinesisClient,
    kinesis_stream: Callable[[int], str],
    leases: DynamoDbCalls,
    write_leases: Callable[..., None],
) -> None:
    stream = kinesis_stream(1)
    [shard] = list_shards(client, stream)
    write_leases(lease_item(3, shard, "TRIM_HORIZON", counter=1))
    slept: list[float] = []

    def renew(seconds: float) -> None:
        slept.append(seconds)
        write_leases(lease_item(3, shard, "TRIM_HORIZON", counter=2))

    with pytest.raises(KclRunningError, match=f"{shard.shard_id} changed between two readings; stop all its workers"):
        prepare_import(leases, client, stream, now=datetime.now(UTC), sleep=renew)
    assert slept == [15.0]


def test_application_started_during_the_prompt_is_noticed(
    client: KinesisClient,
    kinesis_stream: Callable[[int], str],
    leases: DynamoDbCalls,
    write_leases: Callable[..., None],
) -> None:
    stream = kinesis_stream(1)
    [shard] = list_shards(client, stream)
    write_leases(lease_item(3, shard, "TRIM_HORIZON", counter=1))
    prepared = prepare(leases, client, stream)
    prepared.check_unchanged(leases)

    write_leases(lease_item(3, shard, "TRIM_HORIZON", counter=2))

    with pytest.raises(KclRunningError):
        prepared.check_unchanged(leases)


def test_lease_table_of_several_pages_is_read_whole(
    client: KinesisClient,
    kinesis_stream: Callable[[int], str],
    leases: DynamoDbCalls,
    write_leases: Callable[..., None],
) -> None:
    stream = kinesis_stream(5)
    write_leases(*(lease_item(3, shard, "TRIM_HORIZON") for shard in list_shards(client, stream)))
    leases.client.meta.events.register(
        "before-parameter-build.dynamodb.Scan", lambda params, **_: params.update(Limit=2)
    )

    assert list(outcomes(prepare(leases, client, stream)).values()) == [ImportOutcome.PARTITION] * 5


def test_import_calls_only_documented_operations(
    aws: Any,
    client: KinesisClient,
    kinesis_stream: Callable[[int], str],
    leases: DynamoDbCalls,
    write_leases: Callable[..., None],
) -> None:
    stream = kinesis_stream(1)
    [shard] = list_shards(client, stream)
    write_leases(lease_item(3, shard, put(aws, stream, b"one")))
    called: set[str] = set()
    for service, events in (("dynamodb", leases.client.meta.events), ("kinesis", client.meta.events)):
        events.register("before-call", lambda model, service=service, **_: called.add(f"{service}:{model.name}"))

    prepare(leases, client, stream).check_unchanged(leases)

    [policy] = re.findall(r"^```json\n(.*?)^```", MANUAL.read_text(), re.MULTILINE | re.DOTALL)
    assert called == {action for statement in json.loads(policy)["Statement"] for action in statement["Action"]}


def test_missing_lease_table_is_a_clear_error(client: KinesisClient, dynamodb: Any) -> None:
    nowhere = DynamoDbCalls(AwsSettings(endpoint_url=dynamodb.endpoint_url, **CREDENTIALS), "nowhere", 1.0)

    with pytest.raises(ConfigurationError, match=r"lease table dynamodb://nowhere.* does not exist"):
        prepare(nowhere, client, "clicks")


def test_refused_shard_is_parked_and_not_read_by_shard_sync(
    aws: Any,
    client: KinesisClient,
    kinesis_stream: Callable[[int], str],
    leases: DynamoDbCalls,
    write_leases: Callable[..., None],
    store: Any,
) -> None:
    stream = kinesis_stream(2)
    low, high = list_shards(client, stream)
    write_leases(lease_item(2, low, "AT_TIMESTAMP"), lease_item(2, high, "TRIM_HORIZON"))

    import_into(store, prepare(leases, client, stream))

    coordinator = SourceCoordinator(store, "clicks", "worker-1")
    coordinator.initialize()
    assert sync_shards(client, coordinator, stream).created == []
    [taken] = coordinator.leases.acquire(10)
    assert ShardProgress.from_mapping(taken.progress).shard_id == high.shard_id
    [parked] = store.query(SOURCE, PartitionStatus.CLOSED)
    assert parked.is_parked and "nothing is checkpointed yet" in parked.last_error


def test_second_import_changes_nothing(
    aws: Any,
    client: KinesisClient,
    kinesis_stream: Callable[[int], str],
    leases: DynamoDbCalls,
    write_leases: Callable[..., None],
    store: Any,
) -> None:
    stream = kinesis_stream(2)
    low, high = list_shards(client, stream)
    write_leases(lease_item(2, low, put(aws, stream, b"one")), lease_item(2, high, "TRIM_HORIZON"))
    import_into(store, prepare(leases, client, stream))
    before = store.query(SOURCE, PartitionStatus.UNASSIGNED)

    again = compare_with_store(store, partitions_of(prepare(leases, client, stream).plan, SOURCE, datetime.now(UTC)))

    assert {transfer.state for transfer in again} == {TransferState.PRESENT}
    write_to_store(store, again)
    assert store.query(SOURCE, PartitionStatus.UNASSIGNED) == before


def test_partition_with_other_progress_is_a_conflict_and_stays(
    aws: Any,
    client: KinesisClient,
    kinesis_stream: Callable[[int], str],
    leases: DynamoDbCalls,
    write_leases: Callable[..., None],
    store: Any,
) -> None:
    stream = kinesis_stream(1)
    coordinator = SourceCoordinator(store, "clicks", "worker-1")
    coordinator.initialize()
    [key] = sync_shards(client, coordinator, stream).created
    [shard] = list_shards(client, stream)
    write_leases(lease_item(2, shard, put(aws, stream, b"one")))

    wanted = partitions_of(prepare(leases, client, stream).plan, SOURCE, datetime.now(UTC))
    [transfer] = compare_with_store(store, wanted)
    write_to_store(store, [transfer])

    assert transfer.state is TransferState.CONFLICT
    stored = coordinator.view.get(key)
    assert stored is not None and ShardProgress.from_mapping(stored.progress).checkpoint == "TRIM_HORIZON"


class UnfinishedApplication:
    """An application that has processed some of a stream, and the lease table that it leaves."""

    def __init__(self, client: KinesisClient, stream: str, version: int) -> None:
        self.processed: list[bytes] = []
        self._client = client
        self._stream = stream
        self._version = version

    def items(self, records_read: dict[str, int]) -> Iterator[dict[str, Any]]:
        """Process this number of Kinesis records of each shard, or all of them and its end for -1; yield the leases."""
        shards = {shard.shard_id: shard for shard in list_shards(self._client, self._stream)}
        for shard_id, count in records_read.items():
            shard = shards[shard_id]
            records = list(read_all(self._client, self._stream, shard_id))
            taken = records if count < 0 else records[:count]
            last = 0
            for record in taken:
                user_records = expand(record.data, record.partition_key)
                self.processed += [data for _, _, data in user_records]
                last = len(user_records) - 1
            children = tuple(s.shard_id for s in shards.values() if shard_id in s.parent_shard_ids)
            if count < 0:
                yield lease_item(self._version, shard, "SHARD_END", children=children)
            elif not taken:
                yield lease_item(self._version, shard, "TRIM_HORIZON")
            else:
                yield lease_item(self._version, shard, taken[-1].sequence_number, sub_sequence_number=last)


def read_all(client: KinesisClient, stream: str, shard_id: str, start: str = "TRIM_HORIZON") -> Iterator[Any]:
    for page in read_shard(client, stream, shard_id, start, reads_per_second=50.0):
        yield from page.records
        if not page.records:
            return


def read_the_rest(client: KinesisClient, coordinator: SourceCoordinator, stream: str) -> Iterator[bytes]:
    """Read every partition from its checkpoint on, and the children of those that end."""
    while partitions := coordinator.leases.acquire(10):
        for partition in partitions:
            progress = ShardProgress.from_mapping(partition.progress)
            for page in read_shard(client, stream, progress.shard_id, progress.checkpoint, reads_per_second=50.0):
                for record in page.records:
                    yield from (data for _, _, data in expand(record.data, record.partition_key))
                if page.end_of_shard:
                    end_shard(coordinator, partition.partition_key, *page.children)
                    break
                if not page.records:
                    break  # and the partition stays leased, so that it is not acquired again


@pytest.mark.parametrize("version", [1, 2, 3])
def test_imported_application_resumes_without_loss_or_duplicates(
    version: int,
    aws: Any,
    client: KinesisClient,
    kinesis_stream: Callable[[int], str],
    leases: DynamoDbCalls,
    write_leases: Callable[..., None],
    store: Any,
) -> None:
    # The lower half is split, and the upper one merged with the upper child; records everywhere.
    stream = kinesis_stream(2)
    events = (b"event %d" % number for number in range(10_000))
    produced: list[bytes] = []

    def produce(count: int) -> None:
        for number in range(count):
            for high in (False, True):
                batch = [next(events) for _ in range(3 if number % 2 else 1)]
                produced.extend(batch)
                put(aws, stream, aggregate([("k", e) for e in batch]) if len(batch) > 1 else batch[0], high=high)

    produce(6)
    low, high = list_shards(client, stream)
    aws.split_shard(StreamName=stream, ShardToSplit=low.shard_id, NewStartingHashKey=str(2**126))
    wait_until_active(aws, stream)
    produce(5)
    upper_child = max(children_of(client, stream, low), key=lambda shard: int(shard.starting_hash_key))
    lower_child = min(children_of(client, stream, low), key=lambda shard: int(shard.starting_hash_key))
    aws.merge_shards(StreamName=stream, ShardToMerge=upper_child.shard_id, AdjacentShardToMerge=high.shard_id)
    wait_until_active(aws, stream)
    [merged] = children_of(client, stream, high)
    produce(4)

    # The lower half is finished, one of its children is half-way, the other done; the upper half is half-way, and so
    # nothing was read of what it was merged into.
    application = UnfinishedApplication(client, stream, version)
    write_leases(
        *application.items(
            {low.shard_id: -1, lower_child.shard_id: 4, upper_child.shard_id: -1, high.shard_id: 8, merged.shard_id: 0}
        )
    )
    prepared = prepare(leases, client, stream)
    import_into(store, prepared)

    assert prepared.plan.refused == ()
    assert outcomes(prepared)[merged.shard_id] is ImportOutcome.LATER
    coordinator = SourceCoordinator(store, "clicks", "worker-1")
    coordinator.initialize()
    rest = list(read_the_rest(client, coordinator, stream))
    assert rest and application.processed
    assert Counter(application.processed + rest) == Counter(produced)
    assert sync_shards(client, coordinator, stream).created == []


def children_of(client: KinesisClient, stream: str, parent: Shard) -> list[Shard]:
    return [shard for shard in list_shards(client, stream) if parent.shard_id in shard.parent_shard_ids]
