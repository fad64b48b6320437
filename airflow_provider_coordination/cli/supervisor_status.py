"""The commands that only look at supervisors: how they stand, what their jobs counted, and their specs."""

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
from airflow_provider_coordination.cli.watch import INTERVAL, WATCH, check_watch, watched
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
SHOWN_OF_BAD_RECORDS = ("stage", "error", "owner")

SOME_SOURCE = Annotated[str | None, typer.Argument(metavar="[SOURCE]", help="The source's name.", show_default=False)]
ALL = Annotated[bool, typer.Option("--all", help="All supervisors of the store, instead of one.")]


def list_supervisors(session: Session) -> None:
    """List the supervisors, those first that need a person."""
    found = all_statuses(session.store, session.access.prefix, lambda source: _view(session, source))
    if session.output.as_json:
        for each in found:
            session.output.record(each)
        return
    if not found:
        session.output.say("The store holds no supervisor.")
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
    """Show how a supervisor stands: its state, jobs, lag and latest errors."""
    output = session.output
    check_watch(output, watch=watch)
    if output.as_json:
        output.record(status_of(session, source))
        return
    if watch:
        status_of(session, source)  # a name that is misspelt is an error at once
        watched(session, f"{source}, every {interval:g} s; Ctrl-C ends", lambda: _standing(session, source), interval)
    else:
        output.results.print(_standing(session, source), soft_wrap=True)


def _standing(session: Session, source: str) -> RenderableType:
    """Return how a supervisor stands, for people."""
    found, results = status_of(session, source), session.output.results
    now = session.surroundings.clock.now()
    parts: list[RenderableType] = [Text(f"{name:<12}") + text for name, text in _facts(session, found)]
    if found["jobs"]:
        parts += ["", table(results, JOB_COLUMNS, [_job_row(job) for job in found["jobs"]])]
    if found["errors"]:
        parts += ["", table(results, ERROR_COLUMNS, [_error_row(each, now) for each in found["errors"]])]
    return Group(*parts)


def health(session: Session, source: SOME_SOURCE = None, *, everything: ALL = False) -> None:
    """Say whether a supervisor is healthy; the exit code is 1 if it is not."""
    found = [status_of(session, name) for name in named(session, source, everything)]
    for each in found:
        if session.output.as_json:
            session.output.record({name: each[name] for name in ("source", "healthy", "state", "detailed_state")})
        else:
            session.output.line(printable(f"{each['source']}: ") + _state(each))
    if not all(each["healthy"] for each in found):
        raise typer.Exit(EXIT_REFUSED)


def stats(session: Session, source: SOURCE) -> None:
    """Show what the jobs counted, and how much that is a second."""
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
    """List the bad records that the jobs reported in the last day, the latest first."""
    status_of(session, source)
    found, output = read_parse_errors(_view(session, source)), session.output
    if output.as_json:
        for each in found:
            output.record(each)
        return
    if not found:
        output.say("No job reported a bad record.")
        return
    now = session.surroundings.clock.now()
    columns = (Column("when"), Column("stage"), Column("error"), Column("job", shortened=True))
    rows = [
        (
            Text(_ago(each.get("at"), now)),
            *(printable(str(each.get(name) or "")) for name in ("stage", "error", "owner")),
        )
        for each in found
    ]
    output.results.print(table(output.results, columns, rows))


def spec(
    session: Session,
    source: SOURCE,
    *,
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="Which; the one that rules if not given.", show_default=False)
    ] = None,
    effective: Annotated[bool, typer.Option("--effective", help="With every default.")] = False,
) -> None:
    """Print the spec that rules, or another version of it, without secrets."""
    found = read_spec(_view(session, source), version)
    if session.output.as_json:
        session.output.record(found)
        return
    if found["is_termination"]:
        raise CommandError(
            f"version {found['version']} of the spec terminates the supervisor; give --version "
            f"{found['version'] - 1} for the spec before it"
        )
    if effective and found["problem"]:
        raise CommandError(found["problem"])
    typer.echo(write_spec_text(found["effective"] if effective else found["spec"]), nl=False)


def history(
    session: Session,
    source: SOURCE,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this number.")] = 20,
) -> None:
    """List the versions of the spec, the latest first: who submitted each, why, and what it changed."""
    found, output = read_history(_view(session, source), limit), session.output
    if output.as_json:
        for each in found:
            output.record(each)
        return
    now = session.surroundings.clock.now()
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


# Which ones are meant


def named(session: Session, source: str | None, everything: bool) -> list[str]:
    """Return the sources whose supervisors are meant: one, or all of the store.

    :raises typer.BadParameter: if both are given, or neither.
    """
    if (source is None) is not everything:
        raise typer.BadParameter("give either a source or --all", param_hint="SOURCE")
    return all_supervised(session) if source is None else [source]


