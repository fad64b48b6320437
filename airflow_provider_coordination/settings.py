"""Settings: classes whose annotations say what a user may write, and one clear error for every mistake.

msgspec decodes. This module adds checks for unknown names and for instants without a time zone, limits, and readable
errors. A class that users write in DAGs and specs, and jobs read, is `Described`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import threading
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Self, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.field_hints import Hint, hint_of, shown

T = TypeVar("T")

TYPE_NAMES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "datetime": "an instant with a time zone, such as 2026-01-31T00:00:00Z",
    "duration": "an ISO 8601 duration such as PT1H",
    "object": "a JSON object",
    "array": "a list",
    "null": "null",
}
"""Readable names of msgspec's types."""
_CONVERTING = threading.RLock()
NOTHING = (None, "", "None")
"""What means "not given": templates render text, also for None."""
YES_OR_NO = {"true": True, "t": True, "1": True, "yes": True, "false": False, "f": False, "0": False, "no": False}
WEEKS = re.compile(r"([+-]?)P(\d+(?:\.\d+)?)W")
NOW = "start"
"""The text for the present instant."""


def text_value(value: Any) -> str | None:
    """Return the text of a value that a user or a template gave; None if it is not given."""
    return None if value in NOTHING else str(value)


def is_template(value: object) -> bool:
    """Return whether a value of a DAG is a template, so that it is known only when a task runs."""
    return isinstance(value, str) and any(mark in value for mark in ("{{", "{%", "{#"))


def is_plain(value: object) -> bool:
    """Return whether a value is the same when its task runs: it contains no template and no result of another task."""
    if isinstance(value, str):
        return not is_template(value)
    if isinstance(value, Mapping):
        return all(is_plain(each) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | date | timedelta)


