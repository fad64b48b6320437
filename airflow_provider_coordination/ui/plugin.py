"""The Airflow plugin `coordination`. Every Airflow process imports this module, so it imports next to nothing."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow_provider_coordination.airflow_names import AirflowPlugin

PAGES = "Ingestion"


class CoordinationPlugin(AirflowPlugin):
    """Adds the routes below `/coordination` to Airflow's API server, and the pages that use them to its UI."""

    name = "coordination"

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The application, which the API server creates; none if the configuration turns it off."""
        from airflow_provider_coordination.hooks.configuration import URL_PREFIX, Configuration

        if not Configuration.read().http_api:
            return []
        from airflow_provider_coordination.ui.application import application

        return [{"app": application(), "url_prefix": URL_PREFIX, "name": "Coordination"}]

    @cached_property
    def react_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The pages: one in the menu, and a tab of each DAG run and task instance; none without the routes."""
        from airflow_provider_coordination.hooks.configuration import ROUTE, Configuration, path_prefix

        configuration = Configuration.read()
        if not (configuration.http_api and configuration.ui):
            return []
        from airflow_provider_coordination.ui.application import edition

        # Airflow registers a module by this name. All places share one module, so they have one name.
        pages = {"name": PAGES, "bundle_url": f"{path_prefix()}/static/{edition()}/coordination.js"}
        return [
            {**pages, "destination": "nav", "category": "browse", "url_route": ROUTE},
            {**pages, "destination": "dag_run", "url_route": f"{ROUTE}-run"},
            {**pages, "destination": "task_instance", "url_route": f"{ROUTE}-task"},
        ]
