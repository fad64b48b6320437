"""Single fields of a stored progress, for people: what is not as it should be is left out, and nothing is raised.

Hundreds of partitions are looked at for one page, and a person has to see a progress that nobody else can read: one
that was written by hand, by another system, or by a newer version.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.partition import parse_instant


def objects_in(progress: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """Return the JSON objects of a list."""
    found = progress.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def text_of(value: object) -> str | None:
    """Return a text."""
    return value if isinstance(value, str) else None


def whole_of(value: object) -> int | None:
    """Return a whole number."""
    return value if type(value) is int else None


def number_of(value: object) -> float | None:
    """Return a finite number."""
    with suppress(OverflowError):
        number = float(value) if type(value) in (int, float) else None  # type: ignore[arg-type]
        return number if number is not None and math.isfinite(number) else None
    return None


def instant_of(value: object) -> datetime | None:
    """Return an instant (aware)."""
    with suppress(ValueError):
        return parse_instant(value) if isinstance(value, str) else None
    return None
