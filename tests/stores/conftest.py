from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.kinds.dynamodb import DynamoDbSettings
from tests.support.dynamodb_server import DynamoDbServer

ON_SERVERS = [pytest.mark.integration, pytest.mark.share(0.3)]
"""All run on SQLite; a run takes half of them on each server."""
STORES = [
    "in_memory",
    "sqlite",
    pytest.param("postgresql", marks=ON_SERVERS),
    pytest.param("mariadb", marks=ON_SERVERS),
    pytest.param("dynamodb", marks=ON_SERVERS),
]


@pytest.fixture(params=STORES)
def store_settings(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    """Settings of every kind of store in turn, each empty and not yet initialized."""
    if request.param == "in_memory":
        return StoreSettings(kind="in_memory")
    if request.param == "sqlite":
        return StoreSettings.from_url(f"sqlite:///{tmp_path}/coordination.db")
    if request.param == "dynamodb":
        settings: StoreSettings = request.getfixturevalue("dynamodb_settings")
        return settings
    server = {"postgresql": "postgres_url", "mariadb": "mariadb_url"}[request.param]
    return StoreSettings.from_url(request.getfixturevalue(server))


@pytest.fixture
def dynamodb_settings(dynamodb: DynamoDbServer, dynamodb_table: str) -> StoreSettings:
    """Settings of a store in a DynamoDB table of its own, which does not exist yet."""
    return StoreSettings.of("dynamodb", DynamoDbSettings(table=dynamodb_table, aws=dynamodb.settings))


@pytest.fixture
def store_kind(request: pytest.FixtureRequest, store_settings: StoreSettings) -> str:
    """What the store should say it is."""
    return str(request.node.callspec.params["store_settings"])


@pytest.fixture
def store(store_settings: StoreSettings) -> Iterator[CoordinationStore]:
    store = open_store(store_settings)
    store.initialize()
    yield store
    store.close()
