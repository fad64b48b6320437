"""Compaction of a Parquet dataset: small files are merged while jobs deliver and readers read.

A folder of files has no commit that replaces several files at once. So a record decides, which readers follow by
`dataset_files`: it names the merged files and those that they replace. Records are numbered, and each number is created
once, so that two runs never merge the same file. A merged file goes through three steps, each in a later run:

1. It is written where readers of the folder do not look, and the record is created. Readers of records use it.
2. It gets a name that all readers see, and the replaced files are deleted.
3. The copy of the first step is deleted.

Between two steps passes at least the retention, so that nobody still reads what a step deletes.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.files import FoundFile
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.parquet_files import (
    DEFAULT_COMPRESSION,
    Compression,
    MergedFile,
    read_table,
    row_count,
    schema_of,
    values_of,
)
from airflow_provider_coordination.spark.sinks import Maintenance, MaintenanceResult
from airflow_provider_coordination.spark.storage import (
    copy_file,
    create_once,
    delete_file,
    exists,
    has_exclusive_names,
    join,
    open_files,
    publish,
    read_text,
    remove_files,
    write_text,
)

log = logging.getLogger(__name__)

FOLDER = "_compaction"
"""The folder below the dataset with records and merged files."""
RECORD, VISIBLE, DONE = "json", "visible", "done"
"""The ends of a record's name, and of the marks of its second and third step."""
ANNOUNCEMENT = "announced"
"""The end of the name of a file with the batches that a run is about to record."""
SMALL_SHARE = 0.5
"""A file is small below this share of the size of compacted files."""


@dataclass(frozen=True, kw_only=True)
class MergedGroup:
    """A merged file.

    :param file: its name in the dataset.
    :param bytes: its size.
    :param rows: the number of its rows.
    :param batches: the batches of its rows.
    :param replaces: the names of the files that it replaces.
    """

    file: str
    bytes: int
    rows: int
    batches: Sequence[str]
    replaces: Sequence[str]

    @property
    def hidden(self) -> str:
        """The name of its first copy, below `FOLDER`."""
        return self.file.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class CompactionRecord:
    """What one run merged.

    :param number: its number.
    :param groups: the merged files.
    :param marks: the steps that are made after the first one, and when (aware).
    :param at: when the record was made (aware).
    """

    number: int
    groups: Sequence[MergedGroup]
    at: datetime
    marks: Mapping[str, datetime] = field(default_factory=dict)

    def name_of(self, group: MergedGroup) -> str:
        """Return the name of the copy of a merged file that readers of records use."""
        return group.file if VISIBLE in self.marks else join(FOLDER, group.hidden)


class Compactions:
    """The records of one dataset.

    :param path: the dataset's folder.
    :param access: the credentials for the folder.
    """

    def __init__(self, path: str, access: Access = DEFAULT_ACCESS) -> None:
        self._path = path
        self._access = access

    def records(self, *, with_done: bool = False) -> list[CompactionRecord]:
        """Return the records, in order.

        :param with_done: whether to include those whose steps are all made.
        """
        found = files_by_name(join(self._path, FOLDER), self._access)
        marks: dict[int, dict[str, datetime]] = {}
        for name, info in found.items():
            number, _, end = name.partition(".")
            if number.isdigit() and "/" not in name:
                marks.setdefault(int(number), {})[end] = info.written or datetime.now(UTC)
        return [
            self._record(number, of)
            for number, of in sorted(marks.items())
            if RECORD in of and (with_done or DONE not in of)
        ]

    def _record(self, number: int, marks: Mapping[str, datetime]) -> CompactionRecord:
        content = json.loads(read_text(self.file(number, RECORD), self._access))
        groups = [MergedGroup(**each) for each in content["groups"]]
        at = datetime.fromisoformat(content["at"])
        return CompactionRecord(number=number, groups=groups, at=at, marks=marks)

    def batches(self) -> dict[str, str]:
        """Return the file that holds each batch that was ever compacted, by batch id."""
        return {
            batch_id: join(self._path, record.name_of(group))
            for record in self.records(with_done=True)  # a later record may have merged it again
            for group in record.groups
            for batch_id in group.batches
        }

    def _announced(self) -> dict[str, str]:
        """Return the announcement of each batch that a run is about to record."""
        folder, found = join(self._path, FOLDER), dict[str, str]()
        for name in files_by_name(folder, self._access):
            if name.endswith(f".{ANNOUNCEMENT}"):
                with suppress(FileNotFoundError):  # taken back just now
                    batch_ids = json.loads(read_text(join(folder, name), self._access))
                    found |= dict.fromkeys(batch_ids, join(folder, name))
        return found

    def check_absent(self, attempts: Sequence[Attempt]) -> None:
        """Check that no batch that was rejected is in a merged file, where its rows cannot be replaced.

        :raises DeliveryError: naming the batch, the file and the remedy.
        """
        batch_ids = [attempt.batch_id for attempt in attempts if attempt.batch.redeliver]
        # In this order: a run takes its announcement back after it has made its record.
        compacted = {**self._announced(), **self.batches()} if batch_ids else {}
        for batch_id in batch_ids:
            if batch_id in compacted:
                raise DeliveryError(
                    f"batch {batch_id} was rejected after its file was compacted into {compacted[batch_id]!r}; "
                    "acknowledge it by hand, and set 'retention' of the maintenance above the age at which a batch may "
                    "be rejected"
                )

    def file(self, number: int, end: str) -> str:
        """Return the file of a record, or of one of its marks."""
        return join(self._path, FOLDER, f"{number:08}.{end}")


