"""The command group `supervisor`, and its commands that change one supervisor or all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_coordination.cli.access import airflow_connections, import_airflow
from airflow_provider_coordination.cli.commands import (
    YES,
    CommandError,
    Session,
    add_command,
)
from airflow_provider_coordination.cli.output import Output, printable
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
)
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file
from airflow_provider_coordination.supervisor.verbs import VERBS, Verb, apply_to_all

FORGOTTEN = "Its partitions are removed with their progress. Its spec is then read as by a new source."
"""The consequence of `reset --forget`."""

SPEC_FILE = Annotated[Path, typer.Argument(metavar="FILE", help="Spec, a YAML or JSON file.")]
REASON = Annotated[str, typer.Option("--reason", help="Reason, kept and shown to users.")]


def register(app: typer.Typer) -> None:
    """Add the group `supervisor` to the application."""
    group = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Show and control supervisors.",
    )
    with_arguments: dict[str, Callable[..., None]] = {"submit": submit, "reset": reset}
    commands: dict[str, Callable[..., None]] = {
        "submit": submit,
        "list": list_supervisors,
        "status": status,
        "health": health,
        "stats": stats,
        "parse-errors": parse_errors,
        "spec": spec,
        "history": history,
        **{name: with_arguments.get(name) or _command(verb) for name, verb in VERBS.items()},
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
        typer.Option("--replacing", min=1, help="Submit only if this version of the spec is the current one."),
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


def _command(verb: Verb) -> Callable[..., None]:
    """Return the command of a verb that takes nothing but a reason."""

    def plain(
        session: Session, source: OPTIONAL_SOURCE = None, *, reason: REASON = "", everything: ALL = False
    ) -> None:
        names = selected_sources(session, source, everything)
        _apply(session, names, verb, _run_of(verb), reason, everything=everything)

    def confirmed(
        session: Session, source: OPTIONAL_SOURCE = None, *, reason: REASON, everything: ALL = False, yes: YES = False
    ) -> None:
        if not reason.strip():
            raise typer.BadParameter("give a reason", param_hint="--reason")
        names = selected_sources(session, source, everything)
        _confirm(session, verb.name, verb.consequence(len(names)), names, everything=everything, yes=yes)
        _apply(session, names, verb, _run_of(verb), reason, everything=everything)

    command = confirmed if verb.must_confirm else plain
    command.__doc__ = verb.help
    return command


def _run_of(verb: Verb) -> Callable[[SupervisorVerbs], object]:
    assert verb.run is not None
    return verb.run


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
    verb = VERBS["reset"]
    if forgets:
        _confirm(session, "forget", FORGOTTEN, names, everything=False, yes=yes)
    else:
        _confirm(session, "reset", verb.consequence(len(names)), names, everything=everything, yes=yes)

    def whole(verbs: SupervisorVerbs) -> ResetReport:
        with airflow_connections(region) as connections:  # those of the spec
            return verbs.reset_whole(to, connections=connections)

    if everything:
        _apply(session, names, verb, whole, reason, everything=True)
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


def _apply(
    session: Session,
    names: list[str],
    verb: Verb,
    run: Callable[[SupervisorVerbs], object],
    reason: str,
    *,
    everything: bool,
) -> None:
    """Apply a verb to one supervisor or to all, and show the outcome of each as soon as it is known."""
    output = session.output
    if not everything:
        run(_verbs(session, names[0], reason))
        _show_done(session, names[0], verb.done)
        return
    failed = 0
    for outcome in apply_to_all(names, lambda source: _verbs(session, source, reason), run):
        if outcome.is_done:
            _show_done(session, outcome.source, verb.done)
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


def _confirm(session: Session, verb: str, consequence: str, names: list[str], *, everything: bool, yes: bool) -> None:
    """Describe the consequence and ask the user to confirm; first check that the supervisors exist."""
    for name in names:
        status_of(session, name)
    if yes:
        return
    what = f"all {len(names)} supervisors" if everything else f"the supervisor of {names[0]}"
    if not session.context.is_interactive():
        raise typer.BadParameter(f"there is no terminal to confirm '{verb}' for {what}; give --yes", param_hint="--yes")
    session.output.info(consequence)
    if not session.confirm(f"{verb.capitalize()} {'what was read by ' if verb == 'forget' else ''}{what}?"):
        raise CommandError("not confirmed; nothing was changed")


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
