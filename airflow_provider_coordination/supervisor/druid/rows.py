"""What becomes of a field of a Druid spec: the rows of a translation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from airflow_provider_coordination.supervisor.spec_values import format_duration


class Verdict(StrEnum):
    """What becomes of a field."""

    TAKEN_OVER = "taken over"
    TRANSLATED = "translated"
    BY_HAND = "by hand"
    WITHOUT_MEANING = "without meaning here"
    REFUSED = "refused"


class RefusedError(Exception):
    """A field that this package cannot do: the text says why, and what to do instead."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of one field of a spec.

    :param field: its place in Druid's spec, such as `ioConfig.taskCount`.
    :param verdict: what became of it.
    :param place: where it is now: a place in the spec, or in a connection; empty if it is nowhere.
    :param note: how, or why.
    """

    field: str
    verdict: Verdict
    place: str = ""
    note: str = ""

    def to_mapping(self) -> dict[str, str]:
        """Return it as a JSON object."""
        return {"field": self.field, "verdict": self.verdict.value, "place": self.place, "note": self.note}


@dataclass(frozen=True, kw_only=True)
class DruidField:
    """A field of Druid that this package knows.

    :param name: its place, such as `ioConfig.taskCount`.
    :param verdict: what becomes of it.
    :param place: where it is in a spec of this package; empty if it is nowhere.
    :param note: how, or why.
    :param value: makes the value for that place; raises `RefusedError`. None for a field that needs more than its
        own value.
    """

    name: str
    verdict: Verdict
    place: str = ""
    note: str = ""
    value: Callable[[Any], Any] | None = None

    @property
    def row(self) -> Row:
        """What became of it, as a row."""
        return Row(field=self.name, verdict=self.verdict, place=self.place, note=self.note)


def taken_over(name: str, place: str, note: str = "The same.") -> DruidField:
    """Return a field that is taken over as it is."""
    return DruidField(name=name, verdict=Verdict.TAKEN_OVER, place=place, note=note, value=lambda value: value)


def translated(name: str, place: str, note: str, value: Callable[[Any], Any] | None = None) -> DruidField:
    """Return a field that is said otherwise."""
    return DruidField(name=name, verdict=Verdict.TRANSLATED, place=place, note=note, value=value)


def by_hand(name: str, place: str, note: str) -> DruidField:
    """Return a field that a person says elsewhere than in a spec."""
    return DruidField(name=name, verdict=Verdict.BY_HAND, place=place, note=note)


def without_meaning(name: str, note: str) -> DruidField:
    """Return a field that says nothing here."""
    return DruidField(name=name, verdict=Verdict.WITHOUT_MEANING, note=note)


def by_name(fields: tuple[DruidField, ...]) -> Mapping[str, DruidField]:
    """Return fields by their names."""
    return {field.name: field for field in fields}


def milliseconds(value: Any) -> str:
    """Return a number of milliseconds as a duration.

    :raises RefusedError: if it is no number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedError(f"it must be a number of milliseconds; got {value!r}")
    try:
        return format_duration(timedelta(milliseconds=value))
    except OverflowError:
        raise RefusedError(f"{value!r} milliseconds are too long; give what fits a duration") from None
