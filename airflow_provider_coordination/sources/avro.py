"""Avro: schemas and their columns, values as Python has them, and the blocks of container files. Needs `fastavro`.

fastavro reads containers too, but decompresses a block however large it becomes, and cannot continue at a block.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

INSTANT, LOCAL, TIME = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.time64("us")
PRIMITIVES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
    "double": pa.float64(),
    "enum": pa.string(),
    "fixed": pa.binary(),
    "float": pa.float32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
}
LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): TIME,
    ("long", "time-micros"): TIME,
    ("long", "timestamp-millis"): INSTANT,
    ("long", "timestamp-micros"): INSTANT,
    ("long", "local-timestamp-millis"): LOCAL,
    ("long", "local-timestamp-micros"): LOCAL,
    ("fixed", "uuid"): pa.string(),
}
"""The types of logical types that fastavro knows; without one of these, the type below counts, as Avro demands."""
WIDER = ({pa.int32(), pa.int64()}, {pa.float32(), pa.float64()})
"""The types that are one column, of the wider type, if a field may have both."""
MAX_DIGITS = 38


class AvroSchemaError(ValueError):
    """A schema of Avro is wrong, or has no columns. The text gives the reason and the remedy."""


class AvroDataError(ValueError):
    """Bytes are no data of their schema. The text gives the reason, without values."""


@dataclass(frozen=True)
class AvroReader:
    """Reads data that were written with one schema, by the schema of the reader.

    :param writer: the schema of the data, parsed.
    :param reader: the schema of the reader, parsed; None for the writer's.
    """

    writer: Any
    reader: Any = None

    @classmethod
    def of(cls, writer: Sequence[str], reader: str | None = None) -> AvroReader:
        """Return the reader of schemas.

        :param writer: the schema of the data as JSON text, after the schemas that it refers to.
        :param reader: the schema of the reader as JSON text; None for the writer's.
        :raises AvroSchemaError: if a schema is wrong.
        """
        return cls(parsed_schema(writer), None if reader is None else parsed_schema([reader]))

    @property
    def field_names(self) -> list[str]:
        """The names of the fields of the data."""
        return [field["name"] for field in self.writer.get("fields", ())] if isinstance(self.writer, Mapping) else []

    def one(self, data: bytes) -> Any:
        """Return the only datum of some bytes.

        :raises AvroDataError: if they are no datum, or more than one.
        """
        stream = io.BytesIO(data)
        value = self._next(stream)
        if stream.tell() != len(data):
            raise AvroDataError(f"{len(data) - stream.tell()} bytes follow the datum")
        return value

    def several(self, data: bytes, count: int) -> Iterator[tuple[bytes, Any]]:
        """Yield this many data, one after another, each with its bytes.

        :raises AvroDataError: if the bytes are others.
        """
        stream, start = io.BytesIO(data), 0
        for _ in range(count):
            value, end = self._next(stream), stream.tell()
            if end == start:  # any number of them would have no bytes
                raise AvroDataError("it has data without bytes")
            yield data[start:end], value
            start = end
        if start != len(data):
            raise AvroDataError(f"{len(data) - start} bytes follow the last datum")

    def _next(self, stream: io.BytesIO) -> Any:
        from fastavro import schemaless_reader
        from fastavro.read import SchemaResolutionError

        try:
            return schemaless_reader(stream, self.writer, self.reader)
        except SchemaResolutionError as error:
            raise AvroDataError(f"its schema cannot be read by the schema of the reader: {error}") from None
        except (OSError, MemoryError, ImportError):
            raise
        except Exception as error:  # of any class: the bytes may be anything
            raise AvroDataError(f"it is not a datum of its schema ({type(error).__name__})") from None


def parsed_schema(texts: Sequence[str]) -> Any:
    """Return the last of some schemas, which may refer to those before.

    :raises AvroSchemaError: if one of them is wrong.
    """
    from fastavro import parse_schema

    named: dict[str, Any] = {}
    parsed: Any = None
    for text in texts:
        try:
            parsed = parse_schema(json.loads(text), named_schemas=named)
        except (ImportError, MemoryError):
            raise
        except Exception as error:  # of any class: a schema may be anything
            raise AvroSchemaError(f"it is not an Avro schema: {type(error).__name__}: {error}") from None
    return parsed


def columns_of_schema(text: str) -> pa.Schema:
    """Return the columns of a schema: the fields of its record, without those that are always null.

    :raises AvroSchemaError: if it is no record, or a field has no type of a column.
    """
    from fastavro.schema import expand_schema

    parsed_schema([text])
    record = expand_schema(json.loads(text))
    if not isinstance(record, Mapping) or record.get("type") not in ("record", "error"):
        raise AvroSchemaError("it is not the schema of a record, whose fields are the columns")
    fields = [pa.field(each["name"], _type(each["name"], each["type"])) for each in record["fields"]]
    return pa.schema([field for field in fields if not pa.types.is_null(field.type)])


def _type(path: str, schema: Any) -> pa.DataType:
    if isinstance(schema, list):
        return _of_union(path, schema)
    name = schema if isinstance(schema, str) else schema["type"]
    if isinstance(name, list | Mapping):
        return _type(path, name)
    details: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
    logical = details.get("logicalType")
    if (found := LOGICAL.get((name, str(logical)))) is not None:
        return found
    if logical == "decimal" and name in ("bytes", "fixed"):
        return _decimal(path, details)
    match name:
        case "null":
            return pa.null()
        case "array":
            return pa.list_(_type(f"{path}.element", details["items"]))
        case "map":
            return pa.map_(pa.string(), _type(f"{path}.value", details["values"]))
        case "record" | "error":
            inner = [
                pa.field(each["name"], _type(f"{path}.{each['name']}", each["type"])) for each in details["fields"]
            ]
            return pa.struct(inner)
    if name not in PRIMITIVES:
        raise AvroSchemaError(f"field {path!r} is of the type {name!r}, which contains itself; declare it as STRING")
    return PRIMITIVES[name]


def _of_union(path: str, members: Sequence[Any]) -> pa.DataType:
    kinds = {kind for each in members if not pa.types.is_null(kind := _type(path, each))}
    if not kinds:
        return pa.null()
    if len(kinds) == 1:
        return kinds.pop()
    for pair in WIDER:
        if kinds == pair:
            return max(kinds, key=lambda kind: kind.bit_width)
    raise AvroSchemaError(
        f"field {path!r} is a union of {', '.join(sorted(map(str, kinds)))}, which cannot be a column; "
        "declare it as STRING"
    )


def _decimal(path: str, details: Mapping[str, Any]) -> pa.DataType:
    precision, scale = int(details["precision"]), int(details.get("scale", 0))
    if precision > MAX_DIGITS:
        raise AvroSchemaError(f"field {path!r} is a decimal of {precision} digits; declare it as STRING")
    return pa.decimal128(precision, scale)


MAGIC = b"Obj\x01"
SYNC_BYTES = 16
MAX_BLOCK_BYTES = 2**30
"""The maximum size of a compressed block, above which a file is taken to be damaged."""
CHECKSUM_BYTES = 4
"""The size of the checksum behind a block of snappy."""


class AvroContainerError(ValueError):
    """Bytes are not a complete container of Avro. The text gives the reason."""


class Bytes(Protocol):
    """Bytes that are read once, in order."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes: as many as requested, and fewer only at the end."""
        ...


