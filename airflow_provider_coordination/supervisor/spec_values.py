"""Values of a spec: strict conversion of JSON values to the objects that operators accept, and back.

The permitted values of a field follow from its type. If a type allows text beside a number, a duration or a boolean,
the text is for templates. Specs have no templates, so it is refused. Durations are ISO 8601 or seconds.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.coordination.registry import import_attribute
from airflow_provider_coordination.field_hints import Limits, format_duration, hint_of
from airflow_provider_coordination.settings import is_connected
from airflow_provider_coordination.spark.ingestion import IngestionOptions
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.redaction import SECRET_NAME
from airflow_provider_coordination.stores.redaction import HIDDEN, without_likely_secrets

T = TypeVar("T")


class ValueType(StrEnum):
    """A type of value, as described in error messages."""

    TEXT = "text"
    WHOLE = "a whole number"
    NUMBER = "a number"
    BOOLEAN = "true or false"
    DURATION = "an ISO 8601 duration such as PT1H, or a number of seconds"
    INSTANT = "an instant with a time zone, such as 2026-01-31T00:00:00Z"
    LIST = "a list"
    OBJECT = "an object"
    FUNCTION = "the name of a function, such as my_project.suppliers:find"
    ANYTHING = "anything"


PYTHON_TYPES: Mapping[ValueType, tuple[type, ...]] = {
    ValueType.TEXT: (str,),
    ValueType.FUNCTION: (str,),
    ValueType.BOOLEAN: (bool,),
    ValueType.WHOLE: (int,),
    ValueType.NUMBER: (int, float),
    ValueType.LIST: (list, tuple),
    ValueType.OBJECT: (Mapping,),
    ValueType.INSTANT: (str, datetime),
    ValueType.DURATION: (int, float, str, timedelta),
    ValueType.ANYTHING: (object,),
}
"""The types of the JSON values of each type; true and false are no numbers."""
TEMPLATED = ({int}, {float}, {bool}, {timedelta}, {timedelta, float}, {timedelta, int, float})
"""Types that are combined with text only because of templates."""
ISO_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<weeks>\d+(?:\.\d+)?)W)?(?:(?P<days>\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
LOOSE_DURATION = re.compile(
    r"\s*(\d+)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)\s*", re.I
)
WHEN_JOBS_END = "the supervisor decides when a job ends; see 'supervise.task_duration'"
EXCLUDED: Mapping[type, Mapping[str, str]] = {
    IngestionOptions: {"rejection": "the supervisor decides it; see 'supervise.late_message_rejection_period'"},
    RoundSettings: dict.fromkeys(("until_caught_up", "max_duration", "max_idle_rounds"), WHEN_JOBS_END),
}
"""The fields of classes that are not allowed in a spec, with the reasons."""
EXCLUDED_READS_FIELDS = {
    "source": "the source is named by the key 'source' at the top of the spec",
    "stop_at": "a job that stops is replaced; bound what is read by 'bounds', and give 'supervise.terminate_when_done'",
}
UNITS = {"m": "PT{}M", "h": "PT{}H", "d": "P{}D", "s": "PT{}S"}
MAX_SHOWN = 200


@dataclass(frozen=True)
class ExpectedType:
    """One permitted type of a value.

    :param what: the type.
    :param item_types: what a list's items, or the values of an object of any names, may be.
    :param cls: the settings class, if the value is an object with fields.
    :param keeps_numbers: whether a number that stands for a duration stays one: its class knows what it means.
    """

    what: ValueType
    item_types: tuple[ExpectedType, ...] = ()
    cls: type | None = None
    keeps_numbers: bool = False


@dataclass(frozen=True)
class Field:
    """A field of a settings class in a spec.

    :param name: its name.
    :param expected: what it may be; nothing for null alone.
    :param is_required: whether it must be given.
    :param may_be_null: whether it may be null, which means that it is not given.
    :param default: its default; None if it is required.
    :param is_secret: whether its value may be a secret.
    :param limits: what values may be, beside their type; None for no limits.
    """

    name: str
    expected: tuple[ExpectedType, ...]
    is_required: bool
    may_be_null: bool
    default: Any
    is_secret: bool
    limits: Limits | None = None


@dataclass(frozen=True)
class NamedFunction:
    """A function named in a spec. Its module is imported when it is called.

    :param reference: `module:attribute`.
    """

    reference: str

    def __call__(self, *arguments: Any) -> Any:
        """Call the function.

        :raises ConfigurationError: if the function cannot be imported.
        """
        return import_attribute(self.reference, "function")(*arguments)


@functools.cache
def fields_of(cls: type) -> Mapping[str, Field]:
    """Return the fields of a settings class that are allowed in a spec, by name."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {
        each.name: _field(each, hints[each.name])
        for each in sorted(
            dataclasses.fields(cls), key=lambda each: bool(each.kw_only)
        )  # what is positional comes first
        if each.init
        and not each.name.startswith("_")
        and not is_connected(each)
        and each.name not in excluded_fields(cls)
    }


