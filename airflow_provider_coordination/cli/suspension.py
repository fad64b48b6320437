"""The commands `suspend` and `resume`, and how the others tell that a source is suspended."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from airflow_provider_coordination.cli.commands import CommandError, Session
from airflow_provider_coordination.cli.output import duration, printable
from airflow_provider_coordination.cli.prompts import SOURCE, YES
from airflow_provider_coordination.coordination.known_sources import is_known, known_sources, unknown_source
from airflow_provider_coordination.coordination.partition import format_instant, source_identifier
from airflow_provider_coordination.coordination.suspension import FAMILY, Suspension, Suspensions

CONSEQUENCE = (
    "Jobs deliver what they have read, give their leases back and end within seconds. Nothing is acquired and nothing "
    "new is looked for until resume; what a stream trims meanwhile is lost."
)


def suspend(
    session: Session,
    source: SOURCE,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why; jobs, tasks and logs tell it.", show_default=False)],
    yes: YES = False,
    new_source: Annotated[
        bool, typer.Option("--new-source", help="Also a source of which the store holds nothing yet.")
    ] = False,
) -> None:
    """Let nobody begin anything new with a source. Jobs deliver what they have read, and end."""
    if not reason.strip():
        raise typer.BadParameter("say why", param_hint="--reason")
    output, suspensions = session.output, suspensions_of(session, source, session.access.prefix)
    before = suspensions.get()
    if before is None:
        if not new_source:
            _check_known(session, source)
        if not yes:
            _ask(session, source)
    suspension = suspensions.suspend(session.surroundings.user(), reason)
    if output.as_json:
        output.record({"source": source, "suspended": suspension_record(suspension)})
        return
    if before is not None:
        output.say("It was suspended before, and stays so as it is.")
    output.line(printable(f"{source} is {suspension}"))


def resume(
    session: Session,
    source: SOURCE,
    *,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; logged.", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Changes nothing: this command never asks.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            help="Only if it is suspended since this instant, as `sources --json` tells it; else nothing.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Let a suspended source go on."""
    output, suspensions = session.output, suspensions_of(session, source, session.access.prefix)
    seen = None if since is None else _as_seen(suspensions, since)
    former = suspensions.resume(session.surroundings.user(), reason or "", since=seen)
    if output.as_json:
        output.record({"source": source, "suspended": None, "was_suspended": suspension_record(former)})
    elif former is None:
        output.say(f"{source} is not suspended.")
    else:
        output.line(printable(f"resumed {source}, which was {former}"))


def _check_known(session: Session, source: str) -> None:
    store, prefix = session.store, session.access.prefix
    if not is_known(store, source, prefix):
        remedy = "give --new-source to suspend it before it begins"
        raise CommandError(unknown_source(source, known_sources(store, prefix), remedy=remedy))


def _as_seen(suspensions: Suspensions, since: str) -> datetime:
    """Return the `since` of the suspension that a person has seen, who may have read it to the second."""
    try:
        given = datetime.fromisoformat(since)
    except ValueError:
        given = None
    if given is None or given.tzinfo is None:
        raise typer.BadParameter(
            f"give an instant with its zone, such as 2026-01-01T00:00:00Z; got {since!r}", param_hint="--since"
        )
    found = suspensions.get()
    is_this_one = found is not None and given in (found.since, found.since.replace(microsecond=0))
    return found.since if found is not None and is_this_one else given


def suspensions_of(session: Session, source: str, prefix: str | None) -> Suspensions:
    """Return whether a source is suspended, to look at and to change.

    :param prefix: of the source; None for none.
    """
    return Suspensions(
        session.store, source_identifier(source, prefix=prefix, family=FAMILY), session.surroundings.clock
    )


def suspension_record(suspension: Suspension | None) -> dict[str, Any] | None:
    """Return a suspension as a JSON object; None if there is none."""
    if suspension is None:
        return None
    return {"since": format_instant(suspension.since), "by": suspension.by, "reason": suspension.reason}


def suspension_text(session: Session, suspension: Suspension | None) -> Text:
    """Return for how long a source has been suspended, by whom and why; nothing if it is not."""
    if suspension is None:
        return Text("")
    by = f" by {suspension.by}" if suspension.by else ""
    reason = f": {suspension.reason}" if suspension.reason else ""
    return printable(f"{duration(session.surroundings.clock.now() - suspension.since)} ago{by}{reason}")


def _ask(session: Session, source: str) -> None:
    if not session.surroundings.is_interactive():
        raise typer.BadParameter(
            "there is no terminal to ask whether to suspend this source; give --yes", param_hint="--yes"
        )
    session.output.say(CONSEQUENCE)
    if not session.agrees(f"Suspend {source}?"):
        raise CommandError("not confirmed, nothing was changed")
