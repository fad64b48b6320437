"""An S3 client over local files that counts every request."""
# ruff: noqa: N803 - boto3 names its parameters as S3 does

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from botocore.exceptions import ClientError, ConnectionClosedError

T = TypeVar("T")


class Counts(Protocol):
    """Numbers calls; see `freezing.Calls`."""

    def make(self, what: str, call: Callable[[], T], error: Callable[[], Exception]) -> T: ...


class CountedObjects:
    """The client methods that `BucketFiles` uses. The bucket has no name, and a key is a path without the first `/`.

    :param calls: the calls.
    :param published: called with each path that an object was written to.
    """

    def __init__(self, calls: Counts, published: Callable[[str], None]) -> None:
        self._calls = calls
        self._published = published
        self._metadata: dict[str, dict[str, str]] = {}
        self._lock = threading.RLock()

    def _make(self, what: str, key: str, call: Callable[[], T]) -> T:
        def locked() -> T:
            with self._lock:
                return call()

        return self._calls.make(f"files.{what} /{key}", locked, lambda: ConnectionClosedError(endpoint_url="s3"))

    def head_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        return self._make("look", Key, lambda: self._found(Key))

    def get_object(self, *, Bucket: str, Key: str, Range: str = "") -> dict[str, Any]:
        def got() -> dict[str, Any]:
            content = self._content(Key)
            if not Range:
                return {"Body": io.BytesIO(content)}
            end = content[-int(Range.rpartition("-")[2]) :]
            return {"Body": io.BytesIO(end), "ContentRange": f"bytes 0-0/{len(content)}"}

        return self._make("open", Key, got)

    def put_object(
        self,
        *,
        Bucket: str,
        Key: str,
        Body: bytes,
        Metadata: dict[str, str] | None = None,
        IfNoneMatch: str | None = None,
        IfMatch: str | None = None,
    ) -> dict[str, Any]:
        def put() -> dict[str, Any]:
            there = _path(Key).is_file()
            if (IfNoneMatch and there) or (IfMatch and there and self._found(Key)["ETag"] != IfMatch):
                raise _refusal("PreconditionFailed", "PutObject")
            if IfMatch and not there:
                raise _refusal("NoSuchKey", "PutObject")
            self._write(Key, Body, Metadata or {})
            return {}

        return self._make("put", Key, put)

    def list_multipart_uploads(self, *, Bucket: str, Prefix: str, MaxUploads: int) -> dict[str, Any]:
        return {}  # an object is put in one request

    def copy_object(self, *, Bucket: str, Key: str, CopySource: dict[str, str]) -> dict[str, Any]:
        def copy() -> dict[str, Any]:
            source = CopySource["Key"]
            self._write(Key, self._content(source), self._metadata.get(source, {}))
            return {}

        return self._make("copy", Key, copy)

    def delete_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        return self._make("delete", Key, lambda: self._delete(Key))

    def delete_objects(self, *, Bucket: str, Delete: dict[str, Any]) -> dict[str, Any]:
        for each in Delete["Objects"]:  # one request of which any part may be done
            self._make("delete", each["Key"], lambda key=each["Key"]: self._delete(key))  # type: ignore[misc]
        return {}

    def list_objects_v2(self, *, Bucket: str, Prefix: str, MaxKeys: int) -> dict[str, Any]:
        def listed() -> dict[str, Any]:
            files = sorted(path for path in _path(Prefix).rglob("*") if path.is_file())
            found = [
                {
                    "Key": str(path).lstrip("/"),
                    "Size": path.stat().st_size,
                    "LastModified": datetime.fromtimestamp(path.stat().st_mtime, UTC),
                }
                for path in files
            ]
            return {"Contents": found, "IsTruncated": False}

        return self._make("list", Prefix, listed)

    def _content(self, key: str) -> bytes:
        try:
            return _path(key).read_bytes()
        except FileNotFoundError:
            raise _refusal("NoSuchKey", "GetObject") from None

    def _found(self, key: str) -> dict[str, Any]:
        content = self._content(key)
        metadata = self._metadata.get(key, {})
        etag = hashlib.md5(content + repr(metadata).encode()).hexdigest()
        return {"ContentLength": len(content), "ETag": etag, "Metadata": metadata}

    def _write(self, key: str, content: bytes, metadata: dict[str, str]) -> None:
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(f"{path}.putting")
        partial.write_bytes(content)
        partial.rename(path)
        self._metadata[key] = metadata
        self._published(str(path))

    def _delete(self, key: str) -> dict[str, Any]:
        _path(key).unlink(missing_ok=True)
        self._metadata.pop(key, None)
        return {}


def _path(key: str) -> Path:
    return Path("/", key)


def _refusal(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, operation)
