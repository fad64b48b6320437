"""The commands that only read supervisors: their status, the statistics of their jobs, and their specs."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from airflow_provider_coordination.cli.access import import_airflow
from airflow_provider_coordination.cli.commands import (
    EXIT_REFUSED,
    CommandError,
    Session,
)
from airflow_provider_coordination.cli.output import ALARM, Column, duration, printable, table
from airflow_provider_coordination.cli.prompts import SOURCE
from airflow_provider_coordination.cli.watch import INTERVAL, WATCH, check_watch, show_repeatedly
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.job_reports import COUNTED, WINDOWS
from airflow_provider_coordination.coordination.partition import PartitionStatus, read_instant
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.supervisor.operations import (
    all_statuses,
    existing_status,
    read_history,
    read_spec,
    supervised_sources,
)
from airflow_provider_coordination.supervisor.spec_file import write_spec_text
from airflow_provider_coordination.supervisor.status import read_parse_errors

HEALTHY_STYLES = {"RUNNING": "green", "SUSPENDED": "yellow", "TERMINATED": "dim"}

OPTIONAL_SOURCE = Annotated[
    str | None, typer.Argument(metavar="[SOURCE]", help="Name of the source.", show_default=False)
]
ALL = Annotated[bool, typer.Option("--all", help="All supervisors in the store, instead of one.")]


def list_supervisors(session: Session) -> None:
    """List the supervisors, unhealthy ones first."""
    found = all_statuses(session.store, session.access.prefix, lambda source: _view(session, source))
    if session.output.as_json:
        for each in found:
            session.output.record(each)
        return
    if not found:
        session.output.info("The store has no supervisors.")
        return
    columns = (
        Column("source"),
        Column("state"),
        Column("jobs", numbers=True),
        Column("partitions", numbers=True),
        Column("lag", numbers=True),
        Column("spec", numbers=True),
        Column("supervised by"),
        Column("last error", shortened=True),
    )
    rows = [
        [
            printable(each["source"]),
            _state(each),
            Text(_job_count(each)),
            Text(str(each["partitions"]["open"])),
            Text(_lag(each["lag"]["oldest_ms"])),
            Text(str(each["spec_version"])),
            _supervised_by(each),
            printable(each["errors"][0]["message"] if each["errors"] and not each["healthy"] else ""),
        ]
        for each in found
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
    found, results = status_of(session, source), session.output.results
    now = session.context.clock.now()
    parts: list[RenderableType] = [Text(f"{name:<12}") + text for name, text in _facts(session, found)]
    if found["jobs"]:
        parts += ["", table(results, JOB_COLUMNS, [_job_row(job) for job in found["jobs"]])]
    if found["errors"]:
        parts += ["", table(results, ERROR_COLUMNS, [_error_row(each, now) for each in found["errors"]])]
    return Group(*parts)


def health(session: Session, source: OPTIONAL_SOURCE = None, *, everything: ALL = False) -> None:
    """Report whether a supervisor is healthy. The exit code is 1 if it is not."""
    found = [status_of(session, name) for name in selected_sources(session, source, everything)]
    for each in found:
        if session.output.as_json:
            session.output.record({name: each[name] for name in ("source", "healthy", "state", "detailed_state")})
        else:
            session.output.line(printable(f"{each['source']}: ") + _state(each))
    if not all(each["healthy"] for each in found):
        raise typer.Exit(EXIT_REFUSED)


def stats(session: Session, source: SOURCE) -> None:
    """Show the records that the jobs counted, in total and per second."""
    found, output = status_of(session, source), session.output
    if output.as_json:
        output.record({"source": source, "generated_at": found["generated_at"], **found["stats"]})
        return
    columns = (Column("jobs"), Column("records"), *(Column(name.replace("_", " "), numbers=True) for name in COUNTED))
    rows = _count_rows("all", found["stats"])
    for owner, own in found["stats"]["jobs"].items():
        rows += _count_rows(owner, own)
    output.results.print(table(output.results, columns, rows))


def parse_errors(session: Session, source: SOURCE) -> None:
    """Show how many bad records were found, where they are, and those that jobs listed in the last day."""
    found, output = read_parse_errors(_view(session, source)), session.output
    if output.as_json:
        output.record(found)
        return
    output.info(printable(_bad_records(found)))
    if not found["errors"]:
        return
    now = session.context.clock.now()
    columns = (Column("when"), Column("stage"), Column("error"), Column("job", shortened=True))
    rows = [
        (
            Text(_ago(each.get("at"), now)),
            *(printable(str(each.get(name) or "")) for name in ("stage", "error", "owner")),
        )
        for each in found["errors"]
    ]
    output.results.print(table(output.results, columns, rows))


def _bad_records(found: Mapping[str, Any]) -> str:
    """Return how many bad records there are, and where."""
    path, listed = found["dead_letter_path"], len(found["errors"])
    if not found["count"] and not listed:
        return "No job found bad records."
    where = f"Dead letters: {path}." if path else "The spec has no 'dead_letter_path': a bad record fails its batch."
    return f"{found['count']} bad records, {listed} of them listed. {where}"


def spec(
    session: Session,
    source: SOURCE,
    *,
    version: Annotated[
        int | None,
        typer.Option("--version", min=1, help="Version of the spec. Default: the current one.", show_default=False),
    ] = None,
    effective: Annotated[bool, typer.Option("--effective", help="Include all defaults.")] = False,
) -> None:
    """Print the current spec, or another version, without secrets."""
    found = read_spec(_view(session, source), version)
    if session.output.as_json:
        session.output.record(found)
        return
    if found["is_termination"]:
        raise CommandError(
            f"version {found['version']} terminates the supervisor and has no spec; give --version "
            f"{found['version'] - 1} for the previous spec"
        )
    if effective and found["problem"]:
        raise CommandError(found["problem"])
    typer.echo(write_spec_text(found["effective"] if effective else found["spec"]), nl=False)


def history(
    session: Session,
    source: SOURCE,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of versions.")] = 20,
) -> None:
    """List the versions of the spec, the latest first, with their authors, changes and reasons."""
    found, output = read_history(_view(session, source), limit), session.output
    if output.as_json:
        for each in found:
            output.record(each)
        return
    now = session.context.clock.now()
    columns = (Column("version", numbers=True), Column("when"), Column("by"), Column("change"), Column("reason"))
    rows = [
        (
            Text(str(each["version"])),
            Text(_ago(each["at"], now)),
            printable(each["by"]),
            Text("terminates" if each["is_termination"] else (each["change"] or "").lower()),
            printable(each["reason"]),
        )
        for each in found
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


def status_of(session: Session, source: str) -> dict[str, Any]:
    """Return the status of a supervisor.

    :raises SupervisorNotFoundError: if the source has none.
    """
    return existing_status(_view(session, source))


# Display

JOB_COLUMNS = (
    Column("job", shortened=True),
    Column("state"),
    Column("spec", numbers=True),
    Column("partitions", numbers=True),
    Column("lag", numbers=True),
    Column("time left", numbers=True),
    Column("application"),
    Column("log"),
    Column("stop reason"),
)
ERROR_COLUMNS = (Column("when"), Column("error"), Column("partition"), Column("message"))


def _facts(session: Session, found: Mapping[str, Any]) -> Iterable[tuple[str, Text]]:
    """Yield the lines of a status."""
    now = session.context.clock.now()
    yield "source", printable(found["source"]) + Text(f" ({found['kind'] or 'spec unreadable'})")
    yield "state", _state(found)
    if (suspended := found["suspended"]) is not None:
        reason = f": {suspended['reason']}" if suspended["reason"] else ""
        yield "suspended", printable(f"{_ago(suspended['since'], now)} by {suspended['by']}{reason}")
    if (terminated := found["terminated"]) is not None:
        yield "terminated", printable(f"{_ago(terminated['at'], now)}: {terminated['reason']}")
    yield "supervised", _supervised_by(found)
    by = f" by {found['spec_by']}" if found["spec_by"] else ""
    yield "spec", printable(f"version {found['spec_version']}{by}, {_ago(found['spec_at'], now)}")
    if found["at_least_once"]:
        names = ", ".join(found["at_least_once"])
        yield "delivery", printable(f"at least once to {names}: a batch may be delivered more than once")
    count = found["task_count"]
    yield "jobs", printable(f"{_job_count(found)}: {count['reason']}")
    if count["changes"]:
        last = count["changes"][-1]
        yield "scaling", printable(f"{last['before']} to {last['after']}, {_ago(last['at'], now)}: {last['reason']}")
    statuses = ", ".join(f"{found['partitions'][each.value]} {each.value}" for each in PartitionStatus)
    yield "partitions", Text(f"{found['partitions']['open']} open: {statuses}")
    lag = found["lag"]
    unknown = f", unknown for {lag['unknown']}" if lag["unknown"] else ""
    yield "lag", Text(f"{_lag(lag['oldest_ms'])}{unknown}")


def _state(found: Mapping[str, Any]) -> Text:
    state, detailed = found["state"], found["detailed_state"]
    text = state if state == detailed else f"{state} ({detailed})"
    return Text(text, style=HEALTHY_STYLES.get(state, "") if found["healthy"] else ALARM)


def _supervised_by(found: Mapping[str, Any]) -> Text:
    if found["is_supervised"]:
        return printable(found["dag_id"])
    text = f"no DAG; last by {found['dag_id']}" if found["dag_id"] else "no DAG yet"
    return Text("", style="" if found["terminated"] else ALARM) + printable(text)


def _job_count(found: Mapping[str, Any]) -> str:
    working = sum(job["state"] in ("SUBMITTED", "STARTING", "RUNNING") for job in found["jobs"])
    wanted = found["task_count"]["wanted"]
    return f"{working}/{'?' if wanted is None else wanted}"


def _lag(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "unknown"
    return f"{milliseconds} ms" if milliseconds < 2000 else duration(timedelta(milliseconds=milliseconds))


def _job_row(job: Mapping[str, Any]) -> tuple[Text, ...]:
    left = job["remaining_seconds"]
    return (
        printable(job["owner"]),
        Text(job["state"], style=ALARM if job["state"] == "VANISHED" else ""),
        Text(f"{job['spec_version'] or ''}{' (outdated)' if job['is_outdated'] else ''}"),
        Text(str(job["partitions"])),
        Text(_lag(job["lag_ms"])),
        Text("" if left is None else duration(timedelta(seconds=left))),
        printable(job["application_id"] or ""),
        printable(job["log"] or ""),
        printable(job["stop_reason"] or ""),
    )


def _error_row(error: Mapping[str, Any], now: datetime) -> tuple[Text, ...]:
    return (
        Text(_ago(error["at"], now)),
        printable(error["error_class"]),
        printable(error["partition"] or ""),
        printable(error["message"]),
    )


def _count_rows(owner: str, found: Mapping[str, Any]) -> list[tuple[Text, ...]]:
    rows = [("total", found["totals"]), *((f"per second, {window}", found["rates"][window]) for window in WINDOWS)]
    return [
        (printable(owner if not number else ""), Text(name), *(Text(f"{counts[each]:g}") for each in COUNTED))
        for number, (name, counts) in enumerate(rows)
    ]


def _ago(instant: object, now: datetime) -> str:
    at = read_instant(instant)
    return "" if at is None else f"{duration(max(timedelta(0), now - at))} ago"
