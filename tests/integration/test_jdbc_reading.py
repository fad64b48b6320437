"""Ranges of real databases: found by the supplier over a Python driver, read by Spark over a JDBC driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession
from sqlalchemy.pool import NullPool

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import SourceUnavailableError
from airflow_provider_coordination.sources.jdbc.query import DbApiQuery
from airflow_provider_coordination.sources.jdbc.reader import RangeReader
from airflow_provider_coordination.sources.jdbc.settings import JdbcSettings, RangeSettings
from airflow_provider_coordination.sources.jdbc.supplier import RangeSupplier
from airflow_provider_coordination.sources.progress import PartitionProgress
from airflow_provider_coordination.spark.frame_landing import land_frames
from airflow_provider_coordination.spark.item_landing import ItemLandingOptions, ItemPlan, LandedItems
from airflow_provider_coordination.stores.in_memory import InMemoryStore
from tests.support.mariadb import MariaDb

PASSWORD = "never-to-be-seen-4711"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ROWS = 200
TABLE = """
CREATE TABLE orders (
    id BIGINT, amount NUMERIC(20, 4), price DOUBLE PRECISION, day DATE, at TIMESTAMP(6), at_utc {instant}, note TEXT
)
"""
COLUMNS = ("id", "amount", "price", "day", "at", "at_utc")


def a_row(n: int) -> tuple[Any, ...]:
    # Gaps, several rows with one value, and the other side of zero.
    k = (n // 2) ** 3 - 1000
    at = NOON + timedelta(hours=k, microseconds=n % 3)
    return (k, Decimal(k) / 16, k / 8, at.date(), at.replace(tzinfo=None), at, None if n % 5 == 0 else f"note {n}")


class Source:
    """A table `orders` in a database, and what reads it."""

    def __init__(self, settings: JdbcSettings, engine: sa.Engine, root: Path) -> None:
        self.settings = settings
        self.engine = engine
        self.query = DbApiQuery(engine.raw_connection, settings.session_statement)
        self.root = root

    def execute(self, statement: str, rows: Sequence[Any] = ()) -> None:
        with self.engine.begin() as connection:
            cursor = connection.connection.cursor()
            if rows:
                cursor.executemany(statement, rows)
            else:
                cursor.execute(statement)

    def insert(self, rows: Sequence[Any]) -> None:
        self.execute("INSERT INTO orders VALUES (%s, %s, %s, %s, %s, %s, %s)", rows)

    def coordinator(self) -> SourceCoordinator:
        coordinator = SourceCoordinator(InMemoryStore(), "orders", "owner")
        coordinator.initialize()
        return coordinator

    def supply(self, coordinator: SourceCoordinator, column: str, **ranges: Any) -> list[str]:
        read = RangeSettings(**{"column": column, "rows_per_partition": 60, **ranges})
        return coordinator.supply(RangeSupplier(self.query, self.settings, read, lambda: NOON)) or []

    def land(self, spark: SparkSession, coordinator: SourceCoordinator, keys: Sequence[str]) -> list[LandedItems]:
        plans = []
        for key in keys:
            partition = coordinator.view.get(key)
            assert partition is not None
            progress = PartitionProgress.from_mapping(partition.progress)
            plans.append(
                ItemPlan(
                    source_identifier="orders|PARTITION",
                    partition_key=key,
                    kind="jdbc",
                    fencing_token=1,
                    items=progress.items,
                    start="",
                )
            )
        options = ItemLandingOptions(root=str(self.root), seconds=60, max_bytes=2**20, slot_memory_bytes=2**25)
        return land_frames(spark, plans, RangeReader(self.settings), options)

    def rows(self, landed: Sequence[LandedItems]) -> list[dict[str, Any]]:
        assert [row.error for row in landed] == [None] * len(landed)
        return [row for each in landed if each.file for row in pq.read_table(each.file).to_pylist()]


@pytest.fixture
def postgresql(postgres_url: str, postgres_port: int, jdbc_drivers: list[Path], tmp_path: Path) -> Source:
    name = sa.make_url(postgres_url).database
    engine = sa.create_engine(postgres_url, poolclass=NullPool)
    settings = JdbcSettings(
        url=f"jdbc:postgresql://127.0.0.1:{postgres_port}/{name}", user="postgres", password=PASSWORD, table="orders"
    )
    source = Source(settings, engine, tmp_path)
    source.execute(TABLE.format(instant="TIMESTAMP(6) WITH TIME ZONE"))
    return source


@pytest.fixture
def mariadb(mariadb_server: MariaDb, mariadb_url: str, jdbc_drivers: list[Path], tmp_path: Path) -> Source:
    url = sa.make_url(mariadb_url)
    engine = sa.create_engine(url.set(drivername="mysql+pymysql"), poolclass=NullPool)
    settings = JdbcSettings(
        url=f"jdbc:mysql://127.0.0.1:{url.port}/{url.database}?permitMysqlScheme",
        user=url.username,
        driver="org.mariadb.jdbc.Driver",
        table="orders",
    )
    source = Source(settings, engine, tmp_path)
    table = TABLE.replace("at TIMESTAMP", "at DATETIME").replace("id BIGINT", "id BIGINT UNSIGNED")
    source.execute(table.format(instant="TIMESTAMP(6) NULL"))
    return source


def test_each_row_is_read_once_whatever_column_it_is_cut_by(spark: SparkSession, postgresql: Source) -> None:
    rows = [a_row(n) for n in range(ROWS)]
    postgresql.insert([*rows, (None,) * 7])
    for column in COLUMNS:
        coordinator = postgresql.coordinator()
        keys = postgresql.supply(coordinator, column)
        assert len(keys) == 5, "four of sixty rows, and the one without a value"
        landed = postgresql.land(spark, coordinator, keys)
        assert [each.records for each in landed if "is null" in each.partition_key] == [1]
        assert max(each.records for each in landed) < 120
        found = postgresql.rows(landed)
        actual = sorted((tuple(row[name] for name in (*COLUMNS, "note")) for row in found), key=repr)
        assert actual == sorted([*rows, (None,) * 7], key=repr)
    origin = next(row["_origin"] for row in found if row["at_utc"] is not None)
    assert origin.startswith("orders: at_utc ")


@pytest.mark.parametrize("column", ["amount", "day", "at", "at_utc"])
def test_mariadb_is_read_as_well(spark: SparkSession, mariadb: Source, column: str) -> None:
    rows = [row for n in range(ROWS) if 0 <= (row := a_row(n))[0] < 50_000]  # a TIMESTAMP ends in 2038
    mariadb.insert([(*row[:5], row[5].replace(tzinfo=None), row[6]) for row in rows])
    coordinator = mariadb.coordinator()
    found = mariadb.rows(mariadb.land(spark, coordinator, mariadb.supply(coordinator, column, rows_per_partition=20)))
    assert sorted((row["id"], row["at"], row["amount"]) for row in found) == sorted(
        (row[0], row[4], row[1]) for row in rows
    )
    assert {row["at_utc"] for row in found} == {row[5] for row in rows}


def test_an_interval_is_exact_at_both_ends(spark: SparkSession, postgresql: Source) -> None:
    day = datetime(2026, 1, 31, tzinfo=UTC)
    instants = [day + timedelta(microseconds=n) for n in (-1, 0, 1)]
    instants += [day + timedelta(days=1, microseconds=n) for n in (-1, 0, 1)]
    postgresql.insert([(n, None, None, None, at.replace(tzinfo=None), at, None) for n, at in enumerate(instants)])
    bounds = {"start": "2026-01-31T00:00:00Z", "end": "2026-02-01T01:00:00+01:00"}
    for column in ("at", "at_utc"):
        coordinator = postgresql.coordinator()
        keys = postgresql.supply(coordinator, column, **bounds)
        assert sorted(row["id"] for row in postgresql.rows(postgresql.land(spark, coordinator, keys))) == [1, 2, 3]


def test_a_run_takes_what_is_new_and_old_enough(spark: SparkSession, postgresql: Source) -> None:
    def insert(*minutes: int) -> None:
        postgresql.insert([(m, None, None, NOON.date(), None, NOON + timedelta(minutes=m), None) for m in minutes])

    coordinator = postgresql.coordinator()
    lag = {"incremental": True, "lag_seconds": 600.0}
    insert(-60, -30, -5, 5)
    first = postgresql.supply(coordinator, "at_utc", **lag)
    assert first == ["at_utc (-inf, 2026-01-31T11:30:00+00:00]"]
    assert postgresql.supply(coordinator, "at_utc", **lag) == []
    insert(-40, -20)  # the first came too late for this lag
    second = postgresql.supply(coordinator, "at_utc", **lag)
    found = postgresql.rows(postgresql.land(spark, coordinator, second))
    assert [row["id"] for row in found] == [-20]
    assert postgresql.supply(postgresql.coordinator(), "day", incremental=True) == [], "this day is not over"


def test_a_query_may_have_what_drivers_take_for_parameters(spark: SparkSession, postgresql: Source) -> None:
    postgresql.insert([a_row(n) for n in range(20)])
    query = "SELECT id AS \"Key %s\", note FROM orders WHERE note LIKE '%5' AND ':a' <> '?' -- the end"
    source = Source(replace(postgresql.settings, table=None, query=query), postgresql.engine, postgresql.root)
    coordinator = source.coordinator()
    keys = source.supply(coordinator, "Key %s")
    assert source.rows(source.land(spark, coordinator, keys)) == []  # every fifth note is null
    source.settings = replace(source.settings, query=query.replace("%5'", "%6'"))
    found = source.rows(source.land(spark, coordinator, keys))
    assert [row["note"] for row in found] == ["note 6", "note 16"]


# What cannot be


@pytest.mark.parametrize(
    ("settings", "column", "said"),
    [
        (
            {"table": "missing"},
            "id",
            "missing cannot be read: the database rejects the statement or the login: "
            'relation "missing" does not exist',
        ),
        ({}, "ID", "there is no column 'ID'; did you mean 'id'"),
        ({}, "note", "column 'note' is of the database's type 25; ranges need a column"),
        ({"table": None, "query": "SELECT 1 AS a, 2 AS a"}, "a", "query: column 'a' appears twice"),
        (
            {"session": "SET nothing = 1"},
            "id",
            "the database rejects the statement or the login: unrecognized configuration parameter",
        ),
    ],
)
def test_what_cannot_be_cut_is_refused_though_the_table_is_empty(
    postgresql: Source, settings: dict[str, Any], column: str, said: str
) -> None:
    source = Source(replace(postgresql.settings, **settings), postgresql.engine, postgresql.root)
    with pytest.raises(ConfigurationError, match=said):
        source.supply(source.coordinator(), column)


def test_a_server_that_is_away_is_a_reason_to_try_again(spark: SparkSession, postgresql: Source) -> None:
    away = replace(postgresql.settings, url="jdbc:postgresql://127.0.0.1:1/db")
    engine = sa.create_engine("postgresql+psycopg://me@127.0.0.1:1/db", poolclass=NullPool)
    with pytest.raises(SourceUnavailableError, match="the database is unavailable"):
        Source(away, engine, postgresql.root).supply(postgresql.coordinator(), "id")
    coordinator = postgresql.coordinator()
    keys = postgresql.supply(coordinator, "id")
    [landed] = Source(away, engine, postgresql.root).land(spark, coordinator, keys)
    assert landed.is_temporary and "Connection to 127.0.0.1:1 refused" in str(landed.error)
    assert "127.0.0.1:1/db" not in str(landed.error), "the URL may hold anything"
    gone = replace(postgresql.settings, table="gone")
    [landed] = Source(gone, engine, postgresql.root).land(spark, coordinator, keys)
    assert not landed.is_temporary and 'relation "gone" does not exist' in str(landed.error)


def test_a_driver_that_is_not_there_is_missed_before_anything_is_read(
    spark: SparkSession, jdbc_drivers: list[Path]
) -> None:
    RangeReader(JdbcSettings(url="jdbc:postgresql://db/shop", table="orders")).check(spark)
    with pytest.raises(
        ConfigurationError, match=r"packages='com.mysql:mysql-connector-j:<version>', or the driver's jar"
    ):
        RangeReader(JdbcSettings(url="jdbc:mysql://db/shop", table="orders")).check(spark)


def test_the_password_is_no_part_of_what_spark_shows(spark: SparkSession, postgresql: Source) -> None:
    postgresql.insert([a_row(1)])
    frame = RangeReader(postgresql.settings).frame(spark, [{"column": "id"}])
    assert frame.count() == 1
    execution = frame._jdf.queryExecution()
    mode = spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")  # type: ignore[union-attr]
    shown = [execution.toString(), execution.explainString(mode), str(spark.sparkContext.getConf().getAll())]
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    for number in range(executions.size()):
        page = executions.apply(number)
        shown += [page.physicalPlanDescription(), page.details(), page.modifiedConfigs().toString()]
    assert any("JDBCRelation(orders)" in text for text in shown)
    assert not [text for text in shown if PASSWORD in text]
