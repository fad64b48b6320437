"""Access control: the one module that uses Airflow's internal API of the API server.

Airflow does not protect the routes of a plugin. So the application requires a login, and each route a permission on the
coordination connection that it uses: users who may read the connection may view its sources, and users who may edit it
may act on them. If `viewers_may_read` is set, users who may read the logs of all tasks, as Airflow's viewers may, may
view them too. Actions are refused to pages of other sites, which could use the cookie of a user's browser, and are
written to Airflow's audit log.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user, requires_access_connection, requires_authenticated
from airflow.api_fastapi.logging.decorators import action_logging
from airflow.models import connection as stored
from airflow.models.dag import DagModel
from airflow.secrets.environment_variables import CONN_ENV_PREFIX
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from sqlalchemy import select

from airflow_provider_coordination.airflow_names import conf
from airflow_provider_coordination.hooks.coordination import CoordinationHook

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod

log = logging.getLogger(__name__)

MAX_BODY_CHARACTERS = 48_000
"""Airflow's audit log keeps the body of an action, in a text of at most 64 KB in MySQL."""
MAX_NAME_CHARACTERS = 100
"""How much of an unknown name an error quotes."""
OWN_SITES = ("same-origin", "none")
"""The values of `Sec-Fetch-Site` for requests of Airflow's own pages, and of the user."""


def requires_login() -> Any:
    """Return the dependency that refuses users who are not logged in."""
    return Depends(requires_authenticated())


def may_read_connection() -> Any:
    """Return the dependency that refuses users who may not view the sources of the connection `connection_id`."""
    return Depends(_require_view_access)


def may_edit_connection() -> Any:
    """Return the dependency that refuses users who may not edit the connection `connection_id`, of the path."""
    return Depends(requires_access_connection("PUT"))


def may_change_connection(event: str, body: type[BaseModel]) -> list[Any]:
    """Return the dependencies of an action, in the order in which they run.

    They refuse users who may not edit the connection `connection_id` of the path, requests of other sites, and invalid
    bodies. What passes is written to Airflow's audit log before it is done.

    :param event: the name of the action in the audit log.
    :param body: the model of the body. Airflow's audit log reads some fields of a body, such as `dag_id`, and fails if
        they have other types than it expects. A body with such a field is refused before.
    """
    return [
        may_edit_connection(),
        Depends(refuse_cross_site),
        Depends(refuse_query),
        Depends(require(body)),
        Depends(action_logging(event)),
    ]


async def user_name(user: Any = Depends(get_user)) -> str:  # noqa: B008 - as FastAPI requires
    """Return the name of the calling user."""
    return str(user.get_name())


UserName = Annotated[str, Depends(user_name)]


async def refuse_cross_site(request: Request) -> None:
    """Refuse a request that a page of another site makes with the cookie of the user's browser.

    Programs send neither `Sec-Fetch-Site` nor `Origin`, and are accepted.

    :raises HTTPException: if the request comes from another site.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    own = {request.headers.get("host", ""), _host_of(conf.get("api", "base_url", fallback="") or "")} - {""}
    if site not in (None, *OWN_SITES) or (origin is not None and _host_of(origin) not in own):
        raise HTTPException(403, "this request comes from another site; open Airflow and try again there")


def _host_of(url: str) -> str:
    """Return the host of a URL with its port; empty if it has none, or is invalid."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


async def refuse_query(request: Request) -> None:
    """Refuse query parameters of an action, which would be ignored.

    :raises HTTPException: if there is a query parameter.
    """
    if request.query_params:
        name = next(iter(request.query_params))[:MAX_NAME_CHARACTERS]
        raise HTTPException(422, f"query.{name}: an action accepts no query parameters; send it in the body")


def require(body: type[BaseModel]) -> Callable[[Request], Awaitable[None]]:
    """Return the dependency that refuses forms of other sites, bodies that are too long, and invalid bodies."""

    async def require_json(request: Request) -> None:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise HTTPException(415, f"content type {media_type!r} is not accepted; send application/json")
        try:
            values = await request.json()
            size = len(json.dumps(values))
        except (ValueError, RecursionError):
            raise HTTPException(422, "body: not valid JSON; send an object with the fields of this action") from None
        if size > MAX_BODY_CHARACTERS:
            raise HTTPException(
                413,
                f"the body has {size} characters, and {MAX_BODY_CHARACTERS} are allowed; "
                "send less at once, such as fewer partitions",
            )
        try:
            body.model_validate(values)
        except ValidationError as error:
            raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from None

    return require_json


