"""Facts as JSON: frozen dataclasses, whose fields are the names that commands, HTTP and XComs show.

What is stored is read leniently: another version of the package may have written it.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Self, overload

from airflow_provider_coordination.coordination.partition import format_instant, read_instant

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@overload
def json_of(value: DataclassInstance) -> dict[str, Any]: ...


@overload
def json_of(value: object) -> Any: ...


def json_of(value: Any) -> Any:
    """Return a value as JSON: dataclasses are objects, instants text, and durations numbers of seconds."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: json_of(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): json_of(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_of(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return format_instant(value)
    return value.total_seconds() if isinstance(value, timedelta) else value


_INVALID: Any = object()


class Stored:
    """A dataclass of text, numbers, instants, enumerations, JSON objects, other records, and tuples of these."""

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        written: dict[str, Any] = json_of(self)
        return written

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self | None:
        """Return it from a JSON object; None if a field without a default is missing or invalid.

        Any other field that is missing or invalid has its default.
        """
        described: Any = cls
        values = {name: _read(hint, mapping.get(name)) for name, hint in _hints(described).items()}
        known = {name: value for name, value in values.items() if value is not _INVALID}
        if any(
            each.default is MISSING and each.default_factory is MISSING and each.name not in known
            for each in fields(described)
        ):
            return None
        return cls(**known)


@functools.cache
def _hints(cls: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


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
