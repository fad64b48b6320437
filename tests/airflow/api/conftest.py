"""Airflow's API server in this process, which the tests of this folder share, with the provider's routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def api() -> Any:
    """Airflow's API server, made once, as that takes longer than all requests together."""
    from airflow.api_fastapi.app import create_app
    from airflow.utils.db import initdb

    initdb()
    return create_app("core")


@pytest.fixture
def queries(api: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The query scheduler of the provider's routes, which is closed afterwards."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")  # as the API server does: it reads its own database
    [mounted] = [route.app for route in api.routes if getattr(route, "path", None) == "/coordination"]
    yield mounted.state.queries
    mounted.state.queries.close()


@pytest.fixture
def viewers_may_read(api: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The API of a deployment with `viewers_may_read`; it reads the option when it starts."""
    from airflow_provider_coordination.ui.application import application

    monkeypatch.setenv("AIRFLOW__COORDINATION__VIEWERS_MAY_READ", "True")
    [mounted] = [route.app for route in api.routes if getattr(route, "path", None) == "/coordination"]
    before, mounted.state.viewers_may_read = mounted.state.viewers_may_read, application().state.viewers_may_read
    yield
    mounted.state.viewers_may_read = before


@pytest.fixture
def as_role(api: Any, queries: Any) -> Callable[..., Any]:
    """Return the API as a user of a role calls it; without a login if the role is None."""

    def client(role: str | None, name: str = "x", **options: Any) -> Any:
        from airflow.api_fastapi.app import get_auth_manager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
        from fastapi.testclient import TestClient

        headers = {}
        if role is not None:
            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=name, role=role))
            headers = {"Authorization": f"Bearer {token}"}
        return TestClient(api, headers=headers, raise_server_exceptions=False, **options)

    return client
