"""Settings as JSON objects: one way to read them, with one clear error for every mistake.

msgspec decodes. This module adds checks for unknown names and for instants without a time zone, and readable errors.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import typing
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import format_instant

T = TypeVar("T")

TYPE_NAMES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "datetime": "an instant such as 2026-01-31T00:00:00.000000Z",
    "duration": "a duration",
    "object": "a JSON object",
    "array": "a list",
    "null": "null",
}
"""Readable names of msgspec's types."""


def read_settings(cls: type[T], what: str, values: object, *, lenient: bool = False) -> T:
    """Create a settings dataclass from a JSON object.

    Fields may be text, numbers, booleans, instants, durations (ISO 8601), other settings classes, JSON objects, tuples
    of one of these, and any of these or None. A whole number is accepted for a fraction.

    :param cls: the dataclass.
    :param what: the name of the settings in errors, such as `store settings`.
    :param values: the JSON object.
    :param lenient: also accept text for numbers, booleans and durations, and numbers for durations, in seconds. Users
        and templates write such values.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    import msgspec  # not at module level: executors only write settings, and have no msgspec

    if not isinstance(values, Mapping):
        raise ConfigurationError(f"{what}: expected a JSON object; got {type(values).__name__}")
    _check_names(cls, what, values)
    try:
        settings = msgspec.convert(values, cls, strict=not lenient)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_error_message(cls, what, values, str(error))) from None
    _check_instants(settings, what)
    return settings


def write_settings(settings: Any) -> dict[str, Any]:
    """Return a settings dataclass as the JSON object that `read_settings` reads, secrets included."""
    return {name: _write(getattr(settings, name)) for name in _field_names(settings.__class__)}


@functools.cache
def _field_names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


_JSON_TYPES = frozenset({type(None), str, int, float, bool, dict})


def _write(value: Any) -> Any:
    if value.__class__ in _JSON_TYPES or isinstance(value, str | int | float):
        return value
    if dataclasses.is_dataclass(value):
        return write_settings(value)
    if isinstance(value, tuple):
        return [_write(item) for item in value]
    if isinstance(value, timedelta):
        return f"PT{value.total_seconds():f}S"
    return format_instant(value) if isinstance(value, datetime) else value


@dataclasses.dataclass(frozen=True)
class _Shape:
    """The parts of a settings class that msgspec does not check.

    :param names: its fields.
    :param required: the fields without a default.
    :param nested: the settings class of each field that is one, or a tuple of them, by name.
    :param instants: the fields that may be instants.
    """

    names: frozenset[str]
    required: tuple[str, ...]
    nested: Mapping[str, type]
    instants: tuple[str, ...]


@functools.cache
def _shape(cls: type) -> _Shape:
    fields, hints = dataclasses.fields(cls), typing.get_type_hints(cls)
    missing = dataclasses.MISSING
    nested = {f.name: found for f in fields for found in _types_in(hints[f.name]) if dataclasses.is_dataclass(found)}
    return _Shape(
        names=frozenset(f.name for f in fields),
        required=tuple(f.name for f in fields if f.default is missing and f.default_factory is missing),
        nested=nested,
        instants=tuple(f.name for f in fields if datetime in _types_in(hints[f.name])),
    )


def _types_in(hint: Any) -> Iterator[type]:
    """Yield the classes of a type: itself, the members of a union, or the item types of a tuple."""
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        yield hint
    elif typing.get_origin(hint) is not dict:
        for argument in typing.get_args(hint):
            yield from _types_in(argument)


def _check_names(cls: Any, what: str, values: Mapping[str, Any]) -> None:
    """Check that a JSON object has the fields of a settings class: msgspec ignores unknown names."""
    shape = _shape(cls)
    if unknown := [name for name in values if name not in shape.names]:
        known = ", ".join(field.name for field in dataclasses.fields(cls))
        raise ConfigurationError(f"{what}: unknown field {unknown[0]!r}; the known fields are {known}")
    for name in shape.required:
        if name not in values:
            raise ConfigurationError(f"{what}: field {name!r} is missing")
    for name, of in shape.nested.items():
        value = values.get(name)
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Mapping):
                _check_names(of, f"{what}: field {name!r}", each)


def _check_instants(settings: Any, what: str) -> None:
    shape = _shape(settings.__class__)
    for name in shape.instants:
        value = getattr(settings, name)
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ConfigurationError(f"{what}: field {name!r} must have a time zone; got {value.isoformat()!r}")
    for name in shape.nested:
        value = getattr(settings, name)
        for each in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(each):
                _check_instants(each, f"{what}: field {name!r}")


def _error_message(cls: Any, what: str, values: Any, message: str) -> str:
    """Convert a message of msgspec, such as ``Expected `int`, got `str` - at `$.store.port` ``, to a readable one."""
    problem, _, path = message.partition(" - at `$")
    shown = True
    for name, number in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        values = values[int(number) if number else name]
        if name:
            (field,) = (f for f in dataclasses.fields(cls) if f.name == name)
            shown = shown and field.repr
            what = f"{what}: field {name!r}"
            cls = _shape(cls).nested.get(name)
    expected = re.match(r"Expected `([^`]+)`", problem)
    if cls is not None and expected is not None:
        return f"{what}: expected a JSON object; got {type(values).__name__}"
    if expected is not None:
        wanted = " or ".join(TYPE_NAMES.get(name, name) for name in expected[1].split(" | "))
    else:  # such as `Invalid RFC3339 encoded datetime`
        wanted = TYPE_NAMES.get(problem.rpartition(" ")[2], problem)
    got = repr(values) if shown else f"{type(values).__name__}, which may be a secret and is not shown"
    return f"{what} must be {wanted}; got {got}"
