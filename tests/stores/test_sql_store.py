"""The SQL store: its schema and migrations, outages, query plans, and differences between databases."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from operator import gt
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_coordination.coordination.browsing import Filter, PageRequest, SortOrder, position_of
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionUpdateError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    format_instant,
)
from airflow_provider_coordination.stores.sql import SqlStore
from airflow_provider_coordination.stores.sql_database import Database, too_old
from airflow_provider_coordination.stores.sql_schema import STEPS, partition_table
from tests.support.mariadb import MariaDb, MariaDbError
from tests.support.partitions import NOW, SOURCE, a_partition, acquisition, keys
from tests.support.servers import available, postgres_database
from tests.support.waiting import PATIENCE_SECONDS

TABLE = "leases"
SERVERS = [
    pytest.param("postgresql", marks=pytest.mark.integration),
    pytest.param("mariadb", marks=pytest.mark.integration),
]
NOBODY = 65534


def url_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/coordination.db"
    return str(request.getfixturevalue({"postgresql": "postgres_url", "mariadb": "mariadb_url"}[kind]))


@pytest.fixture(params=["sqlite", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind in turn."""
    return url_of(request.param, request, tmp_path)


@pytest.fixture(params=SERVERS)
def server_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database on each server in turn."""
    return url_of(request.param, request, tmp_path)


@contextlib.contextmanager
def beside(url: str) -> Iterator[sa.Engine]:
    """Connections as the store opens them, beside the store's own."""
    engine = Database(url, retry_deadline_seconds=1).engine
    yield engine
    engine.dispose()


@contextlib.contextmanager
def listening(event: str, listener: Callable[..., None]) -> Iterator[None]:
    """Call a function at each such event of any engine."""
    sa.event.listen(sa.Engine, event, listener)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, event, listener)


@contextlib.contextmanager
def explained(*words: str) -> Iterator[list[str]]:
    """Collect PostgreSQL's plan of each statement that contains one of the words."""
    plans: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, values: Any, *rest: Any) -> None:
        if any(word in statement for word in words):
            cursor.execute(f"EXPLAIN {statement}", values)
            plans.append("\n".join(row[0] for row in cursor))

    with listening("before_cursor_execute", explain):
        yield plans


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    """Connections of our own beside the store's."""
    with beside(url) as engine:
        yield engine


@contextlib.contextmanager
def opened(url: str, **options: Any) -> Iterator[SqlStore]:
    store = SqlStore(url, table=TABLE, **options)
    try:
        store.initialize()
        yield store
    finally:
        store.close()


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    with opened(url) as store:
        yield store


def execute(engine: sa.Engine, *statements: str) -> list[sa.Row[Any]]:
    """Run statements in one transaction; return the rows of the last one."""
    with engine.begin() as connection:
        results = [connection.exec_driver_sql(statement) for statement in statements]
        return list(results[-1].all()) if results[-1].returns_rows else []


# The schema


def test_table_has_its_columns_key_and_index(store: SqlStore, engine: sa.Engine) -> None:
    ours = partition_table(TABLE)
    inspector = sa.inspect(engine)
    columns = {column["name"]: column for column in inspector.get_columns(TABLE)}
    assert list(columns) == list(dict.fromkeys([*columns, *ours.columns.keys()]))
    for column in ours.columns:
        expected = column.type.compile(dialect=engine.dialect).replace('"', "")
        actual = columns[column.name]["type"].compile(dialect=engine.dialect).replace('"', "")
        assert actual.removesuffix(" COLLATE utf8mb4_bin").replace("BIGINT(20)", "BIGINT") == expected, column.name
        assert columns[column.name]["nullable"] == column.nullable, column.name
    assert inspector.get_pk_constraint(TABLE)["constrained_columns"] == ["source_identifier", "partition_key"]
    [index] = inspector.get_indexes(TABLE)
    assert index["column_names"] == ["source_identifier", "status", "priority", "partition_key"]
    assert execute(engine, f"SELECT version FROM {TABLE}_schema") == [(len(STEPS),)]


