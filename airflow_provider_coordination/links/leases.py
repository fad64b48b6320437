"""An extra link from a task to the leases of its source.

Airflow requests it on the worker after the task has run there; until then the task's tab *Leases* shows the same.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from airflow_provider_coordination.hooks.configuration import Configuration
from airflow_provider_coordination.ui.plugin import ROUTE
from airflow_provider_coordination.ui.urls import base_url


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
