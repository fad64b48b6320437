"""The supplier creates each partition once on SQLite, also after interruptions."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.sources.items import PartitionProgress, SourceUnavailableError
from airflow_provider_coordination.sources.jdbc import supplier as module
from airflow_provider_coordination.sources.jdbc.ranges import Range
from airflow_provider_coordination.sources.jdbc.supplier import Query, QueryResult, RangeSupplier
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.jdbc_tables import jdbc_table

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Database:
    """A table `orders` with a number `id`, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = jdbc_table(f"jdbc:sqlite:{path}")
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.execute("PRAGMA journal_mode = MEMORY")
        self.connection.execute("CREATE TABLE orders (id INTEGER, amount REAL, day TEXT)")
        self.query = Query(sa.create_engine(f"sqlite:///{path}").raw_connection)
        self.coordinator = SourceCoordinator(InMemoryStore(), "orders", "owner")
        self.coordinator.initialize()

    def insert(self, *ids: int | None) -> None:
        self.connection.execute("BEGIN")
        self.connection.executemany("INSERT INTO orders VALUES (?, 0.5, '2026-01-01')", [(n,) for n in ids])
        self.connection.execute("COMMIT")

    def supplier(self, settings: Mapping[str, Any] | None = None, **ranges: Any) -> RangeSupplier:
        read = replace(self.settings, **(settings or {}), **ranges).resolved()
        return RangeSupplier(self.query, read, lambda: NOW)

    def supply(self, **ranges: Any) -> list[str]:
        """Run the supplier; return the keys of the partitions that it created."""
        return self.coordinator.supply(self.supplier(**ranges)) or []

    def ids_of(self, key: str) -> list[int | None]:
        """Return the rows of a partition, by its own predicate."""
        partition = self.coordinator.view.get(key)
        assert partition is not None
        [item] = PartitionProgress.from_mapping(partition.progress).items
        predicate = Range.from_item(item).predicate("sqlite")
        return [n for (n,) in self.connection.execute(f"SELECT id FROM orders WHERE {predicate} ORDER BY id")]

    def supplied(self) -> list[int | None]:
        """Return all rows of all partitions."""
        return sorted(
            (n for partition in self.coordinator.view.partitions() for n in self.ids_of(partition.partition_key)),
            key=lambda n: (n is not None, n),
        )


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "orders.db")
    yield made
    made.connection.close()


# Cutting


def test_table_is_cut_by_rows_despite_key_gaps(database: Database) -> None:
    database.insert(1, 2, 3, 1_000_000, 1_000_001, 1_000_002, 9_000_000_000)
    keys = database.supply(rows_per_partition=3)
    assert keys == ["id (-inf, 1000000)", "id [1000000, 9000000000)", "id [9000000000, inf)"]
    assert [len(database.ids_of(key)) for key in keys] == [3, 3, 1]


def test_partition_count_divides_the_rows(database: Database) -> None:
    database.insert(*range(100))
    assert [len(database.ids_of(key)) for key in database.supply(partitions=4)] == [25] * 4


