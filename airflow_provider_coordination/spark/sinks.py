"""A sink: a Parquet dataset that takes each batch as one file, named by the batch id, which a rename makes visible.

What is written first is in a folder of its own that readers pass over, below the sink's path and so on its filesystem.
A manifest, written last, says what it holds: nothing is concluded from which files are there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import pyarrow as pa

from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError, dataset_file
from airflow_provider_coordination.spark.storage import (
    exists,
    file_size,
    join,
    publish,
    read_text,
    write_table,
    write_text,
)

MANIFEST = "_manifest.json"
"""The file in a staging folder that says what is staged."""


@dataclass(frozen=True, kw_only=True)
class StagedFile:
    """A file that is staged.

    :param name: its name in the staging folder.
    :param bytes: its size.
    :param rows: how many rows it holds.
    """

    name: str
    bytes: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class ParquetSink:
    """One sink.

    :param name: its name.
    :param output: the dataset's folder.
    :param where: which records go there, as a SQL predicate; None for all.
    """

    name: str
    output: str
    where: str | None = None

    def needs(self, batch: LandedBatch) -> bool:
        """Tell whether a batch has to be made for it: it has no file of the batch, or a rejected one."""
        return batch.redeliver or not exists(dataset_file(self.output, batch))

    def stage_rows(self, attempt: Attempt, rows: pa.Table) -> None:
        """Stage the rows of a batch; where there are none, see `stage_nothing`."""
        if not rows.num_rows:
            self.stage_nothing(attempt, rows.schema)
            return
        file = join(attempt.staging(self.output), "part-0.parquet")
        write_table(rows, file)
        self.stage_file(attempt, file, rows.num_rows)

    def stage_nothing(self, attempt: Attempt, schema: pa.Schema) -> None:
        """Stage that the batch has no rows for this sink.

        Where an earlier delivery left a file, one without rows takes its place: what is replaced by a rename is
        replaced only while this attempt may publish, and a deletion is not.
        """
        if not exists(dataset_file(self.output, attempt.batch)):
            self._seal(attempt)
            return
        file = join(attempt.staging(self.output), "part-0.parquet")
        write_table(schema.empty_table(), file)
        self.stage_file(attempt, file, 0)

    def stage_file(self, attempt: Attempt, file: str, rows: int) -> None:
        """Say that a file in the staging folder is all that the sink takes of a batch.

        :raises DeliveryError: if the file is gone.
        """
        size = file_size(file)
        if size is None:
            raise DeliveryError(f"batch {attempt.batch.batch_id}: the staged file {file} is gone")
        self._seal(attempt, StagedFile(name=file.rsplit("/", 1)[-1], bytes=size, rows=rows))

    def publish(self, attempt: Attempt) -> None:
        """Make visible what is staged of a batch, unless it is already; a rejected delivery is replaced.

        :raises DeliveryError: if what is staged is not whole, or was staged by somebody else.
        :raises MissingFileError: if what is staged is gone: a later owner swept it, or a person did.
        """
        if self.needs(attempt.batch):
            staging = attempt.staging(self.output)
            for staged in self._staged(attempt):
                publish(join(staging, staged.name), dataset_file(self.output, attempt.batch), size=staged.bytes)

    def _seal(self, attempt: Attempt, *files: StagedFile) -> None:
        manifest = {**_signature(attempt), "files": [asdict(file) for file in files]}
        write_text(join(attempt.staging(self.output), MANIFEST), json.dumps(manifest))

    def _staged(self, attempt: Attempt) -> list[StagedFile]:
        staging = attempt.staging(self.output)
        try:
            manifest = json.loads(read_text(join(staging, MANIFEST)))
            files = [StagedFile(**file) for file in manifest.pop("files")]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DeliveryError(
                f"batch {attempt.batch.batch_id}: what was staged in {staging} is gone or not whole: {error}"
            ) from None
        if manifest != _signature(attempt):
            raise DeliveryError(f"batch {attempt.batch.batch_id}: {staging} holds another delivery: {manifest}")
        return files


def _signature(attempt: Attempt) -> dict[str, str | int]:
    """Return what distinguishes the staged files of an attempt from those of any other."""
    return {"batch": attempt.batch.batch_id, "set": attempt.set_id, "fencing_token": attempt.fencing_token}
