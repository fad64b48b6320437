"""Values of templated fields: templates render text, even for numbers and booleans.

None, empty text and the text "None" (which a template renders for None) all mean "not given".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import NOTHING, YES_OR_NO


def int_value(field: str, value: Any) -> int | None:
    """Return the whole number; None if it is not given.

    :raises ConfigurationError: if the value is not a whole number.
    """
    if value in NOTHING:
        return None
    try:
        if not isinstance(value, (bool, float)):
            return int(value)
    except (TypeError, ValueError):
        pass
    raise ConfigurationError(f"field {field!r} must be a whole number; got {value!r}")


def number_value(field: str, value: Any) -> float | None:
    """Return the number; None if it is not given.

    :raises ConfigurationError: if the value is not a finite number.
    """
    if value in NOTHING:
        return None
    try:
        if not isinstance(value, bool) and math.isfinite(number := float(value)):
            return number
    except (TypeError, ValueError):
        pass
    raise ConfigurationError(f"field {field!r} must be a number; got {value!r}")


def bool_value(field: str, value: Any) -> bool:
    """Return the boolean.

    :raises ConfigurationError: if the value is not a boolean.
    """
    result = YES_OR_NO.get(str(value).strip().lower())
    if result is None:
        raise ConfigurationError(f"field {field!r} must be true or false; got {value!r}")
    return result


def seconds_value(field: str, value: Any) -> float | None:
    """Return a duration in seconds, given as a timedelta or a number of seconds; None if it is not given.

    :raises ConfigurationError: if the value is neither.
    """
    return value.total_seconds() if isinstance(value, timedelta) else number_value(field, value)


def names_value(field: str, value: Any, *, instead: str) -> tuple[str, ...]:
    """Return the names in a list.

    :param instead: what may be given instead of a list, for the error message.
    :raises ConfigurationError: if the value is not a list of names, or is empty.
    """
    if isinstance(value, Sequence) and value and not isinstance(value, str) and all(isinstance(n, str) for n in value):
        return tuple(value)
    raise ConfigurationError(f"field {field!r} must be {instead}, or a list of names; got {value!r}")
