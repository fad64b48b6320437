"""Acknowledgments over HTTP, for systems outside Airflow: pending sets, and releases."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentView, record_of
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.ui.access import UserName, audit, may_change_connection, may_read_connection
from airflow_provider_coordination.ui.bodies import Key, ReleaseBody
from airflow_provider_coordination.ui.store_queries import SOURCE, Queries, QueryScheduler, json_response

# The name of a set may contain slashes too.
SETS = SOURCE + "/acknowledgments"
ONE_SET = SETS + "/{set_id:path}"


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    checks = may_change_connection("coordination.release_acknowledgment", ReleaseBody)
    routes.post(ONE_SET + "/release", dependencies=checks)(release)
    routes.get(ONE_SET, dependencies=[may_read_connection()])(read)
    routes.get(SETS, dependencies=[may_read_connection()])(pending)
    return routes


async def pending(
    queries: Queries,
    connection_id: str,
    source: str,
    run: str | None = None,
    batch_id: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Return the pending sets of a source, or of one of its runs or batches. Those that expire first come first."""

    def read_sets(sets: AcknowledgmentView) -> list[dict[str, Any]]:
        found = (s for s in sets.pending(run=run) if batch_id in (None, s.batch_id))
        return [record_of(s) for s in islice(found, limit)]

    return await _query_sets(queries, connection_id, source, ("sets", source, run, batch_id, limit), read_sets)


async def read(queries: Queries, connection_id: str, source: str, set_id: Key) -> Response:
    """Return the current state of a set."""
    return await _query_sets(
        queries, connection_id, source, ("set", source, set_id), lambda sets: record_of(sets.get(set_id))
    )


async def release(
    queries: Queries, connection_id: str, source: str, set_id: Key, body: ReleaseBody, user: UserName
) -> Response:
    """Release a reference of a set; return the effect, and the current state of the set."""

    def released(coordinator: SourceCoordinator) -> bytes:
        written, effect = AcknowledgmentSets(coordinator, SourceBatches()).acknowledge(
            set_id,
            positive=body.positive,
            handle=body.handle,
            release_id=body.release_id,
            reason=body.reason,
            version=body.version,
            by=user,
        )
        action = f"{'positive' if body.positive else 'negative'} release of acknowledgment set {set_id!r}"
        outcome = f"{written.partition_key}: {effect}, {written.state}"
        audit(user, action, connection_id, source, reason=body.reason or "", outcomes=[outcome])
        return json.dumps({"effect": str(effect), "acknowledgment_set": record_of(written)}).encode()

    return json_response(
        await queries.run_action(connection_id, lambda: queries.stores.change_source(connection_id, source, released))
    )


async def _query_sets(
    queries: QueryScheduler,
    connection_id: str,
    source: str,
    what: tuple[Any, ...],
    query: Callable[[AcknowledgmentView], Any],
) -> Response:
    def read_json() -> bytes:
        found = queries.stores.query_source(connection_id, source, lambda view: query(AcknowledgmentView(view)))
        return json.dumps(found).encode()

    return json_response(await queries.read(connection_id, what, read_json))
