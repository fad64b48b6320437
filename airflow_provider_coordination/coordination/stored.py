"""Records that are stored as JSON objects, and read leniently: another version of the package may have written them."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Self

from airflow_provider_coordination.coordination.partition import format_instant, read_instant

_INVALID: Any = object()


class Stored:
    """A dataclass of text, numbers, instants, enumerations, JSON objects, other records, and tuples of these."""

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        cls: Any = type(self)
        return {name: _written(getattr(self, name)) for name in _hints(cls)}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self | None:
        """Return it from a JSON object; None if a field without a default is missing or invalid.

        Any other field that is missing or invalid has its default.
        """
        described: Any = cls
        fields = dataclasses.fields(described)
        values = {name: _read(hint, mapping.get(name)) for name, hint in _hints(described).items()}
        known = {name: value for name, value in values.items() if value is not _INVALID}
        missing = dataclasses.MISSING
        if any(f.default is missing and f.default_factory is missing and f.name not in known for f in fields):
            return None
        return cls(**known)


@functools.cache
def _hints(cls: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _written(value: Any) -> Any:
    if isinstance(value, Stored):
        return value.to_mapping()
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, tuple):
        return [_written(each) for each in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value.value if isinstance(value, Enum) else value


def _read(hint: Any, value: Any) -> Any:
    """Return a value of a type; `_INVALID` if it is none."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        of = next(each for each in arguments if each is not types.NoneType)
        return None if value is None else _read(of, value)
    if origin is tuple:
        items = value if isinstance(value, list | tuple) else ()
        return tuple(item for each in items if (item := _read(arguments[0], each)) is not _INVALID)
    if origin is not None:
        return value if isinstance(value, Mapping) else _INVALID
    if hint is datetime:
        read: Any = read_instant(value)
    elif issubclass(hint, Stored):
        read = hint.from_mapping(value) if isinstance(value, Mapping) else None
    elif issubclass(hint, Enum):
        read = next((each for each in hint if each.value == value), None)
    else:
        read = value if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)) else None
    return _INVALID if read is None else read
