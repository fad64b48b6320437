"""Reading objects: their bytes from any offset on, and only of the version that was listed.

An object that was deleted or replaced since then is gone: the new object is an item of its own.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import ItemGoneError, SourceUnavailableError
from airflow_provider_coordination.sources.s3.compression import ByteStream
from airflow_provider_coordination.sources.s3.errors import object_errors
from airflow_provider_coordination.sources.s3.listing import file_version
from airflow_provider_coordination.sources.s3.locations import bucket_and_key

if TYPE_CHECKING:
    from pyarrow import fs

WHOLE_BYTES = 8 * 2**20
"""An object up to this size is fetched at once when random access is needed."""
BODY_ATTEMPTS = 5
"""How often an interrupted body is requested again without progress."""


class ReadableObject(Protocol):
    """An object that can be read. Reading raises errors of this package alone."""

    @property
    def uri(self) -> str:
        """Its location."""
        ...

    def stream(self, start: int) -> ByteStream:
        """Return its bytes from an offset on.

        :raises ItemGoneError: if it does not exist, or is not the version that was listed.
        :raises SourceUnavailableError: if trying again may help.
        :raises ConfigurationError: if the user must fix something, such as a permission.
        """
        ...

    def file(self) -> Any:
        """Return it as a pyarrow file; raises the same errors as `stream`."""
        ...


@dataclass(frozen=True)
class FetchedObject:
    """An object that is already fetched.

    :param uri: its location.
    :param data: its bytes.
    """

    uri: str
    data: bytes

    def stream(self, start: int) -> ByteStream:
        """See `ReadableObject.stream`."""
        stream = io.BytesIO(self.data)
        stream.seek(start)
        return stream

    def file(self) -> Any:
        """See `ReadableObject.file`."""
        return pa.BufferReader(self.data)


@dataclass(frozen=True)
class S3Object:
    """An object of S3.

    :param client: of boto3; may be shared by threads.
    :param uri: its location.
    :param size: its size in bytes.
    :param version: the ETag that it must have, including quotes.
    """

    client: Any
    uri: str
    size: int
    version: str

    def stream(self, start: int) -> ByteStream:
        """See `ReadableObject.stream`."""
        return _S3Stream(self, start) if start < self.size else io.BytesIO()

    def file(self) -> Any:
        """See `ReadableObject.file`."""
        if self.size <= WHOLE_BYTES:
            return pa.BufferReader(self.stream(0).read(self.size))
        return pa.PythonFile(_File(self._part, self.size), mode="r")

    def body(self, start: int, end: int) -> Any:
        """Return botocore's stream of a part of its bytes; raises the same errors as `stream`.

        :param end: where the part ends, exclusive.
        """
        bucket, key = bucket_and_key(self.uri)
        part = {} if start == 0 and end == self.size else {"Range": f"bytes={start}-{end - 1}"}
        with object_errors(self.uri, "read", "s3:GetObject"):
            return self.client.get_object(Bucket=bucket, Key=key, IfMatch=self.version, **part)["Body"]

    def _part(self, start: int, size: int) -> bytes:
        end = min(start + size, self.size)
        return _S3Stream(self, start, end).read(end - start) if start < end else b""


class _S3Stream(ByteStream):
    """Reads a part of an object, and requests the rest again if the body is interrupted.

    The first request is made in the constructor, so that an object that is gone is reported at once.
    """

    def __init__(self, source: S3Object, start: int, end: int | None = None) -> None:
        self._source = source
        self._at = start
        self._end = source.size if end is None else end
        self._failures = 0
        self._body = source.body(start, self._end)

    @override
    def read(self, size: int) -> bytes:
        pieces = []
        left = min(size, self._end - self._at)
        while left > 0:
            pieces.append(self._piece(left))
            self._at += len(pieces[-1])
            left -= len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, size: int) -> bytes:
        from botocore.exceptions import BotoCoreError
        from urllib3.exceptions import HTTPError

        while True:
            try:
                # The last read takes everything that is left, so that botocore compares length and checksum.
                piece: bytes = self._body.read(size if self._at + size < self._end else None)
                if piece:
                    self._failures = 0
                    return piece
                problem = "it is shorter than it was listed"
            except (BotoCoreError, HTTPError, OSError) as error:
                problem = str(error)
            self._failures += 1
            if self._failures >= BODY_ATTEMPTS:
                raise SourceUnavailableError(
                    f"{self._source.uri}: reading was interrupted {self._failures} times at byte {self._at}: {problem}"
                )
            self._body = self._source.body(self._at, self._end)


@dataclass(frozen=True)
class FileObject:
    """A file of a filesystem that pyarrow supports.

    :param filesystem: its filesystem.
    :param path: its path in the filesystem.
    :param uri: its URI.
    :param size: its size in bytes.
    :param version: the value that `file_version` must return for it.
    """

    filesystem: fs.FileSystem
    path: str
    uri: str
    size: int
    version: str

    def stream(self, start: int) -> ByteStream:
        """See `ReadableObject.stream`."""
        opened = self._open()
        with self._errors():
            opened.seek(start)
        return _FileStream(opened, self._errors)

    def file(self) -> Any:
        """See `ReadableObject.file`."""
        opened = self._open()

        def part(start: int, size: int) -> bytes:
            with self._errors():
                return bytes(opened.read_at(size, start))

        return pa.PythonFile(_File(part, self.size), mode="r")

    def _open(self) -> Any:
        with self._errors():
            opened = self.filesystem.open_input_file(self.path)
            info = self.filesystem.get_file_info(self.path)
        if file_version(info) != self.version:
            opened.close()
            raise ItemGoneError(
                f"{self.uri} was replaced since it was listed; the new object is read as an item of its own"
            )
        return opened

    def _errors(self) -> AbstractContextManager[None]:
        return object_errors(self.uri, "read", "reading")


@dataclass(frozen=True)
class _FileStream(ByteStream):
    opened: Any
    errors: Callable[[], AbstractContextManager[None]]

    @override
    def read(self, size: int) -> bytes:
        with self.errors():
            return bytes(self.opened.read(size))


class _File(io.RawIOBase):
    """A file for Arrow, based on a function that reads any part of it."""

    def __init__(self, part: Callable[[int, int], bytes], size: int) -> None:
        self._part = part
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        data = self._part(self._at, self._size - self._at if size < 0 else size)
        self._at += len(data)
        return data
