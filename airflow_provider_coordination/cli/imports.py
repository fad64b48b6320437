"""The commands that take over what other systems left: `import kcl`, `import data-prepper`.

What would become of everything is shown first. Nothing is written before a person has agreed, and what cannot be taken
over exactly stops the whole import, unless the person says to go on with the rest. What the store holds already is
compared and never overwritten, so that an import may be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.cli.asking import YES
from airflow_provider_coordination.cli.commands import CommandError, Session, add_command
from airflow_provider_coordination.cli.output import ALARM, Column, Output, printable, table
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition, format_instant
from airflow_provider_coordination.coordination.transfer import Transfer, TransferState, compare, write
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.sources.kinesis.kcl import Becomes, ImportPlan, ShardPlan
from airflow_provider_coordination.sources.kinesis.kcl_import import as_before, partition_of, prepare_import
from airflow_provider_coordination.sources.kinesis.kcl_table import SETTLE_SECONDS
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON, parse_position
from airflow_provider_coordination.sources.targets import target_of
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
    add_command(group, "kcl", import_kcl)
    add_command(group, "data-prepper", import_data_prepper)
    app.add_typer(group, name="import")


# The Kinesis Client Library


def import_kcl(
    session: Session,
    *,
    lease_table: Annotated[str, typer.Option("--lease-table", help="The lease table: the application's name.")],
    stream: Annotated[str, typer.Option("--stream", help="The stream.")],
    source: Annotated[str, typer.Option("--source", help="The source that gets the partitions.")],
    account: Annotated[
        str | None,
        typer.Option("--account", help="Whose stream, if the table knows several of the name.", show_default=False),
    ] = None,
    unread_from_trim_horizon: Annotated[
        bool,
        typer.Option(
            "--unread-from-trim-horizon",
            help="Read shards at LATEST or AT_TIMESTAMP, of which nothing is checkpointed, from their earliest record.",
        ),
    ] = False,
    at_timestamp: Annotated[
        str | None,
        typer.Option(
            "--at-timestamp",
            metavar="INSTANT",
            help="From when on shards at AT_TIMESTAMP are read: what the application is configured with.",
            show_default=False,
        ),
    ] = None,
    settle_seconds: Annotated[
        float,
        typer.Option(
            "--settle-seconds", min=1.0, help="How far apart the table is read twice, to see that nobody writes it."
        ),
    ] = SETTLE_SECONDS,
    region: REGION = None,
    endpoint_url: ENDPOINT_URL = None,
    kinesis_endpoint_url: Annotated[
        str | None, typer.Option("--kinesis-endpoint-url", help="Where Kinesis is, if not at AWS.", show_default=False)
    ] = None,
    role_arn: ROLE_ARN = None,
    external_id: EXTERNAL_ID = None,
    dry_run: DRY_RUN = False,
    partial: PARTIAL = False,
    yes: YES = False,
) -> None:
    """Import the leases of a Kinesis Client Library application, version 1, 2 or 3, for one stream.

    Stop the application first.
    """
    identifier = session.source_identifier(source)
    leases = _calls(lease_table, region, endpoint_url, role_arn, external_id)
    kinesis = kinesis_client(
        AwsSettings(region=region, endpoint_url=kinesis_endpoint_url, role_arn=role_arn, external_id=external_id)
    )
    now = session.surroundings.clock.now()
    since = None if at_timestamp is None else _instant(at_timestamp, now)
    session.output.say(f"Reading {lease_table} twice, {settle_seconds:g} s apart, to see that nobody writes it …")
    prepared = prepare_import(
        leases,
        kinesis,
        stream,
        now=now,
        account=account,
        unread_from_trim_horizon=unread_from_trim_horizon,
        unread_since=since,
        settle_seconds=settle_seconds,
        sleep=session.surroundings.sleep,
    )
    wanted = {
        shard: partition and as_before(shard, partition, session.store.get(identifier, partition.partition_key))
        for shard in prepared.plan.shards
        for partition in [partition_of(prepared.plan, shard, identifier, now)]
    }
    transfers = _compared(session, [p for p in wanted.values() if p is not None])
    states = {shard: _state(transfers, partition) for shard, partition in wanted.items()}
    _show_plan(session.output, states, parks=partial)
    conflicts = [shard for shard, state in states.items() if state is TransferState.CONFLICT]
    _explain_plan(session.output, prepared.plan, conflicts)
    doubtful = len({*prepared.plan.refused, *conflicts})
    if _is_to_be_written(session, transfers.values(), doubtful, "shard", dry_run=dry_run, partial=partial, yes=yes):
        prepared.refuse_if_moved(leases)
        overtaken = _written(session, transfers.values())
        doubtful += len(overtaken)
    _finish(doubtful, "shard")


def _show_plan(output: Output, states: Mapping[ShardPlan, TransferState | None], *, parks: bool) -> None:
    if output.as_json:
        for shard, state in states.items():
            output.record(
                {
                    "shard": shard.shard_id,
                    "checkpoint": shard.kcl_checkpoint,
                    "becomes": str(shard.becomes),
                    "state": state and str(state),
                    "note": shard.note,
                    "remedy": shard.remedy,
                }
            )
        return
    columns = [Column("shard"), Column("KCL checkpoint"), Column("becomes"), Column("note")]
    rows = [
        [
            printable(shard.shard_id),
            printable(shard.kcl_checkpoint),
            _becomes(shard, state, parks=parks),
            printable(_note(shard)),
        ]
        for shard, state in states.items()
    ]
    output.results.print(table(output.results, columns, rows))


def _becomes(shard: ShardPlan, state: TransferState | None, *, parks: bool) -> Text:
    if state is TransferState.CONFLICT:
        return Text("conflict", style=ALARM)
    if shard.is_refused:
        return Text(f"{shard.becomes}, parked" if parks and state is not None else shard.becomes, style=ALARM)
    return Text("there already" if state is TransferState.PRESENT else str(shard.becomes))


def _note(shard: ShardPlan) -> str:
    if shard.progress is not None and shard.becomes is Becomes.PARTITION:
        read_from = _beginning(shard.progress.checkpoint)
        return shard.note if shard.note.startswith(read_from) else "; ".join(filter(None, (read_from, shard.note)))
    return "; ".join(filter(None, (shard.note, shard.remedy)))


def _beginning(checkpoint: str) -> str:
    if checkpoint == TRIM_HORIZON:
        return "read from its earliest record on"
    instant = parse_position(checkpoint).timestamp
    return f"read on after {checkpoint}" if instant is None else f"read from {format_instant(instant)} on"


def _instant(text: str, now: datetime) -> datetime:
    target = target_of(text, now)
    if target.instant is None or target.is_latest:
        raise typer.BadParameter(
            f"{text!r} is not an instant; give for example 2026-01-31T00:00:00Z", param_hint="--at-timestamp"
        )
    return target.instant


def _explain_plan(output: Output, plan: ImportPlan, conflicts: Sequence[ShardPlan]) -> None:
    totals = Counter(str(shard.becomes) for shard in plan.shards)
    output.line("Totals: " + (", ".join(f"{count} {name}" for name, count in sorted(totals.items())) or "no lease"))
    if plan.other_streams:
        output.say(f"{plan.other_streams} leases of other streams are left alone.")
    if plan.other_items:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(plan.other_items.items()))
        output.say(f"Items that are no leases are left alone: {kinds}.")
    if plan.from_now_on:
        output.warn(
            f"{len(plan.from_now_on)} shards were at LATEST and are read from the time of this import on: what arrived "
            "before and was not checkpointed is not read; to read all that the stream holds, give "
            "--unread-from-trim-horizon"
        )
    for shard in conflicts:
        output.say(
            f"{shard.shard_id}: the store has its partition with another progress, which stays; "
            "look at it with `show`, and `delete` it to import it anew"
        )


# Data Prepper


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
    _tell_each(output, ((item, item.problem) for item in damaged))
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
        _tell_each(output, ((item, "somebody has written it meanwhile; import again") for item in changed))
    _finish(len(damaged) + len(changed), "item")


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
    transfers = _compared(session, partitions).values()
    conflicts = [transfer for transfer in transfers if transfer.state is TransferState.CONFLICT]
    _tell_each(session.output, refused)
    for transfer in conflicts[:SHOWN_AT_MOST]:
        session.output.say(f"{_named(transfer.partition)}: the store has it with another progress, which stays")
    totals = Counter(transfer.state for transfer in transfers)
    if not session.output.as_json:
        session.output.line(
            f"Totals: {totals[TransferState.NEW]} new, {totals[TransferState.PRESENT]} there already, "
            f"{totals[TransferState.CONFLICT]} in conflict, {len(refused)} that cannot be copied"
        )
    doubtful = len(refused) + len(conflicts)
    if _is_to_be_written(session, transfers, doubtful, "item", dry_run=dry_run, partial=partial, yes=yes):
        doubtful += len(_written(session, transfers))
    _finish(doubtful, "item")


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
        return _calls(from_table, region, endpoint_url, role_arn, external_id)
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


def _calls(
    name: str, region: str | None, endpoint_url: str | None, role_arn: str | None, external_id: str | None
) -> DynamoDbCalls:
    aws = AwsSettings(region=region, endpoint_url=endpoint_url, role_arn=role_arn, external_id=external_id)
    return DynamoDbCalls(aws, name, RETRY_DEADLINE_SECONDS)


def _compared(session: Session, partitions: Sequence[Partition]) -> dict[str, Transfer]:
    return {_named(transfer.partition): transfer for transfer in compare(session.store, partitions)}


def _state(transfers: Mapping[str, Transfer], partition: Partition | None) -> TransferState | None:
    return None if partition is None else transfers[_named(partition)].state


def _is_to_be_written(
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


def _written(session: Session, transfers: Iterable[Transfer]) -> list[Transfer]:
    """Write what is new; return what another progress was written of meanwhile."""
    new = [transfer for transfer in transfers if transfer.state is TransferState.NEW]
    overtaken = write(session.store, new)
    session.output.line(f"{_number(len(new) - len(overtaken), 'partition')} written.")
    conflicts = [transfer for transfer in overtaken if transfer.state is TransferState.CONFLICT]
    for transfer in conflicts:
        session.output.say(f"{_named(transfer.partition)}: somebody has created it meanwhile, and it stays")
    return conflicts


def _finish(doubtful: int, what: str) -> None:
    if doubtful:
        raise CommandError(f"not taken over exactly: {_number(doubtful, what)}; the notes say why")


def _tell_each(output: Output, items: Iterable[tuple[JudgedItem, str]]) -> None:
    told = list(items)
    for item, text in told[:SHOWN_AT_MOST]:
        output.say(printable(f"{item.source_identifier} {item.partition_key}: {text}"))
    if len(told) > SHOWN_AT_MOST:
        output.say(f"… and {len(told) - SHOWN_AT_MOST} more")


def _named(partition: Partition) -> str:
    return f"{partition.source_identifier} {partition.partition_key}"


def _count(number: int) -> Text:
    return Text(str(number) if number else "")


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
