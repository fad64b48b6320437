"""The files of one filesystem: local, HDFS, an object store. `storage` names them by URI.

Where a filesystem renames, what becomes visible is renamed. S3 does not rename: there, see `s3_objects`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyarrow import fs

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError

CALLS_AT_ONCE = 32
"""How many calls to a filesystem behind a network are under way at a time."""
FOLDER_TRIES = 3
"""How often a file and its folder are created while another thread removes the folder as an empty one."""
DELETE_TRIES = 3
"""How often a folder is deleted that somebody fills at the same time."""

T = TypeVar("T")


class MissingFileError(CoordinationError):
    """A file that must be delivered is gone."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Who publishes a file. Where nothing can be renamed, the file carries it, and the latest lease wins.

    :param fencing_token: of the lease.
    :param set_id: the acknowledgment set.
    :param replaces: whether the file takes the place of an earlier one; one that is there is left alone otherwise.
    """

    fencing_token: int
    set_id: str
    replaces: bool = False


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A file that a listing has.

    :param path: where it is.
    :param bytes: its size.
    :param written: when it was written (aware); None if that is not known.
    """

    path: str
    bytes: int
    written: datetime | None


class Files:
    """The files of a filesystem that pyarrow reaches. Paths are as that filesystem has them.

    :param filesystem: the filesystem.
    """

    renames = True
    """Whether the file itself goes where a file is published: then who took it away first decides."""

    def __init__(self, filesystem: fs.FileSystem) -> None:
        self._filesystem = filesystem

    @property
    def filesystem(self) -> fs.FileSystem:
        """The filesystem of pyarrow, for what reads and writes Parquet."""
        return self._filesystem

    def are(self, other: Files) -> bool:
        """Return whether these are the files of the same filesystem."""
        return type(self) is type(other) and self._filesystem == other._filesystem

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if there is no such file."""
        info = self._filesystem.get_file_info(path)
        return int(info.size) if info.type == fs.FileType.File else None

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of that name."""
        return bool(self._filesystem.get_file_info(path).type != fs.FileType.NotFound)

    def make_folder(self, path: str) -> None:
        """Create a folder with its parents, where there are folders."""
        self._filesystem.create_dir(path, recursive=True)

    def read(self, path: str) -> bytes:
        """Return what a small file holds."""
        with self._filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())

    def tail(self, path: str, length: int) -> tuple[bytes, int]:
        """Return how a file ends, and its size in bytes.

        :param length: how many bytes at most.
        :raises FileNotFoundError: if there is no such file.
        """
        with self._filesystem.open_input_file(path) as file:
            size = int(file.size())
            return bytes(file.read_at(min(length, size), max(0, size - length))), size

    def below(self, path: str, pages: int | None = None) -> list[FoundFile] | None:
        """Return the files below a folder; none if it does not exist.

        :param pages: how many requests that may take where one returns a part of them; None for any number.
        :returns: None if it would take more.
        """
        found = self._filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
        return [
            FoundFile(path=info.path, bytes=int(info.size), written=info.mtime)
            for info in found
            if info.type == fs.FileType.File
        ]

    def write(self, path: str, content: bytes) -> None:
        """Write a small file, and the folder that it is in."""
        with self.new_file(path) as stream:
            stream.write(content)

    def new_file(self, path: str) -> pa.NativeFile:
        """Create a file and its folder, and return the stream to write to."""
        return self._in_folder(path, lambda: self._filesystem.open_output_stream(path))

    def _in_folder(self, path: str, create: Callable[[], T]) -> T:
        """Create a file's folder, then the file.

        Another thread may remove the folder while it is empty. Both steps are then repeated.

        :param path: the file.
        :param create: creates it.
        """
        for left in reversed(range(FOLDER_TRIES)):
            try:
                self.make_folder(path.rpartition("/")[0])
                return create()
            except FileNotFoundError:
                if not (left and self.is_local):
                    raise
        raise AssertionError("the last try returns or raises")

    def copy(self, path: str, target: str) -> None:
        """Copy a file to a name that nobody reads yet, durably.

        :raises FileNotFoundError: if there is no such file.
        """
        self.copy_from(self, path, target)

    def link(self, path: str, target: str) -> None:
        """Give a file a second name that nobody reads yet: a link where there are links, a copy elsewhere.

        Its time becomes the present: what removes old files that no table names leaves it alone. A link is durable once
        its folder is flushed.

        :raises FileNotFoundError: if there is no such file.
        """
        if not self.is_local:
            self.copy(path, target)
            return
        try:
            self._in_folder(target, lambda: link_file(path, target))
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError:  # a filesystem without links, or two of them
            self.copy(path, target)
        else:
            os.utime(target)

    def copy_from(self, files: Files, path: str, target: str) -> None:
        """Copy a file of another filesystem to a name that nobody reads yet, durably.

        :raises FileNotFoundError: if there is no such file.
        """
        self._in_folder(
            target,
            lambda: fs.copy_files(
                path, target, source_filesystem=files.filesystem, destination_filesystem=self.filesystem
            ),
        )
        self.make_durable(target)

    def publish(self, path: str, target: str, *, size: int | None, claim: Claim | None) -> bool:
        """See `storage.publish`."""
        info = self._filesystem.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise missing(path)
        if info.type != fs.FileType.File:
            raise ValueError(f"{path} is a folder; only files are published")
        if size is not None and info.size != size:
            raise changed(path, info.size, size)
        try:
            self._filesystem.move(path, target)
        except OSError as error:
            if getattr(error, "errno", None) == 18 or "cross-device" in str(error).lower():
                raise apart(path, target) from error
            if self._filesystem.get_file_info(path).type == fs.FileType.NotFound:
                raise missing(path) from error
            raise
        self.make_durable(target)
        return True

    def delete(self, path: str) -> None:
        """Delete a file; nothing happens if there is none."""
        with suppress(FileNotFoundError):
            self._filesystem.delete_file(path)

    def delete_each(self, paths: Sequence[str]) -> None:
        """Delete files, those that are there.

        :raises OSError: if some cannot be deleted; others may be.
        """
        for path in paths:
            self.delete(path)

    def delete_folder(self, path: str) -> None:
        """Delete a folder and all it holds; nothing happens if there is none.

        :raises OSError: if it cannot be deleted, or somebody keeps filling it.
        """
        for left in reversed(range(DELETE_TRIES)):
            if self._filesystem.get_file_info(path).type != fs.FileType.Directory:
                return
            try:
                self._filesystem.delete_dir(path)
                return
            except OSError:  # somebody writes to it, or deletes it too; some object stores miss what was no object
                found = self._filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
                if not any(info.type == fs.FileType.File for info in found):
                    return
                if not left:
                    raise

    def names_once(self, probe: str) -> bool:
        """Return whether, of several who give the same new name to a file, one alone succeeds.

        Where a move is a copy and a deletion, it may not be: the copy of somebody who is late comes later.

        :param probe: a new name, where that has to be tried.
        """
        return self.is_local or self._filesystem.type_name == "hdfs"

    def try_out(self, probe: str) -> None:
        """Check that files can be written, read and deleted.

        :param probe: a new name.
        :raises OSError: if they cannot.
        """
        self.write(probe, b"check")
        self.read(probe)
        self.delete(probe)

    def abort_uploads(self, path: str) -> None:
        """Give up uploads below a folder that were begun long ago and not completed, where there is such a thing."""

    def make_durable(self, path: str) -> None:
        """Flush a local file and the folder entry that names it; other filesystems are durable once closed."""
        if self.is_local:
            flush(path)
            flush(str(Path(path).parent))

    def flush_folder(self, path: str) -> None:
        """Make the names in a local folder durable."""
        if self.is_local:
            flush(path)

    @property
    def is_local(self) -> bool:
        """Whether these are files of this machine."""
        return isinstance(self._filesystem, fs.LocalFileSystem)

    @property
    def calls_at_once(self) -> int:
        """How many calls are worth making at the same time: those over a network wait nearly all the time."""
        return 1 if self.is_local else CALLS_AT_ONCE

    def remove_if_empty(self, path: str) -> None:
        """Remove a local folder that holds nothing; object stores have none, and elsewhere an empty one stays."""
        if self.is_local:
            with suppress(OSError):
                remove_folder(path)


def remove_folder(path: str) -> None:
    """Remove a local folder that holds nothing.

    :raises OSError: if it holds something, or is not there.
    """
    Path(path).rmdir()


def link_file(path: str, target: str) -> None:
    """Give a local file a second name.

    :raises OSError: if the filesystem has no links, or the two are on different ones, or something else has the name.
    """
    try:
        os.link(path, target)
    except FileExistsError:
        if not Path(path).samefile(target):
            raise


def flush(path: str) -> None:
    """Make a local file, or the names in a folder, survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def missing(path: str) -> MissingFileError:
    """Return the error of a file that is not there."""
    return MissingFileError(f"file {path} is gone")


def changed(path: str, found: int, written: int) -> MissingFileError:
    """Return the error of a file that is not as it was written."""
    return MissingFileError(f"file {path} has {found} bytes, and {written} were written: somebody changed it")


def apart(path: str, target: str) -> ConfigurationError:
    """Return the error of a file that is on another filesystem than its final name."""
    return ConfigurationError(f"{path} cannot be published as {target}: put landing and dataset on one filesystem")
