"""The file of an SQLite store: which one a URL names, how it is opened, and whether it is still the same one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError

BUSY_TIMEOUT_MS = 30_000


def sqlite_path(url: sa.URL) -> Path:
    """Return the file that an SQLite URL names: every process that is given the URL has to mean the same one.

    :raises ConfigurationError: if it names none, or one that depends on the process.
    """
    name = (url.database or "").removeprefix("file:")
    if url.host:
        raise ConfigurationError(
            f"store 'sql': 'url' names a server, {url.host!r}, and SQLite has none; give the whole path of the file: "
            f"sqlite:////{url.host}/{name}, four slashes"
        )
    if name in ("", ":memory:") or url.query.get("mode") == "memory":
        raise ConfigurationError(
            "store 'sql': SQLite needs a file that all workers of the machine share; give sqlite:////path/to/file.db"
        )
    if not name.startswith("/"):
        whole = name if "/" in name and name[0] not in ".~" else f"path/to/{Path(name).name}"
        raise ConfigurationError(
            f"store 'sql': 'url' names the SQLite file {name!r} by a relative path, so processes with other working "
            f"directories would coordinate through other files; give the whole path: sqlite:////{whole}, four slashes"
        )
    return Path(name)


class SqliteFile:
    """The file of a store, as a process opened it first.

    A file that is deleted, moved or replaced stays what it was to those who have it open: they would coordinate
    through it, and everybody else through the new one. SQLite would also apply to the new file what the former one's
    write-ahead log holds. So a process that finds another file uses neither.

    :param path: where it is.
    :raises ConfigurationError: if its folder does not exist, or it is itself a folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: tuple[int, int] | None = None
        with suppress(PermissionError):  # SQLite says so too, and what may be done about it
            if path.is_dir():
                raise ConfigurationError(f"store 'sql': {str(path)!r} is a folder; name a file in it in 'url'")
            if not path.parent.is_dir():
                raise ConfigurationError(
                    f"store 'sql': the folder {str(path.parent)!r} of the SQLite file {str(path)!r} does not exist on "
                    "this machine; create it, or correct the path in 'url'"
                )

    def watch(self, engine: sa.Engine) -> None:
        """Prepare the connections of an engine, and check the file at the begin of each transaction."""
        sa.event.listen(engine, "connect", self._connected)
        sa.event.listen(engine, "begin", self._begin)

    def _connected(self, connection: Any, record: object) -> None:
        if self._opened is not None:
            self._check()
        connection.isolation_level = None  # transactions are begun below, not guessed by the driver
        # The timeout first: another process may be switching the same new file to WAL in this moment.
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # a checkpoint that was acknowledged survives a power cut
        self._opened = self._opened or self._identity()

    def _begin(self, connection: sa.Connection) -> None:
        self._check()
        # A writer takes the write lock at once: upgrading a read lock later fails without waiting.
        write = connection.get_execution_options().get("coordination_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    def _check(self) -> None:
        """Check that the file is the one that was opened first.

        :raises StoreUnavailableError: if it is not.
        """
        found = self._identity()
        if found == self._opened:
            return
        became = "deleted or moved" if found is None else "replaced"
        raise StoreUnavailableError(
            f"store sqlite:///{self._path}: its file was {became} while this process had it open; end every process "
            f"that uses the store, put the right file there without '{self._path.name}-wal' and "
            f"'{self._path.name}-shm', and start them again"
        )

    def _identity(self) -> tuple[int, int] | None:
        """Return what distinguishes the file from another one of its name; None if there is none."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino
