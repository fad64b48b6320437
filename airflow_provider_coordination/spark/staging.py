"""What is prepared for a sink: a manifest for each batch, which lists what its commit adds, and is written last.

Nothing is concluded from a listing of a folder. Manifests are below the sink's folder, where readers do not look:
`_staging/<partition>/<fencing token>/<set>`. Deleting a previous owner's manifest takes away its right to commit. Data
files of tables are kept: a commit in progress may name them; maintenance removes files that no version names.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.parquet_files import read_table, schema_of, write_table
from airflow_provider_coordination.spark.sinks import Rows, Sink
from airflow_provider_coordination.spark.storage import (
    check_size,
    check_writable,
    delete_files,
    delete_folder,
    file_size,
    files_below,
    files_in_folders,
    folders_in,
    join,
    read_text,
    remove_if_empty,
    renames,
    safe_name,
    write_text,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider_coordination.spark.writes import Writes

MANIFEST = "_manifest.json"
STAGING = "_staging"
EMPTY_ABOVE = 2
"""How many folders above an attempt's folder are removed once they are empty: its lease's and its partition's."""


class Staging:
    """The manifests of a table.

    :param root: the table's folder.
    :param access: the credentials for the folder.
    """

    def __init__(self, root: str, access: Access = DEFAULT_ACCESS) -> None:
        self._root = root
        self._access = access

    def folder(self, attempt: Attempt) -> str:
        """Return the folder of an attempt."""
        return join(self._root, STAGING, attempt.folder, str(attempt.fencing_token), attempt.set_id)

    def seal(self, attempt: Attempt, content: Mapping[str, Any]) -> None:
        """Write the manifest of an attempt.

        :param content: what the commit needs, as a JSON object.
        """
        write_text(
            join(self.folder(attempt), MANIFEST), json.dumps({**_signature(attempt), "content": content}), self._access
        )

    def sealed(self, attempt: Attempt) -> Mapping[str, Any]:
        """Return the content of an attempt's manifest.

        :raises DeliveryError: if there is none, or it is incomplete, or another attempt's.
        """
        folder = self.folder(attempt)
        try:
            manifest = json.loads(read_text(join(folder, MANIFEST), self._access))
            content: Mapping[str, Any] = manifest.pop("content")
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DeliveryError(
                f"batch {attempt.batch_id}: the staged data in {folder} is gone or incomplete: {error}"
            ) from None
        if manifest != _signature(attempt):
            raise DeliveryError(
                f"batch {attempt.batch_id}: the staged data in {folder} belongs to another delivery: {manifest}"
            )
        return content

    def named(self) -> set[str]:
        """Return the data files that any manifest names, which a commit may add.

        :raises DeliveryError: if a manifest is not readable, so that its files are not known.
        """
        names: set[str] = set()
        for file in files_below(join(self._root, STAGING), self._access):
            if file.endswith(f"/{MANIFEST}"):
                try:
                    manifest = json.loads(read_text(file, self._access))
                    names.update(each["name"] for each in manifest["content"]["files"])
                except FileNotFoundError:  # committed or swept just now
                    continue
                except (ValueError, TypeError, KeyError) as error:
                    raise DeliveryError(
                        f"manifest {file} is incomplete: {error}; the next job that delivers its partition removes it"
                    ) from None
        return names

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """Remove the manifests of attempts, and the folders above that are then empty."""
        for attempt in attempts:
            remove_staged(self.folder(attempt), self._access)

    def sweep(self, tokens: Mapping[str, int]) -> list[Mapping[str, Any]]:
        """Remove the manifests of previous owners of partitions; see `Delivery.sweep`.

        :returns: the content of the manifests that were complete.
        """
        previous, manifests = staged_by_previous_owners(self._root, tokens, self._access), []
        for file in (file for files in previous.values() for file in files):
            if file.endswith(f"/{MANIFEST}"):
                with suppress(OSError, ValueError):
                    manifests.append(json.loads(read_text(file, self._access)))
        delete_staged(previous, self._access)
        return manifests


