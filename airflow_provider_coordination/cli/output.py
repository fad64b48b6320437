"""The output of commands: tables for people, JSON for scripts.

On a terminal, tables fit its width; otherwise they are plain lines and nothing is shortened. JSON is one object per
line with the field names of `Partition`, and nothing else goes to standard output.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from airflow_provider_coordination.coordination.json_values import json_of
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import is_available
from airflow_provider_coordination.sources.kinds import inspect_partition, lost, unreadable_items
from airflow_provider_coordination.sources.source_kind import Inspection

STYLES = {
    PartitionStatus.UNASSIGNED: "cyan",
    PartitionStatus.ASSIGNED: "green",
    PartitionStatus.CLOSED: "yellow",
    PartitionStatus.COMPLETED: "dim",
}
ALARM = "bold red"
PLAIN_WIDTH = 100_000
"""The width of output that does not go to a terminal, so that no line is wrapped."""


@dataclass(frozen=True)
class OutputColumn:
    """A column of a table.

    :param heading: the heading.
    :param numbers: whether the column is aligned to the right.
    :param shortened: whether its cells are shortened in the middle if the terminal is too narrow.
    """

    heading: str
    numbers: bool = False
    shortened: bool = False


class Output:
    """Writes the results of a command to standard output, and messages to the user to standard error.

    :param as_json: whether results are JSON.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.results = _console(stderr=False)
        self.messages = _console(stderr=True)

    def record(self, record: object) -> None:
        """Write one JSON object on a line: a mapping or a dataclass."""
        # ASCII only, so that the encoding of standard output does not matter.
        self.results.out(json.dumps(json_of(record)), highlight=False)

    def line(self, text: str | Text) -> None:
        """Write a line of results for people; nothing if results are JSON."""
        if not self.as_json:
            self.results.print(text, soft_wrap=True, highlight=False, markup=False)

    def info(self, text: str | Text) -> None:
        """Write a message to the user to standard error."""
        self.messages.print(text, highlight=False, markup=False)

    def warn(self, text: str) -> None:
        """Write a warning to standard error."""
        self.info(f"warning: {text}")


def table(console: Console, columns: Sequence[OutputColumn], rows: Iterable[Sequence[Text]]) -> RenderableType:
    """Return a table that fits the terminal, or plain lines without shortening if the console is no terminal.

    On a terminal, empty columns are left out.
    """
    filled = [tuple(row) for row in rows]
    if not console.is_terminal:
        return _plain_table(columns, filled)
    used = [number for number in range(len(columns)) if not filled or any(row[number].plain for row in filled)]
    columns = [columns[number] for number in used]
    filled = [tuple(row[number] for number in used) for row in filled]
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        grid.add_column(
            column.heading, justify="right" if column.numbers else "left", no_wrap=column.numbers, overflow="fold"
        )
    room = _room_for_shortened(console.width, columns, filled)
    for row in filled:
        grid.add_row(
            *(_shortened(cell, room) if column.shortened else cell for column, cell in zip(columns, row, strict=True))
        )
    return grid


def partition_record(partition: Partition) -> dict[str, Any]:
    """Return a partition as a JSON object: its fields, with instants as text, and `is_parked`."""
    return {
        **{name: value for name, value in json_of(partition).items() if name != "change"},
        "is_parked": partition.is_parked,
    }


PARTITION_COLUMNS = (
    OutputColumn("partition"),
    OutputColumn("status"),
    OutputColumn("time"),
    OutputColumn("fails", numbers=True),
    OutputColumn("gaps", numbers=True),
    OutputColumn("items", numbers=True),
    OutputColumn("owner", shortened=True),
)


def partition_row(partition: Partition, now: datetime) -> tuple[Text, ...]:
    """Return the row of a partition in a table with `PARTITION_COLUMNS`."""
    return (
        printable(partition.partition_key),
        status_text(partition, now),
        Text(time_text(partition, now)),
        Text(str(partition.attempts) if partition.attempts else "", style=ALARM),
        _gaps(partition),
        _items(partition, inspect_partition(partition, now)),
        printable(partition.owner or ""),
    )


def _gaps(partition: Partition) -> Text:
    """Return the number of ranges that were lost before they were read."""
    return Text(str(len(gaps)) if (gaps := lost(partition)) else "", style=ALARM)


def _items(partition: Partition, inspection: Inspection) -> Text:
    """Return the number of finished items and of all items, in red if some items could not be read."""
    if inspection.items is None or inspection.items_done is None:
        return Text("" if inspection.is_readable else "?", style=ALARM)
    return Text(f"{inspection.items_done}/{inspection.items}", style=ALARM if unreadable_items(partition) else "")


def status_text(partition: Partition, now: datetime) -> Text:
    """Return the status of a partition in its colour; in red if it is parked or its lease has expired."""
    is_expired = partition.status is PartitionStatus.ASSIGNED and is_available(partition, now)
    return Text(partition.status, style=ALARM if partition.is_parked or is_expired else STYLES[partition.status])


def time_text(partition: Partition, now: datetime) -> str:
    """Return how long the partition has waited, is still leased, waits before its retry, or has been completed."""
    if partition.is_parked:
        return "parked"
    passed = now - partition.priority
    ahead = passed < timedelta(0)
    length = duration(abs(passed))
    match partition.status:
        case PartitionStatus.UNASSIGNED:
            return f"in {length}" if ahead else f"waits {length}"
        case PartitionStatus.ASSIGNED:
            return f"{length} left" if ahead else f"{length} over"
        case PartitionStatus.CLOSED:
            return f"in {length}" if ahead else f"due {length}"
        case PartitionStatus.COMPLETED:
            return f"{length} ago"


def duration(length: timedelta) -> str:
    """Return a duration, rounded down, in the largest unit in which it is at least two."""
    seconds = int(length.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def printable(text: str) -> Text:
    """Return text from a store with control characters escaped, so that the terminal does not interpret them."""
    return Text("".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text))


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, emoji=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, emoji=False, width=PLAIN_WIDTH)


def _plain_table(columns: Sequence[OutputColumn], rows: Sequence[Sequence[Text]]) -> Text:
    lines = [tuple(column.heading for column in columns), *(tuple(cell.plain for cell in row) for row in rows)]
    widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]

    def aligned(column: OutputColumn, cell: str, width: int) -> str:
        padding = " " * (width - cell_len(cell))
        return padding + cell if column.numbers else cell + padding

    return Text(
        "\n".join(
            "  ".join(aligned(*each) for each in zip(columns, line, widths, strict=True)).rstrip() for line in lines
        )
    )


MIN_SHORTENED = 7


def _room_for_shortened(width: int, columns: Sequence[OutputColumn], rows: Sequence[Sequence[Text]]) -> int:
    taken = sum(
        2 + max(cell_len(column.heading), *(row[number].cell_len for row in rows), 0)
        for number, column in enumerate(columns)
        if not column.shortened
    )
    return max(width - taken, MIN_SHORTENED)


def _shortened(text: Text, room: int) -> Text:
    """Return text shortened in the middle: owners differ at both ends, in the host and in the random part."""
    if text.cell_len <= room:
        return text
    end = (room - 1) // 2
    return Text(f"{text.plain[: room - 1 - end]}…{text.plain[-end:]}", style=text.style)
