"""Delivery: a landed batch goes into the dataset once, however often it is tried and by however many workers.

A batch becomes one file named by its batch id, and a rename makes it visible whole. Whoever delivers it again finds
the file.

What may be renamed carries the fencing token of a lease, and goes with the lease. An attempt prepares its files, asks
the store whether it still may publish them, and renames them. The next owner first writes its lease to the store, then
takes away what was prepared, then prepares its own. However the two interleave, the former owner reads in the store
that it lost the lease, or finds its file gone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.landed_identity import batch_landed_in, file_name
from airflow_provider_coordination.spark.settings import MAIN
from airflow_provider_coordination.spark.storage import (
    copy_file,
    delete_file,
    delete_folder,
    exists,
    file_size,
    folders_in,
    join,
    make_folder,
    publish,
    remove_if_empty,
    schema_of,
    write_text,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Transform = Callable[["DataFrame"], "DataFrame"]

STAGING = "_staging"
"""The folder below a sink's path that holds what is not visible yet: `<partition>/<fencing token>/<set>`."""
EMPTY_ABOVE = 2
"""How many folders above that of an attempt go once they are empty: its lease's and its partition's. Above them others
make folders at the same time."""


class DeliveryError(CoordinationError):
    """A batch could not be delivered; it stays landed and is tried again."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What was made of a batch.

    :param records: how many records each sink takes of it; sinks that had it already are left out.
    :param unrouted: how many records no sink takes.
    :param columns: the types, by name, of what the main dataset takes; empty where that was not looked at.
    """

    records: Mapping[str, int] = field(default_factory=dict)
    unrouted: int = 0
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One delivery of a batch, under one lease and for one acknowledgment set.

    :param batch: the batch; has a file.
    :param file: where its landed file is now, or was before it was published.
    :param folder: the folder, below any root, of the batch's partition.
    :param set_id: the acknowledgment set that waits for it.
    :param fencing_token: of the lease.
    """

    batch: LandedBatch
    file: str
    folder: str
    set_id: str
    fencing_token: int

    def staging(self, output: str) -> str:
        """Return the folder where this attempt puts what a sink is to take, below the sink's path."""
        return join(output, STAGING, self.folder, str(self.fencing_token), self.set_id)


class Delivery(Protocol):
    """Takes batches into sinks, each batch once.

    `publish` is called after `prepare`, and after the store said that the lease and the set are still those of the
    attempt. Whatever it makes visible it takes from a place that a later owner of the partition empties with `sweep`
    before it delivers: so a former owner that goes on publishes either before the later one, or nothing.
    """

    @property
    def sinks(self) -> Sequence[str]:
        """The names of the sinks, in the order of publishing; each owes a reference for every batch."""
        ...

    def prepare(self, attempt: Attempt, sinks: Collection[str]) -> Prepared:
        """Do everything that nobody can see yet.

        :param sinks: those that have not taken the batch yet.
        :returns: what will become visible.
        :raises DeliveryError: if the batch cannot be delivered.
        """
        ...

    def publish(self, sink: str, attempt: Attempt) -> None:
        """Make the batch visible in one sink, whole, unless it is already.

        A batch that is delivered again because it was rejected replaces what is there.

        :raises DeliveryError: if what was prepared is not whole.
        :raises MissingFileError: if it is gone, as it is for a former owner of the partition.
        """
        ...

    def discard(self, attempt: Attempt) -> None:
        """Remove what an attempt prepared and did not publish."""
        ...

    def sweep(self, folder: str, fencing_token: int) -> None:
        """Remove what former owners of a partition prepared, which takes their right to publish it.

        :param folder: the partition's, below any root.
        :param fencing_token: of the present lease; only what is older goes.
        """
        ...


