"""Whole Spark jobs ingest a table: one is killed, and a later run takes new rows."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.jdbc.supplier import Query, RangeSupplier
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support.jdbc_tables import jdbc_table
from tests.support.job_settings import ingest
from tests.support.spark_job import CRASHING, Job, Pipeline

PASSWORD = "never-to-be-seen-4711"


@dataclass
class OrdersTable(Pipeline):
    """The table `orders` of a PostgreSQL database, ingested by its growing key."""

    database: str = ""
    port: int = 0
    jars: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.output = self.folder / "dataset"
        self.events = self.folder / "events"
        self.events.mkdir()
        name = sa.make_url(self.database).database
        self.jdbc = jdbc_table(
            f"jdbc:postgresql://127.0.0.1:{self.port}/{name}",
            user="postgres",
            password=PASSWORD,
            rows_per_partition=1000,
            incremental=True,
        )
        self.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, amount NUMERIC(12, 2), at TIMESTAMPTZ)")

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.database.replace("+psycopg", "")) as connection:
            connection.execute(statement)

    def insert(self, first: int, last: int) -> None:
        self.execute(f"INSERT INTO orders SELECT n, n / 4.0, now() FROM generate_series({first}, {last}) AS n")

    def coordinator(self, owner: str = "test") -> SourceCoordinator:
        coordinator = SourceCoordinator(open_store(StoreSettings.from_url(self.url)), "orders", owner)
        coordinator.initialize()
        return coordinator

    def supply(self) -> list[str]:
        query = Query(sa.create_engine(self.database, poolclass=NullPool).raw_connection)
        return self.coordinator().supply(RangeSupplier(query, self.jdbc)) or []

    def settings(self, **changes: Any) -> IngestSettings:
        return ingest(
            source="orders",
            owner=f"owner-{uuid.uuid4().hex[:8]}",
            output=str(self.output),
            expires_at=datetime.now(UTC) + timedelta(hours=1),
            store=StoreSettings.from_url(self.url),
            reads=ReadsSettings(kind="jdbc", settings=self.jdbc.to_mapping()),
            idle_duration=0.2,
            **changes,
        )

    def submit(self, *application: Path, **more: Any) -> Job:
        conf = {
            "spark.jars": ",".join(map(str, self.jars)),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.compress": "false",
        }
        job = self.start(*application, conf=conf, **more)
        job.wait()
        return job

    def ids(self) -> Counter[int]:
        return Counter(ds.dataset(self.output, format="parquet").to_table(columns=["id"])["id"].to_pylist())


@pytest.fixture
def table(
    java: str, postgres_url: str, postgres_port: int, jdbc_drivers: list[Path], tmp_path: Path
) -> Iterator[OrdersTable]:
    kinesis: Any = None
    url = f"sqlite:///{tmp_path}/coordination.db"
    made = OrdersTable(kinesis, "", tmp_path, url, database=postgres_url, port=postgres_port, jars=jdbc_drivers)
    yield made
    for job in made.jobs:
        job.kill()


def test_killed_job_is_continued_and_later_runs_read_new_rows(table: OrdersTable) -> None:
    table.insert(1, 10_000)
    assert len(table.supply()) == 10
    killed = table.submit(CRASHING, env={"CRASH_AT": "delivered:1"}, max_leases=4)
    assert killed.process.returncode != 0
    assert 0 < sum(table.ids().values()) < 10_000, "in the middle"

    table.coordinator().give_up_owner(killed.settings.owner)  # as the operator does
    second = table.submit()
    assert second.process.returncode == 0, second.output
    assert table.ids() == Counter(range(1, 10_001))

    assert table.supply() == []
    table.insert(10_001, 10_500)
    assert table.supply() == ["id (10000, 10500]"]
    third = table.submit()
    assert third.process.returncode == 0, third.output
    assert third.summary["records_delivered"] == 500
    assert table.ids() == Counter(range(1, 10_501))

    written = [path.read_text() for path in table.events.rglob("*") if path.is_file()]
    assert any("FROM orders) coordination_types" in text for text in written)
    assert not [text for text in (*written, *(job.output for job in table.jobs)) if PASSWORD in text]
