"""What the commands that change partitions share: their arguments, the confirmation, and the progress bar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.progress import Progress

from airflow_provider_coordination.cli.commands import CommandError, Session
from airflow_provider_coordination.cli.output import PARTITION_COLUMNS, Output, partition_row, table
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.texts import rest_of

MAX_LISTED = 20
"""The number of partitions that are listed before the user is asked to confirm."""
PROGRESS_BAR_FROM = 20
"""From this number of partitions on, a progress bar is shown."""

SOURCE = Annotated[str, typer.Argument(metavar="SOURCE", help="Name of the source.", show_default=False)]
KEYS = Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys of the partitions.", show_default=False)]
OPTIONAL_KEYS = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY...]", help="Keys of the partitions.", show_default=False)
]
REASON = Annotated[
    str | None, typer.Option("--reason", help="Reason, kept in the history of each partition.", show_default=False)
]
YES = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def with_progress(output: Output, done: str, partitions: Sequence[Partition]) -> Iterator[Partition]:
    """Yield the partitions. Show a progress bar if the results are redirected and standard error is a terminal."""
    if len(partitions) < PROGRESS_BAR_FROM or output.results.is_terminal or not output.messages.is_terminal:
        yield from partitions
        return
    with Progress(console=output.messages, transient=True) as progress:
        yield from progress.track(partitions, description=done)


def confirm_action(session: Session, source: str, verb: str, consequence: str, partitions: Sequence[Partition]) -> None:
    """List the partitions, describe the consequence, and ask the user to confirm.

    :param verb: the action, such as `release`.
    :param consequence: what the action leads to, in a sentence.
    :raises CommandError: if the answer is no.
    :raises typer.BadParameter: if there is no terminal.
    """
    if not session.context.is_interactive():
        raise typer.BadParameter(
            f"there is no terminal to confirm '{verb}' for {_described(partitions)}; give --yes",
            param_hint="--yes",
        )
    output, now = session.output, session.context.clock.now()
    rows = [partition_row(partition, now) for partition in partitions[:MAX_LISTED]]
    output.messages.print(table(output.messages, PARTITION_COLUMNS, rows))
    if rest := rest_of(len(partitions), MAX_LISTED):
        output.info(f"… {rest}")
    output.info(consequence)
    if not session.confirm(f"{verb.capitalize()} {_described(partitions)} of {source}?"):
        raise CommandError("not confirmed; nothing was changed")


def _described(partitions: Sequence[Partition]) -> str:
    return "this partition" if len(partitions) == 1 else f"these {len(partitions)} partitions"