def excluded_fields(cls: type) -> Mapping[str, str]:
    """Return the fields of a settings class that are not allowed in a spec, with the reasons."""
    return EXCLUDED_READS_FIELDS if hasattr(cls, "default_source") else EXCLUDED.get(cls, {})


def _field(field: dataclasses.Field[Any], hint: Any) -> Field:
    missing = dataclasses.MISSING
    default = field.default_factory() if field.default_factory is not missing else field.default
    members = _members(hint)
    written = hint_of(hint)
    if written.parsed_by is not None and written.parsed_by.written is not None:
        expected = _expected_types(written.parsed_by.written)
    else:
        expected = _expected_types(hint)
    if written.is_listed:
        expected = (ExpectedType(ValueType.TEXT), *expected)
    return Field(
        name=field.name,
        expected=expected,
        is_required=default is missing,
        may_be_null=types.NoneType in members,
        default=None if default is missing else default,
        is_secret=not field.repr and ValueType.FUNCTION not in {each.what for each in expected},
        limits=written.limits,
    )


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself, without what an annotation says beside it."""
    if typing.get_origin(hint) is typing.Annotated:
        return _members(hint.__origin__)
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _expected_types(hint: Any) -> tuple[ExpectedType, ...]:
    members = [each for each in _members(hint) if each is not types.NoneType]
    plain = {each for each in members if isinstance(each, type) and each is not str}
    if str in members and plain in TEMPLATED:
        members.remove(str)
    if timedelta in members:
        return (ExpectedType(ValueType.DURATION, keeps_numbers=float in members or int in members),)
    expected_types: list[ExpectedType] = []
    for each in members:
        expected = _expected_type(each)
        if expected.what not in {other.what for other in expected_types}:
            expected_types.append(expected)
    if datetime in members and str in members:  # the class parses text and instants itself
        expected_types = [each for each in expected_types if each.what != ValueType.INSTANT]
    return tuple(expected_types)


def _expected_type(hint: Any) -> ExpectedType:
    origin = typing.get_origin(hint)
    if hint is Any:
        return ExpectedType(ValueType.ANYTHING)
    if origin is not None and issubclass(origin, Mapping):
        return ExpectedType(ValueType.OBJECT, item_types=_expected_types(typing.get_args(hint)[1]))
    if origin is not None and issubclass(origin, Sequence):
        return ExpectedType(ValueType.LIST, item_types=_expected_types(typing.get_args(hint)[0]))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return ExpectedType(ValueType.OBJECT, cls=hint)
    if getattr(hint, "_is_protocol", False) or origin is collections.abc.Callable:
        return ExpectedType(ValueType.FUNCTION)
    plain = {
        str: ValueType.TEXT,
        bool: ValueType.BOOLEAN,
        int: ValueType.WHOLE,
        float: ValueType.NUMBER,
        Decimal: ValueType.NUMBER,
        datetime: ValueType.INSTANT,
        date: ValueType.TEXT,
    }
    return ExpectedType(plain[hint])


def read_value(field: Field, path: str, value: Any, nested: Callable[[type, str, Any], Any]) -> Any:
    """Return the value of a field.

    :param path: its path in the spec, for errors.
    :param value: a JSON value.
    :param nested: creates a settings class from an object.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if value is None:
        if field.may_be_null:
            return None
        raise ConfigurationError(f"spec: field {path!r} has no value; give {_words(field.expected)}, or omit it")
    return _read(field.expected, path, value, nested, is_secret=field.is_secret)


def _read(
    expected: tuple[ExpectedType, ...],
    path: str,
    value: Any,
    nested: Callable[[type, str, Any], Any],
    *,
    is_secret: bool,
) -> Any:
    for each in expected:
        if _fits(each, value):
            return _made(each, path, value, nested, is_secret=is_secret)
    hint = _hint(expected, value)
    raise ConfigurationError(
        f"spec: field {path!r} must be {_words(expected)}; got {_shown(value, is_secret=is_secret)}{hint}"
    )


def _fits(expected: ExpectedType, value: Any) -> bool:
    if expected.what in (ValueType.ANYTHING, ValueType.BOOLEAN):
        return isinstance(value, PYTHON_TYPES[expected.what])
    return isinstance(value, PYTHON_TYPES[expected.what]) and not isinstance(value, bool)


