"""Values of a spec: strict conversion of JSON values to the objects that operators accept, and back.

The annotation of a field says which values are permitted. Unlike in a DAG, text stands neither for a number nor for a
boolean. Durations are ISO 8601 or seconds.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.coordination.registry import import_attribute
from airflow_provider_coordination.field_hints import Hint, Limits, format_duration, hint_of
from airflow_provider_coordination.settings import (
    TYPE_NAMES,
    as_days,
    convert,
    expected_types,
    in_words,
    is_connected,
)
from airflow_provider_coordination.spark.ingestion import IngestionOptions
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.redaction import SECRET_NAME
from airflow_provider_coordination.stores.redaction import HIDDEN, without_likely_secrets

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
FUNCTION = Limits(pattern="^[^:]+:[^:]+$", words="the name of a function, such as my_project.suppliers:find")
"""What the values of a field are whose type is a function."""


@dataclass(frozen=True)
class Field:
    """A field of a settings class in a spec.

    :param name: its name.
    :param hint: what its annotation says; null means that it is not given.
    :param written: the type of what a spec has, as msgspec reads it.
    :param settings: the class, if the value is an object with fields of its own.
    :param is_required: whether it must be given.
    :param default: its default; None if it is required.
    :param is_secret: whether its value may be a secret.
    :param limits: what values may be, beside their type; None for no limits.
    """

    name: str
    hint: Hint
    written: Any
    settings: type | None
    is_required: bool
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
        return import_attribute(self.reference, f"function {self.reference!r}")(*arguments)


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


def _field(field: dataclasses.Field[Any], annotation: Any) -> Field:
    missing = dataclasses.MISSING
    default = field.default_factory() if field.default_factory is not missing else field.default
    hint = hint_of(annotation)
    is_function = any(getattr(each, "_is_protocol", False) or each is collections.abc.Callable for each in hint.types)
    parsed = hint.parsed_by is not None and hint.parsed_by.written
    return Field(
        name=field.name,
        hint=hint,
        written=str if is_function else parsed or (str | annotation if hint.is_listed else annotation),
        settings=None if parsed else _settings_in(hint),
        is_required=default is missing,
        default=None if default is missing else default,
        is_secret=not field.repr and not is_function,
        limits=FUNCTION if is_function else hint.limits,
    )


def _settings_in(hint: Hint) -> type | None:
    return next((each for each in hint.types if isinstance(each, type) and dataclasses.is_dataclass(each)), None)


def read_value(field: Field, path: str, value: Any, nested: Callable[[type, str, Any], Any]) -> Any:
    """Return the value of a field.

    :param path: its path in the spec, for errors.
    :param value: a JSON value.
    :param nested: creates a settings class from an object.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if value is None and None in field.hint.types:
        return None
    if value is not None and field.settings is not None:
        return nested(field.settings, path, value)
    if field.limits is FUNCTION:
        return _function(path, value)
    is_duration = timedelta in field.hint.types
    try:
        read = convert(
            as_days(value) if is_duration else value,
            field.written,
            strict=not is_duration or isinstance(value, str),  # not strictly, a number is read as seconds
        )
    except msgspec.ValidationError as error:
        raise _wrong_value(field, path, value, str(error)) from None
    if not isinstance(read, datetime):
        return read
    if read.tzinfo is None:
        raise ConfigurationError(f"spec: field {path!r} must be {TYPE_NAMES['datetime']}; got {read.isoformat()!r}")
    return read.astimezone(UTC)


def _function(path: str, value: Any) -> NamedFunction:
    if not isinstance(value, str) or FUNCTION.problem(value) is not None:
        raise ConfigurationError(f"spec: field {path!r} must be {FUNCTION.words}; got {value!r}")
    return NamedFunction(value)


def _wrong_value(field: Field, path: str, value: Any, message: str) -> ConfigurationError:
    """Return the error for a value that msgspec refuses with a message."""
    problem, _, where = message.partition(" - at `$")
    names = [name for name in expected_types(problem) if name != "null"]
    wanted = in_words(names)
    if value is None:
        return ConfigurationError(f"spec: field {path!r} has no value; give {wanted}, or omit it")
    if (number := re.match(r"\[(\d+)\]", where)) is not None:
        path, value = f"{path}{number[0]}", value[int(number[1])]
    elif where.startswith("[...]"):  # msgspec does not say which name has the value
        name, value = next(item for item in value.items() if not _fits(field, dict([item])))
        path = f"{path}.{name}"
    shown = "a value that may be a secret, so it is not shown" if field.is_secret else _shown(value)
    return ConfigurationError(f"spec: field {path!r} must be {wanted}; got {shown}{_remedy(names, value)}")


def _fits(field: Field, value: Any) -> bool:
    try:
        convert(value, field.written)
    except msgspec.ValidationError:
        return False
    return True


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


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _remedy(names: Sequence[str], value: Any) -> str:
    """Return the remedy if the value shows what was meant; otherwise an empty string.

    :param names: msgspec's names of the types that are expected.
    """
    if "duration" in names and isinstance(value, str):
        if (loose := LOOSE_DURATION.fullmatch(value)) is not None:
            unit = loose[2].lower()
            if unit.startswith(("ms", "milli")):
                return f": write {int(loose[1]) / 1000:g}, in seconds"
            return f": write {UNITS[unit[0]].format(loose[1])}"
        if re.fullmatch(r"P[\dYMWDTHS.]+", value) and re.search(r"[YM]", value.partition("T")[0]):
            return ": years and months vary in length; write days, such as P30D"
    if isinstance(value, str) and {"int", "float", "bool"} & set(names):
        return ": write it without quotes" if re.fullmatch(r"[\d.]+|true|false", value) else ""
    return ": write it in quotes" if "str" in names and isinstance(value, int | float) else ""


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
