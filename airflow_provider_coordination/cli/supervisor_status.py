"""The commands that only read supervisors: their status, the statistics of their jobs, and their specs."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from airflow_provider_coordination.cli.access import import_airflow
from airflow_provider_coordination.cli.commands import (
    EXIT_REFUSED,
    INTERVAL,
    SOURCE,
    WATCH,
    CommandError,
    Session,
    check_watch,
    show_repeatedly,
)
from airflow_provider_coordination.cli.output import ALARM, OutputColumn, duration, printable, table
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.job_reports import COUNTED, WINDOWS, ErrorEvent
from airflow_provider_coordination.coordination.partition import PartitionStatus, read_instant
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.supervisor.facts import VANISHED, JobStats, JobStatus, ParseErrors, SupervisorStatus
from airflow_provider_coordination.supervisor.reading import (
    all_statuses,
    existing_status,
    read_history,
    read_parse_errors,
    read_spec,
    supervised_sources,
)
from airflow_provider_coordination.supervisor.spec_file import write_spec_text

HEALTHY_STYLES = {"RUNNING": "green", "IDLE": "cyan", "SUSPENDED": "yellow", "TERMINATED": "dim"}

OPTIONAL_SOURCE = Annotated[str | None, typer.Argument(metavar="[SOURCE]", help="Name of the source.")]
ALL = Annotated[bool, typer.Option("--all", help="All supervisors in the store, instead of one.")]


def list_supervisors(session: Session) -> None:
    """List the supervisors, unhealthy ones first."""
    statuses = all_statuses(session.store, session.access.prefix, lambda source: _view(session, source))
    if session.output.as_json:
        for each in statuses:
            session.output.record(each)
        return
    if not statuses:
        session.output.info("The store has no supervisors.")
        return
    columns = (
        OutputColumn("source"),
        OutputColumn("state"),
        OutputColumn("jobs", numbers=True),
        OutputColumn("partitions", numbers=True),
        OutputColumn("lag", numbers=True),
        OutputColumn("spec", numbers=True),
        OutputColumn("supervised by"),
        OutputColumn("last error", shortened=True),
    )
    rows = [
        [
            printable(each.source),
            _state(each),
            Text(_job_count(each)),
            Text(str(each.partitions["open"])),
            Text(_lag(each.lag.oldest_ms)),
            Text(str(each.spec_version)),
            _supervised_by(each),
            printable(each.errors[0].message if each.errors and not each.healthy else ""),
        ]
        for each in statuses
    ]
    session.output.results.print(table(session.output.results, columns, rows))


def status(session: Session, source: SOURCE, *, watch: WATCH = False, interval: INTERVAL = 2.0) -> None:
    """Show the status of a supervisor: its state, jobs, lag and latest errors."""
    output = session.output
    check_watch(output, watch=watch)
    if output.as_json:
        output.record(status_of(session, source))
        return
    if watch:
        status_of(session, source)  # a misspelt name is an error at once
        show_repeatedly(
            session, f"{source}, every {interval:g} s; Ctrl-C ends", lambda: _render_status(session, source), interval
        )
    else:
        output.results.print(_render_status(session, source), soft_wrap=True)


def _render_status(session: Session, source: str) -> RenderableType:
    """Return the status of a supervisor for display."""
    status, results = status_of(session, source), session.output.results
    now = session.context.clock.now()
    parts: list[RenderableType] = [Text(f"{name:<12}") + text for name, text in _facts(session, status)]
    if status.jobs:
        parts += ["", table(results, JOB_COLUMNS, [_job_row(job) for job in status.jobs])]
    if status.errors:
        parts += ["", table(results, ERROR_COLUMNS, [_error_row(each, now) for each in status.errors])]
    return Group(*parts)


def health(session: Session, source: OPTIONAL_SOURCE = None, *, everything: ALL = False) -> None:
    """Report whether a supervisor is healthy. The exit code is 1 if it is not."""
    statuses = [status_of(session, name) for name in selected_sources(session, source, everything)]
    for each in statuses:
        if session.output.as_json:
            session.output.record(each.health)
        else:
            session.output.line(printable(f"{each.source}: ") + _state(each))
    if not all(each.healthy for each in statuses):
        raise typer.Exit(EXIT_REFUSED)


def stats(session: Session, source: SOURCE) -> None:
    """Show the records that the jobs counted, in total and per second."""
    status, output = status_of(session, source), session.output
    if output.as_json:
        output.record(status.source_stats)
        return
    columns = (
        OutputColumn("jobs"),
        OutputColumn("records"),
        *(OutputColumn(name.replace("_", " "), numbers=True) for name in COUNTED),
    )
    rows = _count_rows("all", status.stats)
    for owner, own in status.stats.jobs.items():
        rows += _count_rows(owner, own)
    output.results.print(table(output.results, columns, rows))


def parse_errors(session: Session, source: SOURCE) -> None:
    """Show how many bad records were found, where they are, and those that jobs listed in the last day."""
    errors, output = read_parse_errors(_view(session, source)), session.output
    if output.as_json:
        output.record(errors)
        return
    output.info(printable(_bad_records(errors)))
    if not errors.errors:
        return
    now = session.context.clock.now()
    columns = (OutputColumn("when"), OutputColumn("stage"), OutputColumn("error"), OutputColumn("job", shortened=True))
    rows = [
        (
            Text(_ago(read_instant(each.get("at")), now)),
            *(printable(str(each.get(name) or "")) for name in ("stage", "error", "owner")),
        )
        for each in errors.errors
    ]
    output.results.print(table(output.results, columns, rows))


def _bad_records(errors: ParseErrors) -> str:
    """Return how many bad records there are, and where."""
    path, listed = errors.dead_letter_path, len(errors.errors)
    if not errors.count and not listed:
        return "No job found bad records."
    where = f"Dead letters: {path}." if path else "The spec has no 'dead_letter_path': a bad record fails its batch."
    return f"{errors.count} bad records, {listed} of them listed. {where}"


def spec(
    session: Session,
    source: SOURCE,
    *,
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="Version of the spec. Default: the current one.")
    ] = None,
    effective: Annotated[bool, typer.Option("--effective", help="Include all defaults.")] = False,
) -> None:
    """Print the current spec, or another version, without secrets."""
    stored = read_spec(_view(session, source), version)
    if session.output.as_json:
        session.output.record(stored)
        return
    if stored.spec is None:
        raise CommandError(
            f"version {stored.version} terminates the supervisor and has no spec; give --version "
            f"{stored.version - 1} for the previous spec"
        )
    if effective and stored.problem:
        raise CommandError(stored.problem)
    typer.echo(write_spec_text((stored.effective if effective else None) or stored.spec), nl=False)


def history(
    session: Session,
    source: SOURCE,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of versions.")] = 20,
) -> None:
    """List the versions of the spec, the latest first, with their authors, changes and reasons."""
    versions, output = read_history(_view(session, source), limit), session.output
    if output.as_json:
        for each in versions:
            output.record(each)
        return
    now = session.context.clock.now()
    columns = (
        OutputColumn("version", numbers=True),
        OutputColumn("when"),
        OutputColumn("by"),
        OutputColumn("change"),
        OutputColumn("reason"),
    )
    rows = [
        (
            Text(str(each.version)),
            Text(_ago(each.at, now)),
            printable(each.by),
            Text("terminates" if each.is_termination else (each.change or "").lower()),
            printable(each.reason),
        )
        for each in versions
    ]
    output.results.print(table(output.results, columns, rows))


# Selection


def selected_sources(session: Session, source: str | None, everything: bool) -> list[str]:
    """Return the selected sources: one, or all that have a supervisor.

    :raises typer.BadParameter: if both are given, or neither.
    """
    if (source is None) is not everything:
        raise typer.BadParameter("give a source or --all, but not both", param_hint="SOURCE")
    return all_supervised(session) if source is None else [source]


def all_supervised(session: Session) -> list[str]:
    """Return the sources in the store that have a supervisor."""
    return supervised_sources(session.store, session.access.prefix)


def coordinator_of(session: Session, source: str) -> SourceCoordinator:
    """Return an initialized coordinator of a source."""
    import_airflow()  # specs consist of the parameters of its operators
    coordinator = SourceCoordinator(
        session.store,
        source,
        f"{socket.gethostname()}:cli:{secrets.token_hex(4)}",
        prefix=session.access.prefix,
        safety_margin=session.access.safety_margin,
        retry_policy=session.access.retry_policy,
        clock=session.context.clock,
    )
    coordinator.initialize()
    return coordinator


def _view(session: Session, source: str) -> SourceView:
    return coordinator_of(session, source).view


def status_of(session: Session, source: str) -> SupervisorStatus:
    """Return the status of a supervisor.

    :raises SupervisorNotFoundError: if the source has none.
    """
    return existing_status(_view(session, source))


# Display

JOB_COLUMNS = (
    OutputColumn("job", shortened=True),
    OutputColumn("state"),
    OutputColumn("spec", numbers=True),
    OutputColumn("partitions", numbers=True),
    OutputColumn("slots", numbers=True),
    OutputColumn("lag", numbers=True),
    OutputColumn("time left", numbers=True),
    OutputColumn("application"),
    OutputColumn("log"),
    OutputColumn("stop reason"),
)
ERROR_COLUMNS = (OutputColumn("when"), OutputColumn("error"), OutputColumn("partition"), OutputColumn("message"))


def _facts(session: Session, status: SupervisorStatus) -> Iterable[tuple[str, Text]]:
    """Yield the lines of a status."""
    now = session.context.clock.now()
    yield "source", printable(status.source) + Text(f" ({status.kind or 'spec unreadable'})")
    yield "state", _state(status)
    if (suspended := status.suspended) is not None:
        reason = f": {suspended.reason}" if suspended.reason else ""
        yield "suspended", printable(f"{_ago(suspended.since, now)} by {suspended.by}{reason}")
    if (terminated := status.terminated) is not None:
        yield "terminated", printable(f"{_ago(terminated.at, now)}: {terminated.reason}")
    yield "supervised", _supervised_by(status)
    by = f" by {status.spec_by}" if status.spec_by else ""
    yield "spec", printable(f"version {status.spec_version}{by}, {_ago(status.spec_at, now)}")
    if status.at_least_once:
        names = ", ".join(status.at_least_once)
        yield "delivery", printable(f"at least once to {names}: a batch may be delivered more than once")
    count = status.task_count
    yield "jobs", printable(f"{_job_count(status)}: {count.reason}")
    if count.changes:
        last = count.changes[-1]
        yield "scaling", printable(f"{last.before} to {last.after}, {_ago(last.at, now)}: {last.reason}")
    statuses = ", ".join(f"{status.partitions[each.value]} {each.value}" for each in PartitionStatus)
    yield "partitions", Text(f"{status.partitions['open']} open: {statuses}")
    unknown = f", unknown for {status.lag.unknown}" if status.lag.unknown else ""
    yield "lag", Text(f"{_lag(status.lag.oldest_ms)}{unknown}")
    if status.lag_series and (fresh := status.lag_series[-1].freshness_ms) is not None:
        yield "freshness", Text(f"95 % of the latest records within {_lag(fresh)} in every sink")
    if status.lag_series and (behind := status.lag_series[-1].watermark_ms) is not None:
        yield "complete", Text(f"everything that arrived until {_lag(behind)} before the last observation is delivered")
    if status.freshness_problem is not None:
        yield "target", Text(printable(status.freshness_problem).plain, style=ALARM)


def _state(status: SupervisorStatus) -> Text:
    text = status.state if status.state == status.detailed_state else f"{status.state} ({status.detailed_state})"
    return Text(text, style=HEALTHY_STYLES.get(status.state, "") if status.healthy else ALARM)


def _supervised_by(status: SupervisorStatus) -> Text:
    if status.is_supervised:
        return printable(status.dag_id)
    text = f"no DAG; last by {status.dag_id}" if status.dag_id else "no DAG yet"
    return Text("", style="" if status.terminated else ALARM) + printable(text)


def _job_count(status: SupervisorStatus) -> str:
    working = sum(job.state in ("SUBMITTED", "STARTING", "RUNNING") for job in status.jobs)
    wanted = status.task_count.wanted
    return f"{working}/{'?' if wanted is None else wanted}"


def _lag(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "unknown"
    return f"{milliseconds} ms" if milliseconds < 2000 else duration(timedelta(milliseconds=milliseconds))


def _job_row(job: JobStatus) -> tuple[Text, ...]:
    left = job.remaining_seconds
    return (
        printable(job.owner),
        Text(job.state, style=ALARM if job.state == VANISHED else ""),
        Text(f"{job.spec_version or ''}{' (outdated)' if job.is_outdated else ''}"),
        Text(str(job.partitions)),
        Text("" if job.slots is None else str(job.slots)),
        Text(_lag(job.lag_ms)),
        Text("" if left is None else duration(timedelta(seconds=left))),
        printable(job.application_id or ""),
        printable(job.log or ""),
        printable(job.stop_reason or ""),
    )


def _error_row(error: ErrorEvent, now: datetime) -> tuple[Text, ...]:
    return (
        Text(_ago(error.at, now)),
        printable(error.error_class),
        printable(error.partition or ""),
        printable(error.message),
    )


def _count_rows(owner: str, stats: JobStats) -> list[tuple[Text, ...]]:
    rows = [("total", vars(stats.totals)), *((f"per second, {window}", stats.rates[window]) for window in WINDOWS)]
    return [
        (printable(owner if not number else ""), Text(name), *(Text(f"{counts[each]:g}") for each in COUNTED))
        for number, (name, counts) in enumerate(rows)
    ]


def _ago(at: datetime | None, now: datetime) -> str:
    return "" if at is None else f"{duration(max(timedelta(0), now - at))} ago"
