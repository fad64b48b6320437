"""`JdbcTable` resolves a table to a JDBC URL, a login and a query from Python."""

from __future__ import annotations

import json
import pickle
import sqlite3
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks import connections
from airflow_provider_coordination.hooks.connections import AirflowConnections, airflow_connection
from airflow_provider_coordination.sources.jdbc.kind import JdbcTable
from airflow_provider_coordination.sources.kinds import reader_of
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.airflow.conftest import REPOSITORY
from tests.support.airflow_dags import DagBag, cron_of

SECRET = "never-to-be-seen-4711"


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    def define(conn_type: str, **fields: Any) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": conn_type, **fields}))

    return define


def table(**changes: Any) -> JdbcTable:
    return JdbcTable(**{"table": "orders", "column": "id", "jdbc_conn_id": "shop", **changes})


def settings_of(reads: JdbcTable) -> JdbcTable:
    return JdbcTable.from_mapping(json.loads(json.dumps(reads.connect(AirflowConnections()).reads.settings)))


@pytest.mark.parametrize(
    ("conn_type", "fields", "url"),
    [
        ("postgres", {"host": "db", "schema": "shop"}, "jdbc:postgresql://db:5432/shop"),
        ("postgres", {"host": "db", "port": 6432, "schema": "shop"}, "jdbc:postgresql://db:6432/shop"),
        ("mysql", {"host": "db", "schema": "shop"}, "jdbc:mysql://db:3306/shop"),
        ("sqlite", {"host": "/data/shop.db"}, "jdbc:sqlite:/data/shop.db"),
        ("jdbc", {"host": "jdbc:postgresql://db/shop?ssl=true"}, "jdbc:postgresql://db/shop?ssl=true"),
        ("generic", {"host": "jdbc:oracle:thin:@//db:1521/shop"}, "jdbc:oracle:thin:@//db:1521/shop"),
    ],
)
def test_connection_becomes_a_jdbc_url_with_a_separate_login(
    connect: Any, conn_type: str, fields: dict[str, Any], url: str
) -> None:
    connect(conn_type, login="me", password=SECRET, **fields)
    database = settings_of(table()).database
    assert (database.url, database.user, database.password) == (url, "me", SECRET)
    assert SECRET not in database.url


def test_url_may_accompany_an_unsupported_connection(connect: Any) -> None:
    connect("oracle", host="db", login="me", password=SECRET)
    assert settings_of(table(url="jdbc:oracle:thin:@//db/shop")).driver_class == "oracle.jdbc.OracleDriver"


def test_tls_options_of_postgresql_reach_the_driver(connect: Any) -> None:
    connect("postgres", host="db", schema="shop", extra={"sslmode": "verify-full", "cursor": "x"})
    assert settings_of(table(properties={"socketTimeout": "30"})).database.properties == {
        "sslmode": "verify-full",
        "socketTimeout": "30",
    }


@pytest.mark.parametrize(
    ("conn_type", "fields", "said"),
    [
        ("http", {"host": "db"}, "a connection of type 'http' does not determine a JDBC URL"),
        ("postgres", {"schema": "shop"}, "field 'host' is missing"),
        ("postgres", {"host": "db"}, "field 'schema' is missing"),
        ("jdbc", {"host": "jdbc:h2:mem:x"}, "field 'driver' must name the class"),
        ("jdbc", {"host": f"jdbc:postgresql://me:{SECRET}@db/shop"}, "must not contain a password"),
    ],
)
def test_unusable_connection_is_refused_with_its_gap(
    connect: Any, conn_type: str, fields: dict[str, Any], said: str
) -> None:
    connect(conn_type, **fields)
    with pytest.raises(ConfigurationError, match=said) as refused:
        table().connect(AirflowConnections())
    assert SECRET not in str(refused.value)


def test_undefined_connection_is_named() -> None:
    with pytest.raises(ConfigurationError, match="connection 'nowhere' is not defined"):
        table(jdbc_conn_id="nowhere").connect(AirflowConnections())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lag": "soon"}, "field 'lag' must be an ISO 8601 duration such as PT1H, or a number of seconds"),
        ({"rows_per_partition": "many"}, "field 'rows_per_partition' must be a whole number"),
        ({"query": "SELECT 1;"}, "field 'table' or 'query' must be given, and not both"),
        ({"column": "None"}, "field 'column' is missing"),
    ],
)
def test_wrong_parameter_is_refused_by_name(connect: Any, changes: dict[str, Any], said: str) -> None:
    connect("postgres", host="db", schema="shop")
    with pytest.raises(ConfigurationError, match=said):
        table(**changes).connect(AirflowConnections())


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00"),
        (date(2026, 1, 1), "2026-01-01"),
        (Decimal("1.5"), "1.5"),
        (0, "0"),
        ("None", None),
    ],
)
def test_bounds_may_be_python_values_or_template_text(bound: Any, text: str | None) -> None:
    assert table(start=bound).resolved().start == text


