"""The commands `audit` and `repair`: compare what was read of a source with its sinks, and read what they lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.audit.repair import PlannedRepair, plan_of, plan_repairs
from airflow_provider_coordination.audit.report import AuditReport, PartitionAudit, State, shown
from airflow_provider_coordination.audit.source_audit import audit_source, dead_letter_sink
from airflow_provider_coordination.cli.access import airflow_connections
from airflow_provider_coordination.cli.acknowledgments import acknowledgment_sets
from airflow_provider_coordination.cli.commands import (
    EXIT_REFUSED,
    OPTIONAL_KEYS,
    REASON,
    SOURCE,
    YES,
    CommandError,
    Session,
    add_command,
)
from airflow_provider_coordination.cli.output import ALARM, OutputColumn, printable, table
from airflow_provider_coordination.coordination.errors import CoordinationError, SupervisorNotFoundError
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import Target
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER, SinkSettings
from airflow_provider_coordination.supervisor.spec import read_sink
from airflow_provider_coordination.supervisor.spec_file import read_spec_text

SINK = Annotated[
    list[str] | None,
    typer.Option(
        "--sink",
        metavar="KIND: {...}",
        help="Sink that the source is delivered to, in the format of a spec, such as "
        "'parquet: {path: /data/lake/clicks}'. Repeat for every sink. Default: those of its supervisor.",
    ),
]
DEAD_LETTERS = Annotated[str | None, typer.Option("--dead-letters", help="Folder of the dead letters.")]

ROWS = Annotated[bool, typer.Option("--rows", help="Read the rows of the sinks too, and count those of each batch.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    add_command(app, "audit", audit)
    add_command(app, "repair", repair)


def audit(
    session: Session,
    source: SOURCE,
    *,
    sink: SINK = None,
    dead_letters: DEAD_LETTERS = None,
    rows: ROWS = False,
    all_partitions: Annotated[bool, typer.Option("--all", help="Show complete partitions too.")] = False,
) -> None:
    """Compare the ranges of a source that were read with what each sink has.

    The exit code is 1 unless everything is complete or explained.
    """
    view = session.view(source)
    report = audit_source(view, sinks_of(view, sink, dead_letters), reads_rows=rows)
    if session.output.as_json:
        for record in _records(report):
            session.output.record(record)
    else:
        _show(session, report, all_partitions=all_partitions)
    if report.state is not State.COMPLETE:
        wrong = sum(not each.is_explained for each in report.findings)
        raise CommandError(f"source {source!r}: {wrong} findings, the most severe is {report.state}", EXIT_REFUSED)


def repair(
    session: Session,
    source: SOURCE,
    keys: OPTIONAL_KEYS = None,
    *,
    sink: SINK = None,
    rows: ROWS = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    reason: REASON = None,
    yes: YES = False,
) -> None:
    """Read again exactly the ranges that an audit finds missing.

    Give every sink of the source: each of them gets the ranges. The command first shows its plan.
    """
    view = session.view(source)
    report = audit_source(view, sinks_of(view, sink), reads_rows=rows)
    target = Target(name="repair", requested_at=session.context.clock.now())
    planned = plan_repairs(report, {each.partition_key: each for each in view.partitions()}, target, keys or ())
    _show_plan(session, planned)
    if planned and report.unknown_sinks:
        named = ", ".join(report.unknown_sinks)
        session.output.warn(f"it is not known what these sinks have, and they get each range too: {named}")
    problems = sum(bool(each.problem) for each in planned)
    going = len(planned) - problems
    if going and not dry_run:
        if not yes and not _confirmed(session, source, going):
            raise CommandError("not confirmed; nothing was changed")
        sets = acknowledgment_sets(session, source)
        resets = Resets(sets, by=session.context.user(), reason=reason or "a gap that an audit found")
        for step, result in resets.apply(plan_of(planned, target)):
            if isinstance(result, CoordinationError):
                problems += 1
                session.output.info(f"error: {result}")
            elif not session.output.as_json:
                session.output.line(Text("repairing ") + printable(step.partition.partition_key))
    if problems:
        raise CommandError(f"{problems} of {len(planned)} ranges are not repaired", EXIT_REFUSED)


def _confirmed(session: Session, source: str, ranges: int) -> bool:
    if not session.context.is_interactive():
        raise typer.BadParameter(f"there is no terminal to confirm {ranges} repairs; give --yes", param_hint="--yes")
    return session.confirm(f"Read {ranges} ranges of {source} again?")


def _show_plan(session: Session, planned: Sequence[PlannedRepair]) -> None:
    output = session.output
    if not planned:
        output.info("No gap to repair.")
    for each in planned:
        gap, text = each.gap, each.problem or (each.repair.text if each.repair else "")
        if output.as_json:
            output.record(
                {
                    "partition": gap.partition_key,
                    "after": gap.after,
                    "until": gap.until,
                    "batches": gap.batches,
                    "lacking": each.lacking,
                    "twice": each.having,
                    "effect": each.repair.text if each.repair else None,
                    "problem": each.problem or None,
                }
            )
            continue
        twice = f"; sink {', '.join(each.having)} has the range, and gets it twice" if each.having else ""
        left = "cannot be repaired: " if each.problem else ""
        output.line(
            printable(
                f"{gap.partition_key} ({shown(gap.after)}, {shown(gap.until)}] is missing in "
                f"{', '.join(each.lacking)}: {left}{text}{twice}"
            )
        )


def sinks_of(view: SourceView, texts: Sequence[str] | None, dead_letters: str | None = None) -> list[SinkSettings]:
    """Return the settings of the sinks that are given on the command line, or of the supervisor's spec."""
    hint = "--sink"
    with airflow_connections() as connections:
        if texts:
            settings: list[SinkSettings] = [
                read_sink(read_spec_text(text, hint), hint).connect(connections) for text in texts
            ]
        else:
            from airflow_provider_coordination.hooks.supervision import sinks_of_supervised

            try:
                settings = sinks_of_supervised(view)
            except SupervisorNotFoundError as error:
                raise typer.BadParameter(f"{error}; give its sinks", param_hint=hint) from None
    if dead_letters is not None:
        settings = [each for each in settings if each.name != DEAD_LETTER]
    return [*settings, *([] if dead_letters is None else [dead_letter_sink(dead_letters)])]


def _records(report: AuditReport) -> Iterator[dict[str, object]]:
    for sink in report.sinks:
        for each in sink.partitions:
            found = {name: value for name, value in asdict(each).items() if name != "findings"}
            yield {"type": "partition", "state": each.state, **found}
        for finding in (*sink.findings, *(f for each in sink.partitions for f in each.findings)):
            yield {"type": "finding", **asdict(finding)}
        for note in sink.notes:
            yield {"type": "note", "sink": sink.name, "note": note}


def _show(session: Session, report: AuditReport, *, all_partitions: bool) -> None:
    output = session.output
    columns = ["sink", "partition", "state", "batches", "records", "rows", "left out"]
    for sink in report.sinks:
        partitions = [each for each in sink.partitions if all_partitions or each.findings]
        complete = sum(each.state is State.COMPLETE for each in sink.partitions)
        output.line(f"{sink.name} ({sink.location}): {complete} of {len(sink.partitions)} partitions are complete")
        if partitions:
            rows = [_row(each) for each in partitions]
            output.results.print(table(output.results, [OutputColumn(name) for name in columns], rows))
        for finding in (*sink.findings, *(f for each in sink.partitions for f in each.findings)):
            output.line(printable(str(finding)))
        for note in sink.notes:
            output.warn(note)


def _row(each: PartitionAudit) -> list[Text]:
    left_out = ", ".join(f"{count} {stage}" for stage, count in sorted(each.left_out.items()) if count)
    state = Text(str(each.state), style="" if each.state is State.COMPLETE else ALARM)
    rows = "?" if each.rows is None else str(each.rows)
    numbers = [Text(str(each.batches)), Text(str(each.records)), Text(rows), Text(left_out)]
    return [Text(each.sink), printable(each.partition_key), state, *numbers]