def dataset_files(path: str, access: Access = DEFAULT_ACCESS) -> list[str]:
    """Return the files that together hold each row of a dataset once, whatever maintenance does at the same time.

    Read them within the retention of the maintenance.

    :param path: the dataset's folder.
    :param access: the credentials for a folder in a bucket.
    :returns: the files, in order of their names.
    """
    names = {name for name in files_by_name(path, access) if is_visible(name)}
    for record in Compactions(path, access).records():
        for group in record.groups:
            names -= {*group.replaces, group.file}
            names.add(record.name_of(group))
    return [join(path, name) for name in sorted(names)]


def maintain_dataset(
    path: str,
    wanted: Maintenance,
    *,
    access: Access = DEFAULT_ACCESS,
    compression: Compression = DEFAULT_COMPRESSION,
    left_out: Callable[[], Collection[str]] = tuple,
    now: datetime | None = None,
) -> MaintenanceResult:
    """Make the due steps of earlier runs, and merge small files that are older than the retention.

    :param compression: of the merged files.
    :param left_out: returns the names of files that are not merged.
    :param now: the time of the run (aware).
    :raises ConfigurationError: if the filesystem cannot create a name once.
    """
    if not has_exclusive_names(path, access):
        raise ConfigurationError(
            f"dataset {path!r} is on a filesystem where two writers can create the same name; compact a dataset on a "
            "local disk, HDFS or S3"
        )
    maintenance = _Maintenance(path, wanted, access, compression, now or datetime.now(UTC))
    number, size = maintenance.continue_records()
    merged = maintenance.merge(left_out()) if wanted.compact else 0
    return MaintenanceResult(files_compacted=merged, files_removed=number, bytes_removed=size)