def listed(folder: str, files: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return files below a folder as a manifest lists them.

    :param files: the files, with their sizes in bytes.
    """
    return [{"name": file.removeprefix(f"{folder}/"), "bytes": size} for file, size in files.items()]


def remove_staged(folder: str, access: Access) -> None:
    """Remove the folder of an attempt, and the folders above that are then empty."""
    delete_folder(folder, access)
    for _ in range(EMPTY_ABOVE):
        folder, _, _ = folder.rpartition("/")
        remove_if_empty(folder, access)


def staged_by_previous_owners(root: str, tokens: Mapping[str, int], access: Access) -> dict[str, list[str]]:
    """Return what previous owners of partitions staged below a sink's folder: their leases' folders, with the files.

    :param tokens: see `Delivery.sweep`.
    :raises OSError: if the folders cannot be listed.
    """
    previous: dict[str, list[str]] = {}
    if renames(root, access):  # there are folders, which may be empty
        for folder, token in tokens.items():
            parent = join(root, STAGING, folder)
            names = [name for name in folders_in(parent, access) if name.isdigit() and int(name) < token]
            previous |= {join(parent, name): files_below(join(parent, name), access) for name in names}
        return previous
    for folder, files in files_in_folders(join(root, STAGING), tokens, access):
        if isinstance(files, Exception):
            raise files
        parent = join(root, STAGING, folder)
        for file in files:
            name = file[len(parent) + 1 :].partition("/")[0]
            if name.isdigit() and int(name) < tokens[folder]:
                previous.setdefault(join(parent, name), []).append(file)
    return previous


def delete_staged(folders: Mapping[str, Collection[str]], access: Access) -> None:
    """Delete staging folders.

    :param folders: the folders, with the files in each.
    """
    if folders and renames(next(iter(folders)), access):
        for folder in folders:
            delete_folder(folder, access)
    else:
        delete_files([file for files in folders.values() for file in files], access)


class LandedStaging(Staging):
    """What is prepared of landed files that a table takes unchanged: only in the job's memory, without a manifest.

    The landed file replaces the manifest: its name has the fencing token of the lease, and the next owner renames it.

    :param contents: what is prepared, by acknowledgment set.
    """

    def __init__(self, root: str, access: Access, contents: dict[str, Mapping[str, Any]]) -> None:
        super().__init__(root, access)
        self._contents = contents

    @override
    def seal(self, attempt: Attempt, content: Mapping[str, Any]) -> None:
        self._contents[attempt.set_id] = {**_signature(attempt), "content": content}

    @override
    def sealed(self, attempt: Attempt) -> Mapping[str, Any]:
        """Return what was prepared of an attempt.

        :raises MissingFileError: if the landed file is gone.
        """
        manifest = self._contents.get(attempt.set_id, {})
        if _signature(attempt).items() <= manifest.items():
            if file_size(attempt.file, self._access) != attempt.batch.file_bytes:
                raise MissingFileError(f"batch {attempt.batch_id}: its landed file {attempt.file} is gone")
            content: Mapping[str, Any] = manifest["content"]
            return content
        raise DeliveryError(f"batch {attempt.batch_id}: it has no staged data")

    @override
    def discard(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._contents.pop(attempt.set_id, None)


def _signature(attempt: Attempt) -> dict[str, str | int]:
    return {"batch": attempt.batch_id, "set": attempt.set_id, "fencing_token": attempt.fencing_token}


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
        """Return a folder for the intermediate files of a delivery of these batches."""
        return self.folder(attempts[0]) + ".work"

    def stage(self, attempts: Sequence[Attempt], rows: Rows) -> None:
        """Write the rows of some batches; they replace what the same attempts staged before."""
        for attempt in attempts:
            delete_folder(self.folder(attempt), self._access)
        for attempt in attempts:
            count = rows.count(attempt.batch_id)
            folder = join(self.folder(attempt), "rows")
            if count:
                files = rows.write([attempt.batch_id], folder)
            else:  # an empty file, because the columns are needed
                file = join(folder, "part-0.parquet")
                files = {file: write_table(rows.schema.empty_table(), file, self._access)}
            self.seal(attempt, {"rows": count, "files": listed(folder, files)})

    def find(self, attempt: Attempt) -> StagedBatch:
        """Return what an attempt staged.

        :raises DeliveryError: if the manifest is missing, incomplete, or another attempt's.
        :raises MissingFileError: if one of the files is gone.
        """
        content = self.sealed(attempt)
        sizes = {join(self.folder(attempt), "rows", file["name"]): file["bytes"] for file in content["files"]}
        for file, size in sizes.items():
            check_size(file, size, self._access)
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


class StagedSink(Sink):
    """A sink whose commit reads the rows of its batches from staged files.

    :param name: the name of the sink.
    :param where: which records go to the sink, as a SQL predicate; None for all.
    :param settings: its description; its folder is the staging path.
    :param access: how to reach the staging path.
    :param folder: a text that distinguishes the sink from the others with this staging path.
    """

    separates_batches = True  # the staged files of a batch belong to its partition

    def __init__(self, name: str, where: str | None, settings: Writes, access: Access, folder: str) -> None:
        self.name = name
        self.where = where
        self._access = access
        self._location = settings.sink_location
        self._staging_path = str(settings.folder)
        self._staged = StagedBatches(join(self._staging_path, safe_name(folder)), access)

    @property
    @override
    def access(self) -> Access:
        return self._access

    @property
    @override
    def location(self) -> str:
        return self._location

    def check_staging(self, kind: str) -> None:
        """Check that rows can be staged.

        :param kind: the class by which the user describes the sink.
        :raises ConfigurationError: naming the field, the path, the reason and the remedy.
        """
        check_writable(f"{kind} {self.name!r}: field 'staging_path'", self._staging_path, self._access)

    @override
    def repartition(self, rows: DataFrame) -> DataFrame:
        return rows  # staged files are read again, so their number does not matter

    @override
    def scratch(self, attempts: Sequence[Attempt]) -> str:
        return self._staged.scratch(attempts)

    @override
    def discard(self, attempts: Sequence[Attempt]) -> None:
        self._staged.discard(attempts)

    @override
    def sweep(self, tokens: Mapping[str, int]) -> None:
        self._staged.sweep(tokens)
