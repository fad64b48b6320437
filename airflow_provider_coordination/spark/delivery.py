"""Delivery: a landed batch goes into the dataset once, however often it is tried and by however many workers.

A batch becomes one file named by its batch id, and a rename makes it visible whole. Whoever delivers it again finds
the file.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.landing import file_name, token_of
from airflow_provider_coordination.spark.settings import MAIN
from airflow_provider_coordination.spark.storage import (
    columns_of,
    copy_file,
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
    from pyspark.sql import DataFrame

Transform = Callable[["DataFrame"], "DataFrame"]


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


class Delivery(Protocol):
    """Takes batches into sinks, each batch once. `publish` is called after `prepare`, while the lease is held."""

    @property
    def sinks(self) -> Sequence[str]:
        """The names of the sinks, in the order of publishing; each owes a reference for every batch."""
        ...

    def prepare(self, folder: str, batch: LandedBatch, fencing_token: int, sinks: Collection[str]) -> Prepared:
        """Do everything that nobody can see yet.

        :param folder: the folder, below any root, of the batch's partition.
        :param batch: the batch; has a file.
        :param fencing_token: of the lease under which it is delivered.
        :param sinks: those that have not taken the batch yet.
        :returns: what will become visible.
        :raises DeliveryError: if the batch cannot be delivered.
        """
        ...

    def publish(self, sink: str, folder: str, batch: LandedBatch, fencing_token: int) -> None:
        """Make the batch visible in one sink, whole, unless it is already.

        A batch that is delivered again because it was rejected replaces what is there.
        """
        ...

    def sweep(self, folder: str) -> None:
        """Remove what former owners of the partition prepared and never published."""
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
        self._columns: Mapping[str, str] = {}  # looked at once; the reader's do not change under way

    def prepare(self, folder: str, batch: LandedBatch, fencing_token: int, sinks: Collection[str]) -> Prepared:
        """Copy the landed file to where it can be renamed from; do nothing where it can itself be renamed."""
        wanted = batch.redeliver or not exists(dataset_file(self._output, batch))
        if self._keep and wanted and exists(batch.file):
            copy_file(batch.file, self._staged(folder, batch, fencing_token))
        if not self._columns and exists(batch.file):
            self._columns = columns_of(batch.file)
        return Prepared(records={MAIN: batch.records}, columns=self._columns)

    def publish(self, sink: str, folder: str, batch: LandedBatch, fencing_token: int) -> None:
        """Rename the file to the batch's name in the dataset."""
        staged = self._staged(folder, batch, fencing_token)
        target = dataset_file(self._output, batch)
        if not self._keep or exists(staged) or not exists(target):
            publish(staged if self._keep else batch.file, target)

    def sweep(self, folder: str) -> None:
        """Remove the partition's staging folder."""
        delete_folder(join(self._output, "_staging", folder))

    def _staged(self, folder: str, batch: LandedBatch, fencing_token: int) -> str:
        return join(self._output, "_staging", folder, f"{batch.batch_id}.{fencing_token}.parquet")


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
