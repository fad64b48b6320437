"""A Parquet dataset whose files are written for it: in Hive folders by column, or with a chosen compression.

A batch has one file in each of its partitions, and these files become visible one by one. So a record decides which of
them count. Each delivery of a batch creates the next record, which names its files, and no other delivery has these
names. Each number is created once. First the files of earlier records are taken away for good; then its own appear; a
second file says that the batch is in. A previous owner that continues finds its staged files gone, or their names
taken.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import ConfigurationError, result_or_raise
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.concurrency import each_at_once, side_by_side
from airflow_provider_coordination.spark.dataset_compaction import Compactions, dataset_files, maintain_dataset
from airflow_provider_coordination.spark.dataset_ledger import Delivered, dataset_contents
from airflow_provider_coordination.spark.delivery import Attempt, Delivery, DeliveryError
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.ledger import IsOfSource, SinkContents, short_description
from airflow_provider_coordination.spark.parquet_files import (
    DEFAULT_COMPRESSION,
    Compression,
    read_table,
    row_count,
    write_table,
)
from airflow_provider_coordination.spark.shared_files import claim_of
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import Maintenance, MaintenanceResult, Rows, Sink
from airflow_provider_coordination.spark.staging import StagedBatches, listed
from airflow_provider_coordination.spark.storage import (
    calls_at_once,
    check_writable,
    create_once,
    delete_folder,
    exists,
    files_below,
    has_exclusive_names,
    join,
    open_files,
    publish,
    read_text,
    renames,
    write_text,
)
from airflow_provider_coordination.spark.table_sinks import LandedDelivery
from airflow_provider_coordination.spark.writes import ParquetDataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

BATCHES = "_batches"
"""The folder below the dataset with the records of its batches."""
LAYOUT = "_layout.json"
RECORD, DONE = "json", "done"
"""The ends of the names of a record, and of the file that says that its batch is in."""
NULL = "__HIVE_DEFAULT_PARTITION__"
ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
"""The characters that Spark and Hive escape in the names of partition folders."""
MAX_NAME_BYTES = 255
MANY_FILES = 1_000
"""From this number of files in one delivery on, a warning names the cause."""
_AT = "_coordination_at"


@dataclass(frozen=True, kw_only=True)
class DeliveryRecord:
    """A delivery of a batch.

    :param number: the number of the batch's earlier records.
    :param set_id: its acknowledgment set.
    :param fencing_token: the fencing token of its lease.
    :param folder: the folder where its files are staged, below the dataset.
    :param files: the sizes in bytes of its files, by their names below the dataset.
    :param described: the batch; see `short_description`.
    """

    number: int
    set_id: str
    fencing_token: int
    folder: str
    files: Mapping[str, int]
    described: Mapping[str, Any]


class PartitionedDataset(Sink):
    """A Parquet dataset whose files are written for it; a `Sink`.

    :param name: the name of the sink.
    :param path: the folder of the dataset.
    :param where: which records go to the dataset, as a SQL predicate; None for all.
    :param access: how to reach the dataset.
    :param partition_by: the columns of the Hive folders, from the outermost; empty for none.
    :param compression: the compression of its files.
    """

    separates_batches: ClassVar[bool] = True
    accepts_landed_files: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        path: str,
        where: str | None = None,
        access: Access = DEFAULT_ACCESS,
        *,
        partition_by: tuple[str, ...] = (),
        compression: Compression = DEFAULT_COMPRESSION,
    ) -> None:
        self.name = name
        self.where = where
        self.path = path
        self._access = access
        self.partition_by = partition_by
        self.compression = compression

    @property
    @override
    def location(self) -> str:
        return self.path

    @property
    @override
    def access(self) -> Access:
        return self._access

    @override
    def check(self) -> None:
        what = f"ParquetDataset {self.name!r}: field 'path'"
        check_writable(what, self.path, self.access)
        if not has_exclusive_names(self.path, self.access):
            raise ConfigurationError(
                f"{what} is {self.path!r}, where two writers can create the same name; leave out 'partition_by' and "
                "'compression', or use a local disk, HDFS or S3"
            )
        known = recorded_partitioning(self.path, self.access)
        if known is None:
            if dataset_files(self.path, self.access):
                raise ConfigurationError(
                    f"{what} is {self.path!r}, which holds files without 'partition_by' and 'compression'; leave these "
                    "out, or give another path"
                )
            write_text(join(self.path, BATCHES, LAYOUT), json.dumps(list(self.partition_by)), self.access)
        elif known != list(self.partition_by):
            raise ConfigurationError(
                f"ParquetDataset {self.name!r}: field 'partition_by' is {list(self.partition_by)}, but the dataset in "
                f"{self.path!r} is partitioned by {known}; give these columns, or another path"
            )

    @property
    @override
    def required_columns(self) -> Mapping[str, Sequence[str]]:
        return {"'partition_by'": self.partition_by}

    @override
    def committed(self, attempts: Sequence[Attempt]) -> set[str]:
        ids = [attempt.batch_id for attempt in attempts]
        checks = side_by_side(ids, self._is_in, calls_at_once(self.path, self.access))
        return {batch_id for batch_id, is_in in checks if result_or_raise(is_in)}

    def _is_in(self, batch_id: str) -> bool:
        records = self._records(batch_id)
        return bool(records) and self._is_done(batch_id, records[-1])

    def _is_done(self, batch_id: str, record: DeliveryRecord) -> bool:
        return exists(self._file(batch_id, record.number, DONE), self.access)

    def _file(self, batch_id: str, number: int, end: str) -> str:
        return join(self.path, BATCHES, f"{batch_id}.{number}.{end}")

    def _records(self, batch_id: str) -> list[DeliveryRecord]:
        """Return the records of a batch, in order."""
        records: list[DeliveryRecord] = []
        while True:
            try:
                content = json.loads(read_text(self._file(batch_id, len(records), RECORD), self.access))
            except FileNotFoundError:
                return records
            records.append(DeliveryRecord(number=len(records), **content))

    @override
    def repartition(self, rows: DataFrame) -> DataFrame:
        return rows.coalesce(1)  # the staged file is split here

    @override
    def scratch(self, attempts: Sequence[Attempt]) -> str:
        return self._staged.scratch(attempts)

    @property
    def _staged(self) -> StagedBatches:
        return StagedBatches(self.path, self.access)

    @property
    def _compacted(self) -> Compactions:
        return Compactions(self.path, self.access)

    @override
    def prepare(self, attempts: Sequence[Attempt], rows: Rows) -> None:
        self._compacted.check_absent(attempts)
        written: list[int] = []
        at_once = calls_at_once(self.path, self.access)
        each_at_once(attempts, lambda attempt: written.append(self._stage(attempt, rows)), at_once)
        if sum(written) > MANY_FILES:
            log.warning(
                "dataset %s: a delivery makes %d files, one for each batch and value of %s; partition it by columns "
                "with fewer values, and compact it", self.path, sum(written), ", ".join(self.partition_by),
            )  # fmt: skip

    def _stage(self, attempt: Attempt, rows: Rows) -> int:
        """Stage the files of a batch, one partition at a time; return their number."""
        folder = self._staged.folder(attempt)
        delete_folder(folder, self.access)
        written = rows.write([attempt.batch_id], join(folder, "whole")) if rows.count(attempt.batch_id) else {}
        name = f"{attempt.batch_id}-{secrets.token_hex(4)}.parquet"  # of this delivery alone
        files: dict[str, int] = {}
        for file in written:
            for hive, part in split_by_partition(read_table(file, access=self.access), self.partition_by):
                target = join(folder, "rows", *hive, name)
                files[target] = write_table(part, target, self.access, self.compression)
        columns = pa.schema([field for field in rows.schema if field.name not in self.partition_by])
        encoded = b64encode(columns.serialize()).decode()
        self._staged.seal(attempt, {"files": listed(join(folder, "rows"), files), "columns": encoded})
        return len(files)

    @override
    def commit(self, attempts: Sequence[Attempt]) -> None:
        each_at_once(attempts, self._deliver, calls_at_once(self.path, self.access))

    def _deliver(self, attempt: Attempt) -> None:
        """Record a delivery and publish its files, unless the batch is in.

        :raises DeliveryError: if a later owner delivers the batch.
        """
        folder = self._staged.folder(attempt)
        while True:
            records = self._records(attempt.batch_id)
            if records and self._is_taken(attempt, records[-1]):
                return
            files = {each["name"]: each["bytes"] for each in self._staged.sealed(attempt)["files"]}
            own = DeliveryRecord(
                number=len(records),
                set_id=attempt.set_id,
                fencing_token=attempt.fencing_token,
                folder=folder.removeprefix(join(self.path, "")),
                files=files,
                described=short_description(attempt),
            )
            if records and replace(own, number=records[-1].number) == records[-1]:
                own = records.pop()  # a commit that is repeated
                break
            content = {name: value for name, value in vars(own).items() if name != "number"}
            if create_once(self._file(attempt.batch_id, own.number, RECORD), json.dumps(content), self.access):
                break  # otherwise another owner was first
        self._take_away(attempt, records)
        for name, size in files.items():
            self._publish(attempt, name, size)
        self._compacted.check_absent([attempt])  # a compaction that has read the replaced files hides these
        write_text(self._file(attempt.batch_id, own.number, DONE), "", self.access)

    def _is_taken(self, attempt: Attempt, last: DeliveryRecord) -> bool:
        """Return whether an earlier delivery of a batch is the valid one."""
        is_valid = not attempt.batch.redeliver or last.set_id == attempt.set_id
        if is_valid and self._is_done(attempt.batch_id, last):
            return True
        if last.fencing_token > attempt.fencing_token:
            raise DeliveryError(
                f"batch {attempt.batch_id} is delivered under fencing token {last.fencing_token}, but this job has "
                f"token {attempt.fencing_token}: another owner has the partition"
            )
        return False

    def _take_away(self, attempt: Attempt, records: Sequence[DeliveryRecord]) -> None:
        """Replace the files of earlier deliveries by files without rows, so that their rows never appear again."""
        if not records:
            return
        own = self._staged.folder(attempt)
        columns = pa.ipc.read_schema(pa.py_buffer(b64decode(self._staged.sealed(attempt)["columns"])))
        claim = replace(claim_of(attempt), replaces=True)
        for record in records:
            folder = join(self.path, record.folder)
            if folder != own:
                delete_folder(folder, self.access)  # where files are renamed, none appears from now on
            for name in record.files:
                target = join(self.path, name)
                if renames(self.path, self.access) and not exists(target, self.access):
                    continue
                staged = join(own, "replaced", name)
                size = write_table(columns.empty_table(), staged, self.access, self.compression)
                publish(staged, target, size=size, claim=claim, access=self.access)

    def _publish(self, attempt: Attempt, name: str, size: int) -> None:
        """Make a file of this delivery visible.

        :raises MissingFileError: if a later delivery has taken it away.
        """
        _make_folders(self.path, name.rpartition("/")[0], self.access)
        staged, target = join(self._staged.folder(attempt), "rows", name), join(self.path, name)
        claim = replace(claim_of(attempt), replaces=False)
        with suppress(MissingFileError):
            if publish(staged, target, size=size, claim=claim, access=self.access):
                return
        if not (exists(target, self.access) and row_count(target, self.access)):  # else this delivery published it
            raise MissingFileError(f"{target} was taken away by another owner, who delivers batch {attempt.batch_id}")

    @override
    def discard(self, attempts: Sequence[Attempt]) -> None:
        self._staged.discard(attempts)

    @override
    def sweep(self, tokens: Mapping[str, int]) -> None:
        self._staged.sweep(tokens)

    @override
    def landed_delivery(self, *, keep: bool) -> Delivery:
        # Landed files are always kept.
        return LandedDelivery(self, self.access)

    @override
    def maintain(self, wanted: Maintenance) -> MaintenanceResult:
        return maintain_dataset(
            self.path, wanted, access=self.access, compression=self.compression, left_out=self._unfinished
        )

    @override
    def contents(self, wanted: IsOfSource, *, reads_rows: bool) -> SinkContents:
        return dataset_contents(self.path, self._delivered(), wanted, reads_rows=reads_rows, access=self.access)

    def _delivered(self) -> Iterator[Delivered]:
        """Yield the batches whose last delivery has ended, with their files."""
        latest: dict[str, int] = {}
        names = {file.rpartition("/")[2] for file in files_below(join(self.path, BATCHES), self.access)}
        for name in names:
            batch_id, _, number = name.removesuffix(f".{RECORD}").rpartition(".")
            if name.endswith(f".{RECORD}") and number.isdigit() and f"{batch_id}.{number}.{DONE}" in names:
                latest[batch_id] = max(latest.get(batch_id, 0), int(number))
        files = [self._file(batch_id, number, RECORD) for batch_id, number in latest.items()]
        at_once = calls_at_once(self.path, self.access)
        for _, content in side_by_side(files, lambda file: read_text(file, self.access), at_once):
            record = json.loads(result_or_raise(content))
            yield record["described"], record["files"]

    def _unfinished(self) -> set[str]:
        """Return the names of the files that deliveries without an end have, which the next delivery takes away."""
        names = [file.rpartition("/")[2] for file in files_below(join(self.path, BATCHES), self.access)]
        done = {name.removesuffix(DONE) for name in names if name.endswith(f".{DONE}")}
        records = [name for name in names if name != LAYOUT and name.endswith(f".{RECORD}")]
        unfinished = [name for name in records if name.removesuffix(RECORD) not in done]
        read = (json.loads(read_text(join(self.path, BATCHES, name), self.access)) for name in unfinished)
        return {file for content in read for file in content["files"]}


def partitioned_dataset(
    settings: SinkSettings, dataset: ParquetDataset, access: Access = DEFAULT_ACCESS
) -> PartitionedDataset | None:
    """Return the sink of a dataset whose files are written for it; None if batches keep their files.

    :param settings: the settings of the sink.
    :param dataset: its description.
    :param access: how to reach the dataset.
    """
    compression = Compression(codec=dataset.compression, level=dataset.compression_level)
    if not dataset.partition_by and compression == DEFAULT_COMPRESSION:
        return None
    return PartitionedDataset(
        settings.name,
        settings.location,
        settings.where,
        access,
        partition_by=tuple(dataset.partition_by),
        compression=compression,
    )


def check_not_partitioned(field: str, path: str, access: Access = DEFAULT_ACCESS) -> None:
    """Check that the files of a dataset are not written for it.

    :param field: the field that names the dataset, for the error.
    :raises ConfigurationError: naming the field, the dataset and the remedy.
    """
    if (columns := recorded_partitioning(path, access)) is not None:
        raise ConfigurationError(
            f"{field} is {path!r}, a dataset with 'partition_by' = {columns} or with another 'compression'; set them "
            "as before, or give another path"
        )


def recorded_partitioning(path: str, access: Access = DEFAULT_ACCESS) -> list[str] | None:
    """Return the partition columns of a dataset whose files were written for it; None if it is no such dataset."""
    try:
        return list(json.loads(read_text(join(path, BATCHES, LAYOUT), access)))
    except (FileNotFoundError, ValueError):
        return None


def split_by_partition(rows: pa.Table, partition_by: Sequence[str]) -> Iterator[tuple[list[str], pa.Table]]:
    """Yield the Hive folders of each partition, with the partition's rows without the partition columns.

    :raises DeliveryError: naming the column, if a value cannot be the name of a folder.
    """
    if not partition_by:
        yield [], rows
        return
    for name in partition_by:
        kind = rows.schema.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_binary(kind) or pa.types.is_nested(kind):
            raise DeliveryError(
                f"column {name!r} partitions the dataset, and is {kind}, which has no exact text; convert it in the "
                "transform, or partition by another column"
            )
    keys = rows.select(partition_by).append_column(_AT, pa.array(range(rows.num_rows), pa.int64()))
    rest = rows.drop_columns(list(partition_by))
    for group in keys.group_by(list(partition_by)).aggregate([(_AT, "list")]).to_batches():
        for key in group.to_pylist():
            folders = [hive_folder(name, key[name]) for name in partition_by]
            yield folders, rest.take(pa.array(sorted(key[f"{_AT}_list"]), pa.int64()))


def hive_folder(name: str, value: Any) -> str:
    """Return the name of the folder of a partition column's value.

    :raises DeliveryError: naming the column, if readers would not see the value.
    """
    match value:
        case None:
            text = NULL
        case bool():
            text = str(value).lower()
        case datetime():
            text = value.isoformat(sep=" ")
        case date():
            text = value.isoformat()
        case _:
            text = str(value)
    if text == "" or (value is not None and text == NULL):
        raise DeliveryError(
            f"column {name!r} partitions the dataset, and has the text {text!r}, which readers see as null; convert it "
            "in the transform"
        )
    folder = f"{_escaped(name)}={_escaped(text)}"
    if len(folder.encode()) > MAX_NAME_BYTES:
        raise DeliveryError(
            f"column {name!r} partitions the dataset, and has a value of {len(text)} characters, which is too long for "
            "the name of a folder; shorten it in the transform, or partition by another column"
        )
    return folder


def _escaped(text: str) -> str:
    return ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _make_folders(root: str, name: str, access: Access) -> None:
    """Create a folder below a root, durably, if the filesystem has folders and there is none.

    :param name: its path below the root; empty for the root itself.
    """
    files, path = open_files(root, access)
    if not name or not files.renames or files.exists(f"{path}/{name}"):
        return
    files.make_folder(f"{path}/{name}")
    parts = name.split("/")
    for depth in range(len(parts)):
        files.flush_folder("/".join((path, *parts[:depth])))
