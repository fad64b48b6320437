"""The commands that take over what other systems left: `import data-prepper`, and those of kinds of sources.

What would become of everything is shown first. Nothing is written before a person has agreed, and what cannot be taken
over exactly stops the whole import, unless the person says to go on with the rest. What the store holds already is
compared and never overwritten, so that an import may be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.cli.commands import CommandError, Session, add_command
from airflow_provider_coordination.cli.output import Column, Output, printable, table
from airflow_provider_coordination.cli.prompts import YES
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.transfer import Transfer, TransferState, compare, write
from airflow_provider_coordination.sources.kinds import KINDS, imported, kind_named
from airflow_provider_coordination.stores import data_prepper
from airflow_provider_coordination.stores.data_prepper import JudgedItem
from airflow_provider_coordination.stores.dynamodb.calls import DynamoDbCalls

RETRY_DEADLINE_SECONDS = 15.0
SHOWN_AT_MOST = 50
"""So many items that need a person are listed one by one."""

DRY_RUN = Annotated[bool, typer.Option("--dry-run", help="Only show what would become of everything.")]
PARTIAL = Annotated[bool, typer.Option("--partial", help="Go on without what cannot be taken over exactly.")]
REGION = Annotated[str | None, typer.Option("--region", help="The AWS region.", show_default=False)]
ENDPOINT_URL = Annotated[
    str | None, typer.Option("--endpoint-url", help="Where DynamoDB is, if not at AWS.", show_default=False)
]
ROLE_ARN = Annotated[str | None, typer.Option("--role-arn", help="A role to assume.", show_default=False)]
EXTERNAL_ID = Annotated[
    str | None, typer.Option("--external-id", help="What the role's trust policy asks for.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the group `import` to the application."""
    group = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Take over what other systems left. What becomes of it is shown first.",
    )
    for name in KINDS.names():
        if (commands := kind_named(name).import_commands) is not None:
            imported(commands, f"kind of source {name!r}: its commands")(group)
    add_command(group, "data-prepper", import_data_prepper)
    app.add_typer(group, name="import")


def import_data_prepper(
    session: Session,
    *,
    source: Annotated[
        str | None,
        typer.Option("--source", help="Only this source: the pipeline's name.", show_default=False),
    ] = None,
    from_table: Annotated[
        str | None,
        typer.Option(
            "--from-table",
            help="Copy this table's items into the store; else the store, in DynamoDB, is Data Prepper's own table.",
            show_default=False,
        ),
    ] = None,
    release: Annotated[
        bool, typer.Option("--release", help="End leases now; else each runs to its end. Stop Data Prepper first.")
    ] = False,
    region: REGION = None,
    endpoint_url: ENDPOINT_URL = None,
    role_arn: ROLE_ARN = None,
    external_id: EXTERNAL_ID = None,
    dry_run: DRY_RUN = False,
    partial: PARTIAL = False,
    yes: YES = False,
) -> None:
    """Adopt the table of Data Prepper's source coordination: in place, or copied into another store."""
    calls = _data_prepper_table(session, from_table, region, endpoint_url, role_arn, external_id)
    expires = data_prepper.check_table(calls)
    now = session.surroundings.clock.now()
    found = [
        data_prepper.judge(item, now, release=release)
        for item in data_prepper.read_items(calls)
        if data_prepper.is_of(item, source, session.access.prefix)
    ]
    if not found:
        session.output.say("The table holds nothing of the kind.")
        return
    in_place = _own_table(session) == calls.name
    _show_families(session.output, found, in_place=in_place)
    if expires and in_place:
        session.output.say(
            "The table's TTL is on: Data Prepper marks items of every status to expire, and again with each write."
        )
    leased = sum(item.is_leased for item in found)
    if leased:
        session.output.say(
            f"Leased now: {_number(leased, 'item')}; stop whoever works on them before the work goes on here."
        )
    if in_place:
        _adopt(session, calls, found, dry_run=dry_run, yes=yes)
    else:
        _copy(session, found, release=release, dry_run=dry_run, partial=partial, yes=yes)