@pytest.mark.parametrize(
    "cut_off_after",
    [
        [],
        [f"DELETE FROM {TABLE}_schema"],
        [f"DROP TABLE {TABLE}_schema", f"DROP INDEX ix_{TABLE}_order"],
        [f"DROP TABLE {TABLE}"],
    ],
    ids=["everything", "a table without its number", "a table without its index", "nothing at all"],
)
def test_interrupted_creation_is_resumed(engine: sa.Engine, url: str, cut_off_after: list[str]) -> None:
    with opened(url):
        pass
    for statement in cut_off_after:
        on = f" ON {TABLE}" if engine.dialect.name == "mysql" and "INDEX" in statement else ""
        execute(engine, statement + on)
    with opened(url) as store:
        store.create([a_partition("a")])
        store.transact(update=[store.acquire(acquisition())[0].failed("it failed")])
    test_table_has_its_columns_key_and_index(store, engine)


def test_database_newer_than_the_package_is_refused(store: SqlStore, engine: sa.Engine, url: str) -> None:
    execute(engine, f"UPDATE {TABLE}_schema SET version = 99")
    with pytest.raises(ConfigurationError, match=r"is at schema version 99, which is newer than .*; upgrade"):
        store.initialize()


@pytest.mark.parametrize(
    "columns",
    [
        "id INTEGER PRIMARY KEY, name VARCHAR(10)",
        ", ".join(f"{column.name} VARCHAR(99)" for column in partition_table(TABLE).columns),
    ],
    ids=["other columns", "no primary key"],
)
def test_foreign_table_is_refused_and_left_alone(engine: sa.Engine, url: str, columns: str) -> None:
    execute(engine, f"CREATE TABLE {TABLE} ({columns})")
    before = sa.inspect(engine).get_columns(TABLE)
    first, second = columns.split(" ")[0], columns.split(", ")[1].split(" ")[0]
    with pytest.raises(ConfigurationError, match=rf"table 'leases' is not one of ours: .*{first}, {second}") as error:
        SqlStore(url, table=TABLE).initialize()
    assert "give another 'table'" in str(error.value)
    assert [c["name"] for c in sa.inspect(engine).get_columns(TABLE)] == [c["name"] for c in before]
    assert sa.inspect(engine).get_table_names() == [TABLE]


def test_tables_of_one_database_are_separate(url: str) -> None:
    with opened(url) as one:
        other = SqlStore(url, table="MixedCase")
        other.initialize()
        one.create([a_partition("a")])
        assert other.get(SOURCE, "a") is None
        assert other.create([a_partition("a")]) == ["a"]
        other.close()


def test_table_name_that_would_be_truncated_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="give up to 54 letters, digits and '_'"):
        SqlStore("sqlite:////x.db", table="x" * 55)


RIGHTS = {
    "postgresql": [
        "CREATE ROLE {role} LOGIN",
        "GRANT USAGE ON SCHEMA public TO {role}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
    ],
    "mysql": [
        "CREATE USER {role}@'127.0.0.1'",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.* TO {role}@'127.0.0.1'",
    ],
}


@pytest.mark.parametrize("ready", [True, False], ids=["made ready", "empty"])
def test_role_without_create_rights_needs_existing_tables(server_url: str, ready: bool) -> None:
    admin = Database(server_url, retry_deadline_seconds=1)
    role = f"worker_{os.urandom(4).hex()}"
    if ready:
        with opened(server_url):
            pass
    for statement in RIGHTS[admin.dialect_name]:
        execute(admin.engine, statement.format(role=role, database=admin.engine.url.database))
    as_role = admin.engine.url.set(username=role).render_as_string(hide_password=False)
    store = SqlStore(as_role.replace("mysql+", "mariadb+"), table=TABLE)
    try:
        if ready:
            store.initialize()
            store.create([a_partition("a")])
            [mine] = store.acquire(acquisition())
            store.delete(mine)
        else:
            with pytest.raises(ConfigurationError, match=r"denied .*; let this role create and alter tables, or"):
                store.initialize()
    finally:
        store.close()
        if admin.dialect_name == "mysql":
            execute(admin.engine, f"DROP USER {role}@'127.0.0.1'")
        else:
            execute(admin.engine, f"DROP OWNED BY {role}", f"DROP ROLE {role}")
        admin.close()


