"""The commands about acknowledgment sets: `acknowledgments`, `acknowledge`, `extend`, `cancel`.

For systems outside Airflow that have a shell, and for people who see why a batch is not counted as delivered.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.cli.commands import CommandError, Session, add_command
from airflow_provider_coordination.cli.output import ALARM, Column, duration, printable, table
from airflow_provider_coordination.cli.prompts import SOURCE
from airflow_provider_coordination.coordination.acknowledgment import (
    AcknowledgmentSet,
    AcknowledgmentState,
    ReleaseEffect,
    record_of,
)
from airflow_provider_coordination.coordination.acknowledgment_sets import MAX_TIMEOUT, AcknowledgmentSets
from airflow_provider_coordination.coordination.acknowledgment_view import RETENTION
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.batches import SourceBatches

SET = Annotated[str, typer.Argument(metavar="SET", help="The set's name.", show_default=False)]

MAX_SECONDS = int(MAX_TIMEOUT.total_seconds())

COLUMNS = (
    Column("set"),
    Column("state"),
    Column("time"),
    Column("done", numbers=True),
    Column("owed by, or why it ended"),
    Column("run", shortened=True),
)
STYLES = {
    AcknowledgmentState.PENDING: "cyan",
    AcknowledgmentState.ACKNOWLEDGED: "green",
    AcknowledgmentState.REJECTED: ALARM,
    AcknowledgmentState.EXPIRED: ALARM,
    AcknowledgmentState.CANCELLED: "yellow",
}
EFFECTS = {
    ReleaseEffect.RELEASED: "released",
    ReleaseEffect.DUPLICATE: "released before, nothing changed:",
    ReleaseEffect.LATE: "came late, nothing changed:",
}


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    add_command(app, "acknowledgments", acknowledgments)
    add_command(app, "acknowledge", acknowledge)
    add_command(app, "extend", extend)
    add_command(app, "cancel", cancel)


def acknowledgments(
    session: Session,
    source: SOURCE,
    *,
    ended: Annotated[bool, typer.Option("--ended", help="Those that ended, instead of the pending ones.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Those that ended, too.")] = False,
    run: Annotated[
        str | None, typer.Option("--run", metavar="DAG/RUN", help="Only of this Airflow run.", show_default=False)
    ] = None,
    batch: Annotated[str | None, typer.Option("--batch", help="Only of this batch.", show_default=False)] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many.")] = None,
) -> None:
    """List the acknowledgment sets of a source: the batches that wait for somebody to say that they arrived."""
    sets = acknowledgment_sets(session, source)

    def found() -> Iterator[AcknowledgmentSet]:
        if everything or not ended:
            yield from sets.view.pending(run=run)
        if everything or ended:
            yield from sets.view.ended_since(session.surroundings.clock.now() - RETENTION, run=run)

    shown = islice((each for each in found() if batch in (None, each.batch_id)), limit)
    output, now = session.output, session.surroundings.clock.now()
    if output.as_json:
        for each in shown:
            output.record(record_of(each))
        return
    rows = [_row(each, now) for each in shown]
    if rows:
        output.results.print(table(output.results, COLUMNS, rows))
    else:
        output.say("There is no such set." if everything or ended or run or batch else "Nothing is pending.")


def acknowledge(
    session: Session,
    source: SOURCE,
    set_id: SET,
    *,
    handle: Annotated[
        str | None,
        typer.Option("--handle", help="Whose reference; needed where several are outside the job.", show_default=False),
    ] = None,
    negative: Annotated[bool, typer.Option("--negative", help="The data did not arrive: deliver it again.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; with --negative.", show_default=False)] = None,
    release_id: Annotated[
        str | None,
        typer.Option(
            "--release-id",
            help="The release's identity: repeated, it counts once. The handle's name if not given.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Release a reference of a set: say that a batch arrived, or that it did not. Safe to repeat."""
    if negative and not (reason and reason.strip()):
        raise typer.BadParameter("say why the data did not arrive", param_hint="--reason")
    if reason and not negative:
        raise typer.BadParameter("it belongs to --negative", param_hint="--reason")
    sets = _sets_to_change(session, source, set_id)
    written, effect = sets.acknowledge(
        set_id,
        positive=not negative,
        handle=handle,
        release_id=release_id,
        reason=reason,
        by=session.surroundings.user(),
    )
    if session.output.as_json:
        session.output.record({"effect": str(effect), **record_of(written)})
    else:
        _say(session, EFFECTS[effect], written)
    if effect is ReleaseEffect.LATE:
        session.output.warn("the set had ended before; see what became of its batch")


