"""Files of landing and datasets, by URI, on every filesystem that pyarrow reaches: local, HDFS, S3.

Two guarantees hold. A file that `write_table` has written survives a crash of the machine. `publish` makes a file
visible as a whole, or fails if its source is gone. No function here treats a missing file as a success. Functions with
a parameter `access` use the credentials of the job's sinks for S3.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access, bucket_path, is_s3
from airflow_provider_coordination.spark.concurrency import each_at_once, result_or_raise, side_by_side
from airflow_provider_coordination.spark.delivery import SinkUnavailableError
from airflow_provider_coordination.spark.files import Claim, Files, different_filesystems, missing_file
from airflow_provider_coordination.spark.filesystems import open_files
from airflow_provider_coordination.spark.outages import is_outage, is_refusal
from airflow_provider_coordination.spark.s3_refusals import S3RefusedError, refusal

log = logging.getLogger(__name__)

READABLE_CHARACTERS = 60
"""How many characters of a text its safe name shows; with the digest, the name fits the 255 bytes of filesystems."""
COPIES_AT_ONCE = 8
SMALL_BYTES = 4 * 1024 * 1024
"""The size up to which a file is read whole, in one request: separate requests for its parts take longer."""
END_BYTES = 64 * 1024
"""How many bytes are read from the end of a file, where its schema is."""
PROBES = "_probe"
"""The folder below a root for probe files: readers do not treat them as part of a dataset."""
PROBES_KEPT = timedelta(days=1)
"""An older probe file was left by a job that died."""


def safe_name(text: str) -> str:
    """Return a name that is valid in paths on every filesystem, and different for different texts.

    It shows the start of the text; 128 bits of a digest distinguish texts, whatever their characters and length.
    """
    readable = re.sub(r"[^A-Za-z0-9._-]", "-", text)[:READABLE_CHARACTERS].strip("-.") or "unnamed"
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def join(root: str, *names: str) -> str:
    """Return the URI or path of a name below a root."""
    return "/".join((root.rstrip("/"), *names))


def write_table(table: pa.Table, uri: str, access: Access = DEFAULT_ACCESS) -> int:
    """Write a Parquet file durably; return its size in bytes."""
    files, path = open_files(uri, access)
    with files.new_file(path) as stream:
        indexed = _indexed(table.schema)
        pq.write_table(table, stream, compression="zstd", use_dictionary=indexed, write_statistics=indexed)
        size = int(stream.tell())
    files.make_durable(path)
    return size


def _indexed(columns: pa.Schema) -> list[str]:
    """Return the columns whose dictionaries and statistics lead no reader astray.

    Bounds do not include NaN, and -0.0 is not in the dictionary of a reader that looks for 0.0. Spark, to which NaN is
    the greatest number and -0.0 equals 0.0, then skips rows that its filter selects.
    """
    return [field.name for field in columns if not pa.types.is_floating(field.type)]


class TableWriter:
    """Writes a Parquet file in pieces. It is durable once closed, and deleted after an error or if it is empty.

    :param uri: the file.
    :param access: the credentials for the file.
    :param unique: columns whose values hardly repeat: a dictionary of them, and their minimum and maximum, would cost
        more than they save.
    """

    def __init__(self, uri: str, access: Access = DEFAULT_ACCESS, unique: Iterable[str] = ()) -> None:
        self.uri = uri
        self._unique = frozenset(unique)
        self._files, self._path = open_files(uri, access)
        self._writer: pq.ParquetWriter | None = None
        self._stream: pa.NativeFile | None = None
        self.size = 0
        """The size of the file in bytes, once it is closed."""

    def __enter__(self) -> TableWriter:
        """Return itself."""
        return self

    def write(self, table: pa.Table) -> None:
        """Write some rows; the first rows determine the columns.

        :raises ValueError: if the columns differ from those of the first rows.
        """
        if self._writer is None:
            self._stream = self._files.new_file(self._path)
            repeating = [name for name in _indexed(table.schema) if name not in self._unique]
            self._writer = pq.ParquetWriter(
                self._stream, table.schema, compression="zstd", use_dictionary=repeating, write_statistics=repeating
            )
        self._writer.write_table(table)

    def __exit__(self, kind: object, *error: object) -> None:
        """Close the file."""
        if self._stream is None:
            return
        if kind is not None or self._writer is None:
            self._discard(self._stream)
            return
        self._writer.close()
        self.size = int(self._stream.tell())
        self._stream.close()
        self._files.make_durable(self._path)

    def _discard(self, stream: pa.NativeFile) -> None:
        """Delete the file, even if it cannot be closed properly: the disk may be full."""
        for part in (self._writer, stream):
            with suppress(OSError, pa.ArrowException):
                if part is not None:
                    part.close()
        self._files.delete(self._path)


def read_table(uri: str, columns: Sequence[str] | None = None, access: Access = DEFAULT_ACCESS) -> pa.Table:
    """Return the rows of a Parquet file.

    :param columns: only these columns; by default all.
    """
    files, path = open_files(uri, access)
    return pq.read_table(path, columns=columns, filesystem=files.filesystem, partitioning=None)


def read_tables(
    files: Mapping[str, int], columns: Sequence[str] | None = None, access: Access = DEFAULT_ACCESS
) -> pa.Table:
    """Return the rows of Parquet files that have the same columns, in their order; several are read at the same time.

    :param files: at least one file, with their sizes in bytes: a small file is read in one request.
    :param columns: only these columns; by default all.
    :raises Exception: the error of the first file that cannot be read.
    """

    def read(file: tuple[str, int]) -> pa.Table:
        uri, size = file
        return read_table(uri, columns, access) if size > SMALL_BYTES else table_in(read_whole(uri, access)[0], columns)

    tables = side_by_side(files.items(), read, calls_at_once(next(iter(files)), access))
    return pa.concat_tables([result_or_raise(table) for _, table in tables])


def read_small(uri: str, access: Access = DEFAULT_ACCESS) -> pa.Table:
    """Return the rows of a small Parquet file: in one request, and without the threads that help with large files."""
    return table_in(read_whole(uri, access)[0])


def table_in(content: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a small Parquet file.

    :param content: the content of the file.
    :param columns: only these columns; by default all.
    """
    with pq.ParquetFile(pa.BufferReader(content)) as file:
        table = file.read(columns, use_threads=False)
    return table if columns is None else table.select(columns)


