"""The command `preview`: shows a few records of a spec's source, with the columns that they get."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from airflow_provider_coordination.cli.access import airflow_connections, import_airflow
from airflow_provider_coordination.cli.commands import EXIT_REFUSED, JSON, VERBOSE, CommandError, reporting_errors
from airflow_provider_coordination.cli.output import ALARM, Output, printable
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.peek import MAX_BYTES, MAX_SECONDS, PeekLimits
from airflow_provider_coordination.supervisor.preview import COMPUTED, MAX_RECORDS, OF_PAYLOAD, Preview, PreviewRow
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file

SPEC = Annotated[Path, typer.Argument(metavar="SPEC", help="Spec, a YAML or JSON file.")]
RECORDS = Annotated[int, typer.Option("--records", min=1, max=MAX_RECORDS, help="How many records are read at most.")]
BYTES = Annotated[int, typer.Option("--max-bytes", min=1, help="How many bytes of records are read, about.")]
SECONDS = Annotated[float, typer.Option("--seconds", min=1, max=300, help="How long the source is read at most.")]
WAITED_SECONDS = 5.0
"""How long the command waits for the last response, beyond the time of reading."""
ORIGINS = {OF_PAYLOAD: "from the payload", COMPUTED: "computed by Spark"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("preview")(preview)


def preview(
    spec: SPEC,
    *,
    records: RECORDS = 10,
    max_bytes: BYTES = MAX_BYTES,
    seconds: SECONDS = MAX_SECONDS,
    as_json: JSON = False,
    verbose: VERBOSE = False,
) -> None:
    """Show a few records of a spec's source with the columns that they get. Changes nothing, and needs no store."""
    output = Output(as_json=as_json)
    with reporting_errors(verbose=verbose):
        import_airflow()
        read = IngestionSpec.read(read_spec_file(spec)[0])
        limits = PeekLimits(records=records, max_bytes=max_bytes, seconds=seconds)
        try:
            with airflow_connections():
                from airflow_provider_coordination.hooks.supervision import preview_source

                found = preview_source(read, limits, response_seconds=seconds + WAITED_SECONDS)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("airflow"):
                raise
            raise ConfigurationError(
                "a preview finds its connections by Airflow, which is not installed here"
            ) from None
    if as_json:
        output.record(found)
    else:
        for line in _lines(found):
            output.line(line)
        for note in found.notes:
            output.info(printable(f"note: {note}"))
    if found.nothing:
        raise CommandError(f"source {found.source!r}: {found.nothing}", EXIT_REFUSED)


def _lines(found: Preview) -> Iterator[Text]:
    yield Text(f"columns of source {found.source}", style="bold")
    width = max((len(column.name) for column in found.columns), default=0)
    for column in found.columns:
        origin = ORIGINS.get(column.origin, "")
        yield printable(f"  {column.name:<{width}}  {column.type:<24}  {origin}".rstrip())
    for row in found.rows:
        yield from _record(row, found, width)


def _record(row: PreviewRow, found: Preview, width: int) -> Iterator[Text]:
    heading = Text(f"record {row.record}", style="bold")
    if row.error:
        heading.append("  ")
        heading.append_text(Text(printable(f"bad: {row.error}").plain, style=ALARM))
    yield heading
    for column in found.columns:
        if column.name in row.values:
            value = row.values[column.name]
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield printable(f"  {column.name:<{width}}  {text}")
