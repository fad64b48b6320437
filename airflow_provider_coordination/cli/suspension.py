"""The commands `suspend` and `resume`, and how other commands show that a source is suspended."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.cli.commands import CommandError, Session
from airflow_provider_coordination.cli.output import duration, printable
from airflow_provider_coordination.cli.prompts import SOURCE, YES
from airflow_provider_coordination.coordination.partition import source_identifier
from airflow_provider_coordination.coordination.source_statistics import is_known, known_sources, unknown_source
from airflow_provider_coordination.coordination.suspension import FAMILY, Suspension, Suspensions

CONSEQUENCE = (
    "Jobs deliver what they have read, release their leases and end within seconds. No partition is acquired or "
    "discovered until the source is resumed; records that a stream trims during that time are lost."
)


def suspend(
    session: Session,
    source: SOURCE,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Reason, shown by jobs, tasks and logs.", show_default=False)],
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
    reason: Annotated[str | None, typer.Option("--reason", help="Reason, logged.", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Accepted for scripts; this command never asks.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            help="Resume only a suspension since this instant, as shown by `sources --json`.",
            show_default=False,
        ),
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
