"""A table of PostgreSQL, MySQL or MariaDB that accepts each batch in one transaction, together with the batch's id.

Rows are staged in files below `staging_path` until their commit. A commit is one transaction for each batch: it writes
the rows to the target, and the id to a second table. That table's unique key and fencing token prevent duplicates.
"""

from __future__ import annotations

import contextvars
import json
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa
import sqlalchemy as sa

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    Delivery,
    DeliveryError,
    SinkLockedError,
    SinkUnavailableError,
)
from airflow_provider_coordination.spark.ledger import IsOfSource, SinkContents, entry_of
from airflow_provider_coordination.spark.refused_rows import RefusedRows, find_refused
from airflow_provider_coordination.spark.sink_settings import SinkSettings, access_of
from airflow_provider_coordination.spark.sinks import Rows, SinkKind, owed
from airflow_provider_coordination.spark.sinks.sql.database import DatabaseSession, SinkDatabase, database_of
from airflow_provider_coordination.spark.sinks.sql.deleted_keys import DeletedKeys
from airflow_provider_coordination.spark.sinks.sql.table import TABLE, CommittedBatches, Table
from airflow_provider_coordination.spark.staging import StagedBatch, StagedSink
from airflow_provider_coordination.spark.table_sinks import LandedDelivery
from airflow_provider_coordination.spark.writes.sql import SqlTable

log = logging.getLogger(__name__)

CONNECTIONS = 4
"""The number of batches of a delivery that are written at the same time. Merges are written one by one: otherwise one
transaction would wait for the rows of another."""


