"""The supervisors of a connection's sources: their status, their specs, and the actions on them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Response

from airflow_provider_coordination.audit.report import AuditFinding, AuditReport, State
from airflow_provider_coordination.audit.source_audit import audit_source
from airflow_provider_coordination.audit.trace import BatchTrace, SinkTrace, trace_batch
from airflow_provider_coordination.coordination.errors import (
    PartitionUpdateError,
    SourceError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.partition_actions import PARTITION_ACTIONS, UserAction
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.hooks.supervision import (
    checks_against_source,
    preview_source,
    sinks_of_supervised,
    spec_of_supervised,
)
from airflow_provider_coordination.sources.peek import PeekLimits
from airflow_provider_coordination.sources.reset_targets import EARLIEST
from airflow_provider_coordination.spark.ledger import LedgerEntry
from airflow_provider_coordination.supervisor.facts import (
    ParseErrors,
    SourceStats,
    SpecDetail,
    SpecFacts,
    SupervisorHealth,
    SupervisorStatus,
)
from airflow_provider_coordination.supervisor.operations import NOT_CHECKED, ResetReport, Submission, SupervisorVerbs
from airflow_provider_coordination.supervisor.preview import MAX_RECORDS, Preview
from airflow_provider_coordination.supervisor.reading import (
    existing_status,
    read_history,
    read_parse_errors,
    read_spec,
    supervised_sources,
)
from airflow_provider_coordination.supervisor.status import read_status
from airflow_provider_coordination.supervisor.verbs import VERBS, Verb, VerbOutcome, apply_to_all, verbs_for
from airflow_provider_coordination.ui.access import (
    UserName,
    audit,
    is_paused,
    may_change_connection,
    may_read_connection,
)
from airflow_provider_coordination.ui.bodies import (
    Owner,
    ReasonBody,
    ResetAllBody,
    ResetBody,
    ResumeBody,
    SubmitBody,
    known_owner,
)
from airflow_provider_coordination.ui.store_queries import (
    EXPENSIVE,
    SOURCE,
    Queries,
    QueryScheduler,
    json_response,
    json_text,
    query_response,
)

log = logging.getLogger(__name__)

SUPERVISORS = "/connections/{connection_id}/supervisors"
SUPERVISOR = SOURCE + "/supervisor"
STATUS_COOLDOWN = 3.0
"""Counting completed partitions is expensive on DynamoDB."""
PREVIEW_SECONDS = 5.0
"""How long the source is read for a preview; a user is waiting, and one of the threads of the connection."""
PREVIEW_RESPONSE_SECONDS = 8.0
"""How long the source may take in all."""
MAX_VERSIONS = 50
MAX_FINDINGS = 100
MAX_BATCH_CHARACTERS = 2000
WITHOUT_CHECK = ", or submit the spec with 'connect' false, without a check against the source"

Handler = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class SupervisorWithVerbs(SupervisorStatus):
    """The status of a supervisor, and the verbs that apply to it."""

    verbs: list[str]


@dataclass(frozen=True, kw_only=True)
class SupervisorList:
    """The status of supervisors, by source. `lag_series`, and `partitions` of their `lag`, are empty."""

    as_of: datetime
    supervisors: list[SupervisorWithVerbs]


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
    supervisor: SupervisorWithVerbs


@dataclass(frozen=True, kw_only=True)
class ResetFacts(ResetReport):
    """The outcome of a reset. `unchanged` has the partitions that were not reset, and why."""

    supervisor: SupervisorWithVerbs


@dataclass(frozen=True, kw_only=True)
class VerbOutcomes:
    """The outcomes of an action on all supervisors, by source."""

    results: list[VerbOutcome]


@dataclass(frozen=True, kw_only=True)
class UserActions:
    """The actions of users on partitions and supervisors, in the order of their buttons."""

    partitions: list[UserAction]
    supervisors: list[UserAction]


@dataclass(frozen=True, kw_only=True)
class AuditFacts:
    """The audit of a supervised source by metadata.

    :param source: its name.
    :param state: its state.
    :param partitions: the number of its partitions, in all sinks together.
    :param complete: the number of those that are complete.
    :param findings: the first findings, those that are not explained before the others.
    :param left: the number of findings that are left out.
    :param notes: what could not be compared.
    """

    source: str
    state: str
    partitions: int
    complete: int
    findings: list[AuditFinding]
    left: int
    notes: list[str]

    @classmethod
    def of(cls, report: AuditReport) -> AuditFacts:
        """Return the facts of a report."""
        every = sorted(report.findings, key=lambda finding: finding.is_explained)
        partitions = [each for sink in report.sinks for each in sink.partitions]
        return cls(
            source=report.source,
            state=report.state,
            partitions=len(partitions),
            complete=sum(each.state is State.COMPLETE for each in partitions),
            findings=every[:MAX_FINDINGS],
            left=max(len(every) - MAX_FINDINGS, 0),
            notes=[note for sink in report.sinks for note in sink.notes],
        )


@dataclass(frozen=True, kw_only=True)
class TraceFacts:
    """Where the rows of a batch come from.

    :param batch: the batch, with its range and its origin.
    :param owner: the job that delivered it, with its task; None if unknown.
    :param is_pending: whether the store still waits for a sink.
    :param sinks: what each sink has of it.
    """

    batch: LedgerEntry
    owner: Owner | None
    is_pending: bool
    sinks: list[SinkTrace]

    @classmethod
    def of(cls, found: BatchTrace) -> TraceFacts:
        """Return the facts of a trace."""
        owner = known_owner(found.batch.origin.owner or None)
        return cls(batch=found.batch, owner=owner, is_pending=found.is_pending, sinks=found.sinks)


BODIES: Mapping[str, type[ReasonBody]] = {"submit": SubmitBody, "resume": ResumeBody, "reset": ResetBody}
"""The bodies of verbs that take more than a reason."""
RESULTS: Mapping[str, type] = {"submit": SubmissionFacts, "reset": ResetFacts}
"""The responses of verbs that return more than the status."""


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    routes.get("/actions", response_model=UserActions)(actions)
    reads: tuple[tuple[str, Handler, type], ...] = (
        (SUPERVISORS, supervisors, SupervisorList),
        (SUPERVISOR, supervisor, SupervisorWithVerbs),
        (f"{SUPERVISOR}/spec", spec, SpecDetail),
        (f"{SUPERVISOR}/history", history, SpecHistory),
        (f"{SUPERVISOR}/health", health, SupervisorHealth),
        (f"{SUPERVISOR}/stats", stats, SourceStats),
        (f"{SUPERVISOR}/parse-errors", parse_errors, ParseErrors),
        (f"{SUPERVISOR}/trace", trace, TraceFacts),
        (f"{SUPERVISOR}/preview", preview, Preview),
    )
    for path, handler, model in reads:
        routes.get(path, dependencies=[may_read_connection()], response_model=model)(handler)
    checks = may_change_connection("coordination.audit_source", ReasonBody)
    routes.post(f"{SUPERVISOR}/audit", dependencies=checks, response_model=AuditFacts)(audit_sinks)
    for name, verb in VERBS.items():
        body, path = BODIES.get(name, ReasonBody), SUPERVISOR if name == "submit" else f"{SUPERVISOR}/{name}"
        checks = may_change_connection(f"coordination.{name}_supervisor", body)
        model = RESULTS.get(name, SupervisorWithVerbs)
        routes.post(path, dependencies=checks, response_model=model)(_route(verb, body))
        if verb.text_for_many:
            body = ResetAllBody if name == "reset" else ReasonBody
            checks = may_change_connection(f"coordination.{name}_all_supervisors", body)
            on_all = _route_for_all(verb, body)
            routes.post(f"{SUPERVISORS}/{name}", dependencies=checks, response_model=VerbOutcomes)(on_all)
    return routes


async def actions() -> Response:
    """Return the actions of users: their names, labels and consequences."""
    return json_response(
        json_text(UserActions(partitions=list(PARTITION_ACTIONS.values()), supervisors=list(VERBS.values())))
    )


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


async def trace(
    queries: Queries,
    connection_id: str,
    source: str,
    batch: Annotated[str, Query(min_length=1, max_length=MAX_BATCH_CHARACTERS)],
    position: Annotated[str | None, Query(max_length=MAX_BATCH_CHARACTERS)] = None,
) -> Response:
    """Return where the rows of a batch come from, and what each sink of the spec has of it."""

    def read(view: SourceView) -> TraceFacts:
        return TraceFacts.of(trace_batch(view, sinks_of_supervised(view), batch, position or None))

    return await _read_supervisor(queries, connection_id, source, ("trace", batch, position), read)


async def preview(
    queries: Queries,
    connection_id: str,
    source: str,
    records: Annotated[int, Query(ge=1, le=MAX_RECORDS)] = PeekLimits.records,
) -> Response:
    """Return a few records of the source, with the columns that the spec gives them. It changes nothing."""

    def read() -> bytes:
        spec = queries.stores.query_source(connection_id, source, spec_of_supervised)
        region = queries.stores.settings(connection_id).region
        limits = PeekLimits(records=records, seconds=PREVIEW_SECONDS)
        return json_text(preview_source(spec, limits, region, response_seconds=PREVIEW_RESPONSE_SECONDS))

    try:
        return json_response(await queries.read(connection_id, ("preview", source, records), read, cooldown=EXPENSIVE))
    except StoreUnavailableError:
        raise
    except SourceError as error:  # the text may contain a host name or more
        log.error("source %r does not respond: %s: %s", source, type(error).__name__, error)
        raise HTTPException(
            424, f"source {source!r} does not respond ({type(error).__name__}); see the log of the API server"
        ) from None


async def audit_sinks(queries: Queries, connection_id: str, source: str, body: ReasonBody, user: UserName) -> Response:
    """Compare what was read of a source with what the sinks of its spec have, by metadata."""

    def act() -> bytes:
        facts = queries.stores.query_source(
            connection_id, source, lambda view: AuditFacts.of(audit_source(view, sinks_of_supervised(view)))
        )
        audit(user, "audit of the source", connection_id, source, reason=body.reason, outcomes=[facts.state])
        return json_text(facts)

    return json_response(await queries.run_action(connection_id, act))


# Verbs


def _route(verb: Verb, body_type: type[ReasonBody]) -> Handler:
    """Return the route of a verb for one supervisor. It returns the supervisor's status, and the verb's result."""

    async def acted(queries: Queries, connection_id: str, source: str, body: ReasonBody, user: UserName) -> Response:
        region = await queries.run(lambda: queries.stores.settings(connection_id).region)
        run = _run_of(verb, body, region)

        def act() -> bytes:
            done = queries.stores.change_source(
                connection_id, source, lambda found: run(SupervisorVerbs(found, by=user, reason=body.reason))
            )
            audit(user, f"{verb.name} of the supervisor", connection_id, source, reason=body.reason, outcomes=["done"])
            return json_text(_result(done, _status(queries, connection_id, source)))

        try:
            return json_response(await queries.run_action(connection_id, act))
        except PartitionUpdateError as error:  # it was suspended again
            raise HTTPException(409, str(error)) from None
        except SourceError as error:  # the text may contain a host name or more
            log.error("source %r does not respond: %s: %s", source, type(error).__name__, error)
            remedy = WITHOUT_CHECK if isinstance(body, SubmitBody) else ""
            raise HTTPException(
                424,
                f"source {source!r} does not respond ({type(error).__name__}), and nothing was changed; try again"
                f"{remedy}; see the log of the API server",
            ) from None

    acted.__annotations__["body"] = body_type
    acted.__doc__ = verb.consequence()
    return acted


def _route_for_all(verb: Verb, body_type: type[ReasonBody]) -> Handler:
    """Return the route of a verb for all supervisors. It returns the outcome for each."""

    async def acted(queries: Queries, connection_id: str, body: ReasonBody, user: UserName) -> Response:
        region = await queries.run(lambda: queries.stores.settings(connection_id).region)
        run = _run_of(verb, body, region)

        def verbs_of(source: str) -> SupervisorVerbs:
            return queries.stores.change_source(
                connection_id, source, lambda found: SupervisorVerbs(found, by=user, reason=body.reason)
            )

        def act() -> bytes:
            done = list(apply_to_all(_supervised_sources(queries, connection_id), verbs_of, run))
            outcomes = [f"{each.source}: {'done' if each.is_done else each.detail}" for each in done]
            what = f"{verb.name} of all supervisors"
            audit(user, what, connection_id, "", reason=body.reason, outcomes=outcomes)
            return json_text(VerbOutcomes(results=done))

        return json_response(await queries.run_action(connection_id, act))

    acted.__annotations__["body"] = body_type
    acted.__doc__ = f"Apply `{verb.name}` to every supervisor of the connection; return the outcome for each."
    return acted


def _run_of(verb: Verb, body: ReasonBody, region: str | None) -> Callable[[SupervisorVerbs], object]:
    """Return what carries out a verb with the arguments of its request."""
    match body:
        case SubmitBody():
            check = checks_against_source(region, connect=body.connect)
            return lambda verbs: verbs.submit(body.spec, replacing=body.replacing, check=check)
        case ResumeBody():
            return lambda verbs: verbs.resume(body.since)
        case ResetBody(forget=True):
            if body.positions is not None or body.to != EARLIEST:
                raise HTTPException(422, "field 'forget' excludes 'to' and 'positions'; omit them")
            return SupervisorVerbs.forget
        case ResetBody():
            return lambda verbs: verbs.reset(body.to, body.positions, connections=AirflowConnections(region))
        case ResetAllBody():
            return lambda verbs: verbs.reset_whole(body.to, connections=AirflowConnections(region))
    assert verb.run is not None
    return verb.run


def _result(done: object, status: SupervisorWithVerbs) -> object:
    """Return the response to a verb that is done."""
    if isinstance(done, ResetReport):
        return ResetFacts(**vars(done), supervisor=status)
    if not isinstance(done, Submission):
        return status
    if done.check_failure:  # the text may contain a host name or more
        log.warning("source %r did not respond to the check of a spec: %s", status.source, done.check_failure)
    return SubmissionFacts(
        version=done.version.version,
        change=done.change.name,
        consequence=done.consequence,
        warnings=[*([NOT_CHECKED] if done.check_failure else []), *done.warnings],
        supervisor=status,
    )


# Queries of the store


def _supervised_sources(queries: QueryScheduler, connection_id: str) -> list[str]:
    settings = queries.stores.settings(connection_id)
    return queries.stores.query(settings.store, lambda store: supervised_sources(store, settings.prefix))


async def _row(queries: QueryScheduler, connection_id: str, source: str, similar: int) -> bytes | None:
    def read() -> bytes | None:
        status = queries.stores.query_source(connection_id, source, lambda view: read_status(view, is_paused))
        if status is None:
            return None
        return json_text(_with_verbs(replace(status.without_partitions(), lag_series=())))

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


def _status(queries: QueryScheduler, connection_id: str, source: str) -> SupervisorWithVerbs:
    return _with_verbs(
        queries.stores.query_source(connection_id, source, lambda view: existing_status(view, is_paused))
    )


def _with_verbs(status: SupervisorStatus) -> SupervisorWithVerbs:
    return SupervisorWithVerbs(**vars(status), verbs=verbs_for(status))


async def _read_supervisor(
    queries: QueryScheduler, connection_id: str, source: str, what: object, read: Callable[[SourceView], object]
) -> Response:
    return await query_response(
        queries,
        connection_id,
        ("of the supervisor", source, what),
        lambda: queries.stores.query_source(connection_id, source, read),
    )
