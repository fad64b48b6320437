"""A sink: a Parquet dataset that takes each batch as one file, named by the batch id, which a rename makes visible.

What is written first is in a folder of its own that readers pass over, below the sink's path and so on its filesystem.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.delivery import DeliveryError, dataset_file
from airflow_provider_coordination.spark.storage import (
    delete_file,
    delete_folder,
    exists,
    files_below,
    join,
    publish,
    write_text,
)

SPARK_WROTE_ALL = "_SUCCESS"
"""The file that Spark puts beside what it wrote, last."""


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

    def staging(self, folder: str, batch: LandedBatch, fencing_token: int) -> str:
        """Return the folder where one owner of a lease puts what the sink is to take of a batch."""
        return join(self.output, "_staging", folder, f"{batch.batch_id}.{fencing_token}")

    @staticmethod
    def mark_whole(staging: str) -> None:
        """Say that a staging folder holds all that it will, if only nothing."""
        write_text(join(staging, SPARK_WROTE_ALL), "")

    def publish(self, folder: str, batch: LandedBatch, fencing_token: int) -> None:
        """Make visible what is staged of a batch, unless it is already; a rejected delivery is replaced.

        :raises DeliveryError: if what is staged is not there, or not whole.
        """
        target = dataset_file(self.output, batch)
        staging = self.staging(folder, batch, fencing_token)
        if self.needs(batch):
            if not exists(join(staging, SPARK_WROTE_ALL)):
                raise DeliveryError(f"batch {batch.batch_id}: what was staged in {staging} is gone or not whole")
            files = parquet_files(staging)
            if len(files) > 1:
                raise DeliveryError(
                    f"batch {batch.batch_id}: expected one staged file, found {len(files)} in {staging}"
                )
            for file in files:
                publish(file, target)
            if not files:
                delete_file(target)
        delete_folder(staging)

    def sweep(self, folder: str) -> None:
        """Remove a partition's staging folder."""
        delete_folder(join(self.output, "_staging", folder))


def parquet_files(folder: str) -> list[str]:
    """Return the Parquet files below a folder."""
    return [file for file in files_below(folder) if file.endswith(".parquet")]
