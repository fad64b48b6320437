"""Text and JSON as pages of complete records from a stream of bytes, and the base of CSV.

A record is a line, or a JSON object of several lines or within an array. A position counts uncompressed bytes. Reading
an uncompressed object continues there; a compressed one is decompressed again up to the position. So positions in a
compressed object are further apart the further it was read.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import ItemUnreadableError, ReadPage
from airflow_provider_coordination.sources.json_documents import JsonDocuments, JsonDocumentsError
from airflow_provider_coordination.sources.landed_types import REMEDY, exceeds_whole, first_changed, leaves
from airflow_provider_coordination.sources.s3.columns import Columns
from airflow_provider_coordination.sources.s3.object_streams import ByteStream, ReadableObject, codec_of, decompressed

PAGE_BYTES = 2**20
"""The approximate size of a page in uncompressed bytes."""
DATA = "data"
"""The column of unparsed records: it has the name and type of a Kinesis record's payload."""
DATA_SCHEMA = pa.schema([pa.field(DATA, pa.binary())])
BOM = b"\xef\xbb\xbf"
SKIP_BYTES = 2**20
MAX_APART_BYTES = 32 * 2**20
MAX_RECORD_BYTES = 64 * 2**20
NULL_LINE = re.compile(rb"\n[ \t\r]*null")

Cut = Callable[[bytes], int]
"""Returns where the last complete record ends in bytes that begin with a record; 0 if there is none."""


@dataclass(frozen=True)
class Block:
    """Some complete records.

    :param data: their bytes, including line breaks.
    :param start: the offset of their first byte in the uncompressed object.
    :param end: the offset after their last byte.
    :param position: where reading can continue after them; empty if it cannot.
    :param is_rest: whether it is the rest at the end of the object.
    """

    data: bytes
    start: int
    end: int
    position: str
    is_rest: bool


