"""Who may do what: the one module that uses Airflow's internal API of the API server.

Airflow lets anybody call a plugin's routes, so each application here asks for a login, and each route for a permission
on the coordination connection that it works on: who may see the connection may look, who may change it may act.
"""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.core_api.security import get_user, requires_access_connection, requires_authenticated
from fastapi import Depends


def anybody_logged_in() -> Any:
    """Return the dependency that refuses those who are not logged in."""
    return Depends(requires_authenticated())


def may_read_connection() -> Any:
    """Return the dependency that refuses those who may not see the connection `connection_id` of the path."""
    return Depends(requires_access_connection("GET"))


def may_change_connection() -> Any:
    """Return the dependency that refuses those who may not change the connection `connection_id` of the path."""
    return Depends(requires_access_connection("PUT"))


async def user_name(user: Any = Depends(get_user)) -> str:  # noqa: B008 - how FastAPI is told
    """Return the name of whoever calls."""
    return str(user.get_name())
