"""The commands `suspend`, `resume` and `unclaim` of a source, and how other commands show that it is suspended."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.cli.commands import SOURCE, YES, CommandError, Session
from airflow_provider_coordination.cli.output import duration, printable
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition, source_identifier
from airflow_provider_coordination.coordination.source_claim import FAMILY as CLAIM_FAMILY
from airflow_provider_coordination.coordination.source_claim import KEYS, DeliveryClaim, SourceClaim
from airflow_provider_coordination.coordination.source_statistics import is_known, known_sources, unknown_source
from airflow_provider_coordination.coordination.suspension import FAMILY, Suspension, Suspensions

UNCLAIM_CONSEQUENCE = (
    "The next DAG that reads or delivers the source claims it, with whatever it reads and its sinks. Progress is kept: "
    "partitions with the same keys are not read again."
)


def unclaim(session: Session, source: SOURCE, *, yes: YES = False) -> None:
    """Remove the claims of a source, so that another DAG may read or deliver it."""
    output = session.output
    family = source_identifier(source, prefix=session.access.prefix, family=CLAIM_FAMILY)
    items = {key: item for key in KEYS if (item := session.store.get(family, key)) is not None}
    if not items:
        output.info(f"{source} is not claimed by a DAG.")
        return
    if not yes:
        if not session.context.is_interactive():
            raise typer.BadParameter("there is no terminal to confirm the removal of the claims; give --yes")
        for key, item in items.items():
            output.info(f"{source} {_described(key, item)}.")
        output.info(UNCLAIM_CONSEQUENCE)
        if not session.confirm(f"Unclaim {source}?"):
            raise CommandError("not confirmed; nothing was changed")
    by = session.context.user()
    administration = Administration(session.store, family, session.context.clock, by=by)
    for key, item in items.items():
        administration.delete(key, expected=item)
    if output.as_json:
        claims = {key.lower(): dict(items[key].progress) if key in items else None for key in KEYS}
        output.record({"source": source, **claims})
    else:
        described = " and ".join(_described(key, item) for key, item in items.items())
        output.line(Text("unclaimed ") + printable(f"{source}, which {described}"))


def _described(key: str, item: Partition) -> str:
    try:
        if key == SourceClaim.KEY:
            read = SourceClaim.of(item)
            return f"was claimed by DAG {read.dag_id} as {read.kind} at {read.claimed_at:%Y-%m-%dT%H:%M:%SZ}"
        delivered = DeliveryClaim.of(item)
    except ConfigurationError:
        return "was claimed in a format that this version cannot read"
    sinks = ", ".join(map(str, delivered.sinks.values()))
    return f"was delivered by DAG {delivered.dag_id} to {sinks} since {delivered.claimed_at:%Y-%m-%dT%H:%M:%SZ}"


CONSEQUENCE = (
    "Jobs deliver what they have read, release their leases and end within seconds. No partition is acquired or "
    "discovered until the source is resumed; records that a stream trims during that time are lost."
)


def suspend(
    session: Session,
    source: SOURCE,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Reason, shown by jobs, tasks and logs.")],
    yes: YES = False,
    new_source: Annotated[
        bool, typer.Option("--new-source", help="Allow a source that is not yet in the store.")
    ] = False,
) -> None:
    """Suspend a source. Jobs deliver what they have read and end, and nothing new starts."""
    if not reason.strip():
        raise typer.BadParameter("give a reason", param_hint="--reason")
    output, suspensions = session.output, suspensions_of(session, source, session.access.prefix)
    before = suspensions.get()
    if before is None:
        if not new_source:
            _check_known(session, source)
        if not yes:
            _confirm(session, source)
    suspension = suspensions.suspend(session.context.user(), reason)
    if output.as_json:
        output.record({"source": source, "suspended": suspension})
        return
    if before is not None:
        output.info("It was already suspended; nothing was changed.")
    output.line(printable(f"{source} is {suspension}"))


def resume(
    session: Session,
    source: SOURCE,
    *,
    reason: Annotated[str | None, typer.Option("--reason", help="Reason, logged.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Accepted for scripts; this command never asks.")] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Resume only a suspension since this instant, as shown by `sources --json`."),
    ] = None,
) -> None:
    """Resume a suspended source."""
    output, suspensions = session.output, suspensions_of(session, source, session.access.prefix)
    seen = None if since is None else _parse_since(suspensions, since)
    previous = suspensions.resume(session.context.user(), reason or "", since=seen)
    if output.as_json:
        output.record({"source": source, "suspended": None, "was_suspended": previous})
    elif previous is None:
        output.info(f"{source} is not suspended.")
    else:
        output.line(printable(f"resumed {source}, which was {previous}"))


def _check_known(session: Session, source: str) -> None:
    store, prefix = session.store, session.access.prefix
    if not is_known(store, source, prefix):
        remedy = "give --new-source to suspend it before it starts"
        raise CommandError(unknown_source(source, known_sources(store, prefix), remedy=remedy))


def _parse_since(suspensions: Suspensions, since: str) -> datetime:
    """Return the `since` of the suspension that the user means, who may give it to the second."""
    try:
        instant = datetime.fromisoformat(since)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise typer.BadParameter(
            f"it must be an instant with a time zone, such as 2026-01-01T00:00:00Z; got {since!r}", param_hint="--since"
        )
    suspension = suspensions.get()
    is_this_one = suspension is not None and instant in (suspension.since, suspension.since.replace(microsecond=0))
    return suspension.since if suspension is not None and is_this_one else instant


def suspensions_of(session: Session, source: str, prefix: str | None) -> Suspensions:
    """Return the suspensions of a source, to read and to change.

    :param prefix: the prefix of the source; None if it has none.
    """
    return Suspensions(session.store, source_identifier(source, prefix=prefix, family=FAMILY), session.context.clock)


def suspension_text(session: Session, suspension: Suspension | None) -> Text:
    """Return how long a source has been suspended, by whom and why; empty if it is not suspended."""
    if suspension is None:
        return Text("")
    by = f" by {suspension.by}" if suspension.by else ""
    reason = f": {suspension.reason}" if suspension.reason else ""
    return printable(f"{duration(session.context.clock.now() - suspension.since)} ago{by}{reason}")


def _confirm(session: Session, source: str) -> None:
    if not session.context.is_interactive():
        raise typer.BadParameter("there is no terminal to confirm the suspension; give --yes", param_hint="--yes")
    session.output.info(CONSEQUENCE)
    if not session.confirm(f"Suspend {source}?"):
        raise CommandError("not confirmed; nothing was changed")
