"""Settings of a table or query: every error that needs no database."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import FrameReader, ItemUnreadableError
from airflow_provider_coordination.sources.jdbc.kind import JdbcTable
from airflow_provider_coordination.sources.jdbc.reader import RangeReader, driver_properties
from airflow_provider_coordination.sources.kinds import ReadsSettings, reader_of
from tests.support.jdbc_tables import jdbc_table

SETTINGS = jdbc_table("jdbc:postgresql://db:5432/shop", user="me", password="s3cret!", properties={"sslkey": "private"})


def at(url: str, table: JdbcTable = SETTINGS, **of_database: Any) -> JdbcTable:
    """Return a table in another database."""
    return replace(table, database=replace(table.database, url=url, **of_database))


def test_usual_settings_are_valid() -> None:
    SETTINGS.check()
    assert (SETTINGS.dialect, SETTINGS.driver_class) == ("postgresql", "org.postgresql.Driver")


def test_secrets_are_hidden() -> None:
    assert not {"s3cret!", "private"} & set(re.findall(r"[\w!]+", f"{SETTINGS} {SETTINGS.database}"))


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://me:s3cret@db/shop",
        "jdbc:postgresql://db/shop?user=me&password=s3cret",
        "jdbc:sqlserver://db;password=s3cret",
        "jdbc:oracle:thin:me/s3cret@//db:1521/shop",
    ],
)
def test_password_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError, match="must not contain a password") as refused:
        at(url).database.check()
    assert "s3cret" not in str(refused.value)


def test_at_sign_elsewhere_in_a_url_is_no_password() -> None:
    at("jdbc:postgresql://db:5432/shop?ApplicationName=a@b").database.check()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"table": None}, "field 'table' or 'query' must be given, and not both; got None"),
        ({"query": "SELECT 1"}, "field 'table' or 'query' must be given, and not both; got 'orders'"),
        ({"table": "orders; DROP TABLE x"}, "field 'table' must be the name of a table"),
        ({"table": None, "query": "SELECT 1; SELECT 2"}, "field 'query' must be one SELECT without ';'"),
        ({"table": None, "query": "DELETE FROM orders"}, "field 'query' must begin with SELECT or WITH"),
        ({"fetch_size": -1}, "field 'fetch_size' must be at least 0; got -1"),
        ({"session": "SET a = 1; SET b = 2"}, "field 'session' must be one statement"),
        ({"properties": {"Password": "x"}}, "field 'properties' must not contain"),
        ({"properties": {"customSchema": "x"}}, "field 'properties' must not change types"),
        ({"properties": {"socketTimeout": 5}}, "field 'properties' must be a JSON object whose values are text"),
    ],
)
def test_invalid_setting_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        replace(SETTINGS, **changes).check()


@pytest.mark.parametrize(
    ("url", "said"),
    [("postgresql://db/shop", "is not a JDBC URL"), ("jdbc:mariadb://db/shop", "permitMysqlScheme")],
)
def test_unusable_url_is_refused_with_the_remedy(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        RangeReader(at(url))


@pytest.mark.parametrize(
    "table", ["orders", "shop.orders", '"Shop"."My Orders"', "`a`.`b`", "a.b.c$d", "c$d", "[dbo].[My Orders]"]
)
def test_tables_may_have_schemas_and_quotes(table: str) -> None:
    replace(SETTINGS, table=table).check()


@pytest.mark.parametrize(
    "query", ["select ';' as a", "WITH t AS (SELECT 1) SELECT * FROM t", "-- what;\nSELECT 1", "/* a; */ SELECT 1"]
)
def test_query_may_contain_harmless_semicolons(query: str) -> None:
    replace(SETTINGS, table=None, query=query).check()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"column": ""}, "field 'column' is missing"),
        ({"partitions": 0}, "field 'partitions' must be at least 1; got 0"),
        ({"partitions": 2, "rows_per_partition": 2}, "both given"),
        ({"nulls": "drop"}, "field 'nulls' must be one of read, refuse, ignore; got 'drop'"),
        ({"nulls": "read", "incremental": True}, "no incremental read can include a NULL"),
        ({"nulls": "read", "start": "5"}, "no incremental read can include a NULL"),
        ({"incremental": True, "end": "5"}, "field 'end' must not be given with 'incremental'"),
        ({"lag": 5.0}, "field 'lag' needs 'incremental'"),
        ({"lag": timedelta(seconds=-1), "incremental": True}, "field 'lag' must not be negative"),
    ],
)
def test_invalid_partitioning_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        replace(SETTINGS, **changes).check()


def test_driver_is_required_without_a_default() -> None:
    with pytest.raises(ConfigurationError, match="field 'driver' must name the class of the JDBC driver for 'h2'"):
        _ = at("jdbc:h2:mem:x").driver_class


def test_mysql_sessions_share_one_time_zone() -> None:
    mysql = at("jdbc:mysql://db/shop")
    assert mysql.session_statement == "SET time_zone = '+00:00'"
    assert replace(mysql, session="SET x = 1").session_statement == "SET x = 1"
    assert SETTINGS.session_statement is None


def test_reader_is_built_from_json_settings() -> None:
    mapping = json.loads(json.dumps(SETTINGS.to_mapping()))
    reader = reader_of(ReadsSettings(kind="jdbc", settings=mapping))
    assert isinstance(reader, FrameReader)
    assert reader.origin({"column": "id", "kind": "integer", "lower": "5", "upper": "9"}) == "orders: id [5, 9)"


def test_invalid_item_bound_is_refused_before_reading() -> None:
    reader: Any = RangeReader(SETTINGS)
    with pytest.raises(ItemUnreadableError, match="is not of the kind 'integer'"):
        reader.frame(None, [{"column": "id", "kind": "integer", "lower": "5 OR 1=1"}])


class RecordingSession:
    """What a session is asked."""

    def __init__(self) -> None:
        self.read = self
        self.asked: dict[str, Any] = {}

    def jdbc(self, url: str, table: str, *, predicates: list[str], properties: dict[str, str]) -> None:
        self.asked = {"url": url, "table": table, "predicates": predicates, **properties}


def asked_by(table: JdbcTable) -> dict[str, Any]:
    spark: Any = RecordingSession()
    RangeReader(table).frame(spark, [{"column": "id", "kind": "integer", "upper": "5"}, {"column": "id"}])
    asked: dict[str, Any] = spark.asked
    return asked


def test_item_becomes_a_predicate_and_login_properties() -> None:
    server = at("jdbc:sqlserver://db:1433;databaseName=shop")
    assert asked_by(server) == {
        "url": "jdbc:sqlserver://db:1433;databaseName=shop",
        "table": "orders",
        "predicates": ['"id" < 5', '"id" IS NOT NULL'],
        "user": "me",
        "password": "s3cret!",
        "driver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        "fetchsize": "10000",
        "preferTimestampNTZ": "true",
        "sslkey": "private",
    }


def test_mysql_properties_default_unless_set() -> None:
    mysql = at("jdbc:mysql://db/shop", properties={})
    added = {"useCursorFetch": "true", "tinyInt1isBit": "false", "yearIsDateType": "false"}
    assert added.items() <= driver_properties(mysql).items()
    assert "useCursorFetch" not in driver_properties(replace(mysql, driver="org.mariadb.jdbc.Driver"))
    assert driver_properties(at(mysql.database.url, properties={"tinyInt1isBit": "true"}))["tinyInt1isBit"] == "true"
    assert "tinyInt1isBit" not in driver_properties(at("jdbc:mysql://db/shop?a=b&tinyint1isbit=true"))
    assert not added.keys() & driver_properties(SETTINGS).keys()