# Outages


@pytest.fixture(scope="module")
def own_mariadb() -> Iterator[MariaDb]:
    """A MariaDB server that no other file uses: a test may restart it."""
    with available(MariaDb, MariaDbError, "MariaDB", shared=False) as server:
        yield server


def kill_connections(url: str) -> None:
    """End every connection to the database but the one that says so."""
    database = Database(url, retry_deadline_seconds=1)
    with database.engine.connect() as connection:
        if database.dialect_name == "postgresql":
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        else:
            others = "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()"
            for number in connection.exec_driver_sql(others).scalars().all():
                with contextlib.suppress(sa.exc.OperationalError):  # it ended by itself
                    connection.exec_driver_sql(f"KILL {number}")
    database.close()


class Worker(threading.Thread):
    """Acquires partitions, checkpoints each a few times and completes it, until none are left."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(name=name)
        self._url = url
        self.completed: list[str] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with opened(self._url) as store:
                coordinator = SourceCoordinator(store, "clicks", self.name, prefix="test")
                coordinator.initialize()
                while taken := coordinator.leases.acquire(3):
                    for partition in taken:
                        for step in range(3):
                            coordinator.leases.save_progress(partition.partition_key, {"step": step})
                        coordinator.leases.complete(partition.partition_key, {"by": self.name})
                        self.completed.append(partition.partition_key)
        except BaseException as error:
            self.error = error


def outlast(url: str, disturb: Callable[[], None], *, times: int, every_seconds: float) -> None:
    """Let workers work while they are disturbed; nothing may be lost or done twice."""
    with opened(url) as store:
        store.create([a_partition(f"p{n:03}") for n in range(150)])
    workers = [Worker(url, f"worker-{n}") for n in range(3)]
    for worker in workers:
        worker.start()
    for _ in range(times):
        workers[0].join(every_seconds)
        disturb()
    for worker in workers:
        worker.join(PATIENCE_SECONDS)
    assert [worker.error for worker in workers] == [None] * 3
    completed = [key for worker in workers for key in worker.completed]
    assert sorted(completed) == [f"p{n:03}" for n in range(150)]
    with opened(url) as store:
        stored = store.query(SOURCE, PartitionStatus.COMPLETED)
        owners = {key: worker.name for worker in workers for key in worker.completed}
        assert {p.partition_key: p.progress["by"] for p in stored} == owners
        # Acquired once, three checkpoints, completed: no write was made twice.
        assert {p.version for p in stored} == {5}


OUTAGE_SECONDS = 0.5
"""How long a restarted server is away; no test waits for anything by it."""


def test_workers_survive_killed_connections(server_url: str) -> None:
    outlast(server_url, lambda: kill_connections(server_url), times=20, every_seconds=0.1)


@pytest.mark.integration
def test_workers_survive_a_postgresql_restart(own_postgres: Any) -> None:
    def restart() -> None:
        own_postgres.stop()
        time.sleep(OUTAGE_SECONDS)
        own_postgres.ensure_postgres_running()

    with postgres_database(own_postgres.get_uri()) as url:
        outlast(url, restart, times=2, every_seconds=0.5)


@pytest.mark.integration
def test_workers_survive_a_mariadb_restart(own_mariadb: MariaDb) -> None:
    def restart() -> None:
        own_mariadb.stop()
        time.sleep(OUTAGE_SECONDS)
        own_mariadb.start()

    with own_mariadb.database() as name:
        outlast(own_mariadb.url(name), restart, times=2, every_seconds=0.5)


@pytest.mark.integration
def test_unreachable_server_is_reported_after_the_deadline(own_mariadb: MariaDb) -> None:
    server = own_mariadb
    with server.database() as name, opened(server.url(name), retry_deadline_seconds=1) as store:
        server.stop()
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError, match=r"store mariadb\+pymysql://.* cannot be used: Can't connect"):
            store.acquire(acquisition())
        assert time.monotonic() - started > 0.5
        server.start()
        assert store.acquire(acquisition()) == []


@pytest.mark.parametrize(
    ("place", "reason"),
    [("{user}:wrong@{host}", r"denied|password|does not exist"), ("{user}@{host}/nowhere", r"nowhere")],
    ids=["no such user", "no such database"],
)
def test_permanent_errors_are_reported_at_once(server_url: str, place: str, reason: str) -> None:
    url = sa.make_url(server_url)
    wrong = url.set(database="nowhere") if "nowhere" in place else url.set(username="nowhere", password="wrong")
    with pytest.raises(StoreUnavailableError, match=reason) as error:  # instead of an hour later
        SqlStore(wrong.render_as_string(hide_password=False), table=TABLE, retry_deadline_seconds=3600).initialize()
    assert "wrong" not in str(error.value)


# Answers that are lost


def lose_the_next_answer(store: SqlStore) -> None:
    """Commit the next transaction and fail with the driver's error for a connection that ended in the meantime."""
    dialect = store._database.engine.dialect
    commit = dialect.do_commit

    def commit_and_fail(connection: Any) -> None:
        commit(connection)
        dialect.do_commit = commit  # type: ignore[method-assign]
        raise dialect.loaded_dbapi.OperationalError("the connection ended")  # type: ignore[attr-defined]

    dialect.do_commit = commit_and_fail  # type: ignore[method-assign]


