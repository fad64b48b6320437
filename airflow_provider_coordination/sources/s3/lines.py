"""Pages of whole records out of a stream of bytes: text and JSON of one record a line, and what CSV builds on.

A position counts plain bytes: an object that is not compressed is read on from there, a compressed one is decompressed
up to there again. So the positions in a compressed object are the further apart the further it was read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from airflow_provider_coordination.sources.items import ItemUnreadableError, ReadPage
from airflow_provider_coordination.sources.s3.columns import Columns
from airflow_provider_coordination.sources.s3.compression import ByteStream, codec_of, decompressed
from airflow_provider_coordination.sources.s3.object_streams import ReadableObject

DATA = "data"
"""The column of what is not taken apart: the name and type that a Kinesis record's payload has."""
DATA_SCHEMA = pa.schema([pa.field(DATA, pa.binary())])
BOM = b"\xef\xbb\xbf"
SKIP_BYTES = 2**20
MAX_APART_BYTES = 32 * 2**20
MAX_RECORD_BYTES = 64 * 2**20
NULL_LINE = re.compile(rb"\n[ \t\r]*null")

Cut = Callable[[bytes], int]
"""Tells where the last whole record of some bytes ends, which begin with a record; 0 if there is none."""


@dataclass(frozen=True)
class Block:
    """Some whole records.

    :param data: their bytes, the ends of lines included.
    :param start: how many plain bytes of the object lie before them.
    :param end: how many lie before what follows.
    :param position: where reading may go on after them; empty where it may not.
    :param is_rest: whether it is what was left at the end of the object, rather than cut.
    """

    data: bytes
    start: int
    end: int
    position: str
    is_rest: bool


def read_blocks(source: ReadableObject, compression: str, position: str, page_bytes: int, cut: Cut) -> Iterator[Block]:
    """Yield the records of an object, in blocks of about so many plain bytes.

    :param compression: what the settings say of it.
    :param position: where to go on; empty to begin.
    :param cut: finds the ends of records; what follows the last one counts as one, too.
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
            raise ItemUnreadableError(f"the record at byte {at} has more than {MAX_RECORD_BYTES} bytes and no end")
    if rest:
        end = at + len(rest)
        yield Block(data=rest, start=at, end=end, position=str(end), is_rest=True)


def _skip(stream: ByteStream, size: int) -> None:
    while size > 0 and (skipped := stream.read(min(size, SKIP_BYTES))):
        size -= len(skipped)


def last_line(data: bytes) -> int:
    """Return where the last whole line ends; a `Cut`."""
    return data.rfind(b"\n") + 1


@dataclass(frozen=True)
class TextFormat:
    """One record a line, in the column `data`: bytes without the end of the line, `\\n` or `\\r\\n`.

    :param compression: see `codec_of`.
    :param page_bytes: about how many plain bytes make a page.
    """

    compression: str
    page_bytes: int

    def pages(self, source: ReadableObject, position: str) -> Iterator[ReadPage]:
        """See `Format.pages`."""
        for block in read_blocks(source, self.compression, position, self.page_bytes, last_line):
            yield ReadPage(self._records(_lines(block.data)), block.position)

    def _records(self, lines: list[bytes]) -> pa.Table:
        return pa.Table.from_arrays([pa.array(lines, pa.binary())], schema=DATA_SCHEMA)


@dataclass(frozen=True)
class JsonDataFormat(TextFormat):
    """JSON of one record a line that is not taken apart: as `TextFormat`, without blank lines."""

    def _records(self, lines: list[bytes]) -> pa.Table:
        return super()._records([line for line in lines if line and not line.isspace()])


@dataclass(frozen=True)
class JsonFormat:
    """JSON of one record a line, taken apart into columns. Missing fields are null, and those not named left out.

    :param columns: what to take.
    :param compression: see `codec_of`.
    :param page_bytes: about how many plain bytes make a page.
    """

    columns: Columns
    compression: str
    page_bytes: int

    def pages(self, source: ReadableObject, position: str) -> Iterator[ReadPage]:
        """See `Format.pages`."""
        for block in read_blocks(source, self.compression, position, self.page_bytes, last_line):
            if block.data.isspace():
                continue
            try:
                parsed = self._parsed(block.data)
            except pa.ArrowException as error:
                raise ItemUnreadableError(
                    f"its JSON between bytes {block.start} and {block.end}, rows counted from 0, does "
                    f"not fit the columns: {error}"
                ) from error
            yield ReadPage(parsed, block.position)

    def _parsed(self, data: bytes) -> pa.Table:
        """Parse some lines.

        :raises pyarrow.ArrowInvalid: if one does not fit.
        """
        from pyarrow import json

        if data.lstrip().startswith(b"null") or NULL_LINE.search(data):  # Arrow crashes the process (26.0) or takes it
            raise pa.ArrowInvalid("a line is null, and no object")
        parsed = json.read_json(
            pa.BufferReader(data),
            read_options=json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=json.ParseOptions(explicit_schema=self.columns.as_parsed, unexpected_field_behavior="ignore"),
        )
        parsed.validate(full=True)  # the parser lets text pass that is no UTF-8
        return self.columns.typed(parsed)


def _lines(data: bytes) -> list[bytes]:
    if b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines
