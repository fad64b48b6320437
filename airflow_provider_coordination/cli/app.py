"""The application `airflow-coordination` with all its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_provider_coordination import __version__
from airflow_provider_coordination.cli import (
    acknowledgments,
    actions,
    audit,
    doctor,
    imports,
    init,
    inspection,
    job_settings,
    plan,
    preview,
    recovery,
    spec,
    supervisor,
    trace,
)
from airflow_provider_coordination.cli.commands import CommandGroup

HELP = """
Show and manage the partitions of coordinated sources.

Give the store as an Airflow connection (--conn-id) or a URL (--store).
"""


def application() -> typer.Typer:
    """Return the application with all its commands."""
    app = typer.Typer(
        name="airflow-coordination",
        help=HELP,
        cls=CommandGroup,
        no_args_is_help=True,
        # An exception's local variables may hold passwords. `CommandGroup` reports failures instead.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(_options)
    inspection.register(app)
    actions.register(app)
    acknowledgments.register(app)
    imports.register(app)
    init.register(app)
    preview.register(app)
    doctor.register(app)
    job_settings.register(app)
    plan.register(app)
    recovery.register(app)
    audit.register(app)
    trace.register(app)
    spec.register(app)
    supervisor.register(app)
    return app


def _show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"airflow-coordination {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command given on the command line."""
    application()(prog_name="airflow-coordination")
