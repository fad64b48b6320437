"""The history of a followed table: its partitions, what is refused before it is read, and what a user may reset."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.sources.dynamodb_streams.changes import change_order
from airflow_provider_coordination.sources.dynamodb_streams.client import StreamOffError
from airflow_provider_coordination.sources.dynamodb_streams.history import HistoryReader
from airflow_provider_coordination.sources.dynamodb_streams.settings import DynamoDBStreams
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.sources.kinesis.positions import parse_position
from airflow_provider_coordination.sources.kinesis.sync_state import SyncState
from tests.support.followed_table import FollowedTable
from tests.support.history import STREAM

TABLE_ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders"
STREAM_ARN = f"{TABLE_ARN}/stream/2026-01-01T00:00:00.000"
GIB = 2**30


@pytest.fixture
def table(tmp_path: Path) -> FollowedTable:
    return FollowedTable(tmp_path)


def keys(table: FollowedTable) -> list[str]:
    return [partition.partition_key for partition in table.look.view.partitions()]


def test_sync_creates_history_and_shards(table: FollowedTable) -> None:
    [result] = table.sync().streams
    epoch = int(table.service.stream_of(STREAM).created_at.timestamp())
    assert result.created[:3] == [f"{STREAM}/{epoch}/{segment}" for segment in range(3)]
    assert len(result.created) == 3 + 2 and result.creation_epoch == epoch


def test_changes_begin_before_the_history(table: FollowedTable) -> None:
    table.sync()
    [state] = SyncState.from_mapping(table.look.view.supplier_state()).streams
    began = parse_position(state.began).timestamp
    assert began is not None and 60 <= (table.clock.now() - began).total_seconds() < 62


def test_next_sync_creates_nothing(table: FollowedTable) -> None:
    table.sync()
    before = sorted(keys(table))
    [result] = table.sync().streams
    assert not result.created and sorted(keys(table)) == before


@pytest.mark.parametrize(
    ("described", "units", "says"),
    [
        ({"ProvisionedThroughput": {"ReadCapacityUnits": 100}}, None, "100 read units a second takes about 291 hours"),
        ({"ProvisionedThroughput": {"ReadCapacityUnits": 0}}, 500.0, "500 read units a second takes about 58 hours"),
        ({"ProvisionedThroughput": {"ReadCapacityUnits": 100}}, 500.0, "allow at least 1457 read units a second"),
    ],
)
def test_history_too_long_for_the_stream_is_refused(
    table: FollowedTable, described: Any, units: float | None, says: str
) -> None:
    size = {"TableSizeBytes": 400 * GIB, "ItemCount": 10**9}
    table.service.tables[STREAM]["described"] = {**size, **described}
    table.table = DynamoDBTable(STREAM, follow=True, read_units_per_second=units, aws=table.table.aws)
    with pytest.raises(ConfigurationError, match=rf"1000000000 items and 400\.0 GiB.*{says}"):
        table.sync()
    assert keys(table) == []


def test_large_table_on_demand_is_read(table: FollowedTable) -> None:
    table.service.tables[STREAM]["described"] = {"TableSizeBytes": 400 * GIB}
    table.sync()
    assert keys(table)


def test_stream_without_new_images_is_refused(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.service.create_table("keys", view="KEYS_ONLY")
    with pytest.raises(ConfigurationError, match=r"KEYS_ONLY, without new images.*aws dynamodb update-table"):
        table.sync_of(table.look).run(["keys"], forced=True)


def test_table_without_stream_is_refused(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.service.create_table("quiet", view=None)
    with pytest.raises(StreamOffError, match="aws dynamodb update-table --table-name quiet"):
        table.sync_of(table.look).run(["quiet"], forced=True)


def test_order_is_of_one_width_and_grows() -> None:
    numbers = pa.array(["0", "1", "9", "10", "9" * 40])
    orders = [*change_order(5, numbers).to_pylist(), *change_order(60, numbers).to_pylist()]
    assert orders == sorted(orders) and {len(order) for order in orders} == {53}


def test_reader_reads_consistently() -> None:
    reader = HistoryReader(DynamoDBTable("orders", follow=True))
    assert reader._settings.consistent_read


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scan": "a"}, "'scan' must not be given together with 'follow'"),
        ({"filter_expression": "a = :a"}, "'filter_expression' must not"),
        ({"projection_expression": "a"}, "'projection_expression' must not"),
        ({"interval": 5.0}, "'interval' must not"),
        ({"follow": "perhaps"}, "'follow' must be true or false; got 'perhaps'"),
        ({"table": "a b"}, "DynamoDBTable: field 'table' has 'a b'"),
        ({"table": STREAM_ARN}, "'table' must be the name or the ARN of a table, not of its stream"),
        ({"table": TABLE_ARN, "region_name": "us-east-1"}, "'region_name' is 'us-east-1'"),
        ({"follow": False, "on_data_loss": "earliest"}, "'on_data_loss' needs 'follow'; got 'earliest'"),
    ],
)
def test_invalid_setting_names_value_and_remedy(changes: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        DynamoDBTable(**{"table": "orders", "follow": True, **changes}).check()


def test_followed_table_is_an_endless_synced_source() -> None:
    followed, read = DynamoDBTable("orders", follow=True), DynamoDBTable("orders")
    assert (followed.kind, followed.is_endless, followed.is_synced) == ("dynamodb_streams", True, True)
    assert (read.kind, read.is_endless, read.is_synced) == ("dynamodb", False, False)
    assert followed.parts == ["orders"] and followed.default_source == "dynamodb-orders"


def test_interval_of_a_followed_table_names_the_ways_out() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    hour = (noon, noon + timedelta(hours=1))
    with pytest.raises(ConfigurationError, match=r"'follow' is true.*Reset the source to 'earliest'.*DynamoDBStreams"):
        DynamoDBTable("orders", follow=True).within(*hour)
    with pytest.raises(ConfigurationError, match="cannot be read by time"):
        DynamoDBTable("orders").within(*hour)
    assert DynamoDBStreams("orders").within(*hour).bounds is not None


def test_settings_of_a_job_survive_json() -> None:
    changes = DynamoDBTable("orders", follow="true", segments=4, region_name="eu-west-1").resolved().changes
    assert DynamoDBStreams.from_mapping(changes.to_mapping()) == changes
    kind = get_kind("dynamodb_streams")
    location = kind.location(changes.to_mapping())
    assert location == {"tables": ["orders"], "items_first": True}
    assert kind.left(location, {"tables": ["orders"]}) == ["the changes with the items before them"]
    assert kind.left(location, location) == []
