"""A Delta table as a sink.

A delivery prepares data files below the table, which no version references, and a manifest for each batch, written
last. The commit adds the files of a whole delivery. The table's log decides which batches are in.
"""

from __future__ import annotations

import json
import logging
import random
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark import writes as described
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivered_batches import TableHistory
from airflow_provider_coordination.spark.delivery import Attempt, Delivery, DeliveryError
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.landed_rows import LandedDelivery
from airflow_provider_coordination.spark.layout import BATCH_ID, quoted
from airflow_provider_coordination.spark.merging import Merging
from airflow_provider_coordination.spark.parquet_files import read_table
from airflow_provider_coordination.spark.sinks import Maintenance, MaintenanceResult, Rows, Sink
from airflow_provider_coordination.spark.sinks.delta import log as table_log
from airflow_provider_coordination.spark.sinks.delta.files import (
    DataFile,
    DataFiles,
    arrow_of,
    fit,
    same_columns,
    schema_from,
    union,
)
from airflow_provider_coordination.spark.sinks.delta.log import TableLog, storage_options
from airflow_provider_coordination.spark.sinks.delta.maintenance import maintain
from airflow_provider_coordination.spark.staging import LandedStaging, Staging
from airflow_provider_coordination.spark.storage import (
    check_writable,
    delete_file,
    delete_folder,
    file_size,
    files_below,
    join,
)

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


@dataclass(frozen=True, kw_only=True)
class Staged:
    """The prepared data of a batch.

    :param attempt: the delivery of the batch.
    :param schema: the columns of the files.
    :param partition_by: the partition columns of the table at that time.
    :param files: the files that hold rows of the batch.
    """

    attempt: Attempt
    schema: Schema
    partition_by: tuple[str, ...]
    files: tuple[DataFile, ...]


