"""The supervisors of a connection's sources: how they stand, their specs, and what a person may ask of them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Response
from pydantic import BaseModel

from airflow_provider_coordination.coordination.errors import (
    PartitionUpdateError,
    SourceError,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.hooks.source_checks import checks_against_source
from airflow_provider_coordination.supervisor.operations import (
    UNANSWERED,
    SupervisorVerbs,
    existing_status,
    for_all,
    read_history,
    read_spec,
    supervised_sources,
)
from airflow_provider_coordination.supervisor.status import read_parse_errors, read_status
from airflow_provider_coordination.ui.access import (
    UserName,
    audit,
    is_paused,
    may_change_connection,
    may_read_connection,
)
from airflow_provider_coordination.ui.models.actions import ReasonBody, ResumeBody
from airflow_provider_coordination.ui.models.specs import SpecDetail, SpecHistory
from airflow_provider_coordination.ui.models.supervisors import (
    ParseErrors,
    SourceStats,
    SupervisorHealth,
    SupervisorList,
    SupervisorStatus,
)
from airflow_provider_coordination.ui.models.verbs import (
    ResetAllBody,
    ResetBody,
    ResetFacts,
    SubmissionFacts,
    SubmitBody,
    VerbOutcomeFacts,
    VerbOutcomes,
)
from airflow_provider_coordination.ui.responses import SOURCE, json_answer, json_response, json_text
from airflow_provider_coordination.ui.store_queries import DEAR, AtDesk, Desk

log = logging.getLogger(__name__)

SUPERVISORS = "/connections/{connection_id}/supervisors"
SUPERVISOR = SOURCE + "/supervisor"
STATUS_REST = 3.0
"""To count what is finished is dear on DynamoDB."""
MAX_VERSIONS = 50

Answer = Callable[..., Any]


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    reads: tuple[tuple[str, Answer, type[BaseModel]], ...] = (
        (SUPERVISORS, supervisors, SupervisorList),
        (SUPERVISOR, supervisor, SupervisorStatus),
        (f"{SUPERVISOR}/spec", spec, SpecDetail),
        (f"{SUPERVISOR}/history", history, SpecHistory),
        (f"{SUPERVISOR}/health", health, SupervisorHealth),
        (f"{SUPERVISOR}/stats", stats, SourceStats),
        (f"{SUPERVISOR}/parse-errors", parse_errors, ParseErrors),
    )
    for path, answer, model in reads:
        routes.get(path, dependencies=[may_read_connection()], response_model=model)(answer)
    acts: tuple[tuple[str, Answer, type[BaseModel], type[BaseModel]], ...] = (
        ("", submit, SubmitBody, SubmissionFacts),
        ("/suspend", suspend, ReasonBody, SupervisorStatus),
        ("/resume", resume, ResumeBody, SupervisorStatus),
        ("/reset", reset, ResetBody, ResetFacts),
        ("/handover", handover, ReasonBody, SupervisorStatus),
        ("/terminate", terminate, ReasonBody, SupervisorStatus),
    )
    for path, act, body, model in acts:
        event = f"coordination.{act.__name__}_supervisor"
        routes.post(SUPERVISOR + path, dependencies=may_change_connection(event, body), response_model=model)(act)
    on_all: dict[str, tuple[Answer, type[BaseModel]]] = {
        **{name: (_on_all(name, verb), ReasonBody) for name, verb in FOR_ALL.items()},
        "reset": (reset_all, ResetAllBody),
    }
    for name, (act, body) in on_all.items():
        event = f"coordination.{name}_all_supervisors"
        routes.post(
            f"{SUPERVISORS}/{name}",
            dependencies=may_change_connection(event, body),
            response_model=VerbOutcomes,
        )(act)
    return routes


# What there is to see


async def supervisors(desk: AtDesk, connection_id: str) -> Response:
    """Return how the supervisors of a connection's sources stand, by source, without what is many of each."""
    as_of = datetime.now(UTC)
    names = await desk.look(connection_id, "supervisors", lambda: _supervised(desk, connection_id), rest=DEAR)
    found = await asyncio.gather(*(_row(desk, connection_id, name, among=len(names)) for name in names))
    # Each is JSON already, made once for all who ask.
    head = b'{"as_of":' + json.dumps(f"{as_of:%Y-%m-%dT%H:%M:%S.%f}Z").encode()
    return json_response(head + b',"supervisors":[' + b",".join(row for row in found if row is not None) + b"]}")


async def supervisor(desk: AtDesk, connection_id: str, source: str) -> Response:
    """Return how the supervisor of a source stands."""
    return json_response(await _status_text(desk, connection_id, source))


