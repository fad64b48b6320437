"""The command `recover`: rebuilds the partitions of a source from its tables after a loss of the store.

The command first shows its plan. Items that the store already has are compared and never overwritten, so the command
can be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.cli.access import airflow_connections
from airflow_provider_coordination.cli.commands import SOURCE, YES, CommandError, Session, add_command
from airflow_provider_coordination.cli.imports import (
    DRY_RUN,
    PARTIAL,
    TransferState,
    check_complete,
    compare_partitions,
    should_write,
    transfer_state,
    write_new,
)
from airflow_provider_coordination.cli.output import ALARM, Output, OutputColumn, printable, table
from airflow_provider_coordination.coordination.claims import FAMILY as CLAIM_FAMILY
from airflow_provider_coordination.coordination.claims import Claims
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, new_partition
from airflow_provider_coordination.coordination.partition import source_identifier as family_of
from airflow_provider_coordination.coordination.source_view import GLOBAL_STATE_FAMILY, GLOBAL_STATE_KEY
from airflow_provider_coordination.spark.sink_settings import SinkSettings, access_of
from airflow_provider_coordination.spark.sinks import make_sinks
from airflow_provider_coordination.supervisor.spec import read_sink
from airflow_provider_coordination.supervisor.spec_file import read_spec_text

if TYPE_CHECKING:
    from airflow_provider_coordination.spark.delivered_batches import RecoveredPartition, Recovery, TableHistory


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    add_command(app, "recover", recover)


def recover(
    session: Session,
    source: SOURCE,
    *,
    from_table: Annotated[
        list[str],
        typer.Option(
            "--from-table",
            metavar="KIND: {...}",
            help="Table that the source is delivered to, in the format of a spec, such as "
            "'delta: {path: /data/lake/clicks}'. Repeat for every table.",
        ),
    ],
    landing_path: Annotated[
        str | None,
        typer.Option(
            "--landing-path", help="Path of the landed batches, to find those that only some of the tables have."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Add missing partitions even if the store has partitions of the source.")
    ] = False,
    dry_run: DRY_RUN = False,
    partial: PARTIAL = False,
    yes: YES = False,
) -> None:
    """Rebuild the partitions of a source after a loss of the store, from the commits of its tables.

    Stop everything else that works on the source first.
    """
    identifier = session.source_identifier(source)
    settings = [_sink_settings(text) for text in from_table]
    recovery = _read_recovery(identifier, settings, landing_path)
    wanted = {each.partition_key: _partition(session, identifier, each) for each in recovery.partitions}
    others = list(_other_items(session, source, recovery))
    transfers = compare_partitions(session, [*(p for p in wanted.values() if p is not None), *others])
    _check_empty(session, source, force=force)
    states = {key: transfer_state(transfers, partition) for key, partition in wanted.items()}
    _show(session.output, recovery, wanted, states)
    conflicts = sum(each is TransferState.CONFLICT for each in states.values())
    problems = conflicts + sum(bool(each.problem) for each in recovery.partitions) + len(recovery.warnings)
    if should_write(session, transfers.values(), problems, "note", dry_run=dry_run, partial=partial, yes=yes):
        problems += len(write_new(session, transfers.values()))
    check_complete(problems, "note")


def _sink_settings(text: str) -> SinkSettings:
    """Return the settings of a sink that is given on the command line."""
    hint = "--from-table"
    with airflow_connections() as connections:
        settings: SinkSettings = read_sink(read_spec_text(text, hint), hint).connect(connections)
    return settings


def _read_recovery(identifier: str, settings: Sequence[SinkSettings], landing_path: str | None) -> Recovery:
    histories = [_history(each) for each in settings]
    try:
        from airflow_provider_coordination.spark.delivered_batches import landed_file_finder, recovery_of
    except ModuleNotFoundError as error:
        raise CommandError(
            f"landed files cannot be read: {error}; install airflow-provider-coordination[spark]"
        ) from error
    return recovery_of(identifier, histories, landed_file_finder(landing_path, access_of(settings)))


def _history(settings: SinkSettings) -> TableHistory:
    [sink] = make_sinks([settings])
    history = sink.history()
    if history is None:
        raise ConfigurationError(
            f"--from-table: sinks of kind {settings.kind!r} do not record how far partitions were delivered; give "
            "tables whose commits record it, such as 'delta' and 'iceberg'"
        )
    return history


def _partition(session: Session, identifier: str, recovered: RecoveredPartition) -> Partition | None:
    progress = recovered.progress
    if progress is None or recovered.problem:
        return None
    now = session.context.clock.now()
    partition = new_partition(identifier, recovered.partition_key, now).with_progress(progress.to_mapping())
    # Fencing tokens are versions: new ones must be later than those in the tables, whatever the clocks say.
    partition = replace(partition, version=max(partition.version, recovered.fencing_token + 1))
    return partition.completed(now) if progress.is_finished else partition


def _other_items(session: Session, source: str, recovery: Recovery) -> Iterator[Partition]:
    """Yield the items of a source beside its partitions: claimed names, and the state of its supplier."""
    clock, prefix = session.context.clock, session.access.prefix
    claims = Claims(session.store, family_of(source, prefix=prefix, family=CLAIM_FAMILY), clock)
    for key, names in recovery.claims.items():
        for first in range(0, len(names), claims.room):
            yield from claims.of(key, names[first : first + claims.room])
    if recovery.state:
        family = family_of(source, prefix=prefix, family=GLOBAL_STATE_FAMILY)
        yield new_partition(family, GLOBAL_STATE_KEY, clock.now()).with_progress(recovery.state)


def _check_empty(session: Session, source: str, *, force: bool) -> None:
    identifier = session.source_identifier(source)
    if force or not any(session.store.query(identifier, status, limit=1) for status in PartitionStatus):
        return
    raise CommandError(
        f"nothing was written: the store already has partitions of source {source!r}; add the missing ones with "
        "--force, or remove the existing ones with `delete` first"
    )


def _show(
    output: Output,
    recovery: Recovery,
    wanted: dict[str, Partition | None],
    states: dict[str, TransferState | None],
) -> None:
    for warning in recovery.warnings:
        output.warn(warning)
    rows = [
        (each, _outcome(each, states[each.partition_key]), wanted[each.partition_key]) for each in recovery.partitions
    ]
    if output.as_json:
        for each, becomes, _ in rows:
            output.record(
                {
                    "partition": each.partition_key,
                    "becomes": becomes,
                    "position": None if each.progress is None else each.progress.checkpoint,
                    "to_deliver": [] if each.progress is None else [b.batch_id for b in each.progress.landed],
                    "problem": each.problem or None,
                }
            )
        return
    columns = [OutputColumn("partition"), OutputColumn("becomes"), OutputColumn("position"), OutputColumn("note")]
    output.results.print(
        table(
            output.results,
            columns,
            [
                [
                    printable(each.partition_key),
                    Text(becomes, style=ALARM if each.problem else ""),
                    printable("" if each.progress is None else json.dumps(each.progress.checkpoint)),
                    printable(_note(each)),
                ]
                for each, becomes, _ in rows
            ],
        )
    )
    names = sum(map(len, recovery.claims.values()))
    if names:
        output.line(f"{names} names of these partitions are claimed again.")


def _outcome(recovered: RecoveredPartition, state: TransferState | None) -> str:
    if recovered.progress is None or recovered.problem:
        return "nothing"
    if state is TransferState.NEW:
        return "finished" if recovered.progress.is_finished else "continued"
    return str(state)


def _note(recovered: RecoveredPartition) -> str:
    if recovered.problem or recovered.progress is None:
        return recovered.problem
    batches = recovered.progress.landed
    return f"to deliver to tables that lack it: {', '.join(b.batch_id for b in batches)}" if batches else ""