class DeltaSink(Sink):
    """A Delta table; a `Sink`.

    :param name: the name of the sink.
    :param path: the folder of the table.
    :param where: which records go to the table, as a SQL predicate; None for all.
    :param access: how to reach the table if it is on S3.
    :param settings: the settings of a new table.
    """

    accepts_landed_files: ClassVar[bool] = True

    def __init__(
        self,
        *,
        name: str,
        path: str,
        where: str | None = None,
        access: Access = DEFAULT_ACCESS,
        settings: described.DeltaTable | None = None,
    ) -> None:
        self.name = name
        self._path = path
        self.where = where
        self._access = access
        self._settings = settings or described.DeltaTable(path)
        self._log = TableLog(path, storage_options(path, access))
        self._files = DataFiles(path, access)
        self._staging = Staging(path, access)
        self._merging = Merging(on=self._settings.merge_on, order_by=self._settings.order_by)
        self._lock = threading.Lock()  # simultaneous commits of one process would only conflict
        self._partitioned_by: tuple[str, ...] = ()  # of the table, once it is checked
        self._unnamed: dict[str, set[str]] = {}  # by file that no commit was tried with: the sets that it is for

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
        except DeliveryError as error:
            raise ConfigurationError(f"{field}: {error}") from error
        except (DeltaError, OSError) as error:
            raise ConfigurationError(
                f"{field} is {self._path!r}, whose log cannot be read: {error}; correct the path, or repair the table"
            ) from error

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
    def history(self) -> TableHistory:
        table = self._log.open()
        if table is None:
            raise ConfigurationError(f"DeltaTable {self.name!r}: field 'path' is {self._path!r}; there is no table")
        return table_log.history(table, self._path)

    @override
    def maintain(self, wanted: Maintenance) -> MaintenanceResult:
        if self._log.open() is None:
            raise ConfigurationError(f"DeltaTable {self.name!r}: field 'path' is {self._path!r}; there is no table")
        return maintain(self._log, Staging(self._path, self._access), self._access, wanted)

    @property
    @override
    def access(self) -> Access:
        return self._access

    @property
    @override
    def separates_batches(self) -> bool:
        """See `Sink.separates_batches`: a file may hold rows of many batches."""
        return False

    @override
    def repartition(self, rows: DataFrame) -> DataFrame:
        """See `Sink.repartition`: Spark makes even partitions, and keeps rows of a table partition together."""
        return rows.hint("rebalance", *map(quoted, self._settings.partition_by))

    @override
    def scratch(self, attempts: Sequence[Attempt]) -> str:
        return self._staging.folder(attempts[0]) + ".work"

    # Preparation

    @override
    def prepare(self, attempts: Sequence[Attempt], rows: Rows) -> None:
        self.discard(attempts)
        filled = [attempt.batch_id for attempt in attempts if rows.count(attempt.batch_id)]
        table = self._log.open() if attempts else None
        schema, partition_by = self._columns(table, rows.schema) if attempts else (Schema([]), ())
        files = self._write(rows, filled, schema, partition_by) if filled else []
        for file in files:
            self._unnamed[file.name] = {attempt.set_id for attempt in attempts}
        others = {str(name) for file in files for name in file.batches} - set(filled)
        if others:
            raise DeliveryError(
                f"table {self._path}: rows of {', '.join(sorted(others)[:3])} were written, which are not batches of "
                f"this delivery; the transform must leave {BATCH_ID!r} unchanged"
            )
        for attempt in attempts:
            of = [file for file in files if attempt.batch_id in file.batches]
            written = sum(file.batches[attempt.batch_id] for file in of)
            if written != rows.count(attempt.batch_id):
                raise DeliveryError(
                    f"batch {attempt.batch_id}: {written} rows were written for table {self._path}, but there are "
                    f"{rows.count(attempt.batch_id)}; the transform must leave {BATCH_ID!r} unchanged"
                )
            self._seal(Staged(attempt=attempt, schema=schema, partition_by=partition_by, files=tuple(of)))

    def _columns(self, table: DeltaTable | None, incoming: pa.Schema) -> tuple[Schema, tuple[str, ...]]:
        """Return the columns of the files, and the partition columns.

        :raises DeliveryError: if the table cannot accept them.
        """
        self._merging.check_columns(incoming.names, f"table {self._path}")
        if table is None:
            schema, partition_by = (
                schema_from(incoming, self._settings.columns, self._path),
                self._settings.partition_by,
            )
            here = {field.name: field for field in schema.fields}
            schema = Schema([here[name] for name in incoming.names])
        else:
            self._check_usable(table)
            schema = fit(schema_from(incoming, {}, self._path), table.schema(), self._path).taken
            partition_by = tuple(table.metadata().partition_columns)
        missing = [name for name in partition_by if name not in incoming.names]
        if missing:
            raise DeliveryError(
                f"table {self._path} is partitioned by {', '.join(map(repr, missing))}, which the records do not have; "
                "add it in the transform"
            )
        return schema, partition_by

    def _write(
        self, rows: Rows, batch_ids: Sequence[str], schema: Schema, partition_by: Sequence[str]
    ) -> list[DataFile]:
        folder = f"data-{secrets.token_hex(8)}"
        try:
            names = [f"{folder}/{uri.rpartition('/')[2]}" for uri in rows.write(batch_ids, join(self._path, folder))]
            arrow = arrow_of(schema)
            files = [made for name in names for made in self._files.fit_to_table(name, arrow, partition_by)]
            self._check_keys(files)
            self._check_required(files, [field.name for field in schema.fields if not field.nullable])
            kept = {join(self._path, file.name) for file in files}
            for uri in files_below(join(self._path, folder), self._access):
                if uri not in kept:  # for example, files of failed tasks
                    delete_file(uri, self._access)
            if len(files) > MANY_FILES:
                log.warning(
                    "table %s: a delivery makes %d files, at least one for each value of %s; partition it by a column "
                    "with fewer values", self._path, len(files), ", ".join(partition_by),
                )  # fmt: skip
        except BaseException:
            delete_folder(join(self._path, folder), self._access)
            raise
        return files

    def _check_keys(self, files: Sequence[DataFile]) -> None:
        if self._merging and files:
            uris = [join(self._path, file.name) for file in files]
            keys = pa.concat_tables(read_table(uri, self._merging.columns, self._access) for uri in uris)
            self._merging.check_rows(keys, f"table {self._path}")

    def _check_required(self, files: Sequence[DataFile], required: Sequence[str]) -> None:
        for name in required:
            nulls = sum(json.loads(file.stats)["nullCount"].get(name, 0) for file in files)
            if nulls:
                raise DeliveryError(
                    f"table {self._path} cannot accept the records: column {name!r} holds {nulls} nulls, but the table "
                    "requires values; mark those records as bad in the transform"
                )

    def _seal(self, staged: Staged) -> None:
        batch_id = staged.attempt.batch_id
        files = [vars(file) | {"batches": {batch_id: file.batches[batch_id]}} for file in staged.files]
        content = {
            "schema": json.loads(staged.schema.to_json()), "partition_by": staged.partition_by, "files": files,
        }  # fmt: skip
        self._staging.seal(staged.attempt, content)

    def _sealed(self, attempt: Attempt) -> Staged:
        content = self._staging.sealed(attempt)
        return Staged(
            attempt=attempt,
            schema=Schema.from_json(json.dumps(content["schema"])),
            partition_by=tuple(content["partition_by"]),
            files=tuple(DataFile(**file) for file in content["files"]),
        )

    @override
    def discard(self, attempts: Sequence[Attempt]) -> None:
        """See `Sink.discard`: removes a file with the last of its batches, unless a commit may have added it."""
        self._staging.discard(attempts)
        sets = {attempt.set_id for attempt in attempts}
        with self._lock:
            for name, of in list(self._unnamed.items()):
                of -= sets
                if not of:
                    del self._unnamed[name]
                    delete_file(join(self._path, name), self._access)

    @override
    def sweep(self, tokens: Mapping[str, int]) -> None:
        self._staging.sweep(tokens)

    # Landed files, unchanged

    @override
    def landed_delivery(self, *, keep: bool) -> Delivery:
        """See `Sink.landed_delivery`: landed files are always kept."""
        taker = copy(self)
        taker._staging = LandedStaging(self._path, self._access, {})
        return LandedDelivery(taker, self._access)

    # Commit

    @override
    def commit(self, attempts: Sequence[Attempt]) -> None:
        if attempts:
            with self._lock:
                self._commit(attempts)

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
                if self._try_commit(table, [self._sealed(attempt) for attempt in owed]):
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

    def _try_commit(self, table: DeltaTable | None, staged: Sequence[Staged]) -> bool:
        """Make the next commit towards adding batches; return whether this commit added them.

        :raises CommitFailedError: if another writer committed first.
        """
        schema = union([each.schema for each in staged], self._path)
        if table is None:
            created = schema_from(arrow_of(schema), self._settings.columns, self._path)
            self._log.create(created, staged[0].partition_by)
            return False
        self._check_usable(table)
        how = fit(schema, table.schema(), self._path)
        if list(staged[0].partition_by) != table.metadata().partition_columns or not same_columns(how.taken, schema):
            raise DeliveryError(
                f"table {self._path} got other columns while its batches were prepared; they are prepared again"
            )
        if how.added:
            table.alter.add_columns(how.added, commit_properties=CommitProperties(max_commit_retries=0))
            return False
        attempts = [each.attempt for each in staged]
        properties = self._log.properties(table, attempts, self.name)
        files = list(self._shared(staged))
        for file, _ in files:
            self._check_whole(file)
        rejected = [attempt for attempt in attempts if attempt.batch.redeliver]
        if self._merging and files:
            rows = self._rows(files, arrow_of(table.schema())).read_all()
            rows = rows.take(self._merging.kept(rows, [attempt.batch_id for attempt in attempts]))
            table_log.merge(table, rows, self._merging.on, [attempt.batch_id for attempt in rejected], properties)
        elif self._log.has_rows(table, rejected):
            rows = self._rows(files, arrow_of(table.schema()))
            table_log.replace(table, rows, [attempt.batch_id for attempt in attempts], properties)
        else:
            actions = [_add_action(self._file_of_batches(file, batch_ids)) for file, batch_ids in files]
            table_log.add(table, actions, properties)
        return True

    def _shared(self, staged: Sequence[Staged]) -> Iterator[tuple[DataFile, dict[str, int]]]:
        """Yield each file once, with the batches of the commit that have rows in it."""
        files: dict[str, DataFile] = {}
        batches: dict[str, dict[str, int]] = {}
        for each in staged:
            for file in each.files:
                files[file.name] = file
                batches.setdefault(file.name, {}).update(file.batches)
        for name, file in files.items():
            yield file, batches[name]

    def _check_whole(self, file: DataFile) -> None:
        uri = join(self._path, file.name)
        size = file_size(uri, self._access)
        if size != file.bytes:
            found = "is gone" if size is None else f"has {size} bytes, but {file.bytes} were written"
            raise MissingFileError(f"file {uri} {found}: another process changed it")

    def _file_of_batches(self, file: DataFile, batches: dict[str, int]) -> DataFile:
        """Return a file with the rows of these batches only: a new file, if it also holds rows of others."""
        if sum(batches.values()) == file.rows:
            self._unnamed.pop(file.name, None)
            return file
        folder, _, _ = file.name.rpartition("/")
        rows = self._files.rows_of(file, list(batches))
        return self._files.write(folder, rows, list(file.partition))

    def _rows(self, files: Sequence[tuple[DataFile, dict[str, int]]], schema: pa.Schema) -> pa.RecordBatchReader:
        """Return the rows of some batches, with all columns of the table."""

        def parts() -> Iterator[pa.RecordBatch]:
            for file, batches in files:
                rows = self._files.rows_of(file, list(batches))
                columns = [
                    rows[each.name] if each.name in rows.column_names else pa.nulls(rows.num_rows, each.type)
                    for each in schema
                ]
                yield from pa.table(columns, schema=schema).to_batches()

        return pa.RecordBatchReader.from_batches(schema, parts())


def _add_action(file: DataFile) -> AddAction:
    return AddAction(
        path=file.name,
        size=file.bytes,
        partition_values=file.partition,
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=file.stats,
    )
