"""The commands about specs: `spec check`, `print`, `schema` and `from-druid`. They need no store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from airflow_provider_coordination.cli.access import airflow_connections, import_airflow
from airflow_provider_coordination.cli.commands import EXIT_REFUSED, EXIT_USAGE, JSON, CommandError, reporting_errors
from airflow_provider_coordination.cli.output import Output, OutputColumn, printable, table
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.supervisor.druid import from_druid
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import SUFFIXES, read_spec_file, write_spec_text
from airflow_provider_coordination.supervisor.spec_schema import json_schema

FILES = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Specs, or folders of specs.")]
FILE = Annotated[Path, typer.Argument(metavar="FILE", help="Spec, a YAML or JSON file.")]
DRUID_FILE = Annotated[Path, typer.Argument(metavar="FILE", help="Druid supervisor spec.")]
CONNECT = Annotated[
    bool, typer.Option("--connect", help="Also check that the source exists and that its data matches the schema.")
]
LAKE = Annotated[str, typer.Option("--lake", help="Folder in which the dataset's folder is created.")]
TRANSFORM = Annotated[
    str | None, typer.Option("--transform", help="module:function that does what a schema or a predicate cannot.")
]


def register(app: typer.Typer) -> None:
    """Add the group `spec` to the application."""
    group = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Check, print and translate ingestion specs. Needs no store.",
    )
    group.command("check")(check_specs)
    group.command("print")(print_spec)
    group.command("schema")(print_schema)
    group.command("from-druid")(translate_from_druid)
    app.add_typer(group, name="spec")


def check_specs(files: FILES, *, connect: CONNECT = False, as_json: JSON = False) -> None:
    """Check specs. Report the first error of each spec with its field, value and remedy."""
    output = Output(as_json=as_json)
    paths = list(_files_in(files))
    if not paths:
        raise CommandError(f"no file ends with {', '.join(SUFFIXES)}", EXIT_USAGE)
    import_airflow()
    with airflow_connections() if connect else nullcontext():
        results = [(file, *_checked(file, connect=connect)) for file in paths]
    for file, source, error in results:
        if as_json:
            output.record({"file": str(file), "source": source, "error": error})
        elif error is None:
            output.line(printable(f"ok     {file}: source {source!r}"))
        else:
            output.line(printable(f"error  {file}: {error}"))
    if any(error is not None for _, _, error in results):
        raise typer.Exit(EXIT_REFUSED)


def print_spec(file: FILE, *, as_json: JSON = False) -> None:
    """Print the effective spec, with all defaults and without secrets."""
    with reporting_errors():
        mapping, _ = read_spec_file(file)
        import_airflow()
        _print(IngestionSpec.read(mapping).effective(), as_json=as_json)


def print_schema() -> None:
    """Print the JSON Schema of specs, with the kinds of sources and sinks that are installed."""
    import_airflow()
    typer.echo(json.dumps(json_schema(), indent=2))


def translate_from_druid(file: DRUID_FILE, *, lake: LAKE, transform: TRANSFORM = None, as_json: JSON = False) -> None:
    """Translate a spec of Druid's Kinesis supervisor. Report the outcome of each field on standard error."""
    output = Output(as_json=as_json)
    with reporting_errors():
        mapping, _ = read_spec_file(file)
        import_airflow()
        translation = from_druid(mapping, lake=lake, transform=transform)
    if as_json:
        output.record({"spec": translation.spec, "rows": [row.to_mapping() for row in translation.rows]})
        return
    _print(translation.spec, as_json=False)
    columns = (OutputColumn("field"), OutputColumn("outcome"), OutputColumn("target"), OutputColumn("note"))
    rows = [(row.field, row.outcome.value, row.target, row.note) for row in translation.rows]
    output.messages.print(table(output.messages, columns, [tuple(Text(cell) for cell in row) for row in rows]))


def _files_in(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(each for each in path.iterdir() if each.suffix.lower() in SUFFIXES)
        else:
            yield path


def _checked(file: Path, *, connect: bool) -> tuple[str | None, str | None]:
    """Return the source of a spec, or the error of the spec.

    :param connect: whether to check the spec against its source.
    """
    try:
        mapping, _ = read_spec_file(file)
        spec = IngestionSpec.read(mapping)
        if connect:
            from airflow_provider_coordination.hooks.supervision import check_against_source

            check_against_source(spec)
    except CoordinationError as error:
        return None, str(error)
    return spec.source, None


def _print(mapping: Any, *, as_json: bool) -> None:
    typer.echo(json.dumps(mapping) if as_json else write_spec_text(mapping), nl=as_json)