def test_acquisition_with_a_lost_response_returns_its_leases(store: SqlStore) -> None:
    store.create([a_partition(f"p{n}", age_seconds=9 - n) for n in range(6)])
    store.acquire(acquisition(1, owner="other"))
    lose_the_next_answer(store)
    acquired = store.acquire(acquisition(2))
    assert keys(acquired) == ["p1", "p2"]
    assert [store.get(SOURCE, key) for key in keys(acquired)] == acquired
    assert store.count_by_status(SOURCE)[PartitionStatus.ASSIGNED] == 3


def test_coordinator_recognises_its_write_after_a_lost_response(store: SqlStore) -> None:
    coordinator = SourceCoordinator(store, "clicks", "me", prefix="test")
    coordinator.initialize()
    coordinator.create_partitions({"a": {}})
    [mine] = coordinator.leases.acquire(1)
    lose_the_next_answer(store)
    saved = coordinator.leases.save_progress("a", {"checkpoint": "8"})
    assert saved == store.get(SOURCE, "a")
    assert saved.version == mine.version + 1
    lose_the_next_answer(store)
    coordinator.leases.complete("a", {"checkpoint": "9"}, create={"child": {}})
    assert store.count_by_status(SOURCE)[PartitionStatus.COMPLETED] == 1
    assert store.get(SOURCE, "child") is not None


def test_creation_with_a_lost_response_creates_once(store: SqlStore) -> None:
    lose_the_next_answer(store)
    store.create([a_partition("a", n=1), a_partition("b")])
    assert store.count_by_status(SOURCE)[PartitionStatus.UNASSIGNED] == 2
    assert store.get(SOURCE, "a") == a_partition("a", n=1)


# Scenario S36


