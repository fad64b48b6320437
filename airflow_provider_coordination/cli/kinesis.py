"""The command `import kcl`, which takes over the leases of a Kinesis Client Library application."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.cli.commands import Session, add_command
from airflow_provider_coordination.cli.imports import (
    DRY_RUN,
    ENDPOINT_URL,
    EXTERNAL_ID,
    PARTIAL,
    REGION,
    ROLE_ARN,
    compared,
    dynamodb_calls,
    finish,
    is_to_be_written,
    state,
    written,
)
from airflow_provider_coordination.cli.output import ALARM, Column, Output, printable, table
from airflow_provider_coordination.cli.prompts import YES
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.coordination.transfer import TransferState
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.sources.kinesis.kcl import Becomes, ImportPlan, ShardPlan
from airflow_provider_coordination.sources.kinesis.kcl_import import as_before, partition_of, prepare_import
from airflow_provider_coordination.sources.kinesis.kcl_table import SETTLE_SECONDS
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON, parse_position
from airflow_provider_coordination.sources.reset_targets import target_of


def register(group: typer.Typer) -> None:
    """Add the command to the group `import`."""
    add_command(group, "kcl", import_kcl)


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
    leases = dynamodb_calls(lease_table, region, endpoint_url, role_arn, external_id)
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
    transfers = compared(session, [p for p in wanted.values() if p is not None])
    states = {shard: state(transfers, partition) for shard, partition in wanted.items()}
    _show_plan(session.output, states, parks=partial)
    conflicts = [shard for shard, state in states.items() if state is TransferState.CONFLICT]
    _explain_plan(session.output, prepared.plan, conflicts)
    doubtful = len({*prepared.plan.refused, *conflicts})
    if is_to_be_written(session, transfers.values(), doubtful, "shard", dry_run=dry_run, partial=partial, yes=yes):
        prepared.refuse_if_moved(leases)
        overtaken = written(session, transfers.values())
        doubtful += len(overtaken)
    finish(doubtful, "shard")


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
