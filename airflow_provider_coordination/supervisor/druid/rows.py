"""The outcome of each field of a Druid spec: the rows of a translation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from airflow_provider_coordination.field_hints import format_duration


class FieldOutcome(StrEnum):
    """The outcome of a field."""

    COPIED = "copied"
    TRANSLATED = "translated"
    MANUAL = "manual"
    NOT_APPLICABLE = "not applicable"
    REJECTED = "rejected"


class UnsupportedFieldError(Exception):
    """A field cannot be translated. The text gives the reason and the remedy."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """The translation of one field of a spec.

    :param field: its path in Druid's spec, such as `ioConfig.taskCount`.
    :param outcome: the outcome.
    :param target: its new location, a path in the spec or a connection; empty if it has none.
    :param note: an explanation.
    """

    field: str
    outcome: FieldOutcome
    target: str = ""
    note: str = ""

    def to_mapping(self) -> dict[str, str]:
        """Return it as a JSON object."""
        return {"field": self.field, "outcome": self.outcome.value, "target": self.target, "note": self.note}


@dataclass(frozen=True, kw_only=True)
class DruidField:
    """A known field of Druid's spec.

    :param name: its path, such as `ioConfig.taskCount`.
    :param outcome: the outcome.
    :param target: its path in a spec of this package; empty if it has none.
    :param note: an explanation.
    :param value: translates the value, or raises `UnsupportedFieldError`; None for a field whose translation needs more
        than its own value.
    """

    name: str
    outcome: FieldOutcome
    target: str = ""
    note: str = ""
    value: Callable[[Any], Any] | None = None

    @property
    def row(self) -> Row:
        """The row of this field in a translation."""
        return Row(field=self.name, outcome=self.outcome, target=self.target, note=self.note)


def copied(
    name: str, target: str, note: str = "The same.", value: Callable[[Any], Any] = lambda value: value
) -> DruidField:
    """Return a field whose value is copied; text may become the number that it contains."""
    return DruidField(name=name, outcome=FieldOutcome.COPIED, target=target, note=note, value=value)


def translated(name: str, target: str, note: str, value: Callable[[Any], Any] | None = None) -> DruidField:
    """Return a field whose value is expressed differently."""
    return DruidField(name=name, outcome=FieldOutcome.TRANSLATED, target=target, note=note, value=value)


def manual(name: str, target: str, note: str) -> DruidField:
    """Return a field that the user must configure outside of the spec."""
    return DruidField(name=name, outcome=FieldOutcome.MANUAL, target=target, note=note)


def yes_or_no(value: Any) -> bool:
    """Return true or false, which Druid also accepts as text.

    :raises UnsupportedFieldError: if it is neither.
    """
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise UnsupportedFieldError(f"it must be true or false; got {value!r}")
    return value


def whole_number(value: Any) -> int:
    """Return a whole number, which Druid also accepts as text.

    :raises UnsupportedFieldError: if it is none.
    """
    number = numeric(value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise UnsupportedFieldError(f"it must be a whole number; got {value!r}")
    return number


def numeric(value: Any) -> Any:
    """Return the number that a text contains; anything else as it is."""
    if not isinstance(value, str):
        return value
    for number_type in (int, float):
        with suppress(ValueError):
            return number_type(value)
    return value


def milliseconds(value: Any) -> str:
    """Return a number of milliseconds as a duration.

    :raises UnsupportedFieldError: if it is no number.
    """
    number = numeric(value)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise UnsupportedFieldError(f"it must be a number of milliseconds; got {value!r}")
    try:
        return format_duration(timedelta(milliseconds=number))
    except (OverflowError, ValueError):
        raise UnsupportedFieldError(
            f"{value!r} milliseconds are too long for a duration; give a smaller number"
        ) from None


def object_in(what: str, value: Any) -> Mapping[str, Any]:
    """Return an object of a field.

    :raises UnsupportedFieldError: if it is none.
    """
    if not isinstance(value, Mapping):
        raise UnsupportedFieldError(f"{what} must be an object; got {value!r}")
    return value


def list_in(what: str, value: Any) -> list[Any]:
    """Return a list of a field; an empty one if none is given.

    :raises UnsupportedFieldError: if it is no list.
    """
    if not isinstance(value, list | None):
        raise UnsupportedFieldError(f"{what} must be a list; got {value!r}")
    return value or []


def check_keys(what: str, fields: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Check the fields of an object.

    :raises UnsupportedFieldError: if one of them is not known.
    """
    for name in fields:
        if name not in known:
            raise UnsupportedFieldError(
                f"{what} has the unknown field {name!r}; the known fields are {', '.join(known)}"
            )