def read_blocks(source: ReadableObject, compression: str, position: str, page_bytes: int, cut: Cut) -> Iterator[Block]:
    """Yield the records of an object in blocks of about `page_bytes` uncompressed bytes.

    :param compression: as in the settings.
    :param position: where to continue; empty for the start.
    :param cut: finds the ends of records; the rest after the last one counts as a record too.
    :raises ItemUnreadableError: if a record does not end, or the compression is damaged.
    """
    start = int(position or 0)
    codec = codec_of(compression, source.uri)
    stream = source.stream(start) if codec is None else decompressed(source.stream(0), codec)
    apart = 0
    if codec is not None:
        apart = min(start // 4, MAX_APART_BYTES)
        _skip(stream, start)
    rest, at = b"", start
    while read := stream.read(max(page_bytes, len(BOM))):
        if not at and not rest:
            at, read = (len(BOM), read[len(BOM) :]) if read.startswith(BOM) else (at, read)
        rest = rest + read if rest else read
        if end := cut(rest):
            at += end
            yield Block(
                data=rest if end == len(rest) else rest[:end],
                start=at - end,
                end=at,
                position=str(at) if at - start >= apart else "",
                is_rest=False,
            )
            rest = rest[end:]
        elif len(rest) > MAX_RECORD_BYTES:
            raise ItemUnreadableError(f"the record at byte {at} does not end within {MAX_RECORD_BYTES} bytes")
    if rest:
        end = at + len(rest)
        yield Block(data=rest, start=at, end=end, position=str(end), is_rest=True)


def _skip(stream: ByteStream, size: int) -> None:
    while size > 0 and (skipped := stream.read(min(size, SKIP_BYTES))):
        size -= len(skipped)


def last_line(data: bytes) -> int:
    """Return where the last complete line ends; a `Cut`."""
    return data.rfind(b"\n") + 1


class Format(ABC):
    """A format of records in an object."""

    @abstractmethod
    def pages(self, source: ReadableObject, position: str) -> Iterator[ReadPage]:
        """Yield the records of an object, page by page, each with a position; one or two pages are in memory at a time.

        The records are the same, wherever reading was continued.

        :param source: the object.
        :param position: of the last page that was read; empty for the start.
        :raises ItemUnreadableError: if the object is damaged, or does not fit the settings.
        """


@dataclass(frozen=True)
class TextFormat(Format):
    """One record a line, in the column `data`: bytes without the line break, `\\n` or `\\r\\n`.

    :param compression: see `codec_of`.
    :param page_bytes: the approximate size of a page in uncompressed bytes.
    """

    compression: str
    page_bytes: int

    @override
    def pages(self, source: ReadableObject, position: str) -> Iterator[ReadPage]:
        for block in read_blocks(source, self.compression, position, self.page_bytes, last_line):
            yield ReadPage(self._records(_lines(block.data)), block.position)

    def _records(self, lines: list[bytes]) -> pa.Table:
        return pa.Table.from_arrays([pa.array(lines, pa.binary())], schema=DATA_SCHEMA)


@dataclass(frozen=True)
class JsonDataFormat(TextFormat):
    """JSON with one record a line, not parsed: like `TextFormat`, without blank lines."""

    def _records(self, lines: list[bytes]) -> pa.Table:
        return super()._records([line for line in lines if line and not line.isspace()])


@dataclass(frozen=True)
class JsonFormat(Format):
    """JSON with one record a line, parsed into columns. Missing fields are null, and other fields are left out.

    :param columns: the columns.
    :param compression: see `codec_of`.
    :param page_bytes: the approximate size of a page in uncompressed bytes.
    """

    columns: Columns
    compression: str
    page_bytes: int

    @override
    def pages(self, source: ReadableObject, position: str) -> Iterator[ReadPage]:
        for block in read_blocks(source, self.compression, position, self.page_bytes, last_line):
            if block.data.isspace():
                continue
            yield ReadPage(self.parsed(block.data, block), block.position)

    def parsed(self, data: bytes, block: Block) -> pa.Table:
        """Return the records of objects.

        :param data: the objects, one after another, each of which may have several lines.
        :param block: where they are, for errors.
        :raises ItemUnreadableError: if one does not fit the columns.
        """
        try:
            return self._parsed(data)
        except pa.ArrowException as error:
            raise ItemUnreadableError(
                f"its JSON between bytes {block.start} and {block.end}, rows counted from 0, does "
                f"not fit the columns: {error}"
            ) from error

    def _parsed(self, data: bytes) -> pa.Table:
        """Parse some objects.

        :raises pyarrow.ArrowInvalid: if one does not fit.
        """
        if data.lstrip().startswith(b"null") or NULL_LINE.search(
            data
        ):  # Arrow crashes the process (26.0) or accepts it
            raise pa.ArrowInvalid("a line is null, and not an object")

        try:
            parsed = _read_json(data, self.columns.as_parsed)
        except pa.ArrowInvalid as error:
            longer = self.columns.as_parsed_with_nanoseconds
            if longer is None or not _parses(data, longer):
                raise self._with_column(error, data) from error
            parsed = _read_json(data, longer)
        parsed.validate(full=True)  # the parser accepts text that is not UTF-8
        typed = self.columns.typed(parsed)
        if self._has_large_floats(typed):
            self._check_whole_numbers(data)
        return typed

    def _has_large_floats(self, typed: pa.Table) -> bool:
        return any(
            pa.types.is_floating(leaf.type) and pc.any(exceeds_whole(leaf)).as_py()
            for name in typed.column_names
            for _, leaf in leaves(name, typed.column(name))
        )

    def _check_whole_numbers(self, data: bytes) -> None:
        """Check that floats do not change whole numbers; the parser has read them already.

        :raises pyarrow.ArrowInvalid: naming the column and the number.
        """
        for row, record in enumerate(_documents(data)):
            for column in self.columns.schema:
                for path, kind, number in _whole_floats(column.name, column.type, record.get(column.name)):
                    if first_changed([number], kind) is not None:
                        raise pa.ArrowInvalid(
                            f"column {path!r}: {number} is a whole number that a {kind} changes, in row {row}; {REMEDY}"
                        )

    def _with_column(self, error: pa.ArrowInvalid, data: bytes) -> pa.ArrowInvalid:
        """Return the parser's error with the column that does not fit, if it is a column's."""
        if _parses(data, pa.schema([])):
            for field in self.columns.as_parsed_with_nanoseconds or self.columns.as_parsed:
                if not _parses(data, pa.schema([field])):
                    return pa.ArrowInvalid(f"column {field.name!r}: {error}; {REMEDY}")
        return error


def _read_json(data: bytes, schema: pa.Schema) -> pa.Table:
    from pyarrow.json import ParseOptions, ReadOptions, read_json

    return read_json(
        pa.BufferReader(data),
        read_options=ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore", newlines_in_values=True),
    )


def _documents(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects that a parser of Arrow has accepted."""
    text, at, decoder = data.decode(), 0, json.JSONDecoder()
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        record, at = decoder.raw_decode(text, at)
        yield record


def _whole_floats(path: str, kind: pa.DataType, value: Any) -> Iterator[tuple[str, pa.DataType, int]]:
    """Yield the whole numbers of a JSON value that become floats, with their path and type."""
    if pa.types.is_list(kind) and isinstance(value, list):
        for each in value:
            yield from _whole_floats(f"{path}.element", kind.value_type, each)
    elif pa.types.is_struct(kind) and isinstance(value, dict):
        for field in kind:
            yield from _whole_floats(f"{path}.{field.name}", field.type, value.get(field.name))
    elif pa.types.is_floating(kind) and isinstance(value, int):
        yield path, kind, value


def _parses(data: bytes, schema: pa.Schema) -> bool:
    try:
        _read_json(data, schema)
    except pa.ArrowInvalid:
        return False
    return True


def _lines(data: bytes) -> list[bytes]:
    if b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


START_BYTES = 2**16
"""How many bytes are searched for the first one that is no space."""
SPACE = b"\xef\xbb\xbf \t\r\n"


@dataclass
class _Objects:
    """Finds the objects in the blocks of a file; a `Cut`.

    :param documents: finds objects.
    :param spans: where the objects of the last bytes are.
    """

    documents: JsonDocuments
    spans: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, data: bytes) -> int:
        self.spans = list(self.documents.spans(data, is_end=False))
        return self.spans[-1][1] if self.spans else 0


@dataclass(frozen=True)
class JsonDocumentFormat(Format):
    """JSON objects, one after another or in an array.

    :param columns: the columns; None for the column `data` of each object's bytes.
    :param compression: see `codec_of`.
    :param page_bytes: the approximate size of a page in uncompressed bytes.
    """

    columns: Columns | None
    compression: str
    page_bytes: int

    @override
    def pages(self, source: ReadableObject, position: str) -> Iterator[ReadPage]:
        objects = _Objects(JsonDocuments(self._is_array(source) if int(position or 0) else None))
        at, has_rest = int(position or 0), False
        try:
            for block in read_blocks(source, self.compression, position, self.page_bytes, objects):
                at, has_rest = block.start, block.is_rest
                spans = objects.documents.spans(block.data, is_end=True) if has_rest else objects.spans
                if found := [block.data[start:end] for start, end in spans]:
                    # Reading never continues behind an array, where nothing would show that it has ended.
                    is_behind = has_rest and objects.documents.is_array
                    yield ReadPage(self._records(found, block), "" if is_behind else block.position)
                at = block.end
            if not has_rest:
                list(objects.documents.spans(b"", is_end=True))
        except JsonDocumentsError as error:
            raise ItemUnreadableError(
                f"its JSON after byte {at} is not objects, nor an array of them: {error}"
            ) from None

    def _records(self, found: list[bytes], block: Block) -> pa.Table:
        if self.columns is None:
            return pa.Table.from_arrays([pa.array(found, pa.binary())], schema=DATA_SCHEMA)
        return JsonFormat(self.columns, self.compression, self.page_bytes).parsed(b"\n".join(found), block)

    def _is_array(self, source: ReadableObject) -> bool:
        """Return whether the first byte of an object that is no space begins an array."""
        codec = codec_of(self.compression, source.uri)
        stream = source.stream(0) if codec is None else decompressed(source.stream(0), codec)
        return stream.read(START_BYTES).lstrip(SPACE).startswith(b"[")