class FieldError(ConfigurationError):
    """A field has a wrong value.

    :param owner: how the message names what has the field, such as its class.
    :param field: the field's name, as the user writes it.
    :param problem: what is wrong: the rest of the message, with the value and the remedy.
    """

    def __init__(self, owner: str, field: str, problem: str) -> None:
        super().__init__(f"{owner}: field {field!r} {problem}")
        self._owner, self._field, self._problem = owner, field, problem

    @property
    def problem(self) -> str:
        """What is wrong, without what has the field."""
        return self._problem

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what the message is made of."""
        return FieldError, (self._owner, self._field, self._problem)

    def of(self, owner: str, renamed: Mapping[str, str] | None = None) -> FieldError:
        """Return the same error of another description that has the field.

        :param renamed: the names that fields have there, by their names here, as far as they differ.
        """
        return FieldError(owner, (renamed or {}).get(self._field, self._field), self._problem)

    def below(self, owner: str, path: str) -> FieldError:
        """Return the same error of a larger description.

        :param path: the path there of what has the field, such as `reads.s3`.
        """
        return FieldError(owner, f"{path}.{self._field}", self._problem)


CONNECTED: Mapping[str, Any] = {"connected": True}
"""The metadata of a field that is set when connections are resolved: no user writes it."""


def is_connected(field: dataclasses.Field[Any]) -> bool:
    """Return whether a field is set when connections are resolved."""
    return field.metadata == CONNECTED


class Described:
    """A dataclass that a user writes in a DAG or a spec, and that a job reads.

    Users and templates may write text for every value, numbers of seconds for durations, and one text for a list of
    texts. `resolved` returns the object whose values have the types of their fields.
    """

    @property
    def title(self) -> str:
        """How error messages name it."""
        return type(self).__name__

    @property
    def template_fields(self) -> Sequence[str]:
        """The fields that Airflow renders: all that a user writes."""
        cls: Any = type(self)
        return written_fields(cls)

    def resolved(self) -> Self:
        """Return the object with every value converted to its type and checked, once templates are rendered.

        :raises FieldError: naming the class, the field, the value and the remedy.
        """
        resolved: Self = dataclasses.replace(self, **{name: self.converted(name) for name in self.template_fields})  # type: ignore[type-var]
        resolved.check_together()
        return resolved

    def check(self, is_known: Callable[[Any], bool] = lambda value: True) -> None:
        """Check every value that can be checked without a connection.

        :param is_known: returns whether a value is the same when templates are rendered; others are left out.
        :raises FieldError: naming the class, the field, the value and the remedy.
        """
        known = [name for name in self.template_fields if is_known(getattr(self, name))]
        if len(known) == len(self.template_fields):
            self.resolved()
        else:
            for name in known:
                self.converted(name)

    def check_together(self) -> None:
        """Check what the annotations do not say; the values have the types of their fields.

        :raises FieldError: naming the field, the value and the remedy.
        """

    def invalid(self, field: str, problem: str) -> FieldError:
        """Return the error for a field.

        :param problem: what is wrong and the remedy, such as `must be positive`; the value is added.
        """
        return FieldError(self.title, field, f"{problem}; got {self._shown(field, getattr(self, field))}")

    def listed(self, field: str) -> Sequence[str]:
        """Return the texts of a field that holds one text or a list, once templates are rendered."""
        value: Any = getattr(self, field)
        return [value] if isinstance(value, str) else list(value or ())

    def to_mapping(self) -> dict[str, Any]:
        """Return the object as JSON for a job, including secrets."""
        return write_settings(self)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Return the object that `to_mapping` wrote.

        :raises ConfigurationError: naming the class, the field, the value and the remedy.
        """
        found = read_settings(cls, cls.__name__, mapping)
        found.check()
        return found

    def converted(self, name: str) -> Any:
        """Return the value of a field, converted to its type and checked, once templates are rendered."""
        cls: Any = type(self)
        value, hint = getattr(self, name), _hints(cls)[name]
        if isinstance(value, Described):
            try:
                return value.resolved()
            except FieldError as error:
                raise error.below(self.title, name) from None
        if text_value(value) is None:
            return None if None in hint.types else self._default_of(name)
        try:
            prepared = hint.parsed_by.parse(value) if hint.parsed_by is not None else _prepared(value, hint)
        except FieldError as error:
            raise error.of(self.title) from None
        try:
            return _converted(prepared, hint)
        except _WrongValueError as error:
            raise FieldError(self.title, name, f"{error}; got {self._shown(name, error.value)}") from None

    def _shown(self, name: str, value: Any) -> str:
        """Return a value of a field, unless it may be a secret."""
        cls: Any = type(self)
        if _fields(cls)[name].repr:
            return shown(value)
        return f"{type(value).__name__}, which may be a secret and is not shown"

    def _default_of(self, name: str) -> Any:
        cls: Any = type(self)
        if name in _required(cls):
            raise FieldError(self.title, name, "is missing")
        field = _fields(cls)[name]
        return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def check_parsed(described: Any) -> None:
    """Check what a DAG describes when it is parsed: all that has neither templates nor results of other tasks.

    :param described: a source, a sink or other settings, also of a class that does not derive from `Described`.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    with contextlib.suppress(ImportError):  # the job has the library that checks it
        if isinstance(described, Described):
            described.check(is_plain)
        elif hasattr(described, "check"):
            fields: Sequence[str] = getattr(described, "template_fields", ())
            if is_plain([getattr(described, name) for name in fields]):
                described.check()


class _WrongValueError(ValueError):
    """A value is wrong; the text says what it must be.

    :param value: the value, or the wrong item of it.
    """

    def __init__(self, problem: str, value: Any) -> None:
        super().__init__(problem)
        self.value = value


def read_field(owner: str, name: str, value: Any, annotation: Any) -> Any:
    """Return a value that a user wrote, converted to a type and checked.

    :param owner: how error messages name what has the field.
    :param name: the field's name.
    :param value: as a user may write it for a field of a `Described` class.
    :param annotation: the type, with its limits.
    :raises FieldError: naming the field, the value and the remedy.
    """
    hint = hint_of(annotation)
    try:
        return _converted(_prepared(value, hint), hint)
    except _WrongValueError as error:
        raise FieldError(owner, name, f"{error}; got {value!r}") from None


def convert(value: object, to: Any, **options: Any) -> Any:
    """Convert as `msgspec.convert`, in one thread at a time.

    msgspec crashes the process if threads convert to the same class at the same time for the first time.
    """
    import msgspec

    with _CONVERTING:
        return msgspec.convert(value, to, **options)


def _converted(prepared: Any, hint: Hint) -> Any:
    """Return a prepared value, converted to the type that a hint says, and checked."""
    import msgspec  # not at module level: executors only write settings, and have no msgspec

    try:
        converted = convert(prepared, hint.annotation, strict=False)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        wanted = in_words([name for name in expected_types(problem) if name != "null"])
        if hint.limits is not None and hint.limits.words is not None:
            wanted = hint.limits.words
        if path.startswith("[...]"):  # the value of any name
            wanted = f"{TYPE_NAMES['object']} whose values are {wanted}"
        elif (number := re.match(r"\[(\d+)\]", path)) is not None:
            prepared = prepared[int(number[1])]
        raise _WrongValueError(f"must be {wanted}", prepared) from None
    if isinstance(converted, datetime) and converted.tzinfo is None:
        raise _WrongValueError("must have a time zone, such as 2026-01-31T00:00:00Z", converted)
    if hint.limits is not None and (wrong := hint.limits.problem(converted)) is not None:
        raise _WrongValueError(wrong, converted)
    return converted


@functools.cache
def written_fields(cls: Any) -> tuple[str, ...]:
    """Return the names of the fields of a `Described` class that a user writes."""
    return tuple(field.name for field in dataclasses.fields(cls) if not is_connected(field))


@functools.cache
def _hints(cls: Any) -> Mapping[str, Hint]:
    """Return what the annotations of a dataclass say, by field."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {name: hint_of(hints[name]) for name in _fields(cls)}


@functools.cache
def _fields(cls: Any) -> Mapping[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls)}


