"""The command group `supervisor`, and its commands that change one supervisor or all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_coordination.cli.access import airflow_connections, import_airflow
from airflow_provider_coordination.cli.commands import (
    CommandError,
    Session,
    add_command,
)
from airflow_provider_coordination.cli.output import Output, printable
from airflow_provider_coordination.cli.prompts import YES
from airflow_provider_coordination.cli.supervisor_status import (
    ALL,
    OPTIONAL_SOURCE,
    coordinator_of,
    health,
    history,
    list_supervisors,
    parse_errors,
    selected_sources,
    spec,
    stats,
    status,
    status_of,
)
from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.sources.reset_targets import EARLIEST
from airflow_provider_coordination.supervisor.operations import (
    NOT_CHECKED,
    ResetReport,
    SupervisorVerbs,
    apply_to_all,
)
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file

JOBS_END = "Its jobs deliver what they have read, release their leases and end."
CONSEQUENCES = {
    "suspend": f"{JOBS_END} No job starts until it is resumed; records that a stream trims during that time are lost.",
    "terminate": f"{JOBS_END} No more jobs start. A spec that is submitted later continues where this one ended.",
    "reset": "Data is delivered again. Jobs continue, and read reset partitions from their new positions.",
    "forget": "Its partitions are removed with their progress. Its spec is then read as by a new source.",
}

QUESTIONS = {"forget": "what was read by "}
"""What a question has between the verb and the supervisor."""

Verb = Callable[[SupervisorVerbs], object]

SPEC_FILE = Annotated[Path, typer.Argument(metavar="FILE", help="Spec, a YAML or JSON file.", show_default=False)]
REASON = Annotated[str, typer.Option("--reason", help="Reason, kept and shown to users.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the group `supervisor` to the application."""
    group = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Show and control supervisors.",
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
    reason: REASON = "",
    replacing: Annotated[
        int | None,
        typer.Option(
            "--replacing",
            min=1,
            help="Submit only if this version of the spec is the current one.",
            show_default=False,
        ),
    ] = None,
    no_connect: Annotated[bool, typer.Option("--no-connect", help="Do not check the spec against its source.")] = False,
) -> None:
    """Submit a spec as the new version. A terminated supervisor starts again."""
    mapping, _ = read_spec_file(file)
    import_airflow()
    from airflow_provider_coordination.hooks.supervision import checks_against_source

    source, output = IngestionSpec.read(mapping).source, session.output
    check = checks_against_source(session.access.region, connect=not no_connect)
    with airflow_connections():  # the connections of the spec
        try:
            done = _verbs(session, source, reason).submit(mapping, replacing=replacing, check=check)
        except SourceError as error:
            raise CommandError(f"{error}; to skip the check, give --no-connect") from None
    if done.check_failure:
        output.warn(f"{NOT_CHECKED}: {done.check_failure}")
    for warning in done.warnings:
        output.warn(warning)
    if output.as_json:
        record = {"source": source, "version": done.version.version, "change": done.change.name}
        output.record({**record, "consequence": done.consequence})
        return
    output.line(printable(f"{source}: version {done.version.version} is in effect: {done.consequence}"))


def suspend(
    session: Session, source: OPTIONAL_SOURCE = None, *, reason: REASON, everything: ALL = False, yes: YES = False
) -> None:
    """Suspend a supervisor: its jobs deliver what they have read and end, and no job starts."""
    _require_reason(reason)
    names = selected_sources(session, source, everything)
    _confirm(session, "suspend", names, everything=everything, yes=yes)
    _apply(session, names, SupervisorVerbs.suspend, reason, everything=everything, done="suspended")


def resume(session: Session, source: OPTIONAL_SOURCE = None, *, reason: REASON = "", everything: ALL = False) -> None:
    """Resume a suspended supervisor."""
    names = selected_sources(session, source, everything)
    _apply(session, names, SupervisorVerbs.resume, reason, everything=everything, done="resumed")


def reset(
    session: Session,
    source: OPTIONAL_SOURCE = None,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="POSITION",
            help="Position to read the source from: earliest, latest, or an instant such as 2026-01-31T00:00:00Z.",
        ),
    ] = EARLIEST,
    position: Annotated[
        list[str] | None,
        typer.Option(
            "--position",
            metavar="KEY=POSITION",
            help="Position of one partition; only these partitions are reset. Repeatable.",
            show_default=False,
        ),
    ] = None,
    forgets: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Remove all partitions of a suspended or terminated supervisor, so that its spec may read other data.",
        ),
    ] = False,
    reason: REASON = "",
    everything: ALL = False,
    yes: YES = False,
) -> None:
    """Read the source, or some of its partitions, again from a position. Jobs continue there."""
    names, region = selected_sources(session, source, everything), session.access.region
    positions = None if not position else dict(_parse_position(each) for each in position)
    if everything and positions:
        raise typer.BadParameter(
            "--position applies to a single source; give its name instead of --all", param_hint="--all"
        )
    if forgets and (everything or positions or to != EARLIEST):
        raise typer.BadParameter("it excludes --to, --position and --all", param_hint="--forget")
    _confirm(session, "forget" if forgets else "reset", names, everything=everything, yes=yes)

    def whole(verbs: SupervisorVerbs) -> ResetReport:
        with airflow_connections(region) as connections:  # those of the spec
            return verbs.reset_whole(to, connections=connections)

    if everything:
        _apply(session, names, whole, reason, everything=True, done="reset")
        return
    if forgets:
        _show_reset(session.output, _verbs(session, names[0], reason).forget())
        return
    with airflow_connections(region) as connections:
        done = _verbs(session, names[0], reason).reset(to, positions, connections=connections)
    _show_reset(session.output, done)


