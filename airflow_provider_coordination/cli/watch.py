"""Showing the same content repeatedly, for `--watch`."""

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

WATCH = Annotated[bool, typer.Option("--watch", help="Refresh the output until Ctrl-C.")]
INTERVAL = Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two refreshes.")]


def check_watch(output: Output, *, watch: bool) -> None:
    """Check that `--watch` is not combined with `--json`.

    :raises typer.BadParameter: if it is.
    """
    if watch and output.as_json:
        raise typer.BadParameter(
            "it cannot be combined with --json, which prints the result once", param_hint="--watch"
        )


def show_repeatedly(session: Session, title: str, shown: Callable[[], RenderableType], interval: float) -> None:
    """Show the content repeatedly until Ctrl-C. If the store is unavailable, show the error and try again."""

    def render() -> RenderableType:
        instant = session.context.clock.now().strftime("%H:%M:%S UTC")
        try:
            content = shown()
        except StoreUnavailableError as error:
            content = Text(f"error: {without_secrets(str(error), session.access.settings)}", style=ALARM)
        return Group(Text(f"{instant}  {title}", style="bold"), content)

    console = session.output.results
    try:
        if not console.is_terminal:
            while True:
                console.print(render())
                session.context.sleep(interval)
        with Live(render(), console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(render(), refresh=True)
                session.context.sleep(interval)
    except KeyboardInterrupt:
        return
