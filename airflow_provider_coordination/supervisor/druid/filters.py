"""Translation of Druid's filters into predicates of Spark SQL."""

from __future__ import annotations

import calendar
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.supervisor.druid.rows import UnsupportedFieldError

TIME = "__time"
NUMERIC = frozenset({"BIGINT", "DOUBLE", "FLOAT"})
MAX_DEPTH = 20
PERIOD = re.compile(r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
FUNCTION = "write it as a function and name it in 'transform'"


class Filters:
    """Translates filters into predicates over the columns of a schema.

    :param columns: the type of each column, by name.
    :param names: the columns that have another name in Druid, by that name, such as `__time`.
    """

    def __init__(self, columns: Mapping[str, str], names: Mapping[str, str]) -> None:
        self._columns = columns
        self._names = names

    def predicate(self, spec: Any, depth: int = 0) -> str:
        """Return a filter as a predicate.

        :raises UnsupportedFieldError: if the filter cannot be translated.
        """
        if not isinstance(spec, Mapping) or not isinstance(spec.get("type"), str):
            raise UnsupportedFieldError(f"a filter must be an object with a 'type'; got {spec!r}")
        if depth > MAX_DEPTH:
            raise UnsupportedFieldError(f"filters are nested more than {MAX_DEPTH} levels deep; {FUNCTION}")
        kind: str = spec["type"]
        if spec.get("extractionFn") is not None:
            raise UnsupportedFieldError(f"filter {kind!r} has an 'extractionFn'; {FUNCTION}")
        writers = self._writers
        if kind in ("and", "or"):
            return self._joined(kind.upper(), spec, depth)
        if kind == "not":
            return f"NOT ({self.predicate(spec.get('field'), depth + 1)})"
        if kind in ("true", "false"):
            return kind.upper()
        if kind not in writers:
            raise UnsupportedFieldError(f"filters of type {kind!r} cannot be translated; {FUNCTION}")
        return writers[kind](spec)

    @property
    def _writers(self) -> Mapping[str, Callable[[Mapping[str, Any]], str]]:
        return {
            "selector": lambda given: self._equals(_text(given, "dimension"), given.get("value")),
            "equals": lambda given: self._equals(_text(given, "column"), given.get("matchValue")),
            "null": lambda given: f"{self._column(_text(given, 'column'))} IS NULL",
            "in": lambda given: self._among(_text(given, "dimension"), given.get("values")),
            "inType": lambda given: self._among(_text(given, "column"), given.get("sortedValues", given.get("values"))),
            "bound": self._bound,
            "range": self._range,
            "interval": self._interval,
            "like": self._like,
            "regex": lambda given: (
                f"{self._as_text(_text(given, 'dimension'))} RLIKE {quoted(_text(given, 'pattern'))}"
            ),
            "search": self._search,
            "columnComparison": self._same,
        }

    def _joined(self, word: str, spec: Mapping[str, Any], depth: int) -> str:
        fields = spec.get("fields")
        if not isinstance(fields, list) or not fields:
            raise UnsupportedFieldError(f"filter {word.lower()!r} must have 'fields'; got {fields!r}")
        return "(" + f" {word} ".join(self.predicate(each, depth + 1) for each in fields) + ")"

    def _equals(self, name: str, value: Any) -> str:
        # Before version 28, Druid treated an empty string as null. Now it distinguishes them, as SQL does.
        return (
            f"{self._column(name)} IS NULL" if value is None else f"{self._column(name)} = {self._literal(name, value)}"
        )

    def _among(self, name: str, values: Any) -> str:
        if not isinstance(values, list) or not values:
            raise UnsupportedFieldError(f"filter on {name!r} must have a list of values; got {values!r}")
        given = [self._literal(name, value) for value in values if value is not None]
        parts = [f"{self._column(name)} IN ({', '.join(given)})"] if given else []
        if None in values:
            parts.append(f"{self._column(name)} IS NULL")
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"

    def _bound(self, spec: Mapping[str, Any]) -> str:
        name, ordering = _text(spec, "dimension"), spec.get("ordering", "lexicographic")
        match ordering:
            case "numeric":
                is_numeric = self._type(name) in NUMERIC
                left = self._column(name) if is_numeric else f"try_cast({self._column(name)} AS DOUBLE)"
                write: Callable[[Any], str] = _number
            case "lexicographic":
                left, write = self._as_text(name), lambda value: quoted(str(value))
            case "strlen":
                left, write = f"length({self._as_text(name)})", lambda value: f"length({quoted(str(value))})"
            case _:
                raise UnsupportedFieldError(f"filter 'bound' on {name!r} has the ordering {ordering!r}; {FUNCTION}")
        return _between(left, spec, write, is_open=("lowerStrict", "upperStrict"))

    def _range(self, spec: Mapping[str, Any]) -> str:
        name = _text(spec, "column")
        return _between(
            self._column(name), spec, lambda value: self._literal(name, value), is_open=("lowerOpen", "upperOpen")
        )

    def _interval(self, spec: Mapping[str, Any]) -> str:
        name, intervals = _text(spec, "dimension"), spec.get("intervals")
        if not isinstance(intervals, list) or not intervals:
            raise UnsupportedFieldError(f"filter 'interval' on {name!r} must have 'intervals'; got {intervals!r}")
        parts = []
        for interval in intervals:
            start, end = _ends(name, str(interval))
            parts.append(
                f"({self._column(name)} >= {self._instant(name, start)} AND {self._column(name)} < "
                f"{self._instant(name, end)})"
            )
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"

    def _like(self, spec: Mapping[str, Any]) -> str:
        name, pattern, escape = _text(spec, "dimension"), _text(spec, "pattern"), spec.get("escape")
        if escape is not None and (not isinstance(escape, str) or len(escape) != 1):
            raise UnsupportedFieldError(f"filter 'like' on {name!r}: 'escape' must be one character; got {escape!r}")
        if escape is None:  # Spark has a default escape character
            return f"{self._as_text(name)} LIKE {quoted(pattern.replace(chr(92), chr(92) * 2))}"
        return f"{self._as_text(name)} LIKE {quoted(pattern)} ESCAPE {quoted(escape)}"

    def _search(self, spec: Mapping[str, Any]) -> str:
        name, query = _text(spec, "dimension"), spec.get("query")
        query = query if isinstance(query, Mapping) else {}
        wanted: Any
        match query.get("type"):
            case "insensitive_contains":
                wanted, is_sensitive = [query.get("value")], False
            case "contains":
                wanted, is_sensitive = (
                    [query.get("value")],
                    query.get("caseSensitive", query.get("case_sensitive", False)),
                )
            case "fragment":
                wanted, is_sensitive = query.get("values"), query.get("caseSensitive", False)
            case other:
                raise UnsupportedFieldError(f"filter 'search' on {name!r} has a query of type {other!r}; {FUNCTION}")
        texts = [each for each in wanted if isinstance(each, str)] if isinstance(wanted, list) else []
        if not texts or texts != wanted:
            raise UnsupportedFieldError(f"filter 'search' on {name!r} must have strings to search for; got {wanted!r}")
        column = self._as_text(name)
        parts = [
            f"contains({column}, {quoted(each)})"
            if is_sensitive
            else f"contains(lower({column}), {quoted(each.lower())})"
            for each in texts
        ]
        return parts[0] if len(parts) == 1 else f"({' AND '.join(parts)})"

    def _same(self, spec: Mapping[str, Any]) -> str:
        names = spec.get("dimensions")
        if not isinstance(names, list) or len(names) < 2 or not all(isinstance(name, str) for name in names):
            raise UnsupportedFieldError(f"filter 'columnComparison' must name columns in 'dimensions'; got {names!r}")
        first, *others = map(self._as_text, names)
        return "(" + " AND ".join(f"{first} <=> {other}" for other in others) + ")"

    # Columns and values

    def _name(self, name: str) -> str:
        return self._names.get(name, name)

    def _type(self, name: str) -> str:
        return self._columns.get(self._name(name), "STRING")

    def _column(self, name: str) -> str:
        return identifier(self._name(name))

    def _as_text(self, name: str) -> str:
        return self._column(name) if self._type(name) == "STRING" else f"CAST({self._column(name)} AS STRING)"

    def _literal(self, name: str, value: Any) -> str:
        """Return a value as a literal to compare a column with."""
        if name == TIME or self._type(name) == "TIMESTAMP":
            return self._instant(name, value)
        if self._type(name) in NUMERIC:
            return _number(value)
        if isinstance(value, bool):
            return quoted(str(value).lower())
        if not isinstance(value, str | int | float):
            raise UnsupportedFieldError(f"filter on {name!r} compares with {value!r}; {FUNCTION}")
        return quoted(str(value))

    def _instant(self, name: str, value: Any) -> str:
        instant = _as_instant(name, value)
        if self._type(name) == "BIGINT":
            return str(int(instant.timestamp() * 1000))
        if self._type(name) != "TIMESTAMP":
            raise UnsupportedFieldError(f"filter on {name!r} compares a string with an instant; {FUNCTION}")
        return literal(instant)


def columns_in(spec: Any) -> Iterator[str]:
    """Yield the columns that a filter uses, by their names in Druid."""
    if isinstance(spec, list):
        for each in spec:
            yield from columns_in(each)
    if isinstance(spec, Mapping):
        for name in ("dimension", "column"):
            if isinstance(spec.get(name), str):
                yield spec[name]
        if spec.get("type") == "columnComparison" and isinstance(spec.get("dimensions"), list):
            yield from (name for name in spec["dimensions"] if isinstance(name, str))
        for name in ("field", "fields"):
            yield from columns_in(spec.get(name))


def identifier(name: str) -> str:
    """Return a column name quoted for Spark SQL."""
    return f"`{name.replace('`', '``')}`"


def quoted(text: str) -> str:
    """Return a string literal of Spark SQL, with special characters escaped."""
    for plain, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\0", "\\0")):
        text = text.replace(plain, escaped)
    return f"'{text}'"


def _as_instant(name: str, value: Any) -> datetime:
    instant = given_instant(value)
    if instant is None:
        raise UnsupportedFieldError(f"filter on {name!r} compares with {value!r}, which is not an instant")
    return instant


def given_instant(value: Any) -> datetime | None:
    """Return an instant, given as ISO 8601, in UTC without a time zone, or as milliseconds since 1970; None if not."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000, UTC)
        instant = value if isinstance(value, datetime) else datetime.fromisoformat(_padded(str(value)))
    except (ValueError, OverflowError, OSError):
        return None
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def literal(instant: datetime) -> str:
    """Return an instant as a literal of Spark SQL."""
    return f"TIMESTAMP '{format_instant(instant)}'"


def _padded(text: str) -> str:
    """Return a year or a month as its first day; any other text unchanged."""
    return {4: f"{text}-01-01", 7: f"{text}-01"}.get(len(text), text)


def _ends(name: str, interval: str) -> tuple[datetime, datetime]:
    """Return the ends of an interval of ISO 8601: two instants, or an instant and a period."""
    start, _, end = interval.partition("/")
    if start.startswith("P"):
        until = _as_instant(name, end)
        return _shifted(name, until, start, -1), until
    since = _as_instant(name, start)
    return since, _shifted(name, since, end, 1) if end.startswith("P") else _as_instant(name, end)


def _shifted(name: str, instant: datetime, period: str, sign: int) -> datetime:
    """Return an instant, moved by a period of ISO 8601 by the calendar."""
    match = PERIOD.fullmatch(period)
    if match is None or period.endswith(("P", "T")):
        raise UnsupportedFieldError(f"filter on {name!r} has the period {period!r}; give one such as P1D or PT12H")
    years, months, weeks, days, hours, minutes, seconds = (float(part or 0) * sign for part in match.groups())
    try:
        month = instant.year * 12 + instant.month - 1 + int(years * 12 + months)
        day = min(instant.day, calendar.monthrange(month // 12, month % 12 + 1)[1])
        moved = instant.replace(year=month // 12, month=month % 12 + 1, day=day)
        return moved + timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (ValueError, OverflowError):
        raise UnsupportedFieldError(
            f"filter on {name!r}: {period!r} leads out of the years 1 to 9999; give a shorter period"
        ) from None


def _between(left: str, spec: Mapping[str, Any], write: Callable[[Any], str], *, is_open: tuple[str, str]) -> str:
    parts = []
    for bound, sign, name in (("lower", ">", is_open[0]), ("upper", "<", is_open[1])):
        if (value := spec.get(bound)) is not None:
            parts.append(f"{left} {sign}{'' if spec.get(name) else '='} {write(value)}")
    if not parts:
        raise UnsupportedFieldError(f"filter {spec['type']!r} must have 'lower' or 'upper'")
    return parts[0] if len(parts) == 1 else f"({' AND '.join(parts)})"


def _number(value: Any) -> str:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if isinstance(value, bool) or not math.isfinite(number):
        raise UnsupportedFieldError(f"a filter compares a number with {value!r}; give a number")
    is_whole = isinstance(value, int) or str(value).lstrip("+-").isdigit()
    return str(int(value)) if is_whole else f"{json.dumps(number)}D"


def _text(spec: Mapping[str, Any], name: str) -> str:
    value = spec.get(name)
    if not isinstance(value, str) or not value:
        raise UnsupportedFieldError(f"filter {spec['type']!r}: {name!r} must be text; got {value!r}")
    return value
