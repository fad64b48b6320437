"""Actions of users on sources and partitions. Each names the version that the user saw, a reason and the user."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter, HTTPException, Response

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    CoordinationError,
    PartitionNotFoundError,
    PartitionUpdateError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.partition_actions import (
    CHANGE_ERRORS,
    PARTITION_ACTIONS,
    NotAttemptedError,
    PartitionAction,
    apply_to_each,
)
from airflow_provider_coordination.coordination.source_statistics import is_known, known_sources, unknown_source
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.reset import Resets, check_target, restarted
from airflow_provider_coordination.sources.reset_targets import ResetAction, Target, parse_target
from airflow_provider_coordination.ui.access import UserName, audit, may_change_connection
from airflow_provider_coordination.ui.bodies import (
    ActionBody,
    PartitionRow,
    PartitionVersion,
    ResumeBody,
    SuspendBody,
    row_of,
)
from airflow_provider_coordination.ui.cards import SourceCard
from airflow_provider_coordination.ui.sources import card_of, is_backfilled
from airflow_provider_coordination.ui.store_queries import SOURCE, Queries, QueryScheduler, json_response, json_text

Outcome = Partition | CoordinationError
OUTCOME_UNKNOWN = "the store is unavailable: the action may have been done; check the partition"
REMEDY = 'send "new_source": true to suspend it before it exists'
NOT_TRIED = "not attempted, as the store is unavailable; try again"


@dataclass(frozen=True, kw_only=True)
class ActionResult:
    """The outcome for one partition. `stale`: it has changed since the user saw it, and nothing was done."""

    key: str
    outcome: Literal["done", "stale", "refused", "missing"]
    detail: str
    partition: PartitionRow | None


@dataclass(frozen=True, kw_only=True)
class ActionResults:
    """The outcome for each partition, in the order of the request."""

    results: list[ActionResult]


Action = Callable[[SourceCoordinator, ActionBody, str], list[ActionResult]]


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    for name, action in ACTIONS.items():
        routes.add_api_route(
            f"{SOURCE}/partitions/{name}",
            _partition_route(name, action),
            methods=["POST"],
            dependencies=may_change_connection(f"coordination.{name}_partitions", ActionBody),
            response_model=ActionResults,
        )
    for name, change, body in (("suspend", suspend, SuspendBody), ("resume", resume, ResumeBody)):
        routes.add_api_route(
            f"{SOURCE}/{name}",
            change,
            methods=["POST"],
            dependencies=may_change_connection(f"coordination.{name}_source", body),
            response_model=SourceCard,
        )
    return routes


async def suspend(queries: Queries, connection_id: str, source: str, body: SuspendBody, user: UserName) -> Response:
    """Suspend a source and return its status. A suspension that exists already stays as it is."""

    def change(coordinator: SourceCoordinator) -> None:
        prefix = queries.stores.settings(connection_id).prefix
        if not body.new_source and not is_known(coordinator.store, source, prefix):
            known = known_sources(coordinator.store, prefix)
            raise HTTPException(404, unknown_source(source, known, remedy=REMEDY))
        coordinator.view.suspensions.suspend(user, body.reason)

    return await _change_source(queries, connection_id, source, change, "suspension", user, body.reason)


async def resume(queries: Queries, connection_id: str, source: str, body: ResumeBody, user: UserName) -> Response:
    """Resume a source and return its status."""

    def change(coordinator: SourceCoordinator) -> None:
        try:
            coordinator.view.suspensions.resume(user, body.reason, since=body.since)
        except PartitionUpdateError as error:
            raise HTTPException(409, str(error)) from None

    return await _change_source(queries, connection_id, source, change, "end of the suspension", user, body.reason)


async def _change_source(
    queries: QueryScheduler,
    connection_id: str,
    source: str,
    change: Callable[[SourceCoordinator], None],
    what: str,
    user: str,
    reason: str,
) -> Response:
    has_backfills = await is_backfilled(queries, connection_id, source)

    def act() -> bytes:
        queries.stores.change_source(connection_id, source, change)
        audit(user, what, connection_id, source, reason=reason, outcomes=["done"])
        return json_text(card_of(queries, connection_id, source, has_backfills=has_backfills))

    return json_response(await queries.run_action(connection_id, act))


def _partition_route(name: str, action: Action) -> Callable[..., Any]:
    async def acted(queries: Queries, connection_id: str, source: str, body: ActionBody, user: UserName) -> Response:
        if body.to is not None and name != "reset":
            raise HTTPException(422, f"body.to: only 'reset' accepts it, and this is {name!r}; leave it out")

        def act() -> bytes:
            results = queries.stores.change_source(
                connection_id, source, lambda coordinator: action(coordinator, body, user)
            )
            outcomes = [f"{result.key}: {result.outcome}" for result in results]
            audit(user, f"{name} of partitions", connection_id, source, reason=body.reason, outcomes=outcomes)
            return json_text(ActionResults(results=results))

        return json_response(await queries.run_action(connection_id, act))

    acted.__doc__ = f"Apply `{name}` to partitions; return the outcome for each."
    return acted


def _change(action: PartitionAction) -> Action:
    """Return what carries out an action that needs no more than partitions."""

    def act(coordinator: SourceCoordinator, body: ActionBody, user: str) -> list[ActionResult]:
        administration = Administration(
            coordinator.store, coordinator.view.source_identifier, coordinator.clock, by=user, reason=body.reason
        )
        assert action.run is not None
        run = partial(action.run, administration)
        outcomes = apply_to_each(body.partitions, lambda item: run(item.key, version=item.version))
        return [_result(coordinator, item.key, outcome) for item, outcome in outcomes]

    return act


def _reset(coordinator: SourceCoordinator, body: ActionBody, user: str) -> list[ActionResult]:
    """Reset partitions to the requested position. Parts that were split off a partition are read with it again."""
    if body.to is None:
        raise HTTPException(
            422, "body.to: required for 'reset'; send 'earliest', 'latest', an instant or a sequence number"
        )
    try:
        target = parse_target(body.to, coordinator.clock.now())
    except ConfigurationError as error:
        raise HTTPException(422, f"body.to: {error}") from None
    if target.position is not None and len(body.partitions) > 1:
        raise HTTPException(422, f"body.to: position {body.to!r} belongs to one partition; send one partition with it")
    sets = AcknowledgmentSets(coordinator, SourceBatches())
    resets = Resets(sets, by=user, reason=body.reason)
    written: dict[str, Outcome] = {}
    usable: list[Partition] = []
    for item in body.partitions:
        result = _unchanged(coordinator, item, target)
        if isinstance(result, Partition):
            usable.append(result)
        else:
            written[item.key] = result
    plan = resets.plan_partitions(usable, target)
    removed = {partition.partition_key for partition in plan.of(ResetAction.REMOVE)}
    versions = {item.key: item.version for item in body.partitions}
    written |= {step.partition.partition_key: outcome for step, outcome in resets.apply(plan, versions=versions)}
    return [
        _result(
            coordinator,
            item.key,
            written[item.key],
            "removed: the partition that it was split off from reads its data again" if item.key in removed else "",
        )
        for item in body.partitions
    ]


def _unchanged(coordinator: SourceCoordinator, item: PartitionVersion, target: Target) -> Outcome:
    """Return a partition if it has not changed since the user saw it, and can be reset; else the error."""
    partition = coordinator.view.get(item.key)
    if partition is None:
        return PartitionNotFoundError(f"partition {item.key!r} does not exist")
    if partition.version != item.version:
        return PartitionUpdateError(
            f"partition {item.key!r} has changed since it was read: version {item.version} was read, and it is now "
            f"{partition.status}, version {partition.version}; check it again"
        )
    try:
        check_target(target, [partition])
        restarted(partition, target)
    except CHANGE_ERRORS as error:
        return error
    except ConfigurationError as error:
        raise HTTPException(422, f"body.to: {error}") from None
    return partition


ACTIONS = {name: _reset if action.run is None else _change(action) for name, action in PARTITION_ACTIONS.items()}


def _result(coordinator: SourceCoordinator, key: str, outcome: Outcome, detail: str = "") -> ActionResult:
    if isinstance(outcome, Partition):
        row = None if detail else row_of(outcome, coordinator.clock.now())
        return ActionResult(key=key, outcome="done", detail=detail, partition=row)
    if isinstance(outcome, PartitionNotFoundError):
        return ActionResult(key=key, outcome="missing", detail=str(outcome), partition=None)
    if isinstance(outcome, StoreUnavailableError):
        reason = NOT_TRIED if isinstance(outcome, NotAttemptedError) else OUTCOME_UNKNOWN
        return ActionResult(key=key, outcome="refused", detail=reason, partition=None)
    stored: Partition | None = None
    with suppress(StoreUnavailableError):  # the outcomes of the others are reported anyway
        stored = coordinator.view.get(key)
    return ActionResult(
        key=key,
        outcome="stale" if isinstance(outcome, PartitionUpdateError) else "refused",
        detail=str(outcome),
        partition=None if stored is None else row_of(stored, coordinator.clock.now()),
    )
