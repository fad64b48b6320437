"""Files of landing and dataset, on whatever filesystem pyarrow reaches: local, HDFS, S3.

Two promises hold: a file that `write_table` returned from survives a crash of the machine, and `publish` makes a file
visible whole, or fails where its source is gone. No function here takes a missing file for a success.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError

READABLE_CHARACTERS = 60
"""How much of a text its name in paths shows: with the digest that fits the 255 bytes that filesystems allow a name."""


DELETE_TRIES = 3
"""How often a folder is deleted that somebody fills at the same time."""


class MissingFileError(CoordinationError):
    """A file that must be delivered is gone."""


def safe_name(text: str) -> str:
    """Return a name that is fit for paths on every filesystem, and different for different texts.

    It shows the beginning of the text; 128 bits of a digest tell texts apart, whatever their letters and length.
    """
    readable = re.sub(r"[^A-Za-z0-9._-]", "-", text)[:READABLE_CHARACTERS].strip("-.") or "unnamed"
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def join(root: str, *names: str) -> str:
    """Return the URI or path of something below a root."""
    return "/".join((root.rstrip("/"), *names))


def absolute(uri: str) -> str:
    """Return a local path as an absolute one; leave URIs alone."""
    return uri if "://" in uri else str(Path(uri).absolute())


def write_table(table: pa.Table, uri: str) -> int:
    """Write a Parquet file and see to it that it is durable; return its size in bytes."""
    filesystem, path = _open(uri)
    filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
    with filesystem.open_output_stream(path) as stream:
        pq.write_table(table, stream, compression="zstd")
        size = int(stream.tell())
    _make_durable(filesystem, path)
    return size


class TableWriter:
    """Writes a Parquet file piece by piece. It is durable once closed, and gone if it was left by an error or empty.

    :param uri: the file.
    """

    def __init__(self, uri: str) -> None:
        self._filesystem, self._path = _open(uri)
        self._writer: pq.ParquetWriter | None = None
        self._stream: pa.NativeFile | None = None
        self.size = 0
        """The size of the file in bytes, once it is closed."""

    def __enter__(self) -> TableWriter:
        """Return itself."""
        return self

    def write(self, table: pa.Table) -> None:
        """Write some rows; the first decide about the columns.

        :raises ValueError: if others have other columns.
        """
        if self._writer is None:
            self._filesystem.create_dir(self._path.rsplit("/", 1)[0], recursive=True)
            self._stream = self._filesystem.open_output_stream(self._path)
            self._writer = pq.ParquetWriter(self._stream, table.schema, compression="zstd")
        self._writer.write_table(table)

    def __exit__(self, kind: object, *error: object) -> None:
        """Close it."""
        if self._writer is not None and self._stream is not None:
            self._writer.close()
            self.size = int(self._stream.tell())
            self._stream.close()
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


def footer_of(uri: str) -> pq.FileMetaData:
    """Return what a Parquet file says of itself."""
    filesystem, path = _open(uri)
    return pq.read_metadata(path, filesystem=filesystem)


def schema_of(uri: str) -> pa.Schema:
    """Return the schema of a Parquet file, with its metadata."""
    filesystem, path = _open(uri)
    return pq.read_schema(path, filesystem=filesystem)


def file_size(uri: str) -> int | None:
    """Return the size of a file in bytes; None if there is no such file."""
    filesystem, path = _open(uri)
    info = filesystem.get_file_info(path)
    return int(info.size) if info.type == fs.FileType.File else None


def copy_file(uri: str, target: str) -> None:
    """Copy a file to a name that nobody reads yet, durably.

    :raises MissingFileError: if there is no such file.
    """
    filesystem, path = _open(uri)
    target_filesystem, target_path = _open(target)
    target_filesystem.create_dir(target_path.rsplit("/", 1)[0], recursive=True)
    try:
        fs.copy_files(path, target_path, source_filesystem=filesystem, destination_filesystem=target_filesystem)
    except FileNotFoundError:
        raise _missing(uri) from None
    _make_durable(target_filesystem, target_path)


def publish(uri: str, target: str, *, size: int | None = None) -> None:
    """Give a file its final name, in place of whatever has that name.

    A local rename is atomic; on object stores it is a copy, which appears whole, followed by a delete. Who took the
    file away first decides: without its source nothing becomes visible.

    :param size: how many bytes the file has to have; None for any number.
    :raises MissingFileError: if the file does not exist, or is not whole.
    :raises ConfigurationError: if the two are on different filesystems.
    """
    filesystem, path = _open(uri)
    target_filesystem, target_path = _open(target)
    if target_filesystem != filesystem:
        raise ConfigurationError(f"{uri} cannot be published as {target}: put landing and dataset on one filesystem")
    info = filesystem.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        raise _missing(uri)
    if info.type != fs.FileType.File:
        raise ValueError(f"{uri} is a folder; only files are published")
    if size is not None and info.size != size:
        raise MissingFileError(f"file {uri} has {info.size} bytes, and {size} were written: somebody changed it")
    try:
        filesystem.move(path, target_path)
    except OSError as error:
        if getattr(error, "errno", None) == 18 or "cross-device" in str(error).lower():
            raise ConfigurationError(
                f"{uri} cannot be published as {target}: put landing and dataset on one filesystem"
            ) from error
        if filesystem.get_file_info(path).type == fs.FileType.NotFound:
            raise _missing(uri) from error
        raise
    _make_durable(filesystem, target_path)


def _missing(uri: str) -> MissingFileError:
    return MissingFileError(f"file {uri} is gone")


def exists(uri: str) -> bool:
    """Return whether there is a file or folder of that name."""
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
    with suppress(FileNotFoundError):
        filesystem.delete_file(path)


def delete_folder(uri: str) -> None:
    """Delete a folder and all it holds; nothing happens if there is none.

    :raises OSError: if it cannot be deleted, or somebody keeps filling it.
    """
    filesystem, path = _open(uri)
    for left in reversed(range(DELETE_TRIES)):
        if filesystem.get_file_info(path).type != fs.FileType.Directory:
            return
        try:
            filesystem.delete_dir(path)
            return
        except OSError:  # somebody writes to it, or deletes it too; some object stores miss what was no object
            if not files_below(uri):
                return
            if not left:
                raise


def remove_if_empty(uri: str) -> None:
    """Remove a local folder that holds nothing; object stores have none, and elsewhere an empty one stays."""
    filesystem, path = _open(uri)
    if _is_local(filesystem):
        with suppress(OSError):
            _remove_folder(path)


def make_folder(uri: str) -> None:
    """Create a folder with its parents, where the filesystem has folders."""
    filesystem, path = _open(uri)
    filesystem.create_dir(path, recursive=True)


def check_writable(field: str, root: str) -> None:
    """Check that files can be written to a folder, which is made if it is not there.

    :param field: what the user calls it, such as `field 'landing_path'`.
    :raises ConfigurationError: naming the field, the path, the reason and the remedy.
    """
    try:
        make_folder(root)
        delete_file(_probe(root))
    except (OSError, ValueError, ConfigurationError) as error:
        link = f"it is a link to {str(Path(root).readlink())!r}; " if Path(root).is_symlink() else ""
        raise ConfigurationError(
            f"{field} is {root!r}, which cannot be written: {link}{error}; correct the path, or let the user who "
            "runs the job write there"
        ) from error


def probe_rename(root: str, target: str) -> None:
    """Check that files can be renamed from one folder to another; both can be written.

    :raises ConfigurationError: if they cannot.
    """
    probe = _probe(root)
    renamed = join(target, probe.rpartition("/")[2])
    publish(probe, renamed)
    delete_file(renamed)


def _probe(root: str) -> str:
    probe = join(root, f"_probe.check.{secrets.token_hex(4)}.parquet")
    write_text(probe, "check")
    return probe


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
    if _is_local(filesystem):
        for name in (path, str(Path(path).parent)):
            descriptor = os.open(name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _is_local(filesystem: fs.FileSystem) -> bool:
    return isinstance(filesystem, fs.LocalFileSystem)


def _remove_folder(path: str) -> None:
    Path(path).rmdir()
