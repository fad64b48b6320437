"""Settings of streams of tables are validated, and what the kind says of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import new_partition
from airflow_provider_coordination.sources.dynamodb_streams.settings import DynamoDBStreams
from airflow_provider_coordination.sources.kinds import get_kind, kind_of
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, partition_key
from airflow_provider_coordination.sources.source_kind import DatasetName

TABLE_ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders"
STREAM_ARN = f"{TABLE_ARN}/stream/2026-01-01T00:00:00.000"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tables": []}, "'tables' is missing"),
        ({"tables": "ab"}, "'tables' has 'ab'"),
        ({"tables": "arn:aws:kinesis:eu-west-1:123456789012:stream/clicks"}, "ARN of a table or of its stream"),
        ({"tables": ["orders", TABLE_ARN]}, "names table 'orders' twice"),
        ({"tables": [TABLE_ARN, "arn:aws:dynamodb:us-east-1:123456789012:table/views"]}, "eu-west-1, us-east-1"),
        ({"tables": TABLE_ARN, "region_name": "us-east-1"}, "'region_name' is 'us-east-1'"),
        ({"view_type": "IMAGES"}, "'view_type' must be one of"),
        ({"records_per_read": 1001}, "'records_per_read' must be from 1 to 1,?000"),
        ({"initial_position": "soon"}, "DynamoDBStreams: field 'initial_position'"),
        ({"bounds": {"start": "TRIM_HORIZON", "end": "later"}}, "DynamoDBStreams: field 'bounds.end'"),
        ({"bounds": {"start": "TRIM_HORIZON", "end": NOON}, "on_data_loss": "latest"}, "'on_data_loss' must be"),
    ],
)
def test_invalid_setting_names_value_and_remedy(changes: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        DynamoDBStreams(**{"tables": "orders", **changes}).check()


@pytest.mark.parametrize("given", ["orders", TABLE_ARN, STREAM_ARN])
def test_partitions_have_the_name_of_the_table(given: str) -> None:
    reads = DynamoDBStreams(given)
    assert (reads.own_name, reads.parts) == ("dynamodb-streams-orders", ["orders"])
    assert reads.reads_from == {"tables": ["orders"]}


def test_interval_is_a_source_of_its_own() -> None:
    part = DynamoDBStreams("orders").within(NOON, NOON + timedelta(hours=1))
    assert part.own_name == "dynamodb-streams-orders@2026-01-01T12:00:00--2026-01-01T13:00:00Z".replace(
        "T12:00:00--", "T12:00:00Z--"
    )
    assert part.syncs_every is None


def test_kind_names_its_table_and_limits() -> None:
    kind, settings = (
        get_kind("dynamodb_streams"),
        DynamoDBStreams(TABLE_ARN, reads_per_second=2).resolved().to_mapping(),
    )
    kind.check(settings)
    assert kind.location(settings) == {"tables": ["orders"]}
    assert list(kind.datasets(settings)) == [DatasetName("dynamodb://dynamodb.amazonaws.com", "orders")]
    capacity = kind.capacity(settings, ask=False)
    assert (capacity.retention, capacity.reads_per_second, capacity.is_shared) == (timedelta(hours=24), 2, True)


def test_progress_of_a_shard_shows_its_lag() -> None:
    progress = ShardProgress(
        kind="dynamodb_streams",
        stream="orders",
        shard_id="shardId-1",
        parent_shard_ids=(),
        starting_hash_key="",
        ending_hash_key="",
        checkpoint="1234",
        delivered_until=NOON,
    ).to_mapping()
    partition = new_partition("orders|PARTITION", partition_key("orders", 1767225600, "shardId-1"), NOON)
    shown = partition.with_progress(progress)
    kind = kind_of(progress)
    assert kind is get_kind("dynamodb_streams")
    inspected = kind.inspect(shown, NOON + timedelta(seconds=90))
    assert (inspected.kind, inspected.position, inspected.lag) == ("dynamodb_streams", "1234", 90.0)
    assert (kind.stream_of(shown.partition_key), kind.short_name(shown)) == ("orders", "shardId-1")


def test_service_reaches_tables_as_it_reaches_streams() -> None:
    service = get_kind("dynamodb_streams").service({"aws": {"region": "eu-west-1"}, "view_type": "NEW_IMAGE"})
    assert service.client._tables.meta.region_name == "eu-west-1" and service.client._view_type == "NEW_IMAGE"
