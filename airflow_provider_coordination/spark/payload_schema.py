"""A schema of payloads as a user writes it: its columns and the formats of their times, checked without Spark.

A pattern of times, such as `dd/MM/yyyy HH:mm:ss`, says which texts are accepted, and the instant of a text. The letters
mean what they mean in Joda's `DateTimeFormat`, which reads them leniently: `MM` also accepts one digit, and `SSS` one
or two. A letter whose meaning depends on the clock, the locale or the calendar of weeks is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from itertools import pairwise

from airflow_provider_coordination.coordination.errors import ConfigurationError

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
SHORT_NAME = 3
"""The length of the short name of a month."""
YEAR, MONTH, NAME, DAY, HOUR, MINUTE, SECOND, FRACTION, HALF, ZONE = "yMNdHmsSaZ"
"""The fields of a time; `NAME` is a month by its name."""
ORDER = (YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, FRACTION)
"""The fields from the longest to the shortest: a pattern has the first of them, without a gap."""
HOURS = {"H": (0, 23), "h": (1, 12), "K": (0, 11)}
"""The letters of an hour, and the numbers that they accept."""
MAX_FRACTION = 6
"""The digits of a second that a TIMESTAMP holds."""
MAX_OFFSET = timedelta(hours=18)
"""The largest offset from UTC that Spark accepts."""
LENGTHS: Mapping[str, tuple[int, ...]] = {
    "y": (4,), "M": (1, 2, 3, 4), "d": (1, 2), "H": (1, 2), "h": (1, 2), "K": (1, 2), "m": (1, 2), "s": (1, 2),
    "S": tuple(range(1, MAX_FRACTION + 1)), "a": (1,), "Z": (1, 2),
}  # fmt: skip
"""How often each letter may stand in a row."""
REFUSED: Mapping[str, str] = {
    "G": "an era", "C": "a century", "Y": "a year of an era: write 'yyyy'", "x": "a year of weeks",
    "w": "a week", "e": "a day of a week", "E": "a day of a week, which may contradict the date",
    "D": "a day of a year", "k": "an hour from 1 to 24", "z": "the name of a time zone",
}  # fmt: skip
"""Letters that have a meaning in Joda, and which."""
SPACE = "[\\x00-\\x20]*"
"""What a text may begin and end with."""
TOKEN = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|.", re.DOTALL)


@dataclass(frozen=True)
class TimePattern:
    """A pattern of times.

    :param text: the pattern.
    :param regex: what a text matches, for Java and for Python: a group for each field.
    :param groups: the number of each field's group.
    :param hour_letter: the letter of the hour; empty if there is none.
    """

    text: str
    regex: str
    groups: Mapping[str, int]
    hour_letter: str

    @property
    def hours(self) -> tuple[int, int]:
        """The first and the last number of an hour."""
        return HOURS[self.hour_letter or "H"]

    def instant(self, text: str) -> datetime:
        """Return the instant of a text; without an offset it is in UTC.

        :raises ValueError: if the text does not match.
        """
        found = re.match(self.regex, text)
        if found is None:
            raise ValueError(f"it is no time like {self.text}")
        part = {name: found[number] for name, number in self.groups.items()}
        hour = int(part.get(HOUR, 0))
        if not self.hours[0] <= hour <= self.hours[1]:
            raise ValueError("its hour is out of range")
        if HALF in part:
            hour = hour % 12 + (12 if part[HALF].lower() == "pm" else 0)
        month = int(part.get(MONTH, 1)) if NAME not in part else _number_of_month(part[NAME])
        zone = part.get(ZONE, "Z")
        offset = timedelta(0)
        if zone.upper() != "Z":
            size = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:].removeprefix(":") or 0))
            if size > MAX_OFFSET:
                raise ValueError("its offset is out of range")
            offset = -size if zone[0] == "-" else size
        return datetime(
            int(part[YEAR]), month, int(part.get(DAY, 1)), hour, int(part.get(MINUTE, 0)), int(part.get(SECOND, 0)),
            int(part.get(FRACTION, "0").ljust(MAX_FRACTION, "0")), tzinfo=timezone(offset),
        ).astimezone(UTC)  # fmt: skip


@cache
def time_pattern(text: str) -> TimePattern:
    """Return a pattern.

    :raises ConfigurationError: naming the part that has no exact meaning.
    """
    parts, groups, hour_letter = [], dict[str, int](), ""
    for token in _tokens(text):
        letter = token[0]
        if not (letter.isascii() and letter.isalpha()):
            parts.append(_literal(token))
            continue
        field = _field(text, token)
        if field in groups or (field in (MONTH, NAME) and {MONTH, NAME} & set(groups)):
            raise _wrong_pattern(text, f"{token!r} names a field that an earlier part has already")
        groups[field] = len(groups) + 1
        hour_letter = letter if field == HOUR else hour_letter
        parts.append(_expression(field, len(token), groups[field]))
    _check_fields(text, groups, hour_letter)
    return TimePattern(text, f"^{SPACE}{''.join(parts)}{SPACE}$", groups, hour_letter)


def _tokens(text: str) -> Iterator[str]:
    """Yield the fields and the literal texts of a pattern; a literal text has a quotation mark first."""
    for found in TOKEN.finditer(text):
        token = found[0]
        if token == "'":
            raise _wrong_pattern(text, "a quotation mark is not closed")
        if found[1] is not None:
            yield token
        elif token.startswith("'"):
            yield f"'{token[1:-1].replace(chr(39) * 2, chr(39)) or chr(39)}"
        else:
            yield f"'{token}"


def _field(text: str, token: str) -> str:
    letter = token[0]
    if letter in REFUSED:
        raise _wrong_pattern(text, f"{letter!r} is {REFUSED[letter]}")
    if letter not in LENGTHS:
        raise _wrong_pattern(text, f"{letter!r} is no letter of a pattern; put literal text in single quotation marks")
    if len(token) not in LENGTHS[letter]:
        accepted = " or ".join(repr(letter * length) for length in LENGTHS[letter])
        raise _wrong_pattern(text, f"{token!r} has no exact meaning; write {accepted}")
    if letter in HOURS:
        return HOUR
    return NAME if letter == MONTH and len(token) >= SHORT_NAME else letter


def _expression(field: str, length: int, number: int) -> str:
    """Return what a field matches, as a group. Digits are taken greedily: what was taken is not given back."""
    match field:
        case "y":
            return "((?!0000)[0-9]{4})"
        case "N":
            names = sorted({*MONTHS, *(name[:SHORT_NAME] for name in MONTHS)}, key=len, reverse=True)
            return "(" + "|".join(f"{name}|{name.lower()}|{name.upper()}" for name in names) + ")"
        case "a":
            return "(AM|PM|am|pm)"
        case "Z":
            return "(Z|z|[+-][0-9]{2}(?::?[0-9]{2})?)"
        case _:
            return rf"(?=([0-9]{{1,{length if field == FRACTION else 2}}}))\{number}"


def _literal(token: str) -> str:
    """Return what a literal text matches: Joda ignores its case."""
    characters = token[1:]
    return "".join(
        f"[{each.lower()}{each.upper()}]" if each.isascii() and each.isalpha() else re.escape(each)
        for each in characters
    )


def _check_fields(text: str, groups: Mapping[str, int], hour_letter: str) -> None:
    given = {MONTH if name == NAME else name for name in groups}
    names = {YEAR: "year", MONTH: "month", DAY: "day", HOUR: "hour", MINUTE: "minute", SECOND: "second"}
    for longer, shorter in pairwise(ORDER):
        if longer not in given and (shorter in given or longer == YEAR):
            raise _wrong_pattern(text, f"it has no {names[longer]}")
    if (hour_letter in ("h", "K")) != (HALF in given):
        raise _wrong_pattern(text, "'h' and 'K' need 'a', and 'a' needs one of them; write 'HH' for the hours of a day")


def _number_of_month(name: str) -> int:
    return next(number for number, each in enumerate(MONTHS, 1) if each.lower().startswith(name.lower()))


def _wrong_pattern(text: str, problem: str) -> ConfigurationError:
    return ConfigurationError(f"the pattern {text!r} of a time cannot be used: {problem}")


EXAMPLE = "id STRING NOT NULL, at TIMESTAMP, amount DOUBLE"
# fmt: off
TYPES = frozenset({
    "ARRAY", "BIGINT", "BINARY", "BOOLEAN", "BYTE", "CHAR", "CHARACTER", "DATE", "DEC", "DECIMAL", "DOUBLE",
    "FLOAT", "INT", "INTEGER", "INTERVAL", "LONG", "MAP", "NUMERIC", "REAL", "SHORT", "SMALLINT", "STRING",
    "STRUCT", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "TINYINT", "VARCHAR", "VARIANT",
})
# fmt: on
"""The names of Spark's types."""
OPENING, CLOSING = "(<", ")>"
ISO = "iso"
"""Text of ISO 8601; without a time zone it is in UTC."""
AUTO = "auto"
"""A number of milliseconds since 1970, or text of ISO 8601."""
SECONDS = "seconds"
MILLIS = "millis"
MICROS = "micros"
UNITS = {AUTO: 1000, SECONDS: 1_000_000, MILLIS: 1000, MICROS: 1}
"""The unit of the numbers of a format, in microseconds."""
TIME_FORMATS = (ISO, AUTO, SECONDS, MILLIS, MICROS)
"""The formats of times that have a name; others are patterns."""
TIMESTAMP = "timestamp"
"""The type of the columns that may have a format, as Spark writes it."""