async def spec(
    desk: AtDesk, connection_id: str, source: str, version: Annotated[int | None, Query(ge=1, le=10**6)] = None
) -> Response:
    """Return the spec that rules, or another version of it."""

    def asked(view: SourceView) -> SpecDetail:
        return SpecDetail.model_validate(read_spec(view, version))

    return await _answered(desk, connection_id, source, ("spec", version), asked)


async def history(
    desk: AtDesk, connection_id: str, source: str, limit: Annotated[int, Query(ge=1, le=MAX_VERSIONS)] = 20
) -> Response:
    """Return the latest versions of the spec, with who submitted each, why, and what it changed."""

    def asked(view: SourceView) -> SpecHistory:
        return SpecHistory.model_validate({"source": source, "versions": read_history(view, limit)})

    return await _answered(desk, connection_id, source, ("history", limit), asked)


async def health(desk: AtDesk, connection_id: str, source: str) -> Response:
    """Return whether the supervisor is healthy; 503 if it is not, for what only looks at the status of an answer."""
    found = json.loads(await _status_text(desk, connection_id, source))
    answer = json_response(json_text(SupervisorHealth.model_validate(found)))
    answer.status_code = 200 if found["healthy"] else 503
    return answer


async def stats(desk: AtDesk, connection_id: str, source: str) -> Response:
    """Return what the jobs counted, and their averages a second."""
    found = json.loads(await _status_text(desk, connection_id, source))
    return json_response(json_text(SourceStats.model_validate({**found, **found["stats"]})))


async def parse_errors(desk: AtDesk, connection_id: str, source: str) -> Response:
    """Return the bad records that jobs reported last, those of the last day."""

    def asked(view: SourceView) -> ParseErrors:
        return ParseErrors(source=source, errors=read_parse_errors(view))

    return await _answered(desk, connection_id, source, "parse errors", asked)


# What a person may ask of one


async def submit(desk: AtDesk, connection_id: str, source: str, body: SubmitBody, user: UserName) -> Response:
    """Store a spec, which rules from now on; a terminated supervisor begins anew."""
    region = await desk.aside(lambda: desk.stores.settings(connection_id).region)

    def ask(verbs: SupervisorVerbs) -> dict[str, Any]:
        check = checks_against_source(region, connect=body.connect)
        done = verbs.submit(body.spec, replacing=body.replacing, check=check)
        if done.unanswered:  # the text may hold the name of a host, or more
            log.warning("source %r did not answer about a spec: %s", source, done.unanswered)
        return {
            "version": done.version.version,
            "change": done.change.name,
            "consequence": done.consequence,
            "warnings": [UNANSWERED] if done.unanswered else [],
        }

    remedy = ", or submit the spec with 'connect' false, without asking the source"
    return await _asked(
        desk, connection_id, source, "spec submitted", ask, user, body.reason, SubmissionFacts, remedy=remedy
    )


async def suspend(desk: AtDesk, connection_id: str, source: str, body: ReasonBody, user: UserName) -> Response:
    """Suspend the source: jobs deliver what they have read and end, and none is started."""
    return await _asked(desk, connection_id, source, "suspension", SupervisorVerbs.suspend, user, body.reason)


async def resume(desk: AtDesk, connection_id: str, source: str, body: ResumeBody, user: UserName) -> Response:
    """Let a suspended source go on."""
    return await _asked(
        desk, connection_id, source, "end of the suspension", lambda verbs: verbs.resume(body.since), user, body.reason
    )


async def reset(desk: AtDesk, connection_id: str, source: str, body: ResetBody, user: UserName) -> Response:
    """Read the source anew, or some of its partitions; jobs take up what is reset at its new position."""
    region = await desk.aside(lambda: desk.stores.settings(connection_id).region)

    def ask(verbs: SupervisorVerbs) -> dict[str, Any]:
        done = verbs.reset(body.to, body.positions, default_region=region)
        return {
            "outcomes": [dataclasses.asdict(outcome) for outcome in done.outcomes],
            "left": dict(done.left),
            "warnings": list(done.warnings),
        }

    return await _asked(desk, connection_id, source, "reset", ask, user, body.reason, ResetFacts)


async def handover(desk: AtDesk, connection_id: str, source: str, body: ReasonBody, user: UserName) -> Response:
    """Have every job hand over to a new one now."""
    return await _asked(desk, connection_id, source, "handover", SupervisorVerbs.hand_over, user, body.reason)


async def terminate(desk: AtDesk, connection_id: str, source: str, body: ReasonBody, user: UserName) -> Response:
    """Terminate the supervisor: no job is started any more, those that run deliver what they have read and end."""
    return await _asked(desk, connection_id, source, "termination", SupervisorVerbs.terminate, user, body.reason)


