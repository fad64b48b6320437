"""CSV as columns: named by the header or by the settings, with the configured types or text."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import ItemUnreadableError, ReadPage
from airflow_provider_coordination.sources.landed_types import REMEDY, fails, first_where, value_text
from airflow_provider_coordination.sources.s3.columns import Columns
from airflow_provider_coordination.sources.s3.kind import FormatSettings
from airflow_provider_coordination.sources.s3.object_streams import ReadableObject
from airflow_provider_coordination.sources.s3.text_formats import Block, Cut, Format, read_blocks

if TYPE_CHECKING:
    from pyarrow.csv import ConvertOptions, ParseOptions

HEADER_BYTES = 2**16
NUMBERED_COLUMN = re.compile(r"In CSV column #(\d+)")
"""How Arrow names a column."""


@dataclass(frozen=True)
class CsvFormat(Format):
    """CSV. A position counts uncompressed bytes, as for lines.

    :param settings: the format settings.
    :param columns: the columns that an object must have, in any order if it has a header; None uses the columns of each
        header, as text.
    :param page_bytes: the approximate size of a page in uncompressed bytes.
    """

    settings: FormatSettings
    columns: Columns | None
    page_bytes: int

    @override
    def pages(self, source: ReadableObject, position: str) -> Iterator[ReadPage]:
        names = self.columns.names if self.columns and not self.settings.header else None
        if names is None and position:
            names = self._header_of(source)
        for block in self._blocks(source, position, self.page_bytes, self._rows.last_row):
            if block.is_rest and not self._rows.ends(block.data):
                raise ItemUnreadableError(f"its last row, at byte {block.start}, has a quote that is not closed")
            data = block.data
            if not data.strip(b"\r\n"):
                continue
            if names is None:
                header = self._rows.first_row(data) or len(data)
                names, data = self._names(data[:header]), data[header:]
            if data.strip(b"\r\n"):
                yield ReadPage(self._records(data, block, names), block.position)

    def _blocks(self, source: ReadableObject, position: str, page_bytes: int, cut: Cut) -> Iterator[Block]:
        return read_blocks(source, self.settings.compression, position, page_bytes, cut)

    @cached_property
    def _rows(self) -> CsvRows:
        return CsvRows(self.settings.delimiter, self.settings.quote, self.settings.escape)

    # The header

    def _header_of(self, source: ReadableObject) -> list[str]:
        """Return the names in the header of an object that is read from a later position."""
        return self._names(next(self._blocks(source, "", HEADER_BYTES, self._rows.first_row)).data)

    def _names(self, header: bytes) -> list[str]:
        """Return the names in a header.

        :raises ItemUnreadableError: if they differ from the configured columns, or are invalid.
        """
        try:
            text = io.StringIO(header.decode().strip("\r\n"), newline="")
        except UnicodeDecodeError as error:
            raise ItemUnreadableError(f"its header is not UTF-8: {error}") from error
        [names] = csv.reader(
            text,
            delimiter=self.settings.delimiter,
            quotechar=self.settings.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.settings.quote else csv.QUOTE_NONE,
            escapechar=self.settings.escape or None,
        )
        if self.columns is not None and sorted(names) != sorted(self.columns.names):
            raise ItemUnreadableError(
                f"its header has changed: expected the columns {_named(self.columns.names)}, found {_named(names)}"
            )
        if not all(names) or len({name.lower() for name in names}) < len(names):  # Spark ignores case
            raise ItemUnreadableError(f"its header does not name each column once: {_named(names)}")
        return names

    # Rows

    def _records(self, data: bytes, block: Block, names: Sequence[str]) -> pa.Table:
        try:
            return self._as_text(data, names) if self.columns is None else self._typed(data, names, self.columns)
        except pa.ArrowException as error:
            reason = NUMBERED_COLUMN.sub(lambda found: f"column {names[int(found[1])]!r}", str(error))
            raise ItemUnreadableError(
                f"its CSV between bytes {block.start} and {block.end}, rows counted from 1, cannot be read: {reason}"
            ) from error

    def _typed(self, data: bytes, names: Sequence[str], columns: Columns) -> pa.Table:
        try:
            return columns.typed(self._parsed(data, names, columns.as_parsed_from_csv))
        except pa.ArrowInvalid:
            text = self._as_text(data, names)
        # Arrow reads no quoted value as null, but '""' in a column of numbers can only be null.
        return pa.table({field.name: self._out_of_text(text.column(field.name), field) for field in columns.schema})

    def _as_text(self, data: bytes, names: Sequence[str]) -> pa.Table:
        return self._parsed(data, names, pa.schema([(name, pa.string()) for name in names]))

    def _out_of_text(self, values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        """Return a column of texts with its type.

        :raises pyarrow.ArrowInvalid: naming the column, the first value of another type, its row and the remedy.
        """
        try:
            return self._typed_texts(values, field)
        except pa.ArrowInvalid:
            refused = first_where(values, partial(fails, partial(self._typed_texts, field=field)))
            if refused is None:
                raise
        row = pc.index(values, refused).as_py() + 1
        raise pa.ArrowInvalid(
            f"column {field.name!r}: {value_text(refused)!r} is not a valid {field.type}, in row {row}; {REMEDY}"
        ) from None

    def _typed_texts(self, values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        if not pa.types.is_string(field.type):
            trimmed = pc.ascii_trim_whitespace(values)
            nulls = pc.is_in(trimmed, pa.array(["", *self.settings.null_values], pa.string()))
            values = pc.if_else(nulls, None, trimmed)
        return Columns(pa.schema([field])).typed(pa.table({field.name: values})).column(0)

    def _parsed(self, data: bytes, names: Sequence[str], schema: pa.Schema) -> pa.Table:
        from pyarrow.csv import ReadOptions, read_csv

        return read_csv(
            pa.BufferReader(data),
            read_options=ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            parse_options=self._parse_options,
            convert_options=self._convert_options(schema),
        )

    @cached_property
    def _parse_options(self) -> ParseOptions:
        from pyarrow.csv import ParseOptions

        return ParseOptions(
            delimiter=self.settings.delimiter,
            quote_char=self.settings.quote or False,
            double_quote=bool(self.settings.quote),
            escape_char=self.settings.escape or False,
            newlines_in_values=True,
        )

    def _convert_options(self, schema: pa.Schema) -> ConvertOptions:
        from pyarrow.csv import ConvertOptions

        return ConvertOptions(
            column_types=schema,
            null_values=list(self.settings.null_values),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )


def _named(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


@dataclass(frozen=True)
class CsvRows:
    """Finds the ends of rows as Arrow's parser does: a quote opens only at the start of a value.

    :param delimiter: see `FormatSettings`, also for the others.
    """

    delimiter: str
    quote: str
    escape: str

    def last_row(self, data: bytes) -> int:
        """Return where the last complete row ends, in bytes that begin with a row; 0 if no row ends. A `Cut`."""
        quoted = self.quote and self.quote.encode() in data
        escaped = self.escape and self.escape.encode() in data
        if not quoted and not escaped:
            return data.rfind(b"\n") + 1 or self._scanned(data)
        if not escaped and (end := self._by_parity(data)) is not None:
            return end
        return self._scanned(data)

    def first_row(self, data: bytes) -> int:
        """Return where the first row that is not blank ends; 0 if none does."""
        found = self._first.match(data)
        return 0 if found is None else found.end()

    def ends(self, data: bytes) -> bool:
        """Return whether the last bytes of an object, which begin with a row, end with a complete row."""
        closed = data if data.endswith(b"\n") else data + b"\n"
        return self._scanned(closed) == len(closed)

    def _scanned(self, data: bytes) -> int:
        end = 0
        while (found := self._row.match(data, end)) is not None:
            end = found.end()
        return end

    def _by_parity(self, data: bytes) -> int | None:
        """Return the end of the last row by counting quotes: an even number before a line break means that a row ends.

        This holds if every opening quote follows a delimiter and every closing one precedes one. That is checked for
        all quotes at once, which is much faster than scanning.

        :returns: None if it does not hold.
        """
        characters = pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)])
        quotes = pc.indices_nonzero(pc.equal(characters, ord(self.quote)))
        count = len(quotes)
        opening, closing = quotes.take(_every_second(0, count)), quotes.take(_every_second(1, count))
        around = pa.array([*self.delimiter.encode(), *b"\r\n", ord(self.quote)], pa.uint8())
        begun = opening.slice(1) if count and opening[0].as_py() == 0 else opening
        before = characters.take(pc.subtract(begun, 1))
        ended = closing.slice(0, len(closing) - 1) if len(closing) and closing[-1].as_py() == len(data) - 1 else closing
        after = characters.take(pc.add(ended, 1))
        if not (_all_in(before, around) and _all_in(after, around)):
            return None
        end, left = len(data), count
        while (end := data.rfind(b"\n", 0, end)) >= 0:
            while left and quotes[left - 1].as_py() > end:
                left -= 1
            if left % 2 == 0:
                return end + 1
        return 0

    @cached_property
    def _text(self) -> str:
        """The regular expression of a row, which can match in only one way.

        Only single characters are repeated possessively: before Python 3.11.5, a possessive group may match too little.
        """
        delimiter, quote, escape = re.escape(self.delimiter), re.escape(self.quote), re.escape(self.escape)
        escaped = f"{escape}(?s:.)" if escape else ""
        characters = f"[^{delimiter}\\r\\n{escape}]*+"
        value = f"{characters}(?:{escaped}{characters})*" if escape else characters
        if quote:
            characters = f"[^{quote}{escape}]*+"
            pairs = f"(?:{quote}{quote}|{escaped})" if escape else f"{quote}{quote}"
            quoted = f"{quote}{characters}(?:{pairs}{characters})*{quote}(?!{quote})"
            value = f"(?:{quoted}{value}|(?!{quote}){value})"
        return f"(?:{value}{delimiter})*{value}(?:\\r\\n|\\n|\\r(?=[^\\n]))"

    @cached_property
    def _row(self) -> re.Pattern[bytes]:
        return re.compile(self._text.encode())

    @cached_property
    def _first(self) -> re.Pattern[bytes]:
        return re.compile(f"[\\r\\n]*+{self._text}".encode())


def _every_second(first: int, count: int) -> pa.Array:
    return pa.array(range(first, count, 2), pa.int64())


def _all_in(values: pa.Array, allowed: pa.Array) -> bool:
    return not len(values) or bool(pc.all(pc.is_in(values, allowed)).as_py())
