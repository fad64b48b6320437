"""The command `import kcl`: imports the leases of a Kinesis Client Library application."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.cli.commands import YES, Session, add_command
from airflow_provider_coordination.cli.imports import (
    DRY_RUN,
    ENDPOINT_URL,
    EXTERNAL_ID,
    PARTIAL,
    REGION,
    ROLE_ARN,
    TransferState,
    check_complete,
    compare_partitions,
    dynamodb_calls,
    should_write,
    transfer_state,
    write_new,
)
from airflow_provider_coordination.cli.output import ALARM, Output, OutputColumn, printable, table
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.sources.kinesis.kcl import ImportOutcome, ImportPlan, ShardPlan
from airflow_provider_coordination.sources.kinesis.kcl_import import keep_earlier_start, partition_of, prepare_import
from airflow_provider_coordination.sources.kinesis.kcl_table import SETTLE_SECONDS
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON, parse_position
from airflow_provider_coordination.sources.kinesis.stream_names import account_of, region_of
from airflow_provider_coordination.sources.reset_targets import parse_target


def register(group: typer.Typer) -> None:
    """Add the command to the group `import`."""
    add_command(group, "kcl", import_kcl)


def import_kcl(
    session: Session,
    *,
    lease_table: Annotated[
        str, typer.Option("--lease-table", help="Lease table, which has the name of the application.")
    ],
    stream: Annotated[str, typer.Option("--stream", help="Stream that the application reads, by name or ARN.")],
    source: Annotated[str, typer.Option("--source", help="Source to import the partitions into.")],
    account: Annotated[
        str | None,
        typer.Option(
            "--account",
            help="AWS account of the stream, if the table has several streams of this name. An ARN names it.",
        ),
    ] = None,
    unread_from_trim_horizon: Annotated[
        bool,
        typer.Option(
            "--unread-from-trim-horizon",
            help="Read shards at LATEST or AT_TIMESTAMP without a checkpoint from their earliest record.",
        ),
    ] = False,
    at_timestamp: Annotated[
        str | None,
        typer.Option(
            "--at-timestamp",
            metavar="INSTANT",
            help="Where to start shards at AT_TIMESTAMP, as configured in the application.",
        ),
    ] = None,
    settle_seconds: Annotated[
        float,
        typer.Option(
            "--settle-seconds",
            min=1.0,
            help="Seconds between two reads of the table, to check that the application is stopped.",
        ),
    ] = SETTLE_SECONDS,
    region: REGION = None,
    endpoint_url: ENDPOINT_URL = None,
    kinesis_endpoint_url: Annotated[
        str | None, typer.Option("--kinesis-endpoint-url", help="Endpoint of Kinesis, if it is not AWS.")
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
        AwsSettings(
            region=region_of([stream]) or region,
            endpoint_url=kinesis_endpoint_url,
            role_arn=role_arn,
            external_id=external_id,
        )
    )
    now = session.context.clock.now()
    since = None if at_timestamp is None else _instant(at_timestamp, now)
    session.output.info(
        f"Reading {lease_table} twice, {settle_seconds:g} s apart, to check that no application writes to it …"
    )
    prepared = prepare_import(
        leases,
        kinesis,
        stream,
        now=now,
        account=account_of(stream) or account,
        unread_from_trim_horizon=unread_from_trim_horizon,
        unread_since=since,
        settle_seconds=settle_seconds,
        sleep=session.context.sleep,
    )
    wanted = {
        shard: partition
        and keep_earlier_start(shard, partition, session.store.get(identifier, partition.partition_key))
        for shard in prepared.plan.shards
        for partition in [partition_of(prepared.plan, shard, identifier, now)]
    }
    transfers = compare_partitions(session, [p for p in wanted.values() if p is not None])
    states = {shard: transfer_state(transfers, partition) for shard, partition in wanted.items()}
    _show_plan(session.output, states, parks=partial)
    conflicts = [shard for shard, state in states.items() if state is TransferState.CONFLICT]
    _explain_plan(session.output, prepared.plan, conflicts)
    problems = len({*prepared.plan.refused, *conflicts})
    if should_write(session, transfers.values(), problems, "shard", dry_run=dry_run, partial=partial, yes=yes):
        prepared.check_unchanged(leases)
        raced = write_new(session, transfers.values())
        problems += len(raced)
    check_complete(problems, "shard")


def _show_plan(output: Output, states: Mapping[ShardPlan, TransferState | None], *, parks: bool) -> None:
    if output.as_json:
        for shard, state in states.items():
            output.record(
                {
                    "shard": shard.shard_id,
                    "checkpoint": shard.kcl_checkpoint,
                    "becomes": str(shard.outcome),
                    "state": state and str(state),
                    "note": shard.note,
                    "remedy": shard.remedy,
                }
            )
        return
    columns = [OutputColumn("shard"), OutputColumn("KCL checkpoint"), OutputColumn("becomes"), OutputColumn("note")]
    rows = [
        [
            printable(shard.shard_id),
            printable(shard.kcl_checkpoint),
            _outcome_text(shard, state, parks=parks),
            printable(_note(shard)),
        ]
        for shard, state in states.items()
    ]
    output.results.print(table(output.results, columns, rows))


def _outcome_text(shard: ShardPlan, state: TransferState | None, *, parks: bool) -> Text:
    if state is TransferState.CONFLICT:
        return Text("conflict", style=ALARM)
    if shard.is_refused:
        return Text(f"{shard.outcome}, parked" if parks and state is not None else shard.outcome, style=ALARM)
    return Text("present" if state is TransferState.PRESENT else str(shard.outcome))


def _note(shard: ShardPlan) -> str:
    if shard.progress is not None and shard.outcome is ImportOutcome.PARTITION:
        start = _start_text(shard.progress.checkpoint)
        return shard.note if shard.note.startswith(start) else "; ".join(filter(None, (start, shard.note)))
    return "; ".join(filter(None, (shard.note, shard.remedy)))


def _start_text(checkpoint: str) -> str:  # the notes of `sources.kinesis.kcl` begin with these texts
    if checkpoint == TRIM_HORIZON:
        return "read from its earliest record on"
    instant = parse_position(checkpoint).timestamp
    return f"read on after {checkpoint}" if instant is None else f"read from {format_instant(instant)} on"


def _instant(text: str, now: datetime) -> datetime:
    target = parse_target(text, now)
    if target.instant is None or target.is_latest:
        raise typer.BadParameter(
            f"{text!r} is not an instant; give one such as 2026-01-31T00:00:00Z", param_hint="--at-timestamp"
        )
    return target.instant


def _explain_plan(output: Output, plan: ImportPlan, conflicts: Sequence[ShardPlan]) -> None:
    totals = Counter(str(shard.outcome) for shard in plan.shards)
    output.line("Totals: " + (", ".join(f"{count} {name}" for name, count in sorted(totals.items())) or "no leases"))
    if plan.other_streams:
        output.info(f"{plan.other_streams} leases of other streams are ignored.")
    if plan.other_items:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(plan.other_items.items()))
        output.info(f"Items that are not leases are ignored: {kinds}.")
    if plan.from_now_on:
        output.warn(
            f"{len(plan.from_now_on)} shards were at LATEST and are read from the time of this import on: earlier "
            "records without a checkpoint are not read; to read everything in the stream, give "
            "--unread-from-trim-horizon"
        )
    for shard in conflicts:
        output.info(
            f"{shard.shard_id}: the store already has its partition with other progress, which is not changed; "
            "check it with `show`, and `delete` it to import it again"
        )
