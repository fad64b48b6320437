"""The commands that change partitions or the store: `release`, `reopen`, `park`, `delete`, `init-store`.

`reset`, `suspend`, `resume` and `unclaim` have modules of their own.

A command checks all partitions before it changes any: a wrong key, or an action that does not fit a partition, changes
nothing. It then describes the consequence and asks the user to confirm. A partition is only changed as it was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.cli.claims import unclaim
from airflow_provider_coordination.cli.commands import EXIT_REFUSED, CommandError, Session, add_command
from airflow_provider_coordination.cli.output import (
    partition_record,
    printable,
)
from airflow_provider_coordination.cli.prompts import (
    KEYS,
    OPTIONAL_KEYS,
    REASON,
    SOURCE,
    YES,
    confirm_action,
    with_progress,
)
from airflow_provider_coordination.cli.reset import reset
from airflow_provider_coordination.cli.suspension import resume, suspend
from airflow_provider_coordination.coordination.administration import (
    Administration,
    LeaseSelection,
    check_parkable,
    check_releasable,
    check_reopenable,
    selected_leases,
)
from airflow_provider_coordination.coordination.errors import (
    PartitionNotFoundError,
    PartitionStatusError,
    PartitionUpdateError,
    ProgressError,
)
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import all_partitions


@dataclass(frozen=True, kw_only=True)
class Action:
    """An action on partitions.

    :param verb: its name, such as `release`.
    :param done: its past participle, such as `released`.
    :param consequence: what it leads to; shown before the user confirms.
    :param check: raises if the action does not fit a partition.
    :param apply: carries the action out on a partition, as it was shown.
    :param confirm_from: the number of partitions from which the user is asked to confirm.
    """

    verb: str
    done: str
    consequence: str
    check: Callable[[Partition], object]
    apply: Callable[[Administration, Partition], Partition]
    confirm_from: int = 1


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
    action = Action(
        verb="release",
        done="released",
        consequence="Further writes of the owner are refused, and another worker may acquire the partition at once.",
        check=check_releasable,
        apply=lambda administration, seen: administration.release(
            seen.partition_key, expected=seen, expired_by=choice.expired_by
        ),
    )
    identifier = session.source_identifier(source)
    held = _selected(session, source, keys) if keys else list(selected_leases(session.store, identifier, choice))
    _carry_out(session, source, action, held, reason=reason, yes=yes)


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
    now = session.context.clock.now()
    action = Action(
        verb="reopen",
        done="reopened",
        consequence="The partition can be acquired at once, and its count of failures starts at 0 again.",
        check=lambda partition: check_reopenable(partition, now),
        apply=lambda administration, seen: administration.reopen(seen.partition_key, expected=seen),
        confirm_from=2,
    )
    closed = _selected(session, source, keys, lambda p: p.is_parked, PartitionStatus.CLOSED)
    _carry_out(session, source, action, closed, reason=reason, yes=yes)


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
    action = Action(
        verb="park",
        done="parked",
        consequence="Writes of an owner are refused, and no worker acquires the partition until it is reopened.",
        check=check_parkable,
        apply=lambda administration, seen: administration.park(seen.partition_key, expected=seen),
    )
    _carry_out(session, source, action, _selected(session, source, keys), reason=reason, yes=yes)


def delete(session: Session, source: SOURCE, keys: KEYS, *, reason: REASON = None, yes: YES = False) -> None:
    """Delete partitions in any status. Progress is lost."""
    action = Action(
        verb="delete",
        done="deleted",
        consequence="Its progress is lost, and writes of an owner are refused. Partition discovery may create it "
        "again, to be read from the start.",
        check=lambda partition: None,
        apply=lambda administration, seen: administration.delete(seen.partition_key, expected=seen),
    )
    _carry_out(session, source, action, _selected(session, source, keys), reason=reason, yes=yes)


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
    session: Session, source: str, action: Action, partitions: Sequence[Partition], *, reason: str | None, yes: bool
) -> None:
    output = session.output
    if not partitions:
        output.info(f"No partitions to {action.verb}.")
        return
    for partition in partitions:
        action.check(partition)
    if not yes and len(partitions) >= action.confirm_from:
        confirm_action(session, source, action.verb, action.consequence, partitions)
    administration = session.administration(source, reason)
    failures = 0
    for seen in with_progress(output, action.done, partitions):
        try:
            written = action.apply(administration, seen)
        except (PartitionNotFoundError, PartitionStatusError, PartitionUpdateError, ProgressError) as error:
            failures += 1  # the failure concerns only this partition: continue with the others
            output.info(f"error: {error}")
            continue
        if output.as_json:
            output.record(partition_record(written))
        else:
            owner = f", was leased to {seen.owner}" if seen.owner else f", was {seen.status}"
            output.line(Text(f"{action.done} ") + printable(seen.partition_key) + printable(owner))
    if failures:
        raise CommandError(
            f"{failures} of {len(partitions)} partitions could not be {action.done}" if len(partitions) > 1 else "",
            EXIT_REFUSED,
        )
