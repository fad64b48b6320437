"""What the annotation of a field says beside its type: limits of values, and how values are read and shown."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What a field's values may be, beside their type; part of its annotation.

    :param minimum: the least value.
    :param above: what every value is greater than.
    :param maximum: the greatest value.
    :param one_of: the only values.
    :param min_items: the least number of items of a list, none of which may be empty then.
    :param is_unique: whether the items of a list must differ.
    :param pattern: the regular expression that every text matches as a whole.
    :param words: what a value must be, with the remedy; None to derive it from the other limits.
    """

    minimum: Any = None
    above: Any = None
    maximum: Any = None
    one_of: Sequence[str] = ()
    min_items: int = 0
    is_unique: bool = False
    pattern: str | None = None
    words: str | None = None

    def problem(self, value: Any) -> str | None:
        """Return what is wrong with a value; None if nothing is."""
        if self.one_of and value not in self.one_of:
            return f"must be one of {', '.join(self.one_of)}"
        if self.min_items and len(value) < self.min_items:
            return "must not be empty"
        if self.min_items and not all(value):
            return "must not contain an empty text"
        if self.is_unique and len(set(value)) < len(value):
            return "must name each value once"
        if self._is_within(value) and (self.pattern is None or re.fullmatch(self.pattern, value)):
            return None
        return f"must be {self.words or self._range}"

    def _is_within(self, value: Any) -> bool:
        if isinstance(value, float) and not math.isfinite(value):
            return self.minimum is None and self.above is None and self.maximum is None
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
        )

    @property
    def _range(self) -> str:
        if self.above is not None:
            least = "positive" if not self.above else f"greater than {shown(self.above)}"
        elif self.minimum is not None and self.maximum is not None:
            return f"from {shown(self.minimum)} to {shown(self.maximum)}"
        else:
            least = "" if self.minimum is None else f"at least {shown(self.minimum)}"
        most = "" if self.maximum is None else f"at most {shown(self.maximum)}"
        return " and ".join(filter(None, (least, most)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParsedBy:
    """How the values of a field are read if its type alone does not say it; part of its annotation.

    :param parse: returns the value that is meant by what a user or a template wrote.
    :param written: the type of what a user writes in a spec; None for the type of the field.
    """

    parse: Callable[[Any], Any]
    written: Any = None


ONE_OR_SEVERAL = "one or several"
Texts = Annotated[tuple[str, ...], ONE_OR_SEVERAL]
"""A list of texts; one text may be given as it is."""


@dataclasses.dataclass(frozen=True)
class Hint:
    """What the annotation of a field says.

    :param annotation: the annotation.
    :param types: the classes of values, and of the items of lists; None for null.
    :param limits: what values may be beside that; None for no limits.
    :param is_listed: whether one text may be given in place of a list of texts.
    :param parsed_by: how values are read; None if the annotation says it.
    """

    annotation: Any
    types: frozenset[Any]
    limits: Limits | None
    is_listed: bool
    parsed_by: ParsedBy | None


def hint_of(annotation: Any) -> Hint:
    """Return what an annotation says."""
    extras, found = [], set()
    for part in _parts_of(annotation):
        if typing.get_origin(part) is Annotated:
            extras += part.__metadata__
        else:
            found.add(None if part is types.NoneType else typing.get_origin(part) or part)
    limits = next((extra for extra in extras if isinstance(extra, Limits)), None)
    parsed_by = next((extra for extra in extras if isinstance(extra, ParsedBy)), None)
    return Hint(annotation, frozenset(found), limits, ONE_OR_SEVERAL in extras, parsed_by)


def _parts_of(annotation: Any) -> Iterator[Any]:
    """Yield an annotation that has extras, the members of a union, and a list with the types of its items."""
    origin = typing.get_origin(annotation)
    if origin in (Annotated, tuple, list):
        yield annotation
    if origin in (Annotated, tuple, list, typing.Union, types.UnionType):
        for part in (annotation.__origin__,) if origin is Annotated else typing.get_args(annotation):
            yield from _parts_of(part)
    else:
        yield annotation


def shown(value: Any) -> str:
    """Return a value as error messages show it: durations and instants as ISO 8601."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, datetime):
        return repr(value.isoformat())
    return repr(list(value) if isinstance(value, tuple) else value)


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
