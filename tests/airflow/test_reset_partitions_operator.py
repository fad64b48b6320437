"""The operator sets positions of shards, streams and sources, and reports each change."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionUpdateError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.operators.partitions import ResetPartitionsOperator
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, partition_key
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from tests.support.split_stream import SplitStream


def reset(**arguments: Any) -> ResetPartitionsOperator:
    return ResetPartitionsOperator(task_id="reset", source="clicks", **arguments)


@pytest.mark.integration
def test_stream_is_reset_and_the_summary_names_previous_owners(stream: SplitStream, context: Any) -> None:
    stream.coordination.leases.acquire(1)
    parent, held, waiting = stream.keys

    summary = reset(reads=KinesisStreams("s"), to="earliest").execute(context)

    assert json.loads(json.dumps(summary)) == summary
    starts = [shard.starting_sequence_number for shard in stream.shards]
    assert summary == {
        "source": "clicks",
        "to": "earliest",
        "position": "earliest",
        "reset": 1,
        "created": 0,
        "removed": 2,
        "partitions": [
            {"partition_key": parent, "status": "COMPLETED", "owner": None, "before": starts[0]},
            {"partition_key": held, "status": "ASSIGNED", "owner": "test", "before": starts[1]},
            {"partition_key": waiting, "status": "UNASSIGNED", "owner": None, "before": starts[2]},
        ],
        "left": 0,
        "left_because": {},
    }
    assert stream.progress(parent).checkpoint == "TRIM_HORIZON"
    assert stream.coordination.view.get(held) is None


@pytest.mark.integration
def test_shard_is_reset_to_a_sequence_number(stream: SplitStream, context: Any) -> None:
    shard = stream.shards[1]
    number = str(int(shard.starting_sequence_number) + 5)

    summary = reset(reads=KinesisStreams("s"), partition_keys=shard.shard_id, to=number).execute(context)

    assert (summary["reset"], summary["position"]) == (1, number)
    assert stream.progress(stream.keys[1]).checkpoint == number


@pytest.mark.integration
def test_sequence_number_of_another_shard_fails_without_a_retry(stream: SplitStream, context: Any) -> None:
    with pytest.raises(AirflowFailException, match=f"is not in shard '{stream.shards[0].shard_id}'"):
        reset(reads=KinesisStreams("s"), partition_keys=stream.shards[0].shard_id, to="5").execute(context)


def leased(coordination: SourceCoordinator, *shard_ids: str, creation_epoch: int = 7) -> list[str]:
    keys = [partition_key("s", creation_epoch, shard_id) for shard_id in shard_ids]
    coordination.create_partitions(
        {
            key: ShardProgress(
                stream="s", shard_id=shard_id, parent_shard_ids=(), starting_hash_key="0", ending_hash_key="9"
            ).to_mapping()
            for key, shard_id in zip(keys, shard_ids, strict=True)
        }
    )
    return keys


def test_several_shards_are_reset_to_a_templated_instant(coordination: SourceCoordinator, context: Any) -> None:
    names = [f"shardId-00000000000{number}" for number in range(3)]
    keys = leased(coordination, *names)
    [earlier] = leased(coordination, names[1], creation_epoch=5)
    instant = datetime.now(UTC) - timedelta(hours=1)

    summary = reset(reads=KinesisStreams("s"), partition_keys=names[1:], to=instant.isoformat()).execute(context)

    found = {key: p for key in (*keys, earlier) if (p := coordination.view.get(key)) is not None}
    position = f"AT_TIMESTAMP:{instant:%Y-%m-%dT%H:%M:%S.%fZ}"
    assert summary["reset"] == 2
    assert {key: p.progress["checkpoint"] for key, p in found.items()} == {
        keys[0]: "TRIM_HORIZON", keys[1]: position, keys[2]: position, earlier: "TRIM_HORIZON"
    }  # fmt: skip


def test_partitions_of_any_kind_are_reset_by_key(coordination: SourceCoordinator, context: Any) -> None:
    coordination.create_partitions({"a": {"rows": 1}, "b": {"rows": 2}})

    assert reset(partition_keys=["a"], to="earliest").execute(context)["reset"] == 1

    assert [p.progress for key in "ab" if (p := coordination.view.get(key))] == [{}, {"rows": 2}]


@pytest.mark.integration
def test_only_the_given_streams_are_reset(stream: SplitStream, context: Any) -> None:
    stream.coordination.create_partitions({"a": {"rows": 1}})

    summary = reset(to="earliest", reads=KinesisStreams("s"), partition_keys="").execute(context)

    assert (summary["reset"], summary["removed"]) == (1, 2)
    other = stream.coordination.view.get("a")
    assert other is not None and other.progress == {"rows": 1}


def test_held_partition_is_taken_from_its_job_at_once(coordination: SourceCoordinator, context: Any) -> None:
    coordination.create_partitions({"a": {"rows": 1}})
    coordination.leases.acquire(1)

    reset(partition_keys="a", to="earliest").execute(context)

    found = coordination.view.get("a")
    assert found is not None and (found.status, found.owner) == (PartitionStatus.UNASSIGNED, None)


def test_partition_of_items_is_reset_with_its_splits(coordination: SourceCoordinator, context: Any) -> None:
    items = ({"uri": "a"}, {"uri": "b"})
    whole = PartitionProgress(kind="s3", items=items, checkpoint="2", is_ended=True)
    split = PartitionProgress(kind="s3", items=items[1:], split_of="p")
    coordination.create_partitions({"p": whole.to_mapping(), "p#1": split.to_mapping()})

    with pytest.raises(
        AirflowFailException, match="consists of items and has no position 'latest'; reset it to 'earliest'"
    ):
        reset(to="latest").execute(context)
    summary = reset(to="earliest").execute(context)

    assert (summary["reset"], summary["removed"], summary["partitions"][0]["before"]) == (1, 1, "2")
    [partition] = coordination.view.partitions()
    assert PartitionProgress.from_mapping(partition.progress).items == items


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"to": "2999-01-01T00:00:00Z"}, "lies in the future"),
        ({"to": "soon"}, "is neither 'earliest', 'latest'"),
        ({"to": "5", "reads": KinesisStreams("s")}, "position '5' belongs to one partition, not to 's'"),
        (
            {"to": "latest", "reads": KinesisStreams("s"), "partition_keys": "x"},
            "no partition 'x' of 's'; check the name; known names: shardId-0",
        ),
        ({"to": "latest", "reads": KinesisStreams("other")}, "has no part 'other'"),
        ({"to": "earliest"}, "field 'reads' is missing: a source of kind 'kinesis' must be queried for its contents"),
        ({"to": "latest", "partition_keys": "x"}, "source 'clicks' has no partition 'x'"),
        ({"to": "latest", "partition_keys": "a"}, "'a' is read as a whole and has no position 'latest'"),
    ],
)
def test_invalid_request_fails_without_a_retry_and_changes_nothing(
    coordination: SourceCoordinator, context: Any, arguments: dict[str, Any], message: str
) -> None:
    leased(coordination, "shardId-000000000000", "shardId-000000000001")
    coordination.create_partitions({"a": {}})
    before = sorted(coordination.view.partitions(), key=lambda p: p.partition_key)

    with pytest.raises(AirflowFailException, match=message):
        reset(**arguments).execute(context)
    assert sorted(coordination.view.partitions(), key=lambda p: p.partition_key) == before


@pytest.mark.integration
def test_partition_that_cannot_be_reset_fails_the_task(stream: SplitStream, kinesis_account: Any, context: Any) -> None:
    def clean_up() -> None:
        parent = stream.coordination.view.get(stream.keys[0])
        assert parent is not None
        stream.coordination.store.delete(parent)

    kinesis_account.engine.faults.before("ListShards", clean_up)
    with pytest.raises(
        PartitionUpdateError, match=r"3 of 3 partitions could not be reset: partition .* does not exist"
    ):
        reset(reads=KinesisStreams("s"), to="earliest").execute(context)
    assert all(stream.coordination.view.get(key) is not None for key in stream.keys[1:])
