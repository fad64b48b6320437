"""Where JSON objects end in bytes that have several: on lines, over several lines, one after another, or in an array.

Only strings, brackets and what is between the objects are looked at. A parser checks what is within an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+("?)|([{\[])|[}\]]', re.DOTALL)
"""A string, with the quote at its end if there is one, or a bracket, with the opening ones as a group."""
TWO_ON_A_LINE = re.compile(rb"\}[ \t\r]*\{")
BETWEEN = re.compile(rb"[ \t\r\n]*(,?)[ \t\r\n]*")


class JsonDocumentsError(ValueError):
    """Bytes are neither JSON objects one after another nor an array of objects. The text gives the reason."""


class JsonDocuments:
    """Finds the objects in bytes that come in parts.

    :param is_array: whether objects that were found before are in an array; None if none was found before.
    """

    def __init__(self, is_array: bool | None = None) -> None:
        self.is_array = is_array
        """Whether the objects that were found are in an array; None if none was found."""
        self._has_found = is_array is not None

    def spans(self, data: bytes, *, is_end: bool) -> Iterator[tuple[int, int]]:
        """Yield where each complete object starts and ends.

        :param data: bytes that follow the last object that was found.
        :param is_end: whether nothing follows the bytes.
        :raises JsonDocumentsError: if there is anything but objects.
        """
        at = 0
        while (found := self._start(data, at, is_end=is_end)) is not None:
            start, is_array = found
            end = _end(data, start)
            if end is None:
                if is_end:
                    raise JsonDocumentsError(f"the object at byte {start} does not end")
                return
            self._has_found, self.is_array = True, is_array
            yield start, end
            at = end

    def _start(self, data: bytes, at: int, *, is_end: bool) -> tuple[int, bool] | None:
        """Return where the next object starts, and whether it is in an array; None if there is none in these bytes."""
        byte, after, comma = _next(data, at)
        is_array = self.is_array
        if is_array is None and byte == b"[" and comma is None:
            is_array = True
            byte, after, comma = _next(data, after + 1)
        if is_array and byte == b"]" and comma is None:
            byte, after, comma = _next(data, after + 1)
            if byte or comma is not None:
                raise JsonDocumentsError(f"byte {after} follows the end of the array")
            return None
        if not byte:
            if is_end and (is_array or comma is not None):
                raise JsonDocumentsError("the array does not end" if is_array else f"byte {comma} is no object")
            return None
        if byte != b"{":
            raise JsonDocumentsError(f"there is no object at byte {after}")
        if (comma is not None) != (self._has_found and bool(is_array)):
            raise JsonDocumentsError(f"the object at byte {after} follows {'no' if comma is None else 'a'} comma")
        return after, bool(is_array)


def objects_in(data: bytes) -> list[bytes]:
    """Return the objects in bytes.

    :raises JsonDocumentsError: if there is anything but objects.
    """
    if (lines := _objects_on_lines(data)) is not None:
        return lines
    return [data[start:end] for start, end in JsonDocuments().spans(data, is_end=True)]


def _objects_on_lines(data: bytes) -> list[bytes] | None:
    """Return objects that have a line each, without a look at each bracket; None if they may be arranged otherwise.

    Where a line of JSON ends with `}` and the next one begins with `{`, one object ends and another one begins: within
    an object there is a comma between them, and a string has no end of a line.
    """
    if TWO_ON_A_LINE.search(data):
        return None
    lines = [stripped for line in data.split(b"\n") if (stripped := line.strip(b" \t\r"))]
    is_one_each = all(
        line.startswith(b"{") and line.endswith(b"}") and line.count(b"{") == line.count(b"}") for line in lines
    )
    return lines if is_one_each else None


def _next(data: bytes, at: int) -> tuple[bytes, int, int | None]:
    """Return the next byte after space and at most one comma, empty at the end; its position; and the comma's."""
    match = BETWEEN.match(data, at)
    assert match is not None
    return data[match.end() : match.end() + 1], match.end(), match.start(1) if match[1] else None


def _end(data: bytes, start: int) -> int | None:
    """Return where the object at `start` ends; None if it does not end in these bytes."""
    depth = 0
    for token in TOKEN.finditer(data, start):
        if token[1] is not None:
            if not token[1]:  # the string does not end
                return None
        elif token[2]:
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return token.end()
    return None