@dataclass(frozen=True, kw_only=True)
class AvroHeader:
    """The header of a container.

    :param schema: the schema of its data as JSON text.
    :param codec: the compression of its blocks.
    :param sync: the bytes that end the header and each block.
    :param size: the size of the header in bytes.
    """

    schema: str
    codec: str
    sync: bytes
    size: int


@dataclass(frozen=True, kw_only=True)
class AvroBlock:
    """A block of a container.

    :param count: how many data it has.
    :param data: the data, one after another, compressed.
    :param end: the offset in the container after the block.
    """

    count: int
    data: bytes
    end: int


class _Counted:
    """Counts the bytes that are read."""

    def __init__(self, stream: Bytes, at: int = 0) -> None:
        self._stream = stream
        self.at = at

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.at += len(data)
        return data

    def exactly(self, size: int) -> bytes:
        if len(data := self.read(size)) < size:
            raise AvroContainerError("it ends too early")
        return data

    def long(self, first: bytes = b"") -> int:
        """Return a whole number in Avro's zigzag encoding.

        :param first: its first byte, if it was read already.
        """
        number = shift = 0
        byte = (first or self.exactly(1))[0]
        while True:
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            if (shift := shift + 7) > 63:
                raise AvroContainerError("a number in it is too long")
            byte = self.exactly(1)[0]


