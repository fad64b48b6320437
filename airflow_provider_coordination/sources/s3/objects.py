"""Objects in buckets of S3, or on a filesystem that pyarrow supports: their locations, their errors and their deletion.

An object's URI is `s3://bucket/key` with the unchanged key, never percent-encoded; a local file's URI is its path.
`object_errors` alone translates the errors of S3 and filesystems. Every error that a user must fix is a
`ConfigurationError`; a temporary one is a `SourceUnavailableError`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.aws import ACCESS_CODES, NAME_CREDENTIALS, AwsSettings, aws_client
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError, SourceError
from airflow_provider_coordination.coordination.partition import format_instant, parse_instant
from airflow_provider_coordination.coordination.texts import sentence
from airflow_provider_coordination.sources.items import (
    Item,
    ItemGoneError,
    ItemUnreadableError,
    SourceUnavailableError,
)

if TYPE_CHECKING:
    from pyarrow import fs

log = logging.getLogger(__name__)

DELETION_THREADS = 16
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


def file_version(info: Any) -> str:
    """Return the version of a file: a text that changes with its content.

    :param info: as a filesystem of pyarrow returns it.
    """
    return f"{info.mtime_ns}-{info.size}"


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


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object, or a file, that a listing found.

    :param uri: its location; see `locations`.
    :param size: its size in bytes, as stored.
    :param version: a text that changes with its content: in S3 its ETag, including quotes; for a file its time and
        size.
    :param modified: when it was last modified (aware, UTC). S3 reports whole seconds, and for an object that was
        uploaded in parts the start of the upload.
    """

    uri: str
    size: int
    version: str
    modified: datetime

    @property
    def name(self) -> str:
        """The name that a partition claims for it; an upload with other content gets another name."""
        return f"{self.uri}@{self.version}"

    @property
    def folder(self) -> str:
        """The folder that it is in."""
        return folder_of(self.uri)

    def to_item(self, written: Callable[[datetime], str] = format_instant) -> dict[str, Any]:
        """Return the item of a partition for it.

        :param written: formats its instant; pass a cached function to format many objects faster.
        """
        return {
            "uri": self.uri,
            "size": self.size,
            "version": self.version,
            "modified": written(self.modified),
        }

    @classmethod
    def from_item(cls, item: Item) -> ListedObject:
        """Return the object that an item of a partition names."""
        return cls(item["uri"], item["size"], item["version"], parse_instant(item["modified"]))


class BucketNotFoundError(ConfigurationError):
    """The bucket, or the folder, does not exist."""


class ObjectAccessDeniedError(ConfigurationError):
    """The credentials are refused, or do not allow the call."""


GONE_CODES = frozenset({"404", "NoSuchKey", "NoSuchVersion", "NotFound"})
CHANGED_CODES = frozenset({"412", "PreconditionFailed"})
REFUSED_CODES = ACCESS_CODES | {
    "403",
    "AccountProblem",
    "AllAccessDisabled",
    "Forbidden",
    "InvalidAccessKeyId",
    "InvalidToken",
}


