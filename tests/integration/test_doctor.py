"""The findings of `doctor` on real services, which it leaves unchanged."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.clock import SystemClock
from airflow_provider_coordination.diagnosis import CheckStatus, permission_findings, store_findings
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.kinds.dynamodb import DynamoDbSettings
from tests.support.dynamodb_server import DynamoDbServer

MARGIN = timedelta(seconds=2)


def _verdicts(settings: StoreSettings) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in store_findings(settings, MARGIN, SystemClock().now):
        found.setdefault(finding.topic, set()).add(finding.status)
    return found


def test_dynamodb_table_has_all_permissions_and_stays_unchanged(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    own = DynamoDbSettings(table=dynamodb_table, aws=dynamodb.settings, ttl_seconds=3600)
    settings = StoreSettings.of("dynamodb", own)
    store = open_store(settings)
    store.initialize()
    store.close()
    before = _state(dynamodb.client(), dynamodb_table)
    assert _verdicts(settings) == {
        "store": {"ok"}, "clock": {"ok"}, "credentials": {"not checked"}, "permission": {"ok"},
    }  # fmt: skip
    assert _state(dynamodb.client(), dynamodb_table) == before


def test_missing_dynamodb_table_is_not_created(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    settings = StoreSettings.of("dynamodb", DynamoDbSettings(table=dynamodb_table, aws=dynamodb.settings))
    assert "warning" in _verdicts(settings)["store"]
    assert dynamodb_table not in dynamodb.client().list_tables()["TableNames"]


@pytest.mark.parametrize("server", ["postgres_url", "mariadb_url"])
def test_database_reports_its_own_clock(request: pytest.FixtureRequest, server: str) -> None:
    settings = StoreSettings.from_url(request.getfixturevalue(server))
    assert _verdicts(settings) == {"store": {"ok", "warning"}, "clock": {"ok"}}
    store = open_store(settings)
    store.initialize()
    store.close()
    assert _verdicts(settings) == {"store": {"ok"}, "clock": {"ok"}}


def test_stream_can_be_read(kinesis_account: Any) -> None:
    kinesis_account.client().create_stream(StreamName="clicks", ShardCount=1)
    kinesis_account.clock.advance(60)
    needed = get_kind("kinesis").permissions("clicks", lambda service: kinesis_account.settings())
    assert needed is not None
    found = [each for each in permission_findings(*needed) if each.topic == "permission"]
    assert [each.status for each in found] == [CheckStatus.OK] * 4


def _state(client: Any, table: str) -> tuple[Any, ...]:
    description = client.describe_table(TableName=table)["Table"]
    return (
        client.scan(TableName=table)["Count"],
        description["TableStatus"],
        [index["IndexName"] for index in description["GlobalSecondaryIndexes"]],
        client.describe_time_to_live(TableName=table)["TimeToLiveDescription"],
    )
