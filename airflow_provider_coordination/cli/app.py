"""The application `airflow-coordination`: its commands, put together."""

from __future__ import annotations

import typer

from airflow_provider_coordination.cli import acknowledging, acting, imports, reading
from airflow_provider_coordination.cli.commands import CommandGroup

HELP = """
Look at the partitions of coordinated sources, and put right by hand what needs it.

The store is an Airflow connection (--conn-id) or a URL (--store).
"""


def application() -> typer.Typer:
    """Return the application with all its commands."""
    app = typer.Typer(
        name="airflow-coordination",
        help=HELP,
        cls=CommandGroup,
        no_args_is_help=True,
        # An exception's local variables may hold passwords; how a command fails is `CommandGroup`'s business.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    reading.register(app)
    acting.register(app)
    acknowledging.register(app)
    imports.register(app)
    return app


def main() -> None:
    """Run the command that the shell asks for."""
    application()(prog_name="airflow-coordination")
