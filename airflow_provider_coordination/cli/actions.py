"""The commands that change partitions or the store: `release`, `reopen`, `park`, `delete`, `reset`, `init-store`.

`suspend`, `resume` and `unclaim` have their own module.

A command checks all partitions before it changes any: a wrong key, or an action that does not fit a partition, changes
nothing. It then describes the consequence and asks the user to confirm. A partition is only changed as it was shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from airflow_provider_coordination.cli.acknowledgments import acknowledgment_sets
from airflow_provider_coordination.cli.commands import (
    EXIT_REFUSED,
    KEYS,
    OPTIONAL_KEYS,
    REASON,
    SOURCE,
    YES,
    CommandError,
    Session,
    add_command,
    confirm_action,
    with_progress,
)
from airflow_provider_coordination.cli.output import partition_record, printable
from airflow_provider_coordination.cli.suspension import resume, suspend, unclaim
from airflow_provider_coordination.coordination.administration import Administration, LeaseSelection, selected_leases
from airflow_provider_coordination.coordination.errors import CoordinationError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.partition_actions import (
    PARTITION_ACTIONS,
    PartitionAction,
    apply_to_each,
)
from airflow_provider_coordination.coordination.store import all_partitions
from airflow_provider_coordination.sources.reset import Resets, check_progress, forget, forgettable
from airflow_provider_coordination.sources.reset_targets import (
    EARLIEST,
    ResetAction,
    ResetPlan,
    ResetStep,
    Target,
    parse_target,
)
from airflow_provider_coordination.sources.source_kind import SourceKind

DELETE = PartitionAction(
    name="delete",
    label="Delete",
    done="deleted",
    text="Its progress is lost, and writes of an owner are refused.",
    text_for_many="Their progress is lost, and writes of an owner are refused.",
    risk="Partition discovery may create it again, to be read from the start.",
    check=lambda partition, now: None,
    run=Administration.delete,
)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    add_command(app, "release", release)
    add_command(app, "reopen", reopen)
    add_command(app, "park", park)
    add_command(app, "reset", reset)
    add_command(app, "delete", delete)
    add_command(app, "suspend", suspend)
    add_command(app, "resume", resume)
    add_command(app, "unclaim", unclaim)
    add_command(app, "init-store", init_store, creates_store=True)


def release(
    session: Session,
    source: SOURCE,
    keys: OPTIONAL_KEYS = None,
    *,
    owner: Annotated[str | None, typer.Option("--owner", help="All leases of this owner, instead of keys.")] = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", help="All leases of this run's jobs; requires --dag-id.")
    ] = None,
    dag_id: Annotated[str | None, typer.Option("--dag-id", help="DAG of the run.")] = None,
    task_id: Annotated[
        str | None, typer.Option("--task-id", help="Only leases of this task; requires --run-id.")
    ] = None,
    expired: Annotated[
        bool, typer.Option("--expired", help="Only expired leases of those selected above; alone, all expired leases.")
    ] = False,
    reason: REASON = None,
    yes: YES = False,
) -> None:
    """End leases now, whoever owns them. Progress is kept."""
    _check_one_given(keys, owner or run_id or expired, "--owner, --run-id or --expired")
    if (run_id is None) != (dag_id is None) or (task_id is not None and run_id is None):
        raise typer.BadParameter(
            "--dag-id and --run-id require each other, and --task-id requires both", param_hint="--run-id"
        )
    choice = LeaseSelection(
        owner=owner,
        dag_id=dag_id,
        run_id=run_id,
        task_id=task_id,
        expired_by=session.context.clock.now() - session.access.safety_margin if expired else None,
    )
    identifier = session.source_identifier(source)
    held = _selected(session, source, keys) if keys else list(selected_leases(session.store, identifier, choice))
    _carry_out(
        session, source, PARTITION_ACTIONS["release"], held, reason=reason, yes=yes, expired_by=choice.expired_by
    )


def reopen(
    session: Session,
    source: SOURCE,
    keys: OPTIONAL_KEYS = None,
    *,
    parked: Annotated[bool, typer.Option("--parked", help="All parked partitions, instead of keys.")] = False,
    reason: REASON = None,
    yes: YES = False,
) -> None:
    """Make closed or parked partitions available now. Failures are reset, progress is kept."""
    _check_one_given(keys, parked, "--parked")
    closed = _selected(session, source, keys, lambda p: p.is_parked, PartitionStatus.CLOSED)
    yes = yes or len(closed) < 2
    _carry_out(session, source, PARTITION_ACTIONS["reopen"], closed, reason=reason, yes=yes)


def park(
    session: Session,
    source: SOURCE,
    keys: KEYS,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Reason, kept as the last error of the partition.")],
    yes: YES = False,
) -> None:
    """Set partitions aside until they are reopened, whoever owns them. Progress is kept."""
    if not reason.strip():
        raise typer.BadParameter("give a reason", param_hint="--reason")
    _carry_out(session, source, PARTITION_ACTIONS["park"], _selected(session, source, keys), reason=reason, yes=yes)


def delete(session: Session, source: SOURCE, keys: KEYS, *, reason: REASON = None, yes: YES = False) -> None:
    """Delete partitions in any status. Progress is lost."""
    _carry_out(session, source, DELETE, _selected(session, source, keys), reason=reason, yes=yes)


def init_store(session: Session) -> None:
    """Create the store's table or upgrade its schema. Does nothing if the store is up to date."""
    session.store.initialize()
    name = session.access.settings.table
    if session.output.as_json:
        session.output.record({"store": session.store.kind, "table": name})
    else:
        table = "" if name is None else f", table {name}"
        session.output.line(f"The store is ready: {session.store.kind}{table}.")


