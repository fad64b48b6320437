"""Values of a spec: how the objects that operators take are made of JSON values, strictly, and written back.

What a field may be is read from its type. Text where a type allows it beside a number, a duration or a truth value is
for templates, which a spec has none of: it is refused. Durations are ISO 8601 or seconds.
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
from airflow_provider_coordination.sources.kinds import imported
from airflow_provider_coordination.spark.job_settings import RoundSettings

T = TypeVar("T")


class Sort(StrEnum):
    """A sort of value, in words for people."""

    TEXT = "text"
    WHOLE = "a whole number"
    NUMBER = "a number"
    YES_OR_NO = "true or false"
    DURATION = "an ISO 8601 duration such as PT1H, or a number of seconds"
    INSTANT = "an instant with a time zone, such as 2026-01-31T00:00:00Z"
    LIST = "a list"
    OBJECT = "an object"
    FUNCTION = "the name of a function, such as my_project.suppliers:find"
    ANYTHING = "anything"


TEMPLATED = ({int}, {float}, {bool}, {timedelta}, {timedelta, float}, {timedelta, int, float})
"""What stands beside text only because a template may give it."""
ISO_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<weeks>\d+(?:\.\d+)?)W)?(?:(?P<days>\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
LOOSE_DURATION = re.compile(
    r"\s*(\d+)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)\s*", re.I
)
WHEN_JOBS_END = "the supervisor decides when a job ends; see 'supervise.task_duration'"
ABSENT: Mapping[type, Mapping[str, str]] = {
    RoundSettings: dict.fromkeys(("until_caught_up", "max_duration", "max_idle_rounds"), WHEN_JOBS_END)
}
"""Fields of classes that a spec does not give, and why."""
ABSENT_OF_READS = {
    "source": "the source is named by the key 'source' at the top of the spec",
    "stop_at": "a job that stops is replaced; bound what is read by 'bounds', and give 'supervise.terminate_when_done'",
}
UNITS = {"m": "PT{}M", "h": "PT{}H", "d": "P{}D", "s": "PT{}S"}
MAX_SHOWN = 200


@dataclass(frozen=True)
class Wanted:
    """One thing that a value may be.

    :param what: its sort.
    :param below: what a list's items, or the values of an object of any names, may be.
    :param cls: the settings class, if it is an object with fields.
    :param keeps_numbers: whether a number that stands for a duration stays one: its class knows what it means.
    """

    what: Sort
    below: tuple[Wanted, ...] = ()
    cls: type | None = None
    keeps_numbers: bool = False


@dataclass(frozen=True)
class Field:
    """A field of a settings class, as a spec has it.

    :param name: its name.
    :param wanted: what it may be; nothing for null alone.
    :param is_required: whether it has to be given.
    :param may_be_null: whether it may be null, which says that it is not given.
    :param default: what it is if it is not given; None if it has to be.
    :param is_secret: whether its value may be a secret.
    """

    name: str
    wanted: tuple[Wanted, ...]
    is_required: bool
    may_be_null: bool
    default: Any
    is_secret: bool


@dataclass(frozen=True)
class NamedFunction:
    """A function that a spec names; its module is imported when it is called.

    :param reference: `module:attribute`.
    """

    reference: str

    def __call__(self, *arguments: Any) -> Any:
        """Call it.

        :raises ConfigurationError: if it cannot be imported.
        """
        return imported(self.reference, "function")(*arguments)


@functools.cache
def fields_of(cls: type) -> Mapping[str, Field]:
    """Return the fields of a settings class that a spec may give, by name."""
    hints = typing.get_type_hints(cls)
    return {
        each.name: _field(each, hints[each.name])
        for each in dataclasses.fields(cls)
        if each.init and not each.name.startswith("_") and each.name not in absent_of(cls)
    }


def absent_of(cls: type) -> Mapping[str, str]:
    """Return the fields of a settings class that a spec does not give, and why."""
    return ABSENT_OF_READS if hasattr(cls, "default_source") else ABSENT.get(cls, {})


def _field(field: dataclasses.Field[Any], hint: Any) -> Field:
    missing = dataclasses.MISSING
    default = field.default_factory() if field.default_factory is not missing else field.default
    members = _members(hint)
    return Field(
        name=field.name,
        wanted=_wanted(hint),
        is_required=default is missing,
        may_be_null=types.NoneType in members,
        default=None if default is missing else default,
        is_secret=not field.repr and Sort.FUNCTION not in {each.what for each in _wanted(hint)},
    )


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the types that a union is of, or the only one."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _wanted(hint: Any) -> tuple[Wanted, ...]:
    members = [each for each in _members(hint) if each is not types.NoneType]
    plain = {each for each in members if isinstance(each, type) and each is not str}
    if str in members and plain in TEMPLATED:
        members.remove(str)
    if timedelta in members:
        return (Wanted(Sort.DURATION, keeps_numbers=float in members or int in members),)
    found: list[Wanted] = []
    for each in members:
        wanted = _one_wanted(each)
        if wanted.what not in {other.what for other in found}:
            found.append(wanted)
    if datetime in members and str in members:  # the class knows its words, and instants
        found = [each for each in found if each.what != Sort.INSTANT]
    return tuple(found)


def _one_wanted(hint: Any) -> Wanted:
    origin = typing.get_origin(hint)
    if hint is Any:
        return Wanted(Sort.ANYTHING)
    if origin is not None and issubclass(origin, Mapping):
        return Wanted(Sort.OBJECT, below=_wanted(typing.get_args(hint)[1]))
    if origin is not None and issubclass(origin, Sequence):
        return Wanted(Sort.LIST, below=_wanted(typing.get_args(hint)[0]))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return Wanted(Sort.OBJECT, cls=hint)
    if getattr(hint, "_is_protocol", False) or origin is collections.abc.Callable:
        return Wanted(Sort.FUNCTION)
    plain = {
        str: Sort.TEXT,
        bool: Sort.YES_OR_NO,
        int: Sort.WHOLE,
        float: Sort.NUMBER,
        Decimal: Sort.NUMBER,
        datetime: Sort.INSTANT,
        date: Sort.TEXT,
    }
    return Wanted(plain[hint])


def read_value(field: Field, path: str, value: Any, nested: Callable[[type, str, Any], Any]) -> Any:
    """Return the value of a field.

    :param path: where it is in the spec, for errors.
    :param value: a JSON value.
    :param nested: makes a settings class of an object.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if value is None:
        if field.may_be_null:
            return None
        raise ConfigurationError(f"spec: field {path!r} has no value; give {_words(field.wanted)}, or leave it out")
    return _read(field.wanted, path, value, nested, is_secret=field.is_secret)


