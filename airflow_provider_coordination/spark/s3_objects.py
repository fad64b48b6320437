"""The objects of an S3 bucket, which has no renames: an object becomes visible by one conditional write.

A published object carries the fencing token of its lease and its acknowledgment set. S3 decides: a new name is given
once (`If-None-Match: *`), and an object is replaced only if it is unchanged since it was read (`If-Match`). So a late
request of a previous owner changes nothing that a later owner published.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import count
from typing import Any

from pyarrow import fs

from airflow_provider_coordination.aws import ACCESS_CODES, response_time
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.access import REFUSED_CODES, refusal
from airflow_provider_coordination.spark.files import (
    Claim,
    Files,
    FoundFile,
    MissingFileError,
    changed_file,
    missing_file,
)

log = logging.getLogger(__name__)

SINGLE_PUT_BYTES = 16 * 2**20
"""Larger objects are copied by S3 in parts, and do not pass through memory."""
PART_BYTES = 64 * 2**20
REPLACE_TRIES = 5
"""How often to read an object again that others replace at the same time."""
PAGE_OBJECTS = 1000
"""S3 lists, and deletes, at most this number of objects in one request."""
DEAD_AFTER = timedelta(days=1)
"""An upload that was started longer ago will not be completed."""
TOKEN, SET = "fencing-token", "acknowledgment-set"
"""The metadata keys of a published object."""

UNKNOWN_CODES = frozenset({"NotImplemented", "MethodNotAllowed", "501", "405"})
"""Error codes of object stores that do not support a request."""
GONE_CODES = frozenset({"404", "NoSuchKey", "NotFound"})
LOST_CODES = frozenset({"409", "412", "ConditionalRequestConflict", "PreconditionFailed"})
"""Error codes for a conditional write if another write came first."""


@dataclass(frozen=True)
class _Found:
    """An existing object."""

    size: int
    etag: str
    metadata: Mapping[str, str]

    @property
    def token(self) -> int:
        """The fencing token of the lease under which it was published; -1 if it has none."""
        token = self.metadata.get(TOKEN, "")
        return int(token) if token.isdigit() else -1


class BucketFiles(Files):
    """The objects that an S3 client reaches; a path is the bucket and the key.

    :param client: the boto3 client.
    :param filesystem: returns pyarrow's filesystem for the same bucket, with credentials that are valid for a while.
    """

    renames = False

    def __init__(self, client: Any, filesystem: Callable[[], fs.FileSystem]) -> None:
        self._client = client
        self._present = filesystem
        self._has_exclusive_names: bool | None = None
        self._deletes_pages = True

    @property
    @override
    def filesystem(self) -> fs.FileSystem:
        return self._present()

    @property
    @override
    def is_local(self) -> bool:
        return False

    @override
    def are(self, other: Files) -> bool:
        return isinstance(other, BucketFiles) and self._client is other._client

    @override
    def size(self, path: str) -> int | None:
        found = self._head(path)
        return None if found is None else found.size

    @override
    def exists(self, path: str) -> bool:
        return self._head(path) is not None

    @override
    def make_folder(self, path: str) -> None:
        pass  # there are none

    @override
    def read(self, path: str) -> bytes:
        with _as_os_errors(path):
            return bytes(self._client.get_object(**_named(path))["Body"].read())

    @override
    def tail(self, path: str, length: int) -> tuple[bytes, int]:
        # In one request.
        with _as_os_errors(path):
            response = self._client.get_object(**_named(path), Range=f"bytes=-{length}")
            content = bytes(response["Body"].read())
        _, _, size = response.get("ContentRange", "").rpartition("/")
        return content[-length:], int(size) if size.isdigit() else len(content)

    @override
    def below(self, path: str, pages: int | None = None) -> list[FoundFile] | None:
        # One request for each page.
        bucket, _, prefix = path.partition("/")
        files: list[FoundFile] = []
        more: dict[str, str] = {}
        with _as_os_errors(path):
            for number in count(1):
                response = self._client.list_objects_v2(
                    Bucket=bucket, Prefix=f"{prefix}/".lstrip("/"), MaxKeys=PAGE_OBJECTS, **more
                )
                files += [
                    FoundFile(path=f"{bucket}/{each['Key']}", bytes=each["Size"], written=each["LastModified"])
                    for each in response.get("Contents", [])
                    if not each["Key"].endswith("/")  # a folder marker of another program
                ]
                if not response.get("IsTruncated"):
                    return files
                if number == pages:
                    return None
                more = {"ContinuationToken": response["NextContinuationToken"]}
        raise AssertionError("a listing has an end")

    @override
    def write(self, path: str, content: bytes) -> None:
        with _as_os_errors(path):
            self._client.put_object(**_named(path), Body=content)

    @override
    def copy(self, path: str, target: str) -> None:
        # S3 copies the object.
        with _as_os_errors(path):
            self._client.copy_object(**_named(target), CopySource=_named(path))

    @override
    def publish(self, path: str, target: str, *, size: int | None, claim: Claim | None) -> bool:
        # The source object stays, unless there is no claim.
        if claim is None:
            if size is not None:
                self._checked_size(path, size)
            try:
                self.copy(path, target)
            except FileNotFoundError:
                raise missing_file(path) from None
            self.delete(path)
            return True
        if size is None or size > SINGLE_PUT_BYTES:
            size = self._checked_size(path, size)
        for _ in range(REPLACE_TRIES):
            condition = self._condition(target, claim)
            if condition is None or self._put(path, size, target, condition, claim):
                return True
            if not claim.replaces:
                return False
        raise OSError(f"{target} was replaced by other writers {REPLACE_TRIES} times while it was published")

    @override
    def create_once(self, path: str, target: str) -> bool:
        claim = Claim(fencing_token=0, set_id=path)  # the draft's name, which is used once
        return self.publish(path, target, size=None, claim=claim) or self._is_of(target, claim)

    def _is_of(self, target: str, claim: Claim) -> bool:
        """Return whether a name belongs to a claim, whose request may have got no response."""
        found = self._head(target)
        return found is not None and found.metadata.get(SET) == _digest(claim.set_id)

    def _checked_size(self, path: str, size: int | None) -> int:
        object_found = self._head(path)
        if object_found is None:
            raise missing_file(path)
        if size is not None and object_found.size != size:
            raise changed_file(path, object_found.size, size)
        return object_found.size

    def _condition(self, target: str, claim: Claim) -> dict[str, str] | None:
        """Return the condition for writing a name; None if this claim has the name already, without having seen it.

        :raises MissingFileError: if a later lease has the name.
        """
        published = self._head(target) if claim.replaces else None
        if published is None:
            return {"IfNoneMatch": "*"}
        if published.token > claim.fencing_token:
            raise MissingFileError(
                f"{target} is published under a later lease, with token {published.token}; this lease has token "
                f"{claim.fencing_token}"
            )
        if published.token == claim.fencing_token and published.metadata.get(SET) == _digest(claim.set_id):
            return None
        return {"IfMatch": published.etag}

    def _put(self, path: str, size: int, target: str, condition: Mapping[str, str], claim: Claim) -> bool:
        """Give an object its final name, in one conditional request; return False if another write came first."""
        metadata = {TOKEN: str(claim.fencing_token), SET: _digest(claim.set_id)}
        put = self._put_whole if size <= SINGLE_PUT_BYTES else self._put_in_parts
        from botocore.exceptions import ClientError

        with _as_os_errors(target):
            try:
                put(path, size, target, metadata, condition)
            except ClientError as error:
                code = _code(error)
                if code in LOST_CODES or ("IfMatch" in condition and code in GONE_CODES):
                    return False
                if code != "NotImplemented":
                    raise
                put(path, size, target, metadata, {})  # without support for conditions, the earlier check must do
        return True

    def _put_whole(
        self, path: str, size: int, target: str, metadata: Mapping[str, str], condition: Mapping[str, str]
    ) -> None:
        try:
            content = self.read(path)
        except FileNotFoundError:
            raise missing_file(path) from None
        if len(content) != size:
            raise changed_file(path, len(content), size)
        self._client.put_object(**_named(target), Body=content, Metadata=metadata, **condition)

    def _put_in_parts(
        self, path: str, size: int, target: str, metadata: Mapping[str, str], condition: Mapping[str, str]
    ) -> None:
        upload = self._client.create_multipart_upload(**_named(target), Metadata=metadata)["UploadId"]
        try:
            parts = []
            for number, start in enumerate(range(0, size, PART_BYTES), 1):
                part = f"bytes={start}-{min(start + PART_BYTES, size) - 1}"
                etag = self._copy_part(path, part, target, upload, number)
                parts.append({"PartNumber": number, "ETag": etag})
            self._client.complete_multipart_upload(
                **_named(target), UploadId=upload, MultipartUpload={"Parts": parts}, **condition
            )
        except BaseException:
            with suppress(Exception):  # the next job that starts, or a lifecycle rule, aborts the upload
                self._client.abort_multipart_upload(**_named(target), UploadId=upload)
            raise

    def _copy_part(self, path: str, part: str, target: str, upload: str, number: int) -> str:
        from botocore.exceptions import ClientError

        try:
            response = self._client.upload_part_copy(
                **_named(target), UploadId=upload, PartNumber=number, CopySource=_named(path), CopySourceRange=part
            )
        except ClientError as error:
            if _code(error) in GONE_CODES:
                raise missing_file(path) from None
            raise
        return str(response["CopyPartResult"]["ETag"])

    @override
    def delete(self, path: str) -> None:
        with _as_os_errors(path):
            self._client.delete_object(**_named(path))

    @override
    def delete_each(self, paths: Sequence[str]) -> None:
        # One page of objects per request, or one object if the store supports no pages.
        if len(paths) == 1:
            self.delete(paths[0])
            return
        for start in range(0, len(paths), PAGE_OBJECTS):
            page = [_named(path) for path in paths[start : start + PAGE_OBJECTS]]
            with _as_os_errors(paths[start]):
                self._delete_page(page[0]["Bucket"], [{"Key": each["Key"]} for each in page])

    @override
    def delete_folder(self, path: str) -> None:
        # One page of objects per request.
        bucket, _, prefix = path.partition("/")
        with _as_os_errors(path):
            for page in self._pages(bucket, f"{prefix}/"):
                self._delete_page(bucket, page)

    def _delete_page(self, bucket: str, page: Sequence[Mapping[str, str]]) -> None:
        from botocore.exceptions import ClientError

        if self._deletes_pages:
            try:
                response = self._client.delete_objects(Bucket=bucket, Delete={"Objects": list(page), "Quiet": True})
            except ClientError as error:
                if _code(error) not in UNKNOWN_CODES:
                    raise
                self._deletes_pages = False
            else:
                if errors := response.get("Errors"):
                    name = f"{bucket}/{errors[0].get('Key')}"
                    text = f"{errors[0].get('Code')}: {errors[0].get('Message')}"
                    raise (PermissionError if errors[0].get("Code") in ACCESS_CODES else OSError)(f"{name}: {text}")
                return
        for each in page:
            self._client.delete_object(Bucket=bucket, **each)

    def _pages(self, bucket: str, prefix: str) -> Iterator[list[dict[str, str]]]:
        while True:
            response = self._client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=PAGE_OBJECTS)
            if page := [{"Key": each["Key"]} for each in response.get("Contents", [])]:
                yield page
            if not page or not response.get("IsTruncated"):
                return

    @override
    def has_exclusive_names(self, probe: str) -> bool:
        # A store is tried once, since some reject or ignore conditions.
        if self._has_exclusive_names is None:
            from botocore.exceptions import ClientError

            with _as_os_errors(probe):
                try:
                    self._client.put_object(**_named(probe), Body=b"", IfNoneMatch="*")
                    self._client.put_object(**_named(probe), Body=b"", IfNoneMatch="*")
                    self._has_exclusive_names = False
                except ClientError as error:
                    if _code(error) not in {*LOST_CODES, "NotImplemented"}:
                        raise
                    self._has_exclusive_names = _code(error) in LOST_CODES
                if self._has_exclusive_names:
                    self.read(probe)
                self._client.delete_object(**_named(probe))
        return self._has_exclusive_names

    @override
    def check_writable(self, probe: str) -> None:
        # The first check also finds out whether the store supports conditions.
        if self._has_exclusive_names is None and self.has_exclusive_names(probe):
            return
        super().check_writable(probe)

    @override
    def abort_uploads(self, path: str) -> None:
        # One page of uploads.
        bucket, _, prefix = path.partition("/")
        with _as_os_errors(path):
            response = self._client.list_multipart_uploads(
                Bucket=bucket, Prefix=f"{prefix}/".lstrip("/"), MaxUploads=PAGE_OBJECTS
            )
            now = response_time(response) or datetime.now(UTC)
            for upload in response.get("Uploads", []):
                if now - upload["Initiated"] > DEAD_AFTER:
                    log.info("aborting the upload of %s, which was started at %s", upload["Key"], upload["Initiated"])
                    self._client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])

    def _head(self, path: str) -> _Found | None:
        try:
            with _as_os_errors(path):
                response = self._client.head_object(**_named(path))
        except FileNotFoundError:
            return None
        return _Found(response["ContentLength"], response["ETag"], response.get("Metadata", {}))


def _named(path: str) -> dict[str, str]:
    bucket, _, key = path.partition("/")
    return {"Bucket": bucket, "Key": key}


def _digest(text: str) -> str:
    """Return a digest of a text for metadata: ASCII, and short."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


@contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    """Raise errors of boto3 as errors of a filesystem; `outages` classifies them by their class."""
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as error:
        code = _code(error)
        if code in GONE_CODES:
            raise FileNotFoundError(f"{path} does not exist") from None
        if (refused := refusal(path, str(error), error.response)) is not None:
            raise refused from error
        if code in REFUSED_CODES:
            raise PermissionError(f"{path}: {error}") from error
        if int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise ConnectionError(f"{path}: {error}") from error
        raise OSError(f"{path}: {error}") from error
    except (exceptions.NoCredentialsError, exceptions.CredentialRetrievalError) as error:
        raise PermissionError(f"{path}: {error}") from error
    except (exceptions.HTTPClientError, exceptions.ConnectionError, exceptions.IncompleteReadError) as error:
        raise ConnectionError(f"{path}: {error}") from error
    except exceptions.BotoCoreError as error:
        raise OSError(f"{path}: {error}") from error
