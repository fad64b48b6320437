"""The files of one filesystem: local, HDFS, an object store. `storage` refers to them by URI.

If a filesystem can rename, files become visible by a rename. S3 cannot; see `s3_objects`.
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
"""The number of concurrent calls to a filesystem behind a network."""
FOLDER_TRIES = 3
"""How often to create a file and its folder if another thread removes the folder as an empty one."""
DELETE_TRIES = 3
"""How often to delete a folder that other writers fill at the same time."""

T = TypeVar("T")


class MissingFileError(CoordinationError):
    """A file that must be delivered is gone."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The lease that publishes a file. Without renames, the published file carries it, and the latest lease wins.

    :param fencing_token: the fencing token of the lease.
    :param set_id: the acknowledgment set.
    :param replaces: whether the file replaces an existing one; otherwise an existing file is kept.
    """

    fencing_token: int
    set_id: str
    replaces: bool = False


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A file in a listing.

    :param path: its path.
    :param bytes: its size.
    :param written: when it was written (aware); None if that is not known.
    """

    path: str
    bytes: int
    written: datetime | None


class Files:
    """The files of a filesystem that pyarrow reaches. Paths have the form of that filesystem.

    :param filesystem: the filesystem.
    """

    renames = True
    """Whether publishing moves the file itself, so that the first owner that moves or removes it decides."""

    def __init__(self, filesystem: fs.FileSystem) -> None:
        self._filesystem = filesystem

    @property
    def filesystem(self) -> fs.FileSystem:
        """The pyarrow filesystem, for reading and writing Parquet."""
        return self._filesystem

    def are(self, other: Files) -> bool:
        """Return whether these are the files of the same filesystem."""
        return type(self) is type(other) and self._filesystem == other._filesystem

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if there is no such file."""
        info = self._filesystem.get_file_info(path)
        return int(info.size) if info.type == fs.FileType.File else None

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of this name."""
        return bool(self._filesystem.get_file_info(path).type != fs.FileType.NotFound)

    def make_folder(self, path: str) -> None:
        """Create a folder with its parents, if the filesystem has folders."""
        self._filesystem.create_dir(path, recursive=True)

    def read(self, path: str) -> bytes:
        """Return the content of a small file."""
        with self._filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())

    def tail(self, path: str, length: int) -> tuple[bytes, int]:
        """Return the end of a file, and the file's size in bytes.

        :param length: the maximum number of bytes to return.
        :raises FileNotFoundError: if there is no such file.
        """
        with self._filesystem.open_input_file(path) as file:
            size = int(file.size())
            return bytes(file.read_at(min(length, size), max(0, size - length))), size

    def below(self, path: str, pages: int | None = None) -> list[FoundFile] | None:
        """Return the files below a folder; an empty list if it does not exist.

        :param pages: the maximum number of requests, if a listing takes several; None for any number.
        :returns: None if the listing would take more requests.
        """
        infos = self._filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
        return [
            FoundFile(path=info.path, bytes=int(info.size), written=info.mtime)
            for info in infos
            if info.type == fs.FileType.File
        ]

    def write(self, path: str, content: bytes) -> None:
        """Write a small file, and create its folder."""
        with self.new_file(path) as stream:
            stream.write(content)

    def new_file(self, path: str) -> pa.NativeFile:
        """Create a file and its folder; return the stream to write to."""
        return self._in_folder(path, lambda: self.filesystem.open_output_stream(path))

    def _in_folder(self, path: str, create: Callable[[], T]) -> T:
        """Create a file's folder, then the file.

        Another thread may remove the folder while it is empty. Both steps are then repeated.

        :param path: the file.
        :param create: creates the file.
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
        """Give a file a second name that nobody reads yet: a link if the filesystem has links, otherwise a copy.

        Its modification time becomes the present, so that table maintenance does not take it for an old file that no
        table names. A link is durable once its folder is flushed.

        :raises FileNotFoundError: if there is no such file.
        """
        if not self.is_local:
            self.copy(path, target)
            return
        try:
            self._in_folder(target, lambda: link_file(path, target))
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError:  # a filesystem without links, or two different filesystems
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
        """Give a file its final name, as `storage.publish` describes it."""
        info = self._filesystem.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise missing_file(path)
        if info.type != fs.FileType.File:
            raise ValueError(f"{path} is a folder; only files are published")
        if size is not None and info.size != size:
            raise changed_file(path, info.size, size)
        try:
            self._filesystem.move(path, target)
        except OSError as error:
            if getattr(error, "errno", None) == 18 or "cross-device" in str(error).lower():
                raise different_filesystems(path, target) from error
            if self._filesystem.get_file_info(path).type == fs.FileType.NotFound:
                raise missing_file(path) from error
            raise
        self.make_durable(target)
        return True

    def create_once(self, path: str, target: str) -> bool:
        """Give the content of a file a new name, unless there is a file of that name; return whether it was given."""
        if not self.is_local:  # a move does not replace a file on HDFS
            try:
                self._filesystem.move(path, target)
            except OSError:
                if not self.exists(target):
                    raise
                return False
            return True
        try:
            self.make_durable(path)
            link_file(path, target)
        except FileExistsError:
            return False
        self.make_durable(target)
        return True

    def delete(self, path: str) -> None:
        """Delete a file; nothing happens if there is none."""
        with suppress(FileNotFoundError):
            self._filesystem.delete_file(path)

    def delete_each(self, paths: Sequence[str]) -> None:
        """Delete the files that exist.

        :raises OSError: if some cannot be deleted; the others may be deleted.
        """
        for path in paths:
            self.delete(path)

    def delete_folder(self, path: str) -> None:
        """Delete a folder with its content; nothing happens if there is none.

        :raises OSError: if it cannot be deleted, or other writers keep adding files.
        """
        for left in reversed(range(DELETE_TRIES)):
            if self._filesystem.get_file_info(path).type != fs.FileType.Directory:
                return
            try:
                self._filesystem.delete_dir(path)
                return
            except OSError:  # another writer adds to it or deletes it; some object stores do not find folder markers
                found = self._filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
                if not any(info.type == fs.FileType.File for info in found):
                    return
                if not left:
                    raise

    def has_exclusive_names(self, probe: str) -> bool:
        """Return whether only one succeeds if several owners give the same new name to a file.

        This may not hold if a move is a copy and a deletion: a late owner's copy may replace the file.

        :param probe: a new name, for filesystems where this must be tried.
        """
        return self.is_local or self._filesystem.type_name == "hdfs"

    def check_writable(self, probe: str) -> None:
        """Check that files can be written, read and deleted.

        :param probe: a new name.
        :raises OSError: if they cannot.
        """
        self.write(probe, b"check")
        self.read(probe)
        self.delete(probe)

    def abort_uploads(self, path: str) -> None:
        """Abort uploads below a folder that were started long ago and not completed, if the filesystem has uploads."""

    def make_durable(self, path: str) -> None:
        """Flush a local file and its folder; files of other filesystems are durable once closed."""
        if self.is_local:
            flush(path)
            flush(str(Path(path).parent))

    def flush_folder(self, path: str) -> None:
        """Flush a local folder, which makes the names in it durable."""
        if self.is_local:
            flush(path)

    @property
    def is_local(self) -> bool:
        """Whether these are files of this machine."""
        return isinstance(self._filesystem, fs.LocalFileSystem)

    @property
    def calls_at_once(self) -> int:
        """How many calls are worth making at the same time: calls over a network mostly wait."""
        return 1 if self.is_local else CALLS_AT_ONCE

    def remove_if_empty(self, path: str) -> None:
        """Remove a local folder if it is empty; object stores have no folders, and others keep empty ones."""
        if self.is_local:
            with suppress(OSError):
                remove_folder(path)

    def remove_empty_folders(self, path: str) -> None:
        """Remove a local folder and the folders below it, as far as they have no file; see `remove_if_empty`."""
        if self.is_local:
            infos = self._filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
            folders = [info.path for info in infos if info.type == fs.FileType.Directory]
            for folder in (*sorted(folders, reverse=True), path):
                self.remove_if_empty(folder)


def remove_folder(path: str) -> None:
    """Remove an empty local folder.

    :raises OSError: if it is not empty, or does not exist.
    """
    Path(path).rmdir()


def link_file(path: str, target: str) -> None:
    """Give a local file a second name.

    :raises OSError: if the filesystem has no links, or the two are on different ones, or another file has the name.
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


def missing_file(path: str) -> MissingFileError:
    """Return the error for a file that does not exist."""
    return MissingFileError(f"file {path} is gone")


def changed_file(path: str, size: int, written: int) -> MissingFileError:
    """Return the error for a file whose size changed."""
    return MissingFileError(f"file {path} has {size} bytes instead of the {written} that were written: it was changed")


def different_filesystems(path: str, target: str) -> ConfigurationError:
    """Return the error for a file that is on another filesystem than its final name."""
    return ConfigurationError(f"{path} cannot be published as {target}: put landing and dataset on one filesystem")
