"""Who held which partition when: the history of a source, and what is held now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Response
from pydantic import AwareDatetime

from airflow_provider_coordination.coordination.history import End, Holding, Told, Transition, holdings
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.ui.access import may_read_connection
from airflow_provider_coordination.ui.facts import owner_of
from airflow_provider_coordination.ui.models.timeline import HoldingFacts, PartitionLine, Timeline
from airflow_provider_coordination.ui.responses import SOURCE, json_answer
from airflow_provider_coordination.ui.store_queries import AtDesk

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEFAULT_SPAN = timedelta(hours=1)
MAX_SPAN = timedelta(days=365)
MAX_LEASES = 5_000
MAX_READ = 100
"""So many partitions are read one by one, to see how they stand."""
MAX_HOLDINGS = 5_000
"""Of all partitions together; those that changed hands last are shown whole."""
STEP = timedelta(seconds=10)
"""To so much the ends of the time are rounded."""
REST = 3.0
"""A long history takes a while to read."""


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    routes.get(SOURCE + "/timeline", dependencies=[may_read_connection()], response_model=Timeline)(timeline)
    return routes


async def timeline(
    desk: AtDesk,
    connection_id: str,
    source: str,
    since: AwareDatetime | None = None,
    until: AwareDatetime | None = None,
    search: Annotated[str, Query(max_length=1024)] = "",
    limit: Annotated[int, Query(ge=1, le=2000)] = 200,
) -> Response:
    """Return who held which partition when, of the last hour where nothing else is asked for."""
    since, until = _asked_time(since, until, datetime.now(UTC))

    def asked() -> Timeline:
        days = desk.stores.settings(connection_id).store.history_days
        return desk.stores.ask_source(
            connection_id,
            source,
            lambda view: timeline_of(view, since, until, search=search, limit=limit, history_days=days),
        )

    return await json_answer(desk, connection_id, ("timeline", source, since, until, search, limit), asked, rest=REST)


def timeline_of(
    view: SourceView,
    since: datetime | None,
    until: datetime | None,
    *,
    search: str,
    limit: int,
    history_days: float,
) -> Timeline:
    """Return who held which partition when.

    :param since: from when on (aware); an hour before `until` by default.
    :param until: until when (aware); now by default.
    :param search: only partitions whose keys have this in them.
    :param limit: at most so many partitions, those that changed hands last.
    :param history_days: how long the history is kept.
    """
    now = view.clock.now()
    until = min(until or now, now).astimezone(UTC)
    since = max(since or until - DEFAULT_SPAN, now - MAX_SPAN).astimezone(UTC)
    told = view.history.between(since) if history_days else Told(transitions=[])
    transitions = [each for each in told.transitions if search in each.partition_key]
    present, every_lease = _present(view, transitions, search, now)
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
        history=bool(history_days),
        complete=bool(kept) and told.complete and every_lease and len(keys) == len(by_change),
        partitions=[
            PartitionLine(partition_key=key, holdings=[holding_facts(each) for each in shown[key]])
            for key in sorted(keys)
        ],
    )


def holding_facts(holding: Holding) -> HoldingFacts:
    """Return a time during which one owner held a partition."""
    return HoldingFacts(
        owner=owner_of(holding.owner),
        began_at=holding.began_at,
        begin=holding.begin.value,
        ended_at=holding.ended_at,
        end=holding.end.value,
        reason=holding.reason,
        by=holding.by,
    )


def _present(
    view: SourceView, transitions: list[Transition], search: str, now: datetime
) -> tuple[list[Partition], bool]:
    """Return the partitions that are held now, or were when they were last told of, and whether that is all of them."""
    leases = islice(view.partitions(PartitionStatus.ASSIGNED), MAX_LEASES)
    held = {lease.partition_key: lease for lease in leases}
    # What was told of last may have changed since, and its worker not have told of it yet, or never.
    lines = holdings(transitions, now=now)
    open_ends = [key for key, line in lines.items() if line[-1].end is End.HELD and key not in held]
    read = [found for key in open_ends[-MAX_READ:] if (found := view.get(key)) is not None]
    return [*(lease for key, lease in held.items() if search in key), *read], len(held) < MAX_LEASES


def _asked_time(
    since: datetime | None, until: datetime | None, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return the time that is asked for, rounded: who looks at the last hour asks for another one each time.

    Instants may be any that a year of four digits can say, too far out to calculate with before they are compared.

    :raises HTTPException: if there is no such time.
    """
    earliest = now - MAX_SPAN
    if until is not None and until >= now:
        until = None
    if since is not None and since >= (until or now):
        raise HTTPException(422, f"query.since: it is not before {'now' if until is None else repr('until')}")
    if until is not None and until <= earliest:
        raise HTTPException(422, f"query.until: it is over {MAX_SPAN.days} days ago; give a later instant")
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
