"""What the commands share that change partitions: which ones are meant, and asking the person first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.progress import Progress

from airflow_provider_coordination.cli.commands import CommandError, Session
from airflow_provider_coordination.cli.output import PARTITION_COLUMNS, Output, partition_row, table
from airflow_provider_coordination.coordination.partition import Partition

SHOWN_AT_MOST = 20
"""So many partitions are listed before the person is asked about them all."""
PROGRESS_FROM = 20
"""From so many partitions on a bar shows how far the work is."""

SOURCE = Annotated[str, typer.Argument(metavar="SOURCE", help="The source's name.", show_default=False)]
KEYS = Annotated[list[str], typer.Argument(metavar="KEY...", help="The keys of the partitions.", show_default=False)]
SOME_KEYS = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY...]", help="The keys of the partitions.", show_default=False)
]
REASON = Annotated[
    str | None, typer.Option("--reason", help="Why; kept in the history of each partition.", show_default=False)
]
YES = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def with_progress(output: Output, done: str, partitions: Sequence[Partition]) -> Iterator[Partition]:
    """Yield the partitions, and show how far that is where the results, going elsewhere, do not show it."""
    if len(partitions) < PROGRESS_FROM or output.results.is_terminal or not output.talk.is_terminal:
        yield from partitions
        return
    with Progress(console=output.talk, transient=True) as progress:
        yield from progress.track(partitions, description=done)


def ask(session: Session, source: str, verb: str, consequence: str, partitions: Sequence[Partition]) -> None:
    """Tell the person what will happen, and ask.

    :param verb: what is done to the partitions.
    :param consequence: what it leads to.
    :raises CommandError: if the answer is no.
    :raises typer.BadParameter: if there is nobody to ask.
    """
    if not session.surroundings.is_interactive():
        raise typer.BadParameter(
            f"there is no terminal to ask whether to {verb} {_number(partitions)}; give --yes",
            param_hint="--yes",
        )
    output, now = session.output, session.surroundings.clock.now()
    rows = [partition_row(partition, now) for partition in partitions[:SHOWN_AT_MOST]]
    output.talk.print(table(output.talk, PARTITION_COLUMNS, rows))
    if len(partitions) > SHOWN_AT_MOST:
        output.say(f"… and {len(partitions) - SHOWN_AT_MOST} more")
    output.say(consequence)
    if not session.agrees(f"{verb.capitalize()} {_number(partitions)} of {source}?"):
        raise CommandError("not confirmed, nothing was changed")


def _number(partitions: Sequence[Partition]) -> str:
    return "this partition" if len(partitions) == 1 else f"these {len(partitions)} partitions"