def columns_of(ddl: str) -> Mapping[str, str]:
    """Return the top-level columns of a schema: their names, and the first word of their types in upper case.

    :raises ConfigurationError: if the schema is invalid.
    """
    return {name: kind for name, kind, _ in _columns(ddl)}


def required_columns_of(ddl: str) -> frozenset[str]:
    """Return the names of the top-level columns that are `NOT NULL`."""
    return frozenset(name for name, _, is_required in definitions_of(ddl) if is_required)


def definitions_of(ddl: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the name of each top-level column, its type as it is written, and whether it is `NOT NULL`.

    :raises ConfigurationError: if the schema is invalid.
    """
    for name, kind, rest in _columns(ddl):
        of_type = re.split(r"(?i)\bNOT\s+NULL\b|\bCOMMENT\b|\bDEFAULT\b", rest)[0].strip()
        yield name, f"{kind}{of_type}", re.search(r"\bNOT\s+NULL\b", rest, re.IGNORECASE) is not None


def _columns(ddl: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each column, the first word of its type, and the rest of its definition."""
    names: set[str] = set()
    for part in _parts(ddl):
        match = re.fullmatch(r"\s*(`(?:[^`]|``)+`|\w+)\s*:?\s*(\w+)?(.*)", part, re.DOTALL)
        if match is None or match[2] is None:
            raise _wrong_schema(ddl, f"{part.strip()!r} is not a name and a type")
        name, kind = match[1].strip("`").replace("``", "`"), match[2].upper()
        if kind not in TYPES:
            raise _wrong_schema(ddl, f"column {name!r}: {match[2]!r} is not a Spark type")
        if name.lower() in names:
            raise _wrong_schema(ddl, f"column {name!r} is defined twice")
        names.add(name.lower())
        yield name, kind, match[3]


def _parts(ddl: str) -> Iterator[str]:
    """Yield the column definitions of a schema, split at commas outside of types, names and comments."""
    depth, start, quote = 0, 0, ""
    for position, character in enumerate(ddl):
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'\"":
            quote = character
        elif character in OPENING:
            depth += 1
        elif character in CLOSING:
            depth -= 1
        elif character == "," and depth == 0:
            yield ddl[start:position]
            start = position + 1
    if depth != 0 or quote:
        raise _wrong_schema(ddl, "a bracket or a quote is not closed")
    yield ddl[start:]


def _wrong_schema(ddl: str, what: str) -> ConfigurationError:
    shown = ddl if len(ddl) <= 200 else f"{ddl[:200]}…"
    return ConfigurationError(f"field 'schema': {what}; give names and types, such as {EXAMPLE!r}; got {shown!r}")


def check_time_formats(formats: Mapping[str, str] | None, types: Mapping[str, str]) -> None:
    """Check the formats of columns.

    :param formats: the format of each column, by name; None for none.
    :param types: the type of each column of the schema, by name, as Spark writes it.
    :raises ConfigurationError: naming the column, the value and the remedy.
    """
    if formats is None:
        return
    if not isinstance(formats, Mapping):
        raise ConfigurationError(
            f"field 'time_formats' must be an object of columns and formats, such as {{at: millis}}; got {formats!r}"
        )
    for name, time_format in formats.items():
        _check_time_format(name, time_format)
        if name not in types:
            known = ", ".join(map(repr, types)) or "none, as 'schema' is missing"
            raise ConfigurationError(
                f"field 'time_formats': {name!r} must be a column of 'schema'; its columns are {known}"
            )
        if types[name].lower() != TIMESTAMP:
            raise ConfigurationError(
                f"field 'time_formats': column {name!r} is of type {types[name].upper()} in 'schema'; declare it there "
                "as TIMESTAMP"
            )


def _check_time_format(name: str, time_format: object) -> None:
    """Check the format of a column.

    :raises ConfigurationError: if it is neither one that has a name nor a pattern.
    """
    if time_format in TIME_FORMATS:
        return
    problem = ""
    if isinstance(time_format, str):
        try:
            time_pattern(time_format)
        except ConfigurationError as error:
            problem = f"; {error}"
        else:
            return
    raise ConfigurationError(
        f"field 'time_formats': column {name!r} must have one of the formats {', '.join(map(repr, TIME_FORMATS))}, or "
        f"a pattern such as 'dd/MM/yyyy HH:mm:ss'; got {time_format!r}{problem}"
    )
