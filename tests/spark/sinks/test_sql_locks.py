"""The SQL sink when others hold its locks: it waits as long as an abandoned session lasts, and names who holds them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_coordination.spark.delivery import SinkLockedError
from airflow_provider_coordination.spark.outages import translating_outages
from airflow_provider_coordination.spark.sinks.sql import database, mysql
from airflow_provider_coordination.sql import POSTGRESQL
from tests.support.sinks import BatchRows, an_attempt
from tests.support.sql_tables import SERVERS, SqlTarget
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration
VALUES = {"a-1": [1, 2]}
ATTEMPT = an_attempt("a-1")


@pytest.fixture(params=SERVERS)
def target(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlTarget:
    target = SqlTarget(request.getfixturevalue(SERVERS[request.param]), tmp_path)
    target.run("CREATE TABLE clicks (_batch_id VARCHAR(255), n BIGINT)")
    target.sink().check()
    monkeypatch.setattr(database, "LOCK_TIMEOUT_SECONDS", 1)
    monkeypatch.setattr(database, "LOCKED_SECONDS", 1.0)
    return target


def deliver(target: SqlTarget, **changed: Any) -> None:
    sink = target.sink(**changed)
    with translating_outages("main"):
        sink.prepare([ATTEMPT], BatchRows(VALUES))
        sink.commit([ATTEMPT])


@contextmanager
def transaction(target: SqlTarget) -> Iterator[Any]:
    """Give a cursor of a former owner's session, which has claimed the batch and stands still."""
    with target.database.engine.connect() as connection:
        target.sink()._taken.claim(connection, ATTEMPT, 2)
        yield target.database.cursor(connection)
        connection.invalidate()


@pytest.mark.parametrize(
    ("target", "within"),
    [*((server, "a transaction") for server in SERVERS), (POSTGRESQL, "a COPY")],
    indirect=["target"],
)
def test_abandoned_session_is_waited_for(
    target: SqlTarget, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, within: str
) -> None:
    monkeypatch.setattr(database, "ABANDONED_SECONDS", 2)
    monkeypatch.setattr(database, "LOCKED_SECONDS", 60.0)
    with transaction(target) as cursor, ExitStack() as stack:
        if within == "a COPY":
            copy = stack.enter_context(dropped(cursor.copy("COPY clicks FROM STDIN (FORMAT csv)")))
            copy.write(b"a-1,7\n")
        deliver(target)
        assert target.rows() == [("a-1", 1), ("a-1", 2)]
    warning = next(r.getMessage() for r in caplog.records if "the transaction is repeated" in r.getMessage())
    assert ("the server ends it at" in warning) == (within == "a transaction")
    assert ("waiting for its client within a COPY" in warning) == (within == "a COPY")


@contextmanager
def dropped(copy: Any) -> Iterator[Any]:
    """Give what a COPY writes to, and ignore its end: its session is gone."""
    with ExitStack() as stack:
        yield stack.enter_context(copy)
        stack.pop_all()


def test_persistent_lock_names_its_holder(target: SqlTarget) -> None:
    with transaction(target) as cursor:
        cursor.execute("SELECT pg_backend_pid()" if target.is_postgresql else "SELECT CONNECTION_ID()")
        [(session,)] = cursor.fetchall()
        with pytest.raises(SinkLockedError) as raised:
            deliver(target)
    text = str(raised.value)
    assert text.startswith("sink 'main' waits for a lock: batch a-1: table ")
    assert f"session {session} of user '{target.settings.server.user}'" in text and "in a transaction since" in text
    remedy = f"SELECT pg_terminate_backend({session})" if target.is_postgresql else f"KILL {session}"
    assert f"to end it now: {remedy}" in text and "timeout" in text and "unavailable" not in text


def test_reader_blocking_a_new_column_is_named(target: SqlTarget) -> None:
    target.run("ALTER TABLE clicks DROP COLUMN n")
    with target.database.engine.connect() as connection:
        connection.exec_driver_sql("SELECT * FROM clicks")
        with pytest.raises(SinkLockedError, match=r"is locked by session \d+ of user"):
            deliver(target, add_columns=True)


def test_session_changing_tables_is_named(target: SqlTarget) -> None:
    target.run("DROP TABLE _coordination_batches")
    with target.database.engine.connect() as connection:
        target.database.lock(connection)
        with pytest.raises(SinkLockedError, match=r"is locked by session \d+ of user"):
            target.sink().check()


def test_table_that_another_job_just_creates_is_waited_for(
    mariadb_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target, ended = SqlTarget(mariadb_url, tmp_path), threading.Event()

    def create_and_drop() -> None:
        while not ended.is_set():
            target.sink().check()
            target.run("DROP TABLE _coordination_batches")

    other = threading.Thread(target=create_and_drop)
    other.start()
    try:
        for _ in range(1_000):
            target.sink().check()
            if "concurrent DDL statement (1684)" in caplog.text:
                break
    finally:
        ended.set()
        other.join(PATIENCE_SECONDS)
    assert "concurrent DDL statement (1684)" in caplog.text, "MariaDB refused to show the table"


@pytest.mark.parametrize("server", SERVERS)
def test_sinks_of_two_tables_begin_in_one_empty_schema(
    request: pytest.FixtureRequest, tmp_path: Path, server: str
) -> None:
    targets = [SqlTarget(request.getfixturevalue(SERVERS[server]), tmp_path, f"clicks_{n}") for n in range(3)]
    together = threading.Barrier(3, action=lambda: targets[0].run("DROP TABLE IF EXISTS _coordination_batches"))

    def check(target: SqlTarget) -> None:
        for _ in range(10):
            together.wait(PATIENCE_SECONDS)
            target.sink().check()

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(check, targets)) == [None, None, None]


def test_deadlock_is_retried_and_no_outage(target: SqlTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LOCKED_SECONDS", 60.0)
    monkeypatch.setattr(database, "LOCK_TIMEOUT_SECONDS", 10)  # the server looks for deadlocks after one second
    target.run("CREATE TABLE one (n INT PRIMARY KEY)")
    target.run("INSERT INTO one VALUES (1), (2)")
    met, tries = threading.Barrier(2), []

    def change(first: int, second: int) -> None:
        def work(connection: sa.Connection) -> None:
            tries.append(first)
            connection.exec_driver_sql(f"UPDATE one SET n = n WHERE n = {first}")
            if len(tries) <= 2:
                met.wait(PATIENCE_SECONDS)
            connection.exec_driver_sql(f"UPDATE one SET n = n WHERE n = {second}")

        with closing(database.DatabaseSession(target.database)) as session:
            session.run(work)

    other = threading.Thread(target=change, args=(2, 1))
    other.start()
    change(1, 2)
    other.join(PATIENCE_SECONDS)
    assert len(tries) == 3


def test_idle_sessions_are_named_without_transaction_rights(mariadb_url: str, tmp_path: Path) -> None:
    target = SqlTarget(mariadb_url, tmp_path)
    catalog = target.settings.server.catalog
    target.run(f"CREATE USER {catalog}@'127.0.0.1' IDENTIFIED BY 'secret'")
    target.run(f"GRANT ALL ON `{catalog}`.* TO {catalog}@'127.0.0.1'")
    plain = mysql.MySql(
        replace(target.settings, server=replace(target.settings.server, user=catalog, password="secret"))
    )
    with plain.engine.connect() as idle, plain.engine.connect() as other:
        session = idle.exec_driver_sql("SELECT CONNECTION_ID()").scalar()
        [found] = map(str, plain.lock_holders(other, 0.0))
    assert f"probably by session {session} of user '{catalog}'" in found and "the server ends it at" in found
