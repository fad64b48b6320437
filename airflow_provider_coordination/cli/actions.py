"""The commands that change something: `release`, `reopen`, `park`, `delete`, `init-store`.

`reset`, `suspend`, `resume` and `unclaim` have modules of their own.

All partitions are looked at before anything is done: a key that is wrong, or an order that makes no sense, changes
nothing. The person is then told what will happen and asked. What is done is done to what the person was shown.
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
from airflow_provider_coordination.cli.prompts import KEYS, REASON, SOME_KEYS, SOURCE, YES, ask, with_progress
from airflow_provider_coordination.cli.reset import reset
from airflow_provider_coordination.cli.suspension import resume, suspend
from airflow_provider_coordination.coordination.administration import (
    Administration,
    check_parkable,
    check_releasable,
    check_reopenable,
)
from airflow_provider_coordination.coordination.errors import (
    PartitionNotFoundError,
    PartitionStatusError,
    PartitionUpdateError,
    ProgressError,
)
from airflow_provider_coordination.coordination.lease_selection import LeaseChoice, chosen_leases
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import all_partitions


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a person wants done to some partitions.

    :param verb: what it is called.
    :param done: how it is called when it is done.
    :param consequence: what it leads to, for the person who is asked.
    :param check: raises where it makes no sense for a partition.
    :param carry_out: does it to a partition, as it was seen.
    :param asks_from: for how many partitions the person is asked.
    """

    verb: str
    done: str
    consequence: str
    check: Callable[[Partition], object]
    carry_out: Callable[[Administration, Partition], Partition]
    asks_from: int = 1


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
    keys: SOME_KEYS = None,
    *,
    owner: Annotated[
        str | None, typer.Option("--owner", help="All that this owner holds, instead of keys.", show_default=False)
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option("--run-id", help="All that the jobs of this run hold; with --dag-id.", show_default=False),
    ] = None,
    dag_id: Annotated[str | None, typer.Option("--dag-id", help="The DAG of that run.", show_default=False)] = None,
    task_id: Annotated[
        str | None, typer.Option("--task-id", help="With --run-id: only those of this task.", show_default=False)
    ] = None,
    expired: Annotated[
        bool, typer.Option("--expired", help="All whose time is up, alone or with the options above.")
    ] = False,
    reason: REASON = None,
    yes: YES = False,
) -> None:
    """End leases now, whoever holds them. Progress is kept."""
    _require_one_of(keys, owner or run_id or expired, "--owner, --run-id or --expired")
    if (run_id is None) != (dag_id is None) or (task_id is not None and run_id is None):
        raise typer.BadParameter("--dag-id and --run-id belong together, and --task-id to both", param_hint="--run-id")
    choice = LeaseChoice(
        owner=owner,
        dag_id=dag_id,
        run_id=run_id,
        task_id=task_id,
        expired_by=session.surroundings.clock.now() - session.access.safety_margin if expired else None,
    )
    order = Order(
        verb="release",
        done="released",
        consequence="The owner's writes are refused from then on, and another may take the partition at once.",
        check=check_releasable,
        carry_out=lambda administration, seen: administration.release(
            seen.partition_key, seen=seen, expired_by=choice.expired_by
        ),
    )
    identifier = session.source_identifier(source)
    held = _chosen(session, source, keys) if keys else list(chosen_leases(session.store, identifier, choice))
    _carry_out(session, source, order, held, reason=reason, yes=yes)


def reopen(
    session: Session,
    source: SOURCE,
    keys: SOME_KEYS = None,
    *,
    parked: Annotated[bool, typer.Option("--parked", help="All that are parked, instead of keys.")] = False,
    reason: REASON = None,
    yes: YES = False,
) -> None:
    """Make partitions that rest or are parked available now. Their failures are forgotten, their progress is kept."""
    _require_one_of(keys, parked, "--parked")
    now = session.surroundings.clock.now()
    order = Order(
        verb="reopen",
        done="reopened",
        consequence="The partition can be acquired at once, and its failures are forgotten.",
        check=lambda partition: check_reopenable(partition, now),
        carry_out=lambda administration, seen: administration.reopen(seen.partition_key, seen=seen),
        asks_from=2,
    )
    resting = _chosen(session, source, keys, lambda p: p.is_parked, PartitionStatus.CLOSED)
    _carry_out(session, source, order, resting, reason=reason, yes=yes)


