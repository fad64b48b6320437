"""Extra links from a task to the Spark UI of its job, and to its driver's log.

Airflow asks for a link on the worker, each time that the task has run there: at its deferral, when the job has no
Spark application yet, and at its end, when the driver's own UI is gone. So while the job runs the link leads to
Airflow's API server, which looks up where the UI is; and afterwards to a history server, if the task names one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from airflow_provider_coordination.ui.plugin import URL_PREFIX
from airflow_provider_coordination.ui.urls import base_url


@dataclass(frozen=True, kw_only=True)
class JobPlaces:
    """Where the job of a task can be looked at, as far as it is known on the worker.

    :param spark_ui: the address of its Spark UI; empty if there is none.
    :param log: the address of its driver's log; empty if there is none.
    """

    spark_ui: str = ""
    log: str = ""


def place_of(template: str | None, application_id: str | None) -> str:
    """Return an address of which a task gives a template; empty without one, or where the job has no application.

    :param template: with `{application_id}`.
    """
    if not template or not application_id:
        return ""
    return template.replace("{application_id}", quote(application_id, safe=""))


def running_job_ui(coordination_conn_id: str, source: str, owner: str) -> str:
    """Return the address, in Airflow's API server, that leads on to the Spark UI of a job while it runs."""
    names = [quote(name, safe="") for name in (coordination_conn_id, source, owner)]
    return f"{base_url()}{URL_PREFIX}/connections/{names[0]}/sources/{names[1]}/jobs/{names[2]}/spark-ui"


class SparkUiLink(BaseOperatorLink):
    """Leads to the Spark UI of the task's job."""

    name = "Spark UI"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address; empty if there is none."""
        return places_of(operator).spark_ui


class JobLogLink(BaseOperatorLink):
    """Leads to the driver's log of the task's job, where the task says how it is found."""

    name = "Job log"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address; empty if there is none."""
        return places_of(operator).log


def places_of(operator: Any) -> JobPlaces:
    """Return what an operator knows; nothing if it is none that has a job."""
    places = getattr(operator, "job_places", None)
    return places if isinstance(places, JobPlaces) else JobPlaces()
