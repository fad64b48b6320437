"""The commands that change partitions or the store: `release`, `reopen`, `park`, `delete`, `init-store`.

`reset`, `suspend`, `resume` and `unclaim` have modules of their own.

A command checks all partitions before it changes any: a wrong key, or an action that does not fit a partition, changes
nothing. It then describes the consequence and asks the user to confirm. A partition is only changed as it was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from rich.text import Text

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
from airflow_provider_coordination.cli.output import (
    partition_record,
    printable,
)
from airflow_provider_coordination.cli.reset import reset
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
    owner: Annotated[
        str | None, typer.Option("--owner", help="All leases of this owner, instead of keys.", show_default=False)
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option("--run-id", help="All leases of this run's jobs; requires --dag-id.", show_default=False),
    ] = None,
    dag_id: Annotated[str | None, typer.Option("--dag-id", help="DAG of the run.", show_default=False)] = None,
    task_id: Annotated[
        str | None, typer.Option("--task-id", help="Only leases of this task; requires --run-id.", show_default=False)
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
    reason: Annotated[
        str, typer.Option("--reason", help="Reason, kept as the last error of the partition.", show_default=False)
    ],
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
