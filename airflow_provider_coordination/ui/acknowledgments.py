"""Acknowledgments over HTTP, for systems outside Airflow: what is pending, and releases."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, StrictBool, StrictInt

from airflow_provider_coordination.coordination.acknowledgment import record_of
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.acknowledgment_view import AcknowledgmentView
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.batches import SourceBatches
from airflow_provider_coordination.ui.access import UserName, audit, may_change_connection, may_read_connection
from airflow_provider_coordination.ui.models.values import Key
from airflow_provider_coordination.ui.responses import SOURCE, json_response
from airflow_provider_coordination.ui.store_queries import AtDesk, Desk

# A set may have slashes in its name as well.
SETS = SOURCE + "/acknowledgments"
ONE_SET = SETS + "/{set_id:path}"


class ReleaseBody(BaseModel):
    """What a release is told.

    :param positive: whether the data arrived.
    :param handle: whose reference; may be left out where the set has one handle that is released from outside.
    :param reason: why not; needed where `positive` is false.
    :param release_id: the release's identity, repeated when the call is; the handle's name by default.
    :param version: of the set as the caller saw it: nothing is released if it has changed since.
    """

    model_config = ConfigDict(extra="forbid")

    positive: StrictBool
    handle: str | None = None
    reason: str | None = None
    release_id: str | None = None
    version: StrictInt | None = None


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    asked_first = may_change_connection("coordination.release_acknowledgment", ReleaseBody)
    routes.post(ONE_SET + "/release", dependencies=asked_first)(release)
    routes.get(ONE_SET, dependencies=[may_read_connection()])(read)
    routes.get(SETS, dependencies=[may_read_connection()])(pending)
    return routes


async def pending(
    desk: AtDesk,
    connection_id: str,
    source: str,
    run: str | None = None,
    batch_id: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Return the pending sets of a source, those that expire first at first; of a run or a batch, if one is given."""

    def asked(sets: AcknowledgmentView) -> list[dict[str, Any]]:
        found = (s for s in sets.pending(run=run) if batch_id in (None, s.batch_id))
        return [record_of(s) for s in islice(found, limit)]

    return await _looked(desk, connection_id, source, ("sets", source, run, batch_id, limit), asked)


async def read(desk: AtDesk, connection_id: str, source: str, set_id: Key) -> Response:
    """Return a set as it is now."""
    return await _looked(desk, connection_id, source, ("set", source, set_id), lambda sets: record_of(sets.get(set_id)))


async def release(
    desk: AtDesk, connection_id: str, source: str, set_id: Key, body: ReleaseBody, user: UserName
) -> Response:
    """Release a reference of a set; return what that did, and the set as it is now."""

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
        await desk.act(connection_id, lambda: desk.stores.act_on_source(connection_id, source, released))
    )


async def _looked(
    desk: Desk, connection_id: str, source: str, what: tuple[Any, ...], question: Callable[[AcknowledgmentView], Any]
) -> Response:
    def asked() -> bytes:
        answer = desk.stores.ask_source(connection_id, source, lambda view: question(AcknowledgmentView(view)))
        return json.dumps(answer).encode()

    return json_response(await desk.look(connection_id, what, asked))
