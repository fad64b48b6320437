"""Who may do what: the one module that uses Airflow's internal API of the API server.

Airflow lets anybody call a plugin's routes, so each application here asks for a login, and each route for a permission
on the coordination connection that it works on: who may see the connection may look, who may change it may act. Where
the deployment says so, who may read the logs of all tasks, as Airflow's viewers may, looks too. What acts is refused to
other sites, which a browser would let use its user's cookie, and written to Airflow's audit log.
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
from airflow.configuration import conf
from airflow.models import connection as stored
from airflow.models.dag import DagModel
from airflow.secrets.environment_variables import CONN_ENV_PREFIX
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from sqlalchemy import select

from airflow_provider_coordination.hooks.coordination import CoordinationHook

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod

log = logging.getLogger(__name__)

MAX_BODY_CHARACTERS = 48_000
"""The body of an action goes into Airflow's audit log, whose text has 64 KB in MySQL."""
MAX_NAME_CHARACTERS = 100
"""So much is repeated of a name that is not taken."""
OWN_SITES = ("same-origin", "none")
"""What a browser says of a request that the page itself makes, or its user."""


def anybody_logged_in() -> Any:
    """Return the dependency that refuses those who are not logged in."""
    return Depends(requires_authenticated())


def may_read_connection() -> Any:
    """Return the dependency that refuses those who may not look at what the connection `connection_id` leads to."""
    return Depends(_refuse_strangers)


def may_change_connection(event: str, body: type[BaseModel]) -> list[Any]:
    """Return the dependencies of what changes something, in the order in which they are asked.

    They refuse those who may not change the connection `connection_id` of the path, other sites, and what is not such a
    body; what is left is written to Airflow's audit log, before it is done.

    :param event: what it is called there.
    :param body: what is sent. Airflow's audit log takes some fields of an action's own, such as `dag_id`, as they are,
        and fails where they are not what it expects: none of those gets there.
    """
    return [
        Depends(requires_access_connection("PUT")),
        Depends(refuse_cross_site),
        Depends(refuse_query),
        Depends(require(body)),
        Depends(action_logging(event)),
    ]


async def user_name(user: Any = Depends(get_user)) -> str:  # noqa: B008 - how FastAPI is told
    """Return the name of whoever calls."""
    return str(user.get_name())


UserName = Annotated[str, Depends(user_name)]


async def refuse_cross_site(request: Request) -> None:
    """Refuse what the page of another site makes a browser send, with its user's cookie.

    Programs say neither where they are nor where they come from, and are let in.

    :raises HTTPException: if it comes from there.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    own = {request.headers.get("host", ""), _host_of(conf.get("api", "base_url", fallback="") or "")} - {""}
    if site not in (None, *OWN_SITES) or (origin is not None and _host_of(origin) not in own):
        raise HTTPException(403, "this request comes from another site; open Airflow itself, and try again there")


def _host_of(url: str) -> str:
    """Return the host of an address, with its port; empty where it has none, or is no address."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


async def refuse_query(request: Request) -> None:
    """Refuse what is given in the address of an action, where nobody looks at it.

    :raises HTTPException: if there is anything.
    """
    if request.query_params:
        name = next(iter(request.query_params))[:MAX_NAME_CHARACTERS]
        raise HTTPException(422, f"query.{name}: an action takes nothing in the query; send it in the body")


def require(body: type[BaseModel]) -> Callable[[Request], Awaitable[None]]:
    """Return what refuses a form of another site, what is too long, and what is not such a body."""

    async def require_json(request: Request) -> None:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise HTTPException(415, f"content type {media_type!r} is not taken; send application/json")
        try:
            given = await request.json()
            size = len(json.dumps(given))
        except (ValueError, RecursionError):
            raise HTTPException(422, "body: it is no JSON; send an object with the fields of this action") from None
        if size > MAX_BODY_CHARACTERS:
            raise HTTPException(
                413,
                f"the request has {size} characters and may have {MAX_BODY_CHARACTERS}; "
                "send less at once, such as fewer partitions",
            )
        try:
            body.model_validate(given)
        except ValidationError as error:
            raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from None

    return require_json


@dataclass(frozen=True)
class Visitor:
    """Somebody who is logged in.

    :param user: as Airflow knows them.
    :param viewers_may_look: whether whoever may read the logs of all tasks may look.
    """

    user: Any
    viewers_may_look: bool = False

    def may_look(self, connection_id: str) -> bool:
        """Return whether they may see what a connection leads to. Asks Airflow's database where it has teams."""
        return self.may_read(connection_id) or (self.viewers_may_look and self._may_read_logs(connection_id))

    def may_read(self, connection_id: str) -> bool:
        """Return whether they may see a connection. Asks Airflow's database where it has teams."""
        return self._may("GET", connection_id)

    def may_change(self, connection_id: str) -> bool:
        """Return whether they may change a connection. Asks Airflow's database where it has teams."""
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


async def visitor(request: Request, user: Any = Depends(get_user)) -> Visitor:  # noqa: B008 - how FastAPI is told
    """Return who calls."""
    return Visitor(user, request.app.state.viewers_may_look)


AnyVisitor = Annotated[Visitor, Depends(visitor)]


def _refuse_strangers(connection_id: str, visitor: AnyVisitor) -> None:
    """Refuse who may not look. Not `async`, so that it waits for Airflow's database in a thread, as Airflow's own do.

    :raises HTTPException: if they may not.
    """
    if not visitor.may_look(connection_id):
        raise HTTPException(403, "Forbidden")


def coordination_connections() -> list[str]:
    """Return the connections of type `coordination` in Airflow's database and in the environment, and the default one.

    Those of other secrets backends cannot be listed. The default one is there whether it is defined or not.
    """
    wanted = CoordinationHook.conn_type
    with create_session(scoped=False) as session:
        names = select(stored.Connection.conn_id).where(stored.Connection.conn_type == wanted)
        found = set(session.scalars(names))
    return sorted(found | _of_environment(os.environ, wanted) | {CoordinationHook.default_conn_name})


def is_paused(dag_id: str) -> bool | None:
    """Return whether a DAG is paused; None if Airflow has none of this name."""
    with create_session(scoped=False) as session:
        found: bool | None = session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag_id))
        return found


def _of_environment(environment: Mapping[str, str], wanted: str) -> set[str]:
    found = set()
    for name, value in environment.items():
        if name.startswith(CONN_ENV_PREFIX) and _type_of(value) == wanted:
            found.add(name.removeprefix(CONN_ENV_PREFIX).lower())
    return found


def _type_of(connection: str) -> str:
    """Return the type of a connection as the environment defines it: a JSON object, or a URI."""
    if not connection.lstrip().startswith("{"):
        return connection.partition("://")[0].replace("-", "_")
    try:
        return str(json.loads(connection).get("conn_type"))
    except ValueError:
        return ""


def audit(user: str, action: str, connection_id: str, source: str, *, reason: str, outcomes: Iterable[str]) -> None:
    """Log what somebody did, and what became of it.

    :param outcomes: what was touched and what became of it, such as `key: done`.
    """
    log.info(
        "%s by %r over HTTP: connection=%r source=%r reason=%r outcome=%r",
        action, user, connection_id, source, reason, list(outcomes),
    )  # fmt: skip