class SqlSink(StagedSink):
    """A table of a database; a `Sink`.

    :param name: the name of the sink.
    :param settings: the settings of the table.
    :param database: the database of the table.
    :param where: which records go to the table, as a SQL predicate; None for all.
    :param access: how to reach the staging path.
    """

    refuses_rows = True
    accepts_landed_files = True

    def __init__(
        self,
        name: str,
        settings: SqlTable,
        database: SinkDatabase,
        where: str | None = None,
        access: Access = DEFAULT_ACCESS,
    ) -> None:
        super().__init__(name, where, settings, access, settings.sink_location)
        self._settings = settings
        self._database = database
        self._taken = CommittedBatches(database, name)
        self._table = Table(database, self._taken)
        self._deleted_keys = DeletedKeys(database)

    @override
    def check(self) -> None:
        """Connects to the database, and creates the table of batches if it is missing."""
        self.check_staging("SqlTable")
        try:
            with closing(DatabaseSession(self._database, wait_seconds=0)) as session:
                session.run(self._taken.create)
        except SinkLockedError:
            raise
        except SinkUnavailableError as error:
            raise SinkUnavailableError(
                f"SqlTable {self.name!r}: table {self.location} cannot be written at present: {error}; run again after "
                "the outage, or correct the connection of its 'conn_id'"
            ) from None
        except CoordinationError as error:
            raise ConfigurationError(
                f"SqlTable {self.name!r}: table {self.location} cannot be written: {error}; correct the connection of "
                f"its 'conn_id', or let its user create the table {TABLE!r} in the same schema"
            ) from None

    @property
    @override
    def required_columns(self) -> Mapping[str, Sequence[str]]:
        return self._database.merging.required

    @override
    def committed(self, attempts: Sequence[Attempt]) -> set[str]:
        if not attempts:
            return set()
        with closing(DatabaseSession(self._database)) as session:
            return session.run(lambda connection: self._taken.among(connection, attempts))

    @override
    def committed_under(self, attempts: Sequence[Attempt]) -> Mapping[str, int]:
        batch_ids = [attempt.batch_id for attempt in attempts]
        with closing(DatabaseSession(self._database)) as session:
            return session.run(lambda connection: self._taken.tokens(connection, batch_ids))

    @override
    def contents(self, wanted: IsOfSource, *, reads_rows: bool) -> SinkContents:
        with closing(DatabaseSession(self._database)) as session:
            return session.run(lambda connection: self._contents(connection, wanted, reads_rows=reads_rows))

    def _contents(self, connection: sa.Connection, wanted: IsOfSource, *, reads_rows: bool) -> SinkContents:
        if not self._taken.exists(connection):
            raise ConfigurationError(
                f"SqlTable {self.name!r}: table {TABLE} is not in the schema of {self.location}: restore it, or give "
                "the right table"
            )
        others = [] if self._taken.has_target(connection) else [f"table {self.location} is gone: restore it"]
        entries, unknown, known = [], [], set()
        for batch_id, rows, described in self._taken.recorded(connection):
            known.add(batch_id)
            if described is None:
                unknown.append(batch_id)
            elif wanted((entry := entry_of(json.loads(described))).source):
                entries.append(replace(entry, rows=rows))
        counted = None
        if reads_rows:
            counted = {} if others else self._taken.counted(connection)
            others += [
                f"{rows} rows are of batch {batch_id}, which no delivery recorded"
                for batch_id, rows in counted.items()
                if batch_id not in known
            ]
        is_merged = bool(self._database.merging)
        return SinkContents(
            location=self.location,
            entries=entries,
            counted=counted,
            others=others,
            unknown=unknown,
            replaces_rows=is_merged,
        )

    @override
    def prepare(self, attempts: Sequence[Attempt], rows: Rows) -> None:
        """Compares the table with the rows; only `commit` changes it."""
        if not attempts:
            return
        self._database.merging.check_columns(rows.schema.names, self._database.title)
        self._staged.stage(attempts, rows)
        for attempt in attempts:
            files = list(self._staged.find(attempt).files)
            with self._naming(attempt):
                schema = self._staged.schema(files[0])
            leaves_out = self.refused_rows is not None
            self._table.check_values(attempt.batch_id, schema, partial(self._read, files), leaves_out=leaves_out)
        with closing(DatabaseSession(self._database)) as session:
            session.run(lambda connection: self._table.check(connection, rows.schema))

    @override
    def commit(self, attempts: Sequence[Attempt]) -> None:
        """Each batch in its own transaction."""
        self._commit(attempts)
        if self.refused_rows is not None:
            self.refused_rows.publish(self.name, attempts, self.committed_under)

    @override
    def landed_delivery(self, *, keep: bool) -> Delivery:
        # A landed file is staged under a second name, and Spark reads no record.
        return LandedDelivery(self, self.access)

    def _commit(self, attempts: Sequence[Attempt]) -> None:
        left = owed(self, attempts)
        batches = [(attempt, self._staged.find(attempt)) for attempt in left]
        if not batches:
            return
        with closing(DatabaseSession(self._database)) as session:
            session.run(self._taken.create)
            for schema in {self._staged.schema(next(iter(batch.files))) for _, batch in batches}:
                self._table.create_or_alter(session, schema)
            self._write_all(batches, session)

    def _write_all(self, batches: Sequence[tuple[Attempt, StagedBatch]], session: DatabaseSession) -> None:
        """Write batches over several connections at once. The batches of one partition keep their order.

        :param session: the first of the connections.
        :raises DeliveryError: the first error; the other batches may be committed.
        """
        waiting = deque(_by_partition(batches))
        failed: list[Exception] = []

        def write(session: DatabaseSession) -> None:
            while waiting:
                try:
                    some = waiting.popleft()
                except IndexError:  # another thread took the last batch
                    return
                try:
                    for attempt, batch in some:
                        with self._naming(attempt):
                            session.run(partial(self._write, attempt, batch))
                except Exception as error:
                    log.warning("sink %s: %s", self.name, error)
                    failed.append(error)

        others = 0 if self._database.merging else min(CONNECTIONS, len(waiting)) - 1
        with ExitStack() as stack:
            sessions = [stack.enter_context(closing(DatabaseSession(self._database))) for _ in range(others)]
            pool = stack.enter_context(ThreadPoolExecutor(max(others, 1)))
            running = [pool.submit(contextvars.copy_context().run, write, each) for each in sessions]
            write(session)
            for future in running:
                future.result()
        if failed:
            raise failed[0]

    def _read(self, files: Sequence[str], columns: Sequence[str]) -> pa.Table:
        return pa.concat_tables(self._staged.read(file, columns) for file in files)

    def _write(self, attempt: Attempt, batch: StagedBatch, connection: sa.Connection) -> None:
        deletes = self._database.merging.op is not None
        if deletes:
            self._taken.lock_target(connection)
        if not self._taken.claim(connection, attempt, batch.rows):
            return
        tables = (self._staged.read(file) for file in batch.files)
        if self.refused_rows is not None:
            self._write_accepted(self.refused_rows, attempt, pa.concat_tables(tables), connection)
        else:
            for rows in tables:
                self._database.load(connection, rows)
        if deletes:
            self._deleted_keys.expire(connection)

    def _write_accepted(
        self, refused_rows: RefusedRows, attempt: Attempt, rows: pa.Table, connection: sa.Connection
    ) -> None:
        """Write the rows of a claimed batch that the table accepts, and keep the others."""
        self._database.check_constraints_at_once(connection)
        errors = self._table.faults(rows)
        sound = pa.array([n for n in range(rows.num_rows) if n not in errors], pa.int64())
        candidates = rows.take(sound) if errors else rows

        def load(low: int, high: int, *, keeps: bool = True) -> str | None:
            some = candidates.slice(low, high - low)
            return self._database.try_load(connection, some, keeps=keeps)

        limit = refused_rows.limit(rows.num_rows)
        found = find_refused(candidates.num_rows, load, partial(load, keeps=False), limit)
        errors |= {sound[n].as_py(): error for n, error in found.items()}
        numbers = sorted(errors)
        said = [errors[n] for n in numbers]
        refused_rows.check(self.name, attempt.batch_id, rows.num_rows, said)
        refused_rows.keep(self.name, attempt, rows.take(pa.array(numbers, pa.int64())), said)
        if numbers:
            self._taken.note_rows(connection, attempt, rows.num_rows - len(numbers))

    @contextmanager
    def _naming(self, attempt: Attempt) -> Iterator[None]:
        """Add the batch id to an error."""
        try:
            yield
        except DeliveryError as error:
            raise type(error)(f"batch {attempt.batch_id}: {error}") from error


def _by_partition(batches: Sequence[tuple[Attempt, StagedBatch]]) -> list[list[tuple[Attempt, StagedBatch]]]:
    by_folder: dict[str, list[tuple[Attempt, StagedBatch]]] = {}
    for attempt, batch in batches:
        by_folder.setdefault(attempt.folder, []).append((attempt, batch))
    return list(by_folder.values())


def _make(settings: SinkSettings) -> SqlSink:
    made = SqlTable.from_mapping(settings.settings)
    return SqlSink(settings.name, made, database_of(made), settings.where, access_of([settings]))


KIND = SinkKind(
    make=_make,
    modules=("sqlalchemy",),
    requirement="sqlalchemy",
    writes="airflow_provider_coordination.spark.writes.sql:SqlTable",
)