def _adopt(session: Session, calls: DynamoDbCalls, found: Sequence[JudgedItem], *, dry_run: bool, yes: bool) -> None:
    output = session.output
    damaged = [item for item in found if item.problem]
    _list_each(output, ((item, item.problem) for item in damaged))
    to_mend = [item for item in found if item.mends]
    changed: Sequence[JudgedItem] = ()
    if not to_mend:
        output.line("There is nothing to put right: the table can be worked on as it is.")
    elif dry_run:
        output.line(f"{len(to_mend)} items would be put right; nothing was written.")
    else:
        _consent(session, f"Put right {_number(len(to_mend), 'item')} of the table?", yes=yes)
        changed = data_prepper.mend(calls, to_mend, session.surroundings.clock.now())
        output.line(f"{_number(len(to_mend) - len(changed), 'item')} put right.")
        _list_each(output, ((item, "somebody has written it meanwhile; import again") for item in changed))
    finish(len(damaged) + len(changed), "item")


def _copy(
    session: Session, found: Sequence[JudgedItem], *, release: bool, dry_run: bool, partial: bool, yes: bool
) -> None:
    now = session.surroundings.clock.now()
    partitions: list[Partition] = []
    refused: list[tuple[JudgedItem, str]] = []
    for item in found:
        try:
            partitions.append(data_prepper.copied(item, now, release=release))
        except ConfigurationError as error:
            refused.append((item, str(error)))
    transfers = compared(session, partitions).values()
    conflicts = [transfer for transfer in transfers if transfer.state is TransferState.CONFLICT]
    _list_each(session.output, refused)
    for transfer in conflicts[:SHOWN_AT_MOST]:
        session.output.say(f"{_named(transfer.partition)}: the store has it with another progress, which stays")
    totals = Counter(transfer.state for transfer in transfers)
    if not session.output.as_json:
        session.output.line(
            f"Totals: {totals[TransferState.NEW]} new, {totals[TransferState.PRESENT]} there already, "
            f"{totals[TransferState.CONFLICT]} in conflict, {len(refused)} that cannot be copied"
        )
    doubtful = len(refused) + len(conflicts)
    if is_to_be_written(session, transfers, doubtful, "item", dry_run=dry_run, partial=partial, yes=yes):
        doubtful += len(written(session, transfers))
    finish(doubtful, "item")


