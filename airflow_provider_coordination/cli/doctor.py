"""The command `doctor`: checks an installation and names the remedy for each problem."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.cli.access import (
    StoreOptions,
    airflow_connections,
    store_access,
)
from airflow_provider_coordination.cli.commands import (
    CONN_ID,
    EXIT_REFUSED,
    JSON,
    PREFIX,
    STORE,
    TABLE,
    VERBOSE,
    CommandContext,
    logging_to_stderr,
)
from airflow_provider_coordination.cli.output import Output, printable
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.diagnosis import (
    CheckStatus,
    Finding,
    error,
    ok,
    output_findings,
    permission_findings,
    software_findings,
    spark_finding,
    store_findings,
    unchecked,
)
from airflow_provider_coordination.diagnosis.bucket import bucket_findings
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.spark.access import Access, is_s3
from airflow_provider_coordination.stores.redaction import without_secrets
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file

READS = Annotated[
    list[str] | None,
    typer.Option("--reads", metavar="KIND:NAME", help="Source that jobs read, to check its permissions. Repeatable."),
]
OUTPUT = Annotated[
    list[str] | None,
    typer.Option("--output", metavar="PATH", help="Path that jobs write, to check write access. Repeatable."),
]
SPEC = Annotated[
    list[Path] | None,
    typer.Option("--spec", metavar="FILE", help="Spec, to check the paths it writes with its connections. Repeatable."),
]
AWS_CONN_ID = Annotated[str, typer.Option("--aws-conn-id", help="AWS connection for --reads and --output.")]
REGION = Annotated[str | None, typer.Option("--region", help="AWS region of --reads.")]
SPARK_CONN_ID = Annotated[str, typer.Option("--spark-conn-id", help="Connection that submits jobs.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("doctor")(doctor)


def doctor(
    ctx: typer.Context,
    *,
    reads: READS = None,
    output: OUTPUT = None,
    spec: SPEC = None,
    aws_conn_id: AWS_CONN_ID = "aws_default",
    region: REGION = None,
    spark_conn_id: SPARK_CONN_ID = "spark_default",
    conn_id: CONN_ID = None,
    store: STORE = None,
    table: TABLE = None,
    prefix: PREFIX = None,
    as_json: JSON = False,
    verbose: VERBOSE = False,
) -> None:
    """Check versions, Java, connections, the store, clocks, permissions and output paths. Changes nothing."""
    context: CommandContext = ctx.obj or CommandContext()
    options = StoreOptions(conn_id=conn_id, store=store, table=table, prefix=prefix)
    shown = Output(as_json=as_json)
    statuses: set[CheckStatus] = set()
    with logging_to_stderr(verbose=verbose):
        for finding in _findings(
            context, options, reads or (), output or (), spec or (), aws_conn_id, region, spark_conn_id
        ):
            statuses.add(finding.status)
            _show(shown, finding)
    if CheckStatus.ERROR in statuses:
        raise typer.Exit(EXIT_REFUSED)


def _findings(
    context: CommandContext,
    options: StoreOptions,
    reads: list[str] | tuple[()],
    output: list[str] | tuple[()],
    specs: list[Path] | tuple[()],
    aws_conn_id: str,
    region: str | None,
    spark_conn_id: str,
) -> Iterator[Finding]:
    yield from software_findings(context.environment)
    with airflow_connections():
        spark = spark_finding(spark_conn_id)
    yield spark
    yield from _store_findings(context, options)
    access = partial(_aws_access, aws_conn_id, region)
    for source in reads:
        yield from _reads_findings(source, access)
    if not reads:
        yield unchecked("permission", "no source was given", "name it with --reads KIND:NAME")
    for path in output:
        yield from _path_findings(path, access)
    for file in specs:
        yield from _spec_findings(file)
    if not output and not specs:
        yield unchecked("output", "no output path was given", "name it, such as --output /data/lake/clicks")


def _store_findings(context: CommandContext, options: StoreOptions) -> Iterator[Finding]:
    try:
        access = store_access(options, context.environment)
    except CoordinationError as failure:
        yield error("connection", without_secrets(str(failure)))
        yield unchecked("store", "its settings are not usable")
        return
    yield ok("connection", f"the store is of kind {access.settings.kind!r}")
    try:
        access.settings.loaded_kind.check_exists(access.settings.own)
    except ConfigurationError as failure:
        yield error("store", without_secrets(str(failure), access.settings))
        return
    yield from store_findings(access.settings, access.safety_margin, context.clock.now)


def _reads_findings(source: str, access: partial[AwsSettings]) -> Iterator[Finding]:
    kind, _, name = source.partition(":")
    try:
        if not name:
            raise ConfigurationError(f"--reads must have the form KIND:NAME; got {source!r}")
        needed = get_kind(kind).permissions(name, access)
    except CoordinationError as failure:
        yield error("permission", without_secrets(str(failure)))
        return
    if needed is None:
        yield unchecked(
            "permission", f"sources of kind {kind!r} declare no permissions", "see the source's page in the manual"
        )
        return
    yield from permission_findings(*needed)


def _path_findings(path: str, access: partial[AwsSettings]) -> Iterator[Finding]:
    if not is_s3(path):
        yield from output_findings(path)
        return
    try:
        settings = access("s3")
    except CoordinationError as failure:
        yield error("output", f"{path}: {without_secrets(str(failure))}")
        return
    yield from bucket_findings(path, Access(((path, settings),)))


def _spec_findings(file: Path) -> Iterator[Finding]:
    """Yield the findings for the paths that a spec writes: those of its sinks, its landing and its dead letters."""
    try:
        mapping, _ = read_spec_file(file)
        spec = IngestionSpec.read(mapping)
        with airflow_connections():
            from airflow_provider_coordination.hooks.supervision import written_locations

            places, access = written_locations(spec)
    except ModuleNotFoundError as failure:
        if not (failure.name or "").startswith("airflow"):
            raise
        yield unchecked("output", f"{file}: its connections cannot be looked up: Airflow is not installed here")
        return
    except CoordinationError as failure:
        yield error("output", f"{file}: {without_secrets(str(failure))}")
        return
    for path in places:
        if is_s3(path):
            yield from bucket_findings(path, access)
        elif "://" in path:
            yield unchecked("output", f"{path}: only folders and buckets are checked")
        else:
            yield from output_findings(path)


def _aws_access(aws_conn_id: str, region: str | None, service: str) -> AwsSettings:
    """Return the AWS settings of the connection; without Airflow, those of the AWS default credential chain."""
    try:
        with airflow_connections():
            from airflow_provider_coordination.hooks.connections import aws_settings

            return aws_settings(aws_conn_id, region, service=service)
    except ModuleNotFoundError as failure:
        if not (failure.name or "").startswith("airflow"):
            raise
        return AwsSettings(region=region)


def _show(output: Output, finding: Finding) -> None:
    if output.as_json:
        output.record(finding)
        return
    remedy = f": {finding.remedy}" if finding.remedy else ""
    output.line(printable(f"{finding.status:<11}  {finding.topic:<11}  {finding.text}{remedy}"))
