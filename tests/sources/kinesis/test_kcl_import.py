"""An import finds the record at a checkpoint by the responses of Kinesis, and plans its partitions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.stub import Stubber

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.client import AccessDeniedError, KinesisClient
from airflow_provider_coordination.sources.kinesis.kcl import CheckpointRecord, ImportOutcome, ImportPlan, ShardPlan
from airflow_provider_coordination.sources.kinesis.kcl_import import (
    MAX_PAGES_READ,
    checkpoint_record,
    keep_earlier_start,
)
from airflow_provider_coordination.sources.kinesis.positions import at_timestamp
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.kinesis.shards import StreamDescription
from tests.support.aggregation import aggregate
from tests.support.kcl_lease_table import partitions_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def answer(answers: Stubber, *pages: dict[str, Any]) -> None:
    request = {
        "StreamName": "clicks",
        "ShardId": "s0",
        "ShardIteratorType": "AT_SEQUENCE_NUMBER",
        "StartingSequenceNumber": "150",
    }
    answers.add_response("get_shard_iterator", {"ShardIterator": "first"}, request)
    for page in pages:
        answers.add_response("get_records", {"Records": [], "NextShardIterator": "next", **page})


def record(sequence_number: str, data: bytes = b"one") -> dict[str, Any]:
    return {"Records": [{"SequenceNumber": sequence_number, "Data": data, "PartitionKey": "key"}]}


def look(client: KinesisClient) -> CheckpointRecord:
    return checkpoint_record(client, "clicks", "s0", "150", sleep=lambda seconds: None)


@pytest.mark.parametrize(
    ("pages", "found"),
    [
        ([record("150")], CheckpointRecord(user_records=1)),
        ([record("150", aggregate([("a", b"1"), ("b", b"2")]))], CheckpointRecord(user_records=2)),
        ([{"MillisBehindLatest": 5}, record("150")], CheckpointRecord(user_records=1)),
        ([record("151")], CheckpointRecord(user_records=None)),
        ([{"MillisBehindLatest": 5}, {"MillisBehindLatest": 0}], CheckpointRecord(user_records=None)),
    ],
    ids=["plain", "aggregate", "after-an-empty-page", "trimmed", "trimmed-and-nothing-after"],
)
def test_record_at_a_checkpoint_is_found(
    client: KinesisClient, kinesis_answers: Stubber, pages: list[dict[str, Any]], found: CheckpointRecord
) -> None:
    answer(kinesis_answers, *pages)

    assert look(client) == found


def test_shard_ending_after_its_checkpoint_has_no_record(client: KinesisClient, kinesis_answers: Stubber) -> None:
    kinesis_answers.add_response("get_shard_iterator", {"ShardIterator": "first"})
    kinesis_answers.add_response("get_records", {"Records": [], "MillisBehindLatest": 9})

    assert look(client) == CheckpointRecord()


def test_record_before_the_checkpoint_is_a_problem(client: KinesisClient, kinesis_answers: Stubber) -> None:
    answer(kinesis_answers, record("149"))

    assert "149, which is before the checkpoint" in (look(client).problem or "")


def test_pages_without_a_record_are_limited(client: KinesisClient, kinesis_answers: Stubber) -> None:
    answer(kinesis_answers, *[{"MillisBehindLatest": 5}] * MAX_PAGES_READ)

    assert "try again" in (look(client).problem or "")


def test_single_shard_errors_become_its_problem(client: KinesisClient, kinesis_answers: Stubber) -> None:
    kinesis_answers.add_client_error("get_shard_iterator", "InvalidArgumentException", "not of this stream")

    assert "not of this stream" in (look(client).problem or "")


def test_errors_of_all_shards_are_raised(client: KinesisClient, kinesis_answers: Stubber) -> None:
    kinesis_answers.add_client_error("get_shard_iterator", "AccessDeniedException")

    with pytest.raises(AccessDeniedError):
        look(client)


def plan(outcome: ImportOutcome, progress: ShardProgress | None) -> ImportPlan:
    stream = StreamDescription(name="clicks", creation_epoch=5, open_shards=1, retention_hours=24)
    shard = ShardPlan(
        shard_id="s0", kcl_checkpoint="150", outcome=outcome, progress=progress, note="why", remedy="what to do"
    )
    return ImportPlan(stream=stream, shards=(shard,), other_items={})


def progress(**fields: Any) -> ShardProgress:
    return ShardProgress(
        stream="clicks", shard_id="s0", parent_shard_ids=(), starting_hash_key="0", ending_hash_key="9", **fields
    )


@pytest.mark.parametrize(
    ("outcome", "given", "status"),
    [
        (ImportOutcome.PARTITION, progress(checkpoint="150"), PartitionStatus.UNASSIGNED),
        (ImportOutcome.COMPLETED, progress(is_ended=True), PartitionStatus.COMPLETED),
        (ImportOutcome.REFUSED, progress(), PartitionStatus.CLOSED),
    ],
)
def test_shard_partition_uses_the_key_of_shard_sync(
    outcome: ImportOutcome, given: ShardProgress, status: PartitionStatus
) -> None:
    [partition] = partitions_of(plan(outcome, given), "clicks|PARTITION", NOW)

    assert (partition.source_identifier, partition.partition_key) == ("clicks|PARTITION", "clicks:5:s0")
    assert (partition.status, ShardProgress.from_mapping(partition.progress)) == (status, given)


def test_refused_shard_is_parked_with_its_reason() -> None:
    [parked] = partitions_of(plan(ImportOutcome.REFUSED, progress()), "clicks|PARTITION", NOW)

    assert parked.is_parked and parked.last_error == "not imported: why; what to do"


@pytest.mark.parametrize("outcome", [ImportOutcome.LATER, ImportOutcome.NOTHING, ImportOutcome.LOST])
def test_skipped_outcome_makes_no_partition(outcome: ImportOutcome) -> None:
    assert partitions_of(plan(outcome, None), "clicks|PARTITION", NOW) == []


def imported(checkpoint: str, instant: datetime | None, **fields: Any) -> tuple[ShardPlan, Partition]:
    """The partition of a shard that was at LATEST."""
    began = progress(checkpoint=checkpoint, delivered_until=instant, **fields)
    shard = ShardPlan(shard_id="s0", kcl_checkpoint="LATEST", outcome=ImportOutcome.PARTITION, progress=began)
    stream = StreamDescription(name="clicks", creation_epoch=5, open_shards=1, retention_hours=24)
    whole = ImportPlan(stream=stream, shards=(shard,), other_items={})
    [partition] = partitions_of(whole, "clicks|PARTITION", NOW)
    return shard, partition


def test_reimported_shard_at_latest_keeps_its_first_start() -> None:
    earlier = NOW - timedelta(hours=1)
    _, existing = imported(at_timestamp(earlier), earlier)
    shard, again = imported(at_timestamp(NOW), NOW)

    assert keep_earlier_start(shard, again, existing).progress == existing.progress
    assert keep_earlier_start(shard, again, None) == again


@pytest.mark.parametrize("changes", [{"checkpoint": "7"}, {"epoch": 3}])
def test_progressed_shard_does_not_keep_its_first_start(changes: dict[str, Any]) -> None:
    _, existing = imported(**{"checkpoint": at_timestamp(NOW), "instant": NOW, **changes})
    shard, again = imported(at_timestamp(NOW + timedelta(hours=1)), NOW)

    assert keep_earlier_start(shard, again, existing) == again
