"""The commands about acknowledgment sets: `acknowledgments`, `acknowledge`, `extend`, `cancel`.

They serve external systems that have a shell, and users who investigate why a batch is not yet delivered.
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

from airflow_provider_coordination.cli.commands import SOURCE, CommandError, Session, add_command
from airflow_provider_coordination.cli.output import ALARM, OutputColumn, duration, printable, table
from airflow_provider_coordination.coordination.acknowledgment import (
    RETENTION,
    AcknowledgmentSet,
    AcknowledgmentState,
    ReleaseEffect,
    record_of,
)
from airflow_provider_coordination.coordination.acknowledgment_sets import MAX_TIMEOUT, AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.kinds import SourceBatches

SET = Annotated[str, typer.Argument(metavar="SET", help="Name of the acknowledgment set.")]

MAX_SECONDS = int(MAX_TIMEOUT.total_seconds())

COLUMNS = (
    OutputColumn("set"),
    OutputColumn("state"),
    OutputColumn("time"),
    OutputColumn("done", numbers=True),
    OutputColumn("waits for, or reason"),
    OutputColumn("run", shortened=True),
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
    ReleaseEffect.DUPLICATE: "already released, nothing changed:",
    ReleaseEffect.LATE: "too late, nothing changed:",
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
    ended: Annotated[bool, typer.Option("--ended", help="Only sets that have ended, instead of pending ones.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Pending sets and those that have ended.")] = False,
    run: Annotated[str | None, typer.Option("--run", metavar="DAG/RUN", help="Only sets of this Airflow run.")] = None,
    batch: Annotated[str | None, typer.Option("--batch", help="Only sets of this batch.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of sets.")] = None,
) -> None:
    """List the acknowledgment sets of a source: the batches that wait for acknowledgment."""
    sets = acknowledgment_sets(session, source)

    def found() -> Iterator[AcknowledgmentSet]:
        if everything or not ended:
            yield from sets.view.pending(run=run)
        if everything or ended:
            yield from sets.view.ended_since(session.context.clock.now() - RETENTION, run=run)

    shown = islice((each for each in found() if batch in (None, each.batch_id)), limit)
    output, now = session.output, session.context.clock.now()
    if output.as_json:
        for each in shown:
            output.record(record_of(each))
        return
    rows = [_row(each, now) for each in shown]
    if rows:
        output.results.print(table(output.results, COLUMNS, rows))
    else:
        output.info("No such acknowledgment sets." if everything or ended or run or batch else "Nothing is pending.")


def acknowledge(
    session: Session,
    source: SOURCE,
    set_id: SET,
    *,
    handle: Annotated[
        str | None, typer.Option("--handle", help="Handle to release. Required if several handles are external.")
    ] = None,
    negative: Annotated[
        bool, typer.Option("--negative", help="Reject: the data did not arrive, deliver the batch again.")
    ] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Reason; requires --negative.")] = None,
    release_id: Annotated[
        str | None,
        typer.Option(
            "--release-id", help="ID of this release; a repeated ID counts once. Default: the name of the handle."
        ),
    ] = None,
) -> None:
    """Acknowledge or reject a batch by releasing a reference of its acknowledgment set. Safe to repeat."""
    if negative and not (reason and reason.strip()):
        raise typer.BadParameter("give the reason why the data did not arrive", param_hint="--reason")
    if reason and not negative:
        raise typer.BadParameter("it requires --negative", param_hint="--reason")
    sets = _sets_to_change(session, source, set_id)
    written, effect = sets.acknowledge(
        set_id,
        positive=not negative,
        handle=handle,
        release_id=release_id,
        reason=reason,
        by=session.context.user(),
    )
    if session.output.as_json:
        session.output.record({"effect": str(effect), **record_of(written)})
    else:
        _report(session, EFFECTS[effect], written)
    if effect is ReleaseEffect.LATE:
        session.output.warn("the acknowledgment set had already ended; check the state of its batch")


def extend(
    session: Session,
    source: SOURCE,
    set_id: SET,
    *,
    seconds: Annotated[int, typer.Option("--seconds", min=1, max=MAX_SECONDS, help="New time until expiry, from now.")],
) -> None:
    """Extend the expiry of a pending acknowledgment set. The partition of its batch stays leased until then."""
    sets = _sets_to_change(session, source, set_id)
    written = sets.extend(set_id, timedelta(seconds=seconds))
    if session.output.as_json:
        session.output.record(record_of(written))
    else:
        _report(session, "extended", written)


def cancel(
    session: Session,
    source: SOURCE,
    set_id: SET,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Reason, kept with the set.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Cancel a pending acknowledgment set. Its batch is delivered again, and no failure is counted."""
    if not reason.strip():
        raise typer.BadParameter("give a reason", param_hint="--reason")
    sets = _sets_to_change(session, source, set_id)
    seen = sets.view.get(set_id)
    if not seen.is_pending:
        raise CommandError(f"{seen} has ended as {seen.state}; only a pending set can be cancelled")
    if not yes:
        _confirm(session, source, seen)
    written = sets.cancel(set_id, reason, by=session.context.user())
    if session.output.as_json:
        session.output.record(record_of(written))
    else:
        _report(
            session, "cancelled" if written.state is AcknowledgmentState.CANCELLED else "had already ended:", written
        )


def acknowledgment_sets(session: Session, source: str) -> AcknowledgmentSets:
    """Return the acknowledgment sets of a source, with a coordinator that is not initialized."""
    coordinator = SourceCoordinator(
        session.store,
        source,
        f"{socket.gethostname()}:cli:{secrets.token_hex(4)}",
        prefix=session.access.prefix,
        retry_policy=session.access.retry_policy,
        clock=session.context.clock,
    )
    return AcknowledgmentSets(coordinator, SourceBatches())


def _sets_to_change(session: Session, source: str, set_id: str) -> AcknowledgmentSets:
    sets = acknowledgment_sets(session, source)
    sets.view.get(set_id)  # fails before anything is created in an empty store
    sets.coordinator.initialize()
    return sets


def _confirm(session: Session, source: str, seen: AcknowledgmentSet) -> None:
    if not session.context.is_interactive():
        raise typer.BadParameter("there is no terminal to confirm the cancellation; give --yes", param_hint="--yes")
    output, now = session.output, session.context.clock.now()
    output.messages.print(table(output.messages, COLUMNS, [_row(seen, now)]))
    output.info("Its batch will be delivered again. Later releases of this set change nothing.")
    if not session.confirm(f"Cancel this acknowledgment set of {source}?"):
        raise CommandError("not confirmed; nothing was changed")


def _report(session: Session, what: str, written: AcknowledgmentSet) -> None:
    now = session.context.clock.now()
    still = f", waits for {_owed(written)}, expires {_time(written, now)}" if written.is_pending else ""
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
    """Return the handles with unreleased references and their numbers, such as `check, load 2`."""
    return ", ".join(f"{handle} {owed}" if owed > 1 else handle for handle, owed in each.references.items() if owed)
