"""Extra links from a task in Airflow's UI: to its job's Spark UI and log, and to the leases of its source.

Airflow requests a link on the worker each time the task has run there: at its deferral, when the job has no Spark
application yet, and at its end, when the driver's own UI is gone. So while the job runs, the link leads to Airflow's
API server, which looks up the UI. Afterwards it leads to a history server, if the task names one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from airflow_provider_coordination.hooks.configuration import ROUTE, URL_PREFIX, Configuration, base_url


@dataclass(frozen=True, kw_only=True)
class JobUrls:
    """The URLs of a task's job, as far as the worker knows them.

    :param spark_ui: the URL of its Spark UI; empty if there is none.
    :param log: the URL of its driver's log; empty if there is none.
    """

    spark_ui: str = ""
    log: str = ""


def application_url(template: str | None, application_id: str | None) -> str:
    """Return a URL from a task's template; empty if there is no template, or the job has no application.

    :param template: a URL with `{application_id}`.
    """
    if not template or not application_id:
        return ""
    return template.replace("{application_id}", quote(application_id, safe=""))


def running_job_ui(coordination_conn_id: str, source: str, owner: str) -> str:
    """Return the URL in Airflow's API server that redirects to the Spark UI of a running job."""
    names = [quote(name, safe="") for name in (coordination_conn_id, source, owner)]
    return f"{base_url()}{URL_PREFIX}/connections/{names[0]}/sources/{names[1]}/jobs/{names[2]}/spark-ui"


class SparkUiLink(BaseOperatorLink):
    """Leads to the Spark UI of the task's job."""

    name = "Spark UI"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the URL; empty if there is none."""
        return job_urls_of(operator).spark_ui


class JobLogLink(BaseOperatorLink):
    """Leads to the driver's log of the task's job, if the task gives its URL."""

    name = "Job log"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the URL; empty if there is none."""
        return job_urls_of(operator).log


def job_urls_of(operator: Any) -> JobUrls:
    """Return the URLs that an operator holds; empty if the operator has no job."""
    urls = getattr(operator, "job_urls", None)
    return urls if isinstance(urls, JobUrls) else JobUrls()


class LeasesLink(BaseOperatorLink):
    """Leads to the page of the task's source in Airflow's UI; no link if the configuration disables the pages."""

    name = "Leases of the source"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the URL; empty if there is none."""
        source = getattr(operator, "source_worked_on", None) or getattr(operator, "source", None)
        connection = getattr(operator, "coordination_conn_id", None)
        configuration = Configuration.read()
        if not (isinstance(source, str) and connection and configuration.http_api and configuration.ui):
            return ""
        return f"{base_url()}/plugin/{ROUTE}/{quote(connection, safe='')}/{quote(source, safe='')}/partitions"
