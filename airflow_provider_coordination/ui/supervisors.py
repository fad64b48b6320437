"""The supervisors of a connection's sources: their status, their specs, and the actions on them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.hooks.supervision import checks_against_source
from airflow_provider_coordination.sources.reset_targets import EARLIEST
from airflow_provider_coordination.supervisor.facts import (
    ParseErrors,
    SourceStats,
    SpecDetail,
    SpecFacts,
    SupervisorHealth,
    SupervisorStatus,
)
from airflow_provider_coordination.supervisor.operations import (
    NOT_CHECKED,
    ResetReport,
    SupervisorVerbs,
    VerbOutcome,
    apply_to_all,
)
from airflow_provider_coordination.supervisor.reading import (
    existing_status,
    read_history,
    read_parse_errors,
    read_spec,
    supervised_sources,
)
from airflow_provider_coordination.supervisor.status import read_status
from airflow_provider_coordination.ui.access import (
    UserName,
    audit,
    is_paused,
    may_change_connection,
    may_read_connection,
)
from airflow_provider_coordination.ui.bodies import ReasonBody, ResetAllBody, ResetBody, ResumeBody, SubmitBody
from airflow_provider_coordination.ui.responses import SOURCE, json_response, json_text, query_response
from airflow_provider_coordination.ui.store_queries import EXPENSIVE, Queries, QueryScheduler

log = logging.getLogger(__name__)

SUPERVISORS = "/connections/{connection_id}/supervisors"
SUPERVISOR = SOURCE + "/supervisor"
STATUS_COOLDOWN = 3.0
"""Counting completed partitions is expensive on DynamoDB."""
MAX_VERSIONS = 50

Handler = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class SupervisorList:
    """The status of supervisors, by source. `lag_series`, and `partitions` of their `lag`, are empty."""

    as_of: datetime
    supervisors: list[SupervisorStatus]


@dataclass(frozen=True, kw_only=True)
class SpecHistory:
    """The latest versions of a spec, the latest first."""

    source: str
    versions: list[SpecFacts]


@dataclass(frozen=True, kw_only=True)
class SubmissionFacts:
    """The outcome of a submission: the version that is in effect, and its consequence."""

    version: int
    change: str
    consequence: str
    warnings: list[str]
    supervisor: SupervisorStatus


@dataclass(frozen=True, kw_only=True)
class ResetFacts(ResetReport):
    """The outcome of a reset. `unchanged` has the partitions that were not reset, and why."""

    supervisor: SupervisorStatus


@dataclass(frozen=True, kw_only=True)
class VerbOutcomes:
    """The outcomes of an action on all supervisors, by source."""

    results: list[VerbOutcome]


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    reads: tuple[tuple[str, Handler, type], ...] = (
        (SUPERVISORS, supervisors, SupervisorList),
        (SUPERVISOR, supervisor, SupervisorStatus),
        (f"{SUPERVISOR}/spec", spec, SpecDetail),
        (f"{SUPERVISOR}/history", history, SpecHistory),
        (f"{SUPERVISOR}/health", health, SupervisorHealth),
        (f"{SUPERVISOR}/stats", stats, SourceStats),
        (f"{SUPERVISOR}/parse-errors", parse_errors, ParseErrors),
    )
    for path, handler, model in reads:
        routes.get(path, dependencies=[may_read_connection()], response_model=model)(handler)
    acts: tuple[tuple[str, Handler, type[BaseModel], type], ...] = (
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
    on_all: dict[str, tuple[Handler, type[BaseModel]]] = {
        **{name: (_route_for_all(name, verb), ReasonBody) for name, verb in FOR_ALL.items()},
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


# Status and specs


async def supervisors(queries: Queries, connection_id: str) -> Response:
    """Return the status of each supervisor of a connection, by source, without the lag of each partition."""
    as_of = datetime.now(UTC)
    names = await queries.read(
        connection_id, "supervisors", lambda: _supervised_sources(queries, connection_id), cooldown=EXPENSIVE
    )
    rows = await asyncio.gather(*(_row(queries, connection_id, name, similar=len(names)) for name in names))
    # Each one is JSON already, and shared by all requests.
    head = b'{"as_of":' + json.dumps(f"{as_of:%Y-%m-%dT%H:%M:%S.%f}Z").encode()
    return json_response(head + b',"supervisors":[' + b",".join(row for row in rows if row is not None) + b"]}")


async def supervisor(queries: Queries, connection_id: str, source: str) -> Response:
    """Return the status of the supervisor of a source."""
    return json_response(await _status_text(queries, connection_id, source))


async def spec(
    queries: Queries, connection_id: str, source: str, version: Annotated[int | None, Query(ge=1, le=10**6)] = None
) -> Response:
    """Return the spec that is in effect, or another version of it."""
    return await _read_supervisor(
        queries, connection_id, source, ("spec", version), lambda view: read_spec(view, version)
    )


async def history(
    queries: Queries, connection_id: str, source: str, limit: Annotated[int, Query(ge=1, le=MAX_VERSIONS)] = 20
) -> Response:
    """Return the latest versions of the spec, each with its author, its reason and its changes."""

    def read(view: SourceView) -> SpecHistory:
        return SpecHistory(source=source, versions=read_history(view, limit))

    return await _read_supervisor(queries, connection_id, source, ("history", limit), read)


async def health(queries: Queries, connection_id: str, source: str) -> Response:
    """Return whether the supervisor is healthy; 503 if not, for monitors that read the status of responses only."""
    found = json.loads(await _status_text(queries, connection_id, source))
    response = json_response(_part_of(found, SupervisorHealth))
    response.status_code = 200 if found["healthy"] else 503
    return response


async def stats(queries: Queries, connection_id: str, source: str) -> Response:
    """Return the counters of the jobs, and their rates per second."""
    found = json.loads(await _status_text(queries, connection_id, source))
    return json_response(_part_of({**found, **found["stats"]}, SourceStats))


def _part_of(found: dict[str, Any], part: type[SupervisorHealth] | type[SourceStats]) -> bytes:
    """Return the fields of a status that this class has, as JSON."""
    return json.dumps({each.name: found[each.name] for each in dataclasses.fields(part)}).encode()


async def parse_errors(queries: Queries, connection_id: str, source: str) -> Response:
    """Return how many bad records were found, where they are, and those that jobs listed in the last day."""
    return await _read_supervisor(queries, connection_id, source, "parse errors", read_parse_errors)


# Actions on one supervisor


async def submit(queries: Queries, connection_id: str, source: str, body: SubmitBody, user: UserName) -> Response:
    """Store a spec, which takes effect now. A terminated supervisor starts again."""
    region = await queries.run(lambda: queries.stores.settings(connection_id).region)

    def run(verbs: SupervisorVerbs) -> dict[str, Any]:
        check = checks_against_source(region, connect=body.connect)
        done = verbs.submit(body.spec, replacing=body.replacing, check=check)
        if done.check_failure:  # the text may contain a host name or more
            log.warning("source %r did not respond to the check of a spec: %s", source, done.check_failure)
        return {
            "version": done.version.version,
            "change": done.change.name,
            "consequence": done.consequence,
            "warnings": [*([NOT_CHECKED] if done.check_failure else []), *done.warnings],
        }

    remedy = ", or submit the spec with 'connect' false, without a check against the source"
    return await _run_verb(
        queries, connection_id, source, "spec submitted", run, user, body.reason, SubmissionFacts, remedy=remedy
    )


async def suspend(queries: Queries, connection_id: str, source: str, body: ReasonBody, user: UserName) -> Response:
    """Suspend the source: running jobs deliver what they have read and end, and no job is started."""
    return await _run_verb(queries, connection_id, source, "suspension", SupervisorVerbs.suspend, user, body.reason)


async def resume(queries: Queries, connection_id: str, source: str, body: ResumeBody, user: UserName) -> Response:
    """Resume a suspended source."""
    return await _run_verb(
        queries,
        connection_id,
        source,
        "end of the suspension",
        lambda verbs: verbs.resume(body.since),
        user,
        body.reason,
    )


async def reset(queries: Queries, connection_id: str, source: str, body: ResetBody, user: UserName) -> Response:
    """Reset the source, or some of its partitions. Running jobs continue at the new positions.

    With `forget`, remove everything that a suspended or terminated supervisor has read.
    """
    if body.forget and (body.positions is not None or body.to != EARLIEST):
        raise HTTPException(422, "field 'forget' excludes 'to' and 'positions'; omit them")
    region = await queries.run(lambda: queries.stores.settings(connection_id).region)

    def run(verbs: SupervisorVerbs) -> dict[str, Any]:
        done = (
            verbs.forget()
            if body.forget
            else verbs.reset(body.to, body.positions, connections=AirflowConnections(region))
        )
        return vars(done)

    return await _run_verb(queries, connection_id, source, "reset", run, user, body.reason, ResetFacts)


async def handover(queries: Queries, connection_id: str, source: str, body: ReasonBody, user: UserName) -> Response:
    """Make every job hand over to a new one now."""
    return await _run_verb(queries, connection_id, source, "handover", SupervisorVerbs.hand_over, user, body.reason)


async def terminate(queries: Queries, connection_id: str, source: str, body: ReasonBody, user: UserName) -> Response:
    """Terminate the supervisor: running jobs deliver what they have read and end, and no job is started."""
    return await _run_verb(queries, connection_id, source, "termination", SupervisorVerbs.terminate, user, body.reason)


async def _run_verb(
    queries: QueryScheduler,
    connection_id: str,
    source: str,
    what: str,
    verb: Callable[[SupervisorVerbs], object],
    user: str,
    reason: str,
    model: type[SubmissionFacts] | type[ResetFacts] | None = None,
    remedy: str = "",
) -> Response:
    """Run an action on a supervisor, and return the supervisor's status.

    :param model: the model of the response: the result of `verb`, and the status as `supervisor`. None for the status
        alone.
    :param remedy: what else the user can do if the source does not respond.
    """

    def act() -> bytes:
        done = queries.stores.change_source(
            connection_id, source, lambda coordinator: verb(SupervisorVerbs(coordinator, by=user, reason=reason))
        )
        audit(user, what, connection_id, source, reason=reason, outcomes=["done"])
        status = _status(queries, connection_id, source)
        if model is None or not isinstance(done, dict):
            return json_text(status)
        return json_text(model(**done, supervisor=status))

    try:
        return json_response(await queries.run_action(connection_id, act))
    except PartitionUpdateError as error:  # it was suspended again
        raise HTTPException(409, str(error)) from None
    except SourceError as error:  # the text may contain a host name or more
        log.error("source %r does not respond: %s: %s", source, type(error).__name__, error)
        raise HTTPException(
            424,
            f"source {source!r} does not respond ({type(error).__name__}), and nothing was changed; try again"
            f"{remedy}; see the log of the API server",
        ) from None


# Actions on all supervisors


def _route_for_all(name: str, verb: Callable[[SupervisorVerbs], object]) -> Handler:
    async def acted(queries: Queries, connection_id: str, body: ReasonBody, user: UserName) -> Response:
        return await _run_verb_for_all(queries, connection_id, name, verb, user, body.reason)

    acted.__doc__ = f"Apply `{name}` to every supervisor of the connection; return the outcome for each."
    return acted


async def reset_all(queries: Queries, connection_id: str, body: ResetAllBody, user: UserName) -> Response:
    """Reset every source of the connection that has a supervisor; return the outcome for each."""
    region = await queries.run(lambda: queries.stores.settings(connection_id).region)
    whole = partial(SupervisorVerbs.reset_whole, to=body.to, connections=AirflowConnections(region))
    return await _run_verb_for_all(queries, connection_id, "reset", whole, user, body.reason)


async def _run_verb_for_all(
    queries: QueryScheduler,
    connection_id: str,
    name: str,
    verb: Callable[[SupervisorVerbs], object],
    user: str,
    reason: str,
) -> Response:
    def act() -> bytes:
        sources = _supervised_sources(queries, connection_id)

        def verbs_of(source: str) -> SupervisorVerbs:
            return queries.stores.change_source(
                connection_id, source, lambda found: SupervisorVerbs(found, by=user, reason=reason)
            )

        done = list(apply_to_all(sources, verbs_of, verb))
        outcomes = [f"{each.source}: {'done' if each.is_done else each.detail}" for each in done]
        audit(user, f"{name} of all supervisors", connection_id, "", reason=reason, outcomes=outcomes)
        return json_text(VerbOutcomes(results=done))

    return json_response(await queries.run_action(connection_id, act))


FOR_ALL: dict[str, Callable[[SupervisorVerbs], object]] = {
    "suspend": SupervisorVerbs.suspend,
    "resume": SupervisorVerbs.resume,
    "handover": SupervisorVerbs.hand_over,
    "terminate": SupervisorVerbs.terminate,
}


# Queries of the store


def _supervised_sources(queries: QueryScheduler, connection_id: str) -> list[str]:
    settings = queries.stores.settings(connection_id)
    return queries.stores.query(settings.store, lambda store: supervised_sources(store, settings.prefix))


async def _row(queries: QueryScheduler, connection_id: str, source: str, similar: int) -> bytes | None:
    def read() -> bytes | None:
        status = queries.stores.query_source(connection_id, source, lambda view: read_status(view, is_paused))
        if status is None:
            return None
        return json_text(replace(status.without_partitions(), lag_series=()))

    return await queries.read(
        connection_id, ("supervisor row", source), read, cooldown=STATUS_COOLDOWN, similar=similar
    )


async def _status_text(queries: QueryScheduler, connection_id: str, source: str) -> bytes:
    return await queries.read(
        connection_id,
        ("supervisor", source),
        lambda: json_text(_status(queries, connection_id, source)),
        cooldown=STATUS_COOLDOWN,
    )


def _status(queries: QueryScheduler, connection_id: str, source: str) -> SupervisorStatus:
    return queries.stores.query_source(connection_id, source, lambda view: existing_status(view, is_paused))


async def _read_supervisor(
    queries: QueryScheduler, connection_id: str, source: str, what: object, read: Callable[[SourceView], object]
) -> Response:
    return await query_response(
        queries,
        connection_id,
        ("of the supervisor", source, what),
        lambda: queries.stores.query_source(connection_id, source, read),
    )
