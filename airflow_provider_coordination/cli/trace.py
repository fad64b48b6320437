"""The command `trace`: where the rows of a batch come from, and where they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.audit.trace import DELIVERED, BatchTrace, trace_batch
from airflow_provider_coordination.cli.access import airflow_connections
from airflow_provider_coordination.cli.audit import DEAD_LETTERS, SINK, sinks_of
from airflow_provider_coordination.cli.commands import SOURCE, Session, add_command
from airflow_provider_coordination.cli.output import ALARM, printable
from airflow_provider_coordination.coordination.workers import TaskTry


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    add_command(app, "trace", trace)


def trace(
    session: Session,
    source: SOURCE,
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="Value of the column _batch_id of the row.")],
    *,
    sink: SINK = None,
    dead_letters: DEAD_LETTERS = None,
    position: Annotated[
        str | None, typer.Option("--position", help="Position of the row, which must be in the batch.")
    ] = None,
) -> None:
    """Show where a row comes from: partition, range, arrival, job, task and log, and which sinks have its batch."""
    view = session.view(source)
    found = trace_batch(view, sinks_of(view, sink, dead_letters), batch, position)
    log = _log_url(found.task)
    if session.output.as_json:
        task = None if found.task is None else found.task._asdict()
        described = asdict(found.batch)
        origin = described.pop("origin")
        record = {**described, **origin, "task": task, "log": log, "is_pending": found.is_pending}
        session.output.record({**record, "sinks": [asdict(each) for each in found.sinks]})
        return
    lines = [*_facts(found, log)]
    width = max(len(name) for name, _ in lines)
    for name, fact in lines:
        session.output.line(Text(f"{name:<{width}}  ", style="bold") + fact)


def _facts(found: BatchTrace, log: str) -> Iterator[tuple[str, Text]]:
    batch = found.batch
    yield "batch", printable(batch.batch_id)
    yield "partition", printable(batch.partition_key)
    yield "range", printable(f"after {batch.start or 'the start'} up to {batch.end}")
    left_out = "".join(f", {count} left out ({stage})" for stage, count in sorted(batch.left_out.items()) if count)
    yield "records", Text(f"{batch.records}{left_out}")
    if batch.origin.first_arrival:
        yield "arrived", Text(f"{batch.origin.first_arrival} to {batch.origin.last_arrival}")
    yield "recorded", Text(batch.landed_at or "-")
    yield "job", printable(batch.origin.owner or "-")
    if (task := found.task) is not None:
        mapped = f"[{task.map_index}]" if task.map_index >= 0 else ""
        yield "task", printable(f"{task.dag_id} {task.run_id} {task.task_id}{mapped}, try {task.try_number}")
    if log:
        yield "log", Text(log)
    for sink in found.sinks:
        rows = "" if sink.rows is None else f", {sink.rows} rows"
        state = Text(sink.state, style="" if sink.state == DELIVERED else ALARM)
        yield f"sink {sink.sink}", state + Text(rows) + printable(f" in {sink.location}")
    if found.is_pending:
        yield "store", Text("not every sink has acknowledged it yet")


def _log_url(task: TaskTry | None) -> str:
    """Return the page of a task try in Airflow, which shows its log; empty if it is not known here."""
    if task is None:
        return ""
    with suppress(ModuleNotFoundError), airflow_connections():
        from airflow_provider_coordination.hooks.configuration import task_url

        return task_url(task)
    return ""
