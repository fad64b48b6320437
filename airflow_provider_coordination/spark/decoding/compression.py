"""Decompression of payloads, with a bound for the memory that a payload may take."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.spark.decoding.errors import UndecodableError
from airflow_provider_coordination.spark.payload_settings import AUTO, GZIP, ZSTD

MAGIC = {GZIP: b"\x1f\x8b\x08", ZSTD: b"\x28\xb5\x2f\xfd"}
"""The first bytes of compressed data."""
TOGETHER_BYTES = 2**20
"""How many bytes are decompressed with one call at most, as the payloads declare them."""
GZIP_WINDOW = 31
"""The setting of zlib for data with the header of gzip."""


def decompressed(payload: bytes, compression: str | None, max_bytes: int) -> bytes:
    """Return a payload without its compression; several compressed parts, one after another, count as one.

    :param compression: as in `Payload.compression`.
    :param max_bytes: the maximum size of the result. No more than that is held in memory.
    :raises UndecodableError: if the payload is not compressed like this, is damaged, or is larger.
    """
    codec = _codec(payload) if compression == AUTO else compression
    if codec is None:
        plain = payload
    else:
        plain = _gunzipped(payload, max_bytes) if codec == GZIP else _of_zstd(payload, max_bytes)
    if len(plain) > max_bytes:
        raise UndecodableError(
            f"the payload has more than {max_bytes} bytes once it is decompressed; raise 'payload.max_record_bytes' if "
            "such records are expected"
        )
    return plain


def each_decompressed(
    payloads: Iterable[bytes | None], compression: str | None, max_bytes: int
) -> Iterator[bytes | UndecodableError]:
    """Yield each payload without its compression, or why there is none; see `decompressed` for the parameters.

    Payloads of zstd that follow each other are decompressed with one call, since a call takes ten times as long as the
    decompression of a small payload.
    """
    together: list[bytes] = []
    sizes: list[int] = []
    total = 0
    for payload in payloads:
        size = None if payload is None or compression not in (AUTO, ZSTD) else _zstd_size(payload)
        is_small = payload is not None and size is not None and size <= min(max_bytes, TOGETHER_BYTES)
        if together and (not is_small or total + (size or 0) > TOGETHER_BYTES):
            yield from _decompressed_together(together, sizes, max_bytes)
            together, sizes, total = [], [], 0
        if payload is None:
            yield UndecodableError("there is no payload")
        elif size is None or not is_small:
            yield _result(payload, compression, max_bytes)
        else:
            together.append(payload)
            sizes.append(size)
            total += size
    yield from _decompressed_together(together, sizes, max_bytes)


def _decompressed_together(
    payloads: Sequence[bytes], sizes: Sequence[int], max_bytes: int
) -> Iterator[bytes | UndecodableError]:
    codec: Any = pa.Codec(ZSTD)
    try:
        contents = codec.decompress(b"".join(payloads), sum(sizes), asbytes=True)
    except (OSError, pa.ArrowException):  # one of them is damaged, or has several frames
        yield from (_result(payload, ZSTD, max_bytes) for payload in payloads)
        return
    at = 0
    for size in sizes:
        yield contents[at : at + size]
        at += size


def _result(payload: bytes, compression: str | None, max_bytes: int) -> bytes | UndecodableError:
    try:
        return payload if compression is None else decompressed(payload, compression, max_bytes)
    except UndecodableError as error:
        return error


def _codec(payload: bytes) -> str | None:
    return next((name for name, magic in MAGIC.items() if payload.startswith(magic)), None)


def _gunzipped(payload: bytes, max_bytes: int) -> bytes:
    parts, size, rest = [], 0, payload
    while True:
        member = zlib.decompressobj(GZIP_WINDOW)
        try:
            parts.append(member.decompress(rest, max_bytes + 1 - size))
        except zlib.error:
            raise UndecodableError("the payload is not complete gzip") from None
        size += len(parts[-1])
        if size > max_bytes:
            break
        if not member.eof:
            raise UndecodableError("the payload is not complete gzip: it ends too early")
        rest = member.unused_data.lstrip(b"\0")  # zeros may follow, as gzip(1) allows
        if not rest:
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _of_zstd(payload: bytes, max_bytes: int) -> bytes:
    if not payload.startswith(MAGIC[ZSTD]):
        raise UndecodableError("the payload is not zstd")
    size = _zstd_size(payload)
    if size is not None and size <= max_bytes:
        codec: Any = pa.Codec(ZSTD)
        try:
            plain = codec.decompress(payload, size, asbytes=True)
        except (OSError, pa.ArrowException):  # several frames, or damaged ones
            pass
        else:
            return bytes(plain)
    try:
        with pa.CompressedInputStream(pa.PythonFile(io.BytesIO(payload), mode="r"), ZSTD) as stream:
            return bytes(stream.read(max_bytes + 1))
    except (OSError, pa.ArrowException):
        raise UndecodableError("the payload is not complete zstd") from None


def _zstd_size(frame: bytes) -> int | None:
    """Return the size of the content that the header of a frame declares (RFC 8878); None if it declares none.

    Data that is no frame declares none.
    """
    if not frame.startswith(MAGIC[ZSTD]):
        return None
    descriptor = frame[4] if len(frame) > 4 else 0
    is_single = bool(descriptor & 0x20)
    flag = descriptor >> 6
    length = {0: 1 if is_single else 0, 1: 2, 2: 4, 3: 8}[flag]
    start = 5 + (0 if is_single else 1) + (0, 1, 2, 4)[descriptor & 3]
    content = frame[start : start + length]
    if not length or len(content) < length:
        return None
    return int.from_bytes(content, "little") + (256 if length == 2 else 0)
