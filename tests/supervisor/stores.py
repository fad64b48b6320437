"""Every kind of store that supervisors are tested on, opened for a test; several in one test are apart."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.stores.dynamodb import DynamoDbStore
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from airflow_provider_coordination.stores.sql import SqlStore
from tests.support.dynamodb_server import DynamoDbServer

STORES = [
    "in_memory",
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.integration),
    pytest.param("dynamodb", marks=pytest.mark.integration),
]
"""For `opening`."""


def opening(kind: str, request: pytest.FixtureRequest, folder: Path) -> Callable[[], CoordinationStore]:
    """Return what opens an empty store of this kind at each call."""
    numbers = count(1)
    if kind == "in_memory":
        return InMemoryStore
    if kind == "sqlite":
        return lambda: SqlStore(f"sqlite:///{folder}/store-{next(numbers)}.db", table="coordination")
    if kind == "postgresql":
        url: str = request.getfixturevalue("postgres_url")
        return lambda: SqlStore(url, table=f"coordination_{next(numbers)}")
    server: DynamoDbServer = request.getfixturevalue("dynamodb")
    table: str = request.getfixturevalue("dynamodb_table")
    return lambda: DynamoDbStore(server.settings, table=f"{table}-{next(numbers)}")
