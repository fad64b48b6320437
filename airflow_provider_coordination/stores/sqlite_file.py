"""The file of an SQLite store: its path, how it is opened, and whether it is still the same file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError

BUSY_TIMEOUT_MS = 30_000


def sqlite_path(url: sa.URL) -> Path:
    """Return the path in an SQLite URL. Every process with this URL must use the same file.

    :raises ConfigurationError: if it has no path, or one that depends on the process.
    """
    name = (url.database or "").removeprefix("file:")
    if url.host:
        raise ConfigurationError(
            f"store 'sql': 'url' contains a server, {url.host!r}, but SQLite has none; give the absolute path of the "
            f"file: sqlite:////{url.host}/{name}, with four slashes"
        )
    if name in ("", ":memory:") or url.query.get("mode") == "memory":
        raise ConfigurationError(
            "store 'sql': SQLite needs a file that all workers of the machine share; give sqlite:////path/to/file.db"
        )
    if not name.startswith("/"):
        absolute = name if "/" in name and name[0] not in ".~" else f"path/to/{Path(name).name}"
        raise ConfigurationError(
            f"store 'sql': 'url' contains the relative path {name!r}, so processes with other working directories "
            f"would coordinate through other files; give the absolute path: sqlite:////{absolute}, with four slashes"
        )
    return Path(name)


class SqliteFile:
    """The file of a store, as a process first opened it.

    If a file is deleted, moved or replaced, processes that have it open continue to coordinate through it, while all
    others use the new one. SQLite would also apply the old file's write-ahead log to the new file. So a process that
    finds another file uses neither.

    :param path: the path of the file.
    :raises ConfigurationError: if its folder does not exist, or it is itself a folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: tuple[int, int] | None = None
        with suppress(PermissionError):  # SQLite reports this as well, with advice
            if path.is_dir():
                raise ConfigurationError(f"store 'sql': {str(path)!r} is a folder; give a file in it in 'url'")
            if not path.parent.is_dir():
                raise ConfigurationError(
                    f"store 'sql': the folder {str(path.parent)!r} of the SQLite file {str(path)!r} does not exist on "
                    "this machine; create it, or correct the path in 'url'"
                )

    def watch(self, engine: sa.Engine) -> None:
        """Configure the connections of an engine, and check the file at the start of each transaction."""
        sa.event.listen(engine, "connect", self._connected)
        sa.event.listen(engine, "begin", self._begin)

    def _connected(self, connection: Any, record: object) -> None:
        if self._opened is not None:
            self._check()
        connection.isolation_level = None  # transactions are started below, not by the driver
        # The timeout comes first, because another process may switch the same new file to WAL at this moment.
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # an acknowledged checkpoint must survive a power failure
        self._opened = self._opened or self._identity()

    def _begin(self, connection: sa.Connection) -> None:
        self._check()
        # A writer takes the write lock at once, because upgrading a read lock later fails without waiting.
        write = connection.get_execution_options().get("coordination_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    def _check(self) -> None:
        """Check that the file is the one that was first opened.

        :raises StoreUnavailableError: if it is not.
        """
        identity = self._identity()
        if identity == self._opened:
            return
        change = "deleted or moved" if identity is None else "replaced"
        raise StoreUnavailableError(
            f"store sqlite:///{self._path}: its file was {change} while this process had it open; end every process "
            f"that uses the store, restore the right file without '{self._path.name}-wal' and "
            f"'{self._path.name}-shm', and start them again"
        )

    def _identity(self) -> tuple[int, int] | None:
        """Return the identity of the file, which differs for another file at this path; None if it does not exist."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino
