"""The command `spark-archive`: archives the classes that Spark jobs load, so that jobs start sooner."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_coordination.cli.commands import (
    EXIT_REFUSED,
    EXIT_USAGE,
    JSON,
    VERBOSE,
    CommandContext,
    CommandError,
    logging_to_stderr,
)
from airflow_provider_coordination.cli.output import Output
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.packaging import local_environment, packaged_application
from airflow_provider_coordination.spark.class_archive import ArchiveError, make_archive

APPLICATION = "rehearse.py"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("spark-archive")(spark_archive)


def spark_archive(
    ctx: typer.Context,
    archive: Annotated[Path, typer.Argument(metavar="PATH", help="File to write, such as /opt/spark/spark.jsa.")],
    *,
    spark_submit: Annotated[str, typer.Option("--spark-submit", help="Program that submits jobs.")] = "spark-submit",
    as_json: JSON = False,
    verbose: VERBOSE = False,
) -> None:
    """Archive the classes that Spark jobs load, so that jobs that use the archive start sooner."""
    context: CommandContext = ctx.obj or CommandContext()
    environment = context.environment
    output = Output(as_json=as_json)
    started = context.clock.monotonic()
    with logging_to_stderr(verbose=verbose):
        try:
            result = make_archive(
                archive,
                packaged_application(APPLICATION),
                {**environment, **local_environment(environment)},
                spark_submit=spark_submit,
                report=output.info,
            )
        except ConfigurationError as error:
            raise CommandError(str(error), EXIT_USAGE) from None
        except ArchiveError as error:
            raise CommandError(str(error), EXIT_REFUSED) from None
    seconds = context.clock.monotonic() - started
    if as_json:
        output.record(
            {"archive": str(archive.absolute()), "bytes": result.bytes, "classes": result.classes, "seconds": seconds}
        )
        return
    output.line(
        f"{archive.absolute()}: {result.bytes / 2**20:.0f} MiB, made in {seconds:.0f} s; "
        f"{result.classes} classes were loaded from it"
    )
    output.line(f"use it in jobs with spark_archive={str(archive.absolute())!r}")