def test_version_conflict_on_one_row_leaves_the_next_available(store: SqlStore, url: str) -> None:
    """S36. A row that another transaction is taking is passed over (`SKIP LOCKED`), instead of tried and refused."""
    store.create([a_partition("first", age_seconds=2), a_partition("second", age_seconds=1)])
    if store.kind == "sqlite":  # one writer at a time: the other one has it before we look
        assert keys(store.acquire(acquisition(1, owner="other"))) == ["first"]
        assert keys(store.acquire(acquisition(1))) == ["second"]
        return
    other = Database(url, retry_deadline_seconds=1)
    with other.engine.connect() as connection:
        table = partition_table(TABLE)
        connection.execute(sa.select(table).where(table.c.partition_key == "first").with_for_update())
        assert keys(store.acquire(acquisition(1))) == ["second"]
        assert store.acquire(acquisition(1)) == []
    other.close()
    assert keys(store.acquire(acquisition(1))) == ["first"]


def test_creation_error_is_not_mistaken_for_an_existing_partition(store: SqlStore, engine: sa.Engine) -> None:
    """S36, where we differ: Data Prepper answers false to any SQL error on creation, and the partition is lost."""
    execute(engine, f"DROP TABLE {TABLE}")
    with pytest.raises(StoreUnavailableError, match=rf"cannot be used: .*{TABLE}"):
        store.create([a_partition("a")])


def test_update_and_deletion_of_an_old_version_are_refused(store: SqlStore) -> None:
    """S36."""
    store.create([a_partition("a")])
    store.acquire(acquisition())
    with pytest.raises(PartitionUpdateError):
        store.transact(update=[a_partition("a")])
    with pytest.raises(PartitionUpdateError):
        store.delete(a_partition("a"))


# Plans and statements


def plan(engine: sa.Engine, statement: sa.Select[Any]) -> str:
    compiled = statement.compile(engine, compile_kwargs={"literal_binds": True})
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    with engine.connect() as connection:
        return "\n".join(
            str(tuple(row)) for row in connection.exec_driver_sql(f"{explain} {compiled}".replace("%", "%%"))
        )


@pytest.mark.parametrize("analyzed", [False, True], ids=["not analyzed", "analyzed"])
def test_partitions_are_found_in_order_without_sorting(store: SqlStore, engine: sa.Engine, analyzed: bool) -> None:
    many = [a_partition(f"p{n:05}") for n in range(5000)]
    completed = [p.completed(NOW) for p in many[100:]]
    store.create([*many[:100], *completed])
    if analyzed:
        analyze = "ANALYZE TABLE" if engine.dialect.name == "mysql" else "ANALYZE"
        execute(engine, f"{analyze} {TABLE}")
    priority = store._table.c.priority
    for status in (PartitionStatus.UNASSIGNED, PartitionStatus.ASSIGNED, PartitionStatus.COMPLETED):
        queue = store._in_order(SOURCE, status)
        for statement in (
            queue.where(priority <= format_instant(NOW)).limit(10).with_for_update(skip_locked=True),
            queue.where(store._compared_to(gt, position_of(many[2000], SortOrder.PRIORITY), SortOrder.PRIORITY)).limit(
                500
            ),
        ):
            explained = plan(engine, statement)
            assert f"ix_{TABLE}_order" in explained
            assert "sort" not in explained.lower()
            assert "temp" not in explained.lower()


@pytest.mark.integration
@pytest.mark.parametrize("descending", [False, True])
def test_mariadb_search_without_a_match_reads_no_further(mariadb_url: str, descending: bool) -> None:
    with opened(mariadb_url) as store, beside(mariadb_url) as engine:
        store.create([a_partition(f"p{n:05}").completed(NOW) for n in range(5000)])  # all at the same instant

        def rows_read() -> int:
            with engine.connect() as connection:
                counters = connection.execute(sa.text("SHOW GLOBAL STATUS LIKE 'Handler_read_%'")).all()
            return sum(int(count) for name, count in counters if name in ("Handler_read_next", "Handler_read_prev"))

        before = rows_read()
        wanted = Filter(search="none", statuses=(PartitionStatus.COMPLETED,))
        found = store.browse(
            PageRequest(
                source_identifier=SOURCE, wanted=wanted, order=SortOrder.PRIORITY, descending=descending, examine=100
            )
        )

        assert found.partitions == [] and found.next is not None
        assert 0 < rows_read() - before < 500