async def _asked(
    desk: Desk,
    connection_id: str,
    source: str,
    what: str,
    verb: Callable[[SupervisorVerbs], object],
    user: str,
    reason: str,
    model: type[BaseModel] | None = None,
    remedy: str = "",
) -> Response:
    """Do what is asked of a supervisor, and return how it stands then.

    :param model: of the answer: what `verb` returns, and the status as `supervisor`; None for the status alone.
    :param remedy: what else helps where the source does not answer.
    """

    def act() -> bytes:
        done = desk.stores.act_on_source(
            connection_id, source, lambda coordinator: verb(SupervisorVerbs(coordinator, by=user, reason=reason))
        )
        audit(user, what, connection_id, source, reason=reason, outcomes=["done"])
        status = _status(desk, connection_id, source)
        if model is None or not isinstance(done, dict):
            return json_text(status)
        return json_text(model.model_validate({**done, "supervisor": status}))

    try:
        return json_response(await desk.act(connection_id, act))
    except PartitionUpdateError as error:  # it was suspended anew
        raise HTTPException(409, str(error)) from None
    except SourceError as error:  # the text may hold the name of a host, or more
        log.error("source %r does not answer: %s: %s", source, type(error).__name__, error)
        raise HTTPException(
            424,
            f"source {source!r} does not answer ({type(error).__name__}), and nothing was changed; try again"
            f"{remedy}; the API server's log says more",
        ) from None


# What a person may ask of all


def _on_all(name: str, verb: Callable[[SupervisorVerbs], object]) -> Answer:
    async def acted(desk: AtDesk, connection_id: str, body: ReasonBody, user: UserName) -> Response:
        return await _asked_of_all(desk, connection_id, name, verb, user, body.reason)

    acted.__doc__ = f"Do `{name}` to every supervisor of the connection; return what it came to for each."
    return acted


async def reset_all(desk: AtDesk, connection_id: str, body: ResetAllBody, user: UserName) -> Response:
    """Read every source of the connection anew that has a supervisor; return what it came to for each."""
    region = await desk.aside(lambda: desk.stores.settings(connection_id).region)
    whole = partial(SupervisorVerbs.reset_whole, to=body.to, default_region=region)
    return await _asked_of_all(desk, connection_id, "reset", whole, user, body.reason)


async def _asked_of_all(
    desk: Desk, connection_id: str, name: str, verb: Callable[[SupervisorVerbs], object], user: str, reason: str
) -> Response:
    def act() -> bytes:
        sources = _supervised(desk, connection_id)

        def verbs_of(source: str) -> SupervisorVerbs:
            return desk.stores.act_on_source(
                connection_id, source, lambda found: SupervisorVerbs(found, by=user, reason=reason)
            )

        done = list(for_all(sources, verbs_of, verb))
        outcomes = [f"{each.source}: {'done' if each.is_done else each.detail}" for each in done]
        audit(user, f"{name} of all supervisors", connection_id, "", reason=reason, outcomes=outcomes)
        return json_text(
            VerbOutcomes(results=[VerbOutcomeFacts.model_validate(dataclasses.asdict(each)) for each in done])
        )

    return json_response(await desk.act(connection_id, act))


FOR_ALL: dict[str, Callable[[SupervisorVerbs], object]] = {
    "suspend": SupervisorVerbs.suspend,
    "resume": SupervisorVerbs.resume,
    "handover": SupervisorVerbs.hand_over,
    "terminate": SupervisorVerbs.terminate,
}


# Asking the store


def _supervised(desk: Desk, connection_id: str) -> list[str]:
    settings = desk.stores.settings(connection_id)
    return desk.stores.ask(settings.store, lambda store: supervised_sources(store, settings.prefix))


async def _row(desk: Desk, connection_id: str, source: str, among: int) -> bytes | None:
    def asked() -> bytes | None:
        found = desk.stores.ask_source(connection_id, source, lambda view: read_status(view, is_paused))
        if found is None:
            return None
        left_out = {"lag": {**found["lag"], "partitions": {}}, "lag_series": []}
        return json_text(SupervisorStatus.model_validate({**found, **left_out}))

    return await desk.look(connection_id, ("supervisor row", source), asked, rest=STATUS_REST, among=among)


async def _status_text(desk: Desk, connection_id: str, source: str) -> bytes:
    return await desk.look(
        connection_id,
        ("supervisor", source),
        lambda: json_text(_status(desk, connection_id, source)),
        rest=STATUS_REST,
    )


def _status(desk: Desk, connection_id: str, source: str) -> SupervisorStatus:
    found = desk.stores.ask_source(connection_id, source, lambda view: existing_status(view, is_paused))
    return SupervisorStatus.model_validate(found)


async def _answered(
    desk: Desk, connection_id: str, source: str, what: object, asked: Callable[[SourceView], BaseModel]
) -> Response:
    return await json_answer(
        desk,
        connection_id,
        ("of the supervisor", source, what),
        lambda: desk.stores.ask_source(connection_id, source, asked),
    )
