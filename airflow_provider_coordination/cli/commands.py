"""What all commands share: options and arguments, opening the store, confirmation, refreshing, reporting failures.

Exit codes: 0 success, 1 the store or a partition refused the command, 2 wrong usage. An error is one line on standard
error.
"""

from __future__ import annotations

import getpass
import inspect
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import Progress
from rich.text import Text
from typer.core import TyperGroup

from airflow_provider_coordination.cli.access import (
    DEFAULT_CONN_ID,
    STORE_VARIABLE,
    StoreAccess,
    StoreOptions,
    store_access,
)
from airflow_provider_coordination.cli.output import ALARM, PARTITION_COLUMNS, Output, partition_row, table
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentError,
    ConfigurationError,
    CoordinationError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.partition import Partition, source_identifier
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.texts import rest_of
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.redaction import without_secrets

MAX_LISTED = 20
"""The number of partitions that are listed before the user is asked to confirm."""
PROGRESS_BAR_FROM = 20
"""From this number of partitions on, a progress bar is shown."""

SOURCE = Annotated[str, typer.Argument(metavar="SOURCE", help="Name of the source.")]
KEYS = Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys of the partitions.")]
OPTIONAL_KEYS = Annotated[list[str] | None, typer.Argument(metavar="[KEY...]", help="Keys of the partitions.")]
REASON = Annotated[str | None, typer.Option("--reason", help="Reason, kept in the history of each partition.")]
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


EXIT_REFUSED = 1
EXIT_USAGE = 2

CONN_ID = Annotated[
    str | None, typer.Option("--conn-id", help=f"Airflow connection of type coordination. Default: {DEFAULT_CONN_ID}.")
]
STORE = Annotated[
    str | None,
    typer.Option(
        "--store", help=f"URL of the store, such as sqlite:////path/to/file.db. Environment variable: {STORE_VARIABLE}."
    ),
]
TABLE = Annotated[str | None, typer.Option("--table", help="Table of the store, if it is not the default one.")]
PREFIX = Annotated[
    str | None, typer.Option("--prefix", help="Prefix of this installation, if several share the store.")
]
JSON = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
VERBOSE = Annotated[
    bool, typer.Option("--verbose", "-v", help="Log to standard error and report failures in more detail.")
]

COMMON = {"conn_id": CONN_ID, "store": STORE, "table": TABLE, "prefix": PREFIX, "as_json": JSON, "verbose": VERBOSE}


def _stdin_is_a_terminal() -> bool:
    return sys.stdin.isatty()


def _shell_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"


@dataclass(frozen=True, kw_only=True)
class CommandContext:
    """What a command takes from its environment. Tests and other callers pass their own as Typer's context `obj`.

    :param clock: the clock.
    :param sleep: waits for a number of seconds.
    :param is_interactive: returns whether the user can be asked to confirm: standard input is a terminal.
    :param environment: the environment variables.
    :param user: returns the name of the user who runs the command.
    """

    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep
    is_interactive: Callable[[], bool] = _stdin_is_a_terminal
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    user: Callable[[], str] = _shell_user


@dataclass(frozen=True, kw_only=True)
class Session:
    """What a command works with.

    :param store: the store, opened but not initialized: only `init-store` creates a missing table.
    :param access: how the store was selected.
    :param output: writes results and messages.
    :param context: the clock, the environment and the user.
    """

    store: CoordinationStore
    access: StoreAccess
    output: Output
    context: CommandContext

    def source_identifier(self, source: str) -> str:
        """Return the item family of a source's partitions.

        :raises ConfigurationError: if the name is not a valid source name.
        """
        return source_identifier(source, prefix=self.access.prefix)

    def view(self, source: str) -> SourceView:
        """Return a source, initialized.

        :raises ConfigurationError: if the name is not a valid source name, or the store cannot be used.
        """
        view = SourceView(
            self.store,
            source,
            prefix=self.access.prefix,
            safety_margin=self.access.safety_margin,
            clock=self.context.clock,
        )
        view.initialize()
        return view

    def administration(self, source: str, reason: str | None = None) -> Administration:
        """Return the administration of a source's partitions, acting in the name of the user who runs the command.

        :param reason: the user's reason; None if the user gave none.
        """
        return Administration(
            self.store,
            self.source_identifier(source),
            self.context.clock,
            by=self.context.user(),
            reason=reason or "",
        )

    def confirm(self, question: str) -> bool:
        """Ask the user on standard error. Return whether the answer is yes."""
        self.output.messages.print(f"{question} [y/N]:", end=" ", highlight=False, markup=False)
        return sys.stdin.readline().strip().lower() in ("y", "yes")


