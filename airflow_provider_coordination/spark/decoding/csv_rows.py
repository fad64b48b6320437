"""Payloads of CSV and TSV as columns of text. Arrow parses the payloads of many records at once.

For that, each row gets the number of its payload as its first value. A row whose number does not come back is wrong.
Only payloads that are one whole line are parsed like this. The others, and the wrong ones, are parsed alone.
"""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.decoding.errors import UndecodableError
from airflow_provider_coordination.spark.decoding.formats import DecodedRows, PayloadFormat
from airflow_provider_coordination.spark.payload_settings import Csv

log = logging.getLogger(__name__)

BOM = b"\xef\xbb\xbf"
MAX_VALUE_BYTES = 2**31 - 1
"""Python's own limit is 128 KiB."""
NO_TEXTS = pa.array([], pa.string())
NUMBER = "_coordination_payload"


class CsvPayloads(PayloadFormat):
    """Payloads of CSV.

    :param options: how they are written.
    :param names: the names of the values, in the order of the payloads, if the options name none.
    :param wanted: the values that become columns, as text.
    """

    def __init__(self, options: Csv, names: Sequence[str], wanted: Sequence[str]) -> None:
        self.columns = pa.schema([(name, pa.string()) for name in wanted])
        self._options = options
        self._names = list(options.columns or names)

    @override
    def rows(self, payloads: Sequence[bytes]) -> DecodedRows:
        csv.field_size_limit(MAX_VALUE_BYTES)
        together = self._together({} if self._has_header else dict(self._simple(payloads)))
        tables = [together]
        wrong: dict[int, str] = {}
        for number in sorted(set(range(len(payloads))) - set(together.column(NUMBER).to_pylist())):
            try:
                rows = self._alone(payloads[number])
            except UndecodableError as error:
                wrong[number] = str(error)
            else:
                tables.append(rows.add_column(0, NUMBER, pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows)))
        table = pa.concat_tables(tables).combine_chunks()
        if len(tables) > 1:
            table = table.take(pc.sort_indices(table.column(NUMBER)))  # stable: rows keep their order in a payload
        of = table.column(NUMBER).to_pylist()
        # The rows of a payload share its bytes, which the first of them has.
        data = [None if row and of[row - 1] == number else payloads[number] for row, number in enumerate(of)]
        columns = [pa.concat_arrays([*table.column(name).chunks, NO_TEXTS]) for name in self.columns.names]
        return DecodedRows(of=of, data=data, columns=columns, wrong=wrong)

    @property
    def _has_header(self) -> bool:
        return self._options.header or self._options.skip_rows > 0

    def _simple(self, payloads: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield the payloads that are one line, which no quote continues; without its end."""
        quote = (self._options.quote or "\0").encode()
        for number, payload in enumerate(payloads):
            line = payload.removesuffix(b"\n").removesuffix(b"\r")
            is_line = line and b"\n" not in line and b"\r" not in line and not line.startswith(BOM)
            if is_line and (quote not in line or self._is_quoted(line)) and _is_text(line):
                yield number, line

    def _is_quoted(self, data: bytes) -> bool:
        """Return whether all quotes are where RFC 4180 allows them; Arrow accepts others."""
        options = self._options
        reader = csv.reader(
            io.StringIO(data.decode(errors="replace"), newline=""),
            delimiter=options.delimiter,
            quotechar=options.quote,
            strict=True,
        )
        try:
            for _ in reader:
                pass
        except csv.Error:
            return False
        return True

    def _together(self, lines: dict[int, bytes]) -> pa.Table:
        """Return the rows of lines, with their numbers, without those that are wrong."""
        delimiter = self._options.delimiter.encode()
        numbered = b"".join(b"%d%b%b\n" % (number, delimiter, line) for number, line in lines.items())
        try:
            parsed = self._parsed(numbered, [NUMBER, *self._names], [NUMBER, *self.columns.names])
        except pa.ArrowException as error:  # each line alone shows what is wrong
            log.debug("%d payloads of CSV are parsed one by one: %s", len(lines), type(error).__name__)
            return self._nothing
        return parsed.set_column(0, NUMBER, parsed.column(NUMBER).cast(pa.int64()))

    @cached_property
    def _nothing(self) -> pa.Table:
        return pa.schema([(NUMBER, pa.int64()), *self.columns]).empty_table()

    def _alone(self, payload: bytes) -> pa.Table:
        """Return the rows of a payload.

        :raises UndecodableError: if it is not CSV of these values.
        """
        if not payload.strip():
            raise UndecodableError("the payload is empty")
        if not _is_text(payload):
            raise UndecodableError("the payload is not UTF-8")
        if self._options.quote is not None and not self._is_quoted(payload):
            raise UndecodableError("the payload is not CSV of these values: a quote does not end, or is within a value")
        problems: list[str] = []
        try:
            parsed = self._parsed(
                payload.removeprefix(BOM), None if self._options.header else self._names, self.columns.names, problems
            )
        except (pa.ArrowException, KeyError) as error:
            if "Empty CSV" in str(error):
                return self._nothing.select(self.columns.names)
            raise UndecodableError(f"the payload is not CSV of these values: {_without_values(error)}") from None
        if problems:
            raise UndecodableError(f"the payload is not CSV of these values: {problems[0]}")
        return parsed

    def _parsed(
        self, data: bytes, names: Sequence[str] | None, wanted: Sequence[str], problems: list[str] | None = None
    ) -> pa.Table:
        """Parse rows.

        :param names: the names of the values; None if the first row has them.
        :param problems: receives what is wrong with rows; None leaves such rows out.
        :raises pa.ArrowException: if the data cannot be parsed.
        """
        from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, open_csv

        options = self._options

        def skip(row: Any) -> str:
            if problems is not None:
                problems.append(f"a row has {row.actual_columns} values, and {row.expected_columns} are expected")
            return "skip"

        if not data:
            return self._nothing
        reader = open_csv(
            pa.BufferReader(data),
            read_options=ReadOptions(
                use_threads=False,
                block_size=len(data) + 1,
                column_names=names,
                skip_rows=0 if problems is None else options.skip_rows,
            ),
            parse_options=ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                newlines_in_values=True,
                invalid_row_handler=skip,
            ),
            convert_options=ConvertOptions(
                column_types={name: pa.string() for name in wanted},
                include_columns=list(wanted),
                null_values=list(options.null_values),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return reader.read_all()


def _is_text(line: bytes) -> bool:
    if line.isascii():
        return True
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _without_values(error: Exception) -> str:
    """Return the beginning of an error of Arrow, before it quotes the data."""
    text = str(error).partition("\n")[0]
    return text.partition(": got ")[0].partition(" in row")[0][:200]
