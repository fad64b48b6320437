"""Finding the exact ends of CSV rows, including rows with quoted line breaks, to split CSV into pages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc


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