def _show_reset(output: Output, done: ResetReport) -> None:
    for warning in done.warnings:
        output.warn(warning)
    for key, why in done.unchanged.items():
        output.info(printable(f"{key} is not reset: {why}"))
    for outcome in done.outcomes:
        if output.as_json:
            output.record(outcome)
        elif outcome.error:
            output.info(printable(f"error: {outcome.error}"))
        else:
            output.line(printable(f"{outcome.action} {outcome.partition_key}"))
    if done.failed:
        raise CommandError(f"{len(done.failed)} of {len(done.outcomes)} partitions could not be reset")


def handover(session: Session, source: OPTIONAL_SOURCE = None, *, reason: REASON = "", everything: ALL = False) -> None:
    """Replace every job by a new one now, as at the end of its task duration."""
    names = selected_sources(session, source, everything)
    done = "handing over: each job ends once its successor runs"
    _apply(session, names, SupervisorVerbs.hand_over, reason, everything=everything, done=done)


def terminate(
    session: Session, source: OPTIONAL_SOURCE = None, *, reason: REASON, everything: ALL = False, yes: YES = False
) -> None:
    """Terminate a supervisor: its jobs deliver what they have read and end, and no more jobs start."""
    _require_reason(reason)
    names = selected_sources(session, source, everything)
    _confirm(session, "terminate", names, everything=everything, yes=yes)
    _apply(session, names, SupervisorVerbs.terminate, reason, everything=everything, done="terminated")


def _apply(
    session: Session,
    names: list[str],
    verb: Verb,
    reason: str,
    *,
    everything: bool,
    done: str,
) -> None:
    """Apply a verb to one supervisor or to all, and show the outcome of each as soon as it is known."""
    output = session.output
    if not everything:
        verb(_verbs(session, names[0], reason))
        _show_done(session, names[0], done)
        return
    failed = 0
    for outcome in apply_to_all(names, lambda source: _verbs(session, source, reason), verb):
        if outcome.is_done:
            _show_done(session, outcome.source, done)
        elif output.as_json:
            output.record({"source": outcome.source, "is_done": False, "detail": outcome.detail})
        else:
            output.info(printable(f"{outcome.source}: {outcome.detail}"))
        failed += outcome.has_failed
    if failed:
        raise CommandError(f"{failed} of {len(names)} supervisors failed; fix the causes and try again")


def _show_done(session: Session, source: str, done: str) -> None:
    if session.output.as_json:
        session.output.record({"source": source, "is_done": True, "detail": ""})
    else:
        session.output.line(printable(f"{source} is {done}"))


def _confirm(session: Session, verb: str, names: list[str], *, everything: bool, yes: bool) -> None:
    """Describe the consequence and ask the user to confirm; first check that the supervisors exist."""
    for name in names:
        status_of(session, name)
    if yes:
        return
    what = f"all {len(names)} supervisors" if everything else f"the supervisor of {names[0]}"
    if not session.context.is_interactive():
        raise typer.BadParameter(f"there is no terminal to confirm '{verb}' for {what}; give --yes", param_hint="--yes")
    session.output.info(CONSEQUENCES[verb])
    if not session.confirm(f"{verb.capitalize()} {QUESTIONS.get(verb, '')}{what}?"):
        raise CommandError("not confirmed; nothing was changed")


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise typer.BadParameter("give a reason", param_hint="--reason")


def _parse_position(text: str) -> tuple[str, str]:
    """Return the key and the position of `KEY=POSITION`. Keys may contain an equals sign."""
    key, equals, position = text.rpartition("=")
    if not equals or not key or not position:
        raise typer.BadParameter(
            f"it must have the form KEY=POSITION, such as KEY=latest; got {text!r}",
            param_hint="--position",
        )
    return key, position


def _verbs(session: Session, source: str, reason: str) -> SupervisorVerbs:
    return SupervisorVerbs(coordinator_of(session, source), by=session.context.user(), reason=reason)