def values_of(uri: str, column: str, access: Access = DEFAULT_ACCESS) -> set[str]:
    """Return the distinct texts in a column of a Parquet file; only one row group at a time is in memory."""
    files, path = open_files(uri, access)
    values: set[str] = set()
    with pq.ParquetFile(path, filesystem=files.filesystem, read_dictionary=[column]) as file:
        for group in range(file.num_row_groups):
            values.update(file.read_row_group(group, columns=[column]).column(0).unique().to_pylist())
    return values


def row_count(uri: str, access: Access = DEFAULT_ACCESS) -> int:
    """Return the number of rows of a Parquet file."""
    files, path = open_files(uri, access)
    return int(pq.read_metadata(path, filesystem=files.filesystem).num_rows)


def schema_of(uri: str, access: Access = DEFAULT_ACCESS, *, end: bytes | None = None) -> pa.Schema:
    """Return the schema of a Parquet file, with its metadata; in a bucket, mostly in one request.

    :param end: the end of the file, if `read_end` has read it already.
    :raises FileNotFoundError: if there is no such file.
    :raises pa.ArrowInvalid: if the file is damaged.
    """
    found = _schema_in(read_end(uri, access)[0] if end is None else end)
    if found is not None:
        return found
    files, path = open_files(uri, access)
    return pq.read_schema(path, filesystem=files.filesystem)


def footer_of(uri: str, access: Access = DEFAULT_ACCESS) -> pq.FileMetaData:
    """Return the footer of a Parquet file: its columns, and the metadata of its row groups."""
    files, path = open_files(uri, access)
    return pq.read_metadata(path, filesystem=files.filesystem)


def read_end(uri: str, access: Access = DEFAULT_ACCESS) -> tuple[bytes, int]:
    """Return the end of a file, for `schema_of`, and its size in bytes; in a bucket, in one request.

    :raises FileNotFoundError: if there is no such file.
    """
    files, path = open_files(uri, access)
    return files.tail(path, END_BYTES)


