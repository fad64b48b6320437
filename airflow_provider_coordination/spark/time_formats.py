"""The formats of times in payloads: how the text or number of a field becomes a TIMESTAMP."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_coordination.coordination.errors import ConfigurationError

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
TIMESTAMP = "timestamp"
"""The type of the columns that may have a format, as Spark writes it."""


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
        if time_format not in TIME_FORMATS:
            raise ConfigurationError(
                f"field 'time_formats': column {name!r} must have one of the formats "
                f"{', '.join(map(repr, TIME_FORMATS))}; got {time_format!r}"
            )
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
