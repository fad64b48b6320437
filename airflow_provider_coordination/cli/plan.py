"""The command `plan`: what an ingestion needs, how fast it is, and how far it may fall behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from airflow_provider_coordination.cli.access import connections_of_airflow, import_airflow
from airflow_provider_coordination.cli.commands import EXIT_USAGE, JSON, VERBOSE, CommandError, logging_to_stderr
from airflow_provider_coordination.cli.output import Column, Output, printable, table
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.sources.capacity import Capacity
from airflow_provider_coordination.sources.kinds import kind_named
from airflow_provider_coordination.stores.redaction import without_secrets
from airflow_provider_coordination.supervisor.assumptions import Assumptions
from airflow_provider_coordination.supervisor.planning import MB, Load, Plan, plan
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file

RECORD_BYTES = 1024.0

SPEC = Annotated[Path, typer.Argument(help="The spec, a file of YAML or JSON.", show_default=False)]
PARTITIONS = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        help="How many partitions take data; asked of the source, if not given.",
        show_default=False,
    ),
]
MB_PER_SECOND = Annotated[
    float | None,
    typer.Option(
        "--mb-per-second",
        help="What arrives, in 1,000,000 bytes a second; the most that the partitions take, if not given.",
        show_default=False,
    ),
]
RECORD = Annotated[float, typer.Option("--record-bytes", help="The bytes of a record, in the mean.")]
RETENTION = Annotated[
    float | None,
    typer.Option(
        "--retention-hours", help="How long data is kept; asked of the source, if not given.", show_default=False
    ),
]
OUTAGE = Annotated[
    float, typer.Option("--outage-hours", help="After how long without any job catching up is reckoned.")
]
ASSUME = Annotated[
    list[str] | None,
    typer.Option(
        "--assume",
        metavar="NAME=VALUE",
        help="Reckon with another figure than the plan shows; several times for more.",
        show_default=False,
    ),
]
OFFLINE = Annotated[bool, typer.Option("--offline", help="Ask the source nothing.")]


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
    """Reckon what an ingestion needs, how fast it is, and how far it may fall behind. Changes nothing."""
    output = Output(as_json=as_json)
    with logging_to_stderr(verbose=verbose):
        try:
            import_airflow()
            read = IngestionSpec.read(read_spec_file(spec)[0])
            assumptions = Assumptions().given(_figures(assume or ()))
            is_known = partitions is not None and retention_hours is not None
            capacity = _capacity(read, output, ask=not (offline or is_known))
            load = _load(capacity, partitions, mb_per_second, record_bytes, retention_hours, outage_hours)
            planned = plan(read, load, capacity, assumptions)
        except ConfigurationError as error:
            raise CommandError(without_secrets(str(error)), EXIT_USAGE) from None
    _show(output, planned)


def _figures(assumed: Sequence[str]) -> dict[str, float]:
    figures = {}
    for each in assumed:
        name, _, value = each.partition("=")
        try:
            figures[name.strip()] = float(value)
        except ValueError:
            raise ConfigurationError(f"--assume must be NAME=VALUE, the value a number; got {each!r}") from None
    return figures


def _capacity(spec: IngestionSpec, output: Output, *, ask: bool) -> Capacity:
    """Return what the source gives; what it does not answer is left to the person."""
    reads = spec.reads_object()
    [[_, given]] = spec.to_mapping()["reads"].items()
    if ask:
        try:
            with connections_of_airflow():
                connected = reads.connect().reads
            asked: Capacity = connected.found().capacity(connected.settings, ask=True)
            return asked
        except (CoordinationError, ModuleNotFoundError) as error:
            output.warn(without_secrets(f"the source was not asked: {error}"))
    return kind_named(reads.kind).capacity(given, ask=False)


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
        raise ConfigurationError("how many partitions take data is not known: give --partitions")
    arriving = None if mb_per_second is None else mb_per_second * MB
    if arriving is None:
        if capacity.written_bytes_per_second is None:
            raise ConfigurationError("how much arrives is not known: give --mb-per-second")
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
    output.line(Text("reckoned with; change one by --assume NAME=VALUE", style="bold"))
    columns = [Column("assumption"), Column("value", numbers=True), Column("unit"), Column("what"), Column("from")]
    lines = [
        tuple(map(printable, (each.name, f"{each.value:g}", each.unit, each.what, each.source)))
        for each in planned.assumptions.all()
    ]
    output.results.print(table(output.results, columns, lines))


def _topics(planned: Plan) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    load, needs, speed, behind, asks = planned.load, planned.needs, planned.speed, planned.behind, planned.requests
    kept = "unknown how long" if load.retention is None else _time(load.retention.total_seconds())
    yield (
        f"source {planned.source}",
        [
            ("partitions", f"{load.partitions}"),
            ("arriving", _rate(load.bytes_per_second)),
            ("records", f"{load.bytes_per_second / load.record_bytes:,.0f}/s of {load.record_bytes:g} bytes"),
            ("kept", kept),
        ],
    )
    cores = f"{needs.cores}, while they hand over {needs.cores_at_handover}"
    given = "" if needs.cores_given is None else f"; the spec gives {needs.cores_given}"
    yield (
        "needs",
        [
            ("jobs", f"{needs.jobs}, while they hand over {needs.jobs_at_handover}"),
            ("slots of a job", f"{needs.slots_per_job}, for {needs.partitions_per_job} partitions"),
            ("cores of a job", f"{needs.cores_per_job}{given}"),
            ("cores of all jobs", cores),
            ("memory of Python for each core", f"{needs.python_mib_per_core:,} MiB: spark.executor.memoryOverhead"),
            ("memory for each core", f"{needs.memory_mib_per_core:,} MiB, with the executor's JVM"),
            (
                "memory of all jobs, with drivers",
                f"{needs.memory_mib:,} MiB, while they hand over {needs.memory_mib_at_handover:,} MiB",
            ),
            ("places in Airflow's pool", f"{needs.worker_slots}, during a turn; waiting takes a trigger and no place"),
        ],
    )
    catching_up = "never" if speed.catch_up_seconds is None else _time(speed.catch_up_seconds)
    yield (
        "speed",
        [
            ("reads at most", f"{_rate(speed.most_bytes_per_second)}, bounded by {BOUNDS[speed.bounded_by]}"),
            ("busy", f"{speed.busy:.0%}"),
            (f"catches up after {_time(load.outage.total_seconds())} without a job", catching_up),
        ],
    )
    expires = "never" if behind.longest_outage_seconds is None else f"after {_time(behind.longest_outage_seconds)}"
    rows = [
        ("data expires without any job", expires),
        ("a dead job's partitions are read on", f"after {_time(behind.after_noticed_death_seconds)}"),
    ]
    if behind.expires_after_seconds is not None:
        rows.insert(1, ("data expires though jobs run", f"after {_time(behind.expires_after_seconds)}"))
    yield "how far it may fall behind", rows
    calls = f"{asks.source:,.1f}/s, while it catches up {asks.source_at_most:,.1f}/s"
    yield (
        "requests",
        [
            ("calls to the source", "unknown" if asks.source is None else calls),
            ("reads of the store", f"{asks.store_reads:,.1f}/s"),
            ("items written to the store", f"{asks.store_writes:,.1f}/s"),
        ],
    )


BOUNDS = {
    "source": "what the source gives",
    "landing": "the cores, which land records",
    "transforming": "the cores, which transform records",
    "rounds": "what every round costs",
}


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / MB:,.2f} MB/s"


def _time(seconds: float) -> str:
    """Return a length of time, rounded, in a unit of which it has at least two."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}".replace(".0 ", " ")
    return f"{seconds:.0f} s"
