"""The commands of the group `supervisor`, and those of them that ask something of one supervisor, or of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_coordination.cli.access import connections_of_airflow, import_airflow
from airflow_provider_coordination.cli.commands import (
    CommandError,
    Session,
    add_command,
)
from airflow_provider_coordination.cli.output import Output, printable
from airflow_provider_coordination.cli.prompts import YES
from airflow_provider_coordination.cli.supervisor_status import (
    ALL,
    SOME_SOURCE,
    coordinator_of,
    health,
    history,
    list_supervisors,
    named,
    parse_errors,
    spec,
    stats,
    status,
    status_of,
)
from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.sources.reset_targets import EARLIEST
from airflow_provider_coordination.supervisor.operations import (
    UNANSWERED,
    ResetReport,
    SupervisorVerbs,
    for_all,
)
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file

ENDS = "Its jobs deliver what they have read, give their leases back and end."
CONSEQUENCES = {
    "suspend": f"{ENDS} None is started until resume; what a stream trims during that time is lost.",
    "terminate": f"{ENDS} None is started any more. A spec that is submitted later goes on where this one ended.",
    "reset": "What was delivered is delivered again. Jobs go on, and take up what is reset at its new position.",
}

Verb = Callable[[SupervisorVerbs], object]

SPEC_FILE = Annotated[Path, typer.Argument(metavar="FILE", help="The spec.", show_default=False)]
WHY = Annotated[str, typer.Option("--reason", help="Why; kept and shown.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the group `supervisor` to the application."""
    group = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="See how supervisors stand, and steer them.",
    )
    commands: dict[str, Callable[..., None]] = {
        "submit": submit,
        "list": list_supervisors,
        "status": status,
        "health": health,
        "stats": stats,
        "parse-errors": parse_errors,
        "spec": spec,
        "history": history,
        "suspend": suspend,
        "resume": resume,
        "reset": reset,
        "handover": handover,
        "terminate": terminate,
    }
    for name, command in commands.items():
        add_command(group, name, command)
    app.add_typer(group, name="supervisor")


def submit(
    session: Session,
    file: SPEC_FILE,
    *,
    reason: WHY = "",
    replacing: Annotated[
        int | None,
        typer.Option(
            "--replacing",
            min=1,
            help="Only if this version rules, from which the file was made; else nothing.",
            show_default=False,
        ),
    ] = None,
    no_connect: Annotated[
        bool, typer.Option("--no-connect", help="Without asking the source first, which cannot be reached from here.")
    ] = False,
) -> None:
    """Submit a spec, which rules from now on. A supervisor that was terminated begins anew."""
    mapping, _ = read_spec_file(file)
    import_airflow()
    from airflow_provider_coordination.hooks.source_checks import checks_against_source

    source, output = IngestionSpec.read(mapping).source, session.output
    check = checks_against_source(session.access.region, connect=not no_connect)
    with connections_of_airflow():  # those that the spec names
        try:
            done = _verbs(session, source, reason).submit(mapping, replacing=replacing, check=check)
        except SourceError as error:
            raise CommandError(f"{error}; give --no-connect for that") from None
    if done.unanswered:
        output.warn(f"{UNANSWERED}: {done.unanswered}")
    if output.as_json:
        record = {"source": source, "version": done.version.version, "change": done.change.name}
        output.record({**record, "consequence": done.consequence})
        return
    output.line(printable(f"{source}: version {done.version.version} rules: {done.consequence}"))


def suspend(
    session: Session, source: SOME_SOURCE = None, *, reason: WHY, everything: ALL = False, yes: YES = False
) -> None:
    """Suspend a supervisor: its jobs deliver what they have read and end, and none is started."""
    _require(reason)
    names = named(session, source, everything)
    _ask(session, "suspend", names, everything=everything, yes=yes)
    _act(session, names, SupervisorVerbs.suspend, reason, everything=everything, done="suspended")


def resume(session: Session, source: SOME_SOURCE = None, *, reason: WHY = "", everything: ALL = False) -> None:
    """Let a suspended supervisor go on."""
    names = named(session, source, everything)
    _act(session, names, SupervisorVerbs.resume, reason, everything=everything, done="resumed")


