"""The commands that import state from other systems: `import data-prepper`, and those of the kinds of sources.

An import first shows its plan, and writes nothing before the user confirms. An item that cannot be imported exactly
stops the whole import unless the user gives `--partial`. Items that the store already has are compared and never
overwritten, so an import can be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.cli.commands import YES, CommandError, Session, add_command
from airflow_provider_coordination.cli.output import Output, OutputColumn, printable, table
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.registry import import_attribute
from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions
from airflow_provider_coordination.coordination.texts import rest_of
from airflow_provider_coordination.sources.kinds import KINDS, get_kind
from airflow_provider_coordination.stores import data_prepper
from airflow_provider_coordination.stores.data_prepper import CheckedItem
from airflow_provider_coordination.stores.dynamodb.calls import DynamoDbCalls

RETRY_DEADLINE_SECONDS = 15.0
MAX_LISTED = 50
"""The number of items with problems that are listed one by one."""

DRY_RUN = Annotated[bool, typer.Option("--dry-run", help="Show the plan and write nothing.")]
PARTIAL = Annotated[bool, typer.Option("--partial", help="Continue without items that cannot be handled exactly.")]
REGION = Annotated[str | None, typer.Option("--region", help="AWS region.")]
ENDPOINT_URL = Annotated[str | None, typer.Option("--endpoint-url", help="Endpoint of DynamoDB, if it is not AWS.")]
ROLE_ARN = Annotated[str | None, typer.Option("--role-arn", help="Role to assume.")]
EXTERNAL_ID = Annotated[
    str | None, typer.Option("--external-id", help="External ID that the role's trust policy requires.")
]


def register(app: typer.Typer) -> None:
    """Add the group `import` to the application."""
    group = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Import state from other systems. The plan is shown first.",
    )
    for name in KINDS.names():
        if (commands := get_kind(name).import_commands) is not None:
            import_attribute(commands, f"kind of source {name!r}: its commands {commands!r}")(group)
    add_command(group, "data-prepper", import_data_prepper)
    app.add_typer(group, name="import")


def import_data_prepper(
    session: Session,
    *,
    source: Annotated[
        str | None, typer.Option("--source", help="Import only this source, the name of a pipeline.")
    ] = None,
    from_table: Annotated[
        str | None,
        typer.Option(
            "--from-table",
            help="Copy the items of this table into the store. Default: adopt the store's own table in DynamoDB.",
        ),
    ] = None,
    release: Annotated[
        bool,
        typer.Option("--release", help="End leases now instead of waiting until they expire. Stop Data Prepper first."),
    ] = False,
    region: REGION = None,
    endpoint_url: ENDPOINT_URL = None,
    role_arn: ROLE_ARN = None,
    external_id: EXTERNAL_ID = None,
    dry_run: DRY_RUN = False,
    partial: PARTIAL = False,
    yes: YES = False,
) -> None:
    """Import the table of Data Prepper's source coordination, in place or as a copy in another store."""
    calls = _data_prepper_table(session, from_table, region, endpoint_url, role_arn, external_id)
    expires = data_prepper.check_table(calls)
    now = session.context.clock.now()
    items = [
        data_prepper.check_item(item, now, release=release)
        for item in data_prepper.read_items(calls)
        if data_prepper.is_of(item, source, session.access.prefix)
    ]
    if not items:
        session.output.info("The table has no items to import.")
        return
    in_place = _own_table(session) == calls.name
    _show_families(session.output, items, in_place=in_place)
    if expires and in_place:
        session.output.info(
            "The table's TTL is enabled. Data Prepper sets an expiry on items of every status with each write: stop it "
            "before you import, because unfinished items must not expire."
        )
    leased = sum(item.is_leased for item in items)
    if leased:
        session.output.info(
            f"Leased now: {_number(leased, 'item')}. Stop the workers that own them before jobs start here."
        )
    if in_place:
        _adopt(session, calls, items, dry_run=dry_run, yes=yes)
    else:
        _copy(session, items, release=release, dry_run=dry_run, partial=partial, yes=yes)


def _adopt(session: Session, calls: DynamoDbCalls, items: Sequence[CheckedItem], *, dry_run: bool, yes: bool) -> None:
    output = session.output
    damaged = [item for item in items if item.problem]
    _list_each(output, ((item, item.problem) for item in damaged))
    to_repair = [item for item in items if item.repairs]
    changed: Sequence[CheckedItem] = ()
    if not to_repair:
        output.line("No items to repair: the table can be used unchanged.")
    elif dry_run:
        output.line(f"{len(to_repair)} items would be repaired; nothing was written.")
    else:
        _confirm(session, f"Repair {_number(len(to_repair), 'item')} of the table?", yes=yes)
        changed = data_prepper.repair_items(calls, to_repair, session.context.clock.now())
        output.line(f"{_number(len(to_repair) - len(changed), 'item')} repaired.")
        _list_each(output, ((item, "another process changed it during the import; import again") for item in changed))
    check_complete(len(damaged) + len(changed), "item")


