"""Connections that are defined in a form that Airflow ignores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import (
    AirflowConnections,
    airflow_connection,
    aws_settings,
    check_readable,
)
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.sources.jdbc.kind import database_of
from airflow_provider_coordination.sources.opensearch.kind import cluster_of
from airflow_provider_coordination.sources.own_source import Items
from tests.airflow.conftest import SECRET

NAMED = "the environment variable AIRFLOW_CONN_C "


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        (f'{{"password": "{SECRET}"', "is not JSON: Expecting ',' delimiter, at character "),
        (
            f"{{'password': '{SECRET}'}}",
            "is not JSON: Expecting property name enclosed in double quotes, at character 2",
        ),
        (f'{{"passwort": "{SECRET}"}}', "has the unknown field 'passwort'; the known fields are conn_type, "),
        (f'{{"port": "{SECRET}"}}', "has a 'port' that is not a whole number"),
        (SECRET, "is neither a JSON object nor a URI"),
        (f"postgres://ann:{SECRET}/1@host/db", "is not a URI that Airflow can read"),
        (" ", "is empty"),
    ],
)
def test_ignored_variable_is_named_without_its_value(monkeypatch: pytest.MonkeyPatch, value: str, wrong: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", value)
    with pytest.raises(ConfigurationError) as error:
        CoordinationHook("c").settings  # noqa: B018
    assert str(error.value).startswith(f"connection 'c': {NAMED}{wrong}")
    assert 'give a JSON object such as {"conn_type": "…"' in str(error.value)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        (f'{{"conn_type": "coordination", "extra": "{{{SECRET}"}}', "is not JSON"),
        (f"coordination://host?__extra__=%7B{SECRET}", "is not JSON"),
        (f'{{"conn_type": "coordination", "extra": ["{SECRET}"]}}', "is not a JSON object"),
    ],
)
def test_unusable_extra_of_a_variable_is_named(monkeypatch: pytest.MonkeyPatch, value: str, wrong: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", value)
    with pytest.raises(ConfigurationError) as error:
        check_readable("c", "connection 'c'")
    assert str(error.value).startswith(f"connection 'c': {NAMED}has an 'extra' that {wrong}; give a JSON object")
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "reading",
    [
        lambda conn_id: database_of(conn_id, None, AirflowConnections()),
        lambda conn_id: cluster_of(conn_id, AirflowConnections()),
        lambda conn_id: Items(kind="k", reader="m:R", conn_id=conn_id).connect(AirflowConnections()),
        lambda conn_id: aws_settings(conn_id, "eu-west-1", service="kinesis"),
    ],
    ids=["jdbc", "opensearch", "items", "aws"],
)
def test_each_kind_of_connection_reports_an_ignored_variable(
    monkeypatch: pytest.MonkeyPatch, reading: Callable[[str], Any]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", "{not json")
    with pytest.raises(ConfigurationError, match=f"'c': {NAMED}is not JSON"):
        reading("c")


def test_connection_without_a_type_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", '{"host": "jdbc:h2:mem"}')
    assert airflow_connection("c", "connection 'c'", "create it").host == "jdbc:h2:mem"


def test_connection_without_a_variable_is_undefined() -> None:
    with pytest.raises(ConfigurationError, match="connection 'c' is not defined; create it"):
        airflow_connection("c", "connection 'c'", "create it")
