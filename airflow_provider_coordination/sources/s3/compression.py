"""Decompressing objects, which are read from their start."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import ItemUnreadableError
from airflow_provider_coordination.sources.s3.format_settings import AUTO, CODECS, NONE

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
