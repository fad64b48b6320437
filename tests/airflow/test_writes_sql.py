"""Tables of databases and batch functions as sinks in a DAG."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.spark.writes import ForeachBatch, landing_path_of, sinks_of
from airflow_provider_coordination.spark.writes.sql import SqlTable
from tests.airflow.conftest import SECRET

CONNECTION = {
    "conn_type": "postgres", "host": "db", "schema": "shop", "login": "ann", "password": SECRET,
    "extra": {"sslmode": "require", "cursor": "dictcursor"},
}  # fmt: skip


def table(table: str = "orders", **given: Any) -> SqlTable:
    return SqlTable(table=table, **{"conn_id": "c", "staging_path": "/data/staging/", **given})


@pytest.mark.parametrize(
    ("conn_type", "name", "location"),
    [
        ("postgres", "orders", "postgresql://db:5432/shop/public.orders"),
        ("postgres", "sales.orders", "postgresql://db:5432/shop/sales.orders"),
        ("mysql", "orders", "mysql://db:3306/shop/shop.orders"),
        ("mariadb", "sales.orders", "mysql://db:3306/shop/sales.orders"),
    ],
)
def test_table_location_is_normalized(
    monkeypatch: pytest.MonkeyPatch, conn_type: str, name: str, location: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", json.dumps({**CONNECTION, "conn_type": conn_type, "extra": {}}))
    [sink] = sinks_of(table(name), AirflowConnections())
    assert (sink.kind, sink.location) == ("sql", location)


def test_connection_secrets_are_in_the_settings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", json.dumps(CONNECTION))
    [sink] = sinks_of(table(merge_on=["id"], add_columns="true"), AirflowConnections())
    assert sink.settings["server"]["password"] == SECRET and sink.settings["server"]["tls"] == {"sslmode": "require"}
    assert sink.settings["merge_on"] == ["id"] and sink.settings["add_columns"] is True
    assert SECRET not in f"{sink!r} {sink} {sink.location} {table()!r}"


def test_raw_batches_wait_below_the_staging_path() -> None:
    assert landing_path_of(table()) == "/data/staging/_landing"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"conn_type": "sqlite"}, "^connection 'c': a connection of type 'sqlite' is not supported for SQL sinks"),
        ({"host": ""}, "^connection 'c': field 'host' is missing"),
        ({"schema": ""}, "^connection 'c': field 'schema' is missing; name the database"),
        ({"conn_type": "mysql", "extra": {"ssl": "yes"}}, "^connection 'c': the extra 'ssl' is not a JSON object"),
    ],
)
def test_unusable_connection_is_named(monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], message: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", json.dumps({**CONNECTION, **changed}))
    with pytest.raises(ConfigurationError, match=message):
        table().connect(AirflowConnections())


@pytest.mark.parametrize(
    ("writes", "message"),
    [
        (table('"orders"'), "^SqlTable 'main': field 'table' must be a table such as 'orders' or 'sales.orders'"),
        (table("a.b.c"), "^SqlTable 'main': field 'table' must be a table"),
        (table(staging_path=" "), "^SqlTable 'main': field 'staging_path' must not be empty"),
        (table(conn_id=""), "^SqlTable 'main': field 'conn_id' is missing"),
        (table(add_columns="maybe"), "^SqlTable 'main': field 'add_columns' must be true or false; got 'maybe'"),
        (table(name="n", where=" "), "^SqlTable 'n': field 'where' must not be empty; leave it out"),
        (
            ForeachBatch(function="publish", staging_path="/s"),
            "^ForeachBatch 'main': field 'function' must be of the form 'module:function'",
        ),
        (
            ForeachBatch(function="m:f", staging_path=""),
            "^ForeachBatch 'main': field 'staging_path' is missing",
        ),
        (
            ForeachBatch(function="m:f", staging_path="/s", where=" "),
            "^ForeachBatch 'main': field 'where' must not be",
        ),
    ],
)
def test_invalid_fields_are_reported_before_connections_are_resolved(writes: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        writes.check()


def test_function_sink_has_its_guarantee_in_its_location() -> None:
    [sink] = sinks_of(
        ForeachBatch(function="publishing:to_kafka", staging_path="/s", where="n > 1"), AirflowConnections()
    )
    assert (sink.kind, sink.location, sink.where) == ("foreach_batch", "at-least-once://publishing:to_kafka", "n > 1")
