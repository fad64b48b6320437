from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.coordination.settings import read_settings, write_settings
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.in_memory import InMemoryStore


def test_an_unknown_store_kind_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="unknown store kind 'redis'; use one of in_memory, sql"):
        open_store(StoreSettings(store="redis"))


def test_in_memory_needs_nothing() -> None:
    assert isinstance(open_store(StoreSettings(store="in_memory")), InMemoryStore)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (StoreSettings(store="sql"), "field 'url' is missing"),
        (StoreSettings(url="not a url"), "not an SQLAlchemy URL"),
        (StoreSettings(url="oracle://host/db"), "database 'oracle' is not supported"),
        (StoreSettings(url="sqlite://"), "SQLite needs a file"),
        (StoreSettings(url="sqlite:////x.db", table="a; drop table b"), "table 'a; drop table b' is not usable"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_connecting(settings: StoreSettings, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        open_store(settings)


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(ConfigurationError, match="unknown field 'uri'; known are store, url, table"):
        read_settings(StoreSettings, "store settings", {"store": "sql", "uri": "sqlite:////x.db"})


def test_settings_survive_json() -> None:
    settings = StoreSettings(url="postgresql://u:secret@h/d", table="leases")
    assert read_settings(StoreSettings, "store settings", write_settings(settings)) == settings


def test_the_url_and_its_password_stay_out_of_logs() -> None:
    assert "secret" not in repr(StoreSettings(url="postgresql://u:secret@h/d"))


def test_a_database_file_that_cannot_be_opened_is_told_at_once(tmp_path: Path) -> None:
    store = open_store(StoreSettings(url=f"sqlite:///{tmp_path}/missing-folder/coordination.db"))
    with pytest.raises(StoreUnavailableError, match="unable to open database file"):
        store.initialize()


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("this is no database, and long enough to look at " * 30)
    with pytest.raises(StoreUnavailableError, match="file is not a database"):
        open_store(StoreSettings(url=f"sqlite:///{tmp_path}/x.db")).initialize()


@pytest.mark.integration
def test_a_server_that_is_not_there_is_told_without_its_password() -> None:
    from airflow_provider_coordination.stores.sql import SqlStore

    store = SqlStore("postgresql://u:secret@127.0.0.1:9/db", table="t", retry_deadline_seconds=0.2)
    with pytest.raises(
        StoreUnavailableError, match=r"postgresql\+psycopg://u:\*\*\*@127.0.0.1:9/db cannot be used"
    ) as error:
        store.initialize()
    assert "secret" not in str(error.value)
