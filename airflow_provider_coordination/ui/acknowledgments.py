"""Acknowledgments over HTTP, for systems outside Airflow: what is pending, and releases."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from pydantic import BaseModel, ConfigDict, StrictBool

from airflow_provider_coordination.coordination.acknowledgment import record_of
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.sources.batches import SourceBatches
from airflow_provider_coordination.ui.access import may_change_connection, may_read_connection, user_name
from airflow_provider_coordination.ui.sources import opened_source

log = logging.getLogger(__name__)

# A source and a set may have slashes in their names; a proxy may have decoded them.
SETS = "/connections/{connection_id}/sources/{source:path}/acknowledgments"
ONE_SET = SETS + "/{set_id:path}"


class ReleaseBody(BaseModel):
    """What a release is told.

    :param positive: whether the data arrived.
    :param handle: whose reference; may be left out where the set has one handle that is released from outside.
    :param reason: why not; needed where `positive` is false.
    :param release_id: the release's identity, repeated when the call is; the handle's name by default.
    """

    model_config = ConfigDict(extra="forbid")

    positive: StrictBool
    handle: str | None = None
    reason: str | None = None
    release_id: str | None = None


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    routes.post(ONE_SET + "/release", dependencies=[may_change_connection(), Depends(_require_json)])(release)
    routes.get(ONE_SET, dependencies=[may_read_connection()])(read)
    routes.get(SETS, dependencies=[may_read_connection()])(pending)
    return routes


def pending(
    connection_id: str,
    source: str,
    run: str | None = None,
    batch_id: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[dict[str, Any]]:
    """Return the pending sets of a source, those that expire first at first; of a run or a batch, if one is given."""
    with _sets(connection_id, source) as sets:
        found = (s for s in sets.pending(run=run) if batch_id in (None, s.batch_id))
        return [record_of(s) for s in islice(found, limit)]


def read(connection_id: str, source: str, set_id: str) -> dict[str, Any]:
    """Return a set as it is now."""
    with _sets(connection_id, source) as sets:
        return record_of(sets.get(set_id))


def release(
    connection_id: str, source: str, set_id: str, body: ReleaseBody, user: Annotated[str, Depends(user_name)]
) -> dict[str, Any]:
    """Release a reference of a set; return what that did, and the set as it is now."""
    with _sets(connection_id, source) as sets:
        written, effect = sets.acknowledge(
            set_id, positive=body.positive, handle=body.handle, release_id=body.release_id, reason=body.reason
        )
    log.info(
        "acknowledgment set %s over HTTP: source=%s partition=%s set=%s positive=%s state=%s user=%s",
        effect, source, written.partition_key, set_id, body.positive, written.state, user,
    )  # fmt: skip
    return {"effect": str(effect), "acknowledgment_set": record_of(written)}


@contextmanager
def _sets(connection_id: str, source: str) -> Iterator[AcknowledgmentSets]:
    with opened_source(connection_id, source) as coordinator:
        yield AcknowledgmentSets(coordinator, SourceBatches())


def _require_json(request: Request) -> None:
    """Refuse what a form of another site could send with the user's cookie."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(415, f"content type {media_type!r} is not taken; send application/json")
