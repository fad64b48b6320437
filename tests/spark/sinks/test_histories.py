"""Jobs that write to tables of every kind, one of them failing at any call: nothing is lost or duplicated.

All is real but Spark: a source, a store, leases, acknowledgment sets, and tables. The job that is struck dies, or gets
no answer, or stands still and goes on as a former owner. Others take over, perhaps with another version of the DAG,
which adds a sink or drops one; somebody rejects batches. See `tests/support/struck_jobs.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.spark.sinks.iceberg import catalog as catalogs
from airflow_provider_coordination.spark.sinks.iceberg import sink as sinks
from airflow_provider_coordination.spark.sinks.sql import database
from airflow_provider_coordination.sql import MYSQL, POSTGRESQL
from tests.support.dag_versions import STORIES, Case
from tests.support.depth import examples
from tests.support.freezing import Calls, Strike
from tests.support.mariadb import MariaDb
from tests.support.servers import postgres_database
from tests.support.sinks import SINKS, OnServer, SinkUnderTest
from tests.support.sql_tables import SqlTarget
from tests.support.struck_jobs import live

pytestmark = [pytest.mark.integration, pytest.mark.deep]
TABLES = sorted(kind for kind in SINKS if not kind.startswith("parquet"))
"""Parquet has its own search of failures at each call: `tests/spark/test_struck_jobs.py`."""


@pytest.fixture(scope="module")
def urls(postgres_server: str, mariadb_server: MariaDb) -> Iterator[dict[str, str]]:
    """The URL of a database, by kind of server."""
    with postgres_database(postgres_server) as url, mariadb_server.database() as name:
        yield {POSTGRESQL: url, MYSQL: mariadb_server.url(name)}


@pytest.fixture(scope="module")
def places(urls: dict[str, str]) -> Callable[[str], SinkUnderTest]:
    """Return an empty sink of a kind."""

    def target(kind: str) -> SinkUnderTest:
        found = SINKS[kind]
        if not isinstance(found, OnServer):
            return found
        url = urls[kind.rpartition(" ")[2]]
        for table in ("main", "copy", "_coordination_batches"):
            SqlTarget(url, Path()).run(f"DROP TABLE IF EXISTS {table}")
        return found.make(url)

    return target


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "RETRY_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(sinks, "CONFLICT_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(database, "WAIT_SECONDS", 10.0)  # a loaded server ends the sessions of live jobs too
    monkeypatch.setattr(database, "ABANDONED_SECONDS", 1)
    monkeypatch.setattr(database, "LOCK_TIMEOUT_SECONDS", 1)


@pytest.fixture(scope="module")
def calls_without_failure(places: Callable[[str], SinkUnderTest]) -> Callable[[Case, str], Calls]:
    """Return the calls of a run without failures."""

    @cache
    def calls_of(case: Case, kind: str) -> Calls:
        with tempfile.TemporaryDirectory() as folder:
            return live(case, Path(folder), None, places=places(kind))

    return calls_of


@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    kind=st.sampled_from(TABLES),
    story=st.sampled_from(sorted(STORIES)),
    source=st.sampled_from(["shards", "items"]),
    strike=st.sampled_from(Strike),
    gives_up=st.booleans(),
    data=st.data(),
)
def test_sinks_hold_each_record_once_after_failures(
    places: Callable[[str], SinkUnderTest],
    calls_without_failure: Callable[[Case, str], Calls],
    kind: str,
    story: str,
    source: str,
    strike: Strike,
    gives_up: bool,
    data: st.DataObject,
) -> None:
    case = Case(story, *STORIES[story], source=source)
    none = calls_without_failure(case, kind)
    point = data.draw(st.integers(1, len(none.made)), "the call at which the job is struck")
    successor = None
    if strike is Strike.FREEZE:
        successor = data.draw(st.none() | st.sampled_from(none.changing), "that at which the next owner stands still")
    with tempfile.TemporaryDirectory() as folder:
        calls = live(
            case, Path(folder), point, strike=strike, gives_up=gives_up, successor=successor, places=places(kind)
        )
    event(f"{kind}: {'struck' if calls.struck else 'not struck'}")
