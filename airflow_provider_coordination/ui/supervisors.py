"""The supervisors of a connection's sources: how they stand, their specs, and what a person may ask of them."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime

from fastapi import APIRouter, Response

from airflow_provider_coordination.coordination.errors import SupervisorNotFoundError
from airflow_provider_coordination.supervisor.operations import no_supervisor, supervised_sources
from airflow_provider_coordination.supervisor.status import read_status
from airflow_provider_coordination.ui.access import may_read_connection
from airflow_provider_coordination.ui.answers import SOURCE, json_answer, json_response, json_text
from airflow_provider_coordination.ui.asking import DEAR, AtDesk, Desk
from airflow_provider_coordination.ui.models import SupervisorList, SupervisorStatus

log = logging.getLogger(__name__)

SUPERVISORS = "/connections/{connection_id}/supervisors"
SUPERVISOR = SOURCE + "/supervisor"
STATUS_REST = 3.0
"""To count what is finished is dear on DynamoDB."""


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    may_read = [may_read_connection()]
    routes.get(SUPERVISORS, dependencies=may_read, response_model=SupervisorList)(supervisors)
    routes.get(SUPERVISOR, dependencies=may_read, response_model=SupervisorStatus)(supervisor)
    return routes


# What anybody may see


async def supervisors(desk: AtDesk, connection_id: str) -> Response:
    """Return how the supervisors of a connection's sources stand, by source, without the lag of each partition."""
    as_of = datetime.now(UTC)
    names = await desk.look(
        connection_id, "supervisors", lambda: _supervised(desk, connection_id), rest=DEAR, is_lasting=True
    )
    found = await asyncio.gather(*(_row(desk, connection_id, name, among=len(names)) for name in names))
    head = b'{"as_of":' + json.dumps(f"{as_of:%Y-%m-%dT%H:%M:%S.%f}Z").encode()
    return json_response(head + b',"supervisors":[' + b",".join(row for row in found if row is not None) + b"]}")


async def supervisor(desk: AtDesk, connection_id: str, source: str) -> Response:
    """Return how the supervisor of a source stands."""
    return await json_answer(
        desk, connection_id, ("supervisor", source), lambda: _status(desk, connection_id, source), rest=STATUS_REST
    )


def _supervised(desk: Desk, connection_id: str) -> list[str]:
    settings = desk.stores.settings(connection_id)
    return desk.stores.ask(settings.store, lambda store: supervised_sources(store, settings.prefix))


async def _row(desk: Desk, connection_id: str, source: str, among: int) -> bytes | None:
    def asked() -> bytes | None:
        found = desk.stores.ask_source(connection_id, source, read_status)
        if found is None:
            return None
        return json_text(SupervisorStatus.model_validate({**found, "lag": {**found["lag"], "partitions": {}}}))

    return await desk.look(connection_id, ("supervisor row", source), asked, rest=STATUS_REST, among=among)


def _status(desk: Desk, connection_id: str, source: str) -> SupervisorStatus:
    found = desk.stores.ask_source(connection_id, source, read_status)
    if found is None:
        raise SupervisorNotFoundError(no_supervisor(source))
    return SupervisorStatus.model_validate(found)
