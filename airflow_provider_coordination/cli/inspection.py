"""The commands that only read: `sources`, `partitions`, `show`, `metrics`, `watermark`."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from airflow_provider_coordination.cli.commands import (
    INTERVAL,
    SOURCE,
    WATCH,
    Session,
    add_command,
    check_watch,
    show_repeatedly,
)
from airflow_provider_coordination.cli.output import (
    ALARM,
    PARTITION_COLUMNS,
    STYLES,
    OutputColumn,
    duration,
    partition_record,
    partition_row,
    printable,
    status_text,
    table,
    time_text,
)
from airflow_provider_coordination.cli.suspension import suspension_text, suspensions_of
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.intervals import IntervalLedger
from airflow_provider_coordination.coordination.partition import (
    ItemFamily,
    Partition,
    PartitionStatus,
    format_instant,
    parse_source_identifier,
)
from airflow_provider_coordination.coordination.source_statistics import SourceStatistics, source_statistics
from airflow_provider_coordination.coordination.store import all_partitions
from airflow_provider_coordination.field_hints import format_duration
from airflow_provider_coordination.sources.kinds import facts, inspect_partition, lost, unreadable_items
from airflow_provider_coordination.sources.watermarks import watermark_of

PARTITION_FAMILY = "PARTITION"

STATUS_ORDER = (PartitionStatus.ASSIGNED, PartitionStatus.CLOSED, PartitionStatus.UNASSIGNED, PartitionStatus.COMPLETED)
"""The order of listing by status: leased partitions first, completed ones last."""


class SortKey(StrEnum):
    """The sort keys of partitions."""

    KEY = "key"
    STATUS = "status"
    PRIORITY = "priority"
    OWNER = "owner"
    ATTEMPTS = "attempts"
    CLOSED_COUNT = "closed_count"
    OWNERSHIP_TIMEOUT = "ownership_timeout"
    REOPEN_AT = "reopen_at"
    VERSION = "version"


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    add_command(app, "sources", sources)
    add_command(app, "partitions", partitions)
    add_command(app, "show", show)
    add_command(app, "metrics", metrics)
    add_command(app, "watermark", watermark)


def sources(session: Session) -> None:
    """List the sources in the store with their numbers of partitions by status."""
    output = session.output
    families, others = _families(session)
    counts = {identifier: session.store.count_by_status(identifier) for identifier in families}
    suspended = {
        identifier: suspensions_of(session, family.source, family.prefix).get()
        for identifier, family in families.items()
    }
    if output.as_json:
        for identifier, family in families.items():
            output.record(
                {
                    "source": family.source,
                    "prefix": family.prefix,
                    "source_identifier": identifier,
                    "partitions": {str(status): count for status, count in counts[identifier].items()},
                    "suspended": suspended[identifier],
                    "other_families": [other.family for other in others if other[:2] == family[:2]],
                }
            )
        return
    if not families:
        output.info("The store has no sources.")
    else:
        with_prefix = any(family.prefix for family in families.values())
        columns = [OutputColumn("source"), *([OutputColumn("prefix")] if with_prefix else [])]
        columns += [OutputColumn(str(status), numbers=True) for status in PartitionStatus]
        with_suspension = any(suspended.values())
        columns += [OutputColumn("suspended")] if with_suspension else []
        rows = [
            [
                printable(family.source),
                *([printable(family.prefix or "")] if with_prefix else []),
                *(_count(counts[identifier][status], STYLES[status]) for status in PartitionStatus),
                *([suspension_text(session, suspended[identifier])] if with_suspension else []),
            ]
            for identifier, family in families.items()
        ]
        output.results.print(table(output.results, columns, rows))
    if others:
        names = ", ".join("|".join(part for part in other if part) for other in others)
        output.line(Text("Other items: ") + printable(names))


def partitions(
    session: Session,
    source: SOURCE,
    *,
    status: Annotated[
        list[PartitionStatus] | None,
        typer.Option("--status", case_sensitive=False, help="Only partitions with this status. Repeatable."),
    ] = None,
    parked: Annotated[bool, typer.Option("--parked", help="Only parked partitions.")] = False,
    sort: Annotated[
        SortKey | None, typer.Option("--sort", help="Sort key. Default: by status, the longest waiting first.")
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order; requires --sort.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of partitions.")] = None,
    watch: WATCH = False,
    interval: INTERVAL = 2.0,
) -> None:
    """List the partitions of a source."""
    output = session.output
    identifier = session.source_identifier(source)
    if reverse and sort is None:
        raise typer.BadParameter("it requires --sort", param_hint="--reverse")
    check_watch(output, watch=watch)
    if parked:
        status = [PartitionStatus.CLOSED]

    def find(limit: int | None) -> Iterator[Partition]:
        every = all_partitions(
            session.store, identifier, *(each for each in STATUS_ORDER if each in (status or STATUS_ORDER))
        )
        return _sorted((p for p in every if p.is_parked or not parked), sort, reverse=reverse, limit=limit)

    suspensions = suspensions_of(session, source, session.access.prefix)

    def render() -> RenderableType:
        rows = max(output.results.height - 4, 1) if watch and output.results.is_terminal else None
        listed = _partitions_table(session, identifier, find, limit, rows)
        suspension = suspensions.get() if watch else None
        return listed if suspension is None else Group(printable(f"{source} is {suspension}"), listed)

    if output.as_json:
        for partition in find(limit):
            output.record(partition_record(partition))
    elif watch:
        show_repeatedly(session, f"{source}, every {interval:g} s; Ctrl-C ends", render, interval)
    else:
        output.results.print(render())
    if not watch and (suspension := suspensions.get()) is not None:
        output.warn(str(printable(f"source {source!r} is {suspension}")))
    if not watch and not any(session.store.count_by_status(identifier).values()):
        output.warn(
            f"source {source!r} has no partitions; see `airflow-coordination sources` for the sources of the store"
        )


def show(
    session: Session,
    source: SOURCE,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the partition.")],
) -> None:
    """Show one partition with its progress."""
    partition = Administration(session.store, session.source_identifier(source)).get(key)
    if session.output.as_json:
        session.output.record(partition_record(partition))
        return
    now = session.context.clock.now()
    facts: dict[str, Text] = {
        "partition": printable(partition.partition_key),
        "source": printable(partition.source_identifier),
        "status": status_text(partition, now) + Text(f" ({time_text(partition, now)})"),
        "priority": Text(format_instant(partition.priority)),
        "owner": printable(partition.owner or "-"),
        "ownership_timeout": _instant(partition.ownership_timeout, now),
        "held_since": _instant(partition.held_since, now),
        "reopen_at": Text("never: parked") if partition.is_parked else _instant(partition.reopen_at, now),
        "closed_count": Text(str(partition.closed_count)),
        "attempts": Text(str(partition.attempts), style=ALARM if partition.attempts else ""),
        "last_error": printable(partition.last_error or "-"),
        "version": Text(str(partition.version)),
    }
    lines = [*facts.items(), *_progress_facts(partition, now)]
    width = max(len(name) for name, _ in lines)
    for name, fact in lines:
        session.output.line(Text(f"{name:<{width}}  ", style="bold") + fact)
    if partition.unreadable_progress is not None:
        session.output.line(Text("progress, not readable:", style=ALARM))
        session.output.line(printable(partition.unreadable_progress))
    else:
        session.output.line(Text("progress:", style="bold"))
        session.output.line(json.dumps(partition.progress, indent=2))


def _progress_facts(partition: Partition, now: datetime) -> Iterator[tuple[str, Text]]:
    """Yield the summary of a progress: how far it is, and what was lost or cannot be read."""
    inspection = inspect_partition(partition, now)
    if inspection.kind is None or not inspection.is_readable:
        return  # the raw progress is shown in any case
    if inspection.items is not None:
        yield "kind", printable(inspection.kind)
        yield "items", Text(f"{inspection.items_done} of {inspection.items} done")
    yield "position", printable(inspection.position or "-")
    for name, fact in facts(partition):
        yield name, printable(fact) if isinstance(fact, str) else _instant(fact, now)
    landed = f"{inspection.landed_batches} batches, {inspection.landed_records} records"
    yield "to deliver", Text(landed if inspection.landed_batches else "-")
    for gap in lost(partition):
        yield "lost", Text(printable(gap).plain, style=ALARM)
    for item, reason in unreadable_items(partition):
        yield "unreadable", Text(printable(f"item {item}: {reason}").plain, style=ALARM)


def metrics(
    session: Session,
    source: Annotated[str | None, typer.Argument(metavar="[SOURCE]", help="Only this source.")] = None,
) -> None:
    """Show statistics of the sources, or of one source, from the store."""
    output = session.output
    if source is None:
        families, _ = _families(session)
    else:
        families = {session.source_identifier(source): ItemFamily(session.access.prefix, source, PARTITION_FAMILY)}
    now = session.context.clock.now()
    sources = [
        (
            family,
            identifier,
            source_statistics(session.store, identifier, now),
            suspensions_of(session, family.source, family.prefix).get(),
        )
        for identifier, family in families.items()
    ]
    if output.as_json:
        for family, identifier, figures, suspension in sources:
            suspended = {"suspended": suspension}
            output.record(_figures_record(family, identifier, figures) | suspended)
        return
    if not sources:
        output.info("The store has no sources.")
    for number, (family, _, figures, suspension) in enumerate(sources):
        if number:
            output.line("")
        name = f"{family.source} (prefix {family.prefix})" if family.prefix else family.source
        output.line(printable(name).copy() if not output.results.is_terminal else Text(printable(name).plain, "bold"))
        rows = [[Text(f"  {label}"), value] for label, value in _figures_rows(figures)]
        if suspension is not None:
            rows.append([Text("  suspended"), suspension_text(session, suspension)])
        output.results.print(
            table(output.results, [OutputColumn("  metric"), OutputColumn("value", numbers=True)], rows)
        )


def watermark(session: Session, source: SOURCE) -> None:
    """Show the time up to which everything that arrived is delivered, to all sinks and to each, and what holds it."""
    output, now = session.output, session.context.clock.now()
    view = session.view(source)
    found, ledger = watermark_of(view), IntervalLedger(view).get()
    if output.as_json:
        held = (
            [{"name": hold.name, "until": hold.until, "reason": hold.reason} for hold in found.held_by] if found else []
        )
        output.record(
            {
                "source": source,
                "until": None if found is None else found.until,
                "is_finished": found is not None and found.is_finished,
                "held_by": held,
                "sinks": {} if found is None else found.sinks,
                "intervals": None
                if ledger is None
                else {"every": ledger.every, "next": ledger.next or ledger.start, "late_records": ledger.late_records},
            }
        )
        return
    if found is None:
        output.info(f"Source {source} has no watermark: it has no partitions, or its records have no time of arrival.")
        return
    all_sinks = Text("everything is delivered") if found.is_finished else _instant(found.until, now)
    rows = [[Text("all sinks"), all_sinks], *([printable(sink), _instant(at, now)] for sink, at in found.sinks.items())]
    output.results.print(table(output.results, [OutputColumn("sink"), OutputColumn("delivered until")], rows))
    if ledger is not None:
        following = _instant(ledger.next or ledger.start, now)
        values = [Text(format_duration(ledger.length)), following, Text(str(ledger.late_records))]
        names = ("intervals of", "next to report", "late records")
        output.results.print(table(output.results, [OutputColumn(name) for name in names], [values]))
    columns = [OutputColumn("held by"), OutputColumn("delivered until"), OutputColumn("reason")]
    held_rows = [[printable(each.name), _instant(each.until, now), printable(each.reason)] for each in found.held_by]
    if held_rows:
        output.results.print(table(output.results, columns, held_rows))


def _figures_rows(figures: SourceStatistics) -> Iterator[tuple[str, Text]]:
    for status, count in figures.partitions.items():
        yield f"partitions {status}", _count(count, STYLES[status])
    yield "expired leases", _count(figures.expired_leases, ALARM)
    yield "parked", _count(figures.parked, ALARM)
    yield "failing", _count(figures.failing, ALARM)
    yield "longest wait", Text("-" if figures.oldest_waiting is None else duration(figures.oldest_waiting))
    yield "owners", _count(len(figures.owners), "")


def _figures_record(family: ItemFamily, identifier: str, figures: SourceStatistics) -> dict[str, Any]:
    waiting = figures.oldest_waiting
    return {
        "source": family.source,
        "prefix": family.prefix,
        "source_identifier": identifier,
        "partitions": {str(status): count for status, count in figures.partitions.items()},
        "expired_leases": figures.expired_leases,
        "parked": figures.parked,
        "failing": figures.failing,
        "oldest_waiting_seconds": None if waiting is None else waiting.total_seconds(),
        "owners": dict(figures.owners),
    }


def _families(session: Session) -> tuple[dict[str, ItemFamily], list[ItemFamily]]:
    """Return the partition families by source identifier, and all other families; with the prefix, if one is given."""
    families: dict[str, ItemFamily] = {}
    others = []
    for identifier in session.store.source_identifiers():
        try:
            family = parse_source_identifier(identifier)
        except ValueError:  # an identifier of another system
            family = ItemFamily(None, identifier, "")
        if session.access.prefix not in (None, family.prefix):
            continue
        if family.family == PARTITION_FAMILY:
            families[identifier] = family
        else:
            others.append(family)
    return families, others


def _sorted(
    partitions: Iterator[Partition], sort: SortKey | None, *, reverse: bool, limit: int | None
) -> Iterator[Partition]:
    if sort is None:
        return islice(partitions, limit)
    name = "partition_key" if sort is SortKey.KEY else sort.value

    def order(partition: Partition) -> tuple[bool, Any, str]:
        value = STATUS_ORDER.index(partition.status) if sort is SortKey.STATUS else getattr(partition, name)
        return (value is None) != reverse, "" if value is None else value, partition.partition_key

    if limit is None:
        return iter(sorted(partitions, key=order, reverse=reverse))
    pick = heapq.nlargest if reverse else heapq.nsmallest
    return iter(pick(limit, partitions, key=order))


def _partitions_table(
    session: Session,
    identifier: str,
    find: Callable[[int | None], Iterator[Partition]],
    limit: int | None,
    max_rows: int | None,
) -> RenderableType:
    max_partitions = min((n for n in (limit, max_rows) if n is not None), default=None)
    now = session.context.clock.now()
    rows = [partition_row(partition, now) for partition in find(max_partitions)]
    counts = session.store.count_by_status(identifier)
    summary = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    all_shown = f"{len(rows)} of {sum(counts.values())} partitions shown" + (f": {summary}" if summary else "")
    if not session.output.results.is_terminal:
        return table(session.output.results, PARTITION_COLUMNS, rows)
    return Group(table(session.output.results, PARTITION_COLUMNS, rows), Text(all_shown, style="dim"))


def _count(count: int, style: str) -> Text:
    return Text(str(count), style=style if count else "dim")


def _instant(instant: datetime | None, now: datetime) -> Text:
    if instant is None:
        return Text("-")
    away = instant - now
    relative = f"in {duration(away)}" if instant > now else f"{duration(-away)} ago"
    return Text(f"{format_instant(instant)} ({relative})")
