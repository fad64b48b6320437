"""Files of landing and datasets, by URI, on every filesystem that pyarrow reaches: local, HDFS, S3.

`publish` makes a file visible as a whole, or fails if its source is gone. No function here treats a missing file as a
success. Functions with a parameter `access` use the credentials of the job's sinks for S3. Filesystems are kept for the
life of the process, one for each access; credentials that expire are fetched again before they do.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from airflow_provider_coordination.aws import CONNECT_TIMEOUT_SECONDS, AwsSettings, aws_client, aws_session
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.access import (
    DEFAULT_ACCESS,
    Access,
    S3RefusedError,
    bucket_path,
    is_s3,
    refusal,
)
from airflow_provider_coordination.spark.concurrency import each_at_once, side_by_side
from airflow_provider_coordination.spark.delivery import SinkUnavailableError
from airflow_provider_coordination.spark.files import Claim, Files, changed_file, different_filesystems, missing_file
from airflow_provider_coordination.spark.outages import is_temporary
from airflow_provider_coordination.spark.s3_objects import BucketFiles

_OPENING = threading.Lock()
"""Held while a filesystem is opened, so that only one thread fetches the same credentials."""
KEPT = 32
"""How many S3 filesystems a process keeps: one for each access, and those of earlier credentials."""
PLAIN_PATH = re.compile(r"(/[\w=:%|-][\w=:%|.-]*)+")
"""A local path that pyarrow accepts unchanged: parsing a path with pyarrow takes as long as opening a file."""


log = logging.getLogger(__name__)
READABLE_CHARACTERS = 60
"""How many characters of a text its safe name shows; with the digest, the name fits the 255 bytes of filesystems."""
COPIES_AT_ONCE = 8
PROBES = "_probe"
"""The folder below a root for probe files: readers do not treat them as part of a dataset."""
PROBES_KEPT = timedelta(days=1)
"""An older probe file was left by a job that died: none is used for longer than minutes."""


def absolute(uri: str) -> str:
    """Return a local path as an absolute one; return URIs unchanged."""
    return uri if "://" in uri else str(Path(uri).absolute())


def open_files(uri: str, access: Access) -> tuple[Files, str]:
    """Return the filesystem of a URI, and the URI's path there.

    :raises ConfigurationError: if no filesystem supports the URI.
    """
    if not uri:
        raise ValueError("the path is empty, which would be the current directory")
    if PLAIN_PATH.fullmatch(uri):
        return _local_files(), uri
    if (path := bucket_path(uri)) is not None:
        with _OPENING:
            return _s3_objects(access.of(uri) or AwsSettings(), path.partition("/")[0]), path
    try:
        filesystem, path = fs.FileSystem.from_uri(absolute(uri))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigurationError(f"{uri!r} is not a path that can be written: {error}") from None
    return Files(filesystem), path


@cache
def _local_files() -> Files:
    return Files(fs.LocalFileSystem())


@cache
def _s3_session(aws: AwsSettings) -> Any:
    return aws_session(aws)


@cache
def _s3_client(aws: AwsSettings) -> Any:
    client = aws_client(aws, "s3", session=_s3_session(aws))
    # boto3 would follow a bucket into another region, but pyarrow and the table libraries would not.
    client.meta.events.register_last("before-endpoint-resolution.s3", _stay_in_region)
    return client


def _stay_in_region(context: dict[str, Any], **_: object) -> None:
    context.get("s3_redirect", {})["redirected"] = True


@cache
def _s3_objects(aws: AwsSettings, bucket: str) -> BucketFiles:
    """Return the objects of a bucket; the same instance for every call."""
    session = _s3_session(aws)
    credentials = session.get_credentials()
    if credentials is None:
        raise ConfigurationError(
            f"bucket {bucket!r}: no connection has keys for it, and the AWS default credential chain finds none on "
            "this machine; set 'aws_conn_id' of the dataset in this bucket, or give the machine an instance role"
        )
    region = aws.region or session.region_name or fs.resolve_s3_region(bucket)
    client = _s3_client(aws)
    settings = replace(aws, region=region, endpoint_url=_other_endpoint(client.meta.endpoint_url))

    def present() -> fs.FileSystem:
        frozen = credentials.get_frozen_credentials()  # fetches them again if they are about to expire
        return _s3_filesystem(settings, frozen.access_key, frozen.secret_key, frozen.token)

    return BucketFiles(client, present)


def _other_endpoint(url: str) -> str | None:
    """Return the endpoint to which boto3 sends its requests; None if it is an endpoint of AWS."""
    return None if re.search(r"\.amazonaws\.com(\.cn)?$", urlsplit(url).hostname or "") else url


@lru_cache(KEPT)
def _s3_filesystem(aws: AwsSettings, key: str, secret: str, token: str | None) -> fs.S3FileSystem:
    scheme, _, endpoint = (aws.endpoint_url or "https://").partition("://")
    return fs.S3FileSystem(
        access_key=key,
        secret_key=secret,
        session_token=token,
        region=aws.region,
        scheme=scheme,
        endpoint_override=endpoint.rstrip("/") or None,
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=aws.max_attempts),
        allow_delayed_open=True,  # a small file is one PUT
    )


def safe_name(text: str) -> str:
    """Return a name that is valid in paths on every filesystem, and different for different texts.

    It shows the start of the text; 128 bits of a digest distinguish texts, whatever their characters and length.
    """
    readable = re.sub(r"[^A-Za-z0-9._-]", "-", text)[:READABLE_CHARACTERS].strip("-.") or "unnamed"
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def join(root: str, *names: str) -> str:
    """Return the URI or path of a name below a root."""
    return "/".join((root.rstrip("/"), *names))


def calls_at_once(uri: str, access: Access = DEFAULT_ACCESS) -> int:
    """Return how many calls to the filesystem of a URI are worth making at the same time."""
    return open_files(uri, access)[0].calls_at_once


def file_size(uri: str, access: Access = DEFAULT_ACCESS) -> int | None:
    """Return the size of a file in bytes; None if there is no such file."""
    files, path = open_files(uri, access)
    return files.size(path)


def check_size(uri: str, size: int, access: Access = DEFAULT_ACCESS) -> None:
    """Check that a file has the size with which it was written.

    :raises MissingFileError: if it does not exist, or has another size.
    """
    found = file_size(uri, access)
    if found is None:
        raise missing_file(uri)
    if found != size:
        raise changed_file(uri, found, size)


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
        if is_temporary(error):
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
    """Return a new URI for a probe file, which shows whether a folder is writable, or for a folder of such files.

    :param names: the first parts of its name.
    """
    return join(root, PROBES, ".".join((*names, secrets.token_hex(4))))


def _write_probe(root: str, access: Access) -> str:
    probe = new_probe(root)
    write_text(probe, "check", access)
    return probe


def _sweep_probes(root: str, access: Access) -> None:
    """Delete the probe files of dead jobs; a recent one belongs to a job that is starting.

    Who writes to a folder that was removed while it was empty creates it again.
    """
    folder = join(root, PROBES)
    for file in files_before(folder, datetime.now(UTC) - PROBES_KEPT, access):
        delete_file(file, access)
    files, path = open_files(folder, access)
    with suppress(OSError):  # another job removes them as well
        files.remove_empty_folders(path)


def write_text(uri: str, text: str, access: Access = DEFAULT_ACCESS) -> None:
    """Write a small file, and create its folder."""
    files, path = open_files(uri, access)
    files.write(path, text.encode())


def create_once(uri: str, text: str, access: Access = DEFAULT_ACCESS) -> bool:
    """Create a small file as a whole, unless there is one; return whether this call created it.

    Only for folders whose names are exclusive; see `has_exclusive_names`.
    """
    files, path = open_files(uri, access)
    draft = f"{path}.{secrets.token_hex(4)}.draft"
    files.write(draft, text.encode())
    try:
        return files.create_once(draft, path)
    finally:
        files.delete(draft)


def read_text(uri: str, access: Access = DEFAULT_ACCESS) -> str:
    """Return the content of a small text file."""
    files, path = open_files(uri, access)
    return files.read(path).decode()