class PublishLanded:
    """Delivers batches as they were landed: the landed file becomes the dataset's.

    :param output: the dataset's folder.
    :param keep: whether the landed file may be needed again, since the batch is acknowledged by others too: it is
        copied then, and renamed if not.
    """

    sinks = (MAIN,)

    def __init__(self, output: str, *, keep: bool = False) -> None:
        self._output = output
        self._keep = keep

    def prepare(self, attempt: Attempt, sinks: Collection[str]) -> Prepared:
        """Copy the landed file to where it can be renamed from; only look into it where it can itself be renamed."""
        visible = dataset_file(self._output, attempt.batch)
        if self._needs(attempt):
            visible = ensure_landed(attempt, self._output)
            if self._keep:
                copy_file(attempt.file, self._staged(attempt))
        try:  # each file, though all have the same columns: a damaged one must not become part of the dataset
            columns = {field.name: str(field.type) for field in schema_of(visible)}
        except pa.ArrowInvalid as error:
            raise DeliveryError(f"file {visible} is damaged: {error}; restore it, or reset its partition") from error
        return Prepared(records={MAIN: attempt.batch.records}, columns=columns)

    def publish(self, sink: str, attempt: Attempt) -> None:
        """Rename the file to the batch's name in the dataset."""
        if self._needs(attempt):
            source = self._staged(attempt) if self._keep else attempt.file
            publish(source, dataset_file(self._output, attempt.batch), size=attempt.batch.file_bytes)

    def discard(self, attempt: Attempt) -> None:
        """See `Delivery.discard`."""
        if self._keep:
            discard_staged(self._output, attempt)

    def sweep(self, folder: str, fencing_token: int) -> None:
        """See `Delivery.sweep`."""
        sweep_staged(self._output, folder, fencing_token)

    def _needs(self, attempt: Attempt) -> bool:
        return attempt.batch.redeliver or not exists(dataset_file(self._output, attempt.batch))

    def _staged(self, attempt: Attempt) -> str:
        return join(attempt.staging(self._output), "landed.parquet")


def ensure_landed(attempt: Attempt, output: str) -> str:
    """Make sure that a batch's landed file is there, whole, and return it.

    What was published is as good as what was landed: a job may have renamed the landed file into the dataset and died
    before that was acknowledged, and the next one may need the records for a transform or another sink.

    :param output: the main dataset's folder.
    :raises DeliveryError: if the file is gone or damaged, and was not published as it was landed either.
    """
    batch, size = attempt.batch, file_size(attempt.file)
    if size == batch.file_bytes:
        return attempt.file
    published = dataset_file(output, batch)
    if file_size(published) == batch.file_bytes and batch_landed_in(published) == batch.batch_id:
        copy = join(attempt.file.rpartition("/")[0], file_name("published", attempt.fencing_token))
        copy_file(published, copy)
        publish(copy, attempt.file, size=batch.file_bytes)
        return attempt.file
    if size is None:
        raise DeliveryError(f"landed file {attempt.file} is gone: restore it, or reset its partition")
    raise DeliveryError(
        f"landed file {attempt.file} has {size} bytes, and {batch.file_bytes} were landed: restore it, or reset its "
        "partition"
    )


def discard_staged(output: str, attempt: Attempt) -> None:
    """Remove the staging folder of an attempt, and the folders above it that hold nothing else."""
    staging = attempt.staging(output)
    delete_folder(staging)
    for _ in range(EMPTY_ABOVE):
        staging, _, _ = staging.rpartition("/")
        remove_if_empty(staging)


def sweep_staged(output: str, folder: str, fencing_token: int) -> None:
    """Remove what is staged of a partition under older leases; see `Delivery.sweep`."""
    staged = join(output, STAGING, folder)
    for name in folders_in(staged):
        if name.isdigit() and int(name) < fencing_token:
            delete_folder(join(staged, name))


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


def check_folders(folders: Mapping[str, str], *, renaming: bool) -> None:
    """Check that these folders can be written, and that files can be renamed from the last one to the first.

    :param folders: by what the user calls each, such as `field 'output_path'`: those of the sinks, and landing last.
    :param renaming: whether files will be renamed.
    :raises ConfigurationError: naming the field, the path, the reason and the remedy.
    """
    probes = []
    for name, root in folders.items():
        try:
            make_folder(root)
            probes.append(join(root, "_probe." + file_name("check", 0)))
            write_text(probes[-1], "check")
        except (OSError, ConfigurationError) as error:
            link = f"it is a link to {str(Path(root).readlink())!r}; " if Path(root).is_symlink() else ""
            raise ConfigurationError(
                f"{name} is {root!r}, which cannot be written: {link}{error}; correct the path, or let the user who "
                "runs the job write there"
            ) from error
    if renaming:
        publish(probes[-1], probes[0])
    for probe in probes:
        delete_file(probe)
