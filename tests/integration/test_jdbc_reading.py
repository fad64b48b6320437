"""A supplier finds ranges of real databases, and Spark reads them over JDBC."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession
from sqlalchemy.pool import NullPool

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import ItemUnreadableError, PartitionProgress, SourceUnavailableError
from airflow_provider_coordination.sources.jdbc.kind import JdbcTable
from airflow_provider_coordination.sources.jdbc.ranges import Range
from airflow_provider_coordination.sources.jdbc.reader import RangeReader, columns_of, type_of
from airflow_provider_coordination.sources.jdbc.supplier import Query, RangeSupplier
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark.frame_landing import arriving_columns, converted, land_frames, landed_columns
from airflow_provider_coordination.spark.item_file import ItemPlan
from airflow_provider_coordination.spark.item_landing import LandedItems
from airflow_provider_coordination.spark.item_reading import ItemSource
from airflow_provider_coordination.spark.slots import LandingOptions
from airflow_provider_coordination.spark.spark_versions import arrow_table
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.jdbc_tables import jdbc_table
from tests.support.jdbc_types import (
    MARIADB_TYPES,
    POSTGRESQL_TYPES,
    PREPARED_IN_MARIADB,
    PREPARED_IN_POSTGRESQL,
    TypeCase,
)
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

    def __init__(self, settings: JdbcTable, engine: sa.Engine, root: Path) -> None:
        self.settings = settings
        self.engine = engine
        self.query = Query(engine.raw_connection, settings.session_statement)
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
        read = replace(self.settings, **{"column": column, "rows_per_partition": 60, **ranges}).resolved()
        return coordinator.supply(RangeSupplier(self.query, read, lambda: NOON)) or []

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
        options = LandingOptions(root=str(self.root), seconds=60, max_bytes=2**20, slot_memory_bytes=2**25)
        return land_frames(spark, plans, RangeReader(self.settings), options)

    def rows(self, landed: Sequence[LandedItems]) -> list[dict[str, Any]]:
        assert [row.error for row in landed] == [None] * len(landed)
        return [row for each in landed if each.file for row in pq.read_table(each.file).to_pylist()]


@pytest.fixture
def postgresql(postgres_url: str, postgres_port: int, jdbc_drivers: list[Path], tmp_path: Path) -> Source:
    name = sa.make_url(postgres_url).database
    engine = sa.create_engine(postgres_url, poolclass=NullPool)
    settings = jdbc_table(f"jdbc:postgresql://127.0.0.1:{postgres_port}/{name}", user="postgres", password=PASSWORD)
    source = Source(settings, engine, tmp_path)
    source.execute(TABLE.format(instant="TIMESTAMP(6) WITH TIME ZONE"))
    return source


@pytest.fixture
def mariadb(mariadb_server: MariaDb, mariadb_url: str, jdbc_drivers: list[Path], tmp_path: Path) -> Source:
    url = sa.make_url(mariadb_url)
    engine = sa.create_engine(url.set(drivername="mysql+pymysql"), poolclass=NullPool)
    settings = jdbc_table(
        f"jdbc:mysql://127.0.0.1:{url.port}/{url.database}?permitMysqlScheme",
        user=url.username,
        driver="org.mariadb.jdbc.Driver",
    )
    source = Source(settings, engine, tmp_path)
    table = TABLE.replace("at TIMESTAMP", "at DATETIME").replace("id BIGINT", "id BIGINT UNSIGNED")
    source.execute(table.format(instant="TIMESTAMP(6) NULL"))
    return source


def test_each_row_is_read_once_with_any_partition_column(spark: SparkSession, postgresql: Source) -> None:
    rows = [a_row(n) for n in range(ROWS)]
    postgresql.insert([*rows, (None,) * 7])
    found: list[dict[str, Any]] = []
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
def test_mariadb_is_read(spark: SparkSession, mariadb: Source, column: str) -> None:
    rows = [row for n in range(ROWS) if 0 <= (row := a_row(n))[0] < 50_000]  # a TIMESTAMP ends in 2038
    mariadb.insert([(*row[:5], row[5].replace(tzinfo=None), row[6]) for row in rows])
    coordinator = mariadb.coordinator()
    found = mariadb.rows(mariadb.land(spark, coordinator, mariadb.supply(coordinator, column, rows_per_partition=20)))
    assert sorted((row["id"], row["at"], row["amount"]) for row in found) == sorted(
        (row[0], row[4], row[1]) for row in rows
    )
    assert {row["at_utc"] for row in found} == {row[5] for row in rows}


def test_columns_are_known_before_any_row_is_read(spark: SparkSession, postgresql: Source) -> None:
    known = landed_columns(RangeReader(postgresql.settings).columns(spark))
    types = [(field.name, field.dataType.simpleString()) for field in known]
    assert types == [
        ("id", "bigint"), ("amount", "decimal(20,4)"), ("price", "double"), ("day", "date"), ("at", "timestamp_ntz"),
        ("at_utc", "timestamp"), ("note", "string"), ("_origin", "string"), ("_row", "bigint"), ("_batch_id", "string"),
    ]  # fmt: skip


def test_interval_is_exact_at_both_ends(spark: SparkSession, postgresql: Source) -> None:
    day = datetime(2026, 1, 31, tzinfo=UTC)
    instants = [day + timedelta(microseconds=n) for n in (-1, 0, 1)]
    instants += [day + timedelta(days=1, microseconds=n) for n in (-1, 0, 1)]
    postgresql.insert([(n, None, None, None, at.replace(tzinfo=None), at, None) for n, at in enumerate(instants)])
    bounds = {"start": "2026-01-31T00:00:00Z", "end": "2026-02-01T01:00:00+01:00"}
    for column in ("at", "at_utc"):
        coordinator = postgresql.coordinator()
        keys = postgresql.supply(coordinator, column, **bounds)
        assert sorted(row["id"] for row in postgresql.rows(postgresql.land(spark, coordinator, keys))) == [1, 2, 3]


def test_run_reads_rows_that_are_new_and_old_enough(spark: SparkSession, postgresql: Source) -> None:
    def insert(*minutes: int) -> None:
        postgresql.insert([(m, None, None, NOON.date(), None, NOON + timedelta(minutes=m), None) for m in minutes])

    coordinator = postgresql.coordinator()
    lag = {"incremental": True, "lag": timedelta(minutes=10)}
    insert(-60, -30, -5, 5)
    first = postgresql.supply(coordinator, "at_utc", **lag)
    assert first == ["at_utc (-inf, 2026-01-31T11:30:00+00:00]"]
    assert postgresql.supply(coordinator, "at_utc", **lag) == []
    insert(-40, -20)  # the first came too late for this lag
    second = postgresql.supply(coordinator, "at_utc", **lag)
    found = postgresql.rows(postgresql.land(spark, coordinator, second))
    assert [row["id"] for row in found] == [-20]
    assert postgresql.supply(postgresql.coordinator(), "day", incremental=True) == [], "this day is not over"


def test_query_may_contain_placeholder_characters(spark: SparkSession, postgresql: Source) -> None:
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
def test_unsplittable_column_is_refused_despite_an_empty_table(
    postgresql: Source, settings: dict[str, Any], column: str, said: str
) -> None:
    source = Source(replace(postgresql.settings, **settings), postgresql.engine, postgresql.root)
    with pytest.raises(ConfigurationError, match=said):
        source.supply(source.coordinator(), column)


def test_unreachable_server_is_a_temporary_error(spark: SparkSession, postgresql: Source) -> None:
    away = replace(
        postgresql.settings, database=replace(postgresql.settings.database, url="jdbc:postgresql://127.0.0.1:1/db")
    )
    engine = sa.create_engine("postgresql+psycopg://me@127.0.0.1:1/db", poolclass=NullPool)
    with pytest.raises(SourceUnavailableError, match="the database is unavailable"):
        Source(away, engine, postgresql.root).supply(postgresql.coordinator(), "id")
    coordinator = postgresql.coordinator()
    keys = postgresql.supply(coordinator, "id")
    [landed] = Source(away, engine, postgresql.root).land(spark, coordinator, keys)
    assert landed.is_temporary and "Connection to 127.0.0.1:1 refused" in str(landed.error)
    assert "127.0.0.1:1/db" not in str(landed.error), "the URL may hold anything"
    source = ItemSource(ReadsSettings(kind="jdbc", settings=away.to_mapping()))
    assert source.columns(SimpleNamespace(session=spark)) is None, "reading reports it"  # type: ignore[arg-type]
    gone = replace(postgresql.settings, table="gone")
    [landed] = Source(gone, engine, postgresql.root).land(spark, coordinator, keys)
    assert not landed.is_temporary and 'relation "gone" does not exist' in str(landed.error)


def test_missing_driver_is_found_before_reading(spark: SparkSession, jdbc_drivers: list[Path]) -> None:
    RangeReader(jdbc_table("jdbc:postgresql://db/shop")).check(spark)
    with pytest.raises(
        ConfigurationError, match=r"packages='com.mysql:mysql-connector-j:<version>', or the driver's jar"
    ):
        RangeReader(jdbc_table("jdbc:mysql://db/shop")).check(spark)


def test_password_is_hidden_in_the_spark_ui(spark: SparkSession, postgresql: Source) -> None:
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
    assert any("JDBCRelation(" in text and "FROM orders" in text for text in shown)
    assert not [text for text in shown if PASSWORD in text]


# Values without a place in Python, or among the others


def exactly_once(source: Source, coordinator: SourceCoordinator, keys: Sequence[str]) -> list[Any]:
    """Return the ids of the rows in all ranges, in order; each row must be in one."""
    ids = []
    for key in keys:
        partition = coordinator.view.get(key)
        assert partition is not None
        [item] = PartitionProgress.from_mapping(partition.progress).items
        predicate = Range.from_item(item).predicate(source.settings.dialect)
        ids += [int(row[0]) for row in source.query.ask(f"SELECT id FROM orders WHERE {predicate}").rows]
    return sorted(ids)


DAYS = ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "9999-12-31", "2024-02-28", "2025-01-01"]
SPECIAL = {
    "amount": ["NaN", "-1", "1", "9", "0"],
    "price": ["NaN", "Infinity", "-Infinity", "1e300", "0"],
    "day": [*DAYS, "2024-02-29"],
    "at": [*DAYS, "0001-01-01", "2024-02-29 12:00:00.000001"],
    "at_utc": [*DAYS, "0001-01-01", "2024-02-29 12:00:00.000001"],
}
"""Special values of each column; the last value is in the middle."""


def test_special_values_fail_only_their_own_range(spark: SparkSession, postgresql: Source) -> None:
    coordinator, keys = postgresql.coordinator(), list[str]()
    for column, values in SPECIAL.items():
        postgresql.execute("TRUNCATE orders")
        postgresql.execute(f"INSERT INTO orders (id, {column}) VALUES (%s, %s)", list(enumerate(values)))
        coordinator = postgresql.coordinator()
        keys = postgresql.supply(coordinator, column, rows_per_partition=1)
        assert exactly_once(postgresql, coordinator, keys) == list(range(len(values)))
    first, middle, last = postgresql.land(spark, coordinator, keys)
    assert [row["at_utc"] for row in postgresql.rows([middle])] == [datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)]
    for refused in (first, last):
        assert "column 'at_utc': " in str(refused.error) and "; read it as text by" in str(refused.error)
    query = "SELECT id, CAST(at_utc AS text) AS at_utc FROM orders"
    as_text = Source(replace(postgresql.settings, table=None, query=query), postgresql.engine, postgresql.root)
    keys = as_text.supply(coordinator := as_text.coordinator(), "id")
    found = {row["at_utc"] for row in as_text.rows(as_text.land(spark, coordinator, keys))}
    assert {"infinity", "-infinity"} < found and len(found) == len(SPECIAL["at_utc"])


@pytest.mark.parametrize("column", ["day", "at", "at_utc"])
def test_time_beyond_every_mark_is_refused_at_once(postgresql: Source, column: str) -> None:
    for value in ("-infinity", "0044-03-15 BC", "2024-02-29", "infinity", "10000-01-01"):
        postgresql.execute(f"INSERT INTO orders (id, {column}) VALUES (1, '{value}')")
    with pytest.raises(ConfigurationError, match="2 rows have infinity or a year above 9999 in the column"):
        postgresql.supply(postgresql.coordinator(), column, incremental=True)
    postgresql.execute(f"DELETE FROM orders WHERE {column} > '9999-01-01'")
    coordinator = postgresql.coordinator()
    assert exactly_once(postgresql, coordinator, postgresql.supply(coordinator, column, incremental=True)) == [1, 1, 1]


@pytest.mark.parametrize("kind", ["DATE", "DATETIME(6)", "TIMESTAMP(6)"])
@pytest.mark.parametrize("null", ["NULL", "NOT NULL DEFAULT '2024-01-01'"])
def test_zero_dates_are_in_one_range(spark: SparkSession, mariadb: Source, kind: str, null: str) -> None:
    values = ["0000-00-00", "2024-02-29", "2024-03-01", "2025-01-01"]
    values += ["2024-00-00", "2024-03-00"] if kind != "TIMESTAMP(6)" else []
    mariadb.execute(f"ALTER TABLE orders MODIFY day {kind} {null}")
    rows = ", ".join(f"({n}, '{value}')" for n, value in enumerate(values))
    with mariadb.engine.begin() as connection:
        cursor = connection.connection.cursor()
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        cursor.execute(f"INSERT INTO orders (id, day) VALUES {rows}")
    coordinator, keys = mariadb.coordinator(), list[str]()
    for ranges in ({}, {"rows_per_partition": 1}, {"incremental": True}):
        coordinator = mariadb.coordinator()
        keys = mariadb.supply(coordinator, "day", **ranges)
        assert exactly_once(mariadb, coordinator, keys) == list(range(len(values)))
    [landed] = mariadb.land(spark, coordinator, keys)
    assert "column 'day': 0000-00-00" in str(landed.error)


def test_instant_in_a_session_of_unknown_zone_is_refused(spark: SparkSession, mariadb: Source) -> None:
    mariadb.execute("INSERT INTO orders (id, at_utc) VALUES (1, '2024-01-31 12:00:00')")
    coordinator = mariadb.coordinator()
    keys = mariadb.supply(coordinator, "id")
    for session, instant in (("SET time_zone = '+02:00'", NOON.replace(year=2024)), ("SET time_zone = 'SYSTEM'", None)):
        mariadb.settings = replace(mariadb.settings, session=session)
        [landed] = mariadb.land(spark, coordinator, keys)
        if instant:
            assert [row["at_utc"] for row in mariadb.rows([landed])] == [instant]
        else:
            assert "12:00:00.000000SYSTEM is string" in str(landed.error)
            assert "let 'session' set time_zone to an offset such as '+00:00'" in str(landed.error)


# Every type


@pytest.fixture
def berlin_time_zone(spark: SparkSession) -> Iterator[None]:
    """Gives the JVM, and so the drivers, a zone that skips and repeats hours."""
    zones = spark._jvm.java.util.TimeZone  # type: ignore[union-attr]
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone("Europe/Berlin"))
    yield
    zones.setDefault(before)


def fill(source: Source, prepared: str, cases: Sequence[TypeCase]) -> None:
    """Make the table: first the rows with every type's values, then one row for each refused value."""
    columns = ", ".join(f"c{n} {case.ddl}" for n, case in enumerate(cases))
    rows = [*itertools.zip_longest(*([literal for literal, _ in case.values] for case in cases)), (None,) * len(cases)]
    for n, case in enumerate(cases):
        rows += [(*[None] * n, literal, *[None] * (len(cases) - n - 1)) for literal, _ in case.refused]
    values = ", ".join(
        f"({', '.join([str(n), *('NULL' if each is None else each for each in row)])})" for n, row in enumerate(rows)
    )
    with source.engine.begin() as connection:
        cursor = connection.connection.cursor()
        cursor.execute("DROP TABLE orders")
        cursor.execute(prepared)
        cursor.execute(f"CREATE TABLE orders (id int, {columns})")
        cursor.execute(f"INSERT INTO orders VALUES {values}")


