"""The command `plan`: the resources, throughput and lag limits of an ingestion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from airflow_provider_coordination.cli.access import airflow_connections, import_airflow
from airflow_provider_coordination.cli.commands import JSON, VERBOSE, reporting_errors
from airflow_provider_coordination.cli.output import Output, OutputColumn, printable, table
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.sources.source_kind import Capacity
from airflow_provider_coordination.stores.redaction import without_secrets
from airflow_provider_coordination.supervisor.assumptions import Assumptions
from airflow_provider_coordination.supervisor.planning import MB, Load, Plan, plan
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file

RECORD_BYTES = 1024.0

SPEC = Annotated[Path, typer.Argument(help="Spec, a YAML or JSON file.")]
PARTITIONS = Annotated[
    int | None, typer.Option("--partitions", help="Number of partitions with data. Default: query the source.")
]
MB_PER_SECOND = Annotated[
    float | None,
    typer.Option(
        "--mb-per-second",
        help="Incoming data in 1,000,000 bytes per second. Default: the maximum that the partitions accept.",
    ),
]
RECORD = Annotated[float, typer.Option("--record-bytes", help="Average size of a record in bytes.")]
RETENTION = Annotated[
    float | None, typer.Option("--retention-hours", help="Retention of the source in hours. Default: query the source.")
]
OUTAGE = Annotated[
    float, typer.Option("--outage-hours", help="Outage of all jobs, in hours, to calculate catching up for.")
]
ASSUME = Annotated[
    list[str] | None,
    typer.Option("--assume", metavar="NAME=VALUE", help="Replace an assumption of the plan. Repeatable."),
]
OFFLINE = Annotated[bool, typer.Option("--offline", help="Do not query the source.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("plan")(plan_command)


def plan_command(
    spec: SPEC,
    *,
    partitions: PARTITIONS = None,
    mb_per_second: MB_PER_SECOND = None,
    record_bytes: RECORD = RECORD_BYTES,
    retention_hours: RETENTION = None,
    outage_hours: OUTAGE = 1.0,
    assume: ASSUME = None,
    offline: OFFLINE = False,
    as_json: JSON = False,
    verbose: VERBOSE = False,
) -> None:
    """Calculate the resources, throughput and lag limits of an ingestion. Changes nothing."""
    output = Output(as_json=as_json)
    with reporting_errors(verbose=verbose):
        import_airflow()
        read = IngestionSpec.read(read_spec_file(spec)[0])
        assumptions = Assumptions().with_values(_parse_assumptions(assume or ()))
        is_known = partitions is not None and retention_hours is not None
        capacity = _capacity(read, output, ask=not (offline or is_known))
        load = _load(capacity, partitions, mb_per_second, record_bytes, retention_hours, outage_hours)
        planned = plan(read, load, capacity, assumptions)
    _show(output, planned)


def _parse_assumptions(assumed: Sequence[str]) -> dict[str, float]:
    values = {}
    for each in assumed:
        name, _, value = each.partition("=")
        try:
            values[name.strip()] = float(value)
        except ValueError:
            raise ConfigurationError(f"--assume must have the form NAME=VALUE with a number; got {each!r}") from None
    return values


def _capacity(spec: IngestionSpec, output: Output, *, ask: bool) -> Capacity:
    """Return the capacity of the source; what it does not report must be given as options."""
    reads = spec.ingestion.reads
    [[_, settings]] = spec.to_mapping()["reads"].items()
    if ask:
        try:
            with airflow_connections() as connections:
                connected = reads.connect(connections).reads
            capacity: Capacity = connected.source_kind().capacity(connected.settings, ask=True)
            return capacity
        except (CoordinationError, ModuleNotFoundError) as error:
            output.warn(without_secrets(f"the source could not be queried: {error}"))
    return get_kind(reads.kind).capacity(settings, ask=False)


def _load(
    capacity: Capacity,
    partitions: int | None,
    mb_per_second: float | None,
    record_bytes: float,
    retention_hours: float | None,
    outage_hours: float,
) -> Load:
    count = partitions or capacity.partitions
    if count is None:
        raise ConfigurationError("the number of partitions is unknown: give --partitions")
    arriving = None if mb_per_second is None else mb_per_second * MB
    if arriving is None:
        if capacity.written_bytes_per_second is None:
            raise ConfigurationError("the incoming rate is unknown: give --mb-per-second")
        arriving = count * capacity.written_bytes_per_second
    return Load(
        partitions=count,
        bytes_per_second=arriving,
        record_bytes=record_bytes,
        retention=capacity.retention if retention_hours is None else timedelta(hours=retention_hours),
        outage=timedelta(hours=outage_hours),
    )


def _show(output: Output, planned: Plan) -> None:
    if output.as_json:
        output.record(planned.to_mapping())
        return
    for title, rows in _topics(planned):
        output.line(Text(title, style="bold"))
        for name, value in rows:
            output.line(printable(f"  {name:<36} {value}"))
    for warning in planned.warnings:
        output.line(Text(f"warning: {warning}", style="bold red"))
    output.line(Text("assumptions; replace one with --assume NAME=VALUE", style="bold"))
    columns = [
        OutputColumn("assumption"),
        OutputColumn("value", numbers=True),
        OutputColumn("unit"),
        OutputColumn("meaning"),
        OutputColumn("origin"),
    ]
    lines = [
        tuple(map(printable, (each.name, f"{each.value:g}", each.unit, each.what, each.source)))
        for each in planned.assumptions.all()
    ]
    output.results.print(table(output.results, columns, lines))


def _topics(planned: Plan) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    load, resources, throughput, lag_limits, requests = (
        planned.load,
        planned.resources,
        planned.throughput,
        planned.lag_limits,
        planned.requests,
    )
    retention = "unknown" if load.retention is None else _time(load.retention.total_seconds())
    yield (
        f"source {planned.source}",
        [
            ("partitions", f"{load.partitions}"),
            ("incoming", _rate(load.bytes_per_second)),
            ("records", f"{load.bytes_per_second / load.record_bytes:,.0f}/s of {load.record_bytes:g} bytes"),
            ("retention", retention),
        ],
    )
    cores = f"{resources.cores}, during handover {resources.cores_at_handover}"
    in_spec = "" if resources.cores_in_spec is None else f"; in the spec {resources.cores_in_spec}"
    yield (
        "resources",
        [
            ("jobs", f"{resources.jobs}, during handover {resources.jobs_at_handover}"),
            ("slots per job", f"{resources.slots_per_job}, for {resources.partitions_per_job} partitions"),
            ("cores per job", f"{resources.cores_per_job}{in_spec}"),
            ("cores of all jobs", cores),
            ("Python memory per core", f"{resources.python_mib_per_core:,} MiB: spark.executor.memoryOverhead"),
            ("memory per core", f"{resources.memory_mib_per_core:,} MiB, including the executor's JVM"),
            (
                "memory of all jobs, with drivers",
                f"{resources.memory_mib:,} MiB, during handover {resources.memory_mib_at_handover:,} MiB",
            ),
            ("slots of Airflow's pool", f"{resources.worker_slots} during a turn; waiting takes a trigger and no slot"),
        ],
    )
    catching_up = "never" if throughput.catch_up_seconds is None else _time(throughput.catch_up_seconds)
    yield (
        "throughput",
        [
            ("maximum", f"{_rate(throughput.max_bytes_per_second)}, limited by {BOTTLENECKS[throughput.bottleneck]}"),
            ("utilization", f"{throughput.utilization:.0%}"),
            (f"catch-up after {_time(load.outage.total_seconds())} of outage", catching_up),
        ],
    )
    expires = (
        "never" if lag_limits.longest_outage_seconds is None else f"after {_time(lag_limits.longest_outage_seconds)}"
    )
    rows = [
        ("data expires while all jobs are down", expires),
        ("partitions of a dead job are resumed", f"after {_time(lag_limits.takeover_seconds)}"),
    ]
    if lag_limits.expires_after_seconds is not None:
        rows.insert(1, ("data expires while jobs are too slow", f"after {_time(lag_limits.expires_after_seconds)}"))
    yield "lag limits", rows
    calls = f"{requests.source:,.1f}/s, while catching up {requests.source_while_catching_up:,.1f}/s"
    yield (
        "requests",
        [
            ("calls to the source", "unknown" if requests.source is None else calls),
            ("reads of the store", f"{requests.store_reads:,.1f}/s"),
            ("items written to the store", f"{requests.store_writes:,.1f}/s"),
        ],
    )


BOTTLENECKS = {
    "source": "the source",
    "landing": "the cores, which land records",
    "transforming": "the cores, which transform records",
    "rounds": "the overhead of a round",
}


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / MB:,.2f} MB/s"


def _time(seconds: float) -> str:
    """Return a duration, rounded, in the largest unit in which it is at least two."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}".replace(".0 ", " ")
    return f"{seconds:.0f} s"
