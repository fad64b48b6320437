"""The rows of some batches for a sink: transformed records, or the dead letters of bad records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

import pyarrow as pa

from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.concurrency import each_at_once
from airflow_provider_coordination.spark.sinks import Sink
from airflow_provider_coordination.spark.storage import (
    calls_at_once,
    join,
    make_folder,
    publish,
    schema_of,
    write_table,
)
from airflow_provider_coordination.spark.transformation import RowFiles, Transformation, Transformed, groups_of


class DeadLetterRows:
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

    def count(self, batch_id: str) -> int:
        """See `Rows.count`."""
        return self._counts[batch_id]

    def write(self, batch_ids: Collection[str], folder: str) -> Mapping[str, int]:
        """See `Rows.write`."""
        file = join(folder, "part-0.parquet")
        rows = pa.concat_tables([self._dead_letters_of(batch_id) for batch_id in batch_ids])
        return {file: write_table(rows, file, self._access)}


class TransformedRows:
    """The transformed rows of some batches that one sink takes, out of the rows for all sinks; see `Rows`.

    :param transformation: the transformation that made the rows.
    :param transformed: its result, for all sinks.
    :param sink: the sink.
    :param number: the sink's number among the sinks that rows are routed to.
    :param counts: the number of rows that the sink takes of each batch; without the batches that it does not take.
    :param work: a folder for temporary files that no other sink uses.
    :param access: the credentials for the files.
    """

    def __init__(
        self,
        transformation: Transformation,
        transformed: Transformed,
        sink: Sink,
        *,
        number: int,
        counts: Mapping[str, int],
        work: str,
        access: Access,
    ) -> None:
        self._transformation = transformation
        self._transformed = transformed
        self._sink = sink
        self._number = number
        self._counts = counts
        self._work = work
        self._access = access
        self._by_group: RowFiles | None = None
        self._lock = threading.Lock()
        columns = schema_of(next(iter(transformed.output.files)), access)
        self.schema = pa.schema([field for field in columns if field.name not in transformed.ours])

    def count(self, batch_id: str) -> int:
        """See `Rows.count`."""
        return self._counts[batch_id]

    def write(self, batch_ids: Collection[str], folder: str) -> Mapping[str, int]:
        """See `Rows.write`: files that hold exactly the requested rows are moved."""
        output = self._files_of(batch_ids)
        if output is None:
            return self._selected(batch_ids, folder).files
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
                self._by_group = self._selected(self._counts, self._work)
        return self._by_group

    def _selected(self, batch_ids: Collection[str], folder: str) -> RowFiles:
        return self._transformation.select_rows(self._transformed, self._number, self._sink, batch_ids, folder)

    def _moved(self, files: Mapping[str, int], folder: str) -> dict[str, int]:
        """Move files to a folder; return their new locations, with their sizes in bytes."""
        make_folder(folder, self._access)
        targets = {file: join(folder, f"part-{n}.parquet") for n, file in enumerate(files)}
        at_once = calls_at_once(folder, self._access)
        each_at_once(targets, lambda file: publish(file, targets[file], access=self._access), at_once)
        return {targets[file]: size for file, size in files.items()}