def _schema_in(end: bytes) -> pa.Schema | None:
    """Return the schema of a Parquet file, with its metadata, from the end of the file; None if that is too short.

    :raises pa.ArrowInvalid: if the file is damaged.
    """
    if len(end) == END_BYTES and int.from_bytes(end[-8:-4], "little") + 8 > END_BYTES:
        return None
    return pq.read_schema(pa.BufferReader(end))


def read_whole(uri: str, access: Access = DEFAULT_ACCESS) -> tuple[bytes, int]:
    """Return the content of a small file, for `table_in`, and its size in bytes; in a bucket, in one request.

    :raises FileNotFoundError: if there is no such file.
    """
    files, path = open_files(uri, access)
    content = files.read(path)
    return content, len(content)


def calls_at_once(uri: str, access: Access = DEFAULT_ACCESS) -> int:
    """Return how many calls to the filesystem of a URI are worth making at the same time."""
    return open_files(uri, access)[0].calls_at_once


def file_size(uri: str, access: Access = DEFAULT_ACCESS) -> int | None:
    """Return the size of a file in bytes; None if there is no such file."""
    files, path = open_files(uri, access)
    return files.size(path)


def copy_file(uri: str, target: str, access: Access = DEFAULT_ACCESS) -> None:
    """Copy a file to a name that nobody reads yet, durably.

    :raises MissingFileError: if there is no such file.
    :raises ConfigurationError: if the two are on different filesystems.
    """
    files, path, target_path = _together(uri, target, access)
    try:
        files.copy(path, target_path)
    except FileNotFoundError:
        raise missing_file(uri) from None


def link_files(uris: Sequence[str], folder: str, access: Access = DEFAULT_ACCESS) -> list[str]:
    """Give files second names in a folder that nobody reads yet, durably; copy those that are on other filesystems.

    Copies to an object store, where each one takes a while, run several at a time. No copy is still running when this
    returns or raises.

    :returns: the names, in the order of the files.
    :raises MissingFileError: if one of the files does not exist.
    """
    if not uris:
        return []
    targets = [join(folder, f"part-{n}.parquet") for n in range(len(uris))]
    files, path = open_files(folder, access)
    if files.is_local or len(uris) == 1:
        for uri, target in zip(uris, targets, strict=True):
            _link(uri, target, access)
    else:
        each_at_once(zip(uris, targets, strict=True), lambda of: _link(*of, access), COPIES_AT_ONCE)
    files.flush_folder(path)
    return targets


def _link(uri: str, target: str, access: Access) -> None:
    files, path = open_files(uri, access)
    target_files, target_path = open_files(target, access)
    try:
        if target_files.are(files):
            files.link(path, target_path)
        else:
            target_files.copy_from(files, path, target_path)
    except FileNotFoundError:
        raise missing_file(uri) from None


def publish(
    uri: str, target: str, *, size: int | None = None, claim: Claim | None = None, access: Access = DEFAULT_ACCESS
) -> bool:
    """Give a file its final name.

    A filesystem that renames moves the file, which replaces any file of that name. The first owner that moves or
    removes the source decides: without its source, nothing becomes visible. On S3 the file stays, and its content gets
    the name by one conditional write: the first claim gets the name, and a claim that `replaces` yields only to later
    leases.

    :param size: the size in bytes that the file must have; None for any size.
    :param claim: the lease that publishes the file; None if readers do not read that name: on S3 this is a copy and a
        delete.
    :returns: whether the name now belongs to this file; False if another claim was first, or this claim was made twice.
    :raises MissingFileError: if the file does not exist, or is incomplete, or a later lease has the name.
    :raises ConfigurationError: if the two are on different filesystems.
    """
    files, path, target_path = _together(uri, target, access)
    return files.publish(path, target_path, size=size, claim=claim)


def renames(uri: str, access: Access = DEFAULT_ACCESS) -> bool:
    """Return whether `publish` moves the file itself, so that no other owner can publish it afterwards."""
    return open_files(uri, access)[0].renames


def has_exclusive_names(folder: str, access: Access = DEFAULT_ACCESS) -> bool:
    """Return whether only one succeeds if several owners publish files under the same new name in a folder."""
    files, path = open_files(new_probe(folder), access)
    return files.has_exclusive_names(path)


