"""Decimals from texts, without a loss.

pyarrow does not notice an overflow: it reads a text with too many digits as another number, without an error.
"""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)


def decimals_of(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the decimals that texts are.

    :param kind: a decimal type of up to 38 digits.
    :raises pa.ArrowInvalid: with the first text that is not such a number.
    """
    whole = rf"\d{{1,{kind.precision - kind.scale}}}" if kind.precision > kind.scale else "0"
    fraction = rf"(?:\.\d{{1,{kind.scale}}})?" if kind.scale else ""
    if pc.all(pc.match_substring_regex(texts, f"^-?{whole}{fraction}$")).as_py() is False:
        return pa.chunked_array([[_decimal(text, kind) for text in texts.to_pylist()]], kind)
    return texts.cast(kind)


def _decimal(text: str | None, kind: pa.DataType) -> Decimal | None:
    """Return the decimal of a text that may have an exponent, or zeros at its ends."""
    if text is None:
        return None
    if _NUMBER.fullmatch(text):
        sign, digits, exponent = Decimal(text).as_tuple()
        kept = "".join(map(str, digits)).rstrip("0")
        scale = int(exponent) + len(digits) - len(kept)
        if not kept:
            return Decimal(0)
        if -scale <= kind.scale and len(kept.lstrip("0")) + scale <= kind.precision - kind.scale:
            return Decimal((sign, tuple(map(int, kept)), scale))
    raise pa.ArrowInvalid(f"{text[:100]!r} is not a number of {kind}")