def _prepared(value: Any, hint: Hint) -> Any:
    """Return a value that a user or a template wrote in a form that msgspec converts."""
    if isinstance(value, str):
        if hint.is_listed:
            return [value]
        if bool in hint.types:
            return YES_OR_NO.get(value.strip().lower(), value)
        if timedelta in hint.types:
            return _number(as_days(value))
        if datetime in hint.types:
            return _instant(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return datetime.fromisoformat(value.astimezone(UTC).isoformat())  # msgspec takes no subclass, as of pendulum
    if isinstance(value, Mapping):
        return {name: list(held) if isinstance(held, tuple) else held for name, held in value.items()}
    return list(value) if isinstance(value, tuple | set | frozenset) else value


def as_days(value: Any) -> Any:
    """Return a duration in weeks, such as `P2W`, in days, as msgspec reads no weeks; any other value as it is."""
    weeks = WEEKS.fullmatch(value) if isinstance(value, str) else None
    return value if weeks is None else f"{weeks[1]}P{7 * float(weeks[2]):g}D"


def _number(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def _instant(value: str) -> datetime | str:
    if value == NOW:
        return datetime.now(UTC)
    try:
        instant = datetime.fromisoformat(value)
    except ValueError:
        return value
    return instant if instant.tzinfo is None else instant.astimezone(UTC)


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
        settings: T = convert(values, cls, strict=not lenient)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_error_message(cls, what, values, str(error), strict=not lenient)) from None
    _check_instants(settings, what)
    return settings


def write_settings(settings: Any) -> dict[str, Any]:
    """Return a settings dataclass as the JSON object that `read_settings` reads, secrets included."""
    return {name: _write(getattr(settings, name)) for name in _fields(settings.__class__)}


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


@functools.cache
def _required(cls: type) -> tuple[str, ...]:
    """Return the fields without a default."""
    missing = dataclasses.MISSING
    return tuple(f.name for f in dataclasses.fields(cls) if f.default is missing and f.default_factory is missing)


@functools.cache
def _nested(cls: type) -> Mapping[str, type]:
    """Return the settings class of each field that is one, or a tuple of them."""
    return {
        name: found
        for name, hint in _hints(cls).items()
        for found in hint.types
        if isinstance(found, type) and dataclasses.is_dataclass(found)
    }


@functools.cache
def _instants(cls: type) -> tuple[str, ...]:
    """Return the fields that may be instants."""
    return tuple(name for name, hint in _hints(cls).items() if datetime in hint.types)


def _check_names(cls: Any, what: str, values: Mapping[str, Any]) -> None:
    """Check that a JSON object has the fields of a settings class: msgspec ignores unknown names."""
    known = _fields(cls)
    if unknown := [name for name in values if name not in known]:
        raise ConfigurationError(f"{what}: unknown field {unknown[0]!r}; the known fields are {', '.join(known)}")
    for name in _required(cls):
        if name not in values:
            raise ConfigurationError(f"{what}: field {name!r} is missing")
    for name, of in _nested(cls).items():
        value = values.get(name)
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Mapping):
                _check_names(of, f"{what}: field {name!r}", each)


def _check_instants(settings: Any, what: str) -> None:
    for name in _instants(settings.__class__):
        value = getattr(settings, name)
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ConfigurationError(f"{what}: field {name!r} must have a time zone; got {value.isoformat()!r}")
    for name in _nested(settings.__class__):
        value = getattr(settings, name)
        for each in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(each):
                _check_instants(each, f"{what}: field {name!r}")


def _error_message(cls: Any, what: str, values: Any, message: str, *, strict: bool = False) -> str:
    """Convert a message of msgspec, such as ``Expected `int`, got `str` - at `$.store.port` ``, to a readable one."""
    problem, _, path = message.partition(" - at `$")
    shown = True
    for name, number in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        values = values[int(number) if number else name]
        if name:
            shown = shown and _fields(cls)[name].repr
            what = f"{what}: field {name!r}"
            cls = _nested(cls).get(name)
    if cls is not None and problem.startswith("Expected"):
        return f"{what}: expected a JSON object; got {type(values).__name__}"
    wanted = in_words(expected_types(problem), strict=strict)
    if "[...]" in path:  # the value of any name
        wanted = f"{TYPE_NAMES['object']} whose values are {wanted}"
    got = repr(values) if shown else f"{type(values).__name__}, which may be a secret and is not shown"
    return f"{what} must be {wanted}; got {got}"


def expected_types(problem: str) -> list[str]:
    """Return msgspec's names of the types that its message about a value expects, such as `str` and `null`."""
    if (expected := re.match(r"Expected `([^`]+)`", problem)) is not None:
        return expected[1].split(" | ")
    # such as `Invalid RFC3339 encoded datetime`, or `Duration is out of range`
    return [next((name for name in ("duration", "datetime") if name in problem.lower()), problem)]


def in_words(names: Sequence[str], *, strict: bool = False) -> str:
    """Return msgspec's names of types in words.

    :param strict: whether a duration must not be a number.
    """
    words = " or ".join(TYPE_NAMES.get(name, name) for name in names)
    return words if strict or "duration" not in names else f"{words}, or a number of seconds"
