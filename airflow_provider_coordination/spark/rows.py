"""The rows that a sink is to take of some batches: what was made of their records, or the letters of their bad ones."""

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
from airflow_provider_coordination.spark.transformation import Made, Transformation, Transformed, groups_of


class Letters:
    """The dead letters of some batches, each made when it is asked for; see `Rows`.

    :param schema: their columns.
    :param counts: how many each batch has.
    :param letters_of: makes those of a batch.
    :param access: how files are reached.
    """

    def __init__(
        self, schema: pa.Schema, counts: Mapping[str, int], letters_of: Callable[[str], pa.Table], access: Access
    ) -> None:
        self.schema = schema
        self._access = access
        self._counts = counts
        self._letters_of = letters_of

    def count(self, batch_id: str) -> int:
        """See `Rows.count`."""
        return self._counts[batch_id]

    def write(self, batch_ids: Collection[str], folder: str) -> Mapping[str, int]:
        """See `Rows.write`."""
        file = join(folder, "part-0.parquet")
        letters = pa.concat_tables([self._letters_of(batch_id) for batch_id in batch_ids])
        return {file: write_table(letters, file, self._access)}


class MadeRows:
    """Those rows, out of what was made of batches for all sinks, that one sink takes of some; see `Rows`.

    :param transformation: what made them.
    :param transformed: what it made.
    :param sink: the sink.
    :param number: the sink's, among those that rows are routed to.
    :param counts: how many it takes of each batch; those that it is not to take are left out.
    :param work: a folder that nobody else uses, for what is needed on the way.
    :param access: how files are reached.
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
        self._apart: Made | None = None
        self._lock = threading.Lock()
        columns = schema_of(next(iter(transformed.made.files)), access)
        self.schema = pa.schema([field for field in columns if field.name not in transformed.ours])

    def count(self, batch_id: str) -> int:
        """See `Rows.count`."""
        return self._counts[batch_id]

    def write(self, batch_ids: Collection[str], folder: str) -> Mapping[str, int]:
        """See `Rows.write`: files that hold what is asked for, and nothing else, are moved."""
        made = self._made_of(batch_ids)
        if made is None:
            return self._taken(batch_ids, folder).files
        if made.apart is None:
            return self._moved(made.files, folder)
        groups = groups_of(self._sink, batch_ids, self._transformed.shared_files)
        wanted = [file for group in groups for file in made.apart.get(group, ())]
        return self._moved({file: made.files[file] for file in wanted}, folder)

    def _made_of(self, batch_ids: Collection[str]) -> Made | None:
        """Return files of which some hold the rows of these batches, and no others, as the sink wants them."""
        made, asked = self._transformed.made, set(batch_ids)
        is_whole = all(each in asked or self._counts.get(each) == 0 for each in self._transformed.batch_ids)
        if not self._transformed.is_routed and (made.apart is not None or is_whole):
            return made
        if not self._sink.is_apart or len(groups_of(self._sink, self._counts, self._transformed.shared_files)) == 1:
            return None
        with self._lock:  # it asks batch by batch, for several at the same time, and they are read at once
            if self._apart is None:
                self._apart = self._taken(self._counts, self._work)
        return self._apart

    def _taken(self, batch_ids: Collection[str], folder: str) -> Made:
        return self._transformation.take(self._transformed, self._number, self._sink, batch_ids, folder)

    def _moved(self, files: Mapping[str, int], folder: str) -> dict[str, int]:
        """Move files to a folder; return where they are."""
        make_folder(folder, self._access)
        places = {file: join(folder, f"part-{n}.parquet") for n, file in enumerate(files)}
        at_once = calls_at_once(folder, self._access)
        each_at_once(places, lambda file: publish(file, places[file], access=self._access), at_once)
        return {places[file]: size for file, size in files.items()}
