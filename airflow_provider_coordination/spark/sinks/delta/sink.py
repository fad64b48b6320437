"""A Delta table as a sink.

A delivery prepares data files below the table, which no version references, and a manifest for each batch, written
last. The commit adds the files of a whole delivery. The table's log decides which batches are in.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark import writes as described
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivered_batches import TableHistory
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError, SinkUnavailableError
from airflow_provider_coordination.spark.layout import quoted
from airflow_provider_coordination.spark.ledger import IsOfSource, SinkContents, with_rows
from airflow_provider_coordination.spark.outages import is_temporary
from airflow_provider_coordination.spark.parquet_files import read_table
from airflow_provider_coordination.spark.sinks import Maintenance, MaintenanceResult, Rows
from airflow_provider_coordination.spark.sinks.delta import log as table_log
from airflow_provider_coordination.spark.sinks.delta.contents import contents_of
from airflow_provider_coordination.spark.sinks.delta.files import (
    DataFiles,
    add_action,
    arrow_of,
    conformed,
    fit,
    same_columns,
    schema_from,
    union,
)
from airflow_provider_coordination.spark.sinks.delta.log import TableLog, storage_options
from airflow_provider_coordination.spark.sinks.delta.maintenance import maintain
from airflow_provider_coordination.spark.sinks.delta.merges import Changes, FileMerge, is_plain
from airflow_provider_coordination.spark.storage import (
    check_size,
    check_writable,
    delete_file,
    files_below,
    join,
)
from airflow_provider_coordination.spark.table_sinks import PreparedFile, TableSink, files_of
from airflow_provider_coordination.spark.tombstones import Added, MissingTombstonesError, Tombstones

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

COMMIT_TRIES = 30
"""The number of tries of a commit while other writers commit first."""
LONGEST_WAIT_SECONDS = 1.0
"""The longest wait between two tries."""
MANY_FILES = 1_000
"""From this number of files in one delivery on, a warning names the cause."""
UNCHECKED = ("delta.constraints.", "delta.columnMapping.mode", "delta.enableRowTracking")
"""Table properties that require checks or a file format that this module does not support."""
TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"


class PreparedColumns(NamedTuple):
    """The columns of prepared files.

    :param schema: the columns.
    :param partition_by: the partition columns of the table at that time.
    """

    schema: Schema
    partition_by: tuple[str, ...]


class DeltaSink(TableSink[PreparedColumns]):
    """A Delta table; a `Sink`.

    :param name: the name of the sink.
    :param path: the folder of the table.
    :param where: which records go to the table, as a SQL predicate; None for all.
    :param access: how to reach the table if it is on S3.
    :param settings: the settings of a new table.
    """

    def __init__(
        self,
        *,
        name: str,
        path: str,
        where: str | None = None,
        access: Access = DEFAULT_ACCESS,
        settings: described.DeltaTable | None = None,
    ) -> None:
        self._settings = settings or described.DeltaTable(path)
        super().__init__(name, where, f"table {path}", self._settings)
        self._path = path
        self._access = access
        self._log = TableLog(path, storage_options(path, access))
        self._files = DataFiles(path, access)
        self._tombstones = Tombstones(path, self._merging, self._settings.tombstone_retention, access)
        self._partitioned_by: tuple[str, ...] = ()  # of the table, once it is checked

    @property
    @override
    def location(self) -> str:
        return self._path

    @override
    def check(self) -> None:
        field = f"DeltaTable {self.name!r}: field 'path'"
        check_writable(field, self._path, self._access)
        try:
            table = self._log.open()
            if table is not None:
                self._check_usable(table)
                self._partitioned_by = tuple(table.metadata().partition_columns)
        except SinkUnavailableError:
            raise
        except DeliveryError as error:
            raise ConfigurationError(f"{field}: {error}") from error
        except (DeltaError, OSError) as error:
            problem = f"{field} is {self._path!r}, whose log cannot be read"
            if is_temporary(error):
                raise SinkUnavailableError(f"{problem} at present: {error}; run again after the outage") from error
            raise ConfigurationError(f"{problem}: {error}; correct the path, or repair the table") from error

    def _check_usable(self, table: DeltaTable) -> None:
        """Check that this module can add files to a table.

        :raises DeliveryError: naming the obstacle.
        """
        metadata = table.metadata()
        for key, value in metadata.configuration.items():
            if key.startswith(UNCHECKED) and value not in ("none", "false"):
                raise DeliveryError(
                    f"table {self._path} has the property {key} = {value!r}, which the files of a job may violate; "
                    "remove it, or write to another table"
                )
        if (retention := metadata.configuration.get(TRANSACTION_RETENTION)) is not None:
            raise DeliveryError(
                f"table {self._path} has the property {TRANSACTION_RETENTION} = {retention!r}: an expired transaction "
                "cannot show which batches are in; run ALTER TABLE ... UNSET TBLPROPERTIES for it, or write to another "
                "table"
            )
        wanted = self._settings.partition_by
        if wanted and list(wanted) != metadata.partition_columns:
            raise DeliveryError(
                f"table {self._path} is partitioned by {metadata.partition_columns}, but 'partition_by' is "
                f"{list(wanted)}; give the table's columns, or leave it out"
            )

    @property
    @override
    def required_columns(self) -> Mapping[str, Sequence[str]]:
        return {
            **self._merging.required,
            "'partition_by'": self._settings.partition_by,
            "the table's partitioning": self._partitioned_by,
        }

    @override
    def committed(self, attempts: Sequence[Attempt]) -> set[str]:
        table = self._log.open() if attempts else None
        return set() if table is None else self._log.committed(table, attempts)

    @override
    def committed_under(self, attempts: Sequence[Attempt]) -> Mapping[str, int]:
        table = self._log.open()
        return {} if table is None else self._log.committed_under(table, {attempt.batch_id for attempt in attempts})

    @override
    def history(self) -> TableHistory:
        table = self._log.open()
        if table is None:
            raise ConfigurationError(f"DeltaTable {self.name!r}: field 'path' is {self._path!r}; there is no table")
        return table_log.history(table, self._path)

    @override
    def contents(self, wanted: IsOfSource, *, reads_rows: bool) -> SinkContents:
        table = self._log.open()
        if table is None:
            raise ConfigurationError(f"DeltaTable {self.name!r}: field 'path' is {self._path!r}; there is no table")
        try:
            return contents_of(
                self._log, table, wanted, reads_rows=reads_rows, access=self._access, merges=bool(self._merging)
            )
        except DeltaError as error:
            raise DeliveryError(f"table {self._path}: its log cannot be read: {error}; repair the table") from error

    @override
    def maintain(self, wanted: Maintenance) -> MaintenanceResult:
        if self._log.open() is None:
            raise ConfigurationError(f"DeltaTable {self.name!r}: field 'path' is {self._path!r}; there is no table")
        return maintain(self._log, self._staging, self._tombstones, self._access, wanted)

    @property
    @override
    def access(self) -> Access:
        return self._access

    @override
    def _root(self) -> str:
        return self._path.rstrip("/")

    @override
    def _uri(self, name: str) -> str:
        return join(self._path, name)

    @override
    def repartition(self, rows: DataFrame) -> DataFrame:
        # Spark makes even partitions, and keeps rows of a table partition together.
        return rows.hint("rebalance", *map(quoted, self._settings.partition_by))

    # Preparation

    @override
    def _fit(self, columns: pa.Schema) -> PreparedColumns:
        table = self._log.open()
        if table is None:
            schema, partition_by = schema_from(columns, self._settings.columns, self._path), self._settings.partition_by
            here = {field.name: field for field in schema.fields}
            schema = Schema([here[name] for name in columns.names])
        else:
            self._check_usable(table)
            schema = fit(schema_from(columns, {}, self._path), table.schema(), self._path).taken
            partition_by = tuple(table.metadata().partition_columns)
        missing = [name for name in partition_by if name not in columns.names]
        if missing:
            raise DeliveryError(
                f"table {self._path} is partitioned by {', '.join(map(repr, missing))}, which the records do not have; "
                "add it in the transform"
            )
        return PreparedColumns(schema, partition_by)

    @override
    def _write(self, fit: PreparedColumns, rows: Rows, batch_ids: Sequence[str], folder: str) -> list[PreparedFile]:
        schema, partition_by = fit
        below = folder.removeprefix(f"{self._root()}/")
        names = [join(below, uri.rpartition("/")[2]) for uri in rows.write(batch_ids, folder)]
        arrow = arrow_of(schema)
        files = [made for name in names for made in self._files.fit_to_table(name, arrow, partition_by)]
        self._check_required(files, self._required(fit))
        kept = {self._uri(file.name) for file in files}
        for uri in files_below(folder, self._access):
            if uri not in kept:  # for example, files of failed tasks
                delete_file(uri, self._access)
        if len(files) > MANY_FILES:
            log.warning(
                "table %s: a delivery makes %d files, at least one for each value of %s; partition it by a column "
                "with fewer values", self._path, len(files), ", ".join(partition_by),
            )  # fmt: skip
        return files

    @override
    def _required(self, fit: PreparedColumns) -> list[str]:
        return [field.name for field in fit.schema.fields if not field.nullable]

    def _check_required(self, files: Sequence[PreparedFile], required: Sequence[str]) -> None:
        for name in required:
            nulls = sum(json.loads(file.stats)["nullCount"].get(name, 0) for file in files)
            if nulls and self._merging.op is not None:
                read = (read_table(self._uri(file.name), [name, self._merging.op], self._access) for file in files)
                nulls = sum(pc.sum(pc.and_not(r[name].is_null(), self._merging.deletes(r))).as_py() or 0 for r in read)
            if nulls:
                raise DeliveryError(
                    f"table {self._path} cannot accept the records: column {name!r} holds {nulls} nulls, but the table "
                    "requires values; mark those records as bad in the transform"
                )

    @override
    def _described(self, fit: PreparedColumns) -> Mapping[str, Any]:
        return {"schema": json.loads(fit.schema.to_json()), "partition_by": fit.partition_by}

    # Commit

    @override
    def _commit(self, attempts: Sequence[Attempt]) -> None:
        """Commit batches on the current table, and read the table again if it changed in between.

        An error does not show whether the commit was made: only the log does.
        """
        failed: Exception | None = None
        for number in range(COMMIT_TRIES):
            if failed is not None:
                time.sleep(random.uniform(0, min(LONGEST_WAIT_SECONDS, 0.01 * 2**number)))
            table = self._log.open()
            owed = self._owed(table, attempts)
            if not owed:
                return
            if failed is not None and not isinstance(failed, CommitFailedError):
                break
            try:
                if self._try_commit(table, owed):
                    return
                failed = None
            except (DeltaError, OSError) as error:
                log.info("table %s: commit of %d batches: %s", self._path, len(owed), error)
                failed = error
        raise DeliveryError(f"table {self._path}: {len(attempts)} batches were not committed: {failed}") from failed

    def _owed(self, table: DeltaTable | None, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return the batches that the table must accept.

        :raises DeliveryError: if their partition was delivered under a later lease.
        """
        if table is None:
            return list(attempts)
        taken = self._log.committed(table, [attempt for attempt in attempts if not attempt.batch.redeliver])
        owed = [attempt for attempt in attempts if attempt.batch_id not in taken]
        self._log.report_restores(table, [attempt for attempt in owed if attempt.batch.redeliver])
        self._log.check_no_later_lease(table, owed)
        return owed

    def _try_commit(self, table: DeltaTable | None, attempts: Sequence[Attempt]) -> bool:
        """Make the next commit towards adding batches; return whether this commit added them.

        :raises CommitFailedError: if another writer committed first.
        """
        manifests = {attempt.batch_id: self._staging.sealed(attempt) for attempt in attempts}
        schema = union([Schema.from_json(json.dumps(each["schema"])) for each in manifests.values()], self._path)
        partition_by = list(next(iter(manifests.values()))["partition_by"])
        if table is None:
            self._log.create(schema_from(arrow_of(schema), self._settings.columns, self._path), partition_by)
            return False
        self._check_usable(table)
        how = fit(schema, table.schema(), self._path)
        if partition_by != table.metadata().partition_columns or not same_columns(how.taken, schema):
            raise DeliveryError(
                f"table {self._path} got other columns while its batches were prepared; they are prepared again"
            )
        if how.added:
            table.alter.add_columns(how.added, commit_properties=CommitProperties(max_commit_retries=0))
            return False
        files = files_of(manifests)
        for file in files:
            check_size(self._uri(file.name), file.bytes, self._access)
        if self._merging and files:
            self._merge(table, with_rows(attempts, manifests), files)
            return True
        properties = self._log.properties(table, with_rows(attempts, manifests), self.name)
        if self._log.has_rows(table, [attempt for attempt in attempts if attempt.batch.redeliver]):
            rows = self._rows(files, arrow_of(table.schema()))
            table_log.replace(table, rows, [attempt.batch_id for attempt in attempts], properties)
        else:
            own = [self._file_of_batches(file, partition_by) for file in files]
            table_log.change_files(table, [add_action(file, partition_by) for file in own], properties)
        return True

    def _merge(self, table: DeltaTable, attempts: Sequence[Attempt], files: Sequence[PreparedFile]) -> None:
        """Merge the rows of batches into the opened version of the table, which remembers what they delete.

        :raises CommitFailedError: if another writer committed first.
        """
        changes = Changes(files, self._path, self._merging, self._access)
        rejected = [attempt.batch_id for attempt in attempts if attempt.batch.redeliver]
        rows, added = changes.deciding, None
        kept = rows.take(self._merging.kept(rows, [attempt.batch_id for attempt in attempts]))
        if self._merging.order_by is not None:
            kept, added = self._with_tombstones(table, rows, kept)
        properties = self._log.properties(table, attempts, self.name, None if added is None else added.number)
        if is_plain(table):
            merge = FileMerge(table, self._path, self._merging, rejected, self._access)
            actions = merge.actions(changes, kept)
            self._named |= {file.name for file in files} & {action.path for action in actions}
            table_log.change_files(table, actions, properties)
        else:
            schema = arrow_of(table.schema())
            whole = pa.concat_tables([conformed(part, schema) for part in changes.whole(kept)])
            table_log.merge(table, whole, self._merging, rejected, properties)
        if added is not None:
            self._tombstones.remove_superseded(added)

    def _with_tombstones(self, table: DeltaTable, rows: pa.Table, kept: pa.Table) -> tuple[pa.Table, Added | None]:
        """Return the rows that no earlier delivery has deleted, and the tombstones of this one.

        :param rows: all rows of the delivery.
        :param kept: the last row of each key.
        :raises CommitFailedError: if another writer replaced the tombstones.
        """
        number = self._log.tombstones(table)
        try:
            return self._tombstones.without_late(number, kept), self._tombstones.add(number, rows)
        except MissingTombstonesError as error:
            current = self._log.open()
            if current is not None and self._log.tombstones(current) == number:
                raise
            raise CommitFailedError(f"the tombstones of the table have changed: {error}") from error

    def _file_of_batches(self, file: PreparedFile, partition_by: Sequence[str]) -> PreparedFile:
        """Return a file with the rows of its batches only: a new file, if it also holds rows of others."""
        if sum(file.batches.values()) == file.rows:
            self._named.add(file.name)
            return file
        folder, _, _ = file.name.rpartition("/")
        return self._files.write(folder, self._files.rows_of(file), partition_by)

    def _rows(self, files: Sequence[PreparedFile], schema: pa.Schema) -> pa.RecordBatchReader:
        """Return the rows of batches, with all columns of the table."""

        parts = (conformed(self._files.rows_of(file), schema).to_batches() for file in files)
        return pa.RecordBatchReader.from_batches(schema, chain.from_iterable(parts))
