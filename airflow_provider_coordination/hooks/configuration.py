"""The section `[coordination]` of Airflow's configuration: the settings of an installation.

The settings of a connection override them. Only Airflow's own processes read the section: a Spark job receives what it
needs in its settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, get_type_hints
from urllib.parse import quote, urlsplit

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.held_leases import DEFAULT_OWNERSHIP_TIMEOUT, DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.coordination.workers import TaskTry
from airflow_provider_coordination.field_hints import Limits
from airflow_provider_coordination.settings import FieldError, read_field

SECTION = "coordination"
URL_PREFIX = "/coordination"
"""The path of the routes in Airflow's API server."""
ROUTE = "coordination"
"""The route of the pages in Airflow's UI, below `/plugin`."""
DEFAULT_WATCH_INTERVAL_SECONDS = 4.0

Seconds = Annotated[timedelta, Limits(minimum=timedelta(0), words="a number of seconds, such as 60")]
Switch = Annotated[bool, Limits(words="True or False")]


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

    ownership_timeout: Seconds = DEFAULT_OWNERSHIP_TIMEOUT
    safety_margin: Seconds = DEFAULT_SAFETY_MARGIN
    max_attempts: int = RetryPolicy.max_attempts
    max_closed_count: int = RetryPolicy.max_closed_count
    watch_interval: Annotated[float, Limits(above=0, words="a number above 0")] = DEFAULT_WATCH_INTERVAL_SECONDS
    http_api: Switch = True
    ui: Switch = True
    viewers_may_read: Switch = False

    @classmethod
    def read(cls) -> Configuration:
        """Read the section.

        :raises ConfigurationError: naming the option, the value and the remedy.
        """
        from airflow_provider_coordination.airflow_names import conf

        given = {}
        for name, annotation in get_type_hints(cls, include_extras=True).items():
            if text := str(conf.get(SECTION, name, fallback=None) or "").strip():
                try:
                    given[name] = read_field(f"configuration [{SECTION}]", name, text, annotation)
                except FieldError as error:
                    variable = f"AIRFLOW__{SECTION.upper()}__{name.upper()}"
                    raise ConfigurationError(f"{error}; correct it in airflow.cfg or in {variable}") from None
        return cls(**given)


def base_url() -> str:
    """Return the URL of Airflow without a trailing slash; empty if it is not configured."""
    from airflow_provider_coordination.airflow_names import conf

    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")


def task_url(task: TaskTry) -> str:
    """Return the URL of the page of a task try, which shows its log; empty if the URL of Airflow is not configured."""
    dag, run, name = (quote(part, safe="") for part in (task.dag_id, task.run_id, task.task_id))
    mapped = f"/mapped/{task.map_index}" if task.map_index >= 0 else ""
    return base_url() and f"{base_url()}/dags/{dag}/runs/{run}/tasks/{name}{mapped}?try_number={task.try_number}"


def path_prefix() -> str:
    """Return the path of the routes, including the path of Airflow itself if it has one."""
    return urlsplit(base_url()).path + URL_PREFIX
