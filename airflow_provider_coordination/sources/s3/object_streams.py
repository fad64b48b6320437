"""Reading objects: their bytes from any offset on, decompressed, and only of the version that was listed.

An object that was deleted or replaced since then is gone: the new object is an item of its own.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import ItemGoneError, ItemUnreadableError, SourceUnavailableError
from airflow_provider_coordination.sources.s3.kind import AUTO, CODECS, NONE
from airflow_provider_coordination.sources.s3.objects import bucket_and_key, file_version, object_errors

if TYPE_CHECKING:
    from pyarrow import fs

GZIP_BYTES = 2**20
"""How many compressed bytes are read at once."""
MAX_SNAPPY_CHUNK_BYTES = 256 * 2**20


class ByteStream(Protocol):
    """Bytes that are read once, in order."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes: as many as requested, and fewer only at the end.

        :raises CoordinationError: if they cannot be read; nothing else is raised.
        """
        ...


def codec_of(compression: str, uri: str) -> str | None:
    """Return how an object is compressed; None if it is not.

    :param compression: as in the settings.
    :param uri: the object's URI.
    """
    if compression == AUTO:
        return next((codec for codec, suffixes in CODECS.items() if uri.lower().endswith(suffixes)), None)
    return None if compression == NONE else compression


def decompressed(stream: ByteStream, codec: str) -> ByteStream:
    """Decompress a stream; several concatenated streams count as one, as `cat a.gz b.gz` makes.

    Zero bytes between and after gzip streams are skipped, as gzip(1) does.

    Reading raises `ItemUnreadableError` if the data is damaged or ends too early.
    """
    if codec == "snappy":
        return _Snappy(stream)
    return _Decompressed(stream, codec)


class _Decompressed(ByteStream):
    def __init__(self, stream: ByteStream, codec: str) -> None:
        self._codec = codec
        self._plain = _opened(_AsFile(stream), codec)

    @override
    def read(self, size: int) -> bytes:
        try:
            return bytes(self._plain.read(size))
        except (OSError, EOFError, zlib.error, pa.ArrowInvalid) as error:  # the stream raises errors of this package
            raise ItemUnreadableError(f"it is not complete {self._codec}: {error}") from error


def _opened(file: io.RawIOBase, codec: str) -> Any:
    if codec == "gzip":
        return gzip.GzipFile(fileobj=io.BufferedReader(file, GZIP_BYTES))
    return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec.replace("bzip2", "bz2"))


class _AsFile(io.RawIOBase):
    """A stream as a file for Arrow."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._stream.read(size)

    def readinto(self, buffer: Any) -> int:
        found = self._stream.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


