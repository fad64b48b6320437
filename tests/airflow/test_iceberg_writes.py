"""Iceberg tables in DAGs: catalogs come from connections, and no secret is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.writes.iceberg import IcebergTable

REST = {"conn_type": "http", "host": "https://catalog.example.com/api", "login": "me", "password": "hush-hush"}


def with_connection(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(fields))


@pytest.mark.parametrize(
    ("connection", "properties", "location"),
    [
        (
            REST,
            {"uri": "https://catalog.example.com/api", "credential": "me:hush-hush"},
            "iceberg://catalog.example.com/api/default/lake.clicks",
        ),
        (
            {"conn_type": "http", "host": "catalog", "port": 8181, "schema": "http", "password": "hush-hush"},
            {"uri": "http://catalog:8181", "token": "hush-hush"},
            "iceberg://catalog:8181/default/lake.clicks",
        ),
        (
            {"conn_type": "postgres", "host": "db", "port": 5432, "schema": "ice", "login": "me", "password": "h@sh/"},
            {"type": "sql", "uri": "postgresql+psycopg://me:h%40sh%2F@db:5432/ice"},
            "iceberg://db:5432/ice/default/lake.clicks",
        ),
        (
            {"conn_type": "generic", "extra": {"type": "glue", "glue.id": "123", "glue.skip-archive": True}},
            {"type": "glue", "glue.id": "123", "glue.skip-archive": "true"},
            "iceberg://glue/default/lake.clicks",
        ),
    ],
    ids=["REST", "REST with a token", "PostgreSQL", "Glue"],
)
def test_connection_becomes_a_catalog(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], properties: dict[str, str], location: str
) -> None:
    with_connection(monkeypatch, **connection)
    sink = IcebergTable("lake.clicks", catalog_conn_id="lake").connect(AirflowConnections())
    assert sink.settings["properties"] == properties
    assert (sink.kind, sink.name, sink.location) == ("iceberg", "main", location)


def test_secrets_are_in_the_settings_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_connection(monkeypatch, **REST)
    table = IcebergTable("lake.clicks", catalog_conn_id="lake", catalog={"s3.secret-access-key": "very-secret"})
    sink = table.connect(AirflowConnections())
    assert "hush" not in f"{table!r}{sink!r}{sink.location}" and "very-secret" not in f"{table!r}{sink!r}"
    said = Redaction({"settings": sink.settings}).text("refused: me:hush-hush, very-secret")
    assert "hush-hush" not in said and "very-secret" not in said


def test_table_properties_override_those_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with_connection(monkeypatch, **REST, extra={"warehouse": "theirs"})
    sink = IcebergTable("lake.clicks", catalog_conn_id="lake", catalog={"warehouse": "ours"}).connect(
        AirflowConnections()
    )
    assert sink.settings["properties"]["warehouse"] == "ours"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"table": "clicks"},
            r"^IcebergTable 'main': field 'table' must be a namespace and a name, .* got 'cli",
        ),
        (
            {"partition_by": "day(at"},
            r"^IcebergTable 'main': field 'partition_by' has 'day\(at', which is neither a column",
        ),
        (
            {"partition_by": ["bucket(id)"]},
            r"'bucket\(id\)', which is neither a column nor a transform of one; give columns",
        ),
        ({"partition_by": ["at", "at"]}, "^IcebergTable 'main': field 'partition_by' has 'at' more than once"),
        (
            {"table_properties": {"format-version": "3"}},
            "field 'table_properties' has 'format-version' '3', which pyiceberg cannot write; give '2', or",
        ),
        ({"table_properties": {"n": [1]}}, "field 'table_properties' must be a JSON object whose values are text"),
        (
            {"columns": {"n": 1}},
            "^IcebergTable 'main': field 'columns' must be a JSON object whose values are text; got",
        ),
        ({"columns": ["n"]}, "^IcebergTable 'main': field 'columns' must be a JSON object; got"),
        (
            {"merge_on": ["id", "id"]},
            r"^IcebergTable 'main': field 'merge_on' must name each value once; got \['id', 'id'\]",
        ),
        ({"order_by": "at"}, "^IcebergTable 'main': field 'order_by' needs 'merge_on'"),
        ({"where": " "}, "^IcebergTable 'main': field 'where' must not be empty; leave it out"),
        ({"catalog": None}, "^IcebergTable 'main': field 'catalog_conn_id' is missing; name a connection to the"),
    ],
)
def test_invalid_table_is_refused_in_terms_of_the_dag(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        IcebergTable(**{"table": "lake.clicks", "catalog": {"type": "glue"}, **fields}).connect(AirflowConnections())


@pytest.mark.parametrize("merge_on", ["id", ["id"]])
def test_iceberg_table_can_be_merged_into(merge_on: str | list[str]) -> None:
    table = IcebergTable("lake.clicks", catalog={"type": "glue"}, merge_on=merge_on, order_by="at")
    settings = table.connect(AirflowConnections()).settings
    assert (settings["merge_on"], settings["order_by"]) == (["id"], "at")
