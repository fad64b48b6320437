"""The connection type `coordination`: read, checked, tested."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from tests.airflow.conftest import SECRET


def settings_of(connect: Any, conn_type: str = "coordination", **fields: Any) -> Any:
    connect("c", conn_type, **fields)
    return CoordinationHook("c").settings


def test_a_url_is_enough(connect: Any, store_url: str) -> None:
    settings = settings_of(connect, extra={"url": store_url})
    assert (settings.store.store, settings.store.url) == ("sql", store_url)
    assert settings.ownership_timeout == timedelta(seconds=60)
    assert settings.safety_margin == timedelta(seconds=5)


def test_every_field_is_read(connect: Any, store_url: str) -> None:
    extra = {
        "store": "sql",
        "url": store_url,
        "table": "leases",
        "region": "eu-west-1",
        "prefix": "prod",
        "ownership_timeout": 120,
        "safety_margin": "2.5",
    }
    settings = settings_of(connect, extra=extra)
    assert (settings.store.table, settings.region, settings.prefix) == ("leases", "eu-west-1", "prod")
    assert settings.ownership_timeout == timedelta(seconds=120)
    assert settings.safety_margin == timedelta(seconds=2.5)


def test_what_a_form_leaves_empty_counts_as_not_given(connect: Any, store_url: str) -> None:
    extra = {"url": store_url, "table": "", "prefix": None, "ownership_timeout": None, "region": ""}
    settings = settings_of(connect, extra=extra)
    assert (settings.store.table, settings.prefix, settings.region) == ("coordination_partition", None, None)


def test_login_and_password_go_into_the_url_and_not_into_its_text(connect: Any) -> None:
    url = "postgresql://host:5433/db?sslmode=require"
    settings = settings_of(connect, login="ann", password=f"{SECRET}@/:", extra={"url": url})
    assert settings.store.url == f"postgresql://ann:{SECRET}%40%2F%3A@host:5433/db?sslmode=require"
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "connection 'c': store 'sql': field 'url' is missing; give an SQLAlchemy URL"),
        ({"extra": "{not json"}, "connection 'c': extra is not JSON; give an object with store, url"),
        ({"extra": "[1]"}, "connection 'c': extra is not a JSON object"),
        ({"extra": {"uri": "x"}}, "connection 'c': unknown field 'uri'; known are store, url, table"),
        (
            {"extra": {"store": "redis", "url": "x://y"}},
            "connection 'c': unknown store kind 'redis'; use one of",
        ),
        (
            {"extra": {"store": "in_memory"}},
            "connection 'c': field 'store' is 'in_memory', which tasks cannot share",
        ),
        ({"extra": {"url": 7}}, "connection 'c': field 'url' must be text; got 7"),
        (
            {"extra": {"url": "nonsense"}},
            "connection 'c': field 'url' is not an SQLAlchemy URL; give for example",
        ),
        (
            {"extra": {"url": "sqlite:////x.db", "ownership_timeout": "soon"}},
            "connection 'c': field 'ownership_timeout' must be a number of seconds, such as 60; got 'soon'",
        ),
        (
            {"extra": {"url": "sqlite:////x.db", "safety_margin": -1}},
            "connection 'c': field 'safety_margin' must be a number of seconds, such as 60; got -1",
        ),
        (
            {"extra": {"url": "sqlite:////x.db", "ownership_timeout": True}},
            "connection 'c': field 'ownership_timeout' must be a number of seconds, such as 60; got True",
        ),
        (
            {"extra": {"url": "sqlite:////x.db", "ownership_timeout": 10, "safety_margin": 5}},
            "connection 'c': ownership_timeout 10 s with safety_margin 5 s is not usable",
        ),
        (
            {"extra": {"url": "sqlite:////x.db"}, "login": "ann"},
            "connection 'c': SQLite has no users; leave login and password empty",
        ),
        ({"conn_type": "postgres"}, "connection 'c' is of type 'postgres'; name one of type 'coordination'"),
    ],
)
def test_a_wrong_connection_is_told_by_name_field_value_and_remedy(
    connect: Any, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        settings_of(connect, **fields)
    assert str(error.value).startswith(message)


def test_a_connection_that_is_not_defined_is_told() -> None:
    with pytest.raises(ConfigurationError, match="connection 'absent' is not defined; create it"):
        _ = CoordinationHook("absent").settings


def test_a_coordinator_is_ready_to_use(coordination: SourceCoordinator) -> None:
    coordinator = CoordinationHook().coordinator("clicks", "me")
    assert coordinator.create_partitions({"p": {}}) == ["p"]
    assert [p.partition_key for p in coordination.partitions()] == ["p"]


def test_a_source_name_that_is_not_usable_is_told(coordination: SourceCoordinator) -> None:
    with pytest.raises(ConfigurationError, match=r"source 'a\|b' is not usable"):
        CoordinationHook().coordinator("a|b", "me")


def test_testing_a_connection_asks_the_store(coordination: SourceCoordinator) -> None:
    works, said = CoordinationHook().test_connection()
    assert works
    assert said == "The store answers; table 'coordination_partition' is ready."


def test_testing_a_wrong_connection_says_what_is_wrong(connect: Any) -> None:
    connect("c", "coordination", extra={"url": "oracle://host/db"})
    assert CoordinationHook("c").test_connection() == (
        False,
        "store 'sql': database 'oracle' is not supported; use sqlite or postgresql",
    )


@pytest.mark.integration
def test_a_database_that_does_not_answer_fails_the_test_without_its_password(connect: Any) -> None:
    connect("c", "coordination", login="u", password=SECRET, extra={"url": "postgresql://127.0.0.1:9/db"})
    works, said = CoordinationHook("c").test_connection()
    assert not works
    assert "127.0.0.1:9/db" in said
    assert SECRET not in said


def test_a_folder_that_is_not_there_is_an_unavailable_store(connect: Any) -> None:
    connect("c", "coordination", extra=json.dumps({"url": "sqlite:////no/such/folder/c.db"}))
    with pytest.raises(StoreUnavailableError, match="unable to open database file"):
        CoordinationHook("c").coordinator("clicks", "me")
