"""Files of landing and dataset, on whatever filesystem pyarrow reaches: local, HDFS, S3.

Two promises hold: a file that `write_table` returned from survives a crash of the machine, and `publish` gives a file
its final name exactly once, however often it is repeated.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError


class MissingFileError(CoordinationError):
    """A landed file that must be delivered is gone."""


def safe_name(text: str) -> str:
    """Return a name that is fit for paths on every filesystem, and different for different texts."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "-", text).strip("-.") or "unnamed"
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def join(root: str, *names: str) -> str:
    """Return the URI or path of something below a root."""
    return "/".join((root.rstrip("/"), *names))


def absolute(uri: str) -> str:
    """Return a local path as an absolute one; leave URIs alone."""
    return uri if "://" in uri else str(Path(uri).absolute())


def write_table(table: pa.Table, uri: str) -> None:
    """Write a Parquet file and see to it that it is durable."""
    filesystem, path = _open(uri)
    filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
    with filesystem.open_output_stream(path) as stream:
        pq.write_table(table, stream, compression="zstd")
    _make_durable(filesystem, path)


class TableWriter:
    """Writes a Parquet file piece by piece. It is durable once closed, and gone if it was left by an error or empty.

    :param uri: the file.
    """

    def __init__(self, uri: str) -> None:
        self._filesystem, self._path = _open(uri)
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> TableWriter:
        """Return itself."""
        return self

    def write(self, table: pa.Table) -> None:
        """Write some rows; the first decide about the columns.

        :raises ValueError: if others have other columns.
        """
        if self._writer is None:
            self._filesystem.create_dir(self._path.rsplit("/", 1)[0], recursive=True)
            self._writer = pq.ParquetWriter(self._path, table.schema, filesystem=self._filesystem, compression="zstd")
        self._writer.write_table(table)

    def __exit__(self, kind: object, *error: object) -> None:
        """Close it."""
        if self._writer is not None:
            self._writer.close()
            if kind is None:
                _make_durable(self._filesystem, self._path)
            else:
                self._filesystem.delete_file(self._path)


def read_table(uri: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return what a Parquet file holds.

    :param columns: only these; all by default.
    """
    filesystem, path = _open(uri)
    return pq.read_table(path, columns=columns, filesystem=filesystem, partitioning=None)


def row_count(uri: str) -> int:
    """Return how many rows a Parquet file holds."""
    filesystem, path = _open(uri)
    return int(pq.read_metadata(path, filesystem=filesystem).num_rows)


def columns_of(uri: str) -> dict[str, str]:
    """Return the types of a Parquet file's columns by their names."""
    filesystem, path = _open(uri)
    return {field.name: str(field.type) for field in pq.read_schema(path, filesystem=filesystem)}


def copy_file(uri: str, target: str) -> None:
    """Copy a file to a name that nobody reads yet, durably.

    :raises MissingFileError: if there is no such file.
    """
    filesystem, path = _open(uri)
    target_filesystem, target_path = _open(target)
    if filesystem.get_file_info(path).type != fs.FileType.File:
        raise MissingFileError(f"landed file {uri} is gone: restore it, or reset its partition")
    target_filesystem.create_dir(target_path.rsplit("/", 1)[0], recursive=True)
    fs.copy_files(path, target_path, source_filesystem=filesystem, destination_filesystem=target_filesystem)
    _make_durable(target_filesystem, target_path)


def publish(uri: str, target: str) -> None:
    """Give a file its final name, if that was not done before.

    A local rename is atomic; on object stores it is a copy, which appears whole, followed by a delete.

    :raises MissingFileError: if neither the file nor the target exists.
    :raises ConfigurationError: if the two are on different filesystems.
    """
    filesystem, path = _open(uri)
    target_filesystem, target_path = _open(target)
    if target_filesystem != filesystem:
        raise ConfigurationError(f"{uri} cannot be published as {target}: put landing and output on one filesystem")
    if filesystem.get_file_info(path).type == fs.FileType.Directory:
        raise ValueError(f"{uri} is a folder; only files are published")
    if not exists(uri):
        if exists(target):
            return
        raise MissingFileError(
            f"landed file {uri} is gone and {target} does not exist: restore it, or reset its partition"
        )
    try:
        filesystem.move(path, target_path)
    except OSError as error:
        if exists(target) and not exists(uri):  # another owner published the same file in this moment
            return
        if getattr(error, "errno", None) == 18 or "cross-device" in str(error).lower():
            raise ConfigurationError(
                f"{uri} cannot be published as {target}: put landing and output on one filesystem"
            ) from error
        raise
    _make_durable(filesystem, target_path)


def exists(uri: str) -> bool:
    """Tell whether there is a file or folder of that name."""
    filesystem, path = _open(uri)
    return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)


def files_below(uri: str) -> list[str]:
    """Return the URIs of all files below a folder; none if it does not exist."""
    filesystem, path = _open(uri)
    found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
    return [join(uri, info.path[len(path) :].lstrip("/")) for info in found if info.type == fs.FileType.File]


def folders_in(uri: str) -> list[str]:
    """Return the names of the folders directly in a folder; none if it does not exist."""
    filesystem, path = _open(uri)
    found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return [info.base_name for info in found if info.type == fs.FileType.Directory]


def delete_file(uri: str) -> None:
    """Delete a file; nothing happens if there is none."""
    filesystem, path = _open(uri)
    if filesystem.get_file_info(path).type == fs.FileType.File:
        filesystem.delete_file(path)


def delete_folder(uri: str) -> None:
    """Delete a folder and all it holds; nothing happens if there is none."""
    filesystem, path = _open(uri)
    if filesystem.get_file_info(path).type == fs.FileType.Directory:
        filesystem.delete_dir(path)


def make_folder(uri: str) -> None:
    """Create a folder with its parents, where the filesystem has folders."""
    filesystem, path = _open(uri)
    filesystem.create_dir(path, recursive=True)


def write_text(uri: str, text: str) -> None:
    """Write a small file, and the folder that it is in."""
    filesystem, path = _open(uri)
    filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
    with filesystem.open_output_stream(path) as stream:
        stream.write(text.encode())


def read_text(uri: str) -> str:
    """Return what a small file holds."""
    filesystem, path = _open(uri)
    with filesystem.open_input_stream(path) as stream:
        return str(stream.read().decode())


def _open(uri: str) -> tuple[fs.FileSystem, str]:
    if not uri:
        raise ValueError("an empty path names the current directory, which nobody can mean")
    try:
        filesystem, path = fs.FileSystem.from_uri(re.sub(r"^s3[an]://", "s3://", absolute(uri)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigurationError(f"{uri!r} is not a path that can be written: {error}") from None
    return filesystem, path


def _make_durable(filesystem: fs.FileSystem, path: str) -> None:
    """Flush a local file and the folder entry that names it; other filesystems are durable once closed."""
    if isinstance(filesystem, fs.LocalFileSystem):
        for name in (path, str(Path(path).parent)):
            descriptor = os.open(name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
