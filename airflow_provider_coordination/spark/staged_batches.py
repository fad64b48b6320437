"""Rows that wait for the commit of a sink that reads them from files: each batch in a folder of its own.

A manifest, written last, lists the files of a batch: nothing is concluded from a listing of the folder. The folder's
name contains the fencing token of a lease, so that the next owner of the partition can remove it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.sinks import Rows
from airflow_provider_coordination.spark.staging import Staging
from airflow_provider_coordination.spark.storage import (
    delete_folder,
    file_size,
    join,
    read_table,
    schema_of,
    write_table,
)

BATCH_ID = "_batch_id"
"""The column that names a row's batch."""


@dataclass(frozen=True, kw_only=True)
class StagedBatch:
    """The staged rows of a batch.

    :param files: the files that hold the rows, at least one, with their sizes in bytes.
    :param rows: the number of rows.
    """

    files: Mapping[str, int]
    rows: int


class StagedBatches(Staging):
    """The staged batches of one sink.

    :param root: a folder that no other sink uses.
    :param access: the credentials for the folder.
    """

    def scratch(self, attempts: Sequence[Attempt]) -> str:
        """See `Sink.scratch`."""
        return self.folder(attempts[0]) + ".work"

    def stage(self, attempts: Sequence[Attempt], rows: Rows) -> None:
        """Write the rows of some batches; they replace what the same attempts staged before."""
        for attempt in attempts:
            delete_folder(self.folder(attempt), self._access)
        for attempt in attempts:
            count = rows.count(attempt.batch_id)
            if count:
                files = rows.write([attempt.batch_id], join(self.folder(attempt), "rows"))
            else:  # an empty file, because the columns are needed
                file = self._file(attempt)
                files = {file: write_table(rows.schema.empty_table(), file, self._access)}
            self._seal(attempt, count, files)

    def _file(self, attempt: Attempt) -> str:
        return join(self.folder(attempt), "rows", "part-0.parquet")

    def _seal(self, attempt: Attempt, rows: int, files: Mapping[str, int]) -> None:
        folder = join(self.folder(attempt), "rows")
        listed = [{"name": file.removeprefix(f"{folder}/"), "bytes": size} for file, size in files.items()]
        self.seal(attempt, {"rows": rows, "files": listed})

    def find(self, attempt: Attempt) -> StagedBatch:
        """Return what an attempt staged.

        :raises DeliveryError: if the manifest is missing, incomplete, or another attempt's.
        :raises MissingFileError: if one of the files is gone.
        """
        content = self.sealed(attempt)
        sizes = {join(self.folder(attempt), "rows", file["name"]): file["bytes"] for file in content["files"]}
        for file, size in sizes.items():
            if (found := file_size(file, self._access)) != size:
                problem = "is gone" if found is None else f"has {found} bytes instead of the {size} that were written"
                raise MissingFileError(f"batch {attempt.batch_id}: the staged file {file} {problem}")
        return StagedBatch(files=sizes, rows=content["rows"])

    def read(self, file: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a staged file.

        :param columns: only these columns; by default all.
        :raises MissingFileError: if the file is gone, as it is for a previous owner of the partition.
        """
        try:
            return read_table(file, columns, self._access)
        except FileNotFoundError:
            raise MissingFileError(f"the staged file {file} is gone") from None

    def schema(self, file: str) -> pa.Schema:
        """Return the columns of a staged file."""
        return schema_of(file, self._access).remove_metadata()