class _Snappy(ByteStream):
    """Hadoop's snappy format: blocks of an uncompressed length and chunks, each with its compressed length first."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._pieces = self._chunks()
        self._rest = b""

    @override
    def read(self, size: int) -> bytes:
        read = [self._rest]
        length = len(self._rest)
        while length < size and (piece := next(self._pieces, b"")):
            read.append(piece)
            length += len(piece)
        plain = b"".join(read)
        self._rest = plain[size:]
        return plain[:size]

    def _chunks(self) -> Iterator[bytes]:
        codec: Any = pa.Codec("snappy")
        while head := self._stream.read(4):
            left = self._number(head)
            while left > 0:
                compressed = self._exactly(self._number(self._exactly(4)))
                length = _plain_length(compressed)
                if not 0 < length <= left:
                    raise ItemUnreadableError(
                        "it is not complete snappy in Hadoop's format: its lengths contradict each other"
                    )
                try:
                    yield codec.decompress(compressed, length, asbytes=True)
                except (OSError, pa.ArrowInvalid) as error:
                    raise ItemUnreadableError(f"it is not complete snappy in Hadoop's format: {error}") from error
                left -= length

    def _number(self, head: bytes) -> int:
        if len(head) < 4:
            raise ItemUnreadableError("it is not complete snappy in Hadoop's format: it ends within a length")
        number: int = struct.unpack(">I", head)[0]
        if number > MAX_SNAPPY_CHUNK_BYTES:
            raise ItemUnreadableError(f"it is not snappy in Hadoop's format: a block of {number} bytes")
        return number

    def _exactly(self, size: int) -> bytes:
        read = self._stream.read(size)
        if len(read) < size:
            raise ItemUnreadableError("it is not complete snappy in Hadoop's format: it ends too early")
        return read


def _plain_length(compressed: bytes) -> int:
    """Return the length that raw snappy begins with, a varint; 0 if there is none."""
    length = 0
    for index, byte in enumerate(compressed[:5]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return length
    return 0


WHOLE_BYTES = 8 * 2**20
"""An object up to this size is fetched at once when random access is needed."""
BODY_ATTEMPTS = 5
"""How often an interrupted body is requested again without progress."""


@dataclass(frozen=True)
class ReadableObject(ABC):
    """An object that can be read. Reading raises errors of this package alone.

    :param uri: its location.
    """

    uri: str

    @abstractmethod
    def stream(self, start: int) -> ByteStream:
        """Return its bytes from an offset on.

        :raises ItemGoneError: if it does not exist, or is not the version that was listed.
        :raises SourceUnavailableError: if trying again may help.
        :raises ConfigurationError: if the user must fix something, such as a permission.
        """

    @abstractmethod
    def file(self) -> Any:
        """Return it as a pyarrow file; raises the same errors as `stream`."""


@dataclass(frozen=True)
class FetchedObject(ReadableObject):
    """An object that is already fetched.

    :param data: its bytes.
    """

    data: bytes

    @override
    def stream(self, start: int) -> ByteStream:
        stream = io.BytesIO(self.data)
        stream.seek(start)
        return stream

    @override
    def file(self) -> Any:
        return pa.BufferReader(self.data)


@dataclass(frozen=True)
class S3Object(ReadableObject):
    """An object of S3.

    :param client: of boto3; may be shared by threads.
    :param size: its size in bytes.
    :param version: the ETag that it must have, including quotes.
    """

    client: Any
    size: int
    version: str

    @override
    def stream(self, start: int) -> ByteStream:
        return _S3Stream(self, start) if start < self.size else io.BytesIO()

    @override
    def file(self) -> Any:
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
            answer = self.client.get_object(Bucket=bucket, Key=key, IfMatch=self.version, **part)
        size = _stored_size(answer)
        if size is not None and size != self.size:  # an announcement may be wrong
            raise ItemUnreadableError(
                f"{self.uri} has {size} bytes, not {self.size} as it was announced; upload it again, or reset its "
                "partition once its announcement is corrected"
            )
        return answer["Body"]

    def _part(self, start: int, size: int) -> bytes:
        end = min(start + size, self.size)
        return _S3Stream(self, start, end).read(end - start) if start < end else b""


def _stored_size(answer: Mapping[str, Any]) -> int | None:
    """Return the size of a whole object, of which the answer may hold a part; None if the answer does not say it."""
    total = str(answer.get("ContentRange", "")).rpartition("/")[2] or answer.get("ContentLength")
    return int(total) if total is not None and str(total).isdecimal() else None


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
class FileObject(ReadableObject):
    """A file of a filesystem that pyarrow supports.

    :param filesystem: its filesystem.
    :param path: its path in the filesystem.
    :param size: its size in bytes.
    :param version: the value that `file_version` must return for it.
    """

    filesystem: fs.FileSystem
    path: str
    size: int
    version: str

    @override
    def stream(self, start: int) -> ByteStream:
        opened = self._open()
        with self._errors():
            opened.seek(start)
        return _FileStream(opened, self._errors)

    @override
    def file(self) -> Any:
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
                f"{self.uri} was replaced since it was listed; the new object is read as a separate item"
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
