"""An Iceberg table whose catalog is a real PostgreSQL database, reached as a DAG describes it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.spark.sinks import Sink, make_sinks
from airflow_provider_coordination.spark.writes import sinks_of
from airflow_provider_coordination.spark.writes.iceberg import IcebergTable
from tests.support.sinks import BatchRows, an_attempt, under_next_lease
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration
VALUES = BatchRows({"a-1": [1, 2], "b-1": [3]})
A, B = an_attempt("a-1"), an_attempt("b-1")


@pytest.fixture
def new_sink(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Sink]:
    url = make_url(postgres_url)
    socket = url.query.get("host")
    connection = {
        "conn_type": "postgres",
        "login": url.username,
        "password": url.password,
        "host": url.host or "",
        "port": url.port,
        "schema": url.database,
        "extra": {"warehouse": str(tmp_path / "warehouse")},
    }
    if socket:  # a folder, which no host of a connection names
        connection["extra"]["uri"] = postgres_url
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG", json.dumps({k: v for k, v in connection.items() if v not in (None, "")}))

    def make() -> Sink:
        [sink] = make_sinks(
            sinks_of(IcebergTable("lake.clicks", catalog_conn_id="iceberg", partition_by=["n"]), AirflowConnections())
        )
        return sink

    return make


def rows_of(sink: Any) -> list[int]:
    return sorted(sink._table.find().scan().to_arrow()["n"].to_pylist())


def deliver(sink: Sink, *attempts: Any) -> None:
    sink.prepare(attempts, VALUES)
    sink.commit(attempts)
    sink.discard(attempts)


def test_two_jobs_deliver_each_batch_once_through_postgresql(new_sink: Callable[[], Sink]) -> None:
    one, other = new_sink(), new_sink()
    one.check()
    one.prepare([A, B], VALUES)
    deliver(other, under_next_lease(A))
    one.commit([A, B])
    one.discard([A, B])
    assert rows_of(other) == [1, 2, 3]


def test_delivery_survives_a_catalog_that_drops_connections(
    new_sink: Callable[[], Sink], postgres_server: str, postgres_url: str
) -> None:
    sink = new_sink()
    deliver(sink, A)
    name = make_url(postgres_url).database
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        sink_b = threading.Thread(target=deliver, args=(sink, B), daemon=True)
        sink_b.start()
        began = time.monotonic()
        while time.monotonic() - began < 3 and sink_b.is_alive():
            time.sleep(0.1)
        assert sink_b.is_alive(), "it waits"
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        sink_b.join(PATIENCE_SECONDS)
    assert not sink_b.is_alive() and rows_of(sink) == [1, 2, 3]
