"""Delivery: a landed batch goes into the dataset once, however often it is tried and by however many workers.

A batch becomes one file named by its batch id, and a rename makes it visible whole. Whoever delivers it again finds
the file.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.sources.kinesis.progress import LandedBatch
from airflow_provider_coordination.spark.landing import file_name, token_of
from airflow_provider_coordination.spark.storage import (
    delete_file,
    delete_folder,
    exists,
    files_below,
    join,
    make_folder,
    publish,
    write_text,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Transform = Callable[["DataFrame"], "DataFrame"]

SINK = "main"

SPARK_WROTE_ALL = "_SUCCESS"
"""The file that Spark puts beside what it wrote, last."""


class DeliveryError(CoordinationError):
    """A batch could not be delivered; it stays landed and is tried again by the next job."""


class Sink(Protocol):
    """Takes batches, each once. `publish` is called after `prepare`, and only while the lease is held."""

    def prepare(self, folder: str, batch: LandedBatch, fencing_token: int) -> None:
        """Do everything that nobody can see yet.

        :param folder: the folder, below any root, of the batch's partition.
        :param batch: the batch; has a file.
        :param fencing_token: of the lease under which it is delivered.
        :raises DeliveryError: if the batch cannot be delivered.
        """
        ...

    def publish(self, folder: str, batch: LandedBatch, fencing_token: int) -> None:
        """Make the batch visible, whole, unless it is already."""
        ...

    def sweep(self, folder: str) -> None:
        """Remove what former owners of the partition prepared and never published."""
        ...


class PublishLanded:
    """Delivers batches as they were landed: by renaming the landed file into the dataset.

    :param output: the dataset's folder.
    """

    def __init__(self, output: str) -> None:
        self._output = output

    def prepare(self, folder: str, batch: LandedBatch, fencing_token: int) -> None:
        """Do nothing: the landed file is what will be published."""

    def publish(self, folder: str, batch: LandedBatch, fencing_token: int) -> None:
        """Rename the landed file to the batch's name in the dataset."""
        publish(batch.file, dataset_file(self._output, batch))

    def sweep(self, folder: str) -> None:
        """Do nothing: nothing was prepared."""


class TransformedParquet:
    """Delivers batches through a user's transform.

    :param spark: the session.
    :param output: the dataset's folder.
    :param transform: from the batch's raw records to what is written; `_batch_id` is added if it does not keep it.
    """

    def __init__(self, spark: SparkSession, output: str, transform: Transform) -> None:
        self._spark = spark
        self._output = output
        self._transform = transform

    def prepare(self, folder: str, batch: LandedBatch, fencing_token: int) -> None:
        """Write the transformed batch where readers of the dataset do not look."""
        from pyspark.sql import functions

        if exists(dataset_file(self._output, batch)):
            return
        if not exists(batch.file):
            raise DeliveryError(f"landed file {batch.file} is gone: restore it, or reset its partition")
        try:
            result: Any = self._transform(self._spark.read.parquet(batch.file))
            if not hasattr(result, "write"):
                raise TypeError(f"the transform must return a DataFrame; it returned {type(result).__name__}")
            if "_batch_id" not in result.columns:
                result = result.withColumn("_batch_id", functions.lit(batch.batch_id))
            staging = self._staging(folder, batch, fencing_token)
            # One file a batch, whatever the session is set to: it is what a rename can publish whole.
            result.coalesce(1).write.mode("overwrite").option("maxRecordsPerFile", 0).parquet(staging)
        except Exception as error:
            raise DeliveryError(
                f"batch {batch.batch_id} ({batch.records} records after {batch.start} up to {batch.end}): "
                f"the transform or its write failed: {_last_line(error)}"
            ) from error

    def publish(self, folder: str, batch: LandedBatch, fencing_token: int) -> None:
        """Rename the one file that was written to the batch's name in the dataset."""
        target = dataset_file(self._output, batch)
        staging = self._staging(folder, batch, fencing_token)
        if not exists(target):
            if not exists(join(staging, SPARK_WROTE_ALL)):
                raise DeliveryError(f"batch {batch.batch_id}: what was staged in {staging} is gone or not whole")
            files = [file for file in files_below(staging) if file.endswith(".parquet")]
            if len(files) > 1:
                raise DeliveryError(
                    f"batch {batch.batch_id}: expected one staged file, found {len(files)} in {staging}"
                )
            for file in files:  # none where the transform left no rows
                publish(file, target)
        delete_folder(staging)

    def sweep(self, folder: str) -> None:
        """Remove the partition's staging folder."""
        delete_folder(join(self._output, "_staging", folder))

    def _staging(self, folder: str, batch: LandedBatch, fencing_token: int) -> str:
        return join(self._output, "_staging", folder, f"{batch.batch_id}.{fencing_token}")


def dataset_file(output: str, batch: LandedBatch) -> str:
    """Return the name of a batch's one file in the dataset."""
    return join(output, f"{batch.batch_id}.parquet")


def load_transform(name: str) -> Transform:
    """Return the function that `module:function` names.

    :raises ConfigurationError: if the module cannot be imported or has no such function.
    """
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:  # a module may raise anything while it is imported
        raise ConfigurationError(
            f"transform {name!r} cannot be imported: {type(error).__name__}: {error}; ship its module with 'py_files'"
        ) from error
    if not callable(function):
        raise ConfigurationError(f"transform {name!r} is not a function")
    return function  # type: ignore[no-any-return]


def check_folders(landing: str, output: str, *, renaming: bool) -> None:
    """Check that these folders can be written, and that files can be renamed from one to the other.

    :param renaming: whether files will be.
    :raises ConfigurationError: naming the folder and the reason.
    """
    probes = []
    for root in (landing, output):
        try:
            make_folder(root)
            probes.append(join(root, "_probe." + file_name("check", 0)))
            write_text(probes[-1], "check")
        except OSError as error:
            raise ConfigurationError(f"path {root!r} cannot be written: {error}") from error
    if renaming:
        publish(*probes)
    for probe in probes:
        delete_file(probe)


def sweep(root: str, folder: str, keep: set[str], fencing_token: int) -> int:
    """Delete what earlier owners of a partition landed but never recorded.

    :param root: the landing root.
    :param folder: the partition's folder below it.
    :param keep: files that the partition's progress names, however their root is spelled there.
    :param fencing_token: of the present lease; only files of older leases go.
    :returns: how many files were deleted.
    """
    deleted, names = 0, {file.rsplit("/", 1)[-1] for file in keep}
    for uri in files_below(join(root, folder)):
        token = token_of(uri)
        if uri.rsplit("/", 1)[-1] not in names and token is not None and token < fencing_token:
            delete_file(uri)
            deleted += 1
    return deleted


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"
