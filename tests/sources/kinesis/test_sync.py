"""Shard sync turns shards into partitions, once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.stub import Stubber

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.errors import StreamNotFoundError
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.kinesis.sync import ShardSyncSummary, sync_shards
from airflow_provider_coordination.stores.in_memory import InMemoryStore

EPOCH = 1_767_268_800


@pytest.fixture
def coordinator() -> SourceCoordinator:
    coordinator = SourceCoordinator(InMemoryStore(), "clicks", "worker-1")
    coordinator.initialize()
    return coordinator


def tell(answers: Stubber, *shards: dict[str, Any], epoch: int = EPOCH) -> None:
    summary = {
        "StreamName": "clicks",
        "StreamARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/clicks",
        "StreamStatus": "ACTIVE",
        "RetentionPeriodHours": 24,
        "StreamCreationTimestamp": datetime.fromtimestamp(epoch, UTC),
        "EnhancedMonitoring": [],
        "OpenShardCount": 1,
    }
    answers.add_response("describe_stream_summary", {"StreamDescriptionSummary": summary})
    answers.add_response("list_shards", {"Shards": list(shards)})


def shard(name: str, start: int, end: int | None = None, parent: str | None = None) -> dict[str, Any]:
    sequence_numbers = {"StartingSequenceNumber": str(start)} | ({"EndingSequenceNumber": str(end)} if end else {})
    return {
        "ShardId": name,
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
        "SequenceNumberRange": sequence_numbers,
    } | ({"ParentShardId": parent} if parent else {})


def test_a_new_stream_gets_partitions_for_its_roots(
    client: KinesisClient, kinesis_answers: Stubber, coordinator: SourceCoordinator
) -> None:
    tell(kinesis_answers, shard("s0", 1, 5), shard("s1", 1), shard("s2", 6, parent="s0"))

    summary = sync_shards(client, coordinator, "clicks")

    keys = [f"clicks:{EPOCH}:s0", f"clicks:{EPOCH}:s1"]
    assert summary == ShardSyncSummary("clicks", EPOCH, shards=3, open_shards=2, created=keys, existing=0)
    partition = coordinator.get(keys[0])
    assert partition is not None
    assert ShardProgress.from_mapping(partition.progress) == ShardProgress(
        stream="clicks", shard_id="s0", parent_shard_ids=(), starting_hash_key="0", ending_hash_key="9"
    )


def test_a_second_sync_creates_nothing(
    client: KinesisClient, kinesis_answers: Stubber, coordinator: SourceCoordinator
) -> None:
    tell(kinesis_answers, shard("s0", 1))
    tell(kinesis_answers, shard("s0", 1))
    sync_shards(client, coordinator, "clicks")

    summary = sync_shards(client, coordinator, "clicks")

    assert (summary.created, summary.existing) == ([], 1)


def test_a_child_gets_its_partition_when_its_parent_is_completed(
    client: KinesisClient, kinesis_answers: Stubber, coordinator: SourceCoordinator
) -> None:
    for _ in range(3):
        tell(kinesis_answers, shard("s0", 1, 5), shard("s2", 6, parent="s0"))
    sync_shards(client, coordinator, "clicks")
    [parent] = coordinator.acquire(1)

    assert sync_shards(client, coordinator, "clicks").created == []
    coordinator.complete(parent.partition_key, parent.progress)
    assert sync_shards(client, coordinator, "clicks").created == [f"clicks:{EPOCH}:s2"]


def test_a_stream_that_was_created_anew_is_another_stream(
    client: KinesisClient, kinesis_answers: Stubber, coordinator: SourceCoordinator
) -> None:
    tell(kinesis_answers, shard("s0", 1))
    tell(kinesis_answers, shard("s0", 1), epoch=EPOCH + 60)
    sync_shards(client, coordinator, "clicks")

    summary = sync_shards(client, coordinator, "clicks")

    assert (summary.created, summary.existing) == ([f"clicks:{EPOCH + 60}:s0"], 0)


def test_partitions_of_other_kinds_in_the_source_are_left_alone(
    client: KinesisClient, kinesis_answers: Stubber, coordinator: SourceCoordinator
) -> None:
    coordinator.create_partitions({"an/object.json": {}})
    tell(kinesis_answers, shard("s0", 1))

    assert sync_shards(client, coordinator, "clicks").existing == 0


def test_a_stream_that_does_not_exist_creates_nothing(
    client: KinesisClient, kinesis_answers: Stubber, coordinator: SourceCoordinator
) -> None:
    kinesis_answers.add_client_error("describe_stream_summary", "ResourceNotFoundException")

    with pytest.raises(StreamNotFoundError):
        sync_shards(client, coordinator, "clicks")

    assert list(coordinator.partitions()) == []