def extend(
    session: Session,
    source: SOURCE,
    set_id: SET,
    *,
    seconds: Annotated[
        int,
        typer.Option("--seconds", min=1, max=MAX_SECONDS, help="For so long from now on.", show_default=False),
    ],
) -> None:
    """Let a pending set wait longer. Its batch's partition stays leased as long."""
    sets = _sets_to_change(session, source, set_id)
    written = sets.extend(set_id, timedelta(seconds=seconds))
    if session.output.as_json:
        session.output.record(record_of(written))
    else:
        _say(session, "extended", written)


def cancel(
    session: Session,
    source: SOURCE,
    set_id: SET,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the set.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Take a pending set back: its batch is delivered again, and no failure is counted."""
    if not reason.strip():
        raise typer.BadParameter("say why", param_hint="--reason")
    sets = _sets_to_change(session, source, set_id)
    seen = sets.view.get(set_id)
    if not seen.is_pending:
        raise CommandError(f"{seen} has ended, {seen.state}: there is nothing to cancel")
    if not yes:
        _ask(session, source, seen)
    written = sets.cancel(set_id, reason, by=session.surroundings.user())
    if session.output.as_json:
        session.output.record(record_of(written))
    else:
        _say(session, "cancelled" if written.state is AcknowledgmentState.CANCELLED else "had ended before:", written)


def acknowledgment_sets(session: Session, source: str) -> AcknowledgmentSets:
    """Return the acknowledgment sets of a source; its coordinator is not initialized."""
    coordinator = SourceCoordinator(
        session.store,
        source,
        f"{socket.gethostname()}:cli:{secrets.token_hex(4)}",
        prefix=session.access.prefix,
        retry_policy=session.access.retry_policy,
        clock=session.surroundings.clock,
    )
    return AcknowledgmentSets(coordinator, SourceBatches())


def _sets_to_change(session: Session, source: str, set_id: str) -> AcknowledgmentSets:
    sets = acknowledgment_sets(session, source)
    sets.view.get(set_id)  # before anything could be created in a store that holds nothing
    sets.coordinator.initialize()
    return sets


def _ask(session: Session, source: str, seen: AcknowledgmentSet) -> None:
    if not session.surroundings.is_interactive():
        raise typer.BadParameter(
            "there is no terminal to ask whether to cancel this set; give --yes", param_hint="--yes"
        )
    output, now = session.output, session.surroundings.clock.now()
    output.talk.print(table(output.talk, COLUMNS, [_row(seen, now)]))
    output.say("Its batch is delivered again, and releases that still come change nothing.")
    if not session.agrees(f"Cancel this set of {source}?"):
        raise CommandError("not confirmed, nothing was changed")


def _say(session: Session, what: str, written: AcknowledgmentSet) -> None:
    now = session.surroundings.clock.now()
    still = f", owed by {_owed(written)}, expires {_time(written, now)}" if written.is_pending else ""
    session.output.line(Text(f"{what} ") + printable(written.set_id) + printable(f", is {written.state}{still}"))


def _row(each: AcknowledgmentSet, now: datetime) -> tuple[Text, ...]:
    return (
        printable(each.set_id),
        Text(each.state, style=STYLES[each.state]),
        Text(_time(each, now), style=ALARM if each.is_pending and each.expires_at <= now else ""),
        Text(f"{each.added - each.owed}/{each.added}"),
        printable(_owed(each) if each.is_pending else each.reason or ""),
        printable(each.run),
    )


def _time(each: AcknowledgmentSet, now: datetime) -> str:
    if each.ended_at is not None:
        return f"{duration(now - each.ended_at)} ago"
    left = each.expires_at - now
    return f"in {duration(left)}" if left > timedelta(0) else f"{duration(-left)} over"


def _owed(each: AcknowledgmentSet) -> str:
    """Return who still owes how much: `check, load 2`."""
    return ", ".join(f"{handle} {owed}" if owed > 1 else handle for handle, owed in each.references.items() if owed)