def _copy(
    session: Session, items: Sequence[CheckedItem], *, release: bool, dry_run: bool, partial: bool, yes: bool
) -> None:
    now = session.context.clock.now()
    partitions: list[Partition] = []
    refused: list[tuple[CheckedItem, str]] = []
    for item in items:
        try:
            partitions.append(data_prepper.copied(item, now, release=release))
        except ConfigurationError as error:
            refused.append((item, str(error)))
    transfers = compare_partitions(session, partitions).values()
    conflicts = [transfer for transfer in transfers if transfer.state is TransferState.CONFLICT]
    _list_each(session.output, refused)
    for transfer in conflicts[:MAX_LISTED]:
        session.output.info(
            f"{_label(transfer.partition)}: the store already has it with other progress, which is not changed"
        )
    totals = Counter(transfer.state for transfer in transfers)
    if not session.output.as_json:
        session.output.line(
            f"Totals: {totals[TransferState.NEW]} new, {totals[TransferState.PRESENT]} present, "
            f"{totals[TransferState.CONFLICT]} in conflict, {len(refused)} cannot be copied"
        )
    problems = len(refused) + len(conflicts)
    if should_write(session, transfers, problems, "item", dry_run=dry_run, partial=partial, yes=yes):
        problems += len(write_new(session, transfers))
    check_complete(problems, "item")


def _show_families(output: Output, items: Sequence[CheckedItem], *, in_place: bool) -> None:
    summaries = data_prepper.summarize(items)
    if output.as_json:
        for summary in summaries:
            output.record(asdict(summary))
        return
    statuses = sorted({status for summary in summaries for status in summary.statuses})
    repairs = list(data_prepper.Repair) if in_place else []
    columns = [OutputColumn("items of"), *(OutputColumn(status, numbers=True) for status in statuses)]
    columns += [
        OutputColumn(name, numbers=True) for name in ("state not JSON", "leased now", "damaged", *map(str, repairs))
    ]
    rows = [
        [
            printable(summary.source_identifier),
            *(_count(summary.statuses.get(status, 0)) for status in statuses),
            *map(_count, (summary.unreadable_progress, summary.leased, summary.problems)),
            *(_count(summary.repairs.get(repair, 0)) for repair in repairs),
        ]
        for summary in summaries
    ]
    output.results.print(table(output.results, columns, rows))


def _data_prepper_table(
    session: Session,
    from_table: str | None,
    region: str | None,
    endpoint_url: str | None,
    role_arn: str | None,
    external_id: str | None,
) -> DynamoDbCalls:
    settings = session.access.settings
    if from_table is not None:
        return dynamodb_calls(from_table, region, endpoint_url, role_arn, external_id)
    if settings.kind != "dynamodb":
        raise typer.BadParameter(
            "the store is not in DynamoDB; name Data Prepper's table to copy it into the store",
            param_hint="--from-table",
        )
    options = {
        "--region": region,
        "--endpoint-url": endpoint_url,
        "--role-arn": role_arn,
        "--external-id": external_id,
    }
    for option, value in options.items():
        if value:
            raise typer.BadParameter("it requires --from-table; the store has its own setting", param_hint=option)
    return DynamoDbCalls(settings.own.aws, settings.own.table, RETRY_DEADLINE_SECONDS)


def _own_table(session: Session) -> str | None:
    settings = session.access.settings
    if settings.kind != "dynamodb":
        return None
    return DynamoDbCalls(settings.own.aws, settings.own.table, RETRY_DEADLINE_SECONDS).name


# Shared by all imports


def dynamodb_calls(
    name: str, region: str | None, endpoint_url: str | None, role_arn: str | None, external_id: str | None
) -> DynamoDbCalls:
    """Return a client of a DynamoDB table. No request is sent yet."""
    aws = AwsSettings(region=region, endpoint_url=endpoint_url, role_arn=role_arn, external_id=external_id)
    return DynamoDbCalls(aws, name, RETRY_DEADLINE_SECONDS)


def compare_partitions(session: Session, partitions: Sequence[Partition]) -> dict[str, Transfer]:
    """Compare partitions with the store. Return the transfer of each, by source identifier and partition key."""
    return {_label(transfer.partition): transfer for transfer in compare_with_store(session.store, partitions)}


def transfer_state(transfers: Mapping[str, Transfer], partition: Partition | None) -> TransferState | None:
    """Return the state of a partition's transfer; None if there is no partition."""
    return None if partition is None else transfers[_label(partition)].state