def _made(
    expected: ExpectedType, path: str, value: Any, nested: Callable[[type, str, Any], Any], *, is_secret: bool
) -> Any:
    if expected.what == ValueType.DURATION:
        return value if expected.keeps_numbers and not isinstance(value, str) else read_duration(path, value)
    if expected.what == ValueType.INSTANT:
        return read_instant(path, value)
    if expected.what == ValueType.FUNCTION:
        if len([part for part in value.split(":") if part]) != 2:
            raise ConfigurationError(f"spec: field {path!r} must be {ValueType.FUNCTION}; got {value!r}")
        return NamedFunction(value)
    if expected.what == ValueType.LIST:
        return tuple(
            _read(expected.item_types, f"{path}[{number}]", each, nested, is_secret=is_secret)
            for number, each in enumerate(value)
        )
    if expected.cls is not None:
        return nested(expected.cls, path, value)
    if expected.what == ValueType.OBJECT:
        return {
            name: _read(expected.item_types, f"{path}.{name}", each, nested, is_secret=is_secret)
            for name, each in value.items()
        }
    return value


def read_duration(path: str, value: Any) -> timedelta:
    """Return a duration, given as ISO 8601 or as a number of seconds.

    :param path: its path in the spec, for errors.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if isinstance(value, timedelta):
        return value
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return timedelta(seconds=value)
        match = ISO_DURATION.fullmatch(value)
        if match is not None and value.upper().rstrip("T") == value and any(match.group(*UNIT_GROUPS)):
            parts = {name: float(match[name] or 0) for name in UNIT_GROUPS}
            return timedelta(**parts) * (-1 if match["sign"] == "-" else 1)
    except (OverflowError, ValueError):
        raise ConfigurationError(f"spec: field {path!r} is a duration that is too long; got {value!r}") from None
    except TypeError:
        pass
    raise ConfigurationError(
        f"spec: field {path!r} must be {ValueType.DURATION}; got {value!r}"
        f"{_hint((ExpectedType(ValueType.DURATION),), value)}"
    )


UNIT_GROUPS = ("weeks", "days", "hours", "minutes", "seconds")


def read_instant(path: str, value: Any) -> datetime:
    """Return an instant (aware, UTC), given as ISO 8601 with a time zone.

    :param path: its path in the spec, for errors.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    try:
        instant = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise ConfigurationError(f"spec: field {path!r} must be {ValueType.INSTANT}; got {str(value)!r}")
    return instant.astimezone(UTC)


def to_json(value: Any) -> Any:
    """Return a value of a settings class as a JSON value without defaults."""
    return _write(value, is_whole=False)


def to_json_with_defaults(value: Any) -> Any:
    """Return a value of a settings class as a JSON value with all defaults."""
    return _write(value, is_whole=True)


def _write(value: Any, *, is_whole: bool) -> Any:
    if isinstance(value, NamedFunction):
        return value.reference
    if dataclasses.is_dataclass(value):
        cls: Any = value.__class__
        return {
            name: _write(getattr(value, name), is_whole=is_whole)
            for name, field in fields_of(cls).items()
            if is_whole or field.is_required or getattr(value, name) != field.default
        }
    if isinstance(value, Mapping):
        return {name: _write(each, is_whole=is_whole) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_write(each, is_whole=is_whole) for each in value]
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, datetime):
        return format_instant(value.astimezone(UTC))
    if isinstance(value, date | Decimal):
        return str(value)
    if callable(value):
        return f"{value.__module__}:{value.__qualname__}"
    return value


def _words(expected: tuple[ExpectedType, ...]) -> str:
    return " or ".join(each.what for each in expected) or "nothing"


def _shown(value: Any, *, is_secret: bool = False) -> str:
    if is_secret:
        return "a value that may be a secret, so it is not shown"
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _hint(expected: tuple[ExpectedType, ...], value: Any) -> str:
    """Return the remedy if the value shows what was meant; otherwise an empty string."""
    kinds = {each.what for each in expected}
    if ValueType.DURATION in kinds and isinstance(value, str):
        if (loose := LOOSE_DURATION.fullmatch(value)) is not None:
            unit = loose[2].lower()
            if unit.startswith(("ms", "milli")):
                return f": write {int(loose[1]) / 1000:g}, in seconds"
            return f": write {UNITS[unit[0]].format(loose[1])}"
        if re.fullmatch(r"P[\dYMWDTHS.]+", value) and re.search(r"[YM]", value.partition("T")[0]):
            return ": years and months vary in length; write days, such as P30D"
    if isinstance(value, str) and kinds & {ValueType.WHOLE, ValueType.NUMBER, ValueType.BOOLEAN}:
        return ": write it without quotes" if re.fullmatch(r"[\d.]+|true|false", value) else ""
    if ValueType.TEXT in kinds and isinstance(value, int | float):
        return ": write it in quotes"
    return ""


def without_secrets(value: Any, *, is_secret: bool = False) -> Any:
    """Return a JSON value without secrets: values with the name of a secret, and text that looks like one.

    :param is_secret: whether the value has the name of a secret.
    """
    if isinstance(value, dict):
        return {
            name: without_secrets(each, is_secret=is_secret or bool(SECRET_NAME.search(str(name))))
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(each, is_secret=is_secret) for each in value]
    if isinstance(value, str):
        return HIDDEN if is_secret else without_likely_secrets(value)
    return value