def _show_families(output: Output, found: Sequence[JudgedItem], *, in_place: bool) -> None:
    summaries = data_prepper.summarize(found)
    if output.as_json:
        for summary in summaries:
            output.record(asdict(summary))
        return
    statuses = sorted({status for summary in summaries for status in summary.statuses})
    mends = list(data_prepper.Mend) if in_place else []
    columns = [Column("items of"), *(Column(status, numbers=True) for status in statuses)]
    columns += [Column(name, numbers=True) for name in ("state not JSON", "leased now", "damaged", *map(str, mends))]
    rows = [
        [
            printable(summary.source_identifier),
            *(_count(summary.statuses.get(status, 0)) for status in statuses),
            *map(_count, (summary.unreadable_progress, summary.leased, summary.problems)),
            *(_count(summary.mends.get(mend, 0)) for mend in mends),
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
            "the store is not in DynamoDB; name Data Prepper's table, to be copied into the store",
            param_hint="--from-table",
        )
    given = {
        "--region": region,
        "--endpoint-url": endpoint_url,
        "--role-arn": role_arn,
        "--external-id": external_id,
    }
    for option, value in given.items():
        if value:
            raise typer.BadParameter("it goes with --from-table; the store has its own", param_hint=option)
    return DynamoDbCalls(settings.own.aws, settings.own.table, RETRY_DEADLINE_SECONDS)


def _own_table(session: Session) -> str | None:
    settings = session.access.settings
    if settings.kind != "dynamodb":
        return None
    return DynamoDbCalls(settings.own.aws, settings.own.table, RETRY_DEADLINE_SECONDS).name


# Both


def dynamodb_calls(
    name: str, region: str | None, endpoint_url: str | None, role_arn: str | None, external_id: str | None
) -> DynamoDbCalls:
    """Return what asks a table; nothing is sent yet."""
    aws = AwsSettings(region=region, endpoint_url=endpoint_url, role_arn=role_arn, external_id=external_id)
    return DynamoDbCalls(aws, name, RETRY_DEADLINE_SECONDS)


def compared(session: Session, partitions: Sequence[Partition]) -> dict[str, Transfer]:
    """Return what each partition would become in the store, by its name."""
    return {_named(transfer.partition): transfer for transfer in compare(session.store, partitions)}


def state(transfers: Mapping[str, Transfer], partition: Partition | None) -> TransferState | None:
    """Return what a partition would become in the store; None if there is none."""
    return None if partition is None else transfers[_named(partition)].state


def is_to_be_written(
    session: Session,
    transfers: Iterable[Transfer],
    doubtful: int,
    what: str,
    *,
    dry_run: bool,
    partial: bool,
    yes: bool,
) -> bool:
    """Tell whether there is something to write, and the person wants it.

    :raises CommandError: if something cannot be taken over and the rest alone is not wanted, or the answer is no.
    """
    new = sum(transfer.state is TransferState.NEW for transfer in transfers)
    if dry_run:
        condition = " with --partial, and none without it" if doubtful and not partial else ""
        session.output.line(f"{_number(new, 'partition')} would be written{condition}; nothing was.")
        return False
    if doubtful and not partial:
        raise CommandError(
            f"nothing was written: {_number(doubtful, what)} cannot be taken over exactly, as the notes say; "
            "put that right, or go on with the rest by --partial"
        )
    if not new:
        session.output.line("Nothing was written: all that can be taken over is there already.")
        return False
    _consent(session, f"Write {_number(new, 'partition')} into the store?", yes=yes)
    return True


def _consent(session: Session, question: str, *, yes: bool) -> None:
    if yes:
        return
    if not session.surroundings.is_interactive():
        raise typer.BadParameter("there is no terminal to ask; give --yes, or --dry-run", param_hint="--yes")
    if not session.agrees(question):
        raise CommandError("not confirmed, nothing was changed")


def written(session: Session, transfers: Iterable[Transfer]) -> list[Transfer]:
    """Write what is new; return what another progress was written of meanwhile."""
    new = [transfer for transfer in transfers if transfer.state is TransferState.NEW]
    overtaken = write(session.store, new)
    session.output.line(f"{_number(len(new) - len(overtaken), 'partition')} written.")
    conflicts = [transfer for transfer in overtaken if transfer.state is TransferState.CONFLICT]
    for transfer in conflicts:
        session.output.say(f"{_named(transfer.partition)}: somebody has created it meanwhile, and it stays")
    return conflicts


def finish(doubtful: int, what: str) -> None:
    """End a command.

    :raises CommandError: if something was not taken over exactly.
    """
    if doubtful:
        raise CommandError(f"not taken over exactly: {_number(doubtful, what)}; the notes say why")


def _list_each(output: Output, items: Iterable[tuple[JudgedItem, str]]) -> None:
    listed = list(items)
    for item, text in listed[:SHOWN_AT_MOST]:
        output.say(printable(f"{item.source_identifier} {item.partition_key}: {text}"))
    if len(listed) > SHOWN_AT_MOST:
        output.say(f"… and {len(listed) - SHOWN_AT_MOST} more")


def _named(partition: Partition) -> str:
    return f"{partition.source_identifier} {partition.partition_key}"


def _count(number: int) -> Text:
    return Text(str(number) if number else "")


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
