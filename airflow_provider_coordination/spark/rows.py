"""The rows of a delivery: the records to transform, what they become for all sinks, and what one sink takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.landed import EventTimeBounds
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.column_lineage import ColumnLineage
from airflow_provider_coordination.spark.concurrency import each_at_once
from airflow_provider_coordination.spark.parquet_files import schema_of, write_table
from airflow_provider_coordination.spark.payload import ERROR
from airflow_provider_coordination.spark.sinks import Rows, Sink
from airflow_provider_coordination.spark.storage import (
    calls_at_once,
    join,
    make_folder,
    publish,
)

ROUTE = "_coordination_to_{}"
"""In the rows for all sinks: the columns that say which sinks take a row."""


@dataclass(frozen=True, kw_only=True)
class TransformInput:
    """The records of one batch, as input of the transform.

    Checks that are known to find nothing are skipped.

    :param batch_id: the batch; every record has it in its column `_batch_id`.
    :param file: the file that holds the records.
    :param file_bytes: the size of the file in bytes.
    :param bounds: the event-time bounds; records outside are late or early, and not transformed. None if none is.
    :param has_unfit: whether some payloads do not fit the schema, and are not transformed.
    :param unfit: the records whose payloads do not fit, by their positions, if payloads are decoded.
    :param shared_file: see `Attempt.shared_file`.
    """

    batch_id: str
    file: str
    file_bytes: int
    bounds: EventTimeBounds | None = None
    has_unfit: bool = False
    unfit: frozenset[tuple[str, int]] = frozenset()
    shared_file: str | None = None


def shared_files_of(inputs: Sequence[TransformInput]) -> dict[str, str]:
    """Return the shared file of each batch, by batch id; batches that share none are left out."""
    return {each.batch_id: each.shared_file for each in inputs if each.shared_file is not None}


@dataclass(frozen=True, kw_only=True)
class RowFiles:
    """Files that hold rows of some batches.

    :param files: all files, at least one, with their sizes in bytes.
    :param by_group: the files of each group that has rows; None if a file may hold rows of several groups. A group is
        the batches that share a file in a sink, or one batch; see `groups_of`.
    """

    files: Mapping[str, int]
    by_group: Mapping[str, Sequence[str]] | None = None


@dataclass(frozen=True, kw_only=True)
class Transformed:
    """The transformed rows of some batches, for all sinks.

    :param batch_ids: the batches.
    :param output: the files that hold the rows.
    :param types: the types of the columns, by name.
    :param schema: the columns in the form in which the transformation reads the files back.
    :param shared_files: the shared file of each batch, by batch id; without batches that share none.
    :param lineage: what the columns are made of.
    """

    batch_ids: Sequence[str]
    output: RowFiles
    types: Mapping[str, str]
    schema: Any = None
    shared_files: Mapping[str, str] = field(default_factory=dict)
    lineage: ColumnLineage = field(default_factory=dict)

    @property
    def marks(self) -> bool:
        """Whether the transform may have marked rows as bad."""
        return ERROR in self.types

    @property
    def columns(self) -> dict[str, str]:
        """The types of the columns that sinks take, by name."""
        return {name: kind for name, kind in self.types.items() if name not in self.ours}

    @property
    def ours(self) -> list[str]:
        """The provider's own columns, which sinks do not take."""
        return [name for name in self.types if name == ERROR or name.startswith("_coordination_")]

    @property
    def is_routed(self) -> bool:
        """Whether columns say which rows each sink takes; there are none if the only sink takes every row."""
        return ROUTE.format(0) in self.types