def park(
    session: Session,
    source: SOURCE,
    keys: KEYS,
    *,
    reason: Annotated[
        str, typer.Option("--reason", help="Why; kept with the partition as its last error.", show_default=False)
    ],
    yes: YES = False,
) -> None:
    """Put partitions aside until a person reopens them, whoever holds them. Their progress is kept."""
    if not reason.strip():
        raise typer.BadParameter("say why", param_hint="--reason")
    order = Order(
        verb="park",
        done="parked",
        consequence="An owner's writes are refused from then on, and nobody takes the partition until reopen.",
        check=check_parkable,
        carry_out=lambda administration, seen: administration.park(seen.partition_key, seen=seen),
    )
    _carry_out(session, source, order, _chosen(session, source, keys), reason=reason, yes=yes)


def delete(session: Session, source: SOURCE, keys: KEYS, *, reason: REASON = None, yes: YES = False) -> None:
    """Delete partitions, wherever they stand. Their progress is lost."""
    order = Order(
        verb="delete",
        done="deleted",
        consequence="Its progress is lost and an owner's writes are refused. What discovers partitions may create it "
        "anew, to be read from the beginning.",
        check=lambda partition: None,
        carry_out=lambda administration, seen: administration.delete(seen.partition_key, seen=seen),
    )
    _carry_out(session, source, order, _chosen(session, source, keys), reason=reason, yes=yes)


def init_store(session: Session) -> None:
    """Make the store ready: create what is missing, bring what is older up to date. Harmless when it is ready."""
    session.store.initialize()
    name = session.access.settings.table
    if session.output.as_json:
        session.output.record({"store": session.store.kind, "table": name})
    else:
        table = "" if name is None else f", table {name}"
        session.output.line(f"The store is ready: {session.store.kind}{table}.")


def _require_one_of(keys: Sequence[str] | None, instead: object, option: str) -> None:
    if bool(keys) == bool(instead):
        raise typer.BadParameter(f"give either keys or {option}", param_hint="KEY")


def _chosen(
    session: Session,
    source: str,
    keys: Sequence[str] | None,
    wanted: Callable[[Partition], bool] = lambda partition: False,
    status: PartitionStatus = PartitionStatus.UNASSIGNED,
) -> list[Partition]:
    """Return the partitions of these keys, or without keys those of a status that are wanted."""
    identifier = session.source_identifier(source)
    if not keys:
        return [partition for partition in all_partitions(session.store, identifier, status) if wanted(partition)]
    administration = Administration(session.store, identifier)
    return [administration.get(key) for key in dict.fromkeys(keys)]


def _carry_out(
    session: Session, source: str, order: Order, partitions: Sequence[Partition], *, reason: str | None, yes: bool
) -> None:
    output = session.output
    if not partitions:
        output.say(f"There is nothing to {order.verb}.")
        return
    for partition in partitions:
        order.check(partition)
    if not yes and len(partitions) >= order.asks_from:
        ask(session, source, order.verb, order.consequence, partitions)
    administration = session.administration(source, reason)
    failures = 0
    for seen in with_progress(output, order.done, partitions):
        try:
            written = order.carry_out(administration, seen)
        except (PartitionNotFoundError, PartitionStatusError, PartitionUpdateError, ProgressError) as error:
            failures += 1  # it concerns this partition alone: the others go on
            output.say(f"error: {error}")
            continue
        if output.as_json:
            output.record(partition_record(written))
        else:
            owner = f", was leased to {seen.owner}" if seen.owner else f", was {seen.status}"
            output.line(Text(f"{order.done} ") + printable(seen.partition_key) + printable(owner))
    if failures:
        raise CommandError(
            f"{failures} of {len(partitions)} partitions could not be {order.done}" if len(partitions) > 1 else "",
            EXIT_REFUSED,
        )
