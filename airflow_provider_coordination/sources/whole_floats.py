"""Which whole numbers a float holds: a fraction is the nearest float by nature, but a whole number must not change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

WHOLE_NUMBER = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True)
class Held:
    """The whole numbers that a type of floats holds.

    :param whole: up to this, all of them.
    :param digits: beyond it, those with so few significant digits, which are read back with the same digits; others
        only if a float is exactly that number.
    """

    whole: int
    digits: int


SINGLE = Held(whole=2**24, digits=6)
DOUBLE = Held(whole=2**53, digits=15)


def held_by(kind: pa.DataType) -> Held:
    """Return what a type of floats holds."""
    return SINGLE if pa.types.is_float32(kind) else DOUBLE


def exceeds_whole(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which floats may have been a whole number that their type changes; never nulls."""
    return pc.fill_null(pc.greater_equal(pc.abs(values), float(held_by(values.type).whole)), False)


def first_changed(numbers: Sequence[int | None], kind: pa.DataType) -> int | None:
    """Return the first of some whole numbers that a type of floats does not hold; None if it holds all of them."""
    held = held_by(kind)
    large = [each for each in numbers if each is not None and abs(each) > held.whole]
    return next((each for each in large if not _is_held(each, kind, held)), None)


def _is_held(number: int, kind: pa.DataType, held: Held) -> bool:
    if len(str(abs(number)).rstrip("0")) <= held.digits:
        return True
    try:
        return int(pa.scalar(float(number), pa.float64()).cast(kind, safe=False).as_py()) == number
    except OverflowError:  # it is beyond the range of the type
        return False
