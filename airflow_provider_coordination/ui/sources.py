"""The connections, their sources, and the status of each source."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi import APIRouter, HTTPException, Response

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.interval_names import intervals_of
from airflow_provider_coordination.coordination.source_statistics import known_sources
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.ui.access import AnyVisitor, Visitor, coordination_connections, may_read_connection
from airflow_provider_coordination.ui.cards import SourceCard, source_card
from airflow_provider_coordination.ui.store_queries import (
    EXPENSIVE,
    SOURCE,
    Queries,
    QueryScheduler,
    json_response,
    json_text,
)

log = logging.getLogger(__name__)

CARD_COOLDOWN = 3.0
"""Counting completed partitions is expensive on DynamoDB."""
RARELY = 100.0
"""The cooldown of the list of sources where it is not waited for, so that users of a page of a source cost little."""
NAMES_SECONDS = 0.2
"""How long the status of a source waits for the list of sources."""
UNUSABLE = "only users who may read the connection see why"


@dataclass(frozen=True, kw_only=True)
class ConnectionRow:
    """A connection of type `coordination`. `problem` is why it cannot be used."""

    connection_id: str
    may_change: bool
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class Connections:
    """The connections that the user may view."""

    connections: list[ConnectionRow]


@dataclass(frozen=True, kw_only=True)
class SourceCards:
    """The status of each source of a connection, by name."""

    as_of: datetime
    sources: list[SourceCard]


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    # Every user who is logged in may call it, and gets the connections that they may view.
    routes.get("/connections", response_model=Connections)(connections)
    sources_of = "/connections/{connection_id}/sources"
    routes.get(sources_of, dependencies=[may_read_connection()], response_model=SourceCards)(sources)
    routes.get(SOURCE + "/summary", dependencies=[may_read_connection()], response_model=SourceCard)(summary)
    return routes


async def connections(queries: Queries, visitor: AnyVisitor) -> Response:
    """Return the connections of type `coordination` that the user may view, with the problem of each."""
    known = await known_connections(queries)
    rows = await queries.run(lambda: _allowed(visitor, known))
    return json_response(json_text(Connections(connections=rows)))


async def known_connections(queries: QueryScheduler) -> list[tuple[str, str | None]]:
    """Return all connections of type `coordination`, each with its problem."""
    return await queries.read("", "connections", lambda: _known(queries))


async def sources(queries: Queries, connection_id: str) -> Response:
    """Return the status of each source of a connection, by name."""
    as_of = datetime.now(UTC)
    names = await source_names(queries, connection_id)
    cards = await asyncio.gather(
        *(_card(queries, connection_id, name, bool(intervals_of(name, names)), similar=len(names)) for name in names)
    )
    # Each one is JSON already, and shared by all requests.
    head = b'{"as_of":' + json.dumps(f"{as_of:%Y-%m-%dT%H:%M:%S.%f}Z").encode()
    return json_response(head + b',"sources":[' + b",".join(cards) + b"]}")


async def summary(queries: Queries, connection_id: str, source: str) -> Response:
    """Return the status of a source."""
    has_backfills = await is_backfilled(queries, connection_id, source)
    return json_response(await _card(queries, connection_id, source, has_backfills))


async def source_names(queries: QueryScheduler, connection_id: str) -> list[str]:
    """Return the names of a connection's sources."""
    return await queries.read(
        connection_id, "sources", lambda: _names(queries, connection_id), cooldown=EXPENSIVE, survives_actions=True
    )


async def is_backfilled(queries: QueryScheduler, connection_id: str, source: str) -> bool:
    """Return whether runs ingest intervals of a source, by the list of sources as it was last read."""
    names = await queries.read_latest(
        connection_id, "sources", lambda: _names(queries, connection_id), cooldown=RARELY, seconds=NAMES_SECONDS
    )
    return bool(intervals_of(source, names or ()))


def card_of(queries: QueryScheduler, connection_id: str, source: str, *, has_backfills: bool) -> SourceCard:
    """Return the status of a source from the store."""
    return queries.stores.query_source(
        connection_id, source, lambda view: source_card(view, connection_id, has_backfills=has_backfills)
    )


async def _card(
    queries: QueryScheduler, connection_id: str, source: str, has_backfills: bool, similar: int = 1
) -> bytes:
    def read_card() -> bytes:
        return json_text(card_of(queries, connection_id, source, has_backfills=has_backfills))

    what = ("card", source, has_backfills)
    return await queries.read(connection_id, what, read_card, cooldown=CARD_COOLDOWN, similar=similar)


def _names(queries: QueryScheduler, connection_id: str) -> list[str]:
    settings = queries.stores.settings(connection_id)
    return queries.stores.query(settings.store, lambda store: known_sources(store, settings.prefix))


def _known(queries: QueryScheduler) -> list[tuple[str, str | None]]:
    connections: list[tuple[str, str | None]] = []
    for connection_id in coordination_connections():
        try:
            queries.stores.settings(connection_id)
        except HTTPException:
            if connection_id != CoordinationHook.default_conn_name:  # it was just deleted
                connections.append((connection_id, f"connection {connection_id!r} is not defined"))
        except ConfigurationError as error:
            connections.append((connection_id, str(error)))
        except Exception as error:  # the text may contain a secret, and one broken connection must not hide the others
            log.exception("connection %r cannot be read", connection_id)
            problem = f"cannot be read ({type(error).__name__}); see the log of the API server"
            connections.append((connection_id, f"connection {connection_id!r} {problem}"))
        else:
            connections.append((connection_id, None))
    return connections


def _allowed(visitor: Visitor, known: list[tuple[str, str | None]]) -> list[ConnectionRow]:
    return [
        ConnectionRow(
            connection_id=connection_id,
            may_change=visitor.may_change(connection_id),
            # The text quotes the connection, which only users who may read it may see.
            problem=problem if problem is None or visitor.may_read(connection_id) else UNUSABLE,
        )
        for connection_id, problem in known
        if visitor.may_view(connection_id)
    ]
