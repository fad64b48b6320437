"""Testing a connection names the error and the remedy, against real servers, and never a password."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_coordination.hooks.coordination import CoordinationHook
from tests.airflow.conftest import SECRET
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.integration

Refusal = Callable[..., str]


@pytest.fixture
def refusal(connect: Any) -> Refusal:
    """Tests a connection that cannot work, and returns the message."""

    def test(**fields: Any) -> str:
        connect("c", "coordination", **fields)
        works, text = CoordinationHook("c").test_connection()
        assert not works, text
        assert SECRET not in text
        return text

    return test


@pytest.fixture
def sql(mariadb_server: MariaDb, mariadb_url: str) -> Callable[[str], None]:
    """Runs a statement in the database, as its administrator."""

    def run(statement: str) -> None:
        with closing(mariadb_server.connect(sa.make_url(mariadb_url).database)) as connection:
            connection.cursor().execute(statement)

    return run


@pytest.fixture
def role(sql: Callable[[str], None]) -> Iterator[str]:
    """A role with a password, that may read one table which is not ours."""
    name = f"r_{uuid.uuid4().hex[:8]}"
    sql(f"CREATE USER {name}@'127.0.0.1' IDENTIFIED BY '{SECRET}'")
    sql("CREATE TABLE other (id INT PRIMARY KEY)")
    sql(f"GRANT SELECT ON other TO {name}@'127.0.0.1'")
    yield name
    sql(f"DROP USER {name}@'127.0.0.1'")


def place(url: str, **changes: Any) -> dict[str, Any]:
    """Return the field of the URL, without a user."""
    parsed = sa.make_url(url)
    return {"url": str(parsed.set(username=None, **changes))}


def test_unreachable_host_is_reported_within_seconds(refusal: Refusal) -> None:
    text = refusal(login="u", password=SECRET, extra={"url": "postgresql://127.0.0.1:9/db"})
    assert "Connection refused" in text or "connection failed" in text
    assert text.endswith("; check the host and the port in 'url', and that this machine can reach them")


def test_error_of_a_database_role_is_reported(
    refusal: Refusal, role: str, sql: Callable[[str], None], mariadb_url: str
) -> None:
    wrong = refusal(login=role, password="another", extra=place(mariadb_url))
    assert wrong.endswith("(1045); check the login and the password")
    login = {"login": role, "password": SECRET}
    assert "as a role that may create them" in refusal(**login, extra=place(mariadb_url))
    assert refusal(**login, extra=place(mariadb_url, database="no_such")).endswith(", or check its name in 'url'")
    database = sa.make_url(mariadb_url).database
    sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.* TO {role}@'127.0.0.1'")
    assert "; let this role create and alter tables" in refusal(**login, extra=place(mariadb_url))
    text = refusal(**login, extra={**place(mariadb_url), "table": "other"})
    assert text.endswith("is not one of ours: it has the columns id and the primary key (id); give another 'table'")


def test_missing_table_privilege_error_names_the_grant(
    refusal: Refusal, connect: Any, role: str, sql: Callable[[str], None], mariadb_url: str
) -> None:
    connect("admin", "coordination", extra={"url": mariadb_url})
    works, text = CoordinationHook("admin").test_connection()
    assert (works, text) == (True, "The store responds; table 'coordination_partition' is ready.")
    sql(f"GRANT SELECT ON coordination_partition_schema TO {role}@'127.0.0.1'")
    sql(f"GRANT INSERT ON coordination_partition TO {role}@'127.0.0.1'")
    text = refusal(login=role, password=SECRET, extra=place(mariadb_url))
    assert "; grant this role SELECT, INSERT, UPDATE and DELETE on the table" in text


def test_missing_driver_error_names_its_extra(refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "pymysql"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pymysql", None)
    text = refusal(login="u", password=SECRET, extra={"url": "mysql://h/db"})
    assert text.endswith("is not installed; install airflow-provider-coordination[mysql]")


def test_unencoded_password_is_not_shown_in_part(refusal: Refusal) -> None:
    text = refusal(extra={"url": "postgresql://u:half-a-secret@other-half@127.0.0.1:9/db"})
    assert "half" not in text


def test_dynamodb_errors_are_reported(refusal: Refusal, connect: Any, dynamodb: DynamoDbServer) -> None:
    connect("keys", "aws", login="test", password=SECRET)
    here = {"store": "dynamodb", "region": "eu-west-1", "aws_conn_id": "keys"}
    away = refusal(extra={**here, "endpoint_url": "http://127.0.0.1:9"})
    assert away.endswith("; check 'endpoint_url', 'region' and that this machine can reach it")
    there = {**here, "endpoint_url": dynamodb.endpoint_url, "table": f"test-{uuid.uuid4().hex[:8]}"}
    absent = refusal(extra={**there, "skip_table_creation": True})
    assert "the table does not exist and 'skip_table_creation' is set; create it" in absent
    client = dynamodb.client(region_name=here["region"])
    client.create_table(
        TableName=there["table"],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    try:
        other = refusal(extra=there)
    finally:
        client.delete_table(TableName=there["table"])
    assert "the table has the key id (HASH, S) and must have" in other and "give another table in 'table'" in other


def test_unknown_field_error_lists_the_known_fields(refusal: Refusal) -> None:
    assert "unknown field 'uri'; the known fields are store, url, table" in refusal(extra={"uri": "x"})