def all_supervised(session: Session) -> list[str]:
    """Return the sources of the store that have a supervisor."""
    return supervised_sources(session.store, session.access.prefix)


def coordinator_of(session: Session, source: str) -> SourceCoordinator:
    """Return an initialized coordinator of a source, for whoever calls."""
    import_airflow()  # specs are made of what its tasks take
    coordinator = SourceCoordinator(
        session.store,
        source,
        f"{socket.gethostname()}:cli:{secrets.token_hex(4)}",
        prefix=session.access.prefix,
        safety_margin=session.access.safety_margin,
        retry_policy=session.access.retry_policy,
        clock=session.surroundings.clock,
    )
    coordinator.initialize()
    return coordinator


def _view(session: Session, source: str) -> SourceView:
    return coordinator_of(session, source).view


def status_of(session: Session, source: str) -> dict[str, Any]:
    """Return how a supervisor stands.

    :raises SupervisorNotFoundError: if the source has none.
    """
    return existing_status(_view(session, source))


# Showing

JOB_COLUMNS = (
    Column("job", shortened=True),
    Column("state"),
    Column("spec", numbers=True),
    Column("partitions", numbers=True),
    Column("lag", numbers=True),
    Column("time left", numbers=True),
    Column("application"),
    Column("stops because"),
)
ERROR_COLUMNS = (Column("when"), Column("error"), Column("partition"), Column("message"))


def _facts(session: Session, found: Mapping[str, Any]) -> Iterable[tuple[str, Text]]:
    """Yield what a status says, line by line."""
    now = session.surroundings.clock.now()
    yield "source", printable(found["source"]) + Text(f" ({found['kind'] or 'of an unreadable spec'})")
    yield "state", _state(found)
    if (suspended := found["suspended"]) is not None:
        reason = f": {suspended['reason']}" if suspended["reason"] else ""
        yield "suspended", printable(f"{_ago(suspended['since'], now)} by {suspended['by']}{reason}")
    if (terminated := found["terminated"]) is not None:
        yield "terminated", printable(f"{_ago(terminated['at'], now)}: {terminated['because']}")
    yield "supervised", _supervised_by(found)
    by = f" by {found['spec_by']}" if found["spec_by"] else ""
    yield "spec", printable(f"version {found['spec_version']}{by}, {_ago(found['spec_at'], now)}")
    if found["at_least_once"]:
        names = ", ".join(found["at_least_once"])
        yield "delivery", printable(f"at least once to {names}: a batch may come there more than once")
    count = found["task_count"]
    yield "jobs", printable(f"{_job_count(found)}: {count['reason']}")
    if count["changes"]:
        last = count["changes"][-1]
        yield "scaling", printable(f"{last['before']} to {last['after']}, {_ago(last['at'], now)}: {last['reason']}")
    statuses = ", ".join(f"{found['partitions'][each.value]} {each.value}" for each in PartitionStatus)
    yield "partitions", Text(f"{found['partitions']['open']} open: {statuses}")
    lag = found["lag"]
    unknown = f", unknown of {lag['unknown']}" if lag["unknown"] else ""
    yield "lag", Text(f"{_lag(lag['oldest_ms']) or 'unknown'}{unknown}")


def _state(found: Mapping[str, Any]) -> Text:
    state, detailed = found["state"], found["detailed_state"]
    text = state if state == detailed else f"{state} ({detailed})"
    return Text(text, style=HEALTHY_STYLES.get(state, "") if found["healthy"] else ALARM)


def _supervised_by(found: Mapping[str, Any]) -> Text:
    if found["is_supervised"]:
        return printable(found["dag_id"])
    text = f"nobody; last by {found['dag_id']}" if found["dag_id"] else "nobody yet"
    return Text("", style="" if found["terminated"] else ALARM) + printable(text)


def _job_count(found: Mapping[str, Any]) -> str:
    working = sum(job["state"] in ("SUBMITTED", "STARTING", "RUNNING") for job in found["jobs"])
    wanted = found["task_count"]["wanted"]
    return f"{working}/{'?' if wanted is None else wanted}"


def _lag(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
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
    rows = [("in all", found["totals"]), *((f"a second, {window}", found["rates"][window]) for window in WINDOWS)]
    return [
        (printable(owner if not number else ""), Text(name), *(Text(f"{counts[each]:g}") for each in COUNTED))
        for number, (name, counts) in enumerate(rows)
    ]


def _ago(instant: object, now: datetime) -> str:
    at = read_instant(instant)
    return "" if at is None else f"{duration(max(timedelta(0), now - at))} ago"
