"""Locations of objects: in buckets of S3, or on a filesystem that pyarrow supports.

An object's URI is `s3://bucket/key` with the unchanged key, never percent-encoded; a local file's URI is its path.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.aws import AwsSettings, aws_client
from airflow_provider_coordination.coordination.errors import ConfigurationError

if TYPE_CHECKING:
    from pyarrow import fs

_S3 = re.compile(r"s3[an]?://")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_s3(uri: str) -> bool:
    """Return whether a URI is in S3: its scheme is `s3`, or Hadoop's `s3a` or `s3n`."""
    return _S3.match(uri) is not None


def bucket_and_key(uri: str) -> tuple[str, str]:
    """Return the bucket and the key, or prefix, of a URI in S3.

    :param uri: a URI for which `is_s3` is true.
    """
    bucket, _, key = _S3.sub("", uri, count=1).partition("/")
    return bucket, key


def object_uri(bucket: str, key: str) -> str:
    """Return the URI of an object in S3."""
    return f"s3://{bucket}/{key}"


def folder_of(uri: str) -> str:
    """Return the folder of an object, with a trailing `/`."""
    return uri[: uri.rindex("/") + 1]


def s3_client(aws: AwsSettings) -> Any:
    """Return a client of S3; it may be shared by threads.

    :param aws: the settings for S3.
    :raises ConfigurationError: if no region is known, or the endpoint is not a URL.
    """
    return aws_client(aws, "s3")


def open_filesystem(uri: str) -> tuple[fs.FileSystem, str, str]:
    """Open the filesystem of a URI that is not in S3.

    :returns: the filesystem, the path in it, and the prefix that makes a URI of such a path.
    :raises ConfigurationError: if pyarrow does not support the filesystem.
    """
    import pyarrow as pa
    from pyarrow import fs

    scheme = _SCHEME.match(uri)
    if scheme is None or scheme[0] == "file://":
        path = uri.removeprefix("file://")
        return fs.LocalFileSystem(), path.rstrip("/") or "/", ""
    try:
        # The path is used unchanged: pyarrow would decode a '%41' in it to an 'A'.
        authority, _, path = uri[scheme.end() :].partition("/")
        filesystem = fs.FileSystem.from_uri(f"{scheme[0]}{authority}/")[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise ConfigurationError(f"S3Objects: field 'paths': {uri!r} cannot be reached: {error}") from None
    return filesystem, f"/{path}".rstrip("/") or "/", f"{scheme[0]}{authority}"


def check_path(uri: str) -> str | None:
    """Return why a path is no valid location, and the remedy; None if it is one."""
    if is_s3(uri):
        bucket, _ = bucket_and_key(uri)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]", bucket):
            return "must name a bucket, such as s3://bucket/prefix"
    elif not (uri.startswith("/") or _SCHEME.match(uri)):
        return "must be a URI such as s3://bucket/prefix, or an absolute path"
    if re.search(r"[*?]|\{[^{}]*,[^{}]*\}", uri):
        return (
            "must not contain a glob; give the folder before it as the path, such as 's3://bucket/in/', and the glob "
            "as 'include', such as '*.json'"
        )
    return "must not contain a NUL" if "\0" in uri else None