def _together(uri: str, target: str, access: Access) -> tuple[Files, str, str]:
    files, path = open_files(uri, access)
    target_files, target_path = open_files(target, access)
    if not target_files.are(files):
        raise different_filesystems(uri, target)
    return files, path, target_path


def exists(uri: str, access: Access = DEFAULT_ACCESS) -> bool:
    """Return whether there is a file or folder of this name; object stores have no folders."""
    files, path = open_files(uri, access)
    return files.exists(path)


def files_below(uri: str, access: Access = DEFAULT_ACCESS) -> list[str]:
    """Return the URIs of all files below a folder; an empty list if it does not exist."""
    return [join(uri, name) for name, _ in _found_below(uri, access)]


def files_in_folders(
    root: str, folders: Collection[str], access: Access = DEFAULT_ACCESS
) -> Iterator[tuple[str, list[str] | Exception]]:
    """Yield each folder with the URIs of all files below it.

    In a bucket, folders with the same parent are listed together, if that takes no more requests than separate
    listings.

    :param folders: the names of the folders below the root.
    """
    files, path = open_files(root, access)
    left = list(folders)
    parents: dict[str, list[str]] = {}
    if not files.renames:
        for folder in left:
            parents.setdefault(folder.rpartition("/")[0], []).append(folder)
    for parent, together in parents.items():
        with suppress(OSError):  # the separate listings report the error
            listed = files.below(join(path, parent), pages=len(together)) if parent and len(together) > 1 else None
            if listed is None:
                continue
            below: dict[str, list[str]] = {folder: [] for folder in together}
            for each in listed:
                name = each.path[len(path) + 1 :]
                folder = name[: name.find("/", len(parent) + 1)]
                if folder in below:
                    below[folder].append(join(root, name))
            yield from below.items()
            left = [folder for folder in left if folder not in below]
    yield from side_by_side(left, lambda folder: files_below(join(root, folder), access), files.calls_at_once)


def files_before(uri: str, instant: datetime, access: Access = DEFAULT_ACCESS) -> list[str]:
    """Return the URIs of the files below a folder that were written before an instant (aware).

    Files whose time is unknown are left out.
    """
    found = _found_below(uri, access)
    return [join(uri, name) for name, written in found if written is not None and written.astimezone(UTC) < instant]


def _found_below(uri: str, access: Access) -> list[tuple[str, datetime | None]]:
    """Return the names of the files below a folder, relative to it, and when each file was written."""
    files, path = open_files(uri, access)
    return [(each.path[len(path) :].lstrip("/"), each.written) for each in files.below(path) or ()]


def folders_in(uri: str, access: Access = DEFAULT_ACCESS) -> list[str]:
    """Return the names of the folders directly in a folder; an empty list if it does not exist."""
    files, path = open_files(uri, access)
    found = files.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return [info.base_name for info in found if info.type == fs.FileType.Directory]


def delete_file(uri: str, access: Access = DEFAULT_ACCESS) -> None:
    """Delete a file; nothing happens if there is none."""
    files, path = open_files(uri, access)
    files.delete(path)


def delete_files(uris: Iterable[str], access: Access = DEFAULT_ACCESS) -> None:
    """Delete the files that exist; in a bucket, up to 1,000 in one request.

    :raises OSError: if some cannot be deleted; the others may be deleted.
    """
    by_bucket: dict[str, list[str]] = {}  # by scheme and bucket; each has one filesystem
    for uri in uris:
        by_bucket.setdefault("/".join(uri.split("/", 3)[:3]) if is_s3(uri) else "", []).append(uri)
    for of_bucket in by_bucket.values():
        files, _ = open_files(of_bucket[0], access)
        if files.renames:
            for uri in of_bucket:
                delete_file(uri, access)
        else:
            files.delete_each([open_files(uri, access)[1] for uri in of_bucket])


def remove_files(files: Iterable[str], access: Access = DEFAULT_ACCESS, *, is_dry_run: bool) -> tuple[int, int]:
    """Remove files; return the number of files that existed, and their size in bytes.

    :param is_dry_run: whether to count only, and remove nothing.
    """
    number = size = 0
    for file in files:
        file_bytes = file_size(file, access)
        if file_bytes is None:
            continue
        number, size = number + 1, size + file_bytes
        if not is_dry_run:
            delete_file(file, access)
    return number, size


