"""The section `[coordination]` of Airflow's configuration: what an installation sets once.

What a connection says itself wins. Read in Airflow's own processes alone: a Spark job is told what it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.lease_times import DEFAULT_OWNERSHIP_TIMEOUT, DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.coordination.retries import RetryPolicy

SECTION = "coordination"
DEFAULT_WATCH_INTERVAL_SECONDS = 4.0

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What the section says. Each field is an option of the same name.

    :param ownership_timeout: how long a lease runs without renewal, where the connection does not say.
    :param safety_margin: by how much the clocks of the machines may differ, where the connection does not say.
    :param max_attempts: after how many failures in a row a partition rests, where the connection does not say.
    :param max_closed_count: how often a failing partition rests before it is parked, where the connection does not
        say.
    :param watch_interval: how often the triggerer looks at a source that somebody waits for, in seconds at most.
    :param http_api: whether the API server has the routes below `/coordination`.
    :param ui: whether Airflow's UI has the pages that show leases; they need the routes.
    :param viewers_may_look: whether who may read the logs of all tasks, as Airflow's viewers may, sees leases and
        supervisors; else who may read the connection does.
    """

    ownership_timeout: timedelta = DEFAULT_OWNERSHIP_TIMEOUT
    safety_margin: timedelta = DEFAULT_SAFETY_MARGIN
    max_attempts: int = RetryPolicy.max_attempts
    max_closed_count: int = RetryPolicy.max_closed_count
    watch_interval: float = DEFAULT_WATCH_INTERVAL_SECONDS
    http_api: bool = True
    ui: bool = True
    viewers_may_look: bool = False

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
            viewers_may_look=_option("viewers_may_look", _yes_or_no, cls.viewers_may_look),
        )


def _option(name: str, meaning: Callable[[str], T], default: T) -> T:
    from airflow.sdk.configuration import conf

    given: Any = conf.get(SECTION, name, fallback=None)
    if given is None or not str(given).strip():
        return default
    try:
        return meaning(str(given).strip())
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"configuration [{SECTION}] {name}: {WANTED[meaning]} is wanted; got {given!r}: mend it in airflow.cfg or "
            f"in AIRFLOW__{SECTION.upper()}__{name.upper()}"
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
"""As Airflow reads them."""
WANTED: dict[Callable[[str], Any], str] = {
    int: "a whole number",
    _seconds: "a number of seconds, such as 60,",
    _positive: "a number above 0",
    _yes_or_no: "True or False",
}