def _check_one_given(keys: Sequence[str] | None, instead: object, option: str) -> None:
    if bool(keys) == bool(instead):
        raise typer.BadParameter(f"give keys or {option}, but not both", param_hint="KEY")


def _selected(
    session: Session,
    source: str,
    keys: Sequence[str] | None,
    wanted: Callable[[Partition], bool] = lambda partition: False,
    status: PartitionStatus = PartitionStatus.UNASSIGNED,
) -> list[Partition]:
    """Return the partitions with these keys; without keys, the partitions of a status for which `wanted` holds."""
    identifier = session.source_identifier(source)
    if not keys:
        return [partition for partition in all_partitions(session.store, identifier, status) if wanted(partition)]
    administration = Administration(session.store, identifier)
    return [administration.get(key) for key in dict.fromkeys(keys)]


def _carry_out(
    session: Session,
    source: str,
    action: PartitionAction,
    partitions: Sequence[Partition],
    *,
    reason: str | None,
    yes: bool,
    **options: Any,
) -> None:
    """Carry an action out on partitions, as they were shown.

    :param options: more arguments of the action.
    """
    output = session.output
    if not partitions:
        output.info(f"No partitions to {action.name}.")
        return
    for partition in partitions:
        action.check(partition, session.context.clock.now())
    if not yes:
        confirm_action(session, source, action.name, action.consequence(len(partitions)), partitions)
    assert action.run is not None
    run = partial(action.run, session.administration(source, reason), **options)
    failures = 0
    outcomes = apply_to_each(partitions, lambda seen: run(seen.partition_key, expected=seen))
    for seen, (_, outcome) in zip(with_progress(output, action.done, partitions), outcomes, strict=False):
        if isinstance(outcome, StoreUnavailableError):
            raise outcome
        if isinstance(outcome, CoordinationError):
            failures += 1
            output.info(f"error: {outcome}")
        elif output.as_json:
            output.record(partition_record(outcome))
        else:
            owner = f", was leased to {seen.owner}" if seen.owner else f", was {seen.status}"
            output.line(Text(f"{action.done} ") + printable(seen.partition_key) + printable(owner))
    if failures:
        raise CommandError(
            f"{failures} of {len(partitions)} partitions could not be {action.done}" if len(partitions) > 1 else "",
            EXIT_REFUSED,
        )


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
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            "--part",
            metavar="NAME",
            help="All partitions of one part of the source, such as a stream by name or ARN, instead of keys.",
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
        ),
    ] = None,
    region: Annotated[
        str | None, typer.Option("--region", help="AWS region of the source, for --part and --all.")
    ] = None,
    endpoint_url: Annotated[
        str | None, typer.Option("--endpoint-url", help="Endpoint of the source's service, if it is not AWS.")
    ] = None,
    role_arn: Annotated[str | None, typer.Option("--role-arn", help="Role to assume.")] = None,
    external_id: Annotated[
        str | None, typer.Option("--external-id", help="External ID that the role's trust policy requires.")
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
        _, implied = kind.named_group(part) if part is not None else ("", {})
        given = {"region": region, "endpoint_url": endpoint_url, "role_arn": role_arn, "external_id": external_id}
        aws = {**implied.get("aws", {}), **{name: value for name, value in given.items() if value is not None}}
        return kind.service({**implied, "aws": aws})

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
    _carry_out_reset(session, source, resets, plan, _where(plan, with_progress=progress is not None), yes=yes)


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


def _carry_out_reset(session: Session, source: str, resets: Resets, plan: ResetPlan, where: str, *, yes: bool) -> None:
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