def delete_folder(uri: str, access: Access = DEFAULT_ACCESS) -> None:
    """Delete a folder with its content; nothing happens if there is none.

    :raises OSError: if it cannot be deleted, or other writers keep adding files.
    """
    files, path = open_files(uri, access)
    files.delete_folder(path)


def remove_if_empty(uri: str, access: Access = DEFAULT_ACCESS) -> None:
    """Remove a local folder if it is empty; object stores have no folders, and other filesystems keep empty ones."""
    files, path = open_files(uri, access)
    files.remove_if_empty(path)


def make_folder(uri: str, access: Access = DEFAULT_ACCESS) -> None:
    """Create a folder with its parents, if the filesystem has folders."""
    files, path = open_files(uri, access)
    files.make_folder(path)


def check_writable(field: str, root: str, access: Access = DEFAULT_ACCESS) -> None:
    """Check that files can be written to a folder, which is created if it does not exist.

    Probe files and unfinished uploads that dead jobs left are removed.

    :param field: the user's name for the folder, such as `field 'landing_path'`.
    :raises ConfigurationError: naming the field, the path, the reason and the remedy.
    :raises SinkUnavailableError: if the location is unavailable at present, or has no free space.
    """
    try:
        make_folder(root, access)
        files, probe = open_files(new_probe(root), access)
        files.check_writable(probe)
        _sweep_probes(root, access)
    except (OSError, ValueError, ConfigurationError) as error:
        if is_outage(error) and not is_refusal(error):
            raise SinkUnavailableError(
                f"{field} is {root!r}, where nothing can be written at present: {error}; run again after the outage"
            ) from error
        if (refused := _refusal(root, error)) is not None:
            raise ConfigurationError(
                f"{field} is {root!r}, which cannot be written: {refused.problem}; {refused.remedy}"
            ) from error
        link = f"it is a link to {str(Path(root).readlink())!r}; " if Path(root).is_symlink() else ""
        raise ConfigurationError(
            f"{field} is {root!r}, which cannot be written: {link}{error}; correct the path, or let the user who "
            "runs the job write there"
        ) from error
    files, path = open_files(root, access)
    try:
        files.abort_uploads(path)
    except OSError as error:  # writing does not need the permission to do this
        log.warning("unfinished uploads below %s could not be removed; use a lifecycle rule: %s", root, error)


def _refusal(root: str, error: Exception) -> S3RefusedError | None:
    """Return the refusal of S3 that an error of boto3 or pyarrow means; None if it means something else."""
    if isinstance(error, S3RefusedError):
        return error
    path = bucket_path(root)
    return None if path is None or isinstance(error, ConfigurationError) else refusal(path, str(error), {})


def probe_rename(root: str, target: str, access: Access = DEFAULT_ACCESS) -> None:
    """Check that files can be published from one folder to another; both are known to be writable.

    :raises ConfigurationError: if they cannot.
    """
    probe = _write_probe(root, access)
    renamed = new_probe(target)
    make_folder(join(target, PROBES), access)
    publish(probe, renamed, access=access)
    delete_file(renamed, access)
    for folder in (root, target):
        remove_if_empty(join(folder, PROBES), access)


def new_probe(root: str, *names: str) -> str:
    """Return a new URI for a probe file, which shows whether a folder is writable.

    :param names: the first parts of the file's name.
    """
    return join(root, PROBES, ".".join((*names, secrets.token_hex(4))))


def _write_probe(root: str, access: Access) -> str:
    probe = new_probe(root)
    write_text(probe, "check", access)
    return probe


def _sweep_probes(root: str, access: Access) -> None:
    """Delete the probe files of dead jobs; a recent one belongs to a job that is starting."""
    folder, now = join(root, PROBES), datetime.now(UTC)
    for name, written in _found_below(folder, access):
        if written is not None and now - written > PROBES_KEPT:
            delete_file(join(folder, name), access)
    remove_if_empty(folder, access)


def write_text(uri: str, text: str, access: Access = DEFAULT_ACCESS) -> None:
    """Write a small file, and create its folder."""
    files, path = open_files(uri, access)
    files.write(path, text.encode())


def read_text(uri: str, access: Access = DEFAULT_ACCESS) -> str:
    """Return the content of a small text file."""
    files, path = open_files(uri, access)
    return files.read(path).decode()