@contextmanager
def object_errors(uri: str, action: str, right: str) -> Iterator[None]:
    """Raise the errors of the enclosed calls as errors of this package.

    :param uri: the object or the path that they concern.
    :param action: what is done with it, such as `list`.
    :param right: the permission that it needs, such as `s3:ListBucket`.
    :raises ItemGoneError: if the object does not exist, or was replaced.
    :raises ItemUnreadableError: if it is shorter than expected.
    :raises BucketNotFoundError: if its bucket does not exist.
    :raises ObjectAccessDeniedError: if the permission is missing.
    :raises SourceUnavailableError: for every other error: trying again may help.
    """
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        NoCredentialsError,
        ParamValidationError,
        PartialCredentialsError,
    )

    where = f"{uri}: cannot {action}"
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        message = sentence(error)
        if code == "NoSuchBucket":
            raise BucketNotFoundError(
                f"{where}: its bucket does not exist; check 'paths', the region and endpoint_url, or create it"
            ) from error
        if code in GONE_CODES:
            raise ItemGoneError(f"{uri} does not exist any more") from error
        if code in CHANGED_CODES:
            raise ItemGoneError(
                f"{uri} was replaced since it was listed; the new object is read as a separate item"
            ) from error
        if code in ("416", "InvalidRange"):
            raise ItemUnreadableError(f"{uri} is shorter than it was listed or announced; upload it again") from error
        if code in REFUSED_CODES:
            raise ObjectAccessDeniedError(
                f"{where}: {message}; check the credentials, and that they allow {right} on it"
            ) from error
        if code in ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"):
            raise ConfigurationError(f"{where}: {message}; give the region that its bucket is in") from error
        raise SourceUnavailableError(f"{where}: {message}") from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise ObjectAccessDeniedError(f"{where}: {sentence(error)}; {NAME_CREDENTIALS}") from error
    except ParamValidationError as error:
        raise ConfigurationError(f"{where}: {sentence(error)}; check the name of its bucket") from error
    except BotoCoreError as error:
        raise SourceUnavailableError(
            f"{where}: no valid response: {sentence(error)}; check endpoint_url, region and the network"
        ) from error
    except FileNotFoundError as error:
        raise ItemGoneError(f"{uri} does not exist any more") from error
    except PermissionError as error:
        raise ObjectAccessDeniedError(
            f"{where}: {sentence(error)}; give the user that runs this process the permission"
        ) from error
    except OSError as error:
        raise SourceUnavailableError(f"{where}: {sentence(error)}") from error


class DeletionError(SourceError):
    """Delivered objects could not be deleted; the next scan tries again."""


def delete_delivered(items: Sequence[Item], client: Callable[[], Any]) -> None:
    """Delete the objects of partitions that are delivered.

    An object is deleted only if it is the one that was read: the same version, modified at the same time. If S3
    supports conditional deletes, it ensures this itself. Otherwise an object that is uploaded in the moment between
    the check and the deletion is lost.

    :param items: the items that were read.
    :param client: returns a client of S3.
    :raises DeletionError: if some could not be deleted; the others are.
    """
    objects = [ListedObject.from_item(item) for item in items]
    s3 = client() if any(is_s3(each.uri) for each in objects) else None

    def delete(listed: ListedObject) -> CoordinationError | None:
        try:
            deleted = delete_s3(s3, listed) if is_s3(listed.uri) else delete_file(listed)
            if not deleted:
                log.info("%s is not deleted: it was uploaded again since it was read", listed.uri)
        except ItemGoneError:
            pass
        except (ConfigurationError, SourceError) as error:
            return error
        return None

    with ThreadPoolExecutor(DELETION_THREADS, thread_name_prefix="deletion") as pool:
        errors = [error for error in pool.map(delete, objects) if error is not None]
    if errors:
        raise DeletionError(
            f"{len(errors)} of {len(objects)} delivered objects could not be deleted; the first: {errors[0]}"
        ) from errors[0]


def delete_s3(client: Any, listed: ListedObject) -> bool:
    """Delete an object of S3; return whether it still was the listed version.

    :raises ItemGoneError: if it does not exist, or was replaced.
    """
    bucket, key = bucket_and_key(listed.uri)
    with object_errors(listed.uri, "delete", "s3:GetObject and s3:DeleteObject"):
        head = client.head_object(Bucket=bucket, Key=key)
        # An event is never before its object's own time, but may be after it.
        if head["ETag"] != listed.version or int(head["LastModified"].timestamp()) > int(listed.modified.timestamp()):
            return False
        client.delete_object(Bucket=bucket, Key=key, IfMatch=listed.version)
    return True


def delete_file(listed: ListedObject) -> bool:
    """Delete a file; return whether it still was the listed version.

    :raises ItemGoneError: if it does not exist.
    """
    from pyarrow import fs

    filesystem, path, _ = open_filesystem(listed.uri)
    with object_errors(listed.uri, "delete", "deleting"):
        info = filesystem.get_file_info(path)
        if info.type != fs.FileType.File:
            raise ItemGoneError(f"{listed.uri} does not exist any more")
        if file_version(info) != listed.version:
            return False
        filesystem.delete_file(path)
    return True
