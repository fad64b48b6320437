"""Settings of tables and exports are validated."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.sources.dynamodb_export.kind import DynamoDBExport

TABLE_ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"table": ""}, "'table' is missing"),
        ({"segments": 0}, "'segments' must be from 1"),
        ({"segments": 1_000_001}, "got 1000001"),
        ({"read_units_per_second": 0.0}, "'read_units_per_second' must be positive"),
        ({"expression_attribute_values": {":a": {}}}, "typed values"),
        ({"interval": 0.0}, "'interval' must be positive"),
        ({"count": 2}, "'count' needs 'interval'"),
        ({"count": 0, "interval": 1.0}, "'count' must be at least 1"),
    ],
)
def test_invalid_setting_names_value_and_remedy(changes: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        DynamoDBTable(**{"table": "orders", **changes}).check()


def test_first_read_leaves_count_minus_one_reads() -> None:
    assert DynamoDBTable(table="orders", interval=timedelta(minutes=1), count=3).rereads["reads_left"] == 2
    assert DynamoDBTable(table="orders", interval=timedelta(minutes=1)).rereads["reads_left"] is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "got none"),
        ({"location": "s3://a/b", "export_arn": TABLE_ARN}, "got 'export_arn' and 'location'"),
        ({"export_arn": "orders"}, "'export_arn' must be an ARN"),
        ({"table_arn": TABLE_ARN}, "'bucket' must be given together with 'table_arn'"),
        ({"location": "s3://a/b", "files_per_partition": 0}, "'files_per_partition' must be at least 1"),
    ],
)
def test_export_requires_exactly_one_identification(given: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        DynamoDBExport(**given).check()


def test_table_survives_json() -> None:
    table = DynamoDBTable(table="orders", expression_attribute_values={":a": {"N": "1"}})
    assert DynamoDBTable.from_mapping(table.to_mapping()) == table
