"""The section `[coordination]` of Airflow's configuration: the settings of an installation.

The settings of a connection override them. Only Airflow's own processes read the section: a Spark job receives what it
needs in its settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.renewal import DEFAULT_OWNERSHIP_TIMEOUT, DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.coordination.retries import RetryPolicy

SECTION = "coordination"
URL_PREFIX = "/coordination"
"""The path of the routes in Airflow's API server."""
ROUTE = "coordination"
"""The route of the pages in Airflow's UI, below `/plugin`."""
DEFAULT_WATCH_INTERVAL_SECONDS = 4.0

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The options of the section. Each field is an option of the same name.

    :param ownership_timeout: how long a lease runs without renewal, unless the connection sets it.
    :param safety_margin: by how much the clocks of the machines may differ, unless the connection sets it.
    :param max_attempts: the number of failures in a row after which a partition waits before its next retry, unless the
        connection sets it.
    :param max_closed_count: how many times a failing partition waits before it is parked, unless the connection sets
        it.
    :param watch_interval: the maximum time between two polls of a source that a trigger waits for, in seconds.
    :param http_api: whether the API server has the routes below `/coordination`.
    :param ui: whether Airflow's UI has the pages that show leases; they need the routes.
    :param viewers_may_read: whether users who may read the logs of all tasks, as Airflow's viewers may, see leases and
        supervisors; otherwise only users who may read the connection see them.
    """

    ownership_timeout: timedelta = DEFAULT_OWNERSHIP_TIMEOUT
    safety_margin: timedelta = DEFAULT_SAFETY_MARGIN
    max_attempts: int = RetryPolicy.max_attempts
    max_closed_count: int = RetryPolicy.max_closed_count
    watch_interval: float = DEFAULT_WATCH_INTERVAL_SECONDS
    http_api: bool = True
    ui: bool = True
    viewers_may_read: bool = False

    @classmethod
    def read(cls) -> Configuration:
        """Read the section.

        :raises ConfigurationError: naming the option, the value and the remedy.
        """
        return cls(
            ownership_timeout=_option("ownership_timeout", _seconds, cls.ownership_timeout),
            safety_margin=_option("safety_margin", _seconds, cls.safety_margin),
            max_attempts=_option("max_attempts", int, cls.max_attempts),
            max_closed_count=_option("max_closed_count", int, cls.max_closed_count),
            watch_interval=_option("watch_interval", _positive, cls.watch_interval),
            http_api=_option("http_api", _yes_or_no, cls.http_api),
            ui=_option("ui", _yes_or_no, cls.ui),
            viewers_may_read=_option("viewers_may_read", _yes_or_no, cls.viewers_may_read),
        )


def base_url() -> str:
    """Return the URL of Airflow without a trailing slash; empty if it is not configured."""
    from airflow_provider_coordination.airflow_names import conf

    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")


def _option(name: str, parse: Callable[[str], T], default: T) -> T:
    from airflow_provider_coordination.airflow_names import conf

    value: Any = conf.get(SECTION, name, fallback=None)
    if value is None or not str(value).strip():
        return default
    try:
        return parse(str(value).strip())
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"configuration [{SECTION}] {name}: the value must be {EXPECTED[parse]}; got {value!r}; correct it in "
            f"airflow.cfg or in AIRFLOW__{SECTION.upper()}__{name.upper()}"
        ) from None


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=0 if float(text) == 0 else _positive(text))


def _yes_or_no(text: str) -> bool:
    if text.lower() not in YES_OR_NO:
        raise ValueError(text)
    return YES_OR_NO[text.lower()]


YES_OR_NO = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
"""The same values as in Airflow."""
EXPECTED: dict[Callable[[str], Any], str] = {
    int: "a whole number",
    _seconds: "a number of seconds, such as 60",
    _positive: "a number above 0",
    _yes_or_no: "True or False",
}
