"""The fields of an Airflow connection, checked when they are read. Errors name the connection and the field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class ConnectionFields:
    """The fields of one connection.

    :param name: the connection's name in errors, such as `connection 'coordination_default'`.
    :param values: the fields of its extra, without null and empty ones.
    :param login: Airflow's own field; None if it is empty.
    :param password: Airflow's own field; None if it is empty.
    :param aws: returns the settings of an AWS connection, given its id, the service, and the region to use if it has
        none.
    """

    name: str
    values: Mapping[str, Any] = field(repr=False)
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    aws: Callable[[str, str, str | None], AwsSettings]

    def text(self, field: str) -> str | None:
        """Return a text field; None if it is not set.

        :raises ConfigurationError: if it is not text.
        """
        value = self.values.get(field)
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(f"{self.name}: field {field!r} must be text; got {value!r}")
        return value

    def integer(self, field: str, *, minimum: int = 1) -> int | None:
        """Return a field that is a whole number, or text of digits; None if it is not set.

        :param minimum: the smallest valid number.
        :raises ConfigurationError: if it is not a whole number, or too small.
        """
        value = self.values.get(field)
        if value is None:
            return None
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if type(number) is not int or number < minimum:
            raise ConfigurationError(
                f"{self.name}: field {field!r} must be a whole number, at least {minimum}; got {value!r}"
            )
        return number

    def boolean(self, field: str) -> bool:
        """Return a field that is true or false, possibly as text; False if it is not set.

        :raises ConfigurationError: if it is neither.
        """
        value = self.values.get(field, False)
        value = {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise ConfigurationError(f"{self.name}: field {field!r} must be true or false; got {value!r}")
        return value

    def number(self, field: str, of: str, default: float) -> float:
        """Return a field that is a non-negative number, possibly as text.

        :param of: the unit and an example, such as `seconds, such as 60`.
        :param default: the result if it is not set.
        :raises ConfigurationError: if it is not such a number.
        """
        if field not in self.values:
            return default
        value = self.values[field]
        try:
            number = math.nan if isinstance(value, bool) else float(value)
            if math.isfinite(number) and number >= 0:
                return number
        except (TypeError, ValueError, OverflowError):
            pass
        raise ConfigurationError(f"{self.name}: field {field!r} must be a number of {of}; got {value!r}")
