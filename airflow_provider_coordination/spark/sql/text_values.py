"""Columns of rows as text, for values that have no text form that every database reads."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.spark.delivery import DeliveryError

ESCAPED_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def is_nested(kind: pa.DataType) -> bool:
    """Return whether values consist of other values: lists, structs and maps. They are stored as JSON."""
    return bool(pa.types.is_nested(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Return whether values are bytes."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def as_json(name: str, column: pa.ChunkedArray, *, has_zero_characters: bool = True) -> pa.ChunkedArray:
    """Return nested values as JSON.

    :param name: the name of the column.
    :param has_zero_characters: whether the database accepts zero characters in JSON.
    :raises DeliveryError: if JSON cannot represent them.
    """
    of_maps = _has_maps(column.type)
    try:
        texts = [
            None
            if value is None
            else json.dumps(
                _plain(value, column.type) if of_maps else value, default=_text, allow_nan=False, ensure_ascii=False
            )
            for value in column.to_pylist()
        ]
        if not has_zero_characters and any(text is not None and ESCAPED_ZERO.search(text) for text in texts):
            raise ValueError("it holds a zero character")
    except (OverflowError, TypeError, ValueError) as error:
        raise DeliveryError(
            f"column {name!r} of type {column.type} cannot be written as JSON: {error}; convert it in the transform"
        ) from None
    return pa.chunked_array([pa.array(texts, pa.string())])


def hexadecimal(column: pa.ChunkedArray, before: str, after: str) -> pa.ChunkedArray:
    """Return binary values as hexadecimal digits between a prefix and a suffix; null stays null."""
    return pa.chunked_array([_joined(before, _digits(chunk), after) for chunk in column.chunks], pa.string())


def _joined(before: str, digits: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, digits, after, "")


def _digits(chunk: pa.Array) -> pa.Array:
    """Return the digits of each value: the digits of the whole buffer, cut at twice the offsets."""
    chunk = pa.concat_arrays([chunk.cast(pa.binary())])  # without an offset of its own
    if chunk.offset:
        chunk = chunk.take(pa.array(range(len(chunk)), pa.int64()))
    _, offsets, values = chunk.buffers()
    doubled = pc.multiply(pa.Array.from_buffers(pa.int32(), len(chunk) + 1, [None, offsets]).cast(pa.int64()), 2)
    digits = b"" if values is None else values.to_pybytes().hex().encode()
    whole = pa.LargeStringArray.from_buffers(len(chunk), doubled.buffers()[1], pa.py_buffer(digits))
    return pc.if_else(chunk.is_valid(), whole, None).cast(pa.string())


def _has_maps(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return is_nested(kind) and any(_has_maps(kind.field(n).type) for n in range(kind.num_fields))


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value with maps as objects; pyarrow represents them as lists of pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        plain = {str(key): _plain(each, kind.item_type) for key, each in value}
        if len(plain) < len(value):
            raise ValueError("a map has a key twice")
        return plain
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if is_nested(kind):
        return [_plain(each, kind.value_type) for each in value]
    return value


def _text(value: Any) -> str:
    """Return the text of values that JSON cannot represent: instants, dates and decimals.

    :raises TypeError: for bytes, which have no exact text.
    """
    if isinstance(value, bytes):
        raise TypeError("it holds bytes, which have no text")
    return str(value)
