from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.stores import StoreSettings, open_store


@pytest.fixture(params=["in_memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def store_settings(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    """Settings of every kind of store in turn, each empty and not yet initialized."""
    if request.param == "in_memory":
        return StoreSettings(store="in_memory")
    if request.param == "sqlite":
        return StoreSettings(url=f"sqlite:///{tmp_path}/coordination.db")
    return StoreSettings(url=request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(store_settings: StoreSettings) -> Iterator[CoordinationStore]:
    store = open_store(store_settings)
    store.initialize()
    yield store
    store.close()
