"""What every command has in common: the options that name the store, how it is opened, and how it fails.

Exit codes: 0 done, 1 the store or a partition refused, 2 wrong usage. An error is one line on standard error.
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
from typer.core import TyperGroup

from airflow_provider_coordination.cli.access import (
    DEFAULT_CONN_ID,
    STORE_VARIABLE,
    StoreAccess,
    StoreOptions,
    store_access,
)
from airflow_provider_coordination.cli.output import Output
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import AcknowledgmentError, ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.partition import source_identifier
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.redaction import without_secrets

EXIT_REFUSED = 1
EXIT_USAGE = 2

CONN_ID = Annotated[
    str | None,
    typer.Option("--conn-id", help=f"An Airflow connection of type coordination; {DEFAULT_CONN_ID} if none is given."),
]
STORE = Annotated[
    str | None,
    typer.Option(
        "--store",
        help=f"The store's URL, such as sqlite:////path/to/file.db. Also read from {STORE_VARIABLE}.",
    ),
]
TABLE = Annotated[str | None, typer.Option("--table", help="The store's table, if not the usual one.")]
PREFIX = Annotated[str | None, typer.Option("--prefix", help="The installation's prefix, where several share a store.")]
JSON = Annotated[bool, typer.Option("--json", help="Write JSON, one object a line, for scripts.")]
VERBOSE = Annotated[bool, typer.Option("--verbose", "-v", help="Log to standard error; say more about failures.")]

COMMON = {"conn_id": CONN_ID, "store": STORE, "table": TABLE, "prefix": PREFIX, "as_json": JSON, "verbose": VERBOSE}


def _stdin_is_a_terminal() -> bool:
    return sys.stdin.isatty()


def _shell_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a command finds around it; given as the context's `obj` by whoever calls it otherwise than from a shell.

    :param clock: where the time comes from.
    :param sleep: waits so many seconds.
    :param is_interactive: whether there is a person to ask.
    :param environment: the environment's variables.
    :param user: names who calls.
    """

    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep
    is_interactive: Callable[[], bool] = _stdin_is_a_terminal
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    user: Callable[[], str] = _shell_user


@dataclass(frozen=True, kw_only=True)
class Session:
    """What a command works with.

    :param store: opened, and not initialized: only `init-store` creates what is missing.
    :param access: how it was found.
    :param output: where results go.
    :param surroundings: what the command finds around it.
    """

    store: CoordinationStore
    access: StoreAccess
    output: Output
    surroundings: Surroundings

    def source_identifier(self, source: str) -> str:
        """Return the item family of a source's partitions.

        :raises ConfigurationError: if the name is not usable.
        """
        return source_identifier(source, prefix=self.access.prefix)

    def administration(self, source: str, reason: str | None = None) -> Administration:
        """Return what changes a source's partitions in the name of whoever calls.

        :param reason: why, in the person's words; None if nothing was said.
        """
        return Administration(
            self.store,
            self.source_identifier(source),
            self.surroundings.clock,
            by=self.surroundings.user(),
            reason=reason or "",
        )

    def agrees(self, question: str) -> bool:
        """Ask the person, and tell whether the answer is yes; nothing of it goes to standard output."""
        self.output.talk.print(f"{question} [y/N]:", end=" ", highlight=False, markup=False)
        return sys.stdin.readline().strip().lower() in ("y", "yes")


class CommandError(Exception):
    """A command failed; the text may be shown to anybody.

    :param exit_code: what the process ends with.
    """

    def __init__(self, message: str, exit_code: int = EXIT_REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def add_command(app: typer.Typer, name: str, function: Callable[..., None], *, creates_store: bool = False) -> None:
    """Make a function a command that has the options of every command beside its own.

    :param function: is given a `Session` and its own options; its docstring is the command's help.
    :param creates_store: whether a store that does not exist yet will do.
    """

    def run(context: typer.Context, **given: Any) -> None:
        common = {option: given.pop(option) for option in COMMON}
        with (
            logging_to_stderr(verbose=common["verbose"]),
            session(context.obj or Surroundings(), creates_store=creates_store, **common) as opened,
        ):
            function(opened, **given)

    run.__signature__ = _with_common_options(function)  # type: ignore[attr-defined]
    run.__doc__ = function.__doc__
    app.command(name)(run)


def _with_common_options(function: Callable[..., None]) -> inspect.Signature:
    _, *own = inspect.signature(function, eval_str=True).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    flags = (JSON, VERBOSE)
    return inspect.Signature(
        [
            inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
            *(parameter.replace(kind=keyword) for parameter in own),
            *(
                inspect.Parameter(option, keyword, annotation=kind, default=False if kind in flags else None)
                for option, kind in COMMON.items()
            ),
        ]
    )


@contextmanager
def session(
    surroundings: Surroundings,
    *,
    conn_id: str | None,
    store: str | None,
    table: str | None,
    prefix: str | None,
    as_json: bool,
    verbose: bool,
    creates_store: bool = False,
) -> Iterator[Session]:
    """Open the store that the options name, and close it afterwards.

    :raises CommandError: for whatever goes wrong, without a password in its text.
    """
    options = StoreOptions(conn_id=conn_id, store=store, table=table, prefix=prefix)
    settings: StoreSettings | None = None
    opened: CoordinationStore | None = None
    try:
        access = store_access(options, surroundings.environment)
        settings = access.settings
        opened = open_store(settings)
        if not creates_store:
            settings.implemented.check_exists(settings.own)
        yield Session(store=opened, access=access, output=Output(as_json=as_json), surroundings=surroundings)
    except CoordinationError as error:
        # What a set refuses is no fault of the command line.
        is_usage = isinstance(error, ConfigurationError) and not isinstance(error, AcknowledgmentError)
        exit_code = EXIT_USAGE if is_usage else EXIT_REFUSED
        raise CommandError(without_secrets(_with_remedy(error), settings), exit_code) from None
    except (CommandError, BrokenPipeError, typer.Abort, typer.Exit):
        raise
    except Exception as error:
        if _is_of_the_command_line(error):
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
    """The commands; however one fails, the person gets one line and the exit code that is documented."""

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
            outcome = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            exit_code = outcome or 0
        except CommandError as error:
            exit_code = _failed(str(error), error.exit_code)
        except typer.Abort:
            exit_code = _failed("stopped", EXIT_REFUSED)
        except Exception as error:
            if not _is_of_the_command_line(error):
                raise
            context = getattr(error, "ctx", None)
            # Without a message it was a call without anything, and the help is shown already.
            message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
            hint = f"; see {context.command_path} --help" if message and context is not None else ""
            exit_code = _failed(message + hint, error.exit_code)  # type: ignore[attr-defined]
        if standalone_mode:
            sys.exit(exit_code)
        return exit_code


def _failed(message: str, exit_code: int) -> int:
    if message:
        sys.stderr.write(f"error: {without_secrets(' '.join(message.split()))}\n")
    return exit_code


def _is_of_the_command_line(error: Exception) -> bool:
    """Tell whether Typer raised it, whose base class has had several homes."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _with_remedy(error: CoordinationError) -> str:
    text = str(error)
    if "no such table" in text or "UndefinedTable" in text or 'relation "' in text or "doesn't exist" in text:
        return f"{text}; if the store is new, run init-store"
    return text


@contextmanager
def logging_to_stderr(*, verbose: bool) -> Iterator[None]:
    """Send our logs to standard error, and nowhere else: whatever Airflow sets up may write to standard output."""
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