def read_header(stream: Bytes) -> AvroHeader:
    """Return the header at the start of a container.

    :raises AvroContainerError: if there is none.
    """
    counted = _Counted(stream)
    if counted.read(len(MAGIC)) != MAGIC:
        raise AvroContainerError("it does not begin with Avro's magic bytes")
    found: dict[str, bytes] = {}
    while (count := counted.long()) != 0:
        if count < 0:
            count, _ = -count, counted.long()
        for _ in range(count):
            name = counted.exactly(_size(counted.long())).decode(errors="replace")
            found[name] = counted.exactly(_size(counted.long()))
    sync = counted.exactly(SYNC_BYTES)
    try:
        schema = found["avro.schema"].decode()
        json.loads(schema)
    except (KeyError, ValueError):
        raise AvroContainerError("its header has no schema") from None
    codec = found.get("avro.codec", b"null").decode(errors="replace")
    if codec not in CODECS:
        raise AvroContainerError(f"its blocks are compressed by {codec!r}; known are {', '.join(CODECS)}")
    return AvroHeader(schema=schema, codec=codec, sync=sync, size=counted.at)


def read_blocks(stream: Bytes, header: AvroHeader, start: int) -> Iterator[AvroBlock]:
    """Yield the blocks of a container.

    :param stream: its bytes from `start` on.
    :param start: the offset of a block, or of the end.
    :raises AvroContainerError: if a block is damaged, or the container ends too early.
    """
    while True:
        counted = _Counted(stream, start)
        if not (first := counted.read(1)):
            return
        count, size = counted.long(first), _size(counted.long())
        data = counted.exactly(size)
        if counted.exactly(SYNC_BYTES) != header.sync or count < 0:
            raise AvroContainerError(f"the block at byte {start} does not end with the file's marker")
        start = counted.at
        yield AvroBlock(count=count, data=data, end=start)


def _size(number: int) -> int:
    if not 0 <= number <= MAX_BLOCK_BYTES:
        raise AvroContainerError(f"it has a part of {number} bytes")
    return number


def plain_block(block: AvroBlock, codec: str, max_bytes: int) -> bytes:
    """Return the data of a block, decompressed.

    :param max_bytes: the maximum size of the data. About that much is held in memory.
    :raises AvroContainerError: if the block is damaged, or larger.
    """
    try:
        plain = CODECS[codec](block.data, max_bytes + 1)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        raise AvroContainerError(f"a block is not complete {codec}") from error
    if len(plain) > max_bytes:
        raise AvroContainerError(f"a block has more than {max_bytes} bytes once it is decompressed")
    return plain


def _of_snappy(data: bytes, limit: int) -> bytes:
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size >= limit:
        return bytes(limit)
    codec: Any = pa.Codec("snappy")
    plain: bytes = codec.decompress(data[:-CHECKSUM_BYTES], size, asbytes=True)
    if zlib.crc32(plain) != int.from_bytes(data[-CHECKSUM_BYTES:], "big"):
        raise ValueError("its checksum differs")
    return plain


def _of_deflate(data: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj(-15)
    plain = stream.decompress(data, limit)
    if len(plain) < limit and not stream.eof:
        raise EOFError
    return plain


def _of_zstd(data: bytes, limit: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return bytes(stream.read(limit))


CODECS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, limit: data,
    "deflate": _of_deflate,
    "snappy": _of_snappy,
    "zstandard": _of_zstd,
    "bzip2": lambda data, limit: bz2.BZ2Decompressor().decompress(data, limit),
    "xz": lambda data, limit: lzma.LZMADecompressor().decompress(data, limit),
}
"""How blocks are decompressed, up to a number of bytes, by Avro's name of the codec."""
