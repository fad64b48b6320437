"""The command `spark-archive`: archives the classes that Spark jobs load, so that jobs begin sooner."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_coordination.cli.commands import (
    EXIT_REFUSED,
    EXIT_USAGE,
    JSON,
    VERBOSE,
    CommandError,
    Surroundings,
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
    context: typer.Context,
    archive: Annotated[Path, typer.Argument(metavar="PATH", help="The file to write, such as /opt/spark/spark.jsa.")],
    *,
    spark_submit: Annotated[
        str, typer.Option("--spark-submit", help="The program that jobs are submitted with.")
    ] = "spark-submit",
    as_json: JSON = False,
    verbose: VERBOSE = False,
) -> None:
    """Archive the classes that Spark jobs load: a job that is given the archive begins sooner."""
    surroundings: Surroundings = context.obj or Surroundings()
    given = surroundings.environment
    output = Output(as_json=as_json)
    started = surroundings.clock.monotonic()
    with logging_to_stderr(verbose=verbose):
        try:
            made = make_archive(
                archive,
                packaged_application(APPLICATION),
                {**given, **local_environment(given)},
                spark_submit=spark_submit,
                report=output.say,
            )
        except ConfigurationError as error:
            raise CommandError(str(error), EXIT_USAGE) from None
        except ArchiveError as error:
            raise CommandError(str(error), EXIT_REFUSED) from None
    seconds = surroundings.clock.monotonic() - started
    if as_json:
        output.record(
            {"archive": str(archive.absolute()), "bytes": made.bytes, "classes": made.classes, "seconds": seconds}
        )
        return
    output.line(
        f"{archive.absolute()}: {made.bytes / 2**20:.0f} MiB, made in {seconds:.0f} s; "
        f"{made.classes} classes were loaded from it"
    )
    output.line(f"give it to jobs by spark_archive={str(archive.absolute())!r}")