def test_key_with_many_rows_is_its_own_logged_partition(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    database.insert(*range(10), *[7] * 30)
    with caplog.at_level(logging.WARNING):
        keys = database.supply(rows_per_partition=5)
    assert database.ids_of("id = 7") == [7] * 31
    assert "the key 7 has 31 rows" in caplog.text
    assert max(len(database.ids_of(key)) for key in keys if key != "id = 7") < 10


def test_null_rows_are_their_own_partition(database: Database) -> None:
    database.insert(1, None, 2, None)
    assert database.supply() == ["id is null", "id (-inf, inf)"]
    assert database.supplied() == [None, None, 1, 2]


@pytest.mark.parametrize("nulls", [None, "refuse"])
def test_null_rows_are_refused_within_an_interval(database: Database, nulls: str | None) -> None:
    database.insert(1, None)
    with pytest.raises(ConfigurationError, match="1 rows have NULL in the column"):
        database.supply(start="0", end="10", nulls=nulls)
    assert list(database.coordinator.view.partitions()) == []


def test_null_rows_may_be_skipped(database: Database) -> None:
    database.insert(1, None)
    database.supply(nulls="ignore")
    assert database.supplied() == [1]


def test_query_is_cut_like_a_table(database: Database) -> None:
    database.insert(*range(10))
    query = {"table": None, "query": "SELECT id * 2 AS twice FROM orders -- all of them"}
    keys = database.coordinator.supply(database.supplier(query, column="twice", rows_per_partition=5))
    assert keys == ["twice (-inf, 10)", "twice [10, inf)"]


def test_empty_table_is_one_partition_including_later_rows(database: Database) -> None:
    [key] = database.supply()
    database.insert(1)
    assert database.ids_of(key) == [1]


def test_second_run_adds_nothing(database: Database) -> None:
    database.insert(1, 2)
    assert len(database.supply()) == 1
    database.insert(3)
    assert database.supply() == []


def test_supplier_is_done_once_all_ranges_are_partitions(database: Database) -> None:
    database.insert(1, 2)
    state = database.coordinator.view.supplier_state
    assert not database.supplier().is_done(state())
    pages = database.supplier()({})
    planned = next(pages).state
    assert planned is not None and not database.supplier().is_done(planned), "its ranges are no partitions yet"
    database.supply()
    assert database.supplier().is_done(state())
    with pytest.raises(ConfigurationError, match="the source was made with 'column' 'id'"):
        database.supplier(column="amount").is_done(state())
    database.coordinator = SourceCoordinator(InMemoryStore(), "new", "owner")
    database.coordinator.initialize()
    database.supply(incremental=True)
    assert not database.supplier(incremental=True).is_done(database.coordinator.view.supplier_state())


# Intervals


def test_interval_includes_its_start_and_excludes_its_end(database: Database) -> None:
    database.insert(*range(20))
    database.supply(start="5", end="15", rows_per_partition=4)
    assert database.supplied() == list(range(5, 15))


def test_consecutive_intervals_neither_overlap_nor_skip(database: Database) -> None:
    database.insert(*range(20))
    found: list[int | None] = []
    for start, end in (("0", "7"), ("7", "13"), ("13", "20")):
        database.coordinator = SourceCoordinator(InMemoryStore(), "interval", "owner")
        database.coordinator.initialize()
        database.supply(start=start, end=end)
        found += database.supplied()
    assert found == list(range(20))


@pytest.mark.parametrize(("start", "end"), [("7", "5"), ("5", "5")])
def test_empty_interval_is_refused(database: Database, start: str, end: str) -> None:
    database.insert(1)
    with pytest.raises(ConfigurationError, match=f"'start' must be before 'end'; got '{start}' and '{end}'"):
        database.supply(start=start, end=end)


def test_bound_unfit_for_the_column_is_refused(database: Database) -> None:
    database.insert(1)
    with pytest.raises(ConfigurationError, match="field 'start' does not fit: the column is of the kind 'integer'"):
        database.supply(start="2026-01-01T00:00:00Z")


def test_source_made_for_another_interval_is_refused(database: Database) -> None:
    database.insert(1)
    database.supply(start="0", end="10")
    with pytest.raises(ConfigurationError, match=r"made with 'start' '0', 'end' '10', and is now given 'start' '10'"):
        database.supply(start="10", end="20")


# By a high-water column


def test_each_run_takes_rows_since_the_last(database: Database) -> None:
    database.insert(1, 2, 3)
    assert database.supply(incremental=True) == ["id (-inf, 3]"]
    assert database.supply(incremental=True) == []
    database.insert(4, 5)
    assert database.supply(incremental=True) == ["id (3, 5]"]
    assert database.supplied() == [1, 2, 3, 4, 5]


def test_first_run_starts_at_the_configured_start(database: Database) -> None:
    database.insert(1, 2, 3)
    database.supply(incremental=True, start="2")
    assert database.supplied() == [2, 3]


def test_rows_that_may_become_visible_wait_for_later_runs(database: Database) -> None:
    database.insert(1, 2, 9, 10)
    assert database.supply(incremental=True, lag=5) == ["id (-inf, 2]"]
    database.insert(5, 20)
    assert database.supply(incremental=True, lag=5) == ["id (2, 10]"]
    assert database.supplied() == [1, 2, 5, 9, 10]


CALENDAR = jdbc_table("jdbc:postgresql://host/shop", column="day")


class EmptyPostgres:
    """A PostgreSQL that says of what type a column is, and that no row is in any range."""

    def __init__(self, **columns: int) -> None:
        self.columns = list(columns.items())
        self.asked: list[str] = []

    def ask(self, sql: str, *, max_rows: int | None = None) -> QueryResult:
        self.asked.append(sql)
        return QueryResult(self.columns, [(None if "MAX" in sql else 0,)])


@pytest.mark.parametrize(
    ("type_code", "bound"),
    [
        (1082, """ AND "day" < DATE '2026-01-30'"""),
        (1114, """ AND "day" <= TIMESTAMP '2026-01-30 22:00:00'"""),
        (1184, """ AND "day" <= TIMESTAMP WITH TIME ZONE '2026-01-30 22:00:00+00:00'"""),
    ],
    ids=["days", "times", "instants"],
)
def test_days_are_taken_once_over_and_times_in_utc(type_code: int, bound: str) -> None:
    calendar = EmptyPostgres(day=type_code)
    there = datetime(2026, 1, 31, 1, tzinfo=timezone(timedelta(hours=2)))
    read = replace(CALENDAR, incremental=True, lag=timedelta(hours=1))
    assert list(RangeSupplier(calendar, read, lambda: there)({})) == []
    assert calendar.asked[-1].startswith('SELECT MAX("day") FROM orders WHERE "day" IS NOT NULL AND ')
    assert calendar.asked[-1].endswith(bound)


def test_columns_differing_only_in_case_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="orders: column 'Day' appears twice; give each column its own name"):
        list(RangeSupplier(EmptyPostgres(day=1082, Day=1082), CALENDAR)({}))


def test_empty_table_loses_no_later_rows(database: Database) -> None:
    assert database.supply(incremental=True) == []
    database.insert(1)
    assert database.supply(incremental=True) == ["id (-inf, 1]"]


