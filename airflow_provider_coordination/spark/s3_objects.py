"""The objects of a bucket of S3, where nothing is renamed: what becomes visible does so by one conditional write.

An object that is published carries the fencing token of its lease and its acknowledgment set. The store decides: a new
name is given once (`If-None-Match: *`), and an object is replaced only as it was when it was looked at (`If-Match`).
So a request of a former owner that arrives late changes nothing that a later owner published.
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

from airflow_provider_coordination.aws import ACCESS_CODES, answered_at
from airflow_provider_coordination.spark.files import Claim, Files, FoundFile, MissingFileError, changed, missing
from airflow_provider_coordination.spark.s3_refusals import REFUSED_CODES, refusal

log = logging.getLogger(__name__)

SINGLE_PUT_BYTES = 16 * 2**20
"""What is larger is copied by the store in parts, and does not pass through memory."""
PART_BYTES = 64 * 2**20
REPLACE_TRIES = 5
"""How often an object is looked at again that others replace at the same time."""
PAGE_OBJECTS = 1000
"""S3 lists, and deletes, no more at a time."""
DEAD_AFTER = timedelta(days=1)
"""An upload that was begun so long ago is not completed any more."""
TOKEN, SET = "fencing-token", "acknowledgment-set"
"""The metadata of a published object."""

UNKNOWN_CODES = frozenset({"NotImplemented", "MethodNotAllowed", "501", "405"})
"""What a store answers that does not know a request."""
GONE_CODES = frozenset({"404", "NoSuchKey", "NotFound"})
LOST_CODES = frozenset({"409", "412", "ConditionalRequestConflict", "PreconditionFailed"})
"""What the store answers where somebody else's write came first."""


@dataclass(frozen=True)
class _Found:
    """An object that is there."""

    size: int
    etag: str
    metadata: Mapping[str, str]

    @property
    def token(self) -> int:
        """The fencing token of the lease under which it was published; -1 if it does not say."""
        token = self.metadata.get(TOKEN, "")
        return int(token) if token.isdigit() else -1