def _read(
    wanted: tuple[Wanted, ...], path: str, value: Any, nested: Callable[[type, str, Any], Any], *, is_secret: bool
) -> Any:
    for each in wanted:
        if _fits(each, value):
            return _made(each, path, value, nested, is_secret=is_secret)
    hint = _hint(wanted, value)
    raise ConfigurationError(
        f"spec: field {path!r} must be {_words(wanted)}; got {_shown(value, is_secret=is_secret)}{hint}"
    )


def _fits(wanted: Wanted, value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match wanted.what:
        case Sort.ANYTHING:
            return True
        case Sort.TEXT | Sort.FUNCTION:
            return isinstance(value, str)
        case Sort.YES_OR_NO:
            return isinstance(value, bool)
        case Sort.WHOLE:
            return is_number and isinstance(value, int)
        case Sort.NUMBER:
            return is_number
        case Sort.LIST:
            return isinstance(value, list | tuple)
        case Sort.OBJECT:
            return isinstance(value, Mapping)
        case Sort.INSTANT:
            return isinstance(value, str | datetime)
        case Sort.DURATION:
            return is_number or isinstance(value, str | timedelta)


def _made(wanted: Wanted, path: str, value: Any, nested: Callable[[type, str, Any], Any], *, is_secret: bool) -> Any:
    if wanted.what == Sort.DURATION:
        return value if wanted.keeps_numbers and not isinstance(value, str) else read_duration(path, value)
    if wanted.what == Sort.INSTANT:
        return read_instant(path, value)
    if wanted.what == Sort.FUNCTION:
        if len([part for part in value.split(":") if part]) != 2:
            raise ConfigurationError(f"spec: field {path!r} must be {Sort.FUNCTION}; got {value!r}")
        return NamedFunction(value)
    if wanted.what == Sort.LIST:
        return tuple(
            _read(wanted.below, f"{path}[{number}]", each, nested, is_secret=is_secret)
            for number, each in enumerate(value)
        )
    if wanted.cls is not None:
        return nested(wanted.cls, path, value)
    if wanted.what == Sort.OBJECT:
        return {
            name: _read(wanted.below, f"{path}.{name}", each, nested, is_secret=is_secret)
            for name, each in value.items()
        }
    return value


def read_duration(path: str, value: Any) -> timedelta:
    """Return a duration, given as ISO 8601 or as a number of seconds.

    :param path: where it is in the spec, for errors.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if isinstance(value, timedelta):
        return value
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return timedelta(seconds=value)
        found = ISO_DURATION.fullmatch(value)
        if found is not None and value.upper().rstrip("T") == value and any(found.group(*UNIT_GROUPS)):
            parts = {name: float(found[name] or 0) for name in UNIT_GROUPS}
            return timedelta(**parts) * (-1 if found["sign"] == "-" else 1)
    except (OverflowError, ValueError):
        raise ConfigurationError(f"spec: field {path!r} is too long a duration; got {value!r}") from None
    except TypeError:
        pass
    raise ConfigurationError(
        f"spec: field {path!r} must be {Sort.DURATION}; got {value!r}{_hint((Wanted(Sort.DURATION),), value)}"
    )


UNIT_GROUPS = ("weeks", "days", "hours", "minutes", "seconds")


def read_instant(path: str, value: Any) -> datetime:
    """Return an instant (aware, UTC), given as ISO 8601 with a time zone.

    :param path: where it is in the spec, for errors.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    try:
        instant = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise ConfigurationError(f"spec: field {path!r} must be {Sort.INSTANT}; got {str(value)!r}")
    return instant.astimezone(UTC)


def written(value: Any) -> Any:
    """Return a value of a settings class as the JSON value that makes it; defaults are left out."""
    return _write(value, is_whole=False)


def written_whole(value: Any) -> Any:
    """Return a value of a settings class as a JSON value, defaults included."""
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


def format_duration(length: timedelta) -> str:
    """Return a duration as ISO 8601, such as `PT1H30M`."""
    sign, length = ("-", -length) if length < timedelta(0) else ("", length)
    minutes, seconds = divmod(length - timedelta(days=length.days), timedelta(minutes=1))
    hours, minutes = divmod(minutes, 60)
    days = f"{length.days}D" if length.days else ""
    second = f"{seconds.total_seconds():f}".rstrip("0").rstrip(".")
    parts = ((f"{hours}H" if hours else ""), (f"{minutes}M" if minutes else ""), (f"{second}S" if seconds else ""))
    time = "".join(parts)
    return f"{sign}P{days}T{time}" if time else f"{sign}P{days}" if days else "PT0S"


def _words(wanted: tuple[Wanted, ...]) -> str:
    return " or ".join(each.what for each in wanted) or "nothing"


def _shown(value: Any, *, is_secret: bool = False) -> str:
    if is_secret:
        return "a value that may be a secret and is not shown"
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _hint(wanted: tuple[Wanted, ...], value: Any) -> str:
    """Return the remedy, where the value shows what was meant."""
    kinds = {each.what for each in wanted}
    if Sort.DURATION in kinds and isinstance(value, str):
        if (loose := LOOSE_DURATION.fullmatch(value)) is not None:
            unit = loose[2].lower()
            if unit.startswith(("ms", "milli")):
                return f": write {int(loose[1]) / 1000:g}, in seconds"
            return f": write {UNITS[unit[0]].format(loose[1])}"
        if re.fullmatch(r"P[\dYMWDTHS.]+", value) and re.search(r"[YM]", value.partition("T")[0]):
            return ": years and months differ in length, write days, such as P30D"
    if isinstance(value, str) and kinds & {Sort.WHOLE, Sort.NUMBER, Sort.YES_OR_NO}:
        return ": write it without quotes" if re.fullmatch(r"[\d.]+|true|false", value) else ""
    if Sort.TEXT in kinds and isinstance(value, int | float):
        return ": write it in quotes"
    return ""