@dataclass(frozen=True)
class Visitor:
    """A user who is logged in.

    :param user: the user, as Airflow's auth manager returns it.
    :param viewers_may_read: whether users who may read the logs of all tasks may view sources.
    """

    user: Any
    viewers_may_read: bool = False

    def may_view(self, connection_id: str) -> bool:
        """Return whether the user may view the sources of a connection. Reads Airflow's database if it has teams."""
        return self.may_read(connection_id) or (self.viewers_may_read and self._may_read_logs(connection_id))

    def may_read(self, connection_id: str) -> bool:
        """Return whether the user may read a connection. Reads Airflow's database if it has teams."""
        return self._may("GET", connection_id)

    def may_change(self, connection_id: str) -> bool:
        """Return whether the user may edit a connection. Reads Airflow's database if it has teams."""
        return self._may("PUT", connection_id)

    def _may(self, method: ResourceMethod, connection_id: str) -> bool:
        details = ConnectionDetails(conn_id=connection_id, team_name=self._team(connection_id))
        return bool(get_auth_manager().is_authorized_connection(method=method, details=details, user=self.user))

    def _may_read_logs(self, connection_id: str) -> bool:
        return bool(
            get_auth_manager().is_authorized_dag(
                method="GET",
                access_entity=DagAccessEntity.TASK_LOGS,
                details=DagDetails(team_name=self._team(connection_id)),
                user=self.user,
            )
        )

    def _team(self, connection_id: str) -> str | None:
        return stored.Connection.get_team_name(connection_id) if self._has_teams else None

    @cached_property
    def _has_teams(self) -> bool:
        return bool(conf.getboolean("core", "multi_team", fallback=False))


async def visitor(request: Request, user: Any = Depends(get_user)) -> Visitor:  # noqa: B008 - as FastAPI requires
    """Return the calling user."""
    return Visitor(user, request.app.state.viewers_may_read)


AnyVisitor = Annotated[Visitor, Depends(visitor)]


def _require_view_access(connection_id: str, visitor: AnyVisitor) -> None:
    """Refuse users who may not view a connection's sources.

    It is not `async`, so that it waits for Airflow's database in a thread, as Airflow's own dependencies do.

    :raises HTTPException: if the user may not.
    """
    if not visitor.may_view(connection_id):
        raise HTTPException(403, "Forbidden")


def coordination_connections() -> list[str]:
    """Return the connections of type `coordination` in Airflow's database and in the environment, and the default one.

    Connections of other secrets backends cannot be listed. The default one is included even if it is not defined.
    """
    wanted = CoordinationHook.conn_type
    with create_session(scoped=False) as session:
        names = select(stored.Connection.conn_id).where(stored.Connection.conn_type == wanted)
        found = set(session.scalars(names))
    return sorted(found | _of_environment(os.environ, wanted) | {CoordinationHook.default_conn_name})


def is_paused(dag_id: str) -> bool | None:
    """Return whether a DAG is paused; None if Airflow has no such DAG."""
    with create_session(scoped=False) as session:
        found: bool | None = session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag_id))
        return found


def _of_environment(environment: Mapping[str, str], wanted: str) -> set[str]:
    names = set()
    for name, value in environment.items():
        if name.startswith(CONN_ENV_PREFIX) and _type_of(value) == wanted:
            names.add(name.removeprefix(CONN_ENV_PREFIX).lower())
    return names


def _type_of(connection: str) -> str:
    """Return the type of a connection of the environment, which is a JSON object or a URI."""
    if not connection.lstrip().startswith("{"):
        return connection.partition("://")[0].replace("-", "_")
    try:
        return str(json.loads(connection).get("conn_type"))
    except ValueError:
        return ""


def audit(user: str, action: str, connection_id: str, source: str, *, reason: str, outcomes: Iterable[str]) -> None:
    """Log an action of a user and its outcome.

    :param outcomes: the outcome for each thing that was changed, such as `key: done`.
    """
    log.info(
        "%s by %r over HTTP: connection=%r source=%r reason=%r outcome=%r",
        action, user, connection_id, source, reason, list(outcomes),
    )  # fmt: skip
