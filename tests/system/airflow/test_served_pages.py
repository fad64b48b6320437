"""The API server of a whole Airflow serves the plugin's pages and routes."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from tests.support.standalone import Standalone

SOURCE = "served_pages"


@pytest.fixture
def ask(airflow: Standalone) -> Callable[[str], httpx.Response]:
    """Sends a request to the API server as an administrator."""
    headers = {"Authorization": f"Bearer {airflow.login('admin')}"}
    return lambda path: httpx.get(airflow.url + path, headers=headers, timeout=60, trust_env=False)


def test_plugin_is_listed_with_a_bundle_that_is_served(ask: Callable[[str], httpx.Response]) -> None:
    plugins = ask("/api/v2/plugins").raise_for_status().json()["plugins"]
    [plugin] = [each for each in plugins if each["name"] == "coordination"]
    assert {app["destination"] for app in plugin["react_apps"]} == {"nav", "dag_run", "task_instance"}
    [url] = {app["bundle_url"] for app in plugin["react_apps"]}
    bundle = ask(url)
    assert (bundle.status_code, bundle.headers["content-type"]) == (200, "text/javascript; charset=utf-8")


def test_routes_answer_users_only(
    airflow: Standalone, look: Callable[[str], SourceCoordinator], ask: Callable[[str], httpx.Response]
) -> None:
    look(SOURCE).create_partitions({"shed": {}})
    path = f"/coordination/connections/coordination_default/sources/{SOURCE}/summary"
    assert ask(path).raise_for_status().json()["source"] == SOURCE
    assert ask("/coordination/manual/operations").status_code == 200
    assert httpx.get(airflow.url + path, trust_env=False).status_code == 401