class CommandError(Exception):
    """A command failed. The text holds no secret.

    :param exit_code: the exit code of the process.
    """

    def __init__(self, message: str, exit_code: int = EXIT_REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def add_command(app: typer.Typer, name: str, function: Callable[..., None], *, creates_store: bool = False) -> None:
    """Add a function as a command with its own options and the common ones.

    :param function: called with a `Session` and its own options; its docstring is the command's help.
    :param creates_store: whether the command accepts a store that does not exist yet.
    """

    def run(ctx: typer.Context, **options: Any) -> None:
        common = {option: options.pop(option) for option in COMMON}
        with (
            logging_to_stderr(verbose=common["verbose"]),
            session(ctx.obj or CommandContext(), creates_store=creates_store, **common) as opened,
        ):
            function(opened, **options)

    run.__signature__ = _with_common_options(function)  # type: ignore[attr-defined]
    run.__doc__ = function.__doc__
    app.command(name)(run)


def _with_common_options(function: Callable[..., None]) -> inspect.Signature:
    _, *own = inspect.signature(function, eval_str=True).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    flags = (JSON, VERBOSE)
    return inspect.Signature(
        [
            inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
            *(parameter.replace(kind=keyword) for parameter in own),
            *(
                inspect.Parameter(option, keyword, annotation=kind, default=False if kind in flags else None)
                for option, kind in COMMON.items()
            ),
        ]
    )


@contextmanager
def session(
    context: CommandContext,
    *,
    conn_id: str | None,
    store: str | None,
    table: str | None,
    prefix: str | None,
    as_json: bool,
    verbose: bool,
    creates_store: bool = False,
) -> Iterator[Session]:
    """Open the store that the options select, and close it afterwards.

    :raises CommandError: for every failure; its text holds no password.
    """
    options = StoreOptions(conn_id=conn_id, store=store, table=table, prefix=prefix)
    settings: StoreSettings | None = None
    opened: CoordinationStore | None = None
    try:
        access = store_access(options, context.environment)
        settings = access.settings
        opened = open_store(settings)
        if not creates_store:
            settings.loaded_kind.check_exists(settings.own)
        yield Session(store=opened, access=access, output=Output(as_json=as_json), context=context)
    except CoordinationError as error:
        # An acknowledgment set that refuses a change does not mean that the usage was wrong.
        is_usage = isinstance(error, ConfigurationError) and not isinstance(error, AcknowledgmentError)
        exit_code = EXIT_USAGE if is_usage else EXIT_REFUSED
        raise CommandError(without_secrets(_with_remedy(error), settings), exit_code) from None
    except (CommandError, BrokenPipeError, typer.Abort, typer.Exit):
        raise
    except Exception as error:
        if _is_typer_error(error):
            raise
        if verbose:
            sys.stderr.write(without_secrets(traceback.format_exc(), settings))
        [first, *_] = str(error).strip().splitlines() or [""]
        text = f"unexpected {type(error).__name__}: {first}"
        raise CommandError(without_secrets(text, settings)) from None
    finally:
        if opened is not None:
            opened.close()


class CommandGroup(TyperGroup):
    """The command group: every failure becomes one line on standard error and a documented exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and end the process with its exit code."""
        try:
            result = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            exit_code = result or 0
        except CommandError as error:
            exit_code = _report_failure(str(error), error.exit_code)
        except typer.Abort:
            exit_code = _report_failure("aborted", EXIT_REFUSED)
        except Exception as error:
            if not _is_typer_error(error):
                raise
            ctx = getattr(error, "ctx", None)
            # An empty message means that the command was called without arguments: Typer has shown the help.
            message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
            hint = f"; see {ctx.command_path} --help" if message and ctx is not None else ""
            exit_code = _report_failure(message + hint, error.exit_code)  # type: ignore[attr-defined]
        if standalone_mode:
            sys.exit(exit_code)
        return exit_code


def _report_failure(message: str, exit_code: int) -> int:
    if message:
        sys.stderr.write(f"error: {without_secrets(' '.join(message.split()))}\n")
    return exit_code


def _is_typer_error(error: Exception) -> bool:
    """Return whether Typer raised the error. Its base class differs between versions of Typer."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _with_remedy(error: CoordinationError) -> str:
    text = str(error)
    if "no such table" in text or "UndefinedTable" in text or 'relation "' in text or "doesn't exist" in text:
        return f"{text}; if the store is new, run 'airflow-coordination init-store'"
    return text


@contextmanager
def reporting_errors(*, verbose: bool = False) -> Iterator[None]:
    """Report the errors of a command that needs no store, and log to standard error.

    :raises CommandError: for every error of this package; its text holds no password.
    """
    with logging_to_stderr(verbose=verbose):
        try:
            yield
        except CoordinationError as error:
            exit_code = EXIT_USAGE if isinstance(error, ConfigurationError) else EXIT_REFUSED
            raise CommandError(without_secrets(str(error)), exit_code) from None


@contextmanager
def logging_to_stderr(*, verbose: bool) -> Iterator[None]:
    """Send this package's logs to standard error only: handlers that Airflow sets up may write to standard output."""
    log = logging.getLogger("airflow_provider_coordination")
    before = log.level, log.propagate
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO if verbose else logging.WARNING)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]
