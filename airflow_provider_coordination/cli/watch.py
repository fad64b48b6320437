"""Showing something again and again, for a person who watches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from airflow_provider_coordination.cli.commands import Session
from airflow_provider_coordination.cli.output import ALARM, Output
from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.stores.redaction import without_secrets

WATCH = Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")]
INTERVAL = Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")]


def check_watch(output: Output, *, watch: bool) -> None:
    """Check that whoever watches is a person.

    :raises typer.BadParameter: if results are for scripts.
    """
    if watch and output.as_json:
        raise typer.BadParameter("it is for people; without it, --json shows it once", param_hint="--watch")


def watched(session: Session, title: str, shown: Callable[[], RenderableType], interval: float) -> None:
    """Show it again and again until the person has seen enough; a store that is away may come back."""

    def look() -> RenderableType:
        instant = session.surroundings.clock.now().strftime("%H:%M:%S UTC")
        try:
            content = shown()
        except StoreUnavailableError as error:
            content = Text(f"error: {without_secrets(str(error), session.access.settings)}", style=ALARM)
        return Group(Text(f"{instant}  {title}", style="bold"), content)

    console = session.output.results
    try:
        if not console.is_terminal:
            while True:
                console.print(look())
                session.surroundings.sleep(interval)
        with Live(look(), console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(look(), refresh=True)
                session.surroundings.sleep(interval)
    except KeyboardInterrupt:
        return
