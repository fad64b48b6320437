"""What differs between the supported versions of Airflow: where a name is, and what Airflow does.

No other module depends on the version. The folders whose modules need Airflow import this one first, so that an
unsupported version is refused by one sentence, not by the first name that it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from inspect import iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import CronDataIntervalTimetable as CronDataIntervalTimetable
    from airflow.sdk.configuration import conf as conf
    from airflow.sdk.exceptions import AirflowException as AirflowException
    from airflow.sdk.exceptions import AirflowFailException as AirflowFailException
    from airflow.sdk.exceptions import AirflowNotFoundException as AirflowNotFoundException
    from airflow.sdk.exceptions import AirflowRescheduleException as AirflowRescheduleException
    from airflow.sdk.exceptions import AirflowSensorTimeout as AirflowSensorTimeout
    from airflow.sdk.exceptions import AirflowSkipException as AirflowSkipException
    from airflow.sdk.exceptions import AirflowTaskTimeout as AirflowTaskTimeout
    from airflow.sdk.exceptions import DownstreamTasksSkipped as DownstreamTasksSkipped
    from airflow.sdk.exceptions import TaskDeferralError as TaskDeferralError
    from airflow.sdk.exceptions import TaskDeferralTimeout as TaskDeferralTimeout
    from airflow.sdk.exceptions import TaskDeferred as TaskDeferred
    from airflow.sdk.observability.stats import Stats as Stats
    from airflow.sdk.plugins_manager import AirflowPlugin as AirflowPlugin

OLDEST = (3, 1, 8)
"""As in `pyproject.toml`."""
NEW_PLACES_SINCE = (3, 2)
COROUTINES_SINCE = (3, 2)
ON_KILL_SINCE = (3, 3)
REMOVED_PASSES_SINCE = (3, 3)
PLACES = {
    "AirflowPlugin": ("airflow.plugins_manager", "airflow.sdk.plugins_manager"),
    "CronDataIntervalTimetable": ("airflow.timetables.interval", "airflow.sdk"),
    "Stats": ("airflow.stats", "airflow.sdk.observability.stats"),
    "conf": ("airflow.configuration", "airflow.sdk.configuration"),
}
"""The modules that have a name: before `NEW_PLACES_SINCE`, and since."""
PLACES_OF_EXCEPTIONS = ("airflow.exceptions", "airflow.sdk.exceptions")


def airflow_version() -> str | None:
    """Return the version of Airflow that is installed; None if there is none."""
    for distribution in ("apache-airflow-core", "apache-airflow"):  # Airflow 2 is the second alone
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None


def release_of(text: str | None) -> tuple[int, ...]:
    """Return the numbers of a version, such as 3, 2 and 1; those of the oldest version for None.

    :raises RuntimeError: if that version of Airflow is not supported.
    """
    release = OLDEST if text is None else tuple(int(number) for number in re.findall(r"\d+", text)[:3])
    if release < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise RuntimeError(
            f"airflow-provider-coordination needs Airflow {oldest} or newer, but {text} is installed; "
            f"upgrade with: pip install 'apache-airflow>={oldest},<4'"
        )
    return release


AIRFLOW = release_of(airflow_version())
CALLS_ON_KILL = AIRFLOW >= ON_KILL_SINCE
"""Whether the triggerer itself calls `on_kill` of a trigger whose task was cleared, marked or removed."""
REMOVED_PASSES = AIRFLOW >= REMOVED_PASSES_SINCE
"""Whether the rule `none_failed` passes a mapped task that was removed, since its run was cleared and now has fewer."""


def check_no_coroutine(python_callable: Callable[..., object], decorator: str) -> None:
    """Check that this Airflow can run a function of a task, which may be `async` since `COROUTINES_SINCE`.

    :param decorator: how the error names the decorator, such as `@task.acknowledges`.
    :raises ValueError: naming the function and the remedy.
    """
    if AIRFLOW < COROUTINES_SINCE and iscoroutinefunction(python_callable):
        since, installed = (".".join(map(str, release)) for release in (COROUTINES_SINCE, AIRFLOW))
        raise ValueError(
            f"{decorator}: function {python_callable.__qualname__!r} is 'async', which needs Airflow {since} or newer; "
            f"this is Airflow {installed}: define it with 'def', and await in it with 'asyncio.run'"
        )


def accepted(callee: Callable[..., object], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that something of an Airflow provider accepts: its older versions have fewer."""
    return {name: arguments[name] for name in arguments.keys() & signature(callee).parameters.keys()}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a name from its place in this version, when it is first used."""
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        places = PLACES.get(name, PLACES_OF_EXCEPTIONS)
        return getattr(import_module(places[AIRFLOW >= NEW_PLACES_SINCE]), name)