def reset(
    session: Session,
    source: SOME_SOURCE = None,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="POSITION",
            help="Where the whole source is read from: earliest, latest, or an instant such as 2026-01-31T00:00:00Z.",
        ),
    ] = EARLIEST,
    position: Annotated[
        list[str] | None,
        typer.Option(
            "--position",
            metavar="KEY=POSITION",
            help="Where this partition alone is read from instead; may be given several times.",
            show_default=False,
        ),
    ] = None,
    reason: WHY = "",
    everything: ALL = False,
    yes: YES = False,
) -> None:
    """Read the source anew, or some of its partitions; jobs go on from the new positions."""
    names, region = named(session, source, everything), session.access.region
    positions = None if not position else dict(_position(each) for each in position)
    if everything and positions:
        raise typer.BadParameter("a position is one of a single source; give its name, not --all", param_hint="--all")
    _ask(session, "reset", names, everything=everything, yes=yes)

    def whole(verbs: SupervisorVerbs) -> ResetReport:
        with connections_of_airflow():  # those that the spec names
            return verbs.reset_whole(to, default_region=region)

    if everything:
        _act(session, names, whole, reason, everything=True, done="reset")
        return
    with connections_of_airflow():
        done = _verbs(session, names[0], reason).reset(to, positions, default_region=region)
    _show_reset(session.output, done)


def _show_reset(output: Output, done: ResetReport) -> None:
    for warning in done.warnings:
        output.warn(warning)
    for key, why in done.left.items():
        output.say(printable(f"{key} stays: {why}"))
    for outcome in done.outcomes:
        if output.as_json:
            output.record({"partition_key": outcome.partition_key, "action": outcome.action, "error": outcome.error})
        elif outcome.error:
            output.say(printable(f"error: {outcome.error}"))
        else:
            output.line(printable(f"{outcome.action} {outcome.partition_key}"))
    if done.failed:
        raise CommandError(f"{len(done.failed)} of {len(done.outcomes)} partitions could not be reset")


def handover(session: Session, source: SOME_SOURCE = None, *, reason: WHY = "", everything: ALL = False) -> None:
    """Have every job hand over to a new one now, as at the end of its time."""
    names = named(session, source, everything)
    done = "asked to hand over: each job does once its successor runs"
    _act(session, names, SupervisorVerbs.hand_over, reason, everything=everything, done=done)


def terminate(
    session: Session, source: SOME_SOURCE = None, *, reason: WHY, everything: ALL = False, yes: YES = False
) -> None:
    """Terminate a supervisor: its jobs deliver what they have read and end, and none is started any more."""
    _require(reason)
    names = named(session, source, everything)
    _ask(session, "terminate", names, everything=everything, yes=yes)
    _act(session, names, SupervisorVerbs.terminate, reason, everything=everything, done="terminated")


def _act(
    session: Session,
    names: list[str],
    verb: Verb,
    reason: str,
    *,
    everything: bool,
    done: str,
) -> None:
    """Ask one supervisor, or all; show what it came to for each as soon as that is known."""
    output = session.output
    if not everything:
        verb(_verbs(session, names[0], reason))
        _show_done(session, names[0], done)
        return
    failed = 0
    for outcome in for_all(names, lambda source: _verbs(session, source, reason), verb):
        if outcome.is_done:
            _show_done(session, outcome.source, done)
        elif output.as_json:
            output.record({"source": outcome.source, "is_done": False, "detail": outcome.detail})
        else:
            output.say(printable(f"{outcome.source}: {outcome.detail}"))
        failed += outcome.has_failed
    if failed:
        raise CommandError(f"it failed for {failed} of {len(names)} supervisors; put that right and try again")


def _show_done(session: Session, source: str, done: str) -> None:
    if session.output.as_json:
        session.output.record({"source": source, "is_done": True, "detail": ""})
    else:
        session.output.line(printable(f"{source} is {done}"))


def _ask(session: Session, verb: str, names: list[str], *, everything: bool, yes: bool) -> None:
    """Say what will happen, and ask; nobody is asked about a supervisor that there is not."""
    for name in names:
        status_of(session, name)
    if yes:
        return
    what = f"all {len(names)} supervisors" if everything else f"the supervisor of {names[0]}"
    if not session.surroundings.is_interactive():
        raise typer.BadParameter(
            f"there is no terminal to ask whether to {verb} {what}; give --yes", param_hint="--yes"
        )
    session.output.say(CONSEQUENCES[verb])
    if not session.agrees(f"{verb.capitalize()} {what}?"):
        raise CommandError("not confirmed, nothing was changed")


def _require(reason: str) -> None:
    if not reason.strip():
        raise typer.BadParameter("say why", param_hint="--reason")


def _position(text: str) -> tuple[str, str]:
    """Return the partition and the position that `KEY=POSITION` says; keys may have an equals sign in them."""
    key, equals, position = text.rpartition("=")
    if not equals or not key or not position:
        raise typer.BadParameter(
            f"give the key of a partition and where it is read from, as KEY=latest; got {text!r}",
            param_hint="--position",
        )
    return key, position


def _verbs(session: Session, source: str, reason: str) -> SupervisorVerbs:
    return SupervisorVerbs(coordinator_of(session, source), by=session.surroundings.user(), reason=reason)
