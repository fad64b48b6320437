"""What somebody sees first: the connections, their sources, and how each source stands."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime

from fastapi import APIRouter, HTTPException, Response

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.known_sources import known_sources
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.ui.access import AnyVisitor, Visitor, coordination_connections, may_read_connection
from airflow_provider_coordination.ui.cards import source_card
from airflow_provider_coordination.ui.models.sources import ConnectionRow, Connections, SourceCard, SourceCards
from airflow_provider_coordination.ui.responses import SOURCE, json_response, json_text
from airflow_provider_coordination.ui.store_queries import DEAR, AtDesk, Desk

log = logging.getLogger(__name__)

CARD_REST = 3.0
"""To count what is finished is dear on DynamoDB."""
UNUSABLE = "it cannot be used; whoever manages Airflow's connections sees why"


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    # Whoever is logged in may ask, and sees those connections that are theirs to see.
    routes.get("/connections", response_model=Connections)(connections)
    sources_of = "/connections/{connection_id}/sources"
    routes.get(sources_of, dependencies=[may_read_connection()], response_model=SourceCards)(sources)
    routes.get(SOURCE + "/summary", dependencies=[may_read_connection()], response_model=SourceCard)(summary)
    return routes


async def connections(desk: AtDesk, visitor: AnyVisitor) -> Response:
    """Return the connections of type `coordination` that the caller may see, with what is wrong with each."""
    known = await known_connections(desk)
    rows = await desk.aside(lambda: _allowed(visitor, known))
    return json_response(json_text(Connections(connections=rows)))


async def known_connections(desk: Desk) -> list[tuple[str, str | None]]:
    """Return the connections there are, whoever may see them, each with what is wrong with it."""
    return await desk.look("", "connections", lambda: _known(desk))


async def sources(desk: AtDesk, connection_id: str) -> Response:
    """Return how the sources of a connection's store stand, by name."""
    as_of = datetime.now(UTC)
    names = await source_names(desk, connection_id)
    cards = await asyncio.gather(*(_card(desk, connection_id, name, among=len(names)) for name in names))
    # Each is JSON already, made once for all who ask.
    head = b'{"as_of":' + json.dumps(f"{as_of:%Y-%m-%dT%H:%M:%S.%f}Z").encode()
    return json_response(head + b',"sources":[' + b",".join(cards) + b"]}")


async def summary(desk: AtDesk, connection_id: str, source: str) -> Response:
    """Return how a source stands."""
    return json_response(await _card(desk, connection_id, source))


async def source_names(desk: Desk, connection_id: str) -> list[str]:
    """Return the names of a connection's sources."""
    return await desk.look(connection_id, "sources", lambda: _names(desk, connection_id), rest=DEAR, is_lasting=True)


def card_of(desk: Desk, connection_id: str, source: str) -> SourceCard:
    """Return how a source stands; asks the store."""
    return desk.stores.ask_source(connection_id, source, lambda view: source_card(view, connection_id))


async def _card(desk: Desk, connection_id: str, source: str, among: int = 1) -> bytes:
    def asked() -> bytes:
        return json_text(card_of(desk, connection_id, source))

    return await desk.look(connection_id, ("card", source), asked, rest=CARD_REST, among=among)


def _names(desk: Desk, connection_id: str) -> list[str]:
    settings = desk.stores.settings(connection_id)
    return desk.stores.ask(settings.store, lambda store: known_sources(store, settings.prefix))


def _known(desk: Desk) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for connection_id in coordination_connections():
        try:
            desk.stores.settings(connection_id)
        except HTTPException:
            if connection_id != CoordinationHook.default_conn_name:  # it was deleted in this moment
                found.append((connection_id, f"connection {connection_id!r} is not defined"))
        except ConfigurationError as error:
            found.append((connection_id, str(error)))
        except Exception as error:  # the text may hold a secret; and one connection hides no other
            log.exception("connection %r cannot be read", connection_id)
            problem = f"it cannot be read: {type(error).__name__}; the API server's log says more"
            found.append((connection_id, f"connection {connection_id!r}: {problem}"))
        else:
            found.append((connection_id, None))
    return found


def _allowed(visitor: Visitor, known: list[tuple[str, str | None]]) -> list[ConnectionRow]:
    return [
        ConnectionRow(
            connection_id=connection_id,
            may_change=visitor.may_change(connection_id),
            # The text repeats what the connection says, which is for those who may read it.
            problem=problem if problem is None or visitor.may_read(connection_id) else UNUSABLE,
        )
        for connection_id, problem in known
        if visitor.may_look(connection_id)
    ]
