"""Single fields of a stored progress, for users: invalid values are left out, and nothing is raised.

One page shows hundreds of partitions, and users must also see a progress that no job can read: one that was written by
hand, by another system, or by a newer version.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.partition import parse_instant


def objects_in(progress: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """Return the JSON objects in a list field."""
    found = progress.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def text_of(value: object) -> str | None:
    """Return a text value, or None."""
    return value if isinstance(value, str) else None


def integer_of(value: object) -> int | None:
    """Return a whole number, or None."""
    return value if type(value) is int else None


def number_of(value: object) -> float | None:
    """Return a finite number, or None."""
    with suppress(OverflowError):
        number = float(value) if type(value) in (int, float) else None  # type: ignore[arg-type]
        return number if number is not None and math.isfinite(number) else None
    return None


def instant_of(value: object) -> datetime | None:
    """Return an instant (aware), or None."""
    with suppress(ValueError):
        return parse_instant(value) if isinstance(value, str) else None
    return None
