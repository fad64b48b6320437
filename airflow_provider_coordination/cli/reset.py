"""The command `reset`: partitions, a part of a source or all of it are read anew from where a person says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from airflow_provider_coordination.cli.acknowledgments import acknowledgment_sets
from airflow_provider_coordination.cli.commands import EXIT_REFUSED, CommandError, Session
from airflow_provider_coordination.cli.output import partition_record, printable
from airflow_provider_coordination.cli.prompts import REASON, SOME_KEYS, SOURCE, YES, ask, with_progress
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.kinds import SourceKind
from airflow_provider_coordination.sources.reset import Resets, check_progress
from airflow_provider_coordination.sources.reset_targets import (
    EARLIEST,
    ResetAction,
    ResetPlan,
    ResetStep,
    Target,
    target_of,
)


def reset(
    session: Session,
    source: SOURCE,
    keys: SOME_KEYS = None,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="POSITION",
            help="Where to read from: earliest, latest, an instant such as 2026-01-31T00:00:00Z, or, for one "
            "partition, a position of its own such as a sequence number, to read on after. earliest if not given.",
            show_default=False,
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            "--part",
            metavar="NAME",
            help="All of a part of the source that belongs together, such as a stream, in the right order, instead of "
            "keys.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="The whole source, instead of keys.")] = False,
    progress: Annotated[
        str | None,
        typer.Option(
            "--progress",
            metavar="JSON|@FILE",
            help="What to start from, a JSON object, instead of a position. For one partition.",
            show_default=False,
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option("--region", help="The AWS region of the source; with --part and --all.", show_default=False),
    ] = None,
    endpoint_url: Annotated[
        str | None,
        typer.Option("--endpoint-url", help="Where the source's service is, if not at AWS.", show_default=False),
    ] = None,
    role_arn: Annotated[str | None, typer.Option("--role-arn", help="A role to assume.", show_default=False)] = None,
    external_id: Annotated[
        str | None, typer.Option("--external-id", help="What the role's trust policy asks for.", show_default=False)
    ] = None,
    reason: REASON = None,
    yes: YES = False,
) -> None:
    """Read partitions anew from a position, wherever they stand. Their progress is overwritten."""
    if sum(map(bool, (keys, part, everything))) != 1:
        raise typer.BadParameter("give either keys, --part or --all", param_hint="KEY")
    if progress is not None:
        _check_alone(keys, to)

    def access(kind: SourceKind) -> Any:
        given = {"region": region, "endpoint_url": endpoint_url, "role_arn": role_arn, "external_id": external_id}
        return kind.service({"aws": {name: value for name, value in given.items() if value is not None}})

    target = target_of(EARLIEST if to is None else to, session.surroundings.clock.now())
    resets = Resets(acknowledgment_sets(session, source), by=session.surroundings.user(), reason=reason or "")
    if part is not None:
        plan = resets.of_group(part, target, access)
    elif everything:
        plan = resets.of_source(target, access)
    else:
        partitions = _of_keys(session, source, keys or ())
        given = None if progress is None else _json_object(progress)
        plan = resets.of_partitions(partitions, target) if given is None else _with_progress(partitions, target, given)
    _carry_out(session, source, resets, plan, _where(plan, given=progress is not None), yes=yes)


def _carry_out(session: Session, source: str, resets: Resets, plan: ResetPlan, where: str, *, yes: bool) -> None:
    output = session.output
    for key, why in plan.left.items():
        output.say(printable(f"{key} stays: {why}"))
    for warning in plan.warnings:
        output.warn(warning)
    if not plan.steps:
        output.say("There is nothing to reset.")
        return
    partitions = [step.partition for step in plan.steps]
    if yes:
        output.warn(f"the partitions are read {where}: data is delivered again")
    else:
        ask(session, source, "reset", _consequence(plan, where), partitions)
    failures = 0
    done = resets.carry_out(plan)
    for _ in with_progress(output, "reset", partitions):
        step, result = next(done)
        if isinstance(result, CoordinationError):
            failures += 1  # it concerns this partition alone: the others go on
            output.say(f"error: {result}")
        elif output.as_json:
            output.record(partition_record(result) | {"action": str(step.action)})
        else:
            output.line(Text(f"{step.action} ") + printable(step.partition.partition_key) + printable(_former(step)))
    if failures:
        many = len(partitions) > 1
        raise CommandError(
            f"{failures} of {len(partitions)} partitions could not be reset" if many else "", EXIT_REFUSED
        )


def _where(plan: ResetPlan, *, given: bool) -> str:
    target = plan.target
    if given:
        return "from the given progress on"
    if target.is_latest:
        return "from now on"
    if target.instant is not None:
        return f"from what arrived at {target.name} on"
    return f"on after {target.name}" if target.position is not None else "again from the beginning"


def _consequence(plan: ResetPlan, where: str) -> str:
    text = (
        f"Its progress is overwritten, an owner's writes are refused, and it is read {where}: what was delivered after "
        "that is delivered again, and what lies before it and is not delivered is passed over."
    )
    if created := len(plan.of(ResetAction.CREATE)):
        text += f" Of these, {created} had no lease any more and get one."
    if removed := len(plan.of(ResetAction.REMOVE)):
        text += (
            f" Of these, {removed} come after others, as an item after the partition in which it could not be read: "
            " they are removed, and come back once what is before them is finished."
        )
    return text


def _former(step: ResetStep) -> str:
    if step.action is ResetAction.CREATE:
        return ", had no lease"
    seen = step.partition
    return f", was leased to {seen.owner}" if seen.owner else f", was {seen.status}"


def _of_keys(session: Session, source: str, keys: Sequence[str]) -> list[Partition]:
    administration = Administration(session.store, session.source_identifier(source))
    return [administration.get(key) for key in dict.fromkeys(keys)]


def _check_alone(keys: Sequence[str] | None, to: str | None) -> None:
    if keys is None or len(keys) != 1:
        raise typer.BadParameter("it belongs to one partition; give one key", param_hint="--progress")
    if to is not None:
        raise typer.BadParameter("give it or --to", param_hint="--progress")


def _with_progress(partitions: Sequence[Partition], target: Target, given: Mapping[str, Any]) -> ResetPlan:
    for partition in partitions:
        check_progress(partition, given)
    steps = tuple(ResetStep(action=ResetAction.RESET, partition=p, progress=lambda _: given) for p in partitions)
    return ResetPlan(target=target, steps=steps, left={})


def _json_object(text: str) -> dict[str, Any]:
    """Return a JSON object that is given as it is, or as the name of a file after `@`."""
    hint = "--progress"
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise typer.BadParameter(f"file {text[1:]!r} cannot be read: {error}", param_hint=hint) from None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"it is not JSON: {error}", param_hint=hint) from None
    if not isinstance(value, dict):
        raise typer.BadParameter('it is not a JSON object; give for example {"rows_done": 0}', param_hint=hint)
    return value