def comparable(value: Any) -> Any:
    """Return floats as text, where NaN equals NaN and zero has a sign."""
    if isinstance(value, list):
        return [comparable(each) for each in value]
    return repr(value) if isinstance(value, float) else value


def check(spark: SparkSession, source: Source, cases: Sequence[TypeCase]) -> None:
    rows = max(len(case.values) for case in cases) + 1
    coordinator = source.coordinator()
    good, bad = source.land(spark, coordinator, source.supply(coordinator, "id", start="0", end=str(rows))), []
    [file] = [landed.file for landed in good]
    assert [landed.error for landed in good] == [None]
    table = pq.read_table(file).sort_by("id")
    for n, case in enumerate(cases):
        expected = [*(value for _, value in case.values), *[None] * (rows - len(case.values))]
        column = table[f"c{n}"]
        assert (case.ddl, column.type) == (case.ddl, case.arrives)
        assert (case.ddl, comparable(column.to_pylist())) == (case.ddl, comparable(expected))
    landed = dict(spark.read.parquet(file).dtypes)
    for n, (case, column) in enumerate(zip(cases, columns_of(spark, source.settings)[1:], strict=True)):
        documented = type_of(source.settings.dialect, column)
        assert documented is not None, case.ddl
        arrives = "smallint" if case.ddl == "TINYINT(1) UNSIGNED" else documented.arrives.replace("p,s)", "")
        assert (case.ddl, landed[f"c{n}"][: len(arrives)]) == (case.ddl, arrives)
    frame = RangeReader(source.settings).frame(spark, [{"column": "id", "kind": "integer", "lower": str(rows)}])
    refused = [(f"c{n}", value) for n, case in enumerate(cases) for _, value in case.refused]
    table, arriving = arrow_table(frame).sort_by("id"), arriving_columns(frame.schema)
    assert table.num_rows == len(refused)
    for n, (name, value) in enumerate(refused):
        with pytest.raises(ItemUnreadableError) as raised:
            converted(table.slice(n, 1), arriving)
        bad.append(str(raised.value))
        assert bad[-1].startswith(f"column {name!r}: {value}"), bad[-1]
    assert all("; read it as text by a 'query' with CAST(" in message for message in bad)


def test_postgresql_values_arrive_or_are_refused(
    spark: SparkSession, postgresql: Source, berlin_time_zone: None
) -> None:
    fill(postgresql, PREPARED_IN_POSTGRESQL, POSTGRESQL_TYPES)
    check(spark, postgresql, POSTGRESQL_TYPES)


def test_mariadb_values_arrive_or_are_refused(spark: SparkSession, mariadb: Source, berlin_time_zone: None) -> None:
    fill(mariadb, PREPARED_IN_MARIADB, MARIADB_TYPES)
    check(spark, mariadb, MARIADB_TYPES)
