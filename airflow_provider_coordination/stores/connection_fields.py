"""The fields of an Airflow connection, each checked as it is read; errors name the connection and the field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class ConnectionFields:
    """What a connection says.

    :param name: what errors call it, such as `connection 'coordination_default'`.
    :param given: what its extra holds, without what is null or empty.
    :param login: Airflow's own field; None if it is empty.
    :param password: Airflow's own field; None if it is empty.
    :param aws: returns what an AWS connection says: given its id, the service, and the region where it names none.
    """

    name: str
    given: Mapping[str, Any] = field(repr=False)
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    aws: Callable[[str, str, str | None], AwsSettings]

    def text(self, field: str) -> str | None:
        """Return a field that is text; None if it is not given.

        :raises ConfigurationError: if it is something else.
        """
        value = self.given.get(field)
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(f"{self.name}: field {field!r} must be text; got {value!r}")
        return value

    def whole(self, field: str, *, least: int = 1) -> int | None:
        """Return a field that is a whole number, or text of digits; None if it is not given.

        :raises ConfigurationError: if it is something else, or too small.
        """
        value = self.given.get(field)
        if value is None:
            return None
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if type(number) is not int or number < least:
            raise ConfigurationError(
                f"{self.name}: field {field!r} must be a whole number, at least {least}; got {value!r}"
            )
        return number

    def yes_or_no(self, field: str) -> bool:
        """Return a field that is true or false, or one of these as text; False if it is not given.

        :raises ConfigurationError: if it is something else.
        """
        value = self.given.get(field, False)
        value = {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise ConfigurationError(f"{self.name}: field {field!r} must be true or false; got {value!r}")
        return value

    def number(self, field: str, of: str, default: float) -> float:
        """Return a field that is a number, not negative, or text of one.

        :param of: the unit, and an example, such as `seconds, such as 60`.
        :param default: what is returned if it is not given.
        :raises ConfigurationError: if it is something else.
        """
        if field not in self.given:
            return default
        value = self.given[field]
        try:
            number = math.nan if isinstance(value, bool) else float(value)
            if math.isfinite(number) and number >= 0:
                return number
        except (TypeError, ValueError, OverflowError):
            pass
        raise ConfigurationError(f"{self.name}: field {field!r} must be a number of {of}; got {value!r}")
