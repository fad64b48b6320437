"""Settings that travel as JSON objects: one way to read them, with one clear error for whatever is wrong."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import format_instant, parse_instant

T = TypeVar("T")


def read_settings(cls: type[T], what: str, values: object) -> T:
    """Make a settings dataclass from a JSON object.

    Fields may be text, numbers, booleans, instants, other settings classes, JSON objects, tuples of one of these, and
    any of these or None. Whole numbers do where fractions are wanted.

    :param cls: the dataclass.
    :param what: what the settings are of, for errors, such as `store settings`.
    :param values: the JSON object.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"{what}: expected a JSON object; got {type(values).__name__}")
    fields, hints = _fields(cls), _hints(cls)  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            raise ConfigurationError(f"{what}: unknown field {name!r}; known are {', '.join(fields)}")
    for name, field in fields.items():
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if name not in values and not optional:
            raise ConfigurationError(f"{what}: field {name!r} is missing")
    return cls(
        **{
            name: value
            if type(value) in _taken_as_they_are(hints[name])  # most are, and progress is read often
            else _read(hints[name], f"{what}: field {name!r}", value, shown=fields[name].repr)
            for name, value in values.items()
        }
    )


def write_settings(settings: Any) -> dict[str, Any]:
    """Return a settings dataclass as the JSON object that `read_settings` reads, secrets included."""
    return {field.name: _write(getattr(settings, field.name)) for field in dataclasses.fields(settings)}


@functools.cache
def _fields(cls: type) -> Mapping[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls)}


@functools.cache
def _hints(cls: type) -> Mapping[str, Any]:
    """Return the types of a class's fields; working them out takes longer than all the rest."""
    return typing.get_type_hints(cls)


@functools.cache
def _choices(wanted: Any) -> tuple[Any, ...]:
    return typing.get_args(wanted) if typing.get_origin(wanted) in (typing.Union, types.UnionType) else (wanted,)


@functools.cache
def _taken_as_they_are(wanted: Any) -> frozenset[type]:
    """Return the types of values for which there is nothing to make or to check; text may have to be an instant."""
    plain = {bool, int, float, type(None)} | (set() if datetime in _choices(wanted) else {str})
    return frozenset(plain.intersection(c for c in _choices(wanted) if isinstance(c, type)))


def _read(wanted: Any, where: str, value: Any, *, shown: bool) -> Any:
    choices = _choices(wanted)
    if value is None and type(None) in choices:
        return None
    for choice in choices:
        if dataclasses.is_dataclass(choice) and isinstance(choice, type):
            return read_settings(choice, where, value)
        if typing.get_origin(choice) is dict and isinstance(value, dict):
            return value
        if typing.get_origin(choice) is tuple and isinstance(value, list):
            if typing.get_origin(typing.get_args(choice)[0]) is dict and all(type(item) is dict for item in value):
                return tuple(value)  # a partition may have hundreds of them, and is read often
            of = typing.get_args(choice)[0]
            taken = _taken_as_they_are(of)
            return tuple(item if type(item) in taken else _read(of, where, item, shown=shown) for item in value)
        if choice is datetime and isinstance(value, str):
            try:
                return parse_instant(value)
            except ValueError as error:
                raise ConfigurationError(
                    f"{where} must be an instant such as 2026-01-31T00:00:00.000000Z: {error}"
                ) from None
        if choice is float and type(value) is int:
            return float(value)
        if isinstance(choice, type) and type(value) is choice:
            return value
    names = " or ".join("null" if c is type(None) else NAMES.get(typing.get_origin(c) or c, str(c)) for c in choices)
    got = repr(value) if shown else f"{type(value).__name__}, which may be a secret and is not shown"
    raise ConfigurationError(f"{where} must be {names}; got {got}")


def _write(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return write_settings(value)
    if isinstance(value, tuple):
        return [_write(item) for item in value]
    return format_instant(value) if isinstance(value, datetime) else value


NAMES: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    datetime: "an instant",
    dict: "a JSON object",
}