class BucketFiles(Files):
    """The objects that a client of S3 reaches; a path is the bucket and the key.

    :param client: of boto3.
    :param filesystem: returns pyarrow's filesystem of the same, whose credentials hold for a while.
    """

    renames = False

    def __init__(self, client: Any, filesystem: Callable[[], fs.FileSystem]) -> None:
        self._client = client
        self._present = filesystem
        self._names_once: bool | None = None
        self._deletes_pages = True

    @property
    def filesystem(self) -> fs.FileSystem:
        """See `Files.filesystem`."""
        return self._present()

    @property
    def is_local(self) -> bool:
        """See `Files.is_local`."""
        return False

    def are(self, other: Files) -> bool:
        """See `Files.are`."""
        return isinstance(other, BucketFiles) and self._client is other._client

    def size(self, path: str) -> int | None:
        """See `Files.size`."""
        found = self._look(path)
        return None if found is None else found.size

    def exists(self, path: str) -> bool:
        """See `Files.exists`: there are no folders."""
        return self._look(path) is not None

    def make_folder(self, path: str) -> None:
        """See `Files.make_folder`: there are none."""

    def read(self, path: str) -> bytes:
        """See `Files.read`."""
        with _as_os_errors(path):
            return bytes(self._client.get_object(**_named(path))["Body"].read())

    def tail(self, path: str, length: int) -> tuple[bytes, int]:
        """See `Files.tail`: by one request."""
        with _as_os_errors(path):
            answer = self._client.get_object(**_named(path), Range=f"bytes=-{length}")
            content = bytes(answer["Body"].read())
        _, _, size = answer.get("ContentRange", "").rpartition("/")
        return content[-length:], int(size) if size.isdigit() else len(content)

    def below(self, path: str, pages: int | None = None) -> list[FoundFile] | None:
        """See `Files.below`: a request a page."""
        bucket, _, prefix = path.partition("/")
        found: list[FoundFile] = []
        more: dict[str, str] = {}
        with _as_os_errors(path):
            for number in count(1):
                answer = self._client.list_objects_v2(
                    Bucket=bucket, Prefix=f"{prefix}/".lstrip("/"), MaxKeys=PAGE_OBJECTS, **more
                )
                found += [
                    FoundFile(path=f"{bucket}/{each['Key']}", bytes=each["Size"], written=each["LastModified"])
                    for each in answer.get("Contents", [])
                    if not each["Key"].endswith("/")  # stands for a folder, by whoever needs such
                ]
                if not answer.get("IsTruncated"):
                    return found
                if number == pages:
                    return None
                more = {"ContinuationToken": answer["NextContinuationToken"]}
        raise AssertionError("a listing has an end")

    def write(self, path: str, content: bytes) -> None:
        """See `Files.write`."""
        with _as_os_errors(path):
            self._client.put_object(**_named(path), Body=content)

    def copy(self, path: str, target: str) -> None:
        """See `Files.copy`: the store copies."""
        with _as_os_errors(path):
            self._client.copy_object(**_named(target), CopySource=_named(path))

    def publish(self, path: str, target: str, *, size: int | None, claim: Claim | None) -> bool:
        """See `storage.publish`: the file itself stays where it is, unless nobody claims the name."""
        if claim is None:
            if size is not None:
                self._checked_size(path, size)
            try:
                self.copy(path, target)
            except FileNotFoundError:
                raise missing(path) from None
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
        raise OSError(f"{target} is replaced by others all the time")

    def _checked_size(self, path: str, size: int | None) -> int:
        found = self._look(path)
        if found is None:
            raise missing(path)
        if size is not None and found.size != size:
            raise changed(path, found.size, size)
        return found.size

    def _condition(self, target: str, claim: Claim) -> dict[str, str] | None:
        """Return on which condition a name is taken; None if this claim has it already, though it got no answer.

        :raises MissingFileError: if a later lease has it.
        """
        there = self._look(target) if claim.replaces else None
        if there is None:
            return {"IfNoneMatch": "*"}
        if there.token > claim.fencing_token:
            raise MissingFileError(
                f"{target} is published under a later lease, of token {there.token}; this one has {claim.fencing_token}"
            )
        if there.token == claim.fencing_token and there.metadata.get(SET) == _digest(claim.set_id):
            return None
        return {"IfMatch": there.etag}

    def _put(self, path: str, size: int, target: str, condition: Mapping[str, str], claim: Claim) -> bool:
        """Give an object its final name, by one request; return False if somebody else's came first."""
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
                put(path, size, target, metadata, {})  # the store has no conditions: it was looked at before
        return True

    def _put_whole(
        self, path: str, size: int, target: str, metadata: Mapping[str, str], condition: Mapping[str, str]
    ) -> None:
        try:
            content = self.read(path)
        except FileNotFoundError:
            raise missing(path) from None
        if len(content) != size:
            raise changed(path, len(content), size)
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
            with suppress(Exception):  # what is left is given up by the next job that starts, or by a lifecycle rule
                self._client.abort_multipart_upload(**_named(target), UploadId=upload)
            raise

    def _copy_part(self, path: str, part: str, target: str, upload: str, number: int) -> str:
        from botocore.exceptions import ClientError

        try:
            answer = self._client.upload_part_copy(
                **_named(target), UploadId=upload, PartNumber=number, CopySource=_named(path), CopySourceRange=part
            )
        except ClientError as error:
            if _code(error) in GONE_CODES:
                raise missing(path) from None
            raise
        return str(answer["CopyPartResult"]["ETag"])

    def delete(self, path: str) -> None:
        """See `Files.delete`."""
        with _as_os_errors(path):
            self._client.delete_object(**_named(path))

    def delete_each(self, paths: Sequence[str]) -> None:
        """See `Files.delete_each`: a page of objects a request, one by one where the store knows no such request."""
        if len(paths) == 1:
            self.delete(paths[0])
            return
        for start in range(0, len(paths), PAGE_OBJECTS):
            page = [_named(path) for path in paths[start : start + PAGE_OBJECTS]]
            with _as_os_errors(paths[start]):
                self._delete_page(page[0]["Bucket"], [{"Key": each["Key"]} for each in page])

    def delete_folder(self, path: str) -> None:
        """See `Files.delete_folder`: a page of objects a request."""
        bucket, _, prefix = path.partition("/")
        with _as_os_errors(path):
            for page in self._pages(bucket, f"{prefix}/"):
                self._delete_page(bucket, page)

    def _delete_page(self, bucket: str, page: Sequence[Mapping[str, str]]) -> None:
        from botocore.exceptions import ClientError

        if self._deletes_pages:
            try:
                answer = self._client.delete_objects(Bucket=bucket, Delete={"Objects": list(page), "Quiet": True})
            except ClientError as error:
                if _code(error) not in UNKNOWN_CODES:
                    raise
                self._deletes_pages = False
            else:
                if errors := answer.get("Errors"):
                    name = f"{bucket}/{errors[0].get('Key')}"
                    said = f"{errors[0].get('Code')}: {errors[0].get('Message')}"
                    raise (PermissionError if errors[0].get("Code") in ACCESS_CODES else OSError)(f"{name}: {said}")
                return
        for each in page:
            self._client.delete_object(Bucket=bucket, **each)

    def _pages(self, bucket: str, prefix: str) -> Iterator[list[dict[str, str]]]:
        while True:
            answer = self._client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=PAGE_OBJECTS)
            if page := [{"Key": each["Key"]} for each in answer.get("Contents", [])]:
                yield page
            if not page or not answer.get("IsTruncated"):
                return

    def names_once(self, probe: str) -> bool:
        """See `Files.names_once`: a store is tried once, since some know no conditions, or pass over them."""
        if self._names_once is None:
            from botocore.exceptions import ClientError

            with _as_os_errors(probe):
                try:
                    self._client.put_object(**_named(probe), Body=b"", IfNoneMatch="*")
                    self._client.put_object(**_named(probe), Body=b"", IfNoneMatch="*")
                    self._names_once = False
                except ClientError as error:
                    if _code(error) not in {*LOST_CODES, "NotImplemented"}:
                        raise
                    self._names_once = _code(error) in LOST_CODES
                if self._names_once:
                    self.read(probe)
                self._client.delete_object(**_named(probe))
        return self._names_once

    def try_out(self, probe: str) -> None:
        """See `Files.try_out`: it serves to find out about conditions as well, once."""
        if self._names_once is None and self.names_once(probe):
            return
        super().try_out(probe)

    def abort_uploads(self, path: str) -> None:
        """See `Files.abort_uploads`: one page of them."""
        bucket, _, prefix = path.partition("/")
        with _as_os_errors(path):
            answer = self._client.list_multipart_uploads(
                Bucket=bucket, Prefix=f"{prefix}/".lstrip("/"), MaxUploads=PAGE_OBJECTS
            )
            now = answered_at(answer) or datetime.now(UTC)
            for upload in answer.get("Uploads", []):
                if now - upload["Initiated"] > DEAD_AFTER:
                    log.info("upload of %s, begun at %s, is given up", upload["Key"], upload["Initiated"])
                    self._client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])

    def _look(self, path: str) -> _Found | None:
        try:
            with _as_os_errors(path):
                answer = self._client.head_object(**_named(path))
        except FileNotFoundError:
            return None
        return _Found(answer["ContentLength"], answer["ETag"], answer.get("Metadata", {}))


def _named(path: str) -> dict[str, str]:
    bucket, _, key = path.partition("/")
    return {"Bucket": bucket, "Key": key}


def _digest(text: str) -> str:
    """Return a text as metadata can hold it: ASCII, and short."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


@contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    """Raise what boto3 raises as filesystems raise it; `outages` judges by the class."""
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
