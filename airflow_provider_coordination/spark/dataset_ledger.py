"""The ledger of a Parquet dataset: which batches its files hold, with their ranges and rows.

A folder of files has no commit. So each delivery writes one object to `_ledger/` before the first of its files becomes
visible. That object says what is about to appear, and is never changed. A batch is in the dataset if a file that the
ledger names for it is there with its size. If a job dies in between, its entry stays without a file, and the next owner
adds its own.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa

from airflow_provider_coordination.coordination.errors import SourceError, result_or_raise
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.concurrency import side_by_side
from airflow_provider_coordination.spark.dataset_compaction import Compactions, dataset_files, files_by_name, is_visible
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.files import FoundFile
from airflow_provider_coordination.spark.ledger import (
    BatchFault,
    IsOfSource,
    LedgerEntry,
    SinkContents,
    entry_of,
    short_description,
)
from airflow_provider_coordination.spark.parquet_files import row_count, rows_by_batch
from airflow_provider_coordination.spark.storage import (
    calls_at_once,
    delete_files,
    files_before,
    files_below,
    join,
    read_text,
    write_text,
)

FOLDER = "_ledger"
"""The folder below the dataset."""
MIN_MERGED = 100
"""Objects are merged from this number on."""
MERGED_BATCHES = 10_000
"""The number of batches of a merged object."""
MAX_NAMED = 20
"""The greatest number of unknown files that are named."""

Delivered = tuple[Mapping[str, Any], Mapping[str, int]]
"""A batch as it is described, and the sizes of its files by their names below the dataset."""


_Files = tuple[tuple[str, int], ...]
"""The names and sizes of the files of a batch."""
_Candidate = tuple[LedgerEntry, _Files]


class DatasetLedger:
    """The ledger of one dataset.

    :param path: the dataset's folder.
    :param access: the credentials for the folder.
    """

    def __init__(self, path: str, access: Access = DEFAULT_ACCESS) -> None:
        self._path = path
        self._access = access

    def add(self, batches: Sequence[tuple[Attempt, Mapping[str, int]]]) -> None:
        """Record batches that are about to become visible.

        :param batches: each with the sizes of its files, by their names below the dataset; none if it has no rows.
        """
        if batches:
            made = [{**short_description(attempt), "files": dict(files)} for attempt, files in batches]
            self._write(secrets.token_hex(12), made)

    def _write(self, name: str, batches: Sequence[Mapping[str, Any]]) -> None:
        content = json.dumps(batches, separators=(",", ":"))
        write_text(join(self._path, FOLDER, f"{name}.json"), content, self._access)

    def deliveries(self) -> Iterator[Delivered]:
        """Yield what deliveries recorded, in no order. A batch may be there several times."""
        for batch in self._read(lambda: files_below(join(self._path, FOLDER), self._access)):
            yield batch, batch["files"]

    def _read(self, listed: Callable[[], Iterable[str]]) -> Iterator[Mapping[str, Any]]:
        done: set[str] = set()
        while left := [name for name in listed() if name not in done]:
            read = side_by_side(left, lambda uri: read_text(uri, self._access), calls_at_once(self._path, self._access))
            has_vanished = False
            for name, content in read:
                done.add(name)
                if isinstance(content, FileNotFoundError):  # merged just now: what replaces it is in the next listing
                    has_vanished = True
                    continue
                try:
                    yield from msgspec.json.decode(result_or_raise(content))
                except msgspec.DecodeError as error:
                    raise SourceError(
                        f"ledger {name} is damaged: {error}; restore it from a backup, or delete it: the batches that "
                        "it names are then reported as missing"
                    ) from None
            if not has_vanished:
                return

    def merge(self, before: datetime) -> int:
        """Replace the objects that are older than an instant (aware) by few; return the number of replaced ones.

        If this ends in between, batches are there twice, which changes nothing.
        """
        old = files_before(join(self._path, FOLDER), before, self._access)
        if len(old) < MIN_MERGED:
            return 0
        group: dict[str, Mapping[str, Any]] = {}
        for batch in self._read(lambda: old):
            group[json.dumps(batch, sort_keys=True)] = batch
            if len(group) == MERGED_BATCHES:
                self._write(secrets.token_hex(12), list(group.values()))
                group.clear()
        if group:
            self._write(secrets.token_hex(12), list(group.values()))
        delete_files(old, self._access)
        return len(old)


def dataset_contents(
    path: str,
    deliveries: Iterable[Delivered],
    wanted: IsOfSource,
    *,
    reads_rows: bool,
    access: Access = DEFAULT_ACCESS,
    is_partial: bool = False,
) -> SinkContents:
    """Return what a dataset has.

    :param deliveries: what its deliveries recorded.
    :param wanted: the sources whose batches are wanted.
    :param reads_rows: whether to count the rows of each batch in the files.
    :param is_partial: see `SinkContents`; files that nobody recorded are then not reported.
    :raises OSError: if the folder cannot be read.
    """
    # In this order: a file that appears later is not missing, and a ledger is written before its files.
    found = files_by_name(path, access)
    dataset = _Dataset(path, found, access)
    candidates: dict[str, _Candidate] = {}
    repeated: dict[str, list[_Candidate]] = {}
    known: dict[str, str] = {}
    for described, named in deliveries:
        files = tuple((known.setdefault(name, name), size) for name, size in named.items())
        entry = entry_of(described)
        if (first := candidates.setdefault(entry.batch_id, (entry, files)))[0] is not entry:
            repeated.setdefault(entry.batch_id, [first]).append((entry, files))
    entries: list[LedgerEntry] = []
    faults: dict[str, BatchFault] = {}
    for batch_id, first in candidates.items():
        entry, fault = dataset.judged(repeated.get(batch_id, (first,)))
        if wanted(entry.source):
            entries.append(entry)
            if fault is not None:
                faults[batch_id] = fault
    others = [] if is_partial else list(dataset.unknown(known))
    if not found:
        others.append(f"there is no file in {path}: restore the dataset, or give the right path")
    counted: Counter[str] | None = None
    if reads_rows:
        counted, unread = count_rows(dataset_files(path, access), access)
        others += unread
        if not is_partial:
            others += [
                f"{rows} rows are of batch {batch_id}, which no delivery recorded"
                for batch_id, rows in counted.items()
                if batch_id not in candidates
            ]
    return SinkContents(
        location=path, entries=entries, faults=faults, counted=counted, others=others, is_partial=is_partial
    )


class _Dataset:
    """The files of a dataset.

    :param found: its files, by their names below it.
    """

    def __init__(self, path: str, found: Mapping[str, FoundFile], access: Access) -> None:
        self._path = path
        self._found = found
        self._access = access
        has_records = any(name.startswith("_compaction/") for name in found)
        self._merged = {
            name: group
            for record in (Compactions(path, access).records(with_done=True) if has_records else ())
            for group in record.groups
            for name in group.replaces
        }

    def judged(self, candidates: Sequence[_Candidate]) -> tuple[LedgerEntry, BatchFault | None]:
        """Return the delivery of a batch that counts, and what is wrong with it.

        An owner that finds a batch delivered records nothing. So the latest lease is the one that delivered, unless its
        job died, and then an earlier one may have.
        """
        if len(candidates) == 1:
            [(entry, files)] = candidates
            return entry, self._fault(files)
        latest = max(entry.fencing_token for entry, _ in candidates)
        ordered = sorted(candidates, key=lambda each: each[0].fencing_token, reverse=True)
        first: BatchFault | None = None
        for entry, files in ordered:
            if not files and entry.fencing_token < latest:
                continue  # that it has no rows shows nothing of another delivery
            fault = self._fault(files)
            if fault is None:
                return entry, None
            first = first or fault
        return ordered[0][0], first

    def _fault(self, files: _Files) -> BatchFault | None:
        missing, changed = [], []
        for name, size in files:
            at, expected = self._holder(name, size)
            there = self._found.get(at)
            if there is None:
                missing.append(
                    f"file {name!r} is gone"
                    + ("" if at == name else f", and so is {at!r}, into which it was compacted")
                )
            elif there.bytes != expected:
                changed.append(f"file {at!r} has {there.bytes} bytes instead of {expected}: others changed it")
        texts = missing + changed
        return BatchFault("; ".join(texts), len(missing) == len(files)) if texts else None

    def _holder(self, name: str, size: int) -> tuple[str, int]:
        """Return the file that holds the rows of a file now, and its size: itself, or one into which it was merged."""
        while name not in self._found and name in self._merged:
            group = self._merged[name]
            hidden = f"_compaction/{group.hidden}"
            name, size = (
                (hidden if hidden in self._found and group.file not in self._found else group.file),
                group.bytes,
            )
        return name, size

    def unknown(self, known: Collection[str]) -> Iterator[str]:
        """Yield a sentence about each visible file with rows that no delivery recorded."""
        merged = {group.file for group in self._merged.values()}
        names = sorted(n for n in self._found if is_visible(n) and n not in known and n not in merged)
        for name in names[:MAX_NAMED]:
            try:
                rows: int | None = row_count(join(self._path, name), self._access)
            except (pa.ArrowInvalid, FileNotFoundError):
                rows = None
            if rows != 0:  # a file without rows keeps a late request from taking its name
                count = "which cannot be read" if rows is None else f"with {rows} rows"
                yield (
                    f"file {name!r}, {count}, was not delivered by a job: remove it if it is a copy, since readers of "
                    "the folder see its rows"
                )
        if len(names) > MAX_NAMED:
            yield f"{len(names) - MAX_NAMED} more files were not delivered by a job"


def count_rows(files: Sequence[str], access: Access) -> tuple[Counter[str], list[str]]:
    """Return the number of rows of each batch in files, and a sentence about each file that cannot be counted."""
    counted: Counter[str] = Counter()
    faults: list[str] = []
    at_once = max(2, calls_at_once(files[0], access)) if files else 1
    for uri, result in side_by_side(files, lambda uri: rows_by_batch(uri, access), at_once):
        if isinstance(result, pa.ArrowInvalid | OSError):
            faults.append(f"file {uri} cannot be read: {result}; restore it from a backup")
        else:
            counted.update(result_or_raise(result))
    return counted, faults
