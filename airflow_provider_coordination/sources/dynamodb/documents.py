"""Items of DynamoDB as plain JSON, and keys as positions.

DynamoDB types each value (`{"N": "1"}`). In plain JSON, a number has exactly DynamoDB's digits and is never rounded to
a float; binary is base64; a set is a list.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from airflow_provider_coordination.sources.items import ItemUnreadableError

Attributes = Mapping[str, Any]
"""Names and typed values; binary values are bytes, as in boto3, or base64 text, as in DynamoDB's JSON."""

_text = partial(json.dumps, ensure_ascii=False)
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def plain_json(attributes: Attributes) -> str:
    """Return an item, or a map within one, as a plain JSON object.

    :raises ItemUnreadableError: if a value has a type that DynamoDB does not have.
    """
    return "{" + ",".join(f"{_text(name)}:{_plain(value)}" for name, value in attributes.items()) + "}"


def _plain(value: Mapping[str, Any]) -> str:
    try:
        [(kind, held)] = value.items()
        return str(_OF_KIND[kind](held))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ItemUnreadableError(f"{value!r} is not a typed value of DynamoDB, such as {{'N': '1'}}") from None


def _number(held: str) -> str:
    return held if _JSON_NUMBER.fullmatch(held) else _text(held)


def _binary(held: bytes | str) -> str:
    return _text(held if isinstance(held, str) else b64encode(held).decode())


def _list(held: Iterable[str]) -> str:
    return "[" + ",".join(held) + "]"


_OF_KIND: Mapping[str, Any] = {
    "S": _text,
    "N": _number,
    "B": _binary,
    "BOOL": lambda held: "true" if held else "false",
    "NULL": lambda held: "null",
    "M": plain_json,
    "L": lambda held: _list(map(_plain, held)),
    "SS": lambda held: _list(map(_text, held)),
    "NS": lambda held: _list(map(_number, held)),
    "BS": lambda held: _list(map(_binary, held)),
}


def position_of(key: Attributes) -> str:
    """Return a key as text, without loss: DynamoDB's JSON."""
    typed = {
        name: {kind: b64encode(held).decode() if kind == "B" else held for kind, held in value.items()}
        for name, value in key.items()
    }
    return json.dumps(typed, separators=(",", ":"), sort_keys=True)


def key_at(position: str) -> dict[str, Any]:
    """Return the key of a text that `position_of` made.

    :raises ItemUnreadableError: if it is not a key.
    """
    try:
        return typed_values(json.loads(position))
    except (AttributeError, TypeError, ValueError):
        raise ItemUnreadableError(
            f"position {position!r} is not a key of DynamoDB; reset the partition to read it from its start"
        ) from None


def typed_values(values: Attributes) -> dict[str, Any]:
    """Return values in boto3's form, from DynamoDB's JSON, in which binary values are base64 text."""
    return {
        name: {kind: b64decode(held, validate=True) if kind == "B" else held for kind, held in value.items()}
        for name, value in values.items()
    }