class _Maintenance:
    """One run; see `maintain_dataset`."""

    def __init__(self, path: str, wanted: Maintenance, access: Access, compression: Compression, now: datetime) -> None:
        self._path = path
        self._wanted = wanted
        self._access = access
        self._compression = compression
        self._now = now
        self._compactions = Compactions(path, access)

    def continue_records(self) -> tuple[int, int]:
        """Make the due steps of earlier runs; return the number of removed files, and their size in bytes."""
        removed: list[str] = []
        open_records = self._compactions.records()
        for record in open_records:
            visible_at = record.marks.get(VISIBLE)
            hidden = [join(self._path, FOLDER, group.hidden) for group in record.groups]
            if visible_at is None and self._is_due(record.at):
                self._show(record)
            if visible_at is not None or self._is_due(record.at):
                removed += [join(self._path, name) for group in record.groups for name in group.replaces]
            if visible_at is not None and self._is_due(visible_at):
                removed += hidden
        done = [r for r in open_records if VISIBLE in r.marks and self._is_due(r.marks[VISIBLE])]
        removed += self._unrecorded()
        number, size = remove_files(removed, self._access, is_dry_run=self._wanted.is_dry_run)
        for record in done if not self._wanted.is_dry_run else ():
            write_text(self._compactions.file(record.number, DONE), "", self._access)
        return number, size

    def _is_due(self, since: datetime) -> bool:
        return self._now - since >= self._wanted.retention

    def _show(self, record: CompactionRecord) -> None:
        """Give merged files the names that all readers see; from the mark on, readers of records use these."""
        if self._wanted.is_dry_run:
            return
        for group in record.groups:
            hidden, target = join(self._path, FOLDER, group.hidden), join(self._path, group.file)
            copy = join(self._path, FOLDER, f"{group.hidden}.{secrets.token_hex(4)}.copy")
            if not exists(target, self._access):
                copy_file(hidden, copy, self._access)
                publish(copy, target, size=group.bytes, access=self._access)
        write_text(self._compactions.file(record.number, VISIBLE), "", self._access)

    def _unrecorded(self) -> Iterator[str]:
        """Yield old merged files and copies that no record names, because a run ended before it made one."""
        below = files_by_name(join(self._path, FOLDER), self._access)
        # Read after the files are listed: another run may have made a record just now.
        named = {group.hidden for record in self._compactions.records() for group in record.groups}
        for name, found in below.items():
            is_data = name.endswith((".parquet", ".copy", f".{ANNOUNCEMENT}"))
            if is_data and name not in named and found.written is not None and self._is_due(found.written):
                yield join(self._path, FOLDER, name)

    def merge(self, left_out: Collection[str]) -> int:
        """Merge small files, and record that; return the number of merged files."""
        records = self._compactions.records(with_done=True)
        number = max((record.number for record in records), default=0) + 1
        busy = {n for r in records if DONE not in r.marks for g in r.groups for n in (g.file, *g.replaces)}
        busy |= set(left_out)
        before = files_by_name(self._path, self._access)
        groups = list(self._groups(before, busy))
        if self._wanted.is_dry_run or not groups:
            return sum(map(len, groups))
        merged = [self._merge(group) for group in groups]
        content = {"at": self._now.isoformat(), "groups": [vars(each) for each in merged]}
        with self._announcing(merged):
            after = files_by_name(self._path, self._access)
            changed = [name for group in groups for name in group if after.get(name) != before[name]]
            if changed:
                said = f"file {changed[0]} changed while it was merged"
            elif create_once(self._compactions.file(number, RECORD), json.dumps(content), self._access):
                return sum(map(len, groups))
            else:
                said = f"another run made the record {number}"
        log.info("dataset %s: %s; this run merges nothing", self._path, said)
        for each in merged:
            delete_file(join(self._path, FOLDER, each.hidden), self._access)
        return 0

    @contextmanager
    def _announcing(self, merged: Sequence[MergedGroup]) -> Iterator[None]:
        """Announce batches until they are recorded.

        Whoever replaces one of their files looks for announcements afterwards, and this run looks for replaced files
        afterwards. So at least one of the two notices the other. After an error the announcement stays, as the record
        may still appear; a later run removes it.
        """
        file = join(self._path, FOLDER, f"{secrets.token_hex(8)}.{ANNOUNCEMENT}")
        write_text(file, json.dumps([batch_id for group in merged for batch_id in group.batches]), self._access)
        yield
        delete_file(file, self._access)

    def _groups(self, files_now: Mapping[str, FoundFile], busy: Collection[str]) -> Iterator[list[str]]:
        """Yield the names of files to merge: small ones of a folder with the same columns, and only several."""
        target = self._wanted.target_file_bytes
        alike: dict[tuple[str, pa.Schema], list[tuple[str, int]]] = {}
        for name, found in sorted(files_now.items()):
            is_old = found.written is not None and self._is_due(found.written)
            if is_visible(name) and name not in busy and is_old and found.bytes < target * SMALL_SHARE:
                schema = schema_of(join(self._path, name), self._access).remove_metadata()
                # A file without rows keeps its name from a late request. A file of another writer stays as it is.
                if BATCH_ID in schema.names and row_count(join(self._path, name), self._access):
                    alike.setdefault((name.rpartition("/")[0], schema), []).append((name, found.bytes))
        for files in alike.values():
            group: list[str] = []
            size = 0
            for name, file_bytes in files:
                if size + file_bytes > target:
                    if len(group) > 1:
                        yield group
                    group, size = [], 0
                group.append(name)
                size += file_bytes
            if len(group) > 1:
                yield group

    def _merge(self, names: Sequence[str]) -> MergedGroup:
        """Write the rows of files to a new one that no reader sees."""
        uris = [join(self._path, name) for name in names]
        file = join(self._path, FOLDER, f"compacted-{secrets.token_hex(8)}.parquet")
        schema = schema_of(uris[0], self._access).remove_metadata()
        with MergedFile(file, schema, self._access, self._compression) as merged:
            for uri in uris:
                merged.add(read_table(uri, access=self._access))
        batches = {batch_id for uri in uris for batch_id in values_of(uri, BATCH_ID, self._access)}
        folder = names[0].rpartition("/")[0]
        return MergedGroup(
            file="/".join(filter(None, (folder, file.rpartition("/")[2]))),
            bytes=merged.size,
            rows=row_count(file, self._access),
            batches=sorted(batches),
            replaces=list(names),
        )


def files_by_name(path: str, access: Access) -> dict[str, FoundFile]:
    """Return the files below a folder, by their names relative to it."""
    files, root = open_files(path, access)
    return {each.path[len(root) :].lstrip("/"): each for each in files.below(root) or ()}


def is_visible(name: str) -> bool:
    """Return whether readers of the folder see a file."""
    folders = name.split("/")[:-1]
    is_hidden = any(each.startswith(("_", ".")) and "=" not in each for each in (*folders, name.rpartition("/")[2]))
    return name.endswith(".parquet") and not is_hidden