@pytest.mark.integration
@pytest.mark.parametrize("rows", [0, 2000])
def test_postgresql_uses_the_primary_key_before_analyze(postgres_url: str, rows: int) -> None:
    with opened(postgres_url) as store:
        store.create([a_partition(f"p{n:05}", age_seconds=n) for n in range(rows)])
        with explained("WHERE") as plans:
            store.get(SOURCE, "p00003")
        assert len(plans) == 1 and f"{TABLE}_pkey" in plans[0], plans


@contextlib.contextmanager
def counted_statements() -> Iterator[list[str]]:
    statements: list[str] = []

    def count(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        statements.append(statement)

    with listening("before_cursor_execute", count):
        yield statements


def test_thousand_partitions_are_created_in_a_few_statements(store: SqlStore) -> None:
    many = [a_partition(f"p{n:05}") for n in range(3000)]
    with counted_statements() as statements:
        assert store.create(many) == keys(many)
    assert len(statements) <= 3 * 5, statements


def test_acquisition_statements_do_not_grow_with_its_size(store: SqlStore) -> None:
    store.create([a_partition(f"p{n:04}") for n in range(1200)])
    costs = []
    for limit in (1, 100):
        with counted_statements() as statements:
            assert len(store.acquire(acquisition(limit))) == limit
        costs.append(len(statements))
    assert costs[0] == costs[1] <= 5
    assert len(store.acquire(acquisition(1099))) == 1099


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def test_transaction_statements_do_not_grow_with_its_size(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened(url_of(kind, request, tmp_path)) as store:
        many = [a_partition(f"p{n:04}") for n in range(1000)]
        store.create(many)
        costs = []
        for count in (2, 500):
            with counted_statements() as statements:
                written = store.transact(update=many[:count], new=[a_partition(f"of {count}")], unchanged=many[500:])
            assert written == [p.written() for p in many[:count]]
            costs.append(len(statements))
            many[:count] = written
        assert costs[0] == costs[1] <= 5


def test_refused_partition_of_a_large_transaction_is_named(store: SqlStore) -> None:
    many = [a_partition(f"p{n}") for n in range(9)]
    store.create(many)
    [newer] = store.transact(update=many[5:6])
    for update, unchanged in ((many, []), ([*many[:5], *many[6:]], many[5:6])):
        with pytest.raises(PartitionUpdateError, match=r"'p5'.*version 0"):
            store.transact(update=[p.with_progress({"moved": True}) for p in update], unchanged=unchanged)
    assert store.get_many(SOURCE, keys(many)) == {p.partition_key: p for p in [*many[:5], newer, *many[6:]]}


def test_duplicate_in_a_transaction_is_refused(store: SqlStore) -> None:
    one, other = a_partition("a"), a_partition("b")
    store.create([one, other])
    with pytest.raises(PartitionUpdateError):
        store.transact(update=[one, other, one])
    assert store.get_many(SOURCE, ["a", "b"]) == {"a": one, "b": other}


def test_all_columns_of_many_partitions_are_written(store: SqlStore) -> None:
    """Each of them else than before, and None where there was something."""
    existing = [a_partition(f"schlüssel \U0001f511 {n}") for n in range(4)]
    store.create(existing)
    leased = [p.acquired("me", NOW + timedelta(seconds=n), NOW) for n, p in enumerate(existing)]
    leased = [p.with_progress({"text": '\\"\n\U0001f511', "n": n}).failed(f"it's \\ {n}") for n, p in enumerate(leased)]
    written = store.transact(update=leased)
    assert store.get_many(SOURCE, keys(existing)) == {p.partition_key: p for p in written}
    written = store.transact(update=[p.recovered().closed(NOW + timedelta(days=1)) for p in written])
    assert store.get_many(SOURCE, keys(existing)) == {p.partition_key: p for p in written}
    assert [p.version for p in written] == [2] * 4


@pytest.mark.integration
def test_postgresql_finds_many_keys_by_primary_key_before_analyze(postgres_url: str) -> None:
    with opened(postgres_url) as store:
        many = [a_partition(f"p{n:05}", age_seconds=n, text="x" * 500) for n in range(20_000)]
        store.create(many)
        with explained("FOR UPDATE", f"UPDATE {TABLE}", f'UPDATE "{TABLE}"') as plans:
            store.transact(update=many[:50], unchanged=many[50:100])
        assert len(plans) == 2 and all(f"{TABLE}_pkey" in plan for plan in plans), plans


@pytest.mark.integration
def test_postgresql_transactions_of_the_same_rows_are_serialized(postgres_url: str) -> None:
    """They lock in one order, whatever they were given: none is a deadlock."""
    with opened(postgres_url) as store:
        many = [a_partition(f"p{n:03}") for n in range(200)]
        store.create(many)
        written: list[int] = []

        def write(ordered: Sequence[Partition]) -> None:
            for _ in range(20):
                existing = store.get_many(SOURCE, keys(ordered))
                with contextlib.suppress(PartitionUpdateError):
                    written.append(len(store.transact(update=[existing[p.partition_key] for p in ordered])))

        threads = [threading.Thread(target=write, args=[ordered]) for ordered in (many, many[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with beside(postgres_url) as engine:
            [[deadlocks]] = execute(engine, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        assert written and set(written) == {200} and deadlocks == 0


# Sessions and servers


@pytest.mark.integration
def test_mariadb_session_is_strict_and_locks_only_rows(mariadb_url: str) -> None:
    with beside(f"{mariadb_url}?charset=latin1") as engine, engine.connect() as connection:
        [row] = connection.exec_driver_sql("SELECT @@sql_mode, @@tx_isolation, @@character_set_client").all()
    assert row == ("STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION", "READ-COMMITTED", "utf8mb4")


@pytest.mark.integration
@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"])
def test_every_mariadb_scheme_opens_a_mariadb_store(mariadb_url: str, scheme: str) -> None:
    with opened(mariadb_url.replace("mariadb", scheme, 1)) as store:
        assert store.kind == "mariadb"


@pytest.mark.integration
def test_database_unable_to_hold_every_key_is_refused(postgres_url: str) -> None:
    admin = Database(postgres_url, retry_deadline_seconds=1)
    name = f"latin_{os.urandom(4).hex()}"
    with admin.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        url = admin.engine.url.set(database=name).render_as_string(hide_password=False)
        store = SqlStore(url, table=TABLE)
        with pytest.raises(ConfigurationError, match=r"encoding is LATIN1.*create the database with ENCODING 'UTF8'"):
            store.initialize()
        store.close()
        connection.exec_driver_sql(f"DROP DATABASE {name}")
    admin.close()


@pytest.mark.parametrize(
    ("kind", "version", "message"),
    [
        ("mariadb", (10, 5, 22), "mariadb 10.5.22 is too old; upgrade to 10.6 or newer"),
        ("mysql", (5, 7, 44), "mysql 5.7.44 is too old; upgrade to 8.0.1 or newer"),
        ("postgresql", (9, 6), "postgresql 9.6 is too old; upgrade to 10 or newer"),
        ("sqlite", (3, 34, 1), "sqlite 3.34.1 is too old; upgrade to 3.35 or newer"),
    ],
)
def test_too_old_server_is_named_with_its_version(kind: str, version: tuple[int, ...], message: str) -> None:
    assert message in str(too_old(kind, version))


@pytest.mark.parametrize(
    ("kind", "version"), [("mariadb", (10, 6)), ("mysql", (8, 0, 1)), ("postgresql", (18, 4)), ("sqlite", (3, 35, 0))]
)
def test_supported_server_is_accepted(kind: str, version: tuple[int, ...]) -> None:
    assert too_old(kind, version) is None


@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [
        ("mysql://h/d", "pymysql", "mysql"),
        ("mariadb://h/d", "pymysql", "mysql"),
        ("postgres://h/d", "psycopg", "postgres"),
    ],
)
def test_missing_driver_names_its_extra(monkeypatch: pytest.MonkeyPatch, url: str, driver: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(ConfigurationError, match=rf"install airflow-provider-coordination\[{extra}\]"):
        SqlStore(url, table=TABLE)


def test_url_may_set_timeouts() -> None:
    arguments = Database("mysql://h/d?read_timeout=7", retry_deadline_seconds=1).engine
    _, given = arguments.dialect.create_connect_args(arguments.url)
    assert int(given["read_timeout"]) == 7


# SQLite's file


@pytest.fixture
def ordinary_user(tmp_path: Path) -> Iterator[None]:
    """Act as a user whom permissions bind: root may write everywhere."""
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.stat().st_uid == os.geteuid() and folder.stat().st_mode & 0o5 != 0o5:
            folder.chmod(0o755)
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("protected", ["file", "folder", "empty folder"])
def test_unwritable_file_is_reported_with_the_remedy(
    request: pytest.FixtureRequest, tmp_path: Path, protected: str
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    path = folder / "coordination.db"
    if protected != "empty folder":
        with opened(f"sqlite:///{path}"):
            pass
        path.chmod(0o444)
    folder.chmod(0o777 if protected == "file" else 0o555)
    request.getfixturevalue("ordinary_user")
    with pytest.raises(ConfigurationError, match=rf"store sqlite.*{path} cannot be used: .*; give the user") as error:
        SqlStore(f"sqlite:///{path}", table=TABLE).initialize()
    assert "give a file in a folder with write permission" in str(error.value)


def test_read_only_file_is_reported_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "coordination.db"
    with opened(f"sqlite:///{path}"):
        pass
    with pytest.raises(ConfigurationError, match=r"attempt to write a readonly database; give the user"):
        SqlStore(f"sqlite:///file:{path}?mode=ro&uri=true", table=TABLE).initialize()


@pytest.mark.parametrize("becomes", ["replaced", "deleted or moved"])
def test_file_exchanged_under_open_connections_is_an_unavailable_store(tmp_path: Path, becomes: str) -> None:
    path, restored = tmp_path / "coordination.db", tmp_path / "restored.db"
    with opened(f"sqlite:///{restored}"):
        pass
    with opened(f"sqlite:///{path}") as store:
        store.create([a_partition("a")])
        if becomes == "replaced":
            restored.rename(path)
        else:
            path.unlink()
        with pytest.raises(
            StoreUnavailableError, match=rf"{path}: its file was {becomes} while this process had it open"
        ):
            store.create([a_partition("b")])


def test_replaced_file_is_used_by_new_processes_only(tmp_path: Path) -> None:
    path, restored = tmp_path / "coordination.db", tmp_path / "restored.db"
    with opened(f"sqlite:///{restored}") as store:
        store.create([a_partition("restored")])
    with opened(f"sqlite:///{path}") as store:
        store.create([a_partition("a")])
        restored.rename(path)
        for _ in range(2):
            store._database.engine.dispose()
            with pytest.raises(StoreUnavailableError, match=r"without 'coordination\.db-wal'"):
                store.get(SOURCE, "a")
    for left in ("-wal", "-shm"):
        path.with_name(path.name + left).unlink(missing_ok=True)
    with opened(f"sqlite:///{path}") as store:
        assert keys(store.acquire(acquisition())) == ["restored"]


def test_file_becoming_read_only_is_an_unavailable_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/coordination.db"
    with (
        opened(url) as store,
        listening("begin", lambda connection: connection.exec_driver_sql("PRAGMA query_only = ON")),
        pytest.raises(StoreUnavailableError, match="attempt to write a readonly database"),
    ):
        store.create([a_partition("a")])
