"""The command `reset`: reads partitions, a part of a source, or the whole source again from a given position."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from airflow_provider_coordination.cli.acknowledgments import acknowledgment_sets
from airflow_provider_coordination.cli.commands import (
    EXIT_REFUSED,
    OPTIONAL_KEYS,
    REASON,
    SOURCE,
    YES,
    CommandError,
    Session,
    confirm_action,
    with_progress,
)
from airflow_provider_coordination.cli.output import partition_record, printable
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import CoordinationError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.forgetting import forget, forgettable
from airflow_provider_coordination.sources.reset import Resets, check_progress
from airflow_provider_coordination.sources.reset_targets import (
    EARLIEST,
    ResetAction,
    ResetPlan,
    ResetStep,
    Target,
    parse_target,
)
from airflow_provider_coordination.sources.source_kind import SourceKind

FORGOTTEN = "Progress is lost. Whatever the source reads next is read as by a new source, from its start."
"""The consequence of `--forget`."""


def reset(
    session: Session,
    source: SOURCE,
    keys: OPTIONAL_KEYS = None,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="POSITION",
            help="Position to read from: earliest, latest, an instant such as 2026-01-31T00:00:00Z, or, for one "
            "partition, a position to continue after, such as a sequence number. Default: earliest.",
            show_default=False,
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            "--part",
            metavar="NAME",
            help="All partitions of one part of the source, such as a stream, instead of keys.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All partitions of the source, instead of keys.")] = False,
    forgets: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Remove all partitions of a suspended source, so that it may read other data, instead of keys.",
        ),
    ] = False,
    progress: Annotated[
        str | None,
        typer.Option(
            "--progress",
            metavar="JSON|@FILE",
            help="Progress to start from, a JSON object, instead of a position. For one partition.",
            show_default=False,
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option("--region", help="AWS region of the source, for --part and --all.", show_default=False),
    ] = None,
    endpoint_url: Annotated[
        str | None,
        typer.Option("--endpoint-url", help="Endpoint of the source's service, if it is not AWS.", show_default=False),
    ] = None,
    role_arn: Annotated[str | None, typer.Option("--role-arn", help="Role to assume.", show_default=False)] = None,
    external_id: Annotated[
        str | None,
        typer.Option("--external-id", help="External ID that the role's trust policy requires.", show_default=False),
    ] = None,
    reason: REASON = None,
    yes: YES = False,
) -> None:
    """Read partitions in any status again from a position. Their progress is overwritten."""
    if sum(map(bool, (keys, part, everything, forgets))) != 1:
        raise typer.BadParameter("give exactly one of keys, --part, --all and --forget", param_hint="KEY")
    if progress is not None:
        _check_alone(keys, to)
    if forgets:
        if to is not None:
            raise typer.BadParameter("it excludes --to", param_hint="--forget")
        _forget(session, source, reason or "", yes=yes)
        return

    def access(kind: SourceKind) -> Any:
        aws = {"region": region, "endpoint_url": endpoint_url, "role_arn": role_arn, "external_id": external_id}
        return kind.service({"aws": {name: value for name, value in aws.items() if value is not None}})

    target = parse_target(EARLIEST if to is None else to, session.context.clock.now())
    resets = Resets(acknowledgment_sets(session, source), by=session.context.user(), reason=reason or "")
    if part is not None:
        plan = resets.plan_group(part, target, access)
    elif everything:
        plan = resets.plan_source(target, access)
    else:
        partitions = _of_keys(session, source, keys or ())
        values = None if progress is None else _json_object(progress)
        plan = (
            resets.plan_partitions(partitions, target) if values is None else _with_progress(partitions, target, values)
        )
    _carry_out(session, source, resets, plan, _where(plan, with_progress=progress is not None), yes=yes)


def _forget(session: Session, source: str, reason: str, *, yes: bool) -> None:
    output, coordinator = session.output, acknowledgment_sets(session, source).coordinator
    coordinator.initialize()
    partitions = forgettable(coordinator)
    if coordinator.view.is_empty():
        output.info("No partitions to forget.")
        return
    if not yes:
        confirm_action(session, source, "forget", FORGOTTEN, partitions)
    failures = 0
    for partition, error in forget(coordinator, by=session.context.user(), reason=reason):
        if error is not None:
            failures += 1
            output.info(f"error: {error}")
        elif output.as_json:
            output.record(partition_record(partition) | {"action": str(ResetAction.REMOVE)})
        else:
            output.line(
                Text(f"{ResetAction.REMOVE} ") + printable(f"{partition.partition_key}, was {partition.status}")
            )
    if failures:
        raise CommandError(f"{failures} partitions could not be removed; try again", EXIT_REFUSED)


def _carry_out(session: Session, source: str, resets: Resets, plan: ResetPlan, where: str, *, yes: bool) -> None:
    output = session.output
    for key, why in plan.left.items():
        output.info(printable(f"{key} is not reset: {why}"))
    for warning in plan.warnings:
        output.warn(warning)
    if not plan.steps:
        output.info("No partitions to reset.")
        return
    partitions = [step.partition for step in plan.steps]
    if yes:
        output.warn(f"the partitions are read {where}: data is delivered again")
    else:
        confirm_action(session, source, "reset", _consequence(plan, where), partitions)
    failures = 0
    done = resets.apply(plan)
    for _ in with_progress(output, "reset", partitions):
        step, result = next(done)
        if isinstance(result, StoreUnavailableError):
            raise result
        if isinstance(result, CoordinationError):
            failures += 1  # the failure concerns only this partition: continue with the others
            output.info(f"error: {result}")
        elif output.as_json:
            output.record(partition_record(result) | {"action": str(step.action)})
        else:
            output.line(Text(f"{step.action} ") + printable(step.partition.partition_key) + printable(_previous(step)))
    if failures:
        many = len(partitions) > 1
        raise CommandError(
            f"{failures} of {len(partitions)} partitions could not be reset" if many else "", EXIT_REFUSED
        )


def _where(plan: ResetPlan, *, with_progress: bool) -> str:
    target = plan.target
    if with_progress:
        return "from the given progress on"
    if target.is_latest:
        return "from now on"
    if target.instant is not None:
        return f"from records that arrived at {target.name} on"
    return f"on after {target.name}" if target.position is not None else "again from the start"


def _consequence(plan: ResetPlan, where: str) -> str:
    text = (
        f"Its progress is overwritten, writes of an owner are refused, and it is read {where}. Data after that "
        "position is delivered again. Undelivered data before it is skipped."
    )
    if created := len(plan.of(ResetAction.CREATE)):
        text += f" {created} of these partitions no longer exist and are created again."
    if removed := len(plan.of(ResetAction.REMOVE)):
        text += (
            f" {removed} of these partitions depend on others and are removed. They are created again once the "
            "partitions before them are finished."
        )
    return text


def _previous(step: ResetStep) -> str:
    if step.action is ResetAction.CREATE:
        return ", did not exist"
    seen = step.partition
    return f", was leased to {seen.owner}" if seen.owner else f", was {seen.status}"


def _of_keys(session: Session, source: str, keys: Sequence[str]) -> list[Partition]:
    administration = Administration(session.store, session.source_identifier(source))
    return [administration.get(key) for key in dict.fromkeys(keys)]


def _check_alone(keys: Sequence[str] | None, to: str | None) -> None:
    if keys is None or len(keys) != 1:
        raise typer.BadParameter("it requires exactly one key", param_hint="--progress")
    if to is not None:
        raise typer.BadParameter("it excludes --to", param_hint="--progress")


def _with_progress(partitions: Sequence[Partition], target: Target, progress: Mapping[str, Any]) -> ResetPlan:
    for partition in partitions:
        check_progress(partition, progress)
    steps = tuple(ResetStep(action=ResetAction.RESET, partition=p, progress=lambda _: progress) for p in partitions)
    return ResetPlan(target=target, steps=steps, left={})


def _json_object(text: str) -> dict[str, Any]:
    """Return a JSON object that is given as text, or as `@` and the name of a file."""
    hint = "--progress"
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise typer.BadParameter(f"file {text[1:]!r} cannot be read: {error}", param_hint=hint) from None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"it is not valid JSON: {error}", param_hint=hint) from None
    if not isinstance(value, dict):
        raise typer.BadParameter('it must be a JSON object, such as {"rows_done": 0}', param_hint=hint)
    return value