def test_duration_is_no_lag_for_numeric_columns(database: Database) -> None:
    database.insert(1)
    with pytest.raises(ConfigurationError, match="field 'lag' must be a number for a column of the kind 'integer'"):
        database.supply(incremental=True, lag=timedelta(minutes=1))


# Cut off in between


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("at", range(5))
def test_interrupted_run_resumes_although_rows_changed(
    database: Database, monkeypatch: pytest.MonkeyPatch, at: int, is_written: bool, incremental: bool
) -> None:
    monkeypatch.setattr(module, "PAGE_RANGES", 2)
    database.insert(*range(0, 100, 2))
    ranges: dict[str, Any] = {"rows_per_partition": 8, "incremental": incremental}
    state: Mapping[str, Any] = {}
    for number, page in enumerate(database.supplier(**ranges)(state)):
        if number == at and not is_written:
            database.coordinator.create_partitions(page.partitions)
            break
        database.coordinator.create_partitions(page.partitions)
        state = page.state or {}
        if number == at:
            break
    database.insert(*range(1, 50, 2))  # other rows begin the portions now
    for page in database.supplier(**ranges)(state):
        database.coordinator.create_partitions(page.partitions)
        state = page.state or {}
    assert database.supplied() == sorted([*range(0, 100, 2), *range(1, 50, 2)])
    assert list(database.supplier(**ranges)(state)) == []


def test_page_state_stays_small_enough_to_store(database: Database) -> None:
    database.insert(*range(300))
    pages: list[Page] = list(database.supplier(rows_per_partition=1)({}))
    assert max(len(str(page.state)) for page in pages) < 40_000
    assert sum(len(page.partitions) for page in pages) == 300


# What cannot be


@pytest.mark.parametrize(
    ("settings", "ranges", "said"),
    [
        (
            {"table": "missing"},
            {},
            "missing cannot be read: the database rejects the statement or the login: no such table: missing",
        ),
        ({}, {"column": "ID"}, r"orders: there is no column 'ID'; did you mean 'id'\?"),
        ({}, {"column": "nothing"}, "there is no column 'nothing'; the columns are id, amount, day"),
        ({}, {"column": "day"}, "column 'day' is one with values such as '2026-01-01'; ranges need a column"),
        ({"table": None, "query": "SELECT 1 AS id, 2 AS _row"}, {}, "the name of column '_row' is reserved by"),
    ],
)
def test_unsplittable_column_is_refused_before_anything_is_created(
    database: Database, settings: dict[str, Any], ranges: dict[str, Any], said: str
) -> None:
    database.insert(1)
    with pytest.raises(ConfigurationError, match=said):
        database.coordinator.supply(database.supplier(settings, **ranges))
    assert list(database.coordinator.view.partitions()) == []


def test_too_many_ranges_are_refused(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_coordination.sources.jdbc.supplier.MAX_RANGES", 5)
    database.insert(*range(10))
    with pytest.raises(ConfigurationError, match="with 1 rows each there would be more than 5 ranges"):
        database.supply(rows_per_partition=1)


def test_fractional_column_is_supported(database: Database) -> None:
    database.insert(1, 2)
    assert database.supply(column="amount", rows_per_partition=5) == ["amount (-inf, inf)"]


def test_infinite_value_bounds_no_range_and_is_read(database: Database) -> None:
    database.connection.execute("INSERT INTO orders VALUES (1, 0.5, ''), (2, 1.5, ''), (3, 9e999, ''), (4, 9e999, '')")
    keys = database.supply(column="amount", rows_per_partition=1)
    assert keys == ["amount (-inf, 1.5)", "amount [1.5, inf)"]
    assert [database.ids_of(key) for key in keys] == [[1], [2, 3, 4]]


def test_incremental_read_refuses_an_infinite_maximum(database: Database) -> None:
    database.connection.execute("INSERT INTO orders VALUES (1, 0.5, ''), (2, 9e999, '')")
    with pytest.raises(ConfigurationError, match="'amount': its largest value is inf, which no value can follow"):
        database.supply(column="amount", incremental=True)


def test_key_lag_is_exact_for_many_digits() -> None:
    highest = Decimal(10**37)
    assert module._less(highest, 1000) == 10**37 - 1000
    assert module._less(7, 1.5) == 5


# Asking


class OperationalError(Exception):
    """What any driver calls a server that is away, or a statement that it refuses."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OperationalError("connection refused"), SourceUnavailableError),
        (OperationalError("FATAL: password authentication failed for user"), ConfigurationError),
        (OperationalError(1054, "Unknown column 'x'"), ConfigurationError),
    ],
)
def test_unavailable_server_is_distinguished_from_a_refusal(error: Exception, kind: type[Exception]) -> None:
    def connect() -> Any:
        raise error

    with pytest.raises(kind, match="the database"):
        Query(connect).ask("SELECT 1")


def test_result_has_names_and_limited_rows(database: Database) -> None:
    database.insert(1, 2, 3)
    assert database.query.ask("SELECT id FROM orders WHERE id % 5 < 4", max_rows=2) == QueryResult(
        [("id", None)], [(1,), (2,)]
    )
