"""The command `recover`: a source whose store is lost is made anew, from the tables that it was delivered into.

What would become of everything is shown first. What the store holds already is compared and never overwritten, so that
the command may be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.cli.access import connections_of_airflow
from airflow_provider_coordination.cli.commands import CommandError, Session, add_command
from airflow_provider_coordination.cli.imports import (
    DRY_RUN,
    PARTIAL,
    compared,
    finish,
    is_to_be_written,
    state,
    written,
)
from airflow_provider_coordination.cli.output import ALARM, Column, Output, printable, table
from airflow_provider_coordination.cli.prompts import SOURCE, YES
from airflow_provider_coordination.coordination.claims import FAMILY as CLAIM_FAMILY
from airflow_provider_coordination.coordination.claims import Claims
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, new_partition
from airflow_provider_coordination.coordination.partition import source_identifier as family_of
from airflow_provider_coordination.coordination.supplier import FAMILY as GLOBAL_STATE_FAMILY
from airflow_provider_coordination.coordination.supplier import GLOBAL_STATE_KEY
from airflow_provider_coordination.coordination.transfer import TransferState
from airflow_provider_coordination.spark.delivered_batches import KeepsHistory, TableHistory
from airflow_provider_coordination.spark.settings import SinkSettings, access_of
from airflow_provider_coordination.spark.sinks import make_sinks
from airflow_provider_coordination.supervisor.spec import sink_in
from airflow_provider_coordination.supervisor.spec_file import read_spec_text

if TYPE_CHECKING:
    from airflow_provider_coordination.spark.recovery import Recovered, Recovery


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
            help="A table that the source is delivered into, as a spec writes it, such as "
            "'delta: {path: /data/lake/clicks}'; give every table, once each.",
            show_default=False,
        ),
    ],
    landing_path: Annotated[
        str | None,
        typer.Option(
            "--landing-path",
            help="Where batches wait for delivery: those that only some of the tables have are found there.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Add what is missing to a store that has partitions of the source.")
    ] = False,
    dry_run: DRY_RUN = False,
    partial: PARTIAL = False,
    yes: YES = False,
) -> None:
    """Make a source anew whose store is lost, from the commits of the tables that it was delivered into.

    Let nothing else run that works on the source.
    """
    identifier = session.source_identifier(source)
    settings = [_settings_of(text) for text in from_table]
    recovery = _recovery_of(identifier, settings, landing_path)
    wanted = {each.partition_key: _partition(session, identifier, each) for each in recovery.partitions}
    others = list(_beside(session, source, recovery))
    transfers = compared(session, [*(p for p in wanted.values() if p is not None), *others])
    _check_lost(session, source, force=force)
    states = {key: state(transfers, partition) for key, partition in wanted.items()}
    _show(session.output, recovery, wanted, states)
    conflicts = sum(each is TransferState.CONFLICT for each in states.values())
    doubtful = conflicts + sum(bool(each.problem) for each in recovery.partitions) + len(recovery.warnings)
    if is_to_be_written(session, transfers.values(), doubtful, "note", dry_run=dry_run, partial=partial, yes=yes):
        doubtful += len(written(session, transfers.values()))
    finish(doubtful, "note")


def _settings_of(text: str) -> SinkSettings:
    """Return a sink that is given on the command line."""
    hint = "--from-table"
    with connections_of_airflow():
        settings: SinkSettings = sink_in(read_spec_text(text, hint), hint).connect()
    return settings


def _recovery_of(identifier: str, settings: Sequence[SinkSettings], landing_path: str | None) -> Recovery:
    histories = [_history(each) for each in settings]
    try:
        from airflow_provider_coordination.spark.recovery import landed_below, recovery_of
    except ModuleNotFoundError as error:
        raise CommandError(
            f"landed files cannot be read: {error}; install airflow-provider-coordination[spark] here"
        ) from error
    return recovery_of(identifier, histories, landed_below(landing_path, access_of(settings)))


def _history(settings: SinkSettings) -> TableHistory:
    [sink] = make_sinks([settings])
    if not isinstance(sink, KeepsHistory):
        raise ConfigurationError(
            f"--from-table: a sink of kind {settings.kind!r} does not keep how far partitions were delivered; give "
            "tables whose commits do, such as 'delta' and 'iceberg'"
        )
    return sink.history()


def _partition(session: Session, identifier: str, recovered: Recovered) -> Partition | None:
    progress = recovered.progress
    if progress is None or recovered.problem:
        return None
    now = session.surroundings.clock.now()
    partition = new_partition(identifier, recovered.partition_key, now).with_progress(progress.to_mapping())
    # Fencing tokens are versions: those to come have to be later than those that the tables know, whatever clocks say.
    partition = replace(partition, version=max(partition.version, recovered.fencing_token + 1))
    return partition.completed(now) if progress.is_finished else partition


def _beside(session: Session, source: str, recovery: Recovery) -> Iterator[Partition]:
    """Yield what a source has beside its partitions: the names that are claimed, and what its supplier remembers."""
    clock, prefix = session.surroundings.clock, session.access.prefix
    claims = Claims(session.store, family_of(source, prefix=prefix, family=CLAIM_FAMILY), clock)
    for key, names in recovery.claims.items():
        for first in range(0, len(names), claims.room):
            yield from claims.of(key, names[first : first + claims.room])
    if recovery.state:
        family = family_of(source, prefix=prefix, family=GLOBAL_STATE_FAMILY)
        yield new_partition(family, GLOBAL_STATE_KEY, clock.now()).with_progress(recovery.state)


def _check_lost(session: Session, source: str, *, force: bool) -> None:
    identifier = session.source_identifier(source)
    if force or not any(session.store.query(identifier, status, limit=1) for status in PartitionStatus):
        return
    raise CommandError(
        f"nothing was written: the store has partitions of source {source!r}; --force adds those that are missing and "
        "leaves the others as they are, and `delete` removes them"
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
        (each, _becomes(each, states[each.partition_key]), wanted[each.partition_key]) for each in recovery.partitions
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
    columns = [Column("partition"), Column("becomes"), Column("position"), Column("note")]
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
        output.line(f"{names} names are claimed anew, which belong to these partitions.")


def _becomes(recovered: Recovered, found: TransferState | None) -> str:
    if recovered.progress is None or recovered.problem:
        return "nothing"
    if found is TransferState.NEW:
        return "finished" if recovered.progress.is_finished else "read on"
    return str(found)


def _note(recovered: Recovered) -> str:
    if recovered.problem or recovered.progress is None:
        return recovered.problem
    batches = recovered.progress.landed
    return f"to be delivered where it is missing: {', '.join(b.batch_id for b in batches)}" if batches else ""