def groups_of(sink: Sink, batch_ids: Collection[str], shared_files: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the batches of each group, for a sink that separates batches: each group's rows go to a file of its own.

    :param shared_files: the shared file of each batch, by batch id; without batches that share none.
    """
    groups: dict[str, list[str]] = {}
    for batch_id in batch_ids:
        shared = shared_files.get(batch_id) if sink.shares_files else None
        groups.setdefault(batch_id if shared is None else shared.rpartition("/")[-1], []).append(batch_id)
    return groups


class DeadLetterRows(Rows):
    """The dead letters of some batches, each made on request; see `Rows`.

    :param schema: the columns of dead letters.
    :param counts: the number of dead letters of each batch.
    :param dead_letters_of: makes the dead letters of a batch.
    :param access: the credentials for the files.
    """

    def __init__(
        self, schema: pa.Schema, counts: Mapping[str, int], dead_letters_of: Callable[[str], pa.Table], access: Access
    ) -> None:
        self.schema = schema
        self._access = access
        self._counts = counts
        self._dead_letters_of = dead_letters_of

    @override
    def count(self, batch_id: str) -> int:
        return self._counts[batch_id]

    @override
    def write(self, batch_ids: Collection[str], folder: str) -> Mapping[str, int]:
        file = join(folder, "part-0.parquet")
        rows = pa.concat_tables([self._dead_letters_of(batch_id) for batch_id in batch_ids])
        return {file: write_table(rows, file, self._access)}


class TransformedRows(Rows):
    """The transformed rows of some batches that one sink takes, out of the rows for all sinks; see `Rows`.

    :param transformed: the rows for all sinks.
    :param sink: the sink.
    :param select: writes the rows of batches that the sink takes to a folder; see `Transformation.select_rows`.
    :param counts: the number of rows that the sink takes of each batch; without the batches that it does not take.
    :param work: a folder for temporary files that no other sink uses.
    :param access: the credentials for the files.
    """

    def __init__(
        self,
        transformed: Transformed,
        sink: Sink,
        *,
        select: Callable[[Collection[str], str], RowFiles],
        counts: Mapping[str, int],
        work: str,
        access: Access,
    ) -> None:
        self._transformed = transformed
        self._sink = sink
        self._select = select
        self._counts = counts
        self._work = work
        self._access = access
        self._by_group: RowFiles | None = None
        self._lock = threading.Lock()
        columns = schema_of(next(iter(transformed.output.files)), access)
        self.schema = pa.schema([field for field in columns if field.name not in transformed.ours])

    @override
    def count(self, batch_id: str) -> int:
        return self._counts[batch_id]

    @override
    def write(self, batch_ids: Collection[str], folder: str) -> Mapping[str, int]:
        # Files that hold exactly the requested rows are moved.
        output = self._files_of(batch_ids)
        if output is None:
            return self._select(batch_ids, folder).files
        if output.by_group is None:
            return self._moved(output.files, folder)
        groups = groups_of(self._sink, batch_ids, self._transformed.shared_files)
        wanted = [file for group in groups for file in output.by_group.get(group, ())]
        return self._moved({file: output.files[file] for file in wanted}, folder)

    def _files_of(self, batch_ids: Collection[str]) -> RowFiles | None:
        """Return files from which the rows of exactly these batches can be picked, file by file, in the sink's form.

        :returns: None if there are no such files.
        """
        output, requested = self._transformed.output, set(batch_ids)
        is_complete = all(each in requested or self._counts.get(each) == 0 for each in self._transformed.batch_ids)
        if not self._transformed.is_routed and (output.by_group is not None or is_complete):
            return output
        if (
            not self._sink.separates_batches
            or len(groups_of(self._sink, self._counts, self._transformed.shared_files)) == 1
        ):
            return None
        with self._lock:  # the sink requests its batches one by one, several at a time; all are selected once
            if self._by_group is None:
                self._by_group = self._select(self._counts, self._work)
        return self._by_group

    def _moved(self, files: Mapping[str, int], folder: str) -> dict[str, int]:
        """Move files to a folder; return their new locations, with their sizes in bytes."""
        make_folder(folder, self._access)
        targets = {file: join(folder, f"part-{n}.parquet") for n, file in enumerate(files)}
        at_once = calls_at_once(folder, self._access)
        each_at_once(targets, lambda file: publish(file, targets[file], access=self._access), at_once)
        return {targets[file]: size for file, size in files.items()}