def should_write(
    session: Session,
    transfers: Iterable[Transfer],
    problems: int,
    noun: str,
    *,
    dry_run: bool,
    partial: bool,
    yes: bool,
) -> bool:
    """Return whether there are new partitions to write, and the user confirms.

    :param problems: the number of items that cannot be imported exactly.
    :param noun: what these items are called, in the singular.
    :raises CommandError: if there are problems and `--partial` was not given, or the user does not confirm.
    """
    new = sum(transfer.state is TransferState.NEW for transfer in transfers)
    if dry_run:
        condition = " with --partial and none without it" if problems and not partial else ""
        session.output.line(f"{_number(new, 'partition')} would be written{condition}; nothing was written.")
        return False
    if problems and not partial:
        raise CommandError(
            f"nothing was written: {_number(problems, noun)} cannot be handled exactly; "
            "see the notes, and fix the problems or continue without them with --partial"
        )
    if not new:
        session.output.line("Nothing was written: the store already has everything that can be written.")
        return False
    _confirm(session, f"Write {_number(new, 'partition')} into the store?", yes=yes)
    return True


def _confirm(session: Session, question: str, *, yes: bool) -> None:
    if yes:
        return
    if not session.context.is_interactive():
        raise typer.BadParameter("there is no terminal to confirm; give --yes or --dry-run", param_hint="--yes")
    if not session.confirm(question):
        raise CommandError("not confirmed; nothing was changed")


def write_new(session: Session, transfers: Iterable[Transfer]) -> list[Transfer]:
    """Write the new partitions. Return those that another process created with different progress in between."""
    new = [transfer for transfer in transfers if transfer.state is TransferState.NEW]
    raced = write_to_store(session.store, new)
    session.output.line(f"{_number(len(new) - len(raced), 'partition')} written.")
    conflicts = [transfer for transfer in raced if transfer.state is TransferState.CONFLICT]
    for transfer in conflicts:
        session.output.info(f"{_label(transfer.partition)}: another process created it in between; it is kept")
    return conflicts


def check_complete(problems: int, noun: str) -> None:
    """Check that everything was handled exactly.

    :raises CommandError: if there are problems.
    """
    if problems:
        raise CommandError(f"not handled exactly: {_number(problems, noun)}; see the notes for the reasons")


def _list_each(output: Output, items: Iterable[tuple[CheckedItem, str]]) -> None:
    listed = list(items)
    for item, text in listed[:MAX_LISTED]:
        output.info(printable(f"{item.source_identifier} {item.partition_key}: {text}"))
    if rest := rest_of(len(listed), MAX_LISTED):
        output.info(f"… {rest}")


def _label(partition: Partition) -> str:
    return f"{partition.source_identifier} {partition.partition_key}"


def _count(number: int) -> Text:
    return Text(str(number) if number else "")


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class TransferState(StrEnum):
    """The comparison of an imported partition with the store."""

    NEW = "new"
    """The store does not contain the partition."""
    PRESENT = "present"
    """The store contains the same partition, possibly leased."""
    CONFLICT = "conflict"
    """The store contains it with other progress, or completed, or parked. It is not changed."""


@dataclass(frozen=True)
class Transfer:
    """A partition to import into a store.

    :param partition: the partition to create.
    :param existing: the stored partition; None if there is none.
    """

    partition: Partition
    existing: Partition | None = None

    @property
    def state(self) -> TransferState:
        """The result of the comparison."""
        if self.existing is None:
            return TransferState.NEW
        return TransferState.PRESENT if _is_same(self.partition, self.existing) else TransferState.CONFLICT


def compare_with_store(store: CoordinationStore, partitions: Sequence[Partition]) -> list[Transfer]:
    """Return the partitions, each one with the stored partition of the same key."""
    families = sorted({partition.source_identifier for partition in partitions})
    stored = {_name(p): p for family in families for p in all_partitions(store, family)}
    return [Transfer(partition, stored.get(_name(partition))) for partition in partitions]


def write_to_store(store: CoordinationStore, transfers: Iterable[Transfer]) -> list[Transfer]:
    """Create the new partitions; return those that were created by others in the interim, with the stored partition.

    Unfinished partitions are written before completed ones.
    """
    new = [transfer for transfer in transfers if transfer.state is TransferState.NEW]
    new.sort(key=lambda transfer: transfer.partition.status is PartitionStatus.COMPLETED)
    existing = []
    for family in sorted({transfer.partition.source_identifier for transfer in new}):
        wanted = [transfer.partition for transfer in new if transfer.partition.source_identifier == family]
        created = set(store.create(wanted))
        existing += [partition for partition in wanted if partition.partition_key not in created]
    return [Transfer(p, store.get(*_name(p))) for p in existing]


def _name(partition: Partition) -> tuple[str, str]:
    return (partition.source_identifier, partition.partition_key)


def _is_same(imported: Partition, existing: Partition) -> bool:
    finished = [p.status is PartitionStatus.COMPLETED for p in (imported, existing)]
    return all(finished) or (not any(finished) and _lasting(imported) == _lasting(existing))


def _lasting(partition: Partition) -> tuple[object, ...]:
    """Return the values that leases and waiting do not change."""
    return (partition.progress, partition.unreadable_progress, partition.closed_count, partition.is_parked)
