"""The command `doctor`: whether an installation can work, and what to do where it cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.cli.access import (
    StoreAccess,
    StoreOptions,
    connections_of_airflow,
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
    Surroundings,
    logging_to_stderr,
)
from airflow_provider_coordination.cli.output import Output, printable
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.diagnosis.bucket import bucket_findings
from airflow_provider_coordination.diagnosis.connections import spark_finding
from airflow_provider_coordination.diagnosis.findings import Finding, Verdict, error, ok, unchecked
from airflow_provider_coordination.diagnosis.output_path import output_findings
from airflow_provider_coordination.diagnosis.permissions import permission_findings
from airflow_provider_coordination.diagnosis.software import software_findings
from airflow_provider_coordination.diagnosis.store import store_findings
from airflow_provider_coordination.sources.kinds import kind_named
from airflow_provider_coordination.spark.access import Access, is_s3
from airflow_provider_coordination.stores.redaction import without_secrets
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file

READS = Annotated[
    list[str] | None,
    typer.Option(
        "--reads",
        metavar="KIND:NAME",
        help="What jobs read, as KIND:NAME, to check its permissions; several times for more.",
        show_default=False,
    ),
]
OUTPUT = Annotated[
    list[str] | None,
    typer.Option(
        "--output", metavar="PATH", help="Where jobs write, to try it; several times for more.", show_default=False
    ),
]
SPEC = Annotated[
    list[Path] | None,
    typer.Option(
        "--spec",
        metavar="FILE",
        help="A spec, to try where it writes, by its connections; several times for more.",
        show_default=False,
    ),
]
AWS_CONN_ID = Annotated[str, typer.Option("--aws-conn-id", help="The AWS connection by which --reads is read.")]
REGION = Annotated[str | None, typer.Option("--region", help="The AWS region of --reads.", show_default=False)]
SPARK_CONN_ID = Annotated[str, typer.Option("--spark-conn-id", help="The connection by which jobs are submitted.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("doctor")(doctor)


def doctor(
    context: typer.Context,
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
    """Check an installation: versions, Java, connections, store, clock, permissions, output paths. Changes nothing."""
    surroundings: Surroundings = context.obj or Surroundings()
    options = StoreOptions(conn_id=conn_id, store=store, table=table, prefix=prefix)
    shown = Output(as_json=as_json)
    found: set[Verdict] = set()
    with logging_to_stderr(verbose=verbose):
        for finding in _findings(
            surroundings, options, reads or (), output or (), spec or (), aws_conn_id, region, spark_conn_id
        ):
            found.add(finding.verdict)
            _show(shown, finding)
    if Verdict.ERROR in found:
        raise typer.Exit(EXIT_REFUSED)


def _findings(
    surroundings: Surroundings,
    options: StoreOptions,
    reads: list[str] | tuple[()],
    output: list[str] | tuple[()],
    specs: list[Path] | tuple[()],
    aws_conn_id: str,
    region: str | None,
    spark_conn_id: str,
) -> Iterator[Finding]:
    yield from software_findings(surroundings.environment)
    with connections_of_airflow():
        spark = spark_finding(spark_conn_id)
    yield spark
    yield from _of_store(surroundings, options)
    access = partial(_aws_access, aws_conn_id, region)
    for what in reads:
        yield from _of_reads(what, access)
    if not reads:
        yield unchecked("permission", "what jobs read", "name it, as in --reads KIND:NAME")
    for path in output:
        yield from _of_output(path, access)
    for file in specs:
        yield from _of_spec(file)
    if not output and not specs:
        yield unchecked("output", "where jobs write", "name it, as in --output /data/lake/clicks")


def _of_store(surroundings: Surroundings, options: StoreOptions) -> Iterator[Finding]:
    try:
        access = store_access(options, surroundings.environment)
    except CoordinationError as failure:
        yield error("connection", without_secrets(str(failure)))
        yield unchecked("store", "there is no connection to it")
        return
    yield ok("connection", f"the store is of the kind {access.settings.kind!r}")
    try:
        access.settings.implemented.check_exists(access.settings.own)
    except ConfigurationError as failure:
        yield error("store", without_secrets(str(failure), access.settings))
        return
    yield from _of_opened(surroundings, access)


def _of_opened(surroundings: Surroundings, access: StoreAccess) -> Iterator[Finding]:
    yield from store_findings(access.settings, access.safety_margin, surroundings.clock.now)


def _of_reads(what: str, access: partial[AwsSettings]) -> Iterator[Finding]:
    kind, _, name = what.partition(":")
    try:
        if not name:
            raise ConfigurationError(f"--reads {what!r} names no kind; write it as KIND:NAME")
        needed = kind_named(kind).permissions(name, access)
    except CoordinationError as failure:
        yield error("permission", without_secrets(str(failure)))
        return
    if needed is None:
        yield unchecked("permission", f"kind {kind!r} names no permissions", "see the page of that source")
        return
    yield from permission_findings(*needed)


def _of_output(path: str, access: partial[AwsSettings]) -> Iterator[Finding]:
    if not is_s3(path):
        yield from output_findings(path)
        return
    try:
        reached = access("s3")
    except CoordinationError as failure:
        yield error("output", f"{path}: {without_secrets(str(failure))}")
        return
    yield from bucket_findings(path, Access(((path, reached),)))


def _of_spec(file: Path) -> Iterator[Finding]:
    """Yield how it stands with where a spec writes: its sinks, and where batches wait for them."""
    try:
        mapping, _ = read_spec_file(file)
        spec = IngestionSpec.read(mapping)
        with connections_of_airflow():
            from airflow_provider_coordination.hooks.source_checks import places_of

            places, access = places_of(spec)
    except ModuleNotFoundError as failure:
        if not (failure.name or "").startswith("airflow"):
            raise
        yield unchecked("output", f"{file}: its connections are known to Airflow, which is not installed here")
        return
    except CoordinationError as failure:
        yield error("output", f"{file}: {without_secrets(str(failure))}")
        return
    for path in places:
        if is_s3(path):
            yield from bucket_findings(path, access)
        elif "://" in path:
            yield unchecked("output", f"{path}: only folders and buckets are tried")
        else:
            yield from output_findings(path)


def _aws_access(aws_conn_id: str, region: str | None, service: str) -> AwsSettings:
    """Return how a service of AWS is reached: by the connection, or by the SDK's default chain without Airflow."""
    try:
        with connections_of_airflow():
            from airflow_provider_coordination.hooks.aws import aws_settings

            return aws_settings(aws_conn_id, region, service=service)
    except ModuleNotFoundError as failure:
        if not (failure.name or "").startswith("airflow"):
            raise
        return AwsSettings(region=region)


def _show(output: Output, finding: Finding) -> None:
    if output.as_json:
        record: Mapping[str, str] = {
            "verdict": finding.verdict,
            "topic": finding.topic,
            "text": finding.text,
            "remedy": finding.remedy,
        }
        output.record(record)
        return
    remedy = f": {finding.remedy}" if finding.remedy else ""
    output.line(printable(f"{finding.verdict:<11}  {finding.topic:<11}  {finding.text}{remedy}"))