def test_each_interval_and_live_ingestion_are_separate_sources() -> None:
    assert table().default_source == "shop.orders"
    assert table(incremental="True", start="5").default_source == "shop.orders"
    assert table(start="5", end="9").default_source == "shop.orders@5--9"
    assert table(source="mine", start="5").default_source == "mine"
    named = {table(table=None, query=query).default_source for query in ("SELECT 1", "SELECT 2")}
    assert len(named) == 2


def test_location_excludes_the_interval() -> None:
    reads = table(start="5")
    assert reads.reads_from == {"jdbc_conn_id": "shop", "table": "orders", "column": "id"}


def test_repr_is_stable_and_holds_no_properties() -> None:
    assert repr(table(properties={"sslkey": SECRET})) == repr(table(properties={}))


def test_reader_is_built_from_pickled_settings(connect: Any) -> None:
    connect("postgres", host="db", schema="shop", login="me", password=SECRET)
    reader = reader_of(pickle.loads(pickle.dumps(table().connect(AirflowConnections()).reads)))
    assert reader.origin({"column": "id", "is_null": True}) == "orders: id is null"


# Asking the database


def supply(reads: JdbcTable) -> list[str]:
    coordinator = SourceCoordinator(InMemoryStore(), "orders", "owner")
    coordinator.initialize()
    return coordinator.supply(reads.connect(AirflowConnections()).supplier(coordinator)) or []


@pytest.fixture
def shop(tmp_path: Path) -> str:
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("CREATE TABLE orders (id INTEGER)")
    database.executemany("INSERT INTO orders VALUES (?)", [(n,) for n in range(10)])
    database.commit()
    database.close()
    return str(tmp_path / "shop.db")


@pytest.mark.parametrize("whole_url", [False, True])
def test_database_is_queried_by_sqlalchemy_without_its_provider(connect: Any, shop: str, whole_url: bool) -> None:
    connect("sqlite", host=f"jdbc:sqlite:{shop}" if whole_url else shop)
    assert supply(table(rows_per_partition="5")) == ["id (-inf, 5)", "id [5, inf)"]
    assert supply(table(incremental=True, lag=4)) == ["id (-inf, 5]"]


def test_database_is_queried_by_the_hook_of_its_provider(
    connect: Any, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StubHook:
        def get_records(self) -> None: ...

        def get_conn(self) -> Any:
            return sqlite3.connect(shop)

    connect("oracle", host="db")
    monkeypatch.setattr(type(airflow_connection("shop", "shop", "")), "get_hook", lambda self: StubHook())
    assert supply(table(url="jdbc:oracle:thin:@//db/shop", end=5)) == ["id (-inf, 5)"]


def test_connection_is_resolved_once_for_all_statements(
    connect: Any, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect("sqlite", host=shop)
    calls: list[str] = []

    def resolved(conn_id: str, *others: str) -> Any:
        calls.append(conn_id)
        return airflow_connection(conn_id, *others)

    monkeypatch.setattr(connections, "airflow_connection", resolved)
    assert len(supply(table(rows_per_partition=1))) == 10
    of_many = len(calls)
    supply(table(partitions=1))
    assert len(calls) == 2 * of_many


def test_unsupported_database_is_refused_with_the_package_to_install(connect: Any) -> None:
    connect("generic", host="jdbc:oracle:thin:@//db/shop")
    with pytest.raises(ConfigurationError, match="the task cannot query this database from Python; install"):
        supply(table())


@pytest.mark.parametrize(
    ("lag", "expected"),
    [(timedelta(minutes=5), timedelta(minutes=5)), ("PT5M", timedelta(minutes=5)), (300, 300.0), ("300", 300.0)],
)
def test_lag_is_a_duration_or_a_distance(lag: Any, expected: Any) -> None:
    assert table(incremental=True, lag=lag).resolved().lag == expected


# The example


def test_example_runs_daily_with_exact_ends() -> None:
    bag = DagBag(str(REPOSITORY / "dags" / "jdbc_ingestion.py"))
    assert bag.import_errors == {}
    dag = bag.dags["jdbc_ingestion"]
    assert cron_of(dag) in ("@daily", "0 0 * * *")
    create, ingest = dag.get_task("ingestion.create_partitions"), dag.get_task("ingestion.ingest")
    assert create.interval == ingest.partial_kwargs["interval"] == "data_interval"
