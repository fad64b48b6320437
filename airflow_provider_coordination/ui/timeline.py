"""The timeline of a source: which owner held which partition, and when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Response
from pydantic import AwareDatetime

from airflow_provider_coordination.coordination.history import HistoryResult, Holding, HoldingEnd, Transition, holdings
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.ui.access import may_read_connection
from airflow_provider_coordination.ui.facts import HoldingFacts
from airflow_provider_coordination.ui.store_queries import SOURCE, Queries, query_response

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEFAULT_SPAN = timedelta(hours=1)
MAX_SPAN = timedelta(days=365)
MAX_LEASES = 5_000
MAX_READ = 100
"""How many partitions are read one by one for their current state."""
MAX_HOLDINGS = 5_000
"""The maximum number of holdings of all partitions. Partitions that changed owner last come first, each complete."""
STEP = timedelta(seconds=10)
"""The start and the end of the window are rounded to this."""
COOLDOWN = 3.0
"""A long history takes a while to read."""


@dataclass(frozen=True, kw_only=True)
class PartitionLine:
    """The owners of a partition, the first one first."""

    partition_key: str
    holdings: list[HoldingFacts]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The owners of partitions over time. `complete` is whether nothing is missing."""

    as_of: datetime
    since: datetime
    until: datetime
    has_history: bool
    complete: bool
    partitions: list[PartitionLine]


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    routes.get(SOURCE + "/timeline", dependencies=[may_read_connection()], response_model=Timeline)(timeline)
    return routes


async def timeline(
    queries: Queries,
    connection_id: str,
    source: str,
    since: AwareDatetime | None = None,
    until: AwareDatetime | None = None,
    search: Annotated[str, Query(max_length=1024)] = "",
    limit: Annotated[int, Query(ge=1, le=2000)] = 200,
) -> Response:
    """Return the owners of partitions over time, by default over the last hour."""
    since, until = _validated_window(since, until, datetime.now(UTC))

    def read_timeline() -> Timeline:
        days = queries.stores.settings(connection_id).store.history_days
        return queries.stores.query_source(
            connection_id,
            source,
            lambda view: timeline_of(view, since, until, search=search, limit=limit, history_days=days),
        )

    return await query_response(
        queries, connection_id, ("timeline", source, since, until, search, limit), read_timeline, cooldown=COOLDOWN
    )


def timeline_of(
    view: SourceView,
    since: datetime | None,
    until: datetime | None,
    *,
    search: str,
    limit: int,
    history_days: float,
) -> Timeline:
    """Return the owners of partitions over time.

    :param view: the source.
    :param since: the start of the window (aware); an hour before `until` by default.
    :param until: the end of the window (aware); now by default.
    :param search: text that the keys of the partitions contain.
    :param limit: the maximum number of partitions. Those that changed owner last are returned.
    :param history_days: how long the history is kept, in days.
    """
    now = view.clock.now()
    until = min(until or now, now).astimezone(UTC)
    since = max(since or until - DEFAULT_SPAN, now - MAX_SPAN).astimezone(UTC)
    history = view.history.between(since) if history_days else HistoryResult(transitions=[])
    transitions = [each for each in history.transitions if search in each.partition_key]
    present, every_lease = _current_partitions(view, transitions, search, now)
    lines = holdings(transitions, present, now=now)
    shown = {key: [each for each in line if _overlaps(each, since, until)] for key, line in lines.items()}
    latest = {key: _latest(line, since) for key, line in shown.items() if line}
    by_change = sorted(latest, key=latest.__getitem__, reverse=True)
    so_far = accumulate(len(shown[key]) for key in by_change)
    keys = [key for key, count in zip(by_change[:limit], so_far, strict=False) if count <= MAX_HOLDINGS]
    kept = history_days and since >= now - timedelta(days=history_days)
    return Timeline(
        as_of=now,
        since=since,
        until=until,
        has_history=bool(history_days),
        complete=bool(kept) and history.complete and every_lease and len(keys) == len(by_change),
        partitions=[
            PartitionLine(partition_key=key, holdings=[HoldingFacts(**vars(each)) for each in shown[key]])
            for key in sorted(keys)
        ],
    )


def _current_partitions(
    view: SourceView, transitions: list[Transition], search: str, now: datetime
) -> tuple[list[Partition], bool]:
    """Return the partitions that are held now, or were at their last transition, and whether that is all of them."""
    leases = islice(view.partitions(PartitionStatus.ASSIGNED), MAX_LEASES)
    held = {lease.partition_key: lease for lease in leases}
    # A partition may have changed since its last transition: a worker may write the history later, or never.
    lines = holdings(transitions, now=now)
    open_ends = [key for key, line in lines.items() if line[-1].end is HoldingEnd.HELD and key not in held]
    read = [found for key in open_ends[-MAX_READ:] if (found := view.get(key)) is not None]
    return [*(lease for key, lease in held.items() if search in key), *read], len(held) < MAX_LEASES


def _validated_window(
    since: datetime | None, until: datetime | None, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return the requested window, rounded, so that repeated requests for the last hour are identical queries.

    The instants may be any with a year of four digits. They are compared before any arithmetic, which could overflow.

    :raises HTTPException: if the window is invalid.
    """
    earliest = now - MAX_SPAN
    if until is not None and until >= now:
        until = None
    if since is not None and since >= (until or now):
        raise HTTPException(422, f"query.since: must be before {'now' if until is None else repr('until')}")
    if until is not None and until <= earliest:
        raise HTTPException(422, f"query.until: more than {MAX_SPAN.days} days ago; send a later instant")
    if since is not None:
        since = _rounded(max(since, earliest))
    return since, None if until is None else _rounded(until + STEP)


def _rounded(instant: datetime) -> datetime:
    return instant - (instant - EPOCH) % STEP


def _overlaps(holding: Holding, since: datetime, until: datetime) -> bool:
    return (holding.began_at is None or holding.began_at <= until) and (
        holding.ended_at is None or holding.ended_at >= since
    )


def _latest(line: list[Holding], since: datetime) -> datetime:
    return max(max(each.began_at or since, each.ended_at or since) for each in line)
