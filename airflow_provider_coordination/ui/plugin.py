"""The Airflow plugin `coordination`. Every Airflow process imports this module, so it imports next to nothing."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.sdk.plugins_manager import AirflowPlugin

URL_PREFIX = "/coordination"


class CoordinationPlugin(AirflowPlugin):
    """Adds the routes below `/coordination` to Airflow's API server."""

    name = "coordination"

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The application, made where Airflow asks for it: in the API server; none where the configuration says so."""
        from airflow_provider_coordination.hooks.configuration import Configuration

        if not Configuration.read().http_api:
            return []
        from airflow_provider_coordination.ui.application import application

        return [{"app": application(), "url_prefix": URL_PREFIX, "name": "Coordination"}]
